//! What is joined or cut without a copy: tensors that lie in another one.

use super::demands::asks_for_places;
use super::{Alias, Effects};
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

/// The pieces of what a node joins or cuts in place, in the order of their slots; `effects` are those
/// of the node.
#[must_use]
pub fn pieces(graph: &Graph, node: NodeId, effects: &Effects) -> Vec<Piece> {
    let slots = &graph.nodes[node];
    let mut pieces = Vec::new();
    if !asks_for_places(slots) {
        return pieces;
    }
    if let Some(run) = effects.input_run.filter(|run| run.whole)
        && let Some(to) = slots.output(0)
    {
        let mut at = Some(0u64);
        for (input, from) in (0u32..).zip(&slots.inputs) {
            let Some(from) = *from else { continue };
            let shift = at.and_then(|at| i64::try_from(at).ok()).map(|at| -at);
            let slots = Alias { output: 0, input };
            pieces.push(Piece {
                slots,
                from,
                to,
                shift,
                joins: true,
            });
            let stride = graph.bytes(from).and_then(|bytes| run.stride(bytes));
            at = at
                .zip(stride)
                .and_then(|(at, stride)| at.checked_add(stride));
        }
    }
    if let Some(run) = effects.output_run.filter(|run| run.whole)
        && let Some(from) = slots.input(0)
    {
        let mut at = Some(0u64);
        for (output, to) in (0u32..).zip(&slots.outputs) {
            let Some(to) = *to else { continue };
            let shift = at.and_then(|at| i64::try_from(at).ok());
            let slots = Alias { output, input: 0 };
            pieces.push(Piece {
                slots,
                from,
                to,
                shift,
                joins: false,
            });
            let stride = graph.bytes(to).and_then(|bytes| run.stride(bytes));
            at = at
                .zip(stride)
                .and_then(|(at, stride)| at.checked_add(stride));
        }
    }
    pieces
}
