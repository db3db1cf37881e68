//! Gears: what belongs to one of several parts of a program of which one alone runs, and what must
//! lie at one place in all of them.

use rustc_hash::FxHashMap;
use tenure_graph::ValueId;
use tenure_graph::effects::Gears;
use tenure_graph::plan::{Item, Span};

use super::{Class, Classes, Entry, Join};
use crate::PlanError;
use crate::spans::{meet, normalise};

impl Join<'_> {
    /// The gear in which an item is there, if it is one alone: what is kept from run to run, or is
    /// somebody else's at any time, is of none.
    pub(super) fn gear(&self, gears: &Gears, entry: &Entry) -> Option<u32> {
        let maker = entry.item.maker(self.graph, &self.copies)?;
        let is_lasting = entry.alone || entry.kept || entry.input || entry.caller;
        gears.of(maker).filter(|_| !is_lasting)
    }

    /// Makes one class of those whose values must lie at one place in all gears.
    pub(super) fn tie(&self, gears: &Gears, classes: &mut Classes) -> Result<(), PlanError> {
        let mut held: FxHashMap<ValueId, (usize, u64)> = FxHashMap::default();
        for (k, class) in classes.classes.iter().enumerate() {
            for member in &class.members {
                if let Item::Value(value) = member.item {
                    held.insert(value, (k, member.offset));
                }
            }
        }
        // The class that each has become.
        let mut becomes: Vec<usize> = (0..classes.classes.len()).collect();
        // The gears of those that each has taken over, its own included.
        let own = classes.classes.iter().map(|c| vec![c.gear]);
        let mut all_gears: Vec<Vec<Option<u32>>> = own.collect();
        for values in gears.tied(self.graph, self.table) {
            let mut places = values.iter().filter_map(|v| Some((*v, *held.get(v)?)));
            let Some((_, (first, at))) = places.next() else {
                continue;
            };
            let first = root(&mut becomes, first);
            for (value, (other, offset)) in places {
                let other = root(&mut becomes, other);
                if other == first && offset == at {
                    continue;
                }
                let (a, b) = (&classes.classes[first], &classes.classes[other]);
                let is_other = a.kind != b.kind || a.caller || b.caller;
                let gears = (&all_gears[first], &all_gears[other]);
                let may_be_one = are_apart(gears.0, gears.1) || self.are_apart_in_time(a, b);
                if other == first || offset != at || is_other || !may_be_one {
                    return Err(PlanError::Tied {
                        value: self.graph.value_label(value),
                    });
                }
                let moved = std::mem::take(&mut classes.classes[other]);
                classes.classes[first].absorb(moved);
                let moved = std::mem::take(&mut all_gears[other]);
                all_gears[first].extend(moved);
                becomes[other] = first;
            }
        }
        let becomes: Vec<usize> = (0..becomes.len()).map(|k| root(&mut becomes, k)).collect();
        classes.drop_absorbed(&becomes);
        Ok(())
    }
}

impl Join<'_> {
    /// Whether two classes are never there at one time, on the one stream that there is.
    fn are_apart_in_time(&self, a: &Class, b: &Class) -> bool {
        let meets = |x: &Span| b.life.iter().any(|y| meet(*x, *y));
        self.clocks.is_none() && !a.life.iter().any(meets)
    }
}

/// Whether what is there in some gears is never there with what is there in others.
fn are_apart(a: &[Option<u32>], b: &[Option<u32>]) -> bool {
    let differ = |x: &Option<u32>, y: &Option<u32>| x.is_some() && y.is_some() && x != y;
    a.iter().all(|x| b.iter().all(|y| differ(x, y)))
}

fn root(becomes: &mut [usize], mut class: usize) -> usize {
    while becomes[class] != class {
        becomes[class] = becomes[becomes[class]];
        class = becomes[class];
    }
    class
}

impl Class {
    /// Takes over what lives in another class, from the same byte on.
    fn absorb(&mut self, other: Class) {
        self.members.extend(other.members);
        self.life.extend(other.life);
        normalise(&mut self.life);
        self.bytes = self.bytes.max(other.bytes);
        self.align = self.align.max(other.align);
        self.gear = None;
    }
}

impl Classes {
    /// Leaves out the classes that have become parts of others.
    fn drop_absorbed(&mut self, becomes: &[usize]) {
        let mut number = vec![0; becomes.len()];
        let mut next = 0;
        for (class, &into) in becomes.iter().enumerate() {
            number[class] = next;
            next += usize::from(class == into);
        }
        let all = std::mem::take(&mut self.classes).into_iter();
        let kept = all.zip(becomes).enumerate();
        self.classes = kept
            .filter(|&(class, (_, &into))| class == into)
            .map(|(_, (class, _))| class)
            .collect();
        let find = |class: usize| number[becomes[class]];
        let pairs = self.apart.iter().map(|&(a, b)| (find(a), find(b)));
        let pairs = pairs.map(|(a, b)| (a.min(b), a.max(b)));
        self.apart = pairs.filter(|(a, b)| a != b).collect();
        self.apart.sort_unstable();
        self.apart.dedup();
    }
}
