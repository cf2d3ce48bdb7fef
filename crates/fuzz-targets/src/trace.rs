//! Whatever stands in a trace: it is refused with the line, or its times ascend.

use wirecost_model::profile::{Arrivals, Profile};
use wirecost_profile::language::{Language, read_traces};

const PROFILE: &str = "[[group]]\n[[group.transaction]]\nduration = \"1s\"\n\
                       arrivals = { trace = \"t\" }\nflowops = [\"nop\"]\n";

pub fn run(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let parsed = Language::Toml.parse(PROFILE, &|_: &str| None);
    let parsed: Profile = parsed.unwrap_or_else(|errors| panic!("{errors:#?}")).profile;
    for intervals in [false, true] {
        let mut profile = parsed.clone();
        for transaction in profile.groups.iter_mut().flat_map(|group| &mut group.transactions) {
            if let Some(Arrivals::Trace(trace)) = &mut transaction.arrivals {
                trace.intervals = intervals;
            }
        }
        match read_traces(&mut profile, PROFILE, &|_: &str| Ok(text.clone().into_owned())) {
            Err(errors) => assert!(errors.iter().all(|error| !error.to_string().is_empty())),
            Ok(()) => {
                let transactions = profile.groups.iter().flat_map(|group| &group.transactions);
                for transaction in transactions {
                    let Some(Arrivals::Trace(trace)) = &transaction.arrivals else {
                        panic!("the trace is gone");
                    };
                    assert!(!trace.starts.is_empty() && trace.starts.is_sorted());
                }
            }
        }
    }
}
