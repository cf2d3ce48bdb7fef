//! Families of generic netlink, such as `ethtool` and `netdev`: the kernel numbers them when it boots.

use std::io;

use rustix::net::netlink::GENERIC;

use crate::netlink::{self, NLM_F_DUMP, NLM_F_REQUEST, Netlink, attribute, with_header};

// <https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/genetlink.h>
const GENL_ID_CTRL: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
/// Of `struct genlmsghdr`.
const HEADER: usize = 4;

/// A socket for one family, of the network namespace of the thread that opened it.
#[derive(Debug)]
pub(crate) struct Family {
    netlink: Netlink,
    id: u16,
    version: u8,
}

impl Family {
    /// # Errors
    /// `NotFound` where this kernel has no such family.
    pub(crate) fn open(name: &str, version: u8) -> io::Result<Self> {
        let netlink = Netlink::open(GENERIC)?;
        let name = [name.as_bytes(), b"\0"].concat();
        let body = body(CTRL_CMD_GETFAMILY, 1, &with_header(CTRL_ATTR_FAMILY_NAME, &name));
        let mut id = None;
        netlink.ask(&netlink::message(GENL_ID_CTRL, NLM_F_REQUEST, &body), |answer| {
            id = answer.get(HEADER..).and_then(|attributes| {
                Some(u16::from_ne_bytes(
                    attribute(attributes, CTRL_ATTR_FAMILY_ID)?.try_into().ok()?,
                ))
            });
        })?;
        Ok(Self { netlink, id: id.ok_or(io::ErrorKind::NotFound)?, version })
    }

    /// Asks about one object; hands on the attributes of the answer.
    ///
    /// # Errors
    /// The kernel's own.
    pub(crate) fn get(
        &self,
        command: u8,
        attributes: &[u8],
        each: impl FnMut(&[u8]),
    ) -> io::Result<()> {
        self.ask(command, NLM_F_REQUEST, attributes, each)
    }

    /// Asks about all objects of the namespace; hands on the attributes of each.
    ///
    /// # Errors
    /// The kernel's own.
    pub(crate) fn dump(
        &self,
        command: u8,
        attributes: &[u8],
        each: impl FnMut(&[u8]),
    ) -> io::Result<()> {
        self.ask(command, NLM_F_REQUEST | NLM_F_DUMP, attributes, each)
    }

    fn ask(
        &self,
        command: u8,
        flags: u16,
        attributes: &[u8],
        mut each: impl FnMut(&[u8]),
    ) -> io::Result<()> {
        let request = netlink::message(self.id, flags, &body(command, self.version, attributes));
        self.netlink.ask(&request, |answer| each(answer.get(HEADER..).unwrap_or_default()))
    }
}

fn body(command: u8, version: u8, attributes: &[u8]) -> Vec<u8> {
    [&[command, version, 0, 0][..], attributes].concat()
}

/// An attribute that is a 32-bit number.
pub(crate) fn u32_of(attributes: &[u8], kind: u16) -> Option<u32> {
    Some(u32::from_ne_bytes(attribute(attributes, kind)?.try_into().ok()?))
}

/// An attribute that is a number of 32 or 64 bits, as the kernel writes it where it fits
/// (`nla_put_uint` in <https://elixir.bootlin.com/linux/v6.12/source/include/net/netlink.h>).
pub(crate) fn uint_of(attributes: &[u8], kind: u16) -> Option<u64> {
    let bytes = attribute(attributes, kind)?;
    match bytes.len() {
        4 => Some(u32::from_ne_bytes(bytes.try_into().ok()?).into()),
        8 => Some(u64::from_ne_bytes(bytes.try_into().ok()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_found_by_its_name() {
        // The controller itself is one.
        let family = Family::open("nlctrl", 2).unwrap();
        assert_eq!(family.id, GENL_ID_CTRL);
        let mut known = Vec::new();
        family
            .dump(CTRL_CMD_GETFAMILY, &[], |attributes| {
                let name = attribute(attributes, CTRL_ATTR_FAMILY_NAME).unwrap();
                known.push(String::from_utf8_lossy(name).trim_end_matches('\0').to_owned());
            })
            .unwrap();
        assert!(known.iter().any(|name| name == "nlctrl"), "{known:?}");
        let none = Family::open("no-such-family", 1).unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn numbers_are_as_long_as_they_need_to_be() {
        let attributes =
            [with_header(1, &7u32.to_ne_bytes()), with_header(2, &(1u64 << 40).to_ne_bytes())]
                .concat();
        assert_eq!((uint_of(&attributes, 1), u32_of(&attributes, 1)), (Some(7), Some(7)));
        assert_eq!((uint_of(&attributes, 2), u32_of(&attributes, 2)), (Some(1 << 40), None));
        assert_eq!(uint_of(&attributes, 3), None);
        assert_eq!(uint_of(&with_header(1, b"abc"), 1), None);
    }
}
