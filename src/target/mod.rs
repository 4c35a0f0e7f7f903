//! The server under test: fetched, found or given; from plan to running and back.
//!
//! From the outside in: `manage` is what `pgdyno server` does; `managed` brings one cluster up with
//! its settings and down again; `cluster` is its directory and `server` its process, `process` what
//! `/proc` tells about it; `settings` are checked, written and verified; `builds` are binaries,
//! fetched by `archive` through `fetch`. `home` says where all this is, `os_user` as whom servers
//! run, `lease` that only one of us does it at a time.

mod archive;
mod builds;
mod cluster;
mod fetch;
mod files;
mod home;
mod lease;
mod manage;
mod managed;
mod os_user;
mod process;
mod server;
mod settings;
mod version;

pub use home::{Places, home};
pub use manage::{down, psql_command, remove, status, up, versions};
pub use settings::read_settings;

use crate::problem::Problem;
use crate::session::ConnectOptions;
use managed::{Managed, Purpose};
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
    /// Where the server's programs are, when managed.
    pub bindir: Option<PathBuf>,
    managed: Option<Managed>,
}

/// For `server status --format json`; names as in the contract.
#[derive(Clone, Debug, serde::Serialize)]
pub struct ClusterStatus {
    pub name: String,
    pub version: String,
    /// running | stopped | crashed | broken
    pub state: String,
    /// What `psql` takes.
    pub conninfo: String,
    pub data_dir: String,
    pub port: u16,
    pub pid: Option<i32>,
}

/// For `server versions`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct VersionInfo {
    pub version: String,
    /// Fetched already: usable without a network.
    pub cached: bool,
}

/// Told of long steps: fetching, initdb, starting.
pub trait Progress {
    fn step(&mut self, what: &str);
    /// Bytes of a download.
    fn bytes(&mut self, done: u64, total: Option<u64>);
}

/// Makes the server ready: fetched, created, started with the settings, verified in force. A given
/// server is only resolved, not connected to.
///
/// Call it from a thread that lives as long as the target: the kernel stops a server that was
/// started for a run when the *thread* that started it ends.
pub fn acquire(request: &TargetRequest, progress: &mut dyn Progress) -> Result<Target, Problem> {
    match &request.target {
        Some(target) => given(target, request),
        None => acquire_in(&Places::standard()?, request, progress),
    }
}

/// [`acquire`] of a managed server in other places than the standard ones.
pub fn acquire_in(
    places: &Places,
    request: &TargetRequest,
    progress: &mut dyn Progress,
) -> Result<Target, Problem> {
    let managed = Managed::bring_up(places, request, Purpose::Run, progress)?;
    let directory = &managed.cluster.directory;
    Ok(Target {
        connect: directory.connect(managed.port(), cluster::DATABASE),
        cluster: Some(directory.name.clone()),
        data_dir: Some(directory.data()),
        log_file: Some(directory.log()),
        postmaster_pid: managed.pid(),
        bindir: Some(managed.recipe.build.bindir.clone()),
        managed: Some(managed),
    })
}

/// A server that somebody else manages.
fn given(target: &str, request: &TargetRequest) -> Result<Target, Problem> {
    let excluded = [
        ("--pg", request.pg.is_some()),
        ("--pg-bindir", request.pg_bindir.is_some()),
        ("--cluster", request.cluster.is_some()),
        ("--set", !request.settings.is_empty()),
        ("--keep", request.keep),
    ];
    if let Some((flag, _)) = excluded.iter().find(|(_, given)| *given) {
        return Err(Problem::usage(format!(
            "{flag} is for managed servers; --target names one that is not"
        ))
        .hint("give the one or the other; settings of a given server are its owner's to change"));
    }
    Ok(Target {
        connect: ConnectOptions::parse(target)?,
        cluster: None,
        data_dir: None,
        log_file: None,
        postmaster_pid: None,
        bindir: None,
        managed: None,
    })
}

impl Target {
    /// Which server this is, for people; without a password.
    pub fn describe(&self) -> String {
        match &self.managed {
            Some(managed) => managed.describe(),
            None => self.connect.describe(),
        }
    }

    /// Stops the server unless it was asked to be kept or ran before; `Drop` does the same,
    /// ignoring errors.
    pub fn release(mut self) -> Result<(), Problem> {
        match self.managed.take() {
            Some(mut managed) => managed.release(),
            None => Ok(()),
        }
    }
}
