//! Sorting that looks at the clock: of a million buffers it takes longer than a time limit may be
//! passed by.

use crate::budget::{Exhausted, Stop};

/// Elements that are sorted between two looks.
const SORTED_PER_LOOK: usize = 1 << 14;

/// Sorts as [`slice::sort`] does, which merges in one pass what is sorted in halves already.
pub(crate) fn sort<T: Ord>(items: &mut [T], stop: &Stop<'_>) -> Result<(), Exhausted> {
    let mut sorted = SORTED_PER_LOOK;
    loop {
        for run in items.chunks_mut(sorted) {
            stop.look()?;
            run.sort();
        }
        if sorted >= items.len() {
            return Ok(());
        }
        sorted *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn it_sorts_whatever_the_length_and_ends_with_the_time() {
        let mut random = fastrand::Rng::with_seed(5);
        for length in [0, 1, 2, SORTED_PER_LOOK, SORTED_PER_LOOK + 1, 100_000] {
            let mut items: Vec<u32> = (0..length).map(|_| random.u32(..5000)).collect();
            let mut expected = items.clone();
            expected.sort_unstable();
            let over = Stop::new(Some(Instant::now()), None);
            let first = items.clone();
            assert_eq!(sort(&mut items, &over).is_err(), length > 0);
            assert_eq!(items, first);
            sort(&mut items, &Stop::new(None, None)).unwrap();
            assert_eq!(items, expected);
        }
    }
}
