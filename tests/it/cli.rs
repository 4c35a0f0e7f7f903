//! The program as a user meets it: exit codes, hints, and what it refuses.

use crate::support;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The binary with a home of its own and none of the caller's libpq environment.
pub(crate) fn pgdyno(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pgdyno"));
    for (name, _) in std::env::vars() {
        if name.starts_with("PG") {
            command.env_remove(name);
        }
    }
    command
        .env("PGDYNO_HOME", home)
        .env("NO_COLOR", "1")
        .stdin(std::process::Stdio::null());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// One wrong use: arguments, exit code, words that stderr must have.
struct Case<'a> {
    line: &'a str,
    code: i32,
    said: &'a [&'a str],
}

const fn case<'a>(line: &'a str, code: i32, said: &'a [&'a str]) -> Case<'a> {
    Case { line, code, said }
}

/// What is wrong with how a wrong use was refused, if anything.
fn faults_of_refusal(case: &Case, output: &Output) -> Vec<String> {
    let stderr = text(&output.stderr);
    let mut faults = Vec::new();
    if output.status.code() != Some(case.code) {
        faults.push(format!(
            "exit code {:?}, not {}",
            output.status.code(),
            case.code
        ));
    }
    for words in case.said.iter().filter(|words| !stderr.contains(**words)) {
        faults.push(format!("stderr lacks \"{words}\""));
    }
    if stderr.contains("panicked") {
        faults.push("a panic".to_owned());
    }
    if !output.stdout.is_empty() {
        faults.push("a refusal has no result on stdout".to_owned());
    }
    // clap's own messages carry the usage instead of a hint; limits say what is possible.
    let helps = ["hint: ", "For more information", "Usage: ", "must be"];
    if !helps.iter().any(|words| stderr.contains(words)) {
        faults.push("nothing tells what to do".to_owned());
    }
    if !faults.is_empty() {
        faults.push(stderr);
    }
    faults
}

/// What needs no server to be refused. None of it may create anything in the home.
const USAGE: &[Case] = &[
    case("", 2, &["Usage"]),
    case("frobnicate", 2, &["frobnicate"]),
    case("run", 2, &["WORKLOAD"]),
    case("run tpcc --no-such-flag", 2, &["--no-such-flag"]),
    case("run tpcx", 2, &["tpcx", "tpcc"]),
    case("run tpcc -c 0", 2, &["--connections"]),
    case("run tpcc -c -1", 2, &["--connections"]),
    case("run tpcc -c 1000000", 2, &["--connections"]),
    case("run tpcc -c many", 2, &["many"]),
    case("run tpcc -w 0", 2, &["--warehouses"]),
    case("run tpcc -w -10", 2, &["--warehouses"]),
    case("run tpcc -w 99999999999", 2, &["--warehouses"]),
    case("run tpcc -w 1.5", 2, &["1.5"]),
    case("run tpcc -t 0", 2, &["--time"]),
    case("run tpcc -t -5s", 2, &["-5s"]),
    case("run tpcc -t soon", 2, &["soon", "90s"]),
    case("run tpcc -t 9999999d", 2, &["--time"]),
    case("run tpcc --ramp -1s", 2, &["-1s"]),
    case("run tpcc --interval 0", 2, &["--interval"]),
    case("run tpcc --interval 100ms -t 300d", 2, &["--interval"]),
    case("run tpcc --transactions 0", 2, &["--transactions"]),
    case("run tpcc --transactions 10 -t 5s", 2, &["--transactions"]),
    case("run tpcc --terminals 0", 2, &["--terminals"]),
    case("run tpcc --terminals 99999999999", 2, &["--terminals"]),
    case("run tpcc --workers 0", 2, &["--workers"]),
    case("run tpcc --workers 64 -c 2", 2, &["--workers"]),
    case("run tpcc --max-tries 0", 2, &["--max-tries"]),
    case("run tpcc --mode telepathy", 2, &["telepathy", "statements"]),
    case("run tpcc --protocol telex", 2, &["telex", "prepared"]),
    case("run tpcc --isolation dirty", 2, &["dirty", "serializable"]),
    case("run tpcc --dialect klingon", 2, &["klingon", "spec"]),
    case("run tpcc --mix nonsense", 2, &["--mix"]),
    case("run tpcc --mix new_order=lots", 2, &["--mix", "lots"]),
    case("run tpcc --mix new_order=-1", 2, &["--mix"]),
    case("run tpcc --mix new_order=0,payment=0", 2, &["--mix"]),
    case(
        "run tpcc --mix new_orders=1",
        2,
        &["new_orders", "new_order"],
    ),
    case("run tpcc --seed minus", 2, &["minus"]),
    case("run tpcc --schema 1abc", 2, &["--schema"]),
    case("run tpcc --schema x;drop", 2, &["--schema"]),
    case("run tpcc --label nothing", 2, &["--label"]),
    case("run tpcc --set shared_buffers", 2, &["--set"]),
    case("run tpcc --set =1", 2, &["--set"]),
    case("run tpcc -D unknown=1", 2, &["unknown"]),
    case("run tpcc --format yaml", 2, &["yaml", "json"]),
    case("run tpcc --pg 9.5", 2, &["9.5"]),
    case("run tpcc --pg banana", 2, &["banana"]),
    case(
        "run tpcc --pg-bindir /no/such/directory",
        2,
        &["/no/such/directory"],
    ),
    case("run tpcc --pg-bindir /usr/bin", 2, &["/usr/bin"]),
    case("run tpcc --pg 14 --target host=x", 2, &["--target"]),
    case("run tpcc --target host=x --set work_mem=1MB", 2, &["--set"]),
    case("run tpcc --target hots=x", 2, &["hots"]),
    case("run tpcc --target host=x_port=", 3, &["x_port"]),
    case("run tpcc --target port=abc", 2, &["port"]),
    case("run tpcc --target port=70000", 2, &["port"]),
    case("run tpcc --target sslmode=maybe", 2, &["sslmode"]),
    case("run tpcc --target postgresql://h:port/db", 2, &["port"]),
    case("run tpcc --target service=nowhere", 2, &["nowhere"]),
    case(
        "run tpcc --target host=127.0.0.1,port=1,user=x",
        3,
        &["127.0.0.1"],
    ),
    case("run synthetic --target host=x", 2, &["--target"]),
    case("run synthetic -D service_us=fast", 2, &["service_us"]),
    case("run synthetic -D colour=red", 2, &["colour", "service_us"]),
    case("load synthetic", 2, &["synthetic"]),
    case("load tpcc --resume --drop", 2, &["--drop"]),
    case("check synthetic", 2, &["synthetic"]),
    case("server down nobody", 2, &["nobody"]),
    case("server psql --cluster nobody", 2, &["nobody"]),
    case("server rm nobody", 2, &["nobody"]),
    case("server down", 2, &["no running cluster"]),
    case("server up --target host=x", 2, &["--target"]),
    case("server up --cluster ../x", 2, &["../x"]),
    case("runs show", 2, &["no runs"]),
    case("runs show 1234", 2, &["no runs"]),
    case("runs rm", 2, &["RUN"]),
    case("completions tcsh", 2, &["tcsh"]),
];

#[test]
fn wrong_usage_is_refused_with_its_name_and_what_to_do() {
    let mut wrong = Vec::new();
    for case in USAGE {
        let home = tempfile::tempdir().unwrap();
        let arguments = case.line.split_whitespace();
        let output = pgdyno(home.path()).args(arguments).output().unwrap();
        let faults = faults_of_refusal(case, &output);
        if !faults.is_empty() {
            wrong.push(format!("pgdyno {}: {}", case.line, faults.join("; ")));
        }
        let clusters = home.path().join("clusters");
        let left = clusters.read_dir().map_or(0, Iterator::count);
        assert_eq!(left, 0, "{}: something was created", case.line);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(USAGE.len() >= 60);
}

fn conninfo(server: &support::Server, database: &str) -> String {
    let directory = server.socket_dir.display();
    format!(
        "host={directory} port={} user=postgres dbname={database}",
        server.port
    )
}

fn sql(server: &support::Server, database: &str, sql: &str) {
    let mut session = pgdyno::session::Session::connect(&server.connect(database)).unwrap();
    session.query(sql).unwrap();
}

/// Runs with `--target` of the shared server.
fn on_target(home: &Path, line: &str, conninfo: &str) -> Output {
    pgdyno(home)
        .args(line.split_whitespace())
        .args(["--target", conninfo])
        .output()
        .unwrap()
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table")]
fn what_only_a_server_can_refuse_is_refused_as_clearly() {
    let server = support::shared();
    let home = tempfile::tempdir().unwrap();
    sql(server, "postgres", "CREATE DATABASE cli_foreign");
    sql(server, "cli_foreign", "CREATE TABLE somebodys (x int)");
    sql(server, "postgres", "CREATE DATABASE cli_empty");
    sql(server, "postgres", "CREATE ROLE cli_guest LOGIN");
    sql(server, "postgres", "CREATE DATABASE cli_owned");
    sql(
        server,
        "cli_empty",
        "REVOKE ALL ON SCHEMA public FROM public",
    );
    sql(
        server,
        "postgres",
        "REVOKE ALL ON DATABASE cli_owned FROM public",
    );
    let base = conninfo(server, "cli_empty");
    let guest = base.replace("user=postgres", "user=cli_guest");
    let cases: &[(&str, String, i32, &[&str])] = &[
        (
            "run tpcc -w 1",
            conninfo(server, "no_such_database"),
            3,
            &["no_such_database"],
        ),
        (
            "run tpcc -w 1",
            base.replace("user=postgres", "user=nobody_here"),
            3,
            &["nobody_here"],
        ),
        (
            "run tpcc -w 1",
            base.replace(&format!("port={}", server.port), "port=1"),
            3,
            &["hint"],
        ),
        (
            "run tpcc -w 1",
            "host=no-such-host.invalid".into(),
            3,
            &["no-such-host.invalid"],
        ),
        (
            "run tpcc -w 1",
            "host=127.0.0.1 port=1 user=x".into(),
            3,
            &["127.0.0.1", "refused"],
        ),
        (
            "run tpcc -w 1",
            "host=/no/such/directory".into(),
            3,
            &["/no/such/directory"],
        ),
        (
            "load tpcc -w 1",
            conninfo(server, "cli_foreign"),
            2,
            &["somebodys", "--beside-others"],
        ),
        ("load tpcc -w 1", guest.clone(), 3, &["cli_guest", "GRANT"]),
        (
            "load tpcc -w 1",
            guest.replace("cli_empty", "cli_owned"),
            3,
            &["permission denied"],
        ),
        (
            "load tpcc -w 1000000000",
            base.clone(),
            3,
            &["1,000,000,000 warehouses", "PiB", "free"],
        ),
        ("check tpcc", base.clone(), 2, &["pgdyno load"]),
        ("drop tpcc", base.clone(), 2, &["tpcc"]),
    ];
    let mut wrong = Vec::new();
    for (line, conninfo, code, said) in cases {
        let output = on_target(home.path(), line, conninfo);
        let case = Case {
            line,
            code: *code,
            said,
        };
        let mut faults = faults_of_refusal(&case, &output);
        if !text(&output.stderr).contains("hint: ") {
            faults.push("no hint".to_owned());
        }
        if !faults.is_empty() {
            wrong.push(format!(
                "pgdyno {line} --target '{conninfo}': {}",
                faults.join("; ")
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A data set of one warehouse in a database of its own.
fn loaded(server: &support::Server, home: &Path, database: &str) -> String {
    sql(server, "postgres", &format!("CREATE DATABASE {database}"));
    let conninfo = conninfo(server, database);
    let output = on_target(home, "load tpcc -w 1 -c 2 --format json", &conninfo);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["tables"]["customer"]["rows"], 30_000);
    assert!(report["rows_per_s"].as_f64().unwrap() > 0.0);
    conninfo
}

#[test]
fn a_data_set_of_another_seed_or_scale_is_not_run_on() {
    let server = support::shared();
    let home = tempfile::tempdir().unwrap();
    let conninfo = loaded(server, home.path(), "cli_other");
    for (line, said) in [
        ("run tpcc -w 2 -t 1s", "warehouses"),
        ("run tpcc -w 1 --seed 43 -t 1s", "seed"),
        ("run tpcc -w 1 --no-foreign-keys -t 1s", "foreign_keys"),
        ("load tpcc -w 1", "--drop"),
    ] {
        let output = on_target(home.path(), line, &conninfo);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line}\n{stderr}");
        assert!(
            stderr.contains(said) && stderr.contains("hint: "),
            "{line}\n{stderr}"
        );
    }
}

#[test]
fn a_run_ends_with_a_record_that_shows_lists_exports_and_goes() {
    let server = support::shared();
    let home = tempfile::tempdir().unwrap();
    let conninfo = loaded(server, home.path(), "cli_run");
    let line = "run tpcc -w 1 -c 4 -t 3s --ramp 1s --format json --label who=test";
    let output = on_target(home.path(), line, &conninfo);
    let stderr = text(&output.stderr);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{stderr}\n{}",
        text(&output.stdout)
    );
    assert!(
        stderr.contains("NOPM"),
        "the live line is on stderr:\n{stderr}"
    );
    let run: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(run["nopm"].as_f64().unwrap() > 0.0);
    assert_reconciled(&run);
    let id = run["run_id"].as_str().unwrap().to_owned();
    let directory = PathBuf::from(run["record_dir"].as_str().unwrap());
    for name in ["plan.toml", "record.json", "latency.hdr", "series.csv"] {
        assert!(directory.join(name).exists(), "{name}");
    }
    assert_runs_commands(home.path(), &id);
    let output = on_target(home.path(), "check tpcc -w 1 --format json", &conninfo);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let checks: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(checks.as_array().unwrap().len() >= 12);
    let output = on_target(home.path(), "drop tpcc -w 1", &conninfo);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

/// The verdicts that hold on any machine, however slow or noisy.
fn assert_reconciled(run: &serde_json::Value) {
    let verdicts = run["verdicts"].as_array().unwrap();
    for check in [
        "accounting",
        "commits_reconciled",
        "data_reconciled",
        "durability",
        "ended",
        "failures",
        "invariants",
        "inputs.rollbacks",
        "inputs.remote_lines",
    ] {
        let verdict = verdicts.iter().find(|v| v["check"] == check);
        let verdict = verdict.unwrap_or_else(|| panic!("no verdict {check}: {verdicts:#?}"));
        let expected = if check == "durability" {
            "warn"
        } else {
            "pass"
        };
        assert_eq!(verdict["status"], expected, "{verdict:#?}");
    }
    for (name, profile) in run["profiles"].as_object().unwrap() {
        let n = |key: &str| profile[key].as_u64().unwrap();
        let sum = n("skipped") + n("committed") + n("rolled_back") + n("failed");
        assert_eq!(n("offered"), sum, "{name}");
    }
}

fn assert_runs_commands(home: &Path, id: &str) {
    let run = |line: &str| {
        let output = pgdyno(home).args(line.split_whitespace()).output().unwrap();
        assert_eq!(
            output.status.code(),
            Some(0),
            "{line}\n{}",
            text(&output.stderr)
        );
        text(&output.stdout)
    };
    let list: serde_json::Value = serde_json::from_str(&run("runs list --format json")).unwrap();
    assert_eq!(list[0]["run_id"], id);
    assert_eq!(list[0]["labels"]["who"], "test");
    assert!(run("runs").contains(id));
    assert!(run("runs show").contains("run sheet"));
    let archive = home.join("x.tar.xz");
    run(&format!("runs export {id} -o {}", archive.display()));
    assert!(std::fs::metadata(&archive).unwrap().len() > 500);
    run(&format!("runs rm {id}"));
    assert!(!run("runs").contains(id));
}

#[test]
fn a_directory_that_cannot_be_written_is_refused_before_the_work() {
    let home = tempfile::tempdir().unwrap();
    // A file where a directory should be stops root as well.
    let file = home.path().join("file");
    std::fs::File::create(&file).unwrap();
    let line = format!("run synthetic -t 1s --runs-dir {}/runs", file.display());
    let output = pgdyno(home.path())
        .args(line.split_whitespace())
        .output()
        .unwrap();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(stderr.contains("--runs-dir"), "{stderr}");
}

#[test]
fn a_synthetic_run_needs_no_server() {
    let home = tempfile::tempdir().unwrap();
    let line = "run synthetic -t 2s --ramp 0 -c 4 --format json -D service_us=500";
    let output = pgdyno(home.path())
        .args(line.split_whitespace())
        .output()
        .unwrap();
    let stderr = text(&output.stderr);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{stderr}\n{}",
        text(&output.stdout)
    );
    let run: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(run["nopm"].is_null());
    assert!(run["tps"].as_f64().unwrap() > 100.0);
    assert!(!home.path().join("clusters").exists());
}

#[test]
fn completions_and_the_manual_page_are_printed() {
    let home = tempfile::tempdir().unwrap();
    for (line, said) in [
        ("completions bash", "_pgdyno"),
        ("completions zsh", "#compdef pgdyno"),
        ("completions fish", "complete -c pgdyno"),
        ("man", ".TH pgdyno"),
        ("--help", "Examples:"),
        ("run --help", "--keying-think"),
        ("--version", env!("CARGO_PKG_VERSION")),
    ] {
        let output = pgdyno(home.path())
            .args(line.split_whitespace())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{line}");
        assert!(
            text(&output.stdout).contains(said),
            "{line}: {}",
            text(&output.stdout)
        );
    }
}

#[test]
fn a_password_reaches_neither_the_process_title_nor_the_record() {
    const WORD: &str = "open-sesame-42";
    let server = support::shared();
    let home = tempfile::tempdir().unwrap();
    let base = loaded(server, home.path(), "cli_secret");
    let conninfo = format!("{base} password={WORD}");
    let mut child = pgdyno(home.path())
        .args("run tpcc -w 1 -c 2 -t 3s --ramp 0 --no-check".split_whitespace())
        .args(["--target", &conninfo])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    pgdyno::clock::pause(std::time::Duration::from_secs(1));
    let title = text(&std::fs::read(format!("/proc/{}/cmdline", child.id())).unwrap());
    assert!(
        title.contains("password=xxx") && !title.contains(WORD),
        "{title}"
    );
    let mut stderr = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut stderr).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{stderr}");
    assert!(!stderr.contains(WORD), "{stderr}");
    let mut seen = 0;
    for run in std::fs::read_dir(home.path().join("runs")).unwrap() {
        for file in std::fs::read_dir(run.unwrap().path()).unwrap() {
            let bytes = std::fs::read(file.unwrap().path()).unwrap();
            assert!(!text(&bytes).contains(WORD));
            seen += 1;
        }
    }
    assert!(seen >= 4, "{seen} files of a record");
}

#[test]
fn a_result_that_cannot_be_stored_is_still_told() {
    let home = tempfile::tempdir().unwrap();
    let child = pgdyno(home.path())
        .args("run synthetic -t 3s --ramp 0 -c 2".split_whitespace())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    pgdyno::clock::pause(std::time::Duration::from_secs(1));
    let runs = home.path().join("runs");
    std::fs::remove_dir_all(&runs).unwrap();
    std::fs::File::create(&runs).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    assert!(
        text(&output.stderr).contains("cannot create"),
        "{}",
        text(&output.stderr)
    );
    let told = text(&output.stdout);
    assert!(
        told.contains("tps") && told.contains("(not stored)"),
        "{told}"
    );
}
