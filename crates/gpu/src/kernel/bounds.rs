//! Bounds of integers, and what they are computed in.

use crate::plan::Type;

/// An integer's bounds, rounded out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Bounds(pub i128, pub i128);

impl Bounds {
    /// `low..=high` rounded out to powers of two, so that few kernels differ by them.
    pub fn rounded(low: i128, high: i128) -> Self {
        let up = |x: i128| match 128 - x.unsigned_abs().leading_zeros() {
            127.. => i128::MAX,
            bits => (1i128 << bits) - 1,
        };
        let low = if low < 0 { !up(!low) } else { 0 };
        Self(low, if high > 0 { up(high) } else { 0 })
    }

    /// Those of constants of about this size, with the same sign: constants are arguments.
    pub fn literal(value: i128) -> Self {
        let bits = 128 - value.unsigned_abs().leading_zeros();
        let bits = [7, 15, 31, 63]
            .into_iter()
            .find(|b| bits <= *b)
            .unwrap_or(127);
        let top = if bits == 127 {
            i128::MAX
        } else {
            (1i128 << bits) - 1
        };
        match value {
            ..0 => Self(-top, 0),
            _ => Self(0, top),
        }
    }

    pub fn of(of: Type) -> Self {
        let (low, high) = of.range().unwrap_or((0, 0));
        Self(low, high)
    }

    pub fn within(self, other: Self) -> bool {
        other.0 <= self.0 && self.1 <= other.1
    }

    pub fn union(self, other: Self) -> Self {
        Self(self.0.min(other.0), self.1.max(other.1))
    }

    pub fn name(self) -> &'static str {
        if self.within(Self::of(Type::I32)) {
            "i32"
        } else if self.within(Self::of(Type::I64)) {
            "i64"
        } else {
            "i128"
        }
    }

    /// Bits of the largest magnitude.
    pub fn bits(self) -> u32 {
        let of = |x: i128| 128 - x.unsigned_abs().leading_zeros();
        of(self.0).max(of(self.1))
    }
}

pub(crate) fn add(a: i128, b: i128) -> Option<i128> {
    a.checked_add(b)
}

pub(crate) fn sub(a: i128, b: i128) -> Option<i128> {
    a.checked_sub(b)
}

pub(crate) fn product(a: Bounds, b: Bounds) -> Option<(i128, i128)> {
    let ends = [
        a.0.checked_mul(b.0)?,
        a.0.checked_mul(b.1)?,
        a.1.checked_mul(b.0)?,
        a.1.checked_mul(b.1)?,
    ];
    Some((*ends.iter().min()?, *ends.iter().max()?))
}
