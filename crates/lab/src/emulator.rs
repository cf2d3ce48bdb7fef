//! The process that emulates the links of a lab. It has the hosts' devices, which go when it does.

use std::ffi::OsString;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use wirecost_link::{Emulator, Plan};
use wirecost_linux::net_dev::NetDev;
use wirecost_linux::netns::NetNs;
use wirecost_linux::process::ProcessId;
use wirecost_linux::spawn;
use wirecost_linux::tun::Tun;
use wirecost_model::link::netem::BackendChoice;
use wirecost_model::link::{LinkCounts, LinkSpec, Topology};

use crate::host::DEVICE;
use crate::{LabError, LabHost, Lifetime, state};

/// The process says this when it has the devices.
const READY: &str = "ready";

/// A process that does not answer within this time does not.
const PATIENCE: Duration = Duration::from_secs(10);

/// Emulated links of a lab to create.
#[derive(Debug, Clone, PartialEq)]
pub struct EmulatedLinks {
    pub topology: Topology,
    pub link: LinkSpec,
    /// What is to make them.
    pub backend: BackendChoice,
    /// Losses, jitter and cross traffic of the emulator follow from it.
    pub seed: u64,
    /// What starts a process that calls [`serve`]: a program and its arguments.
    pub program: Vec<OsString>,
}

/// Emulated links of a lab that exists.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct EmulatorState {
    pub(crate) topology: Topology,
    pub(crate) link: LinkSpec,
    pub(crate) seed: u64,
    /// CPUs of its threads: all where they share them with hosts.
    pub(crate) cpus: Vec<u32>,
    /// Whether one thread serves both directions, because there are too few CPUs.
    pub(crate) one_thread: bool,
    /// CPUs of the queues of each host's device, where devices have some.
    #[serde(default)]
    pub(crate) queue_cpus: Vec<Vec<u32>>,
    pub(crate) process: Option<ProcessId>,
}

impl EmulatorState {
    pub(crate) fn is_alive(&self) -> bool {
        self.process.is_some_and(ProcessId::is_alive)
    }
}

/// What the process is told.
#[derive(Debug, Serialize, Deserialize)]
struct Order {
    plan: Plan,
    /// The namespaces of the hosts.
    namespaces: Vec<String>,
    socket: PathBuf,
    lifetime: Lifetime,
}

/// A process that was started, and what keeps it alive if it is temporary.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    input: Option<ChildStdin>,
}

impl Process {
    /// Starts the process. When this returns, the hosts have their devices.
    pub(crate) fn start(
        state: &EmulatorState,
        program: &[OsString],
        hosts: &[LabHost],
        socket: &Path,
        lifetime: Lifetime,
    ) -> Result<Self, LabError> {
        let failed = |source| LabError::Emulator { source };
        let addresses = |host: &LabHost| host.addresses().collect();
        let order = Order {
            plan: Plan {
                topology: state.topology,
                link: state.link.clone(),
                seed: state.seed,
                one_thread: state.one_thread,
                addresses: hosts.iter().map(addresses).collect(),
                queue_cpus: state.queue_cpus.clone(),
            },
            namespaces: hosts.iter().map(|host| host.namespace.clone()).collect(),
            socket: socket.to_owned(),
            lifetime,
        };
        let [program, arguments @ ..] = program else {
            return Err(failed(io::Error::other("no program is given")));
        };
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // The keyboard's signals are for those who use the lab.
        command.process_group(0);
        spawn::pin_on_spawn(&mut command, &state.cpus);
        let mut child = command.spawn().map_err(failed)?;
        let mut input = child.stdin.take();
        let mut text = serde_json::to_vec(&order).map_err(|error| failed(error.into()))?;
        text.push(b'\n');
        let told = input.as_mut().map_or(Ok(()), |input| input.write_all(&text));
        if lifetime == Lifetime::UntilDown {
            input = None;
        }
        let mut process = Self { child, input };
        match told.and_then(|()| process.wait_until_ready()) {
            Ok(()) => Ok(process),
            Err(source) => {
                process.stop();
                Err(failed(source))
            }
        }
    }

    fn wait_until_ready(&mut self) -> io::Result<()> {
        let mut said = String::new();
        if let Some(output) = self.child.stdout.take() {
            BufReader::new(output).read_line(&mut said)?;
        }
        if said.trim() == READY {
            // What it says later, nobody reads.
            self.child.stderr = None;
            return Ok(());
        }
        let mut error = String::new();
        if let Some(mut output) = self.child.stderr.take() {
            output.read_to_string(&mut error)?;
        }
        let error = error.trim();
        Err(io::Error::other(if error.is_empty() { "it ended" } else { error }.to_owned()))
    }

    pub(crate) fn id(&self) -> Option<ProcessId> {
        ProcessId::of(self.child.id())
    }

    /// Ends the process, which removes the devices.
    pub(crate) fn stop(&mut self) {
        self.input = None;
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Ends the process of a lab that another process created.
pub(crate) fn stop(process: ProcessId) {
    let pid = i32::try_from(process.pid).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid.filter(|_| process.is_alive()) {
        // It may have ended meanwhile.
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Reads the counters of emulated links.
#[derive(Debug, Clone)]
pub struct LinkReader {
    lab: String,
    socket: PathBuf,
    pid: u32,
}

impl LinkReader {
    pub(crate) fn new(lab: &str, pid: u32) -> Self {
        Self { lab: lab.to_owned(), socket: state::socket_of(lab), pid }
    }

    /// The process that emulates the links.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// What the links have done since the lab was created.
    ///
    /// # Errors
    /// [`LabError::EmulatorGone`] if their process does not answer.
    pub fn read(&self) -> Result<LinkCounts, LabError> {
        self.counts().map_err(|_| LabError::EmulatorGone { name: self.lab.clone() })
    }

    fn counts(&self) -> io::Result<LinkCounts> {
        let mut stream = UnixStream::connect(&self.socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut text = Vec::new();
        stream.read_to_end(&mut text)?;
        Ok(serde_json::from_slice(&text)?)
    }
}

/// Emulates the links of a lab: the standard input says which. Returns when the lab is no more.
///
/// # Errors
/// The devices cannot be created, or a thread failed.
pub fn serve() -> io::Result<()> {
    let mut input = BufReader::new(io::stdin());
    let mut order = String::new();
    input.read_line(&mut order)?;
    let order: Order = serde_json::from_str(&order)?;
    let (mut counters, mut devices) = (Vec::new(), Vec::new());
    for name in &order.namespaces {
        let (device, counter) = device_in(name, &order.plan)?;
        devices.push(device);
        counters.push(counter);
    }
    let listener = listen(&order.socket)?;
    let emulator = Emulator::start(&order.plan, devices)?;
    let mut output = io::stdout();
    writeln!(output, "{READY}")?;
    output.flush()?;
    let stdin = io::stdin();
    loop {
        let watched = |descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN);
        let mut polled = vec![watched(listener.as_fd()), watched(emulator.ended())];
        if order.lifetime == Lifetime::Run {
            polled.push(watched(stdin.as_fd()));
        }
        match poll(&mut polled, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        // Its creator has ended, or has closed the lab; or a device is gone.
        if polled[1..].iter().any(|end| !end.revents().is_empty()) {
            return emulator.stop();
        }
        if !polled[0].revents().is_empty() {
            let (mut reader, _) = listener.accept()?;
            reader.set_write_timeout(Some(PATIENCE))?;
            // Who asks may go away.
            let counts = LinkCounts { unread: unread(&mut counters), ..emulator.counts() };
            let _ = reader.write_all(&serde_json::to_vec(&counts)?);
        }
    }
}

fn listen(socket: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(socket)?;
    fs::set_permissions(socket, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Creates the device of a host, and opens its counters.
fn device_in(namespace: &str, plan: &Plan) -> io::Result<(Vec<Tun>, NetDev)> {
    let namespace = NetNs::open(namespace).map_err(io::Error::other)?;
    let create = || Ok((plan.create_device(DEVICE)?, NetDev::open()?));
    namespace.run(create).map_err(io::Error::other)?
}

/// Frames that hosts dropped because the queue of their device was full.
fn unread(counters: &mut [NetDev]) -> u64 {
    let of_host = |counter: &mut NetDev| Some(counter.read().ok()?.get(DEVICE)?.tx_drops);
    counters.iter_mut().filter_map(of_host).sum()
}
