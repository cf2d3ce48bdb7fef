use super::*;

const HZ: u32 = 250;

fn window(cwnd: u32) -> Window {
    let (ssthresh, clamp, is_cwnd_limited) = (2, u32::MAX, 1);
    Window { cwnd, ssthresh, clamp, is_cwnd_limited, ..Window::default() }
}

/// The window after a round trip in which every segment was acknowledged by itself.
fn round_trip(state: &mut State, mut given: Window, now: u32) -> Window {
    for _ in 0..given.cwnd {
        ((given.cwnd, given.cwnd_cnt), _) = state.cong_avoid(&given, 1, now, HZ);
    }
    given
}

/// Every segment has an acknowledgement of its own.
fn state(last_max_cwnd: u32) -> State {
    State { last_max_cwnd, delayed_ack: 16, ..State::NEW }
}

#[test]
fn small_windows_grow_by_a_segment_in_a_round_trip() {
    for cwnd in 2..=LOW_WINDOW {
        assert_eq!(round_trip(&mut state(100), window(cwnd), 1).cwnd, cwnd + 1);
    }
}

#[test]
fn growth_is_additive_far_from_the_maximum_and_slows_near_it() {
    let grown = |cwnd, last_max| round_trip(&mut state(last_max), window(cwnd), 1).cwnd - cwnd;
    let near_smax = |growth: u32| (SMAX - 1..=SMAX).contains(&growth);
    assert!(near_smax(grown(1000, 2000)), "{}", grown(1000, 2000));
    assert!(near_smax(grown(2000, 1000)), "{}", grown(2000, 1000));
    // Steps of a quarter of the distance, which shrinks.
    assert_eq!(grown(1000, 1040), 8);
    assert_eq!((grown(1000, 1004), grown(1000, 1000)), (0, 0));
    for cwnd in 15..3000 {
        assert!(grown(cwnd, 1000) <= SMAX, "{cwnd}");
    }
}

#[test]
fn a_loss_leaves_four_fifths_and_a_second_one_makes_room() {
    let mut state = State::NEW;
    assert_eq!((state.ssthresh(805).0, state.last_max_cwnd), (643, 805));
    // 644 * (1024 + 819) / 2048
    assert_eq!((state.ssthresh(644).0, state.last_max_cwnd), (515, 579));
    assert_eq!((state.ssthresh(LOW_WINDOW).0, state.ssthresh(3).0), (7, 2));
}

#[test]
fn a_window_that_is_not_filled_does_not_grow_except_to_twice_in_slow_start() {
    let idle = Window { is_cwnd_limited: 0, ..window(20) };
    assert_eq!(state(0).cong_avoid(&idle, 5, 1, HZ).0, (20, 0));
    let starting = Window { ssthresh: 100, max_packets_out: 11, ..idle };
    assert_eq!(state(0).cong_avoid(&starting, 5, 1, HZ).0, (25, 0));
    let unfilled = Window { max_packets_out: 10, ..starting };
    assert_eq!(state(0).cong_avoid(&unfilled, 5, 1, HZ).0, (20, 0));
}

/// `bictcp_cong_avoid` returns early for nothing acknowledged only in slow start.
#[test]
fn nothing_acknowledged_still_makes_the_window_grow_by_what_was_counted() {
    let counted = Window { cwnd_cnt: 5, ..window(5) };
    let mut avoiding = state(100);
    assert_eq!(avoiding.cong_avoid(&counted, 0, 9, HZ).0, (6, 0));
    assert_eq!((avoiding.cnt, avoiding.last_cwnd, avoiding.epoch_start), (5, 5, 9));
    let mut starting = state(100);
    let counted = Window { ssthresh: 50, ..counted };
    assert_eq!(starting.cong_avoid(&counted, 0, 9, HZ).0, (5, 5));
    assert_eq!(starting, state(100));
}

#[test]
fn each_step_has_the_mechanism_that_decided_it() {
    use Mechanism::{
        AdditiveIncrease, BinarySearch, Decrease, FastConvergence, FastProbing, LowWindow,
        LowWindowDecrease, MaxProbing, NewMaximum, NoMaximum, NotLimited, SlowProbing, SlowStart,
        SmallestStep, Timeout,
    };
    let grown = |cwnd, last_max| state(last_max).cong_avoid(&window(cwnd), 1, 1, HZ).1;
    for (cwnd, last_max, mechanism) in [
        (LOW_WINDOW, 1000, LowWindow),
        (LOW_WINDOW + 1, 0, NoMaximum),
        (1000, 0, NoMaximum),
        (1000, 1068, AdditiveIncrease),
        (1000, 1067, BinarySearch),
        (1000, 1008, BinarySearch),
        (1000, 1007, SmallestStep),
        (1000, 1001, SmallestStep),
        (1000, 1000, SlowProbing),
        (1003, 1000, SlowProbing),
        (1004, 1000, MaxProbing),
        (1047, 1000, MaxProbing),
        (1048, 1000, FastProbing),
    ] {
        assert_eq!(grown(cwnd, last_max), [None, Some(mechanism)], "{cwnd} of {last_max}");
    }
    // With few acknowledgements each segment counts, whatever the mechanism; and what was decided holds for a time.
    let mut coarse = State { delayed_ack: 1 << 20, ..state(2000) };
    assert_eq!(coarse.cong_avoid(&window(1000), 1, 1, HZ).1, [None, None]);
    assert_eq!(coarse.cnt, 1);
    let mut again = state(2000);
    let twice = [1, 1].map(|now| again.cong_avoid(&window(1000), 1, now, HZ).1);
    assert_eq!(twice, [[None, Some(AdditiveIncrease)], [None, None]]);

    let starting = Window { ssthresh: 100, ..window(20) };
    assert_eq!(state(50).cong_avoid(&starting, 5, 1, HZ).1, [Some(SlowStart), None]);
    let ending = Window { ssthresh: 22, ..window(20) };
    let both = [Some(SlowStart), Some(BinarySearch)];
    assert_eq!(state(50).cong_avoid(&ending, 5, 1, HZ).1, both);
    let idle = Window { is_cwnd_limited: 0, ..window(20) };
    assert_eq!(state(50).cong_avoid(&idle, 5, 1, HZ).1, [Some(NotLimited), None]);

    let lost = |cwnd, last_max| state(last_max).ssthresh(cwnd).1.map(Option::unwrap);
    assert_eq!(lost(100, 100), [NewMaximum, Decrease]);
    assert_eq!(lost(99, 100), [FastConvergence, Decrease]);
    assert_eq!(lost(LOW_WINDOW, 100), [FastConvergence, LowWindowDecrease]);
    assert_eq!(state(5).set_state(LOSS), [Some(Timeout), None]);
    assert_eq!(state(5).set_state(OPEN), [None, None]);
}

fn events() -> Vec<Event> {
    let init = Event {
        socket: 7,
        call: 0,
        argument: 0,
        result: 0,
        jiffies_before: 10,
        jiffies_after: 10,
        unused: 0,
        before: window(10),
        after: window(10),
        state: State::NEW,
    };
    let mut state = State::NEW;
    let (result, _) = state.ssthresh(10);
    vec![init, Event { call: 2, result, state, ..init }]
}

#[test]
fn a_trace_agrees_exactly_or_not() {
    let agreement = replay(&events(), HZ).unwrap();
    assert_eq!((agreement.sockets, agreement.calls[&Call::Ssthresh]), (1, 1));
    let decided = BTreeMap::from([(Mechanism::NewMaximum, 1), (Mechanism::LowWindowDecrease, 1)]);
    assert_eq!(agreement.mechanisms, decided);
    assert_eq!(agreement.decided_by(Mechanism::Decrease), 0);
    let refused = |edit: fn(&mut Event)| {
        let mut events = events();
        edit(&mut events[1]);
        assert_eq!(replay(&events, HZ).unwrap_err().number, 1);
    };
    refused(|event| event.result += 1);
    refused(|event| event.state.last_max_cwnd -= 1);
    refused(|event| event.state.epoch_start = 1);
    refused(|event| event.call = 6);
    refused(|event| event.after.cwnd += 1);
}

#[test]
fn calls_before_the_beginning_of_a_socket_are_counted() {
    let agreement = replay(&events()[1..], HZ).unwrap();
    assert_eq!((agreement.without_beginning, agreement.calls.len()), (1, 0));
}

#[test]
fn a_call_may_read_the_clock_at_any_tick_in_it() {
    let [init, _] = events().try_into().unwrap();
    let call_at = |read_at: u32| {
        let (before, mut state) = (window(20), State::NEW);
        let ((cwnd, cwnd_cnt), _) = state.cong_avoid(&before, 1, read_at, HZ);
        let after = Window { cwnd, cwnd_cnt, ..before };
        let ticks = Event { jiffies_before: u32::MAX, jiffies_after: 3, ..init };
        vec![init, Event { call: 1, argument: 1, before, after, state, ..ticks }]
    };
    for (read_at, ticked) in [(u32::MAX, 0), (0, 1), (1, 1), (2, 1), (3, 1)] {
        let agreement = replay(&call_at(read_at), HZ).unwrap();
        assert_eq!(agreement.ticked, ticked, "{read_at}");
    }
    for read_at in [u32::MAX - 1, 4] {
        assert_eq!(replay(&call_at(read_at), HZ).unwrap_err().number, 1, "{read_at}");
    }
}
