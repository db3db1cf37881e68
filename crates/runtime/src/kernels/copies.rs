//! Operators whose outputs have the bytes of their inputs.

use super::{Call, Kernel, Make, Site};
use crate::memory::copy;

/// Output `i` is input `i`. A collective of one rank is a copy as well.
const EACH: Make = |site| copies(site, |i| i);

/// Output 0 is input 1, the new value; input 0 is the memory that it is written in.
const SECOND: Make = |site| copies(site, |i| i + 1);

/// The kernels of this family.
pub(super) const KERNELS: &[(&str, Make)] = &[
    ("Identity", EACH),
    ("IdentityN", EACH),
    ("MemcpyAsync", EACH),
    ("MemcpyAddrAsync", EACH),
    ("TensorMove", EACH),
    ("ReadVariableOp", EACH),
    ("Reshape", EACH),
    ("HcomAllReduce", EACH),
    ("HcomAllGather", EACH),
    ("HcomReduceScatter", EACH),
    ("HcomBroadcast", EACH),
    ("Assign", SECOND),
    ("AssignVariableOp", SECOND),
];

/// The inputs that the outputs are copies of.
#[derive(Debug)]
struct Copies(Vec<usize>);

fn copies(site: &Site<'_>, source: fn(usize) -> usize) -> Result<Box<dyn Kernel>, String> {
    let sources: Vec<usize> = (0..site.outputs()).map(source).collect();
    for (i, &input) in sources.iter().enumerate() {
        let (from, to) = (site.input(input)?, site.output(i)?);
        if from.dtype != to.dtype || from.elements() != to.elements() {
            return Err(format!(
                "output {i} has other elements than input {input}, which it is a copy of"
            ));
        }
    }
    Ok(Box::new(Copies(sources)))
}

impl Kernel for Copies {
    fn run(&self, call: &Call<'_>) {
        for (i, &input) in self.0.iter().enumerate() {
            copy(call.input(input), call.output(i));
        }
    }
}
