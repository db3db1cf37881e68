//! From names to ids: builds a graph out of nodes that name one another.
//!
//! The readers of files leave names as they stand in the file ([`ModelDef`]) and hand them over
//! here. Subgraphs are numbered in the order in which a walk from the root meets them
//! (see [`crate::identity()`]), nodes and values in the order of their subgraphs, so that a graph
//! that is printed and read again has the same ids.

use cranelift_entity::{EntityRef, PrimaryMap};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::sync::Arc;
use thin_vec::ThinVec;

use crate::ir::{OUTPUT_OP, stands_for_input};
use crate::verify::MAX_DEPTH;
use crate::{
    Attrs, Body, DType, Dialect, Graph, Node, NodeId, OutputHints, Shape, StreamId, Subgraph,
    SubgraphId, Value, ValueId, Words,
};

/// A model as a file spells it out.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelDef {
    /// The model's name; may be empty.
    pub name: String,
    /// Which table of operators the names belong to.
    pub dialect: Dialect,
    /// Versions of operator sets by domain.
    pub opsets: Vec<(Arc<str>, i64)>,
    /// Options that the model's file carries.
    pub options: Attrs,
    /// The root first.
    pub graphs: Vec<GraphDef>,
}

/// A subgraph as a file spells it out; its nodes in execution order.
#[derive(Clone, Debug, PartialEq)]
pub struct GraphDef {
    /// Name, unique in the model.
    pub name: String,
    /// Further keys of the file.
    pub attrs: Attrs,
    /// Its nodes; the node that takes its results stands last.
    pub nodes: Vec<NodeDef>,
}

/// A node as a file spells it out.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeDef {
    /// Name, unique in its subgraph.
    pub name: String,
    /// Type of the operator.
    pub op: Arc<str>,
    /// Domain of the operator.
    pub domain: Arc<str>,
    /// What it reads; `None` is an optional input left out.
    pub inputs: Vec<Option<Ref>>,
    /// What it makes; `None` is an optional output left out.
    pub outputs: Vec<Option<OutputDef>>,
    /// Names of nodes of the same subgraph that must have run before.
    pub control: Vec<String>,
    /// The stream it runs on; `None` for what runs nothing.
    pub stream: Option<StreamId>,
    /// Attributes.
    pub attrs: Attrs,
    /// Attributes of inputs by position; may be shorter than `inputs`.
    pub input_attrs: Vec<Attrs>,
    /// Role and name of each subgraph.
    pub bodies: Vec<(Arc<str>, String)>,
    /// Temporary memory in bytes.
    pub workspace: Vec<i64>,
    /// Further keys of the file.
    pub extra: Attrs,
}

/// An output as a file spells it out; without a name it is called `NODE:OUT`.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputDef {
    /// Its own name, where the file gives one.
    pub name: Option<String>,
    /// Type of its elements.
    pub dtype: DType,
    /// Its dimensions; `None` when not even the rank is known.
    pub shape: Option<Shape>,
    /// What the file says of its memory.
    pub hints: Option<Box<OutputHints>>,
}

/// The name of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ref {
    /// The subgraph that it is made in; `None` is the reader's own.
    pub graph: Option<String>,
    /// Which value of it.
    pub to: RefTo,
}

/// How a value is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RefTo {
    /// By its node and output slot.
    Slot(String, u32),
    /// By its own name.
    Name(String),
}

impl std::fmt::Display for Ref {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.to {
            RefTo::Slot(node, output) => write!(f, "{node}:{output}")?,
            RefTo::Name(name) => f.write_str(name)?,
        }
        match &self.graph {
            Some(graph) => write!(f, " of graph {graph}"),
            None => Ok(()),
        }
    }
}

/// A graph whose names do not fit together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {problem}")]
pub struct LinkError {
    /// Where.
    pub place: Box<Place>,
    /// What is wrong.
    pub problem: LinkProblem,
}

/// The place of an error in a file: names, from the outside in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The subgraph.
    pub graph: String,
    /// The node, if the error is one node's.
    pub node: Option<String>,
    /// The key of the node, with the position in its list.
    pub key: Option<String>,
    /// Positions of subgraph and node in the file's lists.
    pub(crate) at: (usize, usize),
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "graph {:?}", self.graph)?;
        if let Some(node) = &self.node {
            write!(f, ", node {node:?}")?;
        }
        if let Some(key) = &self.key {
            write!(f, ", {key}")?;
        }
        Ok(())
    }
}

/// What can be wrong with names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkProblem {
    /// The file has no graph at all.
    #[error("there is no graph; the first one in the list is the root")]
    NoGraph,
    /// Two graphs of one name.
    #[error("another graph has this name already; graph names are unique")]
    DuplicateGraph,
    /// Two nodes of one name in one graph.
    #[error("another node of the graph has this name already; rename one of them")]
    DuplicateNode,
    /// A subgraph that does not exist.
    #[error("there is no graph {0:?}")]
    UnknownGraph(String),
    /// A subgraph that two nodes name.
    #[error("graph {0:?} is run by another node already; a graph belongs to one node")]
    OwnedTwice(String),
    /// The root, named as a subgraph.
    #[error("graph {0:?} is the root and cannot be run by a node")]
    OwnsRoot(String),
    /// A graph, not the root, that no node names.
    #[error("no node runs this graph; name it under \"subgraphs\" or remove it")]
    NotOwned,
    /// Subgraphs that contain each other.
    #[error("the graph contains itself through its subgraphs")]
    OwnedInCircle,
    /// Too many graphs inside one another.
    #[error("graphs are nested more than {MAX_DEPTH} deep")]
    TooDeep,
    /// A node that does not exist.
    #[error("there is no node {0:?} in the graph")]
    UnknownNode(String),
    /// A value that does not exist.
    #[error("there is no value {0}")]
    UnknownValue(String),
    /// An output slot that does not exist.
    #[error("node {node:?} has {outputs} outputs, so there is no output {output}")]
    NoSuchOutput {
        /// The node named.
        node: String,
        /// How many outputs it has.
        outputs: usize,
        /// The slot asked for.
        output: u32,
    },
    /// An output slot that is left out.
    #[error("output {output} of node {node:?} is left out (null)")]
    AbsentOutput {
        /// The node named.
        node: String,
        /// The slot asked for.
        output: u32,
    },
    /// A value of a graph that does not stand around the reader.
    #[error("{0} cannot be seen from here; only values of graphs around this one can")]
    NotAround(String),
    /// A value of a node that has not run by then.
    #[error(
        "{0} is made by this node itself or by a later one; nodes must stand in the order in \
         which they run (or carry \"order\")"
    )]
    RunsLater(String),
    /// An `index` or `parent_index` that is no position.
    #[error("expected a whole number of at least 0")]
    BadIndex,
    /// Results in the wrong place.
    #[error("a graph has one {OUTPUT_OP} and it stands last")]
    OutputNotLast,
    /// More than 2^32 things.
    #[error("the model has more nodes, values or graphs than 32 bits can number")]
    TooLarge,
}

/// Builds the graph.
///
/// # Errors
/// Names that are missing, doubled or not visible, nodes out of order, subgraphs that are not a
/// tree.
pub fn link(mut model: ModelDef) -> Result<Graph, LinkError> {
    let order = order_of_graphs(&model)?;
    let (inputs, controls) = Names::new(&model, &order)?.resolve()?;

    let mut graph = Graph::new(model.name, model.dialect, "");
    graph.opsets = model.opsets;
    graph.options = model.options;
    graph.subgraphs = PrimaryMap::with_capacity(order.len());
    let mut id_of_graph: FxHashMap<String, SubgraphId> = FxHashMap::default();
    for (id, &g) in order.iter().enumerate() {
        let name = std::mem::take(&mut model.graphs[g].name);
        id_of_graph.insert(name.clone(), SubgraphId::new(id));
        graph.subgraphs.push(Subgraph {
            name,
            attrs: std::mem::take(&mut model.graphs[g].attrs),
            ..Subgraph::default()
        });
    }
    let mut links = inputs.into_iter().zip(controls);
    let mut words = Words::default();
    for (id, &g) in order.iter().enumerate() {
        let subgraph = SubgraphId::new(id);
        for mut def in std::mem::take(&mut model.graphs[g].nodes) {
            def.op = words.word(&def.op);
            def.domain = words.word(&def.domain);
            let Some((inputs, control)) = links.next() else {
                break;
            };
            add_node(&mut graph, subgraph, def, inputs, control, &id_of_graph);
        }
        let sg = &graph.subgraphs[subgraph];
        let place = |node: NodeId, key: &str| {
            Box::new(Place {
                graph: sg.name.clone(),
                node: Some(graph.nodes[node].name.clone()),
                key: Some(key.to_owned()),
                at: (g, sg.nodes.iter().position(|&n| n == node).unwrap_or(0)),
            })
        };
        let inputs = inputs_in_order(&graph, subgraph).map_err(|(node, key)| LinkError {
            place: place(node, key),
            problem: LinkProblem::BadIndex,
        })?;
        let outputs = |&n: &NodeId| &*graph.nodes[n].op == OUTPUT_OP;
        let before_last = sg.nodes.len().saturating_sub(1);
        if let Some(&early) = sg.nodes[..before_last].iter().find(|n| outputs(n)) {
            return Err(LinkError {
                place: place(early, "op"),
                problem: LinkProblem::OutputNotLast,
            });
        }
        let output = sg.nodes.last().copied().filter(outputs);
        graph.subgraphs[subgraph].inputs = inputs;
        graph.subgraphs[subgraph].output = output;
    }
    Ok(graph)
}

/// Appends a node and its outputs.
fn add_node(
    graph: &mut Graph,
    subgraph: SubgraphId,
    def: NodeDef,
    inputs: SmallVec<[Option<ValueId>; 2]>,
    control: Vec<NodeId>,
    id_of_graph: &FxHashMap<String, SubgraphId>,
) {
    let producer = graph.nodes.next_key();
    let mut outputs = SmallVec::with_capacity(def.outputs.len());
    for (output, value) in (0u32..).zip(def.outputs) {
        outputs.push(value.map(|value| {
            graph.values.push(Value {
                name: value
                    .name
                    .unwrap_or_else(|| format!("{}:{output}", def.name)),
                producer,
                output,
                dtype: value.dtype,
                shape: value.shape,
                hints: value.hints,
            })
        }));
    }
    let mut bodies = ThinVec::with_capacity(def.bodies.len());
    for (role, name) in def.bodies {
        // Every name was found when the order was made.
        if let Some(&body) = id_of_graph.get(&name) {
            graph.subgraphs[body].owner = Some(producer);
            bodies.push(Body { role, graph: body });
        }
    }
    graph.nodes.push(Node {
        name: def.name,
        op: def.op,
        domain: def.domain,
        subgraph,
        inputs,
        outputs,
        control: control.into(),
        stream: def.stream,
        attrs: def.attrs,
        input_attrs: def.input_attrs.into(),
        bodies,
        workspace: def.workspace.into(),
        extra: def.extra,
    });
    graph.subgraphs[subgraph].nodes.push(producer);
}

/// The input nodes of a subgraph by the input that they stand for: attribute `index` in the root,
/// `parent_index` below, or else the place among the input nodes. Nodes that stand for the same
/// input keep their order.
///
/// # Errors
/// The node and the attribute that is no position.
pub(crate) fn inputs_in_order(
    graph: &Graph,
    subgraph: SubgraphId,
) -> Result<Vec<NodeId>, (NodeId, &'static str)> {
    let key = if subgraph == graph.root {
        "index"
    } else {
        "parent_index"
    };
    let nodes = &graph.subgraphs[subgraph].nodes;
    let inputs = nodes.iter();
    let inputs = inputs.filter(|&&n| stands_for_input(&graph.nodes[n].op));
    let mut inputs = (0u32..)
        .zip(inputs)
        .map(|(i, &node)| match graph.nodes[node].attrs.get(key) {
            None => Ok((i, node)),
            Some(index) => index
                .as_int()
                .and_then(|i| u32::try_from(i).ok())
                .map(|i| (i, node))
                .ok_or((node, key)),
        })
        .collect::<Result<Vec<_>, _>>()?;
    inputs.sort_by_key(|&(i, _)| i);
    Ok(inputs.into_iter().map(|(_, node)| node).collect())
}

/// Positions of the graphs in the order in which a walk from the root meets them: first a graph,
/// then, node by node, what its nodes run.
fn order_of_graphs(model: &ModelDef) -> Result<Vec<usize>, LinkError> {
    let of_graph = |g: usize, problem| LinkError {
        place: Box::new(Place {
            graph: model.graphs[g].name.clone(),
            at: (g, 0),
            ..Place::default()
        }),
        problem,
    };
    if model.graphs.is_empty() {
        return Err(LinkError {
            place: Box::new(Place {
                graph: model.name.clone(),
                ..Place::default()
            }),
            problem: LinkProblem::NoGraph,
        });
    }
    let mut by_name: FxHashMap<&str, usize> = FxHashMap::default();
    for (g, graph) in model.graphs.iter().enumerate() {
        if by_name.insert(&graph.name, g).is_some() {
            return Err(of_graph(g, LinkProblem::DuplicateGraph));
        }
    }
    let mut owned = vec![false; model.graphs.len()];
    let mut bodies: Vec<Vec<usize>> = vec![Vec::new(); model.graphs.len()];
    for (g, graph) in model.graphs.iter().enumerate() {
        for (n, node) in graph.nodes.iter().enumerate() {
            for (b, (_, name)) in node.bodies.iter().enumerate() {
                let problem = match by_name.get(&**name) {
                    None => LinkProblem::UnknownGraph(name.clone()),
                    Some(0) => LinkProblem::OwnsRoot(name.clone()),
                    Some(&body) if owned[body] => LinkProblem::OwnedTwice(name.clone()),
                    Some(&body) => {
                        owned[body] = true;
                        bodies[g].push(body);
                        continue;
                    }
                };
                return Err(LinkError {
                    place: place_in(graph, (g, n), format!("subgraphs[{b}]")),
                    problem,
                });
            }
        }
    }
    if let Some(g) = (1..owned.len()).find(|&g| !owned[g]) {
        return Err(of_graph(g, LinkProblem::NotOwned));
    }
    let mut order = Vec::with_capacity(owned.len());
    let mut stack = vec![(0, 0)];
    while let Some((g, depth)) = stack.pop() {
        if depth > MAX_DEPTH {
            return Err(of_graph(g, LinkProblem::TooDeep));
        }
        order.push(g);
        owned[g] = false;
        stack.extend(bodies[g].iter().rev().map(|&b| (b, depth + 1)));
    }
    match owned.iter().position(|&o| o) {
        Some(g) => Err(of_graph(g, LinkProblem::OwnedInCircle)),
        None => Ok(order),
    }
}

fn place_in(graph: &GraphDef, at: (usize, usize), key: String) -> Box<Place> {
    Box::new(Place {
        graph: graph.name.clone(),
        node: Some(graph.nodes[at.1].name.clone()),
        key: Some(key),
        at,
    })
}

/// What every name stands for. A graph's *rank* is its place in the order, which is its id.
struct Names<'a> {
    model: &'a ModelDef,
    order: &'a [usize],
    graphs: FxHashMap<&'a str, usize>,
    /// By rank: names of nodes to their positions.
    nodes: Vec<FxHashMap<&'a str, usize>>,
    /// By rank: names of values to position of the node and output slot.
    values: Vec<FxHashMap<&'a str, (usize, u32)>>,
    /// By rank: number of the graph's first node.
    first_node: Vec<usize>,
    /// By number of a node: where its outputs begin in `slots`.
    first_slot: Vec<usize>,
    /// The outputs of all nodes, one after the other.
    slots: Vec<Option<ValueId>>,
    /// By rank: rank of the graph around it and the position of the owner there.
    around: Vec<Option<(usize, usize)>>,
}

type Links = (Vec<SmallVec<[Option<ValueId>; 2]>>, Vec<Vec<NodeId>>);

impl<'a> Names<'a> {
    fn new(model: &'a ModelDef, order: &'a [usize]) -> Result<Self, LinkError> {
        let graphs: FxHashMap<_, _> = (order.iter().enumerate())
            .map(|(rank, &g)| (&*model.graphs[g].name, rank))
            .collect();
        let mut names = Names {
            model,
            order,
            graphs,
            nodes: Vec::with_capacity(order.len()),
            values: Vec::with_capacity(order.len()),
            first_node: Vec::with_capacity(order.len()),
            first_slot: Vec::new(),
            slots: Vec::new(),
            around: vec![None; order.len()],
        };
        let mut n_values = 0usize;
        for (rank, &g) in order.iter().enumerate() {
            let graph = &model.graphs[g];
            names.first_node.push(names.first_slot.len());
            let mut nodes = FxHashMap::default();
            let mut values = FxHashMap::default();
            for (n, node) in graph.nodes.iter().enumerate() {
                let fail = |problem| LinkError {
                    place: place_in(graph, (g, n), "name".to_owned()),
                    problem,
                };
                if nodes.insert(&*node.name, n).is_some() {
                    return Err(fail(LinkProblem::DuplicateNode));
                }
                names.first_slot.push(names.slots.len());
                // The largest number is what an id keeps for "none".
                let room = (u32::MAX as usize).saturating_sub(node.outputs.len());
                if names.slots.len() >= room || names.first_slot.len() >= room {
                    return Err(fail(LinkProblem::TooLarge));
                }
                for (output, value) in (0u32..).zip(&node.outputs) {
                    names.slots.push(value.as_ref().map(|value| {
                        if let Some(name) = &value.name {
                            values.insert(&**name, (n, output));
                        }
                        n_values += 1;
                        ValueId::new(n_values - 1)
                    }));
                }
                for (_, body) in &node.bodies {
                    if let Some(&inner) = names.graphs.get(&**body) {
                        names.around[inner] = Some((rank, n));
                    }
                }
            }
            names.nodes.push(nodes);
            names.values.push(values);
        }
        Ok(names)
    }

    /// Inputs and control edges of all nodes, in the order of their numbers.
    fn resolve(&self) -> Result<Links, LinkError> {
        let mut inputs = Vec::with_capacity(self.first_slot.len());
        let mut controls = Vec::with_capacity(self.first_slot.len());
        for (rank, &g) in self.order.iter().enumerate() {
            let graph = &self.model.graphs[g];
            for (n, node) in graph.nodes.iter().enumerate() {
                let mut values = SmallVec::with_capacity(node.inputs.len());
                for (i, input) in node.inputs.iter().enumerate() {
                    let value = input.as_ref().map(|r| self.value(rank, n, r)).transpose();
                    values.push(value.map_err(|problem| LinkError {
                        place: place_in(graph, (g, n), format!("inputs[{i}]")),
                        problem,
                    })?);
                }
                inputs.push(values);
                let mut control = Vec::with_capacity(node.control.len());
                for (i, name) in node.control.iter().enumerate() {
                    let problem = match self.nodes[rank].get(&**name) {
                        None => LinkProblem::UnknownNode(name.clone()),
                        Some(&before) if before < n => {
                            control.push(NodeId::new(self.first_node[rank] + before));
                            continue;
                        }
                        Some(_) => LinkProblem::RunsLater(format!("control input {name:?}")),
                    };
                    return Err(LinkError {
                        place: place_in(graph, (g, n), format!("control[{i}]")),
                        problem,
                    });
                }
                controls.push(control);
            }
        }
        Ok((inputs, controls))
    }

    /// The value that node `reader` of graph `rank` means.
    fn value(&self, rank: usize, reader: usize, name: &Ref) -> Result<ValueId, LinkProblem> {
        // Up to the graph that makes the value; there, what counts is the node around the reader.
        let (mut home, mut reader) = (rank, reader);
        if let Some(graph) = &name.graph {
            let target = *(self.graphs.get(&**graph))
                .ok_or_else(|| LinkProblem::UnknownGraph(graph.clone()))?;
            while home != target {
                (home, reader) =
                    self.around[home].ok_or_else(|| LinkProblem::NotAround(name.to_string()))?;
            }
        }
        let (node, output) = match &name.to {
            RefTo::Slot(node, output) => {
                let n = self.nodes[home].get(&**node);
                (
                    *n.ok_or_else(|| LinkProblem::UnknownNode(node.clone()))?,
                    *output,
                )
            }
            RefTo::Name(value) => {
                let v = self.values[home].get(&**value);
                *v.ok_or_else(|| LinkProblem::UnknownValue(name.to_string()))?
            }
        };
        let def = &self.model.graphs[self.order[home]].nodes[node];
        if output as usize >= def.outputs.len() {
            return Err(LinkProblem::NoSuchOutput {
                node: def.name.clone(),
                outputs: def.outputs.len(),
                output,
            });
        }
        let first = self.first_slot[self.first_node[home] + node];
        let value = self.slots[first + output as usize];
        let value = value.ok_or_else(|| LinkProblem::AbsentOutput {
            node: def.name.clone(),
            output,
        })?;
        if node < reader {
            Ok(value)
        } else {
            Err(LinkProblem::RunsLater(name.to_string()))
        }
    }
}
