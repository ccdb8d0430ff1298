//! Thrift's compact protocol, as far as this crate has to look into it before the `parquet` crate parses it.
//!
//! ```text
//! field    u8: delta of the id in the high bits (0: zigzag id follows), kind in the low bits; 0 ends a struct
//! list     u8: length in the high bits (15: varint follows), kind in the low bits
//! integer  zigzag varint; binary: varint length, bytes; bool of a field: its kind, of a list: u8
//! ```

use crate::error::{Fault, corrupt};

/// The most structs, lists and maps within each other. Parquet's have fewer than ten.
const MAX_DEPTH: usize = 32;

/// The kind of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// True or false, which the kind of a field says.
    Bool(bool),
    /// One byte.
    Byte,
    /// An integer of 16, 32 or 64 bits.
    Integer,
    /// Eight bytes.
    Double,
    /// Bytes or text.
    Binary,
    /// A list or a set.
    List,
    /// A map.
    Map,
    /// A struct.
    Struct,
    /// 16 bytes.
    Uuid,
}

impl Kind {
    fn of_code(code: u8) -> Result<Self, Fault> {
        Ok(match code {
            1 => Self::Bool(true),
            2 => Self::Bool(false),
            3 => Self::Byte,
            4..=6 => Self::Integer,
            7 => Self::Double,
            8 => Self::Binary,
            9 | 10 => Self::List,
            11 => Self::Map,
            12 => Self::Struct,
            13 => Self::Uuid,
            _ => return corrupt(format!("a value of kind {code}")),
        })
    }
}

/// Reads values from bytes.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a> {
    all: &'a [u8],
    at: usize,
    depth: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self {
            all: bytes,
            at: 0,
            depth: 0,
        }
    }

    /// Bytes read so far.
    pub(crate) fn position(&self) -> usize {
        self.at
    }

    /// The next `len` bytes.
    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'a [u8], Fault> {
        let end = self.at.checked_add(len);
        let taken = end.and_then(|end| self.all.get(self.at..end));
        match taken {
            Some(taken) => {
                self.at += len;
                Ok(taken)
            }
            None => corrupt(format!("{len} bytes where {} are left", self.left())),
        }
    }

    fn left(&self) -> usize {
        self.all.len() - self.at
    }

    fn byte(&mut self) -> Result<u8, Fault> {
        Ok(self.bytes(1)?.first().copied().unwrap_or_default())
    }

    /// An unsigned integer of up to 64 bits.
    pub(crate) fn varint(&mut self) -> Result<u64, Fault> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        corrupt("an integer of more than 64 bits")
    }

    /// A signed integer.
    pub(crate) fn integer(&mut self) -> Result<i64, Fault> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    pub(crate) fn binary(&mut self) -> Result<&'a [u8], Fault> {
        let len = self.varint()?;
        self.bytes(usize::try_from(len).unwrap_or(usize::MAX))
    }

    /// The length of a list and the kind of its values. Each takes a byte at least.
    pub(crate) fn list(&mut self) -> Result<(usize, Kind), Fault> {
        let header = self.byte()?;
        // some writers give empty lists no kind
        if header == 0 {
            return Ok((0, Kind::Byte));
        }
        let kind = Kind::of_code(header & 0xF)?;
        let len = match header >> 4 {
            15 => usize::try_from(self.varint()?).unwrap_or(usize::MAX),
            len => len.into(),
        };
        match len <= self.left() {
            true => Ok((len, kind)),
            false => corrupt(format!("a list of {len} in {} bytes", self.left())),
        }
    }

    /// A boolean of a list.
    pub(crate) fn bool_in_list(&mut self) -> Result<bool, Fault> {
        Ok(self.byte()? == 1)
    }

    /// Reads a struct: `field` reads the value of each field, or returns false to have it skipped.
    pub(crate) fn fields(
        &mut self,
        mut field: impl FnMut(&mut Self, i64, Kind) -> Result<bool, Fault>,
    ) -> Result<(), Fault> {
        self.enter()?;
        let mut id = 0;
        loop {
            let header = self.byte()?;
            if header & 0xF == 0 {
                break;
            }
            let kind = Kind::of_code(header & 0xF)?;
            id = match header >> 4 {
                0 => self.integer()?,
                delta => i64::wrapping_add(id, delta.into()),
            };
            if !field(self, id, kind)? {
                self.skip(kind, false)?;
            }
        }
        self.depth -= 1;
        Ok(())
    }

    fn enter(&mut self) -> Result<(), Fault> {
        self.depth += 1;
        match self.depth <= MAX_DEPTH {
            true => Ok(()),
            false => corrupt(format!("more than {MAX_DEPTH} nested values")),
        }
    }

    fn skip(&mut self, kind: Kind, is_in_list: bool) -> Result<(), Fault> {
        match kind {
            Kind::Bool(_) if is_in_list => self.bytes(1).map(drop),
            Kind::Bool(_) => Ok(()),
            Kind::Byte => self.bytes(1).map(drop),
            Kind::Integer => self.varint().map(drop),
            Kind::Double => self.bytes(8).map(drop),
            Kind::Binary => self.binary().map(drop),
            Kind::Uuid => self.bytes(16).map(drop),
            Kind::Struct => self.fields(|_, _, _| Ok(false)),
            Kind::List => {
                let (len, kind) = self.list()?;
                self.skip_all(len, &[kind])
            }
            Kind::Map => {
                let len = self.varint()?;
                if len == 0 {
                    return Ok(());
                }
                let kinds = self.byte()?;
                let kinds = [Kind::of_code(kinds >> 4)?, Kind::of_code(kinds & 0xF)?];
                self.skip_all(usize::try_from(len).unwrap_or(usize::MAX), &kinds)
            }
        }
    }

    fn skip_all(&mut self, len: usize, kinds: &[Kind]) -> Result<(), Fault> {
        self.enter()?;
        for _ in 0..len {
            for kind in kinds {
                self.skip(*kind, true)?;
            }
        }
        self.depth -= 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structs_are_read_field_by_field() {
        // 1: i32 = -3, 2: true, 3: list of two binaries, 20: struct { 1: i64 = 300 }, stop
        let bytes = [
            0x15, 5, 0x11, 0x19, 0x28, 1, b'a', 2, b'b', b'c', 0x0C, 40, 0x16, 0xD8, 4, 0, 0,
        ];
        let mut seen = vec![];
        let mut reader = Reader::new(&bytes);
        let read = reader.fields(|reader, id, kind| {
            seen.push((id, kind));
            if id == 1 {
                assert_eq!(reader.integer().unwrap(), -3);
            }
            Ok(id == 1)
        });
        assert_eq!((read, reader.position()), (Ok(()), bytes.len()));
        let expected = [
            (1, Kind::Integer),
            (2, Kind::Bool(true)),
            (3, Kind::List),
            (20, Kind::Struct),
        ];
        assert_eq!(seen, expected);
        for len in 0..bytes.len() {
            let mut reader = Reader::new(&bytes[..len]);
            assert!(reader.fields(|_, _, _| Ok(false)).is_err(), "{len}");
        }
    }

    #[test]
    fn depth_and_lengths_are_bounded() {
        let deep = vec![0x1C; 100_000];
        let read = Reader::new(&deep).fields(|_, _, _| Ok(false));
        assert_eq!(read, corrupt("more than 32 nested values"));
        // lists of a list of a list ..
        let deep = vec![0x19; 100_000];
        assert!(Reader::new(&deep).fields(|_, _, _| Ok(false)).is_err());
        let list = [0xF8, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F];
        assert!(Reader::new(&list).list().is_err());
    }
}
