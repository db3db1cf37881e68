//! Two planners: one that shares nothing, and one that frees a storage after its last use. Both
//! keep what a loop touches for the whole loop.

use std::collections::{BTreeMap, BTreeSet};
use tenure_graph::control::{Pass, transfers};
use tenure_graph::effects::{OpClass, OpTable};
use tenure_graph::plan::{
    Arena, Copy, Item, Life, Member, Phase, Place, Placement, Plan, PlanOptions, Span, Step,
    Storage,
};
use tenure_graph::{Graph, NodeId, SubgraphId, ValueId};

/// Where the storages of a plan are put.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// Everything lives from the first step to the last.
    Naive,
    /// Lives end with the last use.
    Greedy,
}

pub(crate) fn plan(graph: &Graph, table: &OpTable, options: PlanOptions, style: Style) -> Plan {
    let folded = folded(graph, table, &options);
    let mut steps = Vec::new();
    lay_out(graph, table, &folded, graph.root, &mut steps);
    let mut plan = Plan {
        options,
        arenas: Vec::new(),
        steps,
        waits: Vec::new(),
        storages: tenure_graph::entity::PrimaryMap::new(),
        copies: Vec::new(),
        folded: graph.nodes.keys().filter(|n| folded.contains(n)).collect(),
        dynamic: Vec::new(),
        strategy: "test".to_owned(),
    };
    add_storages(graph, table, &folded, &mut plan, style);
    place(&mut plan);
    plan
}

fn folded(graph: &Graph, table: &OpTable, options: &PlanOptions) -> BTreeSet<NodeId> {
    let mut folded = BTreeSet::new();
    if !options.fold {
        return folded;
    }
    for &node in &graph.subgraphs[graph.root].nodes {
        let effects = table.effects(graph, node);
        let constant = |v: ValueId| {
            let producer = graph.values[v].producer;
            folded.contains(&producer) || table.class(graph, producer) == OpClass::Constant
        };
        if effects.class == OpClass::Compute
            && effects.pure
            && graph.nodes[node]
                .inputs
                .iter()
                .flatten()
                .all(|&v| constant(v))
        {
            folded.insert(node);
        }
    }
    folded
}

fn lay_out(
    graph: &Graph,
    table: &OpTable,
    folded: &BTreeSet<NodeId>,
    subgraph: SubgraphId,
    steps: &mut Vec<Step>,
) {
    for &node in &graph.subgraphs[subgraph].nodes {
        let mut push = |phase| {
            steps.push(Step {
                node,
                phase,
                stream: None,
            });
        };
        let class = table.class(graph, node);
        let idle = matches!(
            class,
            OpClass::Input | OpClass::Constant | OpClass::Variable
        );
        if idle || folded.contains(&node) {
            continue;
        }
        if graph.nodes[node].bodies.is_empty() {
            push(Phase::Run);
            continue;
        }
        push(Phase::Begin);
        for (k, body) in (0u32..).zip(&graph.nodes[node].bodies) {
            steps.push(Step {
                node,
                phase: Phase::Enter(k),
                stream: None,
            });
            lay_out(graph, table, folded, body.graph, steps);
        }
        steps.push(Step {
            node,
            phase: Phase::End,
            stream: None,
        });
    }
}

/// One storage for everything that needs memory. A reference gets a copy of its own of what it
/// refers to, and is written there.
fn add_storages(
    graph: &Graph,
    table: &OpTable,
    folded: &BTreeSet<NodeId>,
    plan: &mut Plan,
    style: Style,
) {
    let uses = Uses::of(graph, table, plan);
    let mut outside: BTreeSet<ValueId> = BTreeSet::new();
    let mut variables: BTreeSet<ValueId> = BTreeSet::new();
    let last = u32::try_from(plan.steps.len()).unwrap() - 1;
    let mut wanted: Vec<(Vec<Item>, Life)> = Vec::new();
    for (id, value) in &graph.values {
        let producer = value.producer;
        let class = table.class(graph, producer);
        let caller_input = class == OpClass::Input
            && graph.home(id) == graph.root
            && plan.options.inputs == Placement::User;
        if class == OpClass::Variable {
            variables.insert(id);
        }
        if class == OpClass::Constant
            || class == OpClass::Variable
            || caller_input
            || folded.contains(&producer)
        {
            outside.insert(id);
        }
    }
    for number in 0..plan.steps.len() {
        let step = plan.steps[number];
        if matches!(step.phase, Phase::Enter(_)) {
            continue;
        }
        let effects = table.effects(graph, step.node);
        let node = &graph.nodes[step.node];
        let scratch = effects.scratch.iter().filter(|_| step.phase != Phase::End);
        for (k, _) in (0u32..).zip(scratch) {
            wanted.push((
                vec![Item::Workspace(step.node, k)],
                Life::from_elem(uses.span(step.node), 1),
            ));
        }
        if step.phase != Phase::Run {
            for t in transfers(graph, step.node, table.class(graph, step.node)) {
                if let (Pass::View, Some(from), Some(to)) = (t.pass, t.from, t.to)
                    && variables.contains(&from)
                {
                    variables.insert(to);
                    outside.insert(to);
                }
            }
            continue;
        }
        for alias in &effects.views {
            let from = node.input(alias.input as usize);
            let to = node.output(alias.output as usize);
            if from.is_some_and(|v| variables.contains(&v)) {
                variables.extend(to);
                outside.extend(to);
            }
        }
        for alias in &effects.refs {
            let (Some(from), Some(to)) = (
                node.input(alias.input as usize),
                node.output(alias.output as usize),
            ) else {
                continue;
            };
            if variables.contains(&from) {
                variables.insert(to);
                outside.insert(to);
                continue;
            }
            if graph.bytes(to) == Some(0) {
                continue;
            }
            let k = u32::try_from(plan.copies.len()).unwrap();
            plan.copies.push(Copy {
                value: from,
                reader: step.node,
                input: alias.input,
                reason: "is written".to_owned(),
            });
            let first = uses.span(step.node).first;
            let last = uses.life[&to].last.max(first);
            outside.insert(to);
            wanted.push((
                vec![Item::Copy(k), Item::Value(to)],
                Life::from_elem(Span { first, last }, 1),
            ));
        }
    }
    for id in graph.values.keys() {
        if !outside.contains(&id)
            && let Some(&span) = uses.life.get(&id)
            && graph.bytes(id) != Some(0)
        {
            wanted.push((vec![Item::Value(id)], Life::from_elem(span, 1)));
        }
    }
    let root = &graph.subgraphs[graph.root];
    let results: Vec<ValueId> = root
        .output
        .map(|o| graph.nodes[o].inputs.iter().flatten().copied().collect())
        .unwrap_or_default();
    let caller = |items: &[Item]| {
        plan.options.outputs == Placement::User
            && items
                .iter()
                .any(|i| matches!(i, Item::Value(v) if results.contains(v)))
    };
    let kept = |items: &[Item]| {
        plan.options.keep_inputs
            && items.iter().any(|i| {
                let Item::Value(v) = i else { return false };
                graph.home(*v) == graph.root
                    && table.class(graph, graph.values[*v].producer) == OpClass::Input
            })
    };
    let mut storages = Vec::new();
    for (items, mut life) in wanted {
        if style == Style::Naive || kept(&items) {
            life = Life::from_elem(Span { first: 0, last }, 1);
        }
        let members: Vec<Member> = items
            .iter()
            .map(|&item| Member {
                item,
                offset: 0,
                bytes: bytes(graph, table, &plan.copies, item),
            })
            .collect();
        let size = members.iter().map(|m| m.bytes).max().unwrap_or(0);
        storages.push(Storage {
            place: if caller(&items) {
                Place::Caller
            } else {
                Place::Arena {
                    arena: 0,
                    offset: 0,
                }
            },
            size: size.next_multiple_of(plan.options.align),
            align: plan.options.align,
            life,
            members: members.into_iter().collect(),
        });
    }
    plan.storages = storages.into_iter().collect();
}

pub(crate) fn bytes(graph: &Graph, table: &OpTable, copies: &[Copy], item: Item) -> u64 {
    match item {
        Item::Value(v) => graph.bytes(v).unwrap(),
        Item::Workspace(n, k) => table.effects(graph, n).scratch[k as usize].size,
        Item::Copy(k) => graph.bytes(copies[k as usize].value).unwrap(),
    }
}

/// When everything is used, widened to whole loops.
struct Uses {
    span: BTreeMap<NodeId, Span>,
    life: BTreeMap<ValueId, Span>,
}

impl Uses {
    fn span(&self, node: NodeId) -> Span {
        self.span[&node]
    }

    fn of(graph: &Graph, table: &OpTable, plan: &Plan) -> Self {
        let mut span: BTreeMap<NodeId, Span> = BTreeMap::new();
        for (number, step) in (0u32..).zip(&plan.steps) {
            let s = span.entry(step.node).or_insert(Span {
                first: number,
                last: number,
            });
            s.last = number;
        }
        let mut uses = Uses {
            span,
            life: BTreeMap::new(),
        };
        for value in graph.values.keys() {
            let producer = graph.values[value].producer;
            if let Some(&s) = uses.span.get(&producer) {
                uses.add(value, s);
            } else if graph.home(value) == graph.root {
                uses.add(value, Span { first: 0, last: 0 });
            }
        }
        for (number, step) in (0u32..).zip(&plan.steps) {
            let node = step.node;
            for &value in graph.nodes[node].inputs.iter().flatten() {
                // The read counts for every loop between reader and value.
                let mut s = Span {
                    first: number,
                    last: number,
                };
                let mut at = graph.nodes[node].subgraph;
                while at != graph.home(value) {
                    let owner = graph.subgraphs[at].owner.unwrap();
                    s = uses.span[&owner];
                    at = graph.nodes[owner].subgraph;
                }
                uses.add(value, s);
            }
            if step.phase != Phase::End {
                continue;
            }
            let owner = uses.span[&node];
            for t in transfers(graph, node, table.class(graph, node)) {
                for value in [t.from, t.to].into_iter().flatten() {
                    uses.add(value, owner);
                }
            }
            // Inputs of a body live from its entry, which the owner's steps cover.
            for body in &graph.nodes[node].bodies {
                for &data in &graph.subgraphs[body.graph].inputs {
                    for &value in graph.nodes[data].outputs.iter().flatten() {
                        uses.add(value, owner);
                    }
                }
            }
        }
        uses
    }

    fn add(&mut self, value: ValueId, s: Span) {
        let life = self.life.entry(value).or_insert(s);
        life.first = life.first.min(s.first);
        life.last = life.last.max(s.last);
    }
}

/// First fit in the order of the list.
pub(crate) fn place(plan: &mut Plan) {
    let order: Vec<_> = plan.storages.keys().collect();
    place_in_order(plan, &order);
}

pub(crate) fn place_in_order(plan: &mut Plan, order: &[tenure_graph::StorageId]) {
    let mut placed: Vec<(u64, u64, Life)> = Vec::new();
    let (mut size, mut no_reuse) = (0, 0);
    for &id in order {
        let storage = &mut plan.storages[id];
        let Place::Arena { offset, .. } = &mut storage.place else {
            continue;
        };
        let mut busy: Vec<(u64, u64)> = placed
            .iter()
            .filter(|(_, _, life)| meet(life, &storage.life))
            .map(|&(from, to, _)| (from, to))
            .collect();
        busy.sort_unstable();
        let mut at = 0u64;
        for (from, to) in busy {
            if at + storage.size <= from {
                break;
            }
            at = at.max(to);
        }
        *offset = at;
        size = size.max(at + storage.size);
        no_reuse += storage.size;
        placed.push((at, at + storage.size, storage.life.clone()));
    }
    plan.arenas = vec![Arena {
        kind: "device".to_owned(),
        size,
        align: plan.options.align,
        lower_bound: 0,
        proven_optimal: false,
        no_reuse,
    }];
}

pub(crate) fn meet(a: &Life, b: &Life) -> bool {
    a.iter()
        .any(|s| b.iter().any(|t| s.first.max(t.first) <= s.last.min(t.last)))
}
