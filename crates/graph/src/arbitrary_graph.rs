//! Random graphs for property tests and fuzzing (feature `arbitrary`).
//!
//! [`onnx`] and [`ge`] make *valid* graphs with static shapes: every operator gets inputs that its
//! specification allows, branches agree on what they return, loops hand on states of one type.
//! They are rich in what is hard for a planner: views of views, chains that may be computed in
//! place, operands used twice, values nobody reads, results that are inputs or constants or stand
//! there twice, outer values captured by branches and bodies, loops that swap, rotate or pass
//! through their states, optional inputs and outputs left out. [`decorate`] adds what no tool
//! looks at but every format must carry: attributes of all kinds, odd names, unknown keys.
//!
//! The same bytes always give the same graph, and fewer bytes a smaller one.
//!
//! ```
//! use arbitrary::Unstructured;
//! use tenure_graph::arbitrary_graph::{Size, onnx};
//!
//! let bytes: Vec<u8> = (0..200).collect();
//! let graph = onnx(&mut Unstructured::new(&bytes), Size::default())?;
//! assert_eq!(tenure_graph::verify(&graph), Ok(()));
//! # Ok::<(), arbitrary::Error>(())
//! ```

pub mod check;
mod decorate;
mod ge;
mod onnx;

pub use decorate::decorate;
pub use ge::ge;
pub use onnx::onnx;

use arbitrary::{Result, Unstructured};

use crate::link::inputs_in_order;
use crate::{DType, Graph, NodeId, Shape, SubgraphId, ValueId};

/// Bounds of a random graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// At most about so many operators, in all subgraphs together.
    pub nodes: usize,
    /// How many branches and bodies may stand around one.
    pub depth: usize,
}

impl Default for Size {
    /// Thirty operators, three deep.
    fn default() -> Self {
        Size {
            nodes: 30,
            depth: 3,
        }
    }
}

/// A random graph of a random one of the dialects that have a generator, decorated or not.
///
/// # Errors
/// None but those of `u`.
pub fn any(u: &mut Unstructured<'_>, size: Size) -> Result<Graph> {
    let mut graph = if u.arbitrary()? {
        onnx(u, size)?
    } else {
        ge(u, size)?
    };
    if u.arbitrary()? {
        decorate(u, &mut graph)?;
    }
    Ok(graph)
}

/// Element type and dimensions of a value.
type Type = (DType, Vec<u64>);

/// What both generators build with.
struct Builder<'u, 'b> {
    u: &'b mut Unstructured<'u>,
    graph: Graph,
    /// Operators that may still be made.
    left: usize,
    /// Numbers for names.
    next: usize,
    /// Values that the node being made may read; in a subgraph, those of its own come last.
    visible: Vec<ValueId>,
}

impl Builder<'_, '_> {
    /// Whether to make another operator.
    fn goes_on(&mut self) -> bool {
        if self.left == 0 || self.u.is_empty() {
            return false;
        }
        self.left -= 1;
        true
    }

    fn name(&mut self, stem: &str) -> String {
        self.next += 1;
        format!("{stem}{}", self.next)
    }

    /// A node named after its operator, that reads the given values.
    fn node(&mut self, at: SubgraphId, op: &str, inputs: &[Option<ValueId>]) -> NodeId {
        let name = self.name(&format!("{}_", op.to_lowercase()));
        let node = self.graph.add_node(at, name, op);
        self.graph.nodes[node].inputs.extend_from_slice(inputs);
        node
    }

    fn type_of(&self, value: ValueId) -> Type {
        let value = &self.graph.values[value];
        let known = value.shape.as_ref().and_then(Shape::known);
        (value.dtype, known.map(|d| d.to_vec()).unwrap_or_default())
    }

    /// Any visible value that fits, young ones more often than old ones.
    fn choose(&mut self, fits: impl Fn(&Type) -> bool) -> Result<Option<ValueId>> {
        let all: Vec<ValueId> = (self.visible.iter().copied())
            .filter(|&v| fits(&self.type_of(v)))
            .collect();
        let young = if self.u.arbitrary()? { 3 } else { all.len() };
        let young = &all[all.len().saturating_sub(young)..];
        match young {
            [] => Ok(None),
            young => Ok(Some(*self.u.choose(young)?)),
        }
    }

    /// A visible value of exactly this type.
    fn choose_typed(&mut self, ty: &Type) -> Result<Option<ValueId>> {
        self.choose(|t| t == ty)
    }

    /// A small shape, now and then a scalar or an empty one.
    fn shape(&mut self) -> Result<Vec<u64>> {
        let rank = *self.u.choose(&[2, 1, 2, 3, 2, 0])?;
        (0..rank)
            .map(|_| Ok(*self.u.choose(&[4, 2, 8, 1, 3, 6, 16, 0])?))
            .collect()
    }

    /// Puts the inputs of all subgraphs in order.
    fn finish(mut self) -> Graph {
        let subgraphs: Vec<SubgraphId> = self.graph.subgraphs.keys().collect();
        for id in subgraphs {
            if let Ok(inputs) = inputs_in_order(&self.graph, id) {
                self.graph.subgraphs[id].inputs = inputs;
            }
        }
        self.graph
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify;
    use std::collections::BTreeSet;

    /// Bytes that look random, the same on every machine.
    fn noise(seed: u64) -> Vec<u8> {
        let mut state = seed;
        let mut next = || {
            // Knuth's MMIX generator; its upper bits are the good ones.
            state = (state.wrapping_mul(6_364_136_223_846_793_005))
                .wrapping_add(1_442_695_040_888_963_407);
            state.to_be_bytes()[0]
        };
        (0..600).map(|_| next()).collect()
    }

    /// The features that the graphs of many seeds have.
    fn features(make: impl Fn(&mut Unstructured<'_>, Size) -> Result<Graph>) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for seed in 0..300 {
            let graph = make(&mut Unstructured::new(&noise(seed)), Size::default()).unwrap();
            assert_eq!(verify(&graph), Ok(()));
            for (id, node) in &graph.nodes {
                found.insert(node.op.to_string());
                let depth = graph.depth(node.subgraph);
                found.insert(format!("depth {depth}"));
                let captures = |&v: &ValueId| graph.home(v) != node.subgraph;
                let features = [
                    (node.inputs.contains(&None), "input left out"),
                    (node.outputs.contains(&None), "output left out"),
                    (node.inputs.iter().flatten().any(captures), "capture"),
                    (!node.control.is_empty(), "control edge"),
                    (node.stream.is_some_and(|s| s.as_u32() > 0), "stream"),
                    (!node.workspace.is_empty(), "workspace"),
                ];
                for (_, feature) in features.into_iter().filter(|(has, _)| *has) {
                    found.insert(feature.to_owned());
                }
                let is_result = Some(id) == graph.subgraphs[node.subgraph].output;
                for &value in node.inputs.iter().flatten().filter(|_| is_result) {
                    let producer = &graph.nodes[graph.values[value].producer].op;
                    found.insert(format!("result of {producer}"));
                    if node.inputs.iter().filter(|v| **v == Some(value)).count() > 1 {
                        found.insert("result twice".to_owned());
                    }
                }
            }
        }
        found
    }

    #[track_caller]
    fn has_all(found: &BTreeSet<String>, wanted: &str) {
        let missing: Vec<&str> = wanted.split(", ").filter(|w| !found.contains(*w)).collect();
        assert!(missing.is_empty(), "never made: {missing:?}");
    }

    #[test]
    fn onnx_graphs_are_valid_and_varied() {
        has_all(
            &features(onnx),
            "If, Loop, Scan, Reshape, Identity, Squeeze, Unsqueeze, Flatten, Relu, Add, Softmax, \
             Split, Concat, Transpose, Clip, LayerNormalization, Dropout, Shape, Cast, Const, \
             Constant, CumProd, depth 1, depth 2, depth 3, input left out, output left out, \
             capture, result twice, result of Data, result of Const, result of Loop",
        );
    }

    #[test]
    fn ge_graphs_are_valid_and_varied() {
        has_all(
            &features(ge),
            "If, Case, While, PartitionedCall, Variable, Const, Assign, InplaceAdd, Reshape, \
             HcomAllReduce, SplitD, ConcatD, depth 1, depth 2, depth 3, control edge, stream, \
             workspace, result twice, result of Data, result of Variable",
        );
    }

    #[test]
    fn graphs_pass_through_every_format() {
        arbtest::arbtest(check::formats).budget_ms(1000);
    }

    #[test]
    fn no_bytes_give_a_small_graph() {
        for make in [onnx, ge] {
            let graph = make(&mut Unstructured::new(&[]), Size::default()).unwrap();
            assert_eq!(verify(&graph), Ok(()));
            assert!(graph.nodes.len() <= 4);
        }
    }
}
