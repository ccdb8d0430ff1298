//! Kinds of accumulators. An aggregate consists of an accumulator and a count of its values.
//!
//! An accumulator is the same in registers of a thread, in shared memory of a thread and in a group table. This
//! module defines the kinds and their sizes. Its counterparts define how a kernel starts, updates and merges them
//! (`emit/accumulator.rs`), and how the host reads and merges a kernel's results (`exec/accumulator.rs`).

use vectile_pipeline::{Aggregate, Bounds, Type};

/// Maximum bits of values of which eight are added in 32 bits.
const BITS_BY_EIGHT: u32 = 28;

/// A kind of accumulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Accumulator {
    /// The number of rows or values, in 32 bits or in 64.
    Count { wide: bool },
    /// A sum of integers, in 64 bits or in 128.
    Sum { wide: bool },
    /// A sum of doubles. The order of additions matters.
    FloatSum,
    /// The smallest value, stored as an integer of this type, or as the rank of a float in the total order.
    Min(Type),
    /// The largest value, stored as in [`Min`](Self::Min).
    Max(Type),
    /// The number of distinct values: those that are new in a set of the values of each group.
    DistinctCount,
    /// A part of the group's key, plus one. All rows of a group have the same.
    KeyPart,
}

impl Accumulator {
    /// The count of at most 2^`growth` rows, or of fewer than 2^32 if `growth` is 32.
    pub fn count(growth: u32) -> Self {
        Self::Count {
            wide: growth > u32::BITS,
        }
    }

    /// The accumulator of an aggregate over values of a type within bounds, of at most 2^`growth` rows. `None` for
    /// counts.
    pub fn of(aggregate: &Aggregate, of: Type, bounds: Bounds, growth: u32) -> Option<Self> {
        let kept = match (of, bounds.name()) {
            (Type::F32 | Type::F64, _) => of,
            (_, "i32") => Type::I32,
            (_, "i64") => Type::I64,
            _ => Type::I128,
        };
        Some(match aggregate {
            Aggregate::CountRows | Aggregate::Count(_) | Aggregate::CountDistinct(_) => {
                return None;
            }
            Aggregate::Sum(_) if of.is_float() => Self::FloatSum,
            Aggregate::Sum(_) => Self::Sum {
                wide: bounds.bits() + growth > 63,
            },
            Aggregate::Min(_) => Self::Min(kept),
            Aggregate::Max(_) => Self::Max(kept),
        })
    }

    /// The accumulator widened to whole words of memory.
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
            Self::Count { wide: true } | Self::DistinctCount | Self::KeyPart => "u64",
            Self::Sum { wide: true } => "u128",
            Self::FloatSum => "double",
            Self::Min(Type::I32) | Self::Max(Type::I32) => "i32",
            Self::Min(Type::I128) | Self::Max(Type::I128) => "i128",
            Self::Sum { wide: false } | Self::Min(_) | Self::Max(_) => "i64",
        }
    }

    /// Its size in memory, in words of 64 bits.
    pub fn words(self) -> usize {
        match self.name() {
            "i128" | "u128" => 2,
            _ => 1,
        }
    }

    /// Returns true if eight values within these bounds are first added in 32 bits.
    pub fn adds_by_eight(self, bounds: Bounds) -> bool {
        matches!(self, Self::Sum { .. }) && bounds.bits() <= BITS_BY_EIGHT
    }

    /// Returns true if it is a count or a sum of integers in one word.
    pub fn is_of_words(self) -> bool {
        matches!(self, Self::Count { .. } | Self::Sum { wide: false })
    }

    /// Returns true if its result is a float.
    pub fn is_float(self) -> bool {
        match self {
            Self::Count { .. } | Self::Sum { .. } | Self::DistinctCount | Self::KeyPart => false,
            Self::FloatSum => true,
            Self::Min(of) | Self::Max(of) => of.is_float(),
        }
    }
}

/// An accumulator and its argument, by the index among the expressions of a loop; `None` counts rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AccumulatorSlot {
    pub accumulator: Accumulator,
    pub argument: Option<usize>,
}

/// The accumulators of an aggregate's result, by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ResultSlots {
    /// The number of values.
    pub count: usize,
    /// The value; `None` if it is the count.
    pub value: Option<usize>,
}

/// The accumulators of each group, or of all rows. The first one counts rows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Accumulators {
    pub all: Vec<AccumulatorSlot>,
    /// The results, one per aggregate.
    pub results: Vec<ResultSlots>,
}

impl Accumulators {
    /// The offset of each accumulator in memory, and the size of all, in words.
    pub fn words(&self) -> (Vec<usize>, usize) {
        let mut words = 0;
        let first = self.all.iter().map(|slot| {
            words += slot.accumulator.words();
            words - slot.accumulator.words()
        });
        (first.collect(), words)
    }

    /// Adds the parts of the key.
    pub fn add_key_parts(&mut self, parts: usize) {
        let part = AccumulatorSlot {
            accumulator: Accumulator::KeyPart,
            argument: None,
        };
        self.all.extend(std::iter::repeat_n(part, parts));
    }

    /// The indices of the parts of the key.
    pub fn key_parts(&self) -> impl Iterator<Item = usize> {
        let all = self.all.iter().enumerate();
        all.filter_map(|(index, slot)| (slot.accumulator == Accumulator::KeyPart).then_some(index))
    }

    /// The arguments whose distinct values are counted, one for each set.
    pub fn distinct(&self) -> impl Iterator<Item = usize> {
        let all = self.all.iter();
        let all = all.filter(|slot| slot.accumulator == Accumulator::DistinctCount);
        all.filter_map(|slot| slot.argument)
    }

    /// Returns true if any result depends on the order of rows.
    pub fn are_ordered(&self) -> bool {
        let mut all = self.all.iter();
        all.any(|slot| slot.accumulator == Accumulator::FloatSum)
    }
}
