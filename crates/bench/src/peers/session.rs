//! One run of one contender: its server, its client, the window in the middle.

use std::path::Path;

use wirecost_linux::clock::{Monotonic, sleep};
use wirecost_model::clock::{Clock, MILLISECOND, Nanos, SECOND, seconds};

use super::child::{Running, listens};
use super::contender::{Ask, Contender, Own, Plan};
use super::point::{Kind, Point};
use super::ruler::{Counters, Ruler};

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
    /// Bytes, transactions or connections a second, by the kernel's counters.
    pub(crate) merit: f64,
    pub(crate) cost: Option<f64>,
    pub(crate) cost_by_clocks: Option<f64>,
    pub(crate) others: f64,
    pub(crate) steady: f64,
    pub(crate) own: Own,
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
    ask: &Ask,
    ruler: &mut Ruler,
    window: Nanos,
) -> Result<Sample, String> {
    let point = &ask.point;
    let connecting = Nanos::from(point.seconds_to_connect()) * 5 * SECOND;
    let before = Counters::read().map_err(|error| error.to_string())?;
    let begun = Monotonic.now();
    let (server, mut client) = start(plan, ask.scratch)?;
    let started = if server.is_some() { Monotonic.now() } else { begun };
    client.until(started + LIMIT + connecting, "before its traffic began", || {
        Counters::read().is_ok_and(|now| is_moving(point, &before, &now))
    })?;
    let connected = Monotonic.now();
    let seen = match point.kind {
        Kind::Setup => None,
        _ => {
            ruler.attach();
            sleep((connected + LEAD).saturating_sub(Monotonic.now()));
            let seen = ruler.look(point, window, || client.ended().is_none())?;
            Some(seen)
        }
    };
    let time = Nanos::from(ask.seconds_from_start()) * SECOND;
    let written = client.finish(Monotonic.now() + time + LIMIT + connecting)?;
    drop(server);
    let own = contender.own(point, &written)?;
    Ok(match seen {
        Some(seen) => Sample {
            merit: seen.merit,
            cost: seen.cost,
            cost_by_clocks: seen.cost_by_clocks,
            others: seen.others,
            steady: seen.steady,
            own,
        },
        None => Sample {
            merit: f64::from(point.connections) / seconds(connected - started),
            cost: None,
            cost_by_clocks: None,
            others: 0.0,
            steady: 1.0,
            own,
        },
    })
}

/// Whether all connections are there and data flows.
fn is_moving(point: &Point, before: &Counters, now: &Counters) -> bool {
    let open = now.open_ends().saturating_sub(before.open_ends());
    // Both ends are here.
    let connected = point.stays_open().is_none_or(|wanted| open >= 2 * u64::from(wanted));
    connected && (point.kind == Kind::Setup || now.packets > before.packets + MOVING)
}
