//! Datagrams of UDP connections as frames, sent and received by AF_XDP sockets in the place of the kernel's IP and UDP.
//! The connections are opened by the kernel's sockets, which hold their ports and receive whatever the program of
//! `select.bpf.c` passes to the kernel.

mod net;
mod packet;
#[cfg(test)]
mod tests;

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};

use libbpf_rs::{MapCore as _, MapFlags, MapHandle, ObjectBuilder};
use wirecost_linux::privilege::{self, Capability};
use wirecost_linux::xdp::{self, Device, FrameSocket, Mode};
use wirecost_model::plan::Plan;
use wirecost_model::program::Program;
use wirecost_program::step;

pub(crate) use self::net::{Carrier, FrameNet};
use self::packet::Flow;

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/frames_select.bpf.o"));

/// The program and its maps are descriptors, and each worker has a descriptor table of its own.
pub(crate) const MOST_WORKERS: u32 = 1;

/// I/O options that do not act on the calls or the sockets that frames replace.
const OPTIONS: [&str; 1] = ["placement"];

/// What a program has that frames cannot carry; `None` where they carry all of it.
pub(crate) fn refuses(program: &Program) -> Option<String> {
    for act in step::acts(program) {
        let options = &act.options;
        let at = &act.at;
        if let Some(protocol) = options.protocol.as_deref().filter(|&protocol| protocol != "udp") {
            return Some(format!(
                "{at}: it carries protocol=udp only, and this is protocol={protocol}"
            ));
        }
        let other = options.io.iter().map(|(name, _)| name).find(|name| !OPTIONS.contains(name));
        if let Some(option) = other {
            return Some(format!(
                "{at}: {option} is an option of the kernel's sockets and calls, which it does not use"
            ));
        }
    }
    None
}

/// Why this host cannot carry out a plan by frames, as far as that is known before anything starts.
pub(crate) fn lacks(plan: &Plan, longest: u64) -> Option<String> {
    if let Some(reason) = xdp::why_not() {
        return Some(reason);
    }
    let missing = privilege::missing(&[Capability::Bpf, Capability::NetAdmin]);
    if !missing.is_empty() {
        let names: Vec<_> = missing.into_iter().map(Capability::name).collect();
        return Some(format!("its XDP program needs {}", names.join(" and ")));
    }
    let address = plan.data_address.filter(|address| !address.is_unspecified())?;
    match xdp::device_of_address(address.to_canonical()) {
        Ok(None) => None,
        Ok(Some(device)) => check(&device, address, longest).err(),
        Err(error) => Some(format!("device of {address}: {error}")),
    }
}

/// A link-local address is one of each device, and the route to it needs the device, which addresses of frames lack.
fn check_address(address: IpAddr) -> Result<(), String> {
    match address.to_canonical() {
        IpAddr::V6(address) if address.is_unicast_link_local() => Err(format!(
            "{address} is a link-local address, to which it sends no frames; use another address"
        )),
        _ => Ok(()),
    }
}

/// Whether frames of the longest datagram can take this device, and nobody else selects its frames.
fn check(device: &Device, address: IpAddr, longest: u64) -> Result<(), String> {
    check_address(address)?;
    let name = &device.name;
    if device.ethernet.is_none() {
        return Err(format!(
            "{name} has no Ethernet frames; use --lab, or hosts that Ethernet devices connect"
        ));
    }
    if device.has_program {
        return Err(format!(
            "{name} has an XDP program already (ip link show dev {name}), which is not replaced"
        ));
    }
    let overhead = packet::overhead(address);
    let room = device.mtu.min(FrameSocket::LONGEST - packet::LINK_HEADER).saturating_sub(overhead);
    if longest > u64::from(room) {
        let limit = match device.mtu > FrameSocket::LONGEST - packet::LINK_HEADER {
            true => format!("a frame of AF_XDP has at most {} bytes", FrameSocket::LONGEST),
            false => format!("the MTU of {name} is {}", device.mtu),
        };
        return Err(format!(
            "a datagram of {longest} bytes is more than one frame: {limit}, of which IP and UDP take {overhead}. Use size={room} or less"
        ));
    }
    Ok(())
}

/// The program, loaded: what attaches it, and its maps.
fn load_program() -> io::Result<(OwnedFd, MapHandle, MapHandle)> {
    let object = ObjectBuilder::default()
        .name("wirecost_frames")
        .and_then(|builder| builder.open_memory(OBJECT))
        .and_then(|open| open.load())
        .map_err(io::Error::other)?;
    let program = object.progs().next().ok_or(io::ErrorKind::NotFound)?;
    let program = program.as_fd().try_clone_to_owned()?;
    let map = |name: &str| {
        let map = object.maps().find(|map| map.name() == name).ok_or(io::ErrorKind::NotFound)?;
        MapHandle::try_from(&map).map_err(io::Error::other)
    };
    Ok((program, map("flows")?, map("sockets")?))
}

/// The program on a device, until the worker lets go of it. The kernel detaches it however this process ends.
#[derive(Debug)]
struct Attached {
    device: Device,
    _link: OwnedFd,
    flows: MapHandle,
    sockets: MapHandle,
}

impl Attached {
    fn new(device: &Device, mode: Mode) -> io::Result<Self> {
        let (program, flows, sockets) = load_program()?;
        let link = xdp::attach(program, device.index, mode).map_err(|error| {
            let name = &device.name;
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
        })?;
        Ok(Self { device: device.clone(), _link: link, flows, sockets })
    }

    /// From now on what comes to a queue, and is of a flow of this queue, goes to this socket.
    fn add_socket(&self, queue: u32, socket: &FrameSocket) -> io::Result<()> {
        let value = socket.as_fd().as_raw_fd().to_ne_bytes();
        self.sockets.update(&queue.to_ne_bytes(), &value, MapFlags::ANY).map_err(io::Error::other)
    }

    fn add_flow(&self, flow: &Flow, queue: u32) -> io::Result<()> {
        let value = queue.to_ne_bytes();
        self.flows.update(flow.bytes(), &value, MapFlags::ANY).map_err(io::Error::other)
    }

    fn remove_flow(&self, flow: &Flow) {
        // It is gone with the program at the latest.
        let _ = self.flows.delete(flow.bytes());
    }
}
