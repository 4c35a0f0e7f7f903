//! The rows, into the tables: batches are made on one thread of a pair and sent by the other.

use super::chunk::Chunk;
use super::crew::{Crew, Desk, stopped};
use super::marker;
use super::pool::Pool;
use super::sql::identifier;
use crate::record::TableLoad;
use crate::session::{Session, SessionError};
use crate::workload::DataSet;
use crate::workload::copy::{CopyBuffer, CopyFormat};
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};

/// Signature, no flags, no header extension.
const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
const TRAILER: &[u8] = &[0xff, 0xff];
/// Bytes given to the session at once; between two a stop is noticed and progress told.
const SLICE: usize = 1 << 20;
/// Buffers beyond one for each connection: making a batch takes a fraction of sending it.
const SPARE_MIN: usize = 2;

/// Rows and bytes sent since the last note.
pub(super) type Sent = TableLoad;

/// What a producer hands to its sender.
enum Piece {
    Begin(Chunk),
    Batch(CopyBuffer),
    End,
}

struct Line<'a> {
    data: &'a dyn DataSet,
    chunks: Mutex<VecDeque<Chunk>>,
    pool: Pool,
}

/// Loads `chunks` on the crew; `heard` is told of what was sent.
pub(super) fn copy(
    crew: &Crew<'_>,
    control: &mut Session,
    data: &dyn DataSet,
    chunks: VecDeque<Chunk>,
    heard: &mut dyn FnMut(Sent),
) -> Result<(), SessionError> {
    let line = Line {
        data,
        chunks: Mutex::new(chunks),
        pool: Pool::new(crew.size + SPARE_MIN.max(crew.size / 3), CopyFormat::Binary),
    };
    crew.run(
        control,
        &|session, desk| {
            std::thread::scope(|scope| {
                let (pieces, inbox) = sync_channel(1);
                let line = &line;
                scope.spawn(move || line.produce(&pieces, &|| desk.check().is_err()));
                let result = line.send_all(session, &inbox, desk);
                if result.is_err() {
                    // The producer may be waiting for a buffer.
                    desk.stop_all();
                }
                result
            })
        },
        heard,
    )
}

impl Line<'_> {
    /// Makes batches until no chunk is left, or nobody wants them any more.
    fn produce(&self, pieces: &SyncSender<Piece>, stopped: &dyn Fn() -> bool) -> Option<()> {
        loop {
            let next = self
                .chunks
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .pop_front();
            let Some(chunk) = next else {
                return Some(());
            };
            pieces.send(Piece::Begin(chunk.clone())).ok()?;
            for batch in chunk.first..chunk.first + chunk.batches {
                let mut buffer = self.pool.take(stopped)?;
                self.data.fill(chunk.table, batch, &mut buffer);
                pieces.send(Piece::Batch(buffer)).ok()?;
            }
            pieces.send(Piece::End).ok()?;
        }
    }

    fn send_all(
        &self,
        session: &mut Session,
        pieces: &Receiver<Piece>,
        desk: &Desk<'_, Sent>,
    ) -> Result<(), SessionError> {
        while let Ok(piece) = pieces.recv() {
            let Piece::Begin(chunk) = piece else {
                return Err(SessionError::wrong_result("a batch outside of any chunk"));
            };
            self.send_chunk(session, &chunk, pieces, desk)?;
        }
        desk.check()
    }

    fn send_chunk(
        &self,
        session: &mut Session,
        chunk: &Chunk,
        pieces: &Receiver<Piece>,
        desk: &Desk<'_, Sent>,
    ) -> Result<(), SessionError> {
        let table = &self.data.tables()[chunk.table];
        let name = identifier(table.name);
        session.query("BEGIN")?;
        if chunk.whole {
            session.query(&format!("TRUNCATE {name}"))?;
        }
        let columns: Vec<String> = table.columns.iter().map(|c| identifier(c)).collect();
        let freeze = if chunk.whole { ", FREEZE" } else { "" };
        let mut copy = session.copy_in(&format!(
            "COPY {name} ({}) FROM STDIN WITH (FORMAT binary{freeze})",
            columns.join(", ")
        ))?;
        copy.send(HEADER)?;
        let mut load = TableLoad {
            rows: 0,
            bytes: (HEADER.len() + TRAILER.len()) as u64,
        };
        loop {
            match pieces.recv() {
                Ok(Piece::Batch(buffer)) => {
                    send_batch(&buffer, desk, |slice| copy.send(slice))?;
                    load.rows += buffer.rows;
                    load.bytes += buffer.bytes.len() as u64;
                    self.pool.give_back(buffer);
                }
                Ok(Piece::End) => break,
                Ok(Piece::Begin(_)) | Err(_) => return Err(stopped()),
            }
        }
        copy.send(TRAILER)?;
        let stored = copy.finish()?;
        if stored != load.rows {
            return Err(SessionError::wrong_result(format!(
                "the server stored {stored} of {} rows of {}",
                load.rows, table.name
            )));
        }
        session.query(&marker::chunk_done(
            table.name,
            chunk.first,
            chunk.batches,
            &load,
        ))?;
        session.query("COMMIT").map(drop)
    }
}

/// Sends a batch in slices; rows are told in proportion to the bytes.
fn send_batch(
    buffer: &CopyBuffer,
    desk: &Desk<'_, Sent>,
    mut send: impl FnMut(&[u8]) -> Result<(), SessionError>,
) -> Result<(), SessionError> {
    let total = buffer.bytes.len() as u64;
    let (mut bytes, mut rows) = (0, 0);
    for slice in buffer.bytes.chunks(SLICE) {
        desk.check()?;
        send(slice)?;
        bytes += slice.len() as u64;
        let rows_now = buffer.rows * bytes / total;
        desk.tell(TableLoad {
            rows: rows_now - rows,
            bytes: slice.len() as u64,
        });
        rows = rows_now;
    }
    Ok(())
}
