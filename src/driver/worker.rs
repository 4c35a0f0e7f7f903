//! The hot loop: one thread, its sessions, its terminals.
//!
//! A connection is a future that takes due work, runs it on its session, and tells the hub what
//! came of it. There are no wakers: the worker polls a future when its socket has news, its alarm
//! rings, or work is due and it has none.

use super::connection::{Link, serve};
use super::connector::{Connector, Made};
use super::pacing::{Crew, Job, Pacing};
use super::reactor::{Reactor, Ready};
use super::recorder::{Completion, Frame, FrameSink, Recorder, Schedule, Totals};
use super::shared::Shared;
use super::{DrivePlan, Message};
use crate::clock::Tick;
use crate::problem::Problem;
use crate::rng::Rng;
use crate::session::{Session, SessionError};
use crate::workload::{Outcome, Terminal, Workload};
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender};
use std::task::Context;
use std::time::Duration;

pub(super) type TerminalOf<W> = <W as Workload>::Terminal;
pub(super) type InputOf<W> = <TerminalOf<W> as Terminal>::Input;
pub(super) type OutputOf<W> = <TerminalOf<W> as Terminal>::Output;
pub(super) type TallyOf<W> = <TerminalOf<W> as Terminal>::Tally;

/// What a worker needs to begin.
pub(super) struct Assignment<'a, W> {
    pub(super) number: u32,
    /// How many workers there are.
    pub(super) workers: u32,
    pub(super) workload: &'a W,
    pub(super) plan: &'a DrivePlan,
    pub(super) shared: &'a Shared,
    pub(super) connector: Connector,
    pub(super) messages: Sender<Message>,
    /// Tells when the run begins; its end means that it does not.
    pub(super) go: Receiver<Schedule>,
    /// Frames to fill again.
    pub(super) empty: Receiver<Box<Frame>>,
}

/// What a worker measured, besides the windows it sent.
pub(super) struct Report<T> {
    /// End of the measurement as it was for this worker.
    pub(super) end: Tick,
    /// CPU time of this thread during the measurement.
    pub(super) cpu: Duration,
    pub(super) totals: Totals,
    pub(super) deferred_left: u64,
    pub(super) tally: T,
}

/// The way of frames to the driving thread and back.
pub(super) struct FrameChannel {
    messages: Sender<Message>,
    empty: Receiver<Box<Frame>>,
}

impl FrameSink for FrameChannel {
    fn closed(&mut self, frame: Box<Frame>) {
        // The driving thread outlives the workers; if it is unwinding, nobody wants the frame.
        let _ = self.messages.send(Message::Frame(frame));
    }

    fn empty(&mut self) -> Option<Box<Frame>> {
        self.empty.try_recv().ok()
    }
}

/// What the connections of one worker share. Borrows are short: none lives across an await.
pub(super) struct Hub<'a, W: Workload, R> {
    pub(super) reactor: R,
    pub(super) shared: &'a Shared,
    pub(super) plan: &'a DrivePlan,
    pub(super) connector: Connector,
    pub(super) links: Vec<Link>,
    pub(super) recorder: RefCell<Recorder<'a, FrameChannel>>,
    /// For the back-off of retries.
    pub(super) rng: RefCell<Rng>,
    crew: RefCell<Crew<TerminalOf<W>>>,
    tally: RefCell<TallyOf<W>>,
    /// Connections without work; the one that had some last is on top.
    idle: RefCell<Vec<u32>>,
    /// Connections that gave way to others and have more to do.
    again: RefCell<Vec<u32>>,
    /// Instants at which a session wants to be polled.
    alarms: RefCell<BinaryHeap<Reverse<(Tick, u32)>>>,
    /// Connections with a transaction in flight.
    busy: Cell<u32>,
    taken: Cell<u64>,
    ended: Cell<u64>,
    stopping: Cell<bool>,
}

impl<W: Workload, R: Reactor> Hub<'_, W, R> {
    /// The next transaction for `link`, which is idle from now on when there is none.
    pub(super) fn take(&self, link: &Link) -> Option<Job<InputOf<W>>> {
        let job = self.crew.borrow_mut().take(self.reactor.now());
        match &job {
            Some(job) => {
                link.begin(job.profile);
                self.busy.set(self.busy.get() + 1);
                self.taken.set(self.taken.get() + 1);
            }
            None => {
                if link.rest() {
                    self.idle.borrow_mut().push(link.slot);
                }
            }
        }
        job
    }

    /// Lets the other connections go first; `link` is polled again soon.
    pub(super) fn give_way(&self, link: &Link) {
        self.again.borrow_mut().push(link.slot);
    }

    /// Counts a transaction that has reached its end, and lets its terminal go on.
    pub(super) fn complete(
        &self,
        link: &Link,
        job: &Job<InputOf<W>>,
        completion: &Completion,
        output: &OutputOf<W>,
    ) {
        let mut recorder = self.recorder.borrow_mut();
        let measured = recorder.record(completion);
        if recorder.over() {
            self.stop();
        }
        drop(recorder);
        link.end(completion.finished);
        self.busy.set(self.busy.get() - 1);
        self.ended.set(self.ended.get() + 1);
        if measured && let Ok(outcome) = completion.result {
            self.tally(&job.input, output, outcome);
        }
        if let Some(terminal) = job.terminal {
            let clock = || self.reactor.now();
            let mut crew = self.crew.borrow_mut();
            crew.finished(terminal, job.profile, completion.finished, clock);
        }
    }

    fn tally(&self, input: &InputOf<W>, output: &OutputOf<W>, outcome: Outcome) {
        TerminalOf::<W>::tally(input, output, outcome, &mut self.tally.borrow_mut());
    }

    pub(super) fn note(&self, error: &SessionError) {
        self.recorder.borrow_mut().totals().errors.note(error);
    }

    /// No transaction starts from now on, except deferred ones.
    fn stop(&self) {
        if !self.stopping.replace(true) {
            self.crew.borrow_mut().close();
        }
    }

    /// Closes windows that have passed and obeys what others decided.
    fn heed(&self, now: Tick) -> Result<(), Problem> {
        if self.plan.stop.load(Ordering::Relaxed) {
            self.shared.interrupt(now);
        }
        if self.shared.aborted() {
            return Err(Problem::interrupted("another worker has failed"));
        }
        let mut recorder = self.recorder.borrow_mut();
        recorder.ends(self.shared.end());
        recorder.roll(now);
        if recorder.over() {
            self.stop();
        }
        Ok(())
    }

    fn done(&self, now: Tick) -> bool {
        let drained = self.busy.get() == 0 && !self.crew.borrow().has_due();
        self.stopping.get() && (drained || now >= self.shared.deadline())
    }

    /// The next instant at which something happens without news from a socket.
    fn next_tick(&self, now: Tick) -> Tick {
        let crew = self.crew.borrow();
        let work_waits = crew.has_due() && !self.idle.borrow().is_empty();
        if work_waits || !self.again.borrow().is_empty() {
            return now;
        }
        let alarm = self.alarms.borrow().peek().map(|&Reverse((tick, _))| tick);
        let deadline = self.stopping.get().then(|| self.shared.deadline());
        [
            crew.next_tick(),
            alarm,
            deadline,
            self.recorder.borrow().boundary(),
        ]
        .into_iter()
        .flatten()
        .min()
        .unwrap_or(Tick(u64::MAX))
    }

    /// The connection whose alarm rang by `now`.
    fn rings(&self, now: Tick) -> Option<u32> {
        let mut alarms = self.alarms.borrow_mut();
        loop {
            let &Reverse((tick, slot)) = alarms.peek()?;
            if tick > now {
                return None;
            }
            alarms.pop();
            if self.links[slot as usize].alarm_is(tick) {
                return Some(slot);
            }
        }
    }

    /// An idle connection, if work is due.
    fn idle_for_work(&self) -> Option<u32> {
        if !self.crew.borrow().has_due() {
            return None;
        }
        loop {
            let slot = self.idle.borrow_mut().pop()?;
            if self.links[slot as usize].roused() {
                return Some(slot);
            }
        }
    }

    /// Hands over sessions that the helper thread has made; returns a connection to poll.
    fn collect(&self) -> Option<u32> {
        loop {
            match self.connector.collect()? {
                Made::Session(slot, session) => {
                    self.links[slot as usize].deliver(session);
                    return Some(slot);
                }
                Made::Failed(mut error) => {
                    error.message = format!("connecting again: {}", error.message);
                    self.note(&error);
                }
            }
        }
    }

    /// After a poll: what does the session wait for?
    fn rearm(&self, link: &Link) -> Result<(), Problem> {
        if let Some(tick) = link.new_alarm() {
            self.alarms.borrow_mut().push(Reverse((tick, link.slot)));
        }
        if let Some((fd, writable)) = link.new_write_interest() {
            self.reactor
                .watch_writable(fd, link.slot, writable)
                .map_err(|error| reactor_failed(&error))?;
        }
        Ok(())
    }
}

pub(super) fn reactor_failed(error: &std::io::Error) -> Problem {
    Problem::environment(format!("cannot wait for the sockets of the run: {error}"))
}

/// Runs one worker from connecting to the end of the drain.
pub(super) fn run<W: Workload, R: Reactor>(
    assignment: Assignment<'_, W>,
    reactor: R,
) -> Result<Report<TallyOf<W>>, Problem> {
    let Assignment {
        number,
        workers,
        workload,
        plan,
        shared,
        ..
    } = assignment;
    let share = |total: u32| (number..total).step_by(workers as usize);
    let mut sessions = Vec::new();
    for _ in share(plan.connections) {
        if shared.aborted() {
            return Err(Problem::interrupted("stopped while connecting"));
        }
        sessions.push(assignment.connector.make().map_err(Problem::from)?);
        shared.session_up();
    }
    let terminals = share(plan.terminals);
    let terminals = terminals.map(|index| workload.terminal(index, plan.terminals, plan.seed));
    let pacing = if plan.keying_think {
        Pacing::KeyingThink
    } else {
        Pacing::Closed
    };
    let mut crew = Crew::new(pacing, workload.profiles(), terminals);
    // The driving thread waits for this; when it is gone there is nothing to do.
    let _ = assignment.messages.send(Message::Ready);
    let Ok(schedule) = assignment.go.recv() else {
        return Err(Problem::interrupted("stopped before the run began"));
    };
    let mut rng = plan.seed.stream("worker", number.into());
    crew.start(schedule.start, &mut rng);
    let frames = FrameChannel {
        messages: assignment.messages,
        empty: assignment.empty,
    };
    let recorder = Recorder::new(workload.profiles().len(), number, schedule, shared, frames);
    let hub = Hub::<W, R> {
        reactor,
        shared,
        plan,
        connector: assignment.connector,
        links: (0..)
            .zip(&sessions)
            .map(|(slot, session)| Link::new(slot, session))
            .collect(),
        recorder: RefCell::new(recorder),
        rng: RefCell::new(rng),
        crew: RefCell::new(crew),
        tally: RefCell::default(),
        idle: RefCell::default(),
        again: RefCell::default(),
        alarms: RefCell::default(),
        busy: Cell::new(0),
        taken: Cell::new(0),
        ended: Cell::new(0),
        stopping: Cell::new(false),
    };
    work(&hub, sessions)?;
    finish(hub)
}

/// Polls connections until the run is over.
fn work<W: Workload, R: Reactor>(
    hub: &Hub<'_, W, R>,
    sessions: Vec<Session>,
) -> Result<(), Problem> {
    let mut tasks = Vec::with_capacity(sessions.len());
    for (link, session) in hub.links.iter().zip(sessions) {
        if let Some(fd) = session.fd() {
            hub.reactor
                .add(fd, link.slot)
                .map_err(|error| reactor_failed(&error))?;
        }
        tasks.push(Box::pin(serve(hub, link, session)));
    }
    let mut polls = Polls {
        hub,
        tasks: &mut tasks,
        now: hub.reactor.now(),
    };
    for link in &hub.links {
        polls.poll(link.slot)?;
    }
    let mut ready: Vec<Ready> = Vec::new();
    let mut again = Vec::new();
    loop {
        let now = hub.reactor.now();
        polls.now = now;
        hub.heed(now)?;
        hub.crew.borrow_mut().advance(now);
        while let Some(slot) = hub.rings(now) {
            polls.poll(slot)?;
        }
        for Ready { slot, hung_up } in ready.drain(..) {
            hub.links[slot as usize].heard(hung_up);
            polls.poll(slot)?;
            if hung_up {
                // The end came together with the last bytes: there is no other edge to tell of it.
                polls.poll(slot)?;
            }
        }
        while let Some(slot) = hub.collect() {
            polls.poll(slot)?;
        }
        std::mem::swap(&mut *hub.again.borrow_mut(), &mut again);
        for slot in again.drain(..) {
            polls.poll(slot)?;
        }
        while let Some(slot) = hub.idle_for_work() {
            polls.poll(slot)?;
        }
        if hub.done(now) {
            return Ok(());
        }
        let until = hub.next_tick(now);
        hub.reactor
            .wait(until, &mut ready)
            .map_err(|error| reactor_failed(&error))?;
    }
}

/// The connections' futures.
struct Polls<'p, 'h, W: Workload, R, F> {
    hub: &'p Hub<'h, W, R>,
    tasks: &'p mut [Pin<Box<F>>],
    now: Tick,
}

impl<W: Workload, R: Reactor, F: Future<Output = Infallible>> Polls<'_, '_, W, R, F> {
    fn poll(&mut self, slot: u32) -> Result<(), Problem> {
        let link = &self.hub.links[slot as usize];
        link.before_poll(self.now);
        let mut context = Context::from_waker(std::task::Waker::noop());
        let _ = self.tasks[slot as usize].as_mut().poll(&mut context);
        self.hub.rearm(link)
    }
}

/// Counts what is left over and hands everything to the driving thread.
fn finish<W: Workload, R: Reactor>(hub: Hub<'_, W, R>) -> Result<Report<TallyOf<W>>, Problem> {
    let mut recorder = hub.recorder.into_inner();
    let mut ended = hub.ended.get();
    for profile in hub.links.iter().filter_map(Link::in_flight) {
        recorder.abandon(profile);
        ended += 1;
    }
    if hub.taken.get() != ended {
        return Err(Problem::defect(format!(
            "{} transactions were started and {ended} ended",
            hub.taken.get()
        )));
    }
    let (end, cpu, totals) = recorder.finish()?;
    Ok(Report {
        end,
        cpu,
        totals,
        deferred_left: hub.crew.into_inner().queued() as u64,
        tally: hub.tally.into_inner(),
    })
}
