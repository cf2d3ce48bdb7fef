//! Named network namespaces, as ip-netns(8) keeps them: a name is a file in /run/netns on which a
//! namespace is mounted. What is made here is seen by `ip netns`, and the other way round.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;

use rustix::fs::FlockOperation;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, UnmountFlags,
    fsconfig_create, fsmount, fsopen, mount_bind, mount_bind_recursive, mount_change, unmount,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use serde::{Deserialize, Serialize};

use crate::raw_option::SocketOption;

/// Where names are kept.
const DIRECTORY: &str = "/run/netns";

/// An open network namespace that has a name. The namespace lives while it has a name, a process
/// or an open handle.
#[derive(Debug)]
pub struct NetNs {
    name: String,
    handle: OwnedFd,
}

impl NetNs {
    /// Makes a namespace with a name. Nothing is in it but `lo`, which is down.
    ///
    /// # Errors
    /// [`NetNsError::Exists`] when the name is taken, [`NetNsError::BadName`] when it cannot be
    /// one, [`NetNsError::Refused`] when the kernel refuses.
    pub fn create(name: &str) -> Result<Self, NetNsError> {
        let path = path_of(name)?;
        let refused = |act| move |source| refused(act, name, source);
        prepare_directory().map_err(refused("prepare the directory for"))?;
        OpenOptions::new().write(true).create_new(true).mode(0o444).open(&path).map_err(
            |source| match source.kind() {
                io::ErrorKind::AlreadyExists => NetNsError::Exists { name: name.to_owned() },
                _ => refused("name")(source),
            },
        )?;
        // From here on the name is ours, and must not stay behind without a namespace.
        let made = mount_new_namespace(&path).map_err(refused("create"));
        let opened = made.and_then(|()| Self::open(name));
        if opened.is_err() {
            // The error that brought us here is the one to tell.
            let _ = unmount(&path, UnmountFlags::DETACH);
            let _ = fs::remove_file(&path);
        }
        opened
    }

    /// Opens a namespace by its name.
    ///
    /// # Errors
    /// [`NetNsError::NotFound`] when there is none of this name, [`NetNsError::Refused`] when what
    /// is there is not a namespace, or may not be opened.
    pub fn open(name: &str) -> Result<Self, NetNsError> {
        let path = path_of(name)?;
        let file = File::open(&path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => NetNsError::NotFound { name: name.to_owned() },
            _ => refused("open", name, source),
        })?;
        // A file left by a create that was killed, or by a reboot, has the name and no namespace.
        let filesystem =
            rustix::fs::fstatfs(&file).map_err(|error| refused("open", name, error.into()))?.f_type;
        if filesystem != NSFS_MAGIC {
            let cause = io::Error::new(io::ErrorKind::InvalidData, "nothing is mounted there");
            return Err(refused("open", name, cause));
        }
        Ok(Self { name: name.to_owned(), handle: file.into() })
    }

    /// Opens the namespace that a process is in, whether it has a name or not.
    ///
    /// # Errors
    /// [`NetNsError::Refused`] when there is no such process, or it is somebody else's.
    pub fn of_process(pid: u32) -> Result<Self, NetNsError> {
        let name = format!("of process {pid}");
        let file = File::open(format!("/proc/{pid}/ns/net"))
            .map_err(|source| refused("open", &name, source))?;
        Ok(Self { name, handle: file.into() })
    }

    /// Opens the namespace that a file of nsfs leads to, such as `/proc/PID/fd/N`.
    ///
    /// # Errors
    /// [`NetNsError::Refused`] when there is no such file, or it is no namespace.
    pub fn open_path(path: &Path) -> Result<Self, NetNsError> {
        let name = path.display().to_string();
        let file = File::open(path).map_err(|source| refused("open", &name, source))?;
        let filesystem =
            rustix::fs::fstatfs(&file).map_err(|error| refused("open", &name, error.into()))?;
        if filesystem.f_type != NSFS_MAGIC {
            let cause = io::Error::new(io::ErrorKind::InvalidData, "it is no namespace");
            return Err(refused("open", &name, cause));
        }
        Ok(Self { name, handle: file.into() })
    }

    /// A second handle.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { name: self.name.clone(), handle: self.handle.try_clone()? })
    }

    /// Opens the namespace of the calling thread.
    ///
    /// # Errors
    /// [`NetNsError::Refused`] where there is no /proc.
    pub fn here() -> Result<Self, NetNsError> {
        Self::open_path(Path::new("/proc/thread-self/ns/net"))
    }

    /// Which namespace of this boot it is.
    ///
    /// # Errors
    /// [`NetNsError::Refused`] when it cannot be entered.
    pub fn id(&self) -> Result<NetNsId, NetNsError> {
        let unknown = |source| refused("identify", &self.name, source);
        let stat = rustix::fs::fstat(&self.handle).map_err(|error| unknown(error.into()))?;
        let cookie =
            run_in(&self.handle, cookie_here).and_then(|cookie| cookie).map_err(unknown)?;
        Ok(NetNsId { device: stat.st_dev, inode: stat.st_ino, cookie })
    }

    /// Opens a namespace by its identity: one that has a name or a process.
    ///
    /// # Errors
    /// [`NetNsError::NotFound`] when all names and processes were looked at and none leads to it,
    /// [`NetNsError::Refused`] when some could not be.
    pub fn find(id: NetNsId) -> Result<Self, NetNsError> {
        let searched = format!("net:[{}]", id.inode);
        let is_pid = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.bytes().all(|byte| byte.is_ascii_digit())
        };
        let processes = files_of("/proc", &searched)?.into_iter().filter(is_pid);
        let processes = processes.map(|directory| (directory.join("ns/net"), Some(directory)));
        let named = files_of(DIRECTORY, &searched)?.into_iter().map(|path| (path, None));
        let (mut others, mut problems) = (BTreeSet::new(), Vec::new());
        for (path, process) in named.chain(processes) {
            match Self::open_if(&path, id) {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => others.extend(process.as_deref().and_then(mark_of)),
                // Another one may lead there too.
                Err(error) => problems.push((process, error)),
            }
        }
        // A process that may do more than the caller, as the first one of a container, does not let its
        // namespace be opened, but be compared.
        let is_unknown = |process: &Option<PathBuf>| {
            let mark = process.as_deref().and_then(mark_of);
            mark.is_none_or(|mark| !others.contains(&mark))
        };
        let problem = problems.into_iter().find(|(process, _)| is_unknown(process));
        Err(problem.map_or(NetNsError::NotFound { name: searched }, |(_, error)| error))
    }

    /// Opens the namespace that a file leads to if it is this one.
    fn open_if(path: &Path, id: NetNsId) -> Result<Option<Self>, NetNsError> {
        // The name was removed meanwhile, or the process has ended.
        let is_gone = || {
            let found = fs::symlink_metadata(path);
            found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        };
        match fs::metadata(path) {
            Ok(file) if (file.dev(), file.ino()) == (id.device, id.inode) => {}
            Ok(_) => return Ok(None),
            // A process that has ended and whose parent has not asked how is in none.
            Err(error) if error.kind() == io::ErrorKind::NotFound || is_gone() => return Ok(None),
            Err(source) => return Err(refused("look at", &path.display().to_string(), source)),
        }
        let same = |namespace: Self| Ok((namespace.id()? == id).then_some(namespace));
        match Self::open_path(path).and_then(same) {
            Err(_) if is_gone() => Ok(None),
            other => other,
        }
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Moves the calling thread, and no other one, into the namespace for the rest of its life. Its
    /// sockets are the namespace's; what /sys shows is not, as that was decided when /sys was
    /// mounted.
    ///
    /// # Errors
    /// [`NetNsError::Refused`] without CAP_SYS_ADMIN.
    pub fn enter_current_thread(&self) -> Result<(), NetNsError> {
        enter(self.as_fd()).map_err(|source| refused("enter", &self.name, source))
    }

    /// Runs `work` in the namespace, as [`run_in`].
    ///
    /// # Errors
    /// [`NetNsError::Refused`] when no thread could be started or it could not enter.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, NetNsError> {
        run_in(self, work).map_err(|source| refused("run in", &self.name, source))
    }

    /// The root of a /sys that shows the devices of this namespace. It is mounted nowhere: only
    /// the handle leads to it. A sysfs belongs to the namespace of the thread that makes it:
    /// <https://elixir.bootlin.com/linux/v6.12/source/fs/sysfs/mount.c#L52>.
    ///
    /// # Errors
    /// [`NetNsError::Refused`] without CAP_SYS_ADMIN.
    pub fn sysfs(&self) -> Result<OwnedFd, NetNsError> {
        let mounted = self.run(|| {
            let context = fsopen("sysfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
            fsconfig_create(context.as_fd())?;
            fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
        })?;
        mounted.map_err(|error| refused("mount /sys of", &self.name, error.into()))
    }
}

impl AsFd for NetNs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

/// Which namespace of this boot is meant, also after its inode was given to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NetNsId {
    /// Of the file of nsfs, as is the inode.
    pub device: u64,
    pub inode: u64,
    /// No other namespace of this boot has or had it
    /// (<https://elixir.bootlin.com/linux/v6.12/source/net/core/net_namespace.c>).
    pub cookie: u64,
}

/// Cookie of the calling thread's namespace.
fn cookie_here() -> io::Result<u64> {
    // SAFETY: the value is an integer of 8 bytes (socket(7)).
    const COOKIE: SocketOption<u64> =
        unsafe { SocketOption::new(libc::SOL_SOCKET, libc::SO_NETNS_COOKIE) };
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
    let mut cookie = 0;
    COOKIE.read(&socket, &mut cookie)?;
    Ok(cookie)
}

/// Runs `work` in an open network namespace: on a thread of its own that ends with it, unless the caller is there.
///
/// # Errors
/// When no thread could be started or it could not enter, for which CAP_SYS_ADMIN is needed; the
/// caller's own namespace can always be entered.
pub fn run_in<T: Send>(namespace: impl AsFd, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    let handle = namespace.as_fd();
    if rustix::fs::fstat(handle)?.st_ino == fs::metadata("/proc/thread-self/ns/net")?.ino() {
        return Ok(work());
    }
    thread::scope(|scope| {
        thread::Builder::new()
            .name("netns".to_owned())
            .spawn_scoped(scope, || enter(handle).map(|()| work()))?
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Runs `work` in a new network namespace without a name, which ends with the call.
///
/// # Errors
/// When no thread could be started, or the kernel refuses the namespace.
pub fn run_in_new<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    let in_new = || {
        // SAFETY: the flag concerns the network namespace of this thread, not its descriptors.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
        Ok(work())
    };
    thread::scope(|scope| {
        thread::Builder::new()
            .name("netns-create".to_owned())
            .spawn_scoped(scope, in_new)?
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// A number that processes have in common which are in one network namespace, and no others: the inode of
/// a file that each namespace has.
fn mark_of(process: &Path) -> Option<u64> {
    fs::metadata(process.join("net/dev")).ok().map(|file| file.ino())
}

/// Files of a directory; none where there is no such directory.
fn files_of(directory: &str, searched: &str) -> Result<Vec<PathBuf>, NetNsError> {
    let unknown = |source| refused("search for", searched, source);
    match fs::read_dir(directory) {
        Ok(files) => files.map(|file| file.map(|file| file.path()).map_err(unknown)).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(unknown(error)),
    }
}

/// Takes a name from its namespace, which ends when nothing else holds it.
///
/// # Errors
/// [`NetNsError::NotFound`] when there is no such name, [`NetNsError::Refused`] when it may not be
/// removed.
pub fn delete(name: &str) -> Result<(), NetNsError> {
    let path = path_of(name)?;
    // EINVAL: nothing is mounted there, only the file is left.
    match unmount(&path, UnmountFlags::DETACH) {
        Ok(()) | Err(rustix::io::Errno::INVAL) => {}
        Err(rustix::io::Errno::NOENT) => {
            return Err(NetNsError::NotFound { name: name.to_owned() });
        }
        Err(error) => return Err(refused("delete", name, error.into())),
    }
    fs::remove_file(&path).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => NetNsError::NotFound { name: name.to_owned() },
        _ => refused("delete", name, source),
    })
}

/// Names of all namespaces, sorted; none where no name was ever given.
///
/// # Errors
/// When the directory is there but cannot be read.
pub fn list() -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(DIRECTORY) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry?.file_name().into_string());
    }
    names.sort();
    Ok(names)
}

/// Deletes its namespace when dropped.
#[derive(Debug)]
pub struct NetNsGuard {
    namespace: Option<NetNs>,
}

impl NetNsGuard {
    #[must_use]
    pub fn new(namespace: NetNs) -> Self {
        Self { namespace: Some(namespace) }
    }

    /// Lets the namespace live on.
    pub fn keep(mut self) -> Option<NetNs> {
        self.namespace.take()
    }
}

impl Drop for NetNsGuard {
    fn drop(&mut self) {
        if let Some(namespace) = self.namespace.take() {
            // Nothing can be done about it here; the name remains for `ip netns` to show.
            let _ = delete(&namespace.name);
        }
    }
}

/// Why a namespace could not be used.
#[derive(Debug, thiserror::Error)]
pub enum NetNsError {
    #[error("failed to create network namespace `{name}`: the name is taken")]
    Exists { name: String },
    #[error("failed to find network namespace `{name}`: there is none of this name")]
    NotFound { name: String },
    #[error("`{name}` cannot name a network namespace: a name is a file name of /run/netns")]
    BadName { name: String },
    #[error("failed to {act} network namespace `{name}`")]
    Refused { act: &'static str, name: String, source: io::Error },
}

/// `NSFS_MAGIC` of linux/magic.h.
const NSFS_MAGIC: rustix::fs::FsWord = 0x6e73_6673;

fn refused(act: &'static str, name: &str, source: io::Error) -> NetNsError {
    NetNsError::Refused { act, name: name.to_owned(), source }
}

fn path_of(name: &str) -> Result<PathBuf, NetNsError> {
    // The kernel limits a file name to 255 bytes.
    let fits = !name.is_empty() && name.len() <= 255 && name != "." && name != "..";
    if fits && !name.contains(['/', '\0']) {
        Ok(Path::new(DIRECTORY).join(name))
    } else {
        Err(NetNsError::BadName { name: name.to_owned() })
    }
}

pub(crate) fn enter(handle: BorrowedFd<'_>) -> io::Result<()> {
    Ok(move_into_link_name_space(handle, Some(LinkNameSpaceType::Network))?)
}

/// Makes the directory a mount point whose mounts reach other mount namespaces, as `ip netns add`
/// does, so that a name deleted here does not keep the namespace alive there. The lock is the one
/// ip(8) takes: <https://github.com/iproute2/iproute2/blob/v6.12.0/ip/ipnetns.c#L769>.
fn prepare_directory() -> io::Result<()> {
    fs::create_dir_all(DIRECTORY)?;
    let lock = File::open(DIRECTORY)?;
    rustix::fs::flock(&lock, FlockOperation::LockExclusive)?;
    let share = MountPropagationFlags::SHARED | MountPropagationFlags::REC;
    match mount_change(DIRECTORY, share) {
        // EINVAL: not a mount point yet.
        Err(rustix::io::Errno::INVAL) => {
            mount_bind_recursive(DIRECTORY, DIRECTORY)?;
            Ok(mount_change(DIRECTORY, share)?)
        }
        other => Ok(other?),
    }
}

/// A thread leaves for a namespace of its own, names it, and ends; the name then holds it.
fn mount_new_namespace(path: &Path) -> io::Result<()> {
    run_in_new(|| Ok(mount_bind("/proc/thread-self/ns/net", path)?))?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::privilege::skip_without_namespaces;

    fn name(of: &str) -> String {
        format!("wirecost-test-{}-{of}", std::process::id())
    }

    fn inode_here() -> u64 {
        use std::os::unix::fs::MetadataExt;
        fs::metadata("/proc/thread-self/ns/net").unwrap().ino()
    }

    #[test]
    fn a_namespace_is_made_entered_and_removed() {
        if skip_without_namespaces("netns::a_namespace_is_made_entered_and_removed") {
            return;
        }
        let name = name("life");
        let guard = NetNsGuard::new(NetNs::create(&name).unwrap());
        assert!(list().unwrap().contains(&name));
        assert!(matches!(NetNs::create(&name), Err(NetNsError::Exists { .. })));
        let inside = NetNs::open(&name).unwrap().run(inode_here).unwrap();
        assert_ne!(inside, inode_here());
        // The caller's thread stayed where it was; a second visit finds the same namespace.
        assert_eq!(NetNs::open(&name).unwrap().run(inode_here).unwrap(), inside);
        drop(guard);
        assert!(!list().unwrap().contains(&name));
        assert!(matches!(NetNs::open(&name), Err(NetNsError::NotFound { .. })));
        assert!(matches!(delete(&name), Err(NetNsError::NotFound { .. })));
    }

    #[test]
    fn a_namespace_is_found_by_its_identity() {
        if skip_without_namespaces("netns::a_namespace_is_found_by_its_identity") {
            return;
        }
        let guard = NetNsGuard::new(NetNs::create(&name("identity")).unwrap());
        let id = guard.namespace.as_ref().unwrap().id().unwrap();
        assert_eq!(NetNs::find(id).unwrap().id().unwrap(), id);
        let here = NetNs::here().unwrap().id().unwrap();
        assert_ne!(here.cookie, id.cookie);
        assert_eq!(NetNs::find(here).unwrap().id().unwrap(), here);
        let other = NetNsId { cookie: id.cookie + 1, ..id };
        assert!(matches!(NetNs::find(other), Err(NetNsError::NotFound { .. })));
        drop(guard);
        assert!(matches!(NetNs::find(id), Err(NetNsError::NotFound { .. })));
        assert!(NetNs::open_path(Path::new("/proc/self/status")).is_err());
    }

    #[test]
    fn sysfs_shows_the_devices_of_the_namespace_only() {
        if skip_without_namespaces("netns::sysfs_shows_the_devices_of_the_namespace_only") {
            return;
        }
        let guard = NetNsGuard::new(NetNs::create(&name("sysfs")).unwrap());
        let sysfs = guard.namespace.as_ref().unwrap().sysfs().unwrap();
        let directory = rustix::fs::openat(
            &sysfs,
            "class/net",
            rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC,
            rustix::fs::Mode::empty(),
        )
        .unwrap();
        let names: Vec<String> = rustix::fs::Dir::read_from(directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .filter(|name| !name.starts_with('.'))
            .collect();
        assert!(names.contains(&"lo".to_owned()));
        assert!(!names.iter().any(|name| name.starts_with("eth")));
    }

    #[test]
    fn a_file_without_a_namespace_is_told_and_can_be_deleted() {
        if skip_without_namespaces("netns::a_file_without_a_namespace_is_told_and_can_be_deleted") {
            return;
        }
        let name = name("husk");
        prepare_directory().unwrap();
        fs::write(path_of(&name).unwrap(), "").unwrap();
        assert!(matches!(NetNs::open(&name), Err(NetNsError::Refused { .. })));
        delete(&name).unwrap();
        assert!(!list().unwrap().contains(&name));
    }

    #[test]
    fn names_that_are_paths_are_refused() {
        for name in ["", ".", "..", "a/b", "a\0b"] {
            assert!(matches!(NetNs::create(name), Err(NetNsError::BadName { .. })));
        }
    }

    #[test]
    fn what_cannot_be_entered_is_not_said_to_be_gone() {
        if skip_without_namespaces("netns::what_cannot_be_entered_is_not_said_to_be_gone") {
            return;
        }
        let namespace = NetNs::create(&name("closed")).unwrap();
        let id = namespace.id().unwrap();
        let _guard = NetNsGuard::new(namespace);
        let outcome = thread::spawn(move || {
            let mut sets = rustix::thread::capabilities(None).unwrap();
            sets.effective -= rustix::thread::CapabilitySet::SYS_ADMIN;
            rustix::thread::set_capabilities(None, sets).unwrap();
            NetNs::find(id)
        })
        .join()
        .unwrap();
        assert!(matches!(outcome, Err(NetNsError::Refused { .. })), "{outcome:?}");
    }

    #[test]
    fn without_rights_the_error_names_the_act() {
        let outcome = thread::spawn(|| {
            let mut sets = rustix::thread::capabilities(None).unwrap();
            sets.effective = rustix::thread::CapabilitySet::empty();
            rustix::thread::set_capabilities(None, sets).unwrap();
            NetNs::create(&name("rights"))
        })
        .join()
        .unwrap();
        assert!(matches!(outcome, Err(NetNsError::Refused { .. })), "{outcome:?}");
    }
}
