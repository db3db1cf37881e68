//! Random scripts for the allocator, and an oracle that judges what it hands out.
//!
//! The oracle knows nothing of pools, versions or lists. It has a full vector clock for each
//! stream, remembers every use that was ever made of every byte, and asks of memory that is handed
//! out: does anybody have a byte of it, and is every use of a byte of it before the present point
//! of the stream, or seen done by the host? At the end everything is freed, and nothing may be
//! missing at the device.

use std::collections::BTreeMap;
use std::ops::Range;

use fastrand::Rng;
use tenure_runtime::allocator::pages::Split;
use tenure_runtime::allocator::{AllocError, Allocator, Block, Device, Lend, Rules, Waits};

/// What a device was asked for that the oracle must know.
#[derive(Clone, Debug)]
enum Asked {
    /// The host waited for a stream.
    Wait(u32),
    /// A stream copied bytes.
    Copy(Range<u64>, Range<u64>, u32),
}

/// A device that remembers what it was asked for, and which bytes are taken.
#[derive(Clone, Debug)]
struct Watched {
    limit: u64,
    next: u64,
    taken: BTreeMap<u64, u64>,
    asked: Vec<Asked>,
}

impl Device for Watched {
    fn take(&mut self, bytes: u64) -> Option<u64> {
        let used: u64 = self.taken.values().sum();
        if used + bytes > self.limit {
            return None;
        }
        // Addresses are used again, as a device does, so that uses of old must be looked at.
        let mut address = 0;
        for (&base, &length) in &self.taken {
            if address + bytes <= base {
                break;
            }
            address = base + length;
        }
        self.next = self.next.max(address + bytes);
        self.taken.insert(address, bytes);
        Some(address)
    }

    fn give_back(&mut self, address: u64, bytes: u64) {
        assert_eq!(
            self.taken.remove(&address),
            Some(bytes),
            "a piece goes back once, whole"
        );
    }

    fn wait_for(&mut self, stream: u32) {
        self.asked.push(Asked::Wait(stream));
    }

    fn copy(&mut self, from: u64, to: u64, bytes: u64, stream: u32) {
        let (from, to) = (from..from + bytes, to..to + bytes);
        self.asked.push(Asked::Copy(from, to, stream));
    }
}

/// A use of bytes: the stream and its time.
struct Use {
    range: Range<u64>,
    stream: usize,
    time: u64,
}

/// What really happened.
struct Oracle {
    /// For each stream what comes before its next operation.
    clocks: Vec<Vec<u64>>,
    alive: Vec<bool>,
    /// What the host has seen.
    done: Vec<u64>,
    events: BTreeMap<u32, Vec<u64>>,
    uses: Vec<Use>,
}

fn meet(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

fn merge(to: &mut [u64], from: &[u64]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = (*to).max(*from);
    }
}

impl Oracle {
    fn new(streams: usize) -> Self {
        Oracle {
            clocks: vec![vec![0; streams]; streams],
            alive: vec![true; streams],
            done: vec![0; streams],
            events: BTreeMap::new(),
            uses: Vec::new(),
        }
    }

    fn step(&mut self, stream: usize) {
        self.clocks[stream][stream] += 1;
    }

    fn uses(&mut self, stream: usize, range: Range<u64>) {
        self.step(stream);
        let time = self.clocks[stream][stream];
        self.uses.push(Use {
            range,
            stream,
            time,
        });
    }

    fn complete(&mut self, stream: usize) {
        let clock = self.clocks[stream].clone();
        merge(&mut self.done, &clock);
    }

    /// The end of a run: all before main, then main before all.
    fn join(&mut self) {
        let mut all = self.clocks[0].clone();
        self.clocks.iter().for_each(|clock| merge(&mut all, clock));
        for (clock, alive) in self.clocks.iter_mut().zip(&self.alive) {
            if *alive {
                clock.clone_from(&all);
            }
        }
    }

    /// A use of these bytes that a stream might not come after.
    fn race(&self, stream: usize, range: &Range<u64>) -> Option<&Use> {
        let clock = &self.clocks[stream];
        self.uses
            .iter()
            .find(|u| meet(&u.range, range) && u.time > clock[u.stream].max(self.done[u.stream]))
    }
}

/// A block as the script knows it.
struct Known {
    block: Block,
    range: Range<u64>,
    /// How often each stream holds it.
    holders: Vec<u32>,
    exported: bool,
    outside: bool,
    movable: bool,
}

impl Known {
    fn is_held(&self) -> bool {
        self.exported || self.holders.iter().any(|&count| count > 0)
    }
}

fn done(result: Result<(), AllocError>) -> Result<(), String> {
    result.map_err(|e| e.to_string())
}

/// What a script came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Requests that were met with memory that had been handed out before.
    pub again: u64,
    /// Of these, those where the memory had been used on another stream.
    pub across: u64,
    /// Requests that were refused.
    pub refused: u64,
}

impl Tally {
    /// The sum of two.
    pub fn add(&mut self, other: Tally) {
        self.again += other.again;
        self.across += other.across;
        self.refused += other.refused;
    }
}

struct Script {
    rng: Rng,
    memory: Allocator<Watched>,
    oracle: Oracle,
    known: Vec<Known>,
    /// Where blocks were that nobody has any more, as long as nobody else has a part of it.
    gone: Vec<Range<u64>>,
    rules: Rules,
    page: u64,
    outside: u64,
    tally: Tally,
}

fn rules(rng: &mut Rng) -> Rules {
    Rules {
        granularity: 64,
        segment_bytes: [0, 0, 256][rng.usize(..3)],
        limit: rng.bool().then_some(1024),
        threshold: (rng.u8(..4) == 0).then_some(768),
        split: [
            Split::Never,
            Split::Always,
            Split::Always,
            Split::Delayed(60),
        ][rng.usize(..4)],
        lend: [Lend::First, Lend::WhenFull][rng.usize(..2)],
        waits: [Waits::Never, Waits::Pools, Waits::All][rng.usize(..3)],
        keep_idle: (rng.u8(..4) == 0).then_some(256),
    }
}

/// Runs the script of a seed on so many streams, with so many steps.
///
/// # Errors
/// What the oracle has against it.
pub fn run(seed: u64, streams: u32, steps: usize) -> Result<Tally, String> {
    let mut rng = Rng::with_seed(seed);
    let rules = rules(&mut rng);
    let device = Watched {
        limit: [640, 1024, 1 << 20][rng.usize(..3)],
        next: 0,
        taken: BTreeMap::new(),
        asked: Vec::new(),
    };
    let mut script = Script {
        rng,
        memory: Allocator::new(rules, device, streams),
        oracle: Oracle::new(streams as usize),
        known: Vec::new(),
        gone: Vec::new(),
        rules,
        page: rules.granularity,
        outside: 1 << 40,
        tally: Tally::default(),
    };
    let said = |e: String| format!("seed {seed}, {streams} streams: {e}");
    for _ in 0..steps {
        script.step().map_err(said)?;
    }
    script.end().map_err(said)?;
    Ok(script.tally)
}

impl Script {
    /// What the device was asked for during an operation happens before the operation ends.
    fn watch(&mut self) {
        for asked in std::mem::take(&mut self.memory.device_mut().asked) {
            match asked {
                Asked::Wait(stream) => self.oracle.complete(stream as usize),
                Asked::Copy(from, to, stream) => {
                    self.oracle.uses(stream as usize, from);
                    self.oracle.uses(stream as usize, to);
                }
            }
        }
    }

    /// A stream that there is.
    fn stream(&mut self) -> u32 {
        let count = self.oracle.alive.len();
        loop {
            let stream = self.rng.usize(..count);
            if self.oracle.alive[stream] {
                return u32::try_from(stream).unwrap_or(0);
            }
        }
    }

    fn step(&mut self) -> Result<(), String> {
        let stream = self.stream();
        let s = stream as usize;
        let which = (!self.known.is_empty()).then(|| self.rng.usize(..self.known.len()));
        match (self.rng.u32(..100), which) {
            (0..26, _) => self.alloc(stream)?,
            (26..29, _) => {
                let range = self.outside..self.outside + 100;
                self.outside = range.end;
                let block = self.memory.wrap(range.clone(), stream);
                let block = block.map_err(|e| e.to_string())?;
                self.know(block, range, s, true);
            }
            (29..40, Some(at)) => {
                let block = self.known[at].block;
                done(self.memory.access(block, stream, None))?;
                self.known[at].holders[s] += 1;
                self.oracle.uses(s, self.known[at].range.clone());
            }
            (40..45, Some(at)) => {
                done(self.memory.touch(self.known[at].block, stream))?;
                self.oracle.uses(s, self.known[at].range.clone());
            }
            (45..68, Some(at)) => self.release(at, s)?,
            (68..72, Some(at)) => {
                done(self.memory.free(self.known[at].block))?;
                self.known[at].holders.fill(0);
                self.forget(at)?;
            }
            (72..75, Some(at)) => {
                let range = self.memory.export(self.known[at].block);
                self.watch();
                let range = range.map_err(|e| e.to_string())?;
                // A copy is judged like memory that is handed out.
                if range != self.known[at].range {
                    let holder = self.known[at].holders.iter().position(|&h| h > 0);
                    let left = std::mem::replace(&mut self.known[at].range, range.clone());
                    self.gone.retain(|gone| !meet(gone, &range));
                    self.gone.push(left);
                    self.judge(&range, holder.unwrap_or(0), self.known[at].block)?;
                }
                self.known[at].exported = true;
            }
            (75..77, Some(at)) => {
                let known = &mut self.known[at];
                let dropped = self.memory.drop_export(known.block);
                if dropped.is_ok() != known.exported {
                    return Err(format!("drop_export: {dropped:?}"));
                }
                known.exported = false;
                self.forget(at)?;
            }
            (77..86, _) => {
                let event = self.rng.u32(..4);
                done(self.memory.record(event, stream))?;
                self.oracle.step(s);
                self.oracle
                    .events
                    .insert(event, self.oracle.clocks[s].clone());
            }
            (86..96, _) => {
                let event = self.rng.u32(..4);
                done(self.memory.wait(event, stream))?;
                if let Some(carried) = self.oracle.events.get(&event) {
                    merge(&mut self.oracle.clocks[s], carried);
                }
            }
            (96, _) => {
                done(self.memory.sync(stream))?;
                self.watch();
            }
            (97, _) => {
                self.memory.final_clean();
                self.oracle.join();
                self.watch();
            }
            (98, _) if self.rng.bool() => self.memory.trim(),
            (98, _) => self.compact()?,
            (99, _) => {
                let ended = self.memory.end_stream(stream);
                self.watch();
                let holds = self.known.iter().any(|k| k.holders[s] > 0);
                let others = self.oracle.alive.iter().filter(|alive| **alive).count() > 1;
                if ended.is_ok() && holds {
                    return Err(format!("stream {stream} ended and holds a block"));
                }
                if ended.is_ok() && others {
                    self.oracle.alive[s] = false;
                }
                if ended.is_ok() && !others {
                    return self.start_again();
                }
            }
            _ => {}
        }
        let held: u64 = self.known.iter().map(|k| k.range.end - k.range.start).sum();
        if self.memory.held() != held {
            return Err(format!("{} bytes held, not {held}", self.memory.held()));
        }
        Ok(())
    }

    /// All streams have ended: nothing more can be asked for, and nobody holds anything but the
    /// caller.
    fn start_again(&mut self) -> Result<(), String> {
        while let Some(known) = self.known.first() {
            let dropped = self.memory.drop_export(known.block);
            done(dropped)?;
            self.known[0].exported = false;
            self.forget(0)?;
        }
        self.finish()?;
        let device = self.memory.device().clone();
        let streams = self.oracle.alive.len();
        let count = u32::try_from(streams).unwrap_or(1);
        self.memory = Allocator::new(self.rules, device, count);
        self.oracle = Oracle::new(streams);
        self.gone.clear();
        Ok(())
    }

    fn know(&mut self, block: Block, range: Range<u64>, stream: usize, outside: bool) {
        let mut holders = vec![0; self.oracle.alive.len()];
        holders[stream] = 1;
        self.known.push(Known {
            block,
            range,
            holders,
            exported: false,
            outside,
            movable: false,
        });
    }

    fn alloc(&mut self, stream: u32) -> Result<(), String> {
        let bytes = [1, 64, 100, 128, 256, 400][self.rng.usize(..6)];
        let got = self.memory.alloc(bytes, stream);
        self.watch();
        let block = match got {
            Ok(block) => block,
            Err(AllocError::OutOfMemory { .. }) => {
                self.tally.refused += 1;
                return self.must_be_full(bytes);
            }
            Err(error) => return Err(error.to_string()),
        };
        let range = self.memory.range(block).map_err(|e| e.to_string())?;
        if range.end - range.start < bytes {
            return Err(format!("{bytes} bytes were asked for, {range:?} given"));
        }
        let before = self.oracle.uses.iter().filter(|u| meet(&u.range, &range));
        let streams: Vec<usize> = before.map(|u| u.stream).collect();
        self.tally.again += u64::from(!streams.is_empty());
        self.tally.across += u64::from(streams.iter().any(|&s| s != stream as usize));
        self.gone.retain(|gone| !meet(gone, &range));
        self.know(block, range.clone(), stream as usize, false);
        if self.rng.bool() {
            done(self.memory.set_movable(block, true))?;
            if let Some(known) = self.known.last_mut() {
                known.movable = true;
            }
        }
        self.judge(&range, stream as usize, block)
    }

    /// Moves what may move, and judges where it is like memory that is handed out.
    fn compact(&mut self) -> Result<(), String> {
        let moves = self.memory.compact(self.rng.u64(..1024));
        self.watch();
        let stream = usize::try_from(self.stream()).unwrap_or(0);
        for moved in moves {
            let mut known = self.known.iter_mut();
            let known = known.find(|k| k.block == moved.block);
            let known = known.ok_or_else(|| format!("{moved:?} of a block that nobody has"))?;
            if !known.movable || known.exported || known.range != moved.from {
                return Err(format!("{moved:?} of a block that must not move"));
            }
            known.range = moved.to.clone();
            self.gone.push(moved.from);
        }
        for at in 0..self.known.len() {
            let (block, range) = (self.known[at].block, self.known[at].range.clone());
            if self.memory.range(block).as_ref() != Ok(&range) {
                return Err(format!("{block:?} is not at {range:?}"));
            }
            self.gone.retain(|gone| !meet(gone, &range));
            if !self.known[at].outside {
                self.judge(&range, stream, block)?;
            }
        }
        Ok(())
    }

    /// Whether a stream may have these bytes as this block.
    fn judge(&self, range: &Range<u64>, stream: usize, block: Block) -> Result<(), String> {
        let mut others = self.known.iter().filter(|k| k.block != block);
        if let Some(other) = others.find(|k| meet(&k.range, range)) {
            return Err(format!(
                "{range:?} is handed out and is also of {:?}",
                other.block
            ));
        }
        if let Some(race) = self.oracle.race(stream, range) {
            return Err(format!(
                "{range:?} is handed out on stream {stream}, and stream {} may use it still",
                race.stream
            ));
        }
        let taken = &self.memory.device().taken;
        let piece = taken.range(..=range.start).next_back();
        if piece.is_none_or(|(base, bytes)| range.end > base + bytes) {
            return Err(format!(
                "{range:?} is handed out and is not taken from the device"
            ));
        }
        Ok(())
    }

    /// A request was refused although the host may wait for everything: then there is no block that
    /// nobody has any more, large enough, at the device.
    fn must_be_full(&self, bytes: u64) -> Result<(), String> {
        let rules = &self.rules;
        // A threshold refuses memory that there is as long as something else is idle.
        if rules.waits != Waits::All || rules.split == Split::Never || rules.threshold.is_some() {
            return Ok(());
        }
        let taken = &self.memory.device().taken;
        let room = self.gone.iter().find(|gone| {
            let piece = taken.range(..=gone.start).next_back();
            let is_taken = piece.is_some_and(|(base, bytes)| gone.end <= base + bytes);
            let is_held = self.known.iter().any(|k| meet(&k.range, gone));
            is_taken && !is_held && gone.end - gone.start >= bytes.next_multiple_of(self.page)
        });
        match room {
            Some(room) => Err(format!(
                "{bytes} bytes were refused, and {room:?} is idle: {:?}, {:?}",
                self.memory.locate(room.start),
                self.memory.stats()
            )),
            None => Ok(()),
        }
    }

    fn release(&mut self, at: usize, stream: usize) -> Result<(), String> {
        let block = self.known[at].block;
        let number = u32::try_from(stream).unwrap_or(u32::MAX);
        let released = self.memory.release(block, number);
        let holds = self.known[at].holders[stream] > 0;
        if released.is_ok() != holds {
            return Err(format!("release: {released:?}"));
        }
        if holds {
            self.oracle.uses(stream, self.known[at].range.clone());
            self.known[at].holders[stream] -= 1;
            self.forget(at)?;
        }
        Ok(())
    }

    /// A block that nobody has is known no more, and cannot be freed again.
    fn forget(&mut self, at: usize) -> Result<(), String> {
        if self.known[at].is_held() {
            return Ok(());
        }
        let known = self.known.swap_remove(at);
        if self.memory.free(known.block).is_ok() || self.memory.touch(known.block, 0).is_ok() {
            return Err(format!("{:?} can be used after it was freed", known.block));
        }
        if !known.outside {
            self.gone.push(known.range);
        }
        Ok(())
    }

    /// Everything is freed, and nothing may be missing.
    fn end(&mut self) -> Result<(), String> {
        while let Some(known) = self.known.last() {
            let block = known.block;
            if known.exported {
                done(self.memory.drop_export(block))?;
            }
            if known.holders.iter().any(|&h| h > 0) {
                done(self.memory.free(block))?;
            }
            self.known.pop();
        }
        self.memory.final_clean();
        self.finish()
    }

    fn finish(&mut self) -> Result<(), String> {
        self.memory.sync_all();
        self.memory.trim();
        let left = (self.memory.held(), self.memory.reserved());
        let taken = self.memory.device().taken.len();
        if left != (0, 0) || taken > 0 {
            return Err(format!(
                "{left:?} bytes and {taken} pieces are left at the end"
            ));
        }
        self.watch();
        Ok(())
    }
}
