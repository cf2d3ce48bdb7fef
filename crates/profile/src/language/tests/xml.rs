//! Well-formed XML that uperf refuses is accepted, and means what XML says.

use super::*;

const PRETTY: &str = r#"<?xml version="1.0"?>
<profile name="p">
  <group nthreads="2">
    <transaction iterations="10">
      <flowop type="connect" options="remotehost=a protocol=tcp"/>
      <flowop type="sendfile" options="dir=/Srv/a&amp;b"/>
    </transaction>
  </group>
</profile>
"#;

/// Another form of the same file means the same, without notes.
#[track_caller]
fn same(source: &str) {
    let parsed = accepted(source);
    let pretty = without_positions(accepted(PRETTY).profile);
    assert_eq!(without_positions(parsed.profile.clone()), pretty, "{source}");
    assert_eq!(notes(&parsed), [""; 0], "{source}");
}

#[test]
fn minified() {
    let minified: String = PRETTY.lines().map(str::trim_start).collect();
    assert!(minified.contains("?><profile") && minified.ends_with("</group></profile>"));
    same(&minified);
}

#[test]
fn without_a_final_newline() {
    same(PRETTY.trim_end());
}

#[test]
fn with_single_quotes() {
    same(&PRETTY.replace('"', "'"));
}

#[test]
fn with_blanks_around_the_equals_sign() {
    let spaced = PRETTY.replace("=\"", " = \"");
    assert!(spaced.contains("nthreads = \"2\""));
    same(&spaced);
    same(&PRETTY.replace("=\"", "\n=\n\""));
}

#[test]
fn with_end_tags_instead_of_empty_elements() {
    same(&PRETTY.replace("/>", "></flowop>").replace("</group>", "</group >"));
}

#[test]
fn with_comments_glued_to_tags() {
    same(&PRETTY.replace('>', "><!-- a > b -->"));
}

#[test]
fn with_a_byte_order_mark_and_a_document_type() {
    let source = PRETTY.replace("?>", "?><!DOCTYPE profile [<!ELEMENT group ANY>]>");
    same(&format!("\u{feff}{source}"));
}

#[test]
fn with_windows_line_ends() {
    same(&PRETTY.replace('\n', "\r\n"));
}

#[test]
fn entities_are_decoded_after_words_are_split() {
    let parsed =
        accepted(&around("<flowop type=\"sendfile\" options=\"dir=/a&#32;b&quot;&lt;\"/>"));
    let dir = first_flowop(&parsed.profile).options.dir.clone();
    assert_eq!(dir.as_deref(), Some("/a b\"<"));
}

#[test]
fn variables_with_upper_case_and_kept_values() {
    let variables = |name: &str| (name == "DIR").then(|| "/Srv/&amp;".to_owned());
    let parsed =
        accepted_with(&around("<flowop type=\"sendfile\" options=\"dir=$DIR\"/>"), &variables);
    let dir = first_flowop(&parsed.profile).options.dir.clone();
    assert_eq!(dir.as_deref(), Some("/Srv/&amp;"));
}

#[test]
fn a_flowop_that_uperf_would_lose_is_kept_and_noted() {
    let parsed =
        accepted(&around("<flowop type=\"nop\"/><flowop type=\"think\" options=\"duration=1s\"/>"));
    assert_eq!(parsed.profile.groups[0].transactions[0].flowops.len(), 2);
    assert_eq!(
        notes(&parsed),
        ["4:21 uperf drops <flowop because it is glued to the tag before it; here it counts"]
    );
}
