//! One run of one contender: its server, its client, the window in the middle.

use std::path::Path;

use wirecost_linux::clock::{Monotonic, sleep};
use wirecost_model::clock::{Clock, MILLISECOND, Nanos, SECOND, seconds};

use super::child::{Running, listens};
use super::contender::{Contender, Plan, RunRequest, ToolFigures};
use super::meter::{Counters, WindowFigures, WindowMeter};

/// Time between the first traffic and the window.
pub(crate) const LEAD: Nanos = 500 * MILLISECOND;
/// Time that is left after the window, at least.
pub(crate) const TAIL: Nanos = 300 * MILLISECOND;
/// Within this a server listens, and a client has begun or ends after its time.
const LIMIT: Nanos = 15 * SECOND;
/// Packets that control connections do not come to.
const MOVING: u64 = 100;

/// What one run gave.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sample {
    pub(crate) seen: WindowFigures,
    /// Seconds from the start of the client to when all connections were open; none where they
    /// come and go, and of a single one, which many programs open beside one that controls.
    pub(crate) set_up: Option<f64>,
    pub(crate) own: ToolFigures,
}

/// Runs a plan to its end and returns what the client wrote.
///
/// # Errors
/// Which of its programs failed, and how.
pub(crate) fn run(plan: &Plan, scratch: &Path, time: Nanos) -> Result<String, String> {
    let (server, mut client) = start(plan, scratch)?;
    let written = client.finish(Monotonic.now() + time + LIMIT);
    drop(server);
    written
}

fn start(plan: &Plan, scratch: &Path) -> Result<(Option<Running>, Running), String> {
    let mut server = None;
    if let Some((line, port)) = &plan.server {
        let mut running = Running::start(line, scratch, "server")?;
        let deadline = Monotonic.now() + LIMIT;
        running.until(deadline, "before it listened", || listens(*port))?;
        server = Some(running);
    }
    Ok((server, Running::start(&plan.client, scratch, "client")?))
}

/// Runs a contender at a point, and looks at it.
///
/// # Errors
/// Which of its programs failed, and how.
pub(crate) fn measure(
    contender: &dyn Contender,
    plan: &Plan,
    ask: &RunRequest,
    meter: &mut WindowMeter,
    window: Nanos,
) -> Result<Sample, String> {
    let point = &ask.point;
    let connecting = Nanos::from(point.seconds_to_connect()) * 2 * SECOND;
    let before = settled(ask.open_ends)?;
    let begun = Monotonic.now();
    let (server, mut client) = start(plan, ask.scratch)?;
    let started = if server.is_some() { Monotonic.now() } else { begun };
    let deadline = started + LIMIT + connecting;
    let connections = point.stays_open();
    if let Some(wanted) = connections {
        // Both ends are here.
        let wanted = wanted + contender.control_connections(point);
        let wanted = ask.open_ends + 2 * u64::from(wanted);
        let connected = || Counters::read().is_ok_and(|now| now.open_ends() >= wanted);
        client.until(deadline, "before all were connected", connected)?;
    }
    let set_up = connections.filter(|n| *n > 1).map(|_| seconds(Monotonic.now() - started));
    client.until(deadline, "before its traffic began", || {
        Counters::read().is_ok_and(|now| now.packets > before.packets + MOVING)
    })?;
    let begun = Monotonic.now();
    meter.attach();
    sleep((begun + LEAD).saturating_sub(Monotonic.now()));
    let seen = meter.measure_window(point, window, || client.ended().is_none())?;
    client.is_in_place()?;
    server.as_ref().map_or(Ok(()), Running::is_in_place)?;
    let time = Nanos::from(ask.seconds_from_start()) * SECOND;
    let written = client.finish(Monotonic.now() + time + LIMIT + connecting)?;
    drop(server);
    Ok(Sample { seen, set_up, own: contender.parse_figures(point, &written)? })
}

/// Counters when no connections are left of whoever ran before: the kernel closes those of one that
/// was ended in its own time.
fn settled(open_ends: u64) -> Result<Counters, String> {
    let deadline = Monotonic.now() + LIMIT;
    loop {
        let now = Counters::read().map_err(|error| error.to_string())?;
        if now.open_ends() <= open_ends {
            return Ok(now);
        }
        if Monotonic.now() > deadline {
            return Err("connections of the run before are still open".to_owned());
        }
        sleep(10 * MILLISECOND);
    }
}
