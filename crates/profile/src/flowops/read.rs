use super::{Action, Flowop, ReceiveCall};

pub(super) struct Read;

impl Flowop for Read {
    fn name(&self) -> &'static str {
        "read"
    }

    fn help(&self) -> &'static str {
        "receives size bytes"
    }

    fn mirror(&self) -> &'static str {
        "write"
    }

    fn action(&self) -> Action {
        Action::Receive(ReceiveCall::Read)
    }
}
