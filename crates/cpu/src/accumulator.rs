//! Accumulators: an aggregate's values for the groups of a row group.

use vectile_encodings::VECTOR_LEN;
use vectile_pipeline::{Aggregate, Domain, Error, GroupTotals, Numbers, Result, Type};

use crate::masked;
use crate::primitives::{rank_of, ranks_of, value_of};
use crate::vector::{ALL, Kind, Mask, Values, Vector, count, for_each_row};

/// Sums of a group, which rows take turns to add to: an addition need not wait for that of the row before.
const LANES: usize = 4;

/// One aggregate's values, by group.
#[derive(Debug)]
pub(crate) struct Accumulator {
    /// Number of values of each group; empty if it is the number of rows.
    counts: Vec<u64>,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Only values are counted.
    Count,
    /// A sum of integers that fits 64 bits: [`LANES`] of each group.
    Sum(Vec<[i64; LANES]>),
    /// A sum of integers.
    WideSum(Vec<i128>),
    FloatSum(Vec<f64>),
    /// The smallest or largest integers, or [ranks](rank_of) of floats.
    Extreme {
        is_max: bool,
        of: Type,
        values: Vec<i64>,
    },
    WideExtreme {
        is_max: bool,
        values: Vec<i128>,
    },
}

/// The rows of a vector that are aggregated.
pub(crate) enum Rows<'a> {
    /// The rows of each group: of few groups.
    Masks(&'a [Mask]),
    /// The rows, and the group of each.
    Numbers(&'a Mask, &'a [u32; VECTOR_LEN]),
}

impl Accumulator {
    /// The most bytes for a group: a count, and a sum.
    pub const MOST_BYTES: usize = size_of::<u64>() + size_of::<[i64; LANES]>();

    /// The accumulator of `aggregate` over values of a domain, for `groups` groups of at most `rows` rows each.
    ///
    /// # Errors
    ///
    /// [`Error::Internal`] for aggregates of booleans but counts.
    pub fn new(
        aggregate: &Aggregate,
        domain: Option<Domain>,
        is_nullable: bool,
        groups: usize,
        rows: usize,
    ) -> Result<Self> {
        let counts = match is_nullable {
            true => vec![0; groups],
            false => Vec::new(),
        };
        let Some(domain) = domain else {
            let state = State::Count;
            return Ok(Self { counts, state });
        };
        let kind = Kind::of(domain);
        let extreme = |is_max: bool| match kind {
            Kind::Wide => State::WideExtreme {
                is_max,
                values: vec![if is_max { i128::MIN } else { i128::MAX }; groups],
            },
            _ => State::Extreme {
                is_max,
                of: domain.of,
                values: vec![if is_max { i64::MIN } else { i64::MAX }; groups],
            },
        };
        let state = match (aggregate, kind) {
            (Aggregate::CountRows | Aggregate::Count(_), _) => State::Count,
            (_, Kind::Bool) => {
                return Err(Error::Internal("an aggregate of booleans".into()));
            }
            (Aggregate::Sum(_), Kind::Float) => State::FloatSum(vec![0.0; groups]),
            (Aggregate::Sum(_), Kind::Int) if domain.bounds.bits() + rows.max(1).ilog2() < 63 => {
                State::Sum(vec![[0; LANES]; groups])
            }
            (Aggregate::Sum(_), _) => State::WideSum(vec![0; groups]),
            (Aggregate::Min(_), _) => extreme(false),
            (Aggregate::Max(_), _) => extreme(true),
        };
        Ok(Self { counts, state })
    }

    /// Adds a vector's rows. `vector` has the values of the argument.
    ///
    /// # Errors
    ///
    /// [`Error::Internal`] if the values are of another kind.
    pub fn add(&mut self, vector: &Vector, rows: &Rows<'_>) -> Result<()> {
        let valid = vector.valid.unwrap_or(ALL);
        let valid = |mask: &Mask| std::array::from_fn(|word| mask[word] & valid[word]);
        match rows {
            Rows::Masks(masks) => self.add_groups(&vector.values, masks, valid),
            Rows::Numbers(mask, numbers) => self.add_rows(&vector.values, &valid(mask), numbers),
        }
    }

    /// Adds the `valid` rows of each group's mask.
    fn add_groups(
        &mut self,
        values: &Values,
        masks: &[Mask],
        valid: impl Fn(&Mask) -> Mask + Clone,
    ) -> Result<()> {
        let masks = masks.iter().map(valid).enumerate();
        let masks = masks.filter(|(_, mask)| mask.iter().any(|word| *word != 0));
        if !self.counts.is_empty() {
            let masks = masks.clone();
            masks.for_each(|(group, mask)| self.counts[group] += count(&mask) as u64);
        }
        match (&mut self.state, values) {
            (State::Count, _) => {}
            (State::Sum(sums), Values::Int(values)) => masks.for_each(|(group, mask)| {
                let sum = &mut sums[group][0];
                *sum = sum.wrapping_add(masked::sum(values, &mask));
            }),
            (State::WideSum(sums), Values::Int(values)) => masks.for_each(|(group, mask)| {
                sums[group] = sums[group].wrapping_add(masked::wide_sum(values, &mask));
            }),
            (State::WideSum(sums), Values::Wide(values)) => masks.for_each(|(group, mask)| {
                let sum = &mut sums[group];
                for_each_row(&mask, |row| *sum = sum.wrapping_add(values[row]));
            }),
            (State::FloatSum(sums), Values::Float(values)) => masks.for_each(|(group, mask)| {
                sums[group] += masked::float_sum(values, &mask);
            }),
            (
                State::Extreme {
                    is_max,
                    values: all,
                    ..
                },
                Values::Int(_) | Values::Float(_),
            ) => {
                let mut ranks;
                let new = match values {
                    Values::Int(values) => values,
                    Values::Float(values) => {
                        ranks = [0; VECTOR_LEN];
                        ranks_of(values, &mut ranks);
                        &ranks
                    }
                    _ => return Err(mismatch()),
                };
                masks.for_each(|(group, mask)| {
                    let old = &mut all[group];
                    *old = match is_max {
                        true => (*old).max(masked::largest(new, &mask)),
                        false => (*old).min(masked::smallest(new, &mask)),
                    };
                });
            }
            (
                State::WideExtreme {
                    is_max,
                    values: all,
                },
                Values::Wide(new),
            ) => masks.for_each(|(group, mask)| {
                extremes(*is_max, &mask, |_| group, |row| new[row], all);
            }),
            _ => return Err(mismatch()),
        }
        Ok(())
    }

    /// Adds the rows of `mask` one by one to their groups.
    fn add_rows(&mut self, values: &Values, mask: &Mask, groups: &[u32; VECTOR_LEN]) -> Result<()> {
        let group = |row: usize| groups[row] as usize;
        if !self.counts.is_empty() {
            for_each_row(mask, |row| self.counts[group(row)] += 1);
        }
        match (&mut self.state, values) {
            (State::Count, _) => {}
            (State::Sum(sums), Values::Int(values)) => for_each_row(mask, |row| {
                let sum = &mut sums[group(row)][row % LANES];
                *sum = sum.wrapping_add(values[row]);
            }),
            (State::WideSum(sums), Values::Int(values)) => for_each_row(mask, |row| {
                let sum = &mut sums[group(row)];
                *sum = sum.wrapping_add(values[row].into());
            }),
            (State::WideSum(sums), Values::Wide(values)) => for_each_row(mask, |row| {
                let sum = &mut sums[group(row)];
                *sum = sum.wrapping_add(values[row]);
            }),
            (State::FloatSum(sums), Values::Float(values)) => {
                for_each_row(mask, |row| sums[group(row)] += values[row]);
            }
            (State::Extreme { is_max, values, .. }, Values::Int(new)) => {
                extremes(*is_max, mask, group, |row| new[row], values);
            }
            (State::Extreme { is_max, values, .. }, Values::Float(new)) => {
                extremes(*is_max, mask, group, |row| rank_of(new[row]), values);
            }
            (State::WideExtreme { is_max, values }, Values::Wide(new)) => {
                extremes(*is_max, mask, group, |row| new[row], values);
            }
            _ => return Err(mismatch()),
        }
        Ok(())
    }

    /// True for values of single precision.
    pub fn is_single(&self) -> bool {
        matches!(self.state, State::Extreme { of: Type::F32, .. })
    }

    /// The values of `groups`, of which `rows` are the numbers of rows.
    pub fn totals(&self, groups: &[usize], rows: &[u64]) -> GroupTotals {
        let counts = match self.counts.is_empty() {
            true => rows.to_vec(),
            false => groups.iter().map(|group| self.counts[*group]).collect(),
        };
        let each = groups.iter();
        let values = match &self.state {
            State::Count => Numbers::Int(Vec::new()),
            State::Sum(sums) => {
                let sum = |lanes: &[i64; LANES]| lanes.iter().map(|x| i128::from(*x)).sum();
                Numbers::Int(each.map(|group| sum(&sums[*group])).collect())
            }
            State::WideSum(sums) => Numbers::Int(each.map(|group| sums[*group]).collect()),
            State::FloatSum(sums) => Numbers::Float(each.map(|group| sums[*group]).collect()),
            State::Extreme { of, values, .. } => {
                let ranks = each.map(|group| values[*group]);
                match of.is_float() {
                    true => Numbers::Float(ranks.map(value_of).collect()),
                    false => Numbers::Int(ranks.map(i128::from).collect()),
                }
            }
            State::WideExtreme { values, .. } => {
                Numbers::Int(each.map(|group| values[*group]).collect())
            }
        };
        GroupTotals { counts, values }
    }
}

fn mismatch() -> Error {
    Error::Internal("values of another kind".into())
}

/// Replaces the values of groups by smaller or larger ones.
fn extremes<T: Copy + Ord>(
    is_max: bool,
    mask: &Mask,
    group: impl Fn(usize) -> usize,
    value: impl Fn(usize) -> T,
    values: &mut [T],
) {
    match is_max {
        true => for_each_row(mask, |row| {
            let old = &mut values[group(row)];
            *old = (*old).max(value(row));
        }),
        false => for_each_row(mask, |row| {
            let old = &mut values[group(row)];
            *old = (*old).min(value(row));
        }),
    }
}

/// Adds the totals of an aggregate over other rows, group by group, in order: `of` has the index of each group.
///
/// # Errors
///
/// [`Error::Internal`] if they are of another kind.
pub(crate) fn merge(
    aggregate: &Aggregate,
    totals: &mut GroupTotals,
    other: &GroupTotals,
    of: &[usize],
) -> Result<()> {
    let most = of.iter().max().map_or(0, |most| most + 1);
    totals.counts.resize(most.max(totals.counts.len()), 0);
    let before: Vec<u64> = of.iter().map(|group| totals.counts[*group]).collect();
    for (group, count) in of.iter().zip(&other.counts) {
        totals.counts[*group] += count;
    }
    let has = |index: usize| (before[index] > 0, other.counts[index] > 0);
    let groups = of.iter().copied().enumerate();
    match (&mut totals.values, &other.values) {
        (Numbers::Int(all), Numbers::Int(new)) if new.is_empty() => _ = all,
        (Numbers::Int(all), Numbers::Int(new)) => {
            all.resize(most.max(all.len()), 0);
            let with = |a: i128, b: i128| match aggregate {
                Aggregate::Min(_) => a.min(b),
                Aggregate::Max(_) => a.max(b),
                _ => a.wrapping_add(b),
            };
            groups.for_each(|(index, group)| match has(index) {
                (_, false) => {}
                (false, true) => all[group] = new[index],
                (true, true) => all[group] = with(all[group], new[index]),
            });
        }
        (Numbers::Float(all), Numbers::Float(new)) => {
            all.resize(most.max(all.len()), 0.0);
            let with = |a: f64, b: f64| match aggregate {
                Aggregate::Min(_) => value_of(rank_of(a).min(rank_of(b))),
                Aggregate::Max(_) => value_of(rank_of(a).max(rank_of(b))),
                _ => a + b,
            };
            groups.for_each(|(index, group)| match has(index) {
                (_, false) => {}
                (false, true) => all[group] = new[index],
                (true, true) => all[group] = with(all[group], new[index]),
            });
        }
        _ => return Err(Error::Internal("totals of another kind".into())),
    }
    Ok(())
}
