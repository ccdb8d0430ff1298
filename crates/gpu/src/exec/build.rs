//! Tables of lookups that are made on the device, of rows that another kernel has left there: the build side of a join.
//!
//! ```text
//!  rows, plain ─▶ bounds of keys and digits ─▶ bits and codes by key
//!             └─▶ values by code, where a row's code is its number
//! ```

use std::sync::{Arc, Mutex};

use arrow::array::ArrayRef;

use super::execution::Execution;
use super::groups::values_of;
use super::rows::{ColumnOnDevice, RowsOnDevice, array_of, arrow_type, width_of};
use super::tables::{on_device, write_words};
use crate::error::{Error, Result};
use crate::plan::{Attribute, Codes, MadePlace, Type};
use crate::runtime::{Batch, Engine, FixedKernel, Kernel, Launch, Piece};

/// Codes that tell attributes apart, at most: a kernel that groups by them has as many groups.
const MOST_CODES: u64 = 1 << 16;
/// Words of a column, as the kernel reads it, and of what it finds out about one.
const COLUMN_WORDS: usize = 7;
const MEASURED_WORDS: usize = 4;
const THREADS: u32 = 256;

/// A table that is to be made of rows: columns are outputs of [`Output::Rows`](crate::plan::Output::Rows), by number.
#[derive(Clone, Debug)]
pub struct Build {
    /// Integers, by which rows are found. Nulls are left out.
    pub key: usize,
    /// What codes tell apart.
    pub by: BuildBy,
    /// Whether no key may be there more than once.
    pub is_unique: bool,
}

/// What codes tell apart.
#[derive(Clone, Debug)]
pub enum BuildBy {
    /// Nothing: all keys have one code.
    Nothing,
    /// The values of these columns: integers, of which few differ.
    Values(Vec<usize>),
    /// The same, or if that cannot be, rows.
    ValuesOrRows(Vec<usize>),
}

/// A table that was made.
#[derive(Debug)]
pub struct Built {
    /// The keys.
    pub codes: Codes,
    /// Whether a key was null.
    pub has_null: bool,
    /// Of codes.
    pub of_codes: BuiltCodes,
}

/// What codes stand for: for each column its values, of machine types.
#[derive(Debug)]
pub enum BuiltCodes {
    /// Those of each code.
    Values(Vec<ArrayRef>),
    /// Those of each row, which are on the device.
    Rows(Vec<Arc<Attribute>>),
}

/// Bounds of a column's values.
#[derive(Clone, Copy)]
struct Measured {
    least: i64,
    greatest: i64,
    count: u64,
    /// Whether all are of 64 bits.
    is_narrow: bool,
}

/// A column as a digit of a code.
struct Digit {
    column: usize,
    of: Type,
    first: i64,
    /// How many there are, null among them.
    count: u64,
    has_null: bool,
    stride: u64,
}

impl Execution {
    /// Makes tables of the selected rows of a batch; nothing, if a key is there more than once that must not be.
    ///
    /// # Errors
    ///
    /// As [`Execution::aggregate`]; [`Error::Unsupported`] if keys lie too far apart, or values have too many codes.
    pub fn build(&mut self, batch: &Batch, tables: &[Build]) -> Result<Option<Vec<Built>>> {
        self.watch(|this| this.built(batch, tables))
    }

    fn built(&mut self, batch: &Batch, tables: &[Build]) -> Result<Option<Vec<Built>>> {
        if batch.is_empty() {
            return Err(Error::Unsupported("a table of no rows".into()));
        }
        let rows = self.rows_on_device(batch)?;
        self.tables_of(&rows, tables)
    }

    /// Makes tables of rows that are on the device.
    pub(super) fn tables_of(
        &mut self,
        rows: &RowsOnDevice,
        tables: &[Build],
    ) -> Result<Option<Vec<Built>>> {
        let kernel = self
            .engine
            .fixed_kernel(FixedKernel::Build, self.may_compile)?;
        let builder = Builder {
            engine: &Arc::clone(&self.engine),
            kernel: &*kernel,
            rows,
        };
        let measured = builder.measure(self)?;
        let mut built = vec![];
        for table in tables {
            match builder.table(self, table, &measured)? {
                Some(table) => built.push(table),
                None => return Ok(None),
            }
        }
        Ok(Some(built))
    }
}

struct Builder<'a> {
    engine: &'a Arc<Engine>,
    kernel: &'a dyn Kernel,
    rows: &'a RowsOnDevice,
}

/// What a launch is over, and where it writes.
struct Work {
    step: u64,
    /// As the kernel reads them.
    columns: Vec<[u64; COLUMN_WORDS]>,
    /// Bits, codes, bytes of a code.
    target: [u64; 3],
    /// Words of what it finds out.
    found: usize,
}

impl Builder<'_> {
    fn column(&self, column: usize) -> Result<&ColumnOnDevice> {
        let known = self.rows.columns.get(column);
        known.ok_or_else(|| Error::Unsupported("no such column".into()))
    }

    /// A column as the kernel reads it: its values are digits from `first` on, and nulls are the digit `null`.
    fn words(of: &ColumnOnDevice, first: i64, stride: u64, null: u64) -> [u64; COLUMN_WORDS] {
        let (values, width) = (of.memory.address(), width_of(of.of));
        let valid = match of.is_nullable {
            true => values + of.validity_at as u64,
            false => 0,
        };
        let is_signed = matches!(
            of.of,
            Type::I8 | Type::I16 | Type::I32 | Type::I64 | Type::I128
        );
        let (width, is_signed) = (width as u64, u64::from(is_signed));
        [values, valid, width, is_signed, first as u64, stride, null]
    }

    fn run(&self, execution: &mut Execution, work: &Work) -> Result<Vec<u64>> {
        execution.check_wanted()?;
        let words: Vec<u64> = work.columns.iter().flatten().copied().collect();
        let columns = on_device(self.engine, words.len() * 8, |to| write_words(&words, to))?;
        let bytes = work.found * 8;
        let found = self.engine.take(bytes)?;
        let mut back = self.engine.host_pool().take(bytes)?;
        let to = back.as_mut_slice().as_mut_ptr();
        let rows = self.rows.rows;
        let resident = self.kernel.resident_blocks(THREADS, 0).max(1);
        let resident = resident.saturating_mul(self.engine.device().multiprocessors.max(1));
        let needed = rows.div_ceil(THREADS as usize).max(1);
        let mut args = vec![
            work.step,
            rows as u64,
            columns.address(),
            work.columns.len() as u64,
            found.address(),
        ];
        args.extend(work.target);
        let launch = Launch {
            grid: resident.min(needed.try_into().unwrap_or(u32::MAX)),
            block: THREADS,
            shared: 0,
            args: &args,
        };
        let mut lane = self.engine.lane()?;
        let marks = lane.finish(|stream| {
            // SAFETY: columns have as many values as there are rows, and what is found as many words as the step writes;
            // the target has room for all places, which the bounds of keys say. All of it lives until `finish` is done.
            unsafe {
                stream.fill(found.address(), 0, bytes)?;
                let marks = stream.launch_timed(self.kernel, launch)?;
                stream.copy_out(to, found.address(), bytes)?;
                Ok(marks)
            }
        })?;
        execution.statistics.kernel += lane.between(&marks)?;
        execution.statistics.launches += 1;
        self.engine.give_back(lane);
        let words = back.as_slice()[..bytes].as_chunks::<8>().0.iter();
        Ok(words.map(|word| u64::from_le_bytes(*word)).collect())
    }

    /// Bounds of all columns of integers.
    fn measure(&self, execution: &mut Execution) -> Result<Vec<Option<Measured>>> {
        let is_integer = |of: &ColumnOnDevice| !of.of.is_float() && of.of != Type::U64;
        let columns = self.rows.columns.iter().filter(|of| is_integer(of));
        let columns: Vec<_> = columns.map(|of| Self::words(of, 0, 0, 0)).collect();
        let found = match columns.is_empty() {
            true => vec![],
            false => self.run(
                execution,
                &Work {
                    step: 0,
                    found: columns.len() * MEASURED_WORDS,
                    columns,
                    target: [0; 3],
                },
            )?,
        };
        let mut found = found.as_chunks::<MEASURED_WORDS>().0.iter();
        let measured = self.rows.columns.iter().map(|of| {
            let [greatest, least, count, wide] = *is_integer(of).then(|| found.next()).flatten()?;
            // as the kernel raises them
            let lowered = |raised: u64| (raised ^ 1 << 63) as i64;
            Some(match count {
                0 => Measured {
                    least: 0,
                    greatest: 0,
                    count,
                    is_narrow: true,
                },
                _ => Measured {
                    least: lowered(!least),
                    greatest: lowered(greatest),
                    count,
                    is_narrow: wide == 0,
                },
            })
        });
        Ok(measured.collect())
    }

    /// The table; nothing, if a key is there more than once.
    fn table(
        &self,
        execution: &mut Execution,
        table: &Build,
        measured: &[Option<Measured>],
    ) -> Result<Option<Built>> {
        let bounds = |column: usize| {
            let narrow = measured.get(column).copied().flatten();
            let narrow = narrow.filter(|measured| measured.is_narrow);
            narrow.ok_or_else(|| Error::Unsupported("keys that are no integers of 64 bits".into()))
        };
        let keys = bounds(table.key)?;
        let (count, digits) = match &table.by {
            BuildBy::Nothing => (1, Some(vec![])),
            BuildBy::Values(columns) => {
                let digits = self.digits(columns, measured)?;
                let digits = digits.ok_or_else(|| Error::Unsupported("many codes".into()))?;
                (Digit::codes(&digits), Some(digits))
            }
            BuildBy::ValuesOrRows(columns) => match self.digits(columns, measured)? {
                Some(digits) => (Digit::codes(&digits), Some(digits)),
                None => (self.rows.rows as u64, None),
            },
        };
        let too_many = || Error::Unsupported(format!("{count} codes"));
        let place = MadePlace {
            first: keys.least,
            range: keys.greatest.abs_diff(keys.least).saturating_add(1),
            count: u32::try_from(count).map_err(|_| too_many())?,
        };
        if !place.is_dense(keys.count) {
            return Err(Error::Unsupported("keys that lie far apart".into()));
        }
        let codes_at = place.bits_bytes().next_multiple_of(256);
        let memory = Arc::new(self.engine.take(codes_at + place.codes_bytes())?);
        let codes = memory.address() + codes_at as u64;
        let mut lane = self.engine.lane()?;
        lane.finish(|stream| {
            // SAFETY: both parts are as long, and live until `finish` is done.
            unsafe {
                stream.fill(memory.address(), 0, place.bits_bytes())?;
                stream.fill(codes, u8::MAX, place.codes_bytes())
            }
        })?;
        self.engine.give_back(lane);
        let of_digits = digits.iter().flatten().map(|digit| {
            let of = self.column(digit.column)?;
            Ok(Self::words(of, digit.first, digit.stride, digit.count - 1))
        });
        let key = Self::words(self.column(table.key)?, place.first, 0, 0);
        let columns = [Ok(key)].into_iter().chain(of_digits);
        let found = self.run(
            execution,
            &Work {
                step: 1,
                columns: columns.collect::<Result<_>>()?,
                target: [
                    memory.address(),
                    codes,
                    (place.codes_bytes() as u64) / place.range,
                ],
                found: 2,
            },
        )?;
        let [found, twice] = found[..] else {
            return Err(Error::Unsupported("nothing was counted".into()));
        };
        if table.is_unique && twice > 0 {
            return Ok(None);
        }
        let fetch = {
            let (engine, memory) = (Arc::clone(self.engine), Arc::clone(&memory));
            move |at: usize, bytes: usize| {
                Ok(copied(&engine, &memory, at, bytes)?.as_slice()[..bytes].to_vec())
            }
        };
        let copy = Mutex::new(Some(memory as _));
        let codes = Codes::made(place, found as usize, fetch, copy);
        let of_codes = match (&table.by, digits) {
            (BuildBy::ValuesOrRows(columns), None) => {
                let attributes = columns
                    .iter()
                    .map(|column| self.attribute(*column, measured));
                BuiltCodes::Rows(attributes.collect::<Result<_>>()?)
            }
            (_, digits) => {
                let digits = digits.unwrap_or_default();
                let values = digits.iter().map(|digit| digit.values(count));
                BuiltCodes::Values(values.collect::<Result<_>>()?)
            }
        };
        Ok(Some(Built {
            codes,
            has_null: keys.count < self.rows.rows as u64,
            of_codes,
        }))
    }

    /// Columns as digits of a code; nothing, if some are no integers, or there would be many codes.
    fn digits(
        &self,
        columns: &[usize],
        measured: &[Option<Measured>],
    ) -> Result<Option<Vec<Digit>>> {
        let (mut digits, mut codes) = (vec![], 1u64);
        for &column in columns {
            let of = self.column(column)?;
            let known = measured.get(column).copied().flatten();
            let Some(bounds) = known.filter(|known| known.is_narrow) else {
                return Ok(None);
            };
            let values = match bounds.count {
                0 => 0,
                _ => bounds.greatest.abs_diff(bounds.least).saturating_add(1),
            };
            let has_null = of.is_nullable || values == 0;
            let digit = Digit {
                column,
                of: of.of,
                first: bounds.least,
                count: values.saturating_add(has_null.into()),
                has_null,
                stride: codes,
            };
            codes = codes.saturating_mul(digit.count);
            digits.push(digit);
        }
        Ok((codes <= MOST_CODES).then_some(digits))
    }

    /// A column as the attribute of rows.
    fn attribute(&self, column: usize, measured: &[Option<Measured>]) -> Result<Arc<Attribute>> {
        let (rows, of) = (self.rows.rows, self.column(column)?.clone());
        let narrow = measured.get(column).copied().flatten();
        let narrow = narrow.filter(|measured| measured.is_narrow && measured.count > 0);
        let bounds = narrow.map(|of| (of.least.into(), of.greatest.into()));
        let like = (arrow_type(of.of), rows, of.is_nullable);
        let copy = Mutex::new(Some(Arc::clone(&of.memory) as _));
        let engine = Arc::clone(self.engine);
        let fetch = move || of.fetched(&engine, rows);
        Ok(Attribute::made(like, bounds, Box::new(fetch), copy))
    }
}

impl Digit {
    /// How many codes these digits make.
    fn codes(digits: &[Self]) -> u64 {
        digits.iter().map(|digit| digit.count).product()
    }

    /// The value that each code has.
    fn values(&self, codes: u64) -> Result<ArrayRef> {
        let digits = (0..codes).map(|code| {
            let own = code / self.stride % self.count;
            Some(own).filter(|own| !self.has_null || own + 1 < self.count)
        });
        let digits: Vec<Option<u64>> = digits.collect();
        values_of(self.of, self.first.into(), self.has_null, &digits)
    }
}

impl ColumnOnDevice {
    /// Its values, copied back.
    fn fetched(&self, engine: &Engine, rows: usize) -> Result<ArrayRef> {
        let bytes = match self.is_nullable {
            true => self.validity_at + rows,
            false => rows * width_of(self.of),
        };
        let back = Arc::new(copied(engine, &self.memory, 0, bytes)?);
        let place = (0, self.validity_at);
        array_of(self.of, self.is_nullable, 0..rows, place, Some(&back))
    }
}

/// Some bytes of the device's memory, copied back.
fn copied(engine: &Engine, memory: &Piece, at: usize, bytes: usize) -> Result<Piece> {
    let mut back = engine.host_pool().take(bytes)?;
    let to = back.as_mut_slice().as_mut_ptr();
    let mut lane = engine.lane()?;
    let from = memory.address() + at as u64;
    // SAFETY: who asks knows the piece; both live until `finish` is done.
    lane.finish(|stream| unsafe { stream.copy_out(to, from, bytes) })?;
    engine.give_back(lane);
    Ok(back)
}
