//! `assign` in the reference system's own accounting: sizes as the file records them or padded,
//! buffers in steps of 512 bytes, inputs and outputs in the arena and lent only where listed.

use serde_json::Value;
use tenure_graph::effects::demands::{PACKED_INPUT, PACKED_OUTPUT, flag};
use tenure_graph::effects::{OpTable, cleared};
use tenure_graph::plan::{ALL_NODES, Item, Life, Place, Plan, PlanOptions, Sizes};
use tenure_graph::{Graph, ValueId};
use tenure_plan::{Classes, Config, Watch};

use super::assign::{checked, shaped};
use crate::case::GraphCase;
use crate::expect::Judge;

/// What `expect` calls the arenas, and their names in a plan.
const ARENAS: [(&str, &str); 3] = [("hbm", "device"), ("p2p", "p2p"), ("session", "session")];

/// Runs the kind.
pub fn run(case: &GraphCase, judge: &mut Judge<'_>) {
    let refused = judge.take("error").and_then(Value::as_bool) == Some(true);
    let made = case.graph.as_ref().map_err(Clone::clone);
    let made = made.and_then(|graph| Made::new(case, graph.clone()));
    match made {
        Ok(_) if refused => judge.fail("an error was expected, a plan was made"),
        Ok(made) => made.judge(judge),
        Err(_) if refused => {}
        Err(error) => judge.fail(error),
    }
}

/// A plan, and what it was made of.
struct Made {
    graph: Graph,
    table: OpTable,
    classes: Classes,
    plan: Plan,
}

impl Made {
    fn new(case: &GraphCase, graph: Graph) -> Result<Self, String> {
        let (mut graph, table) = shaped(graph)?;
        // Here a reference is one memory, whoever writes in it and whoever reads it afterwards.
        let values: Vec<ValueId> = graph.values.keys().collect();
        for value in values {
            let made = &graph.values[value];
            let hints = made.hints.as_ref();
            let source = hints.and_then(|h| h.ref_input).and_then(|input| {
                let producer = &graph.nodes[made.producer];
                producer.input(input as usize)
            });
            // A longer one is written all the same.
            let bytes = |value| graph.bytes(value).max(graph.asked_bytes(value));
            if source.is_some_and(|source| bytes(value) <= bytes(source))
                && let Some(hints) = &mut graph.values[value].hints
            {
                hints.reuse_input = hints.ref_input.take();
            }
        }
        let options = options(case, &graph);
        let memory = tenure_plan::memory(&graph, &table, &options).map_err(|e| e.to_string())?;
        let classes = memory.classes.clone();
        let config = Config::default();
        let planned = tenure_plan::assign(memory, &options, &config, &Watch::default())
            .map_err(|e| e.to_string())?;
        let plan = planned.plan;
        checked(&graph, &table, &plan)?;
        let device = case.option("device_memory").and_then(Value::as_u64);
        let needed: u64 = plan.arenas.iter().map(|a| a.size).sum();
        if let Some(device) = device.filter(|&device| device < needed) {
            return Err(format!(
                "the plan needs {needed} bytes, and the device has {device}"
            ));
        }
        Ok(Made {
            graph,
            table,
            classes,
            plan,
        })
    }

    fn judge(&self, judge: &mut Judge<'_>) {
        let figures = |value: Option<&Value>| -> Vec<(&'static str, u64)> {
            let of = |name: &str| match value {
                Some(Value::Object(figures)) => figures.get(name).and_then(Value::as_u64),
                Some(figure) => figure.as_u64().filter(|_| name == "hbm"),
                None => None,
            };
            let named = ARENAS.iter();
            named
                .filter_map(|&(name, arena)| Some((arena, of(name)?)))
                .collect()
        };
        for key in ["arena_at_most", "arena_best_known"] {
            for (arena, most) in figures(judge.take(key)) {
                let size = self.size(arena);
                if size > most {
                    judge.fail(format!("{key}: {arena}: {size} bytes, expected {most}"));
                }
            }
        }
        for (arena, least) in figures(judge.take("arena_at_least")) {
            let size = self.size(arena);
            if size < least {
                judge.fail(format!("arena_at_least: {arena}: {size}, expected {least}"));
            }
        }
        // What the least is, is known; ours may be below where the pieces of runs are held apart.
        judge.take("arena_lower_bound");
        for (a, b) in judge.pairs("must_not_share") {
            match (self.range(a), self.range(b)) {
                (Some(x), Some(y)) => {
                    if x.0 == y.0 && x.1 < y.2 && y.1 < x.2 {
                        judge.fail(format!("must_not_share: {a} and {b} share bytes"));
                    }
                }
                _ => judge.fail(format!("must_not_share: {a} or {b} has no place")),
            }
        }
        for (a, b) in judge.pairs("may_share") {
            match (self.class(a), self.class(b)) {
                (Some(x), Some(y)) if self.may_share(x, y) => {}
                _ => judge.fail(format!("may_share: {a} and {b} are kept apart")),
            }
        }
        for (a, b) in judge.pairs("must_share") {
            let start = |name| self.range(name).map(|(arena, first, _)| (arena, first));
            if start(a).is_none() || start(a) != start(b) {
                judge.fail(format!("must_share: {a} and {b} are not one memory"));
            }
        }
        let groups = |list: &[Value]| -> Vec<Vec<String>> {
            let names = |group: &Value| -> Vec<String> {
                let names = group.as_array().into_iter().flatten();
                names
                    .filter_map(|n| n.as_str().map(str::to_owned))
                    .collect()
            };
            list.iter().map(names).collect()
        };
        for group in groups(judge.list("same_offset")) {
            let starts = group.iter().map(|n| self.range(n).map(|r| (r.0, r.1)));
            let starts: Vec<_> = starts.collect();
            if starts.iter().any(|s| s.is_none() || *s != starts[0]) {
                judge.fail(format!("same_offset: {group:?}: {starts:?}"));
            }
        }
        for group in groups(judge.list("contiguous")) {
            for pair in group.windows(2) {
                if !self.is_behind(&pair[0], &pair[1]) {
                    judge.fail(format!("contiguous: {pair:?}"));
                }
            }
        }
        for name in judge.list("prezeroed").iter().filter_map(Value::as_str) {
            let item = self.item(name);
            let node = item.and_then(|item| item.maker(&self.graph, &self.plan.copies));
            let all = node.map(|node| cleared(&self.graph, &self.table, node));
            let mut all = all.into_iter().flatten();
            if !all.any(|c| Some(c.item) == item) {
                judge.fail(format!("prezeroed: nothing clears {name}"));
            }
        }
        for name in judge.list("no_memory").iter().filter_map(Value::as_str) {
            let is_there = self.value(name).is_some() || self.has_workspace(name);
            let takes = self.range(name).is_some_and(|(_, from, to)| from < to);
            if !is_there || takes {
                judge.fail(format!("no_memory: {name} has a place or does not exist"));
            }
        }
    }

    fn size(&self, arena: &str) -> u64 {
        let arenas = self.plan.arenas.iter().filter(|a| a.kind == arena);
        arenas.map(|a| a.size).sum()
    }

    fn value(&self, name: &str) -> Option<ValueId> {
        let mut values = self.graph.values.keys();
        values.find(|&v| self.graph.value_label(v) == name)
    }

    /// Whether a node of the case lists a workspace of this name, be it one that takes no memory.
    fn has_workspace(&self, name: &str) -> bool {
        let Some((node, place)) = name.split_once("#ws:") else {
            return false;
        };
        let mut nodes = self.graph.nodes.keys();
        let node = nodes.find(|&n| self.graph.node_label(n) == node);
        node.zip(place.parse().ok())
            .is_some_and(|(n, k): (_, usize)| k < self.graph.nodes[n].workspace.len())
    }

    /// What has a place, by its name in cases.
    fn item(&self, name: &str) -> Option<Item> {
        let members = self.plan.storages.values().flat_map(|s| &s.members);
        members.map(|m| m.item).find(|&i| self.is_named(i, name))
    }

    fn is_named(&self, item: Item, name: &str) -> bool {
        match item {
            Item::Value(value) => self.graph.value_label(value) == name,
            Item::Workspace(node, k) => format!("{}#ws:{k}", self.graph.node_label(node)) == name,
            Item::Copy(_) => false,
        }
    }

    /// Arena, first byte and the byte after the last.
    fn range(&self, name: &str) -> Option<(u32, u64, u64)> {
        self.plan.storages.values().find_map(|storage| {
            let mut members = storage.members.iter();
            let member = members.find(|m| self.is_named(m.item, name))?;
            let Place::Arena { arena, offset } = storage.place else {
                return None;
            };
            let first = offset + member.offset;
            Some((arena, first, first + member.bytes))
        })
    }

    fn class(&self, name: &str) -> Option<usize> {
        let mut classes = self.classes.classes.iter();
        classes.position(|class| class.members.iter().any(|m| self.is_named(m.item, name)))
    }

    /// Whether two classes may have bytes in common.
    fn may_share(&self, a: usize, b: usize) -> bool {
        let (x, y) = (&self.classes.classes[a], &self.classes.classes[b]);
        let meets = |x: &Life, y: &Life| {
            x.iter()
                .any(|s| y.iter().any(|t| s.first <= t.last && t.first <= s.last))
        };
        let apart = (a.min(b), a.max(b));
        let gears = x.gear.zip(y.gear);
        let are_exclusive = gears.is_some_and(|(x, y)| x != y);
        a == b
            || are_exclusive
            || x.kind == y.kind && !meets(&x.life, &y.life) && !self.classes.apart.contains(&apart)
    }

    /// Whether the second starts where the first ends, as the run that they are in says.
    fn is_behind(&self, first: &str, second: &str) -> bool {
        let (Some(a), Some(b)) = (self.range(first), self.range(second)) else {
            return false;
        };
        let Some(value) = self.value(first) else {
            return false;
        };
        let mut nodes = self.graph.nodes.values();
        let is_packed = nodes.any(|n| {
            let mut inputs = n.inputs.iter().chain(&n.outputs).flatten();
            inputs.any(|&v| v == value)
                && (flag(&n.attrs, PACKED_INPUT) || flag(&n.attrs, PACKED_OUTPUT))
        });
        let held = self.plan.options.held(&self.graph, value).unwrap_or(0);
        let distance = match is_packed {
            true => self.graph.bytes(value).unwrap_or(0),
            false => held.next_multiple_of(self.plan.options.align),
        };
        a.0 == b.0 && b.1 == a.1 + distance
    }
}

fn options(case: &GraphCase, graph: &Graph) -> PlanOptions {
    let listed = |name| -> Vec<u32> {
        let list = case.option(name).and_then(Value::as_array);
        let numbers = list.into_iter().flatten().filter_map(Value::as_u64);
        numbers.filter_map(|n| u32::try_from(n).ok()).collect()
    };
    let wanted = listed("input_reuse_mem_indexes");
    let inputs = &graph.subgraphs[graph.root].inputs;
    let index = |position: u32| {
        let data = inputs.get(position as usize);
        let stated = data.and_then(|&n| graph.nodes[n].attrs.int("index"));
        stated.unwrap_or(i64::from(position))
    };
    let positions = 0..u32::try_from(inputs.len()).unwrap_or(u32::MAX);
    let lent = positions.filter(|&p| wanted.iter().any(|&w| i64::from(w) == index(p)));
    let disabled = case.option("disable_reuse").and_then(Value::as_bool) == Some(true);
    PlanOptions {
        align: 512,
        fold: false,
        sizes: Sizes::Padded,
        lent_inputs: Some(lent.collect()),
        lent_outputs: Some(listed("output_reuse_mem_indexes")),
        no_reuse: disabled.then(|| ALL_NODES.to_owned()).into_iter().collect(),
        ..PlanOptions::default()
    }
}
