//! Objects as users make them: compiled here, loaded into this kernel, or refused.

use std::path::Path;
use std::process::Command;

use wirecost_congestion::{UserObject, names};
use wirecost_linux::privilege::skip_without_tracing;
use wirecost_model::congestion::is_of;

fn object(defines: &[&str]) -> Vec<u8> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/objects/mine.c");
    let mut command = Command::new(wirecost_bpf_build::compiler().unwrap());
    command.args(["-g", "-O2", "-target", "bpf", "-c"]).args(defines).arg(source);
    let compiled = command.args(["-o", "-"]).output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    compiled.stdout
}

fn refused(defines: &[&str]) -> String {
    UserObject::new(object(defines)).unwrap_err().to_string()
}

#[test]
fn an_object_is_registered_while_it_is_held() {
    if skip_without_tracing("an_object_is_registered_while_it_is_held") {
        return;
    }
    let mine = UserObject::new(object(&[])).unwrap();
    assert_eq!(mine.name(), "mine");
    // Its section asks for no link; it has one all the same.
    let (one, other) = (mine.load_as("mine").unwrap(), mine.load_as("mine").unwrap());
    let of_one = one.kernel_name().to_owned();
    assert!(of_one.starts_with("mine.") && names::registered().unwrap().contains(&of_one));
    assert_ne!(of_one, other.kernel_name());
    drop((one, other));
    assert!(!names::registered().unwrap().contains(&of_one));
    assert!(mine.load_as("yours").unwrap_err().to_string().contains("its name is mine"));
}

#[test]
fn the_end_of_the_verifiers_log_is_told() {
    if skip_without_tracing("the_end_of_the_verifiers_log_is_told") {
        return;
    }
    let refused = UserObject::new(object(&["-DFORBIDDEN", "-DNAME=\"forbid\""])).unwrap();
    let error = refused.load_as("forbid").unwrap_err().to_string();
    assert!(error.starts_with("the kernel refuses it"), "{error}");
    assert!(error.contains("processed") && error.lines().count() < 20, "{error}");
    // Other tests have other names at the same time.
    assert!(!names::registered().unwrap().iter().any(|name| is_of(name, "forbid")));
}

#[test]
fn a_name_that_the_kernel_has_is_refused() {
    if skip_without_tracing("a_name_that_the_kernel_has_is_refused") {
        return;
    }
    let reno = UserObject::new(object(&["-DNAME=\"reno\""])).unwrap();
    let error = reno.load_as("reno").unwrap_err().to_string();
    assert!(error.contains("has a congestion control named reno already"), "{error}");
}

#[test]
fn objects_that_would_do_something_else_are_refused() {
    assert!(refused(&["-DNAME=\"bpf_bic\""]).contains("begins as bpf-bic does"));
    assert!(refused(&["-DNAME=\"\""]).contains("its name"), "{}", refused(&["-DNAME=\"\""]));
    assert!(refused(&["-DNAME=\"a b\""]).contains("its name"));
    let none = refused(&["-DNO_OPERATIONS"]);
    assert!(none.contains("no structure tcp_congestion_ops"), "{none}");
    let pinned = refused(&["-DPINNED"]);
    assert!(pinned.contains("its map kept is pinned"), "{pinned}");
    let large = refused(&["-DLARGE"]);
    assert!(large.contains("its maps take") && large.contains("the limit is 64 MiB"), "{large}");
    let other = refused(&["-DOTHER_PROGRAM"]);
    assert!(other.contains("its program watches is of section tp/sched/sched_switch"), "{other}");
}
