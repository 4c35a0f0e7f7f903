//! The buffers of one connection and their exchange with the server, without waiting: whoever
//! polls decides how to wait.

use super::error::{Failure, SessionError};
use super::socket::Socket;
use super::{Waits, error};
use crate::wire::backend::{self, Frame, Message, TransactionStatus};
use crate::wire::{Malformed, frontend};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Poll, ready};

/// First size of the receive buffer: the replies of one transaction fit.
const INPUT_MIN: usize = 32 * 1024;

/// Where an exchange has come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// `ReadyForQuery`: the reply is complete.
    Ready,
    /// `CopyInResponse`: the server waits for rows.
    CopyIn,
}

/// The exchange under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exchange {
    None,
    /// A `Query`.
    Simple,
    /// Messages that end with `Sync`.
    Extended,
}

/// A connection as two buffers.
pub(super) struct Channel {
    pub(super) socket: Socket,
    pub(super) waits: Arc<Waits>,
    pub(super) parameters: BTreeMap<String, String>,
    pub(super) status: TransactionStatus,
    /// Messages to send; those before `sent` are on their way.
    pub(super) output: Vec<u8>,
    sent: usize,
    /// The send buffer was full during this exchange.
    blocked: bool,
    /// Received bytes are `input[..end]`; those before `scanned` are understood.
    input: Vec<u8>,
    scanned: usize,
    end: usize,
    /// The last read left nothing in the socket.
    drained: bool,
    /// The first error of this exchange.
    error: Option<SessionError>,
    /// A server that stops at once says so in a notice, and closes.
    farewell: Option<SessionError>,
    exchange: Exchange,
    /// Why the connection is of no use any more.
    broken: Option<SessionError>,
}

impl Channel {
    pub(super) fn new(socket: Socket) -> Self {
        Self {
            socket,
            waits: Arc::default(),
            parameters: BTreeMap::new(),
            status: TransactionStatus::Idle,
            output: Vec::new(),
            sent: 0,
            blocked: false,
            input: vec![0; INPUT_MIN],
            scanned: 0,
            end: 0,
            drained: false,
            error: None,
            farewell: None,
            exchange: Exchange::None,
            broken: None,
        }
    }

    /// Begins an exchange: the reply to what is in `output` will be [`Self::reply`].
    pub(super) fn begin(&mut self, exchange: Exchange) -> Result<(), SessionError> {
        if self.exchange != Exchange::None && self.broken.is_none() {
            self.broken = Some(SessionError::new(
                Failure::Disconnected,
                "the session was given up in the middle of a round trip",
            ));
        }
        if let Some(broken) = &self.broken {
            self.output.clear();
            return Err(broken.clone());
        }
        self.blocked = false;
        self.drained = false;
        self.exchange = exchange;
        self.error = None;
        self.forget_scanned();
        Ok(())
    }

    /// What the last exchange brought.
    pub(super) fn reply(&self) -> &[u8] {
        &self.input[..self.scanned]
    }

    pub(super) fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// Sends all output and takes messages until `ReadyForQuery`, or until the server waits for
    /// COPY data when `copy_in` allows that. An `ErrorResponse` is the result when the server is
    /// ready again.
    pub(super) fn poll_exchange(&mut self, copy_in: bool) -> Poll<Result<Stop, SessionError>> {
        loop {
            let range = ready!(self.poll_frame())?;
            match self.input[range.start] {
                b'Z' => {
                    if let Err(malformed) = self.note(range) {
                        return Poll::Ready(Err(self.break_off(malformed.into())));
                    }
                    self.exchange = Exchange::None;
                    return Poll::Ready(match self.error.take() {
                        Some(error) => Err(error),
                        None => Ok(Stop::Ready),
                    });
                }
                b'G' if copy_in => return Poll::Ready(Ok(Stop::CopyIn)),
                b'G' => self.refuse_copy(),
                b'E' | b'N' | b'S' => {
                    if let Err(malformed) = self.note(range) {
                        return Poll::Ready(Err(self.break_off(malformed.into())));
                    }
                }
                _ => {}
            }
        }
    }

    /// Sends all output and takes the next message; its place in the input.
    pub(super) fn poll_frame(&mut self) -> Poll<Result<Range<usize>, SessionError>> {
        if let Some(broken) = &self.broken {
            return Poll::Ready(Err(broken.clone()));
        }
        self.waits.wants_read.set(true);
        self.waits.wants_write.set(false);
        if !self.output.is_empty() && self.send() {
            // The answer takes a while: looking for it now would be a system call in vain.
            return Poll::Pending;
        }
        loop {
            match backend::frame(&self.input[self.scanned..self.end]) {
                Err(malformed) => return Poll::Ready(Err(self.break_off(malformed.into()))),
                Ok(Some(frame)) => {
                    let begin = self.scanned;
                    self.scanned += frame.size();
                    self.waits.wants_read.set(false);
                    return Poll::Ready(Ok(begin..self.scanned));
                }
                Ok(None) => ready!(self.poll_read())?,
            }
        }
    }

    /// Forgets what is understood: its space is used again.
    pub(super) fn forget_scanned(&mut self) {
        self.input.copy_within(self.scanned..self.end, 0);
        self.end -= self.scanned;
        self.scanned = 0;
    }

    /// The message at `range`, as `poll_frame` gave it.
    pub(super) fn message(&self, range: Range<usize>) -> Result<Message<'_>, SessionError> {
        let bytes = &self.input[range];
        let frame = Frame {
            tag: bytes[0],
            body: &bytes[5..],
        };
        Ok(backend::message(frame)?)
    }

    /// Keeps what matters later of a message.
    pub(super) fn note(&mut self, range: Range<usize>) -> Result<(), Malformed> {
        let bytes = &self.input[range];
        let frame = Frame {
            tag: bytes[0],
            body: &bytes[5..],
        };
        match backend::message(frame)? {
            Message::ReadyForQuery(status) => self.status = status,
            Message::ErrorResponse(fields) if self.error.is_none() => {
                self.error = Some(error::from_server(&fields));
            }
            Message::NoticeResponse(fields)
                if fields
                    .get(b'C')
                    .is_some_and(|state| state.starts_with(b"57P")) =>
            {
                self.farewell = Some(error::from_server(&fields));
            }
            Message::ParameterStatus { name, value } => {
                let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
                self.parameters.insert(text(name), text(value));
            }
            _ => {}
        }
        Ok(())
    }

    /// Marks the connection as useless because of `error`, which is handed back.
    pub(super) fn break_off(&mut self, error: SessionError) -> SessionError {
        self.broken = Some(error.clone());
        error
    }

    /// The first error that the server reported in this exchange, before it is ready again.
    pub(super) fn error_so_far(&self) -> bool {
        self.error.is_some()
    }

    /// Sends all output without waiting for an answer; what has arrived meanwhile is looked at
    /// for errors only.
    pub(super) fn poll_send(&mut self) -> Poll<Result<(), SessionError>> {
        if let Some(broken) = &self.broken {
            return Poll::Ready(Err(broken.clone()));
        }
        self.waits.wants_read.set(true);
        self.waits.wants_write.set(false);
        self.send();
        loop {
            match backend::frame(&self.input[self.scanned..self.end]) {
                Err(malformed) => return Poll::Ready(Err(self.break_off(malformed.into()))),
                Ok(Some(frame)) if frame.tag == b'Z' => break,
                Ok(Some(frame)) => {
                    let begin = self.scanned;
                    self.scanned += frame.size();
                    if let Err(malformed) = self.note(begin..self.scanned) {
                        return Poll::Ready(Err(self.break_off(malformed.into())));
                    }
                }
                Ok(None) => match self.poll_read() {
                    Poll::Ready(done) => done?,
                    Poll::Pending => break,
                },
            }
        }
        self.forget_scanned();
        if self.output.is_empty() {
            Poll::Ready(Ok(()))
        } else {
            Poll::Pending
        }
    }

    /// Sends output as far as it goes; `true` when all went at the first attempt.
    fn send(&mut self) -> bool {
        while self.sent < self.output.len() {
            match self.socket.write(&self.output[self.sent..]) {
                Ok(length) => self.sent += length,
                Err(error) => return self.not_sent(&error),
            }
        }
        if let Err(error) = self.socket.flush() {
            return self.not_sent(&error);
        }
        self.output.clear();
        self.sent = 0;
        !self.blocked
    }

    fn not_sent(&mut self, error: &io::Error) -> bool {
        if error.kind() == io::ErrorKind::WouldBlock {
            self.blocked = true;
            self.waits.wants_write.set(true);
        } else {
            // The server may have said why before it closed: reading tells.
            self.output.clear();
            self.sent = 0;
        }
        false
    }

    /// Reads once; ready when something came.
    fn poll_read(&mut self) -> Poll<Result<(), SessionError>> {
        if self.end == self.input.len() {
            self.input.resize(self.input.len() * 2, 0);
        }
        if std::mem::take(&mut self.drained) {
            return Poll::Pending;
        }
        match self.socket.read(&mut self.input[self.end..]) {
            Ok(0) => Poll::Ready(Err(self.lost(None))),
            Ok(length) => {
                self.end += length;
                // A short read has emptied the socket (epoll(7)); under TLS it says nothing.
                self.drained = self.end < self.input.len() && self.socket.tls().is_none();
                Poll::Ready(Ok(()))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
            Err(error) => Poll::Ready(Err(self.lost(Some(&error)))),
        }
    }

    fn lost(&mut self, cause: Option<&io::Error>) -> SessionError {
        let error = match self.error.take().or(self.farewell.take()) {
            Some(mut last_words) => {
                last_words.failure = Failure::Disconnected;
                last_words
            }
            None => error::lost(cause),
        };
        self.break_off(error)
    }

    /// A statement wants COPY data that nobody will send.
    fn refuse_copy(&mut self) {
        if self.error.is_none() {
            self.error = Some(SessionError::new(
                Failure::OtherSql,
                "COPY FROM STDIN works only through copy_in",
            ));
        }
        frontend::copy_fail(&mut self.output, "no data will come");
        // Between CopyInResponse and CopyFail the server ignores the Sync that it already has.
        if self.exchange == Exchange::Extended {
            frontend::sync(&mut self.output);
        }
    }
}
