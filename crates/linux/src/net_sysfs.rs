//! Files of /sys that show a network namespace: its devices and their queues.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

use rustix::fs::{Dir, Mode, OFlags, openat};

use crate::netns::{NetNs, NetNsError};

/// The /sys of a network namespace.
#[derive(Debug)]
pub struct NetSysfs(OwnedFd);

impl NetSysfs {
    /// # Errors
    /// Those of [`NetNs::sysfs`].
    pub fn of(namespace: &NetNs) -> Result<Self, NetNsError> {
        namespace.sysfs().map(Self)
    }

    /// Text of a file, without the end of line.
    ///
    /// # Errors
    /// Those of open(2) and read(2).
    pub fn read(&self, path: &str) -> io::Result<String> {
        let file = openat(&self.0, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let mut text = String::new();
        File::from(file).read_to_string(&mut text)?;
        text.truncate(text.trim_end().len());
        Ok(text)
    }

    /// Writes a file in one call, as the kernel wants it.
    ///
    /// # Errors
    /// Those of open(2) and write(2).
    pub fn write(&self, path: &str, text: &str) -> io::Result<()> {
        let file = openat(&self.0, path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
        // An empty text would make no call at all.
        let text = if text.is_empty() { "\n" } else { text };
        File::from(file).write_all(text.as_bytes())
    }

    /// Names in a directory, sorted.
    ///
    /// # Errors
    /// Those of open(2) and getdents(2).
    pub fn names(&self, path: &str) -> io::Result<Vec<String>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(&self.0, path, flags, Mode::empty())?;
        let mut names = Vec::new();
        for entry in Dir::read_from(directory)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if !name.starts_with('.') {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Links;
    use crate::netns::NetNsGuard;
    use crate::privilege::skip_without_namespaces;

    #[test]
    fn files_of_a_device_are_read_and_written() {
        if skip_without_namespaces("net_sysfs::files_of_a_device_are_read_and_written") {
            return;
        }
        let name = format!("wirecost-test-{}-net-sysfs", std::process::id());
        let _guard = NetNsGuard::new(NetNs::create(&name).unwrap());
        let namespace = NetNs::open(&name).unwrap();
        Links::of(&namespace).unwrap().add_veth("eth0", "eth1", &namespace).unwrap();
        let sysfs = NetSysfs::of(&namespace).unwrap();
        assert_eq!(sysfs.names("class/net").unwrap(), ["eth0", "eth1", "lo"]);
        let path = "class/net/eth0/gro_flush_timeout";
        sysfs.write(path, "20000").unwrap();
        assert_eq!(sysfs.read(path).unwrap(), "20000");
        assert!(sysfs.write(path, "x").is_err());
        assert!(sysfs.read("class/net/eth9/mtu").is_err());
    }
}
