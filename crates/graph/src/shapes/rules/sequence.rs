//! Sequences and optionals.
//!
//! The memory of their elements is not known before the run; of what comes out of one, type and
//! shape are known where all elements agree.

use std::sync::Arc;

use super::arithmetic::num;
use crate::DType;
use crate::dim_expr::{constant, is_named};
use crate::shapes::context::{Answer, Context, Refusal, Rule};
use crate::shapes::fact::{Element, Fact};
use rten_shape_inference::{SymExpr, SymTensor};

pub(super) fn find(op: &str) -> Option<Rule> {
    Some(match op {
        "SequenceConstruct" => construct,
        "SequenceEmpty" => empty,
        "SequenceErase" => erase,
        "SequenceInsert" => insert,
        "SplitToSequence" => split,
        "SequenceLength" => length,
        "SequenceAt" | "OptionalGetElement" => get,
        "ConcatFromSequence" => concat,
        "Optional" => optional,
        "OptionalHasElement" => has_element,
        _ => return None,
    })
}

fn construct(c: &mut Context<'_>) -> Answer {
    let mut element = Element::None;
    for i in 0..c.tensors.len() {
        let next = Element::each(&c.fact(i));
        element = element.join(&next, c.symbols);
    }
    c.set_container(0, DType::Sequence, element);
    Ok(())
}

fn empty(c: &mut Context<'_>) -> Answer {
    c.set_container(0, DType::Sequence, Element::None);
    Ok(())
}

fn erase(c: &mut Context<'_>) -> Answer {
    c.set_container(0, DType::Sequence, c.element(0));
    Ok(())
}

fn insert(c: &mut Context<'_>) -> Answer {
    let next = Element::each(&c.fact(1));
    let element = c.element(0).join(&next, c.symbols);
    c.set_container(0, DType::Sequence, element);
    Ok(())
}

/// See <https://onnx.ai/onnx/operators/onnx__SplitToSequence.html>.
fn split(c: &mut Context<'_>) -> Answer {
    let dtype = c.dtype(0);
    c.set_dtype(0, DType::Sequence);
    let mut dims = c.dims(0)?;
    let axis = c.axis(c.int("axis", 0), dims.len())?;
    let size = match (c.has(1), c.ints(1)) {
        (false, _) if c.int("keepdims", 1) == 0 => None,
        (false, _) => Some(num(1)),
        // One number: parts of that size, the last may be smaller.
        (true, Some(sizes)) if c.rank(1) == Some(0) => match (&sizes[..], constant(&dims[axis])) {
            (&[n], Some(whole)) if n > 0 && whole % i128::from(n) == 0 => Some(num(n)),
            _ => Some(c.unknown()),
        },
        (true, Some(sizes)) if sizes.windows(2).all(|w| w[0] == w[1]) => {
            Some(sizes.first().map_or_else(|| num(0), |&n| num(n)))
        }
        (true, _) => Some(c.unknown()),
    };
    match size {
        Some(size) => dims[axis] = size,
        None => {
            dims.remove(axis);
        }
    }
    let part = Fact::of(dtype, SymTensor::from_shape(dims));
    c.set_container(0, DType::Sequence, Element::each(&part));
    Ok(())
}

fn length(c: &mut Context<'_>) -> Answer {
    c.set_dims(0, DType::I64, Vec::new());
    Ok(())
}

/// What is in a container; an input that is none is handed on as it is.
fn get(c: &mut Context<'_>) -> Answer {
    let fact = match (c.dtype(0), c.element(0)) {
        (_, Element::Each(fact)) => {
            let mut fact = Arc::unwrap_or_clone(fact);
            // A size that is not known may be another one in the next element.
            if let Some(mut dims) = fact.dims() {
                let differs = |d: &SymExpr| constant(d).is_none() && !is_named(d);
                for dim in dims.iter_mut().filter(|d| differs(d)) {
                    *dim = c.unknown();
                }
                fact.tensor = SymTensor::from_shape(dims);
            }
            fact
        }
        (DType::Sequence | DType::Optional | DType::Unknown, _) => {
            return Err(Refusal::NoAnswer);
        }
        _ => c.fact(0),
    };
    if let Some(output) = c.outputs.first_mut() {
        *output = fact;
    }
    Ok(())
}

fn concat(c: &mut Context<'_>) -> Answer {
    let Element::Each(part) = c.element(0) else {
        return Err(Refusal::NoAnswer);
    };
    c.set_dtype(0, part.dtype);
    let mut dims = part.dims().ok_or(Refusal::NoAnswer)?;
    // How many parts there are is not known.
    let total = c.unknown();
    if c.int("new_axis", 0) != 0 {
        let axis = c.axis(c.int("axis", 0), dims.len() + 1)?;
        dims.insert(axis, total);
    } else {
        let axis = c.axis(c.int("axis", 0), dims.len())?;
        dims[axis] = total;
    }
    c.set_dims(0, part.dtype, dims);
    Ok(())
}

fn optional(c: &mut Context<'_>) -> Answer {
    let element = if c.has(0) {
        Element::each(&c.fact(0))
    } else {
        Element::None
    };
    c.set_container(0, DType::Optional, element);
    Ok(())
}

fn has_element(c: &mut Context<'_>) -> Answer {
    c.set_dims(0, DType::Bool, Vec::new());
    Ok(())
}
