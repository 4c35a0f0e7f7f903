//! `pgdyno load`: the data set into a server, or into CSV files.

use super::progress::{Steps, rows_and_bytes};
use super::{LoadArgs, ready, say, say_json};
use crate::catalog;
use crate::dataset;
use crate::plan;
use crate::plan::args::Format;
use crate::problem::Problem;
use crate::record::LoadReport;
use std::path::Path;

/// The whole command.
pub(super) fn load(args: &LoadArgs) -> Result<u8, Problem> {
    let plan = plan::resolve_data(&args.workload)?;
    let entry = catalog::find(&plan.workload)?;
    let workload = (entry.from_plan)(&plan)?;
    let data = ready::data(workload.as_ref(), &plan)?;
    if let Some(directory) = &args.csv_dir {
        let mut options = ready::load_options(entry, &plan, None);
        options.space_free = crate::host::space_free(directory);
        let report = dataset::write_csv(directory, data, &options, &mut Steps::new())?;
        return tell(args, &report, Some(directory));
    }
    let target = ready::acquire(&args.target)?;
    let mut options = ready::load_options(entry, &plan, Some(&target));
    options.resume = args.resume;
    options.drop_first = args.drop;
    options.beside_others = args.beside_others;
    let report = dataset::load(&target.connect, data, &options, &mut Steps::new())?;
    let mut violated = Vec::new();
    if !args.no_check {
        violated = ready::violations(&ready::check(&target.connect, data)?);
    }
    target.release()?;
    if !violated.is_empty() {
        return Err(Problem::defect(format!(
            "the data set just loaded is inconsistent: {}",
            violated.join("; ")
        )));
    }
    tell(args, &report, None)
}

fn tell(args: &LoadArgs, report: &LoadReport, directory: Option<&Path>) -> Result<u8, Problem> {
    match args.output.format {
        Format::Json => say_json(report)?,
        Format::Text => {
            let place = directory.map_or(String::new(), |d| format!(" into {}", d.display()));
            say(&format!(
                "{}{place} in {:.1} s: {:.1} MB/s, {:.0} rows/s\n\
                 COPY {:.1} s, indexes {:.1} s, foreign keys, VACUUM and ANALYZE {:.1} s",
                rows_and_bytes(report.rows, report.bytes),
                report.seconds,
                report.mb_per_s,
                report.rows_per_s,
                report.copy_seconds,
                report.index_seconds,
                report.finish_seconds
            ));
        }
    }
    Ok(0)
}
