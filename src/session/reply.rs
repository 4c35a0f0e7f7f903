//! Results, read where they lie in the receive buffer.

use super::error::SessionError;
use crate::wire::backend::{self, DataRow, Frame};
use crate::wire::{Malformed, numeric, value};

/// The results of one `flush`, in the order of `queue`; borrowed from the receive buffer.
pub struct Reply<'a> {
    rest: Frames<'a>,
}

impl<'a> Reply<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self {
            rest: Frames(bytes),
        }
    }

    /// The next statement's result; calling it more often than statements were queued is a
    /// `WrongResult`.
    pub fn next_result(&mut self) -> Result<StatementResult<'a>, SessionError> {
        let begin = self.rest.0;
        let mut count = 0;
        while let Some(frame) = self.rest.next() {
            let affected = match frame.tag {
                b'D' => {
                    count += 1;
                    continue;
                }
                b'C' => affected(frame.body),
                // EmptyQueryResponse, PortalSuspended.
                b'I' | b's' => 0,
                _ => continue,
            };
            let length = begin.len() - self.rest.0.len();
            return Ok(StatementResult {
                affected,
                rows: Rows {
                    frames: Frames(&begin[..length]),
                    left: count,
                },
            });
        }
        Err(SessionError::wrong_result(
            "more results expected than statements were queued",
        ))
    }
}

/// The row count at the end of a command tag: `SELECT 3`, `INSERT 0 1`; 0 when there is none.
pub(super) fn affected(body: &[u8]) -> u64 {
    let tag = body.strip_suffix(b"\0").unwrap_or(body);
    let digits = tag.rsplit(|byte| *byte == b' ').next().unwrap_or(tag);
    digits
        .iter()
        .try_fold(0_u64, |count, byte| {
            let digit = byte.is_ascii_digit().then(|| byte - b'0')?;
            count.checked_mul(10)?.checked_add(u64::from(digit))
        })
        .unwrap_or(0)
}

/// Rows and affected-row count of one statement.
pub struct StatementResult<'a> {
    /// From the command tag: rows inserted, updated, deleted or returned.
    pub affected: u64,
    rows: Rows<'a>,
}

impl<'a> StatementResult<'a> {
    /// Exactly one row, else `WrongResult`.
    pub fn one(self) -> Result<Row<'a>, SessionError> {
        let found = self.rows.left;
        match self.optional()? {
            Some(row) => Ok(row),
            None => Err(row_count("one row", found)),
        }
    }

    /// No row or one row, else `WrongResult`.
    pub fn optional(mut self) -> Result<Option<Row<'a>>, SessionError> {
        let found = self.rows.left;
        if found > 1 {
            return Err(row_count("at most one row", found));
        }
        Ok(self.rows.next())
    }

    /// All rows.
    pub fn rows(self) -> Rows<'a> {
        self.rows
    }

    /// `WrongResult` unless exactly `n` rows were affected (TPC-C 2.3.6).
    pub fn expect_affected(&self, n: u64) -> Result<(), SessionError> {
        if self.affected == n {
            return Ok(());
        }
        Err(SessionError::wrong_result(format!(
            "{n} affected rows expected, {} found",
            self.affected
        )))
    }
}

fn row_count(expected: &str, found: usize) -> SessionError {
    SessionError::wrong_result(format!("{expected} expected, {found} found"))
}

/// Iterator over rows, zero-copy.
pub struct Rows<'a> {
    frames: Frames<'a>,
    left: usize,
}

impl<'a> Iterator for Rows<'a> {
    type Item = Row<'a>;

    fn next(&mut self) -> Option<Row<'a>> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        let row = self.frames.find(|frame| frame.tag == b'D')?;
        Some(Row { body: row.body })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Rows<'_> {}

/// One row of binary values. Getters check length and NULL; anything odd is a `WrongResult`.
#[derive(Clone, Copy)]
pub struct Row<'a> {
    body: &'a [u8],
}

impl<'a> Row<'a> {
    pub fn is_null(&self, column: usize) -> Result<bool, SessionError> {
        Ok(self.optional(column)?.is_none())
    }

    pub fn int2(&self, column: usize) -> Result<i16, SessionError> {
        value::read_int2(self.value(column)?).map_err(|e| unexpected(column, &e))
    }

    pub fn int4(&self, column: usize) -> Result<i32, SessionError> {
        value::read_int4(self.value(column)?).map_err(|e| unexpected(column, &e))
    }

    pub fn int8(&self, column: usize) -> Result<i64, SessionError> {
        value::read_int8(self.value(column)?).map_err(|e| unexpected(column, &e))
    }

    /// A numeric as a whole number of 10^-scale: `decimal(0, 2)` of 12.34 is 1234. A value with
    /// digits other than 0 beyond `scale`, NaN or infinity is a `WrongResult`.
    pub fn decimal(&self, column: usize, scale: u32) -> Result<i64, SessionError> {
        numeric::decode(self.value(column)?, scale).map_err(|e| unexpected(column, &e))
    }

    pub fn text(&self, column: usize) -> Result<&'a str, SessionError> {
        value::read_text(self.value(column)?).map_err(|e| unexpected(column, &e))
    }

    /// Microseconds since 2000-01-01.
    pub fn timestamp(&self, column: usize) -> Result<i64, SessionError> {
        value::read_timestamp(self.value(column)?).map_err(|e| unexpected(column, &e))
    }

    fn value(&self, column: usize) -> Result<&'a [u8], SessionError> {
        self.optional(column)?.ok_or_else(|| {
            SessionError::wrong_result(format!("column {}: unexpected NULL", column + 1))
        })
    }

    fn optional(&self, column: usize) -> Result<Option<&'a [u8]>, SessionError> {
        DataRow::parse(self.body)
            .and_then(|row| row.column(column))
            .map_err(|malformed| unexpected(column, &malformed))
    }
}

#[cold]
fn unexpected(column: usize, why: &dyn std::fmt::Display) -> SessionError {
    SessionError::wrong_result(format!("column {}: unexpected value: {why}", column + 1))
}

/// The messages in a part of the receive buffer.
pub(super) struct Frames<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Frames<'a> {
    type Item = Frame<'a>;

    fn next(&mut self) -> Option<Frame<'a>> {
        // The exchange has already seen that every message is complete.
        let frame = backend::frame(self.0).ok()??;
        self.0 = &self.0[frame.size()..];
        Some(frame)
    }
}

/// One statement's result of a simple query, all values as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextResult {
    pub columns: Vec<String>,
    pub rows: Vec<Vec<Option<String>>>,
    /// The command tag, e.g. `SELECT 3`.
    pub tag: String,
}

/// The results of a simple query.
pub(super) fn texts(reply: &[u8]) -> Result<Vec<TextResult>, Malformed> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut results = Vec::new();
    let mut result = TextResult::default();
    for frame in Frames(reply) {
        match backend::message(frame)? {
            backend::Message::RowDescription(description) => {
                result.columns = description
                    .names()
                    .map(|name| name.map(text))
                    .collect::<Result<_, _>>()?;
            }
            backend::Message::DataRow(row) => {
                let row = row.columns().map(|value| Ok(value?.map(text)));
                result.rows.push(row.collect::<Result<_, Malformed>>()?);
            }
            backend::Message::CommandComplete(tag) => {
                result.tag = text(tag);
                results.push(std::mem::take(&mut result));
            }
            _ => {}
        }
    }
    Ok(results)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Failure;

    /// A reply of a statement with two rows (int4 7, NULL) and an UPDATE of three.
    const REPLY: &[u8] = b"2\0\0\0\x04\
        D\0\0\0\x12\0\x02\0\0\0\x04\0\0\0\x07\xff\xff\xff\xff\
        N\0\0\0\x05\0\
        D\0\0\0\x12\0\x02\0\0\0\x04\0\0\0\x08\xff\xff\xff\xff\
        C\0\0\0\x0dSELECT 2\0\
        2\0\0\0\x04\
        C\0\0\0\x0dUPDATE 3\0\
        Z\0\0\0\x05T";

    #[test]
    fn results_come_in_order_with_rows_and_counts() {
        let mut reply = Reply::new(REPLY);
        let first = reply.next_result().unwrap();
        assert_eq!(first.affected, 2);
        let rows: Vec<_> = first.rows().map(|row| row.int4(0).unwrap()).collect();
        assert_eq!(rows, [7, 8]);
        let second = reply.next_result().unwrap();
        assert!(second.expect_affected(3).is_ok());
        let wrong = second.expect_affected(1).unwrap_err();
        assert_eq!(wrong.failure, Failure::WrongResult);
        assert_eq!(second.rows().len(), 0);
        let Err(none) = reply.next_result() else {
            panic!("a third result");
        };
        assert_eq!(none.failure, Failure::WrongResult);
    }

    #[test]
    fn a_wrong_number_of_rows_is_a_wrong_result() {
        for step in [0, 1] {
            let mut reply = Reply::new(REPLY);
            for _ in 0..step {
                reply.next_result().unwrap();
            }
            let Err(error) = reply.next_result().unwrap().one() else {
                panic!("one row");
            };
            assert_eq!(error.failure, Failure::WrongResult);
        }
        let mut reply = Reply::new(REPLY);
        assert!(reply.next_result().unwrap().optional().is_err());
        assert!(reply.next_result().unwrap().optional().unwrap().is_none());
    }

    #[test]
    fn odd_values_are_wrong_results() {
        let mut reply = Reply::new(REPLY);
        let row = reply.next_result().unwrap().rows().next().unwrap();
        assert_eq!(row.int4(0).unwrap(), 7);
        assert!(row.is_null(1).unwrap() && !row.is_null(0).unwrap());
        for error in [
            row.int2(0).map(|_| ()),
            row.int8(0).map(|_| ()),
            row.int4(1).map(|_| ()),
            row.int4(2).map(|_| ()),
            row.decimal(0, 2).map(|_| ()),
            row.timestamp(0).map(|_| ()),
        ] {
            assert_eq!(error.unwrap_err().failure, Failure::WrongResult);
        }
    }

    #[test]
    fn affected_rows_are_read_from_the_command_tag() {
        for (tag, rows) in [
            (&b"SELECT 3\0"[..], 3),
            (b"INSERT 0 15\0", 15),
            (b"COPY 100000\0", 100_000),
            (b"BEGIN\0", 0),
            (b"CREATE TABLE\0", 0),
            (b"\0", 0),
            (b"SELECT 99999999999999999999\0", 0),
        ] {
            assert_eq!(affected(tag), rows, "{tag:?}");
        }
    }
}
