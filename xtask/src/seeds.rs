//! Many seeds on all cores, up to the first that is wrong.

use std::sync::atomic::{AtomicU64, Ordering};

/// How many seeds, and the first of them, from `[COUNT] [FIRST_SEED]`: a million from 0 on as a rule.
///
/// # Errors
/// `usage` where the options are no such numbers.
pub fn asked(options: &[&str], usage: &str) -> Result<(u64, u64), String> {
    let number = |at: usize, usual: u64| match options.get(at) {
        None => Ok(usual),
        Some(text) => text.parse().map_err(|_| usage.to_owned()),
    };
    if options.len() > 2 {
        return Err(usage.to_owned());
    }
    Ok((number(0, 1_000_000)?, number(1, 0)?))
}

/// Looks at `count` seeds from `first` on, on as many threads as there are cores, and adds up what each
/// of them gives.
///
/// # Errors
/// That of a seed, or `panicked`; the others then need not go on.
pub fn on_all_cores<T: Default + Send>(
    (count, first): (u64, u64),
    panicked: &str,
    look: impl Fn(u64) -> Result<T, String> + Sync,
    add: impl Fn(&mut T, T) + Sync,
) -> Result<T, String> {
    let next = AtomicU64::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let work = || {
        let mut sum = T::default();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= count {
                return Ok(sum);
            }
            match look(first.wrapping_add(at)) {
                Ok(found) => add(&mut sum, found),
                Err(error) => {
                    next.fetch_max(count, Ordering::Relaxed);
                    return Err(error);
                }
            }
        }
    };
    let sums: Vec<Result<T, String>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let ended = threads.into_iter().map(|thread| thread.join());
        ended
            .map(|sum| sum.unwrap_or_else(|_| Err(panicked.to_owned())))
            .collect()
    });
    let mut all = T::default();
    for sum in sums {
        add(&mut all, sum?);
    }
    Ok(all)
}
