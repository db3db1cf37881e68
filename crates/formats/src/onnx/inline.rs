//! A call of a local function becomes the function's nodes.
//!
//! The body has a scope of its own that sees nothing of the caller but its inputs. What it makes
//! is called `CALL/NAME`, its results are called what the caller calls them.

use std::collections::{HashMap, HashSet};
use tenure_graph::ValueId;

use super::build::{Builder, deeper};
use super::calls::Call;
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
        proto: &'m pb::NodeProto,
        function: &'m pb::FunctionProto,
    ) -> Result<(), FormatError> {
        let depth = deeper(site.depth)?;
        let calls = Call::enter(function, site.calls.as_ref())?;
        for (what, found, limit) in [
            ("inputs", proto.input.len(), function.input.len()),
            ("outputs", proto.output.len(), function.output.len()),
        ] {
            if found > limit {
                return Err(Problem::Call { what, found, limit }.into());
            }
        }
        let frame = self.scopes.enter(None, function.node.len());
        for (i, name) in function.input.iter().enumerate() {
            let given = proto.input.get(i).map_or("", String::as_str);
            let value = self
                .scopes
                .resolve(site.frame, given, || format!("input {i}"))?;
            self.scopes.define(frame, name, value)?;
        }
        let attributes = self.environment(site, proto, function, frame)?;
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
            types: Types::new(function.value_info.iter(), Names::Function),
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
        outer: &'m str,
    ) -> Result<ValueId, FormatError> {
        let node = (self.graph).add_node(site.subgraph, format!("{prefix}{outer}"), "Identity");
        self.graph.nodes[node].inputs.push(Some(value));
        let (shown, declared) = site.declared(outer)?;
        let id = (self.graph).add_output(node, shown, declared.dtype, declared.shape);
        self.given.values[id] = true;
        Ok(id)
    }

    /// The attributes that a function's body sees: those of the call, then the defaults.
    fn environment(
        &mut self,
        site: &Site<'m, '_>,
        proto: &'m pb::NodeProto,
        function: &'m pb::FunctionProto,
        frame: FrameId,
    ) -> Result<EnvironmentId, FormatError> {
        let mut environment = Environment::new();
        for written in &proto.attribute {
            if let Some(bound) = self.scopes.bound(site, written)? {
                environment.insert(written.name(), bound);
            }
        }
        for attribute in &function.attribute_proto {
            environment.entry(attribute.name()).or_insert(Bound {
                attribute,
                frame,
                attributes: None,
            });
        }
        Ok(self.scopes.keep(environment))
    }
}
