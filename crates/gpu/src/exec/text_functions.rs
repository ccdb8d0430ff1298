//! Functions of text: the CPU computes them once for each dictionary value, and kernels look the results up.
//!
//! ```text
//!  dictionaries ── function, on all cores ──▶ results ── distinct ones ──▶ codes of dictionary values, result of a code
//! ```
//!
//! A function becomes a lookup of the text column. Its codes number the distinct results, so that a kernel can group by
//! them; results of machine types are a payload column. All of it stays beside the column for later queries.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use arrow::array::{Array, ArrayRef, UInt32Array, new_null_array};
use arrow::compute::take;
use arrow::row::{Row, RowConverter, SortField};

use super::execution::Execution;
use crate::error::{Error, Result};
use crate::runtime::ColumnBatch;
use vectile_pipeline::join::{DictionaryCodes, for_bytes};
use vectile_pipeline::{
    Aggregate, Code, Expr, GroupKey, KeyTable, Lookup, Output, PayloadColumn, Pipeline,
    TextFunction, Type, parallel,
};

/// Dictionary values that a thread evaluates at a time, as in a batch of DataFusion.
const VALUES_AT_ONCE: usize = 8192;
/// Limit of the bytes of distinct results: they stay in host memory.
const MOST_BYTES: usize = 1 << 28;

/// The results of a function for the values of a column.
#[derive(Debug)]
pub(super) struct MappedText {
    /// The code of each dictionary value's result; none for null.
    key_table: Arc<KeyTable>,
    /// The result of each code.
    values: ArrayRef,
    /// The same for kernels, unless it is text.
    payload: Option<Arc<PayloadColumn>>,
    /// The same in the order of values, computed when a kernel first compares them.
    ranked: OnceLock<Ranked>,
}

/// Text by its rank.
#[derive(Debug)]
struct Ranked {
    key_table: Arc<KeyTable>,
    values: ArrayRef,
}

impl MappedText {
    /// The results as text by rank: a smaller one has a smaller code.
    fn ranked(&self, threads: usize) -> Result<(Arc<KeyTable>, ArrayRef)> {
        if self.ranked.get().is_none() {
            let order = sorted(&self.values, threads)?;
            let mut ranks = vec![0; order.len()];
            for (rank, code) in order.iter().enumerate() {
                ranks[*code as usize] = rank as u32;
            }
            let key_table = self.key_table.with_codes(&ranks)?;
            let order = UInt32Array::from(order);
            let values =
                take(&self.values, &order, None).map_err(vectile_encodings::Error::from)?;
            // another thread may have ranked them meanwhile
            let _ = self.ranked.set(Ranked {
                key_table: Arc::new(key_table),
                values,
            });
        }
        let ranked = self.ranked.get();
        let ranked = ranked.ok_or_else(|| Error::Internal("no ranks".into()))?;
        Ok((Arc::clone(&ranked.key_table), Arc::clone(&ranked.values)))
    }
}

/// Samples of a part of values that is sorted on its own.
const SAMPLES: usize = 64;

/// The numbers of values of text in ascending order. Some samples divide them into parts, one or more for each thread.
fn sorted(values: &ArrayRef, threads: usize) -> Result<Vec<u32>> {
    let mut texts: Vec<&[u8]> = Vec::with_capacity(values.len());
    for_bytes(values, |_, bytes| {
        texts.push(bytes);
        Ok(())
    })?;
    if texts.len() != values.len() {
        // a single null stands for no values
        return Ok((0..values.len() as u32).collect());
    }
    let threads = parallel::threads_for(texts.len(), threads);
    let step = (texts.len() / (threads * SAMPLES)).max(1);
    let mut samples: Vec<&[u8]> = texts.iter().step_by(step).copied().collect();
    samples.sort_unstable();
    let bounds: Vec<&[u8]> = samples.into_iter().skip(SAMPLES).step_by(SAMPLES).collect();
    let numbered: Vec<(u32, &[u8])> = (0..).zip(texts).collect();
    let pieces = numbered
        .chunks(numbered.len().div_ceil(threads).max(1))
        .collect();
    let divided = parallel::map(threads, pieces, |piece: &[(u32, &[u8])]| {
        let mut parts = vec![vec![]; bounds.len() + 1];
        for (number, text) in piece {
            parts[bounds.partition_point(|bound| bound <= text)].push((*number, *text));
        }
        parts
    });
    let mut parts: Vec<Vec<(u32, &[u8])>> = vec![vec![]; bounds.len() + 1];
    for own in divided {
        parts
            .iter_mut()
            .zip(own)
            .for_each(|(part, own)| part.extend(own));
    }
    let sorted = parallel::map(threads, parts, |mut part| {
        part.sort_unstable_by_key(|(_, text)| *text);
        part
    });
    Ok(sorted
        .into_iter()
        .flatten()
        .map(|(number, _)| number)
        .collect())
}

impl Execution {
    /// Replaces functions of text by lookups. `columns` have dictionaries where these are columns of functions.
    pub(super) fn with_text_functions(
        &mut self,
        mut pipeline: Pipeline,
        columns: &[Arc<ColumnBatch>],
    ) -> Result<Pipeline> {
        self.text_keys.clear();
        self.text_extremes.clear();
        let mut lookups = std::mem::take(&mut pipeline.lookups);
        let results_of = |column: usize, function: &Arc<dyn TextFunction>| {
            let of = columns.get(column);
            let of = of.ok_or_else(|| Error::Internal(format!("there is no column {column}")))?;
            of.mapped(function, || {
                // the CPU answers until all values are known
                match self.may_compile {
                    true => mapped(of, &**function, self.threads, &self.cancelled),
                    false => Err(Error::NotLoaded),
                }
            })
        };
        let mut lookup = |column: usize, key_table: &Arc<KeyTable>| {
            let same = |of: &Lookup| of.column == column && of.key_table == *key_table;
            let number = lookups.iter().position(same).unwrap_or(lookups.len());
            if number == lookups.len() {
                let key_table = Arc::clone(key_table);
                lookups.push(Lookup { column, key_table });
            }
            number
        };
        let (mut text_keys, mut text_extremes) = (vec![], vec![]);
        if let Output::Groups(keys, aggregates) = &mut pipeline.output {
            for aggregate in aggregates {
                let (mut values, is_extreme) = (None, is_extreme(aggregate));
                *aggregate = aggregate.over(&mut |argument| {
                    argument.replaced(&mut |expr| match expr {
                        Expr::Mapped(column, function) if is_extreme && is_text(&**function) => {
                            let mapped = results_of(*column, function)?;
                            let (key_table, own) = mapped.ranked(self.threads)?;
                            values = Some(own);
                            let number = lookup(*column, &key_table);
                            Ok::<_, Error>(Some(Expr::Id(Code::Lookup(number))))
                        }
                        _ => Ok(None),
                    })
                })?;
                text_extremes.push(values);
            }
            for key in keys {
                let mut values = None;
                if let GroupKey::Mapped(column, function) = key {
                    let mapped = results_of(*column, function)?;
                    values = Some(Arc::clone(&mapped.values));
                    *key = GroupKey::Code(lookup(*column, &mapped.key_table));
                }
                text_keys.push(values);
            }
        }
        let mut pipeline = pipeline.replaced(&mut |expr| {
            let Expr::Mapped(column, function) = expr else {
                return Ok(None);
            };
            let mapped = results_of(*column, function)?;
            let code = Code::Lookup(lookup(*column, &mapped.key_table));
            Ok::<_, Error>(Some(match &mapped.payload {
                Some(payload) => Expr::Payload(code, Arc::clone(payload)),
                None => Expr::Id(code),
            }))
        })?;
        pipeline.lookups = lookups;
        self.text_keys = text_keys;
        self.text_extremes = text_extremes;
        Ok(pipeline)
    }
}

/// Returns true for aggregates that compare values.
fn is_extreme(aggregate: &Aggregate) -> bool {
    matches!(aggregate, Aggregate::Min(_) | Aggregate::Max(_))
}

/// Returns true if results have no machine type.
fn is_text(function: &dyn TextFunction) -> bool {
    Type::of(function.data_type()).is_none()
}

/// Distinct results, and how they are told apart.
struct Results {
    converter: RowConverter,
    known: HashMap<Box<[u8]>, u32>,
    bytes: usize,
}

impl Results {
    fn new(function: &dyn TextFunction) -> Result<Self> {
        let field = SortField::new(function.data_type().clone());
        Ok(Self {
            converter: RowConverter::new(vec![field]).map_err(vectile_encodings::Error::from)?,
            known: HashMap::new(),
            bytes: 0,
        })
    }

    /// The number of a result.
    fn number(&mut self, row: Row<'_>) -> Result<u32> {
        if let Some(number) = self.known.get(row.as_ref()) {
            return Ok(*number);
        }
        self.bytes += row.as_ref().len();
        if self.bytes > MOST_BYTES {
            return Err(too_many_bytes());
        }
        let number = self.known.len() as u32;
        self.known.insert(row.as_ref().into(), number);
        Ok(number)
    }

    /// All results, by number.
    fn values(self, function: &dyn TextFunction) -> Result<ArrayRef> {
        if self.known.is_empty() {
            return Ok(new_null_array(function.data_type(), 1));
        }
        let mut rows: Vec<(Box<[u8]>, u32)> = self.known.into_iter().collect();
        rows.sort_unstable_by_key(|(_, number)| *number);
        let parser = self.converter.parser();
        let rows = rows.iter().map(|(row, _)| parser.parse(row));
        let columns = self.converter.convert_rows(rows);
        let columns = columns.map_err(vectile_encodings::Error::from)?;
        let values = columns.into_iter().next();
        values.ok_or_else(|| Error::Internal("no results".into()))
    }
}

fn too_many_bytes() -> Error {
    let reason = format!("results of a function of text above {MOST_BYTES} bytes");
    Error::Unsupported(reason)
}

/// The results for some values: a number for each that is not null, and the result of a number.
type Evaluated = (Vec<Option<u32>>, ArrayRef);

/// Evaluates a function for all dictionary values of a column.
fn mapped(
    of: &ColumnBatch,
    function: &dyn TextFunction,
    threads: usize,
    cancelled: &AtomicBool,
) -> Result<MappedText> {
    if function.is_identity() {
        return unchanged(of, function);
    }
    let dictionaries = of.dictionaries.iter().map(|of| {
        let coded = of.as_ref().filter(|of| of.is_coded);
        let reason = "a function of text that is in no dictionary";
        coded
            .map(|of| &of.entries)
            .ok_or_else(|| Error::Unsupported(reason.into()))
    });
    let dictionaries: Vec<&ArrayRef> = dictionaries.collect::<Result<_>>()?;
    let pieces = dictionaries.iter().flat_map(|of| {
        let starts = (0..of.len()).step_by(VALUES_AT_ONCE);
        starts.map(|start| of.slice(start, VALUES_AT_ONCE.min(of.len() - start)))
    });
    let (bytes, has_failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let evaluated = parallel::map(threads, pieces.collect(), |piece: ArrayRef| {
        if cancelled.load(Ordering::Relaxed) {
            return Err(Error::Cancelled);
        }
        if has_failed.load(Ordering::Relaxed) {
            return Err(Error::Unsupported("a function of text failed".into()));
        }
        let evaluated = evaluated(function, &piece);
        let evaluated = evaluated.inspect_err(|_| has_failed.store(true, Ordering::Relaxed))?;
        // most results of a piece are in others, too
        let before = bytes.fetch_add(evaluated.1.get_array_memory_size(), Ordering::Relaxed);
        match before > 4 * MOST_BYTES {
            true => {
                has_failed.store(true, Ordering::Relaxed);
                Err(too_many_bytes())
            }
            false => Ok(evaluated),
        }
    });
    let mut all = Results::new(function)?;
    let mut evaluated = evaluated.into_iter();
    let mut codes = vec![];
    for dictionary in dictionaries {
        let mut own = Vec::with_capacity(dictionary.len());
        while own.len() < dictionary.len() {
            let piece = evaluated.next();
            let (numbers, results) = piece.ok_or_else(|| Error::Internal("no piece".into()))??;
            let rows = all.converter.convert_columns(&[results]);
            let rows = rows.map_err(vectile_encodings::Error::from)?;
            let number_of = rows.iter().map(|row| all.number(row));
            let number_of: Vec<u32> = number_of.collect::<Result<_>>()?;
            own.extend(
                numbers
                    .into_iter()
                    .map(|own| own.map(|own| number_of[own as usize])),
            );
        }
        codes.push(Arc::new(DictionaryCodes::new(Arc::clone(dictionary), own)));
    }
    let count = all.known.len().max(1) as u32;
    let values = all.values(function)?;
    Ok(MappedText {
        key_table: Arc::new(KeyTable::of_dictionaries(codes, count)?),
        payload: (!is_text(function)).then(|| PayloadColumn::new(Arc::clone(&values))),
        values,
        ranked: OnceLock::new(),
    })
}

/// The values of a column themselves.
fn unchanged(of: &ColumnBatch, function: &dyn TextFunction) -> Result<MappedText> {
    let entries = of.entries()?;
    let values = match entries.count() {
        0 => new_null_array(function.data_type(), 1),
        _ => entries.all()?,
    };
    let count = entries.count().max(1);
    Ok(MappedText {
        key_table: Arc::new(KeyTable::of_dictionaries(entries.numbers.clone(), count)?),
        values,
        payload: None,
        ranked: OnceLock::new(),
    })
}

/// Evaluates a function for some values.
fn evaluated(function: &dyn TextFunction, values: &ArrayRef) -> Result<Evaluated> {
    // the CPU says what is wrong, if a row has such a value at all
    let failed = |error| Error::Unsupported(format!("a function of text failed: {error}"));
    let results = function.evaluate(values).map_err(failed)?;
    if results.len() != values.len() || results.data_type() != function.data_type() {
        let (count, of) = (results.len(), results.data_type());
        let reason = format!("{count} results of type {of} of a function of text");
        return Err(Error::Unsupported(reason));
    }
    let mut distinct = Results::new(function)?;
    let rows = distinct.converter.convert_columns(&[Arc::clone(&results)]);
    let rows = rows.map_err(vectile_encodings::Error::from)?;
    let numbers = rows
        .iter()
        .enumerate()
        .map(|(row, result)| match results.is_valid(row) {
            true => distinct.number(result).map(Some),
            false => Ok(None),
        });
    let numbers = numbers.collect::<Result<_>>()?;
    Ok((numbers, distinct.values(function)?))
}
