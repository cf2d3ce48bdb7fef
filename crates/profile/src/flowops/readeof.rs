use super::{Action, Flowop};

pub(super) struct ReadEof;

impl Flowop for ReadEof {
    fn name(&self) -> &'static str {
        "readeof"
    }

    fn help(&self) -> &'static str {
        "waits for the end of a stream that the other end half-closes"
    }

    fn mirror(&self) -> &'static str {
        "shutdown"
    }

    fn action(&self) -> Action {
        Action::ReceiveEnd
    }
}
