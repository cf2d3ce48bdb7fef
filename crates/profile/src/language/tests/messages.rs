//! What is refused: each mistake with its place, one message and a remedy.

use std::fmt::Write as _;

use super::super::runnable;
use super::*;

/// Errors as a person sees them: place, message, what is underlined, remedy.
fn shown(source: &str, errors: &[LanguageError]) -> String {
    let mut out = String::new();
    for error in errors {
        let start = error.span.offset;
        let marked = &source[start..start + error.span.length];
        let _ = writeln!(out, "{} {error}\n    at: {marked}", error.at);
        let _ = writeln!(out, "    help: {}", error.help().unwrap());
    }
    out
}

#[test]
fn mistakes_of_form() {
    let source = "<profile name=\"p\" color=red>\n<transaction>\n<grupp nthreads=4>\n\
                  <group nthread=\"1\">\n<flowop type=\"nop\"/>\n<transaction iteration=\"1\">\nhello\n\
                  options=\"size=1\"\n</transaction>\n<flowop type=\"nop\"/>\n</group>\nnthreads=\"1\"\n\
                  duration=1 </profile>\n";
    insta::assert_snapshot!(shown(source, &refused(source)));
}

#[test]
fn mistakes_in_values() {
    let source = "<group nthreads=two>\n<transaction duration=-1s iterations=1x rate=9g>\n\
                  <flowop type=\"raed\" options=\"sise=4k protocol=tpc conn=0 conn=5..2\"/>\n\
                  <flowop type=\"write\" options=\"size=4x count tcp_nodelay=1 dscp=ef1 payload=ones\"/>\n\
                  <flowop type=\"teleport\" options=\"remotehost=$h size=$s mss=0 repeat=0 timeout=0\"/>\n\
                  <flowop type=\"write\" options=\"$o\"/>\n<flowop type=\"connect\" options=\"encaps=70000\"/>\n\
                  </transaction>\n</group>\n";
    insta::assert_snapshot!(shown(source, &refused(source)));
}

#[test]
fn an_empty_file_is_refused_and_a_blank_one_cannot_run() {
    assert_eq!(messages(&refused("")), ["0:0 the file is empty"]);
    let parsed = accepted(" <!-- nothing -->\n");
    assert_eq!(messages(&parsed.refusals), ["0:0 the profile has nothing to run"]);
}

#[test]
fn a_missing_quote_is_named_beside_what_comes_of_it() {
    let source = around("<flowop type=\"write options=\"size=1\"/>");
    insta::assert_snapshot!(shown(&source, &refused(&source)));
}

#[test]
fn what_cannot_run() {
    let source = around(
        "<flowop type=\"read\" options=\"size=1\"/>\n<flowop type=\"connect\"/>\n\
         <flowop type=\"connect\" options=\"conn=2..4 protocol=rds remotehost=h batch_size=2\"/>\n\
         <flowop type=\"write\" options=\"conn=2..5\"/>\n<flowop/>\n<flowop type=\"sendfilev\"/>\n\
         <flowop type=\"disconnect\" options=\"conn=2..4\"/>\n\
         <flowop type=\"write\" options=\"conn=3 size=1 count=-1\"/>",
    );
    let parsed = accepted(&source);
    insta::assert_snapshot!(shown(&source, &parsed.refusals));
}

#[test]
fn connections_that_are_open_can_be_used() {
    let parsed = accepted(&around(
        "<flowop type=\"connect\" options=\"conn=1..50 protocol=tcp remotehost=h\"/>\n\
         <flowop type=\"accept\" options=\"conn=51..60 protocol=tcp remotehost=h\"/>\n\
         <flowop type=\"write\" options=\"conn=40..60 size=1\"/>\n\
         <flowop type=\"connect\" options=\"count=2 protocol=tcp remotehost=h\"/>\n\
         <flowop type=\"disconnect\"/>\n<flowop type=\"disconnect\"/>\n\
         <flowop type=\"read\" options=\"canfail size=1\"/>",
    ));
    assert_eq!(runnable(&parsed.profile), []);
}
