//! Why no report can be made of a plan file.

/// A plan file that no report can be made of.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReportError {
    /// More storages or steps than ids.
    #[error("the plan has {count} {what}, more than the {max} that can be numbered", max = u32::MAX)]
    TooMany {
        /// `storages` or `steps`.
        what: &'static str,
        /// How many there are.
        count: usize,
    },
    /// A storage lies in an arena that does not exist.
    #[error(
        "storage {storage} ({name}) lies in arena {arena}, but the plan has {arenas}; the plan \
         file is damaged: make it again with `tenure plan`"
    )]
    NoSuchArena {
        /// Number of the storage.
        storage: usize,
        /// Its first member.
        name: String,
        /// The arena it names.
        arena: u32,
        /// How many there are.
        arenas: usize,
    },
    /// A life that is not ascending, or that ends after the schedule.
    #[error(
        "storage {storage} ({name}) is held at steps {first} to {last}, which is out of order or \
         after the last of the plan's {steps} steps; the plan file is damaged: make it again with \
         `tenure plan`"
    )]
    BadLife {
        /// Number of the storage.
        storage: usize,
        /// Its first member.
        name: String,
        /// First step of the wrong span.
        first: u32,
        /// Last step of the wrong span.
        last: u32,
        /// How many steps there are.
        steps: usize,
    },
    /// A storage that does not lie inside its arena.
    #[error(
        "storage {storage} ({name}) takes {size} bytes from offset {offset}, past the end of an \
         arena of {arena} bytes; the plan file is damaged: make it again with `tenure plan`"
    )]
    OutsideArena {
        /// Number of the storage.
        storage: usize,
        /// Its first member.
        name: String,
        /// Its first byte.
        offset: u64,
        /// Its bytes.
        size: u64,
        /// Bytes of the arena.
        arena: u64,
    },
    /// The load does not fit in 64 bits.
    #[error("the storages held at step {step} take more than 2^64 bytes together")]
    LoadOverflow {
        /// The step.
        step: usize,
    },
}
