//! A join that needs no task: its inputs are made side by side, where the result is to be.
//!
//! That works when every axis before the joined one is 1, pieces start at whole blocks, and every
//! producer is free to write where it is told.

use rustc_hash::FxHashSet;
use tenure_graph::effects::demands::{ONE_MEMORY, OUTPUT_KINDS, is_on_chip, stated_kind};
use tenure_graph::effects::{OpClass, OpTable, Trait};
use tenure_graph::patch::{Edit, Slot};
use tenure_graph::{Attr, Graph, NodeId, ValueId};

use super::Pass;
use super::joined_offsets::ON_CHIP;
use crate::Guarded;
use crate::error::GuardError;
use crate::finding::Kind;
use crate::layout::attributes::{CONTIGUOUS_INPUT, CONTIGUOUS_OUTPUT, PACKED_INPUT, flag};
use crate::options::Options;
use crate::storage::{Anchor, in_order};

const NO_TASK: &str = "_no_task";
const FREE_FOR_JOIN: &str = "can_reused_for_concat_optimize";

/// Pieces start at multiples of so many bytes.
const BLOCK: u64 = 32;

/// Runs the pass.
///
/// # Errors
/// When an edit does not fit.
pub fn run(graph: &Graph, table: &OpTable, options: &Options) -> Result<Guarded, GuardError> {
    let mut pass = Pass::new(graph, table, Kind::Layout, "concat-no-task");
    if options.single_op {
        return pass.done();
    }
    for node in in_order(graph, graph.root) {
        if !table.traits(graph, node).has(Trait::Concatenates) || !pass.needs_no_task(node) {
            continue;
        }
        let reason = "its inputs can be made where its result is to be";
        let marks = [
            (NO_TASK, Attr::Bool(true)),
            (PACKED_INPUT, Attr::Bool(true)),
            (ONE_MEMORY, Attr::Bool(true)),
            ("_reuse_input_on_dim_index", Attr::Int(0)),
        ];
        for (attr, value) in marks {
            let (attr, value) = (attr.into(), Some(value));
            pass.work
                .edit(&Edit::SetAttr { node, attr, value }, reason)?;
        }
        for made in pass.work.producers(node).collect::<Vec<_>>() {
            let edit = Edit::SetSlotAttr {
                node: made.node,
                slot: made.slot,
                attr: FREE_FOR_JOIN.into(),
                value: Some(Attr::Bool(false)),
            };
            pass.work.edit(&edit, reason)?;
        }
    }
    pass.done()
}

impl Pass<'_> {
    fn needs_no_task(&self, id: NodeId) -> bool {
        let graph = self.work.graph();
        let node = &graph.nodes[id];
        let values: Option<Vec<ValueId>> = node.inputs.iter().copied().collect();
        let Some(values) = values.filter(|v| !v.is_empty()) else {
            return false;
        };
        let mut sources: FxHashSet<Anchor> = FxHashSet::default();
        let several = values.len() > 1;
        let fits = values.iter().all(|&value| {
            self.axis_is_outermost(id, value)
                && (!several || graph.bytes(value).is_some_and(|b| b.is_multiple_of(BLOCK)))
                && sources.insert(self.work.real_producer(value))
                && self.is_free(value)
        });
        let kinds: FxHashSet<i64> = values
            .iter()
            .map(|&v| {
                let made = &graph.values[v];
                let producer = &graph.nodes[made.producer];
                stated_kind(producer, OUTPUT_KINDS, made.output)
            })
            .collect();
        // What is on the chip has no memory for pieces to be made in.
        let has_memory = !is_on_chip(node, 0);
        let one_kind = kinds.len() == 1 && !kinds.iter().any(|k| ON_CHIP.contains(k));
        fits && one_kind && has_memory && self.readers_allow(id)
    }

    /// Whether all axes before the joined one are 1.
    fn axis_is_outermost(&self, id: NodeId, value: ValueId) -> bool {
        let graph = self.work.graph();
        let shape = graph.values[value].shape.as_ref().and_then(|s| s.known());
        let axis = graph.nodes[id].attrs.int("concat_dim");
        let (Some(shape), Some(axis)) = (shape, axis) else {
            return false;
        };
        let rank = i64::try_from(shape.len()).unwrap_or(i64::MAX);
        let axis = if axis < 0 {
            axis.saturating_add(rank)
        } else {
            axis
        };
        let before = usize::try_from(axis).ok().filter(|&a| a < shape.len());
        before.is_some_and(|axis| shape[..axis].iter().all(|&d| d == 1))
    }

    /// Whether a value can be made wherever it is to be.
    fn is_free(&self, value: ValueId) -> bool {
        let graph = self.work.graph();
        let table = self.work.table;
        let made = self.work.real_producer(value);
        let producer = &graph.nodes[made.node];
        let class = table.class(graph, made.node);
        let claims = [
            CONTIGUOUS_INPUT,
            CONTIGUOUS_OUTPUT,
            "reference",
            NO_TASK,
            ONE_MEMORY,
            PACKED_INPUT,
        ];
        let claimed = |at: Anchor| {
            let hints = at.value(graph).and_then(|v| graph.values[v].hints.as_ref());
            let mark = hints.and_then(|h| h.attrs.get(FREE_FOR_JOIN));
            mark.and_then(Attr::as_bool) == Some(false)
        };
        let direct = Anchor::of(graph, value);
        let is_result = |&(n, _): &(NodeId, u32)| table.class(graph, n) == OpClass::Output;
        class == OpClass::Compute
            && producer.bodies.is_empty()
            && !claims.iter().any(|name| flag(&producer.attrs, name))
            && producer.attrs.get("atomic_output_index").is_none()
            && !producer.name.contains("lxslice")
            && !claimed(direct)
            && !claimed(made)
            && !self.work.users(value).iter().any(is_result)
            && matches!(made.slot, Slot::Out(_))
    }

    /// Whether no reader of the result, also under another shape, wants it in a way of its own.
    fn readers_allow(&self, id: NodeId) -> bool {
        let graph = self.work.graph();
        let table = self.work.table;
        let mut stack: Vec<ValueId> = graph.nodes[id].outputs.iter().copied().flatten().collect();
        let mut seen: FxHashSet<ValueId> = stack.iter().copied().collect();
        while let Some(value) = stack.pop() {
            for &(reader, _) in self.work.users(value) {
                let node = &graph.nodes[reader];
                let claims = [NO_TASK, ONE_MEMORY, PACKED_INPUT];
                if claims.iter().any(|name| flag(&node.attrs, name)) {
                    return false;
                }
                if table.traits(graph, reader).has(Trait::Relabels) {
                    stack.extend(node.output(0).filter(|&v| seen.insert(v)));
                }
            }
        }
        true
    }
}
