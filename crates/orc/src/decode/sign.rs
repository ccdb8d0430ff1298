//! Signs of integers.

use super::varint::unzigzag;

/// True if integers of a stream are zigzagged. It does not show in the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sign {
    /// They are.
    Signed,
    /// They are not.
    Unsigned,
}

impl Sign {
    /// The integer that these bits stand for.
    pub(super) fn of(self, bits: u64) -> i64 {
        match self {
            Self::Signed => unzigzag(bits),
            Self::Unsigned => bits as i64,
        }
    }
}
