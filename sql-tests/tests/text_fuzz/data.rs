//! Random tables: columns of text and binary beside a few numbers.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, Int16Array, Int32Array, Int64Array, RecordBatch, StringArray,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use vectile_sql_tests::Random;

/// Upper bound of the numbers `n`.
pub const NUMBERS: usize = 1000;
/// Upper bound of the numbers `k`.
pub const GROUPS: usize = 7;
/// Rows of a stored vector.
const VECTOR_LEN: usize = 1024;
/// Upper bound of a table's rows.
const MOST_ROWS: usize = 1 << 17;
/// Keys of the dimension; facts have a few more.
const KEYS: usize = 40;
/// The most values sampled per column for constants.
const SAMPLES: usize = 64;
/// Values that samples are taken from.
const SAMPLED_ROWS: usize = 4096;

/// A fact table and a dimension that it is joined with.
pub struct Tables {
    pub facts: Table,
    pub dimension: Table,
    /// Rows in a row group, if not the default.
    pub row_group_rows: Option<usize>,
}

pub struct Table {
    pub name: &'static str,
    pub rows: RecordBatch,
    /// Columns with a pinned encoding.
    pub pins: Vec<(String, &'static str)>,
    pub texts: Vec<Text>,
}

/// A column of text or binary.
pub struct Text {
    /// Its qualified name.
    pub name: String,
    pub data_type: DataType,
    /// Some of its values.
    pub samples: Vec<Vec<u8>>,
}

impl Text {
    pub fn is_binary(&self) -> bool {
        is_binary(&self.data_type)
    }
}

fn is_binary(data_type: &DataType) -> bool {
    use DataType::{Binary, BinaryView, LargeBinary};
    matches!(data_type, Binary | LargeBinary | BinaryView)
}

impl Tables {
    pub fn new(random: &mut Random) -> Result<Self, ArrowError> {
        Ok(Self {
            facts: facts(random)?,
            dimension: dimension(random)?,
            row_group_rows: *random.pick(&[None, None, Some(1000), Some(2048), Some(4096)]),
        })
    }
}

/// The fact table. Kernels depend on the width of numbers: each vector has the smallest and the largest, so that tables
/// share kernels.
fn facts(random: &mut Random) -> Result<Table, ArrowError> {
    let rows = rows(random);
    let is_nullable = random.chance(25);
    let mut number = |row: usize, end: usize| -> Option<i32> {
        let number = match row % VECTOR_LEN {
            0 => 0,
            1 => end - 1,
            _ => random.below(end),
        };
        (!is_nullable || random.chance(90)).then_some(number as i32)
    };
    let n: Int32Array = (0..rows).map(|row| number(row, NUMBERS)).collect();
    let k: Int16Array = (0..rows)
        .map(|row| number(row, GROUPS).map(|k| k as i16))
        .collect();
    let d: Int32Array = (0..rows).map(|row| number(row, KEYS + 5)).collect();
    // All are different. They alternate between the lower and the upper half.
    let id = (0..rows).map(|row| (row + row % 2 * MOST_ROWS / 2) % MOST_ROWS);
    let id = Int64Array::from_iter_values(id.map(|id| id as i64));
    let numbers: [(&str, ArrayRef); 4] = [
        ("id", Arc::new(id)),
        ("n", Arc::new(n)),
        ("k", Arc::new(k)),
        ("d", Arc::new(d)),
    ];
    let mut table = TableBuilder::new("t", rows);
    for (name, values) in numbers {
        table.column(name, values, Some("ffor"));
    }
    // One column that joins the dimension, and others.
    let joined = Values {
        kind: Kind::Keys,
        nulls: *random.pick(&[Nulls::None, Nulls::Some(5)]),
    };
    table.text("c0", joined, random)?;
    for name in ["c1", "c2", "c3"] {
        let values = Values::any(random);
        table.text(name, values, random)?;
    }
    table.finish()
}

fn dimension(random: &mut Random) -> Result<Table, ArrowError> {
    let key = Int32Array::from_iter_values((0..KEYS as i32).map(|key| key + 2));
    let group = Int32Array::from_iter_values((0..KEYS as i32).map(|key| key % 5));
    let mut table = TableBuilder::new("u", KEYS);
    table.column("key", Arc::new(key), None);
    table.column("g", Arc::new(group), None);
    let keys: Vec<_> = (0..KEYS)
        .map(|key| Some(key_text(key).into_bytes()))
        .collect();
    table.values("c0", DataType::Utf8View, &keys, None, random)?;
    for name in ["c1", "c2"] {
        let kind = *random.pick(&[Kind::Prose, Kind::Few, Kind::Names, Kind::Odd, Kind::Short]);
        let values = Values {
            kind,
            nulls: *random.pick(&[Nulls::None, Nulls::Some(20)]),
        };
        table.text(name, values, random)?;
    }
    table.finish()
}

fn rows(random: &mut Random) -> usize {
    let edge = [0, 1, 31, 32, 33, 1023, 1024, 1025, 2048];
    match random.below(100) {
        0..25 => *random.pick(&edge),
        25..97 => 1500 + random.below(6000),
        _ => 65_537 + random.below(5000),
    }
}

struct TableBuilder {
    name: &'static str,
    rows: usize,
    fields: Vec<Field>,
    columns: Vec<ArrayRef>,
    pins: Vec<(String, &'static str)>,
    texts: Vec<Text>,
}

impl TableBuilder {
    fn new(name: &'static str, rows: usize) -> Self {
        Self {
            name,
            rows,
            fields: vec![],
            columns: vec![],
            pins: vec![],
            texts: vec![],
        }
    }

    fn column(&mut self, name: &str, values: ArrayRef, pin: Option<&'static str>) {
        self.fields
            .push(Field::new(name, values.data_type().clone(), true));
        self.columns.push(values);
        self.pins.extend(pin.map(|pin| (name.to_owned(), pin)));
    }

    fn text(&mut self, name: &str, values: Values, random: &mut Random) -> Result<(), ArrowError> {
        use DataType::*;
        let data_type = match values.kind {
            // The key has the type of the other side.
            Kind::Keys => Utf8View,
            _ => random
                .weighted(&[
                    (50, &Utf8View),
                    (15, &Utf8),
                    (10, &LargeUtf8),
                    (10, &BinaryView),
                    (5, &Binary),
                    (5, &LargeBinary),
                ])
                .clone(),
        };
        let pin = random.weighted(&[
            (30, None),
            (20, Some("fsst")),
            (20, Some("onpair")),
            (20, Some("plain")),
            (20, Some("dict")),
        ]);
        let mut strings = values.strings(self.rows, random);
        if is_binary(&data_type) && random.chance(50) {
            strings
                .iter_mut()
                .flatten()
                .for_each(|bytes| no_text(bytes, random));
        }
        self.values(name, data_type, &strings, pin, random)
    }

    fn values(
        &mut self,
        name: &str,
        data_type: DataType,
        strings: &[Option<Vec<u8>>],
        pin: Option<&'static str>,
        random: &mut Random,
    ) -> Result<(), ArrowError> {
        let of_bytes = BinaryArray::from_iter(strings);
        let values = match is_binary(&data_type) {
            true => cast(&of_bytes, &data_type)?,
            false => cast(&StringArray::try_from_binary(of_bytes)?, &data_type)?,
        };
        let first_sampled = random.below(self.rows.saturating_sub(SAMPLED_ROWS));
        let valid: Vec<_> = strings
            .iter()
            .skip(first_sampled)
            .take(SAMPLED_ROWS)
            .flatten()
            .collect();
        let samples = match valid.is_empty() {
            true => vec![vec![], b"a".to_vec()],
            false => (0..SAMPLES)
                .map(|_| (*random.pick(&valid)).clone())
                .collect(),
        };
        self.texts.push(Text {
            name: format!("{}.{name}", self.name),
            data_type,
            samples,
        });
        self.column(name, values, pin);
        Ok(())
    }

    fn finish(self) -> Result<Table, ArrowError> {
        let schema: SchemaRef = Arc::new(Schema::new(self.fields));
        Ok(Table {
            name: self.name,
            rows: RecordBatch::try_new(schema, self.columns)?,
            pins: self.pins,
            texts: self.texts,
        })
    }
}

/// Makes bytes invalid UTF-8, occasionally.
fn no_text(bytes: &mut [u8], random: &mut Random) {
    if !bytes.is_empty() && random.chance(50) {
        let index = random.below(bytes.len());
        bytes[index] = *random.pick(&[0, 0x7f, 0x80, 0xc3, 0xfe, 0xff]);
    }
}

/// The generator of a column's values.
#[derive(Clone, Copy)]
struct Values {
    kind: Kind,
    nulls: Nulls,
}

#[derive(Clone, Copy)]
enum Kind {
    /// Sentences of few words.
    Prose,
    Urls,
    Names,
    /// Few different values.
    Few,
    /// Different values that do not compress.
    Hex,
    /// Mostly empty strings.
    Empty,
    /// Some strings of thousands of bytes.
    Long,
    /// Characters of one to four bytes.
    Characters,
    /// Special characters of patterns and of SQL.
    Odd,
    /// Few letters, so that many strings are equal or nearly.
    Short,
    /// One letter, repeated.
    Repeated,
    /// One value.
    Constant,
    /// Runs of equal values.
    Runs,
    /// Few values in some row groups, and many in others.
    Changing,
    /// Keys of the dimension.
    Keys,
}

#[derive(Clone, Copy)]
enum Nulls {
    None,
    /// This percentage of rows.
    Some(usize),
    /// Whole vectors.
    Vectors,
    All,
}

const KINDS: &[(usize, Kind)] = &[
    (20, Kind::Prose),
    (10, Kind::Urls),
    (8, Kind::Names),
    (10, Kind::Few),
    (6, Kind::Hex),
    (4, Kind::Empty),
    (6, Kind::Long),
    (10, Kind::Characters),
    (12, Kind::Odd),
    (12, Kind::Short),
    (4, Kind::Repeated),
    (2, Kind::Constant),
    (6, Kind::Runs),
    (8, Kind::Changing),
];

const NULLS: &[(usize, Nulls)] = &[
    (45, Nulls::None),
    (20, Nulls::Some(5)),
    (15, Nulls::Some(60)),
    (15, Nulls::Vectors),
    (5, Nulls::All),
];

const WORDS: &[&str] = &[
    "special",
    "requests",
    "the",
    "quickly",
    "Furiously",
    "deposits",
    "about",
    "ironic",
    "ÜBER",
    "über",
    "naïve",
    "packages",
    "sleep",
    "a",
    "carefully",
    "PROMO",
    "green",
    "forest",
    "BRUSHED",
    "楽しい",
    "accounts",
];

const CHARACTERS: &[&str] = &[
    "a",
    "b",
    "Z",
    " ",
    "ä",
    "ß",
    "ẞ",
    "é",
    "e\u{301}",
    "İ",
    "ı",
    "k",
    "\u{212a}",
    "s",
    "ſ",
    "日",
    "本",
    "語",
    "楽",
    "🚀",
    "👩‍🚀",
    "𐀀",
    "\u{10ffff}",
    "\0",
    "\u{7f}",
    "\u{80}",
    "\u{7ff}",
    "\u{800}",
    "\u{ffff}",
    "א",
    "ﬁ",
    "Σ",
    "ς",
];

const ODD: &[&str] = &[
    "%", "_", "\\", "'", "\"", "a", "b", "A", "\n", "\t", " ", ".", "*", "^", "$", "(", "[", "|",
    "?", "+", "-", "\r\n",
];

impl Values {
    fn any(random: &mut Random) -> Self {
        Self {
            kind: random.weighted(KINDS),
            nulls: random.weighted(NULLS),
        }
    }

    fn strings(self, rows: usize, random: &mut Random) -> Vec<Option<Vec<u8>>> {
        let few: Vec<String> = (0..20).map(|_| self.kind.any_of(random)).collect();
        let mut vector_is_null = false;
        let mut has_few = false;
        let mut last = self.kind.string(random, &few);
        let strings = (0..rows).map(|row| {
            if row % VECTOR_LEN == 0 {
                vector_is_null = random.chance(40);
                has_few = random.chance(50);
            }
            let is_null = match self.nulls {
                Nulls::None => false,
                Nulls::Some(percent) => random.chance(percent),
                Nulls::Vectors => vector_is_null,
                Nulls::All => true,
            };
            let is_next = match self.kind {
                Kind::Constant => false,
                Kind::Runs => random.chance(3),
                _ => true,
            };
            let kind = match self.kind {
                Kind::Changing if has_few => Kind::Few,
                kind => kind,
            };
            if is_next {
                last = kind.string(random, &few);
            }
            (!is_null).then(|| last.clone().into_bytes())
        });
        strings.collect()
    }
}

impl Kind {
    /// A value of a column that has few distinct ones.
    fn any_of(self, random: &mut Random) -> String {
        let kind = *random.pick(&[
            Kind::Prose,
            Kind::Urls,
            Kind::Names,
            Kind::Characters,
            Kind::Odd,
            Kind::Short,
        ]);
        kind.string(random, &[])
    }

    fn string(self, random: &mut Random, few: &[String]) -> String {
        match self {
            Kind::Prose | Kind::Changing => {
                let words = 1 + random.below(10);
                let words: Vec<_> = (0..words).map(|_| *random.pick(WORDS)).collect();
                words.join(random.weighted(&[(90, " "), (5, ", "), (5, "\n")]))
            }
            Kind::Urls => {
                let host = random.pick(&["www.example.org", "example.com", "ümläut.de"]);
                let path = random.pick(&["articles", "users", "a/b/c", "Search"]);
                let page = random.below(100_000);
                let end = random.pick(&["", ".html", "?page=1", "?q=a%20b", "#top"]);
                format!("https://{host}/{path}/{page}{end}")
            }
            Kind::Names => format!("Customer#{:09}", random.below(100_000)),
            Kind::Few | Kind::Constant | Kind::Runs => random.pick(few).clone(),
            Kind::Hex => format!("{:016x}{:016x}", random.number(), random.number()),
            Kind::Empty => random.weighted(&[(90, ""), (5, "a"), (5, "\0")]).into(),
            Kind::Long => {
                let words = match random.below(100) {
                    0..85 => random.below(10),
                    85..99 => random.below(400),
                    _ => random.below(10_000),
                };
                some(words, WORDS, random)
            }
            Kind::Characters => some(random.below(12), CHARACTERS, random),
            Kind::Odd => some(random.below(7), ODD, random),
            Kind::Short => some(random.below(5), &["a", "b", "é"], random),
            Kind::Repeated => {
                let most = random.weighted(&[(80, 20), (20, 300)]);
                "ab".repeat(random.below(most)) + *random.pick(&["", "a"])
            }
            Kind::Keys => key_text(random.below(KEYS + 5)),
        }
    }
}

/// The text of a key of the dimension.
fn key_text(key: usize) -> String {
    match key % 3 {
        0 => format!("key {key}"),
        1 => format!("Schlüssel-{key}"),
        _ => format!("{key}"),
    }
}

/// Joins `count` random parts.
fn some(count: usize, parts: &[&str], random: &mut Random) -> String {
    (0..count).map(|_| *random.pick(parts)).collect()
}
