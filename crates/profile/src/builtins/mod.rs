//! Profiles that come with wirecost: a file each, in uperf's language where that can say it and else in
//! the native one, and [`ALL`] is the only list of them. They are also the examples that the languages
//! are learnt from.

/// One built-in profile.
#[derive(Debug)]
pub struct Builtin {
    /// As in `wirecost run @name`.
    pub name: &'static str,
    /// One line for a person.
    pub summary: &'static str,
    pub source: &'static str,
    /// All variables that the source uses.
    pub variables: &'static [Variable],
}

/// A variable of a built-in profile.
#[derive(Debug)]
pub struct Variable {
    pub name: &'static str,
    pub default: Default,
    /// One line for a person.
    pub help: &'static str,
}

/// What a variable is where nobody says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Default {
    Text(&'static str),
    /// A host of the run, which the caller assigns.
    Host,
    /// The path of the running program: a file that is there on every host.
    Executable,
}

const H: Variable = Variable { name: "h", default: Default::Host, help: "remote host" };
const CONNECTIONS: Variable = text("connections", "1", "number of connections, one strand each");
const DURATION: Variable = text("duration", "10s", "measurement time");
const PROTOCOL: Variable = text("protocol", "tcp", "any protocol of `wirecost list` but udp");
const ANY_PROTOCOL: Variable = text("protocol", "tcp", "any protocol of `wirecost list`");
const STREAM_PROTOCOL: Variable = text("protocol", "tcp", "tcp or unix");
const SOURCE: Variable = text(
    "source",
    "/var/tmp",
    "directory of the file that is sent; with source_size=0, file or directory to send",
);
const SOURCE_SIZE: Variable = text(
    "source_size",
    "64m",
    "bytes of the file that is made before the run; 0: send what is there",
);
const SOURCE_IO: Variable = text(
    "source_io",
    "read",
    "calls that read and send the file: read, sendfile, splice or io_uring",
);
const SINK_IO: Variable = text("sink_io", "write", "calls that write the files: write or io_uring");
const PAGE_CACHE: Variable =
    text("page_cache", "cold", "page cache before each reading of the file: cold, warm or as-is");
const SINK: Variable = text("sink", "/var/tmp", "directory of the files that are written");
const SINK_SIZE: Variable =
    text("sink_size", "64m", "total bytes of these files; more overwrites them");
const TCP_OR_UDP: Variable = text("protocol", "udp", "udp or tcp");
const TIMEOUT: Variable =
    text("timeout", "1s", "time to wait for a response before it counts as lost");
const OPTIONS: Variable = text(
    "options",
    "",
    "more flowop options, such as \"zerocopy\"; each flowop uses those that apply",
);

const fn text(name: &'static str, default: &'static str, help: &'static str) -> Variable {
    Variable { name, default: Default::Text(default), help }
}

const fn size(default: &'static str) -> Variable {
    text("size", default, "bytes per operation")
}

const fn request(default: &'static str) -> Variable {
    text("request", default, "bytes per request")
}

const fn response(default: &'static str) -> Variable {
    text("response", default, "bytes per response")
}

pub static ALL: [Builtin; 46] = [
    Builtin {
        name: "stream",
        summary: "bulk throughput: write as fast as possible",
        source: include_str!("stream.xml"),
        variables: &[H, CONNECTIONS, DURATION, PROTOCOL, OPTIONS, size("64k")],
    },
    Builtin {
        name: "maerts",
        summary: "reverse bulk throughput: read as fast as possible",
        source: include_str!("maerts.xml"),
        variables: &[H, CONNECTIONS, DURATION, PROTOCOL, OPTIONS, size("64k")],
    },
    Builtin {
        name: "bidirectional",
        summary: "bulk throughput in both directions at once",
        source: include_str!("bidirectional.xml"),
        variables: &[H, CONNECTIONS, DURATION, PROTOCOL, OPTIONS, size("64k")],
    },
    Builtin {
        name: "rr",
        summary: "request-response over open connections",
        source: include_str!("rr.xml"),
        variables: &[H, CONNECTIONS, DURATION, PROTOCOL, OPTIONS, request("64"), response("64")],
    },
    Builtin {
        name: "ping-pong",
        summary: "one message there and back, of the same size",
        source: include_str!("ping-pong.xml"),
        variables: &[H, CONNECTIONS, DURATION, ANY_PROTOCOL, OPTIONS, size("64"), TIMEOUT],
    },
    Builtin {
        name: "crr",
        summary: "a new connection per request-response",
        source: include_str!("crr.xml"),
        variables: &[H, CONNECTIONS, DURATION, PROTOCOL, OPTIONS, request("64"), response("64")],
    },
    Builtin {
        name: "connect",
        summary: "open and close connections, without data",
        source: include_str!("connect.xml"),
        variables: &[H, CONNECTIONS, DURATION, PROTOCOL, OPTIONS],
    },
    Builtin {
        name: "http-get",
        summary: "serve files: 64 bytes in, 64 KiB out, with keep-alive",
        source: include_str!("http-get.xml"),
        variables: &[H, CONNECTIONS, DURATION, PROTOCOL, OPTIONS, request("64"), response("64k")],
    },
    Builtin {
        name: "specweb",
        summary: "send 64 KiB, wait for 64 bytes, repeat",
        source: include_str!("specweb.xml"),
        variables: &[H, CONNECTIONS, DURATION, PROTOCOL, OPTIONS, request("64"), response("64k")],
    },
    Builtin {
        name: "mixed",
        summary: "long flows beside short request-response traffic",
        source: include_str!("mixed.xml"),
        variables: &[
            H,
            text("flows", "1", "strands that write as fast as possible"),
            text("calls", "16", "request-response strands"),
            DURATION,
            PROTOCOL,
            OPTIONS,
            size("64k"),
            request("4k"),
            response("4k"),
        ],
    },
    Builtin {
        name: "oltp",
        summary: "short database statements and answers, with think time",
        source: include_str!("oltp.xml"),
        variables: &[
            H,
            CONNECTIONS,
            DURATION,
            PROTOCOL,
            OPTIONS,
            text("think", "1ms", "pause between transactions"),
        ],
    },
    Builtin {
        name: "sendfile",
        summary: "bulk throughput from a file, with sendfile()",
        source: include_str!("sendfile.xml"),
        variables: &[
            H,
            CONNECTIONS,
            DURATION,
            PROTOCOL,
            OPTIONS,
            size("64k"),
            Variable {
                name: "file",
                default: Default::Executable,
                help: "file or directory to send from",
            },
        ],
    },
    Builtin {
        name: "disk-to-memory",
        summary: "bulk throughput from files, past the page cache, to memory",
        source: include_str!("disk-to-memory.xml"),
        variables: &[
            H,
            CONNECTIONS,
            DURATION,
            STREAM_PROTOCOL,
            OPTIONS,
            size("64k"),
            SOURCE,
            SOURCE_SIZE,
            SOURCE_IO,
            PAGE_CACHE,
        ],
    },
    Builtin {
        name: "memory-to-disk",
        summary: "bulk throughput to files of the remote host",
        source: include_str!("memory-to-disk.xml"),
        variables: &[
            H,
            CONNECTIONS,
            DURATION,
            STREAM_PROTOCOL,
            OPTIONS,
            size("64k"),
            SINK,
            SINK_SIZE,
            SINK_IO,
        ],
    },
    Builtin {
        name: "disk-to-disk",
        summary: "bulk throughput from files to files of the remote host",
        source: include_str!("disk-to-disk.xml"),
        variables: &[
            H,
            CONNECTIONS,
            DURATION,
            STREAM_PROTOCOL,
            OPTIONS,
            size("64k"),
            SOURCE,
            SOURCE_SIZE,
            SOURCE_IO,
            PAGE_CACHE,
            SINK,
            SINK_SIZE,
            SINK_IO,
        ],
    },
    Builtin {
        name: "udp-stream",
        summary: "datagrams as fast as possible",
        source: include_str!("udp-stream.xml"),
        variables: &[H, CONNECTIONS, DURATION, OPTIONS, size("1400")],
    },
    Builtin {
        name: "udp-rr",
        summary: "request-response with datagrams",
        source: include_str!("udp-rr.xml"),
        variables: &[H, CONNECTIONS, DURATION, OPTIONS, request("64"), response("64"), TIMEOUT],
    },
    Builtin {
        name: "udp-echo",
        summary: "datagrams that are answered, without waiting for the answers",
        source: include_str!("udp-echo.xml"),
        variables: &[
            H,
            CONNECTIONS,
            DURATION,
            OPTIONS,
            size("64"),
            TIMEOUT,
            text(
                "outstanding",
                "64",
                "requests without an answer at a time, per connection (up to 65536)",
            ),
        ],
    },
    // Ports of other programs' tests, with their own defaults.
    Builtin {
        name: "iperf-stream",
        summary: "iperf and iperf3: streams of blocks",
        source: include_str!("iperf-stream.xml"),
        variables: &[H, CONNECTIONS, DURATION, size("128k")],
    },
    Builtin {
        name: "iperf-reverse",
        summary: "iperf3 -R: the server sends",
        source: include_str!("iperf-reverse.xml"),
        variables: &[H, CONNECTIONS, DURATION, size("128k")],
    },
    Builtin {
        name: "iperf-bidirectional",
        summary: "iperf3 --bidir: streams in both directions",
        source: include_str!("iperf-bidirectional.xml"),
        variables: &[H, CONNECTIONS, DURATION, size("128k")],
    },
    Builtin {
        name: "iperf-udp",
        summary: "iperf3 -u -b 0: datagrams as fast as possible",
        source: include_str!("iperf-udp.xml"),
        variables: &[H, CONNECTIONS, DURATION, size("1470")],
    },
    Builtin {
        name: "sockperf-ping-pong",
        summary: "sockperf ping-pong: one message in each direction",
        source: include_str!("sockperf-ping-pong.xml"),
        variables: &[H, CONNECTIONS, DURATION, TCP_OR_UDP, size("14"), TIMEOUT],
    },
    Builtin {
        name: "sockperf-under-load",
        summary: "sockperf under-load: answered messages at a set rate",
        source: include_str!("sockperf-under-load.xml"),
        variables: &[
            H,
            CONNECTIONS,
            DURATION,
            TCP_OR_UDP,
            size("14"),
            TIMEOUT,
            text("mps", "10000", "messages per second and connection"),
        ],
    },
    Builtin {
        name: "sockperf-throughput",
        summary: "sockperf throughput: messages as fast as possible",
        source: include_str!("sockperf-throughput.xml"),
        variables: &[H, CONNECTIONS, DURATION, TCP_OR_UDP, size("14")],
    },
    Builtin {
        name: "qperf-tcp-bw",
        summary: "qperf tcp_bw: one stream",
        source: include_str!("qperf-tcp-bw.xml"),
        variables: &[H, CONNECTIONS, DURATION, size("64k")],
    },
    Builtin {
        name: "qperf-tcp-lat",
        summary: "qperf tcp_lat: one byte in each direction",
        source: include_str!("qperf-tcp-lat.xml"),
        variables: &[H, CONNECTIONS, DURATION, request("1"), response("1")],
    },
    Builtin {
        name: "qperf-udp-bw",
        summary: "qperf udp_bw: datagrams as fast as possible",
        source: include_str!("qperf-udp-bw.xml"),
        variables: &[H, CONNECTIONS, DURATION, size("32k")],
    },
    Builtin {
        name: "qperf-udp-lat",
        summary: "qperf udp_lat: one byte in each direction, with datagrams",
        source: include_str!("qperf-udp-lat.xml"),
        variables: &[H, CONNECTIONS, DURATION, request("1"), response("1"), TIMEOUT],
    },
    Builtin {
        name: "netperf-tcp-stream",
        summary: "netperf TCP_STREAM: bulk throughput",
        source: include_str!("netperf-tcp-stream.xml"),
        variables: &[H, CONNECTIONS, DURATION, size("16k")],
    },
    Builtin {
        name: "netperf-tcp-maerts",
        summary: "netperf TCP_MAERTS: reverse bulk throughput",
        source: include_str!("netperf-tcp-maerts.xml"),
        variables: &[H, CONNECTIONS, DURATION, size("16k")],
    },
    Builtin {
        name: "netperf-tcp-rr",
        summary: "netperf TCP_RR: request-response",
        source: include_str!("netperf-tcp-rr.xml"),
        variables: &[H, CONNECTIONS, DURATION, request("1"), response("1")],
    },
    Builtin {
        name: "netperf-tcp-crr",
        summary: "netperf TCP_CRR: a new connection per request-response",
        source: include_str!("netperf-tcp-crr.xml"),
        variables: &[H, CONNECTIONS, DURATION, request("1"), response("1")],
    },
    Builtin {
        name: "netperf-udp-stream",
        summary: "netperf UDP_STREAM: datagrams as fast as possible",
        source: include_str!("netperf-udp-stream.xml"),
        variables: &[H, CONNECTIONS, DURATION, size("65507")],
    },
    Builtin {
        name: "netperf-udp-rr",
        summary: "netperf UDP_RR: request-response with datagrams",
        source: include_str!("netperf-udp-rr.xml"),
        variables: &[H, CONNECTIONS, DURATION, request("1"), response("1"), TIMEOUT],
    },
    Builtin {
        name: "neper-tcp-stream",
        summary: "neper tcp_stream: flows of bulk data",
        source: include_str!("neper-tcp-stream.xml"),
        variables: &[H, CONNECTIONS, DURATION, size("16k")],
    },
    Builtin {
        name: "neper-tcp-rr",
        summary: "neper tcp_rr: request-response",
        source: include_str!("neper-tcp-rr.xml"),
        variables: &[H, CONNECTIONS, DURATION, request("1"), response("1")],
    },
    Builtin {
        name: "neper-tcp-crr",
        summary: "neper tcp_crr: a new connection per request-response",
        source: include_str!("neper-tcp-crr.xml"),
        variables: &[H, CONNECTIONS, DURATION, request("1"), response("1")],
    },
    Builtin {
        name: "neper-udp-stream",
        summary: "neper udp_stream: datagrams as fast as possible",
        source: include_str!("neper-udp-stream.xml"),
        variables: &[H, CONNECTIONS, DURATION, size("16k")],
    },
    Builtin {
        name: "neper-udp-rr",
        summary: "neper udp_rr: request-response with datagrams",
        source: include_str!("neper-udp-rr.xml"),
        variables: &[H, CONNECTIONS, DURATION, request("1"), response("1"), TIMEOUT],
    },
    Builtin {
        name: "imix",
        summary: "simple IMIX datagrams at a constant rate",
        source: include_str!("imix.toml"),
        variables: &[
            H,
            CONNECTIONS,
            DURATION,
            text("rate", "10000", "datagrams per second and connection"),
        ],
    },
    Builtin {
        name: "rr-open",
        summary: "request-response with Poisson arrivals, open loop",
        source: include_str!("rr-open.toml"),
        variables: &[
            H,
            CONNECTIONS,
            DURATION,
            PROTOCOL,
            text("rate", "100", "requests per second and connection"),
            request("64"),
            response("1k"),
        ],
    },
    Builtin {
        name: "two-paths",
        summary: "bulk streams to two hosts at once, which share what lies between",
        source: include_str!("two-paths.xml"),
        variables: &[
            Variable { name: "near", default: Default::Host, help: "first remote host" },
            Variable { name: "far", default: Default::Host, help: "second remote host" },
            text("connections", "1", "streams to each host"),
            DURATION,
            PROTOCOL,
            size("64k"),
            OPTIONS,
        ],
    },
    Builtin {
        name: "responsiveness",
        summary: "latency probes beside bulk streams in both directions",
        source: include_str!("responsiveness.toml"),
        variables: &[
            H,
            text("up", "4", "streams to the remote host"),
            text("down", "4", "streams from the remote host"),
            text("probes", "8", "strands of each kind of probe"),
            text("think", "200ms", "mean pause of a strand between two probes"),
            DURATION,
            text("protocol", "tcp", "tcp or tls"),
            size("64k"),
            request("64"),
            response("64"),
        ],
    },
    Builtin {
        name: "rpc-mix",
        summary: "a mix of calls with lognormal sizes and Poisson arrivals",
        source: include_str!("rpc-mix.toml"),
        variables: &[
            H,
            CONNECTIONS,
            DURATION,
            PROTOCOL,
            text("rate", "500", "calls per second and connection"),
        ],
    },
    Builtin {
        name: "sessions",
        summary: "users who think, then load a page over four connections",
        source: include_str!("sessions.toml"),
        variables: &[H, CONNECTIONS, DURATION, PROTOCOL],
    },
];

/// The built-in profile of this name (without `@`).
pub fn find(name: &str) -> Option<&'static Builtin> {
    ALL.iter().find(|builtin| builtin.name == name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use wirecost_model::profile::Until;

    use super::*;
    use crate::language::{Language, Parsed};

    #[track_caller]
    fn parsed(builtin: &Builtin) -> Parsed {
        let value = |name: &str| {
            let variable = builtin.variables.iter().find(|v| v.name == name)?;
            Some(match variable.default {
                Default::Text(text) => text.to_owned(),
                Default::Host => "peer".to_owned(),
                Default::Executable => "/usr/bin/wirecost".to_owned(),
            })
        };
        let language = Language::of("", builtin.source);
        language.parse(builtin.source, &value).unwrap_or_else(|errors| panic!("{errors:#?}"))
    }

    #[test]
    fn what_a_native_one_says_of_its_variables_is_what_the_list_says() {
        for builtin in ALL.iter().filter(|b| Language::of("", b.source) == Language::Toml) {
            // Without the list: only the host is not known to the file itself.
            let host = |name: &str| (name == "h").then(|| "peer".to_owned());
            let alone = Language::Toml.parse(builtin.source, &host).unwrap();
            assert_eq!(alone.profile, parsed(builtin).profile, "{}", builtin.name);
        }
    }

    #[test]
    fn each_can_run_and_needs_no_remark() {
        for builtin in &ALL {
            let parsed = parsed(builtin);
            // What a rate means is told to all who use one.
            let remarks = parsed.notes.iter().filter(|note| !note.to_string().starts_with("rate="));
            assert_eq!(remarks.count(), 0, "{}: {:?}", builtin.name, parsed.notes);
            assert_eq!(parsed.refusals, [], "{}", builtin.name);
            assert_eq!(parsed.profile.name, builtin.name);
        }
    }

    #[test]
    fn the_variables_are_those_that_are_used() {
        for builtin in &ALL {
            let listed: BTreeSet<_> = builtin.variables.iter().map(|v| v.name.to_owned()).collect();
            let uses = Language::of("", builtin.source).variables(builtin.source);
            let used: BTreeSet<_> = uses.into_iter().map(|v| v.name).collect();
            assert_eq!(listed, used, "{}", builtin.name);
            assert_eq!(listed.len(), builtin.variables.len(), "{}", builtin.name);
            assert!(builtin.variables.iter().all(|v| !v.help.is_empty()));
            assert!(!builtin.summary.is_empty() && builtin.source.is_ascii());
        }
    }

    #[test]
    fn each_group_has_one_phase_of_ten_seconds_between_short_ones() {
        for builtin in &ALL {
            for (number, group) in parsed(builtin).profile.groups.into_iter().enumerate() {
                let untils: Vec<_> = group.transactions.iter().map(|t| t.until).collect();
                let once = Until::Iterations(1);
                let main = Until::Duration(Duration::from_secs(10));
                let expected = match builtin.name {
                    name if name.ends_with("crr") || name == "connect" => vec![main],
                    _ => vec![once, main, once],
                };
                assert_eq!(untils, expected, "{}", builtin.name);
                let strands = match (builtin.name, number) {
                    ("mixed", 1) => 16,
                    ("responsiveness", 0 | 1) => 4,
                    ("responsiveness", _) => 8,
                    _ => 1,
                };
                assert_eq!(group.strands, strands, "{}", builtin.name);
            }
        }
    }

    #[test]
    fn every_file_of_the_folder_is_listed_once() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/builtins");
        let files: BTreeSet<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter_map(|file| {
                let name = file.strip_suffix(".xml").or_else(|| file.strip_suffix(".toml"))?;
                Some(name.to_owned())
            })
            .collect();
        let names: BTreeSet<String> = ALL.iter().map(|b| b.name.to_owned()).collect();
        assert_eq!(files, names);
        assert_eq!(names.len(), ALL.len());
    }
}
