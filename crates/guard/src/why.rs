//! How two values stand to each other: one memory, certainly one after the other, certainly
//! together, or in no certain order.
//!
//! Certain is what edges of data and control, the order of a stream's list, and the borders of
//! subgraphs order; nothing else is. A node with subgraphs has two moments, its start and its end,
//! and what reads an outer value inside a loop counts as reading to the loop's end. Only the users
//! of one value that no other user of it follows, and the users of the other that none comes
//! before, are compared, 64 by one walk, so that a question takes time in proportion to the edges.

use rustc_hash::FxHashMap;
use tenure_graph::effects::{Alias, OpClass, OpTable, Trait};
use tenure_graph::entity::SecondaryMap;
use tenure_graph::{Graph, NodeId, StreamId, SubgraphId, ValueId};

use crate::error::GuardError;
use crate::storage::{Anchor, Classes, Joint};
use crate::witness::Step;

/// How two values stand to each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Relation {
    /// They are one memory.
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
        /// From the last use of the first to the first write of the second.
        path: Vec<Hop>,
    },
    /// In every order that is allowed both are needed at some moment.
    Apart {
        /// A schedule in which a reader sees wrong bytes, were they one memory.
        wrong: Vec<Step>,
    },
    /// In some orders that are allowed they would not meet, in others they would.
    Unordered {
        /// A schedule that goes well.
        right: Vec<Step>,
        /// A schedule in which a reader sees wrong bytes, were they one memory.
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
    /// What leads there. In a chain `edge`, `view`, `reference`, `merge` or `border`; in a path
    /// `data`, `control`, `stream`, `body` or `in-place`.
    pub by: &'static str,
}

/// Says how two values stand to each other.
///
/// # Errors
/// See [`Classes::build`].
pub fn relation(
    graph: &Graph,
    table: &OpTable,
    a: ValueId,
    b: ValueId,
) -> Result<Relation, GuardError> {
    let joints = Joints::of(graph, table)?;
    let reached = joints.reach(Anchor::of(graph, a));
    if let Some(chain) = joints.chain(&reached, a, b) {
        return Ok(Relation::SameMemory { chain });
    }
    let moments = Moments::of(graph);
    let asked = Asked {
        graph,
        table,
        moments: &moments,
    };
    let first = asked.memory(a, &joints, &reached);
    let second = asked.memory(b, &joints, &joints.reach(Anchor::of(graph, b)));
    Ok(asked.answer(&first, &second))
}

/// What joins anchors: the links of all classes, and what operators hand on as views.
struct Joints<'a> {
    graph: &'a Graph,
    table: &'a OpTable,
    classes: Classes,
    /// For each anchor those beside it.
    beside: Vec<Vec<(usize, &'static str)>>,
}

impl<'a> Joints<'a> {
    fn of(graph: &'a Graph, table: &'a OpTable) -> Result<Self, GuardError> {
        let classes = Classes::build(graph, table, graph.root)?;
        let mut joints = Joints {
            graph,
            table,
            beside: vec![Vec::new(); classes.anchors.len()],
            classes,
        };
        for class in 0..joints.classes.lists.len() {
            let links = joints.classes.links(class).to_vec();
            for link in links {
                let by = match link.joint {
                    Joint::Edge => "edge",
                    Joint::Fixed => joints.fixed(link.from, link.to),
                };
                joints.add(link.from, link.to, by);
            }
        }
        for node in graph.nodes.keys() {
            let effects = table.effects(graph, node);
            let views = effects.views.iter().map(|alias| (alias, "view"));
            let refs = effects.refs.iter().map(|alias| (alias, "reference"));
            for (alias, by) in views.chain(refs) {
                let from = joints.classes.index(Anchor::input(node, alias.input));
                let to = joints.classes.index(Anchor::output(node, alias.output));
                if let (Some(from), Some(to)) = (from, to) {
                    joints.add(from, to, by);
                }
            }
        }
        Ok(joints)
    }

    fn fixed(&self, from: usize, to: usize) -> &'static str {
        let (from, to) = (self.classes.anchors[from], self.classes.anchors[to]);
        if from.node != to.node {
            "border"
        } else if from.is_output() == to.is_output() {
            "merge"
        } else if self
            .table
            .traits(self.graph, from.node)
            .has(Trait::Relabels)
        {
            "view"
        } else {
            "reference"
        }
    }

    fn add(&mut self, from: usize, to: usize, by: &'static str) {
        self.beside[from].push((to, by));
        self.beside[to].push((from, by));
    }

    /// All anchors of one memory, in the order in which they are met, and for each the one that it
    /// was met from.
    fn reach(&self, from: Anchor) -> Reached {
        let mut reached = Reached {
            order: Vec::new(),
            from: FxHashMap::default(),
        };
        reached.order.extend(self.classes.index(from));
        let mut next = 0;
        while let Some(&here) = reached.order.get(next) {
            next += 1;
            for &(there, by) in &self.beside[here] {
                if Some(&there) != reached.order.first() && !reached.from.contains_key(&there) {
                    reached.from.insert(there, (here, by));
                    reached.order.push(there);
                }
            }
        }
        reached
    }

    /// What joins two values; `None` where they are not one memory.
    fn chain(&self, reached: &Reached, a: ValueId, b: ValueId) -> Option<Vec<Hop>> {
        if a == b {
            return Some(Vec::new());
        }
        let mut here = self.classes.index(Anchor::of(self.graph, b))?;
        reached.from.get(&here)?;
        let mut chain = Vec::new();
        let label = |anchor: usize| self.classes.anchors[anchor].label(self.graph);
        while let Some(&(before, by)) = reached.from.get(&here) {
            chain.push(Hop {
                from: label(before),
                to: label(here),
                by,
            });
            here = before;
        }
        chain.reverse();
        Some(chain)
    }
}

/// The anchors of one memory.
struct Reached {
    order: Vec<usize>,
    from: FxHashMap<usize, (usize, &'static str)>,
}

/// The moments at which nodes start and end and subgraphs are entered and left, in an order that
/// is allowed, and what each of them waits for.
struct Moments {
    node: Vec<NodeId>,
    needs: Vec<Vec<(usize, &'static str)>>,
    start: SecondaryMap<NodeId, Option<usize>>,
    end: SecondaryMap<NodeId, Option<usize>>,
    last_on: FxHashMap<StreamId, usize>,
}

/// What is laid out next.
enum Task {
    Node(NodeId),
    Enter(NodeId),
    Leave(NodeId, SubgraphId),
    End(NodeId),
}

impl Moments {
    fn of(graph: &Graph) -> Self {
        let mut moments = Moments {
            node: Vec::new(),
            needs: Vec::new(),
            start: SecondaryMap::new(),
            end: SecondaryMap::new(),
            last_on: FxHashMap::default(),
        };
        let nodes = |s: SubgraphId| graph.subgraphs[s].nodes.iter().rev().copied();
        let mut tasks: Vec<Task> = nodes(graph.root).map(Task::Node).collect();
        // The moment at which each open subgraph was entered, and the last border that was passed.
        let mut entered: Vec<usize> = Vec::new();
        let mut border = 0;
        while let Some(task) = tasks.pop() {
            match task {
                Task::Node(id) => {
                    border = moments.begin(graph, id, entered.last().copied());
                    if !graph.nodes[id].bodies.is_empty() {
                        tasks.push(Task::End(id));
                        for body in graph.nodes[id].bodies.iter().rev() {
                            tasks.push(Task::Leave(id, body.graph));
                            tasks.extend(nodes(body.graph).map(Task::Node));
                            tasks.push(Task::Enter(id));
                        }
                    }
                }
                Task::Enter(owner) => {
                    border = moments.push(owner, vec![(border, "body")]);
                    entered.push(border);
                }
                Task::Leave(owner, subgraph) => {
                    let ends = nodes(subgraph).filter_map(|n| moments.end[n]);
                    let mut needs: Vec<_> = ends.map(|end| (end, "body")).collect();
                    needs.extend(entered.pop().map(|enter| (enter, "body")));
                    border = moments.push(owner, needs);
                }
                Task::End(id) => {
                    let end = moments.push(id, vec![(border, "body")]);
                    moments.end[id] = Some(end);
                    if let Some(stream) = graph.nodes[id].stream {
                        moments.last_on.insert(stream, end);
                    }
                }
            }
        }
        moments
    }

    fn push(&mut self, node: NodeId, needs: Vec<(usize, &'static str)>) -> usize {
        self.node.push(node);
        self.needs.push(needs);
        self.node.len() - 1
    }

    /// The start of a node, which is its end as well where it has no subgraphs.
    fn begin(&mut self, graph: &Graph, id: NodeId, entered: Option<usize>) -> usize {
        let node = &graph.nodes[id];
        let mut needs = Vec::new();
        for &value in node.inputs.iter().flatten() {
            let producer = graph.values[value].producer;
            let Some(end) = self.end[producer] else {
                continue;
            };
            needs.push((end, "data"));
            // What is read inside by name is there before the outer node starts.
            let around = graph.around(id, graph.home(value));
            if let Some(owner) = around.filter(|&owner| owner != id)
                && let Some(start) = self.start[owner]
                && end < start
            {
                self.needs[start].push((end, "data"));
            }
        }
        let control = node.control.iter().filter_map(|&n| self.end[n]);
        needs.extend(control.map(|end| (end, "control")));
        let before = node.stream.and_then(|s| self.last_on.get(&s));
        needs.extend(before.map(|&end| (end, "stream")));
        needs.extend(entered.map(|enter| (enter, "body")));
        let start = self.push(id, needs);
        self.start[id] = Some(start);
        if node.bodies.is_empty() {
            self.end[id] = Some(start);
        }
        if let Some(stream) = node.stream {
            self.last_on.insert(stream, start);
        }
        start
    }

    /// For each moment which of at most 64 others have certainly passed, a bit each.
    fn passed(&self, batch: &[usize]) -> Vec<u64> {
        let mut own: FxHashMap<usize, u64> = FxHashMap::default();
        for (bit, &at) in batch.iter().enumerate().take(BATCH) {
            *own.entry(at).or_default() |= 1 << bit;
        }
        let own = |at: usize| own.get(&at).copied().unwrap_or(0);
        let mut bits = vec![0; self.needs.len()];
        for at in 0..bits.len() {
            let before = self.needs[at].iter();
            bits[at] = before.fold(0, |sum, &(n, _)| sum | bits[n] | own(n));
        }
        bits
    }

    /// For each moment whether one of a set has certainly passed.
    fn after_any(&self, set: impl Iterator<Item = usize>) -> Vec<bool> {
        let mut given = vec![false; self.needs.len()];
        set.for_each(|at| given[at] = true);
        let mut after = vec![false; self.needs.len()];
        for at in 0..after.len() {
            after[at] = self.needs[at].iter().any(|&(n, _)| given[n] || after[n]);
        }
        after
    }

    /// For each moment whether it has certainly passed before one of a set.
    fn before_any(&self, set: impl Iterator<Item = usize>) -> Vec<bool> {
        let mut given = vec![false; self.needs.len()];
        set.for_each(|at| given[at] = true);
        let mut before = vec![false; self.needs.len()];
        for at in (0..before.len()).rev() {
            if given[at] || before[at] {
                for &(n, _) in &self.needs[at] {
                    before[n] = true;
                }
            }
        }
        before
    }

    /// The shortest path from one moment to a later one.
    fn path(&self, graph: &Graph, from: usize, to: usize) -> Vec<Hop> {
        let mut next: FxHashMap<usize, (usize, &'static str)> = FxHashMap::default();
        let mut queue = vec![to];
        let mut at = 0;
        while let Some(&here) = queue.get(at) {
            at += 1;
            if here == from {
                break;
            }
            for &(before, by) in &self.needs[here] {
                if before >= from && before != to && !next.contains_key(&before) {
                    next.insert(before, (here, by));
                    queue.push(before);
                }
            }
        }
        let mut path = Vec::new();
        let mut here = from;
        while let Some(&(there, by)) = next.get(&here) {
            if self.node[here] != self.node[there] {
                path.push(Hop {
                    from: graph.node_label(self.node[here]),
                    to: graph.node_label(self.node[there]),
                    by,
                });
            }
            here = there;
        }
        path
    }
}

/// How many moments one walk serves.
const BATCH: usize = u64::BITS as usize;

/// One memory, as far as order asks.
struct Memory {
    value: ValueId,
    /// Where each user starts and ends.
    users: Vec<(usize, usize)>,
    /// Nodes that make a value in it, by their start.
    makers: Vec<usize>,
    /// Values that lie in it.
    values: Vec<ValueId>,
    /// Whether it is kept from run to run.
    stays: bool,
}

/// A reader that may come after a writer.
#[derive(Clone, Copy)]
struct Clash {
    /// The end of the user of the first memory.
    reader: usize,
    /// The start of the writer of the second one.
    writer: usize,
}

struct Asked<'a> {
    graph: &'a Graph,
    table: &'a OpTable,
    moments: &'a Moments,
}

impl Asked<'_> {
    fn memory(&self, value: ValueId, joints: &Joints<'_>, reached: &Reached) -> Memory {
        let graph = self.graph;
        let mut memory = Memory {
            value,
            users: Vec::new(),
            makers: Vec::new(),
            values: Vec::new(),
            stays: false,
        };
        for &anchor in &reached.order {
            let anchor = joints.classes.anchors[anchor];
            let mut node = anchor.node;
            if anchor.is_output() {
                let class = self.table.class(graph, node);
                memory.stays |= matches!(class, OpClass::Constant | OpClass::Variable);
                memory.makers.extend(self.moments.start[node]);
                memory.values.extend(anchor.value(graph));
            } else if let Some(read) = anchor.value(graph) {
                node = self.lifted(node, read);
            }
            let span = (self.moments.start[node], self.moments.end[node]);
            if let (Some(start), Some(end)) = span {
                memory.users.push((start, end));
            }
        }
        memory.users.sort_unstable();
        memory.users.dedup();
        memory.makers.sort_unstable();
        memory.values.sort_unstable();
        memory
    }

    /// The reader of a value, or the outermost loop between them.
    fn lifted(&self, reader: NodeId, value: ValueId) -> NodeId {
        let graph = self.graph;
        let (mut lifted, mut inside) = (reader, graph.nodes[reader].subgraph);
        while inside != graph.home(value) {
            let Some(owner) = graph.subgraphs[inside].owner else {
                return reader;
            };
            if self.table.class(graph, owner).repeats() {
                lifted = owner;
            }
            inside = graph.nodes[owner].subgraph;
        }
        lifted
    }

    fn answer(&self, a: &Memory, b: &Memory) -> Relation {
        let forwards = self.clash(a, b);
        if let (Ok((last, first)), false) = (forwards, a.stays) {
            return self.ordered(a, b, last, first);
        }
        let backwards = self.clash(b, a);
        if let (Ok((last, first)), false) = (backwards, b.stays) {
            return self.ordered(b, a, last, first);
        }
        let (a_first, b_first) = (!self.leads(b, a) && !a.stays, !self.leads(a, b) && !b.stays);
        let in_turn = if b_first && !a_first {
            [(b, a, backwards), (a, b, forwards)]
        } else {
            [(a, b, forwards), (b, a, backwards)]
        };
        let found = in_turn.into_iter().find_map(|(kept, other, clash)| {
            let wrong = self.wrong(kept, other, clash)?;
            let (Ok((reader, writer)) | Err(Clash { reader, writer })) = clash;
            Some((kept, other, Clash { reader, writer }, wrong))
        });
        match found {
            Some((kept, other, clash, wrong)) if a_first || b_first => Relation::Unordered {
                right: self.right(kept, other, clash),
                wrong,
            },
            found => Relation::Apart {
                wrong: found.map_or_else(Vec::new, |(.., wrong)| wrong),
            },
        }
    }

    /// Whether some use of one memory certainly comes before some use of another, or with it.
    fn leads(&self, from: &Memory, to: &Memory) -> bool {
        let after = self.moments.after_any(from.users.iter().map(|u| u.1));
        let mut to = to.users.iter();
        to.any(|u| after[u.1] || from.users.binary_search(u).is_ok())
    }

    /// Whether every use of `a` has ended when `b` is first written: if so the end of the last use
    /// and the start of the first write, else two for which it does not hold.
    fn clash(&self, a: &Memory, b: &Memory) -> Result<(usize, usize), Clash> {
        let followed = self.moments.before_any(a.users.iter().map(|u| u.0));
        let preceded = self.moments.after_any(b.users.iter().map(|u| u.1));
        let last = a.users.iter().map(|u| u.1).filter(|&end| !followed[end]);
        let last: Vec<usize> = last.collect();
        let first = b.users.iter().map(|u| u.0);
        let first: Vec<usize> = first.filter(|&start| !preceded[start]).collect();
        for batch in last.rchunks(BATCH) {
            let passed = self.moments.passed(batch);
            for &writer in &first {
                let asked = u64::MAX >> (BATCH - batch.len());
                let mut open = asked & !passed[writer];
                // One of them at most is the writer itself.
                while let Some(bit) = open.checked_ilog2() {
                    open &= !(1 << bit);
                    let reader = batch[bit as usize];
                    if !self.in_place(a, b, reader, writer) {
                        return Err(Clash { reader, writer });
                    }
                }
            }
        }
        let ends = (last.last(), first.first());
        let none = Clash {
            reader: 0,
            writer: 0,
        };
        ends.0.copied().zip(ends.1.copied()).ok_or(none)
    }

    /// Whether one node reads `a` and may write `b` over it.
    fn in_place(&self, a: &Memory, b: &Memory, reader: usize, writer: usize) -> bool {
        if reader != writer {
            return false;
        }
        let id = self.moments.node[reader];
        let node = &self.graph.nodes[id];
        let effects = self.table.effects(self.graph, id);
        let within = |m: &Memory, v: Option<ValueId>| {
            v.is_some_and(|value| m.values.binary_search(&value).is_ok())
        };
        let sharers = || {
            let inputs = (0u32..).zip(&node.inputs);
            inputs.filter(|&(_, &v)| within(a, v)).map(|(i, _)| i)
        };
        let fits = |entry: &&Alias| {
            within(a, node.input(entry.input as usize))
                && within(b, node.output(entry.output as usize))
                && effects.tolerates(**entry, sharers())
        };
        effects.in_place.iter().any(|entry| fits(&entry))
    }

    fn ordered(&self, first: &Memory, second: &Memory, last: usize, start: usize) -> Relation {
        let path = if last == start {
            let node = self.graph.node_label(self.moments.node[last]);
            vec![Hop {
                from: node.clone(),
                to: node,
                by: "in-place",
            }]
        } else {
            self.moments.path(self.graph, last, start)
        };
        Relation::Ordered {
            first: first.value,
            second: second.value,
            path,
        }
    }

    /// The schedule in which a reader of `kept` finds what was written to `other`.
    fn wrong(
        &self,
        kept: &Memory,
        other: &Memory,
        clash: Result<(usize, usize), Clash>,
    ) -> Option<Vec<Step>> {
        let label = |m: &Memory| self.graph.value_label(m.value);
        let (kept_label, other_label) = (label(kept), label(other));
        let (clash, again) = match clash {
            Ok((reader, writer)) => (Clash { reader, writer }, true),
            Err(clash) => (clash, false),
        };
        let Clash { reader, writer } = clash;
        let after = self.moments.after_any([writer].into_iter());
        let maker = kept.makers.iter().copied();
        let maker = maker.filter(|&m| !after[m] && m != writer).min()?;
        // The earliest reader makes the shortest schedule.
        let made = self.moments.after_any([maker].into_iter());
        let over = self.moments.before_any([writer].into_iter());
        let readers = kept.users.iter();
        let readers = readers.filter(|&&(_, end)| made[end] && !over[end]);
        let readers = readers.filter(|&&(_, end)| end != writer || end == reader);
        // What has subgraphs reads when it starts, if it has not started before.
        let mut readers = readers.map(|&(start, end)| if over[start] { end } else { start });
        let reader = match again {
            true => reader,
            false => readers.next()?,
        };
        let mut plan = Line::new(self);
        plan.run(maker, format!("writes {kept_label}"));
        if again {
            plan.run(reader, format!("reads {kept_label}"));
        }
        if reader == writer {
            let does = format!("writes {other_label} over {kept_label}, which it reads");
            plan.run(writer, does);
        } else {
            plan.run(writer, format!("writes {other_label} over it"));
            let does = format!("reads {kept_label} and finds {other_label}");
            plan.run(reader, does);
        }
        Some(plan.steps)
    }

    /// The schedule in which the reader of `kept` comes first.
    fn right(&self, kept: &Memory, other: &Memory, clash: Clash) -> Vec<Step> {
        let label = |m: &Memory| self.graph.value_label(m.value);
        let mut plan = Line::new(self);
        plan.run(clash.reader, format!("reads {}", label(kept)));
        plan.run(clash.writer, format!("writes {}", label(other)));
        plan.steps
    }
}

/// A schedule that grows: each node after all that it waits for.
struct Line<'a> {
    asked: &'a Asked<'a>,
    done: Vec<bool>,
    steps: Vec<Step>,
}

impl<'a> Line<'a> {
    fn new(asked: &'a Asked<'a>) -> Self {
        Line {
            asked,
            done: vec![false; asked.moments.node.len()],
            steps: Vec::new(),
        }
    }

    /// Runs what a moment waits for, then the moment.
    fn run(&mut self, to: usize, does: String) {
        let moments = self.asked.moments;
        let before = moments.before_any([to].into_iter());
        for at in (0..to).filter(|&at| before[at]) {
            let node = moments.node[at];
            let class = self.asked.table.class(self.asked.graph, node);
            // What stands for memory runs nothing.
            let runs = !matches!(
                class,
                OpClass::Input | OpClass::Constant | OpClass::Variable
            );
            if !std::mem::replace(&mut self.done[at], true)
                && runs
                && moments.start[node] == Some(at)
            {
                self.push(node, String::new());
            }
        }
        self.done[to] = true;
        self.push(moments.node[to], does);
    }

    fn push(&mut self, node: NodeId, does: String) {
        let node = self.asked.graph.node_label(node);
        self.steps.push(Step { node, does });
    }
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
        let found = relation(&graph, &table, named(a), named(b)).unwrap();
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
            Relation::Apart { wrong } => format!("{name}: {}", steps(wrong)),
            Relation::Unordered { right, wrong } => {
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
            "apart: k writes k; a reads k; b writes b over it; a reads k and finds b"
        );
    }

    #[test]
    fn a_reader_inside_a_loop_reads_to_its_end() {
        let lines = "%x: float32[4] = Data()\n%k: float32[4] = Softmax(%x)\n\
                     %w: float32[4] = While(%x)\n  cond ^c {\n    %s: float32[4] = Data()\n    \
                     %p: bool[] = Less(%s)\n    NetOutput(%p) @results\n  }\n  body ^b {\n    \
                     %s: float32[4] = Data()\n    %m: float32[4] = Add(%s, %k^g)\n    \
                     %t: float32[4] = Softmax(%m)\n    NetOutput(%t) @results\n  }\n\
                     NetOutput(%w) @results";
        assert_eq!(
            why(lines, "k", "b/t"),
            "apart: x writes b/t; k writes k over it; w reads b/t and finds k"
        );
    }
}
