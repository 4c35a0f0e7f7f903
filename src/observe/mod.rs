//! What server and host did meanwhile: counters read around the run, outside the driver.

mod pg_counters;
mod server_cpu;

use crate::clock::{self, Clock, Monotonic};
use crate::problem::Problem;
use crate::record::{DataCounterDelta, ServerCounters};
use crate::session::{ConnectOptions, Session};
use pg_counters::Snapshot;
use server_cpu::ServerCpu;
use std::time::Duration;

/// A counter in the data: name, SQL for one whole number, and the profile that moves it.
pub type DataCounterSql = (String, String, String);

/// How long the server may take to report the last commits of closed sessions: before
/// PostgreSQL 15 a collector process writes them with up to half a second of delay.
const SETTLE_MAX: Duration = Duration::from_secs(5);
const SETTLE_STEP: Duration = Duration::from_millis(200);

/// Reads the server's own counters before, at both ends of, and after the measurement.
pub struct Probe {
    connect: ConnectOptions,
    schema: String,
    data_counters: Vec<DataCounterSql>,
    session: Session,
    cpu: Result<ServerCpu, String>,
    before: Snapshot,
    data_before: Vec<i64>,
    begin: Option<Ends>,
    end: Option<Ends>,
}

/// What is read at an end of the measurement.
struct Ends {
    snapshot: Snapshot,
    cpu_s: Option<f64>,
}

impl Probe {
    /// Connects and takes the first readings. `connect` should leave prompts behind it.
    pub fn open(
        connect: &ConnectOptions,
        schema: &str,
        data_counters: Vec<DataCounterSql>,
    ) -> Result<Probe, Problem> {
        let mut session = Session::connect(connect)?;
        let cpu = if connect.is_local() {
            ServerCpu::of_backend(session.backend_pid())
        } else {
            Err("the server is on another host".to_owned())
        };
        let before = settled(&mut session)?;
        let data_before = read_data(&mut session, schema, &data_counters)?;
        Ok(Probe {
            connect: connect.clone(),
            schema: schema.to_owned(),
            data_counters,
            session,
            cpu,
            before,
            data_before,
            begin: None,
            end: None,
        })
    }

    /// The measurement begins now.
    pub fn begin(&mut self) {
        self.begin = self.ends();
    }

    /// The measurement ends now.
    pub fn end(&mut self) {
        self.end = self.ends();
    }

    /// A server that cannot answer now is told by the verdicts that miss the reading.
    fn ends(&mut self) -> Option<Ends> {
        let cpu_s = self.cpu.as_ref().ok().and_then(ServerCpu::seconds);
        let snapshot = pg_counters::read(&mut self.session).ok()?;
        Some(Ends { snapshot, cpu_s })
    }

    /// After all sessions of the driver have ended: the deltas. `commits` is what the driver
    /// counted; the server may need a moment to report as many.
    pub fn finish(mut self, commits: u64) -> ServerCounters {
        // After an interrupt the counters are still wanted.
        self.session.set_uninterruptible(true);
        let mut out = ServerCounters::default();
        if let Err(reason) = &self.cpu {
            out.unavailable
                .insert("server_cpu_s".to_owned(), reason.clone());
        }
        if let Err(problem) = self.finish_over(commits, &mut out) {
            out.unavailable
                .insert("server_counters".to_owned(), problem.message);
        }
        if let (Some(begin), Some(end)) = (&self.begin, &self.end) {
            out.checkpoints_timed =
                end.snapshot.checkpoints_timed - begin.snapshot.checkpoints_timed;
            out.checkpoints_requested =
                end.snapshot.checkpoints_requested - begin.snapshot.checkpoints_requested;
            out.wal_bytes = match (begin.snapshot.wal_bytes, end.snapshot.wal_bytes) {
                (Some(a), Some(b)) => Some(b - a),
                _ => None,
            };
            out.server_cpu_s = begin.cpu_s.zip(end.cpu_s).map(|(a, b)| (b - a).max(0.0));
        } else {
            out.unavailable.insert(
                "checkpoints".to_owned(),
                "the server did not answer at both ends".into(),
            );
        }
        out
    }

    fn finish_over(&mut self, commits: u64, out: &mut ServerCounters) -> Result<(), Problem> {
        if self.session.query("SELECT 1").is_err() {
            // The probe's own connection died with the server; a restarted one has new counters.
            self.session = Session::connect(&self.connect)?;
            self.session.set_uninterruptible(true);
        }
        let wanted = self.before.xact_commit + i64::try_from(commits).unwrap_or(i64::MAX);
        let clock = Monotonic::start();
        let mut after = pg_counters::read(&mut self.session)?;
        while after.xact_commit < wanted && clock.now().0 < nanos(SETTLE_MAX) {
            clock::pause(SETTLE_STEP);
            after = pg_counters::read(&mut self.session)?;
        }
        out.xact_commit = after.xact_commit - self.before.xact_commit;
        out.xact_rollback = after.xact_rollback - self.before.xact_rollback;
        out.deadlocks = after.deadlocks - self.before.deadlocks;
        if after.stats_reset != self.before.stats_reset {
            out.unavailable.insert(
                "xact_commit".to_owned(),
                "the server's statistics were reset during the run".to_owned(),
            );
        }
        let data = read_data(&mut self.session, &self.schema, &self.data_counters)?;
        for ((name, _, profile), (after, before)) in self
            .data_counters
            .iter()
            .zip(data.iter().zip(&self.data_before))
        {
            out.data.push(DataCounterDelta {
                name: name.clone(),
                profile: profile.clone(),
                delta: after - before,
            });
        }
        Ok(())
    }
}

#[allow(clippy::cast_possible_truncation, reason = "seconds as nanoseconds")]
fn nanos(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}

/// Reads until two readings agree but for the probe's own commits, so that what was done before
/// the run is not counted into it.
fn settled(session: &mut Session) -> Result<Snapshot, Problem> {
    let clock = Monotonic::start();
    let mut last = pg_counters::read(session)?;
    loop {
        clock::pause(SETTLE_STEP * 3);
        let now = pg_counters::read(session)?;
        if now.xact_commit - last.xact_commit <= 4 || clock.now().0 > nanos(SETTLE_MAX) {
            return Ok(now);
        }
        last = now;
    }
}

fn read_data(
    session: &mut Session,
    schema: &str,
    counters: &[DataCounterSql],
) -> Result<Vec<i64>, Problem> {
    if counters.is_empty() {
        return Ok(Vec::new());
    }
    session.query(&format!("SET search_path = {schema}"))?;
    let mut values = Vec::with_capacity(counters.len());
    for (name, sql, _) in counters {
        let value = session.query_value(sql)?;
        values.push(value.and_then(|v| v.parse().ok()).ok_or_else(|| {
            Problem::environment(format!("the counter {name} of the data is not a number"))
                .hint("pgdyno check tells whether the data set is damaged")
        })?);
    }
    Ok(values)
}

/// Tables of the data set that a crash would empty.
pub fn unlogged_tables(session: &mut Session, schema: &str) -> Result<Vec<String>, Problem> {
    let sql = format!(
        "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE n.nspname = '{schema}' AND c.relkind IN ('r', 'p') AND c.relpersistence = 'u' \
         ORDER BY 1"
    );
    let results = session.query(&sql)?;
    Ok(results
        .into_iter()
        .flat_map(|r| r.rows)
        .filter_map(|mut row| row.pop().flatten())
        .collect())
}
