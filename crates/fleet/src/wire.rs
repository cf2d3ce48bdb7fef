//! What controller and agent say to each other: one JSON document a message, its length before it.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use wirecost_model::clock::Nanos;
use wirecost_model::host::HostFacts;
use wirecost_model::measure::{Cut, PhaseResult, Setting};
use wirecost_model::observe::{Observation, ObserveRequest, ObserveTimes, ProbeReport};
use wirecost_model::plan::{Endpoints, Plan, Prepared};
use wirecost_model::status::Status;
use wirecost_model::warning::Warning;

/// Both ends must speak the same version.
pub const VERSION: u32 = 6;

/// No message is longer: a plan for a million strands takes some tens of megabytes, the cuts of an
/// hour at 10 ms some 130.
const LONGEST: u32 = 512 << 20;

/// What the controller tells an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// First word of a session.
    Hello { version: u32 },
    /// What time is it there? Also a sign of life. The answer has the same number.
    Ping { number: u64 },
    /// Put the load up and listen.
    Prepare(Box<Plan>),
    /// Where everybody listens: get ready to connect.
    Connect(Endpoints),
    /// Get ready to observe the machine, for all its hosts.
    Observe(ObserveRequest),
    /// Begin a phase.
    Start(PhaseTimes),
    /// End the phase after so many transactions, by group and strand.
    Finish { limits: BTreeMap<u32, Vec<u64>> },
    /// End the phase now.
    CutOff,
    /// Describe the host.
    Environment,
    /// Say what there is to say of the whole run.
    Summarize,
}

/// Instants of a phase on the agent's own clock, nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseTimes {
    pub phase: u32,
    pub start: Nanos,
    /// Beginning and end of the window; none where iterations decide.
    pub window: Option<(Nanos, Nanos)>,
    /// Times beside the window in which nothing observes.
    pub unobserved: Vec<(Nanos, Nanos)>,
    /// For the host that observes.
    pub observe: Option<ObserveTimes>,
}

/// What an agent tells the controller.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Notice {
    Welcome {
        version: u32,
        facts: Box<HostFacts>,
        /// Of the agent, as its machine numbers processes.
        pid: u32,
    },
    Pong {
        number: u64,
        now: Nanos,
    },
    Prepared(Prepared),
    Ready,
    /// Counters, while a phase runs.
    Cut {
        phase: u32,
        cut: Cut,
    },
    /// No strand begins another transaction by itself; so many has each begun, by group.
    Held {
        phase: u32,
        started: BTreeMap<u32, Vec<u64>>,
    },
    Ended(Box<PhaseResult>),
    /// Everything that observing needs is loaded; nothing is attached. What each probe can do.
    Watching {
        probes: Vec<ProbeReport>,
    },
    /// What was observed in a phase.
    Observed {
        phase: u32,
        observation: Box<Observation>,
    },
    Environment(Value),
    Summary {
        settings: Vec<Setting>,
        warnings: Vec<Warning>,
    },
    /// The run cannot go on.
    Failed {
        status: Status,
        message: String,
    },
}

/// Writes one message.
///
/// # Errors
/// Those of the stream.
pub fn write<T: Serialize>(stream: &mut impl Write, message: &T) -> io::Result<()> {
    let body = serde_json::to_vec(message)?;
    let length = u32::try_from(body.len())
        .ok()
        .filter(|&length| length <= LONGEST)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the message is too long"))?;
    let mut frame = Vec::with_capacity(body.len() + 4);
    frame.extend_from_slice(&length.to_le_bytes());
    frame.extend_from_slice(&body);
    stream.write_all(&frame)
}

/// Reads one message.
///
/// # Errors
/// Those of the stream; `UnexpectedEof` when it has ended; `InvalidData` for what is no message.
pub fn read<T: for<'de> Deserialize<'de>>(stream: &mut impl Read) -> io::Result<T> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => ended(),
        _ => error,
    })?;
    let length = u32::from_le_bytes(length);
    if length > LONGEST {
        let message = "what came is not a message of wirecost";
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    // What a stranger says of a length is not believed: memory is taken as bytes come.
    let mut body = Vec::new();
    stream.take(u64::from(length)).read_to_end(&mut body)?;
    if body.len() < length as usize {
        return Err(ended());
    }
    Ok(serde_json::from_slice(&body)?)
}

fn ended() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "its connection has ended")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_wire() {
        let limits = BTreeMap::from([(3, vec![1, 2, u64::MAX])]);
        let order = Order::Finish { limits };
        let mut bytes = Vec::new();
        write(&mut bytes, &order).unwrap();
        assert_eq!(read::<Order>(&mut bytes.as_slice()).unwrap(), order);
    }

    #[test]
    fn a_stranger_is_no_message() {
        let answer: io::Result<Order> = read(&mut b"GET / HTTP/1.1\r\n\r\n".as_slice());
        assert_eq!(answer.unwrap_err().kind(), io::ErrorKind::InvalidData);
        for short in [&b"\x10\0\0\0{"[..], b"\x10"] {
            let error = read::<Order>(&mut &*short).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
            assert_eq!(error.to_string(), "its connection has ended");
        }
    }
}
