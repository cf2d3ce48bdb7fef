//! What a driver says of its device, by the ethtool ioctl (linux/ethtool.h). Requests are asked of
//! the calling thread's network namespace.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use wirecost_model::environment::{Channels, Coalescing, FlowControl, Rings};
use wirecost_model::rss::{DeviceSpreading, Fields, Flow, Symmetry, key_text};

/// Driver of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Driver {
    pub name: String,
    /// Of the driver; for one that came with the kernel, the kernel's release.
    pub version: Option<String>,
    pub firmware: Option<String>,
    /// Place on its bus, as `0000:00:03.0`.
    pub bus: Option<String>,
}

/// State of a feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Feature {
    pub on: bool,
    /// Whether it can be switched.
    pub changeable: bool,
}

/// Asks about devices of the namespace of the thread that opened it.
#[derive(Debug)]
pub struct Ethtool {
    socket: OwnedFd,
}

// Commands and sizes of <https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/ethtool.h>.
const SIOCETHTOOL: libc::Ioctl = 0x8946;
const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GCOALESCE: u32 = 0x0e;
const ETHTOOL_SCOALESCE: u32 = 0x0f;
const ETHTOOL_GRINGPARAM: u32 = 0x10;
const ETHTOOL_SRINGPARAM: u32 = 0x11;
const ETHTOOL_GPAUSEPARAM: u32 = 0x12;
const ETHTOOL_SPAUSEPARAM: u32 = 0x13;
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_GFEATURES: u32 = 0x3a;
const ETHTOOL_SFEATURES: u32 = 0x3b;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
const ETHTOOL_SCHANNELS: u32 = 0x3d;
const ETHTOOL_GRXFH: u32 = 0x29;
const ETHTOOL_GRXRINGS: u32 = 0x2d;
const ETHTOOL_GRSSH: u32 = 0x46;
const ETHTOOL_SRSSH: u32 = 0x47;
const ETHTOOL_GLINKSETTINGS: u32 = 0x4c;
/// A queue that has an AF_XDP socket does not end (`ethtool_set_channels` in
/// <https://elixir.bootlin.com/linux/v6.12/source/net/ethtool/ioctl.c>). The kernel frees it in a worker of its own, some time
/// after the socket has been closed.
const RELEASE: Duration = Duration::from_secs(5);
const ETH_SS_FEATURES: u32 = 4;
const ETH_GSTRING_LEN: usize = 32;
const SPEED_UNKNOWN: u32 = u32::MAX;
/// Figures that there is always room for.
const MAX_STATISTICS: usize = 1 << 13;
/// Words of `struct ethtool_drvinfo`, and of `struct ethtool_link_settings` without its masks.
const DRVINFO_WORDS: usize = 49;
const LINK_SETTINGS_WORDS: usize = 12;
/// Words of `struct ethtool_ringparam`, `ethtool_coalesce`, `ethtool_pauseparam` and
/// `ethtool_channels`.
const RING_WORDS: usize = 9;
const COALESCE_WORDS: usize = 23;
const PAUSE_WORDS: usize = 4;
const CHANNELS_WORDS: usize = 9;
/// Words of `struct ethtool_rxfh` before the table, and room for `struct ethtool_rxnfc`.
const RXFH_WORDS: usize = 6;
const RXNFC_WORDS: usize = 64;
/// `ETH_RXFH_INDIR_NO_CHANGE`.
const TABLE_UNCHANGED: u32 = u32::MAX;

// <https://elixir.bootlin.com/linux/v6.16/source/include/uapi/linux/ethtool.h>: hash functions, transformations of
// their input, and fields of a packet that they cover.
const ETH_RSS_HASH_TOP: u8 = 1;
const RXH_XFRM_SYM_XOR: u8 = 1;
const RXH_XFRM_SYM_OR_XOR: u8 = 2;
const RXH_ADDRESSES: u64 = 1 << 4 | 1 << 5;
const RXH_PORTS: u64 = 1 << 6 | 1 << 7;

/// Packets for which a device has hash fields of their own (`TCP_V4_FLOW`...).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlowType {
    TcpV4 = 1,
    UdpV4 = 2,
    TcpV6 = 5,
    UdpV6 = 6,
}

/// How a device spreads what it receives over its queues (receive side scaling).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spreading {
    /// Queue by the low bits of the hash.
    pub table: Vec<u32>,
    /// Of the hash function; empty where the device does not tell it.
    pub key: Vec<u8>,
    /// Queues that there are.
    pub queues: u32,
    /// Whether the hash is Toeplitz's; a device that does not tell its function has that.
    pub toeplitz: bool,
    /// What it does to the fields first; `None` for what this program does not know.
    pub symmetry: Option<Symmetry>,
}

/// A change of how a device spreads what it receives.
#[derive(Debug, Clone, Copy)]
pub enum SetSpreading<'a> {
    Table(&'a [u32]),
    /// The driver's own table, which follows the number of queues.
    DefaultTable,
    Key(&'a [u8]),
}

impl Ethtool {
    /// # Errors
    /// When no socket can be had.
    pub fn open() -> io::Result<Self> {
        let socket =
            socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        Ok(Self { socket })
    }

    /// # Errors
    /// `Unsupported` when the driver does not say, as `lo`.
    pub fn driver(&self, device: &str) -> io::Result<Driver> {
        let mut request = vec![0; DRVINFO_WORDS];
        request[0] = ETHTOOL_GDRVINFO;
        self.ask(device, &mut request)?;
        let bytes = bytes(&request);
        let known = |from: usize| {
            let text = text(&bytes[from..from + ETH_GSTRING_LEN]);
            // A driver that has none says `N/A` or nothing.
            (!text.is_empty() && text != "N/A").then_some(text)
        };
        let name = known(4).ok_or(io::ErrorKind::Unsupported)?;
        Ok(Driver { name, version: known(36), firmware: known(68), bus: known(100) })
    }

    /// Speed in bits a second.
    ///
    /// # Errors
    /// `Unsupported` when the device has no speed, or does not know it as its link is down.
    pub fn speed(&self, device: &str) -> io::Result<u64> {
        match self.link_settings(device)?[1] {
            0 | SPEED_UNKNOWN => Err(io::ErrorKind::Unsupported.into()),
            megabits => Ok(u64::from(megabits) * 1_000_000),
        }
    }

    /// Whether both ends may send at the same time; `None` for a device that does not know it, as without a link.
    ///
    /// # Errors
    /// Those of the ioctl.
    pub fn full_duplex(&self, device: &str) -> io::Result<Option<bool>> {
        Ok(full_duplex(&self.link_settings(device)?))
    }

    /// `struct ethtool_link_settings` with its masks.
    fn link_settings(&self, device: &str) -> io::Result<Vec<u32>> {
        // The kernel answers the first question with how many words its three masks take, negative;
        // only a question of the right size is answered.
        let mut request = vec![0; LINK_SETTINGS_WORDS];
        request[0] = ETHTOOL_GLINKSETTINGS;
        self.ask(device, &mut request)?;
        let words = mask_words(&request).ok_or(io::ErrorKind::Unsupported)?;
        let mut request = vec![0; LINK_SETTINGS_WORDS + 3 * usize::from(words)];
        request[0] = ETHTOOL_GLINKSETTINGS;
        set_mask_words(&mut request, words);
        self.ask(device, &mut request)?;
        Ok(request)
    }

    /// Offloads and other features by the kernel's names, as `tx-tcp-segmentation` and `rx-gro`.
    ///
    /// # Errors
    /// Those of the ioctl.
    pub fn features(&self, device: &str) -> io::Result<BTreeMap<String, Feature>> {
        let (names, blocks) = self.feature_blocks(device)?;
        let state = |feature| Feature {
            on: bit(&blocks, ACTIVE, feature),
            changeable: bit(&blocks, AVAILABLE, feature) && !bit(&blocks, NEVER_CHANGED, feature),
        };
        Ok(names
            .into_iter()
            .enumerate()
            .filter(|(_, name)| !name.is_empty())
            .map(|(feature, name)| (name, state(feature)))
            .collect())
    }

    /// Names of features, and `struct ethtool_gfeatures` without its head.
    fn feature_blocks(&self, device: &str) -> io::Result<(Vec<String>, Vec<u32>)> {
        let names = self.feature_names(device)?;
        let blocks = names.len().div_ceil(32);
        let mut states = vec![0; 2 + blocks * 4];
        states[0] = ETHTOOL_GFEATURES;
        states[1] = blocks as u32;
        self.ask(device, &mut states)?;
        Ok((names, states.split_off(2)))
    }

    /// By number of the feature; one without a name is empty.
    fn feature_names(&self, device: &str) -> io::Result<Vec<String>> {
        // struct ethtool_sset_info: command, reserved, 64-bit mask of the sets, their sizes.
        let mut request = vec![ETHTOOL_GSSET_INFO, 0, 0, 0, 0];
        set_u64(&mut request, 2, 1 << ETH_SS_FEATURES);
        self.ask(device, &mut request)?;
        let count = request[4] as usize;

        let mut names = vec![0; 3 + count * ETH_GSTRING_LEN / 4];
        names[0] = ETHTOOL_GSTRINGS;
        names[1] = ETH_SS_FEATURES;
        names[2] = request[4];
        self.ask(device, &mut names)?;
        Ok(bytes(&names[3..]).chunks_exact(ETH_GSTRING_LEN).map(text).collect())
    }

    /// Lengths of the rings between driver and device.
    ///
    /// # Errors
    /// `Unsupported` when the driver does not say.
    pub fn rings(&self, device: &str) -> io::Result<Rings> {
        self.fixed(device, ETHTOOL_GRINGPARAM).map(rings)
    }

    /// How long the device waits before it interrupts.
    ///
    /// # Errors
    /// `Unsupported` when the driver does not say.
    pub fn coalescing(&self, device: &str) -> io::Result<Coalescing> {
        self.fixed(device, ETHTOOL_GCOALESCE).map(coalescing)
    }

    /// Whether pause frames are obeyed (`rx`) and sent (`tx`).
    ///
    /// # Errors
    /// `Unsupported` when the driver does not say.
    pub fn flow_control(&self, device: &str) -> io::Result<FlowControl> {
        self.fixed(device, ETHTOOL_GPAUSEPARAM).map(flow_control)
    }

    /// Queues in use and how many there can be.
    ///
    /// # Errors
    /// `Unsupported` when the driver does not say.
    pub fn channels(&self, device: &str) -> io::Result<Channels> {
        self.fixed(device, ETHTOOL_GCHANNELS).map(channels)
    }

    /// Sets lengths of rings; the most that the driver allows are not settings, and ignored.
    ///
    /// # Errors
    /// `InvalidInput` beyond what it allows, `Unsupported` when they cannot be set.
    pub fn set_rings(&self, device: &str, wanted: Rings) -> io::Result<()> {
        let mut request: [u32; RING_WORDS] = self.fixed(device, ETHTOOL_GRINGPARAM)?;
        put_rings(&mut request, wanted);
        self.set(device, ETHTOOL_SRINGPARAM, request)
    }

    /// Sets how long the device waits before it interrupts.
    ///
    /// # Errors
    /// `Unsupported` when the driver cannot set one of the values.
    pub fn set_coalescing(&self, device: &str, wanted: Coalescing) -> io::Result<()> {
        let mut request: [u32; COALESCE_WORDS] = self.fixed(device, ETHTOOL_GCOALESCE)?;
        put_coalescing(&mut request, wanted);
        self.set(device, ETHTOOL_SCOALESCE, request)
    }

    /// Sets whether pause frames are obeyed and sent.
    ///
    /// # Errors
    /// `Unsupported` when the driver cannot.
    pub fn set_flow_control(&self, device: &str, wanted: FlowControl) -> io::Result<()> {
        let FlowControl { negotiated, rx, tx } = wanted;
        let request = [0, u32::from(negotiated), u32::from(rx), u32::from(tx)];
        self.set::<PAUSE_WORDS>(device, ETHTOOL_SPAUSEPARAM, request)
    }

    /// Sets the number of queues; the most that the driver allows are not settings, and ignored.
    ///
    /// # Errors
    /// `InvalidInput` beyond what it allows, or below what its table of queues needs; `Unsupported` when
    /// they cannot be set.
    pub fn set_channels(&self, device: &str, wanted: Channels) -> io::Result<()> {
        let mut request: [u32; CHANNELS_WORDS] = self.fixed(device, ETHTOOL_GCHANNELS)?;
        let now = channels(request);
        let is_less = |queues: fn(&Channels) -> u32| queues(&wanted) < queues(&now);
        let ends_queues = is_less(|all| all.rx.saturating_add(all.combined))
            || is_less(|all| all.tx.saturating_add(all.combined));
        put_channels(&mut request, wanted);
        let deadline = Instant::now() + RELEASE;
        loop {
            match self.set(device, ETHTOOL_SCHANNELS, request) {
                Err(error)
                    if error.kind() == io::ErrorKind::InvalidInput
                        && ends_queues
                        && Instant::now() < deadline =>
                {
                    std::thread::sleep(Duration::from_millis(5));
                }
                done => return done,
            }
        }
    }

    /// How the device spreads what it receives over its queues.
    ///
    /// # Errors
    /// `Unsupported` when the driver does not say.
    pub fn spreading(&self, device: &str) -> io::Result<Spreading> {
        let answer = self.spreading_words(device)?;
        let (table, key) = spreading_parts(&answer).ok_or(io::ErrorKind::InvalidData)?;
        let mut rings = vec![0; RXNFC_WORDS];
        rings[0] = ETHTOOL_GRXRINGS;
        self.ask(device, &mut rings)?;
        // The low half of a 64-bit number, on either byte order.
        let queues = u64::from_ne_bytes(words_of(&rings, 2)) as u32;
        let [function, transformation, ..] = answer[4].to_ne_bytes();
        let symmetry = match transformation {
            0 => Some(Symmetry::None),
            RXH_XFRM_SYM_XOR => Some(Symmetry::Xor),
            RXH_XFRM_SYM_OR_XOR => Some(Symmetry::OrXor),
            _ => None,
        };
        let toeplitz = function == 0 || function & ETH_RSS_HASH_TOP != 0;
        Ok(Spreading { table, key, queues, toeplitz, symmetry })
    }

    /// Fields of such packets that the device hashes; `None` for a combination that no [`Fields`] is.
    ///
    /// # Errors
    /// `Unsupported` when the driver does not say.
    pub fn hash_fields(&self, device: &str, flow: FlowType) -> io::Result<Option<Fields>> {
        let mut request = vec![0; RXNFC_WORDS];
        request[0] = ETHTOOL_GRXFH;
        request[1] = flow as u32;
        self.ask(device, &mut request)?;
        Ok(match u64::from_ne_bytes(words_of(&request, 2)) {
            RXH_ADDRESSES => Some(Fields::Addresses),
            fields if fields == RXH_ADDRESSES | RXH_PORTS => Some(Fields::AddressesAndPorts),
            _ => None,
        })
    }

    /// All that the device tells of how it spreads packets.
    ///
    /// # Errors
    /// `Unsupported` when the driver does not say.
    pub fn device_spreading(&self, device: &str) -> io::Result<DeviceSpreading> {
        let told = self.spreading(device)?;
        if told.table.is_empty() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let of = |flow: Flow| match flow {
            Flow::Tcp4 => FlowType::TcpV4,
            Flow::Tcp6 => FlowType::TcpV6,
            Flow::Udp4 => FlowType::UdpV4,
            Flow::Udp6 => FlowType::UdpV6,
        };
        let fields = |flow| (flow, self.hash_fields(device, of(flow)).ok().flatten());
        Ok(DeviceSpreading {
            key: (!told.key.is_empty()).then(|| key_text(&told.key)),
            table: told.table,
            queues: told.queues,
            toeplitz: told.toeplitz,
            symmetry: told.symmetry,
            fields: Flow::ALL.map(fields).into(),
        })
    }

    /// Changes how the device spreads what it receives over its queues.
    ///
    /// # Errors
    /// `InvalidInput` for a queue that does not exist, or a table or a key of another length;
    /// `Unsupported` when the driver cannot.
    pub fn set_spreading(&self, device: &str, wanted: SetSpreading<'_>) -> io::Result<()> {
        let now = self.spreading_words(device)?;
        let mut request = spreading_request(&now, wanted).ok_or(io::ErrorKind::InvalidInput)?;
        self.ask(device, &mut request)
    }

    /// `struct ethtool_rxfh` of the device, with table and key.
    fn spreading_words(&self, device: &str) -> io::Result<Vec<u32>> {
        let mut sizes = vec![0; RXFH_WORDS];
        sizes[0] = ETHTOOL_GRSSH;
        self.ask(device, &mut sizes)?;
        let (table, key) = (sizes[2] as usize, sizes[3] as usize);
        let mut request = vec![0; RXFH_WORDS + table + key.div_ceil(4)];
        request[0] = ETHTOOL_GRSSH;
        request[2..4].copy_from_slice(&sizes[2..4]);
        self.ask(device, &mut request)?;
        Ok(request)
    }

    fn set<const WORDS: usize>(
        &self,
        device: &str,
        command: u32,
        mut request: [u32; WORDS],
    ) -> io::Result<()> {
        request[0] = command;
        self.ask(device, &mut request)
    }

    /// Asks for a structure of a fixed number of words.
    fn fixed<const WORDS: usize>(&self, device: &str, command: u32) -> io::Result<[u32; WORDS]> {
        let mut request = [0; WORDS];
        request[0] = command;
        self.ask(device, &mut request)?;
        Ok(request)
    }

    /// Switches a feature on or off, by the kernel's name of it.
    ///
    /// # Errors
    /// `Unsupported` when the device has none of this name or does not let it be changed; those of
    /// the ioctl.
    pub fn set_feature(&self, device: &str, feature: &str, on: bool) -> io::Result<()> {
        let (names, before) = self.feature_blocks(device)?;
        let place =
            names.iter().position(|name| name == feature).ok_or(io::ErrorKind::Unsupported)?;
        self.request_feature(device, names.len(), place, on)?;
        // What cannot be is no error of the ioctl.
        let (_, after) = self.feature_blocks(device)?;
        if bit(&after, ACTIVE, place) == on {
            return Ok(());
        }
        // The kernel remembers what was requested, and would switch it when it can one day.
        self.request_feature(device, names.len(), place, bit(&before, REQUESTED, place))?;
        Err(io::ErrorKind::Unsupported.into())
    }

    fn request_feature(
        &self,
        device: &str,
        count: usize,
        place: usize,
        on: bool,
    ) -> io::Result<()> {
        // Two words a block: which features are meant, and what they shall be.
        let blocks = count.div_ceil(32);
        let mut request = vec![0; 2 + blocks * 2];
        request[0] = ETHTOOL_SFEATURES;
        request[1] = blocks as u32;
        request[2 + place / 32 * 2] = 1 << (place % 32);
        request[2 + place / 32 * 2 + 1] = u32::from(on) << (place % 32);
        self.ask(device, &mut request)
    }

    /// What the driver counts, by its own names (`ethtool -S`).
    ///
    /// # Errors
    /// `Unsupported` when it counts nothing.
    pub fn statistics(&self, device: &str) -> io::Result<BTreeMap<String, u64>> {
        const ETHTOOL_GSTATS: u32 = 0x1d;
        const ETH_SS_STATS: u32 = 1;
        let mut request = vec![ETHTOOL_GSSET_INFO, 0, 0, 0, 0];
        set_u64(&mut request, 2, 1 << ETH_SS_STATS);
        self.ask(device, &mut request)?;
        // The bit is cleared where the driver has no such set.
        let count = if request[2] == 0 { 0 } else { request[4] as usize };
        if count == 0 {
            return Err(io::ErrorKind::Unsupported.into());
        }
        // The kernel asks the driver again how many there are, and writes as many, whatever the room: more
        // by now where queues were added. No driver has so many queues that they would not fit:
        // https://elixir.bootlin.com/linux/v6.12/source/net/ethtool/ioctl.c
        let room = (2 * count).max(MAX_STATISTICS);
        let mut names = vec![0; 3 + room * ETH_GSTRING_LEN / 4];
        names[..3].copy_from_slice(&[ETHTOOL_GSTRINGS, ETH_SS_STATS, count as u32]);
        self.ask(device, &mut names)?;
        let mut values = vec![0; 2 + 2 * room];
        values[..2].copy_from_slice(&[ETHTOOL_GSTATS, count as u32]);
        self.ask(device, &mut values)?;
        let known = count.min(names[2] as usize).min(values[1] as usize);
        let value = |place: usize| {
            let words = &values[2 + 2 * place..4 + 2 * place];
            let bytes: Vec<u8> = bytes(words);
            bytes.try_into().map_or(0, u64::from_ne_bytes)
        };
        Ok(bytes(&names[3..3 + known * ETH_GSTRING_LEN / 4])
            .chunks_exact(ETH_GSTRING_LEN)
            .enumerate()
            .map(|(place, name)| (text(name).trim().to_owned(), value(place)))
            .collect())
    }

    /// `request` starts with a command and is as long as the kernel takes it to be from what is in
    /// it; the answer is written over it.
    fn ask(&self, device: &str, request: &mut [u32]) -> io::Result<()> {
        // SAFETY: an all-zero ifreq is a valid one.
        let mut ifreq: libc::ifreq = unsafe { std::mem::zeroed() };
        // The last byte stays 0: a name ends there.
        if device.len() >= ifreq.ifr_name.len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        for (to, from) in ifreq.ifr_name.iter_mut().zip(device.bytes()) {
            *to = from as libc::c_char;
        }
        ifreq.ifr_ifru.ifru_data = request.as_mut_ptr().cast();
        // SAFETY: the descriptor and both structures are valid for the call. The kernel writes no
        // more than the command and the counts in the request say, and the callers above size it
        // by these.
        let result = unsafe { libc::ioctl(self.socket.as_raw_fd(), SIOCETHTOOL, &mut ifreq) };
        // What could not be done of a request for features is told by a positive number.
        if result >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

/// From `struct ethtool_ringparam`: the mini and jumbo rings that a few devices have are left out.
fn rings([_, rx_max, _, _, tx_max, rx, _, _, tx]: [u32; RING_WORDS]) -> Rings {
    Rings { rx, rx_max, tx, tx_max }
}

/// From `struct ethtool_coalesce`: what holds while an interrupt is handled, and at other packet rates,
/// is left out.
fn coalescing(words: [u32; COALESCE_WORDS]) -> Coalescing {
    Coalescing {
        adaptive_rx: words[10] != 0,
        adaptive_tx: words[11] != 0,
        rx_us: words[1],
        rx_frames: words[2],
        tx_us: words[5],
        tx_frames: words[6],
    }
}

/// From `struct ethtool_pauseparam`.
fn flow_control([_, negotiated, rx, tx]: [u32; PAUSE_WORDS]) -> FlowControl {
    FlowControl { negotiated: negotiated != 0, rx: rx != 0, tx: tx != 0 }
}

/// From `struct ethtool_channels`.
fn channels(words: [u32; CHANNELS_WORDS]) -> Channels {
    let [_, rx_max, tx_max, _, combined_max, rx, tx, _, combined] = words;
    Channels { rx, rx_max, tx, tx_max, combined, combined_max }
}

/// Words of each block of 32 features.
const AVAILABLE: usize = 0;
const REQUESTED: usize = 1;
const ACTIVE: usize = 2;
const NEVER_CHANGED: usize = 3;

fn bit(blocks: &[u32], word: usize, feature: usize) -> bool {
    blocks[feature / 32 * 4 + word] >> (feature % 32) & 1 == 1
}

fn put_rings(words: &mut [u32; RING_WORDS], wanted: Rings) {
    words[5] = wanted.rx;
    words[8] = wanted.tx;
}

fn put_coalescing(words: &mut [u32; COALESCE_WORDS], wanted: Coalescing) {
    words[1] = wanted.rx_us;
    words[2] = wanted.rx_frames;
    words[5] = wanted.tx_us;
    words[6] = wanted.tx_frames;
    words[10] = u32::from(wanted.adaptive_rx);
    words[11] = u32::from(wanted.adaptive_tx);
}

fn put_channels(words: &mut [u32; CHANNELS_WORDS], wanted: Channels) {
    words[5] = wanted.rx;
    words[6] = wanted.tx;
    words[8] = wanted.combined;
}

/// Table and key of `struct ethtool_rxfh`.
fn spreading_parts(words: &[u32]) -> Option<(Vec<u32>, Vec<u8>)> {
    let (entries, key) = (*words.get(2)? as usize, *words.get(3)? as usize);
    let table = words.get(RXFH_WORDS..RXFH_WORDS.checked_add(entries)?)?;
    let key = bytes(words.get(RXFH_WORDS + entries..)?).get(..key)?.to_vec();
    Some((table.to_vec(), key))
}

/// A request that changes one of the two. Hash function 0 means unchanged; the transformation of its
/// input, which has no such value in every kernel, is what the device told.
fn spreading_request(now: &[u32], wanted: SetSpreading<'_>) -> Option<Vec<u32>> {
    let (table, key) = spreading_parts(now)?;
    let mut request = vec![0; RXFH_WORDS];
    request[0] = ETHTOOL_SRSSH;
    let mut function_and_input = now.get(4)?.to_ne_bytes();
    function_and_input[0] = 0;
    request[4] = u32::from_ne_bytes(function_and_input);
    match wanted {
        SetSpreading::DefaultTable => {}
        SetSpreading::Table(wanted) => {
            if wanted.len() != table.len() {
                return None;
            }
            request[2] = wanted.len() as u32;
            request.extend(wanted);
        }
        SetSpreading::Key(wanted) => {
            if wanted.len() != key.len() {
                return None;
            }
            request[2] = TABLE_UNCHANGED;
            request[3] = wanted.len() as u32;
            // The key begins behind as many words as the table is said to have: none.
            let words = wanted.chunks(4).map(|chunk| {
                let mut word = [0; 4];
                word[..chunk.len()].copy_from_slice(chunk);
                u32::from_ne_bytes(word)
            });
            request.extend(words);
        }
    }
    Some(request)
}

fn words_of(words: &[u32], place: usize) -> [u8; 8] {
    let mut both = [0; 8];
    both[..4].copy_from_slice(&words[place].to_ne_bytes());
    both[4..].copy_from_slice(&words[place + 1].to_ne_bytes());
    both
}

/// `duplex`, the first byte behind command and speed: `DUPLEX_HALF` is 0, `DUPLEX_FULL` 1.
fn full_duplex(settings: &[u32]) -> Option<bool> {
    match settings.get(2)?.to_ne_bytes()[0] {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

/// `link_mode_masks_nwords`, a signed byte, from an answer to a question of the wrong size.
pub(crate) fn mask_words(settings: &[u32]) -> Option<u8> {
    let answer = i8::from_ne_bytes([bytes(settings)[MASK_WORDS_OFFSET]]);
    u8::try_from(-i16::from(answer)).ok().filter(|&words| words > 0)
}

fn set_mask_words(settings: &mut [u32], words: u8) {
    let mut word = settings[MASK_WORDS_OFFSET / 4].to_ne_bytes();
    word[MASK_WORDS_OFFSET % 4] = words;
    settings[MASK_WORDS_OFFSET / 4] = u32::from_ne_bytes(word);
}

/// Place of `link_mode_masks_nwords`: after command and speed (4 bytes each) come seven bytes: duplex, port, phy_address, autoneg,
/// mdio_support, eth_tp_mdix, eth_tp_mdix_ctrl.
const MASK_WORDS_OFFSET: usize = 15;

fn set_u64(words: &mut [u32], place: usize, value: u64) {
    let bytes = value.to_ne_bytes();
    words[place] = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    words[place + 1] = u32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
}

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Text up to the first zero byte.
pub(crate) fn text(field: &[u8]) -> String {
    let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Links;
    use crate::netns::{NetNs, NetNsGuard};
    use crate::privilege::skip_without_namespaces;

    #[test]
    fn a_pair_says_what_it_is() {
        if skip_without_namespaces("ethtool::a_pair_says_what_it_is") {
            return;
        }
        let name = format!("wirecost-test-{}-ethtool", std::process::id());
        let _guard = NetNsGuard::new(NetNs::create(&name).unwrap());
        let namespace = NetNs::open(&name).unwrap();
        Links::of(&namespace).unwrap().add_veth("eth0", "eth1", &namespace).unwrap();
        let ethtool = namespace.run(Ethtool::open).unwrap().unwrap();
        assert_eq!(ethtool.driver("eth0").unwrap().name, "veth");
        assert_eq!(ethtool.speed("eth0").unwrap(), 10_000_000_000);
        assert_eq!(ethtool.full_duplex("eth0").unwrap(), Some(true));
        let features = ethtool.features("eth0").unwrap();
        assert_eq!(features["tx-tcp-segmentation"], Feature { on: true, changeable: true });
        assert!(!features["rx-lro"].on);
        let channels = ethtool.channels("eth0").unwrap();
        assert!(channels.rx > 0 && channels.rx <= channels.rx_max);
        // A pair has no rings, and no wire to pause on.
        assert!(ethtool.flow_control("eth0").is_err());
        assert!(ethtool.rings("no-such-device").is_err());
        for on in [false, true] {
            ethtool.set_feature("eth0", "tx-tcp-segmentation", on).unwrap();
            assert_eq!(ethtool.features("eth0").unwrap()["tx-tcp-segmentation"].on, on);
        }
        let channels = ethtool.channels("eth0").unwrap();
        if channels.rx_max > 1 && channels.tx_max > 1 {
            ethtool.set_channels("eth0", Channels { rx: 2, tx: 2, ..channels }).unwrap();
            let now = ethtool.channels("eth0").unwrap();
            assert_eq!((now.rx, now.tx), (2, 2));
            let index =
                namespace.run(|| Links::here().unwrap().get("eth0").unwrap().index).unwrap();
            let (mode, longest) = (crate::xdp::Mode::Generic, 1514);
            let setup = crate::xdp::Setup { device: index, queue: 1, mode, longest, sends: false };
            let frames = namespace.run(|| crate::xdp::FrameSocket::open(&setup).unwrap()).unwrap();
            let one = Channels { rx: 1, tx: 1, ..channels };
            ethtool.set_channels("eth0", one).unwrap_err();
            drop(frames);
            ethtool.set_channels("eth0", one).unwrap();
            let beyond = Channels { rx: channels.rx_max + 1, ..channels };
            assert!(ethtool.set_channels("eth0", beyond).is_err());
        }
        assert!(ethtool.spreading("eth0").is_err());
        assert!(ethtool.set_feature("eth0", "no-such-feature", true).is_err());
        // It needs checksums. That it was wanted without them is forgotten.
        let on = |feature: &str| ethtool.features("eth0").unwrap()[feature].on;
        ethtool.set_feature("eth0", "tx-tcp-segmentation", false).unwrap();
        ethtool.set_feature("eth0", "tx-checksum-ip-generic", false).unwrap();
        assert!(ethtool.set_feature("eth0", "tx-tcp-segmentation", true).is_err());
        ethtool.set_feature("eth0", "tx-checksum-ip-generic", true).unwrap();
        assert!(!on("tx-tcp-segmentation") && on("tx-tcp6-segmentation"));
        let statistics = ethtool.statistics("eth0").unwrap();
        // veth has at least the number of its peer.
        assert!(statistics["peer_ifindex"] > 0, "{statistics:?}");
        assert!(ethtool.statistics("lo").is_err());
        assert!(ethtool.speed("lo").is_err());
        assert!(ethtool.features("no-such-device").is_err());
        assert!(ethtool.features("a-name-that-is-longer-than-a-device-may-have").is_err());
    }

    /// Answers of a network card, as a driver of such (here ixgbe's) fills the structures in.
    #[test]
    fn a_card_says_what_a_virtual_device_does_not() {
        let answer = [ETHTOOL_GRINGPARAM, 8192, 0, 0, 8192, 512, 0, 0, 1024];
        assert_eq!(rings(answer), Rings { rx: 512, rx_max: 8192, tx: 1024, tx_max: 8192 });
        let mut answer = [0; COALESCE_WORDS];
        let [usecs, frames, irq_usecs, irq_frames] = [20, 64, 7, 8];
        answer[..12].copy_from_slice(&[
            ETHTOOL_GCOALESCE,
            usecs,
            frames,
            irq_usecs,
            irq_frames,
            40,
            256,
            9,
            10,
            1_000_000,
            1,
            0,
        ]);
        let expected = Coalescing {
            adaptive_rx: true,
            adaptive_tx: false,
            rx_us: 20,
            rx_frames: 64,
            tx_us: 40,
            tx_frames: 256,
        };
        assert_eq!(coalescing(answer), expected);
        let expected = FlowControl { negotiated: true, rx: false, tx: true };
        assert_eq!(flow_control([ETHTOOL_GPAUSEPARAM, 1, 0, 1]), expected);
        let answer = [ETHTOOL_GCHANNELS, 16, 8, 1, 63, 4, 2, 1, 12];
        let expected =
            Channels { rx: 4, rx_max: 16, tx: 2, tx_max: 8, combined: 12, combined_max: 63 };
        assert_eq!(channels(answer), expected);
    }

    #[test]
    fn duplex_is_known_or_not() {
        let settings = |duplex| [ETHTOOL_GLINKSETTINGS, 100, u32::from_ne_bytes([duplex, 9, 9, 9])];
        let all = [0, 1, 0xff].map(|duplex| full_duplex(&settings(duplex)));
        assert_eq!(all, [Some(false), Some(true), None]);
    }

    #[test]
    fn what_is_put_into_a_structure_is_read_from_it_and_nothing_else_changes() {
        let mut words = [7; RING_WORDS];
        let wanted = Rings { rx: 1, rx_max: 7, tx: 2, tx_max: 7 };
        put_rings(&mut words, wanted);
        assert_eq!(rings(words), wanted);
        assert_eq!(words.iter().filter(|&&word| word == 7).count(), RING_WORDS - 2);
        let mut words = [7; COALESCE_WORDS];
        let wanted = Coalescing {
            adaptive_rx: true,
            adaptive_tx: false,
            rx_us: 20,
            rx_frames: 21,
            tx_us: 22,
            tx_frames: 23,
        };
        put_coalescing(&mut words, wanted);
        assert_eq!(coalescing(words), wanted);
        assert_eq!(words.iter().filter(|&&word| word == 7).count(), COALESCE_WORDS - 6);
        let mut words = [7; CHANNELS_WORDS];
        let wanted = Channels { rx: 1, rx_max: 7, tx: 2, tx_max: 7, combined: 3, combined_max: 7 };
        put_channels(&mut words, wanted);
        assert_eq!(channels(words), wanted);
        assert_eq!(words.iter().filter(|&&word| word == 7).count(), CHANNELS_WORDS - 3);
    }

    #[test]
    fn spreading_is_read_and_one_part_of_it_is_changed() {
        let function = u32::from_ne_bytes([1, 2, 0, 0]);
        let mut now = vec![ETHTOOL_GRSSH, 0, 4, 6, function, 0, 0, 1, 0, 1];
        now.extend([u32::from_ne_bytes([1, 2, 3, 4]), u32::from_ne_bytes([5, 6, 0, 0])]);
        let expected = (vec![0, 1, 0, 1], vec![1, 2, 3, 4, 5, 6]);
        assert_eq!(spreading_parts(&now), Some(expected));
        let input = u32::from_ne_bytes([0, 2, 0, 0]);
        let table = spreading_request(&now, SetSpreading::Table(&[1, 1, 0, 0])).unwrap();
        assert_eq!(table, [ETHTOOL_SRSSH, 0, 4, 0, input, 0, 1, 1, 0, 0]);
        let default = spreading_request(&now, SetSpreading::DefaultTable).unwrap();
        assert_eq!(default, [ETHTOOL_SRSSH, 0, 0, 0, input, 0]);
        let key = spreading_request(&now, SetSpreading::Key(&[9, 8, 7, 6, 5, 4])).unwrap();
        assert_eq!(key[..6], [ETHTOOL_SRSSH, 0, TABLE_UNCHANGED, 6, input, 0]);
        assert_eq!(bytes(&key[6..]), [9, 8, 7, 6, 5, 4, 0, 0]);
        assert!(spreading_request(&now, SetSpreading::Table(&[1])).is_none());
        assert!(spreading_request(&now, SetSpreading::Key(&[1])).is_none());
    }
}
