//! The one error that reaches the user: what is wrong, what to do, and the exit code.

use std::fmt;

/// Why the program ends without a result; decides the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Wrong usage or an impossible plan: exit code 2.
    Usage,
    /// The world is not as needed (cannot connect, no space, no permission): exit code 3.
    Environment,
    /// A defect in pgdyno: exit code 70.
    Defect,
    /// The user or the system asked to stop: exit code 130.
    Interrupted,
}

/// A lower-case phrase that names the thing, and a hint the reader can act on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub kind: Kind,
    pub message: String,
    pub hint: Option<String>,
}

impl Problem {
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Kind::Usage, message)
    }

    pub fn environment(message: impl Into<String>) -> Self {
        Self::new(Kind::Environment, message)
    }

    pub fn defect(message: impl Into<String>) -> Self {
        Self::new(Kind::Defect, message)
    }

    pub fn interrupted(message: impl Into<String>) -> Self {
        Self::new(Kind::Interrupted, message)
    }

    fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            hint: None,
        }
    }

    /// Adds what the reader can do about it; a second hint replaces the first.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Puts `what` in front of the message: "what: message".
    #[must_use]
    pub fn context(mut self, what: impl fmt::Display) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// The process exit code of the contract.
    pub fn exit_code(&self) -> u8 {
        match self.kind {
            Kind::Usage => 2,
            Kind::Environment => 3,
            Kind::Defect => 70,
            Kind::Interrupted => 130,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Problem {}

/// Turns an I/O error into an environment problem that names the thing.
pub trait IoContext<T> {
    /// `what` is a phrase such as "write /path/to/file".
    fn or_problem(self, what: impl fmt::Display) -> Result<T, Problem>;
}

impl<T> IoContext<T> for std::io::Result<T> {
    fn or_problem(self, what: impl fmt::Display) -> Result<T, Problem> {
        self.map_err(|error| Problem::environment(format!("cannot {what}: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_prints_its_context_and_hint() {
        let problem = Problem::usage("no such thing")
            .context("--pg 99")
            .hint("try another");
        assert_eq!(
            problem.to_string(),
            "--pg 99: no such thing\nhint: try another"
        );
        assert_eq!(problem.exit_code(), 2);
    }
}
