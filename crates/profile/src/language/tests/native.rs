//! The native language: what is read, what is refused, and that it and uperf's say the same.

use std::fmt::Write as _;
use std::time::Duration;

use proptest::prelude::*;
use wirecost_model::profile::{
    Arrivals, ByStrand, Choice, Conns, IoValue, Part, Payload, Position, Profile, Quantity, Trace,
    Until, Weighted,
};

use super::super::native::{KEYS, Table};
use super::super::{Form, Language, NoteKind, OptionDef, ValueKind, options, unrepresentable};
use super::*;
use crate::builtins::{self, Default};
use crate::flowops::Flowops;
use crate::io_options::ValueType;

#[track_caller]
fn read_with(source: &str, variables: &dyn Variables) -> Parsed {
    Language::Toml.parse(source, variables).unwrap_or_else(|errors| panic!("{errors:#?}"))
}

#[track_caller]
fn read(source: &str) -> Parsed {
    read_with(source, &no_variables())
}

#[track_caller]
fn mistakes(source: &str) -> Vec<LanguageError> {
    match Language::Toml.parse(source, &no_variables()) {
        Ok(parsed) => panic!("{parsed:#?}"),
        Err(errors) => errors,
    }
}

fn flowops(list: &str) -> String {
    format!("[[group]]\n[[group.transaction]]\nflowops = [\n{list}\n]\n")
}

/// The options of the only flowop.
#[track_caller]
fn of_write(options: &str) -> wirecost_model::profile::Options {
    let parsed = read(&flowops(&format!("{{ type = \"write\", {options} }}")));
    first_flowop(&parsed.profile).options.clone()
}

#[track_caller]
fn size(value: &str) -> Quantity {
    of_write(&format!("size = {value}")).size.unwrap()
}

#[test]
fn a_whole_profile() {
    let source = include_str!("profiles/native.toml");
    let parsed = read_with(source, &|name: &str| (name == "h").then(|| "server".to_owned()));
    assert_eq!((notes(&parsed), &parsed.refusals), (vec![], &vec![]));
    let group = &parsed.profile.groups[0];
    assert_eq!((parsed.profile.name.as_str(), group.name.as_str(), group.strands), ("all", "g", 4));
    let [open, main, rest] = group.transactions.as_slice() else { panic!("{group:#?}") };
    assert_eq!(open.until, Until::Iterations(1));
    let connect = &open.flowops[0].options;
    assert_eq!(connect.remotehost.as_deref(), Some("server"));
    assert_eq!((connect.conn, connect.port), (Conns { first: 1, last: 3 }, Some(5001)));
    let io = |name: &str| connect.io.get(name).cloned();
    assert_eq!(io("dscp"), Some(IoValue::Number(46)));
    assert_eq!(io("tcp_nodelay"), Some(IoValue::On));
    assert_eq!(io("wndsz"), Some(IoValue::Number(1 << 20)));
    assert_eq!(open.order, []);
    assert_eq!(main.until, Until::Duration(Duration::from_millis(1500)));
    assert_eq!(main.arrivals, Some(Arrivals::Poisson(250.5)));
    let flowop = Part::Flowop;
    let choice = |weight, parts: &[Part]| Choice { weight, parts: parts.to_vec() };
    let looped = Part::Loop { times: 3, parts: vec![flowop(3), flowop(4)] };
    let mix = Part::Mix(vec![choice(3, &[flowop(1), flowop(2)]), choice(1, &[looped])]);
    assert_eq!(main.order, [flowop(0), mix, flowop(5)]);
    let sizes: Vec<_> = main.flowops.iter().filter_map(|f| f.options.size.clone()).collect();
    let value = |value, weight| Weighted { value, weight };
    assert_eq!(
        sizes,
        [
            Quantity::Lognormal { median: 8192, sigma: 1_200_000, min: 1, max: 1 << 20 },
            Quantity::Table(vec![value(64, 7), value(8192, 2), value(1 << 20, 1)]),
            Quantity::ByStrand(ByStrand::Spread { first: 100, last: 1000 }),
            Quantity::Fixed(65536),
        ]
    );
    assert_eq!(
        main.flowops[0].options.duration,
        Some(Quantity::Exponential { mean: 1_000_000, min: 0, max: 20_000_000 })
    );
    assert_eq!(main.flowops[1].options.payload, Payload::Zero);
    assert_eq!(main.flowops[2].options.timeout, Some(Duration::from_millis(250)));
    let trace = Trace { file: "arrivals.txt".to_owned(), intervals: true, starts: vec![] };
    assert_eq!(rest.arrivals, Some(Arrivals::Trace(trace)));
    assert_eq!(rest.flowops[0].kind, "disconnect");
    assert_eq!(main.flowops[0].at.to_string(), "21:3");
}

#[test]
fn distributions() {
    let random = Quantity::Random { min: 1, max: 8192 };
    assert_eq!(size("{ uniform = { min = 1, max = \"8k\" } }"), random);
    assert_eq!(size("\"imix\""), Quantity::Imix { headers: 28 });
    assert_eq!(size("{ imix = { headers = 20 } }"), Quantity::Imix { headers: 20 });
    let each = Quantity::ByStrand(ByStrand::Each(vec![1024, 7]));
    assert_eq!(size("{ by_strand = [\"1k\", 7] }"), each);
    let drawn = Quantity::ByStrand(ByStrand::Drawn(Box::new(random)));
    assert_eq!(size("{ by_strand = { uniform = { min = 1, max = \"8k\" } } }"), drawn);
    // Far ends are filled in: e^5 times the median, 20 means.
    let lognormal = Quantity::Lognormal { median: 100, sigma: 1_000_000, min: 1, max: 14_841 };
    assert_eq!(size("{ lognormal = { median = 100, sigma = 1 } }"), lognormal);
    let exponential = Quantity::Exponential { mean: 100, min: 5, max: 2000 };
    assert_eq!(size("{ exponential = { mean = 100, min = 5 } }"), exponential);
}

#[test]
fn variables_are_filled_in_everywhere() {
    let source = "[variables]\nn = 3\nhost = { default = \"a-${x}\", help = \"which\" }\nx = \"b\"\n\
                  small = 64\nwrong = 1\n[[group]]\nstrands = \"${n}\"\n[[group.transaction]]\n\
                  flowops = [{ type = \"connect\", protocol = \"t${c}p\", remotehost = \"x${n}.${x}$${n}\" }, \
                  { type = \"write\", size = { table = { \"${small}\" = 1 } } }]\n";
    let c = |name: &str| match name {
        "c" => Some("c".to_owned()),
        // What comes from outside beats what the file says.
        "n" => Some("4".to_owned()),
        _ => None,
    };
    // A default is no place for other variables.
    let errors = Language::Toml.parse(source, &c).unwrap_err();
    assert_eq!(messages(&errors), ["3:20 variable 'x' is not set"]);
    let source = source.replace("a-${x}", "a");
    let parsed = read_with(&source, &c);
    let unused: Vec<_> = parsed.notes.iter().map(|note| note.kind.clone()).collect();
    let unused_variable = |name: &str| NoteKind::UnusedVariable { name: name.to_owned() };
    assert_eq!(unused, [unused_variable("host"), unused_variable("wrong")]);
    assert_eq!(parsed.profile.groups[0].strands, 4);
    let connect = &first_flowop(&parsed.profile).options;
    assert_eq!(connect.remotehost.as_deref(), Some("x4.b${n}"));
    assert_eq!(connect.protocol.as_deref(), Some("tcp"));
    let uses: Vec<_> = Language::Toml
        .variables(&source)
        .into_iter()
        .map(|u| format!("{} {} {} {}", u.position, u.option, u.name, u.has_default))
        .collect();
    assert_eq!(
        uses,
        [
            "8:11 strands n true",
            "10:43 protocol c false",
            "10:66 remotehost n true",
            "10:66 remotehost x true",
            "10:124 ${small} small true",
        ]
    );
}

/// Errors as a person sees them.
fn shown(source: &str, errors: &[LanguageError]) -> String {
    let mut out = String::new();
    for error in errors {
        let marked = &source[error.span.offset..error.span.offset + error.span.length];
        let marked = marked.lines().next().unwrap_or_default();
        let _ = writeln!(out, "{} {error}\n    at: {marked}", error.at);
        let _ = writeln!(out, "    help: {}", error.help().unwrap());
    }
    out
}

#[test]
fn mistakes_of_form_are_placed_and_explained() {
    let source = "nmae = \"x\"\n[[group]]\nstrand = 3\nname = 4\n[[group.transaction]]\n\
                  iterations = 1\nduration = \"1s\"\nrat = 4\nflowops = [\n\
                  { type = \"raed\", sise = 64 },\n{ size = 64 },\n{ loop = 0, flowops = [\"nop\"] },\n\
                  { loop = 2 },\n{ mix = [] },\n{ mix = [{ wieght = 1, flowops = [] }] },\n7,\n\
                  { type = \"write\", tcp_nodelay = 1, size = [1] },\n]\n\
                  [[group.transaction]]\nrate = 5\nflowops = [{ loop = 2, flowops = [{ loop = 2, flowops = [\
                  { loop = 2, flowops = [{ loop = 2, flowops = [{ loop = 2, flowops = [\"nop\"] }] }] }] }] }]\n\
                  [[group.transaction]]\nduration = \"1s\"\narrivals = \"poisson\"\n\
                  [[group.transaction]]\nduration = \"1s\"\narrivals = { trace = \"a\", intervals = \"b\" }\n";
    insta::assert_snapshot!(shown(source, &mistakes(source)));
}

#[test]
fn mistakes_in_values_are_placed_and_explained() {
    let source = flowops(
        "{ type = \"write\", size = \"64kb\", count = 1.5, timeout = \"2m\", conn = 0 },\n\
         { type = \"write\", size = 0, rsize = \"4g\", payload = \"ones\", conn = \"5..2\" },\n\
         { type = \"connect\", protocol = \"tpc\", port = 70000, remotehost = \"${nobody}\", bind = \"${x\" },\n\
         { type = \"write\", size = { uniform = { min = 9, max = 3 } } },\n\
         { type = \"write\", size = { lognormal = { median = 9, sigma = -1 } } },\n\
         { type = \"write\", size = { uniform = { min = 9 }, imix = {} } },\n\
         { type = \"write\", size = { normal = { mean = 3 } } },\n\
         { type = \"write\", size = { table = { 64 = 0, x = 1 } } },\n\
         { type = \"write\", size = { by_strand = { by_strand = [1] } } },\n\
         { type = \"think\", duration = { imix = {} } },\n\
         { type = \"think\", duration = \"0s\" },\n\
         { type = \"write\", size = { imix = { headers = 40 } }, dscp = \"\\u0000\" },",
    );
    insta::assert_snapshot!(shown(&source, &mistakes(&source)));
}

#[test]
fn what_is_no_toml_is_placed() {
    for (source, place) in [("[[group]\n", "1:9"), ("a = \nb = 1\n", "1:5"), ("x", "1:1")] {
        let errors = mistakes(source);
        assert!(errors[0].to_string().starts_with("this is not TOML: "), "{errors:?}");
        assert_eq!(errors[0].at.to_string(), place, "{errors:?}");
    }
    // Not only the first.
    assert_eq!(mistakes("a = 1 2\nb = ]\n").len(), 2);
}

#[test]
fn a_profile_that_cannot_run_is_one_all_the_same() {
    let parsed = read(&flowops("{ type = \"read\", size = 1 },\n\"connect\","));
    assert_eq!(
        messages(&parsed.refusals),
        [
            "4:1 read uses the connection without id, which is not open at that point",
            "5:1 connect needs protocol",
            "5:1 connect needs remotehost",
        ]
    );
}

#[test]
fn a_file_is_known_by_its_name_or_its_beginning() {
    assert_eq!(Language::of("a.TOML", "<"), Language::Toml);
    assert_eq!(Language::of("a.xml", "x = 1"), Language::Xml);
    assert_eq!(Language::of("/dev/stdin", " \n<?xml"), Language::Xml);
    assert_eq!(Language::of("@rr", "# <profile>\n[[group]]"), Language::Toml);
    assert_eq!(Language::of("empty", ""), Language::Xml);
}

fn builtin_variables(builtin: &builtins::Builtin) -> impl Variables {
    |name: &str| {
        let variable = builtin.variables.iter().find(|v| v.name == name)?;
        Some(match variable.default {
            Default::Text(text) => text.to_owned(),
            Default::Host => "peer".to_owned(),
            Default::Executable => "/usr/bin/wirecost".to_owned(),
        })
    }
}

#[test]
fn every_builtin_says_the_same_in_both_languages_where_it_can() {
    let mut both = 0;
    for builtin in &builtins::ALL {
        let language = Language::of("", builtin.source);
        let variables = builtin_variables(builtin);
        let meant = language.parse(builtin.source, &variables).unwrap().profile;
        let native = Language::Toml.print(&meant);
        let again = read(&native);
        assert_eq!(again.notes, [], "{native}");
        let again = without_positions(again.profile);
        assert_eq!(again, without_positions(meant.clone()), "{native}");
        if !unrepresentable(&meant, Language::Xml, builtin.source).is_empty() {
            assert_eq!(language, Language::Toml);
            continue;
        }
        both += 1;
        let xml = Language::Xml.print(&again);
        assert_eq!(without_positions(accepted(&xml).profile), again, "{xml}");
    }
    // All that are written in the older language.
    let older = builtins::ALL.iter().filter(|b| Language::of("", b.source) == Language::Xml);
    assert_eq!(both, older.count());
}

#[test]
fn what_cannot_be_said_is_told() {
    let source = include_str!("profiles/native.toml");
    let parsed = read_with(source, &|name: &str| (name == "h").then(|| "server".to_owned()));
    let lost = unrepresentable(&parsed.profile, Language::Xml, source);
    insta::assert_snapshot!(shown(source, &lost));
    let xml = around(
        "<flowop/>\n<flowop type=\"write\" options=\"size=rand(9,3)\"/>\n<flowop type=\"nop\" options=\"count=-1\"/>",
    );
    let lost = unrepresentable(&accepted(&xml).profile, Language::Toml, &xml);
    let lost: Vec<_> = messages(&lost);
    assert_eq!(lost.len(), 3, "{lost:#?}");
    assert!(
        lost[1].starts_with("5:1 rand(9,3) cannot be expressed in the native language"),
        "{lost:#?}"
    );
}

/// docs/profiles.md is the whole language.
#[test]
fn every_key_is_in_the_documentation() {
    let page = include_str!("../../../../../docs/profiles.md");
    for key in KEYS {
        assert!(page.contains(&format!("`{}`", key.name)), "{} of {:?}", key.name, key.table);
        assert!(!key.help.is_empty());
    }
    for option in options() {
        assert!(page.contains(&format!("`{}`", option.name)), "{}", option.name);
    }
    // No option of a flowop may be taken for a loop, a mix or a type.
    for key in KEYS.iter().filter(|k| matches!(k.table, Table::Flowop | Table::Loop | Table::Mix)) {
        assert!(options().iter().all(|option| option.name != key.name), "{}", key.name);
    }
}

// Printing loses nothing: what uperf's language has, and then what it has not.

fn native_quantity() -> impl Strategy<Value = Quantity> {
    let amount = || prop_oneof![1..5000u64, (1..2000u64).prop_map(|k| k << 10)];
    let ordered = (amount(), amount()).prop_map(|(a, b)| (a.min(b), a.max(b)));
    let weighted = (amount(), 1..9u32).prop_map(|(value, weight)| Weighted { value, weight });
    let table = proptest::collection::vec(weighted, 1..5).prop_map(|mut values| {
        values.sort_unstable_by_key(|v| v.value);
        values.dedup_by_key(|v| v.value);
        Quantity::Table(values)
    });
    let drawn = prop_oneof![
        amount().prop_map(Quantity::Fixed),
        ordered.clone().prop_map(|(min, max)| Quantity::Random { min, max }),
        (amount(), 1..10_000_000u64, ordered.clone()).prop_map(|(median, sigma, (min, max))| {
            Quantity::Lognormal { median, sigma, min, max }
        }),
        (amount(), ordered).prop_map(|(mean, (min, max))| Quantity::Exponential { mean, min, max }),
        table,
    ];
    prop_oneof![
        3 => drawn.clone(),
        1 => proptest::collection::vec(amount(), 1..4)
            .prop_map(|values| Quantity::ByStrand(ByStrand::Each(values))),
        1 => (amount(), amount())
            .prop_map(|(first, last)| Quantity::ByStrand(ByStrand::Spread { first, last })),
        1 => drawn.prop_filter_map("a constant is no distribution", |drawn| match drawn {
            Quantity::Fixed(_) => None,
            drawn => Some(Quantity::ByStrand(ByStrand::Drawn(Box::new(drawn)))),
        }),
    ]
}

/// The native language has no word for strands that uperf would run as processes: they run alike.
fn of_threads(mut profile: Profile) -> Profile {
    for group in &mut profile.groups {
        group.processes = false;
    }
    profile
}

/// What the generator of uperf's profiles makes, without what the native language has not, and with
/// something of what uperf's has not.
fn native_profile() -> impl Strategy<Value = Profile> {
    let extra = (native_quantity(), native_quantity(), 0..5usize, 1..4u32, "[^\u{0}]{1,9}");
    (print::profile(), proptest::collection::vec(extra, 8)).prop_map(|(profile, extras)| {
        let mut extras = extras.into_iter().cycle();
        let mut profile = of_threads(profile);
        for transaction in profile.groups.iter_mut().flat_map(|g| &mut g.transactions) {
            for flowop in &mut transaction.flowops {
                let (size, pause, ..) = extras.next().unwrap();
                let options = &mut flowop.options;
                options.count = if options.count == u64::MAX { 1 } else { options.count };
                if flowop.kind.is_empty() {
                    flowop.kind = "nop".to_owned();
                }
                options.size = options.size.take().map(|_| size);
                options.duration = options.duration.take().map(|_| pause);
            }
            let (.., shape, number, text) = extras.next().unwrap();
            let parts: Vec<Part> =
                (0..transaction.flowops.len() as u32).map(Part::Flowop).collect();
            let choice = |parts: &[Part]| Choice { weight: number, parts: parts.to_vec() };
            if let [first, rest @ ..] = parts.as_slice() {
                transaction.order = match shape {
                    0 => vec![Part::Loop { times: number, parts: parts.clone() }],
                    1 if !rest.is_empty() => {
                        vec![Part::Mix(vec![choice(std::slice::from_ref(first)), choice(rest)])]
                    }
                    2 if !rest.is_empty() => {
                        let inner = Part::Loop { times: number, parts: rest.to_vec() };
                        vec![first.clone(), Part::Loop { times: 2, parts: vec![inner] }]
                    }
                    _ => vec![],
                };
            }
            if let (Until::Duration(_), Some(Arrivals::Even(rate))) =
                (transaction.until, transaction.arrivals.clone())
            {
                let rate = rate / 7.0;
                transaction.arrivals = Some(match shape {
                    0 => Arrivals::Poisson(rate.min(1e9)),
                    1 => Arrivals::Trace(Trace {
                        file: text,
                        intervals: number == 2,
                        starts: vec![],
                    }),
                    _ => Arrivals::Even(rate.min(1e9)),
                });
            }
        }
        profile
    })
}

proptest! {
    #[test]
    fn what_is_printed_reads_the_same(profile in native_profile()) {
        let printed = Language::Toml.print(&profile);
        let read = Language::Toml.parse(&printed, &no_variables());
        let read = read.unwrap_or_else(|errors| panic!("{errors:#?}\n{printed}")).profile;
        prop_assert_eq!(without_positions(read), profile, "{}", printed);
    }

    /// What both can say, they say alike.
    #[test]
    fn conversions_go_both_ways(profile in print::profile().prop_map(of_threads)) {
        let xml = Language::Xml.print(&profile);
        if unrepresentable(&profile, Language::Toml, &xml).is_empty() {
            let toml = Language::Toml.print(&profile);
            let read = without_positions(read(&toml).profile);
            prop_assert_eq!(&read, &profile, "{}", toml);
            prop_assert_eq!(unrepresentable(&read, Language::Xml, &toml), []);
            prop_assert_eq!(without_positions(accepted(&Language::Xml.print(&read)).profile), profile);
        }
    }
}

#[test]
fn a_place_is_where_the_file_says() {
    let parsed =
        read("[[group]]\n\n[[group.transaction]]\n[[group.transaction.flowops]]\ntype = \"nop\"\n");
    let group = &parsed.profile.groups[0];
    let transaction = &group.transactions[0];
    let at = |line, column| Position { line, column };
    assert_eq!(group.at, at(1, 1));
    assert_eq!((transaction.at, transaction.flowops[0].at), (at(3, 1), at(4, 1)));
}

/// The table of options in docs/profiles.md is made of the list in the code
/// (`UPDATE_DOCS=1 cargo test -p wirecost-profile documentation` writes it).
#[test]
fn the_documentation_lists_the_options() {
    const MARK: &str = "<!-- options -->\n";
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/profiles.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (text, _) = page.split_once(MARK).unwrap();
    let mut wanted =
        format!("{text}{MARK}\n| option | flowops | value | meaning |\n|---|---|---|---|\n");
    for option in options() {
        let of = match option.applies {
            Flowops::Any => "any".to_owned(),
            some => some.names().collect::<Vec<_>>().join(" "),
        };
        let built = if matches!(option.value, ValueKind::Unsupported(_)) {
            " (not supported yet)"
        } else {
            ""
        };
        let (name, kind, help) = (option.name, kind(option), option.help);
        let _ = writeln!(wanted, "| `{name}` | {of} | {kind} | {help}{built} |");
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &wanted).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), wanted);
}

/// How the value of an option is written, in a few words.
fn kind(option: &OptionDef) -> String {
    const INT_MAX: u64 = i32::MAX as u64;
    match &option.value {
        _ if option.is_flag() => "flag".to_owned(),
        ValueKind::Io(io) => match io.value() {
            ValueType::Number { max: INT_MAX, .. } => {
                "number, optional suffix k, m or g".to_owned()
            }
            ValueType::Number { max, .. } => format!("number up to {max}"),
            ValueType::Time { .. } => "time".to_owned(),
            ValueType::Choice(words) => words.join(", "),
            _ => "text".to_owned(),
        },
        ValueKind::Integer { max, .. } if *max < i32::MAX as u64 => format!("number up to {max}"),
        ValueKind::Integer { .. } => "number, optional suffix k, m or g".to_owned(),
        ValueKind::Plain { .. } => "count".to_owned(),
        ValueKind::Time { .. } => "time".to_owned(),
        ValueKind::Size => "bytes or a distribution".to_owned(),
        ValueKind::Pause => "time or a distribution".to_owned(),
        ValueKind::Conns => "number or range".to_owned(),
        ValueKind::Port => "number from 1 to 65535".to_owned(),
        ValueKind::Unsupported(Form::Integer { .. } | Form::Plain { .. }) => "number".to_owned(),
        _ => "text".to_owned(),
    }
}
