//! Traces of an allocator: what a program asked for, as JSON (`tenure.trace/1`), and what the
//! allocator here makes of it.
//!
//! ```json
//! {"format": "tenure.trace/1",
//!  "options": {"granularity": 512, "segment_bytes": "exact", "device_bytes": 1048576},
//!  "trace": [
//!    {"op": "alloc", "id": "a", "bytes": 1000, "stream": 0},
//!    {"op": "use", "id": "a", "stream": 0},
//!    {"op": "record", "event": "done", "stream": 0},
//!    {"op": "wait", "event": "done", "stream": 1},
//!    {"op": "free", "id": "a"},
//!    {"op": "sync"},
//!    {"op": "trim"}]}
//! ```
//!
//! An `id` names a block from its `alloc` on, and another one after the next `alloc` of that name.
//! A `use` takes its place in the order of a stream, a `free` takes place on the host at once,
//! `sync` waits for all streams, or for the one that it names, and `trim` gives back what is known to be done with. Options are
//! optional; `device_bytes` is what the device has. Names, and the numbers of streams, are up to
//! the program.

use std::collections::BTreeMap;
use std::ops::Range;

use serde_json::{Map, Value, json};

use crate::allocator::{AllocError, Allocator, Block, Budget, Rules, Stats};

/// The format that traces are in.
pub const FORMAT: &str = "tenure.trace/1";

/// One thing that a program asked for. Blocks, streams and events are numbered as they come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The next block.
    Alloc {
        /// Bytes.
        bytes: u64,
        /// The stream that it is for.
        stream: u32,
    },
    /// A stream reads or writes a block.
    Use {
        /// The block.
        block: usize,
        /// The stream.
        stream: u32,
    },
    /// A block is not needed any more.
    Free {
        /// The block.
        block: usize,
    },
    /// An event is recorded.
    Record {
        /// The event.
        event: u32,
        /// The stream.
        stream: u32,
    },
    /// A stream waits for an event.
    Wait {
        /// The event.
        event: u32,
        /// The stream.
        stream: u32,
    },
    /// The host waits for a stream, or for all.
    Sync {
        /// The stream; `None`: all.
        stream: Option<u32>,
    },
    /// Memory that is done with goes back to the device.
    Trim,
}

/// A trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// How memory is taken.
    pub rules: Rules,
    /// Bytes that the device has.
    pub device_bytes: Option<u64>,
    /// How many streams there are.
    pub streams: u32,
    /// The names of blocks, by number.
    pub blocks: Vec<String>,
    /// What was asked for.
    pub steps: Vec<Step>,
}

/// Why something is no trace.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// It is no JSON.
    #[error("is no JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// It is something else.
    #[error("{0}")]
    Form(String),
    /// A step makes no sense.
    #[error("trace[{step}]: {reason}")]
    Step {
        /// Number of the step.
        step: usize,
        /// What is wrong.
        reason: String,
    },
    /// The allocator refuses a step.
    #[error("trace[{step}]: {error}")]
    Refused {
        /// Number of the step.
        step: usize,
        /// Why.
        error: AllocError,
    },
}

/// Numbers for names, in the order in which they come.
struct Names<K>(BTreeMap<K, u32>);

impl<K: Ord> Names<K> {
    fn number(&mut self, name: K) -> u32 {
        let next = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        *self.0.entry(name).or_insert(next)
    }
}

impl Trace {
    /// Reads a trace.
    ///
    /// # Errors
    /// [`TraceError`] with the step that makes no sense.
    pub fn read(bytes: &[u8]) -> Result<Self, TraceError> {
        match serde_json::from_slice(bytes)? {
            Value::Object(file) => Trace::from_json(&file),
            _ => Err(TraceError::Form("is no JSON object".to_owned())),
        }
    }

    /// Reads a trace that is JSON already. Keys that are none of its own are passed over.
    ///
    /// # Errors
    /// [`TraceError`].
    pub fn from_json(file: &Map<String, Value>) -> Result<Self, TraceError> {
        match file.get("format").and_then(Value::as_str) {
            Some(FORMAT) => {}
            format => {
                let form = format!("has format {format:?}, and not {FORMAT:?}");
                return Err(TraceError::Form(form));
            }
        }
        let Some(Value::Array(steps)) = file.get("trace") else {
            return Err(TraceError::Form("has no list \"trace\"".to_owned()));
        };
        let options = file.get("options");
        let option = |key: &str| match options.and_then(|o| o.get(key)) {
            None => Ok(None),
            Some(Value::String(text)) if key == "segment_bytes" && text == "exact" => Ok(Some(0)),
            Some(value) => {
                let form = || TraceError::Form(format!("options.{key}: {value} is no number"));
                value.as_u64().ok_or_else(form).map(Some)
            }
        };
        let usual = Rules::default();
        let mut trace = Trace {
            rules: Rules {
                granularity: option("granularity")?.unwrap_or(usual.granularity),
                segment_bytes: option("segment_bytes")?.unwrap_or(usual.segment_bytes),
                ..usual
            },
            device_bytes: option("device_bytes")?,
            streams: 0,
            blocks: Vec::new(),
            steps: Vec::with_capacity(steps.len()),
        };
        let mut named = BTreeMap::new();
        let mut streams = Names(BTreeMap::new());
        let mut events = Names(BTreeMap::new());
        for (number, step) in steps.iter().enumerate() {
            let read = trace.read_step(step, &mut named, &mut streams, &mut events);
            let step = read.map_err(|reason| TraceError::Step {
                step: number,
                reason,
            })?;
            trace.steps.push(step);
        }
        trace.streams = u32::try_from(streams.0.len()).unwrap_or(u32::MAX).max(1);
        Ok(trace)
    }

    fn read_step(
        &mut self,
        step: &Value,
        named: &mut BTreeMap<String, usize>,
        streams: &mut Names<u64>,
        events: &mut Names<String>,
    ) -> Result<Step, String> {
        let mut stream = || Ok::<_, String>(streams.number(number(step, "stream")?));
        let block = |named: &BTreeMap<String, usize>| {
            let id = name(step, "id")?;
            let block = named.get(&id).copied();
            block.ok_or_else(|| format!("there is no block {id:?} before this"))
        };
        Ok(match &*name(step, "op")? {
            "alloc" => {
                let id = name(step, "id")?;
                named.insert(id.clone(), self.blocks.len());
                self.blocks.push(id);
                Step::Alloc {
                    bytes: number(step, "bytes")?,
                    stream: stream()?,
                }
            }
            "use" => Step::Use {
                block: block(named)?,
                stream: stream()?,
            },
            "free" => Step::Free {
                block: block(named)?,
            },
            "record" => Step::Record {
                event: events.number(name(step, "event")?),
                stream: stream()?,
            },
            "wait" => Step::Wait {
                event: events.number(name(step, "event")?),
                stream: stream()?,
            },
            "sync" => Step::Sync {
                stream: step.get("stream").map(|_| stream()).transpose()?,
            },
            "trim" => Step::Trim,
            other => return Err(format!("there is no operation {other:?}")),
        })
    }

    /// The trace as JSON, with which [`read`](Self::read) gives it back but for the numbers of
    /// streams and events, and for rules that the format does not have.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut named = 0;
        let steps = self.steps.iter().map(|step| match *step {
            Step::Alloc { bytes, stream } => {
                let id = self.blocks.get(named);
                named += 1;
                json!({"op": "alloc", "id": id, "bytes": bytes, "stream": stream})
            }
            Step::Use { block, stream } => {
                json!({"op": "use", "id": self.blocks.get(block), "stream": stream})
            }
            Step::Free { block } => json!({"op": "free", "id": self.blocks.get(block)}),
            Step::Record { event, stream } => {
                json!({"op": "record", "event": event, "stream": stream})
            }
            Step::Wait { event, stream } => json!({"op": "wait", "event": event, "stream": stream}),
            Step::Sync { stream: None } => json!({"op": "sync"}),
            Step::Sync { stream } => json!({"op": "sync", "stream": stream}),
            Step::Trim => json!({"op": "trim"}),
        });
        let steps: Vec<Value> = steps.collect();
        let mut options = json!({
            "granularity": self.rules.granularity,
            "segment_bytes": self.rules.segment_bytes,
        });
        if let Some(bytes) = self.device_bytes {
            options["device_bytes"] = bytes.into();
        }
        json!({"format": FORMAT, "options": options, "trace": steps})
    }

    /// Feeds the trace to an allocator.
    ///
    /// # Errors
    /// [`TraceError::Refused`] with the step that the allocator refuses.
    pub fn replay(&self) -> Result<Replay, TraceError> {
        let (replay, refused) = self.replay_to_the_end();
        refused.map_or(Ok(replay), Err)
    }

    /// Feeds the trace to an allocator until it refuses a step: what became of it until then, and
    /// the refusal.
    #[must_use]
    pub fn replay_to_the_end(&self) -> (Replay, Option<TraceError>) {
        let device = Budget::new(self.device_bytes);
        let mut replay = Replay {
            memory: Allocator::new(self.rules, device, self.streams),
            places: Vec::new(),
            lives: Vec::new(),
            most_held: 0,
            held: 0,
        };
        let mut blocks = Vec::new();
        for (step, what) in self.steps.iter().enumerate() {
            if let Err(error) = replay.step(step, *what, &mut blocks) {
                return (replay, Some(TraceError::Refused { step, error }));
            }
        }
        (replay, None)
    }
}

fn name(step: &Value, key: &str) -> Result<String, String> {
    match step.get(key) {
        Some(Value::String(name)) => Ok(name.clone()),
        Some(Value::Number(number)) => Ok(number.to_string()),
        _ => Err(format!("{key:?} is missing")),
    }
}

fn number(step: &Value, key: &str) -> Result<u64, String> {
    let number = step.get(key).and_then(Value::as_u64);
    number.ok_or_else(|| format!("{key:?} is no number"))
}

/// The life of a block on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// Bytes that were asked for.
    pub bytes: u64,
    /// The step that asks for it.
    pub from: usize,
    /// The step that frees it, if there is one.
    pub to: Option<usize>,
}

/// What became of a trace.
#[derive(Clone, Debug)]
pub struct Replay {
    memory: Allocator<Budget>,
    places: Vec<Range<u64>>,
    lives: Vec<Life>,
    /// Bytes that were asked for and not freed: now, and at most.
    held: u64,
    most_held: u64,
}

impl Replay {
    fn step(
        &mut self,
        number: usize,
        step: Step,
        blocks: &mut Vec<Block>,
    ) -> Result<(), AllocError> {
        match step {
            Step::Alloc { bytes, stream } => {
                let block = self.memory.alloc(bytes, stream)?;
                blocks.push(block);
                self.places.push(self.memory.range(block)?);
                self.lives.push(Life {
                    bytes,
                    from: number,
                    to: None,
                });
                self.held = self.held.saturating_add(bytes);
                self.most_held = self.most_held.max(self.held);
            }
            Step::Use { block, stream } => self.memory.touch(blocks[block], stream)?,
            Step::Free { block } => {
                self.memory.free(blocks[block])?;
                self.lives[block].to = Some(number);
                self.held -= self.lives[block].bytes;
            }
            Step::Record { event, stream } => self.memory.record(event, stream)?,
            Step::Wait { event, stream } => self.memory.wait(event, stream)?,
            Step::Sync { stream: None } => self.memory.sync_all(),
            Step::Sync {
                stream: Some(stream),
            } => self.memory.sync(stream)?,
            Step::Trim => self.memory.trim(),
        }
        Ok(())
    }

    /// Where each block is or was.
    #[must_use]
    pub fn places(&self) -> &[Range<u64>] {
        &self.places
    }

    /// The lives of the blocks, in steps.
    #[must_use]
    pub fn lives(&self) -> &[Life] {
        &self.lives
    }

    /// Most bytes that were asked for and not freed at any time: nothing can do with less.
    #[must_use]
    pub fn most_held(&self) -> u64 {
        self.most_held
    }

    /// Counters at the end.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.memory.stats()
    }

    /// How often the host had to wait for a stream, and how often memory was taken from the device.
    #[must_use]
    pub fn device(&self) -> crate::allocator::BudgetCounts {
        self.memory.device().counts()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(steps: &str) -> Result<Trace, TraceError> {
        let text = format!("{{\"format\": {FORMAT:?}, \"trace\": [{steps}]}}");
        Trace::read(text.as_bytes())
    }

    #[test]
    fn steps_that_make_no_sense_are_named() {
        for bad in [
            r#"{"op": "free", "id": "a"}"#,
            r#"{"op": "alloc", "id": "a", "stream": 0}"#,
            r#"{"op": "alloc", "id": "a", "bytes": -1, "stream": 0}"#,
            r#"{"op": "wait", "event": null, "stream": 0}"#,
            r#"{"op": "grow"}"#,
            "7",
        ] {
            let steps = format!("{{\"op\": \"sync\"}}, {bad}");
            let error = trace(&steps).unwrap_err().to_string();
            assert!(error.starts_with("trace[1]: "), "{error}");
        }
        assert!(Trace::read(b"{}").is_err());
        assert!(Trace::read(b"[]").is_err());
    }

    /// A name is that of the block that was asked for last, and numbers of streams are names.
    #[test]
    fn names_are_used_again() {
        let steps = r#"
            {"op": "alloc", "id": "a", "bytes": 600, "stream": 4000000000},
            {"op": "free", "id": "a"},
            {"op": "alloc", "id": "a", "bytes": 700, "stream": 4000000000},
            {"op": "use", "id": "a", "stream": 3},
            {"op": "free", "id": "a"}"#;
        let trace = trace(steps).unwrap();
        assert_eq!(trace.streams, 2);
        let replay = trace.replay().unwrap();
        assert_eq!(replay.places()[0], replay.places()[1]);
        assert_eq!(replay.most_held(), 700);
        assert_eq!(replay.stats().most_reserved, 1024);
        assert_eq!(replay.lives()[1].to, Some(4));
    }

    #[test]
    fn what_is_freed_twice_is_refused() {
        let steps = r#"
            {"op": "alloc", "id": "a", "bytes": 600, "stream": 0},
            {"op": "free", "id": "a"},
            {"op": "free", "id": "a"}"#;
        let refused = trace(steps).unwrap().replay();
        assert!(matches!(refused, Err(TraceError::Refused { step: 2, .. })));
    }
}
