//! Builds the key tables of a join on the device, from rows that another kernel has left there.
//!
//! ```text
//!  rows, plain ─▶ bounds of keys and digits ─▶ bits and codes by key
//!             └─▶ values by code, where a row's code is its number
//! ```

use std::sync::Arc;

use arrow::array::ArrayRef;

use super::build_kernel::{Fill, Step, copied, count_keys, run_steps};
use super::execution::Execution;
use super::groups::values_of;
use super::rows::{ColumnOnDevice, RowsOnDevice, array_of, arrow_type, width_of};
use crate::error::{Error, Result};
use crate::runtime::{Batch, DeviceBuffer, Engine, Entries, FixedKernel, Kernel};
use vectile_kernels::KeyColumn;
use vectile_pipeline::join::{DeviceKeyLayout, DeviceKeyTableLayout, code_bytes, size_word};
use vectile_pipeline::{KeyTable, PayloadColumn, Type};

/// Limit of the codes of distinct values where a code for each row would do.
const FEW_CODES: u64 = 1 << 16;
/// Limit of the codes of distinct values where they are required, unless there are so few for each row: a kernel that
/// groups by them has as many groups, even if only some of them have rows.
const MOST_CODES: u64 = 1 << 22;
const CODES_PER_ROW: u64 = 4;
/// Words of a column's measurements.
const MEASURED_WORDS: usize = 4;

/// A key table to build of rows. Columns are outputs of [`Output::Rows`](vectile_pipeline::Output::Rows), by index.
#[derive(Clone, Debug)]
pub struct Build {
    /// Integer key columns. Rows with a null key are left out.
    pub keys: Vec<usize>,
    /// True if the keys are digits of one integer, the last one the lowest; false if there is one key.
    pub is_packed: bool,
    /// Columns that codes distinguish.
    pub by: BuildBy,
    /// True if keys must be unique.
    pub is_unique: bool,
}

/// Columns that codes distinguish.
#[derive(Clone, Debug)]
pub enum BuildBy {
    /// None: all keys have one code.
    Nothing,
    /// The values of these columns: integers with few distinct values.
    Values(Vec<usize>),
    /// As [`BuildBy::Values`], or a code for each row if that is not possible.
    ValuesOrRows(Vec<usize>),
}

/// A key table built on the device.
#[derive(Debug)]
pub struct Built {
    /// The keys.
    pub codes: KeyTable,
    /// The first and the last value of each packed key; else empty.
    pub digits: Vec<(i64, i64)>,
    /// True if a key was null.
    pub has_null: bool,
    /// Payload columns: the values of each code, of machine types, or of text.
    pub attributes: Vec<Arc<PayloadColumn>>,
    /// True if each row has a code of its own; then values are on the device.
    pub is_by_row: bool,
}

/// Bounds of a column's values.
#[derive(Clone, Copy)]
struct Measured {
    least: i64,
    greatest: i64,
    count: u64,
    /// True if all values fit 64 bits.
    is_narrow: bool,
}

/// The keys of a table.
struct Keys {
    digits: Vec<KeyDigit>,
    /// Bounds of the key, or of the integer that keys are packed into.
    least: i64,
    greatest: i64,
    /// Upper bound of the rows with keys.
    count: u64,
}

/// A column as a digit of a packed key.
struct KeyDigit {
    first: i64,
    last: i64,
    stride: u64,
}

/// A column as a digit of a code.
struct Digit {
    column: usize,
    of: Type,
    first: i64,
    /// Number of values, including null.
    count: u64,
    has_null: bool,
    stride: u64,
}

/// A table to be filled, and the memory for it.
struct EmptyTable<'t> {
    build: &'t Build,
    keys: Keys,
    /// Number of codes.
    count: u32,
    /// The digits of a code; `None` if each row has a code of its own.
    digits: Option<Vec<Digit>>,
    form: DeviceKeyTableLayout,
    memory: Arc<DeviceBuffer>,
}

/// Counts of a filled table.
struct Filled {
    /// Distinct keys, and rows whose key another row had entered.
    distinct: u64,
    duplicates: u64,
    /// The longest probe sequence of a hash table.
    most_probes: u32,
}

impl EmptyTable<'_> {
    /// Addresses of keys and codes; bytes of a code and a flag for hashed keys; then the empty slot, and buckets less
    /// one.
    fn target(&self) -> [u64; 5] {
        let keys = self.memory.address();
        let codes = keys + self.form.codes_at() as u64;
        let (is_hashed, last) = match self.form.keys {
            DeviceKeyLayout::PerfectHashTable { .. } => (false, [0; 2]),
            DeviceKeyLayout::Hashed { slots, empty, .. } => {
                (true, [empty as u64, size_word(slots, 0)])
            }
        };
        let width = code_bytes(self.form.count) as u64 | u64::from(is_hashed) << 32;
        [keys, codes, width, last[0], last[1]]
    }
}

impl Filled {
    /// The counts that the kernel leaves.
    fn of(words: &[u64]) -> Result<Self> {
        let [distinct, duplicates, most_probes, is_full] = *words else {
            return Err(Error::Internal("nothing was counted".into()));
        };
        if is_full > 0 {
            return Err(Error::Unsupported("keys whose hashes collide".into()));
        }
        Ok(Self {
            distinct,
            duplicates,
            most_probes: most_probes as u32,
        })
    }
}

impl Execution {
    /// Builds key tables of the selected rows of a batch; `None` if keys that must be unique are not.
    ///
    /// # Errors
    ///
    /// As [`Execution::aggregate`]; [`Error::Unsupported`] if keys are not integers of 64 bits, or values have too
    /// many codes.
    pub fn build(&mut self, batch: &Batch, tables: &[Build]) -> Result<Option<Vec<Built>>> {
        self.watch(|this| this.built(batch, tables))
    }

    fn built(&mut self, batch: &Batch, tables: &[Build]) -> Result<Option<Vec<Built>>> {
        if batch.is_empty() {
            return Err(Error::Unsupported("a table of no rows".into()));
        }
        let rows = self.rows_on_device(batch, |_| Ok(()))?;
        self.tables_of(&rows, tables)
    }

    /// Builds key tables of rows on the device.
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
            kernel: &kernel,
            rows,
        };
        let measured = builder.measure(self)?;
        let (mut empty, mut failed) = (vec![], None);
        for table in tables {
            match builder.empty(table, &measured) {
                Ok(table) => empty.push(table),
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        let filled = builder.fill(self, &empty)?;
        let built = empty.into_iter().zip(filled).map(|(table, filled)| {
            let filled = Filled::of(&filled)?;
            match table.build.is_unique && filled.duplicates > 0 {
                true => Ok(None),
                false => builder.built(table, &filled, &measured).map(Some),
            }
        });
        let built = built.collect::<Result<Option<Vec<Built>>>>()?;
        match failed {
            // duplicate keys of a table before it matter more: callers can do something about them
            Some(error) if built.is_some() => Err(error),
            _ => Ok(built),
        }
    }
}

struct Builder<'a> {
    engine: &'a Arc<Engine>,
    kernel: &'a Arc<dyn Kernel>,
    rows: &'a RowsOnDevice,
}

impl Builder<'_> {
    fn column(&self, column: usize) -> Result<&ColumnOnDevice> {
        let known = self.rows.columns.get(column);
        known.ok_or_else(|| Error::Internal("no such column".into()))
    }

    /// A column's descriptor for the kernel: digits of values count from `first`, and nulls are the digit `null`.
    fn key_column(of: &ColumnOnDevice, first: i64, stride: u64, null: u64) -> KeyColumn {
        let (values, width) = (of.memory.address(), width_of(of.of));
        let valid = match of.is_nullable {
            true => values + of.validity_at as u64,
            false => 0,
        };
        let is_signed = matches!(
            of.of,
            Type::I8 | Type::I16 | Type::I32 | Type::I64 | Type::I128
        );
        KeyColumn {
            values,
            valid,
            width: width as u64,
            is_signed: u64::from(is_signed),
            first: first as u64,
            stride,
            null,
        }
    }

    /// Fills memory and launches steps of the kernel, and returns the results of each.
    fn run(
        &self,
        execution: &mut Execution,
        fills: &[Fill],
        steps: &[Step],
    ) -> Result<Vec<Vec<u64>>> {
        execution.check_cancelled()?;
        // SAFETY: columns have as many values as there are rows, and results as many words as the step writes; targets
        // have room for all slots, according to the bounds of keys. All of it lives as long as the builder.
        let (results, took) =
            unsafe { run_steps(self.engine, self.kernel.as_ref(), fills, steps) }?;
        execution.statistics.kernel += took;
        execution.statistics.launches += steps.len();
        Ok(results)
    }

    /// Measures the bounds of all integer columns.
    fn measure(&self, execution: &mut Execution) -> Result<Vec<Option<Measured>>> {
        let is_integer = |of: &ColumnOnDevice| !of.of.is_float() && of.of != Type::U64;
        let columns = self.rows.columns.iter().filter(|of| is_integer(of));
        let columns: Vec<_> = columns.map(|of| Self::key_column(of, 0, 0, 0)).collect();
        let results = match columns.is_empty() {
            true => vec![],
            false => {
                let step = Step::measure(&columns, self.rows.rows, MEASURED_WORDS);
                self.run(execution, &[], &[step])?.concat()
            }
        };
        let mut results = results.as_chunks::<MEASURED_WORDS>().0.iter();
        let measured = self.rows.columns.iter().map(|of| {
            let [greatest, least, count, wide] =
                *is_integer(of).then(|| results.next()).flatten()?;
            // the inverse of the kernel's order-preserving map
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

    /// Takes memory for a table.
    fn empty<'t>(&self, build: &'t Build, measured: &[Option<Measured>]) -> Result<EmptyTable<'t>> {
        let keys = self.keys(build, measured)?;
        let (count, digits) = self.codes(build, measured)?;
        let form = DeviceKeyTableLayout::of(keys.least, keys.greatest, keys.count, count)?;
        Ok(EmptyTable {
            build,
            keys,
            count,
            digits,
            form,
            memory: Arc::new(self.engine.take(form.codes_at() + form.codes_bytes())?),
        })
    }

    /// Empties tables, and enters the keys of all rows. Returns the words of [`Filled`] of each.
    fn fill(&self, execution: &mut Execution, tables: &[EmptyTable<'_>]) -> Result<Vec<Vec<u64>>> {
        let (mut fills, mut steps) = (vec![], vec![]);
        for table in tables {
            let (form, target) = (table.form, table.target());
            let [keys, codes, ..] = target;
            match form.keys {
                DeviceKeyLayout::Hashed { slots, .. } => steps.push(Step::clear(slots, target)),
                DeviceKeyLayout::PerfectHashTable { .. } => fills.push(Fill {
                    address: keys,
                    byte: 0,
                    bytes: form.keys_bytes(),
                }),
            }
            fills.push(Fill {
                address: codes,
                byte: u8::MAX,
                bytes: form.codes_bytes(),
            });
            let columns = self.key_columns(table)?;
            let keys = table.build.keys.len();
            steps.push(Step::fill(&columns, keys, self.rows.rows, target));
        }
        let mut results = self.run(execution, &fills, &steps)?;
        // clearing has none
        results.retain(|words| !words.is_empty());
        Ok(results)
    }

    /// A filled table.
    fn built(
        &self,
        table: EmptyTable<'_>,
        filled: &Filled,
        measured: &[Option<Measured>],
    ) -> Result<Built> {
        let EmptyTable {
            build,
            keys,
            count,
            digits,
            form,
            memory,
        } = table;
        let attributes = self.attributes(&build.by, digits.as_deref(), measured, count)?;
        Ok(Built {
            codes: self.key_table(form, filled, memory),
            digits: match build.is_packed {
                true => keys.digits.iter().map(|of| (of.first, of.last)).collect(),
                false => vec![],
            },
            has_null: filled.distinct + filled.duplicates < self.rows.rows as u64,
            attributes,
            is_by_row: digits.is_none(),
        })
    }

    /// The number of codes of a table, and the digits of a code; `None` if each row has a code of its own.
    fn codes(
        &self,
        table: &Build,
        measured: &[Option<Measured>],
    ) -> Result<(u32, Option<Vec<Digit>>)> {
        let (count, digits) = match &table.by {
            BuildBy::Nothing => (1, Some(vec![])),
            BuildBy::Values(columns) => {
                let most = CODES_PER_ROW.saturating_mul(self.rows.rows as u64);
                let digits = self.digits(columns, measured, MOST_CODES.max(most))?;
                let digits = digits.ok_or_else(|| Error::Unsupported("many codes".into()))?;
                (Digit::codes(&digits), Some(digits))
            }
            BuildBy::ValuesOrRows(columns) => match self.digits(columns, measured, FEW_CODES)? {
                Some(digits) => (Digit::codes(&digits), Some(digits)),
                None => (self.rows.rows as u64, None),
            },
        };
        let too_many = || Error::Unsupported(format!("{count} codes"));
        let count = u32::try_from(count).map_err(|_| too_many())?;
        Ok((count, digits))
    }

    /// Descriptors of the key columns, then of the columns that are digits of codes.
    fn key_columns(&self, table: &EmptyTable<'_>) -> Result<Vec<KeyColumn>> {
        let first_key = match table.form.keys {
            DeviceKeyLayout::PerfectHashTable { first, .. } => first,
            DeviceKeyLayout::Hashed { .. } => 0,
        };
        let of_keys = table.build.keys.iter().zip(&table.keys.digits);
        let of_keys = of_keys.map(|(column, digit)| {
            let first = match table.build.is_packed {
                true => digit.first,
                false => first_key,
            };
            let of = self.column(*column)?;
            Ok(Self::key_column(of, first, digit.stride, 0))
        });
        let of_digits = table.digits.iter().flatten().map(|digit| {
            let of = self.column(digit.column)?;
            let null = digit.count - 1;
            Ok(Self::key_column(of, digit.first, digit.stride, null))
        });
        of_keys.chain(of_digits).collect()
    }

    /// A filled table of this form. Its keys are copied back, and counted on the device, when they are asked for.
    fn key_table(
        &self,
        mut form: DeviceKeyTableLayout,
        filled: &Filled,
        memory: Arc<DeviceBuffer>,
    ) -> KeyTable {
        if let DeviceKeyLayout::Hashed { probes, .. } = &mut form.keys {
            *probes = filled.most_probes.max(1);
        }
        let fetch = {
            let (engine, memory) = (Arc::clone(self.engine), Arc::clone(&memory));
            move |at: usize, bytes: usize| {
                Ok(copied(&engine, &memory, at, bytes)?.as_slice()[..bytes].to_vec())
            }
        };
        let find = {
            let (engine, kernel) = (Arc::clone(self.engine), Arc::clone(self.kernel));
            let memory = Arc::clone(&memory);
            move |values: &[i64]| {
                count_keys(&engine, kernel.as_ref(), &memory, form, values).map_err(Into::into)
            }
        };
        let copies = self.engine.copies_with(memory);
        KeyTable::on_device(form, filled.distinct as usize, (fetch, find), copies)
    }

    /// The payload columns that codes distinguish: by code if there are digits, else by row.
    fn attributes(
        &self,
        by: &BuildBy,
        digits: Option<&[Digit]>,
        measured: &[Option<Measured>],
        count: u32,
    ) -> Result<Vec<Arc<PayloadColumn>>> {
        let columns = match by {
            BuildBy::Nothing => [].as_slice(),
            BuildBy::Values(columns) | BuildBy::ValuesOrRows(columns) => columns,
        };
        let mut attributes: Vec<Arc<PayloadColumn>> = vec![];
        for (index, column) in columns.iter().enumerate() {
            // several payload columns may come from one column, which is copied back once
            let known = columns[..index].iter().position(|known| known == column);
            attributes.push(match (known, digits) {
                (Some(known), _) => Arc::clone(&attributes[known]),
                (None, None) => self.attribute(*column, measured)?,
                (None, Some(digits)) => {
                    let digit = digits.iter().find(|digit| digit.column == *column);
                    let digit = digit.ok_or_else(|| Error::Internal("no such digit".into()))?;
                    digit.attribute(self.column(*column)?.entries.clone(), count)?
                }
            });
        }
        Ok(attributes)
    }

    /// Bounds of the keys of a table, and the digits they are packed of.
    fn keys(&self, table: &Build, measured: &[Option<Measured>]) -> Result<Keys> {
        let bounds = table.keys.iter().map(|column| {
            let narrow = measured.get(*column).copied().flatten();
            let narrow = narrow.filter(|measured| measured.is_narrow);
            narrow.ok_or_else(|| Error::Unsupported("keys that are no integers of 64 bits".into()))
        });
        let bounds: Vec<Measured> = bounds.collect::<Result<_>>()?;
        let count = bounds.iter().map(|of| of.count).min().unwrap_or(0);
        let (mut digits, mut all) = (vec![], 1i128);
        for of in bounds.iter().rev() {
            let too_wide = || Error::Unsupported("keys of more than 63 bits together".into());
            let stride = i64::try_from(all).map_err(|_| too_wide())?;
            digits.push(KeyDigit {
                first: of.least,
                last: of.greatest,
                stride: stride as u64,
            });
            let own = i128::from(of.greatest) - i128::from(of.least) + 1;
            all = all.checked_mul(own).ok_or_else(too_wide)?;
            if table.is_packed && all > i64::MAX.into() {
                return Err(too_wide());
            }
        }
        digits.reverse();
        let (least, greatest) = match (&bounds[..], table.is_packed) {
            (_, true) => (0, (all - 1) as i64),
            ([one], false) => (one.least, one.greatest),
            _ => return Err(Error::Internal("several keys, not packed".into())),
        };
        Ok(Keys {
            digits,
            least,
            greatest,
            count,
        })
    }

    /// Columns as digits of a code; `None` if some are not integers, or if there would be more than `most` codes.
    fn digits(
        &self,
        columns: &[usize],
        measured: &[Option<Measured>],
        most: u64,
    ) -> Result<Option<Vec<Digit>>> {
        let (mut digits, mut codes): (Vec<Digit>, u64) = (vec![], 1);
        for &column in columns {
            if digits.iter().any(|digit| digit.column == column) {
                continue;
            }
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
        Ok((codes <= most).then_some(digits))
    }

    /// A column as a payload column with a value for each row.
    fn attribute(
        &self,
        column: usize,
        measured: &[Option<Measured>],
    ) -> Result<Arc<PayloadColumn>> {
        let (rows, of) = (self.rows.rows, self.column(column)?.clone());
        let narrow = measured.get(column).copied().flatten();
        let narrow = narrow.filter(|measured| measured.is_narrow && measured.count > 0);
        if of.entries.is_some() {
            return Err(Error::Unsupported("numbers of values, by row".into()));
        }
        let measured = narrow.map(|of| (of.least.into(), of.greatest.into()));
        // wide values are not measured, but what is known of their operands shows if sums of them overflow
        let planned = of.bounds.map(|bounds| (bounds.0, bounds.1));
        let bounds = measured.or(planned.filter(|_| of.of == Type::I128));
        let like = (arrow_type(of.of), rows, of.is_nullable);
        let copies = self.engine.copies_with(Arc::clone(&of.memory));
        let engine = Arc::clone(self.engine);
        let fetch = move || of.fetched(&engine, rows).map_err(Into::into);
        Ok(PayloadColumn::on_device(
            like,
            bounds,
            Box::new(fetch),
            copies,
        ))
    }
}

impl Digit {
    /// The number of codes.
    fn codes(digits: &[Self]) -> u64 {
        digits.iter().map(|digit| digit.count).product()
    }

    /// The payload column with the value of each code: integers, or entries by their number.
    fn attribute(&self, entries: Option<Arc<Entries>>, codes: u32) -> Result<Arc<PayloadColumn>> {
        let Self {
            of,
            first,
            stride,
            count,
            has_null,
            ..
        } = *self;
        let digit = move |code: Option<u32>| {
            let own = u64::from(code?) / stride % count;
            Some(own).filter(|own| !has_null || own + 1 < count)
        };
        let (data_type, bounds) = match &entries {
            None => {
                let last = i128::from(first) + i128::from(count);
                (arrow_type(of), Some((first.into(), last)))
            }
            Some(entries) => (entries.data_type()?, None),
        };
        let each = move |codes: &[Option<u32>]| {
            let values = match &entries {
                Some(entries) => {
                    let numbers = codes.iter().map(|code| {
                        let number = digit(*code)?.checked_add_signed(first);
                        number.and_then(|number| u32::try_from(number).ok())
                    });
                    entries.take(&numbers.collect::<Vec<_>>())
                }
                None => {
                    let digits: Vec<Option<u64>> = codes.iter().map(|code| digit(*code)).collect();
                    let is_nullable = digits.iter().any(Option::is_none);
                    values_of(of, first.into(), is_nullable, &digits)
                }
            };
            values.map_err(Into::into)
        };
        let len = codes as usize;
        Ok(PayloadColumn::computed(
            data_type,
            len,
            (has_null, bounds),
            each,
        ))
    }
}

impl ColumnOnDevice {
    /// Copies the values back.
    fn fetched(&self, engine: &Engine, rows: usize) -> Result<ArrayRef> {
        let bytes = match self.is_nullable {
            true => self.validity_at + rows,
            false => rows * width_of(self.of),
        };
        let back = Arc::new(copied(engine, &self.memory, 0, bytes)?);
        let offsets = (0, self.validity_at);
        array_of(self.of, self.is_nullable, 0..rows, offsets, Some(&back))
    }
}
