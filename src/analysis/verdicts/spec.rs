//! What the TPC-C specification says of such a run.

use super::Finding;
use crate::analysis::figures;
use crate::record::{Isolation, RunRecord};

/// Deferred deliveries: 90 % within 80 s of being queued (TPC-C 2.7.2.2).
const DEFERRED_LIMIT_US: u64 = 80_000_000;

fn is_tpcc(record: &RunRecord) -> bool {
    record.plan.workload == "tpcc"
}

pub(super) fn isolation(record: &RunRecord) -> Option<Finding> {
    if !is_tpcc(record) {
        return None;
    }
    // TPC-C 3.4.2; a snapshot level reports case D of test 7 and case B of test 8.
    match record.plan.isolation {
        Isolation::ReadCommitted => Finding::warn(
            "READ COMMITTED passes isolation tests 1-6 of TPC-C 3.4.2 and fails 7-9; every peer \
             measures at this level; --isolation rr passes all nine",
        ),
        Isolation::RepeatableRead => {
            Finding::pass("REPEATABLE READ (snapshot) passes isolation tests 1-9 of TPC-C 3.4.2")
        }
        Isolation::Serializable => {
            Finding::pass("SERIALIZABLE passes isolation tests 1-9 of TPC-C 3.4.2")
        }
    }
}

pub(super) fn pacing(record: &RunRecord) -> Option<Finding> {
    let nopm = figures::nopm(record)?;
    let ceiling = figures::nopm_ceiling(record.plan.warehouses);
    let times = nopm / ceiling;
    if times > 1.0 {
        return Finding::warn(format!(
            "{times:.1} x the ceiling of 12.86 NOPM a warehouse: the terminals do not wait; \
             compare only with runs of the same warehouses and connections, or use --keying-think"
        ));
    }
    Finding::pass(format!(
        "{:.0} % of the ceiling of 12.86 NOPM a warehouse",
        times * 100.0
    ))
}

pub(super) fn response_times(record: &RunRecord) -> Option<Finding> {
    if !is_tpcc(record) {
        return None;
    }
    let mut over = Vec::new();
    for (info, profile) in record.profiles.iter().zip(&record.drive.profiles) {
        let Some(limit) = info.response_limit_s else {
            continue;
        };
        let p90 = profile.response_time.p90 as f64 / 1e6;
        if !info.deferred && p90 > limit {
            over.push(format!("{} {p90:.2} s > {limit} s", info.name));
        }
    }
    if over.is_empty() {
        return Finding::pass("the 90th percentile of every profile is within its limit");
    }
    Finding::warn(format!(
        "90th percentile over the limit of TPC-C 5.2.5: {}",
        over.join(", ")
    ))
}

pub(super) fn deferred(record: &RunRecord) -> Option<Finding> {
    if !is_tpcc(record) {
        return None;
    }
    let left = record.drive.deferred_left;
    if left > 0 {
        return Finding::warn(format!(
            "{left} deferred transactions were still queued when the drain ended: the server \
             falls behind its terminals"
        ));
    }
    let index = record.profiles.iter().position(|p| p.deferred)?;
    let p90 = record.drive.profiles.get(index)?.response_time.p90;
    if p90 > DEFERRED_LIMIT_US {
        return Finding::warn(format!(
            "the 90th percentile from queueing to completion is {:.1} s, more than 80 s",
            p90 as f64 / 1e6
        ));
    }
    Finding::pass(format!(
        "the 90th percentile from queueing to completion is {:.1} ms",
        p90 as f64 / 1e3
    ))
}
