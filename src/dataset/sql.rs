//! Names and literals in SQL text, and sessions as the loader wants them.

use crate::session::{ConnectOptions, Session, SessionError, TextResult};
use std::collections::BTreeMap;

/// `name` as an identifier, always quoted.
pub(super) fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// `text` as a literal; the `E''` form is the same under every `standard_conforming_strings`.
pub(super) fn literal(text: &str) -> String {
    if text.contains('\\') {
        format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
    } else {
        format!("'{}'", text.replace('\'', "''"))
    }
}

/// `schema.name`, both quoted.
pub(super) fn qualified(schema: &str, name: &str) -> String {
    format!("{}.{}", identifier(schema), identifier(name))
}

/// A session on which `setup` was run.
pub(super) fn connect(options: &ConnectOptions, setup: &[String]) -> Result<Session, SessionError> {
    let mut session = Session::connect(options)?;
    prepare(&mut session, setup)?;
    Ok(session)
}

/// Frees `session` from what the role or the database may impose (long steps must not meet a
/// timeout), then runs `setup`.
pub(super) fn prepare(session: &mut Session, setup: &[String]) -> Result<(), SessionError> {
    let version = session.version();
    let mut statements = vec![
        "SET client_min_messages = warning",
        "SET statement_timeout = 0",
        "SET lock_timeout = 0",
        "SET idle_in_transaction_session_timeout = 0",
        "SET default_transaction_isolation = 'read committed'",
    ];
    if version >= 140_000 {
        statements.push("SET idle_session_timeout = 0");
    }
    if version >= 170_000 {
        statements.push("SET transaction_timeout = 0");
    }
    session.query(&statements.join("; "))?;
    if version >= 140_000 {
        // A server that outlives its client then stops soon, not at the end of a long statement.
        // Some platforms cannot, and refuse it: the next process ends such sessions itself.
        let _ = session.query("SET client_connection_check_interval = '2s'");
    }
    for sql in setup {
        session.query(sql)?;
    }
    Ok(())
}

/// Puts `schema` first, so that the unqualified names of a workload mean its own tables.
pub(super) fn search_path(schema: &str) -> String {
    format!("SET search_path = {}", identifier(schema))
}

/// The rows of the last result of `sql`.
pub(super) fn rows(
    session: &mut Session,
    sql: &str,
) -> Result<Vec<Vec<Option<String>>>, SessionError> {
    Ok(last(session, sql)?.rows)
}

/// The last result of `sql`.
pub(super) fn last(session: &mut Session, sql: &str) -> Result<TextResult, SessionError> {
    session
        .query(sql)?
        .pop()
        .ok_or_else(|| SessionError::wrong_result(format!("no result of {sql}")))
}

/// One boolean.
pub(super) fn yes(session: &mut Session, sql: &str) -> Result<bool, SessionError> {
    Ok(session.query_value(sql)?.as_deref() == Some("t"))
}

/// Two columns as a map; NULL becomes the empty string.
pub(super) fn map(
    session: &mut Session,
    sql: &str,
) -> Result<BTreeMap<String, String>, SessionError> {
    let mut out = BTreeMap::new();
    for row in rows(session, sql)? {
        let mut row = row.into_iter().map(Option::unwrap_or_default);
        if let (Some(key), Some(value)) = (row.next(), row.next()) {
            out.insert(key, value);
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_literals_cannot_break_out_of_their_quotes() {
        assert_eq!(identifier("a\"b"), "\"a\"\"b\"");
        assert_eq!(qualified("s", "Order"), "\"s\".\"Order\"");
        assert_eq!(literal("it's"), "'it''s'");
        assert_eq!(literal("a\\'b"), "E'a\\\\''b'");
    }
}
