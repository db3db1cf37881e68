//! The run: one instruction after the other.

use std::ops::ControlFlow;

use crate::RuntimeError;
use crate::kernels::Call;
use crate::memory::{copy, fill};
use crate::numbers::number;
use crate::program::{Action, Condition, Instruction, Program, Work};

/// What a node leaves in an input that it spoils: as float32, a huge number.
const GARBAGE: u8 = 0x7e;

/// Looks on while a program runs.
pub(crate) trait Watch {
    /// Before an instruction.
    fn before(&mut self, program: &Program, instruction: &Instruction);

    /// After an instruction; a break ends the run.
    fn after(&mut self, program: &Program, instruction: &Instruction) -> ControlFlow<()>;
}

/// Looks away.
impl Watch for () {
    fn before(&mut self, _: &Program, _: &Instruction) {}

    fn after(&mut self, _: &Program, _: &Instruction) -> ControlFlow<()> {
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
        self.execute(&self.code, &mut ())
    }

    pub(crate) fn execute(
        &self,
        code: &[Instruction],
        watch: &mut impl Watch,
    ) -> Result<(), RuntimeError> {
        let mut at = 0;
        let mut left = self.limit;
        while let Some(instruction) = code.get(at) {
            left = left
                .checked_sub(1)
                .ok_or(RuntimeError::TooLong(self.limit))?;
            watch.before(self, instruction);
            at = self.perform(instruction, at + 1);
            if watch.after(self, instruction).is_break() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Does what an instruction says, and gives the number of the next one, `next` as a rule.
    fn perform(&self, instruction: &Instruction, next: usize) -> usize {
        match &instruction.action {
            Action::Copy { from, to } => {
                copy(self.memory.bytes(*from), self.memory.bytes(*to));
            }
            Action::Clear(at) => fill(self.memory.bytes(*at), 0),
            Action::Kernel(work) => self.work(work),
            Action::Test { condition, yes, no } => {
                let holds = self.number(*condition) != 0.0;
                return if holds { *yes } else { *no };
            }
            Action::Select { number, targets } => {
                let chosen = self.number(*number);
                let last = targets.len().saturating_sub(1);
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "what is too large becomes the largest number, which has no target"
                )]
                let chosen = if chosen < 0.0 { last } else { chosen as usize };
                return targets.get(chosen.min(last)).copied().unwrap_or(next);
            }
            Action::Jump(to) => return *to,
        }
        next
    }

    fn work(&self, work: &Work) {
        let (inputs, outputs) = (&work.inputs, &work.outputs);
        let call = Call::new(&self.memory, inputs, outputs, &work.scratch);
        work.kernel.run(&call);
        for &at in &work.spoilt {
            fill(self.memory.bytes(at), GARBAGE);
        }
    }

    /// The first element of a condition; 0 where it has none.
    fn number(&self, condition: Condition) -> f64 {
        let mut first = [0; 8];
        let size = condition
            .dtype
            .bytes(1)
            .and_then(|n| usize::try_from(n).ok());
        let first = first.get_mut(..size.unwrap_or(0)).unwrap_or_default();
        let bytes = self.memory.bytes(condition.at);
        for (byte, cell) in first.iter_mut().zip(bytes) {
            *byte = cell.get();
        }
        number(condition.dtype, first).unwrap_or(0.0)
    }
}
