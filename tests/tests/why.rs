//! What `why` says of random programs, played: a schedule that is said to go wrong does, and what is
//! said to be in order never meets. More programs are looked at when `TENURE_GRAPHS` gives their
//! number.

use std::collections::BTreeMap;

use tenure_graph::effects::{OpClass, OpTable};
use tenure_graph::{Dialect, Graph, NodeId, ValueId, identity, text};
use tenure_guard::storage::{Anchor, Classes};
use tenure_guard::why::{Relation, Why};
use tenure_guard::witness::Step;
use tenure_guard::{Options, compile};
use tenure_tests::generate::merge_more;
use tenure_tests::needless::random;
use tenure_tests::play::Game;

/// How many programs are looked at.
fn graphs() -> u64 {
    std::env::var("TENURE_GRAPHS").map_or(40, |n| n.parse().expect("a number"))
}

/// The seed of the first.
fn first() -> u64 {
    std::env::var("TENURE_FIRST_GRAPH").map_or(0, |n| n.parse().expect("a number"))
}

/// Pairs of values of each program.
const PAIRS: usize = 4;

/// Runs of each pair.
const RUNS: u64 = 3;

/// A random program, and whether nobody overwrites in it what others read; `None` where it asks for
/// what cannot be.
fn program(seed: u64) -> Option<(Graph, OpTable, bool)> {
    let mut graph = random(seed);
    let merges = seed % 5 == 1 && seed.is_multiple_of(2);
    if merges {
        merge_more(seed, &mut graph);
        graph = identity::canonical(&graph);
    }
    tenure_graph::verify(&graph).ok()?;
    let table = OpTable::builtin(graph.dialect);
    let is_guarded = !seed.is_multiple_of(3);
    if is_guarded {
        let guarded = compile::run(&graph, &table, &Options::of(&graph)).ok()?;
        graph = guarded.graph(&graph).clone();
    }
    // What is handed on by whichever comes is written by several, in one memory; and of ONNX models
    // the planner makes the copies.
    let is_safe = is_guarded && !merges && graph.dialect == Dialect::Ge;
    Some((graph, table, is_safe))
}

/// The values that are one memory with the first, and with the second.
fn sides(graph: &Graph, table: &OpTable, pair: [ValueId; 2]) -> BTreeMap<ValueId, usize> {
    let classes = Classes::build(graph, table, graph.root).expect("a relation was found");
    let class = |v: ValueId| classes.class_of(Anchor::of(graph, v));
    let mut beside: BTreeMap<ValueId, Vec<ValueId>> = BTreeMap::new();
    let mut join = |a: ValueId, b: ValueId| {
        beside.entry(a).or_default().push(b);
        beside.entry(b).or_default().push(a);
    };
    let mut first_of = BTreeMap::new();
    for value in graph.values.keys() {
        if let Some(class) = class(value) {
            join(*first_of.entry(class).or_insert(value), value);
        }
    }
    for (id, node) in &graph.nodes {
        let effects = table.effects(graph, id);
        for alias in effects.views.iter().chain(&effects.refs) {
            let from = node.input(alias.input as usize);
            let to = node.output(alias.output as usize);
            if let (Some(from), Some(to)) = (from, to) {
                join(from, to);
            }
        }
    }
    let mut sides = BTreeMap::new();
    for (side, first) in pair.into_iter().enumerate() {
        let mut list = vec![first];
        while let Some(value) = list.pop() {
            if sides.insert(value, side).is_none() {
                list.extend(beside.get(&value).into_iter().flatten());
            }
        }
    }
    sides
}

struct Stage<'a> {
    graph: &'a Graph,
    table: &'a OpTable,
    sides: BTreeMap<ValueId, usize>,
}

impl Stage<'_> {
    fn node(&self, label: &str) -> NodeId {
        let mut nodes = self.graph.nodes.keys();
        nodes
            .find(|&n| self.graph.node_label(n) == label)
            .expect("a node")
    }

    fn game(&self) -> Game<'_> {
        Game::new(self.graph, self.table, &self.sides)
    }

    /// Plays the steps of a schedule but for the last.
    fn up_to_last(&self, steps: &[Step]) -> Result<Game<'_>, String> {
        let mut game = self.game();
        for step in steps.split_last().map_or(&[][..], |(_, rest)| rest) {
            self.step(&mut game, step)?;
        }
        game.forget();
        Ok(game)
    }

    fn step(&self, game: &mut Game<'_>, step: &Step) -> Result<(), String> {
        let node = self.node(&step.node);
        if !game.is_running(node) || step.does.is_empty() {
            game.step(node)?;
        }
        // What a node with bodies writes itself, it writes at some border.
        let written = self.sides.iter().find(|(v, _)| {
            let written = format!("writes {} ", self.graph.value_label(**v));
            let does = step.does.replacen("a slice of ", "", 1);
            format!("{does} ").starts_with(&written)
        });
        if let (Some((&value, _)), true) = (written, game.is_running(node)) {
            game.write_at_border(node, value);
        }
        Ok(())
    }

    /// Plays a schedule that is said to go wrong.
    fn goes_wrong(&self, steps: &[Step], is_guarded: bool) -> Result<(), String> {
        let mut game = self.up_to_last(steps)?;
        let last = steps.last().ok_or("no steps")?;
        let node = self.node(&last.node);
        if last.does.contains("in the next run") {
            game.look_in_next_run(node);
            game.look_at_borders(node);
        } else if game.is_running(node) {
            game.look_at_borders(node);
        } else {
            game.step(node)?;
            if last.does.ends_with("which it reads") && game.clashes > 0 {
                return Ok(());
            }
        }
        let found = if is_guarded { game.clashes } else { game.wrong };
        (found > 0)
            .then_some(())
            .ok_or("the last step reads what it means".to_owned())
    }

    fn clashes(&self, seed: u64) -> u32 {
        let mut game = self.game();
        game.play(&mut fastrand::Rng::with_seed(seed));
        game.clashes
    }
}

fn told(steps: &[Step]) -> String {
    let lines = steps.iter().map(|s| format!("  {s}\n"));
    lines.collect()
}

/// What reads a damaged slice under another name than the one that it was made under.
#[test]
fn a_slice_is_damaged_under_all_its_names() {
    let lines = "model m onnx opsets [\"\" 17]
        graph ^main {
          %x: float32[4, 8] = Data()
          %c: float32[8] = Data()
          %s: float32[8], %r: float32[4, 8] = Scan(%c, %x) @scan {num_scan_inputs = 1}
            body ^b {
              %p: float32[8] = Data()
              %q: float32[8] = Data()
              %t: float32[8] = Mul(%q, %q) @mul
              %u: float32[8] = Softmax(%t) @softmax
              NetOutput(%p, %u) @results
            }
          %n: float32[4, 8] = READ(%r) @name
          %o: float32[4, 8] = Softmax(%n) @reader
          NetOutput(%o, %s) @out
        }";
    for name in ["Identity", "Flatten", "Softmax"] {
        let lines = lines.replace("READ", name);
        let graph = text::parse(&lines).expect("a program");
        let table = OpTable::builtin(graph.dialect);
        let named = |label: &str| {
            let mut values = graph.values.keys();
            values
                .find(|&v| graph.value_label(v) == label)
                .expect("a value")
        };
        let pair = ["b/t", "r"].map(named);
        let why = Why::of(&graph, &table).expect("a program");
        let (Relation::Apart { wrong, .. } | Relation::Unordered { wrong, .. }) =
            why.relation(pair[0], pair[1])
        else {
            panic!("a slice is made in each pass");
        };
        let stage = Stage {
            graph: &graph,
            table: &table,
            sides: sides(&graph, &table, pair),
        };
        assert_eq!(stage.goes_wrong(&wrong, true), Ok(()), "{}", told(&wrong));
    }
}

#[test]
fn what_is_said_is_so_when_it_is_played() {
    let mut count: BTreeMap<&str, usize> = BTreeMap::new();
    let mut played = 0;
    for seed in first()..first() + graphs() {
        let Some((graph, table, is_guarded)) = program(seed) else {
            continue;
        };
        let mut rng = fastrand::Rng::with_seed(seed);
        let values: Vec<ValueId> = graph.values.keys().collect();
        let may_be_left_out = |n: NodeId| {
            let class = table.class(&graph, n);
            class == OpClass::Branch || class.repeats()
        };
        let Ok(why) = Why::of(&graph, &table) else {
            continue;
        };
        let all_runs = !graph.nodes.keys().any(may_be_left_out);
        for _ in 0..PAIRS {
            let pair = [(); 2].map(|()| values[rng.usize(..values.len())]);
            let found = why.relation(pair[0], pair[1]);
            *count.entry(found.name()).or_default() += 1;
            let stage = Stage {
                graph: &graph,
                table: &table,
                sides: match found {
                    Relation::SameMemory { .. } => continue,
                    _ => sides(&graph, &table, pair),
                },
            };
            let [a, b] = pair.map(|v| graph.value_label(v));
            let fail = |what: &str| -> ! {
                panic!(
                    "seed {seed}, {a} and {b}: {what}\n{found:?}\n{}",
                    text::print(&graph)
                )
            };
            let stays = stage.sides.keys().any(|&v| {
                let class = table.class(&graph, graph.values[v].producer);
                matches!(class, OpClass::Constant | OpClass::Variable)
            });
            match &found {
                Relation::SameMemory { .. } => {}
                Relation::Ordered { .. } | Relation::InTurn { .. } | Relation::Exclusive { .. } => {
                    if (0..RUNS).any(|run| stage.clashes(seed * RUNS + run) > 0) {
                        fail("they meet");
                    }
                }
                Relation::Apart { wrong, .. } | Relation::Unordered { wrong, .. }
                    if wrong.is_empty() =>
                {
                    *count.entry("nobody reads").or_default() += 1;
                }
                Relation::Apart { wrong, .. } => {
                    if let Err(error) = stage.goes_wrong(wrong, is_guarded) {
                        fail(&format!("{error}\n{}", told(wrong)));
                    }
                    let in_one_run = all_runs && !stays && is_guarded;
                    if in_one_run && (0..RUNS).any(|run| stage.clashes(seed * RUNS + run) == 0) {
                        fail("they need not meet");
                    }
                    played += 1;
                }
                Relation::Unordered { right, wrong, .. } => {
                    if let Err(error) = stage.goes_wrong(wrong, is_guarded) {
                        fail(&format!("{error}\n{}", told(wrong)));
                    }
                    if let Some(last) = right.last() {
                        let game = stage.up_to_last(right);
                        let game = game.and_then(|mut game| {
                            stage.step(&mut game, last)?;
                            Ok(game.clashes)
                        });
                        match game {
                            Ok(0) => {}
                            Ok(_) => fail(&format!("it goes wrong\n{}", told(right))),
                            Err(error) => fail(&format!("{error}\n{}", told(right))),
                        }
                        *count.entry("right").or_default() += 1;
                    }
                    played += 1;
                }
            }
        }
    }
    for name in ["same-memory", "ordered", "apart", "unordered", "right"] {
        assert!(count.contains_key(name), "{name} is not among {count:?}");
    }
    assert!(played > graphs(), "{played} schedules");
}
