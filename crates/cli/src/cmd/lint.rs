//! `tenure lint`: what a program's author should know about shared memory; nothing is changed.

use std::fmt::Write;

use serde::Serialize;
use tenure_guard::lint::{self, Code, Hit, Level, Report};
use tenure_report::sarif;

use crate::args::{FailOn, LintArgs, LintFormat, ModelArgs};
use crate::exit::{Exit, Failure};
use crate::ui::Ui;
use crate::{files, pipeline};

/// The stage that finds all this.
const STAGE: &str = "lint";

/// `lint --format json`.
#[derive(Serialize)]
struct Json<'a> {
    findings: Vec<JsonFinding<'a>>,
    /// Findings beyond those that are listed.
    left_out: u64,
    errors: usize,
    warnings: usize,
    notes: usize,
    /// What the user should know of the model.
    model_warnings: &'a [String],
}

#[derive(Serialize)]
struct JsonFinding<'a> {
    code: &'static str,
    level: &'static str,
    kind: &'static str,
    stage: &'static str,
    nodes: &'a [String],
    message: &'a str,
    harm: &'static str,
    remedy: &'static str,
    witness: Vec<JsonStep<'a>>,
}

#[derive(Serialize)]
struct JsonStep<'a> {
    node: &'a str,
    does: &'a str,
}

/// Runs the command.
pub fn run(args: LintArgs, ui: &Ui) -> Result<Exit, Failure> {
    if let Some(code) = args.explain {
        ui.data(explain(code));
        return Ok(Exit::Done);
    }
    let Some(model) = args.model else {
        return Err(Failure::bad("lint needs a model, or --explain CODE"));
    };
    // Nothing is placed, so sizes need not be known.
    let args_of_model = ModelArgs {
        model,
        dim: args.dim,
        dynamic: true,
        submodel: args.submodel,
        ops: args.ops,
    };
    let path = args_of_model.model.display().to_string();
    let graph = pipeline::read_graph(&args_of_model)?;
    let loaded = pipeline::load(graph, &args_of_model, 0.0)?;
    let mut report = lint::run(&loaded.graph, &loaded.table);
    if let Some(only) = args.only {
        report.hits.retain(|hit| hit.kind == only);
    }
    let text = match args.format {
        LintFormat::Text => text(&path, &report),
        LintFormat::Json => pretty(&json(&report, &loaded.warnings))?,
        LintFormat::Sarif => pretty(&of_sarif(&path, &report))?,
    };
    if args.format == LintFormat::Text {
        for warning in &loaded.warnings {
            ui.warn(warning);
        }
    }
    match &args.output {
        Some(output) => files::write(output, format!("{text}\n").as_bytes())?,
        None if args.format == LintFormat::Text => ui.say(text),
        None => ui.data(text),
    }
    let fails = |hit: &Hit| args.fail_on.iter().any(|&on| counts(on, hit));
    let is_bad = report.hits.iter().any(fails);
    Ok(if is_bad { Exit::No } else { Exit::Done })
}

fn counts(on: FailOn, hit: &Hit) -> bool {
    match on {
        FailOn::Never => false,
        FailOn::Level(level) => hit.code.level() >= level,
        FailOn::Code(code) => hit.code == code,
    }
}

fn pretty(value: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string_pretty(value).map_err(Failure::internal)
}

/// What a code means.
fn explain(code: Code) -> String {
    format!(
        "{}: {} ({}, {})\n\n{}\n\nWhat to do: {}\n\nMore in docs/lint.md.",
        code.name(),
        code.title(),
        code.level(),
        code.kind(),
        code.harm(),
        code.remedy()
    )
}

fn count(report: &Report, level: Level) -> usize {
    let hits = report.hits.iter();
    hits.filter(|hit| hit.code.level() == level).count()
}

/// One line a finding, one more with the schedule that goes wrong, and the sums.
fn text(path: &str, report: &Report) -> String {
    let mut out = String::new();
    for hit in &report.hits {
        let Hit {
            code,
            kind,
            message,
            witness,
            ..
        } = hit;
        // Writing to a string does not fail.
        let _ = writeln!(
            out,
            "{path}: {} [{code}, {kind}]: {message}",
            code.level(),
            code = code.name()
        );
        if !witness.is_empty() {
            let steps: Vec<String> = witness.iter().map(ToString::to_string).collect();
            let _ = writeln!(out, "    goes wrong as: {}", steps.join(" → "));
        }
    }
    if report.left_out > 0 {
        let _ = writeln!(out, "{} more findings are not listed", report.left_out);
    }
    let many = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    let sums = [
        many(count(report, Level::Error), "error"),
        many(count(report, Level::Warning), "warning"),
        many(count(report, Level::Note), "note"),
    ];
    out.push_str(&sums.join(", "));
    if !report.hits.is_empty() {
        out.push_str("; `tenure lint --explain CODE` says what a code means");
    }
    out
}

fn json<'a>(report: &'a Report, warnings: &'a [String]) -> Json<'a> {
    let finding = |hit: &'a Hit| JsonFinding {
        code: hit.code.name(),
        level: hit.code.level().name(),
        kind: hit.kind.name(),
        stage: STAGE,
        nodes: &hit.nodes,
        message: &hit.message,
        harm: hit.code.harm(),
        remedy: hit.code.remedy(),
        witness: (hit.witness.iter())
            .map(|step| JsonStep {
                node: &step.node,
                does: &step.does,
            })
            .collect(),
    };
    Json {
        findings: report.hits.iter().map(finding).collect(),
        left_out: report.left_out,
        errors: count(report, Level::Error),
        warnings: count(report, Level::Warning),
        notes: count(report, Level::Note),
        model_warnings: warnings,
    }
}

fn of_sarif(path: &str, report: &Report) -> serde_json::Value {
    let rules: Vec<sarif::Rule> = (Code::ALL.iter())
        .map(|code| sarif::Rule {
            id: code.name(),
            title: code.title(),
            harm: code.harm(),
            remedy: code.remedy(),
            level: code.level().name(),
        })
        .collect();
    let place = |code: Code| Code::ALL.iter().position(|&c| c == code);
    let findings: Vec<sarif::Finding<'_>> = (report.hits.iter())
        .filter_map(|hit| {
            Some(sarif::Finding {
                rule: place(hit.code)?,
                message: &hit.message,
                kind: hit.kind.name(),
                nodes: &hit.nodes,
                witness: (hit.witness.iter())
                    .map(|step| (step.node.as_str(), step.does.as_str()))
                    .collect(),
            })
        })
        .collect();
    sarif::log(env!("CARGO_PKG_VERSION"), path, &rules, &findings)
}
