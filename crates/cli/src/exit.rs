//! Exit codes, and the one error type of the command line.

use std::fmt;
use std::process::ExitCode;

/// What the process says by its exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Done,
    /// The answer is no: does not fit, check failed.
    No,
    /// Bad usage or bad input.
    BadInput,
    /// Not decided within the limit.
    Undecided,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(match exit {
            Exit::Done => 0,
            Exit::No => 1,
            Exit::BadInput => 2,
            Exit::Undecided => 3,
        })
    }
}

/// Why a command ended early: one message with a cause, and a hint where there is one.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// What is wrong and where.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Failure {
    /// Bad usage or bad input.
    pub fn bad(message: impl fmt::Display) -> Self {
        Failure {
            exit: Exit::BadInput,
            message: message.to_string(),
            hint: None,
        }
    }

    /// A mistake of the program itself.
    pub fn internal(message: impl fmt::Display) -> Self {
        Failure {
            exit: Exit::No,
            message: format!("internal error: {message}"),
            hint: Some("this is a mistake in tenure: please report it with the model".to_owned()),
        }
    }

    /// Adds a hint.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}
