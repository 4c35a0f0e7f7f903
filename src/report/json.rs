//! `run --format json`: the object of the contract; `docs/reference/run.schema.json` is its schema.

use crate::analysis::{figures, verdicts};
use crate::record::store::Stored;
use crate::record::{
    ClientCost, Durability, Ended, Isolation, Latency, LoadReport, RunRecord, SheetLine, Verdict,
    VerdictStatus,
};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// The summary of one run.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RunSummary {
    pub run_id: String,
    /// Version of the stored record; adding a field does not change it.
    pub schema_version: u32,
    pub workload: String,
    pub dialect: String,
    pub mode: String,
    pub protocol: String,
    pub isolation: Isolation,
    pub seed: u64,
    pub started_at: String,
    /// Empty when the workload needs no server.
    pub server_version: String,
    pub measurement_s: f64,
    pub ended: Ended,
    pub connections: u32,
    pub terminals: u32,
    pub warehouses: u32,
    /// Committed New-Orders per minute; TPC-C only.
    pub nopm: Option<f64>,
    /// All business transactions (committed and intended rollbacks) per minute.
    pub tpm_total: f64,
    pub tps: f64,
    /// The formulas of the published studies; TPC-C only.
    pub compat: Option<Compat>,
    pub profiles: BTreeMap<String, ProfileSummary>,
    pub client: ClientCost,
    pub server: ServerSummary,
    /// When the run loaded the data set.
    pub load: Option<LoadReport>,
    pub durability: Durability,
    pub run_sheet: Vec<SheetLine>,
    pub verdict: VerdictStatus,
    pub verdicts: Vec<Verdict>,
    pub labels: BTreeMap<String, String>,
    pub record_dir: String,
    /// `null` until a report was made.
    pub report_html: Option<String>,
}

/// What sysbench-tpcc studies quote; labelled, because neither is NOPM.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Compat {
    /// tps × 60
    pub seed_tpmc_total: f64,
    /// tps × 60 × 10/23: New-Order's share of the deck, not a count
    pub seed_tpmc_neworder: f64,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct ProfileSummary {
    pub offered: u64,
    pub skipped: u64,
    pub committed: u64,
    pub rolled_back: u64,
    pub failed: u64,
    pub retries: u64,
    pub failures: BTreeMap<String, u64>,
    /// finished − scheduled
    pub response_time_us: LatencySummary,
    /// finished − started
    pub service_time_us: LatencySummary,
    /// started − scheduled
    pub lag_us: LatencySummary,
}

/// Microseconds.
#[derive(Debug, Serialize, JsonSchema)]
pub struct LatencySummary {
    pub mean: f64,
    pub p50: u64,
    pub p90: u64,
    pub p95: u64,
    pub p99: u64,
    pub p999: u64,
    pub max: u64,
}

impl From<&Latency> for LatencySummary {
    fn from(l: &Latency) -> Self {
        Self {
            mean: l.mean,
            p50: l.p50,
            p90: l.p90,
            p95: l.p95,
            p99: l.p99,
            p999: l.p999,
            max: l.max,
        }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct ServerSummary {
    /// When the server is local.
    pub cpu_us_per_txn: Option<f64>,
    pub wal_bytes: Option<i64>,
    pub checkpoints_timed: i64,
    pub checkpoints_requested: i64,
    /// What could not be read, and why.
    pub unavailable: BTreeMap<String, String>,
}

/// The summary of `record`, stored in `directory`.
pub fn summary(record: &RunRecord, directory: &Path) -> RunSummary {
    let counters = &record.server_counters;
    RunSummary {
        run_id: record.id.clone(),
        schema_version: record.schema_version,
        workload: record.plan.workload.clone(),
        dialect: record.plan.dialect.clone(),
        mode: record.plan.mode.clone(),
        protocol: record.plan.protocol.clone(),
        isolation: record.plan.isolation,
        seed: record.plan.seed,
        started_at: record.started_at.clone(),
        server_version: record.subject.postgres_version.clone(),
        measurement_s: record.drive.measurement_s,
        ended: record.drive.ended,
        connections: record.plan.connections,
        terminals: record.plan.terminals,
        warehouses: record.plan.warehouses,
        nopm: figures::nopm(record),
        tpm_total: figures::tpm_total(record),
        tps: figures::tps(record),
        compat: figures::nopm(record).map(|_| Compat {
            seed_tpmc_total: figures::tpm_total(record),
            seed_tpmc_neworder: figures::tpm_total(record) * 10.0 / 23.0,
        }),
        profiles: profiles(record),
        client: record.drive.client.clone(),
        server: ServerSummary {
            cpu_us_per_txn: figures::server_cpu_us_per_txn(record),
            wal_bytes: counters.wal_bytes,
            checkpoints_timed: counters.checkpoints_timed,
            checkpoints_requested: counters.checkpoints_requested,
            unavailable: counters.unavailable.clone(),
        },
        load: record.load.clone(),
        durability: record.durability.clone(),
        run_sheet: record.sheet.clone(),
        verdict: verdicts::overall(&record.verdicts),
        verdicts: record.verdicts.clone(),
        labels: record.plan.labels.clone(),
        record_dir: directory.display().to_string(),
        report_html: None,
    }
}

fn profiles(record: &RunRecord) -> BTreeMap<String, ProfileSummary> {
    record
        .profiles
        .iter()
        .zip(&record.drive.profiles)
        .map(|(info, profile)| {
            let counts = profile.counts;
            let summary = ProfileSummary {
                offered: counts.offered,
                skipped: counts.skipped,
                committed: counts.committed,
                rolled_back: counts.rolled_back,
                failed: counts.failed,
                retries: counts.retries,
                failures: profile.failures.clone(),
                response_time_us: (&profile.response_time).into(),
                service_time_us: (&profile.service_time).into(),
                lag_us: (&profile.lag).into(),
            };
            (info.name.clone(), summary)
        })
        .collect()
}

/// One line of `runs list --format json`.
#[derive(Debug, Serialize)]
pub struct RunLine {
    pub run_id: String,
    pub started_at: String,
    pub workload: String,
    pub nopm: Option<f64>,
    pub tps: f64,
    pub verdict: VerdictStatus,
    pub labels: BTreeMap<String, String>,
    pub record_dir: String,
}

/// The line of one stored run.
pub fn line(stored: &Stored) -> RunLine {
    let record = &stored.record;
    RunLine {
        run_id: record.id.clone(),
        started_at: record.started_at.clone(),
        workload: record.plan.workload.clone(),
        nopm: figures::nopm(record),
        tps: figures::tps(record),
        verdict: verdicts::overall(&record.verdicts),
        labels: record.plan.labels.clone(),
        record_dir: stored.directory.display().to_string(),
    }
}

/// The JSON schema of [`RunSummary`].
pub fn schema() -> String {
    let schema = schemars::schema_for!(RunSummary);
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::fixture;

    #[test]
    fn the_summary_has_every_name_of_the_contract() {
        let summary = summary(&fixture::healthy(), Path::new("/runs/x"));
        let json = serde_json::to_value(&summary).unwrap();
        for path in [
            "run_id",
            "schema_version",
            "workload",
            "dialect",
            "mode",
            "protocol",
            "seed",
            "server_version",
            "measurement_s",
            "connections",
            "terminals",
            "warehouses",
            "nopm",
            "tpm_total",
            "tps",
            "compat/seed_tpmc_total",
            "compat/seed_tpmc_neworder",
            "profiles/new_order/offered",
            "profiles/new_order/skipped",
            "profiles/new_order/committed",
            "profiles/new_order/rolled_back",
            "profiles/new_order/failed",
            "profiles/new_order/retries",
            "profiles/payment/response_time_us/mean",
            "profiles/payment/response_time_us/p999",
            "profiles/payment/service_time_us/p50",
            "profiles/payment/service_time_us/max",
            "client/cpu_us_per_txn",
            "client/cpu_share",
            "client/lag_us_p99",
            "server/cpu_us_per_txn",
            "load",
            "durability/class",
            "durability/reasons",
            "verdicts",
            "record_dir",
            "report_html",
        ] {
            assert!(
                json.pointer(&format!("/{path}")).is_some(),
                "{path} is missing"
            );
        }
    }

    #[test]
    fn figures_follow_from_the_counts() {
        let summary = summary(&fixture::healthy(), Path::new("/runs/x"));
        // 43,000 committed New-Orders in 600 s; 99,300 commits and 400 rollbacks in all.
        assert_eq!(summary.nopm, Some(4300.0));
        assert!(
            (summary.tpm_total - 9970.0).abs() < 1e-9,
            "{}",
            summary.tpm_total
        );
        assert!((summary.tps - 9970.0 / 60.0).abs() < 1e-9);
    }
}
