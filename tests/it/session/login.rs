//! Passwords.

use super::{connect, prepend_hba, refused, reload, value};
use crate::support::{self, Server};
use pgdyno::session::{ConnectOptions, Failure, Session};
use std::io::IsTerminal;
use std::os::unix::fs::MetadataExt;

/// A server with a role for each way to log in; all passwords are `pässword`.
fn server(version: &str) -> Server {
    let server = support::start(version, &[]);
    let mut session = connect(&server);
    session
        .query("SET password_encryption = md5; CREATE ROLE md5_user LOGIN PASSWORD 'pässword'")
        .or_else(|_| {
            session.query(
                "SET password_encryption = on; CREATE ROLE md5_user LOGIN PASSWORD 'pässword'",
            )
        })
        .unwrap();
    let mut lines = "local all md5_user md5\nlocal all clear_user password\n".to_owned();
    if session.version() >= 100_000 {
        session
            .query("SET password_encryption = 'scram-sha-256'")
            .unwrap();
        session
            .query("CREATE ROLE scram_user LOGIN PASSWORD 'pässword'")
            .unwrap();
        lines.push_str("local all scram_user scram-sha-256\n");
    }
    session
        .query("CREATE ROLE clear_user LOGIN PASSWORD 'pässword'")
        .unwrap();
    prepend_hba(&server, &lines);
    reload(&mut session);
    server
}

fn options(server: &Server, user: &str) -> ConnectOptions {
    ConnectOptions::unix(&server.socket_dir, server.port, user, "postgres")
}

#[test]
fn every_kind_of_password_works_and_a_wrong_one_does_not() {
    for (version, users) in [
        ("18", &["scram_user", "md5_user", "clear_user"][..]),
        ("9.6", &["md5_user", "clear_user"]),
    ] {
        let server = server(version);
        for user in users {
            let options = options(&server, user);
            let mut session = Session::connect(&options.with_password("pässword")).unwrap();
            assert_eq!(value(&mut session, "SELECT current_user"), *user);
            let error = refused(&options.with_password("wrong"));
            assert_eq!(error.failure, Failure::Disconnected);
            assert!(error.is("28P01"), "{user}: {error}");
            assert!(error.hint.unwrap().contains("PGPASSWORD"));
            assert!(!error.message.contains("wrong"), "{}", error.message);
            // On a terminal the password would be asked for.
            if !std::io::stdin().is_terminal() {
                let error = refused(&options);
                assert!(error.message.contains("wants a password"), "{error}");
                assert!(error.hint.unwrap().contains(".pgpass"));
            }
        }
    }
}

#[test]
fn only_the_methods_of_require_auth_are_used() {
    let server = server("18");
    let connects = |user: &str, more: &str| {
        let target = format!(
            "{} password=pässword {more}",
            options(&server, user).conninfo()
        );
        Session::connect(&ConnectOptions::parse(&target).unwrap()).map(|_| ())
    };
    for (user, required, works) in [
        ("scram_user", "scram-sha-256", true),
        ("md5_user", "scram-sha-256", false),
        ("md5_user", "scram-sha-256,md5", true),
        ("clear_user", "!password", false),
        ("scram_user", "!password,!md5", true),
        ("postgres", "scram-sha-256", false),
        ("postgres", "none", true),
        ("postgres", "gss", false),
    ] {
        let done = connects(user, &format!("require_auth={required}"));
        assert_eq!(done.is_ok(), works, "{user} {required}: {done:?}");
        if let Err(error) = done {
            assert!(error.message.contains("require_auth"), "{error}");
        }
    }
    let error = connects("scram_user", "channel_binding=require").unwrap_err();
    assert!(error.message.contains("channel binding"), "{error}");
    let error = connects("md5_user", "channel_binding=require").unwrap_err();
    assert!(error.message.contains("channel_binding"), "{error}");
}

#[test]
fn the_server_may_be_required_to_run_as_a_certain_user() {
    let server = support::start("18", &[]);
    let base = server.connect("postgres").conninfo();
    let parse = |user: &str| ConnectOptions::parse(&format!("{base} requirepeer={user}")).unwrap();
    let error = refused(&parse("somebody-else"));
    assert!(error.message.contains("requirepeer"), "{error}");
    // Whoever owns the data directory runs the server.
    let uid = std::fs::metadata(&server.data_dir).unwrap().uid();
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap();
    let owner = passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == uid.to_string()).then_some(name)
    });
    assert!(Session::connect(&parse(owner.unwrap())).is_ok());
}
