//! Dynamic storage allocation: buffers with sizes, alignments and lifetimes get offsets in one
//! arena so that buffers alive together never share a byte, at the least height.
//!
//! The crate knows no graph, reads no files and prints nothing. Sizes and offsets are bytes in
//! `u64`; times are any `u64`, lifetimes half-open.
//!
//! ```
//! use tenure_solve::{Buffer, Config, Instance, solve};
//!
//! let instance = Instance::new(vec![
//!     Buffer::new(64, 0, 2),
//!     Buffer::new(32, 1, 3),
//!     Buffer::new(64, 2, 4),
//! ])?;
//! let solution = solve(&instance, &Config::default())?;
//! assert_eq!(solution.height, 96);
//! assert!(solution.proven_optimal);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | holds |
//! | --- | --- |
//! | [`instance`] | the problem, checked once |
//! | [`rules`] | pairs that clash, or do not, whatever their lifetimes say; runs; reserved ranges |
//! | `joined` | runs and reserved ranges as buffers of a plain problem |
//! | `sections` | times as sets of buffers alive together |
//! | [`bounds`] | what no placement can beat |
//! | [`heuristics`] | orders and rules of single-pass placements |
//! | `dive`, `skyline` | the capacity-guided dive: bottom up to a target height, no backtracking |
//! | `exact` | branch and bound on parts that are independent in time |
//! | `conflict` | which buffers do not fit into a capacity |
//! | [`portfolio`] | runs strategies within limits and keeps the best |
//! | [`strategy`] | their stable names |
//! | [`validate`] | the judge that every solution passes before it is returned |
//! | [`solution`] | configuration and result |
//! | `budget`, `sorting`, `runner` | limits counted in steps and the one clock; tasks on threads |
//! | [`memory`] | what a search needs, known before it begins |
//! | `watch` | progress and cancelling |
//!
//! `examples/arena.rs` draws a placement.

#![forbid(unsafe_code)]

pub mod bounds;
mod budget;
mod clique;
mod conflict;
mod dive;
mod exact;
pub mod heuristics;
pub mod instance;
mod joined;
pub mod memory;
pub mod portfolio;
pub mod rules;
mod runner;
mod sections;
mod shakes;
mod skyline;
pub mod solution;
mod sorting;
pub mod strategy;
pub mod validate;
mod watch;

pub use heuristics::Fit;
pub use heuristics::order::Order;
pub use heuristics::peers::Peer;
pub use instance::{Buffer, Instance, InstanceError, Span};
pub use portfolio::{solve, solve_watched};
pub use rules::{Reserved, Rules};
pub use solution::{Config, Fits, Solution, SolveError, Techniques};
pub use strategy::{Strategy, UnknownStrategy};
pub use watch::{Progress, Watch};
