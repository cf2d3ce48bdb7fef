//! What devices counted is cut at the edges of the window, as everything that it is divided by.

use wirecost_linux::privilege::skip_without_namespaces;
use wirecost_model::observe::ObserveRequest;
use wirecost_observe::Observer;

use crate::two_hosts::{DEVICE, World};

#[test]
fn devices_are_read_at_the_edges_of_the_window() {
    if skip_without_namespaces("devices_are_read_at_the_edges_of_the_window") {
        return;
    }
    let world = World::new();
    let transfer = |bytes| {
        world.transfer(bytes, |_| (), |_| ());
        world.quiet()
    };
    let probes = vec!["cpu".to_owned(), "functions".to_owned(), "interrupts:basic".to_owned()];
    let mut observer = Observer::open(ObserveRequest { probes, parts: vec![world.a.part("a")] });
    observer.attach();
    let (before, _) = transfer(3_000_000);
    observer.begin();
    let (after, _) = transfer(1_000_000);
    observer.end();
    transfer(5_000_000);
    observer.detach();
    observer.take();
    let devices = observer.devices();
    let eth0 = devices.iter().find(|traffic| traffic.device == DEVICE).unwrap();
    let grown = (after.tx_packets - before.tx_packets, after.tx_bytes - before.tx_bytes);
    assert_eq!((eth0.tx_packets, eth0.tx_bytes), grown);
    assert_eq!(eth0.rx_packets, after.rx_packets - before.rx_packets);
}
