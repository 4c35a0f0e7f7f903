//! Counting: every completion is counted once, in the frame that is open when it finished.
//!
//! A frame is one window of the run, or all that finished after the measurement. Workers fill
//! frames of their own, aligned to the same ticks; the driving thread merges them. Totals are sums
//! of frames, so that windows and totals cannot disagree.

use super::Failures;
use super::shared::{Budget, Shared};
use crate::clock::{Tick, thread_cpu};
use crate::problem::Problem;
use crate::record::{Counts, Latency, failure_index};
use crate::session::{Failure, SessionError};
use crate::workload::{Outcome, ProfileId};
use base64::Engine;
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};
use hdrhistogram::{Counter, Histogram};
use std::collections::BTreeMap;
use std::time::Duration;

/// Longest time a histogram tells apart, in µs: one hour; longer ones count as this.
const LONGEST_US: u64 = 3_600_000_000;
/// Three significant digits: no value is off by more than 0.1 %.
const DIGITS: u8 = 3;
/// Distinct error messages kept of each class.
const MESSAGES_MAX: usize = 5;
const OTHER_MESSAGES: &str = "(other messages)";

/// A histogram of microseconds.
pub(super) fn histogram<T: Counter>() -> Histogram<T> {
    Histogram::new_with_bounds(1, LONGEST_US, DIGITS).expect("the bounds are valid")
}

/// Nanoseconds to the nearest microsecond.
fn micros(nanos: u64) -> u64 {
    nanos.saturating_add(500) / 1000
}

/// One transaction that reached an end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Completion {
    pub(super) profile: ProfileId,
    /// When it was due.
    pub(super) scheduled: Tick,
    /// When its first attempt began.
    pub(super) started: Tick,
    pub(super) finished: Tick,
    /// Since when the session that took it had nothing else to do.
    pub(super) free_since: Tick,
    /// Attempts, the first included.
    pub(super) tries: u32,
    pub(super) round_trips: u64,
    pub(super) result: Result<Outcome, Failure>,
}

impl Completion {
    /// finished − scheduled: waiting for a session and retries count.
    fn response_time(&self) -> u64 {
        self.finished.since(self.scheduled)
    }

    /// finished − started.
    fn service_time(&self) -> u64 {
        self.finished.since(self.started)
    }

    /// started − scheduled.
    fn lag(&self) -> u64 {
        self.started.since(self.scheduled)
    }

    /// The part of the lag that is the driver's own: a session was free and the work was due.
    fn lateness(&self) -> u64 {
        self.started.since(self.scheduled.max(self.free_since))
    }
}

/// The instants of a run, the same for all workers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    /// Begin of the ramp-up.
    pub(super) start: Tick,
    /// Begin of the measurement.
    pub(super) begin: Tick,
    /// Nanoseconds of one window; windows lie on a grid through `begin`.
    pub(super) window: u64,
}

impl Schedule {
    /// The next instant of the grid after `tick`.
    fn boundary_after(&self, tick: Tick) -> Tick {
        if tick < self.begin {
            let behind = (self.begin.since(tick) - 1) / self.window * self.window;
            Tick(self.begin.0 - behind)
        } else {
            let windows = tick.since(self.begin) / self.window + 1;
            Tick(
                self.begin
                    .0
                    .saturating_add(windows.saturating_mul(self.window)),
            )
        }
    }

    /// Number of the window that begins at `tick`: negative during ramp-up.
    fn index(&self, tick: Tick) -> i64 {
        let windows = |nanos: u64| i64::try_from(nanos).unwrap_or(i64::MAX);
        if tick < self.begin {
            -windows(self.begin.since(tick).div_ceil(self.window))
        } else {
            windows(tick.since(self.begin) / self.window)
        }
    }

    /// Seconds from the begin of the measurement, negative before it.
    pub(super) fn seconds(&self, tick: Tick) -> f64 {
        if tick < self.begin {
            -(self.begin.since(tick) as f64 / 1e9)
        } else {
            tick.since(self.begin) as f64 / 1e9
        }
    }
}

/// What finished in one span of time.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    /// Who fills it.
    pub(super) worker: u32,
    /// Number of the window on the grid.
    pub(super) index: i64,
    pub(super) begin: Tick,
    pub(super) end: Tick,
    /// By profile index.
    pub(super) counts: Vec<Counts>,
    /// By profile index.
    pub(super) failures: Vec<Failures>,
    /// Response times by profile index, µs.
    pub(super) response: Vec<Histogram<u32>>,
}

impl Frame {
    pub(super) fn new(profiles: usize, worker: u32) -> Frame {
        Frame {
            worker,
            index: 0,
            begin: Tick(0),
            end: Tick(u64::MAX),
            counts: vec![Counts::default(); profiles],
            failures: vec![Failures::default(); profiles],
            response: (0..profiles).map(|_| histogram()).collect(),
        }
    }

    /// Empties it for reuse.
    pub(super) fn clear(&mut self) {
        self.counts.fill(Counts::default());
        self.failures.fill(Failures::default());
        for histogram in &mut self.response {
            if !histogram.is_empty() {
                histogram.reset();
            }
        }
    }

    /// Adds another worker's frame of the same window.
    pub(super) fn merge(&mut self, other: &Frame) {
        self.begin = self.begin.min(other.begin);
        self.end = self.end.max(other.end);
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            mine.add(theirs);
        }
        for (mine, theirs) in self.failures.iter_mut().zip(&other.failures) {
            add_failures(mine, theirs);
        }
        for (mine, theirs) in self.response.iter_mut().zip(&other.response) {
            mine.add(theirs)
                .expect("all histograms have the same bounds");
        }
    }

    fn record(&mut self, completion: &Completion) {
        let profile = completion.profile.index();
        let counts = &mut self.counts[profile];
        counts.offered += 1;
        counts.retries += u64::from(completion.tries.saturating_sub(1));
        match completion.result {
            Ok(Outcome::Committed) => counts.committed += 1,
            Ok(Outcome::RolledBack) => counts.rolled_back += 1,
            Err(failure) => {
                counts.failed += 1;
                self.failures[profile][failure_index(failure)] += 1;
            }
        }
        // The time of a transaction that failed is no response time: it says nothing about how
        // fast the server answers. It is in the counts.
        if completion.result.is_ok() {
            self.response[profile].saturating_record(micros(completion.response_time()));
        }
    }

    /// The accounting identity, and that each success left exactly one response time.
    pub(super) fn balance(&self) -> Result<(), Problem> {
        for (counts, response) in self.counts.iter().zip(&self.response) {
            if !counts.balanced() || counts.completed() != response.len() {
                return Err(Problem::defect(format!(
                    "transactions do not add up: {counts:?}, {} response times",
                    response.len()
                )));
            }
        }
        Ok(())
    }

    /// Transactions that reached an end.
    pub(super) fn offered(&self) -> u64 {
        self.counts.iter().map(|counts| counts.offered).sum()
    }
}

pub(super) fn add_failures(mine: &mut Failures, theirs: &Failures) {
    for (mine, theirs) in mine.iter_mut().zip(theirs) {
        *mine += theirs;
    }
}

/// The first few error messages of each class, counted.
#[derive(Clone, Debug, Default)]
pub(super) struct Errors {
    by_class: BTreeMap<Failure, Vec<(String, u64)>>,
}

impl Errors {
    pub(super) fn note(&mut self, error: &SessionError) {
        match error.sqlstate {
            Some(state) => {
                let state = String::from_utf8_lossy(&state);
                self.add(
                    error.failure,
                    format!("{} (SQLSTATE {state})", error.message),
                    1,
                );
            }
            None => self.add(error.failure, error.message.clone(), 1),
        }
    }

    fn add(&mut self, class: Failure, message: String, count: u64) {
        let messages = self.by_class.entry(class).or_default();
        let known = |wanted: &str, messages: &[(String, u64)]| {
            messages.iter().position(|(text, _)| text == wanted)
        };
        let slot = known(&message, messages).or_else(|| {
            (messages.len() >= MESSAGES_MAX)
                .then(|| known(OTHER_MESSAGES, messages))
                .flatten()
        });
        match slot {
            Some(slot) => messages[slot].1 += count,
            None if messages.len() >= MESSAGES_MAX => {
                messages.push((OTHER_MESSAGES.to_owned(), count));
            }
            None => messages.push((message, count)),
        }
    }

    pub(super) fn merge(&mut self, other: Errors) {
        for (class, messages) in other.by_class {
            for (message, count) in messages {
                self.add(class, message, count);
            }
        }
    }

    /// As in the record: class name → message → count.
    pub(super) fn into_record(self) -> BTreeMap<String, BTreeMap<String, u64>> {
        self.by_class
            .into_iter()
            .map(|(class, messages)| (class.name().to_owned(), messages.into_iter().collect()))
            .collect()
    }
}

/// What one worker measured besides its frames; merging is associative and commutative.
#[derive(Clone, Debug)]
pub(super) struct Totals {
    /// Service times of successes in the measurement by profile index, µs.
    pub(super) service: Vec<Histogram<u64>>,
    /// started − scheduled of successes in the measurement by profile index, µs.
    pub(super) lag: Vec<Histogram<u64>>,
    /// The driver's own part of the lag over all transactions of the measurement, µs.
    pub(super) lateness: Histogram<u64>,
    pub(super) round_trips: u64,
    pub(super) unknown_commits: u64,
    pub(super) reconnects: u64,
    pub(super) errors: Errors,
    /// What finished after the measurement, or was given up by the driver.
    pub(super) after: Frame,
}

impl Totals {
    pub(super) fn new(profiles: usize) -> Totals {
        Totals {
            service: (0..profiles).map(|_| histogram()).collect(),
            lag: (0..profiles).map(|_| histogram()).collect(),
            lateness: histogram(),
            round_trips: 0,
            unknown_commits: 0,
            reconnects: 0,
            errors: Errors::default(),
            after: Frame::new(profiles, 0),
        }
    }

    pub(super) fn merge(&mut self, other: Totals) {
        let pairs = self.service.iter_mut().zip(other.service);
        let pairs = pairs.chain(self.lag.iter_mut().zip(other.lag));
        for (mine, theirs) in pairs.chain([(&mut self.lateness, other.lateness)]) {
            mine.add(theirs)
                .expect("all histograms have the same bounds");
        }
        self.round_trips += other.round_trips;
        self.unknown_commits += other.unknown_commits;
        self.reconnects += other.reconnects;
        self.errors.merge(other.errors);
        self.after.merge(&other.after);
    }
}

/// Takes the frames that a worker has closed and hands back empty ones.
pub(super) trait FrameSink {
    fn closed(&mut self, frame: Box<Frame>);
    fn empty(&mut self) -> Option<Box<Frame>>;
}

/// One worker's counts.
pub(super) struct Recorder<'a, S> {
    schedule: Schedule,
    /// End of the measurement as far as this worker knows.
    end: Tick,
    frame: Box<Frame>,
    totals: Totals,
    /// Finish of the last completion that was counted in a window.
    last: Tick,
    over: bool,
    budget: Budget<'a>,
    sink: S,
    /// Thread CPU at the begin of the measurement, then what the measurement used.
    cpu: Duration,
    defect: Option<Problem>,
}

impl<'a, S: FrameSink> Recorder<'a, S> {
    pub(super) fn new(
        profiles: usize,
        worker: u32,
        schedule: Schedule,
        shared: &'a Shared,
        sink: S,
    ) -> Self {
        let mut recorder = Recorder {
            schedule,
            end: shared.end(),
            frame: Box::new(Frame::new(profiles, worker)),
            totals: Totals::new(profiles),
            last: schedule.start,
            over: false,
            budget: Budget::new(shared),
            sink,
            cpu: Duration::ZERO,
            defect: None,
        };
        recorder.open(schedule.start);
        recorder
    }

    /// Counts `completion`; true when it belongs to the measurement.
    #[inline]
    pub(super) fn record(&mut self, completion: &Completion) -> bool {
        let finished = completion.finished;
        if finished >= self.frame.end {
            self.roll(finished);
        }
        if self.over {
            self.totals.after.record(completion);
            return false;
        }
        let measured = finished >= self.schedule.begin;
        if measured && !self.budget.spend(finished) {
            self.totals.after.record(completion);
            return false;
        }
        self.last = finished;
        self.frame.record(completion);
        if measured {
            self.totals.round_trips += completion.round_trips;
            self.totals
                .lateness
                .saturating_record(micros(completion.lateness()));
            if completion.result.is_ok() {
                let profile = completion.profile.index();
                self.totals.service[profile].saturating_record(micros(completion.service_time()));
                self.totals.lag[profile].saturating_record(micros(completion.lag()));
            }
        }
        measured
    }

    /// A transaction in flight that the driver gave up at the end of the drain.
    pub(super) fn abandon(&mut self, profile: ProfileId) {
        let counts = &mut self.totals.after.counts[profile.index()];
        counts.offered += 1;
        counts.failed += 1;
        self.totals.after.failures[profile.index()][failure_index(Failure::Timeout)] += 1;
        self.totals.unknown_commits += 1;
    }

    pub(super) fn totals(&mut self) -> &mut Totals {
        &mut self.totals
    }

    /// The measurement ends at `end`, if that is earlier than known. What has been counted up to
    /// now stays counted: the end moves behind it.
    pub(super) fn ends(&mut self, end: Tick) {
        if end < self.end && !self.over {
            self.end = end
                .max(Tick(self.last.0 + 1))
                .max(self.frame.begin)
                .min(self.end);
            self.frame.end = self.frame.end.min(self.end);
        }
    }

    /// Closes the windows that end at or before `now`.
    pub(super) fn roll(&mut self, now: Tick) {
        while now >= self.frame.end && !self.over {
            let end = self.frame.end;
            self.close();
            if end >= self.end {
                self.over = true;
                if end > self.schedule.begin {
                    self.cpu = thread_cpu().saturating_sub(self.cpu);
                }
            } else {
                self.open(end);
            }
        }
    }

    fn close(&mut self) {
        if let Err(problem) = self.frame.balance() {
            self.defect.get_or_insert(problem);
        }
        let fresh = self.sink.empty();
        let fresh = fresh
            .unwrap_or_else(|| Box::new(Frame::new(self.frame.counts.len(), self.frame.worker)));
        let frame = std::mem::replace(&mut self.frame, fresh);
        // The end may have moved to the begin of a window that is still empty.
        if frame.end > frame.begin || frame.offered() > 0 {
            self.sink.closed(frame);
        }
    }

    fn open(&mut self, begin: Tick) {
        if begin == self.schedule.begin {
            self.cpu = thread_cpu();
        }
        self.frame.index = self.schedule.index(begin);
        self.frame.begin = begin;
        self.frame.end = self.schedule.boundary_after(begin).min(self.end);
    }

    /// The next instant at which `roll` has something to do.
    pub(super) fn boundary(&self) -> Option<Tick> {
        (!self.over).then_some(self.frame.end)
    }

    /// Has the measurement ended?
    pub(super) fn over(&self) -> bool {
        self.over
    }

    /// The end of the measurement as it was for this worker, the CPU time of the measurement,
    /// and everything else.
    pub(super) fn finish(self) -> Result<(Tick, Duration, Totals), Problem> {
        match self.defect {
            Some(problem) => Err(problem),
            None => Ok((self.end, self.cpu, self.totals)),
        }
    }
}

/// Adds `part` to a total that may outgrow 32-bit counters.
pub(super) fn absorb(total: &mut Histogram<u64>, part: &Histogram<u32>) {
    for value in part.iter_recorded() {
        total.saturating_record_n(value.value_iterated_to(), value.count_at_value().into());
    }
}

/// Summary of `histogram`, with itself.
pub(super) fn latency(histogram: &Histogram<u64>) -> Latency {
    let at = |quantile| histogram.value_at_quantile(quantile);
    Latency {
        count: histogram.len(),
        mean: histogram.mean(),
        p50: at(0.5),
        p90: at(0.9),
        p95: at(0.95),
        p99: at(0.99),
        p999: at(0.999),
        max: histogram.max(),
        hdr: encode(histogram),
    }
}

/// HdrHistogram V2 + deflate, base64; empty without samples.
pub(super) fn encode<T: Counter>(histogram: &Histogram<T>) -> String {
    if histogram.is_empty() {
        return String::new();
    }
    let mut bytes = Vec::new();
    V2DeflateSerializer::new()
        .serialize(histogram, &mut bytes)
        .expect("memory is always written to");
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
