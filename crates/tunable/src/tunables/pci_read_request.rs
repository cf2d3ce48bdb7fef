//! How much a PCI Express device may read from memory at once.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;

use super::{Scope, Tunable};
use crate::target::{Refusal, Target};

#[derive(Debug)]
struct MaxReadRequest;

pub(super) const LIST: &[&dyn Tunable] = &[&MaxReadRequest];

// <https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/pci_regs.h>.
const PCI_STATUS: usize = 0x06;
const PCI_STATUS_CAP_LIST: u8 = 0x10;
const PCI_CAPABILITY_LIST: usize = 0x34;
const PCI_CAP_ID_EXP: u8 = 0x10;
const PCI_EXP_DEVCTL: usize = 0x08;
const READ_REQUEST_SHIFT: u16 = 12;
const READ_REQUEST_MASK: u16 = 0x7000;
/// Of the value 0; each next one is twice as large.
const LEAST: u32 = 128;
const MOST: u32 = 4096;
/// The part of the configuration in which capabilities are.
const BYTES: usize = 256;
/// There is no room for more capabilities.
const MOST_CAPABILITIES: usize = 48;

fn path(target: &Target) -> Result<String, Refusal> {
    Ok(format!("sys/bus/pci/devices/{}/config", target.bus()?))
}

/// The register Device Control: where it is and what is in it.
fn control(target: &Target, file: &File) -> Result<(usize, u16), Refusal> {
    let mut config = [0; BYTES];
    let read =
        file.read_at(&mut config, 0).map_err(Refusal::failed("read the PCI configuration"))?;
    let register = device_control(&config[..read]).ok_or_else(|| {
        let device = target.device_name().unwrap_or("it");
        Refusal::Unsupported(format!("`{device}` is no PCI Express device"))
    })?;
    Ok((register, u16::from_le_bytes([config[register], config[register + 1]])))
}

/// Offset of the register.
fn device_control(config: &[u8]) -> Option<usize> {
    if config.get(PCI_STATUS)? & PCI_STATUS_CAP_LIST == 0 {
        return None;
    }
    let mut place = usize::from(*config.get(PCI_CAPABILITY_LIST)?) & !3;
    for _ in 0..MOST_CAPABILITIES {
        if place < 0x40 {
            return None;
        }
        if *config.get(place)? == PCI_CAP_ID_EXP {
            let register = place + PCI_EXP_DEVCTL;
            return (register + 1 < config.len()).then_some(register);
        }
        place = usize::from(*config.get(place + 1)?) & !3;
    }
    None
}

impl Tunable for MaxReadRequest {
    fn name(&self) -> &'static str {
        "pci.max-read-request"
    }

    fn about(&self) -> &'static str {
        "Bytes that the device may read from memory in one request."
    }

    fn scope(&self) -> Scope {
        Scope::Bus
    }

    fn values(&self) -> String {
        "128, 256, 512, 1024, 2048 or 4096".to_owned()
    }

    fn check(&self, value: &str) -> Option<String> {
        let bytes: u32 = value.parse().ok()?;
        ((LEAST..=MOST).contains(&bytes) && bytes.is_power_of_two()).then(|| bytes.to_string())
    }

    fn support(&self, target: &Target) -> Result<(), Refusal> {
        target.check_pci_allowed()?;
        self.read(target).map(drop)
    }

    fn read(&self, target: &Target) -> Result<String, Refusal> {
        let path = path(target)?;
        let file =
            File::open(target.file(&path)).map_err(Refusal::failed(format!("open /{path}")))?;
        let (_, value) = control(target, &file)?;
        let exponent = u32::from((value & READ_REQUEST_MASK) >> READ_REQUEST_SHIFT);
        Ok((LEAST << exponent).to_string())
    }

    fn write(&self, target: &Target, value: &str) -> Result<(), Refusal> {
        target.check_pci_allowed()?;
        let bytes: u32 = crate::values::parsed(value)?;
        let path = path(target)?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(target.file(&path))
            .map_err(Refusal::failed(format!("open /{path}")))?;
        let (register, before) = control(target, &file)?;
        let exponent = (bytes / LEAST).trailing_zeros() as u16;
        let after = before & !READ_REQUEST_MASK | exponent << READ_REQUEST_SHIFT;
        file.write_all_at(&after.to_le_bytes(), register as u64)
            .map_err(Refusal::failed("write the PCI configuration"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_register_is_found_in_the_list_of_capabilities() {
        let mut config = vec![0; BYTES];
        config[PCI_STATUS] = PCI_STATUS_CAP_LIST;
        config[PCI_CAPABILITY_LIST] = 0x40;
        config[0x40] = 0x05;
        config[0x41] = 0x80;
        config[0x80] = PCI_CAP_ID_EXP;
        assert_eq!(device_control(&config), Some(0x88));
        config[0x80] = 0x11;
        assert_eq!(device_control(&config), None, "there is none");
        config[0x81] = 0x40;
        assert_eq!(device_control(&config), None, "the list is a circle");
        config[PCI_STATUS] = 0;
        assert_eq!(device_control(&config), None);
        assert_eq!(device_control(&[]), None);
    }
}
