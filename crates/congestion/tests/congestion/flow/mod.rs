//! BIC as a BPF program in a real flow with losses, against the model. The kernel's module is compared in a virtual machine,
//! by the target `vm` of crate `cli`.
#![cfg(test)]

mod record;

use wirecost_congestion::bic::trace::Event;
use wirecost_congestion::bic::{self, Traced};
use wirecost_congestion::names;
use wirecost_linux::privilege::{skip_without_namespaces, skip_without_tracing};

use record::{Trace, agrees};

impl Trace for Traced {
    fn name(&self) -> &str {
        self.kernel_name()
    }

    fn events(&self) -> (Vec<Event>, u64) {
        self.events().unwrap()
    }
}

#[test]
fn the_trace_of_a_flow_with_losses_agrees_with_the_model() {
    let test = "the_trace_of_a_flow_with_losses_agrees_with_the_model";
    if skip_without_namespaces(test) || skip_without_tracing(test) {
        return;
    }
    agrees(&Traced::load().unwrap());
}

#[test]
fn processes_have_names_of_their_own_that_end_with_them() {
    let test = "processes_have_names_of_their_own_that_end_with_them";
    if skip_without_tracing(test) {
        return;
    }
    let (one, other) = (bic::load().unwrap(), bic::load().unwrap());
    let names = [one.kernel_name().to_owned(), other.kernel_name().to_owned()];
    assert_ne!(names[0], names[1]);
    let registered = || names::registered().unwrap();
    assert!(names.iter().all(|name| registered().contains(name)));
    // It is offered by no other name, and not to those who ask what the kernel has.
    assert!(!names::available().unwrap().iter().any(|name| name.starts_with("bpf_bic")));
    drop((one, other));
    assert!(!names.iter().any(|name| registered().contains(name)));
}
