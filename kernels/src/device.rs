//! Defines structs, enums and constants once, for host code and for kernels.

/// Fields of device structs: integers, and arrays of them.
pub(crate) trait DeviceField: Copy {
    /// Writes the value, little-endian, over the first bytes of `out`. Returns the others.
    fn put(self, out: &mut [u8]) -> &mut [u8];
}

macro_rules! device_fields {
    ($($type:ty),*) => {
        $(impl DeviceField for $type {
            #[inline]
            fn put(self, out: &mut [u8]) -> &mut [u8] {
                let (own, others) = out.split_at_mut(size_of::<Self>());
                own.copy_from_slice(&self.to_le_bytes());
                others
            }
        })*
    };
}

device_fields!(u8, u16, u32, u64, i32, i64);

impl<T: DeviceField, const N: usize> DeviceField for [T; N] {
    #[inline]
    fn put(self, out: &mut [u8]) -> &mut [u8] {
        self.into_iter().fold(out, |out, value| value.put(out))
    }
}

/// Defines a struct that host code writes and kernels read. Types of fields have the same names in both languages.
/// `CODE` is the definition for device code, with the same comments. A struct with padding does not compile, so both
/// have the same layout.
macro_rules! device_struct {
    (
        $(#[doc = $doc:literal])*
        pub struct $name:ident {
            $($(#[doc = $about:literal])* pub $field:ident: $type:tt,)+
        }
    ) => {
        $(#[doc = $doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[repr(C)]
        pub struct $name {
            $($(#[doc = $about])* pub $field: $type,)+
        }

        impl $name {
            /// The definition for device code.
            pub(crate) const CODE: &str = concat!(
                $("//", $doc, "\n",)*
                "struct ", stringify!($name), " {\n",
                $($("    //", $about, "\n",)* "    ", $crate::device::declaration!($type $field), ";\n",)+
                "};\n\n",
            );

            /// Bytes of one.
            pub const BYTES: usize = size_of::<Self>();

            /// The bytes that kernels read.
            pub fn to_bytes(self) -> [u8; Self::BYTES] {
                let mut bytes = [0; Self::BYTES];
                let out = &mut bytes[..];
                $(let out = $crate::device::DeviceField::put(self.$field, out);)+
                debug_assert!(out.is_empty());
                bytes
            }
        }

        const _: () = assert!(size_of::<$name>() == 0 $(+ size_of::<$type>())+, "no padding");
    };
}

/// A field in device code.
macro_rules! declaration {
    ([$type:ident; $len:literal] $field:ident) => {
        concat!(
            stringify!($type),
            " ",
            stringify!($field),
            "[",
            stringify!($len),
            "]"
        )
    };
    ($type:ident $field:ident) => {
        concat!(stringify!($type), " ", stringify!($field))
    };
}

/// Defines an enum, with the names of its variants in device code, which are numbered from 0 on.
macro_rules! device_enum {
    (
        $(#[doc = $doc:literal])*
        pub enum $name:ident {
            $($(#[doc = $about:literal])* $variant:ident = $code:ident,)+
        }
    ) => {
        $(#[doc = $doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[doc = $about])* $variant,)+
        }

        impl $name {
            /// The definition for device code.
            pub(crate) const CODE: &str = concat!(
                $("//", $doc, "\n",)*
                "enum ", stringify!($name), " {\n",
                $("    ", stringify!($code), ",", $("  //", $about,)* "\n",)+
                "};\n\n",
            );
        }
    };
}

/// Defines constants, and their definition for device code.
macro_rules! device_constants {
    (
        $(#[doc = $doc:literal])*
        $code:ident {
            $($(#[doc = $about:literal])* $visible:vis $name:ident: $type:ty = $value:literal,)+
        }
    ) => {
        $($(#[doc = $about])* $visible const $name: $type = $value;)+

        $(#[doc = $doc])*
        pub(crate) const $code: &str = concat!(
            $("//", $doc, "\n",)*
            "enum {\n",
            $("    ", stringify!($name), " = ", stringify!($value), ",", $("  //", $about,)* "\n",)+
            "};\n\n",
        );
    };
}

pub(crate) use {declaration, device_constants, device_enum, device_struct};

#[cfg(test)]
mod tests {
    device_struct! {
        /// Of a test.
        pub struct Sample {
            pub small: u16,
            pub bytes: [u8; 6],
            /// Signed.
            pub large: i64,
        }
    }

    device_enum! {
        /// Two.
        pub enum Two {
            /// The first.
            First = FIRST,
            Second = SECOND,
        }
    }

    #[test]
    fn definitions_are_the_same_in_both_languages() {
        assert_eq!(
            Sample::CODE,
            "// Of a test.\nstruct Sample {\n    u16 small;\n    u8 bytes[6];\n    // Signed.\n    i64 large;\n};\n\n"
        );
        let sample = Sample {
            small: 0x201,
            bytes: [3, 4, 5, 6, 7, 8],
            large: -2,
        };
        let bytes = sample.to_bytes();
        assert_eq!(bytes[..9], [1, 2, 3, 4, 5, 6, 7, 8, 0xfe]);
        assert_eq!(bytes[9..], [0xff; 7]);
        assert_eq!(
            Two::CODE,
            "// Two.\nenum Two {\n    FIRST,  // The first.\n    SECOND,\n};\n\n"
        );
        assert_eq!([Two::First as u32, Two::Second as u32], [0, 1]);
    }
}
