//! Profiles that come with wirecost: a file each, in uperf's dialect, and [`ALL`] is the only list of
//! them. They are also the examples that the language is learnt from.

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
const CONNECTIONS: Variable = text("connections", "1", "strands, each with its own connection");
const DURATION: Variable = text("duration", "10s", "length of the phase that counts");
const PROTOCOL: Variable = text("protocol", "tcp", "tcp or unix");
const OPTIONS: Variable =
    text("options", "", "more options, as in \"zerocopy\": each flowop takes those for it");

const fn text(name: &'static str, default: &'static str, help: &'static str) -> Variable {
    Variable { name, default: Default::Text(default), help }
}

const fn size(default: &'static str) -> Variable {
    text("size", default, "bytes of one operation")
}

const fn request(default: &'static str) -> Variable {
    text("request", default, "bytes of a request")
}

const fn response(default: &'static str) -> Variable {
    text("response", default, "bytes of a response")
}

pub static ALL: [Builtin; 12] = [
    Builtin {
        name: "stream",
        summary: "bulk throughput: write as fast as possible",
        source: include_str!("stream.xml"),
        variables: &[H, CONNECTIONS, DURATION, PROTOCOL, OPTIONS, size("64k")],
    },
    Builtin {
        name: "maerts",
        summary: "bulk throughput backwards: read as fast as possible",
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
        summary: "request and response over open connections",
        source: include_str!("rr.xml"),
        variables: &[H, CONNECTIONS, DURATION, PROTOCOL, OPTIONS, request("64"), response("64")],
    },
    Builtin {
        name: "crr",
        summary: "a new connection for each request and response",
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
        summary: "write 64 KiB, wait for 64 bytes, and again",
        source: include_str!("specweb.xml"),
        variables: &[H, CONNECTIONS, DURATION, PROTOCOL, OPTIONS, request("64"), response("64k")],
    },
    Builtin {
        name: "oltp",
        summary: "short statements and answers of a database, with think time",
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
        summary: "bulk throughput from a file, by sendfile()",
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
        name: "udp-stream",
        summary: "datagrams as fast as possible",
        source: include_str!("udp-stream.xml"),
        variables: &[H, CONNECTIONS, DURATION, OPTIONS, size("1400")],
    },
    Builtin {
        name: "udp-rr",
        summary: "request and response by datagrams",
        source: include_str!("udp-rr.xml"),
        variables: &[
            H,
            CONNECTIONS,
            DURATION,
            OPTIONS,
            request("64"),
            response("64"),
            text("timeout", "1s", "wait for a response before it counts as lost"),
        ],
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
    use crate::language::{Parsed, parse, variables};

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
        parse(builtin.source, &value).unwrap_or_else(|errors| panic!("{errors:#?}"))
    }

    #[test]
    fn each_can_run_and_needs_no_remark() {
        for builtin in &ALL {
            let parsed = parsed(builtin);
            assert_eq!(parsed.notes, [], "{}", builtin.name);
            assert_eq!(parsed.refusals, [], "{}", builtin.name);
            assert_eq!(parsed.profile.name, builtin.name);
        }
    }

    #[test]
    fn the_variables_are_those_that_are_used() {
        for builtin in &ALL {
            let listed: BTreeSet<_> = builtin.variables.iter().map(|v| v.name.to_owned()).collect();
            let used: BTreeSet<_> = variables(builtin.source).into_iter().map(|v| v.name).collect();
            assert_eq!(listed, used, "{}", builtin.name);
            assert_eq!(listed.len(), builtin.variables.len(), "{}", builtin.name);
            assert!(builtin.variables.iter().all(|v| !v.help.is_empty()));
            assert!(!builtin.summary.is_empty() && builtin.source.is_ascii());
        }
    }

    #[test]
    fn each_group_has_one_phase_of_ten_seconds_between_short_ones() {
        for builtin in &ALL {
            for group in parsed(builtin).profile.groups {
                let untils: Vec<_> = group.transactions.iter().map(|t| t.until).collect();
                let once = Until::Iterations(1);
                let main = Until::Duration(Duration::from_secs(10));
                let expected = match builtin.name {
                    "crr" | "connect" => vec![main],
                    _ => vec![once, main, once],
                };
                assert_eq!(untils, expected, "{}", builtin.name);
                assert_eq!(group.strands, 1);
            }
        }
    }

    #[test]
    fn every_file_of_the_folder_is_listed_once() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/builtins");
        let files: BTreeSet<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter_map(|file| Some(file.strip_suffix(".xml")?.to_owned()))
            .collect();
        let names: BTreeSet<String> = ALL.iter().map(|b| b.name.to_owned()).collect();
        assert_eq!(files, names);
        assert_eq!(names.len(), ALL.len());
    }
}
