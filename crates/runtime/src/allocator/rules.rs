//! How the allocator takes, cuts, lends and waits.

use super::pages::Split;

/// When a stream may have memory that belongs to the pool of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lend {
    /// As soon as it is known to be done with, before more is taken from the device: the least
    /// memory.
    First,
    /// When nothing else is left: pools stay apart for longer, and a run on other streams finds its
    /// own memory again.
    WhenFull,
}

/// What an allocation waits for on the host when there is no memory otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Waits {
    /// Nothing.
    Never,
    /// Streams whose pools have roots that are idle as a whole.
    Pools,
    /// Those, and then streams that may still use what nobody holds any more, or whose pools have
    /// parts of roots.
    All,
}

/// How memory is taken from the device and handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Bytes of a page: sizes are rounded up to a multiple; 0 counts as 1.
    pub granularity: u64,
    /// At least so many bytes are taken from the device at once; 0: as many as are asked for.
    pub segment_bytes: u64,
    /// Most bytes that are taken from the device.
    pub limit: Option<u64>,
    /// Most bytes of one layer, as long as it has idle memory; see [`PageRules`].
    ///
    /// [`PageRules`]: super::pages::PageRules::threshold
    pub threshold: Option<u64>,
    /// When larger spans are cut.
    pub split: Split,
    /// When streams lend.
    pub lend: Lend,
    /// What is waited for.
    pub waits: Waits,
    /// Most idle bytes that are kept at the end of a run; `None`: all.
    pub keep_idle: Option<u64>,
}

impl Default for Rules {
    /// The least memory: pages of 512 bytes, pieces of what is asked for, every cut and every loan
    /// that is possible.
    fn default() -> Self {
        Rules {
            granularity: 512,
            segment_bytes: 0,
            limit: None,
            threshold: None,
            split: Split::Always,
            lend: Lend::First,
            waits: Waits::All,
            keep_idle: None,
        }
    }
}

impl Rules {
    /// Large pages, and pools that stay apart: fewer and larger requests to the device, no stream
    /// that waits for another one's work.
    #[must_use]
    pub fn apart() -> Self {
        Rules {
            granularity: 64 << 10,
            segment_bytes: 2 << 20,
            split: Split::Delayed(1),
            lend: Lend::WhenFull,
            waits: Waits::Pools,
            ..Rules::default()
        }
    }
}
