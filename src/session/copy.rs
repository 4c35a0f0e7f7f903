//! COPY … FROM STDIN.

use super::channel::Stop;
use super::error::{Failure, SessionError};
use super::reply::{self, Frames};
use super::{Session, blocking};
use crate::interrupt;
use crate::wire::frontend;

/// Data are sent when this much has gathered.
const SEND_AT: usize = 64 * 1024;
/// One `CopyData` message carries at most this much.
const CHUNK_MAX: usize = 1 << 20;

/// A COPY FROM STDIN under way. Dropped without `finish`, it sends `CopyFail`: the server then
/// stores nothing, and the session is usable again.
pub struct CopyIn<'a> {
    session: &'a mut Session,
    /// The exchange has ended: with `finish`, or with an error of the server.
    ended: bool,
}

impl<'a> CopyIn<'a> {
    pub(super) fn new(session: &'a mut Session) -> Self {
        Self {
            session,
            ended: false,
        }
    }

    /// Sends one chunk of COPY data (any split; bytes are not interpreted).
    pub fn send(&mut self, data: &[u8]) -> Result<(), SessionError> {
        if self.ended {
            return Err(SessionError::new(
                Failure::OtherSql,
                "this COPY has already failed",
            ));
        }
        for chunk in data.chunks(CHUNK_MAX) {
            let channel = self.session.channel()?;
            frontend::copy_data(&mut channel.output, chunk);
            if channel.output.len() >= SEND_AT {
                self.pump()?;
            }
        }
        Ok(())
    }

    /// Ends the COPY; returns the number of rows the server stored.
    pub fn finish(mut self) -> Result<u64, SessionError> {
        if self.ended {
            return Err(SessionError::new(
                Failure::OtherSql,
                "this COPY has already failed",
            ));
        }
        if !self.session.uninterruptible && interrupt::requested() {
            return Err(blocking::interrupted());
        }
        frontend::copy_done(&mut self.session.channel()?.output);
        self.end()?;
        let complete = Frames(self.session.channel()?.reply()).find(|frame| frame.tag == b'C');
        Ok(complete.map_or(0, |frame| reply::affected(frame.body)))
    }

    /// Writes what has gathered; an error of the server ends the COPY at once.
    fn pump(&mut self) -> Result<(), SessionError> {
        let blocker = self.session.blocker();
        let channel = self.session.channel()?;
        blocker.run(|| channel.poll_send())?;
        if channel.error_so_far() {
            return self.end();
        }
        Ok(())
    }

    /// Waits until the server is ready again.
    fn end(&mut self) -> Result<(), SessionError> {
        self.ended = true;
        let blocker = self.session.blocker();
        let channel = self.session.channel()?;
        let stop = blocker.run(|| channel.poll_exchange(false))?;
        debug_assert_eq!(stop, Stop::Ready);
        Ok(())
    }
}

impl Drop for CopyIn<'_> {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let mut blocker = self.session.blocker();
        // The session must be usable for clean-up, above all after an interrupt.
        blocker.uninterruptible = true;
        if let Ok(channel) = self.session.channel() {
            frontend::copy_fail(&mut channel.output, "the client gave up");
            // The error that follows is the one asked for.
            let _ = blocker.run(|| channel.poll_exchange(false));
        }
    }
}
