//! What is known to have happened before what: vector clocks over streams and events.
//!
//! Each stream counts its operations. It knows of every stream up to which operation that one's
//! work is ordered before its own next operation; an event carries what its stream knew when it was
//! recorded, and not what that stream knows when somebody waits. So knowledge is passed on, is
//! never ahead of the truth, and never expires. Any number of streams will do.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Number of an operation of a stream, from 1.
pub(super) type Tick = u64;

/// The last operations of streams, by stream; 0 where none is known. It is as long as it has to be.
type Known = Vec<Tick>;

/// The operations on one piece of memory that are not ordered before one another: for each stream
/// the last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Uses(SmallVec<[(u32, Tick); 2]>);

impl Uses {
    /// No operation.
    pub(super) const NONE: Uses = Uses(SmallVec::new_const());

    /// One operation of a stream; none where it is 0.
    pub(super) fn of(stream: u32, tick: Tick) -> Self {
        let mut uses = Uses::NONE;
        if tick > 0 {
            uses.0.push((stream, tick));
        }
        uses
    }

    /// Streams and the last operation of each, sorted by stream.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, Tick)> {
        self.0.iter().copied()
    }

    /// The operation of a stream, where no other stream has one.
    #[inline]
    pub(super) fn only_of(&self, stream: u32) -> Option<Tick> {
        match self.0[..] {
            [] => Some(0),
            [(s, tick)] if s == stream => Some(tick),
            _ => None,
        }
    }
}

/// All clocks.
#[derive(Clone, Debug)]
pub(super) struct Clocks {
    /// What each stream knows; of itself, all that it has done.
    known: Vec<Known>,
    /// Whether a stream is still there.
    alive: Vec<bool>,
    /// Operations that the host has seen complete.
    done: Known,
    /// What events carry.
    events: FxHashMap<u32, Known>,
}

impl Clocks {
    /// So many streams that have done nothing.
    pub(super) fn new(streams: u32) -> Self {
        let count = usize::try_from(streams).unwrap_or(usize::MAX);
        Clocks {
            known: vec![Known::new(); count],
            alive: vec![true; count],
            done: Known::new(),
            events: FxHashMap::default(),
        }
    }

    /// How many streams there are and were.
    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.known.len()).unwrap_or(u32::MAX)
    }

    /// The stream, where there was never another one and it is still there.
    pub(super) fn only(&self) -> Option<u32> {
        (self.alive[..] == [true]).then_some(0)
    }

    /// Whether there is such a stream.
    pub(super) fn is_alive(&self, stream: u32) -> bool {
        self.alive.get(stream as usize).copied().unwrap_or(false)
    }

    /// The streams that there are.
    pub(super) fn streams(&self) -> impl Iterator<Item = u32> {
        let streams = (0..).zip(&self.alive);
        streams
            .filter(|(_, alive)| **alive)
            .map(|(stream, _)| stream)
    }

    /// The last operation of a stream so far.
    pub(super) fn now(&self, stream: u32) -> Tick {
        at(&self.known[stream as usize], stream)
    }

    fn tick(&mut self, stream: u32) -> Tick {
        let known = &mut self.known[stream as usize];
        if known.len() <= stream as usize {
            known.resize(stream as usize + 1, 0);
        }
        let tick = &mut known[stream as usize];
        *tick = tick.saturating_add(1);
        *tick
    }

    /// The stream does something with memory. What it knows to be ordered before is covered by this
    /// operation.
    #[inline]
    pub(super) fn touch(&mut self, stream: u32, uses: &mut Uses) {
        let tick = self.tick(stream);
        match &mut uses.0[..] {
            [] => uses.0.push((stream, tick)),
            [(only, last)] if *only == stream => *last = tick,
            _ => self.cover(stream, tick, uses),
        }
    }

    fn cover(&self, stream: u32, tick: Tick, uses: &mut Uses) {
        uses.0.retain(|u| u.0 != stream && !self.knows(stream, *u));
        let place = uses.0.partition_point(|u| u.0 < stream);
        uses.0.insert(place, (stream, tick));
    }

    /// Up to which operation of `other` everything comes before the next operation of `stream`.
    pub(super) fn horizon(&self, stream: u32, other: u32) -> Tick {
        let known = at(&self.known[stream as usize], other);
        known.max(at(&self.done, other))
    }

    /// Up to which operation of a stream the host has seen all complete.
    pub(super) fn done(&self, stream: u32) -> Tick {
        at(&self.done, stream)
    }

    #[inline]
    fn knows(&self, stream: u32, (other, tick): (u32, Tick)) -> bool {
        other == stream || tick <= self.horizon(stream, other)
    }

    /// The first use that is not known to come before the next operation of the stream.
    #[inline]
    pub(super) fn first_unknown(&self, stream: u32, uses: &Uses) -> Option<(u32, Tick)> {
        uses.iter().find(|&u| !self.knows(stream, u))
    }

    /// Whether all uses are ordered before the next operation of the stream.
    pub(super) fn is_free_for(&self, stream: u32, uses: &Uses) -> bool {
        self.first_unknown(stream, uses).is_none()
    }

    /// The first use that some stream does not know to come before its next operation.
    pub(super) fn first_unknown_to_any(&self, uses: &Uses) -> Option<(u32, Tick)> {
        let mut streams = self.streams();
        streams.find_map(|stream| self.first_unknown(stream, uses))
    }

    /// The event stands for all that the stream has done and knows by now.
    pub(super) fn record(&mut self, event: u32, stream: u32) {
        self.tick(stream);
        let carried = self.known[stream as usize].clone();
        self.events.insert(event, carried);
    }

    /// The stream goes on when the event has happened; at once if it was never recorded. Gives the
    /// streams of which it knows more then.
    pub(super) fn wait(&mut self, event: u32, stream: u32) -> Vec<u32> {
        let Some(carried) = self.events.get(&event) else {
            return Vec::new();
        };
        let known = &mut self.known[stream as usize];
        let learnt = (0..).zip(carried).filter(|&(s, &t)| t > at(known, s));
        let learnt: Vec<(u32, Tick)> = learnt.map(|(s, &t)| (s, t)).collect();
        for &(other, tick) in &learnt {
            raise(known, other, tick);
        }
        self.tick(stream);
        learnt.into_iter().map(|(other, _)| other).collect()
    }

    /// The host has seen all complete that a stream has done so far, and all that is ordered
    /// before.
    pub(super) fn complete(&mut self, stream: u32) {
        for (other, &tick) in (0..).zip(&self.known[stream as usize]) {
            raise(&mut self.done, other, tick);
        }
    }

    /// The main stream waits for all others, and then they for it.
    pub(super) fn join(&mut self) {
        let mut all = std::mem::take(&mut self.known[0]);
        for known in &self.known {
            for (other, &tick) in (0..).zip(known) {
                raise(&mut all, other, tick);
            }
        }
        self.known[0] = all;
        self.tick(0);
        for stream in 1..self.known.len() {
            if self.alive[stream] {
                self.known[stream] = self.known[0].clone();
                let stream = u32::try_from(stream).unwrap_or(u32::MAX);
                self.tick(stream);
            }
        }
    }

    /// A stream of which the host has seen all complete is no more.
    pub(super) fn end(&mut self, stream: u32) {
        self.alive[stream as usize] = false;
    }
}

fn at(known: &Known, stream: u32) -> Tick {
    known.get(stream as usize).copied().unwrap_or(0)
}

fn raise(known: &mut Known, stream: u32, tick: Tick) {
    let stream = stream as usize;
    if known.len() <= stream {
        known.resize(stream + 1, 0);
    }
    known[stream] = known[stream].max(tick);
}
