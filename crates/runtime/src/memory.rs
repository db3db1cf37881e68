//! The memory of a program: blocks of bytes, and addresses in them.
//!
//! Every byte is a [`Cell`]. So a kernel can be given an input and an output that are the same
//! bytes, as an update in place asks for, and there is no access that is not checked. What is
//! outside every arena (constants, variables, the caller's tensors) has blocks of its own.

use std::cell::Cell;

use crate::RuntimeError;

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
}

/// Bytes whose first one is aligned.
#[derive(Debug, Default)]
struct Block {
    cells: Vec<Cell<u8>>,
    /// Where the aligned part begins.
    base: usize,
    len: usize,
}

/// All blocks of a program.
#[derive(Debug, Default)]
pub struct Memory {
    blocks: Vec<Block>,
}

impl Memory {
    /// Adds a block of zeros whose first byte lies at a multiple of `align` bytes, and gives its
    /// number.
    ///
    /// # Errors
    /// [`RuntimeError::OutOfMemory`].
    pub fn add(&mut self, len: u64, align: u64) -> Result<u32, RuntimeError> {
        let refused = || RuntimeError::OutOfMemory { bytes: len };
        let number = u32::try_from(self.blocks.len()).map_err(|_| refused())?;
        let len = usize::try_from(len).map_err(|_| refused())?;
        let align = usize::try_from(align.max(1)).map_err(|_| refused())?;
        let padded = len.checked_add(align - 1).ok_or_else(refused)?;
        let mut cells: Vec<Cell<u8>> = Vec::new();
        cells.try_reserve_exact(padded).map_err(|_| refused())?;
        cells.resize(padded, Cell::new(0));
        let past = cells.as_ptr().addr() % align;
        let base = if past == 0 { 0 } else { align - past };
        self.blocks.push(Block { cells, base, len });
        Ok(number)
    }

    /// All bytes of a block; none if there is no such block.
    #[must_use]
    pub fn block(&self, number: u32) -> &[Cell<u8>] {
        let found = usize::try_from(number).ok();
        let block = found.and_then(|n| self.blocks.get(n));
        block.map_or(&[], |b| &b.cells[b.base..b.base + b.len])
    }

    /// The bytes at an address; none if they leave the block.
    #[must_use]
    pub fn bytes(&self, at: Address) -> &[Cell<u8>] {
        self.block(at.block).get(at.start..at.end()).unwrap_or(&[])
    }

    /// The numbers of all blocks.
    pub fn numbers(&self) -> impl Iterator<Item = u32> + use<> {
        0..u32::try_from(self.blocks.len()).unwrap_or(u32::MAX)
    }
}

/// Copies as many bytes as both have, from the first on. The two may be the same bytes.
pub(crate) fn copy(from: &[Cell<u8>], to: &[Cell<u8>]) {
    for (from, to) in from.iter().zip(to) {
        to.set(from.get());
    }
}

/// Copies the caller's bytes.
pub(crate) fn store(from: &[u8], to: &[Cell<u8>]) {
    for (from, to) in from.iter().zip(to) {
        to.set(*from);
    }
}

/// The bytes as the caller's own.
pub(crate) fn load(from: &[Cell<u8>]) -> Vec<u8> {
    from.iter().map(Cell::get).collect()
}

/// Sets every byte.
pub(crate) fn fill(at: &[Cell<u8>], byte: u8) {
    for cell in at {
        cell.set(byte);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let at = |block, start, len| Address { block, start, len };
        assert_eq!(memory.bytes(at(0, 4, 6)).len(), 6);
        for outside in [at(0, 4, 7), at(3, 0, 1), at(0, usize::MAX, 2)] {
            assert!(memory.bytes(outside).is_empty());
        }
    }

    #[test]
    fn what_no_machine_has_is_refused() {
        let mut memory = Memory::default();
        assert!(memory.add(u64::MAX, 1).is_err());
        assert!(memory.add(8, 1 << 63).is_err());
    }
}
