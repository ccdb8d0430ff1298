//! Structs and constants that the kernels that decode Parquet share with their host code.

use vectile_encodings::streams::{PageEncoding, StoredValue};

use crate::device::{device_constants, device_enum, device_struct};

device_struct! {
    /// A data page to decode, inflated. 16 bytes before and behind it may be read.
    pub struct DataPage {
        /// Address of its first byte.
        pub from: u64,
        /// Address of its first value, a multiple of the bytes of one.
        pub to: u64,
        /// Address of the dictionary: an i64 for each entry.
        pub dictionary: u64,
        /// Its bytes.
        pub bytes: u32,
        /// Values to decode.
        pub count: u32,
        /// Levels of definition in front of the values, all of which have to be 1; 0 if there are none.
        pub levels: u32,
        /// A `PageCode`.
        pub encoding: u32,
        /// Bytes of a plain value, 1 to 16.
        pub width: u32,
        /// Entries of the dictionary.
        pub entries: u32,
        /// Of values: `SIGNED_VALUES`, `HIGHEST_FIRST`, `NARROW`.
        pub flags: u32,
        /// 0.
        pub unused: u32,
    }
}

device_enum! {
    /// Encodings of the values of a page.
    pub enum PageCode {
        /// Bytes of each value.
        Plain = PLAIN_VALUES,
        /// Bits, the lowest first.
        Bits = BITS_OF_VALUES,
        /// Indices of entries of the dictionary, in runs.
        Indices = INDICES,
        /// Bits in runs, behind their length.
        Runs = RUNS,
        /// Differences of integers, packed.
        Differences = DIFFERENCES,
        /// The first bytes of all values, then the second ones, and so on.
        Planes = PLANES,
    }
}

device_constants! {
    /// Flags of pages.
    PAGE_FLAGS {
        /// Values are signed.
        SIGNED_VALUES: u32 = 1,
        /// Plain values have their highest byte first, and are signed.
        HIGHEST_FIRST: u32 = 2,
        /// Values are written with 32 bits.
        NARROW: u32 = 4,
    }
}

impl PageCode {
    /// The code of pages of values that are stored like this.
    pub fn of(encoding: PageEncoding, stored: StoredValue) -> Self {
        match (encoding, stored) {
            (PageEncoding::Plain, StoredValue::Bits) => Self::Bits,
            (PageEncoding::Plain, _) => Self::Plain,
            (PageEncoding::Indices, _) => Self::Indices,
            (PageEncoding::Runs, _) => Self::Runs,
            (PageEncoding::Differences, _) => Self::Differences,
            (PageEncoding::Planes, _) => Self::Planes,
        }
    }
}

impl DataPage {
    /// The flags of values that are stored like this, and written with `width` bytes, 4 or 8.
    pub fn flags_of(stored: StoredValue, width: usize) -> u32 {
        let stored = match stored {
            StoredValue::Signed(_) => SIGNED_VALUES,
            StoredValue::BigEndian(_) => HIGHEST_FIRST,
            StoredValue::Unsigned(_) | StoredValue::Bits | StoredValue::Strings => 0,
        };
        stored | if width == 4 { NARROW } else { 0 }
    }
}
