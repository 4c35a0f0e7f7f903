//! Waiting for a session where nobody drives it: with poll(2), in slices short enough to notice
//! an interrupt.

use super::cancel::CancelTarget;
use super::error::{Failure, SessionError};
use super::{Waits, socket};
use crate::clock::{Clock, Monotonic, Tick};
use crate::interrupt;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// The longest wait without a look at the interrupt flag.
const SLICE: Duration = Duration::from_millis(100);
/// A cancel request that comes before the statement does is lost: it is sent again after this.
const CANCEL_AGAIN: Duration = Duration::from_secs(1);
/// A statement that was cancelled and does not end within this time is given up, and its
/// connection with it.
const CANCEL_PATIENCE: Duration = Duration::from_secs(15);

/// Waits for one session.
pub(super) struct Blocker {
    /// `None` when detached.
    pub(super) fd: Option<Arc<OwnedFd>>,
    pub(super) waits: Arc<Waits>,
    /// How to cancel what the server is doing; `None` while connecting.
    pub(super) cancel: Option<Arc<CancelTarget>>,
    /// Ignore interrupts.
    pub(super) uninterruptible: bool,
    /// Give up at this time.
    pub(super) deadline: Option<Deadline>,
}

/// A point in time at which waiting ends with an error.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    clock: Monotonic,
    at: Tick,
    limit: Duration,
}

impl Deadline {
    /// `limit` from now.
    pub(super) fn after(limit: Duration) -> Self {
        let clock = Monotonic::start();
        Self {
            clock,
            at: clock.now().after(limit),
            limit,
        }
    }

    pub(super) fn left(&self) -> Duration {
        Duration::from_nanos(self.at.since(self.clock.now()))
    }
}

/// The error of an interrupted call.
pub(super) fn interrupted() -> SessionError {
    SessionError::new(Failure::Interrupted, "interrupted")
}

impl Blocker {
    /// Runs `step` until it is ready, waiting whenever it is pending.
    ///
    /// After an interrupt the statement is cancelled, and the result is `Interrupted` unless it
    /// succeeded all the same; the session stays usable.
    pub(super) fn run<T>(
        &self,
        mut step: impl FnMut() -> Poll<Result<T, SessionError>>,
    ) -> Result<T, SessionError> {
        self.check()?;
        let clock = Monotonic::start();
        // When the first cancel request went out, and when the next is due.
        let mut cancelled: Option<(Tick, Tick)> = None;
        let mut look = true;
        loop {
            if look {
                self.waits.now.set(clock.now());
                if let Poll::Ready(result) = step() {
                    return result.map_err(|error| self.blame(error, cancelled.is_some()));
                }
            }
            look = self.wait(&clock)?;
            if !self.stop_asked() {
                continue;
            }
            let now = clock.now();
            let (first, next) = cancelled.unwrap_or((now, now));
            let given_up = now >= first.after(CANCEL_PATIENCE);
            let Some(target) = self.cancel.as_ref().filter(|_| !given_up) else {
                return Err(interrupted());
            };
            if now >= next {
                // When it fails the patience above decides.
                let _ = target.cancel();
                cancelled = Some((first, clock.now().after(CANCEL_AGAIN)));
            }
        }
    }

    /// `Interrupted` when somebody has asked to stop.
    pub(super) fn check(&self) -> Result<(), SessionError> {
        if self.stop_asked() {
            return Err(interrupted());
        }
        Ok(())
    }

    /// Was it our cancel request that made the statement fail?
    fn blame(&self, error: SessionError, cancelled: bool) -> SessionError {
        if error.is("57014") && (cancelled || self.stop_asked()) {
            interrupted()
        } else {
            error
        }
    }

    /// Runs a future of a driven session.
    pub(super) fn run_future<T>(
        &self,
        future: impl Future<Output = Result<T, SessionError>>,
    ) -> Result<T, SessionError> {
        let mut future = pin!(future);
        let mut context = Context::from_waker(Waker::noop());
        self.run(|| future.as_mut().poll(&mut context))
    }

    fn stop_asked(&self) -> bool {
        !self.uninterruptible && interrupt::requested()
    }

    /// Waits for one slice; `true` when it is worth to look again.
    fn wait(&self, clock: &Monotonic) -> Result<bool, SessionError> {
        let mut timeout = SLICE;
        if let Some(deadline) = &self.deadline {
            let left = deadline.left();
            if left.is_zero() {
                return Err(timed_out(deadline.limit));
            }
            timeout = timeout.min(left);
        }
        let wake_at = self.waits.wake_at.get();
        if let Some(at) = wake_at {
            timeout = timeout.min(Duration::from_nanos(at.since(clock.now())));
        }
        let (read, write) = (self.waits.wants_read.get(), self.waits.wants_write.get());
        let ready = if let Some(fd) = &self.fd {
            socket::wait(fd, read, write, timeout)
                .map_err(|error| super::error::lost(Some(&error)))?
        } else {
            crate::clock::pause(timeout);
            false
        };
        Ok(ready || wake_at.is_some_and(|at| at <= clock.now()))
    }
}

fn timed_out(limit: Duration) -> SessionError {
    let mut error = SessionError::new(
        Failure::Disconnected,
        format!("no answer within {} s (connect_timeout)", limit.as_secs()),
    );
    error.hint = Some("check host, port and firewall, or raise connect_timeout".to_owned());
    error
}
