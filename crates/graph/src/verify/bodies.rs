//! Whether nodes and their bodies fit together, by the class that the operator table gives.
//!
//! 17. In a body of a branch, call or `While`, each input node stands for an input that the owner
//!     has, and each result becomes another of its output slots. Every output of the owner is
//!     given by each body (of a `While`, by each but the condition).
//! 18. A loop has a trip count, a condition and one body. The body takes a counter, a condition
//!     and the states, and gives a condition, the states and perhaps collected values. The outputs
//!     of the states exist.
//! 19. A scan has one body, which takes as many values as the node does (in version 8, where the
//!     lengths of the sequences are an input of the node alone, one less), at least one of them in
//!     slices (`num_scan_inputs`), and gives the states and perhaps collected values. The outputs
//!     of the states exist.
//! 20. A `While` has one body in the role `cond`, which gives one value, and one other body. It
//!     has as many outputs as inputs, and all of them exist.
//! 21. Nodes of all other classes that have no bodies by nature have none.

use super::{Broken, Check};
use crate::control::{ScanLayout, input_index, result_index};
use crate::effects::{OpClass, OpTable};
use crate::{Body, Graph, Node, NodeId};

/// Checks that nodes and their bodies fit together, which [`crate::control::transfers`] needs.
/// The graph must be one that [`super::verify`] accepts.
///
/// # Errors
/// The rules that the graph breaks, at most [`super::MAX_BROKEN`].
pub fn verify_bodies(graph: &Graph, table: &OpTable) -> Result<(), Vec<Broken>> {
    let mut check = Check::new(graph);
    for (id, node) in &graph.nodes {
        match table.class(graph, id) {
            OpClass::Branch | OpClass::Call => {
                for body in &node.bodies {
                    check.border(id, body);
                    check.gives_all(id, body);
                }
            }
            OpClass::Loop => check.looping(id, node),
            OpClass::Scan => check.scan(id, node),
            OpClass::While => check.repeated(id, node),
            OpClass::Opaque => {}
            OpClass::Compute
            | OpClass::Input
            | OpClass::Constant
            | OpClass::Variable
            | OpClass::Output => {
                if !node.bodies.is_empty() {
                    check.fail(21, check.node(id), "its operator has no subgraphs");
                }
            }
        }
    }
    check.done()
}

impl Check<'_> {
    /// Rule 17, the numbers.
    fn border(&mut self, owner: NodeId, body: &Body) {
        let graph = self.graph;
        let node = &graph.nodes[owner];
        let subgraph = &graph.subgraphs[body.graph];
        for (i, &data) in subgraph.inputs.iter().enumerate() {
            let index = input_index(graph, data, i);
            if index >= node.inputs.len() {
                let problem = format!("stands for input {index} of {}", self.node(owner));
                self.fail(17, self.node(data), format!("{problem}, which it has not"));
            }
        }
        let mut given = vec![false; node.outputs.len()];
        for i in 0..results(graph, body).len() {
            let index = result_index(graph, subgraph.output, i);
            let of = || {
                format!(
                    "its result {i} becomes output {index} of {}",
                    self.node(owner)
                )
            };
            let problem = match given.get_mut(index) {
                Some(given) if !*given => {
                    *given = true;
                    continue;
                }
                Some(_) => format!("{}, as another does", of()),
                None => format!("{}, which it has not", of()),
            };
            self.fail(17, self.subgraph(body.graph), problem);
        }
    }

    /// Rule 17, that nothing is missing.
    fn gives_all(&mut self, owner: NodeId, body: &Body) {
        let graph = self.graph;
        let subgraph = &graph.subgraphs[body.graph];
        let outputs = &graph.nodes[owner].outputs;
        let mut given = vec![false; outputs.len()];
        for (i, result) in results(graph, body).iter().enumerate() {
            if let Some(given) = given.get_mut(result_index(graph, subgraph.output, i)) {
                *given |= result.is_some();
            }
        }
        let missing = |(i, given): (usize, bool)| !given && outputs[i].is_some();
        if let Some(i) = given.into_iter().enumerate().position(missing) {
            let problem = format!("gives no output {i} of {}", self.node(owner));
            self.fail(17, self.subgraph(body.graph), problem);
        }
    }

    /// Rule 18.
    fn looping(&mut self, id: NodeId, node: &Node) {
        let [body] = &node.bodies[..] else {
            return self.fail(18, self.node(id), "a loop has one body");
        };
        let Some(states) = node.inputs.len().checked_sub(2) else {
            let problem = "a loop has a trip count and a condition, or null in their places";
            return self.fail(18, self.node(id), problem);
        };
        self.carried(18, id, body, 1, states, states + 2);
    }

    /// Rule 19.
    fn scan(&mut self, id: NodeId, node: &Node) {
        let [body] = &node.bodies[..] else {
            return self.fail(19, self.node(id), "a scan has one body");
        };
        match ScanLayout::of(self.graph, node) {
            Some(scan) => {
                let inputs = scan.states + scan.slices;
                self.carried(19, id, body, 0, scan.states, inputs);
            }
            None => {
                let problem = "\"num_scan_inputs\" is at least 1 and at most the number of inputs";
                self.fail(19, self.node(id), problem);
            }
        }
    }

    /// Rules 18 and 19: a body of `inputs` inputs, whose results are `first` values that are no
    /// states, then the states, then what is collected.
    fn carried(
        &mut self,
        rule: u8,
        id: NodeId,
        body: &Body,
        first: usize,
        states: usize,
        inputs: usize,
    ) {
        let graph = self.graph;
        let found = graph.subgraphs[body.graph].inputs.len();
        if found != inputs {
            let problem = format!("has {found} inputs, {} asks for {inputs}", self.node(id));
            self.fail(rule, self.subgraph(body.graph), problem);
        }
        let results = results(graph, body);
        let needed = results.get(..first + states);
        if needed.is_none_or(|needed| needed.contains(&None)) {
            let problem = format!(
                "gives {} results, {} asks for {} at least",
                results.iter().flatten().count(),
                self.node(id),
                first + states
            );
            self.fail(rule, self.subgraph(body.graph), problem);
        }
        let outputs = &graph.nodes[id].outputs;
        if outputs.len() + first > results.len() {
            let problem = format!(
                "gives {} results for {} outputs of {}",
                results.len(),
                outputs.len(),
                self.node(id)
            );
            self.fail(rule, self.subgraph(body.graph), problem);
        }
        let of_states = outputs.get(..states);
        if of_states.is_none_or(|of_states| of_states.contains(&None)) {
            let problem = format!("its first {states} outputs hold its states and must exist");
            self.fail(rule, self.node(id), problem);
        }
    }

    /// Rule 20, and rule 17 for `While`.
    fn repeated(&mut self, id: NodeId, node: &Node) {
        let conditions = node.bodies.iter().filter(|b| b.is_condition()).count();
        if node.bodies.len() != 2 || conditions != 1 {
            let problem = "has one body in the role \"cond\" and one other";
            return self.fail(20, self.node(id), problem);
        }
        if node.outputs.len() != node.inputs.len() || node.outputs.contains(&None) {
            let problem = format!(
                "{} states, but {} outputs",
                node.inputs.len(),
                node.outputs.iter().flatten().count()
            );
            self.fail(20, self.node(id), problem);
        }
        for body in &node.bodies {
            if !body.is_condition() {
                self.border(id, body);
                self.gives_all(id, body);
            } else if !matches!(results(self.graph, body), [Some(_)]) {
                let problem = "a condition gives one value";
                self.fail(20, self.subgraph(body.graph), problem);
            }
        }
    }
}

/// The results of a body.
fn results<'a>(graph: &'a Graph, body: &Body) -> &'a [Option<crate::ValueId>] {
    let output = graph.subgraphs[body.graph].output;
    output.map_or(&[], |output| &graph.nodes[output].inputs)
}
