//! Inflates pages, into memory of the caller.

use std::io::Read;

use flate2::bufread::GzDecoder;
use parquet::basic::Compression;

use crate::error::{Fault, corrupt};

/// Inflates pages of one codec.
pub(crate) enum Inflater {
    Uncompressed,
    Snappy(snap::raw::Decoder),
    Gzip,
    Lz4,
    Zstd(zstd::bulk::Decompressor<'static>),
}

impl Inflater {
    /// The inflater of a codec; `None` if the `parquet` crate has to inflate it: Brotli, and Hadoop's LZ4.
    pub(crate) fn new(codec: Compression) -> Option<Self> {
        Some(match codec {
            Compression::UNCOMPRESSED => Self::Uncompressed,
            Compression::SNAPPY => Self::Snappy(snap::raw::Decoder::new()),
            Compression::GZIP(_) => Self::Gzip,
            Compression::LZ4_RAW => Self::Lz4,
            Compression::ZSTD(_) => Self::Zstd(zstd::bulk::Decompressor::new().ok()?),
            _ => return None,
        })
    }

    /// Inflates `from` to exactly the bytes of `to`.
    ///
    /// # Errors
    ///
    /// [`Fault::Corrupt`] if it has other bytes, or more or fewer.
    pub(crate) fn inflate(&mut self, from: &[u8], to: &mut [u8]) -> Result<(), Fault> {
        let expected = to.len();
        let written = match self {
            Self::Uncompressed => {
                let most = from.len().min(expected);
                if let (Some(from), Some(to)) = (from.get(..most), to.get_mut(..most)) {
                    to.copy_from_slice(from);
                }
                Ok(from.len())
            }
            // writers may leave out the page's bytes if it has none
            _ if from.is_empty() => Ok(0),
            Self::Snappy(decoder) => decoder
                .decompress(from, to)
                .map_err(|error| error.to_string()),
            Self::Gzip => gunzip(from, to).map_err(|error| error.to_string()),
            Self::Lz4 => {
                lz4_flex::block::decompress_into(from, to).map_err(|error| error.to_string())
            }
            Self::Zstd(decoder) => decoder
                .decompress_to_buffer(from, to)
                .map_err(|error| error.to_string()),
        };
        match written {
            Ok(written) if written == expected => Ok(()),
            Ok(written) => corrupt(format!("a page of {written} bytes instead of {expected}")),
            Err(reason) => corrupt(format!("a compressed page: {reason}")),
        }
    }
}

/// Inflates all members of a gzip file; returns their bytes, or one more than `to` has room for.
fn gunzip(mut from: &[u8], to: &mut [u8]) -> std::io::Result<usize> {
    let mut written = 0;
    while !from.is_empty() {
        let mut decoder = GzDecoder::new(from);
        while let Some(room) = to.get_mut(written..).filter(|room| !room.is_empty()) {
            match decoder.read(room)? {
                0 => break,
                bytes => written += bytes,
            }
        }
        // the checksum, and perhaps more bytes
        if decoder.read(&mut [0])? > 0 {
            return Ok(to.len() + 1);
        }
        from = decoder.into_inner();
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::write::GzEncoder;
    use parquet::basic::{BrotliLevel, GzipLevel, ZstdLevel};

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn pages_have_exactly_their_bytes() {
        let bytes = b"abcabcabcabcabcabcabcabc-abcabcabcabcabcabcabcabc".repeat(50);
        let (half, rest) = bytes.split_at(bytes.len() / 2);
        let zstd = |bytes: &[u8]| zstd::bulk::compress(bytes, 3).unwrap();
        let snappy = |bytes: &[u8]| snap::raw::Encoder::new().compress_vec(bytes).unwrap();
        let cases = [
            (Compression::UNCOMPRESSED, bytes.clone()),
            (Compression::SNAPPY, snappy(&bytes)),
            (Compression::GZIP(GzipLevel::default()), gzip(&bytes)),
            (
                Compression::GZIP(GzipLevel::default()),
                [gzip(half), gzip(rest)].concat(),
            ),
            (Compression::LZ4_RAW, lz4_flex::block::compress(&bytes)),
            (Compression::ZSTD(ZstdLevel::default()), zstd(&bytes)),
        ];
        for (codec, compressed) in cases {
            let mut inflater = Inflater::new(codec).unwrap();
            let mut inflated = vec![0; bytes.len()];
            inflater.inflate(&compressed, &mut inflated).unwrap();
            assert_eq!(inflated, bytes, "{codec}");
            for len in [bytes.len() - 1, bytes.len() + 1, 0] {
                let result = inflater.inflate(&compressed, &mut vec![0; len]);
                assert!(result.is_err(), "{codec} to {len} bytes");
            }
            let damaged = compressed.get(..compressed.len() - 1).unwrap();
            assert!(inflater.inflate(damaged, &mut inflated).is_err(), "{codec}");
            inflater.inflate(&[], &mut []).unwrap();
        }
        let brotli = Compression::BROTLI(BrotliLevel::default());
        assert!(Inflater::new(brotli).is_none());
        assert!(Inflater::new(Compression::LZ4).is_none());
    }
}
