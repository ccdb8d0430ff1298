//! Payload columns: a value per code of a key table.

use std::fmt;
use std::sync::{Arc, OnceLock};

use arrow::array::{Array, ArrayRef, AsArray, UInt32Array};
use arrow::compute::{self, max, min};
use arrow::datatypes::{DataType, Decimal128Type};

use super::device_key_table::Fetch;
use super::key_chunks;
use super::key_table::DeviceCopies;
use crate::error::{Error, Result};

/// A value per code of a key table. Create it once and keep it: its copy on the device is reused.
pub struct PayloadColumn {
    data_type: DataType,
    len: usize,
    is_nullable: bool,
    /// Computed lazily if there is a `source`.
    values: OnceLock<ArrayRef>,
    source: Option<LazyValues>,
    /// The smallest and the largest integer. Computed lazily.
    bounds: OnceLock<Option<(i128, i128)>>,
    /// The copies of the values on devices.
    device: DeviceCopies,
}

/// The source of values that are computed lazily.
enum LazyValues {
    /// Copies all values back from the device.
    Fetch(Fetch<ArrayRef>),
    /// Computes each value from its code.
    Each(EachValue),
}

/// Computes the values of some codes.
type EachValue = Box<dyn Fn(&[Option<u32>]) -> Result<ArrayRef> + Send + Sync>;

impl PayloadColumn {
    /// Creates a column from an array: the value of code `i` is `values[i]`.
    pub fn new(values: ArrayRef) -> Arc<Self> {
        Arc::new(Self {
            data_type: values.data_type().clone(),
            len: values.len(),
            is_nullable: values.null_count() > 0,
            values: values.into(),
            source: None,
            bounds: OnceLock::new(),
            device: DeviceCopies::default(),
        })
    }

    /// Creates a column whose values are on the device. `like` is its type, length and nullability; `fetch` copies the
    /// values back.
    pub fn on_device(
        like: (DataType, usize, bool),
        bounds: Option<(i128, i128)>,
        fetch: Fetch<ArrayRef>,
        device: DeviceCopies,
    ) -> Arc<Self> {
        let (data_type, len, is_nullable) = like;
        Arc::new(Self {
            data_type,
            len,
            is_nullable,
            values: OnceLock::new(),
            source: Some(LazyValues::Fetch(fetch)),
            bounds: bounds.into(),
            device,
        })
    }

    /// Creates a column of `len` codes whose values `each` computes; it returns null for null codes.
    pub fn computed(
        data_type: DataType,
        len: usize,
        (is_nullable, bounds): (bool, Option<(i128, i128)>),
        each: impl Fn(&[Option<u32>]) -> Result<ArrayRef> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            data_type,
            len,
            is_nullable,
            values: OnceLock::new(),
            source: Some(LazyValues::Each(Box::new(each))),
            bounds: bounds.into(),
            device: DeviceCopies::default(),
        })
    }

    /// The type of the values.
    pub fn data_type(&self) -> &DataType {
        &self.data_type
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there are no values.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns true if values may be null.
    pub fn is_nullable(&self) -> bool {
        self.is_nullable
    }

    /// The values. The first call copies values that are only on the device back.
    ///
    /// # Errors
    ///
    /// The driver's errors.
    pub fn values(&self) -> Result<ArrayRef> {
        if let Some(values) = self.values.get() {
            return Ok(Arc::clone(values));
        }
        let values = match &self.source {
            Some(LazyValues::Fetch(fetch)) => fetch()?,
            Some(LazyValues::Each(each)) => {
                let codes: Vec<Option<u32>> = (0..self.len as u32).map(Some).collect();
                each(&codes)?
            }
            None => return Err(Error::Internal("a payload column without values".into())),
        };
        Ok(Arc::clone(self.values.get_or_init(|| values)))
    }

    /// Returns true if the values of some codes take less than those of all.
    pub fn is_taken_by_code(&self) -> bool {
        self.values.get().is_none() && matches!(self.source, Some(LazyValues::Each(_)))
    }

    /// The values of `codes`, null for null codes. Does not compute the values of other codes if possible.
    ///
    /// # Errors
    ///
    /// The errors of [`values`](Self::values); if there is no such code.
    pub fn take(&self, codes: &UInt32Array) -> Result<ArrayRef> {
        if let (None, Some(LazyValues::Each(each))) = (self.values.get(), &self.source) {
            let is_code = |code: Option<u32>| code.is_none_or(|code| (code as usize) < self.len);
            let codes: Vec<Option<u32>> = codes.iter().collect();
            return match codes.iter().copied().all(is_code) {
                true => each(&codes),
                false => Err(Error::Internal("a code that does not exist".into())),
            };
        }
        let values = compute::take(&self.values()?, codes, None);
        Ok(values.map_err(vectile_encodings::Error::from)?)
    }

    /// The smallest and the largest integer; `None` if they are not known or there are no integers.
    pub fn bounds(&self) -> Option<(i128, i128)> {
        let of_values = || self.values.get().and_then(bounds_of);
        *self.bounds.get_or_init(of_values)
    }

    /// Where `exec` keeps the copies of the values on devices.
    pub fn device_copies(&self) -> &DeviceCopies {
        &self.device
    }
}

fn bounds_of(values: &ArrayRef) -> Option<(i128, i128)> {
    if let Some(decimals) = values.as_primitive_opt::<Decimal128Type>() {
        return min(decimals).zip(max(decimals));
    }
    let (least, greatest) = key_chunks::bounds_of(values)?;
    Some((least.into(), greatest.into()))
}

/// Columns are equal if they are the same one or if both have their values and these are equal.
impl PartialEq for PayloadColumn {
    fn eq(&self, other: &Self) -> bool {
        let both = self.values.get().zip(other.values.get());
        std::ptr::eq(self, other) || both.is_some_and(|(own, other)| own == other)
    }
}

impl fmt::Debug for PayloadColumn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (values, data_type) = (self.len, &self.data_type);
        write!(f, "PayloadColumn({values} values, {data_type})")
    }
}
