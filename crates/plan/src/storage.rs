//! Which values share memory: views first, then updates in place and values handed over at the
//! borders of subgraphs.
//!
//! Views of one another form a *group*: one piece of bytes under several names. Groups that may
//! hold the same memory one after the other form a *class*; a class becomes a storage.
//!
//! Two classes are joined when their lives meet only at steps where the meeting is the very
//! reason to join: the step of a node that may write its output over its input, or of a transfer
//! whose source and target would be one memory. Every pair of groups alive at such a step must
//! be related that way, or the classes stay apart. So each candidate is judged against all that
//! has been joined before it.

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::rc::Rc;
use tenure_graph::effects::demands::{
    ANY_MEMORY, INPUT_KINDS, asks_for_places, is_alone as is_alone_by_file, memory_kind,
};
use tenure_graph::effects::{Effects, Gears, Merges, OpTable, cleared};
use tenure_graph::entity::{EntityRef, SecondaryMap};
use tenure_graph::plan::{
    Copy, Item, Life, Member, Phase, Placement, PlanOptions, Sharing, Span, Wait,
};
use tenure_graph::{Graph, NodeId, ValueId};

mod addresses;
mod apart;
mod gears;
mod kinds;
mod merge;
mod merges;
mod runs;
mod streams;
mod views;

use crate::PlanError;
use crate::clocks::Clocks;
use crate::homes::{Home, Homes};
use crate::schedule::Schedule;
use crate::spans::normalise;

/// One piece of memory to be placed.
#[derive(Clone, Debug, Default)]
pub struct Class {
    /// What lives in it, in order of first use.
    pub members: Vec<Member>,
    /// When it is held.
    pub life: Life,
    /// Bytes up to the end of the last member.
    pub bytes: u64,
    /// Alignment that the members ask for, in bytes.
    pub align: u64,
    /// Whether it holds a graph output that goes to the caller's memory.
    pub caller: bool,
    /// Kind of memory that it is.
    pub kind: i64,
    /// The one of several gears in which it is there; `None` for all.
    pub gear: Option<u32>,
}

/// All classes, and the copies that keep them apart.
#[derive(Clone, Debug)]
pub struct Classes {
    /// In order of first use.
    pub classes: Vec<Class>,
    /// Copies for single readers.
    pub copies: Vec<Copy>,
    /// Pairs of classes that must not share bytes though their lives do not meet: on several
    /// streams nothing says that one has ended when the other begins.
    pub apart: Vec<(usize, usize)>,
    /// What waits for what on another stream.
    pub waits: Vec<Wait>,
    /// Outputs that were placed over an input of their node.
    pub in_place: usize,
}

/// Steps in all attempts to do with fewer copies, together.
const STEPS_OF_ATTEMPTS: usize = 1 << 18;

/// How many nodes may be given copies of all their inputs because nothing else is found.
const MOST_COPYING: usize = 16;

/// Forms the classes, with as few copies as are found.
///
/// Nodes that ask for places are met one after the other, and what one gets another may have to do
/// without. So each node that reads a copy is tried as the one that is met first, as long as that
/// saves bytes or copies.
///
/// # Errors
/// What is asked for and cannot be had: [`PlanError::Run`], [`PlanError::Torn`],
/// [`PlanError::Tied`], [`PlanError::Merge`], [`PlanError::UnsizedReference`], [`PlanError::Streams`].
pub fn classes(
    graph: &Graph,
    table: &OpTable,
    options: &PlanOptions,
    homes: &Homes,
    schedule: &Schedule,
    lives: SecondaryMap<ValueId, Life>,
) -> Result<Classes, PlanError> {
    let clocks = Clocks::new(graph, table, schedule)?.map(Rc::new);
    let attempt = |first: &[NodeId], copying: &FxHashSet<NodeId>| {
        let mut join = Join::new(graph, table, options, homes, schedule, clocks.clone());
        join.meet_first(first);
        join.copying.clone_from(copying);
        formed(join, lives.clone())
    };
    let join = Join::new(graph, table, options, homes, schedule, clocks.clone());
    let asking: Vec<NodeId> = join.asking.iter().map(|&(node, _)| node).collect();
    if asking.is_empty() {
        return formed(join, lives);
    }
    let mut left = STEPS_OF_ATTEMPTS / schedule.steps.len().max(1);
    let mut first: Vec<NodeId> = Vec::new();
    let mut copying: FxHashSet<NodeId> = FxHashSet::default();
    let mut best = match attempt(&[], &copying) {
        Err(error @ (PlanError::Run { .. } | PlanError::Torn { .. })) => {
            // What cannot be met in this order may be met in another, or with copies of all inputs.
            let mut others = asking
                .iter()
                .take(left)
                .map(|&node| (node, attempt(&[node], &copying)));
            let other = others.find(|(_, found)| found.is_ok());
            left = 0;
            match other {
                Some((node, found)) => {
                    first.push(node);
                    found?
                }
                None => with_copies(graph, &asking, error, &mut copying, |c| attempt(&[], c))?,
            }
        }
        found => found?,
    };
    'better: loop {
        let readers = best.copies.iter().map(|copy| copy.reader);
        let mut readers: Vec<NodeId> = readers
            .filter(|&n| asks_for_places(&graph.nodes[n]) && first.first() != Some(&n))
            .collect();
        readers.dedup();
        for reader in readers {
            if left == 0 {
                return Ok(best);
            }
            left -= 1;
            let rest = first.iter().copied().filter(|&n| n != reader);
            let order: Vec<NodeId> = [reader].into_iter().chain(rest).collect();
            let Ok(found) = attempt(&order, &copying) else {
                continue;
            };
            if found.price(graph) < best.price(graph) {
                (best, first) = (found, order);
                continue 'better;
            }
        }
        return Ok(best);
    }
}

/// Lets those whose inputs cannot lie one behind the other read copies of all of them, one node after
/// the other as they turn up.
fn with_copies(
    graph: &Graph,
    asking: &[NodeId],
    mut error: PlanError,
    copying: &mut FxHashSet<NodeId>,
    attempt: impl Fn(&FxHashSet<NodeId>) -> Result<Classes, PlanError>,
) -> Result<Classes, PlanError> {
    for _ in 0..MOST_COPYING {
        let PlanError::Run { node, .. } = &error else {
            break;
        };
        let mut nodes = asking.iter().copied();
        let named = nodes.find(|&n| graph.node_label(n) == *node);
        if !named.is_some_and(|n| copying.insert(n)) {
            break;
        }
        match attempt(copying) {
            Err(other) => error = other,
            found => return found,
        }
    }
    Err(error)
}

impl Classes {
    /// Bytes that the copies move, and how many they are.
    fn price(&self, graph: &Graph) -> (u64, usize) {
        let bytes = self
            .copies
            .iter()
            .map(|c| graph.bytes(c.value).unwrap_or(0));
        (bytes.fold(0, u64::saturating_add), self.copies.len())
    }
}

fn formed(
    mut join: Join<'_>,
    mut lives: SecondaryMap<ValueId, Life>,
) -> Result<Classes, PlanError> {
    join.add_values(&mut lives);
    join.add_workspaces();
    join.output_kinds();
    let fixed = join.fixed();
    join.pin(&fixed);
    join.copy_results();
    join.views()?;
    join.input_kinds();
    join.fixed_addresses(&fixed);
    join.collect_groups();
    join.collect_accesses();
    join.relate_moves();
    join.merges()?;
    join.runs()?;
    join.walk()?;
    join.finish()
}

/// Index of an item: values by their id, then workspaces and copies.
type Index = u32;

/// Steps at which one group of a class is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Segment {
    span: Span,
    group: Index,
}

struct Join<'a> {
    graph: &'a Graph,
    table: &'a OpTable,
    options: &'a PlanOptions,
    homes: &'a Homes,
    schedule: &'a Schedule,
    /// Nodes without bodies that ask for places of their tensors, with their steps, in the order in
    /// which they are met.
    asking: Rc<[(NodeId, u32)]>,
    /// What is certain of the order of steps on several streams.
    clocks: Option<Rc<Clocks>>,
    /// Steps that access each group, where there are several streams.
    accesses: Vec<SmallVec<[u32; 4]>>,
    /// Until when those may go on.
    ends: Vec<u32>,
    items: Vec<Entry>,
    copies: Vec<Copy>,
    /// Segments of each class, sorted, under the index of its root.
    segments: Vec<SmallVec<[Segment; 1]>>,
    /// Pairs of groups of which the first may become the second at a step, from the same byte on.
    related: FxHashSet<(Index, Index, u32)>,
    /// Pairs of which the first is a piece of the second, so that both may be there at any time: how
    /// far the second starts behind the first.
    pieces: FxHashMap<(Index, Index), i64>,
    /// Copies by the inputs that read them.
    copy_at: FxHashMap<(NodeId, u32), Index>,
    /// Which values are alternatives, of which one alone is made.
    merges: Merges,
    /// Nodes with a run of inputs that read copies of all of them.
    copying: FxHashSet<NodeId>,
    /// Inputs in whose memory it is settled that the node writes.
    written: FxHashSet<(NodeId, u32)>,
    in_place: usize,
}

/// What is known of one item.
#[derive(Clone, Debug)]
struct Entry {
    item: Item,
    bytes: u64,
    align: u64,
    life: Life,
    /// Whether it has memory in the plan at all.
    planned: bool,
    /// The item that this one is a view of, or itself.
    group: Index,
    /// The next one on the way to the root of its class; meaningful for groups.
    class: Index,
    /// Byte at which it starts, seen from where that one starts.
    at: i64,
    /// First byte and the byte after the last of the whole class, seen from its root.
    extent: (i64, i64),
    /// Whether something in its class starts elsewhere than the root; meaningful for roots.
    shifted: bool,
    /// Whether the segments of its class are to be put in order; meaningful for roots.
    unsorted: bool,
    /// Whether something in its class is there again after it was not; meaningful for roots.
    comes_back: bool,
    /// Kind of memory that it asks for.
    kind: i64,
    /// Whether it stands for garbage, and is no member of the storage.
    hidden: bool,
    /// Graph output in the caller's memory.
    caller: bool,
    /// A node finds it where it was when the node was loaded, so it cannot be in the caller's memory.
    pinned: bool,
    /// Graph input in the arena.
    input: bool,
    /// Graph input that is kept to the end.
    lasting: bool,
    /// Shares with nobody.
    alone: bool,
    /// Has its memory from the start to the end; meaningful for roots.
    kept: bool,
    /// Holds the pieces of one tensor without gaps; meaningful for roots.
    pieced: bool,
    /// Bytes of memory that it gets.
    held: u64,
}

impl<'a> Join<'a> {
    fn new(
        graph: &'a Graph,
        table: &'a OpTable,
        options: &'a PlanOptions,
        homes: &'a Homes,
        schedule: &'a Schedule,
        clocks: Option<Rc<Clocks>>,
    ) -> Self {
        let asking = (0u32..)
            .zip(&schedule.steps)
            .filter(|(_, step)| step.phase == Phase::Run)
            .map(|(number, step)| (step.node, number))
            .filter(|&(node, _)| asks_for_places(&graph.nodes[node]))
            .collect();
        Join {
            graph,
            table,
            options,
            homes,
            schedule,
            asking,
            clocks,
            accesses: Vec::new(),
            ends: Vec::new(),
            items: Vec::with_capacity(graph.values.len()),
            copies: Vec::new(),
            segments: Vec::new(),
            related: FxHashSet::default(),
            pieces: FxHashMap::default(),
            copy_at: FxHashMap::default(),
            merges: Merges::new(graph, table),
            copying: FxHashSet::default(),
            written: FxHashSet::default(),
            in_place: 0,
        }
    }

    /// Meets some of the nodes that ask for places before all others.
    fn meet_first(&mut self, first: &[NodeId]) {
        let place = |node: NodeId| first.iter().position(|&n| n == node).unwrap_or(first.len());
        if !first.is_empty() {
            let mut asking = self.asking.to_vec();
            asking.sort_by_key(|&(node, step)| (place(node), step));
            self.asking = asking.into();
        }
    }

    fn push(&mut self, item: Item, bytes: u64, align: u64, life: Life, planned: bool) -> Index {
        let index = index(self.items.len());
        self.items.push(Entry {
            item,
            bytes,
            align,
            life,
            planned,
            group: index,
            class: index,
            at: 0,
            extent: (0, i64::try_from(bytes).unwrap_or(i64::MAX)),
            shifted: false,
            unsorted: false,
            comes_back: false,
            kind: ANY_MEMORY,
            hidden: false,
            caller: false,
            pinned: false,
            input: false,
            lasting: false,
            alone: false,
            kept: false,
            pieced: false,
            held: bytes,
        });
        index
    }

    /// How much may share memory.
    fn sharing(&self) -> Sharing {
        match self.options.hands_nothing_on() {
            true => self.options.sharing.min(Sharing::Views),
            false => self.options.sharing,
        }
    }

    fn add_values(&mut self, lives: &mut SecondaryMap<ValueId, Life>) {
        for value in self.graph.values.keys() {
            let bytes = self.graph.bytes(value).unwrap_or(0);
            let planned = self.homes.of[value] == Home::Planned;
            let life = std::mem::take(&mut lives[value]);
            let item = self.push(Item::Value(value), bytes, 1, life, planned);
            self.items[item as usize].held = self.options.held(self.graph, value).unwrap_or(bytes);
        }
        let root = &self.graph.subgraphs[self.graph.root];
        for (position, &data) in root.inputs.iter().enumerate() {
            for value in self.graph.nodes[data].outputs.iter().copied().flatten() {
                let entry = &mut self.items[value.index()];
                entry.input = true;
                entry.lasting = self.options.keeps_input(position);
            }
        }
        for (slot, value) in self.results().into_iter().enumerate() {
            let Some(value) = value else { continue };
            let entry = &mut self.items[value.index()];
            entry.caller = self.options.outputs == Placement::User;
            entry.kept |= self.options.keeps_output(slot);
        }
    }

    /// The graph's outputs, slot by slot.
    fn results(&self) -> Vec<Option<ValueId>> {
        self.graph.subgraphs[self.graph.root]
            .output
            .map(|o| self.graph.nodes[o].inputs.to_vec())
            .unwrap_or_default()
    }

    /// Scratch memory, alignments, and the nodes that share with nobody.
    fn add_workspaces(&mut self) {
        let alone: FxHashSet<&str> = self.options.no_reuse.iter().map(String::as_str).collect();
        let is_alone = |node: NodeId| {
            let n = &self.graph.nodes[node];
            alone.contains(n.name.as_str()) || alone.contains(&*n.op) || is_alone_by_file(n)
        };
        for step in &self.schedule.steps {
            if !matches!(step.phase, Phase::Run | Phase::Begin) {
                continue;
            }
            let node = step.node;
            let effects = self.table.effects(self.graph, node);
            let from_clearing = match effects.scratch.iter().any(|s| s.cleared) {
                true => self.since_cleared(node),
                false => None,
            };
            let own = self.schedule.span[node];
            for (k, scratch) in effects.workspaces() {
                let life = from_clearing.filter(|_| scratch.cleared).or(own);
                let life = life.into_iter().collect();
                let item = Item::Workspace(node, k);
                let align = scratch.align.max(1);
                let added = self.push(item, scratch.size, align, life, true);
                let entry = &mut self.items[added as usize];
                entry.kind = scratch.kind;
                entry.alone = scratch.alone || is_alone(node);
            }
            self.align_anchors(node, &effects);
            let n = &self.graph.nodes[node];
            if is_alone(node) {
                for value in n.outputs.iter().copied().flatten() {
                    self.items[value.index()].alone = true;
                }
            }
        }
    }

    /// When a node's workspaces are held that another one clears for it.
    fn since_cleared(&self, node: NodeId) -> Option<Span> {
        let mut all = cleared(self.graph, self.table, node).into_iter();
        let one = all.find(|c| matches!(c.item, Item::Workspace(..)))?;
        Some(Span {
            first: self.schedule.first(one.cleaner),
            last: self.schedule.last(node),
        })
    }

    fn align_anchors(&mut self, node: NodeId, effects: &Effects) {
        let n = &self.graph.nodes[node];
        for (value, align) in n
            .inputs
            .iter()
            .zip(&effects.input_align)
            .chain(n.outputs.iter().zip(&effects.output_align))
        {
            if let Some(value) = value {
                let entry = &mut self.items[value.index()];
                entry.align = entry.align.max(*align);
            }
        }
    }

    /// Copies for outputs in the caller's memory whose bytes are elsewhere: an input as output, and
    /// one value as two outputs. Other outputs are handed over where they are, be it in the
    /// caller's input or a constant.
    fn copy_results(&mut self) {
        let Some(output) = self.graph.subgraphs[self.graph.root].output else {
            return;
        };
        if self.options.outputs != Placement::User {
            return;
        }
        let mut seen = FxHashSet::default();
        let demanded = self.demanded_places();
        for (slot, value) in (0u32..).zip(self.results()) {
            let Some(value) = value else { continue };
            let reason = match self.homes.of[value] {
                Home::CallerInput => "the output is an input in the caller's memory",
                Home::Planned => {
                    if self.items[value.index()].input {
                        self.items[value.index()].caller = false;
                        "the output is a planned input and goes to the caller's memory"
                    } else if demanded.contains(&value) {
                        self.items[value.index()].caller = false;
                        "the output must lie beside others or in special memory"
                    } else if self.is_merged(value) {
                        self.items[value.index()].caller = false;
                        "whichever input of a merge has come goes to the caller's memory"
                    } else if self.items[value.index()].pinned {
                        self.items[value.index()].caller = false;
                        addresses::REASON
                    } else if seen.insert(value) {
                        continue;
                    } else {
                        "the value is two of the caller's outputs"
                    }
                }
                _ => continue,
            };
            if self.graph.bytes(value).is_none() {
                continue;
            }
            let copy = self.push_copy(value, output, slot, reason);
            self.items[copy as usize].caller = true;
        }
    }

    /// A copy for one input. What it is copied from and who reads it live on as they did.
    fn push_copy(&mut self, value: ValueId, reader: NodeId, input: u32, reason: &str) -> Index {
        let k = index(self.copies.len());
        self.copies.push(Copy {
            value,
            reader,
            input,
            reason: reason.to_owned(),
        });
        let bytes = self.graph.bytes(value).unwrap_or(0);
        let life = self.schedule.span[reader].into_iter().collect();
        let copy = self.push(Item::Copy(k), bytes, 1, life, bytes > 0);
        self.items[copy as usize].held = self.options.held(self.graph, value).unwrap_or(bytes);
        let kind = memory_kind(&self.graph.nodes[reader], INPUT_KINDS, input);
        self.items[copy as usize].kind = kind;
        self.copy_at.insert((reader, input), copy);
        copy
    }

    /// A copy that is made when the groups are there already.
    fn late_copy(&mut self, value: ValueId, reader: NodeId, input: u32, reason: &str) -> Index {
        let copy = self.push_copy(value, reader, input, reason);
        self.add_segments(copy);
        copy
    }

    /// Makes a class of an item that came late.
    fn add_segments(&mut self, item: Index) {
        self.add_accesses(item);
        let entry = &self.items[item as usize];
        let spans = entry.life.iter().filter(|_| entry.planned);
        let segments = spans.map(|&span| Segment { span, group: item }).collect();
        self.segments.push(segments);
    }

    /// Where a node finds what an input names: the copy for that input, or the value's group.
    fn held(&self, node: NodeId, input: u32) -> Option<Index> {
        let copy = self.copy_at.get(&(node, input)).copied();
        copy.or_else(|| Some(self.group(self.graph.nodes[node].input(input as usize)?)))
    }

    /// Gives each group the life of all its names, and makes a class of it.
    fn collect_groups(&mut self) {
        for i in 0..self.items.len() {
            let group = self.items[i].group as usize;
            if group != i {
                let life = std::mem::take(&mut self.items[i].life);
                self.items[group].life.extend(life);
            }
        }
        let whole = Span {
            first: 0,
            last: self.schedule.end(),
        };
        self.segments = Vec::with_capacity(self.items.len());
        for (i, entry) in self.items.iter_mut().enumerate() {
            if entry.alone {
                entry.life = Life::from_elem(whole, 1);
            }
            normalise(&mut entry.life);
            entry.comes_back = entry.life.len() > 1;
            let group = index(i);
            let held = entry.planned && entry.group == group;
            let spans = entry.life.iter().filter(|_| held);
            self.segments
                .push(spans.map(|&span| Segment { span, group }).collect());
        }
    }

    /// The step at which an item is first written.
    fn start(&self, item: Index) -> u32 {
        let entry = &self.items[item as usize];
        match entry.item {
            Item::Value(value) => {
                let producer = self.graph.values[value].producer;
                let home = self.graph.nodes[producer].subgraph;
                self.schedule.span[producer]
                    .map_or_else(|| self.schedule.body[home].first, |s| s.first)
            }
            Item::Workspace(..) | Item::Copy(_) => entry.life.first().map_or(0, |s| s.first),
        }
    }

    fn finish(mut self) -> Result<Classes, PlanError> {
        let all_gears = Gears::new(self.graph);
        let whole = Span {
            first: 0,
            last: self.schedule.end(),
        };
        let apart = self.apart();
        let mut place: Vec<Option<usize>> = vec![None; self.items.len()];
        let mut classes: Vec<Class> = Vec::new();
        let planned = |&i: &Index| self.items[i as usize].planned && !self.items[i as usize].hidden;
        let mut order: Vec<Index> = (0..index(self.items.len())).filter(planned).collect();
        let roots: Vec<(Index, i64)> = (0..index(self.items.len()))
            .map(|i| {
                let group = self.items[i as usize].group;
                self.find(group)
            })
            .collect();
        order.sort_by_key(|&i| (self.start(i), i));
        for i in order {
            let (root, at) = roots[i as usize];
            let root = root as usize;
            let entry = &self.items[i as usize];
            let head = &self.items[root];
            let class = *place[root].get_or_insert_with(|| {
                let root = index(root);
                let mut life = self.life(root, apart.extended.contains(&root));
                if head.kept || self.options.hands_nothing_on() {
                    life = Life::from_elem(whole, 1);
                }
                normalise(&mut life);
                classes.push(Class {
                    members: Vec::new(),
                    life,
                    bytes: 0,
                    align: head.align.max(1),
                    caller: head.caller,
                    kind: head.kind,
                    gear: all_gears.as_ref().and_then(|all| self.gear(all, entry)),
                });
                classes.len() - 1
            });
            let class = &mut classes[class];
            if let Some(all) = &all_gears
                && class.gear != self.gear(all, entry)
            {
                class.gear = None;
            }
            // The extent begins with the first member, so this is never negative.
            let offset = u64::try_from(at - head.extent.0).unwrap_or(0);
            // What lies behind a piece is the next one, and behind the last the whole tensor's spare.
            let is_piece = head.pieced && offset > 0;
            let bytes = if is_piece { entry.bytes } else { entry.held };
            class.bytes = class.bytes.max(offset.saturating_add(bytes));
            class.members.push(Member {
                item: entry.item,
                offset,
                bytes: entry.bytes,
            });
        }
        let mut pairs: Vec<(usize, usize)> = (apart.pairs.iter())
            .filter_map(|&(a, b)| Some((place[a as usize]?, place[b as usize]?)))
            .collect();
        pairs.sort_unstable();
        let mut found = Classes {
            classes,
            apart: pairs,
            waits: (self.clocks.iter())
                .flat_map(|c| c.waits().to_vec())
                .collect(),
            copies: Vec::new(),
            in_place: self.in_place,
        };
        if let Some(gears) = all_gears {
            self.tie(&gears, &mut found)?;
        }
        found.copies = self.copies;
        Ok(found)
    }
}

/// Ids are 32 bits wide, and so is the number of items that a graph can have.
fn index(i: usize) -> Index {
    u32::try_from(i).unwrap_or(u32::MAX)
}
