//! Plans on several streams, run in random orders that their streams and waits allow, with steps of
//! different streams going on at the same time: every node finds the bytes that it must find, and
//! finds them still there when it ends. More graphs are looked at when `TENURE_GRAPHS` gives their
//! number.
//!
//! The simulation knows the plan, the values that nodes name, and which outputs are other names of
//! inputs; it shares no code with the check.

use std::collections::{HashMap, HashSet};
use tenure_graph::arbitrary_graph::Size;
use tenure_graph::effects::{Gears, OpClass, OpTable};
use tenure_graph::plan::{Item, Phase, Place, Plan};
use tenure_graph::{Attr, Graph, NodeId, StreamId, ValueId, identity, text};
use tenure_plan::{Config, plan};
use tenure_tests::generate::{graph, merge_more, options};

/// How many graphs are looked at.
fn graphs() -> u64 {
    std::env::var("TENURE_GRAPHS").map_or(400, |n| n.parse().expect("a number"))
}

/// A random graph without subgraphs, on several streams.
fn flat(seed: u64) -> Graph {
    let nodes = [10, 20, 40][usize::try_from(seed % 3).unwrap()];
    let mut graph = graph(2 * seed + 1, Size { nodes, depth: 0 });
    let mut rng = fastrand::Rng::with_seed(seed);
    // On one stream, others on none are ordered by their edges alone.
    let is_mixed = seed.is_multiple_of(5);
    let streams = if is_mixed { 1 } else { rng.u32(2..5) };
    for node in graph.nodes.values_mut() {
        node.stream = node.stream.map(|_| StreamId::from_u32(rng.u32(..streams)));
    }
    if is_mixed {
        let table = OpTable::builtin(graph.dialect);
        let ids: Vec<NodeId> = graph.nodes.keys().collect();
        let mut runs = ids
            .into_iter()
            .filter(|&n| table.class(&graph, n) == OpClass::Compute);
        let on_it = runs.next();
        let others: Vec<NodeId> = runs.filter(|_| rng.u8(..3) == 0).collect();
        for node in others {
            graph.nodes[node].stream = None;
        }
        if let Some(node) = on_it {
            graph.nodes[node].stream = Some(StreamId::from_u32(0));
        }
    }
    match seed % 4 {
        0 => merge_more(seed, &mut graph),
        1 => gears(&mut graph, &mut rng),
        _ => {}
    }
    identity::canonical(&graph)
}

const LABEL: &str = "_batch_label";

/// Gives some nodes a gear, and with them what reads what they make; gives none to a graph in which a
/// node would need two.
fn gears(graph: &mut Graph, rng: &mut fastrand::Rng) {
    let table = OpTable::builtin(graph.dialect);
    let mut labels: HashMap<NodeId, &str> = HashMap::new();
    for &id in &graph.subgraphs[graph.root].nodes {
        if table.class(graph, id) != OpClass::Compute {
            continue;
        }
        let inputs = graph.nodes[id].inputs.iter().flatten();
        let producers = inputs.map(|&v| graph.values[v].producer);
        let before = producers.chain(graph.nodes[id].control.iter().copied());
        let mut found = before.filter_map(|p| labels.get(&p).copied());
        let label = match found.next() {
            Some(label) if found.any(|other| other != label) => return,
            Some(label) => Some(label),
            None if rng.u8(..4) == 0 => rng.choice(["small", "large"]),
            None => None,
        };
        labels.extend(label.map(|label| (id, label)));
    }
    for (id, label) in labels {
        graph.nodes[id]
            .attrs
            .set(LABEL, Attr::Str(label.to_owned()));
    }
}

/// The nodes that do not run in some gear, when each merge gets what comes in some slot: those that
/// make other alternatives, and those that need what is not made.
fn dead(graph: &Graph, table: &OpTable, rng: &mut fastrand::Rng) -> HashSet<NodeId> {
    let mut chosen: HashMap<NodeId, ValueId> = HashMap::new();
    for node in graph.nodes.keys() {
        if table.effects(graph, node).merges {
            let inputs: Vec<ValueId> = graph.nodes[node].inputs.iter().copied().flatten().collect();
            chosen.extend(rng.choice(inputs).map(|value| (node, value)));
        }
    }
    let mut dead: HashSet<NodeId> = HashSet::new();
    if let Some(all) = Gears::new(graph) {
        let gear = rng.u32(..all.count());
        let others = |n: &NodeId| all.of(*n).is_some_and(|other| other != gear);
        dead.extend(graph.nodes.keys().filter(others));
    }
    let is_dead = |dead: &HashSet<NodeId>, v: &ValueId| dead.contains(&graph.values[*v].producer);
    let is_left = |v: &ValueId| {
        let merges = chosen
            .iter()
            .filter(|(n, _)| graph.nodes[**n].inputs.contains(&Some(*v)));
        merges.into_iter().any(|(_, chosen)| chosen != v)
    };
    for (id, node) in &graph.nodes {
        let mut outputs = node.outputs.iter().flatten();
        if outputs.any(is_left) {
            dead.insert(id);
        }
    }
    loop {
        let needs = |id: &NodeId| match chosen.get(id) {
            Some(value) => is_dead(&dead, value),
            None => {
                let mut inputs = graph.nodes[*id].inputs.iter().flatten();
                inputs.any(|v| is_dead(&dead, v))
            }
        };
        // To a merge of which nothing comes, none of its alternatives has come.
        let merges = chosen.keys().filter(|n| dead.contains(n));
        let inputs = merges.flat_map(|&n| graph.nodes[n].inputs.iter().flatten());
        let before = inputs.map(|&v| graph.values[v].producer);
        let more: Vec<NodeId> = (graph.nodes.keys().filter(needs).chain(before))
            .filter(|n| !dead.contains(n))
            .collect();
        if more.is_empty() {
            return dead;
        }
        dead.extend(more);
    }
}

type Range = (usize, usize);

/// Memory in cells: stretches of bytes that no item begins or ends in.
struct Memory<'a> {
    graph: &'a Graph,
    table: &'a OpTable,
    plan: &'a Plan,
    ranges: HashMap<Item, Range>,
    /// Nodes that do not run.
    dead: HashSet<NodeId>,
    /// What lies in each cell: all names that have those bytes.
    cells: Vec<Vec<ValueId>>,
}

impl<'a> Memory<'a> {
    fn new(graph: &'a Graph, table: &'a OpTable, plan: &'a Plan, dead: HashSet<NodeId>) -> Self {
        // The caller's pieces of memory lie behind one another, after all arenas.
        let mut base: Vec<u64> = Vec::new();
        let mut end = 0;
        for arena in &plan.arenas {
            base.push(end);
            end += arena.size;
        }
        let mut bytes: Vec<(Item, u64, u64)> = Vec::new();
        for storage in plan.storages.values() {
            let start = match storage.place {
                Place::Arena { arena, offset } => base[arena as usize] + offset,
                Place::Caller => end,
            };
            if storage.place == Place::Caller {
                end += storage.size;
            }
            for m in &storage.members {
                bytes.push((m.item, start + m.offset, start + m.offset + m.bytes));
            }
        }
        let mut edges: Vec<u64> = bytes.iter().flat_map(|&(_, a, b)| [a, b]).collect();
        edges.sort_unstable();
        edges.dedup();
        let at = |byte: u64| edges.binary_search(&byte).unwrap();
        let ranges = bytes.iter().map(|&(i, a, b)| (i, (at(a), at(b)))).collect();
        let mut memory = Memory {
            graph,
            table,
            plan,
            ranges,
            dead,
            cells: vec![Vec::new(); edges.len()],
        };
        for &data in &graph.subgraphs[graph.root].inputs {
            for &value in graph.nodes[data].outputs.iter().flatten() {
                memory.write(Item::Value(value), &[value]);
            }
        }
        memory
    }

    fn write(&mut self, item: Item, names: &[ValueId]) {
        if let Some(&(from, to)) = self.ranges.get(&item) {
            self.cells[from..to].fill(names.to_vec());
        }
    }

    /// Where a node finds the value in an input slot.
    fn found(&self, node: NodeId, slot: u32, value: ValueId) -> Item {
        let copies = (0u32..).zip(&self.plan.copies);
        let mut mine = copies.filter(|(_, c)| c.reader == node && c.input == slot);
        mine.next()
            .map_or(Item::Value(value), |(k, _)| Item::Copy(k))
    }

    /// Whether a value is where it should be, but for some cells.
    fn holds(&self, item: Item, value: ValueId, but: &[Range]) -> bool {
        let Some(&(from, to)) = self.ranges.get(&item) else {
            return true;
        };
        let is_excused = |cell: usize| but.iter().any(|&(a, b)| a <= cell && cell < b);
        (from..to).all(|cell| is_excused(cell) || self.cells[cell].contains(&value))
    }

    /// The inputs that a node reads, and the outputs that it writes, which are no other names of
    /// inputs where they lie.
    fn written(&self, node: NodeId) -> Vec<ValueId> {
        let effects = self.table.effects(self.graph, node);
        let n = &self.graph.nodes[node];
        let outputs = (0u32..).zip(&n.outputs);
        let is_written = |&(slot, value): &(u32, ValueId)| {
            if effects.merges && slot == 0 {
                return false;
            }
            let Some(input) = effects.view_of(slot) else {
                return true;
            };
            let source = n.input(input as usize);
            let source = source.map(|v| self.found(node, input, v));
            let start = |item: Item| self.ranges.get(&item).map(|r| r.0);
            source.is_none_or(|s| start(s) != start(Item::Value(value)))
        };
        let outputs = outputs.filter_map(|(slot, value)| Some((slot, (*value)?)));
        outputs.filter(is_written).map(|(_, value)| value).collect()
    }

    fn reads(&self, node: NodeId) -> Vec<(Item, ValueId)> {
        let effects = self.table.effects(self.graph, node);
        let inputs = (0u32..).zip(&self.graph.nodes[node].inputs);
        let viewed = |slot: u32| effects.views.iter().any(|a| a.input == slot);
        let read = inputs.filter(|(slot, _)| !effects.shape_only.contains(slot) || viewed(*slot));
        let values = read.filter_map(|(slot, value)| Some((slot, (*value)?)));
        values
            .filter(|&(_, value)| {
                // A merge hands on what has come.
                !effects.merges || !self.dead.contains(&self.graph.values[value].producer)
            })
            .filter(|&(_, value)| {
                let producer = self.graph.values[value].producer;
                let class = self.table.class(self.graph, producer);
                let is_folded = self.plan.folded.contains(&producer);
                !is_folded && !matches!(class, OpClass::Constant | OpClass::Variable)
            })
            .map(|(slot, value)| (self.found(node, slot, value), value))
            .collect()
    }

    /// A node starts: what it reads is there, and what it writes is so no more.
    fn start(&mut self, node: NodeId) -> Result<(), String> {
        for (k, copy) in (0u32..).zip(&self.plan.copies) {
            if copy.reader == node {
                if !self.holds(Item::Value(copy.value), copy.value, &[]) {
                    return Err(format!("copy {k} finds other bytes"));
                }
                self.write(Item::Copy(k), &[copy.value]);
            }
        }
        self.look(node, &[])?;
        for (item, _) in self.scratch(node) {
            self.write(item, &[]);
        }
        for value in self.written(node) {
            self.write(Item::Value(value), &[]);
        }
        Ok(())
    }

    fn look(&self, node: NodeId, but: &[Range]) -> Result<(), String> {
        for (item, value) in self.reads(node) {
            if !self.holds(item, value, but) {
                let value = self.graph.value_label(value);
                return Err(format!("{value} has other bytes"));
            }
        }
        Ok(())
    }

    fn scratch(&self, node: NodeId) -> Vec<(Item, Range)> {
        let all = self.ranges.iter();
        let mine = all.filter(|(i, _)| matches!(**i, Item::Workspace(n, _) if n == node));
        mine.map(|(&i, &r)| (i, r)).collect()
    }

    /// It ends: what it read is still there, except where it was written over, and nobody has
    /// touched what it wrote.
    fn end(&mut self, node: NodeId) -> Result<(), String> {
        let written = self.written(node);
        let mine = written.iter().map(|&v| Item::Value(v));
        let ranges: Vec<Range> = mine.filter_map(|i| self.ranges.get(&i).copied()).collect();
        self.look(node, &ranges)?;
        let scratch = self.scratch(node);
        for &(from, to) in ranges.iter().chain(scratch.iter().map(|(_, range)| range)) {
            if self.cells[from..to].iter().any(|cell| !cell.is_empty()) {
                return Err("somebody wrote where it writes".to_owned());
            }
        }
        for &value in self.graph.nodes[node].outputs.iter().flatten() {
            if written.contains(&value) {
                self.write(Item::Value(value), &[value]);
            } else if let Some(&(from, to)) = self.ranges.get(&Item::Value(value)) {
                // Another name of what is there.
                self.cells[from..to]
                    .iter_mut()
                    .for_each(|cell| cell.push(value));
            }
        }
        Ok(())
    }
}

/// Runs a plan once, in a random order.
fn run(graph: &Graph, table: &OpTable, plan: &Plan, rng: &mut fastrand::Rng) -> Result<(), String> {
    let mut memory = Memory::new(graph, table, plan, dead(graph, table, rng));
    let steps = &plan.steps;
    let mut started = vec![false; steps.len()];
    let mut ended = vec![false; steps.len()];
    let results = graph.subgraphs[graph.root].output;
    // The step before on the same stream; results come last of all.
    let before = |i: usize| -> Vec<usize> {
        if Some(steps[i].node) == results {
            return (0..i).collect();
        }
        let stream = steps[i].stream.filter(|_| steps[i].stream.is_some());
        let same = (0..i)
            .rev()
            .find(|&j| stream.is_some() && steps[j].stream == stream);
        let step = u32::try_from(i).unwrap();
        let waits = plan.waits.iter().filter(|w| w.step == step);
        let waits = waits.map(|w| w.before as usize);
        same.into_iter().chain(waits).collect()
    };
    let before: Vec<Vec<usize>> = (0..steps.len()).map(before).collect();
    loop {
        let can_start = |i: usize| !started[i] && before[i].iter().all(|&j| ended[j]);
        let starts = (0..steps.len())
            .filter(|&i| can_start(i))
            .map(|i| (i, false));
        let ends = (0..steps.len()).filter(|&i| started[i] && !ended[i]);
        let events: Vec<(usize, bool)> = starts.chain(ends.map(|i| (i, true))).collect();
        let Some(&(step, ends)) = rng.choice(&events) else {
            return Ok(());
        };
        let node = steps[step].node;
        let done = match ends {
            _ if memory.dead.contains(&node) => Ok(()),
            true => memory.end(node),
            false => memory.start(node),
        };
        done.map_err(|e| format!("step {step} of {}: {e}", graph.node_label(node)))?;
        if ends {
            ended[step] = true;
        } else {
            started[step] = true;
        }
    }
}

#[test]
fn no_order_that_may_happen_goes_wrong() {
    let (mut runs, mut waits, mut reused, mut wrong) = (0, 0, 0, 0);
    for seed in 0..graphs() {
        let graph = flat(seed);
        let table = OpTable::builtin(graph.dialect);
        let options = options(seed);
        let config = Config {
            steps: Some(2_000),
            ..Config::default()
        };
        let Ok(planned) = plan(&graph, &table, &options, &config) else {
            continue;
        };
        let plan = planned.plan;
        assert!(plan.steps.iter().all(|s| s.phase == Phase::Run));
        if let Err(broken) = tenure_check::check(&graph, &table, &plan) {
            panic!(
                "seed {seed}: {broken:?}\n{options:?}\n{}",
                text::print(&graph)
            );
        }
        waits += plan.waits.len();
        reused += usize::from(plan.arenas[0].size < plan.arenas[0].no_reuse);
        let mut rng = fastrand::Rng::with_seed(seed);
        for _ in 0..4 {
            if let Err(error) = run(&graph, &table, &plan, &mut rng) {
                panic!("seed {seed}: {error}\n{}", text::print(&graph));
            }
            runs += 1;
        }
        // The simulation sees what goes wrong when waits are left out.
        let mut loose = plan.clone();
        loose.waits.clear();
        let mut again = (0..4).map(|_| run(&graph, &table, &loose, &mut rng));
        wrong += usize::from(again.any(|done| done.is_err()));
    }
    let most = usize::try_from(graphs()).unwrap();
    assert!(runs > 3 * most, "{runs} runs");
    assert!(waits > most && reused > most / 4, "{waits} waits, {reused}");
    assert!(wrong > most / 4, "{wrong} wrong without waits");
}

/// A loop on stream 1 whose body, on another, makes the next state of its state in two steps, or of
/// something else altogether.
fn looped(body_stream: u32, of: &str) -> Graph {
    text::parse(&format!(
        "model m ge graph ^root {{
           %x: float32[256] = Data()
           %k: float32[256] = Softmax(%x) stream 0
           %a: float32[256] = Softmax(%x) stream 0
           %w: float32[256] = While(%a) stream 1
             cond ^c {{
               %s: float32[256] = Data()
               %p: bool[] = Less(%s) stream 1
               NetOutput(%p) @test
             }}
             body ^b {{
               %s: float32[256] = Data()
               %t: float32[256] = Softmax(%s) stream {body_stream}
               %u: float32[256] = Softmax({of}) stream 2
               NetOutput(%u) @next
             }}
           %z: float32[256] = Softmax(%w) stream 0
           NetOutput(%z) @out
         }}"
    ))
    .expect("a graph")
}

#[test]
fn the_state_of_a_loop_has_one_memory_whatever_its_streams() {
    let size = |graph: &Graph| {
        let table = OpTable::builtin(graph.dialect);
        let options = tenure_graph::plan::PlanOptions::default();
        let plan = plan(graph, &table, &options, &Config::default())
            .unwrap()
            .plan;
        tenure_check::check(graph, &table, &plan).unwrap_or_else(|v| panic!("{v:?}"));
        plan.arenas[0].size
    };
    // The state, and what is between it and the next one.
    let plain = size(&looped(2, "%t"));
    assert!((2048..2200).contains(&plain), "{plain}");
    assert_eq!(size(&looped(1, "%t")), plain);
    // The next state may be written while the last one is read.
    assert!(size(&looped(1, "%k^root")) >= plain + 1024);
}

#[test]
fn what_comes_out_of_a_body_is_not_there_when_its_owner_begins() {
    // A result of no use on stream 2, and beside it on stream 0 the result of the call.
    let text = "model m ge graph ^root {
        %x: float32[256] = Data() stream 0
        %w: float32[256] = PartitionedCall(%x) stream 0
          partition ^p {
            %d: float32[256] = Data()
            %unused: float32[256] = Softmax(%d) stream 2
            %r: float32[256] = Softmax(%d) stream 0
            NetOutput(%r) @results
          }
        %y: float32[256] = Softmax(%w) stream 1
        %z: float32[256] = Add(%y, %x) stream 0
        NetOutput(%z) @out
      }";
    let graph = text::parse(text).expect("a graph");
    let table = OpTable::builtin(graph.dialect);
    let options = tenure_graph::plan::PlanOptions::default();
    let plan = plan(&graph, &table, &options, &Config::default())
        .unwrap()
        .plan;
    tenure_check::check(&graph, &table, &plan).unwrap_or_else(|v| panic!("{v:?}"));
}

/// Pieces that are the memory of a whole, of which others are pieces again, with something on another
/// stream that has nothing to do with them.
#[test]
fn pieces_follow_one_another_whatever_runs_beside_them() {
    let whole = "_output_reuse_input = true, _reuse_input_on_dim_index = 0";
    let split = format!("{{_no_padding_continuous_output = true, {whole}}}");
    let concat = format!("{{_no_padding_continuous_input = true, {whole}}}");
    let before = [
        format!("%c: float32[512] = ConcatD(%p, %q) {concat}"),
        "%c: float32[512] <ref_input = 0> = InplaceAdd(%w)".to_owned(),
    ];
    for before in before {
        let size = |beside: &str, stream: u32| {
            let text = format!(
                "model m ge graph ^root {{
                   %x: float32[256] = Data()
                   %w: float32[512] = Softmax(%x)
                   %p: float32[256] = Softmax(%x)
                   %q: float32[256] = Softmax(%x)
                   {before}
                   %d: float32[256], %e: float32[256] = SplitD(%c) {split}
                   %y: float32[256] = Add(%d, %e)
                   {beside}
                   NetOutput(%y) @out
                 }}"
            );
            let graph = text::parse(&text).unwrap_or_else(|e| panic!("{text}: {e}"));
            let table = OpTable::builtin(graph.dialect);
            let options = tenure_graph::plan::PlanOptions::default();
            let plan = plan(&graph, &table, &options, &Config::default());
            let plan = plan.unwrap_or_else(|e| panic!("{stream}: {e}")).plan;
            tenure_check::check(&graph, &table, &plan).unwrap_or_else(|v| panic!("{v:?}"));
            plan.arenas[0].size
        };
        let beside = |stream: u32| format!("%b: float32[1] = Softmax(%x) stream {stream}");
        let alone = size(&beside(0), 0);
        assert!(size(&beside(1), 1) <= alone + 1024, "{before}");
    }
}

#[test]
fn what_is_on_no_stream_is_ordered_by_its_edges_alone() {
    let size = |streams: [&str; 3]| {
        let [a, b, c] = streams;
        let text = format!(
            "model m ge graph ^root {{
               %x: float32[256] = Data() stream none
               %a: float32[256] = Softmax(%x) stream {a}
               %b: float32[256] = Softmax(%a) stream {b}
               %c: float32[256] = Softmax(%x) stream {c}
               NetOutput(%b, %c) @out stream none
             }}"
        );
        let graph = text::parse(&text).expect("a graph");
        let table = OpTable::builtin(graph.dialect);
        let options = tenure_graph::plan::PlanOptions::default();
        let plan = |graph| {
            let planned = plan(graph, &table, &options, &Config::default());
            planned.unwrap().plan
        };
        let found = plan(&graph);
        tenure_check::check(&graph, &table, &found).unwrap_or_else(|v| panic!("{v:?}"));
        // A plan of all on one stream is none of this, and the check says so.
        let mut together = graph.clone();
        for node in together.nodes.values_mut() {
            node.stream = Some(StreamId::from_u32(0));
        }
        let mut other = plan(&together);
        other.steps.clone_from(&found.steps);
        (
            found.arenas[0].size,
            tenure_check::check(&graph, &table, &other).is_ok(),
        )
    };
    let one = size(["0", "0", "0"]);
    assert_eq!(one, (3 * 1024, true));
    // Where nothing is on a stream, the list is the order.
    assert_eq!(size(["none", "none", "none"]), one);
    assert_eq!(size(["0", "0", "none"]), (4 * 1024, false));
    assert!(!size(["none", "0", "0"]).1);
}
