//! Blocks that nobody holds and that are not home yet: some stream may still use them, as far as
//! is known where they belong.
//!
//! Each waits for one use at a time, the first that is not known there. Only when more is known of
//! that very stream is it looked at again, so a wait costs nothing for blocks that it is not about.

use std::collections::BTreeSet;

use super::clocks::Tick;

/// Who must know of the end of all uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Knower {
    /// One stream.
    Stream(u32),
    /// Every stream.
    All,
    /// Nobody: there is nothing to know.
    Nobody,
}

/// What a block waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Wait {
    /// Who must know.
    pub(super) knower: Knower,
    /// Of which stream.
    pub(super) stream: u32,
    /// That it has come to which operation.
    pub(super) tick: Tick,
}

/// All such blocks.
#[derive(Clone, Debug, Default)]
pub(super) struct Released {
    waiting: BTreeSet<(Wait, u32)>,
    /// Blocks that another stream may borrow, by bytes.
    lendable: BTreeSet<(u64, u32)>,
}

impl Released {
    /// A block waits.
    pub(super) fn park(&mut self, wait: Wait, block: u32) {
        self.waiting.insert((wait, block));
    }

    /// A block that waited for this waits no more.
    pub(super) fn unpark(&mut self, wait: Wait, block: u32) {
        self.waiting.remove(&(wait, block));
    }

    /// Blocks that wait for this or for an earlier operation of the same stream. They wait no more.
    pub(super) fn due(&mut self, wait: Wait) -> Vec<u32> {
        self.take(Wait { tick: 0, ..wait }, wait)
    }

    /// Blocks that wait until somebody knows something. They wait no more.
    pub(super) fn all_of(&mut self, knower: Knower) -> Vec<u32> {
        let wait = |stream, tick| Wait {
            knower,
            stream,
            tick,
        };
        self.take(wait(0, 0), wait(u32::MAX, Tick::MAX))
    }

    fn take(&mut self, first: Wait, last: Wait) -> Vec<u32> {
        let due = self.waiting.range((first, 0)..=(last, u32::MAX));
        let due: Vec<_> = due.copied().collect();
        for entry in &due {
            self.waiting.remove(entry);
        }
        due.into_iter().map(|entry| entry.1).collect()
    }

    /// All blocks, by number. They wait no more.
    pub(super) fn all(&mut self) -> Vec<u32> {
        let all = std::mem::take(&mut self.waiting);
        let mut all: Vec<u32> = all.into_iter().map(|entry| entry.1).collect();
        all.sort_unstable();
        all
    }

    /// The streams that blocks wait for; one may come more than once.
    pub(super) fn streams(&self) -> impl Iterator<Item = u32> {
        self.waiting.iter().map(|entry| entry.0.stream)
    }

    /// Another stream may borrow a block.
    pub(super) fn lend(&mut self, bytes: u64, block: u32) {
        self.lendable.insert((bytes, block));
    }

    /// Nobody may borrow a block any more.
    pub(super) fn recall(&mut self, bytes: u64, block: u32) {
        self.lendable.remove(&(bytes, block));
    }

    /// Blocks of at least so many bytes that may be borrowed, the smallest first.
    pub(super) fn lendable(&self, bytes: u64) -> impl Iterator<Item = u32> {
        self.lendable.range((bytes, 0)..).map(|entry| entry.1)
    }
}
