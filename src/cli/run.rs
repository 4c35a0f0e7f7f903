//! `pgdyno run`: target ready → data there → ramp-up → measurement → checks → record → summary.

use super::watch::Live;
use super::{RunArgs, note, ready, say, say_json};
use crate::analysis::{durability, verdicts};
use crate::catalog::{self, AnyWorkload, WorkloadEntry};
use crate::driver::{DrivePlan, Driven};
use crate::observe::{self, Probe};
use crate::plan;
use crate::plan::args::Format;
use crate::problem::Problem;
use crate::record::secrets::without_secrets;
use crate::record::store::{self, Store};
use crate::record::{
    Durability, DurabilityClass, Ended, InvariantResult, LoadReport, ProfileInfo, RunPlan,
    RunRecord, SCHEMA_VERSION, ServerCounters, Subject, VerdictStatus,
};
use crate::report::{json, text};
use crate::rng::Seed;
use crate::session::Session;
use crate::target::{self, Target};
use crate::{clock, host};
use std::path::PathBuf;
use std::time::Duration;

/// Transactions in flight, and deferred ones, may take this long after the measurement.
const DRAIN: Duration = Duration::from_secs(30);
/// A server that cannot be reached for this long is lost.
const RECONNECT_FOR: Duration = Duration::from_secs(15);
/// Of the server's log, this much of the run is kept.
const LOG_MAX: u64 = 16 << 20;

/// The whole command.
pub(super) fn run(args: &RunArgs) -> Result<u8, Problem> {
    let settings = ready::settings(&args.target)?;
    let mut plan = plan::resolve_run(&args.workload, &args.measure, settings)?;
    let entry = catalog::find(&plan.workload)?;
    let workload = (entry.from_plan)(&plan)?;
    let store = Store::open(&runs_dir(args.runs_dir.as_ref())?)?;
    let target = if workload.needs_server() {
        Some(ready::acquire(&args.target)?)
    } else {
        refuse_target(args)?;
        None
    };
    plan.target = target
        .as_ref()
        .map_or_else(|| "none".to_owned(), Target::describe);
    let log_begin = target.as_ref().and_then(log_length).unwrap_or(0);
    let run = Run {
        args,
        plan,
        entry,
        workload: workload.as_ref(),
        target: target.as_ref(),
    };
    let mut record = run.measure()?;
    record.verdicts = verdicts::judge(&record);
    let log = target
        .as_ref()
        .and_then(|t| t.log_file.as_ref())
        .and_then(|path| store::log_since(path, log_begin, LOG_MAX).ok());
    // What was measured is told even where it can no longer be stored.
    let stored = store.write(&record, log.as_deref());
    let directory = stored
        .clone()
        .unwrap_or_else(|_| PathBuf::from("(not stored)"));
    let released = target.map_or(Ok(()), Target::release);
    match args.output.format {
        Format::Text => say(&text::summary(&record, &directory, args.verbose)),
        Format::Json => say_json(&json::summary(&record, &directory))?,
    }
    stored?;
    released?;
    Ok(exit_code(&record))
}

fn exit_code(record: &RunRecord) -> u8 {
    if record.drive.ended == Ended::Interrupted {
        130
    } else if verdicts::overall(&record.verdicts) == VerdictStatus::Invalid {
        4
    } else {
        0
    }
}

/// `--runs-dir`, else below the home of pgdyno.
pub(super) fn runs_dir(given: Option<&PathBuf>) -> Result<PathBuf, Problem> {
    match given {
        Some(directory) => Ok(directory.clone()),
        None => Ok(target::home()?.join("runs")),
    }
}

fn refuse_target(args: &RunArgs) -> Result<(), Problem> {
    let target = &args.target;
    let given = [
        ("--target", target.target.is_some()),
        ("--pg", target.pg.is_some()),
        ("--pg-bindir", target.pg_bindir.is_some()),
        ("--cluster", target.cluster.is_some()),
        ("--set", !target.set.is_empty()),
    ];
    match given.iter().find(|(_, given)| *given) {
        Some((flag, _)) => Err(Problem::usage(format!(
            "the workload \"{}\" needs no server; {flag} has no meaning for it",
            args.workload.workload
        ))
        .hint(format!("leave {flag} out"))),
        None => Ok(()),
    }
}

fn log_length(target: &Target) -> Option<u64> {
    std::fs::metadata(target.log_file.as_ref()?)
        .ok()
        .map(|m| m.len())
}

/// One run: what it needs, read-only.
struct Run<'a> {
    args: &'a RunArgs,
    plan: RunPlan,
    entry: &'static WorkloadEntry,
    workload: &'a dyn AnyWorkload,
    target: Option<&'a Target>,
}

/// What is known of the server beside the driver's measurements.
#[derive(Default)]
struct ServerSide {
    load: Option<LoadReport>,
    subject: Subject,
    durability: Durability,
    counters: ServerCounters,
    invariants: Vec<InvariantResult>,
}

impl Run<'_> {
    fn measure(self) -> Result<RunRecord, Problem> {
        let started_at = clock::wall();
        let (driven, server) = match self.target {
            Some(target) => self.on_server(target)?,
            None => (self.drive(None)?, self.without_server()),
        };
        if driven.record.ended == Ended::Interrupted && driven.record.measurement_s <= 0.0 {
            return Err(Problem::interrupted(
                "interrupted before the measurement began",
            ));
        }
        let mut plan = self.plan.clone();
        for (name, value) in &mut plan.settings {
            *value = without_secrets(name, value);
        }
        Ok(RunRecord {
            schema_version: SCHEMA_VERSION,
            id: store::new_id(&self.plan.workload, started_at),
            started_at: started_at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            profiles: self.profiles(),
            plan,
            subject: server.subject,
            load: server.load,
            drive: driven.record,
            sheet: driven.sheet,
            server_counters: server.counters,
            invariants: server.invariants,
            durability: server.durability,
            verdicts: Vec::new(),
        })
    }

    fn profiles(&self) -> Vec<ProfileInfo> {
        self.workload
            .profiles()
            .iter()
            .map(|p| ProfileInfo {
                name: p.name.to_owned(),
                keying_s: p.keying_time.as_secs_f64(),
                think_s: p.think_time_mean.as_secs_f64(),
                response_limit_s: p.response_time_limit.map(|l| l.as_secs_f64()),
                deferred: p.deferred,
            })
            .collect()
    }

    fn on_server(&self, target: &Target) -> Result<(Driven, ServerSide), Problem> {
        let data = self.workload.data_set();
        let mut side = ServerSide::default();
        if let Some(data) = data {
            let mut options = ready::load_options(self.entry, &self.plan, Some(target));
            options.beside_others = self.args.measure.beside_others;
            let wanted = ready::Wanted {
                options,
                reload: self.args.measure.reload,
            };
            side.load = ready::ensure_loaded(&target.connect, data, &wanted)?;
            if side.load.is_some() && !self.args.measure.no_check {
                let violated = ready::violations(&ready::check(&target.connect, data)?);
                if !violated.is_empty() {
                    return Err(Problem::defect(format!(
                        "the data set just loaded is inconsistent: {}",
                        violated.join("; ")
                    )));
                }
            }
        }
        let counters = data.map_or_else(Vec::new, |d| {
            d.counters()
                .iter()
                .map(|c| (c.name.to_owned(), c.sql.to_owned(), c.profile.to_owned()))
                .collect()
        });
        let mut probe = Probe::open(&target.connect, &self.plan.schema, counters)?;
        self.describe(target, &mut side)?;
        let driven = self.drive(Some(&mut probe))?;
        let commits = driven.record.overall.iter().map(|c| c.committed).sum();
        side.counters = probe.finish(commits);
        if let Some(data) = data
            && !self.args.measure.no_check
            && driven.record.ended == Ended::Planned
        {
            match ready::check(&target.connect, data) {
                Ok(results) => side.invariants = results,
                // What was measured must not be lost; the verdict says "not checked".
                Err(problem) => note(&format!("the invariants were not checked: {problem}")),
            }
        }
        Ok((driven, side))
    }

    /// Reads settings, transport and durability while the server is as it will be measured.
    fn describe(&self, target: &Target, side: &mut ServerSide) -> Result<(), Problem> {
        let mut session = Session::connect(&target.connect)?;
        let settings = target::read_settings(&mut session, &self.plan.settings)?;
        let unlogged = observe::unlogged_tables(&mut session, &self.plan.schema)?;
        side.durability = durability::classify(&settings, &unlogged);
        let local = target.connect.is_local();
        let transport = match session.tls() {
            Some(tls) => format!("TCP, {tls}"),
            None if session.host().starts_with('/') => "Unix socket".to_owned(),
            None => "TCP".to_owned(),
        };
        side.subject = Subject {
            postgres_version: session
                .parameter("server_version")
                .unwrap_or_default()
                .to_owned(),
            postgres_version_num: session.version(),
            settings,
            server_local: local,
            transport,
            ..self.client(target.data_dir.as_deref())
        };
        Ok(())
    }

    fn client(&self, data_dir: Option<&std::path::Path>) -> Subject {
        Subject {
            host: host::facts(data_dir),
            client_version: env!("CARGO_PKG_VERSION").to_owned(),
            data_version: self.entry.data_version,
            ..Subject::default()
        }
    }

    fn without_server(&self) -> ServerSide {
        ServerSide {
            subject: self.client(None),
            durability: Durability {
                class: DurabilityClass::Unknown,
                reasons: vec!["no server took part".to_owned()],
            },
            ..ServerSide::default()
        }
    }

    fn drive(&self, probe: Option<&mut Probe>) -> Result<Driven, Problem> {
        let plan = &self.plan;
        let new_order = (plan.workload == "tpcc")
            .then(|| {
                self.workload
                    .profiles()
                    .iter()
                    .position(|p| p.name == "new_order")
            })
            .flatten();
        let drive = DrivePlan {
            connect: self.target.map(|t| t.connect.clone()),
            connections: plan.connections,
            terminals: plan.terminals,
            workers: plan.workers,
            keying_think: plan.keying_think,
            ramp: Duration::from_secs_f64(plan.ramp_s),
            measure: Duration::from_secs_f64(plan.measure_s),
            transactions: plan.transactions,
            window: Duration::from_secs_f64(plan.window_s),
            tries_max: plan.tries_max,
            seed: Seed(plan.seed),
            drain: DRAIN,
            reconnect_for: RECONNECT_FOR,
            stop: std::sync::Arc::default(),
        };
        let mut live = Live::new(probe, new_order, plan.ramp_s, plan.measure_s);
        self.workload.drive(&drive, &mut live)
    }
}
