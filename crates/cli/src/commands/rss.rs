//! `wirecost rss`: how a device spreads flows over its receive queues.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use ipnet::IpNet;
use serde::Serialize;
use wirecost_lab as lab;
use wirecost_linux::cpu_list;
use wirecost_linux::ethtool::Ethtool;
use wirecost_linux::link::Links;
use wirecost_load::flows_by_cpu::{self, SearchError};
use wirecost_model::rss::{
    DeviceSpreading, Fields, Flow, FlowError, Key, Spread, Symmetry, TABLE_ENTRIES, find_flows,
    key_bytes, table_entries, table_text,
};
use wirecost_model::status::Status;
use wirecost_model::visible::visible;

use super::lab::failure as lab_failure;
use super::parse_time_not_zero;
use super::run::{interruptible, random};
use crate::Failure;
use crate::terminal;

/// Addresses of `--src` at most.
const SOURCES: usize = 1 << 16;
/// The shortest key: the addresses of two IPv4 hosts, and four bytes.
const SHORTEST_KEY: usize = 12;

/// Show how a device spreads flows over its receive queues (RSS), and find flows that go to queues of your choice.
#[derive(Debug, Args)]
pub(crate) struct Rss {
    #[command(subcommand)]
    act: Act,
}

#[derive(Debug, Subcommand)]
enum Act {
    Show(Show),
    Flows(Flows),
    Answer(Answer),
}

/// Show the hash, the key and the table of a device.
#[derive(Debug, Args)]
struct Show {
    #[command(flatten)]
    device: DeviceArgument,
    /// Write JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct DeviceArgument {
    /// Network device, or with `--lab` a host of the lab.
    #[arg(value_name = "DEV")]
    name: String,
    /// DEV is a host of this lab.
    #[arg(long, value_name = "NAME", num_args = 0..=1, require_equals = true, default_missing_value = lab::DEFAULT_NAME)]
    lab: Option<String>,
}

/// Find source addresses and ports whose packets go to chosen queues of a receiver.
///
/// The key, the table and the hashed fields are those of a device of this machine (`--dev`), or what you know of
/// another (`--key`, `--table`, `--fields`). For a device that does not tell them, run `wirecost rss answer` on the receiver
/// and `--ask` on the sender: real flows show on which CPU of the receiver they arrive.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("receiver").required(true).args(["dev", "key", "ask"]))]
struct Flows {
    /// The receiver's network device on this machine, or with `--lab` a host of the lab.
    #[arg(long, value_name = "DEV", conflicts_with_all = ["table", "fields"])]
    dev: Option<String>,
    /// The device is that of a host of this lab.
    #[arg(long, value_name = "NAME", num_args = 0..=1, require_equals = true, default_missing_value = lab::DEFAULT_NAME, requires = "dev")]
    lab: Option<String>,
    /// The receiver's RSS key: bytes in hexadecimal, `microsoft` or `symmetric`.
    #[arg(long, value_name = "KEY", value_parser = parse_key)]
    key: Option<HashKey>,
    /// The receiver's table: `equal N`, or the queue of each entry, repeated to 128 entries [default: equal over the
    /// queues of --queues].
    #[arg(long, value_name = "TABLE", requires = "key")]
    table: Option<String>,
    /// What the receiver hashes [default: addresses-and-ports].
    #[arg(long, value_name = "FIELDS", value_enum, requires = "key")]
    fields: Option<FieldsArgument>,
    /// Ask the receiver, by the code that `wirecost rss answer` prints there.
    #[arg(long, value_name = "CODE", value_parser = parse_code, conflicts_with_all = ["table", "fields", "queues"])]
    ask: Option<Code>,
    /// With --ask: CPUs of the receiver to find flows for [default: all on which packets arrive].
    #[arg(long, value_name = "LIST", value_parser = parse_cpus, requires = "ask", conflicts_with_all = ["dev", "key"])]
    cpus: Option<Cpus>,
    /// Address and port of the receiver.
    #[arg(long, value_name = "IP:PORT", value_parser = parse_destination)]
    dst: SocketAddr,
    /// Addresses that senders can have, and networks, separated by commas.
    #[arg(long, value_name = "IP|NETWORK,...", value_parser = parse_sources)]
    src: Sources,
    /// Ports that senders can have.
    #[arg(long, value_name = "FIRST-LAST", default_value = "1024-65535", value_parser = parse_ports)]
    ports: RangeInclusive<u16>,
    /// Queues to find flows for.
    #[arg(long, value_name = "LIST", value_parser = parse_queues, required_unless_present = "ask")]
    queues: Option<Queues>,
    /// Flows for each queue or CPU.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    count: u32,
    /// Protocol of the flows, if the device hashes fields of its own for each.
    #[arg(long, value_enum, default_value = "udp")]
    protocol: Protocol,
    /// Write JSON.
    #[arg(long)]
    json: bool,
}

/// Tell senders on which CPU of this host their packets arrive.
///
/// For devices that do not report their RSS settings. Run it on the receiver, then the printed command on the sender.
/// Only questions with the code are answered, with one packet as long as each question. It ends by itself.
#[derive(Debug, Args)]
struct Answer {
    /// Address and port of this host; the port of the program for which flows are wanted, while that does not run, as
    /// devices hash it too.
    #[arg(value_name = "IP:PORT")]
    at: SocketAddr,
    /// Protocol of the flows.
    #[arg(long, value_enum, default_value = "udp")]
    protocol: Protocol,
    /// How long to answer.
    #[arg(long = "for", value_name = "TIME", default_value = "5m", value_parser = parse_time_not_zero)]
    length: Duration,
}

/// What those who ask must know.
#[derive(Debug, Clone, Copy)]
struct Code(u32);

#[derive(Debug, Clone)]
struct Cpus(Vec<u32>);

#[derive(Debug, Clone)]
struct HashKey(Vec<u8>);

#[derive(Debug, Clone)]
struct Sources(Vec<IpAddr>);

#[derive(Debug, Clone)]
struct Queues(Vec<u32>);

#[derive(Debug, Clone, Copy, ValueEnum)]
enum FieldsArgument {
    Addresses,
    AddressesAndPorts,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Protocol {
    Tcp,
    Udp,
}

impl Protocol {
    fn name(self) -> &'static str {
        match self {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
        }
    }
}

fn parse_destination(text: &str) -> Result<SocketAddr, String> {
    match text.parse::<SocketAddr>() {
        Ok(address) if address.port() == 0 => Err("must have a port, from 1 to 65535".to_owned()),
        Ok(address) => Ok(address),
        Err(_) => {
            Err("must be an address and a port, as in 198.18.0.2:9 or [fd00::2]:9".to_owned())
        }
    }
}

fn parse_code(text: &str) -> Result<Code, String> {
    let code = u32::from_str_radix(text, 16);
    code.map(Code).map_err(|_| "must be the code that `wirecost rss answer` prints".to_owned())
}

fn parse_cpus(text: &str) -> Result<Cpus, String> {
    match cpu_list::parse_list(text) {
        Some(cpus) if !cpus.is_empty() => Ok(Cpus(cpus)),
        _ => Err("must be a list of CPUs such as 0-3,8".to_owned()),
    }
}

fn parse_key(text: &str) -> Result<HashKey, String> {
    let key = match text {
        "microsoft" => Some(Key::MICROSOFT.0.to_vec()),
        // Both directions of a flow have one hash: https://www.ndsl.kaist.edu/~kyoungsoo/papers/TR-symRSS.pdf
        "symmetric" => Some([0x6d, 0x5a].repeat(Key::MICROSOFT.0.len() / 2)),
        text => key_bytes(text),
    };
    key.filter(|key| key.len() >= SHORTEST_KEY).map(HashKey).ok_or_else(|| {
        format!("must be at least {SHORTEST_KEY} bytes in hexadecimal, microsoft or symmetric")
    })
}

fn parse_sources(text: &str) -> Result<Sources, String> {
    let mut sources = Vec::new();
    for part in text.split(',') {
        let part = part.trim();
        let wrong = |_| format!("`{part}` is no address and no network");
        if let Ok(address) = part.parse() {
            sources.push(address);
        } else {
            let network: IpNet = part.parse().map_err(wrong)?;
            sources.extend(network.hosts().take(SOURCES + 1 - sources.len().min(SOURCES)));
        }
        if sources.len() > SOURCES {
            return Err(format!("more than {SOURCES} addresses"));
        }
    }
    let mut seen = BTreeSet::new();
    sources.retain(|source| seen.insert(*source));
    Ok(Sources(sources))
}

fn parse_ports(text: &str) -> Result<RangeInclusive<u16>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.trim().parse(), last.trim().parse()) {
        (Ok(first), Ok(last)) if 0 < first && first <= last => Ok(first..=last),
        _ => Err("must be FIRST-LAST, from 1 to 65535".to_owned()),
    }
}

fn parse_queues(text: &str) -> Result<Queues, String> {
    match cpu_list::parse_list(text) {
        Some(queues) if !queues.is_empty() => Ok(Queues(queues)),
        _ => Err("must be a list of queues such as 0-3,8".to_owned()),
    }
}

/// What a device says of its RSS.
#[derive(Debug, Serialize)]
struct Told {
    device: String,
    #[serde(flatten)]
    spreading: DeviceSpreading,
}

impl Told {
    fn of(name: &str, of_lab: Option<&str>) -> Result<Self, Failure> {
        match of_lab {
            Some(lab) => Self::of_lab(lab, name),
            None => Self::of_device(name),
        }
    }

    fn of_device(device: &str) -> Result<Self, Failure> {
        let name = visible(device);
        let failed =
            |error: &dyn std::fmt::Display| Failure::new(Status::Peer, format!("{name}: {error}"));
        let links = Links::here().map_err(|error| failed(&error))?;
        if let Err(error) = links.get(device) {
            return Err(Failure::usage(format!("no network device {name} here: {error}"))
                .help("`ip link` lists devices; for a host of a lab: --lab"));
        }
        let ethtool = Ethtool::open().map_err(|error| failed(&error))?;
        let Ok(spreading) = ethtool.device_spreading(device) else {
            let message = format!("the driver of {name} does not tell how it spreads flows");
            return Err(Failure::new(Status::Peer, message).help(
                "devices with one queue do not spread flows; `--key` takes what its manual says. Otherwise run `wirecost rss \
                 answer` here, which finds flows by where real ones arrive; `placement` of a run does the same by itself",
            ));
        };
        Ok(Self { device: device.to_owned(), spreading })
    }

    /// The device of a host of a lab, whose emulator spreads.
    fn of_lab(lab: &str, host: &str) -> Result<Self, Failure> {
        let status = lab::status().map_err(|error| lab_failure(&error))?;
        let found = status.labs.into_iter().find(|one| one.name == lab).ok_or_else(|| {
            Failure::usage(format!("no lab {}", visible(lab)))
                .help("wirecost lab up --queues 2, or wirecost lab status")
        })?;
        if !found.hosts.iter().any(|one| one.host.name == host) {
            return Err(Failure::usage(format!(
                "no host {} in lab {}",
                visible(host),
                visible(lab)
            )));
        }
        let Some(nic) = found.emulated.and_then(|links| links.link.nic) else {
            return Err(Failure::usage(format!(
                "the hosts of lab {} have no queues",
                visible(lab)
            ))
            .help("wirecost lab up --queues 2"));
        };
        Ok(Self { device: host.to_owned(), spreading: nic.spreading() })
    }

    fn print(&self) {
        let mut out = String::new();
        let told = &self.spreading;
        let _ = writeln!(out, "{}: {} receive queues", visible(&self.device), told.queues);
        let hash = match (told.toeplitz, told.symmetry) {
            (false, _) => "not Toeplitz",
            (true, Some(Symmetry::None)) => "Toeplitz",
            (true, Some(Symmetry::Xor)) => "Toeplitz, symmetric (XOR)",
            (true, Some(Symmetry::OrXor)) => "Toeplitz, symmetric (OR, XOR)",
            (true, None) => "Toeplitz, of an unknown transformation of the fields",
        };
        let _ = writeln!(out, "  hash    {hash}");
        let _ = writeln!(
            out,
            "  key     {}",
            told.key.as_deref().unwrap_or("the driver does not tell it")
        );
        let entries = told.table.len();
        let _ = writeln!(out, "  table   {} ({entries} entries)", table_text(&told.table));
        for (flow, fields) in &told.fields {
            let fields = match fields {
                Some(Fields::Addresses) => "addresses",
                Some(Fields::AddressesAndPorts) => "addresses and ports",
                None => "the driver does not tell",
            };
            let _ = writeln!(out, "  {:<7} {fields}", flow.to_string());
        }
        terminal::print(&out);
    }

    /// How packets of such flows are spread.
    fn spread(&self, protocol: Protocol, destination: SocketAddr) -> Result<Spread, Failure> {
        let flow = Flow::of(matches!(protocol, Protocol::Udp), destination.ip());
        self.spreading.spread(flow).map_err(|hidden| {
            let device = visible(&self.device);
            Failure::new(Status::Peer, format!("{device} does not tell {hidden}"))
                .help("give what its manual says (--key, --table, --fields), or run `wirecost rss answer` here, which finds flows by \
                     where real ones arrive; `placement` of a run does the same by itself")
        })
    }
}

impl Rss {
    pub(crate) fn run(self) -> Result<Status, Failure> {
        match self.act {
            Act::Show(Show { device, json }) => {
                let told = Told::of(&device.name, device.lab.as_deref())?;
                if json {
                    print_json(&told)?
                } else {
                    told.print()
                }
                Ok(Status::Ok)
            }
            Act::Flows(flows) => flows.run(),
            Act::Answer(answer) => answer.run(),
        }
    }
}

impl Answer {
    fn run(self) -> Result<Status, Failure> {
        if self.at.ip().is_unspecified() || self.at.ip().is_multicast() {
            return Err(Failure::usage(format!("{} is no address of one host", self.at.ip()))
                .help("the address to which senders will send"));
        }
        let stop = interruptible();
        let code = random() as u32;
        let responder = flows_by_cpu::Responder::start(self.protocol.name(), self.at, code);
        let responder = responder
            .map_err(|error| Failure::new(Status::Peer, format!("{}: {error}", self.at)))?;
        let (at, protocol) = (responder.address(), self.protocol.name());
        terminal::print(&format!(
            "Answering for {}: on which CPU packets to {protocol} {at} arrive. Run this on the sender, with its address for ADDRESS:\n\n    \
             wirecost rss flows --ask {code:08x} --protocol {protocol} --dst {at} --src ADDRESS\n",
            humantime::format_duration(self.length)
        ));
        let began = Instant::now();
        while began.elapsed() < self.length && !stop.load(Ordering::Relaxed) {
            let left = self.length.saturating_sub(began.elapsed());
            std::thread::sleep(left.min(Duration::from_millis(50)));
        }
        Ok(Status::Ok)
    }
}

/// A flow that was found by asking.
#[derive(Debug, Serialize)]
struct FoundByCpu {
    cpu: u32,
    source: SocketAddr,
    destination: SocketAddr,
}

/// A flow that was found.
#[derive(Debug, Serialize)]
struct Found {
    queue: u32,
    source: SocketAddr,
    destination: SocketAddr,
    hash: u32,
}

impl Flows {
    fn run(self) -> Result<Status, Failure> {
        if self.src.0.iter().any(|source| source.is_ipv4() != self.dst.is_ipv4()) {
            return Err(Failure::usage("--src and --dst have addresses of different families"));
        }
        match self.ask {
            Some(code) => self.ask(code),
            None => self.compute(),
        }
    }

    /// Flows whose CPUs the receiver tells.
    fn ask(&self, Code(code): Code) -> Result<Status, Failure> {
        let search = flows_by_cpu::Search {
            protocol: self.protocol.name(),
            code,
            destination: self.dst,
            sources: &self.src.0,
            ports: self.ports.clone(),
            cpus: self.cpus.as_ref().map(|Cpus(cpus)| cpus.as_slice()).unwrap_or_default(),
            count: self.count as usize,
        };
        let found = search.find().map_err(|error| {
            let help = match error {
                SearchError::Unanswered(..) => Some(
                    "is `wirecost rss answer` running there, for this address, protocol and code?",
                ),
                SearchError::NotHere(_) => Some("--src: addresses of this host, which sends"),
                SearchError::TooFew { .. } | SearchError::InUse => {
                    Some("more addresses (--src) or ports (--ports) give more flows")
                }
                SearchError::Moved { .. } | SearchError::Failed(..) => None,
            };
            let failure = Failure::new(Status::Peer, error);
            help.into_iter().fold(failure, Failure::help)
        })?;
        let found: Vec<FoundByCpu> = found
            .into_iter()
            .flat_map(|(cpu, sources)| sources.into_iter().map(move |source| (cpu, source)))
            .map(|(cpu, source)| FoundByCpu { cpu, source, destination: self.dst })
            .collect();
        if self.json {
            print_json(&found)?;
            return Ok(Status::Ok);
        }
        let mut out = "  CPU  source\n".to_owned();
        for flow in &found {
            let _ = writeln!(out, "{:>5}  {}", flow.cpu, flow.source);
        }
        terminal::print(&out);
        Ok(Status::Ok)
    }

    /// Flows whose queues follow from the key, the table and the hashed fields.
    fn compute(&self) -> Result<Status, Failure> {
        let spread = self.spread()?;
        let Sources(sources) = &self.src;
        let count = self.count as usize;
        let ports = self.ports.clone();
        let found = find_flows(&spread, sources, ports, self.dst, self.queues(), count).map_err(
            |error| {
                let help = match error {
                    FlowError::NoQueue { .. } => "--queues: queues that the table has",
                    FlowError::TooFew { .. } => {
                        "more addresses (--src) or ports (--ports) give more flows"
                    }
                };
                Failure::usage(&error).help(help)
            },
        )?;
        let found: Vec<Found> = found
            .into_iter()
            .flat_map(|(queue, sources)| sources.into_iter().map(move |source| (queue, source)))
            .map(|(queue, source)| {
                let hash = spread.hash(source, self.dst);
                Found { queue, source, destination: self.dst, hash }
            })
            .collect();
        if self.json {
            print_json(&found)?;
            return Ok(Status::Ok);
        }
        let sources: Vec<String> = found.iter().map(|flow| flow.source.to_string()).collect();
        let width = sources.iter().map(String::len).max().unwrap_or(0).max("source".len());
        let mut out = format!("queue  {:<width$}  hash\n", "source");
        for (flow, source) in found.iter().zip(&sources) {
            let _ = writeln!(out, "{:>5}  {source:<width$}  {:#010x}", flow.queue, flow.hash);
        }
        terminal::print(&out);
        Ok(Status::Ok)
    }

    fn queues(&self) -> &[u32] {
        self.queues.as_ref().map(|Queues(queues)| queues.as_slice()).unwrap_or_default()
    }

    fn spread(&self) -> Result<Spread, Failure> {
        if let Some(device) = &self.dev {
            return Told::of(device, self.lab.as_deref())?.spread(self.protocol, self.dst);
        }
        let most = self.queues().iter().max().copied().unwrap_or(0);
        let table = match &self.table {
            None => table_entries(&format!("equal {}", most + 1), TABLE_ENTRIES),
            Some(text) => table_entries(text, TABLE_ENTRIES),
        };
        let table = table.ok_or_else(|| {
            Failure::usage("--table: must be `equal N`, or queues separated by commas")
        })?;
        Ok(Spread {
            key: self.key.clone().map(|HashKey(key)| key).unwrap_or_default(),
            table,
            fields: match self.fields {
                Some(FieldsArgument::Addresses) => Fields::Addresses,
                Some(FieldsArgument::AddressesAndPorts) | None => Fields::AddressesAndPorts,
            },
            symmetry: Symmetry::None,
        })
    }
}

fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value);
    let text = text.map_err(|error| Failure::new(Status::Failed, error))?;
    terminal::print(&format!("{text}\n"));
    Ok(())
}
