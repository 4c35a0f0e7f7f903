//! `pgdyno check`: the invariants over a data set.

use super::{DataArgs, ready, say, say_json};
use crate::catalog;
use crate::dataset::{self, State};
use crate::plan;
use crate::plan::args::Format;
use crate::problem::Problem;
use crate::record::InvariantResult;
use crate::session::Session;
use std::fmt::Write as _;

/// The whole command; exit code 1 when a condition is violated.
pub(super) fn check(args: &DataArgs) -> Result<u8, Problem> {
    let plan = plan::resolve_data(&args.workload)?;
    let entry = catalog::find(&plan.workload)?;
    let workload = (entry.from_plan)(&plan)?;
    let data = ready::data(workload.as_ref(), &plan)?;
    let target = ready::acquire(&args.target)?;
    let mut session = Session::connect(&target.connect)?;
    match dataset::state(&mut session, data.schema())? {
        State::Complete(_) => {}
        State::Absent => {
            return Err(
                Problem::usage(format!("there is no data set in \"{}\"", data.schema()))
                    .hint(format!("pgdyno load {} makes one", entry.name)),
            );
        }
        State::Unfinished(_) => {
            return Err(Problem::usage(format!(
                "the data set in \"{}\" is not completely loaded",
                data.schema()
            ))
            .hint(format!("pgdyno load {} --resume completes it", entry.name)));
        }
    }
    drop(session);
    let results = ready::check(&target.connect, data)?;
    target.release()?;
    match args.output.format {
        Format::Json => say_json(&results)?,
        Format::Text => say(&table(&results)),
    }
    Ok(u8::from(results.iter().any(|r| r.violations > 0)))
}

fn table(results: &[InvariantResult]) -> String {
    let mut out = String::new();
    for result in results {
        let word = if result.violations == 0 {
            "ok"
        } else {
            "VIOLATED"
        };
        let _ = write!(out, "{word:<9} {:<16} {}", result.source, result.name);
        if result.violations > 0 {
            let _ = write!(out, ": {} rows", result.violations);
        }
        out.push('\n');
        for row in &result.sample {
            let cells: Vec<String> = row
                .iter()
                .map(|(name, value)| format!("{name}={}", value.as_deref().unwrap_or("NULL")))
                .collect();
            let _ = writeln!(out, "          {}", cells.join(" "));
        }
    }
    let violated = results.iter().filter(|r| r.violations > 0).count();
    let _ = write!(
        out,
        "{} conditions checked, {violated} violated",
        results.len()
    );
    out
}
