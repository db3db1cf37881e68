//! Lint: what a program's author should know about shared memory before anything is edited.
//!
//! Accesses to one memory are followed through views, references and what is joined or cut in place,
//! into branches, loops and partitions, and out of partitions. Two of which one writes must be in a certain order: by edges
//! of data and control, not by their place in the file and not by their stream. All hits are
//! reported, by name; of a memory or a program that has very many, the rest is counted.

mod code;
mod memories;
mod order;

use rustc_hash::FxHashMap;
use rustc_hash::FxHashSet;
use tenure_graph::control::result_index;
use tenure_graph::effects::{OpClass, OpTable};
use tenure_graph::{Dim, Graph, NodeId, SubgraphId, ValueId};

pub use code::{Code, Level};

use crate::finding::Kind;
use crate::storage::outer_input;
use crate::witness::Step;
use crate::work::{Work, side_by_side};
use memories::{Access, Memories, Memory};

/// At most so many hits of one memory are reported.
const MAX_HITS: usize = 1000;

/// At most so many hits of a program are reported.
const MAX_ALL: usize = 100_000;

/// At most so many pairs of one memory are looked at for readers that come too late.
const MAX_LOOKS: usize = 1_000_000;

/// One thing to be told.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hit {
    /// What it is.
    pub code: Code,
    /// The labels of the nodes involved.
    pub nodes: Vec<String>,
    /// What kind of danger it is.
    pub kind: Kind,
    /// In words.
    pub message: String,
    /// A shortest schedule that goes wrong, without what its steps need before them; empty where
    /// the fault is none of order.
    pub witness: Vec<Step>,
}

/// What the lint has to tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The hits, each once, sorted by code and names.
    pub hits: Vec<Hit>,
    /// How many more there are.
    pub left_out: u64,
}

/// Everything that is to be told of a program.
#[must_use]
pub fn run(graph: &Graph, table: &OpTable) -> Report {
    let mut lint = Lint {
        graph,
        work: Work::new(graph, table),
        report: Report::default(),
    };
    let known = Memories::new(graph, table);
    let memories = known.all(&lint.work);
    let open = lint.unordered(&memories);
    for (number, memory) in memories.iter().enumerate() {
        lint.constant(memory);
        lint.late_readers(memory, &known, |pair| open.contains(&(number, pair)));
    }
    lint.results();
    lint.dimensions();
    lint.borders();
    let mut report = lint.report;
    report.hits.sort();
    report.hits.dedup();
    report
}

struct Lint<'a> {
    graph: &'a Graph,
    work: Work<'a>,
    report: Report,
}

impl Lint<'_> {
    fn hit(&mut self, code: Code, nodes: &[NodeId], message: String, witness: Vec<Step>) {
        self.hit_of_kind(code, code.kind(), nodes, message, witness);
    }

    fn hit_of_kind(
        &mut self,
        code: Code,
        kind: Kind,
        nodes: &[NodeId],
        message: String,
        witness: Vec<Step>,
    ) {
        if self.report.hits.len() >= MAX_ALL {
            self.report.left_out += 1;
            return;
        }
        let nodes = nodes.iter().map(|&n| self.graph.node_label(n)).collect();
        self.report.hits.push(Hit {
            code,
            nodes,
            kind,
            message,
            witness,
        });
    }

    fn step(&self, node: NodeId, does: impl Into<String>) -> Step {
        Step {
            node: self.graph.node_label(node),
            does: does.into(),
        }
    }

    fn source(&self, memory: &Memory) -> NodeId {
        self.graph.values[memory.first].producer
    }

    /// Writers of a constant.
    fn constant(&mut self, memory: &Memory) {
        let graph = self.graph;
        let source = self.source(memory);
        if self.work.table.class(graph, source) != OpClass::Constant {
            return;
        }
        let mut writers: Vec<NodeId> = memory
            .uses
            .iter()
            .filter(|u| u.writes)
            .map(|u| u.node)
            .collect();
        writers.dedup();
        let left_out = writers.len().saturating_sub(MAX_HITS);
        self.report.left_out += left_out as u64;
        for writer in writers.into_iter().take(MAX_HITS) {
            let label = graph.node_label(source);
            let message = format!("{} writes the constant {label}", graph.node_label(writer));
            let witness = vec![
                self.step(writer, format!("writes where {label} lies")),
                self.step(
                    writer,
                    format!("in the next run reads what it wrote, not {label}"),
                ),
            ];
            self.hit(Code::ConstantWritten, &[writer, source], message, witness);
        }
    }

    /// Accesses in no order; gives the pairs, each with the number of its memory. Of two writers the
    /// first by name is named first, wherever they stand in the file.
    fn unordered(&mut self, memories: &[Memory]) -> FxHashSet<(usize, (NodeId, NodeId))> {
        let graph = self.graph;
        let found = order::unordered(graph, &self.work, memories, MAX_HITS as u64);
        self.report.left_out += found.left_out;
        let mut open = FxHashSet::default();
        for pair in found.pairs {
            let (mut writer, mut other) = (pair.writer, pair.other);
            open.extend([(writer, other), (other, writer)].map(|two| (pair.memory, two)));
            let mut names = [writer, other].map(|n| graph.node_label(n));
            if pair.both_write && names[1] < names[0] {
                names.reverse();
                (writer, other) = (other, writer);
            }
            let streams = [writer, other].map(|n| graph.nodes[n].stream);
            let (kind, on) = match streams {
                [Some(one), Some(two)] if one != two => {
                    let on = format!(" (streams {} and {})", one.as_u32(), two.as_u32());
                    (Kind::StreamLifetime, on)
                }
                _ => (Kind::ReadWrite, String::new()),
            };
            let verb = if pair.both_write {
                "writes, too"
            } else {
                "uses"
            };
            let message = format!(
                "{} writes memory that {} {verb}, and neither waits for the other{on}",
                names[0], names[1]
            );
            let witness = self.either_order(&memories[pair.memory], writer, other, pair.both_write);
            let nodes = [writer, other];
            self.hit_of_kind(Code::UnorderedAccess, kind, &nodes, message, witness);
        }
        open
    }

    /// The order that is not the file's, and what comes of it.
    fn either_order(
        &self,
        memory: &Memory,
        writer: NodeId,
        other: NodeId,
        both_write: bool,
    ) -> Vec<Step> {
        let graph = self.graph;
        let name = graph.value_label(memory.first);
        let [w, r] = [writer, other].map(|n| graph.node_label(n));
        let writes = self.step(writer, format!("writes in the memory of {name}"));
        if both_write {
            let first = self.step(other, format!("writes in the memory of {name}"));
            let last = Step {
                does: format!("writes over what {r} wrote; the other way round, {r} writes last"),
                ..writes
            };
            return vec![first, last];
        }
        if self.work.position(writer) < self.work.position(other) {
            let reads =
                format!("reads {name} before {w} writes it; the other way round, what {w} wrote");
            vec![self.step(other, reads), writes]
        } else {
            let reads = format!("reads what {w} wrote; the other way round, what was there before");
            vec![writes, self.step(other, reads)]
        }
    }

    /// Readers of a value that come after a writer of its memory and mean what was there before; those
    /// that are in no order with it only where it leaves garbage. Who reads a variable means what was last written, so nobody
    /// is late there.
    fn late_readers(
        &mut self,
        memory: &Memory,
        known: &Memories<'_>,
        is_open: impl Fn((NodeId, NodeId)) -> bool,
    ) {
        let graph = self.graph;
        let source = self.source(memory);
        let writers: FxHashSet<NodeId> = memory
            .uses
            .iter()
            .filter(|u| u.writes)
            .map(|u| u.node)
            .collect();
        if writers.is_empty() || self.work.table.class(graph, source) == OpClass::Variable {
            return;
        }
        let mut names = FxHashMap::default();
        let mut versions: FxHashMap<Option<NodeId>, usize> = FxHashMap::default();
        let mut readers: Vec<Vec<Access>> = Vec::new();
        for &access in &memory.uses {
            let version = known.version(memory, access.value, |n| writers.contains(&n), &mut names);
            let at = *versions.entry(version).or_insert_with(|| {
                readers.push(Vec::new());
                readers.len() - 1
            });
            readers[at].push(access);
        }
        let (mut hits, mut looks) = (0, 0);
        for same in &readers {
            for (at, writer) in same.iter().enumerate().filter(|(_, u)| u.writes) {
                // What a node may leave garbage in is to be read before.
                let from = if writer.inside { 0 } else { at + 1 };
                let others = same.iter().enumerate().skip(from);
                let others =
                    others.filter(|(_, u)| u.node != writer.node && !(u.around && writer.around));
                let mut late = Vec::new();
                for (place, reader) in others {
                    looks += 1;
                    // What is in two branches of one node never meets.
                    let pair = side_by_side(graph, writer.node, reader.node);
                    let is_late = pair.is_some_and(|pair| match is_open(pair) {
                        true => writer.inside,
                        false => place > at,
                    });
                    if !is_late || late.last() == Some(&reader.node) {
                        continue;
                    }
                    if hits + late.len() >= MAX_HITS || looks > MAX_LOOKS {
                        self.report.left_out += 1;
                        continue;
                    }
                    late.push(reader.node);
                }
                if writer.inside {
                    // One is enough, the same wherever they stand.
                    let first = late.into_iter().min_by_key(|&n| graph.node_label(n));
                    late = first.into_iter().collect();
                }
                hits += late.len();
                for reader in late {
                    self.late(memory, writer, reader, source);
                }
                if looks > MAX_LOOKS {
                    return;
                }
            }
        }
    }

    fn late(&mut self, memory: &Memory, writer: &Access, reader: NodeId, source: NodeId) {
        let graph = self.graph;
        let name = graph.value_label(writer.value);
        let [from, w, r] = [source, writer.node, reader].map(|n| graph.node_label(n));
        let makes = format!("makes {}", graph.value_label(memory.first));
        let (verb, wrong) = match writer.inside {
            true => ("leaves garbage in", "the garbage that"),
            false => ("writes over", "what"),
        };
        let witness = vec![
            self.step(source, makes),
            self.step(writer.node, format!("{verb} {name}")),
            self.step(reader, format!("reads {wrong} {w} left there")),
        ];
        if writer.inside {
            let message = format!("{w} leaves garbage in what {from} made and {r} still reads");
            let nodes = [writer.node, source];
            self.hit(Code::CollectiveInputWritten, &nodes, message, witness);
        } else {
            let message = format!("{w} writes over what {r} still reads");
            let nodes = [writer.node, reader];
            self.hit(Code::OverwriteBeforeRead, &nodes, message, witness);
        }
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
                self.hit(
                    Code::SameMemoryTwoOutputs,
                    &[made.node],
                    message,
                    Vec::new(),
                );
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
                self.hit(
                    Code::UnboundedDimension,
                    &[value.producer],
                    message,
                    Vec::new(),
                );
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
            self.hit(Code::ShapeMismatch, &[node], message, Vec::new());
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
        hits.hits.iter().map(line).collect()
    }

    /// `c` is `a` and `b` one behind the other, without a copy.
    const JOINED: &str = "%x: float32[4] = Data()\n%a: float32[4] = Relu(%x)\n\
                          %b: float32[4] = Relu(%x)\n\
                          %c: float32[8] = ConcatD(%a, %b) {_no_padding_continuous_input = true, \
                          _no_task = true, _output_reuse_input = true}\n";

    #[test]
    fn what_is_joined_in_place_is_each_of_its_pieces() {
        let late = |lines: &str| told(&format!("{JOINED}{lines}"));
        let whole_over = "%w: float32[8] <ref_input = 0> = AddInplace(%c)\n";
        let piece_over = "%w: float32[4] <ref_input = 0> = AddInplace(%b)";
        assert_eq!(
            late(&format!("{whole_over}%r: float32[4] = Relu(%b) after @w")),
            "overwrite-before-read w r\n"
        );
        assert_eq!(
            late(&format!("{whole_over}%r: float32[4] = Relu(%b)")),
            "W18888 w r\n"
        );
        assert_eq!(
            late(&format!(
                "{piece_over} after @c\n%r: float32[8] = Relu(%c) after @w"
            )),
            "overwrite-before-read w r\n"
        );
        // What happens to one piece is nothing to the other.
        assert_eq!(
            late(&format!("{piece_over} after @c\n%r: float32[4] = Relu(%a)")),
            ""
        );
    }

    #[test]
    fn a_result_is_read_when_everything_else_has_ended() {
        let lines = "%x: float32[4] = Data()\n%m: float32[4] = Relu(%x)\n";
        let over = "%w: float32[4] <ref_input = 0> = AddInplace(%m)\n";
        let all = |last: &str| told(&format!("{lines}{over}NetOutput({last}) @results"));
        let late = "overwrite-before-read w results\nsame-memory-two-outputs m\n";
        assert_eq!(all("%w, %m"), late);
        assert_eq!(all("%w"), "");
        let garbage = "%h: float32[4] = HcomAllReduce(%m) {_input_mutable = true}\n";
        let told = told(&format!("{lines}{garbage}NetOutput(%h, %m) @results"));
        assert_eq!(told, "collective-input-written h m\n");
    }

    #[test]
    fn what_is_cut_in_place_is_each_of_its_pieces() {
        let cut = "%x: float32[8] = Data()\n%a: float32[8] = Relu(%x)\n\
                   %p: float32[4], %q: float32[4] = SplitD(%a) {_no_padding_continuous_output = true, \
                   _no_task = true, _output_reuse_input = true}\n";
        // Whether or not the file says that they are the input.
        for cut in [cut, &cut.replace("[4]", "[4] <ref_input = 0>")] {
            let over = "%w: float32[4] <ref_input = 0> = AddInplace(%p)\n";
            let late = |lines: &str| told(&format!("{cut}{over}{lines}"));
            assert_eq!(
                late("%r: float32[8] = Relu(%a) after @w"),
                "overwrite-before-read w r\n"
            );
            assert_eq!(late("%r: float32[4] = Relu(%q)"), "");
        }
    }

    #[test]
    fn names_of_codes_are_one_to_one() {
        let names: FxHashSet<&str> = Code::ALL.iter().map(|c| c.name()).collect();
        assert_eq!(names.len(), Code::ALL.len());
    }

    #[test]
    fn what_is_too_much_is_counted() {
        let mut lines = "%v: float32[4] = Variable()\n".to_owned();
        for i in 0..60 {
            lines += &format!("%w{i}: float32[4] <ref_input = 0> = Assign(%v)\n");
        }
        let graph = graph(&lines);
        let report = run(&graph, &OpTable::builtin(graph.dialect));
        assert_eq!(report.hits.len(), MAX_HITS);
        assert_eq!(report.left_out, 60 * 59 / 2 - MAX_HITS as u64);
    }

    #[test]
    fn the_witness_is_the_order_that_the_file_does_not_have() {
        let graph = graph(
            "%v: float32[4] = Variable()\n%r: float32[4] = Relu(%v)\n%w: float32[4] <ref_input = 0> = Assign(%v)",
        );
        let report = run(&graph, &OpTable::builtin(graph.dialect));
        let steps: Vec<String> = report.hits[0]
            .witness
            .iter()
            .map(ToString::to_string)
            .collect();
        let reads = "r reads what w wrote; the other way round, what was there before";
        assert_eq!(steps, ["w writes in the memory of v", reads]);
    }

    /// A pair in no order is found wherever it stands among hundreds that are in order.
    #[test]
    fn one_stray_reader_among_many() {
        let mut lines = "%v: float32[4] = Variable()\n".to_owned();
        for i in 0..200 {
            let after = match i {
                0 => String::new(),
                _ => format!(" after @w{}", i - 1),
            };
            lines += &format!("%w{i}: float32[4] <ref_input = 0> = Assign(%v){after}\n");
        }
        lines += "%r: float32[4] = Relu(%v) after @w150\n";
        assert_eq!(told(&lines).lines().count(), 49);
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
            // The branch itself reads its condition.
            (
                "%w: float32[4] <ref_input = 0> = Assign(%v)\n%y: float32[4] = If(%v)\n  then ^t {\n    %k: float32[4] = Const()\n    NetOutput(%k) @results\n  }",
                "W18888 w y\n",
            ),
            // A partition hands on what it is given.
            (
                "%p: float32[4] = PartitionedCall(%v)\n  partition ^q {\n    %d: float32[4] = Data()\n    NetOutput(%d) @results\n  }\n%w: float32[4] <ref_input = 0> = Assign(%p)\n%r: float32[4] = Relu(%v)",
                "W18888 w r\n",
            ),
            // A loop's body writes what the loop is given.
            (
                "%y: float32[4] = While(%v)\n  body ^b {\n    %d: float32[4] = Data()\n    %w: float32[4] <ref_input = 0> = Assign(%d)\n    NetOutput(%w) @results\n  }\n%r: float32[4] = Relu(%v)",
                "W18888 y r\n",
            ),
            // The two branches of one node never meet.
            (
                "%c: bool[] = Const()\n%y: float32[4] = If(%c, %v)\n  then ^t {\n    %d: float32[4] = Data() {parent_index = 1}\n    %w: float32[4] <ref_input = 0> = Assign(%d)\n    NetOutput(%w) @results\n  }\n  else ^e {\n    %d: float32[4] = Data() {parent_index = 1}\n    %r: float32[4] = Relu(%d)\n    NetOutput(%r) @results\n  }",
                "",
            ),
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
            // Each writes what the one before it made, so no reader is late.
            (
                "%x: float32[4] = Relu()\n%k: float32[4] = Const()\n%v: float32[4] <ref_input = 0> = AddInplace(%x, %k)\n%w: float32[4] <ref_input = 0> = AddInplace(%v, %k)",
                "",
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
