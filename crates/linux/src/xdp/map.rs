//! A BPF map by its descriptor alone, as a thread with a descriptor table of its own has it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Of `enum bpf_cmd` in <https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/bpf.h>.
const BPF_MAP_UPDATE_ELEM: libc::c_long = 2;
const BPF_MAP_DELETE_ELEM: libc::c_long = 3;
const BPF_OBJ_GET_INFO_BY_FD: libc::c_long = 15;

/// The part of `union bpf_attr` that commands on elements read.
#[repr(C)]
struct Element {
    map: u32,
    unused: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// The part of `union bpf_attr` that `BPF_OBJ_GET_INFO_BY_FD` reads.
#[repr(C)]
struct GetInfo {
    object: u32,
    length: u32,
    info: u64,
}

/// The beginning of `struct bpf_map_info`.
#[repr(C)]
#[derive(Default)]
struct Info {
    kind: u32,
    number: u32,
    key_size: u32,
    value_size: u32,
}

/// Of `enum bpf_map_type`: kinds of maps whose values are no arrays by CPU, as `value_size` bytes of each are read.
const KINDS: [u32; 2] = [1 /* BPF_MAP_TYPE_HASH */, 17 /* BPF_MAP_TYPE_XSKMAP */];

/// A hash map or a map of AF_XDP sockets.
#[derive(Debug)]
pub struct Map {
    map: OwnedFd,
    key_size: usize,
    value_size: usize,
}

impl Map {
    /// # Errors
    /// `InvalidInput` where the descriptor is not one of such a map; those of bpf(2).
    pub fn new(map: OwnedFd) -> io::Result<Self> {
        let mut info = Info::default();
        let get = GetInfo {
            object: raw(&map),
            length: size_of::<Info>() as u32,
            info: (&raw mut info) as u64,
        };
        // SAFETY: the kernel writes at most `length` bytes to `info`.
        unsafe { bpf(BPF_OBJ_GET_INFO_BY_FD, &get) }?;
        let (key_size, value_size) = (info.key_size as usize, info.value_size as usize);
        let is_map = std::fs::read_link(format!("/proc/thread-self/fd/{}", raw(&map)))
            .is_ok_and(|name| name.as_os_str() == "anon_inode:bpf-map");
        if !is_map || !KINDS.contains(&info.kind) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(Self { map, key_size, value_size })
    }

    /// Makes or replaces an element.
    ///
    /// # Errors
    /// `InvalidInput` for a key or value of another length; those of bpf(2).
    pub fn update(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        if value.len() != self.value_size {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.change(BPF_MAP_UPDATE_ELEM, key, value)
    }

    /// # Errors
    /// `NotFound` where there is none; `InvalidInput` for a key of another length.
    pub fn delete(&self, key: &[u8]) -> io::Result<()> {
        self.change(BPF_MAP_DELETE_ELEM, key, &[])
    }

    fn change(&self, command: libc::c_long, key: &[u8], value: &[u8]) -> io::Result<()> {
        if key.len() != self.key_size {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let element = Element {
            map: raw(&self.map),
            unused: 0,
            key: key.as_ptr() as u64,
            value: if value.is_empty() { 0 } else { value.as_ptr() as u64 },
            flags: 0,
        };
        // SAFETY: the kernel reads a key and a value of the map's sizes, which these have.
        unsafe { bpf(command, &element) }
    }
}

impl AsFd for Map {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }
}

fn raw(descriptor: &OwnedFd) -> u32 {
    descriptor.as_raw_fd().cast_unsigned()
}

/// # Safety
/// The addresses in the attributes are those of memory that the kernel may read or write as the command does.
unsafe fn bpf<T>(command: libc::c_long, attributes: &T) -> io::Result<()> {
    // SAFETY: the kernel reads as many bytes as it is told, and takes the rest of the union as zero. The caller vouches
    // for the addresses in them.
    let done = unsafe {
        libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<T>())
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
