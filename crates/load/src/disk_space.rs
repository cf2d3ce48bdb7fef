//! Space that the files of a run may take on the file systems of this host.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use wirecost_model::program::Program;
use wirecost_program::calls::sinks;
use wirecost_program::files::stream_sources;

use crate::files::Files;
use crate::load::LoadError;
use crate::permissions::Permissions;
use crate::sockets::sink_bytes;

/// Of what is free of a file system, a run takes at most one part of so many, so that what the host is there for goes on. Files
/// of earlier runs that were kept are not free space.
const PART: u64 = 2;

/// Refuses files that together would take too much, before any is made.
///
/// # Errors
/// Too little space, and directories that are not there or not agreed to.
pub(crate) fn check(
    program: &Program,
    permissions: &Permissions,
    workers: u32,
) -> Result<(), LoadError> {
    let sources = stream_sources(program).into_iter();
    let made = sources.filter_map(|(source, _)| Some((source.made?, source.path)));
    let made = made.map(|(bytes, path)| ("with source_size, source=", "source", path, bytes));
    let sinks = sinks(program).into_iter().map(|place| {
        let all = sink_bytes(&place, workers).saturating_mul(workers.max(1).into());
        ("sink=", "sink", place.directory, all)
    });
    let mut of_devices: BTreeMap<u64, u64> = BTreeMap::new();
    for (option, kind, path, bytes) in made.chain(sinks) {
        let space = free_space(&permissions.writable, Path::new(&path), option);
        let (device, free) = space.map_err(LoadError::system(format!("{kind} {path}")))?;
        let all = of_devices.entry(device).or_default();
        *all = all.saturating_add(bytes);
        room(*all, free, &path).map_err(LoadError::Plan)?;
    }
    Ok(())
}

/// The device of a directory, and bytes that are free there.
fn free_space(writable: &Files, path: &Path, option: &str) -> io::Result<(u64, u64)> {
    let directory = writable.writable_directory(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            let remedy = format!("{option} names a directory that is there");
            io::Error::new(error.kind(), format!("{error}: {remedy}"))
        }
        _ => error,
    })?;
    let space = rustix::fs::fstatvfs(&directory)?;
    Ok((rustix::fs::fstat(&directory)?.st_dev, space.f_bavail.saturating_mul(space.f_frsize)))
}

fn room(bytes: u64, free: u64, path: &str) -> Result<(), String> {
    if bytes <= free / PART {
        return Ok(());
    }
    Err(format!(
        "the files of this run would take {bytes} bytes of the file system of {path}, where {free} bytes are free, and a run \
         takes at most half of what is free: use a smaller sink_size or source_size, fewer workers, or a directory of another \
         file system"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_takes_half_of_what_is_free_at_most() {
        assert_eq!(room(50, 101, "/x"), Ok(()));
        let refused = room(51, 101, "/x").unwrap_err();
        assert!(refused.contains("would take 51 bytes of the file system of /x"), "{refused}");
    }

    #[test]
    fn directories_of_one_file_system_share_its_space() {
        let all = tempfile::tempdir().unwrap();
        let inner = all.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        let (outside, free) = free_space(&Files::all(), all.path(), "sink=").unwrap();
        assert!(free > 0);
        assert_eq!(free_space(&Files::all(), &inner, "sink=").unwrap().0, outside);
        let missing = free_space(&Files::all(), &all.path().join("no"), "sink=").unwrap_err();
        assert!(missing.to_string().contains("a directory that is there"), "{missing}");
    }
}
