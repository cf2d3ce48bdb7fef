//! Settings of the whole machine, which no test may change here: in a virtual machine (`scripts/vm`), from its first
//! network namespace.

use std::fmt::Write as _;
use std::sync::LazyLock;

use wirecost_linux::privilege::skip;

use crate::document::Document;
use crate::guest::Guest;
use crate::program::BINARY;

/// Settings, their files below /proc/sys/net, and values that are not those of the guest.
const SETTINGS: &[(&str, &str, &str)] = &[
    ("tcp_mem", "ipv4/tcp_mem", "11000 15000 22000"),
    ("udp_mem", "ipv4/udp_mem", "11000 15000 22000"),
    ("rmem_max", "core/rmem_max", "300000"),
    ("wmem_max", "core/wmem_max", "310000"),
    ("rmem_default", "core/rmem_default", "150000"),
    ("wmem_default", "core/wmem_default", "160000"),
    // Of a network namespace from Linux 6.8 on.
    ("optmem_max", "core/optmem_max", "30000"),
    ("netdev_max_backlog", "core/netdev_max_backlog", "2000"),
    ("netdev_budget", "core/netdev_budget", "400"),
    ("netdev_budget_usecs", "core/netdev_budget_usecs", "9000"),
    ("dev_weight", "core/dev_weight", "100"),
    ("gro_normal_batch", "core/gro_normal_batch", "16"),
    ("skb_defer_max", "core/skb_defer_max", "32"),
    ("busy_poll", "core/busy_poll", "20"),
    ("busy_read", "core/busy_read", "30"),
    ("rps_sock_flow_entries", "core/rps_sock_flow_entries", "4096"),
    ("default_qdisc", "core/default_qdisc", "pfifo"),
];

/// Times that a run is killed at a random instant.
const KILLED: usize = 4;

static GUEST: LazyLock<Result<Guest, String>> = LazyLock::new(|| {
    let files: String = SETTINGS.iter().fold(String::new(), |mut files, (_, file, _)| {
        let _ = write!(files, " {file}");
        files
    });
    let tune: String = SETTINGS.iter().fold(String::new(), |mut tune, (name, _, value)| {
        let _ = write!(tune, " --tune '{name}={value}'");
        tune
    });
    let script = format!(
        r#"
set -e
exec 2>err
values() {{ (cd /proc/sys/net; grep . {files} | tr '\t' ' '); }}
run() {{ '{BINARY}' run @rr --observe none --quiet {tune} "$@"; }}
changed() {{ [[ $(values) != "$(cat before)" ]]; }}
ours() {{
    for process in /proc/[0-9]*; do
        if [[ $(readlink "$process/exe") == '{BINARY}' ]]; then echo "${{process#/proc/}}"; fi
    done
}}
guardian() {{ [[ $(tr '\0' ' ' <"/proc/$1/cmdline") == *' guardian ' ]]; }}

values >before
run --duration 3s --json run.json >/dev/null &
until [[ $(values) == *'core/default_qdisc:pfifo'* ]]; do kill -0 $!; sleep 0.05; done
sleep 0.5
values >during
wait $!
values >after

# The guardian restores what a run has changed that was killed, whenever that was.
for instant in $(shuf -i 0-30 -n {KILLED}); do
    run --duration 60s >/dev/null &
    until changed; do kill -0 $!; done
    sleep $(printf '0.%02d' "$instant")
    # Everything but the guardian.
    for process in $(ours); do guardian "$process" || kill -9 "$process" || true; done
    wait $! || true
    for try in $(seq 100); do [[ $(ours) ]] || break; sleep 0.1; done
    if [[ $(ours) ]]; then ps ax >still-running; fi
    echo "at $instant" >>killed
    values >>killed
done

# Nobody is left to restore: the next command does.
run --duration 60s >/dev/null &
until changed; do kill -0 $!; done
sleep 1
# All at once: the guardian does not see the others end.
all=$(ours)
for process in $all; do if guardian "$process"; then echo "$process" >>guardians; fi; done
kill -STOP $all
kill -9 $all
wait $! || true
values >nobody
'{BINARY}' restore >restore
values >restored

'{BINARY}' run @rr --duration 1s --observe none --quiet --tune governor=performance >governor 2>&1 && exit 1
'{BINARY}' run @rr --duration 1s --observe none --quiet --tune turbo=off >turbo 2>&1 && exit 1
'{BINARY}' run @rr --duration 1s --observe none --quiet --tune netdev_budget=0 >budget 2>&1 && exit 1
values >refused
"#
    );
    Guest::run("", &[], &script)
});

/// `None` where there can be no virtual machine.
fn guest(test: &str) -> Option<&'static Guest> {
    GUEST.as_ref().map_err(|missing| skip(test, missing)).ok()
}

#[test]
fn settings_of_the_machine_hold_for_a_run_and_are_restored() {
    let test = "settings_of_the_machine_hold_for_a_run_and_are_restored";
    let Some(guest) = guest(test) else { return };
    let (before, during) = (guest.read("before"), guest.read("during"));
    assert_eq!(before.lines().count(), SETTINGS.len(), "{before}");
    let run = Document::valid(guest.json("run.json"));
    let settings = run.list("/settings");
    for (name, file, value) in SETTINGS {
        let line = format!("{file}:{value}");
        assert!(!before.lines().any(|found| found == line), "{line} from the start");
        assert!(during.lines().any(|found| found == line), "no {line}: {during}");
        let name = format!("tune.{name}");
        let setting = settings.iter().find(|setting| setting["name"] == name).expect(&name);
        assert_eq!(setting["effective"], *value);
    }
    assert_eq!(guest.read("after"), before);
}

#[test]
fn settings_of_the_machine_are_restored_after_kill_9_at_any_time() {
    let test = "settings_of_the_machine_are_restored_after_kill_9_at_any_time";
    let Some(guest) = guest(test) else { return };
    let killed = guest.read("killed");
    let (instants, values): (Vec<&str>, Vec<&str>) =
        killed.lines().partition(|line| line.starts_with("at "));
    assert_eq!(instants.len(), KILLED);
    assert_eq!(guest.read("still-running"), "");
    for (instant, found) in instants.iter().zip(values.chunks(SETTINGS.len())) {
        let before: Vec<&str> = guest.read("before").lines().collect();
        assert_eq!(found, before, "{instant}");
    }
    assert_eq!(guest.read("guardians").lines().count(), 1);
    // Without a guardian they stay, and `restore` restores.
    assert_ne!(guest.read("nobody"), guest.read("before"));
    assert_eq!(guest.read("restored"), guest.read("before"), "{}", guest.read("restore"));
}

#[test]
fn what_this_machine_does_not_have_is_refused() {
    let Some(guest) = guest("what_this_machine_does_not_have_is_refused") else { return };
    for (name, reason) in [
        ("governor", "does not scale CPU frequencies"),
        ("turbo", "no switch for turbo"),
        ("budget", "netdev_budget"),
    ] {
        let text = guest.read(name).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(reason), "{name}: {text}");
    }
    assert_eq!(guest.read("refused"), guest.read("before"));
}
