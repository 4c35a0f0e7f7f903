//! Where a worker waits: for sockets and a timer, or in tests for virtual time.

use crate::clock::{Clock, Monotonic, Tick};
use rustix::event::{EventfdFlags, epoll};
use rustix::fd::{BorrowedFd, OwnedFd, RawFd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::cell::Cell;
use std::io;
use std::mem::MaybeUninit;
use std::sync::Arc;

/// A session whose socket has news.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ready {
    /// Number of the connection within the worker.
    pub(super) slot: u32,
    /// The server has closed its side.
    pub(super) hung_up: bool,
}

/// The clock of a worker and what it sleeps on.
pub(super) trait Reactor: Clock {
    /// Tells of news on `fd` from now on; closing the socket ends it.
    fn add(&self, fd: RawFd, slot: u32) -> io::Result<()>;

    /// Tells also when `fd` can be written to, or no longer.
    fn watch_writable(&self, fd: RawFd, slot: u32, writable: bool) -> io::Result<()>;

    /// Waits for news, at most until `until`; appends to `ready`.
    fn wait(&self, until: Tick, ready: &mut Vec<Ready>) -> io::Result<()>;
}

const TIMER: u64 = u64::MAX;
const WAKER: u64 = u64::MAX - 1;
/// Events taken from the kernel at once.
const EVENTS_MAX: usize = 256;

/// Ends a worker's wait from another thread.
#[derive(Clone, Debug)]
pub(super) struct Waker(Option<Arc<OwnedFd>>);

impl Waker {
    /// A waker for a reactor that never really waits.
    pub(super) fn none() -> Waker {
        Waker(None)
    }

    pub(super) fn wake(&self) {
        if let Some(event) = &self.0 {
            // Fails only when the counter is full, and then the worker is awake.
            let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
        }
    }
}

/// Edge-triggered epoll, and one timer descriptor for instants finer than its milliseconds.
///
/// Sockets are registered once, for reading only: a Unix socket reports that it can be written to
/// whenever the peer has read, which would cost a wakeup per round trip. Edges of the timer and
/// the waker need no read to be reset. The timer is set only when the next instant changes, which
/// for sessions that wait for the server is once per window.
#[derive(Debug)]
pub(super) struct Epoll {
    clock: Monotonic,
    queue: OwnedFd,
    timer: OwnedFd,
    waker: Arc<OwnedFd>,
    /// What the timer is set to; the end of time when it is not.
    armed: Cell<Tick>,
}

impl Epoll {
    pub(super) fn new(clock: Monotonic) -> io::Result<Epoll> {
        let queue = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
        )?;
        let waker = rustix::event::eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        let edge = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&queue, &timer, epoll::EventData::new_u64(TIMER), edge)?;
        epoll::add(&queue, &waker, epoll::EventData::new_u64(WAKER), edge)?;
        Ok(Epoll {
            clock,
            queue,
            timer,
            waker: Arc::new(waker),
            armed: Cell::new(Tick(u64::MAX)),
        })
    }

    pub(super) fn waker(&self) -> Waker {
        Waker(Some(Arc::clone(&self.waker)))
    }

    fn arm(&self, until: Tick, now: Tick) -> io::Result<()> {
        if self.armed.get() == until && now < until {
            return Ok(());
        }
        let nanos = until.since(now);
        let timer = Itimerspec {
            it_interval: Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: Timespec {
                tv_sec: i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MAX),
                tv_nsec: (nanos % 1_000_000_000).try_into().unwrap_or(0),
            },
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &timer)?;
        self.armed.set(until);
        Ok(())
    }
}

impl Clock for Epoll {
    fn now(&self) -> Tick {
        self.clock.now()
    }
}

/// # Safety
/// `fd` must be open for as long as the result is used.
#[allow(unsafe_code, reason = "sessions hand out raw descriptors")]
unsafe fn borrow<'a>(fd: RawFd) -> BorrowedFd<'a> {
    // SAFETY: the caller's promise.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

fn socket_flags(writable: bool) -> epoll::EventFlags {
    let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
    if writable {
        flags | epoll::EventFlags::OUT
    } else {
        flags
    }
}

#[allow(unsafe_code, reason = "sessions hand out raw descriptors")]
impl Reactor for Epoll {
    fn add(&self, fd: RawFd, slot: u32) -> io::Result<()> {
        let data = epoll::EventData::new_u64(slot.into());
        // SAFETY: the session that owns the descriptor is alive in the caller.
        let fd = unsafe { borrow(fd) };
        Ok(epoll::add(&self.queue, fd, data, socket_flags(false))?)
    }

    fn watch_writable(&self, fd: RawFd, slot: u32, writable: bool) -> io::Result<()> {
        let data = epoll::EventData::new_u64(slot.into());
        // SAFETY: the session that owns the descriptor is alive in the caller.
        let fd = unsafe { borrow(fd) };
        Ok(epoll::modify(
            &self.queue,
            fd,
            data,
            socket_flags(writable),
        )?)
    }

    fn wait(&self, until: Tick, ready: &mut Vec<Ready>) -> io::Result<()> {
        let now = self.now();
        let zero = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let timeout = if until <= now {
            Some(&zero)
        } else {
            self.arm(until, now)?;
            None
        };
        let mut buffer = [MaybeUninit::uninit(); EVENTS_MAX];
        let events = match epoll::wait(&self.queue, &mut buffer, timeout) {
            Ok((events, _)) => events,
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let gone = epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
        for event in events.iter() {
            let (flags, data) = (event.flags, event.data);
            if let Ok(slot) = u32::try_from(data.u64()) {
                ready.push(Ready {
                    slot,
                    hung_up: flags.intersects(gone),
                });
            }
        }
        Ok(())
    }
}

/// Time that jumps to the next instant at which something happens; for workloads without a server.
#[derive(Debug, Default)]
pub(super) struct VirtualTime {
    now: Cell<Tick>,
}

impl Clock for VirtualTime {
    fn now(&self) -> Tick {
        self.now.get()
    }
}

impl Reactor for VirtualTime {
    fn add(&self, _fd: RawFd, _slot: u32) -> io::Result<()> {
        Err(io::Error::other("a socket cannot live in virtual time"))
    }

    fn watch_writable(&self, fd: RawFd, slot: u32, _writable: bool) -> io::Result<()> {
        self.add(fd, slot)
    }

    fn wait(&self, until: Tick, _ready: &mut Vec<Ready>) -> io::Result<()> {
        if until == Tick(u64::MAX) {
            return Err(io::Error::other("nothing will ever happen"));
        }
        self.now.set(self.now.get().max(until));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    fn epoll() -> Epoll {
        Epoll::new(Monotonic::start()).unwrap()
    }

    fn wait(epoll: &Epoll, limit: Duration) -> Vec<Ready> {
        let mut ready = Vec::new();
        epoll.wait(epoll.now().after(limit), &mut ready).unwrap();
        ready
    }

    #[test]
    fn a_wait_ends_at_its_instant_and_not_before() {
        let epoll = epoll();
        for micros in [0, 1, 300, 1700, 5000, 300] {
            let until = epoll.now().after(Duration::from_micros(micros));
            while epoll.now() < until {
                epoll.wait(until, &mut Vec::new()).unwrap();
            }
            // Loose, for busy machines; a timer of whole milliseconds or a lost one would hang.
            assert!(epoll.now().since(until) < 1_000_000_000);
        }
    }

    #[test]
    fn news_on_a_socket_is_told_once_for_each_arrival() {
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        let epoll = epoll();
        epoll.add(ours.as_raw_fd(), 7).unwrap();
        let short = Duration::from_millis(5);
        assert!(wait(&epoll, short).is_empty());
        for _ in 0..2 {
            theirs.write_all(b"x").unwrap();
            let ready = wait(&epoll, Duration::from_secs(10));
            assert_eq!(
                (ready.len(), ready[0].slot, ready[0].hung_up),
                (1, 7, false)
            );
            assert!(wait(&epoll, short).is_empty(), "an edge, not a level");
        }
        let mut bytes = [0; 2];
        ours.read_exact(&mut bytes).unwrap();
        ours.write_all(b"y").unwrap();
        theirs.read_exact(&mut bytes[..1]).unwrap();
        assert!(
            wait(&epoll, short).is_empty(),
            "what the peer reads is no news"
        );
        epoll.watch_writable(ours.as_raw_fd(), 7, true).unwrap();
        assert_eq!(wait(&epoll, Duration::from_secs(10)).len(), 1);
        drop(theirs);
        assert!(wait(&epoll, Duration::from_secs(10))[0].hung_up);
    }

    #[test]
    fn another_thread_ends_a_wait() {
        let epoll = epoll();
        let waker = epoll.waker();
        for _ in 0..2 {
            let waker = waker.clone();
            std::thread::spawn(move || waker.wake());
            let begin = epoll.now();
            assert!(wait(&epoll, Duration::from_mins(1)).is_empty());
            assert!(epoll.now().since(begin) < 50_000_000_000);
        }
    }

    #[test]
    fn virtual_time_jumps_and_never_goes_back() {
        let time = VirtualTime::default();
        time.wait(Tick(500), &mut Vec::new()).unwrap();
        time.wait(Tick(300), &mut Vec::new()).unwrap();
        assert_eq!(time.now(), Tick(500));
        assert!(time.wait(Tick(u64::MAX), &mut Vec::new()).is_err());
    }
}
