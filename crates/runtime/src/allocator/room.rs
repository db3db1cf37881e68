//! Where memory comes from when a stream's own pool has none.
//!
//! | in this order | what it costs |
//! | --- | --- |
//! | what another stream lends, under [`Lend::First`] and if not an eighth is wasted | nothing |
//! | the layers below, and the device | a request to the device |
//! | the same, and large roots are cut that the rules would keep whole | their being whole |
//! | what another stream lends | memory that is larger than asked for |
//! | idle roots that the host knows to be done with go down, and are asked for again | – |
//! | the host waits for a stream whose idle roots then go down, the one with most first | a stop |
//! | the host waits for streams that may still use what nobody holds, or parts of roots | a stop |
//!
//! No stream is waited for twice.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::blocks::{Block, Memory};
use super::layers::{Effort, Home};
use super::{AllocError, Allocator, Device, Lend, Waits};

impl<D: Device> Allocator<D> {
    /// Everything after the stream's own pool.
    pub(super) fn find(&mut self, bytes: u64, stream: u32) -> Option<Block> {
        if self.rules.lend == Lend::First {
            let rounded = bytes.checked_next_multiple_of(self.layers.depot.page())?;
            let spare = rounded.saturating_add(rounded / 8);
            if let Some(block) = self.borrow(bytes, spare, stream) {
                return Some(block);
            }
        }
        let block = self.grow(bytes, stream, Effort::Usual);
        let block = block.or_else(|| self.any(bytes, stream));
        if block.is_some() {
            return block;
        }
        if let Some(block) = self.give_down(bytes, stream) {
            return Some(block);
        }
        let mut waited = BTreeSet::new();
        if self.rules.waits >= Waits::Pools {
            for (_, other) in self.worth_waiting_for() {
                waited.insert(other);
                self.complete(other);
                if let Some(block) = self.give_down(bytes, stream) {
                    return Some(block);
                }
            }
        }
        if self.rules.waits >= Waits::All {
            // A block that waited for one stream may wait for another one then.
            while let Some(other) = self.stream_in_the_way(bytes, &waited) {
                waited.insert(other);
                self.complete(other);
                let block = self.any(bytes, stream);
                let block = block.or_else(|| self.give_down(bytes, stream));
                if block.is_some() {
                    return block;
                }
            }
        }
        None
    }

    /// The stream's own pool, all below, and loans.
    fn any(&mut self, bytes: u64, stream: u32) -> Option<Block> {
        let home = self.layers.home_of(stream);
        if let Some(span) = self.layers.layer_mut(home).take_idle(bytes, u64::MAX) {
            return Some(self.hold_span(home, span, stream));
        }
        let block = self.grow(bytes, stream, Effort::Cuts);
        block.or_else(|| self.borrow(bytes, u64::MAX, stream))
    }

    fn grow(&mut self, bytes: u64, stream: u32, effort: Effort) -> Option<Block> {
        let home = self.layers.home_of(stream);
        let span = self.layers.grow(home, bytes, effort)?;
        Some(self.hold_span(home, span, stream))
    }

    /// Gives down what the host knows to be done with, and asks again: first for what is in the
    /// depot then, and if that will not do for what comes together in the cache and the device.
    fn give_down(&mut self, bytes: u64, stream: u32) -> Option<Block> {
        let mut given = 0;
        for other in 0..self.clocks.count() {
            let done = self.clocks.done(other);
            given += self.layers.recycle_pool(other, done, 0);
        }
        if given > 0
            && let Some(block) = self.any(bytes, stream)
        {
            return Some(block);
        }
        if self.layers.recycle_depot(self.clocks.done(0)) == 0 {
            return None;
        }
        self.any(bytes, stream)
    }

    /// Streams that the host would have to wait for before their idle roots can go down, and how
    /// many bytes that are: most first.
    fn worth_waiting_for(&self) -> BTreeSet<(Reverse<u64>, u32)> {
        let mut worth = BTreeSet::new();
        for stream in self.clocks.streams() {
            let mut bytes = match self.layers.pools.get(stream as usize) {
                Some(pool) => pool.recyclable(u64::MAX),
                None => 0,
            };
            if stream == 0 {
                bytes += self.layers.depot.recyclable(u64::MAX);
            }
            if bytes > 0 {
                worth.insert((Reverse(bytes), stream));
            }
        }
        worth
    }

    /// A stream that was not waited for, and that blocks that nobody holds wait for, or whose pool
    /// could lend a part of a root.
    fn stream_in_the_way(&self, bytes: u64, waited: &BTreeSet<u32>) -> Option<u32> {
        let could_lend = |stream: &u32| {
            let pool = self.layers.pools.get(*stream as usize);
            pool.is_some_and(|pool| pool.largest_idle() >= bytes)
        };
        let lends = self.clocks.streams().filter(could_lend);
        let mut streams = self.released.streams().chain(lends);
        streams.find(|stream| !waited.contains(stream))
    }

    /// Memory of another pool that is known on this stream to be done with: a block that is on its
    /// way home and has at most `most` bytes, whole, or else a part of what is idle there.
    fn borrow(&mut self, bytes: u64, most: u64, stream: u32) -> Option<Block> {
        if let Some(index) = self.lent(bytes, most, stream) {
            return self.take_over(index, stream);
        }
        for other in 0..u32::try_from(self.layers.pools.len()).unwrap_or(u32::MAX) {
            let until = self.clocks.horizon(stream, other);
            let pool = &mut self.layers.pools[other as usize];
            if other != stream
                && let Some(span) = pool.take_idle(bytes, until)
            {
                return Some(self.hold_span(Home::Pool(other), span, stream));
            }
        }
        None
    }

    /// The smallest block on its way home that a stream may have.
    fn lent(&self, bytes: u64, most: u64, stream: u32) -> Option<u32> {
        let blocks = self.released.lendable(bytes);
        let blocks = blocks.filter_map(|index| Some((index, self.blocks.at(index)?)));
        let mut fits = blocks.take_while(|(_, entry)| entry.bytes <= most);
        let free = fits.find(|(_, entry)| self.clocks.is_free_for(stream, &entry.uses));
        free.map(|(index, _)| index)
    }

    /// A block that nobody holds is a new one of this stream.
    fn take_over(&mut self, index: u32, stream: u32) -> Option<Block> {
        let entry = self.blocks.at(index)?;
        if let Some(wait) = entry.waits {
            self.released.unpark(wait, index);
        }
        self.released.recall(entry.bytes, index);
        self.held += entry.bytes;
        self.blocks.renew(index, stream)
    }

    /// Says what stands in the way of a request.
    pub(super) fn out_of_memory(&self, bytes: u64, stream: u32) -> AllocError {
        let spans = |memory| matches!(memory, Memory::Span(..));
        let unfinished = self.blocks.iter().map(|b| b.1);
        let unfinished = unfinished.filter(|e| !e.is_held() && spans(e.memory));
        let unfinished: u64 = unfinished.map(|e| e.bytes).sum();
        let stats = self.stats();
        AllocError::OutOfMemory {
            bytes,
            stream,
            held: stats.held,
            unfinished,
            idle: stats.idle,
            largest: stats.largest_idle,
            reserved: stats.reserved,
        }
    }
}
