//! What packets meet between device and socket.

use wirecost_model::doctor::Finding;
use wirecost_model::environment::{Environment, RuleTable};

use super::Verdict;

/// Dropped of processed packets.
const DROPS: f64 = 1e-5;
/// Of the kernel since 2.6; less was set by somebody.
const USUAL_BACKLOG: i64 = 1000;
const LONG_BACKLOG: i64 = 10_000;
/// Times that a CPU had to stop of packets processed.
const SQUEEZES: f64 = 1e-4;
/// Part of the table of connections.
const NEARLY_FULL: f64 = 0.8;

/// Why something that takes the right to administer the network is not known.
fn not_shown(environment: &Environment) -> &'static str {
    match environment.process.may("cap_net_admin") {
        Some(false) => "only root can read it (CAP_NET_ADMIN)",
        _ => "the kernel does not report it",
    }
}

pub(super) fn firewall(environment: &Environment, verdict: &mut Verdict) {
    let path = &environment.path;
    let tracked = environment.sysctl_number("net.netfilter.nf_conntrack_count").unwrap_or(0);
    let bridged = || {
        let mut devices = environment.devices.iter().flatten();
        devices.any(|device| device.up && device.kind.as_deref() == Some("bridge"))
    };
    let in_path = |table: &&RuleTable| {
        table.rules > 0
            && match table.family.as_str() {
                "arp" => false,
                "bridge" => bridged(),
                _ => true,
            }
    };
    let tables = |tables: &'_ Option<Vec<RuleTable>>| -> Vec<RuleTable> {
        tables.iter().flatten().filter(in_path).cloned().collect()
    };
    let (new, old) = (tables(&path.nftables), tables(&path.iptables));
    let known = path.nftables.is_some() && path.iptables.is_some();
    if !known {
        verdict.unknown(not_shown(environment));
    }
    let why = "every packet is compared with the rules, which adds to cycles per byte and latency";
    if new.is_empty() && old.is_empty() {
        // The number of connections is shown to everybody, and only rules make them be tracked.
        if !known && tracked > 0 {
            verdict.finding(
                Finding::problem(format!("a firewall tracks {tracked} connections"), why)
                    .advice("`nft list ruleset` shows its rules to root"),
            );
        }
        return;
    }
    let rules: u32 = new.iter().chain(&old).map(|table| table.rules).sum();
    let names: Vec<String> = new
        .iter()
        .map(|table| format!("{} {}", table.family, table.name))
        .chain(old.iter().map(|table| format!("{} {} (iptables)", table.family, table.name)))
        .collect();
    let mut found = format!(
        "{rules} firewall {} in {} {}",
        if rules == 1 { "rule" } else { "rules" },
        if names.len() == 1 { "table" } else { "tables" },
        names.join(", ")
    );
    if tracked > 0 {
        found += &format!("; {tracked} connections are tracked");
    }
    let mut finding = Finding::problem(found, why).advice(
        "this disables the firewall: do it only on a network you trust. Rules of a service \
         (firewalld, ufw, docker) return when it restarts",
    );
    if !new.is_empty() {
        finding = finding
            .fix("nft list ruleset > ruleset.saved && nft flush ruleset")
            .undo("nft -f ruleset.saved");
    }
    for (family, command) in [("ip", "iptables-legacy"), ("ip6", "ip6tables-legacy")] {
        let of_family: Vec<&RuleTable> =
            old.iter().filter(|table| table.family == family).collect();
        if of_family.is_empty() {
            continue;
        }
        finding = finding.fix(format!("{command}-save > {command}.saved"));
        for table in of_family {
            if table.name == "filter" {
                // Without their rules, chains that drop by default drop everything.
                finding = finding.fix(format!(
                    "for chain in INPUT FORWARD OUTPUT; do {command} -P $chain ACCEPT; done"
                ));
            }
            finding = finding.fix(format!("{command} -t {} -F", table.name));
        }
        finding = finding.undo(format!("{command}-restore < {command}.saved"));
    }
    verdict.finding(finding);
}

pub(super) fn connection_tracking(environment: &Environment, verdict: &mut Verdict) {
    let number = |name| environment.sysctl_number(name);
    // Without both nothing is tracked.
    let (Some(count), Some(most)) =
        (number("net.netfilter.nf_conntrack_count"), number("net.netfilter.nf_conntrack_max"))
    else {
        return;
    };
    if most > 0 && count as f64 >= most as f64 * NEARLY_FULL {
        verdict.finding(
            Finding::problem(
                format!("the connection tracking table has {count} of {most} entries"),
                "when it is full, the kernel drops packets of new connections",
            )
            .fix(format!("sysctl -w net.netfilter.nf_conntrack_max={}", most * 4))
            .undo(format!("sysctl -w net.netfilter.nf_conntrack_max={most}")),
        );
    }
}

pub(super) fn ipsec(environment: &Environment, verdict: &mut Verdict) {
    let Some(ipsec) = environment.path.ipsec else {
        verdict.unknown(not_shown(environment));
        return;
    };
    if ipsec.policies > 0 {
        verdict.finding(
            Finding::problem(
                format!(
                    "IPsec has {} {} and {} {}",
                    ipsec.policies,
                    if ipsec.policies == 1 { "policy" } else { "policies" },
                    ipsec.associations,
                    if ipsec.associations == 1 { "association" } else { "associations" },
                ),
                "every packet is compared with the policies. Packets that match are encrypted, which \
                 costs more than the rest of the stack",
            )
            .fix("ip xfrm policy flush")
            .advice(
                "`ip xfrm policy` shows the addresses that they cover. Policies of a key daemon return \
                 when it restarts; there is no command to undo this",
            ),
        );
    }
}

pub(super) fn backlog(environment: &Environment, verdict: &mut Verdict) {
    // Only the first network namespace of a machine has the setting.
    let setting = environment.sysctl_number("net.core.netdev_max_backlog");
    let Some(backlog) = environment.path.backlog else {
        verdict.unknown("/proc/net/softnet_stat cannot be read");
        return;
    };
    let length = setting.unwrap_or(USUAL_BACKLOG);
    let why =
        "packets of loopback, veth and RPS wait in this queue, and are dropped when it is full";
    let long = length >= LONG_BACKLOG;
    let finding = if backlog.dropped > 0 {
        let found = format!(
            "{} packets were dropped since boot because a CPU's backlog of {length} was full",
            backlog.dropped
        );
        let often = backlog.dropped as f64 > backlog.processed as f64 * DROPS;
        if often && !long { Finding::problem(found, why) } else { Finding::note(found, why) }
    } else if length < USUAL_BACKLOG {
        Finding::note(format!("the backlog of a CPU holds only {length} packets"), why)
    } else {
        return;
    };
    verdict.finding(match setting {
        _ if long => finding
            .advice("the backlog is already long: check whether the number of drops still grows"),
        Some(_) => finding
            .fix(format!("sysctl -w net.core.netdev_max_backlog={LONG_BACKLOG}"))
            .undo(format!("sysctl -w net.core.netdev_max_backlog={length}")),
        None => finding
            .advice("net.core.netdev_max_backlog can be set only in the initial network namespace"),
    });
}

pub(super) fn receive_budget(environment: &Environment, verdict: &mut Verdict) {
    let Some(backlog) = environment.path.backlog else {
        verdict.unknown("/proc/net/softnet_stat cannot be read");
        return;
    };
    if backlog.squeezed as f64 <= backlog.processed as f64 * SQUEEZES {
        return;
    }
    let finding = Finding::note(
        format!("softirqs ran out of their receive budget {} times since boot", backlog.squeezed),
        "a softirq stops after net.core.netdev_budget packets or netdev_budget_usecs; the remaining \
         packets wait",
    );
    let number = |name| environment.sysctl_number(name);
    let set = |budget, time| {
        format!("sysctl -w net.core.netdev_budget={budget} net.core.netdev_budget_usecs={time}")
    };
    let now = (number("net.core.netdev_budget"), number("net.core.netdev_budget_usecs"));
    verdict.finding(match now {
        (Some(budget), Some(time)) => {
            finding.fix(set(budget * 2, time * 2)).undo(set(budget, time))
        }
        _ => finding.advice("both can be set only in the initial network namespace"),
    });
}
