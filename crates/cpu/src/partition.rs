//! Some of the groups of all row groups: a partition merges its own.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Decimal128Array, Int8Array, Int16Array, Int32Array, Int64Array,
    UInt8Array, UInt16Array, UInt32Array, UInt64Array, new_null_array,
};
use arrow::buffer::NullBuffer;
use vectile_encodings::VECTOR_LEN;
use vectile_pipeline::{Error, GroupTotals, Groups, Result, Type};

use crate::entries::of_arrow;
use crate::partial::{Part, TotalValues, Totals};
use crate::table::{Keys, Table};
use crate::vector::first_rows;

/// Some of the groups of all row groups: those with some hashes of keys.
#[derive(Default)]
pub struct Partition {
    pub(crate) merged: Part,
    table: Table,
    /// True if the groups were not merged, so that they are not in the table.
    is_as_given: bool,
    /// Groups to be merged with these, in order.
    pub(crate) pending: Vec<Part>,
    pub(crate) output: Option<Arc<OutputTypes>>,
}

/// Keys and aggregates of all groups.
pub(crate) struct OutputTypes {
    pub keys: Vec<OutputKey>,
    pub singles: Vec<bool>,
}

pub(crate) enum OutputKey {
    Integers(Type),
    /// Words are indices of these.
    Entries(ArrayRef),
}

/// Groups that are merged, and others.
struct Both<'a> {
    /// Numbers of rows of the merged groups. Those of new ones are added later.
    rows: &'a mut Vec<u64>,
    /// The words of the merged groups, and of the others.
    columns: Vec<(&'a mut Vec<u64>, &'a [u64])>,
}

impl Keys for Both<'_> {
    #[inline(always)]
    fn len(&self) -> usize {
        self.rows.len()
    }

    #[inline(always)]
    fn is_equal(&self, group: u32, row: usize) -> bool {
        // without branches but for the loop
        let mut columns = self.columns.iter();
        let first = columns.next();
        let differs = |(merged, new): &(&mut Vec<u64>, &[u64])| merged[group as usize] ^ new[row];
        let of_first = first.map_or(0, differs);
        columns.fold(of_first, |all, column| all | differs(column)) == 0
    }

    #[inline(always)]
    fn push(&mut self, row: usize) {
        for (merged, new) in &mut self.columns {
            merged.push(new[row]);
        }
        self.rows.push(0);
    }
}

impl Partition {
    /// A partition of groups that are all different.
    pub(crate) fn of(merged: Part) -> Self {
        Self {
            merged,
            is_as_given: true,
            ..Self::default()
        }
    }

    /// Adds groups to be merged.
    pub(crate) fn push(&mut self, part: Part) {
        self.pending.push(part);
    }

    /// Takes the groups with a value of a key, none of which is pending. The partition gets no others afterwards.
    pub(crate) fn take(&mut self, key: usize, value: i64) -> Part {
        self.merged.take(key, value)
    }

    /// True if there are no groups.
    pub(crate) fn is_empty(&self) -> bool {
        let mut pending = self.pending.iter();
        self.merged.rows.is_empty() && pending.all(|part| part.rows.is_empty())
    }

    /// Merges groups that were added. Takes long if they are many.
    ///
    /// # Errors
    ///
    /// [`Error::Internal`], which would be a bug; [`Error::Unsupported`] for 2^32 groups.
    pub fn merge(&mut self) -> Result<()> {
        for part in std::mem::take(&mut self.pending) {
            self.add(part)?;
        }
        Ok(())
    }

    fn add(&mut self, mut part: Part) -> Result<()> {
        if std::mem::take(&mut self.is_as_given) {
            let merged = std::mem::take(&mut self.merged);
            self.add(merged)?;
        }
        let Self { merged, table, .. } = self;
        if merged.rows.is_empty() {
            merged.words = vec![Vec::new(); part.words.len()];
            merged.totals = part.totals.iter().map(Totals::none).collect();
        }
        let has_words = |part: &Part, column: usize| {
            column < part.num_keys()
                || part
                    .words
                    .get(column)
                    .is_some_and(|words| !words.is_empty())
        };
        let columns = 0..merged.words.len();
        let columns =
            columns.filter(|column| has_words(merged, *column) || has_words(&part, *column));
        let columns: Vec<usize> = columns.collect();
        for column in &columns {
            merged.fill(*column);
            part.fill(*column);
        }
        let count = part.rows.len();
        if merged.rows.len() + count >= u32::MAX as usize {
            return Err(Error::Unsupported("2^32 groups".into()));
        }
        let mut of = Vec::with_capacity(count);
        let (mut hashes, mut numbers) = ([0; VECTOR_LEN], [0; VECTOR_LEN]);
        for start in (0..count).step_by(VECTOR_LEN) {
            let groups = start..(start + VECTOR_LEN).min(count);
            let rows = groups.len();
            part.hashes(groups.clone(), &[], &mut hashes[..rows]);
            table.reserve(merged.rows.len(), rows, |group| merged.hash(group));
            let mut words = merged.words.iter_mut().zip(&part.words).enumerate();
            let mut keys = Both {
                rows: &mut merged.rows,
                columns: Vec::with_capacity(columns.len()),
            };
            for column in &columns {
                if let Some((_, (merged, new))) = words.by_ref().find(|(at, _)| at == column) {
                    keys.columns.push((merged, &new[groups.clone()]));
                }
            }
            table.number(&mut keys, &first_rows(rows), &hashes, &mut numbers);
            of.extend_from_slice(&numbers[..rows]);
        }
        let both = merged.totals.iter_mut().zip(part.totals);
        both.into_iter()
            .try_for_each(|(totals, new)| totals.add(new, &merged.rows, &part.rows, &of))?;
        for (group, rows) in of.iter().zip(&part.rows) {
            merged.rows[*group as usize] += rows;
        }
        Ok(())
    }

    /// Estimated bytes.
    pub fn bytes(&self) -> usize {
        let pending = self.pending.iter().map(Part::bytes).sum::<usize>();
        self.merged.bytes() + self.table.bytes() + pending
    }

    /// The groups, which are complete.
    ///
    /// # Errors
    ///
    /// Those of [`merge`](Self::merge).
    pub fn groups(mut self) -> Result<Groups> {
        self.merge()?;
        self.table = Table::default();
        let Some(output) = &self.output else {
            return Err(Error::Internal("a partition that is not complete".into()));
        };
        let keys = output.keys.iter().enumerate();
        let keys = keys.map(|(index, key)| array(key, index, &self.merged));
        Ok(Groups {
            count: self.merged.rows.len(),
            keys: keys.collect::<Result<_>>()?,
            totals: self.merged.all_totals(&output.singles),
        })
    }
}

impl Part {
    /// The results of all aggregates.
    pub(crate) fn all_totals(&self, singles: &[bool]) -> Vec<GroupTotals> {
        let all = self.totals.iter().zip(singles);
        all.map(|(totals, is_single)| self.group_totals(totals, *is_single))
            .collect()
    }
}

/// The values of a key.
fn array(key: &OutputKey, index: usize, part: &Part) -> Result<ArrayRef> {
    let (low, high) = (&part.words[index], &part.words[part.num_keys() + index]);
    let nulls = part.words.last().map_or(&[][..], |nulls| nulls);
    let is_valid = |group: usize| nulls.get(group).is_none_or(|nulls| nulls >> index & 1 == 0);
    let words = low.iter().enumerate();
    match key {
        OutputKey::Integers(of) => {
            let is_null = |nulls: &u64| nulls >> index & 1 == 1;
            let has_nulls = nulls.iter().any(is_null);
            let valid = has_nulls.then(|| nulls.iter().map(|nulls| !is_null(nulls)).collect());
            Ok(integers(*of, low, high, valid))
        }
        OutputKey::Entries(entries) if entries.is_empty() => {
            Ok(new_null_array(entries.data_type(), low.len()))
        }
        OutputKey::Entries(entries) => {
            let indices = words.map(|(group, word)| is_valid(group).then_some(*word));
            let indices: UInt64Array = indices.collect();
            arrow::compute::take(entries, &indices, None).map_err(of_arrow)
        }
    }
}

/// An array of the Arrow type of a machine type.
fn integers(of: Type, low: &[u64], high: &[u64], nulls: Option<NullBuffer>) -> ArrayRef {
    macro_rules! array {
        ($array:ty, $native:ty) => {{
            let values: Vec<$native> = low.iter().map(|word| *word as $native).collect();
            Arc::new(<$array>::new(values.into(), nulls))
        }};
    }
    match of {
        Type::Bool => {
            let bits = low.iter().map(|word| *word != 0);
            Arc::new(BooleanArray::new(bits.collect(), nulls))
        }
        Type::I8 => array!(Int8Array, i8),
        Type::I16 => array!(Int16Array, i16),
        Type::I32 => array!(Int32Array, i32),
        Type::U8 => array!(UInt8Array, u8),
        Type::U16 => array!(UInt16Array, u16),
        Type::U32 => array!(UInt32Array, u32),
        Type::U64 => array!(UInt64Array, u64),
        Type::I128 => {
            let wide = low.iter().enumerate().map(|(group, word)| {
                let sign = || *word as i64 >> 63;
                let upper = high.get(group).map_or_else(sign, |word| *word as i64);
                i128::from(upper) << 64 | i128::from(*word)
            });
            let values: Vec<i128> = wide.collect();
            Arc::new(Decimal128Array::new(values.into(), nulls))
        }
        Type::I64 | Type::F32 | Type::F64 => array!(Int64Array, i64),
    }
}

impl Totals {
    /// The totals of no groups.
    pub(crate) fn none(&self) -> Self {
        let values = match &self.values {
            TotalValues::Count => TotalValues::Count,
            TotalValues::Sum { .. } => TotalValues::Sum {
                sums: Vec::new(),
                most: 0,
            },
            TotalValues::WideSum(_) => TotalValues::WideSum(Vec::new()),
            TotalValues::FloatSum(_) => TotalValues::FloatSum(Vec::new()),
            TotalValues::Extreme { is_max, of, .. } => TotalValues::Extreme {
                is_max: *is_max,
                of: *of,
                values: Vec::new(),
            },
            TotalValues::WideExtreme { is_max, .. } => TotalValues::WideExtreme {
                is_max: *is_max,
                values: Vec::new(),
            },
        };
        Self {
            counts: Vec::new(),
            values,
        }
    }

    /// Adds the totals of other rows: `of` has the group of each. `rows` are the numbers of rows of all groups, before
    /// `new_rows` are added to them.
    fn add(&mut self, new: Self, rows: &[u64], new_rows: &[u64], of: &[u32]) -> Result<()> {
        if !self.counts.is_empty() || !new.counts.is_empty() {
            if self.counts.is_empty() {
                self.counts = rows.to_vec();
            }
            self.counts.resize(rows.len(), 0);
            let counts = match new.counts.is_empty() {
                true => new_rows,
                false => &new.counts,
            };
            combine(&mut self.counts, counts, of, |a, b| a + b);
        }
        self.values.add(new.values, rows.len(), of)
    }
}

/// Combines values with those of their groups.
fn combine<T: Copy>(values: &mut [T], new: &[T], of: &[u32], with: impl Fn(T, T) -> T) {
    for (group, new) in of.iter().zip(new) {
        let value = &mut values[*group as usize];
        *value = with(*value, *new);
    }
}

fn widened(values: Vec<i64>) -> Vec<i128> {
    values.into_iter().map(i128::from).collect()
}

impl TotalValues {
    /// Sums in one kind: that of `self`, which may become wider, and of the result.
    fn of_one_kind(&mut self, new: Self) -> Self {
        match (&mut *self, new) {
            (
                Self::Sum { sums, most },
                Self::Sum {
                    sums: new,
                    most: of_new,
                },
            ) => {
                *most = most.saturating_add(of_new);
                if *most <= i64::MAX as u128 {
                    return Self::Sum {
                        sums: new,
                        most: of_new,
                    };
                }
                *self = Self::WideSum(widened(std::mem::take(sums)));
                Self::WideSum(widened(new))
            }
            (Self::Sum { sums, .. }, Self::WideSum(new)) => {
                *self = Self::WideSum(widened(std::mem::take(sums)));
                Self::WideSum(new)
            }
            (Self::WideSum(_), Self::Sum { sums, .. }) => Self::WideSum(widened(sums)),
            (_, new) => new,
        }
    }

    /// Adds the values of other rows: `of` has the group of each, of `groups` groups.
    fn add(&mut self, new: Self, groups: usize, of: &[u32]) -> Result<()> {
        let new = self.of_one_kind(new);
        match (self, new) {
            (Self::Count, Self::Count) => {}
            (Self::Sum { sums, .. }, Self::Sum { sums: new, .. }) => {
                sums.resize(groups, 0);
                combine(sums, &new, of, i64::wrapping_add);
            }
            (Self::WideSum(sums), Self::WideSum(new)) => {
                sums.resize(groups, 0);
                combine(sums, &new, of, i128::wrapping_add);
            }
            (Self::FloatSum(sums), Self::FloatSum(new)) => {
                sums.resize(groups, 0.0);
                combine(sums, &new, of, |a, b| a + b);
            }
            (Self::Extreme { is_max, values, .. }, Self::Extreme { values: new, .. }) => {
                values.resize(groups, if *is_max { i64::MIN } else { i64::MAX });
                match is_max {
                    true => combine(values, &new, of, i64::max),
                    false => combine(values, &new, of, i64::min),
                }
            }
            (Self::WideExtreme { is_max, values }, Self::WideExtreme { values: new, .. }) => {
                values.resize(groups, if *is_max { i128::MIN } else { i128::MAX });
                match is_max {
                    true => combine(values, &new, of, i128::max),
                    false => combine(values, &new, of, i128::min),
                }
            }
            _ => return Err(Error::Internal("totals of another kind".into())),
        }
        Ok(())
    }
}
