//! Removes what a load made, and nothing else.

use super::marker::{self, Marker};
use super::sql::{self, identifier, literal, qualified};
use crate::problem::Problem;
use crate::session::{Session, SessionError};

/// How many foreign things a message names.
const NAMED_MAX: usize = 4;

/// Drops the data set in `schema`; the schema's lock is held by the caller.
pub(super) fn remove(session: &mut Session, schema: &str) -> Result<Vec<String>, Problem> {
    if Marker::read(session, schema)?.is_none() {
        return Err(
            Problem::usage(format!("there is no data set of pgdyno in schema {schema}"))
                .hint("nothing is removed without pgdyno's own marker table"),
        );
    }
    let (listed, schema_created) = marker::objects(session, schema)
        .map_err(|error| Problem::from(error).context("the marker is damaged"))?;
    let tables = existing(session, schema, &listed)?;
    match attempt(session, schema, &tables, schema_created) {
        Ok(()) => {
            let mut removed: Vec<String> = tables
                .iter()
                .map(|name| format!("{schema}.{name}"))
                .collect();
            if schema_created {
                removed.push(format!("schema {schema}"));
            }
            Ok(removed)
        }
        Err(error) => {
            // The block is aborted; when even this fails, the session is gone and so is the block.
            let _ = session.query("ROLLBACK");
            // 2BP01: dependent objects still exist.
            if error.is("2BP01") {
                Err(in_the_way(session, schema, &tables, schema_created)?)
            } else {
                Err(Problem::from(error).context(format!("cannot drop the data set in {schema}")))
            }
        }
    }
}

/// The tables of the list that are there; somebody may have dropped one by hand.
fn existing(
    session: &mut Session,
    schema: &str,
    listed: &[String],
) -> Result<Vec<String>, SessionError> {
    let names: Vec<String> = listed.iter().map(|name| literal(name)).collect();
    let sql = format!(
        "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE n.nspname = {} AND c.relkind IN ('r', 'p') AND c.relname IN ({}) ORDER BY 1",
        literal(schema),
        names.join(", ")
    );
    Ok(sql::rows(session, &sql)?
        .into_iter()
        .flatten()
        .flatten()
        .collect())
}

fn attempt(
    session: &mut Session,
    schema: &str,
    tables: &[String],
    schema_created: bool,
) -> Result<(), SessionError> {
    session.query("BEGIN")?;
    let list: Vec<String> = tables.iter().map(|name| qualified(schema, name)).collect();
    // One statement, so that foreign keys among the tables are no obstacle.
    session.query(&format!("DROP TABLE {} RESTRICT", list.join(", ")))?;
    if schema_created {
        session.query(&format!("DROP SCHEMA {} RESTRICT", identifier(schema)))?;
    }
    session.query("COMMIT").map(drop)
}

/// Names what depends on the tables, or lies in the schema.
fn in_the_way(
    session: &mut Session,
    schema: &str,
    tables: &[String],
    schema_created: bool,
) -> Result<Problem, SessionError> {
    let names: Vec<String> = tables.iter().map(|name| literal(name)).collect();
    let sql = format!(
        "WITH space AS (SELECT oid FROM pg_namespace WHERE nspname = {}), \
         ours AS (SELECT oid FROM pg_class WHERE relnamespace = (SELECT oid FROM space) \
                  AND relname IN ({})) \
         SELECT DISTINCT CASE \
           WHEN d.classid = 'pg_rewrite'::regclass THEN pg_describe_object('pg_class'::regclass, \
             (SELECT ev_class FROM pg_rewrite WHERE oid = d.objid), 0) \
           ELSE pg_describe_object(d.classid, d.objid, 0) END AS what \
         FROM pg_depend d \
         WHERE d.deptype = 'n' \
           AND ((d.refclassid = 'pg_class'::regclass AND d.refobjid IN (SELECT oid FROM ours)) \
             OR (d.refclassid = 'pg_type'::regclass AND d.refobjid IN \
                 (SELECT reltype FROM pg_class WHERE oid IN (SELECT oid FROM ours))) \
             OR ({schema_created} AND d.refclassid = 'pg_namespace'::regclass \
                 AND d.refobjid = (SELECT oid FROM space))) \
           AND NOT (d.classid = 'pg_class'::regclass AND d.objid IN (SELECT oid FROM ours)) \
           AND NOT (d.classid = 'pg_constraint'::regclass AND d.objid IN \
                    (SELECT oid FROM pg_constraint WHERE conrelid IN (SELECT oid FROM ours))) \
         ORDER BY 1",
        literal(schema),
        names.join(", ")
    );
    let found: Vec<String> = sql::rows(session, &sql)?
        .into_iter()
        .flatten()
        .flatten()
        .collect();
    let dots = if found.len() > NAMED_MAX { " …" } else { "" };
    let named = &found[..found.len().min(NAMED_MAX)];
    Ok(Problem::usage(format!(
        "things that pgdyno did not create depend on the data set in schema {schema} or lie in \
         it: {}{dots}; nothing was removed",
        named.join(", ")
    ))
    .hint("drop or move them, then try again"))
}
