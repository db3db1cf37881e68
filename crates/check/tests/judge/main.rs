//! The tests of the checker from outside.

mod mutation;
mod nesting;
mod rules;
mod support;
