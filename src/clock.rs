//! Time: the monotonic clock of a run and the wall clock of a record. Nobody else reads a clock.

#![allow(
    clippy::disallowed_methods,
    reason = "the only module that reads the clocks"
)]

use std::time::{Duration, Instant, SystemTime};

/// Nanoseconds since the origin of a run's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tick(pub u64);

impl Tick {
    /// The instant `duration` later; saturates at the end of time (584 years).
    #[must_use]
    pub fn after(self, duration: Duration) -> Tick {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Tick(self.0.saturating_add(nanos))
    }

    /// Nanoseconds from `earlier` to `self`; zero when `earlier` is later.
    pub fn since(self, earlier: Tick) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// A clock that never goes back. [`Monotonic`] in production, a virtual one in tests.
pub trait Clock {
    fn now(&self) -> Tick;
}

/// The system's monotonic clock; copies share the origin.
#[derive(Clone, Copy, Debug)]
pub struct Monotonic {
    origin: Instant,
}

impl Monotonic {
    /// A clock whose origin is now.
    pub fn start() -> Self {
        Self {
            origin: Instant::now(),
        }
    }
}

impl Clock for Monotonic {
    #[allow(
        clippy::cast_possible_truncation,
        reason = "584 years of nanoseconds fit"
    )]
    fn now(&self) -> Tick {
        Tick(self.origin.elapsed().as_nanos() as u64)
    }
}

/// The wall clock, for stamps in records; never for measuring.
pub fn wall() -> jiff::Timestamp {
    jiff::Timestamp::try_from(SystemTime::now()).unwrap_or(jiff::Timestamp::UNIX_EPOCH)
}

/// Blocks the thread; for polling loops outside the driver.
pub fn pause(duration: Duration) {
    std::thread::sleep(duration);
}

/// CPU time used by the calling thread.
pub fn thread_cpu() -> Duration {
    timespec(rustix::time::clock_gettime(
        rustix::time::ClockId::ThreadCPUTime,
    ))
}

/// CPU time used by the whole process.
pub fn process_cpu() -> Duration {
    timespec(rustix::time::clock_gettime(
        rustix::time::ClockId::ProcessCPUTime,
    ))
}

fn timespec(t: rustix::time::Timespec) -> Duration {
    let seconds = u64::try_from(t.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(t.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanos)
}
