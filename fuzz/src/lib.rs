//! Shared code of the fuzz targets. Reading any bytes gives values or a typed error, in memory and time bounded by
//! their size. A panic, a hang or a crash is a finding.

mod containers;
pub mod orc;
pub mod parquet;

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BooleanArray, Decimal128Array, Float32Array, Float64Array, Int64Array, StringArray, StringViewArray,
};
use arrow::datatypes::{DataType, Field, TimeUnit};
use vectile_encodings::{
    BloomFilter, Column, EncodeOptions, Encoding, FORMAT_VERSION, Predicate, Selection, ZoneMap, encode,
};
use vectile_file::Compression;

/// Types that cover every branch of the parser.
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
        DataType::FixedSizeBinary(i32::MAX),
        DataType::FixedSizeList(item, i32::MAX),
    ]
}

/// The most bytes to decode.
const MAX_BYTES: u64 = 1 << 26;
/// Larger sizes must be refused, unless the chunk is large: none here is.
const TOO_LARGE: u64 = 1 << 30;

/// Reads `bytes` as a column chunk of `rows` rows in a file of format `version`, decodes and filters it.
pub fn read_column(bytes: &[u8], data_type: &DataType, rows: usize, version: u32) {
    if let Ok(zones) = ZoneMap::parse_version(bytes.to_vec().into(), data_type, rows.min(100), version) {
        let _ = zones.merge();
        let _ = zones.field(&[0]);
    }
    if let Ok(filter) = BloomFilter::parse(bytes.to_vec().into()) {
        let _ = filter.may_contain(&Int64Array::from(vec![7]));
    }
    let Ok(column) = Column::parse_version(bytes.to_vec().into(), data_type, rows, version) else { return };
    let Ok(size) = column.decoded_bytes(&Selection::all(0, rows)) else { return };
    if (MAX_BYTES..=TOO_LARGE).contains(&size) {
        // allowed, but too slow here
        return;
    }
    let Ok(array) = column.decode(0..rows) else { return };
    assert!(size < MAX_BYTES, "{size} bytes are decoded");
    assert_eq!(array.len(), rows);
    if let Ok(actual) = array.to_data().get_slice_memory_size() {
        // the decoded size is known in advance, except for rounding and shared memory
        assert!(actual as u64 <= 4 * size + (1 << 20), "{actual} bytes, {size} were announced");
    }
    let _ = column.decode(rows / 3..rows / 2);
    let mut selection = Selection::all(0, rows);
    let _ = column.filter(&Predicate::IsNotNull, &mut selection);
    if rows > 0 && array.is_valid(rows / 2) {
        let _ = column.filter(&Predicate::equal(array.slice(rows / 2, 1)), &mut selection);
    }
    let _ = column.select(&selection);
}

/// Arbitrary bytes: the first ones choose type and rows, the rest is the chunk.
pub fn any_column(data: &[u8]) {
    let types = types();
    if let [kind, low, high, bytes @ ..] = data {
        let rows = usize::from(u16::from_le_bytes([*low, *high])) % 5000;
        let version = if *kind < 64 { 1 } else { FORMAT_VERSION };
        read_column(bytes, &types[usize::from(*kind) % types.len()], rows, version);
    }
}

/// Reads a damaged chunk. The first byte chooses its encoding, the next ones its values, and each triple of the rest is
/// a position and a change there.
pub fn damaged(data: &[u8]) {
    let Some(([choice, seed @ ..], damage)) = data.split_first_chunk::<5>() else { return };
    let encoding = Encoding::ALL[usize::from(*choice) % Encoding::ALL.len()];
    let Some((array, mut bytes)) = chunk_for(encoding, *seed) else { return };
    let len = bytes.len();
    for [low, high, value] in damage.as_chunks::<3>().0 {
        let at = usize::from(u16::from_le_bytes([*low, *high])) * len.div_ceil(1 << 16).max(1);
        bytes[at % len] ^= value;
    }
    if damage.len() % 3 == 1 {
        bytes.truncate(len * usize::from(damage[damage.len() - 1]) / 256);
    }
    read_column(&bytes, array.data_type(), array.len(), FORMAT_VERSION);
}

/// A valid chunk and its values; cached, because encoding takes longer than reading.
fn chunk_for(encoding: Encoding, seed: [u8; 4]) -> Option<(ArrayRef, Vec<u8>)> {
    // training on text takes so long that fewer distinct chunks find more
    let is_trained = matches!(encoding, Encoding::Fsst | Encoding::OnPair);
    let seed = if is_trained { seed.map(|byte| byte & 0xC1) } else { seed };
    type Chunks = HashMap<(Encoding, [u8; 4]), Option<(ArrayRef, Vec<u8>)>>;
    thread_local!(static CHUNKS: RefCell<Chunks> = RefCell::default());
    CHUNKS.with_borrow_mut(|chunks| {
        if chunks.len() > 4096 {
            chunks.clear();
        }
        let encoded = || {
            let array = array_for(encoding, seed);
            let bytes = encode(&array, &EncodeOptions::pinned(encoding)).ok()?;
            Some((array, bytes))
        };
        chunks.entry((encoding, seed)).or_insert_with(encoded).clone()
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
        (Encoding::Fsst | Encoding::OnPair, _) | (Encoding::Plain | Encoding::Dict | Encoding::Constant, 0) => {
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

/// Reads a small file, compressed or not, damaged by `data`: each group of four bytes is a position, a region and a
/// change there. The checksum of the footer is corrected, so that damage reaches its parser.
pub fn any_file(data: &[u8]) {
    static FILES: std::sync::LazyLock<[Vec<u8>; 2]> =
        std::sync::LazyLock::new(|| [Compression::None, Compression::Zstd].map(small_file));
    let mut bytes = FILES[data.len() % 2].clone();
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

fn small_file(compression: Compression) -> Vec<u8> {
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("i", Arc::new(Int64Array::from_iter_values((0..3000).map(|i| i * i % 77)))),
        ("s", Arc::new(StringArray::from_iter_values((0..3000).map(|i| format!("value {}", i % 13))))),
        ("f", Arc::new((0..3000).map(|i| (i % 5 > 0).then_some(f64::from(i) / 4.0)).collect::<Float64Array>())),
    ];
    file_of(arrow::array::RecordBatch::try_from_iter(columns).expect("columns of one length"), compression)
}

fn file_of(batch: arrow::array::RecordBatch, compression: Compression) -> Vec<u8> {
    let store: Arc<dyn object_store::ObjectStore> = Arc::new(object_store::memory::InMemory::new());
    let options = vectile_file::WriterOptions::default().with_row_group_rows(1100).with_compression(compression);
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
            let options = vectile_file::ReadOptions::default().with_verify_checksums(verify_checksums);
            let Ok(data) = vectile_file::read_row_group(&store, &location, &metadata, &fetch, &options).await else { continue };
            for column in data.columns.iter().flatten() {
                let _ = column.decode(0..column.len().min(4096));
            }
        }
    }
}

/// Offset and length of the footer, and the position of its checksum in hexadecimal.
fn footer_of(bytes: &[u8]) -> Option<(usize, usize, std::ops::Range<usize>)> {
    let key = b"vectile";
    let tail = bytes.len().saturating_sub(4096);
    let is_pointer = |at: &usize| bytes[*at].is_ascii_digit();
    let _ = bytes[tail..].windows(key.len()).position(|window| window == key)?;
    let mut at = tail;
    while at < bytes.len() {
        if is_pointer(&at) {
            let end = (at..bytes.len()).find(|i| !(bytes[*i].is_ascii_hexdigit() || bytes[*i] == b','))?;
            let text = std::str::from_utf8(&bytes[at..end]).ok()?;
            let parts: Vec<&str> = text.split(',').collect();
            if let [_version, offset, length, checksum] = parts.as_slice() {
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

/// Reads a file of nulls only, whose column claims to be of another type: nulls are valid for any type, and those of a
/// wide one are large.
pub fn any_type(data: &[u8]) {
    static FILE: std::sync::LazyLock<Vec<u8>> = std::sync::LazyLock::new(file_of_nulls);
    let mut choices = Choices { bytes: data, impossible: true };
    let data_type = type_of(&mut choices, 26);
    let schema = arrow::datatypes::Schema::new(vec![Field::new("n", data_type, true)]);
    let Ok(json) = serde_json::to_string(&schema) else { return };
    let mut bytes = FILE.clone();
    let Some((offset, _, _)) = footer_of(&bytes) else { panic!("a fresh file has no footer") };
    // version, length of the schema, schema
    let (length, start) = number_at(&bytes, offset + 1);
    if json.len() > length {
        return;
    }
    bytes[start..start + length].fill(b' ');
    bytes[start..start + json.len()].copy_from_slice(json.as_bytes());
    mend_checksum(&mut bytes);
    futures::executor::block_on(read_file(bytes));
}

fn put_number(out: &mut Vec<u8>, mut value: u128) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A number of the footer, and the offset of the next byte.
fn number_at(bytes: &[u8], mut at: usize) -> (usize, usize) {
    let (mut value, mut shift) = (0, 0);
    loop {
        let byte = bytes[at];
        value |= usize::from(byte & 0x7F) << shift;
        (at, shift) = (at + 1, shift + 7);
        if byte < 0x80 {
            return (value, at);
        }
    }
}

/// A file of nulls with room for the schema of any other type.
fn file_of_nulls() -> Vec<u8> {
    let room = HashMap::from([("room".to_owned(), "x".repeat(8000))]);
    let field = Field::new("n", DataType::Int32, true).with_metadata(room);
    let nulls = arrow::array::new_null_array(&DataType::Int32, 3000);
    let schema = Arc::new(arrow::datatypes::Schema::new(vec![field]));
    file_of(arrow::array::RecordBatch::try_new(schema, vec![nulls]).expect("columns of one length"), Compression::None)
}

/// Bytes that decide, one at a time; zeros at the end.
struct Choices<'a> {
    bytes: &'a [u8],
    /// True if types may be such that no array can have them; a file's reader refuses those.
    impossible: bool,
}

impl Choices<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        *first
    }

    /// A random width or length.
    fn size(&mut self) -> i32 {
        let size = self.number() as i32;
        if self.impossible { size } else { size & i32::MAX }
    }

    fn below(&mut self, limit: u8) -> u8 {
        self.byte() % limit
    }

    /// A number that is likely to reveal faults.
    fn number(&mut self) -> u64 {
        let byte = u64::from(self.byte());
        match byte {
            0..128 => byte,
            128..144 => 1 << (4 * (byte - 128)),
            144..160 => i32::MAX as u64 - (byte - 144),
            160..176 => u64::MAX - (byte - 160),
            176..192 => 1 << 20 | byte,
            _ => byte << 8 | u64::from(self.byte()),
        }
    }
}

/// A random type of at most `levels` levels.
fn type_of(choices: &mut Choices, levels: usize) -> DataType {
    use arrow::datatypes::{UnionFields, UnionMode};
    let simple = types();
    if levels == 1 {
        return simple[usize::from(choices.byte()) % 12].clone();
    }
    let child = |choices: &mut Choices| Arc::new(Field::new("item", type_of(choices, levels - 1), true));
    match choices.below(16) {
        0 => DataType::List(child(choices)),
        1 => DataType::LargeList(child(choices)),
        2 => DataType::ListView(child(choices)),
        3 => {
            let len = choices.size();
            DataType::FixedSizeList(child(choices), len)
        }
        4 => DataType::FixedSizeBinary(choices.size()),
        5 => DataType::Struct((0..choices.below(4)).map(|_| child(choices)).collect()),
        6 => {
            let key = Field::new("key", type_of(choices, levels - 1), choices.impossible);
            let entries = DataType::Struct(vec![Arc::new(key), child(choices)].into());
            DataType::Map(Arc::new(Field::new("entries", entries, false)), false)
        }
        7 => {
            let keys = match choices.impossible {
                true => simple[usize::from(choices.below(6))].clone(),
                false => DataType::Int8,
            };
            DataType::Dictionary(Box::new(keys), Box::new(type_of(choices, levels - 1)))
        }
        8 => {
            let ends = Arc::new(Field::new("run_ends", DataType::Int32, false));
            DataType::RunEndEncoded(ends, child(choices))
        }
        9 | 10 => {
            let mode = if choices.below(2) == 0 { UnionMode::Dense } else { UnionMode::Sparse };
            let children = choices.below(3).max(u8::from(!choices.impossible));
            let fields: Vec<_> = (0..children).map(|id| (id as i8, child(choices))).collect();
            let Ok(fields) = UnionFields::try_new(fields.iter().map(|f| f.0), fields.iter().map(|f| f.1.clone())) else {
                return DataType::Null;
            };
            DataType::Union(fields, mode)
        }
        11 if choices.impossible => DataType::Decimal128(choices.byte(), choices.byte() as i8),
        _ => simple[usize::from(choices.byte()) % simple.len()].clone(),
    }
}

/// Reads a chunk built tag by tag, so that nesting, counts and widths are hostile while most buffers fit: damage to a
/// written chunk rarely yields that.
pub fn built_column(data: &[u8]) {
    let mut choices = Choices { bytes: data, impossible: false };
    let data_type = type_of(&mut choices, 26);
    let rows = match choices.byte() {
        255 => 1 << 24,
        other => usize::from(other) * 128,
    };
    let version = 1 + u32::from(choices.below(2));
    let mut chunk = Chunk { version, header: vec![], buffers: vec![] };
    chunk.column(&mut choices, &data_type, rows as u64, 64);
    read_column(&chunk.finish(), &data_type, rows, version);
}

struct Chunk {
    version: u32,
    header: Vec<u8>,
    buffers: Vec<Vec<u8>>,
}

impl Chunk {
    const MAX_BUFFER: u64 = 1 << 20;

    fn u64(&mut self, value: u64) {
        match self.version {
            1 => self.header.extend(value.to_le_bytes()),
            _ => put_number(&mut self.header, value.into()),
        }
    }

    fn i128(&mut self, value: u64) {
        match self.version {
            1 => self.header.extend(i128::from(value).to_le_bytes()),
            _ => put_number(&mut self.header, u128::from(value) * 2),
        }
    }

    fn bitmap_bytes(&self, rows: u64) -> u64 {
        match self.version {
            1 => rows.div_ceil(1024) * 128,
            _ => rows / 1024 * 128 + (rows % 1024).div_ceil(8),
        }
    }

    fn buffer(&mut self, bytes: u64, byte: u8) {
        self.buffers.push(vec![byte; bytes.min(Self::MAX_BUFFER) as usize]);
    }

    fn column(&mut self, choices: &mut Choices, data_type: &DataType, rows: u64, levels: usize) {
        if levels == 0 || self.header.len() > 4096 {
            return;
        }
        let tag = match (choices.below(8), data_type) {
            (0, _) => choices.below(9),
            (1, _) => 0,
            (2, _) => 3,
            (_, DataType::Utf8 | DataType::Utf8View | DataType::LargeBinary | DataType::FixedSizeBinary(_)) => 6,
            (_, other) if other.is_nested() || matches!(other, DataType::Dictionary(_, _) | DataType::RunEndEncoded(_, _)) => 7,
            (_, other) if other.is_primitive() || *other == DataType::Boolean => 2,
            _ => 0,
        };
        self.header.push(tag);
        let validity = match choices.below(8) {
            0 => 1,
            1 => 2,
            2 => choices.byte(),
            // a column of type Null has only nulls
            _ => u8::from(*data_type == DataType::Null),
        };
        self.header.push(validity);
        if validity == 2 {
            let kind = choices.below(3);
            self.buffer(rows.div_ceil(1024), kind);
            let bytes = if kind == 2 { self.bitmap_bytes(rows) } else { 0 };
            self.buffer(bytes, choices.byte());
        }
        match tag {
            0 if validity != 1 => self.column(choices, data_type, 1, levels - 1),
            1 => self.buffer(rows.saturating_mul(data_type.primitive_width().unwrap_or(0) as u64), choices.byte()),
            2 => {
                self.i128(choices.number());
                self.integers(choices, rows, 32);
            }
            3 => {
                let entries = choices.number().min(rows);
                self.u64(entries);
                self.column(choices, data_type, entries, levels - 1);
                self.integers(choices, rows, 32);
            }
            6 => {
                self.header.push(0);
                let length = match data_type {
                    DataType::FixedSizeBinary(width) => *width as u64,
                    _ => choices.number(),
                };
                self.constant(length);
                let split = length.saturating_mul(rows.min(32));
                self.constant(split);
                self.buffer(split.saturating_mul(rows.div_ceil(32)), b'x');
            }
            7 => self.children(choices, data_type, rows, levels),
            _ => {}
        }
    }

    fn children(&mut self, choices: &mut Choices, data_type: &DataType, rows: u64, levels: usize) {
        match data_type {
            DataType::Struct(fields) => {
                fields.iter().for_each(|field| self.column(choices, field.data_type(), rows, levels - 1));
            }
            DataType::Dictionary(_, values) => self.column(choices, values, rows, levels - 1),
            DataType::RunEndEncoded(_, values) => self.column(choices, values.data_type(), rows, levels - 1),
            DataType::Union(fields, mode) => {
                self.column(choices, &DataType::Int8, rows, levels - 1);
                if *mode == arrow::datatypes::UnionMode::Dense {
                    self.column(choices, &DataType::Int32, rows, levels - 1);
                }
                for (_, field) in fields.iter() {
                    let rows = if choices.below(4) > 0 { rows } else { choices.number() };
                    self.u64(rows);
                    self.column(choices, field.data_type(), rows, levels - 1);
                }
            }
            DataType::List(item) | DataType::LargeList(item) | DataType::ListView(item) | DataType::Map(item, _) => {
                let length = choices.number();
                self.list(choices, item.data_type(), rows, length, levels);
            }
            DataType::FixedSizeList(item, length) => self.list(choices, item.data_type(), rows, *length as u64, levels),
            _ => {}
        }
    }

    fn list(&mut self, choices: &mut Choices, item: &DataType, rows: u64, length: u64, levels: usize) {
        let items = rows.saturating_mul(length);
        self.u64(items);
        self.constant(length);
        self.column(choices, item, items, levels - 1);
    }

    fn constant(&mut self, value: u64) {
        self.header.push(0);
        self.u64(value);
    }

    /// Constants, or runs of one value or of a whole vector, which are runs in turn.
    fn integers(&mut self, choices: &mut Choices, rows: u64, levels: usize) {
        if levels == 0 || self.header.len() > 4096 || choices.below(3) == 0 {
            return self.constant(choices.number());
        }
        let whole = choices.below(4) == 0;
        let runs = if whole { rows.div_ceil(1024) } else { rows };
        self.header.push(3);
        self.u64(runs);
        let vectors = rows.div_ceil(1024).min(Self::MAX_BUFFER / 2);
        let runs_of = |vector: u64| if whole { 1 } else { (rows - vector * 1024).min(1024) as u16 };
        self.buffers.push((0..vectors).flat_map(|vector| runs_of(vector).to_le_bytes()).collect());
        self.integers(choices, runs, levels - 1);
        match choices.below(4) {
            0 => self.integers(choices, runs, levels - 1),
            _ => self.constant(if whole { 1023 } else { 0 }),
        }
    }

    fn finish(self) -> Vec<u8> {
        if self.version > 1 {
            let mut out = vec![];
            put_number(&mut out, self.header.len() as u128);
            out.extend(self.header);
            for buffer in self.buffers {
                if buffer.len() >= 4096 {
                    out.resize(out.len().next_multiple_of(64), 0);
                }
                out.extend(buffer);
            }
            return out;
        }
        let mut out = (self.header.len() as u32).to_le_bytes().to_vec();
        out.extend((self.buffers.len() as u32).to_le_bytes());
        out.extend(self.buffers.iter().flat_map(|buffer| (buffer.len() as u64).to_le_bytes()));
        out.extend(self.header);
        for buffer in self.buffers {
            out.resize(out.len().next_multiple_of(64), 0);
            out.extend(buffer);
        }
        out
    }
}
