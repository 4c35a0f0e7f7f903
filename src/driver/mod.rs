//! The hot loop: sessions, terminals, pacing, counting.
//!
//! | file | what it is |
//! |---|---|
//! | `conductor` | the driving thread: phases, windows, why the run ends |
//! | `worker` | the loop of one thread over its connections |
//! | `connection` | one connection: attempts, retries, reconnection |
//! | `pacing` | terminals: when the next transaction is due, and what it is |
//! | `reactor` | waiting for sockets and timers, or in virtual time |
//! | `recorder` | counts, windows, histograms |
//! | `connector` | making sessions, and making lost ones again |
//! | `runtime` | real or virtual time for the driving thread |
//! | `sums` | windows and reports of all workers, into the record |
//! | `shared` | the little that workers share |

mod conductor;
mod connection;
mod connector;
mod pacing;
mod reactor;
mod recorder;
mod runtime;
mod shared;
mod sums;
mod worker;

use crate::clock::Monotonic;
use crate::problem::Problem;
use crate::record::{Counts, DriveRecord, SheetLine};
use crate::rng::Seed;
use crate::session::ConnectOptions;
use crate::workload::Workload;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Failures by class, indexed as [`crate::session::Failure::ALL`].
pub type Failures = [u64; 7];

/// What the driver is to do; made by `cli` from the plan.
#[derive(Clone)]
pub struct DrivePlan {
    /// `None` for workloads without a server.
    pub connect: Option<ConnectOptions>,
    pub connections: u32,
    pub terminals: u32,
    /// Threads; never more of them run than there are connections or terminals.
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
    /// Raised by whoever wants the measurement to end early; Ctrl-C and SIGTERM do so as well
    /// (see [`crate::interrupt`]).
    pub stop: Arc<AtomicBool>,
}

/// What the driver measured, and what the workload's inputs were.
#[derive(Debug)]
pub struct Driven {
    pub record: DriveRecord,
    pub sheet: Vec<SheetLine>,
}

/// Told from the driving thread while workers run; the driver itself prints nothing. It may block
/// for a while without disturbing the workers.
pub trait Watcher {
    /// The phase that begins now: the place to read the server's counters.
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
    pub failures: Failures,
}

/// What workers tell the driving thread.
enum Message {
    /// All sessions of one worker are connected.
    Ready,
    /// A window of one worker is over.
    Frame(Box<recorder::Frame>),
    /// A worker has ended, or panicked.
    Gone { well: bool },
}

/// Drives `workload`; returns when the measurement has ended and transactions in flight have too.
/// Interruption and a lost server are results, not errors.
pub fn drive<W: Workload>(
    workload: &W,
    plan: &DrivePlan,
    watcher: &mut dyn Watcher,
) -> Result<Driven, Problem> {
    let clock = Monotonic::start();
    conductor::conduct(workload, plan, watcher, &runtime::RealTime { clock })
}

/// As [`drive`], in virtual time: nobody waits, an hour of a workload that only sleeps takes
/// seconds, and the same plan always gives the same record. For workloads without a server;
/// transactions must take some time, or it stands still.
pub fn drive_in_virtual_time<W: Workload>(
    workload: &W,
    plan: &DrivePlan,
    watcher: &mut dyn Watcher,
) -> Result<Driven, Problem> {
    conductor::conduct(workload, plan, watcher, &runtime::Virtual::default())
}
