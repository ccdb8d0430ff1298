//! The scale factor.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use tpcdsgen::config::{Session, SessionBuilder};

const MIN: f64 = 0.01;
const MAX: f64 = 100_000.0;

/// A scale factor: 1 is 2.9 million lines of `store_sales`.
#[derive(Debug, Clone)]
pub struct Scale(Arc<Session>);

/// The error for a string or number that is not a [`Scale`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a scale lies between {MIN} and {MAX}")]
pub struct ScaleError;

impl Scale {
    /// The settings of generators.
    pub(crate) fn session(&self) -> &Session {
        &self.0
    }
}

impl TryFrom<f64> for Scale {
    type Error = ScaleError;

    fn try_from(factor: f64) -> Result<Self, ScaleError> {
        if !(MIN..=MAX).contains(&factor) {
            return Err(ScaleError);
        }
        let session = SessionBuilder::new().with_scale_factor(factor).build();
        session
            .map(|session| Scale(Arc::new(session)))
            .map_err(|_| ScaleError)
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
        self.0.get_scaling().get_scale().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_within_limits() {
        for good in ["0.01", "1", "2.5", "100000"] {
            assert_eq!(
                good.parse::<Scale>().map(|scale| scale.to_string()),
                Ok(good.into())
            );
        }
        for bad in ["0", "-1", "nan", "inf", "0.001", "1e6", "one", ""] {
            assert!(bad.parse::<Scale>().is_err(), "{bad}");
        }
        assert_eq!(
            ScaleError.to_string(),
            "a scale lies between 0.01 and 100000"
        );
    }
}
