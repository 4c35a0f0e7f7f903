//! What pgdyno wrote down about a data set, in tables beside it.
//!
//! | table | holds |
//! |---|---|
//! | `pgdyno_dataset` | format, state, workload, data version, seed, parameters, steps done |
//! | `pgdyno_progress` | one row for each chunk of rows, committed together with the rows |
//! | `pgdyno_objects` | what the load created: tables, and the schema when it is ours |

use super::chunk::Done;
use super::crew::GLANCE;
use super::sql::{self, literal, qualified};
use super::{LoadOptions, State};
use crate::problem::Problem;
use crate::record::TableLoad;
use crate::session::{Session, SessionError};
use crate::workload::DataSet;
use crate::{clock, interrupt};
use std::collections::{BTreeMap, BTreeSet};

pub(super) const DATASET: &str = "pgdyno_dataset";
pub(super) const PROGRESS: &str = "pgdyno_progress";
pub(super) const OBJECTS: &str = "pgdyno_objects";
/// The marker's own tables.
pub(super) const TABLES: [&str; 3] = [DATASET, PROGRESS, OBJECTS];

/// Version of the marker tables; a marker of a newer one is refused.
const FORMAT: u32 = 1;
/// Keys of workload parameters begin with this, keys of steps done with [`STEP`].
const PARAMETER: &str = "parameter.";
const STEP: &str = "step.";
const COMPLETE: &str = "complete";

/// Advisory lock classes ("pgdy" and the next): held by the loading process's first session, and
/// shared by its others. The object is a hash of the schema's name.
const LOCK_CONTROL: i32 = 0x7067_6479;
const LOCK_CREW: i32 = 0x7067_647a;
/// How long another loader may hold the lock (its process may just have been killed).
const LOCK_TRIES: u32 = 50;
/// How long the sessions of a killed loader may take to end.
const LEFTOVER_TRIES: u32 = 600;

/// The marker as read.
#[derive(Clone, Debug)]
pub(super) struct Marker {
    pub(super) complete: bool,
    values: BTreeMap<String, String>,
}

impl Marker {
    /// Reads the marker in `schema`; `None` when there is none.
    pub(super) fn read(session: &mut Session, schema: &str) -> Result<Option<Marker>, Problem> {
        let table = qualified(schema, DATASET);
        let found = format!("SELECT to_regclass({}) IS NOT NULL", literal(&table));
        if !sql::yes(session, &found)? {
            return Ok(None);
        }
        let values = sql::map(session, &format!("SELECT key, value FROM {table}"))
            .map_err(|error| Problem::from(error).context(format!("marker {table}")))?;
        let Some(format) = values.get("format").and_then(|f| f.parse::<u32>().ok()) else {
            return Err(
                Problem::usage(format!("the table {table} is not one that pgdyno wrote"))
                    .hint("choose another schema with `--schema`"),
            );
        };
        if format > FORMAT {
            let by = values.get("pgdyno_version").map_or("?", String::as_str);
            return Err(Problem::usage(format!(
                "the data set in schema {schema} was loaded by the newer pgdyno {by} \
                 (marker format {format}, this one knows {FORMAT})"
            ))
            .hint("use that version of pgdyno, or drop the data set with it"));
        }
        Ok(Some(Marker {
            complete: values.get("state").map(String::as_str) == Some(COMPLETE),
            values,
        }))
    }

    /// Parameters by their own names, with `workload`, `data_version` and `seed` among them.
    pub(super) fn parameters(&self) -> BTreeMap<String, String> {
        let own = ["workload", "data_version", "seed"]
            .iter()
            .filter_map(|key| Some(((*key).to_owned(), self.values.get(*key)?.clone())));
        let given = self.values.iter().filter_map(|(key, value)| {
            Some((key.strip_prefix(PARAMETER)?.to_owned(), value.clone()))
        });
        own.chain(given).collect()
    }

    pub(super) fn state(&self) -> State {
        if self.complete {
            State::Complete(self.parameters())
        } else {
            State::Unfinished(self.parameters())
        }
    }
}

/// What `data` loaded with `options` would leave in the marker, as [`Marker::parameters`] has it.
pub(super) fn expected(data: &dyn DataSet, options: &LoadOptions) -> BTreeMap<String, String> {
    let mut all = BTreeMap::from([
        ("workload".to_owned(), options.workload.to_owned()),
        ("data_version".to_owned(), options.data_version.to_string()),
        ("seed".to_owned(), options.seed.to_string()),
    ]);
    all.extend(data.parameters());
    all
}

/// Statements that create marker and tables, to be run in one transaction with the data set's
/// schema first in `search_path` after the first (which creates it, when `create_schema`).
pub(super) fn create(
    data: &dyn DataSet,
    options: &LoadOptions,
    create_schema: bool,
) -> Vec<String> {
    let schema = data.schema();
    let mut statements = Vec::new();
    if create_schema {
        statements.push(format!("CREATE SCHEMA {}", sql::identifier(schema)));
    }
    statements.push(sql::search_path(schema));
    statements.push(format!(
        "CREATE TABLE {DATASET} (key text PRIMARY KEY, value text NOT NULL)"
    ));
    statements.push(format!(
        "CREATE TABLE {PROGRESS} (table_name text, first_batch bigint, batches bigint NOT NULL, \
         rows bigint NOT NULL, bytes bigint NOT NULL, PRIMARY KEY (table_name, first_batch))"
    ));
    statements.push(format!(
        "CREATE TABLE {OBJECTS} (kind text, name text, PRIMARY KEY (kind, name))"
    ));
    let mut values = BTreeMap::from([
        ("format".to_owned(), FORMAT.to_string()),
        ("state".to_owned(), "loading".to_owned()),
        ("workload".to_owned(), options.workload.to_owned()),
        ("data_version".to_owned(), options.data_version.to_string()),
        ("seed".to_owned(), options.seed.to_string()),
        (
            "pgdyno_version".to_owned(),
            env!("CARGO_PKG_VERSION").to_owned(),
        ),
        ("begun".to_owned(), clock::wall().to_string()),
    ]);
    for (key, value) in data.parameters() {
        values.insert(format!("{PARAMETER}{key}"), value);
    }
    for (key, value) in values {
        statements.push(set(&key, &value));
    }
    if create_schema {
        statements.push(object("schema", schema));
    }
    for name in TABLES {
        statements.push(object("table", name));
    }
    for table in data.tables() {
        statements.push(table.ddl.trim_end().trim_end_matches(';').to_owned());
        statements.push(object("table", table.name));
    }
    statements
}

fn set(key: &str, value: &str) -> String {
    format!(
        "INSERT INTO {DATASET} (key, value) VALUES ({}, {})",
        literal(key),
        literal(value)
    )
}

fn object(kind: &str, name: &str) -> String {
    format!(
        "INSERT INTO {OBJECTS} (kind, name) VALUES ({}, {})",
        literal(kind),
        literal(name)
    )
}

/// Statement that notes a chunk of rows; belongs into the transaction that loads it.
pub(super) fn chunk_done(table: &str, first: u64, batches: u64, load: &TableLoad) -> String {
    format!(
        "INSERT INTO {PROGRESS} (table_name, first_batch, batches, rows, bytes) \
         VALUES ({}, {first}, {batches}, {}, {})",
        literal(table),
        load.rows,
        load.bytes
    )
}

/// Statement that notes a step; belongs into the transaction that does it.
pub(super) fn step_done(name: &str) -> String {
    set(&format!("{STEP}{name}"), "done")
}

/// Statements that end a load.
pub(super) fn complete() -> Vec<String> {
    vec![
        format!("UPDATE {DATASET} SET value = '{COMPLETE}' WHERE key = 'state'"),
        set("ended", &clock::wall().to_string()),
    ]
}

/// Names of the steps noted.
pub(super) fn steps(session: &mut Session, schema: &str) -> Result<BTreeSet<String>, SessionError> {
    let table = qualified(schema, DATASET);
    let values = sql::map(session, &format!("SELECT key, value FROM {table}"))?;
    Ok(values
        .keys()
        .filter_map(|key| Some(key.strip_prefix(STEP)?.to_owned()))
        .collect())
}

/// Rows and bytes loaded so far by table, and the batches by the table's index in `data`.
pub(super) fn progress(
    session: &mut Session,
    data: &dyn DataSet,
) -> Result<(BTreeMap<String, TableLoad>, Done), SessionError> {
    let table = qualified(data.schema(), PROGRESS);
    let sql = format!("SELECT table_name, first_batch, batches, rows, bytes FROM {table}");
    let mut loads: BTreeMap<String, TableLoad> = data
        .tables()
        .iter()
        .map(|table| (table.name.to_owned(), TableLoad::default()))
        .collect();
    let mut done = Done::new();
    for row in sql::rows(session, &sql)? {
        let number = |i: usize| -> u64 {
            row.get(i)
                .and_then(|v| v.as_deref()?.parse().ok())
                .unwrap_or(0)
        };
        let name = row.first().cloned().flatten().unwrap_or_default();
        if let Some(index) = data.tables().iter().position(|table| table.name == name) {
            done.entry(index).or_default().push((number(1), number(2)));
        }
        let load = loads.entry(name).or_default();
        load.rows += number(3);
        load.bytes += number(4);
    }
    Ok((loads, done))
}

/// What the load created: names of tables, and whether it created the schema.
pub(super) fn objects(
    session: &mut Session,
    schema: &str,
) -> Result<(Vec<String>, bool), SessionError> {
    let table = qualified(schema, OBJECTS);
    let rows = sql::rows(
        session,
        &format!("SELECT kind, name FROM {table} ORDER BY kind, name"),
    )?;
    let mut tables = Vec::new();
    let mut schema_created = false;
    for row in rows {
        let mut row = row.into_iter().map(Option::unwrap_or_default);
        match (row.next().as_deref(), row.next()) {
            (Some("schema"), _) => schema_created = true,
            (Some("table"), Some(name)) => tables.push(name),
            _ => {}
        }
    }
    Ok((tables, schema_created))
}

/// Takes the schema's lock for `session`, and sees to it that no session of a loader that was
/// killed is still at work: its last chunk may be about to be committed.
pub(super) fn lock(session: &mut Session, schema: &str) -> Result<(), Problem> {
    let hash = format!("hashtext({})", literal(schema));
    let try_lock = format!("SELECT pg_try_advisory_lock({LOCK_CONTROL}, {hash})");
    let mut tries = 0;
    while !sql::yes(session, &try_lock)? {
        interrupt::check()?;
        tries += 1;
        if tries == LOCK_TRIES {
            let pids = holders(session, LOCK_CONTROL, &hash)?;
            return Err(Problem::usage(format!(
                "another pgdyno is at work in schema {schema} (backend {})",
                pids.join(", ")
            ))
            .hint("wait until it has ended, or end it"));
        }
        clock::pause(GLANCE);
    }
    for _ in 0..LEFTOVER_TRIES {
        let pids = holders(session, LOCK_CREW, &hash)?;
        if pids.is_empty() {
            return Ok(());
        }
        session.query(&format!(
            "SELECT pg_terminate_backend(pid) FROM unnest(ARRAY[{}]) AS pid",
            pids.join(", ")
        ))?;
        interrupt::check()?;
        clock::pause(GLANCE);
    }
    let pids = holders(session, LOCK_CREW, &hash)?.join(", ");
    Err(Problem::environment(format!(
        "sessions of an earlier load do not end (backends {pids})"
    ))
    .hint("end them with pg_terminate_backend"))
}

/// Gives the lock back.
pub(super) fn unlock(session: &mut Session, schema: &str) -> Result<(), SessionError> {
    session
        .query(&format!(
            "SELECT pg_advisory_unlock({LOCK_CONTROL}, hashtext({}))",
            literal(schema)
        ))
        .map(drop)
}

/// What a session of the crew runs so that [`lock`] sees it as long as it lives.
pub(super) fn lock_crew(schema: &str) -> String {
    format!(
        "SELECT pg_advisory_lock_shared({LOCK_CREW}, hashtext({}))",
        literal(schema)
    )
}

fn holders(session: &mut Session, class: i32, hash: &str) -> Result<Vec<String>, SessionError> {
    let sql = format!(
        "SELECT pid FROM pg_locks \
         WHERE locktype = 'advisory' AND classid = {class} AND objsubid = 2 AND granted \
           AND objid::bigint = ({hash}::bigint & 4294967295) \
           AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    );
    let rows = sql::rows(session, &sql)?;
    Ok(rows.into_iter().flatten().flatten().collect())
}
