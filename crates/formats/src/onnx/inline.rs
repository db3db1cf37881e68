//! A call of a local function becomes the function's nodes.
//!
//! The body has a scope of its own that sees nothing of the caller but its inputs. What it makes
//! is called `CALL/NAME`, its results are called what the caller calls them.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use tenure_graph::{DType, ValueId};

use super::build::{Builder, deeper};
use super::calls::{Call, Function};
use super::scope::{Bound, Environment, EnvironmentId, FrameId, Site, Types};
use super::types::Names;
use crate::error::{FormatError, Problem, Within as _, quoted};
use crate::generated::onnx as pb;

impl<'m> Builder<'m> {
    /// Puts the nodes of a function in the place of a call.
    pub(super) fn call(
        &mut self,
        site: &Site<'m, '_>,
        position: usize,
        proto: &mut pb::NodeProto,
        called: &Rc<Function<'m>>,
    ) -> Result<(), FormatError> {
        let depth = deeper(site.depth)?;
        let calls = Call::enter(called, site.calls.as_ref())?;
        let function = called.proto;
        for (what, found, limit) in [
            ("inputs", proto.input.len(), function.input.len()),
            ("outputs", proto.output.len(), function.output.len()),
        ] {
            if found > limit {
                return Err(Problem::Call { what, found, limit }.into());
            }
        }
        let opsets = Rc::clone(&called.opsets);
        let frame = self.scopes.enter_function(opsets, function.node.len());
        for (i, name) in function.input.iter().enumerate() {
            let given = proto.input.get(i).map_or("", String::as_str);
            let value = self
                .scopes
                .resolve(site.frame, given, || format!("input {i}"))?;
            self.scopes.define(frame, name, value)?;
        }
        let written = std::mem::take(&mut proto.attribute);
        let attributes = self.environment(site, written, called, frame)?;
        let prefix = format!("{}/", site.node_name(position, proto));

        let mut results = HashMap::new();
        for (inner, outer) in function.output.iter().zip(&proto.output) {
            if !outer.is_empty() {
                let declared = site.declared(outer)?;
                results.entry(inner.as_str()).or_insert(declared);
            }
        }
        let items = function.value_info.len() + function.input.len() + function.output.len();
        self.functions.charge(items, 128)?;
        let mut inside = Site {
            subgraph: site.subgraph,
            frame,
            attributes: Some(attributes),
            calls: Some(calls),
            depth,
            prefix: &prefix,
            types: Types::new(&function.value_info, &[], Names::Function)?,
            results,
        };
        self.nodes(&mut inside, &function.node)
            .within(|| format!("function {}", quoted(function.name())))?;

        let mut named = HashSet::new();
        for (i, (inner, outer)) in function.output.iter().zip(&proto.output).enumerate() {
            if outer.is_empty() {
                continue;
            }
            let slot = || format!("output {i} of function {}", quoted(function.name()));
            let mut value = self.scopes.resolve(frame, inner, slot)?;
            // A result that is an input, or another result, has its own name already.
            if !named.insert(inner) || function.input.contains(inner) {
                value = value
                    .map(|v| self.renamed(site, v, &prefix, outer))
                    .transpose()?;
            }
            self.scopes.define(site.frame, outer, value)?;
        }
        Ok(())
    }

    /// A copy of a value under the caller's name.
    fn renamed(
        &mut self,
        site: &Site<'m, '_>,
        value: ValueId,
        prefix: &str,
        outer: &str,
    ) -> Result<ValueId, FormatError> {
        let node = (self.graph).add_node(site.subgraph, format!("{prefix}{outer}"), "Identity");
        self.graph.nodes[node].inputs.push(Some(value));
        let (shown, declared) = site.declared(outer)?;
        let id = (self.graph).add_output(node, shown, DType::Unknown, None);
        self.declare(id, &declared);
        self.given.values[id] = true;
        Ok(id)
    }

    /// The attributes that a function's body sees: those of the call, then the defaults.
    fn environment(
        &mut self,
        site: &Site<'m, '_>,
        written: Vec<pb::AttributeProto>,
        function: &Function<'m>,
        frame: FrameId,
    ) -> Result<EnvironmentId, FormatError> {
        let mut environment = Environment::new();
        for attribute in written {
            let name = attribute.name().to_owned();
            if let Some(bound) = self.scopes.bound(site, attribute)? {
                environment.insert(name, bound);
            }
        }
        for attribute in &function.defaults {
            let default = || Bound {
                attribute: Rc::clone(attribute),
                frame,
                attributes: None,
            };
            let name = attribute.name().to_owned();
            environment.entry(name).or_insert_with(default);
        }
        Ok(self.scopes.keep(environment))
    }
}
