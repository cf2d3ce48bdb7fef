//! The surroundings of this host, with what its kernel can do with BPF programs of congestion control.

use wirecost_congestion::obstacle;
use wirecost_model::environment::{Environment, Usability};

/// The surroundings of the calling thread: its host, its network namespace and its rights. What cannot be read is `None`.
#[must_use]
pub fn read() -> Environment {
    let mut environment = wirecost_linux::environment::read();
    environment.process.bpf_congestion = Some(match obstacle() {
        None => Usability::Usable,
        Some(obstacle) => Usability::Unusable(obstacle.to_string()),
    });
    environment
}
