//! Holds the machine of an agent for a run or a study as a whole, in a session of its own: between the
//! sessions of its parts no other run gets in.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use wirecost_model::holder::Holder;
use wirecost_model::status::Status;

use crate::host::{AgentHost, Host, HostError, Notices};
use crate::machine::{ClaimWaiter, list};
use crate::wire::{self, ClaimRequest, Notice, Order};

/// Signs of life: the agent ends a session that has said nothing for a lease.
const PING: Duration = Duration::from_secs(10);
/// How long an answer may take beyond what there is to wait for.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How often one who waits looks whether the user has had enough.
const LOOK: Duration = Duration::from_millis(100);

/// Why the machine of an agent is not held.
#[derive(Debug, thiserror::Error)]
pub enum RemoteClaimError {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error("another run measures on {name}: {}", list(holders))]
    Busy { name: String, holders: Vec<Holder> },
    #[error("{name}: {message}")]
    Refused { name: String, status: Status, message: String },
    #[error("{name}: no message from the agent for {} s", TIMEOUT.as_secs())]
    Silent { name: String },
    #[error("interrupted")]
    Interrupted,
}

type Received = Receiver<(usize, Result<Notice, HostError>)>;

/// Holds it until it is dropped.
#[derive(Debug)]
pub struct RemoteClaim {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl RemoteClaim {
    /// Claims the machine of the agent at `address`, HOST:PORT. One on a serial port has one session at a
    /// time and is not held.
    ///
    /// # Errors
    /// [`RemoteClaimError::Busy`] when another run has it, after the wait that was asked for.
    pub fn take(
        name: &str,
        address: &str,
        request: &ClaimRequest,
        waiting: &dyn ClaimWaiter,
    ) -> Result<Self, RemoteClaimError> {
        let mut host = AgentHost::connect(name, address)?;
        let (sender, notices): (Notices, _) = channel();
        host.attach(0, sender);
        host.order(Order::Hello { version: wire::VERSION })?;
        host.order(Order::Claim(request.clone()))?;
        // A wait beyond the end of time is for ever.
        let due = Instant::now().checked_add(request.wait.saturating_add(TIMEOUT));
        let mut pinged = Instant::now();
        loop {
            if waiting.is_cancelled() {
                return Err(RemoteClaimError::Interrupted);
            }
            if due.is_some_and(|due| Instant::now() >= due) {
                return Err(RemoteClaimError::Silent { name: name.to_owned() });
            }
            if pinged.elapsed() >= PING {
                pinged = Instant::now();
                host.order(Order::Ping { number: 0 })?;
            }
            let notice = match notices.recv_timeout(LOOK) {
                Ok((_, notice)) => notice?,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(RemoteClaimError::Silent { name: name.to_owned() });
                }
            };
            match notice {
                Notice::Claimed => break,
                Notice::Busy { holders } => {
                    return Err(RemoteClaimError::Busy { name: name.to_owned(), holders });
                }
                Notice::Failed { status, message } => {
                    return Err(RemoteClaimError::Refused {
                        name: name.to_owned(),
                        status,
                        message,
                    });
                }
                Notice::SessionEnded { reason: message } => {
                    let (name, status) = (name.to_owned(), Status::Peer);
                    return Err(RemoteClaimError::Refused { name, status, message });
                }
                _ => {}
            }
        }
        let (end, ended) = channel();
        let thread = std::thread::Builder::new()
            .name("wirecost-hold".to_owned())
            .spawn(move || keep(host, &notices, &ended))
            .map_err(|source| HostError::Start { name: name.to_owned(), source })?;
        Ok(Self { end: Some(end), thread: Some(thread) })
    }
}

/// Keeps the session alive. Nobody wants its answers; the sessions of the run notice when the agent
/// is gone.
fn keep(mut host: AgentHost, notices: &Received, ended: &Receiver<()>) {
    while ended.recv_timeout(PING) == Err(RecvTimeoutError::Timeout) {
        notices.try_iter().for_each(drop);
        if host.order(Order::Ping { number: 0 }).is_err() {
            return;
        }
    }
}

impl Drop for RemoteClaim {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
