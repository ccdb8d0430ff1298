//! Machine types and their constants.

pub use vectile_kernels::Type;

/// A constant.
#[derive(Clone, Copy, Debug)]
pub enum Literal {
    /// A null of a type.
    Null(Type),
    /// An integer (or 0 and 1 for false and true) of a type.
    Int(i128, Type),
    /// Single precision.
    F32(f32),
    /// Double precision.
    F64(f64),
}

impl Literal {
    /// Its type.
    pub fn data_type(self) -> Type {
        match self {
            Self::Null(of) | Self::Int(_, of) => of,
            Self::F32(_) => Type::F32,
            Self::F64(_) => Type::F64,
        }
    }
}

/// Floats are equal if all of their bits are.
impl PartialEq for Literal {
    fn eq(&self, other: &Self) -> bool {
        match (*self, *other) {
            (Self::Null(a), Self::Null(b)) => a == b,
            (Self::Int(a, of_a), Self::Int(b, of_b)) => (a, of_a) == (b, of_b),
            (Self::F32(a), Self::F32(b)) => a.to_bits() == b.to_bits(),
            (Self::F64(a), Self::F64(b)) => a.to_bits() == b.to_bits(),
            _ => false,
        }
    }
}
