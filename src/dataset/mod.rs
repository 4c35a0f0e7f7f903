//! The initial data of a workload in a database: loaded once, marked, checked, dropped.
//!
//! helper: marker.rs, load.rs, csv.rs, check.rs, drop.rs, occupied.rs

use crate::problem::Problem;
use crate::record::{InvariantResult, LoadReport};
use crate::session::{ConnectOptions, Session};
use crate::workload::DataSet;
use std::collections::BTreeMap;
use std::path::Path;

/// What the marker table says of the data found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing of ours is there.
    Absent,
    /// A load was begun and not finished; parameters as stored.
    Unfinished(BTreeMap<String, String>),
    /// Complete; parameters as stored.
    Complete(BTreeMap<String, String>),
}

/// How to load.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    pub workload: &'static str,
    pub data_version: u32,
    pub seed: u64,
    pub connections: u32,
    /// Continue a load that was begun with the same parameters.
    pub resume: bool,
    /// Drop what an earlier load made, first.
    pub drop_first: bool,
    /// Load although the database holds things that pgdyno did not create.
    pub beside_others: bool,
    /// Bytes free on the server's disk, when it is known.
    pub space_free: Option<u64>,
}

/// Told of progress from the loading thread; prints nothing itself.
pub trait Progress: Send {
    /// A step begins: `name` for people, `total` rows (or steps) to do.
    fn begin(&mut self, name: &str, total: u64);
    /// `done` of the total, and bytes sent so far in this step.
    fn advance(&mut self, done: u64, bytes: u64);
    fn end(&mut self);
}

/// Reads the marker.
pub fn state(session: &mut Session, schema: &str) -> Result<State, Problem> {
    let _ = (session, schema);
    todo!()
}

/// Fails with a usage problem and a hint unless the data found is what `data` would have loaded.
pub fn verify_parameters(
    found: &BTreeMap<String, String>,
    data: &dyn DataSet,
    options: &LoadOptions,
) -> Result<(), Problem> {
    let _ = (found, data, options);
    todo!()
}

/// Loads.
pub fn load(
    connect: &ConnectOptions,
    data: &dyn DataSet,
    options: &LoadOptions,
    progress: &mut dyn Progress,
) -> Result<LoadReport, Problem> {
    let _ = (connect, data, options, progress);
    todo!()
}

/// Writes the data as CSV files, one a table, into a new or empty directory.
pub fn write_csv(
    directory: &Path,
    data: &dyn DataSet,
    options: &LoadOptions,
    progress: &mut dyn Progress,
) -> Result<LoadReport, Problem> {
    let _ = (directory, data, options, progress);
    todo!()
}

/// Runs the invariants, on several connections of one snapshot.
pub fn check(
    connect: &ConnectOptions,
    data: &dyn DataSet,
    connections: u32,
    progress: &mut dyn Progress,
) -> Result<Vec<InvariantResult>, Problem> {
    let _ = (connect, data, connections, progress);
    todo!()
}

/// Removes exactly what `load` made; returns the names removed.
pub fn drop(session: &mut Session, schema: &str) -> Result<Vec<String>, Problem> {
    let _ = (session, schema);
    todo!()
}
