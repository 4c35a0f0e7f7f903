//! Loading, resuming, checking and dropping a data set on real servers.

use crate::support::{self, Server};
use clap::Parser;
use pgdyno::catalog;
use pgdyno::clock::{self, Clock, Monotonic, Tick};
use pgdyno::dataset::{self, LoadOptions, Progress, State};
use pgdyno::plan::args::WorkloadArgs;
use pgdyno::problem::{Kind, Problem};
use pgdyno::record::LoadReport;
use pgdyno::rng::Seed;
use pgdyno::session::{ConnectOptions, Session};
use pgdyno::workload::copy::{CopyBuffer, CopyFormat};
use pgdyno::workload::{DataSet, Ddl, Invariant, Table};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const PARENT_ROWS: u64 = 200;
const CHILD_ROWS: u64 = 1000;
const SEED: u64 = 42;

/// Parents, children and a table that starts empty.
struct Family {
    tables: Vec<Table>,
    size: u64,
    bytes_estimate: u64,
    /// A statement among the indexes.
    extra: Option<&'static str>,
    /// Time that making a batch takes, so that there is a middle to be killed in.
    pause: Duration,
}

impl Family {
    fn new(size: u64) -> Family {
        let table = |name, ddl: &str, columns, batches, rows_per_batch| Table {
            name,
            ddl: ddl.to_owned(),
            columns,
            batches,
            rows_per_batch,
        };
        Family {
            tables: vec![
                table(
                    "parent",
                    "CREATE TABLE parent (p_id int NOT NULL, p_name text)",
                    &["p_id", "p_name"],
                    size,
                    PARENT_ROWS,
                ),
                table(
                    "child",
                    "CREATE TABLE child (c_id int NOT NULL, c_p_id int, c_note text)",
                    &["c_id", "c_p_id", "c_note"],
                    2 * size,
                    CHILD_ROWS,
                ),
                table("late", "CREATE TABLE late (l_id int);", &[], 0, 0),
            ],
            size,
            bytes_estimate: 10_000_000,
            extra: None,
            pause: Duration::ZERO,
        }
    }
}

impl DataSet for Family {
    fn tables(&self) -> &[Table] {
        &self.tables
    }

    fn schema(&self) -> &'static str {
        "family"
    }

    fn fill(&self, table: usize, batch: u64, out: &mut CopyBuffer) {
        if !self.pause.is_zero() {
            clock::pause(self.pause);
        }
        let mut rng = Seed(SEED).stream(self.tables[table].name, batch);
        for row in 0..self.tables[table].rows_per_batch {
            let id = i32::try_from(batch * self.tables[table].rows_per_batch + row).unwrap();
            let text = format!("{:x}", rng.bits());
            match (table, out.format) {
                (0, CopyFormat::Binary) => binary(out, &[&id.to_be_bytes(), text.as_bytes()]),
                (0, CopyFormat::Csv) => {
                    out.bytes.extend(format!("{id},\"{text}\"\n").bytes());
                }
                (_, format) => {
                    let parents = i32::try_from(self.size * PARENT_ROWS).unwrap();
                    let parent = rng.int(0, parents - 1);
                    if format == CopyFormat::Binary {
                        let fields = [
                            &id.to_be_bytes()[..],
                            &parent.to_be_bytes(),
                            text.as_bytes(),
                        ];
                        binary(out, &fields);
                    } else {
                        out.bytes
                            .extend(format!("{id},{parent},\"{text}\"\n").bytes());
                    }
                }
            }
            out.rows += 1;
        }
    }

    fn indexes(&self) -> Vec<Ddl> {
        [
            (
                0,
                "parent_pkey",
                "ALTER TABLE parent ADD PRIMARY KEY (p_id)",
            ),
            (1, "child_pkey", "ALTER TABLE child ADD PRIMARY KEY (c_id)"),
            (
                1,
                "child_parent",
                "CREATE INDEX child_parent ON child (c_p_id)",
            ),
            (1, "child_note", "CREATE INDEX child_note ON child (c_note)"),
        ]
        .into_iter()
        .chain(self.extra.map(|sql| (2, "extra", sql)))
        .map(ddl)
        .collect()
    }

    fn foreign_keys(&self) -> Vec<Ddl> {
        [
            (
                1,
                "child_of",
                "ALTER TABLE child ADD CONSTRAINT child_of FOREIGN KEY (c_p_id) REFERENCES parent",
            ),
            (
                2,
                "late_of",
                "ALTER TABLE late ADD CONSTRAINT late_of FOREIGN KEY (l_id) REFERENCES parent",
            ),
        ]
        .map(ddl)
        .into()
    }

    fn parameters(&self) -> BTreeMap<String, String> {
        BTreeMap::from([
            ("warehouses".to_owned(), self.size.to_string()),
            ("seed".to_owned(), SEED.to_string()),
        ])
    }

    fn invariants(&self) -> &[Invariant] {
        &[
            Invariant {
                name: "parents_have_names",
                source: "test 1",
                summary: "every parent has a name",
                violations_sql: "SELECT p_id, p_name FROM parent WHERE p_name IS NULL ORDER BY 1",
            },
            Invariant {
                name: "children_have_parents",
                source: "test 2",
                summary: "every child has a parent",
                violations_sql: "SELECT c_id FROM child LEFT JOIN parent ON p_id = c_p_id \
                                 WHERE p_id IS NULL;",
            },
        ]
    }

    fn bytes_estimate(&self) -> u64 {
        self.bytes_estimate
    }
}

fn ddl((table, name, sql): (usize, &str, &str)) -> Ddl {
    Ddl {
        table,
        name: name.to_owned(),
        sql: sql.to_owned(),
    }
}

fn binary(out: &mut CopyBuffer, fields: &[&[u8]]) {
    out.bytes
        .extend(u16::try_from(fields.len()).unwrap().to_be_bytes());
    for field in fields {
        out.bytes
            .extend(u32::try_from(field.len()).unwrap().to_be_bytes());
        out.bytes.extend(*field);
    }
}

fn options(connections: u32) -> LoadOptions {
    LoadOptions {
        workload: "tpcc",
        data_version: 3,
        seed: SEED,
        connections,
        resume: false,
        drop_first: false,
        beside_others: false,
        space_free: None,
    }
}

fn resume(connections: u32) -> LoadOptions {
    LoadOptions {
        resume: true,
        ..options(connections)
    }
}

/// Remembers what it was told, and does something at a point.
struct Told<'a> {
    step: String,
    steps: Vec<(String, u64, u64, u64)>,
    advances: u32,
    at: &'a mut (dyn FnMut(&str, u32) + Send),
}

impl<'a> Told<'a> {
    fn new(at: &'a mut (dyn FnMut(&str, u32) + Send)) -> Told<'a> {
        Told {
            step: String::new(),
            steps: Vec::new(),
            advances: 0,
            at,
        }
    }
}

impl Progress for Told<'_> {
    fn begin(&mut self, name: &str, total: u64) {
        name.split(" (").next().unwrap().clone_into(&mut self.step);
        self.advances = 0;
        self.steps.push((self.step.clone(), total, 0, 0));
        (self.at)(&self.step, 0);
    }

    fn advance(&mut self, done: u64, bytes: u64) {
        let step = self.steps.last_mut().unwrap();
        assert!(step.2 <= done && step.3 <= bytes, "progress goes forward");
        (step.2, step.3) = (done, bytes);
        self.advances += 1;
        (self.at)(&self.step, self.advances);
    }

    fn end(&mut self) {}
}

fn load(
    connect: &ConnectOptions,
    data: &Family,
    options: &LoadOptions,
) -> Result<LoadReport, Problem> {
    dataset::load(connect, data, options, &mut Told::new(&mut |_, _| ()))
}

fn database(server: &Server) -> ConnectOptions {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("dataset_{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let mut session = Session::connect(&server.connect("postgres")).unwrap();
    session.query(&format!("CREATE DATABASE {name}")).unwrap();
    server.connect(&name)
}

fn run(connect: &ConnectOptions, sql: &str) -> Vec<Vec<Option<String>>> {
    let mut session = Session::connect(connect).unwrap();
    session.query(sql).unwrap().pop().unwrap().rows
}

fn value(connect: &ConnectOptions, sql: &str) -> String {
    run(connect, sql)[0][0].clone().unwrap_or_default()
}

fn found(connect: &ConnectOptions) -> State {
    dataset::state(&mut Session::connect(connect).unwrap(), "family").unwrap()
}

/// Rows, their checksum, indexes and constraints of every table.
fn fingerprint(connect: &ConnectOptions) -> String {
    let mut out = String::new();
    for table in ["parent", "child", "late"] {
        let sql = format!(
            "SELECT count(*) || ' ' || coalesce(sum(hashtext(t::text)::bigint), 0) \
             FROM family.{table} t"
        );
        writeln!(out, "{table} {}", value(connect, &sql)).unwrap();
    }
    for row in run(
        connect,
        "SELECT indexdef FROM pg_indexes WHERE schemaname = 'family' \
         UNION ALL SELECT conname || ' ' || pg_get_constraintdef(oid) || ' ' || convalidated \
         FROM pg_constraint WHERE connamespace = 'family'::regnamespace AND contype <> 'n' \
         ORDER BY 1",
    ) {
        writeln!(out, "{}", row[0].as_deref().unwrap()).unwrap();
    }
    out
}

/// All objects of the database that have a name.
fn objects(connect: &ConnectOptions) -> Vec<Vec<Option<String>>> {
    run(
        connect,
        "SELECT 'relation', relnamespace::regnamespace::text, relname, oid::text FROM pg_class \
         UNION ALL SELECT 'type', typnamespace::regnamespace::text, typname, oid::text FROM pg_type \
         UNION ALL SELECT 'function', pronamespace::regnamespace::text, proname, oid::text FROM pg_proc \
         UNION ALL SELECT 'constraint', '', conname, oid::text FROM pg_constraint \
         UNION ALL SELECT 'schema', '', nspname, oid::text FROM pg_namespace \
         WHERE nspname !~ 'temp' ORDER BY 1, 2, 3, 4",
    )
}

fn problem<T: std::fmt::Debug>(result: Result<T, Problem>, kind: Kind, parts: &[&str]) {
    let problem = result.unwrap_err();
    let text = problem.to_string();
    assert_eq!(problem.kind, kind, "{text}");
    assert!(problem.hint.is_some(), "no hint: {text}");
    for part in parts {
        assert!(text.contains(part), "no {part:?} in: {text}");
    }
}

/// The fingerprint of an uninterrupted load.
fn undisturbed(server: &Server, size: u64) -> String {
    let connect = database(server);
    load(&connect, &Family::new(size), &options(1)).unwrap();
    fingerprint(&connect)
}

fn everything_works_on(version: &str) {
    let server = support::start(version, &[]);
    let data = Family::new(20);
    let (one, six) = (database(&server), database(&server));
    let before = objects(&six);
    let report = load(&one, &data, &options(1)).unwrap();
    let mut at = |_: &str, _| ();
    let mut told = Told::new(&mut at);
    let again = dataset::load(&six, &data, &options(6), &mut told).unwrap();
    assert_eq!(fingerprint(&one), fingerprint(&six));
    assert_eq!(found(&six), found(&one));
    assert!(matches!(found(&one), State::Complete(p) if p["warehouses"] == "20"));

    assert_eq!(report.rows, 20 * PARENT_ROWS + 40 * CHILD_ROWS);
    assert_eq!(report.tables["child"].rows, 40 * CHILD_ROWS);
    assert_eq!(report.tables["late"].rows, 0);
    assert_eq!(
        report.bytes,
        report.tables.values().map(|t| t.bytes).sum::<u64>()
    );
    assert!(report.copy_seconds > 0.0 && report.index_seconds > 0.0);
    let sum = report.copy_seconds + report.index_seconds + report.finish_seconds;
    assert!((sum - report.seconds).abs() < 1e-6);
    assert!((report.mb_per_s * report.seconds * 1e6 - report.bytes as f64).abs() < 1.0);
    assert_eq!((again.rows, again.data_version), (report.rows, 3));
    let rows = told.steps.iter().find(|step| step.0 == "rows").unwrap();
    assert_eq!((rows.1, rows.2), (report.rows, report.rows));

    let results = dataset::check(&six, &data, 2, &mut Told::new(&mut |_, _| ())).unwrap();
    assert!(
        results
            .iter()
            .all(|r| r.violations == 0 && r.sample.is_empty())
    );
    run(
        &six,
        "UPDATE family.parent SET p_name = NULL WHERE p_id BETWEEN 10 AND 16",
    );
    let results = dataset::check(&six, &data, 2, &mut Told::new(&mut |_, _| ())).unwrap();
    assert_eq!(
        (results[0].name.as_str(), results[0].violations),
        ("parents_have_names", 7)
    );
    assert_eq!(results[0].sample.len(), 5);
    let first = BTreeMap::from([
        ("p_id".to_owned(), Some("10".to_owned())),
        ("p_name".to_owned(), None),
    ]);
    assert_eq!(results[0].sample[0], first);
    assert_eq!(results[1].violations, 0);

    let mut session = Session::connect(&six).unwrap();
    let removed = dataset::drop(&mut session, "family").unwrap();
    assert!(removed.contains(&"family.child".to_owned()), "{removed:?}");
    assert!(removed.contains(&"schema family".to_owned()), "{removed:?}");
    assert_eq!(objects(&six), before);
    assert_eq!(found(&six), State::Absent);
}

#[test]
fn load_check_and_drop_work_on_9_6() {
    everything_works_on("9.6");
}

#[test]
fn load_check_and_drop_work_on_12() {
    everything_works_on("12");
}

#[test]
fn load_check_and_drop_work_on_18() {
    everything_works_on("18");
}

#[test]
fn rows_are_frozen_and_all_visible_after_a_load() {
    // Its own server: a snapshot of another test would keep rows from being frozen.
    let server = support::start("18", &[]);
    let connect = database(&server);
    // One table is cut into chunks, the other is one.
    load(&connect, &Family::new(20), &options(6)).unwrap();
    run(&connect, "CREATE EXTENSION pg_visibility");
    for table in ["parent", "child"] {
        // Pages that a COPY added and did not need hold no rows and stay as they are.
        let sql = format!(
            "SELECT count(*) FILTER (WHERE NOT all_frozen) || ' ' || (count(*) > 0) \
             FROM pg_visibility_map('family.{table}') \
             WHERE blkno IN (SELECT (ctid::text::point)[0]::bigint FROM family.{table})"
        );
        assert_eq!(value(&connect, &sql), "0 true", "{table}");
    }
}

// A loader in a process of its own, which can be killed.

/// Starts this test binary as a loader that kills itself with `signal` at `step:advances`.
fn loader(connect: &ConnectOptions, size: u64, at: &str, signal: i32) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "dataset::the_loader_process",
            "--ignored",
            "--nocapture",
        ])
        .env(
            "PGDYNO_TEST_LOADER",
            format!("{}|{size}|{at}|{signal}", connect.conninfo()),
        )
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
#[ignore = "run by other tests in a process of its own"]
fn the_loader_process() {
    let Ok(job) = std::env::var("PGDYNO_TEST_LOADER") else {
        return;
    };
    let parts: Vec<&str> = job.split('|').collect();
    let connect = ConnectOptions::parse(parts[0]).unwrap();
    let mut data = Family::new(parts[1].parse().unwrap());
    data.pause = Duration::from_millis(5);
    if parts[2].starts_with("indexes:4") {
        data.extra = Some(SLOW);
    }
    let (step, advances) = parts[2].split_once(':').unwrap();
    let advances: u32 = advances.parse().unwrap();
    let signal: i32 = parts[3].parse().unwrap();
    pgdyno::interrupt::install().unwrap();
    let watch = Monotonic::start();
    let mut signalled = Tick::default();
    let mut at = |now: &str, count: u32| {
        if now == step && count == advances {
            if data.extra.is_some() {
                // The last of the indexes, begun a moment ago or about to.
                clock::pause(Duration::from_millis(500));
            }
            signalled = watch.now();
            let own = std::process::id().to_string();
            Command::new("kill")
                .args([&format!("-{signal}"), &own])
                .status()
                .unwrap();
        }
    };
    let result = dataset::load(&connect, &data, &resume(6), &mut Told::new(&mut at));
    let after = watch.now().since(signalled) / 1_000_000;
    eprintln!("outcome {result:?}");
    eprintln!("ended {after} ms after the signal");
    assert!(after < 2000, "{after} ms");
}

/// Stands for an index that takes long; leaves no trace in the catalog.
const SLOW: &str = "SELECT pg_sleep(30)";

/// Where to end a load: every step, and the middle of those that have one.
const POINTS: [&str; 12] = [
    "create tables:0",
    "create tables:7",
    "rows:0",
    "rows:5",
    "rows:40",
    "indexes:0",
    "indexes:2",
    "indexes:4",
    "foreign keys, vacuum and analyze:0",
    "foreign keys, vacuum and analyze:1",
    "foreign keys, vacuum and analyze:3",
    "checkpoint:0",
];

#[test]
fn a_loader_killed_at_any_point_is_continued_to_the_same_data() {
    let server = support::shared();
    let want = undisturbed(server, 20);
    for point in POINTS {
        let connect = database(server);
        let status = loader(&connect, 20, point, 9).wait().unwrap();
        assert_eq!(status.signal(), Some(9), "{point}");
        if found(&connect) != State::Absent {
            problem(
                load(&connect, &Family::new(20), &options(2)),
                Kind::Usage,
                &["not finished", "--resume", "--drop", "warehouses=20"],
            );
        }
        load(&connect, &Family::new(20), &resume(2)).unwrap_or_else(|p| panic!("{point}: {p}"));
        assert_eq!(fingerprint(&connect), want, "{point}");
        assert!(matches!(found(&connect), State::Complete(_)));
    }
}

#[test]
fn an_interrupted_load_ends_soon_without_sessions_left_and_can_be_continued() {
    let server = support::shared();
    let want = undisturbed(server, 20);
    for point in &POINTS[1..] {
        let connect = database(server);
        let child = loader(&connect, 20, point, 2);
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains("kind: Interrupted"), "{point}: {text}");
        assert!(text.contains("--resume"), "{point}: {text}");
        assert!(output.status.success(), "{point}: {text}");
        let others = "SELECT count(*) FROM pg_stat_activity \
                      WHERE datname = current_database() AND pid <> pg_backend_pid() \
                        AND state IS NOT NULL";
        let mut tries = 0;
        while value(&connect, others) != "0" {
            tries += 1;
            assert!(tries < 20, "{point}: sessions linger");
            clock::pause(Duration::from_millis(100));
        }
        load(&connect, &Family::new(20), &resume(2)).unwrap();
        assert_eq!(fingerprint(&connect), want, "{point}");
    }
}

/// Crashes the server: a backend killed makes it end all others and recover.
fn crash(connect: &ConnectOptions) {
    let mut session = Session::connect(connect).unwrap();
    let pid = session.backend_pid().to_string();
    Command::new("kill").args(["-9", &pid]).status().unwrap();
    let _ = session.query("SELECT pg_sleep(5)");
}

#[test]
fn a_load_ended_by_a_crash_of_the_server_is_continued_to_the_same_data() {
    let server = support::start("18", &["restart_after_crash=on"]);
    let want = undisturbed(&server, 20);
    for point in POINTS {
        let (step, advances) = point.split_once(':').unwrap();
        let connect = database(&server);
        let mut data = Family::new(20);
        data.pause = Duration::from_millis(2);
        let mut at = |now: &str, count: u32| {
            if now == step && count.to_string() == advances {
                crash(&connect);
            }
        };
        let result = dataset::load(&connect, &data, &options(3), &mut Told::new(&mut at));
        problem(result, Kind::Environment, &["--resume"]);
        while Session::connect(&connect).is_err() {
            clock::pause(Duration::from_millis(50));
        }
        load(&connect, &Family::new(20), &resume(2)).unwrap_or_else(|p| panic!("{point}: {p}"));
        assert_eq!(fingerprint(&connect), want, "{point}");
    }
}

#[test]
fn a_failed_statement_stops_the_whole_load_and_names_the_cause() {
    struct Wrong(Family);
    impl DataSet for Wrong {
        fn tables(&self) -> &[Table] {
            self.0.tables()
        }
        fn schema(&self) -> &str {
            self.0.schema()
        }
        fn fill(&self, table: usize, batch: u64, out: &mut CopyBuffer) {
            self.0.fill(table, batch, out);
            if table == 1 && batch == 3 {
                out.bytes.truncate(out.bytes.len() - 3);
            }
        }
        fn indexes(&self) -> Vec<Ddl> {
            self.0.indexes()
        }
        fn foreign_keys(&self) -> Vec<Ddl> {
            self.0.foreign_keys()
        }
        fn parameters(&self) -> BTreeMap<String, String> {
            self.0.parameters()
        }
        fn invariants(&self) -> &[Invariant] {
            self.0.invariants()
        }
        fn bytes_estimate(&self) -> u64 {
            self.0.bytes_estimate()
        }
    }
    let connect = database(support::shared());
    let data = Wrong(Family::new(20));
    let result = dataset::load(&connect, &data, &options(4), &mut Told::new(&mut |_, _| ()));
    problem(result, Kind::Environment, &["COPY", "--resume"]);
    assert!(matches!(found(&connect), State::Unfinished(_)));
    load(&connect, &Family::new(20), &resume(4)).unwrap();
    assert_eq!(fingerprint(&connect), undisturbed(support::shared(), 20));
}

#[test]
fn a_failed_statement_cancels_the_long_ones_beside_it() {
    let connect = database(support::shared());
    let mut data = Family::new(20);
    // The long one is on a table of its own, and so runs while the other fails.
    data.extra = Some(SLOW);
    let mut at = |step: &str, count: u32| {
        if step == "indexes" && count == 0 {
            run(&connect, "DROP TABLE family.parent");
        }
    };
    let watch = Monotonic::start();
    let result = dataset::load(&connect, &data, &options(4), &mut Told::new(&mut at));
    let seconds = watch.now().0 / 1_000_000_000;
    assert!(seconds < 10, "{seconds}");
    problem(
        result,
        Kind::Environment,
        &["the data set is damaged", "parent", "--drop"],
    );
}

#[test]
fn sessions_of_a_killed_loader_are_ended_before_its_load_is_continued() {
    // Version 12 does not notice by itself that a client is gone.
    let server = support::start("12", &[]);
    let want = undisturbed(&server, 20);
    let connect = database(&server);
    loader(&connect, 20, "indexes:4", 9).wait().unwrap();
    let sleeping = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%'";
    assert_eq!(value(&connect, sleeping), "1");
    load(&connect, &Family::new(20), &resume(2)).unwrap();
    assert_eq!(value(&connect, sleeping), "0");
    assert_eq!(fingerprint(&connect), want);
}

#[test]
fn a_disk_that_runs_full_leaves_a_load_that_continues_when_there_is_space() {
    let directory = tempfile::tempdir().unwrap();
    let space = directory.path().join("space");
    std::fs::create_dir(&space).unwrap();
    let mount = |options: &str| {
        Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(&space)
            .status()
            .is_ok_and(|status| status.success())
    };
    if !mount("size=2m,mode=0777") {
        return support::skipped("mounting a small filesystem needs root");
    }
    std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let server = support::start("18", &[]);
    let want = undisturbed(&server, 20);
    let connect = database(&server);
    let place = space.join("tables");
    std::fs::create_dir(&place).unwrap();
    std::fs::set_permissions(&place, PermissionsExt::from_mode(0o777)).unwrap();
    let uid = std::fs::metadata(&server.data_dir).unwrap().uid();
    std::os::unix::fs::chown(&place, Some(uid), None).unwrap();
    run(
        &connect,
        &format!("CREATE TABLESPACE small LOCATION '{}'", place.display()),
    );
    let database = &connect.database;
    run(
        &connect,
        &format!("ALTER DATABASE {database} SET default_tablespace = small"),
    );
    let result = load(&connect, &Family::new(20), &options(6));
    let grown = mount("remount,size=64m");
    let resumed = load(&connect, &Family::new(20), &resume(6));
    let got = fingerprint(&connect);
    drop(server);
    Command::new("umount").arg(&space).status().unwrap();
    problem(
        result,
        Kind::Environment,
        &["disk is full", "free space", "--resume"],
    );
    assert!(grown);
    resumed.unwrap();
    assert_eq!(got, want);
}

// Refusals.

#[test]
fn a_data_set_that_is_there_is_neither_loaded_over_nor_mistaken_for_another() {
    let connect = database(support::shared());
    let data = Family::new(10);
    load(&connect, &data, &options(2)).unwrap();
    problem(
        load(&connect, &data, &options(2)),
        Kind::Usage,
        &["complete data set", "warehouses=10", "--drop"],
    );
    let State::Complete(there) = found(&connect) else {
        panic!("complete");
    };
    dataset::verify_parameters(&there, &data, &options(2)).unwrap();
    problem(
        dataset::verify_parameters(&there, &Family::new(20), &options(2)),
        Kind::Usage,
        &[
            "the data set was loaded with warehouses=10, this plan wants warehouses=20",
            "--drop",
            "--warehouses 10",
        ],
    );
    let newer = LoadOptions {
        data_version: 4,
        ..options(2)
    };
    let mut other = there.clone();
    other.insert("foreign_keys".to_owned(), "false".to_owned());
    problem(
        dataset::verify_parameters(&other, &data, &options(2)),
        Kind::Usage,
        &[
            "foreign_keys=false, this plan wants foreign_keys=(none)",
            "`--no-foreign-keys`",
        ],
    );
    problem(
        dataset::verify_parameters(&there, &data, &newer),
        Kind::Usage,
        &["data_version=3, this plan wants data_version=4", "--drop"],
    );
    problem(
        load(&connect, &Family::new(20), &resume(2)),
        Kind::Usage,
        &["warehouses=10"],
    );
    let again = load(&connect, &data, &resume(2)).unwrap();
    assert_eq!(again.rows, 10 * PARENT_ROWS + 20 * CHILD_ROWS);
    let anew = LoadOptions {
        drop_first: true,
        ..options(2)
    };
    load(&connect, &Family::new(5), &anew).unwrap();
    assert!(matches!(found(&connect), State::Complete(p) if p["warehouses"] == "5"));
}

#[test]
fn a_marker_of_a_newer_pgdyno_is_refused() {
    let connect = database(support::shared());
    let data = Family::new(2);
    load(&connect, &data, &options(1)).unwrap();
    run(
        &connect,
        "UPDATE family.pgdyno_dataset SET value = '99' WHERE key = 'format'",
    );
    let mut session = Session::connect(&connect).unwrap();
    problem(
        dataset::state(&mut session, "family"),
        Kind::Usage,
        &["newer pgdyno", "99"],
    );
    problem(
        dataset::drop(&mut session, "family"),
        Kind::Usage,
        &["newer pgdyno"],
    );
    problem(
        load(&connect, &data, &resume(1)),
        Kind::Usage,
        &["newer pgdyno"],
    );
}

#[test]
fn a_database_with_foreign_things_is_refused_unless_they_may_stay() {
    let data = Family::new(2);
    for (create, named) in [
        ("CREATE TABLE kept (a int)", "table public.kept"),
        ("CREATE VIEW seen AS SELECT 1 AS a", "view public.seen"),
        ("CREATE SEQUENCE counted", "sequence public.counted"),
        ("CREATE TYPE mood AS ENUM ('good')", "type public.mood"),
        ("CREATE TYPE pair AS (a int, b int)", "type public.pair"),
        ("CREATE DOMAIN small AS int", "type public.small"),
        ("CREATE SCHEMA shop", "schema shop"),
        (
            "CREATE SCHEMA shop; CREATE TABLE shop.sold (a int)",
            "shop.sold",
        ),
        (
            "CREATE FUNCTION twice(int) RETURNS int LANGUAGE sql AS 'SELECT 2 * $1'",
            "function public.twice",
        ),
    ] {
        let connect = database(support::shared());
        run(&connect, create);
        problem(
            load(&connect, &data, &options(1)),
            Kind::Usage,
            &["pgdyno did not create", named, "--beside-others"],
        );
        assert_eq!(found(&connect), State::Absent);
        let beside = LoadOptions {
            beside_others: true,
            ..options(1)
        };
        load(&connect, &data, &beside).unwrap();
    }
}

#[test]
fn extensions_and_other_data_sets_of_ours_are_not_foreign() {
    let connect = database(support::shared());
    run(
        &connect,
        "CREATE EXTENSION hstore; CREATE EXTENSION pg_visibility",
    );
    run(
        &connect,
        "CREATE SCHEMA tpcc2; CREATE TABLE tpcc2.pgdyno_dataset (key text, value text); \
         CREATE TABLE tpcc2.warehouse (w_id int)",
    );
    load(&connect, &Family::new(2), &options(1)).unwrap();
}

#[test]
fn our_schema_with_foreign_things_in_it_is_refused_even_beside_others() {
    let connect = database(support::shared());
    run(
        &connect,
        "CREATE SCHEMA family; CREATE TABLE family.precious (a int)",
    );
    let beside = LoadOptions {
        beside_others: true,
        ..options(1)
    };
    problem(
        load(&connect, &Family::new(2), &beside),
        Kind::Usage,
        &["schema family", "table family.precious", "--schema"],
    );
    run(&connect, "DROP TABLE family.precious");
    load(&connect, &Family::new(2), &options(1)).unwrap();
    let mut session = Session::connect(&connect).unwrap();
    let removed = dataset::drop(&mut session, "family").unwrap();
    assert!(
        !removed.contains(&"schema family".to_owned()),
        "{removed:?}"
    );
    assert_eq!(
        value(
            &connect,
            "SELECT count(*) FROM pg_namespace WHERE nspname = 'family'"
        ),
        "1"
    );
}

#[test]
fn a_user_without_the_right_to_create_is_told_which_one() {
    let mut connect = database(support::shared());
    let database = connect.database.clone();
    run(&connect, &format!("CREATE ROLE poor_{database} LOGIN"));
    connect.user = format!("poor_{database}");
    problem(
        load(&connect, &Family::new(2), &options(1)),
        Kind::Environment,
        &["may not create", "GRANT CREATE ON DATABASE"],
    );
}

#[test]
fn a_disk_known_to_be_too_small_is_refused_before_anything_is_created() {
    let connect = database(support::shared());
    let mut data = Family::new(2);
    data.bytes_estimate = 93 << 50;
    let mut small = options(1);
    small.space_free = Some(80 << 30);
    problem(
        load(&connect, &data, &small),
        Kind::Environment,
        &["2 warehouses need about 93.0 PiB, 80.0 GiB are free"],
    );
    assert_eq!(found(&connect), State::Absent);
    assert_eq!(
        value(
            &connect,
            "SELECT count(*) FROM pg_namespace WHERE nspname = 'family'"
        ),
        "0"
    );
}

#[test]
fn two_loaders_do_not_work_on_one_schema() {
    let connect = database(support::shared());
    let data = Family::new(4);
    let mut second = None;
    let mut at = |step: &str, count: u32| {
        if step == "rows" && count == 0 {
            second = Some(load(&connect, &data, &resume(1)));
        }
    };
    dataset::load(&connect, &data, &options(2), &mut Told::new(&mut at)).unwrap();
    problem(second.unwrap(), Kind::Usage, &["another pgdyno is at work"]);
}

// Drop.

#[test]
fn a_foreign_dependant_blocks_drop_and_nothing_is_removed() {
    let connect = database(support::shared());
    load(&connect, &Family::new(2), &options(1)).unwrap();
    let mut session = Session::connect(&connect).unwrap();
    for (create, named, undo) in [
        (
            "CREATE VIEW public.names AS SELECT p_name FROM family.parent",
            "view",
            "DROP VIEW public.names",
        ),
        (
            "CREATE TABLE family.guest (a int)",
            "guest",
            "DROP TABLE family.guest",
        ),
        (
            "CREATE TABLE public.friend (p int REFERENCES family.parent)",
            "friend",
            "DROP TABLE public.friend",
        ),
    ] {
        run(&connect, create);
        let before = objects(&connect);
        problem(
            dataset::drop(&mut session, "family"),
            Kind::Usage,
            &[named, "nothing was removed"],
        );
        assert_eq!(objects(&connect), before);
        run(&connect, undo);
    }
    dataset::drop(&mut session, "family").unwrap();
}

#[test]
fn drop_needs_a_marker_and_copes_with_tables_removed_by_hand() {
    let connect = database(support::shared());
    let mut session = Session::connect(&connect).unwrap();
    run(
        &connect,
        "CREATE SCHEMA family; CREATE TABLE family.child (a int)",
    );
    problem(
        dataset::drop(&mut session, "family"),
        Kind::Usage,
        &["no data set"],
    );
    assert_eq!(value(&connect, "SELECT count(*) FROM family.child"), "0");
    run(&connect, "DROP SCHEMA family CASCADE");
    load(&connect, &Family::new(2), &options(1)).unwrap();
    run(&connect, "DROP TABLE family.child");
    problem(
        dataset::check(&connect, &Family::new(2), 2, &mut Told::new(&mut |_, _| ())),
        Kind::Environment,
        &["the data set is damaged", "child"],
    );
    let removed = dataset::drop(&mut session, "family").unwrap();
    assert!(!removed.contains(&"family.child".to_owned()));
    assert_eq!(
        value(
            &connect,
            "SELECT count(*) FROM pg_namespace WHERE nspname = 'family'"
        ),
        "0"
    );
}

#[test]
fn a_half_loaded_data_set_can_be_dropped() {
    let connect = database(support::shared());
    let before = objects(&connect);
    loader(&connect, 20, "rows:5", 9).wait().unwrap();
    assert!(matches!(found(&connect), State::Unfinished(_)));
    let mut session = Session::connect(&connect).unwrap();
    dataset::drop(&mut session, "family").unwrap();
    assert_eq!(objects(&connect), before);
}

// The real thing.

#[derive(clap::Parser)]
struct Arguments {
    #[command(flatten)]
    workload: WorkloadArgs,
}

/// Count and checksum of every TPC-C table.
fn tpcc_fingerprint(connect: &ConnectOptions, data: &dyn DataSet) -> Vec<String> {
    data.tables()
        .iter()
        .map(|table| {
            let sql = format!(
                "SELECT '{0} ' || count(*) || ' ' || sum(hashtext(t::text)::bigint) FROM tpcc.{0} t",
                table.name
            );
            value(connect, &sql)
        })
        .collect()
}

#[test]
fn tpcc_is_the_same_and_consistent_however_it_was_loaded() {
    let arguments = Arguments::parse_from(["load", "tpcc", "--warehouses", "2"]);
    let plan = pgdyno::plan::resolve_data(&arguments.workload).unwrap();
    let workload = (catalog::find("tpcc").unwrap().from_plan)(&plan).unwrap();
    let data = workload.data_set().unwrap();
    let server = support::shared();
    let quiet = &mut |_: &str, _: u32| ();
    let mut prints = Vec::new();
    for connections in [1, 6] {
        let connect = database(server);
        let mut told = Told::new(quiet);
        dataset::load(&connect, data, &options(connections), &mut told).unwrap();
        prints.push(tpcc_fingerprint(&connect, data));
        for result in dataset::check(&connect, data, 4, &mut told).unwrap() {
            assert_eq!(result.violations, 0, "{result:?}");
        }
    }
    let connect = database(server);
    let broken = dataset::load(
        &connect,
        data,
        &options(3),
        &mut Told::new(&mut |step, count| {
            if step == "rows" && count == 60 {
                end_others(&connect);
            }
        }),
    );
    problem(broken, Kind::Environment, &["--resume"]);
    dataset::load(&connect, data, &resume(4), &mut Told::new(quiet)).unwrap();
    prints.push(tpcc_fingerprint(&connect, data));
    assert_eq!(prints[0], prints[1]);
    assert_eq!(prints[0], prints[2]);
    let removed = dataset::drop(&mut Session::connect(&connect).unwrap(), "tpcc").unwrap();
    assert_eq!(removed.len(), 9 + 3 + 1);
}

/// Ends all other sessions of the database.
fn end_others(connect: &ConnectOptions) {
    run(
        connect,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
         WHERE datname = current_database() AND pid <> pg_backend_pid()",
    );
}

// CSV files.

fn csv(directory: &Path, connections: u32) -> Result<LoadReport, Problem> {
    let mut at = |_: &str, _| ();
    let mut told = Told::new(&mut at);
    dataset::write_csv(directory, &Family::new(6), &options(connections), &mut told)
}

#[test]
fn csv_files_are_the_same_on_any_number_of_threads() {
    let parent = tempfile::tempdir().unwrap();
    let (one, many) = (parent.path().join("one"), parent.path().join("a/many"));
    let report = csv(&one, 1).unwrap();
    assert_eq!(csv(&many, 7).unwrap().tables, report.tables);
    assert_eq!(report.rows, 6 * PARENT_ROWS + 12 * CHILD_ROWS);
    for name in ["parent.csv", "child.csv", "late.csv"] {
        let text = std::fs::read_to_string(one.join(name)).unwrap();
        assert_eq!(text, std::fs::read_to_string(many.join(name)).unwrap());
        let table = &report.tables[name.trim_end_matches(".csv")];
        assert_eq!(text.lines().count() as u64, table.rows);
        assert_eq!(text.len() as u64, table.bytes);
    }
    let names: Vec<_> = std::fs::read_dir(&one).unwrap().collect();
    assert_eq!(names.len(), 4);
}

#[test]
fn csv_files_go_only_into_a_new_or_empty_directory() {
    let parent = tempfile::tempdir().unwrap();
    std::fs::create_dir(parent.path().join("empty")).unwrap();
    csv(&parent.path().join("empty"), 2).unwrap();
    problem(
        csv(&parent.path().join("empty"), 2),
        Kind::Usage,
        &["not empty"],
    );
    std::fs::File::create(parent.path().join("file")).unwrap();
    problem(
        csv(&parent.path().join("file"), 2),
        Kind::Usage,
        &["not a directory"],
    );
    std::fs::create_dir(parent.path().join("half")).unwrap();
    std::fs::File::create(parent.path().join("half/child.csv.part")).unwrap();
    problem(
        csv(&parent.path().join("half"), 2),
        Kind::Usage,
        &["unfinished"],
    );
}

#[test]
fn a_full_disk_leaves_no_csv_file_behind() {
    let parent = tempfile::tempdir().unwrap();
    let target = parent.path().join("small");
    std::fs::create_dir(&target).unwrap();
    let mount = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"])
        .arg(&target)
        .status();
    if !mount.is_ok_and(|status| status.success()) {
        return support::skipped("mounting a small filesystem needs root");
    }
    let result = csv(&target, 3);
    let left: Vec<_> = std::fs::read_dir(&target).unwrap().collect();
    Command::new("umount").arg(&target).status().unwrap();
    let problem = result.unwrap_err();
    assert_eq!(problem.kind, Kind::Environment);
    assert!(problem.message.contains("No space left"), "{problem}");
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn psql_loads_the_csv_files_into_a_data_set_that_is_recognised() {
    let psql = Path::new("/usr/lib/postgresql/15/bin/psql");
    if !psql.exists() {
        return;
    }
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("csv");
    csv(&directory, 2).unwrap();
    let connect = database(support::shared());
    let output = Command::new(psql)
        .current_dir(&directory)
        .args(["-X", "-q", "-f", "load.sql", &connect.conninfo()])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(fingerprint(&connect), undisturbed(support::shared(), 6));
    assert!(matches!(found(&connect), State::Complete(p) if p["warehouses"] == "6"));
}
