use super::{Action, Flowop};

pub(super) struct Nop;

impl Flowop for Nop {
    fn name(&self) -> &'static str {
        "nop"
    }

    fn help(&self) -> &'static str {
        "does nothing"
    }

    fn mirror(&self) -> &'static str {
        "nop"
    }

    fn action(&self) -> Action {
        Action::Nothing
    }
}
