//! Flows go to the queues of virtio-net for which they were found. The key, the table and the fields are those of a device that is
//! not ours.

use crate::guest::{Check, Left, Part, checks};

/// The devices in namespaces h1 (virtio-net with two queues) and h2. Those who come next find them as after the boot.
const NETWORK: &str = r#"
set -e
modprobe -a virtio_net e1000e
ip netns add h1
ip netns add h2
anew() {
    kill $(jobs -p) 2>/dev/null || true
    ip netns delete h1
    ip netns delete h2
    until [[ $(device_of 52:54:00:00:00:01) && $(device_of 52:54:00:00:00:02) ]]; do sleep 0.2; done
    modprobe -r virtio_net e1000e
}
trap anew EXIT
ip link set $(device_of 52:54:00:00:00:01) netns h1 name eth0
ip link set $(device_of 52:54:00:00:00:02) netns h2 name eth0
in_h1="ip netns exec h1" in_h2="ip netns exec h2"
ip -n h1 address add 198.18.0.1/24 dev eth0
ip -n h2 address add 198.18.0.2/24 dev eth0
ip -n h2 address add 198.18.0.3/24 dev eth0
ip -n h1 link set eth0 up
ip -n h2 link set eth0 up
until $in_h2 busybox ping -c 1 -W 1 198.18.0.1 >/dev/null; do sleep 0.2; done
# Linux 6.1 tells a key that it has not given to the device yet.
$in_h1 ethtool -X eth0 hkey $(printf '35:%.0s' $(seq 39))35 equal 2
"#;

const FLOWS: &str = r#"
$in_h1 "$program" rss show eth0 >show
$in_h1 ethtool -x eth0 >ethtool
for queue in 0 1; do
    $in_h1 "$program" rss flows --dev eth0 --dst 198.18.0.1:9000 --src 198.18.0.2,198.18.0.3 --queues $queue --count 8 --json >flows-$queue
    $in_h1 ethtool -S eth0 >before-$queue
    $in_h2 python3 - flows-$queue <<'EOF'
import json, socket, sys
for flow in json.load(open(sys.argv[1])):
    host, port = flow["source"].split(":")
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.bind((host, int(port)))
    for _ in range(20):
        sender.sendto(b"datagram", ("198.18.0.1", 9000))
EOF
    sleep 1
    $in_h1 ethtool -S eth0 >after-$queue
done
"#;

const PROFILE: &str = r#"
    name = "placed"
    [variables]
    h = { help = "remote host" }
    [[group]]
    strands = 4
    [[group.transaction]]
    flowops = [{ type = "connect", remotehost = "${h}", protocol = "udp", placement = "even" }]
    [[group.transaction]]
    iterations = 1000
    flowops = [{ type = "write", size = 100 }, { type = "read", size = 100 }]
    [[group.transaction]]
    flowops = ["disconnect"]
"#;

const PLACEMENT: &str = r#"
$in_h1 "$program" agent --listen 198.18.0.1:20050 >agent 2>&1 &
until grep -q 198.18.0.1:20050 agent; do is_running agent; sleep 0.2; done
for placement in even all-on-one; do
    $in_h1 ethtool -S eth0 >before-$placement
    by=$in_h2 measure run-$placement run placed.toml --host h=198.18.0.1:20050 --placement $placement --observe none
    $in_h1 ethtool -S eth0 >after-$placement
done
"#;

pub(crate) fn parts() -> Vec<Part> {
    let part = |name, script: &str, checks: &'static [Check]| Part {
        name,
        files: vec![("placed.toml".to_owned(), PROFILE.as_bytes().to_vec())],
        script: format!("{NETWORK}{script}"),
        checks,
    };
    vec![
        part(
            "rss_flows",
            FLOWS,
            checks![flows_go_to_the_queues_of_virtio_net_for_which_they_were_found],
        ),
        part(
            "rss_placement",
            PLACEMENT,
            checks![connections_arrive_on_the_queues_of_virtio_net_where_a_profile_places_them],
        ),
    ]
}

/// What virtio-net in h1 received by queue, by a file of `ethtool -S`.
fn packets_of_queue(left: &Left, name: &str, queue: usize) -> u64 {
    // Drivers changed the name of the counter.
    let names = [format!("rx_queue_{queue}_packets:"), format!("rx{queue}_packets:")];
    let text = left.read(name);
    let line = text.lines().find(|line| names.iter().any(|name| line.contains(name)));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).expect(&text)
}

/// What both queues received between two of them.
fn received(left: &Left, of: &str) -> [u64; 2] {
    [0, 1].map(|queue| {
        let packets = |when: &str| packets_of_queue(left, &format!("{when}-{of}"), queue);
        packets("after") - packets("before")
    })
}

fn flows_go_to_the_queues_of_virtio_net_for_which_they_were_found(left: &Left) {
    let shown = left.read("show");
    let spread = left.read("ethtool");
    let key = spread.lines().find(|line| line.matches(':').count() == 39);
    assert!(shown.contains(key.expect("a key").trim()), "{shown}");
    assert!(shown.contains("eth0: 2 receive queues") && shown.contains("equal 2"), "{shown}");
    for queue in [0, 1] {
        let got = received(left, &queue.to_string());
        assert!((160..180).contains(&got[queue]), "{queue}: {got:?}");
        // A little of ARP and IPv6.
        assert!(got[1 - queue] < 20, "{queue}: {got:?}");
    }
}

fn connections_arrive_on_the_queues_of_virtio_net_where_a_profile_places_them(left: &Left) {
    // Each strand sends 1000; the control connection adds a packet now and then to one of the queues.
    for (placement, expected) in [("even", [2000, 2000]), ("all-on-one", [4000, 0])] {
        let name = format!("run-{placement}");
        let run = left.measured(&name);
        let queues = run.list("/placements").iter().map(|strand| {
            assert_eq!(strand["by"], "device-table", "{strand}");
            strand["queue"].as_u64().unwrap()
        });
        let one = u64::from(placement == "even");
        assert_eq!(queues.collect::<Vec<_>>(), [0, one, 0, one]);
        // Each attempt sends them.
        let runs = 1 + left.retried(&name).len() as u64;
        let got = received(left, placement);
        let near =
            |(got, wanted): (u64, u64)| (wanted * runs..(wanted + 800) * runs).contains(&got);
        assert!(got.into_iter().zip(expected).all(near), "{placement}: {got:?}");
    }
}
