//! ORC: streams for decoders, and damaged files.

use futures::executor::block_on;
use vectile_orc::{Codec, Compression, Decoder, File, Sign, Values};

use crate::containers::{damaged, object, read_all};

/// The most values to decode.
const MAX_VALUES: usize = 1 << 16;

/// The first byte chooses decoder and compression, two more the number of values, and the rest is a stream.
pub fn decoders(data: &[u8]) {
    let Some((&[pick, low, high], stream)) = data.split_first_chunk() else { return };
    let decoders = [
        Decoder::Boolean,
        Decoder::ByteRle,
        Decoder::RleV1(Sign::Signed),
        Decoder::RleV1(Sign::Unsigned),
        Decoder::RleV2(Sign::Signed),
        Decoder::RleV2(Sign::Unsigned),
        Decoder::Decimals,
        Decoder::Bytes,
    ];
    let compressions =
        [Compression::None, Compression::Zlib, Compression::Snappy, Compression::Lz4, Compression::Zstd];
    let compression = compressions[usize::from(pick / 8) % compressions.len()];
    let count = usize::from(u16::from_le_bytes([low, high])) % MAX_VALUES;
    let codec = Codec::try_new(compression, 1 << 16).expect("a size that blocks have");
    let Ok(bytes) = codec.inflate(&stream.to_vec().into()) else { return };
    let decoded = match decoders[usize::from(pick % 8)].decode(&bytes, count) {
        Ok(Values::Bits(bits)) => bits.len(),
        Ok(Values::Small(bytes)) => bytes.len(),
        Ok(Values::Integers(integers)) => integers.len(),
        Ok(Values::Decimals(decimals)) => decimals.len(),
        Ok(Values::Bytes(bytes)) => bytes.len(),
        Err(_) => return,
    };
    assert_eq!(decoded, count);
}

/// Files to damage.
const FILES: [&[u8]; 4] = [
    include_bytes!("../../crates/orc/tests/data/types.v1-none.orc"),
    include_bytes!("../../crates/orc/tests/data/types.v1-zlib.orc"),
    include_bytes!("../../crates/orc/tests/data/integers.v2-none.orc"),
    include_bytes!("../../crates/orc/tests/data/scan.stripes.orc"),
];

/// The first byte chooses a file. Others are its damage.
pub fn file(data: &[u8]) {
    let Some((&pick, damages)) = data.split_first() else { return };
    let (store, meta) = object(damaged(FILES[usize::from(pick) % FILES.len()], damages));
    let Ok(file) = block_on(File::open(store, &meta)) else { return };
    read_all(&file);
}
