//! What rules cost: the same model planned without them, one at a time, and on fewer streams.

use std::borrow::Cow;

use serde::Serialize;
use tenure_graph::effects::demands::{
    CLEARS_INPUTS, CLEARS_OUTPUTS, CLEARS_WORKSPACES, CONTIGUOUS_INPUT, CONTIGUOUS_OUTPUT, ENGINE,
    INPUT_KINDS, OUTPUT_KINDS, PACKED_INPUT, PACKED_OUTPUT, keeps_addresses,
};
use tenure_graph::effects::{OpTable, Trait};
use tenure_graph::plan::{Plan, PlanOptions, Sizes};
use tenure_graph::{Graph, NodeId, StreamId};
use tenure_plan::{Config, PlanError, plan, streams};

/// What one rule costs.
#[derive(Serialize)]
pub struct Cost {
    /// The rule.
    rule: &'static str,
    /// Bytes of all arenas of a plan without it.
    without: u64,
    /// How many bytes more the plan with it needs.
    costs: u64,
}

impl Cost {
    /// One line for people.
    pub fn line(&self) -> String {
        format!(
            "{}: {} bytes ({} without it)",
            self.rule, self.costs, self.without
        )
    }
}

/// Bytes of all arenas.
pub fn bytes(plan: &Plan) -> u64 {
    plan.arenas.iter().map(|a| a.size).sum()
}

/// What each rule that a plan of `size` bytes keeps to costs: what a plan without it saves. Rules
/// that have nothing to say of the model are left out.
///
/// # Errors
/// Those of the planner, where a plan without a rule cannot be made.
pub fn costs(
    graph: &Graph,
    table: &OpTable,
    options: &PlanOptions,
    config: &Config,
    size: u64,
) -> Result<Vec<Cost>, PlanError> {
    let free = PlanOptions {
        keep_inputs: false,
        lent_inputs: None,
        lent_outputs: None,
        ..options.clone()
    };
    let aligned = PlanOptions {
        align: 1,
        ..options.clone()
    };
    let raw = PlanOptions {
        sizes: Sizes::Raw,
        ..options.clone()
    };
    let shared = PlanOptions {
        no_reuse: Vec::new(),
        ..options.clone()
    };
    let without = |keys: &[&str]| {
        let asks = graph
            .nodes
            .values()
            .any(|n| keys.iter().any(|k| n.attrs.get(k).is_some()));
        let mut graph = Cow::Borrowed(graph);
        if asks {
            for node in graph.to_mut().nodes.values_mut() {
                keys.iter().for_each(|key| drop(node.attrs.remove(key)));
            }
        }
        (asks, graph)
    };
    let runs = without(&[
        CONTIGUOUS_INPUT,
        CONTIGUOUS_OUTPUT,
        PACKED_INPUT,
        PACKED_OUTPUT,
    ]);
    let cleared = without(&[CLEARS_INPUTS, CLEARS_OUTPUTS, CLEARS_WORKSPACES]);
    let kinds = without(&[INPUT_KINDS, OUTPUT_KINDS]);
    let mut one_stream = Cow::Borrowed(graph);
    let on_streams = streams::used(graph) > 1;
    if on_streams {
        on_one_stream(one_stream.to_mut());
    }
    let same = || Cow::Borrowed(graph);
    let mut costs = Vec::new();
    let mut add = |rule, applies, graph: Cow<'_, Graph>, table: &OpTable, options: &PlanOptions| {
        if applies {
            let without = bytes(&plan(&graph, table, options, config)?.plan);
            costs.push(Cost {
                rule,
                without,
                costs: size.saturating_sub(without),
            });
        }
        Ok::<(), PlanError>(())
    };
    let lends = "inputs and outputs lend their memory to nobody";
    add(lends, free != *options, same(), table, &free)?;
    add("alignment", options.align > 1, same(), table, &aligned)?;
    let is_padded = options.sizes != Sizes::Raw;
    add("bytes to spare", is_padded, same(), table, &raw)?;
    let are_named = !options.no_reuse.is_empty();
    add("memory of named nodes", are_named, same(), table, &shared)?;
    add("tensors side by side", runs.0, runs.1, table, options)?;
    let ahead = "memory that is cleared ahead";
    add(ahead, cleared.0, cleared.1, table, options)?;
    add("kinds of memory", kinds.0, kinds.1, table, options)?;
    // Only the caller's memory is elsewhere in each run.
    if options.has_callers_memory()
        && let Some((table, told)) = told_addresses(graph, table)
    {
        add("fixed addresses", true, Cow::Owned(told), &table, options)?;
    }
    add("streams", on_streams, one_stream, table, options)?;
    Ok(costs)
}

/// The graph and the table without nodes that keep the addresses that they were loaded with; `None`
/// where there are none.
fn told_addresses(graph: &Graph, table: &OpTable) -> Option<(OpTable, Graph)> {
    let keep = |&n: &NodeId| keeps_addresses(graph, table, n);
    let nodes: Vec<NodeId> = graph.nodes.keys().filter(keep).collect();
    if nodes.is_empty() {
        return None;
    }
    let mut told = graph.clone();
    for node in nodes {
        told.nodes[node].extra.remove(ENGINE);
    }
    Some((table.without(Trait::FixedAddress), told))
}

/// Puts all nodes on one stream.
fn on_one_stream(graph: &mut Graph) {
    for node in graph.nodes.values_mut() {
        node.stream = node.stream.map(|_| StreamId::from_u32(0));
    }
}

/// What runs side by side.
#[derive(Serialize)]
pub struct Streams {
    /// Streams that the plan runs on.
    used: usize,
    /// Steps that others wait for.
    events: usize,
    /// Waits for these.
    waits: usize,
    /// What it costs in memory.
    peaks: Vec<Peak>,
}

/// Bytes of all arenas of a plan on so many streams.
#[derive(Serialize)]
pub struct Peak {
    /// How many streams.
    pub streams: usize,
    /// How many bytes.
    pub bytes: u64,
}

impl Streams {
    /// Counts them, and says what fewer cost.
    pub fn new(graph: &Graph, plan: &Plan, peaks: Vec<Peak>) -> Self {
        let mut events: Vec<u32> = plan.waits.iter().map(|w| w.before).collect();
        events.sort_unstable();
        events.dedup();
        Streams {
            used: streams::used(graph),
            events: events.len(),
            waits: plan.waits.len(),
            peaks,
        }
    }

    /// One line for people.
    pub fn line(&self) -> String {
        let peak = |p: &Peak| format!("{} on {}", p.bytes, p.streams);
        let peaks: Vec<String> = self.peaks.iter().map(peak).collect();
        format!(
            "Streams: {}, with {} events and {} waits; bytes at the peak by streams: {}",
            self.used,
            self.events,
            self.waits,
            peaks.join(", ")
        )
    }
}

/// The peaks of plans on fewer streams: one, and each power of two below those that are wanted.
pub fn peaks(
    mut graph: Graph,
    table: &OpTable,
    options: &PlanOptions,
    config: &Config,
    wanted: u32,
) -> Result<Vec<Peak>, PlanError> {
    let mut peaks = Vec::new();
    let is_given = streams::used(&graph) > 1;
    if is_given {
        on_one_stream(&mut graph);
    }
    let fewer = std::iter::successors(Some(1u32), |n| n.checked_mul(2));
    let fewer = fewer.take_while(|&n| n < wanted && (n == 1 || !is_given));
    for count in fewer {
        let graph = streams::spread(graph.clone(), table, options, count);
        let planned = plan(&graph, table, options, config)?;
        peaks.push(Peak {
            streams: streams::used(&graph),
            bytes: bytes(&planned.plan),
        });
    }
    Ok(peaks)
}
