//! Which sharing of memory breaks a result, found by turning it off in halves.
//!
//! A plan gives a wrong result on some engine: ours with somebody's kernel, or anybody's. The plan is
//! tried again with some of its storages *apart*: moved behind the end of their arena with unused
//! bytes around each, while all others stay where they are. With none apart the result is wrong, with
//! all of them it is right, and storages that are apart do no harm; so the first storage of a list
//! whose move makes the result right is found in a logarithm of trials, and the one that it stood
//! against likewise.
//!
//! | what is found | what it is |
//! | --- | --- |
//! | two storages without a common byte | somebody writes past the end or before the start of one |
//! | two storages with common bytes, right when one reader has a copy of its own | that reader is at work for longer than the plan says |
//! | the same, wrong with each such copy | the writer of the earlier one is |
//! | all are apart and it is wrong; right when a node's output is no longer written over its input | the same within one storage, or a kernel that is not right in place |
//!
//! A fault that comes and goes is looked for with several runs a trial.

mod apart;
mod evidence;
mod own;

use std::collections::BTreeSet;

use tenure_check::{CheckedPlan, check};
use tenure_graph::effects::OpTable;
use tenure_graph::plan::{Item, Plan};
use tenure_graph::{Graph, NodeId, StorageId};

pub use apart::changed;
pub use own::Own;

use crate::sanitize::BadWrite;
use apart::{apart, with_copies};
use evidence::{Pair, readers, touches};

/// Whether an engine gives the right result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It does.
    Right,
    /// It does not.
    Wrong,
    /// It cannot be said for this trial.
    Unknown,
}

/// What an engine is to try.
#[derive(Clone, Copy, Debug)]
pub struct Trial<'a> {
    /// The plan.
    pub plan: &'a CheckedPlan,
    /// The nodes whose memory the plan shares with nobody, for engines that plan on their own.
    pub apart: &'a [String],
}

/// Runs plans and says whether what they give is right.
pub trait Engine {
    /// Why it cannot go on.
    type Error;

    /// Tries a plan.
    ///
    /// # Errors
    /// What ends the search.
    fn run(&mut self, trial: &Trial<'_>) -> Result<Verdict, Self::Error>;

    /// The first write of a plan that goes where it must not, if the engine can see that.
    ///
    /// # Errors
    /// What ends the search.
    fn guarded(&mut self, plan: &CheckedPlan) -> Result<Option<BadWrite>, Self::Error> {
        let _ = plan;
        Ok(None)
    }
}

/// What is looked at, and how.
pub struct Search<'a> {
    /// The graph that was planned.
    pub graph: &'a Graph,
    /// Its operators.
    pub table: &'a OpTable,
    /// The plan whose result is wrong.
    pub plan: &'a CheckedPlan,
    /// Plans once more with these nodes sharing memory with nobody, which is needed where a fault
    /// lies within one storage.
    pub replan: &'a dyn Fn(&[String]) -> Option<Plan>,
    /// Who is suspected before all others, in this order.
    pub suspects: &'a [(Suspicion, Vec<NodeId>)],
    /// Runs of a plan before it is believed that it is always right, or always wrong; at least 1.
    pub runs: u32,
    /// Unused bytes around what is apart.
    pub gap: u64,
}

/// Why somebody is suspected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suspicion {
    /// The kernel is the user's own.
    UserKernel,
    /// Its memory lies elsewhere than in a plan that was right.
    Changed,
    /// Nothing speaks for it before others.
    None,
}

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The node writes outside of its memory.
    OutOfBounds,
    /// The node writes memory that was its own before, and is no more.
    WritesLate,
    /// The node reads memory that held its input before, and holds it no more.
    ReadsLate,
    /// The node writes its output over an input that it still reads.
    InPlace,
}

/// The node whose sharing breaks the result.
#[derive(Clone, Debug, PartialEq)]
pub struct Culprit {
    /// What it does.
    pub kind: Kind,
    /// The node.
    pub node: NodeId,
    /// Nodes that it may be as well, by all that the trials show.
    pub or: Vec<NodeId>,
    /// What lies in the two places that must not be where they are.
    pub pair: [Item; 2],
    /// The write that a guarded run has seen.
    pub seen: Option<BadWrite>,
    /// Why it was looked at.
    pub suspicion: Suspicion,
}

/// How a search ends.
#[derive(Clone, Debug, PartialEq)]
pub enum Finding {
    /// The plan gives the right result.
    Right,
    /// The result is wrong even when nothing shares memory.
    NotSharing,
    /// A node.
    Culprit(Culprit),
    /// The engine could not say whether results are right.
    Undecided,
}

/// What a search has found.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The answer.
    pub finding: Finding,
    /// Whether the same plan is right at one time and wrong at another.
    pub unsteady: bool,
    /// Runs that were made.
    pub runs: u32,
}

/// Looks for the node whose sharing breaks the result.
///
/// # Errors
/// What the engine says.
pub fn bisect<E: Engine>(search: &Search<'_>, engine: &mut E) -> Result<Report, E::Error> {
    let mut hunt = Hunt {
        search,
        engine,
        unsteady: false,
        runs: 0,
    };
    let finding = hunt.hunt()?;
    Ok(Report {
        finding,
        unsteady: hunt.unsteady,
        runs: hunt.runs,
    })
}

struct Hunt<'a, 'e, E> {
    search: &'a Search<'a>,
    engine: &'e mut E,
    unsteady: bool,
    runs: u32,
}

/// Storages that are apart.
type Set = BTreeSet<StorageId>;

impl<E: Engine> Hunt<'_, '_, E> {
    fn hunt(&mut self) -> Result<Finding, E::Error> {
        let search = self.search;
        let plan = search.plan.plan();
        match self.first()? {
            Verdict::Right => return Ok(Finding::Right),
            Verdict::Unknown => return Ok(Finding::Undecided),
            Verdict::Wrong => {}
        }
        let units: Vec<StorageId> = (plan.storages.iter())
            .filter(|(_, s)| s.size > 0 && apart::is_movable(s))
            .map(|(id, _)| id)
            .collect();
        for (suspicion, nodes) in search.suspects {
            let is_theirs = touches(search, nodes);
            let mine = |id: &&StorageId| is_theirs(&plan.storages[**id]);
            let pool: Vec<StorageId> = units.iter().filter(mine).copied().collect();
            if !pool.is_empty() && self.try_apart(&pool)? == Verdict::Right {
                return self.between(&pool, &units, *suspicion);
            }
        }
        match self.try_apart(&units)? {
            Verdict::Right => self.between(&units, &units, Suspicion::None),
            Verdict::Wrong => self.within(),
            Verdict::Unknown => Ok(Finding::Undecided),
        }
    }

    /// The plan as it is, several times: whether it is ever wrong, and whether always.
    fn first(&mut self) -> Result<Verdict, E::Error> {
        let mut seen = [false; 2];
        for _ in 0..self.search.runs.max(1) {
            match self.once(self.search.plan, &[])? {
                Verdict::Right => seen[0] = true,
                Verdict::Wrong => seen[1] = true,
                Verdict::Unknown => return Ok(Verdict::Unknown),
            }
        }
        self.unsteady = seen == [true, true];
        Ok(match seen[1] {
            true => Verdict::Wrong,
            false => Verdict::Right,
        })
    }

    fn once(&mut self, plan: &CheckedPlan, apart: &[String]) -> Result<Verdict, E::Error> {
        self.runs = self.runs.saturating_add(1);
        self.engine.run(&Trial { plan, apart })
    }

    /// Tries a plan; where faults come and go, often enough to believe that it is right.
    fn verdict(&mut self, plan: &Plan, apart: &[String]) -> Result<Verdict, E::Error> {
        let Ok(checked) = check(self.search.graph, self.search.table, plan) else {
            return Ok(Verdict::Unknown);
        };
        let runs = if self.unsteady {
            self.search.runs.max(1)
        } else {
            1
        };
        for _ in 0..runs {
            let verdict = self.once(&checked, apart)?;
            if verdict != Verdict::Right {
                return Ok(verdict);
            }
        }
        Ok(Verdict::Right)
    }

    fn try_apart(&mut self, units: &[StorageId]) -> Result<Verdict, E::Error> {
        let set: Set = units.iter().copied().collect();
        let search = self.search;
        match apart(search.plan.plan(), &set, search.gap) {
            Some(plan) => self.verdict(&plan, &evidence::names(search.graph, &plan, &set)),
            None => Ok(Verdict::Unknown),
        }
    }

    /// The least `n` for which `test` is right, where 0 is wrong and `most` is right; `None` if the
    /// engine cannot say.
    fn least(
        &mut self,
        most: usize,
        mut test: impl FnMut(&mut Self, usize) -> Result<Verdict, E::Error>,
    ) -> Result<Option<usize>, E::Error> {
        let (mut wrong, mut right) = (0, most);
        'halve: while right - wrong > 1 {
            let middle = wrong + (right - wrong) / 2;
            // Where nothing can be said of the middle, its neighbours may do.
            let around =
                (0..right - wrong).flat_map(|d| [middle.checked_add(d), middle.checked_sub(d)]);
            for at in around.flatten().filter(|&at| wrong < at && at < right) {
                match test(self, at)? {
                    Verdict::Right => right = at,
                    Verdict::Wrong => wrong = at,
                    Verdict::Unknown => continue,
                }
                continue 'halve;
            }
            return Ok(None);
        }
        Ok(Some(right))
    }

    /// Two storages that must not lie as they do; all of `pool` apart is right.
    fn between(
        &mut self,
        pool: &[StorageId],
        units: &[StorageId],
        suspicion: Suspicion,
    ) -> Result<Finding, E::Error> {
        let first = self.least(pool.len(), |hunt, n| hunt.try_apart(&pool[..n]))?;
        let Some(first) = first.and_then(|n| n.checked_sub(1)) else {
            return Ok(Finding::Undecided);
        };
        let (fixed, one) = (&pool[..first], pool[first]);
        let is_free = |id: &&StorageId| **id != one && !fixed.contains(id);
        let others: Vec<StorageId> = units.iter().filter(is_free).copied().collect();
        let with = |n: usize| [fixed, &others[..n]].concat();
        if others.is_empty() || self.try_apart(&with(others.len()))? != Verdict::Right {
            return Ok(Finding::Undecided);
        }
        let second = self.least(others.len(), |hunt, n| hunt.try_apart(&with(n)))?;
        let Some(other) = second.and_then(|n| others.get(n.checked_sub(1)?)) else {
            return Ok(Finding::Undecided);
        };
        let fixed: Set = fixed.iter().copied().collect();
        let search = self.search;
        let pair = Pair::new(search, search.plan.plan(), one, *other);
        let Some(base) = apart(search.plan.plan(), &fixed, search.gap) else {
            return Ok(Finding::Undecided);
        };
        if pair.shares_bytes() {
            let names = evidence::names(search.graph, &base, &fixed);
            return self.too_long(&base, &names, &pair, suspicion);
        }
        let seen = self.engine.guarded(search.plan)?;
        let mut nodes = pair.writers();
        if let Some(seen) = &seen {
            nodes.retain(|&n| n != seen.node);
            nodes.insert(0, seen.node);
        }
        Ok(match nodes.split_first() {
            Some((&node, or)) => Finding::Culprit(Culprit {
                kind: Kind::OutOfBounds,
                node,
                // What was seen needs no guess.
                or: if seen.is_some() {
                    Vec::new()
                } else {
                    or.to_vec()
                },
                pair: pair.items(),
                seen,
                suspicion,
            }),
            None => Finding::Undecided,
        })
    }

    /// Who uses the earlier of two for too long: a reader that is right with a copy of its own, or
    /// else the last writer.
    fn too_long(
        &mut self,
        base: &Plan,
        apart: &[String],
        pair: &Pair,
        suspicion: Suspicion,
    ) -> Result<Finding, E::Error> {
        let search = self.search;
        let found = |kind, node, or, seen| {
            Ok(Finding::Culprit(Culprit {
                kind,
                node,
                or,
                pair: pair.items(),
                seen,
                suspicion,
            }))
        };
        let reads = |node| match evidence::writes_among(search.graph, node, pair.earlier()) {
            true => Kind::InPlace,
            false => Kind::ReadsLate,
        };
        let mut unsure = Vec::new();
        for (reader, slots) in readers(search, pair.earlier()) {
            let alone = with_copies(search.graph, base, reader, &slots, search.gap);
            let verdict = match alone {
                Some(plan) => self.verdict(&plan, apart)?,
                None => Verdict::Unknown,
            };
            match verdict {
                Verdict::Right => return found(reads(reader), reader, Vec::new(), None),
                Verdict::Wrong => {}
                Verdict::Unknown => unsure.push(reader),
            }
        }
        // Any of those that write there may do so late: the last one is the likeliest, if nobody sees.
        let seen = self.engine.guarded(search.plan)?;
        let writers = pair.earlier_writers();
        let seen = seen.filter(|bad| writers.contains(&bad.node));
        match (&seen, writers.split_first()) {
            (Some(bad), _) => found(Kind::WritesLate, bad.node, Vec::new(), seen.clone()),
            (None, Some((&last, others))) => {
                found(Kind::WritesLate, last, [others, &unsure].concat(), None)
            }
            (None, None) => match unsure.split_first() {
                Some((&reader, rest)) => found(reads(reader), reader, rest.to_vec(), None),
                None => Ok(Finding::Undecided),
            },
        }
    }

    /// Two values of one storage that must not be; all storages apart is wrong.
    fn within(&mut self) -> Result<Finding, E::Error> {
        let search = self.search;
        let nodes = evidence::sharing_within(search);
        match self.try_alone(&nodes)? {
            Verdict::Right if !nodes.is_empty() => {}
            Verdict::Unknown => return Ok(Finding::Undecided),
            _ => return Ok(Finding::NotSharing),
        }
        let first = self.least(nodes.len(), |hunt, n| hunt.try_alone(&nodes[..n]))?;
        let Some(first) = first.and_then(|n| n.checked_sub(1)) else {
            return Ok(Finding::Undecided);
        };
        let Some(base) = self.alone(&nodes[..first]) else {
            return Ok(Finding::Undecided);
        };
        let names = evidence::names_of(search.graph, &nodes[..first]);
        match Pair::within(search, &base, nodes[first]) {
            Some(pair) => self.too_long(&base, &names, &pair, Suspicion::None),
            None => Ok(Finding::Undecided),
        }
    }

    /// A plan in which the outputs of nodes share memory with nobody, and all storages are apart.
    fn alone(&self, nodes: &[NodeId]) -> Option<Plan> {
        let search = self.search;
        let plan = (search.replan)(&evidence::names_of(search.graph, nodes))?;
        let movable = plan.storages.iter().filter(|(_, s)| apart::is_movable(s));
        let all: Set = movable.map(|(id, _)| id).collect();
        apart(&plan, &all, search.gap)
    }

    fn try_alone(&mut self, nodes: &[NodeId]) -> Result<Verdict, E::Error> {
        let search = self.search;
        match self.alone(nodes) {
            Some(plan) => self.verdict(&plan, &evidence::names_of(search.graph, nodes)),
            None => Ok(Verdict::Unknown),
        }
    }
}
