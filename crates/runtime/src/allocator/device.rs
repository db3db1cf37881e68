//! What is below all layers: the device that memory comes from.

use std::collections::BTreeMap;

use super::pages::{Piece, Source, SpanId};

/// What a device does for the allocator.
pub trait Device {
    /// Takes so many bytes from the device and gives their address; `None` when it has not so many.
    fn take(&mut self, bytes: u64) -> Option<u64>;

    /// Gives back what [`take`](Device::take) has given.
    fn give_back(&mut self, address: u64, bytes: u64);

    /// Waits until all work on a stream so far is done.
    fn wait_for(&mut self, stream: u32);

    /// Copies bytes, which do not overlap, as the next operation of a stream.
    fn copy(&mut self, from: u64, to: u64, bytes: u64, stream: u32);
}

/// A device as the lowest layer.
pub struct Bottom<'a, D> {
    device: &'a mut D,
    /// Bytes that may still be taken.
    room: u64,
}

impl<'a, D> Bottom<'a, D> {
    /// A device from which so many bytes may be taken.
    pub fn new(device: &'a mut D, room: u64) -> Self {
        Bottom { device, room }
    }
}

impl<D: Device> Source for Bottom<'_, D> {
    fn take(&mut self, bytes: u64) -> Option<Piece> {
        let room = self.room.checked_sub(bytes)?;
        let address = self.device.take(bytes)?;
        self.room = room;
        Some(Piece {
            address,
            bytes,
            below: SpanId::default(),
        })
    }

    fn give_back(&mut self, piece: Piece, _: u64) {
        self.room = self.room.saturating_add(piece.bytes);
        self.device.give_back(piece.address, piece.bytes);
    }
}

/// A device that is a number of bytes and no more: addresses without memory behind them, and work
/// that is always done. It counts what is asked of it.
#[derive(Clone, Debug, Default)]
pub struct Budget {
    /// Bytes that it has; `None` is no bound.
    limit: Option<u64>,
    refuses: bool,
    /// The first address that was never given out.
    next: u64,
    /// What was given back, by address.
    free: BTreeMap<u64, u64>,
    counts: BudgetCounts,
}

/// What was asked of a [`Budget`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BudgetCounts {
    /// Bytes that are taken now.
    pub used: u64,
    /// How often memory was taken.
    pub takes: u64,
    /// How often memory was given back.
    pub returns: u64,
    /// How often the host waited for a stream.
    pub waits: u64,
    /// Bytes that were copied.
    pub copied: u64,
}

impl Budget {
    /// A device of so many bytes; of any number where `limit` is `None`.
    #[must_use]
    pub fn new(limit: Option<u64>) -> Self {
        Budget {
            limit,
            ..Budget::default()
        }
    }

    /// Whether it refuses everything from now on.
    pub fn refuse(&mut self, refuses: bool) {
        self.refuses = refuses;
    }

    /// What was asked of it.
    #[must_use]
    pub fn counts(&self) -> BudgetCounts {
        self.counts
    }
}

impl Device for Budget {
    fn take(&mut self, bytes: u64) -> Option<u64> {
        let used = self.counts.used.checked_add(bytes)?;
        if self.refuses || self.limit.is_some_and(|limit| used > limit) {
            return None;
        }
        let again = self.free.iter().find(|(_, b)| **b == bytes);
        let address = match again.map(|(&address, _)| address) {
            Some(address) => {
                self.free.remove(&address);
                address
            }
            None => {
                let address = self.next;
                self.next = address.checked_add(bytes)?;
                address
            }
        };
        self.counts.used = used;
        self.counts.takes += 1;
        Some(address)
    }

    fn give_back(&mut self, address: u64, bytes: u64) {
        self.counts.used = self.counts.used.saturating_sub(bytes);
        self.counts.returns += 1;
        self.free.insert(address, bytes);
    }

    fn wait_for(&mut self, _: u32) {
        self.counts.waits += 1;
    }

    fn copy(&mut self, _: u64, _: u64, bytes: u64, _: u32) {
        self.counts.copied = self.counts.copied.saturating_add(bytes);
    }
}
