//! Does the server's own account agree, and what did it do meanwhile?

use super::Finding;
use crate::record::{DurabilityClass, RunRecord};
use crate::units::grouped;

/// Commits that the set-up of one session makes, at most (settings, preparing).
const SETUP_COMMITS: u64 = 8;
/// Commits of others, as a share of ours, that go without a warning (autovacuum, monitoring).
const FOREIGN_SHARE: f64 = 0.01;
const FOREIGN_MIN: u64 = 200;

pub(super) fn checkpoint(record: &RunRecord) -> Option<Finding> {
    if !record.on_server() {
        return None;
    }
    let counters = &record.server_counters;
    if let Some(reason) = counters.unavailable.get("checkpoints") {
        return Finding::warn(format!("unknown: {reason}"));
    }
    let (timed, requested) = (counters.checkpoints_timed, counters.checkpoints_requested);
    if timed + requested == 0 {
        return Finding::warn(
            "no checkpoint began in the measurement: the number leaves out its cost; measure \
             longer than checkpoint_timeout",
        );
    }
    Finding::pass(format!(
        "{timed} timed and {requested} requested checkpoints began"
    ))
}

pub(super) fn commits(record: &RunRecord) -> Option<Finding> {
    if !record.on_server() {
        return None;
    }
    let counters = &record.server_counters;
    for name in ["server_counters", "xact_commit"] {
        if let Some(reason) = counters.unavailable.get(name) {
            return Finding::warn(format!("cannot be reconciled: {reason}"));
        }
    }
    let ours: u64 = record.drive.overall.iter().map(|c| c.committed).sum();
    let server = u64::try_from(counters.xact_commit).unwrap_or(0);
    let detail = format!(
        "the server counted {} commits, the driver {}",
        grouped(server),
        grouped(ours)
    );
    if server < ours {
        return Finding::invalid(format!(
            "{detail}: commits that the server does not know of; its statistics may have been \
             lost in a crash or reset"
        ));
    }
    let sessions = u64::from(record.plan.connections) + record.drive.reconnects;
    let setup = sessions * SETUP_COMMITS + record.drive.unknown_commits;
    let foreign = (server - ours).saturating_sub(setup);
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a count, rounded down"
    )]
    let allowed = FOREIGN_MIN.max((ours as f64 * FOREIGN_SHARE) as u64);
    if foreign > allowed {
        return Finding::warn(format!(
            "{detail}: about {} commits are not ours; others were at work in this database",
            grouped(foreign)
        ));
    }
    Finding::pass(detail)
}

pub(super) fn data(record: &RunRecord) -> Option<Finding> {
    if !record.on_server() {
        return None;
    }
    let mut agreed = Vec::new();
    for counter in &record.server_counters.data {
        let index = record
            .profiles
            .iter()
            .position(|p| p.name == counter.profile);
        let Some(overall) = index.and_then(|i| record.drive.overall.get(i)) else {
            return Finding::invalid(format!(
                "the counter {} belongs to the profile {}, which this run does not have",
                counter.name, counter.profile
            ));
        };
        let committed = overall.committed;
        let delta = u64::try_from(counter.delta).unwrap_or(0);
        let unknown = record.drive.unknown_commits;
        if delta < committed || delta > committed + unknown {
            return Finding::invalid(format!(
                "the sum of {} moved by {}, but {} commits of {} were counted{}; somebody else \
                 writes to these tables, or commits were lost",
                counter.name,
                counter.delta,
                grouped(committed),
                counter.profile,
                if unknown > 0 {
                    format!(" and {unknown} are unknown")
                } else {
                    String::new()
                }
            ));
        }
        agreed.push(format!(
            "the sum of {} moved by {}",
            counter.name,
            grouped(delta)
        ));
    }
    if agreed.is_empty() {
        return Finding::warn("the counters in the data could not be read after the run");
    }
    Finding::pass(format!("{}, as many as were committed", agreed.join(", ")))
}

pub(super) fn durability(record: &RunRecord) -> Option<Finding> {
    if !record.on_server() {
        return None;
    }
    let reasons = record.durability.reasons.join("; ");
    match record.durability.class {
        DurabilityClass::Preserved => Finding::pass(reasons),
        _ => Finding::warn(format!(
            "{reasons}; compare only with runs of the same class"
        )),
    }
}
