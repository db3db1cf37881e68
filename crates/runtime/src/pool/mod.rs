//! Values whose sizes are known only while the program runs: their memory comes from the
//! [allocator](crate::allocator), each time anew.
//!
//! Such a value has a *slot*. Who makes it finds its dimensions from what it reads (`sizing`), takes
//! memory for it, and puts it there; after its last reader the memory goes back. A value that is
//! another name of one is the same block, held once more: nothing is written in a block that
//! somebody else may read. All else of the program is as the plan says: a node with planned outputs
//! writes them where they are planned, whatever it reads.
//!
//! Where streams have threads, all of them share the slots and the allocator, behind one lock that is
//! not held while a kernel runs. A thread's work is over when it gives a block back, and whoever takes
//! the lock next comes after that: so for the allocator all threads are one stream. A slot that several
//! threads read goes back when the last of them is through with it, whichever that is.
//!
//! - `heap`: the memory of this process below the allocator;
//! - `action`: what the instructions on slots do;
//! - `work`: a node that reads or writes slots;
//! - `sizing`: the dimensions of its outputs.

mod action;
mod heap;
mod sizing;
mod work;

use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::SmallVec;
use tenure_graph::{DType, Dim, Shape, Value};

pub(crate) use action::{PoolAction, PoolSlice, Pooled};
use heap::Heap;
pub(crate) use work::PoolWork;

use crate::allocator::{Allocator, Block, Rules};
use crate::kernels::Dims;
use crate::memory::{Address, Memory};
use crate::sync::{Mutex, MutexGuard, PoisonError};

/// Least bytes that are taken from the system at once: small values share such a piece.
const SEGMENT: u64 = 64 << 10;

/// Number of a value whose size is known only during the run.
pub(crate) type Slot = u32;

/// The stream of the allocator that all work is on.
const STREAM: u32 = 0;

/// A value that instructions on slots read or write.
#[derive(Clone, Debug)]
pub(crate) struct Operand {
    pub(crate) place: Spot,
    pub(crate) dtype: DType,
    /// Its dimensions, where the graph knows them.
    pub(crate) dims: Option<Dims>,
}

/// Where a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spot {
    /// In planned memory, or outside of it at a place of its own.
    Fixed(Address),
    /// In memory of the allocator.
    Pooled(Slot),
}

impl Operand {
    /// Its slot, if it has one.
    pub(crate) fn slot(&self) -> Option<Slot> {
        match self.place {
            Spot::Fixed(_) => None,
            Spot::Pooled(slot) => Some(slot),
        }
    }

    /// Its place, if that is fixed.
    pub(crate) fn fixed(&self) -> Option<Address> {
        match self.place {
            Spot::Fixed(at) => Some(at),
            Spot::Pooled(_) => None,
        }
    }
}

/// A tensor as it is now.
#[derive(Clone, Debug)]
pub(crate) struct Here {
    pub(crate) dims: Dims,
    pub(crate) at: Address,
}

/// What is in a slot.
#[derive(Debug)]
struct Held {
    block: Block,
    here: Here,
}

/// A result whose size was known only at the end of the run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) dims: Dims,
    pub(crate) bytes: Vec<u8>,
}

/// What the allocator of a program has done, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolUsage {
    /// Held by values now: 0 after a run.
    pub held: u64,
    /// Taken from the system now.
    pub reserved: u64,
    /// The most that values held at a time, in all runs.
    pub most_held: u64,
    /// The most that was taken at a time, in all runs.
    pub most_reserved: u64,
}

/// The slots of a program and the allocator behind them, for all threads that run it.
#[derive(Clone, Debug)]
pub(crate) struct Pool(Arc<Mutex<Store>>);

impl Pool {
    /// A pool with so many slots, all of them empty, and so many results.
    pub(crate) fn new(slots: usize, results: usize) -> Self {
        Pool(Arc::new(Mutex::new(Store::new(slots, results))))
    }

    /// What is in it.
    pub(crate) fn look(&self) -> MutexGuard<'_, Store> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same, to work with: this thread's memory has all that the allocator has taken.
    pub(crate) fn lock(&self, memory: &mut Memory) -> MutexGuard<'_, Store> {
        let mut store = self.look();
        store.allocator.device_mut().hand_over(memory);
        store
    }
}

/// The slots of a program, and the allocator behind them.
#[derive(Debug)]
pub(crate) struct Store {
    allocator: Allocator<Heap>,
    slots: Vec<Option<Held>>,
    /// Slots that several threads have to do with, and how many units of code.
    shared: BTreeMap<Slot, usize>,
    /// How many of these units are not over yet in this run.
    left: BTreeMap<Slot, usize>,
    results: Vec<Option<Outcome>>,
    most_held: u64,
    /// Values of named dimensions in this run; `None` where inputs use one name for several.
    names: BTreeMap<String, Option<u64>>,
}

impl Store {
    fn new(slots: usize, results: usize) -> Self {
        let rules = Rules {
            segment_bytes: SEGMENT,
            ..Rules::default()
        };
        Store {
            allocator: Allocator::new(rules, Heap::default(), 1),
            slots: std::iter::repeat_with(|| None).take(slots).collect(),
            shared: BTreeMap::new(),
            left: BTreeMap::new(),
            results: vec![None; results],
            most_held: 0,
            names: BTreeMap::new(),
        }
    }

    /// These slots go back when so many units of code have let them go.
    pub(crate) fn set_shared(&mut self, shared: BTreeMap<Slot, usize>) {
        self.shared = shared;
    }

    /// A unit of code that has to do with a shared slot is over.
    pub(crate) fn let_go(&mut self, slot: Slot) {
        if let Some(left) = self.left.get_mut(&slot) {
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.release(slot);
            }
        }
    }

    /// Result `i`, if its size was known only at the end of the run.
    pub(crate) fn result(&self, i: usize) -> Option<&Outcome> {
        self.results.get(i)?.as_ref()
    }

    pub(crate) fn usage(&self) -> PoolUsage {
        PoolUsage {
            held: self.allocator.held(),
            reserved: self.allocator.reserved(),
            most_held: self.most_held,
            most_reserved: self.allocator.most_reserved(),
        }
    }

    /// The blocks of the program's memory that are the allocator's.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = u32> {
        self.allocator.device().blocks()
    }

    /// Empties all slots.
    pub(crate) fn clear(&mut self) {
        for slot in 0..self.slots.len() {
            self.empty(slot);
        }
        self.left.clone_from(&self.shared);
        self.results.fill(None);
        self.names.clear();
    }

    fn empty(&mut self, slot: usize) {
        if let Some(held) = self.slots.get_mut(slot).and_then(Option::take) {
            self.give_back(held.block);
        }
    }

    fn give_back(&mut self, block: Block) {
        let freed = self.allocator.release(block, STREAM);
        debug_assert!(freed.is_ok(), "a slot holds its block: {freed:?}");
    }

    /// Empties a slot.
    pub(crate) fn release(&mut self, slot: Slot) {
        if let Ok(slot) = usize::try_from(slot) {
            self.empty(slot);
        }
    }

    /// Takes memory of so many bytes.
    fn take(&mut self, memory: &mut Memory, bytes: u64) -> Result<(Block, Address), String> {
        let taken = self.allocator.alloc(bytes, STREAM);
        // Also a request that is refused may have given idle memory back.
        self.allocator.device_mut().hand_over(memory);
        let block = taken.map_err(|e| e.to_string())?;
        self.most_held = self.most_held.max(self.allocator.held());
        let range = self.allocator.range(block).map_err(|e| e.to_string())?;
        if bytes == 0 {
            return Ok((block, Address::default()));
        }
        match self.allocator.device().address(range.start, bytes) {
            Some(at) => Ok((block, at)),
            None => {
                self.give_back(block);
                Err("there are more pieces of memory than can be numbered".to_owned())
            }
        }
    }

    /// Takes memory for a tensor, and puts it into a slot in place of what was there.
    fn make(
        &mut self,
        memory: &mut Memory,
        slot: Slot,
        dtype: DType,
        dims: &[usize],
    ) -> Result<Here, String> {
        let (block, at) = self.take(memory, bytes_of(dtype, dims)?)?;
        let here = Here {
            dims: Dims::from_slice(dims),
            at,
        };
        self.put(slot, block, here.clone());
        Ok(here)
    }

    fn put(&mut self, slot: Slot, block: Block, here: Here) {
        self.release(slot);
        let place = usize::try_from(slot).ok();
        match place.and_then(|slot| self.slots.get_mut(slot)) {
            Some(place) => *place = Some(Held { block, here }),
            None => self.give_back(block),
        }
    }

    fn held(&self, slot: Slot) -> Option<&Held> {
        self.slots.get(usize::try_from(slot).ok()?)?.as_ref()
    }

    /// A tensor as it is now.
    pub(crate) fn find(&self, operand: &Operand) -> Result<Here, String> {
        match operand.place {
            Spot::Pooled(slot) => {
                let held = self.held(slot).map(|held| held.here.clone());
                held.ok_or_else(|| "what it reads was not made in this run".to_owned())
            }
            Spot::Fixed(at) => {
                let dims = operand.dims.clone();
                let dims = dims.ok_or("the shape of what it reads is not known")?;
                let len = to_usize(bytes_of(operand.dtype, &dims)?)?;
                if len > at.len {
                    return Err("what it reads has less memory than its shape needs".to_owned());
                }
                let at = Address { len, ..at };
                Ok(Here { dims, at })
            }
        }
    }

    /// A slot gets what another one has.
    fn share(&mut self, from: Slot, to: Slot, dims: Dims) -> Result<(), String> {
        let held = self.held(from);
        let held = held.ok_or("what it reads was not made in this run")?;
        let (block, at) = (held.block, held.here.at);
        let shared = self.allocator.share(block, STREAM);
        shared.map_err(|e| e.to_string())?;
        self.put(to, block, Here { dims, at });
        Ok(())
    }

    /// An input of a shape has these dimensions in this run.
    pub(crate) fn learn(&mut self, shape: &Shape, dims: &[u64]) {
        for (dim, &n) in shape.0.iter().zip(dims) {
            let Dim::Formula(formula) = dim else { continue };
            if let Some(name) = formula.as_name() {
                let known = self.names.entry(name.to_owned()).or_insert(Some(n));
                *known = known.filter(|&k| k == n);
            }
        }
    }

    /// Bytes of the caller for a slot.
    pub(crate) fn feed(
        &mut self,
        memory: &mut Memory,
        slot: Slot,
        dtype: DType,
        dims: &[u64],
        bytes: &[u8],
    ) -> Result<(), String> {
        let dims: Result<SmallVec<[usize; 6]>, _> =
            dims.iter().map(|&d| usize::try_from(d)).collect();
        let dims = dims.map_err(|_| "it is too large for this machine")?;
        let here = self.make(memory, slot, dtype, &dims)?;
        memory.bytes_mut(here.at).copy_from_slice(bytes);
        Ok(())
    }
}

/// The dimensions of a value, if all are known and a machine can count them.
pub(crate) fn known_dims(value: &Value) -> Option<Dims> {
    let known = value.shape.as_ref()?.known()?;
    known.iter().map(|&d| usize::try_from(d).ok()).collect()
}

/// Bytes of a tensor.
fn bytes_of(dtype: DType, dims: &[usize]) -> Result<u64, String> {
    let elements = if dims.contains(&0) {
        Some(0)
    } else {
        let mut sizes = dims.iter().map(|&d| u64::try_from(d).ok());
        sizes.try_fold(1u64, |n, d| n.checked_mul(d?))
    };
    let bytes = elements.and_then(|n| dtype.bytes(n));
    bytes.ok_or_else(|| format!("a tensor of type {dtype} and shape {dims:?} has no size"))
}

fn to_usize(bytes: u64) -> Result<usize, String> {
    usize::try_from(bytes).map_err(|_| "it is too large for this machine".to_owned())
}
