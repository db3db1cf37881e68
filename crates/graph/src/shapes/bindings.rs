//! Values of free dimensions: reading them, matching them with the model, and what is left free.

use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::dim_expr::{self, DimExpr};
use crate::{Dim, Graph, ValueId};
use rten_shape_inference::SymExpr;

/// Values for free dimensions, as `--dim` gives them.
///
/// A key is the name of a dimension, a formula that stands as a dimension in the model, or
/// `INPUT@AXIS`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bindings {
    given: BTreeMap<String, u64>,
}

/// What is wrong with the value of a dimension.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BindingError {
    /// The text is no `NAME=N`.
    #[error("dimension {0:?}: expected NAME=N, NAME=LO..HI or INPUT@AXIS=N")]
    Syntax(String),
    /// What stands behind the `=` is no size.
    #[error("dimension {name:?}: {value:?} is not a size; write a whole number or LO..HI")]
    Value {
        /// What stands before the `=`.
        name: String,
        /// What stands behind it.
        value: String,
    },
    /// A range whose end is below its start.
    #[error("dimension {name:?}: the range {lo}..{hi} is empty")]
    EmptyRange {
        /// The dimension.
        name: String,
        /// Start.
        lo: u64,
        /// End.
        hi: u64,
    },
    /// The same dimension with two values.
    #[error("dimension {name:?} is given twice, as {first} and as {second}")]
    Twice {
        /// The dimension.
        name: String,
        /// First value.
        first: u64,
        /// Second value.
        second: u64,
    },
    /// The model has no such dimension.
    #[error("the model has no dimension {name:?}; {known}")]
    UnknownName {
        /// The name given.
        name: String,
        /// What the model has.
        known: String,
    },
    /// An input has no such axis.
    #[error("input {input:?} has no axis {axis}: its shape is {shape}")]
    NoSuchAxis {
        /// The input.
        input: String,
        /// The axis given.
        axis: u64,
        /// The input's shape.
        shape: String,
    },
    /// The model fixes the dimension at another value.
    #[error("axis {axis} of input {input:?} is {size} in the model, not {given}")]
    Fixed {
        /// The input.
        input: String,
        /// The axis.
        axis: u64,
        /// The model's size.
        size: u64,
        /// The size given.
        given: u64,
    },
    /// A formula's own value is not the one that its names give.
    #[error("dimension {formula:?} is given as {given}, but its names make it {computed}")]
    Disagrees {
        /// The formula.
        formula: String,
        /// Its own value.
        given: u64,
        /// The value that follows.
        computed: u64,
    },
    /// A formula that is no size for the values of its names.
    #[error(
        "dimension {formula:?} of input {input:?} is no size for the values given: it is \
         negative, too large, or divides by 0"
    )]
    NoSize {
        /// The formula.
        formula: String,
        /// The input.
        input: String,
    },
}

impl Bindings {
    /// Reads a list of `NAME=N`, `NAME=LO..HI` (which takes `HI`), `INPUT@AXIS=N`.
    ///
    /// # Errors
    ///
    /// At the first text that is none of these or contradicts an earlier one.
    pub fn parse<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> Result<Self, BindingError> {
        let mut bindings = Bindings::default();
        for text in texts {
            bindings.add(text.as_ref())?;
        }
        Ok(bindings)
    }

    /// Reads one more.
    ///
    /// # Errors
    ///
    /// As [`Bindings::parse`].
    pub fn add(&mut self, text: &str) -> Result<(), BindingError> {
        let (name, value) = text
            .rsplit_once('=')
            .map(|(name, value)| (name.trim(), value.trim()))
            .filter(|(name, _)| !name.is_empty())
            .ok_or_else(|| BindingError::Syntax(text.to_owned()))?;
        let size = |text: &str| {
            text.trim().parse().map_err(|_| BindingError::Value {
                name: name.to_owned(),
                value: value.to_owned(),
            })
        };
        let n = match value.split_once("..") {
            None => size(value)?,
            Some((lo, hi)) => {
                let (lo, hi) = (size(lo)?, size(hi)?);
                if lo > hi {
                    let name = name.to_owned();
                    return Err(BindingError::EmptyRange { name, lo, hi });
                }
                hi
            }
        };
        self.set(name, n)
    }

    /// Gives a dimension a value.
    ///
    /// # Errors
    ///
    /// When it has another one already.
    pub fn set(&mut self, name: impl Into<String>, value: u64) -> Result<(), BindingError> {
        let name = name.into();
        match self.given.get(&name) {
            Some(&first) if first != value => Err(BindingError::Twice {
                name,
                first,
                second: value,
            }),
            _ => {
                self.given.insert(name, value);
                Ok(())
            }
        }
    }

    /// Whether no dimension has a value.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.given.is_empty()
    }
}

/// A dimension of a graph input that has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FreeDim {
    /// The first input that has it.
    pub input: String,
    /// The axis there, from 0.
    pub axis: usize,
    /// Its name; `None` for one without.
    pub name: Option<String>,
}

impl FreeDim {
    /// The option of the command line that gives it a value.
    #[must_use]
    pub fn option(&self, value: &str) -> String {
        let word = match &self.name {
            Some(name) => format!("{name}={value}"),
            None => format!("{}@{}={value}", self.input, self.axis),
        };
        format!("--dim {}", quoted(&word))
    }
}

impl fmt::Display for FreeDim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let option = self.option("N");
        match &self.name {
            Some(name) => write!(f, "{name} ({option})"),
            None => write!(f, "axis {} of input {} ({option})", self.axis, self.input),
        }
    }
}

/// A word of a command line, in quotes where a shell would take it apart.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "_@=.,:/+-".contains(c);
    if word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// Bindings matched with the dimensions that a model has.
#[derive(Debug, Default)]
pub(super) struct Resolved {
    names: FxHashMap<String, u64>,
    /// Formulas that have a value of their own, by their printed form.
    formulas: FxHashMap<String, u64>,
    axes: FxHashMap<(ValueId, usize), u64>,
}

impl Resolved {
    /// Matches bindings with a model.
    pub(super) fn new(graph: &Graph, bindings: &Bindings) -> Result<Self, BindingError> {
        let mut resolved = Resolved::default();
        if bindings.is_empty() {
            return Ok(resolved);
        }
        let declared = Declared::of(graph);
        for (key, &value) in &bindings.given {
            if let Some((input, axis)) = declared.axis(graph, key)? {
                resolved.axes.insert((input, axis), value);
                continue;
            }
            let key_dim = DimExpr::parse(key);
            let name = key_dim.as_ref().and_then(DimExpr::as_name);
            let printed = key_dim.as_ref().map(ToString::to_string);
            if let Some(name) = name.filter(|n| declared.names.contains(*n)) {
                resolved.names.insert(name.to_owned(), value);
            } else if let Some(p) = printed.filter(|p| declared.formulas.contains_key(p)) {
                resolved.formulas.insert(p, value);
            } else {
                return Err(BindingError::UnknownName {
                    name: key.clone(),
                    known: declared.summary(),
                });
            }
        }
        resolved.check(graph, &declared)?;
        Ok(resolved)
    }

    /// Finds contradictions between the bindings, and with the model.
    fn check(&self, graph: &Graph, declared: &Declared) -> Result<(), BindingError> {
        for (printed, formula) in &declared.formulas {
            let computed = formula.eval(|name| self.names.get(name).copied());
            if let (Some(&given), Some(computed)) = (self.formulas.get(printed), computed)
                && given != computed
            {
                return Err(BindingError::Disagrees {
                    formula: printed.clone(),
                    given,
                    computed,
                });
            }
        }
        for input in root_inputs(graph) {
            let value = &graph.values[input];
            for (axis, dim) in value.shape.iter().flat_map(|s| &s.0).enumerate() {
                let given = self.axes.get(&(input, axis));
                if let (Dim::Known(size), Some(&given)) = (dim, given)
                    && *size != given
                {
                    return Err(BindingError::Fixed {
                        input: value.name.clone(),
                        axis: axis as u64,
                        size: *size,
                        given,
                    });
                }
                if given.is_none()
                    && matches!(dim, Dim::Formula(_))
                    && self.dim(dim) == Dim::Unknown
                {
                    return Err(BindingError::NoSize {
                        formula: dim.to_string(),
                        input: value.name.clone(),
                    });
                }
            }
        }
        Ok(())
    }

    /// Puts the values in, everywhere in the graph.
    pub(super) fn substitute(&self, graph: &mut Graph) {
        if !(self.names.is_empty() && self.formulas.is_empty()) {
            for value in graph.values.values_mut() {
                for dim in value.shape.iter_mut().flat_map(|s| &mut s.0) {
                    if matches!(dim, Dim::Formula(_)) {
                        *dim = self.dim(dim);
                    }
                }
            }
        }
        for (&(input, axis), &n) in &self.axes {
            let shape = graph.values[input].shape.as_mut();
            if let Some(dim) = shape.and_then(|s| s.0.get_mut(axis)) {
                *dim = Dim::Known(n);
            }
        }
    }

    /// A dimension with the values put in; unknown when it is no size for them.
    fn dim(&self, dim: &Dim) -> Dim {
        let Dim::Formula(formula) = dim else {
            return dim.clone();
        };
        if let Some(&n) = self.formulas.get(&formula.to_string()) {
            return Dim::Known(n);
        }
        let expr = replace(&formula.expr, &self.names);
        Dim::from_expr(DimExpr {
            expr: dim_expr::simplify(expr),
        })
    }
}

/// A formula with numbers in place of names.
fn replace(expr: &SymExpr, values: &FxHashMap<String, u64>) -> SymExpr {
    dim_expr::map_leaves(expr, &|leaf| match leaf {
        SymExpr::Var(symbol) => match values.get(&symbol.name) {
            Some(&n) => dim_expr::number(n.into()),
            None => leaf.clone(),
        },
        _ => leaf.clone(),
    })
}

/// The values that stand for the graph's inputs, in their order.
fn root_inputs(graph: &Graph) -> impl Iterator<Item = ValueId> {
    let root = &graph.subgraphs[graph.root];
    root.inputs.iter().filter_map(|&n| graph.nodes[n].output(0))
}

/// Dimensions of inputs that are no numbers.
pub(super) fn free_dims(graph: &Graph) -> Vec<FreeDim> {
    let mut seen = BTreeSet::new();
    let mut free = Vec::new();
    for input in root_inputs(graph) {
        let value = &graph.values[input];
        for (axis, dim) in value.shape.iter().flat_map(|s| &s.0).enumerate() {
            let mut add = |name: Option<&str>| {
                free.push(FreeDim {
                    input: value.name.clone(),
                    axis,
                    name: name.map(str::to_owned),
                });
            };
            match dim {
                Dim::Known(_) => {}
                Dim::Unknown => add(None),
                Dim::Formula(formula) => {
                    for name in formula.names() {
                        if seen.insert(name.to_owned()) {
                            add(Some(name));
                        }
                    }
                }
            }
        }
    }
    free
}

/// The free dimensions that a model's file declares.
struct Declared {
    /// Names, alone or in formulas.
    names: BTreeSet<String>,
    /// Dimensions that are no plain name, by their printed form.
    formulas: BTreeMap<String, DimExpr>,
    inputs: FxHashMap<String, ValueId>,
}

impl Declared {
    fn of(graph: &Graph) -> Self {
        let mut names = BTreeSet::new();
        let mut formulas = BTreeMap::new();
        for value in graph.values.values() {
            for dim in value.shape.iter().flat_map(|s| &s.0) {
                let Dim::Formula(formula) = dim else { continue };
                for name in formula.names() {
                    if !names.contains(name) {
                        names.insert(name.to_owned());
                    }
                }
                if formula.as_name().is_none() {
                    formulas.insert(formula.to_string(), DimExpr::clone(formula));
                }
            }
        }
        let inputs = root_inputs(graph)
            .map(|v| (graph.values[v].name.clone(), v))
            .collect();
        Declared {
            names,
            formulas,
            inputs,
        }
    }

    /// The axis of an input that a key `INPUT@AXIS` means; `None` for a key of another kind.
    fn axis(&self, graph: &Graph, key: &str) -> Result<Option<(ValueId, usize)>, BindingError> {
        let Some((input, axis)) = key.rsplit_once('@') else {
            return Ok(None);
        };
        let (Some(&value), Ok(axis)) = (self.inputs.get(input), axis.parse::<u64>()) else {
            return Ok(None);
        };
        let shape = graph.values[value].shape.as_ref();
        match (shape, usize::try_from(axis)) {
            (Some(shape), Ok(at)) if at < shape.0.len() => Ok(Some((value, at))),
            _ => Err(BindingError::NoSuchAxis {
                input: input.to_owned(),
                axis,
                shape: shape.map_or_else(|| "unknown".to_owned(), ToString::to_string),
            }),
        }
    }

    fn summary(&self) -> String {
        const SHOWN: usize = 20;
        let all: Vec<&str> = self
            .names
            .iter()
            .chain(self.formulas.keys())
            .map(|n| &**n)
            .collect();
        match all.len() {
            0 => "it has no named dimensions".to_owned(),
            n if n > SHOWN => format!("it has {} and {} more", all[..SHOWN].join(", "), n - SHOWN),
            _ => format!("it has {}", all.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Dialect, Shape};

    fn graph(inputs: &[(&str, &[&str])]) -> Graph {
        let mut graph = Graph::new("g", Dialect::Onnx, "main");
        for (name, dims) in inputs {
            let shape: Shape = dims.iter().map(|d| Dim::parse(d)).collect();
            graph.add_input(graph.root, *name, DType::F32, Some(shape));
        }
        graph
    }

    /// The inputs' shapes with the bindings put in, and what stays free.
    fn bound(graph: &Graph, given: &[&str]) -> Result<(String, String), BindingError> {
        let mut graph = graph.clone();
        Resolved::new(&graph, &Bindings::parse(given)?)?.substitute(&mut graph);
        let shapes: Vec<String> = root_inputs(&graph)
            .filter_map(|v| graph.values[v].shape.as_ref().map(ToString::to_string))
            .collect();
        let free: Vec<String> = free_dims(&graph).iter().map(ToString::to_string).collect();
        Ok((shapes.join(" "), free.join("; ")))
    }

    #[test]
    fn values_reach_names_and_formulas() {
        let g = graph(&[("x", &["b", "past"]), ("mask", &["b", "past + 1", "?"])]);
        for (given, shapes, free) in [
            (
                &[][..],
                "[b, past] [b, past + 1, ?]",
                "b (--dim b=N); past (--dim past=N); axis 2 of input mask (--dim mask@2=N)",
            ),
            (&["b=2", "past=3..7", "mask@2=5"], "[2, 7] [2, 8, 5]", ""),
            (
                &["b=2", "past + 1=8", "mask@2=5"],
                "[2, past] [2, 8, 5]",
                "past (--dim past=N)",
            ),
            (
                &["b=2", "past=7", "x@0=1", "mask@2=5", "1+past=8"],
                "[1, 7] [2, 8, 5]",
                "",
            ),
        ] {
            let found = bound(&g, given).unwrap();
            assert_eq!(found, (shapes.to_owned(), free.to_owned()), "{given:?}");
        }
    }

    #[test]
    fn a_name_in_valued_formulas_alone_needs_no_value() {
        let g = graph(&[("mask", &["past + 1"]), ("m2", &["2 * past"])]);
        let (shapes, free) = bound(&g, &["past + 1=9", "2*past=16"]).unwrap();
        assert_eq!((&*shapes, &*free), ("[9] [16]", ""));
        let (_, free) = bound(&g, &["past + 1=9"]).unwrap();
        assert_eq!(free, "past (--dim past=N)");
    }

    #[test]
    fn odd_names() {
        let g = graph(&[("in put", &["a=b", "?"]), ("y", &["batch size"])]);
        let (_, free) = bound(&g, &[]).unwrap();
        assert_eq!(
            free,
            "a=b (--dim a=b=N); axis 1 of input in put (--dim 'in put@1=N'); \
             batch size (--dim 'batch size=N')"
        );
        let (shapes, free) = bound(&g, &["a=b=3", "in put@1=4", "batch size=5"]).unwrap();
        assert_eq!((&*shapes, &*free), ("[3, 4] [5]", ""));
    }

    #[test]
    fn wrong_bindings_are_refused() {
        let g = graph(&[("x", &["b", "3", "b - 4"])]);
        for (given, message) in [
            (
                &["b"][..],
                "dimension \"b\": expected NAME=N, NAME=LO..HI or INPUT@AXIS=N",
            ),
            (
                &["b=x"],
                "dimension \"b\": \"x\" is not a size; write a whole number or LO..HI",
            ),
            (
                &["b=-1"],
                "dimension \"b\": \"-1\" is not a size; write a whole number or LO..HI",
            ),
            (&["b=9..8"], "dimension \"b\": the range 9..8 is empty"),
            (
                &["b=1", "b=2"],
                "dimension \"b\" is given twice, as 1 and as 2",
            ),
            (
                &["c=1"],
                "the model has no dimension \"c\"; it has b, b - 4",
            ),
            (
                &["x@7=1"],
                "input \"x\" has no axis 7: its shape is [b, 3, b - 4]",
            ),
            (&["x@1=4"], "axis 1 of input \"x\" is 3 in the model, not 4"),
            (
                &["b=9", "b - 4=6"],
                "dimension \"b - 4\" is given as 6, but its names make it 5",
            ),
            (
                &["b=3"],
                "dimension \"b - 4\" of input \"x\" is no size for the values given: it is \
                 negative, too large, or divides by 0",
            ),
        ] {
            assert_eq!(bound(&g, given).unwrap_err().to_string(), message);
        }
    }
}
