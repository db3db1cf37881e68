//! Who uses which memory, for the lint: values that are one memory, and their uses.
//!
//! What is joined or cut in place and each piece of it are memories of their own; whoever uses the
//! whole uses each piece, and who uses a piece has nothing to do with the others.

use rustc_hash::FxHashMap;
use tenure_graph::effects::{OpClass, OpTable, Piece, Trait, pieces};
use tenure_graph::entity::SecondaryMap;
use tenure_graph::{Graph, NodeId, ValueId};

use crate::layout::attributes::flag;
use crate::read_write::INPUT_MUTABLE;
use crate::storage::{in_order, outer_input, reference, source_of};
use crate::work::Work;

/// One use of a memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    pub(super) node: NodeId,
    /// The name by which the memory is used.
    pub(super) value: ValueId,
    /// Writes, in whatever way.
    pub(super) writes: bool,
    /// Writes what nobody else may see.
    pub(super) inside: bool,
    /// What is used is a tensor around the memory, which has uses of its own.
    pub(super) around: bool,
    /// It is used when everything else has ended: it is a result.
    pub(super) last: bool,
}

/// At most so many uses of tensors around pieces are looked at.
const MOST_AROUND: usize = 1 << 20;

/// Values that are one memory by views, references and what is handed into and out of subgraphs.
pub(super) struct Memory {
    /// Where the memory comes from.
    pub(super) first: ValueId,
    /// Its uses, in order of execution; those of one node together, writes first.
    pub(super) uses: Vec<Access>,
    /// Where the memory is a piece: the values that it hands its bytes to, or has them from, each with
    /// the other value.
    pieces: FxHashMap<ValueId, ValueId>,
}

/// Which values are one memory.
pub(super) struct Memories<'a> {
    graph: &'a Graph,
    table: &'a OpTable,
    /// The value whose memory a value is, one step up.
    source: SecondaryMap<ValueId, Option<ValueId>>,
    /// What is joined or cut in place, in the order of the program.
    pieces: Vec<Piece>,
}

impl<'a> Memories<'a> {
    /// Looks at a whole program.
    pub(super) fn new(graph: &'a Graph, table: &'a OpTable) -> Self {
        let mut source = SecondaryMap::new();
        for id in graph.values.keys() {
            source[id] = step_up(graph, table, id);
        }
        let nodes = in_order(graph, graph.root).into_iter();
        let pieces: Vec<Piece> = nodes.flat_map(|n| pieces(graph, table, n)).collect();
        // A piece has a memory of its own, whatever the file says that it is.
        for piece in &pieces {
            source[piece.to] = None;
        }
        Memories {
            graph,
            table,
            source,
            pieces,
        }
    }

    /// The memories that somebody uses, each with its uses, in the order of the program.
    pub(super) fn all(&self, work: &Work<'_>) -> Vec<Memory> {
        let mut first_of: SecondaryMap<ValueId, Option<ValueId>> = SecondaryMap::new();
        let mut index: FxHashMap<ValueId, usize> = FxHashMap::default();
        let mut all: Vec<Memory> = Vec::new();
        for node in in_order(self.graph, self.graph.root) {
            for &value in self.graph.nodes[node].outputs.iter().flatten() {
                let first = self.first(value, &mut first_of);
                let at = *index.entry(first).or_insert_with(|| {
                    all.push(Memory {
                        first,
                        uses: Vec::new(),
                        pieces: FxHashMap::default(),
                    });
                    all.len() - 1
                });
                self.uses(work, value, &mut all[at].uses);
            }
        }
        let memory_of = |value| {
            let first = self.first(value, &mut first_of);
            index.get(&first).copied()
        };
        self.around(memory_of, &mut all);
        for memory in &mut all {
            memory
                .uses
                .sort_by_key(|u| (work.position(u.node), !u.writes, u.value));
        }
        all.retain(|memory| !memory.uses.is_empty());
        all
    }

    /// Adds to the uses of each piece those of the tensors around it.
    fn around(&self, mut memory_of: impl FnMut(ValueId) -> Option<usize>, all: &mut [Memory]) {
        // By the memory of a piece: that of the whole, and how bytes come from one to the other.
        let mut wholes: FxHashMap<usize, Vec<(usize, ValueId, ValueId)>> = FxHashMap::default();
        for piece in &self.pieces {
            let (Some(from), Some(to)) = (memory_of(piece.from), memory_of(piece.to)) else {
                continue;
            };
            let (part, whole) = if piece.joins { (from, to) } else { (to, from) };
            if part != whole {
                let wholes = wholes.entry(part).or_default();
                wholes.push((whole, piece.from, piece.to));
            }
        }
        let mut left = MOST_AROUND;
        let mut added: Vec<(usize, Vec<Access>, FxHashMap<ValueId, ValueId>)> = Vec::new();
        let mut parts: Vec<usize> = wholes.keys().copied().collect();
        parts.sort_unstable();
        for part in parts {
            let (mut uses, mut steps) = (Vec::new(), FxHashMap::default());
            let (mut list, mut next) = (vec![part], 0);
            while let Some(&here) = list.get(next) {
                next += 1;
                for &(whole, from, to) in wholes.get(&here).into_iter().flatten() {
                    steps.insert(to, from);
                    let all_of = &all[whole].uses;
                    if !list.contains(&whole) && left >= all_of.len() {
                        left -= all_of.len();
                        list.push(whole);
                        let around = |&access: &Access| Access {
                            around: true,
                            ..access
                        };
                        uses.extend(all_of.iter().map(around));
                    }
                }
            }
            added.push((part, uses, steps));
        }
        for (part, uses, steps) in added {
            all[part].uses.extend(uses);
            all[part].pieces = steps;
        }
    }

    /// Where a value's memory comes from. Each value is climbed over once.
    fn first(&self, value: ValueId, known: &mut SecondaryMap<ValueId, Option<ValueId>>) -> ValueId {
        let mut way = vec![value];
        let first = loop {
            let Some(&last) = way.last() else {
                break value;
            };
            if let Some(first) = known[last] {
                break first;
            }
            match self.source[last] {
                // A step goes to an earlier node or across a border, so the way ends; its length
                // is bounded for graphs that contradict themselves.
                Some(next) if way.len() <= self.graph.values.len() => way.push(next),
                _ => break last,
            }
        };
        for value in way {
            known[value] = Some(first);
        }
        first
    }

    /// Adds the uses of a value under this name.
    fn uses(&self, work: &Work<'_>, value: ValueId, uses: &mut Vec<Access>) {
        let (graph, table) = (self.graph, self.table);
        for &(node, i) in work.users(value) {
            let class = table.class(graph, node);
            // What is done inside is found there; a branch itself looks at its condition.
            let hands_in = match class {
                OpClass::Branch => i > 0,
                OpClass::Call => true,
                _ => false,
            };
            let handed_in = hands_in && !graph.nodes[node].bodies.is_empty();
            // Inside, what is a result is used where the owner's output is.
            let last = class == OpClass::Output;
            let is_inner_result = last && graph.nodes[node].subgraph != graph.root;
            if handed_in || is_inner_result || table.traits(graph, node).has(Trait::Hint) {
                continue;
            }
            let inside = flag(&graph.nodes[node].attrs, INPUT_MUTABLE);
            let writes = inside || work.updates(node, i);
            let reads = || {
                let effects = work.effects(node);
                !effects.shape_only.contains(&i) && !self.is_view(node, i)
            };
            if writes || reads() {
                uses.push(Access {
                    node,
                    value,
                    writes,
                    inside,
                    around: false,
                    last,
                });
            }
        }
    }

    /// Whether a node does nothing but give an input another name. A loop does more: it begins
    /// with what it is given.
    fn is_view(&self, node: NodeId, i: u32) -> bool {
        let (graph, table) = (self.graph, self.table);
        let outputs = (0u32..).zip(&graph.nodes[node].outputs);
        let mut outputs = outputs.filter(|(_, value)| value.is_some());
        table.class(graph, node) != OpClass::While
            && outputs.any(|(o, _)| reference(graph, table, node, o) == Some(i))
    }

    /// The last writer before a value of a memory: whose bytes a reader of that value means; `None`
    /// for what was there first. `writes` are the nodes that write the memory.
    pub(super) fn version(
        &self,
        memory: &Memory,
        value: ValueId,
        is_writer: impl Fn(NodeId) -> bool,
        known: &mut FxHashMap<ValueId, Option<NodeId>>,
    ) -> Option<NodeId> {
        let mut way = Vec::new();
        let mut value = value;
        let version = loop {
            if let Some(&version) = known.get(&value) {
                break version;
            }
            way.push(value);
            let producer = self.graph.values[value].producer;
            if is_writer(producer) {
                break Some(producer);
            }
            let next = memory.pieces.get(&value).copied();
            match next.or(self.source[value]) {
                Some(next) if way.len() <= self.graph.values.len() => value = next,
                _ => break None,
            }
        };
        for value in way {
            known.insert(value, version);
        }
        version
    }
}

/// The value whose memory a value is, also where it is given to a loop, which begins with a value of
/// its own and gives back another.
fn step_up(graph: &Graph, table: &OpTable, value: ValueId) -> Option<ValueId> {
    let producer = graph.values[value].producer;
    match (
        table.class(graph, producer),
        outer_input(graph, table, producer),
    ) {
        (OpClass::While, _) => None,
        (OpClass::Input, Some((owner, i))) if table.class(graph, owner) == OpClass::While => {
            graph.nodes[owner].input(i as usize)
        }
        _ => source_of(graph, table, value),
    }
}
