//! The device and the hardware addresses by which this host reaches another, by route netlink (rtnetlink(7)).

use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::netlink::{NLM_F_DUMP, NLM_F_REQUEST, Netlink, attribute, message, u32_at};
use crate::route::{ip, next_hop, octets};

const RTM_GETLINK: u16 = 18;
const RTM_GETADDR: u16 = 22;
const RTM_GETNEIGH: u16 = 30;

/// Of `struct ifinfomsg`, `struct ifaddrmsg` and `struct ndmsg`.
const LINK: usize = 16;
const ADDRESS: usize = 8;
const NEIGHBOUR: usize = 12;

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_XDP: u16 = 43;
const IFLA_XDP_ATTACHED: u16 = 2;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;

/// <https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/if_arp.h>
const ARPHRD_ETHER: u16 = 1;
/// Reachable, stale, delay, probe, no ARP, permanent: the states in which a hardware address is used
/// (`NUD_VALID` in <https://elixir.bootlin.com/linux/v6.12/source/include/net/neighbour.h>).
const USABLE: u16 = 0x02 | 0x04 | 0x08 | 0x10 | 0x40 | 0x80;

/// How long a neighbour may take to answer: the kernel asks three times, a second apart.
const RESOLUTION: Duration = Duration::from_secs(4);

/// How often a list is asked for that changes meanwhile.
const DUMPS: u32 = 10;

/// A device as far as frames are concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    pub index: u32,
    pub name: String,
    pub mtu: u32,
    /// Its hardware address, where its frames are Ethernet's.
    pub ethernet: Option<[u8; 6]>,
    /// An XDP program is attached to it.
    pub has_program: bool,
}

/// How frames reach a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    pub device: Device,
    /// Of the host, or of the router to it.
    pub neighbour: [u8; 6],
}

/// The way of frames from one address to another.
///
/// # Errors
/// `Unsupported` where the route does not lead through an Ethernet device; `HostUnreachable` where no neighbour answers.
pub fn path(from: IpAddr, to: IpAddr) -> io::Result<Path> {
    let netlink = Netlink::route()?;
    let (index, next) = next_hop(&netlink, Some(from), to)?;
    let device = device(&netlink, index)?;
    if device.ethernet.is_none() {
        let message = format!("{to} is reached by {}, which has no Ethernet frames", device.name);
        return Err(io::Error::new(io::ErrorKind::Unsupported, message));
    }
    let deadline = Instant::now() + RESOLUTION;
    loop {
        if let Some(neighbour) = neighbour(&netlink, index, next)? {
            return Ok(Path { device, neighbour });
        }
        if Instant::now() > deadline {
            let message = format!("{} does not know the hardware address of {next}", device.name);
            return Err(io::Error::new(io::ErrorKind::HostUnreachable, message));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The device that has an address.
///
/// # Errors
/// Those of netlink.
pub fn device_of_address(wanted: IpAddr) -> io::Result<Option<Device>> {
    let netlink = Netlink::route()?;
    let mut index = None;
    let request = message(RTM_GETADDR, NLM_F_REQUEST | NLM_F_DUMP, &[0; ADDRESS]);
    for attempt in 1..=DUMPS {
        let asked = netlink.ask(&request, |body| {
            let attributes = body.get(ADDRESS..).unwrap_or_default();
            let own = attribute(attributes, IFA_LOCAL).or(attribute(attributes, IFA_ADDRESS));
            if own.and_then(ip) == Some(wanted) {
                index = u32_at(body, 4);
            }
        });
        match asked {
            // Addresses changed while they were listed.
            Err(error) if error.kind() == io::ErrorKind::Interrupted && attempt < DUMPS => {}
            asked => {
                asked?;
                break;
            }
        }
    }
    index.map(|index| device(&netlink, index)).transpose()
}

fn device(netlink: &Netlink, index: u32) -> io::Result<Device> {
    let mut body = vec![0; 4];
    body.extend(index.to_ne_bytes());
    body.resize(LINK, 0);
    let mut found = None;
    netlink.ask(&message(RTM_GETLINK, NLM_F_REQUEST, &body), |body| {
        let attributes = body.get(LINK..).unwrap_or_default();
        let name = attribute(attributes, IFLA_IFNAME).unwrap_or_default();
        let name = String::from_utf8_lossy(name).trim_end_matches('\0').to_owned();
        let is_ethernet = body.get(2..4) == Some(&ARPHRD_ETHER.to_ne_bytes());
        let hardware = attribute(attributes, IFLA_ADDRESS).filter(|_| is_ethernet);
        let xdp = attribute(attributes, IFLA_XDP).unwrap_or_default();
        let attached = attribute(xdp, IFLA_XDP_ATTACHED).and_then(|mode| mode.first().copied());
        found = Some(Device {
            index,
            name,
            mtu: attribute(attributes, IFLA_MTU).and_then(|mtu| u32_at(mtu, 0)).unwrap_or(0),
            ethernet: hardware.and_then(|address| address.try_into().ok()),
            has_program: attached.is_some_and(|mode| mode != 0),
        });
    })?;
    found.ok_or_else(|| io::ErrorKind::NotFound.into())
}

fn neighbour(netlink: &Netlink, device: u32, wanted: IpAddr) -> io::Result<Option<[u8; 6]>> {
    let (family, _) = octets(wanted);
    let mut body = vec![family, 0, 0, 0];
    body.resize(NEIGHBOUR, 0);
    let mut found = None;
    let request = message(RTM_GETNEIGH, NLM_F_REQUEST | NLM_F_DUMP, &body);
    let asked = netlink.ask(&request, |body| {
        let attributes = body.get(NEIGHBOUR..).unwrap_or_default();
        let state = body.get(8..10).and_then(|state| state.try_into().ok());
        let usable = state.is_some_and(|state| u16::from_ne_bytes(state) & USABLE != 0);
        let is_wanted = u32_at(body, 4) == Some(device)
            && attribute(attributes, NDA_DST).and_then(ip) == Some(wanted);
        if usable && is_wanted {
            found = attribute(attributes, NDA_LLADDR).and_then(|address| address.try_into().ok());
        }
    });
    match asked {
        // The table changed while it was listed.
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(None),
        asked => asked.map(|()| found),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn loopback_has_no_ethernet_frames() {
        let here = IpAddr::from(Ipv4Addr::LOCALHOST);
        let device = device_of_address(here).unwrap().unwrap();
        assert_eq!((device.name.as_str(), device.ethernet), ("lo", None));
        let error = path(here, here).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        assert!(error.to_string().contains("lo"), "{error}");
    }

    #[test]
    fn an_address_that_no_device_has() {
        assert_eq!(device_of_address(Ipv4Addr::new(198, 18, 255, 1).into()).unwrap(), None);
    }
}
