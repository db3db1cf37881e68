//! Layer 2: who may write what another still reads, by the kind of output and the kind of input.
//!
//! Each output is, to those who read it, a constant, shared, nobody else's, or memory that is meant
//! to be written; each input reads, writes so that others see it, or writes for itself. A table says
//! for which two of these a copy must stand between them. What the inputs and outputs of subgraphs
//! are is found from the innermost outwards.
//!
//! Copies that stand for nothing but the value (`Identity`, `ReadVariableOp`) are divided among
//! their readers or taken out where the same table asks for none.

use rustc_hash::{FxHashMap, FxHashSet};
use tenure_graph::control::result_index;
use tenure_graph::effects::{OpClass, OpTable, Trait};
use tenure_graph::entity::EntityRef;
use tenure_graph::{Attr, Graph, NodeId, SubgraphId, ValueId};

use crate::Guarded;
use crate::error::GuardError;
use crate::finding::{Finding, Kind};
use crate::layout::attributes::flag;
use crate::options::Options;
use crate::state::{Writers, variable_of};
use crate::storage::{
    Anchor, in_order, is_condition, outer_input, reference, result_of, source_of,
};
use crate::work::{CANNOT_BE_DELETED, Work};

const STAGE: &str = "read-write";

pub use tenure_graph::effects::demands::INPUT_MUTABLE;

/// Attribute of an input that is given more memory than its tensor takes, and is shifted about.
const SPECIAL_INPUT_SIZE: &str = "_special_input_size";

/// What an output is to those who read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputType {
    /// Never to be written.
    Constant,
    /// Read by several.
    Shared,
    /// Read by one, who may do with it what it likes.
    Sole,
    /// Memory that is meant to be written: a variable, the caller's input, a reference to one.
    Writeable,
}

/// What a node does to an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum InputType {
    /// It reads.
    Reads,
    /// It writes, and whoever reads the memory afterwards is meant to see it.
    Writes,
    /// It writes, and nobody else may see it.
    WritesInside,
}

/// Whether a copy must stand between an output and an input. Two writers in one subgraph of which
/// one works for itself are as strict as that one.
#[must_use]
pub const fn needs_copy(output: OutputType, input: InputType) -> bool {
    use InputType::{Reads, Writes, WritesInside};
    use OutputType::{Constant, Shared, Sole, Writeable};
    match (output, input) {
        //           Reads              Writes             WritesInside
        (Constant, Reads) => false,
        (Constant, Writes | WritesInside) => true,
        (Shared, Reads | Writes) => false,
        (Shared, WritesInside) => true,
        (Sole, Reads | Writes | WritesInside) => false,
        (Writeable, Reads | Writes) => false,
        (Writeable, WritesInside) => true,
    }
}

/// Parts readers from writers.
///
/// # Errors
/// When an edit does not fit.
pub fn resolve(graph: &Graph, table: &OpTable, options: &Options) -> Result<Guarded, GuardError> {
    let mut pass = Pass::new(graph, table, options);
    pass.borders()?;
    for node in in_order(graph, graph.root) {
        pass.node(node)?;
    }
    pass.work.guarded(Kind::ReadWrite, STAGE, pass.findings)
}

/// What inputs and outputs of a program are, without an edit.
pub(crate) struct Types<'a>(Pass<'a>);

impl<'a> Types<'a> {
    /// Looks at a program.
    ///
    /// # Errors
    /// Never for a graph that holds its invariants.
    pub(crate) fn of(
        graph: &'a Graph,
        table: &'a OpTable,
        options: &'a Options,
    ) -> Result<Self, GuardError> {
        let mut pass = Pass::new(graph, table, options);
        pass.looks_only = true;
        pass.borders()?;
        Ok(Types(pass))
    }

    /// Whether a copy would have to stand between a value and an input.
    pub(crate) fn needs_copy(&self, value: ValueId, (node, i): (NodeId, u32)) -> bool {
        needs_copy(self.0.output_type(value), self.0.input_type(node, i))
    }

    /// What a node does to an input; one that was added since is a copy.
    pub(crate) fn input(&self, (node, i): (NodeId, u32)) -> InputType {
        if !self.0.graph.nodes.is_valid(node) {
            return InputType::Reads;
        }
        self.0.input_type(node, i)
    }

    /// Whether a node writes an input in some way.
    pub(crate) fn writes(&self, (node, i): (NodeId, u32)) -> bool {
        self.0.input_type(node, i) != InputType::Reads
    }
}

struct Pass<'a> {
    graph: &'a Graph,
    options: &'a Options,
    work: Work<'a>,
    /// What happens inside a node to its inputs.
    inner: FxHashMap<(NodeId, u32), InputType>,
    /// What the subgraphs of a node give as its outputs, in order.
    results: FxHashMap<(NodeId, u32), Vec<OutputType>>,
    /// Inputs of nodes with subgraphs that are plainly written inside.
    updated: FxHashSet<(NodeId, u32)>,
    /// Who writes state; of interest where the program must give what it says.
    writers: Writers,
    findings: Vec<Finding>,
    /// No copy is made.
    looks_only: bool,
}

impl<'a> Pass<'a> {
    fn new(graph: &'a Graph, table: &'a OpTable, options: &'a Options) -> Self {
        let work = Work::new(graph, table);
        let writers = options.exact.then(|| Writers::of(&work));
        Pass {
            graph,
            options,
            work,
            updated: FxHashSet::default(),
            writers: writers.unwrap_or_default(),
            inner: FxHashMap::default(),
            results: FxHashMap::default(),
            findings: Vec::new(),
            looks_only: false,
        }
    }

    /// The subgraphs, the innermost first.
    fn subgraphs(&self) -> Vec<SubgraphId> {
        let graph = self.graph;
        let mut all: Vec<SubgraphId> = graph.subgraphs.keys().collect();
        all.retain(|&s| s != graph.root);
        all.sort_by_key(|&s| std::cmp::Reverse((graph.depth(s), s.index())));
        all
    }

    fn is_loop_body(&self, subgraph: SubgraphId) -> bool {
        let owner = self.graph.subgraphs[subgraph].owner;
        owner.is_some_and(|o| self.work.table.class(self.graph, o) == OpClass::While)
    }

    /// What inputs and outputs of nodes with subgraphs are, and copies of results that another
    /// memory would reach.
    fn borders(&mut self) -> Result<(), GuardError> {
        let graph = self.graph;
        let subgraphs = self.subgraphs();
        for &subgraph in &subgraphs {
            for &data in &graph.subgraphs[subgraph].inputs {
                let outer = outer_input(graph, self.work.table, data);
                let value = graph.nodes[data].output(0);
                let (Some(outer), Some(value)) = (outer, value) else {
                    continue;
                };
                let (inside, is_updated) = self.deepest(value);
                if is_updated {
                    self.updated.insert(outer);
                }
                let all = self.inner.entry(outer).or_insert(InputType::Reads);
                *all = inside.max(*all);
            }
        }
        for &subgraph in &subgraphs {
            if !self.is_loop_body(subgraph) {
                self.results(subgraph)?;
            }
        }
        Ok(())
    }

    /// The strictest thing that happens to a value, under whatever name; and whether it is plainly
    /// written.
    fn deepest(&self, value: ValueId) -> (InputType, bool) {
        let graph = self.graph;
        let table = self.work.table;
        let mut deepest = InputType::Reads;
        let mut is_updated = false;
        let mut stack = vec![value];
        // A value has one name at a time, so none comes twice.
        while let Some(value) = stack.pop() {
            for &(node, i) in self.work.users(value) {
                let does = self.input_type(node, i);
                deepest = deepest.max(does);
                is_updated |= does == InputType::Writes || self.updated.contains(&(node, i));
                let outputs = (0u32..).zip(&graph.nodes[node].outputs);
                let names = outputs.filter(|&(o, _)| {
                    let handed_on = reference(graph, table, node, o)
                        .or_else(|| through_partition(graph, table, node, o));
                    does == InputType::Reads && handed_on == Some(i)
                });
                stack.extend(names.filter_map(|(_, made)| *made));
            }
        }
        (deepest, is_updated)
    }

    fn results(&mut self, subgraph: SubgraphId) -> Result<(), GuardError> {
        let graph = self.graph;
        let body = &graph.subgraphs[subgraph];
        let (Some(owner), Some(output)) = (body.owner, body.output) else {
            return Ok(());
        };
        for (i, value) in (0u32..).zip(&graph.nodes[output].inputs) {
            let Some(value) = *value else { continue };
            let index = result_index(graph, Some(output), i as usize);
            let Ok(index) = u32::try_from(index) else {
                continue;
            };
            let mut given = self.output_type(value);
            let leaves_as_it_is = match given {
                // Who writes in place is the last who uses that memory, once values are parted.
                OutputType::Writeable => self.options.exact || self.may_leave(owner, index),
                OutputType::Constant => !self.is_written(owner, index),
                OutputType::Shared | OutputType::Sole => true,
            };
            if !leaves_as_it_is {
                let harm = "what the branch gives back would be written as another's memory";
                self.copy((output, i), "branch-result-written", harm)?;
                given = OutputType::Sole;
            }
            self.results.entry((owner, index)).or_default().push(given);
        }
        Ok(())
    }

    /// Whether an output of a node with subgraphs can be the memory that one of them gives.
    fn may_leave(&self, owner: NodeId, index: u32) -> bool {
        let graph = self.graph;
        let node = &graph.nodes[owner];
        let Some(made) = node.output(index as usize) else {
            return true;
        };
        if self.work.table.class(graph, owner) == OpClass::Call {
            return true;
        }
        let others = node
            .bodies
            .iter()
            .filter_map(|b| result_of(graph, b.graph, index));
        if node.bodies.len() >= 2
            && others
                .into_iter()
                .any(|v| self.output_type(v) == OutputType::Shared)
        {
            return false;
        }
        self.work.users(made).iter().all(|&(user, i)| {
            graph.nodes[user].bodies.is_empty() && self.input_type(user, i) == InputType::Reads
        })
    }

    /// Whether somebody writes an output of a node.
    fn is_written(&self, owner: NodeId, index: u32) -> bool {
        let made = self.graph.nodes[owner].output(index as usize);
        let users = made.map(|v| self.work.users(v).iter());
        users.is_some_and(|mut u| u.any(|&(n, i)| self.input_type(n, i) != InputType::Reads))
    }

    /// What an output is to those who read it.
    fn output_type(&self, value: ValueId) -> OutputType {
        let graph = self.work.graph();
        let table = self.work.table;
        // A variable is one under each of its names, also behind borders and loops that keep it.
        if self.options.exact && variable_of(&self.work, value).is_some() {
            return OutputType::Writeable;
        }
        let mut value = value;
        // Each step goes out of a subgraph, so it ends.
        loop {
            let made = &graph.values[value];
            let id = made.producer;
            let node = &graph.nodes[id];
            let by_readers = match self.work.users(value).len() {
                0 | 1 => OutputType::Sole,
                _ => OutputType::Shared,
            };
            let class = table.class(graph, id);
            match class {
                OpClass::Variable => return OutputType::Writeable,
                OpClass::Constant => return OutputType::Constant,
                OpClass::While => return by_readers,
                OpClass::Input if graph.subgraphs[node.subgraph].owner.is_none() => {
                    return OutputType::Writeable;
                }
                OpClass::Input if self.is_loop_body(node.subgraph) => return by_readers,
                OpClass::Input => {
                    let outer = outer_input(graph, table, id);
                    let outer = outer.and_then(|(o, i)| graph.nodes[o].input(i as usize));
                    match outer {
                        Some(outer) if by_readers == OutputType::Shared => {
                            return match self.output_type(outer) {
                                OutputType::Sole => OutputType::Shared,
                                given => given,
                            };
                        }
                        Some(outer) => value = outer,
                        None => return by_readers,
                    }
                }
                _ if !node.bodies.is_empty() => {
                    let given = self.results.get(&(id, made.output));
                    let given = match given.map(Vec::as_slice) {
                        Some([one]) => *one,
                        _ => OutputType::Sole,
                    };
                    return match (given, by_readers) {
                        (OutputType::Writeable, _) => OutputType::Writeable,
                        (OutputType::Constant, _) => OutputType::Constant,
                        (_, by_readers) => by_readers,
                    };
                }
                _ => {
                    let effects = self.work.effects(id);
                    let writes = effects.refs.iter().any(|a| a.output == made.output);
                    if writes {
                        return OutputType::Writeable;
                    }
                    // Another name for a constant or variable is one, too.
                    let origin = self.work.real_producer(value).node;
                    return match table.class(graph, origin) {
                        OpClass::Constant => OutputType::Constant,
                        OpClass::Variable => OutputType::Writeable,
                        _ => by_readers,
                    };
                }
            }
        }
    }

    /// What a node does to an input.
    fn input_type(&self, id: NodeId, i: u32) -> InputType {
        let graph = self.work.graph();
        let table = self.work.table;
        let is_loop = table.class(graph, id) == OpClass::While;
        if is_loop && self.options.exact && self.keeps_state(id, i) {
            return InputType::Reads;
        }
        if is_loop || writes_inside(graph, id, i) {
            return InputType::WritesInside;
        }
        let node = &graph.nodes[id];
        if !node.bodies.is_empty() {
            let inside = self.inner.get(&(id, i)).copied();
            let inside = inside.unwrap_or(InputType::Reads);
            return match node.input(i as usize) {
                // A copy before the node would part what is inside from a state that is written there,
                // under this name or another; those inside who write for themselves get theirs there.
                Some(value) if self.options.exact && self.is_written_inside((id, i)) => {
                    match variable_of(&self.work, value) {
                        Some(_) => InputType::Writes,
                        None => inside,
                    }
                }
                _ => inside,
            };
        }
        if flag(&node.attrs, INPUT_MUTABLE) {
            InputType::WritesInside
        } else if self.work.updates(id, i) {
            InputType::Writes
        } else {
            InputType::Reads
        }
    }

    /// Whether somebody inside a node writes an input of it, or works on it as if it were his own.
    fn is_written_inside(&self, outer: (NodeId, u32)) -> bool {
        self.updated.contains(&outer) || self.inner.get(&outer) == Some(&InputType::WritesInside)
    }

    /// Whether a loop gives a state back as it was, and nobody inside writes it.
    fn keeps_state(&self, id: NodeId, i: u32) -> bool {
        let graph = self.work.graph();
        let table = self.work.table;
        let inside = self.inner.get(&(id, i)).copied();
        let bodies = graph.nodes[id].bodies.iter().map(|b| b.graph);
        let mut bodies = bodies.filter(|&s| !is_condition(graph, table, s));
        inside.is_none_or(|inside| inside == InputType::Reads)
            && bodies.all(|body| {
                let result = result_of(graph, body, i).map(|v| self.work.real_producer(v).node);
                let state = result.and_then(|n| outer_input(graph, table, n));
                state == Some((id, i))
            })
    }

    fn copy(
        &mut self,
        (reader, i): (NodeId, u32),
        rule: &'static str,
        harm: &str,
    ) -> Result<(), GuardError> {
        let graph = self.work.graph();
        let at = Anchor::input(reader, i);
        let Some(value) = at.value(graph).filter(|_| !self.looks_only) else {
            return Ok(());
        };
        let source = graph.values[value].producer;
        let name = format!("{}_Identity", graph.nodes[source].name);
        let finding = Finding {
            kind: Kind::ReadWrite,
            stage: STAGE,
            rule,
            at: at.label(graph),
            with: Anchor::of(graph, value).label(graph),
            harm: harm.to_owned(),
            repair: "copied".to_owned(),
            by: None,
            bytes: graph.bytes(value),
        };
        let copy = self.work.copy_before(reader, &[i], &name, harm)?;
        let finding = Finding {
            by: Some(self.work.graph().node_label(copy)),
            ..finding
        };
        self.findings.push(finding);
        Ok(())
    }

    fn node(&mut self, id: NodeId) -> Result<(), GuardError> {
        let (graph, table) = (self.graph, self.work.table);
        let node = &graph.nodes[id];
        let in_subgraph = node.subgraph != graph.root;
        let is_border = match table.class(graph, id) {
            OpClass::Input => in_subgraph && !self.is_loop_body(node.subgraph),
            OpClass::Output => in_subgraph,
            _ => false,
        };
        if is_border
            || is_condition(graph, table, node.subgraph)
            || flag(&node.attrs, CANNOT_BE_DELETED)
        {
            return self.part_state(id);
        }
        if table.traits(graph, id).has(Trait::Transparent)
            && node.outputs.len() == 1
            && node.inputs.len() <= 1
            && !(self.options.exact && self.writers.is_moment(&self.work, id))
        {
            self.divide(id)?;
            if !self.work.is_taken_out(id) && !self.is_useful(id) {
                self.work.take_out(id, "nobody writes what it copies")?;
            }
            if self.work.is_taken_out(id) {
                return Ok(());
            }
        }
        for o in 0..node.outputs.len() {
            if let Some(value) = node.output(o) {
                self.part(value)?;
            }
        }
        Ok(())
    }

    /// Parts what a branch does for itself from state that it is given and that is written in it: no
    /// copy stands before the branch then.
    fn part_state(&mut self, id: NodeId) -> Result<(), GuardError> {
        let outer = outer_input(self.graph, self.work.table, id);
        let value = self.graph.nodes[id].output(0);
        match (outer, value) {
            (Some(outer), Some(value))
                if self.options.exact
                    && self.is_written_inside(outer)
                    && variable_of(&self.work, value).is_some() =>
            {
                self.part(value)
            }
            _ => Ok(()),
        }
    }

    /// Gives each reader of a copy that writes a copy of its own, and lets all others read what is
    /// copied; but not where others wait for the copy.
    fn divide(&mut self, id: NodeId) -> Result<(), GuardError> {
        let graph = self.work.graph();
        let (Some(source), Some(made)) = (graph.nodes[id].input(0), graph.nodes[id].output(0))
        else {
            return Ok(());
        };
        let users = self.work.users(made).to_vec();
        if users.len() < 2 || !self.work.waiting(id).is_empty() {
            return Ok(());
        }
        let before = graph.nodes[id].control.to_vec();
        for user in users {
            if self.input_type(user.0, user.1) == InputType::Reads {
                let reason = "it only reads, so it needs no copy";
                self.work.redirect(user, source, reason)?;
                for &first in &before {
                    self.work.order(first, user.0, reason)?;
                }
            } else {
                let harm = "each writer needs a copy of its own";
                self.copy(user, "copy-shared-by-writers", harm)?;
            }
        }
        if self.work.users(made).is_empty() {
            self.work
                .take_out(id, "all its readers read what it copied")?;
        }
        Ok(())
    }

    /// Whether a copy must stay.
    fn is_useful(&self, id: NodeId) -> bool {
        let graph = self.work.graph();
        let table = self.work.table;
        let node = &graph.nodes[id];
        let (Some(source), Some(made)) = (node.input(0), node.output(0)) else {
            return true;
        };
        let users = self.work.users(made);
        let [(user, i)] = users else {
            return !users.is_empty();
        };
        let producer = graph.values[source].producer;
        let at_border = !graph.nodes[producer].bodies.is_empty()
            || !graph.nodes[*user].bodies.is_empty()
            || self.is_inner_end(producer)
            || self.is_inner_end(*user);
        table.traits(graph, *user).has(Trait::Merges)
            // Who copies it once more is the copy that stands at the border then.
            || at_border && !self.work.is_copy(*user)
            // It reads before somebody else writes: see the head of `passes/identity`.
            || !self.work.waiting(id).is_empty()
            || needs_copy(self.output_type(source), self.input_type(*user, *i))
    }

    /// Whether a node is input or result of a subgraph.
    fn is_inner_end(&self, node: NodeId) -> bool {
        let graph = self.work.graph();
        let inner = graph.nodes[node].subgraph != graph.root;
        let class = self.work.table.class(graph, node);
        inner && matches!(class, OpClass::Input | OpClass::Output)
    }

    /// Puts copies between an output and all who need one.
    fn part(&mut self, value: ValueId) -> Result<(), GuardError> {
        let users = self.work.users(value).to_vec();
        let output = self.output_type(value);
        let spared = self.spared(value, output, &users);
        for (n, &(user, i)) in users.iter().enumerate() {
            if spared && n + 1 == users.len() {
                continue;
            }
            let needs_copy = needs_copy(output, self.input_type(user, i))
                && !(output == OutputType::Shared && self.comes_last(user, &users));
            if needs_copy {
                let harm = match output {
                    OutputType::Constant => "a constant would be written",
                    _ => "it writes what others read",
                };
                self.copy((user, i), "reader-and-writer", harm)?;
            }
        }
        Ok(())
    }

    /// Whether all others have certainly read a value, under whatever name, when a node starts.
    fn comes_last(&self, node: NodeId, users: &[(NodeId, u32)]) -> bool {
        let graph = self.work.graph();
        let others = || users.iter().filter(|&&(n, _)| n != node);
        let hands_on = |&&(n, i): &&(NodeId, u32)| {
            let mut outputs = (0u32..).zip(&graph.nodes[n].outputs);
            outputs.any(|(o, v)| v.is_some() && reference(graph, self.work.table, n, o) == Some(i))
        };
        if others().count() + 1 != users.len() || others().any(|user| hands_on(&user)) {
            return false;
        }
        let first = others().map(|&(n, _)| self.work.position(n)).min();
        let before = self.work.ancestors(node, first.unwrap_or(0));
        others().all(|(n, _)| before.contains(n))
    }

    /// Whether the last reader may have the memory itself: all readers are one node that writes for
    /// itself, and nobody else can reach the memory.
    fn spared(&self, value: ValueId, output: OutputType, users: &[(NodeId, u32)]) -> bool {
        let Some(&(node, _)) = users.first() else {
            return false;
        };
        let one_node = users
            .iter()
            .all(|&(user, i)| user == node && self.input_type(user, i) == InputType::WritesInside);
        one_node
            && match output {
                OutputType::Shared => true,
                OutputType::Writeable => self.is_sole_path(value, node),
                OutputType::Constant | OutputType::Sole => false,
            }
    }

    /// Whether nobody else reaches the memory of a value when a reader starts, back to where it comes
    /// from: at each of its names all others have read it before.
    fn is_sole_path(&self, value: ValueId, reader: NodeId) -> bool {
        let graph = self.work.graph();
        let table = self.work.table;
        let (mut value, mut reader) = (value, reader);
        loop {
            let users = self.work.users(value);
            if users.len() != 1 && !self.comes_last(reader, users) {
                return false;
            }
            let made = &graph.values[value];
            match table.class(graph, made.producer) {
                OpClass::Variable | OpClass::Constant => return false,
                OpClass::Input => {
                    let subgraph = graph.nodes[made.producer].subgraph;
                    return subgraph == graph.root && self.options.inputs_donated;
                }
                _ => {}
            }
            match source_of(graph, table, value) {
                Some(source) => {
                    value = source;
                    let around = graph.around(made.producer, graph.home(source));
                    let inside = || graph.subgraphs[graph.home(source)].output;
                    reader = match around.or_else(inside) {
                        Some(next) => next,
                        None => return false,
                    };
                }
                None => return reference(graph, table, made.producer, made.output).is_none(),
            }
        }
    }
}

/// Whether an input is shifted about in memory of its own.
pub(crate) fn writes_inside(graph: &Graph, node: NodeId, i: u32) -> bool {
    let attrs = graph.nodes[node].input_attrs.get(i as usize);
    let size = attrs
        .and_then(|a| a.get(SPECIAL_INPUT_SIZE))
        .and_then(Attr::as_int);
    size.is_some_and(|size| size > 0)
}

/// The input of a partition that it hands through to an output.
fn through_partition(graph: &Graph, table: &OpTable, node: NodeId, o: u32) -> Option<u32> {
    if table.class(graph, node) != OpClass::Call {
        return None;
    }
    let body = graph.nodes[node].bodies.first()?.graph;
    let mut value = result_of(graph, body, o)?;
    // Up through names, and through partitions inside: each step goes to an earlier node.
    loop {
        let made = &graph.values[value];
        let up = reference(graph, table, made.producer, made.output)
            .or_else(|| through_partition(graph, table, made.producer, made.output));
        match up.and_then(|i| graph.nodes[made.producer].input(i as usize)) {
            Some(next) => value = next,
            None => break,
        }
    }
    let (owner, i) = outer_input(graph, table, graph.values[value].producer)?;
    (owner == node).then_some(i)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::Classes;
    use crate::testing::{graph, report};
    use tenure_graph::Dialect;

    #[test]
    fn each_cell_of_the_table() {
        use InputType::{Reads, Writes, WritesInside};
        use OutputType::{Constant, Shared, Sole, Writeable};
        let copies = [Constant, Shared, Sole, Writeable]
            .map(|output| [Reads, Writes, WritesInside].map(|input| needs_copy(output, input)));
        let expected = [
            [false, true, true],
            [false, false, true],
            [false, false, false],
            [false, false, true],
        ];
        assert_eq!(copies, expected);
    }

    #[test]
    fn who_comes_last_under_all_names_of_a_memory_may_have_it() {
        let program = |of: &str, order: &str| {
            format!(
                "%x: float32[4] = Data()\n%n: float32[4] = Neg(%x)\n%q: float32[4] = Relu(%n)\n\
                 %i: float32[4] <ref_input = 0> = InplaceAdd(%n, %x){order}\n{of}\
                 NetOutput(%h, %q) @results"
            )
        };
        let plain = "%h: float32[4] = HcomAllReduce(%i) {_input_mutable = true}\n";
        let inside = "%h: float32[4] = PartitionedCall(%i)\n  partition ^p {\n    \
                      %d: float32[4] = Data() {parent_index = 0}\n    \
                      %r: float32[4] = HcomAllReduce(%d) {_input_mutable = true}\n    \
                      NetOutput(%r) @results\n  }\n";
        for of in [plain, inside] {
            for (order, copies) in [(" after @q", 0), (" after @x", 1)] {
                let graph = graph(&program(of, order));
                let table = OpTable::builtin(Dialect::Ge);
                let done = resolve(&graph, &table, &Options::default()).unwrap();
                let found = done.findings.iter().filter(|f| f.by.is_some()).count();
                assert_eq!(found, copies, "{of}{order}: {:?}", done.findings);
            }
        }
    }

    #[test]
    fn who_works_on_a_variable_for_himself_inside_a_node_gets_a_copy() {
        let writers = [
            "%y: float32[4] = HcomAllReduce(%d) {_input_mutable = true} @w",
            "%y: float32[4] = Relu(%d) inputs [{_special_input_size = 64}] @w",
            "%y: float32[4] = While(%d) @w\n      cond ^m {\n        %a: float32[4] = Data()\n        \
             %q: bool[] = Less(%a)\n        NetOutput(%q) @results\n      }\n      body ^n {\n        \
             %a: float32[4] = Data()\n        %t: float32[4] = Relu(%a)\n        \
             NetOutput(%t) @results\n      }",
        ];
        let owners = [
            "%p: float32[4] = PartitionedCall(%v)\n  partition ^b {\n    \
             %d: float32[4] = Data() {parent_index = 0}\n    WRITER\n    NetOutput(RESULT) @results\n  }",
            "%c: bool[] = Data()\n%p: float32[4] = If(%c, %v)\n  then ^b {\n    \
             %d: float32[4] = Data() {parent_index = 1}\n    WRITER\n    NetOutput(RESULT) @results\n  }\n  \
             else ^e {\n    %d: float32[4] = Data() {parent_index = 1}\n    \
             %r: float32[4] = Relu(%d)\n    NetOutput(%r) @results\n  }",
        ];
        // What a partition hands on is the variable still.
        let handed_on = "%h: float32[4] = PartitionedCall(%v)\n  partition ^h {\n    \
                         %d: float32[4] = Data()\n    NetOutput(%d) @results\n  }\n";
        let owners = owners.map(str::to_owned);
        let behind = owners
            .clone()
            .map(|owner| handed_on.to_owned() + &owner.replace("%v)", "%h)"));
        let owners: Vec<String> = owners.into_iter().chain(behind).collect();
        let table = OpTable::builtin(Dialect::Ge);
        for (writer, owner) in writers
            .iter()
            .flat_map(|w| owners.iter().map(move |o| (w, o)))
        {
            for result in ["%d", "%y"] {
                let inside = owner.replace("WRITER", writer).replace("RESULT", result);
                let lines =
                    format!("%v: float32[4] = Variable()\n{inside}\nNetOutput(%p) @results");
                let graph = graph(&lines);
                let guarded = crate::compile::run(&graph, &table, &Options::of(&graph)).unwrap();
                let safe = guarded.graph(&graph);
                let node = |label: &str| {
                    let mut nodes = safe.nodes.keys();
                    nodes.find(|&n| safe.node_label(n) == label).unwrap()
                };
                let classes = Classes::build(safe, &table, safe.root).unwrap();
                let variable = Anchor::output(node("v"), 0);
                let written = Anchor::input(node("b/w"), 0);
                assert!(!classes.same(variable, written), "{lines}");
            }
        }
    }

    /// A loop that reads what was written, and the variable that was written: the copies that it
    /// works on hold what it would have found.
    #[test]
    fn a_copy_of_a_variable_comes_after_what_its_reader_comes_after() {
        let graph = graph(
            "%v: float32[4] = Variable()\n%x: float32[4] = Data()\n\
             %w: float32[4] <ref_input = 0> = Assign(%v, %x) @w\n\
             %a: float32[4], %b: float32[4] = While(%w, %v)\n  cond ^c {\n    \
             %s: float32[4] = Data()\n    %q: bool[] = Less(%s)\n    NetOutput(%q) @results\n  }\n  \
             body ^d {\n    %s: float32[4] = Data() {parent_index = 0}\n    \
             %t: float32[4] = Data() {parent_index = 1}\n    %m: float32[4] = Add(%s, %t)\n    \
             %n: float32[4] = Mul(%s, %t)\n    NetOutput(%m, %n) @results\n  }\n\
             NetOutput(%a, %b) @results",
        );
        let table = OpTable::builtin(Dialect::Ge);
        let guarded = crate::compile::run(&graph, &table, &Options::of(&graph)).unwrap();
        let safe = guarded.graph(&graph);
        let work = Work::new(safe, &table);
        let mut nodes = safe.nodes.keys();
        let writer = nodes.find(|&n| safe.node_label(n) == "w").unwrap();
        let copies = safe.subgraphs[safe.root].nodes.iter().copied();
        let copies: Vec<NodeId> = copies.filter(|&n| work.is_copy(n)).collect();
        assert!(!copies.is_empty());
        for copy in copies {
            assert!(work.is_before(writer, copy), "{}", safe.node_label(copy));
        }
    }

    #[test]
    fn copies_where_the_table_asks_for_them() {
        let cases = [
            (
                "a reader and a collective",
                "%x: float32[4] = Relu()\n%r: float32[4] = Relu(%x)\n%c: float32[4] = HcomAllReduce(%x) {_input_mutable = true}",
            ),
            (
                "the same when the reader is certain to come first",
                "%x: float32[4] = Relu()\n%r: float32[4] = Relu(%x)\n%c: float32[4] = HcomAllReduce(%x) {_input_mutable = true} after @r",
            ),
            (
                "a constant under another name is written",
                "%k: float32[4] = Const()\n%s: float32[4] <reuse_input = 0> = Reshape(%k)\n%w: float32[4] <ref_input = 0> = AddInplace(%s)",
            ),
            (
                "both inputs of one collective",
                "%x: float32[4] = Relu()\n%c: float32[4] = HcomAllReduce(%x, %x) {_input_mutable = true}",
            ),
            (
                "a copy among readers goes, but not where others wait for it",
                "%x: float32[4] = Relu()\n%i: float32[4] = Identity(%x)\n%a: float32[4] = Relu(%i)\n%b: float32[4] = Relu(%i)\n%j: float32[4] = Identity(%x)\n%c: float32[4] = Relu(%j)\n%d: float32[4] = Relu() after @j",
            ),
            (
                "a write inside a partition",
                "%k: float32[4] = Const()\n%y: float32[4] = PartitionedCall(%k)\n  partition ^p {\n    %d: float32[4] = Data()\n    %w: float32[4] <ref_input = 0> = AddInplace(%d)\n    NetOutput(%w) @results\n  }",
            ),
        ];
        insta::assert_snapshot!(report(resolve, &Options::default(), &cases));
    }
}
