//! The live line: what the driver reports while it runs, and the probe at the measurement's ends.

use super::{note, on_terminal};
use crate::driver::{LiveWindow, Phase, Watcher};
use crate::observe::Probe;
use crate::record::Counts;
use crate::session::Failure;
use crate::units::grouped;
use indicatif::{ProgressBar, ProgressStyle};
use std::fmt::Write as _;

/// Prints a line for each window and lets the probe read the server's counters.
pub(super) struct Live<'a> {
    probe: Option<&'a mut Probe>,
    /// Index of New-Order among the profiles.
    new_order: Option<usize>,
    bar: Option<ProgressBar>,
}

impl<'a> Live<'a> {
    pub(super) fn new(
        probe: Option<&'a mut Probe>,
        new_order: Option<usize>,
        ramp_s: f64,
        measure_s: f64,
    ) -> Self {
        let bar = on_terminal().then(|| bar(ramp_s + measure_s));
        Self {
            probe,
            new_order,
            bar,
        }
    }

    fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| note(text)),
            None => note(text),
        }
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "seconds, shown"
)]
fn bar(seconds: f64) -> ProgressBar {
    let bar = ProgressBar::new(seconds.ceil() as u64);
    if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} s") {
        bar.set_style(style);
    }
    bar
}

impl Watcher for Live<'_> {
    fn phase(&mut self, phase: Phase) {
        let message = match phase {
            Phase::Connecting => "connecting",
            Phase::RampUp => "ramp-up",
            Phase::Measuring => {
                if let Some(probe) = &mut self.probe {
                    probe.begin();
                }
                "measuring"
            }
            Phase::Draining => {
                if let Some(probe) = &mut self.probe {
                    probe.end();
                }
                "draining"
            }
            Phase::Done => {
                if let Some(bar) = self.bar.take() {
                    bar.finish_and_clear();
                }
                return;
            }
        };
        match &self.bar {
            Some(bar) => bar.set_message(message),
            None => note(message),
        }
    }

    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "rates, shown"
    )]
    fn window(&mut self, window: &LiveWindow) {
        if let Some(bar) = &self.bar {
            bar.inc(window.length_s.round() as u64);
        }
        if window.length_s <= 0.0 {
            return;
        }
        let mut all = Counts::default();
        for counts in &window.counts {
            all.add(counts);
        }
        let rate = all.completed() as f64 / window.length_s;
        let end = window.begin_s + window.length_s;
        let mut line = format!("{end:7.1} s  {} conn  {rate:8.1} tps", window.connections);
        if let Some(counts) = self.new_order.and_then(|i| window.counts.get(i)) {
            let nopm = counts.committed as f64 * 60.0 / window.length_s;
            let _ = write!(line, "  {:>9} NOPM", grouped(nopm as u64));
        }
        let _ = write!(line, "  p95 {:8.2} ms", window.p95_us as f64 / 1000.0);
        for (failure, &n) in Failure::ALL.iter().zip(&window.failures) {
            if n > 0 {
                let _ = write!(line, "  {} {}", failure.name(), grouped(n));
            }
        }
        if all.retries > 0 {
            let _ = write!(line, "  retries {}", grouped(all.retries));
        }
        if window.begin_s < 0.0 {
            line.push_str("  (ramp-up)");
        }
        self.line(&line);
    }
}
