//! wrk and ab, with nginx behind them: another server than those of all other contenders, and one
//! that sends its file by sendfile(2), so they are shown and not compared with.

use std::fs;

use super::number_before;
use crate::peers::contender::{
    Contender, Line, Part, Plan, PlanError, Port, RunRequest, ToolFigures,
};
use crate::peers::point::{Kind, Point};

#[derive(Debug)]
pub(crate) struct Wrk;

#[derive(Debug)]
pub(crate) struct Ab;

impl Contender for Wrk {
    fn name(&self) -> &str {
        "wrk + nginx"
    }

    fn part(&self) -> Part {
        Part::OtherServer
    }

    fn programs(&self) -> &'static [&'static str] {
        &["wrk", "nginx"]
    }

    fn version(&self) -> Line {
        Line::of("wrk -v")
    }

    fn plan(&self, ask: &RunRequest) -> Result<Plan, PlanError> {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from) as u32;
        let connections = ask.point.connections;
        let options = format!(
            "-t {} -c {connections} -d {}s --latency",
            connections.min(cpus),
            ask.seconds_from_start()
        );
        plan(ask, &format!("wrk {options}"))
    }

    fn parse_figures(&self, point: &Point, written: &str) -> Result<ToolFigures, String> {
        let requests = after(written, "Requests/sec:").ok_or("it wrote no `Requests/sec`")?;
        Ok(ToolFigures::rate(requests * f64::from(point.size)))
    }
}

impl Contender for Ab {
    fn name(&self) -> &str {
        "ab + nginx"
    }

    fn part(&self) -> Part {
        Part::OtherServer
    }

    fn programs(&self) -> &'static [&'static str] {
        &["ab", "nginx"]
    }

    fn version(&self) -> Line {
        Line::of("ab -V")
    }

    fn plan(&self, ask: &RunRequest) -> Result<Plan, PlanError> {
        // -t alone ends after 50,000 requests; -n takes memory for each.
        let options = format!(
            "-k -c {} -t {} -n 2000000 -q",
            ask.point.connections,
            ask.seconds_from_start()
        );
        plan(ask, &format!("ab {options}"))
    }

    fn parse_figures(&self, point: &Point, written: &str) -> Result<ToolFigures, String> {
        let line = written.lines().find(|line| line.starts_with("Requests per second:"));
        let requests = line.and_then(|line| number_before(line, "[#/sec]"));
        Ok(ToolFigures::rate(
            requests.ok_or("it wrote no `Requests per second`")? * f64::from(point.size),
        ))
    }
}

fn after(written: &str, key: &str) -> Option<f64> {
    written.lines().find_map(|line| line.trim().strip_prefix(key)?.trim().parse().ok())
}

/// nginx in the foreground, with all that it writes in a directory of its own.
fn plan(ask: &RunRequest, client: &str) -> Result<Plan, PlanError> {
    if ask.point.kind != Kind::Http {
        return Err(PlanError::NoSuchTest);
    }
    let directory = ask.scratch.join("nginx");
    let failed =
        |error: std::io::Error| PlanError::Failed(format!("{}: {error}", directory.display()));
    fs::create_dir_all(&directory).map_err(failed)?;
    // Not constant, as the payload of all others.
    let file: Vec<u8> =
        (0..ask.point.size).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    fs::write(directory.join("file"), file).map_err(failed)?;
    let config = directory.join("nginx.conf");
    fs::write(&config, configuration(&directory.display().to_string(), ask.port))
        .map_err(failed)?;
    let server = format!("nginx -e stderr -c {}", config.display());
    Ok(Plan {
        server: Some((Line::of(&server), Port::Tcp(ask.port))),
        client: Line::of(&format!("{client} http://127.0.0.1:{}/file", ask.port)),
    })
}

/// What its documentation advises for static files: a worker for each CPU, sendfile with
/// tcp_nopush, no log. Workers are of this user, as the directory is.
fn configuration(directory: &str, port: u16) -> String {
    let user = if rustix::process::geteuid().is_root() { "user root;\n" } else { "" };
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|name| format!("    {name}_temp_path {directory};\n"))
        .collect();
    format!(
        "{user}daemon off;\npid {directory}/nginx.pid;\nerror_log stderr;\nworker_processes auto;\n\
         events {{ worker_connections 8192; }}\n\
         http {{\n{temporary}    access_log off;\n    sendfile on;\n    tcp_nopush on;\n    \
         keepalive_requests 1000000000;\n    open_file_cache max=10;\n    \
         server {{ listen 127.0.0.1:{port} backlog=4096; root {directory}; }}\n}}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::point::Placement;

    const POINT: Point = Point {
        kind: Kind::Http,
        connections: 32,
        size: 65536,
        placement: Placement::Shared,
        quick: true,
    };

    #[test]
    fn requests_are_counted_as_bytes_of_files() {
        let wrk = Wrk.parse_figures(&POINT, include_str!("fixtures/wrk.txt")).unwrap();
        assert_eq!(wrk.rate, Some(60_950.96 * 65536.0));
        let ab = Ab.parse_figures(&POINT, include_str!("fixtures/ab.txt")).unwrap();
        assert_eq!(ab.rate, Some(79_418.10 * 65536.0));
        assert!(Wrk.parse_figures(&POINT, "unable to connect").is_err());
        assert!(Ab.parse_figures(&POINT, "apr_socket_connect()").is_err());
    }
}
