//! `tenure guard`: the resolved graph, and one line a repair.

use serde::Serialize;
use std::collections::HashMap;
use tenure_graph::effects::OpTable;
use tenure_graph::{Graph, NodeId};
use tenure_guard::repairs::{Repair, Sums, repairs};
use tenure_guard::why::Why;
use tenure_guard::witness::Step;
use tenure_guard::{Finding, GuardError, Kind, Options, compile};

use crate::args::GuardArgs;
use crate::exit::{Exit, Failure};
use crate::ui::Ui;
use crate::{files, pipeline};

/// `guard --json`.
#[derive(Serialize)]
struct Json<'a> {
    repairs: Vec<JsonRepair<'a>>,
    /// Conflicts that no copy and no order resolves.
    unrepaired: Vec<JsonRepair<'a>>,
    copies: JsonCopies,
    control_edges: usize,
    nodes_added: usize,
    nodes_taken_out: usize,
    warnings: &'a [String],
}

#[derive(Serialize)]
struct JsonCopies {
    inserted: usize,
    bytes: u64,
}

/// One repair. What an edit alone has not is null.
#[derive(Serialize)]
struct JsonRepair<'a> {
    kind: &'static str,
    stage: &'static str,
    rule: Option<&'static str>,
    at: &'a str,
    with: Option<&'a str>,
    harm: &'a str,
    repair: &'a str,
    node: Option<&'a str>,
    bytes: Option<u64>,
    /// A schedule that goes wrong without the repair's copy.
    wrong: Option<Vec<JsonStep<'a>>>,
}

#[derive(Serialize)]
struct JsonStep<'a> {
    node: &'a str,
    does: &'a str,
}

/// Nodes that are looked at for the schedules that stand behind copies, in all of them together.
const NODES_OF_SCHEDULES: usize = 1 << 20;

/// What would go wrong without each repair's copy; of programs with very many the first ones.
fn schedules(
    repairs: &[&Repair<'_>],
    guarded: &Graph,
    table: &OpTable,
) -> Result<Vec<Option<Vec<Step>>>, GuardError> {
    let why = Why::of(guarded, table)?;
    let nodes: HashMap<String, NodeId> = (guarded.nodes.keys())
        .map(|n| (guarded.node_label(n), n))
        .collect();
    let mut left = NODES_OF_SCHEDULES;
    let of = |repair: &&Repair<'_>| {
        let Repair::Found(Finding { by, at, .. }) = repair else {
            return None;
        };
        let copy = nodes.get(by.as_ref()?)?;
        left = left.checked_sub(guarded.nodes.len())?;
        why.without_copy(*copy, at)
    };
    Ok(repairs.iter().map(of).collect())
}

/// Runs the command.
pub fn run(mut args: GuardArgs, ui: &Ui) -> Result<Exit, Failure> {
    // Nothing is placed, so sizes need not be known.
    args.model.dynamic = true;
    let path = args.model.model.display();
    let loaded = pipeline::load(pipeline::read_graph(&args.model)?, &args.model, 0.0)?;
    let (graph, table) = (&loaded.graph, &loaded.table);
    let guarded = compile::run(graph, table, &Options::of(graph))
        .map_err(|e| Failure::bad(format!("{path}: {e}")))?;
    let after = guarded.graph(graph);
    if let Some(output) = &args.output {
        files::write(output, tenure_graph::json::write(after).as_bytes())?;
    }
    let shown = |kind: Kind| args.only.is_none_or(|only| only == kind);
    let all = repairs(&guarded);
    let chosen: Vec<&Repair<'_>> = all.iter().filter(|r| shown(r.kind())).collect();
    let left = guarded.findings.iter();
    let left: Vec<&Finding> = left
        .filter(|f| f.repair.is_empty() && shown(f.kind))
        .collect();
    let sums = Sums::of(graph, after, table);
    let is_open = guarded.findings.iter().any(Finding::is_open);
    let exit = if is_open { Exit::No } else { Exit::Done };
    let wrong = schedules(&chosen, after, table);
    let wrong = wrong.map_err(|e| Failure::bad(format!("{path}: {e}")))?;
    if args.json {
        let json = Json {
            repairs: (chosen.iter().zip(&wrong))
                .map(|(repair, wrong)| json(repair, wrong.as_deref()))
                .collect(),
            unrepaired: (left.iter().map(|f| json(&Repair::Found(f), None))).collect(),
            copies: JsonCopies {
                inserted: sums.copies,
                bytes: sums.bytes,
            },
            control_edges: sums.control_edges,
            nodes_added: sums.nodes,
            nodes_taken_out: sums.taken_out,
            warnings: &loaded.warnings,
        };
        ui.data(serde_json::to_string_pretty(&json).map_err(Failure::internal)?);
        return Ok(exit);
    }
    for warning in &loaded.warnings {
        ui.warn(warning);
    }
    for (repair, wrong) in chosen.iter().zip(&wrong) {
        ui.say(repair);
        if let Some(steps) = wrong {
            let steps: Vec<String> = steps.iter().map(ToString::to_string).collect();
            ui.say(format!("    without it: {}", steps.join(" → ")));
        }
    }
    for finding in &left {
        ui.say(format!("{finding}; left as it is"));
    }
    if chosen.len() < all.len() {
        ui.say(format!(
            "{} of {} repairs are of the kind that was asked for",
            chosen.len(),
            all.len()
        ));
    }
    ui.say(sum(sums));
    Ok(exit)
}

fn json<'a>(repair: &Repair<'a>, wrong: Option<&'a [Step]>) -> JsonRepair<'a> {
    let wrong = wrong.map(|steps| {
        let json = |Step { node, does }: &'a Step| JsonStep { node, does };
        steps.iter().map(json).collect()
    });
    match *repair {
        Repair::Found(found) => JsonRepair {
            kind: found.kind.name(),
            stage: found.stage,
            rule: Some(found.rule),
            at: &found.at,
            with: Some(&*found.with).filter(|with| !with.is_empty()),
            harm: &found.harm,
            repair: &found.repair,
            node: found.by.as_deref(),
            bytes: found.bytes,
            wrong,
        },
        Repair::Edited(edited) => JsonRepair {
            kind: edited.kind.name(),
            stage: edited.stage,
            rule: None,
            at: &edited.line.node,
            with: None,
            harm: &edited.line.reason,
            repair: &edited.line.what,
            node: None,
            bytes: None,
            wrong,
        },
    }
}

/// The sums in words.
fn sum(sums: Sums) -> String {
    let many = |n: usize, one: &str, more: &str| format!("{n} {}", if n == 1 { one } else { more });
    let mut parts = vec![
        format!(
            "{} ({} bytes a run)",
            many(sums.copies, "copy", "copies"),
            sums.bytes
        ),
        many(sums.control_edges, "control edge", "control edges"),
    ];
    if sums.nodes > 0 {
        parts.push(many(sums.nodes, "other node", "other nodes"));
    }
    if sums.taken_out > 0 {
        parts.push(format!(
            "{} taken out",
            many(sums.taken_out, "node", "nodes")
        ));
    }
    parts.join(", ")
}
