//! Progress on stderr: bars on a terminal, a line a step elsewhere.

use super::{note, on_terminal};
use crate::clock::{Clock, Monotonic, Tick};
use crate::units::{Bytes, grouped};
use crate::{dataset, target};
use indicatif::{ProgressBar, ProgressStyle};
use std::fmt::Write as _;
use std::time::Duration;

/// Between two lines of one step where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Shows steps of the target and of the data set.
pub(super) struct Steps {
    bar: Option<ProgressBar>,
    step: String,
    /// Of the step under way.
    clock: Monotonic,
    total: u64,
    next_line: Tick,
}

impl Steps {
    pub(super) fn new() -> Self {
        Self {
            bar: None,
            step: String::new(),
            clock: Monotonic::start(),
            total: 0,
            next_line: Tick(u64::MAX),
        }
    }

    /// Ends what is shown.
    pub(super) fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    fn start(&mut self, bar: ProgressBar, template: &str) {
        self.finish();
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        self.bar = Some(bar);
    }
}

impl std::ops::Drop for Steps {
    fn drop(&mut self) {
        self.finish();
    }
}

impl target::Progress for Steps {
    fn step(&mut self, what: &str) {
        what.clone_into(&mut self.step);
        if on_terminal() {
            self.start(ProgressBar::new_spinner(), "{spinner} {msg}");
            if let Some(bar) = &self.bar {
                bar.set_message(what.to_owned());
            }
        } else {
            note(what);
        }
    }

    fn bytes(&mut self, done: u64, total: Option<u64>) {
        let Some(bar) = &self.bar else { return };
        if bar.length() != total || total.is_none() {
            let bar = match total {
                Some(total) => ProgressBar::new(total),
                None => ProgressBar::new_spinner(),
            };
            let step = self.step.clone();
            self.start(
                bar,
                "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}",
            );
            if let Some(bar) = &self.bar {
                bar.set_message(step);
            }
        }
        if let Some(bar) = &self.bar {
            bar.set_position(done);
        }
    }
}

impl dataset::Progress for Steps {
    fn begin(&mut self, name: &str, total: u64) {
        name.clone_into(&mut self.step);
        if on_terminal() {
            let bar = ProgressBar::new(total);
            self.start(
                bar,
                "{prefix} {wide_bar} {percent}% {per_sec} {msg} {eta} left",
            );
            if let Some(bar) = &self.bar {
                bar.set_prefix(name.to_owned());
            }
        } else {
            note(&format!("{name} …"));
            self.clock = Monotonic::start();
            self.total = total;
            self.next_line = Tick(0).after(LINE_EVERY);
        }
    }

    fn advance(&mut self, done: u64, bytes: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(done);
            let seconds = bar.elapsed().as_secs_f64();
            if bytes > 0 && seconds > 0.0 {
                bar.set_message(format!("{:.1} MB/s", bytes as f64 / 1e6 / seconds));
            }
            return;
        }
        let now = self.clock.now();
        if now >= self.next_line {
            self.next_line = now.after(LINE_EVERY);
            note(&line(
                &self.step,
                (done, self.total),
                bytes,
                now.0 as f64 / 1e9,
            ));
        }
    }

    fn end(&mut self) {
        self.finish();
    }
}

/// `3,000,000 rows, 1.2 GiB`.
pub(super) fn rows_and_bytes(rows: u64, bytes: u64) -> String {
    format!("{} rows, {}", grouped(rows), Bytes(bytes))
}

/// `rows: 12 %, 123,000/s, 45.1 MB/s, 80 s left`.
fn line(step: &str, (done, total): (u64, u64), bytes: u64, seconds: f64) -> String {
    let share = done as f64 / total.max(1) as f64;
    let rate = done as f64 / seconds;
    let mut line = format!("{step}: {:.0} %, {rate:.0}/s", share * 100.0);
    if bytes > 0 {
        let _ = write!(line, ", {:.1} MB/s", bytes as f64 / 1e6 / seconds);
    }
    if rate > 0.0 {
        let left = total.saturating_sub(done) as f64 / rate;
        let _ = write!(line, ", {left:.0} s left");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_share_rates_and_time_left() {
        let found = line("rows", (1_000, 4_000), 5_000_000, 10.0);
        assert_eq!(found, "rows: 25 %, 100/s, 0.5 MB/s, 30 s left");
        assert_eq!(line("check", (0, 33), 0, 10.0), "check: 0 %, 0/s");
    }
}
