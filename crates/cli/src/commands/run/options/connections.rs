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
        "Number of strands of each group [default: the profile's]"
    }

    fn read(&self, value: &str) -> Result<Change, String> {
        let strands: u32 = value.parse().map_err(|error| format!("{error}"))?;
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
