//! Settings of /proc/sys/net. Those of the machine are not seen, or cannot be changed, in another network
//! namespace than the first: <https://elixir.bootlin.com/linux/v6.12/source/net/core/sysctl_net_core.c>,
//! <https://elixir.bootlin.com/linux/v6.12/source/net/ipv4/sysctl_net_ipv4.c>.

use std::fs;
use std::io;
use std::path::Path;

use wirecost_linux::sysctl;

use super::{Scope, Tunable};
use crate::target::{Refusal, Target};
use crate::values;

#[derive(Debug)]
struct Sysctl {
    name: &'static str,
    /// Its directory below /proc/sys.
    below: &'static str,
    scope: Scope,
    form: Form,
    about: &'static str,
}

#[derive(Debug)]
enum Form {
    /// The least and the most that the kernel takes, as far as all kernels agree.
    Number(u64, u64),
    /// So many numbers.
    Numbers(usize, &'static str),
    Word(&'static str),
}

const INT: u64 = i32::MAX as u64;
const UNSIGNED: u64 = u32::MAX as u64;
const SIZES: Form = Form::Numbers(3, "three numbers of bytes: min, default, max");
const PAGES: Form = Form::Numbers(3, "three numbers of pages: min, pressure, max");

const fn ipv4(name: &'static str, form: Form, about: &'static str) -> Sysctl {
    Sysctl { name, below: "net.ipv4", scope: Scope::Namespace, form, about }
}

const fn ipv4_of_machine(name: &'static str, form: Form, about: &'static str) -> Sysctl {
    Sysctl { name, below: "net.ipv4", scope: Scope::Machine, form, about }
}

const fn core(name: &'static str, form: Form, about: &'static str) -> Sysctl {
    Sysctl { name, below: "net.core", scope: Scope::Machine, form, about }
}

const fn core_of_namespace(name: &'static str, form: Form, about: &'static str) -> Sysctl {
    Sysctl { name, below: "net.core", scope: Scope::Namespace, form, about }
}

#[rustfmt::skip]
pub(super) const LIST: &[&dyn Tunable] = &[
    &ipv4("tcp_rmem", SIZES, "Receive buffer of a TCP socket, which grows up to max."),
    &ipv4("tcp_wmem", SIZES, "Send buffer of a TCP socket, which grows up to max."),
    &ipv4("tcp_congestion_control", Form::Word("the name of a congestion control"), "Congestion control of new TCP connections."),
    &ipv4("tcp_timestamps", Form::Number(0, 2), "Timestamps in TCP segments (RFC 7323): 0 off, 1 on with random offsets, 2 on without."),
    &ipv4("tcp_sack", Form::Number(0, 1), "Selective acknowledgements (RFC 2018)."),
    &ipv4("tcp_pacing_ss_ratio", Form::Number(0, 1000), "Pacing rate during slow start, in percent of window over round-trip time."),
    &ipv4("tcp_pacing_ca_ratio", Form::Number(0, 1000), "Pacing rate during congestion avoidance, in percent of window over round-trip time."),
    &ipv4("tcp_limit_output_bytes", Form::Number(0, INT), "Bytes of a TCP connection that may wait below it, in queueing discipline and device."),
    &ipv4("tcp_notsent_lowat", Form::Number(0, UNSIGNED), "Unsent bytes above which a TCP socket is not writable."),
    &ipv4("tcp_autocorking", Form::Number(0, 1), "Small writes are joined while earlier packets wait in the device."),
    &ipv4("tcp_slow_start_after_idle", Form::Number(0, 1), "The congestion window starts small again after an idle time."),
    &ipv4("tcp_no_metrics_save", Form::Number(0, 1), "A closed connection leaves no metrics for later ones to the same host."),
    &ipv4("tcp_ecn", Form::Number(0, 5), "Explicit congestion notification: 0 off, 1 requested and accepted, 2 accepted; more on kernels with AccECN."),
    &ipv4("tcp_moderate_rcvbuf", Form::Number(0, 1), "The receive buffer of a TCP socket grows with its rate."),
    &ipv4("tcp_window_scaling", Form::Number(0, 1), "Windows beyond 64 KiB (RFC 7323)."),
    &ipv4("tcp_min_tso_segs", Form::Number(1, 255), "Least number of segments in a TSO frame of a paced connection."),
    &ipv4("tcp_tso_win_divisor", Form::Number(0, INT), "Share of the congestion window that one TSO frame may take: 1 / this number."),
    &ipv4("tcp_tso_rtt_log", Form::Number(0, 31), "TSO frames grow on round-trip times below 2 to this power, in microseconds."),
    &ipv4("tcp_mtu_probing", Form::Number(0, 2), "Path MTU discovery by TCP itself: 0 off, 1 after a black hole, 2 on."),
    &ipv4("tcp_reordering", Form::Number(1, INT), "Packets out of order that TCP first takes for reordering rather than loss."),
    &ipv4("tcp_comp_sack_delay_ns", Form::Number(0, UNSIGNED), "Longest delay of a selective acknowledgement that waits for others, in nanoseconds."),
    &ipv4("tcp_comp_sack_nr", Form::Number(0, 255), "Selective acknowledgements that may wait for others; 0 sends each."),
    &ipv4("tcp_fastopen", Form::Number(0, UNSIGNED), "TCP Fast Open, as a mask: 1 of connecting, 2 of accepting sockets."),
    &ipv4("tcp_syncookies", Form::Number(0, 2), "SYN cookies: 0 off, 1 when the queue is full, 2 always."),
    &ipv4("tcp_max_syn_backlog", Form::Number(1, INT), "Connections that may wait for the last packet of their handshake."),
    &ipv4("tcp_early_demux", Form::Number(0, 1), "The socket of a received TCP packet is looked up before routing."),
    &ipv4("udp_early_demux", Form::Number(0, 1), "The socket of a received UDP packet is looked up before routing."),
    &ipv4("udp_rmem_min", Form::Number(1, INT), "Minimum receive buffer of a UDP socket under memory pressure (udp_mem), in bytes."),
    &ipv4("udp_wmem_min", Form::Number(1, INT), "No effect: UDP does not account for transmit memory."),
    &core_of_namespace("optmem_max", Form::Number(0, INT), "Memory of a socket for options and zero-copy notifications, in bytes; of the machine before Linux 6.8."),
    &core_of_namespace("somaxconn", Form::Number(1, INT), "Maximum length of a socket's accept queue (listen backlog)."),
    &ipv4_of_machine("tcp_mem", PAGES, "Memory of all TCP sockets."),
    &ipv4_of_machine("udp_mem", PAGES, "Memory of all UDP sockets."),
    &core("rmem_max", Form::Number(1, INT), "Largest receive buffer that a program may ask for, in bytes."),
    &core("wmem_max", Form::Number(1, INT), "Largest send buffer that a program may ask for, in bytes."),
    &core("rmem_default", Form::Number(1, INT), "Receive buffer of a socket that is not TCP, in bytes."),
    &core("wmem_default", Form::Number(1, INT), "Send buffer of a socket that is not TCP, in bytes."),
    &core("netdev_max_backlog", Form::Number(0, INT), "Maximum length of each CPU's backlog queue (RPS, loopback, veth, drivers without NAPI), in packets."),
    &core("netdev_budget", Form::Number(1, INT), "Packets that one run of the NET_RX softirq processes."),
    &core("netdev_budget_usecs", Form::Number(1, INT), "Time for which one run of the NET_RX softirq processes packets, in microseconds."),
    &core("dev_weight", Form::Number(1, INT), "Packets that one poll of a CPU's backlog queue processes."),
    &core("gro_normal_batch", Form::Number(1, INT), "Packets that GRO hands up together."),
    &core("skb_defer_max", Form::Number(0, INT), "Maximum number of packets queued to be freed on the CPU that allocated them."),
    &core("busy_poll", Form::Number(0, INT), "Microseconds for which poll and select busy poll."),
    &core("busy_read", Form::Number(0, INT), "Microseconds for which reads busy poll."),
    &core("rps_sock_flow_entries", Form::Number(0, 1 << 29), "Flows that receive flow steering remembers; a power of two."),
    &core("default_qdisc", Form::Word("the name of a queueing discipline"), "Queueing discipline of new devices."),
];

/// Is in every kernel, in the first network namespace only.
const OF_MACHINE: &str = "net.core.netdev_max_backlog";

impl Sysctl {
    fn path(&self) -> String {
        format!("{}.{}", self.below, self.name)
    }

    /// In a copy of /proc.
    fn file(&self) -> String {
        format!("proc/sys/{}", self.path().replace('.', "/"))
    }

    fn check_writable(&self, target: &Target) -> Result<(), Refusal> {
        let path = self.path();
        let (writable, first) =
            target.run(|| (sysctl::is_writable(&path), sysctl::is_writable(OF_MACHINE).is_ok()))?;
        let unsupported = |why: &str| Err(Refusal::Unsupported(why.to_owned()));
        match writable {
            Ok(true) => Ok(()),
            Ok(false) if first => {
                unsupported(&format!("this kernel does not let `{path}` be changed"))
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Refusal::failed(format!("look at `{path}`"))(error))
            }
            Err(_) if first => unsupported(&format!("this kernel has no `{path}`")),
            _ if self.scope == Scope::Machine => unsupported(&format!(
                "`{path}` is of the whole machine, and can be changed only in its first network namespace"
            )),
            _ => unsupported(&format!("this kernel has no `{path}` of a network namespace")),
        }
    }
}

impl Tunable for Sysctl {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn scope(&self) -> Scope {
        self.scope
    }

    fn sysctl(&self) -> Option<String> {
        Some(self.path())
    }

    fn values(&self) -> String {
        match self.form {
            Form::Number(0, 1) => "0 or 1".to_owned(),
            Form::Number(least, most) => format!("a number from {least} to {most}"),
            Form::Numbers(_, what) | Form::Word(what) => what.to_owned(),
        }
    }

    fn check(&self, value: &str) -> Option<String> {
        match self.form {
            Form::Number(least, most) => values::number(value, least, most),
            Form::Numbers(count, _) => values::numbers(value, count),
            Form::Word(_) => values::word(value),
        }
    }

    fn read(&self, target: &Target) -> Result<String, Refusal> {
        if target.root() != Path::new("/") {
            return target.read_file(&self.file()).map(|text| sysctl::tidy(&text));
        }
        self.check_writable(target)?;
        let path = self.path();
        target.run(|| sysctl::read(&path))?.map_err(Refusal::failed(format!("read `{path}`")))
    }

    fn write(&self, target: &Target, value: &str) -> Result<(), Refusal> {
        if target.root() != Path::new("/") {
            return target.write_file(&self.file(), value);
        }
        self.check_writable(target)?;
        let path = self.path();
        let written = target.run(|| sysctl::write(&path, value))?;
        written.map_err(|source| match (self.name, source.kind()) {
            ("tcp_congestion_control", io::ErrorKind::NotFound) => Refusal::Unsupported(format!(
                "this kernel has no congestion control `{value}`{}",
                known()
            )),
            ("default_qdisc", io::ErrorKind::NotFound) => {
                Refusal::Unsupported(format!("this kernel has no queueing discipline `{value}`"))
            }
            _ => Refusal::failed(format!("set `{path}`"))(source),
        })
    }
}

/// What there is instead.
fn known() -> String {
    let known = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    known.map(|names| format!("; it has {}", names.trim())).unwrap_or_default()
}
