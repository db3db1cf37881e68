//! Hands the address of the caller's memory over where a node cannot be told that it has changed.
//!
//! Such a node gets `MemcpyAddrAsync` before it, which passes an address where the hardware can and
//! copies where it cannot. Nothing is done in programs of unknown sizes, or where the device cannot
//! pass addresses.

use tenure_graph::effects::demands::REFRESHABLE;
use tenure_graph::effects::{OpClass, OpTable, Trait};
use tenure_graph::patch::{Edit, NewNode, NewOutput, Spot};
use tenure_graph::{Attr, Attrs, Dialect, Graph, NodeId, ValueId};

use super::Pass;
use crate::Guarded;
use crate::error::GuardError;
use crate::finding::Kind;
use crate::layout::attributes::{COLLECTIVE_ENGINE, ENGINE, flag, is_static};
use crate::options::Options;
use crate::storage::{Anchor, SOURCE_VARIABLE, in_order, outer_input};
use crate::work::COPY_OP;

/// Type of the node that hands an address over.
const ADDRESS_OP: &str = "MemcpyAddrAsync";

/// Attribute of a node that reads the caller's inputs.
const READS_USER_INPUT: &str = "_is_connected_to_data";

/// Attribute of a node that stands for an input of what runs its subgraph: the number of the input.
const PARENT_INDEX: &str = "parent_index";

/// Runs the pass.
///
/// # Errors
/// [`GuardError::Malformed`] where the way of the caller's memory to a merge leads through a node that
/// does not say which input it stands for.
pub fn run(graph: &Graph, table: &OpTable, options: &Options) -> Result<Guarded, GuardError> {
    let mut pass = Pass::new(graph, table, Kind::Layout, "user-addresses");
    if !options.zero_copy_supported || !is_static(graph, graph.root) {
        return pass.done();
    }
    for id in in_order(graph, graph.root) {
        let node = &graph.nodes[id];
        let is_result = graph.subgraphs[graph.root].output == Some(id);
        let is_collective = node.extra.str(ENGINE) == Some(COLLECTIVE_ENGINE);
        let merges = table.traits(graph, id).has(Trait::MergesStreams);
        for (i, value) in (0u32..).zip(&node.inputs) {
            let Some(value) = *value else { continue };
            if merges && let Some((reader, i)) = pass.user_edge(id, i)? {
                pass.hand_over(reader, i, id, "address-into-merge")?;
            } else if is_result && pass.is_handed_to_caller(value, options) {
                let source = graph.values[value].producer;
                pass.hand_over(id, i, source, "address-to-output")?;
            } else if is_collective && pass.is_kept_by_caller(value) {
                let source = graph.values[value].producer;
                if !flag(&graph.options, REFRESHABLE) {
                    pass.hand_over(id, i, source, "address-into-collective")?;
                }
            }
        }
    }
    pass.done()
}

impl Pass<'_> {
    /// Where the caller's memory enters on its way to an input of a merge: the reader and its
    /// input; `None` where something else comes in.
    fn user_edge(&self, reader: NodeId, i: u32) -> Result<Option<(NodeId, u32)>, GuardError> {
        let graph = self.work.graph();
        let table = self.work.table;
        let mut edge = (reader, i);
        // Each step goes out of a subgraph, so it ends.
        loop {
            let Some(value) = graph.nodes[edge.0].input(edge.1 as usize) else {
                return Ok(None);
            };
            let source = graph.values[value].producer;
            let Some((owner, outer)) = outer_input(graph, table, source) else {
                let is_caller = table.class(graph, source) == OpClass::Input
                    && graph.nodes[source].subgraph == graph.root
                    || self.is_kept_by_caller(value);
                return Ok(is_caller.then_some(edge));
            };
            if graph.nodes[source].attrs.get(PARENT_INDEX).is_none() {
                return Err(GuardError::Malformed {
                    at: format!("node {:?}", graph.node_label(source)),
                    problem: format!("{PARENT_INDEX} must say which input it stands for"),
                });
            }
            let known = graph.nodes[owner].attrs.get("_is_unknown_shape");
            let is_static_part = table.class(graph, owner) == OpClass::Call
                && known.and_then(Attr::as_bool) == Some(false);
            if is_static_part {
                let hints = graph.values[value].hints.as_ref();
                let named = hints.is_some_and(|h| h.attrs.get(SOURCE_VARIABLE).is_some());
                return Ok((!named).then_some(edge));
            }
            edge = (owner, outer);
        }
    }

    /// Whether a result is memory that the caller must be given another one for.
    fn is_handed_to_caller(&self, value: ValueId, options: &Options) -> bool {
        let graph = self.work.graph();
        let source = graph.values[value].producer;
        let is_empty = graph.bytes(value) == Some(0);
        let as_input = options.offline || options.single_op || options.heterogeneous;
        let class = self.work.table.class(graph, source);
        let is_caller = class == OpClass::Input || self.is_kept_by_caller(value);
        !is_empty && (class == OpClass::Constant || (as_input && is_caller))
    }

    /// Whether a value is reference data: memory of the caller that is kept from run to run.
    fn is_kept_by_caller(&self, value: ValueId) -> bool {
        let graph = self.work.graph();
        let source = graph.values[value].producer;
        self.work.table.class(graph, source) == OpClass::Variable
            && self
                .work
                .table
                .traits(graph, source)
                .has(Trait::CallerMemory)
    }

    /// Puts the node that hands an address over on an edge; it takes its labels from `served`.
    fn hand_over(
        &mut self,
        reader: NodeId,
        i: u32,
        served: NodeId,
        rule: &'static str,
    ) -> Result<(), GuardError> {
        let graph = self.work.graph();
        let Some(value) = graph.nodes[reader].input(i as usize) else {
            return Ok(());
        };
        let source = graph.values[value].producer;
        if self
            .work
            .table
            .traits(graph, source)
            .has(Trait::PassesAddress)
        {
            return Ok(());
        }
        let mut attrs = Attrs::new();
        for name in ["_stream_label", "_rts_label_node"] {
            if let Some(attr) = graph.nodes[served].attrs.get(name) {
                attrs.set(name, attr.clone());
            }
        }
        let connected = graph.nodes[served].attrs.get(READS_USER_INPUT).cloned();
        if let Some(connected) = &connected {
            attrs.set(READS_USER_INPUT, connected.clone());
        }
        let made = &graph.values[value];
        // Other dialects have no such operator: there it is copied.
        let op = match graph.dialect {
            Dialect::Ge => ADDRESS_OP,
            Dialect::Onnx | Dialect::Tflite => COPY_OP,
        };
        let stream = graph.nodes[reader].stream.or(graph.nodes[source].stream);
        let node = NewNode {
            name: format!("{}_MemcpyAddrAsync", graph.nodes[source].name),
            op: op.into(),
            inputs: vec![value],
            outputs: vec![NewOutput {
                dtype: made.dtype,
                shape: made.shape.clone(),
                hints: None,
            }],
            attrs,
            control: Vec::new(),
            stream,
        };
        let reason = "the reader cannot be told that the caller's memory lies elsewhere";
        self.note(
            Anchor::input(reader, i),
            rule,
            reason,
            "address handed over",
        );
        if connected.is_some() {
            let edit = Edit::SetAttr {
                node: served,
                attr: READS_USER_INPUT.into(),
                value: Some(Attr::Bool(false)),
            };
            self.work.edit(&edit, reason)?;
        }
        let id = self.work.add(node, Spot::Before(reader), reason)?;
        self.done_by(1, id);
        match self.work.graph().nodes[id].output(0) {
            Some(address) => self.work.redirect((reader, i), address, reason),
            None => Ok(()),
        }
    }
}
