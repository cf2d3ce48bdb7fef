//! Offered load: the payload that a phase is meant to move each second, whether or not its hosts keep up.

use wirecost_model::profile::{
    Arrivals, ByStrand, Flowop, Group, Part, Profile, Quantity, Transaction, Until,
};
use wirecost_model::quantity::imix;
use wirecost_profile::flowops::{self, Action};
use wirecost_profile::protocols;

use crate::calls;
use crate::headline;
use crate::quantiles::Quantiles;

/// Values of a distribution that its mean is taken over.
const SAMPLES: u64 = 1 << 14;

/// Why a profile cannot have an offered load.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OfferedError {
    #[error("no phase of the profile with a duration moves bytes")]
    NoPhase,
    #[error("the phase is limited by iterations, and only one with a duration can be paced")]
    Iterations,
    #[error("sendfile without size sends whole files, so the bytes of a transaction are unknown")]
    WholeFiles,
    #[error("the transactions begin at the times of a trace")]
    Trace,
    #[error("each strand would begin less than one transaction a day")]
    TooLow,
}

/// Bits per second that the phase of the headline is meant to move, over all strands and both directions.
/// `None` if any strand of it that moves bytes is as fast as it can be.
pub fn bits_per_second(profile: &Profile) -> Option<f64> {
    let phase = headline::of_profile(profile)?;
    let mut bytes = 0.0;
    for (group, transaction) in paced(profile, phase) {
        let each = bytes_of_pass(group, transaction).ok()?;
        if each == 0.0 {
            continue;
        }
        let rate = match transaction.arrivals {
            Some(Arrivals::Even(rate) | Arrivals::Poisson(rate)) => rate,
            Some(Arrivals::Trace(_)) | None => return None,
        };
        bytes += each * rate * f64::from(group.strands);
    }
    (bytes > 0.0).then_some(bytes * 8.0)
}

/// Makes the phase of the headline open loop: all its strands that move bytes begin as many transactions
/// per second, so that all of them together move this number of bits per second.
///
/// # Errors
/// The bytes of a transaction are unknown, or its times cannot be set.
pub fn set(profile: &mut Profile, bits_per_second: f64) -> Result<(), OfferedError> {
    let phase = headline::of_profile(profile).ok_or(OfferedError::NoPhase)?;
    let mut bytes = 0.0;
    let mut moving = Vec::new();
    for (number, group) in profile.groups.iter().enumerate().filter(|(_, group)| group.strands > 0)
    {
        let Some(transaction) = group.transactions.get(phase) else { continue };
        let each = bytes_of_pass(group, transaction)?;
        if each == 0.0 {
            continue;
        }
        if matches!(transaction.until, Until::Iterations(_)) {
            return Err(OfferedError::Iterations);
        }
        if matches!(transaction.arrivals, Some(Arrivals::Trace(_))) {
            return Err(OfferedError::Trace);
        }
        bytes += each * f64::from(group.strands);
        moving.push(number);
    }
    if bytes == 0.0 {
        return Err(OfferedError::NoPhase);
    }
    let rate = bits_per_second / 8.0 / bytes;
    if rate < 1.0 / 86_400.0 {
        return Err(OfferedError::TooLow);
    }
    for number in moving {
        let transaction = &mut profile.groups[number].transactions[phase];
        transaction.arrivals = Some(match transaction.arrivals {
            Some(Arrivals::Poisson(_)) => Arrivals::Poisson(rate),
            _ => Arrivals::Even(rate),
        });
    }
    Ok(())
}

/// Payload of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Traffic {
    pub bytes_per_second: f64,
    /// Messages that the flowops send.
    pub messages_per_second: f64,
}

/// What the phase of the headline is meant to move: to the peers of the master, and from them. `None` where
/// [`bits_per_second`] is.
pub fn traffic(profile: &Profile) -> Option<[Traffic; 2]> {
    let phase = headline::of_profile(profile)?;
    bits_per_second(profile)?;
    let mut traffic = [Traffic::default(); 2];
    for (group, transaction) in paced(profile, phase) {
        let (Some(Arrivals::Even(rate)) | Some(Arrivals::Poisson(rate))) = transaction.arrivals
        else {
            continue;
        };
        let passes = rate * f64::from(group.strands);
        for (sum, is_of) in traffic.iter_mut().zip([is_sent as fn(&Flowop) -> bool, is_received]) {
            let each = |of: &dyn Fn(&Flowop) -> f64| {
                let one = |flowop| if is_of(flowop) { of(flowop) } else { 0.0 };
                of_pass(transaction, &transaction.flowops.iter().map(one).collect::<Vec<f64>>())
            };
            let bytes = |flowop: &Flowop| bytes_of(group, flowop).unwrap_or(0.0);
            let messages = |flowop: &Flowop| times(group, flowop);
            sum.bytes_per_second += passes * each(&bytes);
            sum.messages_per_second += passes * each(&messages);
        }
    }
    Some(traffic)
}

fn is_sent(flowop: &Flowop) -> bool {
    let action = flowops::find(&flowop.kind).map(|kind| kind.action());
    matches!(action, Some(Action::Send(_) | Action::SendFile))
}

fn is_received(flowop: &Flowop) -> bool {
    let action = flowops::find(&flowop.kind).map(|kind| kind.action());
    matches!(action, Some(Action::Receive(_)))
}

/// Messages of a flowop whenever it is reached. One call may send several datagrams.
fn times(group: &Group, flowop: &Flowop) -> f64 {
    let mut flowops = group.transactions.iter().flat_map(|transaction| &transaction.flowops);
    let protocol = flowops.find_map(|flowop| flowop.options.protocol.as_deref());
    let datagrams = calls::datagrams(&flowop.options, protocol.and_then(protocols::find));
    flowop.options.count as f64 * flowop.options.repeat as f64 * datagrams as f64
}

fn paced(profile: &Profile, phase: usize) -> impl Iterator<Item = (&Group, &Transaction)> {
    let groups = profile.groups.iter().filter(|group| group.strands > 0);
    groups.filter_map(move |group| Some((group, group.transactions.get(phase)?)))
}

/// Mean payload of one pass through the flowops, in bytes.
fn bytes_of_pass(group: &Group, transaction: &Transaction) -> Result<f64, OfferedError> {
    let each: Vec<f64> = transaction
        .flowops
        .iter()
        .map(|flowop| bytes_of(group, flowop))
        .collect::<Result<_, _>>()?;
    Ok(of_pass(transaction, &each))
}

/// The sum over one pass of what each flowop adds.
fn of_pass(transaction: &Transaction, each: &[f64]) -> f64 {
    match transaction.order.is_empty() {
        true => each.iter().sum(),
        false => of_parts(&transaction.order, each),
    }
}

fn of_parts(parts: &[Part], each: &[f64]) -> f64 {
    let of = |part: &Part| match part {
        Part::Flowop(index) => each.get(*index as usize).copied().unwrap_or(0.0),
        Part::Loop { times, parts } => f64::from(*times) * of_parts(parts, each),
        Part::Mix(choices) => {
            let weights: f64 = choices.iter().map(|choice| f64::from(choice.weight)).sum();
            let of = |(weight, parts): (u32, &[Part])| {
                f64::from(weight) / weights.max(1.0) * of_parts(parts, each)
            };
            choices.iter().map(|choice| of((choice.weight, &choice.parts))).sum()
        }
    };
    parts.iter().map(of).sum()
}

fn bytes_of(group: &Group, flowop: &Flowop) -> Result<f64, OfferedError> {
    let Some(kind) = flowops::find(&flowop.kind) else { return Ok(0.0) };
    let options = &flowop.options;
    let size = match (kind.action(), &options.size) {
        (Action::SendFile, None) => return Err(OfferedError::WholeFiles),
        (Action::Send(_) | Action::Receive(_) | Action::SendFile, Some(size)) => {
            mean(size, group.strands)
        }
        _ => return Ok(0.0),
    };
    Ok(size * times(group, flowop))
}

/// Mean of a quantity over this number of strands.
fn mean(quantity: &Quantity, strands: u32) -> f64 {
    let sampled = |quantiles: Quantiles| {
        let word = |n: u64| (n << 50) + (1 << 49);
        (0..SAMPLES).map(|n| quantiles.draw(word(n)) as f64).sum::<f64>() / SAMPLES as f64
    };
    let table = |values: &mut dyn Iterator<Item = (u64, u32)>| {
        let (sum, weights) = values.fold((0.0, 0.0), |(sum, weights), (value, weight)| {
            (sum + value as f64 * f64::from(weight), weights + f64::from(weight))
        });
        if weights > 0.0 { sum / weights } else { 0.0 }
    };
    match quantity {
        Quantity::Fixed(value) => *value as f64,
        Quantity::Random { min, max } => (*min as f64 + *max as f64) / 2.0,
        Quantity::Lognormal { median, sigma, min, max } => {
            sampled(Quantiles::lognormal(*median, *sigma as f64 / 1e6, *min, *max))
        }
        Quantity::Exponential { mean, min, max } => {
            sampled(Quantiles::exponential(*mean, *min, *max))
        }
        Quantity::Table(values) => table(&mut values.iter().map(|v| (v.value, v.weight))),
        Quantity::Imix { headers } => {
            table(&mut imix(*headers).into_iter().map(|v| (v.value, v.weight)))
        }
        Quantity::ByStrand(ByStrand::Each(values)) => {
            table(&mut values.iter().cycle().take(strands as usize).map(|value| (*value, 1)))
        }
        Quantity::ByStrand(ByStrand::Spread { first, last }) => match strands {
            1 => *first as f64,
            _ => (*first as f64 + *last as f64) / 2.0,
        },
        Quantity::ByStrand(ByStrand::Drawn(quantity)) => mean(quantity, strands),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use wirecost_model::profile::{Choice, IoValue, Options, Position, Weighted};

    use super::*;

    fn flowop(kind: &str, size: Option<Quantity>, count: u64) -> Flowop {
        let options = Options { size, count, ..Options::default() };
        Flowop { kind: kind.to_owned(), options, at: Position::default() }
    }

    fn profile(strands: u32, flowops: Vec<Flowop>, order: Vec<Part>) -> Profile {
        let transaction = |until, flowops, order| Transaction {
            until,
            arrivals: None,
            flowops,
            order,
            at: Position::default(),
        };
        let connect =
            transaction(Until::Iterations(1), vec![flowop("connect", None, 1)], Vec::new());
        let data = transaction(Until::Duration(Duration::from_secs(1)), flowops, order);
        let transactions = vec![connect, data];
        let group = Group { strands, transactions, ..Group::default() };
        Profile { name: String::new(), groups: vec![group] }
    }

    fn arrivals(profile: &Profile) -> Option<Arrivals> {
        profile.groups[0].transactions[1].arrivals.clone()
    }

    #[test]
    fn the_load_is_spread_over_all_strands_and_both_directions() {
        let flowops = vec![
            flowop("write", Some(Quantity::Fixed(900)), 1),
            flowop("read", Some(Quantity::Fixed(50)), 2),
            flowop("think", None, 1),
        ];
        let mut profile = profile(10, flowops, Vec::new());
        assert_eq!(bits_per_second(&profile), None);
        set(&mut profile, 8e6).unwrap();
        // A million bytes, 1000 in each pass, by ten strands.
        assert_eq!(arrivals(&profile), Some(Arrivals::Even(100.0)));
        assert_eq!(bits_per_second(&profile), Some(8e6));
        let traffic = traffic(&profile).unwrap();
        let (to, from) = (traffic[0], traffic[1]);
        assert_eq!((to.bytes_per_second, to.messages_per_second), (900e3, 1e3));
        assert_eq!((from.bytes_per_second, from.messages_per_second), (100e3, 2e3));
        // Random starts stay random.
        profile.groups[0].transactions[1].arrivals = Some(Arrivals::Poisson(1.0));
        set(&mut profile, 8e6).unwrap();
        assert_eq!(arrivals(&profile), Some(Arrivals::Poisson(100.0)));
        // Of two groups one is still as fast as it can be.
        let mut other = profile.groups[0].clone();
        other.transactions[1].arrivals = None;
        profile.groups.push(other);
        assert_eq!(bits_per_second(&profile), None);
        set(&mut profile, 8e6).unwrap();
        assert_eq!(arrivals(&profile), Some(Arrivals::Poisson(50.0)));
        assert_eq!(bits_per_second(&profile), Some(8e6));
    }

    /// Of the protocol that the group connects by: TCP has no datagrams.
    #[test]
    fn every_datagram_of_a_call_counts() {
        for (protocol, rate) in [("udp", 10.0), ("tcp", 80.0)] {
            let mut write = flowop("write", Some(Quantity::Fixed(1000)), 1);
            write.options.io.set("gso", IoValue::Number(4));
            write.options.io.set("batch", IoValue::Number(2));
            let mut profile = profile(1, vec![write], Vec::new());
            let connect = &mut profile.groups[0].transactions[0].flowops[0];
            connect.options.protocol = Some(protocol.to_owned());
            set(&mut profile, 640e3).unwrap();
            assert_eq!(arrivals(&profile), Some(Arrivals::Even(rate)), "{protocol}");
            let messages = traffic(&profile).unwrap()[0].messages_per_second;
            assert_eq!(messages, 80.0, "{protocol}");
        }
    }

    #[test]
    fn loops_and_mixes_count_as_often_as_they_run() {
        let flowops = vec![
            flowop("write", Some(Quantity::Fixed(100)), 1),
            flowop("write", Some(Quantity::Fixed(1000)), 1),
        ];
        let choice = |weight, index| Choice { weight, parts: vec![Part::Flowop(index)] };
        let order = vec![
            Part::Loop { times: 3, parts: vec![Part::Flowop(0)] },
            Part::Mix(vec![choice(3, 0), choice(1, 1)]),
        ];
        let mut profile = profile(1, flowops, order);
        set(&mut profile, 8.0 * 6250.0).unwrap();
        assert_eq!(arrivals(&profile), Some(Arrivals::Even(10.0)));
    }

    #[test]
    fn random_sizes_count_by_their_mean() {
        let weighted = |value, weight| Weighted { value, weight };
        for (quantity, expected) in [
            (Quantity::Random { min: 100, max: 300 }, 200.0),
            (Quantity::Table(vec![weighted(100, 3), weighted(500, 1)]), 200.0),
            (Quantity::Exponential { mean: 10_000, min: 0, max: u64::MAX }, 10_000.0),
            // exp(sigma^2 / 2) of the median.
            (
                Quantity::Lognormal { median: 10_000, sigma: 500_000, min: 0, max: u64::MAX },
                11_331.0,
            ),
            (Quantity::Imix { headers: 40 }, 300.333),
            (Quantity::ByStrand(ByStrand::Each(vec![100, 200, 600])), 250.0),
            (Quantity::ByStrand(ByStrand::Spread { first: 100, last: 300 }), 200.0),
        ] {
            let mean = mean(&quantity, 4);
            assert!((mean / expected - 1.0).abs() < 0.005, "{quantity:?}: {mean}");
        }
    }

    #[test]
    fn what_cannot_be_paced_is_refused() {
        let write = || vec![flowop("write", Some(Quantity::Fixed(100)), 1)];
        let refused = |mut profile: Profile, rate| set(&mut profile, rate).unwrap_err();
        let think = vec![flowop("think", None, 1)];
        assert_eq!(refused(profile(1, think, Vec::new()), 1e6), OfferedError::NoPhase);
        let files = vec![flowop("sendfile", None, 1)];
        assert_eq!(refused(profile(1, files, Vec::new()), 1e6), OfferedError::WholeFiles);
        let mut by_iterations = profile(1, write(), Vec::new());
        by_iterations.groups[0].transactions[1].until = Until::Iterations(3);
        assert_eq!(refused(by_iterations, 1e6), OfferedError::Iterations);
        let mut traced = profile(1, write(), Vec::new());
        traced.groups[0].transactions[1].arrivals = Some(Arrivals::Trace(Default::default()));
        assert_eq!(bits_per_second(&traced), None);
        assert_eq!(refused(traced, 1e6), OfferedError::Trace);
        assert_eq!(refused(profile(1000, write(), Vec::new()), 1.0), OfferedError::TooLow);
    }
}
