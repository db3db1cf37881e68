//! The plan that a compiled model carries, in our terms, so that it can be checked, reported and
//! compared: offsets are those of its file, schedule and lives are ours.
//!
//! A file has a place for each buffer and says nothing of what shares memory on purpose. So values
//! that a node lets share memory (a view, a reference, an update in place, what is handed to a
//! subgraph) are members of one storage where their bytes meet, and everything else is a storage of
//! its own. Where bytes meet without such a reason, the storages clash if they are held together,
//! and the checker says so. Nothing is mended here.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tenure_graph::control::transfers;
use tenure_graph::effects::demands::{
    ANY_MEMORY, HOST_MEMORY, HOST_SHARED_MEMORY, is_alone, kind_name,
};
use tenure_graph::effects::{Effects, OpTable, Run, cleared};
use tenure_graph::entity::PrimaryMap;
use tenure_graph::plan::{
    Arena, Item, Life, Member, Place, Plan, PlanOptions, Sizes, Span, Storage,
};
use tenure_graph::recorded::Recorded;
use tenure_graph::{Graph, NodeId, ValueId};
use tenure_solve::Instance;
use tenure_solve::bounds::bounds;

use crate::assign::{buffer, round_up};
use crate::clocks::Clocks;
use crate::homes::{Home, homes};
use crate::liveness::lives;
use crate::schedule::{Schedule, schedule};
use crate::spans::normalise;
use crate::{PlanError, Request};

/// Alignment of the blocks of Graph Engine, in bytes.
pub const BLOCK: u64 = 512;

/// Name of the strategy of recorded plans.
pub const STRATEGY: &str = "recorded";

/// Where memory of the host begins in the file's numbers.
const BASES: [(i64, u64); 2] = [(HOST_MEMORY, 64 << 30), (HOST_SHARED_MEMORY, 128 << 30)];

/// The options that say what Graph Engine's own rules allow: blocks of [`BLOCK`] bytes, tensors with
/// bytes to spare, and inputs and outputs that are lent to nobody.
#[must_use]
pub fn own_rules() -> PlanOptions {
    PlanOptions {
        lent_inputs: Some(Vec::new()),
        lent_outputs: Some(Vec::new()),
        ..lent_rules()
    }
}

/// The same where inputs and outputs may share memory: an input after its last reader, an output
/// with what was used before.
#[must_use]
pub fn lent_rules() -> PlanOptions {
    PlanOptions {
        align: BLOCK,
        fold: false,
        sizes: Sizes::Padded,
        ..PlanOptions::default()
    }
}

/// Makes a plan of what a compiled model records.
///
/// # Errors
/// More steps than can be counted, sizes that do not fit in 64 bits.
pub fn recorded(graph: &Graph, table: &OpTable, recorded: &Recorded) -> Result<Plan, PlanError> {
    let mut options = lent_rules();
    let homes = homes(graph, table, &options);
    let schedule = schedule(graph, table, &homes.folded)?;
    let mut places = Places::default();
    let mut lives = lives(graph, table, &options, &homes, &schedule);
    let kinds = kinds(graph, table);
    let whole = Span {
        first: 0,
        last: schedule.end(),
    };
    for &(value, offset) in &recorded.values {
        let Some(bytes) = graph
            .bytes(value)
            .filter(|_| homes.of[value] == Home::Planned)
        else {
            continue;
        };
        let held = options.held(graph, value).unwrap_or(bytes);
        let life = match is_alone(&graph.nodes[graph.values[value].producer]) {
            true => Life::from_elem(whole, 1),
            false => std::mem::take(&mut lives[value]),
        };
        places.add(Piece {
            item: Item::Value(value),
            kind: kinds.get(&value).copied().unwrap_or(ANY_MEMORY),
            offset,
            bytes,
            held,
            life,
        });
    }
    for &(node, k, offset) in &recorded.workspaces {
        let effects = table.effects(graph, node);
        if let Some(scratch) = effects.scratch.get(k as usize) {
            let cleaned = cleared(graph, table, node).into_iter();
            let mut cleaned = cleaned.filter(|c| c.item == Item::Workspace(node, k));
            let span = match (scratch.alone, cleaned.next()) {
                (true, _) => Some(whole),
                (false, Some(c)) => Some(Span {
                    first: schedule.first(c.cleaner),
                    last: schedule.last(node),
                }),
                (false, None) => schedule.span[node],
            };
            places.add(Piece {
                item: Item::Workspace(node, k),
                kind: scratch.kind,
                offset,
                bytes: scratch.size,
                held: scratch.size,
                life: span.into_iter().collect(),
            });
        }
    }
    places.join_related(graph, table, &schedule);
    options.align = places.align();
    let mut storages = places.storages(options.align)?;
    let arenas = arenas(&mut storages, &recorded.sizes, options.align)?;
    let dynamic = (homes.of.iter()).filter(|(_, home)| **home == Home::Dynamic);
    let dynamic = dynamic.map(|(value, _)| value).collect();
    let clocks = Clocks::new(graph, table, &schedule)?;
    Ok(Plan {
        options,
        arenas,
        waits: clocks.map_or_else(Vec::new, |clocks| clocks.waits().to_vec()),
        steps: schedule.steps,
        storages: storages
            .into_iter()
            .map(|(_, s)| s)
            .collect::<PrimaryMap<_, _>>(),
        copies: Vec::new(),
        folded: Vec::new(),
        dynamic,
        strategy: STRATEGY.to_owned(),
    })
}

/// The special kinds of memory that producers and readers ask for; the first one asked for holds.
fn kinds(graph: &Graph, table: &OpTable) -> FxHashMap<ValueId, i64> {
    let mut kinds = FxHashMap::default();
    for (id, node) in &graph.nodes {
        let effects = table.effects(graph, id);
        let outputs = (0u32..).zip(&node.outputs);
        let outputs = outputs.map(|(k, v)| (v, effects.output_kind(k)));
        let inputs = (0u32..).zip(&node.inputs);
        let inputs = inputs.map(|(k, v)| (v, effects.input_kind(k)));
        for (value, kind) in outputs.chain(inputs) {
            if let Some(value) = value.filter(|_| kind != ANY_MEMORY) {
                kinds.entry(value).or_insert(kind);
            }
        }
    }
    kinds
}

/// Something that has a place.
#[derive(Debug)]
struct Piece {
    item: Item,
    kind: i64,
    offset: u64,
    bytes: u64,
    /// Bytes of memory that it gets.
    held: u64,
    life: Life,
}

impl Piece {
    fn end(&self) -> u64 {
        self.offset.saturating_add(self.held)
    }

    fn meets(&self, other: &Piece) -> bool {
        self.kind == other.kind
            && (self.offset == other.offset
                || self.offset < other.end() && other.offset < self.end())
    }
}

/// Everything that has a place, and what is one storage.
#[derive(Default)]
struct Places {
    pieces: Vec<Piece>,
    /// The next one on the way to the root of each one's storage.
    parent: Vec<usize>,
    of: FxHashMap<ValueId, usize>,
}

impl Places {
    fn add(&mut self, mut piece: Piece) {
        let base = BASES.iter().find(|(kind, _)| *kind == piece.kind);
        let base = base.map_or(0, |(_, base)| *base);
        piece.offset = piece.offset.checked_sub(base).unwrap_or(piece.offset);
        if let Item::Value(value) = piece.item {
            self.of.insert(value, self.pieces.len());
        }
        self.parent.push(self.pieces.len());
        self.pieces.push(piece);
    }

    fn root(&mut self, mut at: usize) -> usize {
        while self.parent[at] != at {
            self.parent[at] = self.parent[self.parent[at]];
            at = self.parent[at];
        }
        at
    }

    /// Makes one storage of all values that may share memory and do.
    fn join_related(&mut self, graph: &Graph, table: &OpTable, schedule: &Schedule) {
        for step in &schedule.steps {
            let node = &graph.nodes[step.node];
            let effects = table.effects(graph, step.node);
            for (output, input) in shared(&effects, node.outputs.len(), node.inputs.len()) {
                self.join(node.output(output), node.input(input));
            }
            if effects.merges {
                node.inputs
                    .windows(2)
                    .for_each(|pair| self.join(pair[0], pair[1]));
            }
            // Pieces without a gap have no room for the bytes to spare between them.
            let is_packed = |run: Option<Run>| run.is_some_and(|run| run.packed);
            if is_packed(effects.input_run) {
                self.join_pieces(&node.inputs);
            }
            if is_packed(effects.output_run) {
                self.join_pieces(&node.outputs);
            }
            if !node.bodies.is_empty() {
                for t in transfers(graph, step.node, effects.class) {
                    self.join(t.from, t.to);
                }
            }
        }
    }

    fn join(&mut self, a: Option<ValueId>, b: Option<ValueId>) {
        let place = |v: Option<ValueId>| self.of.get(&v?).copied();
        let (Some(a), Some(b)) = (place(a), place(b)) else {
            return;
        };
        if self.pieces[a].meets(&self.pieces[b]) {
            let (a, b) = (self.root(a), self.root(b));
            self.parent[a.max(b)] = a.min(b);
        }
    }

    /// Makes one storage of pieces that each begin where the one before ends.
    fn join_pieces(&mut self, pieces: &[Option<ValueId>]) {
        let pieces: Vec<Option<ValueId>> = pieces.iter().copied().filter(Option::is_some).collect();
        for pair in pieces.windows(2) {
            self.join(pair[0], pair[1]);
        }
    }

    /// The largest alignment that all places have, up to that of a block.
    fn align(&self) -> u64 {
        let bits = self.pieces.iter().map(|p| p.offset.trailing_zeros());
        let least = bits.min().unwrap_or(u32::MAX).min(BLOCK.trailing_zeros());
        1 << least
    }

    /// The storages with the kinds of memory that they are in, in order of first use; arenas are
    /// numbered later.
    fn storages(mut self, align: u64) -> Result<Vec<(i64, Storage)>, PlanError> {
        let mut members: Vec<Vec<usize>> = vec![Vec::new(); self.pieces.len()];
        for i in 0..self.pieces.len() {
            let root = self.root(i);
            members[root].push(i);
        }
        let mut storages = Vec::new();
        for list in members.into_iter().filter(|list| !list.is_empty()) {
            let pieces = || list.iter().map(|&i| &self.pieces[i]);
            let offset = pieces().map(|p| p.offset).min().unwrap_or(0);
            let end = pieces().map(Piece::end).max().unwrap_or(0);
            let mut life: Life = pieces().flat_map(|p| p.life.iter().copied()).collect();
            normalise(&mut life);
            let mut members: SmallVec<[Member; 1]> = pieces()
                .map(|p| Member {
                    item: p.item,
                    offset: p.offset - offset,
                    bytes: p.bytes,
                })
                .collect();
            members.sort_by_key(|m| (m.offset, m.item));
            let kind = pieces().next().map_or(ANY_MEMORY, |p| p.kind);
            let storage = Storage {
                place: Place::Arena { arena: 0, offset },
                size: round_up(end - offset, align)?,
                align,
                life,
                members,
            };
            storages.push((kind, storage));
        }
        storages.sort_by_key(|(_, s)| s.life.first().map(|span| span.first));
        Ok(storages)
    }
}

/// Pairs of output and input that may be one memory.
fn shared(effects: &Effects, outputs: usize, inputs: usize) -> Vec<(usize, usize)> {
    let aliases = (effects.views.iter())
        .chain(&effects.refs)
        .chain(&effects.in_place);
    let slot = |k: u32| usize::try_from(k).unwrap_or(usize::MAX);
    let mut pairs: Vec<(usize, usize)> = aliases.map(|a| (slot(a.output), slot(a.input))).collect();
    if effects.merges || effects.input_run.is_some_and(|run| run.whole) {
        pairs.extend((0..inputs).map(|k| (0, k)));
    }
    if effects.output_run.is_some_and(|run| run.whole) {
        pairs.extend((0..outputs).map(|k| (k, 0)));
    }
    pairs
}

/// The arenas, as large as the file says or else as what lies in them, and gives the storages their
/// numbers.
fn arenas(
    storages: &mut [(i64, Storage)],
    sizes: &[(i64, u64)],
    align: u64,
) -> Result<Vec<Arena>, PlanError> {
    let mut kinds: Vec<i64> = storages.iter().map(|(kind, _)| *kind).collect();
    // There is always an arena of ordinary memory, and it is the first.
    kinds.push(ANY_MEMORY);
    kinds.sort_unstable_by_key(|&kind| (kind != ANY_MEMORY, kind));
    kinds.dedup();
    let mut arenas = Vec::with_capacity(kinds.len());
    for (number, &kind) in (0u32..).zip(&kinds) {
        let mut end = 0u64;
        let mut no_reuse = 0u64;
        let mut buffers = Vec::new();
        for (_, storage) in storages.iter_mut().filter(|(k, _)| *k == kind) {
            let Place::Arena { offset, .. } = storage.place else {
                continue;
            };
            storage.place = Place::Arena {
                arena: number,
                offset,
            };
            end = end.max(offset.saturating_add(storage.size));
            no_reuse = no_reuse
                .checked_add(storage.size)
                .ok_or(PlanError::TooLarge)?;
            let request = Request {
                bytes: storage.size,
                align,
                life: storage.life.clone(),
                gear: None,
            };
            buffers.push(buffer(&request, storage.size, align));
        }
        let stated = sizes.iter().find(|(k, _)| *k == kind);
        let size = stated.map_or(end, |(_, size)| *size);
        let load = bounds(&Instance::new(buffers)?).max_load;
        arenas.push(Arena {
            kind: kind_name(kind).into_owned(),
            size,
            align,
            lower_bound: load.min(size),
            proven_optimal: load == size,
            no_reuse,
        });
    }
    Ok(arenas)
}

/// What a compiled model's file says that its plan does not hold: values and workspaces that are to be
/// cleared, and that lie where the node that clears memory does not.
///
/// A checker of plans knows who clears and what; only the file knows which bytes.
#[must_use]
pub fn uncleared(graph: &Graph, table: &OpTable, recorded: &Recorded) -> Vec<(Item, NodeId)> {
    let values = recorded.values.iter();
    let values = values.map(|&(value, at)| (Item::Value(value), at));
    let workspaces = recorded.workspaces.iter();
    let workspaces = workspaces.map(|&(node, k, at)| (Item::Workspace(node, k), at));
    let places: FxHashMap<Item, u64> = values.chain(workspaces).collect();
    let mut found = Vec::new();
    for node in graph.nodes.keys() {
        for c in cleared(graph, table, node) {
            let Some(&start) = places.get(&c.item) else {
                continue;
            };
            let bytes = match c.item {
                Item::Value(value) => graph.bytes(value).unwrap_or(0),
                Item::Workspace(node, k) => {
                    let scratch = table.effects(graph, node).scratch;
                    scratch.get(k as usize).map_or(0, |s| s.size)
                }
                Item::Copy(_) => 0,
            };
            let end = start.saturating_add(bytes);
            let mut areas: Vec<(u64, u64)> = (recorded.cleared.iter())
                .filter(|(cleaner, ..)| *cleaner == c.cleaner)
                .map(|&(_, at, bytes)| (at, at.saturating_add(bytes)))
                .collect();
            areas.sort_unstable();
            let covered =
                areas.iter().fold(
                    start,
                    |until, &(from, to)| {
                        if from <= until { until.max(to) } else { until }
                    },
                );
            if covered < end {
                found.push((c.item, c.cleaner));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_graph::Dialect;
    use tenure_graph::text::parse;

    /// A graph, its values by name at some offsets, and workspace 0 of node `a` at another.
    fn sample(places: &[(&str, u64)], workspace: u64) -> (Graph, Recorded) {
        let graph = parse(
            "model m ge graph ^root {
               %x: float32[16] <size = 96> = Data() @x
               %a: float32[16] <size = 96> = Abs(%x) @a workspace [0, 100]
               %b: float32[16] <ref_input = 0, size = 96> = InplaceAdd(%a) @b
               %c: float32[4] <size = 64> = Op(%b) @c {_output_memory_type = [17]}
               NetOutput(%b, %c) @out
             }",
        )
        .unwrap();
        let value = |name: &str| graph.values.iter().find(|(_, v)| v.name == name).unwrap().0;
        let node = graph.nodes.iter().find(|(_, n)| n.name == "a").unwrap().0;
        let recorded = Recorded {
            sizes: vec![(ANY_MEMORY, 2048)],
            values: places.iter().map(|&(name, at)| (value(name), at)).collect(),
            workspaces: vec![(node, 1, workspace)],
            ..Recorded::default()
        };
        (graph, recorded)
    }

    fn plan_of(places: &[(&str, u64)], workspace: u64) -> Plan {
        let (graph, record) = sample(places, workspace);
        recorded(&graph, &OpTable::builtin(Dialect::Ge), &record).unwrap()
    }

    #[test]
    fn what_shares_memory_on_purpose_is_one_storage() {
        let plan = plan_of(&[("x", 0), ("a", 512), ("b", 512), ("c", 0)], 1024);
        let members: Vec<usize> = plan.storages.values().map(|s| s.members.len()).collect();
        assert_eq!(members, [1, 2, 1, 1]);
        assert_eq!(plan.options.align, 512);
        let arenas: Vec<_> = plan.arenas.iter().map(|a| (&*a.kind, a.size)).collect();
        assert_eq!(arenas, [("device", 2048), ("p2p", 512)]);
        assert_eq!(plan.arenas[0].no_reuse, 1536);
        assert_eq!(plan.arenas[0].lower_bound, 1536);
        // In other places the same two are two storages, and the alignment is that of the places.
        let plan = plan_of(&[("x", 0), ("a", 544), ("b", 1024), ("c", 0)], 1536);
        assert!(plan.storages.values().all(|s| s.members.len() == 1));
        assert_eq!(plan.options.align, 32);
    }

    #[test]
    fn what_is_cleared_must_be_where_it_is_cleared() {
        let graph = parse(
            "model m ge graph ^root {
               %x: float32[16] <size = 96> = Data() @x
               MemSet() @clean
               %a: float32[16] <size = 96> = Op(%x) @a {atomic_output_index = [0]} after @clean
               NetOutput(%a) @out
             }",
        )
        .unwrap();
        let table = OpTable::builtin(Dialect::Ge);
        let (a, _) = graph.values.iter().find(|(_, v)| v.name == "a").unwrap();
        let (clean, _) = graph.nodes.iter().find(|(_, n)| n.name == "clean").unwrap();
        let missed = |areas: &[(u64, u64)]| {
            let record = Recorded {
                values: vec![(a, 512)],
                cleared: areas.iter().map(|&(at, n)| (clean, at, n)).collect(),
                ..Recorded::default()
            };
            uncleared(&graph, &table, &record)
        };
        assert_eq!(missed(&[(512, 64)]), []);
        assert_eq!(missed(&[(540, 64), (0, 512), (512, 32)]), []);
        assert_eq!(missed(&[(512, 63)]), [(Item::Value(a), clean)]);
        assert_eq!(missed(&[(512, 16), (540, 64)]), [(Item::Value(a), clean)]);
        assert_eq!(missed(&[]), [(Item::Value(a), clean)]);
    }
}
