use super::{Action, Flowop, SendCall};

pub(super) struct Send;

impl Flowop for Send {
    fn name(&self) -> &'static str {
        "send"
    }

    fn help(&self) -> &'static str {
        "sends size bytes with send()"
    }

    fn mirror(&self) -> &'static str {
        "recv"
    }

    fn action(&self) -> Action {
        Action::Send(SendCall::Send)
    }
}
