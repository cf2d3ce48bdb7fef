//! The built-in studies, quick, in a lab: their tables are whole, row by row. Here their windows are short; two are run as
//! shipped, where the figures are looked at too (`measured`), and all in `long`.

use serde_json::Value;
use wirecost_linux::interrupts;
use wirecost_linux::privilege::skip_without_namespaces;
use wirecost_store::study::Study;

use crate::attempts::undisturbed;
use crate::program::{Finished, Program};

/// A cell: what stands in it, and its number where it is one.
#[derive(Debug, Clone)]
struct Cell {
    text: String,
    number: Option<f64>,
    missing: Option<String>,
}

impl Cell {
    fn of(value: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        if let Some(reason) = value["missing"].as_str() {
            assert!(!reason.is_empty());
            return Self { text: "-".to_owned(), number: None, missing: Some(reason.to_owned()) };
        }
        let kinds = ["number", "set", "parts"];
        let of_kind = kinds.iter().find_map(|kind| value.get(kind)).unwrap_or(value);
        let shown = of_kind.get("text").unwrap_or(of_kind);
        let number = value["number"]["value"].as_f64();
        if let Some(number) = number {
            assert!(number.is_finite(), "{value}");
            // What costs or moves nothing was not measured.
            let unit = value["number"]["unit"].as_str().unwrap_or_default();
            // False failures: 1e-7 (x300), computed: in 200 ms all CPUs would be others', in three attempts.
            assert!(
                number > 0.0 || !["bits_per_second", "cycles_per_kbyte"].contains(&unit),
                "{value}"
            );
        }
        Self { text: text(shown), number, missing: None }
    }
}

/// A table: its title, its columns, and its rows.
#[derive(Debug, Clone)]
struct Table {
    title: String,
    columns: Vec<String>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    fn column(&self, name: &str) -> Vec<&Cell> {
        let place = self.columns.iter().position(|column| column == name);
        let place = place.unwrap_or_else(|| panic!("no {name} among {:?}", self.columns));
        self.rows.iter().map(|row| &row[place]).collect()
    }

    fn texts(&self, name: &str) -> Vec<&str> {
        self.column(name).into_iter().map(|cell| cell.text.as_str()).collect()
    }

    /// Numbers of a column that has one in each row.
    fn numbers(&self, name: &str) -> Vec<f64> {
        let number =
            |cell: &Cell| cell.number.unwrap_or_else(|| panic!("{}: {cell:?}", self.title));
        self.column(name).into_iter().map(number).collect()
    }
}

/// A report's section of this name.
fn tables(report: &Value, name: &str) -> Vec<Table> {
    let sections = report["sections"].as_array().expect("sections");
    let section = sections.iter().find(|section| section["name"] == name).expect("the section");
    let blocks = section["blocks"].as_array().expect("blocks").iter();
    let tables = blocks.filter_map(|block| block.get("table"));
    let list = |value: &Value| value.as_array().expect("a list").clone();
    tables
        .map(|table| Table {
            title: table["title"].as_str().unwrap_or_default().to_owned(),
            columns: list(&table["columns"])
                .iter()
                .map(|column| column["title"].as_str().expect("a title").to_owned())
                .collect(),
            rows: list(&table["rows"])
                .iter()
                .map(|row| list(row).iter().map(Cell::of).collect())
                .collect(),
        })
        .collect()
}

/// What the runs of a study (`--out kept`) say that disturbed them.
pub(crate) fn kept_disturbances(finished: &Finished) -> Vec<String> {
    let Ok(study) = Study::open(&finished.path("kept")) else { return Vec::new() };
    let runs = study.runs().expect("its runs");
    let warnings = runs.into_iter().flat_map(|(_, run)| run.warnings);
    let disturbing = warnings.filter(|w| w.code == "steal" || w.code == "foreign-cpu");
    disturbing.map(|warning| warning.message).collect()
}

/// One run of each point, as short as it can be.
const SHORT: [&str; 6] = ["--set", "duration=200ms", "--set", "ramp=100ms", "--repeat", "1"];

/// A built-in study.
#[derive(Debug, Clone, Copy)]
struct Builtin {
    name: &'static str,
    /// The section of a report that has its tables, where it has another name.
    section: Option<&'static str>,
    /// What makes the quick variant shorter, where it takes long.
    shorter: &'static [&'static str],
    /// What the tables are, whatever was measured.
    shape: fn(&[Table]),
    /// What the figures are, where windows are long enough for them.
    figures: fn(&[Table]),
}

impl Builtin {
    const fn new(name: &'static str, shape: fn(&[Table])) -> Self {
        Self { name, section: None, shorter: &[], shape, figures: |_| {} }
    }

    const fn with_figures(self, figures: fn(&[Table])) -> Self {
        Self { figures, ..self }
    }

    const fn shorter(self, shorter: &'static [&'static str]) -> Self {
        Self { shorter, ..self }
    }

    fn short(&self) {
        self.run(&SHORT, self.shape);
    }

    fn as_shipped(&self) {
        self.with(self.shorter);
    }

    fn with(&self, arguments: &[&str]) {
        self.run(arguments, |tables| {
            (self.shape)(tables);
            (self.figures)(tables);
        });
    }

    /// Runs it and checks the tables of its section.
    fn run(&self, arguments: &[&str], check: impl Fn(&[Table])) {
        let name = self.name;
        if skip_without_namespaces(name) {
            return;
        }
        let builtin = format!("@{name}");
        is_quick(
            &Program::new(["study", "check", &builtin, "--quick"]).args(self.shorter).finish(),
        );
        let run = || {
            Program::new(["study", "run", &builtin, "--quick", "--quiet", "--out", "kept"])
                .args(arguments)
                .finish()
        };
        // Where others want all CPUs a window can be empty, and the runs say so.
        undisturbed(run, kept_disturbances, |run| {
            assert_eq!(run.code, 0, "{run}");
            // What the program shows in the end fits a terminal.
            let widest = run.stdout.lines().map(|line| line.chars().count()).max();
            assert!(widest.is_some_and(|width| width <= 100), "{widest:?}\n{run}");
            let kept = run.path("kept");
            let report = |format: &str| {
                let arguments = ["report", kept.to_str().expect("a path"), "--format", format];
                let report = Program::new(arguments).finish();
                assert_eq!(report.code, 0, "{}", report.stderr);
                report.stdout
            };
            if name == "tcp-transmit" {
                // Small enough to be sent.
                let page = report("html");
                assert!(page.len() < 400_000, "the page has {} bytes", page.len());
            }
            let report: Value = serde_json::from_str(&report("json")).expect("JSON");
            check(&tables(&report, self.section.unwrap_or(name)));
        });
    }
}

/// `study check` thinks that it takes a minute at most.
fn is_quick(check: &Finished) {
    assert_eq!(check.code, 0, "{check}");
    let last = check.stdout.lines().find(|line| line.contains(", about ")).expect("a time");
    let time = last.rsplit(' ').next().expect("a time");
    let seconds: u32 = time.strip_suffix('s').and_then(|s| s.parse().ok()).unwrap_or(u32::MAX);
    assert!(seconds <= 60, "{check}");
}

const TCP_TRANSMIT: Builtin =
    Builtin::new("tcp-transmit", tcp_transmit).with_figures(tcp_transmit_figures);
const HTTP_GET: Builtin = Builtin::new("http-get", http_get).with_figures(http_get_figures);
const IO_ENGINES: Builtin = Builtin::new("io-engines", io_engines);
const DISK_LIMITS: Builtin = Builtin::new("disk-limits", disk_limits);
const INTERRUPT_POLLING: Builtin =
    Builtin::new("interrupt-polling", interrupt_polling).with_figures(interrupt_polling_figures);
const LSO: Builtin = Builtin::new("lso", lso);
const FUNCTION_COST: Builtin =
    Builtin::new("function-cost", function_cost).shorter(&["--set", "duration=3s"]);
const INTERRUPT_COST: Builtin = Builtin::new("interrupt-cost", interrupt_cost);
const PATTERNS: Builtin = Builtin::new("patterns", patterns).shorter(&["--set", "duration=1s"]);
const WAN_TUNING: Builtin = Builtin::new("wan-tuning", wan_tuning).shorter(&[
    "--set",
    "duration=500ms",
    "--set",
    "ramp=200ms",
]);
const RESPONSIVENESS: Builtin =
    Builtin::new("responsiveness", responsiveness).with_figures(responsiveness_figures);
const LATENCY_LOAD: Builtin = Builtin {
    section: Some("knee"),
    ..Builtin::new("latency-load", latency_load).with_figures(latency_load_figures)
};

macro_rules! tests {
    ($method:ident: $($test:ident: $study:ident;)*) => {
        $(#[test] fn $test() { $study.$method(); })*
    };
}

mod shapes {
    use super::*;

    tests! { short:
        tcp_transmit: TCP_TRANSMIT;
        http_get: HTTP_GET;
        io_engines: IO_ENGINES;
        disk_limits: DISK_LIMITS;
        interrupt_polling: INTERRUPT_POLLING;
        lso: LSO;
        function_cost: FUNCTION_COST;
        interrupt_cost: INTERRUPT_COST;
        patterns: PATTERNS;
    }
}

/// Over links of the lab that delay.
mod waiting {
    use super::*;

    tests! { short:
        wan_tuning: WAN_TUNING;
        latency_load: LATENCY_LOAD;
    }

    #[test]
    fn responsiveness() {
        // Long enough for streams to fill the queue of the link.
        RESPONSIVENESS.with(&["--set", "duration=1s", "--set", "ramp=1s"]);
    }
}

mod measured {
    use super::*;

    tests! { as_shipped:
        http_get: HTTP_GET;
        io_engines: IO_ENGINES;
    }
}

mod long {
    use super::*;

    tests! { as_shipped:
        tcp_transmit: TCP_TRANSMIT;
        disk_limits: DISK_LIMITS;
        interrupt_polling: INTERRUPT_POLLING;
        lso: LSO;
        function_cost: FUNCTION_COST;
        interrupt_cost: INTERRUPT_COST;
        patterns: PATTERNS;
        wan_tuning: WAN_TUNING;
        responsiveness: RESPONSIVENESS;
        latency_load: LATENCY_LOAD;
    }
}

fn tcp_transmit(tables: &[Table]) {
    let titles: Vec<&str> = tables.iter().map(|table| table.title.as_str()).collect();
    for size in ["64K", "8K", "1K"] {
        let begins = format!("TCP Transmit tests using wirecost with write size = {size}");
        assert!(titles.iter().any(|title| title.starts_with(&begins)), "{titles:?}");
    }
    let (paced, saturated): (Vec<&Table>, Vec<&Table>) =
        tables.iter().partition(|table| table.title.contains("at a part of the throughput"));
    assert!(!paced.is_empty(), "{titles:?}");
    for table in paced {
        // Sizes of 64k and 1k, 8 to 1000 connections, two loads.
        assert_eq!(table.texts("load"), ["25%", "75%"].repeat(6));
        assert_eq!(table.numbers("cycles/Kbyte").len(), 12);
        assert_eq!(table.numbers("Throughput").len(), 12);
    }
    for table in saturated {
        assert_eq!(
            table.columns,
            ["#conn", "Wnd", "(usr/sys/intr/idle)", "cycles/Kbyte", "Throughput"]
        );
        assert_eq!(table.texts("#conn"), ["1", "8", "100", "1000"]);
        assert_eq!(table.texts("Wnd"), ["256k", "256k", "256k", "32k"]);
        assert_eq!(table.numbers("cycles/Kbyte").len(), 4);
        assert_eq!(table.numbers("Throughput").len(), 4);
        for split in table.texts("(usr/sys/intr/idle)") {
            let parts = split.trim_matches(['(', ')']).split('/').map(|part| part.parse::<i32>());
            let parts: Vec<i32> = parts.collect::<Result<_, _>>().expect("whole percent");
            // Of each part up to half a percent is rounded; steal is in none.
            assert!(parts.len() == 4 && parts.iter().sum::<i32>() <= 102, "{split}");
        }
    }
}

fn tcp_transmit_figures(tables: &[Table]) {
    for table in tables.iter().filter(|table| table.title.contains("at a part of the throughput")) {
        // Three quarters are three times a quarter, as far as the machine lets them.
        let throughput = table.numbers("Throughput");
        assert!(throughput.chunks(2).all(|loads| loads[1] > 1.5 * loads[0]), "{throughput:?}");
    }
}

fn http_get(tables: &[Table]) {
    let [table] = tables else { panic!("{tables:?}") };
    assert_eq!(
        table.columns,
        ["#Conn", "Wnd", "cpu(usr)", "cpu(sys)", "cpu(idle)", "Throughput (Mbps)"]
    );
    assert_eq!(table.texts("#Conn"), ["1", "10", "100", "1000"]);
    assert_eq!(table.numbers("Throughput (Mbps)").len(), 4);
    for column in ["cpu(usr)", "cpu(sys)", "cpu(idle)"] {
        assert!(table.numbers(column).iter().all(|percent| (0.0..=100.5).contains(percent)));
    }
}

fn http_get_figures(tables: &[Table]) {
    let mbps = tables[0].numbers("Throughput (Mbps)");
    // False failures: 1e-9 (x4), computed: any machine moves hundreds, and would have to be idle for 99% of a window.
    assert!(mbps.iter().all(|mbps| *mbps > 1.0), "{mbps:?}");
}

fn io_engines(tables: &[Table]) {
    let [table] = tables else { panic!("{tables:?}") };
    let methods = ["threads", "epoll", "io_uring", "zero-copy", "sendfile"];
    assert_eq!(table.texts("method"), methods);
    assert_eq!(table.numbers("throughput").len(), 5);
    assert_eq!(table.numbers("cycles/KByte").len(), 5);
    // Between namespaces of one machine the kernel copies what was sent by zero-copy.
    let copied = table.column("copied");
    assert!(copied[3].number.is_some_and(|percent| percent > 0.0), "{copied:?}");
    assert!([0, 1, 2, 4].iter().all(|row| copied[*row].missing.is_some()), "{copied:?}");
}

fn disk_limits(tables: &[Table]) {
    let [table] = tables else { panic!("{tables:?}") };
    let transfers = [
        "memory to memory",
        "disk read, local",
        "disk read direct, local",
        "disk write, local",
        "disk read with io_uring, local",
        "disk write with io_uring, local",
        "disk to memory",
        "disk to memory with sendfile",
        "disk to memory with splice",
        "memory to disk",
        "disk to disk",
        "disk to disk with io_uring",
    ];
    assert_eq!(table.texts("transfer"), transfers);
    assert_eq!(table.numbers("throughput").len(), transfers.len());
    // sendfile(2) reads and sends in one call.
    for (column, uses) in [("read", &[1, 2, 4, 6, 8, 10, 11][..]), ("write", &[3, 5, 9, 10, 11])] {
        for (row, cell) in table.column(column).into_iter().enumerate() {
            let is_share = cell.number.is_some_and(|percent| percent > 0.0 && percent <= 100.0);
            assert_eq!(is_share, uses.contains(&row), "{column} of {}: {cell:?}", transfers[row]);
        }
    }
    for (column, uses) in [("reads in flight", [4, 11]), ("writes in flight", [5, 11])] {
        for (row, cell) in table.column(column).into_iter().enumerate() {
            let is_depth = cell.number.is_some_and(|mean| (1.0..=8.0).contains(&mean));
            assert_eq!(is_depth, uses.contains(&row), "{column} of {}: {cell:?}", transfers[row]);
        }
    }
    // O_DIRECT reads of a device end with an interrupt, where it has one.
    let has_interrupts = interrupts::of_storage().is_ok_and(|irqs| !irqs.is_empty());
    for (row, cell) in table.column("disk irq").into_iter().enumerate() {
        match cell.number {
            Some(percent) => assert!((0.0..=100.0).contains(&percent), "{cell:?}"),
            None => assert!(!has_interrupts || cell.missing.is_some(), "{cell:?}"),
        }
        let in_memory = rustix::fs::statfs("/var/tmp").unwrap().f_type == 0x0102_1994;
        if [2, 4].contains(&row) && has_interrupts && !in_memory && cell.missing.is_none() {
            assert!(cell.number > Some(0.0), "{} used no interrupt: {cell:?}", transfers[row]);
        }
    }
}

fn interrupt_polling(tables: &[Table]) {
    let [table] = tables else { panic!("{tables:?}") };
    let ways = ["interrupts", "threaded NAPI", "deferred interrupts", "busy polling"];
    let offered = ["light", "20k/s", "80k/s", "320k/s", "flat out"];
    let of_ways = table.texts("receive");
    assert_eq!(of_ways, ways.map(|way| [way; 5]).concat());
    assert_eq!(table.texts("offered"), [offered; 4].concat());
    for (row, load) in table.texts("offered").into_iter().enumerate() {
        let number = |column: &str| table.column(column)[row].number;
        match load {
            // A way that this kernel lacks is refused, with the reason.
            "light" => {
                let cell = table.column("p50")[row];
                assert!(cell.number > Some(0.0) || cell.missing.is_some(), "{table:?}");
            }
            _ => {
                let (sent, read) = (number("sent"), number("delivered"));
                assert_eq!(sent.is_some(), read.is_some(), "{table:?}");
                let (Some(sent), Some(read)) = (sent, read) else { continue };
                assert!(sent > 0.0 && read > 0.0, "{table:?}");
            }
        }
    }
    // The base needs nothing that a kernel may lack.
    assert!(table.column("p50")[0].number.is_some(), "{table:?}");
    assert!(table.column("delivered")[4].number.is_some(), "{table:?}");
}

fn interrupt_polling_figures(tables: &[Table]) {
    let table = &tables[0];
    for (row, load) in table.texts("offered").into_iter().enumerate() {
        let number = |column: &str| table.column(column)[row].number;
        let (Some(sent), Some(read)) = (number("sent"), number("delivered")) else { continue };
        assert!(read <= 1.05 * sent, "{sent} {read}: {table:?}");
        // Open loop: no more is offered than was asked for.
        let most = match load {
            "20k/s" => 20e3,
            "80k/s" => 80e3,
            "320k/s" => 320e3,
            _ => f64::INFINITY,
        };
        assert!(sent <= 1.1 * most, "{load}: {sent}");
    }
}

fn lso(tables: &[Table]) {
    let table = |title: &str| tables.iter().find(|table| table.title == title).expect("the table");
    let contexts = table("Transmit context");
    assert!(contexts.rows.iter().flatten().any(|cell| cell.number.is_some()), "{contexts:?}");
    let averages = table("Average segment size");
    let columns = ["device", "segmentation", "Example"].map(|column| averages.texts(column));
    let (veth, tun) = (["veth"; 9], ["tun"; 3]);
    assert_eq!(columns[0], [&veth[..], &tun[..]].concat());
    assert_eq!(columns[2][..9], ["1", "2", "3", "4", "5", "1", "4", "1", "4"]);
    // An Ethernet frame of the usual MTU has 1514 bytes.
    let sizes = averages.numbers("by bytes, B");
    for ((size, segmentation), example) in sizes.iter().zip(&columns[1]).zip(&columns[2]) {
        match (*segmentation, *example) {
            // False failures: 1e-6, computed: writes of 64 KiB would have to leave in packets of three segments.
            ("tso+gso", "1") => assert!(*size > 3.0 * 1514.0, "{averages:?}"),
            ("tso+gso", _) => {}
            _ => assert!(*size <= 1514.0, "{averages:?}"),
        }
    }
}

fn function_cost(tables: &[Table]) {
    let rows: Vec<_> = tables.iter().flat_map(|table| &table.rows).collect();
    assert!(!rows.is_empty());
    let numbers = rows.iter().flat_map(|row| row.iter()).filter(|cell| cell.number.is_some());
    assert!(numbers.count() > 10, "{tables:?}");
}

fn interrupt_cost(tables: &[Table]) {
    let coalescing = tables.iter().find(|table| table.title.starts_with("Coalescing"));
    let coalescing = coalescing.expect("the table");
    assert_eq!(coalescing.texts("coalescing"), ["veth", "0us", "20us", "100us"].repeat(2));
    let interrupts = coalescing.column("interrupts/s");
    for (interrupts, waits) in interrupts.iter().zip(coalescing.texts("coalescing")) {
        match (interrupts.number, waits) {
            (None, "veth") | (Some(_), "0us" | "20us") => {}
            // No more than one in the time that each waits.
            (Some(number), "100us") => assert!(number <= 10_000.0, "{coalescing:?}"),
            _ => panic!("{coalescing:?}"),
        }
    }
    let cells: Vec<&Cell> = tables.iter().flat_map(|table| table.rows.iter().flatten()).collect();
    for line in [
        "Throughput(KB/s)",
        "Throughput(Mbit/s)",
        "Average Frame Size",
        "Interrupts/sec",
        "Cycles/Byte",
    ] {
        assert!(cells.iter().any(|cell| cell.text.starts_with(line)), "no {line}: {tables:?}");
    }
    assert!(cells.iter().any(|cell| cell.text.contains("net_rx") || cell.text.contains("NET_RX")));
}

fn patterns(tables: &[Table]) {
    let patterns = ["single", "one-to-one", "incast", "outcast", "all-to-all", "rpc", "mixed"];
    let whole = tables.iter().filter(|table| table.rows.len() == patterns.len());
    let mut any = false;
    for table in whole {
        any = true;
        let first: Vec<&str> = table.rows.iter().map(|row| row[0].text.as_str()).collect();
        assert_eq!(first, patterns, "{}", table.title);
    }
    assert!(any, "{tables:?}");
}

fn wan_tuning(tables: &[Table]) {
    let [tcp, udp] = tables else { panic!("{tables:?}") };
    assert_eq!([&*tcp.title, &*udp.title], ["5 streams", "5 streams of UDP"]);
    let factors = tcp.texts("factor");
    for (factor, values) in [
        ("base", 1),
        ("option.wndsz", 3),
        ("size", 1),
        ("tune.mtu", 1),
        ("offloads", 1),
        ("coalescing", 1),
    ] {
        let rows = factors.iter().filter(|of| **of == factor).count();
        assert_eq!(rows, values, "{factor}: {tcp:?}");
    }
    // Which congestion controls there are is the kernel's: each with each of three buffers.
    let controls = factors.iter().filter(|of| **of == "option.cc").count();
    let together = factors.iter().filter(|of| **of == "together").count();
    assert!(controls > 0 && together == 3 * controls, "{tcp:?}");
    assert_eq!(tcp.numbers("throughput").len(), factors.len());
    assert!(tcp.numbers("vs base")[0] == 1.0, "{tcp:?}");
    let of_udp = ["base", "offered", "offered", "option.wndsz", "option.wndsz", "option.wndsz"];
    assert_eq!(udp.texts("factor"), [&of_udp[..], &["coalescing"]].concat());
    // Shares of the payload that 500 Mb/s carry in packets of 1,448 bytes.
    let carried = 500e6 * 1448.0 / 1514.0;
    for (offered, share) in udp.numbers("offered").into_iter().zip([0.95, 0.5, 1.0]) {
        assert!((offered / (share * carried) - 1.0).abs() < 1e-4, "{share}: {udp:?}");
    }
    assert!(udp.numbers("lost").into_iter().all(|lost| (0.0..=100.0).contains(&lost)));
}

fn responsiveness(tables: &[Table]) {
    let [latencies, parts] = tables else { panic!("{tables:?}") };
    assert_eq!(latencies.texts("load"), ["idle", "4 down", "4 up", "4 up, 4 down"]);
    let [p50, p99] = ["p50", "p99"].map(|column| latencies.numbers(column));
    // The link has a round-trip time of 20 ms, and its queue takes 100 ms.
    assert!(p50[0] >= 20e3, "{latencies:?}");
    assert!(p50.iter().zip(&p99).all(|(p50, p99)| p50 <= p99), "{latencies:?}");
    let loaded = &latencies.texts("grade")[1..];
    assert!(loaded.iter().all(|grade| ["A+", "A", "B", "C", "D", "F"].contains(grade)));
    assert_eq!(parts.texts("load"), ["4 down", "4 up", "4 up, 4 down"]);
    assert!(parts.numbers("RPM (not HTTP/2)").into_iter().all(|rpm| rpm > 0.0), "{parts:?}");
}

fn responsiveness_figures(tables: &[Table]) {
    let p50 = tables[0].numbers("p50");
    // False failures: 1e-6 (x3), computed: four streams leave 40 ms of the queue; half of the idle probes would be as late.
    assert!(p50.iter().skip(1).all(|loaded| *loaded > p50[0]), "{p50:?}");
}

fn latency_load(tables: &[Table]) {
    let [table] = tables else { panic!("{tables:?}") };
    let loads = table.texts("load");
    assert_eq!(loads[..7], ["10%", "30%", "50%", "70%", "80%", "90%", "95%"], "{table:?}");
    // A link of 10 Mb/s and 2 ms.
    assert!(table.numbers("p99").iter().all(|p99| *p99 >= 2e3), "{table:?}");
    for (load, offered) in [10.0, 30.0, 50.0].into_iter().zip(table.numbers("offered")) {
        assert!(offered > 0.0, "{load}: {table:?}");
    }
}

fn latency_load_figures(tables: &[Table]) {
    let table = &tables[0];
    // Nearly idle, and nearly full.
    let p99 = table.numbers("p99");
    assert!(p99[6] > p99[0], "{table:?}");
    for (load, offered) in [10.0, 30.0, 50.0].into_iter().zip(table.column("offered")) {
        let (share, rate) = (load / 100.0, offered.number.unwrap());
        assert!((rate / (share * 10e6) - 1.0).abs() < 0.1, "{load}: {table:?}");
    }
}
