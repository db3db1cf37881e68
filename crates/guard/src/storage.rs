//! Storage classes: which anchors live in one memory.
//!
//! Anchors share memory through edges, references and views, the borders of subgraphs in both
//! directions, the state of loops, and merges. A class is the list of its anchors in the order in
//! which a walk over the program meets them, and the links that hold it together, so that whoever
//! wants it parted can tell what a copy at a given place parts.
//!
//! Two lists are joined by appending the shorter to the longer one, so that all classes of a
//! program take time in proportion to `n log n`.

use rustc_hash::FxHashMap;
use std::ops::Range;
use tenure_graph::control::{input_index, result_index};
use tenure_graph::effects::{OpClass, OpTable, Trait};
use tenure_graph::patch::Slot;
use tenure_graph::{Graph, NodeId, SubgraphId, ValueId};

use crate::error::GuardError;

/// One input or output slot of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Anchor {
    /// The node.
    pub node: NodeId,
    /// Which of its slots.
    pub slot: Slot,
}

impl Anchor {
    /// Input `i` of a node.
    #[must_use]
    pub const fn input(node: NodeId, i: u32) -> Self {
        let slot = Slot::In(i);
        Anchor { node, slot }
    }

    /// Output `o` of a node.
    #[must_use]
    pub const fn output(node: NodeId, o: u32) -> Self {
        let slot = Slot::Out(o);
        Anchor { node, slot }
    }

    /// The anchor that makes a value.
    #[must_use]
    pub fn of(graph: &Graph, value: ValueId) -> Self {
        let value = &graph.values[value];
        Anchor::output(value.producer, value.output)
    }

    /// Whether it is an output.
    #[must_use]
    pub const fn is_output(self) -> bool {
        matches!(self.slot, Slot::Out(_))
    }

    /// The value that is read or made here; `None` where the slot is left out.
    #[must_use]
    pub fn value(self, graph: &Graph) -> Option<ValueId> {
        let node = &graph.nodes[self.node];
        match self.slot {
            Slot::In(i) => node.input(i as usize),
            Slot::Out(o) => node.output(o as usize),
        }
    }

    /// In words: `output 0 of "relu"`.
    #[must_use]
    pub fn label(self, graph: &Graph) -> String {
        format!("{} of {:?}", self.slot, graph.node_label(self.node))
    }
}

/// Why two anchors are one memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joint {
    /// The second reads what the first makes. A copy can stand here.
    Edge,
    /// The second is the first by nature: a reference, the border of a subgraph, a merge.
    Fixed,
}

/// A joint of two members of a class.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// One end, as an index into [`Classes::anchors`]; of an edge the producer.
    pub from: usize,
    /// The other end; of an edge the reader.
    pub to: usize,
    /// What joins them.
    pub joint: Joint,
}

/// The storage classes of one subgraph and everything below it.
#[derive(Clone, Debug, Default)]
pub struct Classes {
    /// All anchors, in the order of the walk.
    pub anchors: Vec<Anchor>,
    /// The classes, each a list of indexes into `anchors` in the order in which it grew. Sorted by
    /// first member; lists that were appended to others are gone.
    pub lists: Vec<Vec<usize>>,
    /// For each anchor its class and its place in the list; `None` where it has no memory.
    place: Vec<Option<(usize, usize)>>,
    /// For each class its links.
    links: Vec<Vec<Link>>,
    first: FxHashMap<NodeId, (usize, usize)>,
}

impl Classes {
    /// The classes of `top` and everything below it.
    ///
    /// # Errors
    /// [`GuardError::Malformed`] where reference data does not say what it stands for, or an output
    /// has two homes.
    pub fn build(graph: &Graph, table: &OpTable, top: SubgraphId) -> Result<Self, GuardError> {
        let order = in_order(graph, top);
        let mut builder = Builder::new(graph, table, top, &order);
        for &node in &order {
            builder.inputs(node);
            builder.outputs(node)?;
        }
        Ok(builder.done())
    }

    /// The class that an anchor belongs to.
    #[must_use]
    pub fn class_of(&self, anchor: Anchor) -> Option<usize> {
        Some(self.place[self.index(anchor)?]?.0)
    }

    /// The links inside a class.
    #[must_use]
    pub fn links(&self, class: usize) -> &[Link] {
        self.links.get(class).map_or(&[], Vec::as_slice)
    }

    /// The place of a member, given as an index into [`Classes::anchors`], in its class's list.
    #[must_use]
    pub fn place_of(&self, index: usize) -> Option<usize> {
        Some((*self.place.get(index)?)?.1)
    }

    /// The index of an anchor in [`Classes::anchors`].
    #[must_use]
    pub fn index(&self, anchor: Anchor) -> Option<usize> {
        let &(inputs, outputs) = self.first.get(&anchor.node)?;
        let index = match anchor.slot {
            Slot::In(i) => inputs + i as usize,
            Slot::Out(o) => outputs + o as usize,
        };
        (self.anchors.get(index) == Some(&anchor)).then_some(index)
    }

    /// Whether both anchors have memory and it is the same.
    #[must_use]
    pub fn same(&self, a: Anchor, b: Anchor) -> bool {
        self.class_of(a)
            .is_some_and(|class| self.class_of(b) == Some(class))
    }
}

/// The classes of a program with what lies beside each anchor, to be looked at body by body.
#[derive(Default)]
pub(crate) struct Joined {
    classes: Classes,
    /// For each anchor those that it is joined to.
    beside: Vec<Vec<usize>>,
}

impl Joined {
    /// Joins the anchors of a whole program.
    ///
    /// # Errors
    /// Those of [`Classes::build`].
    pub(crate) fn of(graph: &Graph, table: &OpTable) -> Result<Self, GuardError> {
        let classes = Classes::build(graph, table, graph.root)?;
        let mut beside = vec![Vec::new(); classes.anchors.len()];
        for link in classes.links.iter().flatten() {
            beside[link.from].push(link.to);
            beside[link.to].push(link.from);
        }
        Ok(Joined { classes, beside })
    }

    /// The classes that some anchors of a body have by what is in it and below it alone.
    pub(crate) fn within(
        &self,
        graph: &Graph,
        body: SubgraphId,
        anchors: impl IntoIterator<Item = Anchor>,
    ) -> Within<'_> {
        let mut within = Within {
            classes: &self.classes,
            inside: self.places(graph, body),
            class_of: FxHashMap::default(),
            lists: Vec::new(),
        };
        for anchor in anchors {
            let start = self.classes.index(anchor);
            let Some(start) = start.filter(|m| !within.class_of.contains_key(m)) else {
                continue;
            };
            let class = within.lists.len();
            let mut list = vec![start];
            within.class_of.insert(start, class);
            let mut next = 0;
            while let Some(&here) = list.get(next) {
                next += 1;
                for &there in &self.beside[here] {
                    let is_new = !within.class_of.contains_key(&there);
                    if is_new && within.inside.contains(&there) {
                        within.class_of.insert(there, class);
                        list.push(there);
                    }
                }
            }
            within.lists.push(list);
        }
        within
    }

    /// The places of the anchors of a body and of all below it, which stand together.
    fn places(&self, graph: &Graph, body: SubgraphId) -> Range<usize> {
        let nodes = &graph.subgraphs[body].nodes;
        let (Some(first), Some(&last)) = (nodes.first(), nodes.last()) else {
            return 0..0;
        };
        let start = self.classes.first.get(first).map_or(0, |place| place.0);
        let mut last = last;
        // The last node of the last body that has any comes last.
        loop {
            let mut bodies = graph.nodes[last].bodies.iter().rev();
            let inner = bodies.find_map(|b| graph.subgraphs[b.graph].nodes.last());
            match inner {
                Some(&inner) => last = inner,
                None => break,
            }
        }
        let end = self.classes.first.get(&last).map_or(start, |place| place.1);
        start..end + graph.nodes[last].outputs.len()
    }
}

/// Classes of a body, as far as they were asked for.
pub(crate) struct Within<'a> {
    classes: &'a Classes,
    inside: Range<usize>,
    class_of: FxHashMap<usize, usize>,
    lists: Vec<Vec<usize>>,
}

impl Within<'_> {
    /// The class of an anchor.
    pub(crate) fn class_of(&self, anchor: Anchor) -> Option<usize> {
        self.class_of.get(&self.classes.index(anchor)?).copied()
    }

    /// The members of a class.
    pub(crate) fn members(&self, class: usize) -> impl Iterator<Item = Anchor> + '_ {
        self.lists[class].iter().map(|&m| self.classes.anchors[m])
    }

    /// Whether an anchor is of the body or below it.
    pub(crate) fn holds(&self, anchor: Anchor) -> bool {
        let index = self.classes.index(anchor);
        index.is_some_and(|m| self.inside.contains(&m))
    }
}

/// The nodes of a subgraph, each directly followed by those of the subgraphs that it runs.
#[must_use]
pub fn in_order(graph: &Graph, top: SubgraphId) -> Vec<NodeId> {
    let mut order = Vec::new();
    let mut stack = vec![graph.subgraphs[top].nodes.iter()];
    while let Some(nodes) = stack.last_mut() {
        let Some(&node) = nodes.next() else {
            stack.pop();
            continue;
        };
        order.push(node);
        let bodies = graph.nodes[node].bodies.iter().rev();
        stack.extend(bodies.map(|b| graph.subgraphs[b.graph].nodes.iter()));
    }
    order
}

/// The input whose memory output `output` of a node is; `None` where the output has its own.
#[must_use]
pub fn reference(graph: &Graph, table: &OpTable, node: NodeId, output: u32) -> Option<u32> {
    let slots = &graph.nodes[node];
    let by_nature = match table.class(graph, node) {
        OpClass::While => Some(output),
        _ if output == 0 && table.traits(graph, node).has(Trait::Relabels) => Some(0),
        _ => None,
    };
    let stated = || {
        let hints = graph.values[slots.output(output as usize)?]
            .hints
            .as_ref()?;
        hints.ref_input.or(hints.reuse_input)
    };
    let input = by_nature.or_else(stated)?;
    ((input as usize) < slots.inputs.len()).then_some(input)
}

/// Which input of its subgraph's owner a node stands for; `None` for all others.
#[must_use]
pub fn outer_input(graph: &Graph, table: &OpTable, node: NodeId) -> Option<(NodeId, u32)> {
    let subgraph = &graph.subgraphs[graph.nodes[node].subgraph];
    let owner = subgraph.owner?;
    let stated = graph.nodes[node].attrs.int("parent_index");
    let index = match stated {
        Some(_) if table.traits(graph, node).has(Trait::CallerMemory) => {
            input_index(graph, node, usize::MAX)
        }
        _ if table.class(graph, node) == OpClass::Input => {
            let position = subgraph.inputs.iter().position(|&n| n == node)?;
            input_index(graph, node, position)
        }
        _ => return None,
    };
    let index = u32::try_from(index).ok()?;
    ((index as usize) < graph.nodes[owner].inputs.len()).then_some((owner, index))
}

/// The value that becomes output `index` of a subgraph's owner.
pub(crate) fn result_of(graph: &Graph, subgraph: SubgraphId, index: u32) -> Option<ValueId> {
    let output = graph.subgraphs[subgraph].output?;
    let inputs = &graph.nodes[output].inputs;
    let is_it = |&i: &usize| result_index(graph, Some(output), i) == index as usize;
    // Mostly results stand in order.
    let here = Some(index as usize).filter(|i| *i < inputs.len() && is_it(i));
    inputs[here.or_else(|| (0..inputs.len()).find(is_it))?]
}

/// The value made before it whose memory a value is: what a reference, view or loop names, what a
/// branch or partition is given, what is inside a partition. A loop's inner states begin anew.
pub(crate) fn source_of(graph: &Graph, table: &OpTable, value: ValueId) -> Option<ValueId> {
    let made = &graph.values[value];
    let id = made.producer;
    let bodies = &graph.nodes[id].bodies;
    let (node, i) = match (table.class(graph, id), bodies.first()) {
        (OpClass::Input, _) => {
            let outer = outer_input(graph, table, id)?;
            let class = table.class(graph, outer.0);
            matches!(class, OpClass::Branch | OpClass::Call).then_some(outer)?
        }
        (OpClass::Call, Some(body)) => return result_of(graph, body.graph, made.output),
        _ => (id, reference(graph, table, id, made.output)?),
    };
    graph.nodes[node].input(i as usize)
}

/// Whether a node's one subgraph of this id decides whether a loop goes on.
pub(crate) fn is_condition(graph: &Graph, table: &OpTable, subgraph: SubgraphId) -> bool {
    let Some(owner) = graph.subgraphs[subgraph].owner else {
        return false;
    };
    let mut bodies = graph.nodes[owner].bodies.iter();
    table.class(graph, owner) == OpClass::While
        && bodies.any(|b| b.graph == subgraph && b.is_condition())
}

/// Whether values pass between a node and its subgraphs by position, so that both sides are one
/// memory.
fn passes_by_memory(class: OpClass) -> bool {
    matches!(class, OpClass::Branch | OpClass::Call | OpClass::While)
}

/// A walk that grows classes.
struct Builder<'a> {
    graph: &'a Graph,
    table: &'a OpTable,
    top: SubgraphId,
    anchors: Vec<Anchor>,
    first: FxHashMap<NodeId, (usize, usize)>,
    class_of: Vec<Option<usize>>,
    lists: Vec<Vec<usize>>,
    links: Vec<Link>,
    /// Nodes that stand for an input of an owner, with that input.
    outer: FxHashMap<NodeId, (NodeId, u32)>,
    /// Nodes by name, for attributes that name a node; reference data only.
    named: FxHashMap<(SubgraphId, &'a str), NodeId>,
}

impl<'a> Builder<'a> {
    fn new(graph: &'a Graph, table: &'a OpTable, top: SubgraphId, order: &[NodeId]) -> Self {
        let mut builder = Builder {
            graph,
            table,
            top,
            anchors: Vec::new(),
            first: FxHashMap::default(),
            class_of: Vec::new(),
            lists: Vec::new(),
            links: Vec::new(),
            outer: FxHashMap::default(),
            named: FxHashMap::default(),
        };
        for &id in order {
            let node = &graph.nodes[id];
            if node.subgraph != top {
                let owner = graph.subgraphs[node.subgraph].owner;
                let by_memory = owner.is_some_and(|o| passes_by_memory(table.class(graph, o)));
                if by_memory && let Some(outer) = outer_input(graph, table, id) {
                    builder.outer.insert(id, outer);
                }
            }
            builder.named.insert((node.subgraph, &node.name), id);
            // A node that stands for an outer input reads it.
            let inputs = node
                .inputs
                .len()
                .max(usize::from(builder.outer.contains_key(&id)));
            let first_input = builder.anchors.len();
            let slots = (0u32..).take(inputs).map(|i| Anchor::input(id, i));
            builder.anchors.extend(slots);
            let first_output = builder.anchors.len();
            let slots = (0u32..)
                .zip(&node.outputs)
                .map(|(o, _)| Anchor::output(id, o));
            builder.anchors.extend(slots);
            builder.first.insert(id, (first_input, first_output));
        }
        builder.class_of = vec![None; builder.anchors.len()];
        builder
    }

    fn input(&self, node: NodeId, i: u32) -> Option<usize> {
        let &(first, end) = self.first.get(&node)?;
        let index = first + i as usize;
        (index < end).then_some(index)
    }

    fn output(&self, node: NodeId, o: u32) -> Option<usize> {
        let &(_, first) = self.first.get(&node)?;
        let index = first + o as usize;
        let anchor = self.anchors.get(index)?;
        (*anchor == Anchor::output(node, o)).then_some(index)
    }

    /// The output that feeds an input, if it lies in the part of the graph that is looked at.
    fn feeder(&self, node: NodeId, i: u32) -> Option<usize> {
        let value = self.graph.nodes[node].input(i as usize)?;
        let value = &self.graph.values[value];
        self.output(value.producer, value.output)
    }

    fn start(&mut self, anchor: usize) -> usize {
        let class = self.lists.len();
        self.lists.push(vec![anchor]);
        self.class_of[anchor] = Some(class);
        class
    }

    fn append(&mut self, class: usize, anchor: usize) {
        if self.class_of[anchor].is_none() {
            self.lists[class].push(anchor);
            self.class_of[anchor] = Some(class);
        }
    }

    /// Joins `anchor` to the class of `with`; a class of its own where that has none.
    fn join(&mut self, with: usize, anchor: usize, joint: Joint) {
        self.links.push(Link {
            from: with,
            to: anchor,
            joint,
        });
        let class = self.class_of[with].unwrap_or_else(|| self.start(with));
        match self.class_of[anchor] {
            None => self.append(class, anchor),
            Some(other) => {
                self.unite(class, other);
            }
        }
    }

    /// Joins two classes: the longer list survives, of equal ones the second.
    fn unite(&mut self, one: usize, other: usize) -> usize {
        if one == other {
            return one;
        }
        let (from, to) = if self.lists[one].len() > self.lists[other].len() {
            (other, one)
        } else {
            (one, other)
        };
        let moved = std::mem::take(&mut self.lists[from]);
        for &anchor in &moved {
            self.class_of[anchor] = Some(to);
        }
        self.lists[to].extend(moved);
        to
    }

    fn inputs(&mut self, node: NodeId) {
        let (graph, table) = (self.graph, self.table);
        if let Some(&(owner, index)) = self.outer.get(&node) {
            let (Some(here), Some(there)) = (self.input(node, 0), self.input(owner, index)) else {
                return;
            };
            if graph.nodes[owner].input(index as usize).is_some() {
                self.join(there, here, Joint::Fixed);
            }
            return;
        }
        let subgraph = graph.nodes[node].subgraph;
        let merges = table.traits(graph, node).has(Trait::Merges);
        let result_of = (graph.subgraphs[subgraph].output == Some(node) && subgraph != self.top)
            .then(|| graph.subgraphs[subgraph].owner)
            .flatten()
            .filter(|&owner| passes_by_memory(table.class(graph, owner)))
            .filter(|_| !is_condition(graph, table, subgraph));
        if merges {
            self.merge_inputs(node);
            return;
        }
        for i in 0..graph.nodes[node].inputs.len() {
            let Ok(slot) = u32::try_from(i) else { break };
            let Some(here) = self.input(node, slot) else {
                break;
            };
            let feeder = self.feeder(node, slot);
            let outer = result_of.and_then(|owner| {
                let index = result_index(graph, Some(node), i);
                self.output(owner, u32::try_from(index).ok()?)
            });
            if let (Some(feeder), Some(outer)) = (feeder, outer) {
                let class = self.class_of[feeder].unwrap_or_else(|| self.start(feeder));
                let other = self.class_of[outer].unwrap_or_else(|| self.start(outer));
                let class = self.unite(class, other);
                self.append(class, here);
                self.link(feeder, here, Joint::Edge);
                self.link(here, outer, Joint::Fixed);
            } else if let Some(feeder) = feeder {
                self.join(feeder, here, Joint::Edge);
            } else {
                self.start(here);
            }
        }
    }

    fn link(&mut self, from: usize, to: usize, joint: Joint) {
        self.links.push(Link { from, to, joint });
    }

    /// All inputs of a merge are one memory.
    fn merge_inputs(&mut self, node: NodeId) {
        let graph = self.graph;
        let slots = (0u32..).zip(&graph.nodes[node].inputs);
        let slots: Vec<(usize, Option<usize>)> = slots
            .filter_map(|(i, _)| Some((self.input(node, i)?, self.feeder(node, i))))
            .collect();
        let classes = slots
            .iter()
            .filter_map(|&(_, feeder)| self.class_of[feeder?]);
        let classes: Vec<usize> = classes.collect();
        // The first of the longest lists takes in all others.
        let longest = classes
            .iter()
            .rev()
            .max_by_key(|&&c| self.lists[c].len())
            .copied();
        let mut whole = longest;
        for class in classes {
            let class = self
                .lists
                .get(class)
                .filter(|l| !l.is_empty())
                .map(|_| class);
            if let (Some(one), Some(class)) = (whole, class) {
                whole = Some(self.unite(class, one));
            }
        }
        let next = graph.nodes[node].attrs.str("_next_iteration_node");
        let next = next.and_then(|name| self.named.get(&(graph.nodes[node].subgraph, name)));
        let next = next.and_then(|&n| self.output(n, 0));
        let mut previous = None;
        for (here, feeder) in slots {
            let source = feeder.or(next);
            let class = match whole {
                Some(class) => {
                    self.append(class, here);
                    class
                }
                None => self.class_of[here].unwrap_or_else(|| self.start(here)),
            };
            whole = Some(class);
            if let Some(source) = source {
                match self.class_of[source] {
                    None => self.append(class, source),
                    Some(other) => whole = Some(self.unite(other, class)),
                }
                let joint = if feeder.is_some() {
                    Joint::Edge
                } else {
                    Joint::Fixed
                };
                self.link(source, here, joint);
            }
            if let Some(previous) = previous.replace(here) {
                self.link(previous, here, Joint::Fixed);
            }
        }
    }

    fn outputs(&mut self, id: NodeId) -> Result<(), GuardError> {
        let graph = self.graph;
        let node = &graph.nodes[id];
        for o in (0u32..).take(node.outputs.len()) {
            let Some(here) = self.output(id, o) else {
                break;
            };
            if self.class_of[here].is_some() {
                continue;
            }
            let home = self
                .home_of_reference_data(id)?
                .or_else(|| self.named_home(id, o));
            let reference = if self.outer.contains_key(&id) {
                (o == 0).then_some(0)
            } else {
                reference(graph, self.table, id, o)
            };
            let reference = reference.and_then(|i| self.input(id, i));
            match (home, reference) {
                (Some(home), Some(input)) if self.class_of[home] != self.class_of[input] => {
                    return Err(GuardError::Malformed {
                        at: Anchor::output(id, o).label(graph),
                        problem: format!(
                            "it is said to live in {} and in {}, which are two memories",
                            self.anchors[home].label(graph),
                            self.anchors[input].label(graph)
                        ),
                    });
                }
                (Some(home), _) => self.join(home, here, Joint::Fixed),
                (None, Some(input)) => self.join(input, here, Joint::Fixed),
                (None, None) => {
                    self.start(here);
                }
            }
        }
        Ok(())
    }

    /// Reference data of a subgraph is the memory of the input node that it waits for.
    fn home_of_reference_data(&self, id: NodeId) -> Result<Option<usize>, GuardError> {
        let (graph, table) = (self.graph, self.table);
        let node = &graph.nodes[id];
        let is_reference_data = table.class(graph, id) == OpClass::Variable
            && table.traits(graph, id).has(Trait::CallerMemory);
        if !is_reference_data || node.subgraph == self.top || self.outer.contains_key(&id) {
            return Ok(None);
        }
        let data = node.control.iter().find(|&n| self.outer.contains_key(n));
        match data.and_then(|&n| self.output(n, 0)) {
            Some(home) => Ok(Some(home)),
            None => Err(GuardError::Malformed {
                at: format!("node {:?}", graph.node_label(id)),
                problem: "reference data of a subgraph waits for no input of it, so it is not \
                          known whose memory it is"
                    .to_owned(),
            }),
        }
    }

    /// The reference data that an output says it writes.
    fn named_home(&self, id: NodeId, o: u32) -> Option<usize> {
        let graph = self.graph;
        let value = graph.nodes[id].output(o as usize)?;
        let name = graph.values[value]
            .hints
            .as_ref()?
            .attrs
            .str(SOURCE_VARIABLE)?;
        let node = *self.named.get(&(graph.nodes[id].subgraph, name))?;
        let traits = self.table.traits(graph, node);
        let is_reference_data =
            self.table.class(graph, node) == OpClass::Variable && traits.has(Trait::CallerMemory);
        let home = self.output(node, 0)?;
        // A name that points ahead, or at the node itself, says nothing yet.
        (is_reference_data && self.class_of[home].is_some()).then_some(home)
    }

    fn done(self) -> Classes {
        let mut lists: Vec<(usize, Vec<usize>)> = (self.lists.into_iter().enumerate())
            .filter(|(_, list)| !list.is_empty())
            .collect();
        lists.sort_by_key(|(_, list)| list.iter().min().copied());
        let mut place = vec![None; self.anchors.len()];
        for (class, (_, list)) in lists.iter().enumerate() {
            for (at, &anchor) in list.iter().enumerate() {
                place[anchor] = Some((class, at));
            }
        }
        let mut links = vec![Vec::new(); lists.len()];
        for link in self.links {
            if let Some((class, _)) = place[link.to] {
                links[class].push(link);
            }
        }
        Classes {
            anchors: self.anchors,
            lists: lists.into_iter().map(|(_, list)| list).collect(),
            place,
            links,
            first: self.first,
        }
    }
}

/// Attribute of an output that names the variable whose memory it writes.
pub const SOURCE_VARIABLE: &str = "ref_var_src_var_name";

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_graph::{Dialect, text};

    /// The classes of a graph in text form, each as its members' labels.
    fn classes(graph: &str) -> Vec<String> {
        let graph = text::parse(graph).unwrap();
        let table = OpTable::builtin(Dialect::Ge);
        let classes = Classes::build(&graph, &table, graph.root).unwrap();
        let label = |&m: &usize| {
            let Anchor { node, slot } = classes.anchors[m];
            let slot = match slot {
                Slot::In(i) => format!("<{i}"),
                Slot::Out(o) => format!(">{o}"),
            };
            format!("{}{slot}", graph.node_label(node))
        };
        let line = |list: &Vec<usize>| list.iter().map(label).collect::<Vec<_>>().join(" ");
        classes.lists.iter().map(line).collect()
    }

    #[test]
    fn edges_and_views_join_and_fresh_outputs_do_not() {
        let classes = classes(
            "model m ge\ngraph ^g {\n  %x: float32[4] = Data()\n  %a: float32[4] = Relu(%x)\n  \
             %b: float32[2, 2] = Reshape(%a)\n  NetOutput(%b) @results\n}\n",
        );
        assert_eq!(classes, ["x>0 a<0", "a>0 b<0 b>0 results<0"]);
    }

    #[test]
    fn a_loop_keeps_a_state_in_one_memory_and_its_condition_elsewhere() {
        let classes = classes(
            "model m ge\ngraph ^g {\n  %x: float32[4] = Data()\n  %w: float32[4] = While(%x)\n    \
             cond ^c {\n      %s: float32[4] = Data()\n      %p: bool[] = Less(%s)\n      \
             NetOutput(%p) @results\n    }\n    body ^b {\n      %s: float32[4] = Data()\n      \
             %t: float32[4] = Relu(%s)\n      NetOutput(%t) @results\n    }\n  \
             NetOutput(%w) @results\n}\n",
        );
        let state = "x>0 w<0 w>0 c/s<0 c/s>0 c/p<0 b/s<0 b/s>0 b/t<0 b/t>0 b/results<0 results<0";
        assert_eq!(classes, [state, "c/p>0 c/results<0"]);
    }

    #[test]
    fn all_branches_write_one_result() {
        let classes = classes(
            "model m ge\ngraph ^g {\n  %c: bool[] = Data()\n  %x: float32[4] = If(%c)\n    \
             then ^t {\n      %a: float32[4] = Const()\n      NetOutput(%a) @results\n    }\n    \
             else ^e {\n      %b: float32[4] = Const()\n      NetOutput(%b) @results\n    }\n  \
             NetOutput(%x) @results\n}\n",
        );
        assert_eq!(
            classes,
            [
                "c>0 x<0",
                "x>0 t/a>0 t/results<0 e/b>0 e/results<0 results<0"
            ]
        );
    }
}
