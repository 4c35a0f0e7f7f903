//! Managed servers: up, down, found again, recovered; settings in force or refused.

use crate::support::{self, Home, Quiet};
use pgdyno::clock::pause;
use pgdyno::problem::Problem;
use pgdyno::session::{ConnectOptions, Session};
use pgdyno::target::{self, Places, Target, TargetRequest};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

fn query(connect: &ConnectOptions, sql: &str) -> String {
    let mut session = Session::connect(connect).unwrap();
    session.query_value(sql).unwrap().unwrap_or_default()
}

fn show(target: &Target, name: &str) -> String {
    query(&target.connect, &format!("SHOW {name}"))
}

fn acquire(home: &Home, version: &str, settings: &[&str]) -> Result<Target, Problem> {
    support::acquire(&home.places, &support::request(version, settings))
}

/// `acquire` that must fail.
fn refused(home: &Home, version: &str, settings: &[&str]) -> Problem {
    match acquire(home, version, settings) {
        Ok(_) => panic!("{settings:?} should be refused"),
        Err(problem) => problem,
    }
}

fn up(home: &Home, version: &str, settings: &[&str]) -> target::ClusterStatus {
    let request = support::request(version, settings);
    target::up(&home.places, &request, &mut Quiet).unwrap()
}

fn down(home: &Home) -> target::ClusterStatus {
    target::down(&home.places, None, &mut Quiet).unwrap()
}

fn state(home: &Home) -> String {
    let all = target::status(&home.places).unwrap();
    assert_eq!(all.len(), 1);
    all[0].state.clone()
}

fn kill(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// Processes of a server whose data directory is (or was) `data`.
fn processes(data: &Path) -> Vec<i32> {
    std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid: &i32| {
            std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == data)
        })
        .collect()
}

/// Keeps what it is told.
#[derive(Default)]
struct Told(String);

impl target::Progress for Told {
    fn step(&mut self, what: &str) {
        self.0.push_str(what);
        self.0.push('\n');
    }
    fn bytes(&mut self, _done: u64, _total: Option<u64>) {}
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..1000 {
        if done() {
            return;
        }
        pause(Duration::from_millis(20));
    }
    panic!("{what} did not happen within 20 s");
}

#[test]
fn clusters_of_the_oldest_a_middle_and_the_newest_version_go_up_and_down_and_are_found_again() {
    for (version, num) in [("9.6", 90_600), ("12", 120_000), ("18", 180_000)] {
        let home = Home::empty();
        let first = up(&home, version, &[]);
        assert_eq!(first.name, format!("pg{version}"));
        assert_eq!(first.state, "running");
        assert!(first.conninfo.contains("dbname"), "{}", first.conninfo);
        let again = up(&home, version, &[]);
        assert_eq!(again.pid, first.pid, "a server that runs is left running");

        let target = acquire(&home, version, &[]).unwrap();
        assert_eq!(target.postmaster_pid, first.pid);
        let found = query(&target.connect, "SHOW server_version_num");
        assert_eq!(found.parse::<u32>().unwrap() / 100, num / 100);
        for (name, value) in [
            ("server_encoding", "UTF8"),
            ("listen_addresses", ""),
            ("fsync", "on"),
        ] {
            assert_eq!(show(&target, name), value, "{name}");
        }
        let sql = "SELECT current_user || '/' || current_database() || '/' || datcollate \
                   FROM pg_database WHERE datname = current_database()";
        assert_eq!(query(&target.connect, sql), "postgres/pgdyno/C");
        target.release().unwrap();
        assert_eq!(
            state(&home),
            "running",
            "a run does not stop what ran before"
        );

        assert_eq!(down(&home).state, "stopped");
        assert_eq!(down_named(&home, &first.name).state, "stopped");
        let target = acquire(&home, version, &[]).unwrap();
        assert_eq!(state(&home), "running");
        target.release().unwrap();
        assert_eq!(state(&home), "stopped", "what a run started ends with it");
        target::remove(&home.places, &first.name).unwrap();
        assert!(target::status(&home.places).unwrap().is_empty());
        assert!(!home.cluster(version).exists());
    }
}

fn down_named(home: &Home, name: &str) -> target::ClusterStatus {
    target::down(&home.places, Some(name), &mut Quiet).unwrap()
}

#[test]
fn settings_of_a_run_are_in_force_and_gone_after_it() {
    let home = Home::with_cluster("18");
    up(&home, "18", &["work_mem=7MB", "Shared_Buffers=48MB"]);
    // By reload, by restart, and overlaid on the cluster's own.
    let target = acquire(
        &home,
        "18",
        &[
            "work_mem=9MB",
            "max_connections=33",
            "wal_buffers=-1",
            "timezone=utc",
            "search_path='it''s\\odd'",
            "unix_socket_permissions=0700",
            "synchronous_commit=true",
        ],
    )
    .unwrap();
    for (name, value) in [
        ("work_mem", "9MB"),
        ("max_connections", "33"),
        ("shared_buffers", "48MB"),
        ("timezone", "UTC"),
        ("search_path", "'it''s\\odd'"),
        ("synchronous_commit", "on"),
    ] {
        assert_eq!(show(&target, name), value, "{name}");
    }
    let restarted = target.postmaster_pid;
    assert_eq!(
        restarted,
        target::status(&home.places).unwrap()[0].pid,
        "the restarted server is the one that is told"
    );
    let also = BTreeMap::from([("DateStyle".to_owned(), String::new())]);
    let mut session = Session::connect(&target.connect).unwrap();
    let settings = target::read_settings(&mut session, &also).unwrap();
    assert_eq!(settings["work_mem"].value, "9216");
    assert_eq!(settings["work_mem"].unit.as_deref(), Some("kB"));
    assert_eq!(settings["work_mem"].source, "configuration file");
    assert_eq!(settings["max_connections"].context, "postmaster");
    for name in ["DateStyle", "fsync", "io_method", "wal_segment_size"] {
        assert!(settings.contains_key(name), "{name}");
    }
    assert!(!settings.contains_key("geqo"), "nobody asked for it");
    drop(session);
    let connect = target.connect.clone();
    target.release().unwrap();
    wait_until("the reload", || query(&connect, "SHOW work_mem") == "7MB");

    let target = acquire(&home, "18", &[]).unwrap();
    assert_eq!(show(&target, "max_connections"), "100");
    assert_eq!(show(&target, "shared_buffers"), "48MB");
    assert_ne!(target.postmaster_pid, restarted);
    target.release().unwrap();
    assert_eq!(state(&home), "running", "restarted, but still to stay");
    // New settings for the cluster itself replace its former ones.
    up(&home, "18", &["work_mem=11MB"]);
    assert_eq!(query(&connect, "SHOW work_mem"), "11MB");
    assert_eq!(query(&connect, "SHOW shared_buffers"), "128MB");
    down(&home);
}

#[test]
fn settings_are_verified_on_the_oldest_version_too() {
    let home = Home::with_cluster("9.6");
    let target = acquire(
        &home,
        "9.6",
        &["shared_buffers=32MB", "wal_level=archive", "work_mem=2MB"],
    )
    .unwrap();
    assert_eq!(show(&target, "wal_level"), "replica");
    target.release().unwrap();
    up(&home, "9.6", &[]);
    let target = acquire(&home, "9.6", &["shared_buffers=40MB"]).unwrap();
    assert_eq!(show(&target, "shared_buffers"), "40MB");
    target.release().unwrap();
    down(&home);
}

#[test]
fn wrong_settings_are_refused_by_name_and_leave_nothing_broken() {
    let home = Home::with_cluster("18");
    let cases = [
        ("shared_bufers=1GB", "shared_bufers", "shared_buffers"),
        ("no_such_thing_at_all=1", "unrecognized", "no such setting"),
        ("work_mem=lots", "invalid value", ""),
        ("work_mem=12parsecs", "work_mem", "Valid units"),
        ("max_connections=-1", "outside the valid range", ""),
        ("block_size=16384", "cannot be changed", "compiled"),
        ("transaction_isolation=serializable", "decides", ""),
        ("pg_nothing.track=all", "shared_preload_libraries", ""),
        ("seed=0.5", "seed", ""),
        ("data_directory=/x", "decides", ""),
        ("unix_socket_directories=/x", "decides", ""),
        ("port=0", "port", ""),
        ("port=x", "port", ""),
        ("shared_buffers=100000GB", "shared_buffers", ""),
    ];
    for running in [false, true] {
        if running {
            up(&home, "18", &["work_mem=7MB"]);
        }
        for (setting, words, more) in cases {
            let problem = refused(&home, "18", &["maintenance_work_mem=99MB", setting]);
            assert_eq!(problem.exit_code(), 2, "{setting}: {problem}");
            let text = problem.to_string();
            assert!(text.contains(words), "{setting}: {text}");
            assert!(text.contains(more), "{setting}: {text}");
            let expected = if running { "running" } else { "stopped" };
            assert_eq!(state(&home), expected, "{setting}");
        }
    }
    let target = acquire(&home, "18", &[]).unwrap();
    assert_eq!(show(&target, "work_mem"), "7MB");
    assert_eq!(show(&target, "maintenance_work_mem"), "64MB");
    target.release().unwrap();
    down(&home);
}

#[test]
fn a_server_that_cannot_start_with_the_settings_tells_why_and_runs_on_with_the_former_ones() {
    let home = Home::with_cluster("18");
    // Each is valid alone; the server finds out only when it starts.
    let impossible = ["shared_preload_libraries=no_such_library"];
    let problem = refused(&home, "18", &impossible);
    assert_eq!(problem.exit_code(), 3);
    assert!(problem.message.contains("no_such_library"), "{problem}");
    assert!(problem.to_string().contains("postgresql.log"), "{problem}");
    assert_eq!(state(&home), "stopped");

    let status = up(&home, "18", &["work_mem=7MB"]);
    let problem = refused(&home, "18", &impossible);
    assert!(problem.message.contains("no_such_library"), "{problem}");
    let after = &target::status(&home.places).unwrap()[0];
    assert_eq!(after.state, "running");
    assert_ne!(after.pid, status.pid);
    let target = acquire(&home, "18", &[]).unwrap();
    assert_eq!(show(&target, "work_mem"), "7MB");
    assert_eq!(target.postmaster_pid, after.pid, "nothing had to be done");
    target.release().unwrap();
    assert_eq!(state(&home), "running", "it is still to stay");
    down(&home);
}

#[test]
fn a_setting_that_another_source_overrides_is_not_in_force() {
    let home = Home::with_cluster("18");
    let target = acquire(&home, "18", &[]).unwrap();
    query(&target.connect, "SELECT 1");
    let mut session = Session::connect(&target.connect).unwrap();
    session.query("ALTER SYSTEM SET work_mem = '5MB'").unwrap();
    let sql = "ALTER DATABASE pgdyno SET random_page_cost = 1.5";
    session.query(sql).unwrap();
    drop(session);
    target.release().unwrap();
    for (setting, place) in [
        ("work_mem=6MB", "postgresql.auto.conf"),
        ("random_page_cost=1.1", "database"),
    ] {
        let problem = refused(&home, "18", &[setting]);
        assert_eq!(problem.exit_code(), 2);
        assert!(problem.message.contains(place), "{problem}");
        assert_eq!(state(&home), "stopped");
    }
    let same = acquire(&home, "18", &["work_mem=5MB", "random_page_cost=1.50"]).unwrap();
    same.release().unwrap();
}

#[test]
fn an_extensions_setting_counts_once_its_library_is_loaded() {
    let home = Home::with_cluster("18");
    let loaded = "shared_preload_libraries=pg_stat_statements";
    let target = acquire(&home, "18", &[loaded, "pg_stat_statements.track=ALL"]).unwrap();
    assert_eq!(show(&target, "pg_stat_statements.track"), "all");
    target.release().unwrap();
    let problem = refused(&home, "18", &[loaded, "pg_stat_statements.track=nothing"]);
    assert_eq!(problem.exit_code(), 2, "{problem}");
    assert!(problem.message.contains("pg_stat_statements.track"));
}

#[test]
fn a_stale_pid_file_does_not_stop_the_next_start() {
    let home = Home::with_cluster("12");
    let data = home.cluster("12").join("data");
    let own = std::process::id();
    for pid in [
        "999999999".to_owned(),
        own.to_string(),
        "1".into(),
        "x".into(),
    ] {
        let text = format!(
            "{pid}\n{}\n1700000000\n5432\n/tmp\n\n 1 2\n",
            data.display()
        );
        std::fs::File::create(data.join("postmaster.pid")).unwrap();
        support::overwrite(&data.join("postmaster.pid"), &text);
        assert_ne!(state(&home), "running");
        acquire(&home, "12", &[]).unwrap().release().unwrap();
    }
}

#[test]
fn a_killed_server_is_recovered_with_all_that_was_committed() {
    for everything in [false, true] {
        let home = Home::with_cluster("18");
        let target = acquire(&home, "18", &[]).unwrap();
        let mut session = Session::connect(&target.connect).unwrap();
        session.query("CREATE TABLE t AS SELECT 7 AS x").unwrap();
        let data = target.data_dir.clone().unwrap();
        let mut pids = processes(&data);
        assert!(pids.len() > 3, "{pids:?}");
        pids.retain(|pid| everything || Some(*pid) == target.postmaster_pid);
        for pid in pids {
            kill(pid, Signal::KILL);
        }
        // What a stopped backend would do: it neither notices nor goes away.
        drop(session);
        let _ = target.release();
        wait_until("the end of the orphans", || processes(&data).is_empty());
        assert_eq!(state(&home), "crashed");
        let mut told = Told::default();
        let request = support::request("18", &[]);
        let target = target::acquire_in(&home.places, &request, &mut told).unwrap();
        assert!(told.0.contains("recovering"), "{}", told.0);
        assert_eq!(query(&target.connect, "SELECT x FROM t"), "7");
        target.release().unwrap();
        assert_eq!(state(&home), "stopped");
    }
}

#[test]
fn orphaned_backends_are_ended_before_the_next_start() {
    let home = Home::with_cluster("12");
    let status = up(&home, "12", &[]);
    let data = PathBuf::from(&status.data_dir);
    let target = acquire(&home, "12", &[]).unwrap();
    let session = Session::connect(&target.connect).unwrap();
    let backend = session.backend_pid();
    target.release().unwrap();
    // Stopped, it cannot notice that its postmaster is gone.
    kill(backend, Signal::STOP);
    kill(status.pid.unwrap(), Signal::KILL);
    wait_until("the postmaster's end", || {
        !processes(&data).contains(&status.pid.unwrap())
    });
    assert!(processes(&data).contains(&backend));
    let target = acquire(&home, "12", &[]).unwrap();
    assert!(!processes(&data).contains(&backend));
    assert_eq!(query(&target.connect, "SELECT 1"), "1");
    drop(session);
    target.release().unwrap();
}

#[test]
fn an_interrupted_initdb_is_begun_anew() {
    let home = Home::empty();
    let cluster = home.cluster("12");
    std::fs::create_dir_all(cluster.join("data.new/base")).unwrap();
    std::fs::File::create(cluster.join("data.new/PG_VERSION")).unwrap();
    acquire(&home, "12", &[]).unwrap().release().unwrap();
    assert!(!cluster.join("data.new").exists());
    assert_eq!(state(&home), "stopped");
}

#[test]
fn data_that_pgdyno_did_not_make_is_neither_used_nor_removed() {
    let home = Home::empty();
    let data = home.cluster("12").join("data");
    std::fs::create_dir_all(&data).unwrap();
    let problem = refused(&home, "12", &[]);
    assert!(problem.message.contains("did not make it"), "{problem}");
    let problem = target::remove(&home.places, "pg12").unwrap_err();
    assert!(problem.message.contains("no cluster pg12"), "{problem}");
    assert!(data.exists());
}

#[test]
fn a_second_process_is_locked_out_by_name() {
    let home = Home::with_cluster("12");
    let target = acquire(&home, "12", &[]).unwrap();
    let own = format!("process {}", std::process::id());
    for problem in [
        refused(&home, "12", &[]),
        target::down(&home.places, None, &mut Quiet).unwrap_err(),
        target::remove(&home.places, "pg12").unwrap_err(),
    ] {
        assert_eq!(problem.exit_code(), 3);
        assert!(problem.message.contains(&own), "{problem}");
    }
    assert_eq!(query(&target.connect, "SELECT 1"), "1");
    target.release().unwrap();
    acquire(&home, "12", &[]).unwrap().release().unwrap();
}

#[test]
fn a_long_home_path_gets_a_short_socket_directory() {
    let home = Home::empty();
    let places = Places {
        clusters: home.places.clusters.join("a-long-name-".repeat(12)),
        ..home.places.clone()
    };
    let request = support::request("12", &["fsync=off"]);
    for _ in 0..2 {
        let target = support::acquire(&places, &request).unwrap();
        assert_eq!(query(&target.connect, "SELECT 1"), "1");
        target.release().unwrap();
    }
    target::remove(&places, "pg12").unwrap();
}

#[test]
fn a_cluster_belongs_to_one_version_and_build() {
    let home = Home::with_cluster("12");
    let mut other = support::request("18", &[]);
    other.cluster = Some("pg12".into());
    let problem = support::acquire(&home.places, &other).err().unwrap();
    assert_eq!(problem.exit_code(), 2);
    assert!(problem.message.contains("made with PostgreSQL 12"));

    let target = acquire(&home, "12", &[]).unwrap();
    let bindir = target.bindir.clone();
    target.release().unwrap();
    let mut request = TargetRequest {
        pg_bindir: bindir,
        ..TargetRequest::default()
    };
    let target = support::acquire(&home.places, &request).unwrap();
    let name = target.cluster.clone().unwrap();
    assert!(name.starts_with("pg12-bindir-"), "{name}");
    assert_eq!(query(&target.connect, "SELECT 1"), "1");
    target.release().unwrap();
    request.cluster = Some("pg12".into());
    let problem = support::acquire(&home.places, &request).err().unwrap();
    assert!(problem.message.contains("binaries"), "{problem}");
    // By name alone, the build that made it is found again.
    request = TargetRequest {
        cluster: Some(name),
        ..TargetRequest::default()
    };
    support::acquire(&home.places, &request)
        .unwrap()
        .release()
        .unwrap();
}

#[test]
fn impossible_requests_are_refused_with_a_hint() {
    let home = Home::empty();
    let empty = tempfile::tempdir().unwrap();
    let request = |change: &dyn Fn(&mut TargetRequest)| {
        let mut request = TargetRequest::default();
        change(&mut request);
        support::acquire(&home.places, &request).err().unwrap()
    };
    for problem in [
        request(&|r| r.pg = Some("9.5".into())),
        request(&|r| r.pg = Some("99".into())),
        request(&|r| r.pg = Some("eleven".into())),
        request(&|r| r.pg_bindir = Some("/no/where".into())),
        request(&|r| r.pg_bindir = Some(empty.path().to_owned())),
        request(&|r| {
            r.pg = Some("18".into());
            r.pg_bindir = Some("/usr/bin".into());
        }),
        request(&|r| r.cluster = Some("../x".into())),
        request(&|r| r.cluster = Some(String::new())),
    ] {
        assert_eq!(problem.exit_code(), 2, "{problem}");
        assert!(problem.hint.is_some(), "{problem}");
    }
    assert!(target::status(&home.places).unwrap().is_empty());
    for (flag, change) in [
        (
            "--pg",
            (&|r: &mut TargetRequest| r.pg = Some("18".into())) as &dyn Fn(&mut TargetRequest),
        ),
        ("--pg-bindir", &|r| r.pg_bindir = Some("/x".into())),
        ("--cluster", &|r| r.cluster = Some("x".into())),
        ("--keep", &|r| r.keep = true),
        ("--set", &|r| {
            drop(r.settings.insert("a".into(), "b".into()));
        }),
    ] {
        let mut request = TargetRequest {
            target: Some("host=/tmp".into()),
            ..TargetRequest::default()
        };
        change(&mut request);
        let problem = target::acquire(&request, &mut Quiet).err().unwrap();
        assert_eq!(problem.exit_code(), 2);
        assert!(problem.message.contains(flag), "{problem}");
    }
}

#[test]
fn psql_is_given_what_it_needs_or_said_to_be_missing() {
    let home = Home::with_cluster("12");
    let problem = target::psql_command(&home.places, Some("pg12")).unwrap_err();
    assert!(problem.hint.unwrap().contains("server up"));
    assert!(target::psql_command(&home.places, Some("nowhere")).is_err());
    let status = up(&home, "12", &[]);
    match target::psql_command(&home.places, None) {
        Ok(mut command) => {
            let output = command.args(["-XAtc", "SELECT 6 * 7"]).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stdout), "42\n");
            assert!(
                command
                    .get_args()
                    .any(|arg| arg == status.conninfo.as_str())
            );
        }
        Err(problem) => assert!(problem.message.contains("no psql"), "{problem}"),
    }
    down(&home);
}

/// Environment variables by which a test tells its helper process what to do.
const HELPER_CLUSTERS: &str = "PGDYNO_TEST_CLUSTERS";
const HELPER_KEEP: &str = "PGDYNO_TEST_KEEP";

#[test]
#[ignore = "a helper that other tests run in a process of its own"]
fn helper_that_acquires_a_server_and_waits() {
    let places = Places {
        clusters: std::env::var_os(HELPER_CLUSTERS).unwrap().into(),
        ..Places::standard().unwrap()
    };
    let mut request = support::request("18", &[]);
    request.keep = std::env::var_os(HELPER_KEEP).is_some();
    let target = target::acquire_in(&places, &request, &mut Quiet).unwrap();
    println!("\nserver {}", target.postmaster_pid.unwrap());
    loop {
        pause(Duration::from_secs(1));
    }
}

/// Starts the helper; returns it and its server's process id.
fn helper(home: &Home, keep: bool) -> (Child, i32) {
    // As a script's background job, which ignores SIGINT.
    let mut command = Command::new("sh");
    command
        .args(["-c", "trap '' INT; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture"])
        .arg("target::helper_that_acquires_a_server_and_waits")
        .env(HELPER_CLUSTERS, &home.places.clusters)
        .stdout(Stdio::piped());
    if keep {
        command.env(HELPER_KEEP, "1");
    }
    let mut child = command.spawn().unwrap();
    let pid = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .find_map(|line| line.unwrap().strip_prefix("server ")?.parse().ok())
        .unwrap();
    (child, pid)
}

#[test]
fn kill_9_of_pgdyno_stops_the_server_of_its_run() {
    let home = Home::with_cluster("18");
    let data = home.cluster("18").join("data");
    let (mut child, server) = helper(&home, false);
    assert!(processes(&data).contains(&server));
    let problem = refused(&home, "18", &[]);
    assert!(problem.message.contains(&format!("process {}", child.id())));
    child.kill().unwrap();
    child.wait().unwrap();
    // At once, while the old server may still be on its way down.
    let target = acquire(&home, "18", &[]).unwrap();
    assert_eq!(query(&target.connect, "SELECT 1"), "1");
    assert_ne!(target.postmaster_pid, Some(server));
    target.release().unwrap();
    assert!(processes(&data).is_empty());

    let (mut child, _) = helper(&home, false);
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until("the server's end", || processes(&data).is_empty());
    assert_eq!(state(&home), "stopped");
}

#[test]
fn a_kept_server_outlives_pgdyno_however_it_ends() {
    let home = Home::with_cluster("18");
    let (mut child, server) = helper(&home, true);
    child.kill().unwrap();
    child.wait().unwrap();
    let target = acquire(&home, "18", &[]).unwrap();
    assert_eq!(target.postmaster_pid, Some(server));
    target.release().unwrap();
    assert_eq!(state(&home), "running");
    assert_eq!(down(&home).state, "stopped");
}

#[test]
fn a_server_that_a_killed_pgdyno_left_is_taken_over_and_ends_with_the_run() {
    let home = Home::with_cluster("12");
    let left = up(&home, "12", &[]);
    // As if pgdyno had been killed before it could note that the server is to stay.
    let json = home.cluster("12").join("cluster.json");
    let text = std::fs::read_to_string(&json).unwrap();
    let kept = format!("\"kept\": {}", left.pid.unwrap());
    assert!(text.contains(&kept), "{text}");
    support::overwrite(&json, &text.replace(&kept, "\"kept\": null"));
    let target = acquire(&home, "12", &["work_mem=3MB"]).unwrap();
    assert_ne!(
        target.postmaster_pid, left.pid,
        "nothing tied that one to us"
    );
    assert_eq!(show(&target, "work_mem"), "3MB");
    target.release().unwrap();
    assert_eq!(state(&home), "stopped");
}

#[test]
fn a_home_that_the_servers_user_cannot_reach_is_refused_before_anything_is_made() {
    let private = tempfile::Builder::new()
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .tempdir()
        .unwrap();
    let places = Places {
        builds: private.path().join("home/postgres"),
        clusters: private.path().join("home/clusters"),
        maven_url: "/no/where".into(),
    };
    let request = support::request("12", &[]);
    let problem = support::acquire(&places, &request).err().unwrap();
    assert_eq!(problem.exit_code(), 3);
    if rustix::process::geteuid().is_root() {
        assert!(problem.message.contains("cannot reach"), "{problem}");
        assert!(problem.hint.unwrap().contains("PGDYNO_HOME"));
        assert!(!private.path().join("home").exists());
    } else {
        // It is our own; what is missing is the build.
        assert!(problem.message.contains("not cached"), "{problem}");
    }
}

#[test]
fn a_cluster_keeps_its_build_until_another_is_asked_for() {
    let home = Home::with_cluster("18");
    let real = home
        .places
        .builds
        .join(target::status(&home.places).unwrap()[0].version.as_str());
    // One build under the names of two releases.
    let builds = tempfile::Builder::new()
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .tempdir()
        .unwrap();
    for name in ["18.90.0", "18.91.0"] {
        std::os::unix::fs::symlink(&real, builds.path().join(name)).unwrap();
    }
    let places = Places {
        builds: builds.path().to_owned(),
        maven_url: "/no/where".into(),
        ..home.places.clone()
    };
    let up = |pg: Option<&str>| {
        let request = TargetRequest {
            pg: pg.map(str::to_owned),
            ..TargetRequest::default()
        };
        target::up(&places, &request, &mut Quiet).unwrap()
    };
    let old = up(Some("18.90"));
    assert_eq!(old.version, "18.90.0");
    assert_eq!(up(None).pid, old.pid, "no wish, no change");
    let new = up(Some("18"));
    assert_eq!(new.version, "18.91.0");
    assert_ne!(new.pid, old.pid);
    assert_eq!(up(None).pid, new.pid);
    let running = std::fs::read_to_string(format!("/proc/{}/cmdline", new.pid.unwrap())).unwrap();
    assert!(running.contains("18.91.0"), "{running}");
}

#[test]
fn binaries_that_the_servers_user_cannot_run_are_refused() {
    let home = Home::empty();
    let private = tempfile::Builder::new()
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .tempdir()
        .unwrap();
    let template = Home::with_cluster("12");
    let version = target::status(&template.places).unwrap()[0].version.clone();
    let bindir = private.path().join("bin");
    std::os::unix::fs::symlink(home.places.builds.join(version).join("bin"), &bindir).unwrap();
    let request = TargetRequest {
        pg_bindir: Some(bindir),
        ..TargetRequest::default()
    };
    let result = support::acquire(&home.places, &request);
    if rustix::process::geteuid().is_root() {
        let problem = result.err().unwrap();
        assert_eq!(problem.exit_code(), 3);
        assert!(problem.message.contains("cannot run"), "{problem}");
        assert!(target::status(&home.places).unwrap().is_empty());
    } else {
        result.unwrap().release().unwrap();
    }
}

#[test]
fn a_home_that_cannot_be_written_is_named() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let places = Places {
        builds: file.path().join("postgres"),
        clusters: file.path().join("clusters"),
        maven_url: "/no/where".into(),
    };
    let request = support::request("12", &[]);
    let problem = support::acquire(&places, &request).err().unwrap();
    assert_eq!(problem.exit_code(), 3);
    assert!(problem.message.contains(file.path().to_str().unwrap()));
}

#[test]
fn found_binaries_run_their_own_cluster() {
    let home = Home::empty();
    let request = TargetRequest {
        pg: Some("found".into()),
        ..TargetRequest::default()
    };
    // Machines with and without an installed PostgreSQL both have an answer.
    match support::acquire(&home.places, &request) {
        Ok(target) => {
            let bindir = target.bindir.clone().unwrap();
            assert!(
                !bindir.starts_with(&home.places.builds),
                "{}",
                bindir.display()
            );
            assert_eq!(query(&target.connect, "SELECT 1"), "1");
            assert!(target.cluster.clone().unwrap().contains("-bindir-"));
            target.release().unwrap();
        }
        Err(problem) => {
            assert!(
                problem
                    .message
                    .contains("no PostgreSQL server is installed")
            );
            assert!(problem.hint.unwrap().contains("--pg-bindir"));
        }
    }
}
