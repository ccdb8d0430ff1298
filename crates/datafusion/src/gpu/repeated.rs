//! Keys that a dimension has in several rows: for each, where its rows are in a list of all.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, UInt32Array};
use arrow::datatypes::{Field, Schema};
use datafusion::common::{Result, internal_datafusion_err};
use datafusion::logical_expr::EmitTo;
use datafusion::physical_plan::aggregates::group_values::new_group_values;
use datafusion::physical_plan::aggregates::order::GroupOrdering;
use vectile_gpu::Error;
use vectile_gpu::plan::{Attribute, Expr, Partners};

use crate::error;

/// The rows of each key.
#[derive(Debug)]
pub(crate) struct Repeated {
    first: Arc<Attribute>,
    count: Arc<Attribute>,
    most: u32,
    /// What attributes each row in the list has.
    codes: Arc<Attribute>,
}

impl Repeated {
    /// Those of keys without nulls, whose rows have these codes, and what keys there are, each at its code; `None` if all
    /// differ.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if there are too many rows.
    pub(crate) fn of(keys: &ArrayRef, codes: &[u32]) -> Result<Option<(ArrayRef, Self)>> {
        let (distinct, numbers) = numbered(keys)?;
        if distinct.len() == keys.len() {
            return Ok(None);
        }
        if u32::try_from(keys.len()).is_err() {
            let reason = format!("{} rows of keys that are there more than once", keys.len());
            return Err(error::gpu(Error::Unsupported(reason)));
        }
        let mut count = vec![0u32; distinct.len()];
        numbers.iter().for_each(|&number| count[number] += 1);
        let mut end = 0;
        let first = count.iter().map(|count| {
            end += count;
            end - count
        });
        let first: Vec<u32> = first.collect();
        let (mut next, mut listed) = (first.clone(), vec![0; keys.len()]);
        for (&number, &code) in numbers.iter().zip(codes) {
            listed[next[number] as usize] = code;
            next[number] += 1;
        }
        let attribute = |values: Vec<u32>| Attribute::new(Arc::new(UInt32Array::from(values)));
        let repeated = Self {
            most: count.iter().copied().max().unwrap_or(0),
            first: attribute(first),
            count: attribute(count),
            codes: attribute(listed),
        };
        Ok(Some((distinct, repeated)))
    }

    /// As partners of a row whose key has the code `code`.
    pub(crate) fn partners(&self, code: Expr, is_outer: bool) -> Partners {
        Partners {
            code,
            first: Arc::clone(&self.first),
            count: Arc::clone(&self.count),
            most: self.most,
            is_outer,
        }
    }

    /// The code of the partner at hand, of those of that number.
    pub(crate) fn code(&self, number: usize) -> Expr {
        Expr::Entry(Box::new(Expr::Partner(number)), Arc::clone(&self.codes))
    }

    /// Bytes in memory.
    pub(crate) fn bytes(&self) -> usize {
        4 * (self.first.len() + self.count.len() + self.codes.len())
    }
}

/// The values that there are, in the order in which they come first, and for each row the number of its own.
pub(crate) fn numbered(values: &ArrayRef) -> Result<(ArrayRef, Vec<usize>)> {
    let field = Field::new("value", values.data_type().clone(), true);
    let schema = Arc::new(Schema::new(vec![field]));
    let mut distinct = new_group_values(schema, &GroupOrdering::None)?;
    let mut numbers = Vec::with_capacity(values.len());
    distinct.intern(std::slice::from_ref(values), &mut numbers)?;
    let distinct = match distinct.len() {
        0 => values.slice(0, 0),
        _ => {
            let all = distinct.emit(EmitTo::All)?.pop();
            all.ok_or_else(|| internal_datafusion_err!("values without a column"))?
        }
    };
    Ok((distinct, numbers))
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, Int64Array, StringArray};
    use arrow::datatypes::{Int64Type, UInt32Type};

    use super::*;

    fn listed(repeated: &Repeated, number: usize) -> Vec<u32> {
        let values = |of: &Attribute| of.values().unwrap().as_primitive::<UInt32Type>().clone();
        let (first, count) = (values(&repeated.first), values(&repeated.count));
        let first = first.value(number) as usize;
        let all = values(&repeated.codes);
        all.values()[first..first + count.value(number) as usize].to_vec()
    }

    #[test]
    fn each_key_has_its_rows() {
        let keys: ArrayRef = Arc::new(Int64Array::from(vec![7, 5, 7, 9, 7, 5]));
        let (distinct, repeated) = Repeated::of(&keys, &[0, 1, 2, 3, 4, 1]).unwrap().unwrap();
        assert_eq!(distinct.as_primitive::<Int64Type>().values(), &[7, 5, 9]);
        assert_eq!(listed(&repeated, 0), [0, 2, 4]);
        assert_eq!(listed(&repeated, 1), [1, 1]);
        assert_eq!(listed(&repeated, 2), [3]);
        assert_eq!((repeated.most, repeated.bytes()), (3, 4 * (3 + 3 + 6)));
    }

    #[test]
    fn keys_that_differ_need_no_list() {
        let keys: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
        assert!(Repeated::of(&keys, &[0, 0]).unwrap().is_none());
        let twice: ArrayRef = Arc::new(StringArray::from(vec!["a", "a"]));
        let (distinct, repeated) = Repeated::of(&twice, &[1, 0]).unwrap().unwrap();
        assert_eq!(distinct.as_string::<i32>().value(0), "a");
        assert_eq!(listed(&repeated, 0), [1, 0]);
    }
}
