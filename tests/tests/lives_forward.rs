//! Lives from the planner's one backward sweep, compared with a forward calculation: a value is
//! held at a step if the step lies on a path of execution from a write of the value to a read of
//! it. Paths go through every branch and any number of passes of a loop.

use std::collections::BTreeSet;

use tenure_graph::arbitrary_graph::Size;
use tenure_graph::control::{Pass, Point, transfers};
use tenure_graph::effects::{OpClass, OpTable};
use tenure_graph::entity::SecondaryMap;
use tenure_graph::plan::{Phase, Placement, PlanOptions, Sharing};
use tenure_graph::{Graph, NodeId, ValueId, text};
use tenure_plan::{Home, Schedule, homes, lives, schedule};
use tenure_tests::generate::graph;

/// Which steps read and write each value, and which step may follow which.
struct Flow {
    next: Vec<Vec<usize>>,
    reads: SecondaryMap<ValueId, BTreeSet<usize>>,
    /// Steps that make the whole value.
    writes: SecondaryMap<ValueId, BTreeSet<usize>>,
}

fn flow(graph: &Graph, table: &OpTable, schedule: &Schedule) -> Flow {
    let n = schedule.steps.len();
    let mut flow = Flow {
        next: vec![Vec::new(); n],
        reads: SecondaryMap::new(),
        writes: SecondaryMap::new(),
    };
    let find = |node: NodeId, phase: Phase| {
        let is = |s: &tenure_graph::plan::Step| s.node == node && s.phase == phase;
        schedule.steps.iter().position(is)
    };
    for (i, step) in schedule.steps.iter().enumerate() {
        let node = step.node;
        let class = table.class(graph, node);
        let effects = table.effects(graph, node);
        let bodies = &graph.nodes[node].bodies;
        let leave = |k: u32| {
            let body = bodies[k as usize].graph;
            find(graph.subgraphs[body].output.unwrap(), Phase::Run).unwrap()
        };
        match step.phase {
            Phase::Run => {
                for (k, value) in (0u32..).zip(&graph.nodes[node].inputs) {
                    if let Some(value) = *value
                        && !effects.shape_only.contains(&k)
                    {
                        flow.reads[value].insert(i);
                    }
                }
                for value in graph.nodes[node].outputs.iter().flatten() {
                    flow.writes[*value].insert(i);
                }
                let home = graph.nodes[node].subgraph;
                let last_of_body = graph.subgraphs[home].output == Some(node);
                if i + 1 < n && !(last_of_body && home != graph.root) {
                    flow.next[i].push(i + 1);
                }
            }
            Phase::Begin => {
                let end = find(node, Phase::End).unwrap();
                let enter = |k| find(node, Phase::Enter(k)).unwrap();
                let count = u32::try_from(bodies.len()).unwrap();
                match class {
                    OpClass::Branch => flow.next[i].extend((0..count).map(enter)),
                    OpClass::Call | OpClass::While => flow.next[i].push(enter(0)),
                    _ => {
                        flow.next[i].push(end);
                        flow.next[i].extend((0..count).map(enter));
                    }
                }
                for k in 0..count {
                    let follow = &mut flow.next[leave(k)];
                    match class {
                        OpClass::Branch | OpClass::Call => follow.push(end),
                        OpClass::While if k == 0 => follow.extend([enter(1), end]),
                        OpClass::While => follow.push(enter(0)),
                        _ => {
                            follow.push(end);
                            follow.extend((0..count).map(enter));
                        }
                    }
                }
                for value in graph.nodes[node].inputs.iter().flatten() {
                    flow.reads[*value].insert(i);
                }
            }
            Phase::Enter(_) => flow.next[i].push(i + 1),
            Phase::End => {
                flow.next[i].extend((i + 1 < n).then_some(i + 1));
                for t in transfers(graph, node, class) {
                    let at = match t.at {
                        Point::Begin => find(node, Phase::Begin).unwrap(),
                        Point::Enter(k) => find(node, Phase::Enter(k)).unwrap(),
                        Point::Leave(k) => leave(k),
                    };
                    if let Some(from) = t.from {
                        flow.reads[from].insert(at);
                    }
                    if let Some(to) = t.to {
                        match t.pass {
                            // Slices come together from the start of the loop to its end.
                            Pass::Append | Pass::Put => {
                                flow.writes[to].insert(find(node, Phase::Begin).unwrap());
                                flow.reads[to].insert(i);
                            }
                            _ => {
                                flow.writes[to].insert(at);
                            }
                        }
                    }
                }
            }
        }
    }
    for &data in &graph.subgraphs[graph.root].inputs {
        for value in graph.nodes[data].outputs.iter().flatten() {
            flow.writes[*value].insert(0);
        }
    }
    flow
}

/// Steps on a path from a write to a read, without another write in between.
fn forward(flow: &Flow, value: ValueId) -> BTreeSet<usize> {
    let mut previous = vec![Vec::new(); flow.next.len()];
    for (i, next) in flow.next.iter().enumerate() {
        for &j in next {
            previous[j].push(i);
        }
    }
    // Backwards from the reads: where the value is still needed afterwards.
    let mut needed_after: BTreeSet<usize> = BTreeSet::new();
    let mut work: Vec<usize> = flow.reads[value].iter().copied().collect();
    let mut seen: BTreeSet<usize> = work.iter().copied().collect();
    // A step that writes the value and reads it (a loop's border) needs it before itself as well.
    while let Some(step) = work.pop() {
        for &before in &previous[step] {
            needed_after.insert(before);
            if !flow.writes[value].contains(&before) && seen.insert(before) {
                work.push(before);
            }
        }
    }
    // Forwards from the writes, along steps after which it is needed.
    let mut held: BTreeSet<usize> = flow.writes[value].clone();
    let mut work: Vec<usize> = held.iter().copied().collect();
    while let Some(step) = work.pop() {
        if needed_after.contains(&step) {
            for &after in &flow.next[step] {
                let wanted = seen.contains(&after);
                if wanted && held.insert(after) {
                    work.push(after);
                }
            }
        }
    }
    held
}

#[test]
fn the_sweep_agrees_with_the_forward_calculation() {
    let mut compared = 0;
    for seed in 0..600 {
        let graph = graph(seed, Size::default());
        let table = OpTable::builtin(graph.dialect);
        let options = PlanOptions {
            inputs: Placement::Planned,
            sharing: Sharing::Views,
            ..PlanOptions::default()
        };
        let homes = homes(&graph, &table, &options);
        let schedule = schedule(&graph, &table, &homes.folded).unwrap();
        let lives = lives(&graph, &table, &options, &homes, &schedule);
        let flow = flow(&graph, &table, &schedule);
        for (value, node) in graph.values.iter().map(|(v, value)| (v, value.producer)) {
            if homes.of[value] != Home::Planned {
                continue;
            }
            let swept: BTreeSet<usize> = lives[value]
                .iter()
                .flat_map(|s| s.first as usize..=s.last as usize)
                .collect();
            let forward = forward(&flow, value);
            let class = table.class(&graph, node);
            let missing: Vec<_> = forward.difference(&swept).collect();
            // The sweep holds results of a node with bodies at its end, and counts a loop's
            // inputs for the whole loop: more than a path needs, but only at borders.
            let extra: Vec<_> = swept
                .difference(&forward)
                .filter(|&&i| schedule.steps[i].phase == Phase::Run && class == OpClass::Compute)
                .collect();
            assert!(
                missing.is_empty() && extra.is_empty(),
                "seed {seed}, value {}: missing {missing:?}, extra {extra:?}\n{}",
                graph.value_label(value),
                text::print(&graph)
            );
            compared += 1;
        }
    }
    assert!(compared > 5000, "only {compared} lives were compared");
}
