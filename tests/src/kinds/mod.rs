//! The kinds of cases, a file each. A new kind is a new file and a row in [`KINDS`].

mod assign;
pub mod csv;

use crate::case::GraphCase;
use crate::expect::Judge;

/// Runs one kind on a case and judges the keys of `expect` that belong to it.
type Kind = fn(&GraphCase, &mut Judge<'_>);

/// What can stand in `expect.run`.
const KINDS: &[(&str, Kind)] = &[("assign", assign::run)];

/// Runs all kinds that a case names, and gives back what does not hold.
pub fn run(case: &GraphCase) -> Vec<String> {
    let names = case.kinds();
    if names.is_empty() {
        return vec!["says no `expect.run`".to_owned()];
    }
    let mut judge = Judge::new(&case.expect);
    for name in names {
        match KINDS.iter().find(|(known, _)| *known == name) {
            Some((_, kind)) => kind(case, &mut judge),
            None => judge.fail(format!("kind {name:?} is not built yet")),
        }
    }
    judge.failures()
}
