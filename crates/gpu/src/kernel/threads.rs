//! Plans few groups: each thread has accumulators of every group, in shared memory.
//!
//! ```text
//! own + at:   group 0: word 0 of lanes 0..31, word 1 of lanes 0..31, ..
//!             group 1: ..
//!             ..
//!             last group: for rows that do not count, so that no row needs a branch
//! ```
//!
//! A row updates the words of its group, regardless of the number of groups, and no two lanes share a word or a
//! bank. Cost depends on the number of words. Counts and sums of integers share words, as bit fields: a field has
//! the bits of one value plus its growth over the rows of a thread. The maximum rows of a thread are chosen so that
//! there are few words, and the launch has as many blocks as that needs.

use super::accumulator::{Accumulator, Accumulators};
use super::plan::{AccumulatorLocation, Field, ThreadsPlan, Typed};
use super::planner::{Planner, SHARED_BYTES};
use super::task::AccumulationScope;

/// Maximum words of a thread, including the last group: 16 KiB per warp, for four warps per block.
const MOST_WORDS: u64 = 64;
/// Minimum and maximum growth of fields, in bits: a warp then takes at most 16 vectors, or 2^15.
const GROWTH: std::ops::RangeInclusive<u32> = 9..=20;
/// Growth of fields if results are per slot: a thread has 2^10 rows of a slot.
pub(super) const SLOT_GROWTH: u32 = 10;

/// A field before it is placed, as wide as one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FieldType {
    bits: u32,
    signed: bool,
}

impl FieldType {
    /// Bits of the sum of 2^growth values.
    fn bits(self, growth: u32) -> u32 {
        self.bits + growth + u32::from(self.signed)
    }
}

/// The position of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BitPosition {
    word: usize,
    /// The lowest bit.
    first: u32,
}

/// Packs fields into words of 64 bits, first fit in order of decreasing width. Returns their positions and the number
/// of words. No field may be wider than a word.
fn pack(fields: &[FieldType], growth: u32) -> (Vec<BitPosition>, usize) {
    let mut order: Vec<usize> = (0..fields.len()).collect();
    order.sort_by_key(|field| std::cmp::Reverse(fields[*field].bits(growth)));
    let mut used: Vec<u32> = vec![];
    let mut positions = vec![BitPosition { word: 0, first: 0 }; fields.len()];
    for field in order {
        let bits = fields[field].bits(growth);
        let word = used.iter().position(|used| used + bits <= 64);
        let word = word.unwrap_or_else(|| {
            used.push(0);
            used.len() - 1
        });
        positions[field] = BitPosition {
            word,
            first: used[word],
        };
        used[word] += bits;
    }
    (positions, used.len())
}

/// The largest growth that needs no more words than the smallest one.
fn growth_of(fields: &[FieldType]) -> u32 {
    let words = |growth| pack(fields, growth).1;
    let fewest = words(*GROWTH.start());
    let mut growths = GROWTH.rev();
    let fits = |growth: &u32| {
        fields.iter().all(|field| field.bits(*growth) <= 64) && words(*growth) == fewest
    };
    growths.find(fits).unwrap_or(*GROWTH.start())
}

impl Planner<'_> {
    /// Plans the accumulators of threads and reserves their shared memory. `None` if they need too much.
    pub fn threads(
        &mut self,
        groups: u64,
        arguments: &[Typed],
        accumulators: &Accumulators,
    ) -> Option<ThreadsPlan> {
        let (mut locations, mut fields, mut own_words) = (vec![], vec![], 0);
        for slot in &accumulators.all {
            let field = match (slot.accumulator, slot.argument) {
                (Accumulator::Count { .. }, _) => Some(FieldType {
                    bits: 1,
                    signed: false,
                }),
                (Accumulator::Sum { .. }, Some(argument)) => {
                    let bounds = arguments[argument].bounds;
                    let (bits, signed) = (bounds.bits(), bounds.0 < 0);
                    Some(FieldType { bits, signed })
                }
                _ => None,
            };
            match field.filter(|field| field.bits(SLOT_GROWTH) <= 64) {
                Some(field) => {
                    locations.push(AccumulatorLocation::Field(fields.len()));
                    fields.push(field);
                }
                None => {
                    locations.push(AccumulatorLocation::Own(own_words));
                    own_words += slot.accumulator.words();
                }
            }
        }
        let by_slot = accumulators.are_ordered();
        let growth = match by_slot {
            true => SLOT_GROWTH,
            false => growth_of(&fields),
        };
        let (positions, words) = pack(&fields, growth);
        let all_words = own_words + words;
        let needed = groups.saturating_add(1).saturating_mul(all_words as u64);
        let before = u64::from(self.bindings.block_bytes) + u64::from(self.warp_bytes);
        if needed > MOST_WORDS || before + needed * 256 > SHARED_BYTES.into() {
            return None;
        }
        let offset = self.warp_bytes;
        self.warp_bytes += needed as u32 * 256;
        let fields = positions.iter().zip(&fields);
        let fields = fields.map(|(position, field)| Field {
            word: own_words + position.word,
            first: position.first,
            bits: field.bits(growth),
            signed: field.signed,
        });
        self.per = match by_slot {
            true => AccumulationScope::Slot,
            false => AccumulationScope::Block {
                vectors_per_warp: 1 << (growth - 5),
            },
        };
        Some(ThreadsPlan {
            groups: groups as u32,
            offset,
            fields: fields.collect(),
            locations,
            own_words,
            words: all_words,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(bits: &[(u32, bool)]) -> Vec<FieldType> {
        let field = |(bits, signed): &(u32, bool)| FieldType {
            bits: *bits,
            signed: *signed,
        };
        bits.iter().map(field).collect()
    }

    /// Asserts that fields do not overlap and do not exceed their words.
    fn check(fields: &[FieldType], growth: u32) {
        let (positions, words) = pack(fields, growth);
        let mut taken = vec![0u64; words];
        for (field, position) in fields.iter().zip(positions) {
            let bits = field.bits(growth);
            assert!(position.first + bits <= 64, "{fields:?} by {growth}");
            let mask = u64::MAX >> (64 - bits) << position.first;
            assert_eq!(taken[position.word] & mask, 0, "{fields:?} by {growth}");
            taken[position.word] |= mask;
        }
    }

    #[test]
    fn fields_do_not_overlap() {
        for first in 1..=54 {
            for second in 1..=54 {
                for signed in [false, true] {
                    let fields = fields(&[(1, false), (first, false), (second, signed), (7, true)]);
                    let growth = growth_of(&fields);
                    assert!(GROWTH.contains(&growth));
                    check(&fields, growth);
                    check(&fields, *GROWTH.start());
                }
            }
        }
    }

    #[test]
    fn fields_grow_as_far_as_words_allow() {
        // rows, quantity, price, discounted, charged, discount of TPC-H Q1
        let q1 = fields(&[
            (1, false),
            (13, false),
            (25, false),
            (32, true),
            (40, true),
            (4, false),
        ]);
        let growth = growth_of(&q1);
        assert_eq!(pack(&q1, growth).1, 3);
        assert!(growth >= 10);
        // one word, to the last bit
        let full = fields(&[(1, false), (20, false), (16, false)]);
        assert_eq!((growth_of(&full), pack(&full, 9).1), (9, 1));
        assert_eq!(growth_of(&fields(&[(1, false)])), *GROWTH.end());
    }
}
