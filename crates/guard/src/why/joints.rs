//! What joins two values in one memory: the links of storage classes, and what operators hand on.

use rustc_hash::FxHashMap;
use tenure_graph::effects::{OpTable, Trait};
use tenure_graph::{Graph, ValueId};

use super::Hop;
use crate::error::GuardError;
use crate::storage::{Anchor, Classes, Joint};

/// What joins anchors: the links of all classes, and what operators hand on as views.
pub(super) struct Joints<'a> {
    graph: &'a Graph,
    table: &'a OpTable,
    classes: Classes,
    /// For each anchor those beside it.
    beside: Vec<Vec<(usize, &'static str)>>,
}

impl<'a> Joints<'a> {
    pub(super) fn of(graph: &'a Graph, table: &'a OpTable) -> Result<Self, GuardError> {
        let classes = Classes::build(graph, table, graph.root)?;
        let mut joints = Joints {
            graph,
            table,
            beside: vec![Vec::new(); classes.anchors.len()],
            classes,
        };
        for class in 0..joints.classes.lists.len() {
            let links = joints.classes.links(class).to_vec();
            for link in links {
                let by = match link.joint {
                    Joint::Edge => "edge",
                    Joint::Fixed => joints.fixed(link.from, link.to),
                };
                joints.add(link.from, link.to, by);
            }
        }
        for node in graph.nodes.keys() {
            let effects = table.effects(graph, node);
            let views = effects.views.iter().map(|alias| (alias, "view"));
            let refs = effects.refs.iter().map(|alias| (alias, "reference"));
            for (alias, by) in views.chain(refs) {
                let from = joints.classes.index(Anchor::input(node, alias.input));
                let to = joints.classes.index(Anchor::output(node, alias.output));
                if let (Some(from), Some(to)) = (from, to) {
                    joints.add(from, to, by);
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

    fn add(&mut self, from: usize, to: usize, by: &'static str) {
        self.beside[from].push((to, by));
        self.beside[to].push((from, by));
    }

    /// All anchors of one memory, in the order in which they are met, and for each the one that it
    /// was met from.
    pub(super) fn reach(&self, from: Anchor) -> Reached {
        let mut reached = Reached {
            order: Vec::new(),
            from: FxHashMap::default(),
        };
        reached.order.extend(self.classes.index(from));
        let mut next = 0;
        while let Some(&here) = reached.order.get(next) {
            next += 1;
            for &(there, by) in &self.beside[here] {
                if Some(&there) != reached.order.first() && !reached.from.contains_key(&there) {
                    reached.from.insert(there, (here, by));
                    reached.order.push(there);
                }
            }
        }
        reached
    }

    /// The inputs that read a value.
    pub(super) fn readers(&self, value: ValueId) -> impl Iterator<Item = Anchor> + '_ {
        let made = self.classes.index(Anchor::of(self.graph, value));
        let beside = made.and_then(|made| self.beside.get(made));
        let edges = beside.into_iter().flatten().filter(|(_, by)| *by == "edge");
        edges.map(|&(there, _)| self.classes.anchors[there])
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

/// The anchors of one memory.
pub(super) struct Reached {
    order: Vec<usize>,
    from: FxHashMap<usize, (usize, &'static str)>,
}
