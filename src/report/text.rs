//! The summary of a run for a terminal or a log.

use crate::analysis::{figures, verdicts};
use crate::record::{Ended, RunRecord, Verdict, VerdictStatus};
use crate::units::{Bytes, grouped};
use std::fmt::Write as _;
use std::path::Path;

/// The whole summary. Verdicts that pass take one line together unless `all` is asked for.
pub fn summary(record: &RunRecord, directory: &Path, all: bool) -> String {
    let mut out = String::new();
    head(&mut out, record);
    figures_block(&mut out, record);
    profile_table(&mut out, record);
    cost(&mut out, record);
    sheet(&mut out, record);
    verdict_block(&mut out, &record.verdicts, all);
    let _ = writeln!(out, "record         {}", directory.display());
    out
}

fn head(out: &mut String, record: &RunRecord) {
    let plan = &record.plan;
    let _ = writeln!(out, "run            {}", record.id);
    if record.on_server() {
        let _ = writeln!(
            out,
            "server         PostgreSQL {} · {} · {}",
            record.subject.postgres_version, plan.target, record.subject.transport
        );
    }
    let scale = if record.on_server() {
        format!("{} warehouses · ", grouped(u64::from(plan.warehouses)))
    } else {
        String::new()
    };
    let _ = writeln!(
        out,
        "workload       {} ({}) · {scale}{} connections · {} terminals{} · {} · {} · seed {}",
        plan.workload,
        plan.dialect,
        plan.connections,
        grouped(u64::from(plan.terminals)),
        if plan.keying_think {
            " with keying and think times"
        } else {
            ""
        },
        plan.isolation.sql(),
        plan.mode,
        plan.seed
    );
}

fn figures_block(out: &mut String, record: &RunRecord) {
    let seconds = record.drive.measurement_s;
    let ended = match record.drive.ended {
        Ended::Planned => "",
        Ended::Interrupted => " · INTERRUPTED",
        Ended::ServerLost => " · SERVER LOST",
    };
    let _ = writeln!(
        out,
        "measured       {seconds:.1} s after {:.0} s of ramp-up{ended}",
        record.plan.ramp_s
    );
    if let Some(load) = &record.load {
        let _ = writeln!(
            out,
            "loaded         {} rows, {:.0} MB in {:.1} s ({:.1} MB/s; COPY {:.1} s, indexes {:.1} s, \
             rest {:.1} s)",
            grouped(load.rows),
            load.bytes as f64 / 1e6,
            load.seconds,
            load.mb_per_s,
            load.copy_seconds,
            load.index_seconds,
            load.finish_seconds
        );
    }
    out.push('\n');
    if let Some(nopm) = figures::nopm(record) {
        let _ = writeln!(out, "NOPM           {}", whole(nopm));
    }
    let _ = writeln!(out, "tpm            {}", whole(figures::tpm_total(record)));
    let _ = writeln!(out, "tps            {:.1}\n", figures::tps(record));
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rates are positive"
)]
fn whole(rate: f64) -> String {
    grouped(rate.max(0.0) as u64)
}

fn profile_table(out: &mut String, record: &RunRecord) {
    let _ = writeln!(
        out,
        "{:<13} {:>10} {:>11} {:>7} {:>8} | response ms: {:>8} {:>8} {:>8} {:>8} {:>9}",
        "profile",
        "committed",
        "rolled back",
        "failed",
        "retries",
        "mean",
        "p50",
        "p90",
        "p99",
        "max"
    );
    let ms = |us: u64| format!("{:.2}", us as f64 / 1000.0);
    for (info, profile) in record.profiles.iter().zip(&record.drive.profiles) {
        let (c, l) = (&profile.counts, &profile.response_time);
        let _ = writeln!(
            out,
            "{:<13} {:>10} {:>11} {:>7} {:>8} | {:>21.2} {:>8} {:>8} {:>8} {:>9}",
            info.name,
            grouped(c.committed),
            grouped(c.rolled_back),
            grouped(c.failed),
            grouped(c.retries),
            l.mean / 1000.0,
            ms(l.p50),
            ms(l.p90),
            ms(l.p99),
            ms(l.max)
        );
    }
    out.push('\n');
}

fn cost(out: &mut String, record: &RunRecord) {
    let client = &record.drive.client;
    let _ = write!(
        out,
        "client         {:.0} µs CPU a transaction · busiest worker {:.0} % of a core · lag p99 \
         {:.2} ms",
        client.cpu_us_per_txn,
        client.cpu_share * 100.0,
        client.lag_us_p99 as f64 / 1000.0
    );
    if client.round_trips_per_txn > 0.0 {
        let _ = write!(
            out,
            " · {:.1} round trips a transaction",
            client.round_trips_per_txn
        );
    }
    out.push('\n');
    if !record.on_server() {
        return;
    }
    let counters = &record.server_counters;
    let mut parts = Vec::new();
    if let Some(us) = figures::server_cpu_us_per_txn(record) {
        parts.push(format!("{us:.0} µs CPU a transaction"));
    }
    if let Some(wal) = counters.wal_bytes.and_then(|b| u64::try_from(b).ok()) {
        let completed = figures::totals(record).completed().max(1);
        parts.push(format!(
            "{} of WAL ({} a transaction)",
            Bytes(wal),
            Bytes(wal / completed)
        ));
    }
    parts.push(format!(
        "{} checkpoints",
        counters.checkpoints_timed + counters.checkpoints_requested
    ));
    let _ = writeln!(out, "server         {}", parts.join(" · "));
    let _ = writeln!(
        out,
        "durability     {}",
        serde_json::to_value(record.durability.class)
            .ok()
            .and_then(|v| v.as_str().map(|s| s.replace('_', " ")))
            .unwrap_or_default()
    );
}

fn sheet(out: &mut String, record: &RunRecord) {
    if record.sheet.is_empty() {
        return;
    }
    let _ = writeln!(out, "\nrun sheet      what the inputs really were");
    for line in &record.sheet {
        let _ = writeln!(
            out,
            "  {:<7} {:<26} {:>9}  in {} to {}  n {}  [{}]",
            status(line.status),
            line.name,
            short(line.measured),
            short(line.low),
            short(line.high),
            grouped(line.n),
            line.source
        );
        if line.status != VerdictStatus::Pass {
            let _ = writeln!(out, "          {}", line.detail);
        }
    }
}

/// Four significant digits: shares, means and p-values are all told apart by them.
fn short(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    #[allow(clippy::cast_possible_truncation, reason = "an exponent of ten")]
    let exponent = value.abs().log10().floor() as i32;
    if exponent < -4 {
        return format!("{value:.1e}");
    }
    let decimals = usize::try_from((3 - exponent).max(0)).unwrap_or(0);
    format!("{value:.decimals$}")
}

fn verdict_block(out: &mut String, all: &[Verdict], every: bool) {
    // Lines of the run sheet stand above already.
    let own: Vec<&Verdict> = all
        .iter()
        .filter(|v| !v.check.starts_with("inputs."))
        .collect();
    let _ = writeln!(
        out,
        "\nverdict        {}",
        status(verdicts::overall(all)).to_uppercase()
    );
    let mut passed = Vec::new();
    for verdict in own {
        if verdict.status == VerdictStatus::Pass && !every {
            passed.push(verdict.check.as_str());
        } else {
            let _ = writeln!(
                out,
                "  {:<7} {:<18} {}",
                status(verdict.status),
                verdict.check,
                verdict.detail
            );
        }
    }
    if !passed.is_empty() {
        let _ = writeln!(out, "  pass    {}", passed.join(", "));
    }
}

/// The word for a status.
pub fn status(status: VerdictStatus) -> &'static str {
    match status {
        VerdictStatus::Pass => "pass",
        VerdictStatus::Warn => "warn",
        VerdictStatus::Invalid => "invalid",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::fixture;

    #[test]
    fn the_summary_of_a_healthy_run_reads_well() {
        let mut record = fixture::healthy();
        record.verdicts = verdicts::judge(&record);
        insta::assert_snapshot!(summary(&record, Path::new("/runs/x"), false));
    }
}
