//! The run: one instruction after the other.

use std::ops::ControlFlow;
use std::time::Instant;

use crate::RuntimeError;
use crate::memory::{Address, Memory};
use crate::numbers::number;
use crate::pool::Pool;
use crate::profile::{Clock, Timed};
use crate::program::{Action, Condition, Instruction, Program, Trips, Work};

/// What a node leaves in an input that it spoils: as float32, a huge number.
const GARBAGE: u8 = 0x7e;

/// Looks on while a program runs.
pub(crate) trait Watch {
    /// Before an instruction.
    fn before(&mut self, memory: &mut Memory, instruction: &Instruction);

    /// After an instruction; a break ends the run.
    fn after(&mut self, memory: &mut Memory, instruction: &Instruction) -> ControlFlow<()>;
}

/// Looks away.
impl Watch for () {
    fn before(&mut self, _: &mut Memory, _: &Instruction) {}

    fn after(&mut self, _: &mut Memory, _: &Instruction) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

impl Program {
    /// Runs the program on the caller's inputs, as many and in the order of
    /// [`inputs`](Program::inputs). It may be run any number of times; what is kept is in its
    /// variables alone.
    ///
    /// # Errors
    /// When number or sizes of the inputs are wrong; nothing has run then. When the run does not
    /// end within its limit.
    pub fn run(&mut self, inputs: &[&[u8]]) -> Result<(), RuntimeError> {
        self.feed(inputs)?;
        match &self.threads {
            Some(threads) => threads.run(self.limit, false).map(drop),
            None => {
                let (memory, pool) = (&mut self.memory, &self.pool);
                execute(memory, pool, &mut self.code, self.limit, &mut ())
            }
        }
    }

    /// The same, and when each step ran.
    ///
    /// # Errors
    /// As [`run`](Program::run).
    pub fn run_timed(&mut self, inputs: &[&[u8]]) -> Result<Vec<Timed>, RuntimeError> {
        self.feed(inputs)?;
        if let Some(threads) = &self.threads {
            return threads.run(self.limit, true);
        }
        let mut clock = Clock::new(Instant::now(), 0);
        let (memory, pool) = (&mut self.memory, &self.pool);
        execute(memory, pool, &mut self.code, self.limit, &mut clock)?;
        Ok(clock.into_spans())
    }
}

/// Runs instructions, at most `limit` of them.
pub(crate) fn execute(
    memory: &mut Memory,
    pool: &Pool,
    code: &mut [Instruction],
    limit: u64,
    watch: &mut impl Watch,
) -> Result<(), RuntimeError> {
    let mut at = 0;
    let mut left = limit;
    while let Some(instruction) = code.get_mut(at) {
        left = left.checked_sub(1).ok_or(RuntimeError::TooLong(limit))?;
        watch.before(memory, instruction);
        at = perform(memory, pool, instruction, at + 1)?;
        if watch.after(memory, instruction).is_break() {
            return Ok(());
        }
    }
    Ok(())
}

/// Does what an instruction says, and gives the number of the next one, `next` as a rule.
fn perform(
    memory: &mut Memory,
    pool: &Pool,
    instruction: &mut Instruction,
    next: usize,
) -> Result<usize, RuntimeError> {
    match &mut instruction.action {
        Action::Copy { from, to } => memory.copy(*from, *to),
        Action::Clear(at) => memory.bytes_mut(*at).fill(0),
        Action::Kernel(work) => work_on(memory, work)?,
        Action::Stray { from, to } => match *from {
            Some(from) => memory.copy(from, *to),
            None => memory.bytes_mut(*to).iter_mut().for_each(|b| *b = !*b),
        },
        Action::Test { condition, yes, no } => {
            let holds = first(memory, *condition) != 0.0;
            return Ok(if holds { *yes } else { *no });
        }
        Action::Select { number, targets } => {
            let chosen = first(memory, *number);
            let last = targets.len().saturating_sub(1);
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "what is too large becomes the largest number, which has no target"
            )]
            let chosen = if chosen < 0.0 { last } else { chosen as usize };
            return Ok(targets.get(chosen.min(last)).copied().unwrap_or(next));
        }
        Action::Jump(to) => return Ok(*to),
        Action::Start { counter, condition } => {
            let live = condition.is_none_or(|c| first(memory, c) != 0.0);
            set_counter(memory, *counter, 0, live);
        }
        Action::Next {
            counter,
            trips,
            exit,
        } => {
            let (passes, live) = self::counter(memory, *counter);
            let bound = match *trips {
                Trips::Any => i64::MAX,
                Trips::Fixed(n) => n,
                Trips::At(at) => memory
                    .bytes(at)
                    .first_chunk()
                    .map_or(0, |b| i64::from_le_bytes(*b)),
            };
            if !live || passes >= bound {
                return Ok(*exit);
            }
        }
        Action::Make { counter, to, truth } => {
            let (passes, live) = self::counter(memory, *counter);
            let to = memory.bytes_mut(*to);
            if *truth {
                to.fill(u8::from(live));
            } else {
                to.copy_from_slice(&passes.to_le_bytes()[..to.len().min(8)]);
            }
        }
        Action::Slice {
            counter,
            slice,
            out,
        } => {
            let index = usize::try_from(self::counter(memory, *counter).0).unwrap_or(usize::MAX);
            if index >= slice.count {
                return Err(RuntimeError::Passes {
                    planned: slice.count,
                    step: instruction.step,
                });
            }
            for (whole, part) in slice.runs(index) {
                let (from, to) = if *out { (whole, part) } else { (part, whole) };
                memory.copy(from, to);
            }
        }
        Action::Pooled(pooled) => {
            let done = pooled.perform(memory, pool);
            done.map_err(|reason| RuntimeError::Values {
                node: pooled.node.clone(),
                reason,
            })?;
        }
        Action::Decide { counter, condition } => {
            let live = first(memory, *condition) != 0.0;
            let passes = self::counter(memory, *counter).0;
            set_counter(memory, *counter, passes, live);
        }
        Action::Step { counter } => {
            let (passes, live) = self::counter(memory, *counter);
            set_counter(memory, *counter, passes.saturating_add(1), live);
        }
        Action::Done { counter, planned } => {
            let passes = self::counter(memory, *counter).0;
            if let Some(planned) = planned.filter(|&p| p != passes) {
                return Err(RuntimeError::Passes {
                    planned: usize::try_from(planned).unwrap_or(0),
                    step: instruction.step,
                });
            }
        }
    }
    Ok(next)
}

/// Bytes of a loop's counter: the passes that are over, and whether it goes on.
pub(crate) const COUNTER: u64 = 9;

fn counter(memory: &Memory, at: Address) -> (i64, bool) {
    let bytes = memory.bytes(at);
    let passes = bytes.first_chunk().map_or(0, |b| i64::from_le_bytes(*b));
    (passes, bytes.last().is_some_and(|&b| b != 0))
}

fn set_counter(memory: &mut Memory, at: Address, passes: i64, live: bool) {
    if let Some((live_at, passes_at)) = memory.bytes_mut(at).split_last_mut() {
        passes_at.copy_from_slice(&passes.to_le_bytes());
        *live_at = u8::from(live);
    }
}

fn work_on(memory: &mut Memory, work: &mut Work) -> Result<(), RuntimeError> {
    let done = memory.run(&mut *work.kernel, &work.slots);
    done.map_err(|reason| RuntimeError::Values {
        node: work.node.clone(),
        reason,
    })?;
    for &at in &work.spoilt {
        memory.bytes_mut(at).fill(GARBAGE);
    }
    Ok(())
}

/// The first element of a condition; 0 where it has none.
fn first(memory: &Memory, condition: Condition) -> f64 {
    let size = condition
        .dtype
        .bytes(1)
        .and_then(|n| usize::try_from(n).ok());
    let bytes = memory.bytes(condition.at);
    let element = size.and_then(|n| bytes.get(..n));
    element
        .and_then(|bytes| number(condition.dtype, bytes))
        .unwrap_or(0.0)
}
