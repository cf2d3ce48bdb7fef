//! What a control group leaves its processes, as in a container (cgroups(7), version 2).

use std::fs;
use std::path::{Component, Path, PathBuf};

/// Bytes of memory that the groups of this process leave it, all of which bound it; `None` where none has
/// a limit.
pub(crate) fn available_memory() -> Option<u64> {
    available_below(Path::new("/"))
}

/// `root`: where /proc and /sys are.
fn available_below(root: &Path) -> Option<u64> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    // Seen from another cgroup namespace, the path leads out of what is mounted (`/../other`).
    let is_name = |part: &Component<'_>| matches!(part, Component::Normal(_));
    let own: PathBuf = Path::new(own).components().filter(is_name).collect();
    let mounted = root.join("sys/fs/cgroup");
    own.ancestors().filter_map(|group| left_in(&mounted.join(group))).min()
}

/// Of one group. Files in the cache that are not in use count as free: the kernel takes them first.
/// <https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files>
fn left_in(group: &Path) -> Option<u64> {
    let text = |name: &str| fs::read_to_string(group.join(name)).ok();
    let number = |name: &str| text(name)?.trim().parse::<u64>().ok();
    // Without a limit it holds `max`.
    let limit = number("memory.max")?;
    let used = number("memory.current")?;
    let statistics = text("memory.stat").unwrap_or_default();
    let cached = statistics
        .lines()
        .find_map(|line| line.strip_prefix("inactive_file ")?.trim().parse::<u64>().ok());
    Some(limit.saturating_sub(used.saturating_sub(cached.unwrap_or(0))))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn group(root: &Path, path: &str, limit: &str, used: u64, cached: u64) {
        let at = format!("sys/fs/cgroup/{path}");
        write(root, &format!("{at}/memory.max"), &format!("{limit}\n"));
        write(root, &format!("{at}/memory.current"), &format!("{used}\n"));
        let statistics = format!("anon 1\ninactive_file {cached}\nactive_file 7\n");
        write(root, &format!("{at}/memory.stat"), &statistics);
    }

    #[test]
    fn the_tightest_group_bounds_its_processes() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        assert_eq!(available_below(root), None);
        write(root, "proc/self/cgroup", "1:name=systemd:/old\n0::/pod/container\n");
        assert_eq!(available_below(root), None);
        group(root, "pod", "max", 9 * MIB, 0);
        group(root, "pod/container", "max", 5 * MIB, 0);
        assert_eq!(available_below(root), None);
        group(root, "pod/container", &(100 * MIB).to_string(), 30 * MIB, 10 * MIB);
        assert_eq!(available_below(root), Some(80 * MIB));
        group(root, "pod", &(60 * MIB).to_string(), 59 * MIB, 0);
        assert_eq!(available_below(root), Some(MIB));
        group(root, "pod", &(60 * MIB).to_string(), 61 * MIB, 0);
        assert_eq!(available_below(root), Some(0));
    }

    /// In a container the own group is the root of what is mounted.
    #[test]
    fn a_container_is_bounded_by_its_root() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "proc/self/cgroup", "0::/\n");
        group(root.path(), ".", &(50 * MIB).to_string(), 20 * MIB, 0);
        assert_eq!(available_below(root.path()), Some(30 * MIB));
        write(root.path(), "proc/self/cgroup", "0::/../sibling\n");
        assert_eq!(available_below(root.path()), Some(30 * MIB));
    }
}
