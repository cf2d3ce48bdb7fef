use super::Flowop;

pub(super) struct Read;

impl Flowop for Read {
    fn name(&self) -> &'static str {
        "read"
    }

    fn help(&self) -> &'static str {
        "receives size bytes"
    }

    fn mirror(&self) -> &'static str {
        "write"
    }
}
