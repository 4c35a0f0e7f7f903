//! Settings of managed clusters: checked before they are written, written in one step, verified in
//! force by the server's own account; and read back for the record.

use super::builds::Build;
use super::os_user::OsUser;
use crate::problem::Problem;
use crate::record::Setting;
use crate::record::secrets::without_secrets;
use crate::session::{Session, TextResult};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// What pgdyno itself decides; setting these would take the cluster out of its hands.
const OURS: [&str; 6] = [
    "config_file",
    "data_directory",
    "external_pid_file",
    "hba_file",
    "ident_file",
    "unix_socket_directories",
];

/// Settings as the user asked for them, by lower-case name.
pub(crate) type Wanted = BTreeMap<String, String>;

/// `own`, overlaid by `run`.
pub(crate) fn overlay(own: &Wanted, run: &Wanted) -> Wanted {
    let mut all = own.clone();
    all.extend(run.clone());
    all
}

/// Lower-case names (PostgreSQL's are case-insensitive), no nonsense in them.
pub(crate) fn normalise(settings: &BTreeMap<String, String>) -> Result<Wanted, Problem> {
    let mut wanted = Wanted::new();
    for (name, value) in settings {
        let name = name.trim().to_ascii_lowercase();
        let valid = name.split('.').all(|part| {
            part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                && part
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"_$".contains(&b))
        });
        if !valid {
            return Err(
                Problem::usage(format!("--set: \"{name}\" is no name of a setting"))
                    .hint("write --set NAME=VALUE, for example --set shared_buffers=1GB"),
            );
        }
        if value.contains('\0') {
            return Err(Problem::usage(format!(
                "--set {name}: the value has a zero byte"
            )));
        }
        if OURS.contains(&name.as_str()) {
            return Err(
                Problem::usage(format!("--set {name}: pgdyno decides this one itself"))
                    .hint("use --cluster and PGDYNO_HOME to choose where data and sockets are"),
            );
        }
        wanted.insert(name, value.clone());
    }
    Ok(wanted)
}

/// The content of `settings.conf`, and on which line each setting of the user stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Conf {
    pub(crate) text: String,
    lines: BTreeMap<String, usize>,
}

impl Conf {
    /// `base` first, so that the user's settings win.
    pub(crate) fn render(base: &[(&str, String)], wanted: &Wanted) -> Conf {
        let mut text = String::from("# Written by pgdyno for every start; changes are lost.\n");
        let mut lines = BTreeMap::new();
        let base = base.iter().map(|(name, value)| (*name, value.as_str()));
        let wanted_pairs = wanted
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in base.chain(wanted_pairs) {
            // Writing to a String does not fail.
            let _ = writeln!(text, "{name} = '{}'", escape(value));
            lines.insert(name.to_owned(), text.lines().count());
        }
        lines.retain(|name, _| wanted.contains_key(name));
        Conf { text, lines }
    }
}

/// Escapes a value for a quoted string in a configuration file.
fn escape(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for c in value.chars() {
        match c {
            '\'' => out.push_str("''"),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            c => out.push(c),
        }
    }
    out
}

/// Has the server's program check each setting, without a running server; returns the values as
/// it understood them (`64MB` of `work_mem` is `65536`).
///
/// # Errors
/// A usage problem that names the setting, in the server's own words.
pub(crate) fn check(
    build: &Build,
    user: &OsUser,
    data_dir: &Path,
    wanted: &Wanted,
) -> Result<Wanted, Problem> {
    let mut understood = Wanted::new();
    for (name, value) in wanted {
        let mut command = user.command(build.bindir.join("postgres"));
        command.arg("-D").arg(data_dir);
        // Whatever the files of the cluster say, they are not to blame the new setting.
        command.args(["-c", "config_file=/dev/null"]);
        command.arg("-c").arg(format!("{name}={value}"));
        command.args(["-C", name]);
        let output = command.output().map_err(|error| {
            Problem::environment(format!(
                "cannot run {}: {error}",
                build.bindir.join("postgres").display()
            ))
        })?;
        if output.status.success() {
            let text = String::from_utf8_lossy(&output.stdout);
            let text = text.strip_suffix('\n').unwrap_or(&text);
            understood.insert(name.clone(), text.to_owned());
        } else {
            let words = server_words(&String::from_utf8_lossy(&output.stderr));
            return Err(refusal(build, user, name, value, &words));
        }
    }
    Ok(understood)
}

/// From "2026-01-01 00:00:00 GMT \[1\] FATAL:  message" lines the messages, hint included.
fn server_words(log: &str) -> String {
    let words: Vec<&str> = log
        .lines()
        .filter_map(|line| {
            ["FATAL:", "ERROR:", "HINT:", "DETAIL:"]
                .iter()
                .find_map(|sign| line.split_once(sign).map(|(_, words)| words.trim()))
        })
        .collect();
    if words.is_empty() {
        log.trim().to_owned()
    } else {
        words.join("; ")
    }
}

fn refusal(build: &Build, user: &OsUser, name: &str, value: &str, words: &str) -> Problem {
    let problem = Problem::usage(format!("--set {name}={value}: {words}"));
    if words.contains("unrecognized configuration parameter") {
        let near = near(name, &known_names(build, user));
        return problem.hint(if near.is_empty() {
            format!("PostgreSQL {} has no such setting", build.version.major())
        } else {
            format!(
                "PostgreSQL {} has {}",
                build.version.major(),
                near.join(", ")
            )
        });
    }
    if words.contains("cannot be changed") {
        return problem.hint("it is fixed when the server is compiled or the cluster is created");
    }
    problem.hint("see the setting's page in PostgreSQL's manual for what it takes")
}

/// All settings that the build knows, from `postgres --describe-config`.
fn known_names(build: &Build, user: &OsUser) -> Vec<String> {
    let output = user
        .command(build.bindir.join("postgres"))
        .arg("--describe-config")
        .output();
    let text = output.map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&text)
        .lines()
        .filter_map(|line| Some(line.split_once('\t')?.0.to_owned()))
        .collect()
}

/// The few names that look most like `name`.
fn near(name: &str, known: &[String]) -> Vec<String> {
    let limit = 1 + name.len() / 4;
    let mut scored: Vec<(usize, &String)> = known
        .iter()
        .filter_map(|candidate| {
            let lower = candidate.to_ascii_lowercase();
            let distance = if lower.contains(name) || name.contains(&lower) {
                1
            } else {
                distance(name, &lower)
            };
            (distance <= limit).then_some((distance, candidate))
        })
        .collect();
    scored.sort();
    scored.into_iter().take(4).map(|(_, n)| n.clone()).collect()
}

/// Levenshtein's edit distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

/// What a session finds about the settings that were asked for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Verification {
    /// Written, but only a restart brings them into force.
    pub(crate) pending: Vec<String>,
    /// Not in force, with the reason.
    pub(crate) refused: Vec<(String, String)>,
}

/// One row of `pg_settings`.
#[derive(Clone, Debug, Default)]
struct Row {
    setting: String,
    unit: Option<String>,
    source: String,
    source_file: Option<String>,
    source_line: Option<usize>,
    pending_restart: bool,
}

/// Holds what is in force against what was asked for. `understood` is [`check`]'s answer.
pub(crate) fn verify(
    session: &mut Session,
    conf: &Conf,
    wanted: &Wanted,
    understood: &Wanted,
) -> Result<Verification, Problem> {
    let rows = rows(session)?;
    let mut verification = Verification::default();
    // Also those that are no longer asked for but still in force.
    verification.pending.extend(
        rows.iter()
            .filter(|(_, row)| row.pending_restart)
            .map(|(name, _)| name.clone()),
    );
    for (name, value) in wanted {
        let raw = understood.get(name).unwrap_or(value);
        let verdict = match rows.get(name) {
            Some(row) if row.pending_restart => Ok(()),
            Some(row) => in_force(row, raw, conf.lines.get(name).copied()),
            None if name.contains('.') => {
                Err("no loaded extension has this setting (see shared_preload_libraries)".into())
            }
            None => Err("the server does not show it, so it cannot be set for a server".into()),
        };
        if let Err(reason) = verdict {
            verification.refused.push((name.clone(), reason));
        }
    }
    Ok(verification)
}

/// `raw` is the value in the setting's base unit, `line` where it stands in `settings.conf`.
fn in_force(row: &Row, raw: &str, line: Option<usize>) -> Result<(), String> {
    if row.source == "override" {
        // -1 and 0 ask the server to choose, and this is how it says that it did.
        return match raw {
            "-1" | "0" => Ok(()),
            _ => Err("the server decides this one itself".into()),
        };
    }
    if row.setting == raw {
        return Ok(());
    }
    // The server writes some values in its own way (time zones, octal modes, extensions' enums);
    // that it took them from our line settles it.
    let our_file = row
        .source_file
        .as_deref()
        .is_some_and(|file| file.ends_with("/settings.conf"));
    if row.source == "configuration file" && our_file && row.source_line == line {
        return Ok(());
    }
    let place = match (&row.source_file, row.source_line) {
        (Some(file), Some(line)) => format!("{file}, line {line}"),
        _ => row.source.clone(),
    };
    let unit = row.unit.as_deref().unwrap_or("");
    Err(format!(
        "the value in force is {}{}{unit}, from {place}",
        row.setting,
        if unit.starts_with(|c: char| c.is_ascii_digit()) {
            " × "
        } else {
            ""
        },
    ))
}

fn rows(session: &mut Session) -> Result<BTreeMap<String, Row>, Problem> {
    let results = session.query(
        "SELECT lower(name), setting, unit, source, sourcefile, sourceline, pending_restart \
         FROM pg_catalog.pg_settings",
    )?;
    let rows = results
        .into_iter()
        .flat_map(|result: TextResult| result.rows);
    Ok(rows
        .filter_map(|row| {
            let mut row = row.into_iter();
            let mut next = || row.next().flatten();
            let name = next()?;
            Some((
                name,
                Row {
                    setting: next().unwrap_or_default(),
                    unit: next(),
                    source: next().unwrap_or_default(),
                    source_file: next(),
                    source_line: next().and_then(|line| line.parse().ok()),
                    pending_restart: next().as_deref() == Some("t"),
                },
            ))
        })
        .collect())
}

/// Always in the record, at their default or not: what a reader of a result asks first.
const ALWAYS: [&str; 26] = [
    "autovacuum",
    "block_size",
    "checkpoint_timeout",
    "data_checksums",
    "default_transaction_isolation",
    "effective_cache_size",
    "fsync",
    "full_page_writes",
    "huge_pages",
    "io_method",
    "jit",
    "maintenance_work_mem",
    "max_connections",
    "max_wal_size",
    "random_page_cost",
    "server_version",
    "shared_buffers",
    "synchronous_commit",
    "synchronous_standby_names",
    "track_io_timing",
    "wal_buffers",
    "wal_compression",
    "wal_level",
    "wal_segment_size",
    "wal_sync_method",
    "work_mem",
];

/// Sources of values that nobody chose for this server.
const NOT_CHOSEN: [&str; 4] = ["client", "default", "override", "session"];

/// Reads `pg_settings`: everything that somebody chose, the names in `also`, and always those
/// that decide what a result means.
pub fn read_settings(
    session: &mut Session,
    also: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, Setting>, Problem> {
    let results = session.query(
        "SELECT name, setting, unit, source, context FROM pg_catalog.pg_settings ORDER BY name",
    )?;
    let mut settings = BTreeMap::new();
    for row in results.into_iter().flat_map(|result| result.rows) {
        let mut row = row.into_iter();
        let mut next = || row.next().flatten();
        let Some(name) = next() else { continue };
        let setting = Setting {
            value: without_secrets(&name, &next().unwrap_or_default()),
            unit: next(),
            source: next().unwrap_or_default(),
            context: next().unwrap_or_default(),
        };
        let asked = ALWAYS.contains(&name.as_str())
            || also.keys().any(|asked| asked.eq_ignore_ascii_case(&name));
        if asked || !NOT_CHOSEN.contains(&setting.source.as_str()) {
            settings.insert(name, setting);
        }
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
            .collect()
    }

    #[test]
    fn names_are_lower_case_and_nonsense_is_refused() {
        let wanted = normalise(&map(&[
            ("Work_Mem", "1MB"),
            ("pg_stat_statements.track", "all"),
        ]));
        assert_eq!(
            wanted.unwrap(),
            map(&[("work_mem", "1MB"), ("pg_stat_statements.track", "all")])
        );
        for name in [
            "",
            " ",
            "a b",
            "1a",
            "a.",
            ".a",
            "a=b",
            "a'",
            "data_directory",
            "x\ny",
        ] {
            let problem = normalise(&map(&[(name, "1")])).unwrap_err();
            assert_eq!(problem.exit_code(), 2, "{name}");
        }
        assert!(normalise(&map(&[("a", "\0")])).is_err());
    }

    #[test]
    fn the_files_lines_are_counted_and_values_cannot_break_out() {
        let wanted = map(&[("b", "it's\n\\x"), ("a", "1")]);
        let conf = Conf::render(&[("port", "7".into()), ("b", "old".into())], &wanted);
        let lines: Vec<&str> = conf.text.lines().collect();
        assert_eq!(
            lines[1..],
            ["port = '7'", "b = 'old'", "a = '1'", "b = 'it''s\\n\\\\x'"]
        );
        assert_eq!(conf.lines["a"], 4);
        assert_eq!(conf.lines["b"], 5);
        assert_eq!(conf.lines.len(), 2);
    }

    #[test]
    fn a_value_from_elsewhere_is_not_in_force() {
        let ours = Row {
            setting: "UTC".into(),
            source: "configuration file".into(),
            source_file: Some("/c/data/../settings.conf".into()),
            source_line: Some(5),
            ..Row::default()
        };
        assert_eq!(in_force(&ours, "utc", Some(5)), Ok(()));
        assert!(in_force(&ours, "utc", Some(6)).is_err());
        let auto = Row {
            setting: "4096".into(),
            unit: Some("kB".into()),
            source_file: Some("/c/data/postgresql.auto.conf".into()),
            ..ours
        };
        let reason = in_force(&auto, "8192", Some(5)).unwrap_err();
        assert!(reason.contains("4096kB"), "{reason}");
        assert!(reason.contains("postgresql.auto.conf, line 5"), "{reason}");
        assert_eq!(in_force(&auto, "4096", Some(5)), Ok(()));
        let chosen = Row {
            setting: "512".into(),
            source: "override".into(),
            ..Row::default()
        };
        assert_eq!(in_force(&chosen, "-1", None), Ok(()));
        assert!(in_force(&chosen, "512", None).is_err());
    }

    #[test]
    fn misspelt_names_find_their_neighbours() {
        let known = [
            "shared_buffers",
            "wal_buffers",
            "temp_buffers",
            "work_mem",
            "DateStyle",
        ]
        .map(str::to_owned);
        assert_eq!(near("shared_bufers", &known), ["shared_buffers"]);
        assert_eq!(near("work_memory", &known), ["work_mem"]);
        assert_eq!(near("datestyl", &known), ["DateStyle"]);
        assert!(near("nonsense", &known).is_empty());
        assert_eq!(distance("kitten", "sitting"), 3);
    }

    #[test]
    fn the_servers_words_are_found_in_its_log_lines() {
        let log = "2026-01-01 00:00:00 GMT [7] FATAL:  invalid value\n\
                   2026-01-01 00:00:00 GMT [7] HINT:  use another\n";
        assert_eq!(server_words(log), "invalid value; use another");
        assert_eq!(server_words("boom\n"), "boom");
    }
}
