//! Pseudo-random numbers that depend only on what they belong to.

/// Distinguishes the draws of one key.
pub(crate) type Salt = u64;

/// A thing that has attributes: a row, a visitor, a page. Its draws do not depend on each other, nor on those of others.
///
/// All arithmetic is on integers, so that every machine draws the same.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key(u64);

impl Key {
    /// The key of the thing of this kind and number.
    pub(crate) fn new(kind: u64, number: u64) -> Self {
        Self(mix(mix(kind).wrapping_add(number)))
    }

    /// A number of 64 random bits.
    pub(crate) fn number(self, salt: Salt) -> u64 {
        mix(self.0 ^ salt.wrapping_mul(0xd6e8_feb8_6659_fd93))
    }

    /// A positive identifier of 63 random bits.
    pub(crate) fn id(self, salt: Salt) -> i64 {
        (self.number(salt) >> 1) as i64
    }

    /// A number below `end`, each as likely as the others; 0 if there is none.
    pub(crate) fn below(self, salt: Salt, end: u64) -> u64 {
        ((u128::from(self.number(salt)) * u128::from(end)) >> 64) as u64
    }

    /// A number from `low` to `high`, each as likely as the others.
    pub(crate) fn between(self, salt: Salt, low: i64, high: i64) -> i64 {
        low + self.below(salt, (high - low + 1) as u64) as i64
    }

    /// A number below `end`, the smaller the likelier: each power of two is as likely to be its limit. About as in Zipf's
    /// law, of 100,000 numbers 0 has a ninth of the draws.
    pub(crate) fn skewed(self, salt: Salt, end: u64) -> u64 {
        let powers = u64::from(
            end.saturating_sub(1)
                .checked_ilog2()
                .map_or(0, |log| log + 1),
        );
        let limit = 1 << self.below(salt, powers + 1);
        Key(self.number(salt)).below(salt, end.min(limit))
    }

    /// True in `per_mille` of a thousand cases.
    pub(crate) fn chance(self, salt: Salt, per_mille: u64) -> bool {
        self.below(salt, 1000) < per_mille
    }

    /// One of several, each as likely as the others.
    pub(crate) fn pick<T: Copy>(self, salt: Salt, from: &[T]) -> T {
        from[self.below(salt, from.len() as u64) as usize]
    }

    /// One of several, the earlier the likelier.
    pub(crate) fn pick_skewed<T: Copy>(self, salt: Salt, from: &[T]) -> T {
        from[self.skewed(salt, from.len() as u64) as usize]
    }
}

/// SplitMix64's finalizer: a bijection whose output bits each depend on all input bits.
fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_stay_below_their_end() {
        for end in [1, 2, 3, 5, 64, 1000, 100_000] {
            for number in 0..5_000 {
                let key = Key::new(1, number);
                assert!(key.below(2, end) < end);
                assert!(key.skewed(3, end) < end);
            }
        }
    }

    #[test]
    fn skewed_draws_are() {
        let draws = (0..100_000).map(|number| Key::new(1, number).skewed(2, 100_000));
        let mut counts = [0; 3];
        for draw in draws {
            counts[0] += u32::from(draw == 0);
            counts[1] += u32::from(draw < 100);
            counts[2] += u32::from(draw >= 50_000);
        }
        assert!((10_000..12_500).contains(&counts[0]), "{counts:?}");
        assert!((40_000..50_000).contains(&counts[1]), "{counts:?}");
        assert!((3_500..5_500).contains(&counts[2]), "{counts:?}");
    }
}
