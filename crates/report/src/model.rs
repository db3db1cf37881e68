//! The view data of a report: what its pictures and tables show, computed from a [`PlanFile`].
//!
//! A plan file names everything, so a report needs no graph. Figures have the names of the JSON
//! summary; `docs/numbers.md` says what each means. Two equations are worth knowing when a report
//! is read: the load at a step is the sum of the sizes of the storages held at it, and the peak is
//! the first step of greatest load, so that `peak.bytes <= arena.size`.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use tenure_graph::plan::{Arena, Span};
use tenure_graph::plan_file::{
    CheckBlock, FileMember, FileStep, FileStorage, MemberKind, PlanFile,
};

use crate::error::ReportError;

/// All that a report shows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportModel {
    /// What was planned.
    pub model: ModelView,
    /// Counts and sums over the whole plan.
    pub figures: Figures,
    /// The arenas; the first one is the default.
    pub arenas: Vec<ArenaView>,
    /// The schedule. A step's number is its place in this list.
    pub steps: Vec<StepView>,
    /// Every piece of memory of the plan: one rectangle a span of its life.
    pub storages: Vec<StorageView>,
    /// What the user should know, one sentence each.
    pub warnings: Vec<String>,
}

/// What was planned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelView {
    /// The model's own name.
    pub name: String,
    /// Format that it was read from.
    pub format: String,
    /// Operators in all subgraphs.
    pub nodes: usize,
    /// Values in all subgraphs.
    pub values: usize,
}

/// Counts and sums over the whole plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figures {
    /// How the offsets were found.
    pub strategy: String,
    /// Sums of bytes by what they hold.
    pub bytes: ByteSums,
    /// Pieces of memory in the plan, those of the caller included.
    pub storages: usize,
    /// Outputs that were placed over an input of their own node.
    pub in_place: usize,
    /// Copies that the planner inserted.
    pub copies: CopyFigures,
    /// Values whose size is not known before the run.
    pub dynamic_values: usize,
    /// What the checker said.
    pub check: CheckBlock,
}

/// Sums of bytes by what they hold, not rounded to the alignment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByteSums {
    /// Constants of the model, outside the arena.
    pub constants: u64,
    /// Inputs of the graph.
    pub inputs: u64,
    /// Outputs of the graph.
    pub outputs: u64,
    /// All other values that nodes make in the run.
    pub intermediates: u64,
    /// Temporary memory of nodes.
    pub workspaces: u64,
}

/// Copies that the planner inserted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyFigures {
    /// How many.
    pub inserted: usize,
    /// Bytes that they move.
    pub bytes: u64,
}

/// One step of the schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepView {
    /// Label of the node.
    pub node: String,
    /// `run`, `begin`, `enter K`, `end`.
    pub phase: Cow<'static, str>,
}

/// One arena and what happens in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArenaView {
    /// What the plan says of it.
    #[serde(flatten)]
    pub plan: Arena,
    /// Bytes held at each step.
    pub load: Vec<u64>,
    /// Where the load is greatest; `None` when nothing lies in the arena.
    pub peak: Option<Peak>,
    /// Numbers of the storages that are held at the peak, the biggest first.
    pub holders: Vec<u32>,
}

/// The first step of greatest load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peak {
    /// The step.
    pub step: u32,
    /// The load at it in bytes.
    pub bytes: u64,
}

/// One piece of memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageView {
    /// The arena that it lies in; `None` is memory of the caller.
    pub arena: Option<u32>,
    /// First byte inside the arena.
    pub offset: u64,
    /// Bytes, rounded up to the alignment.
    pub size: u64,
    /// What it is for: the first of input, output, copy, intermediate, workspace that one of its
    /// members is.
    pub kind: MemberKind,
    /// The steps at which it is held: ascending, disjoint spans.
    pub life: Vec<Span>,
    /// What lives in it, in order of first use.
    pub members: Vec<MemberView>,
}

/// Something that lives in a storage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberView {
    /// Its name in the plan file.
    #[serde(flatten)]
    pub file: FileMember,
    /// The step of its producer; `None` for what is there before the first step.
    pub made: Option<u32>,
    /// The step of its last reader; `None` when nobody reads it.
    pub read: Option<u32>,
}

impl StorageView {
    /// The member to name it by at a step: the last one that has been made by then.
    #[must_use]
    pub fn member_at(&self, step: u32) -> Option<&MemberView> {
        let made = |m: &&MemberView| m.made.is_none_or(|p| p <= step);
        self.members.iter().rfind(made).or(self.members.first())
    }

    /// First and last step of its life; `None` when it is never held.
    #[must_use]
    pub fn extent(&self) -> Option<Span> {
        Some(Span {
            first: self.life.first()?.first,
            last: self.life.last()?.last,
        })
    }

    /// The member that is read last.
    #[must_use]
    pub fn last_read(&self) -> Option<&MemberView> {
        self.members
            .iter()
            .filter(|m| m.read.is_some())
            .max_by_key(|m| m.read)
    }
}

impl ReportModel {
    /// Computes the view data, in time near-linear in the number of steps, storages and members.
    /// The plan's names go into it, since there may be millions.
    ///
    /// # Errors
    ///
    /// When the file holds no plan: a life outside the schedule, a storage outside its arena,
    /// sums that do not fit in 64 bits.
    pub fn new(plan: PlanFile, warnings: Vec<String>) -> Result<Self, ReportError> {
        number("steps", plan.steps.len())?;
        number("storages", plan.storages.len())?;
        let figures = Figures::new(&plan);
        let places = Places::new(&plan.steps);
        let storages: Vec<StorageView> = (plan.storages.into_iter())
            .map(|s| places.storage(s))
            .collect();
        check(&plan.arenas, &storages, plan.steps.len())?;
        let arenas = plan
            .arenas
            .iter()
            .zip(0u32..)
            .map(|(arena, index)| ArenaView::new(arena, index, &storages, plan.steps.len()))
            .collect::<Result<_, _>>()?;
        Ok(ReportModel {
            model: ModelView {
                name: plan.model.name,
                format: plan.model.format,
                nodes: plan.model.nodes,
                values: plan.model.values,
            },
            figures,
            arenas,
            steps: plan
                .steps
                .into_iter()
                .map(|step| StepView {
                    node: step.node,
                    phase: step.phase,
                })
                .collect(),
            storages,
            warnings,
        })
    }

    /// The default arena.
    #[must_use]
    pub fn arena(&self) -> Option<&ArenaView> {
        self.arenas.first()
    }
}

impl Figures {
    fn new(plan: &PlanFile) -> Self {
        Figures {
            strategy: plan.strategy.clone(),
            bytes: ByteSums {
                constants: plan.summary.constants,
                inputs: plan.summary.inputs,
                outputs: plan.summary.outputs,
                intermediates: plan.summary.intermediates,
                workspaces: plan.summary.workspaces,
            },
            storages: plan.storages.len(),
            in_place: plan.summary.in_place,
            copies: CopyFigures {
                inserted: plan.copies.len(),
                bytes: plan.summary.copied,
            },
            dynamic_values: plan.dynamic.len(),
            check: plan.check.clone(),
        }
    }
}

/// The label of a node that is written `LABEL (OPERATOR)`, as a plan file does.
pub(crate) fn label(node: &str) -> &str {
    node.rsplit_once(" (").map_or(node, |(label, _)| label)
}

/// First and last step of each node, by its label.
struct Places<'a>(HashMap<&'a str, Span>);

impl<'a> Places<'a> {
    fn new(steps: &'a [FileStep]) -> Self {
        let mut places: HashMap<&str, Span> = HashMap::with_capacity(steps.len());
        for (step, number) in steps.iter().zip(0u32..) {
            let here = Span {
                first: number,
                last: number,
            };
            places.entry(&step.node).or_insert(here).last = number;
        }
        Places(places)
    }

    /// The steps of a node that is written `LABEL (OPERATOR)`.
    fn of(&self, node: &str) -> Option<Span> {
        self.0.get(label(node)).copied()
    }

    fn storage(&self, file: FileStorage) -> StorageView {
        let life = if file.spans.is_empty() {
            vec![Span {
                first: file.first,
                last: file.last,
            }]
        } else {
            file.spans
        };
        StorageView {
            arena: file.arena,
            offset: file.offset,
            size: file.size,
            kind: kind(&file.values),
            life,
            members: file
                .values
                .into_iter()
                .map(|m| self.member(m, file.first))
                .collect(),
        }
    }

    /// A node with bodies stands at several steps. Its output is made at the first one if its
    /// memory is held by then, and otherwise when a body leaves: at the last one.
    fn member(&self, file: FileMember, held_from: u32) -> MemberView {
        let made = self.of(&file.producer);
        let made = made.map(|p| if p.first < held_from { p.last } else { p.first });
        let read = self.of(&file.last_reader).map(|p| p.first);
        MemberView { file, made, read }
    }
}

/// The first of a fixed order that one of the members is.
fn kind(members: &[FileMember]) -> MemberKind {
    use MemberKind::{Copy, Input, Intermediate, Output, Workspace};
    [Input, Output, Copy, Intermediate, Workspace]
        .into_iter()
        .find(|kind| members.iter().any(|m| m.kind == *kind))
        .unwrap_or(Intermediate)
}

impl ArenaView {
    fn new(
        plan: &Arena,
        index: u32,
        storages: &[StorageView],
        steps: usize,
    ) -> Result<Self, ReportError> {
        let inside = || {
            storages
                .iter()
                .zip(0u32..)
                .filter(|(s, _)| s.arena == Some(index))
        };
        let load = load(inside().map(|(s, _)| s), steps)?;
        let mut peak: Option<Peak> = None;
        for (&bytes, step) in load.iter().zip(0u32..) {
            if bytes > peak.map_or(0, |p| p.bytes) {
                peak = Some(Peak { step, bytes });
            }
        }
        let mut holders: Vec<u32> = match &peak {
            Some(peak) => inside()
                .filter(|(s, _)| s.size > 0 && holds(&s.life, peak.step))
                .map(|(_, id)| id)
                .collect(),
            None => Vec::new(),
        };
        holders.sort_by_key(|&id| {
            let size = storages.get(id as usize).map_or(0, |s| s.size);
            (std::cmp::Reverse(size), id)
        });
        Ok(ArenaView {
            plan: plan.clone(),
            load,
            peak,
            holders,
        })
    }
}

/// Whether a life has a step.
fn holds(life: &[Span], step: u32) -> bool {
    let after = life.partition_point(|span| span.last < step);
    life.get(after).is_some_and(|span| span.first <= step)
}

fn number(what: &'static str, count: usize) -> Result<(), ReportError> {
    match u32::try_from(count) {
        Ok(_) => Ok(()),
        Err(_) => Err(ReportError::TooMany { what, count }),
    }
}

fn check(arenas: &[Arena], storages: &[StorageView], steps: usize) -> Result<(), ReportError> {
    for (id, storage) in storages.iter().enumerate() {
        let name = || {
            storage
                .members
                .first()
                .map_or_else(String::new, |m| m.file.name.clone())
        };
        let mut free_from = 0u64;
        for &Span { first, last } in &storage.life {
            if u64::from(first) < free_from || last < first || last as usize >= steps {
                return Err(ReportError::BadLife {
                    storage: id,
                    name: name(),
                    first,
                    last,
                    steps,
                });
            }
            free_from = u64::from(last) + 1;
        }
        let Some(index) = storage.arena else { continue };
        let Some(arena) = arenas.get(index as usize) else {
            return Err(ReportError::NoSuchArena {
                storage: id,
                name: name(),
                arena: index,
                arenas: arenas.len(),
            });
        };
        if storage
            .offset
            .checked_add(storage.size)
            .is_none_or(|end| end > arena.size)
        {
            return Err(ReportError::OutsideArena {
                storage: id,
                name: name(),
                offset: storage.offset,
                size: storage.size,
                arena: arena.size,
            });
        }
    }
    Ok(())
}

/// Bytes held at each step: one sweep over the ends of all spans.
fn load<'a>(
    storages: impl Iterator<Item = &'a StorageView>,
    steps: usize,
) -> Result<Vec<u64>, ReportError> {
    let mut starts = vec![0u128; steps];
    let mut ends = vec![0u128; steps];
    for storage in storages {
        for span in &storage.life {
            starts[span.first as usize] += u128::from(storage.size);
            ends[span.last as usize] += u128::from(storage.size);
        }
    }
    let mut held = 0u128;
    let mut load = Vec::with_capacity(steps);
    for (step, (start, end)) in starts.into_iter().zip(ends).enumerate() {
        held += start;
        load.push(u64::try_from(held).map_err(|_| ReportError::LoadOverflow { step })?);
        held -= end;
    }
    Ok(load)
}
