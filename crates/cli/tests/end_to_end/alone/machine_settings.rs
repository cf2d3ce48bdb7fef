//! Settings that no test may change here, or that no device here has: those of the whole machine, and of devices with
//! features of hardware. In a virtual machine (`scripts/vm`), from its first network namespace.

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

/// Addresses of the guest's devices, and settings of them: virtio-net twice, as the number of its queues resets what
/// steers to them, and e1000e.
const OF_DEVICES: [(&str, &[&str]); 3] = [
    ("52:54:00:00:00:01", &["rings.rx=512", "channels.combined=1"]),
    ("52:54:00:00:00:01", &["rss.table=equal 1", KEY]),
    (
        "52:54:00:00:00:02",
        &[
            "rings.rx=512",
            "coalesce.rx-usecs=64",
            "pause.autoneg=off",
            "pause.tx=off",
            "irq_affinity=0",
        ],
    ),
];
const KEY: &str = "rss.key=6d:5a:56:da:25:5b:0e:c2:41:67:25:3d:43:a3:8f:b0:d0:ca:2b:cb:ae:7b:30:b4:77:cb:2d:a3:80:30:f2:\
                   0c:6a:42:b7:3b:be:ac:01:fa";

/// Times that a run is killed at a random instant, for each of these.
const KILLED: usize = 2;

/// Arguments that set these.
fn tune<'a>(settings: impl IntoIterator<Item = &'a str>) -> String {
    settings.into_iter().map(|setting| format!(" --tune '{setting}'")).collect()
}

static GUEST: LazyLock<Result<Guest, String>> = LazyLock::new(|| {
    let files: Vec<&str> = SETTINGS.iter().map(|(_, file, _)| *file).collect();
    let files = files.join(" ");
    let settings: Vec<String> =
        SETTINGS.iter().map(|(name, _, value)| format!("{name}={value}")).collect();
    let of_machine = tune(settings.iter().map(String::as_str));
    let cases: String = OF_DEVICES
        .iter()
        .enumerate()
        .map(|(case, (address, settings))| {
            let settings = tune(settings.iter().copied());
            format!("{case}) run --tune-device $(device_of {address}) {settings} \"$@\" ;;\n")
        })
        .collect();
    let count = OF_DEVICES.len();
    let script = format!(
        r#"
set -e
exec 2>err
device_of() {{ grep -l "$1" /sys/class/net/*/address | cut -d/ -f5; }}
of_devices() {{
    for of in g l x; do ethtool -$of $virtio; done
    for of in g a c; do ethtool -$of $e1000e; done | grep -v negotiated
    for irq in $(ls /sys/class/net/$e1000e/device/msi_irqs); do
        grep . /proc/irq/$irq/smp_affinity_list
    done
}}
virtio=$(device_of 52:54:00:00:00:01) e1000e=$(device_of 52:54:00:00:00:02)
ip link set $virtio up
ip link set $e1000e up
values() {{ (cd /proc/sys/net; grep . {files} | tr '\t' ' '); }}
run() {{ '{BINARY}' run @rr --observe none --quiet "$@" {of_machine}; }}
with_device() {{
    local device=$1
    shift
    case $device in
    {cases}
    esac
}}
ours() {{ ls -l /proc/[0-9]*/exe | sed -nE "s|.* /proc/([0-9]+)/exe -> {BINARY}\$|\1|p"; }}
guardian() {{ [[ $(tr '\0' ' ' <"/proc/$1/cmdline") == *' guardian ' ]]; }}

# save [PART]: all values
save() {{
    values >$1${{2:+-$2}}
    of_devices >$1-devices${{2:+-$2}}
}}

save before
for number in $(seq 0 $(({count} - 1))); do
    with_device $number --duration 4s --json run-$number.json >/dev/null &
    until [[ $(values) == *'core/default_qdisc:pfifo'* ]]; do kill -0 $!; done
    save during $number
    # An emulated CPU that stands still makes a run invalid (4), which is no matter here.
    wait $! || test $? = 4
done
save after

# The guardian restores what a run has changed that was killed, whenever that was.
for instant in $(shuf -i 10-99 -n $(({KILLED} * {count}))); do
    number=$((instant % {count}))
    with_device $number --duration 60s >/dev/null &
    until compgen -G '/run/wirecost/tune/*.json' >/dev/null; do kill -0 $!; done
    sleep 0.$instant
    # Everything but the guardian.
    for process in $(ours); do guardian "$process" || kill -9 "$process" || true; done
    wait $! || true
    for try in $(seq 100); do [[ $(ours) ]] || break; sleep 0.1; done
    if [[ $(ours) ]]; then ps ax >still-running; fi
    echo $instant >>killed
    save killed $instant
done

# Nobody is left to restore: the next command does.
with_device 0 --duration 60s >/dev/null &
until [[ $(values) == *'core/default_qdisc:pfifo'* ]]; do kill -0 $!; done
# All at once: the guardian does not see the others end.
all=$(ours)
for process in $all; do if guardian "$process"; then echo "$process" >>guardians; fi; done
kill -STOP $all
kill -9 $all
wait $! || true
save nobody
'{BINARY}' restore >restore
save restored

'{BINARY}' run @rr --duration 1s --observe none --quiet --tune governor=performance >governor 2>&1 && exit 1
'{BINARY}' run @rr --duration 1s --observe none --quiet --tune turbo=off >turbo 2>&1 && exit 1
'{BINARY}' run @rr --duration 1s --observe none --quiet --tune netdev_budget=0 >budget 2>&1 && exit 1
values >refused
"#
    );
    Guest::run_with(&["--nics"], "virtio_net,e1000e", &[], &script)
});

/// `None` where there can be no virtual machine.
fn guest(test: &str) -> Option<&'static Guest> {
    GUEST.as_ref().map_err(|missing| skip(test, missing)).ok()
}

#[test]
fn settings_hold_for_a_run_and_are_restored() {
    let Some(guest) = guest("settings_hold_for_a_run_and_are_restored") else { return };
    let before = guest.read("before");
    assert_eq!(before.lines().count(), SETTINGS.len(), "{before}");
    for (case, (_, of_device)) in OF_DEVICES.iter().enumerate() {
        let run = Document::valid(guest.json(&format!("run-{case}.json")));
        let settings = run.list("/settings");
        let holds = |name: &str, value: &str| {
            let name = format!("tune.{name}");
            let setting = settings.iter().find(|setting| setting["name"] == name).expect(&name);
            assert_eq!(setting["effective"], value, "{name}");
        };
        let during = guest.read(&format!("during-{case}"));
        for (name, file, value) in SETTINGS {
            let line = format!("{file}:{value}");
            assert!(!before.lines().any(|found| found == line), "{line} from the start");
            assert!(during.lines().any(|found| found == line), "no {line}: {during}");
            holds(name, value);
        }
        for setting in *of_device {
            let (name, value) = setting.split_once('=').unwrap();
            holds(name, value);
        }
        assert_ne!(guest.read(&format!("during-devices-{case}")), guest.read("before-devices"));
    }
    assert_eq!(guest.read("after"), before);
    assert!(guest.read("before-devices").contains("RSS hash key"));
    assert_eq!(guest.read("after-devices"), guest.read("before-devices"));
}

#[test]
fn settings_are_restored_after_kill_9_at_any_time() {
    let Some(guest) = guest("settings_are_restored_after_kill_9_at_any_time") else { return };
    let killed = guest.read("killed");
    assert_eq!(killed.lines().count(), KILLED * OF_DEVICES.len(), "{killed}");
    assert_eq!(guest.read("still-running"), "");
    for when in killed.lines() {
        assert_eq!(guest.read(&format!("killed-{when}")), guest.read("before"), "{when}");
        let devices = guest.read(&format!("killed-devices-{when}"));
        assert_eq!(devices, guest.read("before-devices"), "{when}");
    }
    // Without a guardian they stay, and `restore` restores.
    assert_eq!(guest.read("guardians").lines().count(), 1);
    assert_ne!(guest.read("nobody"), guest.read("before"));
    assert_ne!(guest.read("nobody-devices"), guest.read("before-devices"));
    assert_eq!(guest.read("restored"), guest.read("before"), "{}", guest.read("restore"));
    assert_eq!(guest.read("restored-devices"), guest.read("before-devices"));
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
