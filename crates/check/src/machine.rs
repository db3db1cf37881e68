//! The memory machine: which value's bytes lie where, on every way through the graph.
//!
//! A segment is a stretch of bytes together with the names of the values whose bytes it holds, and
//! where those begin. What is written there has one name; sharing adds names; where ways through the
//! graph join, only the names remain that all ways agree on.
//!
//! A node with several bodies needs the state before it again for each of them. Changes are
//! written to a log, so that going back costs what was changed and not what there is; and ways
//! are joined over the bytes that they changed alone.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use tenure_graph::ValueId;
use tenure_graph::plan::Item;

use crate::violation::{Memory, Region};

/// Names beyond which a segment takes no more. Forgetting a name is safe: at worst a plan is
/// accused that is right. Each level of nesting adds one or two names, so real plans stay far
/// below.
const MOST_NAMES: usize = 256;

/// A value, and the byte at which its bytes begin.
type Name = (ValueId, u64);

/// Sorted names.
type NameSet = SmallVec<[Name; 2]>;

/// What is written: the names of its bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Content {
    /// Names that mean the same bytes at all times.
    pub(crate) steady: SmallVec<[ValueId; 2]>,
    /// The name of a loop's state, whose bytes change from pass to pass.
    pub(crate) state: Option<ValueId>,
}

impl Content {
    /// All names, where the content begins at a byte.
    fn names(&self, base: u64) -> NameSet {
        let mut names = NameSet::new();
        for &value in self.steady.iter().chain(&self.state) {
            insert(&mut names, (value, base));
        }
        names
    }

    /// Whether writing this to a segment leaves its bytes as they are.
    fn leaves(&self, segment: &Segment, base: u64) -> bool {
        let has = |&value: &ValueId| segment.names.binary_search(&(value, base)).is_ok();
        self.steady.iter().any(has)
    }
}

/// Who wrote last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Writer {
    /// What was written; `None` where the bytes were lost in a gap of their storage's life.
    pub(crate) item: Option<Item>,
    /// When.
    pub(crate) step: u32,
}

/// A stretch of bytes; its first byte is its key in the map.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Segment {
    end: u64,
    names: NameSet,
    writer: Writer,
}

/// A segment taken out of the map.
#[derive(Clone, Debug)]
struct Piece {
    memory: Memory,
    start: u64,
    segment: Segment,
}

impl Piece {
    fn region(&self) -> Region {
        Region {
            memory: self.memory,
            start: self.start,
            end: self.segment.end,
        }
    }
}

/// A state to go back to.
#[derive(Debug)]
struct Frame {
    /// Length of the log then.
    log: usize,
    /// Length of the list of touched bytes then.
    touched: usize,
    /// What the ways that have been taken so far left behind where they touched memory.
    ways: Vec<Vec<Piece>>,
}

/// A change to one key of the map: what was there before.
type Change = (Memory, u64, Option<Segment>);

/// What memory holds.
#[derive(Debug, Default)]
pub(crate) struct Machine {
    segments: BTreeMap<(Memory, u64), Segment>,
    log: Vec<Change>,
    touched: Vec<Region>,
    frames: Vec<Frame>,
}

impl Machine {
    /// Writes all bytes of `region`, whose content begins at `base`.
    ///
    /// Bytes that had one of the steady names already do not change, so they keep all their names.
    pub(crate) fn write(&mut self, region: Region, base: u64, content: &Content, writer: Writer) {
        self.write_beside(region, base, content, writer, |_| false);
    }

    /// The same where those names stay for which this is not written at all.
    pub(crate) fn write_beside(
        &mut self,
        region: Region,
        base: u64,
        content: &Content,
        writer: Writer,
        stays: impl Fn(ValueId) -> bool,
    ) {
        if region.start >= region.end {
            return;
        }
        let kept = |mut piece: Piece| {
            if !content.leaves(&piece.segment, base) {
                piece.segment.names.retain(|name| stays(name.0));
            }
            (!piece.segment.names.is_empty()).then_some(piece)
        };
        let unchanged: SmallVec<[Piece; 1]> =
            pieces_in(&self.segments, region).filter_map(kept).collect();
        let names = content.names(base);
        self.replace(region, names.clone(), writer);
        for mut piece in unchanged {
            for &name in &names {
                insert(&mut piece.segment.names, name);
            }
            self.replace(piece.region(), piece.segment.names, writer);
        }
        self.touch(region);
    }

    /// The bytes of `region` hold `names` and nothing else.
    fn replace(&mut self, region: Region, names: NameSet, writer: Writer) {
        self.clear(region);
        let segment = Segment {
            end: region.end,
            names,
            writer,
        };
        self.set((region.memory, region.start), Some(segment));
    }

    /// Adds a name to all bytes of `region`, where the bytes of that value begin.
    pub(crate) fn name(&mut self, region: Region, name: ValueId, writer: Writer) {
        if region.start >= region.end {
            return;
        }
        self.split(region.memory, region.start);
        self.split(region.memory, region.end);
        let here = (region.memory, region.start)..(region.memory, region.end);
        let old: Vec<(u64, Segment)> = self
            .segments
            .range(here)
            .map(|(&(_, start), segment)| (start, segment.clone()))
            .collect();
        let mut at = region.start;
        for (start, mut segment) in old {
            self.fill(region, at, start, name, writer);
            at = segment.end;
            // A reader that found other bytes there has been told already.
            insert(&mut segment.names, (name, region.start));
            self.set((region.memory, start), Some(segment));
        }
        self.fill(region, at, region.end, name, writer);
        self.touch(region);
    }

    /// The bytes of `region` may or may not be written so: what they hold for certain afterwards is
    /// what they hold now and would hold then.
    pub(crate) fn weaken(&mut self, region: Region, base: u64, content: &Content, writer: Writer) {
        if region.start >= region.end {
            return;
        }
        self.split(region.memory, region.start);
        self.split(region.memory, region.end);
        let names = content.names(base);
        for piece in pieces_in(&self.segments, region).collect::<Vec<_>>() {
            let mut segment = piece.segment;
            if content.leaves(&segment, base) {
                continue;
            }
            let before = segment.names.len();
            let stays = |name: &mut Name| names.binary_search(name).is_ok();
            segment.names.retain(stays);
            if segment.names.len() < before {
                segment.writer = writer;
                self.set((piece.memory, piece.start), Some(segment));
            }
        }
        self.touch(region);
    }

    /// Gives the bytes `from..to`, in which nothing was ever written, a name.
    fn fill(&mut self, region: Region, from: u64, to: u64, name: ValueId, writer: Writer) {
        if from < to {
            let segment = Segment {
                end: to,
                names: SmallVec::from_elem((name, region.start), 1),
                writer,
            };
            self.set((region.memory, from), Some(segment));
        }
    }

    /// The first bytes of `region` that do not hold the bytes of `name`, beginning with the
    /// region, and who wrote there last; `None` if all do.
    pub(crate) fn wrong(&self, region: Region, name: ValueId) -> Option<(Region, Option<Writer>)> {
        if region.start >= region.end {
            return None;
        }
        let mut at = region.start;
        let memory = region.memory;
        let before = self.segments.range(..(memory, at)).next_back();
        let before = before.filter(|((m, _), s)| *m == memory && s.end > region.start);
        let rest = self.segments.range((memory, at)..(memory, region.end));
        for (&(_, start), segment) in before.into_iter().chain(rest) {
            if start > at {
                let end = start;
                return Some((
                    Region {
                        memory,
                        start: at,
                        end,
                    },
                    None,
                ));
            }
            let end = segment.end.min(region.end);
            if segment.names.binary_search(&(name, region.start)).is_err() {
                return Some((
                    Region {
                        memory,
                        start: at,
                        end,
                    },
                    Some(segment.writer),
                ));
            }
            at = end;
        }
        let end = region.end;
        (at < end).then_some((
            Region {
                memory,
                start: at,
                end,
            },
            None,
        ))
    }

    /// Remembers the state, to go back to.
    pub(crate) fn mark(&mut self) {
        self.frames.push(Frame {
            log: self.log.len(),
            touched: self.touched.len(),
            ways: Vec::new(),
        });
    }

    /// Goes back to the last marked state.
    pub(crate) fn rewind(&mut self) {
        let Some(frame) = self.frames.last() else {
            return;
        };
        self.touched.truncate(frame.touched);
        for (memory, start, old) in self.log.drain(frame.log..).rev() {
            match old {
                Some(segment) => self.segments.insert((memory, start), segment),
                None => self.segments.remove(&(memory, start)),
            };
        }
    }

    /// Forgets the last marked state; the present one stays.
    pub(crate) fn unmark(&mut self) {
        self.frames.pop();
        if self.frames.is_empty() {
            self.log.clear();
            self.touched.clear();
        }
    }

    /// Ends one of several ways from the marked state and goes back to it.
    pub(crate) fn end_way(&mut self) {
        let way = self.changes();
        self.rewind();
        if let Some(frame) = self.frames.last_mut() {
            frame.ways.push(way);
        }
    }

    /// Joins all ways that were ended: of the bytes that any of them touched, only what all ways
    /// agree on is known.
    pub(crate) fn join(&mut self) {
        let ways = self.frames.last_mut().map(|f| std::mem::take(&mut f.ways));
        self.unmark();
        for piece in self.agreed(&ways.unwrap_or_default()) {
            let region = piece.region();
            let Segment { names, writer, .. } = piece.segment;
            self.replace(region, names, writer);
            self.touch(region);
        }
    }

    /// What lies in the bytes that were touched since the last mark, in order.
    fn changes(&mut self) -> Vec<Piece> {
        let Some(frame) = self.frames.last() else {
            return Vec::new();
        };
        let touched = &mut self.touched[frame.touched..];
        touched.sort_unstable();
        let mut pieces = Vec::new();
        let mut merged: Option<Region> = None;
        for &mut next in touched {
            match &mut merged {
                Some(m) if m.memory == next.memory && next.start <= m.end => {
                    m.end = m.end.max(next.end);
                }
                _ => {
                    pieces.extend(
                        merged
                            .into_iter()
                            .flat_map(|m| pieces_in(&self.segments, m)),
                    );
                    merged = Some(next);
                }
            }
        }
        pieces.extend(
            merged
                .into_iter()
                .flat_map(|m| pieces_in(&self.segments, m)),
        );
        pieces
    }

    /// The bytes that any way touched, with the names that all ways and, where some way did not
    /// touch them, the state before agree on.
    fn agreed(&self, ways: &[Vec<Piece>]) -> Vec<Piece> {
        // Edges of all pieces, in the order of bytes.
        let mut edges: Vec<(Memory, u64, bool, (usize, usize))> = Vec::new();
        for (w, way) in ways.iter().enumerate() {
            for (p, piece) in way.iter().enumerate() {
                edges.push((piece.memory, piece.start, true, (w, p)));
                edges.push((piece.memory, piece.segment.end, false, (w, p)));
            }
        }
        edges.sort_unstable();
        let mut here: BTreeSet<(usize, usize)> = BTreeSet::new();
        // How many of the pieces here have a name, and where its bytes begin.
        let mut votes: FxHashMap<Name, usize> = FxHashMap::default();
        let mut out: Vec<Piece> = Vec::new();
        for (i, &(memory, at, opens, (w, p))) in edges.iter().enumerate() {
            let segment = &ways[w][p].segment;
            for &name in &segment.names {
                let count = votes.entry(name).or_insert(0);
                if opens {
                    *count += 1;
                } else if *count > 1 {
                    *count -= 1;
                } else {
                    votes.remove(&name);
                }
            }
            if opens {
                here.insert((w, p));
            } else {
                here.remove(&(w, p));
            }
            let (Some(&(w, p)), Some(&(_, next, ..))) = (here.first(), edges.get(i + 1)) else {
                continue;
            };
            if at == next {
                continue;
            }
            let mut segment = ways[w][p].segment.clone();
            segment.end = next;
            let all = |name: &mut Name| votes.get(name) == Some(&here.len());
            segment.names.retain(all);
            let piece = Piece {
                memory,
                start: at,
                segment,
            };
            if here.len() == ways.len() {
                append(&mut out, piece);
            } else {
                self.agree_with_before(piece, &mut out);
            }
        }
        out
    }

    /// Keeps of a piece's names those that the present state has as well.
    fn agree_with_before(&self, piece: Piece, out: &mut Vec<Piece>) {
        let Piece {
            memory, segment, ..
        } = &piece;
        let mut at = piece.start;
        for before in pieces_in(&self.segments, piece.region()) {
            if at < before.start {
                append(out, nameless(&piece, at, before.start));
            }
            let mut agreed = Piece {
                memory: *memory,
                start: before.start,
                segment: segment.clone(),
            };
            agreed.segment.end = before.segment.end;
            let stays = |name: &mut Name| before.segment.names.binary_search(name).is_ok();
            agreed.segment.names.retain(stays);
            at = before.segment.end;
            append(out, agreed);
        }
        if at < segment.end {
            append(out, nameless(&piece, at, segment.end));
        }
    }

    /// Takes everything out of a region.
    fn clear(&mut self, region: Region) {
        self.split(region.memory, region.start);
        self.split(region.memory, region.end);
        let here = (region.memory, region.start)..(region.memory, region.end);
        let keys: SmallVec<[(Memory, u64); 4]> =
            self.segments.range(here).map(|(&key, _)| key).collect();
        for key in keys {
            self.set(key, None);
        }
    }

    /// Cuts the segment that reaches over byte `at` in two.
    fn split(&mut self, memory: Memory, at: u64) {
        let before = self.segments.range(..(memory, at)).next_back();
        let Some((&(m, start), segment)) = before else {
            return;
        };
        if m != memory || segment.end <= at {
            return;
        }
        let right = segment.clone();
        let mut left = segment.clone();
        left.end = at;
        self.set((memory, start), Some(left));
        self.set((memory, at), Some(right));
    }

    fn set(&mut self, key: (Memory, u64), segment: Option<Segment>) {
        let old = match segment {
            Some(segment) => self.segments.insert(key, segment),
            None => self.segments.remove(&key),
        };
        if !self.frames.is_empty() {
            self.log.push((key.0, key.1, old));
        }
    }

    fn touch(&mut self, region: Region) {
        if !self.frames.is_empty() {
            self.touched.push(region);
        }
    }
}

fn insert(names: &mut NameSet, name: Name) {
    if let Err(at) = names.binary_search(&name)
        && names.len() < MOST_NAMES
    {
        names.insert(at, name);
    }
}

/// A part of a piece about whose bytes nothing is known.
fn nameless(piece: &Piece, start: u64, end: u64) -> Piece {
    let mut out = piece.clone();
    out.start = start;
    out.segment.end = end;
    out.segment.names.clear();
    out
}

/// Adds a piece, as a part of the last one if it goes on there with the same content.
fn append(out: &mut Vec<Piece>, piece: Piece) {
    if let Some(last) = out.last_mut()
        && last.memory == piece.memory
        && last.segment.end == piece.start
        && last.segment.names == piece.segment.names
        && last.segment.writer == piece.segment.writer
    {
        last.segment.end = piece.segment.end;
    } else {
        out.push(piece);
    }
}

/// The segments in a region, cut to it.
fn pieces_in(
    segments: &BTreeMap<(Memory, u64), Segment>,
    region: Region,
) -> impl Iterator<Item = Piece> {
    let memory = region.memory;
    let before = segments.range(..(memory, region.start)).next_back();
    let before = before.filter(move |((m, _), s)| *m == memory && s.end > region.start);
    before
        .into_iter()
        .chain(segments.range((memory, region.start)..(memory, region.end)))
        .map(move |(&(memory, start), segment)| {
            let mut segment = segment.clone();
            segment.end = segment.end.min(region.end);
            Piece {
                memory,
                start: start.max(region.start),
                segment,
            }
        })
}
