//! The initial data of a workload in a database: loaded once, marked, checked, dropped.
//!
//! | file | what |
//! |---|---|
//! | `marker` | what was loaded, how far, by whom: tables beside the data |
//! | `occupied` | may the data set be put here? |
//! | `chunk`, `rows`, `pool` | rows: cut into transactions, made and sent side by side |
//! | `steps` | indexes, foreign keys, VACUUM |
//! | `load` | all of it in order, resumable |
//! | `crew` | several sessions at work, stopped together |
//! | `csv` | the same rows as files |
//! | `check` | the invariants |
//! | `drop` | removes what a load made |

mod check;
mod chunk;
mod crew;
mod csv;
mod drop;
mod load;
mod marker;
mod memory;
mod occupied;
mod pool;
mod rows;
mod sql;
mod steps;

use crate::problem::Problem;
use crate::record::{InvariantResult, LoadReport};
use crate::session::{ConnectOptions, Session};
use crate::workload::DataSet;
use std::collections::{BTreeMap, BTreeSet};
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

/// Reads the marker in `schema`. A marker that a newer pgdyno wrote is a usage problem.
pub fn state(session: &mut Session, schema: &str) -> Result<State, Problem> {
    let found = marker::Marker::read(session, schema)?;
    Ok(found.map_or(State::Absent, |marker| marker.state()))
}

/// Fails with a usage problem and a hint unless the data found is what `data` would have loaded:
/// same workload, data version, seed and parameters. `found` is what [`State`] holds.
pub fn verify_parameters(
    found: &BTreeMap<String, String>,
    data: &dyn DataSet,
    options: &LoadOptions,
) -> Result<(), Problem> {
    let wanted = marker::expected(data, options);
    let keys: BTreeSet<&String> = found.keys().chain(wanted.keys()).collect();
    let differing: Vec<&String> = keys
        .into_iter()
        .filter(|key| found.get(*key) != wanted.get(*key))
        .collect();
    if differing.is_empty() {
        return Ok(());
    }
    let list = |values: &BTreeMap<String, String>| {
        let pairs: Vec<String> = differing
            .iter()
            .map(|key| {
                format!(
                    "{key}={}",
                    values.get(*key).map_or("(none)", String::as_str)
                )
            })
            .collect();
        pairs.join(", ")
    };
    let anew = format!(
        "load it anew with `pgdyno load {} … --drop`",
        options.workload
    );
    let ways: Option<Vec<String>> = differing.iter().map(|key| way(key, found)).collect();
    Err(Problem::usage(format!(
        "the data set was loaded with {}, this plan wants {}",
        list(found),
        list(&wanted)
    ))
    .hint(match ways {
        Some(mut ways) => {
            ways.retain(|way| !way.is_empty());
            format!("{anew}, or {}", ways.join(" and "))
        }
        None => anew,
    }))
}

/// What makes a plan match the data found, for parameters that have a flag.
fn way(key: &str, found: &BTreeMap<String, String>) -> Option<String> {
    let value = found.get(key)?;
    match (key, value.as_str()) {
        ("warehouses" | "scale" | "sets", _) => Some(format!("say `--{key} {value}`")),
        ("seed", _) => Some(format!("say `--data-seed {value}`")),
        ("foreign_keys", "false") => Some("say `--no-foreign-keys`".to_owned()),
        ("foreign_keys", _) => Some("leave out `--no-foreign-keys`".to_owned()),
        // It follows from the seed.
        ("c_load", _) => Some(String::new()),
        _ => None,
    }
}

/// Loads the data set: rows by parallel COPY, then indexes, foreign keys, VACUUM and ANALYZE.
///
/// Whatever happens on the way, the data is either untouched or can be completed with
/// `options.resume`; with it, a data set that is complete already is no error.
/// `LoadReport::mb_per_s` and `rows_per_s` are what this call sent, over its whole wall time.
pub fn load(
    connect: &ConnectOptions,
    data: &dyn DataSet,
    options: &LoadOptions,
    progress: &mut dyn Progress,
) -> Result<LoadReport, Problem> {
    load::Load {
        connect,
        data,
        options,
        progress,
    }
    .run()
}

/// Writes the data as CSV files, one a table, into a new or empty directory, and last `load.sql`,
/// which loads them with psql into a data set that pgdyno recognises.
///
/// A directory without `load.sql` is unfinished. After a failure nothing is left in it.
pub fn write_csv(
    directory: &Path,
    data: &dyn DataSet,
    options: &LoadOptions,
    progress: &mut dyn Progress,
) -> Result<LoadReport, Problem> {
    csv::write(directory, data, options, progress)
}

/// Runs the invariants, on several connections of one snapshot; results in the order of
/// `data.invariants()`.
pub fn check(
    connect: &ConnectOptions,
    data: &dyn DataSet,
    connections: u32,
    progress: &mut dyn Progress,
) -> Result<Vec<InvariantResult>, Problem> {
    check::run(connect, data, connections, progress)
}

/// Removes exactly what `load` made; returns the names removed. When something else depends on
/// it, or lies in a schema that the load created, nothing is removed.
pub fn drop(session: &mut Session, schema: &str) -> Result<Vec<String>, Problem> {
    marker::lock(session, schema)?;
    let result = drop::remove(session, schema);
    // A session that cannot unlock is gone, and its lock with it.
    let _ = marker::unlock(session, schema);
    result
}
