//! Gears: a model of which one part of several runs is checked once for each, without the others.

use rustc_hash::{FxHashMap, FxHashSet};
use tenure_graph::effects::demands::{ANY_MEMORY, kind_name};
use tenure_graph::effects::{Gears, OpTable};
use tenure_graph::plan::{Arena, Item, Member, Place, Plan, Span, Storage, Wait};
use tenure_graph::{Graph, NodeId, ValueId};

use crate::findings::Findings;
use crate::layout::Layout;
use crate::order;
use crate::violation::Violation;

/// The model and its plan as they run in one gear. Ids stay what they are, steps and copies get new
/// numbers.
pub(crate) fn only(graph: &Graph, plan: &Plan, gears: &Gears, gear: u32) -> (Graph, Plan) {
    let runs = |node: NodeId| {
        graph.nodes.is_valid(node) && gears.of(node).is_none_or(|other| other == gear)
    };
    let is_made =
        |value: ValueId| graph.values.is_valid(value) && runs(graph.values[value].producer);
    let mut part = graph.clone();
    for subgraph in part.subgraphs.values_mut() {
        subgraph.nodes.retain(|&n| runs(n));
        subgraph.output = subgraph.output.filter(|&n| runs(n));
    }
    for node in part.nodes.values_mut() {
        for input in &mut node.inputs {
            *input = input.filter(|&v| is_made(v));
        }
        node.control.retain(|&n| runs(n));
    }
    // What the caller gives for other gears alone may be overwritten from the start.
    let mut read: FxHashSet<ValueId> = FxHashSet::default();
    for node in part.subgraphs.values().flat_map(|s| &s.nodes) {
        read.extend(part.nodes[*node].inputs.iter().flatten());
    }
    let mut unread: FxHashSet<ValueId> = FxHashSet::default();
    let inputs = graph.subgraphs[graph.root].inputs.iter().enumerate();
    for (_, &data) in inputs.filter(|&(k, _)| !plan.options.keeps_input(k)) {
        for output in &mut part.nodes[data].outputs {
            unread.extend(output.filter(|v| !read.contains(v)));
            *output = output.filter(|v| read.contains(v));
        }
    }
    let is_made = |value: ValueId| is_made(value) && !unread.contains(&value);
    // How many of the steps before each run.
    let mut number = Vec::with_capacity(plan.steps.len() + 1);
    let mut next = 0u32;
    for step in &plan.steps {
        number.push(next);
        next += u32::from(runs(step.node));
    }
    number.push(next);
    let at = |step: usize| number.get(step).copied().unwrap_or(next);
    let is_step = |step: u32| at(step as usize + 1) > at(step as usize);
    let span = |span: &Span| {
        let (first, end) = (at(span.first as usize), at(span.last as usize + 1));
        (first < end).then(|| Span {
            first,
            last: end - 1,
        })
    };
    let waits = plan
        .waits
        .iter()
        .filter(|w| is_step(w.step) && is_step(w.before));
    let mut copies = FxHashMap::default();
    let mut kept = Vec::new();
    for (k, copy) in (0u32..).zip(&plan.copies) {
        if runs(copy.reader) && is_made(copy.value) {
            copies.insert(k, u32::try_from(kept.len()).unwrap_or(u32::MAX));
            kept.push(copy.clone());
        }
    }
    let item = |item: Item| match item {
        Item::Value(value) => is_made(value).then_some(item),
        Item::Workspace(node, _) => runs(node).then_some(item),
        Item::Copy(k) => copies.get(&k).map(|&k| Item::Copy(k)),
    };
    // Memory of the caller for an output that this gear does not make is there all the same.
    let mut arenas = plan.arenas.clone();
    let output = part.subgraphs[part.root].output;
    let results: FxHashSet<Item> = (output.iter())
        .flat_map(|&n| part.nodes[n].inputs.iter().flatten())
        .map(|&v| Item::Value(v))
        .chain((0u32..).zip(&kept).filter_map(|(k, copy)| {
            let is_result = output == Some(copy.reader);
            is_result.then_some(Item::Copy(k))
        }))
        .collect();
    let mut storage = |storage: &Storage| {
        let members = storage.members.iter();
        let members = members.filter_map(|m| {
            Some(Member {
                item: item(m.item)?,
                ..*m
            })
        });
        let members: smallvec::SmallVec<[Member; 1]> = members.collect();
        // What nobody uses in this gear is not there.
        let is_there = !members.is_empty();
        let is_result = members.iter().any(|m| results.contains(&m.item));
        let mut place = storage.place;
        if place == Place::Caller && !is_result {
            place = Place::Arena {
                arena: u32::try_from(arenas.len()).unwrap_or(u32::MAX),
                offset: 0,
            };
            arenas.push(Arena {
                kind: kind_name(ANY_MEMORY).into_owned(),
                size: storage.size,
                align: storage.align,
                lower_bound: 0,
                proven_optimal: false,
                no_reuse: storage.size,
            });
        }
        Storage {
            place,
            size: if is_there { storage.size } else { 0 },
            life: storage
                .life
                .iter()
                .filter(|_| is_there)
                .filter_map(span)
                .collect(),
            members,
            ..storage.clone()
        }
    };
    let storages = plan.storages.values().map(&mut storage).collect();
    let part_plan = Plan {
        steps: plan
            .steps
            .iter()
            .filter(|s| runs(s.node))
            .copied()
            .collect(),
        waits: waits
            .map(|w| Wait {
                step: at(w.step as usize),
                before: at(w.before as usize),
            })
            .collect(),
        storages,
        copies: kept,
        folded: plan.folded.iter().copied().filter(|&n| runs(n)).collect(),
        dynamic: plan
            .dynamic
            .iter()
            .copied()
            .filter(|&v| is_made(v))
            .collect(),
        options: plan.options.clone(),
        arenas,
        strategy: plan.strategy.clone(),
    };
    (part, part_plan)
}

/// What can be said of the model with all its gears: the layout and the order of the steps, and that
/// what collectives use lies at the same place in all gears.
pub(crate) fn whole(graph: &Graph, table: &OpTable, plan: &Plan, gears: &Gears) -> Vec<Violation> {
    let mut findings = Findings::new(graph, plan);
    let layout = Layout::read(graph, table, plan, &mut findings);
    order::check(graph, plan, &layout, &mut findings);
    if !findings.is_empty() {
        return findings.into_list();
    }
    for values in gears.tied(graph, table) {
        let start = |&value: &ValueId| {
            let region = layout.spot(Item::Value(value))?.region;
            Some((value, region.memory, region.start))
        };
        let mut places = values.iter().filter_map(start);
        let Some((first, memory, at)) = places.next() else {
            continue;
        };
        if let Some((other, ..)) = places.find(|&(_, m, a)| (m, a) != (memory, at)) {
            findings.push(Violation::NotTied {
                first: findings.value(first),
                second: findings.value(other),
            });
        }
    }
    findings.into_list()
}
