//! Whether what is written in one memory can come between a content of another and its reader.
//!
//! At most 64 writes are compared with all stretches by one walk in each direction, so that a
//! question takes time in proportion to the edges for every 64 of them and every gear.

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
        let runs = Runs::of(moments, &ends, &starts);
        let bits = (0..).zip(writes).filter(|(_, w)| other.overwrites(w));
        let asked = bits.fold(0u64, |asked, (bit, _)| asked | 1 << bit);
        for &stretch in &kept.stretches {
            let never_with = [stretch.from, stretch.at].map(|at| starts.never_with(moments, at));
            let never = asked & (never_with[0] | never_with[1]);
            let mut clear = asked & !never;
            let (mut before, mut after) = (clear, clear);
            let ends = [stretch.from, stretch.to, stretch.at];
            let comes_in = |run: &&Runs| ends.iter().all(|&at| moments.comes_in(run.gear, at));
            if !runs.iter().any(|run| comes_in(&run)) {
                continue;
            }
            for run in runs.iter().filter(comes_in) {
                let (passed, ahead) = (run.passed[stretch.from], run.ahead[stretch.to]);
                before &= passed | run.without;
                after &= ahead | run.without;
                clear &= passed | ahead | run.without;
            }
            let each = |mut bits: u64| {
                std::iter::from_fn(move || {
                    let bit = bits.checked_ilog2()?;
                    bits &= !(1 << bit);
                    Some(bit as usize)
                })
            };
            if let Some(bit) = each(never).next() {
                let is_read_never = never_with[1] >> bit & 1 == 1;
                let at = if is_read_never {
                    stretch.at
                } else {
                    stretch.from
                };
                found.never = found.never.or(Some((at, writes[bit].start)));
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
            for bit in each(asked & !(never | clear)) {
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

/// What is certain of some moments in the runs of one gear.
struct Runs {
    gear: Option<u32>,
    /// Those that do not come in them.
    without: u64,
    passed: Vec<u64>,
    ahead: Vec<u64>,
}

impl Runs {
    /// For each gear, which of some moments have passed at any, and before which of others it has.
    fn of(moments: &Moments<'_>, passed: &Batch, ahead: &Batch) -> Vec<Runs> {
        let each = moments.all_gears().map(|gear| Runs {
            gear,
            without: passed.not_in(gear) | ahead.not_in(gear),
            passed: moments.passed(passed, gear),
            ahead: moments.ahead(ahead, gear),
        });
        each.collect()
    }
}

/// The gear in whose runs a clash comes about, where there are gears.
pub(super) fn gear_of(moments: &Moments<'_>, clash: Clash) -> Option<u32> {
    let Clash { kept, over } = clash;
    let all = [kept.from, kept.to, kept.at, over.start];
    // Mostly there are no gears, or one of these is in one.
    let mut own = all.iter().filter_map(|&at| moments.gear(at));
    let own = own.next();
    if own.is_some() || moments.all_gears().all(|gear| gear.is_none()) {
        return own;
    }
    let ends = Batch::new(moments, std::iter::once(over.end));
    let starts = Batch::new(moments, std::iter::once(over.start));
    let mut gears = moments.all_gears().filter(|&gear| {
        let comes = all.iter().all(|&at| moments.comes_in(gear, at));
        comes
            && moments.passed(&ends, gear)[kept.from] == 0
            && moments.ahead(&starts, gear)[kept.to] == 0
    });
    gears.next().flatten()
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
        let runs = Runs::of(moments, &begins, &ends);
        one.stretches.iter().any(|&s| {
            let never = begins.never_with(moments, s.from)
                | begins.never_with(moments, s.to)
                | ends.never_with(moments, s.from);
            let comes_in = |run: &&Runs| {
                [s.from, s.to]
                    .iter()
                    .all(|&at| moments.comes_in(run.gear, at))
            };
            let mut bits = !never;
            for run in runs.iter().filter(comes_in) {
                let begun = run.passed[s.to] | begins.own(s.to);
                let needed = run.ahead[s.from] | ends.own(s.from);
                bits &= begun & needed | run.without;
            }
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
/// done to that one comes before a use in the runs of a gear.
pub(super) fn can_be_first(
    moments: &Moments<'_>,
    one: &Uses,
    other: &Uses,
    gear: Option<u32>,
) -> bool {
    let all = |uses: &Uses| {
        let writes = uses.writes.iter().map(|w| w.end);
        writes
            .chain(uses.stretches.iter().map(|s| s.to))
            .collect::<Vec<usize>>()
    };
    let mut is_use = vec![false; moments.needs.len()];
    for at in all(other) {
        is_use[at] = moments.comes_in(gear, at);
    }
    let mut comes_behind = is_use.clone();
    for at in 0..comes_behind.len() {
        let needs = &moments.needs[at];
        comes_behind[at] |=
            moments.comes_in(gear, at) && needs.iter().any(|need| comes_behind[need.before]);
    }
    !all(one).into_iter().any(|at| comes_behind[at])
}
