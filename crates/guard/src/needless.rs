//! Copies that nobody needs once all others stand.
//!
//! A stage cannot know what the stages after it will part: a copy before a branch is for nothing
//! when one inside is needed anyway. So each value that is copied is taken out alone, and where the
//! guard then makes do with fewer bytes or fewer copies, that is the program. A copy that holds what
//! a variable was at a moment stays.

use rustc_hash::FxHashSet;
use tenure_graph::effects::{OpClass, OpTable, Trait};
use tenure_graph::patch::Slot;
use tenure_graph::{Graph, NodeId};

use crate::Guarded;
use crate::error::GuardError;
use crate::finding::{Edited, Finding, Kind};
use crate::storage::{Anchor, Classes, in_order, reference};
use crate::work::Work;

const STAGE: &str = "needless";

/// Nodes that are looked at in all attempts together: in large programs copies are not tried.
const NODES_OF_ATTEMPTS: usize = 1 << 14;

/// How often a guarded program is guarded again at most.
const MOST_ROUNDS: usize = 8;

/// The stage that puts in order what others would part.
const ORDERING: &str = "values";

/// The guard, as far as it is asked here.
pub(crate) trait Guard {
    /// Runs all stages.
    fn all(&self, graph: &Graph) -> Result<Guarded, GuardError>;

    /// Runs stages alone, by name.
    fn stages(&self, names: &[&str], graph: &Graph) -> Result<Guarded, GuardError>;
}

/// Takes out the copies of a guarded program that the guard can do without.
///
/// # Errors
/// Those of `guard`.
pub(crate) fn take_out(
    given: &Graph,
    done: Guarded,
    table: &OpTable,
    guard: &impl Guard,
) -> Result<Guarded, GuardError> {
    let mut attempts = Attempts {
        labels: given.nodes.keys().map(|n| given.node_label(n)).collect(),
        left: NODES_OF_ATTEMPTS,
        table,
        guard,
    };
    let mut done = attempts.one_by_one(done)?;
    for _ in 0..MOST_ROUNDS {
        match attempts.once_more(&done)? {
            Some(more) => done = more,
            None => break,
        }
    }
    Ok(done)
}

/// What copies are tried with.
struct Attempts<'a, G> {
    /// The nodes that were there before the guard.
    labels: FxHashSet<String>,
    /// How many nodes may still be looked at.
    left: usize,
    table: &'a OpTable,
    guard: &'a G,
}

impl<G: Guard> Attempts<'_, G> {
    /// Guards a guarded program again. Copies of its own that stayed for what was around them may go
    /// now, or be parted among their readers, so that others go; and what copies have made possible
    /// is done, so that whoever guards the program once more finds nothing to do. `None` where
    /// nothing changes or copies would cost more.
    fn once_more(&mut self, done: &Guarded) -> Result<Option<Guarded>, GuardError> {
        let Some(graph) = &done.graph else {
            return Ok(None);
        };
        let Some(left) = self.left.checked_sub(graph.nodes.len()) else {
            return Ok(None);
        };
        self.left = left;
        // What is refused now stays as it is.
        let again = self.guard.all(graph).ok();
        let Some(again) = again.filter(|again| again.graph.is_some()) else {
            return Ok(None);
        };
        let mut more = done.clone();
        more.then_all(again);
        let more = self.one_by_one(more)?;
        let new = price(more.graph(graph), self.table);
        let old = price(graph, self.table);
        let is_no_worse = new == old || is_less(new, old);
        Ok(is_no_worse.then_some(more))
    }

    /// How many copies of the program stand before or behind one of the guard, and may go for that
    /// when it is asked again.
    fn doubled(&self, graph: &Graph) -> usize {
        let is_own = |n: NodeId| self.labels.contains(&graph.node_label(n));
        let copies = |n: NodeId| self.table.traits(graph, n).has(Trait::Copies);
        let all = graph.nodes.iter().filter(|&(id, _)| copies(id));
        let doubled = all.filter(|&(id, node)| {
            let mut read = node.inputs.iter().flatten();
            read.any(|&value| {
                let from = graph.values[value].producer;
                copies(from) && is_own(id) != is_own(from)
            })
        });
        doubled.count()
    }

    /// Takes out each value that is copied where the guard then does with less.
    fn one_by_one(&mut self, mut done: Guarded) -> Result<Guarded, GuardError> {
        let table = self.table;
        let Some(mut graph) = done.graph.take() else {
            return Ok(done);
        };
        let mut has_gained = true;
        while std::mem::take(&mut has_gained) && graph.nodes.len() <= self.left {
            for copied in copied(&graph, table, &self.labels)? {
                let Some(rest) = self.left.checked_sub(graph.nodes.len()) else {
                    break;
                };
                self.left = rest;
                let Some(without) = copied.taken_out(&graph, table)? else {
                    continue;
                };
                let old = price(&graph, table);
                let saves =
                    |again: &Guarded| is_less(price(again.graph(&without.graph), table), old);
                let found = done.findings.iter().find(|f| copied.is_about(f));
                let (kind, stage) = found.map_or((Kind::ReadWrite, ""), |f| (f.kind, f.stage));
                // Mostly the stage that made the copy makes it again, which is soon seen; but what
                // comes before it may do with order now.
                let tried = self.guard.stages(&[ORDERING, stage], &without.graph);
                // Where no other copy can stand, this one must.
                let Ok(tried) = tried else { continue };
                let doubled = self.doubled(&graph);
                let is_doubled =
                    |done: &Guarded| self.doubled(done.graph(&without.graph)) > doubled;
                if !saves(&tried) && !is_doubled(&tried) {
                    continue;
                }
                let Ok(mut again) = self.guard.all(&without.graph) else {
                    continue;
                };
                if !saves(&again)
                    && is_doubled(&again)
                    && let Ok(more) = self.guard.all(again.graph(&without.graph))
                {
                    again.then_all(more);
                }
                if !saves(&again) {
                    continue;
                }
                done.findings.retain(|f| !copied.is_about(f));
                let by_node = |f: &&mut Finding| f.by.as_deref() == Some(&*copied.node);
                for finding in done.findings.iter_mut().filter(by_node) {
                    finding.by.clone_from(&without.rest);
                }
                let edits = without.edits.into_iter();
                done.edits.extend(edits.map(|edit| Edited { kind, ..edit }));
                graph = again.graph(&without.graph).clone();
                done.then_all(again);
                has_gained = true;
            }
        }
        done.graph = Some(graph);
        Ok(done)
    }
}

/// One value that a node copies.
struct Copied {
    /// The label of the node: ids change with each attempt.
    node: String,
    /// Which of the values that it copies.
    slot: u32,
    /// Where a finding about the value may be, in words; empty if the node copies no other.
    places: Vec<String>,
}

/// A program in which a value is not copied.
struct Without {
    graph: Graph,
    edits: Vec<Edited>,
    /// The label of the node that copies the others, if there are any.
    rest: Option<String>,
}

impl Copied {
    /// Whether the copy repairs what was found.
    fn is_about(&self, finding: &Finding) -> bool {
        let is_here = self.places.is_empty() || self.places.contains(&finding.at);
        finding.by.as_ref() == Some(&self.node) && is_here
    }

    /// The program in which who read the copy reads the value; `None` if it is copied no more.
    fn taken_out(&self, graph: &Graph, table: &OpTable) -> Result<Option<Without>, GuardError> {
        let mut nodes = graph.nodes.keys();
        let Some(node) = nodes.find(|&n| graph.node_label(n) == self.node) else {
            return Ok(None);
        };
        let reason = "with the other copies nobody needs it";
        let mut work = Work::new(graph, table);
        let mut rest = None;
        if graph.nodes[node].outputs.len() > 1 {
            let others = work.copy_others(node, self.slot, reason)?;
            rest = Some(work.graph().node_label(others));
        }
        work.take_out(node, reason)?;
        let Guarded { graph, edits, .. } = work.guarded(Kind::ReadWrite, STAGE, Vec::new())?;
        Ok(graph.map(|graph| Without { graph, edits, rest }))
    }
}

/// The values that nodes copy which were put into a program, in order of execution: one in front of
/// a node comes before those inside it, which cost more where they run often.
fn copied(
    graph: &Graph,
    table: &OpTable,
    given: &FxHashSet<String>,
) -> Result<Vec<Copied>, GuardError> {
    let classes = Classes::build(graph, table, graph.root)?;
    let work = Work::new(graph, table);
    let mut copied = Vec::new();
    for id in in_order(graph, graph.root) {
        let node = graph.node_label(id);
        if !work.is_copy(id) || given.contains(&node) {
            continue;
        }
        let outputs = &graph.nodes[id].outputs;
        for (slot, output) in (0u32..).zip(outputs) {
            let readers = output.map_or(&[][..], |value| work.users(value));
            if is_moment(graph, table, &classes, id, slot) {
                continue;
            }
            let readers = readers.iter().map(|&(n, i)| Anchor::input(n, i));
            let read = graph.nodes[id].input(slot as usize);
            let ends = readers.chain(read.map(|value| Anchor::of(graph, value)));
            let places = match outputs.len() {
                1 => Vec::new(),
                _ => ends.map(|end| end.label(graph)).collect(),
            };
            copied.push(Copied {
                node: node.clone(),
                slot,
                places,
            });
        }
    }
    Ok(copied)
}

/// Whether a copy parts a variable from other memory, and one of the two is written.
fn is_moment(graph: &Graph, table: &OpTable, classes: &Classes, copy: NodeId, slot: u32) -> bool {
    let members = |class: usize| classes.lists[class].iter().map(|&m| classes.anchors[m]);
    let class_of = |m: Anchor| table.class(graph, m.node);
    let is_written = |m: Anchor| {
        let effects = table.effects(graph, m.node);
        match m.slot {
            Slot::In(i) => effects.spoils.contains(&i),
            // Memory with a second origin is written by it, as the state of a loop is; but what comes
            // out of a subgraph was made in there.
            Slot::Out(o) => {
                let is_made = || {
                    !matches!(
                        class_of(m),
                        OpClass::Variable | OpClass::Input | OpClass::Branch | OpClass::Call
                    )
                };
                effects.refs.iter().any(|alias| alias.output == o)
                    || m.node != copy && is_made() && reference(graph, table, m.node, o).is_none()
            }
        }
    };
    let from = classes.class_of(Anchor::input(copy, slot));
    let to = classes.class_of(Anchor::output(copy, slot));
    let (Some(from), Some(to)) = (from, to) else {
        return true;
    };
    let mut source = members(from);
    source.any(|m| m.is_output() && class_of(m) == OpClass::Variable)
        && members(from).chain(members(to)).any(is_written)
}

/// Whether copies cost less than others.
fn is_less(new: (u64, usize), old: (u64, usize)) -> bool {
    new.0 <= old.0 && new.1 <= old.1 && new != old
}

/// The bytes that copies move, each node once, and how many tensors they copy. What hands over an
/// address copies as well where the hardware cannot.
fn price(graph: &Graph, table: &OpTable) -> (u64, usize) {
    let moves = |&n: &NodeId| {
        let traits = table.traits(graph, n);
        traits.has(Trait::Copies) || traits.has(Trait::PassesAddress)
    };
    let mut price = (0u64, 0);
    let nodes = graph.nodes.keys().filter(moves);
    for value in nodes.flat_map(|n| graph.nodes[n].outputs.iter().flatten()) {
        price.0 = price.0.saturating_add(graph.bytes(*value).unwrap_or(0));
        price.1 += 1;
    }
    price
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::graph;
    use crate::{Options, compile};

    /// The labels of the copies of a guarded program.
    fn copies(lines: &str) -> Vec<String> {
        let graph = graph(lines);
        let table = OpTable::builtin(graph.dialect);
        let guarded = compile::run(&graph, &table, &Options::of(&graph)).unwrap();
        let safe = guarded.graph(&graph);
        let work = Work::new(safe, &table);
        let nodes = safe.nodes.keys().filter(|&n| work.is_copy(n));
        nodes.map(|n| safe.node_label(n)).collect()
    }

    /// Without a copy before the result one would have to stand before the copy at the border, which
    /// is then for nothing itself.
    #[test]
    fn a_copy_elsewhere_lets_one_of_the_program_go() {
        let lines = "%x: float32[4] = Relu()\n%y: float32[4] = PartitionedCall(%x)\n  \
                     partition ^p {\n    %d: float32[4] = Data()\n    \
                     %a: float32[4] = Add(%d, %d) {_no_padding_continuous_input = true}\n    \
                     %i: float32[4] = Identity(%d) {_input_memory_type = [18]}\n    \
                     %r: float32[4] = Relu(%i)\n    NetOutput(%d) @results\n  }\n\
                     NetOutput(%y) @results";
        let expected = [
            "p/identity_0_a_MemLayoutConflict",
            "p/identity_1_a_MemLayoutConflict",
        ];
        assert_eq!(copies(lines), expected);
    }

    /// What copies a copy is the copy that stands at the border.
    #[test]
    fn of_two_copies_at_a_border_one_goes() {
        let lines = "%x: float32[4] = Relu()\n%w: float32[4], %v: float32[4] = While(%x, %x)\n  \
                     cond ^c {\n    %s: float32[4] = Data()\n    %t: float32[4] = Data()\n    \
                     %p: bool[] = Less(%s)\n    NetOutput(%p) @results\n  }\n  \
                     body ^b {\n    %s: float32[4] = Data()\n    %t: float32[4] = Data()\n    \
                     %i: float32[4] = Identity(%t)\n    %r: float32[4] = Relu(%s)\n    \
                     NetOutput(%i, %t) @results\n  }\nNetOutput(%w, %v) @results";
        let of_body = copies(lines).into_iter().filter(|n| n.starts_with("b/"));
        assert_eq!(
            of_body.collect::<Vec<_>>(),
            ["b/b_output_MemLayoutConflict"]
        );
    }

    /// A loop that keeps a variable hands on the variable, which another loop may not work in.
    #[test]
    fn behind_a_loop_that_keeps_it_a_variable_is_one_still() {
        let loop_of = |name: &str, given: &str, result: &str| {
            format!(
                "%{name}: float32[4] = While({given})\n  cond ^c{name} {{\n    \
                 %s: float32[4] = Data()\n    %p: bool[] = Less(%s)\n    NetOutput(%p) @results\n  \
                 }}\n  body ^b{name} {{\n    %s: float32[4] = Data()\n    \
                 %t: float32[4] = Relu(%s)\n    NetOutput({result}) @results\n  }}\n"
            )
        };
        let lines = format!(
            "%v: float32[4] = Variable()\n{}{}NetOutput(%v) @results",
            loop_of("k", "%v", "%s"),
            loop_of("w", "%k", "%t")
        );
        let graph = graph(&lines);
        let table = OpTable::builtin(graph.dialect);
        let guarded = compile::run(&graph, &table, &Options::of(&graph)).unwrap();
        let safe = guarded.graph(&graph);
        let node = |label: &str| {
            let mut nodes = safe.nodes.keys();
            nodes.find(|&n| safe.node_label(n) == label).unwrap()
        };
        let classes = Classes::build(safe, &table, safe.root).unwrap();
        let state = Anchor::output(node("bw/s"), 0);
        assert!(!classes.same(Anchor::output(node("v"), 0), state));
    }
}
