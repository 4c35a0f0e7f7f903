//! One connection to one PostgreSQL backend.
//!
//! A session is used in two ways: *driven* by a worker of the driver (non-blocking; the futures
//! return `Pending` when the socket would block) and *blocking* for everything that is not hot
//! (loading, settings, checks). Both run the same code.
//!
//! | module | what it is |
//! |---|---|
//! | [`conninfo`] | where to connect to: strings, environment, files |
//! | `connect` | hosts, addresses and encryption modes, in the order of libpq |
//! | `startup` | one attempt at one address: encryption, authentication |
//! | `tls`, `x509` | what is verified, and the few fields of certificates for that |
//! | `cancel` | cancel requests |
//! | `prompt`, `account` | the terminal and the users of the system |
//! | `socket` | a non-blocking socket, plain or under TLS |
//! | `channel` | send and receive buffers, and one exchange with the server |
//! | `blocking` | waiting with poll(2), interruptible |
//! | `reply` | results, read where they lie |
//! | `copy` | COPY … FROM STDIN |
//! | [`error`] | classes of failures |

mod account;
mod blocking;
mod cancel;
mod channel;
mod connect;
pub mod conninfo;
mod copy;
pub mod error;
mod prompt;
mod reply;
mod socket;
mod startup;
mod tls;
mod waits;
mod x509;

/// A numeric field in the binary form, as parameters and COPY have it.
pub use crate::wire::value::decimal as write_decimal;
pub use conninfo::{ConnectOptions, SslMode};
pub use copy::CopyIn;
pub use error::{Failure, SessionError};
pub use reply::{Reply, Row, Rows, StatementResult, TextResult};
pub use waits::Waits;

use crate::clock::Tick;
use crate::wire::backend::TransactionStatus;
use crate::wire::{frontend, value};
use blocking::Blocker;
use cancel::CancelTarget;
use channel::{Channel, Exchange, Stop};
use std::future::poll_fn;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::task::Poll;

/// The name of the internal ROLLBACK.
const ROLLBACK: &str = "rollback";
/// Decimals of money.
const CENTS_SCALE: u32 = 2;

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
    /// numeric[] with two decimals
    CentsArray(&'a [i64]),
    /// Needs `$n::text[]` in the SQL where the context is another string type.
    TextArray(&'a [&'a str]),
}

impl Param<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        match *self {
            Param::Null => value::null(out),
            Param::Int2(v) => value::int2(out, v),
            Param::Int4(v) => value::int4(out, v),
            Param::Int8(v) | Param::Timestamp(v) => value::int8(out, v),
            Param::Cents(v) => value::decimal(out, v, CENTS_SCALE),
            Param::Text(v) => value::text(out, v),
            Param::Int2Array(v) => value::int2_array(out, v),
            Param::Int4Array(v) => value::int4_array(out, v),
            Param::CentsArray(v) => value::decimal_array(out, v, CENTS_SCALE),
            Param::TextArray(v) => value::text_array(out, v),
        }
    }
}

/// One connection.
///
/// Dropping a session ends the connection. A future of a session ([`Session::flush`],
/// [`Session::rollback`]) that is dropped before it is ready leaves a reply on its way: the session
/// notices, and every later call fails with `Disconnected`.
pub struct Session {
    waits: Arc<Waits>,
    /// `None` when detached.
    channel: Option<Channel>,
    cancel: Option<Arc<CancelTarget>>,
    host: String,
    /// Names of the prepared statements, by index.
    names: Vec<String>,
    rollback_prepared: bool,
    uninterruptible: bool,
    round_trips: u64,
}

impl Session {
    /// Connects and authenticates, blocking, trying the hosts of `options` in order as libpq does.
    pub fn connect(options: &ConnectOptions) -> Result<Session, SessionError> {
        connect::connect(options)
    }

    /// A session without a server, for workloads that only sleep; `flush` on it is an error.
    pub fn detached() -> Session {
        Session {
            waits: Arc::default(),
            channel: None,
            cancel: None,
            host: String::new(),
            names: Vec::new(),
            rollback_prepared: false,
            uninterruptible: false,
            round_trips: 0,
        }
    }

    fn new(channel: Channel, cancel: Arc<CancelTarget>, host: String) -> Session {
        let mut session = Session::detached();
        session.waits = Arc::clone(&channel.waits);
        session.channel = Some(channel);
        session.uninterruptible = cancel.options.uninterruptible;
        session.cancel = Some(cancel);
        session.host = host;
        session
    }

    /// The cell through which a worker and this session talk.
    pub fn waits(&self) -> Arc<Waits> {
        Arc::clone(&self.waits)
    }

    /// The socket, for epoll; `None` when detached. It stays the same as long as the session lives.
    pub fn fd(&self) -> Option<RawFd> {
        self.channel.as_ref().map(|channel| channel.socket.raw_fd())
    }

    /// Prepares `statements` in order, in one round trip, blocking; addressed by [`Statement`].
    /// Statements prepared before are closed.
    pub fn prepare_all(&mut self, statements: &[&str]) -> Result<(), SessionError> {
        for sql in statements {
            check_sql(sql)?;
        }
        let names: Vec<_> = (0..statements.len()).map(|i| format!("s{i}")).collect();
        let old = std::mem::replace(&mut self.names, names);
        let channel = attached(&mut self.channel)?;
        channel.output.clear();
        for name in old.iter().map(String::as_str).chain([ROLLBACK]) {
            frontend::close(&mut channel.output, name);
        }
        frontend::parse(&mut channel.output, ROLLBACK, "ROLLBACK");
        for (name, sql) in self.names.iter().zip(statements) {
            frontend::parse(&mut channel.output, name, sql);
        }
        frontend::sync(&mut channel.output);
        self.rollback_prepared = false;
        if let Err(mut error) = self.exchange(false) {
            let reply = self.channel()?.reply();
            let parsed = reply::Frames(reply).filter(|f| f.tag == b'1').count();
            if let Some(sql) = parsed.checked_sub(1).and_then(|i| statements.get(i)) {
                error.message = format!("cannot prepare \"{sql}\": {}", error.message);
            }
            return Err(error);
        }
        self.rollback_prepared = true;
        Ok(())
    }

    /// Queues Bind and Execute; nothing is sent before `flush`. No allocation once buffers grew.
    ///
    /// # Panics
    /// When `statement` was not prepared: a defect of the workload.
    pub fn queue(&mut self, statement: Statement, params: &[Param<'_>]) {
        let Some(channel) = &mut self.channel else {
            return;
        };
        let name = &self.names[usize::from(statement.0)];
        let count = u16::try_from(params.len()).expect("a statement has at most 65,535 parameters");
        frontend::bind(&mut channel.output, name, count, |out| {
            for param in params {
                param.write(out);
            }
        });
        frontend::execute(&mut channel.output);
    }

    /// Sends what is queued with one Sync, waits for `ReadyForQuery`, and hands back all results
    /// in order. On a server error the rest of the queue was skipped by the server, and the
    /// session is usable again (perhaps in a failed transaction block: see `in_transaction`).
    ///
    /// The future must be polled to its end, or dropped together with the session.
    pub async fn flush(&mut self) -> Result<Reply<'_>, SessionError> {
        let channel = attached(&mut self.channel)?;
        self.round_trips += 1;
        // A sleep that was given up.
        self.waits.wake_at.set(None);
        frontend::sync(&mut channel.output);
        channel.begin(Exchange::Extended)?;
        poll_fn(|_| channel.poll_exchange(false)).await?;
        Ok(Reply::new(channel.reply()))
    }

    /// Ends an open transaction block with ROLLBACK, whatever its state; one round trip. What was
    /// queued and not sent is forgotten. Without a transaction block nothing is sent.
    pub async fn rollback(&mut self) -> Result<(), SessionError> {
        let Some(channel) = &mut self.channel else {
            return Ok(());
        };
        channel.output.clear();
        if channel.status == TransactionStatus::Idle {
            return Ok(());
        }
        if self.rollback_prepared {
            frontend::bind(&mut channel.output, ROLLBACK, 0, |_| {});
        } else {
            frontend::parse(&mut channel.output, "", "ROLLBACK");
            frontend::bind(&mut channel.output, "", 0, |_| {});
        }
        frontend::execute(&mut channel.output);
        self.flush().await.map(|_| ())
    }

    /// Is a transaction block open (`T` or `E` in the last `ReadyForQuery`)?
    pub fn in_transaction(&self) -> bool {
        self.channel
            .as_ref()
            .is_some_and(|channel| channel.status != TransactionStatus::Idle)
    }

    /// Waits until `at` on the worker's clock.
    pub async fn sleep_until(&mut self, at: Tick) {
        poll_fn(|_| {
            if self.waits.now.get() >= at {
                self.waits.wake_at.set(None);
                return Poll::Ready(());
            }
            self.waits.wake_at.set(Some(at));
            Poll::Pending
        })
        .await;
    }

    /// Runs driven code on this session, blocking; for tests and for checks outside the driver.
    pub fn block_on<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut Session) -> Result<T, SessionError>,
    ) -> Result<T, SessionError> {
        let blocker = self.blocker();
        blocker.run_future(work(self))
    }

    /// Runs SQL through the simple protocol, blocking; several statements give several results.
    /// Obeys [`crate::interrupt`]: cancels the statement and returns `Failure::Interrupted`.
    pub fn query(&mut self, sql: &str) -> Result<Vec<TextResult>, SessionError> {
        check_sql(sql)?;
        let channel = self.channel()?;
        channel.output.clear();
        frontend::query(&mut channel.output, sql);
        self.exchange(false)?;
        Ok(reply::texts(self.channel()?.reply())?)
    }

    /// `query` for SQL of one statement with one column and at most one row; `None` for no row
    /// and for NULL.
    pub fn query_value(&mut self, sql: &str) -> Result<Option<String>, SessionError> {
        let mut results = self.query(sql)?;
        match (results.pop(), results.is_empty()) {
            (Some(mut result), true) if result.rows.len() <= 1 && result.columns.len() == 1 => {
                Ok(result.rows.pop().and_then(|mut row| row.pop()).flatten())
            }
            _ => Err(SessionError::wrong_result(format!(
                "at most one row with one column expected from \"{sql}\""
            ))),
        }
    }

    /// Starts a COPY … FROM STDIN, blocking.
    pub fn copy_in(&mut self, sql: &str) -> Result<CopyIn<'_>, SessionError> {
        check_sql(sql)?;
        let channel = self.channel()?;
        channel.output.clear();
        frontend::query(&mut channel.output, sql);
        match self.exchange(true)? {
            Stop::CopyIn => Ok(CopyIn::new(self)),
            Stop::Ready => Err(SessionError::new(
                Failure::OtherSql,
                format!("no COPY FROM STDIN: \"{sql}\""),
            )),
        }
    }

    /// The last value the server reported for a parameter (`server_version` …).
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.channel
            .as_ref()?
            .parameters
            .get(name)
            .map(String::as_str)
    }

    /// `server_version_num`, for example 90624 or 180006; 0 when detached.
    pub fn version(&self) -> u32 {
        self.parameter("server_version").map_or(0, version_number)
    }

    /// The host (or socket directory) that was connected to, as the user wrote it.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Process id of the backend; 0 when detached.
    pub fn backend_pid(&self) -> i32 {
        self.cancel.as_ref().map_or(0, |target| target.process_id)
    }

    /// Round trips (flushes and simple queries) so far.
    pub fn round_trips(&self) -> u64 {
        self.round_trips
    }

    /// Is the transport encrypted? The protocol version and cipher for the record, for example
    /// `TLSv1.3 TLS13_AES_256_GCM_SHA384`.
    pub fn tls(&self) -> Option<String> {
        let tls = self.channel.as_ref()?.socket.tls()?;
        let version = tls.protocol_version()?.as_str()?.replace('_', ".");
        let suite = tls.negotiated_cipher_suite()?.suite();
        Some(format!("{version} {}", suite.as_str().unwrap_or("unknown")))
    }

    /// Can this session still be used? `false` after the connection was lost.
    pub fn is_usable(&self) -> bool {
        self.channel
            .as_ref()
            .is_none_or(|channel| !channel.is_broken())
    }

    /// From here on blocking calls ignore interrupts: for clean-up after one.
    pub fn set_uninterruptible(&mut self, uninterruptible: bool) {
        self.uninterruptible = uninterruptible;
    }

    fn channel(&mut self) -> Result<&mut Channel, SessionError> {
        attached(&mut self.channel)
    }

    fn blocker(&self) -> Blocker {
        Blocker {
            fd: self.channel.as_ref().map(|channel| channel.socket.fd()),
            waits: Arc::clone(&self.waits),
            cancel: self.cancel.clone(),
            uninterruptible: self.uninterruptible,
            deadline: None,
        }
    }

    /// One round trip, blocking; the output ends with `Sync` or is a `Query`.
    fn exchange(&mut self, copy_in: bool) -> Result<Stop, SessionError> {
        let blocker = self.blocker();
        self.round_trips += 1;
        let channel = self.channel()?;
        let kind = match channel.output.first() {
            Some(b'Q') => Exchange::Simple,
            _ => Exchange::Extended,
        };
        blocker.check().inspect_err(|_| channel.output.clear())?;
        channel.begin(kind)?;
        blocker.run(|| channel.poll_exchange(copy_in))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(channel) = &mut self.channel
            && !channel.is_broken()
        {
            let mut last = Vec::new();
            frontend::terminate(&mut last);
            channel.socket.close(&last);
        }
    }
}

fn attached(channel: &mut Option<Channel>) -> Result<&mut Channel, SessionError> {
    channel.as_mut().ok_or_else(|| {
        SessionError::new(
            Failure::Disconnected,
            "a detached session has no server to talk to",
        )
    })
}

fn check_sql(sql: &str) -> Result<(), SessionError> {
    if sql.contains('\0') {
        let message = "SQL contains a NUL character";
        return Err(SessionError::new(Failure::OtherSql, message));
    }
    Ok(())
}

/// `9.6.24` is 90624, `18.6 (Debian …)` is 180006, `19beta1` is 190000
/// (`pqSaveParameterStatus` in fe-exec.c).
fn version_number(text: &str) -> u32 {
    let mut parts = text
        .split(|c: char| !c.is_ascii_digit() && c != '.')
        .next()
        .unwrap_or("")
        .split('.')
        .map(|part| part.parse::<u32>().unwrap_or(0));
    let major = parts.next().unwrap_or(0);
    let minor = parts.next().unwrap_or(0);
    let patch = parts.next().unwrap_or(0);
    if major >= 10 {
        major * 10_000 + minor
    } else {
        major * 10_000 + minor * 100 + patch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_numbers_are_those_of_libpq() {
        for (text, number) in [
            ("9.6.24", 90_624),
            ("18.6", 180_006),
            ("15.14 (Debian 15.14-0+deb12u1)", 150_014),
            ("19beta1", 190_000),
            ("10", 100_000),
            ("", 0),
        ] {
            assert_eq!(version_number(text), number, "{text}");
        }
    }

    #[test]
    fn a_detached_session_sleeps_and_has_no_server() {
        let mut session = Session::detached();
        assert_eq!(session.fd(), None);
        let waits = session.waits();
        let woken = session.block_on(async |session| {
            let at = waits.now.get().after(std::time::Duration::from_millis(20));
            session.sleep_until(at).await;
            Ok(waits.now.get() >= at)
        });
        assert!(woken.unwrap());
        assert_eq!(session.waits().wake_at.get(), None);
        let error = session.query("SELECT 1").unwrap_err();
        assert_eq!(error.failure, Failure::Disconnected);
        assert!(
            session
                .block_on(async |s| s.flush().await.map(|_| ()))
                .is_err()
        );
    }
}
