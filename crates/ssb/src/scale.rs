//! The scale factor.

use std::fmt;
use std::str::FromStr;

/// Customers per unit of scale.
pub(crate) const CUSTOMERS: u64 = 30_000;

/// Suppliers per unit of scale.
pub(crate) const SUPPLIERS: u64 = 2_000;

/// Orders per unit of scale.
pub(crate) const ORDERS: u64 = 1_500_000;

/// Parts at scale 1.
pub(crate) const PARTS: u64 = 200_000;

/// A scale factor: 1 is 6 million lines. A whole number, which all rules of the benchmark allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Scale(u32);

/// The error for a string that is not a [`Scale`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a scale is a whole number between 1 and {}", Scale::MAX.0)]
pub struct ScaleError;

impl Scale {
    /// The smallest scale.
    pub const MIN: Scale = Scale(1);

    /// The largest scale whose customer keys are 32-bit integers.
    pub const MAX: Scale = Scale(i32::MAX as u32 / CUSTOMERS as u32);

    /// The factor.
    pub fn get(self) -> u32 {
        self.0
    }

    /// Rows of a table that grows with the scale.
    pub(crate) fn times(self, rows: u64) -> u64 {
        u64::from(self.0) * rows
    }

    /// Rows of `part`.
    pub(crate) fn parts(self) -> u64 {
        PARTS * (1 + u64::from(self.0.ilog2()))
    }

    /// The largest part that is ordered: by the natural logarithm, while [`Self::parts`] is by the
    /// binary one. At scale 10 a quarter of the parts is never ordered.
    pub(crate) fn ordered_parts(self) -> u64 {
        PARTS * (1 + f64::from(self.0).ln() as u64)
    }
}

impl TryFrom<u32> for Scale {
    type Error = ScaleError;

    fn try_from(factor: u32) -> Result<Self, ScaleError> {
        let scale = Scale(factor);
        match (Scale::MIN..=Scale::MAX).contains(&scale) {
            true => Ok(scale),
            false => Err(ScaleError),
        }
    }
}

impl FromStr for Scale {
    type Err = ScaleError;

    fn from_str(text: &str) -> Result<Self, ScaleError> {
        let factor: u32 = text.parse().map_err(|_| ScaleError)?;
        factor.try_into()
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_whole() {
        assert_eq!("1".parse(), Ok(Scale::MIN));
        assert_eq!("71582".parse(), Ok(Scale::MAX));
        for bad in [
            "0", "71583", "0.5", "1.0", "-1", "nan", "inf", "1e2", "one", "",
        ] {
            assert_eq!(bad.parse::<Scale>(), Err(ScaleError), "{bad}");
        }
        let message = "a scale is a whole number between 1 and 71582";
        assert_eq!(ScaleError.to_string(), message);
    }

    #[test]
    fn parts_grow_with_two_logarithms() {
        let parts = |factor| Scale(factor).parts() / PARTS;
        let ordered = |factor| Scale(factor).ordered_parts() / PARTS;
        assert_eq!([1, 2, 3, 4, 10, 100].map(parts), [1, 2, 2, 3, 4, 7]);
        assert_eq!([1, 2, 3, 4, 10, 100].map(ordered), [1, 1, 2, 2, 3, 5]);
    }
}
