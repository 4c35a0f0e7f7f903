//! Was the client the bottleneck?

use super::Finding;
use crate::record::RunRecord;

const SHARE_WARN: f64 = 0.75;
const SHARE_INVALID: f64 = 0.95;

pub(super) fn headroom(record: &RunRecord) -> Option<Finding> {
    // Without a server the driver is what is measured.
    if !record.on_server() {
        return None;
    }
    let client = &record.drive.client;
    let share = client.cpu_share;
    let detail = format!(
        "the busiest of {} workers used {:.0} % of a core, {:.0} µs of CPU a transaction; p99 of \
         the lag is {:.1} ms",
        client.workers,
        share * 100.0,
        client.cpu_us_per_txn,
        client.lag_us_p99 as f64 / 1000.0
    );
    if share >= SHARE_INVALID {
        return Finding::invalid(format!(
            "{detail}: the client was measured, not the server; use more --workers or another host"
        ));
    }
    if share >= SHARE_WARN {
        return Finding::warn(format!("{detail}: little headroom; use more --workers"));
    }
    Finding::pass(detail)
}

pub(super) fn reconnects(record: &RunRecord) -> Option<Finding> {
    match record.drive.reconnects {
        0 => Finding::pass("no connection was lost"),
        n => Finding::warn(format!(
            "{n} connections were lost and made again; {} commits may or may not have happened; \
             the server's log tells why",
            record.drive.unknown_commits
        )),
    }
}
