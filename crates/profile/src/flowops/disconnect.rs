use super::{Action, Flowop};

pub(super) struct Disconnect;

impl Flowop for Disconnect {
    fn name(&self) -> &'static str {
        "disconnect"
    }

    fn help(&self) -> &'static str {
        "closes a connection"
    }

    fn mirror(&self) -> &'static str {
        "disconnect"
    }

    fn action(&self) -> Action {
        Action::Close
    }
}
