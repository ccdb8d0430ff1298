//! Values of fixed length, as integers of 64 bits.

use crate::error::{Fault, corrupt, ensure, unsupported};

/// The stored form of a value, and the integer that it becomes: that of its Arrow type, as the `parquet` crate casts it.
/// Floats become their bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The low bits of four bytes.
    I8,
    I16,
    I32,
    U8,
    U16,
    U32,
    /// Eight bytes.
    I64,
    /// A signed number of so many bytes, the highest first.
    BigEndian(usize),
}

impl Form {
    /// Bytes of a value.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::I64 => 8,
            Self::BigEndian(bytes) => bytes,
            _ => 4,
        }
    }

    /// Reads as many values as `out` has room for from the start of `bytes`.
    ///
    /// # Errors
    ///
    /// [`Fault::Corrupt`] if there are fewer bytes, [`Fault::Unsupported`] if a value has more than 64 bits.
    pub(crate) fn read(self, bytes: &[u8], out: &mut [i64]) -> Result<(), Fault> {
        let needed = out.len().saturating_mul(self.bytes());
        ensure(needed <= bytes.len(), || {
            format!("{} values in {} bytes", out.len(), bytes.len())
        })?;
        match self {
            Self::I8 => each(bytes, out, |word| i32::from_le_bytes(word) as i8 as i64),
            Self::I16 => each(bytes, out, |word| i32::from_le_bytes(word) as i16 as i64),
            Self::I32 => each(bytes, out, |word| i32::from_le_bytes(word) as i64),
            Self::U8 => each(bytes, out, |word| u32::from_le_bytes(word) as u8 as i64),
            Self::U16 => each(bytes, out, |word| u32::from_le_bytes(word) as u16 as i64),
            Self::U32 => each(bytes, out, |word| u32::from_le_bytes(word) as i64),
            Self::I64 => each(bytes, out, i64::from_le_bytes),
            Self::BigEndian(length) => {
                for (to, value) in out.iter_mut().zip(bytes.chunks_exact(length.max(1))) {
                    match big_endian(value) {
                        Some(value) => *to = value,
                        None => return unsupported("a decimal of more than 64 bits"),
                    }
                }
            }
        }
        Ok(())
    }

    /// The plain entries of a dictionary.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub(crate) fn entries(self, bytes: &[u8], count: usize) -> Result<Vec<i64>, Fault> {
        // each takes a byte at least
        ensure(count <= bytes.len(), || {
            format!("{count} entries in {} bytes", bytes.len())
        })?;
        let mut entries = vec![0; count];
        self.read(bytes, &mut entries)?;
        Ok(entries)
    }

    /// Casts integers of the physical type.
    pub(crate) fn cast(self, values: &mut [i64]) {
        let each = |values: &mut [i64], cast: fn(i64) -> i64| {
            values.iter_mut().for_each(|value| *value = cast(*value));
        };
        match self {
            Self::I8 => each(values, |value| value as i8 as i64),
            Self::I16 => each(values, |value| value as i16 as i64),
            Self::I32 => each(values, |value| value as i32 as i64),
            Self::U8 => each(values, |value| value as u8 as i64),
            Self::U16 => each(values, |value| value as u16 as i64),
            Self::U32 => each(values, |value| value as u32 as i64),
            Self::I64 | Self::BigEndian(_) => {}
        }
    }
}

#[inline(always)]
fn each<const N: usize>(bytes: &[u8], out: &mut [i64], value: impl Fn([u8; N]) -> i64) {
    let (words, _) = bytes.as_chunks();
    for (to, word) in out.iter_mut().zip(words) {
        *to = value(*word);
    }
}

/// A signed number, the highest byte first; `None` if it has more than 64 bits.
#[inline]
fn big_endian(bytes: &[u8]) -> Option<i64> {
    let (high, low) = bytes.split_at(bytes.len().saturating_sub(8));
    let sign = match bytes.first() {
        Some(0x80..) => -1,
        _ => 0,
    };
    let value = low
        .iter()
        .fold(sign, |value: i64, byte| value << 8 | i64::from(*byte));
    let extension = (value >> 63) as u8;
    high.iter().all(|byte| *byte == extension).then_some(value)
}

/// Values whose first bytes precede all second bytes, and so on.
#[derive(Debug)]
pub(crate) struct Split<'a> {
    form: Form,
    bytes: &'a [u8],
    /// Values in `bytes`.
    count: usize,
    next: usize,
    joined: Vec<u8>,
}

impl<'a> Split<'a> {
    pub(crate) fn new(form: Form, bytes: &'a [u8]) -> Self {
        Self {
            form,
            bytes,
            count: bytes.len().checked_div(form.bytes()).unwrap_or(0),
            next: 0,
            joined: Vec::new(),
        }
    }

    /// As [`Form::read`], the next values.
    pub(crate) fn read(&mut self, out: &mut [i64]) -> Result<(), Fault> {
        let end = self.next.saturating_add(out.len());
        if end > self.count {
            return corrupt(format!("{end} values in streams of {} bytes", self.count));
        }
        let length = self.form.bytes();
        self.joined.resize(out.len() * length, 0);
        for (index, stream) in self
            .bytes
            .chunks_exact(self.count.max(1))
            .take(length)
            .enumerate()
        {
            let stream = stream.get(self.next..end).unwrap_or_default();
            let to = self.joined.iter_mut().skip(index).step_by(length);
            to.zip(stream).for_each(|(to, byte)| *to = *byte);
        }
        self.next = end;
        self.form.read(&self.joined, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_their_arrow_types() {
        let bytes = [(-2i32).to_le_bytes(), 300i32.to_le_bytes()].concat();
        for (form, expected) in [
            (Form::I8, [-2, 44]),
            (Form::I16, [-2, 300]),
            (Form::I32, [-2, 300]),
            (Form::U8, [254, 44]),
            (Form::U16, [65534, 300]),
            (Form::U32, [4_294_967_294, 300]),
        ] {
            let mut out = [0; 2];
            form.read(&bytes, &mut out).unwrap();
            assert_eq!(out, expected, "{form:?}");
            let mut cast = [-2, 300];
            form.cast(&mut cast);
            assert_eq!(cast, expected, "{form:?}");
            assert!(form.read(&bytes[1..], &mut out).is_err());
        }
    }

    #[test]
    fn decimals_have_up_to_64_bits() {
        for value in [0i128, 1, -1, 255, -256, i64::MAX.into(), i64::MIN.into()] {
            let bytes = value.to_be_bytes();
            for start in 0..16 {
                let bytes = &bytes[start..];
                let shift = 128 - 8 * bytes.len() as u32;
                if value << shift >> shift == value {
                    assert_eq!(big_endian(bytes), Some(value as i64), "{value}");
                }
            }
        }
        for value in [
            i128::from(i64::MAX) + 1,
            i128::from(i64::MIN) - 1,
            i128::MAX,
        ] {
            assert_eq!(big_endian(&value.to_be_bytes()), None);
            let read = Form::BigEndian(16).read(&value.to_be_bytes(), &mut [0]);
            assert!(matches!(read, Err(Fault::Unsupported(_))));
        }
    }

    #[test]
    fn streams_are_joined() {
        let bytes = [1, 2, 3, 0, 0, 1, 0, 0, 0, 0, 0, 0x80];
        let mut split = Split::new(Form::I32, &bytes);
        let mut out = [0; 3];
        split.read(&mut out[..1]).unwrap();
        split.read(&mut out[1..]).unwrap();
        assert_eq!(out, [1, 2, i64::from(i32::MIN) + 259]);
        assert!(split.read(&mut [0]).is_err());
        assert!(Split::new(Form::I32, &[]).read(&mut [0]).is_err());
        Split::new(Form::I32, &[]).read(&mut []).unwrap();
    }
}
