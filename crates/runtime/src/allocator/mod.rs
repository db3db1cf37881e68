//! The allocator for memory that cannot be planned: it keeps what is freed, and hands it out again
//! on any stream whose work comes after all that was done with it.
//!
//! Nothing is waited for as long as the device has memory: who has done what before whom is known
//! from the program's own events (vector clocks: `clocks`). Memory lies in segments from the
//! [`Device`], cut into spans (`spans`). When the device has no more, idle segments are given back;
//! then the host waits for one stream after the other.
//!
//! The rules are those of stream-ordered memory: a use, an event and a wait take their places in
//! their streams' orders, a free takes place on the host at once.
//!
//! ```
//! use tenure_runtime::allocator::{Allocator, Budget, Rules};
//!
//! let mut memory = Allocator::new(Rules::default(), Budget::default());
//! let a = memory.alloc(1000, 0)?;
//! memory.touch(a, 0)?;
//! memory.touch(a, 1)?;
//! let first = memory.range(a)?;
//! memory.free(a)?;
//! // Stream 1 may still read; stream 0 gets other bytes.
//! let b = memory.alloc(1000, 0)?;
//! assert_ne!(memory.range(b)?, first);
//! // On stream 1, what is asked for next comes after the read.
//! memory.record(7, 0);
//! memory.wait(7, 1);
//! let c = memory.alloc(1000, 1)?;
//! assert_eq!(memory.range(c)?, first);
//! # Ok::<(), tenure_runtime::allocator::AllocError>(())
//! ```

mod clocks;
mod device;
mod occupancy;
pub mod pages;
mod spans;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::Range;

use clocks::{Clocks, Uses};
pub use device::{Bottom, Budget, BudgetCounts, Device};
pub use occupancy::{NoSuchRow, Occupancy};
use spans::{At, Spans};

/// How memory is taken from the device and cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Sizes are rounded up to a multiple of so many bytes; 0 counts as 1.
    pub granularity: u64,
    /// A segment has at least so many bytes; 0: as many as are asked for.
    pub segment_bytes: u64,
}

impl Default for Rules {
    /// Multiples of 512 bytes, and segments of what is asked for.
    fn default() -> Self {
        Rules {
            granularity: 512,
            segment_bytes: 0,
        }
    }
}

/// A block that was handed out. After it was freed it stands for nothing, also when its memory is
/// handed out again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Block(u64);

/// What is refused. The allocator is then as it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllocError {
    /// The device has no more, though all was given back that could be.
    #[error(
        "{bytes} bytes on stream {stream} cannot be had: {held} of {reserved} bytes that were taken from the device are held; free some, or ask for less"
    )]
    OutOfMemory {
        /// Bytes asked for.
        bytes: u64,
        /// The stream.
        stream: u32,
        /// Bytes that are handed out.
        held: u64,
        /// Bytes that were taken from the device.
        reserved: u64,
    },
    /// A block that was freed, or that this allocator never handed out.
    #[error("block {0} is not held: it was freed before, or is of another allocator")]
    NotHeld(u64),
}

/// A block that is held.
#[derive(Clone, Debug)]
struct Held {
    at: Option<At>,
    bytes: u64,
    uses: Uses,
}

/// The allocator.
#[derive(Clone, Debug)]
pub struct Allocator<D> {
    rules: Rules,
    device: D,
    clocks: Clocks,
    spans: Spans,
    blocks: BTreeMap<u64, Held>,
    /// Number of the next block; numbers are never given twice.
    next: u64,
    held: u64,
    reserved: u64,
    most_reserved: u64,
}

impl<D: Device> Allocator<D> {
    /// An allocator that has taken nothing yet.
    #[must_use]
    pub fn new(rules: Rules, device: D) -> Self {
        Allocator {
            rules,
            device,
            clocks: Clocks::default(),
            spans: Spans::default(),
            blocks: BTreeMap::new(),
            next: 0,
            held: 0,
            reserved: 0,
            most_reserved: 0,
        }
    }

    /// Hands out memory for use on a stream from its next operation on. A block of 0 bytes has no
    /// memory.
    ///
    /// # Errors
    /// [`AllocError::OutOfMemory`].
    pub fn alloc(&mut self, bytes: u64, stream: u32) -> Result<Block, AllocError> {
        let place = self.clocks.stream(stream);
        let rounded = bytes.checked_next_multiple_of(self.rules.granularity.max(1));
        let found = match rounded {
            Some(0) => Some((None, Uses::default())),
            Some(rounded) => self.find(rounded, place).map(|(at, uses)| (Some(at), uses)),
            None => None,
        };
        let (Some((at, uses)), Some(rounded)) = (found, rounded) else {
            return Err(AllocError::OutOfMemory {
                bytes,
                stream,
                held: self.held,
                reserved: self.reserved,
            });
        };
        self.held += rounded;
        let block = Block(self.next);
        self.next += 1;
        let bytes = rounded;
        self.blocks.insert(block.0, Held { at, bytes, uses });
        Ok(block)
    }

    /// Idle memory, or new memory, or what can be had by giving back and by waiting.
    fn find(&mut self, bytes: u64, stream: usize) -> Option<(At, Uses)> {
        let found = self.idle(bytes, stream);
        if let Some(found) = found.or_else(|| self.grow(bytes, stream)) {
            return Some(found);
        }
        self.trim();
        if let Some(found) = self.grow(bytes, stream) {
            return Some(found);
        }
        for other in self.spans.waits_for() {
            self.complete(other);
            if let Some(found) = self.idle(bytes, stream) {
                return Some(found);
            }
            self.trim();
            if let Some(found) = self.grow(bytes, stream) {
                return Some(found);
            }
        }
        None
    }

    fn idle(&mut self, bytes: u64, stream: usize) -> Option<(At, Uses)> {
        let clocks = &self.clocks;
        self.spans
            .take(bytes, |uses| clocks.is_free_for(stream, uses))
    }

    fn grow(&mut self, bytes: u64, stream: usize) -> Option<(At, Uses)> {
        let segment = bytes.max(self.rules.segment_bytes);
        let segment = segment.checked_next_multiple_of(self.rules.granularity.max(1))?;
        let reserved = self.reserved.checked_add(segment)?;
        let base = self.device.take(segment)?;
        self.spans.add(base, segment);
        self.reserved = reserved;
        self.most_reserved = self.most_reserved.max(reserved);
        self.idle(bytes, stream)
    }

    /// The next operation of the stream reads or writes the block.
    ///
    /// # Errors
    /// [`AllocError::NotHeld`].
    pub fn touch(&mut self, block: Block, stream: u32) -> Result<(), AllocError> {
        let Some(held) = self.blocks.get_mut(&block.0) else {
            return Err(AllocError::NotHeld(block.0));
        };
        let place = self.clocks.stream(stream);
        self.clocks.touch(place, &mut held.uses);
        Ok(())
    }

    /// The host needs the block no more; what streams still do with it goes on.
    ///
    /// # Errors
    /// [`AllocError::NotHeld`], so a block that is freed twice does no harm.
    pub fn free(&mut self, block: Block) -> Result<(), AllocError> {
        let held = self.blocks.remove(&block.0);
        let mut held = held.ok_or(AllocError::NotHeld(block.0))?;
        self.held -= held.bytes;
        self.clocks.forget_done(&mut held.uses);
        if let Some(at) = held.at {
            self.spans.give(at, held.uses);
        }
        Ok(())
    }

    /// Records an event on a stream: it stands for all that the stream has done by now. Recording
    /// it again makes it stand for more from then on.
    pub fn record(&mut self, event: u32, stream: u32) {
        let place = self.clocks.stream(stream);
        self.clocks.record(event, place);
    }

    /// The stream goes on when the event, as it was recorded last, has happened. An event that was
    /// never recorded is not waited for.
    pub fn wait(&mut self, event: u32, stream: u32) {
        let place = self.clocks.stream(stream);
        self.clocks.wait(event, place);
    }

    /// The host waits until all streams are done.
    pub fn sync(&mut self) {
        for stream in self.clocks.streams() {
            self.complete(stream);
        }
    }

    fn complete(&mut self, stream: usize) {
        self.device.wait_for(self.clocks.number(stream));
        self.clocks.complete(stream);
        let clocks = &self.clocks;
        self.spans.settle(|uses| clocks.forget_done(uses));
    }

    /// Gives back to the device what is idle as a whole and known to the host to be done with. It
    /// waits for nothing.
    pub fn trim(&mut self) {
        for (base, bytes) in self.spans.release() {
            self.device.give_back(base, bytes);
            self.reserved -= bytes;
        }
    }

    /// The addresses of a block; empty for one of 0 bytes. It may be longer than was asked for.
    ///
    /// # Errors
    /// [`AllocError::NotHeld`].
    pub fn range(&self, block: Block) -> Result<Range<u64>, AllocError> {
        let held = self.blocks.get(&block.0);
        let held = held.ok_or(AllocError::NotHeld(block.0))?;
        let start = held.at.map_or(0, |at| self.spans.address(at));
        Ok(start..start.saturating_add(held.bytes))
    }

    /// Bytes that are handed out, as they are rounded.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.held
    }

    /// Bytes that are taken from the device now.
    #[must_use]
    pub fn reserved(&self) -> u64 {
        self.reserved
    }

    /// Most bytes that were taken from the device at any time.
    #[must_use]
    pub fn most_reserved(&self) -> u64 {
        self.most_reserved
    }
}
