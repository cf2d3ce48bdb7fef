//! Datagrams with departure times (`txtime`) leave at once unless a queueing discipline holds them back.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;

use wirecost_linux::departure_times::{self, Departure, Holding};
use wirecost_model::plan::{Address, Endpoints};
use wirecost_model::warning::{DepartureQueueShort, DepartureTimesUnknown, Warning};
use wirecost_program::step::Group;

use super::LoadError;

/// Makes sure that what the strands of this host send is held back on its way to the others.
///
/// # Errors
/// A device that holds nothing back, with the remedy.
pub(super) fn check(
    groups: &[Group],
    host: u32,
    endpoints: &Endpoints,
) -> Result<Vec<Warning>, LoadError> {
    let phases = groups.iter().flat_map(|group| group.phases.iter().flatten());
    let Some(most) = phases.filter(|phase| phase.lead > 0).map(|phase| phase.ahead).max() else {
        return Ok(Vec::new());
    };
    // Who only connects has said nothing of its addresses.
    let to = addresses(endpoints, |number| number != host);
    let from = addresses(endpoints, |number| number == host);
    judge(departure_times::departures(&to, &from), most)
}

/// Addresses that some hosts have said they are reached by, or connect from.
fn addresses(endpoints: &Endpoints, is_wanted: impl Fn(u32) -> bool) -> BTreeSet<IpAddr> {
    let hosts = (0..).zip(&endpoints.hosts).filter(|(number, _)| is_wanted(*number));
    let addresses = hosts.flat_map(|(_, host)| {
        host.services.iter().flat_map(|service| &service.addresses).chain(&host.connects_from)
    });
    let inet = addresses.filter_map(|address| match address {
        Address::Inet(address) => Some(address.ip().to_canonical()),
        Address::Unix(_) | Address::Vsock { .. } => None,
    });
    inet.filter(|address| !address.is_unspecified()).collect()
}

fn judge(found: io::Result<Vec<Departure>>, most: u64) -> Result<Vec<Warning>, LoadError> {
    let found = match found {
        Ok(found) => found,
        Err(error) => return Ok(vec![unknown(format!("its queueing disciplines: {error}"))]),
    };
    if found.is_empty() {
        return Ok(vec![unknown("the devices that it sends by are unknown".to_owned())]);
    }
    let mut warnings = Vec::new();
    for Departure { device, qdisc, holding } in found {
        match holding {
            Holding::Holds { flow_limit } => {
                let limit = flow_limit.map_or(u64::MAX, u64::from);
                if most > limit {
                    let short = DepartureQueueShort { host: String::new(), device, limit, most };
                    warnings.push(Warning::from(short));
                }
            }
            Holding::Unknown => {
                warnings
                    .push(unknown(format!("on {device}, fq is not the root but below {qdisc}")));
            }
            Holding::Never => {
                let why = match qdisc.as_str() {
                    "etf" => {
                        "drops packets without a departure time, such as those that open connections"
                    }
                    _ => "does not hold packets back until their departure time",
                };
                return Err(LoadError::Plan(format!(
                    "txtime: datagrams leave by {device}, whose queueing discipline {qdisc} {why}. Use \
                     `tc qdisc replace dev {device} root fq`, or --tune qdisc=fq for the time of the run"
                )));
            }
        }
    }
    Ok(warnings)
}

fn unknown(reason: String) -> Warning {
    Warning::from(DepartureTimesUnknown { host: String::new(), reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn departure(qdisc: &str, holding: Holding) -> Departure {
        Departure { device: "eth0".to_owned(), qdisc: qdisc.to_owned(), holding }
    }

    #[test]
    fn only_what_holds_datagrams_back_carries_departure_times() {
        let holds = |flow_limit| departure("fq", Holding::Holds { flow_limit });
        let codes = |found, most| {
            let warnings = judge(Ok(found), most).unwrap();
            warnings.iter().map(Warning::code).collect::<Vec<_>>()
        };
        let none: [&str; 0] = [];
        assert_eq!(codes(vec![holds(Some(100)), holds(None)], 100), none);
        assert_eq!(codes(vec![holds(Some(100))], 101), ["departure-queue-short"]);
        let class = departure("htb", Holding::Unknown);
        assert_eq!(codes(vec![holds(None), class], 1), ["departure-times-unknown"]);
        assert_eq!(codes(Vec::new(), 1), ["departure-times-unknown"]);
        let unreadable = judge(Err(io::ErrorKind::PermissionDenied.into()), 1).unwrap();
        assert_eq!(unreadable[0].code(), "departure-times-unknown");
        for qdisc in ["noqueue", "etf"] {
            let error = judge(Ok(vec![holds(None), departure(qdisc, Holding::Never)]), 1);
            let said = error.unwrap_err().to_string();
            assert!(said.starts_with("txtime: datagrams leave by eth0, whose queueing"), "{said}");
            assert!(said.contains("`tc qdisc replace dev eth0 root fq`"), "{said}");
            assert_eq!(said.contains("open connections"), qdisc == "etf", "{said}");
        }
    }
}
