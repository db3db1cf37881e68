//! When the bytes of each value are needed: from the start of its writer to the end of its last
//! reader, both included, on the tree of time.
//!
//! One backward sweep over the steps starts from every sink: the first read of a value that it
//! meets in a subgraph is that subgraph's last, and earlier ones there change nothing. A read
//! inside a loop counts for the whole loop; a read inside a branch leaves out the sibling
//! branches that are laid out before it, since they do not run when it does.

use rustc_hash::FxHashMap;
use tenure_graph::control::{Pass, Point, Transfer, transfers};
use tenure_graph::effects::{OpClass, OpTable, cleared};
use tenure_graph::entity::SecondaryMap;
use tenure_graph::plan::{Item, Life, Phase, PlanOptions, Sharing, Span};
use tenure_graph::{Graph, NodeId, SubgraphId, ValueId};

use crate::homes::{Home, Homes};
use crate::schedule::Schedule;
use crate::spans::{normalise, without};

/// The life of every planned value, before anything shares memory.
///
/// `Sharing::None` counts plainly: every input that a node names is a read, a node with bodies
/// reads and writes for all of its steps, and lives have no gaps.
#[must_use]
pub fn lives(
    graph: &Graph,
    table: &OpTable,
    options: &PlanOptions,
    homes: &Homes,
    schedule: &Schedule,
) -> SecondaryMap<ValueId, Life> {
    let mut sweep = Sweep {
        graph,
        table,
        plain: options.sharing == Sharing::None,
        homes,
        schedule,
        last: SecondaryMap::with_capacity(graph.values.len()),
        inner: FxHashMap::default(),
    };
    sweep.run();
    let mut lives = SecondaryMap::with_capacity(graph.values.len());
    for (id, value) in graph.values.iter() {
        if homes.of[id] == Home::Planned {
            lives[id] = sweep.written(id, value.producer);
        }
    }
    for step in &schedule.steps {
        for c in cleared(graph, table, step.node) {
            let Item::Value(value) = c.item else { continue };
            if homes.of[value] == Home::Planned {
                lives[value].push(Span {
                    first: schedule.first(c.cleaner),
                    last: schedule.last(graph.values[value].producer),
                });
            }
        }
    }
    // Captured reads come grouped by value, so that each life is put in order once.
    let mut inner: Vec<_> = sweep.inner.iter().map(|(&k, &step)| (k, step)).collect();
    inner.sort_unstable();
    for ((value, subgraph), step) in inner {
        sweep.add_inner(value, subgraph, step, &mut lives[value]);
    }
    for value in graph.values.keys() {
        if let Some(last) = sweep.last[value] {
            sweep.add_outer(value, last, &mut lives[value]);
        }
        normalise(&mut lives[value]);
    }
    let root = &graph.subgraphs[graph.root];
    for (position, &data) in root.inputs.iter().enumerate() {
        if !options.keeps_input(position) {
            continue;
        }
        for &value in graph.nodes[data].outputs.iter().flatten() {
            if homes.of[value] == Home::Planned {
                let whole = Span {
                    first: 0,
                    last: schedule.end(),
                };
                lives[value] = Life::from_elem(whole, 1);
            }
        }
    }
    lives
}

struct Sweep<'a> {
    graph: &'a Graph,
    table: &'a OpTable,
    plain: bool,
    homes: &'a Homes,
    schedule: &'a Schedule,
    /// Last read in the value's own subgraph.
    last: SecondaryMap<ValueId, Option<u32>>,
    /// Last read in a subgraph below the value's own, none of which repeats.
    inner: FxHashMap<(ValueId, SubgraphId), u32>,
}

impl Sweep<'_> {
    fn run(&mut self) {
        let steps = &self.schedule.steps;
        for (number, step) in (0..=self.schedule.end()).rev().zip(steps.iter().rev()) {
            let node = step.node;
            match step.phase {
                Phase::Run => {
                    let effects = self.table.effects(self.graph, node);
                    for (k, value) in (0u32..).zip(&self.graph.nodes[node].inputs) {
                        // What a view is made of is read, though nothing else of it be.
                        let viewed = || effects.views.iter().any(|a| a.input == k);
                        if let Some(value) = *value
                            && (self.plain || !effects.shape_only.contains(&k) || viewed())
                        {
                            self.read(value, node, number);
                        }
                    }
                }
                Phase::End => self.owner_reads(node, number),
                Phase::Begin | Phase::Enter(_) => {}
            }
        }
    }

    /// What a node with bodies reads on its own account. Results of bodies are read by their
    /// output nodes. A view handed into a branch is a read at the branch's entry; what is read
    /// through it afterwards is the view's own life.
    fn owner_reads(&mut self, node: NodeId, end: u32) {
        let class = self.table.class(self.graph, node);
        let begin = self.schedule.first(node);
        let transfers = transfers(self.graph, node, class);
        for value in self.graph.nodes[node].inputs.iter().copied().flatten() {
            // What each pass looks at again is read to the end.
            let in_parts =
                |t: &Transfer| t.from == Some(value) && matches!(t.pass, Pass::Slice | Pass::Take);
            let whole = self.plain || class == OpClass::Opaque || transfers.iter().any(in_parts);
            self.read(value, node, if whole { end } else { begin });
        }
        if self.plain {
            return;
        }
        let is_given = |t: &&Transfer| t.pass == Pass::View && !t.gives_back_a_name();
        for t in transfers.iter().filter(is_given) {
            if let (Some(from), Some(to)) = (t.from, t.to) {
                let data = self.graph.values[to].producer;
                let step = point_step(self.graph, self.schedule, node, t.at);
                self.read(from, data, step);
            }
        }
    }

    /// Notes a read at `step` by `reader`.
    fn read(&mut self, value: ValueId, reader: NodeId, step: u32) {
        if self.homes.of[value] != Home::Planned {
            return;
        }
        let home = self.graph.home(value);
        let mut at = self.graph.nodes[reader].subgraph;
        let mut step = step;
        // The read is lifted to the outermost repeating owner between the value and the reader.
        let mut outer = at;
        while outer != home {
            let Some(owner) = self.graph.subgraphs[outer].owner else {
                return;
            };
            let parent = self.graph.nodes[owner].subgraph;
            if self.plain || self.table.class(self.graph, owner).repeats() {
                at = parent;
                step = self.schedule.last(owner);
            }
            outer = parent;
        }
        let last = if at == home {
            self.last[value].get_or_insert(step)
        } else {
            self.inner.entry((value, at)).or_insert(step)
        };
        *last = (*last).max(step);
    }

    /// The steps at which a value is written, and those at which a state is held for its loop.
    fn written(&self, value: ValueId, producer: NodeId) -> Life {
        let graph = self.graph;
        let mut life = Life::new();
        let mut add = |first, last| life.push(Span { first, last });
        let class = self.table.class(graph, producer);
        let subgraph = graph.nodes[producer].subgraph;
        if class == OpClass::Input {
            let enter = self.schedule.body[subgraph].first;
            add(enter, enter);
            return life;
        }
        let Some(Span {
            first: begin,
            last: end,
        }) = self.schedule.span[producer]
        else {
            return life;
        };
        if graph.nodes[producer].bodies.is_empty() || self.plain || class == OpClass::Opaque {
            add(begin, end);
            return life;
        }
        add(end, end);
        let all = transfers(graph, producer, class);
        let step = |at: Point| self.point(producer, at);
        for t in all.iter().filter(|t| t.to == Some(value)) {
            match (t.pass, t.at) {
                (Pass::Append | Pass::Put, _) => add(begin, end),
                (_, Point::Begin) => {
                    let entered = all
                        .iter()
                        .filter(|u| u.from == Some(value) && matches!(u.at, Point::Enter(_)))
                        .map(|u| step(u.at));
                    // What no pass reads is there at the end of a loop that makes none: only the
                    // last body may work in its memory, up to its results.
                    let body = (0u32..).zip(&graph.nodes[producer].bodies).last();
                    let body = body.filter(|_| self.is_read(value));
                    let body = body.map(|(k, _)| step(Point::Enter(k)));
                    add(begin, entered.chain(body).max().unwrap_or(begin));
                }
                (_, at @ Point::Leave(_)) if class.repeats() => add(step(at), end),
                (_, at) => add(step(at), step(at)),
            }
        }
        life
    }

    /// Whether anybody reads a value behind its producer.
    fn is_read(&self, value: ValueId) -> bool {
        self.last[value].is_some() || self.inner.keys().any(|&(v, _)| v == value)
    }

    /// The step of a point of an owner.
    fn point(&self, owner: NodeId, at: Point) -> u32 {
        point_step(self.graph, self.schedule, owner, at)
    }

    /// Adds the steps up to the last read in the value's own subgraph.
    fn add_outer(&self, value: ValueId, last: u32, life: &mut Life) {
        let Some(first) = self.origin(value, life) else {
            return;
        };
        if last >= first {
            life.push(Span { first, last });
        }
    }

    /// Adds the steps up to the last read in a branch below, without the branches that are laid
    /// out before it.
    fn add_inner(&self, value: ValueId, subgraph: SubgraphId, step: u32, life: &mut Life) {
        let Some(first) = self.origin(value, life) else {
            return;
        };
        let home = self.graph.home(value);
        let mut holes = Vec::new();
        let mut at = subgraph;
        while at != home {
            let Some(owner) = self.graph.subgraphs[at].owner else {
                return;
            };
            let bodies = &self.graph.nodes[owner].bodies;
            let before = bodies.iter().take_while(|b| b.graph != at);
            holes.extend(before.map(|b| self.schedule.body[b.graph]));
            at = self.graph.nodes[owner].subgraph;
        }
        holes.sort_unstable();
        without(Span { first, last: step }, &holes, life);
    }

    /// The step from which the value is whole for readers in its own subgraph.
    fn origin(&self, value: ValueId, life: &Life) -> Option<u32> {
        let producer = self.graph.values[value].producer;
        match self.schedule.span[producer] {
            Some(span) => Some(span.last),
            None => life.first().map(|s| s.first),
        }
    }
}

/// The step at which the transfers of a point happen.
pub(crate) fn point_step(graph: &Graph, schedule: &Schedule, owner: NodeId, at: Point) -> u32 {
    let body = |k: u32| {
        let k = usize::try_from(k).unwrap_or(usize::MAX);
        let body = graph.nodes[owner].bodies.get(k)?;
        Some(schedule.body[body.graph])
    };
    match at {
        Point::Begin => Some(schedule.first(owner)),
        Point::Enter(k) => body(k).map(|s| s.first),
        Point::Leave(k) => body(k).map(|s| s.last),
    }
    .unwrap_or_else(|| schedule.first(owner))
}

/// Transfers whose source and target may become one memory, with the step of each.
pub(crate) fn moves(
    graph: &Graph,
    table: &OpTable,
    schedule: &Schedule,
    owner: NodeId,
) -> Vec<(u32, Transfer)> {
    transfers(graph, owner, table.class(graph, owner))
        .into_iter()
        .filter(|t| t.pass == Pass::Move || t.gives_back_a_name())
        .map(|t| (point_step(graph, schedule, owner, t.at), t))
        .collect()
}
