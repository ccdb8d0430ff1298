//! A column chunk taken apart, for decoders that run elsewhere: what is in which buffer.
//!
//! Everything has been checked by [`Column::parse`](crate::Column::parse): lengths, widths, counts,
//! rows of patches. What only decoding shows (dictionary codes beyond the entries, runs that do not
//! tile a vector) is left to check.

use arrow::array::ArrayRef;
use arrow::buffer::Buffer;

use crate::VECTOR_LEN;
use crate::bitpack::LANES;
use crate::delta::Delta;
use crate::error::{Result, corrupt};
use crate::ffor::Ffor;
use crate::ints::Ints;
use crate::patches::Patches;
use crate::residuals::Residuals;
use crate::rle::Runs;
use crate::validity::Validity;

/// A column chunk: which rows are null, and the values.
#[derive(Clone, Debug)]
pub struct Layout<'a> {
    /// Which rows are null.
    pub validity: Nulls<'a>,
    /// The values; arbitrary where null.
    pub values: Values<'a>,
}

/// How values are stored.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Values<'a> {
    /// Every row is null.
    AllNull,
    /// The only value, an array of one row.
    Constant(&'a ArrayRef),
    /// Fixed-width values as Arrow lays them out: bytes of a value, and all bytes.
    Plain(usize, &'a Buffer),
    /// `reference + entry` of a sequence; of floats, the integers that order as arrow-rs orders
    /// them.
    Integers {
        /// The smallest value.
        reference: i128,
        /// What is added to it.
        offsets: Sequence<'a>,
    },
    /// Codes of distinct values.
    Dictionary {
        /// The values, ascending.
        entries: &'a ArrayRef,
        /// The code of each row.
        codes: Sequence<'a>,
    },
    /// Floats that are decimals: `integer * 10^factor * 10^-exponent`, in doubles.
    Alp {
        /// The smallest integer, which the sequence counts from.
        reference: i64,
        /// The exponent of each vector, at most 18.
        exponents: &'a [u8],
        /// The factor of each vector, at most its exponent.
        factors: &'a [u8],
        /// Integer less reference of each row.
        integers: Sequence<'a>,
        /// Bits of the values that are stored as they are.
        exceptions: PatchList<'a>,
    },
    /// Floats cut in two: `left << right_width | right`.
    AlpRd {
        /// Bits of a right part.
        right_width: usize,
        /// Left parts in their place in a value.
        lefts: [u64; 8],
        /// Index of the left part of each row.
        indices: Sequence<'a>,
        /// Right parts.
        rights: Packed<'a>,
        /// Left parts without an index.
        exceptions: PatchList<'a>,
    },
    /// Strings, nested types: no fixed-width value for a row.
    Other,
}

/// Which rows are null.
#[derive(Clone, Copy, Debug)]
pub struct Nulls<'a>(&'a Validity);

impl<'a> Nulls<'a> {
    pub(crate) fn new(validity: &'a Validity) -> Self {
        Self(validity)
    }

    /// Whether there may be any.
    pub fn any(&self) -> bool {
        self.0.may_have_nulls()
    }

    /// A bit for each row of a vector, set if it is valid; `None` if all are.
    pub fn mask(&self, vector: usize) -> Option<[u64; VECTOR_LEN / 64]> {
        self.0.mask(vector)
    }
}

/// A sequence of unsigned integers.
#[derive(Clone, Copy, Debug)]
pub enum Sequence<'a> {
    /// The same for every row.
    Constant(u64),
    /// `base + residual`, with a base for each vector.
    Ffor(FforView<'a>),
    /// Running sums of differences.
    Delta(DeltaView<'a>),
    /// Runs of equal entries.
    Rle(RleView<'a>),
}

impl<'a> Sequence<'a> {
    pub(crate) fn new(ints: &'a Ints) -> Self {
        match ints {
            Ints::Constant(value) => Self::Constant(*value),
            Ints::Ffor(ffor) => Self::Ffor(FforView(ffor)),
            Ints::Delta(delta) => Self::Delta(DeltaView(delta)),
            Ints::Rle(rle) => Self::Rle(RleView(rle)),
        }
    }

    /// The largest of the first `rows` entries, decoded; 0 if there are none.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`](crate::Error::Corrupt) for runs that do not tile a vector.
    pub fn largest(&self, rows: usize) -> Result<u64> {
        let mut largest = 0;
        let mut entries = [0; VECTOR_LEN];
        for vector in 0..rows.div_ceil(VECTOR_LEN) {
            match self {
                Self::Constant(value) => entries.fill(*value),
                Self::Ffor(view) => view.0.decode(vector, 0, &mut entries),
                Self::Delta(view) => view.0.decode(vector, 0, &mut entries),
                Self::Rle(view) => view
                    .0
                    .decode(vector, 0, &mut Runs::default(), &mut entries)?,
            }
            let live = VECTOR_LEN.min(rows - vector * VECTOR_LEN);
            largest = entries[..live].iter().fold(largest, |a, b| a.max(*b));
        }
        Ok(largest)
    }
}

/// `ffor`.
#[derive(Clone, Copy, Debug)]
pub struct FforView<'a>(&'a Ffor);

impl<'a> FforView<'a> {
    /// The smallest entry of a vector.
    pub fn base(&self, vector: usize) -> u64 {
        self.0.base(vector)
    }

    /// What is added to the bases.
    pub fn residuals(&self) -> Packed<'a> {
        Packed(self.0.residuals())
    }
}

/// `delta`: lane `l` of a packed vector holds the differences of the entries from `32 * l` on.
#[derive(Clone, Copy, Debug)]
pub struct DeltaView<'a>(&'a Delta);

impl<'a> DeltaView<'a> {
    /// What the sums of a vector start from.
    pub fn base(&self, vector: usize) -> u64 {
        self.0.base(vector)
    }

    /// What is added to each residual of a vector to get the difference.
    pub fn smallest(&self, vector: usize) -> u64 {
        self.0.smallest(vector)
    }

    /// The differences.
    pub fn residuals(&self) -> Packed<'a> {
        Packed(self.0.residuals())
    }

    /// For each lane of a vector the entry before its first: the base, then entries 31, 63 and so on.
    pub fn lane_starts(&self, vector: usize) -> [u64; LANES] {
        let mut entries = [0; VECTOR_LEN];
        self.0.decode(vector, 0, &mut entries);
        std::array::from_fn(|lane| match lane {
            0 => self.base(vector),
            lane => entries[lane * LANES - 1],
        })
    }
}

/// `rle`.
#[derive(Clone, Copy, Debug)]
pub struct RleView<'a>(&'a crate::rle::Rle);

impl RleView<'_> {
    /// Calls `visit` with the vector, the first row in it, and the entry of each run, in order. The
    /// runs of a vector tile it.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`](crate::Error::Corrupt) if they do not.
    pub fn for_each_run(&self, mut visit: impl FnMut(usize, usize, u64)) -> Result<()> {
        let mut runs = Runs::default();
        for vector in 0..self.0.num_vectors() {
            self.0.visit_runs(vector, &mut runs, &mut |rows, value| {
                visit(vector, rows.start, value)
            })?;
        }
        Ok(())
    }
}

/// Bit-packed residuals of many vectors, with patches.
#[derive(Clone, Copy, Debug)]
pub struct Packed<'a>(&'a Residuals);

impl<'a> Packed<'a> {
    pub(crate) fn new(residuals: &'a Residuals) -> Self {
        Self(residuals)
    }

    /// Bits of a residual of a vector, 0 to 64.
    pub fn width(&self, vector: usize) -> usize {
        self.0.width(vector)
    }

    /// The packed words of a vector: `128 * width` bytes.
    pub fn words(&self, vector: usize) -> &'a [u8] {
        self.0.packed(vector)
    }

    /// The packed words of all vectors, one after the other.
    pub fn all_words(&self) -> &'a Buffer {
        self.0.all_packed()
    }

    /// Residuals that replace the packed ones.
    pub fn patches(&self) -> PatchList<'a> {
        PatchList(self.0.patch_list())
    }
}

/// Values that replace packed ones, grouped by lane, ascending in a lane.
#[derive(Clone, Copy, Debug)]
pub struct PatchList<'a>(&'a Patches);

impl<'a> PatchList<'a> {
    pub(crate) fn new(patches: &'a Patches) -> Self {
        Self(patches)
    }

    /// The patches of a vector: row in the vector, and value.
    pub fn of(&self, vector: usize) -> impl Iterator<Item = (usize, u64)> + use<'a> {
        self.0.of(vector)
    }

    /// Whether a vector has none.
    pub fn is_empty(&self, vector: usize) -> bool {
        self.0.is_empty(vector)
    }
}

/// The range of decimal integers whose floats have a key in `low..=high`, for ALP values of
/// `exponent` and `factor`; `None` if there are none. `single`: values are `f32`.
///
/// # Errors
///
/// [`Error::Corrupt`](crate::Error::Corrupt) for an exponent or a factor that the type does not have.
pub fn alp_integers(
    single: bool,
    exponent: u8,
    factor: u8,
    low: i64,
    high: i64,
) -> Result<Option<(i64, i64)>> {
    let range = match single {
        true => crate::alp::integer_range::<f32>(exponent, factor, low, high),
        false => crate::alp::integer_range::<f64>(exponent, factor, low, high),
    };
    range.ok_or_else(|| corrupt("alp", format!("exponent {exponent} and factor {factor}")))
}

/// The bounds of a range as integers that order as the values do, both inclusive; `None` if a bound
/// does not fit 128 bits. Bounds are arrays of one row, not of strings.
///
/// # Errors
///
/// [`Error::Unsupported`](crate::Error::Unsupported) for types without such integers.
pub fn range_words(
    low: &std::ops::Bound<ArrayRef>,
    high: &std::ops::Bound<ArrayRef>,
) -> Result<Option<(i128, i128)>> {
    crate::predicate::word_range(low, high)
}

/// Values as integers that order as they do; `None` if one does not fit 128 bits.
///
/// # Errors
///
/// As [`range_words`].
pub fn value_words(values: &ArrayRef) -> Result<Option<Vec<i128>>> {
    crate::predicate::words(values)
}
