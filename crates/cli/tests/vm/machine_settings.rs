//! Settings that no test may change here, or that no device here has: those of the whole machine, and of devices with
//! features of hardware. In a guest, from its first network namespace.

use crate::guest::{Check, Left, Part, checks};

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

/// What all parts begin with: `save` keeps all values, `with_device` is a run with settings.
fn functions() -> String {
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
    format!(
        r#"
set -e
modprobe -a virtio_net e1000e
# Those who come next find the devices as after the boot.
trap 'modprobe -r virtio_net e1000e' EXIT
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
run() {{ "$program" run @rr --observe none --quiet "$@" {of_machine}; }}
with_device() {{
    local device=$1
    shift
    case $device in
    {cases}
    esac
}}
ours() {{ ls -l /proc/[0-9]*/exe 2>/dev/null | sed -nE "s|.* /proc/([0-9]+)/exe -> $program\$|\1|p"; }}
guardian() {{ [[ $(tr '\0' ' ' <"/proc/$1/cmdline") == *' guardian ' ]]; }}

# save [PART]: all values
save() {{
    values >$1${{2:+-$2}}
    of_devices >$1-devices${{2:+-$2}}
}}

save before
"#
    )
}

pub(crate) fn parts() -> Vec<Part> {
    let part = |name, script: String, checks: &'static [Check]| Part {
        name,
        files: Vec::new(),
        script: functions() + &script,
        checks,
    };
    let count = OF_DEVICES.len();
    vec![
        part(
            "settings_of_runs",
            format!(
                r#"
for number in $(seq 0 $(({count} - 1))); do
    with_device $number --duration 4s --json run-$number.json >said 2>&1 &
    until [[ $(values) == *'core/default_qdisc:pfifo'* ]]; do is_running said; sleep 0.1; done
    save during $number
    # An emulated CPU that stands still makes a run invalid (4), which is no matter here.
    wait $! || test $? = 4
done
save after
"#
            ),
            checks![settings_hold_for_a_run_and_are_restored],
        ),
        part(
            "settings_of_killed_runs",
            format!(
                r#"
# The guardian restores what a run has changed that was killed, whenever that was.
for instant in $(shuf -i 10-99 -n $(({KILLED} * {count}))); do
    number=$((instant % {count}))
    with_device $number --duration 60s >said 2>&1 &
    until compgen -G '/run/wirecost/tune/*.json' >/dev/null; do is_running said; done
    sleep 0.$instant
    # Everything but the guardian.
    for process in $(ours); do guardian "$process" || kill -9 "$process" || true; done
    wait $! || true
    for try in $(seq 100); do [[ $(ours) ]] || break; sleep 0.1; done
    if [[ $(ours) ]]; then ps ax >still-running; fi
    echo $instant >>killed
    save killed $instant
done
"#
            ),
            checks![settings_are_restored_after_kill_9_at_any_time],
        ),
        part(
            "settings_without_guardian",
            r#"
# Nobody is left to restore: the next command does.
with_device 0 --duration 60s >said 2>&1 &
until [[ $(values) == *'core/default_qdisc:pfifo'* ]]; do is_running said; sleep 0.1; done
# All at once: the guardian does not see the others end.
all=$(ours)
for process in $all; do if guardian "$process"; then echo "$process" >>guardians; fi; done
kill -STOP $all
kill -9 $all
wait $! || true
save nobody
"$program" restore >restore
save restored
"#
            .to_owned(),
            checks![without_a_guardian_settings_stay_until_restore],
        ),
        part(
            "settings_refused",
            r#"
refused() {
    if "$program" run @rr --duration 1s --observe none --quiet --tune $1 >$2 2>&1; then exit 1; fi
}
refused governor=performance governor
refused turbo=off turbo
refused netdev_budget=0 budget
values >refused
"#
            .to_owned(),
            checks![what_this_machine_does_not_have_is_refused],
        ),
    ]
}

fn settings_hold_for_a_run_and_are_restored(left: &Left) {
    let before = left.read("before");
    assert_eq!(before.lines().count(), SETTINGS.len(), "{before}");
    for (case, (_, of_device)) in OF_DEVICES.iter().enumerate() {
        let run = left.document(&format!("run-{case}"));
        let settings = run.list("/settings");
        let holds = |name: &str, value: &str| {
            let name = format!("tune.{name}");
            let setting = settings.iter().find(|setting| setting["name"] == name).expect(&name);
            assert_eq!(setting["effective"], value, "{name}");
        };
        let during = left.read(&format!("during-{case}"));
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
        assert_ne!(left.read(&format!("during-devices-{case}")), left.read("before-devices"));
    }
    assert_eq!(left.read("after"), before);
    assert!(left.read("before-devices").contains("RSS hash key"));
    assert_eq!(left.read("after-devices"), left.read("before-devices"));
}

fn settings_are_restored_after_kill_9_at_any_time(left: &Left) {
    let killed = left.read("killed");
    assert_eq!(killed.lines().count(), KILLED * OF_DEVICES.len(), "{killed}");
    assert_eq!(left.read("still-running"), "");
    for when in killed.lines() {
        assert_eq!(left.read(&format!("killed-{when}")), left.read("before"), "{when}");
        let devices = left.read(&format!("killed-devices-{when}"));
        assert_eq!(devices, left.read("before-devices"), "{when}");
    }
}

fn without_a_guardian_settings_stay_until_restore(left: &Left) {
    assert_eq!(left.read("guardians").lines().count(), 1);
    assert_ne!(left.read("nobody"), left.read("before"));
    assert_ne!(left.read("nobody-devices"), left.read("before-devices"));
    assert_eq!(left.read("restored"), left.read("before"), "{}", left.read("restore"));
    assert_eq!(left.read("restored-devices"), left.read("before-devices"));
}

fn what_this_machine_does_not_have_is_refused(left: &Left) {
    for (name, reason) in [
        ("governor", "does not scale CPU frequencies"),
        ("turbo", "no switch for turbo"),
        ("budget", "netdev_budget"),
    ] {
        let text = left.read(name).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(reason), "{name}: {text}");
    }
    assert_eq!(left.read("refused"), left.read("before"));
}
