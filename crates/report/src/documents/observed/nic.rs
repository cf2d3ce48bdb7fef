//! Counters of devices under the names of the standards, as a terminal shows them.

mod tests {
    use wirecost_model::observe::{
        Direction, FrameSizes, NicDevice, NicSection, Observation as _, StandardCounter,
        StandardCounters, StandardGroup,
    };

    fn counter(group: StandardGroup, name: &str, count: u64) -> StandardCounter {
        StandardCounter { group, name: name.to_owned(), count }
    }

    #[test]
    fn standard_counters_that_grew_have_rows_and_devices_without_them_a_reason() {
        let sizes = |low, high, frames| FrameSizes { direction: Direction::Rx, low, high, frames };
        let counters = vec![
            counter(StandardGroup::EthMac, "FrameCheckSequenceErrors", 3),
            counter(StandardGroup::EthMac, "AlignmentErrors", 0),
            counter(StandardGroup::Rmon, "etherStatsFragments", 12_345),
        ];
        let frame_sizes =
            vec![sizes(0, Some(64), 1_000_000), sizes(65, Some(127), 0), sizes(1519, None, 7)];
        let counted = NicDevice {
            device: "eth0".to_owned(),
            standard: Some(StandardCounters { counters, frame_sizes }),
            pause_reason: Some("its driver does not count them".to_owned()),
            ..NicDevice::default()
        };
        let silent = NicDevice {
            device: "veth0".to_owned(),
            standard_reason: Some("a virtual device has none".to_owned()),
            ..NicDevice::default()
        };
        let section = NicSection { devices: vec![counted, silent] };
        insta::assert_snapshot!(super::super::shown(section.document(), 120));
    }
}
