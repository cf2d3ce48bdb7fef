//! What uperf accepts means the same here. One test for each quirk that was seen when uperf ran.

use std::collections::BTreeMap;
use std::time::Duration;

use wirecost_model::profile::{Arrivals, Cipher, Conns, IoValue, Pause, Payload, Size, Until};

use super::super::*;
use super::*;

fn set(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn templates_with_unquoted_values_and_a_missing_end_tag() {
    let parsed = accepted(include_str!("profiles/template.xml"));
    let group = &parsed.profile.groups[0];
    assert_eq!(parsed.profile.name, "stream-tcp-1024-2");
    assert_eq!((group.strands, group.name.as_str()), (2, "Group0"));
    let kinds: Vec<Vec<_>> = group
        .transactions
        .iter()
        .map(|t| t.flowops.iter().map(|f| f.kind.as_str()).collect())
        .collect();
    assert_eq!(kinds, [vec!["connect"], vec!["write"], vec!["disconnect"]]);
    assert_eq!(group.transactions[1].until, Until::Duration(Duration::from_secs(30)));
    let write = &group.transactions[1].flowops[0].options;
    assert_eq!((write.count, &write.size), (16, &Some(Size::Fixed(1024))));
    assert_eq!(group.transactions[0].flowops[0].options.port, Some(30001));
    assert_eq!(notes(&parsed), ["7:3 <transaction> is not closed"]);
    assert_eq!(parsed.refusals, []);
}

#[test]
fn variables_are_whole_values() {
    let values = set(&[
        ("nthreads", "4"),
        ("duration", "1.5"),
        ("remotehost", "Host.Example"),
        ("protocol", "TCP"),
        ("port", "5000"),
        ("wsize", "64k"),
        ("rsize", "1k"),
        ("think", "1ms"),
    ]);
    let source = include_str!("profiles/variables.xml");
    let parsed = accepted_with(source, &values);
    let group = &parsed.profile.groups[0];
    let options = |index: usize| &group.transactions[0].flowops[index].options;
    assert_eq!(group.strands, 4);
    assert_eq!(group.transactions[0].until, Until::Duration(Duration::from_millis(1500)));
    assert_eq!(options(0).remotehost.as_deref(), Some("Host.Example"));
    assert_eq!(options(0).protocol.as_deref(), Some("tcp"));
    assert_eq!(options(0).port, Some(5000));
    assert_eq!(options(1).size, Some(Size::Fixed(65536)));
    assert_eq!(options(2).duration, Some(Pause::Fixed(1_000_000)));
    assert_eq!(options(3).size, Some(Size::Fixed(1024)));
    assert_eq!(notes(&parsed), [""; 0]);
    assert_eq!(Language::Xml.variables(source).len(), 8);
}

#[test]
fn the_exact_name_of_a_variable_comes_before_the_lower_case_one() {
    let source = around("<flowop type=connect options=\"remotehost=$HOST protocol=tcp\" />");
    let host = |variables: &[(&str, &str)]| {
        let parsed = accepted_with(&source, &set(variables));
        first_flowop(&parsed.profile).options.remotehost.clone()
    };
    assert_eq!(host(&[("host", "a")]).as_deref(), Some("a"));
    assert_eq!(host(&[("host", "a"), ("HOST", "B")]).as_deref(), Some("B"));
}

#[test]
fn unset_and_empty_variables() {
    let source = around("<flowop type=connect options=\"remotehost=$h protocol=$p\" />");
    let errors = refused_with(&source, &set(&[("p", "tcp")]));
    assert_eq!(
        errors[0].kind,
        LanguageErrorKind::UnsetVariable { name: "h".to_owned(), remotehost: true }
    );
    assert_eq!(errors.len(), 1);
    // An empty option is passed on; an empty attribute is an error.
    let parsed = accepted_with(&source, &set(&[("p", "tcp"), ("h", "")]));
    assert_eq!(first_flowop(&parsed.profile).options.remotehost, None);
    let errors = refused_with("<group nthreads=$n >\n", &set(&[("n", "")]));
    assert_eq!(messages(&errors), ["1:17 variable 'n' is empty"]);
    let errors = refused("<group nthreads=$N >\n");
    assert_eq!(messages(&errors), ["1:17 variable 'N' is not set"]);
}

#[test]
fn a_variable_can_be_a_whole_option_list() {
    let source =
        around("<flowop type=write options=\"$opts\" />\n<flowop type=read options=$opts />");
    let variables = set(&[("opts", "size=$s count=3 conn=1"), ("s", "4k")]);
    let parsed = accepted_with(&source, &variables);
    // uperf sees only the first word the second time: it has cut the variable itself to pieces.
    for flowop in &parsed.profile.groups[0].transactions[0].flowops {
        assert_eq!(flowop.options.size, Some(Size::Fixed(4096)));
        assert_eq!(flowop.options.count, 3);
    }
}

#[test]
fn words_that_are_no_options_are_dropped_but_unknown_options_are_not() {
    let (flowop, notes) = flowop("size=1 $opts 4bogus=1 -x");
    assert_eq!(flowop.options.size, Some(Size::Fixed(1)));
    assert_eq!(notes.len(), 3, "{notes:#?}");
    assert!(notes[0].starts_with("4:38 '$opts' is dropped"), "{}", notes[0]);
    assert!(notes[1].starts_with("4:44 '4bogus=1' is dropped"), "{}", notes[1]);
    let errors = refused(&around("<flowop type=write options=\"bogus=1\" />"));
    assert_eq!(messages(&errors), ["4:29 unknown option 'bogus'"]);
}

#[test]
fn case_does_not_matter_for_keywords_and_is_kept_in_values() {
    let source = "<PROFILE Name=Xy>\n<Group NThreads=2>\n<TRANSACTION Iterations=1>\n\
                  <FLOWOP Type=SendFile Options=\"DIR=/Srv/Data Count=2\" />\n</TRANSACTION>\n</GROUP>\n</PROFILE>\n";
    let parsed = accepted(source);
    let flowop = first_flowop(&parsed.profile);
    assert_eq!(flowop.kind, "sendfile");
    assert_eq!(flowop.options.dir.as_deref(), Some("/Srv/Data"));
    assert_eq!(parsed.profile.name, "Xy");
    assert_eq!(notes(&parsed), [""; 0]);
}

#[test]
fn structure_is_hardly_checked() {
    let parsed = accepted(
        "</transaction>\n<group nthreads=1 >\n<transaction>\n<flowop type=nop />\n<flowop type=nop\n",
    );
    assert_eq!(parsed.profile.groups[0].transactions[0].flowops.len(), 2);
    assert_eq!(
        notes(&parsed),
        [
            "1:1 </transaction> closes nothing",
            "2:1 <group> is not closed",
            "2:1 there is no <profile> around the groups",
            "3:1 <transaction> is not closed",
            "5:1 <flowop> is not closed",
        ]
    );
}

#[test]
fn tags_are_known_by_their_first_letters() {
    let parsed = accepted("< profile >\n<groupfoo nthreads=3>\n</group>tail\n</profile>\n");
    assert_eq!(parsed.profile.groups[0].strands, 3);
    assert_eq!(
        notes(&parsed),
        [
            "2:1 <groupfoo is read as <group: a tag is known by its first letters",
            "3:9 'tail' is glued to the tag before it and is dropped, as in uperf",
        ]
    );
}

#[test]
fn attributes_bind_wherever_they_stand() {
    let parsed = accepted(
        "<group nthreads=1>\n<transaction>\n<flowop type=nop nthreads=5 duration=1s name=x />\n\
         </transaction>\ntype=think\n</group>\nname=whole\n",
    );
    let group = &parsed.profile.groups[0];
    assert_eq!((group.strands, group.name.as_str()), (5, "x"));
    assert_eq!(parsed.profile.name, "whole");
    let transaction = &group.transactions[0];
    assert_eq!(transaction.until, Until::Duration(Duration::from_secs(1)));
    assert_eq!(transaction.flowops[0].kind, "think");
    assert_eq!(
        notes(&parsed),
        [
            "1:1 there is no <profile> around the groups",
            "3:18 nthreads= on a flowop applies to the group, as in uperf",
            "3:29 duration= on a flowop applies to the transaction, as in uperf",
            "3:41 name= on a flowop names the group, as in uperf",
            "5:1 this type= replaces the one before it",
        ]
    );
}

#[test]
fn a_second_list_of_options_resets_some() {
    let parsed = accepted(&around(
        "<flowop type=write options=\"size=1 count=2 conn=3 canfail\" options=\"size=9\" />",
    ));
    let options = &first_flowop(&parsed.profile).options;
    assert_eq!(options.size, Some(Size::Fixed(9)));
    assert_eq!((options.count, options.conn, options.canfail), (1, Conns::default(), true));
}

#[test]
fn a_group_without_nthreads_has_no_strands() {
    let parsed = accepted("<profile>\n<group>\n</group>\n</profile>\n");
    assert_eq!(parsed.profile.groups[0].strands, 0);
    assert!(notes(&parsed)[0].starts_with("2:1 the group has neither nthreads= nor nprocs="));
}

#[test]
fn duration_wins_over_iterations_wherever_it_stands() {
    for attributes in ["iterations=5 duration=2s", "duration=2s iterations=5"] {
        let parsed = accepted(&format!(
            "<profile>\n<group nthreads=1>\n<transaction {attributes}>\n</transaction>\n</group>\n</profile>\n"
        ));
        let until = parsed.profile.groups[0].transactions[0].until;
        assert_eq!(until, Until::Duration(Duration::from_secs(2)));
        assert_eq!(parsed.notes[0].kind, NoteKind::IterationsIgnored);
    }
}

#[test]
fn rate_needs_a_duration_and_counts_in_1024() {
    let rate = |attributes: &str| {
        let parsed = accepted(&format!(
            "<profile>\n<group nthreads=1>\n<transaction {attributes}>\n</transaction>\n</group>\n</profile>\n"
        ));
        let kinds: Vec<_> = parsed.notes.into_iter().map(|note| note.kind).collect();
        (parsed.profile.groups[0].transactions[0].arrivals.clone(), kinds)
    };
    assert_eq!(
        rate("duration=1s rate=100"),
        (Some(Arrivals::Even(100.0)), vec![NoteKind::RateEven { rate: 100 }])
    );
    assert_eq!(rate("duration=1s rate=0"), (None, vec![]));
    assert_eq!(rate("iterations=1 rate=100"), (None, vec![NoteKind::RateIgnored]));
    let (value, kinds) = rate("duration=1s rate=1k");
    assert_eq!(value, Some(Arrivals::Even(1024.0)));
    assert!(kinds.contains(&NoteKind::BinaryCount {
        what: "rate",
        value: "1k".to_owned(),
        meant: 1024
    }));
}

#[test]
fn m_is_milliseconds() {
    let parsed = accepted(
        "<profile>\n<group nthreads=1>\n<transaction duration=\"2m\">\n</transaction>\n</group>\n</profile>\n",
    );
    let transaction = &parsed.profile.groups[0].transactions[0];
    assert_eq!(transaction.until, Until::Duration(Duration::from_millis(2)));
    assert_eq!(notes(&parsed), ["3:24 '2m' is 2 milliseconds: m is not minutes in this language"]);
}

#[test]
fn hours_pass_the_check_and_cannot_run() {
    let parsed =
        accepted(&around("<flowop type=think options=\"duration=2h\" />\n<flowop type=nop />"));
    assert_eq!(
        messages(&parsed.refusals),
        ["4:38 duration=2h cannot be used: 'h' is no unit of time"]
    );
}

#[test]
fn plain_numbers_have_no_suffix() {
    let (flowop, notes) = flowop("size=1 count=1k port=abc conn=2x repeat=3");
    let options = flowop.options;
    assert_eq!((options.count, options.port, options.repeat), (1, None, 3));
    assert_eq!(options.conn, Conns::one(2));
    assert_eq!(notes.len(), 4, "{notes:#?}");
    assert!(notes[0].starts_with("4:44 count=1k is 1"), "{}", notes[0]);
    assert!(notes[1].starts_with("4:47 port has no effect on write"), "{}", notes[1]);
    assert!(notes[2].starts_with("4:52 port=abc is any port"), "{}", notes[2]);
    assert!(notes[3].starts_with("4:61 conn=2x is 2"), "{}", notes[3]);
}

#[test]
fn numbers_keep_as_many_bits_as_in_uperf() {
    let (flowop, notes) = flowop("size=4294967297 port=70000");
    assert_eq!(flowop.options.size, Some(Size::Fixed(1)));
    assert_eq!(flowop.options.port, Some(4464));
    assert!(notes[0].contains("only 32 bits"), "{notes:?}");
    assert!(notes[2].contains("is port 4464"), "{notes:?}");
}

#[test]
fn sizes() {
    let size = |written: &str| flowop(&format!("size={written}")).0.options.size;
    assert_eq!(size("64k"), Some(Size::Fixed(65536)));
    assert_eq!(size("RAND(1,8K)"), Some(Size::Random { min: 1, max: 8192 }));
    let errors = |written: &str| {
        let source = around(&format!("<flowop type=write options=\"size={written}\" />"));
        messages(&refused(&source)).join("")
    };
    assert_eq!(errors("2g"), "4:34 size='2g' is not a size: it must be less than 2g (2147483648)");
    assert_eq!(errors("0"), "4:34 size='0' is not a size: it must be more than 0");
    for bad in ["rand(0,5)", "rand(5)", "rand(1,2,3)", "rand(a,b)", "-1", "$"] {
        assert!(!errors(bad).is_empty(), "{bad}");
    }
}

#[test]
fn a_blank_in_rand_leaves_it_without_upper_end() {
    let (flowop, notes) = flowop("size=rand(4, 8k)");
    let max = u64::from(u32::MAX);
    assert_eq!(flowop.options.size, Some(Size::Random { min: 4, max }));
    assert_eq!(notes.len(), 2, "{notes:?}");
    assert!(notes[0].contains("makes it 4294967295"), "{}", notes[0]);
    assert!(notes[1].starts_with("4:44 '8k)' is dropped"), "{}", notes[1]);
}

#[test]
fn a_backward_rand_passes_the_check_and_cannot_run() {
    let parsed = accepted(&around(
        "<flowop type=connect options=\"remotehost=h protocol=tcp\" />\n<flowop type=write options=\"size=rand(9,3)\" />",
    ));
    assert_eq!(
        messages(&parsed.refusals),
        ["5:29 size=rand(9,3): the smallest size is larger than the largest"]
    );
}

#[test]
fn what_is_not_built_yet_is_known() {
    let h = |name: &str| (name == "h").then(|| "host".to_owned());
    let parsed = accepted_with(include_str!("profiles/sctp.xml"), &h);
    let connect = &first_flowop(&parsed.profile).options;
    assert_eq!((connect.sctp.in_streams, connect.sctp.out_streams), (Some(64), Some(128)));
    assert_eq!((connect.sctp.rto_min, connect.sctp.rto_max), (Some(100), Some(1000)));
    assert!(connect.sctp.nodelay);
    assert_eq!(connect.io.get("wndsz"), Some(&IoValue::Number(12345)));
    let found = messages(&parsed.refusals);
    assert_eq!(found, ["17:60 option sctp_stream_id is not supported yet"]);
    assert_eq!(notes(&parsed), [""; 0]);
}

#[test]
fn ssl_is_tls() {
    let h = |name: &str| (name == "h").then(|| "host".to_owned());
    let source = "<profile> <group nthreads=\"1\"> <transaction iterations=\"1\"> <flowop \
                  type=\"connect\" options=\"remotehost=$h protocol=SSL ktls \
                  cipher=TLS_AES_128_GCM_SHA256 method=tls\"/> </transaction> </group> </profile>";
    let parsed = accepted_with(source, &h);
    let connect = &first_flowop(&parsed.profile).options;
    assert_eq!(connect.protocol.as_deref(), Some("tls"));
    assert_eq!((connect.cipher, connect.ktls), (Some(Cipher::Aes128Gcm), true));
    assert_eq!(parsed.refusals, []);
    assert_eq!(parsed.notes.iter().map(|n| &n.kind).collect::<Vec<_>>(), [&NoteKind::SslIsTls]);
}

#[test]
fn several_hosts_are_followed_by_connection() {
    let host = |name: &str| Some(name.to_uppercase());
    let parsed = accepted_with(include_str!("profiles/two-hosts.xml"), &host);
    let kinds: Vec<_> = parsed.notes.iter().map(|note| &note.kind).collect();
    assert_eq!(kinds, [&NoteKind::FollowsConnection, &NoteKind::DatagramTimeout]);
    assert_eq!(parsed.refusals, []);
}

#[test]
fn rsize_against_size() {
    let of = |options: &str| {
        let parsed = accepted(&around(&format!("<flowop type=write options=\"{options}\" />")));
        parsed.notes.into_iter().map(|note| note.kind).collect::<Vec<_>>()
    };
    let (size, rsize) = (1000, 4000);
    assert_eq!(of("size=1000 rsize=1000"), []);
    assert_eq!(of("size=1000 rsize=500"), [NoteKind::RsizeSmaller { rsize: 500, size }]);
    assert_eq!(of("size=1000 rsize=4000"), [NoteKind::RsizeClipped { rsize, clipped: 1000 }]);
    assert_eq!(of("size=1000 rsize=4000 count=10"), [NoteKind::RsizeLarger { rsize, size }]);
    assert_eq!(of("size=rand(1,9) rsize=4"), [NoteKind::RsizeRandom]);
    let parsed = accepted(&around("<flowop type=write options=\"size=1 rsize=0\" />"));
    assert_eq!(first_flowop(&parsed.profile).options.rsize, None);
}

#[test]
fn udp_time_outs() {
    let of = |timeout: &str| {
        let parsed = accepted(&around(&format!(
            "<flowop type=connect options=\"remotehost=h protocol=udp\" />\n\
             <flowop type=read options=\"size=64 {timeout}\" />"
        )));
        parsed.notes.into_iter().map(|note| note.kind).collect::<Vec<_>>()
    };
    assert_eq!(of(""), [NoteKind::DatagramTimeout]);
    assert_eq!(of("timeout=1s"), []);
    assert_eq!(of("timeout=500us"), [NoteKind::UperfTimeoutShort]);
    let value = "3s".to_owned();
    assert_eq!(of("timeout=3s"), [NoteKind::UperfTimeoutWraps { value }]);
}

#[test]
fn what_counts_otherwise_is_noted() {
    let (_, notes) = flowop("size=1 canfail");
    assert_eq!(notes.len(), 1);
    assert!(notes[0].contains("counts as failed"));
    let parsed = accepted(&around("<flowop type=read options=\"size=rand(1,9)\" />"));
    assert_eq!(parsed.notes[0].kind, NoteKind::RandomRead);
}

#[test]
fn options_of_wirecost() {
    let parsed = accepted(&around(
        "<flowop type=connect options=\"remotehost=h protocol=unix mss=1400 dscp=ef bind=10.0.0.1 conn=1..100\" />\n\
         <flowop type=write options=\"size=1 payload=file:/Tmp/X verify conn=1..100\" />",
    ));
    let flowops = &parsed.profile.groups[0].transactions[0].flowops;
    let connect = &flowops[0].options;
    let number = |name: &str| connect.io.get(name).cloned();
    assert_eq!(number("mss"), Some(IoValue::Number(1400)));
    assert_eq!(number("dscp"), Some(IoValue::Number(46)));
    assert_eq!(connect.bind.as_deref(), Some("10.0.0.1"));
    assert_eq!(connect.conn, Conns { first: 1, last: 100 });
    let write = &flowops[1].options;
    assert_eq!(write.payload, Payload::File("/Tmp/X".to_owned()));
    assert!(write.verify);
    assert_eq!((notes(&parsed), &parsed.refusals), (vec![], &vec![]));
}

#[test]
fn everything_that_passes_at_once() {
    let h = |name: &str| (name == "h").then(|| "host".to_owned());
    let parsed = accepted_with(include_str!("profiles/kitchen-sink.xml"), &h);
    insta::assert_snapshot!(
        "kitchen_sink",
        format!(
            "{}\nnotes:\n{}\nrefusals:\n{}\n",
            print(&parsed.profile),
            notes(&parsed).join("\n"),
            messages(&parsed.refusals).join("\n")
        )
    );
}
