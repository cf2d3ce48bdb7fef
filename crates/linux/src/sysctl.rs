//! Kernel settings under /proc/sys, by a name whose parts are separated by dots, or by slashes where a
//! part has dots (sysctl(8)). Those below `net` are of the calling thread's network
//! namespace: <https://elixir.bootlin.com/linux/v6.12/source/net/sysctl_net.c#L31>.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

/// Value of a setting such as `net.ipv4.tcp_rmem`, blanks as single blanks.
///
/// # Errors
/// When the kernel does not have it (`NotFound`) or does not let it be read.
pub fn read(name: &str) -> io::Result<String> {
    fs::read_to_string(path(name)).map(|text| tidy(&text))
}

/// Sets a setting.
///
/// # Errors
/// When the kernel does not have it (`NotFound`) or refuses the value.
pub fn write(name: &str, value: &str) -> io::Result<()> {
    fs::write(path(name), value)
}

/// Whether the calling thread's network namespace lets a setting be changed. The mode decides, also for
/// root: <https://elixir.bootlin.com/linux/v6.12/source/fs/proc/proc_sysctl.c>.
///
/// # Errors
/// When the kernel does not have it (`NotFound`), or does not show it in this namespace.
pub fn is_writable(name: &str) -> io::Result<bool> {
    Ok(fs::metadata(path(name))?.permissions().mode() & 0o200 != 0)
}

/// Value without the tabs between its parts and the end of line.
#[must_use]
pub fn tidy(text: &str) -> String {
    text.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

fn path(name: &str) -> PathBuf {
    let root = PathBuf::from("/proc/sys");
    if name.contains('/') { root.join(name) } else { root.join(name.replace('.', "/")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_tidied() {
        assert_eq!(read("kernel.ostype").unwrap(), "Linux");
        assert!(!is_writable("kernel.ostype").unwrap());
        assert_eq!(read("kernel/ostype").unwrap(), "Linux");
        assert_eq!(path("net/ipv6/conf/eth0.5/mtu"), path("net.ipv6.conf").join("eth0.5/mtu"));
        assert_eq!(tidy("4096\t131072\t33554432\n"), "4096 131072 33554432");
        assert_eq!(read("net.no_such").unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
