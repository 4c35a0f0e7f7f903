//! Making sessions: all of them before the run, and lost ones again during it.
//!
//! Connecting blocks. Lost sessions are therefore made by a thread of their own, one for each
//! worker and only once one was lost, so that a server that does not answer stalls nobody else.

use super::reactor::Waker;
use crate::clock::pause;
use crate::session::{ConnectOptions, Session, SessionError};
use std::cell::{Cell, RefCell};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

/// Pause after a first failed attempt; doubles up to [`BACKOFF_MAX`].
const BACKOFF_MIN: Duration = Duration::from_millis(10);
const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// Longest single attempt to connect again.
const ATTEMPT_MAX: Duration = Duration::from_secs(3);

/// Everything needed to make a session of the workload.
#[derive(Clone)]
pub(super) struct Recipe {
    pub(super) options: ConnectOptions,
    pub(super) setup: Vec<String>,
    pub(super) statements: Vec<&'static str>,
}

impl Recipe {
    /// Connects, runs the setup and prepares the statements; blocking.
    fn make(&self) -> Result<Session, SessionError> {
        let mut session = Session::connect(&self.options)?;
        for sql in &self.setup {
            session.query(sql)?;
        }
        session.prepare_all(&self.statements)?;
        Ok(session)
    }
}

/// What came of the helper thread's work.
pub(super) enum Made {
    /// A session for this slot.
    Session(u32, Box<Session>),
    /// One attempt failed; it goes on trying.
    Failed(SessionError),
}

/// The thread that makes lost sessions again, in the order in which they were lost.
struct Helper {
    /// Dropping it ends the thread.
    requests: Sender<u32>,
    made: Receiver<Made>,
}

/// Makes the sessions of one worker.
pub(super) struct Connector {
    /// `None` for workloads without a server.
    recipe: Option<Recipe>,
    waker: Waker,
    helper: RefCell<Option<Helper>>,
    /// Sessions asked for and not yet made.
    missing: Cell<u32>,
}

impl Connector {
    pub(super) fn new(recipe: Option<Recipe>, waker: Waker) -> Connector {
        Connector {
            recipe,
            waker,
            helper: RefCell::new(None),
            missing: Cell::new(0),
        }
    }

    /// A session now; blocking.
    pub(super) fn make(&self) -> Result<Session, SessionError> {
        match &self.recipe {
            Some(recipe) => recipe.make(),
            None => Ok(Session::detached()),
        }
    }

    /// Asks for a session for `slot`, which [`Connector::collect`] will hand over; false when
    /// there is no server and `make` gives one at once.
    pub(super) fn request(&self, slot: u32) -> bool {
        let Some(recipe) = &self.recipe else {
            return false;
        };
        let mut helper = self.helper.borrow_mut();
        let helper =
            helper.get_or_insert_with(|| Helper::start(recipe.clone(), self.waker.clone()));
        self.missing.set(self.missing.get() + 1);
        // A thread that is gone has panicked; the session stays missing and the run ends as lost.
        let _ = helper.requests.send(slot);
        true
    }

    /// What was made since the last call.
    #[inline]
    pub(super) fn collect(&self) -> Option<Made> {
        if self.missing.get() == 0 {
            return None;
        }
        let made = self.helper.borrow().as_ref()?.made.try_recv().ok()?;
        if matches!(made, Made::Session(..)) {
            self.missing.set(self.missing.get() - 1);
        }
        Some(made)
    }
}

impl Helper {
    fn start(mut recipe: Recipe, waker: Waker) -> Helper {
        let (requests, wanted) = mpsc::channel();
        let (results, made) = mpsc::channel();
        let limit = recipe.options.connect_timeout.unwrap_or(ATTEMPT_MAX);
        recipe.options.connect_timeout = Some(limit.min(ATTEMPT_MAX));
        // Not joined: an attempt under way must not hold up the end of the run.
        std::thread::spawn(move || make_again(&recipe, &wanted, &results, &waker));
        Helper { requests, made }
    }
}

fn make_again(recipe: &Recipe, wanted: &Receiver<u32>, results: &Sender<Made>, waker: &Waker) {
    let mut backoff = BACKOFF_MIN;
    while let Ok(slot) = wanted.recv() {
        loop {
            let (made, done) = match recipe.make() {
                Ok(session) => (Made::Session(slot, Box::new(session)), true),
                Err(error) => (Made::Failed(error), false),
            };
            if results.send(made).is_err() {
                return;
            }
            waker.wake();
            if done {
                backoff = BACKOFF_MIN;
                break;
            }
            pause(backoff);
            backoff = (backoff * 2).min(BACKOFF_MAX);
        }
    }
}
