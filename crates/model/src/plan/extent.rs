//! What later orders of a run may refer to, and how much a phase may read.

use std::collections::BTreeMap;

use super::limits::{
    ADDRESSES, CONSENTS, CUT_NUMBERS, FILE_BYTES, FILES, HOSTS, SERIES, SERVICES, STRANDS, TEXT,
};
use super::{Address, Endpoints, LimitError, Plan, Prepared, at_most};
use crate::clock::Nanos;

/// The extent of a plan that is being carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extent {
    interval: Nanos,
    /// Flowops of each phase.
    phases: Vec<u64>,
    /// By group.
    strands: BTreeMap<u32, u32>,
}

impl Extent {
    pub fn of(plan: &Plan) -> Self {
        let groups = &plan.program.groups;
        let count = groups.iter().map(|group| group.phases.len()).max().unwrap_or(0);
        let mut phases = vec![0; count];
        for group in groups {
            for (flowops, phase) in phases.iter_mut().zip(&group.phases) {
                *flowops += phase.as_ref().map_or(0, |phase| phase.acts.len() as u64);
            }
        }
        let strands = groups.iter().map(|group| (group.group, group.strands)).collect();
        Self { interval: plan.interval, phases, strands }
    }

    /// Checks that the plan has this phase, and that a series of it over `length` can be kept.
    ///
    /// # Errors
    /// What is out of bounds.
    pub fn check_phase(&self, phase: u32, length: Option<Nanos>) -> Result<(), LimitError> {
        let Some(&flowops) = self.phases.get(phase as usize) else {
            let number = u64::from(phase) + 1;
            let phases = self.phases.len();
            return Err(LimitError::invalid(
                format!("phase {number}"),
                format!("is not in the plan, which has {phases}"),
            ));
        };
        let readings = length.map_or(0, |length| length / self.interval.max(1));
        let numbers = readings.saturating_mul(flowops + CUT_NUMBERS);
        at_most("the numbers in the series of the phase (use a longer interval)", numbers, SERIES)
    }

    /// Readings of a phase whose end is not known before.
    pub fn readings(flowops: usize) -> u64 {
        SERIES / (flowops as u64 + CUT_NUMBERS)
    }

    /// Checks that transactions are limited for groups and strands of the plan.
    ///
    /// # Errors
    /// A group that the plan has not, or more strands than it has.
    pub fn check_limits(&self, limits: &BTreeMap<u32, Vec<u64>>) -> Result<(), LimitError> {
        for (group, limits) in limits {
            let Some(&strands) = self.strands.get(group) else {
                return Err(LimitError::invalid(format!("group {group}"), "is not in the plan"));
            };
            at_most(&format!("strands of group {group}"), limits.len(), strands)?;
        }
        Ok(())
    }
}

impl Endpoints {
    /// Checks how much there is of everything.
    ///
    /// # Errors
    /// What is out of bounds.
    pub fn check(&self) -> Result<(), LimitError> {
        at_most("the number of hosts", self.hosts.len(), HOSTS)?;
        for (number, host) in self.hosts.iter().enumerate() {
            host.check().map_err(|error| error.of(&format!("host {number}")))?;
        }
        Ok(())
    }
}

impl Prepared {
    fn check(&self) -> Result<(), LimitError> {
        at_most("the number of services", self.services.len(), SERVICES)?;
        at_most("the number of places that agree", self.consent.len(), CONSENTS)?;
        at_most("the number of places it connects from", self.connects_from.len(), CONSENTS)?;
        let addresses: usize = self.services.iter().map(|service| service.addresses.len()).sum();
        // Shared ones are listed twice.
        at_most("the number of addresses", addresses, 2 * ADDRESSES)?;
        for service in &self.services {
            at_most("strands of a service", service.of_strand.len(), STRANDS)?;
        }
        let all = self.consent.iter().chain(&self.connects_from);
        for address in all.chain(self.services.iter().flat_map(|service| &service.addresses)) {
            if let Address::Unix(path) = address {
                at_most("the length of a path", path.as_os_str().len(), TEXT)?;
            }
        }
        let files: usize = self.files.iter().map(|files| files.sizes.len()).sum();
        at_most("the number of files", files, FILES)?;
        for &size in self.files.iter().flat_map(|files| &files.sizes) {
            at_most("the size of a file", size, FILE_BYTES)?;
        }
        if let Some(told) = &self.spreading {
            if told.table.is_empty() {
                return Err(LimitError::invalid("the table of queues", "is empty"));
            }
            at_most("the length of a table of queues", told.table.len(), TEXT)?;
            at_most("the length of an RSS key", told.key.as_ref().map_or(0, String::len), TEXT)?;
        }
        at_most("the length of a certificate", self.certificate.as_ref().map_or(0, Vec::len), TEXT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SECOND;
    use crate::plan::FileSizes;

    fn extent() -> Extent {
        Extent { interval: SECOND, phases: vec![2, 92], strands: BTreeMap::from([(3, 2)]) }
    }

    #[test]
    fn a_phase_is_one_of_the_plan_and_its_series_can_be_kept() {
        extent().check_phase(0, Some(800_000 * SECOND)).unwrap();
        extent().check_phase(1, Some(80_000 * SECOND)).unwrap();
        let error = extent().check_phase(1, Some(80_001 * SECOND)).unwrap_err().to_string();
        assert!(error.contains("is 8000100, and the limit is 8000000"), "{error}");
        let error = extent().check_phase(u32::MAX, None).unwrap_err().to_string();
        assert_eq!(error, "phase 4294967296 is not in the plan, which has 2");
    }

    #[test]
    fn limits_are_of_strands_that_there_are() {
        let check = |group, strands| extent().check_limits(&BTreeMap::from([(group, strands)]));
        check(3, vec![1, 2]).unwrap();
        assert!(check(3, vec![1, 2, 3]).is_err());
        assert!(check(4, vec![]).is_err());
    }

    #[test]
    fn endpoints_have_limits() {
        let check = |edit: fn(&mut Prepared)| {
            let mut endpoints = Endpoints { hosts: vec![Prepared::default(); 2] };
            edit(&mut endpoints.hosts[1]);
            endpoints.check().map_err(|error| error.to_string())
        };
        fn unix() -> Address {
            Address::Unix("/tmp/x".into())
        }
        assert_eq!(check(|_| {}), Ok(()));
        assert_eq!(
            check(|host| host.consent = vec![unix(); 4]).unwrap_err(),
            "host 1: the number of places that agree is 4, and the limit is 3"
        );
        assert!(check(|host| host.connects_from = vec![unix(); 4]).is_err());
        let file = |host: &mut Prepared| {
            let sizes = vec![u64::MAX];
            host.files = vec![FileSizes { group: 0, phase: 0, flowop: 0, sizes }];
        };
        assert!(check(file).unwrap_err().contains("the size of a file is"));
        assert!(check(|host| host.certificate = Some(vec![0; 1 << 20])).is_err());
        assert!(check(|host| host.consent = vec![Address::Unix("x".repeat(5000).into())]).is_err());
        assert!(Endpoints { hosts: vec![Prepared::default(); 5000] }.check().is_err());
    }
}
