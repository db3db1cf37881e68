//! Where each value lives at all: in planned memory, or outside every arena.
//!
//! Constants lie outside, and so does everything that can be computed from constants alone when
//! folding is on; so do variables, inputs in the caller's memory, and values whose size is not
//! known before the run.

use tenure_graph::control::{Pass, Point, transfers};
use tenure_graph::effects::demands::bound_variables;
use tenure_graph::effects::{OpClass, OpTable};
use tenure_graph::entity::{EntitySet, SecondaryMap};
use tenure_graph::plan::{Placement, PlanOptions, Sharing};
use tenure_graph::{Graph, NodeId, ValueId};

/// Where a value lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Home {
    /// In planned memory, with this many bytes to be found in [`Graph::bytes`].
    #[default]
    Planned,
    /// A constant of the model, or computed from constants at load time.
    Constant,
    /// State that is kept from run to run.
    Variable,
    /// A graph input in the caller's memory.
    CallerInput,
    /// Its size is known only during the run.
    Dynamic,
}

/// Where all values live, and which nodes are computed at load time.
#[derive(Clone, Debug)]
pub struct Homes {
    /// By value.
    pub of: SecondaryMap<ValueId, Home>,
    /// Nodes that are computed at load time.
    pub folded: EntitySet<NodeId>,
}

/// Sorts all values by where they live.
#[must_use]
pub fn homes(graph: &Graph, table: &OpTable, options: &PlanOptions) -> Homes {
    let mut homes = Homes {
        of: SecondaryMap::with_capacity(graph.values.len()),
        folded: EntitySet::new(),
    };
    let bound = bound_variables(graph, table);
    // Owners stand before their bodies' nodes in execution order, so one walk in that order sees
    // every source before its uses.
    let mut pending = vec![graph.root];
    while let Some(subgraph) = pending.pop() {
        for &node in &graph.subgraphs[subgraph].nodes {
            let class = table.class(graph, node);
            let home = match class {
                OpClass::Constant => Home::Constant,
                OpClass::Variable => Home::Variable,
                OpClass::Input if subgraph == graph.root && options.inputs == Placement::User => {
                    Home::CallerInput
                }
                OpClass::Compute if options.fold && foldable(graph, table, &homes, node) => {
                    homes.folded.insert(node);
                    Home::Constant
                }
                _ => Home::Planned,
            };
            for value in graph.nodes[node].outputs.iter().copied().flatten() {
                // A view of a constant handed into a branch was marked when its owner was met.
                if homes.of[value] != Home::Constant {
                    homes.of[value] = match home {
                        Home::Planned if bound.contains_key(&value) => Home::Variable,
                        Home::Planned if graph.bytes(value).is_none() => Home::Dynamic,
                        home => home,
                    };
                }
            }
            if graph.nodes[node].bodies.is_empty() {
                continue;
            }
            let views = options.sharing >= Sharing::Views;
            for transfer in transfers(graph, node, class) {
                // What a call gives back is not known before what is in it.
                if let (Pass::View, Point::Enter(_), Some(from), Some(to)) =
                    (transfer.pass, transfer.at, transfer.from, transfer.to)
                    && homes.of[from] == Home::Constant
                    && views
                {
                    homes.of[to] = Home::Constant;
                }
            }
            pending.extend(graph.nodes[node].bodies.iter().rev().map(|b| b.graph));
        }
    }
    homes
}

/// Whether a node gives the same result in every run and needs no input of the run for it.
fn foldable(graph: &Graph, table: &OpTable, homes: &Homes, node: NodeId) -> bool {
    let inputs = &graph.nodes[node].inputs;
    let constant = |value: ValueId| homes.of[value] == Home::Constant;
    // Most nodes read something that is no constant: ask the table only about the others.
    if inputs
        .iter()
        .flatten()
        .any(|&v| !constant(v) && !static_shape(graph, v))
    {
        return false;
    }
    // How large a result is that the data decide is known only when it has been computed.
    let is_sized = |v: ValueId| {
        let (value, bytes) = (&graph.values[v], graph.bytes(v));
        bytes.is_some() || value.dtype.bits().is_none()
    };
    let effects = table.effects(graph, node);
    effects.known
        && effects.pure
        && graph.nodes[node]
            .outputs
            .iter()
            .flatten()
            .all(|&v| is_sized(v))
        && effects.refs.is_empty()
        && (0u32..)
            .zip(inputs)
            .all(|(k, input)| input.is_none_or(|v| constant(v) || effects.shape_only.contains(&k)))
}

fn static_shape(graph: &Graph, value: ValueId) -> bool {
    graph.values[value]
        .shape
        .as_ref()
        .is_some_and(|s| s.known().is_some())
}
