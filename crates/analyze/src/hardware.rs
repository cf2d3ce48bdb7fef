//! What changed under a host while it was observed: its devices, their interrupts, and the clock of its CPUs.

use wirecost_model::observe::{HardwareSection, HostObservation, NicChangeKind, NicDevice};
use wirecost_model::warning::{
    ClockChanged, ClockSettingsChanged, DeviceSettingsChanged, InterruptsMoved, LinkChanged,
    PauseFramesSeen, Throttled, Warning,
};

/// Warnings of one observation, said of a host.
#[must_use]
pub fn changes(host: &str, seen: &HostObservation) -> Vec<Warning> {
    let mut warnings = Vec::new();
    for device in seen.nic.iter().flat_map(|section| &section.devices) {
        of_device(host, device, &mut warnings);
    }
    if let Some(hardware) = &seen.hardware {
        of_hardware(host, hardware, &mut warnings);
    }
    warnings
}

fn of_device(host: &str, of: &NicDevice, warnings: &mut Vec<Warning>) {
    let changed = |kind: NicChangeKind| -> Option<Vec<String>> {
        let changes = of.changes.iter().filter(|change| change.kind == kind);
        let texts: Vec<String> = changes.map(ToString::to_string).collect();
        (!texts.is_empty()).then_some(texts)
    };
    let names = || (host.to_owned(), of.device.clone());
    warnings.extend(changed(NicChangeKind::Link).map(|changes| {
        let (host, device) = names();
        Warning::from(LinkChanged { host, device, changes })
    }));
    warnings.extend(changed(NicChangeKind::Setting).map(|changes| {
        let (host, device) = names();
        Warning::from(DeviceSettingsChanged { host, device, changes })
    }));
    warnings.extend(changed(NicChangeKind::Interrupt).map(|changes| {
        let (host, device) = names();
        Warning::from(InterruptsMoved { host, device, changes })
    }));
    let pause = of.pause.as_ref();
    let frames = pause.map_or((0, 0), |of| (of.rx.unwrap_or(0), of.tx.unwrap_or(0)));
    if frames != (0, 0) {
        let (host, device) = names();
        let (received, sent) = frames;
        warnings.push(PauseFramesSeen { host, device, received, sent }.into());
    }
}

fn of_hardware(host: &str, of: &HardwareSection, warnings: &mut Vec<Warning>) {
    let host = || host.to_owned();
    warnings.extend(of.clock_change.map(|change| {
        let (from_ghz, to_ghz, seconds) = (change.from_ghz, change.to_ghz, change.seconds);
        Warning::from(ClockChanged { host: host(), from_ghz, to_ghz, seconds })
    }));
    let changes: Vec<String> = of.changes.iter().map(ToString::to_string).collect();
    if !changes.is_empty() {
        warnings.push(ClockSettingsChanged { host: host(), changes }.into());
    }
    if let Some(of) = of.throttling {
        let events = of.core_events + of.package_events;
        if events > 0 {
            let milliseconds = of.milliseconds;
            warnings.push(Throttled { host: host(), events, milliseconds }.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use wirecost_model::observe::{
        ClockChange, HostChange, NicChange, NicSection, PauseFrames, PauseSource, Throttling,
    };

    use super::*;

    fn change(kind: NicChangeKind, setting: &str, before: &str, after: &str) -> NicChange {
        let [setting, before, after] = [setting, before, after].map(str::to_owned);
        NicChange { kind, setting, before, after }
    }

    #[test]
    fn each_kind_of_change_is_a_warning_with_its_size() {
        let device = NicDevice {
            device: "eth0".to_owned(),
            changes: vec![
                change(NicChangeKind::Link, "speed", "10.0 Gb/s", "1.00 Gb/s"),
                change(NicChangeKind::Setting, "rx-gro", "on", "off"),
                change(NicChangeKind::Setting, "rx ring", "512", "4096"),
                change(NicChangeKind::Interrupt, "IRQ 41 (eth0-TxRx-1)", "CPU 3", "CPU 0"),
            ],
            pause: Some(PauseFrames { rx: Some(96), tx: None, source: PauseSource::Standard }),
            ..NicDevice::default()
        };
        let hardware = HardwareSection {
            clock_change: Some(ClockChange { from_ghz: 3.4, to_ghz: 2.6, seconds: 4.0 }),
            changes: vec![HostChange {
                setting: "turbo".to_owned(),
                before: "on".to_owned(),
                after: "off".to_owned(),
            }],
            throttling: Some(Throttling {
                core_events: 2,
                package_events: 1,
                milliseconds: Some(40),
            }),
            ..HardwareSection::default()
        };
        let seen = HostObservation {
            nic: Some(NicSection { devices: vec![device] }),
            hardware: Some(hardware),
            ..HostObservation::default()
        };
        let warnings = changes("h1", &seen);
        let told: Vec<(&str, String)> =
            warnings.iter().map(|warning| (warning.code(), brief(warning))).collect();
        let expected = [
            (
                "link-changed",
                "the link of eth0 on h1 changed during the window: speed from 10.0 Gb/s to 1.00 Gb/s",
            ),
            (
                "device-settings-changed",
                "settings of eth0 on h1 changed during the window: rx-gro from on to off, rx ring from \
                 512 to 4096",
            ),
            (
                "interrupts-moved",
                "1 interrupt of eth0 on h1 moved during the window: IRQ 41 (eth0-TxRx-1) from CPU 3 to \
                 CPU 0",
            ),
            ("pause-frames", "eth0 of h1 received 96 and sent 0 pause frames"),
            ("clock-changed", "clock of h1 fell from 3.4 to 2.6 GHz after 4.0 s of the window"),
            (
                "clock-settings-changed",
                "clock settings of h1 changed during the window: turbo from on to off",
            ),
            (
                "throttled",
                "heat slowed down CPUs of h1 3 times during the window, 40 ms in the most affected core or package",
            ),
        ];
        assert_eq!(told, expected.map(|(code, text)| (code, text.to_owned())));
        let pause = warnings[3].to_string();
        assert!(pause.contains("the link partner limited what this host sent; to"), "{pause}");
    }

    fn brief(warning: &Warning) -> String {
        wirecost_model::warning::Entry::from(warning).brief.unwrap_or_default()
    }

    #[test]
    fn what_did_not_change_is_no_warning() {
        let still = HostObservation {
            nic: Some(NicSection { devices: vec![NicDevice::default()] }),
            hardware: Some(HardwareSection {
                throttling: Some(Throttling::default()),
                ..HardwareSection::default()
            }),
            ..HostObservation::default()
        };
        assert_eq!(changes("h1", &still), []);
        assert_eq!(changes("h1", &HostObservation::default()), []);
    }
}
