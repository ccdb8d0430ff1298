//! Compression chunks.
//!
//! ```text
//! header   u24, little-endian: 2 * length + is_original
//! bytes    `length` of them: as they are if original, else compressed, each chunk for itself
//! ```
//!
//! Every chunk inflates to one compression block at most. Without a codec there are no chunks.

use std::fmt;

use bytes::Bytes;
use flate2::{Decompress, FlushDecompress, Status};

use crate::error::{Fault, corrupt, ensure};

/// Bytes of a chunk's header.
const HEADER_BYTES: usize = 3;

/// The most bytes of a block: lengths of chunks have 23 bits.
pub(crate) const MAX_BLOCK_BYTES: u64 = 1 << 23;

/// The block size if the writer names none.
pub(crate) const DEFAULT_BLOCK_BYTES: u64 = 256 << 10;

/// The most bytes that a stream may inflate to: more than offsets of Arrow's arrays can address.
const MAX_STREAM_BYTES: usize = i32::MAX as usize;

/// Upper bound on the bytes reserved per compressed byte.
const RESERVED: usize = 64;

/// The compression method of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Not compressed.
    None,
    /// Raw Deflate, without the header and checksum of zlib.
    Zlib,
    /// Snappy, without framing.
    Snappy,
    /// An LZ4 block.
    Lz4,
    /// Zstandard frames.
    Zstd,
}

impl Compression {
    /// The compression with this code in a postscript.
    pub(crate) fn of_code(code: u64) -> Result<Self, Fault> {
        Ok(match code {
            0 => Self::None,
            1 => Self::Zlib,
            2 => Self::Snappy,
            3 => return Err(Fault::Unsupported("compression LZO is not read".into())),
            4 => Self::Lz4,
            5 => Self::Zstd,
            other => {
                let reason = format!("compression number {other} is not known");
                return Err(Fault::Unsupported(reason));
            }
        })
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Zlib => "zlib",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        })
    }
}

/// A compression and the size of its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Codec {
    compression: Compression,
    block_bytes: usize,
}

impl Codec {
    /// A codec whose blocks have at most `block_bytes`.
    ///
    /// # Errors
    ///
    /// [`Fault::Corrupt`] if blocks cannot have that size.
    pub fn try_new(compression: Compression, block_bytes: u64) -> Result<Self, Fault> {
        ensure((1..=MAX_BLOCK_BYTES).contains(&block_bytes), || {
            format!("compression blocks of {block_bytes} bytes")
        })?;
        Ok(Self {
            compression,
            block_bytes: block_bytes as usize,
        })
    }

    /// The compression method of chunks.
    pub fn compression(&self) -> Compression {
        self.compression
    }

    /// The most bytes that a chunk inflates to.
    pub fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    /// The chunks of `bytes`; all of them as one original chunk if there is no compression.
    pub fn chunks(self, bytes: &[u8]) -> Chunks<'_> {
        Chunks {
            has_headers: self.compression != Compression::None,
            bytes,
            at: 0,
        }
    }

    /// Inflates the chunks of `bytes` and concatenates the results.
    ///
    /// # Errors
    ///
    /// [`Fault::Corrupt`] if they are not valid chunks.
    pub fn inflate(self, bytes: &Bytes) -> Result<Bytes, Fault> {
        self.inflate_up_to(bytes, MAX_STREAM_BYTES)
    }

    /// As [`inflate`](Self::inflate); fails if the result exceeds `most` bytes.
    pub(crate) fn inflate_up_to(self, bytes: &Bytes, most: usize) -> Result<Bytes, Fault> {
        if self.compression == Compression::None {
            return Ok(bytes.clone());
        }
        let mut chunks = self.chunks(bytes);
        // a single original chunk needs no copy
        if let (Some(first), None) = (chunks.next(), chunks.next()) {
            let first = first?;
            if first.is_original {
                self.check_block(first.bytes.len())?;
                return Ok(bytes.slice_ref(first.bytes));
            }
        }
        let mut inflater = Inflater::new(self);
        // only address space, until it is written
        let room = self.chunks(bytes).count().saturating_mul(self.block_bytes);
        let room = room.min(most).min(bytes.len().saturating_mul(RESERVED));
        let _ = inflater.out.try_reserve_exact(room);
        for chunk in self.chunks(bytes) {
            inflater.append(chunk?)?;
            ensure(inflater.filled <= most, || {
                format!("a stream of more than {most} bytes")
            })?;
        }
        Ok(inflater.finish())
    }

    fn check_block(self, bytes: usize) -> Result<(), Fault> {
        ensure(bytes <= self.block_bytes, || {
            let most = self.block_bytes;
            format!("a chunk of {bytes} bytes, where blocks have {most}")
        })
    }
}

/// One compression chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk<'a> {
    /// The offset of its header in the stream.
    pub offset: usize,
    /// The offset of its bytes.
    pub start: usize,
    /// True if the bytes are not compressed.
    pub is_original: bool,
    /// The bytes after the header.
    pub bytes: &'a [u8],
}

/// The chunks of a stream. Nothing follows an error.
#[derive(Clone, Debug)]
pub struct Chunks<'a> {
    has_headers: bool,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Chunks<'a> {
    type Item = Result<Chunk<'a>, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        let offset = self.at;
        let rest = self.bytes.get(offset..).filter(|rest| !rest.is_empty())?;
        self.at = self.bytes.len();
        if !self.has_headers {
            return Some(Ok(Chunk {
                offset,
                start: offset,
                is_original: true,
                bytes: rest,
            }));
        }
        let Some((&[a, b, c], rest)) = rest.split_first_chunk() else {
            return Some(corrupt(format!("{} bytes of a chunk's header", rest.len())));
        };
        let header = u32::from_le_bytes([a, b, c, 0]);
        let length = (header >> 1) as usize;
        let Some(bytes) = rest.get(..length) else {
            let left = rest.len();
            return Some(corrupt(format!(
                "a chunk of {length} bytes, {left} are left"
            )));
        };
        let start = offset + HEADER_BYTES;
        self.at = start + length;
        Some(Ok(Chunk {
            offset,
            start,
            is_original: header & 1 == 1,
            bytes,
        }))
    }
}

/// Inflates chunks, with the state that they can share.
struct Inflater {
    codec: Codec,
    deflate: Decompress,
    /// The inflated bytes so far, and room for the next chunk. It is zeroed once, regardless of the size of chunks.
    out: Vec<u8>,
    filled: usize,
}

impl Inflater {
    fn new(codec: Codec) -> Self {
        Self {
            codec,
            deflate: Decompress::new(false),
            out: Vec::new(),
            filled: 0,
        }
    }

    /// The inflated bytes.
    fn finish(mut self) -> Bytes {
        self.out.truncate(self.filled);
        self.out.into()
    }

    /// Inflates `chunk` and appends the result.
    fn append(&mut self, chunk: Chunk<'_>) -> Result<(), Fault> {
        // Snappy stores the inflated size; the others get room for a block.
        let room = match self.codec.compression {
            _ if chunk.is_original => chunk.bytes.len(),
            Compression::Snappy => snap::raw::decompress_len(chunk.bytes).map_err(fault)?,
            _ => self.codec.block_bytes,
        };
        self.codec.check_block(room)?;
        let end = self.filled + room;
        if self.out.len() < end {
            self.out.resize(end, 0);
        }
        let block = self.out.get_mut(self.filled..end).unwrap_or_default();
        let inflated = match self.codec.compression {
            _ if chunk.is_original => {
                block.copy_from_slice(chunk.bytes);
                room
            }
            Compression::None => return corrupt("a compressed chunk of a stream that is not"),
            Compression::Zlib => inflate_deflate(&mut self.deflate, chunk.bytes, block)?,
            Compression::Snappy => {
                let mut decoder = snap::raw::Decoder::new();
                decoder.decompress(chunk.bytes, block).map_err(fault)?
            }
            Compression::Lz4 => {
                lz4_flex::block::decompress_into(chunk.bytes, block).map_err(fault)?
            }
            Compression::Zstd => {
                zstd::bulk::decompress_to_buffer(chunk.bytes, block).map_err(fault)?
            }
        };
        self.filled += inflated;
        Ok(())
    }
}

fn inflate_deflate(
    deflate: &mut Decompress,
    bytes: &[u8],
    block: &mut [u8],
) -> Result<usize, Fault> {
    deflate.reset(false);
    let status = deflate.decompress(bytes, block, FlushDecompress::Finish);
    match status.map_err(fault)? {
        Status::StreamEnd => Ok(deflate.total_out() as usize),
        Status::Ok | Status::BufError => {
            let (taken, most) = (deflate.total_in(), block.len());
            corrupt(format!(
                "Deflate has no end after {taken} of {} bytes and a block of {most}",
                bytes.len()
            ))
        }
    }
}

fn fault(error: impl fmt::Display) -> Fault {
    Fault::Corrupt(error.to_string())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compress;
    use flate2::FlushCompress;

    use super::*;

    fn header(length: usize, is_original: bool) -> Vec<u8> {
        let header = (length as u32) << 1 | u32::from(is_original);
        header.to_le_bytes()[..HEADER_BYTES].to_vec()
    }

    fn codec(compression: Compression) -> Codec {
        Codec::try_new(compression, 1000).unwrap()
    }

    fn compressed(compression: Compression, bytes: &[u8]) -> Vec<u8> {
        match compression {
            Compression::None => bytes.to_vec(),
            Compression::Zlib => {
                let mut out = Vec::with_capacity(2000);
                let mut deflate = Compress::new(flate2::Compression::best(), false);
                let status = deflate.compress_vec(bytes, &mut out, FlushCompress::Finish);
                assert_eq!(status.unwrap(), Status::StreamEnd);
                out
            }
            Compression::Snappy => snap::raw::Encoder::new().compress_vec(bytes).unwrap(),
            Compression::Lz4 => lz4_flex::block::compress(bytes),
            Compression::Zstd => zstd::bulk::compress(bytes, 3).unwrap(),
        }
    }

    const ALL: [Compression; 4] = [
        Compression::Zlib,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ];

    fn framed(chunks: &[(&[u8], bool)]) -> Bytes {
        let mut out = Vec::new();
        for (bytes, is_original) in chunks {
            out.write_all(&header(bytes.len(), *is_original)).unwrap();
            out.write_all(bytes).unwrap();
        }
        out.into()
    }

    #[test]
    fn chunks_follow_each_other() {
        for compression in ALL {
            let zeros = compressed(compression, &[0; 1000]);
            let text = compressed(compression, b"abcabcabcabcabcabcabcabc");
            let bytes = framed(&[(&zeros, false), (b"as it is", true), (&text, false)]);
            let inflated = codec(compression).inflate(&bytes).unwrap();
            let expected = [&[0; 1000][..], b"as it is", b"abcabcabcabcabcabcabcabc"].concat();
            assert_eq!(inflated, expected, "{compression}");
            let offsets = codec(compression)
                .chunks(&bytes)
                .map(|chunk| chunk.unwrap().offset);
            let second = HEADER_BYTES + zeros.len();
            assert!(offsets.eq([0, second, second + HEADER_BYTES + 8]));
        }
        let bytes = Bytes::from_static(b"no headers");
        assert_eq!(codec(Compression::None).inflate(&bytes).unwrap(), bytes);
    }

    #[test]
    fn damage_is_an_error() {
        for compression in ALL {
            let codec = codec(compression);
            let good = compressed(compression, &[7; 1000]);
            let long = compressed(compression, &[7; 1001]);
            let bad = [
                framed(&[(&long, false)]),
                framed(&[(&[7; 1001], true)]),
                framed(&[(&[7; 1000], true), (&[7; 1001], true)]),
                framed(&[(&good[..good.len() - 1], false)]),
                framed(&[(&good, false)]).slice(..2),
                framed(&[(&good, false)]).slice(..good.len()),
            ];
            for (number, bytes) in bad.iter().enumerate() {
                let result = codec.inflate(bytes);
                assert!(
                    matches!(result, Err(Fault::Corrupt(_))),
                    "{compression} {number}"
                );
            }
            // damaged anywhere, it may inflate to anything but more than a block
            for at in 0..good.len() {
                let mut damaged = good.clone();
                damaged[at] ^= 0x55;
                if let Ok(bytes) = codec.inflate(&framed(&[(&damaged, false)])) {
                    assert!(bytes.len() <= 1000, "{compression}");
                }
            }
        }
    }

    #[test]
    fn only_some_codecs_exist() {
        assert!(matches!(
            Compression::of_code(3),
            Err(Fault::Unsupported(_))
        ));
        assert!(matches!(
            Compression::of_code(6),
            Err(Fault::Unsupported(_))
        ));
        assert!(Codec::try_new(Compression::Zlib, 0).is_err());
        assert!(Codec::try_new(Compression::Zlib, MAX_BLOCK_BYTES + 1).is_err());
    }
}
