//! A value is a value: what a reader of a value sees is what its producer wrote, whatever later
//! nodes do in that memory.
//!
//! Of all who use one version of a memory, at most one may write it, and it must come last. The
//! others are put before it by edges where that makes no circle; a further writer works on a copy,
//! and so does the only one when somebody must read after it. State is the exception: a variable's
//! readers see what was last written before them, so nothing is done about it here.
//!
//! Nodes with subgraphs count as what happens inside them; what a subgraph is given is looked at
//! again among the nodes inside. The innermost come first: who works on a copy inside does not write
//! what the subgraph was given, so that no copy is needed outside.

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::collections::hash_map::Entry;
use tenure_graph::effects::{OpClass, OpTable, pieces};
use tenure_graph::{Graph, NodeId, ValueId};

use crate::Guarded;
use crate::error::GuardError;
use crate::finding::Kind;
use crate::options::Options;
use crate::passes::Pass;
use crate::read_write::{InputType, Types};
use crate::state::variable_of;
use crate::storage::{in_order, is_condition, outer_input, reference, result_of};

/// Puts readers before writers, and copies where that cannot be.
///
/// # Errors
/// When an edit does not fit.
pub fn resolve(graph: &Graph, table: &OpTable, options: &Options) -> Result<Guarded, GuardError> {
    let mut done = Guarded::default();
    let deepest = graph.subgraphs.keys().map(|s| graph.depth(s)).max();
    let mut levels = (0..=deepest.unwrap_or(0)).rev().peekable();
    while levels.peek().is_some() {
        let next = down_to_a_copy(done.graph(graph), table, options, &mut levels)?;
        done.then(next);
    }
    Ok(done)
}

/// Looks at the subgraphs of one level after the other, up to one where copies were made: what
/// nodes around it do to their inputs is another matter then.
fn down_to_a_copy(
    graph: &Graph,
    table: &OpTable,
    options: &Options,
    levels: &mut impl Iterator<Item = usize>,
) -> Result<Guarded, GuardError> {
    let types = Types::of(graph, table, options)?;
    let mut pass = Pass::new(graph, table, Kind::ReadWrite, "values");
    let names = pass.names(&types);
    let mut by_level: Vec<Vec<NodeId>> = Vec::new();
    for node in in_order(graph, graph.root) {
        let level = graph.depth(graph.nodes[node].subgraph);
        by_level.resize(by_level.len().max(level + 1), Vec::new());
        by_level[level].push(node);
    }
    for level in levels {
        for &node in by_level.get(level).map_or(&[][..], Vec::as_slice) {
            for &value in graph.nodes[node].outputs.iter().flatten() {
                // A version begins where its memory is written, or handed into a subgraph.
                if !names.views.contains(&value) && names.is_written(value) {
                    pass.version(&types, &names, value, options)?;
                }
            }
        }
        if pass.has_found() {
            break;
        }
    }
    pass.done()
}

/// How many of the writers of a version are looked at in vain for one that comes last, from the last
/// in the order of the file: if these cannot, others hardly can, and a copy is always right.
const CANDIDATES: usize = 8;

/// Of a version that is used in more pieces than this, all are taken to be used by each.
const MOST_PIECES: usize = 1 << 12;

/// One use of a version: the node, the input, what it does, and where.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Use {
    node: NodeId,
    input: u32,
    does: InputType,
    bytes: Bytes,
}

/// The first byte and the one behind the last, from the start of the version on; all of it, and more,
/// where that is not known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Bytes(i64, i64);

impl Bytes {
    const ALL: Bytes = Bytes(i64::MIN, i64::MAX);

    /// Those of a value that starts so many bytes behind the start of the version.
    fn of(graph: &Graph, value: ValueId, start: Option<i64>) -> Self {
        let end = |start: i64| start.checked_add_unsigned(graph.bytes(value)?);
        let known = start.and_then(|start| Some(Bytes(start, end(start)?)));
        known.unwrap_or(Bytes::ALL)
    }

    /// What has no bytes is used together with what is used at that place.
    fn overlap(self, other: Self) -> bool {
        self == other || self.0 < other.1 && other.0 < self.1
    }
}

/// A value and the distance of its start from that of another, where that is known.
type Placed = (ValueId, Option<i64>);

/// Which values are other names of what is there already.
#[derive(Default)]
struct Names {
    /// The outputs that are an input under another name, or lie in it, or it in them, each with the
    /// distance of its start from that of the input, where that is known.
    of_input: FxHashMap<(NodeId, u32), SmallVec<[Placed; 1]>>,
    /// The other outputs of a partition that are the same memory, by the first of them.
    twins: FxHashMap<ValueId, Vec<ValueId>>,
    /// All values but those with which a version begins.
    views: FxHashSet<ValueId>,
    /// Values that somebody writes, under whatever later name.
    written: FxHashSet<ValueId>,
}

impl Names {
    /// Whether a version that begins with a value is written.
    fn is_written(&self, value: ValueId) -> bool {
        let twins = self.twins.get(&value).into_iter().flatten();
        twins.chain([&value]).any(|v| self.written.contains(v))
    }

    fn add(&mut self, at: (NodeId, u32), name: ValueId, shift: Option<i64>) {
        let names = self.of_input.entry(at).or_default();
        match names.iter_mut().find(|(other, _)| *other == name) {
            None => names.push((name, shift)),
            Some((_, known)) if *known != shift => *known = None,
            Some(_) => {}
        }
    }
}

impl Pass<'_> {
    /// Looks at the outputs of all nodes.
    fn names(&self, types: &Types<'_>) -> Names {
        let graph = self.work.graph();
        let mut names = Names::default();
        let mut of_pieces: FxHashSet<ValueId> = FxHashSet::default();
        for (id, node) in &graph.nodes {
            // What is joined in place is each of its pieces as well, and so is what is cut in place.
            for piece in pieces(graph, self.work.table, id) {
                names.add((id, piece.slots.input), piece.to, piece.shift);
                of_pieces.insert(piece.to);
            }
            let is_call = self.work.table.class(graph, id) == OpClass::Call;
            // These are no names of all that they lie in, whatever the file calls them.
            let is_piece = |value: &ValueId| of_pieces.contains(value);
            let mut first: FxHashMap<ValueId, ValueId> = FxHashMap::default();
            for (o, value) in (0u32..).zip(&node.outputs) {
                let Some(value) = *value else { continue };
                if let Some(input) = self.source(types, id, o) {
                    if !is_piece(&value) {
                        names.add((id, input), value, Some(0));
                    }
                    names.views.insert(value);
                } else if is_call && let Some(inner) = self.inner_result(id, o) {
                    let begins = self.first_name(types, inner);
                    match first.entry(begins) {
                        Entry::Vacant(entry) => drop(entry.insert(value)),
                        Entry::Occupied(entry) => {
                            names.twins.entry(*entry.get()).or_default().push(value);
                            names.views.insert(value);
                        }
                    }
                }
            }
        }
        // Who uses a value stands behind it, and what it hands on behind that.
        for id in in_order(graph, graph.root).into_iter().rev() {
            for &value in graph.nodes[id].outputs.iter().flatten() {
                let is_written = self.work.users(value).iter().any(|&(node, input)| {
                    let others = names.of_input.get(&(node, input)).into_iter().flatten();
                    types.input((node, input)) != InputType::Reads
                        || others
                            .into_iter()
                            .any(|(name, _)| names.written.contains(name))
                });
                if is_written {
                    names.written.insert(value);
                }
            }
        }
        names
    }

    fn version(
        &mut self,
        types: &Types<'_>,
        names: &Names,
        value: ValueId,
        options: &Options,
    ) -> Result<(), GuardError> {
        let uses = self.uses(types, names, value);
        let writers = || uses.iter().filter(|u| u.does != InputType::Reads);
        if writers().next().is_none() || variable_of(&self.work, value).is_some() {
            return Ok(());
        }
        let graph = self.work.graph();
        let source = graph.values[value].producer;
        let is_lent = match self.work.table.class(graph, source) {
            OpClass::Constant => true,
            OpClass::Input => {
                let subgraph = graph.nodes[source].subgraph;
                // A loop's condition only looks at the states.
                is_condition(graph, self.work.table, subgraph)
                    || subgraph == graph.root && !options.inputs_donated
            }
            _ => false,
        };
        // Of those who write the same bytes one may write them where they are, and last.
        let mut last: Vec<Use> = Vec::new();
        let mut vain = if is_lent { CANDIDATES } else { 0 };
        for writer in writers().rev() {
            if vain == CANDIDATES {
                break;
            }
            if last.iter().any(|other| other.bytes.overlap(writer.bytes)) {
                continue;
            }
            match self.can_come_last(writer, &uses) {
                true => last.push(*writer),
                false => vain += 1,
            }
        }
        let mut before: Vec<(NodeId, Bytes)> = Vec::new();
        for user in &uses {
            if last.contains(user) {
                continue;
            }
            if user.does == InputType::Reads {
                before.push((user.node, user.bytes));
                continue;
            }
            if options.copies_are_planned {
                continue;
            }
            let name = format!("{}_value_copy", self.work.graph().nodes[user.node].name);
            let harm = if is_lent {
                "it would write a constant, or what the caller only lends"
            } else {
                "it would write what others read"
            };
            let copy = self.copy(user.node, user.input, &name, "value-overwritten", harm)?;
            before.push((copy, user.bytes));
        }
        for last in last {
            let waits: FxHashSet<NodeId> = self.work.needs(last.node).collect();
            for &(node, bytes) in &before {
                if node != last.node && bytes.overlap(last.bytes) && !waits.contains(&node) {
                    self.work
                        .order(node, last.node, "it reads what the other writes")?;
                }
            }
        }
        Ok(())
    }

    /// All uses of a version, under whatever name, in order.
    fn uses(&self, types: &Types<'_>, names: &Names, value: ValueId) -> Vec<Use> {
        let graph = self.work.graph();
        let mut uses = Vec::new();
        let twins = names.twins.get(&value).into_iter().flatten();
        let mut stack: Vec<(ValueId, Option<i64>)> = twins.map(|&v| (v, Some(0))).collect();
        stack.push((value, Some(0)));
        // What is cut and joined again comes by many ways.
        let mut starts: FxHashMap<ValueId, Option<i64>> = FxHashMap::default();
        while let Some((value, start)) = stack.pop() {
            let start = match starts.entry(value) {
                Entry::Vacant(entry) => *entry.insert(start),
                Entry::Occupied(known) if *known.get() == start || known.get().is_none() => {
                    continue;
                }
                Entry::Occupied(mut known) => known.insert(None).and(None),
            };
            let bytes = Bytes::of(graph, value, start);
            for &(node, input) in self.work.users(value) {
                let does = types.input((node, input));
                let others = names.of_input.get(&(node, input));
                let others = others.map_or(&[][..], SmallVec::as_slice);
                // A loop or partition reads what it hands on.
                let runs_others = !graph.nodes[node].bodies.is_empty();
                if does != InputType::Reads || others.is_empty() || runs_others {
                    uses.push(Use {
                        node,
                        input,
                        does,
                        bytes,
                    });
                }
                if does == InputType::Reads {
                    let at = |shift: Option<i64>| start?.checked_add(shift?);
                    stack.extend(others.iter().map(|&(name, shift)| (name, at(shift))));
                }
            }
        }
        uses.sort_by_key(|u| (self.work.position(u.node), u.node, u.input, u.bytes));
        // What was reached at two places may be at either.
        uses.dedup_by_key(|u| (u.node, u.input));
        let pieces: FxHashSet<Bytes> = uses.iter().map(|u| u.bytes).collect();
        if pieces.len() > MOST_PIECES {
            for user in &mut uses {
                user.bytes = Bytes::ALL;
            }
        }
        uses
    }

    /// The input that an output is another name for: by a view, a loop that keeps a state, or a
    /// partition that hands an input through; nothing is written on the way.
    fn source(&self, types: &Types<'_>, node: NodeId, o: u32) -> Option<u32> {
        let graph = self.work.graph();
        let table = self.work.table;
        if table.class(graph, node) == OpClass::Call {
            let inner = self.first_name(types, self.inner_result(node, o)?);
            let producer = graph.values[inner].producer;
            let (owner, i) = outer_input(graph, table, producer)?;
            return (owner == node).then_some(i);
        }
        let i = reference(graph, table, node, o)?;
        let effects = self.work.effects(node);
        let writes = effects.refs.iter().any(|a| a.output == o);
        let changes = table.class(graph, node) == OpClass::While && types.writes((node, i));
        (!writes && !changes).then_some(i)
    }

    /// The value inside a partition that becomes its output.
    fn inner_result(&self, owner: NodeId, index: u32) -> Option<ValueId> {
        let graph = self.work.graph();
        result_of(graph, graph.nodes[owner].bodies.first()?.graph, index)
    }

    /// Where a version begins, by the names that it has in its subgraph and in partitions there.
    fn first_name(&self, types: &Types<'_>, value: ValueId) -> ValueId {
        let graph = self.work.graph();
        let mut value = value;
        loop {
            let made = &graph.values[value];
            let input = self.source(types, made.producer, made.output);
            match input.and_then(|i| graph.nodes[made.producer].input(i as usize)) {
                Some(next) => value = next,
                None => return value,
            }
        }
    }

    /// Whether all others can be put before a writer.
    fn can_come_last(&self, writer: &Use, uses: &[Use]) -> bool {
        let graph = self.work.graph();
        let others = || {
            let here = uses.iter().filter(|u| u.bytes.overlap(writer.bytes));
            here.filter(|u| *u != writer)
        };
        let can_be_asked = others().all(|other| {
            let is_result = self.work.table.class(graph, other.node) == OpClass::Output;
            // A further writer is given a copy before it, which can come first.
            let is_copied = other.does != InputType::Reads;
            !is_result
                && (is_copied || other.node != writer.node)
                && graph.nodes[other.node].subgraph == graph.nodes[writer.node].subgraph
        });
        let last = others().map(|u| self.work.position(u.node)).max();
        can_be_asked && {
            let after = self.work.descendants(writer.node, last.unwrap_or(0));
            others().all(|other| !after.contains(&other.node))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::report;

    #[test]
    fn readers_come_first_or_writers_work_on_copies() {
        let cases = [
            (
                "an edge is enough",
                "%x: float32[4] = Relu()\n%w: float32[4] <ref_input = 0> = AddInplace(%x)\n%r: float32[4] = Relu(%x)",
            ),
            (
                "a reader of old and new needs a copy",
                "%x: float32[4] = Relu()\n%w: float32[4] <ref_input = 0> = AddInplace(%x)\n%r: float32[4] = Mul(%x, %w)",
            ),
            (
                "of two writers one works on a copy",
                "%x: float32[4] = Relu()\n%v: float32[4] <ref_input = 0> = AddInplace(%x)\n%w: float32[4] <ref_input = 0> = MulInplace(%x)",
            ),
            (
                "a reader under another name",
                "%x: float32[4] = Relu()\n%s: float32[4] <reuse_input = 0> = Reshape(%x)\n%w: float32[4] <ref_input = 0> = AddInplace(%x)\n%r: float32[4] = Relu(%s)",
            ),
            (
                "who writes a piece has nothing to do with another",
                "%x: float32[8] = Relu()\n%p: float32[4], %q: float32[4] = SplitD(%x) {_no_padding_continuous_output = true, _no_task = true, _output_reuse_input = true}\n%w: float32[4] <ref_input = 0> = AddInplace(%p)\n%r: float32[4] = Mul(%q, %w)",
            ),
            (
                "of pieces each may be written",
                "%x: float32[8] = Relu()\n%p: float32[4], %q: float32[4] = SplitD(%x) {_no_padding_continuous_output = true, _no_task = true, _output_reuse_input = true}\n%v: float32[4] <ref_input = 0> = AddInplace(%p)\n%w: float32[4] <ref_input = 0> = AddInplace(%q)\n%r: float32[4] = Mul(%v, %w)",
            ),
            (
                "who writes a piece comes after who reads the whole",
                "%x: float32[8] = Relu()\n%p: float32[4], %q: float32[4] = SplitD(%x) {_no_padding_continuous_output = true, _no_task = true, _output_reuse_input = true}\n%w: float32[4] <ref_input = 0> = AddInplace(%p)\n%r: float32[8] = Relu(%x)",
            ),
            (
                "a variable is state",
                "%v: float32[4] = Variable()\n%w: float32[4] <ref_input = 0> = Assign(%v)\n%r: float32[4] = Relu(%v)",
            ),
            (
                "the caller only lends its input",
                "%x: float32[4] = Data()\n%w: float32[4] <ref_input = 0> = AddInplace(%x)",
            ),
        ];
        insta::assert_snapshot!(report(resolve, &Options::default(), &cases));
    }
}
