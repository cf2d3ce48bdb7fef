//! Where a run happens: on loopback, in a lab, or on hosts that have agents.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::rc::Rc;

use clap::Args;
use wirecost_fleet::controller::Member;
use wirecost_fleet::guest::{Guest, GuestError, GuestHost};
use wirecost_fleet::host::AgentHost;
use wirecost_fleet::runtime_dir::RuntimeDirError;
use wirecost_fleet::wire::ClaimRequest;
use wirecost_lab::{Lab, LabHost, LabSpec};
use wirecost_linux::route::source_address;
use wirecost_model::profile::Profile;
use wirecost_model::status::Status;
use wirecost_program::program;

use crate::Failure;
use crate::commands::agent::with_port;
use crate::commands::lab::failure;
use crate::commands::link_options::{LinkOptions, Links};

/// Name of the driving host in `--host`.
const MASTER: &str = "master";

/// `--host NAME=ADDR[,data=ADDR]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostArgument {
    name: String,
    /// Of its agent.
    address: String,
    /// Where its data goes, if not to its agent's address.
    data: Option<IpAddr>,
}

/// What is between the address of an agent and that of its data.
const DATA: &str = ",data=";

impl HostArgument {
    /// Of a name, and of `ADDR` or `ADDR,data=ADDR`.
    ///
    /// # Errors
    /// The address of the data is none.
    pub(crate) fn new(name: &str, addresses: &str) -> Result<Self, String> {
        let (address, data) = match addresses.split_once(DATA) {
            Some((address, data)) => (address, Some(data)),
            None => (addresses, None),
        };
        let data = data.map(|data| {
            data.parse().map_err(|_| format!("data={data} must be an IP address of the host"))
        });
        Ok(Self { name: name.to_owned(), address: with_port(address), data: data.transpose()? })
    }

    /// Name, and addresses as they are written.
    pub(crate) fn parts(&self) -> (String, String) {
        let data = self.data.map(|data| format!("{DATA}{data}")).unwrap_or_default();
        (self.name.clone(), format!("{}{data}", self.address))
    }

    /// Name, and address of the agent.
    pub(crate) fn agent(&self) -> (String, String) {
        (self.name.clone(), self.address.clone())
    }

    /// Where its data goes; `None` where the agent's address does not resolve.
    pub(crate) fn data_address(&self) -> Option<IpAddr> {
        let agent = || Some(self.address.to_socket_addrs().ok()?.next()?.ip());
        self.data.or_else(agent)
    }
}

pub(crate) fn parse(text: &str) -> Result<HostArgument, String> {
    match text.split_once('=') {
        Some((name, address)) if !name.is_empty() && !address.is_empty() => {
            HostArgument::new(name, address)
        }
        _ => Err("must be NAME=ADDR, such as server=10.0.0.2".to_owned()),
    }
}

/// Where a run takes place, as given on the command line.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct HostOptions {
    /// Run between hosts in network namespaces on this machine: in a temporary lab, or in the lab
    /// NAME created by `wirecost lab up`.
    #[arg(
        long,
        value_name = "NAME",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "",
        conflicts_with = "hosts"
    )]
    pub(crate) lab: Option<String>,

    #[command(flatten)]
    pub(crate) links: LinkOptions,

    /// Agent of a host of the profile (`wirecost agent --listen ADDR`); `master=ADDR` sets the
    /// driving host [default: this machine]. `data=ADDR` is the address for the traffic, if the agent
    /// listens on another network. Can be repeated.
    #[arg(long = "host", value_name = "NAME=ADDR[,data=ADDR]", value_parser = parse)]
    pub(crate) hosts: Vec<HostArgument>,

    /// Run between the two hosts in the virtual machine NAME, such as 6.1, that `make vm` in the source tree
    /// has started.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["lab", "hosts"])]
    pub(crate) vm: Option<String>,
}

impl HostOptions {
    /// Whether the run uses CPUs of this machine other than to drive agents: a virtual machine here does.
    pub(crate) fn uses_this_machine(&self) -> bool {
        self.hosts.iter().all(|host| host.name != MASTER)
    }

    /// Whether the host of this number, of which 0 is the master, is a process on this machine.
    pub(crate) fn is_here(&self, host: usize) -> bool {
        let has_agent = match host {
            0 => !self.uses_this_machine(),
            _ => !self.hosts.is_empty(),
        };
        self.vm.is_none() && !has_agent
    }

    /// Whether the hosts are processes on loopback.
    pub(crate) fn is_loopback(&self) -> bool {
        self.lab.is_none() && self.vm.is_none() && self.hosts.is_empty()
    }

    /// Whether all hosts are there already.
    pub(super) fn are_made(&self) -> bool {
        self.vm.is_some() || !self.hosts.is_empty()
    }

    /// The links of the lab that the run creates.
    pub(super) fn links(&self) -> Result<Links, Failure> {
        match (self.links.first(), self.lab.as_deref()) {
            (None, _) | (_, Some("")) => self.links.links(),
            (Some(option), None) => Err(Failure::usage(format!(
                "--{option} is of the links of a lab, and this run has no lab"
            ))
            .help("add --lab to run in a lab")),
            (Some(option), Some(_)) => Err(Failure::usage(format!(
                "--{option} applies only to a temporary lab"
            ))
            .help(format!("set it for a persistent lab with: wirecost lab up --{option} VALUE"))),
        }
    }

    /// Names, by number, for hosts without an address in the profile.
    pub(crate) fn names(&self) -> Box<dyn FnMut(usize) -> Option<String> + '_> {
        if !self.hosts.is_empty() {
            let peers: Vec<&HostArgument> =
                self.hosts.iter().filter(|host| host.name != MASTER).collect();
            return Box::new(move |number| peers.get(number).map(|host| host.name.clone()));
        }
        if self.lab.is_some() || self.vm.is_some() {
            // The second host is the first peer.
            return Box::new(|number| Some(format!("h{}", number + 2)));
        }
        Box::new(|number| Some(format!("127.0.0.{}", number + 1)))
    }
}

/// The device of hosts on loopback.
const LOOPBACK: &str = "lo";

/// A host of the run, before its agent starts.
#[derive(Debug)]
struct Site {
    name: String,
    data: Option<IpAddr>,
    location: Location,
}

#[derive(Debug)]
enum Location {
    /// A process on this machine.
    Local,
    /// A process on the host of the lab with this number.
    Lab(usize),
    /// An agent.
    Remote(String),
    /// An agent in a virtual machine on this machine, on a host with this device.
    Guest { agent: String, device: String },
}

/// Where the hosts of a run are. Dropping the last place in a temporary lab removes the lab.
#[derive(Debug)]
pub(crate) struct Place {
    sites: Vec<Site>,
    lab: Option<Rc<Lab>>,
}

impl Place {
    /// Finds a place for every host of the profile. Creates a lab, unless the lab of an earlier run
    /// has enough hosts.
    pub(crate) fn find(
        profile: &Profile,
        host_options: &HostOptions,
        kept: Option<Rc<Lab>>,
    ) -> Result<Self, Failure> {
        let names = program::remote_hosts(profile);
        let links = host_options.links()?;
        if let Some(name) = &host_options.vm {
            return Self::in_vm(&names, name);
        }
        match host_options.lab.as_deref() {
            Some(name) => Self::in_lab(&names, name, &links, kept),
            None if host_options.hosts.is_empty() => Self::on_loopback(&names),
            None => Self::on_hosts(&names, &host_options.hosts),
        }
    }

    /// The lab, for reuse by a later run.
    pub(crate) fn lab(&self) -> Option<Rc<Lab>> {
        self.lab.clone()
    }

    /// Whether each host that the profile names has a place, without reaching it; `given` are those names
    /// that are not the profile's own.
    pub(crate) fn check(
        profile: &Profile,
        host_options: &HostOptions,
        given: &[(String, String)],
    ) -> Result<(), Failure> {
        let mut names = program::remote_hosts(profile);
        let links = host_options.links()?;
        if !host_options.hosts.is_empty() {
            return Self::on_hosts(&names, &host_options.hosts).map(drop);
        }
        if let Some(name) = &host_options.vm {
            return Self::in_vm(&names, name).map(drop);
        }
        let wanted = hosts_wanted(&names);
        names.retain(|name| !given.iter().any(|(_, given)| given == name));
        match host_options.lab.as_deref() {
            None => Self::on_loopback(&names).map(drop),
            Some("") => {
                let planned = Lab::planned(&temporary_lab(wanted, &links)?);
                sites_in_lab(&names, &planned.map_err(|error| failure(&error))?).map(drop)
            }
            Some(name) => sites_in_lab(&names, existing_lab(name, wanted)?.hosts()).map(drop),
        }
    }

    fn on_loopback(names: &[String]) -> Result<Self, Failure> {
        let mut sites =
            vec![Site { name: MASTER.to_owned(), data: None, location: Location::Local }];
        for name in names {
            let address = resolve(name)?;
            if !address.is_loopback() {
                return Err(Failure::usage(format!(
                    "the profile's host {name} ({address}) is not on this machine"
                ))
                .help(format!(
                    "start an agent there (wirecost agent --listen {address}) and add --host \
                     {name}={address}; or leave the profile's variable unset and add --lab"
                )));
            }
            sites.push(Site {
                name: format!(
                    "peer{}",
                    if names.len() > 1 { sites.len().to_string() } else { String::new() }
                ),
                data: Some(address),
                location: Location::Local,
            });
        }
        sites[0].data = sites.get(1).and_then(|site| site.data);
        Ok(Self { sites, lab: None })
    }

    fn in_lab(
        names: &[String],
        lab: &str,
        links: &Links,
        kept: Option<Rc<Lab>>,
    ) -> Result<Self, Failure> {
        let wanted = hosts_wanted(names);
        let lab = match (lab, kept) {
            (name, Some(lab))
                if lab.hosts().len() >= wanted && (!name.is_empty() || links.are_of(&lab)) =>
            {
                lab
            }
            ("", kept) => {
                // Two labs at once would share the CPUs.
                drop(kept);
                let spec = temporary_lab(wanted, links)?;
                // A host that it lacks is told before anything is created.
                let planned = Lab::planned(&spec).map_err(|error| failure(&error))?;
                sites_in_lab(names, &planned)?;
                Rc::new(Lab::up(&spec).map_err(|error| failure(&error))?)
            }
            (name, _) => Rc::new(existing_lab(name, wanted)?),
        };
        Ok(Self { sites: sites_in_lab(names, lab.hosts())?, lab: Some(lab) })
    }

    fn on_hosts(names: &[String], hosts: &[HostArgument]) -> Result<Self, Failure> {
        let mut resolved = Vec::new();
        for host in hosts {
            let address =
                host.address.to_socket_addrs().ok().and_then(|mut all| all.next()).ok_or_else(
                    || {
                        Failure::new(
                            Status::Peer,
                            format!("--host {}: {} does not resolve", host.name, host.address),
                        )
                        .help("use an IP address, or a name that this machine knows")
                    },
                )?;
            resolved.push((host, address));
        }
        let master = resolved.iter().find(|(host, _)| host.name == MASTER);
        let mut sites = vec![match master {
            Some((host, address)) => Site {
                name: MASTER.to_owned(),
                data: Some(host.data.unwrap_or(address.ip())),
                location: Location::Remote(host.address.clone()),
            },
            None => Site { name: MASTER.to_owned(), data: None, location: Location::Local },
        }];
        for name in names {
            let by_name = resolved.iter().find(|(host, _)| host.name == *name);
            let found = match by_name {
                Some(found) => Some(found),
                None => {
                    let address = resolve(name)?;
                    let of =
                        |host: &HostArgument, agent: &SocketAddr| host.data.unwrap_or(agent.ip());
                    resolved.iter().find(|(host, agent)| of(host, agent) == address)
                }
            };
            let Some((host, address)) = found else {
                return Err(Failure::usage(format!(
                    "no --host is given for the profile's host {name}"
                ))
                .help(format!("add --host {name}=ADDR with the address of its agent")));
            };
            sites.push(Site {
                name: host.name.clone(),
                data: Some(host.data.unwrap_or(address.ip())),
                location: Location::Remote(host.address.clone()),
            });
        }
        if sites[0].data.is_none() {
            sites[0].data = sites.get(1).and_then(|site| source_address(site.data?).ok());
        }
        Ok(Self { sites, lab: None })
    }

    fn in_vm(names: &[String], vm: &str) -> Result<Self, Failure> {
        let guest = Guest::find(vm).map_err(|error| {
            let failure = Failure::new(Status::Peer, &error);
            match error {
                GuestError::None { .. } => failure
                    .help(format!("start it in wirecost's source tree with: make vm KERNEL={vm}")),
                GuestError::Foreign { .. } => {
                    failure.help("end it, and start it anew with: make vm")
                }
                GuestError::Directory(_) => failure.help(RuntimeDirError::remedy()),
                GuestError::Read { .. } => failure,
            }
        })?;
        let (Some(master), peers) = (guest.hosts.first(), guest.hosts.get(1..).unwrap_or_default())
        else {
            return Err(Failure::new(Status::Peer, format!("virtual machine {vm} has no hosts")));
        };
        let site = |host: &GuestHost| Site {
            name: host.name.clone(),
            data: Some(host.address()),
            location: Location::Guest { agent: host.agent.clone(), device: host.device.clone() },
        };
        let mut sites = vec![site(master)];
        for name in names {
            let is_it = |host: &&GuestHost| {
                host.name.eq_ignore_ascii_case(name) || name.parse() == Ok(host.address())
            };
            let Some(host) = peers.iter().find(is_it) else {
                let known: Vec<String> =
                    peers.iter().map(|host| format!("{} ({})", host.name, host.ipv4)).collect();
                return Err(Failure::usage(format!("virtual machine {vm} has no host {name}"))
                    .help(format!("its hosts other than the master are {}", known.join(", "))));
            };
            sites.push(site(host));
        }
        Ok(Self { sites, lab: None })
    }

    /// Each host where the profile says, at this port; this machine drives them.
    pub(crate) fn at_remote_hosts(profile: &Profile, port: u16) -> Result<Self, Failure> {
        let mut sites =
            vec![Site { name: MASTER.to_owned(), data: None, location: Location::Local }];
        for name in program::remote_hosts(profile) {
            let data = resolve(&name)?;
            let location = Location::Remote(SocketAddr::new(data, port).to_string());
            sites.push(Site { name, data: Some(data), location });
        }
        sites[0].data = sites.get(1).and_then(|site| source_address(site.data?).ok());
        Ok(Self { sites, lab: None })
    }

    /// The peers by the names that uperf would have been given: as in the profile, and the address of
    /// a host that stands for one of its variables (`assigned`).
    pub(super) fn remote_hosts(
        &self,
        profile: &Profile,
        assigned: &[(String, String)],
    ) -> Vec<String> {
        let name = |(name, site): (String, &Site)| match site.data {
            Some(address) if assigned.iter().any(|(_, of)| *of == name) => address.to_string(),
            _ => name,
        };
        program::remote_hosts(profile)
            .into_iter()
            .zip(self.sites.iter().skip(1))
            .map(name)
            .collect()
    }

    /// Checks that every host name in the value of an option exists.
    pub(super) fn check_names<'a>(
        &self,
        option: &str,
        mut wanted: impl Iterator<Item = &'a str>,
    ) -> Result<(), Failure> {
        let mut known = vec![MASTER, "peer"];
        let names = self.sites.iter().map(|site| site.name.as_str());
        known.extend(names.filter(|name| ![MASTER, "peer"].contains(name)));
        match wanted.find(|name| !known.contains(name)) {
            Some(name) => Err(Failure::usage(format!("{option}: the run has no host {name}"))
                .help(format!("it has {}", known.join(", ")))),
            None => Ok(()),
        }
    }

    /// Starts or reaches all agents; those elsewhere are asked for their machines.
    pub(super) fn members(&self, claim: &ClaimRequest) -> Result<Vec<Member>, Failure> {
        self.sites.iter().map(|site| self.member(site, claim)).collect()
    }

    fn member(&self, site: &Site, claim: &ClaimRequest) -> Result<Member, Failure> {
        let failed = |error: wirecost_fleet::host::HostError| {
            let mut text = error.to_string();
            if let Some(cause) = std::error::Error::source(&error)
                && !text.contains(&cause.to_string())
            {
                text = format!("{text}: {cause}");
            }
            Failure::new(Status::Peer, text)
        };
        let (mut cpus, mut owns_cpus) = (Vec::new(), false);
        let (mut device, mut spreading) = (None, None);
        let host = match &site.location {
            Location::Remote(address) => AgentHost::connect(&site.name, address).map_err(failed)?,
            Location::Guest { agent, device: of_guest } => {
                device = Some(of_guest.clone());
                AgentHost::connect(&site.name, agent).map_err(failed)?
            }
            Location::Local => {
                device = Some(LOOPBACK.to_owned());
                AgentHost::spawn(&site.name, agent()?).map_err(failed)?
            }
            Location::Lab(number) => {
                let mut command = agent()?;
                if let Some(host) = self.lab.as_ref().and_then(|lab| lab.hosts().get(*number)) {
                    host.place(&mut command).map_err(|error| failure(&error))?;
                    cpus.clone_from(&host.cpus);
                    owns_cpus = host.owns_cpus;
                    device = Some(host.device.clone());
                }
                let links = self.lab.as_ref().and_then(|lab| lab.emulated());
                spreading = links.and_then(|(_, links, _)| Some(links.nic.as_ref()?.spreading()));
                AgentHost::spawn(&site.name, command).map_err(failed)?
            }
        };
        let address = match &site.location {
            Location::Remote(address) | Location::Guest { agent: address, .. } => {
                Some(address.clone())
            }
            Location::Local | Location::Lab(_) => site.data.map(|data| data.to_string()),
        };
        // Hosts that share all CPUs are told apart by the controller.
        if !owns_cpus {
            cpus.clear();
        }
        Ok(Member {
            host: Box::new(host),
            data_address: site.data,
            listens_at: site.data,
            address,
            cpus,
            owns_cpus,
            device,
            spreading,
            claim: matches!(site.location, Location::Remote(_) | Location::Guest { .. })
                .then(|| claim.clone()),
        })
    }
}

/// Hosts that a lab must have for these peers.
fn hosts_wanted(names: &[String]) -> usize {
    (names.len() + 1).max(2)
}

fn temporary_lab(hosts: usize, links: &Links) -> Result<LabSpec, Failure> {
    let mut spec = LabSpec::temporary(hosts);
    links.apply(&mut spec)?;
    Ok(spec)
}

/// The lab of this name, if it has as many hosts.
fn existing_lab(name: &str, wanted: usize) -> Result<Lab, Failure> {
    let lab = Lab::open(name).map_err(|error| failure(&error))?;
    let hosts = lab.hosts().len();
    if hosts < wanted {
        return Err(Failure::usage(format!(
            "lab {} has {hosts} hosts and the profile needs {wanted}",
            lab.name()
        ))
        .help(format!("wirecost lab up --hosts {wanted} --name NAME")));
    }
    Ok(lab)
}

/// The places of a run among the hosts of a lab: the master, and each host that the profile names.
fn sites_in_lab(names: &[String], hosts: &[LabHost]) -> Result<Vec<Site>, Failure> {
    let site = |number: usize, data| Site {
        name: hosts[number].name.clone(),
        data: Some(data),
        location: Location::Lab(number),
    };
    let mut sites = vec![site(0, IpAddr::V4(hosts[0].ipv4))];
    for name in names {
        let found = hosts
            .iter()
            .enumerate()
            .skip(1)
            .find_map(|(number, host)| Some((number, address_of(host, name)?)));
        let Some((number, address)) = found else {
            let known: Vec<String> =
                hosts[1..].iter().map(|h| format!("{} ({})", h.name, h.ipv4)).collect();
            return Err(Failure::usage(format!("the lab has no host {name}"))
                .help(format!("its hosts other than the master are {}", known.join(", "))));
        };
        sites.push(site(number, address));
    }
    if let (Some(IpAddr::V6(_)), Some(own)) =
        (sites.get(1).and_then(|site| site.data), hosts[0].ipv6)
    {
        sites[0].data = Some(IpAddr::V6(own));
    }
    Ok(sites)
}

/// This program as an agent.
fn agent() -> Result<Command, Failure> {
    let program = std::env::current_exe().map_err(|error| {
        Failure::new(Status::Peer, format!("cannot find this program: {error}"))
    })?;
    let mut command = Command::new(program);
    // The program may have another name.
    command.arg0("wirecost");
    // The user names the files and settings of a run, and these agents take orders from this process alone.
    command.args(["agent", "--session", "--all-files", "--tune", "--allow-cc-object"]);
    Ok(command)
}

/// The address of the lab host with this name.
fn address_of(host: &LabHost, name: &str) -> Option<IpAddr> {
    let (v4, v6) = (IpAddr::V4(host.ipv4), host.ipv6.map(IpAddr::V6));
    if name.eq_ignore_ascii_case(&host.name) {
        return Some(v4);
    }
    let address: IpAddr = name.parse().ok()?;
    (address == v4 || Some(address) == v6).then_some(address)
}

fn resolve(name: &str) -> Result<IpAddr, Failure> {
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    if let Ok(address) = bare.parse() {
        return Ok(address);
    }
    (bare, 0)
        .to_socket_addrs()
        .ok()
        .and_then(|mut all| all.next())
        .map(|address: SocketAddr| address.ip())
        .ok_or_else(|| {
            Failure::new(Status::Peer, format!("the host name {name} does not resolve"))
                .help("use an IP address, or a name that this machine knows")
        })
}
