//! What the inputs of a run really were, held against the specification.
//!
//! A share is judged by the specification's band, widened by what chance explains in a sample of
//! that size; a distribution by the chi-squared test against its exact probabilities.

use super::random::{NuRand, legal_delta};
use super::{DELIVERY, NEW_ORDER, ORDER_STATUS, PAYMENT, Tally, Tpcc};
use crate::record::{SheetLine, VerdictStatus};
use crate::units::grouped;
use crate::workload::ProfileId;
use statrs::distribution::{ChiSquared, ContinuousCDF};

/// Deviations beyond chance: one in a thousand runs gives a warning without cause, one in a
/// million is called invalid.
const Z_WARN: f64 = 3.3;
const Z_INVALID: f64 = 5.0;
/// A run has about ten chi-squared lines: together they warn without cause once in a thousand runs.
const P_WARN: f64 = 1e-4;
const P_INVALID: f64 = 1e-6;

/// Expected observations in each class of a chi-squared test.
const CLASS_MIN: f64 = 10.0;

/// The run sheet: one line for each property of the inputs.
pub(super) fn lines(tally: &Tally, workload: &Tpcc) -> Vec<SheetLine> {
    let mut lines = mix(tally, workload);
    let chosen = |profile: ProfileId| workload.chooser.shares()[profile.index()] > 0.0;
    let several = workload.data.population.warehouses > 1;
    if chosen(NEW_ORDER) {
        new_order(tally, workload, several, &mut lines);
    }
    if chosen(PAYMENT) {
        let n = tally.of(PAYMENT);
        lines.push(share(
            "remote_payments",
            "TPC-C 2.5.1.2",
            tally.remote_payments,
            n,
            {
                if several {
                    Band::new(0.14, 0.15, 0.16)
                } else {
                    Band::NOTHING
                }
            },
        ));
        let band = Band::new(0.57, 0.60, 0.63);
        lines.push(share(
            "payments_by_name",
            "TPC-C 2.5.1.2",
            tally.payments_by_name,
            n,
            band,
        ));
    }
    if chosen(ORDER_STATUS) {
        let (hits, n) = (tally.order_status_by_name, tally.of(ORDER_STATUS));
        let band = Band::new(0.57, 0.60, 0.63);
        lines.push(share(
            "order_status_by_name",
            "TPC-C 2.6.1.2",
            hits,
            n,
            band,
        ));
    }
    if chosen(DELIVERY) {
        lines.push(skipped_deliveries(tally));
    }
    if chosen(PAYMENT) || chosen(ORDER_STATUS) {
        let constants = &workload.constants;
        lines.push(skew(
            "nurand_c_last",
            "TPC-C 4.3.2.3",
            &tally.c_last,
            &constants.c_last,
        ));
        lines.push(last_name_constants(workload));
    }
    if chosen(NEW_ORDER) || chosen(PAYMENT) || chosen(ORDER_STATUS) {
        let c_id = &workload.constants.c_id;
        lines.push(skew("nurand_c_id", "TPC-C 2.1.6", &tally.c_id, c_id));
        lines.push(evenness("districts", "TPC-C 2.4.1.2", &tally.districts));
    }
    lines.push(home_warehouses(tally, workload));
    lines
}

fn new_order(tally: &Tally, workload: &Tpcc, several: bool, lines: &mut Vec<SheetLine>) {
    let n = tally.of(NEW_ORDER);
    let band = Band::new(0.009, 0.010, 0.011);
    lines.push(share(
        "rollbacks",
        "TPC-C 2.4.1.4",
        tally.rolled_back,
        n,
        band,
    ));
    lines.push(order_lines(tally));
    lines.push(share(
        "remote_lines",
        "TPC-C 2.4.1.5",
        tally.remote_lines,
        tally.lines,
        {
            if several {
                Band::new(0.0095, 0.01, 0.0105)
            } else {
                Band::NOTHING
            }
        },
    ));
    lines.push(evenness("line_counts", "TPC-C 2.4.1.3", &tally.line_counts));
    lines.push(evenness("quantities", "TPC-C 2.4.1.5", &tally.quantities));
    let ol_i_id = &workload.constants.ol_i_id;
    lines.push(skew(
        "nurand_ol_i_id",
        "TPC-C 2.1.6",
        &tally.ol_i_id,
        ol_i_id,
    ));
}

/// What the specification accepts and expects.
#[derive(Clone, Copy)]
struct Band {
    low: f64,
    expected: f64,
    high: f64,
}

impl Band {
    const NOTHING: Band = Band::new(0.0, 0.0, 0.0);

    const fn new(low: f64, expected: f64, high: f64) -> Self {
        Self {
            low,
            expected,
            high,
        }
    }

    /// Widened by `z` standard deviations of the sample, and a little more where the sample is so
    /// small that its distribution is skewed (Cornish and Fisher 1938, second term).
    fn widened(&self, z: f64, sigma: f64, n: u64) -> Band {
        let skew = if sigma > 0.0 {
            (z * z - 1.0) / 6.0 / n as f64
        } else {
            0.0
        };
        Band {
            low: self.low - z * sigma - skew,
            high: self.high + z * sigma + skew,
            ..*self
        }
    }

    fn contains(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}

/// A mean of `n` observations with standard deviation `sigma` against its band.
fn judged(name: &str, source: &str, measured: f64, n: u64, band: Band, sigma: f64) -> SheetLine {
    if n == 0 {
        return unjudged(name, source, band.expected);
    }
    let accepted = band.widened(Z_WARN, sigma, n);
    let own = format!(
        "the specification's band {} to {}",
        plain(band.low),
        plain(band.high)
    );
    let (status, mut detail) = if accepted.contains(measured) {
        let inside = if band.contains(measured) {
            "inside"
        } else {
            "outside"
        };
        (VerdictStatus::Pass, format!("{inside} {own}"))
    } else {
        let status = if band.widened(Z_INVALID, sigma, n).contains(measured) {
            VerdictStatus::Warn
        } else {
            VerdictStatus::Invalid
        };
        (
            status,
            format!("outside {own}, by more than chance explains"),
        )
    };
    if Z_WARN * sigma > (band.high - band.low) / 2.0 {
        detail.push_str("; the sample is too small to judge by that band alone: it is widened by ");
        detail.push_str(&plain(Z_WARN * sigma));
    }
    SheetLine {
        name: name.to_owned(),
        source: source.to_owned(),
        measured,
        expected: band.expected,
        low: accepted.low.max(0.0),
        high: accepted.high,
        n,
        status,
        detail,
    }
}

/// At most four significant decimals, without trailing zeros.
fn plain(value: f64) -> String {
    let text = format!("{value:.5}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn unjudged(name: &str, source: &str, expected: f64) -> SheetLine {
    SheetLine {
        name: name.to_owned(),
        source: source.to_owned(),
        measured: 0.0,
        expected,
        low: 0.0,
        high: 0.0,
        n: 0,
        status: VerdictStatus::Warn,
        detail: "nothing to judge: no such transaction completed; measure longer".to_owned(),
    }
}

/// `hits` of `n` independent observations.
fn share(name: &str, source: &str, hits: u64, n: u64, band: Band) -> SheetLine {
    let p = band.expected;
    let sigma = (p * (1.0 - p) / n.max(1) as f64).sqrt();
    judged(name, source, hits as f64 / n.max(1) as f64, n, band, sigma)
}

fn order_lines(tally: &Tally) -> SheetLine {
    let n = tally.of(NEW_ORDER);
    // The variance of a uniform draw from 5 to 15 is 10.
    let sigma = (10.0 / n.max(1) as f64).sqrt();
    let mean = tally.lines as f64 / n.max(1) as f64;
    judged(
        "order_lines",
        "TPC-C 2.4.1.3",
        mean,
        n,
        Band::new(9.5, 10.0, 10.5),
        sigma,
    )
}

/// Share of each profile: it must be what was asked for, and no less than the specification's
/// minimum (5.2.3).
fn mix(tally: &Tally, workload: &Tpcc) -> Vec<SheetLine> {
    const MINIMUM: [f64; 5] = [0.0, 0.43, 0.04, 0.04, 0.04];
    let n: u64 = tally.completed.iter().sum();
    let shares = workload.chooser.shares().iter();
    let profiles = workload.profiles.iter().zip(tally.completed);
    profiles
        .zip(shares.zip(MINIMUM))
        .map(|((profile, hits), (&asked, minimum))| {
            let name = format!("mix_{}", profile.name);
            let mut line = share(
                &name,
                "TPC-C 5.2.3",
                hits,
                n,
                Band::new(asked, asked, asked),
            );
            if n == 0 {
                return line;
            }
            let sigma = (minimum * (1.0 - minimum) / n as f64).sqrt();
            let floor = Band::new(minimum, minimum, 1.0)
                .widened(Z_INVALID, sigma, n)
                .low;
            let limit = plain(minimum);
            (line.status, line.detail) = match line.status {
                _ if asked + 1e-9 < minimum => (
                    VerdictStatus::Warn,
                    format!("the mix asked for is below the specification's minimum {limit}"),
                ),
                VerdictStatus::Pass => (VerdictStatus::Pass, "as asked for".to_owned()),
                _ if line.measured < floor => (
                    VerdictStatus::Invalid,
                    format!("below the specification's minimum {limit}; did transactions fail?"),
                ),
                _ => (
                    VerdictStatus::Warn,
                    "not as asked for; a measurement that is short against keying and think \
                     times does this, and so do failed transactions"
                        .to_owned(),
                ),
            };
            line
        })
        .collect()
}

/// Deliveries that skipped a district: at most 1 %, or one (5.5.1.6). A state of the data and no
/// sample, so the limit is not widened.
fn skipped_deliveries(tally: &Tally) -> SheetLine {
    let (skipping, n) = (tally.deliveries_skipping, tally.of(DELIVERY));
    if n == 0 {
        return unjudged("skipped_deliveries", "TPC-C 2.7.4.2", 0.0);
    }
    let high = 0.01_f64.max(1.0 / n as f64);
    let measured = skipping as f64 / n as f64;
    let pass = skipping <= 1 || measured <= high;
    let districts = grouped(tally.districts_skipped);
    SheetLine {
        name: "skipped_deliveries".to_owned(),
        source: "TPC-C 2.7.4.2".to_owned(),
        measured,
        expected: 0.0,
        low: 0.0,
        high,
        n,
        status: if pass {
            VerdictStatus::Pass
        } else {
            VerdictStatus::Invalid
        },
        detail: if pass {
            format!("{districts} districts had no undelivered order")
        } else {
            format!(
                "{districts} districts had no undelivered order: the queues are drained; load \
                 the data again, or use more warehouses"
            )
        },
    }
}

/// Share of the warehouses that were home to a terminal. A property of the plan: fewer terminals
/// than warehouses leave a part of the data nearly untouched.
fn home_warehouses(tally: &Tally, workload: &Tpcc) -> SheetLine {
    let warehouses = u64::from(workload.data.population.warehouses.unsigned_abs());
    let homes = tally.homes.iter().filter(|&&home| home).count() as u64;
    let covered = homes >= warehouses;
    SheetLine {
        name: "home_warehouses".to_owned(),
        source: "TPC-C 4.2.2".to_owned(),
        measured: homes as f64 / warehouses as f64,
        expected: 1.0,
        low: 1.0,
        high: 1.0,
        n: tally.completed.iter().sum(),
        status: if covered {
            VerdictStatus::Pass
        } else {
            VerdictStatus::Warn
        },
        detail: if covered {
            "every warehouse is home to a terminal".to_owned()
        } else {
            format!(
                "{} of {} warehouses were home to no completed transaction, so little of their \
                 data was touched; use at least as many terminals as warehouses",
                grouped(warehouses - homes),
                grouped(warehouses)
            )
        },
    }
}

/// The rule for the constants of load and run (2.1.6.1).
fn last_name_constants(workload: &Tpcc) -> SheetLine {
    let (load, run) = (workload.data.c_load, workload.constants.c_last.constant());
    let delta = (run - load).abs();
    let legal = legal_delta(delta);
    SheetLine {
        name: "c_last_constants".to_owned(),
        source: "TPC-C 2.1.6.1".to_owned(),
        measured: f64::from(delta),
        expected: 92.0,
        low: 65.0,
        high: 119.0,
        n: 1,
        status: if legal {
            VerdictStatus::Pass
        } else {
            VerdictStatus::Invalid
        },
        detail: format!(
            "difference of the last-name constants of load ({load}) and run ({run}); 96 and 112 \
             are excluded too"
        ),
    }
}

/// Non-uniform draws against their exact probabilities.
fn skew(name: &str, source: &str, counts: &[u64], nurand: &NuRand) -> SheetLine {
    distribution(name, source, counts, &nurand.probabilities())
}

/// Uniform draws.
fn evenness(name: &str, source: &str, counts: &[u64]) -> SheetLine {
    let each = 1.0 / counts.len() as f64;
    distribution(name, source, counts, &vec![each; counts.len()])
}

/// The measured value is the smaller p-value of two chi-squared tests, times two: one sees each
/// value, the other pools the values of equal probability and so sees a slightly wrong shape.
fn distribution(name: &str, source: &str, counts: &[u64], probabilities: &[f64]) -> SheetLine {
    let n: u64 = counts.iter().sum();
    if n == 0 {
        return unjudged(name, source, 0.5);
    }
    let (chi2, classes) = chi_squared(counts, probabilities, Pooled::Never);
    let (pooled_chi2, pools) = chi_squared(counts, probabilities, Pooled::EqualProbability);
    let p = if pools < 2 {
        p_value(chi2, classes)
    } else {
        let smaller = p_value(chi2, classes).min(p_value(pooled_chi2, pools));
        (2.0 * smaller).min(1.0)
    };
    let status = if p < P_INVALID || p.is_nan() {
        VerdictStatus::Invalid
    } else if p < P_WARN {
        VerdictStatus::Warn
    } else {
        VerdictStatus::Pass
    };
    let mut detail = if classes < 2 {
        "the sample is too small to judge its distribution".to_owned()
    } else {
        format!(
            "p-value of chi-squared {chi2:.1} over {} classes",
            grouped(classes as u64)
        )
    };
    match status {
        VerdictStatus::Pass => {}
        VerdictStatus::Warn => detail.push_str(
            ": rare under the distribution of the specification; chance, if another --seed passes",
        ),
        VerdictStatus::Invalid => {
            detail.push_str(": not the distribution of the specification");
        }
    }
    SheetLine {
        name: name.to_owned(),
        source: source.to_owned(),
        measured: if p.is_nan() { 0.0 } else { p },
        expected: 0.5,
        low: P_WARN,
        high: 1.0,
        n,
        status,
        detail,
    }
}

/// The upper tail of the chi-squared distribution; 1 when there is nothing to compare.
fn p_value(chi2: f64, classes: usize) -> f64 {
    if classes < 2 {
        return 1.0;
    }
    ChiSquared::new((classes - 1) as f64).map_or(f64::NAN, |law| law.sf(chi2))
}

/// Which values share a class beyond what the sample size demands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pooled {
    Never,
    EqualProbability,
}

/// The statistic and the number of classes. Values are taken in the order of falling probability
/// and put together until a class expects [`CLASS_MIN`]: hot values keep a class of their own.
fn chi_squared(counts: &[u64], probabilities: &[f64], pooled: Pooled) -> (f64, usize) {
    let n = counts.iter().sum::<u64>() as f64;
    let mut order: Vec<usize> = (0..counts.len()).collect();
    order.sort_by(|&a, &b| probabilities[b].total_cmp(&probabilities[a]));
    let mut classes: Vec<(f64, f64)> = Vec::new();
    let mut open = (0.0, 0.0);
    for (position, &value) in order.iter().enumerate() {
        let p = probabilities[value];
        open = (open.0 + counts[value] as f64, open.1 + p * n);
        // Equal up to the rounding of the sums that make them.
        let next = order
            .get(position + 1)
            .map_or(0.0, |&next| probabilities[next]);
        let complete = pooled == Pooled::Never || next < p * (1.0 - 1e-9);
        if complete && open.1 >= CLASS_MIN {
            classes.push(open);
            open = (0.0, 0.0);
        }
    }
    match classes.last_mut() {
        Some(last) => *last = (last.0 + open.0, last.1 + open.1),
        None => classes.push(open),
    }
    let chi2 = classes
        .iter()
        .map(|(seen, expected)| (seen - expected).powi(2) / expected)
        .sum();
    (chi2, classes.len())
}

#[cfg(test)]
mod tests;
