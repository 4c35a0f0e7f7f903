//! The random primitives of TPC-C: NURand and its constants (2.1.6), last names (4.3.2.3) and
//! random strings (4.3.2.2).

use crate::rng::{Rng, Seed};

/// Largest value of the OR-ed part of NURand, by use (2.1.6).
const A_C_LAST: i32 = 255;
const A_C_ID: i32 = 1023;
const A_OL_I_ID: i32 = 8191;

/// Customers of a district, items, and last names: the ranges of the non-uniform draws.
pub const CUSTOMERS: i32 = 3000;
pub const ITEMS: i32 = 100_000;
pub const NAMES: i32 = 1000;

/// NURand(A, x, y) with its constant C (2.1.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NuRand {
    /// 2^k - 1.
    a: i32,
    low: i32,
    high: i32,
    c: i32,
}

impl NuRand {
    pub(super) const fn new(a: i32, low: i32, high: i32, c: i32) -> Self {
        Self { a, low, high, c }
    }

    /// One draw.
    #[inline]
    pub fn draw(&self, rng: &mut Rng) -> i32 {
        let (a, b) = (rng.int(0, self.a), rng.int(self.low, self.high));
        self.place(a | b)
    }

    /// The constant C.
    pub fn constant(&self) -> i32 {
        self.c
    }

    /// The smallest value that is drawn.
    pub fn low(&self) -> i32 {
        self.low
    }

    /// (v + C) mod (y - x + 1) + x
    fn place(&self, or: i32) -> i32 {
        (or + self.c) % (self.high - self.low + 1) + self.low
    }

    /// The exact probability of every value, `low` first.
    ///
    /// A value v of the OR has a block part (the bits above A) and a part m within A. In a block
    /// where b can have the low parts L, v comes from every l in L with l ⊆ m, each with the
    /// 2^|l| values of a that fill m up: a sum over subsets, done for all m at once.
    pub fn probabilities(&self) -> Vec<f64> {
        let block = self.a + 1;
        let span = self.high - self.low + 1;
        let pairs = f64::from(block) * f64::from(span);
        let mut probabilities = vec![0.0; index(span)];
        for base in (0..=self.high).step_by(index(block)) {
            let mut ways: Vec<u64> = (0..block)
                .map(|l| {
                    let possible = (self.low..=self.high).contains(&(base + l));
                    u64::from(possible) << l.count_ones()
                })
                .collect();
            let mut bit = 1;
            while bit < ways.len() {
                for m in 0..ways.len() {
                    if m & bit != 0 {
                        ways[m] += ways[m ^ bit];
                    }
                }
                bit <<= 1;
            }
            for (m, &ways) in (0..).zip(&ways) {
                let value = self.place(base | m);
                probabilities[index(value - self.low)] += ways as f64 / pairs;
            }
        }
        probabilities
    }
}

/// A count that is known not to be negative, as an index.
pub(super) fn index(n: i32) -> usize {
    usize::try_from(n).unwrap_or(0)
}

/// The three non-uniform draws; their constants hold for all terminals of a run (2.1.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constants {
    pub c_last: NuRand,
    pub c_id: NuRand,
    pub ol_i_id: NuRand,
}

impl Constants {
    /// Draws the constants of a run; that of the last names is legal beside `c_load`, the one
    /// that the data was loaded with (2.1.6.1).
    pub fn for_run(seed: Seed, c_load: i32) -> Self {
        let mut rng = seed.stream("tpcc.constants", 0);
        let legal: Vec<i32> = (0..=A_C_LAST)
            .filter(|c_run| legal_delta((c_run - c_load).abs()))
            .collect();
        let choice = rng.below(legal.len() as u64);
        let c_run = usize::try_from(choice).map_or(0, |choice| legal[choice]);
        Self {
            c_last: last_names(c_run),
            c_id: NuRand::new(A_C_ID, 1, CUSTOMERS, rng.int(0, A_C_ID)),
            ol_i_id: NuRand::new(A_OL_I_ID, 1, ITEMS, rng.int(0, A_OL_I_ID)),
        }
    }
}

/// The draw of last-name numbers with constant `c`.
pub fn last_names(c: i32) -> NuRand {
    NuRand::new(A_C_LAST, 0, NAMES - 1, c)
}

/// The constant for the last names of the initial data (2.1.6.1: independent of the runs).
pub fn c_load(data_seed: Seed) -> i32 {
    data_seed.stream("tpcc.c_load", 0).int(0, A_C_LAST)
}

/// May the constants of load and run differ by `delta` (2.1.6.1)?
pub fn legal_delta(delta: i32) -> bool {
    (65..=119).contains(&delta) && delta != 96 && delta != 112
}

/// A last name: three syllables, at most 15 characters, no allocation.
#[derive(Clone, Copy, Debug)]
pub struct LastName {
    text: [u8; 15],
    length: usize,
}

impl LastName {
    /// `C_LAST` of `number` (0 to 999): a syllable for each decimal digit (4.3.2.3).
    pub fn new(number: i32) -> Self {
        const SYLLABLES: [&str; 10] = [
            "BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING",
        ];
        let mut name = Self {
            text: [0; 15],
            length: 0,
        };
        for digit in [number / 100, number / 10 % 10, number % 10] {
            let syllable = SYLLABLES[index(digit)].as_bytes();
            name.text[name.length..name.length + syllable.len()].copy_from_slice(syllable);
            name.length += syllable.len();
        }
        name
    }

    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.text[..self.length]).unwrap_or("")
    }
}

/// Characters to fill strings with: all pairs of an alphabet, so that one multiplication gives
/// two characters and one draw of 64 bits gives eight (the bias is below 2^-16).
pub(super) struct Alphabet<const PAIRS: usize>([[u8; 2]; PAIRS]);

const CHARACTERS: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// a-string: letters and digits (4.3.2.2).
pub(super) static ALPHANUMERIC: Alphabet<3844> = Alphabet::new(CHARACTERS, 0, 62);
/// Letters alone, for what the specification calls "letters".
pub(super) static LETTERS: Alphabet<2704> = Alphabet::new(CHARACTERS, 0, 52);
/// n-string: digits.
pub(super) static DIGITS: Alphabet<100> = Alphabet::new(CHARACTERS, 52, 10);

impl<const PAIRS: usize> Alphabet<PAIRS> {
    const fn new(characters: &[u8; 62], first: usize, n: usize) -> Self {
        assert!(n * n == PAIRS);
        let mut pairs = [[0; 2]; PAIRS];
        let mut i = 0;
        while i < PAIRS {
            pairs[i] = [characters[first + i / n], characters[first + i % n]];
            i += 1;
        }
        Self(pairs)
    }

    /// Fills `slot` with random characters.
    #[inline]
    #[allow(
        clippy::cast_possible_truncation,
        reason = "the low and the high half of a product"
    )]
    pub(super) fn fill(&self, rng: &mut Rng, slot: &mut [u8]) {
        for eight in slot.chunks_mut(8) {
            let mut bits = rng.bits();
            for two in eight.chunks_mut(2) {
                let product = u128::from(bits) * PAIRS as u128;
                bits = product as u64;
                let pair = &self.0[(product >> 64) as usize];
                two.copy_from_slice(&pair[..two.len()]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-12
    }

    #[test]
    fn last_names_are_the_syllables_of_their_digits() {
        for (number, name) in [
            (0, "BARBARBAR"),
            (40, "BARPRESBAR"),
            (371, "PRICALLYOUGHT"),
            (777, "CALLYCALLYCALLY"),
            (999, "EINGEINGEING"),
        ] {
            assert_eq!(LastName::new(number).as_str(), name);
        }
        let mut names: Vec<String> = (0..NAMES)
            .map(|number| LastName::new(number).as_str().to_owned())
            .collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 1000);
    }

    /// The vectors of the digest, section 2.1.
    #[test]
    fn nurand_has_its_exact_probabilities() {
        let names = last_names(0).probabilities();
        for number in [255, 511, 767] {
            assert!(close(names[number], 6561.0 / 256_000.0));
        }
        assert!(close(names[23], 4914.0 / 256_000.0));
        let mut sorted = names.clone();
        sorted.sort_by(f64::total_cmp);
        assert!(close(sorted[996], 4914.0 / 256_000.0));
        assert!(close(sorted[995], 2187.0 / 256_000.0));

        let constants = Constants {
            c_last: last_names(0),
            c_id: NuRand::new(1023, 1, 3000, 0),
            ol_i_id: NuRand::new(8191, 1, ITEMS, 0),
        };
        let c_id = constants.c_id.probabilities();
        assert!(close(c_id[1024 - 1], 59_048.0 / 3_072_000.0));
        let items = constants.ol_i_id.probabilities();
        assert!(close(items[8192 - 1], 1_594_322.0 / 819_200_000.0));
        for probabilities in [names, c_id, items] {
            assert!((probabilities.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn probabilities_agree_with_brute_force() {
        for (a, low, high, c) in [
            (7, 0, 20, 3),
            (15, 1, 50, 9),
            (3, 2, 3, 1),
            (255, 0, 999, 77),
        ] {
            let nurand = NuRand::new(a, low, high, c);
            let mut counts = vec![0.0; index(high - low + 1)];
            for x in 0..=a {
                for y in low..=high {
                    counts[index(((x | y) + c) % (high - low + 1))] += 1.0;
                }
            }
            let pairs = f64::from((a + 1) * (high - low + 1));
            for (count, p) in counts.iter().zip(nurand.probabilities()) {
                assert!(close(count / pairs, p), "{nurand:?}");
            }
        }
    }

    #[test]
    fn draws_stay_in_range_and_follow_the_probabilities() {
        let mut rng = Seed(42).stream("nurand", 0);
        let nurand = last_names(100);
        let mut counts = vec![0_u32; 1000];
        for _ in 0..200_000 {
            counts[index(nurand.draw(&mut rng))] += 1;
        }
        let chi2: f64 = counts
            .iter()
            .zip(nurand.probabilities())
            .map(|(&n, p)| (f64::from(n) - p * 200_000.0).powi(2) / (p * 200_000.0))
            .sum();
        // 999 degrees of freedom: mean 999, sigma 45.
        assert!((850.0..1150.0).contains(&chi2), "{chi2}");
    }

    #[test]
    fn fifty_three_deltas_are_legal_and_every_load_constant_has_a_run_constant_for_each() {
        assert_eq!((0..=255).filter(|&delta| legal_delta(delta)).count(), 53);
        for load in 0..=A_C_LAST {
            let mut deltas: Vec<i32> = (0..=A_C_LAST)
                .map(|run| (run - load).abs())
                .filter(|&delta| legal_delta(delta))
                .collect();
            deltas.sort_unstable();
            deltas.dedup();
            assert_eq!(deltas.len(), 53, "{load}");
            for seed in 0..20 {
                let constants = Constants::for_run(Seed(seed), load);
                assert!(legal_delta((constants.c_last.constant() - load).abs()));
                assert!((0..=1023).contains(&constants.c_id.constant()));
                assert!((0..=8191).contains(&constants.ol_i_id.constant()));
            }
        }
    }

    #[test]
    fn strings_use_their_whole_alphabet_evenly() {
        let mut rng = Seed(1).stream("text", 0);
        let mut text = vec![0; 62_000];
        ALPHANUMERIC.fill(&mut rng, &mut text);
        let mut counts = [0_i32; 256];
        for byte in &text {
            counts[usize::from(*byte)] += 1;
        }
        for (byte, count) in (0..=u8::MAX).zip(counts) {
            let expected = if byte.is_ascii_alphanumeric() {
                800..1200
            } else {
                0..1
            };
            assert!(expected.contains(&count), "{byte}: {count}");
        }
        for length in 1..20 {
            let mut slot = vec![0; length];
            LETTERS.fill(&mut rng, &mut slot);
            assert!(slot.iter().all(u8::is_ascii_alphabetic));
            DIGITS.fill(&mut rng, &mut slot);
            assert!(slot.iter().all(u8::is_ascii_digit));
        }
    }
}
