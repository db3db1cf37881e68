//! The guarded run: names the node that writes outside of what is its own.
//!
//! Every storage, constant, variable and tensor of the caller has a block of its own with a guard
//! zone before and behind it. After each instruction all memory is compared with a copy of it:
//! only the node's outputs, its scratch and what it may spoil can have changed. What is not alive
//! is filled with a pattern, so that who reads it gets nothing of use. Zones are wider around what
//! operators of a user's own read or write, which may write anywhere.
//!
//! The time of a run is that of a plain run, and for each instruction that of comparing all memory
//! once.

use std::fmt;
use std::ops::ControlFlow;

use rustc_hash::FxHashSet;
use tenure_check::CheckedPlan;
use tenure_graph::effects::OpTable;
use tenure_graph::plan::Life;
use tenure_graph::{Graph, NodeId};

use crate::RuntimeError;
use crate::exec::{Watch, execute};
use crate::fault::Fault;
use crate::kernels::Kernels;
use crate::memory::{Address, Memory};
use crate::program::{Instruction, Layout, Program, Resident};

/// Bytes of a guard zone. What is written further off leaves the block, and is not written at all.
const ZONE: usize = 64;

/// Where a write went that is not allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hit {
    /// So many bytes past the end of a tensor, 0 for the next one.
    Past(usize),
    /// So many bytes before the start of a tensor, 1 for the nearest one.
    Before(usize),
    /// This byte of a tensor.
    Inside(usize),
}

/// A write outside of what is the node's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadWrite {
    /// The node.
    pub node: NodeId,
    /// Its label.
    pub name: String,
    /// The step of the plan.
    pub step: u32,
    /// Label of the tensor that was hit, or that was missed least.
    pub tensor: String,
    /// The first byte that was written.
    pub hit: Hit,
    /// Number of bytes from there on that were changed in one piece.
    pub bytes: usize,
}

impl fmt::Display for BadWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BadWrite {
            name, step, tensor, ..
        } = self;
        write!(
            f,
            "node {name:?} writes {} bytes that are not its own at step {step}, from ",
            self.bytes
        )?;
        match self.hit {
            Hit::Past(n) => write!(f, "byte {n} past the end of {tensor:?} on"),
            Hit::Before(n) => write!(f, "byte {n} before the start of {tensor:?} on"),
            Hit::Inside(n) => write!(f, "byte {n} of {tensor:?} on"),
        }
    }
}

/// A program in guarded memory.
#[derive(Debug)]
pub struct Sanitizer {
    program: Program,
    lives: Vec<Life>,
    labels: Vec<(NodeId, String)>,
}

impl Sanitizer {
    /// Lays a checked plan out with guard zones.
    ///
    /// # Errors
    /// As [`Program::new`], and [`RuntimeError::NoSuchOutput`].
    pub fn new(
        graph: &Graph,
        table: &OpTable,
        plan: &CheckedPlan,
        kernels: &Kernels,
        faults: &[Fault],
    ) -> Result<Self, RuntimeError> {
        let layout = Layout::Guarded { zone: ZONE };
        let program = Program::with_faults(graph, table, plan, kernels, layout, faults)?;
        let mut labels: Vec<(NodeId, String)> = (program.code.iter().map(|i| i.node))
            .map(|n| (n, graph.node_label(n)))
            .collect();
        labels.sort_unstable();
        labels.dedup();
        Ok(Sanitizer {
            lives: plan
                .plan()
                .storages
                .values()
                .map(|s| s.life.clone())
                .collect(),
            labels,
            program,
        })
    }

    /// The program, for its inputs and results.
    #[must_use]
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The program, to set its variables.
    pub fn program_mut(&mut self) -> &mut Program {
        &mut self.program
    }

    /// Limits a run, as [`Program::set_limit`].
    pub fn set_limit(&mut self, instructions: u64) {
        self.program.set_limit(instructions);
    }

    /// Runs the program, up to the first write that is not allowed.
    ///
    /// # Errors
    /// As [`Program::run`].
    pub fn run(&mut self, inputs: &[&[u8]]) -> Result<Option<BadWrite>, RuntimeError> {
        let program = &mut self.program;
        let pooled: FxHashSet<u32> = program.pool.look().blocks().collect();
        for number in program.memory.numbers().filter(|n| !pooled.contains(n)) {
            let owned = program.residents.iter().filter(|r| r.at.block == number);
            let planned = program.planned.contains(&number);
            let kept: Vec<Address> = owned.map(|r| r.at).filter(|_| !planned).collect();
            for (i, byte) in program.memory.block_mut(number).iter_mut().enumerate() {
                if !kept.iter().any(|at| (at.start..at.end()).contains(&i)) {
                    *byte = pattern(number, i);
                }
            }
        }
        program.feed(inputs)?;
        // Memory of the allocator is written as it comes, and not looked at.
        let pooled: FxHashSet<u32> = program.pool.look().blocks().collect();
        let block = |n: u32| match pooled.contains(&n) {
            true => Vec::new(),
            false => program.memory.block(n).to_vec(),
        };
        let blocks = program.memory.numbers();
        let mut guard = Guard {
            storages: &program.storages,
            residents: &program.residents,
            lives: &self.lives,
            labels: &self.labels,
            copy: blocks.map(block).collect(),
            alive: self.lives.iter().map(|life| covers(life, 0)).collect(),
            step: 0,
            found: None,
        };
        let (memory, pool) = (&mut program.memory, &program.pool);
        execute(memory, pool, &mut program.code, program.limit, &mut guard)?;
        Ok(guard.found)
    }
}

/// What belongs to nobody: bytes that are hardly what a kernel writes by chance.
fn pattern(block: u32, i: usize) -> u8 {
    let place = (u64::from(block) << 40) ^ (i as u64);
    let mixed = place.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed.to_be_bytes()[1] | 1
}

fn covers(life: &Life, step: u32) -> bool {
    life.iter().any(|s| s.first <= step && step <= s.last)
}

struct Guard<'a> {
    storages: &'a [Address],
    residents: &'a [Resident],
    lives: &'a [Life],
    labels: &'a [(NodeId, String)],
    /// What all memory held after the last instruction, block by block.
    copy: Vec<Vec<u8>>,
    /// Which storages are held.
    alive: Vec<bool>,
    step: u32,
    found: Option<BadWrite>,
}

impl Watch for Guard<'_> {
    fn before(&mut self, memory: &mut Memory, instruction: &Instruction) {
        if instruction.step == self.step {
            return;
        }
        self.step = instruction.step;
        let storages = self.lives.iter().zip(&mut self.alive).zip(self.storages);
        for ((life, alive), at) in storages {
            let now = covers(life, self.step);
            if now != *alive {
                *alive = now;
                for (i, byte) in (at.start..).zip(memory.bytes_mut(*at)) {
                    *byte = pattern(at.block, i);
                }
                take_over(memory, &mut self.copy, *at);
            }
        }
    }

    fn after(&mut self, memory: &mut Memory, instruction: &Instruction) -> ControlFlow<()> {
        let mut writes: Vec<Address> = instruction.writes().collect();
        // What is held no more is nobody's.
        writes.retain(|at| !self.is_dead(at.block));
        writes.sort_unstable();
        for (number, held) in memory.numbers().zip(&self.copy) {
            let now = memory.block(number);
            let own = writes.iter().filter(|at| at.block == number);
            if let Some((first, bytes)) = difference(now, held, own) {
                self.found = Some(self.report(instruction, number, first, bytes));
                return ControlFlow::Break(());
            }
        }
        for at in writes {
            take_over(memory, &mut self.copy, at);
        }
        ControlFlow::Continue(())
    }
}

impl Guard<'_> {
    /// Whether a block is that of a storage that is not held.
    fn is_dead(&self, block: u32) -> bool {
        // Storages have blocks of their own, numbered as they are.
        let at = self.storages.partition_point(|s| s.block < block);
        let here = self.storages.get(at).is_some_and(|s| s.block == block);
        here && !self.alive[at]
    }

    /// What a write outside of the node's own has hit: the outputs that the node missed come first.
    fn report(
        &self,
        instruction: &Instruction,
        block: u32,
        first: usize,
        bytes: usize,
    ) -> BadWrite {
        let here = self.residents.iter().filter(|r| r.at.block == block);
        let own = |at: &Address| instruction.writes().any(|w| w == *at);
        let distance = |at: &Address| {
            if first < at.start {
                (at.start - first, Hit::Before(at.start - first))
            } else if first >= at.end() {
                (first - at.end() + 1, Hit::Past(first - at.end()))
            } else {
                (0, Hit::Inside(first - at.start))
            }
        };
        let nearest = here.min_by_key(|r| (distance(&r.at).0, !own(&r.at)));
        let hit = nearest.map_or(Hit::Past(first), |r| distance(&r.at).1);
        let label = self.labels.binary_search_by_key(&instruction.node, |l| l.0);
        BadWrite {
            node: instruction.node,
            name: label.map_or(String::new(), |i| self.labels[i].1.clone()),
            step: instruction.step,
            tensor: nearest.map_or(String::new(), |r| r.label.clone()),
            hit,
            bytes,
        }
    }
}

/// The first bytes in which two blocks differ, beside those that may: where, and how many. What may
/// differ is sorted.
fn difference<'w>(
    now: &[u8],
    held: &[u8],
    may_differ: impl Iterator<Item = &'w Address>,
) -> Option<(usize, usize)> {
    let mut from = 0;
    let ends = may_differ.map(|at| (at.start, at.end()));
    for (start, end) in ends.chain([(held.len(), held.len())]) {
        let range = from..start.max(from);
        from = from.max(end);
        let (now, held) = (now.get(range.clone())?, held.get(range.clone())?);
        let differs = |(now, held): (&u8, &u8)| now != held;
        let mut pairs = now.iter().zip(held);
        if let Some(first) = pairs.position(differs) {
            let more = pairs.take_while(|&pair| differs(pair)).count();
            return Some((range.start + first, more + 1));
        }
    }
    None
}

/// What lies at an address now is what lies there by right.
fn take_over(memory: &Memory, copy: &mut [Vec<u8>], at: Address) {
    let held = copy.get_mut(at.block as usize);
    let held = held.and_then(|block| block.get_mut(at.start..at.end()));
    if let Some(held) = held.filter(|held| held.len() == memory.bytes(at).len()) {
        held.copy_from_slice(memory.bytes(at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_differ_is_passed_over() {
        let held = [1, 2, 3, 4, 5, 6];
        let now = [1, 9, 9, 4, 8, 8];
        let at = |start, len| Address {
            block: 0,
            start,
            len,
        };
        let differ = |own: &[Address]| difference(&now, &held, own.iter());
        assert_eq!(differ(&[]), Some((1, 2)));
        assert_eq!(differ(&[at(2, 1)]), Some((1, 1)));
        assert_eq!(differ(&[at(0, 3), at(1, 1)]), Some((4, 2)));
        assert_eq!(differ(&[at(1, 2), at(4, 2)]), None);
        assert_eq!(differ(&[at(1, 5)]), None);
    }
}
