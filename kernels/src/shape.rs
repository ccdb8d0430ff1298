//! What a kernel has to know of the chunks it decodes: which encodings, widths and bounds occur. Only
//! these get code.

use std::fmt::Write as _;

/// What entries of a sequence stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Form {
    /// Offsets from the smallest value.
    #[default]
    Integer = 0,
    /// Codes of a dictionary.
    Dict = 1,
    /// Integers of `alp`.
    Alp = 2,
    /// Indices of left parts.
    AlpRd = 3,
    /// Nothing: values lie as they are.
    Plain = 4,
}

/// How a sequence is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SequenceKind {
    /// Packed residuals.
    Packed = 0,
    /// Differences.
    Delta = 1,
    /// Runs.
    Rle = 2,
}

/// Scales of ALP: exponent * 19 + factor.
pub const SCALES: usize = 19 * 19;

/// Flags of a vector.
pub(crate) const PATCHED: u8 = 1;
pub(crate) const ALL_NULL: u8 = 2;
pub(crate) const SOME_NULL: u8 = 4;
pub(crate) const EXCEPTIONS: u8 = 8;
pub(crate) const WIDE_STARTS: u8 = 16;

/// What occurs in a chunk, or in any of several.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Shape {
    /// A bit for each [`Form`].
    pub forms: u8,
    /// That of one chunk.
    pub form: Form,
    /// A bit for each [`SequenceKind`].
    pub sequences: u8,
    /// A bit for each width up to 32 of a word plane.
    pub low: u64,
    /// A bit for each width, less 32, of a high plane.
    pub high: u64,
    /// Patches, nulls, exceptions; as in an image's vectors.
    pub flags: u8,
    /// Whether some entry needs more than 32 bits.
    pub wide_entries: bool,
    /// Bounds of the integers, not always tight; `None` for floats and strings.
    pub bounds: Option<(i128, i128)>,
    /// Scales of ALP, ascending.
    pub scales: Vec<u16>,
    /// Whether some vector's base is not 0.
    pub based: bool,
    /// Whether some dictionary is not of evenly spaced numbers.
    pub uneven: bool,
}

impl Shape {
    /// Adds a kind of sequence.
    pub fn sequence(&mut self, kind: SequenceKind) {
        self.sequences |= 1 << kind as u8;
    }

    /// Adds a width of residuals.
    pub fn width(&mut self, width: usize) {
        if width > 32 {
            self.low |= 1 << 32;
            self.high |= 1 << (width - 32);
        } else {
            self.low |= 1 << width;
        }
    }

    /// Adds a scale of `alp`.
    pub fn scale(&mut self, scale: u16) {
        if let Err(at) = self.scales.binary_search(&scale) {
            self.scales.insert(at, scale);
        }
    }

    /// Widens the bounds.
    pub fn include(&mut self, low: i128, high: i128) {
        self.bounds = Some(match self.bounds {
            Some((a, b)) => (a.min(low), b.max(high)),
            None => (low, high),
        });
    }

    /// Adds what occurs in another chunk of the column.
    pub fn merge(&mut self, other: &Self) {
        self.forms |= other.forms;
        self.sequences |= other.sequences;
        self.low |= other.low;
        self.high |= other.high;
        self.flags |= other.flags;
        self.wide_entries |= other.wide_entries;
        self.based |= other.based;
        self.uneven |= other.uneven;
        if let Some((low, high)) = other.bounds {
            self.include(low, high);
        }
        other.scales.iter().for_each(|scale| self.scale(*scale));
    }

    /// What of it kernels depend on: with bounds as `rounded` gives them, and not which scales there are if they
    /// are several.
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

    /// Whether a form occurs.
    pub fn has(&self, form: Form) -> bool {
        self.forms >> form as u8 & 1 == 1
    }

    /// Whether a kind of sequence occurs.
    pub fn has_sequence(&self, kind: SequenceKind) -> bool {
        self.sequences >> kind as u8 & 1 == 1
    }

    /// Whether some row may be null.
    pub fn nullable(&self) -> bool {
        self.flags & (ALL_NULL | SOME_NULL) != 0
    }

    /// Whether any value can be had without searching patches for it.
    pub fn is_direct(&self) -> bool {
        self.flags & (PATCHED | EXCEPTIONS) == 0 && !self.has(Form::AlpRd)
    }

    /// Whether some integer does not fit 64 bits, signed.
    pub fn is_wide(&self) -> bool {
        self.bounds
            .is_some_and(|(low, high)| low < i128::from(i64::MIN) || high > i128::from(i64::MAX))
    }

    /// The traits of a column in kernels: see `sequence.cuh` and `values.cuh`.
    pub fn traits(&self, name: &str, stored: &str, value: &str, word: &str) -> String {
        let mut out = String::new();
        let (low, high) = (self.low, self.high);
        let entry = if self.wide_entries { "u64" } else { "u32" };
        let scale = match self.scales.as_slice() {
            [one] => i32::from(*one),
            _ => -1,
        };
        let even = self.has(Form::Dict) && !self.uneven;
        // a constant saves nothing beside code for several forms; with one, such a kernel spilled on sm_120
        let based = self.based || self.forms.count_ones() > 1;
        let _ = write!(
            out,
            "struct {name} {{\n    static const u64 LOW = {low:#x}ull, HIGH = {high:#x}ull;\n    \
             static const u32 FORMS = {}, SEQUENCES = {}, FLAGS = {};\n    \
             static const i32 ONE_SCALE = {scale};\n    static const bool BASED = {based}, EVEN = {even};\n    \
             typedef {entry} Entry;\n    \
             typedef {stored} Stored;\n    typedef {value} Value;\n    typedef {word} Word;\n}};\n",
            self.forms, self.sequences, self.flags
        );
        out
    }
}
