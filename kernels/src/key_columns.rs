//! Structs and constants that the kernel that builds key tables shares with its host code.

use crate::device::{device_enum, device_struct};

device_struct! {
    /// A column, and how its values are digits of a key or a code.
    pub struct KeyColumn {
        /// Address of the values.
        pub values: u64,
        /// Address of a byte for each row, 0 for nulls; 0 if no row is null.
        pub valid: u64,
        /// Bytes of a value.
        pub width: u64,
        /// Not 0 for signed integers.
        pub is_signed: u64,
        /// The digit of a value is its distance from this one.
        pub first: u64,
        /// The factor of the digit.
        pub stride: u64,
        /// The digit of nulls.
        pub null: u64,
    }
}

device_enum! {
    /// The steps of the kernel.
    pub enum BuildStep {
        /// Measures columns.
        Measure = MEASURE,
        /// Clears the slots of a hash table.
        Clear = CLEAR,
        /// Adds the keys of rows.
        Fill = FILL,
        /// Counts the values that are keys.
        Find = FIND,
    }
}
