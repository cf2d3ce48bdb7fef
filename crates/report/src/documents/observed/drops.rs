//! The tables of drops, as a terminal shows them.

mod tests {
    use wirecost_model::observe::{
        BacklogDrops, ConntrackDrops, CounterDrops, DeviceDrops, DropOutcome, DropPlace, DropSite,
        DropsSection, NamedDrops, NeighbourDrops, Observation, QdiscDrops, TracedDrops,
    };

    fn site(reason: &str, function: &str, packets: u64) -> DropSite {
        let (place, outcome) = wirecost_model::observe::classify_drop(reason, Some(function));
        DropSite {
            reason: reason.to_owned(),
            place,
            outcome,
            function: Some(function.to_owned()),
            offset: 0x1a3,
            module: None,
            packets,
            skbs: packets,
            bytes: packets * 101,
        }
    }

    fn example() -> DropsSection {
        let in_module = |site| DropSite { module: Some("nf_tables".to_owned()), ..site };
        let sites = vec![
            site("SOCKET_RCVBUFF", "udp_queue_rcv_one_skb", 19_969),
            DropSite { skbs: 37, ..site("QDISC_DROP", "__dev_queue_xmit", 370) },
            site("SOCKET_RCVBUFF", "raw_rcv", 41),
            in_module(site("NETFILTER_DROP", "nf_hook_slow", 7)),
            site("QUEUE_PURGE", "skb_queue_purge_reason", 5),
            site("TCP_OLD_DATA", "tcp_data_queue", 3),
            site("QDISC_DROP", "skb_release_data", 2),
            DropSite { function: None, ..site("IP_INADDRERRORS", "", 1) },
        ];
        let lost = sites.iter().filter(|site| site.outcome == DropOutcome::Lost);
        DropsSection {
            traced: Some(TracedDrops {
                lost_packets: lost.map(|site| site.packets).sum(),
                sites,
                unattributed: vec![site("NOT_SPECIFIED", "udp_destruct_common", 11)],
                uncounted: 4,
            }),
            ..counted()
        }
    }

    fn counted() -> DropsSection {
        let counter = |name: &str, packets| CounterDrops {
            name: name.to_owned(),
            place: DropPlace::SocketBuffer,
            packets,
        };
        DropsSection {
            traced: None,
            devices: Some(vec![DeviceDrops {
                device: "eth0".to_owned(),
                rx_missed: 1_234,
                driver: vec![NamedDrops { name: "rx0_out_of_buffer".to_owned(), count: 1_234 }],
                ..DeviceDrops::default()
            }]),
            queueing_disciplines: Some(vec![QdiscDrops {
                device: "eth0".to_owned(),
                kind: "tbf".to_owned(),
                packets: 37,
            }]),
            backlog: Some(vec![
                BacklogDrops { cpu: 0, packets: 3, flow_limited: Some(0) },
                BacklogDrops { cpu: 1, packets: 4, flow_limited: None },
            ]),
            counters: Some(vec![counter("Udp.RcvbufErrors", 20_010), counter("Udp.MemErrors", 0)]),
            connection_tracking: Some(ConntrackDrops {
                dropped: 1_501,
                insert_failed: 0,
                chain_too_long: 0,
                early_dropped: 12,
                entries: 262_144,
                limit: Some(262_144),
            }),
            neighbour_tables: Some(vec![NeighbourDrops {
                table: "arp_cache".to_owned(),
                table_fulls: 9,
                unresolved_discards: None,
                unresolved_reason: Some("only the first network namespace has it".to_owned()),
                entries: 1_024,
                limit: 1_024,
            }]),
        }
    }

    #[test]
    fn every_drop_has_its_place_and_every_counter_that_grew_a_row() {
        insta::assert_snapshot!(super::super::shown(example().document(), 120));
    }

    #[test]
    fn without_the_hook_there_are_counters() {
        insta::assert_snapshot!(super::super::shown(counted().document(), 80));
    }

    #[test]
    fn without_drops_it_says_so() {
        let text = super::super::shown(DropsSection::default().document(), 80);
        assert!(text.ends_with("  no counter tells of a dropped packet\n"), "{text}");
    }

    #[test]
    fn one_line_names_the_places_that_lost_most() {
        assert_eq!(
            example().brief().unwrap(),
            "20,388 packets: socket buffer 20,010 (udp_queue_rcv_one_skb), qdisc 370 \
             (__dev_queue_xmit), filter 7 (nf_hook_slow), ..."
        );
        assert_eq!(counted().brief(), None);
    }
}
