//! Who writes and who reads one memory, and how long each of its contents is needed.
//!
//! What a value holds begins when its producer has written it, or when it is handed on under another
//! name: by a view, a merge, or the border of a subgraph. It is needed until it is read, or handed
//! on to a value that is needed. Each such stretch, from one begin to one need, is short enough to
//! lie in one pass of every loop around it.

use rustc_hash::{FxHashMap, FxHashSet};
use tenure_graph::control::{Pass, Point};
use tenure_graph::effects::{Effects, OpClass, Trait, pieces};
use tenure_graph::{NodeId, SubgraphId, ValueId};

use super::moments::Moments;
use crate::storage::reference;

/// Something is written in a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Write {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) value: ValueId,
}

/// What a value holds is needed from one moment to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Stretch {
    /// When it is there.
    pub(super) from: usize,
    /// Up to when it must be there: that of the read, or the end of the loop around it.
    pub(super) to: usize,
    /// When it is read, or handed on.
    pub(super) at: usize,
    pub(super) value: ValueId,
}

/// A value becomes another name for what one holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    pub(super) from: ValueId,
    pub(super) to: ValueId,
    /// When it is handed over.
    pub(super) at: usize,
    /// Up to when it must be there under the old name.
    until: usize,
    /// From when on it can be read under the new name.
    pub(super) begins: usize,
    /// The body whose border is passed.
    pub(super) body: Option<SubgraphId>,
}

/// One memory, as far as order asks.
pub(super) struct Uses {
    /// The value that is asked about.
    pub(super) value: ValueId,
    /// All values that lie in it.
    pub(super) values: FxHashSet<ValueId>,
    /// Whether it is kept from run to run.
    pub(super) stays: bool,
    pub(super) writes: Vec<Write>,
    /// A value whose making changes nothing in any memory.
    pub(super) silent: Option<ValueId>,
    pub(super) stretches: Vec<Stretch>,
    /// For each value when nodes read it, each with the moment up to which it must be there.
    pub(super) reads: FxHashMap<ValueId, Vec<(usize, usize)>>,
    /// For the states of loops, up to when a pass's content must be there.
    held: FxHashMap<ValueId, Vec<usize>>,
    /// By the value that is handed on.
    pub(super) flows: FxHashMap<ValueId, Vec<Flow>>,
    /// By the value that it becomes.
    pub(super) sources: FxHashMap<ValueId, Vec<Flow>>,
}

/// For the values of the two memories that are asked about which of the two it is.
pub(super) type Sides = FxHashMap<ValueId, usize>;

/// The uses of the memories of two values.
pub(super) fn uses(moments: &Moments<'_>, sides: &Sides, values: [ValueId; 2]) -> [Uses; 2] {
    let mut both = values.map(|value| Uses {
        value,
        values: FxHashSet::default(),
        stays: false,
        writes: Vec::new(),
        silent: None,
        stretches: Vec::new(),
        reads: FxHashMap::default(),
        held: FxHashMap::default(),
        flows: FxHashMap::default(),
        sources: FxHashMap::default(),
    });
    for (&value, &side) in sides {
        both[side].values.insert(value);
    }
    let mut walk = Walk {
        moments,
        sides,
        both: &mut both,
        handed: FxHashSet::default(),
    };
    walk.borders();
    for node in moments.graph.nodes.keys() {
        walk.node(node);
    }
    for uses in &mut both {
        uses.stretch(moments);
    }
    both
}

struct Walk<'a> {
    moments: &'a Moments<'a>,
    sides: &'a Sides,
    both: &'a mut [Uses; 2],
    /// Values that come or go by a border of the node, so that nothing else is done to them there.
    handed: FxHashSet<(NodeId, ValueId)>,
}

impl Walk<'_> {
    fn of(&mut self, value: ValueId) -> Option<&mut Uses> {
        let side = *self.sides.get(&value)?;
        self.both.get_mut(side)
    }

    fn read(&mut self, value: ValueId, at: usize, inside: SubgraphId) {
        let to = self.lifted(value, at, inside);
        if let Some(uses) = self.of(value) {
            uses.reads.entry(value).or_default().push((at, to));
        }
    }

    fn write(&mut self, value: ValueId, start: usize, end: usize) {
        if let Some(uses) = self.of(value) {
            uses.writes.push(Write { start, end, value });
        }
    }

    fn flow(&mut self, flow: Flow) {
        if let Some(uses) = self.of(flow.from) {
            uses.flows.entry(flow.from).or_default().push(flow);
            uses.sources.entry(flow.to).or_default().push(flow);
        }
    }

    /// The end of the outermost loop between a value and the subgraph in which it is used: what is
    /// read by name in each pass must be there until the last.
    fn lifted(&self, value: ValueId, at: usize, inside: SubgraphId) -> usize {
        let graph = self.moments.graph;
        let home = graph.home(value);
        let (mut to, mut inside) = (at, inside);
        while inside != home {
            let Some(owner) = graph.subgraphs[inside].owner else {
                return at;
            };
            if self.moments.table.class(graph, owner).repeats()
                && let Some(end) = self.moments.end[owner]
            {
                to = end;
            }
            inside = graph.nodes[owner].subgraph;
        }
        to
    }

    /// What is handed over at the borders of subgraphs.
    fn borders(&mut self) {
        let (moments, graph) = (self.moments, self.moments.graph);
        for handed in &moments.handed {
            let (owner, body, at) = (handed.owner, handed.body, handed.at);
            let (Some(start), Some(end)) = (moments.start[owner], moments.end[owner]) else {
                continue;
            };
            let transfer = handed.transfer;
            // The node that stands for what is handed in does nothing of its own.
            let named = transfer.from.map(|v| (owner, v));
            let made = transfer.to.map(|v| (graph.values[v].producer, v));
            self.handed.extend(named.into_iter().chain(made));
            let is_out = matches!(transfer.at, Point::Leave(_));
            let inside = if is_out {
                body
            } else {
                graph.nodes[owner].subgraph
            };
            let is_passed_on = is_out && moments.table.class(graph, owner).repeats();
            // All that a body hands back must be there until all of it is handed back.
            let done = moments.borders.get(&body).map_or(at, |border| border.last);
            match (transfer.pass, transfer.from, transfer.to) {
                (Pass::View | Pass::Move, Some(from), Some(to)) => {
                    let sides = [from, to].map(|v| self.sides.get(&v));
                    if sides[0].is_some() && sides[0] == sides[1] {
                        let at = if is_out { done } else { at };
                        self.flow(Flow {
                            from,
                            to,
                            at,
                            until: self.lifted(from, at, inside),
                            begins: if is_out { end } else { at },
                            body: (transfer.at != Point::Begin).then_some(body),
                        });
                        continue;
                    }
                    self.read(from, at, inside);
                    self.write(to, at, at);
                    if is_passed_on && let Some(uses) = self.of(to) {
                        uses.held.entry(to).or_default().push(done);
                    }
                }
                // Each pass has its slice of the whole.
                (Pass::Slice, Some(from), Some(to)) => {
                    self.read(from, end, inside);
                    self.write(to, at, at);
                }
                (Pass::Append | Pass::Put, Some(from), Some(to)) => {
                    self.read(from, at, inside);
                    self.write(to, start, end);
                }
                (_, from, to) => {
                    if let Some(from) = from {
                        self.read(from, at, inside);
                    }
                    if let Some(to) = to {
                        self.write(to, at, at);
                    }
                }
            }
        }
    }

    /// What a node does itself.
    fn node(&mut self, id: NodeId) {
        let (moments, table, graph) = (self.moments, self.moments.table, self.moments.graph);
        let node = &graph.nodes[id];
        let slots = node.inputs.iter().chain(&node.outputs).flatten();
        let mut slots = slots.filter(|v| self.sides.contains_key(v));
        let (Some(start), Some(end), Some(_)) = (moments.start[id], moments.end[id], slots.next())
        else {
            return;
        };
        let class = table.class(graph, id);
        let effects = table.effects(graph, id);
        let has_bodies = !node.bodies.is_empty();
        let is_inner_result = class == OpClass::Output && node.subgraph != graph.root;
        let names = match has_bodies {
            true => Vec::new(),
            false => self.names(id, &effects),
        };
        let named: FxHashSet<ValueId> = names.iter().map(|&(from, _)| from).collect();
        for (i, value) in (0u32..).zip(&node.inputs) {
            let Some(value) = *value else { continue };
            let looks = !is_inner_result
                && !named.contains(&value)
                && !effects.shape_only.contains(&i)
                && !table.traits(graph, id).has(Trait::Hint)
                && !self.handed.contains(&(id, value));
            if looks {
                // A loop may look at it in each pass.
                let at = if class.repeats() { end } else { start };
                self.read(value, at, node.subgraph);
            }
        }
        let mut made: FxHashSet<ValueId> = FxHashSet::default();
        for (from, to) in names {
            made.insert(to);
            self.flow(Flow {
                from,
                to,
                at: start,
                until: self.lifted(from, start, node.subgraph),
                begins: start,
                body: None,
            });
        }
        for &value in node.outputs.iter().flatten() {
            if let (OpClass::Constant | OpClass::Variable, Some(uses)) = (class, self.of(value)) {
                uses.stays = true;
            }
            if !made.contains(&value) && !self.handed.contains(&(id, value)) {
                self.write(value, start, end);
            }
        }
    }

    /// The inputs of a node without bodies that are outputs under another name, or of which one lies
    /// in the other, each with the output. What hands on whichever input has come may do so in memory
    /// of its own.
    fn names(&self, id: NodeId, effects: &Effects) -> Vec<(ValueId, ValueId)> {
        let (graph, table) = (self.moments.graph, self.moments.table);
        let node = &graph.nodes[id];
        let merges = effects.merges || table.traits(graph, id).has(Trait::Merges);
        let mut names = Vec::new();
        for (o, to) in (0u32..).zip(&node.outputs) {
            let writes = effects.refs.iter().any(|alias| alias.output == o);
            let Some(to) = to.filter(|_| !writes) else {
                continue;
            };
            let one = || {
                effects
                    .view_of(o)
                    .or_else(|| reference(graph, table, id, o))
            };
            let inputs = match (merges, o) {
                (true, 0) => &node.inputs[..],
                _ => one().map_or(&[][..], |i| {
                    let i = i as usize;
                    node.inputs.get(i..=i).unwrap_or_default()
                }),
            };
            let inputs = inputs.iter().flatten();
            let same = inputs.filter(|from| self.sides.get(from) == self.sides.get(&to));
            names.extend(same.map(|&from| (from, to)));
        }
        let pieces = pieces(graph, table, id).into_iter();
        let same = pieces.filter(|p| self.sides.get(&p.from) == self.sides.get(&p.to));
        names.extend(same.map(|p| (p.from, p.to)));
        names
    }
}

impl Uses {
    /// Whether a write can destroy what another memory holds.
    pub(super) fn overwrites(&self, write: &Write) -> bool {
        self.silent != Some(write.value)
    }

    /// The same writes, as if each value were read at once, as it is made.
    pub(super) fn read_at_once(&self) -> Uses {
        let stretch = |w: &Write| Stretch {
            from: w.start,
            to: w.end,
            at: w.end,
            value: w.value,
        };
        Uses {
            value: self.value,
            values: self.values.clone(),
            stays: self.stays,
            writes: Vec::new(),
            silent: self.silent,
            stretches: self.writes.iter().map(stretch).collect(),
            reads: FxHashMap::default(),
            held: FxHashMap::default(),
            flows: FxHashMap::default(),
            sources: FxHashMap::default(),
        }
    }

    /// Finds the stretches.
    fn stretch(&mut self, moments: &Moments<'_>) {
        self.writes.sort_unstable();
        let needed = self.needed();
        let mut begins: FxHashMap<ValueId, Vec<usize>> = FxHashMap::default();
        for write in &self.writes {
            begins.entry(write.value).or_default().push(write.start);
        }
        for flow in self.sources.values().flatten() {
            begins.entry(flow.to).or_default().push(flow.begins);
        }
        for (value, mut begins) in begins {
            begins.sort_unstable();
            begins.dedup();
            let reads = self.reads.get(&value).into_iter().flatten().copied();
            let on = self.flows.get(&value).into_iter().flatten();
            let on = on.filter(|flow| needed.contains(&flow.to));
            let held = self.held.get(&value).into_iter().flatten();
            let held = held.filter(|_| needed.contains(&value));
            let ends = reads
                .chain(on.map(|flow| (flow.at, flow.until)))
                .chain(held.map(|&at| (at, at)));
            let mut ends: Vec<(usize, usize)> = ends.collect();
            ends.sort_unstable();
            ends.dedup();
            for (k, &from) in begins.iter().enumerate() {
                // The state of a loop holds one content before the loop ends, and another behind.
                let next = begins.get(k + 1).copied().unwrap_or(usize::MAX);
                let here = ends.iter().filter(|e| (from..next).contains(&e.0));
                let stretch = |&(at, to): &(usize, usize)| Stretch {
                    from,
                    to,
                    at,
                    value,
                };
                self.stretches.extend(here.map(stretch));
                if ends.last().is_some_and(|e| e.0 >= next)
                    && let Some(at) = looked_at(moments, value)
                {
                    self.stretches.push(stretch(&(at, at)));
                }
            }
        }
        self.stretches.sort_unstable();
        self.stretches.dedup();
    }

    /// The values that are read, or become one that is.
    fn needed(&self) -> FxHashSet<ValueId> {
        let mut needed: FxHashSet<ValueId> = self.reads.keys().copied().collect();
        let mut list: Vec<ValueId> = needed.iter().copied().collect();
        while let Some(value) = list.pop() {
            for flow in self.sources.get(&value).into_iter().flatten() {
                if needed.insert(flow.from) {
                    list.push(flow.from);
                }
            }
        }
        needed
    }
}

/// Up to when a loop that may end before its first pass keeps what it began with: until its
/// condition is known.
fn looked_at(moments: &Moments<'_>, value: ValueId) -> Option<usize> {
    let graph = moments.graph;
    let mut bodies = graph.nodes[graph.values[value].producer].bodies.iter();
    let condition = bodies.find(|body| body.is_condition())?;
    Some(moments.borders.get(&condition.graph)?.last)
}
