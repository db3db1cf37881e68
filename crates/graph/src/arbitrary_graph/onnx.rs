//! Random ONNX graphs: captures by name, `If`, `Loop` and `Scan`. Opset 17, or 8 for its `Scan`.

use arbitrary::{Result, Unstructured};
use bytes::Bytes;
use std::sync::Arc;

use super::{Builder, Size, Type};
use crate::{
    Attr, CONST_OP, DType, Dialect, Graph, INLINE_BYTES, Shape, SubgraphId, Tensor, TensorData,
    ValueId,
};

/// A random valid ONNX graph. Ids are in the order in which a reader would give them, which is
/// not the canonical one.
///
/// # Errors
/// None but those of `u`.
pub fn onnx(u: &mut Unstructured<'_>, size: Size) -> Result<Graph> {
    let mut graph = Graph::new("random", Dialect::Onnx, "main");
    let opset = if u.ratio(1, 4)? { 8 } else { 17 };
    graph.opsets.push((Arc::from(""), opset));
    let root = graph.root;
    let mut b = Builder {
        u,
        graph,
        left: size.nodes,
        next: 0,
        visible: Vec::new(),
    };
    b.input(root, (DType::F32, vec![4, 8]));
    for _ in 0..b.u.int_in_range(0..=3)? {
        let shape = b.shape()?;
        let dtype =
            *b.u.choose(&[DType::F32, DType::Bool, DType::F16, DType::I64])?;
        b.input(root, (dtype, shape));
    }
    for _ in 0..b.u.int_in_range(0..=2)? {
        let shape = b.shape()?;
        b.weight(root, (DType::F32, shape));
    }
    b.operators(root, size.depth)?;
    let mut results = Vec::new();
    // The youngest value, so that not everything is dead, and whatever else there is.
    results.extend(b.visible.last().copied());
    for _ in 0..b.u.int_in_range(0..=3)? {
        results.extend(b.choose(|_| true)?);
    }
    b.results(root, results);
    Ok(b.finish())
}

impl Builder<'_, '_> {
    fn input(&mut self, at: SubgraphId, (dtype, shape): Type) -> ValueId {
        let name = self.name("in");
        let value = (self.graph).add_input(at, name, dtype, Some(Shape::of(&shape)));
        self.visible.push(value);
        value
    }

    fn output(&mut self, node: crate::NodeId, (dtype, shape): Type) -> ValueId {
        let name = self.name("v");
        let value = (self.graph).add_output(node, name, dtype, Some(Shape::of(&shape)));
        self.visible.push(value);
        value
    }

    fn results(&mut self, at: SubgraphId, results: Vec<ValueId>) {
        let name = self.name("results");
        self.graph
            .add_results(at, name, results.into_iter().map(Some));
    }

    /// A constant: an initializer or a node `Constant`. It is not made visible.
    fn constant(&mut self, at: SubgraphId, tensor: Tensor) -> ValueId {
        let op = if self.u.arbitrary().unwrap_or(false) {
            "Constant"
        } else {
            CONST_OP
        };
        let (dtype, shape) = (tensor.dtype, Shape::of(&tensor.shape));
        let node = self.node(at, op, &[]);
        if op == CONST_OP {
            self.graph.nodes[node].stream = None;
        }
        let attr = Attr::Tensor(Arc::new(tensor));
        self.graph.nodes[node].attrs.set("value", attr);
        let name = self.name("c");
        self.graph.add_output(node, name, dtype, Some(shape))
    }

    /// A constant of zeros that operators may read; a large one without its contents, which no
    /// format would print.
    fn weight(&mut self, at: SubgraphId, (dtype, shape): Type) -> ValueId {
        let bytes = dtype.bytes(shape.iter().product());
        let small = bytes.filter(|&n| n <= INLINE_BYTES);
        let data = match small.and_then(|n| usize::try_from(n).ok()) {
            Some(bytes) => TensorData::Bytes(vec![0; bytes].into()),
            None => TensorData::Absent,
        };
        let value = self.constant(at, Tensor { dtype, shape, data });
        self.visible.push(value);
        value
    }

    /// A list of integers as a constant.
    fn ints(&mut self, at: SubgraphId, list: &[u64]) -> ValueId {
        let tensor = Tensor {
            dtype: DType::I64,
            shape: vec![list.len() as u64],
            data: TensorData::Bytes(list.iter().flat_map(|i| i.to_le_bytes()).collect()),
        };
        self.constant(at, tensor)
    }

    fn scalar(&mut self, at: SubgraphId, dtype: DType, bytes: &[u8]) -> ValueId {
        let tensor = Tensor {
            dtype,
            shape: Vec::new(),
            data: TensorData::Bytes(Bytes::copy_from_slice(bytes)),
        };
        self.constant(at, tensor)
    }

    fn operators(&mut self, at: SubgraphId, depth: usize) -> Result<()> {
        let here = self.u.int_in_range(1..=12)?;
        let here = if at == self.graph.root {
            usize::MAX
        } else {
            here
        };
        for _ in 0..here {
            if !self.goes_on() {
                break;
            }
            match self.u.int_in_range(0..=if depth > 0 { 15 } else { 12 })? {
                0 | 1 => self.unary(at)?,
                2 | 3 => self.binary(at)?,
                4 | 5 => self.view(at)?,
                6 => self.split(at)?,
                7 => self.concat(at)?,
                8 => self.transpose(at)?,
                9 => self.optional_slots(at)?,
                10 => self.shape_of(at)?,
                11 => self.convert(at)?,
                12 => drop(self.fresh(at)?),
                13 => self.branch(at, depth)?,
                14 => self.repeat(at, depth)?,
                _ => self.scan(at, depth)?,
            }
        }
        Ok(())
    }

    fn float(&mut self) -> Result<Option<ValueId>> {
        self.choose(|(dtype, _)| *dtype == DType::F32)
    }

    fn unary(&mut self, at: SubgraphId) -> Result<()> {
        let op = *(self.u).choose(&["Relu", "Neg", "Sigmoid", "Exp", "Softmax", "CumProd"])?;
        let Some(x) = self.choose(|(d, s)| *d == DType::F32 && !s.is_empty())? else {
            return Ok(());
        };
        let ty = self.type_of(x);
        let node = self.node(at, op, &[Some(x)]);
        if op == "CumProd" {
            // An operator that no table knows.
            self.graph.nodes[node].domain = Arc::from("custom");
        }
        self.output(node, ty);
        Ok(())
    }

    fn binary(&mut self, at: SubgraphId) -> Result<()> {
        let Some(x) = self.float()? else {
            return Ok(());
        };
        let ty = self.type_of(x);
        // The same shape (perhaps the same value), or one element or row repeated.
        let row = ty.1.len().saturating_sub(1);
        let fits = |(dtype, shape): &Type| {
            let is_row = *shape == ty.1[row..];
            *dtype == ty.0 && (*shape == ty.1 || shape.is_empty() || is_row)
        };
        let y = self.choose(fits)?.unwrap_or(x);
        let op = *self.u.choose(&["Add", "Mul", "Sub"])?;
        let pair = if self.u.arbitrary()? { [x, y] } else { [y, x] };
        let node = self.node(at, op, &pair.map(Some));
        self.output(node, ty);
        Ok(())
    }

    fn view(&mut self, at: SubgraphId) -> Result<()> {
        let Some(x) = self.choose(|_| true)? else {
            return Ok(());
        };
        let (dtype, shape) = self.type_of(x);
        let elements: u64 = shape.iter().product();
        let (op, new) = match self.u.int_in_range(0..=4)? {
            0 => ("Identity", shape),
            1 => ("Reshape", vec![elements]),
            2 => ("Unsqueeze", [&[1], &*shape].concat()),
            3 if shape.first() == Some(&1) => ("Squeeze", shape[1..].to_vec()),
            _ if !shape.is_empty() => {
                let first = shape[0];
                ("Flatten", vec![first, shape[1..].iter().product()])
            }
            _ => ("Identity", shape),
        };
        let mut inputs = vec![Some(x)];
        match op {
            "Reshape" => inputs.push(Some(self.ints(at, &new))),
            "Unsqueeze" | "Squeeze" => inputs.push(Some(self.ints(at, &[0]))),
            _ => {}
        }
        let node = self.node(at, op, &inputs);
        if op == "Reshape" {
            // A zero stands for itself here, not for "as the input".
            self.graph.nodes[node].attrs.set("allowzero", Attr::Int(1));
        }
        self.output(node, (dtype, new));
        Ok(())
    }

    fn split(&mut self, at: SubgraphId) -> Result<()> {
        let Some(x) = self.choose(|(_, s)| s.first().is_some_and(|n| *n >= 2))? else {
            return Ok(());
        };
        let (dtype, shape) = self.type_of(x);
        let first = self.u.int_in_range(1..=shape[0] - 1)?;
        let parts = [first, shape[0] - first];
        let sizes = self.ints(at, &parts);
        let node = self.node(at, "Split", &[Some(x), Some(sizes)]);
        self.graph.nodes[node].attrs.set("axis", Attr::Int(0));
        for part in parts {
            let mut shape = shape.clone();
            shape[0] = part;
            self.output(node, (dtype, shape));
        }
        Ok(())
    }

    fn concat(&mut self, at: SubgraphId) -> Result<()> {
        let Some(x) = self.choose(|(_, s)| !s.is_empty())? else {
            return Ok(());
        };
        let (dtype, mut shape) = self.type_of(x);
        let mut inputs = vec![Some(x)];
        let mut rows = shape[0];
        for _ in 0..self.u.int_in_range(0..=2)? {
            let rest = shape[1..].to_vec();
            let other = self.choose(|(d, s)| {
                *d == dtype && s.first().is_some_and(|n| *n <= 64) && s[1..] == rest
            })?;
            if let Some(other) = other {
                rows += self.type_of(other).1[0];
                inputs.push(Some(other));
            }
        }
        shape[0] = rows;
        let node = self.node(at, "Concat", &inputs);
        self.graph.nodes[node].attrs.set("axis", Attr::Int(0));
        self.output(node, (dtype, shape));
        Ok(())
    }

    fn transpose(&mut self, at: SubgraphId) -> Result<()> {
        let Some(x) = self.choose(|(_, s)| s.len() >= 2)? else {
            return Ok(());
        };
        let (dtype, shape) = self.type_of(x);
        let node = self.node(at, "Transpose", &[Some(x)]);
        self.output(node, (dtype, shape.into_iter().rev().collect()));
        Ok(())
    }

    /// Operators with optional inputs and outputs, some left out.
    fn optional_slots(&mut self, at: SubgraphId) -> Result<()> {
        let Some(x) = self.choose(|(d, s)| *d == DType::F32 && !s.is_empty())? else {
            return Ok(());
        };
        let (dtype, shape) = self.type_of(x);
        match self.u.int_in_range(0..=2)? {
            0 => {
                let max = self.scalar(at, DType::F32, &1f32.to_le_bytes());
                let node = self.node(at, "Clip", &[Some(x), None, Some(max)]);
                self.output(node, (dtype, shape));
            }
            1 => {
                let row = shape[shape.len() - 1..].to_vec();
                let scale = self.weight(at, (dtype, row));
                let node = self.node(at, "LayerNormalization", &[Some(x), Some(scale)]);
                let mut one = shape.clone();
                if let Some(last) = one.last_mut() {
                    *last = 1;
                }
                self.output(node, (dtype, shape));
                if self.u.arbitrary()? {
                    self.graph.nodes[node].outputs.push(None);
                } else {
                    self.output(node, (dtype, one.clone()));
                }
                self.output(node, (dtype, one));
            }
            _ => {
                let node = self.node(at, "Dropout", &[Some(x)]);
                self.output(node, (dtype, shape.clone()));
                if self.u.arbitrary()? {
                    self.output(node, (DType::Bool, shape));
                }
            }
        }
        Ok(())
    }

    fn shape_of(&mut self, at: SubgraphId) -> Result<()> {
        let Some(x) = self.choose(|_| true)? else {
            return Ok(());
        };
        let rank = self.type_of(x).1.len() as u64;
        let node = self.node(at, "Shape", &[Some(x)]);
        self.output(node, (DType::I64, vec![rank]));
        Ok(())
    }

    fn convert(&mut self, at: SubgraphId) -> Result<()> {
        let Some(x) = self.choose(|_| true)? else {
            return Ok(());
        };
        let (_, shape) = self.type_of(x);
        // With ONNX's own numbers of the types.
        let (to, number) =
            *(self.u).choose(&[(DType::F32, 1), (DType::F16, 10), (DType::I64, 7)])?;
        let node = self.node(at, "Cast", &[Some(x)]);
        self.graph.nodes[node].attrs.set("to", Attr::Int(number));
        self.output(node, (to, shape));
        Ok(())
    }

    /// A value out of nothing: random numbers, so neither constant nor dependent on anything.
    fn fresh(&mut self, at: SubgraphId) -> Result<ValueId> {
        let shape = self.shape()?;
        let node = self.node(at, "RandomNormal", &[]);
        let dims = shape
            .iter()
            .map(|&d| Attr::Int(i64::try_from(d).unwrap_or(0)));
        let dims = Attr::List(dims.collect());
        self.graph.nodes[node].attrs.set("shape", dims);
        Ok(self.output(node, (DType::F32, shape)))
    }

    /// A truth value of one element: one that there is, or a constant.
    fn truth(&mut self, at: SubgraphId) -> Result<ValueId> {
        let found = self.choose(|(d, s)| *d == DType::Bool && s.iter().all(|&n| n == 1))?;
        Ok(match found {
            Some(found) => found,
            None => self.scalar(at, DType::Bool, &[1]),
        })
    }

    /// Makes a body: its inputs, operators and whatever `results` says; then forgets its values.
    fn body(
        &mut self,
        owner: crate::NodeId,
        role: &str,
        depth: usize,
        inputs: &[Type],
        results: impl FnOnce(&mut Self, SubgraphId, &[ValueId]) -> Result<Vec<ValueId>>,
    ) -> Result<Vec<Type>> {
        let outside = self.visible.len();
        let name = self.name(role);
        let body = self.graph.add_subgraph(owner, role, name);
        let formals: Vec<ValueId> = inputs.iter().map(|t| self.input(body, t.clone())).collect();
        self.operators(body, depth - 1)?;
        let results = results(self, body, &formals)?;
        let types = results.iter().map(|&r| self.type_of(r)).collect();
        self.results(body, results);
        self.visible.truncate(outside);
        Ok(types)
    }

    fn branch(&mut self, at: SubgraphId, depth: usize) -> Result<()> {
        let condition = self.truth(at)?;
        let mut types = Vec::new();
        for _ in 0..self.u.int_in_range(1..=3)? {
            if let Some(like) = self.choose(|_| true)? {
                types.push(self.type_of(like));
            }
        }
        let node = self.node(at, "If", &[Some(condition)]);
        for role in ["then", "else"] {
            self.body(node, role, depth, &[], |b, body, _| {
                b.of_types(body, &types)
            })?;
        }
        for ty in types {
            self.output(node, ty);
        }
        Ok(())
    }

    /// Values of the given types: computed, captured or passed through as chance has it.
    fn of_types(&mut self, at: SubgraphId, types: &[Type]) -> Result<Vec<ValueId>> {
        let mut values = Vec::new();
        for ty in types {
            values.push(match self.choose_typed(ty)? {
                Some(value) => value,
                None => self.weight(at, ty.clone()),
            });
        }
        Ok(values)
    }

    fn states(&mut self) -> Result<Vec<ValueId>> {
        let mut states: Vec<ValueId> = Vec::new();
        for _ in 0..self.u.int_in_range(0..=3)? {
            // Several of one type, so that they can change places.
            let next = match states.last() {
                Some(&last) if self.u.arbitrary()? => {
                    let ty = self.type_of(last);
                    self.choose_typed(&ty)?
                }
                _ => self.choose(|_| true)?,
            };
            states.extend(next);
        }
        Ok(states)
    }

    /// What the states become: the body's own inputs in turn, or any values of their types.
    fn next_states(
        &mut self,
        body: SubgraphId,
        formals: &[ValueId],
        types: &[Type],
    ) -> Result<Vec<ValueId>> {
        if self.u.ratio(1, 3)? {
            let turned: Vec<ValueId> = (1..=formals.len())
                .map(|i| formals[i % formals.len()])
                .collect();
            if turned
                .iter()
                .zip(types)
                .all(|(&v, t)| self.type_of(v) == *t)
            {
                return Ok(turned);
            }
        }
        self.of_types(body, types)
    }

    fn repeat(&mut self, at: SubgraphId, depth: usize) -> Result<()> {
        let trips = self.u.int_in_range(0..=4u64)?;
        // Without a condition of its own the loop makes all its trips, and collected outputs have
        // a known size.
        let counted = self.u.ratio(2u8, 3u8)?;
        let states = self.states()?;
        let types: Vec<Type> = states.iter().map(|&s| self.type_of(s)).collect();
        let mut inputs = if counted {
            let trips = self.scalar(at, DType::I64, &trips.to_le_bytes());
            vec![Some(trips), None]
        } else {
            vec![None, Some(self.truth(at)?)]
        };
        inputs.extend(states.iter().copied().map(Some));
        let node = self.node(at, "Loop", &inputs);
        let formals = [(DType::I64, vec![]), (DType::Bool, vec![])];
        let formals = [&formals[..], &types].concat();
        let collected = if counted {
            self.u.int_in_range(0..=2)?
        } else {
            0
        };
        let results = self.body(node, "body", depth, &formals, |b, body, formals| {
            let mut results = vec![if counted { formals[1] } else { b.truth(body)? }];
            results.extend(b.next_states(body, &formals[2..], &types)?);
            for _ in 0..collected {
                results.extend(b.choose(|(_, shape)| shape.len() < 4)?);
            }
            Ok(results)
        })?;
        for ty in &types {
            self.output(node, ty.clone());
        }
        for (dtype, shape) in &results[1 + types.len()..] {
            if self.u.ratio(1, 4)? {
                self.graph.nodes[node].outputs.push(None);
            } else {
                self.output(node, (*dtype, [&[trips], &**shape].concat()));
            }
        }
        Ok(())
    }

    fn scan(&mut self, at: SubgraphId, depth: usize) -> Result<()> {
        // Up to opset 8 all has a batch axis, and the lengths of the sequences stand before.
        let batched = self.graph.opsets[0].1 < 9;
        let axes = if batched { 2 } else { 1 };
        let cut = |(_, s): &Type| s.len() >= axes && !s[..axes].contains(&0);
        let Some(first) = self.choose(cut)? else {
            return Ok(());
        };
        let outer = self.type_of(first).1[..axes].to_vec();
        let mut sliced = vec![first];
        if self.u.arbitrary()? {
            sliced.extend(self.choose(|(_, s)| s.starts_with(&outer))?);
        }
        let mut states = self.states()?;
        let batch = outer[..axes - 1].to_vec();
        states.retain(|&s| self.type_of(s).1.starts_with(&batch));
        let inner = |(dtype, shape): Type, axes: usize| (dtype, shape[axes..].to_vec());
        let types: Vec<Type> = (states.iter())
            .map(|&s| inner(self.type_of(s), batch.len()))
            .collect();
        let slices = sliced.iter().map(|&v| inner(self.type_of(v), axes));
        let formals: Vec<Type> = types.iter().cloned().chain(slices).collect();
        let mut inputs = Vec::new();
        if batched {
            inputs.push(self.choose_typed(&(DType::I64, batch.clone()))?);
        }
        inputs.extend(states.iter().chain(&sliced).copied().map(Some));
        let node = self.node(at, "Scan", &inputs);
        let count = Attr::Int(i64::try_from(sliced.len()).unwrap_or(1));
        self.graph.nodes[node].attrs.set("num_scan_inputs", count);
        let collected = self.u.int_in_range(0..=2)?;
        let results = self.body(node, "body", depth, &formals, |b, body, formals| {
            let mut results = b.next_states(body, &formals[..types.len()], &types)?;
            for _ in 0..collected {
                results.extend(b.choose(|(_, shape)| shape.len() < 4)?);
            }
            Ok(results)
        })?;
        for (dtype, shape) in &types {
            self.output(node, (*dtype, [&*batch, &**shape].concat()));
        }
        for (dtype, shape) in &results[types.len()..] {
            self.output(node, (*dtype, [&*outer, &**shape].concat()));
        }
        Ok(())
    }
}
