//! A process that restores the settings of its owner when the owner ends without having done so. It has
//! the read end of a pipe, of which the owner has the only write end: the kernel closes it with the owner,
//! also after kill -9. It holds the network namespaces in which settings were changed.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::{AsFd, AsRawFd as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, setpriority_process, setsid};
use serde::{Deserialize, Serialize};
use wirecost_linux::netns::NetNs;
use wirecost_linux::process::{ProcessId, ignore_signal};

use crate::error::TuneError;
use crate::journal::{DIRECTORY, Directory, Entry};
use crate::restore;

/// Before each answer: standard output may have other lines.
const ANSWER: &str = "wirecost-guardian: ";
const YES: &str = "yes";

/// What the owner says; one message is one line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Message {
    /// The first one.
    Guard { directory: PathBuf, owner: ProcessId },
    /// A namespace in which settings are about to be changed, by a file that leads to it.
    Hold { path: PathBuf },
    /// Unconfirmed changes revert after this time.
    RevertIn { milliseconds: u64 },
    /// Nothing is unconfirmed any more.
    Confirmed,
    /// Nothing is left to restore.
    Released,
}

/// A running guardian of this process.
#[derive(Debug)]
pub struct Guardian {
    child: Child,
    process: Option<ProcessId>,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Guardian {
    /// Starts a guardian for the journal of this process in a directory ([`DIRECTORY`] by default).
    /// `program` and its arguments start a process that calls [`run`].
    ///
    /// # Errors
    /// [`TuneError::Guardian`] when it does not start.
    pub fn start(program: &[OsString], directory: Option<&Path>) -> Result<Self, TuneError> {
        let owner = ProcessId::this().ok_or(TuneError::NoProc)?;
        let failed = |source| TuneError::Guardian { source };
        let [program, arguments @ ..] = program else {
            return Err(failed(io::Error::other("no program is given")));
        };
        // Its standard error would keep the session open of a user who is served over ssh.
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(failed)?;
        let input = child.stdin.take();
        let output = child.stdout.take().ok_or_else(|| failed(io::ErrorKind::BrokenPipe.into()))?;
        let process = ProcessId::of(child.id());
        let mut guardian = Self { child, process, input, output: BufReader::new(output) };
        // The guardian has another working directory.
        let directory = std::path::absolute(directory.unwrap_or(Path::new(DIRECTORY)));
        let directory = directory.map_err(failed)?;
        guardian.say(&Message::Guard { directory, owner })?;
        Ok(guardian)
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The same, also after its number was given to another one; `None` when it had ended at once.
    pub(crate) fn process(&self) -> Option<ProcessId> {
        self.process
    }

    /// Makes it hold a namespace. It has it when this returns.
    pub(crate) fn hold(&mut self, namespace: &NetNs) -> Result<(), TuneError> {
        let descriptor = namespace.as_fd().as_raw_fd();
        let path = format!("/proc/{}/fd/{descriptor}", std::process::id()).into();
        self.say(&Message::Hold { path })
    }

    pub(crate) fn revert_in(&mut self, time: Duration) -> Result<(), TuneError> {
        let milliseconds = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.say(&Message::RevertIn { milliseconds })
    }

    pub(crate) fn confirmed(&mut self) -> Result<(), TuneError> {
        self.say(&Message::Confirmed)
    }

    /// Lets it end without restoring anything.
    pub(crate) fn release(mut self) {
        // One that has ended needs no release.
        let _ = self.say(&Message::Released);
    }

    fn say(&mut self, message: &Message) -> Result<(), TuneError> {
        self.exchange(message).map_err(|source| TuneError::Guardian { source })
    }

    fn exchange(&mut self, message: &Message) -> io::Result<()> {
        let mut text = serde_json::to_vec(message)?;
        text.push(b'\n');
        self.input.as_mut().ok_or(io::ErrorKind::BrokenPipe)?.write_all(&text)?;
        let mut line = String::new();
        loop {
            line.clear();
            if self.output.read_line(&mut line)? == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it has ended"));
            }
            // What started the process may leave a line unfinished.
            let Some((_, answer)) = line.trim_end().split_once(ANSWER) else { continue };
            return if answer == YES { Ok(()) } else { Err(io::Error::other(answer.to_owned())) };
        }
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        // It restores what is left, and ends.
        self.input = None;
        let _ = self.child.wait();
    }
}

/// Guards the settings of the process that [`Guardian::start`]ed this one: reads its standard input, and
/// returns when there is nothing left to do.
///
/// # Errors
/// When the settings could not be restored; the journal remains for
/// [`restore_left_behind`](crate::restore_left_behind).
pub fn run() -> Result<(), TuneError> {
    let failed = |source: io::Error| TuneError::Guardian { source };
    survive().map_err(failed)?;
    let mut orders = Orders::open().map_err(failed)?;
    let mut held: Vec<NetNs> = Vec::new();
    let mut guarded: Option<(PathBuf, ProcessId)> = None;
    let mut deadline: Option<Instant> = None;
    loop {
        // A message that cannot be read is not of the owner that is guarded: it has ended for us.
        let order = orders.next(deadline).unwrap_or(Order::End);
        let answer = match order {
            Order::Message(Message::Guard { directory, owner }) => {
                guarded = Some((directory, owner));
                Ok(())
            }
            Order::Message(Message::Hold { path }) => hold(&mut held, &path),
            Order::Message(Message::RevertIn { milliseconds }) => {
                deadline = Instant::now().checked_add(Duration::from_millis(milliseconds));
                Ok(())
            }
            Order::Message(Message::Confirmed) => {
                deadline = None;
                Ok(())
            }
            Order::Message(Message::Released) => {
                reply(&Ok(()));
                return Ok(());
            }
            Order::Deadline => {
                deadline = None;
                if let Some((directory, owner)) = &guarded {
                    // Nobody is there to be told; what fails stays in the journal.
                    let _ = restore_of(directory, *owner, &held, |entry| entry.unconfirmed);
                }
                continue;
            }
            Order::End => {
                let Some((directory, owner)) = &guarded else { return Ok(()) };
                return restore_of(directory, *owner, &held, |_| true);
            }
        };
        reply(&answer);
    }
}

/// Nothing that ends the owner, or those who started it, may end the guardian. It works while the machine
/// is busy, and is the last to go when memory runs out.
fn survive() -> io::Result<()> {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::PIPE] {
        ignore_signal(signal)?;
    }
    // Refused to one that leads its process group, and so has left that of its owner.
    let _ = setsid();
    std::env::set_current_dir("/")?;
    // Both need rights that changing settings does not.
    let _ = setpriority_process(None, -20);
    let _ = std::fs::write("/proc/self/oom_score_adj", "-1000");
    Ok(())
}

fn hold(held: &mut Vec<NetNs>, path: &Path) -> io::Result<()> {
    let namespace = NetNs::open_path(path).map_err(io::Error::other)?;
    let id = namespace.id().map_err(io::Error::other)?;
    if !held.iter().any(|known| known.id().is_ok_and(|known| known == id)) {
        held.push(namespace);
    }
    Ok(())
}

fn restore_of(
    directory: &Path,
    owner: ProcessId,
    held: &[NetNs],
    which: impl Fn(&Entry) -> bool,
) -> Result<(), TuneError> {
    let directory = Directory::lock(directory)?;
    let mut journal = directory.load(owner)?;
    let (restored, unsaved) = restore::restore(&directory, &mut journal, held, which);
    let left = directory.leave(&restored).map(drop);
    unsaved.map_or(left, Err)
}

fn reply(answer: &io::Result<()>) {
    let mut output = io::stdout().lock();
    let text = answer.as_ref().map_or_else(ToString::to_string, |()| YES.to_owned());
    // Who asked may have ended.
    let _ = writeln!(output, "{ANSWER}{}", text.replace('\n', " ")).and_then(|()| output.flush());
}

/// What the guardian has to do next.
enum Order {
    Message(Message),
    Deadline,
    /// The owner has ended.
    End,
}

/// Messages of the owner.
struct Orders {
    input: File,
    read: Vec<u8>,
}

impl Orders {
    fn open() -> io::Result<Self> {
        // Without the buffer of `Stdin`, in which a message would be out of poll's sight.
        let input = io::stdin().as_fd().try_clone_to_owned()?;
        Ok(Self { input: input.into(), read: Vec::new() })
    }

    fn next(&mut self, deadline: Option<Instant>) -> io::Result<Order> {
        loop {
            if let Some(end) = self.read.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                return Ok(Order::Message(serde_json::from_slice(&line)?));
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Ok(Order::Deadline);
            }
            let timeout = left.and_then(|left| Timespec::try_from(left).ok());
            let mut polled = [PollFd::new(&self.input, PollFlags::IN)];
            match poll(&mut polled, timeout.as_ref()) {
                Ok(0) | Err(rustix::io::Errno::INTR) => continue,
                Ok(_) => {}
                Err(error) => return Err(error.into()),
            }
            let mut bytes = [0; 4096];
            match self.input.read(&mut bytes)? {
                // A message that is torn was not answered, so nothing was done for it.
                0 => return Ok(Order::End),
                count => self.read.extend(&bytes[..count]),
            }
        }
    }
}
