//! Blocks by handle. A handle has the place of its block and how often that place was given out, so
//! that one that is kept too long stands for nothing.

use std::ops::Range;

use smallvec::SmallVec;

use super::AllocError;
use super::clocks::Uses;
use super::layers::Home;
use super::pages::SpanId;
use super::released::Wait;

/// A block that was handed out. After its memory went back it stands for nothing, also when the
/// memory is handed out again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block {
    pub(super) index: u32,
    /// Raised whenever the place is given up; never lowered.
    pub(super) version: u64,
}

/// What a block is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Memory {
    /// Nothing: it has 0 bytes.
    Nothing,
    /// A span of one of the layers.
    Span(Home, SpanId),
    /// Memory of the caller that came to a stream.
    Outside(u32),
}

/// A block with holders, or one whose uses are not known to have ended where it must go back.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) memory: Memory,
    pub(super) address: u64,
    pub(super) bytes: u64,
    /// Streams that hold it, and how often each.
    pub(super) holders: SmallVec<[(u32, u32); 2]>,
    pub(super) uses: Uses,
    /// Whether the caller has it as a result.
    pub(super) exported: bool,
    /// Whether it may be moved between runs.
    pub(super) movable: bool,
    /// What it waits for when nobody has it.
    pub(super) waits: Option<Wait>,
}

impl Entry {
    /// Held by one stream, once, or by none, and as it is when it is new.
    fn hold_anew(&mut self, holder: Option<u32>) {
        self.holders.clear();
        if let Some(stream) = holder {
            self.holders.push((stream, 1));
        }
        self.movable = false;
        self.waits = None;
    }

    /// Whether somebody has it.
    pub(super) fn is_held(&self) -> bool {
        !self.holders.is_empty() || self.exported
    }

    /// How often a stream holds it.
    pub(super) fn held_by(&self, stream: u32) -> u32 {
        let holder = self.holders.iter().find(|h| h.0 == stream);
        holder.map_or(0, |h| h.1)
    }
}

/// A place for a block. One that was given up keeps its entry, and the room of its lists, for the
/// next: a block that comes and goes moves nothing.
#[derive(Clone, Debug)]
struct Slot {
    version: u64,
    taken: bool,
    entry: Entry,
}

impl Slot {
    const VACANT: Slot = Slot {
        version: 0,
        taken: false,
        entry: Entry {
            memory: Memory::Nothing,
            address: 0,
            bytes: 0,
            holders: SmallVec::new_const(),
            uses: Uses::NONE,
            exported: false,
            movable: false,
            waits: None,
        },
    };

    fn entry(&self) -> Option<&Entry> {
        self.taken.then_some(&self.entry)
    }

    fn entry_mut(&mut self) -> Option<&mut Entry> {
        self.taken.then_some(&mut self.entry)
    }
}

/// All blocks.
#[derive(Clone, Debug, Default)]
pub(super) struct Blocks {
    slots: Vec<Slot>,
    vacant: Vec<u32>,
}

impl Blocks {
    /// Whether there is a place for another block.
    pub(super) fn has_room(&self) -> bool {
        !self.vacant.is_empty() || u32::try_from(self.slots.len()).is_ok()
    }

    /// A new block; [`has_room`](Self::has_room) says whether there can be one. `holder` is the
    /// stream that holds it, once.
    #[inline]
    pub(super) fn insert(
        &mut self,
        memory: Memory,
        range: Range<u64>,
        uses: Uses,
        holder: Option<u32>,
    ) -> Block {
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(Slot::VACANT);
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        });
        let slot = &mut self.slots[index as usize];
        slot.taken = true;
        let entry = &mut slot.entry;
        entry.memory = memory;
        entry.address = range.start;
        entry.bytes = range.end - range.start;
        entry.uses = uses;
        entry.exported = false;
        entry.hold_anew(holder);
        Block {
            index,
            version: slot.version,
        }
    }

    /// The block at a place is no more; its memory is that of a new one, which a stream holds.
    pub(super) fn renew(&mut self, index: u32, holder: u32) -> Option<Block> {
        let slot = self.slots.get_mut(index as usize).filter(|s| s.taken)?;
        slot.version = slot.version.saturating_add(1);
        slot.entry.hold_anew(Some(holder));
        self.handle(index)
    }

    /// The block at a place is no more.
    #[inline]
    pub(super) fn remove(&mut self, index: u32) {
        if let Some(slot) = self.slots.get_mut(index as usize).filter(|s| s.taken) {
            slot.taken = false;
            slot.version = slot.version.saturating_add(1);
            self.vacant.push(index);
        }
    }

    /// The block at a place.
    #[inline]
    pub(super) fn at(&self, index: u32) -> Option<&Entry> {
        self.slots.get(index as usize)?.entry()
    }

    /// The block at a place, to be changed.
    #[inline]
    pub(super) fn at_mut(&mut self, index: u32) -> Option<&mut Entry> {
        self.slots.get_mut(index as usize)?.entry_mut()
    }

    /// The handle of the block at a place.
    pub(super) fn handle(&self, index: u32) -> Option<Block> {
        let slot = self.slots.get(index as usize)?;
        let version = slot.version;
        slot.taken.then_some(Block { index, version })
    }

    /// The block of a handle, whether somebody holds it or not.
    pub(super) fn get(&self, block: Block) -> Result<&Entry, AllocError> {
        let slot = self.slots.get(block.index as usize);
        let slot = slot.filter(|slot| slot.version == block.version);
        let entry = slot.and_then(Slot::entry);
        entry.ok_or(AllocError::NotHeld { block })
    }

    /// The block of a handle that somebody holds.
    #[inline]
    pub(super) fn held(&mut self, block: Block) -> Result<&mut Entry, AllocError> {
        let slot = self.slots.get_mut(block.index as usize);
        let slot = slot.filter(|slot| slot.version == block.version);
        let entry = slot.and_then(Slot::entry_mut);
        let entry = entry.filter(|entry| entry.is_held());
        entry.ok_or(AllocError::NotHeld { block })
    }

    /// All blocks.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Block, &Entry)> {
        (0..).zip(&self.slots).filter_map(|(index, slot)| {
            let version = slot.version;
            Some((Block { index, version }, slot.entry()?))
        })
    }
}
