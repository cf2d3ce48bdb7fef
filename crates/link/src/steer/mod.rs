//! Which queue of a device a packet goes through: a BPF program with the Toeplitz hash of `model::rss`.

use std::io;
use std::os::fd::AsFd as _;

use libbpf_rs::{Object, ObjectBuilder};
use wirecost_linux::tun::Tun;
use wirecost_model::rss::{KEY_BYTES, Rss, TABLE_ENTRIES};

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/steer_steer.bpf.o"));

/// The program, loaded.
#[derive(Debug)]
pub(crate) struct Steering(Object);

impl Steering {
    /// Loads the program for one key and table.
    ///
    /// # Errors
    /// Those of bpf(2): without CAP_BPF and CAP_NET_ADMIN.
    pub(crate) fn load(rss: &Rss) -> io::Result<Self> {
        let mut settings = [0; KEY_BYTES + TABLE_ENTRIES];
        settings[..KEY_BYTES].copy_from_slice(&rss.key.0);
        for (entry, queue) in settings[KEY_BYTES..].iter_mut().zip(&rss.table) {
            *entry = *queue;
        }
        let mut open = ObjectBuilder::default()
            .name("wirecost_steer")
            .and_then(|builder| builder.open_memory(OBJECT))
            .map_err(io::Error::other)?;
        for mut map in open.maps_mut() {
            if map.name().to_string_lossy().ends_with(".rodata.rss") {
                map.set_initial_value(&settings).map_err(io::Error::other)?;
            }
        }
        Ok(Self(open.load().map_err(io::Error::other)?))
    }

    /// Has a device pick the queues of what its host sends by the program, which stays as long as the device.
    ///
    /// # Errors
    /// Those of ioctl(2): the kernel has no TUNSETSTEERINGEBPF (it came with 4.16).
    pub(crate) fn attach(&self, device: &Tun) -> io::Result<()> {
        let mut programs = self.0.progs();
        let program = programs.next().ok_or(io::ErrorKind::NotFound)?;
        device.steer(program.as_fd())
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use libbpf_rs::ProgramInput;
    use wirecost_model::rss::{self, Key};

    use super::*;

    const TCP: u8 = 6;
    const UDP: u8 = 17;
    const ICMP: u8 = 1;
    const NO_PORTS: Range<usize> = 0..0;

    fn packet_v4(
        random: &mut fastrand::Rng,
        protocol: u8,
        options: u8,
        fragment: [u8; 2],
    ) -> Vec<u8> {
        let mut packet: Vec<u8> = (0..60).map(|_| random.u8(..)).collect();
        packet[0] = 0x45 + options;
        packet[6..8].copy_from_slice(&fragment);
        packet[9] = protocol;
        packet
    }

    fn packet_v6(random: &mut fastrand::Rng, protocol: u8) -> Vec<u8> {
        let mut packet: Vec<u8> = (0..60).map(|_| random.u8(..)).collect();
        packet[0] = 0x60;
        packet[6] = protocol;
        packet
    }

    /// What the program of the kernel returns. It wants an Ethernet header in front, which a socket filter does
    /// not see: <https://elixir.bootlin.com/linux/v6.12/source/net/bpf/test_run.c#L1000>.
    fn returned(steering: &mut Steering, packet: &[u8]) -> u32 {
        let ether_type: [u8; 2] = if packet[0] >> 4 == 6 { [0x86, 0xdd] } else { [8, 0] };
        let frame = [&[0; 12], &ether_type[..], packet].concat();
        let program = steering.0.progs_mut().next().unwrap();
        let input = ProgramInput { data_in: Some(&frame), ..ProgramInput::default() };
        program.test_run(input).unwrap().return_value
    }

    #[test]
    fn the_program_hashes_as_rust_does() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut key = [0; KEY_BYTES];
        random.fill(&mut key);
        // Every entry tells the last seven bits of the hash.
        let rss = Rss { key: Key(key), table: (0..128).collect() };
        let mut steering = Steering::load(&rss).unwrap();
        for _ in 0..200 {
            let random = &mut random;
            // A packet, and the places of addresses and ports that are hashed.
            let cases = [
                (packet_v4(random, TCP, 0, [0x40, 0]), (12..20, 20..24)),
                (packet_v4(random, UDP, 3, [0, 0]), (12..20, 32..36)),
                (packet_v4(random, UDP, 0, [0x20, 0]), (12..20, NO_PORTS)),
                (packet_v4(random, TCP, 0, [0x01, 0]), (12..20, NO_PORTS)),
                (packet_v4(random, TCP, 0, [0, 9]), (12..20, NO_PORTS)),
                (packet_v4(random, ICMP, 0, [0, 0]), (12..20, NO_PORTS)),
                (packet_v6(random, TCP), (8..40, 40..44)),
                (packet_v6(random, UDP), (8..40, 40..44)),
                (packet_v6(random, ICMP), (8..40, NO_PORTS)),
            ];
            for (packet, (addresses, ports)) in cases {
                let input = [&packet[addresses], &packet[ports]].concat();
                let expected = u32::from(rss.queue(rss.key.hash(&input)));
                assert_eq!(returned(&mut steering, &packet), expected, "{packet:02x?}");
            }
        }
    }

    #[test]
    fn a_packet_without_the_room_for_ports_has_those_of_its_addresses() {
        let mut random = fastrand::Rng::with_seed(8);
        let mut packet = packet_v4(&mut random, UDP, 0, [0, 0]);
        packet.truncate(22);
        let rss = Rss { key: Key::MICROSOFT, table: (0..128).collect() };
        let mut steering = Steering::load(&rss).unwrap();
        let expected = rss.queue(rss.key.hash(&packet[12..20]));
        assert_eq!(returned(&mut steering, &packet), u32::from(expected));
        let addresses = rss::addresses([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        assert_eq!(addresses, [10, 0, 0, 1, 10, 0, 0, 2]);
    }
}
