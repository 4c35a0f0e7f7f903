//! What the driving thread adds up: windows and the workers' reports, into the record.

use super::recorder::{Frame, Schedule, Totals, absorb, add_failures, encode, histogram, latency};
use super::worker::{Report, TallyOf};
use super::{Driven, Failures};
use crate::problem::Problem;
use crate::record::{ClientCost, Counts, DriveRecord, Ended, ProfileRecord, WindowRecord};
use crate::session::Failure;
use crate::workload::{Terminal, Workload};
use hdrhistogram::Histogram;
use std::time::Duration;

/// What the driving thread adds up from windows.
pub(super) struct Sums {
    pub(super) schedule: Schedule,
    windows: Vec<WindowRecord>,
    /// Over the measurement, by profile index.
    counts: Vec<Counts>,
    failures: Vec<Failures>,
    response: Vec<Histogram<u64>>,
    /// Over everything, by profile index.
    overall: Vec<Counts>,
    pub(super) ended: Ended,
}

impl Sums {
    pub(super) fn new(profiles: usize, schedule: Schedule) -> Sums {
        Sums {
            schedule,
            windows: Vec::new(),
            counts: vec![Counts::default(); profiles],
            failures: vec![Failures::default(); profiles],
            response: (0..profiles).map(|_| histogram()).collect(),
            overall: vec![Counts::default(); profiles],
            ended: Ended::Planned,
        }
    }

    /// Adds a window of all workers, which began at `begin_s`.
    pub(super) fn add(&mut self, frame: &Frame, begin_s: f64, length_s: f64) {
        for (sum, counts) in self.overall.iter_mut().zip(&frame.counts) {
            sum.add(counts);
        }
        if frame.begin >= self.schedule.begin {
            for profile in 0..self.counts.len() {
                self.counts[profile].add(&frame.counts[profile]);
                add_failures(&mut self.failures[profile], &frame.failures[profile]);
                absorb(&mut self.response[profile], &frame.response[profile]);
            }
        }
        self.windows.push(WindowRecord {
            begin_s,
            length_s,
            counts: frame.counts.clone(),
            response_hdr: frame.response.iter().map(encode).collect(),
        });
    }

    /// Puts the windows and the workers' reports together.
    pub(super) fn finish<W: Workload>(
        &mut self,
        workload: &W,
        reports: Vec<Report<TallyOf<W>>>,
    ) -> Result<Driven, Problem> {
        let workers = u32::try_from(reports.len()).unwrap_or(u32::MAX);
        let end = reports.iter().map(|report| report.end).max();
        let measurement = end
            .unwrap_or(self.schedule.begin)
            .since(self.schedule.begin);
        let mut totals = Totals::new(workload.profiles().len());
        let mut tally = TallyOf::<W>::default();
        let mut deferred_left = 0;
        let mut cpu = Vec::new();
        for report in reports {
            totals.merge(report.totals);
            W::Terminal::merge(&mut tally, report.tally);
            deferred_left += report.deferred_left;
            cpu.push(report.cpu);
        }
        for (sum, counts) in self.overall.iter_mut().zip(&totals.after.counts) {
            sum.add(counts);
            if !sum.balanced() {
                return Err(Problem::defect(format!(
                    "transactions do not add up: {sum:?}"
                )));
            }
        }
        let measurement_s = measurement as f64 / 1e9;
        let record = DriveRecord {
            measurement_s,
            profiles: self.profiles(&totals)?,
            overall: self.overall.clone(),
            unknown_commits: totals.unknown_commits,
            windows: std::mem::take(&mut self.windows),
            client: self.client(workers, &cpu, &totals, measurement_s),
            ended: self.ended,
            reconnects: totals.reconnects,
            deferred_left,
            errors: totals.errors.into_record(),
        };
        Ok(Driven {
            record,
            sheet: workload.run_sheet(&tally),
        })
    }

    fn profiles(&self, totals: &Totals) -> Result<Vec<ProfileRecord>, Problem> {
        let mut profiles = Vec::new();
        for (profile, counts) in self.counts.iter().enumerate() {
            let failed: u64 = self.failures[profile].iter().sum();
            let timed = [
                self.response[profile].len(),
                totals.service[profile].len(),
                totals.lag[profile].len(),
            ];
            if !counts.balanced() || failed != counts.failed || timed != [counts.completed(); 3] {
                return Err(Problem::defect(format!(
                    "transactions do not add up: {counts:?}, {failed} failures, {timed:?} times"
                )));
            }
            let failures = Failure::ALL.iter().zip(self.failures[profile]);
            profiles.push(ProfileRecord {
                counts: *counts,
                failures: failures
                    .filter(|(_, count)| *count > 0)
                    .map(|(failure, count)| (failure.name().to_owned(), count))
                    .collect(),
                response_time: latency(&self.response[profile]),
                service_time: latency(&totals.service[profile]),
                lag: latency(&totals.lag[profile]),
            });
        }
        Ok(profiles)
    }

    fn client(
        &self,
        workers: u32,
        cpu: &[Duration],
        totals: &Totals,
        measurement_s: f64,
    ) -> ClientCost {
        let completed: u64 = self.counts.iter().map(Counts::completed).sum();
        let per_txn = |sum: f64| {
            if completed == 0 {
                0.0
            } else {
                sum / completed as f64
            }
        };
        let cpu_s: f64 = cpu.iter().map(Duration::as_secs_f64).sum();
        let busiest = cpu.iter().max().map_or(0.0, Duration::as_secs_f64);
        ClientCost {
            workers,
            cpu_s,
            cpu_us_per_txn: per_txn(cpu_s * 1e6),
            cpu_share: if measurement_s > 0.0 {
                busiest / measurement_s
            } else {
                0.0
            },
            lag_us_p99: totals.lateness.value_at_quantile(0.99),
            round_trips_per_txn: per_txn(totals.round_trips as f64),
        }
    }
}
