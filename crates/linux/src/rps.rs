//! Receive packet steering: which CPUs do the receive work of a device
//! (<https://docs.kernel.org/networking/scaling.html#rps-receive-packet-steering>).

use std::ffi::CString;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{Dir, Mode, OFlags, openat};

use crate::cpu_list::{format_mask, parse_mask};
use crate::netns::{NetNs, NetNsError};

/// Steers the receive work of all queues of a device to `cpus` (none: the CPU that took the
/// interrupt, or that sent, keeps it). Returns the effective CPUs: the kernel leaves out
/// isolated ones without a word.
///
/// # Errors
/// [`RpsError`] names the device and the cause.
pub fn steer(namespace: &NetNs, device: &str, cpus: &[u32]) -> Result<Vec<u32>, RpsError> {
    let mask = format_mask(cpus);
    each_queue(namespace, device, |queue| {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let file = openat(queue, "rps_cpus", flags, Mode::empty())?;
        std::fs::File::from(file).write_all(mask.as_bytes())
    })?;
    // All queues were given the same; the first says what became of it.
    Ok(steering(namespace, device)?.into_iter().next().unwrap_or_default())
}

/// CPUs to which each receive queue of a device is steered.
///
/// # Errors
/// [`RpsError`] names the device and the cause.
pub fn steering(namespace: &NetNs, device: &str) -> Result<Vec<Vec<u32>>, RpsError> {
    each_queue(namespace, device, |queue| {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let mut mask = String::new();
        std::fs::File::from(openat(queue, "rps_cpus", flags, Mode::empty())?)
            .read_to_string(&mut mask)?;
        parse_mask(&mask).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, format!("`{}` is no CPU mask", mask.trim()))
        })
    })
}

/// Why receive work could not be steered.
#[derive(Debug, thiserror::Error)]
pub enum RpsError {
    #[error("failed to steer the receive work of `{device}` in `{namespace}`")]
    Queue { device: String, namespace: String, source: io::Error },
    #[error(transparent)]
    Namespace(#[from] NetNsError),
}

/// Runs `act` on the directory of each receive queue.
fn each_queue<T>(
    namespace: &NetNs,
    device: &str,
    act: impl Fn(BorrowedFd<'_>) -> io::Result<T>,
) -> Result<Vec<T>, RpsError> {
    let sysfs = namespace.sysfs()?;
    let visit = || -> io::Result<Vec<T>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let path = format!("class/net/{device}/queues");
        let queues = openat(&sysfs, path, flags, Mode::empty())?;
        let mut names: Vec<CString> = Vec::new();
        for entry in Dir::read_from(&queues)? {
            let name = entry?.file_name().to_owned();
            if name.to_bytes().starts_with(b"rx-") {
                names.push(name);
            }
        }
        names.sort();
        names.iter().map(|name| act(openat(&queues, name, flags, Mode::empty())?.as_fd())).collect()
    };
    visit().map_err(|source| RpsError::Queue {
        device: device.to_owned(),
        namespace: namespace.name().to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Links;
    use crate::netns::NetNsGuard;
    use crate::privilege::skip_without_namespaces;

    #[test]
    fn what_was_steered_is_read_back() {
        if skip_without_namespaces("rps::what_was_steered_is_read_back") {
            return;
        }
        let name = format!("wirecost-test-{}-rps", std::process::id());
        let _guard = NetNsGuard::new(NetNs::create(&name).unwrap());
        let namespace = NetNs::open(&name).unwrap();
        Links::of(&namespace).unwrap().add_veth("eth0", "eth1", &namespace).unwrap();
        let cpu = *crate::thread::allowed_cpus().unwrap().last().unwrap();
        assert_eq!(steer(&namespace, "eth0", &[cpu]).unwrap(), [cpu]);
        assert!(steering(&namespace, "eth0").unwrap().iter().all(|cpus| cpus == &[cpu]));
        assert!(steer(&namespace, "eth0", &[]).unwrap().is_empty());
        assert!(steering(&namespace, "eth1").unwrap().iter().all(Vec::is_empty));
        assert!(matches!(steering(&namespace, "eth9"), Err(RpsError::Queue { .. })));
    }
}
