//! What the probes of a run measured.

use wirecost_model::program::Side;
use wirecost_model::run::{FlowopRow, Latency, Run};

/// The profile that has the probes.
pub const PROFILE: &str = "@responsiveness";

/// Its groups, by index.
const UP: u32 = 0;
const DOWN: u32 = 1;
const REQUEST: u32 = 2;
const CONNECT: u32 = 3;
const HANDSHAKE: u32 = 4;

/// The directions in which streams load the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    Idle,
    Up,
    Down,
    Both,
}

impl Load {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Load::Idle => "no load",
            Load::Up => "upload",
            Load::Down => "download",
            Load::Both => "upload and download",
        }
    }

    /// Whether `up` or `down` is loaded.
    pub(super) fn is(self, way: &str) -> bool {
        match self {
            Load::Idle => false,
            Load::Up => way == "up",
            Load::Down => way == "down",
            Load::Both => true,
        }
    }
}

/// Times of probes, microseconds: each is the mean of the shortest 95%.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Responsiveness {
    /// TCP handshakes of new connections.
    pub tcp: f64,
    /// TLS handshakes beyond those of TCP; `None` without TLS.
    pub tls: Option<f64>,
    /// Requests on new connections.
    pub request: f64,
    /// Smoothed round-trip time of the connections of the load.
    pub own: f64,
}

impl Responsiveness {
    /// Round trips per minute, by draft-ietf-ippm-responsiveness-09, section "Aggregating the Measurements".
    #[must_use]
    pub fn rpm(&self) -> f64 {
        const MINUTE: f64 = 60e6;
        let foreign = match self.tls {
            Some(tls) => (self.tcp + tls + self.request) / 3.0,
            None => f64::midpoint(self.tcp, self.request),
        };
        f64::midpoint(MINUTE / foreign, MINUTE / self.own)
    }
}

/// How the path was loaded in the window.
///
/// # Errors
/// The run has no such probes.
pub fn load(run: &Run) -> Result<Load, String> {
    of_profile(run)?;
    let moved = |group| run.flowops.iter().any(|row| row.group == group && row.bytes > 0);
    Ok(match (moved(UP), moved(DOWN)) {
        (false, false) => Load::Idle,
        (true, false) => Load::Up,
        (false, true) => Load::Down,
        (true, true) => Load::Both,
    })
}

/// Round trips of requests on connections that were open before the window and carry nothing else.
///
/// # Errors
/// Why they were not measured.
pub fn request(run: &Run) -> Result<&Latency, String> {
    of_profile(run)?;
    latency(run, REQUEST, "read", "request")
}

/// The parts of RPM.
///
/// # Errors
/// Why one of them was not measured.
pub fn responsiveness(run: &Run) -> Result<Responsiveness, String> {
    let load = load(run)?;
    let connect = trimmed(latency(run, CONNECT, "connect", "new connection")?)?;
    let encrypted = run.crypto.is_some();
    let tcp = match encrypted {
        true => trimmed(latency(run, HANDSHAKE, "connect", "TCP handshake")?)?,
        false => connect,
    };
    if encrypted && connect <= tcp {
        return Err("TCP handshakes alone took longer than those of TCP and TLS".to_owned());
    }
    Ok(Responsiveness {
        tcp,
        tls: encrypted.then_some(connect - tcp),
        request: trimmed(latency(run, CONNECT, "read", "request on a new connection")?)?,
        own: own(run, load)?,
    })
}

/// Of the connections of the load, as the ends that send know it.
fn own(run: &Run, load: Load) -> Result<f64, String> {
    if load == Load::Idle {
        return Err("RPM needs a loaded path".to_owned());
    }
    let groups = run.group_rtts.as_deref().unwrap_or_default();
    let (mut sum, mut samples) = (0.0, 0.0);
    for (group, side, way) in [(UP, Side::Master, "up"), (DOWN, Side::Peer, "down")] {
        if !load.is(way) {
            continue;
        }
        let of = groups.iter().find(|of| of.group == group && of.side == side);
        let of = of.ok_or_else(|| format!("no TCP connection of the streams {way} was sampled"))?;
        let count = of.rtt_us.count as f64;
        sum += count * trimmed(&of.rtt_us)?;
        samples += count;
    }
    Ok(sum / samples)
}

fn of_profile(run: &Run) -> Result<(), String> {
    match run.profile == PROFILE {
        true => Ok(()),
        false => Err(format!("the run is not of the profile {PROFILE}")),
    }
}

fn latency<'a>(run: &'a Run, group: u32, kind: &str, what: &str) -> Result<&'a Latency, String> {
    let is = |row: &&FlowopRow| row.side == Side::Master && row.group == group && row.kind == kind;
    let row = run.flowops.iter().find(is);
    row.and_then(|row| row.latency_us.as_ref()).ok_or_else(|| match &run.error {
        Some(error) => error.clone(),
        None => format!("no {what} was completed in the window"),
    })
}

fn trimmed(latency: &Latency) -> Result<f64, String> {
    latency.trimmed_mean.ok_or_else(|| "the record has no trimmed mean".to_owned())
}
