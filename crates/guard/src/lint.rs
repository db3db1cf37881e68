//! Lint: what a program's author should know about shared memory before anything is edited.
//!
//! Accesses to one memory are followed through views and references and into branches and
//! partitions. Two of which one writes must be in a certain order: by edges of data and control,
//! not by their place in the file and not by their stream. All hits are reported, by name.
//!
//! Where all accesses stand in one order, as many checks as accesses show it; pairs are gone
//! through only where that fails.

use rustc_hash::{FxHashMap, FxHashSet};
use tenure_graph::control::result_index;
use tenure_graph::effects::{OpClass, OpTable, Trait};
use tenure_graph::entity::SecondaryMap;
use tenure_graph::{Dim, Graph, NodeId, SubgraphId, ValueId};

use crate::layout::attributes::flag;
use crate::read_write::INPUT_MUTABLE;
use crate::storage::{outer_input, reference};
use crate::work::{Work, side_by_side};

/// At most so many hits of one memory are reported.
const MAX_HITS: usize = 1000;

/// What is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Code {
    /// Two accesses to one memory, of which one writes, are in no order.
    UnorderedAccess,
    /// A value is overwritten by a node that does not wait for a later reader.
    OverwriteBeforeRead,
    /// A node writes a constant.
    ConstantWritten,
    /// A collective changes an input that others read.
    CollectiveInputWritten,
    /// One memory is two results.
    SameMemoryTwoOutputs,
    /// A dimension has no upper bound, so the value cannot be planned.
    UnboundedDimension,
    /// A body and the node that runs it give one value two shapes.
    ShapeMismatch,
}

impl Code {
    /// Every code.
    pub const ALL: [Code; 7] = [
        Code::UnorderedAccess,
        Code::OverwriteBeforeRead,
        Code::ConstantWritten,
        Code::CollectiveInputWritten,
        Code::SameMemoryTwoOutputs,
        Code::UnboundedDimension,
        Code::ShapeMismatch,
    ];

    /// The stable name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Code::UnorderedAccess => "W18888",
            Code::OverwriteBeforeRead => "overwrite-before-read",
            Code::ConstantWritten => "constant-written",
            Code::CollectiveInputWritten => "collective-input-written",
            Code::SameMemoryTwoOutputs => "same-memory-two-outputs",
            Code::UnboundedDimension => "unbounded-dimension",
            Code::ShapeMismatch => "shape-mismatch",
        }
    }

    /// What it means and what to do.
    #[must_use]
    pub const fn explanation(self) -> &'static str {
        match self {
            Code::UnorderedAccess => {
                "Two nodes use one memory and one of them writes, but neither waits for the other. \
                 Add a control edge, or let one work on a copy."
            }
            Code::OverwriteBeforeRead => {
                "A node writes over a value that a later node still reads. The value is copied for \
                 one of them; let the reader come first to save the copy."
            }
            Code::ConstantWritten => {
                "A node writes where a constant lies: the next run would read something else. It \
                 is given a copy; use a variable if the change is meant."
            }
            Code::CollectiveInputWritten => {
                "A collective leaves garbage in an input that others read. It is given a copy; let \
                 the others read first to save it."
            }
            Code::SameMemoryTwoOutputs => {
                "One value is two results of the program, so whoever writes one result writes both."
            }
            Code::UnboundedDimension => {
                "A dimension has no upper bound, so the value has no place in a plan. Give the \
                 dimension, or a bound."
            }
            Code::ShapeMismatch => {
                "A body declares a value with another shape than the node that runs it. One of the \
                 two is wrong."
            }
        }
    }
}

/// One thing to be told.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hit {
    /// What it is.
    pub code: Code,
    /// The labels of the nodes involved.
    pub nodes: Vec<String>,
    /// In words.
    pub message: String,
}

/// Everything that is to be told of a program, each once, sorted by code and names.
#[must_use]
pub fn run(graph: &Graph, table: &OpTable) -> Vec<Hit> {
    let mut lint = Lint {
        graph,
        work: Work::new(graph, table),
        hits: Vec::new(),
    };
    for group in lint.groups() {
        lint.accesses(&group);
    }
    lint.results();
    lint.dimensions();
    lint.borders();
    lint.hits.sort();
    lint.hits.dedup();
    lint.hits
}

struct Lint<'a> {
    graph: &'a Graph,
    work: Work<'a>,
    hits: Vec<Hit>,
}

/// One use of a memory.
#[derive(Clone, Copy)]
struct Access {
    node: NodeId,
    /// Writes, in whatever way.
    writes: bool,
    /// Writes what nobody else may see.
    inside: bool,
}

impl Lint<'_> {
    fn hit(&mut self, code: Code, nodes: &[NodeId], message: String) {
        let nodes = nodes.iter().map(|&n| self.graph.node_label(n)).collect();
        self.hits.push(Hit {
            code,
            nodes,
            message,
        });
    }

    /// Values that are one memory by views, references and what is handed into branches and
    /// partitions; the first is where the memory comes from.
    fn groups(&self) -> Vec<Vec<ValueId>> {
        let (graph, table) = (self.graph, self.work.table);
        let mut origin: SecondaryMap<ValueId, Option<ValueId>> = SecondaryMap::new();
        let mut groups: Vec<Vec<ValueId>> = Vec::new();
        let mut group_of: FxHashMap<ValueId, usize> = FxHashMap::default();
        for node in crate::storage::in_order(graph, graph.root) {
            for (o, value) in (0u32..).zip(&graph.nodes[node].outputs) {
                let Some(value) = *value else { continue };
                let source = match table.class(graph, node) {
                    OpClass::Input => outer_input(graph, table, node)
                        .filter(|&(owner, _)| {
                            let class = table.class(graph, owner);
                            matches!(class, OpClass::Branch | OpClass::Call)
                        })
                        .and_then(|(owner, i)| graph.nodes[owner].input(i as usize)),
                    OpClass::While => None,
                    _ => reference(graph, table, node, o)
                        .and_then(|i| graph.nodes[node].input(i as usize)),
                };
                let first = source.and_then(|s| origin[s]).unwrap_or(value);
                origin[value] = Some(first);
                let group = *group_of.entry(first).or_insert_with(|| {
                    groups.push(Vec::new());
                    groups.len() - 1
                });
                groups[group].push(value);
            }
        }
        groups
    }

    /// The uses of a memory, in order of execution.
    fn uses(&self, group: &[ValueId]) -> Vec<Access> {
        let (graph, table) = (self.graph, self.work.table);
        let mut uses = Vec::new();
        for &value in group {
            for &(node, i) in self.work.users(value) {
                let class = table.class(graph, node);
                let handed_in = matches!(class, OpClass::Branch | OpClass::Call)
                    && !graph.nodes[node].bodies.is_empty();
                // The results are taken when everything else is done.
                let is_result = class == OpClass::Output;
                if handed_in || is_result || table.traits(graph, node).has(Trait::Hint) {
                    continue;
                }
                let inside = flag(&graph.nodes[node].attrs, INPUT_MUTABLE);
                let writes = inside || self.work.updates(node, i);
                if writes || !self.is_view(node, i) {
                    uses.push(Access {
                        node,
                        writes,
                        inside,
                    });
                }
            }
        }
        uses.sort_by_key(|u| (self.work.position(u.node), !u.writes));
        uses.dedup_by_key(|u| u.node);
        uses
    }

    /// Whether a node does nothing but give an input another name.
    fn is_view(&self, node: NodeId, i: u32) -> bool {
        let (graph, table) = (self.graph, self.work.table);
        let outputs = (0u32..).zip(&graph.nodes[node].outputs);
        let mut outputs = outputs.filter(|(_, value)| value.is_some());
        outputs.any(|(o, _)| reference(graph, table, node, o) == Some(i))
    }

    fn accesses(&mut self, group: &[ValueId]) {
        let graph = self.graph;
        let Some(&first) = group.first() else { return };
        let uses = self.uses(group);
        let source = graph.values[first].producer;
        let class = self.work.table.class(graph, source);
        for writer in uses.iter().filter(|u| u.writes) {
            if class == OpClass::Constant {
                let message = format!(
                    "{} writes the constant {}",
                    graph.node_label(writer.node),
                    graph.node_label(source)
                );
                self.hit(Code::ConstantWritten, &[writer.node, source], message);
            }
        }
        if uses.len() < 2 || !uses.iter().any(|u| u.writes) {
            return;
        }
        if !self.is_one_order(&uses) {
            self.pairs(&uses);
        }
        self.late_readers(&uses, source, class == OpClass::Variable);
    }

    /// Whether every writer is in order with the one before it and with all that stands between.
    fn is_one_order(&self, uses: &[Access]) -> bool {
        let ordered = |a: &Access, b: &Access| self.work.is_before(a.node, b.node);
        let mut last_writer: Option<usize> = None;
        for (at, this) in uses.iter().enumerate() {
            if let Some(writer) = last_writer
                && !ordered(&uses[writer], this)
            {
                return false;
            }
            if this.writes {
                let from = last_writer.map_or(0, |w| w + 1);
                if !uses[from..at].iter().all(|before| ordered(before, this)) {
                    return false;
                }
                last_writer = Some(at);
            }
        }
        true
    }

    /// All pairs of which one writes and that are in no order.
    fn pairs(&mut self, uses: &[Access]) {
        let graph = self.graph;
        let mut seen: FxHashSet<(NodeId, NodeId)> = FxHashSet::default();
        for (at, writer) in uses.iter().enumerate().filter(|(_, u)| u.writes) {
            for (other_at, other) in uses.iter().enumerate() {
                if other.writes && other_at <= at || seen.len() >= MAX_HITS {
                    continue;
                }
                let beside = side_by_side(graph, writer.node, other.node);
                let Some((one, two)) = beside else { continue };
                let ordered = self.work.is_before(one, two) || self.work.is_before(two, one);
                if ordered || !seen.insert((one.min(two), one.max(two))) {
                    continue;
                }
                let message = format!(
                    "{} writes memory that {} uses, and neither waits for the other",
                    graph.node_label(one),
                    graph.node_label(two)
                );
                self.hit(Code::UnorderedAccess, &[one, two], message);
            }
        }
    }

    /// Readers of a value that stand after a writer and need not have read before it.
    fn late_readers(&mut self, uses: &[Access], source: NodeId, is_state: bool) {
        let graph = self.graph;
        if is_state {
            return;
        }
        let mut hits = 0;
        for (at, writer) in uses.iter().enumerate().filter(|(_, u)| u.writes) {
            let value = self.read_by(writer.node, uses);
            let later = uses[at + 1..].iter().filter(|u| u.node != writer.node);
            let late = later.filter(|u| self.read_by(u.node, uses) == value);
            let late: Vec<NodeId> = late.map(|u| u.node).collect();
            let late: Vec<NodeId> = (late.into_iter())
                .filter(|&reader| !self.work.is_before(reader, writer.node))
                .take(MAX_HITS.saturating_sub(hits))
                .collect();
            hits += late.len();
            if writer.inside && !late.is_empty() {
                let message = format!(
                    "{} leaves garbage in what {} made and others read",
                    graph.node_label(writer.node),
                    graph.node_label(source)
                );
                self.hit(
                    Code::CollectiveInputWritten,
                    &[writer.node, source],
                    message,
                );
            } else {
                for reader in late {
                    let message = format!(
                        "{} writes over what {} still reads",
                        graph.node_label(writer.node),
                        graph.node_label(reader)
                    );
                    self.hit(Code::OverwriteBeforeRead, &[writer.node, reader], message);
                }
            }
        }
    }

    /// The version of the memory that a node reads: its last writer among the uses, if the node
    /// reads that writer's own output; otherwise what was there first.
    fn read_by(&self, node: NodeId, uses: &[Access]) -> Option<NodeId> {
        let graph = self.graph;
        let writers: FxHashSet<NodeId> = uses.iter().filter(|u| u.writes).map(|u| u.node).collect();
        let read = graph.nodes[node].inputs.iter().flatten();
        let mut versions = read.map(|&value| {
            let mut value = value;
            loop {
                let made = &graph.values[value];
                if writers.contains(&made.producer) {
                    return Some(made.producer);
                }
                let input = reference(graph, self.work.table, made.producer, made.output);
                match input.and_then(|i| graph.nodes[made.producer].input(i as usize)) {
                    Some(next) => value = next,
                    None => return None,
                }
            }
        });
        // The oldest version that it reads is the one in danger.
        if versions.any(|v| v.is_none()) {
            return None;
        }
        let read = graph.nodes[node].inputs.iter().flatten();
        let producers = read.map(|&v| graph.values[v].producer);
        producers
            .filter(|p| writers.contains(p))
            .min_by_key(|&p| self.work.position(p))
    }

    /// Values that are two results of the program.
    fn results(&mut self) {
        let graph = self.graph;
        let Some(output) = graph.subgraphs[graph.root].output else {
            return;
        };
        let mut seen: FxHashSet<crate::storage::Anchor> = FxHashSet::default();
        for &value in graph.nodes[output].inputs.iter().flatten() {
            let made = self.work.real_producer(value);
            if !seen.insert(made) {
                let message = format!("{} is two results", made.label(graph));
                self.hit(Code::SameMemoryTwoOutputs, &[made.node], message);
            }
        }
    }

    /// Values of nodes that compute and whose size has no bound.
    fn dimensions(&mut self) {
        let graph = self.graph;
        for (id, value) in &graph.values {
            let class = self.work.table.class(graph, value.producer);
            let (Some(shape), Some(hints)) = (&value.shape, &value.hints) else {
                continue;
            };
            let unknown = shape
                .0
                .iter()
                .enumerate()
                .filter(|(_, d)| Dim::known(d).is_none());
            let mut bounds = unknown.map(|(i, _)| hints.shape_range.get(i));
            if class != OpClass::Input && bounds.any(|b| b.is_some_and(|b| b[1] < 0)) {
                let message = format!("{} has no greatest size", graph.value_label(id));
                self.hit(Code::UnboundedDimension, &[value.producer], message);
            }
        }
    }

    /// Inner inputs and results whose shape is not that of the outer value.
    fn borders(&mut self) {
        let graph = self.graph;
        let table = self.work.table;
        let bodies: Vec<(SubgraphId, NodeId)> = (graph.subgraphs.iter())
            .filter_map(|(id, s)| Some((id, s.owner?)))
            .collect();
        for (body, owner) in bodies {
            let class = table.class(graph, owner);
            if !matches!(class, OpClass::Branch | OpClass::Call | OpClass::While) {
                continue;
            }
            for &data in &graph.subgraphs[body].inputs {
                let outer = outer_input(graph, table, data);
                let outer = outer.and_then(|(o, i)| graph.nodes[o].input(i as usize));
                self.same_shape(data, graph.nodes[data].output(0), outer);
            }
            let is_condition = crate::storage::is_condition(graph, table, body);
            let Some(output) = graph.subgraphs[body].output.filter(|_| !is_condition) else {
                continue;
            };
            for (i, &value) in graph.nodes[output].inputs.iter().enumerate() {
                let outer = graph.nodes[owner].output(result_index(graph, Some(output), i));
                if let Some(value) = value {
                    self.same_shape(graph.values[value].producer, Some(value), outer);
                }
            }
        }
    }

    fn same_shape(&mut self, node: NodeId, inner: Option<ValueId>, outer: Option<ValueId>) {
        let graph = self.graph;
        let shape = |v: Option<ValueId>| graph.values[v?].shape.as_ref()?.known();
        if let (Some(inner), Some(outer)) = (shape(inner), shape(outer))
            && inner != outer
        {
            let label = graph.node_label(node);
            let message = format!("{label} says {inner:?}, outside it is {outer:?}");
            self.hit(Code::ShapeMismatch, &[node], message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::graph;

    fn told(lines: &str) -> String {
        let graph = graph(lines);
        let hits = run(&graph, &OpTable::builtin(graph.dialect));
        let line = |h: &Hit| format!("{} {}\n", h.code.name(), h.nodes.join(" "));
        hits.iter().map(line).collect()
    }

    #[test]
    fn names_of_codes_are_one_to_one() {
        let names: FxHashSet<&str> = Code::ALL.iter().map(|c| c.name()).collect();
        assert_eq!(names.len(), Code::ALL.len());
    }

    #[test]
    fn accesses_in_no_order() {
        let variable = "%v: float32[4] = Variable()\n";
        let cases = [
            (
                "%w: float32[4] <ref_input = 0> = Assign(%v)\n%r: float32[4] = Relu(%v)",
                "W18888 w r\n",
            ),
            (
                "%w: float32[4] <ref_input = 0> = Assign(%v)\n%r: float32[4] = Relu(%v) after @w",
                "",
            ),
            (
                "%s: float32[4] <reuse_input = 0> = Reshape(%v)\n%r: float32[4] = Relu(%s)\n%w: float32[4] <ref_input = 0> = Assign(%v)",
                "W18888 w r\n",
            ),
            (
                "%r: float32[4] = Relu(%v)\n%y: float32[4] = If(%v)\n  then ^t {\n    %d: float32[4] = Data()\n    %w: float32[4] <ref_input = 0> = Assign(%d)\n    NetOutput(%w) @results\n  }",
                "W18888 y r\n",
            ),
            ("%a: float32[4] = Relu(%v)\n%b: float32[4] = Relu(%v)", ""),
        ];
        for (lines, expected) in cases {
            assert_eq!(told(&format!("{variable}{lines}")), expected, "{lines}");
        }
    }

    #[test]
    fn what_is_overwritten_and_what_has_no_size() {
        let cases = [
            (
                "%x: float32[4] = Relu()\n%w: float32[4] <ref_input = 0> = AddInplace(%x)\n%r: float32[4] = Mul(%x, %w)",
                "overwrite-before-read w r\n",
            ),
            (
                "%k: float32[4] = Const()\n%w: float32[4] <ref_input = 0> = AddInplace(%k)",
                "constant-written w k\n",
            ),
            (
                "%x: float32[4] = Relu()\n%c: float32[4] = HcomAllReduce(%x) {_input_mutable = true}\n%r: float32[4] = Mul(%x, %c)",
                "collective-input-written c x\n",
            ),
            (
                "%x: float32[4] = Relu()\nNetOutput(%x, %x) @results",
                "same-memory-two-outputs x\n",
            ),
            (
                "%x: float32[?, 4] <shape_range = [[1, -1], [4, 4]]> = Relu()",
                "unbounded-dimension x\n",
            ),
            (
                "%x: float32[4] = Relu()\n%y: float32[4] = PartitionedCall(%x)\n  partition ^p {\n    %d: float32[2] = Data()\n    %r: float32[4] = Relu(%d)\n    NetOutput(%r) @results\n  }",
                "shape-mismatch p/d\n",
            ),
        ];
        for (lines, expected) in cases {
            assert_eq!(told(lines), expected, "{lines}");
        }
    }
}
