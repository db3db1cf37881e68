//! Takes out copies that stand for nothing but the value.
//!
//! A copy stays where it is marked, where it stands at the border of a subgraph, where it carries
//! the order of a branch, and where it keeps an old value for a reader that comes after the next
//! write. A copy of state has what it held at that moment: it stays, too, where the state is written
//! later in the order of the file, or where the copy itself is written. "The copy before X" meant "the value is read before X", so whoever reads the value from
//! now on gets that order.

use tenure_graph::effects::{OpClass, OpTable, Trait};
use tenure_graph::{Graph, NodeId};

use super::Pass;
use crate::Guarded;
use crate::error::GuardError;
use crate::finding::Kind;
use crate::options::Options;
use crate::state::Writers;
use crate::storage::in_order;
use crate::work::NO_FOLDING;

/// Attribute whose presence says that a compiler put the node in on purpose.
const INSERTED: &str = "_is_inserted_by_cann";

/// Runs the pass.
///
/// # Errors
/// [`GuardError::Malformed`] for a copy with another number of outputs than inputs.
pub fn run(graph: &Graph, table: &OpTable, options: &Options) -> Result<Guarded, GuardError> {
    let mut pass = Pass::new(graph, table, Kind::ReadWrite, "identity");
    // The reference's single step knows of edges alone.
    let writers = options.exact.then(|| Writers::of(&pass.work));
    for id in in_order(graph, graph.root) {
        let node = &graph.nodes[id];
        let is_bare = node.inputs.is_empty() && node.outputs.is_empty();
        if !table.traits(graph, id).has(Trait::Transparent) || is_bare {
            continue;
        }
        if !options.force_identity_removal && pass.must_stay(id) {
            continue;
        }
        if writers
            .as_ref()
            .is_some_and(|w| w.is_moment(&pass.work, id))
        {
            continue;
        }
        if node.inputs.len() != node.outputs.len() {
            return Err(GuardError::Malformed {
                at: format!("node {:?}", graph.node_label(id)),
                problem: format!(
                    "copies {} inputs to {} outputs: give it as many",
                    node.inputs.len(),
                    node.outputs.len()
                ),
            });
        }
        pass.order_readers(id)?;
        pass.work
            .take_out(id, "the copy stands for nothing but the value")?;
    }
    pass.done()
}

impl Pass<'_> {
    fn must_stay(&self, id: NodeId) -> bool {
        let graph = self.work.graph();
        let table = self.work.table;
        let node = &graph.nodes[id];
        if node.attrs.get(NO_FOLDING).is_some() || node.attrs.get(INSERTED).is_some() {
            return true;
        }
        let inner = |n: NodeId, class: OpClass| {
            graph.nodes[n].subgraph != graph.root && table.class(graph, n) == class
        };
        let read = node.inputs.iter().flatten();
        let producers: Vec<NodeId> = read.map(|&v| graph.values[v].producer).collect();
        let readers = self.readers(id);
        let waiting = self.work.waiting(id);
        let at_border = producers
            .iter()
            .any(|&n| inner(n, OpClass::Input) || !graph.nodes[n].bodies.is_empty())
            || readers
                .iter()
                .any(|&n| inner(n, OpClass::Output) || !graph.nodes[n].bodies.is_empty());
        let is = |n: &NodeId, which| table.traits(graph, *n).has(which);
        let carries_branch = producers.iter().any(|n| is(n, Trait::Switches))
            && !waiting.is_empty()
            || readers.iter().any(|n| is(n, Trait::Merges)) && !node.control.is_empty();
        // A reader that comes after a node that waits for the copy needs the old value.
        let keeps_old = waiting.iter().any(|&last| {
            readers.iter().any(|&reader| {
                reader == last
                    || table.class(graph, reader) == OpClass::Output
                    || self.work.is_before(last, reader)
            })
        });
        at_border || carries_branch || keeps_old
    }

    fn readers(&self, id: NodeId) -> Vec<NodeId> {
        let outputs = self.work.graph().nodes[id].outputs.iter().flatten();
        let users = outputs.flat_map(|&v| self.work.users(v));
        users.map(|&(n, _)| n).collect()
    }

    /// Lets whoever waited for a copy wait for those who read it.
    fn order_readers(&mut self, id: NodeId) -> Result<(), GuardError> {
        let table = self.work.table;
        let waiting = self.work.waiting(id).to_vec();
        for reader in self.readers(id) {
            for &last in &waiting {
                let is_result = table.class(self.work.graph(), reader) == OpClass::Output;
                if reader != last && !is_result && !self.work.is_before(last, reader) {
                    self.work
                        .order(reader, last, "it read the value by the copy before")?;
                }
            }
        }
        Ok(())
    }
}
