//! Text and binary of rows, one behind the other.

use arrow::array::{Array, BinaryArray};

use crate::error::{Fault, corrupt, ensure, unsupported};
use crate::hybrid::Hybrid;
use crate::levels::Levels;
use crate::pages::PageEncoding;
use crate::values::prefixed;

/// The most bytes of a row group: offsets have 32 bits.
const MAX_BYTES: usize = i32::MAX as usize;

/// The most bytes that are reserved because pages claim to have them.
const MOST_RESERVED: usize = 1 << 27;

/// The strings of a page, without its nulls.
#[derive(Debug)]
pub(crate) enum Strings<'a> {
    /// Each is preceded by its length in 4 bytes.
    Plain(&'a [u8]),
    /// Indices of entries.
    Indices(Hybrid<'a>, &'a BinaryArray),
}

impl<'a> Strings<'a> {
    /// The strings in the body of a page; the chunk's dictionary has these `entries`.
    ///
    /// # Errors
    ///
    /// [`Fault::Corrupt`], and [`Fault::Unsupported`] for other encodings.
    pub(crate) fn new(
        encoding: PageEncoding,
        body: &'a [u8],
        entries: Option<&'a BinaryArray>,
    ) -> Result<Self, Fault> {
        match (encoding, body.split_first(), entries) {
            (PageEncoding::Plain, _, _) => Ok(Self::Plain(body)),
            (PageEncoding::Dictionary, Some((width, indices)), Some(entries)) => {
                let indices = Hybrid::new(indices, usize::from(*width))?;
                Ok(Self::Indices(indices, entries))
            }
            (PageEncoding::Dictionary, _, _) => corrupt("indices without a width or a dictionary"),
            _ => unsupported(format!("text in encoding {encoding:?}")),
        }
    }

    #[inline]
    fn next(&mut self) -> Result<&'a [u8], Fault> {
        match self {
            Self::Plain(bytes) => {
                let (string, rest) = prefixed(bytes)?;
                *bytes = rest;
                Ok(string)
            }
            Self::Indices(indices, entries) => {
                let mut index = [0];
                indices.read(&mut index)?;
                let [index] = index.map(|index| index as usize);
                ensure(index < entries.len(), || {
                    format!("entry {index} of {}", entries.len())
                })?;
                Ok(entries.value(index))
            }
        }
    }
}

/// Collects the strings of rows; those of nulls are empty.
#[derive(Debug)]
pub(crate) struct Text {
    pub(crate) lengths: Vec<u64>,
    pub(crate) data: Vec<u8>,
    is_text: bool,
}

impl Text {
    /// Room for a column of so many rows and about so many bytes, which is text if `is_text` is true.
    pub(crate) fn new(rows: usize, bytes: usize, is_text: bool) -> Self {
        Self {
            lengths: Vec::with_capacity(rows),
            data: Vec::with_capacity(bytes.min(MOST_RESERVED)),
            is_text,
        }
    }

    /// Appends `rows` rows: those that have a value in `levels`, if there are nulls.
    ///
    /// # Errors
    ///
    /// [`Fault::Corrupt`] if there are fewer strings, or they are no text; [`Fault::Unsupported`] if there are too many
    /// bytes.
    pub(crate) fn append(
        &mut self,
        rows: usize,
        levels: Option<&Levels>,
        strings: &mut Strings,
    ) -> Result<(), Fault> {
        let (start, first) = (self.data.len(), self.lengths.len());
        match levels {
            None => (0..rows).try_for_each(|_| self.push(strings))?,
            Some(levels) => {
                let words = levels.words(levels.rows().saturating_sub(rows), rows);
                for (word, start) in words.iter_padded().zip((0..rows).step_by(64)) {
                    for bit in 0..64.min(rows - start) {
                        match word >> bit & 1 {
                            1 => self.push(strings)?,
                            _ => self.lengths.push(0),
                        }
                    }
                }
            }
        }
        match self.is_text {
            true => self.check_text(start, first),
            false => Ok(()),
        }
    }

    #[inline]
    fn push(&mut self, strings: &mut Strings) -> Result<(), Fault> {
        let string = strings.next()?;
        if string.len() > MAX_BYTES - self.data.len() {
            return unsupported("more than 2 GB of text");
        }
        self.data.extend_from_slice(string);
        self.lengths.push(string.len() as u64);
        Ok(())
    }

    /// Checks the rows from `first` on, whose bytes start at `start`.
    fn check_text(&self, mut start: usize, first: usize) -> Result<(), Fault> {
        let bytes = self.data.get(start..).unwrap_or_default();
        if let Err(error) = std::str::from_utf8(bytes) {
            return corrupt(format!("text that is not UTF-8: {error}"));
        }
        if bytes.is_ascii() {
            return Ok(());
        }
        for length in self.lengths.get(first..).unwrap_or_default() {
            // a byte within a character
            let is_within = |byte: &u8| *byte & 0xC0 == 0x80;
            if self.data.get(start).is_some_and(is_within) {
                return corrupt("text that ends within a character");
            }
            start += *length as usize;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(strings: &[&[u8]]) -> Vec<u8> {
        let prefixed = strings.iter().map(|string| {
            let length = (string.len() as u32).to_le_bytes();
            [&length, *string].concat()
        });
        prefixed.collect::<Vec<_>>().concat()
    }

    #[test]
    fn strings_are_joined_and_nulls_empty() {
        let mut text = Text::new(10, 0, true);
        let bytes = plain(&[b"ab", b"", "\u{e9}".as_bytes(), b"d"]);
        let mut strings = Strings::new(PageEncoding::Plain, &bytes, None).unwrap();
        text.append(2, None, &mut strings).unwrap();
        let mut levels = Levels::new(5);
        assert_eq!(levels.append(&[3, 0b10010], 5), Ok(2));
        text.append(5, Some(&levels), &mut strings).unwrap();
        assert!(text.append(1, None, &mut strings).is_err());
        let entries = BinaryArray::from(vec![&b"x"[..], b"yz"]);
        let entries = Some(&entries);
        let indices = [1, 6, 1, 2, 2];
        let mut strings = Strings::new(PageEncoding::Dictionary, &indices, entries).unwrap();
        text.append(3, None, &mut strings).unwrap();
        assert!(text.append(1, None, &mut strings).is_err());
        assert_eq!(text.lengths, [2, 0, 0, 2, 0, 0, 1, 2, 2, 2]);
        assert_eq!(text.data, "ab\u{e9}dyzyzyz".as_bytes());
        assert!(Strings::new(PageEncoding::Dictionary, &indices, None).is_err());
        assert!(Strings::new(PageEncoding::Dictionary, &[], entries).is_err());
        assert!(Strings::new(PageEncoding::Rle, &[1], entries).is_err());
    }

    #[test]
    fn text_is_utf8_string_by_string() {
        for [a, b] in [[&b"\xC3"[..], b"\xA9"], [b"\xFF", b""]] {
            let bytes = plain(&[a, b]);
            for is_text in [true, false] {
                let mut strings = Strings::Plain(&bytes);
                let appended = Text::new(2, 9, is_text).append(2, None, &mut strings);
                assert_eq!(appended.is_err(), is_text);
            }
        }
    }
}
