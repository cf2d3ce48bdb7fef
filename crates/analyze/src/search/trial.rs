//! A run as a trial.

use wirecost_model::clock::{Nanos, nanos};
use wirecost_model::run::Run;
use wirecost_model::search::SearchTrial;
use wirecost_model::status::Status;

/// Less of the load than this may be unsent: timers are late, and a window begins and ends between two
/// datagrams.
const UNSENT: f64 = 0.01;

/// A trial of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    /// Trial Load: the intended one, in bits per second of payload.
    pub load: u64,
    /// Trial Duration.
    pub duration: Nanos,
    pub ramp_seconds: f64,
    /// What it measured, or why it has no result.
    pub result: Result<Measured, String>,
}

/// The result of a trial.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// Of the datagrams that were sent, the share that was lost.
    pub path_loss: f64,
    /// Of the datagrams that were to be sent, the share that was not.
    pub unsent: f64,
    /// Trial Loss Ratio: of the datagrams that were to be sent, the share that did not arrive. It differs if
    /// the sender could not send that fast.
    pub loss: f64,
}

impl Measured {
    pub(super) fn new(path_loss: f64, unsent: f64) -> Self {
        let sent = if unsent > UNSENT { 1.0 - unsent } else { 1.0 };
        Self { path_loss, unsent, loss: 1.0 - sent * (1.0 - path_loss) }
    }

    /// Of the load, the share that did not arrive, however little was not sent.
    pub(super) fn short(&self) -> f64 {
        1.0 - (1.0 - self.unsent) * (1.0 - self.path_loss)
    }
}

impl Trial {
    /// The trial that a run was; `None` if it was none.
    #[must_use]
    pub fn of(run: &Run) -> Option<Self> {
        let of = run.study.as_ref()?.search.as_ref()?;
        Some(Self {
            load: of.bits_per_second,
            duration: nanos(std::time::Duration::from_secs_f64(of.seconds.clamp(0.0, 1e9))),
            ramp_seconds: run.window.as_ref().map_or(0.0, |window| window.ramp_seconds),
            result: measure(run, of),
        })
    }
}

fn measure(run: &Run, trial: &SearchTrial) -> Result<Measured, String> {
    if run.status != Status::Ok {
        return Err(run.error.clone().unwrap_or_else(|| "the run failed".to_owned()));
    }
    let datagrams = run.datagrams.as_ref().ok_or("the run has no datagrams")?;
    let whole = datagrams.after_ramp.ok_or("the run has no count after its ramp")?;
    let window = run.window.as_ref().ok_or("the run has no window")?;
    if whole.sent == 0 || datagrams.sent == 0 {
        return Err("the run sent no datagram".to_owned());
    }
    let path_loss = (whole.lost as f64 / whole.sent as f64).min(1.0);
    // In the window, as the load is over when it ends.
    let bytes: u64 = run.hosts.iter().filter_map(|host| host.bytes).map(|bytes| bytes.sent()).sum();
    let expected = trial.bits_per_second as f64 * window.seconds / 8.0;
    let unsent = (1.0 - bytes as f64 / expected).max(0.0);
    Ok(Measured::new(path_loss, unsent))
}
