//! What the allocator refuses.

use super::Block;

/// What is refused. The allocator is then as it was; only idle memory may have gone back to the
/// device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllocError {
    /// There is no more memory, though all was given back that could be.
    #[error(
        "{bytes} bytes on stream {stream} cannot be had: of {reserved} bytes from the device {held} are held, {unfinished} are freed and not known to be done with, and {idle} are idle, {largest} in one piece; free some, wait for the streams that still use it, or ask for less"
    )]
    OutOfMemory {
        /// Bytes asked for.
        bytes: u64,
        /// The stream.
        stream: u32,
        /// Bytes that are handed out.
        held: u64,
        /// Bytes that nobody holds and that may still be used.
        unfinished: u64,
        /// Bytes that are idle.
        idle: u64,
        /// Bytes of the largest idle piece.
        largest: u64,
        /// Bytes that were taken from the device.
        reserved: u64,
    },
    /// A block that was freed, or that this allocator never handed out.
    #[error(
        "block {}.{} is not held: it was freed before, or is of another allocator",
        block.index, block.version
    )]
    NotHeld {
        /// The block.
        block: Block,
    },
    /// A stream frees or shares what it does not hold.
    #[error(
        "block {}.{} is not held by stream {stream}: free it on the streams that hold it",
        block.index, block.version
    )]
    NoHolder {
        /// The block.
        block: Block,
        /// The stream.
        stream: u32,
    },
    /// More holders than can be counted.
    #[error("block {}.{} has too many holders", block.index, block.version)]
    TooManyHolders {
        /// The block.
        block: Block,
    },
    /// A stream gets access to a block from itself.
    #[error("stream {stream} cannot get a block from itself: share it instead")]
    SameStream {
        /// The stream.
        stream: u32,
    },
    /// A stream that there is not, or not any more.
    #[error("there is no stream {stream}: {streams} were made, and some may have ended")]
    NoSuchStream {
        /// The stream.
        stream: u32,
        /// How many were made.
        streams: u32,
    },
    /// A stream cannot end while it holds blocks.
    #[error("stream {stream} still holds {blocks} blocks: free them first")]
    StreamHolds {
        /// The stream.
        stream: u32,
        /// How many blocks.
        blocks: u64,
    },
    /// The main stream cannot end before the others.
    #[error("stream 0 is the main stream: end the others first")]
    MainStream,
    /// A block that the caller does not have as a result.
    #[error("block {}.{} was not given to the caller", block.index, block.version)]
    NotExported {
        /// The block.
        block: Block,
    },
}
