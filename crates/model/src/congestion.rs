//! Congestion control in BPF programs: names, and objects of the user's.
//!
//! The kernel has one list of names for all network namespaces, and hosts of a lab share it: each process loads its
//! programs under names of its own, made of what the profile calls them and random digits.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// BIC as a BPF program that comes with wirecost, as profiles name it (`cc=bpf-bic`).
pub const BPF_BIC: &str = "bpf-bic";

/// On an axis of a study: every congestion control that its hosts offer.
pub const AVAILABLE: &str = "available";

/// Bytes of a name: `TCP_CA_NAME_MAX` (<https://elixir.bootlin.com/linux/v6.12/source/include/net/tcp.h>), with the 0.
pub const NAME_SIZE: usize = 16;
/// Bytes of a name that are kept in the kernel's.
const PREFIX: usize = 7;
/// Random digits after the prefix and a dot.
pub const RANDOM: usize = NAME_SIZE - 1 - PREFIX - 1;

const DIGITS: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";

/// Congestion control of the user's, on its way to a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CongestionObject {
    /// As profiles name it in `cc=`.
    pub name: String,
    /// The file, as clang made it.
    #[serde(serialize_with = "encode", deserialize_with = "decode")]
    pub object: Vec<u8>,
}

fn encode<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&BASE64.encode(bytes))
}

fn decode<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(from)?;
    BASE64.decode(text).map_err(serde::de::Error::custom)
}

/// What a process calls its program in the kernel.
#[must_use]
pub fn kernel_name(name: &str, random: [u8; RANDOM]) -> String {
    let digits = random.iter().map(|byte| char::from(DIGITS[usize::from(byte % 32)]));
    format!("{}.{}", prefix(name), digits.collect::<String>())
}

/// What [`kernel_name`] keeps of a name. Names of one run differ in it. The kernel takes letters, digits, `_` and `.`
/// (<https://elixir.bootlin.com/linux/v6.12/source/kernel/bpf/syscall.c>, `bpf_obj_name_cpy`).
#[must_use]
pub fn prefix(name: &str) -> String {
    let kept = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '_' };
    name.chars().take(PREFIX).map(kept).collect()
}

/// Whether a process has made the kernel's name of this one.
#[must_use]
pub fn is_of(kernel_name: &str, name: &str) -> bool {
    is_temporary(kernel_name)
        && kernel_name.len() == prefix(name).len() + 1 + RANDOM
        && kernel_name.starts_with(&prefix(name))
}

/// Whether a process has made the kernel's name of some name: it goes with the process.
#[must_use]
pub fn is_temporary(kernel_name: &str) -> bool {
    kernel_name.rsplit_once('.').is_some_and(|(start, random)| {
        !start.is_empty()
            && start.len() <= PREFIX
            && random.len() == RANDOM
            && random.bytes().all(|byte| DIGITS.contains(&byte))
    })
}

/// A name as profiles may write it.
///
/// # Errors
/// What is wrong with it.
pub fn check_name(name: &str) -> Result<(), String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.".contains(&byte);
    if name.is_empty() || name.len() >= NAME_SIZE || !name.bytes().all(is_plain) {
        return Err(format!(
            "its name {name:?} is not 1 to {} letters, digits, dots or underscores",
            NAME_SIZE - 1
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_kernel_fit_and_are_recognized() {
        for name in [BPF_BIC, "x", "fifteen_letters"] {
            let made = kernel_name(name, [0, 1, 31, 32, 255, 7, 9]);
            assert!(made.len() < NAME_SIZE && made.ends_with(".01v0v79"), "{made}");
            assert!(is_of(&made, name) && is_temporary(&made) && check_name(&made).is_ok());
            assert!(!is_of(&made, "y") && !is_of(name, name));
        }
        assert!(!is_of("bpf_bic.0a1b2c", BPF_BIC) && !is_of("bpf_bic.0a1b2cz", BPF_BIC));
        for other in ["cubic", "bpf_cubic", "my.algorithm", ".0a1b2c3"] {
            assert!(!is_temporary(other), "{other}");
        }
    }

    #[test]
    fn names_that_a_kernel_or_a_terminal_would_not_take_are_refused() {
        for bad in ["", "sixteen_letters_", "a b", "a-b", "a\u{1b}[1m", "a/b", "b\u{e9}"] {
            assert!(check_name(bad).is_err(), "{bad:?}");
        }
        assert!(check_name("my_cc1.0").is_ok());
    }

    #[test]
    fn objects_survive_the_wire() {
        let object = CongestionObject { name: "mine".to_owned(), object: vec![0, 255, 7] };
        let text = serde_json::to_string(&object).unwrap();
        assert_eq!(serde_json::from_str::<CongestionObject>(&text).unwrap(), object);
        assert!(serde_json::from_str::<CongestionObject>(r#"{"name":"x","object":"?"}"#).is_err());
    }
}
