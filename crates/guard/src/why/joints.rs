//! What joins two values in one memory: the links of storage classes, what operators hand on, and
//! what lies in another value since it is joined or cut in place.

use rustc_hash::{FxHashMap, FxHashSet};
use tenure_graph::effects::{Alias, OpTable, Trait, pieces};
use tenure_graph::{Graph, ValueId};

use super::Hop;
use crate::error::GuardError;
use crate::storage::{Anchor, Classes, Joint, Link};

/// What joins anchors: the links of all classes, and what operators hand on as views.
pub(super) struct Joints<'a> {
    graph: &'a Graph,
    table: &'a OpTable,
    classes: Classes,
    /// For each anchor those beside it.
    beside: Vec<Vec<Beside>>,
}

/// An anchor that shares memory with another one.
#[derive(Clone, Copy)]
struct Beside {
    anchor: usize,
    /// By what.
    by: &'static str,
    /// How many bytes behind that of the other its memory starts; `None` if that is not known.
    shift: Option<i64>,
}

/// What joins a tensor and a piece of it.
const PIECE: &str = "piece";

impl<'a> Joints<'a> {
    pub(super) fn of(graph: &'a Graph, table: &'a OpTable) -> Result<Self, GuardError> {
        let classes = Classes::build(graph, table, graph.root)?;
        let mut joints = Joints {
            graph,
            table,
            beside: vec![Vec::new(); classes.anchors.len()],
            classes,
        };
        // What the file calls a reference lies somewhere in the other where it is a piece.
        let mut of_pieces: FxHashSet<(usize, usize)> = FxHashSet::default();
        for node in graph.nodes.keys() {
            for piece in pieces(graph, table, node) {
                let Alias { output, input } = piece.slots;
                let from = joints.classes.index(Anchor::input(node, input));
                let to = joints.classes.index(Anchor::output(node, output));
                if let (Some(from), Some(to)) = (from, to) {
                    of_pieces.insert((from, to));
                    joints.add(from, to, PIECE, piece.shift);
                }
            }
        }
        for class in 0..joints.classes.lists.len() {
            let links = joints.classes.links(class).to_vec();
            let is_piece = |link: &Link| {
                let [there, back] = [(link.from, link.to), (link.to, link.from)];
                of_pieces.contains(&there) || of_pieces.contains(&back)
            };
            for link in links.into_iter().filter(|link| !is_piece(link)) {
                let by = match link.joint {
                    Joint::Edge => "edge",
                    Joint::Fixed => joints.fixed(link.from, link.to),
                };
                joints.add(link.from, link.to, by, Some(0));
            }
        }
        for node in graph.nodes.keys() {
            let effects = table.effects(graph, node);
            let views = effects.views.iter().map(|alias| (alias, "view"));
            let refs = effects.refs.iter().map(|alias| (alias, "reference"));
            for (alias, by) in views.chain(refs) {
                let from = joints.classes.index(Anchor::input(node, alias.input));
                let to = joints.classes.index(Anchor::output(node, alias.output));
                if let (Some(from), Some(to)) = (from, to)
                    && !of_pieces.contains(&(from, to))
                {
                    joints.add(from, to, by, Some(0));
                }
            }
        }
        Ok(joints)
    }

    fn fixed(&self, from: usize, to: usize) -> &'static str {
        let (from, to) = (self.classes.anchors[from], self.classes.anchors[to]);
        if from.node != to.node {
            "border"
        } else if from.is_output() == to.is_output() {
            "merge"
        } else if self
            .table
            .traits(self.graph, from.node)
            .has(Trait::Relabels)
        {
            "view"
        } else {
            "reference"
        }
    }

    fn add(&mut self, from: usize, to: usize, by: &'static str, shift: Option<i64>) {
        let [there, back] = [(to, shift), (from, shift.map(|shift| -shift))]
            .map(|(anchor, shift)| Beside { anchor, by, shift });
        self.beside[from].push(there);
        self.beside[to].push(back);
    }

    /// All anchors whose memory overlaps that of one, in the order in which they are met, and for each
    /// the one that it was met from.
    pub(super) fn reach(&self, from: Anchor) -> Reached {
        let mut reached = Reached {
            order: Vec::new(),
            from: FxHashMap::default(),
        };
        let Some(first) = self.classes.index(from) else {
            return reached;
        };
        let asked = self.bytes(first);
        reached.order.push(first);
        // How many bytes behind that of the first the memory of each starts.
        let mut starts = vec![Some(0i64)];
        let mut next = 0;
        while let Some(&here) = reached.order.get(next) {
            let start = starts[next];
            next += 1;
            for &Beside { anchor, by, shift } in &self.beside[here] {
                let start = start
                    .zip(shift)
                    .and_then(|(at, shift)| at.checked_add(shift));
                let is_new = anchor != first && !reached.from.contains_key(&anchor);
                if is_new && overlaps(asked, start, self.bytes(anchor)) {
                    reached.from.insert(anchor, (here, by));
                    reached.order.push(anchor);
                    starts.push(start);
                }
            }
        }
        reached
    }

    fn bytes(&self, anchor: usize) -> Option<u64> {
        let value = self.classes.anchors[anchor].value(self.graph)?;
        self.graph.bytes(value)
    }

    /// The inputs that read a value.
    pub(super) fn readers(&self, value: ValueId) -> impl Iterator<Item = Anchor> + '_ {
        let made = self.classes.index(Anchor::of(self.graph, value));
        let beside = made.and_then(|made| self.beside.get(made));
        let edges = beside.into_iter().flatten().filter(|b| b.by == "edge");
        edges.map(|b| self.classes.anchors[b.anchor])
    }

    /// The values of one memory.
    pub(super) fn values(&self, reached: &Reached) -> Vec<ValueId> {
        let anchors = reached.order.iter().map(|&a| self.classes.anchors[a]);
        let outputs = anchors.filter(|a| a.is_output());
        outputs.filter_map(|a| a.value(self.graph)).collect()
    }

    /// What joins two values; `None` where they are not one memory.
    pub(super) fn chain(&self, reached: &Reached, a: ValueId, b: ValueId) -> Option<Vec<Hop>> {
        if a == b {
            return Some(Vec::new());
        }
        let mut here = self.classes.index(Anchor::of(self.graph, b))?;
        reached.from.get(&here)?;
        let mut chain = Vec::new();
        let label = |anchor: usize| self.classes.anchors[anchor].label(self.graph);
        while let Some(&(before, by)) = reached.from.get(&here) {
            chain.push(Hop {
                from: label(before),
                to: label(here),
                by,
            });
            here = before;
        }
        chain.reverse();
        Some(chain)
    }
}

/// Whether something that starts so many bytes behind the start of something else shares bytes with it;
/// what is not known is taken to do so, and so is what has no bytes at the same place.
fn overlaps(asked: Option<u64>, start: Option<i64>, bytes: Option<u64>) -> bool {
    match start {
        None | Some(0) => true,
        Some(start) if start > 0 => asked.is_none_or(|asked| start.unsigned_abs() < asked),
        Some(start) => bytes.is_none_or(|bytes| start.unsigned_abs() < bytes),
    }
}

/// The anchors of one memory.
pub(super) struct Reached {
    order: Vec<usize>,
    from: FxHashMap<usize, (usize, &'static str)>,
}
