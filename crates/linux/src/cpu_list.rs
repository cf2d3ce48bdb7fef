//! The two ways in which the kernel writes sets of CPUs: lists (`0-3,8`) and masks (`ff,00000001`).

use wirecost_model::plan::limits::CPUS;

/// CPUs of a list such as `0-3,8`, ascending as written; `None` when it is not one, or has more or
/// higher numbers than any machine ([`CPUS`]). An empty list is a list of no CPUs.
#[must_use]
pub fn parse_list(text: &str) -> Option<Vec<u32>> {
    let text = text.trim();
    if text.is_empty() {
        return Some(Vec::new());
    }
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if last >= CPUS || cpus.len() > CPUS as usize {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

/// A list as the kernel writes it: ascending, neighbours as ranges.
#[must_use]
pub fn format_list(cpus: &[u32]) -> String {
    let mut cpus = cpus.to_vec();
    cpus.sort_unstable();
    cpus.dedup();
    let mut parts = Vec::new();
    for neighbours in cpus.chunk_by(|one, next| one + 1 == *next) {
        match neighbours {
            [only] => parts.push(only.to_string()),
            [first, .., last] => parts.push(format!("{first}-{last}")),
            [] => {}
        }
    }
    parts.join(",")
}

/// CPUs of a mask: hexadecimal words of 32 bits, the highest first, as `bitmap_parse` of the kernel
/// reads them: <https://elixir.bootlin.com/linux/v6.12/source/lib/bitmap-str.c>.
#[must_use]
pub fn parse_mask(text: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for (place, word) in text.trim().rsplit(',').enumerate() {
        let bits = u32::from_str_radix(word, 16).ok()?;
        let first = u32::try_from(place).ok()?.checked_mul(32)?;
        cpus.extend((0..32).filter(|bit| bits >> bit & 1 == 1).map(|bit| first + bit));
    }
    Some(cpus)
}

/// Mask of a set of CPUs, as [`parse_mask`] reads it.
#[must_use]
pub fn format_mask(cpus: &[u32]) -> String {
    let words = cpus.iter().max().map_or(1, |highest| highest / 32 + 1);
    let word = |place: u32| {
        cpus.iter()
            .filter(|&&cpu| cpu / 32 == place)
            .fold(0_u32, |bits, cpu| bits | 1 << (cpu % 32))
    };
    (0..words).rev().map(|place| format!("{:08x}", word(place))).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists() {
        assert_eq!(parse_list("0-3,8\n"), Some(vec![0, 1, 2, 3, 8]));
        assert_eq!(parse_list("\n"), Some(vec![]));
        assert_eq!(parse_list("0-x"), None);
        assert_eq!(parse_list("0-500000000"), None);
        assert_eq!(parse_list("8191,8192"), None);
        assert_eq!(parse_list(&["0-8191"; 1 << 16].join(",")), None);
    }

    #[test]
    fn lists_are_written_as_the_kernel_does() {
        for (cpus, text) in [(vec![], ""), (vec![3], "3"), (vec![8, 1, 0, 2, 2], "0-2,8")] {
            assert_eq!(format_list(&cpus), text);
        }
    }

    #[test]
    fn masks_are_read_as_they_are_written() {
        for cpus in [vec![], vec![0], vec![1], vec![0, 31, 32, 95], vec![64]] {
            assert_eq!(parse_mask(&format_mask(&cpus)), Some(cpus));
        }
        assert_eq!(format_mask(&[0, 33]), "00000002,00000001");
        assert_eq!(parse_mask("3\n"), Some(vec![0, 1]));
        assert_eq!(parse_mask("zz"), None);
    }
}
