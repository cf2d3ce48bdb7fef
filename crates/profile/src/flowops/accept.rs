use super::{Action, Flowop};

pub(super) struct Accept;

impl Flowop for Accept {
    fn name(&self) -> &'static str {
        "accept"
    }

    fn help(&self) -> &'static str {
        "accepts a connection from the peer"
    }

    fn mirror(&self) -> &'static str {
        "connect"
    }

    fn action(&self) -> Action {
        Action::Accept
    }
}
