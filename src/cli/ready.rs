//! What several commands begin with: the server ready, the data set there and as planned.

use super::progress::Steps;
use crate::catalog::{AnyWorkload, WorkloadEntry};
use crate::dataset::{self, LoadOptions, State};
use crate::host;
use crate::plan;
use crate::plan::args::TargetArgs;
use crate::problem::Problem;
use crate::record::{InvariantResult, LoadReport, RunPlan};
use crate::session::{ConnectOptions, Session};
use crate::target::{self, Target, TargetRequest};
use crate::workload::DataSet;
use std::collections::BTreeMap;

/// The request for a target as typed.
pub(super) fn request(args: &TargetArgs) -> Result<TargetRequest, Problem> {
    Ok(TargetRequest {
        target: args.target.clone(),
        pg: args.pg.clone(),
        pg_bindir: args.pg_bindir.clone(),
        cluster: args.cluster.clone(),
        settings: settings(args)?,
        keep: args.keep,
    })
}

/// `--set` as a map.
pub(super) fn settings(args: &TargetArgs) -> Result<BTreeMap<String, String>, Problem> {
    plan::pairs("--set", &args.set)
}

/// Makes the server ready, showing the steps.
pub(super) fn acquire(args: &TargetArgs) -> Result<Target, Problem> {
    let mut steps = Steps::new();
    target::acquire(&request(args)?, &mut steps)
}

/// The data set of a workload, or the reason why a command cannot work on it.
pub(super) fn data<'a>(
    workload: &'a dyn AnyWorkload,
    plan: &RunPlan,
) -> Result<&'a dyn DataSet, Problem> {
    workload.data_set().ok_or_else(|| {
        Problem::usage(format!(
            "the workload \"{}\" has no data set",
            plan.workload
        ))
        .hint("run it without loading anything")
    })
}

/// How to load what `plan` wants.
pub(super) fn load_options(
    entry: &WorkloadEntry,
    plan: &RunPlan,
    target: Option<&Target>,
) -> LoadOptions {
    LoadOptions {
        workload: entry.name,
        data_version: entry.data_version,
        seed: plan.data_seed,
        connections: plan.connections,
        resume: false,
        drop_first: false,
        beside_others: false,
        space_free: target.and_then(space_free),
    }
}

/// Free bytes where the server keeps its data, when that is on this host and can be seen.
fn space_free(target: &Target) -> Option<u64> {
    if let Some(directory) = &target.data_dir {
        return host::space_free(directory);
    }
    if !target.connect.is_local() {
        return None;
    }
    // Needs a superuser or pg_read_all_settings; without it the space is not known.
    let mut session = Session::connect(&target.connect).ok()?;
    let directory = session.query_value("SHOW data_directory").ok()??;
    host::space_free(std::path::Path::new(&directory))
}

/// What to do with a data set that is absent, unfinished or another.
pub(super) struct Wanted {
    pub(super) options: LoadOptions,
    /// Drop one that does not fit and load anew.
    pub(super) reload: bool,
}

/// Loads what is absent, continues what was cut short, refuses what does not fit; returns the
/// report when rows were loaded.
pub(super) fn ensure_loaded(
    connect: &ConnectOptions,
    data: &dyn DataSet,
    wanted: &Wanted,
) -> Result<Option<LoadReport>, Problem> {
    let mut session = Session::connect(connect)?;
    let mut options = wanted.options.clone();
    match dataset::state(&mut session, data.schema())? {
        State::Absent => {}
        State::Complete(found) => match dataset::verify_parameters(&found, data, &options) {
            Ok(()) => return Ok(None),
            Err(_) if wanted.reload => options.drop_first = true,
            Err(problem) => return Err(reload_hint(problem)),
        },
        State::Unfinished(found) => match dataset::verify_parameters(&found, data, &options) {
            Ok(()) => options.resume = true,
            Err(_) if wanted.reload => options.drop_first = true,
            Err(problem) => return Err(reload_hint(problem)),
        },
    }
    drop(session);
    let mut steps = Steps::new();
    dataset::load(connect, data, &options, &mut steps).map(Some)
}

fn reload_hint(problem: Problem) -> Problem {
    let hint = problem.hint.clone().unwrap_or_default();
    let separator = if hint.is_empty() { "" } else { "; " };
    problem.hint(format!(
        "{hint}{separator}--reload drops it and loads what this plan wants"
    ))
}

/// Runs the invariants, showing progress.
pub(super) fn check(
    connect: &ConnectOptions,
    data: &dyn DataSet,
) -> Result<Vec<InvariantResult>, Problem> {
    let mut steps = Steps::new();
    // The checks are CPU-bound in the server: more sessions than CPUs only use more memory.
    dataset::check(connect, data, plan::cpus().min(8), &mut steps)
}

/// Names and counts of violated conditions, for a message.
pub(super) fn violations(results: &[InvariantResult]) -> Vec<String> {
    results
        .iter()
        .filter(|r| r.violations > 0)
        .map(|r| format!("{} ({}): {} rows", r.name, r.source, r.violations))
        .collect()
}
