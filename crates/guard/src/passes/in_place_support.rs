//! Marks outputs that may be written over an input, because the node is the input's only reader and
//! both are alike.
//!
//! Only for programs whose operators the host runs itself. The mark (`_inplace_support_input_index`) lets an operator write straight into a variable.

use tenure_graph::effects::{OpClass, OpTable};
use tenure_graph::patch::{Edit, Slot};
use tenure_graph::{Attr, Graph, NodeId};

use super::Pass;
use crate::Guarded;
use crate::error::GuardError;
use crate::finding::Kind;
use crate::options::Options;
use crate::storage::in_order;

/// Runs the pass.
///
/// # Errors
/// When an edit does not fit.
pub fn run(graph: &Graph, table: &OpTable, options: &Options) -> Result<Guarded, GuardError> {
    let mut pass = Pass::new(graph, table, Kind::ReadWrite, "in-place-support");
    if !options.host_runs {
        return pass.done();
    }
    for node in in_order(graph, graph.root) {
        let computes = table.class(graph, node) == OpClass::Compute;
        let input = (0u32..)
            .take(graph.nodes[node].inputs.len())
            .find(|&i| computes && pass.fits(node, i));
        if let Some(i) = input {
            let edit = Edit::SetSlotAttr {
                node,
                slot: Slot::Out(0),
                attr: "_inplace_support_input_index".into(),
                value: Some(Attr::Int(i64::from(i))),
            };
            pass.work
                .edit(&edit, "it is the only reader of an input like its output")?;
        }
    }
    pass.done()
}

impl Pass<'_> {
    /// Whether a node's one output may lie where its input `i` does. Dimensions that are not known
    /// are equal to none.
    fn fits(&self, node: NodeId, i: u32) -> bool {
        let graph = self.work.graph();
        let node = &graph.nodes[node];
        let (&[Some(output)], Some(input)) = (&node.outputs[..], node.input(i as usize)) else {
            return false;
        };
        let (output, made) = (&graph.values[output], &graph.values[input]);
        let shape = |s: &Option<tenure_graph::Shape>| s.as_ref().and_then(|s| s.known());
        !self.is_source(input)
            && self.work.users(input).len() == 1
            && output.dtype == made.dtype
            && shape(&output.shape).is_some_and(|s| Some(s) == shape(&made.shape))
    }
}
