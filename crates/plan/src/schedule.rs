//! The schedule: one linear list of steps in which the tree of subgraphs is laid out.
//!
//! A node without bodies takes one step. A node with bodies takes one to begin, then for each body
//! one to enter it, the body's own steps and the step of its output node, and one to end. What is
//! never run (inputs, constants, folded nodes) takes none.

use tenure_graph::effects::{OpClass, OpTable};
use tenure_graph::entity::{EntitySet, SecondaryMap};
use tenure_graph::plan::{Phase, Span, Step};
use tenure_graph::{Graph, NodeId, SubgraphId};

use crate::PlanError;

/// The order in which everything runs.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// All steps; a step's number is its place here.
    pub steps: Vec<Step>,
    /// The steps of each node: begin and end, the same for a node without bodies; `None` for a
    /// node that never runs.
    pub span: SecondaryMap<NodeId, Option<Span>>,
    /// The steps of each subgraph: from entering it to its output node. The root starts at 0.
    pub body: SecondaryMap<SubgraphId, Span>,
}

impl Schedule {
    /// The first step of a node, or 0 if it never runs.
    pub(crate) fn first(&self, node: NodeId) -> u32 {
        self.span[node].map_or(0, |s| s.first)
    }

    /// The last step of a node, or 0 if it never runs.
    pub(crate) fn last(&self, node: NodeId) -> u32 {
        self.span[node].map_or(0, |s| s.last)
    }

    /// The number of the last step of all.
    pub(crate) fn end(&self) -> u32 {
        u32::try_from(self.steps.len())
            .unwrap_or(u32::MAX)
            .saturating_sub(1)
    }
}

/// Lays out the nodes of a graph in the order of its subgraphs' lists.
///
/// `folded` are the nodes that are computed at load time.
///
/// # Errors
/// [`PlanError::TooManySteps`] when the steps cannot be counted in 32 bits, and
/// [`PlanError::NoResults`] when a subgraph below the root has no output node.
pub fn schedule(
    graph: &Graph,
    table: &OpTable,
    folded: &EntitySet<NodeId>,
) -> Result<Schedule, PlanError> {
    let mut layout = Layout {
        graph,
        table,
        folded,
        out: Schedule {
            steps: Vec::with_capacity(graph.nodes.len()),
            span: SecondaryMap::with_capacity(graph.nodes.len()),
            body: SecondaryMap::with_default(Span { first: 0, last: 0 }),
        },
    };
    layout.subgraph(graph.root)?;
    Ok(layout.out)
}

struct Layout<'a> {
    graph: &'a Graph,
    table: &'a OpTable,
    folded: &'a EntitySet<NodeId>,
    out: Schedule,
}

impl Layout<'_> {
    /// Depth of recursion is that of the subgraphs, which the verifier bounds.
    fn subgraph(&mut self, id: SubgraphId) -> Result<(), PlanError> {
        let graph = self.graph;
        let subgraph = &graph.subgraphs[id];
        // The step that enters the subgraph has been pushed already, but for the root.
        let first = self.next()?.saturating_sub(u32::from(id != graph.root));
        for &node in &subgraph.nodes {
            if Some(node) == subgraph.output || self.folded.contains(node) {
                continue;
            }
            match self.table.class(graph, node) {
                OpClass::Input | OpClass::Constant | OpClass::Variable => {}
                _ if graph.nodes[node].bodies.is_empty() => {
                    let step = self.push(node, Phase::Run)?;
                    self.out.span[node] = Some(Span {
                        first: step,
                        last: step,
                    });
                }
                _ => {
                    let begin = self.push(node, Phase::Begin)?;
                    for (k, body) in (0u32..).zip(&graph.nodes[node].bodies) {
                        if graph.subgraphs[body.graph].output.is_none() {
                            let subgraph = graph.subgraphs[body.graph].name.clone();
                            return Err(PlanError::NoResults { subgraph });
                        }
                        self.push(node, Phase::Enter(k))?;
                        self.subgraph(body.graph)?;
                    }
                    let end = self.push(node, Phase::End)?;
                    self.out.span[node] = Some(Span {
                        first: begin,
                        last: end,
                    });
                }
            }
        }
        if let Some(output) = subgraph.output {
            let step = self.push(output, Phase::Run)?;
            self.out.span[output] = Some(Span {
                first: step,
                last: step,
            });
        }
        let last = self.next()?.saturating_sub(1).max(first);
        self.out.body[id] = Span { first, last };
        Ok(())
    }

    fn next(&self) -> Result<u32, PlanError> {
        u32::try_from(self.out.steps.len()).map_err(|_| PlanError::TooManySteps)
    }

    fn push(&mut self, node: NodeId, phase: Phase) -> Result<u32, PlanError> {
        let step = self.next()?;
        self.out.steps.push(Step {
            node,
            phase,
            stream: self.graph.nodes[node].stream,
        });
        Ok(step)
    }
}
