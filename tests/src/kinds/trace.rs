//! `trace`: a list of requests is fed to the allocator (`tenure.trace/1`).

use std::collections::HashMap;
use std::ops::Range;

use serde_json::{Map, Value};
use tenure_runtime::allocator::{Allocator, Block, Budget, Rules};

use crate::expect::Judge;

/// Runs the case, and gives back what does not hold.
pub fn run(file: &Map<String, Value>, expect: &Map<String, Value>) -> Vec<String> {
    let mut judge = Judge::new(expect);
    let mut feed = Feed::new(file);
    let steps = file.get("trace").and_then(Value::as_array);
    let fed = (0..)
        .zip(steps.into_iter().flatten())
        .try_for_each(|(i, step)| {
            let said = |e| format!("trace[{i}]: {e}");
            feed.step(step).map_err(said)
        });
    let refused = judge.take("error").and_then(Value::as_bool) == Some(true);
    match fed {
        Ok(()) if refused => judge.fail("an error was expected, the trace was fed"),
        Err(error) if !refused => judge.fail(error),
        _ => {}
    }
    for (key, want) in [("share", true), ("no_share", false)] {
        for (first, later) in judge.pairs(key) {
            match (feed.places.get(first), feed.places.get(later)) {
                (Some(a), Some(b)) if (a.start < b.end && b.start < a.end) == want => {}
                places => judge.fail(format!("{key}: {first} and {later} have {places:?}")),
            }
        }
    }
    if let Some(most) = judge.number("reserved_max")
        && feed.memory.most_reserved() > most
    {
        let got = feed.memory.most_reserved();
        judge.fail(format!("reserved_max: expected {most} at most, got {got}"));
    }
    judge.equal("reserved_after", feed.memory.reserved());
    judge.failures()
}

/// The allocator, and what the trace calls things.
struct Feed {
    memory: Allocator<Budget>,
    blocks: HashMap<String, Block>,
    /// Where blocks are or were.
    places: HashMap<String, Range<u64>>,
    events: HashMap<String, u32>,
}

impl Feed {
    fn new(file: &Map<String, Value>) -> Self {
        let option = |name: &str| file.get("options")?.get(name)?.as_u64();
        let usual = Rules::default();
        let rules = Rules {
            granularity: option("granularity").unwrap_or(usual.granularity),
            // "exact" is the usual.
            segment_bytes: option("segment_bytes").unwrap_or(usual.segment_bytes),
        };
        let device = Budget::new(option("device_bytes"));
        Feed {
            memory: Allocator::new(rules, device),
            blocks: HashMap::new(),
            places: HashMap::new(),
            events: HashMap::new(),
        }
    }

    fn step(&mut self, step: &Value) -> Result<(), String> {
        let name = |key: &str| match step.get(key) {
            Some(Value::String(name)) => Ok(name.clone()),
            Some(Value::Number(number)) => Ok(number.to_string()),
            _ => Err(format!("{key:?} is missing")),
        };
        let number = |key: &str| {
            let number = step.get(key).and_then(Value::as_u64);
            number.ok_or_else(|| format!("{key:?} is no number"))
        };
        let stream = || u32::try_from(number("stream")?).map_err(|e| e.to_string());
        match &*name("op")? {
            "alloc" => {
                let id = name("id")?;
                let block = self.memory.alloc(number("bytes")?, stream()?);
                let block = block.map_err(|e| e.to_string())?;
                let place = self.memory.range(block).map_err(|e| e.to_string())?;
                self.places.insert(id.clone(), place);
                self.blocks.insert(id, block);
            }
            "use" => {
                let block = self.block(&name("id")?)?;
                let used = self.memory.touch(block, stream()?);
                used.map_err(|e| e.to_string())?;
            }
            "free" => {
                let block = self.block(&name("id")?)?;
                self.memory.free(block).map_err(|e| e.to_string())?;
            }
            "record" => {
                let event = self.event(name("event")?);
                self.memory.record(event, stream()?);
            }
            "wait" => {
                let event = self.event(name("event")?);
                self.memory.wait(event, stream()?);
            }
            "sync" => self.memory.sync(),
            "trim" => self.memory.trim(),
            other => return Err(format!("there is no operation {other:?}")),
        }
        Ok(())
    }

    fn block(&self, id: &str) -> Result<Block, String> {
        let block = self.blocks.get(id).copied();
        block.ok_or_else(|| format!("there is no block {id:?}"))
    }

    fn event(&mut self, name: String) -> u32 {
        let next = u32::try_from(self.events.len()).unwrap_or(u32::MAX);
        *self.events.entry(name).or_insert(next)
    }
}
