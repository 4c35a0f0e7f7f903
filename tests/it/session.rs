//! Sessions on real servers.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod failures;
mod interrupts;
mod login;
mod tls;
mod values;

use crate::support::{self, Server};
use pgdyno::session::{ConnectOptions, Failure, Param, Session, SessionError, Statement};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// The newest and the oldest server that must work.
const VERSIONS: [&str; 2] = ["18", "9.6"];

fn connect(server: &Server) -> Session {
    Session::connect(&server.connect("postgres")).unwrap()
}

/// One value of a simple query.
fn value(session: &mut Session, sql: &str) -> String {
    session.query_value(sql).unwrap().unwrap()
}

/// The error of a connection that must not succeed.
fn refused(options: &ConnectOptions) -> SessionError {
    match Session::connect(options) {
        Ok(_) => panic!("connected: {}", options.describe()),
        Err(error) => error,
    }
}

/// Writes a file that belongs to the owner of the server's data directory.
fn write(server: &Server, path: &Path, text: &str) {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
    std::fs::File::create(path)
        .and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()))
        .unwrap();
    let owner = std::fs::metadata(&server.data_dir).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
    chown(path, Some(owner.uid()), Some(owner.gid())).unwrap();
}

/// Puts `lines` in front of `pg_hba.conf`.
fn prepend_hba(server: &Server, lines: &str) {
    let path = server.data_dir.join("pg_hba.conf");
    let old = std::fs::read_to_string(&path).unwrap();
    write(server, &path, &format!("{lines}\n{old}"));
}

/// Waits until the server has read its files again.
fn reload(session: &mut Session) {
    const LOADED: &str = "SELECT pg_conf_load_time()";
    let before = value(session, LOADED);
    value(session, "SELECT pg_reload_conf()");
    while value(session, LOADED) == before {
        pgdyno::clock::pause(std::time::Duration::from_millis(10));
    }
}

#[test]
fn a_session_knows_whom_it_talks_to() {
    for version in VERSIONS {
        let server = support::start(version, &[]);
        let mut session = connect(&server);
        let number = value(&mut session, "SHOW server_version_num");
        assert_eq!(session.version().to_string(), number);
        let pid = value(&mut session, "SELECT pg_backend_pid()");
        assert_eq!(session.backend_pid().to_string(), pid);
        assert_eq!(session.parameter("client_encoding"), Some("UTF8"));
        let name = value(&mut session, "SHOW application_name");
        assert_eq!(name, "pgdyno");
        assert_eq!(session.host(), server.socket_dir.to_str().unwrap());
        assert_eq!(session.tls(), None);
        assert_eq!(session.round_trips(), 3);
        // psql's form of the same options leads to the same server.
        let again = ConnectOptions::parse(&server.connect("postgres").conninfo()).unwrap();
        let mut again = Session::connect(&again).unwrap();
        assert_eq!(value(&mut again, "SHOW server_version_num"), number);
    }
}

#[test]
fn a_queue_gives_all_results_in_one_round_trip() {
    for version in VERSIONS {
        let server = support::start(version, &[]);
        let mut session = connect(&server);
        session.query("CREATE TABLE t (a int, b text)").unwrap();
        session
            .prepare_all(&[
                "BEGIN",
                "INSERT INTO t SELECT i, 'row ' || i FROM generate_series(1, $1) i",
                "UPDATE t SET b = $1 WHERE a > $2",
                "SELECT a, b FROM t ORDER BY a",
                "COMMIT",
            ])
            .unwrap();
        let before = session.round_trips();
        session
            .block_on(async |session| {
                session.queue(Statement(0), &[]);
                session.queue(Statement(1), &[Param::Int4(3)]);
                session.queue(Statement(2), &[Param::Text("new"), Param::Int4(1)]);
                session.queue(Statement(3), &[]);
                session.queue(Statement(4), &[]);
                let mut reply = session.flush().await?;
                assert_eq!(reply.next_result()?.affected, 0);
                reply.next_result()?.expect_affected(3)?;
                reply.next_result()?.expect_affected(2)?;
                let rows = reply.next_result()?.rows();
                let rows: Result<Vec<_>, SessionError> =
                    rows.map(|row| Ok((row.int4(0)?, row.text(1)?))).collect();
                assert_eq!(rows?, [(1, "row 1"), (2, "new"), (3, "new")]);
                reply.next_result()?;
                let error = reply.next_result().map(|_| ()).unwrap_err();
                assert_eq!(error.failure, Failure::WrongResult);
                Ok(())
            })
            .unwrap();
        assert_eq!(session.round_trips(), before + 1);
        assert!(!session.in_transaction());
    }
}

#[test]
fn an_error_in_a_queue_skips_the_rest_and_leaves_the_session_usable() {
    for version in VERSIONS {
        let server = support::start(version, &[]);
        let mut session = connect(&server);
        session.query("CREATE TABLE t (a int PRIMARY KEY)").unwrap();
        session
            .prepare_all(&[
                "BEGIN",
                "INSERT INTO t VALUES ($1)",
                "SELECT count(*) FROM t",
            ])
            .unwrap();
        session
            .block_on(async |session| {
                session.queue(Statement(0), &[]);
                session.queue(Statement(1), &[Param::Int4(1)]);
                session.queue(Statement(1), &[Param::Int4(1)]);
                session.queue(Statement(1), &[Param::Int4(2)]);
                let error = session.flush().await.map(|_| ()).unwrap_err();
                assert!(error.is("23505"), "{error}");
                assert_eq!(error.failure, Failure::OtherSql);
                assert!(session.in_transaction());
                let error = session.flush().await.map(|_| ());
                assert!(error.is_ok(), "an empty queue is only a round trip");
                // What is queued and not sent is forgotten.
                session.queue(Statement(1), &[Param::Int4(3)]);
                session.rollback().await?;
                assert!(!session.in_transaction());
                let before = session.round_trips();
                session.rollback().await?;
                assert_eq!(session.round_trips(), before, "nothing to roll back");
                session.queue(Statement(2), &[]);
                let count = session.flush().await?.next_result()?.one()?.int8(0)?;
                assert_eq!(count, 0);
                Ok(())
            })
            .unwrap();
    }
}

#[test]
fn statements_can_be_prepared_again_and_a_wrong_one_is_named() {
    let server = support::start("18", &[]);
    let mut session = connect(&server);
    let wrong = ["SELECT 1", "SELECT nonsense", "SELECT 2"];
    let error = session.prepare_all(&wrong).unwrap_err();
    assert!(error.is("42703"), "{error}");
    assert!(error.message.contains("SELECT nonsense"), "{error}");
    for round in 0..3 {
        session
            .prepare_all(&["SELECT 1", "SELECT $1::int4"])
            .unwrap();
        let found = session.block_on(async |session| {
            session.queue(Statement(1), &[Param::Int4(round)]);
            session.flush().await?.next_result()?.one()?.int4(0)
        });
        assert_eq!(found.unwrap(), round);
    }
}

#[test]
fn a_driven_flush_waits_once_and_reads_once() {
    let server = support::start("18", &[]);
    let mut session = connect(&server);
    session.prepare_all(&["SELECT 1::int4"]).unwrap();
    let fd = session.fd().unwrap();
    let waits = session.waits();
    for _ in 0..3 {
        session.queue(Statement(0), &[]);
        let mut context = Context::from_waker(Waker::noop());
        let mut flush = pin!(session.flush());
        assert!(flush.as_mut().poll(&mut context).is_pending());
        assert!(waits.wants_read.get() && !waits.wants_write.get());
        readable(fd);
        let Poll::Ready(reply) = flush.as_mut().poll(&mut context) else {
            panic!("the reply is there");
        };
        assert_eq!(
            reply
                .unwrap()
                .next_result()
                .unwrap()
                .one()
                .unwrap()
                .int4(0)
                .unwrap(),
            1
        );
        assert!(!waits.wants_read.get());
    }
}

fn readable(fd: std::os::fd::RawFd) {
    // SAFETY: the session that owns the descriptor outlives this call.
    #[allow(unsafe_code, reason = "what a worker does with epoll")]
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let mut fds = [rustix::event::PollFd::new(
        &fd,
        rustix::event::PollFlags::IN,
    )];
    rustix::event::poll(&mut fds, None).unwrap();
}

#[test]
fn a_flush_given_up_midway_makes_the_session_unusable_not_wrong() {
    let server = support::start("18", &[]);
    let mut session = connect(&server);
    session
        .prepare_all(&["SELECT 1::int4", "SELECT 2::int4"])
        .unwrap();
    session.queue(Statement(0), &[]);
    {
        let mut flush = pin!(session.flush());
        let mut context = Context::from_waker(Waker::noop());
        assert!(flush.as_mut().poll(&mut context).is_pending());
    }
    session.queue(Statement(1), &[]);
    let error = session
        .block_on(async |s| s.flush().await.map(|_| ()))
        .unwrap_err();
    assert_eq!(error.failure, Failure::Disconnected);
    assert!(!session.is_usable());
    assert!(session.query("SELECT 1").is_err());
}

#[test]
fn replies_and_requests_larger_than_all_buffers_go_through() {
    let server = support::start("18", &[]);
    let mut session = connect(&server);
    session
        .prepare_all(&[
            "SELECT repeat('x', $1)",
            "SELECT i::int4 FROM generate_series(1, $1) i",
            "SELECT $1::text",
        ])
        .unwrap();
    let long = "y".repeat(3_000_000);
    session
        .block_on(async |session| {
            session.queue(Statement(0), &[Param::Int4(5_000_000)]);
            session.queue(Statement(1), &[Param::Int4(100_000)]);
            let mut reply = session.flush().await?;
            assert_eq!(reply.next_result()?.one()?.text(0)?.len(), 5_000_000);
            let rows = reply.next_result()?.rows();
            let sum: i64 = rows.map(|row| i64::from(row.int4(0).unwrap())).sum();
            assert_eq!(sum, 5_000_050_000);
            // The server answers while we still send: neither may wait for the other.
            for _ in 0..5 {
                session.queue(Statement(2), &[Param::Text(&long)]);
            }
            let mut reply = session.flush().await?;
            for _ in 0..5 {
                assert_eq!(reply.next_result()?.one()?.text(0)?, long);
            }
            Ok(())
        })
        .unwrap();
    let text = value(&mut session, "SELECT repeat('z', 3000000)");
    assert_eq!(text.len(), 3_000_000);
}

#[test]
fn messages_out_of_turn_disturb_nothing() {
    let server = support::start("18", &[]);
    let mut session = connect(&server);
    let mut other = connect(&server);
    session
        .query(
            "LISTEN c; CREATE FUNCTION noisy() RETURNS int4 LANGUAGE plpgsql AS
             $$ BEGIN RAISE NOTICE 'psst'; RETURN 7; END $$",
        )
        .unwrap();
    session
        .prepare_all(&["SELECT noisy()", "SET application_name = 'other'"])
        .unwrap();
    for _ in 0..3 {
        other.query("NOTIFY c, 'hello'").unwrap();
        session
            .block_on(async |session| {
                session.queue(Statement(0), &[]);
                session.queue(Statement(1), &[]);
                session.queue(Statement(0), &[]);
                let mut reply = session.flush().await?;
                assert_eq!(reply.next_result()?.one()?.int4(0)?, 7);
                reply.next_result()?;
                assert_eq!(reply.next_result()?.one()?.int4(0)?, 7);
                Ok(())
            })
            .unwrap();
    }
    assert_eq!(session.parameter("application_name"), Some("other"));
}

#[test]
fn simple_queries_give_names_texts_and_tags() {
    let server = support::start("9.6", &[]);
    let mut session = connect(&server);
    let results = session
        .query("SELECT 1 AS one, NULL AS none; ; CREATE TEMP TABLE t (); SELECT 'ä' WHERE false")
        .unwrap();
    let tags: Vec<_> = results.iter().map(|result| result.tag.as_str()).collect();
    assert_eq!(tags, ["SELECT 1", "CREATE TABLE", "SELECT 0"]);
    assert_eq!(results[0].columns, ["one", "none"]);
    assert_eq!(results[0].rows, [[Some("1".to_owned()), None]]);
    assert!(results[2].rows.is_empty());
    for sql in [
        "SELECT 1, 2",
        "SELECT generate_series(1, 2)",
        "SELECT 1; SELECT 2",
        "",
    ] {
        let error = session.query_value(sql).unwrap_err();
        assert_eq!(error.failure, Failure::WrongResult, "{sql}");
    }
    assert_eq!(session.query_value("SELECT NULL").unwrap(), None);
    assert_eq!(session.query_value("SELECT 1 WHERE false").unwrap(), None);
    assert!(session.query("SELECT '\0'").is_err());
}

#[test]
fn copy_stores_rows_and_an_error_or_a_drop_stores_none() {
    for version in VERSIONS {
        let server = support::start(version, &[]);
        let mut session = connect(&server);
        session.query("CREATE TABLE t (a int)").unwrap();
        let mut copy = session.copy_in("COPY t FROM STDIN").unwrap();
        copy.send(b"1\n2").unwrap();
        copy.send(b"\n3\n").unwrap();
        assert_eq!(copy.finish().unwrap(), 3);

        let mut copy = session.copy_in("COPY t FROM STDIN").unwrap();
        copy.send(b"4\n").unwrap();
        drop(copy);

        let mut copy = session.copy_in("COPY t FROM STDIN").unwrap();
        copy.send(b"5\nbad\n6\n").unwrap();
        let error = copy.finish().unwrap_err();
        assert!(error.is("22P02"), "{error}");

        let error = session.copy_in("SELECT 1").map(|_| ()).unwrap_err();
        assert_eq!(error.failure, Failure::OtherSql);
        assert!(session.copy_in("COPY nowhere FROM STDIN").is_err());
        // Through the wrong door: an error, not a wait for ever.
        let error = session.query("COPY t FROM STDIN").unwrap_err();
        assert!(error.message.contains("copy_in"), "{error}");
        assert_eq!(value(&mut session, "SELECT count(*) FROM t"), "3");
    }
}

#[test]
fn an_error_in_a_long_copy_is_told_while_sending() {
    let server = support::start("18", &[]);
    let mut session = connect(&server);
    session.query("CREATE TABLE t (a int)").unwrap();
    let mut copy = session.copy_in("COPY t FROM STDIN").unwrap();
    let rows = "1\n".repeat(50_000);
    copy.send(b"bad\n").unwrap();
    let sent = (0..1000).find_map(|i| copy.send(rows.as_bytes()).err().map(|error| (i, error)));
    let (chunks, error) = sent.expect("an error long before 100 MB");
    assert!(error.is("22P02"), "{error}");
    assert!(chunks < 900, "{chunks}");
    assert!(copy.send(b"1\n").is_err());
    drop(copy);
    let mut copy = session.copy_in("COPY t FROM STDIN").unwrap();
    for _ in 0..20 {
        copy.send(rows.as_bytes()).unwrap();
    }
    assert_eq!(copy.finish().unwrap(), 1_000_000);
    assert_eq!(value(&mut session, "SELECT count(*) FROM t"), "1000000");
}
