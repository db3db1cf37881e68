//! Random Graph Engine graphs: `parent_index` at the borders of subgraphs, references, variables,
//! streams, control edges, workspaces.

use arbitrary::{Result, Unstructured};
use std::sync::Arc;

use super::{Builder, Size, Type};
use crate::{
    Attr, Attrs, CONST_OP, DType, Dialect, Graph, INPUT_OP, NodeId, OutputHints, Shape, StreamId,
    SubgraphId, ValueId,
};

/// A random valid Graph Engine graph.
///
/// # Errors
/// None but those of `u`.
pub fn ge(u: &mut Unstructured<'_>, size: Size) -> Result<Graph> {
    let graph = Graph::new("random", Dialect::Ge, "root");
    let root = graph.root;
    let mut b = Builder {
        u,
        graph,
        left: size.nodes,
        next: 0,
        visible: Vec::new(),
    };
    let inputs: usize = b.u.int_in_range(1..=4)?;
    // Their numbers need not follow their places.
    let turned = b.u.arbitrary()?;
    for i in 0..inputs {
        let shape = if i == 0 { vec![4, 8] } else { b.shape()? };
        let index = if turned { inputs - 1 - i } else { i };
        b.data(root, (DType::F32, shape), ("index", index));
    }
    if b.u.arbitrary()? {
        let variable = b.node(root, "Variable", &[]);
        b.result(variable, (DType::F32, vec![4, 8]), OutputHints::default());
    }
    if b.u.arbitrary()? {
        let constant = b.node(root, CONST_OP, &[]);
        b.graph.nodes[constant].stream = None;
        let zeros = Attr::List(vec![Attr::Float(0.0); 32]);
        b.graph.nodes[constant].attrs.set("value", zeros);
        b.result(constant, (DType::F32, vec![4, 8]), OutputHints::default());
    }
    let streams = b.u.int_in_range(1..=3)?;
    b.layers(root, size.depth, streams)?;
    let mut results: Vec<ValueId> = b.visible.last().copied().into_iter().collect();
    for _ in 0..b.u.int_in_range(0..=3)? {
        results.extend(b.choose(|_| true)?);
    }
    let name = b.name("netoutput");
    b.graph
        .add_results(root, name, results.into_iter().map(Some));
    Ok(b.finish())
}

impl Builder<'_, '_> {
    fn data(&mut self, at: SubgraphId, ty: Type, (key, index): (&str, usize)) -> ValueId {
        let node = self.node(at, INPUT_OP, &[]);
        self.graph.nodes[node].stream = None;
        let index = Attr::Int(i64::try_from(index).unwrap_or(0));
        self.graph.nodes[node].attrs.set(key, index);
        self.result(node, ty, OutputHints::default())
    }

    /// Adds an output called `NODE:OUT`.
    fn result(&mut self, node: NodeId, (dtype, shape): Type, hints: OutputHints) -> ValueId {
        let slot = self.graph.nodes[node].outputs.len();
        let name = format!("{}:{slot}", self.graph.nodes[node].name);
        let value = (self.graph).add_output(node, name, dtype, Some(Shape::of(&shape)));
        let said = hints != OutputHints::default();
        self.graph.values[value].hints = said.then(|| Box::new(hints));
        self.visible.push(value);
        value
    }

    fn layers(&mut self, at: SubgraphId, depth: usize, streams: u32) -> Result<()> {
        let here = self.u.int_in_range(1..=10)?;
        let here = if at == self.graph.root {
            usize::MAX
        } else {
            here
        };
        for _ in 0..here {
            if !self.goes_on() {
                break;
            }
            let first = self.graph.nodes.next_key();
            match self.u.int_in_range(0..=if depth > 0 { 11 } else { 7 })? {
                0 | 1 => self.elementwise(at)?,
                2 | 3 => self.add(at)?,
                4 => self.reshape(at)?,
                5 => self.update(at)?,
                6 => self.parts(at)?,
                7 => self.joined(at)?,
                8 | 9 => self.choice(at, depth)?,
                10 => self.call(at, depth)?,
                _ => self.until(at, depth)?,
            }
            // Whatever was made, the owner of bodies first: its stream, scratch and predecessors.
            if !self.graph.nodes.is_valid(first) || self.graph.nodes[first].subgraph != at {
                continue;
            }
            let stream = self.u.int_in_range(0..=streams - 1)?;
            self.graph.nodes[first].stream = Some(StreamId::from_u32(stream));
            if self.graph.nodes[first].bodies.is_empty() && self.u.ratio(1, 4)? {
                let bytes = i64::from(self.u.int_in_range(1..=4096u32)?);
                self.graph.nodes[first].workspace.push(bytes);
            }
            if self.u.ratio(1, 6)? {
                let nodes = &self.graph.subgraphs[at].nodes;
                let before: Vec<NodeId> = nodes.iter().copied().filter(|&n| n < first).collect();
                if !before.is_empty() {
                    let before = *self.u.choose(&before)?;
                    self.graph.nodes[first].control.push(before);
                }
            }
        }
        Ok(())
    }

    fn elementwise(&mut self, at: SubgraphId) -> Result<()> {
        let Some(x) = self.choose(|_| true)? else {
            return Ok(());
        };
        let op = *self
            .u
            .choose(&["Relu", "Neg", "Identity", "HcomAllReduce"])?;
        let ty = self.type_of(x);
        let node = self.node(at, op, &[Some(x)]);
        let mut hints = OutputHints::default();
        if self.u.arbitrary()? && op != "HcomAllReduce" {
            hints.may_inplace.push(0);
        }
        self.result(node, ty, hints);
        Ok(())
    }

    fn add(&mut self, at: SubgraphId) -> Result<()> {
        let Some(x) = self.choose(|_| true)? else {
            return Ok(());
        };
        let ty = self.type_of(x);
        let y = self.choose_typed(&ty)?.unwrap_or(x);
        let node = self.node(at, "Add", &[Some(x), Some(y)]);
        let mut hints = OutputHints::default();
        if self.u.arbitrary()? {
            hints.may_inplace.extend([0, 1]);
        }
        self.result(node, ty, hints);
        Ok(())
    }

    fn reshape(&mut self, at: SubgraphId) -> Result<()> {
        let Some(x) = self.choose(|_| true)? else {
            return Ok(());
        };
        let (dtype, shape) = self.type_of(x);
        let node = self.node(at, "Reshape", &[Some(x)]);
        let hints = OutputHints {
            ref_input: Some(0),
            ..OutputHints::default()
        };
        self.result(node, (dtype, vec![shape.iter().product()]), hints);
        Ok(())
    }

    /// Writes in an input's memory.
    fn update(&mut self, at: SubgraphId) -> Result<()> {
        let Some(x) = self.choose(|_| true)? else {
            return Ok(());
        };
        let ty = self.type_of(x);
        let y = self.choose_typed(&ty)?.unwrap_or(x);
        let op = *self.u.choose(&["InplaceAdd", "Assign"])?;
        let node = self.node(at, op, &[Some(x), Some(y)]);
        let hints = OutputHints {
            ref_input: Some(0),
            ..OutputHints::default()
        };
        self.result(node, ty, hints);
        Ok(())
    }

    fn parts(&mut self, at: SubgraphId) -> Result<()> {
        let Some(x) = self.choose(|(_, s)| s.first().is_some_and(|n| *n >= 2))? else {
            return Ok(());
        };
        let (dtype, shape) = self.type_of(x);
        let first = self.u.int_in_range(1..=shape[0] - 1)?;
        let node = self.node(at, "SplitD", &[Some(x)]);
        self.graph.nodes[node].attrs.set("split_dim", Attr::Int(0));
        for part in [first, shape[0] - first] {
            let mut shape = shape.clone();
            shape[0] = part;
            self.result(node, (dtype, shape), OutputHints::default());
        }
        Ok(())
    }

    fn joined(&mut self, at: SubgraphId) -> Result<()> {
        let Some(x) = self.choose(|(_, s)| s.first().is_some_and(|n| *n <= 64))? else {
            return Ok(());
        };
        let (dtype, mut shape) = self.type_of(x);
        let rest = shape[1..].to_vec();
        let fits =
            |(d, s): &Type| *d == dtype && s.first().is_some_and(|n| *n <= 64) && s[1..] == rest;
        let y = self.choose(fits)?.unwrap_or(x);
        shape[0] += self.type_of(y).1[0];
        let node = self.node(at, "ConcatD", &[Some(x), Some(y)]);
        self.graph.nodes[node].attrs.set("concat_dim", Attr::Int(0));
        self.result(node, (dtype, shape), OutputHints::default());
        Ok(())
    }

    /// A body: inputs for some of the owner's, in any order; results of the given types.
    fn part_graph(
        &mut self,
        owner: NodeId,
        role: &str,
        depth: usize,
        inputs: &[Type],
        results: &[Type],
    ) -> Result<()> {
        let outside = std::mem::take(&mut self.visible);
        let name = self.name("g");
        let body = self.graph.add_subgraph(owner, role, name);
        let mut formals: Vec<(usize, &Type)> = inputs.iter().enumerate().collect();
        if self.u.arbitrary()? {
            formals.reverse();
        }
        for (i, ty) in formals {
            // A body need not look at every input, unless it has to return something like it.
            if results.contains(ty) || self.u.ratio(3, 4)? {
                self.data(body, ty.clone(), ("parent_index", i));
            }
        }
        self.layers(body, depth - 1, 1)?;
        let mut given: Vec<(usize, ValueId)> = Vec::new();
        for (i, ty) in results.iter().enumerate() {
            let value = match self.choose_typed(ty)? {
                Some(value) => value,
                None => {
                    let constant = self.node(body, "Constant", &[]);
                    self.result(constant, ty.clone(), OutputHints::default())
                }
            };
            given.push((i, value));
        }
        if self.u.arbitrary()? {
            given.reverse();
        }
        let name = self.name("netoutput");
        let values = given.iter().map(|&(_, v)| Some(v));
        let output = self.graph.add_results(body, name, values);
        let index = |i| Attr::Int(i64::try_from(i).unwrap_or(0));
        self.graph.nodes[output].input_attrs = (given.iter())
            .map(|&(i, _)| Attrs::from_iter([("parent_index", index(i))]))
            .collect();
        self.visible = outside;
        Ok(())
    }

    fn some(&mut self, range: std::ops::RangeInclusive<usize>) -> Result<Vec<ValueId>> {
        let mut values = Vec::new();
        for _ in 0..self.u.int_in_range(range)? {
            values.extend(self.choose(|_| true)?);
        }
        Ok(values)
    }

    fn choice(&mut self, at: SubgraphId, depth: usize) -> Result<()> {
        let inputs = self.some(1..=3)?;
        let types: Vec<Type> = inputs.iter().map(|&v| self.type_of(v)).collect();
        let results: Vec<Type> = types.iter().skip(1).take(2).cloned().collect();
        let (op, roles): (_, &[&str]) = if self.u.arbitrary()? {
            ("If", &["then", "else"])
        } else {
            ("Case", &["branch0", "branch1", "branch2"])
        };
        let reads: Vec<_> = inputs.into_iter().map(Some).collect();
        let node = self.node(at, op, &reads);
        for role in roles {
            self.part_graph(node, role, depth, &types, &results)?;
        }
        for ty in results {
            self.result(node, ty, OutputHints::default());
        }
        Ok(())
    }

    fn call(&mut self, at: SubgraphId, depth: usize) -> Result<()> {
        let inputs = self.some(1..=3)?;
        let types: Vec<Type> = inputs.iter().map(|&v| self.type_of(v)).collect();
        let results: Vec<Type> = types.iter().take(2).cloned().collect();
        let reads: Vec<_> = inputs.into_iter().map(Some).collect();
        let node = self.node(at, "PartitionedCall", &reads);
        self.part_graph(node, "partition", depth, &types, &results)?;
        for ty in results {
            self.result(node, ty, OutputHints::default());
        }
        self.graph.nodes[node].extra = Attrs::from_iter([(
            Arc::from("kernel_lib"),
            Attr::Str("DNN_VM_GE_LOCAL_OP_STORE".to_owned()),
        )]);
        Ok(())
    }

    fn until(&mut self, at: SubgraphId, depth: usize) -> Result<()> {
        let states = self.some(1..=3)?;
        let types: Vec<Type> = states.iter().map(|&v| self.type_of(v)).collect();
        let reads: Vec<_> = states.into_iter().map(Some).collect();
        let node = self.node(at, "While", &reads);
        self.part_graph(node, "cond", depth, &types, &[(DType::Bool, vec![])])?;
        self.part_graph(node, "body", depth, &types, &types)?;
        for ty in types {
            self.result(node, ty, OutputHints::default());
        }
        Ok(())
    }
}
