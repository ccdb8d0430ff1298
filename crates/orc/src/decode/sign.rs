//! Signs of integers.

use super::varint::unzigzag;

/// The signedness of the integers of a stream, which its bytes do not show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sign {
    /// Zigzagged.
    Signed,
    /// Not zigzagged.
    Unsigned,
}

impl Sign {
    /// The integer encoded by these bits.
    pub(super) fn of(self, bits: u64) -> i64 {
        match self {
            Self::Signed => unzigzag(bits),
            Self::Unsigned => bits as i64,
        }
    }
}
