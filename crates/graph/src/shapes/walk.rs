//! The walk over the graph in execution order, and how the file's own shapes are used.

use cranelift_entity::{EntityRef, SecondaryMap};
use rten_shape_inference::{SymExpr, SymTensor, SymbolGen};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::context::{Context, Extra, Refusal, Rule};
use super::fact::{self, Element, Fact};
use super::{ShapeError, ShapeWarning, rules};
use crate::effects::{OpClass, OpTable};
use crate::{DType, Graph, NodeId, Shape, SubgraphId, ValueId, dim_expr};

/// Most warnings that are listed one by one.
const MAX_WARNINGS: usize = 100;

/// Longest reason that a warning quotes, in characters.
const MAX_REASON: usize = 200;

/// Most expressions of inputs that one rule is given; inputs beyond count as unknown.
const MAX_GIVEN: usize = 1 << 21;

/// The state of the walk.
pub(super) struct Walk<'a> {
    pub(super) graph: &'a Graph,
    pub(super) table: &'a OpTable,
    pub(super) facts: SecondaryMap<ValueId, Option<Fact>>,
    pub(super) symbols: SymbolGen,
    /// Nodes visited so far; bodies of loops are visited again while budget is left.
    pub(super) visits: usize,
    rules: FxHashMap<(Arc<str>, Arc<str>), Option<Rule>>,
    warnings: Vec<ShapeWarning>,
    left_out: usize,
    /// Whether warnings are dropped.
    silent: bool,
    /// Nodes and values that have had their warning: loops see them again.
    warned: FxHashSet<(bool, usize)>,
    without_rule: BTreeSet<String>,
    /// Contents of the graph's inputs, by name.
    given: &'a BTreeMap<String, Vec<i64>>,
}

/// Walks the whole graph.
pub(super) fn run(
    graph: &Graph,
    table: &OpTable,
    given: &BTreeMap<String, Vec<i64>>,
) -> (SecondaryMap<ValueId, Option<Fact>>, Vec<ShapeWarning>) {
    let mut walk = Walk {
        graph,
        table,
        facts: SecondaryMap::with_capacity(graph.values.len()),
        // No name of a model has a NUL.
        symbols: SymbolGen::with_prefix("\0?".into()),
        visits: 0,
        rules: FxHashMap::default(),
        warnings: Vec::new(),
        left_out: 0,
        silent: false,
        warned: FxHashSet::default(),
        without_rule: BTreeSet::new(),
        given,
    };
    walk.subgraph(graph.root, &[], 0);
    let mut warnings = walk.warnings;
    if walk.left_out > 0 {
        let count = walk.left_out;
        warnings.push(ShapeWarning::More { count });
    }
    if !walk.without_rule.is_empty() {
        let ops = walk.without_rule.into_iter().collect();
        warnings.push(ShapeWarning::NoRule { ops });
    }
    (walk.facts, warnings)
}

impl Walk<'_> {
    /// Walks one subgraph whose inputs are what `formals` say, and returns its results.
    pub(super) fn subgraph(
        &mut self,
        id: SubgraphId,
        formals: &[Option<Fact>],
        depth: u32,
    ) -> Vec<Option<Fact>> {
        let graph = self.graph;
        let subgraph = &graph.subgraphs[id];
        for (i, &input) in subgraph.inputs.iter().enumerate() {
            let Some(value) = graph.nodes[input].output(0) else {
                continue;
            };
            match formals.get(i).cloned().flatten() {
                Some(fact) => self.record(value, fact),
                None => {
                    let declared = &graph.values[value];
                    let shape = declared.shape.as_ref();
                    let mut fact = Fact {
                        element: Element::declared(declared, &mut self.symbols),
                        ..Fact::declared(declared.dtype, shape, &mut self.symbols)
                    };
                    if id == graph.root
                        && let Some(items) = self.given.get(&declared.name)
                    {
                        let items = items.iter().map(|&n| dim_expr::number(i128::from(n)));
                        fact.fill(items.collect());
                    }
                    self.facts[value] = Some(fact);
                }
            }
        }
        for &node in &subgraph.nodes {
            self.visits += 1;
            match self.table.class(graph, node) {
                OpClass::Input | OpClass::Output => {}
                class if graph.nodes[node].bodies.is_empty() => self.leaf(node, class),
                class => self.owner(node, class, depth),
            }
        }
        let results = subgraph.output.map(|o| &graph.nodes[o].inputs[..]);
        results
            .unwrap_or_default()
            .iter()
            .map(|r| self.facts[(*r)?].clone())
            .collect()
    }

    /// What is known of input `i` of a node; `None` when it is left out.
    pub(super) fn input(&self, node: NodeId, i: usize) -> Option<Fact> {
        let value = self.graph.nodes[node].input(i)?;
        Some(self.facts[value].clone().unwrap_or_else(Fact::unknown))
    }

    /// Infers the outputs of a node from its inputs alone.
    pub(super) fn leaf(&mut self, id: NodeId, class: OpClass) {
        let graph = self.graph;
        let node = &graph.nodes[id];
        let Some(rule) = self.rule(id) else {
            let outputs = node.outputs.iter().flatten();
            let is_unknown = |v: &ValueId| graph.values[*v].shape.is_none();
            if class == OpClass::Compute && outputs.into_iter().any(is_unknown) {
                self.without_rule.insert(op_label(graph, id));
            }
            self.fall_back(id);
            return;
        };
        let mut certain = true;
        let mut tensors = Vec::with_capacity(node.inputs.len());
        let mut types = Vec::with_capacity(node.inputs.len());
        let mut extras = Vec::new();
        let mut given = 0;
        for (i, input) in node.inputs.iter().enumerate() {
            let Some(value) = *input else {
                tensors.push(None);
                types.push(DType::Unknown);
                continue;
            };
            match &self.facts[value] {
                Some(fact) if given + fact.len() <= MAX_GIVEN => {
                    given += fact.len();
                    certain &= fact.certain;
                    tensors.push(Some(fact.tensor.clone()));
                    types.push(fact.dtype);
                    if let Some(extra) = Extra::of(fact) {
                        extras.resize(i, Extra::nothing());
                        extras.push(extra);
                    }
                }
                _ => {
                    tensors.push(Some(fact::unknown_tensor()));
                    types.push(DType::Unknown);
                }
            }
        }
        let mut context = Context {
            node,
            opset: graph.opset(node).unwrap_or(i64::MAX),
            tensors,
            types,
            extras,
            outputs: vec![Fact::unknown(); node.outputs.len()],
            symbols: &mut self.symbols,
        };
        let answer = rule(&mut context);
        let outputs = context.outputs;
        if let Err(Refusal::Impossible(reason)) = answer {
            certain = false;
            if self.warned.insert((true, id.index())) {
                let inputs = self.describe_inputs(id);
                self.warn(ShapeWarning::Impossible {
                    node: graph.node_label(id),
                    op: op_label(graph, id),
                    reason: reason.chars().take(MAX_REASON).collect(),
                    inputs,
                });
            }
        }
        for (i, mut fact) in outputs.into_iter().enumerate() {
            fact.certain = certain;
            if let Some(value) = node.output(i) {
                self.record(value, fact);
            }
        }
    }

    /// Takes what the file declares for the outputs of a node.
    pub(super) fn fall_back(&mut self, node: NodeId) {
        for value in self.graph.nodes[node].outputs.iter().flatten() {
            let fact = Fact {
                certain: false,
                ..Fact::unknown()
            };
            self.record(*value, fact);
        }
    }

    /// The rule of a node's operator.
    fn rule(&mut self, node: NodeId) -> Option<Rule> {
        let node = &self.graph.nodes[node];
        // The names of operators are few and shared, so the map stays small.
        let key = (node.domain.clone(), node.op.clone());
        *self
            .rules
            .entry(key)
            .or_insert_with(|| rules::find(&node.domain, &node.op))
    }

    /// Stores what is known of a value, together with what the file declares of it.
    pub(super) fn record(&mut self, value: ValueId, fact: Fact) {
        let fact = self.without_negative_sizes(value, fact);
        let fact = self.with_declared(value, fact);
        self.facts[value] = Some(fact);
    }

    fn without_negative_sizes(&mut self, value: ValueId, fact: Fact) -> Fact {
        let is_negative = |e: &SymExpr| dim_expr::constant(e).is_some_and(|n| n < 0);
        let has_negative = fact
            .tensor
            .shape()
            .is_some_and(|mut d| d.any(|d| is_negative(&d)));
        if !has_negative {
            return fact;
        }
        let mut dims = fact.dims().unwrap_or_default();
        if self.warned.insert((false, value.index())) {
            self.warn(ShapeWarning::Negative {
                value: self.graph.value_label(value),
                shape: describe(&fact),
            });
        }
        for dim in dims.iter_mut().filter(|d| is_negative(d)) {
            *dim = self.symbols.gen_positive();
        }
        Fact {
            tensor: SymTensor::from_shape(dims),
            grid: None,
            certain: false,
            ..fact
        }
    }

    /// Joins what was inferred with what the file declares. The inferred side wins where it is
    /// certain; where it does not know, the declared side stands.
    fn with_declared(&mut self, value: ValueId, mut fact: Fact) -> Fact {
        let declared = &self.graph.values[value];
        let mut contradicts = false;
        if fact.dtype == DType::Unknown {
            fact.dtype = declared.dtype;
        } else if declared.dtype != DType::Unknown && declared.dtype != fact.dtype {
            contradicts = true;
        }
        if let Element::Unknown = fact.element {
            fact.element = Element::declared(declared, &mut self.symbols);
            fact.certain &= matches!(fact.element, Element::Unknown);
        }
        let mut merged = None;
        if let Some(shape) = &declared.shape {
            match fact.dims() {
                None => {
                    let known = Fact::declared(fact.dtype, Some(shape), &mut self.symbols);
                    fact.tensor = known.tensor;
                    fact.certain = false;
                }
                Some(dims) if dims.len() == shape.0.len() => {
                    let mut dims = dims;
                    let mut changed = false;
                    for (dim, declared) in dims.iter_mut().zip(&shape.0) {
                        let Some(declared) = fact::to_expr(declared) else {
                            continue;
                        };
                        let (have, said) = (dim_expr::constant(dim), dim_expr::constant(&declared));
                        let take = match (have, said) {
                            (Some(have), Some(said)) => {
                                contradicts |= have != said;
                                have != said && !fact.certain
                            }
                            (Some(_), None) => false,
                            // A formula that follows from the inputs stays free, although the
                            // exporter once saw one number there.
                            (None, Some(_)) => !(fact.certain && dim_expr::is_named(dim)),
                            (None, None) => !dim_expr::is_named(dim),
                        };
                        if take {
                            *dim = declared;
                            changed = true;
                        }
                    }
                    if changed {
                        merged = Some(SymTensor::from_shape(dims));
                    }
                }
                Some(_) => {
                    contradicts = true;
                    if !fact.certain {
                        let known = Fact::declared(fact.dtype, Some(shape), &mut self.symbols);
                        merged = Some(known.tensor);
                    }
                }
            }
        }
        if contradicts && self.warned.insert((false, value.index())) {
            let shape = declared.shape.as_ref();
            self.warn(ShapeWarning::Contradiction {
                value: self.graph.value_label(value),
                declared: match shape {
                    Some(shape) => format!("{}{shape}", declared.dtype),
                    None => declared.dtype.to_string(),
                },
                inferred: describe(&fact),
                kept_inferred: fact.certain,
            });
        }
        if let Some(tensor) = merged {
            fact.tensor = tensor;
            fact.grid = None;
        }
        if contradicts && !fact.certain && declared.dtype != DType::Unknown {
            fact.dtype = declared.dtype;
        }
        fact
    }

    /// Types and shapes of a node's inputs, for messages.
    fn describe_inputs(&self, node: NodeId) -> String {
        const SHOWN: usize = 8;
        let inputs = &self.graph.nodes[node].inputs;
        let shown = inputs.iter().take(SHOWN).map(|input| match input {
            None => "-".to_owned(),
            Some(value) => {
                let fact = self.facts[*value].as_ref();
                fact.map_or_else(|| "?".to_owned(), describe)
            }
        });
        let mut text = shown.collect::<Vec<_>>().join(", ");
        if inputs.len() > SHOWN {
            text.push_str(", …");
        }
        text
    }

    /// Does something whose warnings concern nobody.
    pub(super) fn in_silence<T>(&mut self, run: impl FnOnce(&mut Self) -> T) -> T {
        let before = std::mem::replace(&mut self.silent, true);
        let result = run(self);
        self.silent = before;
        result
    }

    pub(super) fn warn(&mut self, warning: ShapeWarning) {
        if self.silent {
            return;
        }
        if self.warnings.len() < MAX_WARNINGS {
            self.warnings.push(warning);
        } else {
            self.left_out += 1;
        }
    }
}

/// Type and shape as text, such as `float32[2, n, ?]`.
fn describe(fact: &Fact) -> String {
    match fact.dims() {
        None => fact.dtype.to_string(),
        Some(dims) => {
            let dim = |e: &SymExpr| match dim_expr::constant(e) {
                Some(n) => n.to_string(),
                None => fact::to_dim(e).to_string(),
            };
            let dims: Vec<String> = dims.iter().map(dim).collect();
            format!("{}[{}]", fact.dtype, dims.join(", "))
        }
    }
}

fn op_label(graph: &Graph, node: NodeId) -> String {
    let node = &graph.nodes[node];
    if node.domain.is_empty() {
        node.op.to_string()
    } else {
        format!("{}.{}", node.domain, node.op)
    }
}

/// Writes what was found into the graph; returns the contents that are known.
pub(super) fn write_back(
    graph: &mut Graph,
    mut facts: SecondaryMap<ValueId, Option<Fact>>,
) -> FxHashMap<ValueId, Box<[i64]>> {
    let mut contents = FxHashMap::default();
    for (id, value) in graph.values.iter_mut() {
        let Some(fact) = facts[id].take() else {
            continue;
        };
        if let Some(elements) = fact.contents() {
            contents.insert(id, elements);
        }
        value.dtype = fact.dtype;
        // A rank that is too high to be followed stays as declared.
        if let Some(dims) = fact.tensor.shape() {
            value.shape = Some(dims.map(|d| fact::to_dim(&d)).collect::<Shape>());
        }
    }
    contents
}

/// Refuses a graph with a tensor whose size does not fit in 64 bits.
pub(super) fn check_sizes(graph: &Graph) -> Result<(), ShapeError> {
    for (id, value) in &graph.values {
        let Some(shape) = &value.shape else { continue };
        let is_static = value.dtype.bits().is_some() && shape.known().is_some();
        if is_static && shape.bytes(value.dtype).is_none() {
            return Err(ShapeError::TooLarge {
                value: graph.value_label(id),
                shape: shape.to_string(),
                dtype: value.dtype,
            });
        }
    }
    Ok(())
}
