//! Typed access to the kernel interfaces that wirecost needs. Mechanism only: what to do with them
//! is decided elsewhere.

pub mod allocations;
mod cgroup;
pub mod clock;
pub mod confine;
pub mod cpu_list;
pub mod datagrams;
pub mod descriptors;
pub mod environment;
pub mod ethtool;
pub mod facts;
#[cfg(fuzzing)]
pub mod fuzzing;
pub mod interrupts;
pub mod ipsec;
pub mod kallsyms;
pub mod ktls;
pub mod link;
pub mod mptcp;
pub mod net_counters;
pub mod net_dev;
mod netlink;
pub mod netns;
pub mod packet_filter;
pub mod perf;
pub mod plain_option;
pub mod privilege;
pub mod proc_stat;
pub mod process;
pub mod process_time;
pub mod rate_limit;
mod raw_option;
pub mod rps;
pub mod sctp;
pub mod sock_diag;
pub mod socket_memory;
pub mod sockopt;
pub mod softnet;
pub mod spawn;
pub mod sysctl;
pub mod tcp_info;
pub mod thread;
pub mod tsc;
pub mod tun;
pub mod uring;
pub mod vsock;
pub mod zerocopy;
