//! Gaps in stated lives. Where a run comes from a step at which a storage is not held to one at
//! which it is, the storage is taken anew, and whatever its bytes held before is lost. So an
//! executor may give memory back wherever a life says so.
//!
//! Steps follow each other as they are numbered, but for the borders of bodies: one of several
//! branches is entered from its owner's first step, a loop's body from the end of another pass.

use smallvec::SmallVec;
use std::collections::BTreeMap;
use tenure_graph::effects::OpClass;
use tenure_graph::plan::{Phase, Plan, Span};
use tenure_graph::{Body, Graph, NodeId, StorageId};

use crate::placements::span_at;

/// Follows the lives of all storages from step to step.
pub(super) struct Gaps {
    /// Spans that have not begun yet, the next one last.
    coming: Vec<(Span, StorageId)>,
    /// Spans that hold the present step, by their first step.
    by_first: BTreeMap<(u32, StorageId), u32>,
    /// The same by their last step.
    by_last: BTreeMap<(u32, StorageId), u32>,
    /// Nodes with bodies by their first step: the last steps of these.
    leaves: BTreeMap<u32, Vec<u32>>,
    /// First steps of the nodes with bodies that are open.
    open: Vec<u32>,
}

impl Gaps {
    pub(super) fn new(graph: &Graph, plan: &Plan) -> Self {
        let mut leaves: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        let mut open = Vec::new();
        for (number, step) in (0u32..).zip(&plan.steps) {
            let subgraph = graph.nodes[step.node].subgraph;
            match step.phase {
                Phase::Begin => open.push(number),
                Phase::End => _ = open.pop(),
                Phase::Run if graph.subgraphs[subgraph].output == Some(step.node) => {
                    if let Some(&begin) = open.last() {
                        leaves.entry(begin).or_default().push(number);
                    }
                }
                Phase::Run | Phase::Enter(_) => {}
            }
        }
        let mut coming: Vec<(Span, StorageId)> = Vec::with_capacity(plan.storages.len());
        for (id, storage) in &plan.storages {
            coming.extend(storage.life.iter().map(|&span| (span, id)));
        }
        coming.sort_unstable_by(|a, b| b.cmp(a));
        Gaps {
            coming,
            by_first: BTreeMap::new(),
            by_last: BTreeMap::new(),
            leaves,
            open: Vec::new(),
        }
    }

    /// Goes to a step; gives back the storages that are taken anew there, in the order of their
    /// ids.
    pub(super) fn go_to(
        &mut self,
        graph: &Graph,
        plan: &Plan,
        step: u32,
        class: impl Fn(NodeId) -> OpClass,
    ) -> Vec<StorageId> {
        while let Some((&(last, storage), &first)) = self.by_last.first_key_value()
            && last < step
        {
            self.by_last.pop_first();
            self.by_first.remove(&(first, storage));
        }
        let mut taken = Vec::new();
        while let Some(&(span, storage)) = self.coming.last()
            && span.first <= step
        {
            self.coming.pop();
            self.by_first.insert((span.first, storage), span.last);
            self.by_last.insert((span.last, storage), span.first);
            taken.push(storage);
        }
        // What is held from the start on holds the inputs.
        if step == 0 {
            taken.clear();
        }
        let now = plan.steps[step as usize];
        let before = match now.phase {
            Phase::Run => None,
            Phase::Begin => {
                self.open.push(step);
                None
            }
            Phase::Enter(k) => self.before(graph, now.node, class(now.node), Some(k)),
            Phase::End => {
                let before = self.before(graph, now.node, class(now.node), None);
                self.open.pop();
                before
            }
        };
        let before = match before {
            None => SmallVec::from_elem(step.saturating_sub(1), 1),
            Some(before) => {
                let (first, last) = (before.iter().min(), before.iter().max());
                let first = first.map_or(step, |f| f.saturating_add(1));
                let last = last.copied().unwrap_or(step);
                let late = self.by_first.range((first, StorageId::from_u32(0))..);
                taken.extend(late.map(|(&(_, storage), _)| storage));
                let early = self.by_last.range(..(last, StorageId::from_u32(0)));
                taken.extend(early.map(|(&(_, storage), _)| storage));
                before
            }
        };
        taken.sort_unstable();
        taken.dedup();
        taken.retain(|&id| {
            let life = &plan.storages[id].life;
            !before.iter().all(|&b| span_at(life, b).is_some())
        });
        taken
    }

    /// The steps from which body `k` of a node is entered, or without one from which the node ends;
    /// `None` where it is the step before.
    fn before(
        &self,
        graph: &Graph,
        owner: NodeId,
        class: OpClass,
        k: Option<u32>,
    ) -> Option<SmallVec<[u32; 4]>> {
        let begin = *self.open.last()?;
        let ends = |conditions: bool| self.ends(graph, owner, begin, conditions);
        let all = ends(true).chain(ends(false));
        match (class, k) {
            (OpClass::Call, _) => None,
            (OpClass::Branch, Some(_)) => Some(SmallVec::from_elem(begin, 1)),
            (OpClass::Branch, None) => Some(all.collect()),
            (OpClass::While, Some(k)) if is_condition(graph, owner, k) => {
                Some(std::iter::once(begin).chain(ends(false)).collect())
            }
            (OpClass::While, _) => Some(ends(true).collect()),
            _ => Some(std::iter::once(begin).chain(all).collect()),
        }
    }

    /// Last steps of the bodies that compute the condition, or of the others.
    fn ends(
        &self,
        graph: &Graph,
        owner: NodeId,
        begin: u32,
        conditions: bool,
    ) -> impl Iterator<Item = u32> {
        let leaves = self.leaves.get(&begin).map_or(&[][..], Vec::as_slice);
        let numbered = (0u32..).zip(leaves);
        numbered
            .filter(move |&(k, _)| is_condition(graph, owner, k) == conditions)
            .map(|(_, &leave)| leave)
    }
}

/// Whether body `k` computes the condition of a loop.
fn is_condition(graph: &Graph, owner: NodeId, k: u32) -> bool {
    let body = graph.nodes[owner].bodies.get(k as usize);
    body.is_some_and(Body::is_condition)
}
