//! A graph in the middle of its edits: each is made at once, so that whoever edits sees the graph
//! as it will be, and the lists of nodes are rebuilt at the end, once.

use cranelift_entity::SecondaryMap;
use rustc_hash::{FxHashMap, FxHashSet};
use std::borrow::Cow;
use std::collections::BinaryHeap;
use std::sync::Arc;

use super::{Edit, Line, Log, NewNode, PatchError, Slot, Spot, Unfit, Words};
use crate::{
    Attr, Attrs, Graph, NodeId, OutputHints, StreamId, SubgraphId, Value, ValueId, canonical,
    verify,
};

/// A graph that is being edited.
///
/// Ids stay what they are while edits are made, new nodes get further ones. The lists of nodes in
/// [`Graph::subgraphs`] are those of the graph that the editor was made for until
/// [`Editor::finish`], and outputs of a node that was taken out are still read until then.
#[derive(Clone, Debug)]
pub struct Editor<'a> {
    /// The graph that the editor was made for until the first edit, then a graph of its own.
    graph: Cow<'a, Graph>,
    log: Log,
    /// New nodes by the node that they stand right before.
    before: FxHashMap<NodeId, Vec<NodeId>>,
    /// New nodes by the node that they stand right behind.
    behind: FxHashMap<NodeId, Vec<NodeId>>,
    /// New nodes that stand first.
    first: FxHashMap<SubgraphId, Vec<NodeId>>,
    removed: FxHashSet<NodeId>,
    /// What stands for the outputs of removed nodes; never in a circle.
    instead: FxHashMap<ValueId, ValueId>,
    /// Names of nodes and, in the form that new ones have, of values; made when first needed. With
    /// each the first number that may be free behind it.
    names: Option<FxHashMap<(SubgraphId, String), u64>>,
    /// Whether an edit was made after which the order of the lists may be none of execution.
    unsorted: bool,
    /// What nodes that wait for many wait for.
    long_waits: FxHashMap<NodeId, FxHashSet<NodeId>>,
}

/// How many nodes one may wait for until a set is made of them.
const LONG_WAIT: usize = 64;

impl<'a> Editor<'a> {
    /// Begins to edit a graph.
    #[must_use]
    pub fn new(graph: &'a Graph) -> Self {
        Editor {
            graph: Cow::Borrowed(graph),
            log: Log::default(),
            before: FxHashMap::default(),
            behind: FxHashMap::default(),
            first: FxHashMap::default(),
            removed: FxHashSet::default(),
            instead: FxHashMap::default(),
            names: None,
            unsorted: false,
            long_waits: FxHashMap::default(),
        }
    }

    /// The graph as it stands.
    #[must_use]
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Whether nothing was edited yet.
    #[must_use]
    pub fn is_untouched(&self) -> bool {
        self.log.lines.is_empty()
    }

    /// Whether there is a control edge from `before` to `after`.
    pub fn waits_for(&mut self, after: NodeId, before: NodeId) -> bool {
        let Some(node) = self.graph.nodes.get(after) else {
            return false;
        };
        if node.control.len() <= LONG_WAIT {
            return node.control.contains(&before);
        }
        let known = self.long_waits.entry(after);
        let known = known.or_insert_with(|| node.control.iter().copied().collect());
        known.contains(&before)
    }

    /// Makes an edit; gives the node that it added.
    ///
    /// # Errors
    /// [`PatchError::Unfit`], and the graph is as it was before the edit.
    pub fn apply(&mut self, edit: &Edit, reason: &str) -> Result<Option<NodeId>, PatchError> {
        let words = Words(&self.graph, edit).to_string();
        match self.edit(edit) {
            Ok(added) => {
                let node = added.or(edit.subject());
                self.log.lines.push(Line {
                    change: edit.change(),
                    what: words,
                    reason: reason.to_owned(),
                    node: node.map(|n| self.graph.node_label(n)).unwrap_or_default(),
                });
                Ok(added)
            }
            Err(problem) => Err(PatchError::Unfit {
                edit: words,
                problem,
            }),
        }
    }

    /// The edited graph and the log. Where an edit lets a node read or wait for a later one, nodes
    /// are moved as little as it takes.
    ///
    /// # Errors
    /// [`PatchError::Broken`] when the edits together break a rule of
    /// [`crate::verify()`](mod@crate::verify), for instance because nodes wait for one another.
    pub fn finish(mut self) -> Result<(Graph, Log), PatchError> {
        let edited = self.build();
        verify(&edited).map_err(PatchError::Broken)?;
        Ok((edited, self.log))
    }

    fn has(&self, node: NodeId) -> Result<NodeId, Unfit> {
        if self.graph.nodes.is_valid(node) && !self.removed.contains(&node) {
            Ok(node)
        } else {
            Err(Unfit::NoNode)
        }
    }

    fn slot(&mut self, reader: NodeId, input: u32) -> Result<&mut ValueId, Unfit> {
        self.has(reader)?;
        let slot = self.graph.to_mut().nodes[reader]
            .inputs
            .get_mut(input as usize);
        slot.and_then(Option::as_mut).ok_or(Unfit::NoInput)
    }

    fn edit(&mut self, edit: &Edit) -> Result<Option<NodeId>, Unfit> {
        match edit {
            Edit::Insert {
                reader,
                input,
                op,
                name,
            } => {
                let value = *self.slot(*reader, *input)?;
                let producer = self.graph.values[value].producer;
                let (dtype, shape) = {
                    let value = &self.graph.values[value];
                    (value.dtype, value.shape.clone())
                };
                let subgraph = self.graph.nodes[*reader].subgraph;
                let node = self
                    .graph
                    .to_mut()
                    .add_node(subgraph, name.clone(), Arc::clone(op));
                // It stands elsewhere than at the end: see `finish`.
                self.graph.to_mut().subgraphs[subgraph].nodes.pop();
                self.before.entry(*reader).or_default().push(node);
                let nodes = &mut self.graph.to_mut().nodes;
                let stream = nodes[*reader].stream.or(nodes[producer].stream);
                nodes[node].stream = stream.or(Some(StreamId::from_u32(0)));
                nodes[node].inputs.push(Some(value));
                let output =
                    self.graph
                        .to_mut()
                        .add_output(node, format!("{name}:0"), dtype, shape);
                *self.slot(*reader, *input)? = output;
                return Ok(Some(node));
            }
            Edit::Add { node, spot } => return self.add(node, *spot).map(Some),
            Edit::Bypass { node } => self.bypass(self.has(*node)?)?,
            Edit::AddControl { before, after } => {
                let (before, after) = (self.has(*before)?, self.has(*after)?);
                self.unsorted = true;
                if !self.waits_for(after, before) {
                    self.graph.to_mut().nodes[after].control.push(before);
                    if let Some(known) = self.long_waits.get_mut(&after) {
                        known.insert(before);
                    }
                }
            }
            Edit::RemoveControl { before, after } => {
                let after = self.has(*after)?;
                let control = &mut self.graph.to_mut().nodes[after].control;
                let at = control.iter().position(|n| n == before);
                control.remove(at.ok_or(Unfit::NoControl)?);
                self.long_waits.remove(&after);
            }
            Edit::SetAttr { node, attr, value } => {
                let node = self.has(*node)?;
                put(&mut self.graph.to_mut().nodes[node].attrs, attr, value);
            }
            Edit::SetSlotAttr {
                node,
                slot,
                attr,
                value,
            } => {
                put(self.slot_attrs(*node, *slot)?, attr, value);
            }
            Edit::Reuse {
                node,
                output,
                input,
            } => {
                if let Some(input) = input {
                    self.slot(*node, *input)?;
                }
                self.hints(*node, *output)?.reuse_input = *input;
            }
            Edit::Redirect {
                reader,
                input,
                value,
            } => {
                let values = &self.graph.values;
                if !values.is_valid(*value) || self.has(values[*value].producer).is_err() {
                    return Err(Unfit::NoValue);
                }
                *self.slot(*reader, *input)? = *value;
                self.unsorted = true;
            }
        }
        Ok(None)
    }

    fn add(&mut self, new: &NewNode, spot: Spot) -> Result<NodeId, Unfit> {
        let subgraph = match spot {
            Spot::Before(node) | Spot::After(node) => self.graph.nodes[self.has(node)?].subgraph,
            Spot::First(subgraph) if self.graph.subgraphs.is_valid(subgraph) => subgraph,
            Spot::First(_) => return Err(Unfit::NoSubgraph),
        };
        for &input in &new.inputs {
            if !self.graph.values.is_valid(input) {
                return Err(Unfit::NoValue);
            }
            self.has(self.graph.values[input].producer)
                .map_err(|_| Unfit::NoValue)?;
        }
        for &node in &new.control {
            self.has(node)?;
        }
        let name = self.fresh_name(subgraph, &new.name);
        let id = self
            .graph
            .to_mut()
            .add_node(subgraph, name.clone(), Arc::clone(&new.op));
        // It stands elsewhere than at the end: see `build`.
        self.graph.to_mut().subgraphs[subgraph].nodes.pop();
        let list = match spot {
            Spot::Before(node) => self.before.entry(node).or_default(),
            Spot::After(node) => self.behind.entry(node).or_default(),
            Spot::First(subgraph) => self.first.entry(subgraph).or_default(),
        };
        list.push(id);
        let node = &mut self.graph.to_mut().nodes[id];
        node.stream = new.stream.or(node.stream);
        node.inputs.extend(new.inputs.iter().copied().map(Some));
        node.attrs = new.attrs.clone();
        node.control.extend(new.control.iter().copied());
        for (i, output) in (0u32..).zip(&new.outputs) {
            let value = self.graph.to_mut().values.push(Value {
                name: format!("{name}:{i}"),
                producer: id,
                output: i,
                dtype: output.dtype,
                shape: output.shape.clone(),
                hints: output.hints.clone(),
            });
            self.graph.to_mut().nodes[id].outputs.push(Some(value));
        }
        self.unsorted = true;
        Ok(id)
    }

    /// A name like `wish` that no node of the subgraph has.
    fn fresh_name(&mut self, subgraph: SubgraphId, wish: &str) -> String {
        let graph = &self.graph;
        let names = self.names.get_or_insert_with(|| {
            let nodes = graph.nodes.values();
            let names = nodes.map(|n| (n.subgraph, n.name.clone()));
            names.map(|name| (name, 1)).collect()
        });
        let wished = (subgraph, wish.to_owned());
        let Some(&first) = names.get(&wished) else {
            names.insert(wished, 1);
            return wish.to_owned();
        };
        let numbered = (first..).map(|k| (k, (subgraph, format!("{wish}_{k}"))));
        let mut free = numbered.filter(|(_, key)| !names.contains_key(key));
        // The list of wishes is longer than any graph, so one of them is free.
        let (number, key) = free.next().unwrap_or((first, wished.clone()));
        names.insert(key.clone(), 1);
        names.insert(wished, number + 1);
        key.1
    }

    fn slot_attrs(&mut self, node: NodeId, slot: Slot) -> Result<&mut Attrs, Unfit> {
        self.has(node)?;
        match slot {
            Slot::In(i) => {
                self.slot(node, i)?;
                let attrs = &mut self.graph.to_mut().nodes[node].input_attrs;
                let i = i as usize;
                while attrs.len() <= i {
                    attrs.push(Attrs::new());
                }
                attrs.get_mut(i).ok_or(Unfit::NoInput)
            }
            Slot::Out(o) => Ok(&mut self.hints(node, o)?.attrs),
        }
    }

    fn hints(&mut self, node: NodeId, output: u32) -> Result<&mut OutputHints, Unfit> {
        self.has(node)?;
        let value = self.graph.nodes[node].output(output as usize);
        let value = value.ok_or(Unfit::NoOutput)?;
        let hints = &mut self.graph.to_mut().values[value].hints;
        Ok(hints.get_or_insert_default())
    }

    fn bypass(&mut self, node: NodeId) -> Result<(), Unfit> {
        let removed = &self.graph.nodes[node];
        if !removed.bodies.is_empty() {
            return Err(Unfit::HasBodies);
        }
        let ways: Option<Vec<(ValueId, ValueId)>> = (removed.outputs.iter().enumerate())
            .filter_map(|(i, output)| output.map(|output| (i, output)))
            .map(|(i, output)| Some((output, removed.input(i)?)))
            .collect();
        for (output, input) in ways.ok_or(Unfit::NoWayThrough)? {
            let mut source = input;
            while let Some(&further) = self.instead.get(&source) {
                source = further;
            }
            if source == output {
                return Err(Unfit::NoWayThrough);
            }
            self.instead.insert(output, input);
        }
        self.removed.insert(node);
        Ok(())
    }

    fn build(&mut self) -> Graph {
        let subgraphs: Vec<_> = self.graph.subgraphs.keys().collect();
        for id in subgraphs {
            let mut old = std::mem::take(&mut self.graph.to_mut().subgraphs[id].nodes);
            let first = self.first.remove(&id).unwrap_or_default();
            let mut new = Vec::with_capacity(old.len());
            // Nodes to be listed, the next one last; new ones stand before or behind new ones, too.
            let mut stack: Vec<NodeId> = Vec::new();
            old.splice(0..0, first);
            for node in old {
                stack.push(node);
                while let Some(node) = stack.pop() {
                    if let Some(before) = self.before.remove(&node) {
                        stack.push(node);
                        stack.extend(before.into_iter().rev());
                        continue;
                    }
                    if !self.removed.contains(&node) {
                        new.push(node);
                    }
                    let behind = self.behind.remove(&node).unwrap_or_default();
                    stack.extend(behind.into_iter().rev());
                }
            }
            self.graph.to_mut().subgraphs[id].nodes = new;
            let removed = &self.removed;
            let subgraph = &mut self.graph.to_mut().subgraphs[id];
            subgraph.inputs.retain(|n| !removed.contains(n));
            subgraph.output = subgraph.output.filter(|n| !removed.contains(n));
        }
        if !self.removed.is_empty() {
            self.reconnect();
        }
        if self.unsorted {
            self.sort();
        }
        canonical(&self.graph)
    }

    /// Sorts the nodes of each subgraph by what they read and wait for, and keeps the order that
    /// they have where that leaves it open. Nodes that wait for one another stay where they are.
    fn sort(&mut self) {
        let mut needs: SecondaryMap<NodeId, Vec<NodeId>> = SecondaryMap::new();
        for (id, node) in &self.graph.nodes {
            if self.removed.contains(&id) {
                continue;
            }
            needs[id].extend(&node.control);
            for &value in node.inputs.iter().flatten() {
                let producer = self.graph.values[value].producer;
                if let Some(reader) = self.graph.around(id, self.graph.nodes[producer].subgraph) {
                    needs[reader].push(producer);
                }
            }
        }
        let mut place: SecondaryMap<NodeId, Option<usize>> = SecondaryMap::new();
        let ids: Vec<SubgraphId> = self.graph.subgraphs.keys().collect();
        for id in ids {
            let nodes = &self.graph.subgraphs[id].nodes;
            for (i, &node) in nodes.iter().enumerate() {
                place[node] = Some(i);
            }
            let is_sorted = nodes.iter().all(|&node| {
                let mut needed = needs[node].iter();
                needed.all(|&n| place[n].is_none() || place[n] < place[node])
            });
            if !is_sorted && let Some(sorted) = sorted(nodes, &needs, &place) {
                self.graph.to_mut().subgraphs[id].nodes = sorted;
            }
            for &node in &self.graph.subgraphs[id].nodes {
                place[node] = None;
            }
        }
    }

    /// Lets all nodes read and wait past the removed ones.
    fn reconnect(&mut self) {
        let order: Vec<NodeId> = crate::identity::walk(&self.graph)
            .flat_map(|s| self.graph.subgraphs[s].nodes.clone())
            .collect();
        // Whoever reads past a removed node waits for what that node waited for, or lets the node
        // wait that stands around the reader in the same subgraph.
        let mut waits: FxHashMap<NodeId, Vec<NodeId>> = FxHashMap::default();
        for &id in &order {
            for i in 0..self.graph.nodes[id].inputs.len() {
                let mut input = self.graph.nodes[id].inputs[i];
                while let Some((from, &instead)) =
                    input.and_then(|v| Some((v, self.instead.get(&v)?)))
                {
                    let removed = &self.graph.nodes[self.graph.values[from].producer];
                    if let Some(waiter) = self.graph.around(id, removed.subgraph) {
                        waits.entry(waiter).or_default().extend(&removed.control);
                    }
                    input = Some(instead);
                }
                self.graph.to_mut().nodes[id].inputs[i] = input;
            }
        }
        for id in order {
            let old = &self.graph.nodes[id].control;
            let more = waits.remove(&id).unwrap_or_default();
            if !more.is_empty() || old.iter().any(|n| self.removed.contains(n)) {
                let control = self.past_removed(old.iter().copied().chain(more).collect());
                self.graph.to_mut().nodes[id].control = control.into();
            }
        }
    }

    /// The given nodes, with what a removed one needed of the same subgraph in its place.
    fn past_removed(&self, mut stack: Vec<NodeId>) -> Vec<NodeId> {
        let nodes = &self.graph.nodes;
        stack.reverse();
        let mut control = Vec::new();
        let mut seen = FxHashSet::default();
        while let Some(node) = stack.pop() {
            if !seen.insert(node) {
                continue;
            }
            if self.removed.contains(&node) {
                let read = nodes[node].inputs.iter().flatten();
                let made_by = read.map(|&v| self.graph.values[v].producer);
                stack.extend(made_by.filter(|&n| nodes[n].subgraph == nodes[node].subgraph));
                stack.extend(&nodes[node].control);
            } else {
                control.push(node);
            }
        }
        control
    }
}

/// Sets an attribute, or removes it when there is no value.
fn put(attrs: &mut Attrs, attr: &Arc<str>, value: &Option<Attr>) {
    match value {
        Some(value) => attrs.set(Arc::clone(attr), value.clone()),
        None => drop(attrs.remove(attr)),
    }
}

/// The nodes in an order in which each stands behind what it needs, by place where that is open;
/// `None` when they need one another in a circle. Nodes without a place are elsewhere.
fn sorted(
    nodes: &[NodeId],
    needs: &SecondaryMap<NodeId, Vec<NodeId>>,
    place: &SecondaryMap<NodeId, Option<usize>>,
) -> Option<Vec<NodeId>> {
    let mut missing = vec![0usize; nodes.len()];
    let mut waiting: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    for (i, &node) in nodes.iter().enumerate() {
        for needed in needs[node].iter().filter_map(|&n| place[n]) {
            missing[i] += 1;
            waiting[needed].push(i);
        }
    }
    let ready = (0..nodes.len()).filter(|&i| missing[i] == 0);
    let mut ready: BinaryHeap<_> = ready.map(std::cmp::Reverse).collect();
    let mut sorted = Vec::with_capacity(nodes.len());
    while let Some(std::cmp::Reverse(i)) = ready.pop() {
        sorted.push(nodes[i]);
        for &next in &waiting[i] {
            missing[next] -= 1;
            if missing[next] == 0 {
                ready.push(std::cmp::Reverse(next));
            }
        }
    }
    (sorted.len() == nodes.len()).then_some(sorted)
}
