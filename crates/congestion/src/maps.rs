//! Memory that the maps of an object may take.

use libbpf_rs::{MapType, OpenObject, num_possible_cpus};

/// Bytes of all maps of an object of the user's: an agent holds them for whoever gave it the object.
pub(crate) const MOST: u64 = 64 << 20;
/// What the kernel adds to an entry at least: `struct htab_elem` and its bucket
/// (<https://elixir.bootlin.com/linux/v6.12/source/kernel/bpf/hashtab.c>).
const OF_ENTRY: u64 = 64;

/// A map as an object describes it.
#[derive(Debug, Clone, Copy)]
struct Shape {
    kind: MapType,
    entries: u32,
    key: u32,
    value: u32,
}

/// # Errors
/// Maps that are too large together, or that may become so later.
pub(crate) fn check(open: &OpenObject) -> Result<(), String> {
    let cpus = num_possible_cpus().unwrap_or(1) as u64;
    let maps = open.maps().map(|map| {
        let (kind, entries) = (map.map_type(), map.max_entries());
        let shape = Shape { kind, entries, key: map.key_size(), value: map.value_size() };
        (map.name().to_string_lossy().into_owned(), shape)
    });
    check_shapes(maps, cpus)
}

fn check_shapes(maps: impl Iterator<Item = (String, Shape)>, cpus: u64) -> Result<(), String> {
    let mut sum = 0u64;
    for (name, shape) in maps {
        let bytes = bytes(shape, cpus).ok_or_else(|| {
            let kind = shape.kind;
            format!("its map {name} is of type {kind:?}, whose size is not known when it is loaded")
        })?;
        sum = sum.saturating_add(bytes);
    }
    let (has, most) = (sum.div_ceil(1 << 20), MOST >> 20);
    match sum > MOST {
        true => Err(format!("its maps take {has} MiB; the limit is {most} MiB: lower max_entries")),
        false => Ok(()),
    }
}

/// `None` for a type whose memory does not follow from its shape: it has other maps, or grows with sockets and tasks.
fn bytes(Shape { kind, entries, key, value }: Shape, cpus: u64) -> Option<u64> {
    let copies = match kind {
        MapType::PercpuArray | MapType::PercpuHash | MapType::LruPercpuHash => cpus,
        MapType::Array
        | MapType::Hash
        | MapType::LruHash
        | MapType::LpmTrie
        | MapType::Queue
        | MapType::Stack
        | MapType::StructOps => 1,
        // Its entries are bytes.
        MapType::RingBuf | MapType::UserRingBuf => return Some(entries.into()),
        // An entry for each connection, which has far more memory itself.
        MapType::SkStorage => 1,
        _ => return None,
    };
    let entry = OF_ENTRY + u64::from(key) + u64::from(value).saturating_mul(copies);
    Some(entry.saturating_mul(entries.max(1).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_all(shapes: &[Shape]) -> Result<(), String> {
        check_shapes(shapes.iter().map(|&shape| ("m".to_owned(), shape)), 4)
    }

    #[test]
    fn maps_are_bounded_together() {
        let shape = |kind, entries, value| Shape { kind, entries, key: 4, value };
        let half = shape(MapType::RingBuf, 32 << 20, 0);
        assert_eq!(check_all(&[half, half]), Ok(()));
        let refused = |shapes: &[Shape]| check_all(shapes).unwrap_err();
        let small = shape(MapType::Array, 1, 4);
        assert!(refused(&[half, half, small]).starts_with("its maps take 65 MiB"));
        // Of a value on four CPUs there are four.
        let large = |kind| shape(kind, 1000, 20_000);
        assert_eq!(check_all(&[large(MapType::Hash)]), Ok(()));
        assert!(refused(&[large(MapType::PercpuHash)]).contains("77 MiB"));
        // Small entries cost as much as the kernel adds to them.
        assert!(refused(&[shape(MapType::Hash, 8 << 20, 1)]).contains("lower max_entries"));
        let greatest = Shape { kind: MapType::Array, entries: u32::MAX, key: 4, value: u32::MAX };
        assert!(refused(&[greatest, greatest]).contains("the limit is 64 MiB"));
    }

    #[test]
    fn maps_of_unknown_size_are_refused() {
        for kind in [MapType::HashOfMaps, MapType::ArrayOfMaps, MapType::TaskStorage] {
            let error = check_all(&[Shape { kind, entries: 1, key: 4, value: 4 }]).unwrap_err();
            assert!(error.contains("whose size is not known"), "{error}");
        }
    }
}
