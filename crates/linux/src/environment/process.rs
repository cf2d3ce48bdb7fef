//! Rights and limits of the calling thread.

use rustix::process::{Resource, getrlimit};
use wirecost_model::environment::{Process, Usability};

use super::files::{Files, field};
use crate::thread::allowed_cpus;
use crate::uring;

/// Names of the bits, lowest first:
/// <https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/capability.h>.
const CAPABILITIES: [&str; 41] = [
    "cap_chown",
    "cap_dac_override",
    "cap_dac_read_search",
    "cap_fowner",
    "cap_fsetid",
    "cap_kill",
    "cap_setgid",
    "cap_setuid",
    "cap_setpcap",
    "cap_linux_immutable",
    "cap_net_bind_service",
    "cap_net_broadcast",
    "cap_net_admin",
    "cap_net_raw",
    "cap_ipc_lock",
    "cap_ipc_owner",
    "cap_sys_module",
    "cap_sys_rawio",
    "cap_sys_chroot",
    "cap_sys_ptrace",
    "cap_sys_pacct",
    "cap_sys_admin",
    "cap_sys_boot",
    "cap_sys_nice",
    "cap_sys_resource",
    "cap_sys_time",
    "cap_sys_tty_config",
    "cap_mknod",
    "cap_lease",
    "cap_audit_write",
    "cap_audit_control",
    "cap_setfcap",
    "cap_mac_override",
    "cap_mac_admin",
    "cap_syslog",
    "cap_wake_alarm",
    "cap_block_suspend",
    "cap_audit_read",
    "cap_perfmon",
    "cap_bpf",
    "cap_checkpoint_restore",
];

pub(super) fn read(files: &Files<'_>) -> Process {
    let quota = quota(files);
    Process {
        capabilities: files.text("proc/thread-self/status").as_deref().and_then(capabilities),
        // Users of a container are mapped to others; those of the machine to themselves.
        rights_hold_everywhere: files
            .text("proc/thread-self/uid_map")
            .map(|map| map.split_ascii_whitespace().eq(["0", "0", "4294967295"])),
        allowed_cpus: allowed_cpus().ok(),
        quota_cpus: quota.as_ref().map(|(cpus, _)| *cpus),
        quota_value: quota.as_ref().and_then(|(_, setting)| files.text(&setting[1..])),
        quota_setting: quota.map(|(_, setting)| setting),
        // No limit is the largest one.
        descriptors: Some(getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX)),
        io_uring: Some(match uring::available() {
            Ok(()) => Usability::Usable,
            Err(reason) => Usability::Unusable(reason.to_string()),
        }),
        // What loads BPF programs tells.
        bpf_congestion: None,
    }
}

fn capabilities(status: &str) -> Option<Vec<String>> {
    let effective = u64::from_str_radix(&field(status, "CapEff")?, 16).ok()?;
    let has = |(bit, _): &(usize, &&str)| effective >> bit & 1 == 1;
    Some(CAPABILITIES.iter().enumerate().filter(has).map(|(_, name)| (*name).to_owned()).collect())
}

/// The tightest limit of CPU time among the control groups that the process is in, and the file
/// that sets it: `cpu.max` of the unified hierarchy, `cpu.cfs_quota_us` of the older one
/// (<https://docs.kernel.org/admin-guide/cgroup-v2.html#cpu-interface-files>).
fn quota(files: &Files<'_>) -> Option<(f64, String)> {
    let mut tightest: Option<(f64, String)> = None;
    for line in files.text("proc/thread-self/cgroup")?.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, group) = (parts.next()?, parts.next()?);
        let unified = controllers.is_empty();
        if !unified && !controllers.split(',').any(|controller| controller == "cpu") {
            continue;
        }
        let roots: &[&str] = match unified {
            true => &["sys/fs/cgroup", "sys/fs/cgroup/unified"],
            false => &["sys/fs/cgroup/cpu", "sys/fs/cgroup/cpu,cpuacct"],
        };
        // A limit of a group holds for all below it.
        for group in std::path::Path::new(group).ancestors() {
            for root in roots {
                let group = format!("{root}{}", group.display());
                let group = group.trim_end_matches('/');
                let found =
                    if unified { unified_quota(files, group) } else { quota_v1(files, group) };
                if let Some((cpus, setting)) = found
                    && tightest.as_ref().is_none_or(|(known, _)| cpus < *known)
                {
                    tightest = Some((cpus, format!("/{setting}")));
                }
            }
        }
    }
    tightest
}

fn unified_quota(files: &Files<'_>, group: &str) -> Option<(f64, String)> {
    let setting = format!("{group}/cpu.max");
    let text = files.text(&setting)?;
    // `max 100000` where there is no limit.
    let (quota, period) = text.split_once(' ')?;
    ratio(quota.parse().ok()?, period.parse().ok()?).map(|cpus| (cpus, setting))
}

fn quota_v1(files: &Files<'_>, group: &str) -> Option<(f64, String)> {
    let setting = format!("{group}/cpu.cfs_quota_us");
    // -1, which is no number of microseconds, where there is no limit.
    let quota = files.number(&setting)?;
    let period = files.number(&format!("{group}/cpu.cfs_period_us"))?;
    ratio(quota, period).map(|cpus| (cpus, setting))
}

fn ratio(quota: u64, period: u64) -> Option<f64> {
    (period > 0).then(|| quota as f64 / period as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::tests::fixture;

    #[test]
    fn rights_are_named() {
        let names = capabilities("Name:\tx\nCapEff:\t000000c000001000\n").unwrap();
        assert_eq!(names, ["cap_net_admin", "cap_perfmon", "cap_bpf"]);
        assert_eq!(capabilities("CapEff:\t0\n"), Some(vec![]));
        assert_eq!(capabilities("Name:\tx\n"), None);
    }

    #[test]
    fn the_tightest_quota_counts() {
        let root = fixture(&[
            ("proc/thread-self/cgroup", "3:cpu,cpuacct:/old\n2:pids:/\n0::/a/b\n"),
            ("sys/fs/cgroup/a/cpu.max", "150000 100000\n"),
            ("sys/fs/cgroup/a/b/cpu.max", "max 100000\n"),
            ("sys/fs/cgroup/cpu,cpuacct/old/cpu.cfs_quota_us", "200000\n"),
            ("sys/fs/cgroup/cpu,cpuacct/old/cpu.cfs_period_us", "100000\n"),
        ]);
        let tightest = (1.5, "/sys/fs/cgroup/a/cpu.max".to_owned());
        assert_eq!(quota(&Files { root: root.path() }), Some(tightest));
    }

    #[test]
    fn without_a_limit_there_is_no_quota() {
        let root = fixture(&[
            ("proc/thread-self/cgroup", "1:cpu:/\n0::/\n"),
            ("sys/fs/cgroup/cpu.max", "max 100000\n"),
            ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"),
            ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
        ]);
        assert_eq!(quota(&Files { root: root.path() }), None);
    }
}
