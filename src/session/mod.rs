//! One connection to one PostgreSQL backend.
//!
//! A session is used in two ways: *driven* by a worker of the driver (non-blocking; the futures
//! return `Pending` when the socket would block) and *blocking* for everything that is not hot
//! (loading, settings, checks). Both run the same code.

pub mod conninfo;
pub mod error;
mod waits;
// helper: socket.rs, tls.rs, connect.rs, reply.rs, copy.rs, blocking.rs … as it falls out

pub use conninfo::{ConnectOptions, SslMode};
pub use error::{Failure, SessionError};
pub use waits::Waits;

use crate::clock::Tick;
use std::os::fd::RawFd;
use std::sync::Arc;

/// A prepared statement of a session: its index in the list given to [`Session::prepare_all`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statement(pub u16);

/// A parameter of a statement; sent in binary. Money is an exact count of cents, never a float.
#[derive(Clone, Copy, Debug)]
pub enum Param<'a> {
    Null,
    Int2(i16),
    Int4(i32),
    Int8(i64),
    /// numeric with two decimals
    Cents(i64),
    Text(&'a str),
    /// microseconds since 2000-01-01 00:00:00
    Timestamp(i64),
    Int2Array(&'a [i16]),
    Int4Array(&'a [i32]),
    CentsArray(&'a [i64]),
    TextArray(&'a [&'a str]),
}

/// One connection.
pub struct Session {
    waits: Arc<Waits>,
}

impl Session {
    /// Connects and authenticates, blocking, trying the hosts of `options` in order as libpq does.
    pub fn connect(options: &ConnectOptions) -> Result<Session, SessionError> {
        let _ = options;
        todo!()
    }

    /// A session without a server, for workloads that only sleep; `flush` on it is a defect.
    pub fn detached() -> Session {
        Session {
            waits: Arc::default(),
        }
    }

    /// The cell through which a worker and this session talk.
    pub fn waits(&self) -> Arc<Waits> {
        Arc::clone(&self.waits)
    }

    /// The socket, for epoll; `None` when detached.
    pub fn fd(&self) -> Option<RawFd> {
        None
    }

    /// Prepares `statements` in order, in one round trip, blocking; addressed by [`Statement`].
    pub fn prepare_all(&mut self, statements: &[&str]) -> Result<(), SessionError> {
        let _ = statements;
        todo!()
    }

    /// Queues Bind and Execute; nothing is sent before `flush`. No allocation once buffers grew.
    pub fn queue(&mut self, statement: Statement, params: &[Param<'_>]) {
        let _ = (statement, params);
        todo!()
    }

    /// Sends what is queued with one Sync, waits for ReadyForQuery, and hands back all results
    /// in order. On a server error the rest of the queue was skipped by the server, and the
    /// session is usable again (perhaps in a failed transaction block: see `in_transaction`).
    pub async fn flush(&mut self) -> Result<Reply<'_>, SessionError> {
        todo!()
    }

    /// Ends an open transaction block with ROLLBACK, whatever its state; one round trip.
    pub async fn rollback(&mut self) -> Result<(), SessionError> {
        todo!()
    }

    /// Is a transaction block open (`T` or `E` in the last ReadyForQuery)?
    pub fn in_transaction(&self) -> bool {
        false
    }

    /// Waits until `at` on the worker's clock.
    pub async fn sleep_until(&mut self, at: Tick) {
        std::future::poll_fn(|_| {
            if self.waits.now.get() >= at {
                self.waits.wake_at.set(None);
                std::task::Poll::Ready(())
            } else {
                self.waits.wake_at.set(Some(at));
                std::task::Poll::Pending
            }
        })
        .await
    }

    /// Runs SQL through the simple protocol, blocking; several statements give several results.
    /// Obeys [`crate::interrupt`]: cancels the statement and returns `Failure::Interrupted`.
    pub fn query(&mut self, sql: &str) -> Result<Vec<TextResult>, SessionError> {
        let _ = sql;
        todo!()
    }

    /// `query` for SQL of one statement with one row and one column.
    pub fn query_value(&mut self, sql: &str) -> Result<Option<String>, SessionError> {
        let _ = sql;
        todo!()
    }

    /// Starts a COPY … FROM STDIN, blocking.
    pub fn copy_in(&mut self, sql: &str) -> Result<CopyIn<'_>, SessionError> {
        let _ = sql;
        todo!()
    }

    /// The last value the server reported for a parameter (`server_version` …).
    pub fn parameter(&self, name: &str) -> Option<&str> {
        let _ = name;
        todo!()
    }

    /// `server_version_num`, for example 90624 or 180006.
    pub fn version(&self) -> u32 {
        todo!()
    }

    /// The host (or socket directory) that was connected to, as the user wrote it.
    pub fn host(&self) -> &str {
        todo!()
    }

    /// Process id of the backend.
    pub fn backend_pid(&self) -> i32 {
        todo!()
    }

    /// Round trips (flushes and simple queries) so far.
    pub fn round_trips(&self) -> u64 {
        0
    }

    /// Is the transport encrypted? The protocol version and cipher for the record, e.g. "TLSv1.3".
    pub fn tls(&self) -> Option<String> {
        todo!()
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

/// A COPY FROM STDIN under way. Dropped without `finish`, it sends CopyFail.
pub struct CopyIn<'a>(&'a mut Session);

impl CopyIn<'_> {
    /// Sends one chunk of COPY data (any split; bytes are not interpreted).
    pub fn send(&mut self, data: &[u8]) -> Result<(), SessionError> {
        let _ = data;
        todo!()
    }

    /// Ends the COPY; returns the number of rows the server stored.
    pub fn finish(self) -> Result<u64, SessionError> {
        todo!()
    }
}

/// The results of one `flush`, in the order of `queue`; borrowed from the receive buffer.
pub struct Reply<'a>(std::marker::PhantomData<&'a ()>);

impl<'a> Reply<'a> {
    /// The next statement's result; calling it more often than statements were queued is a
    /// `WrongResult`.
    pub fn next_result(&mut self) -> Result<StatementResult<'a>, SessionError> {
        todo!()
    }
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
        todo!()
    }

    /// No row or one row, else `WrongResult`.
    pub fn optional(self) -> Result<Option<Row<'a>>, SessionError> {
        todo!()
    }

    /// All rows.
    pub fn rows(self) -> Rows<'a> {
        self.rows
    }

    /// `WrongResult` unless exactly `n` rows were affected (TPC-C 2.3.6).
    pub fn expect_affected(&self, n: u64) -> Result<(), SessionError> {
        let _ = n;
        todo!()
    }
}

/// Iterator over rows, zero-copy.
pub struct Rows<'a>(std::marker::PhantomData<&'a ()>);

impl<'a> Iterator for Rows<'a> {
    type Item = Row<'a>;
    fn next(&mut self) -> Option<Row<'a>> {
        todo!()
    }
}

/// One row of binary values. Getters check length and NULL; anything odd is a `WrongResult`.
#[derive(Clone, Copy)]
pub struct Row<'a>(std::marker::PhantomData<&'a ()>);

impl<'a> Row<'a> {
    pub fn is_null(&self, column: usize) -> Result<bool, SessionError> {
        let _ = column;
        todo!()
    }
    pub fn int2(&self, column: usize) -> Result<i16, SessionError> {
        let _ = column;
        todo!()
    }
    pub fn int4(&self, column: usize) -> Result<i32, SessionError> {
        let _ = column;
        todo!()
    }
    pub fn int8(&self, column: usize) -> Result<i64, SessionError> {
        let _ = column;
        todo!()
    }
    /// A numeric as a whole number of 10^-scale: `decimal(0, 2)` of 12.34 is 1234. A value with
    /// more decimals than `scale`, NaN or infinity is a `WrongResult`.
    pub fn decimal(&self, column: usize, scale: u32) -> Result<i64, SessionError> {
        let _ = (column, scale);
        todo!()
    }
    pub fn text(&self, column: usize) -> Result<&'a str, SessionError> {
        let _ = column;
        todo!()
    }
    /// Microseconds since 2000-01-01.
    pub fn timestamp(&self, column: usize) -> Result<i64, SessionError> {
        let _ = column;
        todo!()
    }
}
