//! The allocator for memory that cannot be planned: it keeps what is freed, and hands it out again
//! on any stream whose work comes after all that was done with it.
//!
//! Memory comes from the [`Device`] through layers of page allocators ([`pages`]): a cache, a depot
//! for the run, and a pool for each stream (`layers`). Who has done what before whom is known from
//! the program's own events (vector clocks: `clocks`), so nothing is waited for as long as there is
//! memory. The rules are those of stream-ordered memory: an access, a release, an event and a wait
//! take their places in their streams' orders.
//!
//! A block is *held* by streams, each of which releases it when it needs it no more. Then it goes
//! back to the pool that it came from, as soon as that pool's stream knows that all uses are done
//! (`released`); until then another stream that knows it may borrow it. When there is no more
//! memory, idle memory is given down the layers and asked for again (`room`).
//!
//! Between runs, live blocks that may move can be moved together (`compact`).
//!
//! ```
//! use tenure_runtime::allocator::{Allocator, Budget, Rules};
//!
//! let mut memory = Allocator::new(Rules::default(), Budget::default(), 2);
//! let a = memory.alloc(1000, 0)?;
//! memory.access(a, 1, None)?;
//! let first = memory.range(a)?;
//! memory.release(a, 0)?;
//! memory.release(a, 1)?;
//! // Stream 1 may still read; stream 0 gets other bytes.
//! let b = memory.alloc(1000, 0)?;
//! assert_ne!(memory.range(b)?, first);
//! // On stream 1, what is asked for next comes after all that both have done.
//! memory.record(7, 0)?;
//! memory.wait(7, 1)?;
//! let c = memory.alloc(1000, 1)?;
//! assert_eq!(memory.range(c)?, first);
//! # Ok::<(), tenure_runtime::allocator::AllocError>(())
//! ```

mod blocks;
mod clocks;
mod compact;
mod device;
mod error;
mod layers;
mod log;
mod look;
mod occupancy;
mod outside;
pub mod pages;
mod released;
mod room;
mod rules;
#[cfg(test)]
mod tests;

use std::ops::Range;

pub use blocks::Block;
use blocks::{Blocks, Memory};
use clocks::{Clocks, Uses};
pub use compact::Move;
pub use device::{Bottom, Budget, BudgetCounts, Device};
pub use error::AllocError;
use layers::{Home, Layers};
use log::Log;
pub use look::{Stats, Whereabouts};
pub use occupancy::{NoSuchRow, Occupancy};
use pages::{PageRules, SpanId};
use released::{Knower, Released, Wait};
pub use rules::{Lend, Rules, Waits};

use crate::trace::Step;

/// The allocator.
#[derive(Clone, Debug)]
pub struct Allocator<D> {
    rules: Rules,
    clocks: Clocks,
    layers: Layers<D>,
    blocks: Blocks,
    released: Released,
    /// Memory of the caller that came back, until somebody asks.
    dropped: Vec<Block>,
    /// Bytes of blocks that somebody has.
    held: u64,
    log: Option<Box<Log>>,
}

impl<D: Device> Allocator<D> {
    /// An allocator for so many streams, at least one, that has taken nothing yet. Stream 0 is the
    /// main stream.
    #[must_use]
    pub fn new(rules: Rules, device: D, streams: u32) -> Self {
        let streams = streams.max(1);
        let pages = PageRules {
            page: rules.granularity,
            threshold: rules.threshold,
            least_piece: 0,
            split: rules.split,
        };
        let least = rules.segment_bytes;
        Allocator {
            rules,
            clocks: Clocks::new(streams),
            layers: Layers::new(pages, least, rules.limit, device, streams),
            blocks: Blocks::default(),
            released: Released::default(),
            dropped: Vec::new(),
            held: 0,
            log: None,
        }
    }

    fn check(&self, stream: u32) -> Result<(), AllocError> {
        if self.clocks.is_alive(stream) {
            return Ok(());
        }
        Err(AllocError::NoSuchStream {
            stream,
            streams: self.clocks.count(),
        })
    }

    /// Hands out memory for use on a stream from its next operation on; the stream holds it. A
    /// block of 0 bytes has no memory.
    ///
    /// # Errors
    /// [`AllocError::OutOfMemory`], [`AllocError::NoSuchStream`].
    pub fn alloc(&mut self, bytes: u64, stream: u32) -> Result<Block, AllocError> {
        self.check(stream)?;
        if !self.blocks.has_room() {
            return Err(self.out_of_memory(bytes, stream));
        }
        let home = self.layers.home_of(stream);
        let block = if bytes == 0 {
            Some(self.hold(Memory::Nothing, 0..0, Uses::default(), stream))
        } else if let Some(span) = self.layers.layer_mut(home).take(bytes) {
            Some(self.hold_span(home, span, stream))
        } else {
            self.find(bytes, stream)
        };
        let block = block.ok_or_else(|| self.out_of_memory(bytes, stream))?;
        self.log_alloc(block, bytes, stream);
        Ok(block)
    }

    /// A span of a layer becomes a block. What was done with it before goes along, so that a stream
    /// that gets access to it in no order does not pass for one that comes after that.
    #[inline]
    fn hold_span(&mut self, home: Home, span: SpanId, stream: u32) -> Block {
        let layer = self.layers.layer(home);
        let (range, stamp) = layer.range_and_stamp(span).unwrap_or((0..0, 0));
        let uses = match home {
            Home::Pool(owner) => Uses::of(owner, stamp),
            Home::Depot => Uses::NONE,
        };
        self.hold(Memory::Span(home, span), range, uses, stream)
    }

    #[inline]
    fn hold(&mut self, memory: Memory, range: Range<u64>, uses: Uses, stream: u32) -> Block {
        self.held += range.end - range.start;
        self.blocks.insert(memory, range, uses, Some(stream))
    }

    /// The next operation of the stream reads or writes the block.
    ///
    /// # Errors
    /// [`AllocError::NotHeld`], [`AllocError::NoSuchStream`].
    pub fn touch(&mut self, block: Block, stream: u32) -> Result<(), AllocError> {
        self.check(stream)?;
        let entry = self.blocks.held(block)?;
        self.clocks.touch(stream, &mut entry.uses);
        self.log_use(block, stream);
        Ok(())
    }

    /// A stream gets access to a block that others hold, and holds it as well. `from` is the stream
    /// that it gets it from, where that is to be checked.
    ///
    /// # Errors
    /// [`AllocError::SameStream`], [`AllocError::NoHolder`] when `from` does not hold it,
    /// [`AllocError::NotHeld`], [`AllocError::NoSuchStream`].
    pub fn access(
        &mut self,
        block: Block,
        stream: u32,
        from: Option<u32>,
    ) -> Result<(), AllocError> {
        self.check(stream)?;
        let entry = self.blocks.held(block)?;
        if let Some(from) = from {
            if from == stream {
                return Err(AllocError::SameStream { stream });
            }
            if entry.held_by(from) == 0 {
                return Err(AllocError::NoHolder {
                    block,
                    stream: from,
                });
            }
        }
        self.add_holder(block, stream)?;
        self.touch(block, stream)
    }

    /// A stream that holds a block holds it once more.
    ///
    /// # Errors
    /// [`AllocError::NoHolder`], [`AllocError::NotHeld`], [`AllocError::NoSuchStream`].
    pub fn share(&mut self, block: Block, stream: u32) -> Result<(), AllocError> {
        self.check(stream)?;
        if self.blocks.held(block)?.held_by(stream) == 0 {
            return Err(AllocError::NoHolder { block, stream });
        }
        self.add_holder(block, stream)
    }

    fn add_holder(&mut self, block: Block, stream: u32) -> Result<(), AllocError> {
        let entry = self.blocks.held(block)?;
        match entry.holders.iter_mut().find(|h| h.0 == stream) {
            Some(holder) => {
                let more = holder.1.checked_add(1);
                holder.1 = more.ok_or(AllocError::TooManyHolders { block })?;
            }
            None => entry.holders.push((stream, 1)),
        }
        Ok(())
    }

    /// A stream needs a block no more, from its next operation on. When it was the last that holds
    /// it, the memory goes back.
    ///
    /// # Errors
    /// [`AllocError::NoHolder`], [`AllocError::NotHeld`], [`AllocError::NoSuchStream`]: a block that
    /// is freed twice does no harm.
    pub fn release(&mut self, block: Block, stream: u32) -> Result<(), AllocError> {
        self.check(stream)?;
        let entry = self.blocks.held(block)?;
        if entry.holders[..] == [(stream, 1)] {
            entry.holders.clear();
        } else {
            let holder = entry.holders.iter().position(|h| h.0 == stream);
            let holder = holder.ok_or(AllocError::NoHolder { block, stream })?;
            entry.holders[holder].1 -= 1;
            if entry.holders[holder].1 == 0 {
                entry.holders.swap_remove(holder);
            }
        }
        self.clocks.touch(stream, &mut entry.uses);
        self.log_use(block, stream);
        self.let_go(block);
        Ok(())
    }

    /// The host needs the block no more, whoever holds it; what streams still do with it goes on.
    ///
    /// # Errors
    /// [`AllocError::NotHeld`].
    pub fn free(&mut self, block: Block) -> Result<(), AllocError> {
        self.blocks.held(block)?.holders.clear();
        self.let_go(block);
        Ok(())
    }

    /// What nobody has any more goes back, or waits until it can.
    fn let_go(&mut self, block: Block) {
        if let Some(entry) = self.blocks.at(block.index)
            && !entry.is_held()
        {
            self.held -= entry.bytes;
            let (memory, stream) = (entry.memory, self.owner(entry.memory));
            match (memory, stream.and_then(|s| entry.uses.only_of(s))) {
                // The usual case, in short.
                (Memory::Span(home, span), Some(stamp)) => {
                    self.layers.put_back(home, span, stamp);
                    self.blocks.remove(block.index);
                }
                _ => self.settle(block.index),
            }
            self.log_free(block);
        }
    }

    /// The stream that a block's memory goes back to; `None` where it is every stream's, or nobody's.
    #[inline]
    fn owner(&self, memory: Memory) -> Option<u32> {
        match memory {
            Memory::Span(Home::Pool(s), _) | Memory::Outside(s) => {
                self.clocks.is_alive(s).then_some(s)
            }
            Memory::Span(Home::Depot, _) => self.clocks.only(),
            Memory::Nothing => None,
        }
    }

    /// A block that nobody has goes back if all uses are known to be done where it belongs. If not
    /// it waits, and may be borrowed.
    fn settle(&mut self, index: u32) {
        let Some(entry) = self.blocks.at(index) else {
            return;
        };
        let knower = match self.owner(entry.memory) {
            Some(stream) => Knower::Stream(stream),
            None if entry.memory == Memory::Nothing => Knower::Nobody,
            None => Knower::All,
        };
        let unknown = match knower {
            Knower::Nobody => None,
            Knower::Stream(stream) => self.clocks.first_unknown(stream, &entry.uses),
            Knower::All => self.clocks.first_unknown_to_any(&entry.uses),
        };
        let Some((stream, tick)) = unknown else {
            return self.go_home(index);
        };
        let wait = Wait {
            knower,
            stream,
            tick,
        };
        if matches!(entry.memory, Memory::Span(..)) {
            self.released.lend(entry.bytes, index);
        }
        self.released.park(wait, index);
        if let Some(entry) = self.blocks.at_mut(index) {
            entry.waits = Some(wait);
        }
    }

    /// The memory of a block goes back to where it came from, and the block is no more.
    fn go_home(&mut self, index: u32) {
        let Some(entry) = self.blocks.at(index) else {
            return;
        };
        if entry.waits.is_some() {
            self.released.recall(entry.bytes, index);
        }
        match entry.memory {
            Memory::Nothing => {}
            Memory::Outside(_) => self.dropped.extend(self.blocks.handle(index)),
            Memory::Span(home, span) => {
                let stream = match home {
                    Home::Pool(stream) => stream,
                    Home::Depot => 0,
                };
                // All uses are known on this stream by now; its own, if there are no others, even
                // by an earlier event.
                let stamp = entry.uses.only_of(stream);
                let stamp = stamp.unwrap_or_else(|| self.clocks.now(stream));
                self.layers.put_back(home, span, stamp);
                if home == Home::Pool(stream) && !self.clocks.is_alive(stream) {
                    let now = self.clocks.now(0);
                    self.layers.recycle_pool(stream, u64::MAX, now);
                }
            }
        }
        self.blocks.remove(index);
    }

    /// Records an event on a stream: it stands for all that the stream has done by now. Recording
    /// it again makes it stand for more from then on.
    ///
    /// # Errors
    /// [`AllocError::NoSuchStream`].
    pub fn record(&mut self, event: u32, stream: u32) -> Result<(), AllocError> {
        self.check(stream)?;
        self.clocks.record(event, stream);
        self.log_step(Step::Record { event, stream });
        Ok(())
    }

    /// The stream goes on when the event, as it was recorded last, has happened. An event that was
    /// never recorded is not waited for.
    ///
    /// # Errors
    /// [`AllocError::NoSuchStream`].
    pub fn wait(&mut self, event: u32, stream: u32) -> Result<(), AllocError> {
        self.check(stream)?;
        self.log_step(Step::Wait { event, stream });
        for other in self.clocks.wait(event, stream) {
            let tick = self.clocks.horizon(stream, other);
            for knower in [Knower::Stream(stream), Knower::All] {
                let due = self.released.due(Wait {
                    knower,
                    stream: other,
                    tick,
                });
                due.into_iter().for_each(|index| self.settle(index));
            }
        }
        Ok(())
    }

    /// The host waits until a stream has done all that it was given so far.
    ///
    /// # Errors
    /// [`AllocError::NoSuchStream`].
    pub fn sync(&mut self, stream: u32) -> Result<(), AllocError> {
        self.check(stream)?;
        self.complete(stream);
        Ok(())
    }

    /// The host waits until all streams are done.
    pub fn sync_all(&mut self) {
        let streams: Vec<u32> = self.clocks.streams().collect();
        streams.into_iter().for_each(|stream| self.complete(stream));
    }

    fn complete(&mut self, stream: u32) {
        let one = Some(stream);
        self.log_step(Step::Sync { stream: one });
        self.layers.device.wait_for(stream);
        self.clocks.complete(stream);
        let all = self.released.all();
        all.into_iter().for_each(|index| self.settle(index));
    }

    /// The end of a run: the main stream waits for all others, and the next run begins after that on
    /// all streams. What nobody holds is home then, and roots that are whole are in the depot; of
    /// more than [`Rules::keep_idle`] bytes there the rest goes to the device.
    pub fn final_clean(&mut self) {
        self.log_end_of_run();
        self.clocks.join();
        let all = self.released.all();
        all.into_iter().for_each(|index| self.settle(index));
        let now = self.clocks.now(0);
        for stream in 0..self.clocks.count() {
            self.layers.recycle_pool(stream, u64::MAX, now);
        }
        if let Some(keep) = self.rules.keep_idle
            && self.stats().idle > keep
        {
            self.complete(0);
            self.trim();
        }
    }

    /// Gives back to the device what is idle as a whole and known to the host to be done with. It
    /// waits for nothing.
    pub fn trim(&mut self) {
        self.log_step(Step::Trim);
        for stream in 0..self.clocks.count() {
            let done = self.clocks.done(stream);
            self.layers.recycle_pool(stream, done, 0);
        }
        self.layers.recycle_depot(self.clocks.done(0));
        self.layers.recycle_cache();
    }

    /// Ends a stream: the host waits for it, what it could have borrowed goes home, and its pool to
    /// the depot. Blocks that came from there and that others hold stay as they are.
    ///
    /// # Errors
    /// [`AllocError::StreamHolds`], [`AllocError::MainStream`], [`AllocError::NoSuchStream`].
    pub fn end_stream(&mut self, stream: u32) -> Result<(), AllocError> {
        self.check(stream)?;
        if stream == 0 && self.clocks.streams().count() > 1 {
            return Err(AllocError::MainStream);
        }
        let held = self.blocks.iter().filter(|b| b.1.held_by(stream) > 0);
        let blocks = u64::try_from(held.count()).unwrap_or(u64::MAX);
        if blocks > 0 {
            return Err(AllocError::StreamHolds { stream, blocks });
        }
        self.complete(stream);
        self.clocks.end(stream);
        for knower in [Knower::Stream(stream), Knower::All] {
            let due = self.released.all_of(knower);
            due.into_iter().for_each(|index| self.settle(index));
        }
        self.layers.recycle_pool(stream, u64::MAX, 0);
        Ok(())
    }
}
