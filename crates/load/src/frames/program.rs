//! The XDP program of a host. All workers share it, and each has a descriptor table of its own: they have descriptors of the
//! maps in theirs, and a thread with the table of the process attaches the program to devices.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use libbpf_rs::{MapCore as _, ObjectBuilder};
use wirecost_linux::xdp::{self, Device, FrameSocket, Map, Mode};

use super::packet::Flow;

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/frames_select.bpf.o"));

/// Sockets of all queues of all devices at most: entries of `sockets` in `select.bpf.c`.
pub(super) const MOST_SOCKETS: u32 = 1024;

/// The program, loaded and attached to devices until this is dropped. The kernel detaches it however this process ends.
#[derive(Debug)]
pub(crate) struct HostProgram {
    flows: OwnedFd,
    sockets: OwnedFd,
    workers: u32,
    requests: Sender<Request>,
    thread: Option<JoinHandle<()>>,
}

/// What a worker needs to use the program, without the descriptors.
#[derive(Debug)]
pub(crate) struct Access {
    worker: u32,
    workers: u32,
    requests: Sender<Request>,
}

/// The program as one worker has it.
#[derive(Debug)]
pub(crate) struct WorkerProgram {
    access: Access,
    flows: Map,
    sockets: Map,
}

#[derive(Debug)]
enum Request {
    Attach { device: Device, queues: u32, answer: Sender<io::Result<u32>> },
    End,
}

/// The program on a device.
#[derive(Debug, Clone)]
pub(super) struct Attached {
    pub(super) device: Device,
    queues: u32,
    /// Key of its queue 0 among sockets.
    first: u32,
}

/// The program on a device, as the thread has it that attaches it.
struct Link {
    device: u32,
    queues: u32,
    first: u32,
    _link: OwnedFd,
}

#[cfg(test)]
impl Attached {
    pub(super) fn first(&self) -> u32 {
        self.first
    }
}

impl HostProgram {
    /// # Errors
    /// Those of loading the program.
    pub(crate) fn load(mode: Mode, workers: u32) -> io::Result<Self> {
        let object = ObjectBuilder::default()
            .name("wirecost_frames")
            .and_then(|builder| builder.open_memory(OBJECT))
            .and_then(|open| open.load())
            .map_err(io::Error::other)?;
        let program = object.progs().next().ok_or(io::ErrorKind::NotFound)?;
        let program = program.as_fd().try_clone_to_owned()?;
        let map = |name: &str| {
            let map = object.maps().find(|map| map.name() == name);
            map.ok_or(io::ErrorKind::NotFound)?.as_fd().try_clone_to_owned()
        };
        let (flows, sockets) = (map("flows")?, map("sockets")?);
        let (requests, received) = channel();
        let attach = move || attach_on_request(&program, mode, &received);
        let thread = std::thread::Builder::new().name("wirecost-xdp".to_owned()).spawn(attach)?;
        Ok(Self { flows, sockets, workers, requests, thread: Some(thread) })
    }

    /// What [`Access::with`] takes, as far as the worker has a table of its own.
    pub(crate) fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.flows.as_fd(), self.sockets.as_fd()]
    }

    pub(crate) fn access(&self, worker: u32) -> Access {
        Access { worker, workers: self.workers, requests: self.requests.clone() }
    }
}

impl Drop for HostProgram {
    fn drop(&mut self) {
        let _ = self.requests.send(Request::End);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Attaches the program to devices that workers ask for, and detaches it from all when it is told to end.
fn attach_on_request(program: &OwnedFd, mode: Mode, requests: &Receiver<Request>) {
    let mut links: Vec<Link> = Vec::new();
    let mut sockets = 0;
    while let Ok(Request::Attach { device, queues, answer }) = requests.recv() {
        let known = links.iter().find(|link| link.device == device.index);
        let first = match known {
            Some(link) if queues <= link.queues => Ok(link.first),
            // The keys of more would be those of the next device.
            Some(link) => Err(io::Error::other(format!(
                "{} had {} queues when the first connection opened, and has {queues} now",
                device.name, link.queues
            ))),
            None => attach(program, mode, &device, sockets + queues).map(|link| {
                links.push(Link { device: device.index, queues, first: sockets, _link: link });
                sockets += queues;
                sockets - queues
            }),
        };
        // A worker that ended meanwhile needs no answer.
        let _ = answer.send(first);
    }
}

fn attach(program: &OwnedFd, mode: Mode, device: &Device, sockets: u32) -> io::Result<OwnedFd> {
    let name = &device.name;
    if sockets > MOST_SOCKETS {
        let said = format!(
            "{name}: the devices of this host have {sockets} receive queues, and {MOST_SOCKETS} are possible; use fewer \
             (ethtool -L {name})"
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, said));
    }
    xdp::attach(program, device.index, mode).map_err(|error| {
        let (kind, said) = match (error.kind(), mode) {
            (kind @ (io::ErrorKind::AlreadyExists | io::ErrorKind::ResourceBusy), _) => {
                (kind, format!("{name} has an XDP program already, which is not replaced"))
            }
            (kind, Mode::Native) => {
                (kind, format!("the driver of {name} runs no XDP program: {error}; use af_xdp"))
            }
            (kind, Mode::Generic) => (kind, format!("XDP program on {name}: {error}")),
        };
        io::Error::new(kind, said)
    })
}

impl Access {
    /// With descriptors of the calling thread's table, which are copies of [`HostProgram::descriptors`].
    ///
    /// # Errors
    /// `InvalidInput` where they are not.
    pub(crate) fn with(
        self,
        descriptors: impl IntoIterator<Item = OwnedFd>,
    ) -> io::Result<WorkerProgram> {
        let mut descriptors = descriptors.into_iter();
        let mut map = || Map::new(descriptors.next().ok_or(io::ErrorKind::InvalidInput)?);
        let (flows, sockets) = (map()?, map()?);
        Ok(WorkerProgram { access: self, flows, sockets })
    }
}

impl WorkerProgram {
    pub(super) fn worker(&self) -> u32 {
        self.access.worker
    }

    pub(super) fn workers(&self) -> u32 {
        self.access.workers
    }

    /// This worker's queues of a device with so many, ascending.
    pub(super) fn queues(&self, of_device: u32) -> impl Iterator<Item = u32> + use<> {
        (self.worker()..of_device).step_by(self.workers().max(1) as usize)
    }

    /// Has the program on a device, with so many queues, for all workers.
    pub(super) fn attach(&self, device: &Device, queues: u32) -> io::Result<Attached> {
        let (answer, answered) = channel();
        let device = device.clone();
        let request = Request::Attach { device: device.clone(), queues, answer };
        let ended = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        self.access.requests.send(request).map_err(|_| io::ErrorKind::BrokenPipe)?;
        let first = answered.recv().map_err(ended)??;
        Ok(Attached { device, queues, first })
    }

    /// From now on what comes to a queue of this worker, and is of a flow of it, goes to this socket.
    pub(super) fn add_socket(
        &self,
        attached: &Attached,
        queue: u32,
        socket: &FrameSocket,
    ) -> io::Result<()> {
        let descriptor = socket.as_fd().as_raw_fd();
        self.sockets.update(&(attached.first + queue).to_ne_bytes(), &descriptor.to_ne_bytes())
    }

    /// From now on this worker receives a flow, as far as it comes to its queues of this device.
    pub(super) fn add_flow(&self, attached: &Attached, flow: &Flow) -> io::Result<()> {
        let Attached { device, queues, first } = attached;
        // `struct owner` of select.bpf.c.
        let owner = [device.index, *queues, *first, self.worker(), self.workers()];
        let owner: Vec<u8> = owner.into_iter().flat_map(u32::to_ne_bytes).collect();
        self.flows.update(flow.bytes(), &owner)
    }

    pub(super) fn remove_flow(&self, flow: &Flow) {
        // It is gone with the program at the latest.
        let _ = self.flows.delete(flow.bytes());
    }
}
