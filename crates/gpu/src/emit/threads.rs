//! Few groups: each thread has accumulators of every group, in shared memory.
//!
//! ```text
//! own + at:   group 0: word 0 of lanes 0..31, word 1 of lanes 0..31, ..
//!             group 1: ..
//!             ..
//!             a last one: rows that do not count, so that no row needs a branch
//! ```
//!
//! A row adds to the words of its group, whatever the number of groups, and no two lanes meet in a word or in a
//! bank. What counts is how many words there are. Counts and sums of integers share words, as fields: a field has
//! the bits of one value, and those that it grows by over the rows of a thread. How many rows these may be is
//! chosen so that there are few words, and the launch has as many blocks as that takes.

use std::fmt::Write as _;
use std::mem::Discriminant;

use super::generator::{Generator, SHARED_BYTES};
use super::value::Value;
use crate::error::{Error, Result};
use crate::kernel::{Digit, Fold, Grouping, Outcome, Per, Spot, argument_of, name_of};
use crate::plan::Aggregate;

/// Words of a thread, of all groups and the last one together: 16 KiB of a warp, four warps of a block.
const MOST_WORDS: u64 = 64;
/// Bits that fields grow by, at least and at most: a warp then takes 16 vectors, or 2^15.
const GROWTH: std::ops::RangeInclusive<u32> = 9..=20;
/// The same where results are of slots: a thread has 2^10 rows of one.
const SLOT_GROWTH: u32 = 10;
/// Bits of a field up to which the sum over all threads of a block, 2^8 at most, fits 64 bits with a sign.
const SHORT_BITS: u32 = 54;

/// A field, as wide as one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Field {
    bits: u32,
    signed: bool,
}

impl Field {
    /// Bits of the sum of 2^growth values.
    fn bits(self, growth: u32) -> u32 {
        self.bits + growth + u32::from(self.signed)
    }
}

/// Where a field is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    word: usize,
    /// Of its lowest bit.
    first: u32,
}

/// Puts fields into words of 64 bits, the widest first, each where there is room. None is wider than a word.
fn pack(fields: &[Field], growth: u32) -> (Vec<Place>, usize) {
    let mut order: Vec<usize> = (0..fields.len()).collect();
    order.sort_by_key(|field| std::cmp::Reverse(fields[*field].bits(growth)));
    let mut used: Vec<u32> = vec![];
    let mut places = vec![Place { word: 0, first: 0 }; fields.len()];
    for field in order {
        let bits = fields[field].bits(growth);
        let word = used.iter().position(|used| used + bits <= 64);
        let word = word.unwrap_or_else(|| {
            used.push(0);
            used.len() - 1
        });
        places[field] = Place {
            word,
            first: used[word],
        };
        used[word] += bits;
    }
    (places, used.len())
}

/// The growth for which there are fewest words, the largest such.
fn growth_of(fields: &[Field]) -> u32 {
    let words = |growth| pack(fields, growth).1;
    let fewest = words(*GROWTH.start());
    let mut growths = GROWTH.rev();
    let fits = |growth: &u32| {
        fields.iter().all(|field| field.bits(*growth) <= 64) && words(*growth) == fewest
    };
    growths.find(fits).unwrap_or(*GROWTH.start())
}

/// An accumulator of a group.
#[derive(Clone, Debug)]
struct Accumulator {
    fold: Fold,
    kept: Kept,
    /// Code for what a row adds.
    value: String,
    /// Code for whether it does.
    valid: Option<String>,
}

/// How it is kept.
#[derive(Clone, Copy, Debug)]
enum Kept {
    /// In a field, by its place among fields.
    Field(usize),
    /// A word or two of its own, the first of them; of this type.
    Own(usize, &'static str),
}

impl Accumulator {
    /// Code for what it starts with.
    fn first(&self, name: &str) -> String {
        match self.fold {
            Fold::Min => format!("greatest<{name}>()"),
            Fold::Max => format!("least<{name}>()"),
            Fold::Count | Fold::SumInt | Fold::SumFloat => format!("({name})0"),
        }
    }

    /// Code that adds one of the same type to what `name` is.
    fn fold(&self, name: &str, other: &str) -> String {
        match self.fold {
            Fold::Min => format!("{name} = {other} < {name} ? {other} : {name};"),
            Fold::Max => format!("{name} = {other} > {name} ? {other} : {name};"),
            Fold::Count | Fold::SumInt | Fold::SumFloat => format!("{name} += {other};"),
        }
    }
}

/// The accumulators of a group, and which of them aggregates need.
#[derive(Default)]
struct Layout {
    accumulators: Vec<Accumulator>,
    /// Of the rows, then of each aggregate.
    results: Vec<Outcome>,
    fields: Vec<Field>,
    /// Words that are no fields'.
    own_words: usize,
    /// What fields grow by.
    growth: u32,
    /// Where they are, behind the other words.
    places: Vec<Place>,
    /// All words.
    words: usize,
}

impl Layout {
    fn new(values: &[Value], aggregates: &[Aggregate]) -> Result<Self> {
        let mut this = Self::default();
        let count = this.field(Fold::Count, 1, false, "1".into(), None);
        let of_rows = Outcome {
            count,
            value: None,
            key: None,
        };
        this.results.push(of_rows);
        // what is asked twice, as sums and averages do, is accumulated once
        let mut known: Vec<((Discriminant<Aggregate>, String), Outcome)> = vec![];
        let mut counts: Vec<(&String, usize)> = vec![];
        let mut values = values.iter();
        for aggregate in aggregates {
            let Some(expr) = argument_of(aggregate) else {
                this.results.push(of_rows);
                continue;
            };
            let value = values.next();
            let value = value.ok_or_else(|| Error::Unsupported("no argument".into()))?;
            let kind = std::mem::discriminant(aggregate);
            let name = name_of(expr).map(|name| (kind, name));
            let same = known.iter().find(|(known, _)| Some(known) == name.as_ref());
            if let Some((_, outcome)) = same {
                this.results.push(*outcome);
                continue;
            }
            let count = match &value.valid {
                None => of_rows.count,
                Some(valid) => match counts.iter().find(|(known, _)| *known == valid) {
                    Some((_, count)) => *count,
                    None => {
                        let count =
                            this.field(Fold::Count, 1, false, "1".into(), Some(valid.clone()));
                        counts.push((valid, count));
                        count
                    }
                },
            };
            let outcome = this.accumulate(aggregate, value, count);
            known.extend(name.map(|name| (name, outcome)));
            this.results.push(outcome);
        }
        Ok(this)
    }

    fn field(
        &mut self,
        fold: Fold,
        bits: u32,
        signed: bool,
        value: String,
        valid: Option<String>,
    ) -> usize {
        self.fields.push(Field { bits, signed });
        self.accumulators.push(Accumulator {
            fold,
            kept: Kept::Field(self.fields.len() - 1),
            value,
            valid,
        });
        self.accumulators.len() - 1
    }

    fn own(&mut self, fold: Fold, name: &'static str, code: String, value: &Value) -> usize {
        self.accumulators.push(Accumulator {
            fold,
            kept: Kept::Own(self.own_words, name),
            value: code,
            valid: value.valid.clone(),
        });
        self.own_words += words_of(name);
        self.accumulators.len() - 1
    }

    fn accumulate(&mut self, aggregate: &Aggregate, value: &Value, count: usize) -> Outcome {
        let code = &value.code;
        let is_extreme = matches!(aggregate, Aggregate::Min(_) | Aggregate::Max(_));
        let fold = match aggregate {
            Aggregate::Min(_) => Fold::Min,
            Aggregate::Max(_) => Fold::Max,
            Aggregate::Sum(_) if value.of.is_float() => Fold::SumFloat,
            Aggregate::Sum(_) => Fold::SumInt,
            Aggregate::CountRows | Aggregate::Count(_) => {
                return Outcome {
                    count,
                    value: None,
                    key: None,
                };
            }
        };
        let at = match fold {
            Fold::SumFloat => self.own(fold, "double", format!("(double){code}"), value),
            Fold::Min | Fold::Max => match value.name() {
                "float" | "double" => self.own(fold, "i64", format!("(i64)key_of({code})"), value),
                "i128" => self.own(fold, "i128", code.clone(), value),
                _ => self.own(fold, "i64", format!("(i64){code}"), value),
            },
            Fold::SumInt | Fold::Count => {
                let (bits, signed) = (value.bounds.bits(), value.bounds.0 < 0);
                match (Field { bits, signed }).bits(SLOT_GROWTH) {
                    ..=64 => {
                        let code = widened(value);
                        self.field(fold, bits, signed, code, value.valid.clone())
                    }
                    _ => self.own(fold, "u128", format!("(u128)(i128){code}"), value),
                }
            }
        };
        Outcome {
            count,
            value: Some(at),
            key: Some(value.of).filter(|of| is_extreme && of.is_float()),
        }
    }

    /// Decides where fields are.
    fn place(&mut self, growth: u32) {
        let (places, words) = pack(&self.fields, growth);
        self.growth = growth;
        self.words = self.own_words + words;
        let behind = |place: Place| Place {
            word: self.own_words + place.word,
            ..place
        };
        self.places = places.into_iter().map(behind).collect();
    }

    fn has_floats(&self) -> bool {
        let mut all = self.accumulators.iter();
        all.any(|accumulator| accumulator.fold == Fold::SumFloat)
    }
}

/// Code for an integer of 64 bits.
fn widened(value: &Value) -> String {
    match (value.name(), value.bounds.0) {
        // without bits of a sign
        ("i32", 0..) => format!("(u64)(u32){}", value.code),
        _ => format!("(u64)(i64){}", value.code),
    }
}

fn words_of(name: &str) -> usize {
    match name {
        "i128" | "u128" => 2,
        _ => 1,
    }
}

/// Code for the accumulator in a word, and the next, of a thread.
fn load(name: &str, word: usize) -> String {
    let low = format!("kept[{}]", 32 * word);
    match name {
        "double" => format!("__longlong_as_double((i64){low})"),
        "i128" | "u128" => {
            let high = 32 * (word + 1);
            format!("({name})((u128)kept[{high}] << 64 | {low})")
        }
        _ => format!("({name}){low}"),
    }
}

/// The same for storing.
fn store(name: &str, word: usize, value: &str) -> String {
    let low = 32 * word;
    match name {
        "double" => format!("kept[{low}] = (u64)__double_as_longlong({value});"),
        "i128" | "u128" => {
            let high = 32 * (word + 1);
            format!("kept[{low}] = (u64){value}; kept[{high}] = (u64)((u128){value} >> 64);")
        }
        _ => format!("kept[{low}] = (u64){value};"),
    }
}

impl Generator<'_> {
    /// Code for a row where there are few groups. `None` if its threads would need too much memory.
    pub fn group_in_threads(
        &mut self,
        digits: &[Digit],
        groups: u64,
        codes: &[String],
        arguments: &[Value],
        aggregates: &[Aggregate],
    ) -> Result<Option<Grouping>> {
        let mut layout = Layout::new(arguments, aggregates)?;
        let by_slot = layout.has_floats();
        layout.place(match by_slot {
            true => SLOT_GROWTH,
            false => growth_of(&layout.fields),
        });
        let words = (groups + 1).saturating_mul(layout.words as u64);
        let before = u64::from(self.block_shared) + u64::from(self.shared);
        if words > MOST_WORDS || before + words * 256 > SHARED_BYTES.into() {
            return Ok(None);
        }
        let at = self.shared;
        self.shared += words as u32 * 256;
        self.number(digits, groups, codes);
        let (condition, groups) = (self.condition(), groups as u32);
        // beyond the last group, too, if a value is out of its chunk's bounds
        self.line(
            4,
            format!("const u32 to = min({condition} ? g : ALL, {groups}u);"),
        );
        let each = 32 * layout.words;
        let own = format!("(u64*)(own + {at}) + lane_id()");
        self.line(4, format!("u64* const kept = {own} + to * {each};"));
        self.accumulate_row(&layout);
        self.begin_threads(&layout, groups, &own);
        self.end_threads(&layout, groups, at, by_slot);
        for group in 0..groups as usize {
            let first = group * layout.accumulators.len();
            let folds = layout.accumulators.iter().map(|one| one.fold);
            self.accumulators.extend(folds);
            let outcomes = layout.results.iter().map(|outcome| Outcome {
                count: first + outcome.count,
                value: outcome.value.map(|value| first + value),
                key: outcome.key,
            });
            self.results.extend(outcomes);
        }
        self.per = match by_slot {
            true => Per::Slot,
            false => Per::Block {
                vectors_per_warp: 1 << (layout.growth - 5),
            },
        };
        Ok(Some(Grouping {
            spot: Spot::Threads,
            digits: digits.to_vec(),
            groups: groups.into(),
            words: vec![],
            results: vec![],
        }))
    }

    /// What a row adds, word by word.
    fn accumulate_row(&mut self, layout: &Layout) {
        for word in layout.own_words..layout.words {
            self.line(4, format!("u64 sum{word} = kept[{}];", 32 * word));
        }
        for accumulator in &layout.accumulators {
            let Accumulator { value, valid, .. } = accumulator;
            match accumulator.kept {
                Kept::Field(field) => {
                    let Place { word, first } = layout.places[field];
                    let value = match valid {
                        Some(valid) => format!("({valid} ? {value} : 0ull)"),
                        None => value.clone(),
                    };
                    let add = match first {
                        ..32 => format!("sum{word} += (u64){value} << {first};"),
                        _ => format!("add_high(sum{word}, (u32){value} << {});", first - 32),
                    };
                    self.line(4, add);
                }
                Kept::Own(word, name) => {
                    let this = self.temporary();
                    self.line(4, format!("{name} {this} = {};", load(name, word)));
                    let other = self.temporary();
                    self.line(4, format!("const {name} {other} = {value};"));
                    let fold = accumulator.fold(&this, &other);
                    self.line(
                        4,
                        match valid {
                            Some(valid) => format!("if ({valid}) {fold}"),
                            None => fold,
                        },
                    );
                    self.line(4, store(name, word, &this));
                }
            }
        }
        for word in layout.own_words..layout.words {
            self.line(4, format!("kept[{}] = sum{word};", 32 * word));
        }
    }

    /// Has a thread's accumulators start: of each slot, where there are any.
    fn begin_threads(&mut self, layout: &Layout, groups: u32, own: &str) {
        let each = 32 * layout.words;
        let start = &mut self.start;
        let _ = writeln!(start, "    for (u32 g = 0; g <= {groups}; g++) {{");
        let _ = writeln!(start, "        u64* const kept = {own} + g * {each};");
        for accumulator in &layout.accumulators {
            if let Kept::Own(word, name) = accumulator.kept {
                let _ = writeln!(
                    start,
                    "        {}",
                    store(name, word, &accumulator.first(name))
                );
            }
        }
        for word in layout.own_words..layout.words {
            let _ = writeln!(start, "        kept[{}] = 0;", 32 * word);
        }
        start.push_str("    }\n");
    }

    /// Has a block, or of slots a warp, put together what its threads have. A warp takes a group at a time.
    fn end_threads(&mut self, layout: &Layout, groups: u32, at: u32, by_slot: bool) {
        let each = 32 * layout.words;
        let all = layout.accumulators.len();
        // nothing is added to a warp's memory behind the accumulators
        let bytes = self.shared;
        let end = &mut self.end;
        let _ = match by_slot {
            true => writeln!(end, "    for (u32 g = 0; g < {groups}; g++) {{"),
            false => writeln!(
                end,
                "    __syncthreads();\n    \
                 for (u32 g = threadIdx.x / 32; g < {groups}; g += blockDim.x / 32) {{"
            ),
        };
        for (index, accumulator) in layout.accumulators.iter().enumerate() {
            let name = match accumulator.kept {
                Kept::Own(_, name) => name,
                // over the warps of a block
                Kept::Field(field) => match layout.fields[field].bits(layout.growth) {
                    ..=58 => "i64",
                    _ => "u128",
                },
            };
            let first = accumulator.first(name);
            let _ = writeln!(end, "        {name} s{index} = {first};");
        }
        let _ = match by_slot {
            true => writeln!(end, "        {{\n            const u8* const from = own;"),
            false => writeln!(
                end,
                "        for (u32 w = 0; w < blockDim.x / 32; w++) {{\n            \
                 const u8* const from = own + (i32)(w - threadIdx.x / 32) * {bytes};"
            ),
        };
        let _ = writeln!(
            end,
            "            const u64* const kept = (const u64*)(from + {at}) + lane_id() + g * {each};"
        );
        for word in layout.own_words..layout.words {
            let _ = writeln!(end, "            u64 sum{word} = kept[{}];", 32 * word);
        }
        // the fields of a word from the lowest on, as they are taken out
        let mut fields: Vec<(Place, usize)> = layout.places.iter().copied().zip(0..).collect();
        fields.sort_by_key(|(place, _)| (place.word, place.first));
        let of = |field: usize| {
            let mut all = layout.accumulators.iter();
            all.position(|one| matches!(one.kept, Kept::Field(other) if other == field))
        };
        for (Place { word, .. }, field) in fields {
            let bits = layout.fields[field].bits(layout.growth);
            let take = match layout.fields[field].signed {
                true => "take_signed",
                false => "take_unsigned",
            };
            if let Some(index) = of(field) {
                let _ = writeln!(end, "            s{index} += {take}<{bits}>(sum{word});");
            }
        }
        for (index, accumulator) in layout.accumulators.iter().enumerate() {
            if let Kept::Own(word, name) = accumulator.kept {
                let (this, other) = (format!("s{index}"), format!("x{index}"));
                let _ = writeln!(
                    end,
                    "            const {name} {other} = {};",
                    load(name, word)
                );
                let _ = writeln!(end, "            {}", accumulator.fold(&this, &other));
            }
        }
        let _ = writeln!(
            end,
            "        }}\n        \
             u64* const to = (u64*)a.word[3] + (result * {groups} + g) * {};",
            2 * all
        );
        for (index, accumulator) in layout.accumulators.iter().enumerate() {
            let is_short = match accumulator.kept {
                Kept::Field(field) => layout.fields[field].bits(layout.growth) <= SHORT_BITS,
                Kept::Own(..) => false,
            };
            let store = match accumulator.fold {
                Fold::Min => "store_min",
                Fold::Max => "store_max",
                Fold::Count | Fold::SumInt if is_short => "store_short_sum",
                Fold::Count | Fold::SumInt | Fold::SumFloat => "store_sum",
            };
            let _ = writeln!(end, "        {store}(to + {}, s{index});", 2 * index);
        }
        end.push_str("    }\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(bits: &[(u32, bool)]) -> Vec<Field> {
        let field = |(bits, signed): &(u32, bool)| Field {
            bits: *bits,
            signed: *signed,
        };
        bits.iter().map(field).collect()
    }

    /// No two fields have a bit in common, and none is beyond its word.
    fn check(fields: &[Field], growth: u32) {
        let (places, words) = pack(fields, growth);
        let mut taken = vec![0u64; words];
        for (field, place) in fields.iter().zip(places) {
            let bits = field.bits(growth);
            assert!(place.first + bits <= 64, "{fields:?} by {growth}");
            let mask = u64::MAX >> (64 - bits) << place.first;
            assert_eq!(taken[place.word] & mask, 0, "{fields:?} by {growth}");
            taken[place.word] |= mask;
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
