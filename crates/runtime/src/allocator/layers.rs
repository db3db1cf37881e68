//! Page allocators on one another: what is the device for one layer is the layer below.
//!
//! ```text
//! device ─► cache: what the host has seen done, for whoever asks
//!             └─► depot: what every stream of this run may have
//!                   └─► a pool for each stream: what comes next on that stream may have
//! ```
//!
//! A run on one stream has no pools: it takes from the depot. Stamps are operations of the stream
//! of a pool, of the main stream in the depot, and 0 in the cache.

use super::clocks::Tick;
use super::device::{Bottom, Device};
use super::pages::{PagePool, PageRules, Piece, Source, SpanId};

/// How far an allocation goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effort {
    /// As the rules say.
    Usual,
    /// When there is no more, large roots are cut although the rules would wait.
    Cuts,
}

/// A layer that memory is handed out from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Home {
    /// The pool of a stream.
    Pool(u32),
    /// The depot.
    Depot,
}

/// A layer as the source of the one above.
struct Layer<'a> {
    pool: &'a mut PagePool,
    below: &'a mut dyn Source,
    effort: Effort,
    /// Whether it gives idle roots back when there is no more below, and asks again. Only the cache
    /// can: nobody has to wait for what is in it.
    recycles: bool,
    /// Until when memory was used that is given back, in the time of this layer.
    stamp: Tick,
}

impl Layer<'_> {
    fn span(&mut self, bytes: u64) -> Option<SpanId> {
        if let Some(span) = self.pool.take(bytes) {
            return Some(span);
        }
        if let Ok(span) = self.pool.grow(bytes, self.below) {
            return Some(span);
        }
        if self.effort == Effort::Cuts
            && let Some(span) = self.pool.take_idle(bytes, Tick::MAX)
        {
            return Some(span);
        }
        if !self.recycles || self.pool.recycle(Tick::MAX, self.below) == 0 {
            return None;
        }
        self.pool.grow(bytes, self.below).ok()
    }
}

impl Source for Layer<'_> {
    fn take(&mut self, bytes: u64) -> Option<Piece> {
        let below = self.span(bytes)?;
        let address = self.pool.range(below).ok()?.start;
        Some(Piece {
            address,
            bytes,
            below,
        })
    }

    fn give_back(&mut self, piece: Piece, _: Tick) {
        let freed = self.pool.free(piece.below, self.stamp);
        debug_assert!(freed.is_ok(), "a piece is given back once");
    }
}

/// All layers.
#[derive(Clone, Debug)]
pub(super) struct Layers<D> {
    pub(super) device: D,
    /// Most bytes from the device.
    limit: u64,
    pub(super) cache: PagePool,
    pub(super) depot: PagePool,
    /// None where there is one stream.
    pub(super) pools: Vec<PagePool>,
    pub(super) most_reserved: u64,
}

impl<D: Device> Layers<D> {
    /// Layers that have taken nothing yet; pieces from the device have at least so many bytes.
    pub(super) fn new(
        rules: PageRules,
        least_piece: u64,
        limit: Option<u64>,
        device: D,
        streams: u32,
    ) -> Self {
        let pools = if streams > 1 { streams } else { 0 };
        Layers {
            device,
            limit: limit.unwrap_or(u64::MAX),
            cache: PagePool::new(PageRules {
                least_piece,
                ..rules
            }),
            depot: PagePool::new(rules),
            pools: (0..pools).map(|_| PagePool::new(rules)).collect(),
            most_reserved: 0,
        }
    }

    /// The layer that a stream takes from.
    pub(super) fn home_of(&self, stream: u32) -> Home {
        if self.pools.is_empty() {
            Home::Depot
        } else {
            Home::Pool(stream)
        }
    }

    pub(super) fn layer(&self, home: Home) -> &PagePool {
        match home {
            Home::Pool(stream) => &self.pools[stream as usize],
            Home::Depot => &self.depot,
        }
    }

    pub(super) fn layer_mut(&mut self, home: Home) -> &mut PagePool {
        match home {
            Home::Pool(stream) => &mut self.pools[stream as usize],
            Home::Depot => &mut self.depot,
        }
    }

    /// A span goes back to its layer, used until `stamp`.
    #[inline]
    pub(super) fn put_back(&mut self, home: Home, span: SpanId, stamp: Tick) {
        let freed = self.layer_mut(home).free(span, stamp);
        debug_assert!(freed.is_ok(), "a span is held once");
    }

    /// Takes memory for a layer from those below it.
    pub(super) fn grow(&mut self, home: Home, bytes: u64, effort: Effort) -> Option<SpanId> {
        let reserved = self.cache.from_below();
        let mut bottom = Bottom::new(&mut self.device, self.limit.saturating_sub(reserved));
        let mut cache = Layer {
            pool: &mut self.cache,
            below: &mut bottom,
            effort,
            recycles: true,
            stamp: 0,
        };
        let span = match home {
            Home::Depot => self.depot.grow(bytes, &mut cache).ok(),
            Home::Pool(stream) => {
                let mut depot = Layer {
                    pool: &mut self.depot,
                    below: &mut cache,
                    effort,
                    recycles: false,
                    stamp: 0,
                };
                let pool = &mut self.pools[stream as usize];
                pool.grow(bytes, &mut depot).ok()
            }
        };
        self.most_reserved = self.most_reserved.max(self.cache.from_below());
        span.or_else(|| match effort {
            Effort::Usual => None,
            Effort::Cuts => self.layer_mut(home).take_idle(bytes, Tick::MAX),
        })
    }

    /// Gives whole roots of a pool that were used until `until` to the depot, used until `stamp` of
    /// the main stream.
    pub(super) fn recycle_pool(&mut self, stream: u32, until: Tick, stamp: Tick) -> u64 {
        let mut depot = Layer {
            pool: &mut self.depot,
            below: &mut Bottom::new(&mut self.device, 0),
            effort: Effort::Usual,
            recycles: false,
            stamp,
        };
        match self.pools.get_mut(stream as usize) {
            Some(pool) => pool.recycle(until, &mut depot),
            None => 0,
        }
    }

    /// Gives whole roots of the depot that were used until `until` to the cache; the host has seen
    /// that done.
    pub(super) fn recycle_depot(&mut self, until: Tick) -> u64 {
        let mut cache = Layer {
            pool: &mut self.cache,
            below: &mut Bottom::new(&mut self.device, 0),
            effort: Effort::Usual,
            recycles: false,
            stamp: 0,
        };
        self.depot.recycle(until, &mut cache)
    }

    /// Gives whole roots of the cache to the device.
    pub(super) fn recycle_cache(&mut self) -> u64 {
        let bottom = &mut Bottom::new(&mut self.device, 0);
        self.cache.recycle(Tick::MAX, bottom)
    }
}
