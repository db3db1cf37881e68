//! Compaction: live blocks move together, so that roots become whole and can go to the device.
//!
//! It is done when the caller asks for it, and it begins and ends with the host waiting for all
//! streams: after a model was loaded, between runs when [`Stats::fragmentation`] is high, or when a
//! request was refused and is to be made again. It is never done within a run.
//!
//! Only blocks move that the caller has declared movable: it asks for their addresses again
//! afterwards. Blocks whose addresses somebody keeps, results, and memory of the caller stay.
//!
//! Within each layer the roots with the fewest held bytes are emptied first, each whole or not at
//! all, its largest block first into the smallest hole that is large enough in another root. The
//! cost is the bytes that are copied; each root costs at most what it gives back.
//!
//! [`Stats::fragmentation`]: super::Stats::fragmentation

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

use super::blocks::{Block, Memory};
use super::clocks::Uses;
use super::layers::Home;
use super::pages::SpanId;
use super::{AllocError, Allocator, Device};

/// A block that has moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// The block.
    pub block: Block,
    /// Where it was.
    pub from: Range<u64>,
    /// Where it is.
    pub to: Range<u64>,
}

impl<D: Device> Allocator<D> {
    /// Says that a block may be moved by [`compact`](Self::compact), or that it may not.
    ///
    /// # Errors
    /// [`AllocError::NotHeld`].
    pub fn set_movable(&mut self, block: Block, movable: bool) -> Result<(), AllocError> {
        self.blocks.held(block)?.movable = movable;
        Ok(())
    }

    /// Moves blocks together, and gives to the device what is whole then. The host waits for all
    /// streams before and for the copies after; no more than `most` bytes are copied. Gives what has
    /// moved, in the order of the copies.
    pub fn compact(&mut self, most: u64) -> Vec<Move> {
        self.sync_all();
        self.trim();
        let pools = 0..u32::try_from(self.layers.pools.len()).unwrap_or(u32::MAX);
        let mut work = Work {
            left: most,
            moves: Vec::new(),
            emptied: Vec::new(),
        };
        for home in pools.map(Home::Pool).chain([Home::Depot]) {
            self.compact_layer(home, &mut work);
        }
        if !work.moves.is_empty() {
            self.complete(0);
            for (home, span) in work.emptied {
                self.layers.put_back(home, span, 0);
            }
            self.trim();
        }
        work.moves
    }

    fn compact_layer(&mut self, home: Home, work: &mut Work) {
        let movable = self.blocks.iter().filter(|(_, e)| e.movable && !e.exported);
        let movable = movable.filter_map(|(block, entry)| match entry.memory {
            Memory::Span(at, span) if at == home && entry.is_held() => Some((span, block)),
            _ => None,
        });
        let movable: BTreeMap<SpanId, Block> = movable.collect();
        for held in self.layers.layer(home).held_by_root() {
            let blocks = held.iter().map(|span| movable.get(span).copied());
            if let Some(blocks) = blocks.collect::<Option<Vec<Block>>>() {
                self.empty_root(home, &held, blocks, work);
            }
        }
    }

    /// Moves all blocks out of a root, or none.
    fn empty_root(&mut self, home: Home, held: &[SpanId], mut blocks: Vec<Block>, work: &mut Work) {
        let size = |block: &Block| self.blocks.get(*block).map_or(0, |e| e.bytes);
        let sum = blocks.iter().map(size).sum::<u64>();
        if sum > work.left {
            return;
        }
        blocks.sort_by_key(|block| (Reverse(size(block)), *block));
        let sizes: Vec<u64> = blocks.iter().map(size).collect();
        let layer = self.layers.layer_mut(home);
        let Some(Ok(root)) = held.first().map(|&span| layer.hold_idle_of_root(span)) else {
            return;
        };
        // No block moves within the root, and none back into one that was emptied; and a root
        // into which others have moved stays.
        let mut places = Vec::with_capacity(blocks.len());
        if root.others == held.len() {
            let found = sizes.iter().map_while(|&b| layer.take_idle(b, u64::MAX));
            places.extend(found);
        }
        if places.len() < blocks.len() {
            for span in places.into_iter().chain(root.idle) {
                let freed = layer.free(span, 0);
                debug_assert!(freed.is_ok(), "a span is held once");
            }
            return;
        }
        work.left -= sum;
        work.emptied
            .extend(root.idle.into_iter().map(|span| (home, span)));
        for (block, place) in blocks.into_iter().zip(places) {
            self.move_block(home, block, place, work);
        }
    }

    fn move_block(&mut self, home: Home, block: Block, place: SpanId, work: &mut Work) {
        let to = self.layers.layer(home).range(place);
        let (Ok(to), Ok(entry)) = (to, self.blocks.held(block)) else {
            return;
        };
        let from = entry.address..entry.address + entry.bytes;
        if let Memory::Span(_, old) = entry.memory {
            work.emptied.push((home, old));
        }
        entry.memory = Memory::Span(home, place);
        entry.address = to.start;
        // All that was done with either is over when the copy is.
        entry.uses = Uses::default();
        self.layers
            .device
            .copy(from.start, to.start, entry.bytes, 0);
        work.moves.push(Move { block, from, to });
    }
}

/// What compaction has done so far.
struct Work {
    /// Bytes that may still be copied.
    left: u64,
    moves: Vec<Move>,
    /// What is free when the copies are done.
    emptied: Vec<(Home, SpanId)>,
}
