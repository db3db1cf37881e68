//! Tells the loader at which distance from the base of the caller's memory a tensor starts, once
//! offsets are known (`input_offsets`, `output_offsets` of the nodes).
//!
//! What is recorded are pairs of base and distance, in two lists of equal length, on the input node
//! or on the output node.

use std::collections::BTreeMap;
use tenure_graph::effects::{OpClass, OpTable};
use tenure_graph::patch::Edit;
use tenure_graph::{Attr, Graph, NodeId, ValueId};

use super::Pass;
use crate::Guarded;
use crate::error::GuardError;
use crate::finding::Kind;
use crate::layout::attributes::{CONTIGUOUS_INPUT, CONTIGUOUS_OUTPUT, flag};
use crate::options::Options;
use crate::storage::{in_order, outer_input};

const BASE: &str = "_zero_copy_basic_offset";
const DISTANCE: &str = "_zero_copy_relative_offset";
const FUSED: &str = "_ffts_plus_sub_graph";

/// Memory on the chip itself, which no caller's buffer is in: the unified buffer and the first and
/// second level of the cube's.
pub(super) const ON_CHIP: [i64; 3] = [1 << 15, 1 << 16, 1 << 17];

/// Runs the pass.
///
/// # Errors
/// [`GuardError::Malformed`] for a join without task that has not exactly one output offset.
pub fn run(graph: &Graph, table: &OpTable, _: &Options) -> Result<Guarded, GuardError> {
    let mut pass = Pass::new(graph, table, Kind::Layout, "joined-offsets");
    let mut records: BTreeMap<NodeId, Vec<(i64, i64)>> = BTreeMap::new();
    for id in in_order(graph, graph.root) {
        let owner = graph.subgraphs[graph.nodes[id].subgraph].owner;
        let fused = |n: NodeId| graph.nodes[n].attrs.get(FUSED).is_some();
        if fused(id) || owner.is_some_and(fused) {
            continue;
        }
        for (node, base, distance) in pass.of_inputs(id).into_iter().chain(pass.of_outputs(id)?) {
            records.entry(node).or_default().push((base, distance));
        }
    }
    for (node, pairs) in records {
        let (bases, distances): (Vec<i64>, Vec<i64>) = pairs.into_iter().unzip();
        for (attr, list) in [(BASE, bases), (DISTANCE, distances)] {
            let list = list.into_iter().map(Attr::Int).collect();
            let (attr, value) = (attr.into(), Some(Attr::List(list)));
            pass.work.edit(
                &Edit::SetAttr { node, attr, value },
                "where it lies is known",
            )?;
        }
    }
    pass.done()
}

/// Node that is told, base, distance.
type Record = (NodeId, i64, i64);

impl Pass<'_> {
    fn offset(&self, node: NodeId, key: &str, i: usize) -> Option<i64> {
        self.offsets(node, key)?.get(i).copied()
    }

    fn offsets(&self, node: NodeId, key: &str) -> Option<Vec<i64>> {
        self.work.graph().nodes[node].extra.ints(key)
    }

    /// The value behind an input, out of the subgraphs that it was handed into.
    fn outside(&self, value: ValueId) -> ValueId {
        let graph = self.work.graph();
        let mut value = value;
        while let Some((owner, i)) =
            outer_input(graph, self.work.table, graph.values[value].producer)
        {
            match graph.nodes[owner].input(i as usize) {
                Some(outer) => value = outer,
                None => break,
            }
        }
        value
    }

    fn of_inputs(&self, id: NodeId) -> Vec<Record> {
        let graph = self.work.graph();
        let node = &graph.nodes[id];
        let listed = node.attrs.ints("_is_connected_to_data").unwrap_or_default();
        let kinds = node.attrs.ints("_input_memory_type").unwrap_or_default();
        let contiguous = flag(&node.attrs, CONTIGUOUS_INPUT);
        let mut records = Vec::new();
        for i in listed.into_iter().filter_map(|i| usize::try_from(i).ok()) {
            let Some(value) = node.input(i) else { continue };
            let source = &graph.values[self.outside(value)];
            let made = self.offset(source.producer, "output_offsets", source.output as usize);
            let read = self.offset(id, "input_offsets", i);
            let (Some(made), Some(read)) = (made, read) else {
                continue;
            };
            let Some(distance) = read.checked_sub(made) else {
                continue;
            };
            let off_chip = kinds.get(i).is_some_and(|k| !ON_CHIP.contains(k));
            let is_input = self.work.table.class(graph, source.producer) == OpClass::Input;
            if off_chip || (contiguous && is_input && distance != 0) {
                records.push((source.producer, made, distance));
            }
        }
        records
    }

    /// The output node that a value reaches, out of the subgraph that it is a result of.
    fn results_of(&self, value: ValueId) -> Option<NodeId> {
        let graph = self.work.graph();
        let users = self.work.users(value).iter();
        let mut outputs =
            users.filter(|&&(n, _)| self.work.table.class(graph, n) == OpClass::Output);
        let &(output, i) = outputs.next()?;
        let subgraph = graph.nodes[output].subgraph;
        let Some(owner) = graph.subgraphs[subgraph].owner else {
            return Some(output);
        };
        let index = tenure_graph::control::result_index(graph, Some(output), i as usize);
        let outer = graph.nodes[owner].output(index)?;
        let users = self.work.users(outer).iter();
        let mut outputs =
            users.filter(|&&(n, _)| self.work.table.class(graph, n) == OpClass::Output);
        outputs.next().map(|&(n, _)| n)
    }

    fn of_outputs(&self, id: NodeId) -> Result<Vec<Record>, GuardError> {
        let graph = self.work.graph();
        let node = &graph.nodes[id];
        let listed = node
            .attrs
            .ints("_is_connected_to_netoutput")
            .unwrap_or_default();
        let first = listed.first().and_then(|&o| usize::try_from(o).ok());
        let Some(first) = first else {
            return Ok(Vec::new());
        };
        let fused = |p: NodeId| {
            graph.nodes[p]
                .attrs
                .get("_output_offset_for_buffer_fusion")
                .is_some()
        };
        let joins = flag(&node.attrs, "_no_task")
            && (flag(&node.attrs, CONTIGUOUS_INPUT)
                || self.work.producers(id).all(|p| fused(p.node)));
        let mut records = Vec::new();
        if joins {
            let offsets = self.offsets(id, "output_offsets").unwrap_or_default();
            let [base] = offsets[..] else {
                return Err(GuardError::Malformed {
                    at: format!("node {:?}", graph.node_label(id)),
                    problem: format!(
                        "a join without task has one output offset, this one {}",
                        offsets.len()
                    ),
                });
            };
            let output = node.output(0).and_then(|v| self.results_of(v));
            for &value in node.inputs.iter().flatten() {
                let made = &graph.values[value];
                let offset = self.offset(made.producer, "output_offsets", made.output as usize);
                let distance = offset.and_then(|o| o.checked_sub(base));
                records.extend(output.zip(distance).map(|(n, d)| (n, base, d)));
            }
        } else if flag(&node.attrs, CONTIGUOUS_OUTPUT) {
            let base = self.offset(id, "output_offsets", first);
            let output = node.output(first).and_then(|v| self.results_of(v));
            let (Some(base), Some(output)) = (base, output) else {
                return Ok(Vec::new());
            };
            for (o, value) in node.outputs.iter().enumerate() {
                let users = value.map_or(&[][..], |v| self.work.users(v));
                for &(reader, i) in users {
                    let is_result = self.work.table.class(graph, reader) == OpClass::Output;
                    if is_result && o != first {
                        continue;
                    }
                    let offset = self.offset(reader, "input_offsets", i as usize);
                    let distance = offset.and_then(|read| read.checked_sub(base));
                    records.extend(distance.map(|d| (output, base, d)));
                }
            }
        }
        Ok(records)
    }
}
