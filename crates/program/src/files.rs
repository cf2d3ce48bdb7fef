//! The files that a host's `sendfile` flowops send.

use wirecost_model::program::{GroupProgram, HostFlowop, Program};

use crate::calls::Choices;
use crate::step::connection_protocols;

/// A directory, or a single file, that a flowop sends, and by which calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSource {
    pub directory: String,
    /// Read with O_DIRECT.
    pub direct: bool,
    /// Through a pipe.
    pub splice: bool,
}

/// Where the files of a host's flowops are. Flowops that send the same files in the same way share
/// one.
pub fn sources(program: &Program) -> Vec<FileSource> {
    let mut sources = Vec::new();
    for group in &program.groups {
        for act in group.phases.iter().flatten().flat_map(|phase| &phase.acts) {
            sources.extend(source(group, act).filter(|source| !sources.contains(source)));
        }
    }
    sources
}

/// What an act sends; none where it names no files.
pub fn source(group: &GroupProgram, act: &HostFlowop) -> Option<FileSource> {
    let directory = act.options.dir.clone()?;
    let protocols = connection_protocols(group);
    let protocol = protocols.get(&act.options.conn.first).copied();
    let Choices { direct, splice, .. } = Choices::new(&act.options.io, protocol);
    Some(FileSource { directory, direct, splice })
}
