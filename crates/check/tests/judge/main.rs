//! The tests of the checker from outside.

mod kinds;
mod mutation;
mod nesting;
mod rules;
mod support;
