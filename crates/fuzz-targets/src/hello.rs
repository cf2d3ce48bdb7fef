//! Whatever comes first on a connection: reading it never panics, and what is read as a hello is one,
//! byte for byte.

use wirecost_program::hello::{Hello, LENGTH, is_greeting, run_number};

pub fn run(bytes: &[u8]) {
    let run = bytes.get(4..8).and_then(|run| run.try_into().ok()).map_or(0, u32::from_le_bytes);
    if let Ok(hello) = Hello::read(bytes, run) {
        assert_eq!(hello.bytes(), bytes);
        assert_eq!(hello.run, run);
        assert!(Hello::read(bytes, run ^ 1).is_err());
        let challenged = Hello { cookie: hello.cookie ^ 1, ..hello };
        assert_eq!(hello.challenged(&challenged.challenge()), Some(challenged));
    }
    let hello = Hello { run, group: 0, strand: 0, id: 0, ordinal: 0, cookie: 0 };
    if let Some(challenged) = hello.challenged(bytes) {
        assert_eq!(challenged.challenge(), bytes);
    }
    assert!(!is_greeting(bytes) || bytes.len() == LENGTH);
    let _ = run_number(&String::from_utf8_lossy(bytes));
}
