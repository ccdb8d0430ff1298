//! Machine integers that values decode to.

use crate::rows::{ROW_LEN, Reader, Row};

/// A machine integer that values decode to.
pub(crate) trait Word: Copy + Default + 'static {
    /// The unsigned type of sums: as wide as the type, up to 64 bits.
    type Sum: Sum;
    /// `self + offset`, wrapping.
    fn plus(self, offset: u64) -> Self;
}

/// A wrapping unsigned integer.
pub(crate) trait Sum: Copy + Default + Into<u64> + 'static {
    fn truncate(value: u64) -> Self;
    fn add(self, other: Self) -> Self;
    /// Unpacks the lower bits of the residuals of a row.
    fn unpack(reader: impl Reader, row: Row<'_>, out: &mut [Self; ROW_LEN]);
    /// Replaces `values` by their prefix sums, starting from `before`; returns the last of them.
    fn sum(reader: impl Reader, before: Self, values: &mut [Self; ROW_LEN]) -> Self;
}

impl Sum for u32 {
    #[inline(always)]
    fn truncate(value: u64) -> Self {
        value as u32
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        self.wrapping_add(other)
    }

    #[inline(always)]
    fn unpack(reader: impl Reader, row: Row<'_>, out: &mut [Self; ROW_LEN]) {
        if row.width <= 32 {
            return reader.narrow(row, out);
        }
        let mut residuals = [0; ROW_LEN];
        reader.wide(row, &mut residuals);
        *out = residuals.map(Self::truncate);
    }

    #[inline(always)]
    fn sum(reader: impl Reader, before: Self, values: &mut [Self; ROW_LEN]) -> Self {
        reader.sum_narrow(before, values)
    }
}

impl Sum for u64 {
    #[inline(always)]
    fn truncate(value: u64) -> Self {
        value
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        self.wrapping_add(other)
    }

    #[inline(always)]
    fn unpack(reader: impl Reader, row: Row<'_>, out: &mut [Self; ROW_LEN]) {
        reader.wide(row, out);
    }

    #[inline(always)]
    fn sum(reader: impl Reader, before: Self, values: &mut [Self; ROW_LEN]) -> Self {
        reader.sum_wide(before, values)
    }
}

macro_rules! impl_word {
    ($($t:ty: $sum:ty),*) => { $(impl Word for $t {
        type Sum = $sum;
        #[inline(always)]
        fn plus(self, offset: u64) -> Self { self.wrapping_add(offset as $t) }
    })* };
}
impl_word!(u8: u32, u16: u32, u32: u32, u64: u64, i8: u32, i16: u32, i32: u32, i64: u64, i128: u64);
