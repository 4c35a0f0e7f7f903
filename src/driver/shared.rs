//! The little that workers share: when the measurement ends, how many transactions are left,
//! and whether the server is there. Nothing here is written once per transaction.

use crate::clock::Tick;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Longest wait for transactions in flight after an interruption.
const INTERRUPTED_DRAIN: Duration = Duration::from_secs(5);
/// Transactions that a worker claims at once, at most.
const CLAIM_MAX: u64 = 64;

/// Seen by the driving thread and by all workers. Relaxed everywhere: no value guards another,
/// and all are looked at again soon.
#[derive(Debug)]
pub(super) struct Shared {
    /// Tick at which the measurement ends.
    end: AtomicU64,
    /// Tick at which the drain ends, when it was set explicitly.
    deadline: AtomicU64,
    /// Somebody asked to stop.
    asked: AtomicBool,
    /// … while the measurement was open.
    interrupted: AtomicBool,
    /// Something is broken: stop at once, nothing will be reported.
    aborted: AtomicBool,
    /// Sessions that are connected now.
    connected: AtomicU32,
    /// Sessions that were made again, by all workers.
    reconnected: AtomicU64,
    drain: Duration,
    workers: u64,
    budget: Option<Transactions>,
}

/// The number of transactions to measure, handed out in batches.
#[derive(Debug)]
struct Transactions {
    unclaimed: AtomicU64,
    unfinished: AtomicU64,
}

impl Shared {
    pub(super) fn new(drain: Duration, workers: u32, transactions: Option<u64>) -> Shared {
        Shared {
            end: AtomicU64::new(u64::MAX),
            deadline: AtomicU64::new(u64::MAX),
            asked: AtomicBool::new(false),
            interrupted: AtomicBool::new(false),
            aborted: AtomicBool::new(false),
            connected: AtomicU32::new(0),
            reconnected: AtomicU64::new(0),
            drain,
            workers: workers.into(),
            budget: transactions.map(|n| Transactions {
                unclaimed: AtomicU64::new(n),
                unfinished: AtomicU64::new(n),
            }),
        }
    }

    /// End of the measurement as known now; the end of time while it is open.
    pub(super) fn end(&self) -> Tick {
        Tick(self.end.load(Ordering::Relaxed))
    }

    /// The measurement ends at `end` or earlier.
    pub(super) fn end_by(&self, end: Tick) {
        self.end.fetch_min(end.0, Ordering::Relaxed);
    }

    /// When transactions in flight are given up.
    pub(super) fn deadline(&self) -> Tick {
        let explicit = self.deadline.load(Ordering::Relaxed);
        self.end().after(self.drain).min(Tick(explicit))
    }

    /// Somebody asked to stop at `now`; the first time counts.
    pub(super) fn interrupt(&self, now: Tick) {
        if !self.asked.swap(true, Ordering::Relaxed) {
            self.interrupted.store(now < self.end(), Ordering::Relaxed);
            self.end_by(now);
            let deadline = now.after(self.drain.min(INTERRUPTED_DRAIN));
            self.deadline.fetch_min(deadline.0, Ordering::Relaxed);
        }
    }

    /// Was the measurement cut short by somebody?
    pub(super) fn interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// The server is gone: there is nothing to wait for.
    pub(super) fn lose(&self, now: Tick) {
        self.end_by(now);
        self.deadline.fetch_min(now.0, Ordering::Relaxed);
    }

    pub(super) fn abort(&self) {
        self.aborted.store(true, Ordering::Relaxed);
    }

    pub(super) fn aborted(&self) -> bool {
        self.aborted.load(Ordering::Relaxed)
    }

    pub(super) fn session_up(&self) {
        self.connected.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn session_back(&self) {
        self.session_up();
        self.reconnected.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn session_down(&self) {
        self.connected.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn connected(&self) -> u32 {
        self.connected.load(Ordering::Relaxed)
    }

    pub(super) fn reconnected(&self) -> u64 {
        self.reconnected.load(Ordering::Relaxed)
    }
}

/// One worker's share of the transactions to measure.
#[derive(Debug)]
pub(super) struct Budget<'a> {
    shared: &'a Shared,
    /// Claimed and not spent.
    held: u64,
    /// Size of the batch that `held` is left of.
    batch: u64,
}

impl<'a> Budget<'a> {
    pub(super) fn new(shared: &'a Shared) -> Self {
        Budget {
            shared,
            held: 0,
            batch: 0,
        }
    }

    /// May one more transaction be counted? The last one ends the measurement.
    ///
    /// Batches shrink towards the end, so that no worker sits on a share while the others have
    /// nothing left to count.
    #[inline]
    pub(super) fn spend(&mut self, finished: Tick) -> bool {
        let Some(budget) = &self.shared.budget else {
            return true;
        };
        if self.held == 0 {
            self.claim(budget);
        }
        if self.held == 0 {
            return false;
        }
        self.held -= 1;
        if self.held == 0 {
            let before = budget.unfinished.fetch_sub(self.batch, Ordering::Relaxed);
            if before == self.batch {
                self.shared.end_by(Tick(finished.0 + 1));
            }
        }
        true
    }

    fn claim(&mut self, budget: &Transactions) {
        let share = |left: u64| {
            (left / (64 * self.shared.workers))
                .clamp(1, CLAIM_MAX)
                .min(left)
        };
        let claimed = budget
            .unclaimed
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                (left > 0).then(|| left - share(left))
            });
        self.batch = claimed.map_or(0, share);
        self.held = self.batch;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(workers: u32, transactions: Option<u64>) -> Shared {
        Shared::new(Duration::from_secs(30), workers, transactions)
    }

    #[test]
    fn the_drain_is_short_after_an_interruption_and_the_first_one_counts() {
        let shared = shared(1, None);
        let second = |n: u64| Tick(n * 1_000_000_000);
        shared.end_by(second(100));
        assert_eq!(shared.deadline(), second(130));
        shared.interrupt(second(40));
        shared.interrupt(second(42));
        assert_eq!((shared.end(), shared.deadline()), (second(40), second(45)));
        assert!(shared.interrupted());
    }

    #[test]
    fn an_interruption_during_the_drain_shortens_only_that() {
        let shared = shared(1, None);
        shared.end_by(Tick(5));
        shared.interrupt(Tick(7));
        assert!(!shared.interrupted());
        assert_eq!(shared.end(), Tick(5));
        assert_eq!(shared.deadline(), Tick(7).after(INTERRUPTED_DRAIN));
    }

    #[test]
    fn workers_spend_exactly_the_transactions_that_there_are() {
        for total in [1, 63, 64, 1000, 100_001] {
            let shared = shared(4, Some(total));
            let spend = |shared: &Shared| {
                let mut budget = Budget::new(shared);
                let mut spent = 0;
                while shared.end() == Tick(u64::MAX) {
                    spent += u64::from(budget.spend(Tick(9)));
                }
                spent
            };
            let spent: u64 = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| spend(&shared))).collect();
                threads
                    .into_iter()
                    .map(|thread| thread.join().unwrap())
                    .sum()
            });
            assert_eq!(spent, total);
            assert_eq!(shared.end(), Tick(10));
        }
    }
}
