//! The virtual machines of this user whose agents serve serial ports. What starts one (`make vm`) keeps a
//! file about it in the runtime directory for as long as it runs.

use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr};

use rustix::fs::{Dir, Mode, OFlags, openat};
use serde::Deserialize;

use crate::runtime_dir::{self, RuntimeDirError};

/// Name of the directory in the runtime directory.
const GUESTS: &str = "vm";
const SUFFIX: &str = ".json";
const SCHEMA: &str = "wirecost.vm/1";

/// A virtual machine that runs.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Guest {
    schema: String,
    /// Release of its kernel.
    pub kernel: String,
    /// Its hosts: network namespaces of the guest, whose devices are joined.
    pub hosts: Vec<GuestHost>,
}

/// A host of a virtual machine.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct GuestHost {
    pub name: String,
    pub ipv4: Ipv4Addr,
    /// Its network device.
    pub device: String,
    /// Address of its agent, as [`crate::host::AgentHost::connect`] takes it.
    pub agent: String,
}

/// Why a virtual machine is not known.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    #[error(transparent)]
    Directory(#[from] RuntimeDirError),
    #[error("no virtual machine {name} runs here{}", others(known))]
    None { name: String, known: Vec<String> },
    #[error("cannot read {path}: {source}")]
    Read {
        path: String,
        #[source]
        source: io::Error,
    },
    #[error("{path} is of another version of wirecost: {reason}")]
    Foreign { path: String, reason: String },
}

fn others(known: &[String]) -> String {
    if known.is_empty() { String::new() } else { format!("; running: {}", known.join(", ")) }
}

impl Guest {
    /// The virtual machine of this name.
    ///
    /// # Errors
    /// [`GuestError::None`] names those that run.
    pub fn find(name: &str) -> Result<Self, GuestError> {
        Self::find_in(&runtime_dir::own(GUESTS)?, name)
    }

    fn find_in(directory: &runtime_dir::Directory, name: &str) -> Result<Self, GuestError> {
        let file = format!("{name}{SUFFIX}");
        let path = directory.path().join(&file).display().to_string();
        let failed = |source: io::Error| GuestError::Read { path: path.clone(), source };
        // A name is no path.
        let opened = match name.contains('/') {
            true => Err(rustix::io::Errno::NOENT),
            false => {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                openat(directory.handle(), &file, flags, Mode::empty())
            }
        };
        let mut text = String::new();
        match opened {
            Ok(file) => File::from(file).read_to_string(&mut text).map_err(failed)?,
            Err(rustix::io::Errno::NOENT) => {
                let known = names(directory).map_err(failed)?;
                return Err(GuestError::None { name: name.to_owned(), known });
            }
            Err(error) => return Err(failed(error.into())),
        };
        let foreign = |reason| GuestError::Foreign { path: path.clone(), reason };
        let guest: Self =
            serde_json::from_str(&text).map_err(|error| foreign(error.to_string()))?;
        match guest.schema == SCHEMA {
            true => Ok(guest),
            false => Err(foreign(format!("its schema is {}, not {SCHEMA}", guest.schema))),
        }
    }
}

impl GuestHost {
    /// Address of its device.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        IpAddr::V4(self.ipv4)
    }
}

fn names(directory: &runtime_dir::Directory) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory.handle())? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy();
        names.extend(name.strip_suffix(SUFFIX).map(str::to_owned));
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_guest_is_found_by_its_name() {
        let parent = tempfile::tempdir().unwrap();
        let directory = runtime_dir::make(&parent.path().join("runtime"), GUESTS, 0o700).unwrap();
        let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
        let find = |name: &str| Guest::find_in(&directory, name);
        assert_eq!(find("6.1").unwrap_err().to_string(), "no virtual machine 6.1 runs here");
        write(
            "6.1.json",
            r#"{"schema": "wirecost.vm/1", "kernel": "6.1.0-1-amd64", "pid": 1, "hosts": [
                {"name": "h1", "ipv4": "198.18.0.1", "device": "eth0",
                 "agent": "unix:/run/h1"}]}"#,
        );
        let guest = find("6.1").unwrap();
        assert_eq!(guest.kernel, "6.1.0-1-amd64");
        assert_eq!(guest.hosts[0].address(), IpAddr::from([198, 18, 0, 1]));
        let error = find("6.12").unwrap_err().to_string();
        assert_eq!(error, "no virtual machine 6.12 runs here; running: 6.1");
        assert!(matches!(find("../vm/6.1"), Err(GuestError::None { .. })));
        write("old.json", r#"{"schema": "wirecost.vm/0", "kernel": "", "hosts": []}"#);
        assert!(matches!(find("old"), Err(GuestError::Foreign { .. })));
        write("none.json", "");
        assert!(matches!(find("none"), Err(GuestError::Foreign { .. })));
    }
}
