//! How two values stand to each other: one memory, certainly one after the other, certainly
//! together, or in no certain order.
//!
//! Certain is what edges of data and control, the order of a stream's list, and the borders of
//! subgraphs order; nothing else is. What is compared is each content of one memory, from the moment
//! at which it is there until its reader has it, with each write in the other. A content is what one
//! node wrote, under whatever name it is read, also inside branches and in later passes of loops;
//! variables and constants are kept from run to run.

mod joints;
mod meet;
mod moments;
mod schedule;
mod uses;

use tenure_graph::effects::{OpTable, Trait};
use tenure_graph::{Graph, NodeId, ValueId};

use crate::error::GuardError;
use crate::storage::Anchor;
use crate::witness::Step;
use joints::Joints;
use meet::{Clash, Meeting, can_be_first, gear_of, meeting, never_apart};
use moments::Moments;
use schedule::{Wrong, right, right_before, wrong, wrong_in_some_run};
use uses::{Sides, Uses, uses};

/// How two values stand to each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Relation {
    /// They are one memory, or share bytes of one.
    SameMemory {
        /// What joins them, from the first value to the second.
        chain: Vec<Hop>,
    },
    /// Every use of one has certainly ended before the other is first written: they may share.
    Ordered {
        /// The value that is done with first.
        first: ValueId,
        /// The other value.
        second: ValueId,
        /// From a use of the first to a write of the second; where the other way round is out of
        /// the question, from one write to the other.
        path: Vec<Hop>,
    },
    /// Both are used by turns, and certainly never needed together: they may share.
    InTurn {
        /// From a use of the first value to a write of the second.
        there: Vec<Hop>,
        /// From a use of the second to a write of the first.
        back: Vec<Hop>,
    },
    /// No run has both: they may share.
    Exclusive {
        /// The label of the node that runs one body or the other, or the gears in words.
        node: String,
    },
    /// In every order that is allowed both are needed at some moment, or one is kept from run to
    /// run.
    Apart {
        /// The values that meet: the two that were asked about, or others that are one memory with
        /// the one and with the other.
        meet: [ValueId; 2],
        /// A schedule in which a reader sees wrong bytes, were they one memory; empty where nobody
        /// reads.
        wrong: Vec<Step>,
    },
    /// Nothing orders their uses for certain.
    Unordered {
        /// The values that may meet, as above.
        meet: [ValueId; 2],
        /// A schedule that goes well; empty where none is known.
        right: Vec<Step>,
        /// A schedule in which a reader sees wrong bytes, were they one memory; empty where nobody
        /// reads.
        wrong: Vec<Step>,
    },
}

impl Relation {
    /// The name used in files.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Relation::SameMemory { .. } => "same-memory",
            Relation::Ordered { .. } => "ordered",
            Relation::InTurn { .. } => "in-turn",
            Relation::Exclusive { .. } => "exclusive",
            Relation::Apart { .. } => "apart",
            Relation::Unordered { .. } => "unordered",
        }
    }
}

/// One step of a chain or of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Where it starts: an anchor in words in a chain, a node's label in a path.
    pub from: String,
    /// Where it ends, likewise.
    pub to: String,
    /// What leads there. In a chain `edge`, `view`, `reference`, `merge`, `border` or `piece`
    /// (of two tensors one lies in the other); in a path
    /// `data`, `control`, `stream`, `body`, `in-place`, or `wait` where an edge of data or control
    /// lets one stream wait for another.
    pub by: &'static str,
}

/// A program whose values are asked about.
pub struct Why<'a> {
    graph: &'a Graph,
    table: &'a OpTable,
    joints: Joints<'a>,
}

impl<'a> Why<'a> {
    /// Looks at what shares memory in a program.
    ///
    /// # Errors
    /// See [`Classes::build`](crate::storage::Classes::build).
    pub fn of(graph: &'a Graph, table: &'a OpTable) -> Result<Self, GuardError> {
        let joints = Joints::of(graph, table)?;
        Ok(Why {
            graph,
            table,
            joints,
        })
    }

    /// Says how two values stand to each other.
    #[must_use]
    pub fn relation(&self, a: ValueId, b: ValueId) -> Relation {
        self.relation_without(None, [a, b])
    }

    /// The relation of two values where the making of one value overwrites nothing.
    fn relation_without(&self, silent: Option<ValueId>, [a, b]: [ValueId; 2]) -> Relation {
        let (graph, joints) = (self.graph, &self.joints);
        let reached = joints.reach(Anchor::of(graph, a));
        if let Some(chain) = joints.chain(&reached, a, b) {
            return Relation::SameMemory { chain };
        }
        let mut sides = Sides::default();
        let other = joints.reach(Anchor::of(graph, b));
        for (side, reached) in [reached, other].iter().enumerate() {
            let values = joints.values(reached);
            sides.extend(values.into_iter().map(|value| (value, side)));
        }
        let moments = Moments::of(graph, self.table, &|value| sides.contains_key(&value));
        let mut both = uses(&moments, &sides, [a, b]);
        for uses in &mut both {
            uses.silent = silent;
        }
        let [a, b] = both;
        answer(&moments, &a, &b)
    }

    /// What stands behind a copy of a guarded program: the shortest schedule in which a reader sees
    /// wrong bytes, were what is copied and the copy one memory. Of a node that copies several values
    /// it is about the one that is read at `at`, an anchor in words, if one is. `None` where there is
    /// none: a rule asks for the copy, or the node copies nothing.
    #[must_use]
    pub fn without_copy(&self, copy: NodeId, at: &str) -> Option<Vec<Step>> {
        let graph = self.graph;
        let node = &graph.nodes[copy];
        if !self.table.traits(graph, copy).has(Trait::Copies) {
            return None;
        }
        let copied = node.inputs.iter().zip(&node.outputs);
        let copied = copied.filter_map(|(from, to)| Some(((*from)?, (*to)?)));
        let copied: Vec<(ValueId, ValueId)> = copied.collect();
        let is_read_at = |value: ValueId| {
            let mut slots = self.joints.readers(value);
            slots.any(|slot| slot.label(graph) == at)
        };
        let meant = copied.iter().filter(|(_, to)| is_read_at(*to));
        let meant: Vec<_> = meant.copied().collect();
        let all = if meant.is_empty() { copied } else { meant };
        // Were both one memory, the copy itself would have nothing to do.
        all.into_iter().find_map(
            |(from, to)| match self.relation_without(Some(to), [from, to]) {
                Relation::Apart { wrong, .. } | Relation::Unordered { wrong, .. } => {
                    (!wrong.is_empty()).then_some(wrong)
                }
                _ => None,
            },
        )
    }
}

fn answer(moments: &Moments<'_>, a: &Uses, b: &Uses) -> Relation {
    let (of_a, of_b) = (meeting(moments, a, b), meeting(moments, b, a));
    let found = shortest(moments, (a, b), [&of_a, &of_b]);
    let asked = [a.value, b.value];
    if a.stays || b.stays {
        let in_some_run = || {
            let of_a = wrong_in_some_run(moments, (a, b)).filter(|_| a.stays);
            of_a.or_else(|| {
                let of_b = wrong_in_some_run(moments, (b, a)).filter(|_| b.stays);
                of_b.map(Wrong::turned)
            })
        };
        let Wrong { meet, steps } = found.or_else(in_some_run).unwrap_or(Wrong::none(asked));
        return Relation::Apart { meet, wrong: steps };
    }
    if of_a.clashes.is_empty() && of_b.clashes.is_empty() {
        return in_order(moments, (a, b), (&of_a, &of_b));
    }
    let Wrong { meet, steps: wrong } = found.unwrap_or(Wrong::none(asked));
    if never_apart(moments, a, b) {
        return Relation::Apart { meet, wrong };
    }
    let first = |one: &Uses, other: &Uses, (of_one, of_other): (&Meeting, &Meeting)| {
        let can_be = |clash: Clash| {
            let gear = gear_of(moments, clash);
            can_be_first(moments, one, other, gear).then_some(clash)
        };
        let clash = of_one.clashes.first().copied().and_then(can_be);
        let plainly = clash.and_then(|clash| right(moments, (one, other), clash));
        plainly.or_else(|| {
            let clash = of_other.clashes.first().copied().and_then(can_be)?;
            right_before(moments, (other, one), clash)
        })
    };
    let right = first(a, b, (&of_a, &of_b)).or_else(|| first(b, a, (&of_b, &of_a)));
    let right = right.unwrap_or_default();
    Relation::Unordered { meet, right, wrong }
}

/// The shortest schedule that goes wrong, of those that were looked at; rather one with a reader of
/// its own than with a node that overwrites what it reads.
fn shortest(
    moments: &Moments<'_>,
    (a, b): (&Uses, &Uses),
    [of_a, of_b]: [&Meeting; 2],
) -> Option<Wrong> {
    let is_one_node = |clash: &Clash| clash.kept.at == clash.over.start;
    let of_a = of_a.clashes.iter().filter_map(|clash| {
        let found = wrong(moments, (a, b), *clash)?;
        Some((is_one_node(clash), found))
    });
    let of_b = of_b.clashes.iter().filter_map(|clash| {
        let found = wrong(moments, (b, a), *clash)?.turned();
        Some((is_one_node(clash), found))
    });
    let all = of_a.chain(of_b);
    let shortest = all.min_by_key(|(is_one_node, found)| (*is_one_node, found.steps.len()));
    shortest.map(|(_, found)| found)
}

/// The relation of two memories of which none is written while the other is needed.
fn in_order(
    moments: &Moments<'_>,
    (a, b): (&Uses, &Uses),
    (of_a, of_b): (&Meeting, &Meeting),
) -> Relation {
    let mut there = of_a.behind.or(of_b.ahead);
    let mut back = of_b.behind.or(of_a.ahead);
    let mut never = of_a.never.or(of_b.never);
    if there.is_none()
        && back.is_none()
        && never.is_none()
        && let (Some(of_a), Some(of_b)) = (a.writes.first(), b.writes.first())
    {
        // Nobody reads either, so it is their writes that are compared.
        let as_read = |uses: &Uses| Uses::read_at_once(uses);
        let found = meeting(moments, &as_read(a), b);
        (there, back, never) = (found.behind, found.ahead, found.never);
        if of_a.start == of_b.start {
            let meet = [a.value, b.value];
            return Relation::Apart {
                meet,
                wrong: Vec::new(),
            };
        }
    }
    let path = |(from, to)| path(moments, from, to);
    match (there, back, never) {
        (Some(there), None, _) => Relation::Ordered {
            first: a.value,
            second: b.value,
            path: path(there),
        },
        (None, Some(back), _) => Relation::Ordered {
            first: b.value,
            second: a.value,
            path: path(back),
        },
        (Some(there), Some(back), _) => Relation::InTurn {
            there: path(there),
            back: path(back),
        },
        (None, None, Some((one, other))) => Relation::Exclusive {
            node: chooser(moments, one, other),
        },
        (None, None, None) => Relation::Unordered {
            meet: [a.value, b.value],
            right: Vec::new(),
            wrong: Vec::new(),
        },
    }
}

/// The path from one moment to another, or that they are one.
fn path(moments: &Moments<'_>, from: usize, to: usize) -> Vec<Hop> {
    if from < to {
        return moments.path(from, to);
    }
    let node = moments.graph.node_label(moments.node[from]);
    vec![Hop {
        from: node.clone(),
        to: node,
        by: "in-place",
    }]
}

/// The node that runs either the one or the other, or the gears that they are of.
fn chooser(moments: &Moments<'_>, one: usize, other: usize) -> String {
    let graph = moments.graph;
    if let (Some(a), Some(b)) = (moments.gear(one), moments.gear(other))
        && a != b
        && let Some([a, b]) = moments.gear_names([a, b])
    {
        return format!("the choice between gears {a} and {b}");
    }
    let owners = |at: usize| {
        let around = std::iter::successors(Some(moments.home[at]), |&s| graph.enclosing(s));
        around.filter_map(|s| graph.subgraphs[s].owner)
    };
    let of_one: rustc_hash::FxHashSet<_> = owners(one).collect();
    let shared = owners(other).find(|owner| of_one.contains(owner));
    shared.map_or_else(String::new, |owner| graph.node_label(owner))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::graph;
    use tenure_graph::Dialect;

    /// The answer in short.
    fn why(lines: &str, a: &str, b: &str) -> String {
        let graph = graph(lines);
        let table = OpTable::builtin(Dialect::Ge);
        let named = |name: &str| {
            let mut values = graph.values.keys();
            values.find(|&v| graph.value_label(v) == name).unwrap()
        };
        let found = Why::of(&graph, &table).unwrap();
        let found = found.relation(named(a), named(b));
        let hops = |hops: &[Hop]| {
            let hops = hops
                .iter()
                .map(|h| format!("{} -{}- {}", h.from, h.by, h.to));
            hops.collect::<Vec<_>>().join(", ")
        };
        let steps = |steps: &[Step]| {
            let steps = steps.iter().map(ToString::to_string);
            steps.collect::<Vec<_>>().join("; ")
        };
        let name = found.name();
        match &found {
            Relation::SameMemory { chain } => format!("{name}: {}", hops(chain)),
            Relation::Ordered { path, .. } => format!("{name}: {}", hops(path)),
            Relation::InTurn { there, back } => format!("{name}: {} | {}", hops(there), hops(back)),
            Relation::Exclusive { node } => format!("{name}: {node}"),
            Relation::Apart { wrong, .. } => format!("{name}: {}", steps(wrong)),
            Relation::Unordered { right, wrong, .. } => {
                format!("{name}: {} | {}", steps(right), steps(wrong))
            }
        }
    }

    const CHAIN: &str = "%x: float32[4] = Data()\n%a: float32[4] = Softmax(%x)\n\
                         %v: float32[2, 2] = Reshape(%a)\n%b: float32[2, 2] = Softmax(%v)\n\
                         %c: float32[2, 2] = Softmax(%b)\nNetOutput(%c) @results";

    #[test]
    fn a_view_is_one_memory() {
        assert_eq!(
            why(CHAIN, "a", "v"),
            "same-memory: output 0 of \"a\" -edge- input 0 of \"v\", input 0 of \"v\" -view- \
             output 0 of \"v\""
        );
    }

    /// `c` is `a` and `b` one behind the other, without a copy.
    const JOINED: &str = "%x: float32[4] = Data()\n%a: float32[4] = Softmax(%x)\n\
                          %b: float32[4] = Softmax(%x)\n\
                          %c: float32[8] = ConcatD(%a, %b) {_no_padding_continuous_input = true, \
                          _no_task = true, _output_reuse_input = true}\n\
                          %d: float32[8] = Softmax(%c)\n%e: float32[8] = Softmax(%d)\n\
                          NetOutput(%e) @results";

    #[test]
    fn a_piece_is_memory_of_the_whole_and_not_of_another_piece() {
        let piece = |i, of: &str| {
            format!(
                "same-memory: output 0 of \"{of}\" -edge- input {i} of \"c\", input {i} of \"c\" -piece- output 0 of \"c\""
            )
        };
        assert_eq!(why(JOINED, "a", "c"), piece(0, "a"));
        assert_eq!(why(JOINED, "b", "c"), piece(1, "b"));
        let expected = "apart: a writes a; b writes b over it; c reads a and finds b";
        assert_eq!(why(JOINED, "a", "b"), expected);
    }

    #[test]
    fn a_piece_is_needed_until_the_whole_has_been_read() {
        assert_eq!(why(JOINED, "b", "e"), "ordered: d -data- e");
        let expected = "apart: a; b writes b; c; d writes d over c (memory of b), which it reads";
        assert_eq!(why(JOINED, "b", "d"), expected);
    }

    #[test]
    fn what_is_read_before_the_other_is_written_is_ordered() {
        assert_eq!(why(CHAIN, "c", "a"), "ordered: b -data- c");
    }

    #[test]
    fn a_later_reader_keeps_them_apart() {
        let lines = "%x: float32[4] = Data()\n%a: float32[4] = Softmax(%x)\n\
                     %b: float32[4] = Softmax(%a)\n%c: float32[4] = Add(%a, %b)\n\
                     NetOutput(%c) @results";
        let expected = "apart: a writes a; b writes b over it; c reads a and finds b";
        assert_eq!(why(lines, "a", "b"), expected);
    }

    #[test]
    fn streams_without_an_edge_are_in_no_order() {
        let lines = "%x: float32[4] = Data()\n%a: float32[4] = Softmax(%x)\n\
                     %r: float32[4] = Softmax(%a)\n%b: float32[4] = Softmax(%x) stream 1\n\
                     %c: float32[4] = Softmax(%b) stream 1\nNetOutput(%r, %c) @results";
        assert_eq!(
            why(lines, "a", "b"),
            "unordered: a; r reads a; b writes b | a writes a; b writes b over it; r reads a and finds b"
        );
    }

    #[test]
    fn a_constant_is_read_again_in_the_next_run() {
        let lines = "%k: float32[4] = Const()\n%a: float32[4] = Softmax(%k)\n\
                     %b: float32[4] = Softmax(%a)\nNetOutput(%b) @results";
        assert_eq!(
            why(lines, "k", "b"),
            "apart: k holds k; a reads k; b writes b over it; a reads k in the next run and finds b"
        );
    }

    /// A loop with state `s`, a value `k` from outside that its body reads by name, and values of
    /// its own.
    const LOOP: &str = "%x: float32[4] = Data()\n%k: float32[4] = Softmax(%x)\n\
                        %w: float32[4] = While(%x)\n  cond ^c {\n    %s: float32[4] = Data()\n    \
                        %p: bool[] = Less(%s)\n    NetOutput(%p) @results\n  }\n  body ^b {\n    \
                        %s: float32[4] = Data()\n    %m: float32[4] = Add(%s, %k^g)\n    \
                        %u: float32[4] = Softmax(%m)\n    %q: float32[4] = Softmax(%u)\n    \
                        %t: float32[4] = Softmax(%q)\n    \
                        NetOutput(%t) @results\n  }\nNetOutput(%w) @results";

    #[test]
    fn what_a_loop_reads_by_name_is_read_in_its_last_pass() {
        assert_eq!(
            why(LOOP, "k", "b/u"),
            "apart: k writes k; w; c/p; c/results; b/m; b/u writes b/u over it; b/q; b/t; \
             b/results; c/p; c/results; b/m reads k and finds b/u"
        );
    }

    #[test]
    fn a_state_is_free_between_its_last_reader_and_the_next_state() {
        assert_eq!(
            why(LOOP, "b/s", "b/u"),
            "in-turn: b/m -data- b/u | b/q -data- b/t"
        );
    }

    #[test]
    fn a_state_is_kept_while_the_condition_is_looked_at() {
        assert_eq!(
            why(LOOP, "w", "c/p"),
            "apart: x holds x (memory of w); k; w; c/p writes c/p over it; c/results; results reads w \
             and finds c/p"
        );
    }

    #[test]
    fn of_two_branches_one_runs() {
        let lines = "%c: bool[] = Data()\n%x: float32[4] = Data()\n%y: float32[4] = If(%c)\n  \
                     then ^t {\n    %a: float32[4] = Softmax(%x^g)\n    \
                     %m: float32[4] = Softmax(%a)\n    %b: float32[4] = Softmax(%m)\n    \
                     NetOutput(%b) @results\n  }\n  else ^e {\n    \
                     %d: float32[4] = Softmax(%x^g)\n    %e: float32[4] = Softmax(%d)\n    \
                     NetOutput(%e) @results\n  }\nNetOutput(%y) @results";
        assert_eq!(why(lines, "t/a", "e/d"), "exclusive: y");
        // What becomes the result is no use of its memory before it is there.
        assert_eq!(why(lines, "t/a", "y"), "ordered: t/m -data- t/b");
        assert_eq!(why(lines, "x", "t/b"), "ordered: e/d -data- e/e");
    }

    #[test]
    fn behind_a_copy_stands_what_would_go_wrong_without_it() {
        let graph = graph(
            "%x: float32[4] = Relu()\n%w: float32[4] <ref_input = 0> = AddInplace(%x)\n\
             %r: float32[4] = Mul(%x, %w)",
        );
        let table = OpTable::builtin(Dialect::Ge);
        let guarded = crate::compile::run(&graph, &table, &crate::Options::default()).unwrap();
        let safe = guarded.graph(&graph);
        let why = Why::of(safe, &table).unwrap();
        let node = |label: &str| {
            let mut nodes = safe.nodes.keys();
            nodes.find(|&n| safe.node_label(n) == label).unwrap()
        };
        let steps = why.without_copy(node("w_value_copy"), "");
        let steps: Vec<String> = steps.unwrap().iter().map(ToString::to_string).collect();
        let expected = [
            "x writes x",
            "w_value_copy",
            "w writes w (memory of w_value_copy:0) over it",
            "r reads x and finds w",
        ];
        assert_eq!(steps, expected);
        assert_eq!(why.without_copy(node("r"), ""), None);
    }

    #[test]
    fn of_values_that_one_node_copies_each_has_a_schedule_of_its_own() {
        let graph = graph(
            "%x: float32[4] = Data()\n%y: float32[4] = Data() {index = 1}\n\
             %w: float32[4], %z: float32[4] = While(%x, %y) @w\n  cond ^c {\n    \
             %s: float32[4] = Data()\n    %p: bool[] = Less(%s)\n    NetOutput(%p) @results\n  }\n  \
             body ^b {\n    %s: float32[4] = Data() {parent_index = 0}\n    \
             %t: float32[4] = Data() {parent_index = 1}\n    %u: float32[4] = Add(%s, %t)\n    \
             %v: float32[4] = Mul(%s, %t)\n    NetOutput(%u, %v) @results\n  }\n\
             NetOutput(%w, %z) @results",
        );
        let table = OpTable::builtin(Dialect::Ge);
        let guarded = crate::compile::run(&graph, &table, &crate::Options::default()).unwrap();
        let safe = guarded.graph(&graph);
        let why = Why::of(safe, &table).unwrap();
        let mut copies = safe
            .nodes
            .keys()
            .filter(|&n| table.traits(safe, n).has(Trait::Copies));
        let copy = copies.find(|&n| safe.nodes[n].outputs.len() == 2).unwrap();
        let at = |i| format!("input {i} of \"b/results\"");
        let steps = [0, 1].map(|i| why.without_copy(copy, &at(i)).unwrap());
        for (steps, value) in steps.iter().zip(["b/s", "b/t"]) {
            let last = steps.last().unwrap();
            assert!(last.does.contains(value), "{steps:?}");
        }
    }

    #[test]
    fn what_meets_is_named_where_it_is_another_name() {
        let lines = "%k: bool[] = Data()\n%x: float32[4] = Data() {index = 1}\n\
                     %n: float32[4] = Neg(%x)\n%y: float32[4] = If(%k, %n)\n  then ^t {\n    \
                     %a: float32[4] = Data() {parent_index = 1}\n    \
                     %b: float32[4] = Softmax(%a)\n    NetOutput(%b) @results\n  }\n  \
                     else ^e {\n    %d: float32[4] = Softmax(%x^g)\n    \
                     %c: float32[4] = Softmax(%d)\n    NetOutput(%c) @results\n  }\n\
                     %z: float32[4] = Add(%n, %y)\nNetOutput(%z) @results";
        let graph = graph(lines);
        let table = OpTable::builtin(Dialect::Ge);
        let named = |name: &str| {
            let mut values = graph.values.keys();
            values.find(|&v| graph.value_label(v) == name).unwrap()
        };
        let why = Why::of(&graph, &table).unwrap();
        let [a, d] = ["t/a", "e/d"].map(named);
        let (Relation::Apart { meet, .. } | Relation::Unordered { meet, .. }) = why.relation(a, d)
        else {
            panic!("they meet");
        };
        assert_eq!(meet, [named("n"), d]);
        let Relation::Apart { meet, .. } = why.relation(d, a) else {
            panic!("they meet");
        };
        assert_eq!(meet, [d, named("n")]);
    }

    /// Two values on stream 0, between them in time nodes of two gears on stream 1; the first value is
    /// for one reader of each gear.
    fn geared(second: &str) -> String {
        let node = |name: &str, of: &str, gear: &str| {
            format!("%{name}: float32[4] = Softmax(%{of}) {{_batch_label = \"{gear}\"}} stream 1\n")
        };
        format!(
            "%x: float32[4] = Data()\n%a: float32[4] = Softmax(%x) stream 0\n{}{}\
             %b: float32[4] = Softmax(%x) after @g{second} stream 0\n\
             %c: float32[4] = Softmax(%b) stream 0\nNetOutput(%c, %g, %h) @results",
            node("g", "a", "one"),
            node("h", "a", "two"),
        )
    }

    #[test]
    fn what_a_gear_orders_is_ordered_in_its_runs_alone() {
        assert_eq!(
            why(&geared(""), "a", "b"),
            "unordered: a; h reads a; b writes b | a writes a; b writes b over it; h reads a and finds b"
        );
        assert_eq!(why(&geared(", @h"), "a", "b"), "ordered: h -wait- b");
    }

    #[test]
    fn of_two_gears_one_runs() {
        let found = why(&geared(""), "g", "h");
        assert_eq!(found, "exclusive: the choice between gears one and two");
    }

    #[test]
    fn a_stream_waits_for_another() {
        let lines = "%x: float32[4] = Data()\n%a: float32[4] = Softmax(%x) stream 1\n\
                     %b: float32[4] = Softmax(%a) stream 2\n%c: float32[4] = Softmax(%b) stream 2\n\
                     NetOutput(%c) @results";
        assert_eq!(why(lines, "a", "c"), "ordered: b -data- c");
        assert_eq!(why(lines, "x", "b"), "ordered: a -wait- b");
    }
}
