//! What has certainly ended when a step starts, for work on several streams.
//!
//! Steps of one stream run in order, and so do two with an edge of data or control between them;
//! nothing else is certain. Each step has a clock: for each stream, how many of its steps have ended
//! when this one has (Mattern, "Virtual time and global states of distributed systems", 1989). A
//! node with subgraphs starts before all that is inside, and all that is inside a subgraph has ended
//! when the next one is entered or the node ends; results are handed over when everything has ended.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tenure_graph::effects::{Gears, OpTable, cleared};
use tenure_graph::entity::SecondaryMap;
use tenure_graph::plan::{Item, Phase, Wait};
use tenure_graph::{Graph, NodeId, StreamId};

use crate::PlanError;
use crate::schedule::Schedule;

/// Numbers that all clocks together may have: beyond that there is no memory for them.
const MOST_NUMBERS: usize = 1 << 28;

/// What is certain of the order of all steps. Of several gears one alone runs, and nothing is certain
/// through a step that does not run; so each has clocks of its own.
#[derive(Clone, Debug)]
pub(crate) struct Clocks {
    /// Gear by gear; one for a model without gears.
    parts: Vec<Part>,
    /// The gear of each step.
    gear: Vec<Option<u32>>,
    waits: Vec<Wait>,
}

impl Clocks {
    /// The clocks of a schedule; `None` when all of it is on one stream, or nothing is on any: then
    /// the list is the order.
    ///
    /// # Errors
    /// [`PlanError::Streams`] when there are so many streams and steps that clocks cannot be kept.
    pub(crate) fn new(
        graph: &Graph,
        table: &OpTable,
        schedule: &Schedule,
    ) -> Result<Option<Self>, PlanError> {
        let mut streams = (schedule.steps.iter())
            .filter(|s| !is_result(graph, s.node))
            .map(|s| s.stream);
        let first = streams.next();
        if streams.all(|s| Some(s) == first) {
            return Ok(None);
        }
        let gears = Gears::new(graph);
        let of = |node| gears.as_ref().and_then(|gears| gears.of(node));
        let gear: Vec<Option<u32>> = schedule.steps.iter().map(|s| of(s.node)).collect();
        let count = gears.as_ref().map_or(1, Gears::count);
        let cleaners = cleaners(graph, table, schedule);
        let mut parts = Vec::new();
        for part in 0..count {
            let runs = |step: u32| gear[step as usize].is_none_or(|gear| gear == part);
            let most = MOST_NUMBERS / count as usize;
            parts.push(Part::new(graph, schedule, &cleaners, most, runs)?);
        }
        let mut waits: Vec<Wait> = parts.iter().flat_map(|p| p.waits.iter().copied()).collect();
        waits.sort_unstable();
        waits.dedup();
        Ok(Some(Clocks { parts, gear, waits }))
    }

    /// What waits for what, ascending.
    pub(crate) fn waits(&self) -> &[Wait] {
        &self.waits
    }

    /// The stream of a step, as a small number, and its gear: steps for which these are the same run
    /// one after the other.
    pub(crate) fn lane(&self, step: u32) -> (usize, Option<u32>) {
        let step = step as usize;
        (self.parts[0].stream[step], self.gear[step])
    }

    /// The gears in which a step of one gear may run.
    fn parts(&self, gear: Option<u32>) -> &[Part] {
        match gear {
            Some(gear) => std::slice::from_ref(&self.parts[gear as usize]),
            None => &self.parts,
        }
    }

    /// Whether one step has certainly ended when another starts, wherever both run.
    pub(crate) fn is_before(&self, one: u32, other: u32) -> bool {
        let gears = (self.gear[one as usize], self.gear[other as usize]);
        match gears {
            (Some(a), Some(b)) if a != b => one < other,
            (a, b) => self.parts(a.or(b)).iter().all(|p| p.is_before(one, other)),
        }
    }

    /// The last step at which a step may still be running.
    pub(crate) fn until(&self, step: u32) -> u32 {
        let parts = self.parts(self.gear[step as usize]).iter();
        parts.map(|p| p.until(step)).max().unwrap_or(step)
    }
}

/// The clocks of what runs together.
#[derive(Clone, Debug)]
struct Part {
    /// How many streams there are.
    streams: usize,
    /// The stream of each step.
    stream: Vec<usize>,
    /// Place of each step in its stream, from 1.
    place: Vec<u32>,
    /// Steps of each stream, in order.
    steps: Vec<Vec<u32>>,
    /// Clock by clock.
    numbers: Vec<u32>,
    /// What waits for what, so that all edges across streams hold; none that follows from others.
    waits: Vec<Wait>,
}

/// A node with subgraphs that is open.
struct Open {
    /// What is certain inside.
    floor: Vec<u32>,
    /// What has ended when everything has that was inside up to now.
    inside: Vec<u32>,
}

impl Part {
    /// The clocks of the steps that run.
    fn new(
        graph: &Graph,
        schedule: &Schedule,
        cleaners: &Cleaners,
        most: usize,
        runs: impl Fn(u32) -> bool,
    ) -> Result<Self, PlanError> {
        let mut ids: Vec<StreamId> = schedule.steps.iter().filter_map(|s| s.stream).collect();
        ids.sort_unstable();
        ids.dedup();
        let alone = schedule.steps.iter().filter(|s| s.stream.is_none());
        let alone = alone.filter(|s| !is_result(graph, s.node)).count();
        let streams = ids.len() + alone + 1;
        let numbers = streams.checked_mul(schedule.steps.len());
        if numbers.is_none_or(|n| n > most) {
            return Err(PlanError::Streams(streams));
        }
        let mut clocks = Part {
            streams,
            stream: Vec::with_capacity(schedule.steps.len()),
            place: Vec::with_capacity(schedule.steps.len()),
            steps: vec![Vec::new(); streams],
            numbers: Vec::with_capacity(numbers.unwrap_or(0)),
            waits: Vec::new(),
        };
        // A node on no stream has one of its own: its edges alone say when it runs.
        let mut next_alone = ids.len() + 1;
        let mut open: Vec<Open> = Vec::new();
        let mut owners: Vec<usize> = Vec::new();
        let mut last: SecondaryMap<NodeId, Option<u32>> = SecondaryMap::new();
        for (number, step) in (0u32..).zip(&schedule.steps) {
            let known = step.stream.and_then(|s| ids.binary_search(&s).ok());
            let result = is_result(graph, step.node);
            let stream = match known {
                Some(stream) => stream,
                None if result => owners.last().copied().unwrap_or(ids.len()),
                None => {
                    next_alone += 1;
                    next_alone - 1
                }
            };
            if !runs(number) {
                clocks.pass_over(stream);
                continue;
            }
            let mut clock = clocks.latest(stream);
            let is_inner = matches!(step.phase, Phase::Enter(_) | Phase::End) || result;
            if let Some(around) = open.last() {
                join(&mut clock, &around.floor);
                if is_inner {
                    join(&mut clock, &around.inside);
                }
            }
            if result && open.is_empty() {
                for stream in 0..streams {
                    join(&mut clock, &clocks.latest(stream));
                }
            }
            let node = &graph.nodes[step.node];
            let read = node.inputs.iter().flatten();
            let producers = read.map(|&v| graph.values[v].producer);
            // What is cleared for others is cleared before they fill it.
            let cleared = cleaners.get(&step.node).into_iter().flatten().copied();
            let needed = producers.chain(node.control.iter().copied()).chain(cleared);
            clocks.wait(number, &mut clock, needed.filter_map(|n| last[n]).collect());
            clocks.push(number, stream, clock);
            let own = clocks.of(number);
            match step.phase {
                Phase::Begin => {
                    owners.push(stream);
                    open.push(Open {
                        floor: own.to_vec(),
                        inside: own.to_vec(),
                    });
                    continue;
                }
                Phase::Enter(_) => {
                    if let Some(around) = open.last_mut() {
                        around.floor = own.to_vec();
                    }
                }
                Phase::End => {
                    owners.pop();
                    open.pop();
                }
                Phase::Run => {}
            }
            if let Some(around) = open.last_mut() {
                join(&mut around.inside, own);
            }
            last[step.node] = Some(number);
        }
        Ok(clocks)
    }

    /// Notes a step that does not run.
    fn pass_over(&mut self, stream: usize) {
        self.stream.push(stream);
        self.place.push(0);
        self.numbers.extend(std::iter::repeat_n(0, self.streams));
    }

    /// Lets a step wait for others, as far as nothing else says that they have ended. Those that
    /// stand last come first: what they know need not be waited for.
    fn wait(&mut self, number: u32, clock: &mut [u32], mut needed: Vec<u32>) {
        needed.sort_unstable();
        needed.dedup();
        for &before in needed.iter().rev() {
            let stream = self.stream[before as usize];
            if clock[stream] < self.place[before as usize] {
                join(clock, self.of(before));
                self.waits.push(Wait {
                    step: number,
                    before,
                });
            }
        }
    }

    fn push(&mut self, number: u32, stream: usize, mut clock: Vec<u32>) {
        let steps = &mut self.steps[stream];
        steps.push(number);
        let place = u32::try_from(steps.len()).unwrap_or(u32::MAX);
        clock[stream] = place;
        self.stream.push(stream);
        self.place.push(place);
        self.numbers.extend(clock);
    }

    fn of(&self, step: u32) -> &[u32] {
        let first = step as usize * self.streams;
        &self.numbers[first..first + self.streams]
    }

    /// The clock of the last step on a stream.
    fn latest(&self, stream: usize) -> Vec<u32> {
        let last = self.steps[stream].last();
        last.map_or_else(|| vec![0; self.streams], |&step| self.of(step).to_vec())
    }

    /// Whether one step has certainly ended when another starts.
    fn is_before(&self, one: u32, other: u32) -> bool {
        one < other && self.of(other)[self.stream[one as usize]] >= self.place[one as usize]
    }

    /// The last step at which a step may still be running.
    fn until(&self, step: u32) -> u32 {
        let mine = self.stream[step as usize];
        let later = |steps: &Vec<u32>| {
            // What knows that the step has ended stands behind what does not.
            let first = steps.partition_point(|&s| s <= step || !self.is_before(step, s));
            steps[..first].last().copied().filter(|&s| s > step)
        };
        let others = self.steps.iter().enumerate().filter(|&(s, _)| s != mine);
        others
            .filter_map(|(_, steps)| later(steps))
            .max()
            .unwrap_or(step)
    }
}

/// Whether a node stands for the results of its subgraph: these are on no stream, and are handed over
/// on that of the node around them.
fn is_result(graph: &Graph, node: NodeId) -> bool {
    let subgraph = graph.nodes[node].subgraph;
    graph.subgraphs[subgraph].output == Some(node)
}

/// The nodes that clear memory for each node that fills it.
type Cleaners = FxHashMap<NodeId, SmallVec<[NodeId; 1]>>;

fn cleaners(graph: &Graph, table: &OpTable, schedule: &Schedule) -> Cleaners {
    let mut all = Cleaners::default();
    for step in schedule.steps.iter().filter(|s| s.phase == Phase::Run) {
        for c in cleared(graph, table, step.node) {
            if let Item::Value(value) = c.item {
                let filler = graph.values[value].producer;
                all.entry(filler).or_default().push(c.cleaner);
            }
        }
    }
    all
}

fn join(clock: &mut [u32], other: &[u32]) {
    for (mine, theirs) in clock.iter_mut().zip(other) {
        *mine = (*mine).max(*theirs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_graph::effects::OpTable;
    use tenure_graph::entity::EntitySet;
    use tenure_graph::text;

    /// Which steps are in order, as a matrix, and until when each may run.
    fn told(lines: &str) -> String {
        let text = format!("model m ge\ngraph ^g {{\n{lines}\n  NetOutput(%z) @results\n}}\n");
        let graph = text::parse(&text).unwrap();
        let table = OpTable::builtin(graph.dialect);
        let schedule = crate::schedule(&graph, &table, &EntitySet::new()).unwrap();
        let Some(clocks) = Clocks::new(&graph, &table, &schedule).unwrap() else {
            return "one stream".to_owned();
        };
        let steps = 0..u32::try_from(schedule.steps.len()).unwrap();
        let line = |i: u32| {
            let mark = |j| if clocks.is_before(i, j) { '<' } else { '.' };
            let marks: String = steps.clone().map(mark).collect();
            format!("{marks} {}\n", clocks.until(i))
        };
        steps.clone().map(line).collect()
    }

    #[test]
    fn streams_are_in_order_through_edges_alone() {
        let lines = "  %a: float32[4] = Relu() stream 0\n  %b: float32[4] = Relu(%a) stream 1\n  \
                     %c: float32[4] = Relu(%a) stream 0\n  %d: float32[4] = Relu(%c) stream 0\n  \
                     %z: float32[4] = Add(%d, %b) stream 0";
        insta::assert_snapshot!(told(lines));
    }

    #[test]
    fn one_stream_needs_no_clocks() {
        assert_eq!(told("  %z: float32[4] = Relu() stream 3"), "one stream");
    }
}
