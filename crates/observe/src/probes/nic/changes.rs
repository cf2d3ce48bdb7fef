//! Settings of a device that differ between the edges of the window.

use std::collections::BTreeMap;

use wirecost_linux::cpu_list::format_list;
use wirecost_model::observe::{NicChange, NicChangeKind};
use wirecost_model::rss::Fields;
use wirecost_model::units::{bit_rate, counted};

use super::reading::DeviceReading;

/// What is told of a key that is longer.
const KEY_SHOWN: usize = 17;

/// All that changed, the wire first.
pub(super) fn between(before: &DeviceReading, after: &DeviceReading) -> Vec<NicChange> {
    let (then, now) = (settings(before), settings(after));
    let known = now.iter().filter_map(|(key, value)| Some((key, then.get(key)?, value)));
    let mut changes: Vec<NicChange> = known
        .filter(|(_, then, now)| then != now)
        .map(|((kind, setting), then, now)| NicChange {
            kind: *kind,
            setting: setting.clone(),
            before: then.clone(),
            after: now.clone(),
        })
        .collect();
    changes.extend(carrier(before, after));
    changes.extend(table(before, after));
    changes.sort_by_key(|change| change.kind);
    changes
}

/// Texts of all settings that one value tells.
fn settings(of: &DeviceReading) -> BTreeMap<(NicChangeKind, String), String> {
    use NicChangeKind::{Interrupt, Link, Setting};
    let device = &of.device;
    let mut all = BTreeMap::new();
    let mut put = |kind, name: &str, value: Option<String>| {
        all.extend(value.map(|value| ((kind, name.to_owned()), value)));
    };
    let on = |on: bool| if on { "on" } else { "off" }.to_owned();
    put(Link, "speed", device.speed_bits_per_second.map(|speed| bit_rate(speed as f64)));
    let duplex = of.full_duplex.map(|full| if full { "full" } else { "half" }.to_owned());
    put(Link, "duplex", duplex);
    put(Setting, "MTU", device.mtu.map(|mtu| mtu.to_string()));
    if let Some(rings) = device.rings {
        put(Setting, "rx ring", Some(rings.rx.to_string()));
        put(Setting, "tx ring", Some(rings.tx.to_string()));
    }
    if let Some(of) = device.coalescing {
        put(Setting, "adaptive rx coalescing", Some(on(of.adaptive_rx)));
        put(Setting, "adaptive tx coalescing", Some(on(of.adaptive_tx)));
        put(Setting, "rx coalescing", Some(format!("{} us, {} frames", of.rx_us, of.rx_frames)));
        put(Setting, "tx coalescing", Some(format!("{} us, {} frames", of.tx_us, of.tx_frames)));
    }
    if let Some(of) = device.flow_control {
        put(Setting, "rx flow control", Some(on(of.rx)));
        put(Setting, "tx flow control", Some(on(of.tx)));
    }
    put(Setting, "queues", device.channels.map(|channels| channels.to_string()));
    for (feature, is_on) in device.features.iter().flatten() {
        put(Setting, feature, Some(on(*is_on)));
    }
    if let Some(rss) = &of.rss {
        let key = rss.key.as_ref().map(|key| match key.get(..KEY_SHOWN) {
            Some(begin) if key.len() > KEY_SHOWN => format!("{begin}..."),
            _ => key.clone(),
        });
        put(Setting, "RSS key", key);
        for (flow, fields) in &rss.fields {
            put(Setting, &format!("RSS fields of {flow}"), fields.map(|of| words(of).to_owned()));
        }
    }
    for vector in device.vectors.iter().flatten() {
        let cpus = vector.effective_cpus.as_ref().or(vector.cpus.as_ref());
        let name = format!("IRQ {} ({})", vector.irq, vector.name);
        put(Interrupt, &name, cpus.map(|cpus| format!("CPU {}", format_list(cpus))));
    }
    all
}

fn words(fields: Fields) -> &'static str {
    match fields {
        Fields::Addresses => "addresses",
        Fields::AddressesAndPorts => "addresses and ports",
    }
}

/// A link that went and came back is where it was.
fn carrier(before: &DeviceReading, after: &DeviceReading) -> Option<NicChange> {
    let times = after.statistics.carrier_changes.saturating_sub(before.statistics.carrier_changes);
    let state = |of: &DeviceReading| if of.statistics.carrier { "up" } else { "down" }.to_owned();
    (times > 0).then(|| NicChange {
        kind: NicChangeKind::Link,
        setting: "carrier".to_owned(),
        before: state(before),
        after: format!("{} after {}", state(after), counted(times, "change", "changes")),
    })
}

fn table(before: &DeviceReading, after: &DeviceReading) -> Option<NicChange> {
    let (then, now) = (&before.rss.as_ref()?.table, &after.rss.as_ref()?.table);
    let queues = |table: &[u32]| format!("queues {}", format_list(table));
    let different = then.iter().zip(now).filter(|(then, now)| then != now).count()
        + then.len().abs_diff(now.len());
    (different > 0).then(|| NicChange {
        kind: NicChangeKind::Setting,
        setting: "RSS table".to_owned(),
        before: queues(then),
        after: format!("{} ({different} of {} entries differ)", queues(now), now.len()),
    })
}
