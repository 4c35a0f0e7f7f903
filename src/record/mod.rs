//! Everything known about one run; plain data that everybody else meets at.
//!
//! A record is written once and never edited; reports are derived from it. Every type here is
//! part of the stored form: changing one bumps [`SCHEMA_VERSION`].

#[cfg(test)]
pub(crate) mod fixture;
mod hdr_log;
pub mod secrets;
pub mod store;

use crate::session::Failure;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the stored form of [`RunRecord`].
pub const SCHEMA_VERSION: u32 = 1;

/// What was asked, resolved: no default is hidden.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunPlan {
    pub workload: String,
    pub dialect: String,
    /// statements | pipeline | batch | function
    pub mode: String,
    /// simple | extended | prepared
    pub protocol: String,
    pub isolation: Isolation,
    pub schema: String,
    pub warehouses: u32,
    pub foreign_keys: bool,
    /// Seed of the run's inputs.
    pub seed: u64,
    /// Seed of the initial data (the same unless `--data-seed` was given).
    pub data_seed: u64,
    pub connections: u32,
    pub terminals: u32,
    pub workers: u32,
    pub keying_think: bool,
    /// Deck of cards or weighted choice, and the weights by profile name.
    pub mix: Mix,
    pub ramp_s: f64,
    pub measure_s: f64,
    /// End after this many transactions instead of after `measure_s`.
    pub transactions: Option<u64>,
    /// Length of a window, also of the live line's interval.
    pub window_s: f64,
    /// Attempts of one transaction, the first included.
    pub tries_max: u32,
    /// Workload-specific `-D name=value`.
    pub defines: BTreeMap<String, String>,
    /// Settings asked for with `--set`.
    pub settings: BTreeMap<String, String>,
    pub labels: BTreeMap<String, String>,
    /// Where the server is, in words, without a password.
    pub target: String,
}

/// Transaction isolation of the workload's transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    ReadCommitted,
    RepeatableRead,
    Serializable,
}

impl Isolation {
    /// As in `SET … ISOLATION LEVEL`.
    pub fn sql(self) -> &'static str {
        match self {
            Isolation::ReadCommitted => "read committed",
            Isolation::RepeatableRead => "repeatable read",
            Isolation::Serializable => "serializable",
        }
    }
}

/// How the next profile is chosen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mix {
    /// Cards of each profile in a deck that is reshuffled when it is empty (TPC-C 5.2.4.2).
    Deck(BTreeMap<String, u32>),
    /// Independent draws with these weights.
    Weighted(BTreeMap<String, f64>),
}

/// Everything known about one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunRecord {
    pub schema_version: u32,
    pub id: String,
    /// RFC 3339, UTC.
    pub started_at: String,
    pub plan: RunPlan,
    pub subject: Subject,
    /// Present when this run loaded the data set.
    pub load: Option<LoadReport>,
    pub drive: DriveRecord,
    /// Profile names and limits, by profile index.
    pub profiles: Vec<ProfileInfo>,
    /// What the workload's inputs were, against their tolerance.
    pub sheet: Vec<SheetLine>,
    pub server_counters: ServerCounters,
    pub invariants: Vec<InvariantResult>,
    pub durability: Durability,
    pub verdicts: Vec<Verdict>,
}

impl RunRecord {
    /// Did a server take part? Without one the driver itself was measured.
    pub fn on_server(&self) -> bool {
        self.subject.postgres_version_num > 0
    }
}

/// What was measured: server, host and client, as they were, not as they were asked to be.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Subject {
    pub postgres_version: String,
    pub postgres_version_num: u32,
    /// All of `pg_settings` that differs from the built-in default, and all asked for.
    pub settings: BTreeMap<String, Setting>,
    /// Kernel, CPU, memory, filesystem … (name → value).
    pub host: BTreeMap<String, String>,
    /// Is the server on this host?
    pub server_local: bool,
    pub transport: String,
    pub client_version: String,
    pub data_version: u32,
}

/// A setting as the server reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    pub value: String,
    pub unit: Option<String>,
    /// `pg_settings.source`.
    pub source: String,
    /// `pg_settings.context`.
    pub context: String,
}

/// What a load did and how fast.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadReport {
    pub tables: BTreeMap<String, TableLoad>,
    pub rows: u64,
    /// Bytes of COPY data sent.
    pub bytes: u64,
    /// Wall time of the whole load.
    pub seconds: f64,
    pub copy_seconds: f64,
    pub index_seconds: f64,
    /// Foreign keys, VACUUM and ANALYZE.
    pub finish_seconds: f64,
    pub mb_per_s: f64,
    pub rows_per_s: f64,
    pub seed: u64,
    pub data_version: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TableLoad {
    pub rows: u64,
    pub bytes: u64,
}

/// `offered == skipped + committed + rolled_back + failed`, asserted whenever counts are closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Counts {
    /// Transactions that came due and reached an end.
    pub offered: u64,
    /// Not started because they were too late.
    pub skipped: u64,
    pub committed: u64,
    /// On purpose; a success.
    pub rolled_back: u64,
    /// Gave up: an error, or retries exhausted.
    pub failed: u64,
    /// Extra attempts; not part of the identity.
    pub retries: u64,
}

impl Counts {
    pub fn add(&mut self, other: &Counts) {
        self.offered += other.offered;
        self.skipped += other.skipped;
        self.committed += other.committed;
        self.rolled_back += other.rolled_back;
        self.failed += other.failed;
        self.retries += other.retries;
    }

    /// The accounting identity.
    pub fn balanced(&self) -> bool {
        self.offered == self.skipped + self.committed + self.rolled_back + self.failed
    }

    /// Committed and intended rollbacks.
    pub fn completed(&self) -> u64 {
        self.committed + self.rolled_back
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProfileInfo {
    pub name: String,
    pub keying_s: f64,
    pub think_s: f64,
    pub response_limit_s: Option<f64>,
    pub deferred: bool,
}

/// What the driver measured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct DriveRecord {
    /// Length of the measurement as it really was.
    pub measurement_s: f64,
    /// By profile index.
    pub profiles: Vec<ProfileRecord>,
    /// Ramp-up, measurement and drain together: what the server must have seen, by profile.
    pub overall: Vec<Counts>,
    /// Commits whose acknowledgement was lost with the connection: may or may not have happened.
    pub unknown_commits: u64,
    pub windows: Vec<WindowRecord>,
    pub client: ClientCost,
    /// Why the measurement ended.
    pub ended: Ended,
    pub reconnects: u64,
    /// Deferred transactions still queued when the drain ended.
    pub deferred_left: u64,
    /// The first few error messages of each class (class name → message → count).
    pub errors: BTreeMap<String, BTreeMap<String, u64>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// The planned time or number of transactions was reached.
    #[default]
    Planned,
    /// Ctrl-C or SIGTERM.
    Interrupted,
    /// The server went away and did not come back.
    ServerLost,
}

/// One profile over the measurement: what finished inside it. Times are those of successes;
/// histograms are HdrHistogram V2-deflate, base64, in µs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ProfileRecord {
    pub counts: Counts,
    pub failures: BTreeMap<String, u64>,
    pub response_time: Latency,
    pub service_time: Latency,
    pub lag: Latency,
}

/// Summary of a distribution in microseconds, with the distribution itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    pub count: u64,
    pub mean: f64,
    pub p50: u64,
    pub p90: u64,
    pub p95: u64,
    pub p99: u64,
    pub p999: u64,
    pub max: u64,
    /// HdrHistogram V2 + deflate, base64.
    pub hdr: String,
}

/// A fixed slice of the measurement (and of the ramp-up: `begin_s` is negative there).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct WindowRecord {
    /// Seconds from the begin of the measurement.
    pub begin_s: f64,
    pub length_s: f64,
    /// By profile index.
    pub counts: Vec<Counts>,
    /// By profile index: response times, HdrHistogram V2 + deflate, base64; empty without samples.
    pub response_hdr: Vec<String>,
}

/// What measuring cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClientCost {
    pub workers: u32,
    /// CPU time of the workers during the measurement, seconds.
    pub cpu_s: f64,
    /// CPU time of all workers per completed transaction, microseconds.
    pub cpu_us_per_txn: f64,
    /// Share of one core that the busiest worker used.
    pub cpu_share: f64,
    /// 99th percentile of the driver's own lateness over all transactions, microseconds: started −
    /// scheduled, or since a session was free when that was later. Waiting for a session is not
    /// the driver's fault; it is in [`ProfileRecord::lag`].
    pub lag_us_p99: u64,
    pub round_trips_per_txn: f64,
}

/// One property of the inputs of a run, held against its tolerance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SheetLine {
    /// E.g. `remote_lines`.
    pub name: String,
    /// The clause, e.g. "TPC-C 2.4.1.5".
    pub source: String,
    pub measured: f64,
    pub expected: f64,
    /// The accepted band, widened for the sample size.
    pub low: f64,
    pub high: f64,
    /// Number of observations.
    pub n: u64,
    pub status: VerdictStatus,
    pub detail: String,
}

/// The server's own counters around the run (deltas), from sessions outside the driver.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerCounters {
    /// `pg_stat_database` of the target database from before ramp-up to after the drain.
    pub xact_commit: i64,
    pub xact_rollback: i64,
    pub deadlocks: i64,
    /// Checkpoints that began or completed inside the measurement.
    pub checkpoints_timed: i64,
    pub checkpoints_requested: i64,
    pub wal_bytes: Option<i64>,
    /// CPU seconds of the server's processes during the measurement, when local.
    pub server_cpu_s: Option<f64>,
    /// Counters in the data itself, e.g. the sum of `d_next_o_id` of TPC-C.
    pub data: Vec<DataCounterDelta>,
    /// What could not be read and why.
    pub unavailable: BTreeMap<String, String>,
}

/// How far a counter in the data moved from before ramp-up to after the drain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DataCounterDelta {
    pub name: String,
    /// The profile each of whose commits moves it by one.
    pub profile: String,
    pub delta: i64,
}

/// One invariant over the data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InvariantResult {
    pub name: String,
    pub source: String,
    pub violations: u64,
    /// The first violating rows, column → value.
    pub sample: Vec<BTreeMap<String, Option<String>>>,
}

/// What a crash may cost under the settings in force.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Durability {
    pub class: DurabilityClass,
    pub reasons: Vec<String>,
}

#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum DurabilityClass {
    /// Acknowledged commits survive.
    Preserved,
    /// Acknowledged commits may be lost; the database stays consistent.
    LosesRecentCommits,
    /// The database may be corrupt or empty after a crash.
    RisksCorruption,
    /// The settings could not be read.
    #[default]
    Unknown,
}

/// A check of the run itself: does this run measure what it says?
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    pub check: String,
    pub status: VerdictStatus,
    /// The reason, and what to do.
    pub detail: String,
}

#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum VerdictStatus {
    Pass,
    Warn,
    Invalid,
}

/// Index of a failure class in the driver's arrays.
pub fn failure_index(failure: Failure) -> usize {
    failure as usize
}
