//! One connection: takes due transactions and runs them, attempt by attempt.

use super::pacing::Job;
use super::reactor::Reactor;
use super::recorder::Completion;
use super::worker::{Hub, InputOf, OutputOf, TerminalOf};
use crate::clock::Tick;
use crate::session::{Failure, Session, SessionError, Waits};
use crate::workload::{Outcome, ProfileId, Terminal, Workload};
use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::poll_fn;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// Transactions that one poll may run when none of them has to wait.
const BURST_MAX: u32 = 32;
/// Upper end of the pause before the first retry; doubles with each further one.
const BACKOFF: Duration = Duration::from_millis(1);
/// Doublings of [`BACKOFF`] at most.
const BACKOFF_DOUBLINGS: u32 = 6;
/// Pause before a session without a server is made again: time must pass.
const DETACHED_PAUSE: Duration = Duration::from_millis(10);

/// The worker's side of one connection.
pub(super) struct Link {
    /// Number of the connection within the worker.
    pub(super) slot: u32,
    waits: RefCell<Arc<Waits>>,
    fd: Cell<Option<RawFd>>,
    /// Has nothing to do.
    idle: Cell<bool>,
    /// Stands in the list of idle connections, perhaps no longer rightly.
    listed: Cell<bool>,
    free_since: Cell<Tick>,
    in_flight: Cell<Option<ProfileId>>,
    /// The server has closed its side.
    hung_up: Cell<bool>,
    /// Transactions run in this poll.
    burst: Cell<u32>,
    /// The alarm that counts; others are left over.
    alarm: Cell<Option<Tick>>,
    /// The reactor tells when the socket can be written to.
    writing: Cell<bool>,
    /// A session that was made again.
    delivered: Cell<Option<Box<Session>>>,
}

impl Link {
    pub(super) fn new(slot: u32, session: &Session) -> Link {
        Link {
            slot,
            waits: RefCell::new(session.waits()),
            fd: Cell::new(session.fd()),
            idle: Cell::new(false),
            listed: Cell::new(false),
            free_since: Cell::new(Tick(0)),
            in_flight: Cell::new(None),
            hung_up: Cell::new(false),
            burst: Cell::new(0),
            alarm: Cell::new(None),
            writing: Cell::new(false),
            delivered: Cell::new(None),
        }
    }

    /// The session is gone: nothing of it may be waited for.
    fn detach(&self) {
        *self.waits.borrow_mut() = Arc::default();
        self.fd.set(None);
        self.alarm.set(None);
        self.writing.set(false);
    }

    /// A new session takes the place of the lost one.
    fn attach(&self, session: &Session) {
        *self.waits.borrow_mut() = session.waits();
        self.fd.set(session.fd());
        self.hung_up.set(false);
        self.alarm.set(None);
        self.writing.set(false);
    }

    pub(super) fn begin(&self, profile: ProfileId) {
        self.idle.set(false);
        self.in_flight.set(Some(profile));
    }

    pub(super) fn end(&self, finished: Tick) {
        self.in_flight.set(None);
        self.free_since.set(finished);
    }

    /// The transaction in flight.
    pub(super) fn in_flight(&self) -> Option<ProfileId> {
        self.in_flight.get()
    }

    /// Idle from now on; true when it has to be put on the list.
    pub(super) fn rest(&self) -> bool {
        self.idle.set(true);
        !self.listed.replace(true)
    }

    /// Taken from the list of idle connections; true when it is still idle.
    pub(super) fn roused(&self) -> bool {
        self.listed.set(false);
        self.idle.get()
    }

    pub(super) fn heard(&self, hung_up: bool) {
        if hung_up {
            self.hung_up.set(true);
        }
    }

    pub(super) fn deliver(&self, session: Box<Session>) {
        self.delivered.set(Some(session));
    }

    pub(super) fn before_poll(&self, now: Tick) {
        self.burst.set(0);
        self.waits.borrow().now.set(now);
    }

    /// Is `tick` the alarm that counts? It has rung then.
    pub(super) fn alarm_is(&self, tick: Tick) -> bool {
        let rings = self.alarm.get() == Some(tick);
        if rings {
            self.alarm.set(None);
        }
        rings
    }

    /// The instant at which the session wants to be polled, when that is news.
    pub(super) fn new_alarm(&self) -> Option<Tick> {
        let wanted = self.waits.borrow().wake_at.get();
        if wanted == self.alarm.get() {
            return None;
        }
        self.alarm.set(wanted);
        wanted
    }

    /// Whether the session wants to write, when that is news.
    pub(super) fn new_write_interest(&self) -> Option<(RawFd, bool)> {
        let wanted = self.waits.borrow().wants_write.get();
        if wanted == self.writing.get() {
            return None;
        }
        self.writing.set(wanted);
        Some((self.fd.get()?, wanted))
    }
}

/// What a connection does next.
enum Next<I> {
    Run(Job<I>),
    Reconnect,
}

/// Runs due transactions for as long as it is polled.
pub(super) async fn serve<W: Workload, R: Reactor>(
    hub: &Hub<'_, W, R>,
    link: &Link,
    mut session: Session,
) -> Infallible {
    link.free_since.set(hub.reactor.now());
    loop {
        let alive = match next(hub, link).await {
            Next::Run(job) => transaction(hub, link, &mut session, job).await,
            Next::Reconnect => {
                let text = "the server closed a connection that had nothing to do";
                hub.note(&SessionError::new(Failure::Disconnected, text));
                false
            }
        };
        if !alive {
            link.detach();
            drop(session);
            session = reconnect(hub, link).await;
        }
    }
}

async fn next<W: Workload, R: Reactor>(hub: &Hub<'_, W, R>, link: &Link) -> Next<InputOf<W>> {
    poll_fn(|_| {
        if link.hung_up.get() {
            link.idle.set(false);
            return Poll::Ready(Next::Reconnect);
        }
        if link.burst.get() >= BURST_MAX {
            hub.give_way(link);
            return Poll::Pending;
        }
        match hub.take(link) {
            Some(job) => {
                link.burst.set(link.burst.get() + 1);
                Poll::Ready(Next::Run(job))
            }
            None => Poll::Pending,
        }
    })
    .await
}

/// Runs `job` to its end and reports it; false when the session is lost.
async fn transaction<W: Workload, R: Reactor>(
    hub: &Hub<'_, W, R>,
    link: &Link,
    session: &mut Session,
    job: Job<InputOf<W>>,
) -> bool {
    let mut output = OutputOf::<W>::default();
    let round_trips = session.round_trips();
    let started = hub.reactor.now();
    link.waits.borrow().now.set(started);
    let mut tries = 0;
    let ended = loop {
        tries += 1;
        if tries > 1 {
            output = OutputOf::<W>::default();
        }
        let error = match attempt(hub, &job.input, session, &mut output).await {
            Ok(outcome) => break Ok(outcome),
            Err(error) => error,
        };
        if !error.failure.retryable() || tries >= hub.plan.tries_max {
            break Err(error);
        }
        let pause = back_off(hub, tries);
        session.sleep_until(hub.reactor.now().after(pause)).await;
    };
    let completion = Completion {
        profile: job.profile,
        scheduled: job.scheduled,
        started,
        finished: hub.reactor.now(),
        free_since: link.free_since.get(),
        tries,
        round_trips: session.round_trips() - round_trips,
        result: ended.as_ref().copied().map_err(|error| error.failure),
    };
    let alive = match &ended {
        Ok(_) => true,
        Err(error) => {
            hub.note(error);
            error.failure != Failure::Disconnected
        }
    };
    hub.complete(link, &job, &completion, &output);
    alive
}

/// One attempt; the session is outside a transaction block afterwards, or lost.
async fn attempt<W: Workload, R>(
    hub: &Hub<'_, W, R>,
    input: &InputOf<W>,
    session: &mut Session,
    output: &mut OutputOf<W>,
) -> Result<Outcome, SessionError> {
    let mut result = TerminalOf::<W>::execute(input, session, output).await;
    if result.is_ok() && session.in_transaction() {
        result = Err(SessionError::wrong_result(
            "the transaction was still open when the workload called it ended",
        ));
    }
    match &result {
        // The COMMIT may have been under way: nobody can tell what became of it.
        Err(error) if error.failure == Failure::Disconnected => {
            hub.recorder.borrow_mut().totals().unknown_commits += 1;
        }
        Err(_) if session.in_transaction() => session.rollback().await?,
        _ => {}
    }
    result
}

/// A random pause below a bound that doubles: those who collided should not meet again.
fn back_off<W: Workload, R>(hub: &Hub<'_, W, R>, tries: u32) -> Duration {
    let bound = BACKOFF * (1 << (tries - 1).min(BACKOFF_DOUBLINGS));
    bound.mul_f64(hub.rng.borrow_mut().unit())
}

/// Waits for a session in place of the lost one.
async fn reconnect<W: Workload, R: Reactor>(hub: &Hub<'_, W, R>, link: &Link) -> Session {
    hub.shared.session_down();
    let session = loop {
        match replacement(hub, link).await {
            Ok(session) => break session,
            Err(error) => hub.note(&error),
        }
    };
    hub.shared.session_back();
    hub.recorder.borrow_mut().totals().reconnects += 1;
    link.free_since.set(hub.reactor.now());
    session
}

async fn replacement<W: Workload, R: Reactor>(
    hub: &Hub<'_, W, R>,
    link: &Link,
) -> Result<Session, SessionError> {
    if !hub.connector.request(link.slot) {
        let mut session = hub.connector.make()?;
        link.attach(&session);
        let until = hub.reactor.now().after(DETACHED_PAUSE);
        session.sleep_until(until).await;
        return Ok(session);
    }
    let session = *poll_fn(|_| match link.delivered.take() {
        Some(session) => Poll::Ready(session),
        None => Poll::Pending,
    })
    .await;
    link.attach(&session);
    if let Some(fd) = session.fd() {
        hub.reactor
            .add(fd, link.slot)
            .map_err(|error| SessionError::new(Failure::Disconnected, error.to_string()))?;
    }
    Ok(session)
}
