//! What `If` and `Case` owe for their outputs: who frees them, where they lie, and which of them
//! point to different inputs.
//!
//! A *guard* is a node that frees a value when it is not needed any more. Whichever branch is
//! taken, each output of the branch node is either freed once by a guard outside, or not at all:
//!
//! | output of a branch is | in the branch | outside |
//! | --- | --- | --- |
//! | guarded there, and an output for the first time | the guard goes | a guard of that type |
//! | the same value again | one holder more | a guard of that type |
//! | an input that is guarded outside | one holder more | another guard of that type |
//! | not guarded, and guarded in another branch | one holder more | that guard |
//! | not guarded in any branch | nothing | nothing |
//!
//! Holders are added by one node for each branch ([`BranchPlan::holders`]): those that a row of its
//! own asks for first, then those for the sake of another branch, by output.
//!
//! An output that is an input in all branches, always the same, is a name of it. Where the branches
//! disagree, the address is known only when one was taken: each has a node that passes addresses on
//! ([`BranchPlan::pointers`]).

use std::collections::BTreeSet;

use crate::placement::Place;

/// Types of guards. A type with `HoldAddr` behind it keeps the address when it frees.
pub const GUARDS: &[&str] = &[
    "FreeMemory",
    "FreeMemHbm",
    "FreeBatchHbm",
    "FreeTensorMemory",
    "FreeFftsMem",
    "FreeBatchFftsMems",
    "FreeFixedFeatureMemory",
];

/// Whether nodes of a type free what they are attached to.
#[must_use]
pub fn is_guard(op: &str) -> bool {
    GUARDS.contains(&op.strip_suffix("HoldAddr").unwrap_or(op))
}

/// A value of the graph around the branch node that goes into it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Input {
    /// The type of the guard that frees it outside.
    pub guard: Option<String>,
    /// Where it lies.
    pub place: Option<Place>,
}

/// A value in a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// An input of the branch node.
    Input(usize),
    /// An output of a node of the branch.
    Node {
        /// Number of the node in its branch.
        node: usize,
        /// The output.
        output: usize,
    },
}

/// A node of a branch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// For each output the type of the guard that frees it.
    pub guards: Vec<Option<String>>,
    /// Where its outputs lie.
    pub place: Option<Place>,
}

/// One branch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Branch {
    /// Its nodes.
    pub nodes: Vec<Node>,
    /// What it gives for each output of the branch node.
    pub outputs: Vec<Source>,
}

/// What is done in a branch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BranchPlan {
    /// Values whose guards go.
    pub unguarded: Vec<Source>,
    /// Values that get one more holder, each for an output of the branch node; in the order of the
    /// slots of the node that does it.
    pub holders: Vec<(Source, usize)>,
    /// Outputs whose addresses a node passes on.
    pub pointers: Vec<usize>,
}

/// What is done in the branches and around them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// For each output the type of the guard outside.
    pub guards: Vec<Option<String>>,
    /// For each output where it lies; `None` where that is known only when a branch was taken.
    pub places: Vec<Option<Place>>,
    /// Outputs for which the branches give different inputs, or some an input and some not.
    pub conflicts: Vec<usize>,
    /// Outputs that are the same input in all branches.
    pub names: Vec<usize>,
    /// What is done in each branch.
    pub branches: Vec<BranchPlan>,
}

/// Why a branch node cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BranchError {
    /// There is nothing to choose from.
    #[error("there are no branches: give one at least")]
    NoBranch,
    /// A branch has another number of outputs than the first.
    #[error("branch {branch} has {outputs} outputs, and branch 0 has {first}: give as many in all")]
    Outputs {
        /// Number of the branch.
        branch: usize,
        /// Its outputs.
        outputs: usize,
        /// Outputs of the first branch.
        first: usize,
    },
    /// Two ways to free one output.
    #[error(
        "output {output} is freed by {first} in one branch and by {second} in another: it can be freed only once, use one of them"
    )]
    Guards {
        /// The output.
        output: usize,
        /// Type of the one guard.
        first: String,
        /// Type of the other.
        second: String,
    },
    /// A branch gives a value that it does not have.
    #[error("branch {branch} gives {value:?} for output {output}, and has no such value")]
    NoValue {
        /// Number of the branch.
        branch: usize,
        /// The output.
        output: usize,
        /// The value.
        value: Source,
    },
}

/// Finds what is done for a branch node. An absent branch is one without outputs.
///
/// ```
/// use tenure_runtime::branches::{Branch, Input, Node, Source, plan};
///
/// let value = |guard: Option<&str>| Node {
///     guards: vec![guard.map(str::to_owned)],
///     place: None,
/// };
/// let out = Source::Node { node: 0, output: 0 };
/// let then = Branch { nodes: vec![value(Some("FreeMemory"))], outputs: vec![out] };
/// let other = Branch { nodes: vec![value(None)], outputs: vec![out] };
/// let plan = plan(&[Input::default()], &[then, other])?;
/// assert_eq!(plan.guards[0].as_deref(), Some("FreeMemory"));
/// assert_eq!(plan.branches[0].unguarded, [out]);
/// assert_eq!(plan.branches[1].holders, [(out, 0)]);
/// # Ok::<(), tenure_runtime::branches::BranchError>(())
/// ```
///
/// # Errors
/// [`BranchError`].
pub fn plan(inputs: &[Input], branches: &[Branch]) -> Result<Plan, BranchError> {
    let first = branches.first().ok_or(BranchError::NoBranch)?;
    let count = first.outputs.len();
    for (number, branch) in branches.iter().enumerate() {
        let outputs = branch.outputs.len();
        if outputs != count {
            return Err(BranchError::Outputs {
                branch: number,
                outputs,
                first: count,
            });
        }
        for (output, &value) in branch.outputs.iter().enumerate() {
            if !branch.has(value, inputs.len()) {
                return Err(BranchError::NoValue {
                    branch: number,
                    output,
                    value,
                });
            }
        }
    }
    let mut guards = vec![None; count];
    let (mut does, mut settled) = (Vec::new(), Vec::new());
    for branch in branches {
        let (plan, outputs) = take_out_guards(inputs, branch, &mut guards)?;
        does.push(plan);
        settled.push(outputs);
    }
    // Whatever branch is taken owes as much as the others.
    for ((branch, does), settled) in branches.iter().zip(&mut does).zip(settled) {
        for (output, &value) in branch.outputs.iter().enumerate() {
            if guards[output].is_some() && !settled[output] {
                does.holders.push((value, output));
            }
        }
    }
    let mut plan = Plan {
        guards,
        branches: does,
        ..Plan::default()
    };
    for output in 0..count {
        let (verdict, place) = look_at(output, inputs, branches, &plan.branches);
        match verdict {
            Verdict::Conflict => plan.conflicts.push(output),
            Verdict::Name => plan.names.push(output),
            Verdict::Computed => {}
        }
        plan.places.push(place);
    }
    for does in &mut plan.branches {
        does.pointers.clone_from(&plan.conflicts);
    }
    Ok(plan)
}

/// The first three rows of the table, for one branch: also says which outputs they settle.
fn take_out_guards(
    inputs: &[Input],
    branch: &Branch,
    guards: &mut [Option<String>],
) -> Result<(BranchPlan, Vec<bool>), BranchError> {
    let mut does = BranchPlan::default();
    let mut settled = vec![false; branch.outputs.len()];
    let mut seen = BTreeSet::new();
    for (output, &value) in branch.outputs.iter().enumerate() {
        let Some(guard) = branch.guard(value, inputs) else {
            continue;
        };
        settled[output] = true;
        match value {
            Source::Node { .. } if seen.insert(value) => does.unguarded.push(value),
            _ => does.holders.push((value, output)),
        }
        match &guards[output] {
            Some(first) if first != guard => {
                return Err(BranchError::Guards {
                    output,
                    first: first.clone(),
                    second: guard.to_owned(),
                });
            }
            Some(_) => {}
            None => guards[output] = Some(guard.to_owned()),
        }
    }
    Ok((does, settled))
}

/// What the branches make of one output.
enum Verdict {
    /// They all compute it.
    Computed,
    /// It is one input in all.
    Name,
    /// They disagree.
    Conflict,
}

fn look_at(
    output: usize,
    inputs: &[Input],
    branches: &[Branch],
    does: &[BranchPlan],
) -> (Verdict, Option<Place>) {
    let source = |(branch, does): (&Branch, &BranchPlan)| match branch.outputs[output] {
        // With a holder of its own it is a value of the branch.
        Source::Input(input) if does.holders.iter().all(|h| h.1 != output) => Some(input),
        _ => None,
    };
    let mut sources = branches.iter().zip(does).map(source);
    let first = sources.next().flatten();
    let verdict = if sources.any(|other| other != first) {
        Verdict::Conflict
    } else if first.is_some() {
        Verdict::Name
    } else {
        Verdict::Computed
    };
    let mut places = branches.iter().map(|b| b.place(output, inputs));
    let place = places.next().flatten();
    let agree = places.all(|other| other == place);
    (verdict, place.filter(|_| agree))
}

impl Branch {
    fn has(&self, value: Source, inputs: usize) -> bool {
        match value {
            Source::Input(input) => input < inputs,
            Source::Node { node, output } => {
                let node = self.nodes.get(node);
                node.is_some_and(|n| output < n.guards.len())
            }
        }
    }

    /// The type of the guard of a value; of an input the one outside.
    fn guard<'a>(&'a self, value: Source, inputs: &'a [Input]) -> Option<&'a str> {
        let guard = match value {
            Source::Input(input) => inputs[input].guard.as_deref(),
            Source::Node { node, output } => self.nodes[node].guards[output].as_deref(),
        };
        guard.filter(|op| is_guard(op))
    }

    /// Where an output lies, as far as it is known; what follows a shape is on the host.
    fn place(&self, output: usize, inputs: &[Input]) -> Option<Place> {
        let place = match self.outputs[output] {
            Source::Input(input) => inputs[input].place,
            Source::Node { node, .. } => self.nodes[node].place,
        };
        match place? {
            Place::Unknown => None,
            Place::Following => Some(Place::Host),
            place => Some(place),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All ways to give two outputs from a guarded value, one without a guard, and two inputs of
    /// which the first is guarded.
    fn branches() -> Vec<Branch> {
        let guard = |guarded: bool| guarded.then(|| "FreeMemory".to_owned());
        let node = |guarded| Node {
            guards: vec![guard(guarded)],
            place: None,
        };
        let values = [
            Source::Node { node: 0, output: 0 },
            Source::Node { node: 1, output: 0 },
            Source::Input(0),
            Source::Input(1),
        ];
        let pairs = values.iter().flat_map(|&a| values.map(|b| [a, b]));
        let nodes = [true, false].map(node).to_vec();
        pairs
            .map(|outputs| Branch {
                nodes: nodes.clone(),
                outputs: outputs.to_vec(),
            })
            .collect()
    }

    fn inputs() -> [Input; 2] {
        let guard = Some("FreeMemory".to_owned());
        [Input { guard, place: None }, Input::default()]
    }

    /// Counts the frees that each value gets and the holders that it has, for every branch that
    /// can be taken.
    #[test]
    fn every_value_is_freed_once_for_each_holder() {
        let inputs = inputs();
        for then in branches() {
            for other in branches() {
                let both = [then.clone(), other];
                let plan = plan(&inputs, &both).unwrap();
                for (branch, does) in both.iter().zip(&plan.branches) {
                    for value in [Source::Node { node: 0, output: 0 }, Source::Input(0)] {
                        let outside = (0..2)
                            .filter(|&o| branch.outputs[o] == value && plan.guards[o].is_some());
                        let kept = !does.unguarded.contains(&value);
                        let frees = outside.count() + usize::from(kept);
                        let more = does.holders.iter().filter(|h| h.0 == value);
                        assert_eq!(frees, 1 + more.count(), "{branch:?} {does:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn an_output_is_a_pointer_in_all_branches_or_in_none() {
        let inputs = inputs();
        for then in branches() {
            for other in branches() {
                let both = [then.clone(), other];
                let plan = plan(&inputs, &both).unwrap();
                for output in 0..2 {
                    let is = |k: usize| both[k].outputs[output];
                    let plain =
                        |k: usize| is(k) == Source::Input(1) && plan.guards[output].is_none();
                    let conflict = plain(0) != plain(1);
                    assert_eq!(plan.conflicts.contains(&output), conflict);
                    assert_eq!(plan.names.contains(&output), plain(0) && plain(1));
                    let all = plan.branches.iter().all(|b| b.pointers == plan.conflicts);
                    assert!(all);
                }
            }
        }
    }

    #[test]
    fn what_is_no_guard_frees_nothing() {
        assert!(is_guard("FreeMemoryHoldAddr") && !is_guard("Free") && !is_guard("HoldAddr"));
        let mut inputs = inputs();
        inputs[0].guard = Some("Relu".to_owned());
        let name = Branch {
            nodes: vec![],
            outputs: vec![Source::Input(0)],
        };
        let plan = plan(&inputs, &[name.clone(), name]).unwrap();
        assert_eq!((plan.guards, plan.names), (vec![None], vec![0]));
    }

    #[test]
    fn values_that_there_are_not_are_refused() {
        let none = Branch {
            nodes: vec![Node::default()],
            outputs: vec![Source::Node { node: 0, output: 0 }],
        };
        assert!(matches!(
            plan(&[], &[none]),
            Err(BranchError::NoValue { .. })
        ));
        assert_eq!(plan(&[], &[]), Err(BranchError::NoBranch));
    }
}
