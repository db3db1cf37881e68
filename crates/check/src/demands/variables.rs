//! Variables: memory that is kept from run to run, outside every arena. A reader finds there what
//! was written last, so whoever writes a variable keeps its place, in the order of the model,
//! among all that touch it.

use rustc_hash::FxHashMap;
use tenure_graph::effects::OpClass;
use tenure_graph::entity::{PrimaryMap, SecondaryMap};
use tenure_graph::{Graph, NodeId, SubgraphId, ValueId};

/// Which values are names of variables, and who has touched these so far.
pub(super) struct Variables {
    /// The variable that a value is a name of.
    of: SecondaryMap<ValueId, Option<ValueId>>,
    /// Places of all nodes in their subgraphs, in the order of the model.
    places: SecondaryMap<NodeId, usize>,
    touched: FxHashMap<(SubgraphId, ValueId), Touched>,
}

/// Nodes of one subgraph that stand last in the model, of those that have touched a variable.
#[derive(Clone, Copy, Default)]
struct Touched {
    last: Option<NodeId>,
    last_writer: Option<NodeId>,
}

impl Variables {
    pub(super) fn new(graph: &Graph, class: &PrimaryMap<NodeId, OpClass>) -> Self {
        let mut variables = Variables {
            of: SecondaryMap::new(),
            places: SecondaryMap::new(),
            touched: FxHashMap::default(),
        };
        let is_variable = |(id, _): &(NodeId, _)| class[*id] == OpClass::Variable;
        let nodes: Vec<_> = graph.nodes.iter().filter(is_variable).collect();
        for value in nodes.iter().flat_map(|(_, n)| n.outputs.iter().flatten()) {
            variables.of[*value] = Some(*value);
        }
        if !nodes.is_empty() {
            for subgraph in graph.subgraphs.values() {
                for (place, &node) in subgraph.nodes.iter().enumerate() {
                    variables.places[node] = place;
                }
            }
        }
        variables
    }

    /// The variable that a value is a name of.
    pub(super) fn of(&self, value: ValueId) -> Option<ValueId> {
        self.of[value]
    }

    /// `to` is a name of what `from` is a name of.
    pub(super) fn same(&mut self, to: ValueId, from: ValueId) {
        if let Some(variable) = self.of[from] {
            self.of[to] = Some(variable);
        }
    }

    /// A node reads or writes a value. If that is a name of a variable, gives back the variable
    /// and a node that has touched it before though it stands later in the model.
    pub(super) fn touch(
        &mut self,
        graph: &Graph,
        node: NodeId,
        value: ValueId,
        writes: bool,
    ) -> Option<(ValueId, NodeId)> {
        let variable = self.of[value]?;
        let mut at = Some(node);
        // Nodes of two subgraphs stand to each other as the owners around them do.
        while let Some(node) = at {
            let subgraph = graph.nodes[node].subgraph;
            let places = &self.places;
            let touched = self.touched.entry((subgraph, variable)).or_default();
            let later = |other: &NodeId| places[*other] > places[node];
            let before = if writes {
                touched.last
            } else {
                touched.last_writer
            };
            if let Some(before) = before.filter(later) {
                return Some((variable, before));
            }
            if !touched.last.is_some_and(|n| later(&n)) {
                touched.last = Some(node);
            }
            if writes {
                touched.last_writer = Some(node);
            }
            at = graph.subgraphs[subgraph].owner;
        }
        None
    }
}
