//! From a model of Graph Engine to a graph, and to the plan that a compiled model records.
//!
//! | what a file says | what it becomes |
//! | --- | --- |
//! | `input` without a node | an optional input left out |
//! | `NODE:-1` | a control edge |
//! | ids, if all differ | the order of the nodes |
//! | nodes that record an event and wait for it | a control edge between them |
//! | `size` of a tensor | bytes to allocate; they hold even where type and shape need more |
//! | a tensor that reuses an input; `reference` and equal names | a reference to that input |
//! | `_parent_node_index` | `parent_index` |
//! | `_sub_stream_id` | the stream, in place of `stream_id` |
//! | `subgraph_name` | subgraphs, in the roles that the operator's row gives them |
//! | workspaces of a node that clears memory | nothing: they are memory of others |
//!
//! All other attributes keep their names and values.

use std::collections::HashMap;
use std::sync::Arc;
use tenure_graph::effects::demands::{
    ANY_MEMORY, HOST_MEMORY, HOST_SHARED_MEMORY, PEER_MEMORY, SESSION_MEMORY, is_workspace_on_chip,
};
use tenure_graph::effects::{OpClass, OpTable, Trait};
use tenure_graph::link::{self, ModelDef, NodeDef, OutputDef, Ref, RefTo};
use tenure_graph::recorded::Recorded;
use tenure_graph::{
    Attr, Attrs, DType, Dialect, Dim, Graph, NodeId, OUTPUT_OP, OutputHints, Shape, StreamId,
};
use tenure_graph::{events, tensor_kinds};

use super::model::{Desc, GraphDef, Model, Op};
use super::order;
use crate::error::{FormatError, Problem, Within as _, quoted, shown};
use crate::onnx::MAX_INPUTS;

/// Which input of the owner a node stands for, or which output a result becomes: the name in files,
/// and the one in graphs.
const PARENT_INDEX: (&str, &str) = ("_parent_node_index", "parent_index");

/// Attributes of a model that state the size of a kind of memory.
const SIZES: [(&str, i64); 5] = [
    ("memory_size", ANY_MEMORY),
    ("p2p_memory_size", PEER_MEMORY),
    ("session_scope_memory_size", SESSION_MEMORY),
    ("host_memory_size", HOST_MEMORY),
    ("host_svm_size", HOST_SHARED_MEMORY),
];

/// The engine that runs a node: the name in files, and the key in graphs.
const ENGINE: (&str, &str) = ("_ge_attr_op_kernel_lib_name", "kernel_lib");

/// A model's graph, and the plan that it carries.
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) graph: Graph,
    /// `None` for a model that is not compiled.
    pub(crate) recorded: Option<Recorded>,
}

/// Builds the graph.
///
/// # Errors
/// Names that do not fit together, what is no size, no stream, no type; a graph that breaks rules.
pub(super) fn build(model: Model) -> Result<Built, FormatError> {
    let Some(root) = model.graphs.first() else {
        return Err(Problem::NoGraph.into());
    };
    if root.ops.is_empty() {
        return Err(Problem::EmptyGraph.into());
    }
    let is_compiled = (model.graphs.iter())
        .flat_map(|g| &g.ops)
        .any(|op| !op.output_offsets.is_empty());
    let builder = Builder {
        table: OpTable::builtin(Dialect::Ge),
        is_compiled,
    };
    let mut places = Vec::new();
    let mut graphs = Vec::with_capacity(model.graphs.len());
    for graph in model.graphs {
        let title = format!("graph {}", quoted(&graph.name));
        let done = builder.graph(graph, &mut places);
        graphs.push(done.within(|| title)?);
    }
    if graphs[0].name.is_empty() {
        "main".clone_into(&mut graphs[0].name);
    }
    let name = match &*model.name {
        "" => graphs[0].name.clone(),
        _ => model.name,
    };
    let graph = link::link(ModelDef {
        name,
        dialect: Dialect::Ge,
        opsets: Vec::new(),
        options: Attrs::new(),
        graphs,
    })?;
    tenure_graph::verify(&graph).map_err(FormatError::Broken)?;
    let recorded = is_compiled.then(|| recorded(&graph, &model.attrs, &places));
    Ok(Built { graph, recorded })
}

/// Where what a node makes and uses lies.
#[derive(Default)]
struct NodePlaces {
    graph: String,
    node: String,
    outputs: Vec<(usize, u64)>,
    workspaces: Vec<(u32, u64)>,
    cleared: Vec<(u64, u64)>,
}

/// The recorded plan, in ids.
fn recorded(graph: &Graph, attrs: &Attrs, places: &[NodePlaces]) -> Recorded {
    let nodes: HashMap<(&str, &str), NodeId> = (graph.nodes.iter())
        .map(|(id, n)| ((&*graph.subgraphs[n.subgraph].name, &*n.name), id))
        .collect();
    let size = |key: &str| attrs.int(key).and_then(|n| u64::try_from(n).ok());
    let mut recorded = Recorded {
        sizes: (SIZES.iter())
            .filter_map(|&(key, kind)| Some((kind, size(key)?)))
            .collect(),
        zero_copy: size("zero_copy_memory_size"),
        ..Recorded::default()
    };
    for place in places {
        let Some(&node) = nodes.get(&(&*place.graph, &*place.node)) else {
            continue;
        };
        for &(output, offset) in &place.outputs {
            let value = graph.nodes[node].output(output);
            // On the chip, an offset is none in an arena.
            if let Some(value) = value.filter(|&v| graph.bytes(v) != Some(0)) {
                recorded.values.push((value, offset));
            }
        }
        let workspaces = place.workspaces.iter();
        (recorded.workspaces).extend(workspaces.map(|&(k, offset)| (node, k, offset)));
        let cleared = place.cleared.iter();
        (recorded.cleared).extend(cleared.map(|&(offset, bytes)| (node, offset, bytes)));
    }
    recorded
}

/// What all nodes are built with.
struct Builder {
    table: OpTable,
    is_compiled: bool,
}

impl Builder {
    fn graph(
        &self,
        mut graph: GraphDef,
        places: &mut Vec<NodePlaces>,
    ) -> Result<link::GraphDef, FormatError> {
        self.add_results(&mut graph);
        let mut nodes = Vec::with_capacity(graph.ops.len());
        let ids: Vec<i64> = graph.ops.iter().map(|op| op.id).collect();
        for (position, op) in graph.ops.into_iter().enumerate() {
            let title = match &*op.name {
                "" => format!("node {position} ({})", shown(&op.op)),
                name => format!("node {} ({})", quoted(name), shown(&op.op)),
            };
            let mut place = NodePlaces {
                graph: graph.name.clone(),
                node: op.name.clone(),
                ..NodePlaces::default()
            };
            nodes.push(self.node(op, &mut place).within(|| title)?);
            places.push(place);
        }
        Ok(link::GraphDef {
            nodes: self.order(&ids, nodes)?,
            name: graph.name,
            attrs: graph.attrs,
        })
    }

    fn class(&self, op: &str) -> OpClass {
        self.table.class_of_op("", op)
    }

    fn has(&self, op: &str, which: Trait) -> bool {
        self.table.traits_of_op("", op).has(which)
    }

    /// Adds the node of the results where the file has a list of them instead.
    fn add_results(&self, graph: &mut GraphDef) {
        let is_output = |op: &Op| self.class(&op.op) == OpClass::Output;
        if graph.ops.iter().any(is_output) {
            return;
        }
        let mut name = OUTPUT_OP.to_owned();
        while graph.ops.iter().any(|op| op.name == name) {
            name.push('_');
        }
        let last = graph.ops.iter().map(|op| op.id).max();
        graph.ops.push(Op {
            name,
            op: OUTPUT_OP.to_owned(),
            inputs: std::mem::take(&mut graph.outputs),
            id: last.map_or(0, |id| id.saturating_add(1)),
            stream: -1,
            ..Op::default()
        });
    }

    /// The nodes in the order in which they run. Nodes that wait for an event get a control edge from
    /// the node that recorded it last; what stands behind the results waits for them no more, since
    /// they are no step of the run.
    fn order(&self, ids: &[i64], nodes: Vec<NodeDef>) -> Result<Vec<NodeDef>, FormatError> {
        let is_output = |n: &NodeDef| self.class(&n.op) == OpClass::Output;
        let mut nodes = arranged(nodes, &order::by_id(ids));
        nodes.sort_by_key(is_output);
        let outputs = nodes.iter().filter(|n| is_output(n));
        let results: Vec<String> = outputs.map(|n| n.name.clone()).collect();
        for node in &mut nodes {
            node.control.retain(|name| !results.contains(name));
        }
        events::to_control(&mut nodes, &self.table);
        let names: Vec<&str> = nodes.iter().map(|n| &*n.name).collect();
        let places: HashMap<&str, usize> = names.iter().copied().zip(0..).collect();
        if places.len() < names.len() {
            // Two nodes of one name are refused when names become ids.
            return Ok(nodes);
        }
        let waits: Vec<Vec<usize>> = (nodes.iter())
            .map(|node| {
                let read = node.inputs.iter().flatten().map(|r| match &r.to {
                    RefTo::Slot(node, _) | RefTo::Name(node) => node,
                });
                let read = read.chain(&node.control);
                let mut all: Vec<usize> = read
                    .filter_map(|name| places.get(&**name).copied())
                    .collect();
                all.sort_unstable();
                all.dedup();
                all
            })
            .collect();
        let order = order::after_waits(&waits, &names)?;
        let mut nodes = arranged(nodes, &order);
        nodes.sort_by_key(is_output);
        Ok(nodes)
    }

    fn node(&self, mut op: Op, place: &mut NodePlaces) -> Result<NodeDef, Problem> {
        if op.op.is_empty() {
            return Err(Problem::NoOperator);
        }
        let slots = [
            op.inputs.len(),
            op.input_descs.len(),
            op.output_descs.len(),
            op.workspace_bytes.len(),
        ];
        if let Some(&many) = slots.iter().find(|&&n| n > MAX_INPUTS) {
            return Err(Problem::TooManyInputs(many));
        }
        let class = self.class(&op.op);
        let (mut inputs, control) = edges(&op.inputs)?;
        let runs = matches!(
            class,
            OpClass::Input | OpClass::Constant | OpClass::Variable
        );
        if runs && inputs.iter().all(Option::is_none) {
            inputs.clear();
        }
        let input_attrs = input_attrs(&inputs, &mut op.input_descs);
        let mut outputs = Vec::new();
        if class != OpClass::Output {
            for k in 0..op.output_descs.len() {
                outputs.push(Some(self.output(&op, k, class, &inputs)?));
            }
        }
        if !matches!(class, OpClass::Constant | OpClass::Variable) {
            let offsets = op.output_offsets.iter().enumerate();
            let known = offsets.filter_map(|(k, &o)| Some((k, u64::try_from(o).ok()?)));
            place.outputs = known.collect();
        }
        let workspace = self.workspace(&op, class, place)?;
        let bodies = (op.subgraphs.iter())
            .filter(|name| !name.is_empty())
            .enumerate()
            .map(|(k, name)| (self.table.role("", &op.op, k).into(), name.clone()));
        let engine = op.attrs.str(ENGINE.0).map(str::to_owned);
        let mut node = NodeDef {
            bodies: bodies.collect(),
            stream: stream(&op, class)?,
            attrs: parent_index(op.attrs),
            extra: (engine.into_iter())
                .map(|name| (ENGINE.1, Attr::Str(name)))
                .collect(),
            name: op.name,
            op: Arc::from(op.op),
            domain: Arc::from(""),
            inputs,
            outputs,
            control,
            input_attrs,
            workspace,
        };
        tensor_kinds::to_list(&mut node);
        Ok(node)
    }

    /// Output `k` of a node.
    fn output(
        &self,
        op: &Op,
        k: usize,
        class: OpClass,
        inputs: &[Option<Ref>],
    ) -> Result<OutputDef, Problem> {
        let desc = &op.output_descs[k];
        let shape = shape(&desc.dims)?;
        let mut dtype = desc.dtype;
        let planned = !matches!(class, OpClass::Constant | OpClass::Variable);
        let mut size = u64::try_from(desc.size).ok().filter(|&n| n > 0);
        if self.is_compiled && planned {
            // What was compiled holds: the file has a size for what takes memory. Type and shape may
            // be those of before the layout was changed. Where it has none, what has a place takes
            // what type and shape need, and the rest takes none.
            let needed = shape.as_ref().and_then(|s| s.bytes(dtype));
            let is_placed = op.output_offsets.get(k).is_some_and(|&o| o >= 0);
            if needed > Some(size.unwrap_or(0)) && (size.is_some() || !is_placed) {
                dtype = DType::Unknown;
                size = size.or(Some(0));
            }
        }
        let is_plain = class == OpClass::Compute && op.subgraphs.is_empty();
        let hints = OutputHints {
            ref_input: match is_plain {
                true => reference(op, k, inputs)?,
                false => None,
            },
            size,
            attrs: desc.attrs.clone(),
            ..OutputHints::default()
        };
        Ok(OutputDef {
            name: None,
            dtype,
            shape,
            hints: (hints != OutputHints::default()).then(|| Box::new(hints)),
        })
    }

    /// The workspaces of a node, and where they lie. Those of a node that clears memory are the
    /// memory that it clears. A node of results that has a buffer of its own, as in the oldest
    /// files, has it as a workspace.
    fn workspace(
        &self,
        op: &Op,
        class: OpClass,
        place: &mut NodePlaces,
    ) -> Result<Vec<i64>, Problem> {
        let clears = self.has(&op.op, Trait::Zeroes);
        let mut sizes: Vec<i64> = Vec::new();
        let mut add = |size: i64, offset: Option<&i64>, is_on_chip: bool| {
            let offset = offset.and_then(|&o| u64::try_from(o).ok());
            let bytes = u64::try_from(size).unwrap_or(0);
            let bytes = if is_on_chip { 0 } else { bytes };
            if clears {
                place.cleared.extend(offset.map(|o| (o, bytes)));
                return;
            }
            if let Ok(number) = u32::try_from(sizes.len())
                && bytes > 0
            {
                place.workspaces.extend(offset.map(|o| (number, o)));
            }
            sizes.push(size);
        };
        for (index, &size) in op.workspace_bytes.iter().enumerate() {
            if size < -1 {
                return Err(Problem::Workspace { index, size });
            }
            let is_on_chip = is_workspace_on_chip(&op.attrs, index);
            add(size, op.workspace_offsets.get(index), is_on_chip);
        }
        if class == OpClass::Output {
            for (k, desc) in op.output_descs.iter().enumerate() {
                // Later files repeat the place of an input here.
                let own = |o: &&i64| !op.input_offsets.is_empty() && !op.input_offsets.contains(o);
                let offset = op.output_offsets.get(k).filter(own);
                if offset.is_some() && desc.size > 0 {
                    add(desc.size, offset, false);
                }
            }
        }
        Ok(sizes)
    }
}

/// The items in an order of their places.
fn arranged<T>(items: Vec<T>, order: &[usize]) -> Vec<T> {
    let mut items: Vec<Option<T>> = items.into_iter().map(Some).collect();
    let items = order.iter().filter_map(|&n| items[n].take());
    items.collect()
}

/// Inputs and control edges out of the list of a file.
fn edges(list: &[String]) -> Result<(Vec<Option<Ref>>, Vec<String>), Problem> {
    let mut inputs = Vec::with_capacity(list.len());
    let mut control = Vec::new();
    for text in list {
        if text.is_empty() {
            inputs.push(None);
            continue;
        }
        let edge = || Problem::Edge(text.clone());
        let (node, output) = text.rsplit_once(':').ok_or_else(edge)?;
        if output == "-1" {
            control.push(node.to_owned());
            continue;
        }
        let output = output.parse().map_err(|_| edge())?;
        inputs.push(Some(Ref {
            graph: None,
            to: RefTo::Slot(node.to_owned(), output),
        }));
    }
    Ok((inputs, control))
}

/// Attributes of the inputs. A file describes all of them, or those that are there.
fn input_attrs(inputs: &[Option<Ref>], descs: &mut [Desc]) -> Vec<Attrs> {
    let there = inputs.iter().filter(|i| i.is_some()).count();
    let skips = descs.len() != inputs.len() && descs.len() == there;
    let mut descs = descs.iter_mut();
    let mut attrs: Vec<Attrs> = (inputs.iter())
        .map(|input| {
            let desc = match input {
                None if skips => None,
                _ => descs.next(),
            };
            desc.map(|d| parent_index(std::mem::take(&mut d.attrs)))
                .unwrap_or_default()
        })
        .collect();
    while attrs.last().is_some_and(Attrs::is_empty) {
        attrs.pop();
    }
    attrs
}

/// The attributes with the graph's own name for the number of the owner's input or output.
fn parent_index(mut attrs: Attrs) -> Attrs {
    if let Some(index) = attrs.remove(PARENT_INDEX.0) {
        attrs.set(PARENT_INDEX.1, index);
    }
    attrs
}

/// The stream that a node runs on.
fn stream(op: &Op, class: OpClass) -> Result<Option<StreamId>, Problem> {
    let runs = matches!(
        class,
        OpClass::Input | OpClass::Output | OpClass::Constant | OpClass::Variable
    );
    let inner = op.attrs.get("_sub_stream_id").map(|id| match id {
        Attr::Str(text) => text.parse().ok(),
        other => other.as_int(),
    });
    let stream = match inner {
        Some(inner) => inner.unwrap_or(-1),
        None if op.attrs.get("_thread_scope_id").is_some() => -1,
        None => op.stream,
    };
    if runs || stream == -1 {
        return Ok(None);
    }
    let id = u32::try_from(stream).ok().filter(|&s| s < u32::MAX);
    let id = id.ok_or(Problem::Stream(stream))?;
    Ok(Some(StreamId::from_u32(id)))
}

/// The dimensions; `None` when not even their number is known.
fn shape(dims: &[i64]) -> Result<Option<Shape>, Problem> {
    if dims == [-2] {
        return Ok(None);
    }
    let dim = |(axis, &size): (usize, &i64)| match u64::try_from(size) {
        Ok(size) => Ok(Dim::Known(size)),
        Err(_) if size == -1 => Ok(Dim::Unknown),
        Err(_) => Err(Problem::Dimension { axis, size }),
    };
    dims.iter()
        .enumerate()
        .map(dim)
        .collect::<Result<_, _>>()
        .map(Some)
}

/// The input in whose memory output `k` lies: the one that its description names, or the one of the
/// same name where the node is a reference.
fn reference(op: &Op, k: usize, inputs: &[Option<Ref>]) -> Result<Option<u32>, Problem> {
    let there = |&i: &u32| inputs.get(i as usize).is_some_and(Option::is_some);
    let name = name_of(&op.attrs, "_output_name", k);
    let name = name.or_else(|| Some(&*op.output_descs[k].name).filter(|n| !n.is_empty()));
    let same_name = || {
        let input = |&i: &u32| {
            let at = i as usize;
            let name = name_of(&op.attrs, "_input_name", at);
            let described = op.input_descs.get(at).map(|d| &*d.name);
            name.or(described.filter(|n| !n.is_empty()))
                .or(op.input_names.get(at).map(String::as_str))
        };
        let slots = 0..u32::try_from(inputs.len()).unwrap_or(u32::MAX);
        name.and_then(|name| slots.filter(there).find(|i| input(i) == Some(name)))
    };
    let desc = &op.output_descs[k];
    if !desc.reuses {
        let is_reference = op.attrs.get("reference").and_then(Attr::as_bool) == Some(true);
        return Ok(if is_reference { same_name() } else { None });
    }
    let mut all = (0u32..).zip(inputs).filter(|(_, i)| i.is_some());
    let only = match (all.next(), all.next()) {
        (Some((i, _)), None) => Some(i),
        _ => None,
    };
    let found = match desc.reused {
        Some(index) => Some(index).filter(there),
        None => same_name().or(only),
    };
    found.map(Some).ok_or(Problem::Reference { output: k })
}

/// The name that a node gives slot `k` of a side, in two lists: names, and the slots they are of.
fn name_of<'a>(attrs: &'a Attrs, side: &str, k: usize) -> Option<&'a str> {
    let Some(Attr::List(names)) = attrs.get(&format!("{side}_key")) else {
        return None;
    };
    let slots = attrs.ints(&format!("{side}_value"))?;
    let at = slots.iter().position(|&s| usize::try_from(s) == Ok(k))?;
    names.get(at)?.as_str()
}
