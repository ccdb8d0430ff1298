//! Infers types of the columns of CSV files from all of their rows, so that no value changes: values that would not be
//! written back as they were read stay text.

use std::sync::Arc;

use arrow::array::timezone::Tz;
use arrow::array::{AsArray, RecordBatch};
use arrow::compute::kernels::cast_utils::{Parser, string_to_datetime};
use arrow::csv::ReaderBuilder;
use arrow::csv::reader::Format;
use arrow::datatypes::{
    DataType, Date32Type, Field, Schema, SchemaRef, TimeUnit, TimestampNanosecondType,
};
use bytes::{Buf, Bytes};
use datafusion::error::{DataFusionError, Result};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt, TryStreamExt};

/// The header of a file must end within this many bytes.
const MOST_HEADER_BYTES: usize = 1 << 20;

/// The most digits of exact integers: those of 128 bits.
const MOST_DIGITS: u8 = 38;

/// From this integer on, floats skip some.
const INEXACT: i128 = 1 << f64::MANTISSA_DIGITS;

/// Facts about the columns of CSV files that form one table.
#[derive(Debug, Default)]
pub struct Columns {
    columns: Vec<(String, Facts)>,
    /// True if a value has a line end.
    pub has_line_ends: bool,
}

impl Columns {
    /// Adds up to `rows` rows of a file.
    pub async fn read(
        &mut self,
        format: &Format,
        bytes: BoxStream<'_, Result<Bytes>>,
        rows: usize,
    ) -> Result<usize> {
        let mut bytes = bytes.try_filter(|bytes| std::future::ready(!bytes.is_empty()));
        let mut start = Vec::new();
        while start.len() < MOST_HEADER_BYTES {
            match bytes.try_next().await? {
                Some(more) => start.extend_from_slice(&more),
                None => break,
            }
        }
        let (names, _) = format.infer_schema(start.as_slice(), Some(0))?;
        let fields = names.fields().iter();
        let texts = fields.map(|field| Field::new(field.name(), DataType::Utf8, true));
        let texts = Arc::new(Schema::new(texts.collect::<Vec<_>>()));
        let indices = texts
            .fields()
            .iter()
            .map(|field| self.column_index(field.name()));
        let indices: Vec<usize> = indices.collect();

        let decoder = ReaderBuilder::new(texts).with_format(format.clone());
        let mut decoder = decoder.build_decoder();
        let bytes = futures::stream::iter([Ok(Bytes::from(start))]).chain(bytes);
        let mut bytes = std::pin::pin!(bytes);
        let mut buffered = Bytes::new();
        let mut read = 0;
        while read < rows {
            let Some(batch) = next_batch(&mut decoder, &mut bytes, &mut buffered).await? else {
                break;
            };
            let batch = batch.slice(0, batch.num_rows().min(rows - read));
            read += batch.num_rows();
            self.note(&batch, &indices);
        }
        Ok(read)
    }

    fn column_index(&mut self, name: &str) -> usize {
        let known = self.columns.iter().position(|(known, _)| known == name);
        known.unwrap_or_else(|| {
            self.columns.push((name.to_owned(), Facts::default()));
            self.columns.len() - 1
        })
    }

    fn note(&mut self, batch: &RecordBatch, indices: &[usize]) {
        for (column, column_index) in batch.columns().iter().zip(indices) {
            let (Some((_, facts)), Some(texts)) = (
                self.columns.get_mut(*column_index),
                column.as_string_opt::<i32>(),
            ) else {
                continue;
            };
            self.has_line_ends |= texts.value_data().contains(&b'\n');
            for text in texts.iter().flatten() {
                facts.note(text);
            }
        }
    }

    /// The schema that represents every value.
    pub fn schema(&self) -> SchemaRef {
        let fields = self.columns.iter();
        let fields = fields.map(|(name, facts)| Field::new(name, facts.data_type(), true));
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }
}

async fn next_batch(
    decoder: &mut arrow::csv::reader::Decoder,
    bytes: &mut (impl Stream<Item = Result<Bytes>> + Unpin),
    buffered: &mut Bytes,
) -> Result<Option<RecordBatch>> {
    loop {
        if buffered.is_empty()
            && let Some(more) = bytes.try_next().await?
        {
            *buffered = more;
        }
        // An empty last buffer completes the last row.
        match decoder.decode(buffered)? {
            0 => break,
            decoded => buffered.advance(decoded),
        }
    }
    Ok(decoder.flush()?)
}

/// Facts about the values of a column.
#[derive(Debug, Default)]
pub struct Facts {
    has_text: bool,
    has_booleans: bool,
    has_floats: bool,
    has_dates: bool,
    /// The smallest and the largest integer.
    integers: Option<(i128, i128)>,
    /// The finest unit of timestamps.
    unit: Option<TimeUnit>,
    /// True if a date or time does not fit 64 bits of nanoseconds.
    beyond_nanoseconds: bool,
    /// An integer with more digits than any type supports.
    too_long: Option<String>,
}

impl Facts {
    /// Adds a value, which is not null.
    pub fn note(&mut self, text: &str) {
        if self.has_text {
            return;
        }
        match Kind::of(text) {
            Kind::Boolean => self.has_booleans = true,
            Kind::Float => self.has_floats = true,
            Kind::Integer(value) => {
                let (least, greatest) = self.integers.unwrap_or((value, value));
                self.integers = Some((least.min(value), greatest.max(value)));
            }
            Kind::Date => {
                self.has_dates = true;
                self.beyond_nanoseconds |= TimestampNanosecondType::parse(text).is_none();
            }
            Kind::Timestamp(unit) => {
                self.unit = self.unit.max(Some(unit));
                self.beyond_nanoseconds |= TimestampNanosecondType::parse(text).is_none();
            }
            Kind::Text => self.has_text = true,
        }
    }

    /// The type that represents every value exactly as written; null without values.
    pub fn data_type(&self) -> DataType {
        let numbers = self.has_floats || self.integers.is_some();
        let times = self.has_dates || self.unit.is_some();
        match (self.has_text, self.has_booleans, numbers, times) {
            (false, false, false, false) => DataType::Null,
            (false, true, false, false) => DataType::Boolean,
            (false, false, true, false) => self.number().unwrap_or(DataType::Utf8),
            (false, false, false, true) => self.time(),
            _ => DataType::Utf8,
        }
    }

    /// The type of numbers; `None` if a float would round an integer.
    pub fn number(&self) -> Option<DataType> {
        match (self.has_floats, self.integers) {
            (true, None) => Some(DataType::Float64),
            (true, Some(_)) => self.inexact().is_none().then_some(DataType::Float64),
            (false, Some(bounds)) => Some(integer_type(bounds)),
            (false, None) => None,
        }
    }

    /// Adds a number of a JSON file, which may also be written as a float.
    pub fn note_number(&mut self, text: &str) {
        match Kind::of(text) {
            Kind::Integer(_) => self.note(text),
            Kind::Text if digits(text.trim_start_matches('-')).1.is_empty() && text != "-0" => {
                self.too_long.get_or_insert_with(|| text.to_owned());
            }
            _ => self.has_floats = true,
        }
    }

    /// The type of a JSON column of numbers.
    pub fn number_type(&self, column: &str) -> Result<DataType> {
        let inexact = self.inexact().filter(|_| self.has_floats);
        let inexact = inexact.map(|value| value.to_string());
        match inexact.as_ref().or(self.too_long.as_ref()) {
            None => Ok(self.number().unwrap_or(DataType::Float64)),
            Some(value) => Err(DataFusionError::Execution(format!(
                "column {column} has the integer {value}, which no type holds exactly beside its other values; \
                 --schema names a type"
            ))),
        }
    }

    /// An integer that a float would round, if there is one.
    pub fn inexact(&self) -> Option<i128> {
        let (least, greatest) = self.integers?;
        [least, greatest]
            .into_iter()
            .find(|value| !(-INEXACT..=INEXACT).contains(value))
    }

    fn time(&self) -> DataType {
        match self.unit {
            None => DataType::Date32,
            Some(TimeUnit::Nanosecond) if self.beyond_nanoseconds => DataType::Utf8,
            Some(unit) => DataType::Timestamp(unit, None),
        }
    }
}

/// The type of integers with these bounds.
fn integer_type((least, greatest): (i128, i128)) -> DataType {
    if i64::try_from(least).is_ok() && i64::try_from(greatest).is_ok() {
        DataType::Int64
    } else if u64::try_from(least).is_ok() && u64::try_from(greatest).is_ok() {
        DataType::UInt64
    } else {
        DataType::Decimal128(MOST_DIGITS, 0)
    }
}

/// The type of a text, if a value of that type is written as the same text, apart from trailing zeros of a fraction.
enum Kind {
    Boolean,
    Integer(i128),
    Float,
    Date,
    Timestamp(TimeUnit),
    Text,
}

impl Kind {
    fn of(text: &str) -> Self {
        if text.eq_ignore_ascii_case("true") || text.eq_ignore_ascii_case("false") {
            return Kind::Boolean;
        }
        if ["NaN", "nan", "inf", "-inf"].contains(&text) {
            return Kind::Float;
        }
        match text.as_bytes().first() {
            Some(b'-' | b'.' | b'0'..=b'9') => {}
            _ => return Kind::Text,
        }
        Self::number(text)
            .or_else(|| Self::time(text))
            .unwrap_or(Kind::Text)
    }

    fn number(text: &str) -> Option<Self> {
        let unsigned = text.strip_prefix('-').unwrap_or(text);
        let (whole, rest) = digits(unsigned);
        // 007 is a name, not a number.
        if whole.len() > 1 && whole.starts_with('0') {
            return None;
        }
        if rest.is_empty() {
            let is_exact = whole.len() <= usize::from(MOST_DIGITS) && text != "-0";
            return is_exact.then(|| text.parse().ok().map(Kind::Integer))?;
        }
        let (fraction, exponent) = match rest.strip_prefix('.') {
            Some(rest) => digits(rest),
            None => ("", rest),
        };
        let has_digits = !whole.is_empty() || !fraction.is_empty();
        let has_exponent = match exponent.strip_prefix(['e', 'E']) {
            Some(power) => {
                let (power, end) = digits(power.strip_prefix(['-', '+']).unwrap_or(power));
                !power.is_empty() && end.is_empty()
            }
            None => exponent.is_empty(),
        };
        let is_finite = || exponent.is_empty() || text.parse::<f64>().is_ok_and(f64::is_finite);
        (has_digits && has_exponent && is_finite()).then_some(Kind::Float)
    }

    fn time(text: &str) -> Option<Self> {
        let date = text.get(..10).filter(|date| is_like(date, "dddd-dd-dd"))?;
        Date32Type::parse(date)?;
        if text.len() == date.len() {
            return Some(Kind::Date);
        }
        let time = text.get(10..19)?;
        if !is_like(time, "Tdd:dd:dd") && !is_like(time, " dd:dd:dd") {
            return None;
        }
        let rest = text.get(19..)?;
        let fraction = rest.strip_prefix('.').map(digits);
        let unit = match fraction.map(|(digits, _)| digits.len()) {
            None => TimeUnit::Second,
            Some(1..=3) => TimeUnit::Millisecond,
            Some(4..=6) => TimeUnit::Microsecond,
            Some(7..=9) => TimeUnit::Nanosecond,
            Some(_) => return None,
        };
        // A time in another zone would be written back in UTC.
        let zone = fraction.map_or(rest, |(_, zone)| zone);
        let utc: Tz = "+00:00".parse().ok()?;
        let is_time = matches!(zone, "" | "Z") && string_to_datetime(&utc, text).is_ok();
        is_time.then_some(Kind::Timestamp(unit))
    }
}

/// The leading digits, and the text after them.
fn digits(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit());
    text.split_at(end.unwrap_or(text.len()))
}

/// Returns true if the text has digits where the pattern has `d`, and is equal elsewhere.
fn is_like(text: &str, pattern: &str) -> bool {
    let mut pairs = text.bytes().zip(pattern.bytes());
    let is_same = |(byte, symbol): (u8, u8)| match symbol {
        b'd' => byte.is_ascii_digit(),
        symbol => byte == symbol,
    };
    text.len() == pattern.len() && pairs.all(is_same)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[&str]) -> DataType {
        let mut facts = Facts::default();
        values.iter().for_each(|value| facts.note(value));
        facts.data_type()
    }

    #[test]
    fn values_come_back_as_they_were() {
        use DataType::{Boolean, Date32, Float64, Int64, Null, UInt64, Utf8};
        let timestamp = |unit| DataType::Timestamp(unit, None);
        for (values, expected) in [
            (&[][..], Null),
            (&["true", "FALSE"], Boolean),
            (&["true", "1"], Utf8),
            (&["0", "-12", "9223372036854775807"], Int64),
            (&["1", "18446744073709551615"], UInt64),
            (&["-1", "18446744073709551615"], DataType::Decimal128(38, 0)),
            (
                &["99999999999999999999999999999999999999"],
                DataType::Decimal128(38, 0),
            ),
            (&["999999999999999999999999999999999999999"], Utf8),
            (&["01234", "5"], Utf8),
            (&["-0"], Utf8),
            (&["+1"], Utf8),
            (&["1", "2.5", ".5", "5.", "1e10", "-1E-5", "NaN"], Float64),
            (&["1.5", "00.5"], Utf8),
            (&["9007199254740992", "0.5"], Float64),
            (&["9007199254740993", "0.5"], Utf8),
            (&["1.", "-", "."], Utf8),
            (&["1e308"], Float64),
            (&["1e309", "1"], Utf8),
            (&["2024-02-29"], Date32),
            (&["2024-02-29", "2024-13-01"], Utf8),
            (&["2023-02-29"], Utf8),
            (
                &["2024-01-01", "2024-01-01T10:11:12"],
                timestamp(TimeUnit::Second),
            ),
            (
                &["2024-01-01 10:11:12.5", "2024-01-01 10:11:12.123456"],
                timestamp(TimeUnit::Microsecond),
            ),
            (&["2024-01-01T10:11:12.123456789", "0001-01-01"], Utf8),
            (
                &["9999-12-31 23:59:59", "0001-01-01T00:00:00.5", "9999-12-31"],
                timestamp(TimeUnit::Millisecond),
            ),
            (
                &["2024-01-01T10:11:12Z", "2024-01-01T10:11:12.123456Z"],
                timestamp(TimeUnit::Microsecond),
            ),
            (&["2024-01-01T10:11:12+02:00"], Utf8),
            (&["2024-01-01T10:11:12.5 PST"], Utf8),
            (&["2024-01-01T10:11:12."], Utf8),
            (&["2024-01-01T25:11:12"], Utf8),
            (&["2024-01-01", "7"], Utf8),
            (&["x", "7"], Utf8),
        ] {
            assert_eq!(of(values), expected, "{values:?}");
        }
    }
}
