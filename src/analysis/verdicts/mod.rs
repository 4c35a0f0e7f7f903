//! Is this run valid? Each check says pass, warn or invalid, with the reason and what to do.
//!
//! Adding a check: a function in the file of its kind, and one line in [`CHECKS`]; its page in
//! `docs/reference/verdicts.md` is generated.

mod client;
mod server;
mod spec;
mod work;

use crate::record::{RunRecord, Verdict, VerdictStatus};

/// What a check found.
pub struct Finding {
    pub status: VerdictStatus,
    /// The reason, and what to do.
    pub detail: String,
}

#[allow(
    clippy::unnecessary_wraps,
    reason = "each is the last expression of a check"
)]
impl Finding {
    fn pass(detail: impl Into<String>) -> Option<Finding> {
        Some(Finding {
            status: VerdictStatus::Pass,
            detail: detail.into(),
        })
    }

    fn warn(detail: impl Into<String>) -> Option<Finding> {
        Some(Finding {
            status: VerdictStatus::Warn,
            detail: detail.into(),
        })
    }

    fn invalid(detail: impl Into<String>) -> Option<Finding> {
        Some(Finding {
            status: VerdictStatus::Invalid,
            detail: detail.into(),
        })
    }
}

/// One check of a run.
pub struct Check {
    pub name: &'static str,
    /// What it looks at and when it warns or invalidates; shown in the reference.
    pub summary: &'static str,
    /// `None` when it does not apply to the run.
    pub judge: fn(&RunRecord) -> Option<Finding>,
}

/// All checks, sorted by name. The lines of the run sheet are added as `inputs.<line>`.
pub static CHECKS: &[Check] = &[
    Check {
        name: "accounting",
        summary: "offered = skipped + committed + rolled back + failed holds for every profile, \
                  in the measurement and over the whole run; invalid otherwise",
        judge: work::accounting,
    },
    Check {
        name: "checkpoint",
        summary: "a checkpoint began inside the measurement; warns when none did, because the \
                  number then leaves out a cost that production pays",
        judge: server::checkpoint,
    },
    Check {
        name: "client_headroom",
        summary: "the busiest worker used less than 75 % of a core (warns; invalid from 95 %): \
                  beyond that the client is measured, not the server",
        judge: client::headroom,
    },
    Check {
        name: "commits_reconciled",
        summary: "the server's pg_stat_database counted as many commits as the driver; invalid \
                  when fewer, warns when others were at work in the database",
        judge: server::commits,
    },
    Check {
        name: "data_reconciled",
        summary: "counters in the data (TPC-C: the sum of d_next_o_id) moved by exactly the \
                  driver's commits; invalid otherwise",
        judge: server::data,
    },
    Check {
        name: "deferred",
        summary: "90 % of deferred transactions ended within 80 s of being queued (TPC-C 2.7.2.2) \
                  and none was left in the queue",
        judge: spec::deferred,
    },
    Check {
        name: "durability",
        summary: "acknowledged commits survive a crash under the settings in force; warns and \
                  names the settings otherwise",
        judge: server::durability,
    },
    Check {
        name: "ended",
        summary: "the measurement reached its planned end; warns when interrupted, invalid when \
                  the server was lost",
        judge: work::ended,
    },
    Check {
        name: "failures",
        summary: "no transaction failed; warns up to 1 % of those offered, invalid beyond, and \
                  invalid for any answer that contradicts the workload",
        judge: work::failures,
    },
    Check {
        name: "invariants",
        summary: "the consistency conditions hold on the data after the run; invalid when one is \
                  violated, warns when they were not checked",
        judge: work::invariants,
    },
    Check {
        name: "isolation",
        summary: "which of the specification's isolation tests (TPC-C 3.4.2) the level passes; \
                  warns for READ COMMITTED",
        judge: spec::isolation,
    },
    Check {
        name: "length",
        summary: "the measurement is at least 60 s long; warns when shorter (TPC-C 5.5 wants two \
                  hours)",
        judge: work::length,
    },
    Check {
        name: "pacing",
        summary: "NOPM is at most 12.86 a warehouse, the ceiling with keying and think times \
                  (TPC-C 4.1.3); warns above it",
        judge: spec::pacing,
    },
    Check {
        name: "reconnects",
        summary: "no connection was lost; warns otherwise",
        judge: client::reconnects,
    },
    Check {
        name: "response_times",
        summary: "the 90th percentile of every profile is within its limit (TPC-C 5.2.5); warns \
                  otherwise",
        judge: spec::response_times,
    },
    Check {
        name: "retries",
        summary: "less than 5 % extra attempts after serialization failures and deadlocks; warns \
                  otherwise",
        judge: work::retries,
    },
];

/// Judges a record whose measurements are complete.
pub fn judge(record: &RunRecord) -> Vec<Verdict> {
    let mut verdicts: Vec<Verdict> = CHECKS
        .iter()
        .filter_map(|check| {
            let finding = (check.judge)(record)?;
            Some(Verdict {
                check: check.name.to_owned(),
                status: finding.status,
                detail: finding.detail,
            })
        })
        .collect();
    verdicts.extend(record.sheet.iter().map(|line| Verdict {
        check: format!("inputs.{}", line.name),
        status: line.status,
        detail: line.detail.clone(),
    }));
    verdicts
}

/// The worst status of a run's verdicts.
pub fn overall(verdicts: &[Verdict]) -> VerdictStatus {
    verdicts
        .iter()
        .map(|v| v.status)
        .max()
        .unwrap_or(VerdictStatus::Pass)
}

/// The reference page of all checks, in Markdown.
pub fn reference() -> String {
    use std::fmt::Write as _;
    let mut page = String::from(
        "# Verdicts\n\nEvery run carries these checks of its own validity. `pass`, `warn` or \
         `invalid`; one `invalid` makes the exit code 4.\nThis page is generated from \
         `src/analysis/verdicts/mod.rs`.\n\n| check | what it says |\n|---|---|\n",
    );
    for check in CHECKS {
        let _ = writeln!(page, "| `{}` | {} |", check.name, check.summary);
    }
    page.push_str(
        "| `inputs.<line>` | one line of the run sheet: a property of the inputs that were really \
         sent, against the specification's tolerance widened for the sample size |\n",
    );
    page
}

#[cfg(test)]
mod tests;
