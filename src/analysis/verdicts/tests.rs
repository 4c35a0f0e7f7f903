//! One healthy record, and one change to it for each way to be invalid or warned of.

use super::*;
use crate::record::fixture;
use crate::record::{
    Counts, DataCounterDelta, Durability, DurabilityClass, Ended, InvariantResult, Isolation,
    RunRecord, SheetLine,
};

fn status(record: &RunRecord, check: &str) -> Option<VerdictStatus> {
    judge(record)
        .into_iter()
        .find(|v| v.check == check)
        .map(|v| v.status)
}

#[test]
fn a_healthy_run_passes_every_check() {
    let record = fixture::healthy();
    for verdict in judge(&record) {
        assert_eq!(
            verdict.status,
            VerdictStatus::Pass,
            "{}: {}",
            verdict.check,
            verdict.detail
        );
    }
    assert_eq!(judge(&record).len(), CHECKS.len() + record.sheet.len());
}

type Change = fn(&mut RunRecord);

#[test]
#[allow(
    clippy::too_many_lines,
    clippy::semicolon_if_nothing_returned,
    reason = "a table of one-line changes"
)]
fn each_fault_is_seen_by_its_check() {
    use VerdictStatus::{Invalid, Warn};
    let cases: &[(&str, VerdictStatus, Change)] = &[
        ("accounting", Invalid, |r| {
            r.drive.profiles[0].counts.offered += 1
        }),
        ("accounting", Invalid, |r| r.drive.overall[1].failed += 1),
        ("accounting", Invalid, |r| {
            r.drive.windows[0].counts[0].offered += 1
        }),
        ("accounting", Invalid, |r| {
            r.drive.windows.clear();
            r.drive
                .profiles
                .iter_mut()
                .for_each(|p| p.counts = Counts::default());
        }),
        ("checkpoint", Warn, |r| {
            r.server_counters.checkpoints_timed = 0;
            r.server_counters.checkpoints_requested = 0;
        }),
        ("client_headroom", Warn, |r| r.drive.client.cpu_share = 0.8),
        ("client_headroom", Invalid, |r| {
            r.drive.client.cpu_share = 0.97
        }),
        ("commits_reconciled", Invalid, |r| {
            r.server_counters.xact_commit -= 3000
        }),
        ("commits_reconciled", Warn, |r| {
            r.server_counters.xact_commit += 30_000
        }),
        ("data_reconciled", Invalid, |r| {
            r.server_counters.data[0].delta += 1
        }),
        ("data_reconciled", Invalid, |r| {
            r.server_counters.data[0].delta -= 1
        }),
        ("data_reconciled", Warn, |r| r.server_counters.data.clear()),
        ("deferred", Warn, |r| r.drive.deferred_left = 3),
        ("deferred", Warn, |r| {
            r.drive.profiles[3].response_time.p90 = 81_000_000
        }),
        ("durability", Warn, |r| {
            r.durability = Durability {
                class: DurabilityClass::RisksCorruption,
                reasons: vec!["fsync = off".to_owned()],
            };
        }),
        ("ended", Warn, |r| r.drive.ended = Ended::Interrupted),
        ("ended", Invalid, |r| r.drive.ended = Ended::ServerLost),
        ("failures", Warn, |r| {
            r.drive.profiles[0].counts.failed += 1;
            r.drive.profiles[0]
                .failures
                .insert("other_sql".to_owned(), 1);
        }),
        ("failures", Invalid, |r| {
            r.drive.profiles[0].counts.failed += 100_000
        }),
        ("failures", Invalid, |r| {
            r.drive.profiles[0]
                .failures
                .insert("wrong_result".to_owned(), 1);
        }),
        ("invariants", Warn, |r| r.invariants.clear()),
        ("invariants", Invalid, |r| {
            r.invariants.push(InvariantResult {
                name: "x".to_owned(),
                source: "TPC-C 3.3.2.1".to_owned(),
                violations: 1,
                sample: Vec::new(),
            });
        }),
        ("isolation", Warn, |r| {
            r.plan.isolation = Isolation::ReadCommitted
        }),
        ("length", Warn, |r| r.drive.measurement_s = 20.0),
        ("pacing", Warn, |r| r.plan.warehouses = 1),
        ("reconnects", Warn, |r| r.drive.reconnects = 1),
        ("response_times", Warn, |r| {
            r.drive.profiles[0].response_time.p90 = 5_100_000
        }),
        ("retries", Warn, |r| {
            r.drive.profiles[0].counts.retries = 5_000
        }),
    ];
    for (check, expected, change) in cases {
        let mut record = fixture::healthy();
        change(&mut record);
        assert_eq!(status(&record, check), Some(*expected), "{check}");
    }
}

#[test]
fn an_unknown_commit_may_or_may_not_be_in_the_data() {
    let mut record = fixture::healthy();
    record.drive.unknown_commits = 1;
    assert_eq!(
        status(&record, "data_reconciled"),
        Some(VerdictStatus::Pass)
    );
    record.server_counters.data[0].delta += 1;
    assert_eq!(
        status(&record, "data_reconciled"),
        Some(VerdictStatus::Pass)
    );
    record.server_counters.data[0].delta += 1;
    assert_eq!(
        status(&record, "data_reconciled"),
        Some(VerdictStatus::Invalid)
    );
}

#[test]
fn a_counter_of_a_profile_that_does_not_exist_is_not_passed() {
    let mut record = fixture::healthy();
    record.server_counters.data = vec![DataCounterDelta {
        name: "x".into(),
        profile: "none".into(),
        delta: 0,
    }];
    assert_eq!(
        status(&record, "data_reconciled"),
        Some(VerdictStatus::Invalid)
    );
}

#[test]
fn lines_of_the_run_sheet_become_verdicts() {
    let mut record = fixture::healthy();
    record.sheet = vec![SheetLine {
        name: "remote_lines".into(),
        source: "TPC-C 2.4.1.5".into(),
        measured: 0.0,
        expected: 0.01,
        low: 0.0095,
        high: 0.0105,
        n: 1_000_000,
        status: VerdictStatus::Invalid,
        detail: "0.00 %".into(),
    }];
    assert_eq!(
        status(&record, "inputs.remote_lines"),
        Some(VerdictStatus::Invalid)
    );
    assert_eq!(overall(&judge(&record)), VerdictStatus::Invalid);
}

#[test]
fn checks_are_sorted_by_name_and_named_once() {
    let names: Vec<&str> = CHECKS.iter().map(|c| c.name).collect();
    let mut sorted = names.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(names, sorted);
}
