//! The memory of this process as the device below the allocator: what it takes becomes blocks of the
//! program's memory.

use std::collections::BTreeMap;

use crate::allocator::Device;
use crate::memory::{Address, Block, Memory};

/// Alignment of what is taken, as that of every block.
const ALIGN: u64 = 64;

/// Memory of the system. What the allocator takes waits here until the program's memory takes it in
/// ([`Heap::hand_over`]).
#[derive(Debug, Default)]
pub(super) struct Heap {
    /// The first address that was never given out: addresses are names, not those of the machine.
    next: u64,
    /// Blocks by the address that they were given out as.
    taken: BTreeMap<u64, u32>,
    fresh: Vec<(u64, Block)>,
    /// What goes back to the system at the next hand-over.
    returned: Vec<u64>,
    /// Copies that the allocator has asked for: from, to, bytes.
    copies: Vec<(u64, u64, u64)>,
}

impl Heap {
    /// Brings the program's memory up to date with what was taken and given back.
    pub(super) fn hand_over(&mut self, memory: &mut Memory) {
        for (address, block) in self.fresh.drain(..) {
            if let Some(number) = memory.adopt(block) {
                self.taken.insert(address, number);
            }
        }
        for (from, to, bytes) in std::mem::take(&mut self.copies) {
            let ends = (self.address(from, bytes), self.address(to, bytes));
            if let (Some(from), Some(to)) = ends {
                memory.copy(from, to);
            }
        }
        for address in std::mem::take(&mut self.returned) {
            if let Some(number) = self.taken.remove(&address) {
                memory.vacate(number);
            }
        }
    }

    /// Where bytes are that the allocator names; `None` for memory that was not handed over.
    pub(super) fn address(&self, start: u64, bytes: u64) -> Option<Address> {
        let (&first, &block) = self.taken.range(..=start).next_back()?;
        Some(Address {
            block,
            start: usize::try_from(start - first).ok()?,
            len: usize::try_from(bytes).ok()?,
        })
    }

    /// The blocks that are taken.
    pub(super) fn blocks(&self) -> impl Iterator<Item = u32> {
        self.taken.values().copied()
    }
}

impl Device for Heap {
    fn take(&mut self, bytes: u64) -> Option<u64> {
        let address = self.next;
        let next = address
            .checked_add(bytes)?
            .checked_next_multiple_of(ALIGN)?;
        let block = Block::new(bytes, ALIGN)?;
        self.next = next;
        self.fresh.push((address, block));
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
