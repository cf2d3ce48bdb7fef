//! Settings of a host that a study can change, and what restores them. Every change is written to a
//! journal before it is made. A guardian process restores what its owner did not live to restore, and
//! [`restore_left_behind`] restores what neither could.
//!
//! ```no_run
//! use wirecost_tunable::{Options, Setting, Target, Tuner, guardian::Guardian};
//!
//! let guardian = Guardian::start(&["wirecost".into(), "guardian".into()], None)?;
//! let mut tuner = Tuner::open(Options::default().with_guardian(guardian))?;
//! let eth0 = Target::here()?.with_device("eth0");
//! let settings = [Setting::new("mtu", "9000")?, Setting::new("tcp_rmem", "4096 131072 33554432")?];
//! for applied in tuner.apply(&eth0, &settings)? {
//!     println!("{}: {} (was {})", applied.name, applied.effective, applied.previous);
//! }
//! tuner.close()?;
//! # Ok::<(), wirecost_tunable::TuneError>(())
//! ```

mod command;
mod control;
mod driver_field;
mod error;
pub mod guardian;
mod journal;
mod parts;
mod restore;
mod setting;
mod target;
#[cfg(test)]
mod tests;
pub mod tunables;
mod tuner;
mod values;

pub use command::{SetCommand, set_command};
pub use control::ControlConnection;
pub use error::TuneError;
pub use journal::{DIRECTORY, check_rights};
pub use restore::{LeftBehind, Outcome, Restored, RestoredEntry, restore_left_behind};
pub use setting::Setting;
pub use target::{Refusal, Target};
pub use tunables::{Scope, Tunable, all};
pub use tuner::{Applied, Options, Tuner};
