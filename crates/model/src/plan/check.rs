//! Checks a plan against the [`limits`] before anything of it is carried out.

use std::collections::{BTreeMap, BTreeSet};

use super::limits::*;
use super::{IoLimits, Plan, Sink};
use crate::clock::nanos;
use crate::congestion::CongestionObject;
use crate::profile::{Arrivals, ByStrand, Conns, IoValue, Options, Part, Payload, Quantity, Until};
use crate::program::{GroupProgram, HostFlowop, PhaseProgram, Program, Service};

/// Why an order is refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum LimitError {
    #[error("{field} is {value}, and the limit is {limit}")]
    Above { field: String, value: u64, limit: u64 },
    #[error("{field} is {value}, and the least is {limit}")]
    Below { field: String, value: u64, limit: u64 },
    #[error("{field} is {value} per second; it must be above 0 and at most {limit}")]
    Rate { field: String, value: f64, limit: f64 },
    #[error("{field} {problem}")]
    Invalid { field: String, problem: String },
}

impl LimitError {
    pub fn invalid(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), problem: problem.into() }
    }

    /// The same of a part of something larger.
    #[must_use]
    pub fn of(mut self, whole: &str) -> Self {
        let (Self::Above { field, .. }
        | Self::Below { field, .. }
        | Self::Rate { field, .. }
        | Self::Invalid { field, .. }) = &mut self;
        *field = format!("{whole}: {field}");
        self
    }
}

/// # Errors
/// When the value is above the limit.
pub fn at_most<T, L>(field: &str, value: T, limit: L) -> Result<(), LimitError>
where
    T: TryInto<u64>,
    L: TryInto<u64>,
{
    let (value, limit) = (whole(value), whole(limit));
    match value <= limit {
        true => Ok(()),
        false => Err(LimitError::Above { field: field.to_owned(), value, limit }),
    }
}

/// # Errors
/// When the value is below the least.
pub fn at_least<T, L>(field: &str, value: T, least: L) -> Result<(), LimitError>
where
    T: TryInto<u64>,
    L: TryInto<u64>,
{
    let (value, limit) = (whole(value), whole(least));
    match value >= limit {
        true => Ok(()),
        false => Err(LimitError::Below { field: field.to_owned(), value, limit }),
    }
}

/// # Errors
/// When the text is longer than any name or path.
pub fn text(field: &str, text: &str) -> Result<(), LimitError> {
    at_most(&format!("the length of {field}"), text.len(), TEXT)
}

fn whole(value: impl TryInto<u64>) -> u64 {
    value.try_into().unwrap_or(u64::MAX)
}

impl Plan {
    /// Checks everything that says how much there is to do; `memory`: bytes that the machine has;
    /// `threads`: whether the engine has a thread for each strand; `io`: what is known of I/O options.
    ///
    /// # Errors
    /// The first value that is out of bounds.
    pub fn check(&self, memory: u64, threads: bool, io: &dyn IoLimits) -> Result<(), LimitError> {
        text("token", &self.token)?;
        text("engine", self.engine.as_str())?;
        at_most("host", self.host, HOSTS - 1)?;
        if let Some(workers) = self.workers {
            at_least("workers", workers, 1u32)?;
            at_most("workers", workers, WORKERS)?;
        }
        at_most("the number of cpus", self.cpus.len(), CPUS)?;
        for &cpu in &self.cpus {
            at_most("cpus", cpu, CPUS - 1)?;
        }
        at_least("interval", self.interval, SHORTEST_INTERVAL)?;
        at_most("interval", self.interval, LONGEST_INTERVAL)?;
        at_most("tcp_samples", self.tcp_samples, TCP_SAMPLES)?;
        at_most("logged_operations", self.logged_operations, LOGGED_OPERATIONS)?;
        at_most(
            "the number of objects of congestion control",
            self.congestion_objects.len(),
            CONGESTION_OBJECTS,
        )?;
        for CongestionObject { name, object } in &self.congestion_objects {
            text("the name of congestion control", name)?;
            at_most(
                "the size of an object of congestion control",
                object.len(),
                CONGESTION_OBJECT,
            )?;
        }
        self.program.check(io)?;
        if threads {
            at_most("strands with a thread for each", self.program.strands(), THREADS)?;
        }
        at_most(
            "the memory in bytes that the plan needs",
            self.memory(threads, io),
            memory / MEMORY_SHARE,
        )
    }

    /// Bytes that carrying it out takes at least; parameters as those of [`Plan::check`].
    #[must_use]
    pub fn memory(&self, threads: bool, io: &dyn IoLimits) -> u64 {
        let program = &self.program;
        let strands = program.strands();
        let workers = match threads {
            true => strands,
            false => {
                let wanted = self.workers.map_or(self.cpus.len().max(1) as u64, u64::from);
                wanted.min(strands.max(1))
            }
        };
        let message = program.acts().map(|act| longest(&act.options)).max().unwrap_or(0);
        let message = message.clamp(64 << 10, PAYLOAD_BYTES);
        let payloads = 1 + program.payloads().len() as u64;
        // Threads share their patterns.
        let patterns = message.saturating_mul(payloads);
        let groups = if self.details { program.groups.len() as u64 } else { 0 };
        let rows = program.acts().count() as u64 + 1 + groups;
        let sinks = program.sinks(io).iter().map(|sink| sink.memory).fold(0, u64::saturating_add);
        let of_worker = message.min(FILLED_AT_ONCE)
            + rows * ROW_BYTES
            + sinks
            + if threads { THREAD_BYTES } else { patterns };
        [
            workers.saturating_mul(of_worker),
            if threads { patterns } else { 0 },
            strands * STRAND_BYTES,
            program.connections().saturating_mul(CONNECTION_BYTES),
            program.served_strands() * PLACE_BYTES,
            program.kept(io),
            self.logged_operations.saturating_mul(LOGGED_OPERATION_BYTES),
        ]
        .into_iter()
        .fold(0, u64::saturating_add)
    }
}

impl Program {
    /// See [`Plan::check`].
    fn check(&self, io: &dyn IoLimits) -> Result<(), LimitError> {
        at_most("the number of groups", self.groups.len(), GROUPS)?;
        let weight: usize = self.groups.iter().map(super::Weight::weight).sum();
        at_most("the number of phases, flowops and parts of their order", weight, ACTS)?;
        let mut numbers = BTreeSet::new();
        for group in &self.groups {
            at_most("group", group.group, GROUPS - 1)?;
            let (phases, first) = (group.phases.len(), self.groups[0].phases.len());
            if phases != first {
                let problem = format!("has {phases} phases, and the first group {first}");
                return Err(LimitError::invalid(format!("group {}", group.group), problem));
            }
            if !numbers.insert(group.group) {
                return Err(LimitError::invalid(
                    format!("group {}", group.group),
                    "is there twice",
                ));
            }
        }
        at_most("strands", self.strands(), STRANDS)?;
        let named: u64 = self.acts().map(|act| count(act.options.conn)).sum();
        at_most("the number of connections that flowops name", named, NAMED_CONNECTIONS)?;
        at_most("the number of values by strand", self.values_by_strand(), BY_STRAND)?;
        at_most("the number of different payloads", self.payloads().len(), PAYLOADS)?;
        at_most("the number of different sinks", self.sinks(io).len(), SINKS)?;
        for group in &self.groups {
            group.check(io).map_err(|error| error.of(&format!("group {}", group.group)))?;
        }
        at_most("connections", self.connections(), CONNECTIONS)?;
        at_most("the number of services", self.services.len(), SERVICES)?;
        for (number, service) in self.services.iter().enumerate() {
            service.check(io).map_err(|error| error.of(&format!("service {number}")))?;
        }
        let clients = self.services.iter().map(|service| service.clients.len()).sum::<usize>();
        at_most("the number of clients of all services", clients, HOSTS)?;
        at_most("strands of all services", self.served_strands(), SERVED_STRANDS)
    }

    fn acts(&self) -> impl Iterator<Item = &HostFlowop> {
        self.groups.iter().flat_map(GroupProgram::acts)
    }

    fn strands(&self) -> u64 {
        self.groups.iter().map(|group| u64::from(group.strands)).sum()
    }

    /// Connections of all strands.
    fn connections(&self) -> u64 {
        let of = |group: &GroupProgram| group.connections().saturating_mul(group.strands.into());
        self.groups.iter().map(of).fold(0, u64::saturating_add)
    }

    /// Bytes that strands keep for what their flowops have to remember. Phases follow one another.
    fn kept(&self, io: &dyn IoLimits) -> u64 {
        let of_phase = |phase: &PhaseProgram| {
            phase.acts.iter().map(|act| io.kept(&act.options)).fold(0, u64::saturating_add)
        };
        let of = |group: &GroupProgram| {
            let most = group.phases.iter().flatten().map(of_phase).max().unwrap_or(0);
            most.saturating_mul(group.strands.into())
        };
        self.groups.iter().map(of).fold(0, u64::saturating_add)
    }

    /// Strands of all services.
    fn served_strands(&self) -> u64 {
        let strands: BTreeMap<u32, u32> =
            self.groups.iter().map(|group| (group.group, group.strands)).collect();
        let of = |service: &Service| strands.get(&service.group).copied().map_or(0, u64::from);
        self.services.iter().map(of).sum()
    }

    /// Values that are kept for each strand, of all flowops.
    fn values_by_strand(&self) -> u64 {
        let by_strand =
            |quantity: &Option<Quantity>| matches!(quantity, Some(Quantity::ByStrand(_)));
        let of = |group: &GroupProgram| {
            let acts = group.acts().map(|act| &act.options);
            let kept =
                acts.filter(|options| by_strand(&options.size) || by_strand(&options.duration));
            kept.count() as u64 * u64::from(group.strands)
        };
        self.groups.iter().map(of).sum()
    }

    fn payloads(&self) -> BTreeSet<&str> {
        let files = self.acts().filter_map(|act| match &act.options.payload {
            Payload::Random => None,
            Payload::Zero => Some(""),
            Payload::File(path) => Some(path.as_str()),
        });
        files.collect()
    }

    fn sinks(&self, io: &dyn IoLimits) -> BTreeSet<Sink> {
        self.acts().filter_map(|act| io.sink(&act.options)).collect()
    }
}

impl GroupProgram {
    fn acts(&self) -> impl Iterator<Item = &HostFlowop> {
        self.phases.iter().flatten().flat_map(|phase| &phase.acts)
    }

    /// Connections of one strand: those of each id as many as may be open at once.
    fn connections(&self) -> u64 {
        open_at_once(self.acts())
    }

    fn check(&self, io: &dyn IoLimits) -> Result<(), LimitError> {
        text("name", &self.name)?;
        for (number, phase) in self.phases.iter().enumerate() {
            let Some(phase) = phase else { continue };
            phase.check(io).map_err(|error| error.of(&format!("phase {}", number + 1)))?;
        }
        Ok(())
    }
}

impl PhaseProgram {
    fn check(&self, io: &dyn IoLimits) -> Result<(), LimitError> {
        if let Until::Duration(length) = self.until {
            at_most("duration in nanoseconds", nanos(length), LONGEST_PHASE)?;
        }
        if let Some(arrivals) = &self.arrivals {
            check_arrivals(arrivals)?;
        }
        for act in &self.acts {
            let named = |error: LimitError| {
                let kind: String = act.kind.chars().take(40).collect();
                error.of(&format!("{kind} ({})", act.at))
            };
            text("kind", &act.kind).map_err(named)?;
            check_options(&act.options, io).map_err(named)?;
            if act.service.is_some() {
                at_least("connections that may be open", act.most_open, 1u32).map_err(named)?;
            }
        }
        let mut times = BTreeMap::new();
        rounds(&self.order, 1, &mut times)?;
        let (mut executions, mut bytes) = (0u128, 0u128);
        for act in &self.acts {
            let options = &act.options;
            let in_order = if self.order.is_empty() { Some(&1) } else { times.get(&act.flowop) };
            let turns =
                u128::from(in_order.copied().unwrap_or(0).max(1)) * u128::from(count(options.conn));
            let each = [options.count.max(1), options.repeat.max(1), io.datagrams(&options.io)];
            let executed = each.into_iter().map(u128::from).fold(turns, u128::saturating_mul);
            executions = executions.saturating_add(executed);
            bytes = bytes.saturating_add(executed.saturating_mul(moved(options).into()));
        }
        at_most("executions in a transaction", executions, IN_A_TRANSACTION)?;
        at_most("bytes of a transaction", bytes, IN_A_TRANSACTION)
    }
}

impl Service {
    fn check(&self, io: &dyn IoLimits) -> Result<(), LimitError> {
        text("protocol", &self.protocol)?;
        for &client in &self.clients {
            at_most("clients", client, HOSTS - 1)?;
        }
        check_options(&self.options, io)
    }
}

/// How often each flowop has its turn in a transaction, at most.
fn rounds(parts: &[Part], times: u64, of: &mut BTreeMap<u32, u64>) -> Result<(), LimitError> {
    for part in parts {
        match part {
            Part::Flowop(flowop) => {
                let sum = of.entry(*flowop).or_default();
                *sum = sum.saturating_add(times);
            }
            Part::Loop { times: inner, parts } => {
                rounds(parts, times.saturating_mul(u64::from(*inner).max(1)), of)?;
            }
            Part::Mix(choices) => {
                at_most("rounds of loops around a mix", times, MIXED_ROUNDS)?;
                for choice in choices {
                    rounds(&choice.parts, times, of)?;
                }
            }
        }
    }
    Ok(())
}

fn check_arrivals(arrivals: &Arrivals) -> Result<(), LimitError> {
    match arrivals {
        Arrivals::Even(rate) | Arrivals::Poisson(rate) => match *rate > 0.0 && *rate <= RATE {
            true => Ok(()),
            false => {
                let field = "the rate of arrivals".to_owned();
                Err(LimitError::Rate { field, value: *rate, limit: RATE })
            }
        },
        Arrivals::Trace(trace) => {
            text("trace", &trace.file)?;
            at_most("starts of a trace", trace.starts.len(), STARTS)
        }
    }
}

/// Connections that a strand may hold of all ids together that these acts name.
pub fn open_at_once<'a>(acts: impl Iterator<Item = &'a HostFlowop>) -> u64 {
    // Where a range of ids begins, and behind its end, with the connections of each of its ids.
    let mut edges: Vec<(u64, bool, u32)> = Vec::new();
    for act in acts {
        let (conns, most) = (act.options.conn, act.most_open.max(1));
        edges.push((conns.first.into(), true, most));
        edges.push((u64::from(conns.last) + 1, false, most));
    }
    edges.sort_unstable();
    let mut covering: BTreeMap<u32, u64> = BTreeMap::new();
    let (mut sum, mut before) = (0u64, 0);
    for (at, begins, most) in edges {
        let each = covering.last_key_value().map_or(0, |(most, _)| u64::from(*most));
        sum = sum.saturating_add(each.saturating_mul(at - before));
        before = at;
        let ranges = covering.entry(most).or_default();
        *ranges = if begins { *ranges + 1 } else { ranges.saturating_sub(1) };
        if *ranges == 0 {
            covering.remove(&most);
        }
    }
    sum
}

/// Connections of a range.
fn count(conns: Conns) -> u64 {
    (u64::from(conns.last) + 1).saturating_sub(conns.first.into())
}

/// Bytes of the longest message.
fn longest(options: &Options) -> u64 {
    options.size.as_ref().map_or(0, Quantity::max).max(options.rsize.unwrap_or(0))
}

/// The most bytes that one execution moves.
fn moved(options: &Options) -> u64 {
    let whole_files = options.dir.is_some() && options.size.is_none();
    longest(options).max(if whole_files { FILE_BYTES } else { 0 })
}

fn check_options(options: &Options, io: &dyn IoLimits) -> Result<(), LimitError> {
    if options.conn.first > options.conn.last {
        return Err(LimitError::invalid(format!("conn={}", options.conn), "ends before it begins"));
    }
    at_most("count", options.count, COUNT)?;
    at_most("repeat", options.repeat, COUNT)?;
    if let Some(size) = &options.size {
        check_quantity("size", size)?;
    }
    at_most("size", longest(options), MESSAGE)?;
    if let Some(duration) = &options.duration {
        check_quantity("duration", duration)?;
    }
    if let Some(timeout) = options.timeout {
        at_most("timeout in nanoseconds", nanos(timeout), LONGEST_WAIT)?;
    }
    for (name, value) in options.io.iter() {
        text("the name of an option", name)?;
        if let IoValue::Text(value) = value {
            text(name, value)?;
        }
    }
    io.check(&options.io)?;
    let texts = [
        ("remotehost", &options.remotehost),
        ("protocol", &options.protocol),
        ("bind", &options.bind),
        ("dir", &options.dir),
    ];
    for (name, value) in texts {
        text(name, value.as_deref().unwrap_or_default())?;
    }
    if let Payload::File(path) = &options.payload {
        text("payload", path)?;
    }
    match options.unsupported.keys().next() {
        Some(name) => {
            let name: String = name.chars().take(40).collect();
            Err(LimitError::invalid(name, "is an option that nothing carries out"))
        }
        None => Ok(()),
    }
}

fn check_quantity(name: &str, quantity: &Quantity) -> Result<(), LimitError> {
    let ordered = |min: u64, max: u64| match min <= max {
        true => Ok(()),
        false => Err(LimitError::invalid(name, format!("is from {min} to {max}"))),
    };
    match quantity {
        Quantity::Fixed(_) | Quantity::Imix { .. } => Ok(()),
        Quantity::Random { min, max }
        | Quantity::Lognormal { min, max, .. }
        | Quantity::Exponential { min, max, .. } => ordered(*min, *max),
        Quantity::Table(values) => {
            at_least(&format!("values of the table of {name}"), values.len(), 1u32)?;
            at_most(&format!("values of the table of {name}"), values.len(), TABLE)
        }
        Quantity::ByStrand(ByStrand::Each(values)) => {
            at_least(&format!("values of {name} by strand"), values.len(), 1u32)?;
            at_most(&format!("values of {name} by strand"), values.len(), STRANDS)
        }
        Quantity::ByStrand(ByStrand::Spread { .. }) => Ok(()),
        Quantity::ByStrand(ByStrand::Drawn(drawn)) => match **drawn {
            Quantity::ByStrand(_) => Err(LimitError::invalid(name, "is by strand twice")),
            ref drawn => check_quantity(name, drawn),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::SECOND;
    use crate::plan::io_limits::TwoOptions;
    use crate::profile::{Choice, Position};
    use crate::program::{ServiceRef, Side};

    const MEMORY: u64 = 16 << 30;

    fn act(kind: &str, edit: impl FnOnce(&mut Options)) -> HostFlowop {
        let mut options = Options { protocol: Some("tcp".to_owned()), ..Options::default() };
        edit(&mut options);
        let service = (kind == "connect").then_some(ServiceRef { host: 1, service: 0 });
        HostFlowop {
            flowop: 0,
            kind: kind.to_owned(),
            options,
            most_open: u32::from(service.is_some()),
            service,
            at: Position::default(),
        }
    }

    fn plan(acts: Vec<HostFlowop>) -> Plan {
        let phase = PhaseProgram {
            until: Until::Duration(Duration::from_secs(1)),
            arrivals: None,
            acts,
            order: Vec::new(),
        };
        let group =
            GroupProgram { group: 0, name: String::new(), strands: 4, phases: vec![Some(phase)] };
        let service = Service {
            group: 0,
            protocol: "tcp".to_owned(),
            port: None,
            conns_per_strand: 1,
            reconnects: false,
            clients: vec![0],
            options: Options::default(),
        };
        Plan {
            token: "token".to_owned(),
            seed: 1,
            host: 0,
            engine: crate::plan::EngineName::default(),
            workers: Some(2),
            cpus: vec![0, 1],
            shares_cpus: false,
            interval: SECOND,
            program: Program { side: Side::Master, groups: vec![group], services: vec![service] },
            data_address: None,
            tcp_samples: 16,
            details: false,
            logged_operations: 0,
            receive_stamps: false,
            congestion_objects: Vec::new(),
        }
    }

    fn phase(plan: &mut Plan) -> &mut PhaseProgram {
        plan.program.groups[0].phases[0].as_mut().unwrap()
    }

    /// What `edit` makes of a plan that is within its limits is refused with these words.
    #[track_caller]
    fn refused(words: &str, edit: impl FnOnce(&mut Plan)) {
        let mut plan = plan(vec![act("connect", |_| {}), act("write", |_| {})]);
        plan.check(MEMORY, false, &TwoOptions).unwrap();
        edit(&mut plan);
        let error = plan.check(MEMORY, false, &TwoOptions).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }

    fn refused_option(words: &str, edit: impl FnOnce(&mut Options)) {
        refused(words, |plan| edit(&mut phase(plan).acts[1].options));
    }

    #[test]
    fn counts_have_limits() {
        refused("workers is 4294967295, and the limit is 4096", |p| p.workers = Some(u32::MAX));
        refused("workers is 0, and the least is 1", |p| p.workers = Some(0));
        refused("interval is 1, and the least is 10000000", |p| p.interval = 1);
        refused("interval is", |p| p.interval = u64::MAX);
        refused("host is 4294967295", |p| p.host = u32::MAX);
        refused("cpus is 8192, and the limit is 8191", |p| p.cpus = vec![8192]);
        refused("the number of cpus is 10000", |p| p.cpus = vec![0; 10_000]);
        refused("tcp_samples is", |p| p.tcp_samples = u32::MAX);
        refused("logged_operations is 1000001, and the limit is 1000000", |p| {
            p.logged_operations = 1_000_001;
        });
        refused("the length of token is 5000", |p| p.token = "t".repeat(5000));
        refused("strands is 4294967295", |p| p.program.groups[0].strands = u32::MAX);
        let mut threads = plan(vec![act("connect", |_| {})]);
        threads.program.groups[0].strands = 1_000_000;
        threads.check(MEMORY, false, &TwoOptions).unwrap();
        let error = threads.check(MEMORY, true, &TwoOptions).unwrap_err().to_string();
        assert!(
            error.starts_with("strands with a thread for each is 1000000, and the limit is 10000")
        );
    }

    #[test]
    fn options_have_limits() {
        let conn = "the number of connections that flowops name is 4294967297";
        refused_option(conn, |o| o.conn = Conns { first: 0, last: u32::MAX });
        refused_option("conn=2..1 ends before it begins", |o| {
            o.conn = Conns { first: 2, last: 1 };
        });
        refused_option("write (0:0): count is", |o| o.count = u64::MAX);
        refused_option("repeat is", |o| o.repeat = u64::MAX);
        refused_option("size is", |o| o.size = Some(Quantity::Fixed(u64::MAX)));
        refused_option("size is", |o| o.rsize = Some(u64::MAX));
        refused_option("bytes of a transaction is", |o| {
            (o.count, o.repeat) = (i32::MAX as u64, i32::MAX as u64);
            o.size = Some(Quantity::Fixed(2));
        });
        // Also of a flowop that never has its turn.
        refused("executions in a transaction is", |p| {
            phase(p).order = vec![Part::Flowop(7)];
            let options = &mut phase(p).acts[1].options;
            (options.count, options.repeat) = (i32::MAX as u64, i32::MAX as u64);
            options.io.set("batch", IoValue::Number(1000));
        });
        // Sizes of files come with a later order.
        refused_option("bytes of a transaction is", |o| {
            (o.dir, o.count) = (Some("files".to_owned()), i32::MAX as u64);
        });
        refused_option("timeout in nanoseconds is", |o| o.timeout = Some(Duration::MAX));
        refused_option("batch is", |o| o.io.set("batch", IoValue::Number(1001)));
        refused_option("the length of sink is 5000", |o| {
            o.io.set("sink", IoValue::Text("d".repeat(5000)));
        });
        refused_option("the length of the name of an option is 5000", |o| {
            o.io.set(&"d".repeat(5000), IoValue::On);
        });
        refused("batch is", |p| {
            p.program.services[0].options.io.set("batch", IoValue::Number(1001));
        });
        refused_option("the length of dir is", |o| o.dir = Some("d".repeat(5000)));
        refused_option("the length of payload is", |o| {
            o.payload = Payload::File("d".repeat(5000));
        });
        refused_option("flaw is an option that nothing carries out", |o| {
            o.unsupported.insert("flaw".to_owned(), String::new());
        });
    }

    #[test]
    fn distributions_make_sense() {
        let refused = |words: &str, quantity: Quantity| {
            let twice = Quantity::ByStrand(ByStrand::Drawn(Box::new(quantity.clone())));
            refused_option(words, |o| o.duration = Some(quantity.clone()));
            refused_option(words, |o| o.size = Some(quantity));
            refused_option("size is", |o| {
                o.size = Some(Quantity::ByStrand(ByStrand::Drawn(Box::new(twice))));
            });
        };
        refused("is from 2 to 1", Quantity::Random { min: 2, max: 1 });
        refused("is from 2 to 1", Quantity::Exponential { mean: 1, min: 2, max: 1 });
        refused("is from 2 to 1", Quantity::Lognormal { median: 1, sigma: 1, min: 2, max: 1 });
        refused_option("values of the table of size is 0", |o| {
            o.size = Some(Quantity::Table(Vec::new()));
        });
        refused_option("values of size by strand is 0", |o| {
            o.size = Some(Quantity::ByStrand(ByStrand::Each(Vec::new())));
        });
    }

    #[test]
    fn arrivals_have_limits() {
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e10] {
            refused("the rate of arrivals is", |p| phase(p).arrivals = Some(Arrivals::Even(rate)));
            refused("per second", |p| phase(p).arrivals = Some(Arrivals::Poisson(rate)));
        }
    }

    #[test]
    fn loops_have_limits() {
        let nested = |times, inner| vec![Part::Loop { times, parts: vec![inner] }];
        // 2^96 rounds of a choice that is almost never anything.
        let choice = |weight, parts| Choice { weight, parts };
        let mix = Part::Mix(vec![choice(u32::MAX, vec![]), choice(1, vec![Part::Flowop(0)])]);
        refused("rounds of loops around a mix is 4294967295", |p| {
            phase(p).order = nested(u32::MAX, mix);
        });
        let much = Part::Loop { times: u32::MAX, parts: vec![Part::Flowop(0)] };
        refused("executions in a transaction is", |p| phase(p).order = nested(u32::MAX, much));
    }

    #[test]
    fn groups_and_services_have_limits() {
        refused("group 1 has 0 phases, and the first group 1", |p| {
            let group = GroupProgram { group: 1, phases: vec![], ..p.program.groups[0].clone() };
            p.program.groups.push(group);
        });
        refused("group 0 is there twice", |p| {
            p.program.groups = vec![p.program.groups[0].clone(); 2];
        });
        refused("group is 65536, and the limit is 4095", |p| p.program.groups[0].group = 65_536);
        refused("the number of groups is 65536, and the limit is 4096", |p| {
            p.program.groups = vec![p.program.groups[0].clone(); 65_536];
        });
        refused("the number of services is 100000, and the limit is 4096", |p| {
            p.program.services = vec![p.program.services[0].clone(); 100_000];
        });
        refused("strands of all services is 4096000000", |p| {
            p.program.groups[0].strands = 1_000_000;
            p.program.services = vec![p.program.services[0].clone(); 4096];
        });
        refused("the number of clients of all services is 5000", |p| {
            p.program.services[0].clients = vec![0; 5000];
        });
        refused("the number of phases, flowops and parts of their order is 20003", |p| {
            p.program.groups[0].phases.resize(20_000, None);
        });
        refused("connect (0:0): connections that may be open is 0", |p| {
            phase(p).acts[0].most_open = 0;
        });
        refused("connections is 4294967296", |p| {
            p.program.groups[0].strands = 64;
            phase(p).acts[0].most_open = 1 << 26;
        });
        refused("connections is 65536000000", |p| {
            p.program.groups[0].strands = 1_000_000;
            phase(p).acts[0].options.conn.last = 65_535;
        });
        refused("the number of different payloads is 65", |p| {
            let with = |n: usize| act("write", |o| o.payload = Payload::File(n.to_string()));
            phase(p).acts = (0..65).map(with).collect();
        });
        refused("the number of different sinks is 65", |p| {
            let with = |n: usize| {
                act("read", |o| {
                    o.io.set("sink", IoValue::Text(n.to_string()));
                })
            };
            phase(p).acts = (0..65).map(with).collect();
        });
        refused("the number of values by strand is 17000000", |p| {
            p.program.groups[0].strands = 1_000_000;
            let spread = Quantity::ByStrand(ByStrand::Spread { first: 1, last: 2 });
            phase(p).acts = vec![act("write", |o| o.size = Some(spread)); 17];
        });
        refused("phase 1: duration in nanoseconds is", |p| {
            phase(p).until = Until::Duration(Duration::MAX);
        });
    }

    /// Each limit is kept, and together they would still take terabytes.
    #[test]
    fn memory_has_a_limit() {
        let memory = "the memory in bytes that the plan needs is";
        refused(memory, |p| {
            p.workers = Some(WORKERS);
            p.program.groups[0].strands = 1_000_000;
            phase(p).acts = vec![act("write", |o| o.size = Some(Quantity::Fixed(16 << 20))); 1000];
        });
        refused(memory, |p| {
            p.program.groups[0].strands = 1_000_000;
            phase(p).acts[0].options.conn.last = 3;
        });
        refused(memory, |p| {
            p.program.groups[0].strands = 100_000;
            phase(p).acts[0].options.protocol = Some("heavy".to_owned());
        });
        // What people do on machines of this size.
        let mut large = plan(vec![act("connect", |_| {}), act("write", |_| {})]);
        large.program.groups[0].strands = 1_000_000;
        large.workers = Some(128);
        large.check(MEMORY, false, &TwoOptions).unwrap();
        large.program.groups[0].strands = 10_000;
        large.check(MEMORY, true, &TwoOptions).unwrap();
    }

    #[test]
    fn connections_of_a_strand_are_counted_once() {
        let conn = |first, last| act("write", |o| o.conn = Conns { first, last });
        let plan = plan(vec![conn(5, 9), conn(0, 0), conn(7, 8), conn(8, 11), conn(20, 20)]);
        assert_eq!(plan.program.groups[0].connections(), 1 + 7 + 1);
    }
}
