use super::{Change, RunOption};

pub(super) struct ReceiveStamps;

impl RunOption for ReceiveStamps {
    fn name(&self) -> &'static str {
        "receive_stamps"
    }

    fn long(&self) -> &'static str {
        "receive-stamps"
    }

    fn value_name(&self) -> Option<&'static str> {
        None
    }

    fn help(&self) -> &'static str {
        "Measure the time from the driver to the application: the kernel stamps what comes to one socket in 64 \
         (SO_TIMESTAMPING). It then reads its clock for every packet of the machine"
    }

    fn read(&self, _: &str) -> Result<Change, String> {
        Ok(Change::to_settings(|settings| settings.receive_stamps = true))
    }
}
