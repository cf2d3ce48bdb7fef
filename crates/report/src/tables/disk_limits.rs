//! `disk-limits`: transfers from memory and disk to memory and disk, and what limits each.

use wirecost_analyze::disk_limits;
use wirecost_analyze::findings;
use wirecost_analyze::measured::Measurements;
use wirecost_analyze::metrics;
use wirecost_model::document::Section;

use super::Table;
use super::cells::unanswered;
use super::rows::{ColumnOf, Rows};

pub(super) struct DiskLimits;

impl Table for DiskLimits {
    fn name(&self) -> &'static str {
        "disk-limits"
    }

    fn help(&self) -> &'static str {
        "file transfers: throughput, time in calls on files, and what limits each"
    }

    fn build(&self, measured: &Measurements) -> Section {
        let mut section = Section::new("Transfers from and to files");
        let conclusions = disk_limits::conclusions(measured);
        for finding in conclusions.findings {
            section.finding(finding);
        }
        let table = rows(measured).table("", &measured.points);
        section.table(table);
        for point in measured.points.iter().filter(|point| !point.runs.is_empty()) {
            let axes = point.point.axes.iter().map(|axis| axis.value.as_str());
            let name = axes.collect::<Vec<_>>().join(", ");
            let storage = findings::storage_at(point);
            let storage = storage.map_or_else(String::new, |share| format!("; {share}"));
            section.text(format!("{name}: {}{storage}.", findings::saturated_at(point)));
        }
        if let Some(reason) = without_interrupts(measured) {
            section.text(format!("The CPU time of storage interrupts is not measured: {reason}."));
        }
        section.text(
            "disk irq: CPU time in interrupts of storage controllers and in the softirqs that complete requests. disk \
             threads: CPU time in kernel threads that write files back or serve block devices. Both are of all CPUs, and \
             include what other programs do with disks. Threads that serve io_uring (iou-wrk) belong to their process.",
        );
        section.text(
            "read and write: time of a host's workers in calls that read files to send them, and that write \
             what is received to files. sync: time of fdatasync(2) after the traffic, not part of throughput: if it \
             is long, the page cache held data that the disk had yet to write. Local transfers go through a Unix \
             socket, so that no network limits the disk; they still include the copies of the socket.",
        );
        unanswered(&mut section, conclusions.unanswered);
        section
    }

    fn rows(&self, measured: &Measurements) -> Option<Rows> {
        Some(rows(measured))
    }
}

/// Why no run has the CPU time of storage interrupts; none where one has.
fn without_interrupts(measured: &Measurements) -> Option<String> {
    let metric = metrics::find("storage.irq").ok()?;
    let mut reason = None;
    for run in measured.points.iter().flat_map(|point| &point.runs) {
        match metric.of(run) {
            Ok(_) => return None,
            Err(why) => reason = Some(why),
        }
    }
    reason
}

fn rows(measured: &Measurements) -> Rows {
    let columns = [
        ColumnOf::metric("throughput", "throughput"),
        ColumnOf::metric("read", "source.read"),
        ColumnOf::metric("cached", "source.cached"),
        ColumnOf::metric("write", "sink.write"),
        ColumnOf::metric("sync", "sink.sync"),
        ColumnOf::metric("reads in flight", "source.depth"),
        ColumnOf::metric("writes in flight", "sink.depth"),
        ColumnOf::metric("disk irq", "storage.irq"),
        ColumnOf::metric("disk threads", "storage.threads"),
        ColumnOf::metric("cycles/KByte", "cycles_per_kbyte"),
    ];
    Rows::by_axes(measured, columns)
}
