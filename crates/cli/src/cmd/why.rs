//! `tenure why`: how two values stand to each other, and what shows it.

use serde::Serialize;
use tenure_graph::plan::PlanOptions;
use tenure_graph::{Graph, ValueId};
use tenure_guard::storage::Anchor;
use tenure_guard::why::{Hop, Relation, Why};
use tenure_guard::witness::Step;
use tenure_guard::{Finding, Options, compile};
use tenure_plan::{homes, lives, schedule};

use crate::args::WhyArgs;
use crate::exit::{Exit, Failure};
use crate::pipeline::{self, Loaded};
use crate::ui::Ui;

/// How many labels are named where one is not found.
const NEAR: usize = 5;

/// Up to so many nodes all rules are looked for, whatever the relation.
const FEW_NODES: usize = 10_000;

/// `why --json`. What a relation does not have is null.
#[derive(Serialize)]
struct Json<'a> {
    relation: &'static str,
    a: &'a str,
    b: &'a str,
    chain: Option<Vec<JsonHop<'a>>>,
    first: Option<String>,
    second: Option<String>,
    path: Option<Vec<JsonHop<'a>>>,
    back: Option<Vec<JsonHop<'a>>>,
    chooser: Option<&'a str>,
    /// First and last step at which each is alive in the order of the file.
    alive: [Option<[u32; 2]>; 2],
    /// The values that meet: the two, or others that are one memory with them.
    meet: Option<[String; 2]>,
    right: Option<Vec<JsonStep<'a>>>,
    wrong: Option<Vec<JsonStep<'a>>>,
    rules: Vec<JsonRule<'a>>,
    warnings: &'a [String],
}

#[derive(Serialize)]
struct JsonHop<'a> {
    from: &'a str,
    to: &'a str,
    by: &'static str,
}

#[derive(Serialize)]
struct JsonStep<'a> {
    node: &'a str,
    does: &'a str,
}

#[derive(Serialize)]
struct JsonRule<'a> {
    kind: &'static str,
    stage: &'static str,
    rule: &'static str,
    at: &'a str,
    with: &'a str,
    harm: &'a str,
    repair: &'a str,
}

/// Runs the command.
pub fn run(mut args: WhyArgs, ui: &Ui) -> Result<Exit, Failure> {
    // Nothing is placed, so sizes need not be known.
    args.model.dynamic = true;
    let path = args.model.model.display();
    let loaded = pipeline::load(pipeline::read_graph(&args.model)?, &args.model, 0.0)?;
    let (graph, table) = (&loaded.graph, &loaded.table);
    let bad = |e: &dyn std::fmt::Display| Failure::bad(format!("{path}: {e}"));
    let a = named(graph, &args.a).map_err(|e| bad(&e))?;
    let b = named(graph, &args.b).map_err(|e| bad(&e))?;
    let why = Why::of(graph, table).map_err(|e| bad(&e))?;
    let found = why.relation(a, b);
    // A rule parts what would be one memory, so between two memories there is none; what rules ask
    // of either alone is told where it is soon found.
    let asks = matches!(found, Relation::SameMemory { .. }) || graph.nodes.len() <= FEW_NODES;
    let findings = match asks {
        true => {
            let guarded = compile::run(graph, table, &Options::of(graph));
            guarded.map_err(|e| bad(&e))?.findings
        }
        false => Vec::new(),
    };
    let rules = rules(graph, &findings, a, b);
    let alive = alive(&loaded, a, b).map_err(|e| bad(&e))?;
    if args.json {
        let mut json = Json {
            relation: found.name(),
            a: &args.a,
            b: &args.b,
            chain: None,
            first: None,
            second: None,
            path: None,
            back: None,
            chooser: None,
            alive,
            meet: None,
            right: None,
            wrong: None,
            rules: rules.iter().map(|f| rule(f)).collect(),
            warnings: &loaded.warnings,
        };
        match &found {
            Relation::SameMemory { chain } => json.chain = Some(hops(chain)),
            Relation::Ordered {
                first,
                second,
                path,
            } => {
                json.first = Some(graph.value_label(*first));
                json.second = Some(graph.value_label(*second));
                json.path = Some(hops(path));
            }
            Relation::InTurn { there, back } => {
                json.path = Some(hops(there));
                json.back = Some(hops(back));
            }
            Relation::Exclusive { node } => json.chooser = Some(node),
            Relation::Apart { meet, wrong } => {
                json.meet = Some(meet.map(|v| graph.value_label(v)));
                json.wrong = Some(steps(wrong));
            }
            Relation::Unordered { meet, right, wrong } => {
                json.meet = Some(meet.map(|v| graph.value_label(v)));
                json.right = Some(steps(right));
                json.wrong = Some(steps(wrong));
            }
        }
        ui.data(serde_json::to_string_pretty(&json).map_err(Failure::internal)?);
        return Ok(Exit::Done);
    }
    for warning in &loaded.warnings {
        ui.warn(warning);
    }
    say(graph, &found, (&args.a, &args.b), alive, ui);
    for finding in rules {
        ui.say(format!("rule of the guard: {finding}"));
    }
    Ok(Exit::Done)
}

/// The answer in words.
fn say(
    graph: &Graph,
    found: &Relation,
    (a, b): (&str, &str),
    alive: [Option<[u32; 2]>; 2],
    ui: &Ui,
) {
    let list = |title: &str, steps: &[Step]| {
        ui.say(title);
        for (number, step) in (1u32..).zip(steps) {
            ui.say(format!("  {number}. {step}"));
        }
    };
    let chain = |hops: &[Hop]| {
        for Hop { from, to, by } in hops {
            ui.say(format!("  {from} -> {to} ({by})"));
        }
    };
    let meet = |meet: &[ValueId; 2]| {
        for (name, value) in [a, b].into_iter().zip(meet) {
            let other = graph.value_label(*value);
            if other != name {
                ui.say(format!(
                    "  {name} is one memory with {other}, which is what meets"
                ));
            }
        }
    };
    match found {
        Relation::SameMemory { chain: joints } => {
            let is_piece = joints.iter().any(|hop| hop.by == "piece");
            let how = if is_piece { "share bytes" } else { "are one memory" };
            ui.say(format!("same-memory: {a} and {b} {how}"));
            chain(joints);
        }
        Relation::Ordered {
            first,
            second,
            path,
        } => {
            let (first, second) = (graph.value_label(*first), graph.value_label(*second));
            ui.say(format!(
                "ordered: every use of {first} has ended before {second} is first written, so they may share memory"
            ));
            chain(path);
        }
        Relation::InTurn { there, back } => {
            ui.say(format!(
                "in-turn: {a} and {b} are used by turns and never needed together, so they may share memory"
            ));
            ui.say(format!("from a use of {a} to a write of {b}:"));
            chain(there);
            ui.say(format!("from a use of {b} to a write of {a}:"));
            chain(back);
        }
        Relation::Exclusive { node } => ui.say(format!(
            "exclusive: {node} runs either what needs {a} or what needs {b}, so they may share memory"
        )),
        Relation::Apart { meet: both, wrong } => {
            ui.say(format!("apart: {a} and {b} are needed at the same time"));
            meet(both);
            for (name, span) in [a, b].into_iter().zip(alive) {
                if let Some([first, last]) = span {
                    ui.say(format!("  {name} is alive from step {first} to {last}"));
                }
            }
            if !wrong.is_empty() {
                list("in one memory this would go wrong:", wrong);
            }
        }
        Relation::Unordered {
            meet: both,
            right,
            wrong,
        } => {
            ui.say(format!(
                "unordered: nothing orders the uses of {a} and {b} for certain"
            ));
            meet(both);
            if !right.is_empty() {
                list("in one memory this would go well:", right);
            }
            if !wrong.is_empty() {
                list("in one memory this would go wrong:", wrong);
            }
        }
    }
}

/// The steps at which two values are alive in the order of the file; `None` for what is not
/// planned.
fn alive(
    loaded: &Loaded,
    a: ValueId,
    b: ValueId,
) -> Result<[Option<[u32; 2]>; 2], tenure_plan::PlanError> {
    let (graph, table) = (&loaded.graph, &loaded.table);
    let options = PlanOptions::default();
    let homes = homes(graph, table, &options);
    let schedule = schedule(graph, table, &homes.folded)?;
    let lives = lives(graph, table, &options, &homes, &schedule);
    let span = |value: ValueId| {
        let life = &lives[value];
        Some([life.first()?.first, life.last()?.last])
    };
    Ok([span(a), span(b)])
}

/// The findings that name an anchor of one of two values, those that name both before the others.
fn rules<'a>(graph: &Graph, findings: &'a [Finding], a: ValueId, b: ValueId) -> Vec<&'a Finding> {
    let anchors = |value: ValueId| {
        let mut labels = vec![Anchor::of(graph, value).label(graph)];
        for (id, node) in graph.nodes.iter() {
            let slots = (0u32..).zip(&node.inputs);
            let reads = slots.filter(|&(_, &read)| read == Some(value));
            labels.extend(reads.map(|(i, _)| Anchor::input(id, i).label(graph)));
        }
        labels
    };
    let (of_a, of_b) = (anchors(a), anchors(b));
    let names = |of: &[String], f: &Finding| of.contains(&f.at) || of.contains(&f.with);
    let both = |f: &Finding| names(&of_a, f) && names(&of_b, f);
    let any = findings
        .iter()
        .filter(|f| names(&of_a, f) || names(&of_b, f));
    let mut found: Vec<&Finding> = any.collect();
    found.sort_by_key(|f| !both(f));
    found
}

/// The value of a label.
fn named(graph: &Graph, label: &str) -> Result<ValueId, String> {
    let mut near: Vec<(usize, String)> = Vec::new();
    for value in graph.values.keys() {
        let other = graph.value_label(value);
        if other == label {
            return Ok(value);
        }
        let same = label
            .chars()
            .zip(other.chars())
            .take_while(|(x, y)| x == y)
            .count();
        let within = !label.is_empty() && (other.contains(label) || label.contains(&*other));
        near.push((same + if within { label.len() } else { 0 }, other));
    }
    near.sort_by(|x, y| y.0.cmp(&x.0).then_with(|| x.1.cmp(&y.1)));
    near.truncate(NEAR);
    let near: Vec<String> = near.into_iter().map(|(_, label)| label).collect();
    Err(format!(
        "no value is called {label:?}; near it are: {}",
        near.join(", ")
    ))
}

fn hops<'a>(hops: &'a [Hop]) -> Vec<JsonHop<'a>> {
    let json = |Hop { from, to, by }: &'a Hop| JsonHop { from, to, by };
    hops.iter().map(json).collect()
}

fn steps<'a>(steps: &'a [Step]) -> Vec<JsonStep<'a>> {
    let json = |Step { node, does }: &'a Step| JsonStep { node, does };
    steps.iter().map(json).collect()
}

fn rule(found: &Finding) -> JsonRule<'_> {
    JsonRule {
        kind: found.kind.name(),
        stage: found.stage,
        rule: found.rule,
        at: &found.at,
        with: &found.with,
        harm: &found.harm,
        repair: &found.repair,
    }
}
