//! The invariants, side by side in one snapshot.

use super::crew::{Crew, Desk};
use super::marker::Marker;
use super::{Progress, memory, sql};
use crate::interrupt;
use crate::problem::Problem;
use crate::record::InvariantResult;
use crate::session::{ConnectOptions, Session, SessionError, TextResult};
use crate::workload::{DataSet, Invariant};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

/// Violating rows shown.
const SAMPLE_MAX: usize = 5;
/// `work_mem` of one session: never less, never more.
const WORK_MIN: u64 = 32 << 20;
const WORK_MAX: u64 = 512 << 20;
/// The column that carries the number of violations.
const COUNT: &str = "pgdyno_violations";

pub(super) fn run(
    connect: &ConnectOptions,
    data: &dyn DataSet,
    connections: u32,
    progress: &mut dyn Progress,
) -> Result<Vec<InvariantResult>, Problem> {
    let invariants = data.invariants();
    let schema = data.schema();
    let mut control = sql::connect(connect, &[sql::search_path(schema)])?;
    if Marker::read(&mut control, schema)?.is_none() {
        return Err(
            Problem::usage(format!("there is no data set of pgdyno in schema {schema}"))
                .hint("load it with `pgdyno load`"),
        );
    }
    let size = (connections.max(1) as usize).min(invariants.len());
    let work = memory::share(&mut control, "work_mem", size)?.clamp(WORK_MIN, WORK_MAX);
    let work = work.max(memory::setting(&mut control, "work_mem")?) >> 20;
    let order = longest_first(&mut control, invariants).map_err(damaged)?;
    // Its snapshot is everybody's; the transaction stays open as long as they need it.
    control.query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")?;
    let snapshot = control.query_value("SELECT pg_export_snapshot()")?;
    let crew = Crew {
        connect,
        setup: vec![
            sql::search_path(schema),
            format!("SET work_mem = '{work}MB'"),
            // Every row is looked at: sums over joins whose size the planner underestimates make it
            // prefer nested loops, which take minutes for a single warehouse.
            "SET enable_nestloop = off".to_owned(),
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY".to_owned(),
            format!(
                "SET TRANSACTION SNAPSHOT {}",
                sql::literal(&snapshot.unwrap_or_default())
            ),
        ],
        size,
    };
    progress.begin("check", invariants.len() as u64);
    let queue = Mutex::new(order);
    let mut results: BTreeMap<usize, InvariantResult> = BTreeMap::new();
    crew.run(
        &mut control,
        &|session, desk: &Desk<'_, (usize, InvariantResult)>| {
            while let Some(index) = next(&queue) {
                desk.check()?;
                desk.tell((index, test(session, &invariants[index])?));
            }
            Ok(())
        },
        &mut |(index, result)| {
            results.insert(index, result);
            progress.advance(results.len() as u64, 0);
        },
    )
    .map_err(damaged)?;
    progress.end();
    Ok(results.into_values().collect())
}

fn next(queue: &Mutex<VecDeque<usize>>) -> Option<usize> {
    queue
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .pop_front()
}

/// The invariants in the order of the planner's estimate, so that the longest does not begin
/// when the others are done.
fn longest_first(
    session: &mut Session,
    invariants: &[Invariant],
) -> Result<VecDeque<usize>, SessionError> {
    let mut order = Vec::new();
    for (index, invariant) in invariants.iter().enumerate() {
        let rows = sql::rows(session, &format!("EXPLAIN {}", invariant.violations_sql))?;
        let plan = rows
            .into_iter()
            .flatten()
            .flatten()
            .next()
            .unwrap_or_default();
        order.push((cost(&plan), index));
    }
    order.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    Ok(order.into_iter().map(|(_, index)| index).collect())
}

/// The total of `… (cost=0.00..123.45 rows=…`; 0 when it is not there.
fn cost(plan: &str) -> f64 {
    plan.split_once("(cost=")
        .and_then(|(_, rest)| rest.split_once(".."))
        .and_then(|(_, rest)| rest.split_once(' '))
        .and_then(|(total, _)| total.parse().ok())
        .unwrap_or(0.0)
}

/// One pass: the window counts all violations on the server (on its disk, if they are many), and
/// only the first few travel.
fn test(session: &mut Session, invariant: &Invariant) -> Result<InvariantResult, SessionError> {
    let found = sql::last(
        session,
        &format!(
            "SELECT count(*) OVER () AS {COUNT}, v.* FROM ({}) AS v LIMIT {SAMPLE_MAX}",
            bare(invariant.violations_sql)
        ),
    )?;
    let violations = match found.rows.first() {
        None => 0,
        Some(row) => row
            .first()
            .and_then(|count| count.as_deref()?.parse().ok())
            .ok_or_else(|| SessionError::wrong_result("the number of violations is no number"))?,
    };
    Ok(InvariantResult {
        name: invariant.name.to_owned(),
        source: invariant.source.to_owned(),
        violations,
        sample: sample(found),
    })
}

fn sample(found: TextResult) -> Vec<BTreeMap<String, Option<String>>> {
    let columns = found.columns;
    found
        .rows
        .into_iter()
        .map(|row| columns.iter().cloned().zip(row).skip(1).collect())
        .collect()
}

fn bare(sql: &str) -> &str {
    sql.trim().trim_end_matches(';').trim_end()
}

/// A table or column that is not there was there when the marker was written.
fn damaged(error: SessionError) -> Problem {
    if interrupt::requested() {
        return Problem::interrupted("the check was interrupted");
    }
    if error.is("42P01") || error.is("42703") {
        return Problem::environment(format!("the data set is damaged: {}", error.message))
            .hint("load it anew with `pgdyno load … --drop`");
    }
    Problem::from(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_planners_total_cost_is_read_from_its_first_line() {
        let plan = "Hash Join  (cost=27.50..1234.56 rows=5 width=8)";
        assert!((cost(plan) - 1234.56).abs() < 1e-9);
        assert!(cost("Result").abs() < 1e-9);
    }

    #[test]
    fn a_statement_loses_its_semicolon_inside_a_subquery() {
        assert_eq!(bare("\nSELECT 1 ;\n"), "SELECT 1");
    }
}
