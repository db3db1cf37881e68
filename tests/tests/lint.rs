//! What the lint reports of random programs does not depend on the place of nodes in the file. More
//! programs are looked at when `TENURE_GRAPHS` gives their number.

use std::collections::BTreeSet;

use tenure_graph::effects::OpTable;
use tenure_graph::{Graph, NodeId, SubgraphId, text};
use tenure_guard::lint::{Code, run};
use tenure_tests::generate::merge_more;
use tenure_tests::needless::random;

/// How many programs are looked at.
fn graphs() -> u64 {
    std::env::var("TENURE_GRAPHS").map_or(200, |n| n.parse().expect("a number"))
}

/// Gives the nodes of each subgraph another order that is allowed.
fn shuffle(graph: &mut Graph, rng: &mut fastrand::Rng) {
    let subgraphs: Vec<SubgraphId> = graph.subgraphs.keys().collect();
    for subgraph in subgraphs {
        let mut left = graph.subgraphs[subgraph].nodes.clone();
        let result = graph.subgraphs[subgraph].output;
        let mut order: Vec<NodeId> = Vec::new();
        while !left.is_empty() {
            let waits = |n: NodeId| needs(graph, n).iter().any(|m| left.contains(m));
            let ready: Vec<usize> = (0..left.len())
                .filter(|&i| !waits(left[i]) && (left.len() == 1 || Some(left[i]) != result))
                .collect();
            let next = *rng
                .choice(&ready)
                .expect("nodes in an order that is allowed");
            order.push(left.remove(next));
        }
        graph.subgraphs[subgraph].nodes = order;
    }
}

/// The nodes beside a node that it waits for, itself or with what it runs.
fn needs(graph: &Graph, node: NodeId) -> BTreeSet<NodeId> {
    let home = graph.nodes[node].subgraph;
    let mut needs = BTreeSet::new();
    let mut list = vec![node];
    while let Some(inner) = list.pop() {
        let n = &graph.nodes[inner];
        let read = n.inputs.iter().flatten();
        let producers = read.map(|&v| graph.values[v].producer);
        let all = producers.chain(n.control.iter().copied());
        needs.extend(all.filter(|&p| graph.nodes[p].subgraph == home && p != node));
        let bodies = n
            .bodies
            .iter()
            .flat_map(|b| &graph.subgraphs[b.graph].nodes);
        list.extend(bodies);
    }
    needs
}

/// What is reported, but for the schedules, which are told against the order of the file.
fn told(graph: &Graph) -> Vec<(Code, Vec<String>, String)> {
    let report = run(graph, &OpTable::builtin(graph.dialect));
    let hits = report.hits.into_iter();
    let mut told: Vec<_> = hits.map(|h| (h.code, h.nodes, h.message)).collect();
    told.sort();
    told
}

#[test]
fn what_is_reported_does_not_depend_on_the_order_of_the_file() {
    let mut codes = BTreeSet::new();
    for seed in 0..graphs() {
        let mut graph = random(seed);
        if seed.is_multiple_of(7) && seed % 5 == 1 {
            merge_more(seed, &mut graph);
        }
        if tenure_graph::verify(&graph).is_err() {
            continue;
        }
        let found = told(&graph);
        let mut other = graph.clone();
        shuffle(&mut other, &mut fastrand::Rng::with_seed(seed));
        let again = told(&other);
        if found != again {
            let (one, two) = (text::print(&graph), text::print(&other));
            panic!("seed {seed}:\n{found:#?}\n{again:#?}\n{one}\n{two}");
        }
        codes.extend(found.iter().map(|hit| hit.0));
    }
    for code in [
        Code::UnorderedAccess,
        Code::OverwriteBeforeRead,
        Code::ConstantWritten,
        Code::CollectiveInputWritten,
        Code::SameMemoryTwoOutputs,
    ] {
        assert!(codes.contains(&code), "{code:?} is not among {codes:?}");
    }
}

#[test]
fn of_two_gears_one_runs() {
    let text = |second: &str| {
        format!(
            "model m ge graph ^root {{
               %x: float32[4] = Data()
               %v: float32[4] = Variable()
               %a: float32[4] <ref_input = 0> = Assign(%v, %x) {{_batch_label = \"one\"}}
               %b: float32[4] <ref_input = 0> = Assign(%v, %x) {{_batch_label = \"{second}\"}}
               NetOutput(%x) @out
             }}"
        )
    };
    let found = |second: &str| {
        let graph = text::parse(&text(second)).expect("a graph");
        told(&graph)
            .iter()
            .any(|(code, ..)| *code == Code::UnorderedAccess)
    };
    assert!(found("one"));
    assert!(!found("two"));
}
