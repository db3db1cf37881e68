//! Whether one node has ended when another starts, and whether they work in one memory.

use tenure_graph::effects::{OpClass, OpTable, Trait};
use tenure_graph::patch::Slot;
use tenure_graph::{Attr, Graph, NodeId, SubgraphId};
use tenure_guard::storage::{self, Anchor, Classes};

use crate::kinds::edited::find;

/// That the reader's memory is not the writer's, or that it has been read before it is written.
pub fn no_race(
    graph: &Graph,
    (writer, i, reader, j): (String, u32, String, u32),
) -> Result<(), String> {
    let missing = |name: &str| format!("there is no node {name:?}");
    let write = find(graph, &writer).ok_or_else(|| missing(&writer))?;
    let read = find(graph, &reader).ok_or_else(|| missing(&reader))?;
    let table = OpTable::builtin(graph.dialect);
    let classes = Classes::build(graph, &table, graph.root).map_err(|e| e.to_string())?;
    let one_memory = classes.same(Anchor::input(write, i), Anchor::input(read, j));
    if one_memory && !is_before(graph, read, write) {
        return Err(format!("{writer} writes what {reader} may read later"));
    }
    Ok(())
}

/// That nothing is written in the memory of an output after its node made it, unless it is a
/// variable that is assigned.
pub fn no_overwrite(graph: &Graph, name: &str, output: usize) -> Result<(), String> {
    let node = find(graph, name).ok_or_else(|| format!("there is no node {name:?}"))?;
    let table = OpTable::builtin(graph.dialect);
    let classes = Classes::build(graph, &table, graph.root).map_err(|e| e.to_string())?;
    let source = Anchor::output(node, u32::try_from(output).map_err(|e| e.to_string())?);
    let Some(class) = classes.class_of(source) else {
        return Err(format!("{name}:{output} has no memory"));
    };
    for member in classes.lists[class].iter().map(|&m| classes.anchors[m]) {
        let is_variable = table.class(graph, node) == OpClass::Variable;
        let assigns = table.traits(graph, member.node).has(Trait::Assigns);
        if member != source && writes(graph, &table, member) && !(is_variable && assigns) {
            return Err(format!("{} writes {name}:{output}", member.label(graph)));
        }
    }
    Ok(())
}

/// Whether something is written at an anchor: a fresh result, a reference, an input that is left
/// changed.
fn writes(graph: &Graph, table: &OpTable, at: Anchor) -> bool {
    let node = &graph.nodes[at.node];
    let is_true = |attr: Option<&Attr>| attr.and_then(Attr::as_int).is_some_and(|i| i > 0);
    let effects = table.effects(graph, at.node);
    match at.slot {
        Slot::In(i) => {
            let input = node.input_attrs.get(i as usize);
            is_true(node.attrs.get("_input_mutable"))
                || is_true(input.and_then(|a| a.get("_special_input_size")))
                || effects.refs.iter().any(|a| a.input == i)
        }
        Slot::Out(o) => {
            let computes = effects.class == OpClass::Compute;
            let is_view = effects.views.iter().any(|a| a.output == o)
                || storage::reference(graph, table, at.node, o).is_some();
            computes && !is_view
        }
    }
}

/// Whether `first` has ended when `last` starts: by data, by control, or by their stream.
fn is_before(graph: &Graph, first: NodeId, last: NodeId) -> bool {
    let chain = |n: NodeId| {
        let outer = |&n: &NodeId| graph.subgraphs[graph.nodes[n].subgraph].owner;
        std::iter::successors(Some(n), outer).collect::<Vec<_>>()
    };
    let (one, other) = (chain(first), chain(last));
    let of = |n: NodeId| graph.nodes[n].subgraph;
    let beside = one
        .iter()
        .find_map(|&a| Some((a, *other.iter().find(|&&b| of(b) == of(a))?)));
    let Some((first, last)) = beside else {
        return false;
    };
    let subgraph = of(first);
    let mut stack = vec![last];
    let mut seen = vec![last];
    while let Some(node) = stack.pop() {
        for before in direct(graph, subgraph, node) {
            if before == first {
                return true;
            }
            if !seen.contains(&before) {
                seen.push(before);
                stack.push(before);
            }
        }
    }
    false
}

/// The nodes of a subgraph that a node directly waits for.
fn direct(graph: &Graph, subgraph: SubgraphId, node: NodeId) -> Vec<NodeId> {
    let reads = graph.nodes[node].inputs.iter().flatten();
    let mut all: Vec<NodeId> = reads.map(|&v| graph.values[v].producer).collect();
    all.extend(&graph.nodes[node].control);
    let nodes = &graph.subgraphs[subgraph].nodes;
    let earlier = nodes.iter().take_while(|&&n| n != node);
    let stream = graph.nodes[node].stream;
    all.extend(earlier.filter(|&&n| stream.is_some() && graph.nodes[n].stream == stream));
    all.retain(|&n| graph.nodes[n].subgraph == subgraph);
    all
}
