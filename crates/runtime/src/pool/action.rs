//! What the instructions on slots do: nodes that read or write them, values handed over at the
//! borders of bodies, slices of loops, results for the caller, and memory that goes back.

use smallvec::SmallVec;
use tenure_graph::{DType, Dim, Shape};

use super::{Here, Operand, Outcome, Pool, PoolWork, Slot, Spot, Store, bytes_of};
use crate::kernels::{Dims, axis_of};
use crate::memory::{Address, Memory};

/// An instruction on slots.
#[derive(Debug)]
pub(crate) struct Pooled {
    /// Label of the node on whose account it is.
    pub(crate) node: String,
    pub(crate) action: PoolAction,
}

/// What it does.
#[derive(Debug)]
pub(crate) enum PoolAction {
    /// A node runs.
    Work(Box<PoolWork>),
    /// A value is handed over, as another name where both are in slots.
    Move { from: Operand, to: Operand },
    /// The first element is copied to a place where a decision is made.
    First { from: Operand, to: Address },
    /// The size of an axis is written as an int64.
    Count { of: Operand, axis: i64, to: Address },
    /// A loop begins whose passes fill a slot: so far it is empty along an axis. Dimensions of a slice
    /// that do not follow from those of the inputs are 0.
    Begin {
        whole: Slot,
        dtype: DType,
        slice: Shape,
        axis: i64,
    },
    /// A slice of pass `counter` is copied out of a whole.
    Cut(PoolSlice),
    /// It is added to a whole.
    Append(PoolSlice),
    /// A result goes to the caller.
    Result { from: Operand, index: usize },
    /// Nobody reads these any more.
    Release(SmallVec<[Slot; 4]>),
}

/// Slices of a tensor along an axis, one a pass.
#[derive(Clone, Debug)]
pub(crate) struct PoolSlice {
    pub(crate) whole: Operand,
    pub(crate) part: Operand,
    pub(crate) axis: i64,
    /// The last one comes first.
    pub(crate) backwards: bool,
    /// Where the number of passes is written; `None` where nobody knows before the last one.
    pub(crate) passes: Option<Address>,
    pub(crate) counter: Address,
}

impl Pooled {
    /// Places with fixed addresses that it reads.
    pub(crate) fn reads(&self) -> impl Iterator<Item = Address> {
        let mut out: SmallVec<[Address; 4]> = SmallVec::new();
        match &self.action {
            PoolAction::Work(work) => {
                out.extend(work.inputs.iter().flatten().filter_map(Operand::fixed));
            }
            PoolAction::Move { from, .. }
            | PoolAction::First { from, .. }
            | PoolAction::Result { from, .. } => out.extend(from.fixed()),
            PoolAction::Cut(slice) => {
                out.extend([slice.counter]);
                out.extend(slice.whole.fixed());
            }
            PoolAction::Append(slice) => {
                out.extend([slice.counter]);
                out.extend(slice.passes);
                out.extend(slice.part.fixed());
            }
            PoolAction::Count { .. } | PoolAction::Begin { .. } | PoolAction::Release(_) => {}
        }
        out.into_iter()
    }

    /// Places with fixed addresses that it writes.
    pub(crate) fn writes(&self) -> impl Iterator<Item = Address> {
        let mut out: SmallVec<[Address; 4]> = SmallVec::new();
        match &self.action {
            PoolAction::Work(work) => {
                out.extend(work.outputs.iter().flatten().filter_map(Operand::fixed));
            }
            PoolAction::Move { to, .. } => out.extend(to.fixed()),
            PoolAction::First { to, .. } | PoolAction::Count { to, .. } => out.push(*to),
            PoolAction::Cut(slice) => out.extend(slice.part.fixed()),
            PoolAction::Append(slice) => out.extend(slice.whole.fixed()),
            PoolAction::Begin { .. } | PoolAction::Result { .. } | PoolAction::Release(_) => {}
        }
        out.into_iter()
    }

    /// The slots that it has to do with, save those that it releases, and whether it writes them.
    pub(crate) fn slots(&self) -> impl Iterator<Item = (Slot, bool)> {
        let mut out: SmallVec<[(Slot, bool); 4]> = SmallVec::new();
        let mut add = |operand: &Operand, writes| out.extend(operand.slot().map(|s| (s, writes)));
        match &self.action {
            PoolAction::Work(work) => {
                work.inputs.iter().flatten().for_each(|o| add(o, false));
                work.outputs.iter().flatten().for_each(|o| add(o, true));
            }
            PoolAction::Move { from, to } => {
                add(from, false);
                add(to, true);
            }
            PoolAction::First { from, .. } | PoolAction::Result { from, .. } => add(from, false),
            PoolAction::Count { of, .. } => add(of, false),
            PoolAction::Begin { whole, .. } => out.push((*whole, true)),
            PoolAction::Cut(slice) => {
                add(&slice.whole, false);
                add(&slice.part, true);
            }
            PoolAction::Append(slice) => {
                add(&slice.part, false);
                add(&slice.whole, true);
            }
            PoolAction::Release(_) => {}
        }
        out.into_iter()
    }

    /// These slots are released by others.
    pub(crate) fn leave(&mut self, slots: impl Fn(Slot) -> bool) {
        if let PoolAction::Release(mine) = &mut self.action {
            mine.retain(|slot| !slots(*slot));
        }
    }

    /// Does it.
    pub(crate) fn perform(&mut self, memory: &mut Memory, pool: &Pool) -> Result<(), String> {
        let pool = &mut *match &mut self.action {
            PoolAction::Work(work) => return work.run(memory, pool),
            _ => pool.lock(memory),
        };
        match &mut self.action {
            PoolAction::Work(_) => Ok(()),
            PoolAction::Move { from, to } => {
                let here = pool.find(from)?;
                let dims = here.dims.clone();
                pool.name(memory, from, &here, to, dims)
            }
            PoolAction::First { from, to } => {
                let here = pool.find(from)?;
                if here.at.len < to.len {
                    return Err("what decides has no element".to_owned());
                }
                memory.copy(here.at, *to);
                Ok(())
            }
            PoolAction::Count { of, axis, to } => {
                let dims = pool.find(of)?.dims;
                let size = dims[axis_of(*axis, dims.len())?];
                let size = i64::try_from(size).unwrap_or(i64::MAX);
                let bytes = memory.bytes_mut(*to);
                let len = bytes.len().min(8);
                bytes[..len].copy_from_slice(&size.to_le_bytes()[..len]);
                Ok(())
            }
            PoolAction::Begin {
                whole,
                dtype,
                slice,
                axis,
            } => {
                let mut dims: Dims = slice.0.iter().map(|d| pool.size_now(d)).collect();
                let axis = axis_of(*axis, dims.len() + 1)?;
                dims.insert(axis, 0);
                pool.make(memory, *whole, *dtype, &dims).map(drop)
            }
            PoolAction::Cut(slice) => slice.cut(memory, pool),
            PoolAction::Append(slice) => slice.append(memory, pool),
            PoolAction::Result { from, index } => {
                let Here { dims, at } = pool.find(from)?;
                let bytes = memory.bytes(at).to_vec();
                if let Some(result) = pool.results.get_mut(*index) {
                    *result = Some(Outcome { dims, bytes });
                }
                Ok(())
            }
            PoolAction::Release(slots) => {
                slots.iter().for_each(|&slot| pool.release(slot));
                Ok(())
            }
        }
    }
}

impl Store {
    /// A dimension in this run; 0 where it does not follow from those of the inputs.
    fn size_now(&self, dim: &Dim) -> usize {
        let size = match dim {
            Dim::Known(n) => Some(*n),
            Dim::Formula(formula) => formula.eval(|name| self.names.get(name).copied().flatten()),
            Dim::Unknown => None,
        };
        size.and_then(|n| usize::try_from(n).ok()).unwrap_or(0)
    }

    /// A tensor gets another name, with dimensions of its own: the same block where both are in slots,
    /// else a copy.
    pub(super) fn name(
        &mut self,
        memory: &mut Memory,
        from: &Operand,
        here: &Here,
        to: &Operand,
        dims: Dims,
    ) -> Result<(), String> {
        match (from.place, to.place) {
            (Spot::Pooled(from), Spot::Pooled(to)) => self.share(from, to, dims),
            (Spot::Fixed(_), Spot::Pooled(slot)) => {
                let made = self.make(memory, slot, to.dtype, &dims)?;
                memory.copy(here.at, made.at);
                Ok(())
            }
            (_, Spot::Fixed(at)) => {
                if to.dims.as_ref().is_some_and(|planned| *planned != dims) {
                    let planned = to.dims.clone().unwrap_or_default();
                    return Err(other_shape(&dims, &planned));
                }
                let len = here.at.len;
                if len > at.len {
                    return Err("it is larger than was planned".to_owned());
                }
                memory.copy(here.at, Address { len, ..at });
                Ok(())
            }
        }
    }
}

/// The int64 at a place; 0 where that has fewer bytes.
fn number(memory: &Memory, at: Address) -> i64 {
    let bytes = memory.bytes(at).first_chunk();
    bytes.map_or(0, |b| i64::from_le_bytes(*b))
}

fn other_shape(found: &[usize], planned: &[usize]) -> String {
    format!("it has shape {found:?}, and {planned:?} was planned")
}

impl PoolSlice {
    /// The pass that runs, from 0.
    fn pass(&self, memory: &Memory) -> usize {
        usize::try_from(number(memory, self.counter)).unwrap_or(usize::MAX)
    }

    fn cut(&self, memory: &mut Memory, pool: &mut Store) -> Result<(), String> {
        let whole = pool.find(&self.whole)?;
        let axis = axis_of(self.axis, whole.dims.len())?;
        let mut dims = whole.dims.clone();
        dims.remove(axis);
        let part = match self.part.place {
            Spot::Pooled(slot) => pool.make(memory, slot, self.part.dtype, &dims)?,
            Spot::Fixed(_) => {
                let part = pool.find(&self.part)?;
                if part.dims != dims {
                    return Err(other_shape(&dims, &part.dims));
                }
                part
            }
        };
        for (from, to) in self.runs(&whole, &part, axis, memory)? {
            memory.copy(from, to);
        }
        Ok(())
    }

    fn append(&self, memory: &mut Memory, pool: &mut Store) -> Result<(), String> {
        let part = pool.find(&self.part)?;
        let axis = axis_of(self.axis, part.dims.len() + 1)?;
        let pass = self.pass(memory);
        let whole = match self.whole.place {
            Spot::Fixed(_) => pool.find(&self.whole)?,
            Spot::Pooled(slot) => {
                let passes = self.passes.map(|at| number(memory, at));
                let passes = passes.map(|n| usize::try_from(n).unwrap_or(0));
                let mut dims = part.dims.clone();
                dims.insert(axis, passes.unwrap_or(pass + 1));
                match passes {
                    Some(_) if pass > 0 => pool.find(&self.whole)?,
                    Some(_) => pool.make(memory, slot, self.whole.dtype, &dims)?,
                    None => pool.grow(memory, slot, &self.whole, dims)?,
                }
            }
        };
        let mut slice = whole.dims.clone();
        if axis < slice.len() {
            slice.remove(axis);
        }
        if slice != part.dims {
            return Err(other_shape(&part.dims, &slice));
        }
        for (to, from) in self.runs(&whole, &part, axis, memory)? {
            memory.copy(from, to);
        }
        Ok(())
    }

    /// The runs of bytes of this pass's slice, as pairs of places in the whole and in the part.
    fn runs(
        &self,
        whole: &Here,
        part: &Here,
        axis: usize,
        memory: &Memory,
    ) -> Result<impl Iterator<Item = (Address, Address)> + use<>, String> {
        let dtype = self.part.dtype;
        if dtype.bits().is_none_or(|bits| bits % 8 != 0) {
            return Err(format!("slices of type {dtype} are no whole bytes"));
        }
        let count = whole.dims[axis];
        let pass = self.pass(memory);
        if pass >= count {
            return Err(format!("pass {pass} has none of the {count} slices"));
        }
        let index = if self.backwards {
            count - 1 - pass
        } else {
            pass
        };
        let run = super::to_usize(bytes_of(dtype, &whole.dims[axis + 1..])?)?;
        let outer = part.at.len.checked_div(run).unwrap_or(0);
        let (whole, part) = (whole.at, part.at);
        let at = move |of: Address, n: usize| Address {
            start: of.start.saturating_add(n.saturating_mul(run)),
            len: run,
            ..of
        };
        Ok((0..outer).map(move |o| (at(whole, o * count + index), at(part, o))))
    }
}

impl Store {
    /// A slot that a loop fills gets room for one more slice along axis 0; the others stay. Room is
    /// doubled when it is full, so that all passes together copy no more than twice what there is.
    fn grow(
        &mut self,
        memory: &mut Memory,
        slot: Slot,
        whole: &Operand,
        dims: Dims,
    ) -> Result<Here, String> {
        let bytes = bytes_of(whole.dtype, &dims)?;
        let len = super::to_usize(bytes)?;
        let before = self.held(slot).map(|held| (held.block, held.here.clone()));
        let (block, before) = before.ok_or("what it reads was not made in this run")?;
        let range = self.allocator.range(block).map_err(|e| e.to_string())?;
        let first = before.dims.first() == Some(&0);
        if !first && before.dims.get(1..) != dims.get(1..) {
            let slice = |dims: &[usize]| dims.get(1..).map_or(Vec::new(), <[usize]>::to_vec);
            return Err(other_shape(&slice(&dims), &slice(&before.dims)));
        }
        if len > 0 && bytes <= range.end - range.start {
            let at = Address { len, ..before.at };
            if let Some(held) = self.slots[slot as usize].as_mut() {
                held.here = Here { dims, at };
                return Ok(held.here.clone());
            }
        }
        let room = bytes.saturating_mul(2);
        let (block, at) = self.take(memory, room)?;
        let at = if len == 0 {
            Address::default()
        } else {
            Address { len, ..at }
        };
        memory.copy(before.at, at);
        let here = Here { dims, at };
        self.put(slot, block, here.clone());
        Ok(here)
    }
}
