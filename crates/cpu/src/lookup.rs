//! Lookups in the build tables of joins: codes of keys, and values of codes.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::DataType;
use vectile_encodings::VECTOR_LEN;
use vectile_encodings::layout::Sequence;
use vectile_pipeline::{Bounds, Domain, Error, KeyTable, PayloadColumn, Result, Type};

use crate::reader::{Reader, widened};
use crate::vector::{Mask, Values, Vector, both, mask_of};

/// Looks integers up in a table. Keys without a code, and null ones, become null.
pub(crate) fn found(keys: &Vector, table: &KeyTable, out: &mut Vector) -> Result<()> {
    let (Values::Int(of), Values::Int(codes)) = (&keys.values, &mut out.values) else {
        return Err(Error::Internal("keys of another kind".into()));
    };
    table.find(&of[..], &mut codes[..])?;
    out.valid = both(Some(&has_code(codes)), keys.valid.as_ref());
    Ok(())
}

fn has_code(codes: &[i64; VECTOR_LEN]) -> Mask {
    mask_of(codes, |code| code >= 0)
}

/// The codes that the values of a column of text have in a table.
pub(crate) struct TextKeys<'a> {
    reader: &'a Reader<'a>,
    of: TextCodes<'a>,
}

enum TextCodes<'a> {
    /// A code for each entry of a dictionary, -1 for entries without one.
    Entries(Option<&'a Sequence>, Vec<i64>),
    Table(&'a KeyTable),
}

impl<'a> TextKeys<'a> {
    /// Looks the entries of a dictionary up, if there is one.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for values of another type than the table's keys.
    pub fn new(reader: &'a Reader<'a>, table: &'a KeyTable) -> Result<Self> {
        let of = match reader.dictionary() {
            Ok((entries, codes)) => {
                let found = table.codes_of(&entries)?.into_iter();
                let found = found.map(|code| code.map_or(-1, i64::from));
                TextCodes::Entries(codes, found.collect())
            }
            Err(_) => TextCodes::Table(table),
        };
        Ok(Self { reader, of })
    }

    /// Sets the codes of a vector's values, null for those without one.
    pub fn find(&self, vector: usize, out: &mut Vector) -> Result<()> {
        let Values::Int(codes) = &mut out.values else {
            return Err(Error::Internal("codes of another kind".into()));
        };
        match &self.of {
            TextCodes::Entries(sequence, of_entries) => {
                let mut entries = [0; VECTOR_LEN];
                if let Some(sequence) = sequence {
                    sequence.decode_codes(vector, &mut entries)?;
                }
                let pairs = codes.iter_mut().zip(&entries);
                pairs.for_each(|(code, entry)| {
                    // entries of nulls are arbitrary
                    *code = of_entries.get(*entry as usize).copied().unwrap_or(-1);
                });
            }
            TextCodes::Table(table) => {
                let found = table.codes_of(&self.reader.decoded(vector)?)?;
                codes.fill(-1);
                let pairs = codes.iter_mut().zip(found);
                pairs.for_each(|(code, found)| *code = found.map_or(-1, i64::from));
            }
        }
        let valid = self.reader.valid(vector);
        out.valid = both(Some(&has_code(codes)), valid.as_ref());
        Ok(())
    }
}

/// The values of a payload column.
pub(crate) struct Payload {
    values: ArrayRef,
    domain: Domain,
}

impl Payload {
    /// The values of `column`.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for values without a machine type; errors of computing them.
    pub fn new(column: &PayloadColumn) -> Result<Self> {
        let values = column.values()?;
        let data_type = values.data_type();
        let unsupported = || Error::Unsupported(format!("values of type {data_type}"));
        let of = Type::of(data_type).ok_or_else(unsupported)?;
        let bounds = match (of, column.bounds()) {
            (Type::Bool | Type::F32 | Type::F64, _) | (_, None) => Bounds::of(of),
            (_, Some((low, high))) => Bounds(low, high),
        };
        let domain = Domain { of, bounds };
        Ok(Self { values, domain })
    }

    /// Type and bounds of the values.
    pub fn domain(&self) -> Domain {
        self.domain
    }

    /// True if some value is null.
    pub fn is_nullable(&self) -> bool {
        self.values.null_count() > 0
    }

    /// The values of codes. Those of null codes are null.
    pub fn read(&self, codes: &Vector, out: &mut Vector) -> Result<()> {
        let Values::Int(of) = &codes.values else {
            return Err(Error::Internal("codes of another kind".into()));
        };
        out.valid = codes.valid;
        if let Some(nulls) = self.values.nulls().filter(|nulls| nulls.null_count() > 0) {
            let is_valid =
                |code: i64| (code as usize) < nulls.len() && nulls.is_valid(code as usize);
            out.valid = both(out.valid.as_ref(), Some(&mask_of(of, is_valid)));
        }
        self.gather(of, &mut out.values)
    }

    fn gather(&self, codes: &[i64; VECTOR_LEN], out: &mut Values) -> Result<()> {
        let values = &self.values;
        if let Values::Bool(mask) = out {
            let bits = values
                .as_boolean_opt()
                .ok_or_else(|| mismatch(values.data_type()))?;
            let bits = bits.values();
            *mask = mask_of(codes, |code| {
                (code as usize) < bits.len() && bits.value(code as usize)
            });
            return Ok(());
        }
        let data = values.to_data();
        let len = values.len();
        macro_rules! gather {
            ($native:ty, $out:expr, $of:expr) => {{
                let values = data.buffer::<$native>(0).get(..len);
                let values = values.ok_or_else(|| mismatch(self.values.data_type()))?;
                let pairs = $out.iter_mut().zip(codes);
                pairs.for_each(|(out, code)| {
                    // rows without a code have arbitrary values
                    *out = $of(values.get(*code as usize).copied().unwrap_or_default());
                });
            }};
        }
        macro_rules! integers {
            ($out:expr, $to:ty) => {
                match self.domain.of {
                    Type::I8 => gather!(i8, $out, |x| x as $to),
                    Type::I16 => gather!(i16, $out, |x| x as $to),
                    Type::I32 => gather!(i32, $out, |x| x as $to),
                    Type::I64 => gather!(i64, $out, |x| x as $to),
                    Type::U8 => gather!(u8, $out, |x| x as $to),
                    Type::U16 => gather!(u16, $out, |x| x as $to),
                    Type::U32 => gather!(u32, $out, |x| x as $to),
                    Type::U64 => gather!(u64, $out, |x| x as $to),
                    Type::I128 => gather!(i128, $out, |x| x as $to),
                    _ => return Err(mismatch(self.values.data_type())),
                }
            };
        }
        match out {
            Values::Int(out) => integers!(out, i64),
            Values::Wide(out) => integers!(out, i128),
            Values::Float(out) => match self.domain.of {
                Type::F32 => gather!(f32, out, widened),
                Type::F64 => gather!(f64, out, |x| x),
                _ => return Err(mismatch(self.values.data_type())),
            },
            Values::Bool(_) => return Err(mismatch(self.values.data_type())),
        }
        Ok(())
    }
}

fn mismatch(data_type: &DataType) -> Error {
    Error::Internal(format!("a payload of type {data_type}"))
}
