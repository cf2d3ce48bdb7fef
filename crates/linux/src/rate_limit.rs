//! A link of a set rate: the token bucket of tc-tbf(8) as root queueing discipline of a device, by
//! route netlink.

use futures_util::{StreamExt, TryStreamExt};
use rtnetlink::packet_core::{
    DefaultNla, NLM_F_ACK, NLM_F_CREATE, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkMessage,
    NetlinkPayload, Nla, NlasIterator,
};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcOption};

use crate::link::{Link, LinkError, Links};

/// What [`LinkError::Netlink`] says was tried where the kernel may have no `sch_tbf`.
pub const LIMIT_RATE: &str = "limit the rate of";

const KIND: &str = "tbf";

/// Before a rate in the alias of a device.
const ANNOUNCED: &str = "wirecost link rate ";

// <https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/pkt_sched.h>: TCA_TBF_* and the
// link layer of `struct tc_ratespec`, of whose rate table nobody asks where it is Ethernet.
const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_RATE64: u16 = 4;
const TCA_TBF_BURST: u16 = 6;
const TC_LINKLAYER_ETHERNET: u8 = 1;
/// Of `struct tc_ratespec`, of which two and three numbers make `struct tc_tbf_qopt`.
const RATESPEC_BYTES: usize = 12;
const QOPT_BYTES: usize = 2 * RATESPEC_BYTES + 3 * 4;

/// How fast a device sends, and what it does with what comes faster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimit {
    /// Of whole frames, without checksum, preamble and gap.
    pub bits_per_second: u64,
    /// Bytes that may leave at once after a pause. A frame larger than this is cut into its packets
    /// where it is one of several (GSO), and dropped otherwise.
    pub burst_bytes: u32,
    /// Bytes that wait; what comes beyond them is dropped.
    pub queue_bytes: u32,
}

impl Links {
    /// Limits the rate at which a device sends, in place of its root queueing discipline.
    ///
    /// # Errors
    /// [`LinkError`] names the act and the cause: `NotFound` where the kernel has no `sch_tbf`.
    pub fn limit_rate(&self, device: &str, limit: RateLimit) -> Result<(), LinkError> {
        let mut message = TcMessage::with_index(self.get(device)?.index as i32);
        message.header.parent = TcHandle::ROOT;
        message.attributes = vec![
            TcAttribute::Kind(KIND.to_owned()),
            TcAttribute::Options(attributes(limit, 0).map(option).to_vec()),
        ];
        let mut request = NetlinkMessage::from(RouteNetlinkMessage::NewQueueDiscipline(message));
        request.header.flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE;
        let mut handle = self.handle();
        self.finish(LIMIT_RATE, device, async move {
            let mut answers = handle.request(request)?;
            while let Some(answer) = answers.next().await {
                if let NetlinkPayload::Error(error) = answer.payload {
                    return Err(rtnetlink::Error::NetlinkError(error));
                }
            }
            Ok(())
        })
    }

    /// Notes in a device's alias what rate its wire has on the way. Who is in its namespace cannot look
    /// at the far end, and the driver of pairs says 10 Gb/s of each.
    ///
    /// # Errors
    /// [`LinkError`] names the act and the cause.
    pub fn announce_rate(&self, device: &str, bits_per_second: u64) -> Result<(), LinkError> {
        self.set_alias(device, &format!("{ANNOUNCED}{bits_per_second}bit"))
    }

    /// The limit of a device's rate; `None` where its root queueing discipline sets none.
    ///
    /// # Errors
    /// [`LinkError`] names the act and the cause.
    pub fn rate_limit(&self, device: &str) -> Result<Option<RateLimit>, LinkError> {
        let index = self.get(device)?.index as i32;
        let request = self.handle().qdisc().get().index(index).execute();
        let all: Vec<TcMessage> =
            self.finish("read the queueing disciplines of", device, request.try_collect())?;
        let ours = |message: &&TcMessage| {
            message.header.index == index && message.header.parent == TcHandle::ROOT
        };
        Ok(all.iter().find(ours).and_then(parse))
    }
}

impl Link {
    /// What [`Links::announce_rate`] noted, in bits a second.
    #[must_use]
    pub fn announced_rate(&self) -> Option<u64> {
        self.alias.as_deref()?.strip_prefix(ANNOUNCED)?.strip_suffix("bit")?.parse().ok()
    }
}

/// TCA_OPTIONS of tbf, by type. Each packet is charged with `overhead` bytes beyond its length.
pub(crate) fn attributes(limit: RateLimit, overhead: u16) -> [(u16, Vec<u8>); 3] {
    [
        (TCA_TBF_PARMS, parameters(limit, overhead)),
        (TCA_TBF_RATE64, (limit.bits_per_second / 8).to_ne_bytes().to_vec()),
        (TCA_TBF_BURST, limit.burst_bytes.to_ne_bytes().to_vec()),
    ]
}

fn option((kind, value): (u16, Vec<u8>)) -> TcOption {
    TcOption::Other(DefaultNla::new(kind, value))
}

/// `struct tc_tbf_qopt`. Rates beyond 32 bits of bytes a second are in an attribute of their own.
fn parameters(limit: RateLimit, overhead: u16) -> Vec<u8> {
    let rate = u32::try_from(limit.bits_per_second / 8).unwrap_or(u32::MAX);
    let mut qopt = vec![0; QOPT_BYTES];
    qopt[1] = TC_LINKLAYER_ETHERNET;
    qopt[2..4].copy_from_slice(&overhead.to_ne_bytes());
    qopt[8..12].copy_from_slice(&rate.to_ne_bytes());
    let after_rates = 2 * RATESPEC_BYTES;
    qopt[after_rates..after_rates + 4].copy_from_slice(&limit.queue_bytes.to_ne_bytes());
    qopt
}

fn parse(message: &TcMessage) -> Option<RateLimit> {
    let is_tbf =
        |attribute: &TcAttribute| matches!(attribute, TcAttribute::Kind(kind) if kind == KIND);
    if !message.attributes.iter().any(is_tbf) {
        return None;
    }
    let nested = message.attributes.iter().find_map(|attribute| match attribute {
        TcAttribute::Options(options) => options.first(),
        _ => None,
    })?;
    let TcOption::Other(options) = nested else { return None };
    let options = value_of(options);
    let attribute = |wanted: u16| {
        let all = NlasIterator::new(options.as_slice()).filter_map(Result::ok);
        all.filter(|nla| nla.kind() == wanted).map(|nla| nla.value().to_vec()).next()
    };
    let qopt = attribute(TCA_TBF_PARMS)?;
    let word = |at: usize| Some(u32::from_ne_bytes(qopt.get(at..at + 4)?.try_into().ok()?));
    let rate64 = attribute(TCA_TBF_RATE64).and_then(|value| value.try_into().ok());
    let rate = rate64.map_or(u64::from(word(8)?), u64::from_ne_bytes);
    // A burst is kept as the time that it takes, in ticks of 64 ns (PSCHED_SHIFT).
    let ticks = word(2 * RATESPEC_BYTES + 4)?;
    let burst = (u128::from(ticks) * 64 * u128::from(rate)).div_ceil(1_000_000_000);
    Some(RateLimit {
        bits_per_second: rate * 8,
        burst_bytes: u32::try_from(burst).unwrap_or(u32::MAX),
        queue_bytes: word(2 * RATESPEC_BYTES)?,
    })
}

fn value_of(nla: &DefaultNla) -> Vec<u8> {
    let mut value = vec![0; nla.value_len()];
    nla.emit_value(&mut value);
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns::{NetNs, NetNsGuard};
    use crate::privilege::skip_without_namespaces;

    #[test]
    fn a_limit_is_set_changed_and_read_back() {
        if skip_without_namespaces("rate_limit::a_limit_is_set_changed_and_read_back") {
            return;
        }
        let name = format!("wirecost-test-{}-rate", std::process::id());
        let _guard = NetNsGuard::new(NetNs::create(&name).unwrap());
        let namespace = NetNs::open(&name).unwrap();
        let links = Links::of(&namespace).unwrap();
        links.add_veth("near", "far", &namespace).unwrap();
        assert_eq!(links.rate_limit("near").unwrap(), None);
        // The second is more than 32 bits of bytes a second can say.
        for bits_per_second in [100_000_000, 100_000_000_000] {
            let queue_bytes = 1 << 20;
            let wanted = RateLimit { bits_per_second, burst_bytes: 80_000, queue_bytes };
            links.limit_rate("near", wanted).unwrap();
            let granted = links.rate_limit("near").unwrap().unwrap();
            // The kernel keeps the burst as a time.
            let burst = f64::from(granted.burst_bytes);
            assert!((burst - 80_000.0).abs() < 1000.0, "{granted:?}");
            assert_eq!(RateLimit { burst_bytes: 80_000, ..granted }, wanted);
        }
        assert_eq!(links.get("near").unwrap().qdisc.as_deref(), Some("tbf"));
        assert_eq!(links.rate_limit("far").unwrap(), None);
        links.announce_rate("far", 100_000_000_000).unwrap();
        assert_eq!(links.get("far").unwrap().announced_rate(), Some(100_000_000_000));
        assert_eq!(links.get("near").unwrap().announced_rate(), None);
        let error = links
            .limit_rate("none", RateLimit { bits_per_second: 8, burst_bytes: 1, queue_bytes: 1 });
        assert_eq!(error.unwrap_err().to_string(), "failed to find `none`");
    }
}
