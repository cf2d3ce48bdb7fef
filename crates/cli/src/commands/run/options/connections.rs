use super::{Change, RunOption};

pub(super) struct Connections;

impl RunOption for Connections {
    fn name(&self) -> &'static str {
        "connections"
    }

    fn value_name(&self) -> Option<&'static str> {
        Some("N")
    }

    fn help(&self) -> &'static str {
        "Number of strands (threads or processes of uperf) in each group [default: the profile's]"
    }

    fn read(&self, value: &str) -> Result<Change, String> {
        let strands: u32 = value.parse().map_err(|_| not_whole(value))?;
        if strands == 0 {
            return Err("must be at least 1".to_owned());
        }
        Ok(Change::to_profile(move |profile| {
            for group in &mut profile.groups {
                group.strands = strands;
            }
            Ok(())
        }))
    }
}

/// What is wrong with it, and how to write it.
fn not_whole(value: &str) -> String {
    const MOST: f64 = u32::MAX as f64;
    match value.parse::<f64>() {
        Ok(number) if number.fract() == 0.0 && (1.0..=MOST).contains(&number) => {
            format!("must be written in digits: {number}")
        }
        _ => "must be a whole number, such as 8".to_owned(),
    }
}
