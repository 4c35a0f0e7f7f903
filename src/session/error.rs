//! Why a statement did not succeed, in the classes that the accounting and the user need.

use crate::problem::Problem;
use crate::wire::Malformed;
use crate::wire::backend::Fields;
use std::io;

/// The class of a failure.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// SQLSTATE 40001; retried with the same input.
    Serialization,
    /// SQLSTATE 40P01; retried with the same input.
    Deadlock,
    /// `statement_timeout`, `lock_timeout` (57014, 55P03) or the driver's own limit.
    Timeout,
    /// The connection is gone or could not be made.
    Disconnected,
    /// Any other error that the server reported.
    OtherSql,
    /// The answer contradicts the workload's own expectation: fatal to the run's validity.
    WrongResult,
    /// The user asked to stop.
    Interrupted,
}

impl Failure {
    /// All classes, in the order of their declaration: `class as usize` indexes it.
    pub const ALL: [Failure; 7] = [
        Failure::Serialization,
        Failure::Deadlock,
        Failure::Timeout,
        Failure::Disconnected,
        Failure::OtherSql,
        Failure::WrongResult,
        Failure::Interrupted,
    ];

    /// May the same input be tried again (TPC-C: the same business transaction)?
    pub fn retryable(self) -> bool {
        matches!(self, Failure::Serialization | Failure::Deadlock)
    }

    /// The name used in records and on the live line.
    pub fn name(self) -> &'static str {
        match self {
            Failure::Serialization => "serialization",
            Failure::Deadlock => "deadlock",
            Failure::Timeout => "timeout",
            Failure::Disconnected => "disconnected",
            Failure::OtherSql => "other_sql",
            Failure::WrongResult => "wrong_result",
            Failure::Interrupted => "interrupted",
        }
    }
}

/// A failed statement, connection attempt or expectation.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct SessionError {
    pub failure: Failure,
    /// As the server sent it.
    pub sqlstate: Option<[u8; 5]>,
    pub message: String,
    /// The server's own hint, or ours.
    pub hint: Option<String>,
}

impl SessionError {
    pub fn new(failure: Failure, message: impl Into<String>) -> Self {
        Self {
            failure,
            sqlstate: None,
            message: message.into(),
            hint: None,
        }
    }

    /// The answer contradicts what the workload knows must be there.
    pub fn wrong_result(message: impl Into<String>) -> Self {
        Self::new(Failure::WrongResult, message)
    }

    /// Was this SQLSTATE reported?
    pub fn is(&self, sqlstate: &str) -> bool {
        self.sqlstate.is_some_and(|s| s == sqlstate.as_bytes())
    }
}

impl From<SessionError> for Problem {
    fn from(error: SessionError) -> Self {
        let message = match error.sqlstate {
            Some(state) => {
                format!(
                    "{} (SQLSTATE {})",
                    error.message,
                    String::from_utf8_lossy(&state)
                )
            }
            None => error.message,
        };
        let problem = match error.failure {
            Failure::Interrupted => Problem::interrupted(message),
            _ => Problem::environment(message),
        };
        match error.hint {
            Some(hint) => problem.hint(hint),
            None => problem,
        }
    }
}

impl From<Malformed> for SessionError {
    /// For bytes that break the protocol; a value of an unexpected form is a `WrongResult`.
    fn from(malformed: Malformed) -> Self {
        let mut error = Self::new(Failure::Disconnected, malformed.to_string());
        error.hint = Some("is this a PostgreSQL server?".to_owned());
        error
    }
}

/// The connection has ended; `cause` is `None` when the server closed it.
pub(super) fn lost(cause: Option<&io::Error>) -> SessionError {
    let message = match cause {
        Some(error) => format!("the connection to the server was lost: {error}"),
        None => "the server closed the connection unexpectedly".to_owned(),
    };
    let mut error = SessionError::new(Failure::Disconnected, message);
    error.hint = Some("the server's log says whether it crashed or was stopped".to_owned());
    error
}

/// An `ErrorResponse`.
pub(super) fn from_server(fields: &Fields<'_>) -> SessionError {
    let text = |code| {
        fields
            .get(code)
            .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    };
    let sqlstate: Option<[u8; 5]> = fields.get(b'C').and_then(|state| state.try_into().ok());
    // Severity, not translated where the server is new enough (9.6).
    let severity = fields.get(b'V').or(fields.get(b'S'));
    let fatal = matches!(severity, Some(b"FATAL" | b"PANIC"));
    let mut message = text(b'M').unwrap_or_else(|| "error without a message".to_owned());
    if let Some(detail) = text(b'D') {
        message = format!("{message} ({detail})");
    }
    let state = sqlstate.as_ref().map_or("", |state| ascii(state));
    SessionError {
        failure: class(state, fatal),
        sqlstate,
        message,
        hint: text(b'H').or_else(|| hint(state).map(str::to_owned)),
    }
}

fn ascii(state: &[u8; 5]) -> &str {
    std::str::from_utf8(state).unwrap_or("")
}

/// Classes of PostgreSQL's Appendix A "Error Codes".
fn class(sqlstate: &str, fatal: bool) -> Failure {
    match sqlstate {
        "40001" => Failure::Serialization,
        "40P01" => Failure::Deadlock,
        "57P01" | "57P02" | "57P03" => Failure::Disconnected,
        _ if fatal => Failure::Disconnected,
        "57014" | "55P03" => Failure::Timeout,
        _ => Failure::OtherSql,
    }
}

/// What the reader can do about an error for which the server has no hint.
fn hint(sqlstate: &str) -> Option<&'static str> {
    Some(match sqlstate {
        "08P01" | "22P03" => {
            "a parameter does not fit its statement; this is a defect of the workload"
        }
        "25006" => "connect to the primary (target_session_attrs=read-write)",
        "26000" | "42P05" => {
            "a connection pooler in transaction mode loses prepared statements; connect to the \
             server itself"
        }
        "28000" => "pg_hba.conf decides who may connect from where, and how",
        "28P01" => "give the right password in PGPASSWORD, ~/.pgpass or the connection string",
        "3D000" => "create the database first, or name another one (dbname=…)",
        "42501" => "connect as a role that has the privilege, or ask for it to be granted",
        "53100" => "make room on the server's disk",
        "53200" => "the server is out of memory: lower shared_buffers, work_mem or connections",
        "53300" => "use fewer connections (--connections), or raise the server's max_connections",
        "57P03" => "the server is starting, stopping or recovering: try again in a moment",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::backend::{Frame, Message, message};

    fn received(severity: &str, sqlstate: &str, more: &str) -> SessionError {
        let body = format!("S{severity}\0V{severity}\0C{sqlstate}\0Mwhat\0{more}\0");
        let frame = Frame {
            tag: b'E',
            body: body.as_bytes(),
        };
        let Ok(Message::ErrorResponse(fields)) = message(frame) else {
            panic!("not an error: {body:?}");
        };
        from_server(&fields)
    }

    #[test]
    fn errors_of_the_server_fall_into_their_classes() {
        for (severity, sqlstate, failure) in [
            ("ERROR", "40001", Failure::Serialization),
            ("ERROR", "40P01", Failure::Deadlock),
            ("ERROR", "57014", Failure::Timeout),
            ("ERROR", "55P03", Failure::Timeout),
            ("FATAL", "57P01", Failure::Disconnected),
            ("WARNING", "57P02", Failure::Disconnected),
            ("FATAL", "57P03", Failure::Disconnected),
            ("FATAL", "25P03", Failure::Disconnected),
            ("PANIC", "XX000", Failure::Disconnected),
            ("ERROR", "23505", Failure::OtherSql),
            ("ERROR", "53100", Failure::OtherSql),
        ] {
            let error = received(severity, sqlstate, "");
            assert_eq!(error.failure, failure, "{severity} {sqlstate}");
            assert!(error.is(sqlstate));
        }
    }

    #[test]
    fn the_hint_of_the_server_wins_over_ours() {
        assert_eq!(received("ERROR", "23505", "").hint, None);
        let ours = received("ERROR", "53100", "").hint.unwrap();
        assert!(ours.contains("disk"), "{ours}");
        let theirs = received("ERROR", "53100", "Hfree some\0").hint;
        assert_eq!(theirs.as_deref(), Some("free some"));
    }

    #[test]
    fn the_detail_is_part_of_the_message() {
        let error = received("ERROR", "23505", "DKey (a)=(1) exists.\0");
        assert_eq!(error.message, "what (Key (a)=(1) exists.)");
        let problem = Problem::from(error);
        assert_eq!(
            problem.message,
            "what (Key (a)=(1) exists.) (SQLSTATE 23505)"
        );
    }
}
