//! Memory that must be zero when a node starts: one node at the head of the graph clears it for all,
//! or one for each where memory may move or a loop comes round again.
//!
//! A body of a loop is a graph of its own, so its clearing node runs in each pass.

use rustc_hash::FxHashSet;
use tenure_graph::effects::demands::{CLEARS_INPUTS, CLEARS_OUTPUTS, CLEARS_WORKSPACES};
use tenure_graph::effects::{OpClass, OpTable, Trait};
use tenure_graph::patch::{Edit, NewNode, Spot};
use tenure_graph::{Attr, Attrs, Graph, NodeId, SubgraphId};

use super::Pass;
use crate::Guarded;
use crate::error::GuardError;
use crate::finding::Kind;
use crate::layout::attributes::{COLLECTIVE_ENGINE, ENGINE, flag, is_static};
use crate::options::Options;
use crate::storage::{Anchor, SOURCE_VARIABLE};

const CLEARS_ITSELF: &str = "need_gentask_atomic";

/// Runs the pass.
///
/// # Errors
/// When an edit does not fit, or a node lists an input or output which it has not.
pub fn run(graph: &Graph, table: &OpTable, options: &Options) -> Result<Guarded, GuardError> {
    let mut pass = Pass::new(graph, table, Kind::Atomic, "zeroing");
    for subgraph in graph.subgraphs.keys() {
        pass.clear(subgraph, options)?;
    }
    pass.done()
}

impl Pass<'_> {
    fn clear(&mut self, subgraph: SubgraphId, options: &Options) -> Result<(), GuardError> {
        let graph = self.work.graph();
        let nodes = graph.subgraphs[subgraph].nodes.clone();
        let is_known = is_static(graph, subgraph);
        let jumps = nodes
            .iter()
            .any(|&n| self.work.table.traits(graph, n).has(Trait::LoopsByJump));
        let mut own: Vec<NodeId> = Vec::new();
        let mut common: Vec<NodeId> = Vec::new();
        let mut by_themselves: FxHashSet<NodeId> = FxHashSet::default();
        for &id in &nodes {
            // A compiled model has its clearing nodes already.
            if self.is_cleared(id) {
                continue;
            }
            let asks = self.asks(id);
            let engine_asks = self.engine_asks(id);
            if asks {
                let reason = "some of its memory must be zero when it starts";
                self.set(id, "is_atomic_node", reason)?;
                self.slots_exist(id)?;
                self.warn_of_given_inputs(id);
            }
            if (asks || engine_asks) && is_known {
                if asks && options.nodes_clear_themselves || self.must_clear_itself(id) {
                    self.set(id, CLEARS_ITSELF, "it clears its memory with its own task")?;
                    by_themselves.insert(id);
                } else if options.nodes_clear_themselves {
                    // The engine's own demand is met by the engine.
                } else if jumps {
                    own.extend((!self.is_cleared_by_readers(id)).then_some(id));
                } else if self.is_cleared_by_readers(id) {
                    // Nothing is left to clear.
                } else if self.may_move(id) {
                    own.push(id);
                } else {
                    common.push(id);
                }
            }
        }
        for &id in &own {
            let label = jumps.then(|| {
                self.work.graph().nodes[id]
                    .attrs
                    .get("_stream_label")
                    .cloned()
            });
            let cleaner = self.cleaner(subgraph, label.flatten(), id, options)?;
            self.serve(cleaner, &[id])?;
        }
        let Some(&first) = common.first() else {
            return Ok(());
        };
        let cleaner = self.cleaner(subgraph, None, first, options)?;
        self.serve(cleaner, &common)?;
        // The cleared range is memory that is used again, so it is cleared before anything runs.
        let graph = self.work.graph();
        let table = self.work.table;
        let mut starts: Vec<NodeId> = Vec::new();
        for &id in &nodes {
            let class = table.class(graph, id);
            if matches!(class, OpClass::Input | OpClass::Variable) {
                let values = graph.nodes[id].outputs.iter().flatten();
                starts.extend(values.flat_map(|&v| self.work.users(v)).map(|&(n, _)| n));
                starts.extend(self.work.waiting(id));
            }
        }
        starts.retain(|&n| {
            table.class(graph, n) != OpClass::Output
                && graph.nodes[n].subgraph == subgraph
                && !own.contains(&n)
                && !by_themselves.contains(&n)
        });
        for id in starts {
            self.work
                .order(cleaner, id, "memory is cleared before anything runs")?;
        }
        Ok(())
    }

    fn set(&mut self, node: NodeId, attr: &str, reason: &str) -> Result<(), GuardError> {
        let edit = Edit::SetAttr {
            node,
            attr: attr.into(),
            value: Some(Attr::Bool(true)),
        };
        self.work.edit(&edit, reason)
    }

    /// Whether a node waits for one that clears memory.
    fn is_cleared(&self, id: NodeId) -> bool {
        let graph = self.work.graph();
        let zeroes = |&n: &NodeId| self.work.table.traits(graph, n).has(Trait::Zeroes);
        graph.nodes[id].control.iter().any(zeroes)
    }

    /// Whether a node's attributes ask for cleared memory.
    fn asks(&self, id: NodeId) -> bool {
        let attrs = &self.work.graph().nodes[id].attrs;
        [CLEARS_INPUTS, CLEARS_OUTPUTS, CLEARS_WORKSPACES]
            .iter()
            .any(|name| attrs.get(name).is_some_and(|a| !is_empty(a)))
    }

    /// Whether a node's engine asks for inputs to be cleared; not where the caller's come in.
    fn engine_asks(&self, id: NodeId) -> bool {
        let graph = self.work.graph();
        let node = &graph.nodes[id];
        let given = |p: NodeId| self.work.table.traits(graph, p).has(Trait::CallerMemory);
        let read = node.inputs.iter().flatten();
        let mut producers = read.map(|&v| graph.values[v].producer);
        flag(&node.extra, "atomic_from_kernel") && !producers.any(given)
    }

    /// Refuses a node that lists an input or output which it has not; -1 stands for all.
    fn slots_exist(&self, id: NodeId) -> Result<(), GuardError> {
        let graph = self.work.graph();
        let node = &graph.nodes[id];
        let lists = [
            (CLEARS_INPUTS, "inputs", node.inputs.len()),
            (CLEARS_OUTPUTS, "outputs", node.outputs.len()),
        ];
        for (name, what, count) in lists {
            let indexes = node.attrs.ints(name).unwrap_or_default();
            let exists = |i: &i64| *i == -1 || usize::try_from(*i).is_ok_and(|i| i < count);
            if let Some(i) = indexes.iter().find(|i| !exists(i)) {
                return Err(GuardError::Malformed {
                    at: format!("{name} of {:?}", graph.node_label(id)),
                    problem: format!(
                        "it lists {i}, but the node has {count} {what}: give each by its number from 0, or -1 for all"
                    ),
                });
            }
        }
        Ok(())
    }

    /// Says that an input is to be cleared though somebody has put data there.
    fn warn_of_given_inputs(&mut self, id: NodeId) {
        let graph = self.work.graph();
        let indexes = graph.nodes[id]
            .attrs
            .ints(CLEARS_INPUTS)
            .unwrap_or_default();
        for i in indexes.into_iter().filter_map(|i| u32::try_from(i).ok()) {
            let graph = self.work.graph();
            let value = graph.nodes[id].input(i as usize);
            let source = value.map(|v| graph.values[v].producer);
            if source.is_some_and(|s| self.work.table.traits(graph, s).has(Trait::CallerMemory)) {
                let harm = "clearing this input would wipe what the caller gives: only an \
                            accumulator that nobody fills may be listed";
                self.note(Anchor::input(id, i), "clears-given-input", harm, "");
            }
        }
    }

    fn must_clear_itself(&self, id: NodeId) -> bool {
        let graph = self.work.graph();
        graph.nodes[id].outputs.iter().flatten().any(|&value| {
            let hints = graph.values[value].hints.as_ref();
            let named = hints.is_some_and(|h| h.attrs.get(SOURCE_VARIABLE).is_some());
            let mut users = self.work.users(value).iter();
            named || users.any(|&(n, _)| flag(&graph.nodes[n].attrs, "_no_task"))
        })
    }

    /// Whether all that a node asks for is cleared by the collectives that read it.
    fn is_cleared_by_readers(&self, id: NodeId) -> bool {
        let graph = self.work.graph();
        let node = &graph.nodes[id];
        let more = [CLEARS_INPUTS, CLEARS_WORKSPACES];
        if more.iter().any(|name| node.attrs.get(name).is_some()) {
            return false;
        }
        let asked = node.attrs.ints(CLEARS_OUTPUTS).unwrap_or_default();
        !asked.is_empty()
            && asked.into_iter().all(|o| {
                let output = usize::try_from(o).ok().and_then(|o| node.output(o));
                let users = output.map_or(&[][..], |v| self.work.users(v));
                users.iter().any(|&(n, _)| self.engine_asks(n))
            })
    }

    /// Whether zero copy may move a node's output out of the common range.
    fn may_move(&self, id: NodeId) -> bool {
        let node = &self.work.graph().nodes[id];
        let is_collective = flag(&node.extra, "atomic_from_kernel")
            || node.extra.str(ENGINE) == Some(COLLECTIVE_ENGINE);
        node.attrs.get("_is_connected_to_netoutput").is_some() && !is_collective
    }

    fn cleaner(
        &mut self,
        subgraph: SubgraphId,
        label: Option<Attr>,
        served: NodeId,
        options: &Options,
    ) -> Result<NodeId, GuardError> {
        let graph = self.work.graph();
        let mut attrs = Attrs::new();
        if options.memset_supported {
            attrs.set("sizes", Attr::List(Vec::new()));
        }
        if let Some(label) = label {
            attrs.set("_stream_label", label);
        }
        let op = if options.memset_supported {
            "MemSet"
        } else {
            "AtomicAddrClean"
        };
        let node = NewNode {
            name: format!("{}_atomic_addr_clean", graph.nodes[served].name),
            op: op.into(),
            attrs,
            stream: graph.nodes[served].stream,
            ..NewNode::default()
        };
        let reason = "memory must be zero when a node starts";
        self.work.add(node, Spot::First(subgraph), reason)
    }

    /// Lets nodes wait for what clears their memory, and with a collective whoever fills its inputs.
    fn serve(&mut self, cleaner: NodeId, nodes: &[NodeId]) -> Result<(), GuardError> {
        for &id in nodes {
            let reason = "its memory is cleared before it runs";
            self.work.order(cleaner, id, reason)?;
            if self.engine_asks(id) {
                let graph = self.work.graph();
                let read = graph.nodes[id].inputs.iter().flatten();
                let producers: Vec<NodeId> = read.map(|&v| graph.values[v].producer).collect();
                for producer in producers {
                    self.work.order(cleaner, producer, reason)?;
                }
            }
        }
        Ok(())
    }
}

fn is_empty(attr: &Attr) -> bool {
    match attr {
        Attr::Null => true,
        Attr::List(list) => list.is_empty(),
        Attr::Map(map) => map.is_empty(),
        _ => false,
    }
}
