//! The directory in which processes of wirecost on one machine find each other. Everything in it is
//! reached through its descriptor, so that nobody can put another directory in its place.

use std::fs::DirBuilder;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, fstat, lstat, mkdirat, open, openat};
use rustix::process::geteuid;

/// Overrides the usual place.
pub const VARIABLE: &str = "WIRECOST_RUNTIME_DIR";
/// That of root, which all users may look into.
const OF_ROOT: &str = "/run/wirecost";

/// Why there is no directory to use.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeDirError {
    #[error("cannot open the runtime directory {path}: {source}")]
    Open {
        path: String,
        #[source]
        source: io::Error,
    },
    #[error("the runtime directory {path} belongs to another user (uid {owner})")]
    Foreign { path: String, owner: u32 },
    #[error("other users may write to the runtime directory {path} (mode {mode:o})")]
    Writable { path: String, mode: u32 },
    #[error("{path}, on the way to the runtime directory, is a link of another user (uid {owner})")]
    ForeignLink { path: String, owner: u32 },
}

impl RuntimeDirError {
    /// What to do about it.
    #[must_use]
    pub fn remedy() -> String {
        format!("set {VARIABLE} to a directory that only you can write to")
    }
}

/// An open directory that belongs to the expected user, and that nobody else may write to.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    handle: OwnedFd,
}

/// What the path of this process' directory follows from.
struct Environment<'a> {
    chosen: Option<&'a Path>,
    of_session: Option<&'a Path>,
    temporary: &'a Path,
    uid: u32,
}

impl Environment<'_> {
    /// The directory, and the mode that it is made with.
    fn directory(&self) -> (PathBuf, u32) {
        match (self.chosen, self.of_session) {
            (Some(path), _) => (path.to_owned(), 0o700),
            (None, _) if self.uid == 0 => (PathBuf::from(OF_ROOT), 0o755),
            (None, Some(path)) => (path.join("wirecost"), 0o700),
            (None, None) => (self.temporary.join(format!("wirecost-{}", self.uid)), 0o700),
        }
    }
}

/// Opens the directory `name` in the runtime directory of this user; makes what is not there.
///
/// # Errors
/// [`RuntimeDirError`].
pub(crate) fn own(name: &str) -> Result<Directory, RuntimeDirError> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let (chosen, of_session) = (variable(VARIABLE), variable("XDG_RUNTIME_DIR"));
    let (path, mode) = Environment {
        chosen: chosen.as_deref().map(Path::new),
        of_session: of_session.as_deref().map(Path::new).filter(|path| path.is_absolute()),
        temporary: &std::env::temp_dir(),
        uid: geteuid().as_raw(),
    }
    .directory();
    make(&path, name, mode)
}

/// Opens the directory `name` in root's runtime directory to look into it. `None` for root, where
/// another directory was chosen, and where there is none that root alone may write to.
pub(crate) fn of_root(name: &str) -> Option<Directory> {
    if geteuid().is_root() || std::env::var_os(VARIABLE).is_some_and(|value| !value.is_empty()) {
        return None;
    }
    let parent = Directory::open(PathBuf::from(OF_ROOT), 0).ok()?;
    parent.inner(name, 0).ok()
}

pub(crate) fn make(path: &Path, name: &str, mode: u32) -> Result<Directory, RuntimeDirError> {
    let owner = geteuid().as_raw();
    refuse_foreign_links(path, owner)?;
    DirBuilder::new().recursive(true).mode(mode).create(path).map_err(failed(path))?;
    let parent = Directory::open(path.to_owned(), owner)?;
    match mkdirat(&parent.handle, name, Mode::from_raw_mode(mode)) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
        Err(error) => return Err(failed(&path.join(name))(error.into())),
    }
    parent.inner(name, owner)
}

/// A link on the way, as /var/run is one, may be root's or this user's. One of another user could lead to
/// any directory that this user has, and have files made there.
fn refuse_foreign_links(path: &Path, user: u32) -> Result<(), RuntimeDirError> {
    for part in path.ancestors() {
        let Ok(status) = lstat(part) else { continue };
        let is_link = FileType::from_raw_mode(status.st_mode) == FileType::Symlink;
        if is_link && ![0, user].contains(&status.st_uid) {
            let path = part.display().to_string();
            return Err(RuntimeDirError::ForeignLink { path, owner: status.st_uid });
        }
    }
    Ok(())
}

fn failed(path: &Path) -> impl Fn(io::Error) -> RuntimeDirError + use<> {
    let path = path.display().to_string();
    move |source| RuntimeDirError::Open { path: path.clone(), source }
}

const FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl Directory {
    fn open(path: PathBuf, owner: u32) -> Result<Self, RuntimeDirError> {
        let handle = open(&path, FLAGS, Mode::empty()).map_err(|e| failed(&path)(e.into()))?;
        Self { path, handle }.checked(owner)
    }

    fn inner(&self, name: &str, owner: u32) -> Result<Self, RuntimeDirError> {
        let path = self.path.join(name);
        let handle = openat(&self.handle, name, FLAGS, Mode::empty())
            .map_err(|error| failed(&path)(error.into()))?;
        Self { path, handle }.checked(owner)
    }

    fn checked(self, owner: u32) -> Result<Self, RuntimeDirError> {
        let status = fstat(&self.handle).map_err(|error| failed(&self.path)(error.into()))?;
        let (path, mode) = (self.path.display().to_string(), status.st_mode & 0o7777);
        if status.st_uid != owner {
            return Err(RuntimeDirError::Foreign { path, owner: status.st_uid });
        }
        if mode & 0o022 != 0 {
            return Err(RuntimeDirError::Writable { path, mode });
        }
        Ok(self)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn handle(&self) -> impl AsFd + '_ {
        &self.handle
    }

    /// A path of a file in it that is short enough for the address of a socket, however long the
    /// directory's own is (108 bytes, unix(7)).
    pub(crate) fn short_path(&self, name: &str) -> PathBuf {
        use std::os::fd::AsRawFd;
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.handle.as_raw_fd()))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn each_user_has_a_place_of_its_own() {
        let at = |chosen, of_session, uid| {
            let [chosen, of_session] =
                [chosen, of_session].map(|path: Option<&'static str>| path.map(Path::new));
            Environment { chosen, of_session, temporary: Path::new("/tmp"), uid }.directory()
        };
        let session = Some("/run/user/7");
        assert_eq!(at(None, None, 0), ("/run/wirecost".into(), 0o755));
        assert_eq!(at(None, session, 0), ("/run/wirecost".into(), 0o755));
        assert_eq!(at(None, session, 7), ("/run/user/7/wirecost".into(), 0o700));
        assert_eq!(at(None, None, 7), ("/tmp/wirecost-7".into(), 0o700));
        assert_eq!(at(Some("/x"), session, 0), ("/x".into(), 0o700));
    }

    #[test]
    fn a_directory_that_others_can_change_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("runtime");
        make(&path, "runs", 0o700).unwrap();
        for open in [&path, &path.join("runs")] {
            fs::set_permissions(open, fs::Permissions::from_mode(0o770)).unwrap();
            let error = make(&path, "runs", 0o700).unwrap_err();
            assert!(matches!(error, RuntimeDirError::Writable { mode: 0o770, .. }), "{error}");
            fs::set_permissions(open, fs::Permissions::from_mode(0o700)).unwrap();
        }
        let link = home.path().join("link");
        symlink(&path, &link).unwrap();
        make(&link, "runs", 0o700).unwrap_err();
        // A link above it leads somewhere if it is one's own.
        let inner = link.join("inner");
        make(&inner, "runs", 0o700).unwrap();
        if geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
            let error = make(&path, "runs", 0o700).unwrap_err();
            assert!(matches!(error, RuntimeDirError::Foreign { owner: 65534, .. }), "{error}");
            std::os::unix::fs::lchown(&link, Some(65534), None).unwrap();
            let error = make(&inner, "runs", 0o700).unwrap_err();
            assert!(matches!(error, RuntimeDirError::ForeignLink { owner: 65534, .. }), "{error}");
        }
    }
}
