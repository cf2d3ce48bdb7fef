//! Where the hosts of a point are.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Name of the setting, and of the axis.
pub const PLACE: &str = "place";

const LOOPBACK: &str = "loopback";
const LAB: &str = "lab";
const DIRECT: &str = "lab:direct";
const VM: &str = "vm:";

/// Where the hosts are, unless `hosts` says it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Place {
    #[default]
    Loopback,
    /// A lab with the links of the study.
    Lab,
    /// A lab whose hosts are joined by wires, whatever links the study has.
    LabDirect,
    /// The virtual machine of this name.
    Vm(String),
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            LOOPBACK => Self::Loopback,
            LAB => Self::Lab,
            DIRECT => Self::LabDirect,
            _ => match text.strip_prefix(VM) {
                Some(name) if !name.is_empty() => Self::Vm(name.to_owned()),
                _ => {
                    return Err(format!(
                        "unknown place `{text}`, expected `{LOOPBACK}`, `{LAB}`, `{DIRECT}` or a virtual \
                         machine such as `{VM}6.1`"
                    ));
                }
            },
        })
    }
}

impl TryFrom<String> for Place {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Place> for String {
    fn from(place: Place) -> Self {
        place.to_string()
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loopback => f.write_str(LOOPBACK),
            Self::Lab => f.write_str(LAB),
            Self::LabDirect => f.write_str(DIRECT),
            Self::Vm(name) => write!(f, "{VM}{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_as_they_are_written() {
        for text in ["loopback", "lab", "lab:direct", "vm:6.1"] {
            assert_eq!(text.parse::<Place>().unwrap().to_string(), text);
        }
        assert_eq!("vm:6.1".parse(), Ok(Place::Vm("6.1".to_owned())));
        for text in ["", "vm", "vm:", "lab:", "Lab"] {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
    }
}
