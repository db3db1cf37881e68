//! The memory of a program: blocks of bytes, addresses in them, and what a kernel sees of them.
//!
//! This is the one place of the runtime with `unsafe` code. What a kernel reads and writes at the
//! same time is many slices of one block; [`Slots`] proves once, when a program is made, that the
//! slices that are written meet no other, and [`Call`] hands them out.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

use bytemuck::Pod;
use bytes::Bytes;
use fixedbitset::FixedBitSet;

use crate::RuntimeError;
use crate::kernels::Kernel;

/// A run of bytes in one block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    /// Which block.
    pub block: u32,
    /// First byte.
    pub start: usize,
    /// Number of bytes.
    pub len: usize,
}

impl Address {
    /// The byte after the last.
    #[must_use]
    pub fn end(&self) -> usize {
        self.start.saturating_add(self.len)
    }

    /// Whether it begins where another one begins, so that one is the other's memory.
    #[must_use]
    pub fn begins_with(&self, other: &Address) -> bool {
        self.block == other.block && self.start == other.start
    }

    /// Whether the two have a byte in common.
    #[must_use]
    pub fn meets(&self, other: &Address) -> bool {
        self.block == other.block && self.start < other.end() && other.start < self.end()
    }
}

/// Alignment of every block, whatever is asked for: that of the widest vectors.
const BLOCK_ALIGN: usize = 64;

/// Alignment that elements of any type need.
const ELEMENT_ALIGN: usize = 16;

/// Bytes of the system's allocator, zero at first, or bytes that lie somewhere already.
#[derive(Debug)]
pub(crate) struct Block {
    at: NonNull<u8>,
    layout: Layout,
    /// What keeps the bytes, if they were there already: they are never written to.
    held: Option<Bytes>,
}

// Safety: a block is bytes that it owns, or keeps and only reads; who reads and writes them when is seen to by those that
// borrow a `Memory`, and by who makes a second handle of one (`Memory::alias`).
#[expect(unsafe_code, reason = "a pointer says nothing of threads")]
unsafe impl Send for Block {}
// Safety: as above.
#[expect(unsafe_code, reason = "a pointer says nothing of threads")]
unsafe impl Sync for Block {}

impl Block {
    /// No bytes.
    pub(crate) fn empty() -> Self {
        Block {
            at: NonNull::dangling(),
            layout: Layout::new::<()>(),
            held: None,
        }
    }

    /// `None` when the system has not so much memory.
    pub(crate) fn new(len: u64, align: u64) -> Option<Self> {
        let len = usize::try_from(len).ok()?;
        let align = usize::try_from(align).ok()?.max(BLOCK_ALIGN);
        let layout = Layout::from_size_align(len, align).ok()?;
        let at = if len == 0 {
            NonNull::dangling()
        } else {
            // Safety: the layout has a size that is not 0.
            #[expect(
                unsafe_code,
                reason = "memory of a chosen alignment, zeroed by the system"
            )]
            let at = unsafe { alloc_zeroed(layout) };
            NonNull::new(at)?
        };
        let held = None;
        Some(Block { at, layout, held })
    }

    /// A block that is these very bytes; `None` where they are not aligned for all elements.
    fn of(bytes: Bytes) -> Option<Self> {
        let at = NonNull::new(bytes.as_ptr().cast_mut())?;
        let aligned = at.addr().get().is_multiple_of(ELEMENT_ALIGN);
        let layout = Layout::from_size_align(bytes.len(), 1).ok()?;
        let held = Some(bytes);
        aligned.then_some(Block { at, layout, held })
    }

    fn len(&self) -> usize {
        self.layout.size()
    }

    /// The bytes of an address that lies in the block.
    ///
    /// # Safety
    /// For as long as the slice lives, nobody writes to these bytes.
    #[expect(unsafe_code, reason = "many parts of a block are in use at a time")]
    unsafe fn read<'a>(&self, at: Address) -> &'a [u8] {
        if at.end() > self.len() || at.len == 0 {
            return &[];
        }
        // Safety: the range lies in the block, whose bytes are initialised; the caller sees to the
        // rest.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr().add(at.start), at.len) }
    }

    /// The same, to write to; none of bytes that are held.
    ///
    /// # Safety
    /// For as long as the slice lives, nobody else reads or writes these bytes.
    #[expect(unsafe_code, reason = "many parts of a block are in use at a time")]
    unsafe fn write<'a>(&self, at: Address) -> &'a mut [u8] {
        if at.end() > self.len() || at.len == 0 || self.held.is_some() {
            return &mut [];
        }
        // Safety: as above.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr().add(at.start), at.len) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.layout.size() > 0 && self.held.is_none() {
            // Safety: it was allocated with this layout, and is freed once.
            #[expect(unsafe_code, reason = "the counterpart of alloc_zeroed")]
            unsafe {
                dealloc(self.at.as_ptr(), self.layout);
            }
        }
    }
}

/// All blocks of a program.
#[derive(Debug, Default)]
pub struct Memory {
    blocks: Vec<Arc<Block>>,
    /// What the blocks are at that come and go ([`Memory::keep_up`]).
    version: u64,
    /// Blocks that are written no more, and may be those of several programs.
    frozen: FixedBitSet,
}

/// A block that nobody writes to, for another program to read.
#[derive(Clone, Debug)]
pub(crate) struct Frozen(Arc<Block>);

impl Memory {
    /// Adds a block of zeros whose first byte lies at a multiple of `align` bytes, and gives its
    /// number.
    ///
    /// # Errors
    /// [`RuntimeError::OutOfMemory`].
    pub fn add(&mut self, len: u64, align: u64) -> Result<u32, RuntimeError> {
        let refused = || RuntimeError::OutOfMemory { bytes: len };
        let number = u32::try_from(self.blocks.len()).map_err(|_| refused())?;
        let block = Block::new(len, align.max(1)).ok_or_else(refused)?;
        self.blocks.push(Arc::new(block));
        Ok(number)
    }

    /// How many blocks there are.
    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.blocks.len()).unwrap_or(u32::MAX)
    }

    /// Has these blocks from number `first` on, which come and go while the program runs and which
    /// other handles have as well. `version` is another one whenever they are others.
    pub(crate) fn keep_up(&mut self, first: u32, blocks: &[Arc<Block>], version: u64) {
        if self.version == version {
            return;
        }
        self.version = version;
        let first = usize::try_from(first).unwrap_or(usize::MAX);
        let have = self.blocks.len().saturating_sub(first).min(blocks.len());
        let (old, new) = blocks.split_at(have);
        for (mine, block) in self.blocks[first..].iter_mut().zip(old) {
            if !Arc::ptr_eq(mine, block) {
                *mine = Arc::clone(block);
            }
        }
        self.blocks.extend(new.iter().cloned());
    }

    /// A second handle of the same blocks, for another thread.
    ///
    /// # Safety
    /// For as long as both are there, no byte is touched through one while it is written through the
    /// other.
    #[expect(
        unsafe_code,
        reason = "what `&mut` says of one handle must hold for both"
    )]
    pub(crate) unsafe fn alias(&self) -> Memory {
        Memory {
            blocks: self.blocks.clone(),
            version: self.version,
            frozen: self.frozen.clone(),
        }
    }

    /// From now on nobody writes to a block: what tries to finds no bytes.
    pub(crate) fn freeze(&mut self, number: u32) {
        if let Ok(number) = usize::try_from(number) {
            self.frozen.grow_and_insert(number);
        }
    }

    fn is_frozen(&self, number: u32) -> bool {
        usize::try_from(number).is_ok_and(|number| self.frozen.contains(number))
    }

    /// A block for another program, if it is frozen.
    pub(crate) fn share(&self, number: u32) -> Option<Frozen> {
        let block = self.blocks.get(usize::try_from(number).ok()?)?;
        self.is_frozen(number).then(|| Frozen(Arc::clone(block)))
    }

    /// Takes bytes in as a block that nobody writes to, and gives its number; `None` where they are
    /// not aligned for all elements.
    pub(crate) fn add_held(&mut self, bytes: Bytes) -> Option<u32> {
        self.add_frozen(Frozen(Arc::new(Block::of(bytes)?)))
    }

    /// Takes another program's block in, and gives its number here.
    pub(crate) fn add_frozen(&mut self, block: Frozen) -> Option<u32> {
        let number = u32::try_from(self.blocks.len()).ok()?;
        self.blocks.push(block.0);
        self.freeze(number);
        Some(number)
    }

    fn find(&self, number: u32) -> Option<&Block> {
        self.blocks.get(usize::try_from(number).ok()?).map(|b| &**b)
    }

    /// A block that may be written to.
    fn find_own(&self, number: u32) -> Option<&Block> {
        self.find(number).filter(|_| !self.is_frozen(number))
    }

    fn whole(&self, number: u32) -> Address {
        Address {
            block: number,
            start: 0,
            len: self.find(number).map_or(0, Block::len),
        }
    }

    /// All bytes of a block; none if there is no such block.
    #[must_use]
    pub fn block(&self, number: u32) -> &[u8] {
        self.bytes(self.whole(number))
    }

    /// All bytes of a block, to write to.
    pub fn block_mut(&mut self, number: u32) -> &mut [u8] {
        self.bytes_mut(self.whole(number))
    }

    /// The bytes at an address; none if they leave the block.
    #[must_use]
    #[expect(unsafe_code, reason = "a shared view of a block")]
    pub fn bytes(&self, at: Address) -> &[u8] {
        // Safety: the memory is borrowed for as long, and is written through `&mut` alone.
        self.find(at.block)
            .map_or(&[], |block| unsafe { block.read(at) })
    }

    /// The bytes at an address, to write to; none if they leave the block.
    #[expect(unsafe_code, reason = "the one view of a block")]
    pub fn bytes_mut(&mut self, at: Address) -> &mut [u8] {
        // Safety: the memory is borrowed by this view alone, and no other memory has a block that is not
        // frozen.
        self.find_own(at.block)
            .map_or(&mut [], |block| unsafe { block.write(at) })
    }

    /// Copies as many bytes as both have, from the first on. The two may meet.
    pub fn copy(&mut self, from: Address, to: Address) {
        let len = from.len.min(to.len);
        let (from, to) = (Address { len, ..from }, Address { len, ..to });
        if from.block == to.block {
            let block = self.block_mut(from.block);
            if from.end() <= block.len() && to.end() <= block.len() {
                block.copy_within(from.start..from.end(), to.start);
            }
            return;
        }
        let Some(target) = self.find_own(to.block) else {
            return;
        };
        // Safety: the bytes are in another block than those of `from`, and the memory is borrowed
        // by this function alone.
        #[expect(unsafe_code, reason = "two blocks at a time")]
        let target = unsafe { target.write(to) };
        let source = self.bytes(from);
        if source.len() == target.len() {
            target.copy_from_slice(source);
        }
    }

    /// The numbers of all blocks.
    pub fn numbers(&self) -> impl Iterator<Item = u32> + use<> {
        0..self.count()
    }

    /// Runs a kernel on its places.
    ///
    /// # Errors
    /// What the kernel finds wrong with the values that it reads.
    pub fn run(&mut self, kernel: &mut dyn Kernel, slots: &Slots) -> Result<(), String> {
        for &(from, to) in &slots.before {
            self.copy(from, to);
        }
        kernel.run(&mut Call {
            memory: self,
            slots,
            lives: PhantomData,
        })?;
        for &(from, to) in &slots.after {
            self.copy(from, to);
        }
        Ok(())
    }
}

/// Where an input or output is, and the alignment in bytes that its elements need.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place {
    /// Its bytes.
    pub at: Address,
    /// A power of two.
    pub align: usize,
}

/// The places of one kernel's inputs, outputs and temporary memory.
///
/// No output and no temporary memory meets another, or an input, save for inputs that are the very
/// bytes of an output by leave of the kernel. What the plan lays out otherwise, or where elements
/// are not aligned, is copied to memory beside the plan for the run of the kernel.
#[derive(Debug)]
pub struct Slots {
    inputs: Vec<(Address, Option<usize>)>,
    /// Outputs, then temporary memory.
    written: Vec<Address>,
    outputs: usize,
    before: Vec<(Address, Address)>,
    after: Vec<(Address, Address)>,
}

impl Slots {
    /// Looks at the places of a kernel.
    ///
    /// # Errors
    /// [`RuntimeError::OutOfMemory`].
    pub fn new(
        memory: &mut Memory,
        kernel: &dyn Kernel,
        inputs: &[Place],
        outputs: &[Place],
        scratch: &[Address],
    ) -> Result<Self, RuntimeError> {
        let mut slots = Slots {
            inputs: Vec::with_capacity(inputs.len()),
            written: Vec::with_capacity(outputs.len() + scratch.len()),
            outputs: outputs.len(),
            before: Vec::new(),
            after: Vec::new(),
        };
        let mut taken: Vec<Address> = Vec::new();
        let temporary = scratch.iter().map(|&at| Place { at, align: 1 });
        for place in outputs.iter().copied().chain(temporary) {
            let meets = meets_any(&taken, &place.at);
            if meets || !place.is_aligned() {
                let beside = beside(memory, place.at)?;
                // Some kernels add to what they find.
                slots.before.push((place.at, beside));
                slots.after.push((beside, place.at));
                slots.written.push(beside);
            } else {
                insert(&mut taken, place.at);
                slots.written.push(place.at);
            }
        }
        for (i, place) in inputs.iter().enumerate() {
            let at = place.at;
            if !meets_any(&taken, &at) && place.is_aligned() {
                slots.inputs.push((at, None));
                continue;
            }
            let same = (0..slots.outputs)
                .find(|&j| slots.written[j] == at && at.len > 0 && kernel.may_be_over(i, j));
            if let Some(j) = same.filter(|_| place.is_aligned()) {
                slots.inputs.push((at, Some(j)));
                continue;
            }
            let beside = beside(memory, at)?;
            slots.before.push((at, beside));
            slots.inputs.push((beside, None));
        }
        Ok(slots)
    }

    /// All that the kernel's run reads, copies before and after it included.
    pub(crate) fn reads(&self) -> impl Iterator<Item = Address> {
        let inputs = self.inputs.iter().map(|&(at, _)| at);
        inputs.chain(self.before.iter().map(|&(from, _)| from))
    }

    /// Memory beside the plan that the kernel's run needs.
    pub fn beside(&self) -> impl Iterator<Item = Address> {
        let written = || self.after.iter().map(|&(from, _)| from);
        let read = self.before.iter().map(|&(_, to)| to);
        let read = read.filter(move |&to| written().all(|from| from != to));
        read.chain(written())
    }
}

/// Whether a place meets one of those that are taken, which are sorted and meet none of each other.
fn meets_any(taken: &[Address], at: &Address) -> bool {
    let next = taken.partition_point(|t| (t.block, t.start) < (at.block, at.start));
    let near = &taken[next.saturating_sub(1)..taken.len().min(next + 1)];
    near.iter().any(|t| t.meets(at))
}

fn insert(taken: &mut Vec<Address>, at: Address) {
    if at.len > 0 {
        let next = taken.partition_point(|t| (t.block, t.start) < (at.block, at.start));
        taken.insert(next, at);
    }
}

fn beside(memory: &mut Memory, at: Address) -> Result<Address, RuntimeError> {
    let bytes = u64::try_from(at.len).unwrap_or(u64::MAX);
    let block = memory.add(bytes, 1)?;
    Ok(Address {
        block,
        start: 0,
        len: at.len,
    })
}

impl Place {
    /// Blocks are aligned for all elements, so the offset decides.
    fn is_aligned(&self) -> bool {
        self.at.len == 0 || self.at.start.is_multiple_of(self.align.max(1))
    }
}

/// One run of a kernel: what it reads and writes.
#[derive(Debug)]
pub struct Call<'a> {
    memory: &'a Memory,
    slots: &'a Slots,
    /// The memory is borrowed by this call alone.
    lives: PhantomData<&'a mut Memory>,
}

impl<'a> Call<'a> {
    /// The elements of input `i`; none where it is left out, or is the bytes of an output
    /// ([`over`](Call::over)).
    #[must_use]
    #[expect(unsafe_code, reason = "inputs are read while outputs are written")]
    pub fn read<T: Pod>(&self, i: usize) -> &'a [T] {
        match self.slots.inputs.get(i) {
            Some(&(at, None)) => {
                let block = self.memory.find(at.block);
                // Safety: no output and no temporary memory meets this input (`Slots::new`), and
                // nothing else is written in a call.
                elements(block.map_or(&[], |block| unsafe { block.read(at) }))
            }
            _ => &[],
        }
    }

    /// The output whose very bytes input `i` is. Its elements are then those of the output before
    /// anything is written.
    #[must_use]
    pub fn over(&self, i: usize) -> Option<usize> {
        self.slots.inputs.get(i).and_then(|input| input.1)
    }

    /// Number of input slots.
    #[must_use]
    pub fn inputs(&self) -> usize {
        self.slots.inputs.len()
    }

    /// Whether input `i` is there and has bytes.
    #[must_use]
    pub fn has(&self, i: usize) -> bool {
        self.slots.inputs.get(i).is_some_and(|(at, _)| at.len > 0)
    }

    /// The elements of output `i`; none where it is left out.
    pub fn write<T: Pod>(&mut self, i: usize) -> &mut [T] {
        if i >= self.slots.outputs {
            return &mut [];
        }
        elements_mut(self.written(i))
    }

    /// The elements of several outputs.
    pub fn write_each<T: Pod, const N: usize>(&mut self, outputs: [usize; N]) -> [&mut [T]; N] {
        let mut seen = 0;
        outputs.map(|i| {
            // An output that is named twice is handed out once.
            let again = outputs[..seen].contains(&i) || i >= self.slots.outputs;
            seen += 1;
            if again {
                &mut []
            } else {
                elements_mut(self.written(i))
            }
        })
    }

    /// The elements of an output of one type and one of another.
    pub fn write_two<T: Pod, U: Pod>(&mut self, i: usize, j: usize) -> (&mut [T], &mut [U]) {
        let second = if i == j || j >= self.slots.outputs {
            &mut []
        } else {
            self.written(j)
        };
        let first = if i < self.slots.outputs {
            self.written(i)
        } else {
            &mut []
        };
        (elements_mut(first), elements_mut(second))
    }

    /// The bytes of all outputs.
    pub fn write_all(&mut self) -> impl Iterator<Item = &mut [u8]> {
        (0..self.slots.outputs).map(|i| self.written(i))
    }

    /// The bytes of temporary memory `k`, beside those of output `i`.
    pub fn write_with_scratch<T: Pod>(&mut self, i: usize, k: usize) -> (&mut [T], &mut [u8]) {
        let output = if i < self.slots.outputs {
            self.written(i)
        } else {
            &mut []
        };
        let scratch = self.slots.outputs.saturating_add(k);
        (elements_mut(output), self.written(scratch))
    }

    /// Output `i` holds what input `k` holds, which is copied unless the two are the same bytes.
    pub fn settle(&mut self, k: usize, i: usize) {
        if self.over(k) != Some(i) {
            let from: &[u8] = self.read(k);
            let to: &mut [u8] = self.write(i);
            if from.len() == to.len() {
                to.copy_from_slice(from);
            }
        }
    }

    /// The same part by part, `len` elements each: `f` works on a part of output `i` as soon as it
    /// holds what input `k` has there, while it is in the cache.
    pub fn settle_parts<T: Pod>(
        &mut self,
        k: usize,
        i: usize,
        len: usize,
        mut f: impl FnMut(&mut [T]),
    ) {
        let len = len.max(1);
        let from = (self.over(k) != Some(i)).then(|| self.read::<T>(k));
        let parts = self.write::<T>(i).chunks_mut(len);
        for (number, part) in parts.enumerate() {
            let from = from.and_then(|from| from.get(number * len..)?.get(..part.len()));
            if let Some(from) = from {
                part.copy_from_slice(from);
            }
            f(part);
        }
    }

    /// The bytes of an output or of temporary memory. Private: each is handed out once at a time.
    #[expect(unsafe_code, reason = "several outputs are written at a time")]
    fn written<'b>(&self, i: usize) -> &'b mut [u8]
    where
        'a: 'b,
    {
        let Some(&at) = self.slots.written.get(i) else {
            return &mut [];
        };
        // Safety: what is written meets nothing else that is written, and no input that `read`
        // hands out (`Slots::new`). Callers hand each out once, for as long as they borrow `self`
        // mutably; and the memory is borrowed by this call alone (`lives`).
        self.memory
            .find_own(at.block)
            .map_or(&mut [], |block| unsafe { block.write(at) })
    }
}

/// The whole elements in some bytes; none where they are not aligned, which `Slots` sees to.
fn elements<T: Pod>(bytes: &[u8]) -> &[T] {
    let whole = bytes.len() - bytes.len() % size_of::<T>().max(1);
    bytemuck::try_cast_slice(&bytes[..whole]).unwrap_or(&[])
}

fn elements_mut<T: Pod>(bytes: &mut [u8]) -> &mut [T] {
    let whole = bytes.len() - bytes.len() % size_of::<T>().max(1);
    bytemuck::try_cast_slice_mut(&mut bytes[..whole]).unwrap_or(&mut [])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(block: u32, start: usize, len: usize) -> Address {
        Address { block, start, len }
    }

    #[test]
    fn blocks_are_aligned_and_bounded() {
        let mut memory = Memory::default();
        for align in [1, 64, 4096] {
            let block = memory.add(10, align).unwrap();
            let bytes = memory.block(block);
            assert_eq!(bytes.len(), 10);
            let address = u64::try_from(bytes.as_ptr().addr()).unwrap();
            assert!(address.is_multiple_of(align));
        }
        assert_eq!(memory.bytes(at(0, 4, 6)).len(), 6);
        for outside in [at(0, 4, 7), at(3, 0, 1), at(0, usize::MAX, 2)] {
            assert!(memory.bytes(outside).is_empty());
            memory.copy(outside, at(1, 0, 2));
            memory.copy(at(1, 0, 2), outside);
        }
    }

    #[test]
    fn frozen_blocks_are_shared_and_written_no_more() {
        let mut memory = Memory::default();
        let (a, b) = (memory.add(4, 1).unwrap(), memory.add(4, 1).unwrap());
        memory.block_mut(a).fill(7);
        assert!(memory.share(a).is_none());
        memory.freeze(a);
        assert!(memory.block_mut(a).is_empty());
        memory.copy(at(b, 0, 4), at(a, 0, 4));
        let mut other = Memory::default();
        let c = other.add_frozen(memory.share(a).unwrap()).unwrap();
        assert!(other.block_mut(c).is_empty());
        drop(memory);
        assert_eq!(other.block(c), [7; 4]);
    }

    #[test]
    fn bytes_that_are_there_are_taken_in_where_they_lie() {
        let whole = Bytes::from(vec![5; 64]);
        let aligned = whole.as_ptr().align_offset(ELEMENT_ALIGN);
        let mut memory = Memory::default();
        assert!(memory.add_held(whole.slice(aligned + 1..)).is_none());
        let bytes = whole.slice(aligned..aligned + 32);
        let (first, block) = (bytes.as_ptr(), memory.add_held(bytes).unwrap());
        drop(whole);
        assert_eq!(
            (memory.block(block).as_ptr(), memory.block(block)),
            (first, &[5; 32][..])
        );
        assert!(memory.block_mut(block).is_empty());
    }

    #[test]
    fn blocks_that_come_and_go_are_the_same_for_all_that_keep_up() {
        let mut one = Memory::default();
        let own = one.add(3, 1).unwrap();
        // Safety: what is written below is written through one handle, and then read through both.
        #[expect(unsafe_code, reason = "two handles of one memory")]
        let mut two = unsafe { one.alias() };
        let block = |len| Arc::new(Block::new(len, 64).unwrap());
        let first = one.count();
        let mut come = vec![block(8), block(5)];
        one.keep_up(first, &come, 1);
        one.block_mut(first).fill(7);
        // One of them goes, and others come, before the second handle looks.
        come[1] = Arc::new(Block::empty());
        come.push(block(4));
        for memory in [&mut one, &mut two] {
            memory.keep_up(first, &come, 2);
            let lens: Vec<usize> = (memory.numbers()).map(|n| memory.block(n).len()).collect();
            assert_eq!(lens, [3, 8, 0, 4]);
            assert_eq!(memory.block(first), [7; 8]);
            assert_eq!(memory.block(own), [0; 3]);
            // The same version is nothing new.
            memory.keep_up(first, &[], 2);
            assert_eq!(memory.count(), 4);
        }
    }

    #[test]
    fn what_no_machine_has_is_refused() {
        let mut memory = Memory::default();
        assert!(memory.add(u64::MAX, 1).is_err());
        assert!(memory.add(8, 1 << 63).is_err());
    }

    #[test]
    fn copies_may_meet() {
        let mut memory = Memory::default();
        let (a, b) = (memory.add(6, 1).unwrap(), memory.add(6, 1).unwrap());
        memory.block_mut(a).copy_from_slice(&[1, 2, 3, 4, 5, 6]);
        memory.copy(at(a, 0, 4), at(a, 2, 4));
        assert_eq!(memory.block(a), [1, 2, 1, 2, 3, 4]);
        memory.copy(at(a, 1, 9), at(b, 0, 3));
        assert_eq!(memory.block(b), [2, 1, 2, 0, 0, 0]);
    }

    /// Writes the sum of its two inputs, which may both be the output.
    struct Sum {
        leave: bool,
    }

    impl Kernel for Sum {
        fn run(&mut self, call: &mut Call<'_>) -> Result<(), String> {
            let inputs = [0, 1].map(|i| (call.over(i), call.read::<u16>(i)));
            let output = call.write::<u16>(0);
            for k in 0..output.len() {
                let of = |(over, input): (Option<usize>, &[u16])| match over {
                    Some(_) => output[k],
                    None => input[k],
                };
                output[k] = of(inputs[0]) + of(inputs[1]);
            }
            Ok(())
        }

        fn may_be_over(&self, _: usize, _: usize) -> bool {
            self.leave
        }
    }

    /// Doubles its input, three elements at a time.
    struct Doubles;

    impl Kernel for Doubles {
        fn run(&mut self, call: &mut Call<'_>) -> Result<(), String> {
            call.settle_parts(0, 0, 3, |part: &mut [u16]| {
                part.iter_mut().for_each(|x| *x *= 2)
            });
            Ok(())
        }

        fn may_be_over(&self, _: usize, _: usize) -> bool {
            true
        }
    }

    #[test]
    fn parts_are_settled_one_by_one() {
        for start in [0, 16] {
            let mut memory = Memory::default();
            let block = memory.add(64, 16).unwrap();
            let place = |start| Place {
                at: at(block, start, 14),
                align: 2,
            };
            let numbers: [u8; 14] = std::array::from_fn(|k| if k % 2 == 0 { 1 } else { 0 });
            memory.bytes_mut(place(0).at).copy_from_slice(&numbers);
            let slots = Slots::new(&mut memory, &Doubles, &[place(0)], &[place(start)], &[]);
            memory.run(&mut Doubles, &slots.unwrap()).unwrap();
            assert_eq!(memory.bytes(place(start).at), numbers.map(|x| 2 * x));
        }
    }

    /// Adds its input to what is there.
    struct Accumulates;

    impl Kernel for Accumulates {
        fn run(&mut self, call: &mut Call<'_>) -> Result<(), String> {
            let input: Vec<u16> = call.read::<u16>(0).to_vec();
            for (sum, x) in call.write::<u16>(0).iter_mut().zip(input) {
                *sum += x;
            }
            Ok(())
        }
    }

    #[test]
    fn what_is_not_aligned_is_added_to_as_well() {
        for start in [8, 9] {
            let mut memory = Memory::default();
            let block = memory.add(32, 16).unwrap();
            let place = |start| Place {
                at: Address {
                    block,
                    start,
                    len: 4,
                },
                align: 2,
            };
            let (input, output) = (place(0), place(start));
            memory.bytes_mut(input.at).copy_from_slice(&[1, 0, 2, 0]);
            memory.bytes_mut(output.at).copy_from_slice(&[5, 0, 6, 0]);
            let slots = Slots::new(&mut memory, &Accumulates, &[input], &[output], &[]).unwrap();
            for run in 1..4 {
                memory.run(&mut Accumulates, &slots).unwrap();
                assert_eq!(memory.bytes(output.at), [5 + run, 0, 6 + 2 * run, 0]);
            }
        }
    }

    #[test]
    fn every_layout_gives_the_same_numbers() {
        let places = [
            // apart, over one, over both, half over, not aligned
            [(0, 0), (1, 0), (2, 0)],
            [(0, 0), (1, 0), (0, 0)],
            [(0, 8), (0, 8), (0, 8)],
            [(0, 8), (0, 4), (0, 6)],
            [(0, 1), (1, 3), (2, 5)],
        ];
        for (leave, places) in [true, false]
            .into_iter()
            .flat_map(|l| places.map(|p| (l, p)))
        {
            let mut memory = Memory::default();
            for _ in 0..3 {
                memory.add(32, 1).unwrap();
            }
            let [x, y, z] = places.map(|(block, start)| Place {
                at: at(block, start, 4),
                align: 2,
            });
            memory.bytes_mut(x.at).copy_from_slice(&[1, 0, 2, 0]);
            let y_differs = !x.at.meets(&y.at);
            if y_differs {
                memory.bytes_mut(y.at).copy_from_slice(&[3, 0, 4, 0]);
            }
            let both = |m: &Memory| {
                let of = |p: Place, k: usize| u16::from(m.bytes(p.at)[k]);
                [of(x, 0) + of(y, 0), of(x, 2) + of(y, 2)].map(|n| n & 0xff)
            };
            let expected = both(&memory);
            let mut kernel = Sum { leave };
            let slots = Slots::new(&mut memory, &kernel, &[x, y], &[z], &[]).unwrap();
            memory.run(&mut kernel, &slots).unwrap();
            let found = memory.bytes(z.at);
            assert_eq!([found[0], found[2]].map(u16::from), expected, "{places:?}");
        }
    }
}
