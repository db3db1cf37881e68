//! Random models of ONNX whose inputs have free dimensions: shapes that follow from them, and shapes
//! that the data decide, in the root and in bodies. All numbers are small and whole.

use std::sync::Arc;

use tenure_graph::{
    Attr, CONST_OP, DType, Dialect, Dim, Graph, NodeId, Shape, SubgraphId, Tensor, TensorData,
    ValueId,
};

/// The free dimensions of all such models; each is at least 2.
pub const NAMES: [&str; 2] = ["n", "m"];

/// A random model with about so many operators in its root, and whether the data decide sizes in it.
#[must_use]
pub fn free_model(seed: u64, nodes: usize) -> (Graph, bool) {
    let mut graph = Graph::new("random", Dialect::Onnx, "main");
    graph.opsets = vec![(Arc::from(""), 17)];
    let root = graph.root;
    let mut maker = Maker {
        rng: fastrand::Rng::with_seed(seed),
        graph,
        made: 0,
        by_data: false,
        growth: 2,
    };
    let mut values = Vec::new();
    for (k, dims) in [["n", "m"], ["n", "m"], ["m", "n"]].into_iter().enumerate() {
        let shape: Shape = dims.iter().map(|d| Dim::parse(d)).collect();
        let value = (maker.graph).add_input(root, format!("x{k}"), DType::F32, Some(shape));
        let shape = dims.map(str::to_owned).to_vec();
        values.push(Known { value, shape });
    }
    for _ in 0..nodes {
        let made = maker.operator(root, &values, true);
        values.push(made);
    }
    let results = maker.rng.usize(1..4);
    let last = values.len();
    let results: Vec<_> = (0..results)
        .map(|k| Some(values[last - 1 - k * k % last].value))
        .collect();
    maker.graph.add_results(root, "results", results);
    (tenure_graph::canonical(&maker.graph), maker.by_data)
}

/// A value with its dimensions, as texts that are equal only where the dimensions are.
#[derive(Clone)]
struct Known {
    value: ValueId,
    shape: Vec<String>,
}

struct Maker {
    rng: fastrand::Rng,
    graph: Graph,
    made: usize,
    by_data: bool,
    /// How often sizes may still be multiplied.
    growth: u32,
}

impl Maker {
    fn name(&mut self, op: &str) -> String {
        self.made += 1;
        format!("{}{}", op.to_lowercase(), self.made)
    }

    fn node(&mut self, at: SubgraphId, op: &str, inputs: &[ValueId]) -> NodeId {
        let name = self.name(op);
        let node = self.graph.add_node(at, name, op);
        let inputs = inputs.iter().copied().map(Some);
        self.graph.nodes[node].inputs.extend(inputs);
        node
    }

    fn set(&mut self, node: NodeId, key: &str, value: i64) {
        self.graph.nodes[node].attrs.set(key, Attr::Int(value));
    }

    fn output(&mut self, node: NodeId) -> ValueId {
        let slot = self.graph.nodes[node].outputs.len();
        let name = format!("{}:{slot}", self.graph.nodes[node].name);
        self.graph.add_output(node, name, DType::Unknown, None)
    }

    fn one(&mut self, at: SubgraphId, op: &str, inputs: &[ValueId]) -> ValueId {
        let node = self.node(at, op, inputs);
        self.output(node)
    }

    /// A constant of whole numbers.
    fn constant(&mut self, at: SubgraphId, dtype: DType, dims: &[u64], items: &[i64]) -> ValueId {
        let node = self.node(at, CONST_OP, &[]);
        self.graph.nodes[node].stream = None;
        #[expect(clippy::cast_precision_loss, reason = "the numbers are small")]
        let numbers = items.iter().map(|&n| n as f64);
        let bytes = tenure_runtime::numbers::encode(dtype, numbers).expect("numbers");
        let tensor = Tensor {
            dtype,
            shape: dims.to_vec(),
            data: TensorData::Bytes(bytes.into()),
        };
        let value = Attr::Tensor(Arc::new(tensor));
        self.graph.nodes[node].attrs.set("value", value);
        let name = self.graph.nodes[node].name.clone();
        (self.graph).add_output(node, name, dtype, Some(Shape::of(dims)))
    }

    fn pick(&mut self, values: &[Known]) -> Known {
        let back = self.rng.usize(1..=3.min(values.len()));
        let any = self.rng.usize(0..values.len());
        let at = if self.rng.bool() {
            values.len() - back
        } else {
            any
        };
        values[at].clone()
    }

    /// One of those with the same shape.
    fn like(&mut self, values: &[Known], like: &Known) -> Known {
        let same: Vec<Known> = (values.iter())
            .filter(|v| v.shape == like.shape)
            .cloned()
            .collect();
        self.pick(&same)
    }

    fn may_grow(&mut self) -> bool {
        let may = self.growth > 0;
        self.growth = self.growth.saturating_sub(1);
        may
    }

    /// A name for a dimension that only the data know.
    fn decided(&mut self) -> String {
        self.by_data = true;
        self.name("?")
    }

    /// An operator on some of the values.
    fn operator(&mut self, at: SubgraphId, values: &[Known], may_nest: bool) -> Known {
        let x = self.pick(values);
        let is_matrix = x.shape.len() == 2;
        let kinds = if may_nest { 16 } else { 11 };
        match self.rng.usize(0..kinds) {
            0 | 1 => {
                let y = self.like(values, &x);
                let op = ["Add", "Sub", "Max"][self.rng.usize(0..3)];
                let value = self.one(at, op, &[x.value, y.value]);
                Known { value, ..x }
            }
            2 => {
                let op = ["Relu", "Neg", "Abs", "Identity"][self.rng.usize(0..4)];
                let value = self.one(at, op, &[x.value]);
                Known { value, ..x }
            }
            3 if is_matrix => {
                let value = self.one(at, "Transpose", &[x.value]);
                let shape = x.shape.iter().rev().cloned().collect();
                Known { value, shape }
            }
            4 if self.may_grow() => {
                let y = self.like(values, &x);
                let node = self.node(at, "Concat", &[x.value, y.value]);
                self.set(node, "axis", 0);
                let value = self.output(node);
                let mut shape = x.shape;
                shape[0] = format!("(2*{})", shape[0]);
                Known { value, shape }
            }
            5 => {
                let shape = self.constant(at, DType::I64, &[1], &[-1]);
                let value = self.one(at, "Reshape", &[x.value, shape]);
                let shape = vec![x.shape.join("*")];
                Known { value, shape }
            }
            6 if is_matrix => {
                let ends = self.constant(at, DType::I64, &[1], &[1]);
                let start = self.constant(at, DType::I64, &[1], &[0]);
                let value = self.one(at, "Slice", &[x.value, start, ends]);
                let shape = vec!["1".to_owned(), x.shape[1].clone()];
                let row = Known { value, shape };
                let value = self.one(at, "Add", &[x.value, row.value]);
                Known { value, ..x }
            }
            7 => {
                let dims = self.one(at, "Shape", &[x.value]);
                let filled = self.one(at, "ConstantOfShape", &[dims]);
                let value = self.one(at, "Sub", &[filled, x.value]);
                Known { value, ..x }
            }
            8 => {
                let places = self.one(at, "NonZero", &[x.value]);
                let rows = self.one(at, "Transpose", &[places]);
                let value = self.one(at, "GatherND", &[x.value, rows]);
                let shape = vec![self.decided()];
                Known { value, shape }
            }
            9 => {
                let zero = self.constant(at, DType::F32, &[], &[0]);
                let flat = self.constant(at, DType::I64, &[1], &[-1]);
                let flat = self.one(at, "Reshape", &[x.value, flat]);
                let chosen = self.one(at, "Greater", &[flat, zero]);
                let value = self.one(at, "Compress", &[flat, chosen]);
                let shape = vec![self.decided()];
                Known { value, shape }
            }
            10 => {
                let node = self.node(at, "Unique", &[x.value]);
                let value = self.output(node);
                let shape = vec![self.decided()];
                Known { value, shape }
            }
            11 => self.branch(at, values, &x),
            12 if self.may_grow() => self.growing(at, values, &x),
            13 if is_matrix => self.scanned(at, &x),
            14 | 15 => self.counted(at, values, &x),
            _ => {
                let value = self.one(at, "Relu", &[x.value]);
                Known { value, ..x }
            }
        }
    }

    /// A truth value that depends on data.
    fn truth(&mut self, at: SubgraphId, x: &Known) -> ValueId {
        let node = self.node(at, "ReduceSum", &[x.value]);
        self.set(node, "keepdims", 0);
        let sum = self.output(node);
        let zero = self.constant(at, DType::F32, &[], &[0]);
        self.one(at, "Greater", &[sum, zero])
    }

    /// A branch whose two sides may have other shapes.
    fn branch(&mut self, at: SubgraphId, values: &[Known], x: &Known) -> Known {
        let condition = self.truth(at, x);
        let node = self.node(at, "If", &[condition]);
        let name = self.graph.nodes[node].name.clone();
        let mut shapes = Vec::new();
        for role in ["then", "else"] {
            let body = (self.graph).add_subgraph(node, role, format!("{name}/{role}"));
            let mut inner = vec![x.clone()];
            for _ in 0..self.rng.usize(1..4) {
                let all: Vec<Known> = values.iter().chain(&inner).cloned().collect();
                let made = self.operator(body, &all, false);
                inner.push(made);
            }
            let last = inner.pop().expect("a value");
            let name = self.name("results");
            (self.graph).add_results(body, name, [Some(last.value)]);
            shapes.push(last.shape);
        }
        let value = self.output(node);
        if shapes[0] == shapes[1] {
            let shape = shapes.swap_remove(0);
            return Known { value, shape };
        }
        // Flat, as ranks may differ as well.
        let flat = self.constant(at, DType::I64, &[1], &[-1]);
        let value = self.one(at, "Reshape", &[value, flat]);
        let shape = vec![self.decided()];
        Known { value, shape }
    }

    /// A loop of three passes whose state grows with each.
    fn growing(&mut self, at: SubgraphId, values: &[Known], x: &Known) -> Known {
        let trips = self.constant(at, DType::I64, &[], &[3]);
        let y = self.like(values, x);
        let node = self.node(at, "Loop", &[trips]);
        self.graph.nodes[node].inputs.push(None);
        self.graph.nodes[node].inputs.push(Some(x.value));
        let (body, [_, condition, state]) = self.body(node, x);
        let half = self.node(body, "Concat", &[state, y.value]);
        self.set(half, "axis", 0);
        let grown = self.output(half);
        let condition = self.one(body, "Identity", &[condition]);
        let name = self.name("results");
        (self.graph).add_results(body, name, [Some(condition), Some(grown)]);
        let value = self.output(node);
        let mut shape = x.shape.clone();
        shape[0] = self.decided();
        Known { value, shape }
    }

    /// A loop whose passes the data count, with a state that keeps its shape and slices of it.
    fn counted(&mut self, at: SubgraphId, values: &[Known], x: &Known) -> Known {
        let y = self.like(values, x);
        let by_data = self.rng.bool();
        let trips = if by_data {
            let chosen = self.truth(at, &y);
            let node = self.node(at, "Cast", &[chosen]);
            self.set(node, "to", 7);
            self.output(node)
        } else {
            self.constant(at, DType::I64, &[], &[2])
        };
        let node = self.node(at, "Loop", &[trips]);
        self.graph.nodes[node].inputs.push(None);
        self.graph.nodes[node].inputs.push(Some(x.value));
        let (body, [_, condition, state]) = self.body(node, x);
        let next = self.one(body, "Add", &[state, y.value]);
        let slice = self.one(body, "Neg", &[state]);
        let condition = self.one(body, "Identity", &[condition]);
        let name = self.name("results");
        let results = [Some(condition), Some(next), Some(slice)];
        (self.graph).add_results(body, name, results);
        let state = self.output(node);
        let slices = self.output(node);
        if self.rng.bool() {
            let shape = x.shape.clone();
            return Known {
                value: state,
                shape,
            };
        }
        let passes = if by_data {
            self.decided()
        } else {
            "2".to_owned()
        };
        let shape = std::iter::once(passes).chain(x.shape.iter().cloned());
        Known {
            value: slices,
            shape: shape.collect(),
        }
    }

    /// A scan over the rows or columns of a matrix, from either end, that adds them up.
    fn scanned(&mut self, at: SubgraphId, x: &Known) -> Known {
        let axis = self.rng.usize(0..2);
        let axes = self.constant(at, DType::I64, &[1], &[i64::from(axis == 1)]);
        let node = self.node(at, "ReduceSum", &[x.value, axes]);
        self.set(node, "keepdims", 0);
        let start = self.output(node);
        let node = self.node(at, "Scan", &[start, x.value]);
        self.set(node, "num_scan_inputs", 1);
        let number = i64::from(axis == 1);
        let from_the_end = self.rng.i64(0..2);
        let to_axis = self.rng.i64(0..2);
        for (key, value) in [
            ("scan_input_axes", number),
            ("scan_input_directions", from_the_end),
            ("scan_output_axes", to_axis),
        ] {
            let list = Attr::List(vec![Attr::Int(value)]);
            self.graph.nodes[node].attrs.set(key, list);
        }
        let name = self.graph.nodes[node].name.clone();
        let body = (self.graph).add_subgraph(node, "body", format!("{name}/body"));
        let [state, slice] = [(); 2].map(|()| {
            let name = self.name("formal");
            let shape = Some([Dim::Unknown].into_iter().collect());
            self.graph.add_input(body, name, DType::F32, shape)
        });
        let next = self.one(body, "Add", &[state, slice]);
        let part = self.one(body, "Neg", &[next]);
        let name = self.name("results");
        (self.graph).add_results(body, name, [Some(next), Some(part)]);
        let state = self.output(node);
        let slices = self.output(node);
        let (along, other) = (x.shape[axis].clone(), x.shape[1 - axis].clone());
        if self.rng.bool() {
            let shape = vec![other];
            return Known {
                value: state,
                shape,
            };
        }
        let shape = match to_axis {
            0 => vec![along, other],
            _ => vec![other, along],
        };
        Known {
            value: slices,
            shape,
        }
    }

    /// The body of a loop with one state: number of the pass, condition, state.
    fn body(&mut self, node: NodeId, state: &Known) -> (SubgraphId, [ValueId; 3]) {
        let name = self.graph.nodes[node].name.clone();
        let body = (self.graph).add_subgraph(node, "body", format!("{name}/body"));
        let rank = state.shape.len();
        let shapes = [
            (DType::I64, Some(Shape::default())),
            (DType::Bool, Some(Shape::default())),
            (DType::F32, Some((0..rank).map(|_| Dim::Unknown).collect())),
        ];
        let values = shapes.map(|(dtype, shape)| {
            let name = self.name("formal");
            self.graph.add_input(body, name, dtype, shape)
        });
        (body, values)
    }
}
