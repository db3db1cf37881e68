//! Takes out copies that the user asked for (`TensorMove`) where the value and its copy can be one.
//!
//! A copy goes when its source may be read, or given away, by whoever reads the copy, when readers
//! beside it are not disturbed, and when nothing that the two memories are asked for may clash.
//! Readers that must come first get an edge. All or nothing for each copy; the whole is repeated
//! until it changes nothing, so that the order of a chain does not matter.

use rustc_hash::{FxHashMap, FxHashSet};
use std::cell::RefCell;
use std::rc::Rc;
use tenure_graph::control::result_index;
use tenure_graph::effects::{OpClass, OpTable, Trait};
use tenure_graph::{Graph, NodeId, SubgraphId, ValueId};

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
        asks: RefCell::default(),
        plain: RefCell::default(),
    };
    // Values whose readers change in this round; what stands on them waits for the next.
    let mut touched: FxHashMap<ValueId, Touched> = FxHashMap::default();
    for id in moves {
        let Some(Going { path, edges, joins }) = judge.may_go(id) else {
            continue;
        };
        let waits = |value: &ValueId| touched.get(value).is_some_and(|t| t.stops(joins.as_ref()));
        if path.iter().any(waits) {
            continue;
        }
        for &value in &path {
            touched.entry(value).or_default().add(joins.as_ref());
        }
        for &made in graph.nodes[id].outputs.iter().flatten() {
            touched.entry(made).or_default().add(None);
        }
        for (first, last) in edges {
            pass.work
                .order(first, last, "it reads what the other writes")?;
        }
        pass.work.take_out(id, "value and copy can be one")?;
    }
    pass.done()
}

/// What has come to a value in this round.
#[derive(Default)]
struct Touched {
    /// Something that may write, or be written.
    otherwise: bool,
    /// What is asked of the memory of those who come to read it.
    asks: Asks,
}

impl Touched {
    /// Whether others can only come in the next round. Readers who ask for nothing that clashes do
    /// not disturb one another.
    fn stops(&self, joins: Option<&Asks>) -> bool {
        let Some(joins) = joins.filter(|_| !self.otherwise) else {
            return true;
        };
        let clashes = |(part, one): &(usize, Traits)| {
            let here = |(other, theirs): &(usize, Traits)| other == part && may_clash(one, theirs);
            self.asks.iter().any(here)
        };
        joins.iter().any(clashes)
    }

    fn add(&mut self, joins: Option<&Asks>) {
        match joins {
            Some(joins) => self.asks.extend(joins),
            None => self.otherwise = true,
        }
    }
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
    /// What is asked of classes, as far as it was looked at: by the number of the part and the class.
    asks: RefCell<FxHashMap<(usize, usize), AsksOfClass>>,
    /// For values that were looked at the subgraph in which all who use them do nothing but read.
    plain: RefCell<FxHashMap<ValueId, Option<SubgraphId>>>,
}

/// What is asked of a class.
type AsksOfClass = Rc<FxHashSet<Traits>>;

/// What is asked of a memory in each part that is analysed together.
type Asks = FxHashSet<(usize, Traits)>;

/// How a copy goes.
struct Going {
    /// The values from its input back to the source.
    path: Vec<ValueId>,
    edges: Edges,
    /// What is asked of the copy, if all who use it do nothing but read; `None` for others.
    joins: Option<Asks>,
}

/// Pairs of which the first must have ended when the second starts.
type Edges = Vec<(NodeId, NodeId)>;

impl Judge<'_> {
    /// How a copy goes; `None` where it must stay.
    fn may_go(&self, id: NodeId) -> Option<Going> {
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
        let only_reads = edges.is_empty() && self.are_readers(*made) == Some(node.subgraph);
        let joins = only_reads.then(|| {
            let parts = 0..self.layouts.len();
            let mut asks = Asks::default();
            for part in parts {
                let here = self.asks_of(part, *made);
                asks.extend(here.iter().map(|&traits| (part, traits)));
            }
            asks
        });
        Some(Going { path, edges, joins })
    }

    /// The subgraph of all who use a value, where they do nothing but read it.
    fn are_readers(&self, value: ValueId) -> Option<SubgraphId> {
        if let Some(&known) = self.plain.borrow().get(&value) {
            return known;
        }
        let users = self.work.users(value);
        let subgraph = users.first().map(|&(n, _)| self.graph.nodes[n].subgraph);
        let reads = |subgraph: &SubgraphId| {
            let mut users = users.iter();
            users.all(|&user| self.is_plain(user, *subgraph) && !self.types.writes(user))
        };
        let found = subgraph.filter(reads);
        self.plain.borrow_mut().insert(value, found);
        found
    }

    /// Whether who uses a value stands in a subgraph, runs none, and keeps the value to itself.
    fn is_plain(&self, (user, input): (NodeId, u32), subgraph: SubgraphId) -> bool {
        let node = &self.graph.nodes[user];
        node.subgraph == subgraph
            && self.work.table.class(self.graph, user) != OpClass::Output
            && node.bodies.is_empty()
            && !self.hands_on(user, input)
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
        let graph = self.graph;
        let (here, made) = (graph.nodes[id].subgraph, graph.nodes[id].output(0));
        let mut edges = Vec::new();
        for &value in path {
            let users = self.work.users(value);
            if users.len() < 2 {
                continue;
            }
            if graph.nodes[id].input(0) != Some(value) {
                return None;
            }
            if self.are_readers(value) == Some(here)
                && made.is_some_and(|made| self.are_readers(made).is_some())
            {
                continue;
            }
            for &(sibling, i) in users.iter().filter(|&&(n, _)| n != id) {
                if !self.is_plain((sibling, i), here) {
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
        (0..self.layouts.len()).any(|part| {
            let (old, new) = (self.asks_of(part, read), self.asks_of(part, made));
            old.iter().any(|a| new.iter().any(|b| may_clash(a, b)))
        })
    }

    /// What is asked of the memory of a value in one part.
    fn asks_of(&self, part: usize, value: ValueId) -> Rc<FxHashSet<Traits>> {
        let (scope, classes) = &self.layouts[part];
        let Some(class) = classes.class_of(Anchor::of(self.graph, value)) else {
            return Rc::default();
        };
        if let Some(known) = self.asks.borrow().get(&(part, class)) {
            return Rc::clone(known);
        }
        let members = classes.lists[class].iter().map(|&m| classes.anchors[m]);
        let asks: FxHashSet<Traits> = members.map(|a| scope.traits(classes, a)).collect();
        let asks = Rc::new(asks);
        self.asks
            .borrow_mut()
            .insert((part, class), Rc::clone(&asks));
        asks
    }
}
