//! Operators whose output sizes the contents of their inputs decide, and how: the kernels that write
//! such outputs refuse any other number of elements than these.

use tenure_graph::{DType, Graph, NodeId, Shape};

use super::generate::different_rows;
use super::vision::chosen_boxes;
use super::{Site, Type};
use crate::numbers::decode;

/// Dimensions of all outputs, from the contents of the inputs.
type Size = fn(&Site<'_>, &[Vec<u8>]) -> Option<Vec<Vec<u64>>>;

/// The operators of the default domain.
const SIZES: &[(&str, Size)] = &[
    ("Compress", compress),
    ("NonMaxSuppression", suppress),
    ("NonZero", non_zero),
    ("Unique", unique),
];

/// Whether the contents of its inputs alone decide how large the outputs of a node are.
#[must_use]
pub fn is_decided_by_contents(op: &str) -> bool {
    SIZES.iter().any(|&(name, _)| name == op)
}

/// Dimensions of all outputs of a node whose inputs hold these bytes, none for inputs that are left
/// out; `None` for operators whose sizes are not decided so, and for inputs that they cannot have.
fn decided(graph: &Graph, node: NodeId, inputs: &[Vec<u8>]) -> Option<Vec<Vec<u64>>> {
    let op = &graph.nodes[node].op;
    let (_, size) = SIZES.iter().find(|(name, _)| **name == **op)?;
    size(&Site::new(graph, node), inputs)
}

/// Gives the outputs of a node the dimensions that the contents of its inputs decide, which are
/// empty for inputs that are left out. `false` for operators whose sizes are not decided so, and for
/// inputs that they cannot have.
pub fn decide(graph: &mut Graph, node: NodeId, inputs: &[Vec<u8>]) -> bool {
    let Some(found) = decided(graph, node, inputs) else {
        return false;
    };
    for (slot, dims) in found.iter().enumerate() {
        if let Some(output) = graph.nodes[node].output(slot) {
            graph.values[output].shape = Some(Shape::of(dims));
        }
    }
    true
}

/// Contents of up to so many elements take part in shape inference, where sizes depend on them.
pub const KNOWN_UP_TO: u64 = 256;

fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

fn compress(site: &Site<'_>, inputs: &[Vec<u8>]) -> Option<Vec<Vec<u64>>> {
    let x = site.input(0).ok()?;
    let axis = match site.attrs().int("axis") {
        Some(axis) => Some(x.axis(axis).ok()?),
        None => None,
    };
    let size = axis.map_or(x.elements(), |axis| x.dims[axis]);
    let taken = inputs.get(1)?.iter().take(size);
    let taken = count(taken.filter(|&&t| t != 0).count());
    Some(vec![along(&x, axis, taken)])
}

/// Dimensions of what has `taken` rows along an axis, or elements where there is none.
fn along(x: &Type, axis: Option<usize>, taken: u64) -> Vec<u64> {
    match axis {
        None => vec![taken],
        Some(axis) => {
            let mut dims: Vec<u64> = x.dims.iter().map(|&d| count(d)).collect();
            dims[axis] = taken;
            dims
        }
    }
}

fn unique(site: &Site<'_>, inputs: &[Vec<u8>]) -> Option<Vec<Vec<u64>>> {
    let x = site.input(0).ok()?;
    let axis = match site.attrs().int("axis") {
        Some(axis) => Some(x.axis(axis).ok()?),
        None => None,
    };
    let found = count(different_rows(site, inputs.first()?).ok()?);
    let rows = axis.map_or(x.elements(), |axis| x.dims[axis]);
    Some(vec![
        along(&x, axis, found),
        vec![found],
        vec![count(rows)],
        vec![found],
    ])
}

fn suppress(site: &Site<'_>, inputs: &[Vec<u8>]) -> Option<Vec<Vec<u64>>> {
    let chosen = chosen_boxes(site, inputs).ok()?;
    Some(vec![vec![count(chosen), 3]])
}

fn non_zero(site: &Site<'_>, inputs: &[Vec<u8>]) -> Option<Vec<Vec<u64>>> {
    let x = site.input(0).ok()?;
    let bytes = inputs.first()?;
    let found = match x.dtype {
        DType::Bool => bytes.iter().filter(|&&b| b != 0).count(),
        dtype => {
            let numbers = decode(dtype, bytes)?;
            numbers.into_iter().filter(|&n| n != 0.0).count()
        }
    };
    // A scalar counts as a vector of one element.
    Some(vec![vec![count(x.rank().max(1)), count(found)]])
}
