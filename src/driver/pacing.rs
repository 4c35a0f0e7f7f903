//! When the next transaction is due, and what it is: terminals, their timers, the queue of due work.
//!
//! The worker asks for due work ([`Crew::take`]) and tells what has ended ([`Crew::finished`]);
//! everything about arrivals is decided here and nowhere else.

use crate::clock::Tick;
use crate::rng::Rng;
use crate::workload::{Profile, ProfileId, Terminal};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

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

    /// Whoever looks at a terminal at some instant is more likely to meet it in a long cycle than
    /// in a short one, anywhere in it. Terminals that all began a cycle at once, or were spread
    /// over their own first cycle, would offer too much or too little for minutes.
    fn start_midway(&mut self, start: Tick, rng: &mut Rng) {
        let mut cycles = Vec::with_capacity(self.seats.len());
        let mut think_mean = Duration::ZERO;
        for seat in &mut self.seats {
            let (profile, input) = seat.terminal.draw();
            seat.next = Some((profile, input));
            let pace = self.paces[profile.index()];
            cycles.push(think_mean.mul_f64(-rng.unit().ln()) + pace.keying);
            think_mean = pace.think_mean;
        }
        let longest = cycles.iter().max().copied().unwrap_or_default();
        for index in (0..).take(self.seats.len()) {
            let cycle = loop {
                let pick = usize::try_from(rng.below(cycles.len() as u64)).unwrap_or(0);
                let share = cycles[pick].as_secs_f64() / longest.as_secs_f64();
                if longest.is_zero() || rng.unit() < share {
                    break cycles[pick];
                }
            };
            let first = start.after(cycle.mul_f64(rng.unit()));
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
