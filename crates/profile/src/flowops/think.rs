use super::{Action, Flowop};

pub(super) struct Think;

impl Flowop for Think {
    fn name(&self) -> &'static str {
        "think"
    }

    fn help(&self) -> &'static str {
        "sleeps (idle) or spins (busy) for duration"
    }

    fn mirror(&self) -> &'static str {
        "think"
    }

    fn action(&self) -> Action {
        Action::Think
    }
}
