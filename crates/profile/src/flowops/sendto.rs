use super::{Action, Flowop, SendCall};

pub(super) struct SendTo;

impl Flowop for SendTo {
    fn name(&self) -> &'static str {
        "sendto"
    }

    fn help(&self) -> &'static str {
        "sends size bytes to an address with sendto()"
    }

    fn mirror(&self) -> &'static str {
        "recvfrom"
    }

    fn action(&self) -> Action {
        Action::Send(SendCall::SendTo)
    }
}
