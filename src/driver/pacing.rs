//! When the next transaction is due, and what it is: terminals, timers, the queue of due work.
//!
//! The worker asks for due work ([`Crew::take`]) and tells what has ended ([`Crew::finished`]);
//! everything about arrivals is decided here and nowhere else.

use crate::clock::Tick;
use crate::rng::Rng;
use crate::workload::{Profile, ProfileId, Terminal};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

/// Longest cycles that a terminal's past may have: a pass of the deck of 23 cards and more.
const PAST_CYCLES: u32 = 32;
/// Transactions of a past at most, for mixes whose cycles take hardly any time.
const PAST_DRAWS: u32 = 10_000;

/// How transactions arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pacing {
    /// A terminal's next transaction is due as soon as its last one has ended.
    Closed,
    /// Each terminal keys its input, waits for the output and thinks (TPC-C 5.2.5).
    KeyingThink,
}

/// A transaction that is due.
#[derive(Debug)]
pub(super) struct Job<I> {
    pub(super) profile: ProfileId,
    pub(super) input: I,
    pub(super) scheduled: Tick,
    /// The terminal that waits for it; `None` when deferred.
    pub(super) terminal: Option<u32>,
}

/// What pacing needs of a profile.
#[derive(Clone, Copy, Debug)]
struct Pace {
    keying: Duration,
    think_mean: Duration,
    deferred: bool,
}

/// A terminal and, while it keys, its next input.
struct Seat<T: Terminal> {
    terminal: T,
    next: Option<(ProfileId, T::Input)>,
}

/// The terminals of one worker.
pub(super) struct Crew<T: Terminal> {
    pacing: Pacing,
    paces: Vec<Pace>,
    seats: Vec<Seat<T>>,
    /// Ends of keying times, with the terminal.
    timers: BinaryHeap<Reverse<(Tick, u32)>>,
    /// In the order in which they came due.
    due: VecDeque<Job<T::Input>>,
    closed: bool,
}

impl<T: Terminal> Crew<T> {
    pub(super) fn new(
        pacing: Pacing,
        profiles: &[Profile],
        terminals: impl Iterator<Item = T>,
    ) -> Self {
        Crew {
            pacing,
            paces: profiles
                .iter()
                .map(|profile| Pace {
                    keying: profile.keying_time,
                    think_mean: profile.think_time_mean,
                    deferred: profile.deferred,
                })
                .collect(),
            seats: terminals
                .map(|terminal| Seat {
                    terminal,
                    next: None,
                })
                .collect(),
            timers: BinaryHeap::new(),
            due: VecDeque::new(),
            closed: false,
        }
    }

    /// The terminals begin: all at once when closed, else as if they had been at work for long.
    /// `rng` is the worker's own.
    pub(super) fn start(&mut self, start: Tick, rng: &mut Rng) {
        match self.pacing {
            Pacing::Closed => {
                for index in (0..).take(self.seats.len()) {
                    self.enqueue(index, start);
                }
            }
            Pacing::KeyingThink => self.start_midway(start, rng),
        }
    }

    /// Each terminal is let run, without executing anything, up to a random instant of its past.
    /// Terminals that all began a cycle at once, or were spread over their own first cycle, would
    /// offer too much or too little for minutes, and of the wrong profiles: whoever looks at a
    /// terminal at some instant is more likely to meet it in a long cycle than in a short one.
    fn start_midway(&mut self, start: Tick, rng: &mut Rng) {
        let cycle = |pace: &Pace| pace.keying + pace.think_mean;
        let longest = self.paces.iter().map(cycle).max().unwrap_or_default();
        for (index, seat) in (0..).zip(&mut self.seats) {
            let now = (longest * PAST_CYCLES).mul_f64(rng.unit());
            let (mut at, mut think_mean) = (Duration::ZERO, Duration::ZERO);
            for draws in 1.. {
                let (profile, input) = seat.terminal.draw();
                let pace = &self.paces[profile.index()];
                at += think_mean.mul_f64(-rng.unit().ln()) + pace.keying;
                think_mean = pace.think_mean;
                if at >= now || draws >= PAST_DRAWS {
                    seat.next = Some((profile, input));
                    break;
                }
            }
            let first = start.after(at.saturating_sub(now));
            self.timers.push(Reverse((first, index)));
        }
    }

    /// Queues what has come due up to `now`.
    pub(super) fn advance(&mut self, now: Tick) {
        while let Some(&Reverse((tick, index))) = self.timers.peek() {
            if tick > now {
                break;
            }
            self.timers.pop();
            let Some((profile, input)) = self.seats[index as usize].next.take() else {
                continue;
            };
            let goes_on = self.goes_on_when_queued(profile);
            self.due.push_back(Job {
                profile,
                input,
                scheduled: tick,
                terminal: (!goes_on).then_some(index),
            });
            if goes_on {
                self.think(index, profile, tick);
            }
        }
    }

    /// A terminal does not wait for a deferred transaction (TPC-C 2.7.2.1). Without any waits it
    /// would queue them without end, so there it goes on when its last one is taken from the
    /// queue: never more of them are queued than there are terminals.
    fn goes_on_when_queued(&self, profile: ProfileId) -> bool {
        let pace = &self.paces[profile.index()];
        pace.deferred
            && self.pacing == Pacing::KeyingThink
            && !(pace.keying + pace.think_mean).is_zero()
    }

    /// The next instant at which `advance` has something to do.
    pub(super) fn next_tick(&self) -> Option<Tick> {
        self.timers.peek().map(|&Reverse((tick, _))| tick)
    }

    /// The transaction that has been due for longest.
    pub(super) fn take(&mut self, now: Tick) -> Option<Job<T::Input>> {
        let mut job = self.due.pop_front()?;
        if self.paces[job.profile.index()].deferred
            && let Some(index) = job.terminal.take()
        {
            self.go_on(index, job.profile, now);
        }
        Some(job)
    }

    /// Is anything due?
    pub(super) fn has_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// The transaction of `terminal` ended at `finished`. `clock` is read after the next input
    /// was drawn: the time it takes to draw is not the server's.
    pub(super) fn finished(
        &mut self,
        terminal: u32,
        profile: ProfileId,
        finished: Tick,
        clock: impl Fn() -> Tick,
    ) {
        if self.closed {
            return;
        }
        match self.pacing {
            Pacing::Closed => {
                let (profile, input) = self.seats[terminal as usize].terminal.draw();
                self.due.push_back(Job {
                    profile,
                    input,
                    scheduled: clock(),
                    terminal: Some(terminal),
                });
            }
            Pacing::KeyingThink => self.think(terminal, profile, finished),
        }
    }

    fn go_on(&mut self, index: u32, profile: ProfileId, now: Tick) {
        if self.closed {
            return;
        }
        match self.pacing {
            Pacing::Closed => self.enqueue(index, now),
            Pacing::KeyingThink => self.think(index, profile, now),
        }
    }

    fn enqueue(&mut self, index: u32, scheduled: Tick) {
        let (profile, input) = self.seats[index as usize].terminal.draw();
        self.due.push_back(Job {
            profile,
            input,
            scheduled,
            terminal: Some(index),
        });
    }

    /// Think time after `profile`, then the keying time of what comes next.
    fn think(&mut self, index: u32, profile: ProfileId, from: Tick) {
        let seat = &mut self.seats[index as usize];
        let think = seat
            .terminal
            .think_time(self.paces[profile.index()].think_mean);
        let (next, input) = seat.terminal.draw();
        seat.next = Some((next, input));
        let due = from.after(think + self.paces[next.index()].keying);
        self.timers.push(Reverse((due, index)));
    }

    /// The measurement is over: nothing comes due any more, and only deferred transactions stay
    /// queued, for their terminals have been told that they will be done.
    pub(super) fn close(&mut self) {
        self.closed = true;
        self.timers.clear();
        let paces = &self.paces;
        self.due.retain(|job| paces[job.profile.index()].deferred);
    }

    /// Transactions that are due and not taken.
    pub(super) fn queued(&self) -> usize {
        self.due.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Seed;
    use crate::session::{Session, SessionError};
    use crate::workload::Outcome;

    /// Draws profiles 0, 1, 0, 1 …; the input is the number of the draw.
    struct Alternating(u64);

    impl Terminal for Alternating {
        type Input = u64;
        type Output = ();
        type Tally = ();
        fn draw(&mut self) -> (ProfileId, u64) {
            self.0 += 1;
            (ProfileId(u8::from(self.0.is_multiple_of(2))), self.0)
        }
        fn think_time(&mut self, mean: Duration) -> Duration {
            mean
        }
        async fn execute(_: &u64, _: &mut Session, (): &mut ()) -> Result<Outcome, SessionError> {
            Ok(Outcome::Committed)
        }
        fn tally(_: &u64, (): &(), _: Outcome, (): &mut ()) {}
        fn merge((): &mut (), (): ()) {}
    }

    /// The second profile is deferred.
    fn crew(pacing: Pacing, terminals: usize) -> Crew<Alternating> {
        let profile = |keying, think, deferred| Profile {
            name: "",
            keying_time: Duration::from_nanos(keying),
            think_time_mean: Duration::from_nanos(think),
            response_time_limit: None,
            deferred,
        };
        let profiles = [profile(30, 100, false), profile(7, 50, true)];
        let mut crew = Crew::new(pacing, &profiles, (0..terminals).map(|_| Alternating(0)));
        crew.start(Tick(0), &mut Seed(1).stream("test", 0));
        crew
    }

    fn take(crew: &mut Crew<Alternating>, now: u64) -> (u64, u64, Option<u32>) {
        let job = crew.take(Tick(now)).unwrap();
        (job.input, job.scheduled.0, job.terminal)
    }

    #[test]
    fn without_waits_a_terminal_goes_on_when_its_deferred_transaction_is_taken() {
        let mut crew = crew(Pacing::Closed, 1);
        assert_eq!(take(&mut crew, 0), (1, 0, Some(0)));
        assert!(crew.take(Tick(5)).is_none(), "it waits for its transaction");
        crew.finished(0, ProfileId(0), Tick(10), || Tick(11));
        assert_eq!(crew.queued(), 1);
        assert_eq!(take(&mut crew, 20), (2, 11, None));
        assert_eq!(take(&mut crew, 20), (3, 20, Some(0)));
    }

    #[test]
    fn with_waits_a_terminal_goes_on_when_its_deferred_transaction_is_queued() {
        let mut crew = crew(Pacing::KeyingThink, 1);
        // Its past is random; from here on it is known.
        crew.seats[0].next = Some((ProfileId(0), 1));
        crew.seats[0].terminal.0 = 1;
        let first = crew.next_tick().unwrap();
        crew.advance(first);
        assert_eq!(take(&mut crew, first.0 + 3), (1, first.0, Some(0)));
        // Ends 40 later; thinks 100, keys the deferred one for 7.
        let finished = Tick(first.0 + 40);
        crew.finished(0, ProfileId(0), finished, || finished);
        let second = Tick(finished.0 + 107);
        assert_eq!(crew.next_tick(), Some(second));
        crew.advance(second);
        // Thinks 50 from then on, keys the next for 30, whatever becomes of the deferred one.
        assert_eq!(crew.next_tick(), Some(Tick(second.0 + 80)));
        assert_eq!(take(&mut crew, second.0 + 500), (2, second.0, None));
    }

    #[test]
    fn work_is_taken_in_the_order_in_which_it_came_due() {
        let mut crew = crew(Pacing::KeyingThink, 500);
        crew.advance(Tick(10_000));
        let mut last = 0;
        while let Some(job) = crew.take(Tick(10_000)) {
            assert!(job.scheduled.0 >= last);
            last = job.scheduled.0;
        }
        assert!(last > 0);
    }

    #[test]
    fn after_the_end_only_deferred_work_is_left() {
        let mut crew = crew(Pacing::Closed, 3);
        for terminal in 0..2 {
            take(&mut crew, 0);
            crew.finished(terminal, ProfileId(0), Tick(10), || Tick(10));
        }
        assert_eq!(crew.queued(), 3);
        crew.close();
        assert_eq!(crew.queued(), 2);
        crew.finished(2, ProfileId(0), Tick(10), || Tick(10));
        assert_eq!(take(&mut crew, 20), (2, 10, None));
        assert_eq!((crew.queued(), crew.next_tick()), (1, None));
    }
}
