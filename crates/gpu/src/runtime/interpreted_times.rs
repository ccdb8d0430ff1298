//! How long the interpreter ran for each plan, in this process and in earlier ones of the user.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use super::cache::{keep, kept};
use crate::kernel::KernelPlan;

/// The name of the times on disk. Other versions of Vectile have other plans.
const NAME: &str = concat!("interpreted times ", env!("CARGO_PKG_VERSION"));
/// Limit of the plans that are kept: 16 KB on disk.
const MOST_PLANS: usize = 1024;

/// Identifies a plan: a hash. If two plans share one, a kernel is compiled too early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct PlanId(u64);

impl PlanId {
    pub fn of(plan: &KernelPlan) -> Self {
        // its keys are constants: later processes of this build find the same hash
        let mut hasher = DefaultHasher::new();
        plan.hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// Kernel times of the interpreter, by plan.
#[derive(Debug, Default)]
pub(super) struct InterpretedTimes {
    nanoseconds: HashMap<PlanId, u64>,
}

impl InterpretedTimes {
    /// Those of earlier processes. Reads a file.
    pub fn kept() -> Self {
        kept(NAME).map_or_else(Self::default, |bytes| Self::parse(&bytes))
    }

    /// Keeps a copy that [`InterpretedTimes::bytes`] has made for later processes. Writes a file.
    pub fn keep(bytes: &[u8]) {
        keep(NAME, bytes);
    }

    /// Adds the time of a launch. Returns the plan's time before and after.
    pub fn add(&mut self, plan: PlanId, time: Duration) -> (Duration, Duration) {
        if !self.nanoseconds.contains_key(&plan) && self.nanoseconds.len() >= MOST_PLANS {
            self.drop_half();
        }
        let total = self.nanoseconds.entry(plan).or_default();
        let before = *total;
        let added = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        *total = before.saturating_add(added);
        (Duration::from_nanos(before), Duration::from_nanos(*total))
    }

    /// Forgets the time of a plan.
    pub fn remove(&mut self, plan: PlanId) {
        self.nanoseconds.remove(&plan);
    }

    /// Makes no time longer than `most`.
    pub fn limit(&mut self, most: Duration) {
        let most = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
        let all = self.nanoseconds.values_mut();
        all.for_each(|time| *time = most.min(*time));
    }

    /// Forgets the shorter half of the times, so that new plans can gather time.
    fn drop_half(&mut self) {
        let mut all: Vec<(PlanId, u64)> = self.nanoseconds.drain().collect();
        all.sort_unstable_by_key(|(_, time)| *time);
        self.nanoseconds = all.split_off(all.len() / 2).into_iter().collect();
    }

    /// For each plan its hash and its time, as little-endian words.
    pub fn bytes(&self) -> Vec<u8> {
        let all = self.nanoseconds.iter();
        let words = all.flat_map(|(plan, time)| [plan.0, *time]);
        words.flat_map(u64::to_le_bytes).collect()
    }

    /// Reads at most [`MOST_PLANS`] plans, and ignores the bytes behind them or of a part of one.
    fn parse(bytes: &[u8]) -> Self {
        let (words, _) = bytes.as_chunks::<8>();
        let (pairs, _) = words.as_chunks::<2>();
        let pairs = pairs.iter().take(MOST_PLANS);
        let pairs = pairs.map(|pair| pair.map(u64::from_le_bytes));
        Self {
            nanoseconds: pairs.map(|[plan, time]| (PlanId(plan), time)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn times_come_back() {
        let mut times = InterpretedTimes::default();
        assert_eq!(times.add(PlanId(7), 2 * MS), (Duration::ZERO, 2 * MS));
        assert_eq!(times.add(PlanId(7), MS), (2 * MS, 3 * MS));
        times.add(PlanId(8), MS);
        times.add(PlanId(9), MS);
        times.remove(PlanId(9));
        let mut bytes = times.bytes();
        assert_eq!(bytes.len(), 2 * 16);
        bytes.extend([1; 9]);
        let mut back = InterpretedTimes::parse(&bytes);
        assert_eq!(back.nanoseconds, times.nanoseconds);
        back.limit(2 * MS);
        assert_eq!(back.add(PlanId(7), MS).0, 2 * MS);
        assert_eq!(back.add(PlanId(8), MS).0, MS);
    }

    #[test]
    fn the_longest_times_stay() {
        let mut times = InterpretedTimes::default();
        let number = MOST_PLANS as u64;
        for plan in 0..=number {
            times.add(PlanId(plan), Duration::from_nanos(plan + 1));
        }
        assert_eq!(times.nanoseconds.len(), MOST_PLANS / 2 + 1);
        assert_eq!(times.add(PlanId(0), MS).0, Duration::ZERO);
        assert!(times.add(PlanId(number - 1), MS).0 > Duration::ZERO);
        let many = vec![3; 16 * (MOST_PLANS + 1)];
        assert!(InterpretedTimes::parse(&many).nanoseconds.len() <= MOST_PLANS);
    }

    #[test]
    fn damaged_times_are_no_times() {
        for bytes in [&[][..], &[1; 15], &[0xff; 16]] {
            let mut times = InterpretedTimes::parse(bytes);
            let (before, after) = times.add(PlanId(u64::MAX), MS);
            assert!(before <= after);
        }
    }
}
