//! Accumulators: an aggregate's values for the groups of a row group.

use vectile_encodings::VECTOR_LEN;
use vectile_pipeline::{Aggregate, Domain, Error, Result, Type};

use crate::masked;
use crate::partial::{TotalValues, Totals};
use crate::primitives::{rank_of, ranks_of};
use crate::vector::{ALL, Kind, Mask, Values, Vector, both, count, for_each_row};

/// Sums of a group, which rows take turns to add to: an addition need not wait for that of the row before.
const LANES: usize = 4;

/// One aggregate's values, by group.
#[derive(Debug)]
pub(crate) struct Accumulator {
    /// Number of values of each group; empty if it is the number of rows.
    counts: Vec<u64>,
    is_nullable: bool,
    /// The largest magnitude that a sum may have.
    most: u128,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Only values are counted.
    Count,
    /// A sum of integers that fits 64 bits: [`LANES`] of each group.
    Sum(Vec<[i64; LANES]>),
    /// One of each group, if there may be many groups.
    OneSum(Vec<i64>),
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
    /// The accumulator of `aggregate` over values of a domain, for `groups` groups of at most `rows` rows each; they may
    /// become more if there are none.
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
            return Ok(Self {
                counts,
                is_nullable,
                most: 0,
                state: State::Count,
            });
        };
        let bounds = domain.bounds;
        let most = bounds.0.unsigned_abs().max(bounds.1.unsigned_abs());
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
            (Aggregate::CountRows | Aggregate::Count(_) | Aggregate::CountDistinct(_), _) => {
                State::Count
            }
            (_, Kind::Bool) => {
                return Err(Error::Internal("an aggregate of booleans".into()));
            }
            (Aggregate::Sum(_), Kind::Float) => State::FloatSum(vec![0.0; groups]),
            (Aggregate::Sum(_), Kind::Int) if bounds.bits() + rows.max(1).ilog2() < 63 => {
                match groups {
                    0 => State::OneSum(Vec::new()),
                    _ => State::Sum(vec![[0; LANES]; groups]),
                }
            }
            (Aggregate::Sum(_), _) => State::WideSum(vec![0; groups]),
            (Aggregate::Min(_), _) => extreme(false),
            (Aggregate::Max(_), _) => extreme(true),
        };
        Ok(Self {
            counts,
            is_nullable,
            most: most.saturating_mul(rows as u128),
            state,
        })
    }

    /// Adds groups without values, so that there are `groups`.
    pub fn grow(&mut self, groups: usize) {
        if self.is_nullable {
            self.counts.resize(groups, 0);
        }
        match &mut self.state {
            State::Count => {}
            State::Sum(sums) => sums.resize(groups, [0; LANES]),
            State::OneSum(sums) => sums.resize(groups, 0),
            State::WideSum(sums) => sums.resize(groups, 0),
            State::FloatSum(sums) => sums.resize(groups, 0.0),
            State::Extreme { is_max, values, .. } => {
                values.resize(groups, if *is_max { i64::MIN } else { i64::MAX });
            }
            State::WideExtreme { is_max, values } => {
                values.resize(groups, if *is_max { i128::MIN } else { i128::MAX });
            }
        }
    }

    /// Bytes for each group.
    pub fn bytes_per_group(&self) -> usize {
        let of_state = match &self.state {
            State::Count => 0,
            State::Sum(_) => size_of::<[i64; LANES]>(),
            State::OneSum(_) | State::FloatSum(_) | State::Extreme { .. } => 8,
            State::WideSum(_) | State::WideExtreme { .. } => 16,
        };
        of_state + if self.is_nullable { 8 } else { 0 }
    }

    /// True if the number of values of each group is its number of rows.
    pub fn counts_rows(&self) -> bool {
        !self.is_nullable
    }

    /// Adds a vector's rows, but only those that are in `met`, if set. `vector` has the values of the argument.
    ///
    /// # Errors
    ///
    /// [`Error::Internal`] if the values are of another kind.
    pub fn add(&mut self, vector: &Vector, met: Option<&Mask>, rows: &Rows<'_>) -> Result<()> {
        let valid = both(vector.valid.as_ref(), met).unwrap_or(ALL);
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
            (State::OneSum(sums), Values::Int(values)) => masks.for_each(|(group, mask)| {
                sums[group] = sums[group].wrapping_add(masked::sum(values, &mask));
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
            (State::OneSum(sums), Values::Int(values)) => for_each_row(mask, |row| {
                let sum = &mut sums[group(row)];
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

    /// True if the order in which values are added does not matter.
    pub fn is_exact(&self) -> bool {
        !matches!(self.state, State::FloatSum(_))
    }

    /// True for values of single precision.
    pub fn is_single(&self) -> bool {
        matches!(self.state, State::Extreme { of: Type::F32, .. })
    }

    /// The values of some groups, or of all.
    pub fn totals(self, some: Option<&[usize]>) -> Totals {
        let counts = picked(self.counts, some);
        let values = match self.state {
            State::Count => TotalValues::Count,
            State::Sum(sums) => {
                let sum =
                    |lanes: [i64; LANES]| lanes.iter().fold(0, |a: i64, b| a.wrapping_add(*b));
                TotalValues::Sum {
                    sums: picked(sums, some).into_iter().map(sum).collect(),
                    most: self.most,
                }
            }
            State::OneSum(sums) => TotalValues::Sum {
                sums: picked(sums, some),
                most: self.most,
            },
            State::WideSum(sums) => TotalValues::WideSum(picked(sums, some)),
            State::FloatSum(sums) => TotalValues::FloatSum(picked(sums, some)),
            // those of other row groups may take more than 64 bits
            State::Extreme {
                is_max,
                of: Type::I128 | Type::U64,
                values,
            } => {
                let values = picked(values, some).into_iter().enumerate();
                let values = values.map(|(group, value)| match counts.get(group) {
                    Some(0) => {
                        if is_max {
                            i128::MIN
                        } else {
                            i128::MAX
                        }
                    }
                    _ => value.into(),
                });
                TotalValues::WideExtreme {
                    is_max,
                    values: values.collect(),
                }
            }
            State::Extreme { is_max, of, values } => TotalValues::Extreme {
                is_max,
                of,
                values: picked(values, some),
            },
            State::WideExtreme { is_max, values } => TotalValues::WideExtreme {
                is_max,
                values: picked(values, some),
            },
        };
        Totals { counts, values }
    }
}

/// The values of some groups, or of all; none if there are none.
fn picked<T: Copy>(values: Vec<T>, some: Option<&[usize]>) -> Vec<T> {
    match some {
        Some(some) => some
            .iter()
            .filter_map(|group| values.get(*group).copied())
            .collect(),
        None => values,
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
