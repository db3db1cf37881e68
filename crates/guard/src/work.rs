//! A program while a pass edits it: the editor, who reads what as it stands, and the copies that
//! passes put in.

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::cell::{Cell, RefCell, RefMut};
use std::rc::Rc;
use tenure_graph::effects::{Effects, OpTable, Trait};
use tenure_graph::entity::SecondaryMap;
use tenure_graph::patch::{Edit, Editor, Log, NewNode, NewOutput, Slot, Spot};
use tenure_graph::{Attr, Attrs, Graph, NodeId, ValueId};

use crate::Guarded;
use crate::error::GuardError;
use crate::finding::{Edited, Finding, Kind};
use crate::storage::{Anchor, in_order, reference};

/// Type of the node that copies.
pub const COPY_OP: &str = "Identity";

/// Attribute that keeps later passes from taking a node out.
pub const CANNOT_BE_DELETED: &str = "_cannot_be_deleted";

/// Attribute whose presence keeps later passes from folding a node, whatever its value.
pub const NO_FOLDING: &str = "no_need_constant_folding";

/// Attributes of a reader that the copy before it takes over.
const OF_READER: [&str; 2] = ["_stream_label", "_rts_label_node"];

/// Attribute of a node that reads the caller's inputs.
const READS_USER_INPUT: &str = "_is_connected_to_data";

/// Attribute of a node that writes the caller's outputs.
const WRITES_USER_OUTPUT: &str = "_is_connected_to_netoutput";

/// Attribute of the producer that a copy takes over, unless empty.
const BATCH_LABEL: &str = "_batch_label";

/// Inputs and outputs of a node up to which what it does is looked up each time.
const FEW_SLOTS: usize = 16;

/// How many nodes [`Work::is_plainly_before`] looks at.
const SHORT_WAY: usize = 64;

/// The real producers of a node's inputs, and the version of the program that they were found in.
type Dated = (u64, Rc<[Anchor]>);

/// Two nodes that something is asked about.
type Pair = (NodeId, NodeId);

/// What is asked about two nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Question {
    /// Whether the outputs of one and the inputs of the other fit in one row.
    OutputsMeetInputs,
    /// Whether the inputs of both fit in one row.
    InputsMeet,
    /// Whether the inputs of one, given twice, are slices of one memory.
    InputsAreSlices,
}

/// A program that is being edited.
pub struct Work<'a> {
    /// What operators do.
    pub table: &'a OpTable,
    editor: Editor<'a>,
    /// Who reads each value, in order of execution; whoever comes to read it later stands last.
    users: SecondaryMap<ValueId, Vec<(NodeId, u32)>>,
    /// Place of each node in the order of execution over all subgraphs.
    position: SecondaryMap<NodeId, u32>,
    /// Nodes by a node that they wait for.
    waiting: SecondaryMap<NodeId, Vec<NodeId>>,
    removed: FxHashSet<NodeId>,
    /// How many edits were made.
    version: Cell<u64>,
    producers: RefCell<FxHashMap<NodeId, Dated>>,
    /// Where the memory of values with references on the way comes from, and the version that this was
    /// found in.
    real: RefCell<(u64, FxHashMap<ValueId, Anchor>)>,
    /// The variable that each value is, as far as it was asked for since an edge of data changed.
    variables: RefCell<FxHashMap<ValueId, Option<NodeId>>>,
    /// Answers about two nodes, each with the version that it was found in.
    answers: RefCell<FxHashMap<(Question, Pair), (u64, bool)>>,
    /// What nodes with many slots do to memory, and the version that this was found in.
    effects: RefCell<FxHashMap<NodeId, (u64, Rc<Effects>)>>,
}

impl<'a> Work<'a> {
    /// Begins to edit a program.
    #[must_use]
    pub fn new(graph: &'a Graph, table: &'a OpTable) -> Self {
        let mut users: SecondaryMap<ValueId, Vec<(NodeId, u32)>> = SecondaryMap::new();
        let mut position = SecondaryMap::new();
        let mut waiting: SecondaryMap<NodeId, Vec<NodeId>> = SecondaryMap::new();
        for (at, node) in (0u32..).zip(in_order(graph, graph.root)) {
            position[node] = at;
            for (i, input) in (0u32..).zip(&graph.nodes[node].inputs) {
                if let Some(value) = *input {
                    users[value].push((node, i));
                }
            }
            for &before in &graph.nodes[node].control {
                waiting[before].push(node);
            }
        }
        Work {
            table,
            editor: Editor::new(graph),
            users,
            position,
            waiting,
            removed: FxHashSet::default(),
            version: Cell::new(0),
            producers: RefCell::default(),
            variables: RefCell::default(),
            real: RefCell::default(),
            answers: RefCell::default(),
            effects: RefCell::default(),
        }
    }

    /// The program as it stands.
    #[must_use]
    pub fn graph(&self) -> &Graph {
        self.editor.graph()
    }

    /// A number that changes with each edit.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version.get()
    }

    /// Who reads a value.
    #[must_use]
    pub fn users(&self, value: ValueId) -> &[(NodeId, u32)] {
        &self.users[value]
    }

    /// Who waits for a node.
    #[must_use]
    pub fn waiting(&self, node: NodeId) -> &[NodeId] {
        &self.waiting[node]
    }

    /// Place of a node in the order of execution over all subgraphs.
    #[must_use]
    pub fn position(&self, node: NodeId) -> u32 {
        self.position[node]
    }

    /// The variables that values are, as far as they are known.
    pub(crate) fn variables(&self) -> RefMut<'_, FxHashMap<ValueId, Option<NodeId>>> {
        self.variables.borrow_mut()
    }

    /// What was done to the program, with what was found.
    ///
    /// # Errors
    /// When the edits together break a rule of graphs.
    pub fn guarded(
        self,
        kind: Kind,
        stage: &'static str,
        findings: Vec<Finding>,
    ) -> Result<Guarded, GuardError> {
        let (graph, log) = if self.editor.is_untouched() {
            (None, Log::default())
        } else {
            let (graph, log) = self.editor.finish()?;
            (Some(graph), log)
        };
        let edited = |line| Edited { kind, stage, line };
        Ok(Guarded {
            graph,
            edits: log.lines.into_iter().map(edited).collect(),
            findings,
        })
    }

    /// Whether an attribute has the value that an edit sets.
    fn is_set(&self, edit: &Edit) -> bool {
        let graph = self.graph();
        let node = |node: NodeId| graph.nodes.get(node);
        let (attrs, attr, value) = match edit {
            Edit::SetAttr {
                node: n,
                attr,
                value,
            } => (node(*n).map(|n| &n.attrs), attr, value),
            Edit::SetSlotAttr {
                node: n,
                slot: Slot::Out(o),
                attr,
                value,
            } => {
                let output = node(*n).and_then(|n| n.output(*o as usize));
                let hints = output.and_then(|v| graph.values[v].hints.as_deref());
                (hints.map(|hints| &hints.attrs), attr, value)
            }
            _ => return false,
        };
        attrs.is_some_and(|attrs| attrs.get(attr) == value.as_ref())
    }

    /// Makes an edit that adds no node and changes no edge of data; nothing where what it sets is set.
    ///
    /// # Errors
    /// When it does not fit.
    pub fn edit(&mut self, edit: &Edit, reason: &str) -> Result<(), GuardError> {
        if self.is_set(edit) {
            return Ok(());
        }
        self.version.set(self.version.get() + 1);
        match edit {
            Edit::AddControl { before, after }
                if self.graph().nodes.is_valid(*after)
                    && !self.editor.waits_for(*after, *before) =>
            {
                self.waiting[*before].push(*after);
            }
            Edit::RemoveControl { before, after } => self.waiting[*before].retain(|n| n != after),
            _ => {}
        }
        self.editor.apply(edit, reason)?;
        Ok(())
    }

    /// Lets `after` wait for `before`, unless it does.
    ///
    /// # Errors
    /// When there are no such nodes.
    pub fn order(&mut self, before: NodeId, after: NodeId, reason: &str) -> Result<(), GuardError> {
        if self.editor.waits_for(after, before) {
            return Ok(());
        }
        self.edit(&Edit::AddControl { before, after }, reason)?;
        if self.position[before] > self.position[after] {
            self.move_up(before, after);
        }
        Ok(())
    }

    /// Gives nodes other places, so that `before` and all that it needs stand before `after` and
    /// all that need that one. Only nodes between the two places are looked at (Pearce and Kelly,
    /// "A dynamic topological sort algorithm for directed acyclic graphs", 2006). Nodes that wait
    /// for one another stay where they are; [`Work::guarded`] then refuses the graph.
    fn move_up(&mut self, before: NodeId, after: NodeId) {
        let (low, high) = (self.position[after], self.position[before]);
        let subgraph = self.graph().nodes[after].subgraph;
        if self.graph().nodes[before].subgraph != subgraph {
            return;
        }
        let between = |n: NodeId| {
            let here = self.graph().nodes[n].subgraph == subgraph;
            here && (low..=high).contains(&self.position[n])
        };
        let needed = reach(before, between, |n| self.needs(n));
        let needing = reach(after, between, |n| self.followers(n));
        if needing.contains(&before) {
            return;
        }
        let mut nodes: Vec<NodeId> = needed.into_iter().collect();
        let mut later: Vec<NodeId> = needing.into_iter().collect();
        for list in [&mut nodes, &mut later] {
            list.sort_by_key(|&n| (self.position[n], n));
        }
        nodes.extend(later);
        let mut places: Vec<u32> = nodes.iter().map(|&n| self.position[n]).collect();
        places.sort_unstable();
        for (node, place) in nodes.into_iter().zip(places) {
            self.position[node] = place;
        }
    }

    /// Whether it is plain that `first` has ended when `last` starts: a short way shows it. That
    /// none is found says nothing; one more edge between the two then does no harm.
    #[must_use]
    pub fn is_plainly_before(&self, first: NodeId, last: NodeId) -> bool {
        let from = self.position[first];
        let mut seen = FxHashSet::default();
        let mut list = vec![last];
        let mut next = 0;
        while let Some(&node) = list.get(next)
            && list.len() < SHORT_WAY
        {
            next += 1;
            for n in self.needs(node) {
                if n == first {
                    return true;
                }
                if self.position[n] >= from && seen.insert(n) {
                    list.push(n);
                }
            }
        }
        false
    }

    /// The nodes of its subgraph that certainly start when a node has ended, without those that
    /// stand behind place `to`.
    #[must_use]
    pub fn descendants(&self, node: NodeId, to: u32) -> FxHashSet<NodeId> {
        let subgraph = self.graph().nodes[node].subgraph;
        let allowed =
            |n: NodeId| self.graph().nodes[n].subgraph == subgraph && self.position[n] <= to;
        let mut all = reach(node, allowed, |n| self.followers(n));
        all.remove(&node);
        all
    }

    /// The nodes of its subgraph that have certainly ended when a node starts, without those that
    /// stand before place `from`.
    #[must_use]
    pub fn ancestors(&self, node: NodeId, from: u32) -> FxHashSet<NodeId> {
        let subgraph = self.graph().nodes[node].subgraph;
        let allowed =
            |n: NodeId| self.graph().nodes[n].subgraph == subgraph && self.position[n] >= from;
        let mut all = reach(node, allowed, |n| self.needs(n));
        all.remove(&node);
        all
    }

    /// The nodes that a node reads from or waits for.
    pub fn needs(&self, node: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        let graph = self.graph();
        let read = graph.nodes[node].inputs.iter().flatten();
        let producers = read.map(|&v| graph.values[v].producer);
        producers.chain(graph.nodes[node].control.iter().copied())
    }

    /// The nodes that read from a node or wait for it.
    fn followers(&self, node: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        let made = self.graph().nodes[node].outputs.iter().flatten();
        let readers = made.flat_map(|&v| &self.users[v]).map(|&(n, _)| n);
        readers.chain(self.waiting[node].iter().copied())
    }

    /// Adds a node.
    ///
    /// # Errors
    /// When it does not fit.
    pub fn add(&mut self, node: NewNode, spot: Spot, reason: &str) -> Result<NodeId, GuardError> {
        self.version.set(self.version.get() + 1);
        let inputs = node.inputs.clone();
        let control = node.control.clone();
        let beside = match spot {
            Spot::Before(node) | Spot::After(node) => self.position[node],
            Spot::First(_) => 0,
        };
        let node = Box::new(node);
        let added = self.editor.apply(&Edit::Add { node, spot }, reason)?;
        let Some(id) = added else {
            unreachable!("adding a node gives its id");
        };
        for (i, value) in (0u32..).zip(inputs) {
            self.users[value].push((id, i));
        }
        for before in control {
            self.waiting[before].push(id);
        }
        self.position[id] = beside;
        Ok(id)
    }

    /// Takes out a node that hands its inputs on: who reads its output `i` reads its input `i`, and
    /// order that went through it stays.
    ///
    /// # Errors
    /// When an output has no input of the same number.
    pub fn take_out(&mut self, node: NodeId, reason: &str) -> Result<(), GuardError> {
        let graph = self.graph();
        let outputs: Vec<_> = graph.nodes[node]
            .outputs
            .iter()
            .copied()
            .enumerate()
            .collect();
        let before: Vec<NodeId> = graph.nodes[node].control.to_vec();
        let after = self.waiting[node].clone();
        for (o, output) in outputs {
            let Some(output) = output else { continue };
            let source = self.graph().nodes[node].input(o);
            for user in self.users[output].clone() {
                if let Some(source) = source {
                    self.redirect(user, source, reason)?;
                }
                for &first in &before {
                    if self.graph().nodes[user.0].subgraph == self.graph().nodes[first].subgraph {
                        self.order(first, user.0, reason)?;
                    }
                }
            }
        }
        let read: Vec<ValueId> = self.graph().nodes[node]
            .inputs
            .iter()
            .flatten()
            .copied()
            .collect();
        let producers = read.iter().map(|&v| self.graph().values[v].producer);
        let subgraph = self.graph().nodes[node].subgraph;
        let producers: Vec<NodeId> = producers
            .filter(|&n| self.graph().nodes[n].subgraph == subgraph)
            .collect();
        for &last in &after {
            for &first in before.iter().chain(&producers) {
                self.order(first, last, reason)?;
            }
            self.edit(
                &Edit::RemoveControl {
                    before: node,
                    after: last,
                },
                reason,
            )?;
        }
        self.edit(&Edit::Bypass { node }, reason)?;
        for value in read {
            self.users[value].retain(|&(user, _)| user != node);
        }
        for first in before {
            self.waiting[first].retain(|&n| n != node);
        }
        self.removed.insert(node);
        Ok(())
    }

    /// Whether a node was taken out.
    #[must_use]
    pub fn is_taken_out(&self, node: NodeId) -> bool {
        self.removed.contains(&node)
    }

    /// Lets an input read another value.
    ///
    /// # Errors
    /// When there is no such input or value.
    pub fn redirect(
        &mut self,
        (reader, input): (NodeId, u32),
        value: ValueId,
        reason: &str,
    ) -> Result<(), GuardError> {
        self.version.set(self.version.get() + 1);
        self.variables.borrow_mut().clear();
        let old = self.graph().nodes.get(reader);
        let old = old.and_then(|n| n.input(input as usize));
        let edit = Edit::Redirect {
            reader,
            input,
            value,
        };
        self.editor.apply(&edit, reason)?;
        if let Some(old) = old {
            self.users[old].retain(|&user| user != (reader, input));
        }
        self.users[value].push((reader, input));
        Ok(())
    }

    /// Puts one copy before several inputs of one reader: all are read before any copy is
    /// written. Gives the copy.
    ///
    /// # Errors
    /// When an input is not there.
    pub fn copy_before(
        &mut self,
        reader: NodeId,
        inputs: &[u32],
        name: &str,
        reason: &str,
    ) -> Result<NodeId, GuardError> {
        let graph = self.graph();
        let values = inputs
            .iter()
            .filter_map(|&i| graph.nodes[reader].input(i as usize));
        let values: Vec<ValueId> = values.collect();
        let Some(&first) = values.first() else {
            return Err(missing(graph, reader));
        };
        let producer = graph.values[first].producer;
        let mut copy = self.new_copy(&values, reader, producer, name);
        let zeroes = |&n: &NodeId| self.table.traits(graph, n).has(Trait::Zeroes);
        let control = graph.nodes[reader].control.iter().copied();
        copy.control = control.filter(|n| !zeroes(n)).collect();
        self.hand_over(&mut copy, READS_USER_INPUT, reader, reason)?;
        if inputs.len() == 1 {
            self.hand_over(&mut copy, WRITES_USER_OUTPUT, producer, reason)?;
        }
        let id = self.add(copy, Spot::Before(reader), reason)?;
        let pairs = (0..)
            .zip(inputs)
            .map(|(o, &i)| (i, self.graph().nodes[id].output(o)));
        for (i, value) in pairs.collect::<Vec<_>>() {
            if let Some(value) = value {
                self.redirect((reader, i), value, reason)?;
            }
        }
        Ok(id)
    }

    /// Lets another node make all copies but one of a node that copies several values, where it
    /// stands. Gives the other node.
    ///
    /// # Errors
    /// When it does not fit.
    pub fn copy_others(
        &mut self,
        node: NodeId,
        without: u32,
        reason: &str,
    ) -> Result<NodeId, GuardError> {
        let copy = &self.graph().nodes[node];
        let slots = (0u32..).zip(copy.inputs.iter().zip(&copy.outputs));
        let others = slots.filter(|&(slot, _)| slot != without);
        let others = others.filter_map(|(_, (from, to))| Some(((*from)?, (*to)?)));
        let others: Vec<(ValueId, ValueId)> = others.collect();
        let new = NewNode {
            name: copy.name.clone(),
            op: copy.op.clone(),
            inputs: others.iter().map(|&(from, _)| from).collect(),
            outputs: (others.iter().map(|&(_, to)| self.output_like(to))).collect(),
            attrs: copy.attrs.clone(),
            control: copy.control.to_vec(),
            stream: copy.stream,
        };
        let id = self.add(new, Spot::Before(node), reason)?;
        for (o, (_, to)) in others.into_iter().enumerate() {
            let Some(value) = self.graph().nodes[id].output(o) else {
                continue;
            };
            for user in self.users[to].clone() {
                self.redirect(user, value, reason)?;
            }
        }
        for after in self.waiting[node].clone() {
            self.order(id, after, reason)?;
        }
        Ok(id)
    }

    /// Puts one copy behind several outputs of a subgraph's nodes; `readers` are those of each that
    /// read the copy from now on, and `waits` nodes wait for the copy. Gives the copy.
    ///
    /// # Errors
    /// When a value is not there.
    pub fn copy_behind(
        &mut self,
        outputs: &[(ValueId, Vec<(NodeId, u32)>)],
        name: &str,
        reason: &str,
    ) -> Result<NodeId, GuardError> {
        let values: Vec<ValueId> = outputs.iter().map(|&(value, _)| value).collect();
        let graph = self.graph();
        let last = values.iter().map(|&v| graph.values[v].producer);
        let last = last.max_by_key(|&n| self.position[n]);
        let (Some(producer), Some(&first)) = (last, values.first()) else {
            return Err(GuardError::Malformed {
                at: name.to_owned(),
                problem: "a copy of nothing".to_owned(),
            });
        };
        let first_producer = graph.values[first].producer;
        let reader = outputs.iter().flat_map(|(_, readers)| readers).next();
        let reader = reader.map_or(producer, |&(reader, _)| reader);
        let switches = self.table.traits(graph, producer).has(Trait::Switches);
        let mut copy = self.new_copy(&values, reader, first_producer, name);
        if outputs.len() == 1 {
            self.hand_over(&mut copy, READS_USER_INPUT, reader, reason)?;
            self.hand_over(&mut copy, WRITES_USER_OUTPUT, producer, reason)?;
        }
        let id = self.add(copy, Spot::After(producer), reason)?;
        for (o, (_, readers)) in outputs.iter().enumerate() {
            let Some(value) = self.graph().nodes[id].output(o) else {
                continue;
            };
            for &user in readers {
                self.redirect(user, value, reason)?;
            }
        }
        if !switches && outputs.len() == 1 {
            let waiting = self.waiting[producer].clone();
            for after in waiting.into_iter().filter(|&n| n != id) {
                self.order(id, after, reason)?;
            }
        }
        Ok(id)
    }

    fn new_copy(
        &self,
        values: &[ValueId],
        reader: NodeId,
        producer: NodeId,
        name: &str,
    ) -> NewNode {
        let graph = self.graph();
        let mut attrs = Attrs::new();
        attrs.set(CANNOT_BE_DELETED, Attr::Bool(true));
        attrs.set(NO_FOLDING, Attr::Bool(false));
        for name in OF_READER {
            if let Some(attr) = graph.nodes[reader].attrs.get(name) {
                attrs.set(name, attr.clone());
            }
        }
        let label = graph.nodes[producer].attrs.str(BATCH_LABEL);
        if let Some(label) = label.filter(|l| !l.is_empty()) {
            attrs.set(BATCH_LABEL, Attr::Str(label.to_owned()));
        }
        NewNode {
            name: name.to_owned(),
            op: COPY_OP.into(),
            inputs: values.to_vec(),
            outputs: values.iter().map(|&v| self.output_like(v)).collect(),
            attrs,
            control: Vec::new(),
            stream: graph.nodes[reader].stream.or(graph.nodes[producer].stream),
        }
    }

    /// An output of the type of a value.
    fn output_like(&self, value: ValueId) -> NewOutput {
        let value = &self.graph().values[value];
        NewOutput {
            dtype: value.dtype,
            shape: value.shape.clone(),
            hints: None,
        }
    }

    /// Moves an attribute that says who touches the caller's memory from a node to the copy.
    fn hand_over(
        &mut self,
        copy: &mut NewNode,
        attr: &'static str,
        node: NodeId,
        reason: &str,
    ) -> Result<(), GuardError> {
        let Some(value) = self.graph().nodes[node].attrs.get(attr).cloned() else {
            return Ok(());
        };
        copy.attrs.set(attr, value);
        let edit = Edit::SetAttr {
            node,
            attr: attr.into(),
            value: None,
        };
        self.edit(&edit, reason)
    }

    /// Whether a node is a copy and nothing else.
    #[must_use]
    pub fn is_copy(&self, node: NodeId) -> bool {
        self.table.traits(self.graph(), node).has(Trait::Copies)
    }

    /// Whether an input already has a copy of its own.
    #[must_use]
    pub fn is_copied_before(&self, reader: NodeId, input: u32) -> bool {
        let graph = self.graph();
        graph.nodes[reader]
            .input(input as usize)
            .is_some_and(|value| {
                self.is_copy(graph.values[value].producer) && self.users[value].len() == 1
            })
    }

    /// Whether an output already has a copy that serves all who read it.
    #[must_use]
    pub fn is_copied_behind(&self, value: ValueId) -> bool {
        matches!(self.users[value][..], [(user, _)] if self.is_copy(user))
    }

    /// The output that an input's memory comes from: its producer, or further up through
    /// references.
    #[must_use]
    pub fn real_producer(&self, value: ValueId) -> Anchor {
        let graph = self.graph();
        let mut known = self.real.borrow_mut();
        if known.0 != self.version() {
            *known = (self.version(), FxHashMap::default());
        }
        let mut way: SmallVec<[ValueId; 4]> = SmallVec::from_slice(&[value]);
        let mut last = value;
        let found = loop {
            if let Some(&found) = known.1.get(&last) {
                break found;
            }
            let made = &graph.values[last];
            let input = reference(graph, self.table, made.producer, made.output);
            let source = input.and_then(|i| graph.nodes[made.producer].input(i as usize));
            match source {
                Some(source) => {
                    way.push(source);
                    last = source;
                }
                None => break Anchor::of(graph, last),
            }
        };
        // What is no reference is found as fast again.
        if way.len() > 1 {
            known.1.extend(way.into_iter().map(|value| (value, found)));
        }
        found
    }

    /// The real producers of a node's inputs that are there, in order.
    #[must_use]
    pub fn real_producers(&self, node: NodeId) -> Rc<[Anchor]> {
        let version = self.version();
        if let Some((made, list)) = self.producers.borrow().get(&node)
            && *made == version
        {
            return Rc::clone(list);
        }
        let inputs = self.graph().nodes[node].inputs.iter().flatten();
        let list: Rc<[Anchor]> = inputs.map(|&v| self.real_producer(v)).collect();
        let entry = (version, Rc::clone(&list));
        self.producers.borrow_mut().insert(node, entry);
        list
    }

    /// The answer to a question about two nodes, which is asked once as long as nothing is edited: each
    /// of their tensors leads to it.
    #[must_use]
    pub fn once(
        &self,
        question: Question,
        pair: (NodeId, NodeId),
        ask: impl FnOnce() -> bool,
    ) -> bool {
        let version = self.version();
        let key = (question, pair);
        if let Some(&(found, answer)) = self.answers.borrow().get(&key)
            && found == version
        {
            return answer;
        }
        let answer = ask();
        self.answers.borrow_mut().insert(key, (version, answer));
        answer
    }

    /// The direct producers of a node's inputs that are there, in order.
    pub fn producers(&self, node: NodeId) -> impl Iterator<Item = Anchor> + '_ {
        let graph = self.graph();
        let inputs = graph.nodes[node].inputs.iter().flatten();
        inputs.map(|&v| Anchor::of(graph, v))
    }

    /// Whether `first` has certainly ended when `last` starts, by edges of data and control between
    /// nodes of their own subgraph or, where they are of different ones, of what runs them.
    #[must_use]
    pub fn is_before(&self, first: NodeId, last: NodeId) -> bool {
        let graph = self.graph();
        let Some((first, last)) = side_by_side(graph, first, last) else {
            return false;
        };
        let subgraph = graph.nodes[first].subgraph;
        let from = self.position[first];
        let mut seen = FxHashSet::default();
        let mut stack = vec![last];
        while let Some(node) = stack.pop() {
            for n in self.needs(node) {
                if n == first {
                    return true;
                }
                let here = graph.nodes[n].subgraph == subgraph;
                if here && self.position[n] >= from && seen.insert(n) {
                    stack.push(n);
                }
            }
        }
        false
    }

    /// What a node does to memory. Passes ask slot by slot, so of nodes with many slots it is
    /// remembered.
    #[must_use]
    pub fn effects(&self, node: NodeId) -> Rc<Effects> {
        let of = || Rc::new(self.table.effects(self.graph(), node));
        let n = &self.graph().nodes[node];
        if n.inputs.len() + n.outputs.len() <= FEW_SLOTS {
            return of();
        }
        let version = self.version();
        let mut known = self.effects.borrow_mut();
        match known.get(&node) {
            Some((dated, effects)) if *dated == version => Rc::clone(effects),
            _ => {
                let effects = of();
                known.insert(node, (version, Rc::clone(&effects)));
                effects
            }
        }
    }

    /// Whether a node writes its input `i` in place, so that others see it.
    #[must_use]
    pub fn updates(&self, node: NodeId, i: u32) -> bool {
        let effects = self.effects(node);
        effects.refs.iter().any(|alias| alias.input == i)
    }

    /// The bytes that a copy of a value moves.
    #[must_use]
    pub fn bytes(&self, anchor: Anchor) -> Option<u64> {
        let graph = self.graph();
        graph.bytes(anchor.value(graph)?)
    }
}

fn missing(graph: &Graph, reader: NodeId) -> GuardError {
    GuardError::Malformed {
        at: format!("node {:?}", graph.node_label(reader)),
        problem: "an input that must be copied is not there".to_owned(),
    }
}

/// Whether an anchor's tensor has a dimension that is not known.
#[must_use]
pub fn has_unknown_size(graph: &Graph, anchor: Anchor) -> bool {
    let unknown = |value: ValueId| match &graph.values[value].shape {
        Some(shape) => shape.known().is_none(),
        None => true,
    };
    let stated = match anchor.slot {
        Slot::In(i) => graph.nodes[anchor.node].input_attrs.get(i as usize),
        Slot::Out(_) => None,
    };
    let stated = stated.and_then(|attrs| attrs.ints("shape"));
    match stated {
        Some(shape) => shape.iter().any(|&d| d < 0),
        None => anchor.value(graph).is_some_and(unknown),
    }
}

/// The two nodes of one subgraph that are, or run, the given ones; `None` where one runs the other,
/// or both are run by one node.
#[must_use]
pub fn side_by_side(graph: &Graph, one: NodeId, other: NodeId) -> Option<(NodeId, NodeId)> {
    let owner = |n: NodeId| graph.subgraphs[graph.nodes[n].subgraph].owner;
    let depth = |n: NodeId| graph.depth(graph.nodes[n].subgraph);
    let (mut one, mut other) = (one, other);
    let (mut high, mut low) = (depth(one), depth(other));
    while high > low {
        one = owner(one)?;
        high -= 1;
    }
    while low > high {
        other = owner(other)?;
        low -= 1;
    }
    while graph.nodes[one].subgraph != graph.nodes[other].subgraph {
        one = owner(one)?;
        other = owner(other)?;
    }
    (one != other).then_some((one, other))
}

/// A node and all that `next` leads to from it, over nodes that `allowed` allows.
fn reach<N: Iterator<Item = NodeId>>(
    from: NodeId,
    allowed: impl Fn(NodeId) -> bool,
    next: impl Fn(NodeId) -> N,
) -> FxHashSet<NodeId> {
    let mut seen = FxHashSet::from_iter([from]);
    let mut stack = vec![from];
    while let Some(node) = stack.pop() {
        for n in next(node) {
            if allowed(n) && seen.insert(n) {
                stack.push(n);
            }
        }
    }
    seen
}
