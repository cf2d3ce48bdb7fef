//! Reports: a fixed one in each output, and tables row by row.

use std::fs;

use proptest::prelude::*;
use wirecost_analyze::measured::Measurements;
use wirecost_model::document::{Block, Cell, Column, Document, SCHEMA, Section, Table};
use wirecost_model::metric::Unit;
use wirecost_model::run::{Run, ZeroCopy};
use wirecost_model::status::Status;
use wirecost_model::study::Value;
use wirecost_report::documents;
use wirecost_report::outputs::{self, Lines, TerminalStyle};
use wirecost_report::run_lines::RunLines;
use wirecost_report::tables::{self, TableRequest};

use crate::fixtures;
use crate::fixtures::study::{at, point, sample, with};

fn written(report: &Document, format: &str, width: usize) -> String {
    let mut out = Vec::new();
    let output = outputs::find(format).unwrap();
    output.write(&mut out, report, &TerminalStyle::plain(width)).unwrap();
    String::from_utf8(out).unwrap()
}

fn columns(title: &str, names: &[&str]) -> TableRequest {
    let columns = names.iter().map(|name| (*name).to_owned()).collect();
    TableRequest::Columns { title: title.to_owned(), columns }
}

/// Of the sample study: the table of old, and one of columns that is too wide.
fn report() -> Document {
    let measured = sample();
    let mut report = Document::new("Sample");
    report.version = "0.1.0".to_owned();
    let mine = columns(
        "Mine",
        &[
            "size",
            "connections",
            "throughput",
            "hosts.sender.cycles_per_kbyte",
            "hosts.receiver.cycles_per_kbyte",
            "cpu.sys",
            "latency.p99",
            "segments.sent_bytes",
        ],
    );
    for wanted in [TableRequest::Named(tables::find("tcp-transmit").unwrap()), mine] {
        report.sections.push(wanted.build(&measured).unwrap());
    }
    let mut planned: Vec<_> = measured.points.iter().map(|point| point.point.clone()).collect();
    planned.push(point(&[("size", "1k"), ("connections", "6000")], &[]));
    report.sections.push(tables::about(&measured, &planned));
    report
}

/// The tables of a section.
fn tables_of(section: &Section) -> Vec<&Table> {
    let blocks = section.blocks.iter();
    blocks
        .filter_map(|block| match block {
            Block::Table(table) => Some(table),
            _ => None,
        })
        .collect()
}

fn texts_of(section: &Section) -> Vec<&str> {
    let blocks = section.blocks.iter();
    blocks
        .filter_map(|block| match block {
            Block::Text(text) => Some(text.as_str()),
            _ => None,
        })
        .collect()
}

fn build(name: &str, measured: &Measurements) -> Section {
    TableRequest::Named(tables::find(name).unwrap()).build(measured).unwrap()
}

/// A table as rows of texts, its head first.
fn grid(table: &Table) -> Vec<Vec<&str>> {
    let head = table.columns.iter().map(|column| column.title.as_str()).collect();
    let rows = table.rows.iter().map(|row| row.iter().map(Cell::shown).collect());
    [head].into_iter().chain(rows).collect()
}

#[test]
fn a_report_in_each_output() {
    // A page has its style and script in it: outputs/html/tests.rs looks at it.
    for output in outputs::ALL.iter().filter(|output| output.name() != "html") {
        insta::assert_snapshot!(
            format!("report_{}", output.name()),
            written(&report(), output.name(), 80)
        );
    }
}

#[test]
fn what_is_written_as_json_is_read_again_and_is_as_its_schema_says() {
    let text = written(&report(), "json", 80);
    assert_eq!(serde_json::from_str::<Document>(&text).unwrap(), report());
    let schema = include_str!("../../../../docs/schema/wirecost.report-1.json");
    let validator = jsonschema::validator_for(&serde_json::from_str(schema).unwrap()).unwrap();
    let mut document = serde_json::from_str(&text).unwrap();
    assert!(validator.is_valid(&document), "{:?}", validator.iter_errors(&document).next());
    assert_eq!(document["schema"], SCHEMA);
    document["sections"][0]["blocks"][0]["table"]["columns"][0]["align"] = "middle".into();
    assert!(!validator.is_valid(&document));
}

#[test]
fn every_table_is_in_the_list_and_its_rows_are_as_long_as_its_head() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/src/tables");
    let files = fs::read_dir(directory).unwrap().filter_map(|entry| {
        let path = entry.unwrap().path();
        let file = if path.is_dir() { path.join("mod.rs") } else { path };
        fs::read_to_string(file).ok()
    });
    let kinds = files.filter(|text| text.contains("Table for ")).count();
    assert_eq!(kinds, tables::ALL.len());
    for (place, kind) in tables::ALL.iter().enumerate() {
        assert!(tables::ALL[..place].iter().all(|other| other.name() != kind.name()));
        assert!((1..80).contains(&kind.help().len()), "{}", kind.help());
        for measured in [sample(), Measurements::default()] {
            let section = kind.build(&measured);
            for table in tables_of(&section) {
                assert!(table.rows.iter().all(|row| row.len() == table.columns.len()));
            }
            let Some(rows) = kind.rows(&measured) else { continue };
            for point in &measured.points {
                assert_eq!(rows.row(point).len(), rows.head().len(), "{}", kind.name());
            }
        }
    }
}

#[test]
fn tcp_transmit_has_the_columns_of_old_and_a_table_for_each_end() {
    let measured = sample();
    let section = build("tcp-transmit", &measured);
    let tables = tables_of(&section);
    let titles: Vec<&str> = tables.iter().map(|table| table.title.as_str()).collect();
    assert_eq!(
        titles,
        [
            "TCP Transmit tests using wirecost with write size = 64K: sender",
            "TCP Transmit tests using wirecost with write size = 64K: receiver",
            "TCP Transmit tests using wirecost with write size = 1K: sender",
            "TCP Transmit tests using wirecost with write size = 1K: receiver",
        ]
    );
    // Repeats of 1011 and 1012: half an interval is 12.706 * 0.5, 0.63%.
    assert_eq!(
        grid(tables[0]),
        [
            ["#conn", "Wnd", "(usr/sys/intr/idle)", "cycles/Kbyte", "Throughput"],
            ["1", "256k", "(2/62/9/27)", "1,012 ±0.7%", "9.01 Gb/s ±0.7%"],
            ["100", "256k", "(2/62/9/27)", "1,022 ±0.7%", "9.01 Gb/s ±0.7%"],
            ["4000", "32k", "(2/62/9/27)", "1,032 ±0.7%", "9.01 Gb/s ±0.7%"],
        ]
    );
    // The run that failed does not count, and what the other could not tell is not 0.
    assert_eq!(grid(tables[2])[3], ["4000", "32k", "(2/62/9/27)", "1,062", "2.00 Gb/s"]);
    assert_eq!(grid(tables[3])[3], ["4000", "32k", "(3/80/13/3)", "-", "2.00 Gb/s"]);
    assert_eq!(tables[3].rows[2][3], Cell::Missing("its TSC is not constant".to_owned()));
    let granted = "Wnd 4m: effective buffer on server: 208k (wndsz.receive).";
    assert_eq!(texts_of(&section), [granted]);
}

#[test]
fn tcp_transmit_shows_paced_points_apart_from_saturated_ones() {
    let mut measured = sample();
    let before = build("tcp-transmit", &measured);
    let saturated = grid(tables_of(&before)[0]);
    let mut paced = measured.points[..2].to_vec();
    for (point, load) in paced.iter_mut().zip(["25%", "1gbit"]) {
        point.point.axes.push(Value::new("load", load));
    }
    for point in &mut measured.points {
        point.point.axes.push(Value::new("load", "max"));
    }
    measured.points.extend(paced);
    let section = build("tcp-transmit", &measured);
    let tables = tables_of(&section);
    assert_eq!((tables.len(), grid(tables[0])), (6, saturated));
    let title = "TCP Transmit tests at a part of the throughput that saturates: ";
    assert_eq!(
        (tables[4].title.as_str(), tables[5].title.as_str()),
        (&*format!("{title}sender"), &*format!("{title}receiver"))
    );
    assert_eq!(
        grid(tables[4]),
        [
            ["size", "load", "#conn", "Wnd", "(usr/sys/intr/idle)", "cycles/Kbyte", "Throughput"],
            ["64k", "25%", "1", "256k", "(2/62/9/27)", "1,012 ±0.7%", "9.01 Gb/s ±0.7%"],
            ["64k", "1gbit", "100", "256k", "(2/62/9/27)", "1,022 ±0.7%", "9.01 Gb/s ±0.7%"],
        ]
    );
}

#[test]
fn tcp_transmit_has_a_table_for_each_mtu() {
    let at = |place, mtu, load| {
        let axes = [("size", "64k"), ("tune.mtu", mtu), ("connections", "8"), ("load", load)];
        at(fixtures::tcp_stream(), &point(&axes, &[]), place, 1)
    };
    let measured =
        Measurements::of([at(1, "1500", "max"), at(2, "1500", "25%"), at(3, "9000", "max")]);
    let section = build("tcp-transmit", &measured);
    let tables = tables_of(&section);
    let title = "TCP Transmit tests using wirecost with write size = 64K and MTU = ";
    for (table, mtu) in tables.iter().step_by(2).zip(["1500", "9000"]) {
        assert_eq!(table.title, format!("{title}{mtu}: sender"));
        assert_eq!(table.common[1], Value::new("tune.mtu", mtu));
        assert_eq!((table.rows.len(), grid(table)[0][0]), (1, "#conn"));
    }
    let [.., paced, _] = tables[..] else { panic!("{tables:?}") };
    assert_eq!(grid(paced)[0][..4], ["size", "load", "MTU", "#conn"]);
    assert_eq!(grid(paced)[1][..4], ["64k", "25%", "1500", "8"]);
}

#[test]
fn tcp_transmit_of_hosts_that_share_cpus_is_of_the_machine() {
    let at = |place, connections| {
        let run = with(fixtures::loopback(), 1e9, [0.0, 0.0, 777.0]);
        at(run, &point(&[("connections", connections)], &[]), place, 1)
    };
    let measured = Measurements::of([at(1, "1"), at(2, "8")]);
    let section = build("tcp-transmit", &measured);
    let tables = tables_of(&section);
    assert_eq!(tables.len(), 1);
    assert_eq!(tables[0].title, "TCP Transmit tests using wirecost");
    let rows = grid(tables[0]);
    // No window is asked for.
    assert_eq!((rows[1][1], rows[1][3], rows[1][4]), ("auto", "777", "1.00 Gb/s"));
    assert!(texts_of(&section)[0].contains("whole machine"));
}

#[test]
fn an_axis_that_a_table_has_no_column_for_is_one_before_the_others() {
    let at = |place, engine| {
        let axes = [("engine", engine), ("connections", "8"), ("size", "64k")];
        at(fixtures::tcp_stream(), &point(&axes, &[]), place, 1)
    };
    let measured = Measurements::of([at(1, "epoll"), at(2, "threads")]);
    let section = build("tcp-transmit", &measured);
    let rows = grid(tables_of(&section)[0]);
    assert_eq!(rows[0][..2], ["engine", "#conn"]);
    assert_eq!((rows[1][0], rows[2][0]), ("epoll", "threads"));
}

/// Sun's HTTP GET, each point with so many runs.
fn http_get(repeats: u32) -> Measurements {
    let of_old = [
        ("1", 1585.10),
        ("10", 3631.86),
        ("30", 5790.68),
        ("100", 6577.13),
        ("300", 6537.30),
        ("1000", 6629.40),
        ("2000", 6652.14),
        ("3000", 6673.01),
    ];
    let runs = of_old.iter().enumerate().flat_map(|(place, (connections, megabits))| {
        (1..=repeats).map(move |repeat| {
            let megabits = megabits * (1.0 + 0.002 * f64::from(repeat - 1));
            let run = with(fixtures::tcp_stream(), megabits * 1e6, [1.0; 3]);
            let point = point(&[("connections", connections)], &[("option.wndsz", "256k")]);
            at(run, &point, place as u32 + 1, repeat)
        })
    });
    Measurements::of(runs)
}

#[test]
fn http_get_has_the_columns_of_old() {
    let section = build("http-get", &http_get(1));
    let rows = grid(tables_of(&section)[0]);
    let head = ["#Conn", "Wnd", "cpu(usr)", "cpu(sys)", "cpu(idle)", "Throughput (Mbps)"];
    assert_eq!(rows[0], head);
    // System calls 61.7, interrupts 0.4 + 8.8.
    assert_eq!(rows[1], ["1", "256k", "2", "71", "27", "1585.10"]);
    assert_eq!(rows[8][5], "6673.01");
}

/// The sentence that was written under the table of old by hand.
#[test]
fn how_far_http_get_scales_is_a_finding_of_repeated_runs() {
    let kinds = |measured: &Measurements| -> Vec<String> {
        let section = documents::findings::section(measured).unwrap_or_default();
        let findings = section.blocks.iter().filter_map(|block| match block {
            Block::Finding(finding) => Some(format!("{}: {}", finding.kind, finding.sentence)),
            _ => None,
        });
        findings.collect()
    };
    let sentence = "saturation: Throughput grows up to 100 connections (95% interval 30 to 100), reaching 6.59 Gb/s";
    let found = kinds(&http_get(3));
    assert!(found.iter().any(|of| of.starts_with(sentence)), "{found:#?}");
    let found = kinds(&http_get(1));
    assert!(!found.iter().any(|of| of.starts_with("saturation")), "{found:#?}");
}

#[test]
fn a_finding_is_fields_for_programs_and_a_sentence_for_people() {
    let mut document = Document::new("A study");
    document.sections.extend(documents::findings::section(&http_get(3)));
    let written = |format: &str| written(&document, format, 120);
    let json: serde_json::Value = serde_json::from_str(&written("json")).unwrap();
    let blocks = json["sections"][0]["blocks"].as_array().unwrap();
    let is_knee = |block: &&serde_json::Value| block["finding"]["kind"] == "saturation";
    let knee = &blocks.iter().find(is_knee).unwrap()["finding"];
    assert_eq!((&knee["axis"], &knee["metric"]), (&"connections".into(), &"throughput".into()));
    assert_eq!(knee["effect"]["value"], 100.0);
    assert_eq!(knee["effect"]["interval"], serde_json::json!([30.0, 100.0]));
    assert!(
        knee["p_value"].as_f64().unwrap() < 0.05
            && !knee["evidence"].as_array().unwrap().is_empty()
    );

    let csv = written("csv");
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let head = reader.headers().unwrap().clone();
    let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    let field = |row: &csv::StringRecord, name: &str| {
        row[head.iter().position(|title| title == name).unwrap()].to_owned()
    };
    let row = rows.iter().find(|row| field(row, "kind") == "saturation").unwrap();
    assert_eq!(field(row, "axis"), "connections");
    assert_eq!(
        [field(row, "value"), field(row, "value low"), field(row, "value high")],
        ["100", "30", "100"]
    );
    assert!(field(row, "sentence").starts_with("Throughput grows up to 100 connections"));

    for format in ["terminal", "markdown"] {
        let text = written(format);
        assert!(text.contains("Throughput grows up to 100 connections"), "{text}");
        assert!(text.contains("strong (adjusted p = "), "{text}");
    }
}

#[test]
fn io_engines_are_seen_beside_the_first() {
    let mut runs = Vec::new();
    for (place, (method, cycles)) in
        [("threads", 500.0), ("epoll", 400.0), ("zero-copy", 250.0)].into_iter().enumerate()
    {
        for repeat in 1..=3 {
            let cycles = cycles * (1.0 + 0.001 * f64::from(repeat - 2));
            let mut run = with(fixtures::tcp_stream(), 1e9, [1.0, 1.0, cycles]);
            if method == "zero-copy" {
                let copied_share = Some(0.25);
                let of = ZeroCopy { calls: 8, completed: 8, copied: 2, copied_share, refused: 0 };
                run.io = Some(wirecost_model::run::Io { zerocopy: Some(of), ..Default::default() });
            }
            let settings = [("engine", if method == "threads" { "threads" } else { "epoll" })];
            let mut point = point(&[("method", method)], &[]);
            point.settings = settings.map(|(n, v)| Value::new(n, v)).into();
            runs.push(at(run, &point, place as u32 + 1, repeat as u32));
        }
    }
    let section = build("io-engines", &Measurements::of(runs));
    let table = tables_of(&section)[0];
    let rows = grid(table);
    let head =
        ["method", "throughput", "cycles/KByte", "cycles/op", "operations", "copied", "cost/first"];
    assert_eq!(rows[0], head);
    let methods: Vec<&str> = rows[1..].iter().map(|row| row[0]).collect();
    assert_eq!(methods, ["threads", "epoll", "zero-copy"]);
    // 29,224,108,032 bytes in 178,432 operations are 159.944 KByte each.
    assert!(rows[1][3].starts_with("79,972"), "{}", rows[1][3]);
    assert_eq!((rows[1][5], rows[3][5]), ("-", "25.0%"));
    assert_eq!(rows[1][6], "1.00");
    let Cell::Number(ratio) = &table.rows[1][6] else { panic!("{:?}", table.rows[1][6]) };
    let (low, high) = ratio.interval.unwrap();
    assert!((ratio.value - 0.8).abs() < 1e-9 && low < 0.8 && 0.8 < high && high - low < 0.02);
}

#[test]
fn the_general_table_has_what_a_profile_has() {
    let titles = |measured: &Measurements| -> Vec<String> {
        let section = TableRequest::general().build(measured).unwrap();
        tables_of(&section)[0].columns.iter().map(|column| column.title.clone()).collect()
    };
    let own = ["size", "connections", "throughput", "cycles/KByte sender", "cycles/KByte receiver"];
    assert_eq!(titles(&sample()), own);
    // Request and response, of hosts that share their CPUs.
    let mut answers: Run = fixtures::loopback();
    let moved = answers.throughput.as_mut().unwrap();
    (moved.tx_bytes, moved.rx_bytes) = (64, 64);
    let named = [("a.json".to_owned(), answers.clone()), ("b.json".to_owned(), answers)];
    let expected = ["run", "throughput", "transactions", "p99", "cycles/KByte"];
    assert_eq!(titles(&Measurements::of(named)), expected);
}

#[test]
fn a_column_that_nothing_is_called_by_is_told_the_nearest() {
    let measured = sample();
    let unknown = |name: &str| columns("t", &[name]).build(&measured).unwrap_err().to_string();
    assert!(unknown("througput").ends_with("did you mean throughput?"));
    assert!(unknown("conections").ends_with("did you mean connections?"));
    assert!(unknown("option.wndz").ends_with("did you mean option.wndsz?"));
    assert!(unknown("xyzzy").ends_with("no setting and no metric"));
    assert_eq!(
        tables::find("tcp-transmitt").unwrap_err().to_string(),
        "there is no table tcp-transmitt; did you mean tcp-transmit?"
    );
}

/// As it is shown while a study goes on.
#[test]
fn a_point_alone_has_the_row_that_it_has_in_the_table() {
    let measured = sample();
    for wanted in [TableRequest::general(), columns("t", &["size", "throughput", "cpu.idle"])] {
        let rows = wanted.rows(&measured).unwrap();
        let section = wanted.build(&measured).unwrap();
        let table = tables_of(&section)[0];
        for (point, row) in measured.points.iter().zip(&table.rows) {
            assert_eq!(rows.row(point), *row);
        }
        let lines = Lines::new(&rows.head(), &table.rows, &TerminalStyle::plain(80));
        let line = lines.row(&rows.row(&measured.points[0]));
        assert!(line.trim_start().starts_with("64k"), "{line}");
        assert!(line.contains("9.01 Gb/s") && line.chars().count() <= 80, "{line}");
        assert!(lines.head().contains("throughput"));
    }
    // Sizes come mixed, so the row says which.
    let transmit =
        TableRequest::Named(tables::find("tcp-transmit").unwrap()).rows(&measured).unwrap();
    let texts: Vec<Cell> = transmit.row(&measured.points[5]);
    let texts: Vec<&str> = texts.iter().map(Cell::shown).collect();
    assert_eq!(texts[..3], ["1k", "4000", "32k"]);
}

/// A study of different profiles, where the first run moves data one way and later ones answer requests.
#[test]
fn lines_of_a_study_keep_the_columns_of_their_head() {
    let measured = sample();
    let table = TableRequest::general();
    let points: Vec<_> = measured.points.iter().map(|point| point.point.clone()).collect();
    let mut lines = RunLines::new(&table, &points, TerminalStyle::plain(100));
    let mut failed = measured.points[0].runs[0].clone();
    failed.status = Status::Invalid;
    failed.error = Some("no counters".to_owned());
    let first = lines.of("1/9", 0, &failed, "");
    assert_eq!(first, [format!("  1/9  {}: no counters", points[0])]);
    let warm_up = lines.of("1/9", 0, &failed, "  (warm-up)");
    assert_eq!(warm_up, [format!("  1/9  {}  (warm-up): no counters", points[0])]);
    let mut one_way = measured.points[0].runs[0].clone();
    let of = one_way.throughput.as_mut().unwrap();
    (of.tx_bytes, of.rx_bytes) = (of.tx_bytes + of.rx_bytes, 0);
    let mut answers = measured.points[1].runs[0].clone();
    let of = answers.throughput.as_mut().unwrap();
    (of.tx_bytes, of.rx_bytes) = (1 << 20, 1 << 20);
    let second = lines.of("2/9", 0, &one_way, "");
    let [head, row] = second.as_slice() else { panic!("{second:?}") };
    assert!(head.trim_start().starts_with("run"), "{head}");
    let third = lines.of("3/9", 1, &answers, "");
    let [later] = third.as_slice() else { panic!("{third:?}") };
    assert_eq!((row.len(), later.len()), (head.len(), head.len()), "{head}\n{row}\n{later}");
    let cells = |line: &str| line.split("  ").filter(|cell| !cell.is_empty()).count();
    assert_eq!(cells(row), cells(later), "{head}\n{row}\n{later}");
    // What a run is worth is never cut off.
    let warm_up = lines.of("4/9", 1, &answers, "  (warm-up)");
    assert!(warm_up[0].ends_with("  (warm-up)") && warm_up[0].len() <= 100, "{warm_up:?}");
}

#[test]
fn what_would_move_the_cursor_is_not_for_a_terminal() {
    let mut report = Document::new("t\u{1b}[2J");
    let mut section = Section::new("s\u{7}");
    let rows = vec![vec![Cell::text("a\u{1b}[31m"), Cell::Missing("b\u{1b}c".to_owned())]];
    section.table(Table { title: "x\ry".into(), columns: two_columns(), rows, ..Table::default() });
    report.sections.push(section);
    let text = written(&report, "terminal", 80);
    assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
}

fn two_columns() -> Vec<Column> {
    vec![Column::text("name"), Column::number("value")]
}

#[test]
fn csv_is_one_table_that_loses_nothing() {
    let text = written(&report(), "csv", 80);
    let mut lines = csv_rows(&text);
    let head = lines.remove(0);
    assert!(lines.iter().all(|line| line.len() == head.len()));
    let field = |row: &'_ [String], name: &str| -> String {
        row[head.iter().position(|title| title == name).unwrap()].clone()
    };
    let of = |name: &str| lines.iter().filter(|row| field(row, "name") == name).collect::<Vec<_>>();
    // Six points, two ends; and the same points once more.
    assert_eq!((of("tcp-transmit").len(), of("columns").len(), lines.len()), (12, 6, 18));
    let first = of("tcp-transmit")[0];
    assert_eq!(field(first, "#conn"), "1");
    assert_eq!(field(first, "Throughput (b/s)").parse::<f64>().unwrap(), 9.0135e9);
    assert!(field(first, "Throughput low (b/s)").parse::<f64>().unwrap() < 9.0135e9);
    assert_eq!(field(first, "usr (%)"), "2.1");
    // What the title says is there for a program too.
    assert_eq!((field(first, "size"), field(first, "host")), ("64k".into(), "sender".into()));
    let missing = of("columns")[5];
    assert_eq!(field(missing, "hosts.receiver.cycles_per_kbyte"), "");
    let reasons = field(missing, "not measured");
    assert!(reasons.contains("hosts.receiver.cycles_per_kbyte: its TSC is not constant"));
}

/// As another program reads it.
fn csv_rows(text: &str) -> Vec<Vec<String>> {
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(text.as_bytes());
    let owned = |row: csv::StringRecord| row.iter().map(str::to_owned).collect();
    reader.records().map(|row| owned(row.unwrap())).collect()
}

#[test]
fn a_name_cannot_break_a_table_of_markdown() {
    let mut report = Document::new("t");
    let mut section = Section::new("s");
    let rows = vec![vec![Cell::text("a|b\nc"), Cell::number(Unit::Count, 1.0)]];
    section.table(Table { title: String::new(), columns: two_columns(), rows, ..Table::default() });
    report.sections.push(section);
    let text = written(&report, "markdown", 80);
    assert!(text.ends_with("| a\\|b c | 1 |\n"), "{text}");
}

/// Cells, and a mark that each has so that it can be found again.
fn cell(mark: String) -> impl Strategy<Value = Cell> {
    prop_oneof![
        "[a-z .]{0,60}".prop_map({
            let mark = mark.clone();
            move |text| Cell::text(format!("{mark} {text}"))
        }),
        "[a-z]{0,120}".prop_map({
            let mark = mark.clone();
            move |text| Cell::set(&format!("{mark} {text}"))
        }),
        Just(Cell::text(format!("{mark} {}", "\u{7d42}\u{7aef}".repeat(20)))),
        Just(Cell::set(&mark)),
        Just(Cell::Missing(format!("{mark} was not measured"))),
    ]
}

fn table() -> impl Strategy<Value = Table> {
    (1usize..14, 0usize..5).prop_flat_map(|(columns, rows)| {
        let head = proptest::collection::vec(
            ("[a-z._]{1,40}( [a-z]{1,12}){0,3}", any::<bool>()).prop_map(|(title, left)| {
                if left { Column::text(&title) } else { Column::number(&title) }
            }),
            columns,
        );
        let rows: Vec<Vec<_>> = (0..rows)
            .map(|row| (0..columns).map(|c| cell(format!("r{row}c{c}"))).collect())
            .collect();
        (head, rows, "[a-z ]{0,200}").prop_map(|(columns, rows, title)| Table {
            title,
            columns,
            rows,
            ..Table::default()
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_table_is_wider_than_the_terminal_and_none_loses_a_cell(
        table in table(), width in 40usize..140,
    ) {
        let mut report = Document::new("title");
        let mut section = Section::new("section");
        section.table(table.clone());
        report.sections.push(section);
        let text = written(&report, "terminal", width);
        for line in text.lines() {
            let wide = unicode_width::UnicodeWidthStr::width(line);
            prop_assert!(wide <= width, "{} of {}: {}", wide, width, line);
            prop_assert_eq!(line.trim_end(), line);
        }
        for row in 0..table.rows.len() {
            for column in 0..table.columns.len() {
                let mark = format!("r{row}c{column}");
                prop_assert!(text.contains(&mark), "{} is lost:\n{}", mark, text);
            }
        }
    }
}

#[test]
fn runs_that_did_not_end_well_do_not_count_and_are_told() {
    let named = |name: &str, run| (name.to_owned(), run);
    let measured = Measurements::of([
        named("well", fixtures::udp_loss()),
        named("failed", fixtures::failed()),
        named("invalid", fixtures::invalid()),
    ]);
    let section = TableRequest::general().build(&measured).unwrap();
    let table = tables_of(&section)[0];
    let place = table.columns.iter().position(|column| column.title == "throughput").unwrap();
    assert!(matches!(&table.rows[0][place], Cell::Number(_)));
    for row in &table.rows[1..] {
        assert!(matches!(&row[place], Cell::Missing(reason) if !reason.is_empty()), "{row:?}");
    }
    let about = tables::about(&measured, &[]);
    let said = texts_of(&about).join("\n");
    assert!(said.contains("1 run of 3 points; 2 failed runs excluded"), "{said}");
    for run in [fixtures::failed(), fixtures::invalid()] {
        assert!(said.contains(&run.error.unwrap()), "{said}");
    }
}
