//! From options to a session: hosts, addresses, encryption modes, in the order of libpq.

use super::Session;
use super::conninfo::{ConnectOptions, HostAddress, SessionKind, SslMode, place};
use super::error::{Failure, SessionError};
use super::socket::Endpoint;
use super::startup::{Attempt, Refusal};
use std::hash::{BuildHasher, RandomState};
use std::net::ToSocketAddrs;

/// Connects as [`Session::connect`] says.
pub(super) fn connect(options: &ConnectOptions) -> Result<Session, SessionError> {
    loop {
        match one_round(options) {
            Ok(session) => return Ok(session),
            // Asked between attempts: people type more slowly than servers wait.
            Err(Refusal::PasswordMissing) => options.ask_password()?,
            Err(refusal) => return Err(refusal.into_error()),
        }
    }
}

/// All hosts, and for `prefer-standby` all of them again.
fn one_round(options: &ConnectOptions) -> Result<Session, Refusal> {
    if options.session_kind != SessionKind::PreferStandby {
        return all_hosts(options, options.session_kind);
    }
    match all_hosts(options, SessionKind::Standby) {
        Err(Refusal::Unreachable(_)) => all_hosts(options, SessionKind::Any),
        done => done,
    }
}

fn all_hosts(options: &ConnectOptions, kind: SessionKind) -> Result<Session, Refusal> {
    let mut order: Vec<_> = (0..options.hosts.len()).collect();
    shuffle(options, &mut order);
    let mut errors = Vec::new();
    for index in order {
        let (host, port) = &options.hosts[index];
        let mut endpoints = match endpoints(host, *port) {
            Ok(endpoints) => endpoints,
            Err(error) => {
                errors.push(error);
                continue;
            }
        };
        shuffle(options, &mut endpoints);
        for endpoint in endpoints {
            let session = any_encryption(options, index, &endpoint)
                .and_then(|session| suitable(session, kind, &place(host, *port)));
            match session {
                Err(Refusal::Unreachable(error)) => errors.push(error),
                done => return done,
            }
        }
    }
    Err(Refusal::Unreachable(combined(errors)))
}

/// All that went wrong, in one error.
fn combined(mut errors: Vec<SessionError>) -> SessionError {
    let mut messages: Vec<_> = errors.iter().map(|error| error.message.clone()).collect();
    messages.dedup();
    let Some(mut error) = errors.pop() else {
        return SessionError::new(Failure::Disconnected, "no host to connect to");
    };
    error.message = messages.join("; ");
    error
}

fn endpoints(host: &HostAddress, port: u16) -> Result<Vec<Endpoint>, SessionError> {
    match host {
        HostAddress::Unix(directory) => Ok(vec![Endpoint::unix(directory, port)]),
        HostAddress::Tcp {
            addr: Some(addr), ..
        } => Ok(vec![Endpoint::Tcp((*addr, port).into())]),
        HostAddress::Tcp { host, addr: None } => {
            let found = (host.as_str(), port).to_socket_addrs().map_err(|error| {
                let message = format!("cannot find the address of host \"{host}\": {error}");
                let mut error = SessionError::new(Failure::Disconnected, message);
                error.hint = Some("check the spelling of the host".to_owned());
                error
            })?;
            let mut endpoints: Vec<_> = found.map(Endpoint::Tcp).collect();
            endpoints.dedup();
            Ok(endpoints)
        }
    }
}

/// `load_balance_hosts=random` (Fisher and Yates).
fn shuffle<T>(options: &ConnectOptions, items: &mut [T]) {
    if !options.shuffle {
        return;
    }
    for last in (1..items.len()).rev() {
        let random = RandomState::new().hash_one(last);
        let count = u64::try_from(last).unwrap_or(0) + 1;
        items.swap(last, usize::try_from(random % count).unwrap_or(0));
    }
}

/// Tries one address with TLS and without, as `sslmode` says.
fn any_encryption(
    options: &ConnectOptions,
    host: usize,
    endpoint: &Endpoint,
) -> Result<Session, Refusal> {
    let attempt = |encrypted| Attempt::new(options, host, endpoint).session(encrypted);
    if matches!(endpoint, Endpoint::Unix(_)) {
        return attempt(false);
    }
    match options.ssl_mode {
        SslMode::Disable => attempt(false),
        SslMode::Allow => attempt(false).or_else(|refusal| other(refusal, || attempt(true))),
        SslMode::Prefer => attempt(true).or_else(|refusal| other(refusal, || attempt(false))),
        SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => attempt(true),
    }
    .map_err(|refusal| match refusal {
        Refusal::Rejected(error) => Refusal::Final(error),
        other => other,
    })
}

/// After a rejection: another attempt. When that fails too, the more telling error counts: not the
/// one that says only that `pg_hba.conf` wants the other encryption.
fn other(
    refusal: Refusal,
    attempt: impl FnOnce() -> Result<Session, Refusal>,
) -> Result<Session, Refusal> {
    let Refusal::Rejected(first) = refusal else {
        return Err(refusal);
    };
    attempt().map_err(|second| match second {
        Refusal::Rejected(second) if second.is("28000") => Refusal::Rejected(first),
        Refusal::Unreachable(_) => Refusal::Rejected(first),
        second => second,
    })
}

/// `target_session_attrs`.
fn suitable(mut session: Session, kind: SessionKind, place: &str) -> Result<Session, Refusal> {
    let (sql, wanted, what) = match kind {
        SessionKind::Any | SessionKind::PreferStandby => return Ok(session),
        SessionKind::ReadWrite => (READ_ONLY, "off", "read-only"),
        SessionKind::ReadOnly => (READ_ONLY, "on", "not read-only"),
        SessionKind::Primary => (IN_RECOVERY, "f", "a standby"),
        SessionKind::Standby => (IN_RECOVERY, "t", "not a standby"),
    };
    if session.query_value(sql)?.as_deref() == Some(wanted) {
        return Ok(session);
    }
    Err(Refusal::Unreachable(SessionError::new(
        Failure::Disconnected,
        format!("{place} is {what} (target_session_attrs)"),
    )))
}

const READ_ONLY: &str = "SHOW transaction_read_only";
const IN_RECOVERY: &str = "SELECT pg_catalog.pg_is_in_recovery()";
