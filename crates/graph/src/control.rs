//! How values pass between a node and the subgraphs that it runs.
//!
//! One list of transfers describes every kind of control flow, so that planner, checker and
//! executor need no cases of their own. A loop keeps each state in its *owner's output*: the
//! output takes the start value when the loop begins, each pass hands it to the body's input, and
//! the body's result goes back into it. Since body input, body result and owner's output are
//! three values, a body that swaps its states is right without a further copy; a planner that
//! lets them share memory must show that it may.
//!
//! Transfers at one point happen in the order of the list, one after the other.

use crate::effects::OpClass;
use crate::{Graph, Node, NodeId, ValueId};

/// When a transfer happens, seen from the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Point {
    /// Before any body runs; once.
    Begin,
    /// Before body `k` runs; in a loop before each pass.
    Enter(u32),
    /// After body `k` ran: at the step of its output node; in a loop after each pass.
    Leave(u32),
}

/// How the bytes pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pass {
    /// Another name for the same bytes: nothing is written, as long as the source lives.
    View,
    /// All bytes are copied, unless source and target are the same memory.
    Move,
    /// One slice of the source is copied to the target.
    Slice,
    /// The source is added to the target as one more slice.
    Append,
    /// The source is written over one slice of the target; the other slices stay.
    Put,
    /// The owner makes the bytes itself (loop counter, condition).
    Make,
    /// The owner reads the source itself (condition).
    Take,
}

/// One value handed over between a node and one of its bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Transfer {
    /// When.
    pub at: Point,
    /// How.
    pub pass: Pass,
    /// What is read; `None` for [`Pass::Make`].
    pub from: Option<ValueId>,
    /// What is written; `None` for [`Pass::Take`].
    pub to: Option<ValueId>,
}

impl Transfer {
    /// Whether a result of a body becomes an output under another name, as calls give theirs back.
    #[must_use]
    pub const fn gives_back_a_name(&self) -> bool {
        matches!((self.pass, self.at), (Pass::View, Point::Leave(_)))
    }
}

/// The transfers of a node, in the order in which they happen at each point. Empty for a node
/// without bodies.
///
/// Missing inputs, outputs and body slots are passed over: a verified graph has them where they
/// matter.
#[must_use]
pub fn transfers(graph: &Graph, node: NodeId, class: OpClass) -> Vec<Transfer> {
    let mut out = Vec::new();
    let owner = &graph.nodes[node];
    for (k, body) in (0u32..).zip(&owner.bodies) {
        let subgraph = &graph.subgraphs[body.graph];
        let formal = |i: usize| {
            let data = subgraph.inputs.get(i)?;
            graph.nodes[*data].output(0)
        };
        let n_formal = subgraph.inputs.len();
        let results: Vec<Option<ValueId>> = subgraph
            .output
            .map(|o| graph.nodes[o].inputs.to_vec())
            .unwrap_or_default();
        let mut add = |at, pass, from: Option<ValueId>, to: Option<ValueId>| {
            let from_missing = from.is_none() && pass != Pass::Make;
            let to_missing = to.is_none() && pass != Pass::Take;
            if !from_missing && !to_missing {
                out.push(Transfer { at, pass, from, to });
            }
        };
        let (enter, leave) = (Point::Enter(k), Point::Leave(k));
        match class {
            OpClass::Branch | OpClass::Call => {
                for i in 0..n_formal {
                    let from = owner.input(input_index(graph, subgraph.inputs[i], i));
                    add(enter, Pass::View, from, formal(i));
                }
                for (i, &r) in results.iter().enumerate() {
                    let to = owner.output(result_index(graph, subgraph.output, i));
                    // The one body of a call has no other to share its results with.
                    let pass = match class {
                        OpClass::Call => Pass::View,
                        _ => Pass::Move,
                    };
                    add(leave, pass, r, to);
                }
            }
            OpClass::Loop => {
                let states = owner.inputs.len().saturating_sub(2);
                for i in 0..states {
                    add(
                        Point::Begin,
                        Pass::Move,
                        owner.input(i + 2),
                        owner.output(i),
                    );
                }
                add(enter, Pass::Make, None, formal(0));
                add(enter, Pass::Make, None, formal(1));
                for i in 0..states {
                    add(enter, Pass::Move, owner.output(i), formal(i + 2));
                }
                add(leave, Pass::Take, results.first().copied().flatten(), None);
                for (i, &r) in results.iter().enumerate().skip(1) {
                    let pass = if i <= states {
                        Pass::Move
                    } else {
                        Pass::Append
                    };
                    add(leave, pass, r, owner.output(i - 1));
                }
            }
            OpClass::Scan => {
                let Some(scan) = ScanLayout::of(graph, owner) else {
                    continue;
                };
                // With a batch axis the body works on the state of one item at a time.
                let (hand_in, hand_back) = if scan.batched {
                    add(enter, Pass::Take, owner.input(0), None);
                    (Pass::Slice, Pass::Put)
                } else {
                    (Pass::Move, Pass::Move)
                };
                for i in 0..scan.states {
                    let start = owner.input(scan.first + i);
                    add(Point::Begin, Pass::Move, start, owner.output(i));
                }
                for i in 0..n_formal {
                    if i < scan.states {
                        add(enter, hand_in, owner.output(i), formal(i));
                    } else {
                        add(enter, Pass::Slice, owner.input(scan.first + i), formal(i));
                    }
                }
                for (i, &r) in results.iter().enumerate() {
                    let pass = if i < scan.states {
                        hand_back
                    } else {
                        Pass::Append
                    };
                    add(leave, pass, r, owner.output(i));
                }
            }
            OpClass::While => {
                let is_cond = body.is_condition();
                if k == 0 {
                    for i in 0..owner.inputs.len() {
                        add(Point::Begin, Pass::Move, owner.input(i), owner.output(i));
                    }
                }
                for i in 0..n_formal {
                    let from = owner.output(input_index(graph, subgraph.inputs[i], i));
                    let pass = if is_cond { Pass::View } else { Pass::Move };
                    add(enter, pass, from, formal(i));
                }
                for (i, &r) in results.iter().enumerate() {
                    if is_cond {
                        add(leave, Pass::Take, r, None);
                    } else {
                        let to = owner.output(result_index(graph, subgraph.output, i));
                        add(leave, Pass::Move, r, to);
                    }
                }
            }
            _ => {
                for i in 0..n_formal {
                    add(enter, Pass::Make, None, formal(i));
                }
                for &r in &results {
                    add(leave, Pass::Take, r, None);
                }
            }
        }
    }
    out
}

/// How many of a node's first outputs hold states that pass from one run of its body to the next.
///
/// A graph needs these outputs even where nobody reads them, since the states live in them.
#[must_use]
pub fn carried_states(graph: &Graph, node: &Node, class: OpClass) -> usize {
    match class {
        OpClass::Loop => node.inputs.len().saturating_sub(2),
        OpClass::Scan => ScanLayout::of(graph, node).map_or(0, |scan| scan.states),
        OpClass::While => node.inputs.len(),
        _ => 0,
    }
}

/// Which body of a node `If` runs, by its condition; `None` for nodes that choose in another way.
pub(crate) fn body_taken(owner: &Node, condition: bool) -> Option<usize> {
    let role = if condition { "then" } else { "else" };
    owner.bodies.iter().position(|b| &*b.role == role)
}

/// What the inputs of a `Scan` are.
///
/// Since version 9 they are the states, then what is cut into slices. In version 8 the lengths of
/// the sequences stand before them (or nothing in their place), and everything has a batch axis:
/// the body runs over the sequence of one item after the other. Source: the ONNX operator
/// specification, `Scan-8` and `Scan-9`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScanLayout {
    /// Position of the first state.
    pub(crate) first: usize,
    /// Number of states.
    pub(crate) states: usize,
    /// Number of inputs that are cut into slices.
    pub(crate) slices: usize,
    /// Whether the first axis of states and slices counts the items of a batch.
    pub(crate) batched: bool,
}

impl ScanLayout {
    /// The layout of a node; `None` when attribute `num_scan_inputs` does not fit the inputs.
    pub(crate) fn of(graph: &Graph, node: &Node) -> Option<Self> {
        let batched = graph.opset(node).is_some_and(|version| version < 9);
        let first = usize::from(batched);
        let slices = usize::try_from(node.attrs.int("num_scan_inputs")?).ok()?;
        let states = node.inputs.len().checked_sub(first)?.checked_sub(slices)?;
        (slices > 0).then_some(ScanLayout {
            first,
            states,
            slices,
            batched,
        })
    }
}

/// Which input of the owner a body's input node stands for: its `parent_index`, or else
/// `position`.
#[must_use]
pub fn input_index(graph: &Graph, data: NodeId, position: usize) -> usize {
    index_attr(graph.nodes[data].attrs.int("parent_index"), position)
}

/// Which output of the owner result `position` of the node `output` becomes: the `parent_index` of
/// that input, or else `position`.
#[must_use]
pub fn result_index(graph: &Graph, output: Option<NodeId>, position: usize) -> usize {
    let attr = output
        .and_then(|o| graph.nodes[o].input_attrs.get(position))
        .and_then(|a| a.int("parent_index"));
    index_attr(attr, position)
}

fn index_attr(attr: Option<i64>, position: usize) -> usize {
    attr.and_then(|i| usize::try_from(i).ok())
        .unwrap_or(position)
}
