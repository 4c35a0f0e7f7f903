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
                self.cpu = if end > self.schedule.begin {
                    thread_cpu().saturating_sub(self.cpu)
                } else {
                    Duration::ZERO
                };
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Keeps what was closed.
    #[derive(Default)]
    struct Shelf(Vec<Frame>);

    impl FrameSink for &mut Shelf {
        fn closed(&mut self, frame: Box<Frame>) {
            self.0.push(*frame);
        }
        fn empty(&mut self) -> Option<Box<Frame>> {
            None
        }
    }

    const SCHEDULE: Schedule = Schedule {
        start: Tick(100),
        begin: Tick(2_600),
        window: 1_000,
    };

    fn shared(end: u64) -> Shared {
        let shared = Shared::new(Duration::ZERO, 1, None);
        shared.end_by(Tick(end));
        shared
    }

    fn completion(profile: u8, finished: u64, response: u64, kind: u8) -> Completion {
        Completion {
            profile: ProfileId(profile),
            scheduled: Tick(finished.saturating_sub(response)),
            started: Tick(finished.saturating_sub(response / 2)),
            finished: Tick(finished),
            free_since: Tick(0),
            tries: u32::from(kind % 4) + 1,
            round_trips: 3,
            result: match kind {
                0..=3 => Ok(Outcome::Committed),
                4..=5 => Ok(Outcome::RolledBack),
                _ => Err(Failure::ALL[usize::from(kind) % 7]),
            },
        }
    }

    #[test]
    fn windows_lie_on_a_grid_through_the_begin_of_the_measurement() {
        let mut tick = SCHEDULE.start;
        let mut windows = Vec::new();
        while tick < Tick(5_000) {
            windows.push((SCHEDULE.index(tick), tick.0));
            tick = SCHEDULE.boundary_after(tick);
        }
        let grid = [
            (-3, 100),
            (-2, 600),
            (-1, 1_600),
            (0, 2_600),
            (1, 3_600),
            (2, 4_600),
        ];
        assert_eq!(windows, grid);
        assert!((SCHEDULE.seconds(Tick(1_600)) + 1e-6).abs() < 1e-15);
    }

    #[test]
    fn an_early_end_keeps_what_was_counted_and_counts_nothing_after_it() {
        let shared = shared(100_000);
        let mut shelf = Shelf::default();
        let mut recorder = Recorder::new(1, 0, SCHEDULE, &shared, &mut shelf);
        assert!(!recorder.record(&completion(0, 2_599, 10, 0)), "ramp-up");
        assert!(recorder.record(&completion(0, 2_600, 10, 0)));
        assert!(recorder.record(&completion(0, 4_000, 10, 0)));
        recorder.ends(Tick(3_900));
        assert!(!recorder.record(&completion(0, 4_001, 10, 0)));
        assert!(recorder.over());
        let (end, _, totals) = recorder.finish().unwrap();
        assert_eq!(end, Tick(4_001), "behind what was counted");
        assert_eq!(totals.after.offered(), 1);
        let windows: Vec<_> = shelf
            .0
            .iter()
            .map(|f| (f.begin.0, f.end.0, f.offered()))
            .collect();
        let expected = [
            (100, 600, 0),
            (600, 1_600, 0),
            (1_600, 2_600, 1),
            (2_600, 3_600, 1),
            (3_600, 4_001, 1),
        ];
        assert_eq!(windows, expected);
    }

    fn totals(completions: &[Completion]) -> (Vec<Frame>, Totals) {
        let shared = shared(50_000);
        let mut shelf = Shelf::default();
        let mut recorder = Recorder::new(2, 0, SCHEDULE, &shared, &mut shelf);
        for completion in completions {
            recorder.record(completion);
        }
        recorder.roll(Tick(60_000));
        let (_, _, totals) = recorder.finish().unwrap();
        (shelf.0, totals)
    }

    fn assert_same(a: &Totals, b: &Totals) {
        assert_eq!(a.service, b.service);
        assert_eq!(a.lag, b.lag);
        assert_eq!(a.lateness, b.lateness);
        assert_eq!(a.round_trips, b.round_trips);
        assert_eq!(a.after.counts, b.after.counts);
        assert_eq!(a.after.response, b.after.response);
    }

    fn completions() -> impl Strategy<Value = Vec<(u8, u64, u64, u8)>> {
        let one = (0_u8..2, 100_u64..60_000, 0_u64..5_000_000_000_000, 0_u8..13);
        prop::collection::vec(one, 0..60)
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 32,
            failure_persistence: None,
            ..Default::default()
        })]

        #[test]
        fn the_parts_of_a_run_merge_to_the_whole_in_any_order(
            mut all in completions(),
            cuts in prop::collection::vec(0_usize..3, 60),
        ) {
            all.sort_by_key(|&(_, finished, ..)| finished);
            let all: Vec<Completion> =
                all.into_iter().map(|(p, f, r, k)| completion(p, f, r, k)).collect();
            let part = |n: usize| -> Vec<Completion> {
                all.iter().zip(&cuts).filter(|(_, cut)| **cut == n).map(|(c, _)| *c).collect()
            };
            let (whole_frames, whole) = totals(&all);
            let [a, b, c] = [0, 1, 2].map(|n| totals(&part(n)));
            let (mut left, mut right) = (a.1.clone(), b.1.clone());
            left.merge(b.1.clone());
            left.merge(c.1.clone());
            right.merge(c.1.clone());
            let mut right_first = a.1.clone();
            right_first.merge(right);
            assert_same(&left, &whole);
            assert_same(&right_first, &whole);
            for (index, frame) in whole_frames.iter().enumerate() {
                let mut sum = a.0[index].clone();
                sum.merge(&c.0[index]);
                sum.merge(&b.0[index]);
                prop_assert_eq!(&sum.counts, &frame.counts);
                prop_assert_eq!(&sum.failures, &frame.failures);
                prop_assert_eq!(&sum.response, &frame.response);
                prop_assert!(sum.balance().is_ok());
            }
        }

        #[test]
        fn three_digits_of_every_value_survive(micros in 1_u64..LONGEST_US) {
            let mut histogram = histogram::<u64>();
            histogram.saturating_record(micros);
            let shown = latency(&histogram).p50;
            prop_assert!(shown.abs_diff(micros) * 1000 <= micros, "{} shows as {}", micros, shown);
        }
    }

    #[test]
    fn a_sum_that_does_not_add_up_is_found() {
        let mut frame = Frame::new(1, 0);
        frame.record(&completion(0, 10, 5, 0));
        assert!(frame.balance().is_ok());
        frame.counts[0].committed += 1;
        assert!(frame.balance().is_err());
        frame.counts[0].offered += 1;
        assert!(frame.balance().is_err(), "a commit without a response time");
    }

    #[test]
    fn wide_totals_take_over_narrow_windows() {
        let mut narrow = histogram::<u32>();
        let mut wide = histogram::<u64>();
        for micros in [0, 1, 999, 12_345, 7_200_000_000] {
            narrow.saturating_record(micros);
            wide.saturating_record(micros);
        }
        let mut total = histogram::<u64>();
        absorb(&mut total, &narrow);
        absorb(&mut total, &narrow);
        wide.add(wide.clone()).unwrap();
        assert_eq!(total, wide);
        assert_eq!(encode(&histogram::<u32>()), "");
    }

    #[test]
    fn only_the_first_few_messages_of_a_class_are_kept() {
        let mut errors = Errors::default();
        for n in 0..100 {
            errors.note(&SessionError::new(Failure::OtherSql, format!("key {n}")));
            errors.note(&SessionError::new(Failure::Deadlock, "deadlock detected"));
        }
        let mut twice = errors.clone();
        twice.merge(errors);
        let record = twice.into_record();
        assert_eq!(
            record["deadlock"],
            BTreeMap::from([("deadlock detected".to_owned(), 200)])
        );
        assert_eq!(record["other_sql"].len(), MESSAGES_MAX + 1);
        assert_eq!(record["other_sql"].values().sum::<u64>(), 200);
    }
}
