//! The shortest schedule in which a reader finds what was written over the content it means.
//!
//! A schedule has each node after all that it waits for: of branches the bodies that matter, of
//! loops no pass that does not matter.

use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;
use tenure_graph::effects::OpClass;
use tenure_graph::{NodeId, SubgraphId, ValueId};

use super::meet::{Clash, gear_of};
use super::moments::{Batch, Moments};
use super::uses::{Flow, Uses};
use crate::witness::Step;

/// What a clash is between, by the nodes that write and read.
struct Scene {
    /// When the content is written, and under which name.
    maker: (usize, ValueId),
    /// When it is read, and under which name.
    reader: (usize, ValueId),
    /// Loops that go on to their next pass before it is read, in order.
    passes: Vec<NodeId>,
    /// The bodies that the content passes through until it is there.
    bodies: Vec<SubgraphId>,
    /// The bodies that it passes through on the way to its reader.
    bodies_on: Vec<SubgraphId>,
    /// The loop whose passes each write a slice of the content.
    collects: Option<NodeId>,
}

/// A schedule that goes wrong.
pub(super) struct Wrong {
    /// The value that is read and the one that is written over it.
    pub(super) meet: [ValueId; 2],
    pub(super) steps: Vec<Step>,
}

impl Wrong {
    /// No schedule of two values.
    pub(super) const fn none(meet: [ValueId; 2]) -> Self {
        let steps = Vec::new();
        Wrong { meet, steps }
    }

    /// The same for who asked the other way round.
    pub(super) fn turned(self) -> Self {
        let [read, over] = self.meet;
        Wrong {
            meet: [over, read],
            ..self
        }
    }
}

/// A schedule in which a reader of `kept` finds what was written in `other`.
pub(super) fn wrong(
    moments: &Moments<'_>,
    (kept, other): (&Uses, &Uses),
    clash: Clash,
) -> Option<Wrong> {
    let scene = Scene::of(moments, kept, clash)?;
    let mut line = Line::new(moments, &scene, clash);
    let Clash { kept: need, over } = clash;
    let written = name(moments, other, over.value);
    let read = name(moments, kept, scene.reader.1);
    let meet = [scene.reader.1, over.value];
    match scene.collects {
        // What is made slice by slice is there in part after the first pass.
        Some(owner) => {
            line.run(scene.maker.0, String::new());
            line.next_pass(owner);
            let does = format!("writes a slice of {}", name(moments, kept, scene.maker.1));
            line.push(owner, does);
        }
        None if scene.maker.0 == over.start => {}
        None => line.run(scene.maker.0, told_maker(moments, kept, scene.maker)),
    }
    if scene.reader.0 == over.start && need.to == over.start {
        let does = format!("writes {written} over {read}, which it reads");
        line.run(over.start, does);
        return Some(line.wrong(meet));
    }
    let over_it = match scene.maker.0 == over.start {
        true => format!(
            "over {}, which it writes",
            name(moments, kept, scene.maker.1)
        ),
        false => "over it".to_owned(),
    };
    line.run(over.start, format!("writes {written} {over_it}"));
    for &owner in &scene.passes {
        line.next_pass(owner);
    }
    let is_left_out = line.is_left_out(moments.home[scene.reader.0]);
    if is_left_out || line.done.get(scene.reader.0) == Some(&true) {
        line.next_pass(loop_of_both(
            moments,
            (scene.reader.0, over.start),
            need.to,
        )?);
    }
    let found = moments.graph.value_label(over.value);
    line.run(scene.reader.0, format!("reads {read} and finds {found}"));
    Some(line.wrong(meet))
}

/// A schedule in which what is kept from run to run is found overwritten, in the next one where it is
/// read before in this one.
pub(super) fn wrong_in_some_run(
    moments: &Moments<'_>,
    (kept, other): (&Uses, &Uses),
) -> Option<Wrong> {
    let reads = kept.reads.iter();
    let reads = reads.flat_map(|(&value, reads)| reads.iter().map(move |r| (r.0, value)));
    let (at, value) = reads.min()?;
    let over = *other.writes.iter().find(|w| other.overwrites(w))?;
    let graph = moments.graph;
    let stays = |at: usize| stands_for_memory(moments.table.class(graph, moments.node[at]));
    let maker = kept.writes.iter().find(|w| stays(w.start))?;
    let homes = [at, over.start].map(|m| moments.home[m]);
    let both = Batch::new(moments, [over.start].into_iter());
    let never = both.never_with(moments, at) != 0;
    let gear = moments.gear(over.start).or(moments.gear(at));
    let mut line = Line::of(moments, if never { [homes[1]; 2] } else { homes }, gear);
    let read = name(moments, kept, value);
    let written = name(moments, other, over.value);
    let found = graph.value_label(over.value);
    let does = told_maker(moments, kept, (maker.start, maker.value));
    line.push(moments.node[maker.start], does);
    let before = moments.before(over.start, |at| line.never_comes(at));
    let is_read_before = before.get(at) == Some(&true);
    if is_read_before && at < over.start {
        line.run(at, format!("reads {read}"));
    }
    line.run(over.start, format!("writes {written} over it"));
    if is_read_before || never {
        let does = format!("reads {read} in the next run and finds {found}");
        line.push(moments.node[at], does);
    } else {
        line.run(at, format!("reads {read} and finds {found}"));
    }
    Some(line.wrong([value, over.value]))
}

/// The schedule in which the reader of a clash comes first; `None` where it has to come later.
pub(super) fn right(
    moments: &Moments<'_>,
    (kept, other): (&Uses, &Uses),
    clash: Clash,
) -> Option<Vec<Step>> {
    let scene = Scene::of(moments, kept, clash)?;
    let mut line = Line::new(moments, &scene, clash);
    line.announce([kept, other]);
    let read = name(moments, kept, scene.reader.1);
    line.run(scene.reader.0, format!("reads {read}"));
    let over = clash.over;
    if !scene.passes.is_empty() || line.done[over.start] {
        return None;
    }
    line.writes(other, (over.start, over.value));
    Some(line.steps)
}

/// The schedule in which what is written over a content comes before it.
pub(super) fn right_before(
    moments: &Moments<'_>,
    (kept, other): (&Uses, &Uses),
    clash: Clash,
) -> Option<Vec<Step>> {
    let scene = Scene::of(moments, kept, clash)?;
    let mut line = Line::new(moments, &scene, clash);
    let over = clash.over;
    line.writes(other, (over.start, over.value));
    let reads = other.reads.get(&over.value).into_iter().flatten();
    let last = reads.map(|r| r.0).filter(|&at| !line.never_comes(at)).max();
    if let Some(at) = last.filter(|&at| at != scene.maker.0) {
        line.run(at, format!("reads {}", name(moments, other, over.value)));
    }
    if line.done[scene.maker.0] {
        return None;
    }
    line.writes(kept, scene.maker);
    Some(line.steps)
}

/// What is said of the node that a content comes from.
fn told_maker(moments: &Moments<'_>, kept: &Uses, (at, value): (usize, ValueId)) -> String {
    let class = moments.table.class(moments.graph, moments.node[at]);
    let verb = if stands_for_memory(class) {
        "holds"
    } else {
        "writes"
    };
    format!("{verb} {}", name(moments, kept, value))
}

/// A value by its own name, and by the one that was asked about.
fn name(moments: &Moments<'_>, uses: &Uses, value: ValueId) -> String {
    let label = moments.graph.value_label(value);
    if value == uses.value {
        return label;
    }
    format!(
        "{label} (memory of {})",
        moments.graph.value_label(uses.value)
    )
}

/// What stands for memory runs nothing.
fn stands_for_memory(class: OpClass) -> bool {
    matches!(
        class,
        OpClass::Input | OpClass::Constant | OpClass::Variable
    )
}

/// The innermost loop around both a reader and a writer, or else the outermost one around the
/// reader in whose every pass it reads.
fn loop_of_both(
    moments: &Moments<'_>,
    (reader, writer): (usize, usize),
    to: usize,
) -> Option<NodeId> {
    let graph = moments.graph;
    let mut inside = Some(moments.home[reader]);
    while let Some(subgraph) = inside {
        let owner = graph.subgraphs[subgraph].owner?;
        let (start, end) = (moments.start[owner]?, moments.end[owner]?);
        let repeats = moments.table.class(graph, owner).repeats();
        if repeats && (end == to || (start..end).contains(&writer)) {
            return Some(owner);
        }
        inside = graph.enclosing(subgraph);
    }
    None
}

impl Scene {
    fn of(moments: &Moments<'_>, kept: &Uses, clash: Clash) -> Option<Self> {
        let need = clash.kept;
        let mut bodies = Vec::new();
        let maker = origin(moments, kept, (need.value, need.from), &mut bodies)?;
        let (mut passes, mut bodies_on) = (Vec::new(), Vec::new());
        let at = need.at;
        let is_read = |r: &&(usize, usize)| r.0 == at;
        let here = kept
            .reads
            .get(&need.value)
            .and_then(|r| r.iter().find(is_read));
        let reader = match here {
            Some(_) => (at, need.value),
            None => reader(moments, kept, (need.value, at), &mut passes, &mut bodies_on)?,
        };
        let mut writes = kept.writes.iter();
        let owner = moments.graph.values[maker.1].producer;
        let is_sliced = writes.any(|w| (w.start, w.value) == maker && w.end > w.start)
            && moments
                .handed
                .iter()
                .any(|h| h.transfer.to == Some(maker.1));
        if is_sliced {
            bodies.extend(moments.graph.nodes[owner].bodies.iter().map(|b| b.graph));
        }
        Some(Scene {
            maker,
            reader,
            passes,
            bodies,
            bodies_on,
            collects: is_sliced.then_some(owner),
        })
    }
}

/// Some bodies, and those around them.
fn around(
    moments: &Moments<'_>,
    bodies: impl IntoIterator<Item = SubgraphId>,
) -> FxHashSet<SubgraphId> {
    let mut all = FxHashSet::default();
    for body in bodies {
        let mut around = Some(body);
        while let Some(here) = around.filter(|&s| all.insert(s)) {
            around = moments.graph.enclosing(here);
        }
    }
    all
}

/// Where the content comes from that a value has from a moment on.
fn origin(
    moments: &Moments<'_>,
    uses: &Uses,
    (value, from): (ValueId, usize),
    bodies: &mut Vec<SubgraphId>,
) -> Option<(usize, ValueId)> {
    let mut seen = FxHashSet::from_iter([(value, from)]);
    let mut list = vec![(value, from, None::<usize>)];
    let mut ways: Vec<(Option<usize>, Option<SubgraphId>)> = Vec::new();
    while let Some((value, from, way)) = list.pop() {
        let mut writes = uses.writes.iter();
        if writes.any(|w| w.value == value && w.start == from) {
            let mut way = way;
            while let Some((before, body)) = way.and_then(|w| ways.get(w)) {
                bodies.extend(*body);
                way = *before;
            }
            return Some((from, value));
        }
        let sources = uses.sources.get(&value).into_iter().flatten();
        for flow in sources.filter(|flow| flow.begins == from) {
            ways.push((way, flow.body));
            let writes = uses.writes.iter().filter(|w| w.value == flow.from);
            let flows = uses.sources.get(&flow.from).into_iter().flatten();
            let begins = writes.map(|w| w.start).chain(flows.map(|f| f.begins));
            for begin in begins.filter(|&begin| begin <= flow.at) {
                if seen.insert((flow.from, begin)) {
                    list.push((flow.from, begin, Some(ways.len() - 1)));
                }
            }
        }
        // A loop that ends before its first pass gives back what it began with.
        let graph = moments.graph;
        let owner = graph.values[value].producer;
        if moments.table.class(graph, owner).repeats() && moments.end[owner] == Some(from) {
            let sources = uses.sources.get(&value).into_iter().flatten();
            let writes = uses.writes.iter().filter(|w| w.value == value);
            let begins = sources.map(|f| f.begins).chain(writes.map(|w| w.start));
            if let Some(begin) = begins.min().filter(|&begin| begin < from)
                && seen.insert((value, begin))
            {
                list.push((value, begin, way));
            }
        }
    }
    None
}

/// The nearest node that reads what a value holds at a moment, under whatever name; rather in this
/// pass of the loops around it than in the next.
fn reader(
    moments: &Moments<'_>,
    uses: &Uses,
    (value, at): (ValueId, usize),
    passes: &mut Vec<NodeId>,
    bodies: &mut Vec<SubgraphId>,
) -> Option<(usize, ValueId)> {
    /// A name that the content has from a moment on, and how it came by it.
    struct Stop {
        value: ValueId,
        from: usize,
        before: Option<usize>,
        body: Option<SubgraphId>,
        pass: Option<NodeId>,
    }
    let mut stops = vec![Stop {
        value,
        from: at,
        before: None,
        body: None,
        pass: None,
    }];
    let mut queue = VecDeque::from([0]);
    let mut seen = FxHashSet::default();
    while let Some(number) = queue.pop_front() {
        let (value, from) = (stops[number].value, stops[number].from);
        if !seen.insert((value, from)) {
            continue;
        }
        let reads = uses.reads.get(&value).into_iter().flatten();
        // What is handed on at the very moment that is asked about is handed on there.
        let is_handed_on = |flow: &Flow| number == 0 && flow.at == at;
        let on = uses.flows.get(&value).into_iter().flatten();
        let read = reads.map(|r| r.0).filter(|&at| at >= from).min();
        if let Some(at) = read.filter(|_| !on.clone().any(is_handed_on)) {
            let mut stop = Some(number);
            let mut all = Vec::new();
            while let Some(here) = stop.and_then(|s| stops.get(s)) {
                bodies.extend(here.body);
                all.extend(here.pass);
                stop = here.before;
            }
            all.reverse();
            passes.extend(all);
            return Some((at, value));
        }
        let is_now = on.clone().any(is_handed_on);
        let flows = on.filter(|flow| flow.at >= from);
        for flow in flows.filter(|f| !is_now || f.at == at) {
            queue.push_back(stops.len());
            stops.push(next(flow, number));
        }
        // The state of a loop is there in its next pass, from its start on.
        let owner = moments.graph.values[value].producer;
        let repeats = moments.table.class(moments.graph, owner).repeats();
        if let Some(start) = moments.start[owner].filter(|&s| repeats && s < from && !is_now) {
            queue.push_back(stops.len());
            stops.push(Stop {
                value,
                from: start,
                before: Some(number),
                body: None,
                pass: Some(owner),
            });
        }
    }
    fn next(flow: &Flow, number: usize) -> Stop {
        Stop {
            value: flow.to,
            from: flow.begins,
            before: Some(number),
            body: flow.body,
            pass: None,
        }
    }
    None
}

/// A schedule that grows: each node after all that it waits for.
struct Line<'a> {
    moments: &'a Moments<'a>,
    done: Vec<bool>,
    /// The gear that runs.
    gear: Option<u32>,
    /// The bodies that run; of nodes that run one of theirs and are not named, the first does.
    chosen: FxHashSet<SubgraphId>,
    /// The bodies that run from the next pass of a loop on.
    then: Option<FxHashSet<SubgraphId>>,
    /// The nodes of which a body is chosen.
    owners: FxHashSet<NodeId>,
    left_out: FxHashMap<SubgraphId, bool>,
    /// What is told of memory that is filled from outside, by the moment.
    filled: FxHashMap<usize, String>,
    steps: Vec<Step>,
}

impl<'a> Line<'a> {
    /// A schedule in which the nodes of a scene run. Where the reader is in another body of a branch
    /// than the writer, it waits for another pass of the loop around.
    fn new(moments: &'a Moments<'a>, scene: &Scene, clash: Clash) -> Self {
        let homes = [scene.maker.0, clash.over.start].map(|at| moments.home[at]);
        let first = scene.bodies.iter().copied().chain(homes);
        let mut line = Line::of(moments, first, gear_of(moments, clash));
        let (graph, table) = (moments.graph, moments.table);
        let then = scene.bodies_on.iter().copied();
        let then = around(moments, then.chain([moments.home[scene.reader.0]]));
        let is_other = |s: &SubgraphId| {
            let owner = graph.subgraphs[*s].owner;
            let is_branch = owner.is_some_and(|o| table.class(graph, o) == OpClass::Branch);
            is_branch && owner.is_some_and(|o| line.owners.contains(&o)) && !line.chosen.contains(s)
        };
        if then.iter().any(is_other) {
            line.then = Some(then);
        } else {
            line.choose(then);
        }
        line
    }

    fn of(
        moments: &'a Moments<'a>,
        bodies: impl IntoIterator<Item = SubgraphId>,
        gear: Option<u32>,
    ) -> Self {
        let gear = gear.or_else(|| moments.all_gears().next().flatten());
        let mut line = Line {
            moments,
            gear,
            done: vec![false; moments.needs.len()],
            chosen: FxHashSet::default(),
            then: None,
            owners: FxHashSet::default(),
            left_out: FxHashMap::default(),
            filled: FxHashMap::default(),
            steps: Vec::new(),
        };
        line.choose(around(moments, bodies));
        line
    }

    /// Lets bodies run, rather than others of the same branches.
    fn choose(&mut self, bodies: FxHashSet<SubgraphId>) {
        let (graph, table) = (self.moments.graph, self.moments.table);
        for &body in &bodies {
            let Some(owner) = graph.subgraphs[body].owner else {
                continue;
            };
            self.owners.insert(owner);
            if table.class(graph, owner) == OpClass::Branch {
                for other in &graph.nodes[owner].bodies {
                    self.chosen.remove(&other.graph);
                }
            }
        }
        self.chosen.extend(bodies);
        self.leave_out();
    }

    /// Tells of memory that is filled from outside as well.
    fn announce(&mut self, both: [&Uses; 2]) {
        let (graph, table) = (self.moments.graph, self.moments.table);
        for uses in both {
            for write in &uses.writes {
                let node = self.moments.node[write.start];
                if stands_for_memory(table.class(graph, node)) {
                    let does = told_maker(self.moments, uses, (write.start, write.value));
                    self.filled.insert(write.start, does);
                }
            }
        }
    }

    /// Finds out which bodies do not run.
    fn leave_out(&mut self) {
        self.left_out.clear();
        for &subgraph in self.moments.borders.keys() {
            let is_out = self.finds_left_out(subgraph);
            self.left_out.insert(subgraph, is_out);
        }
    }

    /// Whether a moment does not come in this schedule.
    fn never_comes(&self, at: usize) -> bool {
        !self.moments.comes_in(self.gear, at) || self.is_left_out(self.moments.home[at])
    }

    fn is_left_out(&self, subgraph: SubgraphId) -> bool {
        self.left_out.get(&subgraph).copied().unwrap_or(false)
    }

    /// Whether a body, or one around it, does not run.
    fn finds_left_out(&self, subgraph: SubgraphId) -> bool {
        let (moments, graph) = (self.moments, self.moments.graph);
        let mut around = Some(subgraph);
        while let Some(here) = around {
            if let Some(&known) = self.left_out.get(&here) {
                return known;
            }
            if let Some(owner) = graph.subgraphs[here].owner
                && moments.is_perhaps(here)
                && !self.chosen.contains(&here)
            {
                let first = graph.nodes[owner].bodies.first();
                let is_usual = moments.table.class(graph, owner) == OpClass::Branch
                    && !self.owners.contains(&owner)
                    && first.is_some_and(|body| body.graph == here);
                if !is_usual {
                    return true;
                }
            }
            around = graph.enclosing(here);
        }
        false
    }

    /// Runs a moment at which a value of one of the memories is written.
    fn writes(&mut self, uses: &Uses, (at, value): (usize, ValueId)) {
        let does = format!("writes {}", name(self.moments, uses, value));
        self.run(at, does);
    }

    /// Runs what a moment waits for, then the moment.
    fn run(&mut self, to: usize, does: String) {
        self.run_before(to);
        self.done[to] = true;
        self.push(self.moments.node[to], does);
    }

    fn run_before(&mut self, to: usize) {
        let before = self.moments.before(to, |at| self.never_comes(at));
        for at in (0..to).filter(|&at| before[at]) {
            if self.done[at] {
                continue;
            }
            self.look_again(at);
            self.pass(at);
        }
        self.look_again(to);
    }

    /// A moment comes; the node that starts is a step, unless it stands for memory.
    fn pass(&mut self, at: usize) {
        let (moments, node) = (self.moments, self.moments.node[at]);
        let runs = !stands_for_memory(moments.table.class(moments.graph, node));
        self.done[at] = true;
        if let Some(does) = self.filled.remove(&at) {
            self.push(node, does);
        } else if runs && moments.start[node] == Some(at) {
            self.push(node, String::new());
        }
    }

    /// Before a loop ends that has made a pass, its condition is looked at once more.
    fn look_again(&mut self, at: usize) {
        let (moments, node) = (self.moments, self.moments.node[at]);
        let bodies = &moments.graph.nodes[node].bodies;
        let ends = moments.end[node] == Some(at);
        let has_passed = |s: SubgraphId| moments.is_perhaps(s) && !self.is_left_out(s);
        if !ends || !bodies.iter().any(|body| has_passed(body.graph)) {
            return;
        }
        let Some(condition) = bodies.iter().find(|body| body.is_condition()) else {
            return;
        };
        if let Some(border) = moments.borders.get(&condition.graph) {
            self.done[border.enter..=border.last].fill(false);
            for at in border.enter..=border.last {
                if !self.never_comes(at) {
                    self.look_again(at);
                    self.pass(at);
                }
            }
        }
    }

    /// Ends a pass of a loop, and begins the next.
    fn next_pass(&mut self, owner: NodeId) {
        let bodies = &self.moments.graph.nodes[owner].bodies;
        if self.moments.table.class(self.moments.graph, owner) == OpClass::While {
            // Between two looks at the condition there is a pass.
            self.chosen.extend(bodies.iter().map(|body| body.graph));
            self.owners.insert(owner);
            self.leave_out();
        }
        let bodies = bodies.iter().filter(|body| !self.is_left_out(body.graph));
        let ends = bodies.filter_map(|body| self.moments.borders.get(&body.graph));
        let Some(last) = ends.map(|border| border.last).max() else {
            return;
        };
        self.run_before(last);
        if let (Some(start), Some(end)) = (self.moments.start[owner], self.moments.end[owner]) {
            self.done[start + 1..end].fill(false);
        }
        if let Some(bodies) = self.then.take() {
            self.choose(bodies);
        }
    }

    /// What it shows of two values.
    fn wrong(self, meet: [ValueId; 2]) -> Wrong {
        let steps = self.steps;
        Wrong { meet, steps }
    }

    fn push(&mut self, node: NodeId, does: String) {
        let node = self.moments.graph.node_label(node);
        self.steps.push(Step { node, does });
    }
}
