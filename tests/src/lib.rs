//! What the tests and the case runner of the workspace share.

#![forbid(unsafe_code)]

pub mod case;
pub mod expect;
pub mod faults;
pub mod free_shapes;
pub mod generate;
mod kinds;
pub mod needless;
pub mod packings;
pub mod play;
pub mod programs;
pub mod readers;
pub mod reference;
pub mod scripts;
