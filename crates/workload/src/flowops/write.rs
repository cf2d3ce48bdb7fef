use super::Flowop;

pub(super) struct Write;

impl Flowop for Write {
    fn name(&self) -> &'static str {
        "write"
    }

    fn help(&self) -> &'static str {
        "sends size bytes"
    }

    fn mirror(&self) -> &'static str {
        "read"
    }
}
