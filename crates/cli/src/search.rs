//! What the user sees of a search that takes its time, and how it is ended early: a line with the
//! best height so far, and Ctrl-C.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use tenure_solve::{Progress, Watch};

use crate::exit::Exit;
use crate::ui::Ui;

/// Searches that are over before show nothing.
const QUIET_FOR: Duration = Duration::from_secs(1);

/// Time between two updates of the line.
const TICK: Duration = Duration::from_millis(100);

/// Exit code of a program that Ctrl-C has ended, as shells write it.
const INTERRUPTED: i32 = 130;

/// Whether a search runs that takes Ctrl-C as the wish to end it, or its result is written down.
static SEARCHING: AtomicBool = AtomicBool::new(false);
/// Whether it was wished.
static CANCEL: AtomicBool = AtomicBool::new(false);

/// What a command ends with that needs so many bytes: 1, and a warning, where these are more than
/// `--capacity` gives.
pub fn within(capacity: Option<u64>, size: u64, ui: &Ui) -> Exit {
    match capacity {
        Some(capacity) if size > capacity => {
            ui.warn(format!(
                "the plan needs {size} bytes, {} more than the capacity of {capacity}",
                size - capacity
            ));
            Exit::No
        }
        _ => Exit::Done,
    }
}

/// Runs a search that a first Ctrl-C ends with the best so far; a second one, and one at any other
/// time, ends the program. A search of more than a second shows a line on a terminal.
pub fn watched<T>(ui: &Ui, search: impl FnOnce(&Watch<'_>) -> T) -> T {
    catch_interrupts();
    CANCEL.store(false, Ordering::Relaxed);
    SEARCHING.store(true, Ordering::Relaxed);
    let board = Board::default();
    let found = std::thread::scope(|scope| {
        if !ui.quiet() && std::io::stderr().is_terminal() {
            scope.spawn(|| board.show());
        }
        // Also when the search panics: the scope would wait for its thread for ever.
        let _finish = Finish(&board);
        let progress = |now| board.set(now);
        search(&Watch {
            progress: Some(&progress),
            cancel: Some(&CANCEL),
        })
    });
    SEARCHING.store(false, Ordering::Relaxed);
    found
}

/// Runs what writes down the result of a search: a first Ctrl-C does not lose it, unless one has ended
/// the search.
pub fn kept<T>(write: impl FnOnce() -> T) -> T {
    SEARCHING.store(true, Ordering::Relaxed);
    let written = write();
    SEARCHING.store(false, Ordering::Relaxed);
    written
}

fn catch_interrupts() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Where it cannot be caught, Ctrl-C ends the program as it always did.
        let _uncaught = ctrlc::set_handler(|| {
            let first = SEARCHING.load(Ordering::Relaxed) && !CANCEL.swap(true, Ordering::Relaxed);
            if !first {
                std::process::exit(INTERRUPTED);
            }
        });
    });
}

/// What the search says and the line shows.
#[derive(Default)]
struct Board {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    best: Option<Progress>,
    finished: bool,
}

/// Ends the line when it goes.
struct Finish<'a>(&'a Board);

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        self.0.lock().finished = true;
        self.0.changed.notify_all();
    }
}

impl Board {
    fn set(&self, now: Progress) {
        self.lock().best = Some(now);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Draws the line until the search is over.
    fn show(&self) {
        let start = Instant::now();
        let mut line: Option<ProgressBar> = None;
        let mut wait = QUIET_FOR;
        let mut state = self.lock();
        loop {
            let waited = self.changed.wait_timeout(state, wait);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if state.finished {
                break;
            }
            if start.elapsed() < QUIET_FOR {
                continue;
            }
            wait = TICK;
            let line = line.get_or_insert_with(spinner);
            if let Some(best) = state.best {
                line.set_message(message(best));
            }
            line.tick();
        }
        drop(state);
        if let Some(line) = line {
            line.finish_and_clear();
        }
    }
}

fn spinner() -> ProgressBar {
    // The template is a constant: a mistake in it would show the plain spinner.
    let style =
        ProgressStyle::with_template("{spinner} {msg} · {elapsed} · Ctrl-C takes the best so far");
    ProgressBar::new_spinner()
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
}

/// `best 1 101 824 bytes, bound 1 048 576, gap 5.08 %`.
fn message(now: Progress) -> String {
    let over = u128::from(now.height.saturating_sub(now.lower_bound));
    let hundredths = (over * 10_000)
        .checked_div(u128::from(now.lower_bound))
        .unwrap_or(0);
    format!(
        "best {} bytes, bound {}, gap {}.{:02} %",
        now.height,
        now.lower_bound,
        hundredths / 100,
        hundredths % 100
    )
}

#[cfg(test)]
mod tests {
    use tenure_solve::Strategy;

    use super::*;

    #[test]
    fn the_gap_is_in_percent_of_the_bound() {
        let now = |height, lower_bound| {
            message(Progress {
                height,
                lower_bound,
                strategy: Strategy::Sweep,
            })
        };
        assert_eq!(
            now(1_101_824, 1_048_576),
            "best 1101824 bytes, bound 1048576, gap 5.07 %"
        );
        assert_eq!(now(64, 64), "best 64 bytes, bound 64, gap 0.00 %");
        assert_eq!(now(0, 0), "best 0 bytes, bound 0, gap 0.00 %");
    }
}
