use super::{Action, Flowop, ReceiveCall};

pub(super) struct Recv;

impl Flowop for Recv {
    fn name(&self) -> &'static str {
        "recv"
    }

    fn help(&self) -> &'static str {
        "receives size bytes with recv()"
    }

    fn mirror(&self) -> &'static str {
        "send"
    }

    fn action(&self) -> Action {
        Action::Receive(ReceiveCall::Recv)
    }
}
