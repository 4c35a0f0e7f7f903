//! The server under test: fetched, found or given; from plan to running and back.
//!
//! helper: archive.rs (Maven Central, cache), builds.rs (what a bin directory holds, finding one),
//! cluster.rs (initdb, start, stop, recover), os_user.rs, settings.rs, lease.rs …

use crate::problem::Problem;
use crate::record::Setting;
use crate::session::ConnectOptions;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Which server; raw from the command line.
#[derive(Clone, Debug, Default)]
pub struct TargetRequest {
    /// `--target CONNINFO|env`
    pub target: Option<String>,
    /// `--pg VERSION|found`
    pub pg: Option<String>,
    /// `--pg-bindir DIR`
    pub pg_bindir: Option<PathBuf>,
    /// `--cluster NAME` (default: by build, e.g. `pg18`)
    pub cluster: Option<String>,
    /// `--set NAME=VALUE`
    pub settings: BTreeMap<String, String>,
    /// `--keep`: leave the server running.
    pub keep: bool,
}

/// A server that answers, and what has to happen to it afterwards (in `Drop` at the latest).
pub struct Target {
    pub connect: ConnectOptions,
    /// `None` for a server that is not ours.
    pub cluster: Option<String>,
    /// The server's data directory and log, when managed.
    pub data_dir: Option<PathBuf>,
    pub log_file: Option<PathBuf>,
    /// Process id of the postmaster, when managed.
    pub postmaster_pid: Option<i32>,
}

/// For `server status --format json`; names as in the contract.
#[derive(Clone, Debug, serde::Serialize)]
pub struct ClusterStatus {
    pub name: String,
    pub version: String,
    /// running | stopped | crashed | broken
    pub state: String,
    pub conninfo: String,
    pub data_dir: String,
    pub port: u16,
    pub pid: Option<i32>,
}

/// Told of long steps: fetching, initdb, starting.
pub trait Progress {
    fn step(&mut self, what: &str);
    /// Bytes of a download.
    fn bytes(&mut self, done: u64, total: Option<u64>);
}

/// `PGDYNO_HOME`, else `/var/lib/pgdyno` for root, else XDG data home.
pub fn home() -> Result<PathBuf, Problem> {
    todo!()
}

/// Makes the server ready: fetched, created, started with the settings, verified in force.
pub fn acquire(request: &TargetRequest, progress: &mut dyn Progress) -> Result<Target, Problem> {
    let _ = (request, progress);
    todo!()
}

impl Target {
    /// Stops the server unless it was asked to be kept or ran before; `Drop` does the same,
    /// ignoring errors.
    pub fn release(self) -> Result<(), Problem> {
        todo!()
    }
}

/// Reads `pg_settings`: everything not at its built-in default, plus `also`.
pub fn read_settings(
    session: &mut crate::session::Session,
    also: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, Setting>, Problem> {
    let _ = (session, also);
    todo!()
}
