//! The moments of a program: when nodes start and end, subgraphs are entered and left, and values
//! are handed over at their borders, with what each moment certainly waits for.
//!
//! The body of a loop is laid out once, for any one of its passes. Bodies of which one runs are in
//! no order with one another. What is ordered by way of a body that may not run is ordered for what
//! is inside that body alone: such ways are masked where they leave it. Of several gears one alone
//! runs, so what is ordered by way of a node of one is ordered in its runs alone: each has walks of
//! its own.

use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};
use tenure_graph::control::{Point, Transfer, transfers};
use tenure_graph::effects::{Gears, OpClass, OpTable};
use tenure_graph::entity::SecondaryMap;
use tenure_graph::{Graph, NodeId, StreamId, SubgraphId, ValueId};

use super::Hop;

/// How many moments one walk serves.
pub(super) const BATCH: usize = u64::BITS as usize;

/// What a moment waits for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Need {
    pub(super) before: usize,
    /// `data`, `control`, `stream` or `body`.
    pub(super) by: &'static str,
    /// A body that may not run and that this way leads out of, past its border.
    out_of: Option<SubgraphId>,
    /// The same for a way into a body.
    into: Option<SubgraphId>,
}

/// All that a moment waits for; mostly one or two.
type Needs = SmallVec<[Need; 2]>;

/// A value that is handed over between a node and a body of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handed {
    pub(super) owner: NodeId,
    pub(super) body: SubgraphId,
    pub(super) transfer: Transfer,
    pub(super) at: usize,
}

/// When a body is entered and left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Border {
    pub(super) enter: usize,
    /// When all that it is given is there.
    filled: usize,
    /// When all its nodes have ended; what it hands back follows.
    leave: usize,
    /// When it has handed back its results.
    pub(super) last: usize,
}

/// All moments, in an order that is allowed.
pub(super) struct Moments<'a> {
    pub(super) graph: &'a Graph,
    pub(super) table: &'a OpTable,
    pub(super) node: Vec<NodeId>,
    /// The subgraph that has to run for the moment to come.
    pub(super) home: Vec<SubgraphId>,
    pub(super) needs: Vec<Needs>,
    pub(super) start: SecondaryMap<NodeId, Option<usize>>,
    pub(super) end: SecondaryMap<NodeId, Option<usize>>,
    pub(super) borders: FxHashMap<SubgraphId, Border>,
    /// What is handed over of the values that are asked about.
    pub(super) handed: Vec<Handed>,
    /// For each subgraph the innermost body around it that may not run; it may be itself.
    perhaps: SecondaryMap<SubgraphId, Option<SubgraphId>>,
    gears: Option<Gears>,
    /// Whether nothing that runs is on a stream, so that the list is the order.
    is_list: bool,
    /// For the program and each open body, by stream: what the next node on it waits for.
    frames: Vec<LastOn>,
}

/// The moments that the next node on a stream waits for: its last node, and what came behind that
/// in bodies and gears that may not have run.
type LastOn = FxHashMap<StreamId, Last>;

/// On one stream mostly a single one.
type Last = SmallVec<[usize; 1]>;

/// So many moments at most are waited for one by one.
const FEW: usize = 8;

/// What is laid out next.
enum Task {
    Node(NodeId),
    Enter(NodeId, usize),
    Leave(NodeId, usize),
    End(NodeId),
}

/// An owner whose bodies are laid out.
struct Open {
    /// Sorted by when they happen.
    transfers: Vec<Transfer>,
    /// The last border that was passed.
    border: usize,
    /// The borders that its end waits for: its start, then those of its bodies.
    left: Vec<usize>,
    /// What each body leaves behind on streams.
    streams: Vec<(StreamId, Last)>,
}

impl<'a> Moments<'a> {
    /// The moments of a program; of what is handed over, those of the values that are asked about.
    pub(super) fn of(
        graph: &'a Graph,
        table: &'a OpTable,
        asked: &dyn Fn(ValueId) -> bool,
    ) -> Self {
        let mut moments = Moments {
            graph,
            table,
            node: Vec::new(),
            home: Vec::new(),
            needs: Vec::new(),
            start: SecondaryMap::new(),
            end: SecondaryMap::new(),
            borders: FxHashMap::default(),
            handed: Vec::new(),
            perhaps: SecondaryMap::new(),
            gears: Gears::new(graph),
            is_list: (graph.nodes.iter())
                .all(|(id, n)| n.stream.is_none() || !runs(graph, table, id)),
            frames: vec![LastOn::default()],
        };
        let nodes = |s: SubgraphId| graph.subgraphs[s].nodes.iter().rev().copied();
        let mut tasks: Vec<Task> = nodes(graph.root).map(Task::Node).collect();
        let mut open: Vec<Open> = Vec::new();
        while let Some(task) = tasks.pop() {
            match task {
                Task::Node(id) => {
                    let start = moments.begin(id);
                    if graph.nodes[id].bodies.is_empty() {
                        continue;
                    }
                    let mut transfers = transfers(graph, id, table.class(graph, id));
                    let names = |v: Option<ValueId>| v.is_some_and(asked);
                    transfers.retain(|t| names(t.from) || names(t.to));
                    transfers.sort_by_key(|t| t.at);
                    open.push(Open {
                        transfers,
                        border: start,
                        left: vec![start],
                        streams: Vec::new(),
                    });
                    moments.hand_over(id, 0, Point::Begin, &mut open);
                    tasks.push(Task::End(id));
                    for (k, body) in graph.nodes[id].bodies.iter().enumerate().rev() {
                        tasks.push(Task::Leave(id, k));
                        tasks.extend(nodes(body.graph).map(Task::Node));
                        tasks.push(Task::Enter(id, k));
                    }
                }
                Task::Enter(id, k) => moments.enter(id, k, &mut open),
                Task::Leave(id, k) => moments.leave(id, k, &mut open),
                Task::End(id) => {
                    let Some(Open { left, streams, .. }) = open.pop() else {
                        continue;
                    };
                    let home = graph.nodes[id].subgraph;
                    let end = moments.push(id, home, left.into_iter().map(body).collect());
                    moments.end[id] = Some(end);
                    for (stream, list) in streams {
                        moments.goes_on(id, stream, list);
                    }
                    if let Some(stream) = moments.stream(id) {
                        moments.is_last_on(stream, end);
                    }
                }
            }
        }
        moments
    }

    fn push(&mut self, node: NodeId, home: SubgraphId, needs: Needs) -> usize {
        self.node.push(node);
        self.home.push(home);
        self.needs.push(needs);
        self.node.len() - 1
    }

    fn enter(&mut self, owner: NodeId, k: usize, open: &mut [Open]) {
        let subgraph = self.graph.nodes[owner].bodies[k].graph;
        let outer = self.perhaps[self.graph.nodes[owner].subgraph];
        self.perhaps[subgraph] = match self.may_not_run(owner, k) {
            true => Some(subgraph),
            false => outer,
        };
        let Some(state) = open.last_mut() else { return };
        let class = self.table.class(self.graph, owner);
        if matches!(class, OpClass::Branch | OpClass::Opaque) {
            // Each body follows on the start.
            state.border = state.left[0];
        }
        let enter = self.push(owner, subgraph, smallvec![body(state.border)]);
        state.border = enter;
        self.hand_over(owner, k, Point::Enter(number(k)), open);
        let filled = open.last().map_or(enter, |state| state.border);
        let border = Border {
            enter,
            filled,
            leave: filled,
            last: filled,
        };
        self.borders.insert(subgraph, border);
        self.frames.push(LastOn::default());
    }

    fn leave(&mut self, owner: NodeId, k: usize, open: &mut [Open]) {
        let subgraph = self.graph.nodes[owner].bodies[k].graph;
        let Some(state) = open.last_mut() else { return };
        let nodes = self.graph.subgraphs[subgraph].nodes.iter();
        let mut needs: Needs = nodes.filter_map(|&n| self.end[n]).map(body).collect();
        needs.push(body(state.border));
        let leave = self.push(owner, subgraph, needs);
        state.border = leave;
        self.hand_over(owner, k, Point::Leave(number(k)), open);
        let Some(state) = open.last_mut() else { return };
        state.left.push(state.border);
        let frame = self.frames.pop().unwrap_or_default();
        let mut streams: Vec<_> = frame.into_iter().collect();
        streams.sort_unstable();
        state.streams.extend(streams);
        if let Some(border) = self.borders.get_mut(&subgraph) {
            (border.leave, border.last) = (leave, state.border);
        }
    }

    /// Lays out what is handed over at one point, one after the other.
    fn hand_over(&mut self, owner: NodeId, k: usize, point: Point, open: &mut [Open]) {
        let Some(state) = open.last_mut() else { return };
        let bodies = &self.graph.nodes[owner].bodies;
        let home = match point {
            Point::Begin => self.graph.nodes[owner].subgraph,
            Point::Enter(_) | Point::Leave(_) => bodies[k].graph,
        };
        let from = state.transfers.partition_point(|t| t.at < point);
        let to = state.transfers.partition_point(|t| t.at <= point);
        for i in from..to {
            let transfer = state.transfers[i];
            let at = self.push(owner, home, smallvec![body(state.border)]);
            state.border = at;
            self.handed.push(Handed {
                owner,
                body: bodies[k].graph,
                transfer,
                at,
            });
        }
    }

    /// Whether a run of the owner may leave out its body `k`.
    fn may_not_run(&self, owner: NodeId, k: usize) -> bool {
        match self.table.class(self.graph, owner) {
            OpClass::Call => false,
            OpClass::While => !self.graph.nodes[owner].bodies[k].is_condition(),
            _ => true,
        }
    }

    /// Whether a subgraph is a body that may not run.
    pub(super) fn is_perhaps(&self, subgraph: SubgraphId) -> bool {
        self.perhaps[subgraph] == Some(subgraph)
    }

    /// The start of a node, which is its end as well where it has no subgraphs.
    fn begin(&mut self, id: NodeId) -> usize {
        let graph = self.graph;
        let node = &graph.nodes[id];
        let mut needs = Needs::new();
        for &value in node.inputs.iter().flatten() {
            let Some(end) = self.end[graph.values[value].producer] else {
                continue;
            };
            needs.push(self.need(end, id, "data"));
            // What is read inside by name is there before the outer node starts.
            let around = graph.around(id, graph.home(value));
            if let Some(owner) = around.filter(|&owner| owner != id)
                && let Some(start) = self.start[owner]
                && end < start
            {
                let need = self.need(end, owner, "data");
                self.needs[start].push(need);
            }
        }
        let control = node.control.iter().filter_map(|&n| self.end[n]);
        needs.extend(control.map(|end| self.need(end, id, "control")));
        let stream = self.stream(id);
        if let Some(stream) = stream {
            let before = self.last_on(stream).iter();
            needs.extend(before.map(|&end| self.need(end, id, "stream")));
        }
        needs.extend(self.borders.get(&node.subgraph).map(|b| body(b.filled)));
        let start = self.push(id, node.subgraph, needs);
        self.start[id] = Some(start);
        if node.bodies.is_empty() {
            self.end[id] = Some(start);
        }
        if let Some(stream) = stream {
            self.is_last_on(stream, start);
        }
        start
    }

    /// The stream that a node is on.
    fn stream(&self, id: NodeId) -> Option<StreamId> {
        let is_listed = self.is_list && runs(self.graph, self.table, id);
        let list = || is_listed.then(|| StreamId::from_u32(0));
        self.graph.nodes[id].stream.or_else(list)
    }

    /// What the next node on a stream waits for.
    fn last_on(&self, stream: StreamId) -> &[usize] {
        let mut found = self.frames.iter().rev().filter_map(|f| f.get(&stream));
        found.next().map_or(&[], Last::as_slice)
    }

    fn is_last_on(&mut self, stream: StreamId, at: usize) {
        let mut last: Last = smallvec![at];
        if let Some(gear) = self.gear(at) {
            let others = self.last_on(stream).iter().copied();
            last.extend(others.filter(|&other| self.gear(other) != Some(gear)));
        }
        if let Some(frame) = self.frames.last_mut() {
            frame.insert(stream, last);
        }
    }

    /// The gear in whose runs alone a moment comes; `None` for what comes in all.
    pub(super) fn gear(&self, at: usize) -> Option<u32> {
        self.gears
            .as_ref()
            .and_then(|gears| gears.of(self.node[at]))
    }

    /// Whether a moment comes in the runs of a gear.
    pub(super) fn comes_in(&self, gear: Option<u32>, at: usize) -> bool {
        self.gear(at).is_none_or(|own| Some(own) == gear)
    }

    /// The gears that there are, or one that stands for all runs.
    pub(super) fn all_gears(&self) -> impl Iterator<Item = Option<u32>> + use<> {
        let count = self.gears.as_ref().map_or(1, Gears::count);
        let has_gears = self.gears.is_some();
        (0..count).map(move |gear| has_gears.then_some(gear))
    }

    /// The labels of two gears.
    pub(super) fn gear_names(&self, of: [u32; 2]) -> Option<[&str; 2]> {
        self.gears
            .as_ref()
            .map(|gears| of.map(|gear| gears.name(gear)))
    }

    /// A stream goes on behind a body that may not have run.
    fn goes_on(&mut self, owner: NodeId, stream: StreamId, list: Last) {
        let mut all = Last::from(self.last_on(stream));
        all.extend(list);
        if all.len() > FEW {
            // What comes in the runs of other gears does not wait for the owner of one.
            let gear = self.start[owner].and_then(|at| self.gear(at));
            let waits = |&at: &usize| gear.is_none() || self.gear(at) == gear;
            let (waiting, others): (Last, Last) = all.into_iter().partition(waits);
            let needs = waiting.iter().map(|&at| self.need(at, owner, "stream"));
            let needs = needs.collect();
            all = others;
            all.push(self.push(owner, self.graph.nodes[owner].subgraph, needs));
        }
        if let Some(frame) = self.frames.last_mut() {
            frame.insert(stream, all);
        }
    }

    fn need(&self, before: usize, after: NodeId, by: &'static str) -> Need {
        let (from, to) = (self.home[before], self.graph.nodes[after].subgraph);
        let (out_of, into) = (self.perhaps[from], self.perhaps[to]);
        let holds = |body: SubgraphId, inner: SubgraphId| {
            let mut around = std::iter::successors(Some(inner), |&s| self.graph.enclosing(s));
            around.any(|s| s == body)
        };
        let is_crossed = out_of != into;
        Need {
            before,
            by,
            out_of: out_of.filter(|&s| is_crossed && !holds(s, to)),
            into: into.filter(|&s| is_crossed && !holds(s, from)),
        }
    }

    /// For each moment which of at most 64 others have certainly passed in the runs of a gear, a bit
    /// each.
    pub(super) fn passed(&self, batch: &Batch, gear: Option<u32>) -> Vec<u64> {
        let mut bits = vec![0; self.needs.len()];
        for at in 0..bits.len() {
            if !self.comes_in(gear, at) {
                continue;
            }
            let mut sum = 0;
            for need in &self.needs[at] {
                if !self.comes_in(gear, need.before) {
                    continue;
                }
                let before = bits[need.before] | batch.own(need.before);
                sum |= before & need.out_of.map_or(u64::MAX, |s| batch.inside(s));
            }
            bits[at] = match self.left_at(at) {
                Some((body, enter)) => sum & batch.inside(body) | bits[enter] | batch.own(enter),
                None => sum,
            };
        }
        bits
    }

    /// For each moment which of at most 64 others it has certainly passed before in the runs of a
    /// gear.
    pub(super) fn ahead(&self, batch: &Batch, gear: Option<u32>) -> Vec<u64> {
        let mut bits = vec![0; self.needs.len()];
        for at in (0..bits.len()).rev() {
            if !self.comes_in(gear, at) {
                bits[at] = 0;
                continue;
            }
            let mut here = bits[at] | batch.own(at);
            if here == 0 {
                continue;
            }
            let home = self.home[at];
            if self.is_perhaps(home) && self.borders[&home].enter == at {
                here &= batch.inside(home);
            }
            for need in &self.needs[at] {
                bits[need.before] |= here & need.into.map_or(u64::MAX, |s| batch.inside(s));
            }
        }
        bits
    }

    /// The body that may not run and is left at a moment, and when it was entered.
    fn left_at(&self, at: usize) -> Option<(SubgraphId, usize)> {
        let body = self.home[at];
        let border = self.borders.get(&body)?;
        (border.leave == at && self.is_perhaps(body)).then_some((body, border.enter))
    }

    /// For each moment whether it has to come before another one, or is it; what is left out does
    /// not count.
    pub(super) fn before(&self, to: usize, is_left_out: impl Fn(usize) -> bool) -> Vec<bool> {
        let mut before = vec![false; to + 1];
        before[to] = true;
        for at in (0..=to).rev() {
            if before[at] {
                for need in &self.needs[at] {
                    before[need.before] |= !is_left_out(need.before);
                }
            }
        }
        before
    }

    /// The shortest certain path from one moment to a later one; where each gear has another one, the
    /// path in the runs of the first.
    pub(super) fn path(&self, from: usize, to: usize) -> Vec<Hop> {
        let gear = self.gear(from).or(self.gear(to));
        let mut gears = [gear].into_iter().chain(self.all_gears());
        let found = gears.find_map(|gear| {
            let path = self.path_in(from, to, gear);
            (!path.is_empty()).then_some(path)
        });
        found.unwrap_or_default()
    }

    fn path_in(&self, from: usize, to: usize, gear: Option<u32>) -> Vec<Hop> {
        let within = |at: usize, body: SubgraphId| {
            let border = self.borders.get(&body);
            border.is_some_and(|b| (b.enter..=b.last).contains(&at))
        };
        let mut next: FxHashMap<usize, (usize, &'static str)> = FxHashMap::default();
        let mut queue = vec![to];
        let mut at = 0;
        while let Some(&here) = queue.get(at) {
            at += 1;
            if here == from {
                break;
            }
            let left = self.left_at(here);
            let home = self.home[here];
            let is_entry = self.is_perhaps(home) && self.borders[&home].enter == here;
            if is_entry && !within(to, home) {
                continue;
            }
            for need in &self.needs[here] {
                let before = need.before;
                let is_certain = need.out_of.is_none_or(|s| within(from, s))
                    && need.into.is_none_or(|s| within(to, s))
                    && left.is_none_or(|(body, enter)| before == enter || within(from, body));
                let is_new = before >= from && before != to && !next.contains_key(&before);
                if is_certain && is_new && self.comes_in(gear, before) {
                    next.insert(before, (here, need.by));
                    queue.push(before);
                }
            }
        }
        let mut path = Vec::new();
        let mut here = from;
        while let Some(&(there, by)) = next.get(&here) {
            let (one, other) = (self.node[here], self.node[there]);
            let streams = [one, other].map(|n| self.graph.nodes[n].stream);
            let waits = matches!(streams, [Some(a), Some(b)] if a != b);
            if one != other {
                path.push(Hop {
                    from: self.graph.node_label(one),
                    to: self.graph.node_label(other),
                    by: if waits && matches!(by, "data" | "control") {
                        "wait"
                    } else {
                        by
                    },
                });
            }
            here = there;
        }
        path
    }
}

/// Whether a node is one that runs.
fn runs(graph: &Graph, table: &OpTable, id: NodeId) -> bool {
    let class = table.class(graph, id);
    !matches!(
        class,
        OpClass::Input | OpClass::Output | OpClass::Constant | OpClass::Variable
    )
}

/// The number of a body in [`Point`].
fn number(body: usize) -> u32 {
    u32::try_from(body).unwrap_or(u32::MAX)
}

/// A need of the border of a body.
const fn body(before: usize) -> Need {
    Need {
        before,
        by: "body",
        out_of: None,
        into: None,
    }
}

/// At most 64 moments that are asked about together, a bit each.
pub(super) struct Batch {
    own: FxHashMap<usize, u64>,
    inside: FxHashMap<SubgraphId, u64>,
    /// Those in bodies of nodes that run one of theirs, by the node.
    chosen: FxHashMap<NodeId, u64>,
    /// Those of each gear.
    of_gear: FxHashMap<u32, u64>,
}

impl Batch {
    pub(super) fn new(moments: &Moments<'_>, list: impl Iterator<Item = usize>) -> Self {
        let mut batch = Batch {
            own: FxHashMap::default(),
            inside: FxHashMap::default(),
            chosen: FxHashMap::default(),
            of_gear: FxHashMap::default(),
        };
        let graph = moments.graph;
        for (bit, at) in list.enumerate().take(BATCH) {
            *batch.own.entry(at).or_default() |= 1 << bit;
            if let Some(gear) = moments.gear(at) {
                *batch.of_gear.entry(gear).or_default() |= 1 << bit;
            }
            let mut inside = Some(moments.home[at]);
            while let Some(subgraph) = inside {
                *batch.inside.entry(subgraph).or_default() |= 1 << bit;
                let owner = graph.subgraphs[subgraph].owner;
                if let Some(owner) = owner
                    && moments.table.class(graph, owner) == OpClass::Branch
                {
                    *batch.chosen.entry(owner).or_default() |= 1 << bit;
                }
                inside = graph.enclosing(subgraph);
            }
        }
        batch
    }

    /// Those that are a moment.
    pub(super) fn own(&self, at: usize) -> u64 {
        self.own.get(&at).copied().unwrap_or(0)
    }

    fn inside(&self, subgraph: SubgraphId) -> u64 {
        self.inside.get(&subgraph).copied().unwrap_or(0)
    }

    /// Those that do not come in the runs of a gear.
    pub(super) fn not_in(&self, gear: Option<u32>) -> u64 {
        let others = self.of_gear.iter().filter(|&(&own, _)| Some(own) != gear);
        others.fold(0, |all, (_, bits)| all | bits)
    }

    /// Those that do not come in a run in which another moment does.
    pub(super) fn never_with(&self, moments: &Moments<'_>, at: usize) -> u64 {
        let graph = moments.graph;
        let gear = moments.gear(at);
        let mut never = if gear.is_some() { self.not_in(gear) } else { 0 };
        let home = moments.home[at];
        let mut inside = Some(home).filter(|_| !self.chosen.is_empty());
        while let Some(here) = inside {
            let owner = graph.subgraphs[here].owner;
            let chosen = owner.and_then(|owner| self.chosen.get(&owner));
            never |= chosen.copied().unwrap_or(0) & !self.inside(here);
            inside = graph.enclosing(here);
        }
        never
    }
}
