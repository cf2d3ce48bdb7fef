use wirecost_model::event::{Event, Listener};
use wirecost_model::warning::{self, Warning};

/// Listeners are whatever takes an event: nobody, or a closure.
#[test]
fn a_closure_listens_and_nobody_may() {
    let events = [
        Event::Warning(Warning::from(warning::Discarded {})),
        Event::Ready { hosts: Vec::new(), phases: 2 },
    ];
    let mut heard = Vec::new();
    let mut listener = |event: &Event| heard.push(event.clone());
    for event in &events {
        listener.event(event);
        ().event(event);
    }
    assert_eq!(heard, events);
}
