//! What the fuzz targets share: whatever the bytes, reading them gives values or a typed error,
//! in memory and time bounded by their size. A panic, a hang or a crash is a finding.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Decimal128Array, Float32Array, Float64Array, Int64Array, StringArray, StringViewArray,
};
use arrow::datatypes::{DataType, Field, TimeUnit};
use vectile_encodings::{Column, EncodeOptions, Encoding, Predicate, Selection, ZoneMap, encode};

/// Types that stand for every branch of the parser.
fn types() -> Vec<DataType> {
    let item = Arc::new(Field::new("item", DataType::Int32, true));
    vec![
        DataType::Boolean,
        DataType::Int8,
        DataType::Int64,
        DataType::UInt64,
        DataType::Float32,
        DataType::Float64,
        DataType::Decimal128(38, 2),
        DataType::Decimal256(76, 2),
        DataType::Timestamp(TimeUnit::Microsecond, None),
        DataType::Utf8,
        DataType::Utf8View,
        DataType::LargeBinary,
        DataType::FixedSizeBinary(3),
        DataType::Null,
        DataType::Dictionary(Box::new(DataType::Int16), Box::new(DataType::Utf8)),
        DataType::List(Arc::clone(&item)),
        DataType::FixedSizeList(Arc::clone(&item), 2),
        DataType::Struct(vec![Field::new("a", DataType::Int32, true), Field::new("b", DataType::Utf8, true)].into()),
    ]
}

/// Reads `bytes` as a column chunk of `rows` rows, decodes and filters it.
pub fn read_column(bytes: &[u8], data_type: &DataType, rows: usize) {
    let _ = ZoneMap::parse(bytes.to_vec().into(), data_type, rows.min(100));
    let Ok(column) = Column::parse(bytes.to_vec().into(), data_type, rows) else { return };
    let Ok(array) = column.decode(0..rows) else { return };
    assert_eq!(array.len(), rows);
    let _ = column.decode(rows / 3..rows / 2);
    let mut selection = Selection::all(0, rows);
    let _ = column.filter(&Predicate::IsNotNull, &mut selection);
    if rows > 0 && arrow::array::Array::is_valid(&array, rows / 2) {
        let _ = column.filter(&Predicate::equal(array.slice(rows / 2, 1)), &mut selection);
    }
    let _ = column.select(&selection);
}

/// Bytes as they come: the first ones choose type and rows, the rest is the chunk.
pub fn any_column(data: &[u8]) {
    let types = types();
    if let [kind, low, high, bytes @ ..] = data {
        let rows = usize::from(u16::from_le_bytes([*low, *high])) % 5000;
        read_column(bytes, &types[usize::from(*kind) % types.len()], rows);
    }
}

/// A well-formed chunk of `encoding`, made from the first bytes, damaged by the others: each
/// triple is a position and what to change there.
pub fn damaged(encoding: Encoding, data: &[u8]) {
    let Some((seed, damage)) = data.split_first_chunk::<4>() else { return };
    let Some((array, mut bytes)) = chunk_for(encoding, *seed) else { return };
    let len = bytes.len();
    for [low, high, value] in damage.as_chunks::<3>().0 {
        let at = usize::from(u16::from_le_bytes([*low, *high])) * len.div_ceil(1 << 16).max(1);
        bytes[at % len] ^= value;
    }
    if damage.len() % 3 == 1 {
        bytes.truncate(len * usize::from(damage[damage.len() - 1]) / 256);
    }
    read_column(&bytes, array.data_type(), array.len());
}

/// A well-formed chunk and what it holds; kept, because encoding takes longer than reading.
fn chunk_for(encoding: Encoding, seed: [u8; 4]) -> Option<(ArrayRef, Vec<u8>)> {
    // training symbol tables takes so long that fewer chunks find more
    let seed = if encoding == Encoding::Fsst { seed.map(|byte| byte & 0xC1) } else { seed };
    type Chunks = HashMap<[u8; 4], Option<(ArrayRef, Vec<u8>)>>;
    thread_local!(static CHUNKS: RefCell<Chunks> = RefCell::default());
    CHUNKS.with_borrow_mut(|chunks| {
        if chunks.len() > 4096 {
            chunks.clear();
        }
        let encoded = || {
            let array = array_for(encoding, seed);
            let bytes = encode(&array, &EncodeOptions { pin: Some(encoding) }).ok()?;
            Some((array, bytes))
        };
        chunks.entry(seed).or_insert_with(encoded).clone()
    })
}

fn array_for(encoding: Encoding, [kind, rows, spread, nulls]: [u8; 4]) -> ArrayRef {
    let rows = usize::from(rows) * 9 + 1;
    let spread = u64::from(spread) + 1;
    let mut state = u64::from(kind) + 1;
    let mut next = move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % (spread * spread * spread)
    };
    let mut valid = 0u32;
    let mut is_valid = move || {
        valid = valid.wrapping_add(1);
        nulls == 0 || !valid.is_multiple_of(u32::from(nulls) + 1)
    };
    let mut value = || -> Option<u64> {
        let value = if encoding == Encoding::Constant { 7 } else { next() };
        is_valid().then_some(value)
    };
    let text = |v: u64| format!("{} the {v} final requests", v % spread);
    match (encoding, kind % 4) {
        (Encoding::Fsst, _) | (Encoding::Plain | Encoding::Dict | Encoding::Constant, 0) => {
            Arc::new((0..rows).map(|_| value().map(text)).collect::<StringArray>())
        }
        (Encoding::Plain | Encoding::Dict | Encoding::Constant, 1) => {
            Arc::new((0..rows).map(|_| value().map(text)).collect::<StringViewArray>())
        }
        (Encoding::Alp | Encoding::AlpRd, 0 | 1) => {
            Arc::new((0..rows).map(|_| value().map(|v| v as f32 / 100.0)).collect::<Float32Array>())
        }
        (Encoding::Alp | Encoding::AlpRd, _) => {
            Arc::new((0..rows).map(|_| value().map(|v| (v as f64).sqrt())).collect::<Float64Array>())
        }
        (_, 2) => Arc::new((0..rows).map(|_| value().map(|v| v.is_multiple_of(2))).collect::<BooleanArray>()),
        (_, 3) => Arc::new((0..rows).map(|_| value().map(i128::from)).collect::<Decimal128Array>()),
        _ => {
            let mut sum = 0i64;
            let values = (0..rows).map(|_| {
                value().map(|v| {
                    sum += v as i64;
                    if encoding == Encoding::Delta { sum } else { v as i64 }
                })
            });
            Arc::new(values.collect::<Int64Array>())
        }
    }
}

/// A small file, damaged by `data`: each group of four bytes is a position, a region and what to
/// change there. The checksum of the footer is mended, so that damage reaches its parser.
pub fn any_file(data: &[u8]) {
    static FILE: std::sync::LazyLock<Vec<u8>> = std::sync::LazyLock::new(|| small_file());
    let mut bytes = FILE.clone();
    let Some((offset, len, _)) = footer_of(&bytes) else { panic!("a fresh file has no footer") };
    for [region, low, high, value] in data.as_chunks::<4>().0 {
        let at = usize::from(u16::from_le_bytes([*low, *high]));
        let at = match region % 4 {
            0 => at % bytes.len(),
            1 => bytes.len() - 1 - at % (bytes.len() - offset),
            _ => offset + at % len,
        };
        bytes[at] ^= value;
    }
    mend_checksum(&mut bytes);
    futures::executor::block_on(read_file(bytes));
}

fn small_file() -> Vec<u8> {
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("i", Arc::new(Int64Array::from_iter_values((0..3000).map(|i| i * i % 77)))),
        ("s", Arc::new(StringArray::from_iter_values((0..3000).map(|i| format!("value {}", i % 13))))),
        ("f", Arc::new((0..3000).map(|i| (i % 5 > 0).then_some(f64::from(i) / 4.0)).collect::<Float64Array>())),
    ];
    let batch = arrow::array::RecordBatch::try_from_iter(columns).expect("columns of one length");
    let store: Arc<dyn object_store::ObjectStore> = Arc::new(object_store::memory::InMemory::new());
    let options = vectile_file::WriterOptions { row_group_rows: 1024, ..Default::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let mut writer = vectile_file::Writer::try_new(Arc::clone(&store), "t".into(), batch.schema(), options).expect("a writer");
        writer.write(&batch).await.expect("rows written");
        writer.finish().await.expect("a whole file");
        use object_store::ObjectStoreExt;
        store.get(&"t".into()).await.expect("the file").bytes().await.expect("its bytes").to_vec()
    })
}

async fn read_file(bytes: Vec<u8>) {
    use object_store::ObjectStoreExt;
    let store: Arc<dyn object_store::ObjectStore> = Arc::new(object_store::memory::InMemory::new());
    let location = object_store::path::Path::from("t");
    if store.put(&location, bytes.into()).await.is_err() {
        return;
    }
    let Ok(object) = store.head(&location).await else { return };
    let Ok(metadata) = vectile_file::read_metadata(&store, &object).await else { return };
    let columns: Vec<usize> = (0..metadata.schema().fields().len()).collect();
    for row_group in 0..metadata.num_row_groups().min(8) {
        let fetch = vectile_file::Fetch { row_group, data: columns.clone(), zones: columns.clone() };
        for verify_checksums in [true, false] {
            let options = vectile_file::ReadOptions { verify_checksums };
            let Ok(data) = vectile_file::read_row_group(&store, &location, &metadata, &fetch, &options).await else { continue };
            for column in data.columns.iter().flatten() {
                let _ = column.decode(0..column.len().min(4096));
            }
        }
    }
}

/// Offset and length of the footer, and where its checksum is written in hexadecimal.
fn footer_of(bytes: &[u8]) -> Option<(usize, usize, std::ops::Range<usize>)> {
    let key = b"vectile.footer";
    let tail = bytes.len().saturating_sub(4096);
    let is_pointer = |at: &usize| bytes[*at].is_ascii_digit();
    let _ = bytes[tail..].windows(key.len()).position(|window| window == key)?;
    let mut at = tail;
    while at < bytes.len() {
        if is_pointer(&at) {
            let end = (at..bytes.len()).find(|i| !(bytes[*i].is_ascii_hexdigit() || bytes[*i] == b','))?;
            let text = std::str::from_utf8(&bytes[at..end]).ok()?;
            let parts: Vec<&str> = text.split(',').collect();
            if let [offset, length, checksum] = parts.as_slice() {
                return Some((offset.parse().ok()?, length.parse().ok()?, end - checksum.len()..end));
            }
            at = end;
        }
        at += 1;
    }
    None
}

fn mend_checksum(bytes: &mut [u8]) {
    let Some((offset, length, digits)) = footer_of(bytes) else { return };
    let Some(footer) = offset.checked_add(length).and_then(|end| bytes.get(offset..end)) else { return };
    let checksum = format!("{:08x}", crc32fast::hash(footer));
    if checksum.len() == digits.len() {
        bytes[digits].copy_from_slice(checksum.as_bytes());
    }
}
