//! What is where: counters, and where memory is that was a block once.

use std::ops::Range;

use super::blocks::{Block, Memory};
use super::layers::Home;
use super::pages::PagePool;
use super::{AllocError, Allocator, Device, Occupancy};

/// Counters, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Taken from the device now.
    pub reserved: u64,
    /// Most that were taken from the device at any time.
    pub most_reserved: u64,
    /// Of blocks that somebody has, the caller's own memory with them.
    pub held: u64,
    /// Of blocks that nobody has and that may still be used.
    pub unfinished: u64,
    /// Idle, in all layers.
    pub idle: u64,
    /// The largest idle piece of one layer.
    pub largest_idle: u64,
    /// What pools and blocks have from the depot.
    pub lent_by_depot: u64,
}

impl Stats {
    /// How much of the idle memory is not in the largest piece, in hundredths.
    #[must_use]
    pub fn fragmentation(&self) -> u64 {
        let apart = u128::from(self.idle.saturating_sub(self.largest_idle)) * 100;
        let percent = apart.checked_div(u128::from(self.idle)).unwrap_or(0);
        u64::try_from(percent).unwrap_or(100)
    }
}

/// Where a byte of memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whereabouts {
    /// In a block that streams hold.
    Held(Block),
    /// In a block that only the caller has.
    Caller(Block),
    /// In a block that nobody has, not home yet.
    Released(Block),
    /// Idle in the pool of a stream.
    Pool(u32),
    /// Idle in the depot, or given to it and not known yet to be done with on all streams.
    Depot,
    /// In the cache or at the device, or none of this allocator's.
    Below,
}

impl<D: Device> Allocator<D> {
    /// The addresses of a block; empty for one of 0 bytes. It may be longer than was asked for.
    ///
    /// # Errors
    /// [`AllocError::NotHeld`].
    pub fn range(&self, block: Block) -> Result<Range<u64>, AllocError> {
        let entry = self.blocks.get(block)?;
        if !entry.is_held() {
            return Err(AllocError::NotHeld { block });
        }
        Ok(entry.address..entry.address + entry.bytes)
    }

    /// How often each stream holds a block; nobody holds one that is no more.
    #[must_use]
    pub fn holders(&self, block: Block) -> Vec<u32> {
        let entry = self.blocks.get(block).ok();
        let count = |stream| entry.map_or(0, |e| e.held_by(stream));
        (0..self.clocks.count()).map(count).collect()
    }

    /// Who uses a block, as far as each stream knows.
    ///
    /// # Errors
    /// [`AllocError::NotHeld`] when it is no more.
    pub fn occupancy(&self, block: Block) -> Result<Occupancy, AllocError> {
        let entry = self.blocks.get(block)?;
        let streams = self.clocks.count();
        let mut table = Occupancy::new(streams as usize);
        for row in 0..streams {
            let holders = entry.holders.iter().map(|h| h.0);
            let uses = entry
                .uses
                .iter()
                .filter(|&(stream, tick)| stream != row && tick > self.clocks.horizon(row, stream));
            for stream in holders.chain(uses.map(|u| u.0)) {
                let set = table.set(row as usize, stream as usize, true);
                debug_assert!(set.is_ok(), "holders are streams");
            }
        }
        Ok(table)
    }

    /// Where the byte at an address is. It looks through everything: for reports.
    #[must_use]
    pub fn locate(&self, address: u64) -> Whereabouts {
        let mut blocks = self.blocks.iter();
        let found = blocks.find(|(_, e)| (e.address..e.address + e.bytes).contains(&address));
        if let Some((block, entry)) = found {
            return if !entry.holders.is_empty() {
                Whereabouts::Held(block)
            } else if entry.exported {
                Whereabouts::Caller(block)
            } else if self.is_in_depot(entry) {
                Whereabouts::Depot
            } else {
                Whereabouts::Released(block)
            };
        }
        let is_idle_in = |layer: &PagePool| {
            let mut spans = layer.spans();
            spans.any(|(range, held, _)| !held && range.contains(&address))
        };
        let pools = (0..).zip(&self.layers.pools);
        let mut pools = pools.filter(|(_, pool)| is_idle_in(pool));
        match pools.next() {
            Some((stream, _)) => Whereabouts::Pool(stream),
            None if is_idle_in(&self.layers.depot) => Whereabouts::Depot,
            None => Whereabouts::Below,
        }
    }

    /// Whether a block that nobody has is the depot's again, only not on all streams yet.
    fn is_in_depot(&self, entry: &super::blocks::Entry) -> bool {
        matches!(entry.memory, Memory::Span(Home::Depot, _))
            && !entry.is_held()
            && self.clocks.is_free_for(0, &entry.uses)
    }

    /// Whether some stream could have a block that nobody holds without waiting.
    #[must_use]
    pub fn is_within_reach(&self, block: Block) -> bool {
        let entry = self.blocks.get(block).ok();
        let mut streams = self.clocks.streams();
        entry.is_some_and(|e| streams.any(|s| self.clocks.is_free_for(s, &e.uses)))
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let layers = &self.layers;
        let page = layers.depot.page();
        let all = layers.pools.iter().chain([&layers.depot, &layers.cache]);
        let (mut idle, mut largest_idle) = (0, 0);
        for layer in all {
            idle += layer.stats().idle_pages * page;
            largest_idle = layer.largest_idle().max(largest_idle);
        }
        let (mut unfinished, mut in_depot) = (0, 0);
        for (_, entry) in self.blocks.iter().filter(|b| !b.1.is_held()) {
            if matches!(entry.memory, Memory::Span(..)) {
                unfinished += entry.bytes;
            }
            if self.is_in_depot(entry) {
                in_depot += entry.bytes;
            }
        }
        Stats {
            reserved: self.reserved(),
            most_reserved: self.layers.most_reserved,
            held: self.held,
            unfinished,
            idle,
            largest_idle,
            lent_by_depot: layers.depot.stats().held_pages * page - in_depot,
        }
    }

    /// Bytes that are handed out, as they are rounded.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.held
    }

    /// Bytes that are taken from the device now.
    #[must_use]
    pub fn reserved(&self) -> u64 {
        self.layers.cache.from_below()
    }

    /// Most bytes that were taken from the device at any time.
    #[must_use]
    pub fn most_reserved(&self) -> u64 {
        self.layers.most_reserved
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &D {
        &self.layers.device
    }

    /// The device, for what has nothing to do with memory.
    pub fn device_mut(&mut self) -> &mut D {
        &mut self.layers.device
    }

    /// The rules, to be changed: those of lending and waiting hold from the next request on.
    pub fn rules_mut(&mut self) -> &mut super::Rules {
        &mut self.rules
    }
}
