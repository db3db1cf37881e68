//! Operators that work element by element, on float32. Element `i` of every input is read before
//! element `i` of the output is written, and never after, so the output may lie over an input of
//! as many elements.

use tenure_graph::DType;

use super::{Call, Floats, Kernel, Make, Site, float};

/// The kernels of this family.
pub(super) const KERNELS: &[(&str, Make)] = &[
    ("Neg", |site| unary(site, |x| -x)),
    ("Relu", |site| unary(site, |x| x.max(0.0))),
    ("Add", |site| binary(site, |x, y| x + y)),
    ("Sub", |site| binary(site, |x, y| x - y)),
    ("Mul", |site| binary(site, |x, y| x * y)),
    ("Less", |site| binary(site, |x, y| f32::from(x < y))),
    ("InplaceAdd", |site| binary(site, |x, y| x + y)),
    ("AssignAdd", |site| binary(site, |x, y| x + y)),
    ("AssignSub", |site| binary(site, |x, y| x - y)),
    ("AssignAddVariableOp", |site| binary(site, |x, y| x + y)),
    ("AssignSubVariableOp", |site| binary(site, |x, y| x - y)),
    ("AtomicAdd", accumulate),
];

#[derive(Debug)]
struct Unary(fn(f32) -> f32);

fn unary(site: &Site<'_>, f: fn(f32) -> f32) -> Result<Box<dyn Kernel>, String> {
    let (x, y) = (site.input(0)?, site.output(0)?);
    float(&x, "input 0")?;
    float(&y, "output 0")?;
    same(x.elements(), y.elements(), "input 0")?;
    Ok(Box::new(Unary(f)))
}

impl Kernel for Unary {
    fn run(&self, call: &Call<'_>) {
        let (x, y) = (Floats::of(call.input(0)), Floats::of(call.output(0)));
        for i in 0..y.len() {
            y.set(i, (self.0)(x.get(i)));
        }
    }
}

/// An operation on two inputs, of which one of a single element is repeated.
#[derive(Debug)]
struct Binary {
    f: fn(f32, f32) -> f32,
    /// What to add to the number of an input's element for the next element of the output: 0 or 1.
    strides: [usize; 2],
    /// Whether the output's elements are truth values of one byte.
    truth: bool,
}

fn binary(site: &Site<'_>, f: fn(f32, f32) -> f32) -> Result<Box<dyn Kernel>, String> {
    let output = site.output(0)?;
    let truth = output.dtype == DType::Bool;
    if !truth {
        float(&output, "output 0")?;
    }
    let mut strides = [1; 2];
    for (i, stride) in strides.iter_mut().enumerate() {
        let (what, input) = (format!("input {i}"), site.input(i)?);
        float(&input, &what)?;
        if input.elements() == 1 {
            *stride = 0;
        } else {
            same(input.elements(), output.elements(), &what)?;
        }
    }
    Ok(Box::new(Binary { f, strides, truth }))
}

impl Kernel for Binary {
    fn run(&self, call: &Call<'_>) {
        let (x, y) = (Floats::of(call.input(0)), Floats::of(call.input(1)));
        let at = |i: usize| (self.f)(x.get(i * self.strides[0]), y.get(i * self.strides[1]));
        let output = call.output(0);
        if self.truth {
            for (i, cell) in output.iter().enumerate() {
                cell.set(u8::from(at(i) != 0.0));
            }
        } else {
            let z = Floats::of(output);
            for i in 0..z.len() {
                z.set(i, at(i));
            }
        }
    }
}

/// Adds its input to its output, which somebody has cleared; else it clears it itself.
#[derive(Debug)]
struct Accumulate {
    is_cleared: bool,
}

fn accumulate(site: &Site<'_>) -> Result<Box<dyn Kernel>, String> {
    let (x, y) = (site.input(0)?, site.output(0)?);
    float(&x, "input 0")?;
    float(&y, "output 0")?;
    same(x.elements(), y.elements(), "input 0")?;
    let is_cleared = site.is_cleared(0);
    Ok(Box::new(Accumulate { is_cleared }))
}

impl Kernel for Accumulate {
    fn run(&self, call: &Call<'_>) {
        let (x, y) = (Floats::of(call.input(0)), Floats::of(call.output(0)));
        for i in 0..y.len() {
            let before = if self.is_cleared { y.get(i) } else { 0.0 };
            y.set(i, before + x.get(i));
        }
    }
}

fn same(input: u64, output: u64, what: &str) -> Result<(), String> {
    if input == output {
        Ok(())
    } else {
        Err(format!(
            "{what} has {input} elements, and the output has {output}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Address, Memory, load, store};
    use crate::numbers::{decode, encode};
    use tenure_graph::{Dialect, Graph, Shape};

    /// Runs an operator on inputs, with the output over input `over` or apart.
    fn run(op: &str, inputs: &[&[f64]], over: Option<usize>) -> Vec<f64> {
        let mut graph = Graph::new("", Dialect::Ge, "root");
        let node = graph.add_node(graph.root, "n", op);
        let elements = inputs.iter().map(|x| x.len()).max().unwrap();
        let mut memory = Memory::default();
        let mut address = |bytes: &[u8]| {
            let block = memory.add(u64::try_from(bytes.len()).unwrap(), 1).unwrap();
            store(bytes, memory.block(block));
            Address {
                block,
                start: 0,
                len: bytes.len(),
            }
        };
        let shape = |n: usize| Some(Shape::of(&[u64::try_from(n).unwrap()]));
        let mut places = Vec::new();
        for x in inputs {
            let value = graph.add_input(graph.root, "x", DType::F32, shape(x.len()));
            graph.nodes[node].inputs.push(Some(value));
            places.push(address(&encode(DType::F32, x.iter().copied()).unwrap()));
        }
        let dtype = if op == "Less" {
            DType::Bool
        } else {
            DType::F32
        };
        graph.add_output(node, "y", dtype, shape(elements));
        let apart = address(&vec![
            7;
            usize::try_from(dtype.bytes(elements as u64).unwrap())
                .unwrap()
        ]);
        let output = over.map_or(apart, |i| places[i]);
        let (_, make) = KERNELS.iter().find(|(name, _)| *name == op).unwrap();
        let kernel = make(&Site::new(&graph, node)).unwrap();
        kernel.run(&Call::new(&memory, &places, &[output], &[]));
        decode(dtype, &load(memory.bytes(output))).unwrap()
    }

    #[test]
    fn numbers_are_right_apart_and_in_place() {
        let (x, y): (&[f64], &[f64]) = (&[1.0, -2.0, 3.0], &[4.0, 5.0, -6.0]);
        for over in [None, Some(0)] {
            assert_eq!(run("Neg", &[x], over), [-1.0, 2.0, -3.0]);
            assert_eq!(run("Relu", &[x], over), [1.0, 0.0, 3.0]);
            assert_eq!(run("Add", &[x, y], over), [5.0, 3.0, -3.0]);
            assert_eq!(run("Sub", &[x, &[1.0]], over), [0.0, -3.0, 2.0]);
        }
        for over in [None, Some(1)] {
            assert_eq!(run("Mul", &[&[2.0], y], over), [8.0, 10.0, -12.0]);
            assert_eq!(run("Sub", &[x, y], over), [-3.0, -7.0, 9.0]);
        }
        assert_eq!(run("Less", &[x, &[2.0]], None), [1.0, 1.0, 0.0]);
        assert_eq!(run("AtomicAdd", &[x], None), x);
    }
}
