//! Compiles the BPF programs of a crate with the distribution's clang. For build scripts: what comes out
//! is embedded in the program, and nothing is looked for at run time.

use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Whatever a distribution calls its compiler.
const COMPILERS: &[&str] = &[
    "clang", "clang-21", "clang-20", "clang-19", "clang-18", "clang-17", "clang-16", "clang-15",
    "clang-14",
];

/// Where types.h is, which all programs include.
const TYPES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/include");

/// Compiles every `*.bpf.c` below `src` into `OUT_DIR`. The name of the object says in which folder
/// its source is: `probes_cpu_probe.bpf.o`. `includes` are folders with headers, beside those of the libbpf that
/// the crate links: it must depend on `libbpf-sys`.
///
/// # Errors
/// There is no clang, or it does not compile a program.
#[expect(clippy::print_stdout, reason = "that is how cargo is told")]
pub fn compile(includes: &[&str]) -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=src");
    println!("cargo:rerun-if-changed={TYPES}");
    println!("cargo:rerun-if-env-changed=CLANG");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    // libbpf-sys says where it keeps the headers of the libbpf that it links.
    let libbpf = env::var("DEP_BPF_INCLUDE")?;
    let clang = compiler()?;
    let mut sources = Vec::new();
    find(Path::new("src"), &mut sources)?;
    for source in sources {
        let name = source.strip_prefix("src")?.to_string_lossy().replace('/', "_");
        let object = out.join(name.replace(".bpf.c", ".bpf.o"));
        let done = Command::new(&clang)
            .args(["-O2", "-g", "-Wall", "-Werror", "-target", "bpf", "-mcpu=v3"])
            .arg(format!("-D__TARGET_ARCH_{}", architecture()?))
            .args(includes.iter().chain(&[TYPES, &libbpf]).flat_map(|folder| ["-I", folder]))
            .arg("-c")
            .arg(&source)
            .arg("-o")
            .arg(&object)
            .status()?;
        if !done.success() {
            return Err(format!("{clang} does not compile {}", source.display()).into());
        }
    }
    Ok(())
}

/// The clang that compiles BPF programs.
///
/// # Errors
/// There is none.
pub fn compiler() -> Result<String, Box<dyn Error>> {
    if let Ok(named) = env::var("CLANG") {
        return Ok(named);
    }
    COMPILERS
        .iter()
        .find(|name| Command::new(name).arg("--version").output().is_ok_and(|o| o.status.success()))
        .map(|&name| name.to_owned())
        .ok_or_else(|| "no clang: install it (apt install clang), or name one in CLANG".into())
}

/// As bpf_tracing.h names architectures.
fn architecture() -> Result<&'static str, Box<dyn Error>> {
    Ok(match env::var("CARGO_CFG_TARGET_ARCH")?.as_str() {
        "x86_64" => "x86",
        "aarch64" => "arm64",
        "riscv64" => "riscv",
        "s390x" => "s390",
        "powerpc64" => "powerpc",
        other => return Err(format!("no BPF programs for {other}").into()),
    })
}

fn find(directory: &Path, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            find(&path, found)?;
        } else if path.to_string_lossy().ends_with(".bpf.c") {
            found.push(path);
        }
    }
    Ok(())
}
