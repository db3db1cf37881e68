//! Accesses that never happen in one run: those to what is made for the same merge, of which one
//! alternative alone comes.

use tenure_graph::effects::{Merges, OpTable};
use tenure_graph::plan::{Item, Plan};
use tenure_graph::{Graph, NodeId, ValueId};

/// The alternatives of a graph.
pub(crate) struct Alternatives<'a> {
    graph: &'a Graph,
    plan: &'a Plan,
    merges: Merges,
}

impl<'a> Alternatives<'a> {
    pub(crate) fn new(graph: &'a Graph, table: &OpTable, plan: &'a Plan) -> Self {
        let merges = Merges::new(graph, table);
        Alternatives {
            graph,
            plan,
            merges,
        }
    }

    /// The alternative that an item is, or that its node makes; `None` for what is there in any run.
    pub(crate) fn of(&self, item: Item) -> Option<ValueId> {
        if self.merges.is_empty() {
            return None;
        }
        let made_by = |node: NodeId| {
            let mut outputs = self.graph.nodes[node].outputs.iter().copied().flatten();
            outputs.find(|&v| self.merges.has(v))
        };
        match item {
            Item::Value(value) => Some(value).filter(|&v| self.merges.has(v)),
            Item::Workspace(node, _) => made_by(node),
            Item::Copy(k) => made_by(self.plan.copies.get(k as usize)?.reader),
        }
    }

    /// Whether at most one of two values is ever made.
    pub(crate) fn are_exclusive(&self, a: ValueId, b: ValueId) -> bool {
        self.merges.are_exclusive(a, b)
    }
}
