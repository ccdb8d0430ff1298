//! The accumulators that there are: an aggregate is made of one, and a count of its values.
//!
//! An accumulator is the same wherever a kernel keeps it: in registers of a thread, in shared memory of a thread,
//! or in a table of groups. This module says which there are and how much room they take. Its counterparts say how
//! a kernel starts, updates and merges them (`emit/accumulator.rs`), and how the host reads and merges what
//! kernels leave behind (`exec/accumulator.rs`).

use super::bounds::Bounds;
use crate::plan::{Aggregate, Type};

/// Bits of values of which eight are added in 32 bits.
const BITS_BY_EIGHT: u32 = 28;

/// How values are accumulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Accumulator {
    /// The number of rows or values, in 32 bits or in 64.
    Count { wide: bool },
    /// A sum of integers, in 64 bits or in 128.
    Sum { wide: bool },
    /// A sum of doubles. The order of additions matters.
    FloatSum,
    /// The smallest value, kept as an integer of this type, or as a float's place in the total order.
    Min(Type),
    /// The largest.
    Max(Type),
}

impl Accumulator {
    /// The count of 2^`growth` rows at most, or of fewer if that is 32.
    pub fn count(growth: u32) -> Self {
        Self::Count {
            wide: growth > u32::BITS,
        }
    }

    /// That of an aggregate over values of a type within bounds, of 2^`growth` rows at most. `None` if it only
    /// counts.
    pub fn of(aggregate: &Aggregate, of: Type, bounds: Bounds, growth: u32) -> Option<Self> {
        let kept = match (of, bounds.name()) {
            (Type::F32 | Type::F64, _) => of,
            (_, "i32") => Type::I32,
            (_, "i64") => Type::I64,
            _ => Type::I128,
        };
        Some(match aggregate {
            Aggregate::CountRows | Aggregate::Count(_) => return None,
            Aggregate::Sum(_) if of.is_float() => Self::FloatSum,
            Aggregate::Sum(_) => Self::Sum {
                wide: bounds.bits() + growth > 63,
            },
            Aggregate::Min(_) => Self::Min(kept),
            Aggregate::Max(_) => Self::Max(kept),
        })
    }

    /// The same, in whole words of memory.
    pub fn in_words(self) -> Self {
        match self {
            Self::Min(Type::I32) => Self::Min(Type::I64),
            Self::Max(Type::I32) => Self::Max(Type::I64),
            other => other,
        }
    }

    /// The C++ type that it is accumulated in.
    pub fn name(self) -> &'static str {
        match self {
            Self::Count { wide: false } => "u32",
            Self::Count { wide: true } => "u64",
            Self::Sum { wide: true } => "u128",
            Self::FloatSum => "double",
            Self::Min(Type::I32) | Self::Max(Type::I32) => "i32",
            Self::Min(Type::I128) | Self::Max(Type::I128) => "i128",
            Self::Sum { wide: false } | Self::Min(_) | Self::Max(_) => "i64",
        }
    }

    /// Words of 64 bits that it takes in memory.
    pub fn words(self) -> usize {
        match self.name() {
            "i128" | "u128" => 2,
            _ => 1,
        }
    }

    /// Whether it takes values within these bounds in 32 bits first, eight at a time.
    pub fn adds_by_eight(self, bounds: Bounds) -> bool {
        matches!(self, Self::Sum { .. }) && bounds.bits() <= BITS_BY_EIGHT
    }

    /// Whether it counts, or adds up integers in a word.
    pub fn is_of_words(self) -> bool {
        matches!(self, Self::Count { .. } | Self::Sum { wide: false })
    }

    /// Whether it comes to a float.
    pub fn is_float(self) -> bool {
        match self {
            Self::Count { .. } | Self::Sum { .. } => false,
            Self::FloatSum => true,
            Self::Min(of) | Self::Max(of) => of.is_float(),
        }
    }
}

/// An accumulator, and the argument that it is of: by number among the values of a loop. `None` counts rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AccumulatorSlot {
    pub accumulator: Accumulator,
    pub argument: Option<usize>,
}

/// What an aggregate's result is made of: accumulators, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ResultSlots {
    /// The number of values.
    pub count: usize,
    /// The value, if it is not the number.
    pub value: Option<usize>,
}

/// What is accumulated of each group, or of all rows. The first accumulator counts rows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Accumulators {
    pub all: Vec<AccumulatorSlot>,
    /// Of each aggregate.
    pub results: Vec<ResultSlots>,
}

impl Accumulators {
    /// The first word of each in memory, and the number of all words.
    pub fn words(&self) -> (Vec<usize>, usize) {
        let mut words = 0;
        let first = self.all.iter().map(|added| {
            words += added.accumulator.words();
            words - added.accumulator.words()
        });
        (first.collect(), words)
    }

    /// Whether some depend on the order of rows.
    pub fn are_ordered(&self) -> bool {
        let mut all = self.all.iter();
        all.any(|added| added.accumulator == Accumulator::FloatSum)
    }
}
