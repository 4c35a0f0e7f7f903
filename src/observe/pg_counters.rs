//! `pg_stat_database`, the checkpointer's counters and the WAL position, by server version.

use crate::session::{Session, SessionError};

/// Absolute values at one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Snapshot {
    pub(super) xact_commit: i64,
    pub(super) xact_rollback: i64,
    pub(super) deadlocks: i64,
    pub(super) stats_reset: Option<String>,
    pub(super) checkpoints_timed: i64,
    pub(super) checkpoints_requested: i64,
    /// Bytes of WAL since the cluster began.
    pub(super) wal_bytes: Option<i64>,
}

/// One round trip for all of it.
pub(super) fn read(session: &mut Session) -> Result<Snapshot, SessionError> {
    let results = session.query(&sql(session.version()))?;
    let row = results
        .into_iter()
        .next()
        .and_then(|r| r.rows.into_iter().next());
    let row =
        row.ok_or_else(|| SessionError::wrong_result("pg_stat_database has no row for us"))?;
    let number = |i: usize| {
        row.get(i)
            .cloned()
            .flatten()
            .and_then(|v| v.parse::<i64>().ok())
    };
    Ok(Snapshot {
        xact_commit: number(0).unwrap_or(0),
        xact_rollback: number(1).unwrap_or(0),
        deadlocks: number(2).unwrap_or(0),
        stats_reset: row.get(3).cloned().flatten(),
        checkpoints_timed: number(4).unwrap_or(0),
        checkpoints_requested: number(5).unwrap_or(0),
        wal_bytes: number(6),
    })
}

fn sql(version: u32) -> String {
    // pg_stat_checkpointer took the counters over in 17; WAL functions were renamed in 10.
    let checkpoints = if version >= 170_000 {
        "(SELECT num_timed FROM pg_stat_checkpointer), \
         (SELECT num_requested FROM pg_stat_checkpointer)"
    } else {
        "(SELECT checkpoints_timed FROM pg_stat_bgwriter), \
         (SELECT checkpoints_req FROM pg_stat_bgwriter)"
    };
    let wal = if version >= 100_000 {
        "CASE WHEN pg_is_in_recovery() THEN NULL \
         ELSE pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::int8 END"
    } else {
        "CASE WHEN pg_is_in_recovery() THEN NULL \
         ELSE pg_xlog_location_diff(pg_current_xlog_insert_location(), '0/0')::int8 END"
    };
    format!(
        "SELECT xact_commit, xact_rollback, deadlocks, stats_reset, {checkpoints}, {wal} \
         FROM pg_stat_database WHERE datname = current_database()"
    )
}
