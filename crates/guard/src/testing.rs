//! What the unit tests of passes share: a graph as text, and what a pass changes in it.

use tenure_graph::effects::OpTable;
use tenure_graph::{Dialect, Graph, text};

use crate::{GuardError, Guarded, Options};

/// A pass.
pub(crate) type Run = fn(&Graph, &OpTable, &Options) -> Result<Guarded, GuardError>;

/// A graph whose nodes are the given lines.
pub(crate) fn graph(lines: &str) -> Graph {
    let body: String = lines
        .lines()
        .map(|l| format!("  {}\n", l.trim_end()))
        .collect();
    text::parse(&format!("model m ge\ngraph ^g {{\n{body}}}\n")).unwrap()
}

/// The lines that a pass takes away (-) and adds (+).
pub(crate) fn changes(run: Run, lines: &str, options: &Options) -> String {
    let before = graph(lines);
    let table = OpTable::builtin(Dialect::Ge);
    let done = match run(&before, &table, options) {
        Ok(done) => done,
        Err(error) => return format!("! {error}"),
    };
    let (old, new) = (text::print(&before), text::print(done.graph(&before)));
    let gone = old.lines().filter(|l| !new.lines().any(|n| n == *l));
    let come = new.lines().filter(|n| !old.lines().any(|l| l == *n));
    let gone = gone.map(|l| format!("- {}", l.trim()));
    let come = come.map(|l| format!("+ {}", l.trim()));
    gone.chain(come).collect::<Vec<_>>().join("\n")
}

/// What a pass changes in each of several graphs, with what each is about.
pub(crate) fn report(run: Run, options: &Options, cases: &[(&str, &str)]) -> String {
    let of = |(about, lines): &(&str, &str)| format!("{about}\n{}\n", changes(run, lines, options));
    cases.iter().map(of).collect::<Vec<_>>().join("\n")
}
