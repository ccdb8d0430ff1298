//! Vectors: the values of an expression for 1024 rows.

use vectile_encodings::VECTOR_LEN;
use vectile_encodings::simd::gather_bits;
use vectile_pipeline::{Bounds, Domain, Literal, Type};

/// A bit for each row of a vector.
pub(crate) type Mask = [u64; VECTOR_LEN / 64];

/// A mask of all rows.
pub(crate) const ALL: Mask = [u64::MAX; VECTOR_LEN / 64];

/// The values of an expression for the rows of a vector. Rows that are null, or not selected, have arbitrary ones.
#[derive(Clone, Debug)]
pub(crate) enum Values {
    /// Integers whose bounds fit 64 bits.
    Int(Box<[i64; VECTOR_LEN]>),
    /// Other integers.
    Wide(Box<[i128; VECTOR_LEN]>),
    /// Floats. Those of single precision are kept in double precision, which has all of them.
    Float(Box<[f64; VECTOR_LEN]>),
    /// Booleans.
    Bool(Mask),
}

/// Values, and which of them are valid.
#[derive(Clone, Debug)]
pub(crate) struct Vector {
    pub values: Values,
    /// `None` if no row is null.
    pub valid: Option<Mask>,
}

/// How the values of a domain are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Int,
    Wide,
    Float,
    Bool,
}

impl Kind {
    /// How values of `domain` are kept.
    pub fn of(domain: Domain) -> Self {
        match domain.of {
            Type::Bool => Self::Bool,
            Type::F32 | Type::F64 => Self::Float,
            _ if domain.bounds.within(Bounds::of(Type::I64)) => Self::Int,
            _ => Self::Wide,
        }
    }
}

impl Vector {
    /// A vector of zeros.
    pub fn new(kind: Kind) -> Self {
        let values = match kind {
            Kind::Int => Values::Int(Box::new([0; VECTOR_LEN])),
            Kind::Wide => Values::Wide(Box::new([0; VECTOR_LEN])),
            Kind::Float => Values::Float(Box::new([0.0; VECTOR_LEN])),
            Kind::Bool => Values::Bool([0; VECTOR_LEN / 64]),
        };
        Self {
            values,
            valid: None,
        }
    }

    /// Sets all rows to a constant.
    pub fn fill(&mut self, literal: Literal) {
        self.valid = match literal {
            Literal::Null(_) => Some([0; VECTOR_LEN / 64]),
            _ => None,
        };
        match (&mut self.values, literal) {
            (Values::Int(out), Literal::Int(value, _)) => out.fill(value as i64),
            (Values::Wide(out), Literal::Int(value, _)) => out.fill(value),
            (Values::Bool(out), Literal::Int(value, _)) => {
                *out = if value == 0 {
                    [0; VECTOR_LEN / 64]
                } else {
                    ALL
                };
            }
            (Values::Float(out), Literal::F32(value)) => out.fill(value.into()),
            (Values::Float(out), Literal::F64(value)) => out.fill(value),
            _ => {}
        }
    }
}

/// The rows that are valid in both.
pub(crate) fn both(a: Option<&Mask>, b: Option<&Mask>) -> Option<Mask> {
    match (a, b) {
        (Some(a), Some(b)) => Some(std::array::from_fn(|word| a[word] & b[word])),
        (Some(mask), None) | (None, Some(mask)) => Some(*mask),
        (None, None) => None,
    }
}

/// True if a row's bit is set.
pub(crate) fn has_row(mask: &Mask, row: usize) -> bool {
    mask[row / 64] >> (row % 64) & 1 == 1
}

/// Rows of half a word of a mask.
pub(crate) const HALF: usize = u32::BITS as usize;

/// A mask in halves of words: as many rows as there are bits share the processor's registers.
#[inline(always)]
pub(crate) fn halves(mask: &Mask) -> impl Iterator<Item = u32> {
    mask.iter()
        .flat_map(|word| [*word as u32, (word >> u32::BITS) as u32])
}

/// Calls `visit` with each row whose bit is set, ascending.
#[inline(always)]
pub(crate) fn for_each_row(mask: &Mask, mut visit: impl FnMut(usize)) {
    for (word, bits) in mask.iter().enumerate() {
        let mut rest = *bits;
        if rest == u64::MAX {
            (word * 64..word * 64 + 64).for_each(&mut visit);
            continue;
        }
        while rest != 0 {
            visit(word * 64 + rest.trailing_zeros() as usize);
            rest &= rest - 1;
        }
    }
}

/// The mask of the first `rows` rows.
pub(crate) fn first_rows(rows: usize) -> Mask {
    std::array::from_fn(|word| match rows.saturating_sub(word * 64) {
        bits @ ..64 => (1 << bits) - 1,
        _ => u64::MAX,
    })
}

/// Number of rows whose bit is set.
pub(crate) fn count(mask: &Mask) -> usize {
    mask.iter().map(|word| word.count_ones() as usize).sum()
}

/// The mask of rows for which `test` holds.
#[inline(always)]
pub(crate) fn mask_of<T: Copy>(values: &[T; VECTOR_LEN], test: impl Fn(T) -> bool) -> Mask {
    let mut flags = [0; VECTOR_LEN];
    let pairs = flags.iter_mut().zip(values);
    pairs.for_each(|(flag, value)| *flag = u8::from(test(*value)));
    let mut mask = [0; VECTOR_LEN / 64];
    gather_bits(&flags, &mut mask);
    mask
}

/// The mask of rows for which `test` holds for both values.
#[inline(always)]
pub(crate) fn mask_of_pairs<T: Copy>(
    a: &[T; VECTOR_LEN],
    b: &[T; VECTOR_LEN],
    test: impl Fn(T, T) -> bool,
) -> Mask {
    let mut flags = [0; VECTOR_LEN];
    let pairs = flags.iter_mut().zip(a.iter().zip(b));
    pairs.for_each(|(flag, (a, b))| *flag = u8::from(test(*a, *b)));
    let mut mask = [0; VECTOR_LEN / 64];
    gather_bits(&flags, &mut mask);
    mask
}
