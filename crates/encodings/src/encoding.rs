//! The names of the encodings. The set is closed: a new encoding is a new line here, and the
//! compiler lists what it still lacks.

use std::fmt;
use std::str::FromStr;

use crate::error::Error;

/// Calls a macro with every encoding, cheapest to decode first. A row has the name, the cost of a byte, and, if it
/// encodes sequences of integers: the variant of `Sequence`, its type, and its tag in chunks.
macro_rules! for_each_encoding {
    ($then:ident) => {
        $then! {
            /// One value for all rows.
            Constant = "constant", 1.0;
            /// Values in Arrow's layout; nested types as the columns they consist of.
            Plain = "plain", 0.97;
            /// Frame of reference and bit packing.
            Ffor = "ffor", 1.0, Sequence::Ffor(ffor::Ffor) = 1;
            /// The value of most rows, and exceptions with their rows.
            Sparse = "sparse", 1.0, Sequence::Sparse(sparse::Sparse<Sequence>) = 7;
            /// Runs of equal values.
            Rle = "rle", 1.02, Sequence::Rle(rle::Rle<Sequence>) = 3;
            /// Codes into a dictionary of distinct values.
            Dict = "dict", 1.02;
            /// Decimals behind floats, as integers.
            Alp = "alp", 1.02;
            /// Differences of consecutive values.
            Delta = "delta", 1.05, Sequence::Delta(delta::Delta) = 2;
            /// A frame of reference for each 128 integers, a width for each 32.
            GpuFor = "gpu_for", 1.17, Sequence::GpuFor(gpu_for::GpuFor) = 4;
            /// Runs, with a frame of reference for each 512 rows.
            GpuRfor = "gpu_rfor", 1.2, Sequence::GpuRfor(gpu_rfor::GpuRfor) = 6;
            /// Differences of consecutive values, in blocks like those of `gpu_for`.
            GpuDfor = "gpu_dfor", 1.1, Sequence::GpuDfor(gpu_dfor::GpuDfor) = 5;
            /// Floats cut into a frequent left and a random right part.
            AlpRd = "alp_rd", 1.05;
            /// Strings as codes of frequent substrings, which are pairs of shorter ones.
            OnPair = "onpair", 1.05;
            /// Strings as codes of frequent substrings.
            Fsst = "fsst", 1.05;
        }
    };
}

pub(crate) use for_each_encoding;

/// Defines [`Encoding`].
macro_rules! define_encoding {
    ($(
        $(#[$doc:meta])* $variant:ident = $name:literal, $weight:literal
        $(, Sequence::$sequence:ident($codec:ty) = $tag:literal)?;
    )+) => {
        /// The encoding of a column chunk.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Encoding {
            $($(#[$doc])* $variant,)+
        }

        impl Encoding {
            /// Every encoding, cheapest to decode first.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            /// The name in SQL options, on the command line and in `inspect`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// The cost of a byte when encodings are compared: an encoding that decodes faster wins
            /// unless the other one is smaller by more than a few percent.
            fn weight(self) -> f64 {
                match self {
                    $(Self::$variant => $weight,)+
                }
            }
        }
    };
}

for_each_encoding!(define_encoding);

impl Encoding {
    /// The encoding of the smallest weighted size. Earlier ones win ties.
    pub(crate) fn smallest(sizes: impl IntoIterator<Item = (Self, usize)>) -> Self {
        let weighted = |(encoding, bytes): &(Self, usize)| *bytes as f64 * encoding.weight();
        sizes
            .into_iter()
            .min_by(|a, b| weighted(a).total_cmp(&weighted(b)))
            .map_or(Self::Plain, |(encoding, _)| encoding)
    }
}

/// A user's choice of encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pin {
    /// This encoding.
    One(Encoding),
    /// The smallest of `gpu_for`, `gpu_dfor` and `gpu_rfor`.
    GpuStar,
}

impl Pin {
    const GPU_STAR_NAME: &str = "gpu_star";
    pub(crate) const GPU_STAR: [Encoding; 3] =
        [Encoding::GpuFor, Encoding::GpuDfor, Encoding::GpuRfor];
}

impl From<Encoding> for Pin {
    fn from(encoding: Encoding) -> Self {
        Self::One(encoding)
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::One(encoding) => encoding.name(),
            Self::GpuStar => Self::GPU_STAR_NAME,
        })
    }
}

impl FromStr for Pin {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        if name == Self::GPU_STAR_NAME {
            return Ok(Self::GpuStar);
        }
        let one = name.parse().map(Self::One);
        one.map_err(|_| {
            let mut known = Encoding::ALL.map(Encoding::name).to_vec();
            known.push(Self::GPU_STAR_NAME);
            Error::unknown_encoding(name, &known)
        })
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
            .ok_or_else(|| Error::unknown_encoding(name, &Self::ALL.map(Self::name)))
    }
}
