//! In-place merging: an output takes over the memory of an input where nobody can tell.
//!
//! A node says which outputs it can write over which inputs (`_output_inplace_ability`). The pairs
//! are filtered by what the reference looks at ([`candidates`]), then each is judged against the
//! memory as it is after the merges before it, the one that saves most first: the input's memory
//! must be nobody's to keep, the node must come after everybody else who uses it, and nothing that
//! the two memories are asked for may clash. One that is declined is reported with the bytes lost,
//! and takes back none before it.

use rustc_hash::{FxHashMap, FxHashSet};
use std::cmp::Reverse;
use tenure_graph::effects::demands::{IN_PLACE_ABILITY, must_be_zero};
use tenure_graph::effects::{OpClass, OpTable};
use tenure_graph::patch::Edit;
use tenure_graph::{Attr, Graph, NodeId, StreamId};

use crate::Guarded;
use crate::error::GuardError;
use crate::finding::{Finding, Kind};
use crate::layout::analysed;
use crate::layout::attributes::{CONTIGUOUS_OUTPUT, PACKED_OUTPUT, Scope, Traits, flag};
use crate::layout::may_clash;
use crate::options::Options;
use crate::storage::{Anchor, Classes, SOURCE_VARIABLE, in_order, reference};
use crate::work::Work;

const STAGE: &str = "in-place";

/// Rule of a finding that says why two tensors keep memory of their own.
pub(crate) const DECLINED: &str = "in-place-declined";

/// An output that may be written over an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Candidate {
    /// The node.
    pub node: NodeId,
    /// Which output.
    pub output: u32,
    /// Which input.
    pub input: u32,
}

/// What nodes say they can do, without what the readers of the same producer rule out: a later
/// reader, a reader on another stream, one that writes by reference.
///
/// # Errors
/// [`GuardError::Malformed`] for a pair that is none, or names an input or output that is not there.
pub fn candidates(graph: &Graph, table: &OpTable) -> Result<Vec<Candidate>, GuardError> {
    let work = Work::new(graph, table);
    let mut all = Vec::new();
    let mut last_of: FxHashMap<NodeId, Option<NodeId>> = FxHashMap::default();
    for node in in_order(graph, graph.root) {
        for (output, input) in stated(graph, node)? {
            let is_cleared = must_be_zero(&graph.nodes[node], output);
            let read = graph.nodes[node].input(input as usize);
            let last = read.and_then(|value| {
                let producer = graph.values[value].producer;
                let last = last_of.entry(producer);
                *last.or_insert_with(|| last_reader(&work, producer))
            });
            if !is_cleared && last == Some(node) {
                all.push(Candidate {
                    node,
                    output,
                    input,
                });
            }
        }
    }
    Ok(all)
}

/// The pairs that a node states.
fn stated(graph: &Graph, id: NodeId) -> Result<Vec<(u32, u32)>, GuardError> {
    let node = &graph.nodes[id];
    let Some(attr) = node.attrs.get(IN_PLACE_ABILITY) else {
        return Ok(Vec::new());
    };
    let malformed = |problem: String| GuardError::Malformed {
        at: format!("node {:?}", graph.node_label(id)),
        problem,
    };
    let Attr::List(pairs) = attr else {
        return Err(malformed(format!(
            "{IN_PLACE_ABILITY} is no list of pairs [output, input]"
        )));
    };
    let mut all = Vec::new();
    for pair in pairs {
        let numbers = pair.as_ints().unwrap_or_default();
        let numbers: Vec<u32> = numbers
            .iter()
            .filter_map(|&n| u32::try_from(n).ok())
            .collect();
        let [output, input] = numbers[..] else {
            return Err(malformed(format!(
                "{IN_PLACE_ABILITY} has something that is no pair [output, input]"
            )));
        };
        if node.output(output as usize).is_none() || node.input(input as usize).is_none() {
            let problem = format!(
                "{IN_PLACE_ABILITY} names output {output} and input {input}: one is not there"
            );
            return Err(malformed(problem));
        }
        all.push((output, input));
    }
    Ok(all)
}

/// The last of all who read what a node makes; `None` where they are on several streams, or one of
/// them writes by reference.
fn last_reader(work: &Work<'_>, producer: NodeId) -> Option<NodeId> {
    let graph = work.graph();
    let made = graph.nodes[producer].outputs.iter().flatten();
    let readers = || made.clone().flat_map(|&v| work.users(v)).map(|&(n, _)| n);
    let mut on: Option<StreamId> = stream(work, producer);
    let all_fit = readers().all(|reader| {
        let same = match (on, stream(work, reader)) {
            (Some(one), Some(other)) => one == other,
            _ => true,
        };
        on = on.or(stream(work, reader));
        same && !flag(&graph.nodes[reader].attrs, "reference")
    });
    let last = readers().max_by_key(|&reader| work.position(reader));
    last.filter(|_| all_fit)
}

/// The stream of a node; nodes that run nothing count as on the first, as the reference has them.
fn stream(work: &Work<'_>, node: NodeId) -> Option<StreamId> {
    let graph = work.graph();
    let runs = match work.table.class(graph, node) {
        OpClass::Input | OpClass::Constant | OpClass::Variable | OpClass::Output => {
            Some(StreamId::from_u32(0))
        }
        _ => None,
    };
    graph.nodes[node].stream.or(runs)
}

/// Merges what can be merged.
///
/// # Errors
/// As [`candidates`], and where the graph contradicts itself.
pub fn resolve(graph: &Graph, table: &OpTable, options: &Options) -> Result<Guarded, GuardError> {
    let mut candidates = candidates(graph, table)?;
    if candidates.is_empty() {
        return Ok(Guarded::default());
    }
    let saved = |c: &Candidate| {
        let value = graph.nodes[c.node].output(c.output as usize);
        value.and_then(|v| graph.bytes(v)).unwrap_or(0)
    };
    // A stable sort: of equal ones the earlier node, and of one node the pair that it names first.
    candidates.sort_by_key(|c| Reverse(saved(c)));
    let mut work = Work::new(graph, table);
    let mut memories = Vec::new();
    for top in analysed(graph) {
        let scope = Scope {
            graph,
            table,
            options,
            top,
        };
        memories.push(Memories::new(
            scope,
            &work,
            Classes::build(graph, table, top)?,
        ));
    }
    let mut findings = Vec::new();
    let mut taken: FxHashSet<(NodeId, bool, u32)> = FxHashSet::default();
    for candidate in candidates {
        let Candidate {
            node,
            output,
            input,
        } = candidate;
        if taken.contains(&(node, true, output)) || taken.contains(&(node, false, input)) {
            continue;
        }
        let judged = memories.iter_mut().find_map(|m| m.judge(&work, candidate));
        match judged.unwrap_or(Err("its memory is not planned here")) {
            Ok(()) => {
                taken.insert((node, true, output));
                taken.insert((node, false, input));
                let input = Some(input);
                let edit = Edit::Reuse {
                    node,
                    output,
                    input,
                };
                work.edit(&edit, "nobody else needs the input's memory any more")?;
            }
            Err(reason) => findings.push(Finding {
                kind: Kind::ReadWrite,
                stage: STAGE,
                rule: DECLINED,
                at: Anchor::output(node, output).label(graph),
                with: Anchor::input(node, input).label(graph),
                harm: reason.to_owned(),
                repair: String::new(),
                by: None,
                bytes: Some(saved(&candidate)),
            }),
        }
    }
    work.guarded(Kind::ReadWrite, STAGE, findings)
}

/// One memory after the merges so far.
#[derive(Clone, Default)]
struct Memory {
    /// What its anchors ask, each once.
    asks: FxHashSet<Traits>,
    /// The outputs that begin a content there.
    origins: Vec<Anchor>,
    /// It is an input, constant or variable, which stays as it is.
    is_kept: bool,
    /// Nodes that use it, without those that certainly come before another of the list.
    uses: Vec<NodeId>,
}

/// The memories of the part of a program that is analysed together.
struct Memories<'a> {
    scope: Scope<'a>,
    classes: Classes,
    of_class: Vec<Memory>,
    /// Which class a merged class is part of by now.
    part_of: FxHashMap<usize, usize>,
}

impl<'a> Memories<'a> {
    fn new(scope: Scope<'a>, work: &Work<'_>, classes: Classes) -> Self {
        let (graph, table) = (scope.graph, scope.table);
        let of_class = classes.lists.iter().map(|list| {
            let mut memory = Memory::default();
            for anchor in list.iter().map(|&m| classes.anchors[m]) {
                memory.asks.insert(scope.traits(&classes, anchor));
                let class = table.class(graph, anchor.node);
                match anchor.slot {
                    tenure_graph::patch::Slot::Out(o) => {
                        let kept = matches!(
                            class,
                            OpClass::Input | OpClass::Constant | OpClass::Variable
                        );
                        memory.is_kept |= kept;
                        // What a branch or partition gives is made inside.
                        let is_given = matches!(class, OpClass::Branch | OpClass::Call)
                            && !graph.nodes[anchor.node].bodies.is_empty();
                        if !is_given && reference(graph, table, anchor.node, o).is_none() {
                            memory.origins.push(anchor);
                        }
                    }
                    tenure_graph::patch::Slot::In(_) => memory.uses.push(anchor.node),
                }
            }
            memory.uses.sort_by_key(|&n| work.position(n));
            memory.uses.dedup();
            memory
        });
        let of_class = of_class.collect();
        Memories {
            scope,
            classes,
            of_class,
            part_of: FxHashMap::default(),
        }
    }

    fn class(&self, anchor: Anchor) -> Option<usize> {
        let mut class = self.classes.class_of(anchor)?;
        while let Some(&larger) = self.part_of.get(&class) {
            class = larger;
        }
        Some(class)
    }

    /// Merges a candidate's two memories, or says why not; `None` where it is not among them.
    fn judge(&mut self, work: &Work<'_>, candidate: Candidate) -> Option<Result<(), &'static str>> {
        let Candidate {
            node,
            output,
            input,
        } = candidate;
        let made = Anchor::output(node, output);
        let from = self.class(Anchor::input(node, input))?;
        let to = self.class(made)?;
        if from == to {
            return Some(Err("they are one memory already"));
        }
        if let Err(reason) = self.allows(work, candidate, from, to) {
            return Some(Err(reason));
        }
        let new = std::mem::take(&mut self.of_class[to]);
        let memory = &mut self.of_class[from];
        memory.asks.extend(new.asks);
        // Everybody else is certain to come before the node.
        memory.uses = vec![node];
        memory.uses.extend(new.uses);
        self.part_of.insert(to, from);
        Some(Ok(()))
    }

    fn allows(
        &self,
        work: &Work<'_>,
        candidate: Candidate,
        from: usize,
        to: usize,
    ) -> Result<(), &'static str> {
        let graph = self.scope.graph;
        let node = &graph.nodes[candidate.node];
        let (old, new) = (&self.of_class[from], &self.of_class[to]);
        let made = Anchor::output(candidate.node, candidate.output);
        let (Some(read), Some(written)) = (
            node.input(candidate.input as usize),
            node.output(candidate.output as usize),
        ) else {
            return Err("there is no such input or output");
        };
        let bytes = graph.bytes(written);
        let hints = graph.values[written].hints.as_ref();
        if bytes.is_none() || bytes != graph.bytes(read) {
            return Err("input and output differ in size");
        }
        if old.is_kept {
            return Err("the input is the caller's, a constant or a variable");
        }
        if flag(&node.attrs, CONTIGUOUS_OUTPUT) || flag(&node.attrs, PACKED_OUTPUT) {
            return Err("the outputs must lie side by side");
        }
        if hints.is_some_and(|h| h.attrs.get(SOURCE_VARIABLE).is_some()) {
            return Err("the output is a variable's memory");
        }
        if graph.home(read) != node.subgraph {
            return Err("the input is made outside the subgraph, which may run again");
        }
        let is_alone = |&origin: &Anchor| {
            origin == made || are_alternatives(&self.scope, origin.node, candidate.node)
        };
        if !new.origins.iter().all(is_alone) {
            return Err("others write the output's memory, too");
        }
        let is_over = |&user: &NodeId| {
            let earlier = work.position(user) < work.position(candidate.node);
            let stream = graph.nodes[user].stream;
            let in_line = earlier
                && stream.is_some()
                && stream == node.stream
                && graph.nodes[user].subgraph == node.subgraph;
            user == candidate.node || in_line || work.is_before(user, candidate.node)
        };
        if !old.uses.iter().all(is_over) {
            return Err("somebody may still use the input's memory afterwards");
        }
        let clash = |a: &Traits| new.asks.iter().any(|b| may_clash(a, b));
        if old.asks.iter().any(clash) {
            return Err("the two memories are asked for what one cannot be");
        }
        Ok(())
    }
}

/// Whether two nodes are in two bodies of which one runs.
fn are_alternatives(scope: &Scope<'_>, one: NodeId, other: NodeId) -> bool {
    let graph = scope.graph;
    let bodies = |node: NodeId| {
        let first = graph.nodes[node].subgraph;
        std::iter::successors(Some(first), |&s| graph.enclosing(s))
    };
    bodies(one).any(|body| {
        let owner = graph.subgraphs[body].owner;
        owner.is_some_and(|owner| {
            scope.table.class(graph, owner) == OpClass::Branch
                && bodies(other).any(|s| s != body && graph.subgraphs[s].owner == Some(owner))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{graph, report};

    #[test]
    fn outputs_take_over_what_nobody_needs() {
        let cases = [
            (
                "a chain",
                "%x: float32[4] = Relu()\n%a: float32[4] = Relu(%x) {_output_inplace_ability = [[0, 0]]}\n%b: float32[4] = Relu(%a) {_output_inplace_ability = [[0, 0]]}",
            ),
            (
                "another stream still reads",
                "%x: float32[4] = Relu()\n%r: float32[4] = Relu(%x) stream 1\n%a: float32[4] = Relu(%x) {_output_inplace_ability = [[0, 0]]}",
            ),
            (
                "the caller's input, then another",
                "%x: float32[4] = Data()\n%y: float32[4] = Relu()\n%a: float32[4] = Add(%x, %y) {_output_inplace_ability = [[0, 0], [0, 1]]}",
            ),
            (
                "no such input",
                "%x: float32[4] = Relu()\n%a: float32[4] = Relu(%x) {_output_inplace_ability = [[0, 3]]}",
            ),
        ];
        insta::assert_snapshot!(report(resolve, &Options::default(), &cases));
    }

    #[test]
    fn who_declines_says_why_and_what_it_costs() {
        let graph = graph(
            "%x: float32[4] = Data()\n%a: float32[4] = Relu(%x) {_output_inplace_ability = [[0, 0]]}",
        );
        let table = OpTable::builtin(graph.dialect);
        let done = resolve(&graph, &table, &Options::default()).unwrap();
        let [finding] = &done.findings[..] else {
            panic!("{:?}", done.findings);
        };
        assert_eq!(finding.bytes, Some(16));
        assert_eq!(
            finding.harm,
            "the input is the caller's, a constant or a variable"
        );
    }
}
