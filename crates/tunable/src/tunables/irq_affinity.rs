//! CPUs that handle the interrupts of a device.

use wirecost_linux::interrupts;

use super::{Scope, Tunable};
use crate::parts;
use crate::target::{Refusal, Target};
use crate::values;

#[derive(Debug)]
struct IrqAffinity;

pub(super) const LIST: &[&dyn Tunable] = &[&IrqAffinity];

/// The device's interrupts that have a setting.
fn irqs(target: &Target) -> Result<Vec<String>, Refusal> {
    let place = target.bus()?;
    let device = interrupts::on_a_bus(target.root(), &place);
    let irqs = device.map(|path| interrupts::of_bus_device(&path)).unwrap_or_default();
    let irqs: Vec<String> =
        irqs.iter().map(u32::to_string).filter(|irq| target.file(path(irq)).exists()).collect();
    if irqs.is_empty() {
        return Err(Refusal::Unsupported(format!("the device at {place} has no interrupts")));
    }
    Ok(irqs)
}

fn path(irq: &str) -> String {
    format!("proc/irq/{irq}/smp_affinity_list")
}

impl Tunable for IrqAffinity {
    fn name(&self) -> &'static str {
        "irq_affinity"
    }

    fn about(&self) -> &'static str {
        "CPUs that may handle the interrupts of the device."
    }

    fn scope(&self) -> Scope {
        Scope::Bus
    }

    fn values(&self) -> String {
        "a list of CPUs such as 0-3,8".to_owned()
    }

    fn check(&self, value: &str) -> Option<String> {
        parts::check(value, values::cpus)
    }

    fn read(&self, target: &Target) -> Result<String, Refusal> {
        let values: Result<Vec<_>, Refusal> = irqs(target)?
            .into_iter()
            .map(|irq| {
                let text = target.read_file(&path(&irq))?;
                let cpus = values::cpus(&text)
                    .ok_or_else(|| Refusal::Unsupported(format!("`{text}` is no list of CPUs")))?;
                Ok((irq, cpus))
            })
            .collect();
        Ok(parts::join(&values?))
    }

    fn write(&self, target: &Target, value: &str) -> Result<(), Refusal> {
        for (irq, cpus) in parts::spread(value, &irqs(target)?) {
            target.write_file(&path(&irq), &cpus)?;
        }
        Ok(())
    }
}
