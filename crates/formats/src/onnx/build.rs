//! Builds the graph: one pass over each subgraph, names resolved through the scopes around it.
//!
//! A subgraph is built after all nodes of the graph around it, from a list of what is still to be
//! built: no recursion, and ids in the order in which a walk from the root meets graphs. Calls of
//! functions are followed in place ([`super::inline`]).

use bytes::Bytes;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use tenure_graph::control::carried_states;
use tenure_graph::effects::OpTable;
use tenure_graph::{
    Attr, CONST_OP, DType, Dialect, Graph, NodeId, OPSET, Shape, SubgraphId, Tensor, ValueId, Words,
};

use super::attrs::{self, Content};
use super::calls::{Call, Functions, opsets};
use super::names::{self, Given};
use super::order::order;
use super::scope::{Bound, EnvironmentId, FrameId, Scopes, Site, Types};
use super::tensor::Tensors;
use super::types::{self, Declared, Names};
use super::{decode, domain, node_title};
use crate::error::{FormatError, Problem, Within as _, quoted, shown};
use crate::generated::onnx as pb;

/// How deep subgraphs and calls may nest, together.
pub(super) const MAX_DEPTH: usize = tenure_graph::verify::MAX_DEPTH;

/// How many inputs a node may have: each may share memory with each other one, so the work grows
/// with their square.
pub(crate) const MAX_INPUTS: usize = 10_000;

/// How many attributes a node may have: far more than any operator knows, few enough to look one
/// up by a scan.
pub(crate) const MAX_ATTRIBUTES: usize = 1000;

/// What the graph attributes of ONNX operators are called as bodies; others keep their name.
const ROLES: &[(&str, &str)] = &[("then_branch", "then"), ("else_branch", "else")];

/// Builds the graph of a model. `inline_limit` is about how many bytes inlined functions may take.
pub(super) fn build(
    model: &pb::ModelProto,
    root: pb::GraphProto,
    folder: Option<&Path>,
    inline_limit: u64,
) -> Result<Graph, FormatError> {
    let name = match root.name() {
        "" => "main",
        name => name,
    };
    let opsets = model_opsets(model);
    let mut builder = Builder {
        graph: Graph::new(root.name(), Dialect::Onnx, name),
        table: OpTable::builtin(Dialect::Onnx),
        functions: Functions::new(&model.functions, &opsets, inline_limit)
            .within(|| "functions".to_owned())?,
        tensors: Tensors::new(folder),
        given: Given::default(),
        scopes: Scopes::default(),
        words: Words::default(),
        pending: Vec::new(),
    };
    builder.graph.opsets = opsets;
    let subgraph = builder.graph.root;
    let first = Job {
        proto: root,
        around: None,
        attributes: None,
        calls: None,
        depth: 0,
    };
    builder.subgraph(&first, subgraph)?;
    while let Some(Body {
        owner,
        role,
        name,
        job,
    }) = builder.pending.pop()
    {
        let subgraph = builder.graph.add_subgraph(owner, role, name);
        if let Err(mut error) = builder.subgraph(&job, subgraph) {
            let mut at = Some(subgraph);
            while let Some((owner, place)) = at.and_then(|s| builder.owner(s)) {
                error = error.within(|| place);
                at = Some(builder.graph.nodes[owner].subgraph);
            }
            return Err(error);
        }
    }
    let mut graph = builder.graph;
    names::settle(&mut graph, &builder.given);
    Ok(graph)
}

/// The operator sets of the model, then those that only its functions name.
fn model_opsets(model: &pb::ModelProto) -> Vec<(Arc<str>, i64)> {
    let mut all = opsets(&model.opset_import);
    let known = all.len();
    for import in opsets(model.functions.iter().flat_map(|f| &f.opset_import)) {
        if all[..known].iter().all(|(domain, _)| *domain != import.0) {
            all.push(import);
        }
    }
    all
}

/// A graph that is to be built.
struct Job<'m> {
    proto: pb::GraphProto,
    /// The scope around it.
    around: Option<FrameId>,
    /// The attributes of the call around it.
    attributes: Option<EnvironmentId>,
    calls: Option<Rc<Call<'m>>>,
    depth: usize,
}

/// A subgraph that is to be built.
struct Body<'m> {
    owner: NodeId,
    role: Arc<str>,
    name: String,
    job: Job<'m>,
}

/// A graph under construction.
pub(super) struct Builder<'m> {
    pub(super) graph: Graph,
    table: OpTable,
    pub(super) functions: Functions<'m>,
    tensors: Tensors<'m>,
    pub(super) given: Given,
    pub(super) scopes: Scopes,
    words: Words,
    pending: Vec<Body<'m>>,
}

impl<'m> Builder<'m> {
    /// The node that runs a subgraph, and what messages call the two.
    fn owner(&self, subgraph: SubgraphId) -> Option<(NodeId, String)> {
        let owner = self.graph.subgraphs[subgraph].owner?;
        let node = &self.graph.nodes[owner];
        let body = node.bodies.iter().find(|b| b.graph == subgraph)?;
        Some((
            owner,
            format!(
                "node {} ({}), {}",
                quoted(&node.name),
                shown(&node.op),
                shown(&body.role)
            ),
        ))
    }

    /// Fills a subgraph.
    fn subgraph(&mut self, job: &Job<'m>, subgraph: SubgraphId) -> Result<(), FormatError> {
        let proto = &job.proto;
        let names = match job.calls {
            None => Names::Model,
            Some(_) => Names::Function,
        };
        let mut site = Site {
            subgraph,
            frame: self
                .scopes
                .enter(job.around, proto.node.len() + proto.initializer.len()),
            attributes: job.attributes,
            calls: job.calls.clone(),
            depth: job.depth,
            prefix: "",
            types: Types::new(&proto.value_info, &proto.output, names)?,
            results: HashMap::new(),
        };
        let inputs = self.inputs(&site, proto)?;
        self.initializers(&site, proto, &inputs)?;
        self.nodes(&mut site, &proto.node)?;

        let mut results = Vec::with_capacity(proto.output.len());
        for (i, info) in proto.output.iter().enumerate() {
            let slot = || format!("output {i} of the graph");
            if info.name().is_empty() {
                return Err(Problem::NoName(slot()).into());
            }
            let value = self.scopes.resolve(site.frame, info.name(), slot)?;
            if let Some(value) = value.filter(|&v| self.graph.home(v) == subgraph) {
                self.declare(value, &site.types.of(info.name())?);
            }
            results.push(value);
        }
        self.graph.add_results(subgraph, "NetOutput", results);
        self.check_size()
    }

    /// Adds what is declared of a value to what is known of it.
    pub(super) fn declare(&mut self, value: ValueId, declared: &Declared) {
        let value = &mut self.graph.values[value];
        if value.dtype == DType::Unknown {
            value.dtype = declared.dtype;
        }
        if value.shape.is_none() {
            value.shape.clone_from(&declared.shape);
        }
        if let Some(element) = &declared.element {
            value.set_element(element);
        }
    }

    /// Ids are 32 bits wide.
    fn check_size(&self) -> Result<(), FormatError> {
        let limit = u32::MAX as usize / 2;
        if self.graph.nodes.len() > limit || self.graph.values.len() > limit {
            return Err(Problem::TooMany.into());
        }
        Ok(())
    }

    /// The graph's inputs; returns their names. An input of the root that has an initializer is a
    /// constant: in files older than IR version 4 every initializer is an input too.
    fn inputs<'p>(
        &mut self,
        site: &Site<'m, '_>,
        proto: &'p pb::GraphProto,
    ) -> Result<Vec<&'p str>, FormatError> {
        let is_root = site.subgraph == self.graph.root;
        let constants: HashSet<&str> = if is_root {
            initializer_names(proto).collect()
        } else {
            HashSet::new()
        };
        let mut inputs = Vec::new();
        for (i, info) in proto.input.iter().enumerate() {
            let name = info.name();
            if name.is_empty() {
                return Err(Problem::NoName(format!("input {i} of the graph")).into());
            }
            if constants.contains(name) {
                continue;
            }
            let declared = types::declared_by(info, site.types.names)?;
            let value = (self.graph).add_input(site.subgraph, name, DType::Unknown, None);
            self.declare(value, &declared);
            self.given.values[value] = true;
            self.scopes.define(site.frame, name, Some(value))?;
            inputs.push(name);
        }
        Ok(inputs)
    }

    fn initializers(
        &mut self,
        site: &Site<'m, '_>,
        proto: &pb::GraphProto,
        inputs: &[&str],
    ) -> Result<(), FormatError> {
        let inputs: HashSet<&str> = inputs.iter().copied().collect();
        for (i, init) in proto.initializer.iter().enumerate() {
            let name = init.name();
            // The owner gives the inputs of a body their values: a default is never used.
            if inputs.contains(name) {
                continue;
            }
            let place = || format!("initializer {i} ({})", quoted(name));
            let tensor = self.tensors.read(init).within(place)?;
            self.constant(site, name, tensor).within(place)?;
        }
        for (i, init) in proto.sparse_initializer.iter().enumerate() {
            let name = init.values.as_ref().map_or("", |v| v.name());
            if inputs.contains(name) {
                continue;
            }
            let place = || format!("sparse initializer {i} ({})", quoted(name));
            let tensor = self.tensors.read_sparse(init).within(place)?;
            self.constant(site, name, tensor).within(place)?;
        }
        Ok(())
    }

    fn constant(
        &mut self,
        site: &Site<'m, '_>,
        name: &str,
        tensor: Tensor,
    ) -> Result<(), FormatError> {
        if name.is_empty() {
            return Err(Problem::NoName("the initializer".to_owned()).into());
        }
        let node = self.graph.add_node(site.subgraph, name, CONST_OP);
        self.graph.nodes[node].stream = None;
        let shape = Shape::of(&tensor.shape);
        let value = (self.graph).add_output(node, name, tensor.dtype, Some(shape));
        let attrs = &mut self.graph.nodes[node].attrs;
        attrs.set("value", Attr::Tensor(Arc::new(tensor)));
        self.given.values[value] = true;
        Ok(self.scopes.define(site.frame, name, Some(value))?)
    }

    /// Adds encoded nodes, calls among them, in an order in which they can run.
    pub(super) fn nodes(
        &mut self,
        site: &mut Site<'m, '_>,
        nodes: &[Bytes],
    ) -> Result<(), FormatError> {
        let first_body = self.pending.len();
        for position in order(nodes)? {
            let mut node: pb::NodeProto =
                decode(&nodes[position]).within(|| format!("node {position}"))?;
            self.node_or_call(site, position, &mut node)
                .within(|| node_title(position, &node))?;
        }
        // Taken from the end: the first body comes first.
        if site.prefix.is_empty() {
            self.pending[first_body..].reverse();
        }
        Ok(())
    }

    fn node_or_call(
        &mut self,
        site: &Site<'m, '_>,
        position: usize,
        proto: &mut pb::NodeProto,
    ) -> Result<(), FormatError> {
        if site.calls.is_some() {
            self.functions.charge_node(proto, site.prefix.len())?;
        }
        match self.functions.called_by(proto) {
            Some(function) => self.call(site, position, proto, &function),
            None => self.node(site, position, proto),
        }
    }

    fn node(
        &mut self,
        site: &Site<'m, '_>,
        position: usize,
        proto: &mut pb::NodeProto,
    ) -> Result<(), FormatError> {
        if proto.op_type().is_empty() {
            return Err(Problem::NoOperator.into());
        }
        let inputs = (proto.input.iter().enumerate())
            .map(|(i, name)| {
                self.scopes
                    .resolve(site.frame, name, || format!("input {i}"))
            })
            .collect::<Result<_, _>>()?;
        let name = site.node_name(position, proto);
        let op = self.words.word(proto.op_type());
        let id = self.graph.add_node(site.subgraph, name, op);
        self.given.nodes[id] = site.prefix.is_empty() && !proto.name().is_empty();
        let domain = self.words.word(domain(proto.domain()));
        let opset = self.scopes.opset(site.frame, &domain);
        let node = &mut self.graph.nodes[id];
        node.domain = domain;
        node.inputs = inputs;
        if let Some(version) = opset {
            node.extra.set(OPSET, Attr::Int(version));
        }
        if proto.input.len() > MAX_INPUTS {
            return Err(Problem::TooManyInputs(proto.input.len()).into());
        }
        if proto.attribute.len() > MAX_ATTRIBUTES {
            return Err(Problem::TooManyAttributes(proto.attribute.len()).into());
        }
        for attribute in proto.attribute.drain(..) {
            let name = self.words.word(attribute.name());
            self.attribute(site, id, &name, attribute)
                .within(|| format!("attribute {}", quoted(&name)))?;
        }
        if proto.op_type() == "Constant" && self.graph.nodes[id].domain.is_empty() {
            attrs::normalise_constant(&mut self.graph.nodes[id].attrs);
        }
        self.outputs(site, id, proto)
    }

    fn outputs(
        &mut self,
        site: &Site<'m, '_>,
        node: NodeId,
        proto: &pb::NodeProto,
    ) -> Result<(), FormatError> {
        let class = self.table.class(&self.graph, node);
        let carried = carried_states(&self.graph, &self.graph.nodes[node], class);
        for i in 0..proto.output.len().max(carried) {
            let name = proto.output.get(i).map_or("", String::as_str);
            if name.is_empty() {
                if i < carried {
                    let name = format!("{}:{i}", self.graph.nodes[node].name);
                    (self.graph).add_output(node, name, DType::Unknown, None);
                } else {
                    self.graph.nodes[node].outputs.push(None);
                }
                continue;
            }
            let (shown, declared) = site.declared(name)?;
            let value = (self.graph).add_output(node, shown, DType::Unknown, None);
            self.declare(value, &declared);
            self.given.values[value] = site.prefix.is_empty() || site.results.contains_key(name);
            self.scopes.define(site.frame, name, Some(value))?;
        }
        Ok(())
    }

    fn attribute(
        &mut self,
        site: &Site<'m, '_>,
        node: NodeId,
        name: &Arc<str>,
        written: pb::AttributeProto,
    ) -> Result<(), FormatError> {
        let Some(bound) = self.scopes.bound(site, written)? else {
            return Ok(());
        };
        let value = match attrs::content(&bound.attribute)? {
            Content::Nothing => Attr::Null,
            Content::Data(kind) => attrs::data(&bound.attribute, kind, &mut self.tensors)?,
            Content::Graph(graph) => return self.body(site, node, role(name), graph, &bound),
            Content::Graphs(graphs) => {
                for (i, graph) in graphs.iter().enumerate() {
                    self.body(site, node, &format!("{name}{i}"), graph, &bound)?;
                }
                return Ok(());
            }
        };
        self.graph.nodes[node].attrs.set(Arc::clone(name), value);
        Ok(())
    }

    /// Notes a subgraph to be built.
    fn body(
        &mut self,
        site: &Site<'m, '_>,
        owner: NodeId,
        role: &str,
        encoded: &Bytes,
        bound: &Bound,
    ) -> Result<(), FormatError> {
        let proto: pb::GraphProto = decode(encoded)?;
        let name = if proto.name().is_empty() {
            format!("{}_{role}", self.graph.nodes[owner].name)
        } else {
            format!("{}{}", site.prefix, proto.name())
        };
        if site.calls.is_some() {
            self.functions.charge(1, 128 + name.len())?;
            self.functions.charge_graph(&proto)?;
        }
        self.pending.push(Body {
            owner,
            role: Arc::from(role),
            name,
            job: Job {
                proto,
                around: Some(bound.frame),
                attributes: bound.attributes,
                calls: site.calls.clone(),
                depth: deeper(site.depth)?,
            },
        });
        Ok(())
    }
}

fn initializer_names(proto: &pb::GraphProto) -> impl Iterator<Item = &str> {
    let sparse = proto
        .sparse_initializer
        .iter()
        .filter_map(|s| s.values.as_ref());
    proto.initializer.iter().chain(sparse).map(|t| t.name())
}

fn role(attribute: &str) -> &str {
    let found = ROLES.iter().find(|(from, _)| *from == attribute);
    found.map_or(attribute, |(_, to)| to)
}

/// One level further in.
pub(super) fn deeper(depth: usize) -> Result<usize, Problem> {
    if depth >= MAX_DEPTH {
        return Err(Problem::TooDeep(MAX_DEPTH));
    }
    Ok(depth + 1)
}
