//! What is joined or cut without a copy: tensors that lie in another one.

use super::demands::asks_for_places;
use super::{Alias, OpTable, Run};
use crate::{Graph, NodeId, ValueId};

/// A tensor that lies in another one, of the inputs and outputs of a node that joins or cuts in
/// place: the input lies in the output, or the output in the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The two slots.
    pub slots: Alias,
    /// The value that is read.
    pub from: ValueId,
    /// The value that is there under its own name afterwards.
    pub to: ValueId,
    /// How many bytes behind the start of `from` the start of `to` lies, below 0 where `from` is the
    /// piece; `None` where a size before it is not known.
    pub shift: Option<i64>,
    /// Whether the node joins: `from` is a piece of `to`; otherwise `to` is one of `from`.
    pub joins: bool,
}

/// The pieces of what a node joins or cuts in place, in the order of their slots. Most nodes have none,
/// which is seen at a glance.
#[must_use]
pub fn pieces(graph: &Graph, table: &OpTable, id: NodeId) -> Vec<Piece> {
    let node = &graph.nodes[id];
    if !asks_for_places(node) {
        return Vec::new();
    }
    let effects = table.effects(graph, id);
    let is_whole = |run: &Run| run.whole;
    let joined = effects.input_run.filter(is_whole).zip(node.output(0));
    let joined = joined.into_iter().flat_map(|(run, to)| {
        let places = places(graph, run, &node.inputs);
        places.map(move |(input, from, at)| Piece {
            slots: Alias { output: 0, input },
            from,
            to,
            shift: at.map(|at| -at),
            joins: true,
        })
    });
    let cut = effects.output_run.filter(is_whole).zip(node.input(0));
    let cut = cut.into_iter().flat_map(|(run, from)| {
        let places = places(graph, run, &node.outputs);
        places.map(move |(output, to, at)| Piece {
            slots: Alias { output, input: 0 },
            from,
            to,
            shift: at,
            joins: false,
        })
    });
    joined.chain(cut).collect()
}

/// The tensors of a run with their slots and their distances from its start.
fn places<'a>(
    graph: &'a Graph,
    run: Run,
    values: &'a [Option<ValueId>],
) -> impl Iterator<Item = (u32, ValueId, Option<i64>)> + 'a {
    let mut next = Some(0u64);
    let there = (0u32..)
        .zip(values)
        .filter_map(|(slot, v)| Some((slot, (*v)?)));
    there.map(move |(slot, value)| {
        let at = next;
        let stride = || run.stride(graph.bytes(value)?);
        next = at.and_then(|at| at.checked_add(stride()?));
        (slot, value, at.and_then(|at| i64::try_from(at).ok()))
    })
}
