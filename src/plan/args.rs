//! Arguments as typed; no defaults that need thought, no checks beyond the syntax.

use crate::units::parse_duration;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

/// Which server.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Server")]
pub struct TargetArgs {
    /// An existing server: libpq keyword string or URI, or `env` for libpq's variables
    #[arg(long, value_name = "CONNINFO")]
    pub target: Option<String>,
    /// Version of the managed server: a major (18, 9.6), a full version (14.13), or `found` for
    /// one installed on this machine [default: newest stable]
    #[arg(long, value_name = "VERSION")]
    pub pg: Option<String>,
    /// Use the PostgreSQL binaries in this directory instead of fetching
    #[arg(long, value_name = "DIR")]
    pub pg_bindir: Option<PathBuf>,
    /// Name of the managed cluster [default: by version, for example pg18]
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
    /// A PostgreSQL setting of the managed server; repeatable
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub set: Vec<String>,
    /// Leave the managed server running afterwards
    #[arg(long)]
    pub keep: bool,
}

/// Which workload, and the data it stands on.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Workload")]
pub struct WorkloadArgs {
    /// The workload: tpcc or synthetic
    pub workload: String,
    /// Rules that the workload follows
    #[arg(long, value_enum, default_value_t = Dialect::Spec)]
    pub dialect: Dialect,
    /// TPC-C warehouses [default: 10]
    #[arg(short, long, value_name = "N", allow_negative_numbers = true)]
    pub warehouses: Option<i64>,
    /// Schema of the tables [default: the workload's name]
    #[arg(long, value_name = "NAME")]
    pub schema: Option<String>,
    /// Leave out the ten foreign keys
    #[arg(long)]
    pub no_foreign_keys: bool,
    /// Every random stream derives from it
    #[arg(long, value_name = "N", default_value_t = 42)]
    pub seed: u64,
    /// Seed of the initial data [default: --seed]
    #[arg(long, value_name = "N")]
    pub data_seed: Option<u64>,
    /// A parameter of the workload; repeatable
    #[arg(short = 'D', long = "define", value_name = "NAME=VALUE")]
    pub define: Vec<String>,
    /// Database connections [default: 2 x CPUs]
    #[arg(short, long, value_name = "N", allow_negative_numbers = true)]
    pub connections: Option<i64>,
}

/// How results are written to stdout.
#[derive(Args, Clone, Copy, Debug)]
pub struct OutputArgs {
    /// Form of the result on stdout; progress is always on stderr
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// How the measurement is made.
#[derive(Args, Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag")]
#[command(next_help_heading = "Measurement")]
pub struct MeasureArgs {
    /// Length of the measurement (90s, 10m, 2h)
    #[arg(short, long, value_name = "DUR", default_value = "60s", value_parser = parse_duration, allow_hyphen_values = true)]
    pub time: Duration,
    /// End after this many transactions instead
    #[arg(
        long,
        value_name = "N",
        conflicts_with = "time",
        allow_negative_numbers = true
    )]
    pub transactions: Option<i64>,
    /// Ramp-up, excluded from every statistic
    #[arg(long, value_name = "DUR", default_value = "10s", value_parser = parse_duration, allow_hyphen_values = true)]
    pub ramp: Duration,
    /// Length of a window and of the live line's interval
    #[arg(long, value_name = "DUR", default_value = "1s", value_parser = parse_duration, allow_hyphen_values = true)]
    pub interval: Duration,
    /// Emulated users [default: = connections; with --keying-think: 10 a warehouse]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub terminals: Option<i64>,
    /// Keying and think times of the specification
    #[arg(long)]
    pub keying_think: bool,
    /// Threads of the driver, as pgbench's -j [default: CPUs, at most one a connection]
    #[arg(short = 'j', long, value_name = "N", allow_negative_numbers = true)]
    pub workers: Option<i64>,
    /// How a transaction talks to the server
    #[arg(long, value_enum, default_value_t = Mode::Statements)]
    pub mode: Mode,
    /// How statements are sent, as pgbench's -M
    #[arg(long, value_enum, default_value_t = Protocol::Prepared)]
    pub protocol: Protocol,
    /// Isolation level [default: rc for tpcc]
    #[arg(long, value_enum)]
    pub isolation: Option<IsolationArg>,
    /// Profile weights, drawn independently, instead of the deck of 23 cards
    #[arg(long, value_name = "NAME=WEIGHT,...")]
    pub mix: Option<String>,
    /// Attempts of a transaction that fails with 40001 or 40P01, the first included
    #[arg(
        long,
        value_name = "N",
        default_value_t = 100,
        allow_negative_numbers = true
    )]
    pub max_tries: i64,
    /// Do not check the invariants after loading and after the run
    #[arg(long)]
    pub no_check: bool,
    /// Drop a data set that does not fit the plan and load it anew
    #[arg(long)]
    pub reload: bool,
    /// Load although the database holds things that pgdyno did not create
    #[arg(long)]
    pub beside_others: bool,
    /// A label of the record; repeatable
    #[arg(long, value_name = "K=V")]
    pub label: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Dialect {
    /// The TPC-C specification, revision 5.11
    Spec,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// One round trip a statement; BEGIN travels with the first
    Statements,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Protocol {
    /// Parsed once a session, then bound and executed, all values binary
    Prepared,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Text,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum IsolationArg {
    /// READ COMMITTED
    Rc,
    /// REPEATABLE READ
    Rr,
    /// SERIALIZABLE
    Serializable,
}
