//! A program run as its file says: every value has memory of its own, nothing is planned, nothing
//! is shared. The one exception is state: what is written in a variable's memory is the variable,
//! and who reads it sees what was written last, in the order of the file.
//!
//! With the plan's executor this shares the kernels and nothing else.

use tenure_graph::control::{input_index, result_index};
use tenure_graph::effects::{OpClass, OpTable};
use tenure_graph::entity::SecondaryMap;
use tenure_graph::{Graph, NodeId, SubgraphId, ValueId};
use tenure_runtime::kernels::Site;
use tenure_runtime::numbers::{contents, decode};
use tenure_runtime::{Address, Kernels, Memory, Place, Slots};

/// What a run gives: the graph's outputs, and what its variables hold afterwards, by the order of
/// their nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Bytes of the outputs.
    pub results: Vec<Vec<u8>>,
    /// Bytes of the variables.
    pub variables: Vec<Vec<u8>>,
}

/// A program that can be run.
pub struct Reference<'a> {
    graph: &'a Graph,
    table: OpTable,
    kernels: Kernels,
    memory: Memory,
    /// The value's own memory.
    own: SecondaryMap<ValueId, Address>,
    /// The variable that a value is a name of now.
    state: SecondaryMap<ValueId, Option<ValueId>>,
}

impl<'a> Reference<'a> {
    /// Gives every value memory, and constants and variables their contents.
    ///
    /// # Errors
    /// What is wrong with the program.
    pub fn new(graph: &'a Graph) -> Result<Self, String> {
        let mut reference = Reference {
            graph,
            table: OpTable::builtin(graph.dialect),
            kernels: Kernels::builtin(),
            memory: Memory::default(),
            own: SecondaryMap::new(),
            state: SecondaryMap::new(),
        };
        for value in graph.values.keys() {
            let bytes = graph.bytes(value).ok_or("a size is not known")?;
            let block = reference.memory.add(bytes, 1).map_err(|e| e.to_string())?;
            let len = usize::try_from(bytes).map_err(|e| e.to_string())?;
            reference.own[value] = Address {
                block,
                start: 0,
                len,
            };
        }
        for node in graph.nodes.keys() {
            let class = reference.table.class(graph, node);
            let Some(value) = graph.nodes[node].output(0) else {
                continue;
            };
            if class == OpClass::Variable {
                reference.state[value] = Some(value);
            }
            if let Some(first) = contents(graph, node)? {
                reference.put(value, &first);
            }
        }
        Ok(reference)
    }

    /// Runs it on inputs in the order of the root's inputs.
    ///
    /// # Errors
    /// What cannot be run.
    pub fn run(&mut self, inputs: &[Vec<u8>]) -> Result<Outcome, String> {
        let root = &self.graph.subgraphs[self.graph.root];
        for (&data, bytes) in root.inputs.iter().zip(inputs) {
            self.put(self.graph.nodes[data].output(0).ok_or("an input")?, bytes);
        }
        self.subgraph(self.graph.root)?;
        let output = root.output.ok_or("no output node")?;
        let results = self.graph.nodes[output].inputs.iter().flatten();
        let variables = self.state.keys().filter(|&v| self.state[v] == Some(v));
        Ok(Outcome {
            results: results.map(|&v| self.get(v)).collect(),
            variables: variables.map(|v| self.get(v)).collect(),
        })
    }

    /// Where a value is now.
    fn place(&self, value: ValueId) -> Address {
        let len = self.own[value].len;
        let state = self.state[value].map(|variable| self.own[variable]);
        Address {
            len,
            ..state.unwrap_or(self.own[value])
        }
    }

    fn put(&mut self, value: ValueId, bytes: &[u8]) {
        let at = self.place(value);
        for (to, byte) in self.memory.bytes_mut(at).iter_mut().zip(bytes) {
            *to = *byte;
        }
    }

    fn get(&self, value: ValueId) -> Vec<u8> {
        self.memory.bytes(self.place(value)).to_vec()
    }

    /// The value has a copy of the bytes that another one has now.
    fn copy(&mut self, from: ValueId, to: ValueId) {
        let bytes = self.get(from);
        self.state[to] = None;
        self.put(to, &bytes);
    }

    /// The value is another name: of the variable itself, or of a value, which a copy is as well.
    fn name(&mut self, from: ValueId, to: ValueId) {
        match self.state[from] {
            Some(variable) => self.state[to] = Some(variable),
            None => self.copy(from, to),
        }
    }

    fn subgraph(&mut self, id: SubgraphId) -> Result<(), String> {
        let graph = self.graph;
        for &node in &graph.subgraphs[id].nodes {
            match self.table.class(graph, node) {
                OpClass::Compute => self.compute(node)?,
                OpClass::Branch => {
                    let condition = graph.nodes[node].input(0).ok_or("no condition")?;
                    self.once(node, self.taken(node, condition))?;
                }
                OpClass::Call => self.once(node, 0)?,
                OpClass::While => self.until(node)?,
                OpClass::Input | OpClass::Constant | OpClass::Variable | OpClass::Output => {}
                other => return Err(format!("nodes of class {other:?} are not run")),
            }
        }
        Ok(())
    }

    /// Which body a branch runs: by the truth of its condition, or by its number, and for numbers
    /// that there is no body for the last one.
    fn taken(&self, owner: NodeId, condition: ValueId) -> usize {
        let bodies = &self.graph.nodes[owner].bodies;
        let role = if self.is_true(condition) {
            "then"
        } else {
            "else"
        };
        if let Some(body) = bodies.iter().position(|b| &*b.role == role) {
            return body;
        }
        let number = decode(self.graph.values[condition].dtype, &self.get(condition));
        let number = number.and_then(|n| n.first().copied()).unwrap_or(0.0);
        let last = bodies.len().saturating_sub(1);
        (0..last)
            .find(|&k| number >= 0.0 && number < k as f64 + 1.0)
            .unwrap_or(last)
    }

    fn is_true(&self, value: ValueId) -> bool {
        let number = decode(self.graph.values[value].dtype, &self.get(value));
        number.is_some_and(|n| n.first().is_some_and(|&n| n != 0.0))
    }

    fn compute(&mut self, id: NodeId) -> Result<(), String> {
        let node = &self.graph.nodes[id];
        for output in node.outputs.iter().flatten() {
            let hints = self.graph.values[*output].hints.as_ref();
            let referred = hints.and_then(|h| node.input(h.ref_input? as usize));
            if self.table.ref_is_view(self.graph, id)
                && let Some(source) = referred
            {
                self.name(source, *output);
                return Ok(());
            }
            self.state[*output] = referred.and_then(|source| self.state[source]);
        }
        let places = |values: &[Option<ValueId>]| -> Vec<Place> {
            let at = |v: &Option<ValueId>| v.map_or(Address::default(), |v| self.place(v));
            let place = |v| Place {
                at: at(v),
                align: 8,
            };
            values.iter().map(place).collect()
        };
        let make = self.kernels.find(&node.domain, &node.op);
        let make = make.ok_or_else(|| format!("no kernel for {}", node.op))?;
        let mut kernel = make(&Site::new(self.graph, id))?;
        let (inputs, outputs) = (places(&node.inputs), places(&node.outputs));
        let slots = Slots::new(&mut self.memory, &*kernel, &inputs, &outputs, &[]);
        let slots = slots.map_err(|e| e.to_string())?;
        self.memory.run(&mut *kernel, &slots)
    }

    /// Runs one body of a branch or a call: it works on what it is given, and gives copies.
    fn once(&mut self, owner: NodeId, k: usize) -> Result<(), String> {
        let node = &self.graph.nodes[owner];
        let body = &self.graph.subgraphs[node.bodies[k].graph];
        for (i, &data) in body.inputs.iter().enumerate() {
            let outer = node.input(input_index(self.graph, data, i));
            let inner = self.graph.nodes[data].output(0);
            self.name(outer.ok_or("an input")?, inner.ok_or("an input")?);
        }
        self.subgraph(node.bodies[k].graph)?;
        self.leave(owner, k)
    }

    /// Runs a loop; its states are its outputs.
    fn until(&mut self, owner: NodeId) -> Result<(), String> {
        let node = &self.graph.nodes[owner];
        for (input, output) in node.inputs.iter().zip(&node.outputs) {
            self.copy(input.ok_or("a state")?, output.ok_or("a state")?);
        }
        let condition = node.bodies.iter().position(|b| b.is_condition());
        let body = node.bodies.iter().position(|b| !b.is_condition());
        let (condition, body) = condition.zip(body).ok_or("no condition or no body")?;
        loop {
            self.pass(owner, condition)?;
            let output = self.graph.subgraphs[node.bodies[condition].graph].output;
            let result = output.and_then(|o| self.graph.nodes[o].input(0));
            if !self.is_true(result.ok_or("no condition")?) {
                return Ok(());
            }
            self.pass(owner, body)?;
            self.leave(owner, body)?;
        }
    }

    fn pass(&mut self, owner: NodeId, k: usize) -> Result<(), String> {
        let node = &self.graph.nodes[owner];
        let body = &self.graph.subgraphs[node.bodies[k].graph];
        for (i, &data) in body.inputs.iter().enumerate() {
            let state = node.output(input_index(self.graph, data, i));
            let inner = self.graph.nodes[data].output(0);
            self.copy(state.ok_or("a state")?, inner.ok_or("a state")?);
        }
        self.subgraph(node.bodies[k].graph)
    }

    /// Gives the results of a body to its owner.
    fn leave(&mut self, owner: NodeId, k: usize) -> Result<(), String> {
        let node = &self.graph.nodes[owner];
        let output = self.graph.subgraphs[node.bodies[k].graph].output;
        let results = output.map(|o| &self.graph.nodes[o].inputs);
        for (i, &result) in results.into_iter().flatten().enumerate() {
            let outer = node.output(result_index(self.graph, output, i));
            self.copy(result.ok_or("a result")?, outer.ok_or("a result")?);
        }
        Ok(())
    }
}
