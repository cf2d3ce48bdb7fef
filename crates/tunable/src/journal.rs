//! What was changed and what it was before: one file per owner in /run/wirecost/tune. An entry is on disk
//! before its change is made. One lock guards the files, so that two processes of a host never change or
//! restore settings at once.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::{FlockOperation, OFlags, flock};
use serde::{Deserialize, Serialize};
use wirecost_linux::link::Links;
use wirecost_linux::netns::{NetNs, NetNsError, NetNsId};
use wirecost_linux::privilege::{TUNING, missing};
use wirecost_linux::process::ProcessId;

use crate::error::{TuneError, with_causes};
use crate::restore::Restored;
use crate::target::{Refusal, Target};
use crate::tunables::{Scope, Tunable};

/// Where journals are.
pub const DIRECTORY: &str = "/run/wirecost/tune";

const SCHEMA: &str = "wirecost.tune/1";

/// Restoring takes milliseconds; longer means that something is stuck.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Whether this process may change settings, and keep the journal without which it changes none.
///
/// # Errors
/// [`TuneError::NotPermitted`] without the rights; the directory cannot be made or locked.
pub fn check_rights() -> Result<(), TuneError> {
    // Root of a container can write the journal.
    let missing = missing(TUNING);
    if !missing.is_empty() {
        return Err(TuneError::NotPermitted { missing });
    }
    Directory::lock(Path::new(DIRECTORY)).map(drop)
}

/// The changes of one owner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Journal {
    schema: String,
    boot_id: String,
    pub(crate) owner: ProcessId,
    /// The process that restores them when the owner ends, and may hold namespaces that nobody else
    /// finds.
    #[serde(default)]
    pub(crate) guardian: Option<ProcessId>,
    /// In the order in which they were first changed.
    pub(crate) entries: Vec<Entry>,
}

impl Journal {
    /// The guardian that is about to restore it, as its owner has ended.
    pub(crate) fn guardian_at_work(&self) -> Option<ProcessId> {
        self.guardian.filter(|guardian| !self.owner.is_alive() && guardian.is_alive())
    }
}

/// A setting that was changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) tunable: String,
    pub(crate) place: Place,
    /// All that is needed to restore it ([`Tunable::save`]).
    pub(crate) saved: String,
    /// What was read before.
    pub(crate) previous: String,
    /// What was read back after the change, or after an attempt to restore it; absent while either is
    /// under way.
    pub(crate) applied: Option<String>,
    /// Whether it reverts when the controller does not confirm it.
    #[serde(default)]
    pub(crate) unconfirmed: bool,
}

/// Where it was changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Place {
    pub(crate) namespace: NetNsId,
    /// Leads to the namespace, unless it is gone or was given to another one: a file of /run/netns or
    /// /proc.
    path: PathBuf,
    device: Option<Device>,
    /// Place on a bus, where that counts.
    bus: Option<String>,
    root: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Device {
    index: u32,
    address: Option<String>,
    name: String,
}

impl Place {
    /// Where a tunable is changed, by what identifies it there.
    pub(crate) fn of(target: &Target, tunable: &dyn Tunable) -> Result<Self, Refusal> {
        let scope = tunable.scope();
        let device = match scope {
            Scope::Device => {
                let link = target.link()?;
                Some(Device { index: link.index, address: link.address, name: link.name })
            }
            _ => None,
        };
        Ok(Self {
            namespace: target.id(),
            path: path_of(target.namespace()),
            device,
            bus: if scope == Scope::Bus { Some(target.bus()?) } else { None },
            root: target.root().to_owned(),
        })
    }

    /// Whether a change here and one there meet, for a tunable of this scope.
    pub(crate) fn meets(&self, other: &Self, scope: Scope) -> bool {
        let index = |place: &Self| place.device.as_ref().map(|device| device.index);
        self.root == other.root
            && match scope {
                Scope::Machine => true,
                Scope::Bus => self.bus == other.bus,
                Scope::Namespace => self.namespace == other.namespace,
                Scope::Device => self.namespace == other.namespace && index(self) == index(other),
            }
    }

    /// The same place now.
    pub(crate) fn find(&self, scope: Scope, held: &[NetNs]) -> Result<Target, Lost> {
        let target = match self.namespace(held) {
            Ok(namespace) => Target::of(namespace),
            // What is of the machine or a bus outlives every namespace.
            Err(_) if matches!(scope, Scope::Machine | Scope::Bus) => Target::here(),
            Err(lost) => return Err(lost),
        };
        let mut target =
            target.map_err(|error| Lost::unknown(&error))?.below(&self.root).allowing_pci();
        if let Some(bus) = &self.bus {
            target = target.at_bus(bus);
        }
        let Some(device) = &self.device else { return Ok(target) };
        let links = Links::of(target.namespace()).and_then(|links| links.list());
        let found = links
            .map_err(|error| Lost::unknown(&error))?
            .into_iter()
            .find(|link| (link.index, &link.address) == (device.index, &device.address));
        match found {
            Some(link) => Ok(target.with_device(&link.name)),
            None => Err(Lost::Gone(format!("the device `{}` is gone", device.name))),
        }
    }

    fn namespace(&self, held: &[NetNs]) -> Result<NetNs, Lost> {
        for namespace in held {
            if namespace.id().map_err(|error| Lost::unknown(&error))? == self.namespace {
                return namespace.try_clone().map_err(|error| Lost::unknown(&error));
            }
        }
        // What the path leads to now may be another one, or nothing; then all are searched.
        if let Ok(namespace) = NetNs::open_path(&self.path)
            && namespace.id().is_ok_and(|id| id == self.namespace)
        {
            return Ok(namespace);
        }
        NetNs::find(self.namespace).map_err(|error| match error {
            NetNsError::NotFound { .. } => Lost::Gone("the network namespace is gone".to_owned()),
            other => Lost::unknown(&other),
        })
    }
}

/// Why a place was not found.
#[derive(Debug)]
pub(crate) enum Lost {
    /// All was looked at, and it is not there: this says what.
    Gone(String),
    /// It could not be looked for: this says why.
    Unknown(String),
}

impl Lost {
    fn unknown(error: &dyn std::error::Error) -> Self {
        Self::Unknown(with_causes(error))
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.device, &self.bus) {
            (Some(device), _) => write!(f, "`{}`", device.name),
            (None, Some(bus)) => write!(f, "the device at {bus}"),
            (None, None) => write!(f, "this host"),
        }
    }
}

/// A file that leads to a namespace also when its handle is closed.
fn path_of(namespace: &NetNs) -> PathBuf {
    let named = Path::new("/run/netns").join(namespace.name());
    if named.exists() && !named.starts_with("/proc") {
        return named;
    }
    PathBuf::from(format!("/proc/{}/ns/net", std::process::id()))
}

/// The directory of journals, locked while this lives.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    boot_id: String,
    _lock: File,
}

impl Directory {
    pub(crate) fn lock(path: &Path) -> Result<Self, TuneError> {
        fs::create_dir_all(path).map_err(failed("create", path))?;
        let lock = path.join(".lock");
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
            .open(&lock)
            .map_err(failed("open", &lock))?;
        let end = Instant::now() + TIMEOUT;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(rustix::io::Errno::AGAIN) if Instant::now() < end => {
                    thread::sleep(Duration::from_millis(2));
                }
                Err(rustix::io::Errno::AGAIN) => {
                    let path = lock.display().to_string();
                    return Err(TuneError::Locked { path, seconds: TIMEOUT.as_secs() });
                }
                Err(error) => return Err(failed("lock", &lock)(error.into())),
            }
        }
        Ok(Self { path: path.to_owned(), boot_id: boot_id()?, _lock: file })
    }

    /// The journal of an owner; an empty one where there is none of this boot.
    pub(crate) fn load(&self, owner: ProcessId) -> Result<Journal, TuneError> {
        let path = self.file(owner);
        let journal = read(&path)?.filter(|journal| journal.boot_id == self.boot_id);
        Ok(journal.unwrap_or_else(|| Journal {
            schema: SCHEMA.to_owned(),
            boot_id: self.boot_id.clone(),
            owner,
            guardian: None,
            entries: Vec::new(),
        }))
    }

    /// The journals of all owners, and why some cannot be read. Those of an earlier boot are removed:
    /// nothing of what they tell has outlived it.
    pub(crate) fn load_all(&self) -> Result<(Vec<Journal>, Vec<TuneError>), TuneError> {
        let (mut journals, mut unreadable) = (Vec::new(), Vec::new());
        for path in self.files("json")? {
            match read(&path) {
                Ok(Some(journal)) if journal.boot_id == self.boot_id => journals.push(journal),
                Ok(Some(_)) => unreadable.extend(remove(&path).err()),
                Ok(None) => {}
                Err(error) => unreadable.push(error),
            }
        }
        Ok((journals, unreadable))
    }

    /// Writes a journal so that it survives a crash of the process at any instant; removes one without
    /// entries.
    pub(crate) fn save(&self, journal: &Journal) -> Result<(), TuneError> {
        let path = self.file(journal.owner);
        if journal.entries.is_empty() {
            return remove(&path);
        }
        self.write(&path, journal)
    }

    /// Leaves a report for whoever asks next, if there is something that nobody else would tell. Returns
    /// where.
    pub(crate) fn leave(&self, restored: &Restored) -> Result<Option<PathBuf>, TuneError> {
        let Some(report) = restored.report() else { return Ok(None) };
        // There may be others of the same owner, and one that was removed must not be taken for this one.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let path = self.path.join(format!("{}-{now}.report", stem(restored.owner)));
        self.write(&path, &report)?;
        Ok(Some(path))
    }

    /// The reports that were left. They stay until [`remove`] is called: when they have been told.
    pub(crate) fn reports(&self) -> Result<Vec<(PathBuf, Restored)>, TuneError> {
        let mut reports = Vec::new();
        for path in self.files("report")? {
            // One of another version says nothing here, and is left to that.
            let report = fs::read(&path).ok().and_then(|text| serde_json::from_slice(&text).ok());
            reports.extend(report.map(|report| (path, report)));
        }
        Ok(reports)
    }

    fn write(&self, path: &Path, content: &impl Serialize) -> Result<(), TuneError> {
        let draft = path.with_extension("draft");
        let write = || -> io::Result<()> {
            let mut file = File::create(&draft)?;
            file.write_all(&serde_json::to_vec(content)?)?;
            file.sync_all()?;
            fs::rename(&draft, path)?;
            File::open(&self.path)?.sync_all()
        };
        write().map_err(failed("write", path))
    }

    fn files(&self, extension: &str) -> Result<Vec<PathBuf>, TuneError> {
        let mut paths = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(failed("read", &self.path))? {
            let path = entry.map_err(failed("read", &self.path))?.path();
            if path.extension().is_some_and(|found| found == extension) {
                paths.push(path);
            }
        }
        paths.sort();
        Ok(paths)
    }

    fn file(&self, owner: ProcessId) -> PathBuf {
        self.path.join(format!("{}.json", stem(owner)))
    }
}

fn stem(owner: ProcessId) -> String {
    format!("{}-{}", owner.pid, owner.started)
}

fn read(path: &Path) -> Result<Option<Journal>, TuneError> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed("read", path)(error)),
    };
    let unusable =
        |why: String| failed("read", path)(io::Error::new(io::ErrorKind::InvalidData, why));
    let journal: Journal =
        serde_json::from_slice(&text).map_err(|error| unusable(error.to_string()))?;
    if journal.schema == SCHEMA {
        Ok(Some(journal))
    } else {
        Err(unusable(format!("it is of schema `{}`, not `{SCHEMA}`", journal.schema)))
    }
}

pub(crate) fn remove(path: &Path) -> Result<(), TuneError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", path)(error)),
        _ => Ok(()),
    }
}

fn boot_id() -> Result<String, TuneError> {
    const PATH: &str = "/proc/sys/kernel/random/boot_id";
    let text = fs::read_to_string(PATH).map_err(failed("read", Path::new(PATH)))?;
    Ok(text.trim().to_owned())
}

fn failed(act: &'static str, path: &Path) -> impl Fn(io::Error) -> TuneError {
    let path = path.display().to_string();
    move |source| {
        // Who lacks the rights for settings is not helped by a directory that can be written.
        let missing = match source.kind() {
            io::ErrorKind::PermissionDenied => missing(TUNING),
            _ => Vec::new(),
        };
        match missing.is_empty() {
            true => TuneError::Journal { act, path: path.clone(), source },
            false => TuneError::NotPermitted { missing },
        }
    }
}
