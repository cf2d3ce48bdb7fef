//! The kernel's own BIC (module `tcp_bic`) in a real flow with losses, against the model.

use libbpf_rs::{Link, Object, ObjectBuilder};
use wirecost_congestion::bic::trace::{self, Event};

use crate::guest::{Left, Part, checks};
use crate::record::{Trace, agrees};

/// Of the kernel's own BIC, by fentry and fexit.
struct KernelTrace {
    object: Object,
    _links: Vec<Link>,
}

impl KernelTrace {
    fn start() -> Self {
        let opened = ObjectBuilder::default().open_memory(trace::OF_KERNEL).unwrap();
        let object = opened.load().unwrap();
        let links = object.progs_mut().map(|prog| prog.attach().unwrap()).collect();
        Self { object, _links: links }
    }
}

impl Trace for KernelTrace {
    fn name(&self) -> &str {
        "bic"
    }

    fn events(&self) -> (Vec<Event>, u64) {
        trace::read(&self.object).unwrap()
    }
}

/// This program runs the test below in the guest.
pub(crate) fn part() -> Part {
    let program = std::env::current_exe().unwrap();
    let test = "congestion::in_a_guest_with_tcp_bic";
    Part {
        name: "congestion",
        files: Vec::new(),
        script: format!(
            "set -e\nmodprobe -a tcp_bic veth sch_tbf\n'{}' --ignored --exact {test} --nocapture\n",
            program.display()
        ),
        checks: checks![the_trace_of_the_kernels_own_bic_agrees_with_the_model],
    }
}

#[test]
#[ignore = "the part `congestion` of a guest runs it there"]
fn in_a_guest_with_tcp_bic() {
    agrees(&KernelTrace::start());
}

fn the_trace_of_the_kernels_own_bic_agrees_with_the_model(left: &Left) {
    let said = left.read("stdout");
    // One test, and it has recorded a flow.
    assert!(said.contains("1 passed"), "{said}");
    let agreement = said.lines().find(|line| line.contains("Agreement {"));
    println!("{}", agreement.unwrap_or_else(|| panic!("{said}")));
}
