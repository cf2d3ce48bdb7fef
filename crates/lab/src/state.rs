//! State of this machine's labs, shared by processes: one file per lab in /run/wirecost/lab. It is
//! written before anything is created and removed after everything is gone. One lock guards the files,
//! so that two processes never create or remove labs at once.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags, flock};
use serde::{Deserialize, Serialize};
use wirecost_linux::process::ProcessId;
use wirecost_linux::thread::allowed_cpus;
use wirecost_model::link::netem::Backend;
use wirecost_model::link::{LinkSpec, Topology};

use crate::emulator::{EmulatorState, Process};
use crate::netem::{self, NetemState, QdiscReader};
use crate::placement::Share;
use crate::{LabError, LabHost, LabSpec, addresses, build, host, placement};

const DIRECTORY: &str = "/run/wirecost/lab";
/// CPUs that hosts leave to the emulator where there are enough: one for each direction.
const EMULATOR_CPUS: usize = 2;
/// With fewer CPUs in all, one thread serves both directions: the hosts need the CPUs.
const CPUS_FOR_TWO_THREADS: usize = 3;

const SCHEMA: &str = "wirecost.lab/1";

/// Creating a lab of many hosts takes a second or two; longer means that something is stuck.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Lifetime of a lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lifetime {
    /// As long as the run that made it.
    Run,
    /// Until it is removed.
    UntilDown,
}

/// The state file of a lab.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) schema: String,
    pub(crate) name: String,
    pub(crate) lifetime: Lifetime,
    pub(crate) creator: ProcessId,
    pub(crate) hosts: Vec<LabHost>,
    /// Namespace of the switch of a lab with more than two hosts, with a rate, or with links by netem.
    pub(crate) switch: Option<String>,
    /// Rate of each host's link.
    pub(crate) rate_bits_per_second: Option<u64>,
    /// What emulates the links.
    #[serde(default)]
    pub(crate) emulator: Option<EmulatorState>,
    /// Links by netem, which are in the switch.
    #[serde(default)]
    pub(crate) netem: Option<NetemState>,
}

impl State {
    /// Plans a lab without creating anything.
    pub(crate) fn plan(spec: &LabSpec, creator: ProcessId) -> Result<Self, LabError> {
        let backend =
            spec.emulated.as_ref().map(|links| netem::backend(links.backend, &links.link));
        let backend = backend.transpose()?;
        let cpus = allowed_cpus().map_err(|source| LabError::Cpus { source })?;
        let ipv6 = Path::new("/proc/sys/net/ipv6").exists();
        let nic = spec.emulated.as_ref().and_then(|links| links.link.nic.as_ref());
        // Queues are served on the CPUs of their hosts.
        let threads = match (backend, nic) {
            (Some(Backend::Emulator), None) => EMULATOR_CPUS,
            _ => 0,
        };
        let mut shares = placement::share(&cpus, spec.hosts, threads, placement::core_of);
        let queues = nic.map_or(0, |nic| usize::from(nic.queues));
        if queues > cpus.len() {
            return Err(LabError::Queues { asked: queues, cpus: cpus.len() });
        }
        if shares.iter().any(|share| share.cpus.len() < queues) {
            shares.fill(Share { cpus: cpus.clone(), owned: false });
        }
        let queue_cpus: Vec<Vec<u32>> =
            shares.iter().map(|share| share.cpus[..queues].to_vec()).collect();
        let owned: Vec<u32> = shares.iter().flat_map(|share| share.cpus.clone()).collect();
        let spare: Vec<u32> = cpus.iter().copied().filter(|cpu| !owned.contains(cpu)).collect();
        let hosts = (1..=u8::MAX)
            .zip(shares.into_iter().zip(&queue_cpus))
            .map(|(number, (share, queue_cpus))| {
                let name = format!("h{number}");
                LabHost {
                    namespace: build::namespace_of(&spec.name, &name),
                    name,
                    ipv4: addresses::ipv4(number),
                    ipv6: ipv6.then(|| addresses::ipv6(number)),
                    device: host::DEVICE.to_owned(),
                    cpus: share.cpus,
                    owns_cpus: share.owned,
                    receive_cpus: queue_cpus.clone(),
                }
            })
            .collect();
        let switched = match backend {
            Some(Backend::Netem) => true,
            Some(Backend::Emulator) => false,
            None => spec.hosts > 2 || spec.rate_bits_per_second.is_some(),
        };
        let machine_cpus = cpus.len();
        let emulator_cpus = if spare.is_empty() || nic.is_some() { cpus } else { spare };
        let by = |wanted| spec.emulated.as_ref().filter(|_| backend == Some(wanted));
        let netem = by(Backend::Netem)
            .map(|links| NetemState { topology: links.topology, link: links.link.clone() });
        let emulator = by(Backend::Emulator).map(|links| EmulatorState {
            topology: links.topology,
            link: links.link.clone(),
            seed: links.seed,
            one_thread: machine_cpus < CPUS_FOR_TWO_THREADS || emulator_cpus.len() < 2,
            cpus: emulator_cpus,
            queue_cpus: if nic.is_some() { queue_cpus } else { Vec::new() },
            process: None,
        });
        Ok(Self {
            schema: SCHEMA.to_owned(),
            name: spec.name.clone(),
            lifetime: spec.lifetime,
            creator,
            hosts,
            switch: switched.then(|| build::namespace_of(&spec.name, build::SWITCH)),
            rate_bits_per_second: spec.rate_bits_per_second,
            emulator,
            netem,
        })
    }

    /// How its hosts are joined, by which links and what makes them, if they are emulated.
    pub(crate) fn emulated(&self) -> Option<(Topology, &LinkSpec, Backend)> {
        let by_netem =
            self.netem.as_ref().map(|netem| (netem.topology, &netem.link, Backend::Netem));
        by_netem.or_else(|| {
            let emulator = self.emulator.as_ref()?;
            Some((emulator.topology, &emulator.link, Backend::Emulator))
        })
    }

    /// What reads the counters of its links by netem; `None` if it has none.
    pub(crate) fn qdisc_reader(&self) -> Option<Result<QdiscReader, LabError>> {
        let (netem, switch) = self.netem.as_ref().zip(self.switch.as_ref())?;
        Some(QdiscReader::new(netem, &self.hosts, switch))
    }

    /// All namespaces of the lab.
    pub(crate) fn namespaces(&self) -> impl Iterator<Item = String> {
        self.hosts.iter().map(|host| host.namespace.clone()).chain(self.switch.clone())
    }

    /// A namespace of the lab that is not among those `present`.
    pub(crate) fn missing_from(&self, present: &[String]) -> Option<String> {
        self.namespaces().find(|namespace| !present.contains(namespace))
    }

    /// Whether its run ended without removing it.
    pub(crate) fn is_stale(&self) -> bool {
        self.lifetime == Lifetime::Run && !self.creator.is_alive()
    }
}

/// The directory of state files, locked while this lives.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    _lock: File,
}

impl Directory {
    pub(crate) fn lock() -> Result<Self, LabError> {
        Self::lock_at(PathBuf::from(DIRECTORY))
    }

    fn lock_at(path: PathBuf) -> Result<Self, LabError> {
        fs::create_dir_all(&path).map_err(failed("create", &path))?;
        let lock = path.join(".lock");
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
            .open(&lock)
            .map_err(failed("open", &lock))?;
        let end = Instant::now() + TIMEOUT;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self { path, _lock: file }),
                Err(rustix::io::Errno::AGAIN) if Instant::now() < end => {
                    thread::sleep(Duration::from_millis(5));
                }
                Err(rustix::io::Errno::AGAIN) => {
                    return Err(LabError::Locked {
                        path: lock.display().to_string(),
                        seconds: TIMEOUT.as_secs(),
                    });
                }
                Err(error) => return Err(failed("lock", &lock)(error.into())),
            }
        }
    }

    /// Starts the emulator of a lab whose namespaces exist.
    pub(crate) fn start_emulator(
        &self,
        state: &mut State,
        program: &[OsString],
    ) -> Result<Option<Process>, LabError> {
        let Some(emulator) = &mut state.emulator else { return Ok(None) };
        let socket = self.path.join(socket_name(&state.name));
        let process = Process::start(emulator, program, &state.hosts, &socket, state.lifetime)?;
        emulator.process = process.id();
        Ok(Some(process))
    }

    pub(crate) fn load(&self, name: &str) -> Result<Option<State>, LabError> {
        load(&self.file(name))
    }

    /// All labs whose state can be read.
    pub(crate) fn load_all(&self) -> Result<Vec<State>, LabError> {
        Ok(load_all(&self.path)?.0)
    }

    /// Writes atomically: a reader sees the old or the new file.
    pub(crate) fn save(&self, state: &State) -> Result<(), LabError> {
        let path = self.file(&state.name);
        let draft = path.with_extension("draft");
        let text = serde_json::to_vec_pretty(state).map_err(io::Error::from);
        text.and_then(|text| fs::write(&draft, text))
            .and_then(|()| fs::rename(&draft, &path))
            .map_err(failed("write", &path))
    }

    pub(crate) fn forget(&self, name: &str) -> Result<(), LabError> {
        for path in [self.path.join(socket_name(name)), self.file(name)] {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(failed("remove", &path)(error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}.json"))
    }
}

/// The socket at which the emulator of a lab answers.
pub(crate) fn socket_of(name: &str) -> PathBuf {
    Path::new(DIRECTORY).join(socket_name(name))
}

fn socket_name(name: &str) -> String {
    format!("{name}.socket")
}

/// All labs, by name, and why others cannot be read; without the lock, which requires privileges.
pub(crate) fn load_all_unlocked() -> Result<(Vec<State>, Vec<LabError>), LabError> {
    load_all(Path::new(DIRECTORY))
}

fn load_all(directory: &Path) -> Result<(Vec<State>, Vec<LabError>), LabError> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Default::default()),
        Err(error) => return Err(failed("read", directory)(error)),
    };
    let (mut states, mut unreadable) = (Vec::new(), Vec::new());
    for entry in entries {
        let path = entry.map_err(failed("read", directory))?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            match load(&path) {
                Ok(state) => states.extend(state),
                Err(error) => unreadable.push(error),
            }
        }
    }
    states.sort_by(|a, b| a.name.cmp(&b.name));
    Ok((states, unreadable))
}

fn load(path: &Path) -> Result<Option<State>, LabError> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed("read", path)(error)),
    };
    let unusable =
        |why: String| failed("read", path)(io::Error::new(io::ErrorKind::InvalidData, why));
    let state: State =
        serde_json::from_slice(&text).map_err(|error| unusable(error.to_string()))?;
    if state.schema == SCHEMA {
        Ok(Some(state))
    } else {
        Err(unusable(format!("it is of schema `{}`, not `{SCHEMA}`", state.schema)))
    }
}

fn failed(act: &'static str, path: &Path) -> impl Fn(io::Error) -> LabError {
    let path = path.display().to_string();
    move |source| LabError::State { act, path: path.clone(), source }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_state_that_cannot_be_read_hides_no_other() {
        let home = std::env::temp_dir().join(format!("wirecost-lab-states-{}", std::process::id()));
        let directory = Directory::lock_at(home.clone()).unwrap();
        let state = State {
            schema: SCHEMA.to_owned(),
            name: "good".to_owned(),
            lifetime: Lifetime::UntilDown,
            creator: ProcessId::this().unwrap(),
            hosts: Vec::new(),
            switch: None,
            rate_bits_per_second: None,
            emulator: None,
            netem: None,
        };
        directory.save(&state).unwrap();
        fs::write(home.join("bad.json"), "{").unwrap();
        let (states, unreadable) = load_all(&home).unwrap();
        let bad = directory.load("bad");
        fs::remove_dir_all(&home).unwrap();
        assert_eq!(states, [state]);
        assert!(unreadable[0].to_string().contains("bad.json"), "{unreadable:?}");
        bad.unwrap_err();
    }

    #[test]
    fn a_lock_that_is_a_link_is_not_followed() {
        let home = std::env::temp_dir().join(format!("wirecost-lab-state-{}", std::process::id()));
        let (labs, target) = (home.join("labs"), home.join("target"));
        fs::create_dir_all(&labs).unwrap();
        symlink(&target, labs.join(".lock")).unwrap();
        let refused = Directory::lock_at(labs.clone());
        let followed = target.exists();
        fs::remove_file(labs.join(".lock")).unwrap();
        let locked = Directory::lock_at(labs);
        fs::remove_dir_all(&home).unwrap();
        refused.unwrap_err();
        assert!(!followed);
        locked.unwrap();
    }
}
