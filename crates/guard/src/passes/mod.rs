//! Layer 1: passes for special cases, a file each. Each is a function from a graph to
//! [`Guarded`] and can be run alone.

pub mod collective_writes;
pub mod concat_no_task;
pub mod contiguous_inputs;
pub mod fixed_addresses;
pub mod identity;
pub mod in_place_support;
pub mod joined_offsets;
pub mod subgraph;
pub mod tensor_moves;
pub mod user_addresses;
pub mod zeroing;

use tenure_graph::effects::{OpClass, Trait};
use tenure_graph::patch::{NewNode, NewOutput, Spot};
use tenure_graph::{Attrs, Graph, NodeId, OutputHints, ValueId};

use crate::Guarded;
use crate::error::GuardError;
use crate::finding::{Finding, Kind};
use crate::storage::Anchor;
use crate::work::Work;

/// Type of the node that stores a value in a variable.
const ASSIGN_OP: &str = "Assign";

/// A pass at work: the program that it edits, and what it has found.
pub(crate) struct Pass<'a> {
    pub(crate) work: Work<'a>,
    findings: Vec<Finding>,
    kind: Kind,
    stage: &'static str,
}

impl<'a> Pass<'a> {
    pub(crate) fn new(
        graph: &'a Graph,
        table: &'a tenure_graph::effects::OpTable,
        kind: Kind,
        stage: &'static str,
    ) -> Self {
        Pass {
            work: Work::new(graph, table),
            findings: Vec::new(),
            kind,
            stage,
        }
    }

    pub(crate) fn done(self) -> Result<Guarded, GuardError> {
        self.work.guarded(self.kind, self.stage, self.findings)
    }

    /// Whether anything was found so far that had to be repaired.
    pub(crate) fn has_found(&self) -> bool {
        !self.findings.is_empty()
    }

    fn note(&mut self, at: Anchor, rule: &'static str, harm: &str, repair: &str) {
        let graph = self.work.graph();
        let finding = Finding {
            kind: self.kind,
            stage: self.stage,
            rule,
            at: at.label(graph),
            with: String::new(),
            harm: harm.to_owned(),
            repair: repair.to_owned(),
            by: None,
            bytes: self.work.bytes(at),
        };
        self.findings.push(finding);
    }

    /// Copies one input, and says so.
    pub(crate) fn copy(
        &mut self,
        reader: NodeId,
        i: u32,
        name: &str,
        rule: &'static str,
        harm: &str,
    ) -> Result<NodeId, GuardError> {
        self.note(Anchor::input(reader, i), rule, harm, "copied");
        let copy = self.work.copy_before(reader, &[i], name, harm)?;
        self.done_by(1, copy);
        Ok(copy)
    }

    /// Says of the last findings which node repairs them.
    pub(crate) fn done_by(&mut self, findings: usize, node: NodeId) {
        let label = self.work.graph().node_label(node);
        for finding in self.findings.iter_mut().rev().take(findings) {
            finding.by = Some(label.clone());
        }
    }

    /// Refuses an input that is left out where it has to be there.
    fn missing_input(&self, node: NodeId, i: u32, needed: bool) -> Result<(), GuardError> {
        let graph = self.work.graph();
        if !needed || graph.nodes[node].input(i as usize).is_some() {
            return Ok(());
        }
        Err(GuardError::Malformed {
            at: Anchor::input(node, i).label(graph),
            problem: "it is left out, but a collective needs all its inputs".to_owned(),
        })
    }

    /// Whether a value's memory is nobody's to move or write: an input, a constant, a variable.
    fn is_source(&self, value: ValueId) -> bool {
        let graph = self.work.graph();
        let class = self.work.table.class(graph, graph.values[value].producer);
        matches!(
            class,
            OpClass::Input | OpClass::Constant | OpClass::Variable
        )
    }

    /// Stores what a collective made of the copy of a variable back in the variable, before anybody
    /// uses the collective's output; but not where something else assigns the variable.
    fn write_back(
        &mut self,
        collective: NodeId,
        i: u32,
        variable: ValueId,
        name: &str,
        attrs: Attrs,
    ) -> Result<(), GuardError> {
        let graph = self.work.graph();
        let table = self.work.table;
        let source = graph.values[variable].producer;
        let assigned = |&(n, _): &(NodeId, u32)| table.traits(graph, n).has(Trait::Assigns);
        if !table.traits(graph, collective).has(Trait::WritesBack)
            || table.class(graph, source) != OpClass::Variable
            || self.work.users(variable).iter().any(assigned)
        {
            return Ok(());
        }
        let Some(made) = graph.nodes[collective].output(i as usize) else {
            return Ok(());
        };
        let users = self.work.users(made).to_vec();
        let waiting = self.work.waiting(collective).to_vec();
        let hints = OutputHints {
            ref_input: Some(0),
            ..OutputHints::default()
        };
        let node = NewNode {
            name: name.to_owned(),
            op: ASSIGN_OP.into(),
            inputs: vec![variable, made],
            outputs: vec![NewOutput {
                dtype: graph.values[variable].dtype,
                shape: graph.values[variable].shape.clone(),
                hints: Some(Box::new(hints)),
            }],
            attrs,
            control: Vec::new(),
            stream: graph.nodes[collective].stream,
        };
        let reason = "the collective worked on a copy of the variable";
        let assign = self.work.add(node, Spot::After(collective), reason)?;
        let later = users.into_iter().map(|(n, _)| n).chain(waiting);
        for node in later.filter(|&n| n != assign) {
            self.work
                .order(assign, node, "it uses what is written back")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
