//! I/O options: which ones exclude each other, which do nothing where they stand, and how a variable
//! switches them.

use std::time::Duration;

use wirecost_model::profile::IoValue;

use super::*;
use crate::io_options::IoOption;
use crate::io_options::notsent_lowat::NotsentLowat;
use crate::io_options::tos::Tos;
use crate::io_options::zerocopy::Zerocopy;

/// Notes and refusals of a flowop on a connection of this protocol.
#[track_caller]
fn said(protocol: &str, flowop: &str) -> Vec<String> {
    let connect =
        format!("<flowop type=\"connect\" options=\"remotehost=h protocol={protocol}\"/>\n");
    let parsed = accepted(&around(&format!("{connect}{flowop}")));
    notes(&parsed).into_iter().chain(messages(&parsed.refusals)).collect()
}

#[track_caller]
fn of_write(protocol: &str, options: &str) -> Vec<String> {
    said(protocol, &format!("<flowop type=\"write\" options=\"size=1400 {options}\"/>"))
}

#[test]
fn what_fits_is_not_remarked_on() {
    for options in [
        "zerocopy tcp_cork verify",
        "discard",
        "splice sink=/tmp",
        "sink=/tmp sink_size=4m o_direct verify",
        "splice",
        "source=/tmp/x source_io=splice page_cache=cold sink=/tmp splice sink_sync",
        "source=/tmp source_size=1m o_direct sink=/tmp sink_keep sink_preallocate verify",
        "source=/tmp/x source_io=sendfile verify",
        "source=/tmp/x source_io=io_uring io_depth=32 o_direct verify page_cache=as-is",
        "source=/tmp/x source_io=splice sink=/tmp sink_io=io_uring io_depth=1 o_direct",
        "splice sink=/tmp sink_io=write",
    ] {
        assert_eq!(of_write("tcp", options), [] as [&str; 0], "{options}");
    }
    assert_eq!(of_write("udp", "gso=46 gro batch=1024 verify"), [] as [&str; 0]);
    let file =
        "<flowop type=\"sendfile\" options=\"dir=/tmp splice o_direct sink=/tmp sink_sync\"/>";
    assert_eq!(said("tcp", file), [] as [&str; 0]);
}

#[test]
fn what_excludes_each_other_is_refused() {
    let excluded = [
        ("tcp", "discard verify", "discard and verify exclude each other"),
        ("tcp", "splice verify", "splice and verify exclude each other"),
        ("tcp", "discard splice", "discard and splice exclude each other"),
        ("tcp", "discard sink=/tmp", "discard and sink exclude each other"),
        ("tcp", "splice sink=/tmp o_direct", "splice and o_direct exclude each other"),
        ("tcp", "splice sink=/tmp sink_io=io_uring", "splice and sink_io exclude each other"),
        ("tcp", "source=/f source_io=io_uring page_cache=warm o_direct", "page_cache and o_direct"),
        ("tcp", "source=/f zerocopy", "zerocopy and source exclude each other"),
        ("tcp", "source=/f tcp_cork", "tcp_cork and source exclude each other"),
        ("tcp", "source=/f source_io=sendfile o_direct", "name source_io=read"),
        ("tcp", "source=/f source_io=splice o_direct verify", "verify and o_direct exclude"),
        ("tcp", "source=/f page_cache=cold o_direct", "page_cache and o_direct exclude"),
        ("tcp", "source=/f verify timeout=1s", "verify and timeout exclude each other"),
        ("udp", "size=rand(1,9) gso=2", "gso and size exclude each other"),
        ("udp", "gso=47", "gso=47 of size=1400 is a message of 65800 bytes; the longest has 65507"),
    ];
    for (protocol, options, message) in excluded {
        let said = of_write(protocol, options);
        assert!(said.len() == 1 && said[0].contains(message), "{options}: {said:?}");
    }
}

#[test]
fn one_checksum_of_both_ends_needs_all_their_bytes() {
    for option in ["source", "sink"] {
        let said = of_write("tcp", &format!("{option}=/f canfail"));
        let excluded = format!("{option} and canfail exclude each other");
        assert!(said.iter().any(|said| said.contains(&excluded)), "{said:?}");
    }
}

/// A read takes one message whole.
#[test]
fn messages_that_do_not_stay_whole_are_refused() {
    let said_of = |protocol| of_write(protocol, "rsize=100");
    let reason = "rsize does not go with unix-seqpacket: a read takes one whole message";
    let refuses = |protocol| said_of(protocol).iter().any(|said| said.contains(reason));
    assert!(refuses("unix-seqpacket") && !refuses("unix"));
    // An empty message would be taken for the end of the connection; no size is 0.
    for size in ["0", "rand(0,9)"] {
        let flowop = format!("<flowop type=\"write\" options=\"size={size}\"/>");
        assert!(!refused(&around(&flowop)).is_empty(), "{size}");
    }
    let file = said("unix-seqpacket", "<flowop type=\"sendfile\" options=\"dir=/tmp\"/>");
    assert!(file.len() == 1 && file[0].contains("dir does not go with"), "{file:?}");
    assert_eq!(of_write("unix-seqpacket", "size=rand(1,9)"), [] as [&str; 0]);
}

#[test]
fn what_does_nothing_is_noted() {
    let idle = [
        ("udp", "zerocopy", "zerocopy has no effect on udp: it is for tcp"),
        ("unix", "discard", "discard has no effect on unix: it is for tcp"),
        ("tcp", "gro", "gro has no effect on tcp: it is for udp"),
        ("udp", "splice", "splice has no effect on udp: it is for tcp and unix"),
        ("tcp", "sink_size=1m", "sink_size has no effect without sink"),
        ("tcp", "sink_sync", "sink_sync has no effect without sink"),
        ("tcp", "page_cache=cold", "page_cache has no effect without source"),
        ("tcp", "source_io=splice", "source_io has no effect without source"),
        ("tcp", "o_direct", "o_direct has no effect without source or sink"),
        ("tcp", "sink_io=io_uring", "sink_io has no effect without sink"),
        (
            "tcp",
            "source=/tmp/x sink=/tmp io_depth=4",
            "io_depth has no effect without source_io=io_uring or sink_io=io_uring",
        ),
        ("tls", "source=/tmp/x", "source has no effect on tls: it is for tcp and unix"),
        ("tcp", "busy_poll=50", "busy_poll has no effect on write"),
    ];
    for (protocol, options, note) in idle {
        let said = of_write(protocol, options);
        assert!(said.len() == 1 && said[0].ends_with(note), "{options}: {said:?}");
    }
}

/// What the protocol has no use for is left out, and what is left out contradicts nothing.
#[test]
fn what_the_protocol_leaves_out_is_noted_and_excludes_nothing() {
    let left_out = [
        ("tls", "discard verify", &["discard"][..]),
        ("udp", "splice verify", &["splice"]),
        ("unix", "discard splice", &["discard"]),
        ("unix", "discard sink=/tmp", &["discard"]),
        ("tls", "splice sink=/tmp o_direct", &["splice", "sink", "o_direct"]),
    ];
    for (protocol, options, names) in left_out {
        let mut said = of_write(protocol, options);
        assert_eq!(said.len(), names.len(), "{options}: {said:?}");
        for name in names {
            said.retain(|note| !note.contains(&format!("{name} has no effect on {protocol}")));
        }
        assert_eq!(said, [] as [&str; 0], "{options}");
    }
    // What acts excludes as ever.
    let said = of_write("unix", "splice sink=/tmp o_direct");
    assert!(said.len() == 1 && said[0].contains("exclude each other"), "{said:?}");
}

#[test]
fn a_variable_among_words_stands_for_words() {
    let source = around(
        "<flowop type=\"connect\" options=\"remotehost=h protocol=tcp $o\"/>\n\
         <flowop type=\"write\" options=\"size=1 $O count=2\"/>",
    );
    let with = |value: &'static str| move |name: &str| (name == "o").then(|| value.to_owned());
    let parsed = accepted_with(&source, &with("zerocopy notsent_lowat=16k size=2k"));
    assert_eq!(notes(&parsed), [] as [&str; 0]);
    let [connect, write] = &parsed.profile.groups[0].transactions[0].flowops[..] else {
        panic!("{parsed:#?}");
    };
    assert_eq!(NotsentLowat.number(&connect.options), Some(16384));
    assert!(!Zerocopy.is_set(&connect.options) && connect.options.size.is_none());
    assert!(Zerocopy.is_set(&write.options) && !NotsentLowat.is_set(&write.options));
    // The last word of its name counts, as everywhere.
    assert_eq!(write.options.size, Some(wirecost_model::profile::Size::Fixed(2048)));
    assert_eq!(write.options.count, 2);

    let parsed = accepted_with(&source, &with(""));
    assert_eq!(notes(&parsed), [] as [&str; 0]);
    assert_eq!(without_positions(parsed.profile), {
        let plain = source.replace("$o", "").replace("$O", "");
        without_positions(accepted(&plain).profile)
    });

    let errors = refused_with(&source, &with("zerocpy"));
    assert_eq!(
        messages(&errors),
        ["4:59 unknown option 'zerocpy'", "5:38 unknown option 'zerocpy'"]
    );
    // As in uperf.
    let dropped = notes(&accepted(&source));
    assert!(
        dropped.len() == 2 && dropped[0].contains("'$o' is dropped, as in uperf"),
        "{dropped:?}"
    );
}

#[test]
fn times_have_units_and_ranges() {
    let connect = |value: &str| {
        around(&format!(
            "<flowop type=\"connect\" options=\"remotehost=h protocol=tcp tcp_user_timeout={value}\"/>"
        ))
    };
    let of = |value: &str| {
        let parsed = accepted(&connect(value));
        first_flowop(&parsed.profile).options.io.get("tcp_user_timeout").cloned()
    };
    assert_eq!(of("5s"), Some(IoValue::Time(Duration::from_secs(5))));
    assert_eq!(of("30ms"), Some(IoValue::Time(Duration::from_millis(30))));
    let errors = refused_with(&connect("10us"), &|_: &str| None);
    assert_eq!(messages(&errors), ["4:76 tcp_user_timeout=10us is out of range"]);
}

#[test]
fn a_type_of_service_is_a_number_or_a_name() {
    let of = |value: &str| {
        let connect = format!("remotehost=h protocol=tcp tos={value}");
        let parsed =
            accepted(&around(&format!("<flowop type=\"connect\" options=\"{connect}\"/>")));
        Tos.number(&first_flowop(&parsed.profile).options)
    };
    assert_eq!(
        (of("ef"), of("af41"), of("255"), of("0")),
        (Some(184), Some(136), Some(255), Some(0))
    );
}

#[test]
fn only_a_stream_can_be_half_closed() {
    for flowop in ["shutdown", "readeof"] {
        let tag = format!("<flowop type=\"{flowop}\"/>");
        assert_eq!(said("tcp", &tag), [] as [&str; 0]);
        for protocol in ["udp", "tls"] {
            let said = said(protocol, &tag);
            assert!(
                said.len() == 1 && said[0].contains(&format!("{flowop} needs a stream")),
                "{said:?}"
            );
        }
    }
}
