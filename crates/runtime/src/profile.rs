//! When each step ran, and the trace of that which Perfetto and `chrome://tracing` show.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tenure_graph::plan::Plan;
use tenure_graph::{Graph, NodeId};

use crate::exec::Watch;
use crate::memory::Memory;
use crate::program::Instruction;

/// A step of a run: the time from its first instruction to its last. In a loop each pass has its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timed {
    /// Number of the step in the plan.
    pub step: u32,
    /// The node.
    pub node: NodeId,
    /// The thread that ran it: one a stream, in the order of their numbers.
    pub thread: usize,
    /// When it began, from the start of the run.
    pub start: Duration,
    /// When it ended.
    pub end: Duration,
}

/// Looks at the clock while a program runs.
pub(crate) struct Clock {
    start: Instant,
    thread: usize,
    began: Duration,
    spans: Vec<Timed>,
}

impl Clock {
    pub(crate) fn new(start: Instant, thread: usize) -> Self {
        Clock {
            start,
            thread,
            began: Duration::ZERO,
            spans: Vec::new(),
        }
    }

    pub(crate) fn into_spans(self) -> Vec<Timed> {
        self.spans
    }
}

impl Watch for Clock {
    fn before(&mut self, _: &mut Memory, _: &Instruction) {
        self.began = self.start.elapsed();
    }

    fn after(&mut self, _: &mut Memory, instruction: &Instruction) -> ControlFlow<()> {
        let end = self.start.elapsed();
        match self.spans.last_mut() {
            Some(last) if last.step == instruction.step => last.end = end,
            _ => self.spans.push(Timed {
                step: instruction.step,
                node: instruction.node,
                thread: self.thread,
                start: self.began,
                end,
            }),
        }
        ControlFlow::Continue(())
    }
}

/// Most steps and counts of a trace: beyond, only the first ones are written.
const MOST_EVENTS: usize = 1 << 20;

/// The trace of a run, in the JSON of the Trace Event format: a track a stream with its steps, and the
/// bytes that the plan holds as a counter. Times are microseconds.
#[must_use]
pub fn trace(graph: &Graph, plan: &Plan, spans: &[Timed]) -> Value {
    let micros = |t: Duration| t.as_secs_f64() * 1e6;
    let mut threads: Vec<usize> = spans.iter().map(|s| s.thread).collect();
    threads.sort_unstable();
    threads.dedup();
    let mut events: Vec<Value> = (threads.iter())
        .map(|thread| {
            json!({"ph": "M", "name": "thread_name", "pid": 1, "tid": thread,
                "args": {"name": format!("stream {thread}")}})
        })
        .collect();
    let held = held(plan);
    let mut spans: Vec<&Timed> = spans.iter().collect();
    spans.sort_by_key(|s| (s.start, s.thread, s.step));
    for span in spans.into_iter().take(MOST_EVENTS) {
        let node = &graph.nodes[span.node];
        events.push(
            json!({"ph": "X", "name": graph.node_label(span.node), "cat": &*node.op,
            "pid": 1, "tid": span.thread, "ts": micros(span.start),
            "dur": micros(span.end.saturating_sub(span.start)), "args": {"step": span.step}}),
        );
        let bytes = usize::try_from(span.step).ok().and_then(|s| held.get(s));
        events.push(
            json!({"ph": "C", "name": "bytes in use", "pid": 1, "ts": micros(span.start),
            "args": {"planned": bytes.copied().unwrap_or(0)}}),
        );
    }
    json!({"displayTimeUnit": "ms", "traceEvents": events})
}

/// Bytes of the storages that are held at each step.
fn held(plan: &Plan) -> Vec<u64> {
    let mut changes = vec![0i128; plan.steps.len() + 1];
    for storage in plan.storages.values() {
        for span in &storage.life {
            let at = |step: u32| usize::try_from(step).unwrap_or(usize::MAX);
            if let Some(change) = changes.get_mut(at(span.first)) {
                *change += i128::from(storage.size);
            }
            if let Some(change) = changes.get_mut(at(span.last).saturating_add(1)) {
                *change -= i128::from(storage.size);
            }
        }
    }
    let mut now = 0;
    let sums = changes.into_iter().map(|change| {
        now += change;
        u64::try_from(now).unwrap_or(0)
    });
    sums.take(plan.steps.len()).collect()
}
