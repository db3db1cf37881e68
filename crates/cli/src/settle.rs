//! Sizes that only the data decide: what comes before such a node is run for the inputs that are given,
//! and the model is then planned for the sizes that came out.

use std::sync::Arc;

use serde::Serialize;
use tenure_check::check;
use tenure_graph::effects::{OpClass, OpTable};
use tenure_graph::identity::canonical;
use tenure_graph::plan::PlanOptions;
use tenure_graph::shapes::{Bindings, infer_for};
use tenure_graph::{Attr, CONST_OP, Graph, NodeId, Shape, Tensor, TensorData, ValueId};
use tenure_guard::compile;
use tenure_runtime::kernels::sizes::{KNOWN_UP_TO, decide, is_decided_by_contents};
use tenure_runtime::{Kernels, Layout, Program};

use crate::npy::Array;
use crate::pipeline::Given;

/// Nodes that are settled at most: for each of them, what comes before is run once more.
const MOST: usize = 1000;

/// A value whose size only the data decide.
#[derive(Serialize)]
pub struct Settled {
    /// Its label.
    value: String,
    /// Its shape for these inputs.
    shape: String,
    /// Where that comes from.
    why: String,
}

impl Settled {
    /// The line that is shown.
    pub fn line(&self) -> String {
        let Settled { value, shape, why } = self;
        format!("size decided by the data: {value} {shape}, {why}")
    }
}

/// Gives all values of a graph sizes that can be found by running what comes before them. Nodes that
/// still have none are refused later, as if nothing had been tried.
pub fn settle(
    graph: &mut Graph,
    table: &OpTable,
    kernels: &Kernels,
    given: &Given,
    inputs: &[Array],
) -> Result<Vec<Settled>, String> {
    let mut settled = Vec::new();
    for _ in 0..MOST {
        let Some(node) = first_unknown(graph) else {
            break;
        };
        let Some(why) = settle_node(graph, table, kernels, inputs, node)? else {
            break;
        };
        let shaped = infer_for(graph.clone(), table, &Bindings::default(), &given.contents);
        *graph = shaped.map_err(|e| e.to_string())?.graph;
        // The graph is the same but for shapes and constants, so nodes keep their numbers.
        let outputs: Vec<ValueId> = graph.nodes[node]
            .outputs
            .iter()
            .flatten()
            .copied()
            .collect();
        if outputs.iter().any(|&v| graph.bytes(v).is_none()) {
            break;
        }
        for value in outputs {
            let shape = graph.values[value].shape.as_ref();
            settled.push(Settled {
                value: graph.value_label(value),
                shape: shape.map(ToString::to_string).unwrap_or_default(),
                why: why.clone(),
            });
        }
    }
    Ok(settled)
}

/// The first node of the root graph with an output of unknown size, whose inputs are all known.
fn first_unknown(graph: &Graph) -> Option<NodeId> {
    let unknown = |v: &ValueId| graph.bytes(*v).is_none();
    let mut nodes = graph.subgraphs[graph.root].nodes.iter().copied();
    let found = nodes.find(|&n| graph.nodes[n].outputs.iter().flatten().any(unknown));
    found.filter(|&n| !graph.nodes[n].inputs.iter().flatten().any(unknown))
}

/// Makes known what decides the sizes of a node's outputs; gives where they come from.
fn settle_node(
    graph: &mut Graph,
    table: &OpTable,
    kernels: &Kernels,
    inputs: &[Array],
    node: NodeId,
) -> Result<Option<String>, String> {
    let n = &graph.nodes[node];
    let by_contents = n.domain.is_empty() && is_decided_by_contents(&n.op);
    // Which inputs have to be known: all, or the small ones that inference can make use of.
    let is_small = |v: ValueId| {
        let shape = graph.values[v].shape.as_ref();
        shape
            .and_then(Shape::elements)
            .is_some_and(|e| e <= KNOWN_UP_TO)
    };
    let is_computed =
        |v: ValueId| table.class(graph, graph.values[v].producer) != OpClass::Constant;
    let slots: Vec<(usize, ValueId)> = (n.inputs.iter().enumerate())
        .filter_map(|(slot, v)| Some((slot, (*v)?)))
        .filter(|&(_, v)| by_contents || (is_small(v) && is_computed(v)))
        .collect();
    if slots.is_empty() || !n.bodies.is_empty() {
        return Ok(None);
    }
    let values: Vec<ValueId> = slots.iter().map(|s| s.1).collect();
    let contents = computed(graph, table, kernels, inputs, node, &values)?;
    if by_contents {
        let mut all = vec![Vec::new(); n.inputs.len()];
        for (&(slot, _), bytes) in slots.iter().zip(contents) {
            all[slot] = bytes;
        }
        let why = format!("by the contents that {} reads", graph.node_label(node));
        return Ok(decide(graph, node, &all).then_some(why));
    }
    let names: Vec<String> = values.iter().map(|&v| graph.value_label(v)).collect();
    for ((slot, value), bytes) in slots.into_iter().zip(contents) {
        let known = constant(graph, node, value, bytes);
        graph.nodes[node].inputs[slot] = Some(known);
    }
    Ok(Some(format!("by the contents of {}", names.join(", "))))
}

/// A constant of the contents of a value, before `node`.
fn constant(graph: &mut Graph, node: NodeId, value: ValueId, bytes: Vec<u8>) -> ValueId {
    let dtype = graph.values[value].dtype;
    let shape = graph.values[value].shape.clone();
    let dims = shape.as_ref().and_then(|s| s.known()).unwrap_or_default();
    let name = format!(
        "{} for {}",
        graph.value_label(value),
        graph.node_label(node)
    );
    let root = graph.root;
    let made = graph.add_node(root, name.clone(), CONST_OP);
    graph.nodes[made].stream = None;
    let tensor = Tensor {
        dtype,
        shape: dims.to_vec(),
        data: TensorData::Bytes(bytes.into()),
    };
    graph.nodes[made]
        .attrs
        .set("value", Attr::Tensor(Arc::new(tensor)));
    let nodes = &mut graph.subgraphs[root].nodes;
    nodes.retain(|&n| n != made);
    nodes.insert(0, made);
    graph.add_output(made, name, dtype, shape)
}

/// The bytes of values that are computed before a node, by a run of what comes before it.
fn computed(
    graph: &Graph,
    table: &OpTable,
    kernels: &Kernels,
    inputs: &[Array],
    node: NodeId,
    values: &[ValueId],
) -> Result<Vec<Vec<u8>>, String> {
    let mut before = graph.clone();
    let root = before.root;
    let mut seen = false;
    let nodes: Vec<NodeId> = (graph.subgraphs[root].nodes.iter().copied())
        .filter(|&n| {
            seen |= n == node;
            let class = table.class(graph, n);
            let stays = matches!(
                class,
                OpClass::Input | OpClass::Constant | OpClass::Variable
            );
            class != OpClass::Output && (!seen || stays)
        })
        .collect();
    before.subgraphs[root].nodes = nodes;
    before.add_results(root, "before", values.iter().map(|&v| Some(v)));
    let before = canonical(&before);
    let text =
        |e: &dyn std::fmt::Display| format!("what comes before {:?}: {e}", graph.node_label(node));
    let options = tenure_guard::Options::of(&before);
    let guarded = compile::before_a_plan(&before, table, &options).map_err(|e| text(&e))?;
    let before = guarded.graph(&before);
    let config = tenure_plan::Config::default();
    let plan = tenure_plan::plan(before, table, &PlanOptions::default(), &config);
    let plan = plan.map_err(|e| text(&e))?.plan;
    let plan = check(before, table, &plan).map_err(|v| text(&v[0]))?;
    let program = Program::new(before, table, &plan, kernels, Layout::Planned);
    let mut program = program.map_err(|e| text(&e))?;
    let bytes: Vec<&[u8]> = inputs.iter().map(|a| &a.bytes[..]).collect();
    program.run(&bytes).map_err(|e| text(&e))?;
    Ok((0..values.len()).map(|i| program.result(i)).collect())
}
