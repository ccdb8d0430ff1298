//! The messages at the end of a file: postscript, footer, statistics of stripes.

use super::protobuf::Fields;
use super::statistics::ColumnStatistics;
use crate::error::{Fault, ensure};

// limits on entries: few bytes may encode many
const MAX_STRIPES: usize = 1 << 22;
const MAX_TYPES: usize = 1 << 20;
const MAX_STATISTICS: usize = 1 << 24;

/// The position of the footer and the compression of the file.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct PostScript {
    pub(crate) footer_bytes: u64,
    pub(crate) compression: u64,
    pub(crate) block_bytes: Option<u64>,
    pub(crate) metadata_bytes: u64,
    /// The revision of the writer program, counted from its first.
    pub(crate) writer_version: u64,
    pub(crate) magic: String,
}

impl PostScript {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Fault> {
        let mut message = Self::default();
        for field in Fields::of(bytes) {
            let (number, value) = field?;
            match number {
                1 => message.footer_bytes = value.unsigned()?,
                2 => message.compression = value.unsigned()?,
                3 => message.block_bytes = Some(value.unsigned()?),
                5 => message.metadata_bytes = value.unsigned()?,
                6 => message.writer_version = value.unsigned()?,
                8000 => message.magic = value.text()?.to_owned(),
                _ => (),
            }
        }
        Ok(message)
    }
}

/// Schema and stripes.
#[derive(Debug, Default)]
pub(crate) struct Footer {
    pub(crate) stripes: Vec<StripeInformation>,
    pub(crate) types: Vec<TypeMessage>,
    pub(crate) rows: u64,
    /// Rows of a index group; 0 if there are none.
    pub(crate) row_index_stride: u64,
    /// The program that wrote the file: 0 is the one in Java.
    pub(crate) writer: u64,
    pub(crate) is_encrypted: bool,
}

impl Footer {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Fault> {
        let mut message = Self::default();
        for field in Fields::of(bytes) {
            let (number, value) = field?;
            match number {
                3 => {
                    ensure(message.stripes.len() < MAX_STRIPES, || {
                        format!("more than {MAX_STRIPES} stripes")
                    })?;
                    message
                        .stripes
                        .push(StripeInformation::parse(value.message()?)?);
                }
                4 => {
                    ensure(message.types.len() < MAX_TYPES, || {
                        format!("more than {MAX_TYPES} types")
                    })?;
                    message.types.push(TypeMessage::parse(value.message()?)?);
                }
                6 => message.rows = value.unsigned()?,
                8 => message.row_index_stride = value.unsigned()?,
                9 => message.writer = value.unsigned()?,
                10 => message.is_encrypted = true,
                _ => (),
            }
        }
        Ok(message)
    }
}

/// The position of a stripe.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct StripeInformation {
    pub(crate) offset: u64,
    pub(crate) index_bytes: u64,
    pub(crate) data_bytes: u64,
    pub(crate) footer_bytes: u64,
    pub(crate) rows: u64,
}

impl StripeInformation {
    fn parse(fields: Fields<'_>) -> Result<Self, Fault> {
        let mut message = Self::default();
        for field in fields {
            let (number, value) = field?;
            match number {
                1 => message.offset = value.unsigned()?,
                2 => message.index_bytes = value.unsigned()?,
                3 => message.data_bytes = value.unsigned()?,
                4 => message.footer_bytes = value.unsigned()?,
                5 => message.rows = value.unsigned()?,
                _ => (),
            }
        }
        Ok(message)
    }
}

/// A type in the list of all types, which refer to each other by index.
#[derive(Debug, Default)]
pub(crate) struct TypeMessage {
    pub(crate) kind: u64,
    pub(crate) subtypes: Vec<u64>,
    pub(crate) field_names: Vec<String>,
    pub(crate) precision: u32,
    pub(crate) scale: u32,
}

impl TypeMessage {
    fn parse(fields: Fields<'_>) -> Result<Self, Fault> {
        let mut message = Self::default();
        for field in fields {
            let (number, value) = field?;
            match number {
                1 => message.kind = value.unsigned()?,
                2 => value.append_unsigned(&mut message.subtypes)?,
                3 => message.field_names.push(value.text()?.to_owned()),
                5 => message.precision = value.u32()?,
                6 => message.scale = value.u32()?,
                _ => (),
            }
        }
        Ok(message)
    }
}

/// Parses the statistics of every column, for each stripe; at most as many as there are.
pub(crate) fn stripe_statistics(
    bytes: &[u8],
    most_stripes: usize,
    most_columns: usize,
) -> Result<Vec<Vec<ColumnStatistics>>, Fault> {
    let mut stripes = Vec::new();
    let mut entries = 0;
    for field in Fields::of(bytes) {
        let (1, value) = field? else { continue };
        ensure(stripes.len() < most_stripes, || {
            format!("statistics of more than {most_stripes} stripes")
        })?;
        let mut columns = Vec::new();
        for field in value.message()? {
            if let (1, value) = field? {
                ensure(
                    columns.len() < most_columns && entries < MAX_STATISTICS,
                    || {
                        format!(
                            "statistics of more than {most_columns} columns, or of more than {MAX_STATISTICS} in all"
                        )
                    },
                )?;
                entries += 1;
                columns.push(ColumnStatistics::parse(value.message()?)?);
            }
        }
        stripes.push(columns);
    }
    Ok(stripes)
}
