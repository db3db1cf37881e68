//! The plan that a compiled model carries.

use tenure_check::{Violation, check};
use tenure_graph::Graph;
use tenure_graph::plan::{Item, Place, Plan, Storage};
use tenure_graph::plan_file::{CheckBlock, PlanFile, Summary};
use tenure_graph::recorded::Recorded;
use tenure_plan::recorded::{recorded, uncleared};
use tenure_report::grouped;

use crate::args::ModelArgs;
use crate::exit::Failure;
use crate::pipeline::{self, Loaded};

/// A plan that was in a model's file.
pub struct Carried {
    /// The plan.
    pub file: PlanFile,
    /// What the checker finds wrong with it.
    pub violations: Vec<Violation>,
    /// What else is wrong.
    pub warnings: Vec<String>,
}

/// Reads a model, and what its file records of a plan.
pub fn read(args: &ModelArgs) -> Result<(Graph, Option<Recorded>), Failure> {
    let bad = |e| Failure::bad(format!("{}: {e}", args.model.display()));
    pipeline::open(args)?.compiled().map_err(bad)
}

/// The plan of a model that records one, judged.
pub fn plan(loaded: &Loaded, record: &Recorded) -> Result<Carried, Failure> {
    let (graph, table) = (&loaded.graph, &loaded.table);
    let bad = |e| Failure::bad(format!("{}: {e}", loaded.identity.path));
    let plan = recorded(graph, table, record).map_err(bad)?;
    let (block, violations) = match check(graph, table, &plan) {
        Ok(checked) => {
            let accesses = checked.accesses();
            let passed = true;
            (CheckBlock { passed, accesses }, Vec::new())
        }
        Err(list) => (CheckBlock::default(), list),
    };
    let mut warnings: Vec<String> = unaccounted(&plan).into_iter().collect();
    let missed = uncleared(graph, table, record).into_iter();
    warnings.extend(missed.map(|(item, node)| {
        let what = match item {
            Item::Value(value) => format!("{:?}", graph.value_label(value)),
            Item::Workspace(owner, k) => {
                format!("workspace {k} of {:?}", graph.node_label(owner))
            }
            Item::Copy(k) => format!("copy {k}"),
        };
        let cleaner = graph.node_label(node);
        format!("{cleaner:?} clears other bytes than those of {what}, which must be zero")
    }));
    let summary = Summary::new(graph, &plan, 0);
    let identity = loaded.identity.clone();
    Ok(Carried {
        file: PlanFile::new(graph, identity, &plan, summary, block),
        violations,
        warnings,
    })
}

/// Said where the file's own figure is more than its buffers take: one may have been missed.
fn unaccounted(plan: &Plan) -> Option<String> {
    let end = |s: &Storage| match s.place {
        Place::Arena { arena: 0, offset } => offset.saturating_add(s.size),
        _ => 0,
    };
    let used = plan.storages.values().map(end).max().unwrap_or(0);
    let stated = plan.arenas.first().map_or(0, |a| a.size);
    (used < stated).then(|| {
        format!(
            "the model says that it takes {} bytes, and its buffers end at {}: what else there is \
             is not known",
            grouped(stated),
            grouped(used)
        )
    })
}
