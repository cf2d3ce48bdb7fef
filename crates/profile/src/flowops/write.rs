use super::{Action, Flowop, SendCall};

pub(super) struct Write;

impl Flowop for Write {
    fn name(&self) -> &'static str {
        "write"
    }

    fn help(&self) -> &'static str {
        "sends size bytes"
    }

    fn mirror(&self) -> &'static str {
        "read"
    }

    fn action(&self) -> Action {
        Action::Send(SendCall::Write)
    }
}
