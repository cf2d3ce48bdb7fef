//! Another kernel: a virtual machine, by `scripts/vm`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Exit code of `scripts/vm` where this machine lacks what it takes.
pub(crate) const LACKS: i32 = 126;

/// A guest that has come to its end, and the files that it left.
pub(crate) struct Guest {
    files: BTreeMap<String, String>,
}

impl Guest {
    /// Runs a script of bash, which must succeed, beside files. The error says what this machine
    /// lacks.
    pub(crate) fn run(
        modules: &str,
        files: &[(String, Vec<u8>)],
        script: &str,
    ) -> Result<Self, String> {
        Self::run_with(&[], modules, files, script)
    }

    /// With options of `scripts/vm`.
    pub(crate) fn run_with(
        options: &[&str],
        modules: &str,
        files: &[(String, Vec<u8>)],
        script: &str,
    ) -> Result<Self, String> {
        let directory = tempfile::tempdir().unwrap();
        for (name, content) in files {
            fs::write(directory.path().join(name), content).unwrap();
        }
        let vm = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/vm");
        let done = Command::new(vm)
            .args(options)
            .arg(directory.path())
            .args([modules, "bash", "-c", script])
            .output()
            .unwrap();
        if done.status.code() == Some(LACKS) {
            return Err(String::from_utf8_lossy(&done.stderr).trim().to_owned());
        }
        let left = fs::read_dir(directory.path()).unwrap().map(|entry| {
            let entry = entry.unwrap();
            let text = String::from_utf8_lossy(&fs::read(entry.path()).unwrap()).into_owned();
            (entry.file_name().into_string().unwrap(), text)
        });
        let guest = Self { files: left.collect() };
        let said = ["console", "stdout", "stderr", "err"].map(|name| guest.read(name));
        assert!(done.status.success(), "{}: {done:?}\n{}", done.status, said.join("\n"));
        Ok(guest)
    }

    /// Empty where there is no such file.
    pub(crate) fn read(&self, name: &str) -> &str {
        self.files.get(name).map_or("", String::as_str)
    }

    #[track_caller]
    pub(crate) fn json(&self, name: &str) -> Value {
        let text = self.read(name);
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{name}: {error}\n{text}"))
    }
}
