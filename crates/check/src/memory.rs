//! Plans that were made without a graph: what was asked for is there, and nothing that is held at
//! the same step shares a byte.

use std::collections::BTreeMap;

use tenure_graph::plan::Span;
use tenure_graph::plan_file::{FileStorage, PlanFile};

use crate::placements::{Placement, check_placements};
use crate::violation::Violation;

/// One piece of memory that a plan must provide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand<'a> {
    /// Name of the storage.
    pub name: &'a str,
    /// Bytes.
    pub bytes: u64,
    /// Alignment of the offset, a power of two.
    pub align: u64,
    /// When it is needed: ascending, disjoint spans.
    pub life: Vec<Span>,
    /// Whether it lies in an arena; otherwise it is memory of the caller.
    pub placed: bool,
}

/// What is wrong with a plan that was made without a graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemoryViolation {
    /// A storage that was asked for is not there, or stands twice.
    #[error("storage {name:?} stands {times} times in the plan instead of once")]
    NotOnce {
        /// Its name.
        name: String,
        /// How often it stands there.
        times: usize,
    },
    /// A storage is smaller than what was asked for.
    #[error("storage {name:?} has {size} bytes, {bytes} are needed")]
    TooSmall {
        /// Its name.
        name: String,
        /// What the plan gives it.
        size: u64,
        /// What is needed.
        bytes: u64,
    },
    /// A storage starts where it may not.
    #[error("storage {name:?} starts at byte {offset}, which is no multiple of {align}")]
    Misaligned {
        /// Its name.
        name: String,
        /// Its first byte.
        offset: u64,
        /// What it must be a multiple of.
        align: u64,
    },
    /// A storage is not held for as long as it is needed.
    #[error("storage {name:?} is needed at step {step}, at which the plan does not hold it")]
    LifeTooShort {
        /// Its name.
        name: String,
        /// First step that is not covered.
        step: u32,
    },
    /// A storage lies in an arena that should not, or the other way round.
    #[error("storage {name:?} lies in the wrong memory")]
    WrongMemory {
        /// Its name.
        name: String,
    },
    /// An arena is smaller than what lies in it, or does not exist.
    #[error("arena {arena} has {size} bytes, {needed} are used")]
    ArenaTooSmall {
        /// Its number.
        arena: u32,
        /// What the plan says.
        size: u64,
        /// The end of the highest storage.
        needed: u64,
    },
    /// Two storages clash, or one is malformed.
    #[error(transparent)]
    Placement(#[from] Violation),
}

impl MemoryViolation {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            MemoryViolation::NotOnce { .. } => "T090",
            MemoryViolation::TooSmall { .. } => "T091",
            MemoryViolation::Misaligned { .. } => "T092",
            MemoryViolation::LifeTooShort { .. } => "T093",
            MemoryViolation::WrongMemory { .. } => "T094",
            MemoryViolation::ArenaTooSmall { .. } => "T095",
            MemoryViolation::Placement(violation) => violation.code(),
        }
    }
}

/// Checks a plan against what it must provide. Gives back how many storages were looked at.
///
/// # Errors
/// Everything that is wrong.
pub fn check_memory(demands: &[Demand<'_>], plan: &PlanFile) -> Result<u64, Vec<MemoryViolation>> {
    let mut wrong = Vec::new();
    let mut by_name: BTreeMap<&str, Vec<&FileStorage>> = BTreeMap::new();
    for storage in &plan.storages {
        by_name.entry(&storage.name).or_default().push(storage);
    }
    for demand in demands {
        let found = by_name.get(demand.name).map_or(&[][..], Vec::as_slice);
        match found {
            [storage] => provides(demand, storage, &mut wrong),
            _ => wrong.push(MemoryViolation::NotOnce {
                name: demand.name.to_owned(),
                times: found.len(),
            }),
        }
    }
    let lives: Vec<Vec<Span>> = plan.storages.iter().map(life).collect();
    let placements: Vec<Placement<'_>> = plan
        .storages
        .iter()
        .zip(&lives)
        .filter_map(|(storage, life)| {
            Some(Placement {
                size: storage.size,
                align: storage.align,
                life,
                offset: storage.offset,
                arena: storage.arena?,
            })
        })
        .collect();
    match check_placements(&placements) {
        Ok(used) => {
            for (arena, needed) in used {
                let size = usize::try_from(arena).ok().and_then(|a| plan.arenas.get(a));
                let size = size.map_or(0, |a| a.size);
                if size < needed {
                    wrong.push(MemoryViolation::ArenaTooSmall {
                        arena,
                        size,
                        needed,
                    });
                }
            }
        }
        Err(violations) => wrong.extend(violations.into_iter().map(MemoryViolation::from)),
    }
    if wrong.is_empty() {
        Ok(plan.storages.len() as u64)
    } else {
        Err(wrong)
    }
}

fn life(storage: &FileStorage) -> Vec<Span> {
    if storage.spans.is_empty() {
        vec![Span {
            first: storage.first,
            last: storage.last,
        }]
    } else {
        storage.spans.clone()
    }
}

fn provides(demand: &Demand<'_>, storage: &FileStorage, wrong: &mut Vec<MemoryViolation>) {
    let name = || demand.name.to_owned();
    if storage.size < demand.bytes {
        wrong.push(MemoryViolation::TooSmall {
            name: name(),
            size: storage.size,
            bytes: demand.bytes,
        });
    }
    if demand.placed != storage.arena.is_some() {
        wrong.push(MemoryViolation::WrongMemory { name: name() });
    }
    if !storage.offset.is_multiple_of(demand.align.max(1)) {
        wrong.push(MemoryViolation::Misaligned {
            name: name(),
            offset: storage.offset,
            align: demand.align,
        });
    }
    let held = life(storage);
    for need in &demand.life {
        let mut step = need.first;
        for span in held.iter().filter(|s| s.last >= need.first) {
            if span.first > step {
                break;
            }
            step = span.last.saturating_add(1);
            if span.last >= need.last {
                break;
            }
        }
        if step <= need.last {
            wrong.push(MemoryViolation::LifeTooShort { name: name(), step });
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_graph::plan::{Arena, PlanOptions};
    use tenure_graph::plan_file::{CheckBlock, FORMAT, ModelIdentity, Summary};

    fn storage(name: &str, offset: u64, first: u32, last: u32) -> FileStorage {
        FileStorage {
            name: name.to_owned(),
            arena: Some(0),
            offset,
            size: 64,
            align: 64,
            first,
            last,
            spans: Vec::new(),
            values: Vec::new(),
        }
    }

    fn plan(size: u64, storages: Vec<FileStorage>) -> PlanFile {
        PlanFile {
            format: FORMAT.to_owned(),
            model: ModelIdentity::default(),
            options: PlanOptions::default(),
            arenas: vec![Arena {
                kind: "device".to_owned(),
                size,
                align: 64,
                lower_bound: 0,
                proven_optimal: false,
                no_reuse: 0,
            }],
            guard: tenure_graph::changes::Changes::default(),
            steps: Vec::new(),
            storages,
            copies: Vec::new(),
            folded: Vec::new(),
            dynamic: Vec::new(),
            strategy: String::new(),
            summary: Summary::default(),
            check: CheckBlock::default(),
        }
    }

    #[test]
    fn each_broken_demand_has_its_code() {
        let demand = |name, last| Demand {
            name,
            bytes: 50,
            align: 64,
            life: vec![Span { first: 0, last }],
            placed: true,
        };
        let demands = [demand("a", 3), demand("b", 3)];
        let codes = |size, storages: Vec<FileStorage>| match check_memory(
            &demands,
            &plan(size, storages),
        ) {
            Ok(_) => Vec::new(),
            Err(wrong) => wrong.iter().map(MemoryViolation::code).collect(),
        };
        let good = || vec![storage("a", 0, 0, 3), storage("b", 64, 0, 3)];
        assert!(codes(128, good()).is_empty());
        assert_eq!(codes(127, good()), ["T095"]);
        assert_eq!(codes(128, vec![storage("a", 0, 0, 3)]), ["T090"]);
        let mut small = good();
        small[1].size = 49;
        assert_eq!(codes(128, small), ["T091"]);
        let mut short = good();
        short[1].last = 2;
        assert_eq!(codes(128, short), ["T093"]);
        let mut elsewhere = good();
        elsewhere[1].arena = None;
        assert_eq!(codes(128, elsewhere), ["T094"]);
        let mut clash = good();
        clash[1].offset = 0;
        assert_eq!(codes(128, clash), ["T031"]);
        let mut odd = good();
        odd[1].offset = 65;
        odd[1].align = 1;
        assert_eq!(codes(129, odd), ["T092"]);
    }
}
