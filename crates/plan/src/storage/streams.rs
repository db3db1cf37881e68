//! Several streams: when memory is certainly free, and when one tensor has certainly ended before
//! another begins.

use smallvec::SmallVec;
use tenure_graph::ValueId;
use tenure_graph::control::transfers;
use tenure_graph::effects::cleared;
use tenure_graph::plan::{Item, Phase};

use super::{Index, Join, Segment};
use crate::liveness::point_step;
use crate::spans::meet;

impl Join<'_> {
    /// Notes which steps access each group.
    pub(super) fn collect_accesses(&mut self) {
        if self.clocks.is_none() {
            return;
        }
        let mut accesses: Vec<SmallVec<[u32; 4]>> = vec![SmallVec::new(); self.items.len()];
        let mut note = |join: &Self, value: Option<ValueId>, step: u32| {
            if let Some(value) = value {
                accesses[join.group(value) as usize].push(step);
            }
        };
        for (number, step) in (0u32..).zip(&self.schedule.steps) {
            let node = &self.graph.nodes[step.node];
            match step.phase {
                Phase::Run | Phase::Begin => {
                    for &value in &node.inputs {
                        note(self, value, number);
                    }
                    for c in cleared(self.graph, self.table, step.node) {
                        let at = self.schedule.first(c.cleaner);
                        if let Item::Value(value) = c.item {
                            note(self, Some(value), at);
                        }
                    }
                }
                Phase::Enter(_) | Phase::End => {}
            }
            // What comes out of a body is not there yet when its owner begins.
            let is_there = |value: &ValueId| {
                let group = self.group(*value) as usize;
                let life = &self.items[group].life;
                step.phase != Phase::Begin
                    || life.iter().any(|s| (s.first..=s.last).contains(&number))
            };
            if matches!(step.phase, Phase::Run | Phase::Begin | Phase::End) {
                for value in node.outputs.iter().copied().flatten().filter(is_there) {
                    note(self, Some(value), number);
                }
            }
            if step.phase == Phase::Begin {
                let class = self.table.class(self.graph, step.node);
                for t in transfers(self.graph, step.node, class) {
                    let at = point_step(self.graph, self.schedule, step.node, t.at);
                    note(self, t.from, at);
                    note(self, t.to, at);
                }
            }
        }
        for (i, entry) in self.items.iter().enumerate() {
            if !matches!(entry.item, Item::Value(_)) {
                accesses[i].extend(entry.life.iter().flat_map(|s| [s.first, s.last]));
            }
        }
        self.ends = accesses.iter().map(|steps| self.end_of(steps)).collect();
        self.accesses = accesses;
    }

    /// Notes the accesses to an item that came late: it is there at one node's step alone.
    pub(super) fn add_accesses(&mut self, item: Index) {
        if self.clocks.is_none() {
            return;
        }
        let steps = self.items[item as usize].life.iter().map(|s| s.first);
        let steps: SmallVec<[u32; 4]> = steps.collect();
        self.ends.resize(item as usize, 0);
        self.ends.push(self.end_of(&steps));
        self.accesses.resize(item as usize, SmallVec::new());
        self.accesses.push(steps);
    }

    fn end_of(&self, steps: &[u32]) -> u32 {
        let Some(clocks) = &self.clocks else { return 0 };
        steps
            .iter()
            .map(|&step| clocks.until(step))
            .max()
            .unwrap_or(0)
    }

    /// The last step at which an access to a group may still be going on; 0 where steps run one
    /// after the other.
    pub(super) fn until(&self, group: Index) -> u32 {
        self.ends.get(group as usize).copied().unwrap_or(0)
    }

    /// Whether all accesses to a group up to a step have ended when it starts, but for its own. What
    /// comes later, as to the state of a loop, is for [`Join::take_turns`] to look at.
    pub(super) fn has_ended(&self, group: Index, step: u32) -> bool {
        let Some(clocks) = &self.clocks else {
            return true;
        };
        let mut steps = self.accesses.get(group as usize).into_iter().flatten();
        steps.all(|&at| at >= step || clocks.is_before(at, step))
    }

    /// Whether two segments are never there at one time, and all accesses to the one are in order with
    /// those to the other.
    pub(super) fn follow(&self, x: &Segment, y: &Segment) -> bool {
        let accesses = |group: Index| self.accesses.get(group as usize);
        if meet(x.span, y.span) {
            return false;
        }
        let both = accesses(x.group).zip(accesses(y.group));
        both.is_none_or(|(one, other)| self.are_in_order(one, other))
    }

    /// Whether all accesses to two classes are in order, where one of them holds something that comes
    /// back after others have been there. Where nothing comes back, each has ended before the next
    /// begins, and that is all.
    pub(super) fn take_turns(&self, a: Index, b: Index) -> bool {
        let comes_back = |root: Index| self.items[root as usize].comes_back;
        if self.clocks.is_none() || !comes_back(a) && !comes_back(b) {
            return true;
        }
        let steps = |root: Index| {
            let groups = self.segments[root as usize].iter().map(|s| s.group);
            let of = |group: Index| self.accesses.get(group as usize).into_iter().flatten();
            let mut steps: Vec<u32> = groups.flat_map(of).copied().collect();
            steps.sort_unstable();
            steps.dedup();
            steps
        };
        self.are_in_order(&steps(a), &steps(b))
    }
}
