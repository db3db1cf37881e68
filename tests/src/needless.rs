//! Which copies of a guarded program are needed: each is taken out alone, with all others kept.
//!
//! A copy is needed when the program without it has no plan that the check accepts, or when the
//! planner makes a copy in its place. Plans copy at the borders of subgraphs themselves, and know
//! nothing of addresses that are fixed while a program runs; so what a plan can do without is
//! handed to the guard once more, and counts as needed by a rule when that makes the copy again.

use std::collections::{BTreeMap, BTreeSet};

use tenure_graph::arbitrary_graph::Size;
use tenure_graph::effects::{OpClass, OpTable, Trait};
use tenure_graph::patch::{Edit, Patch, Slot};
use tenure_graph::plan::{Placement, PlanOptions};
use tenure_graph::shapes::{Bindings, infer};
use tenure_graph::{Graph, NodeId, identity, text, verify};
use tenure_guard::storage::{Anchor, Classes};
use tenure_guard::{Options, compile};
use tenure_plan::Config;

use crate::generate::{ask_more, graph, say_more};
use crate::programs::{Bounds, program};

/// Steps of the solver: where things lie does not matter here.
const STEPS: u64 = 500;

/// What was found in several programs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Programs that were guarded and planned.
    pub programs: u64,
    /// Programs that ask for what cannot be, or not be planned.
    pub refused: u64,
    /// Copies that plans cannot do without.
    pub needed: u64,
    /// Copies that hold what a variable was at a moment.
    pub moments: u64,
    /// Copies that rules alone ask for, by the rule.
    pub by_rule: BTreeMap<String, u64>,
    /// Copies that nobody asks for: the program, the rule and the copy.
    pub needless: Vec<String>,
    /// Guarded programs whose plan fails its check, and why.
    pub wrong: Vec<String>,
}

impl Tally {
    /// Adds what was found in other programs.
    pub fn add(&mut self, other: Tally) {
        self.programs += other.programs;
        self.refused += other.refused;
        self.needed += other.needed;
        self.moments += other.moments;
        for (rule, count) in other.by_rule {
            *self.by_rule.entry(rule).or_default() += count;
        }
        self.needless.extend(other.needless);
        self.wrong.extend(other.wrong);
    }

    /// All copies.
    #[must_use]
    pub fn copies(&self) -> u64 {
        let needless = u64::try_from(self.needless.len()).unwrap_or(u64::MAX);
        let by_rule: u64 = self.by_rule.values().sum();
        self.needed + self.moments + by_rule + needless
    }
}

/// A random program of one of the kinds that there are: of ONNX or Graph Engine, with what files say
/// and ask beyond operators, and programs rich in what makes shared memory dangerous.
#[must_use]
pub fn random(seed: u64) -> Graph {
    let (kind, seed) = (seed % 5, seed / 5);
    let nodes = [8, 15, 30][usize::try_from(seed % 3).unwrap_or(0)];
    let size = Size { nodes, depth: 2 };
    match kind {
        0 => graph(2 * seed, size),
        1 => graph(2 * seed + 1, size),
        2 => {
            let mut graph = graph(seed, size);
            say_more(seed, &mut graph);
            graph
        }
        3 => {
            let mut graph = graph(2 * seed + 1, size);
            ask_more(seed, &mut graph);
            identity::canonical(&graph)
        }
        _ => {
            let nodes = usize::try_from(seed % 12 + 1).unwrap_or(1);
            let depth = usize::try_from(seed / 12 % 3).unwrap_or(0);
            program(seed, Bounds { nodes, depth })
        }
    }
}

/// Guards a program and takes out each copy alone.
///
/// # Errors
/// When the guarded program has a plan that fails its check, or a copy cannot be taken out.
pub fn look(name: &str, given: &Graph) -> Result<Tally, String> {
    let mut tally = Tally::default();
    let table = OpTable::builtin(given.dialect);
    let shaped = infer(given.clone(), &table, &Bindings::default());
    let (Ok(()), Ok(shaped)) = (verify(given), shaped) else {
        tally.refused = 1;
        return Ok(tally);
    };
    let given = shaped.graph;
    let Ok(guarded) = compile::run(&given, &table, &Options::of(&given)) else {
        tally.refused = 1;
        return Ok(tally);
    };
    let safe = guarded.graph(&given);
    let Some(further) = further_copies(safe, &table)? else {
        tally.refused = 1;
        return Ok(tally);
    };
    tally.programs = 1;
    let is_given = |n: NodeId| {
        let label = safe.node_label(n);
        given.nodes.keys().any(|old| given.node_label(old) == label)
    };
    for copy in copying(safe, &table).filter(|&n| !is_given(n)) {
        let label = safe.node_label(copy);
        let mut findings = guarded.findings.iter();
        let rule = findings.find(|f| f.by.as_deref() == Some(&*label));
        let rule = rule.map_or("no rule", |f| f.rule);
        for output in 0..safe.nodes[copy].outputs.len() {
            let Some(without) = without(safe, copy, output)? else {
                continue;
            };
            // That such a plan fails its check is what makes the copy needed.
            let now = further_copies(&without, &table).ok().flatten();
            if now.is_none_or(|now| now > further) {
                tally.needed += 1;
            } else if is_moment(safe, &table, copy, output) {
                tally.moments += 1;
            } else if is_made_again(safe, &without, &table) {
                *tally.by_rule.entry(rule.to_owned()).or_default() += 1;
            } else {
                let line = format!("{name}: output {output} of {label:?} ({rule})");
                tally.needless.push(line);
            }
        }
    }
    Ok(tally)
}

/// Nodes that copy.
fn copying<'a>(graph: &'a Graph, table: &'a OpTable) -> impl Iterator<Item = NodeId> + 'a {
    let nodes = graph.nodes.keys();
    nodes.filter(|&n| table.traits(graph, n).has(Trait::Copies))
}

/// The copies that a plan makes beyond those of the program; `None` if it cannot be planned.
fn further_copies(graph: &Graph, table: &OpTable) -> Result<Option<usize>, String> {
    let ordered = compile::before_a_plan(graph, table, &Options::of(graph));
    let ordered = ordered.map_err(|e| e.to_string())?;
    let graph = ordered.graph(graph);
    let options = PlanOptions {
        inputs: Placement::User,
        outputs: Placement::User,
        ..PlanOptions::default()
    };
    let config = Config {
        steps: Some(STEPS),
        ..Config::default()
    };
    let Ok(planned) = tenure_plan::plan(graph, table, &options, &config) else {
        return Ok(None);
    };
    match tenure_check::check(graph, table, &planned.plan) {
        Ok(_) => Ok(Some(planned.plan.copies.len())),
        Err(wrong) => Err(format!("{}\n{}", wrong[0], text::print(graph))),
    }
}

/// The program in which the readers of one output of a copying node read what it copies; `None` if
/// there are none.
fn without(graph: &Graph, copy: NodeId, output: usize) -> Result<Option<Graph>, String> {
    let node = &graph.nodes[copy];
    let (Some(from), Some(to)) = (node.input(output), node.output(output)) else {
        return Ok(None);
    };
    let mut patch = Patch::new();
    let reason = "to see whether it is needed";
    if node.outputs.len() == 1 {
        patch.push(Edit::Bypass { node: copy }, reason);
    } else {
        for (reader, node) in &graph.nodes {
            for (input, value) in (0u32..).zip(&node.inputs) {
                if *value == Some(to) {
                    let value = from;
                    let edit = Edit::Redirect {
                        reader,
                        input,
                        value,
                    };
                    patch.push(edit, reason);
                    let (before, after) = (copy, reader);
                    patch.push(Edit::AddControl { before, after }, reason);
                }
            }
        }
    }
    if patch.is_empty() {
        return Ok(None);
    }
    let (graph, _) = patch.apply(graph).map_err(|e| e.to_string())?;
    Ok(Some(graph))
}

/// Whether a copy parts a variable from memory, and one of the two is written.
fn is_moment(graph: &Graph, table: &OpTable, copy: NodeId, output: usize) -> bool {
    let Ok(classes) = Classes::build(graph, table, graph.root) else {
        return false;
    };
    let members = |class: usize| classes.lists[class].iter().map(|&m| classes.anchors[m]);
    let is_written = |class: usize| {
        members(class).any(|m| {
            let effects = table.effects(graph, m.node);
            match m.slot {
                Slot::In(i) => effects.spoils.contains(&i),
                Slot::Out(o) => effects.refs.iter().any(|alias| alias.output == o),
            }
        })
    };
    let slot = u32::try_from(output).unwrap_or(u32::MAX);
    let from = classes.class_of(Anchor::input(copy, slot));
    let to = classes.class_of(Anchor::output(copy, slot));
    let (Some(from), Some(to)) = (from, to) else {
        return false;
    };
    let is_variable = |m: Anchor| m.is_output() && table.class(graph, m.node) == OpClass::Variable;
    members(from).any(is_variable) && (is_written(from) || is_written(to))
}

/// Whether the guard, given the program without a copy, makes as many as there were, or refuses it:
/// another copy would be needed where none can stand.
fn is_made_again(with: &Graph, without: &Graph, table: &OpTable) -> bool {
    let options = Options::of(without);
    // Mostly the very program comes out, which the guard leaves as it is.
    let once = compile::once(without, table, &options);
    if once.is_ok_and(|once| once.graph(without) == with) {
        return true;
    }
    let again = compile::run(without, table, &options);
    again.map_or(true, |again| {
        copied(again.graph(without), table) >= copied(with, table)
    })
}

/// How many copies are read; what hands over an address copies as well where the hardware cannot.
fn copied(graph: &Graph, table: &OpTable) -> usize {
    let read = graph.nodes.values().flat_map(|n| n.inputs.iter().flatten());
    let read: BTreeSet<_> = read.collect();
    let moves = |&n: &NodeId| {
        let traits = table.traits(graph, n);
        traits.has(Trait::Copies) || traits.has(Trait::PassesAddress)
    };
    let nodes = graph.nodes.keys().filter(moves);
    let outputs = nodes.flat_map(|n| graph.nodes[n].outputs.iter().flatten());
    outputs.filter(|value| read.contains(value)).count()
}
