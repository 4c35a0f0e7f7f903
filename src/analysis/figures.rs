//! The headline figures of a run, each from the counts of the record.

use crate::record::{Counts, RunRecord};

/// Counts of all profiles of the measurement together.
pub fn totals(record: &RunRecord) -> Counts {
    let mut totals = Counts::default();
    for profile in &record.drive.profiles {
        totals.add(&profile.counts);
    }
    totals
}

/// The counts of the profile called `name`.
pub fn profile<'a>(record: &'a RunRecord, name: &str) -> Option<&'a Counts> {
    let index = record.profiles.iter().position(|p| p.name == name)?;
    record.drive.profiles.get(index).map(|p| &p.counts)
}

/// Minutes of the measurement; `None` when it has no length.
fn minutes(record: &RunRecord) -> Option<f64> {
    let seconds = record.drive.measurement_s;
    (seconds > 0.0).then_some(seconds / 60.0)
}

/// Committed New-Order transactions per minute; `None` for workloads without New-Order.
pub fn nopm(record: &RunRecord) -> Option<f64> {
    if record.plan.workload != "tpcc" {
        return None;
    }
    Some(profile(record, "new_order")?.committed as f64 / minutes(record)?)
}

/// Business transactions per minute: committed and intended rollbacks.
pub fn tpm_total(record: &RunRecord) -> f64 {
    minutes(record).map_or(0.0, |m| totals(record).completed() as f64 / m)
}

/// Business transactions per second: committed and intended rollbacks.
pub fn tps(record: &RunRecord) -> f64 {
    tpm_total(record) / 60.0
}

/// The largest NOPM that `warehouses` allow with keying and think times (TPC-C 4.1.3).
pub fn nopm_ceiling(warehouses: u32) -> f64 {
    12.86 * f64::from(warehouses)
}

/// CPU of the server per business transaction, µs; when the server is local.
pub fn server_cpu_us_per_txn(record: &RunRecord) -> Option<f64> {
    let completed = totals(record).completed();
    let seconds = record.server_counters.server_cpu_s?;
    (completed > 0).then(|| seconds * 1e6 / completed as f64)
}
