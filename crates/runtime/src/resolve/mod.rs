//! From a plan to a program: every step becomes instructions on addresses.
//!
//! This is the executor's half of what the checker proves (`docs/checker.md`): the same copies,
//! the same values handed over, and nothing written where the checker says that nothing is.

mod bodies;
pub(crate) mod places;
mod pooled;

use rustc_hash::{FxHashMap, FxHashSet};
use tenure_graph::effects::{Effects, Gears, OpClass, OpTable, Run, Trait, cleared};
use tenure_graph::plan::{Item, Phase, Plan};
use tenure_graph::{Graph, NodeId, ValueId};

use crate::RuntimeError;
use crate::error::Unsupported;
use crate::exec::execute;
use crate::fault::Fault;
use crate::kernels::{self, Kernels, Site};
use crate::memory::{Address, Place, Slots};
use crate::pool::Pool;
use crate::program::{Action, Instruction, Layout, Program, Tensor, Usage, Work};
use bodies::Owner;
use places::Places;
use pooled::Lasts;

/// Makes the program of a plan.
pub(crate) fn program(
    graph: &Graph,
    table: &OpTable,
    plan: &Plan,
    kernels: &Kernels,
    layout: Layout,
    faults: &[Fault],
    previous: Option<&Program>,
) -> Result<Program, RuntimeError> {
    fits(graph, plan)?;
    let mut faults_of: FxHashMap<NodeId, Vec<&Fault>> = FxHashMap::default();
    for fault in faults {
        faults_of.entry(fault.find(graph)?).or_default().push(fault);
    }
    if let Some(gears) = Gears::new(graph) {
        return Err(RuntimeError::Gears(gears.count()));
    }
    let mut resolve = Resolve {
        graph,
        table,
        plan,
        kernels,
        places: Places::new(graph, table, plan, kernels, layout, previous)?,
        copies_of: FxHashMap::default(),
        copy_at: FxHashMap::default(),
        code: Vec::new(),
        results: Vec::new(),
        stack: Vec::new(),
        unsupported: Vec::new(),
        refused: FxHashSet::default(),
        step: 0,
        faults_of: FxHashMap::default(),
        late: Vec::new(),
        results_at: None,
        lasts: Lasts::default(),
    };
    resolve.refuse_unpoolable();
    resolve.lasts = resolve.lasts();
    for (k, copy) in (0u32..).zip(&plan.copies) {
        resolve.copies_of.entry(copy.reader).or_default().push(k);
        resolve.copy_at.insert((copy.reader, copy.input), k);
    }
    resolve.folded()?;
    let load = std::mem::take(&mut resolve.code);
    resolve.faults_of = faults_of;
    for (number, step) in (0u32..).zip(&plan.steps) {
        resolve.step = number;
        resolve.come_late();
        match step.phase {
            Phase::Run => {
                let subgraph = graph.nodes[step.node].subgraph;
                if graph.subgraphs[subgraph].output == Some(step.node) {
                    resolve.results(step.node)?;
                } else {
                    resolve.node(step.node)?;
                    resolve.release(step.node);
                }
            }
            Phase::Begin => resolve.begin(step.node)?,
            Phase::Enter(k) => resolve.enter(k)?,
            Phase::End => {
                resolve.end()?;
                resolve.release(step.node);
            }
        }
    }
    if !resolve.unsupported.is_empty() {
        return Err(RuntimeError::Unsupported(resolve.unsupported));
    }
    let places = resolve.places;
    let usage = Usage::new(&places.memory, &places.planned, places.slack, &resolve.code);
    let pool = Pool::new(plan.dynamic.len(), resolve.results.len());
    let mut program = Program {
        memory: places.memory,
        pool,
        load,
        code: resolve.code,
        inputs: places.inputs,
        results: resolve.results,
        variables: places.variables,
        planned: places.planned.iter().map(|at| at.block).collect(),
        residents: places.residents,
        storages: places.storages,
        limit: u64::MAX,
        threads: None,
        usage,
        results_at: resolve.results_at,
        constants: places.constants,
    };
    let (memory, pool) = (&mut program.memory, &program.pool);
    execute(memory, pool, &mut program.load, u64::MAX, &mut ())?;
    if layout == Layout::Planned {
        for (_, at) in program.constants.values() {
            program.memory.freeze(at.block);
        }
    }
    Ok(program)
}

/// A graph other than the one that the plan was checked with is refused, as far as that shows.
fn fits(graph: &Graph, plan: &Plan) -> Result<(), RuntimeError> {
    let no = |what: &str| Err(RuntimeError::Mismatch(what.to_owned()));
    let node = |n: NodeId| graph.nodes.is_valid(n);
    let value = |v: ValueId| graph.values.is_valid(v);
    for step in &plan.steps {
        let bodies = graph.nodes.get(step.node).map(|n| n.bodies.len());
        let entered = match step.phase {
            Phase::Enter(k) => usize::try_from(k).ok(),
            Phase::Run | Phase::Begin | Phase::End => None,
        };
        if bodies.is_none_or(|n| entered.is_some_and(|k| k >= n)) {
            return no("a step is of no node of it");
        }
    }
    for copy in &plan.copies {
        let slot = usize::try_from(copy.input).unwrap_or(usize::MAX);
        let read = graph.nodes.get(copy.reader).and_then(|n| n.input(slot));
        if read != Some(copy.value) {
            return no("a copy is for an input that reads something else");
        }
    }
    let known = |item: Item| match item {
        Item::Value(v) => value(v),
        Item::Workspace(n, _) => node(n),
        Item::Copy(k) => usize::try_from(k).is_ok_and(|k| k < plan.copies.len()),
    };
    let mut members = plan.storages.values().flat_map(|s| &s.members);
    if !members.all(|m| known(m.item)) {
        return no("a storage holds what it does not have");
    }
    if !plan.folded.iter().all(|&n| node(n)) || !plan.dynamic.iter().all(|&v| value(v)) {
        return no("a list names what it does not have");
    }
    Ok(())
}

struct Resolve<'a> {
    graph: &'a Graph,
    table: &'a OpTable,
    plan: &'a Plan,
    kernels: &'a Kernels,
    places: Places<'a>,
    /// Copies by the node that reads them, in the order of the plan.
    copies_of: FxHashMap<NodeId, Vec<u32>>,
    /// Copies by the input that reads them.
    copy_at: FxHashMap<(NodeId, u32), u32>,
    code: Vec<Instruction>,
    results: Vec<Tensor>,
    /// Nodes with bodies that are open.
    stack: Vec<Owner>,
    unsupported: Vec<Unsupported>,
    /// Their nodes: the first reason of each is the one that holds.
    refused: FxHashSet<NodeId>,
    step: u32,
    /// What nodes are made to do beyond their work.
    faults_of: FxHashMap<NodeId, Vec<&'a Fault>>,
    /// What they are made to do at later steps.
    late: Vec<(u32, NodeId, Action)>,
    /// The step that hands the graph's results over.
    results_at: Option<u32>,
    /// Whose memory goes back after which node.
    lasts: Lasts,
}

impl Resolve<'_> {
    fn emit(&mut self, node: NodeId, action: Action) {
        let step = self.step;
        self.code.push(Instruction { action, node, step });
    }

    fn refuse(&mut self, node: NodeId, reason: impl Into<String>) {
        if self.refused.insert(node) {
            self.unsupported.push(Unsupported {
                node: self.graph.node_label(node),
                op: self.graph.nodes[node].op.to_string(),
                reason: reason.into(),
            });
        }
    }

    /// Copies bytes, unless they are there already.
    fn hand_over(&mut self, node: NodeId, from: Address, to: Address) {
        if !from.begins_with(&to) && to.len > 0 {
            self.emit(node, Action::Copy { from, to });
        }
    }

    /// Nodes whose results are computed once, in execution order.
    fn folded(&mut self) -> Result<(), RuntimeError> {
        if self.plan.folded.is_empty() {
            return Ok(());
        }
        let mut pending = vec![self.graph.root];
        while let Some(subgraph) = pending.pop() {
            for &node in &self.graph.subgraphs[subgraph].nodes {
                if self.places.folded.contains(node) {
                    self.node(node)?;
                }
                let bodies = &self.graph.nodes[node].bodies;
                pending.extend(bodies.iter().map(|b| b.graph));
            }
        }
        Ok(())
    }

    /// The copies that are made right before a node runs.
    fn copies(&mut self, node: NodeId) -> Result<(), RuntimeError> {
        let copies = self.copies_of.get(&node).cloned().unwrap_or_default();
        for k in copies {
            let value = self.plan.copies[k as usize].value;
            let (from, to) = (self.places.value(value)?, self.places.copy(k)?);
            self.hand_over(node, from, to);
        }
        Ok(())
    }

    /// Where a node finds the value in one of its input slots: in a copy, if it has one.
    fn source(&self, node: NodeId, slot: u32, value: ValueId) -> Result<Address, RuntimeError> {
        match self.copy_at.get(&(node, slot)) {
            Some(&k) => self.places.copy(k),
            None => self.places.value(value),
        }
    }

    /// Where a node finds what its input slots name; slots left out have no bytes.
    fn inputs(&self, node: NodeId) -> Result<Vec<Address>, RuntimeError> {
        let slots = (0u32..).zip(&self.graph.nodes[node].inputs);
        slots
            .map(|(slot, value)| match value {
                Some(value) => self.source(node, slot, *value),
                None => Ok(Address::default()),
            })
            .collect()
    }

    /// A node without bodies.
    fn node(&mut self, id: NodeId) -> Result<(), RuntimeError> {
        self.copies(id)?;
        if self.has_pooled(id) {
            return self.pooled_node(id);
        }
        let effects = self.table.effects(self.graph, id);
        let inputs = self.inputs(id)?;
        let outputs = self.outputs(id, &effects)?;
        let node = &self.graph.nodes[id];
        let is_view = |slot: u32| {
            effects.view_of(slot).is_some() && effects.refs.iter().all(|a| a.output != slot)
        };
        let mut slots = (0u32..).zip(&node.outputs);
        let made = slots.any(|(slot, value)| value.is_some() && !is_view(slot));
        if self.table.traits(self.graph, id).has(Trait::Zeroes) {
            return self.clear_for_others(id);
        }
        if !made && !node.outputs.is_empty() {
            // Another name is the same bytes, whatever the operator is called.
            for alias in &effects.views {
                let from = inputs.get(alias.input as usize).copied();
                let to = outputs.get(alias.output as usize).copied();
                if let (Some(from), Some(to)) = (from, to) {
                    self.hand_over(id, from, to);
                }
            }
            return Ok(());
        }
        self.kernel(id, &effects, inputs, outputs)
    }

    fn kernel(
        &mut self,
        id: NodeId,
        effects: &Effects,
        inputs: Vec<Address>,
        outputs: Vec<Address>,
    ) -> Result<(), RuntimeError> {
        let has_faults = self.faults_of.contains_key(&id);
        if !has_faults && is_joined(effects, &inputs, &outputs) {
            return Ok(());
        }
        let Some(work) = self.work(id, effects, &inputs, &outputs)? else {
            return Ok(());
        };
        self.emit(id, Action::Kernel(work));
        for fault in self.faults_of.get(&id).cloned().unwrap_or_default() {
            let at = outputs.get(fault.output).copied().unwrap_or_default();
            self.stray(id, fault, at)?;
            if fault.reads_late > 0
                && self.stack.is_empty()
                && let Some(again) = self.work(id, effects, &inputs, &outputs)?
            {
                let due = self.step.saturating_add(fault.reads_late);
                self.late.push((due, id, Action::Kernel(again)));
            }
        }
        Ok(())
    }

    /// What a node is made to write where and when it must not. What leaves the memory that there
    /// is, is not written.
    fn stray(&mut self, id: NodeId, fault: &Fault, at: Address) -> Result<(), RuntimeError> {
        let start = at.start.saturating_sub(fault.bytes_before_start);
        let end = self.places.memory.block(at.block).len();
        let end = at.end().saturating_add(fault.bytes_past_end).min(end);
        for (from, to) in [(start, at.start), (at.end(), end)] {
            if from < to {
                let to = Address {
                    start: from,
                    len: to - from,
                    ..at
                };
                self.emit(id, Action::Stray { from: None, to });
            }
        }
        if fault.writes_late > 0 && self.stack.is_empty() {
            let kept = self.places.beside(at)?;
            self.emit(id, Action::Copy { from: at, to: kept });
            let due = self.step.saturating_add(fault.writes_late);
            let from = Some(kept);
            self.late.push((due, id, Action::Stray { from, to: at }));
        }
        Ok(())
    }

    /// What nodes are made to do late, and before this step.
    fn come_late(&mut self) {
        if self.late.is_empty() || !self.stack.is_empty() {
            return;
        }
        let step = self.step;
        let (due, later): (Vec<_>, Vec<_>) = std::mem::take(&mut self.late)
            .into_iter()
            .partition(|&(at, ..)| at <= step);
        self.late = later;
        for (_, node, action) in due {
            self.emit(node, action);
        }
    }

    /// The kernel of a node at its places; `None` if the node cannot be run.
    fn work(
        &mut self,
        id: NodeId,
        effects: &Effects,
        inputs: &[Address],
        outputs: &[Address],
    ) -> Result<Option<Work>, RuntimeError> {
        let node = &self.graph.nodes[id];
        if effects.unsized_scratch > 0 {
            self.refuse(id, "it needs scratch memory whose size is not known");
            return Ok(None);
        }
        let Some(make) = self.kernels.find(&node.domain, &node.op) else {
            self.refuse(id, "there is no kernel for this operator");
            return Ok(None);
        };
        let cleared = cleared(self.graph, self.table, id);
        let site = Site::new(self.graph, id).with_cleared(&cleared);
        let kernel = match kernels::make(make, &site) {
            Ok(kernel) => kernel,
            Err(reason) => {
                self.refuse(id, reason);
                return Ok(None);
            }
        };
        let scratch = (0u32..).zip(&effects.scratch);
        let scratch: Result<Vec<Address>, RuntimeError> = scratch
            .map(|(k, s)| self.places.workspace(id, k, s.size))
            .collect();
        let scratch = scratch?;
        let apart = |input: &Address| !outputs.iter().any(|o| o.meets(input));
        let spoilt = effects.spoils.iter();
        let spoilt = spoilt.filter_map(|&i| inputs.get(i as usize).copied());
        let spoilt = spoilt.filter(apart).collect();
        let inputs = self.typed(&node.inputs, inputs)?;
        let places = self.typed(&node.outputs, outputs)?;
        let memory = &mut self.places.memory;
        let slots = Slots::new(memory, &*kernel, &inputs, &places, &scratch)?;
        Ok(Some(Work {
            kernel,
            node: self.graph.node_label(id),
            spoilt,
            temporary: scratch.into_iter().chain(slots.beside()).collect(),
            slots,
            outputs: outputs.to_vec(),
        }))
    }

    /// The elements of values: their bytes without what the file asks for beyond.
    fn typed(
        &self,
        values: &[Option<ValueId>],
        at: &[Address],
    ) -> Result<Vec<Place>, RuntimeError> {
        let place = |(value, &at): (&Option<ValueId>, &Address)| {
            let Some(value) = *value else {
                return Ok(Place::default());
            };
            let tensor = &self.graph.values[value];
            let bytes = tensor.shape.as_ref().and_then(|s| s.bytes(tensor.dtype));
            let len = bytes.and_then(|n| usize::try_from(n).ok());
            let len = len.filter(|&n| n <= at.len).ok_or_else(|| {
                let label = self.graph.value_label(value);
                RuntimeError::Mismatch(format!("there is not enough memory for {label:?}"))
            })?;
            let align = tensor.dtype.bits().unwrap_or(8).div_ceil(8).min(16);
            Ok(Place {
                at: Address { len, ..at },
                align: align.next_power_of_two() as usize,
            })
        };
        values.iter().zip(at).map(place).collect()
    }

    /// Where a node's outputs are: in planned memory, or in the memory outside that a view or a
    /// reference names.
    fn outputs(&mut self, id: NodeId, effects: &Effects) -> Result<Vec<Address>, RuntimeError> {
        let node = &self.graph.nodes[id];
        let mut outputs = Vec::with_capacity(node.outputs.len());
        for (slot, &value) in (0u32..).zip(&node.outputs) {
            let Some(value) = value else {
                outputs.push(Address::default());
                continue;
            };
            if self.is_pooled(value) {
                outputs.push(Address::default());
                continue;
            }
            let reference = effects.refs.iter().find(|a| a.output == slot);
            // A view that has no place of its own is what it is a view of.
            let input = reference.map(|a| a.input).or(effects.view_of(slot));
            let source = input.and_then(|k| node.input(k as usize));
            outputs.push(self.places.settle(value, source)?);
        }
        Ok(outputs)
    }

    /// A node whose work is to clear memory of the nodes that wait for it.
    fn clear_for_others(&mut self, id: NodeId) -> Result<(), RuntimeError> {
        let subgraph = self.graph.nodes[id].subgraph;
        let nodes = self.graph.subgraphs[subgraph].nodes.iter().copied();
        let served: Vec<NodeId> = nodes
            .filter(|&n| self.graph.nodes[n].control.contains(&id))
            .collect();
        for node in served {
            let cleared = cleared(self.graph, self.table, node);
            for c in cleared.iter().filter(|c| c.cleaner == id) {
                let at = match c.item {
                    Item::Workspace(node, k) => self.places.workspace(node, k, 0)?,
                    Item::Value(value) => self.places.value(value)?,
                    Item::Copy(_) => continue,
                };
                self.emit(id, Action::Clear(at));
            }
        }
        Ok(())
    }

    /// The output node of a subgraph: the root's results go to the caller, those of a body to its
    /// owner.
    fn results(&mut self, id: NodeId) -> Result<(), RuntimeError> {
        if self.graph.nodes[id].subgraph != self.graph.root {
            return self.leave(id);
        }
        self.results_at = Some(self.step);
        self.copies(id)?;
        let inputs = self.inputs(id)?;
        for (&value, from) in self.graph.nodes[id].inputs.iter().zip(inputs) {
            let result = self.places.result(value, from)?;
            let to = result.at;
            self.results.push(result);
            match value.filter(|&v| self.is_pooled(v)) {
                Some(value) => self.pooled_result(id, value, self.results.len() - 1),
                None => self.hand_over(id, from, to),
            }
        }
        self.release(id);
        Ok(())
    }

    fn class(&self, node: NodeId) -> OpClass {
        self.table.class(self.graph, node)
    }
}

/// Whether a node without a task of its own finds its pieces where they are the whole, so that there is
/// nothing to do: other streams may be reading them.
fn is_joined(effects: &Effects, inputs: &[Address], outputs: &[Address]) -> bool {
    let joined = |run: Option<Run>, whole: Option<&Address>, pieces: &[Address]| {
        let (Some(&whole), true) = (whole, run.is_some_and(|run| run.whole)) else {
            return false;
        };
        let mut at = whole.start;
        let mut pieces = pieces.iter();
        pieces.all(|piece| {
            let is_here = piece.block == whole.block && piece.start == at;
            at = piece.end();
            is_here
        }) && at == whole.end()
    };
    joined(effects.input_run, outputs.first(), inputs)
        || joined(effects.output_run, inputs.first(), outputs)
}
