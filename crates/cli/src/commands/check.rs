use std::io::Write;
use std::time::Duration;

use clap::Args;
use wirecost_model::congestion::CongestionObject;
use wirecost_model::plan::EngineName;
use wirecost_model::profile::{Arrivals, IoValue, Options, Part, Payload, Until};
use wirecost_model::program::{GroupProgram, HostFlowop, PhaseProgram, Program};
use wirecost_model::status::Status;
use wirecost_profile::io_options;
use wirecost_profile::language::{Language, unrepresentable};
use wirecost_program::program;

use crate::Failure;
use crate::commands::run::HostOptions;
use crate::commands::run::options::{cc_object, parse_engine};
use crate::diagnostics;
use crate::profile::{self, Loaded, parse_variable};
use crate::runnable::{self, Checked};
use crate::terminal;

/// Show what a profile does: the program of each side, and every quirk of uperf's language that changes a result.
#[derive(Debug, Args)]
pub(crate) struct Check {
    /// Profile: a file, `-` for standard input, or a built-in (see `wirecost list`).
    #[arg(value_name = "PROFILE|@BUILTIN")]
    profile: String,

    /// Set a variable of the profile; overrides the environment.
    #[arg(long = "var", value_name = "NAME=VALUE", value_parser = parse_variable)]
    variables: Vec<(String, String)>,

    /// Convert the profile to uperf's language (xml) or the native one (toml). Variables for hosts are
    /// preserved; others are replaced by their values.
    #[arg(long, value_name = "LANGUAGE", value_parser = parse_language)]
    to: Option<Language>,

    /// Also refuse what this engine cannot run: one of the engines of `wirecost list`.
    #[arg(long, value_name = "ENGINE", default_value = "epoll", value_parser = parse_engine)]
    engine: EngineName,

    /// Congestion control of your own that connections choose, as in `wirecost run --cc-object`; it is read, not loaded.
    #[arg(long, value_name = "FILE", value_parser = parse_objects)]
    cc_object: Option<Objects>,

    #[command(flatten)]
    hosts: HostOptions,
}

/// Of one option: its files are separated by commas.
#[derive(Debug, Clone)]
struct Objects(Vec<CongestionObject>);

fn parse_objects(text: &str) -> Result<Objects, String> {
    cc_object::read_all(text).map(Objects)
}

fn parse_language(text: &str) -> Result<Language, String> {
    let found = Language::ALL.into_iter().find(|language| language.name() == text);
    found.ok_or_else(|| "must be xml or toml".to_owned())
}

impl Check {
    pub(crate) fn run(self) -> Result<Status, Failure> {
        if let Some(to) = self.to {
            return convert(&self, to);
        }
        // Where no hosts are given a name stands for each.
        let mut names = self.hosts.names();
        let given = !self.hosts.hosts.is_empty();
        let mut name = |number: usize| {
            if given { names(number) } else { Some(format!("host{}", number + 1)) }
        };
        let loaded = profile::load(&self.profile, &self.variables, &mut name)?;
        let Checked { programs, refusal } = runnable::check(&loaded, &self.engine);
        let objects = self.cc_object.as_ref().map_or(&[][..], |Objects(objects)| objects);
        let refusal =
            refusal.or_else(|| cc_object::check(&loaded.profile, objects).err()).or_else(|| {
                runnable::check_hosts(&loaded, &programs, &self.engine, &self.hosts, objects).err()
            });
        let mut text = String::new();
        describe(&loaded, &programs, &mut text);
        terminal::print(&text);
        profile::draw_notes(&loaded);
        if let Some(refusal) = refusal {
            refusal.print();
            terminal::warn(format_args!(
                "wirecost: {} is a profile, but `wirecost run` refuses it for the reasons above",
                loaded.name
            ));
            return Ok(refusal.status);
        }
        Ok(Status::Ok)
    }
}

/// Writes the profile in this language, if it can say everything.
fn convert(check: &Check, to: Language) -> Result<Status, Failure> {
    // No host has such a name, so each can be found again.
    let stands_for = |number: usize| format!("<host {number}>");
    let mut name = |number: usize| Some(stands_for(number));
    let loaded = profile::load(&check.profile, &check.variables, &mut name)?;
    let lost = unrepresentable(&loaded.profile, to, &loaded.source);
    if !lost.is_empty() {
        return Err(profile::describe(&loaded.name, &loaded.source, &lost));
    }
    let mut profile = loaded.profile.clone();
    let flowops = profile.groups.iter_mut().flat_map(|g| &mut g.transactions);
    for host in flowops.flat_map(|t| &mut t.flowops).filter_map(|f| f.options.remotehost.as_mut()) {
        let number = (0..loaded.assigned.len()).find(|number| *host == stands_for(*number));
        if let Some(number) = number {
            *host = format!("wirecost-host-{number}-");
        }
    }
    let mut text = to.print(&profile);
    for (number, (variable, _)) in loaded.assigned.iter().enumerate() {
        let variable = match to {
            Language::Xml => format!("${variable}"),
            Language::Toml => format!("${{{variable}}}"),
        };
        text = text.replace(&format!("wirecost-host-{number}-"), &variable);
    }
    // A file for other programs: its language has escapes of its own.
    let _ = terminal::stdout().write_all(text.as_bytes());
    let mut replaced: Vec<String> =
        loaded.language.variables(&loaded.source).into_iter().map(|used| used.name).collect();
    replaced
        .retain(|name| !loaded.assigned.iter().any(|(host, _)| host.eq_ignore_ascii_case(name)));
    replaced.sort();
    replaced.dedup();
    if !replaced.is_empty() {
        terminal::warn(format_args!(
            "wirecost: variables that were replaced by their values: {}",
            replaced.join(", ")
        ));
    }
    Ok(Status::Ok)
}

fn describe(loaded: &Loaded, programs: &[Program], text: &mut String) {
    let profile = &loaded.profile;
    let strands: u64 = profile.groups.iter().map(|group| u64::from(group.strands)).sum();
    let phases = profile.groups.iter().map(|g| g.transactions.len()).max().unwrap_or(0);
    let label = if profile.name.is_empty() { &loaded.name } else { &profile.name };
    *text += &format!(
        "profile {label}: {}, {}, {}\n",
        plural(profile.groups.len() as u64, "group"),
        plural(strands, "strand"),
        plural(phases as u64, "phase"),
    );
    for (variable, value) in &loaded.assigned {
        *text += &format!("  ${variable} is not set: {value} stands for the host a run gives it\n");
    }
    let hosts = program::remote_hosts(profile);
    for (number, program) in programs.iter().enumerate() {
        let host = match number {
            0 => "master".to_owned(),
            _ => format!("peer {}", hosts[number - 1]),
        };
        *text += &format!("\n{host}\n");
        describe_program(program, &hosts, text);
    }
}

fn plural(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

fn describe_program(program: &Program, hosts: &[String], text: &mut String) {
    let (shown, left) = diagnostics::first(&program.groups);
    for group in shown {
        // uperf's own names for groups that have none say nothing.
        let nameless = group.name.is_empty() || group.name == format!("Group{}", group.group);
        let name = if nameless {
            format!("group {}", group.group + 1)
        } else {
            format!("group {} {}", group.group + 1, group.name)
        };
        *text += &format!("  {name}: {}\n", plural(u64::from(group.strands), "strand"));
        describe_group(group, hosts, text);
    }
    if let Some(left) = left {
        *text += &format!("  {left} groups\n");
    }
}

fn describe_group(group: &GroupProgram, hosts: &[String], text: &mut String) {
    for (number, phase) in group.phases.iter().enumerate() {
        let Some(phase) = phase else { continue };
        *text += &format!("    phase {}, {}\n", number + 1, how_often(phase));
        if phase.order.is_empty() {
            phase.acts.iter().for_each(|act| line_of_act(act, hosts, 6, text));
        } else {
            describe_parts(&phase.order, phase, hosts, 6, text);
        }
    }
}

fn line_of_act(act: &HostFlowop, hosts: &[String], margin: usize, text: &mut String) {
    let line = describe_act(act, hosts);
    *text += format!("{:margin$}{:<11} {line}", "", act.kind).trim_end();
    *text += "\n";
}

/// Loops and mixes with what is in them, further to the right. What has no act on this host is left
/// out, but for the choices of a mix.
fn describe_parts(
    parts: &[Part],
    phase: &PhaseProgram,
    hosts: &[String],
    margin: usize,
    text: &mut String,
) {
    let inner = |parts: &[Part], margin: usize| {
        let mut text = String::new();
        describe_parts(parts, phase, hosts, margin, &mut text);
        text
    };
    for part in parts {
        match part {
            Part::Flowop(flowop) => {
                let acts = phase.acts.iter().filter(|act| act.flowop == *flowop);
                acts.for_each(|act| line_of_act(act, hosts, margin, text));
            }
            Part::Loop { times, parts } => {
                let inside = inner(parts, margin + 2);
                if !inside.is_empty() {
                    *text += &format!("{:margin$}{times} times\n{inside}", "");
                }
            }
            Part::Mix(choices) => {
                let total: f64 = choices.iter().map(|choice| f64::from(choice.weight)).sum();
                let of_choices: Vec<(f64, String)> = choices
                    .iter()
                    .map(|c| (f64::from(c.weight) / total, inner(&c.parts, margin + 4)))
                    .collect();
                if of_choices.iter().all(|(_, inside)| inside.is_empty()) {
                    continue;
                }
                *text += &format!("{:margin$}one of\n", "");
                for (share, inside) in of_choices {
                    let percent = wirecost_model::units::three_digits(100.0 * share);
                    let nothing =
                        if inside.is_empty() { ": no operation on this host" } else { "" };
                    *text += &format!("{:margin$}  {percent}%{nothing}\n{inside}", "");
                }
            }
        }
    }
}

fn how_often(phase: &PhaseProgram) -> String {
    let often = match phase.until {
        Until::Iterations(1) => "once".to_owned(),
        Until::Iterations(n) => format!("{n} times"),
        Until::Duration(length) => format!("for {}", humantime::format_duration(length)),
    };
    if !matches!(phase.until, Until::Duration(_)) {
        return often;
    }
    match &phase.arrivals {
        Some(Arrivals::Even(rate)) => format!("{often}, {rate} transactions/s a strand, evenly"),
        Some(Arrivals::Poisson(rate)) => {
            format!("{often}, {rate} transactions/s a strand on average, as a Poisson process")
        }
        Some(Arrivals::Trace(trace)) => {
            let starts = plural(trace.starts.len() as u64, "transaction");
            format!("{often}, {starts} of all strands as in {}", trace.file)
        }
        None => often,
    }
}

fn describe_act(act: &HostFlowop, hosts: &[String]) -> String {
    let o: &Options = &act.options;
    let default = Options::default();
    let mut words = Vec::new();
    if let Some(service) = act.service {
        let other = match service.host {
            0 => "master".to_owned(),
            host => hosts[host as usize - 1].clone(),
        };
        let towards = if act.kind == "connect" { "to" } else { "on" };
        words.push(format!("{towards} {other}"));
        words.extend(o.protocol.clone());
        words.extend(o.port.map(|port| format!("port {port}")));
        if act.most_open > 1 {
            words.push(format!("up to {} open at once", act.most_open));
        }
    }
    let bytes = |n: u64| wirecost_model::units::binary(n);
    match (&o.size, o.rsize) {
        (Some(size), Some(unit)) => {
            words.push(format!("{size} x {} in pieces of {}", o.count * o.repeat, bytes(unit)));
        }
        (Some(size), None) if o.count * o.repeat == 1 => words.push(size.to_string()),
        (Some(size), None) => words.push(format!("{size} x {}", o.count * o.repeat)),
        (None, _) if o.count * o.repeat != 1 => words.push(format!("x {}", o.count * o.repeat)),
        (None, _) => {}
    }
    if let Some(length) = &o.duration {
        let how = if o.busy { "spinning" } else { "asleep" };
        let time = |ns| humantime::format_duration(Duration::from_nanos(ns)).to_string();
        words.push(format!("{} {how}", length.described(&time)));
    }
    if let Some(dir) = &o.dir {
        words.push(match o.nfiles {
            Some(n) => format!("{n} files of {dir}"),
            None => format!("files of {dir}"),
        });
    }
    if o.conn != default.conn {
        words.push(format!("connection {}", o.conn));
    }
    if let Some(timeout) = o.timeout {
        words.push(format!("at most {}", humantime::format_duration(timeout)));
    }
    let described = |flags: bool| {
        io_options::set_in(&o.io)
            .filter(move |(_, value)| (**value == IoValue::On) == flags)
            .filter_map(|(option, value)| option.described(value))
    };
    words.extend(described(false));
    words.extend(o.bind.as_ref().map(|from| format!("from {from}")));
    match &o.payload {
        Payload::Random => {}
        Payload::Zero => words.push("zeros".to_owned()),
        Payload::File(path) => words.push(format!("content of {path}")),
    }
    words.extend(described(true));
    for (flag, name) in [(o.canfail, "may fail"), (o.verify, "verified")] {
        if flag {
            words.push(name.to_owned());
        }
    }
    words.extend(o.unsupported.iter().map(|(name, value)| match value.as_str() {
        "" => name.clone(),
        value => format!("{name}={value}"),
    }));
    words.join(", ")
}
