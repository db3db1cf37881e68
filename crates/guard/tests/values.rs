//! A value is a value: random programs are guarded and then run in the memory that their storage
//! classes say, in random orders that data and control edges allow. Every node must read what it
//! read before anything was guarded, when each value had a memory of its own.
//!
//! What is one class is one memory here: nothing is copied where values pass into or out of a
//! branch, or from one pass of a loop to the next, unless the guard has put a copy there.

use std::collections::BTreeMap;

use tenure_graph::control::{input_index, result_index};
use tenure_graph::effects::OpTable;
use tenure_graph::{
    Attr, Attrs, DType, Dialect, Graph, NodeId, OutputHints, Shape, SubgraphId, ValueId, canonical,
};
use tenure_guard::storage::{Anchor, Classes};
use tenure_guard::{Options, compile};

/// How often the body of a loop runs.
const PASSES: usize = 2;

/// What lies in a memory: a number for each thing that was ever made.
type Content = u64;

/// What a node read each time it ran, by its label.
type Reads = BTreeMap<String, Vec<Vec<Content>>>;

/// A number for what a node makes of what it reads.
fn mix(name: &str, read: &[Content]) -> Content {
    let bytes = name.bytes().map(u64::from).chain(read.iter().copied());
    bytes.fold(0xcbf2_9ce4_8422_2325, |h, x| {
        (h ^ x).wrapping_mul(0x0100_0000_01b3).rotate_left(23)
    })
}

/// A random program: nodes that read, write in place, leave garbage, or give a value another name,
/// and branches, partitions and loops of such nodes.
struct Maker<'a> {
    rng: &'a mut fastrand::Rng,
    graph: Graph,
    made: usize,
}

impl Maker<'_> {
    fn shape() -> Option<Shape> {
        Some(Shape::of(&[4]))
    }

    fn pick(&mut self, values: &[ValueId]) -> ValueId {
        // Recent values more often, so that chains grow.
        let back = self.rng.usize(1..=4.min(values.len()));
        let any = self.rng.usize(0..values.len());
        values[if self.rng.bool() {
            values.len() - back
        } else {
            any
        }]
    }

    /// Adds nodes to a subgraph in which `values` can be read.
    fn fill(
        &mut self,
        at: SubgraphId,
        mut values: Vec<ValueId>,
        nodes: usize,
        depth: usize,
    ) -> Vec<ValueId> {
        let mut here: Vec<NodeId> = Vec::new();
        for _ in 0..nodes {
            self.made += 1;
            let name = format!("n{}", self.made);
            let kind = self.rng.usize(0..if depth > 0 { 9 } else { 6 });
            let op = [
                "Relu",
                "AddInplace",
                "HcomAllReduce",
                "Reshape",
                "Identity",
                "Mul",
                "If",
                "PartitionedCall",
                "While",
            ][kind];
            let reads = match kind {
                1 | 5 | 6 => 2,
                7 | 8 => self.rng.usize(1..3),
                _ => 1,
            };
            let inputs: Vec<ValueId> = (0..reads).map(|_| self.pick(&values)).collect();
            let id = self.graph.add_node(at, name.clone(), op);
            self.graph.nodes[id]
                .inputs
                .extend(inputs.iter().copied().map(Some));
            if kind == 2 {
                self.graph.nodes[id]
                    .attrs
                    .set("_input_mutable", Attr::Bool(true));
            }
            if !here.is_empty() && self.rng.u8(0..4) == 0 {
                let before = here[self.rng.usize(0..here.len())];
                self.graph.nodes[id].control.push(before);
            }
            here.push(id);
            let outputs = if kind == 8 { reads } else { 1 };
            for o in 0..outputs {
                let value =
                    self.graph
                        .add_output(id, format!("{name}:{o}"), DType::F32, Self::shape());
                let mut hints = OutputHints::default();
                match kind {
                    1 => hints.ref_input = Some(0),
                    3 => hints.reuse_input = Some(0),
                    _ => {}
                }
                self.graph.values[value].hints = Some(Box::new(hints));
                values.push(value);
            }
            match kind {
                6 => {
                    self.body(id, "then", reads, 1, depth);
                    self.body(id, "else", reads, 1, depth);
                }
                7 => self.body(id, "partition", reads, 1, depth),
                8 => {
                    self.body(id, "cond", reads, 1, 0);
                    self.body(id, "body", reads, reads, depth);
                }
                _ => {}
            }
        }
        values
    }

    fn body(&mut self, owner: NodeId, role: &str, inputs: usize, results: usize, depth: usize) {
        let name = format!("{}_{role}", self.graph.nodes[owner].name);
        let body = self.graph.add_subgraph(owner, role, name);
        let values: Vec<ValueId> = (0..inputs)
            .map(|i| {
                let value = self
                    .graph
                    .add_input(body, format!("d{i}"), DType::F32, Self::shape());
                let data = self.graph.values[value].producer;
                let index = i64::try_from(i).expect("few inputs");
                self.graph.nodes[data]
                    .attrs
                    .set("parent_index", Attr::Int(index));
                value
            })
            .collect();
        let nodes = self.rng.usize(0..4);
        let values = self.fill(body, values, nodes, depth.saturating_sub(1));
        let results: Vec<_> = (0..results).map(|_| Some(self.pick(&values))).collect();
        let count = results.len();
        let output = self.graph.add_results(body, "results", results);
        for i in 0..count {
            let mut attrs = Attrs::new();
            attrs.set(
                "parent_index",
                Attr::Int(i64::try_from(i).expect("few results")),
            );
            self.graph.nodes[output].input_attrs.push(attrs);
        }
    }
}

fn program(rng: &mut fastrand::Rng, nodes: usize, depth: usize) -> Graph {
    let graph = Graph::new("random", Dialect::Ge, "root");
    let mut maker = Maker {
        rng,
        graph,
        made: 0,
    };
    let root = maker.graph.root;
    let mut values: Vec<ValueId> = (0..2)
        .map(|i| {
            maker
                .graph
                .add_input(root, format!("x{i}"), DType::F32, Maker::shape())
        })
        .collect();
    let constant = maker.graph.add_node(root, "k", "Const");
    maker.graph.nodes[constant].stream = None;
    values.push(
        maker
            .graph
            .add_output(constant, "k:0", DType::F32, Maker::shape()),
    );
    let values = maker.fill(root, values, nodes, depth);
    let results: Vec<_> = (0..3).map(|_| Some(maker.pick(&values))).collect();
    maker.graph.add_results(root, "results", results);
    canonical(&maker.graph)
}

/// A run of a program: with a memory for each value, or for each class.
struct Run<'a> {
    graph: &'a Graph,
    classes: Option<&'a Classes>,
    memory: BTreeMap<usize, Content>,
    reads: Reads,
    rng: fastrand::Rng,
    /// Which branch is taken each time.
    branch: usize,
}

impl Run<'_> {
    /// The memory of an output, or of what is read at an input.
    fn place(&self, anchor: Anchor) -> usize {
        match self.classes {
            Some(classes) => classes.class_of(anchor).expect("an anchor with memory"),
            None => {
                let value = anchor.value(self.graph).expect("a value");
                usize::try_from(value.as_u32()).expect("a small number")
            }
        }
    }

    /// Hands a value on where each has a memory of its own.
    fn hand_on(&mut self, from: ValueId, to: ValueId) {
        if self.classes.is_none() {
            let place = |v: ValueId| usize::try_from(v.as_u32()).expect("a small number");
            let content = self.memory[&place(from)];
            self.memory.insert(place(to), content);
        }
    }

    fn subgraph(&mut self, at: SubgraphId) {
        for id in self.order(at) {
            self.node(id);
        }
    }

    /// A random order that data and control edges allow; the file's where each value has a memory.
    fn order(&mut self, at: SubgraphId) -> Vec<NodeId> {
        let graph = self.graph;
        let mut left: Vec<NodeId> = graph.subgraphs[at].nodes.clone();
        if self.classes.is_none() {
            return left;
        }
        let mut done: Vec<NodeId> = Vec::new();
        while !left.is_empty() {
            let is_ready = |&&id: &&NodeId| {
                let node = &graph.nodes[id];
                let reads = node
                    .inputs
                    .iter()
                    .flatten()
                    .map(|&v| graph.values[v].producer);
                let is_result = graph.subgraphs[at].output == Some(id);
                let mut needs = reads.chain(node.control.iter().copied());
                needs.all(|n| done.contains(&n)) && (!is_result || left.len() == 1)
            };
            let ready: Vec<NodeId> = left.iter().filter(is_ready).copied().collect();
            let next = ready[self.rng.usize(0..ready.len())];
            left.retain(|&n| n != next);
            done.push(next);
        }
        done
    }

    fn node(&mut self, id: NodeId) {
        let graph = self.graph;
        let node = &graph.nodes[id];
        let label = graph.node_label(id);
        let inputs = (0u32..)
            .zip(&node.inputs)
            .map(|(i, _)| self.place(Anchor::input(id, i)));
        let inputs: Vec<usize> = inputs.collect();
        let outputs = (0u32..)
            .zip(&node.outputs)
            .map(|(o, _)| self.place(Anchor::output(id, o)));
        let outputs: Vec<usize> = outputs.collect();
        if graph.subgraphs[node.subgraph].inputs.contains(&id) && node.subgraph != graph.root {
            return;
        }
        let read: Vec<Content> = inputs.iter().map(|c| self.memory[c]).collect();
        // A node that gives another name looks at nothing, one that runs others looks inside.
        if &*node.op != "Reshape" && node.bodies.is_empty() {
            self.reads
                .entry(label.clone())
                .or_default()
                .push(read.clone());
        }
        match &*node.op {
            "NetOutput" => {}
            "If" => {
                let branch = self.branch;
                self.run_body(id, branch);
                self.leave(id, branch);
            }
            "PartitionedCall" => {
                self.run_body(id, 0);
                self.leave(id, 0);
            }
            "While" => {
                for (&input, &output) in node.inputs.iter().zip(&node.outputs) {
                    self.hand_on(input.expect("a state"), output.expect("a state"));
                }
                for _ in 0..PASSES {
                    self.run_body(id, 0);
                    self.run_body(id, 1);
                    self.leave(id, 1);
                }
                self.run_body(id, 0);
            }
            "Identity" | "Reshape" | "MemcpyAddrAsync" => {
                // One after the other, as a copy of several may be done.
                for (&from, &to) in inputs.iter().zip(&outputs) {
                    let content = self.memory[&from];
                    self.memory.insert(to, content);
                }
            }
            _ => {
                if node.attrs.get("_input_mutable").is_some() && self.classes.is_some() {
                    for &place in &inputs {
                        self.memory.insert(place, mix("garbage", &[]));
                    }
                }
                for place in outputs {
                    self.memory.insert(place, mix(&label, &read));
                }
            }
        }
    }

    fn run_body(&mut self, owner: NodeId, k: usize) {
        let graph = self.graph;
        let node = &graph.nodes[owner];
        let body = node.bodies[k].graph;
        for (i, &data) in graph.subgraphs[body].inputs.iter().enumerate() {
            let index = input_index(graph, data, i);
            // A loop's state is in its output.
            let outer = if &*node.op == "While" {
                node.output(index)
            } else {
                node.input(index)
            };
            let inner = graph.nodes[data].output(0);
            self.hand_on(outer.expect("an input"), inner.expect("an input"));
        }
        self.subgraph(body);
    }

    fn leave(&mut self, owner: NodeId, k: usize) {
        let graph = self.graph;
        let node = &graph.nodes[owner];
        let output = graph.subgraphs[node.bodies[k].graph]
            .output
            .expect("results");
        let results = graph.nodes[output].inputs.iter().enumerate();
        let results: Vec<(ValueId, ValueId)> = results
            .map(|(i, value)| {
                let outer = node.output(result_index(graph, Some(output), i));
                (value.expect("a result"), outer.expect("a result"))
            })
            .collect();
        if self.classes.is_none() {
            // All results are taken before any state is written.
            let place = |v: ValueId| usize::try_from(v.as_u32()).expect("a small number");
            let contents: Vec<Content> = results
                .iter()
                .map(|&(from, _)| self.memory[&place(from)])
                .collect();
            for (content, (_, to)) in contents.into_iter().zip(results) {
                self.memory.insert(place(to), content);
            }
        }
    }
}

/// What every node reads when a program is run.
fn run(
    graph: &Graph,
    classes: Option<&Classes>,
    branch: usize,
    seed: u64,
) -> Result<Reads, String> {
    let mut run = Run {
        graph,
        classes,
        memory: BTreeMap::new(),
        reads: Reads::new(),
        rng: fastrand::Rng::with_seed(seed),
        branch,
    };
    run.subgraph(graph.root);
    for name in ["k", "x0", "x1"] {
        let kept = graph
            .nodes
            .keys()
            .find(|&n| graph.node_label(n) == name)
            .expect("a source");
        if run.memory[&run.place(Anchor::output(kept, 0))] != mix(name, &[]) {
            return Err(format!("{name} was overwritten"));
        }
    }
    Ok(run.reads)
}

fn check(seed: u64, depth: usize) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let nodes = rng.usize(1..if depth > 0 { 8 } else { 14 });
    let graph = program(&mut rng, nodes, depth);
    let table = OpTable::builtin(Dialect::Ge);
    let text = tenure_graph::text::print;
    let guarded = compile::run(&graph, &table, &Options::default())
        .unwrap_or_else(|e| panic!("seed {seed}: {e}\n{}", text(&graph)));
    let safe = guarded.graph(&graph);
    let classes = Classes::build(safe, &table, safe.root).expect("classes");
    for branch in 0..2 {
        let expected = run(&graph, None, branch, seed).expect("nothing shares memory");
        for order in 0..3 {
            let wrong = |what: String| -> ! {
                panic!(
                    "seed {seed}: {what}\n{}\n{}\n{}",
                    text(&graph),
                    text(safe),
                    guarded.log()
                )
            };
            match run(safe, Some(&classes), branch, order) {
                Ok(reads) => {
                    for (label, want) in &expected {
                        let is_there = reads.contains_key(label);
                        if is_there && reads[label] != *want {
                            wrong(format!("{label} reads something else, branch {branch}"));
                        }
                    }
                }
                Err(what) => wrong(what),
            }
        }
    }
}

/// How many programs are tried: `TENURE_ROUNDS`, or enough to find a plain fault.
fn rounds() -> u64 {
    let rounds = std::env::var("TENURE_ROUNDS").ok();
    rounds.and_then(|r| r.parse().ok()).unwrap_or(1000)
}

#[test]
fn every_node_reads_what_was_meant_in_every_order() {
    (0..rounds()).for_each(|seed| check(seed, 0));
}

#[test]
fn every_node_reads_what_was_meant_in_branches_and_loops() {
    (0..rounds()).for_each(|seed| check(seed, 2));
}
