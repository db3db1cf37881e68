//! Whether what is written in one memory can come between a content of another and its reader.
//!
//! At most 64 writes are compared with all stretches by one walk in each direction, so that a
//! question takes time in proportion to the edges for every 64 of them.

use tenure_graph::ValueId;
use tenure_graph::effects::Alias;

use super::moments::{BATCH, Batch, Moments};
use super::uses::{Stretch, Uses, Write};

/// Something is written while another content is needed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clash {
    pub(super) kept: Stretch,
    pub(super) over: Write,
}

/// How the writes in one memory stand to the contents of another.
#[derive(Debug, Default)]
pub(super) struct Meeting {
    /// Writes that may come while a content is needed, a few of them.
    pub(super) clashes: Vec<Clash>,
    /// A need that ends before a write, as late and as early as can be: the two moments.
    pub(super) behind: Option<(usize, usize)>,
    /// A write that has ended before a content is there, likewise.
    pub(super) ahead: Option<(usize, usize)>,
    /// A write and a content that no run has both.
    pub(super) never: Option<(usize, usize)>,
}

/// How many clashes are kept for the one with the shortest schedule.
const CANDIDATES: usize = 6;

/// Looks at all writes of `other` and all contents of `kept`.
pub(super) fn meeting(moments: &Moments<'_>, kept: &Uses, other: &Uses) -> Meeting {
    let mut found = Meeting::default();
    for writes in other.writes.chunks(BATCH) {
        let starts = Batch::new(moments, writes.iter().map(|w| w.start));
        let ends = Batch::new(moments, writes.iter().map(|w| w.end));
        let (passed, ahead) = (moments.passed(&ends), moments.ahead(&starts));
        let asked = u64::MAX >> (BATCH - writes.len());
        for &stretch in &kept.stretches {
            let [from, at] = [stretch.from, stretch.at].map(|m| moments.home[m]);
            let never = [from, at].map(|home| starts.never_with(moments.graph, home));
            let never = asked & (never[0] | never[1]);
            let before = asked & !never & passed[stretch.from];
            let after = asked & !never & ahead[stretch.to];
            let each = |mut bits: u64| {
                std::iter::from_fn(move || {
                    let bit = bits.checked_ilog2()?;
                    bits &= !(1 << bit);
                    Some(bit as usize)
                })
            };
            if let Some(bit) = each(never).next() {
                found.never = found.never.or(Some((stretch.at, writes[bit].start)));
            }
            if let Some(bit) = each(before).next() {
                let pair = (writes[bit].end, stretch.from);
                let best = |&old: &(usize, usize)| old.1 - old.0 <= pair.1 - pair.0;
                found.ahead = found.ahead.filter(best).or(Some(pair));
            }
            if after != 0 {
                let bit = after.trailing_zeros() as usize;
                let pair = (stretch.to, writes[bit].start);
                let best = |&old: &(usize, usize)| old.1 - old.0 <= pair.1 - pair.0;
                found.behind = found.behind.filter(best).or(Some(pair));
            }
            for bit in each(asked & !(never | before | after)) {
                let over = writes[bit];
                if in_place(moments, kept, other, stretch, over) {
                    found.behind = found.behind.or(Some((stretch.to, over.start)));
                } else if found.clashes.len() < CANDIDATES {
                    found.clashes.push(Clash {
                        kept: stretch,
                        over,
                    });
                } else if stretch.at != over.start
                    && let Some(other) =
                        found.clashes.iter_mut().find(|c| c.kept.at == c.over.start)
                {
                    *other = Clash {
                        kept: stretch,
                        over,
                    };
                }
            }
        }
        if !found.clashes.is_empty() {
            break;
        }
    }
    found
}

/// Whether one node may write over what it reads: in place, or where it hands a value over from
/// one memory to another, which then has nothing to do.
fn in_place(moments: &Moments<'_>, kept: &Uses, other: &Uses, read: Stretch, over: Write) -> bool {
    if read.to != over.start || over.start != over.end {
        return false;
    }
    let (graph, id) = (moments.graph, moments.node[read.to]);
    if moments.start[id] != Some(read.to) {
        return true;
    }
    let node = &graph.nodes[id];
    let effects = moments.table.effects(graph, id);
    let within = |uses: &Uses, v: Option<ValueId>| v.is_some_and(|v| uses.values.contains(&v));
    let sharers = || {
        let inputs = (0u32..).zip(&node.inputs);
        inputs.filter(|&(_, &v)| within(kept, v)).map(|(i, _)| i)
    };
    let fits = |entry: &&Alias| {
        within(kept, node.input(entry.input as usize))
            && within(other, node.output(entry.output as usize))
            && effects.tolerates(**entry, sharers())
    };
    effects.in_place.iter().any(|entry| fits(&entry))
}

/// Whether a content of one memory and one of the other are needed together in every order that is
/// allowed: neither can end before the other begins.
pub(super) fn never_apart(moments: &Moments<'_>, one: &Uses, other: &Uses) -> bool {
    // A node that reads the one and makes the other has both, unless it works in place.
    let at_once = |read: Stretch, made: Stretch, (of_read, of_made): (&Uses, &Uses)| {
        let (start, value) = (made.from, made.value);
        let over = Write {
            start,
            end: start,
            value,
        };
        read.to == start && !in_place(moments, of_read, of_made, read, over)
    };
    other.stretches.chunks(BATCH).any(|batch| {
        let begins = Batch::new(moments, batch.iter().map(|s| s.from));
        let ends = Batch::new(moments, batch.iter().map(|s| s.to));
        let (passed, ahead) = (moments.passed(&begins), moments.ahead(&ends));
        one.stretches.iter().any(|&s| {
            let never = begins.never_with(moments.graph, moments.home[s.from])
                | begins.never_with(moments.graph, moments.home[s.to])
                | ends.never_with(moments.graph, moments.home[s.from]);
            let mut bits =
                !never & (passed[s.to] | begins.own(s.to)) & (ahead[s.from] | ends.own(s.from));
            std::iter::from_fn(|| {
                let bit = bits.checked_ilog2()?;
                bits &= !(1 << bit);
                batch.get(bit as usize)
            })
            .any(|&o| {
                let begun = o.from != s.to || at_once(s, o, (one, other));
                let needed = o.to != s.from || at_once(o, s, (other, one));
                begun && needed
            })
        })
    })
}

/// Whether all uses of one memory can end before anything is written in the other: nothing that is
/// done to that one comes before a use.
pub(super) fn can_be_first(moments: &Moments<'_>, one: &Uses, other: &Uses) -> bool {
    let all = |uses: &Uses| {
        let writes = uses.writes.iter().map(|w| w.end);
        writes
            .chain(uses.stretches.iter().map(|s| s.to))
            .collect::<Vec<usize>>()
    };
    let mut is_use = vec![false; moments.needs.len()];
    for at in all(other) {
        is_use[at] = true;
    }
    let mut comes_behind = is_use.clone();
    for at in 0..comes_behind.len() {
        let needs = &moments.needs[at];
        comes_behind[at] |= needs.iter().any(|need| comes_behind[need.before]);
    }
    !all(one).into_iter().any(|at| comes_behind[at])
}
