//! `trace`: a list of requests is fed to the allocator (`tenure.trace/1`).

use serde_json::{Map, Value};
use tenure_runtime::trace::Trace;

use crate::expect::Judge;

/// Runs the case, and gives back what does not hold.
pub fn run(file: &Map<String, Value>, expect: &Map<String, Value>) -> Vec<String> {
    let mut judge = Judge::new(expect);
    let refused = judge.take("error").and_then(Value::as_bool) == Some(true);
    let trace = match Trace::from_json(file) {
        Ok(trace) => trace,
        Err(_) if refused => return judge.failures(),
        Err(error) => return vec![error.to_string()],
    };
    let (replay, error) = trace.replay_to_the_end();
    match error {
        None if refused => judge.fail("an error was expected, the trace was fed"),
        Some(error) if !refused => judge.fail(error.to_string()),
        _ => {}
    }
    let place = |name: &str| {
        let block = trace.blocks.iter().rposition(|n| n == name)?;
        replay.places().get(block)
    };
    for (key, want) in [("share", true), ("no_share", false)] {
        for (first, later) in judge.pairs(key) {
            match (place(first), place(later)) {
                (Some(a), Some(b)) if (a.start < b.end && b.start < a.end) == want => {}
                places => judge.fail(format!("{key}: {first} and {later} have {places:?}")),
            }
        }
    }
    let stats = replay.stats();
    if let Some(most) = judge.number("reserved_max")
        && stats.most_reserved > most
    {
        let got = stats.most_reserved;
        judge.fail(format!("reserved_max: expected {most} at most, got {got}"));
    }
    judge.equal("reserved_after", stats.reserved);
    judge.failures()
}
