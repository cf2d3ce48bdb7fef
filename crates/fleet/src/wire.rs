//! What controller and agent say to each other: one JSON document a message, its length before it.

use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};
pub use wirecost_model::order::{ClaimRequest, Known, Notice, Order, PhaseTimes};

/// Both ends must speak the same version.
pub const VERSION: u32 = 27;

/// Bytes of the longest order: a plan for a million strands takes some tens of megabytes.
pub const LONGEST_ORDER: u32 = 64 << 20;

/// Bytes of the longest first order, which is from somebody unknown: a hello takes 25.
pub const LONGEST_HELLO: u32 = 64 << 10;

/// Bytes of the longest notice: the readings of an hour at 10 ms take some 130 MB.
pub const LONGEST_NOTICE: u32 = 512 << 20;

/// What travels as a message.
pub trait Message: Serialize + for<'de> Deserialize<'de> {
    /// Bytes of the longest.
    const LONGEST: u32;
}

impl Message for Order {
    const LONGEST: u32 = LONGEST_ORDER;
}

impl Message for Notice {
    const LONGEST: u32 = LONGEST_NOTICE;
}

/// Writes one message.
///
/// # Errors
/// Those of the stream.
pub fn write<T: Message>(stream: &mut impl Write, message: &T) -> io::Result<()> {
    // The length, and then the message.
    let mut frame = vec![0; 4];
    serde_json::to_writer(&mut frame, message)?;
    let length = u32::try_from(frame.len() - 4)
        .ok()
        .filter(|&length| length <= T::LONGEST)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the message is too long"))?;
    frame[..4].copy_from_slice(&length.to_le_bytes());
    stream.write_all(&frame)
}

/// Reads one message.
///
/// # Errors
/// Those of the stream; `UnexpectedEof` when it has ended; `InvalidData` for what is no message.
pub fn read<T: Message>(stream: &mut impl Read) -> io::Result<T> {
    read_within(stream, T::LONGEST)
}

/// Reads one message of at most `longest` bytes.
///
/// # Errors
/// As [`read`].
pub fn read_within<T: Message>(stream: &mut impl Read, longest: u32) -> io::Result<T> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => ended(),
        _ => error,
    })?;
    let length = u32::from_le_bytes(length);
    if length > longest {
        let message = "received data is not a wirecost message";
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    // What a stranger says of a length is not believed: memory is taken as bytes come.
    let mut body = Vec::new();
    stream.take(u64::from(length)).read_to_end(&mut body)?;
    if body.len() < length as usize {
        return Err(ended());
    }
    Ok(serde_json::from_slice(&body)?)
}

fn ended() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "its connection has ended")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn messages_survive_the_wire() {
        let limits = BTreeMap::from([(3, vec![1, 2, u64::MAX])]);
        let order = Order::Finish { limits };
        let mut bytes = Vec::new();
        write(&mut bytes, &order).unwrap();
        assert_eq!(read::<Order>(&mut bytes.as_slice()).unwrap(), order);
    }

    /// What comes of a message that is longer than its kind may be, nobody waits for.
    #[test]
    fn a_length_beyond_the_limit_is_not_read() {
        let mut bytes = (LONGEST_ORDER + 1).to_le_bytes().to_vec();
        bytes.extend([b' '; 100]);
        let order: io::Result<Order> = read(&mut bytes.as_slice());
        assert_eq!(order.unwrap_err().kind(), io::ErrorKind::InvalidData);
        let notice: io::Result<Notice> = read(&mut bytes.as_slice());
        assert_eq!(notice.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        let hello: io::Result<Order> = read_within(&mut bytes.as_slice(), LONGEST_HELLO);
        assert_eq!(hello.unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn a_stranger_is_no_message() {
        let answer: io::Result<Order> = read(&mut b"GET / HTTP/1.1\r\n\r\n".as_slice());
        assert_eq!(answer.unwrap_err().kind(), io::ErrorKind::InvalidData);
        for short in [&b"\x10\0\0\0{"[..], b"\x10"] {
            let error = read::<Order>(&mut &*short).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
            assert_eq!(error.to_string(), "its connection has ended");
        }
    }
}
