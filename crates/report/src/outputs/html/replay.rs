//! The plan that a page holds, so that its study can be run again. It is written here, and read here from
//! pages that anybody may have written.

use std::io;

use maud::{Markup, PreEscaped, html};
use serde::Deserialize;
use wirecost_model::document::{REPLAY_VERSION, Replay};

/// A script that no browser runs.
const BEGIN: &str = "<script type=\"application/json\" id=\"replay\">";
const END: &str = "</script>";
/// The largest plan that is read, in bytes. The largest built-in study takes a hundredth of it.
const LARGEST: usize = 4 << 20;
/// Findings of a plan at most.
const FINDINGS: usize = 2_000;

/// Why a page cannot be run again.
#[derive(Debug, thiserror::Error)]
pub enum NoReplay {
    #[error(
        "the page holds no plan (its \"Method\" may say why), is no page of wirecost, or was made by an older version"
    )]
    None,
    #[error("the plan of the page is larger than {} MiB", LARGEST >> 20)]
    TooLarge,
    #[error("the plan of the page has more than {FINDINGS} findings")]
    TooManyFindings,
    #[error(
        "the plan of the page has version {0}, and this wirecost reads version {REPLAY_VERSION}"
    )]
    Version(u32),
    #[error("the plan of the page is damaged: {0}")]
    Damaged(#[from] serde_json::Error),
}

pub(super) fn element(replay: &Replay) -> io::Result<Markup> {
    // Nothing in it ends the element.
    let text = serde_json::to_string(replay)?.replace('<', "\\u003c");
    Ok(html! { (PreEscaped(BEGIN)) (PreEscaped(text)) (PreEscaped(END)) })
}

/// The plan of a page.
///
/// # Errors
/// [`NoReplay`]: there is none, or it cannot be what a page holds.
pub fn read_replay(page: &str) -> Result<Replay, NoReplay> {
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }
    let (_, rest) = page.split_once(BEGIN).ok_or(NoReplay::None)?;
    let (text, _) = rest.split_once(END).ok_or(NoReplay::None)?;
    if text.len() > LARGEST {
        return Err(NoReplay::TooLarge);
    }
    let Version { version } = serde_json::from_str(text)?;
    if version != REPLAY_VERSION {
        return Err(NoReplay::Version(version));
    }
    let replay: Replay = serde_json::from_str(text)?;
    match replay.findings.len() > FINDINGS {
        true => Err(NoReplay::TooManyFindings),
        false => Ok(replay),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn replay() -> Replay {
        Replay {
            version: REPLAY_VERSION,
            study: "title = \"a </script><script>alert(1)</script> <!-- b\"\n".to_owned(),
            profiles: BTreeMap::from([("p.toml".to_owned(), "name = \"\\u0001\"\n\t".to_owned())]),
            place: "loopback".to_owned(),
            left_out: vec!["the setting tune.mtu".to_owned()],
            findings: Vec::new(),
        }
    }

    #[test]
    fn a_plan_survives_a_page_and_ends_nothing() {
        let page = format!("<p>x</p>{}<p>y</p>", element(&replay()).unwrap().into_string());
        assert_eq!(page.matches("</script>").count(), 1, "{page}");
        assert_eq!(page.matches('<').count(), 6, "{page}");
        assert_eq!(read_replay(&page).unwrap(), replay());
    }

    #[test]
    fn what_is_no_plan_is_refused() {
        let page = |text: &str| format!("{BEGIN}{text}{END}");
        let error = |page: &str| read_replay(page).unwrap_err().to_string();
        assert!(error("<html></html>").contains("holds no plan"));
        assert!(error(BEGIN).contains("holds no plan"));
        assert!(error(&page("{\"version\":2,\"new\":1}")).contains("version 2"));
        assert!(error(&page("{\"version\":1,\"study\":\"\",\"host\":\"x\"}")).contains("damaged"));
        assert!(error(&page(&"[".repeat(1_000_000))).contains("damaged"));
        assert!(error(&page(&" ".repeat(LARGEST + 1))).contains("larger than 4 MiB"));
        let text = serde_json::to_string(&replay()).unwrap().replace('<', "\\u003c");
        let finding = r#"{"kind":"","metric":null,"axis":null,"at":[],"sentence":"","effect":null,
            "p_value":null,"strength":null,"evidence":[],"points":[]}"#;
        let many = format!("\"findings\":[{}]", vec![finding; FINDINGS + 1].join(","));
        let text = text.replace("\"findings\":[]", &many);
        assert!(error(&page(&text)).contains("more than 2000 findings"), "{}", error(&page(&text)));
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".*") {
            let _ = read_replay(&text);
            let _ = read_replay(&format!("{BEGIN}{text}{END}"));
        }
    }
}
