//! Ctrl-C. The flag is one for the process, so each case runs in a process of its own.

use super::{connect, value};
use crate::support;
use pgdyno::clock::{Clock, Monotonic, pause};
use pgdyno::interrupt;
use pgdyno::session::{ConnectOptions, Failure, Session};
use rustix::process::{Signal, getpid, kill_process};
use std::process::Command;
use std::time::Duration;

/// Where the child finds its server.
const TARGET: &str = "PGDYNO_TEST_TARGET";

#[test]
fn an_interrupt_cancels_the_statement_and_leaves_the_session_usable() {
    let server = support::start("18", &[]);
    run_child(&server.connect("postgres"));
    let mut session = connect(&server);
    check_left(&mut session);
    assert_eq!(value(&mut session, "SELECT count(*) FROM t"), "0");
}

/// Runs the test below against a server.
pub(super) fn run_child(options: &ConnectOptions) {
    let status = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "session::interrupts::in_a_child",
            "--ignored",
            "--nocapture",
        ])
        .env(TARGET, options.conninfo())
        .status()
        .unwrap();
    assert!(status.success());
}

/// Waits until no statement of the child is left.
pub(super) fn check_left(session: &mut Session) {
    let left = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(60)%'
                AND pid <> pg_backend_pid()";
    while value(session, left) != "0" {
        pause(Duration::from_millis(50));
    }
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn in_a_child() {
    let target = std::env::var(TARGET).unwrap();
    let options = ConnectOptions::parse(&target).unwrap();
    let mut session = Session::connect(&options).unwrap();
    session.query("CREATE TABLE t (a int)").unwrap();
    interrupt::install().unwrap();
    let clock = Monotonic::start();
    let error = std::thread::scope(|scope| {
        scope.spawn(|| {
            pause(Duration::from_millis(300));
            kill_process(getpid(), Signal::INT).unwrap();
        });
        session.query("SELECT pg_sleep(60)").unwrap_err()
    });
    assert_eq!(error.failure, Failure::Interrupted);
    assert!(
        clock.now().0 < 3_000_000_000,
        "within 100 ms and a round trip"
    );
    assert_eq!(
        session.query("SELECT 1").unwrap_err().failure,
        Failure::Interrupted
    );
    let error = Session::connect(&options).map(|_| ()).unwrap_err();
    assert_eq!(error.failure, Failure::Interrupted);

    session.set_uninterruptible(true);
    assert_eq!(value(&mut session, "SELECT 1"), "1");
    let mut copy = session.copy_in("COPY t FROM STDIN").unwrap();
    copy.send(b"1\n").unwrap();
    drop(copy);
    let mut other = Session::connect(&options.uninterruptible()).unwrap();
    assert_eq!(value(&mut other, "SELECT 2"), "2");
}
