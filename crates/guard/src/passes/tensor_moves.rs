//! Takes out copies that the user asked for (`TensorMove`) where the value and its copy can be one.
//!
//! A copy goes when its source may be read, or given away, by whoever reads the copy, when readers
//! beside it are not disturbed, and when nothing that the two memories are asked for may clash.
//! Readers that must come first get an edge. All or nothing for each copy; the whole is repeated
//! until it changes nothing, so that the order of a chain does not matter.

use rustc_hash::FxHashSet;
use tenure_graph::control::result_index;
use tenure_graph::effects::{OpClass, OpTable, Trait};
use tenure_graph::{Graph, NodeId, ValueId};

use super::Pass;
use crate::Guarded;
use crate::error::GuardError;
use crate::finding::Kind;
use crate::layout::attributes::{Scope, Traits, flag};
use crate::layout::{analysed, may_clash};
use crate::options::Options;
use crate::read_write::Types;
use crate::storage::{Anchor, Classes, SOURCE_VARIABLE, in_order, outer_input, reference};
use crate::work::{CANNOT_BE_DELETED, NO_FOLDING, Work};

/// Runs the pass.
///
/// # Errors
/// Where the graph contradicts itself.
pub fn run(graph: &Graph, table: &OpTable, options: &Options) -> Result<Guarded, GuardError> {
    let mut done = Guarded::default();
    loop {
        let round = round(done.graph(graph), table, options)?;
        let changed = !round.edits.is_empty();
        done.then(round);
        if !changed {
            return Ok(done);
        }
    }
}

/// Takes out copies that do not touch one another.
fn round(graph: &Graph, table: &OpTable, options: &Options) -> Result<Guarded, GuardError> {
    let mut pass = Pass::new(graph, table, Kind::ReadWrite, "tensor-moves");
    let moves = in_order(graph, graph.root);
    let moves = moves
        .into_iter()
        .filter(|&n| table.traits(graph, n).has(Trait::Moves));
    let moves: Vec<NodeId> = moves.collect();
    if moves.is_empty() {
        return pass.done();
    }
    let types = Types::of(graph, table, options)?;
    let judge = Judge {
        graph,
        work: &Work::new(graph, table),
        types: &types,
        options,
        layouts: layouts(graph, table, options)?,
    };
    // Values whose readers change in this round; what stands on them waits for the next.
    let mut touched: FxHashSet<ValueId> = FxHashSet::default();
    for id in moves {
        let Some((path, edges)) = judge.may_go(id) else {
            continue;
        };
        if path.iter().any(|v| touched.contains(v)) {
            continue;
        }
        touched.extend(path);
        touched.extend(graph.nodes[id].outputs.iter().flatten());
        for (first, last) in edges {
            pass.work
                .order(first, last, "it reads what the other writes")?;
        }
        pass.work.take_out(id, "value and copy can be one")?;
    }
    pass.done()
}

/// The classes of each part that is analysed together.
fn layouts<'a>(
    graph: &'a Graph,
    table: &'a OpTable,
    options: &'a Options,
) -> Result<Vec<(Scope<'a>, Classes)>, GuardError> {
    let scope = |top| Scope {
        graph,
        table,
        options,
        top,
    };
    let tops = analysed(graph).into_iter();
    tops.map(|top| Ok((scope(top), Classes::build(graph, table, top)?)))
        .collect()
}

/// What is looked at to judge a copy.
struct Judge<'a> {
    graph: &'a Graph,
    work: &'a Work<'a>,
    types: &'a Types<'a>,
    options: &'a Options,
    layouts: Vec<(Scope<'a>, Classes)>,
}

/// Pairs of which the first must have ended when the second starts.
type Edges = Vec<(NodeId, NodeId)>;

impl Judge<'_> {
    /// The values from the source to the copy, and the edges that its going needs; `None` where it
    /// must stay.
    fn may_go(&self, id: NodeId) -> Option<(Vec<ValueId>, Edges)> {
        let graph = self.graph;
        let node = &graph.nodes[id];
        let is_kept = flag(&node.attrs, CANNOT_BE_DELETED) || node.attrs.get(NO_FOLDING).is_some();
        let (Some(read), [Some(made)]) = (node.input(0), &node.outputs[..]) else {
            return None;
        };
        if is_kept || node.inputs.len() != 1 {
            return None;
        }
        let path = self.path(read)?;
        let successors = self.work.users(*made);
        let source = *path.last()?;
        let free = self.may_be_read_by(source, successors)
            && !successors
                .iter()
                .any(|&user| self.types.needs_copy(read, user))
            && !self.layouts_clash(read, *made);
        let edges = free.then(|| self.beside(id, &path, successors))??;
        Some((path, edges))
    }

    /// The values from a copy's input back to where its memory comes from, out of and into
    /// partitions; `None` where it comes out of a choice, or is handed on twice.
    fn path(&self, read: ValueId) -> Option<Vec<ValueId>> {
        let (graph, table) = (self.graph, self.work.table);
        let mut path = vec![read];
        let mut value = read;
        // A way that is longer than there are values would go in a circle.
        while path.len() <= graph.values.len() {
            let made = &graph.values[value];
            let id = made.producer;
            let next = match table.class(graph, id) {
                OpClass::Input => match outer_input(graph, table, id) {
                    Some((owner, _)) if table.class(graph, owner) != OpClass::Call => return None,
                    Some((owner, i)) => Some(graph.nodes[owner].input(i as usize)?),
                    None => None,
                },
                OpClass::Call => Some(self.inner_result(id, made.output)?),
                OpClass::Branch | OpClass::While | OpClass::Loop | OpClass::Scan => return None,
                _ if table.traits(graph, id).has(Trait::Switches) => return None,
                _ => {
                    let input = reference(graph, table, id, made.output);
                    let source = input.and_then(|i| graph.nodes[id].input(i as usize));
                    if source.is_some() && self.hands_on_twice(id, made.output, input) {
                        return None;
                    }
                    source
                }
            };
            match next {
                Some(next) => {
                    path.push(next);
                    value = next;
                }
                None => return Some(path),
            }
        }
        None
    }

    fn inner_result(&self, owner: NodeId, index: u32) -> Option<ValueId> {
        let graph = self.graph;
        let body = graph.nodes[owner].bodies.first()?;
        let output = graph.subgraphs[body.graph].output?;
        let mut inputs = graph.nodes[output].inputs.iter().enumerate();
        let is_it = |i: usize| result_index(graph, Some(output), i) == index as usize;
        inputs
            .find(|(i, _)| is_it(*i))
            .and_then(|(_, value)| *value)
    }

    /// Whether another output of a node that somebody reads is the same input's memory.
    fn hands_on_twice(&self, id: NodeId, output: u32, input: Option<u32>) -> bool {
        let graph = self.graph;
        let mut others = (0u32..)
            .zip(&graph.nodes[id].outputs)
            .filter(|&(o, _)| o != output);
        others.any(|(o, value)| {
            let is_read = value.is_some_and(|v| !self.work.users(v).is_empty());
            is_read && reference(graph, self.work.table, id, o) == input
        })
    }

    /// Whether a source may be read, or had, by those who read the copy.
    fn may_be_read_by(&self, source: ValueId, successors: &[(NodeId, u32)]) -> bool {
        let (graph, table) = (self.graph, self.work.table);
        let made = &graph.values[source];
        let class = table.class(graph, made.producer);
        let named = made
            .hints
            .as_ref()
            .is_some_and(|h| h.attrs.get(SOURCE_VARIABLE).is_some());
        if named || matches!(class, OpClass::Variable | OpClass::Constant) {
            return successors.iter().all(|&(n, i)| {
                table.class(graph, n) != OpClass::Output
                    && graph.nodes[n].bodies.is_empty()
                    && !self.hands_on(n, i)
                    && !self.types.writes((n, i))
            });
        }
        if class == OpClass::Input {
            let index = graph.nodes[made.producer].attrs.int("index");
            return index.is_some_and(|i| self.options.donated_inputs.contains(&i));
        }
        true
    }

    /// Whether an output of a node is an input's memory.
    fn hands_on(&self, node: NodeId, input: u32) -> bool {
        let graph = self.graph;
        let mut outputs = (0u32..).zip(&graph.nodes[node].outputs);
        outputs
            .any(|(o, v)| v.is_some() && reference(graph, self.work.table, node, o) == Some(input))
    }

    /// The edges that keep readers beside the copy undisturbed; `None` where edges cannot.
    fn beside(&self, id: NodeId, path: &[ValueId], successors: &[(NodeId, u32)]) -> Option<Edges> {
        let (graph, table) = (self.graph, self.work.table);
        let mut edges = Vec::new();
        for &value in path {
            let users = self.work.users(value);
            if users.len() < 2 {
                continue;
            }
            if graph.nodes[id].input(0) != Some(value) {
                return None;
            }
            for &(sibling, i) in users.iter().filter(|&&(n, _)| n != id) {
                let node = &graph.nodes[sibling];
                let is_plain = node.subgraph == graph.nodes[id].subgraph
                    && table.class(graph, sibling) != OpClass::Output
                    && node.bodies.is_empty()
                    && !self.hands_on(sibling, i);
                if !is_plain {
                    return None;
                }
                for &(successor, j) in successors {
                    let writes = self.types.writes((successor, j));
                    if self.types.writes((sibling, i)) {
                        let first = graph.nodes[sibling].control.contains(&successor);
                        if writes || self.hands_on(successor, j) || !first {
                            return None;
                        }
                    } else if writes {
                        if sibling == successor || self.work.is_before(successor, sibling) {
                            return None;
                        }
                        edges.push((sibling, successor));
                    }
                }
            }
        }
        Some(edges)
    }

    /// Whether the two memories are asked for what one cannot be.
    fn layouts_clash(&self, read: ValueId, made: ValueId) -> bool {
        let graph = self.graph;
        self.layouts.iter().any(|(scope, classes)| {
            let asks = |value: ValueId| -> FxHashSet<Traits> {
                let class = classes.class_of(Anchor::of(graph, value));
                let members = class.map_or(&[][..], |c| &classes.lists[c]);
                let anchors = members.iter().map(|&m| classes.anchors[m]);
                anchors.map(|a| scope.traits(classes, a)).collect()
            };
            let (old, new) = (asks(read), asks(made));
            old.iter().any(|a| new.iter().any(|b| may_clash(a, b)))
        })
    }
}
