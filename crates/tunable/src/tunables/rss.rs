//! Receive side scaling: how a device spreads what it receives over its queues
//! (<https://docs.kernel.org/networking/scaling.html#rss-receive-side-scaling>).

use wirecost_linux::ethtool::{SetSpreading, Spreading};
use wirecost_model::rss::{EQUAL, key_text, table_text};

use super::{Scope, Tunable};
use crate::target::{Refusal, Target};
use crate::values;

#[derive(Debug)]
struct Table;

#[derive(Debug)]
struct Key;

pub(super) const LIST: &[&dyn Tunable] = &[&Table, &Key];

fn spreading(target: &Target) -> Result<Spreading, Refusal> {
    let (ethtool, device) = target.ethtool()?;
    let told = ethtool
        .spreading(device)
        .map_err(Refusal::of_driver(device, "tell how it spreads packets"))?;
    if told.table.is_empty() {
        return Err(Refusal::Unsupported(format!("`{device}` has no table of queues")));
    }
    Ok(told)
}

fn set(target: &Target, wanted: SetSpreading<'_>) -> Result<(), Refusal> {
    let (ethtool, device) = target.ethtool()?;
    ethtool
        .set_spreading(device, wanted)
        .map_err(Refusal::of_driver(device, "set how it spreads packets"))
}

impl Tunable for Table {
    fn name(&self) -> &'static str {
        "rss.table"
    }

    fn about(&self) -> &'static str {
        "RSS indirection table: hash of a received packet to queue."
    }

    fn scope(&self) -> Scope {
        Scope::Device
    }

    fn values(&self) -> String {
        "`equal N` (over the first N queues), or the queue of each entry, separated by commas"
            .to_owned()
    }

    fn check(&self, value: &str) -> Option<String> {
        if let Some(queues) = value.strip_prefix(EQUAL) {
            return values::number(queues.trim(), 1, u64::from(u32::MAX))
                .map(|n| format!("{EQUAL}{n}"));
        }
        let table: Option<Vec<u32>> =
            value.split(',').map(|queue| queue.trim().parse().ok()).collect();
        table.filter(|table| table.len() > 1).map(|table| table_text(&table))
    }

    fn read(&self, target: &Target) -> Result<String, Refusal> {
        spreading(target).map(|told| table_text(&told.table))
    }

    fn write(&self, target: &Target, value: &str) -> Result<(), Refusal> {
        let now = spreading(target)?;
        if let Some(queues) = value.strip_prefix(EQUAL) {
            let queues: u32 = values::parsed(queues)?;
            // The driver's own table follows the number of queues later on, one that was set does not:
            // https://elixir.bootlin.com/linux/v6.12/source/include/linux/ethtool.h (ethtool_rxfh_indir_default)
            if queues == now.queues {
                return set(target, SetSpreading::DefaultTable);
            }
            let table: Vec<u32> =
                (0..now.table.len() as u32).map(|entry| entry % queues.max(1)).collect();
            return set(target, SetSpreading::Table(&table));
        }
        let table: Result<Vec<u32>, Refusal> = value.split(',').map(values::parsed).collect();
        let table = table?;
        if table.len() != now.table.len() {
            let why = format!("the table has {} entries, not {}", now.table.len(), table.len());
            return Err(Refusal::Unsupported(why));
        }
        set(target, SetSpreading::Table(&table))
    }
}

impl Tunable for Key {
    fn name(&self) -> &'static str {
        "rss.key"
    }

    fn about(&self) -> &'static str {
        "RSS hash key."
    }

    fn scope(&self) -> Scope {
        Scope::Device
    }

    fn values(&self) -> String {
        "bytes in hexadecimal, separated by colons".to_owned()
    }

    fn check(&self, value: &str) -> Option<String> {
        bytes(value).map(|key| key_text(&key))
    }

    fn read(&self, target: &Target) -> Result<String, Refusal> {
        let told = spreading(target)?;
        if told.key.is_empty() {
            return Err(Refusal::Unsupported(format!(
                "the driver of `{}` tells no key",
                target.device()?
            )));
        }
        Ok(key_text(&told.key))
    }

    fn write(&self, target: &Target, value: &str) -> Result<(), Refusal> {
        let length = spreading(target)?.key.len();
        let key = bytes(value).filter(|key| key.len() == length);
        let key = key.ok_or_else(|| Refusal::Unsupported(format!("the key has {length} bytes")))?;
        set(target, SetSpreading::Key(&key))
    }
}

fn bytes(key: &str) -> Option<Vec<u8>> {
    key.split(':')
        .map(|byte| u8::from_str_radix(byte, 16).ok().filter(|_| byte.len() == 2))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_spreads_equally_is_told_so() {
        assert_eq!(table_text(&[0, 1, 0, 1]), "equal 2");
        assert_eq!(table_text(&[0, 0, 0, 0]), "equal 1");
        assert_eq!(table_text(&[0, 1, 2, 0]), "equal 3");
        assert_eq!(table_text(&[1, 1, 0, 0]), "1,1,0,0");
        for value in ["equal 2", "1,1,0,0"] {
            assert_eq!(Table.check(value).as_deref(), Some(value));
        }
        assert_eq!(Table.check("0, 1, 0, 1").as_deref(), Some("equal 2"));
        assert_eq!(Table.check("equal 0"), None);
        assert_eq!(Table.check("even"), None);
    }

    #[test]
    fn a_key_is_bytes_in_hexadecimal() {
        assert_eq!(Key.check("6D:5a:00").as_deref(), Some("6d:5a:00"));
        assert_eq!(Key.check("6d5a"), None);
        assert_eq!(Key.check("6d:5"), None);
    }
}
