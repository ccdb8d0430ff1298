//! Values of the codes of a lookup.

use std::fmt;
use std::sync::{Arc, OnceLock};

use arrow::array::{Array, ArrayRef, AsArray, UInt32Array};
use arrow::compute::{max, min, take};
use arrow::datatypes::{DataType, Decimal128Type};

use super::device_key_table::Fetch;
use super::key_table::DeviceCopies;
use super::perfect_hash::integers;
use crate::error::{Error, Result};

/// A value for each code of a lookup. Make one and keep it: values stay on the device.
pub struct PayloadColumn {
    data_type: DataType,
    len: usize,
    is_nullable: bool,
    /// Those that are made when they are wanted are not here before somebody asks for all.
    values: OnceLock<ArrayRef>,
    made: Option<Make>,
    /// The smallest and the largest integer, once somebody has asked.
    bounds: OnceLock<Option<(i128, i128)>>,
    /// Their copies on devices.
    device: DeviceCopies,
}

/// How values come about.
enum Make {
    /// All are copied back from the device.
    Fetch(Fetch<ArrayRef>),
    /// Each is computed of its code.
    Each(EachValue),
}

/// Computes the values of some codes.
type EachValue = Box<dyn Fn(&[Option<u32>]) -> Result<ArrayRef> + Send + Sync>;

impl PayloadColumn {
    /// Those of an array, by the position of each.
    pub fn new(values: ArrayRef) -> Arc<Self> {
        Arc::new(Self {
            data_type: values.data_type().clone(),
            len: values.len(),
            is_nullable: values.null_count() > 0,
            values: values.into(),
            made: None,
            bounds: OnceLock::new(),
            device: DeviceCopies::default(),
        })
    }

    /// Those that are on the device, as `like` has them, and may be fetched.
    pub(crate) fn made(
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
            made: Some(Make::Fetch(fetch)),
            bounds: bounds.into(),
            device,
        })
    }

    /// Those of so many codes that `each` computes; null codes have null.
    pub(crate) fn computed(
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
            made: Some(Make::Each(Box::new(each))),
            bounds: bounds.into(),
            device: DeviceCopies::default(),
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
        if let Some(values) = self.values.get() {
            return Ok(Arc::clone(values));
        }
        let values = match &self.made {
            Some(Make::Fetch(fetch)) => fetch()?,
            Some(Make::Each(each)) => {
                let codes: Vec<Option<u32>> = (0..self.len as u32).map(Some).collect();
                each(&codes)?
            }
            None => return Err(Error::Internal("an attribute without values".into())),
        };
        Ok(Arc::clone(self.values.get_or_init(|| values)))
    }

    /// The values of some codes, without all others if that is possible; null codes have null.
    ///
    /// # Errors
    ///
    /// As [`values`](Self::values); if there is no such code.
    pub fn at(&self, codes: &UInt32Array) -> Result<ArrayRef> {
        if let (None, Some(Make::Each(each))) = (self.values.get(), &self.made) {
            let is_there = |code: Option<u32>| code.is_none_or(|code| (code as usize) < self.len);
            let codes: Vec<Option<u32>> = codes.iter().collect();
            return match codes.iter().copied().all(is_there) {
                true => each(&codes),
                false => Err(Error::Internal("a code that is not there".into())),
            };
        }
        let values = take(&self.values()?, codes, None);
        Ok(values.map_err(vectile_encodings::Error::from)?)
    }

    /// The smallest and the largest of integers; `None` if that is not known, or there are none.
    pub(crate) fn bounds(&self) -> Option<(i128, i128)> {
        let of_values = || self.values.get().and_then(bounds_of);
        *self.bounds.get_or_init(of_values)
    }

    /// Where who executes keeps their copies on devices.
    pub(crate) fn device_copies(&self) -> &DeviceCopies {
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
