//! Instructions of the user, which are the same however busy the machine is.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// How many a program takes to its end, counted by callgrind (Debian's package `valgrind`).
///
/// # Errors
/// It is not installed, or the program failed.
pub(crate) fn instructions<S: AsRef<OsStr>>(
    program: &Path,
    arguments: impl IntoIterator<Item = S>,
) -> Result<u64, String> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args(arguments)
        .stdout(Stdio::null())
        .output()
        .map_err(|error| format!("valgrind: {error} (apt-get install valgrind)"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let counted = text.lines().find_map(|line| line.split_once("Collected :"));
    counted
        .filter(|_| output.status.success())
        .and_then(|(_, number)| number.trim().parse().ok())
        .ok_or_else(|| format!("callgrind counted nothing:\n{text}"))
}

/// Instructions by function, with what was inlined into it.
pub(crate) type Costs = BTreeMap<String, u64>;

/// How many a program takes in a function and below, without reading clocks and without the C library.
///
/// # Errors
/// Callgrind is not installed, or the program failed.
pub(crate) fn costs<S: AsRef<OsStr>>(
    program: &Path,
    arguments: impl IntoIterator<Item = S>,
    function: &str,
) -> Result<Costs, String> {
    let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
    let file = directory.path().join("callgrind.out");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--compress-strings=no", "--compress-pos=no"])
        .arg(format!("--toggle-collect={function}"))
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(program)
        .args(arguments)
        .stdout(Stdio::null())
        .output()
        .map_err(|error| format!("valgrind: {error} (apt-get install valgrind)"))?;
    let text = fs::read_to_string(&file).unwrap_or_default();
    let costs = parse(&text);
    if output.status.success() && !costs.is_empty() {
        return Ok(costs);
    }
    Err(format!("callgrind counted nothing:\n{}", String::from_utf8_lossy(&output.stderr)))
}

/// Sums of what functions took themselves.
/// <https://valgrind.org/docs/manual/cl-format.html>
fn parse(text: &str) -> Costs {
    let (mut object, mut file, mut function) = ("", "", "");
    let mut is_call = false;
    let mut costs = Costs::new();
    for line in text.lines() {
        match line.split_once('=') {
            Some(("ob", name)) => object = name,
            Some(("fl" | "fi" | "fe", name)) => file = name,
            Some(("fn", name)) => function = name,
            Some(("calls", _)) => is_call = true,
            Some(_) => {}
            None => {
                let mut numbers = line.split(' ').map(str::parse::<u64>);
                let (Some(Ok(_)), Some(Ok(cost))) = (numbers.next(), numbers.next()) else {
                    continue;
                };
                // What a call took is what the functions took that it called.
                if !std::mem::take(&mut is_call) && is_ours(object, file, function) {
                    *costs.entry(function.to_owned()).or_default() += cost;
                }
            }
        }
    }
    costs
}

fn is_ours(object: &str, file: &str, function: &str) -> bool {
    let of_library = ["/libc.so", "/libc-", "/ld-linux", "/vgpreload"];
    let of_clock = ["clock.rs", "vdso", "/time/"];
    !of_library.iter().any(|name| object.contains(name))
        && !of_clock.iter().any(|name| file.contains(name))
        && !function.contains("clock_gettime")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_clocks_and_the_library_are_left_out() {
        let text = "version: 1\nevents: Ir\n\nob=/program\nfl=/src/strand.rs\nfn=run\n10 7\n\
                    fi=/src/record.rs\n3 5\nfe=/src/strand.rs\n11 2\ncfn=send\ncalls=1 20\n12 90\n\
                    fi=/src/clock.rs\n3 40\n\nfl=/src/data.rs\nfn=send\n20 9\n\nob=/lib/libc.so.6\nfl=memcpy.S\n\
                    fn=memcpy\n0 80\ntotals: 103\n";
        let costs = parse(text);
        let expected = [("run", 14), ("send", 9)];
        assert_eq!(costs, expected.map(|(function, cost)| (function.to_owned(), cost)).into());
    }
}
