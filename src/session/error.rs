//! Why a statement did not succeed, in the classes that the accounting and the user need.

use crate::problem::Problem;

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
