//! Where the connection broker leaves connections for threads that share its descriptor table.

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use wirecost_program::hello::Hello;
use wirecost_program::net::Owner;

/// A connection that the broker has accepted, on its way to its strand.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) hello: Hello,
    pub(crate) socket: OwnedFd,
}

impl Arrival {
    fn is_for(&self, owner: Owner) -> bool {
        owner.takes(self.hello.id, self.hello.ordinal)
    }
}

/// The connections that wait for each strand, by group and number.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    slots: Mutex<HashMap<(u32, u32), Slot>>,
}

/// Connections that wait for one strand. Each strand has a condition variable of its own: waking
/// thousands of threads for every arrival would leave time for nothing else.
#[derive(Debug, Default)]
struct Slot {
    arrivals: VecDeque<Arrival>,
    arrived: Arc<Condvar>,
}

impl Mailbox {
    pub(crate) fn put(&self, arrival: Arrival) {
        let key = (arrival.hello.group, arrival.hello.strand);
        let Ok(mut slots) = self.slots.lock() else { return };
        let slot = slots.entry(key).or_default();
        slot.arrivals.push_back(arrival);
        let arrived = slot.arrived.clone();
        drop(slots);
        arrived.notify_all();
    }

    pub(crate) fn take(&self, owner: Owner) -> Option<Arrival> {
        let mut slots = self.slots.lock().ok()?;
        take(&mut slots.get_mut(&(owner.group, owner.strand))?.arrivals, owner)
    }

    /// Waits until this connection of a strand has arrived, for at most so long.
    pub(crate) fn wait(&self, owner: Owner, at_most: Duration) {
        let key = (owner.group, owner.strand);
        let Ok(mut slots) = self.slots.lock() else { return };
        let arrived = slots.entry(key).or_default().arrived.clone();
        let missing = |slots: &mut HashMap<(u32, u32), Slot>| {
            let queue = slots.get(&key).map(|slot| &slot.arrivals);
            !queue.into_iter().flatten().any(|arrival| arrival.is_for(owner))
        };
        drop(arrived.wait_timeout_while(slots, at_most, missing));
    }
}

/// Takes the next connection of this owner out of a queue.
pub(super) fn take(queue: &mut VecDeque<Arrival>, owner: Owner) -> Option<Arrival> {
    let place = queue.iter().position(|arrival| arrival.is_for(owner))?;
    queue.remove(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrival(strand: u32) -> Arrival {
        numbered(strand, 0)
    }

    fn numbered(strand: u32, ordinal: u32) -> Arrival {
        let hello = Hello { run: 1, group: 0, strand, id: 7, ordinal, cookie: 0 };
        Arrival { hello, socket: std::fs::File::open("/dev/null").unwrap().into() }
    }

    fn owner(strand: u32) -> Owner {
        Owner { group: 0, strand, local: 0, slot: 0, id: 7, ordinal: 0 }
    }

    /// How often the calling thread has gone to sleep.
    fn sleeps() -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.unwrap().trim().parse().unwrap()
    }

    /// Connections of one strand come to several listeners, and each says which one it is.
    #[test]
    fn connections_are_taken_in_the_order_in_which_they_were_opened() {
        let mailbox = Mailbox::default();
        for ordinal in [2, 1] {
            mailbox.put(numbered(0, ordinal));
        }
        assert!(mailbox.take(owner(0)).is_none());
        mailbox.put(numbered(0, 0));
        for ordinal in 0..3 {
            let next = Owner { ordinal, ..owner(0) };
            assert_eq!(mailbox.take(next).map(|arrival| arrival.hello.ordinal), Some(ordinal));
        }
        // One that the other end has given up comes again under the same number.
        mailbox.put(numbered(0, 2));
        assert!(mailbox.take(Owner { ordinal: 3, ..owner(0) }).is_some());
        // Numbers wrap around.
        mailbox.put(numbered(0, 0));
        assert!(mailbox.take(Owner { ordinal: u32::MAX, ..owner(0) }).is_none());
        assert!(mailbox.take(Owner { ordinal: 0, ..owner(0) }).is_some());
    }

    #[test]
    fn an_arrival_wakes_its_own_strand_only() {
        let mailbox = Arc::new(Mailbox::default());
        let of_thread = mailbox.clone();
        let waiting = std::thread::spawn(move || {
            let before = sleeps();
            of_thread.wait(owner(1), Duration::from_secs(3600));
            sleeps() - before
        });
        for _ in 0..20_000 {
            mailbox.put(arrival(2));
            assert!(mailbox.take(owner(2)).is_some());
        }
        mailbox.put(arrival(1));
        let slept = waiting.join().unwrap();
        assert!(slept < 50, "{slept}");
        assert!(mailbox.take(owner(1)).is_some());
    }
}
