//! A healthy record, made by hand, for tests of what reads records.

use super::*;

const NAMES: [&str; 5] = [
    "new_order",
    "payment",
    "order_status",
    "delivery",
    "stock_level",
];
const COMMITTED: [u64; 5] = [43_000, 43_400, 4_300, 4_300, 4_300];

fn counts(profile: usize) -> Counts {
    let rolled_back = if profile == 0 { 400 } else { 0 };
    Counts {
        offered: COMMITTED[profile] + rolled_back,
        committed: COMMITTED[profile],
        rolled_back,
        ..Counts::default()
    }
}

fn latency(scale: u64) -> Latency {
    Latency {
        count: 1000,
        mean: 1.1 * scale as f64,
        p50: scale,
        p90: 2 * scale,
        p95: 3 * scale,
        p99: 5 * scale,
        p999: 9 * scale,
        max: 20 * scale,
        hdr: String::new(),
    }
}

/// 600 s of paced TPC-C on 400 warehouses in which nothing is wrong.
#[allow(clippy::too_many_lines, reason = "one literal")]
pub(crate) fn healthy() -> RunRecord {
    let overall: Vec<Counts> = (0..5).map(counts).collect();
    let commits: u64 = COMMITTED.iter().sum();
    RunRecord {
        schema_version: SCHEMA_VERSION,
        id: "20261121T164414Z-tpcc-3f9a".to_owned(),
        started_at: "2026-11-21T16:44:14Z".to_owned(),
        plan: plan(),
        subject: subject(),
        load: None,
        drive: DriveRecord {
            measurement_s: 600.0,
            profiles: (0..5)
                .map(|profile| ProfileRecord {
                    counts: counts(profile),
                    response_time: latency(2000),
                    service_time: latency(1900),
                    lag: latency(100),
                    ..ProfileRecord::default()
                })
                .collect(),
            windows: vec![WindowRecord {
                begin_s: 0.0,
                length_s: 600.0,
                counts: overall.clone(),
                response_hdr: vec![String::new(); 5],
            }],
            overall,
            client: ClientCost {
                workers: 2,
                cpu_s: 6.0,
                cpu_us_per_txn: 60.0,
                cpu_share: 0.05,
                lag_us_p99: 500,
                round_trips_per_txn: 12.5,
            },
            ..DriveRecord::default()
        },
        profiles: NAMES
            .iter()
            .map(|&name| ProfileInfo {
                name: name.to_owned(),
                keying_s: 3.0,
                think_s: 12.0,
                response_limit_s: Some(5.0),
                deferred: name == "delivery",
            })
            .collect(),
        sheet: vec![SheetLine {
            name: "rollback_share".to_owned(),
            source: "TPC-C 2.4.1.4".to_owned(),
            measured: 0.0092,
            expected: 0.01,
            low: 0.009,
            high: 0.011,
            n: 43_400,
            status: VerdictStatus::Pass,
            detail: "0.92 % of New-Orders were rolled back".to_owned(),
        }],
        server_counters: ServerCounters {
            xact_commit: i64::try_from(commits).unwrap() + 40,
            checkpoints_timed: 2,
            wal_bytes: Some(600_000_000),
            server_cpu_s: Some(120.0),
            data: vec![DataCounterDelta {
                name: "d_next_o_id".to_owned(),
                profile: "new_order".to_owned(),
                delta: 43_000,
            }],
            ..ServerCounters::default()
        },
        invariants: vec![InvariantResult {
            name: "w_ytd_is_sum_of_d_ytd".to_owned(),
            source: "TPC-C 3.3.2.1".to_owned(),
            violations: 0,
            sample: Vec::new(),
        }],
        durability: Durability {
            class: DurabilityClass::Preserved,
            reasons: vec!["fsync, full_page_writes and synchronous_commit are on".to_owned()],
        },
        verdicts: Vec::new(),
    }
}

fn plan() -> RunPlan {
    RunPlan {
        workload: "tpcc".to_owned(),
        dialect: "spec".to_owned(),
        mode: "statements".to_owned(),
        protocol: "prepared".to_owned(),
        isolation: Isolation::RepeatableRead,
        schema: "tpcc".to_owned(),
        warehouses: 400,
        foreign_keys: true,
        seed: 42,
        data_seed: 42,
        connections: 8,
        terminals: 4000,
        workers: 2,
        keying_think: true,
        mix: Mix::Deck(NAMES.iter().map(|&n| (n.to_owned(), 1)).collect()),
        ramp_s: 60.0,
        measure_s: 600.0,
        transactions: None,
        window_s: 600.0,
        tries_max: 10,
        defines: BTreeMap::new(),
        settings: BTreeMap::new(),
        labels: BTreeMap::from([("who".to_owned(), "test".to_owned())]),
        target: "embedded PostgreSQL 18".to_owned(),
    }
}

fn subject() -> Subject {
    Subject {
        postgres_version: "18.6".to_owned(),
        postgres_version_num: 180_006,
        settings: BTreeMap::from([(
            "shared_buffers".to_owned(),
            Setting {
                value: "16384".to_owned(),
                unit: Some("8kB".to_owned()),
                source: "default".to_owned(),
                context: "postmaster".to_owned(),
            },
        )]),
        host: BTreeMap::from([("cpus".to_owned(), "2".to_owned())]),
        server_local: true,
        transport: "Unix socket".to_owned(),
        client_version: "0.1.0".to_owned(),
        data_version: 1,
    }
}
