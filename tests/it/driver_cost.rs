//! What driving costs: allocations (asserted) and time (printed by ignored tests).

#![allow(clippy::unwrap_used, reason = "helpers of tests")]
#![allow(clippy::print_stdout, reason = "ignored tests print what they measure")]

use crate::driver::{Notes, deck, measured, plan, synthetic};
use pgdyno::driver::{DrivePlan, drive};
use pgdyno::problem::Problem;
use pgdyno::record::{RunPlan, SheetLine};
use pgdyno::rng::Seed;
use pgdyno::session::{Session, SessionError};
use pgdyno::workload::{DataSet, Outcome, Profile, ProfileId, Terminal, Workload};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

thread_local! {
    /// Allocations of this thread so far.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, counting by thread.
struct Counting;

#[allow(unsafe_code, reason = "an allocator is unsafe to implement")]
// SAFETY: every call is passed on unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations of this thread so far.
pub(crate) fn allocations() -> u64 {
    ALLOCATIONS.with(Cell::get)
}

/// Two profiles, the second deferred; counts the allocations between two of its transactions.
struct Probe {
    profiles: Vec<Profile>,
    found: Arc<Found>,
}

struct Found {
    service: Duration,
    transactions: AtomicU64,
    at_first: AtomicU64,
    at_last: AtomicU64,
}

struct Prober {
    draws: u64,
    found: Arc<Found>,
}

/// Buffers have grown when this many transactions have ended.
const WARM: u64 = 2_000;
const LAST: u64 = 12_000;

impl Workload for Probe {
    const NAME: &'static str = "probe";
    const SUMMARY: &'static str = "";
    const DATA_VERSION: u32 = 1;
    type Terminal = Prober;

    fn from_plan(_plan: &RunPlan) -> Result<Self, Problem> {
        Err(Problem::usage("made by hand"))
    }
    fn profiles(&self) -> &[Profile] {
        &self.profiles
    }
    fn session_setup(&self) -> Vec<String> {
        Vec::new()
    }
    fn statements(&self) -> &[&'static str] {
        &[]
    }
    fn terminal(&self, _index: u32, _terminals: u32, _seed: Seed) -> Prober {
        Prober {
            draws: 0,
            found: Arc::clone(&self.found),
        }
    }
    fn data_set(&self) -> Option<&dyn DataSet> {
        None
    }
    fn run_sheet(&self, _tally: &u64) -> Vec<SheetLine> {
        Vec::new()
    }
}

impl Terminal for Prober {
    type Input = Arc<Found>;
    type Output = [u64; 8];
    type Tally = u64;

    fn draw(&mut self) -> (ProfileId, Arc<Found>) {
        self.draws += 1;
        let profile = ProfileId(u8::from(self.draws.is_multiple_of(5)));
        (profile, Arc::clone(&self.found))
    }
    fn think_time(&mut self, mean: Duration) -> Duration {
        mean
    }
    async fn execute(
        found: &Arc<Found>,
        session: &mut Session,
        _output: &mut [u64; 8],
    ) -> Result<Outcome, SessionError> {
        if !found.service.is_zero() {
            let end = session.waits().now.get().after(found.service);
            session.sleep_until(end).await;
        }
        match found.transactions.fetch_add(1, Ordering::Relaxed) {
            WARM => found.at_first.store(allocations(), Ordering::Relaxed),
            LAST => found.at_last.store(allocations(), Ordering::Relaxed),
            _ => {}
        }
        Ok(Outcome::Committed)
    }
    fn tally(_input: &Arc<Found>, output: &[u64; 8], _outcome: Outcome, tally: &mut u64) {
        *tally += output[0];
    }
    fn merge(tally: &mut u64, other: u64) {
        *tally += other;
    }
}

#[test]
fn a_transaction_allocates_nothing() {
    for (service_us, keying_think) in [(0, false), (20, false), (20, true)] {
        let profile = |name, deferred| Profile {
            name,
            keying_time: Duration::from_micros(100),
            think_time_mean: Duration::from_micros(100),
            response_time_limit: None,
            deferred,
        };
        let probe = Probe {
            profiles: vec![profile("prompt", false), profile("deferred", true)],
            found: Arc::new(Found {
                service: Duration::from_micros(service_us),
                transactions: AtomicU64::new(0),
                at_first: AtomicU64::new(0),
                at_last: AtomicU64::new(0),
            }),
        };
        let plan = DrivePlan {
            connections: 8,
            terminals: 16,
            keying_think,
            transactions: Some(LAST + 100),
            // Closing a window sends a message, which may allocate.
            window: Duration::from_hours(1),
            ..plan()
        };
        drive(&probe, &plan, &mut Notes::default()).unwrap();
        let first = probe.found.at_first.load(Ordering::Relaxed);
        let last = probe.found.at_last.load(Ordering::Relaxed);
        assert!(first > 0, "the count must see what happened before");
        // A queue may grow once more when the machine is busy; that is all.
        let between = last - first;
        assert!(
            between < 5,
            "{between}: service {service_us} µs, keying {keying_think}"
        );
    }
}

#[test]
#[ignore = "prints what a synthetic transaction costs; run it alone, in release mode"]
fn cost_of_a_synthetic_transaction() {
    for (terminals, service_us, keying_think) in [
        (1, "0", false),
        (64, "0", false),
        (64, "1000", false),
        (10_000, "1000", true),
    ] {
        let workload = synthetic(deck(), &[("service_us", service_us)]).unwrap();
        let plan = DrivePlan {
            connections: terminals.min(64),
            terminals,
            keying_think,
            ramp: Duration::from_millis(500),
            measure: Duration::from_secs(3),
            ..plan()
        };
        let driven = drive(&workload, &plan, &mut Notes::default()).unwrap();
        let rate = measured(&driven).completed() as f64 / driven.record.measurement_s;
        println!(
            "{terminals} terminals, {service_us} µs: {rate:.0}/s, {:?}",
            driven.record.client
        );
    }
}
