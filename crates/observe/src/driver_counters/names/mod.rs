//! Names that drivers give their counters, and what they count: each family with its source, from which the names
//! and their meaning are. Links are to Linux 6.12 unless they say otherwise.

use wirecost_model::observe::{Direction, NicDropKind};

use super::{Counter, What};
use Direction::{Rx, Tx};
use NicDropKind::{AllocFailed, Error, LinkDown, Missed, NoBuffer, RateLimit, Unspecified, Xdp};
use What::{Bytes, Drops, Packets, Pause};

/// Drivers that use the same names.
#[derive(Debug)]
pub(super) struct Family {
    pub(super) drivers: &'static [&'static str],
    pub(super) rules: &'static [Rule],
}

/// A name, in which `#` stands for the number of a queue.
#[derive(Debug)]
pub(super) struct Rule {
    name: &'static str,
    direction: Direction,
    pub(super) what: What,
}

impl Rule {
    pub(super) fn read(&self, name: &str) -> Option<Counter> {
        let queue = match self.name.split_once('#') {
            None => (self.name == name).then_some(None::<u32>)?,
            Some((before, after)) => {
                let digits = name.strip_prefix(before)?.strip_suffix(after)?;
                // `+1` is a number too.
                let number = digits.bytes().all(|digit| digit.is_ascii_digit());
                Some(digits.parse().ok().filter(|_| number)?)
            }
        };
        Some(Counter { direction: self.direction, queue, what: self.what })
    }
}

const fn rx(name: &'static str, what: What) -> Rule {
    Rule { name, direction: Rx, what }
}

const fn tx(name: &'static str, what: What) -> Rule {
    Rule { name, direction: Tx, what }
}

/// `rx_no_buffer_count` of Intel's drivers (register RNBC) is left out: a packet that finds no descriptor waits in
/// the device, and is only lost if that is full, which `rx_missed_errors` counts.
pub(super) const FAMILIES: &[Family] = &[
    // https://elixir.bootlin.com/linux/v6.12/source/drivers/net/ethernet/intel/igb/igb_ethtool.c
    // https://elixir.bootlin.com/linux/v6.12/source/drivers/net/ethernet/intel/igc/igc_ethtool.c
    // `rx_missed_errors` is MPC, packets for which the device's memory was full; the drops of a queue are RQDPC,
    // packets that found no descriptor.
    Family {
        drivers: &["igb", "igc"],
        rules: &[
            rx("rx_queue_#_packets", Packets),
            rx("rx_queue_#_bytes", Bytes),
            rx("rx_queue_#_drops", Drops(NoBuffer)),
            rx("rx_queue_#_alloc_failed", Drops(AllocFailed)),
            tx("tx_queue_#_packets", Packets),
            tx("tx_queue_#_bytes", Bytes),
            rx("rx_missed_errors", Drops(Missed)),
            rx("rx_long_length_errors", Drops(Error)),
            rx("rx_short_length_errors", Drops(Error)),
            rx("rx_flow_control_xon", Pause),
            rx("rx_flow_control_xoff", Pause),
            tx("tx_flow_control_xon", Pause),
            tx("tx_flow_control_xoff", Pause),
        ],
    },
    // https://elixir.bootlin.com/linux/v6.12/source/drivers/net/ethernet/intel/e1000e/ethtool.c
    // https://elixir.bootlin.com/linux/v6.12/source/drivers/net/ethernet/intel/e1000/e1000_ethtool.c
    // One queue, which is not counted apart.
    Family {
        drivers: &["e1000e", "e1000"],
        rules: &[
            rx("rx_missed_errors", Drops(Missed)),
            rx("alloc_rx_buff_failed", Drops(AllocFailed)),
            rx("rx_long_length_errors", Drops(Error)),
            rx("rx_short_length_errors", Drops(Error)),
            rx("rx_flow_control_xon", Pause),
            rx("rx_flow_control_xoff", Pause),
            tx("tx_flow_control_xon", Pause),
            tx("tx_flow_control_xoff", Pause),
        ],
    },
    // https://elixir.bootlin.com/linux/v6.12/source/drivers/net/ethernet/intel/ixgbe/ixgbe_ethtool.c
    // https://elixir.bootlin.com/linux/v6.12/source/drivers/net/ethernet/intel/ixgbevf/ethtool.c
    // `rx_no_dma_resources` is QPRDC, packets that found no descriptor.
    Family {
        drivers: &["ixgbe", "ixgbevf"],
        rules: &[
            rx("rx_queue_#_packets", Packets),
            rx("rx_queue_#_bytes", Bytes),
            tx("tx_queue_#_packets", Packets),
            tx("tx_queue_#_bytes", Bytes),
            rx("rx_missed_errors", Drops(Missed)),
            rx("rx_no_dma_resources", Drops(NoBuffer)),
            rx("alloc_rx_page_failed", Drops(AllocFailed)),
            rx("alloc_rx_buff_failed", Drops(AllocFailed)),
            rx("rx_long_length_errors", Drops(Error)),
            rx("rx_short_length_errors", Drops(Error)),
            rx("rx_flow_control_xon", Pause),
            rx("rx_flow_control_xoff", Pause),
            tx("tx_flow_control_xon", Pause),
            tx("tx_flow_control_xoff", Pause),
        ],
    },
    // https://elixir.bootlin.com/linux/v6.12/source/drivers/net/ethernet/intel/i40e/i40e_ethtool.c
    // https://elixir.bootlin.com/linux/v6.12/source/drivers/net/ethernet/intel/iavf/iavf_ethtool.c
    // `rx_dropped` of the interface has packets without a descriptor before Linux 6.7, which are `rx_missed_errors` since then;
    // `port.rx_dropped`, since then `port.rx_discards`, is of the port's memory.
    Family {
        drivers: &["i40e", "iavf"],
        rules: &[
            rx("rx-#.packets", Packets),
            rx("rx-#.bytes", Bytes),
            tx("tx-#.packets", Packets),
            tx("tx-#.bytes", Bytes),
            rx("rx_dropped", Drops(Unspecified)),
            rx("rx_missed_errors", Drops(NoBuffer)),
            tx("tx_dropped", Drops(Unspecified)),
            rx("rx_alloc_fail", Drops(AllocFailed)),
            rx("rx_pg_alloc_fail", Drops(AllocFailed)),
            rx("port.rx_dropped", Drops(Missed)),
            rx("port.rx_discards", Drops(Missed)),
            rx("port.rx_length_errors", Drops(Error)),
            tx("port.tx_dropped_link_down", Drops(LinkDown)),
            rx("port.link_xon_rx", Pause),
            rx("port.link_xoff_rx", Pause),
            tx("port.link_xon_tx", Pause),
            tx("port.link_xoff_tx", Pause),
        ],
    },
    // https://elixir.bootlin.com/linux/v6.12/source/drivers/net/ethernet/intel/ice/ice_ethtool.c
    // As of i40e, with other names.
    Family {
        drivers: &["ice"],
        rules: &[
            rx("rx_queue_#_packets", Packets),
            rx("rx_queue_#_bytes", Bytes),
            tx("tx_queue_#_packets", Packets),
            tx("tx_queue_#_bytes", Bytes),
            rx("rx_dropped", Drops(NoBuffer)),
            rx("rx_alloc_fail", Drops(AllocFailed)),
            rx("rx_pg_alloc_fail", Drops(AllocFailed)),
            rx("rx_dropped.nic", Drops(Missed)),
            rx("rx_oversize.nic", Drops(Error)),
            tx("tx_dropped_link_down.nic", Drops(LinkDown)),
            rx("link_xon_rx.nic", Pause),
            rx("link_xoff_rx.nic", Pause),
            tx("link_xon_tx.nic", Pause),
            tx("link_xoff_tx.nic", Pause),
        ],
    },
    // https://elixir.bootlin.com/linux/v6.12/source/drivers/net/ethernet/mellanox/mlx5/core/en_stats.c
    // https://docs.kernel.org/networking/device_drivers/ethernet/mellanox/mlx5/counters.html
    Family {
        drivers: &["mlx5_core"],
        rules: &[
            rx("rx#_packets", Packets),
            rx("rx#_bytes", Bytes),
            rx("rx#_xdp_drop", Drops(Xdp)),
            rx("rx#_wqe_err", Drops(Error)),
            rx("rx#_oversize_pkts_sw_drop", Drops(Error)),
            rx("rx#_buff_alloc_err", Drops(AllocFailed)),
            tx("tx#_packets", Packets),
            tx("tx#_bytes", Bytes),
            tx("tx#_dropped", Drops(Unspecified)),
            rx("rx_out_of_buffer", Drops(NoBuffer)),
            rx("rx_discards_phy", Drops(Missed)),
            tx("tx_discards_phy", Drops(Unspecified)),
            rx("rx_pause_ctrl_phy", Pause),
            tx("tx_pause_ctrl_phy", Pause),
        ],
    },
    // https://elixir.bootlin.com/linux/v6.12/source/drivers/net/ethernet/mellanox/mlx4/en_ethtool.c
    Family {
        drivers: &["mlx4_en"],
        rules: &[
            rx("rx#_packets", Packets),
            rx("rx#_bytes", Bytes),
            rx("rx#_dropped", Drops(AllocFailed)),
            rx("rx#_xdp_drop", Drops(Xdp)),
            tx("tx#_packets", Packets),
            tx("tx#_bytes", Bytes),
            rx("rx#_xdp_redirect_fail", Drops(Xdp)),
            rx("rx#_xdp_tx_full", Drops(Xdp)),
            rx("rx_fifo_errors", Drops(Missed)),
            rx("rx_length_errors", Drops(Error)),
            tx("tx_dropped", Drops(Unspecified)),
            rx("rx_pause", Pause),
            tx("tx_pause", Pause),
        ],
    },
    // https://elixir.bootlin.com/linux/v6.12/source/drivers/net/ethernet/broadcom/bnxt/bnxt_ethtool.c
    // Packets and bytes are counted apart by whom they were for. `rx_discards` of a queue are packets that found no
    // descriptor; `rx_stat_discard` is of the port.
    Family {
        drivers: &["bnxt_en"],
        rules: &[
            rx("[#]: rx_ucast_packets", Packets),
            rx("[#]: rx_mcast_packets", Packets),
            rx("[#]: rx_bcast_packets", Packets),
            rx("[#]: rx_ucast_bytes", Bytes),
            rx("[#]: rx_mcast_bytes", Bytes),
            rx("[#]: rx_bcast_bytes", Bytes),
            rx("[#]: rx_discards", Drops(NoBuffer)),
            rx("[#]: rx_errors", Drops(Error)),
            rx("[#]: rx_buf_errors", Drops(Unspecified)),
            tx("[#]: tx_ucast_packets", Packets),
            tx("[#]: tx_mcast_packets", Packets),
            tx("[#]: tx_bcast_packets", Packets),
            tx("[#]: tx_ucast_bytes", Bytes),
            tx("[#]: tx_mcast_bytes", Bytes),
            tx("[#]: tx_bcast_bytes", Bytes),
            tx("[#]: tx_discards", Drops(Unspecified)),
            tx("[#]: tx_errors", Drops(Error)),
            rx("rx_stat_discard", Drops(Missed)),
            rx("rx_pause_frames", Pause),
            tx("tx_pause_frames", Pause),
        ],
    },
    // https://elixir.bootlin.com/linux/v6.12/source/drivers/net/ethernet/amazon/ena/ena_ethtool.c
    // The allowances are rates of the virtual machine that the cloud limits; in and out are not told apart for packets.
    Family {
        drivers: &["ena"],
        rules: &[
            rx("queue_#_rx_cnt", Packets),
            rx("queue_#_rx_bytes", Bytes),
            rx("queue_#_rx_page_alloc_fail", Drops(AllocFailed)),
            rx("queue_#_rx_skb_alloc_fail", Drops(AllocFailed)),
            rx("queue_#_rx_bad_desc_num", Drops(Error)),
            rx("queue_#_rx_xdp_drop", Drops(Xdp)),
            tx("queue_#_tx_cnt", Packets),
            tx("queue_#_tx_bytes", Bytes),
            tx("queue_#_tx_dma_mapping_err", Drops(AllocFailed)),
            tx("queue_#_tx_linearize_failed", Drops(AllocFailed)),
            rx("queue_#_rx_dma_mapping_err", Drops(AllocFailed)),
            rx("queue_#_rx_bad_req_id", Drops(Error)),
            rx("queue_#_rx_xdp_aborted", Drops(Xdp)),
            rx("queue_#_rx_xdp_invalid", Drops(Xdp)),
            rx("bw_in_allowance_exceeded", Drops(RateLimit)),
            rx("pps_allowance_exceeded", Drops(RateLimit)),
            rx("conntrack_allowance_exceeded", Drops(RateLimit)),
            tx("bw_out_allowance_exceeded", Drops(RateLimit)),
            tx("linklocal_allowance_exceeded", Drops(RateLimit)),
        ],
    },
    // https://elixir.bootlin.com/linux/v6.12/source/drivers/net/ethernet/google/gve/gve_ethtool.c
    // Packets are counted for the whole device only, except by the driver of Google's own (`rx_packets[#]`).
    // `rx_no_buffers_posted` and `rx_queue_drop_cnt` are of the device. `rx_dropped_pkt` is the sum of failed allocations,
    // which netdev netlink has by queue, and errors.
    Family {
        drivers: &["gve", "gvnic"],
        rules: &[
            rx("rx_packets[#]", Packets),
            rx("rx_bytes[#]", Bytes),
            rx("rx_queue_drop_cnt[#]", Drops(Missed)),
            rx("rx_no_buffers_posted[#]", Drops(NoBuffer)),
            rx("rx_drops_packet_over_mru[#]", Drops(Error)),
            rx("rx_drops_invalid_checksum[#]", Drops(Error)),
            rx("rx_xdp_drop[#]", Drops(Xdp)),
            tx("tx_packets[#]", Packets),
            tx("tx_bytes[#]", Bytes),
            tx("tx_dma_mapping_error[#]", Drops(AllocFailed)),
        ],
    },
    // https://elixir.bootlin.com/linux/v6.12/source/drivers/net/virtio_net.c
    // Since 6.10 packets and bytes of queues, and drops by the device, are the kernel's (netdev netlink), and names have
    // no `queue` in them.
    Family {
        drivers: &["virtio_net"],
        rules: &[
            rx("rx_queue_#_packets", Packets),
            rx("rx_queue_#_bytes", Bytes),
            rx("rx_queue_#_drops", Drops(Unspecified)),
            rx("rx_queue_#_xdp_drops", Drops(Xdp)),
            rx("rx#_drops", Drops(Unspecified)),
            rx("rx#_xdp_drops", Drops(Xdp)),
            tx("tx_queue_#_packets", Packets),
            tx("tx_queue_#_bytes", Bytes),
            tx("tx_queue_#_xdp_tx_drops", Drops(Xdp)),
            tx("tx#_xdp_tx_drops", Drops(Xdp)),
        ],
    },
    // https://elixir.bootlin.com/linux/v6.12/source/drivers/net/veth.c
    // `xdp_packets` are all packets that NAPI polled, with or without an XDP program (`veth_xdp_rcv`): none where GRO is
    // off and no program is attached.
    Family {
        drivers: &["veth"],
        rules: &[
            rx("rx_queue_#_xdp_packets", Packets),
            rx("rx_queue_#_xdp_bytes", Bytes),
            rx("rx_queue_#_drops", Drops(Unspecified)),
            rx("rx_queue_#_xdp_drops", Drops(Xdp)),
            tx("tx_queue_#_xdp_xmit_errors", Drops(Xdp)),
        ],
    },
    // https://elixir.bootlin.com/linux/v6.12/source/drivers/net/ifb.c
    Family {
        drivers: &["ifb"],
        rules: &[
            rx("rx_queue_#_packets", Packets),
            rx("rx_queue_#_bytes", Bytes),
            tx("tx_queue_#_packets", Packets),
            tx("tx_queue_#_bytes", Bytes),
        ],
    },
    // https://elixir.bootlin.com/linux/v6.12/source/drivers/net/hyperv/netvsc_drv.c
    Family {
        drivers: &["hv_netvsc"],
        rules: &[
            rx("rx_queue_#_packets", Packets),
            rx("rx_queue_#_bytes", Bytes),
            rx("rx_queue_#_xdp_drop", Drops(Xdp)),
            tx("tx_queue_#_packets", Packets),
            tx("tx_queue_#_bytes", Bytes),
            tx("tx_no_memory", Drops(AllocFailed)),
            tx("tx_no_space", Drops(NoBuffer)),
            tx("tx_too_big", Drops(Error)),
            rx("rx_no_memory", Drops(AllocFailed)),
        ],
    },
    // https://elixir.bootlin.com/linux/v6.12/source/drivers/net/ethernet/microsoft/mana/mana_ethtool.c
    Family {
        drivers: &["mana"],
        rules: &[
            rx("rx_#_packets", Packets),
            rx("rx_#_bytes", Bytes),
            rx("rx_#_xdp_drop", Drops(Xdp)),
            tx("tx_#_packets", Packets),
            tx("tx_#_bytes", Bytes),
            tx("tx_#_mana_map_err", Drops(AllocFailed)),
            rx("hc_rx_discards_no_wqe", Drops(NoBuffer)),
        ],
    },
    // https://elixir.bootlin.com/linux/v6.12/source/drivers/net/ethernet/hisilicon/hns3/hns3_ethtool.c
    Family {
        drivers: &["hns3"],
        rules: &[
            rx("rxq#_packets", Packets),
            rx("rxq#_bytes", Bytes),
            tx("txq#_packets", Packets),
            tx("txq#_bytes", Bytes),
            rx("rxq#_dropped", Drops(AllocFailed)),
            rx("rxq#_l2_err", Drops(Error)),
            rx("rxq#_err_pkt_len", Drops(Error)),
            tx("txq#_dropped", Drops(AllocFailed)),
            tx("txq#_map_sg_err", Drops(AllocFailed)),
            tx("txq#_vlan_err", Drops(Error)),
            tx("txq#_l4_proto_err", Drops(Error)),
            tx("txq#_l2l3l4_err", Drops(Error)),
            tx("txq#_tso_err", Drops(Error)),
            tx("txq#_over_max_recursion", Drops(Error)),
            tx("txq#_hw_limitation", Drops(Error)),
            tx("txq#_copy_bits_err", Drops(Error)),
            tx("txq#_skb2sgl_err", Drops(Error)),
            rx("mac_rx_mac_pause_num", Pause),
            tx("mac_tx_mac_pause_num", Pause),
        ],
    },
    // https://elixir.bootlin.com/linux/v6.12/source/drivers/net/ethernet/stmicro/stmmac/stmmac_ethtool.c
    Family {
        drivers: &["st_gmac", "st_xgmac", "st_mac100"],
        rules: &[
            rx("q#_rx_pkt_n", Packets),
            tx("q#_tx_pkt_n", Packets),
            rx("mmc_rx_fifo_overflow", Drops(Missed)),
            rx("mmc_rx_length_error", Drops(Error)),
            rx("rx_missed_cntr", Drops(NoBuffer)),
            rx("rx_overflow_cntr", Drops(Missed)),
            rx("mmc_rx_pause_frames", Pause),
            tx("mmc_tx_pause_frame", Pause),
        ],
    },
];

#[cfg(test)]
mod tests;
