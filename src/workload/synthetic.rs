//! No server: prescribed service times; tests the driver and measures its ceiling.
//!
//! The profiles, their mix, keying and think times are those of TPC-C, so that any number of
//! terminals can be paced without the data that they would need.

use super::mix::Chooser;
use super::{DataSet, Outcome, Profile, ProfileId, Terminal, Workload};
use crate::problem::Problem;
use crate::record::{Mix, RunPlan, SheetLine, VerdictStatus};
use crate::rng::{Rng, Seed};
use crate::session::{Session, SessionError};
use std::collections::BTreeMap;
use std::time::Duration;

/// Think times are cut off at this many times their mean (TPC-C 5.2.5.4).
const THINK_TIME_CUT: f64 = 10.0;
/// Accepted deviation of a share, in standard deviations of the sample.
const DEVIATIONS: f64 = 4.0;

const DEFINES: [&str; 5] = [
    "distribution",
    "rollback_permille",
    "service_us",
    "stall_at_ms",
    "stall_ms",
];

/// How long transactions take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Distribution {
    Constant,
    Exponential,
}

/// A server that exists only as service times.
#[derive(Clone, Debug)]
pub struct Synthetic {
    profiles: Vec<Profile>,
    mix: Chooser,
    service: Duration,
    distribution: Distribution,
    rollback_permille: u32,
    /// Begin and end of the stall in nanoseconds of the run's clock.
    stall: Option<(u64, u64)>,
}

/// One emulated user.
#[derive(Clone, Debug)]
pub struct User {
    rng: Rng,
    mix: Chooser,
    service: Duration,
    distribution: Distribution,
    rollback_permille: u32,
    stall: Option<(u64, u64)>,
}

/// What one transaction is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Input {
    profile: ProfileId,
    service: Duration,
    rolls_back: bool,
    stall: Option<(u64, u64)>,
}

/// Sums over completed transactions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    transactions: u64,
    rolled_back: u64,
    service_s: f64,
    service_s_squared: f64,
    by_profile: [u64; 5],
}

/// Name, keying time, mean think time, response limit (all s), deferred, cards of the deck:
/// TPC-C 5.2.5.7 and 5.2.4.2.
type ProfileRow = (&'static str, u64, u64, u64, bool, u32);
const PROFILES: [ProfileRow; 5] = [
    ("new_order", 18, 12, 5, false, 10),
    ("payment", 3, 12, 5, false, 10),
    ("order_status", 2, 10, 5, false, 1),
    ("delivery", 2, 5, 80, true, 1),
    ("stock_level", 2, 5, 20, false, 1),
];

impl Workload for Synthetic {
    const NAME: &'static str = "synthetic";
    const SUMMARY: &'static str = "no server: prescribed service times, to test the driver itself";
    const DATA_VERSION: u32 = 1;
    type Terminal = User;

    fn from_plan(plan: &RunPlan) -> Result<Self, Problem> {
        if let Some(name) = plan.defines.keys().find(|n| !DEFINES.contains(&n.as_str())) {
            return Err(
                Problem::usage(format!("the workload synthetic knows no \"{name}\""))
                    .hint(format!("one of: {}", DEFINES.join(", "))),
            );
        }
        let profiles: Vec<Profile> = PROFILES.iter().map(profile).collect();
        let rollback_permille = number(&plan.defines, "rollback_permille", 0, 1000)?;
        Ok(Synthetic {
            mix: chooser(&plan.mix, &profiles)?,
            profiles,
            service: Duration::from_micros(number(
                &plan.defines,
                "service_us",
                1000,
                3_600_000_000,
            )?),
            distribution: match plan.defines.get("distribution").map(String::as_str) {
                None | Some("constant") => Distribution::Constant,
                Some("exponential") => Distribution::Exponential,
                Some(other) => {
                    return Err(Problem::usage(format!("unknown distribution \"{other}\""))
                        .hint("one of: constant, exponential"));
                }
            },
            rollback_permille: u32::try_from(rollback_permille).unwrap_or(0),
            stall: stall(&plan.defines)?,
        })
    }

    fn profiles(&self) -> &[Profile] {
        &self.profiles
    }

    fn session_setup(&self) -> Vec<String> {
        Vec::new()
    }

    fn statements(&self) -> &[&'static str] {
        &[]
    }

    fn terminal(&self, index: u32, _terminals: u32, seed: Seed) -> User {
        User {
            rng: seed.stream("synthetic terminal", index.into()),
            mix: self.mix.clone(),
            service: self.service,
            distribution: self.distribution,
            rollback_permille: self.rollback_permille,
            stall: self.stall,
        }
    }

    fn data_set(&self) -> Option<&dyn DataSet> {
        None
    }

    fn run_sheet(&self, tally: &Tally) -> Vec<SheetLine> {
        let n = tally.transactions;
        let shares = self.mix.shares();
        let mut lines: Vec<SheetLine> = (PROFILES.iter().zip(tally.by_profile))
            .zip(shares)
            .map(|((row, count), &share)| share_line(&format!("{}_share", row.0), count, n, share))
            .collect();
        let share = f64::from(self.rollback_permille) / 1000.0;
        lines.push(share_line("rollback_share", tally.rolled_back, n, share));
        lines.push(self.service_line(tally));
        lines
    }
}

impl Synthetic {
    /// Mean of the service times that were drawn, in microseconds.
    fn service_line(&self, tally: &Tally) -> SheetLine {
        let n = tally.transactions;
        let count = (n as f64).max(1.0);
        let mean = tally.service_s / count;
        let variance = (tally.service_s_squared / count - mean * mean).max(0.0);
        let expected = self.service.as_secs_f64();
        let margin = DEVIATIONS * (variance / count).sqrt() + expected * 1e-9;
        sheet_line(
            "service_us_mean",
            (mean * 1e6, expected * 1e6, margin * 1e6),
            n,
            "mean of the drawn service times",
        )
    }
}

fn share_line(name: &str, count: u64, n: u64, expected: f64) -> SheetLine {
    let measured = count as f64 / (n as f64).max(1.0);
    let deviation = (expected * (1.0 - expected) / (n as f64).max(1.0)).sqrt();
    let values = (measured, expected, DEVIATIONS * deviation + 1e-12);
    sheet_line(name, values, n, "share of all completed transactions")
}

/// `values`: measured, expected, accepted deviation.
fn sheet_line(name: &str, values: (f64, f64, f64), n: u64, detail: &str) -> SheetLine {
    let (measured, expected, margin) = values;
    let inside = n == 0 || (measured - expected).abs() <= margin;
    SheetLine {
        name: name.to_owned(),
        source: "prescribed".to_owned(),
        measured,
        expected,
        low: expected - margin,
        high: expected + margin,
        n,
        status: if inside {
            VerdictStatus::Pass
        } else {
            VerdictStatus::Invalid
        },
        detail: detail.to_owned(),
    }
}

fn profile(row: &ProfileRow) -> Profile {
    let &(name, keying, think, limit, deferred, _) = row;
    Profile {
        name,
        keying_time: Duration::from_secs(keying),
        think_time_mean: Duration::from_secs(think),
        response_time_limit: Some(Duration::from_secs(limit)),
        deferred,
    }
}

/// The whole number given for `name`.
fn number(
    defines: &BTreeMap<String, String>,
    name: &str,
    default: u64,
    max: u64,
) -> Result<u64, Problem> {
    let Some(text) = defines.get(name) else {
        return Ok(default);
    };
    match text.parse() {
        Ok(value) if value <= max => Ok(value),
        _ => Err(Problem::usage(format!("\"{text}\" is no value for {name}"))
            .hint(format!("a whole number from 0 to {max}"))),
    }
}

fn stall(defines: &BTreeMap<String, String>) -> Result<Option<(u64, u64)>, Problem> {
    const DAY_MS: u64 = 86_400_000;
    let begin = number(defines, "stall_at_ms", 0, DAY_MS)?;
    let length = number(defines, "stall_ms", 0, DAY_MS)?;
    Ok((length > 0).then_some((begin * 1_000_000, (begin + length) * 1_000_000)))
}

/// The mix of the plan; a deck without cards stands for that of TPC-C 5.2.4.2.
fn chooser(mix: &Mix, profiles: &[Profile]) -> Result<Chooser, Problem> {
    match mix {
        Mix::Deck(cards) if cards.is_empty() => {
            let cards = PROFILES.iter().map(|row| (row.0.to_owned(), row.5));
            Chooser::new(&Mix::Deck(cards.collect()), profiles)
        }
        mix => Chooser::new(mix, profiles),
    }
}

impl User {
    /// Negative exponential.
    fn exponential(&mut self) -> f64 {
        -self.rng.unit().ln()
    }
}

impl Terminal for User {
    type Input = Input;
    type Output = ();
    type Tally = Tally;

    fn draw(&mut self) -> (ProfileId, Input) {
        let profile = self.mix.draw(&mut self.rng);
        let service = match self.distribution {
            Distribution::Constant => self.service,
            Distribution::Exponential => self.service.mul_f64(self.exponential()),
        };
        let rolls_back = self.rng.below(1000) < self.rollback_permille.into();
        let input = Input {
            profile,
            service,
            rolls_back,
            stall: self.stall,
        };
        (profile, input)
    }

    fn think_time(&mut self, mean: Duration) -> Duration {
        mean.mul_f64(self.exponential().min(THINK_TIME_CUT))
    }

    /// Takes as long as was drawn; what is in service during the stall, until its end.
    async fn execute(
        input: &Input,
        session: &mut Session,
        _output: &mut (),
    ) -> Result<Outcome, SessionError> {
        if !input.service.is_zero() || input.stall.is_some() {
            let now = session.waits().now.get();
            let mut end = now.after(input.service);
            if let Some((stall_begin, stall_end)) = input.stall
                && now.0 < stall_end
                && end.0 > stall_begin
            {
                end.0 = end.0.max(stall_end);
            }
            if end > now {
                session.sleep_until(end).await;
            }
        }
        Ok(if input.rolls_back {
            Outcome::RolledBack
        } else {
            Outcome::Committed
        })
    }

    fn tally(input: &Input, _output: &(), outcome: Outcome, tally: &mut Tally) {
        let service = input.service.as_secs_f64();
        tally.transactions += 1;
        tally.rolled_back += u64::from(outcome == Outcome::RolledBack);
        tally.service_s += service;
        tally.service_s_squared += service * service;
        tally.by_profile[input.profile.index()] += 1;
    }

    fn merge(tally: &mut Tally, other: Tally) {
        tally.transactions += other.transactions;
        tally.rolled_back += other.rolled_back;
        tally.service_s += other.service_s;
        tally.service_s_squared += other.service_s_squared;
        for (mine, theirs) in tally.by_profile.iter_mut().zip(other.by_profile) {
            *mine += theirs;
        }
    }
}
