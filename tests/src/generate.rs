//! Random graphs and options, from a seed.

use arbitrary::Unstructured;
use tenure_graph::arbitrary_graph::{Size, decorate, ge, onnx};
use tenure_graph::effects::{OpClass, OpTable, demands};
use tenure_graph::plan::{ALL_NODES, Placement, PlanOptions, Sharing, Sizes};
use tenure_graph::{Attr, Graph, NodeId, StreamId, SubgraphId, ValueId};

/// A random graph with static shapes, of a dialect by the seed's parity.
///
/// # Panics
/// Never for a seed: the generators ask for fewer bytes than they get.
#[must_use]
pub fn graph(seed: u64, size: Size) -> Graph {
    let mut rng = fastrand::Rng::with_seed(seed);
    let bytes: Vec<u8> = (0..size.nodes * 64 + 256).map(|_| rng.u8(..)).collect();
    let mut u = Unstructured::new(&bytes);
    let made = if seed.is_multiple_of(2) {
        onnx(&mut u, size)
    } else {
        ge(&mut u, size)
    };
    made.expect("the generators take what is left when bytes run out")
}

/// Gives a graph what its file might say beyond its operators: sizes that are not known before the
/// run, sizes that differ from the shapes, references and scratch where the operator has none.
///
/// # Panics
/// Never for a seed, as in [`graph`].
pub fn say_more(seed: u64, graph: &mut Graph) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let bytes: Vec<u8> = (0..graph.nodes.len() * 64).map(|_| rng.u8(..)).collect();
    decorate(&mut Unstructured::new(&bytes), graph)
        .expect("the generators take what is left when bytes run out");
}

/// Gives nodes of a Graph Engine graph what its file might ask of their memory: tensors side by
/// side, kinds of memory, cleared memory, inputs that are left as garbage.
pub fn ask_more(seed: u64, graph: &mut Graph) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let table = OpTable::builtin(graph.dialect);
    let all: Vec<NodeId> = graph.nodes.keys().collect();
    let yes = || Attr::Bool(true);
    let mut cleaners: Vec<(SubgraphId, NodeId)> = Vec::new();
    for id in all {
        let node = &graph.nodes[id];
        let is_plain = table.class(graph, id) == OpClass::Compute && node.bodies.is_empty();
        if !is_plain || rng.u8(0..3) > 0 {
            continue;
        }
        let (inputs, outputs) = (node.inputs.len(), node.outputs.len());
        let subgraph = node.subgraph;
        let effects = table.effects(graph, id);
        let writes_fresh = effects.refs.is_empty() && effects.views.is_empty();
        let attrs = &mut graph.nodes[id].attrs;
        match rng.u8(0..6) {
            0 => attrs.set(demands::INPUT_MUTABLE, yes()),
            1 if inputs >= 2 => {
                let packed = rng.bool();
                let key = if packed {
                    demands::PACKED_INPUT
                } else {
                    demands::CONTIGUOUS_INPUT
                };
                attrs.set(key, yes());
                if packed && rng.bool() {
                    attrs.set(demands::ONE_MEMORY, yes());
                }
            }
            1 | 2 if outputs >= 2 => {
                let packed = rng.bool();
                let key = if packed {
                    demands::PACKED_OUTPUT
                } else {
                    demands::CONTIGUOUS_OUTPUT
                };
                attrs.set(key, yes());
                if packed && rng.bool() {
                    attrs.set(demands::ONE_MEMORY, yes());
                }
            }
            3 => attrs.set(demands::OUTPUT_KINDS, kinds(&mut rng, outputs)),
            4 => attrs.set(demands::INPUT_KINDS, kinds(&mut rng, inputs)),
            _ if writes_fresh && outputs > 0 => {
                if rng.bool() {
                    attrs.set(demands::CLEARS_OUTPUTS, Attr::List(vec![Attr::Int(0)]));
                } else {
                    let places = (0..3).map(|k| (k.to_string(), Attr::Int(0)));
                    let parts = [("part".to_owned(), Attr::Map(places.collect()))];
                    let workspaces = Attr::Map(parts.into_iter().collect());
                    attrs.set(demands::CLEARS_WORKSPACES, workspaces);
                    graph.nodes[id].workspace = [rng.i64(-1..200), 64].into_iter().collect();
                }
                let known = cleaners.iter().find(|(at, _)| *at == subgraph);
                let cleaner = known.map(|&(_, cleaner)| cleaner).unwrap_or_else(|| {
                    let name = format!("clean_{}", graph.nodes.len());
                    let cleaner = graph.add_node(subgraph, name, "AtomicAddrClean");
                    graph.nodes[cleaner].stream = graph.nodes[id].stream;
                    // It comes first.
                    let list = &mut graph.subgraphs[subgraph].nodes;
                    list.rotate_right(1);
                    cleaners.push((subgraph, cleaner));
                    cleaner
                });
                graph.nodes[id].control.push(cleaner);
            }
            _ => {
                let engine = Attr::Str(demands::COLLECTIVE_ENGINE.to_owned());
                graph.nodes[id].extra.set(demands::ENGINE, engine);
            }
        }
    }
}

/// Gives the root of a Graph Engine graph nodes that hand on whichever of their inputs comes, with
/// readers of these and of what is handed on.
pub fn merge_more(seed: u64, graph: &mut Graph) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let root = graph.root;
    let streams: Vec<Option<StreamId>> = graph.subgraphs[root]
        .nodes
        .iter()
        .map(|&n| graph.nodes[n].stream)
        .filter(Option::is_some)
        .collect();
    let mut merged: Vec<ValueId> = Vec::new();
    for _ in 0..rng.usize(1..4) {
        let nodes = graph.subgraphs[root].nodes.clone();
        let known = |v: &ValueId| graph.bytes(*v).is_some();
        let values = nodes.iter().flat_map(|&n| graph.nodes[n].outputs.iter());
        let values: Vec<ValueId> = values.copied().flatten().filter(known).collect();
        let Some(&source) = rng.choice(&values) else {
            return;
        };
        let (dtype, shape) = (
            graph.values[source].dtype,
            graph.values[source].shape.clone(),
        );
        let mut add = |graph: &mut Graph, op: &str, inputs: &[ValueId]| {
            let name = format!("{op}_{}", graph.nodes.len());
            let node = graph.add_node(root, name.clone(), op);
            graph.nodes[node].inputs = inputs.iter().map(|&v| Some(v)).collect();
            graph.nodes[node].stream = rng.choice(&streams).copied().flatten();
            // Behind all that it reads.
            let results = usize::from(graph.subgraphs[root].output.is_some());
            let list = &mut graph.subgraphs[root].nodes;
            list.pop();
            let producers = inputs.iter().map(|&v| graph.values[v].producer);
            let behind = producers.filter_map(|p| list.iter().position(|&n| n == p));
            let last = behind.max().map_or(0, |at| at + 1);
            let end = list.len().saturating_sub(results).max(last);
            list.insert(rng.usize(last..=end), node);
            let output = format!("{name}:0");
            (graph).add_output(node, output, dtype, shape.clone())
        };
        let mut all: Vec<ValueId> = (0..2 + seed % 2)
            .map(|_| add(graph, "Make", &[source]))
            .collect();
        let before = merged.last().copied();
        let same = |v: &ValueId| graph.values[*v].shape == graph.values[source].shape;
        all.extend(before.filter(same).filter(|_| seed.is_multiple_of(3)));
        let merge = add(
            graph,
            ["Merge", "StreamMerge"][usize::from(seed.is_multiple_of(2))],
            &all,
        );
        merged.push(merge);
        add(graph, "Use", &[merge]);
        add(graph, "Use", &[all[0], merge]);
    }
}

fn kinds(rng: &mut fastrand::Rng, slots: usize) -> Attr {
    let one = |_| Attr::Int([0, 0, 2, 17, 17, 18, 0x8000][rng.usize(..7)]);
    Attr::List((0..slots).map(one).collect())
}

/// Random options.
#[must_use]
pub fn options(seed: u64) -> PlanOptions {
    let mut rng = fastrand::Rng::with_seed(!seed);
    let placement = |user| {
        if user {
            Placement::User
        } else {
            Placement::Planned
        }
    };
    let mut options = PlanOptions {
        align: 1 << rng.u8(0..8),
        inputs: placement(rng.bool()),
        outputs: placement(rng.bool()),
        keep_inputs: rng.bool(),
        fold: rng.bool(),
        sharing: [Sharing::None, Sharing::Views, Sharing::Full][rng.usize(..3)],
        ..PlanOptions::default()
    };
    let lent = |rng: &mut fastrand::Rng| (rng.u8(..4) == 0).then(|| vec![rng.u32(..3)]);
    options.lent_inputs = lent(&mut rng);
    options.lent_outputs = lent(&mut rng);
    if rng.u8(..4) == 0 {
        options.sizes = Sizes::Padded;
    }
    if rng.u8(..16) == 0 {
        options.no_reuse.push(ALL_NODES.to_owned());
    }
    options
}
