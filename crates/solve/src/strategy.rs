//! The strategies and their names. The names are stable: they stand in command lines, in saved
//! plans and in tables of measurements.

use std::fmt;
use std::str::FromStr;

use crate::heuristics::Fit;
use crate::heuristics::order::Order;
use crate::heuristics::peers::Peer;

/// A way to find a placement.
///
/// ```
/// use tenure_solve::Strategy;
///
/// let strategy: Strategy = "best-fit-area".parse().unwrap();
/// assert_eq!(strategy.to_string(), "best-fit-area");
/// assert!("worst-fit".parse::<Strategy>().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Strategy {
    /// `auto`: the portfolio; runs the others and keeps the best.
    Auto,
    /// `sweep`: best fit in the order of births, one pass over time; the fastest.
    Sweep,
    /// `best-fit-ORDER` or `first-fit-ORDER`: greedy placement in that order.
    Greedy(Fit, Order),
    /// `dive-ORDER`: the capacity-guided dive, aimed at the lower bound; the order decides between
    /// buffers that can lie equally low.
    Dive(Order),
    /// `core-ORDER`: the dive on the buffers of heavy sections, and the others filled in around
    /// them.
    Core(Order),
    /// `exact`: the sweep, then branch and bound on every part that is independent in time and has
    /// at most 1000 buffers.
    Exact,
    /// `restarts`: the sweep, then dives from random changes of the best order so far.
    Restarts,
    /// What another planner would hold, by its name; `auto` does not try it.
    Peer(Peer),
}

impl Strategy {
    /// All strategies.
    pub fn all() -> impl Iterator<Item = Strategy> {
        let first = [Strategy::Auto, Strategy::Sweep];
        let last = [Strategy::Exact, Strategy::Restarts];
        let own = first.into_iter().chain(Self::single_passes()).chain(last);
        own.chain(Peer::ALL.map(Strategy::Peer))
    }

    /// What is a single pass; the portfolio tries them in this order, so the earlier wins a tie.
    pub(crate) fn single_passes() -> impl Iterator<Item = Strategy> {
        let greedy = [Fit::Best, Fit::First].into_iter();
        let greedy = greedy.flat_map(|fit| Order::ALL.map(|order| Strategy::Greedy(fit, order)));
        // Of the core, the orders that were seen to do best; the others only when whole dives have
        // had their chance.
        let first = [
            Strategy::Core(Order::LoadSize),
            Strategy::Core(Order::Area),
            Strategy::Dive(Order::Area),
            Strategy::Core(Order::LoadArea),
            Strategy::Core(Order::Conflicts),
        ];
        let dives = Order::ALL.map(Strategy::Dive).into_iter();
        let core = Order::ALL.map(Strategy::Core).into_iter();
        let rest = dives.chain(greedy).chain(core);
        let rest = rest.filter(move |strategy| !first.contains(strategy));
        first.into_iter().chain(rest)
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Strategy::Auto => f.write_str("auto"),
            Strategy::Sweep => f.write_str("sweep"),
            Strategy::Exact => f.write_str("exact"),
            Strategy::Restarts => f.write_str("restarts"),
            Strategy::Peer(peer) => f.write_str(peer.name()),
            Strategy::Dive(order) => write!(f, "dive-{}", order.name()),
            Strategy::Core(order) => write!(f, "core-{}", order.name()),
            Strategy::Greedy(Fit::Best, order) => write!(f, "best-fit-{}", order.name()),
            Strategy::Greedy(Fit::First, order) => write!(f, "first-fit-{}", order.name()),
        }
    }
}

/// A name that is no strategy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no strategy is called {name:?}; there are {}", names())]
pub struct UnknownStrategy {
    /// The name that was asked for.
    pub name: String,
}

fn names() -> String {
    let names: Vec<String> = Strategy::all()
        .map(|strategy| strategy.to_string())
        .collect();
    names.join(", ")
}

impl FromStr for Strategy {
    type Err = UnknownStrategy;

    fn from_str(name: &str) -> Result<Self, UnknownStrategy> {
        Strategy::all()
            .find(|strategy| strategy.to_string() == name)
            .ok_or_else(|| UnknownStrategy {
                name: name.to_owned(),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_different_and_read_back() {
        let mut names: Vec<String> = Strategy::all()
            .map(|strategy| strategy.to_string())
            .collect();
        for (name, strategy) in names.iter().zip(Strategy::all()) {
            assert_eq!(name.parse(), Ok(strategy));
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Strategy::all().count());
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_list() {
        let error = "worst-fit".parse::<Strategy>().unwrap_err();
        assert!(error.to_string().contains("best-fit-load-size"), "{error}");
    }
}
