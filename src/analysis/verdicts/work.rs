//! Was the work done, all of it, and is it counted right?

use super::Finding;
use crate::analysis::figures;
use crate::record::{Ended, RunRecord};
use crate::units::grouped;

/// Failed transactions up to this share of those offered are a warning only.
const FAILED_SHARE_MAX: f64 = 0.01;
const RETRY_SHARE_MAX: f64 = 0.05;
const LENGTH_MIN_S: f64 = 60.0;

pub(super) fn accounting(record: &RunRecord) -> Option<Finding> {
    let measured = record.drive.profiles.iter().map(|p| &p.counts);
    let whole = record.drive.overall.iter();
    let names = record.profiles.iter().map(|p| p.name.as_str()).cycle();
    for (counts, name) in measured.chain(whole).zip(names) {
        if !counts.balanced() {
            return Finding::invalid(format!(
                "{name}: offered {} is not skipped {} + committed {} + rolled back {} + failed {}; \
                 this is a defect of pgdyno, please report it",
                counts.offered, counts.skipped, counts.committed, counts.rolled_back, counts.failed
            ));
        }
    }
    let totals = figures::totals(record);
    let windows: u64 = record
        .drive
        .windows
        .iter()
        .filter(|w| w.begin_s >= 0.0)
        .flat_map(|w| w.counts.iter().map(|c| c.offered))
        .sum();
    if !record.drive.windows.is_empty() && windows != totals.offered {
        return Finding::invalid(format!(
            "the windows add up to {windows} transactions, the profiles to {}; this is a defect of \
             pgdyno, please report it",
            totals.offered
        ));
    }
    if totals.completed() == 0 {
        return Finding::invalid(
            "no transaction completed in the measurement; look at the errors, or measure longer",
        );
    }
    Finding::pass(format!(
        "{} offered = {} skipped + {} committed + {} rolled back + {} failed",
        grouped(totals.offered),
        grouped(totals.skipped),
        grouped(totals.committed),
        grouped(totals.rolled_back),
        grouped(totals.failed)
    ))
}

pub(super) fn ended(record: &RunRecord) -> Option<Finding> {
    let seconds = record.drive.measurement_s;
    match record.drive.ended {
        Ended::Planned => Finding::pass(format!("measured for {seconds:.1} s as planned")),
        Ended::Interrupted => Finding::warn(format!(
            "interrupted after {seconds:.1} s of measurement; what was measured until then counts"
        )),
        Ended::ServerLost => Finding::invalid(format!(
            "the server was lost after {seconds:.1} s of measurement and did not come back; its \
             log tells why"
        )),
    }
}

pub(super) fn failures(record: &RunRecord) -> Option<Finding> {
    let totals = figures::totals(record);
    let mut classes: Vec<String> = Vec::new();
    let mut wrong = 0;
    for name in crate::session::Failure::ALL.map(crate::session::Failure::name) {
        let n: u64 = record
            .drive
            .profiles
            .iter()
            .filter_map(|p| p.failures.get(name))
            .sum();
        if n > 0 {
            classes.push(format!("{name} {}", grouped(n)));
        }
        if name == "wrong_result" {
            wrong = n;
        }
    }
    let first = record
        .drive
        .errors
        .values()
        .flat_map(|messages| messages.keys())
        .next()
        .map_or(String::new(), |message| format!("; for example: {message}"));
    if wrong > 0 {
        return Finding::invalid(format!(
            "{} answers contradict what the workload knows must be there{first}; run `pgdyno check`",
            grouped(wrong)
        ));
    }
    if totals.failed == 0 {
        return Finding::pass("no transaction failed");
    }
    let share = totals.failed as f64 / totals.offered.max(1) as f64;
    let detail = format!(
        "{} of {} transactions failed ({:.2} %): {}{first}",
        grouped(totals.failed),
        grouped(totals.offered),
        share * 100.0,
        classes.join(", ")
    );
    if share > FAILED_SHARE_MAX {
        Finding::invalid(detail)
    } else {
        Finding::warn(detail)
    }
}

pub(super) fn retries(record: &RunRecord) -> Option<Finding> {
    let totals = figures::totals(record);
    let share = totals.retries as f64 / totals.offered.max(1) as f64;
    let detail = format!(
        "{} extra attempts ({:.2} %)",
        grouped(totals.retries),
        share * 100.0
    );
    if share > RETRY_SHARE_MAX {
        return Finding::warn(format!(
            "{detail}; contention is part of the number: more warehouses or fewer connections \
             lower it"
        ));
    }
    Finding::pass(detail)
}

pub(super) fn invariants(record: &RunRecord) -> Option<Finding> {
    let violated: Vec<String> = record
        .invariants
        .iter()
        .filter(|i| i.violations > 0)
        .map(|i| format!("{} ({} rows)", i.name, grouped(i.violations)))
        .collect();
    if !violated.is_empty() {
        return Finding::invalid(format!(
            "violated after the run: {}; the data set is damaged: load it anew",
            violated.join(", ")
        ));
    }
    if !record.invariants.is_empty() {
        return Finding::pass(format!(
            "{} conditions hold after the run",
            record.invariants.len()
        ));
    }
    // A workload without tables has nothing to check.
    if !record.on_server() {
        return None;
    }
    Finding::warn("not checked after the run; `pgdyno check` does it")
}

pub(super) fn length(record: &RunRecord) -> Option<Finding> {
    let seconds = record.drive.measurement_s;
    if seconds < LENGTH_MIN_S {
        return Finding::warn(format!(
            "{seconds:.0} s is short: the number is a glimpse; use -t 10m or more to compare \
             (TPC-C 5.5 wants two hours)"
        ));
    }
    Finding::pass(format!(
        "{seconds:.0} s measured after {:.0} s of ramp-up",
        record.plan.ramp_s
    ))
}
