//! Sets options of sockets and reads back what took effect, whatever they are.

use std::io;
use std::os::fd::AsFd;

use socket2::Domain;
use wirecost_linux::plain_option;
use wirecost_profile::io_options::IoOption as _;
use wirecost_profile::io_options::cc::Cc;
use wirecost_profile::socket_option::{Level, On, SocketOption};
use wirecost_program::calls::EffectiveSetting;
use wirecost_program::socket_setup::{SocketSetting, SocketSetup};

use crate::congestion;

/// Sets what must be set before a socket of this domain listens or connects.
///
/// # Errors
/// Those of setsockopt(2), with the option.
pub(crate) fn set(socket: impl AsFd, domain: Domain, setup: &SocketSetup) -> io::Result<()> {
    setup.settings.iter().try_for_each(|setting| set_one(&socket, domain, setting))
}

/// Sets what an accepted connection does not have from its listener.
///
/// # Errors
/// Those of setsockopt(2), with the option.
pub(crate) fn set_accepted(socket: impl AsFd, setup: &SocketSetup) -> io::Result<()> {
    let mut own = setup.settings.iter().filter(|setting| !setting.option.inherited).peekable();
    if own.peek().is_none() {
        return Ok(());
    }
    let domain = socket2::SockRef::from(&socket).domain()?;
    own.try_for_each(|setting| set_one(&socket, domain, setting))
}

fn set_one(socket: impl AsFd, domain: Domain, setting: &SocketSetting) -> io::Result<()> {
    let SocketSetting { option, value, requested } = setting;
    if !is_of(option.on, domain) {
        return Ok(());
    }
    match plain_option::set(socket, level(option.level), option.number, value) {
        Err(error) if is_unknown_algorithm(option, &error) => {
            let error = congestion::unknown(requested);
            Err(io::Error::new(error.kind(), format!("cc={requested}: {error}")))
        }
        Err(error)
            if is_of_algorithm(option) && error.kind() == io::ErrorKind::PermissionDenied =>
        {
            let error = congestion::not_allowed(requested);
            Err(io::Error::new(error.kind(), format!("cc={requested}: {error}")))
        }
        Err(error) if !option.optional => {
            let name = option.label.map(|label| format!("{label}={requested}: "));
            let name = name.unwrap_or_default();
            Err(io::Error::new(error.kind(), format!("{name}{error}")))
        }
        _ => Ok(()),
    }
}

fn is_unknown_algorithm(option: &SocketOption, error: &io::Error) -> bool {
    is_of_algorithm(option) && error.kind() == io::ErrorKind::NotFound
}

fn is_of_algorithm(option: &SocketOption) -> bool {
    option.level == Level::Tcp && option.label == Some(Cc.name())
}

/// What took effect of what was requested. What cannot be read is left out.
pub(crate) fn effective(socket: impl AsFd, setup: &SocketSetup) -> Vec<EffectiveSetting> {
    let mut told = setup.settings.iter().filter_map(|s| Some((s, s.option.label?))).peekable();
    let Some(domain) = told.peek().and_then(|_| socket2::SockRef::from(&socket).domain().ok())
    else {
        return Vec::new();
    };
    told.filter(|(setting, _)| is_of(setting.option.on, domain))
        .filter_map(|(setting, name)| {
            let option = &setting.option;
            let value = plain_option::get(&socket, level(option.level), option.number).ok()?;
            let (requested, effective) = (setting.requested.clone(), option.form.shown(&value));
            Some(EffectiveSetting { name, requested, effective })
        })
        .collect()
}

/// IPv4 and IPv6 number some options differently. The protocol has been looked at before.
fn is_of(on: On, domain: Domain) -> bool {
    match on {
        On::Ipv4 => domain == Domain::IPV4,
        On::Ipv6 => domain == Domain::IPV6,
        On::Any | On::Inet | On::Unix | On::Vsock => true,
    }
}

fn level(level: Level) -> plain_option::Level {
    match level {
        Level::Socket => plain_option::Level::Socket,
        Level::Ip => plain_option::Level::Ip,
        Level::Ipv6 => plain_option::Level::Ipv6,
        Level::Tcp => plain_option::Level::Tcp,
        Level::Udp => plain_option::Level::Udp,
        Level::Sctp => plain_option::Level::Sctp,
        Level::Vsock => plain_option::Level::Vsock,
    }
}

#[cfg(test)]
mod tests {
    use socket2::{Socket, Type};
    use wirecost_model::profile::{IoValue, Options};
    use wirecost_profile::protocols;

    use super::*;

    fn setup(values: &[(&str, IoValue)]) -> SocketSetup {
        let mut options = Options::default();
        for (name, value) in values {
            options.io.set(name, value.clone());
        }
        SocketSetup::new(&options, &protocols::tcp::Tcp)
    }

    fn told(domain: Domain, setup: &SocketSetup) -> Vec<(&'static str, String, String)> {
        let socket = Socket::new(domain, Type::STREAM, None).unwrap();
        set(&socket, domain, setup).unwrap();
        let effective = effective(&socket, setup).into_iter();
        effective
            .map(|effective| (effective.name, effective.requested, effective.effective))
            .collect()
    }

    #[test]
    fn options_take_effect_on_sockets_of_both_ip_versions() {
        let text = |text: &str| text.to_owned();
        let setup = setup(&[
            ("dscp", IoValue::Number(46)),
            ("wndsz", IoValue::Number(65536)),
            ("cc", IoValue::Text(text("reno"))),
        ]);
        let expected = [
            ("wndsz.send", text("65536"), text("65536")),
            ("wndsz.receive", text("65536"), text("65536")),
            ("cc", text("reno"), text("reno")),
            ("dscp", text("46"), text("46")),
        ];
        assert_eq!(told(Domain::IPV4, &setup), expected);
        assert_eq!(told(Domain::IPV6, &setup), expected);
    }

    #[test]
    fn what_the_kernel_refuses_is_named() {
        let setup = setup(&[("cc", IoValue::Text("none_such".to_owned()))]);
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let error = set(&socket, Domain::IPV4, &setup).unwrap_err().to_string();
        assert!(
            error.starts_with("cc=none_such: this kernel has no congestion control"),
            "{error}"
        );
        assert!(error.contains("it has") && error.contains("reno"), "{error}");
    }

    #[test]
    fn a_connection_has_from_its_listener_what_is_not_set_again() {
        let setup =
            setup(&[("dscp", IoValue::Number(46)), ("notsent_lowat", IoValue::Number(4096))]);
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        set_accepted(&socket, &setup).unwrap();
        let effective: Vec<_> =
            effective(&socket, &setup).into_iter().map(|g| g.effective).collect();
        assert_eq!(effective, ["0", "4096"]);
    }
}
