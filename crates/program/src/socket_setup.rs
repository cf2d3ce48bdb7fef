//! How the sockets of a connection are set up, resolved before the run.

use wirecost_model::profile::Options;
use wirecost_profile::io_options::{self, Effect};
use wirecost_profile::language;
use wirecost_profile::protocols::Protocol;
use wirecost_profile::socket_option::{Form, SocketOption};

/// What sockets of one protocol are made with.
#[derive(Debug, Clone, Default)]
pub struct SocketSetup {
    /// As in the profile, for what only some protocols know.
    pub options: Options,
    pub settings: Vec<SocketSetting>,
}

/// An option of the kernel with its value.
#[derive(Debug, Clone)]
pub struct SocketSetting {
    pub option: SocketOption,
    /// As the kernel reads it.
    pub value: Vec<u8>,
    /// As the result tells it.
    pub requested: String,
}

impl SocketSetup {
    pub fn new(options: &Options, protocol: &dyn Protocol) -> Self {
        let mut settings = Vec::new();
        for (option, value) in io_options::set_in(&options.io) {
            let Effect::Socket(sockets) = option.effect() else { continue };
            if !option.fits(Some(protocol)) {
                continue;
            }
            settings.extend(sockets.iter().filter(|socket| socket.is_of(protocol)).map(|socket| {
                let requested = match socket.form {
                    Form::Switch => "on".to_owned(),
                    _ => language::requested(value),
                };
                let value = socket.form.kernel_value(value);
                SocketSetting { option: *socket, value, requested }
            }));
        }
        Self { options: options.clone(), settings }
    }
}

#[cfg(test)]
mod tests {
    use wirecost_model::profile::IoValue;
    use wirecost_profile::protocols;

    use super::*;

    fn settings(protocol: &str, name: &str, value: IoValue) -> Vec<(i32, String)> {
        let mut options = Options::default();
        options.io.set(name, value);
        let setup = SocketSetup::new(&options, protocols::find(protocol).unwrap());
        let each = setup.settings.into_iter();
        each.map(|setting| (setting.option.number, setting.requested)).collect()
    }

    #[test]
    fn each_protocol_has_its_own_socket_options() {
        let buffer = || IoValue::Number(4096);
        let both = [(7, "4096".to_owned()), (8, "4096".to_owned())];
        for protocol in ["tcp", "udp", "unix", "sctp"] {
            assert_eq!(settings(protocol, "wndsz", buffer()), both, "{protocol}");
        }
        assert_eq!(settings("vsock", "wndsz", buffer()).len(), 2);
        assert_ne!(settings("vsock", "wndsz", buffer()), both);
        assert_eq!(settings("tcp", "tcp_nodelay", IoValue::On), [(1, "on".to_owned())]);
        assert_eq!(settings("sctp", "tcp_nodelay", IoValue::On), [(3, "on".to_owned())]);
        assert_eq!(settings("udp", "tcp_nodelay", IoValue::On), []);
        assert_eq!(settings("udp", "batch", IoValue::Number(4)), []);
        let polled = [(46, "50".to_owned()), (69, "on".to_owned())];
        assert_eq!(settings("udp", "busy_poll", IoValue::Number(50)), polled);
    }
}
