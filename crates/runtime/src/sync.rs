//! Locks and threads: those of the system, or, for tests, those of a scheduler that tries many
//! orders of their steps.

#[cfg(not(feature = "shuttle"))]
pub(crate) use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread::{Builder, JoinHandle},
};

#[cfg(feature = "shuttle")]
pub(crate) use shuttle::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread::{Builder, JoinHandle},
};
