//! `json`: the document, `wirecost.report/1`.

use super::Output;

pub(super) const OUTPUT: Output = Output {
    name: "json",
    help: "the report as a document (wirecost.report/1)",
    write: |out, report, _| {
        serde_json::to_writer_pretty(&mut *out, report)?;
        out.write_all(b"\n")
    },
};
