//! What is known to have happened before what: vector clocks over streams and events.
//!
//! Each stream counts its operations. It knows of every stream up to which operation that one's
//! work is ordered before its own next operation; an event carries what its stream knew when it was
//! recorded, and not what that stream knows when somebody waits. So knowledge is passed on, is
//! never ahead of the truth, and never expires. Any number of streams will do.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Number of an operation of a stream, from 1.
type Tick = u64;

/// The last operations of streams, by their places in [`Clocks`]; 0 where none is known.
type Known = Vec<Tick>;

/// The operations on one piece of memory that are not ordered before one another: for each stream
/// the last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Uses(SmallVec<[(usize, Tick); 2]>);

impl Uses {
    /// Everything that one of the two has; sorted by stream.
    pub(super) fn add(&mut self, other: &Uses) {
        for &(stream, tick) in &other.0 {
            match self.0.binary_search_by_key(&stream, |u| u.0) {
                Ok(at) => self.0[at].1 = self.0[at].1.max(tick),
                Err(at) => self.0.insert(at, (stream, tick)),
            }
        }
    }

    /// The streams that have used the memory and are not known to have come to the end of it.
    pub(super) fn streams(&self) -> impl Iterator<Item = usize> {
        self.0.iter().map(|u| u.0)
    }

    /// Whether nothing is left to wait for.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// All clocks.
#[derive(Clone, Debug, Default)]
pub(super) struct Clocks {
    /// Places of the streams.
    places: FxHashMap<u32, usize>,
    /// Their numbers, by place.
    numbers: Vec<u32>,
    /// What each stream knows; of itself, all that it has done.
    known: Vec<Known>,
    /// Operations that the host has seen complete.
    done: Known,
    /// What events carry.
    events: FxHashMap<u32, Known>,
}

impl Clocks {
    /// The place of a stream, which exists from now on.
    pub(super) fn stream(&mut self, number: u32) -> usize {
        let next = self.numbers.len();
        let place = *self.places.entry(number).or_insert(next);
        if place == next {
            self.numbers.push(number);
            self.known.push(Known::new());
        }
        place
    }

    /// The number of the stream at a place.
    pub(super) fn number(&self, place: usize) -> u32 {
        self.numbers[place]
    }

    /// The stream does something with memory that was used before. What it knows to be ordered
    /// before is covered by this operation.
    pub(super) fn touch(&mut self, stream: usize, uses: &mut Uses) {
        uses.0.retain(|u| u.0 != stream && !self.knows(stream, *u));
        let tick = at(&self.known[stream], stream).saturating_add(1);
        raise(&mut self.known[stream], stream, tick);
        let mut one = Uses::default();
        one.0.push((stream, tick));
        uses.add(&one);
    }

    fn knows(&self, stream: usize, (other, tick): (usize, Tick)) -> bool {
        other == stream || tick <= at(&self.known[stream], other) || tick <= at(&self.done, other)
    }

    /// Whether all uses are ordered before the next operation of the stream.
    pub(super) fn is_free_for(&self, stream: usize, uses: &Uses) -> bool {
        uses.0.iter().all(|&u| self.knows(stream, u))
    }

    /// Takes out what the host has seen complete.
    pub(super) fn forget_done(&self, uses: &mut Uses) {
        uses.0.retain(|&mut (s, tick)| tick > at(&self.done, s));
    }

    /// The event stands for all that the stream has done and knows by now.
    pub(super) fn record(&mut self, event: u32, stream: usize) {
        self.events.insert(event, self.known[stream].clone());
    }

    /// The stream goes on when the event has happened; at once if it was never recorded.
    pub(super) fn wait(&mut self, event: u32, stream: usize) {
        if let Some(carried) = self.events.get(&event) {
            for (other, &tick) in carried.iter().enumerate() {
                raise(&mut self.known[stream], other, tick);
            }
        }
    }

    /// The host has seen all complete that a stream has done so far, and all that is ordered
    /// before.
    pub(super) fn complete(&mut self, stream: usize) {
        for (other, &tick) in self.known[stream].iter().enumerate() {
            raise(&mut self.done, other, tick);
        }
    }

    /// The places of all streams.
    pub(super) fn streams(&self) -> std::ops::Range<usize> {
        0..self.numbers.len()
    }
}

fn at(known: &Known, stream: usize) -> Tick {
    known.get(stream).copied().unwrap_or(0)
}

fn raise(known: &mut Known, stream: usize, tick: Tick) {
    if known.len() <= stream {
        known.resize(stream + 1, 0);
    }
    known[stream] = known[stream].max(tick);
}
