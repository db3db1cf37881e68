//! The run: one instruction after the other.

use std::ops::ControlFlow;

use crate::RuntimeError;
use crate::memory::Memory;
use crate::numbers::number;
use crate::program::{Action, Condition, Instruction, Program, Work};

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
        execute(&mut self.memory, &mut self.code, self.limit, &mut ())
    }
}

/// Runs instructions, at most `limit` of them.
pub(crate) fn execute(
    memory: &mut Memory,
    code: &mut [Instruction],
    limit: u64,
    watch: &mut impl Watch,
) -> Result<(), RuntimeError> {
    let mut at = 0;
    let mut left = limit;
    while let Some(instruction) = code.get_mut(at) {
        left = left.checked_sub(1).ok_or(RuntimeError::TooLong(limit))?;
        watch.before(memory, instruction);
        at = perform(memory, instruction, at + 1)?;
        if watch.after(memory, instruction).is_break() {
            return Ok(());
        }
    }
    Ok(())
}

/// Does what an instruction says, and gives the number of the next one, `next` as a rule.
fn perform(
    memory: &mut Memory,
    instruction: &mut Instruction,
    next: usize,
) -> Result<usize, RuntimeError> {
    match &mut instruction.action {
        Action::Copy { from, to } => memory.copy(*from, *to),
        Action::Clear(at) => memory.bytes_mut(*at).fill(0),
        Action::Kernel(work) => work_on(memory, work)?,
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
    }
    Ok(next)
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
