//! The steps of a load, in order; each can be cut off and taken up again.

use super::chunk::{self, Done};
use super::crew::Crew;
use super::marker::{self, Marker};
use super::sql::{self, literal, qualified};
use super::{LoadOptions, Progress, crew, drop, occupied, rows};
use crate::clock::{Clock, Monotonic, Tick};
use crate::interrupt;
use crate::problem::{Kind, Problem};
use crate::record::{LoadReport, TableLoad};
use crate::session::{ConnectOptions, Failure, Session, SessionError};
use crate::workload::DataSet;
use std::collections::BTreeMap;

/// One load under way.
pub(super) struct Load<'a> {
    pub(super) connect: &'a ConnectOptions,
    pub(super) data: &'a dyn DataSet,
    pub(super) options: &'a LoadOptions,
    pub(super) progress: &'a mut dyn Progress,
}

/// What was there before this process sent its first row.
struct Start {
    loads: BTreeMap<String, TableLoad>,
    done: Done,
}

/// Ends of the phases.
#[derive(Default)]
struct Phases {
    begin: Tick,
    copied: Tick,
    indexed: Tick,
    finished: Tick,
}

impl Load<'_> {
    /// Does all of it.
    pub(super) fn run(mut self) -> Result<LoadReport, Problem> {
        let interrupted = self.interrupted();
        self.steps().map_err(|problem| match problem.kind {
            Kind::Interrupted => interrupted,
            _ => problem,
        })
    }

    fn steps(&mut self) -> Result<LoadReport, Problem> {
        let schema = self.data.schema().to_owned();
        let mut control = sql::connect(self.connect, &[])?;
        marker::lock(&mut control, &schema)?;
        if let Some(done) = self.make_ready(&mut control)? {
            return Ok(done);
        }
        // What dropping an old data set took is not the load's.
        let clock = Monotonic::start();
        let begin = clock.now();
        control.query(&sql::search_path(&schema))?;
        let (loads, done) = marker::progress(&mut control, self.data).map_err(damaged)?;
        let start = Start { loads, done };
        self.copy_rows(&mut control, &start)
            .map_err(|e| self.trouble(e))?;
        let copied = clock.now();
        self.build_indexes(&mut control)
            .map_err(|e| self.trouble(e))?;
        let indexed = clock.now();
        self.finish(&mut control).map_err(|e| self.trouble(e))?;
        self.complete(&mut control).map_err(|e| self.trouble(e))?;
        let finished = clock.now();
        let (loads, _) = marker::progress(&mut control, self.data)?;
        let phases = Phases {
            begin,
            copied,
            indexed,
            finished,
        };
        Ok(report(loads, &start.loads, self.options, &phases))
    }

    /// Checks what is there and creates what is missing. A report when nothing is left to do.
    fn make_ready(&mut self, control: &mut Session) -> Result<Option<LoadReport>, Problem> {
        let schema = self.data.schema();
        let marker = Marker::read(control, schema)?;
        match &marker {
            Some(_) if self.options.drop_first => {}
            Some(found) if self.options.resume => {
                super::verify_parameters(&found.parameters(), self.data, self.options)?;
                let (loads, _) = marker::progress(control, self.data).map_err(damaged)?;
                if found.complete {
                    let before = loads.clone();
                    let phases = Phases::default();
                    return Ok(Some(report(loads, &before, self.options, &phases)));
                }
                occupied::check_rights(control, schema, true)?;
                let missing = self.missing_share(&loads);
                let factor = occupied::LOAD_MARGIN * missing;
                occupied::check_space(self.data, self.options, factor, 0)?;
                return Ok(None);
            }
            Some(found) => return Err(self.already_there(found)),
            None => {}
        }
        occupied::check(control, schema, self.options)?;
        let reclaimed = match &marker {
            Some(_) => size_of(control, schema)?,
            None => 0,
        };
        occupied::check_space(self.data, self.options, occupied::LOAD_MARGIN, reclaimed)?;
        let exists = occupied::schema_exists(control, schema)?;
        occupied::check_rights(control, schema, exists)?;
        if marker.is_some() {
            drop::remove(control, schema)?;
        }
        let exists = occupied::schema_exists(control, schema)?;
        self.create(control, !exists).map_err(|e| self.trouble(e))?;
        Ok(None)
    }

    fn already_there(&self, found: &Marker) -> Problem {
        let workload = self.options.workload;
        let schema = self.data.schema();
        let parameters: Vec<String> = found
            .parameters()
            .iter()
            .filter(|(key, _)| *key != "workload")
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        if found.complete {
            Problem::usage(format!(
                "a complete data set is already in schema {schema} ({})",
                parameters.join(", ")
            ))
            .hint(format!(
                "use it, or load it anew with `pgdyno load {workload} … --drop`"
            ))
        } else {
            Problem::usage(format!(
                "a load into schema {schema} was begun and not finished ({})",
                parameters.join(", ")
            ))
            .hint(format!(
                "continue with `pgdyno load {workload} … --resume`, or begin anew with `--drop`"
            ))
        }
    }

    fn missing_share(&self, loads: &BTreeMap<String, TableLoad>) -> f64 {
        let total = total_rows(self.data).max(1) as f64;
        let loaded: u64 = loads.values().map(|load| load.rows).sum();
        (1.0 - loaded as f64 / total).clamp(0.0, 1.0)
    }

    /// Schema, marker and tables, in one transaction: a load killed in it has left nothing.
    fn create(&mut self, control: &mut Session, create_schema: bool) -> Result<(), SessionError> {
        let statements = marker::create(self.data, self.options, create_schema);
        self.progress
            .begin("create tables", statements.len() as u64);
        control.query("BEGIN")?;
        for (i, statement) in statements.iter().enumerate() {
            if let Err(error) = control.query(statement) {
                // Without it the lock's session would stay in a failed block; it ends anyway.
                let _ = control.query("ROLLBACK");
                return Err(error);
            }
            self.progress.advance(i as u64 + 1, 0);
        }
        control.query("COMMIT")?;
        self.progress.end();
        Ok(())
    }

    pub(super) fn connections(&self) -> usize {
        self.options.connections.max(1) as usize
    }

    fn copy_rows(&mut self, control: &mut Session, start: &Start) -> Result<(), SessionError> {
        let chunks = chunk::plan(self.data.tables(), &start.done, self.connections());
        let loaded: u64 = start.loads.values().map(|load| load.rows).sum();
        self.progress
            .begin("rows", total_rows(self.data).max(loaded));
        let size = self.connections().min(chunks.len());
        let crew = crew_for(self.connect, self.data.schema(), size, Vec::new());
        let (mut done, mut bytes) = (loaded, 0);
        let progress = &mut *self.progress;
        rows::copy(&crew, control, self.data, chunks, &mut |sent| {
            done += sent.rows;
            bytes += sent.bytes;
            progress.advance(done, bytes);
        })?;
        self.progress.end();
        Ok(())
    }

    /// A checkpoint where it is allowed, so that a measurement does not begin with the dirty
    /// pages of the load; then the mark.
    fn complete(&mut self, control: &mut Session) -> Result<(), SessionError> {
        self.progress.begin("checkpoint", 1);
        match control.query("CHECKPOINT") {
            Ok(_) => {}
            Err(error) if error.is("42501") => {}
            Err(error) => return Err(error),
        }
        control.query("BEGIN")?;
        for statement in marker::complete() {
            control.query(&statement)?;
        }
        control.query("COMMIT")?;
        self.progress.advance(1, 0);
        self.progress.end();
        Ok(())
    }

    fn interrupted(&self) -> Problem {
        Problem::interrupted("the load was interrupted").hint(format!(
            "continue with `pgdyno load {} … --resume`",
            self.options.workload
        ))
    }

    /// What a failed statement means for the user.
    fn trouble(&self, error: SessionError) -> Problem {
        let workload = self.options.workload;
        let resume = format!("`pgdyno load {workload} … --resume`");
        let disconnected = error.failure == Failure::Disconnected
            || ["57P01", "57P02", "57P03"]
                .iter()
                .any(|state| error.is(state));
        if interrupt::requested() {
            self.interrupted()
        } else if error.is("42P01") {
            damaged(error)
        } else if crew::disk_full(&error) {
            Problem::environment(format!("the server's disk is full: {}", error.message))
                .hint(format!("free space, then continue with {resume}"))
        } else if disconnected {
            Problem::environment(format!(
                "the server was lost during the load: {}",
                error.message
            ))
            .hint(format!(
                "see the server's log (a full disk?); when it is up again, continue with {resume}"
            ))
        } else if error.failure == Failure::WrongResult {
            Problem::defect(error.message)
        } else {
            let hint = error.hint.clone();
            Problem::from(error).hint(match hint {
                Some(hint) => format!("{hint}; then continue with {resume}"),
                None => format!("when that is put right, continue with {resume}"),
            })
        }
    }
}

/// A crew whose sessions work in `schema` and are known to the next process by their lock.
pub(super) fn crew_for<'a>(
    connect: &'a ConnectOptions,
    schema: &str,
    size: usize,
    more: Vec<String>,
) -> Crew<'a> {
    let mut setup = vec![
        marker::lock_crew(schema),
        sql::search_path(schema),
        // Whatever a crash undoes is undone together with its mark; the mark `complete` is
        // written with the server's own setting, after everything else.
        "SET synchronous_commit = off".to_owned(),
    ];
    setup.extend(more);
    Crew {
        connect,
        setup,
        size,
    }
}

/// The marker cannot be read.
fn damaged(error: SessionError) -> Problem {
    Problem::from(error)
        .context("the data set is damaged")
        .hint("load it anew with `--drop`")
}

/// Rows that a complete load has, as far as is known beforehand.
pub(super) fn total_rows(data: &dyn DataSet) -> u64 {
    data.tables()
        .iter()
        .map(|table| table.batches.saturating_mul(table.rows_per_batch))
        .fold(0, u64::saturating_add)
}

/// Bytes on disk of the tables that the marker lists.
fn size_of(control: &mut Session, schema: &str) -> Result<u64, Problem> {
    let (tables, _) = marker::objects(control, schema)?;
    let names: Vec<String> = tables
        .iter()
        .map(|name| {
            format!(
                "pg_total_relation_size(to_regclass({}))",
                literal(&qualified(schema, name))
            )
        })
        .collect();
    let sum = names
        .iter()
        .map(|size| format!("coalesce({size}, 0)"))
        .collect::<Vec<_>>()
        .join(" + ");
    let size = control.query_value(&format!("SELECT 0 + {sum}"))?;
    Ok(size.and_then(|size| size.parse().ok()).unwrap_or(0))
}

/// Rates count only what this process sent in its own time.
fn report(
    loads: BTreeMap<String, TableLoad>,
    before: &BTreeMap<String, TableLoad>,
    options: &LoadOptions,
    phases: &Phases,
) -> LoadReport {
    let seconds = |from: Tick, to: Tick| to.since(from) as f64 / 1e9;
    let sum = |loads: &BTreeMap<String, TableLoad>| {
        loads.values().fold((0, 0), |(rows, bytes), load| {
            (rows + load.rows, bytes + load.bytes)
        })
    };
    let (rows, bytes) = sum(&loads);
    let (rows_before, bytes_before) = sum(before);
    let whole = seconds(phases.begin, phases.finished);
    let rate = |amount: u64| {
        if whole > 0.0 {
            amount as f64 / whole
        } else {
            0.0
        }
    };
    LoadReport {
        tables: loads,
        rows,
        bytes,
        seconds: whole,
        copy_seconds: seconds(phases.begin, phases.copied),
        index_seconds: seconds(phases.copied, phases.indexed),
        finish_seconds: seconds(phases.indexed, phases.finished),
        mb_per_s: rate(bytes - bytes_before) / 1e6,
        rows_per_s: rate(rows - rows_before),
        seed: options.seed,
        data_version: options.data_version,
    }
}
