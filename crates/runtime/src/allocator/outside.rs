//! Memory that comes from the caller, and memory that the caller takes with it.
//!
//! Neither is ever lent, and neither is handed out as long as it is the caller's.

use std::ops::Range;

use super::blocks::{Block, Memory};
use super::clocks::Uses;
use super::layers::{Effort, Home};
use super::pages::{PageError, SpanId};
use super::{AllocError, Allocator, Device};

impl<D: Device> Allocator<D> {
    /// Memory of the caller becomes a block that a stream holds. When nobody holds it any more and
    /// this stream knows that all uses are done, [`take_dropped`](Self::take_dropped) gives it back.
    ///
    /// # Errors
    /// [`AllocError::NoSuchStream`]; [`AllocError::OutOfMemory`] when there are as many blocks as
    /// can be counted.
    pub fn wrap(&mut self, memory: Range<u64>, stream: u32) -> Result<Block, AllocError> {
        self.check(stream)?;
        let range = memory.start..memory.end.max(memory.start);
        if !self.blocks.has_room() {
            return Err(self.out_of_memory(range.end - range.start, stream));
        }
        Ok(self.hold(Memory::Outside(stream), range, Uses::default(), stream))
    }

    /// The wrapped blocks that came back since this was asked last. What happens to them then, also
    /// to other blocks of this allocator, is up to the caller.
    pub fn take_dropped(&mut self) -> Vec<Block> {
        std::mem::take(&mut self.dropped)
    }

    /// A block is a result and is the caller's, too, until [`drop_export`](Self::drop_export). Gives
    /// its addresses from now on.
    ///
    /// A root of a pool is handed to the depot as it is, so that the pool may end. A part of a root
    /// that only one stream holds is copied on that stream, so that the root can be whole again;
    /// when others have its address it stays where it is.
    ///
    /// # Errors
    /// [`AllocError::NotHeld`].
    pub fn export(&mut self, block: Block) -> Result<Range<u64>, AllocError> {
        let entry = self.blocks.held(block)?;
        if let Memory::Span(Home::Pool(stream), span) = entry.memory
            && !entry.exported
        {
            let moved = self.layers.pools[stream as usize].move_out(span);
            match moved {
                Ok(piece) => entry.memory = Memory::Span(Home::Depot, piece.below),
                Err(PageError::Part) => self.copy_out(block)?,
                Err(_) => return Err(AllocError::NotHeld { block }),
            }
        }
        self.blocks.held(block)?.exported = true;
        self.range(block)
    }

    /// Copies a block to the depot if only one stream holds it, once, and there is room.
    fn copy_out(&mut self, block: Block) -> Result<(), AllocError> {
        let entry = self.blocks.held(block)?;
        let [(stream, 1)] = entry.holders[..] else {
            return Ok(());
        };
        let bytes = entry.bytes;
        let span = self.layers.depot.take(bytes);
        let span = span.or_else(|| self.layers.grow(Home::Depot, bytes, Effort::Usual));
        let Some(span) = span else {
            return Ok(());
        };
        if !self.blocks.has_room() {
            return self.put_back(span, block);
        }
        let to = self.layers.depot.range(span);
        let to = to.map_err(|_| AllocError::NotHeld { block })?;
        let entry = self.blocks.held(block)?;
        let from = entry.address;
        self.clocks.touch(stream, &mut entry.uses);
        self.layers.device.copy(from, to.start, bytes, stream);
        let left = (entry.memory, from..from + bytes);
        let memory = Memory::Span(Home::Depot, span);
        (entry.memory, entry.address) = (memory, to.start);
        let uses = std::mem::take(&mut entry.uses);
        self.clocks.touch(stream, &mut entry.uses);
        let left = self.blocks.insert(left.0, left.1, uses, None);
        self.settle(left.index);
        Ok(())
    }

    fn put_back(&mut self, span: SpanId, block: Block) -> Result<(), AllocError> {
        let freed = self.layers.depot.free(span, 0);
        freed.map_err(|_| AllocError::NotHeld { block })
    }

    /// The caller needs a result no more; it has read all that it wants.
    ///
    /// # Errors
    /// [`AllocError::NotExported`], [`AllocError::NotHeld`].
    pub fn drop_export(&mut self, block: Block) -> Result<(), AllocError> {
        let entry = self.blocks.held(block)?;
        if !entry.exported {
            return Err(AllocError::NotExported { block });
        }
        entry.exported = false;
        self.let_go(block);
        Ok(())
    }
}
