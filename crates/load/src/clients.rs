//! The clients of a service whose sockets receive from several of them (`server_sockets`).

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use wirecost_model::clock::Nanos;
use wirecost_program::clients::Client;

/// Those who have said hello, by the address that they send from. The broker adds them, and workers look for them.
#[derive(Debug)]
pub(crate) struct Clients {
    by_address: RwLock<HashMap<SocketAddr, Arc<Client>>>,
    most: usize,
    rejected: AtomicU64,
}

impl Clients {
    /// `most`: how many there may be.
    pub(crate) fn new(most: usize) -> Self {
        Self { by_address: RwLock::default(), most, rejected: AtomicU64::new(0) }
    }

    /// Takes in a client; one that is known stays as it is. Returns whether there was room.
    pub(crate) fn add(&self, address: SocketAddr, strand: u32) -> bool {
        let mut known = self.by_address.write().unwrap_or_else(PoisonError::into_inner);
        if !known.contains_key(&address) && known.len() >= self.most {
            return false;
        }
        known.entry(address).or_insert_with(|| Arc::new(Client::new(strand)));
        true
    }

    /// The client at this address; a stranger is counted.
    pub(crate) fn find(&self, address: SocketAddr) -> Option<Arc<Client>> {
        let known = self.by_address.read().unwrap_or_else(PoisonError::into_inner);
        let client = known.get(&address).cloned();
        if client.is_none() {
            self.rejected.fetch_add(1, Ordering::Relaxed);
        }
        client
    }

    pub(crate) fn all(&self) -> Vec<Arc<Client>> {
        let known = self.by_address.read().unwrap_or_else(PoisonError::into_inner);
        known.values().cloned().collect()
    }

    /// When any of them was last heard of.
    pub(crate) fn last_heard(&self) -> Nanos {
        self.all().iter().map(|client| client.last_heard()).max().unwrap_or(0)
    }

    /// Datagrams that strangers sent so far.
    pub(crate) fn rejected(&self) -> u64 {
        self.rejected.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_has_said_hello_is_a_client() {
        let address = |port: u16| SocketAddr::from(([198, 18, 0, 1], port));
        let clients = Clients::new(2);
        assert!(clients.add(address(1), 7) && clients.add(address(2), 8));
        let first = clients.find(address(1)).unwrap();
        // A repeated hello changes nothing, and nobody fills the memory.
        assert!(clients.add(address(1), 9) && !clients.add(address(3), 9));
        assert!(Arc::ptr_eq(&first, &clients.find(address(1)).unwrap()));
        assert_eq!((first.strand, clients.all().len()), (7, 2));
        assert_eq!(clients.rejected(), 0);
        assert!(clients.find(address(3)).is_none());
        assert_eq!((clients.rejected(), clients.last_heard()), (1, 0));
    }
}
