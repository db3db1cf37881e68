//! The checkers: each decides one question of the table for two anchors of one class, and says
//! where a copy may part them.

use rustc_hash::FxHashSet;
use tenure_graph::NodeId;
use tenure_graph::effects::Trait;
use tenure_graph::patch::Slot;

use tenure_graph::effects::demands::{ANY_MEMORY, is_refreshable};

use super::attributes::{Attribute, Traits};
use super::class::ClassView;
use super::runs::{ends_meet, is_run_of};
use super::table::{Checker, Rule};
use crate::storage::{Anchor, source_of};
use crate::work::Question;

/// Two anchors of one class, the first before the second in the class's list, each with the
/// attribute that the rule is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// The first anchor.
    pub a: Anchor,
    /// Its attribute.
    pub a_is: Attribute,
    /// All that is known of it.
    pub a_traits: Traits,
    /// The second anchor.
    pub b: Anchor,
    /// Its attribute.
    pub b_is: Attribute,
    /// All that is known of it.
    pub b_traits: Traits,
}

impl Pair {
    /// The anchor that has an attribute, and the other.
    fn split(&self, attribute: Attribute) -> (Anchor, Anchor) {
        if self.a_is == attribute {
            (self.a, self.b)
        } else {
            (self.b, self.a)
        }
    }

    /// The anchor that has one of several attributes, and the other.
    fn split_any(&self, attributes: &[Attribute]) -> (Anchor, Anchor) {
        if attributes.contains(&self.a_is) {
            (self.a, self.b)
        } else {
            (self.b, self.a)
        }
    }
}

const CONTIGUOUS: [Attribute; 4] = [
    Attribute::ContiguousInput,
    Attribute::ContiguousOutput,
    Attribute::PackedInput,
    Attribute::PackedOutput,
];

/// Where a pair must be cut; nothing where its anchors can be one memory. An input is cut before
/// it, an output behind it.
#[must_use]
pub fn cuts(view: &ClassView<'_>, rule: Rule, pair: &Pair) -> Vec<Anchor> {
    match rule {
        Rule::Agree => Vec::new(),
        Rule::Clash => vec![clash(view, pair)],
        Rule::Ask(checker) => ask(view, checker, pair),
    }
}

/// The input of the pair; of two inputs the earlier, unless its node hands the memory on.
fn clash(view: &ClassView<'_>, pair: &Pair) -> Anchor {
    match (pair.a.is_output(), pair.b.is_output()) {
        (true, false) => pair.b,
        (false, true) | (true, true) => pair.a,
        (false, false) => earlier_input(view, pair),
    }
}

fn earlier_input(view: &ClassView<'_>, pair: &Pair) -> Anchor {
    let a_first = view.work.position(pair.a.node) < view.work.position(pair.b.node);
    if a_first && !view.is_passed_through(pair.a) {
        pair.a
    } else {
        pair.b
    }
}

fn ask(view: &ClassView<'_>, checker: Checker, pair: &Pair) -> Vec<Anchor> {
    let scope = view.scope;
    let work = view.work;
    let (a, b) = (pair.a, pair.b);
    let moves = is_refreshable(scope.graph, scope.top);
    let pages =
        scope.options.pages_may_change && (pair.a_traits.is_switch || pair.b_traits.is_switch);
    let new_address = moves || pages;
    match checker {
        // Decided for all readers of a part at once: see `class`.
        Checker::ContiguousReaders | Checker::PackedReaders => Vec::new(),
        Checker::TwoSources => two_sources(view, pair),
        Checker::RunsDoNotMeet => {
            let (output, input) = pair.split(Attribute::ContiguousOutput);
            if view.runs_meet(output.node, input.node) {
                Vec::new()
            } else {
                vec![a]
            }
        }
        Checker::GroupCutAgain | Checker::PackedPieceCutAgain => {
            let feeds = view
                .feeding(a.node, b.node)
                .or_else(|| view.feeding(b.node, a.node));
            feeds.into_iter().collect()
        }
        Checker::GroupInSpecialMemory => {
            let (group, special) = pair.split_any(&CONTIGUOUS);
            let traits = if group == a {
                pair.a_traits
            } else {
                pair.b_traits
            };
            if traits.memory != ANY_MEMORY {
                Vec::new()
            } else if !group.is_output() && view.is_passed_through(group) {
                vec![special]
            } else {
                vec![group]
            }
        }
        Checker::UserInputInGroup => {
            let (user, group) = pair.split(Attribute::UserInput);
            let asks = if group == a { pair.a_is } else { pair.b_is };
            let is_fine = match asks {
                Attribute::PackedInput => view.has_one_producer(group.node),
                Attribute::PackedOutput => scope.can_split_user_input(),
                _ => false,
            };
            if is_fine {
                Vec::new()
            } else {
                view.assigned_first(group)
                    .unwrap_or_else(|| vec![behind_source(view, user, group)])
            }
        }
        Checker::UserInputAtFixedOutput => {
            let (user, fixed) = pair.split(Attribute::UserInput);
            view.assigned_first(fixed).unwrap_or_else(|| {
                if new_address {
                    vec![fixed]
                } else {
                    vec![behind_source(view, user, fixed)]
                }
            })
        }
        Checker::UserInputInSpecialMemory => {
            let (user, special) = pair.split(Attribute::UserInput);
            let cut = || vec![behind_source(view, user, special)];
            view.assigned_first(special).unwrap_or_else(cut)
        }
        Checker::UserOutputAtFixedOutput | Checker::UserOutputAtFixedInput => {
            let (user, fixed) = pair.split(Attribute::UserOutput);
            vec![if new_address { fixed } else { user }]
        }
        Checker::UserOutputIsImmutable => {
            let (user, _) = pair.split(Attribute::UserOutput);
            let source = if user == a {
                pair.b_traits
            } else {
                pair.a_traits
            };
            if scope.root_is_static() && !source.is_variable {
                vec![user]
            } else {
                Vec::new()
            }
        }
        Checker::UserOutputInGroup => {
            let (user, group) = pair.split(Attribute::UserOutput);
            if view.comes_through(user, group.node) {
                Vec::new()
            } else {
                vec![user]
            }
        }
        Checker::ImmutableInSpecialMemory => {
            let (source, special) = pair.split(Attribute::Immutable);
            let cut = || vec![behind_source(view, source, special)];
            view.assigned_first(special).unwrap_or_else(cut)
        }
        Checker::ImmutableInPackedGroup => {
            let (_, packed) = pair.split(Attribute::Immutable);
            if view.has_one_producer(packed.node) {
                Vec::new()
            } else {
                vec![packed]
            }
        }
        Checker::ImmutableInOutputGroup => {
            let (source, group) = pair.split(Attribute::Immutable);
            view.assigned_first(group).unwrap_or_else(|| {
                // Never behind a variable: its other readers must still update it.
                vec![view.held_input(group.node).unwrap_or(source)]
            })
        }
        Checker::PackedInputOfPackedOutput => {
            let (input, output) = pair.split(Attribute::PackedInput);
            if view.is_first_piece(input.node, output.node) {
                Vec::new()
            } else {
                vec![input]
            }
        }
        Checker::ReadersOfTwoKinds => {
            if pair.a_traits.memory == pair.b_traits.memory {
                Vec::new()
            } else {
                vec![earlier_input(view, pair)]
            }
        }
        Checker::WriterAndReaderOfTwoKinds => {
            if pair.a_traits.memory == pair.b_traits.memory {
                Vec::new()
            } else {
                vec![if a.is_output() { a } else { b }]
            }
        }
        Checker::WritersOfTwoKinds => {
            if pair.a_traits.memory == pair.b_traits.memory {
                Vec::new()
            } else if work.position(a.node) < work.position(b.node) {
                vec![a]
            } else {
                vec![b]
            }
        }
        Checker::FixedInputMoves => match new_address {
            true if pair.b_is == Attribute::FixedInput => vec![b],
            true => vec![a],
            false => Vec::new(),
        },
        Checker::FixedOutputMoves => match new_address {
            true if pair.a_is == Attribute::FixedOutput => vec![a],
            true => vec![b],
            false => Vec::new(),
        },
    }
}

/// Behind the source, with one copy for all its readers; but before the one reader that needs it
/// where another updates the source in place, or that update would go into the copy.
fn behind_source(view: &ClassView<'_>, source: Anchor, reader: Anchor) -> Anchor {
    if !view.is_updated_beside(source, reader.node) {
        return source;
    }
    match reader.slot {
        Slot::In(_) => reader,
        Slot::Out(_) => view.held_input(reader.node).unwrap_or(source),
    }
}

/// Behind the later of two sources, or the earlier where the later is updated in place.
fn two_sources(view: &ClassView<'_>, pair: &Pair) -> Vec<Anchor> {
    let named =
        pair.a_traits.source == Some(pair.b.node) || pair.b_traits.source == Some(pair.a.node);
    if named {
        return Vec::new();
    }
    let updated = |source: Anchor| view.is_updated_beside(source, source.node);
    vec![if updated(pair.b) && !updated(pair.a) {
        pair.a
    } else {
        pair.b
    }]
}

impl ClassView<'_> {
    /// Inputs of the anchor's node in this class that an assignment feeds directly; `None` where
    /// there are none. The copy stands behind the assignment, so that it still reaches its variable.
    fn assigned_first(&self, anchor: Anchor) -> Option<Vec<Anchor>> {
        let graph = self.work.graph();
        let is_assigned = |input: &Anchor| {
            let producer = input.value(graph).map(|v| graph.values[v].producer);
            producer.is_some_and(|p| self.work.table.traits(graph, p).has(Trait::Assigns))
        };
        let inputs: Vec<Anchor> = self.held_inputs(anchor.node).filter(is_assigned).collect();
        (!inputs.is_empty()).then_some(inputs)
    }

    /// Whether some output of an input's node is in the class, too: a copy before the input would
    /// carry the conflict along.
    fn is_passed_through(&self, input: Anchor) -> bool {
        self.held_outputs(input.node).next().is_some()
    }

    /// The first input by which a node holds the class.
    fn held_input(&self, node: NodeId) -> Option<Anchor> {
        self.held_inputs(node).next()
    }

    /// Whether a reader of `source` other than `except` writes it in place.
    fn is_updated_beside(&self, source: Anchor, except: NodeId) -> bool {
        let Some(value) = source.value(self.work.graph()) else {
            return false;
        };
        let mut users = self.work.users(value).iter();
        users.any(|&(user, input)| user != except && self.work.updates(user, input))
    }

    /// The output of `from` that feeds an input of `to` in this class.
    fn feeding(&self, from: NodeId, to: NodeId) -> Option<Anchor> {
        let graph = self.work.graph();
        let feeders = self
            .held_inputs(to)
            .filter_map(|i| Some(Anchor::of(graph, i.value(graph)?)));
        feeders.into_iter().find(|feeder| feeder.node == from)
    }

    /// Whether all inputs of a node are, through references, one output.
    pub(super) fn has_one_producer(&self, node: NodeId) -> bool {
        let graph = self.work.graph();
        let mut values = graph.nodes[node].inputs.iter().flatten();
        let first = values.next().map(|&v| self.work.real_producer(v));
        values.all(|&v| Some(self.work.real_producer(v)) == first)
    }

    /// Whether outputs and inputs of two groups fit in one row.
    fn runs_meet(&self, outputs: NodeId, inputs: NodeId) -> bool {
        let work = self.work;
        work.once(Question::OutputsMeetInputs, (outputs, inputs), || {
            let made = (0u32..).zip(&work.graph().nodes[outputs].outputs);
            let made: Vec<Anchor> = made.map(|(o, _)| Anchor::output(outputs, o)).collect();
            ends_meet(&made, &work.real_producers(inputs))
        })
    }

    /// Whether what reaches an input went through a node, by references all the way.
    fn comes_through(&self, input: Anchor, node: NodeId) -> bool {
        let graph = self.work.graph();
        let mut next = input.value(graph);
        while let Some(value) = next {
            let made = &graph.values[value];
            if made.producer == node {
                return true;
            }
            let table = self.work.table;
            let source = crate::storage::reference(graph, table, made.producer, made.output);
            next = source.and_then(|i| graph.nodes[made.producer].input(i as usize));
        }
        false
    }

    /// Whether a group of inputs is, as a whole, what a group of outputs is cut from, under whatever
    /// name.
    fn is_first_piece(&self, inputs: NodeId, outputs: NodeId) -> bool {
        let (graph, table) = (self.work.graph(), self.work.table);
        let whole = graph.nodes[inputs].output(0);
        let cut = graph.nodes[outputs].input(0);
        let mut names = std::iter::successors(cut, |&v| source_of(graph, table, v));
        whole.is_some() && names.any(|v| Some(v) == whole)
    }

    /// Whether two packed groups of inputs that share this class fit into one row.
    pub(super) fn packed_together(&self, one: &[Anchor], other: &[Anchor]) -> bool {
        let members: FxHashSet<Anchor> = one.iter().copied().collect();
        let shared = other.iter().any(|a| members.contains(a));
        !shared || is_run_of(one, other) || is_run_of(other, one)
    }
}
