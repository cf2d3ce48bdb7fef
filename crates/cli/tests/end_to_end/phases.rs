//! Phases in table and JSON, and which of them is the headline.

use crate::document::Document;
use crate::engines;
use crate::program::Program;

fn phases(document: &Document) -> Vec<u64> {
    document.list("/phases").iter().map(|row| row["phase"].as_u64().unwrap()).collect()
}

fn profile(protocol: &str, reads: &str) -> String {
    format!(
        r#"<?xml version="1.0"?>
<profile name="reads">
  <group nthreads="1">
    <transaction iterations="1">
      <flowop type="connect" options="remotehost=$h protocol={protocol}"/>
    </transaction>
    <transaction iterations="5">{reads}</transaction>
    <transaction iterations="1"><flowop type="disconnect"/></transaction>
  </group>
</profile>
"#
    )
}

/// Both sides may be kept waiting: the master for datagrams, the peer for a master that has failed.
#[test]
fn reads_that_time_out_are_a_phase_of_their_own_and_the_headline() {
    let reads = r#"<flowop type="read" options="size=64 canfail timeout=100ms"/>"#;
    for engine in engines::names() {
        let document = Program::new(["run", "reads.xml", "--quiet", "--engine", engine])
            .file("reads.xml", &profile("udp", reads))
            .measure();
        assert_eq!(phases(&document), [0, 1, 2], "{engine}");
        assert_eq!(document.count("/window/phase"), 1, "{engine}");
        assert_eq!(document.count("/phases/1/transactions"), 5, "{engine}");
        assert!(document.is_null("/phases/1/reason"), "{engine}");
    }
}

mod waiting {
    use super::*;

    /// The lengths of phases by iterations differ from run to run, their work does not.
    #[test]
    fn the_phase_that_moves_data_is_the_headline_however_long_the_others_take() {
        let one_byte = r#"<flowop type="write" options="size=1"/>"#;
        let xml = profile("tcp", one_byte).replace(
            r#"<transaction iterations="1"><flowop type="disconnect"/>"#,
            r#"<transaction iterations="1"><flowop type="think" options="duration=3s"/>"#,
        );
        Program::new(["run", "p.xml", "--quiet"]).file("p.xml", &xml).measure_and(|_, document| {
            let [writes, thought] =
                [1, 2].map(|phase| document.number(&format!("/phases/{phase}/seconds")));
            // False failures: 1e-5, measured: writes took 16 ms (median) to 0.56 s in 30 runs beside load 20.
            assert!(thought > writes, "{thought} s, {writes} s");
            assert_eq!(document.count("/window/phase"), 1);
            assert_eq!(document.count("/throughput/tx_bytes"), 5);
        });
    }
}
