//! ORC: streams for decoders, and damaged files.

use std::sync::Arc;

use futures::executor::block_on;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use vectile_orc::{Codec, Compression, Decoder, File, Sign, Values};
use vectile_scan::{Container, Fetch};

/// The most values to decode.
const MAX_VALUES: usize = 1 << 16;

/// Stripes with more rows are not decoded here: few bytes can encode many rows.
const MAX_ROWS: usize = 1 << 20;

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

/// The first byte chooses a file. Each five that follow are an offset and a replacement; a last one truncates the file.
pub fn file(data: &[u8]) {
    let Some((&pick, rest)) = data.split_first() else { return };
    let mut bytes = FILES[usize::from(pick) % FILES.len()].to_vec();
    let (damages, cut) = rest.as_chunks();
    for &[a, b, c, d, value] in damages {
        let offset = u32::from_le_bytes([a, b, c, d]) as usize;
        // from the end, where most of the parsed bytes are
        let offset = bytes.len() - 1 - offset % bytes.len();
        bytes[offset] = value;
    }
    if let Some(&cut) = cut.first() {
        bytes.truncate(bytes.len().saturating_sub(usize::from(cut)));
    }
    read(bytes);
}

/// Reads everything in a file.
fn read(bytes: Vec<u8>) {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let location = Path::from("t.orc");
    block_on(store.put(&location, bytes.into())).expect("memory");
    let meta = block_on(store.head(&location)).expect("it was put there");
    let Ok(file) = block_on(File::open(store, &meta)) else { return };
    let columns: Vec<usize> = (0..file.schema().fields().len()).collect();
    for row_group in (0..file.num_row_groups()).filter(|&row_group| file.rows(row_group) <= MAX_ROWS) {
        for &column in &columns {
            let fetch = Fetch { row_group, data: vec![column], zones: vec![column] };
            let Ok(read) = block_on(file.fetch(&fetch)) else { continue };
            let column = read.columns[column].as_ref().expect("it was asked for");
            assert_eq!(column.len(), file.rows(row_group));
        }
        let blooms = columns.iter().copied().filter(|&column| file.has_bloom_filter(row_group, column));
        let _ = block_on(file.bloom_filters(row_group, &blooms.collect::<Vec<_>>()));
    }
}
