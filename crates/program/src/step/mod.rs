//! Programs as strands execute them: each act is resolved once, before the run, to a step of a
//! small closed kind. The hot loop compares no strings and looks nothing up.

mod compile;
mod distribution;
mod pace;

use std::sync::Arc;

use wirecost_model::clock::{MILLISECOND, Nanos, SECOND};
use wirecost_model::measure::FlowopKey;
use wirecost_model::profile::{Position, Until};
use wirecost_model::program::{ServiceRef, Side};
use wirecost_profile::flowops;
use wirecost_profile::protocols::Protocol;

pub use self::compile::{acts, compile, connection_protocols, payloads};
pub use self::distribution::{Coordinates, Distribution, SeededDistribution};
pub use self::pace::Pace;
use crate::calls::{Keep, KernelReceive, Receives, Sends, StreamSend};
use crate::route::StepSequence;
use crate::socket_setup::SocketSetup;

/// How long the master waits for the datagram that answers one of its own before it counts it as
/// lost and goes on. uperf would wait forever.
pub const REPLY_TIMEOUT: Nanos = SECOND;
/// A receiver of datagrams believes that no more come when none has come for this long after the
/// senders have ended.
pub const QUIET_PERIOD: Nanos = 200 * MILLISECOND;

/// One act, resolved.
#[derive(Debug, Clone)]
pub struct Step {
    pub action: Action,
    /// Row of counters.
    pub row: u32,
    /// Places of its connections' ids among those of the group, both included.
    pub first: u32,
    pub last: u32,
    /// Connection id of place `first`.
    pub first_id: u32,
    /// Operations on each connection each time the step's turn comes.
    pub count: u64,
    pub timeout: Option<Nanos>,
    pub can_fail: bool,
    /// Whether it moves datagrams.
    pub datagram: bool,
    /// Where the profile says it, and under which name it runs here.
    pub at: Position,
    pub kind: &'static str,
}

/// What a step does, with all that this takes. Engines and strands know nothing else of flowops.
#[derive(Debug, Clone)]
pub enum Action {
    Connect(Open),
    Accept(Open),
    Close,
    Send(Send),
    Receive(Receive),
    SendFile(SendFile),
    ShutDown,
    ReceiveEnd,
    Think(Think),
    Nothing,
}

/// Opens a connection, on either side.
#[derive(Debug, Clone)]
pub struct Open {
    pub service: ServiceRef,
    pub protocol: &'static dyn Protocol,
    pub setup: Arc<SocketSetup>,
    /// Row of counters of the step.
    pub row: u32,
    /// Connections that the strand may hold of each id.
    pub most: u32,
    /// Whether every step that receives on the connection, in whatever phase, does so by plain
    /// calls.
    pub plain_receives: bool,
}

/// Messages that are sent or received.
#[derive(Debug, Clone)]
pub struct Messages {
    pub length: SeededDistribution,
    /// Bytes that one operation moves, where that is not a whole message (`rsize`).
    pub unit: Option<u64>,
    /// Which of [`payloads`] they are made of.
    pub payload: u32,
    /// Whether the receiver compares them with what was sent, so that they are numbered.
    pub verify: bool,
}

#[derive(Debug, Clone)]
pub struct Send {
    pub messages: Messages,
    pub call: SendCall,
}

#[derive(Debug, Clone)]
pub struct Receive {
    pub messages: Messages,
    pub call: ReceiveCall,
    /// Whether the program goes on without a datagram that has not come in time, so that a time-out
    /// gives up its number too.
    pub reply: bool,
    /// Whether the time-out is not the profile's. After one such time-out the rest of the step's
    /// datagrams are not waited for one by one.
    pub impatient: bool,
    /// Whether waits poll the device, so that looking at once is what was asked for.
    pub polls: bool,
    /// Whether each operation takes a call of its own, as in uperf.
    pub single_reads: bool,
}

/// Sends whole files.
#[derive(Debug, Clone)]
pub struct SendFile {
    pub size: SeededDistribution,
    /// Bytes of one call at most.
    pub piece: u64,
    /// Which of [`crate::files::sources`] the files are.
    pub source: u32,
}

#[derive(Debug, Clone)]
pub struct Think {
    /// Nanoseconds.
    pub length: SeededDistribution,
    /// Whether the CPU spins meanwhile.
    pub busy: bool,
}

/// A step that is one message of fixed length on one stream, see [`Phase::plain`].
#[derive(Debug, Clone, Copy)]
pub struct PlainStep {
    pub call: PlainCall,
    /// Row of counters.
    pub row: u32,
    /// Place of its connection's id.
    pub place: u32,
    /// Bytes, never 0.
    pub length: u64,
    /// Which of [`payloads`] it is made of.
    pub payload: u32,
}

/// Request and response: a plain step that sends and one that receives, on one connection.
#[derive(Debug, Clone, Copy)]
pub struct Exchange {
    /// Which of the steps sends, and which receives.
    pub send: usize,
    pub receive: usize,
    pub send_call: SendCall,
    pub receive_call: ReceiveCall,
}

impl Exchange {
    /// Whether the host sends the request.
    pub fn asks(&self) -> bool {
        self.send < self.receive
    }
}

/// Moves the bytes of a message by a call for each piece.
#[derive(Debug, Clone, Copy)]
pub enum PlainCall {
    Send(SendCall),
    Receive(ReceiveCall),
    /// By a call for each datagram, where a transaction is one.
    SendDatagrams(SendCall),
    ReceiveDatagrams(ReceiveCall),
}

/// How bytes are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendCall {
    /// By a call for each piece.
    Plain(flowops::SendCall),
    StreamSend(StreamSend),
    /// Datagrams, several by one call, or with departure times.
    Batched(Sends),
    /// The content of this one of [`crate::files::stream_sources`].
    FromFile(u16),
}

/// How bytes are received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiveCall {
    /// By a call for each piece.
    Plain(flowops::ReceiveCall),
    /// They go on to a file, or into a checksum, when they have been received.
    Kept(Keep),
    KernelReceive(KernelReceive),
    /// Datagrams, several by one call.
    Batched(Receives),
}

impl SendCall {
    /// send(2), for each piece.
    pub const SEND: Self = SendCall::Plain(flowops::SendCall::Send);
}

impl ReceiveCall {
    /// recv(2), for each piece.
    pub const RECV: Self = ReceiveCall::Plain(flowops::ReceiveCall::Recv);

    /// Whether it only receives, and only once.
    pub fn is_plain(self) -> bool {
        matches!(self, ReceiveCall::Plain(_))
    }
}

impl Step {
    /// The messages that it sends or receives.
    #[inline]
    pub fn messages(&self) -> Option<&Messages> {
        match &self.action {
            Action::Send(send) => Some(&send.messages),
            Action::Receive(receive) => Some(&receive.messages),
            _ => None,
        }
    }

    #[inline]
    pub fn receives(&self) -> bool {
        matches!(self.action, Action::Receive(_))
    }

    #[inline]
    pub fn sends(&self) -> bool {
        matches!(self.action, Action::Send(_))
    }

    /// Whether it sends, receives, or sends files.
    pub fn transfers(&self) -> bool {
        matches!(self.action, Action::Send(_) | Action::Receive(_) | Action::SendFile(_))
    }
}

/// A phase of one group on this host.
#[derive(Debug)]
pub struct Phase {
    pub steps: Vec<Step>,
    /// The same steps, where all of them are plain and follow one another without a pause; else empty. Datagrams are
    /// where a transaction is just one.
    pub plain: Vec<PlainStep>,
    /// Where these steps are an exchange.
    pub exchange: Option<Exchange>,
    pub until: Until,
    /// The order of the steps; none where it is simply their own.
    pub route: Option<StepSequence>,
    /// Whether each transaction draws which of the steps are in it.
    pub mixed: bool,
    /// When transactions are meant to begin; only on the side that begins them.
    pub pace: Option<Pace>,
    /// Whether the strand may skip ahead in its program when datagrams were lost: it follows
    /// another side, and everything it moves is datagrams.
    pub may_skip: bool,
    /// Requests that may be without an answer at a time, where the two steps are a request and its answer and the next
    /// request does not wait. Only on the side that asks.
    pub outstanding: Option<u64>,
    /// How long before they are due datagrams are handed over, with the time at which the device is to send them; 0: they
    /// have none. Only where there is a pace.
    pub lead: Nanos,
    /// Messages of a strand that may wait for their departure times at once.
    pub ahead: u64,
    /// Whether the strand receives from any client, on a socket that it may share with other strands.
    pub serves: bool,
    /// Whether such a strand answers what has come by one call: it reads for as long as there is something, and then sends
    /// all answers.
    pub answers_together: bool,
    /// Whether the strands of all workers accept at listeners that they share: which client a strand serves is known
    /// to nobody, only how many transactions they complete together.
    pub shares_listeners: bool,
    /// Whether any step may fail, so that one side may begin what the other never sees.
    pub can_fail: bool,
    /// Whether every transfer is by datagrams, so iterations of both ends need not agree.
    pub datagrams_only: bool,
    /// Whether connections are opened or closed.
    pub opens: bool,
    /// The row of the only operation of a transaction, where it has just one.
    pub whole: Option<u32>,
    /// Whether all that a strand of a peer does is to receive on one stream, so that what there is
    /// may be taken in one call, also for operations whose turn has not come. A master's operations
    /// each take their own time, as that is what the result tells.
    pub receive_only: bool,
    /// A receiver believes that no more datagrams come when none has come for this long.
    pub quiet: Nanos,
    /// Datagrams received and sent in one iteration, by place of the connection's id.
    pub datagrams: Vec<(u64, u64)>,
}

impl Phase {
    /// The same of a group whose clients share sockets: what did not come is the clients' affair.
    fn serving(mut self) -> Self {
        self.serves = self.datagrams_only && !self.opens && !self.mixed;
        self.may_skip &= !self.serves;
        if !self.serves {
            return self;
        }
        self.plain.clear();
        if let [request, answer] = &mut self.steps[..]
            && request.receives()
            && let Action::Send(send) = &answer.action
        {
            // However many a client sends at a time, and whoever they are of, each is answered by one. When there are
            // no more, the strand goes on to the next step.
            self.answers_together = matches!(send.call, SendCall::Batched(_));
            let count = if self.answers_together { u64::MAX } else { 1 };
            (request.count, answer.count) = (count, count);
        }
        self
    }

    /// Whether a strand accepts a connection in each transaction, and closes it in the same one.
    pub fn reconnects(&self) -> bool {
        self.accepts() && self.steps.iter().any(|step| matches!(step.action, Action::Close))
    }

    pub fn accepts(&self) -> bool {
        self.steps.iter().any(|step| matches!(step.action, Action::Accept(_)))
    }

    pub fn receives(&self) -> bool {
        self.steps.iter().any(Step::receives)
    }

    /// Whether a strand that serves any client answers: with a step that sends behind the one that receives.
    pub fn answers(&self) -> bool {
        self.steps.last().is_some_and(Step::sends)
    }

    /// The payloads whose messages are numbered.
    pub fn numbered(&self) -> impl Iterator<Item = u32> {
        self.steps.iter().filter_map(|step| {
            let messages = match &step.action {
                Action::Send(send) => &send.messages,
                Action::Receive(receive) => &receive.messages,
                _ => return None,
            };
            (step.datagram || messages.verify).then_some(messages.payload)
        })
    }
}

/// One group of this host, ready to run.
#[derive(Debug)]
pub struct Group {
    pub number: u32,
    pub strands: u32,
    pub side: Side,
    /// Connection ids by place, ascending.
    pub ids: Vec<u32>,
    pub phases: Vec<Option<Arc<Phase>>>,
    /// Names of the rows of each phase, from `first_row[phase]` on.
    pub rows: Vec<Vec<FlowopKey>>,
}

/// Rows of operations that are a transaction each, in a phase of a host's groups.
pub fn whole_rows(groups: &[Group], phase: usize) -> Vec<u32> {
    groups.iter().filter_map(|group| group.phases.get(phase)?.as_ref()?.whole).collect()
}
