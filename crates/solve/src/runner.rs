//! Runs tasks on threads as if they had run one after another.

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;

/// Runs `task(0)`, `task(1)`, … on `threads` threads and hands their results to `take` in that
/// order, until it breaks; tasks still running then see their flag set. Threads only run ahead:
/// what they find is taken in order.
pub(crate) fn in_order<T: Send>(
    threads: NonZeroUsize,
    tasks: usize,
    task: impl Fn(usize, &AtomicBool) -> T + Sync,
    mut take: impl FnMut(usize, T) -> ControlFlow<()>,
) {
    let unwanted = AtomicBool::new(false);
    #[cfg(feature = "threads")]
    if threads.get() > 1 && tasks > 1 {
        return on_threads(threads.get().min(tasks), tasks, &unwanted, task, take);
    }
    #[cfg(not(feature = "threads"))]
    let _ = threads;
    for index in 0..tasks {
        if take(index, task(index, &unwanted)).is_break() {
            return;
        }
    }
}

#[cfg(feature = "threads")]
fn on_threads<T: Send>(
    threads: usize,
    tasks: usize,
    unwanted: &AtomicBool,
    task: impl Fn(usize, &AtomicBool) -> T + Sync,
    mut take: impl FnMut(usize, T) -> ControlFlow<()>,
) {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let sender = sender.clone();
            let (next, task) = (&next, &task);
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= tasks || unwanted.load(Ordering::Relaxed) {
                        return;
                    }
                    if sender.send((index, task(index, unwanted))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut waiting: Vec<Option<T>> = (0..tasks).map(|_| None).collect();
        let mut taken = 0;
        for (index, result) in receiver {
            waiting[index] = Some(result);
            while let Some(result) = waiting.get_mut(taken).and_then(Option::take) {
                if take(taken, result).is_break() {
                    unwanted.store(true, Ordering::Relaxed);
                    return;
                }
                taken += 1;
            }
        }
    });
}
