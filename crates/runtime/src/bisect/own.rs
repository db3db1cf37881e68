//! Our own executor as an engine: right is what it gives when nothing shares memory.

use tenure_check::CheckedPlan;
use tenure_graph::Graph;
use tenure_graph::effects::OpTable;

use super::{Engine, Trial, Verdict};
use crate::fault::Fault;
use crate::sanitize::{BadWrite, Sanitizer};
use crate::{Kernels, Layout, Program, RuntimeError};

/// Runs plans here, with somebody's kernels, and compares all outputs bit by bit.
#[derive(Debug)]
pub struct Own<'a> {
    graph: &'a Graph,
    table: &'a OpTable,
    kernels: &'a Kernels,
    faults: &'a [Fault],
    inputs: &'a [&'a [u8]],
    expected: Vec<Vec<u8>>,
    steady: bool,
}

impl<'a> Own<'a> {
    /// Runs `alone`, a plan in which no two values share memory, twice: what it gives is right, and
    /// the kernels are [`steady`](Own::is_steady) if it is the same both times.
    ///
    /// # Errors
    /// As [`Program::new`] and [`Program::run`].
    pub fn new(
        graph: &'a Graph,
        table: &'a OpTable,
        alone: &CheckedPlan,
        kernels: &'a Kernels,
        faults: &'a [Fault],
        inputs: &'a [&'a [u8]],
        zone: usize,
    ) -> Result<Self, RuntimeError> {
        let layout = Layout::Guarded { zone };
        let mut program = Program::with_faults(graph, table, alone, kernels, layout, faults)?;
        program.run(inputs)?;
        let expected = results(&program);
        // Variables are kept from run to run.
        let mut again = Program::with_faults(graph, table, alone, kernels, layout, faults)?;
        again.run(inputs)?;
        Ok(Own {
            graph,
            table,
            kernels,
            faults,
            inputs,
            steady: results(&again) == expected,
            expected,
        })
    }

    /// Whether two runs that share nothing give the same. If not, no sharing is to blame.
    #[must_use]
    pub fn is_steady(&self) -> bool {
        self.steady
    }
}

fn results(program: &Program) -> Vec<Vec<u8>> {
    let count = program.results().len();
    (0..count).map(|i| program.result(i)).collect()
}

impl Engine for Own<'_> {
    type Error = RuntimeError;

    fn run(&mut self, trial: &Trial<'_>) -> Result<Verdict, RuntimeError> {
        let (graph, table, kernels) = (self.graph, self.table, self.kernels);
        let layout = Layout::Planned;
        let program = Program::with_faults(graph, table, trial.plan, kernels, layout, self.faults);
        let mut program = program?;
        match program.run(self.inputs) {
            // What was overwritten can be no row of a table, or too many passes.
            Err(
                RuntimeError::Values { .. }
                | RuntimeError::Passes { .. }
                | RuntimeError::TooLong(_),
            ) => return Ok(Verdict::Wrong),
            ran => ran?,
        }
        Ok(match results(&program) == self.expected {
            true => Verdict::Right,
            false => Verdict::Wrong,
        })
    }

    fn guarded(&mut self, plan: &CheckedPlan) -> Result<Option<BadWrite>, RuntimeError> {
        let (graph, table, kernels) = (self.graph, self.table, self.kernels);
        Sanitizer::new(graph, table, plan, kernels, self.faults)?.run(self.inputs)
    }
}
