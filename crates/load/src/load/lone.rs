//! A host with one worker on the calling thread, which has its turns when it is told to: for whoever
//! counts what they take. Sockets and strands are those of the engine `epoll`.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use rustix::event::epoll;
use wirecost_linux::clock::Monotonic;
use wirecost_linux::descriptors;
use wirecost_model::clock::{Clock, SECOND};
use wirecost_model::plan::{Endpoints, Plan, Prepared};
use wirecost_program::hello;
use wirecost_program::payload::{MAX_PIECE, Patterns};
use wirecost_program::record::WorkerCounters;
use wirecost_program::step;
use wirecost_program::strand::{TURN_BYTES, Turn};

use super::placement::Placement;
use super::services::{self, Services};
use super::{DATAGRAM, LoadError, contents, largest_message};
use crate::engines::find;
use crate::permissions::Permissions;
use crate::sockets::{Common, Mailbox, OwnService, Sockets};
use crate::worker::{Event, EventSender, PhaseOrder, Worker};

/// Longer than anybody waits for.
const HOUR: u64 = 3_600 * SECOND;

/// A host of a plan whose strands have listeners of their own, as those of TCP have.
#[derive(Debug)]
pub struct Lone {
    plan: Plan,
    worker: Worker,
    counters: Arc<WorkerCounters>,
    _events: Receiver<Event>,
    _services: Services,
}

impl Lone {
    /// Listens.
    ///
    /// # Errors
    /// What this host lacks.
    pub fn prepare(plan: Plan) -> Result<(Self, Prepared), LoadError> {
        let permissions = Permissions::default();
        let engine = find("epoll").ok_or_else(|| LoadError::Plan("no engine epoll".to_owned()))?;
        let common = Common {
            blocking: false,
            run: hello::run_number(&plan.token),
            host: plan.host,
            services: OwnService::all(&plan.program.services)
                .map_err(LoadError::system("services"))?,
            mailbox: Arc::new(Mailbox::default()),
            files: Arc::new([]),
            streams: Arc::new([]),
            permissions: permissions.clone(),
            credentials: None,
            observed: Arc::default(),
        };
        let limit = descriptors::raise_limit().map_err(LoadError::system("descriptor limit"))?;
        let placement = Placement::new(&plan, engine, limit)?;
        let (mut services, _) = Services::open(&plan, engine, &common.services, &placement, None)?;
        let contents = contents(&plan.program, &permissions.files)?;
        let message = largest_message(&plan.program);
        let payloads = step::payloads(&plan.program);
        let patterns = Patterns::new(&payloads, message, plan.seed, &contents)
            .map_err(LoadError::system("worker"))?;
        let mut sockets = Sockets::new(&common, DATAGRAM.max(message as usize).min(MAX_PIECE));
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|error| LoadError::system("epoll")(error.into()))?;
        sockets.opener.set_epoll(poll);
        let wanted = services.own_addresses(&strands(&plan));
        services.announced(
            services::listen(&mut sockets, &wanted).map_err(LoadError::system("listen"))?,
        );
        let prepared = Prepared {
            workers: 1,
            services: services.addresses(),
            certificate: None,
            consent: Vec::new(),
            spreading: None,
            connects_from: Vec::new(),
            files: Vec::new(),
        };
        let (outlet, events) = EventSender::new(Arc::new(|| {}));
        let worker = Worker::new(0, strands(&plan), sockets, patterns, outlet);
        let counters = Arc::default();
        Ok((Self { plan, worker, counters, _events: events, _services: services }, prepared))
    }

    /// Learns where the others listen.
    ///
    /// # Errors
    /// A program that this version cannot run.
    pub fn connect(&mut self, endpoints: Endpoints) -> Result<(), LoadError> {
        let groups =
            step::compile(&self.plan.program, self.plan.seed, &[]).map_err(LoadError::Plan)?;
        self.worker.connect(Arc::new(endpoints), groups.into());
        Ok(())
    }

    /// Begins a phase; `timed`: it goes on for as long as the profile says, and not for a number of
    /// iterations.
    pub fn begin(&mut self, phase: u32, timed: bool) {
        let groups = self.worker.groups();
        let rows = groups.iter().filter_map(|group| group.rows.get(phase as usize)).map(Vec::len);
        let whole = step::whole_rows(groups, phase as usize);
        self.counters = Arc::new(WorkerCounters::new(rows.sum(), whole));
        let now = Monotonic.now();
        self.worker.begin(PhaseOrder {
            phase,
            start: now,
            window: now..now + HOUR,
            end: if timed { now + HOUR } else { 0 },
            counters: self.counters.clone(),
            snapshots: None,
            tcp_samples: 0,
            details: false,
            log: None,
            completed: Arc::new([]),
            most_samples: 0,
            follow: None,
        });
    }

    /// The next turn of a strand, by number. Where it would wait, whoever calls calls again.
    pub fn turn(&mut self, strand: u32) -> Turn {
        self.worker.turn(strand, TURN_BYTES)
    }

    /// Operations completed in this phase.
    pub fn operations(&self) -> u64 {
        self.counters.rows.iter().map(|row| row.done.get()).sum()
    }
}

/// All of the plan's.
fn strands(plan: &Plan) -> Vec<(u32, u32)> {
    let groups = plan.program.groups.iter();
    groups.flat_map(|group| (0..group.strands).map(|strand| (group.group, strand))).collect()
}
