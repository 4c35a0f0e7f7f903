//! Servers that are not there, go away, or say no.

use super::{connect, refused, value};
use crate::support::{self, Server};
use pgdyno::clock::{Clock, Monotonic};
use pgdyno::problem::Problem;
use pgdyno::session::{ConnectOptions, Failure, Param, Session, Statement};
use rustix::process::{Pid, Signal, kill_process};
use std::time::Duration;

fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

fn postmaster(server: &Server) -> i32 {
    let text = std::fs::read_to_string(server.data_dir.join("postmaster.pid")).unwrap();
    text.lines().next().unwrap().parse().unwrap()
}

/// The error of a statement that sleeps while `act` happens.
fn while_sleeping(
    session: &mut Session,
    act: impl FnOnce() + Send,
) -> pgdyno::session::SessionError {
    session.prepare_all(&["SELECT pg_sleep($1)::text"]).unwrap();
    session.prepare_all(&["SELECT pg_sleep(30)::text"]).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pgdyno::clock::pause(Duration::from_millis(300));
            act();
        });
        session
            .block_on(async |session| {
                session.queue(Statement(0), &[]);
                session.flush().await.map(|_| ())
            })
            .unwrap_err()
    })
}

#[test]
fn a_backend_that_is_terminated_says_so() {
    let server = support::start("18", &[]);
    let mut session = connect(&server);
    let pid = session.backend_pid();
    let error = while_sleeping(&mut session, || {
        let sql = format!("SELECT pg_terminate_backend({pid})");
        value(&mut connect(&server), &sql);
    });
    assert_eq!(error.failure, Failure::Disconnected);
    assert!(error.is("57P01"), "{error}");
    assert!(!session.is_usable());
    let error = session.query("SELECT 1").unwrap_err();
    assert_eq!(error.failure, Failure::Disconnected);
}

#[test]
fn a_session_that_was_terminated_while_idle_notices_with_the_next_call() {
    let server = support::start("18", &[]);
    let mut session = connect(&server);
    let sql = format!("SELECT pg_terminate_backend({})", session.backend_pid());
    value(&mut connect(&server), &sql);
    pgdyno::clock::pause(Duration::from_millis(200));
    let error = session.query("SELECT 1").unwrap_err();
    assert_eq!(error.failure, Failure::Disconnected);
    assert!(error.is("57P01"), "{error}");
}

#[test]
fn a_server_that_is_killed_mid_flush_is_a_lost_connection() {
    for version in super::VERSIONS {
        let server = support::start(version, &[]);
        let mut session = connect(&server);
        let pid = session.backend_pid();
        let error = while_sleeping(&mut session, || signal(pid, Signal::KILL));
        assert_eq!(error.failure, Failure::Disconnected, "{error}");
    }
    let server = support::start("18", &[]);
    let mut session = connect(&server);
    let error = while_sleeping(&mut session, || signal(postmaster(&server), Signal::QUIT));
    assert_eq!(error.failure, Failure::Disconnected, "{error}");
    assert!(error.message.contains("immediate shutdown"), "{error}");
}

#[test]
fn a_copy_whose_backend_dies_ends_with_a_lost_connection() {
    let server = support::start("18", &[]);
    let mut session = connect(&server);
    session.query("CREATE TABLE t (a int)").unwrap();
    let pid = session.backend_pid();
    let mut copy = session.copy_in("COPY t FROM STDIN").unwrap();
    copy.send(b"1\n").unwrap();
    signal(pid, Signal::KILL);
    let rows = "1\n".repeat(100_000);
    let error = (0..1000).find_map(|_| copy.send(rows.as_bytes()).err());
    assert_eq!(error.unwrap().failure, Failure::Disconnected);
    drop(copy);
    assert!(!session.is_usable());
}

#[test]
fn time_limits_and_conflicts_have_their_classes() {
    let server = support::start("18", &[]);
    let mut session = connect(&server);
    session.query("SET statement_timeout = 100").unwrap();
    let error = session.query("SELECT pg_sleep(5)").unwrap_err();
    assert_eq!(error.failure, Failure::Timeout);
    assert!(error.is("57014"), "{error}");

    let mut other = connect(&server);
    session
        .query("SET statement_timeout = 0; SET lock_timeout = 100; CREATE TABLE t (a int)")
        .unwrap();
    session.query("INSERT INTO t VALUES (1)").unwrap();
    other.query("BEGIN; LOCK t").unwrap();
    let error = session.query("SELECT * FROM t").unwrap_err();
    assert_eq!(error.failure, Failure::Timeout);
    assert!(error.is("55P03"), "{error}");
    other.query("ROLLBACK").unwrap();

    session
        .query("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT * FROM t")
        .unwrap();
    other.query("UPDATE t SET a = 2").unwrap();
    let error = session.query("UPDATE t SET a = 3").unwrap_err();
    assert_eq!(error.failure, Failure::Serialization);
    assert!(error.failure.retryable());
    assert!(session.in_transaction());
    // Nothing was prepared on this session: ROLLBACK works all the same.
    session
        .block_on(async |session| session.rollback().await)
        .unwrap();
    assert!(!session.in_transaction());
}

#[test]
fn a_parameter_that_does_not_fit_is_an_error_of_the_server() {
    let server = support::start("18", &[]);
    let mut session = connect(&server);
    session.prepare_all(&["SELECT $1::int8"]).unwrap();
    for params in [
        &[Param::Int4(1)][..],
        &[],
        &[Param::Int8(1), Param::Int8(2)],
    ] {
        let error = session
            .block_on(async |session| {
                session.queue(Statement(0), params);
                session.flush().await.map(|_| ())
            })
            .unwrap_err();
        assert_eq!(error.failure, Failure::OtherSql);
        assert!(
            error
                .hint
                .as_ref()
                .is_some_and(|hint| hint.contains("workload")),
            "{error:?}"
        );
    }
}

#[test]
fn the_first_host_that_works_is_taken() {
    let server = support::start("18", &[]);
    let (good, port) = (server.socket_dir.display(), server.port);
    let parse = |target: String| ConnectOptions::parse(&target).unwrap();
    for hosts in [
        format!("host=/nonexistent,{good} port={port}"),
        format!("host=127.0.0.1,{good} port=1,{port}"),
        format!("host=no.such.host.invalid,{good} port={port}"),
    ] {
        let options = parse(format!("{hosts} user=postgres dbname=postgres"));
        let session = Session::connect(&options).unwrap();
        assert_eq!(session.host(), good.to_string());
    }
    let error = refused(&parse("host=/nonexistent,127.0.0.1 port=5432,1".to_owned()));
    assert_eq!(error.failure, Failure::Disconnected);
    for named in ["/nonexistent:5432", "127.0.0.1:1"] {
        assert!(error.message.contains(named), "{error}");
    }
}

#[test]
fn the_kind_of_server_asked_for_is_checked() {
    for version in super::VERSIONS {
        let server = support::start(version, &[]);
        let base = server.connect("postgres").conninfo();
        for (kind, fits) in [
            ("any", true),
            ("read-write", true),
            ("read-only", false),
            ("primary", true),
            ("standby", false),
            ("prefer-standby", true),
        ] {
            let options = format!("{base} target_session_attrs={kind}");
            let done = Session::connect(&ConnectOptions::parse(&options).unwrap());
            assert_eq!(done.is_ok(), fits, "{kind}");
        }
        let balanced = format!("{base} load_balance_hosts=random");
        assert!(Session::connect(&ConnectOptions::parse(&balanced).unwrap()).is_ok());
    }
}

#[test]
fn a_host_that_does_not_answer_is_given_up_after_connect_timeout() {
    // It accepts connections, as far as the kernel does, and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    for mode in ["disable", "prefer"] {
        let options = format!("host=127.0.0.1 port={port} connect_timeout=1 sslmode={mode}");
        let clock = Monotonic::start();
        let error = refused(&ConnectOptions::parse(&options).unwrap());
        assert!(error.message.contains("connect_timeout"), "{error}");
        assert!(clock.now().0 < 5_000_000_000, "{error}");
    }
}

#[test]
fn a_server_of_another_kind_is_told_apart() {
    let web = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = web.local_addr().unwrap().port();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = web.accept().unwrap();
            std::io::Write::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
            let _ = std::io::Read::read(&mut stream, &mut [0; 100]);
        });
        let options = format!("host=127.0.0.1 port={port} sslmode=disable");
        let error = refused(&ConnectOptions::parse(&options).unwrap());
        assert_eq!(error.failure, Failure::Disconnected);
        assert!(
            error.hint.unwrap().contains("PostgreSQL"),
            "{}",
            error.message
        );
    });
}

#[test]
fn refusals_of_the_server_come_with_a_hint() {
    let server = support::start(
        "18",
        &["max_connections=5", "superuser_reserved_connections=0"],
    );
    let error = refused(&server.connect("nowhere"));
    assert!(error.is("3D000"), "{error}");
    let problem = Problem::from(error);
    assert_eq!(problem.exit_code(), 3);
    assert!(problem.hint.unwrap().contains("dbname"));

    let nobody = ConnectOptions::unix(&server.socket_dir, server.port, "nobody", "postgres");
    assert!(refused(&nobody).is("28000"));

    let mut sessions = Vec::new();
    let error = loop {
        match Session::connect(&server.connect("postgres")) {
            Ok(session) => sessions.push(session),
            Err(error) => break error,
        }
        assert!(sessions.len() < 20);
    };
    assert!(error.is("53300"), "{error}");
    assert!(error.hint.unwrap().contains("connections"));
}
