//! Faults that are asked for: nodes that are made to write too far, or to be at work for longer than
//! their step, to see that they are found.

use tenure_graph::{Graph, NodeId};

use crate::RuntimeError;

/// What a node is made to do beyond its work. Nothing of it harms where no memory is shared and
/// there is room around each tensor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fault {
    /// The node: its label in the graph, or its name.
    pub node: String,
    /// Which of its outputs.
    pub output: usize,
    /// Bytes that are written behind the output.
    pub bytes_past_end: usize,
    /// Bytes that are written before the output.
    pub bytes_before_start: usize,
    /// The output is written once more so many steps later; 0 is never. Nodes in bodies do not.
    pub writes_late: u32,
    /// The node reads its inputs once more so many steps later, and writes what follows from them; 0
    /// is never. Nodes in bodies do not.
    pub reads_late: u32,
}

impl Fault {
    /// The node of the graph that is meant.
    ///
    /// # Errors
    /// [`RuntimeError::NoSuchOutput`].
    pub(crate) fn find(&self, graph: &Graph) -> Result<NodeId, RuntimeError> {
        let labelled = |&n: &NodeId| graph.node_label(n) == self.node;
        let named = |&n: &NodeId| graph.nodes[n].name == self.node;
        let node = graph.nodes.keys().find(labelled);
        let node = node.or_else(|| graph.nodes.keys().find(named));
        let node = node.filter(|&n| graph.nodes[n].output(self.output).is_some());
        node.ok_or_else(|| RuntimeError::NoSuchOutput {
            node: self.node.clone(),
            output: self.output,
        })
    }
}
