//! Random programs that can be run: every constant has contents, every loop ends, and every
//! operator has a kernel. They are rich in what makes shared memory dangerous: updates in an
//! input's memory, views, collectives that spoil their inputs, state that is kept, branches and
//! loops that hand values on.

use tenure_graph::{
    Attr, Attrs, DType, Dialect, Graph, NodeId, OutputHints, Shape, SubgraphId, ValueId, canonical,
};

/// Bounds of a random program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Most operators of the root.
    pub nodes: usize,
    /// How many branches and bodies may stand around one.
    pub depth: usize,
}

/// The shapes of all values but conditions and counters.
const SHAPES: [&[u64]; 4] = [&[4], &[2, 2], &[8], &[2, 4]];

/// A random program.
#[must_use]
pub fn program(seed: u64, bounds: Bounds) -> Graph {
    let mut maker = Maker {
        rng: fastrand::Rng::with_seed(seed),
        graph: Graph::new("random", Dialect::Ge, "root"),
        made: 0,
    };
    let root = maker.graph.root;
    let mut values = Vec::new();
    for i in 0..maker.rng.usize(1..4) {
        let shape = maker.shape();
        values.push(maker.data(root, shape, ("index", i)));
    }
    for op in ["Const", "Variable", "Variable"] {
        if maker.rng.bool() {
            let shape = maker.shape();
            values.push(maker.source(root, op, shape));
        }
    }
    let nodes = maker.rng.usize(1..=bounds.nodes);
    let values = maker.fill(root, values, nodes, bounds.depth);
    let results = maker.rng.usize(1..4);
    let results: Vec<_> = (0..results).map(|_| Some(maker.pick(&values))).collect();
    maker.graph.add_results(root, "results", results);
    canonical(&maker.graph)
}

struct Maker {
    rng: fastrand::Rng,
    graph: Graph,
    /// Numbers for names.
    made: usize,
}

impl Maker {
    fn shape(&mut self) -> &'static [u64] {
        SHAPES[self.rng.usize(..SHAPES.len())]
    }

    fn shape_of(&self, value: ValueId) -> Vec<u64> {
        let shape = self.graph.values[value].shape.as_ref();
        let known = shape.and_then(Shape::known);
        known.map(|s| s.to_vec()).unwrap_or_default()
    }

    fn elements(&self, value: ValueId) -> u64 {
        self.shape_of(value).iter().product()
    }

    /// Recent values more often, so that chains grow.
    fn pick(&mut self, values: &[ValueId]) -> ValueId {
        let back = self.rng.usize(1..=4.min(values.len()));
        let any = self.rng.usize(0..values.len());
        values[if self.rng.bool() {
            values.len() - back
        } else {
            any
        }]
    }

    /// A value of as many elements; the one given if there is no other.
    fn pick_like(&mut self, values: &[ValueId], like: ValueId) -> ValueId {
        let shape = self.shape_of(like);
        let same: Vec<ValueId> = (values.iter().copied())
            .filter(|&v| self.shape_of(v) == shape)
            .collect();
        if same.is_empty() {
            like
        } else {
            self.pick(&same)
        }
    }

    fn node(&mut self, at: SubgraphId, op: &str, inputs: &[ValueId]) -> NodeId {
        self.made += 1;
        let name = format!("{}{}", op.to_lowercase(), self.made);
        let node = self.graph.add_node(at, name, op);
        let inputs = inputs.iter().copied().map(Some);
        self.graph.nodes[node].inputs.extend(inputs);
        node
    }

    fn output(&mut self, node: NodeId, dtype: DType, shape: &[u64]) -> ValueId {
        let slot = self.graph.nodes[node].outputs.len();
        let name = format!("{}:{slot}", self.graph.nodes[node].name);
        (self.graph).add_output(node, name, dtype, Some(Shape::of(shape)))
    }

    /// An output with what the file says of its memory.
    fn hinted(&mut self, node: NodeId, shape: &[u64], hints: OutputHints) -> ValueId {
        let value = self.output(node, DType::F32, shape);
        let said = hints != OutputHints::default();
        self.graph.values[value].hints = said.then(|| Box::new(hints));
        value
    }

    fn data(&mut self, at: SubgraphId, shape: &[u64], (key, index): (&str, usize)) -> ValueId {
        self.made += 1;
        let name = format!("data{}", self.made);
        let shape = Some(Shape::of(shape));
        let value = self.graph.add_input(at, name, DType::F32, shape);
        let node = self.graph.values[value].producer;
        // As graphs of this dialect are named.
        self.graph.values[value].name = format!("{}:0", self.graph.nodes[node].name);
        let index = Attr::Int(i64::try_from(index).expect("few inputs"));
        self.graph.nodes[node].attrs.set(key, index);
        value
    }

    /// A constant or a variable with small numbers.
    fn source(&mut self, at: SubgraphId, op: &str, shape: &[u64]) -> ValueId {
        let elements: u64 = shape.iter().product();
        let numbers = (0..elements).map(|_| Attr::Int(self.rng.i64(-3..4)));
        let numbers = Attr::List(numbers.collect());
        let node = self.node(at, op, &[]);
        self.graph.nodes[node].stream = None;
        self.graph.nodes[node].attrs.set("value", numbers);
        self.output(node, DType::F32, shape)
    }

    /// Adds nodes to a subgraph in which `values` can be read.
    fn fill(
        &mut self,
        at: SubgraphId,
        mut values: Vec<ValueId>,
        nodes: usize,
        depth: usize,
    ) -> Vec<ValueId> {
        let mut here: Vec<NodeId> = Vec::new();
        for _ in 0..nodes {
            let first = self.graph.nodes.next_key();
            let made = match self.rng.u32(..if depth > 0 { 14 } else { 11 }) {
                0..=2 => self.unary(at, &values),
                3 | 4 => self.binary(at, &values),
                5 | 6 => self.update(at, &values),
                7 => self.reshape(at, &values),
                8 => self.collective(at, &values),
                9 => self.joined(at, &values),
                10 => self.parts(at, &values),
                11 => self.choice(at, &values, depth),
                12 => self.call(at, &values, depth),
                _ => self.repeat(at, &values, depth),
            };
            values.extend(made);
            let node = (self.graph.nodes.keys())
                .find(|&n| n >= first && self.graph.nodes[n].subgraph == at)
                .expect("a node was made");
            if self.graph.nodes[node].bodies.is_empty() && self.rng.u8(..5) == 0 {
                self.graph.nodes[node].workspace.push(self.rng.i64(1..40));
            }
            if !here.is_empty() && self.rng.u8(..5) == 0 {
                let before = here[self.rng.usize(..here.len())];
                self.graph.nodes[node].control.push(before);
            }
            here.push(node);
        }
        values
    }

    /// Leave to write the output over some of the inputs.
    fn leave(&mut self, inputs: u32) -> OutputHints {
        let mut hints = OutputHints::default();
        if self.rng.bool() {
            hints.may_inplace.extend(0..inputs);
        }
        hints
    }

    fn unary(&mut self, at: SubgraphId, values: &[ValueId]) -> Vec<ValueId> {
        let ops = [
            "Relu",
            "Neg",
            "Identity",
            "MemcpyAsync",
            "AtomicAdd",
            "TensorMove",
        ];
        let op = ops[self.rng.usize(..ops.len())];
        let x = self.pick(values);
        let node = self.node(at, op, &[x]);
        if op == "AtomicAdd" && self.rng.bool() {
            // It adds to what is there, so its output must be cleared, and cannot be its input.
            let outputs = Attr::List(vec![Attr::Int(0)]);
            let attrs = &mut self.graph.nodes[node].attrs;
            attrs.set("atomic_output_index", outputs);
            return vec![self.output(node, DType::F32, &self.shape_of(x))];
        }
        let hints = self.leave(1);
        vec![self.hinted(node, &self.shape_of(x), hints)]
    }

    fn binary(&mut self, at: SubgraphId, values: &[ValueId]) -> Vec<ValueId> {
        let op = ["Add", "Sub", "Add", "Mul"][self.rng.usize(..4)];
        let x = self.pick(values);
        let y = self.pick_like(values, x);
        let node = self.node(at, op, &[x, y]);
        let hints = self.leave(2);
        vec![self.hinted(node, &self.shape_of(x), hints)]
    }

    /// Writes in an input's memory.
    fn update(&mut self, at: SubgraphId, values: &[ValueId]) -> Vec<ValueId> {
        let op = ["InplaceAdd", "Assign", "AssignSub"][self.rng.usize(..3)];
        let x = self.pick(values);
        let y = self.pick_like(values, x);
        let node = self.node(at, op, &[x, y]);
        let hints = OutputHints {
            ref_input: Some(0),
            ..OutputHints::default()
        };
        vec![self.hinted(node, &self.shape_of(x), hints)]
    }

    fn reshape(&mut self, at: SubgraphId, values: &[ValueId]) -> Vec<ValueId> {
        let x = self.pick(values);
        let n = self.elements(x);
        let shapes: Vec<&[u64]> = (SHAPES.into_iter())
            .filter(|s| s.iter().product::<u64>() == n)
            .collect();
        let shape = if shapes.is_empty() {
            self.shape_of(x)
        } else {
            shapes[self.rng.usize(..shapes.len())].to_vec()
        };
        let node = self.node(at, "Reshape", &[x]);
        let hints = OutputHints {
            ref_input: Some(0),
            ..OutputHints::default()
        };
        vec![self.hinted(node, &shape, hints)]
    }

    /// A collective of one rank, that may leave garbage in its inputs, and may want several tensors
    /// one behind the other.
    fn collective(&mut self, at: SubgraphId, values: &[ValueId]) -> Vec<ValueId> {
        let inputs: Vec<ValueId> = (0..self.rng.usize(1..3))
            .map(|_| self.pick(values))
            .collect();
        let node = self.node(at, "HcomAllReduce", &inputs);
        let asks = [
            ("_input_mutable", 3),
            ("continuous_input", 1),
            ("continuous_output", 1),
        ];
        for (attr, often) in asks {
            if self.rng.u8(..4) < often {
                let attrs = &mut self.graph.nodes[node].attrs;
                attrs.set(attr, Attr::Bool(true));
            }
        }
        let shapes = inputs.iter().map(|&x| self.shape_of(x));
        let shapes: Vec<Vec<u64>> = shapes.collect();
        let shapes = shapes.iter();
        shapes.map(|s| self.output(node, DType::F32, s)).collect()
    }

    fn joined(&mut self, at: SubgraphId, values: &[ValueId]) -> Vec<ValueId> {
        let x = self.pick(values);
        let y = self.pick_like(values, x);
        let mut shape = self.shape_of(x);
        let axis = self.rng.usize(..shape.len());
        shape[axis] *= 2;
        let node = self.node(at, "ConcatD", &[x, y]);
        let axis = Attr::Int(i64::try_from(axis).expect("few axes"));
        self.graph.nodes[node].attrs.set("concat_dim", axis);
        vec![self.output(node, DType::F32, &shape)]
    }

    fn parts(&mut self, at: SubgraphId, values: &[ValueId]) -> Vec<ValueId> {
        let x = self.pick(values);
        let mut shape = self.shape_of(x);
        let axes: Vec<usize> = (0..shape.len())
            .filter(|&a| shape[a].is_multiple_of(2))
            .collect();
        let Some(&axis) = axes.first() else {
            return self.unary(at, values);
        };
        shape[axis] /= 2;
        let node = self.node(at, "SplitD", &[x]);
        let axis = Attr::Int(i64::try_from(axis).expect("few axes"));
        self.graph.nodes[node].attrs.set("split_dim", axis);
        (0..2)
            .map(|_| self.output(node, DType::F32, &shape))
            .collect()
    }

    /// The first element of a value.
    fn first(&mut self, at: SubgraphId, values: &[ValueId]) -> ValueId {
        let x = self.pick(values);
        let n = self.elements(x);
        if n == 1 {
            return x;
        }
        let node = self.node(at, "Reshape", &[x]);
        let hints = OutputHints {
            ref_input: Some(0),
            ..OutputHints::default()
        };
        let flat = self.hinted(node, &[n], hints);
        let node = self.node(at, "SplitD", &[flat]);
        self.graph.nodes[node].attrs.set("split_dim", Attr::Int(0));
        let first = self.output(node, DType::F32, &[1]);
        self.output(node, DType::F32, &[n - 1]);
        first
    }

    /// A truth value that depends on what runs.
    fn condition(&mut self, at: SubgraphId, values: &[ValueId]) -> ValueId {
        let first = self.first(at, values);
        let limit = self.source(at, "Const", &[1]);
        let node = self.node(at, "Less", &[first, limit]);
        self.output(node, DType::Bool, &[1])
    }

    /// A body whose input `i` has the type of the `i`-th of `inputs`, and whose results have the
    /// given shapes.
    fn body(
        &mut self,
        owner: NodeId,
        role: &str,
        inputs: &[(usize, Vec<u64>)],
        results: &[Vec<u64>],
        depth: usize,
    ) {
        self.made += 1;
        let name = format!("{role}{}", self.made);
        let body = self.graph.add_subgraph(owner, role, name);
        let values: Vec<ValueId> = (inputs.iter())
            .map(|(i, shape)| self.data(body, shape, ("parent_index", *i)))
            .collect();
        let nodes = self.rng.usize(..4);
        let values = self.fill(body, values, nodes, depth - 1);
        let given: Vec<ValueId> = results
            .iter()
            .map(|shape| self.result(body, &values, shape))
            .collect();
        self.give(body, &given);
    }

    /// A value of the given shape; a constant if there is none.
    fn result(&mut self, at: SubgraphId, values: &[ValueId], shape: &[u64]) -> ValueId {
        let same: Vec<ValueId> = (values.iter().copied())
            .filter(|&v| self.shape_of(v) == shape)
            .collect();
        if same.is_empty() {
            self.source(at, "Const", shape)
        } else {
            self.pick(&same)
        }
    }

    fn give(&mut self, body: SubgraphId, values: &[ValueId]) {
        let given = values.iter().copied().map(Some);
        let output = self.graph.add_results(body, "results", given);
        let index = |i| Attr::Int(i64::try_from(i).expect("few results"));
        self.graph.nodes[output].input_attrs = (0..values.len())
            .map(|i| Attrs::from_iter([("parent_index", index(i))]))
            .collect();
    }

    /// Some values, each with its shape.
    fn some(&mut self, values: &[ValueId]) -> (Vec<ValueId>, Vec<Vec<u64>>) {
        let chosen: Vec<ValueId> = (0..self.rng.usize(1..4))
            .map(|_| self.pick(values))
            .collect();
        let shapes = chosen.iter().map(|&v| self.shape_of(v)).collect();
        (chosen, shapes)
    }

    fn choice(&mut self, at: SubgraphId, values: &[ValueId], depth: usize) -> Vec<ValueId> {
        let (op, roles): (_, &[&str]) = if self.rng.u8(..3) > 0 {
            ("If", &["then", "else"])
        } else {
            ("Case", &["branch0", "branch1", "branch2"])
        };
        let condition = if op == "If" {
            self.condition(at, values)
        } else {
            self.first(at, values)
        };
        let (chosen, shapes) = self.some(values);
        let node = self.node(at, op, &[&[condition], &chosen[..]].concat());
        // The condition is not looked at inside.
        let formals: Vec<_> = (1..).zip(shapes.iter().cloned()).collect();
        for role in roles {
            self.body(node, role, &formals, &shapes, depth);
        }
        let shapes = shapes.iter();
        shapes.map(|s| self.output(node, DType::F32, s)).collect()
    }

    fn call(&mut self, at: SubgraphId, values: &[ValueId], depth: usize) -> Vec<ValueId> {
        let (chosen, shapes) = self.some(values);
        let node = self.node(at, "PartitionedCall", &chosen);
        let formals: Vec<_> = (0..).zip(shapes.iter().cloned()).collect();
        self.body(node, "partition", &formals, &shapes, depth);
        shapes
            .iter()
            .map(|s| self.output(node, DType::F32, s))
            .collect()
    }

    /// A loop that counts in its first state; the others are whatever the body makes of them.
    fn repeat(&mut self, at: SubgraphId, values: &[ValueId], depth: usize) -> Vec<ValueId> {
        let zero = self.number(at, 0);
        let (chosen, shapes) = self.some(values);
        let node = self.node(at, "While", &[&[zero], &chosen[..]].concat());
        let passes = self.rng.i64(0..4);
        self.made += 1;
        let condition = (self.graph).add_subgraph(node, "cond", format!("cond{}", self.made));
        let counter = self.data(condition, &[1], ("parent_index", 0));
        let limit = self.number(condition, passes);
        let less = self.node(condition, "Less", &[counter, limit]);
        let less = self.output(less, DType::Bool, &[1]);
        self.give(condition, &[less]);
        self.made += 1;
        let body = (self.graph).add_subgraph(node, "body", format!("body{}", self.made));
        let counter = self.data(body, &[1], ("parent_index", 0));
        let formals: Vec<ValueId> = (1..)
            .zip(&shapes)
            .map(|(i, shape)| self.data(body, shape, ("parent_index", i)))
            .collect();
        let one = self.number(body, 1);
        let next = self.node(body, "Add", &[counter, one]);
        let hints = self.leave(1);
        let next = self.hinted(next, &[1], hints);
        let nodes = self.rng.usize(..4);
        let inside = self.fill(body, formals, nodes, depth - 1);
        let mut given = vec![next];
        for shape in &shapes {
            given.push(self.result(body, &inside, shape));
        }
        self.give(body, &given);
        self.output(node, DType::F32, &[1]);
        shapes
            .iter()
            .map(|s| self.output(node, DType::F32, s))
            .collect()
    }

    fn number(&mut self, at: SubgraphId, number: i64) -> ValueId {
        let node = self.node(at, "Const", &[]);
        self.graph.nodes[node].stream = None;
        let number = Attr::List(vec![Attr::Int(number)]);
        self.graph.nodes[node].attrs.set("value", number);
        self.output(node, DType::F32, &[1])
    }
}
