//! Files whose footer or postscript was changed, as other writers would have written them.

use std::fs;

use arrow::array::ArrayRef;
use arrow::compute::cast;
use arrow::datatypes::DataType;
use vectile_orc::{Error, Metadata};
use vectile_scan::Container;

use crate::support::{data, open, read};

/// A field of a message: its number, and its bytes or its number.
#[derive(Clone)]
enum Value {
    Number(u64),
    Fixed(Vec<u8>),
    Bytes(Vec<u8>),
}

/// A message of protocol buffers.
#[derive(Clone)]
struct Message(Vec<(u64, Value)>);

impl Message {
    fn parse(mut bytes: &[u8]) -> Self {
        let mut fields = vec![];
        while !bytes.is_empty() {
            let key = varint(&mut bytes);
            let mut take = |length: usize| bytes.split_off(..length).unwrap().to_vec();
            let value = match key & 7 {
                0 => Value::Number(varint(&mut bytes)),
                1 => Value::Fixed(take(8)),
                2 => {
                    let length = varint(&mut bytes) as usize;
                    Value::Bytes(bytes.split_off(..length).unwrap().to_vec())
                }
                wire => panic!("wire type {wire}"),
            };
            fields.push((key >> 3, value));
        }
        Self(fields)
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![];
        for (number, value) in &self.0 {
            match value {
                Value::Number(value) => {
                    put_varint(&mut bytes, number << 3);
                    put_varint(&mut bytes, *value);
                }
                Value::Fixed(value) => {
                    put_varint(&mut bytes, number << 3 | 1);
                    bytes.extend(value);
                }
                Value::Bytes(value) => {
                    put_varint(&mut bytes, number << 3 | 2);
                    put_varint(&mut bytes, value.len() as u64);
                    bytes.extend(value);
                }
            }
        }
        bytes
    }

    fn number(&self, field: u64) -> u64 {
        match self.0.iter().find(|(number, _)| *number == field) {
            Some((_, Value::Number(value))) => *value,
            _ => 0,
        }
    }

    fn set(&mut self, number: u64, value: u64) {
        self.0.retain(|(other, _)| *other != number);
        self.0.push((number, Value::Number(value)));
    }

    /// The fields with this number, which are messages.
    fn messages(&mut self, field: u64) -> impl Iterator<Item = &mut Value> {
        let fields = self.0.iter_mut();
        fields.filter_map(move |(number, value)| (*number == field).then_some(value))
    }
}

impl Value {
    fn change(&mut self, change: impl FnOnce(&mut Message)) {
        let Self::Bytes(bytes) = self else {
            panic!("not a message")
        };
        let mut message = Message::parse(bytes);
        change(&mut message);
        *bytes = message.bytes();
    }
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let byte = *bytes.split_off_first().unwrap();
        value |= u64::from(byte & 127) << shift;
        if byte < 128 {
            break;
        }
    }
    value
}

fn put_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 128 {
        bytes.push(value as u8 | 128);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// The fields of a file's footer.
mod footer {
    pub const STRIPE: u64 = 3;
    pub const TYPE: u64 = 4;
    pub const ROWS: u64 = 6;
    pub const WRITER: u64 = 9;
}

/// The uncompressed file `name` with another footer and postscript.
fn patched(name: &str, change: impl FnOnce(&mut Message, &mut Message)) -> Vec<u8> {
    let mut file = fs::read(data().join(name)).unwrap();
    let length = usize::from(file.pop().unwrap());
    let mut postscript = Message::parse(&file.split_off(file.len() - length));
    let length = postscript.number(1) as usize;
    let mut footer = Message::parse(&file.split_off(file.len() - length));
    change(&mut footer, &mut postscript);
    let footer = footer.bytes();
    postscript.set(1, footer.len() as u64);
    let postscript = postscript.bytes();
    file.extend(footer);
    file.extend(&postscript);
    file.push(postscript.len() as u8);
    file
}

fn column(metadata: &Metadata, name: &str) -> usize {
    metadata.schema().index_of(name).unwrap()
}

#[tokio::test]
async fn a_patch_of_nothing_changes_nothing() {
    let bytes = patched("scan.stripes.orc", |_, _| ());
    let file = open(bytes).await.unwrap();
    assert_eq!(file.metadata().num_rows(), 6000);
    let amount = column(file.metadata(), "amount");
    assert!(file.row_group_zones(amount).unwrap().has_bounds());
}

#[tokio::test]
async fn decimals_of_java_1_5_have_no_bounds() {
    let of_version = async |version| {
        let bytes = patched("scan.stripes.orc", |footer, postscript| {
            footer.set(footer::WRITER, 0);
            postscript.set(6, version);
        });
        let file = open(bytes).await.unwrap();
        ["id", "amount"].map(|name| {
            let column = column(file.metadata(), name);
            file.row_group_zones(column).unwrap().has_bounds()
        })
    };
    assert_eq!(of_version(0).await, [false, false]);
    assert_eq!(of_version(6).await, [true, false]);
    assert_eq!(of_version(7).await, [true, true]);
}

#[tokio::test]
async fn decimals_of_hive_0_11_keep_their_fraction() {
    let name = "types.v1-none.orc";
    let file = open(fs::read(data().join(name)).unwrap()).await.unwrap();
    let cents = column(file.metadata(), "cents");
    let number = file.metadata().root().children[cents].column as usize;
    let expected = read(&file).await.unwrap();
    let bytes = patched(name, |footer, _| {
        let types = footer.messages(footer::TYPE).nth(number).unwrap();
        // neither precision nor scale
        types.change(|message| message.0.retain(|(field, _)| ![5, 6].contains(field)));
    });
    let actual = read(&open(bytes).await.unwrap()).await.unwrap();
    let of_hive = |array: &ArrayRef| cast(array, &DataType::Decimal128(38, 6)).unwrap();
    assert_eq!(actual.column(cents), &of_hive(expected.column(cents)));
}

/// A footer of few bytes may name a large stripe many times.
#[tokio::test]
async fn stripes_do_not_overlap() {
    let with_stripes = async |change: fn(Vec<Value>) -> Vec<Value>| {
        let bytes = patched("scan.stripes.orc", |footer, _| {
            let stripes: Vec<Value> = footer
                .messages(footer::STRIPE)
                .map(|of| of.clone())
                .collect();
            let stripes = change(stripes);
            footer.0.retain(|(number, _)| *number != footer::STRIPE);
            footer.set(footer::ROWS, 2000 * stripes.len() as u64);
            let stripes = stripes.into_iter().map(|stripe| (footer::STRIPE, stripe));
            footer.0.extend(stripes);
        });
        open(bytes).await.map(|file| file.metadata().num_rows())
    };
    let rows = with_stripes(|stripes| stripes).await;
    assert_eq!(rows.unwrap(), 6000);
    type Change = fn(Vec<Value>) -> Vec<Value>;
    let cases: [(usize, Change); 3] = [
        (2, |stripes| {
            let second = || stripes[1].clone();
            vec![stripes[0].clone(), second(), second()]
        }),
        (1, |mut stripes| {
            stripes.swap(0, 1);
            stripes
        }),
        (1, |mut stripes| {
            // without a footer
            stripes[1].change(|stripe| stripe.set(4, 0));
            stripes
        }),
    ];
    for (stripe, change) in cases {
        let error = with_stripes(change).await.unwrap_err();
        assert!(matches!(error, Error::Corrupt { .. }), "{error}");
        let location = format!("t.orc, stripe {stripe}: ");
        assert!(error.to_string().contains(&location), "{error}");
    }
}
