use super::{Action, Flowop};

pub(super) struct Shutdown;

impl Flowop for Shutdown {
    fn name(&self) -> &'static str {
        "shutdown"
    }

    fn help(&self) -> &'static str {
        "half-closes a stream (shutdown(2)): sends its end and can still receive"
    }

    fn mirror(&self) -> &'static str {
        "readeof"
    }

    fn action(&self) -> Action {
        Action::ShutDown
    }
}
