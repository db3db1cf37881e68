//! A plan made ready to run: a flat list of instructions on addresses, and the memory that they
//! work in. Graph, table and plan are needed no more.

use std::fmt;

use tenure_check::CheckedPlan;
use tenure_graph::effects::OpTable;
use tenure_graph::{DType, Dim, Graph, NodeId, Shape};

use crate::RuntimeError;
use crate::fault::Fault;
use crate::kernels::{Kernel, Kernels};
use crate::memory::{Address, Memory, Slots};
use crate::pool::{Pool, PoolUsage, Pooled, Slot};
use crate::resolve;
use crate::resolve::places::Constants;
use crate::streams::Threads;

/// How storages are laid into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// As the plan says: a block an arena.
    Planned,
    /// Every storage, constant, variable and tensor of the caller in a block of its own, with so
    /// many bytes before and behind that belong to nobody.
    Guarded {
        /// Bytes of a zone.
        zone: usize,
    },
}

/// What is done.
#[derive(Debug)]
pub(crate) enum Action {
    /// Bytes are copied to another place.
    Copy { from: Address, to: Address },
    /// Bytes become zero.
    Clear(Address),
    /// A kernel runs.
    Kernel(Work),
    /// A fault that was asked for: bytes are negated, or those from elsewhere written.
    Stray { from: Option<Address>, to: Address },
    /// Goes on at one of two instructions, by the first element of a condition.
    Test {
        condition: Condition,
        yes: usize,
        no: usize,
    },
    /// Goes on at the instruction that the first element numbers; the last one for numbers that
    /// there are no instructions for.
    Select {
        number: Condition,
        targets: Vec<usize>,
    },
    /// Goes on elsewhere.
    Jump(usize),
    /// A loop begins: no pass has run.
    Start {
        counter: Address,
        condition: Option<Condition>,
    },
    /// A pass of a loop begins, or none is left and the run goes on at `exit`.
    Next {
        counter: Address,
        trips: Trips,
        exit: usize,
    },
    /// The number of the pass, or the condition, is written for the body.
    Make {
        counter: Address,
        to: Address,
        truth: bool,
    },
    /// The slice of this pass is copied out of, or into, a whole.
    Slice {
        counter: Address,
        slice: Slice,
        out: bool,
    },
    /// The body has decided whether the loop goes on.
    Decide {
        counter: Address,
        condition: Condition,
    },
    /// A pass is over.
    Step { counter: Address },
    /// A loop is over. As many passes have run as the plan has slices for.
    Done {
        counter: Address,
        planned: Option<i64>,
    },
    /// Something is done with values whose sizes are known only now.
    Pooled(Box<Pooled>),
}

/// How often a loop runs at most.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Trips {
    /// No bound.
    Any,
    /// So often.
    Fixed(i64),
    /// As the int64 there says.
    At(Address),
}

/// Slices of a tensor along an axis, one a pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slice {
    pub(crate) whole: Address,
    pub(crate) part: Address,
    /// Slices along the axis.
    pub(crate) count: usize,
    /// Bytes that lie side by side in a slice.
    pub(crate) run: usize,
    /// The last one comes first.
    pub(crate) backwards: bool,
}

impl Slice {
    /// The runs of slice `index`, as pairs of places in the whole and in the part.
    pub(crate) fn runs(&self, index: usize) -> impl Iterator<Item = (Address, Address)> + use<> {
        let slice = *self;
        let index = if slice.backwards {
            slice.count.saturating_sub(index + 1)
        } else {
            index
        };
        let at = move |of: Address, n: usize| Address {
            start: of.start.saturating_add(n.saturating_mul(slice.run)),
            len: slice.run,
            ..of
        };
        let outer = slice.part.len.checked_div(slice.run).unwrap_or(0);
        (0..outer).map(move |o| (at(slice.whole, o * slice.count + index), at(slice.part, o)))
    }
}

/// One run of a kernel.
pub(crate) struct Work {
    pub(crate) kernel: Box<dyn Kernel>,
    /// Label of the node.
    pub(crate) node: String,
    /// What the kernel sees.
    pub(crate) slots: Slots,
    /// Where the plan has the outputs.
    pub(crate) outputs: Vec<Address>,
    /// All that the kernel writes beside its outputs: temporary memory, in the plan or beside it.
    pub(crate) temporary: Vec<Address>,
    /// Inputs in which the node leaves garbage when it is done.
    pub(crate) spoilt: Vec<Address>,
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Work");
        out.field("node", &self.node).field("slots", &self.slots);
        out.finish_non_exhaustive()
    }
}

/// A tensor whose first element decides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Condition {
    pub(crate) at: Address,
    pub(crate) dtype: DType,
}

impl Action {
    /// The instructions that it may go to.
    pub(crate) fn targets(&self) -> impl Iterator<Item = usize> {
        let (one, many): ([Option<usize>; 2], &[usize]) = match self {
            Action::Test { yes, no, .. } => ([Some(*yes), Some(*no)], &[]),
            Action::Select { targets, .. } => ([None; 2], targets),
            Action::Jump(to) => ([Some(*to), None], &[]),
            Action::Next { exit, .. } => ([Some(*exit), None], &[]),
            _ => ([None; 2], &[]),
        };
        one.into_iter().flatten().chain(many.iter().copied())
    }

    /// Counts the instructions that it may go to from another one on, before which none of them is.
    pub(crate) fn shift_targets(&mut self, first: usize) {
        let shift = |to: &mut usize| *to = to.saturating_sub(first);
        match self {
            Action::Test { yes, no, .. } => [yes, no].into_iter().for_each(shift),
            Action::Select { targets, .. } => targets.iter_mut().for_each(shift),
            Action::Jump(to) => shift(to),
            Action::Next { exit, .. } => shift(exit),
            _ => {}
        }
    }
}

/// One instruction.
#[derive(Debug)]
pub(crate) struct Instruction {
    pub(crate) action: Action,
    /// On whose account.
    pub(crate) node: NodeId,
    /// Number of the step in the plan.
    pub(crate) step: u32,
}

impl Instruction {
    /// Where it reads.
    pub(crate) fn reads(&self) -> impl Iterator<Item = Address> {
        let (some, work): ([Option<Address>; 2], Option<&Work>) = match &self.action {
            Action::Copy { from, .. } => ([Some(*from), None], None),
            Action::Kernel(work) => ([None; 2], Some(work)),
            Action::Test { condition, .. }
            | Action::Select {
                number: condition, ..
            } => ([Some(condition.at), None], None),
            Action::Start { counter, condition } => {
                ([Some(*counter), condition.map(|c| c.at)], None)
            }
            Action::Next { counter, trips, .. } => match *trips {
                Trips::At(at) => ([Some(*counter), Some(at)], None),
                Trips::Any | Trips::Fixed(_) => ([Some(*counter), None], None),
            },
            Action::Decide { counter, condition } => ([Some(*counter), Some(condition.at)], None),
            Action::Slice {
                counter,
                slice,
                out,
            } => {
                let from = if *out { slice.whole } else { slice.part };
                ([Some(*counter), Some(from)], None)
            }
            Action::Make { counter, .. }
            | Action::Step { counter }
            | Action::Done { counter, .. } => ([Some(*counter), None], None),
            Action::Stray { from, .. } => ([*from, None], None),
            Action::Clear(_) | Action::Jump(_) | Action::Pooled(_) => ([None; 2], None),
        };
        let of_work = work.into_iter().flat_map(|w| w.slots.reads());
        let pooled = self.pooled().into_iter().flat_map(Pooled::reads);
        some.into_iter().flatten().chain(of_work).chain(pooled)
    }

    /// Where it may write.
    pub(crate) fn writes(&self) -> impl Iterator<Item = Address> {
        let (one, many): (Option<Address>, [&[Address]; 3]) = match &self.action {
            Action::Copy { to, .. } => (Some(*to), [&[]; 3]),
            Action::Clear(at) => (Some(*at), [&[]; 3]),
            Action::Kernel(work) => (None, [&work.outputs, &work.temporary, &work.spoilt]),
            Action::Start { counter, .. }
            | Action::Decide { counter, .. }
            | Action::Step { counter } => (Some(*counter), [&[]; 3]),
            Action::Make { to, .. } => (Some(*to), [&[]; 3]),
            Action::Slice {
                slice, out: true, ..
            } => (Some(slice.part), [&[]; 3]),
            Action::Slice { slice, .. } => (Some(slice.whole), [&[]; 3]),
            Action::Test { .. }
            | Action::Select { .. }
            | Action::Jump(_)
            | Action::Next { .. }
            | Action::Done { .. }
            | Action::Pooled(_)
            | Action::Stray { .. } => (None, [&[]; 3]),
        };
        let pooled = self.pooled().into_iter().flat_map(Pooled::writes);
        let many = many.into_iter().flatten().copied();
        one.into_iter().chain(many).chain(pooled)
    }

    /// What it does with values whose sizes are known only during the run.
    pub(crate) fn pooled(&self) -> Option<&Pooled> {
        match &self.action {
            Action::Pooled(pooled) => Some(pooled),
            _ => None,
        }
    }
}

/// A tensor in memory, as the caller sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Its label in the graph.
    pub name: String,
    /// Type of its elements.
    pub dtype: DType,
    /// Its dimensions, where they are known.
    pub dims: Option<Vec<u64>>,
    /// Its shape as the graph has it; `None` where not even the rank is known.
    pub shape: Option<Shape>,
    pub(crate) at: Address,
    /// Where it is instead, if its size is known only during the run.
    pub(crate) slot: Option<Slot>,
}

impl Tensor {
    fn wrong_shape(&self, given: &str) -> RuntimeError {
        let shape = self.shape.as_ref();
        RuntimeError::InputShape {
            input: self.name.clone(),
            expected: shape.map_or("any shape".to_owned(), ToString::to_string),
            given: given.to_owned(),
        }
    }
}

/// What lives somewhere, for reports: its label and where it is.
#[derive(Clone, Debug)]
pub(crate) struct Resident {
    pub(crate) label: String,
    pub(crate) at: Address,
}

/// A plan with the memory that it runs in.
///
/// ```
/// use tenure_graph::effects::OpTable;
/// use tenure_graph::plan::PlanOptions;
/// use tenure_runtime::numbers::{decode, encode};
/// use tenure_runtime::{Kernels, Layout, Program};
///
/// let graph = tenure_graph::json::read(br#"{"format": "tenure.graph/1", "graphs": [{"name": "root",
///   "nodes": [
///     {"name": "x", "op": "Data", "outputs": [{"dtype": "float32", "shape": [2]}]},
///     {"name": "y", "op": "Neg", "inputs": ["x:0"], "outputs": [{"dtype": "float32", "shape": [2]}]},
///     {"name": "out", "op": "NetOutput", "inputs": ["y:0"]}]}]}"#)?;
/// let table = OpTable::builtin(graph.dialect);
/// let config = tenure_plan::Config::default();
/// let plan = tenure_plan::plan(&graph, &table, &PlanOptions::default(), &config)?.plan;
/// let checked = tenure_check::check(&graph, &table, &plan).expect("a right plan");
///
/// let mut program = Program::new(&graph, &table, &checked, &Kernels::builtin(), Layout::Planned)?;
/// let x = encode(program.inputs()[0].dtype, [1.0, -2.0]).expect("numbers");
/// program.run(&[&x])?;
/// assert_eq!(decode(program.results()[0].dtype, &program.result(0)), Some(vec![-1.0, 2.0]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Program {
    pub(crate) memory: Memory,
    /// Values whose sizes are known only during the run.
    pub(crate) pool: Pool,
    /// What runs once, when the program is made.
    pub(crate) load: Vec<Instruction>,
    /// What runs each time.
    pub(crate) code: Vec<Instruction>,
    pub(crate) inputs: Vec<Tensor>,
    pub(crate) results: Vec<Tensor>,
    pub(crate) variables: Vec<Tensor>,
    /// Blocks of planned memory.
    pub(crate) planned: Vec<u32>,
    pub(crate) residents: Vec<Resident>,
    /// The plan's storages, by number.
    pub(crate) storages: Vec<Address>,
    /// Most instructions of one run.
    pub(crate) limit: u64,
    /// A thread a stream, which then have the instructions of `code`.
    pub(crate) threads: Option<Threads>,
    pub(crate) usage: Usage,
    /// The step that hands the results over.
    pub(crate) results_at: Option<u32>,
    /// Blocks of constants.
    pub(crate) constants: Constants,
}

/// Where the memory of a program is, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The arenas of the plan.
    pub planned: u64,
    /// Those bytes of them that some instruction reads or writes.
    pub touched: u64,
    /// What lies outside of every arena: constants, variables, memory of the caller.
    pub outside: u64,
    /// Copies that kernels work on beside the plan.
    pub beside: u64,
}

impl Usage {
    /// The memory of instructions; `slack` bytes of it are zones, which belong to nobody.
    pub(crate) fn new(
        memory: &Memory,
        planned: &[Address],
        slack: u64,
        code: &[Instruction],
    ) -> Self {
        let bytes = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        let mut beside = 0;
        let mut ranges: Vec<Address> = Vec::new();
        for instruction in code {
            if let Action::Kernel(work) = &instruction.action {
                beside += work.slots.beside().map(|at| bytes(at.len)).sum::<u64>();
            }
            let all = instruction.reads().chain(instruction.writes());
            ranges.extend(all.filter(|at| planned.iter().any(|p| p.block == at.block)));
        }
        ranges.sort_unstable();
        let mut touched = 0;
        let mut reached = (0, 0);
        for at in ranges {
            let from = match reached {
                (block, end) if block == at.block => at.start.max(end),
                _ => at.start,
            };
            touched += bytes(at.end().saturating_sub(from));
            reached = (at.block, at.end().max(from));
        }
        let size = |n: u32| bytes(memory.block(n).len());
        let all = memory.numbers().map(size).sum::<u64>();
        let all = all.saturating_sub(slack);
        let arenas: u64 = planned.iter().map(|at| bytes(at.len)).sum();
        Usage {
            planned: arenas,
            touched,
            outside: all.saturating_sub(arenas).saturating_sub(beside),
            beside,
        }
    }
}

impl Program {
    /// Makes a checked plan ready to run.
    ///
    /// `graph` and `table` must be those that the plan was checked with.
    ///
    /// # Errors
    /// [`RuntimeError::Unsupported`] with all nodes that cannot be run; when the contents of a
    /// constant are missing; when there is not enough memory; when the plan does not fit the graph.
    pub fn new(
        graph: &Graph,
        table: &OpTable,
        plan: &CheckedPlan,
        kernels: &Kernels,
        layout: Layout,
    ) -> Result<Self, RuntimeError> {
        Self::with_faults(graph, table, plan, kernels, layout, &[])
    }

    /// The same with nodes that are made to do what they must not.
    ///
    /// # Errors
    /// As [`new`](Program::new), and [`RuntimeError::NoSuchOutput`].
    pub fn with_faults(
        graph: &Graph,
        table: &OpTable,
        plan: &CheckedPlan,
        kernels: &Kernels,
        layout: Layout,
        faults: &[Fault],
    ) -> Result<Self, RuntimeError> {
        resolve::program(graph, table, plan.plan(), kernels, layout, faults, None)
    }

    /// The program of a plan for the same model at another shape, which has the memory of its
    /// constants from another program: they are there once, however many programs there are.
    ///
    /// What is not the very same tensor in both graphs is not shared. `graph` and `table` must be
    /// those that the plan was checked with.
    ///
    /// # Errors
    /// As [`new`](Program::new).
    pub fn new_beside(
        graph: &Graph,
        table: &OpTable,
        plan: &CheckedPlan,
        kernels: &Kernels,
        other: &Program,
    ) -> Result<Self, RuntimeError> {
        let (layout, other) = (Layout::Planned, Some(other));
        resolve::program(graph, table, plan.plan(), kernels, layout, &[], other)
    }

    /// The graph's inputs, in the order of [`tenure_graph::Subgraph::inputs`].
    #[must_use]
    pub fn inputs(&self) -> &[Tensor] {
        &self.inputs
    }

    /// The graph's outputs, in the order of its output node. One that is left out has no bytes.
    #[must_use]
    pub fn results(&self) -> &[Tensor] {
        &self.results
    }

    /// What is kept from run to run. Variables begin with the contents that the graph gives them,
    /// and else with zeros.
    #[must_use]
    pub fn variables(&self) -> &[Tensor] {
        &self.variables
    }

    /// Gives each stream of the plan a thread, from the next run on. The streams wait for one another as
    /// the plan says, and the caller for all of them: the bytes that come out are the same.
    ///
    /// `plan` is the one that the program was made of. Nothing is done where it has one stream.
    ///
    /// # Errors
    /// [`RuntimeError::Streams`]; the program then runs as it did.
    pub fn with_threads(&mut self, plan: &CheckedPlan) -> Result<(), RuntimeError> {
        let mut streams = plan.plan().steps.iter().filter_map(|s| s.stream);
        let first = streams.next();
        if self.threads.is_none() && streams.any(|s| Some(s) != first) {
            self.threads = Some(Threads::new(
                plan.plan(),
                &self.memory,
                &self.pool,
                &mut self.code,
                self.results_at,
            )?);
        }
        Ok(())
    }

    /// Threads that a run uses beside the caller's; 0 where it uses the caller's alone.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads.as_ref().map_or(0, Threads::count)
    }

    /// Limits a run to so many instructions, so that a loop whose condition never fails ends.
    pub fn set_limit(&mut self, instructions: u64) {
        self.limit = instructions;
    }

    /// Fills planned memory with a byte. Nothing that a run gives depends on what is there before.
    pub fn poison(&mut self, byte: u8) {
        for &block in &self.planned {
            self.memory.block_mut(block).fill(byte);
        }
    }

    /// Sets the contents of a variable.
    ///
    /// # Errors
    /// [`RuntimeError::InputSize`].
    pub fn set_variable(&mut self, i: usize, bytes: &[u8]) -> Result<(), RuntimeError> {
        match self.variables.get(i) {
            Some(variable) => put(&mut self.memory, variable, bytes),
            None => Err(RuntimeError::InputCount {
                expected: self.variables.len(),
                given: i.saturating_add(1),
            }),
        }
    }

    /// Gives an input whose size is known only during the run its dimensions, for all runs to come.
    ///
    /// # Errors
    /// [`RuntimeError::InputShape`], also where the dimensions are those of a planned input, and other
    /// ones; [`RuntimeError::InputCount`].
    pub fn set_input_dims(&mut self, i: usize, dims: &[u64]) -> Result<(), RuntimeError> {
        let expected = self.inputs.len();
        let Some(input) = self.inputs.get_mut(i) else {
            let given = i.saturating_add(1);
            return Err(RuntimeError::InputCount { expected, given });
        };
        let fits = |shape: &Shape| {
            let same = |(d, &n): (&Dim, &u64)| d.known().is_none_or(|known| known == n);
            shape.0.len() == dims.len() && shape.0.iter().zip(dims).all(same)
        };
        if !input.shape.as_ref().is_none_or(fits) {
            return Err(input.wrong_shape(&format!("{dims:?}")));
        }
        if input.slot.is_some() {
            input.dims = Some(dims.to_vec());
        }
        Ok(())
    }

    /// What the allocator holds for values whose sizes are known only during the run.
    #[must_use]
    pub fn pooled(&self) -> PoolUsage {
        self.pool.look().usage()
    }

    /// Puts the caller's inputs where the run reads them.
    pub(crate) fn feed(&mut self, inputs: &[&[u8]]) -> Result<(), RuntimeError> {
        // A run that ended early has left what it had.
        self.pool.look().clear();
        if inputs.len() != self.inputs.len() {
            return Err(RuntimeError::InputCount {
                expected: self.inputs.len(),
                given: inputs.len(),
            });
        }
        let (memory, pool) = (&mut self.memory, &self.pool);
        let mut pairs = self.inputs.iter().zip(inputs);
        pairs.try_for_each(|(tensor, bytes)| match tensor.slot {
            Some(slot) => put_in(memory, pool, slot, tensor, bytes),
            None => put(memory, tensor, bytes),
        })
    }

    /// The bytes of output `i` after a run; none if there is no such output.
    #[must_use]
    pub fn result(&self, i: usize) -> Vec<u8> {
        if let Some(outcome) = self.pool.look().result(i) {
            return outcome.bytes.clone();
        }
        self.results.get(i).map_or(Vec::new(), |t| self.bytes(t))
    }

    /// Dimensions of output `i`; `None` where it is left out. Those that are known only during the run
    /// are the last run's.
    #[must_use]
    pub fn result_dims(&self, i: usize) -> Option<Vec<u64>> {
        if let Some(outcome) = self.pool.look().result(i) {
            let dims = outcome.dims.iter();
            return dims.map(|&d| u64::try_from(d).ok()).collect();
        }
        self.results.get(i)?.dims.clone()
    }

    /// Bytes beside planned memory that kernels need: where the plan lays out what a kernel cannot
    /// work with, it works on copies.
    #[must_use]
    pub fn beside(&self) -> u64 {
        self.usage.beside
    }

    /// Where the memory of a run is.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// What lies now in the memory of input `i`: what the caller gave only if the plan keeps
    /// inputs.
    #[must_use]
    pub fn input(&self, i: usize) -> Vec<u8> {
        self.inputs.get(i).map_or(Vec::new(), |t| self.bytes(t))
    }

    /// What variable `i` holds now.
    #[must_use]
    pub fn variable(&self, i: usize) -> Vec<u8> {
        self.variables.get(i).map_or(Vec::new(), |t| self.bytes(t))
    }

    fn bytes(&self, tensor: &Tensor) -> Vec<u8> {
        self.memory.bytes(tensor.at).to_vec()
    }
}

/// An input whose size is known now.
fn put_in(
    memory: &mut Memory,
    pool: &Pool,
    slot: Slot,
    tensor: &Tensor,
    bytes: &[u8],
) -> Result<(), RuntimeError> {
    let Some(dims) = &tensor.dims else {
        return Err(tensor.wrong_shape("none"));
    };
    let known = Shape::of(dims).bytes(tensor.dtype);
    let expected = known.and_then(|n| usize::try_from(n).ok());
    if expected != Some(bytes.len()) {
        return Err(RuntimeError::InputSize {
            input: tensor.name.clone(),
            expected: expected.unwrap_or(usize::MAX),
            given: bytes.len(),
        });
    }
    let mut pool = pool.lock(memory);
    if let Some(shape) = &tensor.shape {
        pool.learn(shape, dims);
    }
    let fed = pool.feed(memory, slot, tensor.dtype, dims, bytes);
    fed.map_err(|reason| RuntimeError::Values {
        node: tensor.name.clone(),
        reason,
    })
}

fn put(memory: &mut Memory, tensor: &Tensor, bytes: &[u8]) -> Result<(), RuntimeError> {
    let to = memory.bytes_mut(tensor.at);
    if bytes.len() != to.len() {
        return Err(RuntimeError::InputSize {
            input: tensor.name.clone(),
            expected: to.len(),
            given: bytes.len(),
        });
    }
    to.copy_from_slice(bytes);
    Ok(())
}
