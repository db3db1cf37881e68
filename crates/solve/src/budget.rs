//! How long a search may go on. Work is counted in *steps*, a few nanoseconds each, so that a
//! search ends at the same place on every machine; the clock is looked at only when a time limit
//! was given.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Steps between two looks at the clock and at the stop flag.
const STEPS_PER_LOOK: u64 = 1 << 16;

/// The search has to stop: the steps are used up, the time is over, or its result is no longer
/// wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exhausted;

/// What all parts of one solver call share: the end of its time and the wish to stop.
#[derive(Debug)]
pub(crate) struct Stop<'a> {
    deadline: Option<Instant>,
    cancel: Option<&'a AtomicBool>,
    out_of_time: AtomicBool,
}

impl<'a> Stop<'a> {
    /// The search ends at the deadline, and when `cancel` becomes true.
    pub(crate) fn new(deadline: Option<Instant>, cancel: Option<&'a AtomicBool>) -> Self {
        Stop {
            deadline,
            cancel,
            out_of_time: AtomicBool::new(false),
        }
    }

    /// Whether the caller has asked for the end.
    pub(crate) fn cancelled(&self) -> bool {
        self.cancel.is_some_and(|flag| flag.load(Ordering::Relaxed))
    }

    /// Whether the search has to end, for whatever reason; looks at the clock.
    pub(crate) fn is_over(&self) -> bool {
        self.look().is_err()
    }

    /// Whether the time limit has cut a search.
    pub(crate) fn out_of_time(&self) -> bool {
        self.out_of_time.load(Ordering::Relaxed)
    }

    /// Says when the search has to end, for whatever reason; looks at the clock.
    pub(crate) fn look(&self) -> Result<(), Exhausted> {
        if self.out_of_time() || self.cancelled() {
            return Err(Exhausted);
        }
        if self
            .deadline
            .is_some_and(|deadline| Instant::now() >= deadline)
        {
            self.out_of_time.store(true, Ordering::Relaxed);
            return Err(Exhausted);
        }
        Ok(())
    }
}

/// The steps that one search may take.
#[derive(Debug)]
pub(crate) struct Budget<'a> {
    limit: u64,
    used: u64,
    next_look: u64,
    stop: &'a Stop<'a>,
    /// Set when this search's result is no longer wanted.
    unwanted: Option<&'a AtomicBool>,
}

impl<'a> Budget<'a> {
    pub(crate) fn new(limit: u64, stop: &'a Stop<'a>) -> Self {
        Budget {
            limit,
            used: 0,
            next_look: 0,
            stop,
            unwanted: None,
        }
    }

    /// A budget that also ends when `unwanted` becomes true.
    pub(crate) fn unless(mut self, unwanted: &'a AtomicBool) -> Self {
        self.unwanted = Some(unwanted);
        self
    }

    /// Runs a task that may take at most `limit` of these steps.
    pub(crate) fn within<T>(&mut self, limit: u64, task: impl FnOnce(&mut Self) -> T) -> T {
        let outer = self.limit;
        self.limit = outer.min(self.used.saturating_add(limit));
        let result = task(self);
        self.limit = outer;
        result
    }

    /// What ends all searches, whatever their steps.
    pub(crate) fn stop(&self) -> &'a Stop<'a> {
        self.stop
    }

    /// Steps taken so far.
    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// Takes `steps`, or says that the search has to stop.
    pub(crate) fn spend(&mut self, steps: u64) -> Result<(), Exhausted> {
        self.used = self.used.saturating_add(steps);
        if self.used > self.limit {
            return Err(Exhausted);
        }
        if self.used >= self.next_look {
            self.next_look = self.used.saturating_add(STEPS_PER_LOOK);
            if self
                .unwanted
                .is_some_and(|flag| flag.load(Ordering::Relaxed))
            {
                return Err(Exhausted);
            }
            self.stop.look()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_end_exactly_at_the_limit() {
        let stop = Stop::new(None, None);
        let mut budget = Budget::new(10, &stop);
        assert_eq!(budget.spend(10), Ok(()));
        assert_eq!(budget.spend(1), Err(Exhausted));
        assert!(!stop.out_of_time());
    }

    #[test]
    fn a_deadline_in_the_past_stops_at_once_and_is_remembered() {
        let stop = Stop::new(Some(Instant::now()), None);
        assert_eq!(Budget::new(10, &stop).spend(1), Err(Exhausted));
        assert!(stop.out_of_time());
    }

    #[test]
    fn an_unwanted_search_stops() {
        let stop = Stop::new(None, None);
        let unwanted = AtomicBool::new(true);
        let mut budget = Budget::new(10, &stop).unless(&unwanted);
        assert_eq!(budget.spend(1), Err(Exhausted));
    }
}
