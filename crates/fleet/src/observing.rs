//! The thread of an agent that observes its machine while the load runs.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use wirecost_linux::clock::Monotonic;
use wirecost_linux::thread;
use wirecost_model::clock::{Clock, Nanos};
use wirecost_model::observe::{ObserveRequest, ObserveTimes, ObserverReport, ProbeReport};
use wirecost_observe::Observer;

/// Commands to the thread.
enum ObserverCommand {
    /// Observe this window.
    Window(ObserveTimes),
    /// The window that has no end of its own ends now.
    End,
    /// The phase is over: there is time to put things together.
    Report,
}

/// Events of the thread.
pub(crate) enum ObserverEvent {
    Watching(Vec<ProbeReport>),
    Observed(Box<ObserverReport>),
}

/// The thread.
pub(crate) struct Observing {
    commands: Sender<ObserverCommand>,
    thread: Option<JoinHandle<()>>,
}

impl Observing {
    /// Starts it; it says `Watching` when everything is loaded.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub(crate) fn start(
        request: ObserveRequest,
        interval: Nanos,
        report: impl Fn(ObserverEvent) + Send + 'static,
    ) -> std::io::Result<Self> {
        let (commands, receiver) = channel();
        let thread = std::thread::Builder::new()
            .name("wirecost-watch".to_owned())
            .spawn(move || run(request, interval, &receiver, &report))?;
        Ok(Self { commands, thread: Some(thread) })
    }

    pub(crate) fn window(&self, times: ObserveTimes) {
        let _ = self.commands.send(ObserverCommand::Window(times));
    }

    pub(crate) fn end(&self) {
        let _ = self.commands.send(ObserverCommand::End);
    }

    pub(crate) fn request_report(&self) {
        let _ = self.commands.send(ObserverCommand::Report);
    }
}

impl Drop for Observing {
    fn drop(&mut self) {
        // The channel closes, and the thread detaches its probes.
        self.commands = channel().0;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(
    request: ObserveRequest,
    interval: Nanos,
    commands: &Receiver<ObserverCommand>,
    report: &impl Fn(ObserverEvent),
) {
    let mut observer = Observer::open(request);
    report(ObserverEvent::Watching(observer.reports()));
    while let Ok(command) = commands.recv() {
        match command {
            ObserverCommand::Window(times) => {
                // Edges must be on time on a machine whose CPUs are all busy.
                let urgent = thread::set_realtime(thread::RealtimePriority::Watch);
                let over = window(&mut observer, times, interval, commands);
                if urgent {
                    thread::clear_realtime();
                }
                match over {
                    Wait::Gone => return,
                    Wait::Told => report(ObserverEvent::Observed(Box::new(observer.take()))),
                    Wait::Due | Wait::Ended => {}
                }
            }
            ObserverCommand::End => {}
            ObserverCommand::Report => report(ObserverEvent::Observed(Box::new(observer.take()))),
        }
    }
}

/// Takes the observer through a window. Returns how it ended.
fn window(
    observer: &mut Observer,
    times: ObserveTimes,
    interval: Nanos,
    commands: &Receiver<ObserverCommand>,
) -> Wait {
    let waited = wait(times.attach, commands);
    if waited == Wait::Gone {
        return waited;
    }
    observer.attach();
    let mut waited = waited.then(times.start, commands);
    observer.begin();
    let end = times.end.unwrap_or(Nanos::MAX);
    if waited == Wait::Due {
        observer.watch(times.start, end, interval, |due| {
            waited = wait(due, commands);
            waited == Wait::Due
        });
    }
    observer.end();
    observer.detach();
    waited
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    Due,
    /// The window ends now.
    Ended,
    /// The phase is over already, and the controller waits to be told.
    Told,
    Gone,
}

impl Wait {
    /// Waits on, unless there is nothing to wait for any more.
    fn then(self, due: Nanos, commands: &Receiver<ObserverCommand>) -> Self {
        match self {
            Self::Due => wait(due, commands),
            over => over,
        }
    }
}

fn wait(due: Nanos, commands: &Receiver<ObserverCommand>) -> Wait {
    loop {
        let left = due.saturating_sub(Monotonic.now());
        if left == 0 {
            return Wait::Due;
        }
        match commands.recv_timeout(Duration::from_nanos(left)) {
            Ok(ObserverCommand::End) => return Wait::Ended,
            Ok(ObserverCommand::Report) => return Wait::Told,
            // A window does not begin within another.
            Ok(ObserverCommand::Window(_)) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Wait::Gone,
        }
    }
}
