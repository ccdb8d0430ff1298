//! Values of the codes of a lookup.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::{max, min};
use arrow::datatypes::Decimal128Type;

use super::codes::{DeviceCopy, integers};

/// A value for each code of a lookup. Make one and keep it: values stay on the device.
pub struct Attribute {
    values: ArrayRef,
    /// The smallest and the largest integer, once somebody has asked.
    bounds: OnceLock<Option<(i128, i128)>>,
    /// Their copy on the device.
    device: DeviceCopy,
}

impl Attribute {
    /// Those of an array, by the position of each.
    pub fn new(values: ArrayRef) -> Arc<Self> {
        Arc::new(Self {
            values,
            bounds: OnceLock::new(),
            device: Mutex::new(None),
        })
    }

    /// The values.
    pub fn values(&self) -> &ArrayRef {
        &self.values
    }

    /// The smallest and the largest of integers; `None` if there are none.
    pub(crate) fn bounds(&self) -> Option<(i128, i128)> {
        *self.bounds.get_or_init(|| bounds_of(&self.values))
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
        std::ptr::eq(self, other) || self.values.as_ref() == other.values.as_ref()
    }
}

impl fmt::Debug for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (values, data_type) = (self.values.len(), self.values.data_type());
        write!(f, "Attribute({values} values, {data_type})")
    }
}
