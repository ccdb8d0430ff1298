//! The names of the encodings. The set is closed: a new encoding is a new variant here, and the
//! compiler lists what it still lacks.

use std::fmt;
use std::str::FromStr;

use crate::error::Error;

/// How a column chunk is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Encoding {
    /// One value for all rows.
    Constant,
    /// Values as Arrow lays them out; nested types as the columns they are made of.
    Plain,
    /// Frame of reference and bit packing.
    Ffor,
    /// Differences of consecutive values.
    Delta,
    /// Runs of equal values.
    Rle,
    /// Codes into a dictionary of distinct values.
    Dict,
    /// Decimals behind floats, as integers.
    Alp,
    /// Floats cut into a frequent left and a random right part.
    AlpRd,
    /// Strings as codes of frequent substrings.
    Fsst,
}

impl Encoding {
    /// Every encoding, cheapest to decode first.
    pub const ALL: [Self; 9] = [
        Self::Constant,
        Self::Plain,
        Self::Ffor,
        Self::Rle,
        Self::Dict,
        Self::Alp,
        Self::Delta,
        Self::AlpRd,
        Self::Fsst,
    ];

    /// The name in SQL options, on the command line and in `inspect`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Constant => "constant",
            Self::Plain => "plain",
            Self::Ffor => "ffor",
            Self::Delta => "delta",
            Self::Rle => "rle",
            Self::Dict => "dict",
            Self::Alp => "alp",
            Self::AlpRd => "alp_rd",
            Self::Fsst => "fsst",
        }
    }

    /// What a byte in this encoding counts when encodings are compared: an encoding that decodes
    /// faster wins unless the other one is smaller by more than a few percent.
    fn weight(self) -> f64 {
        match self {
            Self::Constant | Self::Ffor => 1.0,
            Self::Plain => 0.97,
            Self::Rle | Self::Dict | Self::Alp => 1.02,
            Self::Delta | Self::AlpRd | Self::Fsst => 1.05,
        }
    }

    /// The encoding of the smallest weighted size. Earlier ones win ties.
    pub(crate) fn smallest(sizes: impl IntoIterator<Item = (Self, usize)>) -> Self {
        let weighted = |(encoding, bytes): &(Self, usize)| *bytes as f64 * encoding.weight();
        sizes
            .into_iter()
            .min_by(|a, b| weighted(a).total_cmp(&weighted(b)))
            .map_or(Self::Plain, |(encoding, _)| encoding)
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Encoding {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        Self::ALL
            .into_iter()
            .find(|encoding| encoding.name() == name)
            .ok_or_else(|| {
                let known = Self::ALL.map(Self::name).join(", ");
                Error::Unsupported(format!("encoding '{name}'; known are {known}"))
            })
    }
}
