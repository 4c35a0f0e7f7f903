//! Ctrl-C, SIGKILL, a dying server and a full disk, in every phase of a run: no orphan, no torn
//! record, and the next start works.

use crate::cli::pgdyno;
use crate::support;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Phases by what stderr says when they begin.
const PHASES: &[&str] = &[
    "creating the cluster",
    "starting PostgreSQL",
    "rows",
    "indexes",
    "foreign keys",
    "vacuum",
    "check",
    "ramp-up",
    "measuring",
];

/// A run of one warehouse on a managed cluster in `home`, with its stderr line by line.
fn start_run(home: &Path) -> (Child, Receiver<String>) {
    let mut child = command(home, "run tpcc -w 1 -c 2 -t 60s --ramp 3s --format json")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stderr = BufReader::new(child.stderr.take().unwrap());
    let (send, lines) = channel();
    std::thread::spawn(move || {
        for line in stderr.lines().map_while(Result::ok) {
            let _ = send.send(line);
        }
    });
    (child, lines)
}

fn command(home: &Path, line: &str) -> Command {
    let mut command = pgdyno(home);
    command.args(line.split_whitespace());
    command
}

/// Waits until stderr says `words`; returns what it said until then.
fn wait_for(lines: &Receiver<String>, words: &str) -> String {
    let mut said = String::new();
    while let Ok(line) = lines.recv_timeout(Duration::from_mins(3)) {
        said.push_str(&line);
        said.push('\n');
        if line.contains(words) {
            return said;
        }
    }
    panic!("stderr never said \"{words}\":\n{said}");
}

fn signal(child: &Child, name: &str) {
    let status = Command::new("kill")
        .args([name, &child.id().to_string()])
        .status()
        .unwrap();
    assert!(status.success());
}

/// Processes whose working directory lies in `home`: servers of its clusters.
fn servers(home: &Path) -> Vec<i32> {
    let home = home.canonicalize().unwrap();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|n| n.parse::<i32>().ok())
        else {
            continue;
        };
        if std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(&home)) {
            found.push(pid);
        }
    }
    found
}

fn assert_no_server_stays(home: &Path) {
    for _ in 0..600 {
        if servers(home).is_empty() {
            return;
        }
        pgdyno::clock::pause(Duration::from_millis(100));
    }
    panic!("orphans: {:?}", servers(home));
}

/// The next start works on whatever was left, and ends with consistent data.
fn assert_next_run_works(home: &Path) {
    let output = command(home, "run tpcc -w 1 -c 2 -t 1s --ramp 0 --format json")
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let run: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let invariants = run["verdicts"]
        .as_array()
        .unwrap()
        .iter()
        .find(|v| v["check"] == "invariants");
    assert_eq!(invariants.unwrap()["status"], "pass", "{run:#}");
    let list = command_free(home, "runs list --format json");
    let runs: serde_json::Value = serde_json::from_slice(&list).unwrap();
    let id = run["run_id"].as_str().unwrap();
    assert!(runs.as_array().unwrap().iter().any(|r| r["run_id"] == id));
}

fn command_free(home: &Path, line: &str) -> Vec<u8> {
    let output = pgdyno(home).args(line.split_whitespace()).output().unwrap();
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    output.stdout
}

#[test]
fn ctrl_c_and_sigterm_in_every_phase_end_in_order() {
    for (phase, name) in PHASES.iter().zip(["-INT", "-TERM"].iter().cycle()) {
        let home = support::Home::empty();
        let (mut child, lines) = start_run(home.root());
        wait_for(&lines, phase);
        signal(&child, name);
        let status = child.wait().unwrap();
        assert_eq!(
            status.code(),
            Some(130),
            "{phase}: {:?}",
            lines.iter().collect::<Vec<_>>()
        );
        assert!(
            servers(home.root()).is_empty(),
            "{phase}: {:?}",
            servers(home.root())
        );
        let list = command_free(home.root(), "runs list --format json");
        let runs: serde_json::Value = serde_json::from_slice(&list).unwrap();
        let measured = *phase == "measuring";
        assert_eq!(
            runs.as_array().unwrap().len(),
            usize::from(measured),
            "{phase}"
        );
        if measured {
            let shown = command_free(home.root(), "runs show --format json");
            let run: serde_json::Value = serde_json::from_slice(&shown).unwrap();
            assert_eq!(run["ended"], "interrupted");
        }
        assert_next_run_works(home.root());
    }
}

#[test]
fn sigkill_of_pgdyno_in_every_phase_leaves_no_server_and_the_next_start_works() {
    for phase in PHASES {
        let home = support::Home::empty();
        let (mut child, lines) = start_run(home.root());
        wait_for(&lines, phase);
        signal(&child, "-KILL");
        child.wait().unwrap();
        assert_no_server_stays(home.root());
        assert_next_run_works(home.root());
    }
}

#[test]
fn a_server_killed_in_the_measurement_ends_the_run_with_what_was_measured() {
    let home = support::Home::empty();
    let (child, lines) = start_run(home.root());
    wait_for(&lines, "measuring");
    pgdyno::clock::pause(Duration::from_secs(2));
    for pid in servers(home.root()) {
        let _ = Command::new("kill")
            .args(["-KILL", &pid.to_string()])
            .status();
    }
    let said: Vec<String> = lines.iter().collect();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{said:#?}");
    let run: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(run["ended"], "server_lost");
    assert!(run["profiles"]["new_order"]["committed"].as_u64().unwrap() > 0);
    assert_eq!(run["verdict"], "invalid");
    assert_next_run_works(home.root());
    assert!(servers(home.root()).is_empty());
}

#[test]
fn a_full_disk_while_loading_is_told_and_the_load_continues_when_there_is_room() {
    if !rustix::process::geteuid().is_root() {
        return support::skipped("mounting a small filesystem needs root");
    }
    let mount = support::SmallDisk::new("220m");
    let output = command(mount.path(), "server up --cluster small")
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let status = command_free(mount.path(), "server status --format json");
    let status: serde_json::Value = serde_json::from_slice(&status).unwrap();
    let conninfo = status[0]["conninfo"].as_str().unwrap();
    // Not a superuser: the free space cannot be asked for, so that the disk really fills up.
    let options = pgdyno::session::ConnectOptions::parse(conninfo).unwrap();
    let mut session = pgdyno::session::Session::connect(&options).unwrap();
    session.query("CREATE ROLE loader LOGIN").unwrap();
    session.query("CREATE DATABASE small OWNER loader").unwrap();
    drop(session);
    let conninfo = format!("{conninfo} dbname=small user=loader");
    let load = |more: &str| {
        let mut command = pgdyno(mount.path());
        command.args(format!("load tpcc -w 2 -c 2 {more}").split_whitespace());
        command.args(["--target", &conninfo]).output().unwrap()
    };
    let output = load("");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(
        stderr.contains("hint: ") && stderr.contains("--resume"),
        "{stderr}"
    );
    assert!(stderr.to_lowercase().contains("space"), "{stderr}");
    mount.grow("2g");
    let _ = command(mount.path(), "server up --cluster small")
        .output()
        .unwrap();
    let output = load("--resume");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    command_free(mount.path(), "server down small");
}
