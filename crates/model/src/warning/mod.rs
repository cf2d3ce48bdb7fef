//! What can invalidate a run, said on the result itself: each with data, a stable code and what to do next.
//! A new one is a type that is a `Problem`, and its name in the list below.

mod access;
mod cpu;
mod hardware;
mod settings;
mod time;
mod traffic;

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use access::*;
pub use cpu::*;
pub use hardware::*;
pub use settings::*;
pub use time::*;
pub use traffic::*;

/// One kind of warning.
trait Problem {
    /// Stable, for programs.
    fn code(&self) -> &'static str;

    /// The host that it is said of, where it is said of one.
    fn host(&mut self) -> Option<&mut String> {
        None
    }

    /// What happened, where, and what to do.
    fn message(&self) -> String;

    /// What happened and where, on one line.
    fn brief(&self) -> String {
        self.message()
    }
}

/// An enum of types that are problems.
macro_rules! warnings {
    ($($name:ident),+ $(,)?) => {
        /// Any of them.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "code", rename_all = "kebab-case")]
        pub enum Warning {
            $($name($name),)+
        }

        impl Warning {
            fn problem(&self) -> &dyn Problem {
                match self {
                    $(Warning::$name(problem) => problem,)+
                }
            }

            fn problem_mut(&mut self) -> &mut dyn Problem {
                match self {
                    $(Warning::$name(problem) => problem,)+
                }
            }
        }

        $(impl From<$name> for Warning {
            fn from(problem: $name) -> Self {
                Warning::$name(problem)
            }
        })+
    };
}

warnings! {
    ClippedSetting,
    ClockChanged,
    ClockOffset,
    ClockSettingsChanged,
    DatagramsLost,
    DeadTime,
    DepartureQueueShort,
    DepartureTimesUnknown,
    DeviceSettingsChanged,
    Discarded,
    EmulatedCpu,
    FailedOperations,
    Fallback,
    ForeignCpu,
    FramesBypassed,
    FlowsMoved,
    ImpossibleLoad,
    InterruptsMoved,
    LinkChanged,
    LinkLate,
    LinkUnmeasured,
    LinkQdiscsUnread,
    LostIntervals,
    MoreWorkersThanCpus,
    NoEffect,
    NothingMoved,
    OfferedLoadNotReached,
    PageCache,
    PauseFramesSeen,
    PollersShareCpus,
    Profile,
    SaturatedWorker,
    SegmentsRetransmitted,
    SettingLeft,
    SharedCpus,
    SharedMachine,
    Steal,
    Throttled,
    ConnectionsOnOtherCpu,
    ConnectionsRejected,
    UnaccountedCpu,
    UnauthenticatedPeer,
    UnfinishedStrands,
    WindowSkew,
    WorkerWaited,
    ZeroCopyCopied,
    ZeroCopyRefused,
}

impl Warning {
    /// Stable, for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.problem().code()
    }

    /// The same warning, said of this host where it was left open.
    #[must_use]
    pub fn of_host(mut self, name: &str) -> Self {
        if let Some(host) = self.problem_mut().host() {
            name.clone_into(host);
        }
        self
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem().message())
    }
}

/// A warning as JSON documents carry it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Entry {
    pub code: String,
    pub message: String,
    /// What happened and where, on one line; null in older records.
    #[serde(default)]
    pub brief: Option<String>,
}

impl From<&Warning> for Entry {
    fn from(warning: &Warning) -> Self {
        Self {
            code: warning.code().to_owned(),
            message: warning.to_string(),
            brief: Some(warning.problem().brief()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A string that goes on in the next line needs a backslash, else the indentation is a part of it: outside of
    /// indentation, no line of the warnings has two spaces in a row.
    #[test]
    fn no_message_has_two_spaces_in_a_row() {
        let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/warning");
        let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        let mut lines = 0;
        for file in files {
            for line in std::fs::read_to_string(&file).unwrap().lines() {
                assert!(!line.trim_start().contains(&" ".repeat(2)), "{}: {line}", file.display());
                lines += 1;
            }
        }
        assert!(lines > 1000, "{lines}");
    }

    /// As an agent tells it to the controller, which knows what the host is called.
    #[test]
    fn a_warning_survives_the_wire_and_gets_its_host() {
        let refused = ConnectionsRejected { host: String::new(), connections: 3 };
        for warning in [refused.into(), Discarded {}.into()] {
            let text = serde_json::to_string::<Warning>(&warning).unwrap();
            let told: Warning = serde_json::from_str(&text).unwrap();
            assert_eq!(told, warning, "{text}");
        }
        let told = Warning::from(ConnectionsRejected { host: String::new(), connections: 3 });
        let told = told.of_host("server");
        assert_eq!(told.code(), "connections-rejected");
        assert!(told.to_string().starts_with("server rejected 3 connections"), "{told}");
        // One that is of no host stays as it is.
        let lost = Warning::from(FailedOperations { failed: 3, timeouts: 1 });
        assert_eq!(lost.clone().of_host("server"), lost);
    }

    #[test]
    fn a_brief_is_the_message_without_reasons_and_advice() {
        let warning = Warning::from(SaturatedWorker {
            host: "h1".to_owned(),
            worker: 1,
            cpu: Some(3),
            busy: 0.98,
        });
        let entry = Entry::from(&warning);
        let brief = "worker 1 of h1 (CPU 3) was busy 98% of the window";
        assert_eq!(entry.brief.as_deref(), Some(brief));
        assert!(entry.message.starts_with(&format!("{brief}: ")), "{}", entry.message);
        // Records of earlier versions have none.
        let old: Entry = serde_json::from_str(r#"{"code": "steal", "message": "m"}"#).unwrap();
        assert_eq!(old.brief, None);
    }

    #[test]
    fn drops_are_told_where_there_were_any() {
        let told = |receive_buffer_drops, joined| {
            let (lost, sent, places) = (5, 1000, Vec::new());
            let frame_drops = 0;
            let lost =
                DatagramsLost { lost, sent, receive_buffer_drops, frame_drops, joined, places };
            Warning::from(lost).to_string()
        };
        assert_eq!(told(0, true), "5 of 1000 datagrams were lost (0.50%)");
        assert!(told(4, false).contains("(0.50%), 4 of them dropped by full receive buffers"));
        assert!(told(4, true).contains(", at least 4 of them dropped"));
        let of_frames = Warning::from(DatagramsLost {
            lost: 5,
            sent: 1000,
            receive_buffer_drops: 0,
            frame_drops: 4,
            joined: false,
            places: Vec::new(),
        });
        let of_frames = of_frames.to_string();
        assert!(of_frames.contains("(0.50%), 4 of them dropped by AF_XDP sockets"), "{of_frames}");
        assert!(!of_frames.contains("wndsz"), "engines of frames refuse it: {of_frames}");
        let places = ["h1: 2 packets: qdisc 2 (f)", "h2: 3 packets: other 3 (g)"];
        let traced = Warning::from(DatagramsLost {
            lost: 5,
            sent: 1000,
            receive_buffer_drops: 0,
            frame_drops: 0,
            joined: false,
            places: places.map(str::to_owned).to_vec(),
        });
        let expected = "(0.50%); dropped in the kernel during the window: h1: 2 packets: qdisc 2 (f); \
                        h2: 3 packets: other 3 (g)";
        assert!(traced.to_string().ends_with(expected), "{traced}");
    }
}
