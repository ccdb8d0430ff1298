//! The numbers of the sample tables: filter and count, then full decompression; as the writer encodes them, floats also
//! as `alp`, and plain.

use std::fs::File;
use std::path::Path;

use arrow::array::{Array, ArrayRef};
use arrow::compute;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::json;
use vectile_encodings::Encoding;
use vectile_pipeline::{Expr, Filter, Output};

use crate::bench::{Bench, Case, Result, column};
use crate::data::{GROUP_ROWS, between, count};

const TABLES: [&str; 4] = ["flights", "weather", "planes", "airports"];

/// A column of a table, repeated to fill a row group.
struct Real {
    name: String,
    array: ArrayRef,
    /// Encodings to measure: the writer's, and those to compare with.
    pins: Vec<Option<Encoding>>,
}

pub fn run(bench: &mut Bench, directory: &Path) -> Result<()> {
    let mut columns = vec![];
    for table in TABLES {
        columns.extend(read(directory, table)?);
    }
    bench.header("real columns: filter and count, from the first quartile to the median");
    for real in &columns {
        let filter = second_quarter(&real.array)?;
        for case in real.cases(&filter, &count()) {
            bench.filter(&case)?;
        }
    }
    bench.decompression_header("real columns: full decompression into device memory");
    for real in &columns {
        let rows = Output::Rows(vec![Expr::Column(0)]);
        for case in real.cases(&Filter::Constant(true), &rows) {
            bench.decompress(&case)?;
        }
    }
    Ok(())
}

impl Real {
    fn new(name: String, array: &ArrayRef) -> Result<Self> {
        let chosen = column(array, None)?.encoding();
        // a whole row group is encoded as the writer would; a smaller table by itself, so that the repetition of copies
        // does not count
        let mut pins = match array.len() >= GROUP_ROWS {
            true => vec![None],
            false => vec![Some(chosen)],
        };
        for other in [Encoding::Alp, Encoding::Plain] {
            let applies = column(array, Some(other)).is_ok_and(|c| c.encoding() == other);
            if applies && other != chosen {
                pins.push(Some(other));
            }
        }
        let copies = vec![array.as_ref(); GROUP_ROWS.div_ceil(array.len())];
        Ok(Self {
            name,
            array: compute::concat(&copies)?.slice(0, GROUP_ROWS),
            pins,
        })
    }

    fn cases<'a>(
        &'a self,
        filter: &'a Filter,
        output: &'a Output,
    ) -> impl Iterator<Item = Case> + 'a {
        self.pins.iter().enumerate().map(move |(index, pin)| {
            let name = match (index, pin) {
                (0, _) | (_, None) => self.name.clone(),
                (_, Some(pin)) => format!("{}, {pin}", self.name),
            };
            let array = vec![self.array.clone()];
            Case {
                name,
                facts: json!({
                    "column": self.name,
                    "type": self.array.data_type().to_string(),
                    "chosen": index == 0,
                }),
                pin: *pin,
                ..Case::new("real", array, filter.clone(), output.clone())
            }
        })
    }
}

/// The columns of numbers and times of a table.
fn read(directory: &Path, table: &str) -> Result<Vec<Real>> {
    let path = directory.join(format!("{table}.parquet"));
    let file = File::open(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let reader = ParquetRecordBatchReaderBuilder::try_new(file)?;
    let schema = reader.schema().clone();
    let batches = reader.build()?.collect::<Result<Vec<_>, _>>()?;
    let batch = compute::concat_batches(&schema, &batches)?;
    let fields = schema.fields().iter().zip(batch.columns());
    let mut columns = vec![];
    for (field, array) in fields.filter(|(field, _)| field.data_type().is_primitive()) {
        // there is nothing to decode in a constant
        if column(array, None)?.encoding() != Encoding::Constant {
            columns.push(Real::new(format!("{table}.{}", field.name()), array)?);
        }
    }
    Ok(columns)
}

/// From the first quartile to the median.
fn second_quarter(array: &ArrayRef) -> Result<Filter> {
    let sorted = compute::sort(array, None)?;
    let nulls = sorted.null_count();
    // nulls come first
    let at = |share: usize| sorted.slice(nulls + (sorted.len() - nulls - 1) * share / 4, 1);
    Ok(between(0, at(1), at(2)))
}
