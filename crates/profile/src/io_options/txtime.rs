use std::time::Duration;

use wirecost_model::profile::{IoValue, Options};

use super::{Call, Effect, IoOption, TransferKind, ValueType};
use crate::flowops::Flowops;

#[derive(Debug)]
pub struct Txtime;

/// The queueing discipline waits for instants that are at least a microsecond ahead.
const SHORTEST: Duration = Duration::from_micros(1);
/// Well below the 10 s beyond which fq drops packets (`FQ_HORIZON`):
/// <https://elixir.bootlin.com/linux/v6.12/source/net/sched/sch_fq.c#L1148>
const LONGEST: Duration = Duration::from_secs(1);

impl Txtime {
    /// How long before it is due a datagram is handed to the kernel.
    #[must_use]
    pub fn lead(&self, options: &Options) -> Option<Duration> {
        match self.get(options)? {
            IoValue::Time(lead) => Some(*lead),
            _ => None,
        }
    }
}

impl IoOption for Txtime {
    fn name(&self) -> &'static str {
        "txtime"
    }

    fn help(&self) -> &'static str {
        "SO_TXTIME: time by which datagrams are handed to the kernel before they are due, such as 1ms; the qdisc fq sends \
         each when it is due"
    }

    fn flowops(&self) -> Flowops {
        Flowops::Move
    }

    fn protocols(&self) -> &'static [&'static str] {
        &["udp"]
    }

    /// Elsewhere it is refused.
    fn noted(&self) -> bool {
        false
    }

    fn value(&self) -> ValueType {
        ValueType::Time { min: SHORTEST, max: LONGEST }
    }

    fn effect(&self) -> Effect {
        Effect::Call(Call::Departure, &[TransferKind::Send])
    }

    fn counters(&self) -> &'static [&'static str] {
        &["send_calls", "sent_datagrams"]
    }

    fn described(&self, value: &IoValue) -> Option<String> {
        match value {
            IoValue::Time(lead) => {
                Some(format!("departure times {} ahead", crate::language::time(*lead)))
            }
            _ => None,
        }
    }
}
