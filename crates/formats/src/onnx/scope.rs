//! Scopes: what names and attributes stand for at a place of the model.

use bytes::Bytes;
use std::collections::HashMap;
use std::rc::Rc;
use tenure_graph::{SubgraphId, ValueId};

use super::calls::{Call, Opsets};
use super::decode;
use super::partial::ValueName;
use super::types::{self, Declared, Names};
use crate::error::{FormatError, Problem, Within as _, quoted};
use crate::generated::onnx as pb;

/// The names of one graph or function body.
#[derive(Clone, Copy)]
pub(super) struct FrameId(usize);

/// The attributes of one call.
#[derive(Clone, Copy)]
pub(super) struct EnvironmentId(usize);

/// The scopes of a model. They stay to the end: bodies are built after the graphs around them.
#[derive(Default)]
pub(super) struct Scopes {
    frames: Vec<Frame>,
    environments: Vec<Environment>,
}

struct Frame {
    /// What each name stands for; `None` is an optional input that the call left out.
    names: HashMap<Box<str>, Option<ValueId>>,
    around: Option<FrameId>,
    /// Operator sets of the function around it, as far as they are not the model's.
    opsets: Opsets,
}

/// Attributes by name.
pub(super) type Environment = HashMap<String, Bound>;

/// An attribute and the place where it was written: its graphs see the names there.
#[derive(Clone)]
pub(super) struct Bound {
    pub(super) attribute: Rc<pb::AttributeProto>,
    pub(super) frame: FrameId,
    pub(super) attributes: Option<EnvironmentId>,
}

impl Scopes {
    /// The scope of a graph, without names but with room for some.
    pub(super) fn enter(&mut self, around: Option<FrameId>, room: usize) -> FrameId {
        let opsets = around.map(|f| Rc::clone(&self.frames[f.0].opsets));
        self.push(around, opsets.unwrap_or_default(), room)
    }

    /// The scope of a function, which sees no names around it.
    pub(super) fn enter_function(&mut self, opsets: Opsets, room: usize) -> FrameId {
        self.push(None, opsets, room)
    }

    fn push(&mut self, around: Option<FrameId>, opsets: Opsets, room: usize) -> FrameId {
        self.frames.push(Frame {
            names: HashMap::with_capacity(room),
            around,
            opsets,
        });
        FrameId(self.frames.len() - 1)
    }

    /// The version of a domain's operators, where it is not the model's.
    pub(super) fn opset(&self, frame: FrameId, domain: &str) -> Option<i64> {
        let mut opsets = self.frames[frame.0].opsets.iter();
        let found = opsets.find(|(d, _)| **d == *domain);
        found.map(|&(_, version)| version)
    }

    /// Gives a name its meaning.
    pub(super) fn define(
        &mut self,
        frame: FrameId,
        name: &str,
        value: Option<ValueId>,
    ) -> Result<(), Problem> {
        match self.frames[frame.0].names.insert(name.into(), value) {
            None => Ok(()),
            Some(_) => Err(Problem::Duplicate(name.to_owned())),
        }
    }

    /// The value that a name stands for, in this scope or the nearest one around it. `slot` says
    /// what names it.
    pub(super) fn resolve(
        &self,
        frame: FrameId,
        name: &str,
        slot: impl FnOnce() -> String,
    ) -> Result<Option<ValueId>, Problem> {
        if name.is_empty() {
            return Ok(None);
        }
        let mut at = Some(frame);
        while let Some(frame) = at.map(|f| &self.frames[f.0]) {
            if let Some(&value) = frame.names.get(name) {
                return Ok(value);
            }
            at = frame.around;
        }
        Err(Problem::Undefined {
            slot: slot(),
            name: name.to_owned(),
        })
    }

    /// Keeps the attributes of a call.
    pub(super) fn keep(&mut self, environment: Environment) -> EnvironmentId {
        self.environments.push(environment);
        EnvironmentId(self.environments.len() - 1)
    }

    /// Follows a reference to an attribute of the function around; `None` when the call left it
    /// out and there is no default.
    pub(super) fn bound(
        &self,
        site: &Site<'_, '_>,
        attribute: pb::AttributeProto,
    ) -> Result<Option<Bound>, Problem> {
        let name = attribute.ref_attr_name();
        if name.is_empty() {
            return Ok(Some(Bound {
                attribute: Rc::new(attribute),
                frame: site.frame,
                attributes: site.attributes,
            }));
        }
        match site.attributes {
            Some(EnvironmentId(i)) => Ok(self.environments[i].get(name).cloned()),
            None => Err(Problem::StrayReference(name.to_owned())),
        }
    }
}

/// Where nodes are put.
pub(super) struct Site<'m, 'a> {
    pub(super) subgraph: SubgraphId,
    pub(super) frame: FrameId,
    /// The attributes of the call around it.
    pub(super) attributes: Option<EnvironmentId>,
    pub(super) calls: Option<Rc<Call<'m>>>,
    pub(super) depth: usize,
    /// What stands before the names of nodes and values.
    pub(super) prefix: &'a str,
    pub(super) types: Types<'a>,
    /// Names and types that the caller has for results of the function.
    pub(super) results: HashMap<&'a str, (String, Declared)>,
}

impl Site<'_, '_> {
    /// What a value is called in the graph, and what is declared of it.
    pub(super) fn declared(&self, name: &str) -> Result<(String, Declared), FormatError> {
        match self.results.get(name) {
            Some((shown, declared)) if *declared != Declared::UNKNOWN => {
                Ok((shown.clone(), declared.clone()))
            }
            Some((shown, _)) => Ok((shown.clone(), self.types.of(name)?)),
            None => Ok((format!("{}{name}", self.prefix), self.types.of(name)?)),
        }
    }

    /// What a node is called in the graph.
    pub(super) fn node_name(&self, position: usize, proto: &pb::NodeProto) -> String {
        if proto.name().is_empty() {
            format!("{}{}_{position}", self.prefix, proto.op_type())
        } else {
            format!("{}{}", self.prefix, proto.name())
        }
    }
}

/// What is declared of the values of one graph or function body.
pub(super) struct Types<'a> {
    /// Positions in `encoded`.
    inside: HashMap<Bytes, usize>,
    encoded: &'a [Bytes],
    outputs: HashMap<&'a str, &'a pb::ValueInfoProto>,
    pub(super) names: Names,
}

impl<'a> Types<'a> {
    /// Of what is declared of values inside, still encoded, and of the outputs. What is declared
    /// last holds.
    pub(super) fn new(
        encoded: &'a [Bytes],
        outputs: &'a [pb::ValueInfoProto],
        names: Names,
    ) -> Result<Self, FormatError> {
        let mut inside = HashMap::with_capacity(encoded.len());
        for (i, info) in encoded.iter().enumerate() {
            let ValueName { name } = decode(info).within(|| format!("type {i} of the graph"))?;
            inside.insert(name, i);
        }
        Ok(Types {
            inside,
            encoded,
            outputs: outputs.iter().map(|info| (info.name(), info)).collect(),
            names,
        })
    }

    pub(super) fn of(&self, name: &str) -> Result<Declared, FormatError> {
        if let Some(info) = self.outputs.get(name) {
            return types::declared_by(info, self.names);
        }
        match self.inside.get(name.as_bytes()) {
            Some(&i) => {
                let place = || format!("value {}", quoted(name));
                let info = decode(&self.encoded[i]).within(place)?;
                types::declared_by(&info, self.names)
            }
            None => Ok(Declared::UNKNOWN),
        }
    }
}
