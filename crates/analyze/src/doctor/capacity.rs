//! What so many connections ask of a host: one end of each, open at the same time. Numbers come
//! from this host's settings and from the kernel's own sizes of what it keeps of a connection.

use wirecost_model::doctor::{Capacity, Need, Unit};
use wirecost_model::environment::Environment;

use super::settings::{not_here, set};

/// What the kernel keeps of one open TCP connection, and bytes of it where its allocator does not
/// say (Linux 6.12, x86-64): the socket, its inode, file and directory entry, and its place in an
/// epoll.
const OBJECTS: [(&str, u64); 6] = [
    ("TCP", 2432),
    ("sock_inode_cache", 832),
    ("filp", 232),
    ("dentry", 192),
    ("eventpoll_epi", 128),
    ("eventpoll_pwq", 72),
];

/// What wirecost keeps of one connection beside its buffers, at most.
pub const USER_BYTES: u64 = 2048;

/// Descriptors of a worker that are no connections.
const OTHER_DESCRIPTORS: u64 = 32;

/// Ports of the peer that connections of one service are spread over, at most.
const PEER_PORTS: u64 = 1024;
/// Connections that wirecost opens to one port of the peer before it takes another.
const CONNECTIONS_OF_PORT: u64 = 2048;

/// Connections of one worker that are on their way at once.
const OPENING: u64 = 256;

/// What `connections` need of this host, and what it has.
pub fn capacity(environment: &Environment, connections: u64) -> Capacity {
    let needs = vec![
        descriptors(environment, connections),
        open_files(environment, connections),
        ports(environment, connections),
        accept_queue(environment, connections),
        tracking(environment, connections),
        buffers(environment, connections),
        memory(environment, connections),
    ];
    Capacity { connections, needs: needs.into_iter().flatten().collect() }
}

/// Each worker has a table of descriptors of its own.
fn descriptors(environment: &Environment, connections: u64) -> Option<Need> {
    let cpus = environment.process.allowed_cpus.as_ref().map(Vec::len);
    let cpus = cpus.or(environment.cpu.threads.map(|n| n as usize))? as u64;
    let workers = cpus.max(1);
    let each = connections.div_ceil(workers) + OTHER_DESCRIPTORS;
    let limit = environment.process.descriptors;
    let mut need = Need::new("descriptors", each, Unit::Count, limit).why(format!(
        "one per connection, spread over {workers} workers, each with its own descriptor table"
    ));
    if need.enough == Some(false) {
        let most = limit.unwrap_or(0).saturating_sub(OTHER_DESCRIPTORS).max(1);
        need.advice = Some(format!(
            "run this in the shell that starts wirecost or its agent; or use --workers {}",
            connections.div_ceil(most)
        ));
        let name = "fs.nr_open";
        if let Some(now) = environment.sysctl_number(name).filter(|&now| (now as u64) < each) {
            need = need.fix(set(name, each)).undo(set(name, now));
        }
        let limits = |n: u64| format!("prlimit --pid $$ --nofile={n}:{n}");
        need = need.fix(limits(each)).undo(limits(limit.unwrap_or(each)));
    }
    Some(need)
}

fn open_files(environment: &Environment, connections: u64) -> Option<Need> {
    let name = "fs.file-max";
    let limit = environment.sysctl_number(name);
    let need = Need::new("open files", connections, Unit::Count, limit.map(|n| n as u64))
        .why("one per connection; the limit is that of the machine");
    Some(settable(need, name, limit))
}

/// A connection is known by both addresses and both ports, so that a local port serves once for
/// each port of the peer.
fn ports(environment: &Environment, connections: u64) -> Option<Need> {
    let name = "net.ipv4.ip_local_port_range";
    let range = environment.sysctl_numbers(name);
    let ports = range.as_deref().and_then(|range| match range {
        [first, last] => u64::try_from(last - first + 1).ok(),
        _ => None,
    });
    let of_peer = connections.div_ceil(CONNECTIONS_OF_PORT).clamp(1, PEER_PORTS);
    let each = connections.div_ceil(of_peer);
    let mut need = Need::new("local ports", each, Unit::Count, ports).why(format!(
        "of the connecting side, for each of {of_peer} ports of the peer, which wirecost opens \
         unless the profile sets port="
    ));
    if need.enough == Some(false) {
        need.advice = Some(
            "more addresses of the peer (several hosts or groups) also reduce this number"
                .to_owned(),
        );
        let now = environment.sysctl(name).unwrap_or_default();
        need = need.fix(set(name, "1024 65535")).undo(set(name, now));
    }
    if range.is_none() {
        need = need.why(not_here(name));
    }
    Some(need)
}

fn accept_queue(environment: &Environment, connections: u64) -> Option<Need> {
    let name = "net.core.somaxconn";
    let workers = environment.process.allowed_cpus.as_ref().map_or(1, Vec::len) as u64;
    let limit = environment.sysctl_number(name);
    let need = Need::new(
        "accept queue",
        connections.min(workers * OPENING),
        Unit::Count,
        limit.map(|n| n as u64),
    )
    .why(format!(
        "of the accepting side: each worker of the other side opens {OPENING} connections at a time"
    ));
    Some(settable(need, name, limit))
}

/// Only where the module that tracks connections is there.
fn tracking(environment: &Environment, connections: u64) -> Option<Need> {
    let name = "net.netfilter.nf_conntrack_max";
    let limit = environment.sysctl_number(name)?;
    let need = Need::new("tracked connections", connections, Unit::Count, Some(limit as u64))
        .why("a stateful firewall has an entry for each connection");
    Some(settable(need, name, Some(limit)))
}

/// TCP may not queue more than this, of all connections together.
fn buffers(environment: &Environment, connections: u64) -> Option<Need> {
    let name = "net.ipv4.tcp_mem";
    let least = |name: &str| Some(*environment.sysctl_numbers(name)?.first()? as u64);
    let each = least("net.ipv4.tcp_rmem")? + least("net.ipv4.tcp_wmem")?;
    let page = environment.memory.page_bytes?;
    let pages = environment.sysctl_numbers(name);
    let limit = match pages.as_deref() {
        Some(&[_, _, most]) => Some((most as u64).saturating_mul(page)),
        _ => None,
    };
    let needed = connections * each;
    let mut need = Need::new("TCP buffers", needed, Unit::Bytes, limit).why(format!(
        "the minimum of tcp_rmem and tcp_wmem, {each} bytes per connection that transfers data; idle \
         connections need none, `wndsz` and long round trips need more"
    ));
    if need.enough == Some(false) {
        let most = needed.div_ceil(page);
        need = need
            .fix(set(name, format!("{} {} {most}", most / 2, most / 4 * 3)))
            .undo(set(name, environment.sysctl(name).unwrap_or_default()));
    }
    Some(need)
}

/// Of the kernel and of the program, without buffers.
fn memory(environment: &Environment, connections: u64) -> Option<Need> {
    let known = environment.memory.slab_bytes.as_ref();
    let size = |(name, usual): &(&str, u64)| {
        known.and_then(|slabs| slabs.get(*name)).copied().unwrap_or(*usual)
    };
    let kernel: u64 = OBJECTS.iter().map(size).sum();
    let need = Need::new(
        "memory",
        connections * (kernel + USER_BYTES),
        Unit::Bytes,
        environment.memory.available_bytes,
    )
    .why(format!(
        "per connection {kernel} bytes in the kernel ({}) and at most {USER_BYTES} in wirecost, without \
         buffers",
        if known.is_some() { "from /proc/slabinfo" } else { "typical of Linux 6.12" }
    ));
    Some(need)
}

/// With the commands that set a limit of one number to what is needed, where it is too low.
fn settable(need: Need, name: &str, now: Option<i64>) -> Need {
    match now {
        Some(now) if need.enough == Some(false) => {
            let needed = need.needed;
            need.fix(set(name, needed)).undo(set(name, now))
        }
        Some(_) => need,
        None => need.why(not_here(name)),
    }
}
