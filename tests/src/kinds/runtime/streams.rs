//! `streams`: blocks on several streams.
//!
//! What no stream may have is tried: a copy of the allocator is asked for everything that it would
//! hand out on that stream without waiting, and none of that may be the memory in question. The
//! keys that only a table of bits can have (rows, lists, what an event carries) do not bind clocks,
//! and neither does the reference's number of waits.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use serde_json::Value;
use tenure_runtime::allocator::{AllocError, Allocator, Block, Budget, Rules, Waits, Whereabouts};

use super::{
    File, Script, Status, config, get, list, number, object, play, same, stream, streams_of, text,
};

/// Keys that bind implementations by tables of bits, or only inform.
const NOT_BINDING: &[&str] = &[
    "recycled", "rows", "version", "lists", "borrow", "event", "syncs",
];

/// Where memory of the caller begins: behind all that a device hands out here.
const OUTSIDE: u64 = 1 << 60;

pub fn run(file: &File) -> Result<Vec<String>, String> {
    let config = config(file)?;
    let streams = stream(get(config, "streams")?)?;
    let device = Budget::new(config.get("device_bytes").map(number).transpose()?);
    let mut scene = Scene {
        memory: Allocator::new(Rules::apart(), device, streams),
        named: HashMap::new(),
        events: HashMap::new(),
        drops: BTreeMap::new(),
        outside: OUTSIDE,
        waits: 0,
    };
    play(file, &mut scene)
}

struct Scene {
    memory: Allocator<Budget>,
    /// The last block of each name, and where it is or was.
    named: HashMap<String, (Block, Range<u64>)>,
    /// Numbers of events, and their streams.
    events: HashMap<String, (u32, u32, u32)>,
    /// What is to be freed when memory of the caller comes back, and on which stream.
    drops: BTreeMap<Block, (String, u32)>,
    outside: u64,
    /// Waits of the host when they were counted from 0.
    waits: u64,
}

fn status(done: Result<(), AllocError>) -> Status {
    match done {
        Ok(()) => Status::Ok,
        Err(AllocError::OutOfMemory { .. }) => Status::Fail,
        Err(_) => Status::Error,
    }
}

impl Scene {
    fn block(&self, name: &str) -> Result<Block, String> {
        let named = self.named.get(name);
        let named = named.ok_or_else(|| format!("there is no block {name:?}"))?;
        Ok(named.0)
    }

    fn place(&self, name: &str) -> Result<Range<u64>, String> {
        let named = self.named.get(name);
        let named = named.ok_or_else(|| format!("there is no block {name:?}"))?;
        Ok(named.1.clone())
    }

    fn name(&mut self, name: &str, block: Result<Block, AllocError>) -> Status {
        let named = block.and_then(|block| {
            let range = self.memory.range(block)?;
            self.named.insert(name.to_owned(), (block, range));
            Ok(())
        });
        status(named)
    }

    fn alloc(&mut self, step: &Value, name: &str) -> Result<Status, String> {
        let (stream, bytes) = (stream(get(step, "stream")?)?, number(get(step, "size")?)?);
        let before = self.memory.clone();
        let block = self.memory.alloc(bytes, stream);
        if let (Ok(block), Some(source)) = (&block, step.get("source")) {
            let at = self.memory.range(*block).map_err(|e| e.to_string())?.start;
            let source = text(source)?;
            let is_lent = match before.locate(at) {
                Whereabouts::Released(_) => true,
                Whereabouts::Pool(other) => other != stream && self.same_waits(&before),
                _ => false,
            };
            if is_lent != (source == "borrow") {
                return Err(format!("{name:?} comes not from {source}"));
            }
        }
        Ok(self.name(name, block))
    }

    fn same_waits(&self, before: &Allocator<Budget>) -> bool {
        self.memory.device().counts().waits == before.device().counts().waits
    }

    fn wrap(&mut self, step: &Value, name: &str) -> Result<Status, String> {
        let (stream, bytes) = (stream(get(step, "stream")?)?, number(get(step, "size")?)?);
        let range = self.outside..self.outside.saturating_add(bytes);
        let block = self.memory.wrap(range.clone(), stream);
        if let (Ok(block), Some(other)) = (&block, step.get("drops")) {
            let other = (text(other)?.to_owned(), stream);
            self.drops.insert(*block, other);
        }
        self.outside = range.end;
        Ok(self.name(name, block))
    }

    /// The number of an event, which keeps its streams.
    fn event(&mut self, step: &Value, name: &str) -> Result<(u32, u32, u32), String> {
        let next = u32::try_from(self.events.len()).map_err(|e| e.to_string())?;
        if let Some(event) = self.events.get(name) {
            return Ok(*event);
        }
        let event = match step.get("from") {
            Some(from) => (next, stream(from)?, stream(get(step, "to")?)?),
            // Waited for before it was ever sent.
            None => {
                let on = stream(get(step, "on")?)?;
                return Ok((u32::MAX, on, on));
            }
        };
        self.events.insert(name.to_owned(), event);
        Ok(event)
    }

    fn do_step(&mut self, step: &Value) -> Result<Status, String> {
        let (key, value) = object(step)?
            .iter()
            .find(|(key, _)| STEPS.contains(&key.as_str()))
            .ok_or_else(|| format!("there is no step {step}"))?;
        let name = value.as_str().unwrap_or_default();
        let on = |key: &str| stream(get(step, key)?);
        let done = match &**key {
            "alloc" => return self.alloc(step, name),
            "wrap" => return self.wrap(step, name),
            "use" => {
                let from = step.get("from").map(stream).transpose()?;
                let block = self.block(name)?;
                self.memory.access(block, on("stream")?, from)
            }
            "share" => {
                let block = self.block(name)?;
                self.memory.share(block, on("stream")?)
            }
            "free" => {
                let block = self.block(name)?;
                self.memory.release(block, on("stream")?)
            }
            "send" => {
                let (event, from, to) = self.event(step, name)?;
                if (from, to) != (on("from")?, on("to")?) {
                    return Ok(Status::Error);
                }
                self.memory.record(event, from)
            }
            "wait" => {
                let (event, _, to) = self.event(step, name)?;
                if to != on("on")? {
                    return Ok(Status::Error);
                }
                self.memory.wait(event, to)
            }
            "final_clean" => {
                self.memory.final_clean();
                Ok(())
            }
            "sync" => self.memory.sync(stream(value)?),
            "export" => {
                let block = self.block(name)?;
                self.memory.export(block).map(|range| {
                    self.named.insert(name.to_owned(), (block, range));
                })
            }
            "caller_drops" => {
                let block = self.block(name)?;
                self.memory.drop_export(block)
            }
            "device" => {
                self.memory.device_mut().refuse(name == "refuse");
                Ok(())
            }
            "destroy" => self.memory.end_stream(stream(value)?),
            _ => {
                self.waits = self.memory.device().counts().waits;
                Ok(())
            }
        };
        Ok(status(done))
    }

    /// Frees what is to be freed when memory of the caller comes back, until no more comes back.
    fn drop_shares(&mut self) -> Result<(), String> {
        loop {
            let dropped = self.memory.take_dropped();
            if dropped.is_empty() {
                return Ok(());
            }
            for block in dropped {
                if let Some((name, stream)) = self.drops.remove(&block) {
                    let block = self.block(&name)?;
                    let released = self.memory.release(block, stream);
                    released.map_err(|e| format!("{name:?}: {e}"))?;
                }
            }
        }
    }

    /// Whether a stream could have a byte of a range now, without waiting.
    fn can_have(&self, range: &Range<u64>, stream: u32) -> bool {
        let mut probe = self.memory.clone();
        probe.rules_mut().waits = Waits::Never;
        probe.device_mut().refuse(true);
        while let Ok(block) = probe.alloc(1, stream) {
            let Ok(got) = probe.range(block) else {
                return false;
            };
            if got.start < range.end && range.start < got.end {
                return true;
            }
        }
        false
    }

    /// Whether memory is where the case says, or further on its way.
    fn is_at(&self, name: &str, want: &str) -> Result<Result<(), Whereabouts>, String> {
        let block = self.block(name)?;
        let range = self.place(name)?;
        let is_held = self.memory.holders(block).iter().any(|&count| count > 0);
        let got = match self.memory.locate(range.start) {
            // It has no memory.
            _ if range.is_empty() && is_held => Whereabouts::Held(block),
            Whereabouts::Below if range.start >= OUTSIDE => Whereabouts::Caller(block),
            got => got,
        };
        let (state, which) = want.split_once(':').unwrap_or((want, ""));
        let number = || which.parse::<u32>().map_err(|e| format!("{want}: {e}"));
        // Somebody else has it, so it was idle at some time.
        let again = matches!(got, Whereabouts::Held(other) if other != block);
        let returned = got == Whereabouts::Caller(block) && range.start >= OUTSIDE;
        let depot = matches!(got, Whereabouts::Depot | Whereabouts::Below) || again || returned;
        let home = matches!(got, Whereabouts::Pool(_)) || depot;
        let released = matches!(got, Whereabouts::Released(b) if b == block);
        let is = match state {
            "live" => got == Whereabouts::Held(block),
            "caller" => got == Whereabouts::Caller(block),
            "released" | "transit" => released || home,
            "borrow" => home || released && self.can_have(&range, number()?),
            "pool" => depot || got == Whereabouts::Pool(number()?),
            "l1" => depot,
            "below" => got == Whereabouts::Below || again,
            "again" => got == Whereabouts::Held(self.block(which)?),
            _ => return Err(format!("there is no state {want:?}")),
        };
        Ok(if is { Ok(()) } else { Err(got) })
    }

    /// How many blocks nobody holds, and nobody could have.
    fn leaks(&self) -> u64 {
        let blocks = self.named.values().filter(|(block, range)| {
            let at = self.memory.locate(range.start);
            at == Whereabouts::Released(*block) && !self.memory.is_within_reach(*block)
        });
        u64::try_from(blocks.count()).unwrap_or(u64::MAX)
    }
}

/// Keys that say what a step does.
const STEPS: &[&str] = &[
    "alloc",
    "wrap",
    "use",
    "share",
    "free",
    "send",
    "wait",
    "final_clean",
    "sync",
    "export",
    "caller_drops",
    "device",
    "destroy",
    "reset_counters",
];

impl Script for Scene {
    fn step(&mut self, step: &Value) -> Result<Status, String> {
        let status = self.do_step(step)?;
        self.drop_shares()?;
        Ok(status)
    }

    fn expect(&mut self, key: &str, want: &Value) -> Result<Vec<String>, String> {
        let mut missed = Vec::new();
        match key {
            _ if NOT_BINDING.contains(&key) => {}
            "unsafe_on" => {
                for (name, want) in object(want)? {
                    let range = self.place(name)?;
                    for stream in streams_of(want)? {
                        if self.can_have(&range, stream) {
                            missed.push(format!("{name:?} can be had on stream {stream}"));
                        }
                    }
                }
            }
            "where" => {
                for (name, want) in object(want)? {
                    if let Err(got) = self.is_at(name, text(want)?)? {
                        missed.push(format!("{name:?} expected {want}, got {got:?}"));
                    }
                }
            }
            "same_memory" | "disjoint" => {
                for pair in list(want)? {
                    let place = |at| self.place(pair.get(at).and_then(Value::as_str).unwrap_or(""));
                    let (a, b) = (place(0)?, place(1)?);
                    let holds = match key {
                        "same_memory" => a.start == b.start,
                        _ => a.end <= b.start || b.end <= a.start,
                    };
                    if !holds {
                        missed.push(format!("{pair}: {a:?}, {b:?}"));
                    }
                }
            }
            "max_syncs" => {
                let waits = self.memory.device().counts().waits - self.waits;
                if waits > number(want)? {
                    missed.push(format!("expected {want} at most, got {waits}"));
                }
            }
            "holders" => {
                for (name, want) in object(want)? {
                    let got = self.memory.holders(self.block(name)?);
                    missed.extend(same(name, got, streams_of(want)?));
                }
            }
            "l1_occupied" => {
                let lent = self.memory.stats().lent_by_depot;
                missed.extend(same("", lent, number(want)?));
            }
            "leaks" => missed.extend(same("", self.leaks(), number(want)?)),
            _ => missed.push("cannot be judged".to_owned()),
        }
        Ok(missed)
    }
}
