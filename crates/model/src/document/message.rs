//! Something that a reader should notice, with what to do about it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How much something stands out from what is around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Emphasis {
    #[default]
    Plain,
    /// Less than the rest.
    Muted,
    Strong,
    Warning,
    Error,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Message {
    /// Of the label; of the text where there is no label.
    pub emphasis: Emphasis,
    /// One or two words before the text: `warning`. May be empty.
    pub label: String,
    pub text: String,
    /// Sentences of their own below it.
    pub details: Vec<String>,
    pub commands: Vec<Command>,
}

impl Message {
    #[must_use]
    pub fn new(emphasis: Emphasis, label: &str, text: impl Into<String>) -> Self {
        Self { emphasis, label: label.to_owned(), text: text.into(), ..Self::default() }
    }
}

/// To be copied into a shell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Command {
    /// What it is for, in a word.
    pub label: String,
    pub command: String,
}
