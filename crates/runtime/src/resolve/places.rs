//! Where everything is: planned memory as the plan says, and blocks for what is outside.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use tenure_graph::effects::{OpClass, OpTable};
use tenure_graph::entity::{EntitySet, SecondaryMap};
use tenure_graph::plan::{Item, Place, Plan};
use tenure_graph::{Attr, DType, Graph, Node, NodeId, Tensor, TensorData, ValueId};

use crate::RuntimeError;
use crate::exec::COUNTER;
use crate::kernels::Kernels;
use crate::memory::{Address, Memory};
use crate::numbers::contents;
use crate::pool::{Operand, Slot, Spot, known_dims};
use crate::program::{self, Layout, Program, Resident};

/// Addresses of all values, copies and workspaces.
pub(super) struct Places<'a> {
    graph: &'a Graph,
    layout: Layout,
    pub(super) memory: Memory,
    pub(super) inputs: Vec<program::Tensor>,
    pub(super) variables: Vec<program::Tensor>,
    /// What is planned, without zones.
    pub(super) planned: Vec<Address>,
    pub(super) residents: Vec<Resident>,
    pub(super) storages: Vec<Address>,
    pub(super) folded: EntitySet<NodeId>,
    values: SecondaryMap<ValueId, Option<Address>>,
    /// Values that operators of a user's own read or write: nobody knows how far off these write.
    exposed: EntitySet<ValueId>,
    /// Bytes of zones.
    pub(super) slack: u64,
    /// Values outside every arena, and what is a name of them.
    outside: EntitySet<ValueId>,
    copies: Vec<Option<Address>>,
    workspaces: FxHashMap<(NodeId, u32), Address>,
    /// Values whose sizes are known only during the run.
    slots: FxHashMap<ValueId, Slot>,
    /// Blocks of constants, with the tensors that they hold.
    pub(super) constants: Constants,
}

/// Bytes of the zones around what operators of a user's own read or write, where others have fewer or,
/// as around an arena, none: who writes a row too far does not break the process.
pub(crate) const WIDE_ZONE: usize = 1 << 16;

/// Blocks that hold the contents of a tensor of the graph and nothing else.
pub(crate) type Constants = FxHashMap<ValueId, (Arc<Tensor>, Address)>;

impl<'a> Places<'a> {
    pub(super) fn new(
        graph: &'a Graph,
        table: &OpTable,
        plan: &Plan,
        kernels: &Kernels,
        layout: Layout,
        previous: Option<&Program>,
    ) -> Result<Self, RuntimeError> {
        let mut exposed = EntitySet::with_capacity(graph.values.len());
        let nodes = graph.nodes.values();
        for node in nodes.filter(|n| kernels.is_added(&n.domain, &n.op)) {
            let values = node.inputs.iter().chain(&node.outputs).flatten();
            values.for_each(|&value| {
                exposed.insert(value);
            });
        }
        let mut places = Places {
            graph,
            layout,
            memory: Memory::default(),
            inputs: Vec::new(),
            variables: Vec::new(),
            planned: Vec::new(),
            residents: Vec::new(),
            storages: Vec::with_capacity(plan.storages.len()),
            folded: EntitySet::with_capacity(graph.nodes.len()),
            values: SecondaryMap::with_capacity(graph.values.len()),
            exposed,
            slack: 0,
            outside: EntitySet::with_capacity(graph.values.len()),
            copies: vec![None; plan.copies.len()],
            workspaces: FxHashMap::default(),
            slots: FxHashMap::default(),
            constants: Constants::default(),
        };
        for &node in &plan.folded {
            places.folded.insert(node);
        }
        for (slot, &value) in (0..).zip(&plan.dynamic) {
            places.slots.insert(value, slot);
        }
        places.lay_out(plan, kernels)?;
        places.outside(table, previous)?;
        places.caller()?;
        Ok(places)
    }

    /// A block of its own, with zones around it where the layout asks for them.
    fn block(&mut self, bytes: u64, align: u64) -> Result<Address, RuntimeError> {
        self.zoned(bytes, align, false)
    }

    /// A block of a value.
    fn block_of(&mut self, value: ValueId, bytes: u64) -> Result<Address, RuntimeError> {
        self.zoned(bytes, 1, self.exposed.contains(value))
    }

    fn zoned(&mut self, bytes: u64, align: u64, exposed: bool) -> Result<Address, RuntimeError> {
        let refused = || RuntimeError::OutOfMemory { bytes };
        let zone = match self.layout {
            Layout::Planned => 0,
            Layout::Guarded { zone } => zone,
        };
        let zone = if exposed { zone.max(WIDE_ZONE) } else { zone };
        let zone = u64::try_from(zone).map_err(|_| refused())?;
        let start = zone.checked_next_multiple_of(align.max(1));
        let start = start.ok_or_else(refused)?;
        let all = start.checked_add(bytes).and_then(|n| n.checked_add(zone));
        let all = all.ok_or_else(refused)?;
        let block = self.memory.add(all, align)?;
        self.slack = self.slack.saturating_add(all - bytes);
        Ok(Address {
            block,
            start: usize::try_from(start).map_err(|_| refused())?,
            len: usize::try_from(bytes).map_err(|_| refused())?,
        })
    }

    /// Lays out the storages, and finds what lives in them.
    fn lay_out(&mut self, plan: &Plan, kernels: &Kernels) -> Result<(), RuntimeError> {
        let mut arenas = Vec::with_capacity(plan.arenas.len());
        if self.layout == Layout::Planned {
            for arena in &plan.arenas {
                let exposed = !self.exposed.is_empty();
                let at = self.zoned(arena.size, arena.align, exposed)?;
                self.planned.push(at);
                arenas.push(at);
            }
        }
        for storage in plan.storages.values() {
            let base = match (self.layout, storage.place) {
                (Layout::Planned, Place::Arena { arena, offset }) => {
                    let arena = arenas.get(arena as usize).copied();
                    part(arena.ok_or_else(elsewhere)?, offset, storage.size)?
                }
                _ => {
                    let exposed = storage.members.iter().any(|m| match m.item {
                        Item::Value(v) => self.exposed.contains(v),
                        Item::Copy(k) => self.exposed.contains(plan.copies[k as usize].value),
                        Item::Workspace(n, _) => {
                            let node = &self.graph.nodes[n];
                            kernels.is_added(&node.domain, &node.op)
                        }
                    });
                    let at = self.zoned(storage.size, storage.align, exposed)?;
                    self.planned.push(at);
                    at
                }
            };
            self.storages.push(base);
            for member in &storage.members {
                let (label, bytes) = self.item(plan, member.item);
                let at = part(base, member.offset, bytes.unwrap_or(member.bytes))?;
                match member.item {
                    Item::Value(v) => self.values[v] = Some(at),
                    Item::Workspace(n, k) => {
                        self.workspaces.insert((n, k), at);
                    }
                    Item::Copy(k) => self.copies[k as usize] = Some(at),
                }
                self.residents.push(Resident { label, at });
            }
        }
        Ok(())
    }

    /// What an item is called, and its bytes where the graph knows them.
    fn item(&self, plan: &Plan, item: Item) -> (String, Option<u64>) {
        match item {
            Item::Value(v) => (self.graph.value_label(v), self.graph.bytes(v)),
            Item::Workspace(n, k) => (format!("{}#{k}", self.graph.node_label(n)), None),
            Item::Copy(k) => {
                let copy = &plan.copies[k as usize];
                let label = format!(
                    "copy of {} for {}",
                    self.graph.value_label(copy.value),
                    self.graph.node_label(copy.reader)
                );
                (label, self.graph.bytes(copy.value))
            }
        }
    }

    /// Constants, variables, and what is computed once.
    fn outside(&mut self, table: &OpTable, previous: Option<&Program>) -> Result<(), RuntimeError> {
        let graph = self.graph;
        let mut read: EntitySet<ValueId> = EntitySet::with_capacity(graph.values.len());
        for value in graph.nodes.values().flat_map(|n| n.inputs.iter().flatten()) {
            read.insert(*value);
        }
        for (id, node) in &graph.nodes {
            let class = table.class(graph, id);
            let is_source = matches!(class, OpClass::Constant | OpClass::Variable);
            if !is_source && !self.folded.contains(id) {
                continue;
            }
            let wrong = |reason: String| RuntimeError::Contents {
                node: graph.node_label(id),
                reason,
            };
            for &value in node.outputs.iter().flatten() {
                if class == OpClass::Constant && !read.contains(value) {
                    continue;
                }
                let bytes = graph.bytes(value);
                let bytes = bytes.ok_or_else(|| wrong("its size is not known".to_owned()))?;
                let tensor = (class == OpClass::Constant)
                    .then(|| tensor_of(node))
                    .flatten();
                let shared = tensor
                    .zip(previous)
                    .and_then(|(t, p)| self.share(value, t, p));
                let shared = shared.or_else(|| self.in_place(tensor?, bytes));
                let at = match shared {
                    Some(at) => at,
                    None => self.block_of(value, bytes)?,
                };
                self.values[value] = Some(at);
                self.outside.insert(value);
                let label = graph.value_label(value);
                self.residents.push(Resident { label, at });
                if let Some(tensor) = tensor {
                    self.constants.insert(value, (Arc::clone(tensor), at));
                }
                if !is_source || shared.is_some() {
                    continue;
                }
                match contents(graph, id).map_err(wrong)? {
                    Some(first) => self.memory.bytes_mut(at).copy_from_slice(&first),
                    None if class == OpClass::Variable => {}
                    None => return Err(wrong("attribute \"value\" is missing".to_owned())),
                }
                if class == OpClass::Variable {
                    let variable = self.tensor(value, at);
                    self.variables.push(variable);
                }
            }
        }
        Ok(())
    }

    /// The block in which another program has the very same tensor.
    fn share(
        &mut self,
        value: ValueId,
        tensor: &Arc<Tensor>,
        previous: &Program,
    ) -> Option<Address> {
        let (held, at) = previous.constants.get(&value)?;
        if self.layout != Layout::Planned || !Arc::ptr_eq(held, tensor) {
            return None;
        }
        let block = self.memory.add_frozen(previous.memory.share(at.block)?)?;
        Some(Address { block, ..*at })
    }

    /// The contents of a constant where they lie, if that will do for a block.
    fn in_place(&mut self, tensor: &Tensor, bytes: u64) -> Option<Address> {
        let TensorData::Bytes(contents) = &tensor.data else {
            return None;
        };
        let len = usize::try_from(bytes).ok()?;
        if self.layout != Layout::Planned || contents.len() != len || len == 0 {
            return None;
        }
        let block = self.memory.add_held(contents.clone())?;
        Some(Address {
            block,
            start: 0,
            len,
        })
    }

    /// The graph's inputs: planned, or in the caller's memory.
    fn caller(&mut self) -> Result<(), RuntimeError> {
        let graph = self.graph;
        for &node in &graph.subgraphs[graph.root].inputs {
            let Some(value) = graph.nodes[node].output(0) else {
                continue;
            };
            // RefData is listed among the inputs, and is a variable.
            if self.outside.contains(value) {
                continue;
            }
            let at = match self.values[value] {
                Some(at) => at,
                None if self.slot(value).is_some() => Address::default(),
                None => {
                    let at = self.block_of(value, graph.bytes(value).unwrap_or(0))?;
                    self.values[value] = Some(at);
                    self.outside.insert(value);
                    let label = graph.value_label(value);
                    self.residents.push(Resident { label, at });
                    at
                }
            };
            let input = self.tensor(value, at);
            self.inputs.push(input);
        }
        Ok(())
    }

    fn tensor(&self, value: ValueId, at: Address) -> program::Tensor {
        program::Tensor {
            name: self.graph.value_label(value),
            dtype: self.graph.values[value].dtype,
            dims: self.dims(value),
            shape: self.graph.values[value].shape.clone(),
            at,
            slot: self.slot(value),
        }
    }

    /// The slot of a value whose size is known only during the run.
    pub(super) fn slot(&self, value: ValueId) -> Option<Slot> {
        self.slots.get(&value).copied()
    }

    /// A value, wherever it is.
    pub(super) fn operand(&self, value: ValueId, at: Address) -> Operand {
        let slot = self.slot(value);
        Operand {
            place: slot.map_or(Spot::Fixed(at), Spot::Pooled),
            dtype: self.graph.values[value].dtype,
            dims: known_dims(&self.graph.values[value]),
        }
    }

    /// Memory beside the plan for a few bytes.
    pub(super) fn few(&mut self, bytes: u64) -> Result<Address, RuntimeError> {
        self.block(bytes, 1)
    }

    fn dims(&self, value: ValueId) -> Option<Vec<u64>> {
        let shape = self.graph.values[value].shape.as_ref()?;
        Some(shape.known()?.to_vec())
    }

    /// Memory of the caller for one of the graph's outputs.
    pub(super) fn result(
        &mut self,
        value: Option<ValueId>,
        from: Address,
    ) -> Result<program::Tensor, RuntimeError> {
        let at = self.block(u64::try_from(from.len).unwrap_or(u64::MAX), 1)?;
        let name = value.map_or(String::new(), |v| self.graph.value_label(v));
        let dtype = value.map_or(DType::Unknown, |v| self.graph.values[v].dtype);
        self.residents.push(Resident {
            label: format!("output {name}"),
            at,
        });
        Ok(program::Tensor {
            name,
            dtype,
            dims: value.and_then(|v| self.dims(v)),
            shape: value.and_then(|v| self.graph.values[v].shape.clone()),
            at,
            slot: None,
        })
    }

    /// Memory for as many bytes, outside of everything.
    pub(super) fn beside(&mut self, of: Address) -> Result<Address, RuntimeError> {
        self.block(u64::try_from(of.len).unwrap_or(u64::MAX), 1)
    }

    /// Memory in which a loop counts its passes.
    pub(super) fn counter(&mut self) -> Result<Address, RuntimeError> {
        self.block(COUNTER, 1)
    }

    /// Where a value is.
    pub(super) fn value(&self, value: ValueId) -> Result<Address, RuntimeError> {
        match (self.values[value], self.graph.bytes(value)) {
            (Some(at), _) => Ok(at),
            // What has no known size is refused on its producer's account.
            (None, None | Some(0)) => Ok(Address::default()),
            (None, Some(_)) => Err(RuntimeError::Mismatch(format!(
                "there is no memory for {:?}",
                self.graph.value_label(value)
            ))),
        }
    }

    /// Where a value is that its producer makes now: in planned memory, or else it is a name of
    /// `source`, if that is outside.
    pub(super) fn settle(
        &mut self,
        value: ValueId,
        source: Option<ValueId>,
    ) -> Result<Address, RuntimeError> {
        let source = source.filter(|&s| self.outside.contains(s));
        if let (None, Some(source)) = (self.values[value], source) {
            let source = self.value(source)?;
            let bytes = self.graph.bytes(value);
            let at = match bytes {
                Some(bytes) => part(source, 0, bytes)?,
                None => source,
            };
            self.values[value] = Some(at);
            self.outside.insert(value);
        }
        self.value(value)
    }

    pub(super) fn copy(&self, k: u32) -> Result<Address, RuntimeError> {
        let at = self.copies.get(k as usize).copied().flatten();
        Ok(at.unwrap_or_default())
    }

    pub(super) fn workspace(
        &self,
        node: NodeId,
        k: u32,
        bytes: u64,
    ) -> Result<Address, RuntimeError> {
        match self.workspaces.get(&(node, k)) {
            Some(&at) => Ok(at),
            None if bytes == 0 => Ok(Address::default()),
            None => Err(RuntimeError::Mismatch(format!(
                "there is no memory for workspace {k} of {:?}",
                self.graph.node_label(node)
            ))),
        }
    }
}

/// The tensor that a constant holds.
fn tensor_of(node: &Node) -> Option<&Arc<Tensor>> {
    match node.attrs.get("value") {
        Some(Attr::Tensor(tensor)) => Some(tensor),
        _ => None,
    }
}

/// The bytes from `offset` on of some memory.
fn part(of: Address, offset: u64, bytes: u64) -> Result<Address, RuntimeError> {
    let inside = || {
        let offset = usize::try_from(offset).ok()?;
        let len = usize::try_from(bytes).ok()?;
        (offset.checked_add(len)? <= of.len).then_some(Address {
            block: of.block,
            start: of.start + offset,
            len,
        })
    };
    inside().ok_or_else(elsewhere)
}

fn elsewhere() -> RuntimeError {
    RuntimeError::Mismatch("something leaves the memory that it lives in".to_owned())
}
