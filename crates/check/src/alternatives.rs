//! Accesses that never happen in one run: those to what is made for the same merge, of which one
//! alternative alone comes.

use tenure_graph::effects::{Merges, OpTable};
use tenure_graph::plan::{Item, Plan};
use tenure_graph::{Graph, ValueId};

/// The alternatives of a graph, and of what a plan copies for them.
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
        self.merges.alternative(self.graph, &self.plan.copies, item)
    }

    /// Whether a value is an alternative.
    pub(crate) fn has(&self, value: ValueId) -> bool {
        self.merges.has(value)
    }

    /// Whether at most one of two values is ever made.
    pub(crate) fn are_exclusive(&self, a: ValueId, b: ValueId) -> bool {
        self.merges.are_exclusive(a, b)
    }
}
