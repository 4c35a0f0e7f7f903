//! What a driven session waits for.

use crate::clock::Tick;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Shared between a session and the worker that polls it, both on one thread. The fields are
/// cells, atomic only so that a session may be made by one thread and used by another.
#[derive(Debug, Default)]
pub struct Waits {
    /// The current tick; the worker sets it before every poll.
    pub now: TickCell,
    /// Set by [`super::Session::sleep_until`]: poll again at this tick.
    pub wake_at: AlarmCell,
    /// Poll again when the socket is readable. (Level- and edge-triggered epoll both do: a session
    /// that returns `Pending` has emptied the socket or not looked since its last request. Only
    /// the end of the stream may have arrived unseen with the last bytes: poll again on a hangup.)
    pub wants_read: Flag,
    /// The socket's send buffer is full: poll again when it is writable.
    pub wants_write: Flag,
}

/// A tick that changes.
#[derive(Debug, Default)]
pub struct TickCell(AtomicU64);

impl TickCell {
    pub fn get(&self) -> Tick {
        Tick(self.0.load(Relaxed))
    }

    pub fn set(&self, tick: Tick) {
        self.0.store(tick.0, Relaxed);
    }
}

/// A tick, or none. Stored plus one, zero is none.
#[derive(Debug, Default)]
pub struct AlarmCell(AtomicU64);

impl AlarmCell {
    pub fn get(&self) -> Option<Tick> {
        self.0.load(Relaxed).checked_sub(1).map(Tick)
    }

    pub fn set(&self, tick: Option<Tick>) {
        let stored = tick.map_or(0, |tick| tick.0.saturating_add(1));
        self.0.store(stored, Relaxed);
    }
}

/// Yes or no.
#[derive(Debug, Default)]
pub struct Flag(AtomicBool);

impl Flag {
    pub fn get(&self) -> bool {
        self.0.load(Relaxed)
    }

    pub fn set(&self, value: bool) {
        self.0.store(value, Relaxed);
    }
}
