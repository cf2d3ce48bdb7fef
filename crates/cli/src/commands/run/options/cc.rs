use wirecost_model::congestion::AVAILABLE;
use wirecost_model::profile::IoValue;
use wirecost_profile::io_options::cc::Cc;

use super::{Change, RunOption};

pub(super) struct CongestionControl;

impl RunOption for CongestionControl {
    fn name(&self) -> &'static str {
        "cc"
    }

    fn value_name(&self) -> Option<&'static str> {
        Some("NAME")
    }

    fn help(&self) -> &'static str {
        "TCP congestion control of all connections: one of the kernel's, such as cubic; bpf-bic; or that of a --cc-object \
         [default: the profile's, or the kernel's default]"
    }

    fn read(&self, value: &str) -> Result<Change, String> {
        let name = value.to_owned();
        match value {
            "" => return Err("must be a name, such as cubic".to_owned()),
            AVAILABLE => {
                return Err(
                    "it stands for several: make it a value of an axis of a study".to_owned()
                );
            }
            _ => {}
        }
        Ok(Change::to_profile(move |profile| {
            let value = IoValue::Text(name.clone());
            super::set_on_connections(profile, &Cc, &value, "--cc", "by TCP")
        }))
    }
}
