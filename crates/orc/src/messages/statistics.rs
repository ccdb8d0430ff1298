//! Statistics of a column, for a stripe or an index group.

use super::protobuf::Fields;
use crate::error::Fault;

/// Counts, and bounds if the type has them.
#[derive(Clone, Debug, Default)]
pub(crate) struct ColumnStatistics {
    /// Values that are not null.
    pub(crate) values: Option<u64>,
    pub(crate) bounds: Option<Bounds>,
}

/// The minimum and maximum, as stored.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Bounds {
    Integers(Option<i64>, Option<i64>),
    /// Minimum, maximum and sum; the sum is NaN if a value is.
    Doubles(Option<f64>, Option<f64>, Option<f64>),
    /// Each with a flag that is true if it is a value.
    Text(Option<(String, bool)>, Option<(String, bool)>),
    /// The number of true values.
    Booleans(u64),
    Decimals(Option<String>, Option<String>),
    /// Milliseconds since 1970, of the time of day as if in UTC.
    Timestamps(Option<i64>, Option<i64>),
}

impl ColumnStatistics {
    pub(crate) fn parse(fields: Fields<'_>) -> Result<Self, Fault> {
        let mut message = Self::default();
        for field in fields {
            let (number, value) = field?;
            match number {
                1 => message.values = Some(value.unsigned()?),
                // integers and days have the same form
                2 | 7 => message.bounds = Some(integers(value.message()?)?),
                3 => message.bounds = Some(doubles(value.message()?)?),
                4 => message.bounds = Some(text(value.message()?)?),
                5 => message.bounds = booleans(value.message()?)?,
                6 => message.bounds = Some(decimals(value.message()?)?),
                9 => message.bounds = Some(timestamps(value.message()?)?),
                _ => (),
            }
        }
        Ok(message)
    }
}

fn integers(fields: Fields<'_>) -> Result<Bounds, Fault> {
    let (mut min, mut max) = (None, None);
    for field in fields {
        let (number, value) = field?;
        match number {
            1 => min = Some(value.signed()?),
            2 => max = Some(value.signed()?),
            _ => (),
        }
    }
    Ok(Bounds::Integers(min, max))
}

fn doubles(fields: Fields<'_>) -> Result<Bounds, Fault> {
    let (mut min, mut max, mut sum) = (None, None, None);
    for field in fields {
        let (number, value) = field?;
        match number {
            1 => min = Some(value.double()?),
            2 => max = Some(value.double()?),
            3 => sum = Some(value.double()?),
            _ => (),
        }
    }
    Ok(Bounds::Doubles(min, max, sum))
}

/// Bounds of text; unknown if they are not UTF-8, as a writer may store any bytes as text.
fn text(fields: Fields<'_>) -> Result<Bounds, Fault> {
    let (mut min, mut max) = (None, None);
    for field in fields {
        let (number, value) = field?;
        let bound = |is_value| value.text().ok().map(|text| (text.to_owned(), is_value));
        match number {
            1 => min = bound(true),
            2 => max = bound(true),
            // a truncated bound of a long value
            4 => min = bound(false),
            5 => max = bound(false),
            _ => (),
        }
    }
    Ok(Bounds::Text(min, max))
}

fn booleans(fields: Fields<'_>) -> Result<Option<Bounds>, Fault> {
    let mut counts = Vec::new();
    for field in fields {
        if let (1, value) = field? {
            value.append_unsigned(&mut counts)?;
        }
    }
    Ok(counts.first().copied().map(Bounds::Booleans))
}

fn decimals(fields: Fields<'_>) -> Result<Bounds, Fault> {
    let (mut min, mut max) = (None, None);
    for field in fields {
        let (number, value) = field?;
        match number {
            1 => min = Some(value.text()?.to_owned()),
            2 => max = Some(value.text()?.to_owned()),
            _ => (),
        }
    }
    Ok(Bounds::Decimals(min, max))
}

fn timestamps(fields: Fields<'_>) -> Result<Bounds, Fault> {
    let (mut min, mut max) = (None, None);
    for field in fields {
        let (number, value) = field?;
        match number {
            // fields 1 and 2 depend on the writer's timezone
            3 => min = Some(value.signed()?),
            4 => max = Some(value.signed()?),
            _ => (),
        }
    }
    Ok(Bounds::Timestamps(min, max))
}
