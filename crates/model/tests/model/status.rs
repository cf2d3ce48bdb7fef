use std::collections::BTreeSet;

use wirecost_model::status::Status;

/// The table of the manual: programs rely on it.
#[test]
fn each_status_has_its_name_and_its_exit_code() {
    let table = [
        (Status::Ok, "ok", 0),
        (Status::Failed, "failed", 1),
        (Status::Usage, "usage", 2),
        (Status::Peer, "peer", 3),
        (Status::Invalid, "invalid", 4),
        (Status::Interrupted, "interrupted", 130),
    ];
    assert_eq!(table.map(|(status, ..)| status), Status::ALL);
    for (status, name, code) in table {
        assert_eq!(serde_json::to_value(status).unwrap(), name);
        assert_eq!(serde_json::from_value::<Status>(name.into()).unwrap(), status);
        assert_eq!(status.exit_code(), code);
    }
    let codes: BTreeSet<u8> = Status::ALL.iter().map(|status| status.exit_code()).collect();
    assert_eq!(codes.len(), Status::ALL.len());
}
