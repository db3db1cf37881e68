//! Operators whose outputs have the bytes of their inputs.

use super::{Call, Kernel, Made, Make, Site};

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
    ("Squeeze", EACH),
    ("Unsqueeze", EACH),
    ("Flatten", EACH),
    ("HcomAllReduce", EACH),
    ("HcomAllGather", EACH),
    ("HcomReduceScatter", EACH),
    ("HcomBroadcast", EACH),
    ("Assign", SECOND),
    ("AssignVariableOp", SECOND),
];

/// The inputs that the outputs are copies of.
struct Copies(Vec<usize>);

fn copies(site: &Site<'_>, source: fn(usize) -> usize) -> Made {
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
    fn run(&mut self, call: &mut Call<'_>) -> Result<(), String> {
        for (i, &input) in self.0.iter().enumerate() {
            call.settle(input, i);
        }
        Ok(())
    }

    fn may_be_over(&self, input: usize, output: usize) -> bool {
        // An output over the input of another one would be written before that is read. What is
        // not read at all may be anywhere.
        (self.0.len() == 1 && output == 0) || !self.0.contains(&input)
    }
}
