//! Random programs on several streams, judged by reachability: what comes before what is found by
//! walking over all operations, with no clock.

use std::collections::BTreeSet;

use super::*;

/// One operation on a stream, and the operations right before it.
struct Step {
    before: Vec<usize>,
}

/// What really happened.
#[derive(Default)]
struct History {
    steps: Vec<Step>,
    /// Last operation of each stream.
    last: BTreeMap<u32, usize>,
    /// The operation that an event stands for.
    events: BTreeMap<u32, usize>,
    /// Operations that the host has seen complete.
    done: BTreeSet<usize>,
    /// For all blocks ever: addresses, operations, and whether it is held.
    blocks: Vec<(Range<u64>, Vec<usize>, bool)>,
}

impl History {
    fn step(&mut self, stream: u32, also: Option<usize>) -> usize {
        let before = self.last.get(&stream).copied();
        let before = before.into_iter().chain(also).collect();
        self.steps.push(Step { before });
        self.last.insert(stream, self.steps.len() - 1);
        self.steps.len() - 1
    }

    /// All operations that come before the next one of a stream, or are done.
    fn past(&self, stream: u32) -> BTreeSet<usize> {
        let mut past = self.done.clone();
        let mut pending: Vec<usize> = self.last.get(&stream).copied().into_iter().collect();
        while let Some(step) = pending.pop() {
            if past.insert(step) {
                pending.extend(&self.steps[step].before);
            }
        }
        past
    }

    /// Whether a stream may have these addresses.
    fn is_free(&self, range: &Range<u64>, past: &BTreeSet<usize>) -> bool {
        let meets = |r: &Range<u64>| r.start < range.end && range.start < r.end;
        let mut others = self.blocks.iter().filter(|(r, ..)| meets(r));
        others.all(|(_, uses, held)| !held && uses.iter().all(|u| past.contains(u)))
    }
}

/// Runs a random program. Gives how often memory was handed out again.
fn run(seed: u64, streams: u32, steps: usize, rules: Rules, limit: Option<u64>) -> usize {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut memory = Allocator::new(rules, Budget::new(limit));
    let mut history = History::default();
    let mut held: Vec<(Block, usize)> = Vec::new();
    let mut again = 0;
    for _ in 0..steps {
        let stream = rng.u32(..streams);
        match rng.u32(..20) {
            0..=5 => {
                let bytes = [100u64, 512, 600, 1024, 3000][rng.usize(..5)];
                let before = memory.reserved();
                let past = history.past(stream);
                let rounded = bytes.next_multiple_of(512);
                let could = (0..before / 512).any(|i| {
                    let range = i * 512..i * 512 + rounded;
                    let inside = rules.segment_bytes == 0 || range.end <= before;
                    inside && history.is_free(&range, &past)
                });
                let block = match memory.alloc(bytes, stream) {
                    Ok(block) => block,
                    Err(error) => {
                        assert!(limit.is_some(), "seed {seed}: {error}");
                        continue;
                    }
                };
                let range = memory.range(block).unwrap();
                if limit.is_none() {
                    assert!(history.is_free(&range, &past), "seed {seed}: {range:?}");
                    // One segment, so that neighbours in address are neighbours in memory.
                    if rules.segment_bytes > 0 && before > 0 {
                        let grew = memory.reserved() > before;
                        assert!(
                            !(grew && could),
                            "seed {seed}: there was room for {range:?}"
                        );
                    }
                }
                again += usize::from(memory.reserved() == before);
                held.push((block, history.blocks.len()));
                history.blocks.push((range, Vec::new(), true));
            }
            6..=11 if !held.is_empty() => {
                let (block, index) = held[rng.usize(..held.len())];
                memory.touch(block, stream).unwrap();
                let step = history.step(stream, None);
                history.blocks[index].1.push(step);
            }
            12..=14 if !held.is_empty() => {
                let (block, index) = held.swap_remove(rng.usize(..held.len()));
                memory.free(block).unwrap();
                history.blocks[index].2 = false;
                assert_eq!(memory.free(block), Err(AllocError::NotHeld(block.0)));
            }
            15 | 16 => {
                let event = rng.u32(..4);
                memory.record(event, stream);
                let step = history.step(stream, None);
                history.events.insert(event, step);
            }
            17 | 18 => {
                let event = rng.u32(..4);
                memory.wait(event, stream);
                let carried = history.events.get(&event).copied();
                history.step(stream, carried);
            }
            _ if rng.u8(..4) == 0 => {
                memory.sync();
                history.done = (0..history.steps.len()).collect();
            }
            _ => {}
        }
    }
    for (block, _) in held {
        memory.free(block).unwrap();
    }
    memory.sync();
    memory.trim();
    assert_eq!((memory.held(), memory.reserved()), (0, 0), "seed {seed}");
    again
}

#[test]
fn memory_is_handed_out_when_and_only_when_all_uses_come_before() {
    let one_segment = Rules {
        granularity: 512,
        segment_bytes: 1 << 20,
    };
    let mut again = 0;
    for seed in 0..2000 {
        again += run(
            seed,
            1 + u32::try_from(seed % 4).unwrap(),
            60,
            Rules::default(),
            None,
        );
        again += run(seed, 3, 60, one_segment, None);
    }
    assert!(again > 10_000, "{again}");
}

#[test]
fn more_streams_than_a_word_has_bits() {
    for seed in 0..20 {
        run(seed, 130, 600, Rules::default(), None);
    }
}

#[test]
fn a_full_device_is_waited_for_before_anything_is_refused() {
    let mut memory = Allocator::new(Rules::default(), Budget::new(Some(2048)));
    let a = memory.alloc(1024, 0).unwrap();
    let b = memory.alloc(1024, 0).unwrap();
    memory.touch(a, 1).unwrap();
    memory.touch(b, 2).unwrap();
    memory.free(a).unwrap();
    // Stream 1 must end before stream 0 can have its memory.
    let c = memory.alloc(1024, 0).unwrap();
    assert!(matches!(
        memory.alloc(1, 0),
        Err(AllocError::OutOfMemory { held: 2048, .. })
    ));
    memory.free(b).unwrap();
    memory.free(c).unwrap();
    // Two segments are given back for one that is larger.
    let d = memory.alloc(2048, 3).unwrap();
    assert_eq!(memory.range(d).map(|r| r.end - r.start), Ok(2048));
    for seed in 0..300 {
        run(seed, 3, 60, Rules::default(), Some(4096));
    }
}

/// An event stands for what its stream knew when it was recorded (`a`), and not for what it learns
/// before somebody waits (`b`).
#[test]
fn an_event_does_not_learn_after_it_was_recorded() {
    let mut memory = Allocator::new(Rules::default(), Budget::default());
    let a = memory.alloc(512, 0).unwrap();
    memory.touch(a, 0).unwrap();
    memory.touch(a, 2).unwrap();
    let place = memory.range(a).unwrap();
    memory.free(a).unwrap();
    memory.record(1, 0);
    memory.record(2, 2);
    memory.wait(2, 0);
    memory.wait(1, 1);
    let b = memory.alloc(512, 1).unwrap();
    assert_ne!(memory.range(b), Ok(place.clone()));
    // Recorded again, it carries what stream 0 has learnt.
    memory.record(1, 0);
    memory.wait(1, 1);
    let c = memory.alloc(512, 1).unwrap();
    assert_eq!(memory.range(c), Ok(place));
}

#[test]
fn huge_requests_are_refused() {
    let mut memory = Allocator::new(Rules::default(), Budget::default());
    assert!(memory.alloc(u64::MAX, 0).is_err());
    let _ = memory.alloc(u64::MAX - 1023, 0).unwrap();
    assert!(memory.alloc(u64::MAX - 1023, 0).is_err());
    let nothing = memory.alloc(0, 0).unwrap();
    assert_eq!(memory.range(nothing), Ok(0..0));
}
