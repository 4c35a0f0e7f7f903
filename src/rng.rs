//! Chance, planned: one seed, split into named streams.
//!
//! The generator is xoshiro256++ (Blackman and Vigna, "Scrambled linear pseudorandom number
//! generators", 2021), seeded through `SplitMix64`. It is written out here because every byte of a
//! data set and every input of a run depends on it, so it may not change under us.

/// The root of all random streams of a run or a data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(pub u64);

impl Seed {
    /// The stream for `name` (what it decides) and `index` (which batch, terminal or district).
    /// Different names or indexes give independent streams.
    pub fn stream(self, name: &str, index: u64) -> Rng {
        // FNV-1a over the name: stable, and only has to tell names apart.
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for byte in name.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        let mut mixer = SplitMix(self.0);
        let mut mixer = SplitMix(mixer.next() ^ hash);
        let mut mixer = SplitMix(mixer.next() ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Rng {
            state: [mixer.next(), mixer.next(), mixer.next(), mixer.next()],
        }
    }
}

struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// One random stream.
#[derive(Clone, Debug)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// 64 uniform bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Uniform in `0..n`, without bias (Lemire 2019); `n` must be positive.
    #[inline]
    #[allow(
        clippy::cast_possible_truncation,
        reason = "the low and the high half of a product"
    )]
    pub fn below(&mut self, n: u64) -> u64 {
        debug_assert!(n > 0);
        loop {
            let product = u128::from(self.bits()) * u128::from(n);
            let low = product as u64;
            if low >= n || low >= n.wrapping_neg() % n {
                return (product >> 64) as u64;
            }
        }
    }

    /// Uniform in `low..=high`, both ends included.
    #[inline]
    #[allow(
        clippy::cast_sign_loss,
        clippy::cast_possible_wrap,
        reason = "the span of two i64 is a u64"
    )]
    pub fn range(&mut self, low: i64, high: i64) -> i64 {
        debug_assert!(low <= high);
        low + self.below((high - low) as u64 + 1) as i64
    }

    /// Uniform in `low..=high`.
    #[inline]
    #[allow(
        clippy::cast_possible_truncation,
        reason = "the result lies between two i32"
    )]
    pub fn int(&mut self, low: i32, high: i32) -> i32 {
        self.range(i64::from(low), i64::from(high)) as i32
    }

    /// Uniform in the open interval (0, 1).
    #[inline]
    pub fn unit(&mut self) -> f64 {
        ((self.bits() >> 12) as f64 + 0.5) / (1_u64 << 52) as f64
    }

    /// Fisher-Yates.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            let j = usize::try_from(self.below(i as u64 + 1)).unwrap_or(0);
            items.swap(i, j);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_differ_by_seed_name_and_index() {
        let first = |seed: u64, name: &str, index| Seed(seed).stream(name, index).bits();
        let base = first(42, "a", 0);
        assert_eq!(base, first(42, "a", 0));
        assert_ne!(base, first(43, "a", 0));
        assert_ne!(base, first(42, "b", 0));
        assert_ne!(base, first(42, "a", 1));
    }

    #[test]
    fn the_first_draws_of_seed_42_are_pinned() {
        let mut rng = Seed(42).stream("pin", 0);
        let draws: Vec<i32> = (0..8).map(|_| rng.int(1, 100)).collect();
        insta::assert_debug_snapshot!(draws);
    }

    #[test]
    fn ranges_include_both_ends_and_nothing_else() {
        let mut rng = Seed(1).stream("ends", 0);
        let mut seen = [0_u32; 7];
        for _ in 0..7_000 {
            seen[usize::try_from(rng.int(-3, 3) + 3).unwrap()] += 1;
        }
        assert!(seen.iter().all(|&n| (850..1150).contains(&n)), "{seen:?}");
    }

    #[test]
    fn the_unit_interval_is_open_and_its_mean_is_a_half() {
        let mut rng = Seed(1).stream("unit", 0);
        let draws: Vec<f64> = (0..100_000).map(|_| rng.unit()).collect();
        assert!(draws.iter().all(|&u| u > 0.0 && u < 1.0));
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        assert!((mean - 0.5).abs() < 0.005, "{mean}");
    }

    #[test]
    fn a_shuffle_is_a_permutation() {
        let mut items: Vec<u32> = (0..100).collect();
        Seed(3).stream("shuffle", 0).shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
