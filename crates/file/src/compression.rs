//! Compression of encoded values as a whole: for data that is rarely read, whose patterns are longer than a value.

use crate::metadata::Compression;

const LEVEL: i32 = 3;

/// Compressed bytes decompress to at most this many, unless they are a good part of that.
const MAX_BYTES: u64 = 256 << 20;
const MAX_GROWTH: u64 = 64;

/// Upper bound on the decompressed size of `compressed` bytes, regardless of what a file says.
pub(crate) fn limit(compressed: u64) -> u64 {
    compressed.saturating_mul(MAX_GROWTH).max(MAX_BYTES)
}

/// Compresses `data`; `None` if that does not save a tenth.
pub(crate) fn compress(data: &[u8], compression: Compression) -> Option<Vec<u8>> {
    let compressed = match compression {
        Compression::None => return None,
        Compression::Zstd => zstd::bulk::compress(data, LEVEL).ok()?,
    };
    let pays = compressed.len() <= data.len() - data.len().div_ceil(10);
    (pays && data.len() as u64 <= limit(compressed.len() as u64)).then_some(compressed)
}

/// Decompresses `compressed` to `bytes` bytes, or returns the reason it cannot.
pub(crate) fn decompress(compressed: &[u8], bytes: u64) -> Result<Vec<u8>, String> {
    let limit = limit(compressed.len() as u64);
    let expected = usize::try_from(bytes).ok().filter(|_| bytes <= limit);
    let expected = expected.ok_or_else(|| format!("{bytes} bytes compressed, at most {limit}"))?;
    let mut data = Vec::new();
    data.try_reserve_exact(expected)
        .map_err(|_| format!("no memory for {bytes} bytes"))?;
    let actual = zstd::bulk::Decompressor::new()
        .and_then(|mut zstd| zstd.decompress_to_buffer(compressed, &mut data))
        .map_err(|error| format!("its values do not decompress: {error}"))?;
    match actual == expected {
        true => Ok(data),
        false => Err(format!("{actual} bytes decompressed where {bytes} belong")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pays_is_compressed_and_comes_back() {
        let data = b"encoded ".repeat(1000);
        let compressed = compress(&data, Compression::Zstd).unwrap();
        assert!(compressed.len() < 100);
        let bytes = data.len() as u64;
        assert_eq!(decompress(&compressed, bytes).unwrap(), data);
        assert_eq!(compress(&data, Compression::None), None);
        let random = |i: u64| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u8;
        let random: Vec<u8> = (0..1000).map(|i| random(i * i)).collect();
        assert_eq!(compress(&random, Compression::Zstd), None);
        assert_eq!(compress(&[], Compression::Zstd), None);
    }

    #[test]
    fn sizes_are_checked() {
        let compressed = compress(&[7; 5000], Compression::Zstd).unwrap();
        for bytes in [0, 4999, 5001, MAX_BYTES + 1, u64::MAX] {
            decompress(&compressed, bytes).unwrap_err();
        }
        decompress(&[], 10).unwrap_err();
        decompress(&compressed[..compressed.len() - 1], 5000).unwrap_err();
    }
}
