//! Scopes: what names and attributes stand for at a place of the model.

use std::collections::HashMap;
use std::rc::Rc;
use tenure_graph::{SubgraphId, ValueId};

use super::calls::Call;
use super::types::{self, Declared, Names};
use crate::error::{FormatError, Problem};
use crate::generated::onnx as pb;

/// The names of one graph or function body.
#[derive(Clone, Copy)]
pub(super) struct FrameId(usize);

/// The attributes of one call.
#[derive(Clone, Copy)]
pub(super) struct EnvironmentId(usize);

/// The scopes of a model. They stay to the end: bodies are built after the graphs around them.
#[derive(Default)]
pub(super) struct Scopes<'m> {
    frames: Vec<Frame<'m>>,
    environments: Vec<Environment<'m>>,
}

struct Frame<'m> {
    /// What each name stands for; `None` is an optional input that the call left out.
    names: HashMap<&'m str, Option<ValueId>>,
    around: Option<FrameId>,
}

/// Attributes by name.
pub(super) type Environment<'m> = HashMap<&'m str, Bound<'m>>;

/// An attribute and the place where it was written: its graphs see the names there.
#[derive(Clone, Copy)]
pub(super) struct Bound<'m> {
    pub(super) attribute: &'m pb::AttributeProto,
    pub(super) frame: FrameId,
    pub(super) attributes: Option<EnvironmentId>,
}

impl<'m> Scopes<'m> {
    /// A scope without names, with room for some; a function's sees none around it.
    pub(super) fn enter(&mut self, around: Option<FrameId>, room: usize) -> FrameId {
        self.frames.push(Frame {
            names: HashMap::with_capacity(room),
            around,
        });
        FrameId(self.frames.len() - 1)
    }

    /// Gives a name its meaning.
    pub(super) fn define(
        &mut self,
        frame: FrameId,
        name: &'m str,
        value: Option<ValueId>,
    ) -> Result<(), Problem> {
        match self.frames[frame.0].names.insert(name, value) {
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
    pub(super) fn keep(&mut self, environment: Environment<'m>) -> EnvironmentId {
        self.environments.push(environment);
        EnvironmentId(self.environments.len() - 1)
    }

    /// Follows a reference to an attribute of the function around; `None` when the call left it
    /// out and there is no default.
    pub(super) fn bound(
        &self,
        site: &Site<'m, '_>,
        attribute: &'m pb::AttributeProto,
    ) -> Result<Option<Bound<'m>>, Problem> {
        let name = attribute.ref_attr_name();
        if name.is_empty() {
            return Ok(Some(Bound {
                attribute,
                frame: site.frame,
                attributes: site.attributes,
            }));
        }
        match site.attributes {
            Some(EnvironmentId(i)) => Ok(self.environments[i].get(name).copied()),
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
    pub(super) types: Types<'m>,
    /// Names and types that the caller has for results of the function.
    pub(super) results: HashMap<&'m str, (String, Declared)>,
}

impl<'m> Site<'m, '_> {
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
pub(super) struct Types<'m> {
    infos: HashMap<&'m str, &'m pb::ValueInfoProto>,
    pub(super) names: Names,
}

impl<'m> Types<'m> {
    pub(super) fn new(infos: impl Iterator<Item = &'m pb::ValueInfoProto>, names: Names) -> Self {
        Types {
            infos: infos.map(|info| (info.name(), info)).collect(),
            names,
        }
    }

    pub(super) fn of(&self, name: &str) -> Result<Declared, FormatError> {
        match self.infos.get(name) {
            Some(info) => types::declared_by(info, self.names),
            None => Ok(Declared::UNKNOWN),
        }
    }
}
