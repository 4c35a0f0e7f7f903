//! Run directories: written atomically, read with a check of `schema_version`.
//!
//! ```text
//! runs/20261121T164414Z-tpcc-3f9a/
//!   plan.toml        what was asked, resolved
//!   record.json      the RunRecord without its histograms
//!   latency.hdr      histograms by profile and window: HdrHistogram log, format 1.3
//!   series.csv       counts by window and profile
//!   postgresql.log   the server's own words, when it is ours
//! ```

use super::{Latency, RunRecord, SCHEMA_VERSION};
use crate::problem::{IoContext, Problem};
use crate::record::hdr_log;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

const TEMPORARY: &str = ".unfinished-";

/// The store of run records under one directory.
#[derive(Clone, Debug)]
pub struct Store {
    directory: PathBuf,
}

/// A record and where it lies.
#[derive(Clone, Debug)]
pub struct Stored {
    pub record: RunRecord,
    pub directory: PathBuf,
}

impl Store {
    /// Opens or creates the store; fails early when it cannot be written, and removes what a
    /// killed pgdyno left half-written.
    pub fn open(directory: &Path) -> Result<Store, Problem> {
        let hint = "choose another place with --runs-dir";
        fs::create_dir_all(directory)
            .or_problem(format!("create {}", directory.display()))
            .map_err(|p| p.hint(hint))?;
        // A real file, because permission bits say nothing about read-only mounts or full disks.
        tempfile::tempfile_in(directory)
            .or_problem(format!("write in {}", directory.display()))
            .map_err(|p| p.hint(hint))?;
        let store = Store {
            directory: directory.to_owned(),
        };
        store.remove_leftovers()?;
        Ok(store)
    }

    /// Opens a store to read; one that does not exist is empty.
    pub fn open_read_only(directory: &Path) -> Store {
        Store {
            directory: directory.to_owned(),
        }
    }

    fn remove_leftovers(&self) -> Result<(), Problem> {
        for name in self.names()? {
            let Some(rest) = name.strip_prefix(TEMPORARY) else {
                continue;
            };
            let alive = rest
                .split('-')
                .next()
                .is_some_and(|pid| Path::new("/proc").join(pid).exists());
            if !alive {
                let path = self.directory.join(&name);
                fs::remove_dir_all(&path).or_problem(format!("remove {}", path.display()))?;
            }
        }
        Ok(())
    }

    fn names(&self) -> Result<Vec<String>, Problem> {
        let what = || format!("list {}", self.directory.display());
        let entries = match fs::read_dir(&self.directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error).or_problem(what()),
        };
        let mut names = Vec::new();
        for entry in entries {
            if let Ok(name) = entry.or_problem(what())?.file_name().into_string() {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Stores a record under its id; all or nothing. `server_log` is the tail to keep.
    pub fn write(&self, record: &RunRecord, server_log: Option<&[u8]>) -> Result<PathBuf, Problem> {
        let temporary =
            self.directory
                .join(format!("{TEMPORARY}{}-{}", std::process::id(), record.id));
        let result = write_files(&temporary, record, server_log).and_then(|()| {
            let path = self.directory.join(&record.id);
            fs::rename(&temporary, &path).or_problem(format!("create {}", path.display()))?;
            sync_directory(&self.directory)?;
            Ok(path)
        });
        if result.is_err() {
            // The first error is the one to tell; what cannot be removed goes at the next start.
            let _ = fs::remove_dir_all(&temporary);
        }
        result
    }

    /// The ids of all finished records, oldest first.
    pub fn ids(&self) -> Result<Vec<String>, Problem> {
        let mut names = self.names()?;
        names.retain(|name| {
            !name.starts_with('.') && self.directory.join(name).join("record.json").exists()
        });
        Ok(names)
    }

    /// Finds a record by id, unique prefix or suffix of an id, `latest`, or path of its directory.
    pub fn find(&self, name: &str) -> Result<Stored, Problem> {
        let path = Path::new(name);
        if name.contains('/') && path.join("record.json").exists() {
            return read(path);
        }
        let ids = self.ids()?;
        if name == "latest" {
            let id = ids.last().ok_or_else(|| self.none_yet())?;
            return read(&self.directory.join(id));
        }
        let mut hits: Vec<&String> = ids.iter().filter(|id| *id == name).collect();
        if hits.is_empty() {
            hits = ids
                .iter()
                .filter(|id| id.starts_with(name) || id.ends_with(name))
                .collect();
        }
        match hits.as_slice() {
            [id] => read(&self.directory.join(id)),
            [] if ids.is_empty() => Err(self.none_yet()),
            [] => Err(
                Problem::usage(format!("no run \"{name}\" in {}", self.directory.display()))
                    .hint("pgdyno runs list shows what is there; `latest` is the newest"),
            ),
            several => Err(Problem::usage(format!(
                "\"{name}\" fits {} runs, for example {} and {}",
                several.len(),
                several[0],
                several[1]
            ))
            .hint("give more of the id")),
        }
    }

    fn none_yet(&self) -> Problem {
        Problem::usage(format!("no runs in {}", self.directory.display()))
            .hint("pgdyno run tpcc makes one; --runs-dir names another place")
    }

    /// Reads the record of one directory of the store.
    pub fn read(&self, id: &str) -> Result<Stored, Problem> {
        read(&self.directory.join(id))
    }

    /// Removes one record.
    pub fn remove(&self, stored: &Stored) -> Result<(), Problem> {
        // Renamed first, so that a kill in between leaves no half record under its id.
        let doomed = self.directory.join(format!(
            "{TEMPORARY}{}-rm-{}",
            std::process::id(),
            stored.record.id
        ));
        fs::rename(&stored.directory, &doomed)
            .and_then(|()| fs::remove_dir_all(&doomed))
            .or_problem(format!("remove {}", stored.directory.display()))
    }
}

fn write_files(
    directory: &Path,
    record: &RunRecord,
    server_log: Option<&[u8]>,
) -> Result<(), Problem> {
    fs::create_dir(directory).or_problem(format!("create {}", directory.display()))?;
    let plan = toml::to_string_pretty(&record.plan)
        .map_err(|e| Problem::defect(format!("the plan does not serialise: {e}")))?;
    write_synced(&directory.join("plan.toml"), plan.as_bytes())?;
    let mut slim = record.clone();
    let histograms = hdr_log::take(&mut slim);
    let json = serde_json::to_vec_pretty(&slim)
        .map_err(|e| Problem::defect(format!("the record does not serialise: {e}")))?;
    write_synced(&directory.join("latency.hdr"), histograms.as_bytes())?;
    write_synced(&directory.join("series.csv"), series(record).as_bytes())?;
    if let Some(log) = server_log {
        write_synced(&directory.join("postgresql.log"), log)?;
    }
    write_synced(&directory.join("record.json"), &json)?;
    sync_directory(directory)
}

fn write_synced(path: &Path, bytes: &[u8]) -> Result<(), Problem> {
    File::create_new(path)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .or_problem(format!("write {}", path.display()))
}

fn sync_directory(path: &Path) -> Result<(), Problem> {
    File::open(path)
        .and_then(|d| d.sync_all())
        .or_problem(format!("sync {}", path.display()))
}

/// Counts by window and profile as CSV, for spreadsheets.
fn series(record: &RunRecord) -> String {
    use std::fmt::Write as _;
    let mut csv = String::from(
        "begin_s,length_s,profile,offered,skipped,committed,rolled_back,failed,retries\n",
    );
    for window in &record.drive.windows {
        for (counts, profile) in window.counts.iter().zip(&record.profiles) {
            let _ = writeln!(
                csv,
                "{},{},{},{},{},{},{},{},{}",
                window.begin_s,
                window.length_s,
                profile.name,
                counts.offered,
                counts.skipped,
                counts.committed,
                counts.rolled_back,
                counts.failed,
                counts.retries
            );
        }
    }
    csv
}

fn read(directory: &Path) -> Result<Stored, Problem> {
    #[derive(serde::Deserialize)]
    struct Version {
        schema_version: u32,
    }
    let path = directory.join("record.json");
    let bytes = fs::read(&path).or_problem(format!("read {}", path.display()))?;
    let damaged = |error: serde_json::Error| {
        Problem::environment(format!("{} is damaged: {error}", path.display()))
            .hint("pgdyno runs rm removes it")
    };
    let Version { schema_version } = serde_json::from_slice(&bytes).map_err(damaged)?;
    if schema_version > SCHEMA_VERSION {
        return Err(Problem::environment(format!(
            "{} has record schema {schema_version}, this pgdyno reads up to {SCHEMA_VERSION}",
            path.display()
        ))
        .hint("it was written by a newer pgdyno: use that one"));
    }
    let mut record: RunRecord = serde_json::from_slice(&bytes).map_err(damaged)?;
    let path = directory.join("latency.hdr");
    match fs::read_to_string(&path) {
        Ok(text) => hdr_log::put_back(&mut record, &text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).or_problem(format!("read {}", path.display())),
    }
    Ok(Stored {
        record,
        directory: directory.to_owned(),
    })
}

/// At most `limit` bytes of a log file from `from` on (the newest when there are more).
pub fn log_since(path: &Path, from: u64, limit: u64) -> std::io::Result<Vec<u8>> {
    use std::io::Read;
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    // A log that is shorter than before was rotated: take it from its beginning.
    let from = if length < from { 0 } else { from };
    file.seek(SeekFrom::Start(from.max(length.saturating_sub(limit))))?;
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A new id: UTC time, workload, four hexadecimal digits against collisions.
pub fn new_id(workload: &str, now: jiff::Timestamp) -> String {
    let salt = now.subsec_nanosecond().unsigned_abs() ^ std::process::id().rotate_left(13);
    format!(
        "{}-{workload}-{:04x}",
        now.strftime("%Y%m%dT%H%M%SZ"),
        salt & 0xffff
    )
}

impl Latency {
    /// Does it hold any sample?
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::fixture;

    fn with_histograms() -> RunRecord {
        let mut record = fixture::healthy();
        record.drive.profiles[0].response_time.hdr = "HISTFAAA".to_owned();
        record.drive.profiles[4].lag.hdr = "HISTFAAB".to_owned();
        record.drive.windows[0].response_hdr[2] = "HISTFAAC".to_owned();
        record
    }

    #[test]
    fn a_record_comes_back_as_it_was_written() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let record = with_histograms();
        let path = store.write(&record, Some(b"LOG: hello\n")).unwrap();
        for name in [
            "plan.toml",
            "record.json",
            "latency.hdr",
            "series.csv",
            "postgresql.log",
        ] {
            assert!(path.join(name).exists(), "{name}");
        }
        let json = fs::read_to_string(path.join("record.json")).unwrap();
        assert!(
            !json.contains("HISTF"),
            "histograms belong into latency.hdr"
        );
        let read = store.find("latest").unwrap().record;
        let plain = |r: &RunRecord| serde_json::to_value(r).unwrap();
        assert_eq!(plain(&read), plain(&record));
    }

    #[test]
    fn runs_are_found_by_parts_of_their_id_that_are_unique() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let mut record = fixture::healthy();
        store.write(&record, None).unwrap();
        record.id = "20261122T000000Z-tpcc-aaaa".to_owned();
        store.write(&record, None).unwrap();
        assert_eq!(store.find("aaaa").unwrap().record.id, record.id);
        assert_eq!(store.find("latest").unwrap().record.id, record.id);
        assert_eq!(
            store.find("20261121").unwrap().record.id,
            "20261121T164414Z-tpcc-3f9a"
        );
        for (name, said) in [("2026", "fits 2 runs"), ("zzz", "no run")] {
            let problem = store.find(name).unwrap_err();
            assert!(problem.message.contains(said), "{problem}");
            assert_eq!(problem.exit_code(), 2);
        }
        store.remove(&store.find("aaaa").unwrap()).unwrap();
        assert_eq!(store.ids().unwrap().len(), 1);
    }

    #[test]
    fn a_record_of_a_newer_schema_is_refused_with_a_hint() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let mut record = fixture::healthy();
        record.schema_version = SCHEMA_VERSION + 1;
        store.write(&record, None).unwrap();
        let problem = store.find("latest").unwrap_err();
        assert!(problem.to_string().contains("newer pgdyno"), "{problem}");
        assert_eq!(problem.exit_code(), 3);
    }

    #[test]
    fn a_torn_record_is_told_of_and_never_panics() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let path = store
            .write(&with_histograms(), None)
            .unwrap()
            .join("record.json");
        let whole = fs::read(&path).unwrap();
        for length in [0, 1, 10, whole.len() / 2, whole.len() - 2] {
            File::create(&path)
                .unwrap()
                .write_all(&whole[..length])
                .unwrap();
            let problem = store.find("latest").unwrap_err();
            assert!(problem.message.contains("damaged"), "{problem}");
        }
    }

    #[test]
    fn what_a_killed_run_left_is_invisible_and_removed_at_the_next_start() {
        let directory = tempfile::tempdir().unwrap();
        // No process has this id: it is above the kernel's limit.
        let leftover = directory.path().join(format!("{TEMPORARY}99999999-x"));
        fs::create_dir(&leftover).unwrap();
        File::create(leftover.join("record.json")).unwrap();
        assert!(
            Store::open_read_only(directory.path())
                .ids()
                .unwrap()
                .is_empty()
        );
        Store::open(directory.path()).unwrap();
        assert!(!leftover.exists());
    }

    #[test]
    fn a_record_that_cannot_be_written_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let record = fixture::healthy();
        store.write(&record, None).unwrap();
        // The same id again: the final rename cannot replace a directory that is not empty.
        assert!(store.write(&record, None).is_err());
        assert_eq!(store.names().unwrap(), vec![record.id]);
    }

    #[test]
    fn the_first_stored_form_still_loads() {
        let text = include_str!("../../tests/fixtures/records/v1.json");
        let record: RunRecord = serde_json::from_str(text).unwrap();
        assert_eq!(record.schema_version, 1);
        assert_eq!(record.profiles.len(), 5);
    }

    #[test]
    fn of_a_log_the_newest_part_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        File::create(&path)
            .unwrap()
            .write_all(b"0123456789")
            .unwrap();
        for (from, limit, wanted) in [
            (0, 100, "0123456789"),
            (4, 100, "456789"),
            (0, 3, "789"),
            (20, 100, "0123456789"),
        ] {
            assert_eq!(log_since(&path, from, limit).unwrap(), wanted.as_bytes());
        }
    }
}
