//! The flowops: what a profile may write, a file each. [`ALL`] is the only list of them.

mod accept;
mod connect;
mod disconnect;
mod nop;
mod read;
mod readeof;
mod recv;
mod recvfrom;
mod send;
mod sendfile;
mod sendto;
mod shutdown;
mod think;
mod write;

/// What a strand does when a flowop's turn comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Connect,
    Accept,
    Close,
    Send(SendCall),
    Receive(ReceiveCall),
    SendFile,
    /// Sends the end of a stream.
    ShutDown,
    /// Receives the end of a stream.
    ReceiveEnd,
    Think,
    Nothing,
}

impl Action {
    /// Whether it has a direction: its mirror does the same the other way.
    pub fn has_direction(self) -> bool {
        self.moves() || self.is_half_close()
    }

    /// Whether it ends one way of a stream.
    pub fn is_half_close(self) -> bool {
        matches!(self, Action::ShutDown | Action::ReceiveEnd)
    }

    pub fn opens(self) -> bool {
        matches!(self, Action::Connect | Action::Accept)
    }

    pub fn is_on_connection(self) -> bool {
        !matches!(self, Action::Think | Action::Nothing)
    }

    /// Whether it moves messages.
    pub fn moves(self) -> bool {
        matches!(self, Action::Send(_) | Action::Receive(_))
    }
}

/// The system call that sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendCall {
    Write,
    Send,
    SendTo,
}

/// The system call that receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiveCall {
    Read,
    Recv,
    RecvFrom,
}

/// One kind of flowop.
pub trait Flowop: Sync {
    /// As profiles write it; any case.
    fn name(&self) -> &'static str;
    /// One line for a person.
    fn help(&self) -> &'static str;
    /// What the peer does while the master does this: the name of another member of [`ALL`].
    fn mirror(&self) -> &'static str;
    /// What a strand does when its turn comes.
    fn action(&self) -> Action;
}

/// Flowops that an option is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flowops {
    Any,
    /// Those that open a connection.
    Open,
    /// Those that connect.
    Connect,
    /// Those that act on a connection.
    Connection,
    /// Those that move bytes of any protocol.
    Move,
    /// Those that move bytes of streams.
    Stream,
    File,
    MoveOrFile,
    StreamOrFile,
    Think,
}

/// What sends files and is not supported yet.
pub(crate) const UNSUPPORTED_FILE: &str = "sendfilev";

impl Flowops {
    /// Whether the flowop of this name is among them.
    pub fn contains(self, name: &str) -> bool {
        match find(name) {
            Some(flowop) => self.has(flowop.action()),
            None => name == UNSUPPORTED_FILE && self.has(Action::SendFile),
        }
    }

    /// Their names, in the order of [`ALL`].
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let built = ALL.iter().filter(move |flowop| self.has(flowop.action()));
        built
            .map(|flowop| flowop.name())
            .chain(self.has(Action::SendFile).then_some(UNSUPPORTED_FILE))
    }

    fn has(self, action: Action) -> bool {
        match self {
            Flowops::Any => true,
            Flowops::Open => action.opens(),
            Flowops::Connect => action == Action::Connect,
            Flowops::Connection => action.is_on_connection(),
            Flowops::Move => action.moves(),
            Flowops::Stream => {
                let datagrams = matches!(
                    action,
                    Action::Send(SendCall::SendTo) | Action::Receive(ReceiveCall::RecvFrom)
                );
                action.moves() && !datagrams
            }
            Flowops::File => action == Action::SendFile,
            Flowops::MoveOrFile => Flowops::Move.has(action) || Flowops::File.has(action),
            Flowops::StreamOrFile => Flowops::Stream.has(action) || Flowops::File.has(action),
            Flowops::Think => action == Action::Think,
        }
    }
}

pub static ALL: &[&dyn Flowop] = &[
    &connect::Connect,
    &accept::Accept,
    &disconnect::Disconnect,
    &read::Read,
    &write::Write,
    &send::Send,
    &recv::Recv,
    &sendto::SendTo,
    &recvfrom::RecvFrom,
    &sendfile::SendFile,
    &shutdown::Shutdown,
    &readeof::ReadEof,
    &think::Think,
    &nop::Nop,
];

/// The flowop of this name, in lower case.
pub fn find(name: &str) -> Option<&'static dyn Flowop> {
    ALL.iter().copied().find(|flowop| flowop.name() == name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_mirrors_exist() {
        let names: BTreeSet<_> = ALL.iter().map(|flowop| flowop.name()).collect();
        assert_eq!(names.len(), ALL.len());
        for flowop in ALL {
            assert!(find(flowop.mirror()).is_some(), "{} has no mirror", flowop.name());
            assert!(!flowop.help().is_empty());
        }
    }

    #[test]
    fn every_file_of_the_folder_is_listed() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/flowops");
        let files: BTreeSet<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter_map(|file| Some(file.strip_suffix(".rs")?.to_owned()))
            .filter(|name| name != "mod")
            .collect();
        let names: BTreeSet<String> = ALL.iter().map(|flowop| flowop.name().to_owned()).collect();
        assert_eq!(files, names);
    }
}
