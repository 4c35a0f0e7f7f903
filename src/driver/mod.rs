//! The hot loop: sessions, terminals, pacing, counting.
//!
//! helper: worker.rs (the loop, generic over workload, clock and reactor), reactor.rs (epoll and
//! virtual time), recorder.rs (counts, windows, histograms), pacing.rs (timers, think times).

use crate::problem::Problem;
use crate::record::{Counts, DriveRecord, SheetLine};
use crate::rng::Seed;
use crate::session::ConnectOptions;
use crate::workload::Workload;
use std::time::Duration;

/// What the driver is to do; made by `cli` from the plan.
#[derive(Clone)]
pub struct DrivePlan {
    /// `None` for workloads without a server.
    pub connect: Option<ConnectOptions>,
    pub connections: u32,
    pub terminals: u32,
    pub workers: u32,
    /// Keying and think times of the profiles (TPC-C 5.2.5), else back to back.
    pub keying_think: bool,
    pub ramp: Duration,
    pub measure: Duration,
    /// End after this many transactions in the measurement instead of after `measure`.
    pub transactions: Option<u64>,
    pub window: Duration,
    /// Attempts of one transaction, the first included.
    pub tries_max: u32,
    pub seed: Seed,
    /// How long transactions in flight may take to end after the measurement.
    pub drain: Duration,
    /// A server that cannot be reached for this long is lost.
    pub reconnect_for: Duration,
}

/// What the driver measured, and what the workload's inputs were.
#[derive(Debug)]
pub struct Driven {
    pub record: DriveRecord,
    pub sheet: Vec<SheetLine>,
}

/// Told from the driving thread while workers run; the driver itself prints nothing.
pub trait Watcher {
    /// The phase that begins now.
    fn phase(&mut self, phase: Phase);
    /// One window, merged over all workers.
    fn window(&mut self, window: &LiveWindow);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Connecting,
    RampUp,
    Measuring,
    Draining,
    Done,
}

/// A window as the live line shows it.
#[derive(Clone, Debug)]
pub struct LiveWindow {
    /// Seconds from the begin of the measurement; negative during ramp-up.
    pub begin_s: f64,
    pub length_s: f64,
    /// By profile index.
    pub counts: Vec<Counts>,
    /// Response time over all profiles, microseconds.
    pub p95_us: u64,
    /// Connections open at the end of the window.
    pub connections: u32,
    /// Failures by class, indexed as [`crate::session::Failure::ALL`].
    pub failures: [u64; 7],
}

/// Drives `workload`; returns when the measurement has ended and transactions in flight have too.
/// Interruption and a lost server are results, not errors.
pub fn drive<W: Workload>(
    workload: &W,
    plan: &DrivePlan,
    watcher: &mut dyn Watcher,
) -> Result<Driven, Problem> {
    let _ = (workload, plan, watcher);
    todo!()
}
