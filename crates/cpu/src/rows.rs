//! Rows as output: the values of expressions for the rows that pass.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Decimal128Array, Float32Array, Float64Array, Int8Array, Int16Array,
    Int32Array, Int64Array, UInt8Array, UInt16Array, UInt32Array, UInt64Array,
};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use vectile_encodings::Selection;
use vectile_pipeline::{Error, Expr, Result, Rows, Type};

use crate::batch::for_each_batch;
use crate::filter::add_tests;
use crate::program::{Program, Register};
use crate::reader::narrowed;
use crate::row_group::RowGroup;
use crate::vector::{Kind, Mask, Values, Vector, for_each_row, has_row};

/// Computes `outputs` for the selected rows, in their order.
///
/// # Errors
///
/// [`Error::Unsupported`] if no instruction computes an expression; errors of decoding.
pub(crate) fn rows_of(
    outputs: &[Expr],
    row_group: RowGroup<'_>,
    selection: &Selection,
) -> Result<Rows> {
    let count = selection.count();
    let mut program = Program::new(row_group);
    let mut collected: Vec<(Register, Collected)> = Vec::new();
    for output in outputs {
        if matches!(output, Expr::Column(_)) {
            continue;
        }
        add_tests(&mut program, output, selection)?;
        let register = program.add(output)?;
        let kind = Kind::of(program.domain(register));
        let is_nullable = program.is_nullable(register);
        collected.push((register, Collected::new(kind, is_nullable, count)));
    }
    if !collected.is_empty() {
        let mut vectors = program.vectors();
        for_each_batch(selection, |batch, mask| {
            program.run(batch, mask, &mut vectors)?;
            for (register, collected) in &mut collected {
                collected.add(&vectors[*register], mask)?;
            }
            Ok(())
        })?;
    }
    let mut computed = collected.into_iter();
    let arrays = outputs.iter().map(|output| match output {
        Expr::Column(column) => {
            let missing = || Error::Internal(format!("there is no column {column}"));
            Ok(row_group
                .columns
                .get(*column)
                .ok_or_else(missing)?
                .select(selection)?)
        }
        _ => {
            let missing = || Error::Internal("an output that was not computed".into());
            let (register, collected) = computed.next().ok_or_else(missing)?;
            collected.array(program.domain(register).of)
        }
    });
    Ok(Rows {
        columns: arrays.collect::<Result<_>>()?,
        count,
    })
}

/// Values of selected rows.
struct Collected {
    values: CollectedValues,
    /// `None` if no row may be null.
    valid: Option<Vec<bool>>,
}

enum CollectedValues {
    Int(Vec<i64>),
    Wide(Vec<i128>),
    Float(Vec<f64>),
    Bool(Vec<bool>),
}

impl Collected {
    /// Has room for `count` rows.
    fn new(kind: Kind, is_nullable: bool, count: usize) -> Self {
        Self {
            values: match kind {
                Kind::Int => CollectedValues::Int(Vec::with_capacity(count)),
                Kind::Wide => CollectedValues::Wide(Vec::with_capacity(count)),
                Kind::Float => CollectedValues::Float(Vec::with_capacity(count)),
                Kind::Bool => CollectedValues::Bool(Vec::with_capacity(count)),
            },
            valid: is_nullable.then(|| Vec::with_capacity(count)),
        }
    }

    /// Adds the rows of `mask`.
    fn add(&mut self, vector: &Vector, mask: &Mask) -> Result<()> {
        match (&mut self.values, &vector.values) {
            (CollectedValues::Int(all), Values::Int(values)) => {
                for_each_row(mask, |row| all.push(values[row]));
            }
            (CollectedValues::Wide(all), Values::Wide(values)) => {
                for_each_row(mask, |row| all.push(values[row]));
            }
            (CollectedValues::Float(all), Values::Float(values)) => {
                for_each_row(mask, |row| all.push(values[row]));
            }
            (CollectedValues::Bool(all), Values::Bool(values)) => {
                for_each_row(mask, |row| all.push(has_row(values, row)));
            }
            _ => return Err(Error::Internal("rows of another kind".into())),
        }
        if let Some(all) = &mut self.valid {
            let valid = vector.valid.as_ref();
            for_each_row(mask, |row| {
                all.push(valid.is_none_or(|valid| has_row(valid, row)));
            });
        }
        Ok(())
    }

    /// The array of the Arrow type of a machine type.
    fn array(self, of: Type) -> Result<ArrayRef> {
        let nulls = self.valid.map(NullBuffer::from);
        macro_rules! narrowed {
            ($values:expr, $array:ty, $native:ty) => {{
                let values: Vec<$native> = $values.into_iter().map(|x| x as $native).collect();
                Arc::new(<$array>::new(values.into(), nulls))
            }};
        }
        macro_rules! integers {
            ($values:expr) => {
                match of {
                    Type::I8 => narrowed!($values, Int8Array, i8),
                    Type::I16 => narrowed!($values, Int16Array, i16),
                    Type::I32 => narrowed!($values, Int32Array, i32),
                    Type::I64 => narrowed!($values, Int64Array, i64),
                    Type::U8 => narrowed!($values, UInt8Array, u8),
                    Type::U16 => narrowed!($values, UInt16Array, u16),
                    Type::U32 => narrowed!($values, UInt32Array, u32),
                    Type::U64 => narrowed!($values, UInt64Array, u64),
                    Type::I128 => narrowed!($values, Decimal128Array, i128),
                    Type::Bool | Type::F32 | Type::F64 => return Err(mismatch(of)),
                }
            };
        }
        Ok(match (self.values, of) {
            (CollectedValues::Int(values), _) => integers!(values),
            (CollectedValues::Wide(values), _) => integers!(values),
            (CollectedValues::Float(values), Type::F32) => {
                let values: Vec<f32> = values.into_iter().map(narrowed).collect();
                Arc::new(Float32Array::new(values.into(), nulls))
            }
            (CollectedValues::Float(values), Type::F64) => {
                Arc::new(Float64Array::new(values.into(), nulls))
            }
            (CollectedValues::Bool(values), Type::Bool) => {
                Arc::new(BooleanArray::new(BooleanBuffer::from(values), nulls))
            }
            _ => return Err(mismatch(of)),
        })
    }
}

fn mismatch(of: Type) -> Error {
    Error::Internal(format!("rows of type {of:?} of another kind"))
}
