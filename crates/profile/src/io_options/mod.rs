//! The I/O options: by which ways of the kernel bytes come and go, a file each. [`ALL`] is the only list
//! of them.

pub mod batch;
pub mod busy_poll;
pub mod cc;
pub mod discard;
pub mod dscp;
pub mod gro;
pub mod gso;
pub mod io_depth;
pub mod mss;
pub mod notsent_lowat;
pub mod o_direct;
pub mod outstanding;
pub mod page_cache;
pub mod placement;
pub mod server_sockets;
pub mod sink;
pub mod sink_io;
pub mod sink_keep;
pub mod sink_preallocate;
pub mod sink_size;
pub mod sink_sync;
pub mod source;
pub mod source_io;
pub mod source_size;
pub mod splice;
pub mod tcp_cork;
pub mod tcp_nodelay;
pub mod tcp_user_timeout;
pub mod tos;
pub mod txtime;
pub mod wndsz;
pub mod zerocopy;

use std::time::Duration;

use wirecost_model::profile::{IoValue, IoValues, Options};

use crate::flowops::Flowops;
use crate::protocols::Protocol;
use crate::socket_option::SocketOption;

/// Largest number that uperf's `int` holds.
pub(crate) const INT_MAX: u64 = i32::MAX as u64;

/// One option of a connection or of what moves bytes on it.
pub trait IoOption: Sync {
    /// As profiles write it.
    fn name(&self) -> &'static str;

    /// One line for a person.
    fn help(&self) -> &'static str;

    /// Flowops that it is an option of.
    fn flowops(&self) -> Flowops;

    /// Names of the protocols that it has an effect on; empty: all.
    fn protocols(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether a note tells that it has no effect on a protocol. Profiles set some options for any.
    fn noted(&self) -> bool {
        true
    }

    fn value(&self) -> ValueType;

    fn effect(&self) -> Effect;

    /// What counts its effect: keys of [`wirecost_model::measure::IoCounts`].
    fn counters(&self) -> &'static [&'static str] {
        &[]
    }

    /// A few words on what a connection with this value has.
    fn described(&self, _: &IoValue) -> Option<String> {
        None
    }

    /// Its value, where it is set.
    fn get<'a>(&self, options: &'a Options) -> Option<&'a IoValue> {
        options.io.get(self.name())
    }

    fn is_set(&self, options: &Options) -> bool {
        self.get(options).is_some()
    }

    fn number(&self, options: &Options) -> Option<u64> {
        match self.get(options)? {
            IoValue::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// Whether it has an effect on connections of this protocol.
    fn fits(&self, protocol: Option<&dyn Protocol>) -> bool {
        let of = self.protocols();
        protocol.is_some_and(|protocol| of.is_empty() || of.contains(&protocol.name()))
    }
}

impl std::fmt::Debug for dyn IoOption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// What an option's value is and how it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueType {
    /// No value: being there is all.
    Flag,
    /// Number with an optional suffix (`64k`).
    Number { min: u64, max: u64, zero: Zero },
    /// A time with its unit (`5s`).
    Time { min: Duration, max: Duration },
    /// Anything, in the case it is written in.
    Text,
    /// A number up to `max`, or the name of a differentiated services code point, which stands for
    /// `times` the point.
    CodePoint { times: u64, max: u64 },
    /// One of these words.
    Choice(&'static [&'static str]),
}

/// What the number 0 means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Zero {
    Value,
    /// The same as leaving the option out.
    Unset,
}

impl ValueType {
    /// Whether a value is of this type and in its range. `Err` has the largest that is.
    ///
    /// # Errors
    /// When it is not.
    pub fn check(self, value: &IoValue) -> Result<(), String> {
        let range = |is_in: bool, min: String, max: String| match is_in {
            true => Ok(()),
            false => Err(format!("must be from {min} to {max}")),
        };
        match (self, value) {
            (ValueType::Flag, IoValue::On) | (ValueType::Text, IoValue::Text(_)) => Ok(()),
            (ValueType::Number { min, max, .. }, IoValue::Number(number)) => {
                range((min..=max).contains(number), min.to_string(), max.to_string())
            }
            (ValueType::CodePoint { max, .. }, IoValue::Number(number)) => {
                range(*number <= max, "0".to_owned(), max.to_string())
            }
            (ValueType::Time { min, max }, IoValue::Time(time)) => {
                let written = crate::language::time;
                range((min..=max).contains(time), written(min), written(max))
            }
            (ValueType::Choice(words), IoValue::Text(word)) => match words.contains(&word.as_str())
            {
                true => Ok(()),
                false => Err(format!("must be one of {}", words.join(", "))),
            },
            _ => Err("has a value of another type".to_owned()),
        }
    }
}

/// What acts on an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Sockets are set up with these.
    Socket(&'static [SocketOption]),
    /// It chooses the system calls of these acts.
    Call(Call, &'static [TransferKind]),
    /// Connections are opened in another way.
    Opening,
    /// Operations follow one another in another way.
    Order,
}

/// What moves bytes at one end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransferKind {
    Send,
    Receive,
    SendFile,
}

/// What an option makes of the calls that move bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    Cork,
    ZeroCopy,
    /// Datagrams that the kernel cuts from one message.
    Segments,
    /// The kernel joins datagrams.
    Join,
    /// Messages of one call.
    Messages,
    /// Datagrams carry the time at which the device is to send them.
    Departure,
    Discard,
    Splice,
    Sink,
    SinkIo,
    SinkSize,
    SinkSync,
    SinkKeep,
    SinkPreallocate,
    /// What is sent comes from a file.
    Source,
    SourceIo,
    SourceSize,
    PageCache,
    /// Files bypass the page cache.
    Direct,
    /// Requests in flight of each file.
    IoDepth,
}

pub static ALL: &[&dyn IoOption] = &[
    &tcp_nodelay::TcpNodelay,
    &wndsz::Wndsz,
    &cc::Cc,
    &mss::Mss,
    &dscp::Dscp,
    &tos::Tos,
    &notsent_lowat::NotsentLowat,
    &tcp_user_timeout::TcpUserTimeout,
    &busy_poll::BusyPoll,
    &placement::Placement,
    &server_sockets::ServerSockets,
    &tcp_cork::TcpCork,
    &zerocopy::Zerocopy,
    &gso::Gso,
    &gro::Gro,
    &batch::Batch,
    &outstanding::Outstanding,
    &txtime::Txtime,
    &discard::Discard,
    &splice::Splice,
    &source::Source,
    &source_io::SourceIo,
    &source_size::SourceSize,
    &page_cache::PageCache,
    &sink::Sink,
    &sink_io::SinkIo,
    &sink_size::SinkSize,
    &sink_preallocate::SinkPreallocate,
    &sink_sync::SinkSync,
    &sink_keep::SinkKeep,
    &io_depth::IoDepth,
    &o_direct::ODirect,
];

/// The I/O option of this name, in lower case.
pub fn find(name: &str) -> Option<&'static dyn IoOption> {
    ALL.iter().copied().find(|option| option.name() == name)
}

/// The options that are set, in the order of [`ALL`], with their values.
pub fn set_in(values: &IoValues) -> impl Iterator<Item = (&'static dyn IoOption, &IoValue)> {
    ALL.iter().filter_map(|option| Some((*option, values.get(option.name())?)))
}

/// Datagrams of one execution of a flowop: those of one call.
pub fn datagrams(values: &IoValues) -> u64 {
    let number = |option: &dyn IoOption| match values.get(option.name()) {
        Some(IoValue::Number(number)) => (*number).max(1),
        _ => 1,
    };
    number(&gso::Gso).saturating_mul(number(&batch::Batch))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use wirecost_model::measure::IoCounts;

    use super::*;
    use crate::protocols;

    #[test]
    fn every_file_of_the_folder_is_listed_once() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/io_options");
        let files: BTreeSet<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter_map(|file| Some(file.strip_suffix(".rs")?.to_owned()))
            .filter(|name| name != "mod")
            .collect();
        let names: BTreeSet<String> = ALL.iter().map(|option| option.name().to_owned()).collect();
        assert_eq!(files, names);
        assert_eq!(names.len(), ALL.len());
    }

    #[test]
    fn options_are_for_known_protocols_and_have_known_counters() {
        let counters = serde_json::to_value(IoCounts::default()).unwrap();
        let mut counted = BTreeSet::new();
        for option in ALL {
            let sockets: &[SocketOption] = match option.effect() {
                Effect::Socket(sockets) => sockets,
                Effect::Call(..) | Effect::Opening | Effect::Order => &[],
            };
            let named = sockets.iter().flat_map(|socket| socket.protocols);
            for protocol in option.protocols().iter().chain(named) {
                assert!(protocols::find(protocol).is_some(), "{}: {protocol}", option.name());
            }
            for counter in option.counters() {
                assert!(counters.get(counter).is_some(), "{}: {counter}", option.name());
                counted.insert(*counter);
            }
        }
        // Those of frames count what an engine does, and those of accepted connections by whom: neither says whether an
        // option had an effect.
        let beside = |key: &&String| key.contains("frame") || key.starts_with("accepted");
        let of_options = counters.as_object().unwrap().keys().filter(|key| !beside(key));
        assert_eq!(counted.len(), of_options.count());
    }

    #[test]
    fn values_have_types_and_ranges() {
        let of = |name: &str| find(name).unwrap().value();
        assert_eq!(of("batch").check(&IoValue::Number(1024)), Ok(()));
        assert_eq!(
            of("batch").check(&IoValue::Number(1025)),
            Err("must be from 0 to 1024".to_owned())
        );
        assert!(of("batch").check(&IoValue::On).is_err());
        assert!(of("gso").check(&IoValue::Number(65)).is_err());
        assert!(of("busy_poll").check(&IoValue::Number(1_000_001)).is_err());
        assert!(of("sink_size").check(&IoValue::Number(u64::MAX)).is_err());
        assert!(of("sink").check(&IoValue::Number(1)).is_err());
        assert!(of("dscp").check(&IoValue::Number(64)).is_err());
        assert_eq!(of("zerocopy").check(&IoValue::On), Ok(()));
    }
}
