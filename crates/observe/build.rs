//! Compiles the BPF programs, and lists the system calls of the target.

use std::env;
use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::Command;

fn main() -> Result<(), Box<dyn Error>> {
    let out = env::var("OUT_DIR")?;
    let clang = wirecost_bpf_build::compiler()?;
    fs::write(Path::new(&out).join("syscalls.rs"), system_calls(&clang)?)?;
    wirecost_bpf_build::compile(&["src/bpf", "src/tracker"])
}

/// Numbers and names of the system calls of the target, as its kernel headers have them: a slice.
fn system_calls(clang: &str) -> Result<String, Box<dyn Error>> {
    let target = env::var("TARGET")?.replace("-unknown", "");
    let run = Command::new(clang)
        .args(["-E", "-dM", "-x", "c", "-include", "asm/unistd.h", "/dev/null"])
        .arg(format!("--target={target}"))
        .output()?;
    if !run.status.success() {
        let said = String::from_utf8_lossy(&run.stderr);
        return Err(format!("no kernel headers (apt install linux-libc-dev): {said}").into());
    }
    let text = String::from_utf8(run.stdout)?;
    let mut calls: Vec<(u32, &str)> = text
        .lines()
        .filter_map(|line| {
            let (name, number) = line.strip_prefix("#define __NR_")?.split_once(' ')?;
            Some((number.trim().parse().ok()?, name))
        })
        .collect();
    calls.sort_unstable();
    Ok(format!("&{calls:?}"))
}
