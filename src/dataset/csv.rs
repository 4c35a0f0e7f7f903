//! The rows as CSV files, and the SQL that loads them.

use super::crew::GLANCE;
use super::pool::Pool;
use super::sql::{identifier, search_path};
use super::{LoadOptions, Progress, load, marker, occupied};
use crate::clock::{Clock, Monotonic};
use crate::interrupt;
use crate::problem::{IoContext, Problem};
use crate::record::{LoadReport, TableLoad};
use crate::workload::DataSet;
use crate::workload::copy::{CopyBuffer, CopyFormat};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Condvar, Mutex, PoisonError};

/// Written last: a directory without it is unfinished.
const LOAD_SQL: &str = "load.sql";
/// What a file is called until it is complete.
const PART: &str = ".part";

/// One file being written; batches go in by their number.
struct Output {
    state: Mutex<Turn>,
    moved: Condvar,
    path: PathBuf,
}

struct Turn {
    file: Option<File>,
    next: u64,
}

struct Work<'a> {
    data: &'a dyn DataSet,
    outputs: Vec<Output>,
    /// All batches of all tables in order; the next one to take.
    batches: Vec<(usize, u64)>,
    next: AtomicUsize,
    pool: Pool,
    stop: AtomicBool,
}

type News = Result<(usize, TableLoad), Problem>;

pub(super) fn write(
    directory: &Path,
    data: &dyn DataSet,
    options: &LoadOptions,
    progress: &mut dyn Progress,
) -> Result<LoadReport, Problem> {
    let clock = Monotonic::start();
    let begin = clock.now();
    occupied::check_space(data, options, occupied::CSV_SHARE, 0)?;
    let created = claim(directory)?;
    let result = write_files(directory, data, options, progress);
    let tables = match result {
        Ok(tables) => tables,
        Err(problem) => {
            tidy_up(directory, data, created);
            return Err(problem);
        }
    };
    let seconds = clock.now().since(begin) as f64 / 1e9;
    let rows: u64 = tables.iter().map(|load| load.rows).sum();
    let bytes: u64 = tables.iter().map(|load| load.bytes).sum();
    let rate = |amount: u64| {
        if seconds > 0.0 {
            amount as f64 / seconds
        } else {
            0.0
        }
    };
    Ok(LoadReport {
        tables: data
            .tables()
            .iter()
            .map(|table| table.name.to_owned())
            .zip(tables)
            .collect(),
        rows,
        bytes,
        seconds,
        copy_seconds: seconds,
        mb_per_s: rate(bytes) / 1e6,
        rows_per_s: rate(rows),
        seed: options.seed,
        data_version: options.data_version,
        ..LoadReport::default()
    })
}

/// Makes the directory or sees that it is empty; tells whether it was made.
fn claim(directory: &Path) -> Result<bool, Problem> {
    let shown = directory.display();
    match std::fs::read_dir(directory) {
        Ok(mut entries) => {
            if entries.next().is_none() {
                return Ok(false);
            }
            let unfinished = !directory.join(LOAD_SQL).exists();
            let problem = Problem::usage(format!("the directory {shown} is not empty"));
            Err(if unfinished && has_parts(directory) {
                problem.hint("it holds an unfinished `--csv-dir`: empty it, or name a new one")
            } else {
                problem.hint("name a new or an empty directory with `--csv-dir`")
            })
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            std::fs::create_dir_all(directory).or_problem(format!("create directory {shown}"))?;
            Ok(true)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {
            Err(Problem::usage(format!("{shown} is not a directory"))
                .hint("name a new or an empty directory with `--csv-dir`"))
        }
        Err(error) => Err(error).or_problem(format!("read directory {shown}")),
    }
}

fn has_parts(directory: &Path) -> bool {
    std::fs::read_dir(directory).is_ok_and(|entries| {
        entries
            .flatten()
            .any(|entry| entry.file_name().to_string_lossy().ends_with(PART))
    })
}

/// Removes what was written. What cannot be removed keeps its name, and there is no `load.sql`.
fn tidy_up(directory: &Path, data: &dyn DataSet, created: bool) {
    let names = data.tables().iter().map(|table| file_name(table.name));
    for name in names.chain([LOAD_SQL.to_owned()]) {
        let _ = std::fs::remove_file(directory.join(&name));
        let _ = std::fs::remove_file(directory.join(format!("{name}{PART}")));
    }
    if created {
        let _ = std::fs::remove_dir(directory);
    }
}

fn file_name(table: &str) -> String {
    format!("{table}.csv")
}

fn write_files(
    directory: &Path,
    data: &dyn DataSet,
    options: &LoadOptions,
    progress: &mut dyn Progress,
) -> Result<Vec<TableLoad>, Problem> {
    let tables = data.tables();
    progress.begin("rows", load::total_rows(data));
    let threads = options.connections.max(1) as usize;
    let mut outputs = Vec::new();
    let mut batches = Vec::new();
    for (index, table) in tables.iter().enumerate() {
        outputs.push(Output::create(directory, &file_name(table.name))?);
        batches.extend((0..table.batches).map(|batch| (index, batch)));
    }
    let work = Work {
        data,
        outputs,
        batches,
        next: AtomicUsize::new(0),
        // Each thread holds at most one, and the one with the lowest batch never waits.
        pool: Pool::new(threads, CopyFormat::Csv),
        stop: AtomicBool::new(false),
    };
    let mut loads = vec![TableLoad::default(); tables.len()];
    std::thread::scope(|scope| {
        let (news, inbox) = channel();
        for _ in 0..threads {
            let (work, news) = (&work, news.clone());
            scope.spawn(move || work.run(&news));
        }
        std::mem::drop(news);
        listen(&work, &inbox, &mut loads, progress)
    })?;
    for (output, table) in work.outputs.iter().zip(tables) {
        output.finish(&directory.join(file_name(table.name)))?;
    }
    write_load_sql(directory, data, options)?;
    progress.end();
    Ok(loads)
}

fn listen(
    work: &Work<'_>,
    inbox: &Receiver<News>,
    loads: &mut [TableLoad],
    progress: &mut dyn Progress,
) -> Result<(), Problem> {
    let (mut rows, mut bytes) = (0, 0);
    let mut first_problem = None;
    loop {
        match inbox.recv_timeout(GLANCE) {
            Ok(Ok((table, load))) => {
                rows += load.rows;
                bytes += load.bytes;
                loads[table].rows += load.rows;
                loads[table].bytes += load.bytes;
                progress.advance(rows, bytes);
            }
            Ok(Err(problem)) => {
                first_problem.get_or_insert(problem);
                work.stop.store(true, Ordering::Relaxed);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if interrupt::requested() {
            work.stop.store(true, Ordering::Relaxed);
        }
    }
    if interrupt::requested() {
        return Err(Problem::interrupted("writing the files was interrupted")
            .hint("nothing was left; begin anew"));
    }
    first_problem.map_or(Ok(()), Err)
}

impl Work<'_> {
    fn run(&self, news: &Sender<News>) {
        let stopped = || self.stop.load(Ordering::Relaxed);
        loop {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(&(table, batch)) = self.batches.get(index) else {
                return;
            };
            let Some(mut buffer) = self.pool.take(&stopped) else {
                return;
            };
            self.data.fill(table, batch, &mut buffer);
            let result = self.outputs[table].append(batch, &buffer, &stopped);
            let load = TableLoad {
                rows: buffer.rows,
                bytes: buffer.bytes.len() as u64,
            };
            self.pool.give_back(buffer);
            match result {
                Ok(true) => {
                    let _ = news.send(Ok((table, load)));
                }
                Ok(false) => return,
                Err(problem) => {
                    let _ = news.send(Err(problem));
                    return;
                }
            }
        }
    }
}

impl Output {
    fn create(directory: &Path, name: &str) -> Result<Output, Problem> {
        let path = directory.join(format!("{name}{PART}"));
        let file = File::create_new(&path).or_problem(format!("create {}", path.display()))?;
        Ok(Output {
            state: Mutex::new(Turn {
                file: Some(file),
                next: 0,
            }),
            moved: Condvar::new(),
            path,
        })
    }

    /// Appends batch `batch` when all before it are in; `false` when `stopped` meanwhile.
    fn append(
        &self,
        batch: u64,
        buffer: &CopyBuffer,
        stopped: &dyn Fn() -> bool,
    ) -> Result<bool, Problem> {
        let mut turn = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while turn.next != batch {
            if stopped() {
                return Ok(false);
            }
            turn = self
                .moved
                .wait_timeout(turn, GLANCE)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        if let Some(file) = &mut turn.file {
            file.write_all(&buffer.bytes)
                .or_problem(format!("write {}", self.path.display()))?;
        }
        turn.next += 1;
        self.moved.notify_all();
        Ok(true)
    }

    /// Makes the file durable and gives it its name.
    fn finish(&self, path: &Path) -> Result<(), Problem> {
        let file = self
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .file
            .take();
        if let Some(file) = file {
            file.sync_all()
                .or_problem(format!("write {}", self.path.display()))?;
        }
        std::fs::rename(&self.path, path).or_problem(format!("create {}", path.display()))
    }
}

fn write_load_sql(
    directory: &Path,
    data: &dyn DataSet,
    options: &LoadOptions,
) -> Result<(), Problem> {
    let output = Output::create(directory, LOAD_SQL)?;
    let text = load_sql(data, options);
    let buffer = CopyBuffer {
        format: CopyFormat::Csv,
        bytes: text.into_bytes(),
        rows: 0,
    };
    output.append(0, &buffer, &|| false)?;
    output.finish(&directory.join(LOAD_SQL))?;
    File::open(directory)
        .and_then(|directory| directory.sync_all())
        .or_problem(format!("write {}", directory.display()))
}

/// What psql runs in the directory. It leaves the marker too, so that pgdyno knows the data set.
fn load_sql(data: &dyn DataSet, options: &LoadOptions) -> String {
    let mut out = format!(
        "-- The {} data set, written by pgdyno {}. In this directory: psql -f {LOAD_SQL}\n\
         \\set ON_ERROR_STOP on\n\
         BEGIN;\n",
        options.workload,
        env!("CARGO_PKG_VERSION")
    );
    let mut add = |sql: &str| {
        out.push_str(sql.trim_end().trim_end_matches(';'));
        out.push_str(";\n");
    };
    for statement in marker::create(data, options, true) {
        add(&statement);
    }
    for table in data.tables().iter().filter(|table| table.batches > 0) {
        let columns: Vec<String> = table.columns.iter().map(|c| identifier(c)).collect();
        // psql reads a backslash command to the end of its line.
        add(&format!(
            "\\copy {} ({}) FROM '{}' WITH (FORMAT csv, FREEZE)",
            identifier(table.name),
            columns.join(", "),
            file_name(table.name)
        ));
    }
    for ddl in data.indexes().iter().chain(&data.foreign_keys()) {
        add(&ddl.sql);
    }
    for statement in marker::complete() {
        add(&statement);
    }
    add("COMMIT");
    add(&search_path(data.schema()));
    for table in data.tables() {
        add(&format!("VACUUM (ANALYZE) {}", identifier(table.name)));
    }
    out
}
