//! A log of what was asked for, as a trace that `tenure replay` reads.
//!
//! A release is a use by its stream, and a free when nobody holds the block any more. The end of a
//! run is written as events between the main stream and all others.

use std::collections::BTreeMap;

use super::{Allocator, Block, Device};
use crate::trace::{Step, Trace};

/// The event that stands for the ends of runs in a trace.
const END_OF_RUN: u32 = u32::MAX;

/// What was asked for since the log was begun.
#[derive(Clone, Debug)]
pub(super) struct Log {
    /// Numbers of the blocks that are held and were asked for since.
    blocks: BTreeMap<Block, usize>,
    asked: usize,
    steps: Vec<Step>,
    /// Steps that are kept.
    most: usize,
}

impl Log {
    fn push(&mut self, step: Step) {
        if self.steps.len() < self.most {
            self.steps.push(step);
        }
    }

    fn is_full(&self) -> bool {
        self.steps.len() >= self.most
    }
}

impl<D: Device> Allocator<D> {
    /// Begins a log of the next `most` steps.
    pub fn begin_log(&mut self, most: usize) {
        self.log = Some(Box::new(Log {
            blocks: BTreeMap::new(),
            asked: 0,
            steps: Vec::new(),
            most,
        }));
    }

    /// Ends the log and gives it; `None` where none was begun. What was done with blocks that were
    /// asked for before is not in it.
    pub fn end_log(&mut self) -> Option<Trace> {
        let log = self.log.take()?;
        Some(Trace {
            rules: self.rules,
            device_bytes: self.rules.limit,
            streams: self.clocks.count(),
            blocks: (0..log.asked).map(|number| format!("b{number}")).collect(),
            steps: log.steps,
        })
    }

    pub(super) fn log_alloc(&mut self, block: Block, bytes: u64, stream: u32) {
        if let Some(log) = &mut self.log
            && !log.is_full()
        {
            log.blocks.insert(block, log.asked);
            log.asked += 1;
            log.push(Step::Alloc { bytes, stream });
        }
    }

    pub(super) fn log_use(&mut self, block: Block, stream: u32) {
        if let Some(log) = &mut self.log
            && let Some(&block) = log.blocks.get(&block)
        {
            log.push(Step::Use { block, stream });
        }
    }

    /// A block is freed if nobody has it any more.
    pub(super) fn log_free(&mut self, block: Block) {
        if self.log.is_none() || self.blocks.held(block).is_ok() {
            return;
        }
        if let Some(log) = &mut self.log
            && let Some(block) = log.blocks.remove(&block)
        {
            log.push(Step::Free { block });
        }
    }

    pub(super) fn log_step(&mut self, step: Step) {
        if let Some(log) = &mut self.log {
            log.push(step);
        }
    }

    /// All other streams come before the main stream, and then it before them.
    pub(super) fn log_end_of_run(&mut self) {
        let others: Vec<u32> = self.clocks.streams().filter(|&s| s != 0).collect();
        let Some(log) = &mut self.log else { return };
        let event = END_OF_RUN;
        for &stream in &others {
            log.push(Step::Record { event, stream });
            log.push(Step::Wait { event, stream: 0 });
        }
        log.push(Step::Record { event, stream: 0 });
        for stream in others {
            log.push(Step::Wait { event, stream });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocator::{Budget, Rules};

    /// A program on three streams, its log written and read again, and replayed: the same blocks
    /// at the same places.
    #[test]
    fn a_log_replays_to_the_same_memory() {
        let mut memory = Allocator::new(Rules::default(), Budget::default(), 3);
        memory.begin_log(10_000);
        let mut rng = fastrand::Rng::with_seed(4);
        let (mut held, mut places) = (Vec::new(), Vec::new());
        for _ in 0..600 {
            let stream = rng.u32(..3);
            match rng.u32(..8) {
                0..3 => {
                    let block = memory.alloc(rng.u64(1..4000), stream).unwrap();
                    places.push(memory.range(block).unwrap());
                    held.push((block, stream));
                }
                3 if !held.is_empty() => {
                    let (block, owner) = held[rng.usize(..held.len())];
                    if owner != stream {
                        memory.access(block, stream, Some(owner)).unwrap();
                        memory.release(block, stream).unwrap();
                    }
                }
                4 | 5 if !held.is_empty() => {
                    let (block, owner) = held.swap_remove(rng.usize(..held.len()));
                    memory.release(block, owner).unwrap();
                }
                6 => memory.record(rng.u32(..3), stream).unwrap(),
                7 => memory.wait(rng.u32(..3), stream).unwrap(),
                _ => {}
            }
        }
        memory.sync(1).unwrap();
        let trace = memory.end_log().unwrap();
        let text = trace.to_json().to_string();
        let read = Trace::read(text.as_bytes()).unwrap();
        let replay = read.replay().unwrap();
        assert_eq!(replay.places(), places);
        assert_eq!(replay.stats().most_reserved, memory.most_reserved());
        assert_eq!(memory.end_log(), None);
    }

    #[test]
    fn a_log_has_no_more_steps_than_it_may() {
        let mut memory = Allocator::new(Rules::default(), Budget::default(), 2);
        memory.begin_log(5);
        let a = memory.alloc(1, 0).unwrap();
        memory.release(a, 0).unwrap();
        memory.final_clean();
        let b = memory.alloc(1, 0).unwrap();
        memory.release(b, 0).unwrap();
        let trace = memory.end_log().unwrap();
        assert_eq!((trace.steps.len(), trace.blocks.len()), (5, 1));
        assert!(trace.replay().is_ok());
    }
}
