//! The order: is the schedule a linear extension of the graph, laid out as the tree that its
//! subgraphs are?
//!
//! One walk over the steps with a stack of the nodes with bodies that are open. Once this has
//! passed, the other modules may take the shape of the schedule for granted: every node that runs
//! has its steps once, bodies stand inside their owners in the order of the owner's list, a
//! subgraph's output node stands last in it, and every producer stands before its readers.

use tenure_graph::entity::{EntityRef, EntitySet, SecondaryMap};
use tenure_graph::plan::{Phase, Plan};
use tenure_graph::{Graph, NodeId, SubgraphId};

use crate::findings::Findings;
use crate::layout::Layout;
use crate::violation::{Anchor, Violation};

/// Checks the order of the steps; what is wrong goes to `findings`.
pub(crate) fn check(graph: &Graph, plan: &Plan, layout: &Layout, findings: &mut Findings<'_>) {
    let mut walk = Walk {
        graph,
        layout,
        done: EntitySet::with_capacity(graph.nodes.len()),
        begun: EntitySet::with_capacity(graph.nodes.len()),
        open: EntitySet::with_capacity(graph.subgraphs.len()),
        missing: SecondaryMap::with_capacity(graph.subgraphs.len()),
        stack: Vec::new(),
        body: None,
    };
    if u32::try_from(plan.steps.len()).is_err() {
        let count = plan.steps.len();
        findings.known("step", count, u32::MAX as usize);
        return;
    }
    if walk.enter(graph.root, findings).is_err() {
        return;
    }
    for (number, step) in (0u32..).zip(&plan.steps) {
        if !findings.known("node", step.node.index(), graph.nodes.len())
            || walk.step(number, step.node, step.phase, findings).is_err()
        {
            return;
        }
    }
    if let Some(subgraph) = walk.body {
        walk.report_missing(subgraph, findings);
    } else if let Some(open) = walk.stack.last() {
        let node = findings.node(open.owner);
        findings.push(Violation::StepMissing { node });
    }
}

/// The walk cannot go on, because it no longer knows where in the tree it is.
struct Lost;

/// A node with bodies whose last step has not come.
struct Open {
    owner: NodeId,
    /// The body that is open, or comes next.
    next: u32,
}

struct Walk<'a> {
    graph: &'a Graph,
    layout: &'a Layout,
    /// Nodes whose last step has come.
    done: EntitySet<NodeId>,
    /// Nodes whose first step has come.
    begun: EntitySet<NodeId>,
    /// Subgraphs around the current step.
    open: EntitySet<SubgraphId>,
    /// Nodes of each open subgraph that have still to come, the output node included.
    missing: SecondaryMap<SubgraphId, usize>,
    stack: Vec<Open>,
    /// The subgraph whose nodes stand here; `None` between the bodies of an owner, and after the
    /// end of the root.
    body: Option<SubgraphId>,
}

impl Walk<'_> {
    fn enter(&mut self, subgraph: SubgraphId, findings: &mut Findings<'_>) -> Result<(), Lost> {
        let s = &self.graph.subgraphs[subgraph];
        // The root may give nothing back; it ends with the list.
        if s.output.is_none() && subgraph != self.graph.root {
            findings.push(Violation::NoResults {
                subgraph: s.name.clone(),
            });
            return Err(Lost);
        }
        let nodes = s.nodes.iter();
        self.missing[subgraph] = nodes.filter(|&&n| self.layout.has_step(n)).count();
        self.open.insert(subgraph);
        self.body = Some(subgraph);
        Ok(())
    }

    fn step(
        &mut self,
        number: u32,
        node: NodeId,
        phase: Phase,
        findings: &mut Findings<'_>,
    ) -> Result<(), Lost> {
        let n = &self.graph.nodes[node];
        match phase {
            Phase::Run | Phase::Begin => {
                let expected = match (n.bodies.is_empty(), self.body) {
                    (_, None) => Some(self.expected()),
                    (true, _) if phase != Phase::Run => Some("its only step (Run)".to_owned()),
                    (false, _) if phase != Phase::Begin => Some("its begin".to_owned()),
                    _ => None,
                };
                if let Some(expected) = expected {
                    return wrong_phase(number, node, phase, expected, findings);
                }
                self.first_step(number, node, findings)?;
                if phase == Phase::Begin {
                    self.stack.push(Open {
                        owner: node,
                        next: 0,
                    });
                    self.body = None;
                } else {
                    self.done.insert(node);
                    if self.graph.subgraphs[n.subgraph].output == Some(node) {
                        self.leave(n.subgraph, findings);
                    }
                }
            }
            Phase::Enter(k) => {
                let top = self.stack.last().filter(|_| self.body.is_none());
                let body = n.bodies.get(k as usize);
                match (top, body) {
                    (Some(top), Some(body)) if top.owner == node && top.next == k => {
                        self.enter(body.graph, findings)?;
                    }
                    _ => return wrong_phase(number, node, phase, self.expected(), findings),
                }
            }
            Phase::End => {
                let top = self.stack.last().filter(|_| self.body.is_none());
                let complete =
                    top.is_some_and(|top| top.owner == node && top.next as usize == n.bodies.len());
                if !complete {
                    return wrong_phase(number, node, phase, self.expected(), findings);
                }
                self.stack.pop();
                self.done.insert(node);
                self.body = Some(n.subgraph);
            }
        }
        Ok(())
    }

    /// What should stand here.
    fn expected(&self) -> String {
        let label = |n| self.graph.node_label(n);
        match (self.body, self.stack.last()) {
            (Some(s), _) => format!("a node of subgraph {:?}", self.graph.subgraphs[s].name),
            (None, None) => "nothing: the root's results are handed over".to_owned(),
            (None, Some(top)) => {
                let owner = &self.graph.nodes[top.owner];
                if (top.next as usize) < owner.bodies.len() {
                    format!("the entry of body {} of {:?}", top.next, label(top.owner))
                } else {
                    format!("the end of {:?}", label(top.owner))
                }
            }
        }
    }

    /// The first step of a node: the place to look at everything that must stand before.
    fn first_step(
        &mut self,
        number: u32,
        node: NodeId,
        findings: &mut Findings<'_>,
    ) -> Result<(), Lost> {
        let n = &self.graph.nodes[node];
        if !self.layout.has_step(node) {
            let site = findings.site(number, node);
            findings.push(Violation::StepForbidden { site });
            return Err(Lost);
        }
        if let Some(body) = self.body.filter(|&body| body != n.subgraph) {
            findings.push(Violation::OutsideBody {
                site: findings.site(number, node),
                found: self.graph.subgraphs[body].name.clone(),
                expected: self.graph.subgraphs[n.subgraph].name.clone(),
            });
            return Err(Lost);
        }
        if !self.begun.insert(node) {
            let site = findings.site(number, node);
            findings.push(Violation::StepTwice { site });
            return Err(Lost);
        }
        self.missing[n.subgraph] = self.missing[n.subgraph].saturating_sub(1);
        for &before in &n.control {
            if self.layout.has_step(before) && !self.done.contains(before) {
                findings.push(Violation::BeforeControl {
                    site: findings.site(number, node),
                    before: findings.node(before),
                });
            }
        }
        for (k, &value) in (0u32..).zip(&n.inputs) {
            let Some(value) = value else { continue };
            let producer = self.graph.values[value].producer;
            let site = || findings.site(number, node);
            let anchor = Anchor::Input(k);
            if !self.open.contains(self.graph.nodes[producer].subgraph) {
                findings.push(Violation::OutOfScope {
                    site: site(),
                    anchor,
                    value: findings.value(value),
                });
            } else if self.layout.has_step(producer) && !self.done.contains(producer) {
                findings.push(Violation::BeforeProducer {
                    site: site(),
                    anchor,
                    value: findings.value(value),
                    producer: findings.node(producer),
                });
            }
        }
        Ok(())
    }

    /// The step of a subgraph's output node: its last.
    fn leave(&mut self, subgraph: SubgraphId, findings: &mut Findings<'_>) {
        self.report_missing(subgraph, findings);
        self.open.remove(subgraph);
        self.body = None;
        if let Some(top) = self.stack.last_mut() {
            top.next = top.next.saturating_add(1);
        }
    }

    fn report_missing(&self, subgraph: SubgraphId, findings: &mut Findings<'_>) {
        if self.missing[subgraph] == 0 {
            return;
        }
        for &node in &self.graph.subgraphs[subgraph].nodes {
            if self.layout.has_step(node) && !self.begun.contains(node) {
                let node = findings.node(node);
                findings.push(Violation::StepMissing { node });
            }
        }
    }
}

fn wrong_phase(
    step: u32,
    node: NodeId,
    phase: Phase,
    expected: String,
    findings: &mut Findings<'_>,
) -> Result<(), Lost> {
    findings.push(Violation::WrongPhase {
        site: findings.site(step, node),
        phase,
        expected,
    });
    Err(Lost)
}
