use super::{Action, Flowop};

pub(super) struct Connect;

impl Flowop for Connect {
    fn name(&self) -> &'static str {
        "connect"
    }

    fn help(&self) -> &'static str {
        "opens a connection to remotehost"
    }

    fn mirror(&self) -> &'static str {
        "accept"
    }

    fn action(&self) -> Action {
        Action::Connect
    }
}
