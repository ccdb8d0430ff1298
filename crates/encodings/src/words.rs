//! Machine integers that values decode into.

/// A machine integer that values decode into.
pub(crate) trait Word: Copy + Default + 'static {
    /// The unsigned type that sums are made in: as wide as the type, up to 64 bits.
    type Sum: Sum;
    /// `self + offset`, wrapping.
    fn plus(self, offset: u64) -> Self;
}

/// A wrapping unsigned integer.
pub(crate) trait Sum: Copy + Default + Into<u64> + 'static {
    fn truncate(value: u64) -> Self;
    fn add(self, other: Self) -> Self;
}

macro_rules! impl_sum {
    ($($t:ty),*) => { $(impl Sum for $t {
        #[inline(always)]
        fn truncate(value: u64) -> Self { value as $t }
        #[inline(always)]
        fn add(self, other: Self) -> Self { self.wrapping_add(other) }
    })* };
}
impl_sum!(u32, u64);

macro_rules! impl_word {
    ($($t:ty: $sum:ty),*) => { $(impl Word for $t {
        type Sum = $sum;
        #[inline(always)]
        fn plus(self, offset: u64) -> Self { self.wrapping_add(offset as $t) }
    })* };
}
impl_word!(u8: u32, u16: u32, u32: u32, u64: u64, i8: u32, i16: u32, i32: u32, i64: u64, i128: u64);
