//! Branches, loops and scans: what is known inside and behind subgraphs.
//!
//! A branch gives what all its bodies agree on. The states of a loop are a fixpoint: a dimension
//! that one pass changes is unknown inside and behind the loop. The number of passes is known
//! when the trip count is and nothing can end the loop before.

use rten_shape_inference::{SymExpr, SymTensor};
use rustc_hash::FxHashSet;

use super::ShapeWarning;
use super::context::resolve_axis;
use super::fact::{self, Element, Fact};
use super::walk::Walk;
use crate::control::{ScanLayout, body_taken};
use crate::dim_expr;
use crate::effects::OpClass;
use crate::{DType, NodeId, SubgraphId};

/// Deepest nesting of subgraphs that is followed.
const MAX_DEPTH: u32 = 64;

/// Most passes over a loop's body before its states are given up.
const MAX_PASSES: usize = 4;

impl Walk<'_> {
    /// Infers the outputs of a node with subgraphs.
    pub(super) fn owner(&mut self, node: NodeId, class: OpClass, depth: u32) {
        if depth >= MAX_DEPTH {
            let subgraph = &self.graph.subgraphs[self.graph.nodes[node].subgraph];
            let subgraph = subgraph.name.clone();
            self.warn(ShapeWarning::TooDeep { subgraph });
            return self.fall_back(node);
        }
        match class {
            OpClass::Branch => self.branch(node, depth),
            OpClass::Call => self.call(node, depth),
            OpClass::Loop => self.repeat(node, depth),
            OpClass::Scan => self.scan(node, depth),
            _ => self.opaque(node, depth),
        }
    }

    /// Where the condition is known for certain, the other body never runs: what is wrong in it
    /// concerns nobody, and its results say nothing of the node's outputs.
    fn branch(&mut self, node: NodeId, depth: u32) {
        let owner = &self.graph.nodes[node];
        let taken = self.condition(node).and_then(|c| body_taken(owner, c));
        let mut joined: Option<Facts> = None;
        for (k, body) in owner.bodies.iter().enumerate() {
            if taken.is_some_and(|taken| taken != k) {
                self.in_silence(|walk| walk.subgraph(body.graph, &[], depth + 1));
                continue;
            }
            let results = self.subgraph(body.graph, &[], depth + 1);
            joined = Some(match joined {
                None => results,
                Some(before) => before
                    .into_iter()
                    .zip(results)
                    .map(|(a, b)| Some(fact::join(&a?, &b?, &mut self.symbols)))
                    .collect(),
            });
        }
        self.set_outputs(node, joined.unwrap_or_default());
    }

    /// The truth value in a node's first input, if it follows from the model's inputs.
    fn condition(&self, node: NodeId) -> Option<bool> {
        let fact = self.input(node, 0).filter(|f| f.certain)?;
        let [value] = fact.tensor.values()? else {
            return None;
        };
        Some(dim_expr::constant(value)? != 0)
    }

    fn call(&mut self, node: NodeId, depth: u32) {
        let owner = &self.graph.nodes[node];
        let actuals: Facts = (0..owner.inputs.len())
            .map(|i| self.input(node, i))
            .collect();
        if let Some(body) = owner.bodies.first() {
            let results = self.subgraph(body.graph, &actuals, depth + 1);
            self.set_outputs(node, results);
        }
    }

    /// Bodies that run in a way of their own: their inputs are what the file declares.
    fn opaque(&mut self, node: NodeId, depth: u32) {
        for body in &self.graph.nodes[node].bodies {
            self.subgraph(body.graph, &[], depth + 1);
        }
        self.leaf(node, OpClass::Opaque);
    }

    /// ONNX `Loop`: trip count, condition, states; the body takes counter, condition, states.
    fn repeat(&mut self, node: NodeId, depth: u32) {
        let owner = &self.graph.nodes[node];
        let Some(body) = owner.bodies.first().map(|b| b.graph) else {
            return self.fall_back(node);
        };
        let scalar = |dtype| Fact::of(dtype, SymTensor::from_shape(Vec::new()));
        // Whenever the body runs, the condition was true.
        let condition = Fact::of(DType::Bool, SymTensor::from_scalar(SymExpr::Value(1)));
        let fixed = [scalar(DType::I64), condition];
        let n_states = owner.inputs.len().saturating_sub(2);
        let starts: Facts = (0..n_states).map(|i| self.input(node, i + 2)).collect();
        let mut passes = Passes {
            depth,
            formals: &|states: &[Option<Fact>]| {
                fixed
                    .iter()
                    .cloned()
                    .map(Some)
                    .chain(states.iter().cloned())
                    .collect()
            },
            first_result: 1,
        };
        let (states, results) = self.fixpoint(&mut passes, body, starts);

        let always = |fact: Option<&Fact>| {
            let value = fact.and_then(|f| f.tensor.values()?.first());
            value.and_then(dim_expr::constant).is_some_and(|n| n != 0)
        };
        let given = self.input(node, 1);
        // A body may end a loop that has no condition to begin with, as ONNX Runtime has it.
        let endless = (given.is_none() || always(given.as_ref()))
            && always(results.first().and_then(Option::as_ref));
        let trips = self
            .input(node, 0)
            .and_then(|f| f.tensor.values()?.first().cloned())
            .filter(|n| endless && n.is_positive());
        let trips = trips.unwrap_or_else(|| self.symbols.gen_positive());

        let mut outputs = states;
        for result in results.into_iter().skip(1 + n_states) {
            outputs.push(result.map(|f| stacked(&f, 0, &trips)));
        }
        self.set_outputs(node, outputs);
    }

    /// ONNX `Scan`: states, then inputs that are cut into slices. In version 8 all of them are
    /// cut along a batch axis before.
    fn scan(&mut self, node: NodeId, depth: u32) {
        let owner = &self.graph.nodes[node];
        let body = owner.bodies.first().map(|b| b.graph);
        let (Some(body), Some(layout)) = (body, ScanLayout::of(self.graph, owner)) else {
            return self.opaque(node, depth);
        };
        // Version 8 knows no attributes for axes: it cuts along the one behind the batch axis.
        let axes = |name: &str, k: usize| {
            let axes = owner.attrs.ints(name).filter(|_| !layout.batched);
            axes.and_then(|a| a.get(k).copied()).unwrap_or(0)
        };
        let mut batch = None;
        let mut length = None;
        let mut item = |fact: Fact| {
            if layout.batched {
                cut(&fact, 0, &mut batch)
            } else {
                Some(fact)
            }
        };
        let slices: Facts = (0..layout.slices)
            .map(|k| {
                let fact = self.input(node, layout.first + layout.states + k)?;
                let fact = item(fact.shape_only())?;
                cut(&fact, axes("scan_input_axes", k), &mut length)
            })
            .collect();
        let starts: Facts = (0..layout.states)
            .map(|i| item(self.input(node, layout.first + i)?))
            .collect();
        let mut passes = Passes {
            depth,
            formals: &|states: &[Option<Fact>]| states.iter().chain(&slices).cloned().collect(),
            first_result: 0,
        };
        let (states, results) = self.fixpoint(&mut passes, body, starts);
        let length = length.unwrap_or_else(|| self.symbols.gen_positive());
        let mut outputs = states;
        for (k, result) in results.into_iter().skip(layout.states).enumerate() {
            let axis = axes("scan_output_axes", k);
            outputs.push(result.map(|f| stacked(&f, axis, &length)));
        }
        if layout.batched {
            let batch = batch.unwrap_or_else(|| self.symbols.gen_positive());
            for output in outputs.iter_mut().flatten() {
                *output = stacked(output, 0, &batch);
            }
        }
        self.set_outputs(node, outputs);
    }

    /// Runs a loop's body until its states no longer change. Returns what holds of each state at
    /// every time, and the results of the last pass.
    fn fixpoint(
        &mut self,
        passes: &mut Passes<'_>,
        body: SubgraphId,
        starts: Facts,
    ) -> (Facts, Facts) {
        let mut states = starts;
        let mut widened = FxHashSet::default();
        // Loops in loops multiply; past this many visits a loop gets one pass only.
        let budget = 8 * self.graph.nodes.len() + 1000;
        let mut pass = 0;
        loop {
            pass += 1;
            let last = pass >= MAX_PASSES || self.visits > budget;
            if last {
                for state in states.iter_mut().flatten() {
                    let dtype = state.dtype;
                    *state = Fact::of(dtype, fact::unknown_tensor());
                }
            }
            let formals = (passes.formals)(&states);
            let results = self.subgraph(body, &formals, passes.depth + 1);
            let mut stable = true;
            for (i, state) in states.iter_mut().enumerate() {
                let result = results.get(passes.first_result + i).cloned().flatten();
                let (Some(before), Some(after)) = (state.as_ref(), result) else {
                    continue;
                };
                let (next, same) = self.widen(before, &after, &mut widened);
                stable &= same;
                *state = Some(next);
            }
            if stable || last {
                // Behind the loop, a size that changes inside is another unknown number.
                for state in states.iter_mut().flatten() {
                    self.rename(state, &widened);
                }
                return (states, results);
            }
        }
    }

    /// What holds of a state before and after a pass, and whether that is what held before.
    /// `widened` are the symbols that already mean "whatever it is in this pass".
    fn widen(
        &mut self,
        before: &Fact,
        after: &Fact,
        widened: &mut FxHashSet<SymExpr>,
    ) -> (Fact, bool) {
        if before.same(after) {
            return (before.clone(), true);
        }
        let mut same = before.tensor.values().is_none() && before.grid.is_none();
        let mut next = Fact {
            certain: before.certain && after.certain,
            ..Fact::unknown()
        };
        if before.dtype == after.dtype {
            next.dtype = before.dtype;
        } else {
            same &= before.dtype == DType::Unknown;
        }
        next.element = if before.element.same(&after.element) {
            before.element.clone()
        } else {
            same &= matches!(before.element, Element::Unknown);
            before.element.join(&after.element, &mut self.symbols)
        };
        match (before.dims(), after.dims()) {
            (Some(mut dims), Some(new)) if dims.len() == new.len() => {
                for (dim, new) in dims.iter_mut().zip(new) {
                    if *dim != new && !widened.contains(dim) {
                        *dim = self.symbols.gen_positive();
                        widened.insert(dim.clone());
                        same = false;
                    }
                }
                next.tensor = SymTensor::from_shape(dims);
            }
            (None, _) => {}
            _ => same = false,
        }
        (next, same)
    }

    fn rename(&mut self, state: &mut Fact, widened: &FxHashSet<SymExpr>) {
        let Some(mut dims) = state.dims() else { return };
        if state.tensor.values().is_some() || !dims.iter().any(|d| widened.contains(d)) {
            return;
        }
        for dim in dims.iter_mut().filter(|d| widened.contains(d)) {
            *dim = self.symbols.gen_positive();
        }
        state.tensor = SymTensor::from_shape(dims);
    }

    fn set_outputs(&mut self, node: NodeId, facts: Facts) {
        let mut facts = facts.into_iter();
        for output in &self.graph.nodes[node].outputs {
            let fact = facts.next().flatten().unwrap_or_else(Fact::unknown);
            if let Some(value) = *output {
                self.record(value, fact);
            }
        }
    }
}

/// What is known of a list of values, some of which may be left out.
type Facts = Vec<Option<Fact>>;

/// How a loop's body is fed and read.
struct Passes<'a> {
    depth: u32,
    /// The body's inputs for given states.
    formals: &'a dyn Fn(&[Option<Fact>]) -> Facts,
    /// Which of the body's results is the first state.
    first_result: usize,
}

/// What holds of each slice along an axis. The number of slices goes into `count`, unless that is
/// known better.
fn cut(whole: &Fact, axis: i64, count: &mut Option<SymExpr>) -> Option<Fact> {
    let Some(mut dims) = whole.dims() else {
        return Some(whole.shape_only());
    };
    let axis = resolve_axis(axis, dims.len()).ok()?;
    let found = dims.remove(axis);
    if dim_expr::constant(&found).is_some() || count.is_none() {
        *count = Some(found);
    }
    let tensor = SymTensor::from_shape(dims);
    Some(Fact {
        tensor,
        ..whole.shape_only()
    })
}

/// What holds of slices put side by side along a new axis.
fn stacked(slice: &Fact, axis: i64, count: &SymExpr) -> Fact {
    let tensor = match slice.dims() {
        Some(mut dims) => match resolve_axis(axis, dims.len() + 1) {
            Ok(at) => {
                dims.insert(at, count.clone());
                SymTensor::from_shape(dims)
            }
            Err(_) => fact::unknown_tensor(),
        },
        None => fact::unknown_tensor(),
    };
    Fact {
        tensor,
        ..slice.shape_only()
    }
}
