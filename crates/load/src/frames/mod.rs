//! Datagrams of UDP connections as frames, sent and received by AF_XDP sockets in the place of the kernel's IP and UDP.
//! The connections are opened by the kernel's sockets, which hold their ports and receive whatever the program of
//! `select.bpf.c` passes to the kernel.

mod net;
mod packet;
mod program;
#[cfg(test)]
mod tests;

use std::net::IpAddr;

use wirecost_linux::facts;
use wirecost_linux::privilege::{self, Capability};
use wirecost_linux::xdp::{self, Device, FrameSocket, Queues};
use wirecost_model::plan::Plan;
use wirecost_model::program::Program;
use wirecost_program::step;

pub(crate) use self::net::{Carrier, FrameNet};
pub(crate) use self::program::{HostProgram, WorkerProgram};
use crate::engines::Limits;

/// A single worker receives all queues of a device. With more of them, whose frames come to a queue of another worker is the
/// kernel's to receive, so they are for whoever places flows.
pub(crate) static LIMITS: Limits = Limits { default_workers: 1, refuses, lacks };

/// Of the memory that is available, AF_XDP sockets of a host take half at most.
const MEMORY_SHARE: u64 = 2;

/// I/O options that do not act on the calls or the sockets that frames replace.
const OPTIONS: [&str; 1] = ["placement"];

/// What a program has that frames cannot carry; `None` where they carry all of it.
fn refuses(program: &Program) -> Option<String> {
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
fn lacks(plan: &Plan, longest: u64, workers: u32) -> Option<String> {
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
        Ok(Some(device)) => check(&device, address, longest)
            .and_then(|()| {
                let available = facts::available_memory().unwrap_or(u64::MAX);
                check_queues(&device, workers, available).map(drop)
            })
            .err(),
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
            "{name} has no Ethernet frames; use --lab without --queues, or hosts that Ethernet devices connect"
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

/// The longest frame of a device, bytes.
fn longest_frame(device: &Device) -> u32 {
    device.mtu.saturating_add(packet::LINK_HEADER).min(FrameSocket::LONGEST)
}

/// Queues of a device, of which each worker has one at least, and for whose sockets as much memory is available.
fn check_queues(device: &Device, workers: u32, available: u64) -> Result<Queues, String> {
    let name = &device.name;
    let told = xdp::queues(name).map_err(|error| format!("queues of {name}: {error}"))?;
    admit_queues(device, told, workers, available)
}

/// `told`: `None` where the driver does not tell its queues. It has one of each kind at least.
fn admit_queues(
    device: &Device,
    told: Option<Queues>,
    workers: u32,
    available: u64,
) -> Result<Queues, String> {
    let name = &device.name;
    let queues = match told {
        Some(queues) => queues,
        None if workers > 1 => {
            return Err(format!(
                "the driver of {name} does not tell how many queues it has, and each of {workers} workers needs one: use \
                 --workers 1"
            ));
        }
        None => Queues { receive: 1, transmit: 1 },
    };
    let most = queues.both();
    if workers > most {
        return Err(format!(
            "each of {workers} workers needs a receive queue and a transmit queue of its own, and {name} has {} receive and \
             {} transmit queues (ethtool -l {name}): use --workers {}",
            queues.receive,
            queues.transmit,
            most.max(1)
        ));
    }
    let longest = longest_frame(device);
    let receive_only = u64::from(queues.receive.saturating_sub(workers));
    let memory = u64::from(workers) * FrameSocket::memory_of(longest, true)
        + receive_only * FrameSocket::memory_of(longest, false);
    if memory > available / MEMORY_SHARE {
        const MEBIBYTE: u64 = 1 << 20;
        return Err(format!(
            "AF_XDP sockets for the {} receive queues of {name} need {} MiB of memory, and half of what is available is {} MiB: \
             use fewer queues (ethtool -L {name})",
            queues.receive,
            memory.div_ceil(MEBIBYTE),
            available / MEMORY_SHARE / MEBIBYTE
        ));
    }
    Ok(queues)
}
