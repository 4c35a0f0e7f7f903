//! Real and virtual time, as the driving thread sees them.

use super::Message;
use super::reactor::{Epoll, Reactor, VirtualTime, Waker};
use crate::clock::{Clock, Monotonic, Tick};
use std::cell::Cell;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// Real or virtual time.
pub(super) trait Runtime {
    type Reactor: Reactor + Send;
    /// What a worker waits on, and what wakes it.
    fn reactor(&self) -> io::Result<(Self::Reactor, Waker)>;
    /// Now, for the driving thread.
    fn now(&self) -> Tick;
    /// The next message, at the latest at `until`.
    fn receive(&self, inbox: &Receiver<Message>, until: Tick) -> Option<Message>;
}

pub(super) struct RealTime {
    pub(super) clock: Monotonic,
}

impl Runtime for RealTime {
    type Reactor = Epoll;

    fn reactor(&self) -> io::Result<(Epoll, Waker)> {
        let epoll = Epoll::new(self.clock)?;
        let waker = epoll.waker();
        Ok((epoll, waker))
    }

    fn now(&self) -> Tick {
        self.clock.now()
    }

    fn receive(&self, inbox: &Receiver<Message>, until: Tick) -> Option<Message> {
        let timeout = Duration::from_nanos(until.since(self.now()));
        match inbox.recv_timeout(timeout) {
            Ok(message) => Some(message),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Message::Gone { well: false }),
        }
    }
}

/// The driving thread follows the workers: its time is that of the last window it heard of.
#[derive(Default)]
pub(super) struct Virtual {
    now: Cell<Tick>,
}

impl Runtime for Virtual {
    type Reactor = VirtualTime;

    fn reactor(&self) -> io::Result<(VirtualTime, Waker)> {
        Ok((VirtualTime::default(), Waker::none()))
    }

    fn now(&self) -> Tick {
        self.now.get()
    }

    fn receive(&self, inbox: &Receiver<Message>, _until: Tick) -> Option<Message> {
        let message = inbox.recv().ok();
        if let Some(Message::Frame(frame)) = &message {
            self.now.set(self.now.get().max(frame.end));
        }
        message.or(Some(Message::Gone { well: false }))
    }
}
