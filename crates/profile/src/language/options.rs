//! Every option that a flowop may carry: one definition each, and [`all`] is the only list of them. Those
//! that choose ways of the kernel are in [`crate::io_options`].

use std::sync::LazyLock;
use std::time::Duration;

use wirecost_model::profile::{IoValue, Options, Payload};

use crate::flowops::Flowops;
use crate::io_options::{self, INT_MAX, IoOption, ValueType};

/// One option: its name, which flowops it is for, what it does, how it is written and kept.
#[derive(Debug, Clone)]
pub struct OptionDef {
    pub name: &'static str,
    /// Flowops that it has an effect on.
    pub applies: Flowops,
    /// One line for a person.
    pub help: &'static str,
    pub value: ValueKind,
}

/// How an option's value is written, and the way to and from [`Options`].
#[derive(Debug, Clone)]
pub enum ValueKind {
    /// No value: being there is all.
    Flag {
        set: fn(&mut Options),
        get: fn(&Options) -> bool,
    },
    /// Number with an optional suffix (`64k`).
    Integer {
        min: u64,
        max: u64,
        set: fn(&mut Options, u64),
        get: fn(&Options) -> Option<u64>,
    },
    /// Number of which only the leading digits are read (`count`, `repeat`).
    Plain {
        min: i32,
        set: fn(&mut Options, u64),
        get: fn(&Options) -> Option<u64>,
    },
    Time {
        set: fn(&mut Options, Duration),
        get: fn(&Options) -> Option<Duration>,
    },
    /// Anything, in the case it is written in.
    Text {
        set: fn(&mut Options, String),
        get: fn(&Options) -> Option<&str>,
    },
    /// Bytes, or `rand(min,max)`.
    Size,
    /// How long to think.
    Pause,
    /// A connection id or a range of them.
    Conns,
    /// A port; everything that is no number means the kernel's choice.
    Port,
    Protocol,
    Io(&'static dyn IoOption),
    /// A cipher suite of TLS 1.3.
    Cipher,
    Payload,
    /// Known, checked as uperf checks it, and executed by nothing yet.
    Unsupported(Form),
}

/// How the value of an option that is not supported yet is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Flag,
    Integer { min: u64, max: u64 },
    Plain { min: i32 },
    Text,
}

const ANY_INTEGER: Form = Form::Integer { min: 0, max: INT_MAX };
const SHORT: Form = Form::Integer { min: 0, max: 65535 };

const fn unsupported(
    name: &'static str,
    applies: Flowops,
    form: Form,
    help: &'static str,
) -> OptionDef {
    OptionDef { name, applies, help, value: ValueKind::Unsupported(form) }
}

const fn flag(
    name: &'static str,
    applies: Flowops,
    help: &'static str,
    set: fn(&mut Options),
    get: fn(&Options) -> bool,
) -> OptionDef {
    OptionDef { name, applies, help, value: ValueKind::Flag { set, get } }
}

const fn text(
    name: &'static str,
    applies: Flowops,
    help: &'static str,
    set: fn(&mut Options, String),
    get: fn(&Options) -> Option<&str>,
) -> OptionDef {
    OptionDef { name, applies, help, value: ValueKind::Text { set, get } }
}

/// A number that 0 leaves as the kernel has it.
const fn sctp(
    name: &'static str,
    help: &'static str,
    set: fn(&mut Options, u64),
    get: fn(&Options) -> Option<u64>,
) -> OptionDef {
    let value = ValueKind::Integer { min: 0, max: INT_MAX, set, get };
    OptionDef { name, applies: Flowops::Open, help, value }
}

const fn streams(
    name: &'static str,
    help: &'static str,
    set: fn(&mut Options, u64),
    get: fn(&Options) -> Option<u64>,
) -> OptionDef {
    let value = ValueKind::Integer { min: 1, max: 65535, set, get };
    OptionDef { name, applies: Flowops::Open, help, value }
}

/// Where 0 means that nothing was asked for.
fn asked(value: u64) -> Option<u64> {
    (value > 0).then_some(value)
}

fn small(value: u64) -> Option<u32> {
    u32::try_from(value).ok()
}

fn short(value: u64) -> Option<u16> {
    u16::try_from(value).ok()
}

/// An empty text can only come from an empty variable, and asks for nothing.
fn filled(value: String) -> Option<String> {
    (!value.is_empty()).then_some(value)
}

/// Every option, in the order in which they are listed and written.
pub fn all() -> &'static [OptionDef] {
    static ALL: LazyLock<Vec<OptionDef>> = LazyLock::new(|| {
        let io = io_options::ALL.iter().map(|&option| OptionDef {
            name: option.name(),
            applies: option.flowops(),
            help: option.help(),
            value: ValueKind::Io(option),
        });
        WHERE_AND_HOW_MUCH.iter().cloned().chain(io).chain(FURTHER.iter().cloned()).collect()
    });
    &ALL
}

static WHERE_AND_HOW_MUCH: &[OptionDef] = &[
    // Where to and how.
    text(
        "remotehost",
        Flowops::Any,
        "host at the other end of the flowop",
        |o, v| o.remotehost = filled(v),
        |o| o.remotehost.as_deref(),
    ),
    OptionDef {
        name: "protocol",
        applies: Flowops::Open,
        help: "protocol of the connection; `wirecost list` names them",
        value: ValueKind::Protocol,
    },
    OptionDef {
        name: "port",
        applies: Flowops::Open,
        help: "port of the accepting side; default: chosen by the kernel",
        value: ValueKind::Port,
    },
    text(
        "bind",
        Flowops::Open,
        "local address of the connecting side",
        |o, v| o.bind = filled(v),
        |o| o.bind.as_deref(),
    ),
    OptionDef {
        name: "conn",
        applies: Flowops::Connection,
        help: "connection that the flowop acts on, or a range such as 1..100",
        value: ValueKind::Conns,
    },
    // How much and how often.
    OptionDef {
        name: "size",
        applies: Flowops::MoveOrFile,
        help: "bytes of one operation: 64k, or rand(64,8k) for a uniform distribution",
        value: ValueKind::Size,
    },
    OptionDef {
        name: "rsize",
        applies: Flowops::Move,
        help: "bytes per operation of the peer; default: size",
        value: ValueKind::Integer {
            min: 0,
            max: INT_MAX,
            set: |o, v| o.rsize = asked(v),
            get: |o| o.rsize,
        },
    },
    OptionDef {
        name: "count",
        applies: Flowops::Any,
        help: "number of times to execute the flowop",
        value: ValueKind::Plain {
            min: i32::MIN,
            set: |o, v| o.count = v,
            get: |o| (o.count != 1).then_some(o.count),
        },
    },
    OptionDef {
        name: "repeat",
        applies: Flowops::Move,
        help: "datagrams per execution",
        value: ValueKind::Plain {
            min: 1,
            set: |o, v| o.repeat = v,
            get: |o| (o.repeat != 1).then_some(o.repeat),
        },
    },
    // When.
    OptionDef {
        name: "timeout",
        applies: Flowops::Connection,
        help: "maximum time of one operation",
        value: ValueKind::Time { set: |o, v| o.timeout = Some(v), get: |o| o.timeout },
    },
    OptionDef {
        name: "duration",
        applies: Flowops::Think,
        help: "think time",
        value: ValueKind::Pause,
    },
    flag("busy", Flowops::Think, "think by spinning", |o| o.busy = true, |o| o.busy),
    flag("idle", Flowops::Think, "think by sleeping (default)", |_| {}, |_| false),
    flag(
        "canfail",
        Flowops::Any,
        "count a failure and continue",
        |o| o.canfail = true,
        |o| o.canfail,
    ),
    flag(
        "non_blocking",
        Flowops::Open,
        "accepted for compatibility; ignored: sockets are always non-blocking",
        |o| o.non_blocking = true,
        |o| o.non_blocking,
    ),
    flag(
        "single_reads",
        Flowops::Stream,
        "one call per read; by default a peer that only receives reads in large pieces",
        |o| o.single_reads = true,
        |o| o.single_reads,
    ),
];

static FURTHER: &[OptionDef] = &[
    // Of TLS.
    OptionDef {
        name: "cipher",
        applies: Flowops::Open,
        help: "TLS cipher: aes128, aes256 (default) or chacha20",
        value: ValueKind::Cipher,
    },
    flag(
        "ktls",
        Flowops::Open,
        "kernel TLS: the kernel encrypts and decrypts after the handshake",
        |o| o.ktls = true,
        |o| o.ktls,
    ),
    text(
        "engine",
        Flowops::Open,
        "accepted for compatibility; ignored: TLS uses no OpenSSL engine",
        |_, _| {},
        |_| None,
    ),
    text(
        "method",
        Flowops::Open,
        "accepted for compatibility; ignored: always TLS 1.3",
        |_, _| {},
        |_| None,
    ),
    // Of SCTP.
    sctp(
        "sctp_hb_interval",
        "SCTP heartbeat interval, ms",
        |o, v| o.sctp.hb_interval = asked(v).and_then(small),
        |o| o.sctp.hb_interval.map(u64::from),
    ),
    streams(
        "sctp_in_streams",
        "SCTP streams towards the master",
        |o, v| o.sctp.in_streams = short(v),
        |o| o.sctp.in_streams.map(u64::from),
    ),
    sctp(
        "sctp_max_burst_size",
        "maximum SCTP burst, packets",
        |o, v| o.sctp.max_burst_size = asked(v).and_then(small),
        |o| o.sctp.max_burst_size.map(u64::from),
    ),
    sctp(
        "sctp_max_fragment_size",
        "maximum SCTP fragment, bytes",
        |o, v| o.sctp.max_fragment_size = asked(v).and_then(small),
        |o| o.sctp.max_fragment_size.map(u64::from),
    ),
    flag(
        "sctp_nodelay",
        Flowops::Open,
        "send small SCTP messages immediately",
        |o| o.sctp.nodelay = true,
        |o| o.sctp.nodelay,
    ),
    streams(
        "sctp_out_streams",
        "SCTP streams from the master",
        |o, v| o.sctp.out_streams = short(v),
        |o| o.sctp.out_streams.map(u64::from),
    ),
    sctp(
        "sctp_path_mtu",
        "SCTP path MTU, bytes",
        |o, v| o.sctp.path_mtu = asked(v).and_then(small),
        |o| o.sctp.path_mtu.map(u64::from),
    ),
    sctp(
        "sctp_rto_initial",
        "initial SCTP retransmission timeout, ms",
        |o, v| o.sctp.rto_initial = asked(v).and_then(small),
        |o| o.sctp.rto_initial.map(u64::from),
    ),
    sctp(
        "sctp_rto_max",
        "maximum SCTP retransmission timeout, ms",
        |o, v| o.sctp.rto_max = asked(v).and_then(small),
        |o| o.sctp.rto_max.map(u64::from),
    ),
    sctp(
        "sctp_rto_min",
        "minimum SCTP retransmission timeout, ms",
        |o, v| o.sctp.rto_min = asked(v).and_then(small),
        |o| o.sctp.rto_min.map(u64::from),
    ),
    sctp(
        "sctp_sack_delay",
        "SCTP delayed acknowledgement time, ms",
        |o, v| o.sctp.sack_delay = asked(v).and_then(small),
        |o| o.sctp.sack_delay.map(u64::from),
    ),
    sctp(
        "sctp_sack_frequency",
        "packets per SCTP acknowledgement",
        |o, v| o.sctp.sack_frequency = asked(v).and_then(small),
        |o| o.sctp.sack_frequency.map(u64::from),
    ),
    // What the bytes are.
    OptionDef {
        name: "payload",
        applies: Flowops::Move,
        help: "zero, random (default) or file:PATH",
        value: ValueKind::Payload,
    },
    flag(
        "verify",
        Flowops::Move,
        "the receiver checks that it gets the bytes that were sent",
        |o| o.verify = true,
        |o| o.verify,
    ),
    text(
        "dir",
        Flowops::File,
        "file to send, or a directory of files to choose from",
        |o, v| o.dir = filled(v),
        |o| o.dir.as_deref(),
    ),
    OptionDef {
        name: "nfiles",
        applies: Flowops::File,
        help: "number of files of dir to use, default all",
        value: ValueKind::Integer {
            min: 0,
            max: INT_MAX,
            set: |o, v| o.nfiles = asked(v),
            get: |o| o.nfiles,
        },
    },
    // Known to uperf, executed by nothing here yet.
    unsupported(
        "batch_size",
        Flowops::Any,
        Form::Plain { min: 1 },
        "SCTP messages per system call",
    ),
    unsupported("bblog", Flowops::Open, ANY_INTEGER, "TCP black box logging of FreeBSD"),
    unsupported("encaps", Flowops::Open, SHORT, "UDP encapsulation port"),
    unsupported("localhost", Flowops::Open, Form::Text, "RDS local host name"),
    unsupported("stack", Flowops::Open, Form::Text, "TCP stack of FreeBSD"),
    unsupported(
        "sctp_pr_policy",
        Flowops::Any,
        Form::Text,
        "SCTP partial reliability: ttl, rtx or buf",
    ),
    unsupported("sctp_pr_value", Flowops::Any, ANY_INTEGER, "parameter of sctp_pr_policy"),
    unsupported("sctp_stream_id", Flowops::Any, SHORT, "SCTP stream of a write"),
    unsupported(
        "sctp_unordered",
        Flowops::Any,
        Form::Flag,
        "SCTP messages may overtake each other",
    ),
];

/// The option of this name, in any case.
pub fn find(name: &str) -> Option<&'static OptionDef> {
    all().iter().find(|option| option.name.eq_ignore_ascii_case(name))
}

impl OptionDef {
    /// Whether it is written without a value.
    pub fn is_flag(&self) -> bool {
        match &self.value {
            ValueKind::Flag { .. } | ValueKind::Unsupported(Form::Flag) => true,
            ValueKind::Io(option) => option.value() == ValueType::Flag,
            _ => false,
        }
    }

    /// Whether the option has an effect on this flowop.
    pub fn applies_to(&self, flowop: &str) -> bool {
        self.applies == Flowops::Any || self.applies.contains(flowop)
    }

    /// Its value in `options`, as a profile writes it; none where it is not set. Empty for flags.
    pub fn written(&self, options: &Options) -> Option<String> {
        match &self.value {
            ValueKind::Flag { get, .. } => get(options).then(String::new),
            ValueKind::Integer { get, .. } => get(options).map(|v| v.to_string()),
            ValueKind::Plain { get, .. } => get(options).map(plain),
            ValueKind::Time { get, .. } => get(options).map(time),
            ValueKind::Text { get, .. } => get(options).map(str::to_owned),
            ValueKind::Size => options.size.as_ref().map(ToString::to_string),
            ValueKind::Pause => {
                let written = |ns: u64| time(Duration::from_nanos(ns));
                options.duration.as_ref().map(|pause| pause.described(&written))
            }
            ValueKind::Conns => (options.conn.first > 0).then(|| options.conn.to_string()),
            ValueKind::Port => options.port.map(|port| port.to_string()),
            ValueKind::Protocol => options.protocol.clone(),
            ValueKind::Cipher => options.cipher.map(|cipher| cipher.name().to_owned()),
            ValueKind::Io(option) => option.get(options).map(io),
            ValueKind::Payload => match &options.payload {
                Payload::Random => None,
                Payload::Zero => Some("zero".to_owned()),
                Payload::File(path) => Some(format!("file:{path}")),
            },
            ValueKind::Unsupported(_) => options.unsupported.get(self.name).cloned(),
        }
    }
}

/// The value of an I/O option as results tell it.
pub fn requested(value: &IoValue) -> String {
    if *value == IoValue::On { "on".to_owned() } else { io(value) }
}

fn io(value: &IoValue) -> String {
    match value {
        IoValue::On => String::new(),
        IoValue::Number(number) => number.to_string(),
        IoValue::Time(length) => time(*length),
        IoValue::Text(text) => text.clone(),
    }
}

/// The way back from [`super::number::plain`], which makes 2^64 - 1 of every negative number.
fn plain(value: u64) -> String {
    if value == u64::MAX { "-1".to_owned() } else { value.to_string() }
}

/// A time in the largest unit that has no fraction.
pub fn time(value: Duration) -> String {
    let nanoseconds = value.as_nanos();
    let units = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)];
    units.into_iter().find(|(_, one)| nanoseconds.is_multiple_of(*one)).map_or_else(
        || format!("{nanoseconds}ns"),
        |(unit, one)| format!("{}{unit}", nanoseconds / one),
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::language::names;

    #[test]
    fn names_are_unique_and_explained() {
        let names: BTreeSet<_> = all().iter().map(|option| option.name).collect();
        assert_eq!(names.len(), all().len());
        for option in all() {
            assert!(!option.help.is_empty(), "{}", option.name);
            assert!(option.name.is_ascii() && option.help.is_ascii());
            assert_eq!(option.name, option.name.to_ascii_lowercase());
        }
    }

    #[test]
    fn options_are_for_known_flowops() {
        for option in all() {
            assert!(option.applies.names().count() > 0, "{}", option.name);
            for flowop in names::flowop_names() {
                let named = option.applies.names().any(|name| name == flowop);
                assert_eq!(option.applies_to(flowop), named, "{} of {flowop}", option.name);
            }
        }
    }

    #[test]
    fn nothing_is_written_of_default_options() {
        for option in all() {
            assert_eq!(option.written(&Options::default()), None, "{}", option.name);
        }
    }

    /// The table of options in uperf's manual and source.
    #[test]
    fn every_option_of_uperf_is_known() {
        let uperf = "tcp_nodelay busy idle canfail non_blocking size rsize count repeat batch_size conn \
            remotehost localhost protocol port wndsz timeout duration nfiles dir cc stack bblog encaps \
            sctp_unordered sctp_nodelay sctp_rto_min sctp_rto_max sctp_rto_initial sctp_sack_delay \
            sctp_hb_interval sctp_sack_frequency sctp_max_burst_size sctp_max_fragment_size \
            sctp_path_mtu sctp_in_streams sctp_out_streams sctp_stream_id sctp_pr_policy \
            sctp_pr_value engine cipher method";
        for name in uperf.split_whitespace() {
            assert!(find(name).is_some(), "{name}");
        }
    }
}
