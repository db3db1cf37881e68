//! Nodes and transfers that have to do with values whose sizes are known only during the run: what
//! becomes of them, and when their memory goes back.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tenure_graph::control::{Pass, Transfer};
use tenure_graph::effects::OpClass;
use tenure_graph::{Dialect, NodeId, ValueId};

use super::Resolve;
use super::bodies::Owner;
use crate::RuntimeError;
use crate::memory::Address;
use crate::pool::{Operand, PoolAction, PoolSlice, PoolWork, Pooled, Slot};
use crate::program::Action;

/// Slots whose memory goes back after a node, by the node.
pub(super) type Lasts = FxHashMap<NodeId, SmallVec<[Slot; 4]>>;

impl Resolve<'_> {
    /// Values that cannot be pooled either: their nodes are refused.
    pub(super) fn refuse_unpoolable(&mut self) {
        for &value in &self.plan.dynamic {
            let producer = self.graph.values[value].producer;
            let dtype = self.graph.values[value].dtype;
            let reason = if self.graph.dialect != Dialect::Onnx {
                "sizes are found during the run for operators of ONNX alone"
            } else if dtype.bits().is_none_or(|bits| bits % 8 != 0) {
                "its elements are no whole bytes"
            } else {
                continue;
            };
            let label = self.graph.value_label(value);
            let reason = format!("the size of {label:?} is not known before the run, and {reason}");
            self.refuse(producer, reason);
        }
    }

    /// The node after which each slot is read no more: the last reader, or what runs it, where the
    /// value is made; the producer of what nobody reads.
    pub(super) fn lasts(&self) -> Lasts {
        let mut lasts = Lasts::default();
        if self.plan.dynamic.is_empty() {
            return lasts;
        }
        let graph = self.graph;
        let mut step_of: FxHashMap<NodeId, u32> = FxHashMap::default();
        for (number, step) in (0u32..).zip(&self.plan.steps) {
            step_of.insert(step.node, number);
        }
        let mut last_of: FxHashMap<ValueId, (u32, NodeId)> = FxHashMap::default();
        let readers = graph.nodes.iter().flat_map(|(id, node)| {
            let inputs = node.inputs.iter().flatten();
            inputs.map(move |&value| (value, id))
        });
        let made = self.plan.dynamic.iter();
        let made = made.map(|&value| (value, graph.values[value].producer));
        for (value, node) in readers.chain(made) {
            if self.places.slot(value).is_none() {
                continue;
            }
            let around = graph.around(node, graph.home(value));
            let at = around.and_then(|n| Some((*step_of.get(&n)?, n)));
            if let Some(at) = at {
                let last = last_of.entry(value).or_insert(at);
                *last = at.max(*last);
            }
        }
        for &value in &self.plan.dynamic {
            let end = graph.subgraphs[graph.home(value)].output;
            let last = last_of.get(&value).map(|l| l.1).or(end);
            if let (Some(last), Some(slot)) = (last, self.places.slot(value)) {
                lasts.entry(last).or_default().push(slot);
            }
        }
        lasts
    }

    /// Gives back what was read for the last time.
    pub(super) fn release(&mut self, node: NodeId) {
        if let Some(slots) = self.lasts.get(&node).cloned() {
            self.emit_pooled(node, PoolAction::Release(slots));
        }
    }

    pub(super) fn emit_pooled(&mut self, node: NodeId, action: PoolAction) {
        let label = self.graph.node_label(node);
        let pooled = Pooled {
            node: label,
            action,
        };
        self.emit(node, Action::Pooled(Box::new(pooled)));
    }

    pub(super) fn is_pooled(&self, value: ValueId) -> bool {
        self.places.slot(value).is_some()
    }

    /// Whether a node reads or makes something that is pooled.
    pub(super) fn has_pooled(&self, id: NodeId) -> bool {
        let node = &self.graph.nodes[id];
        let mut values = node.inputs.iter().chain(&node.outputs).flatten();
        values.any(|&value| self.is_pooled(value))
    }

    /// A node without bodies that reads or makes something that is pooled.
    pub(super) fn pooled_node(&mut self, id: NodeId) -> Result<(), RuntimeError> {
        let effects = self.table.effects(self.graph, id);
        let inputs = self.inputs(id)?;
        let outputs = self.outputs(id, &effects)?;
        let node = &self.graph.nodes[id];
        if !effects.refs.is_empty() || !effects.spoils.is_empty() {
            self.refuse(
                id,
                "it writes in an input, whose size is not known before the run",
            );
        }
        if self.faults_of.contains_key(&id) {
            self.refuse(id, "faults are made where all is planned");
        }
        let make = self.kernels.maker(&node.domain, &node.op);
        let mut slots = (0u32..).zip(&node.outputs);
        let are_names = slots.all(|(o, v)| v.is_none() || effects.view_of(o).is_some());
        if make.is_none() && !are_names {
            self.refuse(id, "there is no kernel for this operator");
        }
        let operands = |values: &[Option<ValueId>], at: &[Address]| -> Vec<Option<Operand>> {
            let pairs = values.iter().zip(at);
            let operand =
                |(v, &at): (&Option<ValueId>, &Address)| v.map(|v| self.places.operand(v, at));
            pairs.map(operand).collect()
        };
        let is_constant = |v: ValueId| {
            let producer = self.graph.values[v].producer;
            self.class(producer) == OpClass::Constant || self.places.folded.contains(producer)
        };
        let constants = node.inputs.iter().map(|v| v.is_some_and(is_constant));
        let work = PoolWork::new(
            self.graph,
            self.table,
            id,
            make,
            operands(&node.inputs, &inputs),
            operands(&node.outputs, &outputs),
            constants.collect(),
        );
        self.emit_pooled(id, PoolAction::Work(Box::new(work)));
        Ok(())
    }

    /// A result of the graph whose size is known only at the end of the run.
    pub(super) fn pooled_result(&mut self, id: NodeId, value: ValueId, index: usize) {
        let from = self.places.operand(value, Address::default());
        self.emit_pooled(id, PoolAction::Result { from, index });
    }

    /// A value that is handed over, one side of which is pooled. `false` if none is.
    pub(super) fn pooled_transfer(
        &mut self,
        reader: NodeId,
        from: ValueId,
        to: ValueId,
    ) -> Result<bool, RuntimeError> {
        if !self.is_pooled(from) && !self.is_pooled(to) {
            return Ok(false);
        }
        let (from, to) = (self.source_of(reader, from)?, self.target(to)?);
        self.emit_pooled(reader, PoolAction::Move { from, to });
        Ok(true)
    }

    /// A value that is read.
    fn source_of(&self, reader: NodeId, value: ValueId) -> Result<Operand, RuntimeError> {
        let at = self.sources(reader, value)?;
        let at = at.first().copied().unwrap_or_default();
        Ok(self.places.operand(value, at))
    }

    /// A value that is written.
    fn target(&mut self, value: ValueId) -> Result<Operand, RuntimeError> {
        let at = match self.is_pooled(value) {
            true => Address::default(),
            false => self.places.settle(value, None)?,
        };
        Ok(self.places.operand(value, at))
    }

    /// The place of the first element of a value that decides something: where it is planned, or a
    /// place beside the plan that it is copied to now.
    pub(super) fn deciding(
        &mut self,
        node: NodeId,
        value: ValueId,
        at: Address,
    ) -> Result<Address, RuntimeError> {
        if !self.is_pooled(value) {
            return Ok(at);
        }
        let bytes = self.graph.values[value].dtype.bytes(1).unwrap_or(0);
        let to = self.places.few(bytes)?;
        let from = self.places.operand(value, Address::default());
        self.emit_pooled(node, PoolAction::First { from, to });
        Ok(to)
    }

    /// Before a loop begins: what its passes fill is empty, and a scan whose passes are not known, or
    /// fill a slot, counts them.
    pub(super) fn begin_pooled(&mut self, owner: &mut Owner) -> Result<(), RuntimeError> {
        let id = owner.node();
        let pooled = |t: &&Transfer| {
            let sides = [t.from, t.to].into_iter().flatten();
            matches!(t.pass, Pass::Slice | Pass::Append)
                && sides.into_iter().any(|v| self.is_pooled(v))
        };
        let slices: Vec<Transfer> = owner.transfers().iter().filter(pooled).copied().collect();
        for t in &slices {
            let (Pass::Append, Some(part), Some(whole)) = (t.pass, t.from, t.to) else {
                continue;
            };
            let Some(slot) = self.places.slot(whole) else {
                continue;
            };
            let slice = self.graph.values[part].shape.clone().unwrap_or_default();
            let dtype = self.graph.values[whole].dtype;
            let axis = self.axis_of_slice(owner, whole, false);
            let whole = slot;
            let action = PoolAction::Begin {
                whole,
                dtype,
                slice,
                axis,
            };
            self.emit_pooled(id, action);
        }
        if owner.is_scan() && !slices.is_empty() {
            owner.passes = self.count_passes(id)?;
        }
        Ok(())
    }

    /// Writes down how many passes a scan has; `None` where that cannot be known.
    fn count_passes(&mut self, id: NodeId) -> Result<Option<Address>, RuntimeError> {
        let node = &self.graph.nodes[id];
        if self.graph.opset(node).is_some_and(|version| version < 9) {
            return Ok(None);
        }
        let slices = node.attrs.int("num_scan_inputs");
        let slices = slices.and_then(|n| usize::try_from(n).ok());
        let first = slices.and_then(|n| node.inputs.len().checked_sub(n));
        let Some(first) = first.and_then(|k| node.input(k)) else {
            return Ok(None);
        };
        let axes = node.attrs.ints("scan_input_axes");
        let axis = axes.and_then(|a| a.first().copied()).unwrap_or(0);
        let of = self.source_of(id, first)?;
        let to = self.places.few(8)?;
        self.emit_pooled(id, PoolAction::Count { of, axis, to });
        Ok(Some(to))
    }

    /// The slice of a pass, where the whole or the part is pooled. `false` if none is.
    pub(super) fn pooled_slice(
        &mut self,
        reader: NodeId,
        owner: &Owner,
        t: &Transfer,
    ) -> Result<bool, RuntimeError> {
        let (Some(from), Some(to)) = (t.from, t.to) else {
            return Ok(false);
        };
        if !self.is_pooled(from) && !self.is_pooled(to) {
            return Ok(false);
        }
        let out = t.pass == Pass::Slice;
        let (source, target) = (self.source_of(reader, from)?, self.target(to)?);
        let (whole, part) = if out {
            (source, target)
        } else {
            (target, source)
        };
        let slice = PoolSlice {
            whole,
            part,
            axis: self.axis_of_slice(owner, to, out),
            backwards: self.is_backwards(owner, to, out),
            passes: owner.passes,
            counter: owner.counter(),
        };
        let action = if out {
            PoolAction::Cut(slice)
        } else {
            PoolAction::Append(slice)
        };
        self.emit_pooled(reader, action);
        Ok(true)
    }

    /// Where in the scan's list of slices the one is that is written: the part where it is cut `out` of
    /// a whole, and else the whole. What is read may be in the list more than once.
    pub(super) fn place_in_list(
        &self,
        owner: &Owner,
        written: ValueId,
        out: bool,
    ) -> Option<usize> {
        let node = &self.graph.nodes[owner.node()];
        let slices = usize::try_from(node.attrs.int("num_scan_inputs")?).ok()?;
        if out {
            let formals = &self.graph.subgraphs[node.bodies.first()?.graph].inputs;
            let list = formals.get(formals.len().checked_sub(slices)?..)?;
            let formal = |&n: &NodeId| self.graph.nodes[n].output(0);
            list.iter().position(|n| formal(n) == Some(written))
        } else {
            let states = node.inputs.len().checked_sub(slices)?;
            let list = node.outputs.get(states..)?;
            list.iter().position(|&v| v == Some(written))
        }
    }

    fn axis_of_slice(&self, owner: &Owner, written: ValueId, out: bool) -> i64 {
        let list = if out {
            "scan_input_axes"
        } else {
            "scan_output_axes"
        };
        self.entry_of(owner, written, out, list)
    }

    fn is_backwards(&self, owner: &Owner, written: ValueId, out: bool) -> bool {
        let list = if out {
            "scan_input_directions"
        } else {
            "scan_output_directions"
        };
        self.entry_of(owner, written, out, list) == 1
    }

    /// An entry of a scan's list, 0 where it is left out, and for loops.
    fn entry_of(&self, owner: &Owner, written: ValueId, out: bool, list: &str) -> i64 {
        if !owner.is_scan() {
            return 0;
        }
        let node = &self.graph.nodes[owner.node()];
        let at = self.place_in_list(owner, written, out);
        let entries = node.attrs.ints(list);
        let entry = at.and_then(|k| entries?.get(k).copied());
        entry.unwrap_or(0)
    }

    /// Passes that a whole of known size has room for, along the axis that they fill.
    pub(super) fn room_for_passes(&self, owner: &Owner, whole: ValueId) -> Option<i64> {
        let dims = crate::pool::known_dims(&self.graph.values[whole])?;
        let axis = self.axis_of_slice(owner, whole, false);
        let axis = crate::kernels::axis_of(axis, dims.len()).ok()?;
        i64::try_from(dims[axis]).ok()
    }
}
