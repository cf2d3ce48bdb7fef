//! Emulated links: what lies between hosts of a lab that have TUN devices.
//!
//! [`Line`] is one direction of a link, without clock or devices. [`Emulator`] serves lines between
//! devices, with a thread for each direction at most, or for each CPU that serves queues of devices.

mod approach;
mod clock;
mod codel;
mod emulator;
mod frame;
mod jitter;
mod line;
mod nic;
mod route;
mod side;
mod steer;
mod wiring;

pub use emulator::{Emulator, Plan};
pub use line::{Line, Piece, Shape};
