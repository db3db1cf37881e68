//! Inputs of collectives that must lie side by side, or in memory that peers reach: what cannot be
//! moved there is copied, and so is what two groups want.
//!
//! Packed groups are left to the layout pass.

use tenure_graph::effects::OpTable;
use tenure_graph::effects::demands::{INPUT_KINDS, PEER_MEMORY, stated_kind};
use tenure_graph::{Attr, Attrs, Graph, NodeId, ValueId};

use super::Pass;
use crate::Guarded;
use crate::error::GuardError;
use crate::finding::Kind;
use crate::layout::attributes::{CONTIGUOUS_INPUT, flag};
use crate::options::Options;
use crate::storage::in_order;

/// Runs the pass.
///
/// # Errors
/// When an edit does not fit, or an input is left out and that is to be refused.
pub fn run(graph: &Graph, table: &OpTable, options: &Options) -> Result<Guarded, GuardError> {
    let mut pass = Pass::new(graph, table, Kind::Layout, "contiguous-inputs");
    for id in in_order(graph, graph.root) {
        let contiguous = flag(&graph.nodes[id].attrs, CONTIGUOUS_INPUT);
        for i in (0u32..).take(graph.nodes[id].inputs.len()) {
            let peer = stated_kind(&graph.nodes[id], INPUT_KINDS, i) == PEER_MEMORY;
            let needed = options.refuse_missing_inputs && (contiguous || peer);
            pass.missing_input(id, i, needed)?;
            if let Some(value) = pass.work.graph().nodes[id].input(i as usize) {
                pass.place(id, i, value)?;
            }
        }
    }
    pass.done()
}

impl Pass<'_> {
    fn place(&mut self, id: NodeId, i: u32, value: ValueId) -> Result<(), GuardError> {
        let graph = self.work.graph();
        let is_contiguous = |n: NodeId| flag(&graph.nodes[n].attrs, CONTIGUOUS_INPUT);
        let is_source = self.is_source(value);
        let contiguous = is_contiguous(id);
        let peer = stated_kind(&graph.nodes[id], INPUT_KINDS, i) == PEER_MEMORY;
        let in_another = |&&(n, other): &&(NodeId, u32)| (n, other) != (id, i) && is_contiguous(n);
        let (rule, harm) = if contiguous && is_source {
            (
                "source-in-group",
                "an input, constant or variable cannot lie next to its neighbours",
            )
        } else if contiguous && self.work.users(value).iter().any(|user| in_another(&user)) {
            ("two-groups", "one tensor cannot lie in two groups")
        } else if peer && is_source {
            (
                "source-in-peer-memory",
                "an input, constant or variable is no memory of peers",
            )
        } else {
            return Ok(());
        };
        let source = graph.nodes[graph.values[value].producer].name.clone();
        let name = format!("{source}_HcclContinuousMemcpyPass_Identity");
        self.copy(id, i, &name, rule, harm)?;
        let mut attrs = Attrs::new();
        attrs.set("_node_need_compile", Attr::Bool(true));
        self.write_back(id, i, value, &format!("{source}_Assign"), attrs)
    }
}
