//! Column traits: the encodings, widths and bounds of the chunks that a kernel decodes. Only these get code.

use std::fmt::Write as _;

use crate::chunk_structs::{ALL_NULL, EXCEPTIONS, PATCHED, SOME_NULL};

/// Traits of a chunk, or the union of those of several chunks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ColumnTraits {
    /// A bit for each transform.
    pub transforms: u8,
    /// A bit for each kind of sequence.
    pub sequences: u8,
    /// A bit for each width up to 32 of a word plane.
    pub low: u64,
    /// A bit for each width, less 32, of a high plane.
    pub high: u64,
    /// A bit for each width that a vector has: bits of a packed residual, or bytes of a run's value.
    pub widths: u128,
    /// Flags for patches, nulls, exceptions, as in a chunk's vectors.
    pub flags: u8,
    /// True if some entry needs more than 32 bits.
    pub wide_entries: bool,
    /// Bounds of the integers, not always tight; `None` for floats and strings.
    pub bounds: Option<(i128, i128)>,
    /// Scales of ALP, ascending.
    pub scales: Vec<u16>,
    /// True if some vector's base is not 0.
    pub based: bool,
    /// True if all dictionaries are of evenly spaced numbers; `None` without dictionaries.
    pub even: Option<bool>,
    /// True if some row can only be read by decoding others.
    pub searched: bool,
}

impl ColumnTraits {
    /// Adds a width of residuals.
    pub(crate) fn width(&mut self, width: usize) {
        if width > 32 {
            self.low |= 1 << 32;
            self.high |= 1 << (width - 32);
        } else {
            self.low |= 1 << width;
        }
    }

    /// Adds a scale of `alp`.
    pub(crate) fn scale(&mut self, scale: u16) {
        if let Err(at) = self.scales.binary_search(&scale) {
            self.scales.insert(at, scale);
        }
    }

    /// Widens the bounds.
    pub(crate) fn include(&mut self, low: i128, high: i128) {
        self.bounds = Some(match self.bounds {
            Some((a, b)) => (a.min(low), b.max(high)),
            None => (low, high),
        });
    }

    /// Adds the traits of another chunk of the column.
    pub fn merge(&mut self, other: &Self) {
        self.transforms |= other.transforms;
        self.sequences |= other.sequences;
        self.low |= other.low;
        self.high |= other.high;
        self.widths |= other.widths;
        self.flags |= other.flags;
        self.wide_entries |= other.wide_entries;
        self.based |= other.based;
        self.searched |= other.searched;
        self.even = match (self.even, other.even) {
            (Some(a), Some(b)) => Some(a && b),
            (a, b) => a.or(b),
        };
        if let Some((low, high)) = other.bounds {
            self.include(low, high);
        }
        other.scales.iter().for_each(|scale| self.scale(*scale));
    }

    /// The part that kernels depend on: with bounds mapped by `rounded`, and without the scales if there are several.
    pub fn for_kernels(&self, rounded: impl Fn(i128, i128) -> (i128, i128)) -> Self {
        let mut scales = self.scales.clone();
        if scales.len() > 1 {
            scales.clear();
        }
        Self {
            bounds: self.bounds.map(|(low, high)| rounded(low, high)),
            scales,
            ..self.clone()
        }
    }

    /// Returns true if some row may be null.
    pub fn nullable(&self) -> bool {
        self.flags & (ALL_NULL | SOME_NULL) != 0
    }

    /// Returns true if any value can be read without searching patches.
    pub fn is_direct(&self) -> bool {
        self.flags & (PATCHED | EXCEPTIONS) == 0 && !self.searched
    }

    /// Returns true if some integer does not fit 64 bits, signed.
    pub fn is_wide(&self) -> bool {
        self.bounds
            .is_some_and(|(low, high)| low < i128::from(i64::MIN) || high > i128::from(i64::MAX))
    }

    /// The traits as a struct of device code: see `sequence.cuh` and `transform.cuh`.
    pub fn code(&self, name: &str, stored: &str, value: &str, word: &str) -> String {
        let mut out = String::new();
        let (low, high) = (self.low, self.high);
        let entry = if self.wide_entries { "u64" } else { "u32" };
        let scale = match self.scales.as_slice() {
            [one] => i32::from(*one),
            _ => -1,
        };
        let even = self.even == Some(true);
        let one_width = match self.widths.is_power_of_two() {
            true => self.widths.trailing_zeros() as i32,
            false => -1,
        };
        let widths = self.widths as u64;
        // a constant saves nothing beside code for several transforms; with one, such a kernel spilled on sm_120
        let based = self.based || self.transforms.count_ones() > 1;
        let _ = write!(
            out,
            "struct {name} {{\n    static const u64 LOW = {low:#x}ull, HIGH = {high:#x}ull, WIDTHS = {widths:#x}ull;\n    \
             static const u32 TRANSFORMS = {}, SEQUENCES = {}, FLAGS = {};\n    \
             static const i32 ONE_WIDTH = {one_width}, ONE_SCALE = {scale};\n    static const bool BASED = {based}, EVEN = {even};\n    \
             typedef {entry} Entry;\n    \
             typedef {stored} Stored;\n    typedef {value} Value;\n    typedef {word} Word;\n}};\n",
            self.transforms, self.sequences, self.flags
        );
        out
    }
}
