//! Cutting the rows into transactions.
//!
//! A chunk is a run of consecutive batches of one table, loaded by one COPY in one transaction
//! together with its row in the progress table. A table that is one chunk is truncated in the
//! same transaction and loaded with FREEZE, which spares the later VACUUM its pass; more chunks
//! keep more connections busy and lose less when the load is killed.

use crate::workload::Table;
use std::collections::{BTreeMap, VecDeque};

/// A table of more estimated bytes than this is cut, so that a kill loses about a minute even
/// on a slow disk.
const WHOLE_BYTES_MAX: u64 = 1 << 30;
/// A table of more than this many connections' fair share of the bytes is cut, lest the others
/// idle while one connection loads it. More than one, because the usual connections are twice as
/// many as CPUs, and FREEZE saves about a sixth of the whole load (ten warehouses, two CPUs, four
/// connections: 8.6 s against 10.3 s, means of four).
const FAIR_SHARES_MAX: u64 = 3;
/// Estimated bytes of one chunk of a table that is cut.
const CHUNK_BYTES: u64 = 256 << 20;
/// Binary COPY bytes of an average column, length word included; enough to compare tables.
const COLUMN_BYTES: u64 = 18;

/// Consecutive batches of one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    /// Index into the data set's tables.
    pub(super) table: usize,
    pub(super) first: u64,
    pub(super) batches: u64,
    /// All batches of the table: TRUNCATE and FREEZE are possible.
    pub(super) whole: bool,
}

/// Batches already loaded, by table index: (first, batches), in any order.
pub(super) type Done = BTreeMap<usize, Vec<(u64, u64)>>;

/// Expected COPY bytes of a whole table.
pub(super) fn cost(table: &Table) -> u64 {
    let width = COLUMN_BYTES * (table.columns.len() as u64) + 2;
    table
        .batches
        .saturating_mul(table.rows_per_batch)
        .saturating_mul(width)
}

/// The chunks still to load, in the order in which connections should take them: tables that
/// are cut first, their chunks interleaved so that connections mostly extend different tables,
/// then whole tables, the largest first.
pub(super) fn plan(tables: &[Table], done: &Done, connections: usize) -> VecDeque<Chunk> {
    let total: u64 = tables.iter().map(cost).fold(0, u64::saturating_add);
    let fair_share = total / (connections.max(1) as u64);
    let mut cut: Vec<(u64, u64, Chunk)> = Vec::new();
    let mut whole = Vec::new();
    for (index, table) in tables.iter().enumerate() {
        if table.batches == 0 || table.columns.is_empty() {
            continue;
        }
        let bytes = cost(table);
        let loaded = done.get(&index).map_or(&[][..], Vec::as_slice);
        let whole_max = WHOLE_BYTES_MAX.min(fair_share.saturating_mul(FAIR_SHARES_MAX));
        if loaded.is_empty() && (bytes <= whole_max || table.batches == 1) {
            whole.push((
                bytes,
                Chunk {
                    table: index,
                    first: 0,
                    batches: table.batches,
                    whole: true,
                },
            ));
            continue;
        }
        let size = chunk_batches(table, fair_share);
        for (first, batches) in missing(table.batches, loaded) {
            for chunk in slices(index, first, batches, size) {
                // Position within the table in 1/2^16, so that tables advance abreast.
                let position = chunk.first.saturating_mul(1 << 16) / table.batches;
                cut.push((position, u64::MAX - bytes, chunk));
            }
        }
    }
    cut.sort_by_key(|(position, rank, chunk)| (*position, *rank, chunk.table));
    whole.sort_by_key(|(bytes, chunk)| (u64::MAX - bytes, chunk.table));
    cut.into_iter()
        .map(|(_, _, chunk)| chunk)
        .chain(whole.into_iter().map(|(_, chunk)| chunk))
        .collect()
}

/// Batches in one chunk of a table that is cut: about [`CHUNK_BYTES`], and small enough that
/// every connection gets several.
fn chunk_batches(table: &Table, fair_share: u64) -> u64 {
    let batch_bytes = (cost(table) / table.batches).max(1);
    let bytes = CHUNK_BYTES.min(fair_share / 4).max(batch_bytes);
    (bytes / batch_bytes).clamp(1, table.batches)
}

fn slices(table: usize, first: u64, batches: u64, size: u64) -> impl Iterator<Item = Chunk> {
    (0..batches.div_ceil(size)).map(move |i| Chunk {
        table,
        first: first + i * size,
        batches: size.min(batches - i * size),
        whole: false,
    })
}

/// What of `0..batches` is not in `loaded`.
fn missing(batches: u64, loaded: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut loaded = loaded.to_vec();
    loaded.sort_unstable();
    let mut gaps = Vec::new();
    let mut next = 0;
    for (first, count) in loaded {
        if first > next {
            gaps.push((next, first - next));
        }
        next = next.max(first + count);
    }
    if next < batches {
        gaps.push((next, batches - next));
    }
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn table(name: &'static str, batches: u64, rows_per_batch: u64) -> Table {
        Table {
            name,
            ddl: String::new(),
            columns: &["a", "b", "c"],
            batches,
            rows_per_batch,
        }
    }

    fn covered(chunks: &VecDeque<Chunk>, table: usize) -> Vec<u64> {
        let mut batches: Vec<u64> = chunks
            .iter()
            .filter(|c| c.table == table)
            .flat_map(|c| c.first..c.first + c.batches)
            .collect();
        batches.sort_unstable();
        batches
    }

    proptest! {
        #[test]
        fn every_missing_batch_is_loaded_exactly_once(
            batches in 0_u64..200,
            rows in 1_u64..10_000_000,
            connections in 1_usize..64,
            loaded in prop::collection::btree_set(0_u64..200, 0..40),
        ) {
            let tables = [table("a", batches, rows), table("b", 7, 100)];
            let loaded: Vec<u64> = loaded.into_iter().filter(|b| *b < batches).collect();
            let mut done = Done::new();
            if !loaded.is_empty() {
                done.insert(0, loaded.iter().map(|b| (*b, 1)).collect());
            }
            let chunks = plan(&tables, &done, connections);
            let want: Vec<u64> = (0..batches).filter(|b| !loaded.contains(b)).collect();
            prop_assert_eq!(covered(&chunks, 0), want);
            prop_assert_eq!(covered(&chunks, 1), (0..7).collect::<Vec<_>>());
        }

        #[test]
        fn a_chunk_is_whole_only_when_it_is_the_whole_table(
            batches in 1_u64..200, rows in 1_u64..10_000_000, connections in 1_usize..64,
        ) {
            let tables = [table("a", batches, rows)];
            for chunk in plan(&tables, &Done::new(), connections) {
                prop_assert_eq!(chunk.whole && chunk.batches != batches, false);
            }
            let done = Done::from([(0, vec![(0, 1)])]);
            prop_assert!(plan(&tables, &done, connections).iter().all(|c| !c.whole));
        }
    }

    #[test]
    fn small_tables_are_one_chunk_each_and_the_largest_comes_first() {
        let tables = [table("s", 1, 10), table("l", 10, 1000), table("m", 10, 900)];
        let chunks: Vec<_> = plan(&tables, &Done::new(), 4).into();
        assert!(chunks.iter().all(|c| c.whole), "{chunks:?}");
        assert_eq!(
            chunks.iter().map(|c| c.table).collect::<Vec<_>>(),
            [1, 2, 0]
        );
    }

    #[test]
    fn a_large_table_is_cut_so_that_every_connection_has_work() {
        let tables = [table("l", 1000, 300_000)];
        let chunks = plan(&tables, &Done::new(), 8);
        assert!(chunks.len() >= 32, "{}", chunks.len());
        assert!(
            chunks
                .iter()
                .all(|c| c.batches * 300_000 * 56 <= CHUNK_BYTES)
        );
    }

    #[test]
    fn a_table_that_starts_empty_needs_no_chunk() {
        let mut empty = table("e", 0, 0);
        empty.columns = &[];
        assert_eq!(plan(&[empty], &Done::new(), 4).len(), 0);
    }
}
