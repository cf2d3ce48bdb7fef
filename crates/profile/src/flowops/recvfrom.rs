use super::{Action, Flowop, ReceiveCall};

pub(super) struct RecvFrom;

impl Flowop for RecvFrom {
    fn name(&self) -> &'static str {
        "recvfrom"
    }

    fn help(&self) -> &'static str {
        "receives size bytes and the sender's address with recvfrom()"
    }

    fn mirror(&self) -> &'static str {
        "sendto"
    }

    fn action(&self) -> Action {
        Action::Receive(ReceiveCall::RecvFrom)
    }
}
