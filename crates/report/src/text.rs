//! The summary on a terminal, made for 80 columns.

mod chart;
mod table;

use anstyle::{AnsiColor, Style as Ansi};

use crate::model::{ArenaView, Figures, Peak, ReportModel, StorageView, label};
use crate::name;
use crate::size::{grouped, human, percent};
use table::Column;

/// Columns of the terminal.
const WIDTH: usize = 80;
/// Rows of the table of holders.
const HOLDERS: usize = 10;
/// Warnings that are written out.
const WARNINGS: usize = 20;

/// What the terminal can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// ANSI escape codes for colour and weight.
    pub color: bool,
    /// Block characters and the names as they are; otherwise plain ASCII.
    pub unicode: bool,
}

/// The summary: the peak and where it is, what bounds it, what holds it, a chart of bytes over
/// steps. Lines end with `\n`.
///
/// ```
/// use tenure_report::{ReportModel, text};
/// let model = ReportModel::default();
/// let style = text::Style { color: false, unicode: true };
/// assert!(text::summary(&model, style).contains("nothing to place"));
/// ```
#[must_use]
pub fn summary(model: &ReportModel, style: Style) -> String {
    let paint = Paint::of(style);
    let mut out = Vec::new();
    out.push(heading(model, style));
    for arena in &model.arenas {
        out.push(String::new());
        out.extend(headline(model, arena, style));
    }
    if model.arenas.is_empty() {
        out.push(String::new());
        out.push("The plan has no arena: there is nothing to place.".to_owned());
    }
    out.push(String::new());
    out.extend(sums(model, style));
    out.push(String::new());
    out.extend(counts(&model.figures));
    if let Some((arena, peak)) = model.arena().and_then(|a| Some((a, a.peak?))) {
        let chart = chart::lines(&arena.load, peak, style);
        out.push(String::new());
        out.push(paint.strong("Bytes over steps"));
        out.extend(chart);
        out.push(String::new());
        out.push(paint.strong(&format!("Held at step {}", peak.step)));
        out.extend(holders(model, arena, peak, style));
    }
    out.extend(warnings(&model.warnings, style));
    let mut text = out.join("\n");
    text.push('\n');
    text
}

/// `resnet50: onnx, 122 nodes, 410 values`.
fn heading(model: &ReportModel, style: Style) -> String {
    let m = &model.model;
    let about = [
        name::harmless(&m.format, style),
        count(m.nodes, "node", "nodes"),
        count(m.values, "value", "values"),
    ];
    let about: Vec<String> = about.into_iter().filter(|t| !t.is_empty()).collect();
    let about = about.join(", ");
    let room = WIDTH.saturating_sub(name::width(&about) + 2);
    let title = name::shorten(&name::harmless(&m.name, style), room, style);
    let paint = Paint::of(style);
    if title.is_empty() {
        about
    } else {
        format!("{}: {about}", paint.strong(&title))
    }
}

/// The arena's size, where its peak is, and what bounds it.
fn headline(model: &ReportModel, arena: &ArenaView, style: Style) -> Vec<String> {
    let paint = Paint::of(style);
    let plan = &arena.plan;
    let mut size = format!("{} bytes ({})", grouped(plan.size), human(plan.size));
    if model.arenas.len() > 1 {
        size = format!("{}: {size}", name::harmless(&plan.kind, style));
    }
    let Some(peak) = arena.peak else {
        return vec![paint.strong(&size) + ", nothing in it"];
    };
    let step = model.steps.get(peak.step as usize);
    let node = name::harmless(step.map_or("", |s| &s.node), style);
    let place = format!(" at step {} of {}, node ", peak.step, model.steps.len());
    let room = WIDTH.saturating_sub(name::width(&size) + place.len());
    let mut out = vec![paint.strong(&size) + &place + &name::shorten(&node, room, style)];
    out.push(bound(arena, paint));
    if plan.no_reuse > plan.size {
        out.push(format!(
            "Side by side they take {} bytes ({}): sharing saves {}.",
            grouped(plan.no_reuse),
            human(plan.no_reuse),
            percent(plan.no_reuse - plan.size, plan.no_reuse),
        ));
    }
    out
}

fn bound(arena: &ArenaView, paint: Paint) -> String {
    let plan = &arena.plan;
    if plan.proven_optimal {
        let proof = if plan.lower_bound == plan.size {
            "the lower bound is reached"
        } else {
            "nothing lower is possible"
        };
        return format!(
            "{} for these storages: {proof}.",
            paint.good("Proven the least")
        );
    }
    let gap = plan.size.saturating_sub(plan.lower_bound);
    format!(
        "{}: the lower bound is {} bytes, {} less.",
        paint.warn("Not proven the least"),
        grouped(plan.lower_bound),
        percent(gap, plan.size),
    )
}

/// What the memory is for, a line a kind.
fn sums(model: &ReportModel, style: Style) -> Vec<String> {
    let bytes = &model.figures.bytes;
    let rows: Vec<Vec<String>> = [
        ("constants", bytes.constants, "outside the arena"),
        ("inputs", bytes.inputs, ""),
        ("outputs", bytes.outputs, ""),
        ("intermediates", bytes.intermediates, ""),
        ("workspaces", bytes.workspaces, ""),
    ]
    .into_iter()
    .map(|(what, bytes, note)| {
        vec![
            what.to_owned(),
            grouped(bytes),
            human(bytes),
            note.to_owned(),
        ]
    })
    .collect();
    let columns = [Column::Text, Column::Number, Column::Number, Column::Text];
    indent(table::lines(&columns, &rows, WIDTH - 2, style))
}

/// The counts of the plan as one sentence, and what the checker said.
fn counts(figures: &Figures) -> Vec<String> {
    let copies = match figures.copies.inserted {
        0 => "no copies".to_owned(),
        n => format!(
            "{} of {}",
            count(n, "copy", "copies"),
            human(figures.copies.bytes)
        ),
    };
    let mut out = vec![format!(
        "{}, {} in place, {copies}, {}",
        count(figures.storages, "storage", "storages"),
        count(figures.in_place, "value", "values"),
        count(figures.dynamic_values, "dynamic value", "dynamic values"),
    )];
    let verdict = if figures.check.passed {
        "check passed"
    } else {
        "not checked"
    };
    out.push(format!(
        "{verdict}: {}",
        count(figures.check.accesses, "access", "accesses")
    ));
    out
}

/// The biggest storages at the peak as a table.
fn holders(model: &ReportModel, arena: &ArenaView, peak: Peak, style: Style) -> Vec<String> {
    let heading = [
        "bytes",
        "share",
        "name",
        "type and shape",
        "steps",
        "last reader",
    ];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    let held = arena
        .holders
        .iter()
        .filter_map(|&id| model.storages.get(id as usize));
    let shown: Vec<&StorageView> = held.take(HOLDERS).collect();
    rows.extend(shown.iter().map(|s| holder(s, peak, style)));
    let columns = [
        Column::Number,
        Column::Number,
        Column::Cut(12),
        Column::Cut(22),
        Column::Text,
        Column::Cut(12),
    ];
    let mut lines = table::lines(&columns, &rows, WIDTH, style);
    if let Some(first) = lines.first_mut() {
        *first = Paint::of(style).faint(first);
    }
    let more = &arena.holders[shown.len()..];
    if !more.is_empty() {
        let rest = more
            .iter()
            .filter_map(|&id| model.storages.get(id as usize));
        let bytes = rest.fold(0u64, |sum, s| sum.saturating_add(s.size));
        lines.push(format!(
            "and {} with {} ({})",
            count(more.len(), "smaller one", "smaller ones"),
            human(bytes),
            percent(bytes, peak.bytes),
        ));
    }
    lines
}

fn holder(storage: &StorageView, peak: Peak, style: Style) -> Vec<String> {
    let dash = || if style.unicode { "–" } else { "-" }.to_owned();
    let member = storage.member_at(peak.step);
    let about = member.map_or_else(String::new, |m| {
        format!("{} {}", m.file.dtype, by_times(&m.file.shape, style))
    });
    let steps = storage.extent().map_or_else(dash, |life| {
        if life.first == life.last {
            life.first.to_string()
        } else {
            format!("{}{}{}", life.first, dash(), life.last)
        }
    });
    let reader = storage.last_read().map(|m| label(&m.file.last_reader));
    vec![
        grouped(storage.size),
        percent(storage.size, peak.bytes),
        name::harmless(member.map_or("", |m| &m.file.name), style),
        name::harmless(about.trim(), style),
        steps,
        reader.map_or_else(dash, |node| name::harmless(node, style)),
    ]
}

/// `[1, 64, 56, 56]` as `1×64×56×56`, which takes less room.
fn by_times(shape: &str, style: Style) -> String {
    let dims = shape
        .strip_prefix('[')
        .and_then(|s| s.strip_suffix(']'))
        .unwrap_or(shape);
    dims.replace(", ", if style.unicode { "×" } else { "x" })
}

fn warnings(warnings: &[String], style: Style) -> Vec<String> {
    let paint = Paint::of(style);
    let mut out = Vec::new();
    if !warnings.is_empty() {
        out.push(String::new());
    }
    for warning in warnings.iter().take(WARNINGS) {
        out.push(format!(
            "{} {}",
            paint.warn("warning:"),
            name::harmless(warning, style)
        ));
    }
    if let Some(more) = warnings.len().checked_sub(WARNINGS).filter(|&n| n > 0) {
        out.push(format!(
            "and {}",
            count(more, "more warning", "more warnings")
        ));
    }
    out
}

/// `no nodes`, `1 node`, `122 nodes`.
fn count(n: impl TryInto<u64>, one: &str, many: &str) -> String {
    match n.try_into().unwrap_or(u64::MAX) {
        0 => format!("no {many}"),
        1 => format!("1 {one}"),
        n => format!("{} {many}", grouped(n)),
    }
}

fn indent(lines: Vec<String>) -> Vec<String> {
    lines.into_iter().map(|line| format!("  {line}")).collect()
}

/// Colours by what they mean.
#[derive(Clone, Copy)]
struct Paint {
    color: bool,
}

impl Paint {
    fn of(style: Style) -> Self {
        Paint { color: style.color }
    }

    fn strong(self, text: &str) -> String {
        self.with(Ansi::new().bold(), text)
    }

    fn faint(self, text: &str) -> String {
        self.with(Ansi::new().dimmed(), text)
    }

    fn good(self, text: &str) -> String {
        self.with(AnsiColor::Green.on_default(), text)
    }

    fn warn(self, text: &str) -> String {
        self.with(AnsiColor::Yellow.on_default(), text)
    }

    fn peak(self, text: &str) -> String {
        self.with(AnsiColor::Red.on_default().bold(), text)
    }

    fn with(self, style: Ansi, text: &str) -> String {
        if self.color {
            format!("{style}{text}{style:#}")
        } else {
            text.to_owned()
        }
    }
}
