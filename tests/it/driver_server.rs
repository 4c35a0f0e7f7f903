//! The driver against real servers: reconciliation, retries, lost connections, lost servers.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]
#![allow(
    clippy::duration_suboptimal_units,
    reason = "seconds compare at a glance"
)]
#![allow(clippy::print_stdout, reason = "ignored tests print what they measure")]

use crate::driver::{Notes, assert_consistent, measured, plan, sum};
use crate::driver_cost::allocations;
use crate::support::{self, Server};
use pgdyno::clock::pause;
use pgdyno::driver::{DrivePlan, Driven, drive};
use pgdyno::problem::{Kind, Problem};
use pgdyno::record::{Ended, RunPlan, SheetLine};
use pgdyno::rng::{Rng, Seed};
use pgdyno::session::{ConnectOptions, Param, Session, SessionError, Statement};
use pgdyno::workload::{DataSet, Outcome, Profile, ProfileId, Terminal, Workload};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const STATEMENTS: &[&str] = &[
    "SELECT 1",
    "BEGIN",
    "UPDATE counters SET n = n + 1 WHERE id = $1",
    "COMMIT",
    "SELECT pg_sleep(60)",
];

/// What each transaction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    SelectOne,
    /// Does so and looks at the allocations of its thread.
    Allocations,
    /// Adds one to one of this many counters, in a block of its own.
    Count(i32),
    Sleep,
}

static ROUND_TRIPS: AtomicU64 = AtomicU64::new(0);
/// After 1,000 and after 3,000 round trips.
static ALLOCATIONS: (AtomicU64, AtomicU64) = (AtomicU64::new(0), AtomicU64::new(0));

struct Small {
    act: Act,
    isolation: &'static str,
    profiles: Vec<Profile>,
}

struct User {
    act: Act,
    rng: Rng,
}

fn small(act: Act) -> Small {
    Small {
        act,
        isolation: "read committed",
        profiles: vec![Profile {
            name: "small",
            keying_time: Duration::from_millis(50),
            think_time_mean: Duration::from_millis(50),
            response_time_limit: None,
            deferred: false,
        }],
    }
}

impl Workload for Small {
    const NAME: &'static str = "small";
    const SUMMARY: &'static str = "";
    const DATA_VERSION: u32 = 1;
    type Terminal = User;

    fn from_plan(_plan: &RunPlan) -> Result<Self, Problem> {
        Ok(small(Act::SelectOne))
    }
    fn profiles(&self) -> &[Profile] {
        &self.profiles
    }
    fn session_setup(&self) -> Vec<String> {
        vec![format!(
            "SET default_transaction_isolation = '{}'",
            self.isolation
        )]
    }
    fn statements(&self) -> &[&'static str] {
        STATEMENTS
    }
    fn terminal(&self, index: u32, _terminals: u32, seed: Seed) -> User {
        User {
            act: self.act,
            rng: seed.stream("user", index.into()),
        }
    }
    fn data_set(&self) -> Option<&dyn DataSet> {
        None
    }
    fn run_sheet(&self, _tally: &()) -> Vec<SheetLine> {
        Vec::new()
    }
}

impl Terminal for User {
    type Input = (Act, i32);
    type Output = ();
    type Tally = ();

    fn draw(&mut self) -> (ProfileId, (Act, i32)) {
        let id = match self.act {
            Act::Count(rows) => self.rng.int(1, rows),
            _ => 0,
        };
        (ProfileId(0), (self.act, id))
    }
    fn think_time(&mut self, mean: Duration) -> Duration {
        mean
    }
    async fn execute(
        &(act, id): &(Act, i32),
        session: &mut Session,
        (): &mut (),
    ) -> Result<Outcome, SessionError> {
        match act {
            Act::SelectOne | Act::Allocations => {
                session.queue(Statement(0), &[]);
                let mut reply = session.flush().await?;
                if reply.next_result()?.one()?.int4(0)? != 1 {
                    return Err(SessionError::wrong_result("SELECT 1 is not 1"));
                }
                if act == Act::Allocations {
                    match ROUND_TRIPS.fetch_add(1, Ordering::Relaxed) {
                        1000 => ALLOCATIONS.0.store(allocations(), Ordering::Relaxed),
                        3000 => ALLOCATIONS.1.store(allocations(), Ordering::Relaxed),
                        _ => {}
                    }
                }
            }
            Act::Count(_) => {
                session.queue(Statement(1), &[]);
                session.queue(Statement(2), &[Param::Int4(id)]);
                let mut reply = session.flush().await?;
                reply.next_result()?;
                reply.next_result()?.expect_affected(1)?;
                session.queue(Statement(3), &[]);
                session.flush().await?;
            }
            Act::Sleep => {
                session.queue(Statement(4), &[]);
                session.flush().await?;
            }
        }
        Ok(Outcome::Committed)
    }
    fn tally(_input: &(Act, i32), (): &(), _outcome: Outcome, (): &mut ()) {}
    fn merge((): &mut (), (): ()) {}
}

/// A database of its own in `server`, with counters.
fn database(server: &Server, name: &str) -> ConnectOptions {
    let mut admin = Session::connect(&server.connect("postgres")).unwrap();
    admin.query(&format!("CREATE DATABASE {name}")).unwrap();
    let mut options = server.connect(name);
    let mut session = Session::connect(&options).unwrap();
    session
        .query(
            "CREATE TABLE counters (id int PRIMARY KEY, n bigint NOT NULL);
             INSERT INTO counters SELECT i, 0 FROM generate_series(1, 100) i",
        )
        .unwrap();
    "driven".clone_into(&mut options.application_name);
    options
}

fn counted(options: &ConnectOptions) -> u64 {
    let mut session = Session::connect(options).unwrap();
    let n = session.query_value("SELECT sum(n) FROM counters").unwrap();
    n.unwrap().parse().unwrap()
}

fn on_server(options: &ConnectOptions) -> DrivePlan {
    DrivePlan {
        connect: Some(options.clone()),
        connections: 4,
        terminals: 4,
        ramp: Duration::from_millis(300),
        measure: Duration::from_secs(2),
        window: Duration::from_millis(250),
        ..plan()
    }
}

fn run(workload: &Small, plan: &DrivePlan) -> Driven {
    let driven = drive(workload, plan, &mut Notes::default()).unwrap();
    assert_consistent(&driven);
    driven
}

/// Runs `disturb` while `workload` is driven.
fn run_disturbed(workload: &Small, plan: &DrivePlan, disturb: impl FnOnce() + Send) -> Driven {
    std::thread::scope(|scope| {
        scope.spawn(disturb);
        run(workload, plan)
    })
}

#[test]
fn what_was_committed_is_what_the_server_has() {
    let options = database(support::shared(), "driver_committed");
    let plan = DrivePlan {
        workers: 2,
        terminals: 9,
        ..on_server(&options)
    };
    let driven = run(&small(Act::Count(100)), &plan);
    let overall = sum(&driven.record.overall);
    assert!(measured(&driven).committed > 20, "{overall:?}");
    assert_eq!((overall.failed, driven.record.unknown_commits), (0, 0));
    assert_eq!(counted(&options), overall.committed);
    assert!((driven.record.client.round_trips_per_txn - 2.0).abs() < 1e-9);
    assert!(driven.record.client.cpu_us_per_txn > 0.0);
}

#[test]
fn a_round_trip_allocates_nothing() {
    let options = database(support::shared(), "driver_allocations");
    let plan = DrivePlan {
        transactions: Some(4000),
        window: Duration::from_secs(3600),
        ..on_server(&options)
    };
    run(&small(Act::Allocations), &plan);
    let first = ALLOCATIONS.0.load(Ordering::Relaxed);
    let between = ALLOCATIONS.1.load(Ordering::Relaxed) - first;
    assert!(first > 0, "the count must see what happened before");
    // A queue may grow once more when the machine is busy; one a round trip would be 2,000.
    assert!(between < 50, "{between} allocations in 2,000 round trips");
}

#[test]
fn serialization_failures_are_retried_until_the_count_is_right() {
    let options = database(support::shared(), "driver_retries");
    let workload = Small {
        isolation: "repeatable read",
        ..small(Act::Count(2))
    };
    let plan = DrivePlan {
        connections: 8,
        terminals: 8,
        tries_max: 50,
        ..on_server(&options)
    };
    let driven = run(&workload, &plan);
    let overall = sum(&driven.record.overall);
    assert!(overall.retries > 0, "{overall:?}");
    assert_eq!(counted(&options), overall.committed);
}

#[test]
fn terminated_backends_are_replaced_and_the_run_goes_on() {
    let server = support::shared();
    let options = database(server, "driver_terminated");
    let plan = on_server(&options);
    let driven = run_disturbed(&small(Act::Count(100)), &plan, || {
        let mut admin = Session::connect(&server.connect("postgres")).unwrap();
        for _ in 0..3 {
            pause(Duration::from_millis(500));
            admin.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'driver_terminated' AND application_name = 'driven'").unwrap();
        }
    });
    let record = &driven.record;
    assert_eq!(record.ended, Ended::Planned);
    assert_eq!(record.reconnects, 12, "{:?}", record.errors);
    let overall = sum(&record.overall);
    // FATAL arrives inside a transaction, or between two of them.
    assert!(overall.failed <= 12, "{overall:?}");
    let count = counted(&options);
    let possible = overall.committed..=overall.committed + record.unknown_commits;
    assert!(possible.contains(&count), "{count} not in {possible:?}");
    let last = record.windows.last().unwrap();
    assert!(sum(&last.counts).committed > 0);
}

#[test]
fn a_connection_lost_while_idle_costs_no_transaction() {
    let server = support::shared();
    let options = database(server, "driver_idle");
    let plan = DrivePlan {
        keying_think: true,
        terminals: 1,
        ..on_server(&options)
    };
    let driven = run_disturbed(&small(Act::SelectOne), &plan, || {
        pause(Duration::from_millis(800));
        let mut admin = Session::connect(&server.connect("postgres")).unwrap();
        admin.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'driver_idle' AND state = 'idle'").unwrap();
    });
    let overall = sum(&driven.record.overall);
    assert!(driven.record.reconnects >= 3, "{:?}", driven.record);
    assert!(overall.failed <= 1 && overall.committed > 10, "{overall:?}");
}

#[test]
fn a_killed_server_ends_the_run_with_what_was_measured() {
    let server = support::start("18", &[]);
    let options = database(&server, "killed");
    let plan = DrivePlan {
        workers: 2,
        measure: Duration::from_secs(600),
        reconnect_for: Duration::from_millis(800),
        ..on_server(&options)
    };
    let mut notes = Notes::default();
    let driven = std::thread::scope(|scope| {
        scope.spawn(|| {
            pause(Duration::from_millis(1500));
            let pid = std::fs::read_to_string(server.data_dir.join("postmaster.pid")).unwrap();
            let pid = pid.lines().next().unwrap().to_owned();
            Command::new("kill").args(["-QUIT", &pid]).status().unwrap();
        });
        drive(&small(Act::Count(100)), &plan, &mut notes).unwrap()
    });
    assert_consistent(&driven);
    let record = &driven.record;
    assert_eq!(record.ended, Ended::ServerLost);
    assert!(measured(&driven).committed > 0);
    assert!(
        (0.8..60.0).contains(&record.measurement_s),
        "{}",
        record.measurement_s
    );
    assert!(record.errors.contains_key("disconnected"));
    assert_eq!(notes.windows.last().unwrap().connections, 0);
}

#[test]
fn a_server_that_recovers_from_a_crash_is_found_again() {
    let server = support::start("18", &[]);
    let options = database(&server, "crashed");
    let plan = DrivePlan {
        measure: Duration::from_secs(60),
        reconnect_for: Duration::from_secs(30),
        ..on_server(&options)
    };
    let stop = &plan.stop;
    let driven = run_disturbed(&small(Act::Count(100)), &plan, || {
        pause(Duration::from_secs(1));
        let pid = Session::connect(&options).unwrap().query_value(
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'driven' AND pid <> pg_backend_pid() LIMIT 1",
        );
        let pid = pid.unwrap().unwrap();
        Command::new("kill").args(["-KILL", &pid]).status().unwrap();
        // All backends are gone; wait until some of the run's are there again.
        wait_for_backends(&options, 4, stop);
        pause(Duration::from_millis(500));
        stop.store(true, Ordering::Relaxed);
    });
    let record = &driven.record;
    assert_eq!(record.ended, Ended::Interrupted);
    assert_eq!(record.reconnects, 4, "{:?}", record.errors);
    let overall = sum(&record.overall);
    let count = counted(&options);
    let possible = overall.committed..=overall.committed + record.unknown_commits;
    assert!(possible.contains(&count), "{count} not in {possible:?}");
    assert!(sum(&record.windows.last().unwrap().counts).committed > 0);
}

fn wait_for_backends(options: &ConnectOptions, wanted: u64, stop: &AtomicBool) {
    for _ in 0..300 {
        pause(Duration::from_millis(100));
        let Ok(mut session) = Session::connect(options) else {
            continue;
        };
        let count = session.query_value(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'driven' AND pid <> pg_backend_pid() AND backend_start > pg_postmaster_start_time()",
        );
        if count.is_ok_and(|count| count.unwrap().parse::<u64>().unwrap() >= wanted) {
            return;
        }
    }
    stop.store(true, Ordering::Relaxed);
    panic!("the sessions did not come back");
}

#[test]
fn what_the_server_does_not_finish_is_given_up_when_the_drain_ends() {
    let options = database(support::shared(), "driver_drain");
    let plan = DrivePlan {
        ramp: Duration::ZERO,
        measure: Duration::from_millis(300),
        drain: Duration::from_millis(200),
        ..on_server(&options)
    };
    let driven = run(&small(Act::Sleep), &plan);
    let overall = sum(&driven.record.overall);
    assert_eq!((overall.failed, overall.committed), (4, 0));
    assert_eq!(driven.record.ended, Ended::Planned);
}

#[test]
fn a_run_without_a_server_to_begin_with_is_a_problem() {
    let nowhere = tempfile::tempdir().unwrap();
    let options = ConnectOptions::unix(nowhere.path(), 5432, "postgres", "postgres");
    for workers in [1, 3] {
        let plan = DrivePlan {
            workers,
            ..on_server(&options)
        };
        let result = drive(&small(Act::SelectOne), &plan, &mut Notes::default());
        assert_eq!(result.unwrap_err().kind, Kind::Environment);
    }
    let plan = DrivePlan {
        connect: None,
        ..plan()
    };
    let result = drive(&small(Act::SelectOne), &plan, &mut Notes::default());
    assert_eq!(result.unwrap_err().kind, Kind::Usage);
}

/// Our cost of a round trip and pgbench's, in turns; pgbench from the PATH or from Debian's place.
#[test]
#[ignore = "prints what a round trip costs; run it alone, in release mode"]
fn cost_of_a_round_trip() {
    let server = support::shared();
    let options = database(server, "driver_cost");
    let script = server.socket_dir.join("select-1.sql");
    std::fs::File::create(&script)
        .and_then(|mut file| std::io::Write::write_all(&mut file, b"SELECT 1;\n"))
        .unwrap();
    for connections in [1, 4, 16] {
        for _ in 0..3 {
            let plan = DrivePlan {
                connections,
                terminals: connections,
                measure: Duration::from_secs(3),
                ..on_server(&options)
            };
            let driven = run(&small(Act::SelectOne), &plan);
            let rate = measured(&driven).completed() as f64 / driven.record.measurement_s;
            let cost = driven.record.client.cpu_us_per_txn;
            println!("{connections} driven:  {rate:.0}/s, {cost:.2} µs of CPU");
            let shell = format!(
                "PATH=$PATH:/usr/lib/postgresql/15/bin; TIMEFORMAT='%U %S'; \
                 time pgbench -h {} -U postgres -n -M prepared -c {connections} -j 1 -T 3 -f {} driver_cost",
                server.socket_dir.display(),
                script.display(),
            );
            let output = Command::new("bash").args(["-c", &shell]).output().unwrap();
            let (out, err) = (
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr),
            );
            let field = |prefix: &str| {
                let rest = out.lines().find_map(|line| line.strip_prefix(prefix));
                rest.and_then(|rest| rest.split_whitespace().next())
                    .map_or(0.0, |n| n.parse().unwrap())
            };
            let cpu: f64 = err
                .lines()
                .last()
                .unwrap_or_default()
                .split(' ')
                .filter_map(|n| n.parse::<f64>().ok())
                .sum();
            let (tps, count) = (
                field("tps ="),
                field("number of transactions actually processed:"),
            );
            println!(
                "{connections} pgbench: {tps:.0}/s, {:.2} µs of CPU",
                cpu * 1e6 / count
            );
        }
    }
}
