//! `wirecost doctor`: on this host, in a namespace that has something wrong, and through an agent.

use jsonschema::Validator;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};
use serde_json::Value;
use wirecost_linux::link::Links;
use wirecost_linux::netns::{NetNs, NetNsGuard};
use wirecost_linux::privilege::skip_without_namespaces;

use crate::agents::Agent;
use crate::program::{Finished, Program};

fn valid(finished: &Finished) -> Value {
    let document = finished.json("doctor.json");
    let schema = include_str!("../../../../docs/schema/wirecost.doctor-1.json");
    let schema = serde_json::from_str(schema).expect("the schema is JSON");
    let validator: Validator = jsonschema::validator_for(&schema).expect("the schema is one");
    let errors: Vec<String> = validator
        .iter_errors(&document)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{errors:#?}");
    document
}

fn examine(arguments: &[&str]) -> (Finished, Value) {
    let program = Program::new(["doctor", "--json", "doctor.json"]).args(arguments);
    let finished = program.finish();
    let document = valid(&finished);
    (finished, document)
}

fn rows<'a>(document: &'a Value, list: &str, key: &str) -> Vec<&'a str> {
    document[list].as_array().unwrap().iter().map(|row| row[key].as_str().unwrap()).collect()
}

#[test]
fn this_host() {
    let (finished, document) = examine(&[]);
    assert_eq!(finished.code, 0, "{finished}");
    assert_eq!(document["status"], "ok");
    assert!(document["address"].is_null());
    let kernel = document["host"]["kernel"].as_str().unwrap();
    assert!(finished.stdout.contains(kernel), "{finished}");
    // Whatever is found is said to people as well, with its commands.
    for finding in document["findings"].as_array().unwrap() {
        for command in ["fix", "undo"].iter().flat_map(|key| finding[key].as_array().unwrap()) {
            let command = command.as_str().unwrap();
            assert!(finished.stdout.lines().any(|line| line.ends_with(command)), "{finished}");
        }
    }
    let probes = rows(&document, "probes", "name");
    assert!(probes.iter().all(|probe| finished.stdout.contains(probe)), "{finished}");
    assert!(finished.stdout.trim_end().ends_with("checks could not run"), "{finished}");
}

#[test]
fn the_host_of_an_agent() {
    let agent = Agent::start();
    let (finished, there) = examine(&["--host", &agent.address]);
    assert_eq!(finished.code, 0, "{finished}");
    assert_eq!(there["address"], agent.address);
    assert!(finished.stdout.contains(&agent.address), "{finished}");
    // It is the same host, so what does not change by itself is the same.
    let (_, here) = examine(&[]);
    for key in ["/host/name", "/host/kernel", "/host/threads", "/unknown", "/checks"] {
        assert_eq!(there.pointer(key), here.pointer(key), "{key}");
    }
}

#[test]
fn an_agent_that_does_not_answer() {
    let (finished, document) = examine(&["--host", "127.0.0.1:1"]);
    assert_eq!(finished.code, 3, "{finished}");
    assert!(finished.stdout.is_empty(), "{finished}");
    assert!(finished.stderr.contains("wirecost agent --listen 127.0.0.1:1"), "{finished}");
    assert_eq!(document["status"], "peer");
    assert!(document["host"].is_null());
}

#[test]
fn what_nobody_understands_is_refused_with_a_document() {
    let (finished, document) = examine(&["--sick"]);
    assert_eq!(finished.code, 2, "{finished}");
    assert_eq!(document["status"], "usage");
    let finished = Program::new(["doctor", "--json", "none/doctor.json"]).finish();
    assert_eq!(finished.code, 2, "{finished}");
    let finished = Program::new(["doctor", "--json", "-"]).finish();
    assert!(finished.stdout.starts_with('{') && finished.stdout.ends_with("}\n"), "{finished}");
}

/// One message of netlink(7), or one attribute with `header` 4 bytes long.
fn framed(header: &[u8], body: &[u8]) -> Vec<u8> {
    let mut bytes = [header, body].concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = 4 + value.len() as u16;
    framed(&[length.to_ne_bytes(), kind.to_ne_bytes()].concat(), value)
}

fn message(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let length = (16 + body.len() as u32).to_ne_bytes();
    framed(&[&length[..], &kind.to_ne_bytes(), &flags.to_ne_bytes(), &[0; 8]].concat(), body)
}

/// Sends a request that ends with what is to be acknowledged, and waits for that.
fn carry_out(protocol: rustix::net::Protocol, request: &[u8]) {
    let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, Some(protocol)).unwrap();
    send(&socket, request, SendFlags::empty()).unwrap();
    let mut answer = [0; 4096];
    let (_, length) = recv(&socket, &mut answer[..], RecvFlags::empty()).unwrap();
    // NLMSG_ERROR with 0 acknowledges.
    assert!(length >= 20 && answer[4..6] == 2u16.to_ne_bytes(), "{:?}", &answer[..length]);
    assert_eq!(answer[16..20], [0; 4]);
}

const REQUEST: u16 = 1;
const ACK: u16 = 4;
const CREATE: u16 = 0x400;
const APPEND: u16 = 0x800;

/// Table `inet guard` with a chain on the way in and three rules that do nothing.
fn add_three_rules() {
    const NFTABLES: u16 = 10 << 8;
    let of = |attributes: &[Vec<u8>]| [vec![1, 0, 0, 0], attributes.concat()].concat();
    let (table, chain) = (attribute(1, b"guard\0"), b"input\0");
    // NF_INET_LOCAL_IN, priority 0; numbers of nftables are in network order.
    let place = [attribute(1, &1u32.to_be_bytes()), attribute(2, &0u32.to_be_bytes())].concat();
    let hook = attribute(4 | 0x8000, &place);
    let kind = attribute(7, b"filter\0");
    let chain_of = [table.clone(), attribute(3, chain), hook, kind];
    let rule = |flags| {
        let body = of(&[table.clone(), attribute(2, chain)]);
        message(NFTABLES | 6, REQUEST | CREATE | APPEND | flags, &body)
    };
    let batch = [
        message(16, REQUEST, &[0, 0, 0, 10]),
        message(NFTABLES, REQUEST | CREATE, &of(std::slice::from_ref(&table))),
        message(NFTABLES | 3, REQUEST | CREATE, &of(&chain_of)),
        rule(0),
        rule(0),
        rule(ACK),
        message(17, REQUEST, &[0, 0, 0, 10]),
    ];
    carry_out(netlink::NETFILTER, &batch.concat());
}

/// A policy for what goes out to 198.18.0.0/15, as `struct xfrm_userpolicy_info`.
fn add_policy() {
    let mut policy = vec![0; 168];
    policy[0..4].copy_from_slice(&[198, 18, 0, 0]);
    policy[16..20].copy_from_slice(&[198, 18, 0, 0]);
    policy[40..44].copy_from_slice(&[2, 0, 15, 15]);
    policy[56..88].fill(0xff);
    policy[160] = 1;
    carry_out(netlink::XFRM, &message(0x13, REQUEST | ACK, &policy));
}

#[test]
fn what_is_in_the_path_of_a_namespace() {
    if skip_without_namespaces("doctor::what_is_in_the_path_of_a_namespace") {
        return;
    }
    let name = format!("wirecost-test-{}-doctor", std::process::id());
    let _guard = NetNsGuard::new(NetNs::create(&name).unwrap());
    let namespace = NetNs::open(&name).unwrap();
    let links = Links::of(&namespace).unwrap();
    links.add_veth("eth0", "eth1", &namespace).unwrap();
    links.up("eth0").unwrap();
    let checks = |document: &Value| -> Vec<String> {
        rows(document, "findings", "check").into_iter().map(str::to_owned).collect()
    };
    let path = ["firewall", "ipsec", "offloads", "shaping", "tcp-features"];
    let (_, document) = namespace.run(|| examine(&[])).unwrap();
    let found = checks(&document);
    assert!(!path.iter().any(|check| found.iter().any(|found| found == check)), "{document:#}");

    let (finished, document) = namespace
        .run(|| {
            add_three_rules();
            add_policy();
            wirecost_linux::sysctl::write("net.ipv4.tcp_sack", "0").unwrap();
            examine(&[])
        })
        .unwrap();
    assert_eq!(finished.code, 0, "{finished}");
    let found = checks(&document);
    for check in ["firewall", "ipsec", "tcp-features"] {
        assert!(found.iter().any(|found| found == check), "{check}: {document:#}");
    }
    assert!(finished.stdout.contains("3 firewall rules in table inet guard"), "{finished}");
    assert!(finished.stdout.contains("IPsec has 1 policy and 0 associations"), "{finished}");
    assert!(finished.stdout.contains("sysctl -w net.ipv4.tcp_sack=1"), "{finished}");
}
