//! `pgdyno drop`: removes exactly what `load` made.

use super::{DataArgs, ready, say, say_json};
use crate::catalog;
use crate::dataset;
use crate::plan;
use crate::plan::args::Format;
use crate::problem::Problem;
use crate::session::Session;

/// The whole command.
pub(super) fn drop(args: &DataArgs) -> Result<u8, Problem> {
    let plan = plan::resolve_data(&args.workload)?;
    let entry = catalog::find(&plan.workload)?;
    let workload = (entry.from_plan)(&plan)?;
    let data = ready::data(workload.as_ref(), &plan)?;
    let target = ready::acquire(&args.target)?;
    let mut session = Session::connect(&target.connect)?;
    let removed = dataset::drop(&mut session, data.schema())?;
    std::mem::drop(session);
    target.release()?;
    match args.output.format {
        Format::Json => say_json(&serde_json::json!({ "removed": removed }))?,
        Format::Text => say(&format!("removed {}", removed.join(", "))),
    }
    Ok(0)
}
