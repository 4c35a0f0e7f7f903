//! Which profile comes next: the card deck of TPC-C 5.2.4.2 and weighted choice.

use super::{Profile, ProfileId};
use crate::problem::Problem;
use crate::record::Mix;
use crate::rng::Rng;
use std::collections::BTreeMap;

/// Every terminal holds its own deck, so a deck has to stay small.
const CARDS_MAX: u64 = 10_000;

/// Chooses profiles; each terminal has its own copy.
#[derive(Clone, Debug)]
pub struct Chooser {
    kind: Kind,
    shares: Box<[f64]>,
}

#[derive(Clone, Debug)]
enum Kind {
    /// Drawn without replacement, reshuffled after the last card.
    Deck {
        cards: Box<[ProfileId]>,
        next: usize,
    },
    /// Upper bounds of the profiles' parts of the unit interval.
    Weighted(Box<[f64]>),
}

impl Chooser {
    /// A chooser for `mix` over `profiles`. A profile that the mix does not name is never chosen.
    pub fn new(mix: &Mix, profiles: &[Profile]) -> Result<Self, Problem> {
        match mix {
            Mix::Deck(cards) => Self::deck(cards, profiles),
            Mix::Weighted(weights) => Self::weighted(weights, profiles),
        }
    }

    fn deck(cards: &BTreeMap<String, u32>, profiles: &[Profile]) -> Result<Self, Problem> {
        let counts = by_profile(cards, profiles)?;
        // 100/100/10/10/10 is the same deck five times over; the smallest is the fairest.
        let divisor = counts.iter().fold(0, |a, &b| gcd(a, b));
        if divisor == 0 {
            return Err(nothing_to_choose());
        }
        let counts: Vec<u32> = counts.iter().map(|count| count / divisor).collect();
        let total: u64 = counts.iter().map(|&count| u64::from(count)).sum();
        if total > CARDS_MAX {
            return Err(
                Problem::usage(format!("the mix needs a deck of {total} cards"))
                    .hint(format!("use at most {CARDS_MAX} cards, or weights")),
            );
        }
        let mut deck = Vec::new();
        for (profile, &count) in (0_u8..).zip(&counts) {
            deck.extend((0..count).map(|_| ProfileId(profile)));
        }
        let shares = counts
            .iter()
            .map(|&n| f64::from(n) / total as f64)
            .collect();
        Ok(Self {
            kind: Kind::Deck {
                next: deck.len(),
                cards: deck.into(),
            },
            shares,
        })
    }

    fn weighted(weights: &BTreeMap<String, f64>, profiles: &[Profile]) -> Result<Self, Problem> {
        for (name, weight) in weights {
            if !weight.is_finite() || *weight < 0.0 {
                return Err(Problem::usage(format!("the weight of {name} is {weight}"))
                    .hint("weights are numbers from 0 up"));
            }
        }
        let weights = by_profile(weights, profiles)?;
        let total: f64 = weights.iter().sum();
        if total <= 0.0 || !total.is_finite() {
            return Err(nothing_to_choose());
        }
        let shares: Box<[f64]> = weights.iter().map(|weight| weight / total).collect();
        let bounds = shares
            .iter()
            .scan(0.0, |sum, share| {
                *sum += share;
                Some(*sum)
            })
            .collect();
        Ok(Self {
            kind: Kind::Weighted(bounds),
            shares,
        })
    }

    /// The next profile.
    #[inline]
    pub fn draw(&mut self, rng: &mut Rng) -> ProfileId {
        match &mut self.kind {
            Kind::Deck { cards, next } => {
                if *next == cards.len() {
                    rng.shuffle(cards);
                    *next = 0;
                }
                *next += 1;
                cards[*next - 1]
            }
            Kind::Weighted(bounds) => {
                let point = rng.unit();
                // Rounding may leave the last bound below one: fall back to the last profile
                // that can be chosen at all.
                let mut chosen = ProfileId(0);
                let mut below = 0.0;
                for (profile, &bound) in (0_u8..).zip(bounds.iter()) {
                    if bound > below {
                        chosen = ProfileId(profile);
                        if point < bound {
                            break;
                        }
                        below = bound;
                    }
                }
                chosen
            }
        }
    }

    /// Expected share of each profile; the sum is one.
    pub fn shares(&self) -> &[f64] {
        &self.shares
    }
}

/// The values of `map` in the order of `profiles`, default where a profile is not named.
fn by_profile<T: Copy + Default>(
    map: &BTreeMap<String, T>,
    profiles: &[Profile],
) -> Result<Vec<T>, Problem> {
    let names: Vec<&str> = profiles.iter().map(|profile| profile.name).collect();
    if let Some(unknown) = map.keys().find(|name| !names.contains(&name.as_str())) {
        return Err(
            Problem::usage(format!("the mix names an unknown profile \"{unknown}\""))
                .hint(format!("one of: {}", names.join(", "))),
        );
    }
    Ok(names
        .iter()
        .map(|&name| map.get(name).copied().unwrap_or_default())
        .collect())
}

fn nothing_to_choose() -> Problem {
    Problem::usage("the mix has no profile with a positive weight")
        .hint("give at least one profile a weight, for example new_order=45")
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Seed;
    use std::time::Duration;

    fn profiles(names: &[&'static str]) -> Vec<Profile> {
        names
            .iter()
            .map(|&name| Profile {
                name,
                keying_time: Duration::ZERO,
                think_time_mean: Duration::ZERO,
                response_time_limit: None,
                deferred: false,
            })
            .collect()
    }

    fn deck(cards: &[(&str, u32)]) -> Mix {
        Mix::Deck(cards.iter().map(|&(n, c)| (n.to_owned(), c)).collect())
    }

    fn weighted(weights: &[(&str, f64)]) -> Mix {
        Mix::Weighted(weights.iter().map(|&(n, w)| (n.to_owned(), w)).collect())
    }

    fn counts(chooser: &mut Chooser, draws: usize) -> [usize; 3] {
        let mut rng = Seed(7).stream("mix", 0);
        let mut counts = [0; 3];
        for _ in 0..draws {
            counts[chooser.draw(&mut rng).index()] += 1;
        }
        counts
    }

    #[test]
    fn every_pass_through_the_deck_holds_exactly_its_cards() {
        let profiles = profiles(&["a", "b", "c"]);
        let mut chooser = Chooser::new(&deck(&[("a", 10), ("b", 1)]), &profiles).unwrap();
        let mut rng = Seed(1).stream("deck", 0);
        let mut passes = Vec::new();
        for _ in 0..50 {
            let pass: Vec<usize> = (0..11).map(|_| chooser.draw(&mut rng).index()).collect();
            assert_eq!(pass.iter().filter(|&&p| p == 1).count(), 1);
            assert!(!pass.contains(&2));
            passes.push(pass);
        }
        passes.sort();
        passes.dedup();
        assert!(passes.len() > 5, "reshuffled on every pass");
    }

    #[test]
    fn a_deck_is_reduced_to_its_smallest_form() {
        let profiles = profiles(&["a", "b", "c"]);
        let mut chooser = Chooser::new(&deck(&[("a", 4000), ("c", 8000)]), &profiles).unwrap();
        assert_eq!(counts(&mut chooser, 3), [1, 0, 2]);
        assert!((chooser.shares()[2] - 2.0 / 3.0).abs() < 1e-12);
    }

    #[test]
    fn weights_are_shares_and_zero_is_never_chosen() {
        let profiles = profiles(&["a", "b", "c"]);
        let mix = weighted(&[("a", 1.0), ("b", 0.0), ("c", 3.0)]);
        let mut chooser = Chooser::new(&mix, &profiles).unwrap();
        let [a, b, c] = counts(&mut chooser, 40_000);
        assert_eq!(b, 0);
        assert!((9_600..10_400).contains(&a), "{a}");
        assert_eq!(a + c, 40_000);
        assert_eq!(chooser.shares(), [0.25, 0.0, 0.75]);
    }

    #[test]
    fn an_impossible_mix_is_refused() {
        let profiles = profiles(&["a", "b"]);
        for (mix, message) in [
            (deck(&[]), "no profile"),
            (deck(&[("a", 0)]), "no profile"),
            (deck(&[("x", 1)]), "unknown profile \"x\""),
            (deck(&[("a", 9999), ("b", 2)]), "10001 cards"),
            (deck(&[("a", u32::MAX), ("b", 1)]), "4294967296 cards"),
            (weighted(&[("a", 0.0)]), "no profile"),
            (weighted(&[("a", -1.0)]), "weight of a is -1"),
            (weighted(&[("a", f64::NAN)]), "weight of a is NaN"),
            (weighted(&[("a", f64::INFINITY)]), "weight of a is inf"),
            (weighted(&[("a", f64::MAX), ("b", f64::MAX)]), "no profile"),
            (weighted(&[("y", 1.0)]), "unknown profile \"y\""),
        ] {
            let problem = Chooser::new(&mix, &profiles).unwrap_err();
            assert!(problem.message.contains(message), "{problem}");
            assert!(problem.hint.is_some(), "{problem}");
        }
    }
}
