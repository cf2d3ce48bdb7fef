//! Another kernel: User-Mode Linux, by `scripts/uml`.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;
use wirecost_linux::privilege::skip;

/// A guest that has come to its end, and the files that it left.
pub(crate) struct Guest {
    directory: TempDir,
}

impl Guest {
    /// Runs a script of bash, which must end well. `None` where User-Mode Linux is not installed.
    pub(crate) fn run(
        test: &str,
        modules: &str,
        files: &[(&str, &str)],
        script: &str,
    ) -> Option<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let installed = |name: &str| std::env::split_paths(&path).any(|d| d.join(name).is_file());
        if !["linux.uml", "modprobe", "ip"].into_iter().all(installed) {
            skip(test, "needs packages user-mode-linux, kmod and iproute2");
            return None;
        }
        let guest = Self { directory: tempfile::tempdir().unwrap() };
        for (name, text) in files {
            fs::write(guest.directory.path().join(name), text).unwrap();
        }
        let uml = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/uml");
        let done = Command::new(uml)
            .arg(guest.directory.path())
            .args([modules, "bash", "-c", script])
            .output()
            .unwrap();
        let said = ["console", "stdout", "stderr"].map(|name| guest.read(name));
        assert!(done.status.success(), "{}: {done:?}\n{}", done.status, said.join("\n"));
        Some(guest)
    }

    /// Empty where there is no such file.
    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.directory.path().join(name)).unwrap_or_default()
    }

    pub(crate) fn json(&self, name: &str) -> Value {
        serde_json::from_str(&self.read(name)).unwrap()
    }
}
