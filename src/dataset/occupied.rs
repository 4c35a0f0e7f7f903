//! May the data set be put here? Looks before anything is created.

use super::LoadOptions;
use super::sql::{self, identifier, literal};
use crate::problem::Problem;
use crate::session::{Session, SessionError};
use crate::units::{Bytes, grouped};
use crate::workload::DataSet;

/// How many foreign things a message names.
const NAMED_MAX: usize = 4;

/// Everything of the user's: relations, functions, types and schemas that neither an extension
/// nor pgdyno made. Columns: kind, name, whether it lies in the schema asked for, how many.
const FOREIGN_SQL: &str = "
WITH ours AS (
  SELECT relnamespace AS oid FROM pg_class WHERE relname = 'pgdyno_dataset' AND relkind = 'r'
), theirs AS (
  SELECT oid, nspname FROM pg_namespace
  WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'
    AND oid NOT IN (SELECT oid FROM ours)
), things AS (
  SELECT 'pg_class'::regclass AS classid, c.oid, n.nspname, c.relname AS name,
         CASE c.relkind WHEN 'r' THEN 'table' WHEN 'p' THEN 'table' WHEN 'v' THEN 'view'
           WHEN 'm' THEN 'materialized view' WHEN 'S' THEN 'sequence'
           WHEN 'f' THEN 'foreign table' ELSE 'type' END AS kind
  FROM pg_class c JOIN theirs n ON n.oid = c.relnamespace
  WHERE c.relkind IN ('r', 'p', 'v', 'm', 'S', 'f', 'c')
  UNION ALL
  SELECT 'pg_proc'::regclass, p.oid, n.nspname, p.proname, 'function'
  FROM pg_proc p JOIN theirs n ON n.oid = p.pronamespace
  UNION ALL
  SELECT 'pg_type'::regclass, t.oid, n.nspname, t.typname, 'type'
  FROM pg_type t JOIN theirs n ON n.oid = t.typnamespace
  WHERE t.typrelid = 0 AND t.typtype <> 'm'
    AND NOT EXISTS (SELECT 1 FROM pg_type a WHERE a.typarray = t.oid)
  UNION ALL
  SELECT 'pg_namespace'::regclass, oid, nspname, NULL, 'schema' FROM theirs
  WHERE nspname NOT IN ('public', $schema)
)
SELECT kind, concat_ws('.', nspname, name), nspname = $schema AND name IS NOT NULL AS inside,
       count(*) OVER ()
FROM things
WHERE NOT EXISTS (SELECT 1 FROM pg_depend d
                  WHERE d.classid = things.classid AND d.objid = things.oid AND d.deptype = 'e')
ORDER BY inside DESC, kind <> 'schema', nspname, name
LIMIT 100";

/// Fails when the database holds things that are not ours.
pub(super) fn check(
    session: &mut Session,
    schema: &str,
    options: &LoadOptions,
) -> Result<(), Problem> {
    let found = sql::rows(session, &FOREIGN_SQL.replace("$schema", &literal(schema)))?;
    let cell = |row: &[Option<String>], i: usize| row.get(i).cloned().flatten().unwrap_or_default();
    let inside: Vec<_> = found.iter().filter(|row| cell(row, 2) == "t").collect();
    if inside.is_empty() && (options.beside_others || found.is_empty()) {
        return Ok(());
    }
    let database = session.query_value("SELECT current_database()")?;
    let database = database.unwrap_or_default();
    let (place, listed, count, hint) = if inside.is_empty() {
        let count = found.first().and_then(|row| cell(row, 3).parse().ok());
        let hint = "create an empty database for pgdyno, or add `--beside-others`";
        (
            format!("database {database}"),
            found.iter().collect(),
            count,
            hint,
        )
    } else {
        let count = u64::try_from(inside.len()).ok();
        let hint = "empty the schema, or choose another with `--schema`";
        (
            format!("schema {schema} of database {database}"),
            inside,
            count,
            hint,
        )
    };
    let names: Vec<String> = listed
        .iter()
        .take(NAMED_MAX)
        .map(|row| format!("{} {}", cell(row, 0), cell(row, 1)))
        .collect();
    let count: u64 = count.unwrap_or(names.len() as u64);
    let dots = if count > names.len() as u64 {
        " …"
    } else {
        ""
    };
    Err(Problem::usage(format!(
        "{place} holds {} that pgdyno did not create: {}{dots}",
        if count == 1 {
            "something".to_owned()
        } else {
            format!("{} things", grouped(count))
        },
        names.join(", ")
    ))
    .hint(hint))
}

/// Does the schema exist?
pub(super) fn schema_exists(session: &mut Session, schema: &str) -> Result<bool, SessionError> {
    sql::yes(
        session,
        &format!(
            "SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = {})",
            literal(schema)
        ),
    )
}

/// Fails when the user may not create what a load creates.
pub(super) fn check_rights(
    session: &mut Session,
    schema: &str,
    exists: bool,
) -> Result<(), Problem> {
    if sql::yes(session, "SELECT pg_is_in_recovery()")? {
        return Err(
            Problem::environment("the server is a standby: it takes no data")
                .hint("load on the primary"),
        );
    }
    let (right, object) = if exists {
        let sql = format!("SELECT has_schema_privilege({}, 'CREATE')", literal(schema));
        (
            sql::yes(session, &sql)?,
            format!("SCHEMA {}", identifier(schema)),
        )
    } else {
        let sql = "SELECT has_database_privilege(current_database(), 'CREATE')";
        let database = session
            .query_value("SELECT current_database()")?
            .unwrap_or_default();
        (
            sql::yes(session, sql)?,
            format!("DATABASE {}", identifier(&database)),
        )
    };
    if right {
        return Ok(());
    }
    let user = session
        .query_value("SELECT current_user")?
        .unwrap_or_default();
    let lower = object
        .replacen("SCHEMA", "schema", 1)
        .replacen("DATABASE", "database", 1);
    Err(
        Problem::environment(format!("user {user} may not create anything in {lower}")).hint(
            format!(
                "as its owner: GRANT CREATE ON {object} TO {}",
                identifier(&user)
            ),
        ),
    )
}

/// WAL, sorting for indexes and the estimate's own error, on top of the data.
pub(super) const LOAD_MARGIN: f64 = 1.3;
/// Text takes less than tables and indexes; below this share of their size it cannot fit.
pub(super) const CSV_SHARE: f64 = 0.6;

/// Fails when the disk is known to have less than `factor` times the data's estimated size.
/// `reclaimed`: bytes that dropping the old data set first gives back.
pub(super) fn check_space(
    data: &dyn DataSet,
    options: &LoadOptions,
    factor: f64,
    reclaimed: u64,
) -> Result<(), Problem> {
    let Some(free) = options.space_free else {
        return Ok(());
    };
    let available = free.saturating_add(reclaimed);
    if data.bytes_estimate() as f64 * factor <= available as f64 {
        return Ok(());
    }
    let scale = |key: &str| Some((key.to_owned(), data.parameters().get(key)?.clone()));
    let what = match scale("warehouses").or_else(|| scale("scale")) {
        Some((key, value)) => {
            let value = value.parse().map_or(value, grouped);
            if key == "scale" {
                format!("scale {value} needs")
            } else {
                format!("{value} {key} need")
            }
        }
        None => format!("{} needs", options.workload),
    };
    Err(Problem::environment(format!(
        "{what} about {}, {} are free",
        Bytes(scaled(data.bytes_estimate(), factor.min(1.0))),
        Bytes(available)
    ))
    .hint(if factor > 1.0 {
        "free space or load less; about 30 % more than the data is needed on the way"
    } else {
        "free space or ask for less"
    }))
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an estimate for people; saturates"
)]
fn scaled(bytes: u64, share: f64) -> u64 {
    (bytes as f64 * share) as u64
}
