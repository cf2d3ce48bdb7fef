use std::io::{ErrorKind, Read, Write};
use std::net::UdpSocket;
use std::os::unix::net::{UnixDatagram, UnixStream};

use super::*;

const BUFFER: usize = 4096;

fn ring<S: AsFd>(buffers: u16) -> Ring<S> {
    ring_with(buffers, None)
}

/// A ring whose operations a thread of the kernel takes.
fn polled<S: AsFd>(buffers: u16) -> Ring<S> {
    ring_with(buffers, Some(Poller { cpu: None, idle: 1 }))
}

fn ring_with<S: AsFd>(buffers: u16, poller: Option<Poller>) -> Ring<S> {
    let buffers = Buffers { count: buffers, bytes: BUFFER as u32 };
    let setup = Setup { entries: 64, buffers, files: 100, poller };
    Ring::new(&setup).unwrap()
}

/// Makes two tests of each function, which takes a ring with so many buffers: one where operations are handed
/// over by calls, and one where the kernel polls for them.
macro_rules! with_and_without_poller {
    ($($test:ident: $buffers:expr;)*) => {
        mod by_calls {
            $(#[test] fn $test() { super::$test(super::ring($buffers)); })*
        }

        mod by_poller {
            $(#[test] fn $test() { super::$test(super::polled($buffers)); })*
        }
    };
}

with_and_without_poller! {
    a_full_buffer_is_waited_for_and_the_sending_goes_on: 1;
    a_connection_that_is_closed_with_work_under_way_is_let_go_when_it_is_over: 4;
    a_message_is_sent_many_times_by_one_operation: 4;
    a_socket_that_is_replaced_takes_what_it_was_asked_for_with_it: 4;
    a_ring_that_is_dropped_lets_go_of_all: 4;
    a_socket_can_be_changed_or_it_is_told_when: 4;
    more_operations_than_entries_are_all_done: 16;
    a_departure_time_reaches_the_kernel_with_its_datagram: 4;
    datagrams_of_several_senders_are_told_apart: 2;
    the_same_bytes_go_to_each_receiver: 2;
}

/// The kernel refuses a departure time of a socket that does not allow them, so it has read the control message.
fn a_departure_time_reaches_the_kernel_with_its_datagram(mut ring: Ring<UdpSocket>) {
    let [here, there] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    here.connect(there.local_addr().unwrap()).unwrap();
    let key = ring.insert(here, 1, true);
    let send = |ring: &mut Ring<UdpSocket>, number: u64, at| {
        let bytes = [number.to_le_bytes(), [7; 8]].concat();
        loop {
            match ring.send_at(&key, &bytes, at) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => drop(happen(ring)),
                done => return done.map_err(|error| error.raw_os_error()),
            }
        }
    };
    assert_eq!(send(&mut ring, 1, 1), Err(Some(libc::EINVAL)));
    crate::datagrams::enable_departure_times(ring.get(&Key(0))).unwrap();
    for number in 2..5 {
        assert_eq!(send(&mut ring, number, number), Ok(16));
        let mut got = [0; 20];
        assert_eq!(there.recv(&mut got).unwrap(), 16);
        assert_eq!(got[..8], number.to_le_bytes());
    }
}

/// A connection of the ring with this token, and its other end.
fn pair(ring: &mut Ring<UnixStream>, token: u64) -> (Key, UnixStream) {
    let (here, there) = UnixStream::pair().unwrap();
    (ring.insert(here, token, false), there)
}

fn happen<S: AsFd>(ring: &mut Ring<S>) -> Vec<Event> {
    let mut events = Vec::new();
    ring.submit(Some(Duration::from_secs(10)), &mut events).unwrap();
    events
}

/// Reads until so many bytes have come.
fn read(ring: &mut Ring<UnixStream>, key: &Key, length: usize, size: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < length {
        match ring.receive(key, size) {
            Ok((_, bytes)) => {
                assert!(!bytes.is_empty() && bytes.len() <= size, "{} bytes", bytes.len());
                all.extend_from_slice(bytes);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => drop(happen(ring)),
            Err(error) => panic!("{error}"),
        }
    }
    all
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i % 251) as u8).collect()
}

#[test]
fn a_stream_comes_as_it_was_sent_in_pieces_no_longer_than_asked_for() {
    let mut ring = ring(8);
    let (key, mut there) = pair(&mut ring, 7);
    let sent = bytes(100_000);
    for size in [100, 10_000] {
        there.write_all(&sent).unwrap();
        assert_eq!(read(&mut ring, &key, sent.len(), size), sent);
    }
    drop(there);
    let left = loop {
        match ring.receive(&key, 1) {
            Ok((_, bytes)) => break bytes.len(),
            Err(_) => assert!(happen(&mut ring).contains(&Event::Readable(7))),
        }
    };
    assert_eq!(left, 0, "the other end has closed");
}

/// A strand that opens a connection trusts an event that tells of no error.
#[test]
fn a_poll_for_sending_tells_whether_there_is_an_error() {
    let mut ring = ring(1);
    let mut open = Vec::new();
    for (token, closed) in [(1, false), (2, true)] {
        let (key, there) = pair(&mut ring, token);
        if closed {
            drop(there);
        } else {
            open.push(there);
        }
        ring.poll(&key, Direction::Write).unwrap();
        let expected = if closed { Event::Writable(token) } else { Event::CanSend(token) };
        assert_eq!(happen(&mut ring), [expected]);
        ring.close(key);
    }
}

#[test]
fn what_is_sent_is_what_was_given_even_where_the_caller_changes_it() {
    let mut ring = ring(1);
    let (key, mut there) = pair(&mut ring, 3);
    let mut mine = bytes(1000);
    assert_eq!(ring.send(&key, &mine).unwrap_err().kind(), ErrorKind::WouldBlock);
    mine.fill(0);
    assert_eq!(happen(&mut ring), [Event::Writable(3)]);
    assert_eq!(ring.send(&key, &mine).unwrap(), 1000);
    let mut got = [0; 1000];
    there.read_exact(&mut got).unwrap();
    assert_eq!(got[..], bytes(1000));
    let shared: Arc<[u8]> = bytes(2000).into();
    ring.hold(shared.clone());
    let _ = ring.send(&key, &shared[500..1500]);
    happen(&mut ring);
    there.read_exact(&mut got).unwrap();
    assert_eq!(got[..], shared[500..1500]);
}

fn a_full_buffer_is_waited_for_and_the_sending_goes_on(mut ring: Ring<UnixStream>) {
    let (key, mut there) = pair(&mut ring, 3);
    let shared: Arc<[u8]> = bytes(1 << 20).into();
    ring.hold(shared.clone());
    let reader = std::thread::spawn(move || {
        let mut got = Vec::new();
        there.read_to_end(&mut got).unwrap();
        got
    });
    let mut sent = 0;
    while sent < shared.len() {
        match ring.send(&key, &shared[sent..]) {
            Ok(more) => sent += more,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                happen(&mut ring);
            }
        }
    }
    ring.close(key);
    let mut events = Vec::new();
    ring.submit(None, &mut events).unwrap();
    assert_eq!(reader.join().unwrap(), shared[..]);
}

/// A connection that the ring receives from again and again, as it was received from twice.
fn lazy(ring: &mut Ring<UnixStream>) -> (Key, UnixStream) {
    let (key, mut there) = pair(ring, 1);
    for _ in 0..2 {
        there.write_all(b"x").unwrap();
        read(ring, &key, 1, 1);
    }
    assert!(ring.receive(&key, 1).is_err());
    (key, there)
}

#[test]
fn who_does_not_read_is_sent_no_more_than_a_bounded_amount() {
    let mut ring = ring(64);
    let (lazy, mut there) = lazy(&mut ring);
    let (key, mut other) = pair(&mut ring, 2);
    there.set_nonblocking(true).unwrap();
    let block = bytes(BUFFER);
    let mut taken = 0;
    loop {
        match there.write(&block) {
            Ok(more) => taken += more,
            Err(_) => {
                // The other connection makes the ring go round meanwhile.
                let before = ring.link(lazy.0).received.len();
                for _ in 0..4 {
                    other.write_all(b"y").unwrap();
                    read(&mut ring, &key, 1, 1);
                }
                if ring.link(lazy.0).received.len() == before {
                    break;
                }
            }
        }
        assert!(taken < 64 << 20, "flow control is gone");
    }
    assert_eq!(ring.link(lazy.0).receiving, Receiving::Idle);
    // All of it comes when it is wanted, in order.
    there.set_nonblocking(false).unwrap();
    let got = read(&mut ring, &lazy, taken, usize::MAX);
    for (number, chunk) in got.chunks_exact(BUFFER).enumerate() {
        assert_eq!(chunk, block, "block {number}");
    }
}

#[test]
fn those_who_do_not_read_cannot_keep_buffers_from_those_who_do() {
    let mut ring = ring(4);
    let (lazy, mut there) = lazy(&mut ring);
    let (key, mut other) = pair(&mut ring, 2);
    let sent = bytes(10 * BUFFER);
    there.write_all(&sent).unwrap();
    happen(&mut ring);
    for _ in 0..20 {
        other.write_all(&sent).unwrap();
        assert_eq!(read(&mut ring, &key, sent.len(), BUFFER), sent);
    }
    assert_eq!(read(&mut ring, &lazy, sent.len(), 1000), sent);
}

fn a_connection_that_is_closed_with_work_under_way_is_let_go_when_it_is_over(
    mut ring: Ring<UnixStream>,
) {
    let (key, mut there) = pair(&mut ring, 1);
    assert!(ring.receive(&key, 10).is_err());
    let _ = ring.poll(&key, Direction::Read);
    let mut events = Vec::new();
    ring.submit(None, &mut events).unwrap();
    assert_eq!(ring.outstanding, 2);
    ring.close(key);
    while ring.outstanding > 0 {
        happen(&mut ring);
    }
    assert!(ring.links[0].is_none());
    assert_eq!(there.read(&mut [0; 10]).unwrap(), 0, "the other end hears of it");
    // Its place is taken by the next one, which hears nothing of it.
    let (key, mut there) = pair(&mut ring, 2);
    assert_eq!(key.0, 0);
    there.write_all(b"new").unwrap();
    assert_eq!(read(&mut ring, &key, 3, 10), b"new");
}

#[test]
fn zero_copy_sends_say_what_became_of_them() {
    let mut ring = ring(4);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let here = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (there, _) = listener.accept().unwrap();
    let key = ring.insert(here, 1, false);
    let shared: Arc<[u8]> = bytes(10_000).into();
    ring.hold(shared.clone());
    for _ in 0..4 {
        let length = loop {
            match ring.send_zero_copy(&key, &shared) {
                Ok(length) => break length,
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
            happen(&mut ring);
        };
        assert_eq!(length, shared.len());
        let mut got = vec![0; shared.len()];
        (&there).read_exact(&mut got).unwrap();
        assert_eq!(got, shared[..]);
    }
    while ring.zero_copy().completed < 4 {
        happen(&mut ring);
    }
    // Loopback copies.
    assert_eq!(ring.zero_copy(), ZeroCopy { completed: 4, copied: 4 });
}

/// Times a message, more than the socket holds: what one operation sends of it is a part, as of any send.
fn a_message_is_sent_many_times_by_one_operation(mut ring: Ring<UnixStream>) {
    let (here, there) = UnixStream::pair().unwrap();
    let key = ring.insert(here, 1, false);
    let message: Arc<[u8]> = bytes(1000).into();
    ring.hold(message.clone());
    let reader = std::thread::spawn(move || {
        let mut all = Vec::new();
        (&there).read_to_end(&mut all).unwrap();
        all
    });
    let (mut sent, mut operations) = (0, 0);
    while sent < 2_000_000 {
        // What is left of a message goes first.
        let begun = sent % message.len();
        let result = match begun {
            0 => ring.send_times(&key, &message, 200),
            begun => ring.send(&key, &message[begun..]),
        };
        match result {
            Ok(bytes) => {
                sent += bytes;
                operations += 1;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                happen(&mut ring);
            }
        }
    }
    ring.close(key);
    drop(ring);
    let all = reader.join().unwrap();
    assert_eq!(all.len(), sent);
    assert!(all.chunks(message.len()).all(|chunk| *chunk == message[..chunk.len()]));
    assert!(operations < 200, "{operations} operations for {} messages", sent / message.len());
}

/// The kernel says that it has let go of a zero-copy send long after its result, when the next send may be
/// under way: from a copy that must not change yet.
#[test]
fn what_becomes_of_a_zero_copy_send_says_nothing_of_the_next_one() {
    let mut ring = ring(4);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let here = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (there, _) = listener.accept().unwrap();
    let key = ring.insert(here, 1, false);
    let place = Kind::Send.pack(key.0);
    let mut events = Vec::new();
    // A result with the promise of more, then a send from a copy, then what was promised.
    let link = ring.links[key.0 as usize].as_mut().unwrap();
    link.sending = Sending::Underway;
    link.outstanding += 1;
    ring.outstanding += 1;
    let result = Completion { data: place, result: 100, flags: 1 << 1 };
    ring.complete(result, &mut events);
    assert_eq!(ring.link(key.0).sending, Sending::Done(100));
    assert_eq!(ring.send(&key, b"zero-copy").unwrap(), 100);
    assert_eq!(ring.send(&key, b"copy").unwrap_err().kind(), ErrorKind::WouldBlock);
    let notice = Completion { data: place, result: USAGE_COPIED, flags: 1 << 3 };
    ring.complete(notice, &mut events);
    assert_eq!(ring.link(key.0).sending, Sending::Underway);
    assert_eq!(ring.send(&key, b"other").unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!(ring.link(key.0).copy, b"copy");
    assert_eq!(ring.zero_copy(), ZeroCopy { completed: 1, copied: 1 });
    while ring.send(&key, b"copy").is_err() {
        happen(&mut ring);
    }
    let mut got = [0; 4];
    (&there).read_exact(&mut got).unwrap();
    assert_eq!(&got, b"copy");
}

/// An operation goes to the socket that it was asked for of, also where the caller then puts another into
/// its place: the descriptor's number may be somebody else's by the time of the next system call.
fn a_socket_that_is_replaced_takes_what_it_was_asked_for_with_it(mut ring: Ring<UnixStream>) {
    let (key, mut there) = pair(&mut ring, 1);
    let (mut next, mut other) = UnixStream::pair().unwrap();
    assert!(ring.send(&key, b"to the first").is_err());
    std::mem::swap(ring.get_mut(&key).unwrap(), &mut next);
    drop(next);
    // Takes the number that has become free.
    let (_stranger, stranger_end) = UnixStream::pair().unwrap();
    while ring.send(&key, b"to the first").is_err() {
        happen(&mut ring);
    }
    let mut got = Vec::new();
    there.read_to_end(&mut got).unwrap();
    assert_eq!(got, b"to the first");
    stranger_end.set_nonblocking(true).unwrap();
    let error = (&stranger_end).read(&mut [0; 100]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    // What is asked for now goes to the new one.
    assert!(ring.send(&key, b"second").is_err());
    happen(&mut ring);
    let mut got = [0; 6];
    other.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"second");
}

/// Whoever is refused is told to try again, although nothing else may happen.
fn a_socket_can_be_changed_or_it_is_told_when(mut ring: Ring<UnixStream>) {
    let (key, mut there) = pair(&mut ring, 1);
    for _ in 0..3_000 {
        while ring.send(&key, b"x").is_err() {
            if let Err(error) = ring.get_mut(&key) {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                let mut events = Vec::new();
                ring.submit(Some(Duration::from_secs(10)), &mut events).unwrap();
                assert!(events.contains(&Event::Readable(1)), "{events:?}");
            } else {
                happen(&mut ring);
            }
        }
        there.read_exact(&mut [0]).unwrap();
    }
}

#[test]
fn what_could_change_is_not_sent_without_a_copy() {
    let mut ring = ring(4);
    let (key, mut there) = pair(&mut ring, 1);
    let shared: Arc<[u8]> = bytes(100).into();
    ring.hold(shared.clone());
    // As long, of the same bytes, and elsewhere.
    let mine = bytes(100);
    let refused = ring.send_zero_copy(&key, &mine).unwrap_err();
    assert_eq!(Errno::from_io_error(&refused), Some(Errno::NOBUFS));
    // The connection goes on.
    while ring.send(&key, &mine).is_err() {
        happen(&mut ring);
    }
    let mut got = [0; 100];
    there.read_exact(&mut got).unwrap();
    assert_eq!(got[..], mine);
}

#[test]
fn a_connection_that_lasts_is_registered_and_closed_all_the_same() {
    let mut ring = ring(8);
    let (key, mut there) = pair(&mut ring, 1);
    for round in 0..3 * LASTING {
        there.write_all(b"ping").unwrap();
        assert_eq!(read(&mut ring, &key, 4, 100), b"ping");
        let _ = ring.send(&key, b"pong");
        while ring.send(&key, b"pong").is_err() {
            happen(&mut ring);
        }
        assert_eq!(ring.link(key.0).registered, round + 1 >= LASTING, "round {round}");
    }
    let mut all = Vec::new();
    ring.close(key);
    while ring.outstanding > 0 {
        happen(&mut ring);
    }
    there.read_to_end(&mut all).unwrap();
    assert_eq!(all.len() as u32, 4 * 3 * LASTING);
}

#[test]
fn datagrams_stay_apart_and_empty_ones_are_datagrams() {
    let mut ring = ring(8);
    let (here, there) = UnixDatagram::pair().unwrap();
    let key = ring.insert(here, 1, true);
    for round in 0..3 {
        let sent: [&[u8]; 3] = [b"first", b"", b"third one"];
        sent.iter().for_each(|bytes| assert_eq!(there.send(bytes).unwrap(), bytes.len()));
        for expected in sent {
            let got = loop {
                match ring.receive(&key, usize::MAX) {
                    Ok((_, bytes)) => break bytes.to_vec(),
                    Err(_) => drop(happen(&mut ring)),
                }
            };
            assert_eq!(got, expected, "round {round}");
        }
    }
}

#[test]
fn listeners_accept_all_who_come() {
    [true, false].into_iter().for_each(accept);
}

fn accept(all: bool) {
    let mut ring = ring::<UnixStream>(1);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let key = ring.listen(listener.into(), 9, all).unwrap();
    let connect = || std::net::TcpStream::connect(at).unwrap();
    let _clients: Vec<_> = (0..10).map(|_| connect()).collect();
    // Who takes them one by one finds the others still with the kernel.
    let mut accepted = 0;
    while accepted < 10 {
        assert!(happen(&mut ring).contains(&Event::Arrival(9)));
        let waiting = ring.watches[0].accepted.len();
        assert!(if all { waiting > 0 } else { waiting == 1 }, "{waiting} waiting");
        while ring.accepted(key).is_ok() {
            accepted += 1;
        }
    }
}

/// Clients that nobody wants cannot take all descriptors, and those behind them are still accepted.
#[test]
fn connections_that_nobody_takes_are_limited() {
    const ROUND: usize = 32;
    let mut ring = ring::<UnixStream>(1);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::listen(&listener, 8 * ROUND as i32).unwrap();
    let at = listener.local_addr().unwrap();
    let key = ring.listen(listener.into(), 9, true).unwrap();
    let connect = || std::net::TcpStream::connect(at).unwrap();
    let mut clients = Vec::new();
    while ring.watches[0].accepted.len() < MAX_ACCEPTED {
        clients.extend((0..ROUND).map(|_| connect()));
        happen(&mut ring);
    }
    for _ in 0..4 {
        clients.extend((0..ROUND).map(|_| connect()));
        ring.submit(Some(Duration::ZERO), &mut Vec::new()).unwrap();
    }
    let waiting = ring.watches[0].accepted.len();
    assert!(waiting <= MAX_ACCEPTED + 2 * ROUND, "{waiting} of {}", clients.len());
    for _ in &clients {
        while let Err(error) = ring.accepted(key) {
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
            assert!(happen(&mut ring).contains(&Event::Arrival(9)));
        }
    }
}

/// What is under way when a ring is dropped ends, and is not begun again.
fn a_ring_that_is_dropped_lets_go_of_all(mut ring: Ring<UnixStream>) {
    let (key, mut there) = pair(&mut ring, 1);
    let (woken, waker) = UnixStream::pair().unwrap();
    ring.watch(&woken, 2).unwrap();
    drop(woken);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    ring.listen(listener.into(), 3, true).unwrap();
    assert!(ring.receive(&key, 1).is_err());
    (&waker).write_all(b"x").unwrap();
    while !happen(&mut ring).contains(&Event::Arrival(2)) {}
    // One that the kernel has not seen yet.
    let (other, _silent) = pair(&mut ring, 4);
    assert!(ring.receive(&other, 1).is_err());
    ring.end();
    assert_eq!(ring.outstanding, 0);
    drop(ring);
    assert_eq!(there.read(&mut [0; 1]).unwrap(), 0, "its descriptors are closed");
}

fn more_operations_than_entries_are_all_done(mut ring: Ring<UnixStream>) {
    let mut pairs: Vec<_> = (0..300).map(|token| pair(&mut ring, token)).collect();
    for (key, _) in &pairs {
        assert!(ring.receive(key, 100).is_err());
        assert!(ring.send(key, b"ping").is_err());
    }
    for (_, there) in &mut pairs {
        there.write_all(b"pong").unwrap();
    }
    for (key, there) in &mut pairs {
        assert_eq!(read(&mut ring, key, 4, 100), b"pong");
        let mut got = [0; 4];
        there.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"ping");
    }
}

#[test]
fn waits_look_at_devices_for_as_long_as_they_are_told_to() {
    let ring = ring::<UnixStream>(1);
    match ring.busy_poll(50) {
        Ok(before) => assert_eq!((before, ring.busy_poll(70).unwrap()), (0, 50)),
        Err(error) => assert_eq!(Errno::from_io_error(&error), Some(Errno::INVAL), "{error}"),
    }
}

#[test]
fn other_buffers_are_taken_when_none_is_in_use() {
    let mut ring = ring(8);
    let (key, mut there) = pair(&mut ring, 7);
    let larger = Buffers { count: 2, bytes: 4 * BUFFER as u32 };
    let sent = bytes(10 * BUFFER);
    there.write_all(&sent).unwrap();
    // Asked to receive, the kernel knows where to.
    assert!(ring.receive(&key, sent.len()).is_err());
    ring.set_buffers(larger).unwrap();
    assert_eq!(ring.pool.size(), BUFFER);
    assert_eq!(read(&mut ring, &key, sent.len(), usize::MAX), sent);
    let mut ring = self::ring(8);
    let (key, mut there) = pair(&mut ring, 7);
    for _ in 0..3 {
        ring.set_buffers(larger).unwrap();
        assert_eq!(ring.room(), HELD * 4 * BUFFER);
    }
    there.write_all(&sent).unwrap();
    assert_eq!(read(&mut ring, &key, sent.len(), usize::MAX), sent);
}

/// What who only receives relies on: the kernel completes a receive when as much is there as the socket
/// wants to be woken for, and not before.
#[test]
fn a_socket_that_waits_for_much_is_received_from_when_it_is_there() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut there = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (here, _) = listener.accept().unwrap();
    let mut ring = ring(8);
    let key = ring.insert(here, 7, false);
    let nothing = |ring: &mut Ring<_>| {
        assert!(ring.receive(&key, usize::MAX).is_err());
        let mut events = Vec::new();
        ring.submit(Some(Duration::from_millis(30)), &mut events).unwrap();
        assert_eq!(events, []);
    };
    crate::sockopt::set_low_water(ring.get(&key), 2 * BUFFER as u64).unwrap();
    let sent = bytes(2 * BUFFER);
    nothing(&mut ring);
    there.write_all(&sent[..BUFFER]).unwrap();
    nothing(&mut ring);
    there.write_all(&sent[BUFFER..]).unwrap();
    assert_eq!(happen(&mut ring)[0], Event::Readable(7));
    // Again, and this time nobody waits for the rest.
    let mut got = 0;
    while let Ok((_, bytes)) = ring.receive(&key, usize::MAX) {
        got += bytes.len();
    }
    assert!(got >= BUFFER);
}

/// A socket to which several others send: each datagram has its sender, also an empty one and one that nobody had a buffer for
/// at first, and answers go to who has asked.
fn datagrams_of_several_senders_are_told_apart(mut ring: Ring<UdpSocket>) {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let here = UdpSocket::bind(address).unwrap();
        let to = here.local_addr().unwrap();
        let key = ring.insert_addressed(here, 1);
        let senders = [(); 3].map(|()| UdpSocket::bind(address).unwrap());
        for round in 0..40u8 {
            let lengths = [20, 0, BUFFER - IN_FRONT as usize];
            for (sender, length) in senders.iter().zip(lengths) {
                assert_eq!(sender.send_to(&vec![round; length], to).unwrap(), length);
            }
            let mut came = Vec::new();
            while came.len() < 3 {
                match ring.receive_from(&key) {
                    Ok((_, sender, bytes)) => {
                        assert!(bytes.iter().all(|byte| *byte == round));
                        came.push((sender, bytes.len()));
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => drop(happen(&mut ring)),
                    Err(error) => panic!("{error}"),
                }
            }
            let sent = senders.iter().zip(lengths);
            let sent: Vec<_> = sent.map(|(of, length)| (of.local_addr().ok(), length)).collect();
            assert_eq!(came, sent);
            for (number, sender) in (0..).zip(&senders) {
                let answer = [round, number, 7, 7, 7, 7, 7, 7, 9];
                let to = sender.local_addr().unwrap();
                let sent = loop {
                    match ring.send_to(&key, &answer, to) {
                        Err(error) if error.kind() == ErrorKind::WouldBlock => {
                            drop(happen(&mut ring));
                        }
                        done => break done.unwrap(),
                    }
                };
                let mut got = [0; 20];
                assert_eq!((sent, sender.recv(&mut got).unwrap()), (9, 9));
                assert_eq!(got[..9], answer);
            }
        }
        // In its buffers are headers too.
        assert_eq!(ring.receive(&key, 20).unwrap_err().kind(), ErrorKind::Unsupported);
        ring.close(key);
    }
}

/// What a send to one receiver came to is not the result of a send of the same bytes to another, which nobody has sent yet.
fn the_same_bytes_go_to_each_receiver(mut ring: Ring<UdpSocket>) {
    let address = "127.0.0.1:0";
    let key = ring.insert_addressed(UdpSocket::bind(address).unwrap(), 1);
    let receivers = [(); 2].map(|()| UdpSocket::bind(address).unwrap());
    let [one, other] = receivers.each_ref().map(|socket| socket.local_addr().unwrap());
    let kind = |sent: io::Result<usize>| sent.unwrap_err().kind();
    assert_eq!(kind(ring.send_to(&key, &[7; 16], one)), ErrorKind::WouldBlock);
    while !happen(&mut ring).contains(&Event::Writable(1)) {}
    assert_eq!(kind(ring.send_to(&key, &[7; 16], other)), ErrorKind::WouldBlock);
    let sent = loop {
        match ring.send_to(&key, &[7; 16], other) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => drop(happen(&mut ring)),
            done => break done.unwrap(),
        }
    };
    assert_eq!(sent, 16);
    for receiver in &receivers {
        assert_eq!(receiver.recv(&mut [0; 20]).unwrap(), 16);
    }
    ring.close(key);
}
