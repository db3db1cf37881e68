//! What control flow lets meet in one memory: the results of branches, the states of loops, the
//! inputs of merges.
//!
//! All branches of a node write the same result, so a branch that merely hands on what it was given
//! would make the memory of two different values one. A loop keeps each state in one memory, so the
//! new state may be written there only when nobody still reads the old one. A copy before the
//! results parts them; where states change places, another copy takes the old ones out first.

use rustc_hash::{FxHashMap, FxHashSet};
use tenure_graph::control::result_index;
use tenure_graph::effects::{OpClass, OpTable, Trait};
use tenure_graph::patch::Slot;
use tenure_graph::{Graph, NodeId, SubgraphId, ValueId};

use crate::Guarded;
use crate::error::GuardError;
use crate::finding::{Finding, Kind};
use crate::storage::{
    Anchor, Joined, SOURCE_VARIABLE, Within, in_order, is_condition, outer_input, result_of,
};
use crate::work::Work;

pub(crate) const STAGE: &str = "control-flow";

/// Frees the subgraphs that `tops` names, and everything below them, of what their control flow lets
/// meet.
///
/// The innermost come first: what a copy has parted inside needs none around it.
///
/// # Errors
/// Where the graph contradicts itself.
pub fn isolate(
    graph: &Graph,
    table: &OpTable,
    tops: fn(&Graph) -> Vec<SubgraphId>,
) -> Result<Guarded, GuardError> {
    let mut done = Guarded::default();
    let deepest = graph.subgraphs.keys().map(|s| graph.depth(s)).max();
    let mut levels = (0..=deepest.unwrap_or(0)).rev().peekable();
    while levels.peek().is_some() {
        let now = done.graph(graph);
        let next = down_to_a_copy(now, table, &tops(now), &mut levels)?;
        done.then(next);
    }
    Ok(done)
}

/// Looks at the nodes of one level after the other, up to one where copies were made.
fn down_to_a_copy(
    graph: &Graph,
    table: &OpTable,
    tops: &[SubgraphId],
    levels: &mut impl Iterator<Item = usize>,
) -> Result<Guarded, GuardError> {
    let joined = match graph.subgraphs.len() {
        1 => Joined::default(),
        _ => Joined::of(graph, table)?,
    };
    let mut pass = Pass {
        graph,
        joined: &joined,
        work: Work::new(graph, table),
        findings: Vec::new(),
    };
    let mut by_level: Vec<Vec<(NodeId, SubgraphId)>> = Vec::new();
    for &top in tops {
        for node in in_order(graph, top) {
            let level = graph.depth(graph.nodes[node].subgraph);
            by_level.resize(by_level.len().max(level + 1), Vec::new());
            by_level[level].push((node, top));
        }
    }
    for level in levels {
        for &(node, top) in by_level.get(level).map_or(&[][..], Vec::as_slice) {
            match table.class(graph, node) {
                OpClass::Branch => {
                    for body in &graph.nodes[node].bodies {
                        pass.branch(body.graph)?;
                    }
                }
                OpClass::While => {
                    let bodies = graph.nodes[node].bodies.iter();
                    for body in bodies.filter(|b| !is_condition(graph, table, b.graph)) {
                        pass.loop_body(body.graph)?;
                    }
                }
                _ if table.traits(graph, node).has(Trait::Merges) => pass.merge(node, top)?,
                _ => {}
            }
        }
        if !pass.findings.is_empty() {
            break;
        }
    }
    pass.work
        .guarded(Kind::SubgraphIsolation, STAGE, pass.findings)
}

/// The inputs of a node.
fn inputs_of(graph: &Graph, node: NodeId) -> impl Iterator<Item = Anchor> + '_ {
    let slots = (0u32..).zip(&graph.nodes[node].inputs);
    slots.map(move |(i, _)| Anchor::input(node, i))
}

struct Pass<'a> {
    graph: &'a Graph,
    joined: &'a Joined,
    work: Work<'a>,
    findings: Vec<Finding>,
}

/// A result of a loop's body.
struct NewState {
    /// Which input of the body's output node.
    input: u32,
    /// Which state it becomes.
    state: u32,
    value: ValueId,
    class: usize,
}

impl Pass<'_> {
    /// Copies the results of a branch that it was merely given, and all but one of those that are
    /// one memory.
    fn branch(&mut self, body: SubgraphId) -> Result<(), GuardError> {
        let graph = self.graph;
        let Some(output) = graph.subgraphs[body].output else {
            return Ok(());
        };
        let results = inputs_of(graph, output);
        let joined = self.joined;
        let classes = joined.within(graph, body, results);
        let mut given: FxHashMap<usize, bool> = FxHashMap::default();
        let mut seen: FxHashMap<usize, u32> = FxHashMap::default();
        let mut copied = Vec::new();
        for (i, input) in (0u32..).zip(&graph.nodes[output].inputs) {
            let class = input.and_then(|_| classes.class_of(Anchor::input(output, i)));
            let Some(class) = class else { continue };
            let given = *given
                .entry(class)
                .or_insert_with(|| self.has_source(&classes, class, body));
            if given {
                let harm = "the branch gives back memory that it was given, and all branches \
                            write the same result";
                self.note(
                    Kind::BranchMapping,
                    "branch-returns-input",
                    Anchor::input(output, i),
                    harm,
                );
                copied.push(i);
            } else if let Some(first) = seen.insert(class, i) {
                seen.insert(class, first);
                let harm = "the branch gives back one memory as two results";
                self.note(
                    Kind::BranchMapping,
                    "branch-returns-twice",
                    Anchor::input(output, i),
                    harm,
                );
                copied.push(i);
            }
        }
        if copied.is_empty() {
            return Ok(());
        }
        let name = format!("{}_results_MemLayoutConflict", graph.subgraphs[body].name);
        let reason = "results that a branch was given, or gives twice, are copied";
        let copy = self.work.copy_before(output, &copied, &name, reason)?;
        self.done_by(copied.len(), copy);
        Ok(())
    }

    /// Says of the last findings which node repairs them.
    fn done_by(&mut self, findings: usize, node: NodeId) {
        let label = self.work.graph().node_label(node);
        for finding in self.findings.iter_mut().rev().take(findings) {
            finding.by = Some(label.clone());
        }
    }

    fn note(&mut self, kind: Kind, rule: &'static str, at: Anchor, harm: &str) {
        self.findings.push(Finding {
            kind,
            stage: STAGE,
            rule,
            at: at.label(self.graph),
            with: String::new(),
            harm: harm.to_owned(),
            repair: "copied".to_owned(),
            by: None,
            bytes: self.work.bytes(at),
        });
    }

    /// Whether a class of a body holds what the body was given: an input, a constant, a variable, or
    /// what it reads by name from around it.
    fn has_source(&self, classes: &Within<'_>, class: usize, body: SubgraphId) -> bool {
        let (graph, table) = (self.graph, self.work.table);
        let mut members = classes.members(class);
        let is_outside = |v: ValueId| !classes.holds(Anchor::of(graph, v));
        members.any(|member| {
            if !member.is_output() {
                return member.value(graph).is_some_and(is_outside);
            }
            let node = &graph.nodes[member.node];
            let is_given = match table.class(graph, member.node) {
                OpClass::Input => node.subgraph == body,
                OpClass::Constant | OpClass::Variable => true,
                _ => false,
            };
            let hints = member
                .value(graph)
                .and_then(|v| graph.values[v].hints.as_ref());
            let named = hints.is_some_and(|h| h.attrs.get(SOURCE_VARIABLE).is_some());
            is_given || named || node.attrs.get(SOURCE_VARIABLE).is_some()
        })
    }

    /// Copies new states that cannot be written where the old ones lie.
    fn loop_body(&mut self, body: SubgraphId) -> Result<(), GuardError> {
        let (graph, table) = (self.graph, self.work.table);
        let Some(output) = graph.subgraphs[body].output else {
            return Ok(());
        };
        let states = graph.subgraphs[body].inputs.iter();
        let states = states.map(|&data| Anchor::output(data, 0));
        let anchors = states.chain(inputs_of(graph, output));
        let joined = self.joined;
        let classes = joined.within(graph, body, anchors);
        // The class that each state has when the body begins.
        let mut old: FxHashMap<u32, usize> = FxHashMap::default();
        let mut state_of: FxHashMap<usize, u32> = FxHashMap::default();
        for &data in &graph.subgraphs[body].inputs {
            let state = outer_input(graph, table, data);
            let class = classes.class_of(Anchor::output(data, 0));
            if let (Some((_, state)), Some(class)) = (state, class) {
                old.insert(state, class);
                state_of.entry(class).or_insert(state);
            }
        }
        let mut new: Vec<NewState> = Vec::new();
        for (i, value) in (0u32..).zip(&graph.nodes[output].inputs) {
            let state = result_index(graph, Some(output), i as usize);
            let class = classes.class_of(Anchor::input(output, i));
            if let (Some(value), Some(class), Ok(state)) = (*value, class, u32::try_from(state)) {
                new.push(NewState {
                    input: i,
                    state,
                    value,
                    class,
                });
            }
        }
        let kept: FxHashSet<u32> = (new.iter())
            .filter(|n| old.get(&n.state) == Some(&n.class))
            .map(|n| n.state)
            .collect();
        let mut seen: FxHashSet<usize> = FxHashSet::default();
        let mut copied: Vec<&NewState> = Vec::new();
        for state in new.iter().filter(|n| !kept.contains(&n.state)) {
            let harm = if state_of.contains_key(&state.class) {
                "another state's memory would become this state's"
            } else if self.has_source(&classes, state.class, body) {
                "a constant, a variable or memory from around the loop would be the state's"
            } else if self.is_read_too_late(&classes, body, old.get(&state.state), state.class) {
                "the new state is written while the old one is still read"
            } else if !seen.insert(state.class) {
                "one memory would be two states"
            } else {
                continue;
            };
            copied.push(state);
            let at = Anchor::input(output, state.input);
            self.note(Kind::SubgraphIsolation, "loop-state-overwritten", at, harm);
        }
        if copied.is_empty() {
            return Ok(());
        }
        let (copied, taken_out) = in_turn(&copied, &old);
        let name = &graph.subgraphs[body].name;
        let inputs: Vec<u32> = copied.iter().map(|n| n.input).collect();
        let reason = "new states are written when the old ones are read";
        let copy_name = format!("{name}_output_MemLayoutConflict");
        let copy = self.work.copy_before(output, &inputs, &copy_name, reason)?;
        self.done_by(copied.len(), copy);
        for class in copied.iter().filter_map(|n| old.get(&n.state)) {
            for reader in self.readers(&classes, *class, body) {
                if reader != output {
                    self.work.order(reader, copy, "it reads the old state")?;
                }
            }
        }
        if !taken_out.is_empty() {
            let mut places: FxHashMap<ValueId, usize> = FxHashMap::default();
            let mut outputs: Vec<(ValueId, Vec<(NodeId, u32)>)> = Vec::new();
            for (slot, state) in (0u32..).zip(&copied) {
                if taken_out.contains(&state.input) {
                    let place = *places.entry(state.value).or_insert(outputs.len());
                    if place == outputs.len() {
                        outputs.push((state.value, Vec::new()));
                    }
                    outputs[place].1.push((copy, slot));
                }
            }
            let name = format!("{name}_input_MemLayoutConflict");
            let reason = "states that change places are taken out before they are written";
            for &(value, _) in &outputs {
                let at = Anchor::of(self.work.graph(), value);
                let rule = "loop-states-change-places";
                let harm = "a state is written while another is still to be made of it";
                self.note(Kind::SubgraphIsolation, rule, at, harm);
            }
            let first = self.work.copy_behind(&outputs, &name, reason)?;
            self.done_by(outputs.len(), first);
        }
        Ok(())
    }

    /// Nodes of `body` that read a class, or run what reads it.
    fn readers(&self, classes: &Within<'_>, class: usize, body: SubgraphId) -> Vec<NodeId> {
        let graph = self.graph;
        let members = classes.members(class);
        let readers = members.filter(|m| !m.is_output() && m.value(graph).is_some());
        let mut readers: Vec<NodeId> = readers.filter_map(|m| graph.around(m.node, body)).collect();
        readers.sort_unstable();
        readers.dedup();
        readers
    }

    /// Whether some reader of the old state is not certain to have ended when the first node that
    /// writes the new one starts.
    fn is_read_too_late(
        &self,
        classes: &Within<'_>,
        body: SubgraphId,
        old: Option<&usize>,
        new: usize,
    ) -> bool {
        let graph = self.graph;
        let Some(&old) = old else { return false };
        let readers = self.readers(classes, old, body);
        if readers.is_empty() {
            return false;
        }
        let members = classes.members(new);
        let writers = members.filter(|m| m.is_output());
        let writers = writers.filter_map(|m| graph.around(m.node, body));
        let Some(writer) = writers.min_by_key(|&n| self.work.position(n)) else {
            return true;
        };
        let first = readers.iter().map(|&n| self.work.position(n)).min();
        let before = self.work.ancestors(writer, first.unwrap_or(0));
        readers.iter().any(|&reader| {
            let in_turn = reader == writer && self.copies_in_turn(writer, classes, old, new);
            !before.contains(&reader) && !in_turn
        })
    }

    /// Whether a node copies one value after the other, and reads all of one class before it writes
    /// the other.
    fn copies_in_turn(&self, node: NodeId, classes: &Within<'_>, old: usize, new: usize) -> bool {
        let of = |class: usize, is_output: bool| {
            let members = classes.members(class);
            let slots = members.filter(move |m| m.node == node && m.is_output() == is_output);
            slots.map(|m| match m.slot {
                Slot::In(i) | Slot::Out(i) => i,
            })
        };
        self.work.is_copy(node) && of(old, false).max() < of(new, true).min()
    }

    /// Copies inputs of a merge that come from a constant, a variable or the caller's input:
    /// whoever writes the merged memory may not write there.
    fn merge(&mut self, node: NodeId, top: SubgraphId) -> Result<(), GuardError> {
        let graph = self.graph;
        let inputs = (0u32..).zip(&graph.nodes[node].inputs);
        let connected: Vec<(u32, ValueId)> = inputs.filter_map(|(i, v)| Some((i, (*v)?))).collect();
        if connected.len() < 2 {
            return Ok(());
        }
        for (i, value) in connected {
            let origin = self.origin(value).node;
            let is_source = match self.work.table.class(graph, origin) {
                OpClass::Constant | OpClass::Variable => true,
                OpClass::Input => graph.nodes[origin].subgraph == top,
                _ => false,
            };
            if is_source && !self.work.is_copied_before(node, i) {
                let harm = "whoever writes the merged memory would write a constant, a variable \
                            or the caller's input";
                let at = Anchor::input(node, i);
                self.note(Kind::BranchMapping, "merge-of-source", at, harm);
                let name = format!("{}_input_{i}_MemLayoutConflict", graph.nodes[node].name);
                let copy = self
                    .work
                    .copy_before(node, &[i], &name, "a merged source is copied")?;
                self.done_by(1, copy);
            }
        }
        Ok(())
    }

    /// Where a value's memory comes from, through references and partitions.
    fn origin(&self, value: ValueId) -> Anchor {
        let (graph, table) = (self.graph, self.work.table);
        let mut value = value;
        // Each step goes up a reference, out of a subgraph or into one, so it ends; the bound is
        // for graphs that contradict themselves.
        for _ in 0..graph.values.len() {
            let made = self.work.real_producer(value);
            let class = table.class(graph, made.node);
            let next = match class {
                OpClass::Input => outer_input(graph, table, made.node)
                    .and_then(|(owner, i)| graph.nodes[owner].input(i as usize)),
                OpClass::Call => inner_result(graph, made),
                _ => None,
            };
            match next {
                Some(next) => value = next,
                None => return made,
            }
        }
        Anchor::of(graph, value)
    }
}

/// The copies of new states in an order in which each old state is read before it is written, when
/// they are made one after the other; and which of them have to read old states that were taken out
/// before, by their inputs: where states change places in a circle, one is.
fn in_turn<'a>(
    copied: &[&'a NewState],
    old: &FxHashMap<u32, usize>,
) -> (Vec<&'a NewState>, FxHashSet<u32>) {
    let written = |n: &NewState| old.get(&n.state).copied();
    let mut readers: FxHashMap<usize, Vec<usize>> = FxHashMap::default();
    let mut writer: FxHashMap<usize, usize> = FxHashMap::default();
    for (k, state) in copied.iter().enumerate() {
        readers.entry(state.class).or_default().push(k);
        if let Some(class) = written(state) {
            writer.insert(class, k);
        }
    }
    let count = |class| readers.get(&class).map_or(0, Vec::len);
    // How many have still to read what each writes.
    let mut left: Vec<usize> = (copied.iter())
        .map(|n| written(n).map_or(0, count))
        .collect();
    let mut ready: Vec<usize> = (0..copied.len()).rev().filter(|&k| left[k] == 0).collect();
    let mut done = vec![false; copied.len()];
    let mut has_read = vec![false; copied.len()];
    let mut order = Vec::with_capacity(copied.len());
    let mut taken_out = FxHashSet::default();
    let mut next = 0;
    loop {
        while let Some(k) = ready.pop() {
            done[k] = true;
            order.push(copied[k]);
            if !std::mem::replace(&mut has_read[k], true)
                && let Some(&w) = writer.get(&copied[k].class)
            {
                left[w] -= 1;
                if left[w] == 0 {
                    ready.push(w);
                }
            }
        }
        while done.get(next) == Some(&true) {
            next += 1;
        }
        if next == copied.len() {
            return (order, taken_out);
        }
        // All that are left wait for others: back over these to one that is met twice.
        let waits_for = |k: usize| {
            let all = written(copied[k]).and_then(|class| readers.get(&class));
            let mut all = all.into_iter().flatten().copied();
            all.find(|&r| !has_read[r]).unwrap_or(k)
        };
        let mut met: FxHashSet<usize> = FxHashSet::default();
        let mut k = next;
        while met.insert(k) {
            k = waits_for(k);
        }
        let class = written(copied[k]);
        for &r in class
            .and_then(|class| readers.get(&class))
            .into_iter()
            .flatten()
        {
            if !std::mem::replace(&mut has_read[r], true) {
                taken_out.insert(copied[r].input);
            }
        }
        left[k] = 0;
        ready.push(k);
    }
}

/// The value inside a partition that becomes its output.
fn inner_result(graph: &Graph, made: Anchor) -> Option<ValueId> {
    let Slot::Out(o) = made.slot else {
        return None;
    };
    result_of(graph, graph.nodes[made.node].bodies.first()?.graph, o)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::graph;
    use tenure_graph::Dialect;

    /// The rules that a program breaks.
    fn rules(lines: &str) -> Vec<&'static str> {
        let graph = graph(lines);
        let table = OpTable::builtin(Dialect::Ge);
        let found = isolate(&graph, &table, |graph| vec![graph.root]).unwrap();
        found.findings.iter().map(|f| f.rule).collect()
    }

    #[test]
    fn what_a_body_reads_by_name_is_no_result_of_its_own() {
        let branch = |result: &str| {
            let lines = format!(
                "%c: bool[] = Data()\n%x: float32[4] = Relu(%c)\n%y: float32[4] = If(%c)\n  \
                 then ^t {{\n    {result}\n    NetOutput(%r) @results\n  }}\n  else ^e {{\n    \
                 %e: float32[4] = Relu(%x^g)\n    NetOutput(%e) @results\n  }}\n\
                 NetOutput(%y) @results"
            );
            rules(&lines)
        };
        assert_eq!(branch("%r: float32[4] = Relu(%x^g)"), [""; 0]);
        assert_eq!(
            branch("%r: float32[4] = Reshape(%x^g)"),
            ["branch-returns-input"]
        );
        let state = "%x: float32[4] = Data()\n%k: float32[4] = Relu(%x)\n\
                     %w: float32[4] = While(%x)\n  cond ^c {\n    %s: float32[4] = Data()\n    \
                     %p: bool[] = Less(%s)\n    NetOutput(%p) @results\n  }\n  body ^b {\n    \
                     %s: float32[4] = Data()\n    NetOutput(%k^g) @results\n  }\n\
                     NetOutput(%w) @results";
        assert_eq!(rules(state), ["loop-state-overwritten"]);
    }
}
