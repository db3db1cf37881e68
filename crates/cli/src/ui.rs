//! What the user sees on the terminal: results on standard output, messages on standard error.

use std::fmt;
use std::io::{IsTerminal, Write};

use anstyle::{AnsiColor, Style};

use tenure_plan::Cut;

use crate::exit::Failure;

/// Prints results, warnings and errors.
pub struct Ui {
    quiet: bool,
}

impl Ui {
    /// `quiet` leaves out everything but results that were asked for as data, and errors.
    pub fn new(quiet: bool) -> Self {
        Ui { quiet }
    }

    /// Whether only data and errors are printed.
    pub fn quiet(&self) -> bool {
        self.quiet
    }

    /// Text for people; left out when quiet.
    pub fn say(&self, text: impl fmt::Display) {
        if !self.quiet {
            self.data(text);
        }
    }

    /// What the command was asked for; printed even when quiet. A reader that has gone away is no
    /// error.
    pub fn data(&self, text: impl fmt::Display) {
        let mut out = anstream::stdout().lock();
        let _gone = writeln!(out, "{text}").and_then(|()| out.flush());
    }

    /// A warning; left out when quiet.
    pub fn warn(&self, text: impl fmt::Display) {
        if !self.quiet {
            self.message("warning", AnsiColor::Yellow, text);
        }
    }

    /// The one message of a failed command.
    pub fn error(&self, failure: &Failure) {
        self.message("error", AnsiColor::Red, &failure.message);
        if let Some(hint) = &failure.hint {
            self.message(" hint", AnsiColor::Cyan, hint);
        }
    }

    fn message(&self, kind: &str, color: AnsiColor, text: impl fmt::Display) {
        let style = Style::new().bold().fg_color(Some(color.into()));
        let _gone = writeln!(anstream::stderr().lock(), "{style}{kind}{style:#}: {text}");
    }

    /// Whether standard output takes colours.
    pub fn colors(&self) -> bool {
        let choice = anstream::AutoStream::choice(&std::io::stdout());
        !matches!(choice, anstream::ColorChoice::Never)
    }

    /// Whether standard output may show more than ASCII: a terminal whose locale is not UTF-8 may
    /// not.
    pub fn unicode(&self) -> bool {
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
            .into_iter()
            .filter_map(|name| std::env::var(name).ok())
            .find(|value| !value.is_empty());
        let plain =
            locale.is_some_and(|l| !l.to_ascii_uppercase().replace('-', "").contains("UTF8"));
        !(plain && std::io::stdout().is_terminal())
    }
}

/// What is said when a search was cut short.
pub fn cut(cut: Cut) -> &'static str {
    match cut {
        Cut::Clock => "The time limit cut the search short: another run may end with another plan.",
        Cut::Cancelled => "Ctrl-C cut the search short: this is the best that it had found.",
    }
}
