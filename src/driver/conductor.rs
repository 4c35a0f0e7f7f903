//! The driving thread: starts the workers, keeps the phases, merges windows, decides the end.

use super::connector::{Connector, Recipe};
use super::reactor::{Reactor, Waker};
use super::recorder::{Frame, Schedule, absorb, add_failures, histogram};
use super::runtime::Runtime;
use super::shared::Shared;
use super::sums::Sums;
use super::worker::{self, Assignment, Report, TallyOf, reactor_failed};
use super::{DrivePlan, Driven, Failures, LiveWindow, Message, Phase, Watcher};
use crate::clock::Tick;
use crate::interrupt;
use crate::problem::{Kind, Problem};
use crate::record::Ended;
use crate::workload::Workload;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

/// How often the driving thread looks whether somebody wants the run to end.
const LOOK: Duration = Duration::from_millis(20);
/// At the end of a run, a server without any session for this long counts as lost.
const ALONE_MAX: Duration = Duration::from_millis(500);

/// Tells the driving thread that a worker is gone, even when it panics.
struct Farewell {
    messages: Sender<Message>,
    well: bool,
}

impl Drop for Farewell {
    fn drop(&mut self) {
        let _ = self.messages.send(Message::Gone { well: self.well });
    }
}

/// A watcher that panics must not leave the workers at work.
struct AbortOnPanic<'a>(&'a Shared);

impl Drop for AbortOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.abort();
        }
    }
}

/// The driving thread's ends of the channels to the workers.
struct Lines {
    inbox: Receiver<Message>,
    go: Vec<Sender<Schedule>>,
    empty: Vec<Sender<Box<Frame>>>,
    wakers: Vec<Waker>,
}

impl Lines {
    fn new(inbox: Receiver<Message>) -> Lines {
        Lines {
            inbox,
            go: Vec::new(),
            empty: Vec::new(),
            wakers: Vec::new(),
        }
    }

    /// Lines to one more worker; returns its ends.
    fn add(&mut self, waker: Waker) -> (Receiver<Schedule>, Receiver<Box<Frame>>) {
        let (go, start) = mpsc::channel();
        let (empty, refill) = mpsc::channel();
        self.go.push(go);
        self.empty.push(empty);
        self.wakers.push(waker);
        (start, refill)
    }
}

/// Runs `workload` as `plan` says.
pub(super) fn conduct<W: Workload, T: Runtime>(
    workload: &W,
    plan: &DrivePlan,
    watcher: &mut dyn Watcher,
    runtime: &T,
) -> Result<Driven, Problem> {
    let workers = plan.workers.min(plan.connections).min(plan.terminals);
    if workers == 0 || plan.tries_max == 0 || plan.window.is_zero() {
        return Err(Problem::usage(
            "a run needs at least one worker, connection, terminal and attempt, and a window length",
        ));
    }
    let recipe = recipe(workload, plan)?;
    let shared = Shared::new(plan.drain, workers, plan.transactions);
    let (outcome, reports) = thread::scope(|scope| {
        let (messages, inbox) = mpsc::channel();
        let mut lines = Lines::new(inbox);
        let mut threads = Vec::new();
        let mut spawn = |number| {
            let (reactor, waker) = runtime.reactor()?;
            let (go, empty) = lines.add(waker.clone());
            let assignment = Assignment {
                number,
                workers,
                workload,
                plan,
                shared: &shared,
                connector: Connector::new(recipe.clone(), waker),
                messages: messages.clone(),
                go,
                empty,
            };
            let body = move || run_worker(assignment, reactor);
            let builder = thread::Builder::new().name(format!("worker-{number}"));
            threads.push(builder.spawn_scoped(scope, body)?);
            Ok(())
        };
        let spawned: io::Result<()> = (0..workers).try_for_each(&mut spawn);
        drop(messages);
        // Without its lines a worker learns that it will not begin.
        let outcome = match spawned {
            Ok(()) => Conductor::new(workload, plan, &shared, watcher, runtime).run(lines),
            Err(error) => {
                drop(lines);
                Err(reactor_failed(&error))
            }
        };
        let reports: Vec<_> = threads.into_iter().map(joined).collect();
        (outcome, reports)
    });
    let reports = all_well(reports)?;
    let mut conducted = outcome?;
    watcher.phase(Phase::Done);
    conducted.finish(workload, reports)
}

fn run_worker<W: Workload, R: Reactor>(
    assignment: Assignment<'_, W>,
    reactor: R,
) -> Result<Report<TallyOf<W>>, Problem> {
    let mut farewell = Farewell {
        messages: assignment.messages.clone(),
        well: false,
    };
    let report = worker::run(assignment, reactor);
    farewell.well = report.is_ok();
    report
}

fn joined<T>(thread: thread::ScopedJoinHandle<'_, Result<T, Problem>>) -> Result<T, Problem> {
    thread.join().unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_default();
        Err(Problem::defect(format!("a worker panicked: {text}")))
    })
}

/// All reports, or the problem that made the others give up.
fn all_well<T>(reports: Vec<Result<T, Problem>>) -> Result<Vec<T>, Problem> {
    let mut well = Vec::new();
    let mut problems = Vec::new();
    for report in reports {
        match report {
            Ok(report) => well.push(report),
            Err(problem) => problems.push(problem),
        }
    }
    // Workers that stopped because of another one say that they were interrupted.
    problems.sort_by_key(|problem| match problem.kind {
        Kind::Defect => 0,
        Kind::Usage | Kind::Environment => 1,
        Kind::Interrupted => 2,
    });
    match problems.into_iter().next() {
        Some(problem) => Err(problem),
        None => Ok(well),
    }
}

fn recipe<W: Workload>(workload: &W, plan: &DrivePlan) -> Result<Option<Recipe>, Problem> {
    let statements = workload.statements();
    if statements.is_empty() {
        return Ok(None);
    }
    let Some(options) = plan.connect.clone() else {
        return Err(Problem::usage(format!(
            "the workload {} needs a server",
            W::NAME
        )));
    };
    Ok(Some(Recipe {
        options,
        setup: workload.session_setup(),
        statements: statements.to_vec(),
    }))
}

/// The state of the driving thread during a run.
struct Conductor<'a, T> {
    plan: &'a DrivePlan,
    shared: &'a Shared,
    watcher: &'a mut dyn Watcher,
    runtime: &'a T,
    phase: Phase,
    schedule: Schedule,
    planned_end: Tick,
    /// Windows that not all workers have closed yet, by number.
    open: BTreeMap<i64, (usize, Box<Frame>)>,
    workers: usize,
    /// Since when no session is connected, and how many had been made again by then.
    alone_since: Option<(Tick, u64)>,
    /// Is there one that could be lost?
    server: bool,
    lost: bool,
    sums: Sums,
}

impl<'a, T: Runtime> Conductor<'a, T> {
    fn new<W: Workload>(
        workload: &W,
        plan: &'a DrivePlan,
        shared: &'a Shared,
        watcher: &'a mut dyn Watcher,
        runtime: &'a T,
    ) -> Self {
        let profiles = workload.profiles().len();
        let schedule = Schedule {
            start: Tick(0),
            begin: Tick(0),
            window: u64::try_from(plan.window.as_nanos()).unwrap_or(u64::MAX),
        };
        Conductor {
            plan,
            shared,
            watcher,
            runtime,
            phase: Phase::Connecting,
            schedule,
            planned_end: Tick(u64::MAX),
            open: BTreeMap::new(),
            workers: 0,
            alone_since: None,
            server: !workload.statements().is_empty(),
            lost: false,
            sums: Sums::new(profiles, schedule),
        }
    }

    /// From connecting to the end of the last worker.
    fn run(mut self, mut lines: Lines) -> Result<Sums, Problem> {
        let _guard = AbortOnPanic(self.shared);
        self.workers = lines.go.len();
        self.watcher.phase(Phase::Connecting);
        let connected = self.connect(&lines);
        if connected.is_err() {
            self.shared.abort();
            return connected.map(|()| self.sums);
        }
        self.begin(&lines);
        lines.go.clear();
        let mut running = self.workers;
        let mut told = self.decisions();
        while running > 0 {
            let now = self.runtime.now();
            self.keep_phase(now);
            self.look_for_the_end(now);
            let decisions = self.decisions();
            if decisions != told {
                lines.wakers.iter().for_each(Waker::wake);
                told = decisions;
            }
            let until = self.next_phase().min(now.after(LOOK));
            match self.runtime.receive(&lines.inbox, until) {
                Some(Message::Frame(frame)) => self.merge(frame, &lines)?,
                Some(Message::Gone { well }) => {
                    running -= 1;
                    if !well {
                        self.shared.abort();
                    }
                }
                Some(Message::Ready) | None => {}
            }
        }
        self.keep_phase(self.runtime.now().max(self.shared.end()));
        while let Some((_, (_, frame))) = self.open.pop_first() {
            self.emit(&frame)?;
        }
        self.sums.ended = self.ended();
        Ok(self.sums)
    }

    /// What sleeping workers must learn of when it changes.
    fn decisions(&self) -> (Tick, Tick, bool) {
        let shared = self.shared;
        (shared.end(), shared.deadline(), shared.aborted())
    }

    /// Waits until all workers have their sessions.
    fn connect(&mut self, lines: &Lines) -> Result<(), Problem> {
        let mut ready = 0;
        while ready < self.workers {
            interrupt::check()?;
            if self.plan.stop.load(Ordering::Relaxed) {
                return Err(Problem::interrupted("interrupted while connecting"));
            }
            let until = self.runtime.now().after(LOOK);
            match self.runtime.receive(&lines.inbox, until) {
                Some(Message::Ready) => ready += 1,
                Some(Message::Gone { .. }) => {
                    return Err(Problem::interrupted("a worker could not begin"));
                }
                Some(Message::Frame(_)) | None => {}
            }
        }
        Ok(())
    }

    fn begin(&mut self, lines: &Lines) {
        let start = self.runtime.now();
        let begin = start.after(self.plan.ramp);
        self.schedule.start = start;
        self.schedule.begin = begin;
        self.sums.schedule = self.schedule;
        if self.plan.transactions.is_none() {
            self.planned_end = begin.after(self.plan.measure);
            self.shared.end_by(self.planned_end);
        }
        for go in &lines.go {
            // A worker that is gone has said so.
            let _ = go.send(self.schedule);
        }
        if begin > start {
            self.enter(Phase::RampUp);
        }
    }

    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.watcher.phase(phase);
    }

    fn keep_phase(&mut self, now: Tick) {
        let measuring = self.phase == Phase::Measuring;
        let begins = now >= self.schedule.begin && self.shared.end() > self.schedule.begin;
        if begins && !measuring && self.phase != Phase::Draining {
            self.enter(Phase::Measuring);
        }
        if self.phase != Phase::Draining && now >= self.shared.end() {
            self.enter(Phase::Draining);
        }
    }

    fn next_phase(&self) -> Tick {
        match self.phase {
            Phase::Connecting | Phase::RampUp => self.schedule.begin.min(self.shared.end()),
            Phase::Measuring => self.shared.end(),
            Phase::Draining | Phase::Done => Tick(u64::MAX),
        }
    }

    /// Has somebody asked to stop, or is the server gone for good?
    fn look_for_the_end(&mut self, now: Tick) {
        if interrupt::requested() || self.plan.stop.load(Ordering::Relaxed) {
            self.shared.interrupt(now);
        }
        if !self.server || now >= self.shared.end() {
            return;
        }
        let made_again = self.shared.reconnected();
        if self.shared.connected() > 0 {
            self.alone_since = None;
            return;
        }
        let since = match self.alone_since {
            Some((since, count)) if count == made_again => since,
            _ => now,
        };
        self.alone_since = Some((since, made_again));
        if since.after(self.plan.reconnect_for) <= now && !self.lost {
            self.lost = true;
            self.shared.lose(now);
        }
    }

    /// Adds one worker's window to the others' of the same number.
    fn merge(&mut self, frame: Box<Frame>, lines: &Lines) -> Result<(), Problem> {
        let index = frame.index;
        let workers = self.workers;
        let complete = match self.open.get_mut(&index) {
            None => {
                self.open.insert(index, (1, frame));
                workers == 1
            }
            Some((count, sum)) => {
                sum.merge(&frame);
                *count += 1;
                let complete = *count == workers;
                Self::recycle(frame, lines);
                complete
            }
        };
        if complete && let Some((_, frame)) = self.open.remove(&index) {
            self.emit(&frame)?;
            Self::recycle(frame, lines);
        }
        Ok(())
    }

    /// Hands an emptied frame back to the worker that filled it.
    fn recycle(mut frame: Box<Frame>, lines: &Lines) {
        frame.clear();
        // A worker that is gone needs none.
        let _ = lines.empty[frame.worker as usize].send(frame);
    }

    /// A window is complete: into the sums, the record, and to the watcher.
    fn emit(&mut self, frame: &Frame) -> Result<(), Problem> {
        frame.balance()?;
        let begin_s = self.schedule.seconds(frame.begin);
        let length_s = frame.end.since(frame.begin) as f64 / 1e9;
        self.sums.add(frame, begin_s, length_s);
        let mut all = histogram::<u64>();
        let mut failures = Failures::default();
        for (response, failed) in frame.response.iter().zip(&frame.failures) {
            absorb(&mut all, response);
            add_failures(&mut failures, failed);
        }
        self.watcher.window(&LiveWindow {
            begin_s,
            length_s,
            counts: frame.counts.clone(),
            p95_us: all.value_at_quantile(0.95),
            connections: self.shared.connected(),
            failures,
        });
        Ok(())
    }

    fn ended(&self) -> Ended {
        // A server that died shortly before the planned end is lost, too.
        let alone = |(since, _): (Tick, u64)| since.after(ALONE_MAX) <= self.shared.end();
        if self.lost || self.alone_since.is_some_and(alone) {
            Ended::ServerLost
        } else if self.shared.interrupted() {
            Ended::Interrupted
        } else {
            Ended::Planned
        }
    }
}
