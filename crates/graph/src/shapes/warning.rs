//! What shape inference reports without failing.

use std::fmt;

/// Something about types or shapes that looks wrong, or that could not be found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShapeWarning {
    /// No rule is known for these operators; the shapes of their outputs are those of the file,
    /// or unknown.
    NoRule {
        /// Names of the operators with their domain, sorted, each once.
        ops: Vec<String>,
    },
    /// The file declares another shape or type than the one that follows from the inputs.
    Contradiction {
        /// Label of the value.
        value: String,
        /// What the file says.
        declared: String,
        /// What follows.
        inferred: String,
        /// Whether the inferred one was kept, as it is when everything that it follows from is
        /// certain.
        kept_inferred: bool,
    },
    /// A node cannot run on inputs of these shapes.
    Impossible {
        /// Label of the node.
        node: String,
        /// Its operator.
        op: String,
        /// What is wrong.
        reason: String,
        /// The shapes of its inputs.
        inputs: String,
    },
    /// A dimension of a value comes out negative; the value is treated as dynamic.
    Negative {
        /// Label of the value.
        value: String,
        /// The shape.
        shape: String,
    },
    /// Subgraphs below this one are nested too deeply to be followed.
    TooDeep {
        /// Name of the subgraph.
        subgraph: String,
    },
    /// So many further warnings were left out.
    More {
        /// How many.
        count: usize,
    },
}

impl fmt::Display for ShapeWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ShapeWarning::NoRule { ops } => write!(
                f,
                "no shape rule for {}: shapes behind them are unknown unless the file gives them",
                ops.join(", ")
            ),
            ShapeWarning::Contradiction {
                value,
                declared,
                inferred,
                kept_inferred,
            } => {
                let kept = if *kept_inferred { inferred } else { declared };
                write!(
                    f,
                    "value {value:?}: the file declares {declared}, but {inferred} follows from \
                     the inputs; {kept} is used"
                )
            }
            ShapeWarning::Impossible {
                node,
                op,
                reason,
                inputs,
            } => write!(
                f,
                "node {node:?} ({op}) cannot run on inputs {inputs}: {reason}"
            ),
            ShapeWarning::Negative { value, shape } => write!(
                f,
                "value {value:?} has a negative dimension: {shape}; it is treated as dynamic"
            ),
            ShapeWarning::TooDeep { subgraph } => write!(
                f,
                "subgraphs below {subgraph:?} are nested too deeply; their shapes are not inferred"
            ),
            ShapeWarning::More { count } => {
                write!(f, "{count} further warnings about shapes are left out")
            }
        }
    }
}
