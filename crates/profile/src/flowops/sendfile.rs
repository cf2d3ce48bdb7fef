use super::{Action, Flowop};

pub(super) struct SendFile;

impl Flowop for SendFile {
    fn name(&self) -> &'static str {
        "sendfile"
    }

    fn help(&self) -> &'static str {
        "sends a file of dir with sendfile()"
    }

    fn mirror(&self) -> &'static str {
        "read"
    }

    fn action(&self) -> Action {
        Action::SendFile
    }
}
