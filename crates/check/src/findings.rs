//! The list of violations while it grows, and the names that stand in them.

use tenure_graph::entity::EntityRef;
use tenure_graph::plan::{Item, Plan};
use tenure_graph::{Graph, NodeId, StorageId, ValueId};

use crate::violation::{Named, Site, Violation};

/// Violations after which no more are written down: a damaged plan can break a rule at each of
/// its steps, and nobody reads that many.
pub(crate) const MOST_VIOLATIONS: usize = 1000;

/// Violations found so far.
pub(crate) struct Findings<'a> {
    graph: &'a Graph,
    plan: &'a Plan,
    list: Vec<Violation>,
}

impl<'a> Findings<'a> {
    pub(crate) fn new(graph: &'a Graph, plan: &'a Plan) -> Self {
        Findings {
            graph,
            plan,
            list: Vec::new(),
        }
    }

    pub(crate) fn push(&mut self, violation: Violation) {
        if !self.is_full() {
            self.list.push(violation);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.list.len() >= MOST_VIOLATIONS
    }

    pub(crate) fn into_list(self) -> Vec<Violation> {
        self.list
    }

    /// Whether `index` is below `count`; a violation if not.
    pub(crate) fn known(&mut self, what: &'static str, index: usize, count: usize) -> bool {
        if index >= count {
            self.push(Violation::UnknownId {
                what,
                index: index as u64,
                count: count as u64,
            });
        }
        index < count
    }

    pub(crate) fn node(&self, id: NodeId) -> Named<NodeId> {
        let name = format!("node {:?}", self.graph.node_label(id));
        Named { id, name }
    }

    pub(crate) fn value(&self, id: ValueId) -> Named<ValueId> {
        let name = format!("value {:?}", self.graph.value_label(id));
        Named { id, name }
    }

    pub(crate) fn site(&self, step: u32, node: NodeId) -> Site {
        let node = self.node(node);
        Site { step, node }
    }

    /// The name of something whose ids are known to be good.
    pub(crate) fn item(&self, id: Item) -> Named<Item> {
        let name = match id {
            Item::Value(v) => self.value(v).name,
            Item::Workspace(n, k) => format!("workspace {k} of {}", self.node(n)),
            Item::Copy(k) => match self.plan.copies.get(k as usize) {
                Some(copy) => format!("copy {k} of {}", self.value(copy.value)),
                None => format!("copy {k}"),
            },
        };
        Named { id, name }
    }

    /// The name of a storage, after the first thing that lies in it.
    pub(crate) fn storage(&self, id: StorageId) -> Named<StorageId> {
        let first = self.plan.storages.get(id).and_then(|s| s.members.first());
        let known = first.map(|m| m.item).filter(|&item| match item {
            Item::Value(v) => v.index() < self.graph.values.len(),
            Item::Workspace(n, _) => n.index() < self.graph.nodes.len(),
            Item::Copy(k) => {
                let copy = self.plan.copies.get(k as usize);
                copy.is_some_and(|c| c.value.index() < self.graph.values.len())
            }
        });
        let name = match known {
            Some(item) => format!("storage {id} of {}", self.item(item)),
            None => format!("storage {id}"),
        };
        Named { id, name }
    }
}
