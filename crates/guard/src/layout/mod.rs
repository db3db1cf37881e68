//! Layer 3: storage classes whose anchors ask of one memory what it cannot be.
//!
//! Each analysed subgraph is first freed of what its control flow would let meet in one memory
//! ([`crate::control_flow`]); then its storage classes are built, each anchor gets its attributes,
//! and every class is cut where the [table] says so. What one class has cut is seen by
//! the checkers of the next. The whole is repeated until it adds nothing, so that running it on its
//! own result changes nothing.

pub mod attributes;
mod checkers;
mod class;
mod runs;
pub mod table;

use tenure_graph::effects::OpTable;
use tenure_graph::patch::Slot;
use tenure_graph::{Graph, SubgraphId};

use crate::Guarded;
use crate::control_flow;
use crate::error::GuardError;
use crate::finding::{Finding, Kind};
use crate::options::Options;
use crate::storage::{Anchor, Classes};
use crate::work::{Work, has_unknown_size};
use attributes::{Scope, is_static};
pub(crate) use class::may_clash;
use class::{ClassView, Cut};

const STAGE: &str = "layout";

/// Parts all anchors that cannot be one memory.
///
/// # Errors
/// Where the graph contradicts itself, or a copy is needed of a tensor of unknown size.
pub fn resolve(graph: &Graph, table: &OpTable, options: &Options) -> Result<Guarded, GuardError> {
    let mut done = Guarded::default();
    loop {
        // What is parted inside shows what must be parted around it.
        loop {
            let now = done.graph(graph);
            let flow = control_flow::isolate(now, table, analysed)?;
            let changed = flow.graph.is_some();
            done.then(flow);
            if !changed {
                break;
            }
        }
        let round = round(done.graph(graph), table, options)?;
        let is_cut = round.graph.is_some();
        // What cannot be parted is found in every round.
        done.findings.retain(|f| !f.repair.is_empty());
        done.then(round);
        if !is_cut {
            return Ok(done);
        }
    }
}

/// The subgraphs that are analysed, each with everything below it: the root, or where that has
/// unknown sizes, the highest subgraphs that have not.
#[must_use]
pub fn analysed(graph: &Graph) -> Vec<SubgraphId> {
    if is_static(graph, graph.root) {
        return vec![graph.root];
    }
    let below_dynamic = |s: SubgraphId| {
        let outer = graph.enclosing(s);
        outer.is_some_and(|outer| !is_static(graph, outer))
    };
    let subgraphs = graph.subgraphs.keys();
    subgraphs
        .filter(|&s| is_static(graph, s) && below_dynamic(s))
        .collect()
}

/// Cuts all classes once.
fn round(graph: &Graph, table: &OpTable, options: &Options) -> Result<Guarded, GuardError> {
    let mut work = Work::new(graph, table);
    let mut findings = Vec::new();
    for top in analysed(graph) {
        let classes = Classes::build(graph, table, top)?;
        for class in 0..classes.lists.len() {
            let scope = Scope {
                graph,
                table,
                options,
                top,
            };
            let (cuts, hopeless) = match ClassView::new(scope, &work, &classes, class) {
                Some(view) => view.resolve(),
                None => continue,
            };
            for cut in &cuts {
                findings.extend(insert(&mut work, cut)?);
            }
            for cut in hopeless {
                findings.push(finding(&work, &cut, String::new()));
            }
        }
    }
    work.guarded(Kind::Layout, STAGE, findings)
}

/// Whether a subgraph and what is below it has a pair in conflict: the check without an edit.
///
/// # Errors
/// Where the graph contradicts itself.
pub fn has_conflict(graph: &Graph, table: &OpTable, options: &Options) -> Result<bool, GuardError> {
    let work = Work::new(graph, table);
    for top in analysed(graph) {
        let classes = Classes::build(graph, table, top)?;
        let scope = Scope {
            graph,
            table,
            options,
            top,
        };
        let mut views = (0..classes.lists.len())
            .filter_map(|class| ClassView::new(scope, &work, &classes, class));
        if views.any(|view| {
            let (cuts, hopeless) = view.resolve();
            cuts.iter().any(|c| !c.is_free) || !hopeless.is_empty()
        }) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Makes one cut, unless a copy stands there by now.
fn insert(work: &mut Work<'_>, cut: &Cut) -> Result<Option<Finding>, GuardError> {
    let Anchor { node, slot } = cut.at;
    let graph = work.graph();
    let Some(value) = cut.at.value(graph) else {
        return Ok(None);
    };
    let stands = match slot {
        Slot::In(i) => work.is_copied_before(node, i),
        Slot::Out(_) => work.is_copied_behind(value) || work.users(value).is_empty(),
    };
    if stands {
        return Ok(None);
    }
    let reason = reason(work, cut);
    if has_unknown_size(graph, cut.at) {
        return Err(GuardError::UnknownSize {
            at: cut.at.label(graph),
            reason,
        });
    }
    let name = &graph.nodes[node].name;
    let copy = match slot {
        Slot::In(i) => {
            let name = format!("identity_{i}_{name}_MemLayoutConflict");
            work.copy_before(node, &[i], &name, &reason)?
        }
        Slot::Out(o) => {
            let name = format!("identity_{o}_{name}_MemLayoutConflict");
            let users = work.users(value).to_vec();
            work.copy_behind(&[(value, users)], &name, &reason)?
        }
    };
    let repair = format!("copied at {}", cut.at.label(work.graph()));
    let by = Some(work.graph().node_label(copy));
    let found = finding(work, cut, repair);
    Ok(Some(Finding { by, ..found }))
}

fn rule_and_harm(cut: &Cut) -> (&'static str, &'static str) {
    match cut.checker {
        Some(checker) => (checker.name(), checker.harm()),
        None => ("never-together", "the two can never be one memory"),
    }
}

fn reason(work: &Work<'_>, cut: &Cut) -> String {
    let graph = work.graph();
    let (rule, harm) = rule_and_harm(cut);
    format!(
        "{} ({}) and {} ({}): {harm} ({rule})",
        cut.pair.0.label(graph),
        cut.attributes.0,
        cut.pair.1.label(graph),
        cut.attributes.1,
    )
}

fn finding(work: &Work<'_>, cut: &Cut, repair: String) -> Finding {
    let graph = work.graph();
    let (rule, harm) = rule_and_harm(cut);
    Finding {
        kind: Kind::Layout,
        stage: STAGE,
        rule,
        at: format!("{} ({})", cut.pair.0.label(graph), cut.attributes.0),
        with: format!("{} ({})", cut.pair.1.label(graph), cut.attributes.1),
        harm: harm.to_owned(),
        bytes: (!repair.is_empty()).then(|| work.bytes(cut.at)).flatten(),
        repair,
        by: None,
    }
}
