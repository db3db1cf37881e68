//! Directed tests, one for each rule; `tests/src/scripts.rs` in the workspace has the random ones.

use super::*;

fn on(streams: u32) -> Allocator<Budget> {
    Allocator::new(Rules::default(), Budget::default(), streams)
}

fn limited(streams: u32, bytes: u64) -> Allocator<Budget> {
    Allocator::new(Rules::default(), Budget::new(Some(bytes)), streams)
}

#[test]
fn a_full_device_is_waited_for_before_anything_is_refused() {
    let mut memory = limited(4, 2048);
    let a = memory.alloc(1024, 0).unwrap();
    let b = memory.alloc(1024, 0).unwrap();
    memory.touch(a, 1).unwrap();
    memory.touch(b, 2).unwrap();
    memory.free(a).unwrap();
    // Stream 1 must end before stream 0 can have its memory.
    let c = memory.alloc(1024, 0).unwrap();
    assert_eq!(memory.device().counts().waits, 1);
    let full = memory.alloc(1, 0);
    assert!(matches!(
        full,
        Err(AllocError::OutOfMemory {
            held: 2048,
            idle: 0,
            unfinished: 0,
            ..
        })
    ));
    memory.free(b).unwrap();
    memory.free(c).unwrap();
    // Two roots are given back for one that is larger.
    let d = memory.alloc(2048, 3).unwrap();
    assert_eq!(memory.range(d).map(|r| r.end - r.start), Ok(2048));
    assert_eq!(memory.stats().most_reserved, 2048);
}

#[test]
fn rules_say_what_is_waited_for() {
    for (waits, pool, released) in [
        (Waits::Never, false, false),
        (Waits::Pools, true, false),
        (Waits::All, true, true),
    ] {
        let rules = Rules {
            waits,
            ..Rules::default()
        };
        let mut memory = Allocator::new(rules, Budget::new(Some(1024)), 3);
        let a = memory.alloc(1024, 0).unwrap();
        memory.release(a, 0).unwrap();
        assert_eq!(memory.alloc(1024, 1).is_ok(), pool, "{waits:?}");
        let mut memory = Allocator::new(rules, Budget::new(Some(1024)), 3);
        let a = memory.alloc(1024, 0).unwrap();
        memory.access(a, 1, Some(0)).unwrap();
        memory.release(a, 0).unwrap();
        memory.release(a, 1).unwrap();
        assert_eq!(memory.alloc(1024, 2).is_ok(), released, "{waits:?}");
    }
}

/// An event stands for what its stream knew when it was recorded (`a`), and not for what it learns
/// before somebody waits (`b`).
#[test]
fn an_event_does_not_learn_after_it_was_recorded() {
    let mut memory = on(3);
    let a = memory.alloc(512, 0).unwrap();
    memory.touch(a, 0).unwrap();
    memory.touch(a, 2).unwrap();
    let place = memory.range(a).unwrap();
    memory.free(a).unwrap();
    memory.record(1, 0).unwrap();
    memory.record(2, 2).unwrap();
    memory.wait(2, 0).unwrap();
    memory.wait(1, 1).unwrap();
    let b = memory.alloc(512, 1).unwrap();
    assert_ne!(memory.range(b), Ok(place.clone()));
    // Recorded again, it carries what stream 0 has learnt.
    memory.record(1, 0).unwrap();
    memory.wait(1, 1).unwrap();
    let c = memory.alloc(512, 1).unwrap();
    assert_eq!(memory.range(c), Ok(place));
}

/// A stream that gets access without any order does not come after what was done before.
#[test]
fn what_was_done_with_memory_before_goes_along() {
    let mut memory = limited(2, 512);
    memory.rules_mut().waits = Waits::Never;
    let a = memory.alloc(512, 0).unwrap();
    memory.release(a, 0).unwrap();
    let b = memory.alloc(512, 0).unwrap();
    memory.access(b, 1, None).unwrap();
    memory.free(b).unwrap();
    assert!(memory.alloc(512, 1).is_err());
    memory.record(0, 0).unwrap();
    memory.wait(0, 1).unwrap();
    assert!(memory.alloc(512, 1).is_ok());
}

#[test]
fn huge_requests_are_refused() {
    let mut memory = on(1);
    assert!(memory.alloc(u64::MAX, 0).is_err());
    let _ = memory.alloc(u64::MAX - 1023, 0).unwrap();
    assert!(memory.alloc(u64::MAX - 1023, 0).is_err());
    let nothing = memory.alloc(0, 0).unwrap();
    assert_eq!(memory.range(nothing), Ok(0..0));
    memory.release(nothing, 0).unwrap();
    assert!(memory.range(nothing).is_err());
}

#[test]
fn wrong_calls_are_refused_and_change_nothing() {
    let mut memory = on(2);
    let a = memory.alloc(512, 0).unwrap();
    let no_stream = AllocError::NoSuchStream {
        stream: 2,
        streams: 2,
    };
    assert_eq!(memory.alloc(1, 2), Err(no_stream.clone()));
    assert_eq!(memory.access(a, 2, None), Err(no_stream.clone()));
    assert_eq!(memory.record(0, 2), Err(no_stream.clone()));
    assert_eq!(memory.wait(0, 2), Err(no_stream.clone()));
    assert_eq!(memory.end_stream(2), Err(no_stream));
    let same = AllocError::SameStream { stream: 0 };
    assert_eq!(memory.access(a, 0, Some(0)), Err(same));
    let no_holder = AllocError::NoHolder {
        block: a,
        stream: 1,
    };
    assert_eq!(memory.share(a, 1), Err(no_holder.clone()));
    assert_eq!(memory.release(a, 1), Err(no_holder));
    assert_eq!(memory.end_stream(0), Err(AllocError::MainStream));
    assert_eq!(
        memory.drop_export(a),
        Err(AllocError::NotExported { block: a })
    );
    assert_eq!(memory.holders(a), [1, 0]);
    memory.access(a, 1, Some(0)).unwrap();
    let holds = AllocError::StreamHolds {
        stream: 1,
        blocks: 1,
    };
    assert_eq!(memory.end_stream(1), Err(holds));
    memory.release(a, 1).unwrap();
    memory.end_stream(1).unwrap();
    memory.release(a, 0).unwrap();
    assert_eq!(memory.release(a, 0), Err(AllocError::NotHeld { block: a }));
    assert_eq!(memory.touch(a, 0), Err(AllocError::NotHeld { block: a }));
}

/// The memory of a stream that has ended is lent, goes home and goes to the device like any other.
#[test]
fn blocks_outlive_the_stream_that_they_were_made_on() {
    let rules = Rules {
        segment_bytes: 4096,
        ..Rules::default()
    };
    let mut memory = Allocator::new(rules, Budget::default(), 3);
    let whole = memory.alloc(2048, 1).unwrap();
    memory.release(whole, 1).unwrap();
    let a = memory.alloc(512, 1).unwrap();
    memory.access(a, 2, Some(1)).unwrap();
    memory.release(a, 1).unwrap();
    memory.end_stream(1).unwrap();
    // The rest of its root is idle, and the host has seen all that stream 1 has done.
    let b = memory.alloc(1024, 0).unwrap();
    assert_eq!(memory.stats().reserved, 4096);
    memory.release(a, 2).unwrap();
    memory.release(b, 0).unwrap();
    assert!(matches!(memory.stats().unfinished, 1..));
    memory.final_clean();
    let stats = memory.stats();
    assert_eq!((stats.unfinished, stats.lent_by_depot), (0, 0));
    memory.sync_all();
    memory.trim();
    assert_eq!(memory.reserved(), 0);
}

#[test]
fn a_part_that_is_exported_is_copied_if_nobody_else_has_its_address() {
    let rules = Rules {
        split: pages::Split::Always,
        ..Rules::default()
    };
    for shared in [false, true] {
        let mut memory = Allocator::new(rules, Budget::default(), 2);
        let whole = memory.alloc(4096, 0).unwrap();
        memory.release(whole, 0).unwrap();
        let a = memory.alloc(512, 0).unwrap();
        let before = memory.range(a).unwrap();
        if shared {
            memory.access(a, 1, Some(0)).unwrap();
        }
        let after = memory.export(a).unwrap();
        assert_eq!(before != after, !shared);
        let copied = if shared { 0 } else { 512 };
        assert_eq!(memory.device().counts().copied, copied);
        memory.free(a).unwrap();
        assert_eq!(memory.locate(after.start), Whereabouts::Caller(a));
        memory.drop_export(a).unwrap();
        memory.final_clean();
        assert_eq!(memory.stats().lent_by_depot, 0);
    }
}

#[test]
fn what_is_idle_above_the_mark_goes_to_the_device_at_the_end_of_a_run() {
    for (keep, left) in [
        (Some(0), 0),
        (Some(1023), 0),
        (Some(1024), 1024),
        (None, 1024),
    ] {
        let rules = Rules {
            keep_idle: keep,
            ..Rules::default()
        };
        let mut memory = Allocator::new(rules, Budget::default(), 2);
        let a = memory.alloc(1024, 1).unwrap();
        memory.release(a, 1).unwrap();
        memory.final_clean();
        assert_eq!(memory.reserved(), left, "{keep:?}");
    }
}

#[test]
fn a_limit_holds_whatever_the_device_has() {
    let rules = Rules {
        limit: Some(1024),
        ..Rules::default()
    };
    let mut memory = Allocator::new(rules, Budget::default(), 1);
    let a = memory.alloc(1024, 0).unwrap();
    assert!(memory.alloc(1, 0).is_err());
    memory.release(a, 0).unwrap();
    assert!(memory.alloc(1, 0).is_ok());
}

#[test]
fn tables_say_what_clocks_know() {
    let mut memory = on(3);
    let a = memory.alloc(512, 0).unwrap();
    memory.access(a, 1, Some(0)).unwrap();
    memory.release(a, 1).unwrap();
    memory.record(0, 1).unwrap();
    memory.wait(0, 0).unwrap();
    let table = memory.occupancy(a).unwrap();
    let row = |stream| table.row(stream).collect::<Vec<_>>();
    assert_eq!((row(0), row(1), row(2)), (vec![0], vec![0], vec![0, 1]));
}
