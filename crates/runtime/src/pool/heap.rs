//! The memory of this process as the device below the allocator: what it takes becomes blocks of the
//! program's memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::allocator::Device;
use crate::memory::{Address, Block, Memory};

/// Alignment of what is taken, as that of every block.
const ALIGN: u64 = 64;

/// Memory of the system. What the allocator takes is a block of every thread's memory as soon as that
/// is brought up to date ([`Heap::hand_over`]).
#[derive(Debug, Default)]
pub(super) struct Heap {
    /// The first address that was never given out: addresses are names, not those of the machine.
    next: u64,
    /// Pieces by the address that they were given out as.
    taken: BTreeMap<u64, usize>,
    /// What each piece is; places of pieces that went back to the system have no bytes.
    pieces: Vec<Arc<Block>>,
    vacant: Vec<usize>,
    /// The block's number that piece 0 has in all memories.
    first: u32,
    /// How often pieces have changed.
    version: u64,
    /// What goes back to the system at the next hand-over.
    returned: Vec<u64>,
    /// Copies that the allocator has asked for: from, to, bytes.
    copies: Vec<(u64, u64, u64)>,
}

impl Heap {
    /// Brings a thread's memory up to date with what was taken and given back.
    pub(super) fn hand_over(&mut self, memory: &mut Memory) {
        if self.version == 0 {
            self.first = memory.count();
        }
        memory.keep_up(self.first, &self.pieces, self.version);
        for (from, to, bytes) in std::mem::take(&mut self.copies) {
            let ends = (self.address(from, bytes), self.address(to, bytes));
            if let (Some(from), Some(to)) = ends {
                memory.copy(from, to);
            }
        }
        for address in std::mem::take(&mut self.returned) {
            if let Some(piece) = self.taken.remove(&address) {
                self.pieces[piece] = Arc::new(Block::empty());
                self.vacant.push(piece);
                self.version += 1;
            }
        }
        memory.keep_up(self.first, &self.pieces, self.version);
    }

    fn number(&self, piece: usize) -> Option<u32> {
        self.first.checked_add(u32::try_from(piece).ok()?)
    }

    /// Where bytes are that the allocator names; `None` for memory that was not handed over.
    pub(super) fn address(&self, start: u64, bytes: u64) -> Option<Address> {
        let (&first, &piece) = self.taken.range(..=start).next_back()?;
        Some(Address {
            block: self.number(piece)?,
            start: usize::try_from(start - first).ok()?,
            len: usize::try_from(bytes).ok()?,
        })
    }

    /// The blocks that are taken.
    pub(super) fn blocks(&self) -> impl Iterator<Item = u32> {
        self.taken.values().filter_map(|&piece| self.number(piece))
    }
}

impl Device for Heap {
    fn take(&mut self, bytes: u64) -> Option<u64> {
        let address = self.next;
        let next = address
            .checked_add(bytes)?
            .checked_next_multiple_of(ALIGN)?;
        let block = Arc::new(Block::new(bytes, ALIGN)?);
        let piece = match self.vacant.pop() {
            Some(piece) => {
                self.pieces[piece] = block;
                piece
            }
            None => {
                self.pieces.push(block);
                self.pieces.len() - 1
            }
        };
        self.next = next;
        self.taken.insert(address, piece);
        self.version += 1;
        Some(address)
    }

    fn give_back(&mut self, address: u64, _: u64) {
        // A copy out of it may still be waiting.
        self.returned.push(address);
    }

    fn wait_for(&mut self, _: u32) {
        // Work of this process is done when it is asked for.
    }

    fn copy(&mut self, from: u64, to: u64, bytes: u64, _: u32) {
        self.copies.push((from, to, bytes));
    }
}
