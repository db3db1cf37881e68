//! Runs a plan: kernels on the memory that the plan says.
//!
//! A [`Program`] is made once from a [`tenure_check::CheckedPlan`], which only the checker makes,
//! and then run any number of times. What it does is what the checker has simulated: the steps in
//! order, the copies of the plan, values handed over at the borders of subgraphs, variables kept
//! from run to run. A node that cannot be run is refused before anything runs, and all of them are
//! listed.
//!
//! ```text
//! CheckedPlan + Graph ── resolve ──► Program (instructions, Memory) ── exec ──► results
//!                                                                   └─ sanitize ──► who writes out of bounds
//! ```
//!
//! Streams of a plan are run one step at a time, in the plan's order, or a thread each
//! ([`Program::with_threads`]).

pub mod allocator;
pub mod bisect;
pub mod branches;
mod error;
mod exec;
mod fault;
pub mod fit;
pub mod io_reuse;
pub mod kernels;
mod memory;
pub mod numbers;
pub mod placement;
mod pool;
pub mod profile;
mod program;
mod resolve;
pub mod sanitize;
pub mod session;
mod streams;
mod sync;
pub mod sync_stages;
pub mod trace;
pub mod whereabouts;

pub use error::{RuntimeError, Unsupported};
pub use fault::Fault;
pub use kernels::Kernels;
pub use memory::{Address, Memory, Place, Slots};
pub use pool::PoolUsage;
pub use program::{Layout, Program, Tensor, Usage};
