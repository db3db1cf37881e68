//! A node that reads or writes slots: its outputs are sized, its kernel is made for the shapes at
//! hand, and both are kept for the next time that the shapes are the same.

use std::fmt;
use std::sync::Arc;

use tenure_graph::effects::{Alias, Effects, OpTable};
use tenure_graph::{Graph, NodeId};

use super::sizing::{Given, Lone, takes_part};
use super::{Here, Operand, Pool, Spot, Store, to_usize};
use crate::allocator::Block;
use crate::kernels::{self, Dims, Kernel, Maker, Site};
use crate::memory::{Address, Memory, Place, Slots};

/// Most shapes that a node's kernels are kept for.
const MOST_READY: usize = 8;

/// A node whose inputs or outputs are in slots.
pub(crate) struct PoolWork {
    alone: Lone,
    table: OpTable,
    /// What makes its kernel; `None` where there is none, for nodes that only give names.
    make: Option<Arc<Maker>>,
    pub(crate) inputs: Vec<Option<Operand>>,
    pub(crate) outputs: Vec<Option<Operand>>,
    /// Inputs that are constants: their contents take part from the start.
    constants: Vec<bool>,
    /// The shapes seen last, the newest first.
    ready: Vec<Ready>,
}

/// What a node does for inputs of some shapes.
struct Ready {
    inputs: Vec<Option<Dims>>,
    /// Contents that have decided, by input.
    contents: Vec<Option<Vec<u8>>>,
    outputs: Vec<Option<Dims>>,
    how: How,
}

enum How {
    /// The outputs are names of inputs.
    Names(Vec<Alias>),
    /// A kernel, with so many bytes of temporary memory.
    Kernel(Box<dyn Kernel>, Vec<u64>),
}

impl fmt::Debug for PoolWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("PoolWork");
        out.field("inputs", &self.inputs)
            .field("outputs", &self.outputs);
        out.finish_non_exhaustive()
    }
}

impl PoolWork {
    pub(crate) fn new(
        graph: &Graph,
        table: &OpTable,
        id: NodeId,
        make: Option<Arc<Maker>>,
        inputs: Vec<Option<Operand>>,
        outputs: Vec<Option<Operand>>,
        constants: Vec<bool>,
    ) -> Self {
        PoolWork {
            alone: Lone::new(graph, id),
            table: table.clone(),
            make,
            inputs,
            outputs,
            constants,
            ready: Vec::new(),
        }
    }

    /// Does what the node does.
    pub(super) fn run(&mut self, memory: &mut Memory, pool: &Pool) -> Result<(), String> {
        let mut inputs = Vec::with_capacity(self.inputs.len());
        {
            let store = pool.lock(memory);
            for operand in &self.inputs {
                inputs.push(operand.as_ref().map(|o| store.find(o)).transpose()?);
            }
        }
        let known = self.ready.iter().position(|r| r.fits(&inputs, memory));
        let known = known.filter(|_| !self.alone.is_decided_by_contents());
        let mut ready = match known {
            Some(at) => self.ready.remove(at),
            None => self.prepare(memory, &inputs)?,
        };
        let done = match &mut ready.how {
            How::Names(views) => {
                let outputs = &ready.outputs;
                let store = &mut pool.lock(memory);
                self.give_names(memory, store, &inputs, outputs, views)
            }
            How::Kernel(kernel, scratch) => {
                let outputs = &ready.outputs;
                self.compute(memory, pool, &inputs, outputs, &mut **kernel, scratch)
            }
        };
        self.ready.insert(0, ready);
        self.ready.truncate(MOST_READY);
        done
    }

    /// Finds the dimensions of the outputs, and makes the kernel.
    fn prepare(&self, memory: &Memory, inputs: &[Option<Here>]) -> Result<Ready, String> {
        let bytes = |i: usize| {
            let here = inputs.get(i).and_then(Option::as_ref);
            here.map_or(Vec::new(), |h| memory.bytes(h.at).to_vec())
        };
        let given = |with_contents: bool| -> Vec<Option<Given<'_>>> {
            let pairs = inputs.iter().zip(&self.constants);
            let given = pairs.map(|(here, &is_constant)| {
                let here = here.as_ref()?;
                let takes_part = (with_contents || is_constant) && takes_part(&here.dims);
                Some(Given {
                    dims: &here.dims,
                    bytes: takes_part.then(|| memory.bytes(here.at)),
                })
            });
            given.collect()
        };
        let by_shapes = self.alone.size(&self.table, &given(false), &bytes);
        let by_contents = by_shapes.is_err();
        let (graph, id) = match by_shapes {
            Ok(found) => found,
            Err(_) => self.alone.size(&self.table, &given(true), &bytes)?,
        };
        let node = &graph.nodes[id];
        let dims = |v: &Option<_>| v.and_then(|v| super::known_dims(&graph.values[v]));
        let outputs = node.outputs.iter().map(dims).collect();
        let contents = given(by_contents);
        let contents = contents.iter().enumerate().map(|(i, given)| {
            let bytes = given.filter(|_| !self.constants[i])?.bytes?;
            Some(bytes.to_vec())
        });
        Ok(Ready {
            inputs: inputs
                .iter()
                .map(|h| h.as_ref().map(|h| h.dims.clone()))
                .collect(),
            contents: contents.collect(),
            outputs,
            how: self.how(&graph, id)?,
        })
    }

    /// What the node, alone, does with its memory.
    fn how(&self, graph: &Graph, id: NodeId) -> Result<How, String> {
        let effects = self.table.effects(graph, id);
        if are_names(graph, id, &effects) {
            return Ok(How::Names(effects.views.to_vec()));
        }
        if effects.unsized_scratch > 0 {
            return Err("it needs scratch memory whose size is not known".to_owned());
        }
        let make = self.make.as_ref();
        let make = make.ok_or("there is no kernel for this operator")?;
        let kernel = kernels::make(&**make, &Site::new(graph, id))?;
        let scratch = effects.scratch.iter().map(|s| s.size).collect();
        Ok(How::Kernel(kernel, scratch))
    }

    /// The outputs are the bytes of inputs, under other names.
    fn give_names(
        &self,
        memory: &mut Memory,
        pool: &mut Store,
        inputs: &[Option<Here>],
        outputs: &[Option<Dims>],
        views: &[Alias],
    ) -> Result<(), String> {
        for alias in views {
            let (i, o) = (alias.input as usize, alias.output as usize);
            let of = |list: &[Option<Operand>], k: usize| list.get(k).cloned().flatten();
            let (from, to) = (of(&self.inputs, i), of(&self.outputs, o));
            let dims = outputs.get(o).cloned().flatten();
            let here = inputs.get(i).cloned().flatten();
            if let (Some(from), Some(to), Some(dims), Some(here)) = (from, to, dims, here) {
                pool.name(memory, &from, &here, &to, dims)?;
            }
        }
        Ok(())
    }

    /// Runs the kernel. What it writes meets nothing that it reads: inputs that the plan has under an
    /// output, and elements that are not aligned, are copied.
    fn compute(
        &self,
        memory: &mut Memory,
        pool: &Pool,
        inputs: &[Option<Here>],
        outputs: &[Option<Dims>],
        kernel: &mut dyn Kernel,
        scratch: &[u64],
    ) -> Result<(), String> {
        let mut taken = Vec::new();
        let places = {
            let store = &mut pool.lock(memory);
            self.places(memory, store, inputs, outputs, scratch, &mut taken)
        };
        let done = places.and_then(|places| {
            for &(from, to) in &places.before {
                memory.copy(from, to);
            }
            let (ins, outs) = (&places.inputs, &places.outputs);
            let slots = Slots::new(memory, kernel, ins, outs, &places.scratch);
            let slots = slots.map_err(|e| e.to_string())?;
            memory.run(kernel, &slots)?;
            for &(from, to) in &places.after {
                memory.copy(from, to);
            }
            Ok(places.made)
        });
        let pool = &mut pool.lock(memory);
        let made = match done {
            Ok(made) => made,
            Err(reason) => {
                taken.into_iter().for_each(|block| pool.give_back(block));
                return Err(reason);
            }
        };
        for (o, block, here) in made {
            taken.retain(|&b| b != block);
            if let Some(Spot::Pooled(slot)) = self.outputs[o].as_ref().map(|o| o.place) {
                pool.put(slot, block, here);
            }
        }
        taken.into_iter().for_each(|block| pool.give_back(block));
        Ok(())
    }

    fn places(
        &self,
        memory: &mut Memory,
        pool: &mut Store,
        inputs: &[Option<Here>],
        outputs: &[Option<Dims>],
        scratch: &[u64],
        taken: &mut Vec<Block>,
    ) -> Result<Places, String> {
        let mut places = Places::default();
        let mut take = |memory: &mut Memory, bytes: u64| {
            let (block, at) = pool.take(memory, bytes)?;
            taken.push(block);
            Ok::<_, String>((block, at))
        };
        for (o, (operand, dims)) in self.outputs.iter().zip(outputs).enumerate() {
            let (Some(operand), Some(dims)) = (operand, dims) else {
                places.outputs.push(Place::default());
                continue;
            };
            let align = operand.align();
            let bytes = super::bytes_of(operand.dtype, dims)?;
            let len = to_usize(bytes)?;
            let at = match operand.place {
                Spot::Pooled(_) => {
                    let (block, at) = take(memory, bytes)?;
                    let dims = dims.clone();
                    places.made.push((o, block, Here { dims, at }));
                    at
                }
                Spot::Fixed(at) if len > at.len => {
                    return Err("its output has less memory than its shape needs".to_owned());
                }
                Spot::Fixed(at) if at.start.is_multiple_of(align) => Address { len, ..at },
                Spot::Fixed(at) => {
                    let (_, beside) = take(memory, bytes)?;
                    places.after.push((beside, Address { len, ..at }));
                    beside
                }
            };
            places.outputs.push(Place { at, align });
        }
        for (operand, here) in self.inputs.iter().zip(inputs) {
            let (Some(operand), Some(here)) = (operand, here) else {
                places.inputs.push(Place::default());
                continue;
            };
            let (align, mut at) = (operand.align(), here.at);
            let written = places.outputs.iter().any(|out| out.at.meets(&at));
            let later = places.after.iter().any(|&(_, to)| to.meets(&at));
            if written || later || !at.start.is_multiple_of(align) {
                let bytes = u64::try_from(at.len).unwrap_or(u64::MAX);
                let (_, beside) = take(memory, bytes)?;
                places.before.push((at, beside));
                at = beside;
            }
            places.inputs.push(Place { at, align });
        }
        for &bytes in scratch {
            places.scratch.push(take(memory, bytes)?.1);
        }
        Ok(places)
    }
}

/// Where a kernel reads and writes.
#[derive(Default)]
struct Places {
    inputs: Vec<Place>,
    outputs: Vec<Place>,
    scratch: Vec<Address>,
    /// Copies before and after its run.
    before: Vec<(Address, Address)>,
    after: Vec<(Address, Address)>,
    /// Blocks of outputs in slots.
    made: Vec<(usize, Block, Here)>,
}

impl Operand {
    /// The alignment in bytes that its elements need.
    fn align(&self) -> usize {
        let bytes = self.dtype.bits().unwrap_or(8).div_ceil(8).min(16);
        usize::try_from(bytes.next_power_of_two()).unwrap_or(16)
    }
}

impl Ready {
    /// Whether it is for these inputs.
    fn fits(&self, inputs: &[Option<Here>], memory: &Memory) -> bool {
        let same_dims = |(a, b): (&Option<Dims>, &Option<Here>)| {
            a.as_ref() == b.as_ref().map(|here| &here.dims)
        };
        let same_contents = |(a, b): (&Option<Vec<u8>>, &Option<Here>)| match (a, b) {
            (Some(a), Some(b)) => memory.bytes(b.at) == a,
            (Some(_), None) => false,
            (None, _) => true,
        };
        self.inputs.iter().zip(inputs).all(same_dims)
            && self.contents.iter().zip(inputs).all(same_contents)
    }
}

/// Whether all outputs of a node are the bytes of inputs, as many as these have.
fn are_names(graph: &Graph, id: NodeId, effects: &Effects) -> bool {
    let node = &graph.nodes[id];
    let mut outputs = (0u32..).zip(&node.outputs);
    !node.outputs.is_empty()
        && outputs.all(|(slot, output)| {
            let Some(output) = *output else { return true };
            let input = effects.view_of(slot);
            let input = input.and_then(|k| node.input(k as usize));
            input.is_some_and(|input| graph.bytes(input) == graph.bytes(output))
        })
}
