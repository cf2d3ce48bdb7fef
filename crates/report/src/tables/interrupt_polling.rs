//! `interrupt-polling`: latency at light load and what is delivered beyond the capacity of the receiver, by way to receive.

use wirecost_analyze::interrupt_polling::{self, LIGHT, OFFERED, READ, SENT};
use wirecost_analyze::measured::Measurements;
use wirecost_model::document::{Cell, Column, Section, show};
use wirecost_model::metric::Unit;
use wirecost_model::study::Value;

use super::Table;
use super::cells::{estimate, estimated, grouped, of, unanswered};
use super::rows::{ColumnOf, Rows};
use super::whose;

pub(super) struct InterruptPolling;

impl Table for InterruptPolling {
    fn name(&self) -> &'static str {
        "interrupt-polling"
    }

    fn help(&self) -> &'static str {
        "latency at light load, and datagrams sent and delivered, by way to receive"
    }

    fn build(&self, measured: &Measurements) -> Section {
        let mut section = Section::new("Interrupts and polling");
        let conclusions = interrupt_polling::conclusions(measured);
        for finding in conclusions.findings {
            section.finding(finding);
        }
        section.table(rows(measured).table("", &measured.points));
        section.text(
            "sent: datagrams that the sender sent, which is what was offered; delivered: those that the receiver read. Receive livelock: delivered datagrams \
             fall below 90% of the most that were delivered, because packets that are dropped later have taken the CPU. Latency is \
             that of a request and its response. busy, interrupts: of the receiver.",
        );
        if let Some(note) = whose::note(measured) {
            section.note(note);
        }
        unanswered(&mut section, conclusions.unanswered);
        section
    }

    fn rows(&self, measured: &Measurements) -> Option<Rows> {
        Some(rows(measured))
    }

    fn concludes(&self) -> bool {
        true
    }
}

fn rows(measured: &Measurements) -> Rows {
    let rate = |title: &str, metric: &'static str| {
        ColumnOf::new(Column::number(title), move |point| {
            estimated(estimate(point, |run| of(run, metric)), Unit::PerSecond, grouped)
        })
    };
    let latency = |title: &str, metric: &'static str| {
        ColumnOf::new(Column::number(title), move |point| {
            let is_light = |value: &&Value| value.name == OFFERED && value.value == LIGHT;
            if point.point.axes.iter().find(is_light).is_none() {
                return Cell::Missing("datagrams are answered at light load only".to_owned());
            }
            let each = estimate(point, |run| of(run, metric));
            estimated(each, Unit::Microseconds, |us| show(Unit::Microseconds, us))
        })
    };
    let columns = [
        latency("p50", "latency.p50"),
        latency("p99", "latency.p99"),
        rate("sent", SENT),
        rate("delivered", READ),
        ColumnOf::metric("busy", "hosts.peer.cpu.busy"),
        ColumnOf::metric("interrupts", "hosts.peer.interrupts"),
    ];
    Rows::by_axes(measured, columns)
}
