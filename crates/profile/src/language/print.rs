//! A profile as text: well-formed XML that uperf reads as well, and that parses to the same profile.

use std::fmt::Write as _;

use wirecost_model::profile::{Arrivals, Flowop, Profile, Transaction, Until};

use super::escape::{encode, encode_word};
use super::options;

/// Writes a profile. Rates are written as whole numbers, since the language has no others.
pub fn print(profile: &Profile) -> String {
    let mut out = String::from("<?xml version=\"1.0\"?>\n");
    line(&mut out, 0, &format!("<profile name=\"{}\">", encode(&profile.name)));
    for group in &profile.groups {
        let name = encode(&group.name);
        let kind = if group.processes { "nprocs" } else { "nthreads" };
        let strands = group.strands;
        line(&mut out, 1, &format!("<group name=\"{name}\" {kind}=\"{strands}\">"));
        for transaction in &group.transactions {
            line(&mut out, 2, &opening(transaction));
            for flowop in &transaction.flowops {
                line(&mut out, 3, &flowop_tag(flowop));
            }
            line(&mut out, 2, "</transaction>");
        }
        line(&mut out, 1, "</group>");
    }
    line(&mut out, 0, "</profile>");
    out
}

fn line(out: &mut String, depth: usize, text: &str) {
    let _ = writeln!(out, "{:depth$}{text}", "", depth = depth * 2);
}

fn opening(transaction: &Transaction) -> String {
    let rate = match &transaction.arrivals {
        Some(Arrivals::Even(rate) | Arrivals::Poisson(rate)) => format!(" rate=\"{rate:.0}\""),
        Some(Arrivals::Trace(_)) | None => String::new(),
    };
    match transaction.until {
        Until::Iterations(iterations) => {
            format!("<transaction iterations=\"{iterations}\"{rate}>")
        }
        Until::Duration(duration) => {
            format!("<transaction duration=\"{}\"{rate}>", options::time(duration))
        }
    }
}

fn flowop_tag(flowop: &Flowop) -> String {
    let words: Vec<String> = options::all()
        .iter()
        .filter_map(|option| {
            let value = option.written(&flowop.options)?;
            Some(if value.is_empty() {
                option.name.to_owned()
            } else {
                format!("{}={}", option.name, encode_word(&value))
            })
        })
        .collect();
    let mut tag = String::from("<flowop");
    if !flowop.kind.is_empty() {
        let _ = write!(tag, " type=\"{}\"", encode(&flowop.kind));
    }
    if !words.is_empty() {
        let _ = write!(tag, " options=\"{}\"", words.join(" "));
    }
    tag.push_str("/>");
    tag
}
