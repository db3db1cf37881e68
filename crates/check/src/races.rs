//! Several streams: whether the simulated order of steps is as good as any that may happen.
//!
//! The simulation runs the steps in the order of the plan. Streams run side by side, so other orders
//! may happen; they give the same when every two accesses to the same bytes of which one writes are
//! ordered by streams and edges. That is looked at here, byte by byte, with vector clocks (as data
//! races are found in programs: Flanagan and Freund, "FastTrack", 2009).
//!
//! What is certain: steps of one stream run in order, and a step starts behind those that the plan
//! lets it wait for, by which all edges of data and control must hold; a node with bodies starts before what is inside, a body has ended on all
//! streams when the next is entered or the node ends, and all has ended when the graph's results
//! are handed over. Steps on no stream are ordered by waits alone.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::rc::Rc;
use tenure_graph::plan::{Item, Phase, Plan};
use tenure_graph::{Graph, NodeId, StreamId, ValueId};

use crate::alternatives::Alternatives;
use crate::demands::Demands;
use crate::findings::Findings;
use crate::layout::Layout;
use crate::program::Op;
use crate::violation::{Memory, Region, Violation};

/// What has ended, stream by stream: how many of its steps.
type Clock = Rc<[u32]>;

/// Numbers that all clocks may hold together.
const MOST_NUMBERS: usize = 1 << 28;

/// Finds accesses in no order; what is found goes to `findings`.
pub(crate) fn check(
    graph: &Graph,
    plan: &Plan,
    layout: &Layout,
    (demands, alternatives): (&Demands, &Alternatives<'_>),
    findings: &mut Findings<'_>,
) {
    let lanes = Lanes::new(graph, plan);
    if lanes.count < 2 {
        return;
    }
    if lanes.count.saturating_mul(plan.steps.len()) > MOST_NUMBERS {
        findings.push(Violation::TooManyStreams {
            streams: lanes.count as u64,
        });
        return;
    }
    let clocks = clocks(graph, plan, &lanes, findings);
    let mut bytes = Bytes {
        clocks: &clocks,
        lanes: &lanes,
        alternatives,
        map: BTreeMap::new(),
    };
    for step in (0u32..).take(plan.steps.len()) {
        let ops = demands.program.range(step, step.saturating_add(1));
        // All reads of a step come before its writes, as those of other steps see it.
        for writes in [false, true] {
            for op in ops {
                let Some((item, region)) = access(op, writes, layout) else {
                    continue;
                };
                if let Some((other, region)) = bytes.touch((step, item), region, writes) {
                    let site = |at: u32| findings.site(at, plan.steps[at as usize].node);
                    findings.push(Violation::Unordered {
                        site: site(step),
                        verb: if writes { "writes" } else { "reads" },
                        item: findings.item(item),
                        region,
                        other: site(other),
                    });
                    return;
                }
            }
        }
    }
}

/// The bytes that an operation reads, or writes.
fn access(op: &Op, writes: bool, layout: &Layout) -> Option<(Item, Region)> {
    let (item, from, is_write) = match *op {
        Op::Read { item, .. } => (item, 0, false),
        Op::Write { item, .. } | Op::Spoil { item } => (item, 0, true),
        // Nothing is written: whoever reads the longer value finds what is there.
        Op::Extend { value, from, .. } => (Item::Value(value), from, false),
        Op::Open { value, .. } => (Item::Value(value), 0, true),
        Op::Name { .. } | Op::Keep { .. } | Op::Take { .. } => return None,
    };
    let region = layout.spot(item)?.region;
    let start = region.start.saturating_add(from).min(region.end);
    let region = Region { start, ..region };
    (is_write == writes && start < region.end).then_some((item, region))
}

/// The stream of each step, in small numbers, and its place there.
struct Lanes {
    count: usize,
    of: Vec<(usize, u32)>,
}

impl Lanes {
    fn new(graph: &Graph, plan: &Plan) -> Self {
        let mut numbers: FxHashMap<StreamId, usize> = FxHashMap::default();
        let mut on_none = 0usize;
        let is_result = |node: NodeId| {
            let subgraph = graph.nodes[node].subgraph;
            graph.subgraphs[subgraph].output == Some(node)
        };
        for step in &plan.steps {
            match step.stream {
                Some(stream) => {
                    let next = numbers.len();
                    numbers.entry(stream).or_insert(next);
                }
                None if is_result(step.node) => {}
                None => on_none += 1,
            }
        }
        // Where nothing is on a stream, the list is the order.
        if numbers.len() < 2 && (numbers.is_empty() || on_none == 0) {
            let of = Vec::new();
            return Lanes { count: 1, of };
        }
        let mut count = numbers.len();
        let mut lengths: Vec<u32> = vec![0; count];
        let mut owners: Vec<usize> = Vec::new();
        let mut of = Vec::with_capacity(plan.steps.len());
        for step in &plan.steps {
            let around = owners.last().copied().filter(|_| is_result(step.node));
            let lane = step.stream.map(|s| numbers[&s]).or(around);
            let lane = lane.unwrap_or_else(|| {
                lengths.push(0);
                count += 1;
                count - 1
            });
            lengths[lane] = lengths[lane].saturating_add(1);
            of.push((lane, lengths[lane]));
            match step.phase {
                Phase::Begin => owners.push(lane),
                Phase::End => drop(owners.pop()),
                Phase::Run | Phase::Enter(_) => {}
            }
        }
        Lanes { count, of }
    }
}

/// The clock of each step.
///
/// What is not certain by the plan's waits, and has to be since an edge says so, goes to `findings`.
fn clocks(graph: &Graph, plan: &Plan, lanes: &Lanes, findings: &mut Findings<'_>) -> Vec<Clock> {
    let mut waits: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
    for wait in &plan.waits {
        waits.entry(wait.step).or_default().push(wait.before);
    }
    let nothing: Clock = vec![0; lanes.count].into();
    let mut clocks: Vec<Clock> = Vec::with_capacity(plan.steps.len());
    let mut on_lane: Vec<Clock> = vec![Rc::clone(&nothing); lanes.count];
    let mut ended: FxHashMap<NodeId, u32> = FxHashMap::default();
    // For each open node: what was certain at its last entry, and all that has ended since it began.
    let mut open: Vec<(Clock, Vec<u32>)> = Vec::new();
    let later = |a: &mut [u32], b: &[u32]| {
        for (x, y) in a.iter_mut().zip(b) {
            *x = (*x).max(*y);
        }
    };
    for (number, (step, &(lane, place))) in (0u32..).zip(plan.steps.iter().zip(&lanes.of)) {
        let node = &graph.nodes[step.node];
        let mut now = on_lane[lane].to_vec();
        if let Some((entry, _)) = open.last() {
            later(&mut now, entry);
        }
        for &before in waits.get(&number).into_iter().flatten() {
            match clocks.get(before as usize) {
                Some(clock) => later(&mut now, clock),
                None => findings.push(Violation::WaitBehind {
                    site: findings.site(number, step.node),
                    before,
                }),
            }
        }
        let result = graph.subgraphs[node.subgraph].output == Some(step.node);
        if result || matches!(step.phase, Phase::Enter(_) | Phase::End) {
            match open.last() {
                Some((_, inside)) => later(&mut now, inside),
                None => on_lane.iter().for_each(|clock| later(&mut now, clock)),
            }
        }
        if matches!(step.phase, Phase::Run | Phase::Begin) {
            let producers = node.inputs.iter().flatten();
            let producers = producers.map(|&v| graph.values[v].producer);
            for needed in producers.chain(node.control.iter().copied()) {
                let Some(&at) = ended.get(&needed) else {
                    continue;
                };
                let (lane, place) = lanes.of[at as usize];
                if now[lane] < place {
                    findings.push(Violation::NotAwaited {
                        site: findings.site(number, step.node),
                        before: findings.site(at, needed),
                    });
                }
            }
        }
        now[lane] = place;
        let now: Clock = now.into();
        match step.phase {
            Phase::Begin => open.push((Rc::clone(&now), now.to_vec())),
            Phase::Enter(_) => {
                if let Some((entry, _)) = open.last_mut() {
                    *entry = Rc::clone(&now);
                }
            }
            Phase::End => drop(open.pop()),
            Phase::Run => {}
        }
        if let Some((_, inside)) = open.last_mut() {
            later(inside, &now);
        }
        if matches!(step.phase, Phase::Run | Phase::End) {
            ended.insert(step.node, number);
        }
        on_lane[lane] = Rc::clone(&now);
        clocks.push(now);
    }
    clocks
}

/// A step, and the alternative that it makes or reads.
type Access = (u32, Option<ValueId>);

/// Who touched a stretch of bytes last.
#[derive(Clone, Default)]
struct Touched {
    end: u64,
    /// The last writer; several where one alone of them runs.
    writers: SmallVec<[Access; 1]>,
    /// The last reader on each stream since then.
    readers: SmallVec<[Access; 2]>,
}

struct Bytes<'a> {
    clocks: &'a [Clock],
    lanes: &'a Lanes,
    alternatives: &'a Alternatives<'a>,
    map: BTreeMap<(Memory, u64), Touched>,
}

impl Bytes<'_> {
    /// Whether an access has ended when a step starts, or is that step's own.
    fn has_ended(&self, one: u32, step: u32) -> bool {
        let (lane, place) = self.lanes.of[one as usize];
        one == step || self.clocks[step as usize][lane] >= place
    }

    /// Notes an access; gives one that is in no order with it, and where they meet.
    fn touch(
        &mut self,
        (step, item): (u32, Item),
        region: Region,
        writes: bool,
    ) -> Option<(u32, Region)> {
        let access: Access = (step, self.alternatives.of(item));
        self.split(region.memory, region.start);
        self.split(region.memory, region.end);
        let here = (region.memory, region.start)..(region.memory, region.end);
        let found: Vec<(u64, Touched)> = (self.map.range(here))
            .map(|(&(_, start), touched)| (start, touched.clone()))
            .collect();
        let lane = self.lanes.of[step as usize].0;
        let mut at = region.start;
        for (start, mut touched) in found {
            self.fill(region.memory, (at, start), access, writes);
            at = touched.end;
            let readers = touched.readers.iter().filter(|_| writes);
            let mut before = touched.writers.iter().chain(readers);
            let is_open = |other: &Access| !self.has_ended(other.0, step);
            let unordered = before.find(|&&o| is_open(&o) && !self.are_exclusive(o, access));
            if let Some(&(other, _)) = unordered {
                let end = touched.end;
                return Some((
                    other,
                    Region {
                        start,
                        end,
                        ..region
                    },
                ));
            }
            if writes {
                // What this one is in order with stands for what came before, but where this one may
                // not run at all.
                if access.1.is_none() {
                    touched.writers.clear();
                    touched.readers.clear();
                }
                touched.writers.push(access);
            } else {
                let is_here = |r: &Access| self.lanes.of[r.0 as usize].0 == lane;
                let stands_for = |r: &Access| access.1.is_none() || access.1 == r.1;
                touched.readers.retain(|r| !(is_here(r) && stands_for(r)));
                touched.readers.push(access);
            }
            self.map.insert((region.memory, start), touched);
        }
        self.fill(region.memory, (at, region.end), access, writes);
        None
    }

    /// Whether two accesses never happen in one run.
    fn are_exclusive(&self, a: Access, b: Access) -> bool {
        let pair = a.1.zip(b.1);
        pair.is_some_and(|(a, b)| self.alternatives.are_exclusive(a, b))
    }

    /// Notes an access to bytes that nobody has touched.
    fn fill(&mut self, memory: Memory, (from, to): (u64, u64), access: Access, writes: bool) {
        if from >= to {
            return;
        }
        let mut touched = Touched {
            end: to,
            ..Touched::default()
        };
        if writes {
            touched.writers.push(access);
        } else {
            touched.readers.push(access);
        }
        self.map.insert((memory, from), touched);
    }

    /// Cuts the stretch that reaches over byte `at` in two.
    fn split(&mut self, memory: Memory, at: u64) {
        let before = self.map.range_mut(..(memory, at)).next_back();
        let Some((&(m, _), touched)) = before else {
            return;
        };
        if m != memory || touched.end <= at {
            return;
        }
        let right = touched.clone();
        touched.end = at;
        self.map.insert((memory, at), right);
    }
}
