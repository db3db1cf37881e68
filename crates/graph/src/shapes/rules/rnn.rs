//! Recurrent layers.

use super::arithmetic::num;
use crate::shapes::context::{Answer, Context, Rule};

pub(super) fn find(op: &str) -> Option<Rule> {
    Some(match op {
        "RNN" | "GRU" | "LSTM" => recurrent,
        _ => return None,
    })
}

/// Outputs `Y`, `Y_h` and (LSTM) `Y_c`.
///
/// See <https://onnx.ai/onnx/operators/onnx__LSTM.html>.
fn recurrent(c: &mut Context<'_>) -> Answer {
    let dtype = c.dtype(0);
    for i in 0..3 {
        c.set_dtype(i, dtype);
    }
    let batch_first = c.int("layout", 0) != 0;
    let (first, second) = match c.rank(0) {
        Some(_) => {
            let [first, second, _] = c.dims_of_rank(0)?;
            (first, second)
        }
        None => (c.unknown(), c.unknown()),
    };
    let (length, batch) = if batch_first {
        (second, first)
    } else {
        (first, second)
    };
    let directions = match c.text("direction") {
        Some("bidirectional") => num(2),
        _ => num(1),
    };
    // The recurrent weights are `[directions, gates * hidden, hidden]`.
    let hidden = match (c.node.attrs.int("hidden_size"), c.dims(2).ok()) {
        (Some(hidden), _) => num(hidden),
        (None, Some(weights)) if weights.len() == 3 => weights[2].clone(),
        _ => c.unknown(),
    };
    let (all, last) = if batch_first {
        (
            vec![batch.clone(), length, directions.clone(), hidden.clone()],
            vec![batch, directions, hidden],
        )
    } else {
        (
            vec![length, directions.clone(), batch.clone(), hidden.clone()],
            vec![directions, batch, hidden],
        )
    };
    c.set_dims(0, dtype, all);
    c.set_dims(1, dtype, last.clone());
    c.set_dims(2, dtype, last);
    Ok(())
}
