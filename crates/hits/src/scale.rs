//! The scale factor.

use std::fmt;
use std::str::FromStr;

/// Rows of scale 1.
const ROWS: f64 = 1_000_000.0;

/// A scale factor: 1 is a million rows.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Scale(f64);

/// The error for a string that is not a [`Scale`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a scale lies between {} and {}", Scale::MIN.0, Scale::MAX.0)]
pub struct ScaleError;

impl Scale {
    /// The smallest scale, 1,000 rows.
    pub const MIN: Scale = Scale(0.001);

    /// The largest scale, 100 billion rows.
    pub const MAX: Scale = Scale(100_000.0);

    /// The number of rows.
    pub fn rows(self) -> u64 {
        (self.0 * ROWS).round() as u64
    }
}

impl TryFrom<f64> for Scale {
    type Error = ScaleError;

    fn try_from(factor: f64) -> Result<Self, ScaleError> {
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
        let factor: f64 = text.parse().map_err(|_| ScaleError)?;
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
    fn scales_are_within_limits() {
        assert_eq!("0.001".parse::<Scale>().map(Scale::rows), Ok(1_000));
        assert_eq!("2.5".parse::<Scale>().map(Scale::rows), Ok(2_500_000));
        for bad in ["0", "-1", "nan", "inf", "0.0001", "1e6", "one", ""] {
            assert_eq!(bad.parse::<Scale>(), Err(ScaleError), "{bad}");
        }
        let message = "a scale lies between 0.001 and 100000";
        assert_eq!(ScaleError.to_string(), message);
    }
}
