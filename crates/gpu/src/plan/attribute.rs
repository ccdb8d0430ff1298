//! Values of the codes of a lookup.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::{max, min};
use arrow::datatypes::{DataType, Decimal128Type};

use super::codes::DeviceCopy;
use super::dense::integers;
use super::made::Fetch;
use crate::error::{Error, Result};

/// A value for each code of a lookup. Make one and keep it: values stay on the device.
pub struct Attribute {
    data_type: DataType,
    len: usize,
    is_nullable: bool,
    /// Those that were made on the device are not here before somebody asks.
    values: OnceLock<ArrayRef>,
    fetch: Option<Fetch<ArrayRef>>,
    /// The smallest and the largest integer, once somebody has asked.
    bounds: OnceLock<Option<(i128, i128)>>,
    /// Their copy on the device.
    device: DeviceCopy,
}

impl Attribute {
    /// Those of an array, by the position of each.
    pub fn new(values: ArrayRef) -> Arc<Self> {
        Arc::new(Self {
            data_type: values.data_type().clone(),
            len: values.len(),
            is_nullable: values.null_count() > 0,
            values: values.into(),
            fetch: None,
            bounds: OnceLock::new(),
            device: Mutex::new(None),
        })
    }

    /// Those that are on the device, as `like` has them, and may be fetched.
    pub(crate) fn made(
        like: (DataType, usize, bool),
        bounds: Option<(i128, i128)>,
        fetch: Fetch<ArrayRef>,
        device: DeviceCopy,
    ) -> Arc<Self> {
        let (data_type, len, is_nullable) = like;
        Arc::new(Self {
            data_type,
            len,
            is_nullable,
            values: OnceLock::new(),
            fetch: Some(fetch),
            bounds: bounds.into(),
            device,
        })
    }

    /// The type of values.
    pub fn data_type(&self) -> &DataType {
        &self.data_type
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether some may be null.
    pub(crate) fn is_nullable(&self) -> bool {
        self.is_nullable
    }

    /// The values. Those that were made on the device are copied back at first.
    ///
    /// # Errors
    ///
    /// Those of the driver.
    pub fn values(&self) -> Result<ArrayRef> {
        match (self.values.get(), &self.fetch) {
            (Some(values), _) => Ok(Arc::clone(values)),
            (None, Some(fetch)) => {
                let values = fetch()?;
                Ok(Arc::clone(self.values.get_or_init(|| values)))
            }
            (None, None) => Err(Error::Unsupported("an attribute without values".into())),
        }
    }

    /// The smallest and the largest of integers; `None` if that is not known, or there are none.
    pub(crate) fn bounds(&self) -> Option<(i128, i128)> {
        let of_values = || self.values.get().and_then(bounds_of);
        *self.bounds.get_or_init(of_values)
    }

    /// Where who executes keeps their copy on a device.
    pub(crate) fn device_copy(&self) -> &DeviceCopy {
        &self.device
    }
}

fn bounds_of(values: &ArrayRef) -> Option<(i128, i128)> {
    if let Some(decimals) = values.as_primitive_opt::<Decimal128Type>() {
        return min(decimals).zip(max(decimals));
    }
    let integers = integers(values).ok()??;
    let valid = |row: &usize| values.is_valid(*row);
    let integers = (0..integers.len()).filter(valid).map(|row| integers[row]);
    let (least, greatest) = (integers.clone().min()?, integers.max()?);
    Some((least.into(), greatest.into()))
}

/// Attributes are equal if their values are.
impl PartialEq for Attribute {
    fn eq(&self, other: &Self) -> bool {
        let both = self.values.get().zip(other.values.get());
        std::ptr::eq(self, other) || both.is_some_and(|(own, other)| own == other)
    }
}

impl fmt::Debug for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (values, data_type) = (self.len, &self.data_type);
        write!(f, "Attribute({values} values, {data_type})")
    }
}
