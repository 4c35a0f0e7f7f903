//! What is run: tables, profiles, inputs, statements, invariants.
//!
//! A workload knows nothing of threads, clocks or sockets: it draws inputs, executes them on a
//! [`Session`], and writes batches of initial rows. Adding one is a file here and a line in
//! [`crate::catalog`].

pub mod copy;
pub mod mix;
pub mod synthetic;
pub mod tpcc;

use crate::problem::Problem;
use crate::record::{RunPlan, SheetLine};
use crate::rng::Seed;
use crate::session::{Session, SessionError};
use copy::CopyBuffer;
use std::collections::BTreeMap;
use std::time::Duration;

/// Index into [`Workload::profiles`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProfileId(pub u8);

impl ProfileId {
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// One transaction type of a workload, for example TPC-C's New-Order.
#[derive(Clone, Debug)]
pub struct Profile {
    /// As in the JSON contract: `new_order`, `payment` …
    pub name: &'static str,
    /// Keying time before the input is sent (TPC-C 5.2.5.2: constant).
    pub keying_time: Duration,
    /// Mean of the exponential think time after the output (TPC-C 5.2.5.4).
    pub think_time_mean: Duration,
    /// Largest acceptable 90th percentile response time, where a standard sets one.
    pub response_time_limit: Option<Duration>,
    /// Deferred execution (TPC-C 2.7.2): the terminal goes on as soon as the input is queued;
    /// response time counts from that instant.
    pub deferred: bool,
}

/// How a transaction ended; both are successes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Committed,
    /// Rolled back on purpose (TPC-C 2.4.1.4).
    RolledBack,
}

/// What is run.
pub trait Workload: Sized + Send + Sync + 'static {
    /// The name on the command line.
    const NAME: &'static str;
    /// One line for `--help`.
    const SUMMARY: &'static str;
    /// Bumped whenever the same plan gives other initial data.
    const DATA_VERSION: u32;

    type Terminal: Terminal;

    /// Checks the workload's part of the plan.
    fn from_plan(plan: &RunPlan) -> Result<Self, Problem>;

    fn profiles(&self) -> &[Profile];

    /// SQL run once per session before `statements` are prepared (`SET search_path …`).
    fn session_setup(&self) -> Vec<String>;

    /// Prepared once per session, addressed by index ([`crate::session::Statement`]).
    /// Empty: the workload needs no server and gets detached sessions.
    fn statements(&self) -> &[&'static str];

    /// Terminal `index` of `terminals`, with its own random stream.
    fn terminal(&self, index: u32, terminals: u32, seed: Seed) -> Self::Terminal;

    /// The initial data; `None` when the workload has no tables.
    fn data_set(&self) -> Option<&dyn DataSet>;

    /// What the inputs of the measurement really were, each held against its tolerance.
    fn run_sheet(&self, tally: &<Self::Terminal as Terminal>::Tally) -> Vec<SheetLine>;
}

/// One emulated user: its own random stream and card deck, no I/O except through the session.
pub trait Terminal {
    /// Input of one transaction; drawn before the clock starts, kept for retries. Plain data of
    /// fixed size: drawing must not allocate.
    type Input: 'static;

    /// What an attempt found out that `tally` needs; reset to its default before each attempt.
    type Output: Default;

    /// Counts over completed transactions, for the run sheet; one per worker, merged at the end.
    type Tally: Default + Send + 'static;

    /// Chooses the next profile and its input. Pure: same seed, same sequence.
    fn draw(&mut self) -> (ProfileId, Self::Input);

    /// Think time after a transaction of `profile` whose profile mean is `mean`
    /// (negative exponential, TPC-C 5.2.5.4).
    fn think_time(&mut self, mean: Duration) -> Duration;

    /// Runs one attempt. A retry calls it again with the same input.
    ///
    /// It is an associated function because a deferred transaction runs on after its terminal
    /// has moved on.
    fn execute(
        input: &Self::Input,
        session: &mut Session,
        output: &mut Self::Output,
    ) -> impl Future<Output = Result<Outcome, SessionError>>;

    /// Adds a completed transaction to `tally`.
    fn tally(input: &Self::Input, output: &Self::Output, outcome: Outcome, tally: &mut Self::Tally);

    /// Adds the counts of another worker.
    fn merge(tally: &mut Self::Tally, other: Self::Tally);
}

/// The initial data of a workload.
pub trait DataSet: Send + Sync {
    /// In load order; `schema` is where they live.
    fn tables(&self) -> &[Table];

    /// The schema that holds the tables.
    fn schema(&self) -> &str;

    /// Writes one batch of rows of `tables()[table]`. Pure: (table, batch, seed) decide the bytes,
    /// so batches load in any order, on any number of connections, and reload identically.
    fn fill(&self, table: usize, batch: u64, out: &mut CopyBuffer);

    /// Primary keys and indexes, one statement each, by table index: independent of each other,
    /// run in parallel after the rows are in.
    fn indexes(&self) -> Vec<Ddl>;

    /// Foreign keys, run after all `indexes`; empty when switched off.
    fn foreign_keys(&self) -> Vec<Ddl>;

    /// What must agree between a load and a run: warehouses, seed, constants … (key → value).
    /// Stored in the marker table.
    fn parameters(&self) -> BTreeMap<String, String>;

    /// Conditions that hold whenever no transaction is in progress.
    fn invariants(&self) -> &[Invariant];

    /// Counters kept in the data itself, to reconcile the driver's counts with.
    fn counters(&self) -> &[DataCounter] {
        &[]
    }

    /// Expected size on disk, tables and indexes, for the space check before a load.
    fn bytes_estimate(&self) -> u64;
}

/// A number in the data that grows by one for each commit of a profile.
#[derive(Clone, Debug)]
pub struct DataCounter {
    pub name: &'static str,
    /// Returns one row with one whole number.
    pub sql: &'static str,
    /// The profile's name.
    pub profile: &'static str,
}

/// A statement that belongs to a table; `name` identifies it in progress and in messages.
#[derive(Clone, Debug)]
pub struct Ddl {
    /// Index into [`DataSet::tables`].
    pub table: usize,
    pub name: String,
    pub sql: String,
}

/// A table whose initial rows come in independent batches.
#[derive(Clone, Debug)]
pub struct Table {
    pub name: &'static str,
    /// `CREATE TABLE` without the schema; run with the schema first in `search_path`.
    pub ddl: String,
    /// Column names in the order of `fill`; empty for tables that start empty.
    pub columns: &'static [&'static str],
    pub batches: u64,
    /// Expected rows of one batch (for the progress bar; exact where the standard fixes it).
    pub rows_per_batch: u64,
}

/// A condition over the data.
#[derive(Clone, Debug)]
pub struct Invariant {
    /// Short and stable, e.g. `w_ytd_equals_sum_of_d_ytd`.
    pub name: &'static str,
    /// The clause it comes from, e.g. "TPC-C 3.3.2.1".
    pub source: &'static str,
    /// What it says, in words.
    pub summary: &'static str,
    /// Returns one row for each violation; an empty result is success.
    pub violations_sql: &'static str,
}
