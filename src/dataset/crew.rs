//! Several sessions at work, each on its own thread; one thread that listens, and stops them all
//! as soon as one fails or the user wants to.

use super::sql;
use crate::interrupt;
use crate::session::{ConnectOptions, Failure, Session, SessionError};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How often a waiting thread looks whether it should stop.
pub(super) const GLANCE: Duration = Duration::from_millis(100);
/// Attempts at one task that meets a deadlock or a serialization failure.
const TRIES_MAX: u32 = 10;

/// Sessions that work side by side.
pub(super) struct Crew<'a> {
    pub(super) connect: &'a ConnectOptions,
    /// Run by each session first.
    pub(super) setup: Vec<String>,
    pub(super) size: usize,
}

enum Note<N> {
    /// A session is there; its backend's process id.
    Joined(i32),
    News(N),
    Left(Option<i32>, Result<(), SessionError>),
}

/// A worker's line to the listening thread.
pub(super) struct Desk<'a, N> {
    notes: Sender<Note<N>>,
    stop: &'a AtomicBool,
}

impl<N> Desk<'_, N> {
    /// Tells the listening thread; nobody listens any more only when everything is over.
    pub(super) fn tell(&self, news: N) {
        let _ = self.notes.send(Note::News(news));
    }

    /// `Err` once all have to stop.
    pub(super) fn check(&self) -> Result<(), SessionError> {
        if self.stop.load(Ordering::Relaxed) || interrupt::requested() {
            Err(stopped())
        } else {
            Ok(())
        }
    }

    /// Makes all stop, before this worker has tidied up and can report its own failure.
    pub(super) fn stop_all(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// What each session does.
type Body<'b, N> = dyn Fn(&mut Session, &Desk<'_, N>) -> Result<(), SessionError> + Sync + 'b;

/// What a worker reports when it ends because others failed.
pub(super) fn stopped() -> SessionError {
    SessionError::new(Failure::Interrupted, "stopped")
}

impl Crew<'_> {
    /// Runs `body` on every session and `heard` on this thread with what they tell. Returns when
    /// all sessions are closed: the most telling of their failures, if any. `control` cancels
    /// the statements of the others when one fails.
    pub(super) fn run<N: Send>(
        &self,
        control: &mut Session,
        body: &Body<'_, N>,
        heard: &mut dyn FnMut(N),
    ) -> Result<(), SessionError> {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (notes, inbox) = channel();
            for _ in 0..self.size {
                let desk = Desk {
                    notes: notes.clone(),
                    stop: &stop,
                };
                scope.spawn(move || self.work(&desk, body));
            }
            drop(notes);
            listen(&inbox, &stop, control, heard)
        })
    }

    fn work<N>(&self, desk: &Desk<'_, N>, body: &Body<'_, N>) {
        let mut pid = None;
        let result = sql::connect(self.connect, &self.setup).and_then(|mut session| {
            pid = Some(session.backend_pid());
            let _ = desk.notes.send(Note::Joined(session.backend_pid()));
            desk.check()?;
            body(&mut session, desk)
        });
        if result.is_err() {
            desk.stop_all();
        }
        let _ = desk.notes.send(Note::Left(pid, result));
    }
}

/// Listens until every worker has left.
fn listen<N>(
    inbox: &Receiver<Note<N>>,
    stop: &AtomicBool,
    control: &mut Session,
    heard: &mut dyn FnMut(N),
) -> Result<(), SessionError> {
    let mut backends = BTreeSet::new();
    let mut failures = Vec::new();
    loop {
        match inbox.recv_timeout(GLANCE) {
            Ok(Note::Joined(pid)) => {
                backends.insert(pid);
            }
            Ok(Note::News(news)) => heard(news),
            Ok(Note::Left(pid, result)) => {
                if let Some(pid) = pid {
                    backends.remove(&pid);
                }
                failures.extend(result.err());
            }
            Err(RecvTimeoutError::Timeout) => {
                if interrupt::requested() {
                    stop.store(true, Ordering::Relaxed);
                } else if stop.load(Ordering::Relaxed) {
                    // Again and again: a cancel that comes between two statements is lost.
                    cancel(control, &backends);
                }
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    failures.into_iter().min_by_key(rank).map_or(Ok(()), Err)
}

/// When a server goes down, every session fails; the lowest rank says why.
fn rank(error: &SessionError) -> u8 {
    match error.failure {
        Failure::Interrupted if interrupt::requested() => 0,
        _ if disk_full(error) => 1,
        Failure::Interrupted => 5,
        Failure::Disconnected => 3,
        // Cancelled by `cancel`, or by the server's own shutdown.
        _ if error.is("57014") => 4,
        _ if error.is("57P01") || error.is("57P02") || error.is("57P03") => 3,
        _ => 2,
    }
}

/// Did the server's disk run full?
pub(super) fn disk_full(error: &SessionError) -> bool {
    error.is("53100") || error.message.contains("No space left on device")
}

/// Cancels what `backends` are doing. Failing to is no new problem: the workers then end by
/// themselves, later.
fn cancel(control: &mut Session, backends: &BTreeSet<i32>) {
    if backends.is_empty() {
        return;
    }
    let list: Vec<String> = backends.iter().map(i32::to_string).collect();
    let _ = control.query(&format!(
        "SELECT pg_cancel_backend(pid) FROM unnest(ARRAY[{}]) AS pid",
        list.join(", ")
    ));
}

/// How a task shares its table with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    /// Nothing else may run on the table.
    Alone,
    /// Like CREATE INDEX: any number of its kind.
    Shared,
}

/// Statements on one table.
#[derive(Clone, Debug)]
pub(super) struct Task {
    /// Index into the data set's tables.
    pub(super) table: usize,
    pub(super) sharing: Sharing,
    pub(super) statements: Vec<String>,
    /// All statements in one transaction, or none in any (VACUUM).
    pub(super) transaction: bool,
}

/// Tasks to take; one that would only wait for the lock of another stays until the table is free.
struct Queue {
    tasks: Mutex<Pending>,
    freed: Condvar,
}

struct Pending {
    waiting: Vec<Task>,
    /// Tasks under way by table.
    busy: BTreeMap<usize, (u32, Sharing)>,
}

impl Queue {
    fn take<N>(&self, desk: &Desk<'_, N>) -> Result<Option<Task>, SessionError> {
        let mut pending = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            desk.check()?;
            if pending.waiting.is_empty() {
                return Ok(None);
            }
            let free = pending.waiting.iter().position(|task| {
                pending.busy.get(&task.table).is_none_or(|(_, sharing)| {
                    *sharing == Sharing::Shared && task.sharing == Sharing::Shared
                })
            });
            if let Some(index) = free {
                let task = pending.waiting.remove(index);
                let entry = pending.busy.entry(task.table).or_insert((0, task.sharing));
                entry.0 += 1;
                return Ok(Some(task));
            }
            pending = self
                .freed
                .wait_timeout(pending, GLANCE)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    fn done(&self, task: &Task) {
        let mut pending = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = pending.busy.get_mut(&task.table) {
            entry.0 -= 1;
            if entry.0 == 0 {
                pending.busy.remove(&task.table);
            }
        }
        self.freed.notify_all();
    }
}

impl Crew<'_> {
    /// Runs `tasks`, taken in order as far as their tables are free; `done` hears how many are.
    pub(super) fn run_tasks(
        &mut self,
        control: &mut Session,
        tasks: Vec<Task>,
        done: &mut dyn FnMut(u64),
    ) -> Result<(), SessionError> {
        self.size = self.size.min(tasks.len());
        let queue = Queue {
            tasks: Mutex::new(Pending {
                waiting: tasks,
                busy: BTreeMap::new(),
            }),
            freed: Condvar::new(),
        };
        let mut count = 0;
        self.run(
            control,
            &|session, desk| {
                while let Some(task) = queue.take(desk)? {
                    perform(session, &task)?;
                    queue.done(&task);
                    desk.tell(());
                }
                Ok(())
            },
            &mut |()| {
                count += 1;
                done(count);
            },
        )
    }
}

fn perform(session: &mut Session, task: &Task) -> Result<(), SessionError> {
    let mut tries = 1;
    loop {
        match attempt(session, task) {
            Err(error) if error.failure.retryable() && tries < TRIES_MAX => {
                tries += 1;
                if task.transaction {
                    session.query("ROLLBACK")?;
                }
            }
            result => return result,
        }
    }
}

/// One statement, one message: a server whose client has died then stops after the one under
/// way, and what it did in this transaction is undone.
fn attempt(session: &mut Session, task: &Task) -> Result<(), SessionError> {
    if task.transaction {
        session.query("BEGIN")?;
    }
    for statement in &task.statements {
        session.query(statement)?;
    }
    if task.transaction {
        session.query("COMMIT")?;
    }
    Ok(())
}
