use proptest::prelude::*;
use wirecost_model::quantity::{ByStrand, IMIX, Quantity, Weighted, imix};

fn simple() -> impl Strategy<Value = Quantity> {
    let weighted =
        (any::<u64>(), 1u32..1000).prop_map(|(value, weight)| Weighted { value, weight });
    prop_oneof![
        any::<u64>().prop_map(Quantity::Fixed),
        (any::<u64>(), any::<u64>())
            .prop_map(|(a, b)| Quantity::Random { min: a.min(b), max: a.max(b) }),
        (any::<u64>(), any::<u64>(), any::<u64>()).prop_map(|(a, b, median)| Quantity::Lognormal {
            median,
            sigma: 1_200_000,
            min: a.min(b),
            max: a.max(b),
        }),
        (any::<u64>(), any::<u64>(), any::<u64>()).prop_map(|(a, b, mean)| Quantity::Exponential {
            mean,
            min: a.min(b),
            max: a.max(b),
        }),
        prop::collection::vec(weighted, 0..5).prop_map(Quantity::Table),
        any::<u64>().prop_map(|headers| Quantity::Imix { headers }),
    ]
}

fn quantities() -> impl Strategy<Value = Quantity> {
    prop_oneof![
        simple(),
        prop::collection::vec(any::<u64>(), 0..5)
            .prop_map(|v| Quantity::ByStrand(ByStrand::Each(v))),
        (any::<u64>(), any::<u64>())
            .prop_map(|(first, last)| Quantity::ByStrand(ByStrand::Spread { first, last })),
        simple().prop_map(|quantity| Quantity::ByStrand(ByStrand::Drawn(Box::new(quantity)))),
    ]
}

proptest! {
    #[test]
    fn none_of_its_values_is_beyond_the_maximum(quantity in quantities()) {
        let max = quantity.max();
        match &quantity {
            Quantity::Fixed(n) => prop_assert_eq!(*n, max),
            Quantity::Random { min, .. } | Quantity::Lognormal { min, .. } | Quantity::Exponential { min, .. } => {
                prop_assert!(*min <= max);
            }
            Quantity::Table(values) => prop_assert!(values.iter().all(|v| v.value <= max)),
            Quantity::Imix { headers } => {
                prop_assert!(imix(*headers).iter().all(|v| v.value <= max));
                prop_assert!(max <= IMIX[2].value);
            }
            Quantity::ByStrand(ByStrand::Each(values)) => {
                prop_assert!(values.iter().all(|value| *value <= max));
            }
            Quantity::ByStrand(ByStrand::Spread { first, last }) => {
                prop_assert!(*first <= max && *last <= max);
            }
            Quantity::ByStrand(ByStrand::Drawn(of)) => prop_assert_eq!(of.max(), max),
        }
    }

    #[test]
    fn it_survives_the_wire_and_describes_itself(quantity in quantities()) {
        let text = serde_json::to_string(&quantity).unwrap();
        prop_assert_eq!(&serde_json::from_str::<Quantity>(&text).unwrap(), &quantity);
        prop_assert!(!quantity.to_string().is_empty());
    }

    /// Headers take from each packet the same, down to nothing.
    #[test]
    fn payloads_are_packets_without_their_headers(headers in any::<u64>()) {
        for (payload, packet) in imix(headers).iter().zip(IMIX) {
            prop_assert_eq!(payload.weight, packet.weight);
            prop_assert_eq!(payload.value, packet.value.saturating_sub(headers));
        }
    }
}
