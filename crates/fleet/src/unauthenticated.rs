//! What a session refuses whose controller may be anyone: it generates load, and nothing else.
//!
//! The limits of every plan hold too, and traffic goes to and comes from the controller's address only
//! (`wirecost_load::permissions`).

use wirecost_load::engines;
use wirecost_model::congestion::BPF_BIC;
use wirecost_model::order::Order;
use wirecost_model::plan::Plan;
use wirecost_model::profile::{IoValue, Options, Payload};
use wirecost_profile::protocols::{self, Family};
use wirecost_program::{congestion, step};

/// I/O options whose value is a text that names no file.
const HARMLESS_TEXTS: [&str; 5] = ["cc", "page_cache", "placement", "server_sockets", "source_io"];

/// Why an order is not carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("it observes nothing for controllers that it does not know")]
    Observation,
    #[error("it changes no settings for controllers that it does not know")]
    Tuning,
    #[error("it reports no single operations to controllers that it does not know")]
    Operations,
    #[error(
        "it has the kernel stamp packets for controllers that it knows only: every packet costs more then"
    )]
    ReceiveStamps,
    #[error(
        "{at}: {option} names a file, and it uses no files for controllers that it does not know"
    )]
    File { at: String, option: String },
    #[error(
        "engine {engine} attaches a program to a device, which it does only for controllers that it knows"
    )]
    Engine { engine: String },
    #[error("it loads BPF programs for congestion control only for controllers that it knows")]
    CongestionControl,
    #[error("protocol {protocol} does not lead to the controller's address")]
    Protocol { protocol: String },
}

/// # Errors
/// What the order asks for that only a known controller may have.
pub(crate) fn check(order: &Order) -> Result<(), Refusal> {
    match order {
        Order::Observe(_) => Err(Refusal::Observation),
        Order::Claim(request) if request.observes => Err(Refusal::Observation),
        Order::Claim(request) if request.tunes => Err(Refusal::Tuning),
        Order::Claim(request) if request.loads_congestion_control => {
            Err(Refusal::CongestionControl)
        }
        Order::Tune(_) | Order::ConfirmTuning | Order::Restore => Err(Refusal::Tuning),
        Order::Prepare(plan) => check_plan(plan),
        Order::Hello { .. }
        | Order::Ping { .. }
        | Order::Claim(_)
        | Order::Connect(_)
        | Order::Start(_)
        | Order::Finish { .. }
        | Order::CutOff
        | Order::CountPackets
        | Order::Environment
        | Order::Summarize => Ok(()),
    }
}

fn check_plan(plan: &Plan) -> Result<(), Refusal> {
    if plan.logged_operations > 0 {
        return Err(Refusal::Operations);
    }
    if plan.receive_stamps {
        return Err(Refusal::ReceiveStamps);
    }
    if !plan.congestion_objects.is_empty() || congestion::chosen(&plan.program).contains(BPF_BIC) {
        return Err(Refusal::CongestionControl);
    }
    if engines::find(plan.engine.as_str()).is_some_and(|engine| !engine.is_general()) {
        return Err(Refusal::Engine { engine: plan.engine.to_string() });
    }
    for act in step::acts(&plan.program) {
        // The peer of a host that sends files has the option too, and opens none.
        let sends_file = act.kind == "sendfile" && act.options.dir.is_some();
        let option = if sends_file { Some("dir") } else { file_option(&act.options) };
        if let Some(option) = option {
            return Err(Refusal::File { at: act.at.to_string(), option: option.to_owned() });
        }
    }
    let of_services = plan.program.services.iter().map(|service| &service.protocol);
    let of_acts = step::acts(&plan.program).filter_map(|act| act.options.protocol.as_ref());
    for protocol in of_services.chain(of_acts) {
        let family = protocols::find(protocol).map(|protocol| protocol.family());
        if family != Some(Family::Inet) {
            return Err(Refusal::Protocol { protocol: protocol.clone() });
        }
    }
    for service in &plan.program.services {
        if let Some(option) = file_option(&service.options) {
            let at = "a service".to_owned();
            return Err(Refusal::File { at, option: option.to_owned() });
        }
    }
    Ok(())
}

/// The option that names a file, if there is one.
fn file_option(options: &Options) -> Option<&str> {
    if matches!(options.payload, Payload::File(_)) {
        return Some("payload");
    }
    let mut texts = options.io.iter().filter(|(_, value)| matches!(value, IoValue::Text(_)));
    texts.find(|(name, _)| !HARMLESS_TEXTS.contains(name)).map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use wirecost_model::congestion::CongestionObject;
    use wirecost_model::holder::RunIdentity;
    use wirecost_model::observe::ObserveRequest;
    use wirecost_model::order::ClaimRequest;
    use wirecost_model::plan::EngineName;
    use wirecost_model::profile::{Flowop, Group, Position, Profile, Size, Transaction, Until};
    use wirecost_program::program;

    use super::*;

    /// What the peer of a profile with these flowops is ordered to do.
    fn prepare(protocol: &str, change: impl Fn(&mut Options)) -> Order {
        let flowop = |kind: &str, options: Options| Flowop {
            kind: kind.to_owned(),
            options,
            at: Position { line: 3, column: 5 },
        };
        let mut write = Options { size: Some(Size::Fixed(64)), ..Options::default() };
        change(&mut write);
        let open = Options {
            remotehost: Some("h".to_owned()),
            protocol: Some(protocol.to_owned()),
            ..Options::default()
        };
        let transaction = Transaction {
            until: Until::Iterations(1),
            arrivals: None,
            flowops: vec![flowop("connect", open), flowop("write", write)],
            order: Vec::new(),
            at: Position::default(),
        };
        let group = Group { strands: 1, transactions: vec![transaction], ..Group::default() };
        let profile = Profile { groups: vec![group], ..Profile::default() };
        let program = program::compile(&profile).unwrap().pop().unwrap();
        Order::Prepare(Box::new(Plan {
            token: "token".to_owned(),
            seed: 1,
            host: 1,
            engine: EngineName::default(),
            workers: None,
            cpus: Vec::new(),
            shares_cpus: false,
            interval: 1 << 30,
            program,
            data_address: None,
            tcp_samples: 0,
            details: false,
            logged_operations: 0,
            receive_stamps: false,
            congestion_objects: Vec::new(),
        }))
    }

    fn refusal(order: &Order) -> String {
        check(order).unwrap_err().to_string()
    }

    #[test]
    fn a_plan_attaches_no_program_to_a_device() {
        for (engine, is_refused) in [("io_uring", false), ("af_xdp", true), ("af_xdp_native", true)]
        {
            let mut order = prepare("udp", |_| {});
            let Order::Prepare(plan) = &mut order else { panic!("{order:?}") };
            plan.engine = engine.into();
            match check(&order) {
                Err(Refusal::Engine { engine: named }) => assert!(is_refused && named == engine),
                other => assert_eq!((other, is_refused), (Ok(()), false)),
            }
        }
    }

    #[test]
    fn a_plan_names_no_file() {
        assert_eq!(check(&prepare("tcp", |_| {})), Ok(()));
        let mut dir = prepare("tcp", |o| o.dir = Some("/etc".to_owned()));
        assert_eq!(check(&dir), Ok(()), "the peer only reads");
        let Order::Prepare(plan) = &mut dir else { panic!("it is a plan") };
        let acts = plan.program.groups.iter_mut().flat_map(|group| &mut group.phases).flatten();
        acts.flat_map(|phase| &mut phase.acts).for_each(|act| act.kind = "sendfile".to_owned());
        assert!(refusal(&dir).starts_with("3:5: dir names a file"), "{}", refusal(&dir));
        let payload = prepare("tcp", |o| o.payload = Payload::File("/etc/passwd".to_owned()));
        assert!(refusal(&payload).starts_with("3:5: payload names a file"));
        for option in ["sink", "source"] {
            let named = |o: &mut Options| o.io.set(option, IoValue::Text("/tmp".to_owned()));
            let refused = refusal(&prepare("tcp", named));
            assert!(refused.starts_with(&format!("3:5: {option} names a file")), "{refused}");
        }
        // One that this version does not know.
        let other = |o: &mut Options| o.io.set("other", IoValue::Text("/tmp".to_owned()));
        assert!(refusal(&prepare("tcp", other)).starts_with("3:5: other names a file"));
        let cc = |o: &mut Options| o.io.set("cc", IoValue::Text("cubic".to_owned()));
        assert_eq!(check(&prepare("tcp", cc)), Ok(()));
    }

    #[test]
    fn only_protocols_with_internet_addresses_are_used() {
        for protocol in ["tcp", "udp", "tls", "sctp"] {
            assert_eq!(check(&prepare(protocol, |_| {})), Ok(()), "{protocol}");
        }
        for protocol in ["unix", "unix-seqpacket", "vsock", "other"] {
            assert!(refusal(&prepare(protocol, |_| {})).starts_with("protocol "), "{protocol}");
        }
    }

    #[test]
    fn single_operations_are_not_reported() {
        let mut logs = prepare("tcp", |_| {});
        let Order::Prepare(plan) = &mut logs else { panic!("it is a plan") };
        plan.logged_operations = 1;
        assert_eq!(check(&logs), Err(Refusal::Operations));
    }

    #[test]
    fn packets_are_not_stamped() {
        let mut stamps = prepare("udp", |_| {});
        let Order::Prepare(plan) = &mut stamps else { panic!("it is a plan") };
        plan.receive_stamps = true;
        assert_eq!(check(&stamps), Err(Refusal::ReceiveStamps));
    }

    #[test]
    fn no_bpf_program_is_loaded() {
        let mut object = prepare("tcp", |_| {});
        let Order::Prepare(plan) = &mut object else { panic!("it is a plan") };
        let (name, bytes) = ("mine".to_owned(), Vec::new());
        plan.congestion_objects.push(CongestionObject { name, object: bytes });
        assert_eq!(check(&object), Err(Refusal::CongestionControl));
        let mut bic = prepare("tcp", |_| {});
        let Order::Prepare(plan) = &mut bic else { panic!("it is a plan") };
        let cc = IoValue::Text("bpf-bic".to_owned());
        for service in &mut plan.program.services {
            service.options.io.set("cc", cc.clone());
        }
        assert_eq!(check(&bic), Err(Refusal::CongestionControl));
    }

    #[test]
    fn nothing_is_observed() {
        let request = ObserveRequest { probes: Vec::new(), parts: Vec::new() };
        assert_eq!(check(&Order::Observe(request)), Err(Refusal::Observation));
        let claim = |observes| {
            let (id, user, host) = ("1".to_owned(), "u".to_owned(), "h".to_owned());
            let run = RunIdentity { id, user, host, pid: 1, command: "c".to_owned() };
            Order::Claim(ClaimRequest {
                run,
                wait: Duration::ZERO,
                share: false,
                observes,
                tunes: false,
                loads_congestion_control: false,
            })
        };
        assert_eq!(check(&claim(true)), Err(Refusal::Observation));
        assert_eq!(check(&claim(false)), Ok(()));
    }
}
