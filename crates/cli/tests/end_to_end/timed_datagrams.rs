//! Profiles whose datagrams have departure times (`txtime`).

/// Datagrams of a call, transactions per second, and how long before they are due they are handed over.
pub(crate) const BATCH: u64 = 10;
pub(crate) const RATE: u64 = 2;
pub(crate) const LEAD: &str = "700ms";

/// A datagram each 50 ms: an emulated CPU may stand still for tens of milliseconds.
pub(crate) fn profile(options: &str, rate: &str, protocol: &str) -> String {
    format!(
        "<profile name=\"d\">\n<group nthreads=\"1\">\n<transaction iterations=\"1\">\n\
         <flowop type=\"connect\" options=\"remotehost=$h protocol={protocol}\"/>\n</transaction>\n\
         <transaction duration=\"4s\" {rate}>\n<flowop type=\"write\" options=\"size=64 {options}\"/>\n\
         </transaction>\n</group>\n</profile>\n"
    )
}

pub(crate) fn timed() -> String {
    profile(&format!("txtime={LEAD} batch={BATCH}"), &format!("rate=\"{RATE}\""), "udp")
}
