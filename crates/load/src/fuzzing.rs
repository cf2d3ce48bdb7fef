//! What fuzz targets call of what is private here. No program calls it, so none contains it.

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock};

use rustix::net::RecvFlags;
use wirecost_model::profile::Options;

use crate::tls::{Credentials, Security, Session};

/// Two ends with a certificate that is made once.
fn sessions() -> io::Result<(Session, Session)> {
    static CREDENTIALS: OnceLock<Arc<Credentials>> = OnceLock::new();
    let credentials = match CREDENTIALS.get() {
        Some(credentials) => credentials.clone(),
        None => {
            let made = Arc::new(Credentials::new()?);
            CREDENTIALS.get_or_init(|| made).clone()
        }
    };
    let certificate = credentials.certificate().to_vec();
    let options = Options::default();
    let server = Security::new(Some(credentials)).accept(&options)?;
    let client = Security::new(None).connect(0, Some(&certificate), &options)?;
    Ok((client, server))
}

/// A session whose other end sends these bytes: the first says whether as an answer to a client or to a
/// server, and whether before the handshake or after it.
pub fn tls(bytes: &[u8]) {
    let Some((&how, bytes)) = bytes.split_first() else { return };
    let _ = attack(how, bytes);
}

fn attack(how: u8, bytes: &[u8]) -> io::Result<()> {
    let (client, server) = sessions()?;
    let (here, there) = UnixStream::pair()?;
    here.set_nonblocking(true)?;
    there.set_nonblocking(true)?;
    let (here, mut there): (OwnedFd, UnixStream) = (here.into(), there);
    let (mut victim, mut other) = if how & 1 == 0 { (client, server) } else { (server, client) };
    if how & 2 != 0 {
        let far: OwnedFd = there.try_clone()?.into();
        while victim.handshake(&here)?.is_some() | other.handshake(&far)?.is_some() {}
        // What is left of the handshake on the way, and a record that is one.
        other.send(&far, b"true")?;
    }
    // As much as fits into the socket, which is more than an input is long.
    there.write_all(&bytes[..bytes.len().min(100_000)])?;
    there.shutdown(std::net::Shutdown::Write)?;
    if how & 2 == 0 {
        victim.handshake(&here)?;
    }
    let mut buffer = [0; 1000];
    let mut got = 0;
    loop {
        match victim.receive(&here, &mut buffer, RecvFlags::empty())? {
            0 => break,
            more => got += more,
        }
    }
    // Nobody can forge a record.
    assert!(got <= 4, "{got} bytes");
    Ok(())
}
