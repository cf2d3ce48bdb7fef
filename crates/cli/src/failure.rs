//! Why a command failed, as a person reads it.

use wirecost_model::status::Status;
use wirecost_model::study::Point;

use crate::diagnostics::Left;
use crate::terminal;

/// A failure: message, help, and exit status.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: Status,
    pub(crate) message: String,
    pub(crate) help: Option<String>,
    /// Rendered reports that show positions in a file; they replace the message.
    reports: Vec<miette::Report>,
    /// How many more reports there are than those.
    left: Option<Left>,
}

impl Failure {
    pub(crate) fn new(status: Status, message: impl ToString) -> Self {
        Self { status, message: message.to_string(), help: None, reports: Vec::new(), left: None }
    }

    pub(crate) fn usage(message: impl ToString) -> Self {
        Self::new(Status::Usage, message)
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Adds the point of a study to the message.
    pub(crate) fn at(mut self, point: &Point) -> Self {
        self.message = format!("at {point}: {}", self.message);
        self
    }

    pub(crate) fn reports(message: impl ToString, reports: Vec<miette::Report>) -> Self {
        Self { reports, ..Self::usage(message) }
    }

    pub(crate) fn and_more(self, left: Option<Left>) -> Self {
        Self { left, ..self }
    }

    /// Writes it to standard error.
    pub(crate) fn print(&self) {
        self.reports.iter().for_each(terminal::draw);
        if let Some(left) = self.left {
            terminal::warn(format_args!("  {left}\n"));
        }
        if self.reports.is_empty() {
            terminal::warn(format_args!("wirecost: {}", self.message));
        }
        if let Some(help) = &self.help {
            terminal::warn(format_args!("  help: {help}"));
        }
    }
}
