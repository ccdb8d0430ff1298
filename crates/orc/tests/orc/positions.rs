//! Streams decoded from the positions where index groups begin.

use std::fs;

use vectile_orc::{Decoder, File, StreamKind, Type, Values};

use crate::support::{data, files, open};

/// Values from one on, in a form that can be compared.
fn part(values: &Values, from: usize, count: usize) -> String {
    match values {
        Values::Bits(bits) => format!("{:?}", bits.slice(from, count).iter().collect::<Vec<_>>()),
        Values::Small(values) => format!("{:?}", &values[from..from + count]),
        Values::Integers(values) => format!("{:?}", &values[from..from + count]),
        Values::Decimals(values) => format!("{:?}", &values[from..from + count]),
        Values::Bytes(bytes) => format!("{:?}", &bytes[from..from + count]),
    }
}

/// Compares each stream of a column from each index group on; returns the number of comparisons.
async fn compare(file: &File, number: usize, column: &Type, stride: usize) -> usize {
    let stripe = &file.metadata().stripes()[number];
    let index = file
        .metadata()
        .root()
        .children
        .iter()
        .position(|of| of == column)
        .unwrap();
    let streams = file.streams(number, &[index]).await.unwrap();
    let encoding = stripe.encodings[column.column as usize];
    let decoder = |kind| Decoder::of(column.kind, encoding, kind).unwrap();
    let present = streams
        .iter()
        .find(|stream| stream.kind == StreamKind::Present);
    let present = present.map(|stream| {
        let bits = decoder(StreamKind::Present).decode(&stream.inflate().unwrap(), stripe.rows);
        let Ok(Values::Bits(bits)) = bits else {
            panic!("{}", column.path);
        };
        bits
    });
    // values before a row
    let before = |row: usize| match &present {
        Some(bits) => bits.slice(0, row.min(stripe.rows)).count_set_bits(),
        None => row.min(stripe.rows),
    };
    let groups = file.index_groups(number, column).await.unwrap();
    let mut compared = 0;
    for groups in &groups {
        assert_eq!(groups.positions.len(), stripe.rows.div_ceil(stride));
        let stream = streams
            .iter()
            .find(|stream| stream.kind == groups.stream)
            .unwrap();
        let decoder = decoder(stream.kind);
        // the number of bytes of text in an index group is not known
        if decoder == Decoder::Bytes {
            continue;
        }
        let start = |row: usize| match stream.kind {
            StreamKind::Present => row.min(stripe.rows),
            _ => before(row),
        };
        let all = decoder
            .decode(&stream.inflate().unwrap(), start(stripe.rows))
            .unwrap();
        for (group, &position) in groups.positions.iter().enumerate() {
            let (from, to) = (start(group * stride), start((group + 1) * stride));
            let count = to - from;
            if count == 0 {
                continue;
            }
            let bytes = stream.inflate_from(position).unwrap();
            let actual = decoder.decode(&bytes, position.values + count).unwrap();
            let (actual, expected) = (
                part(&actual, position.values, count),
                part(&all, from, count),
            );
            assert_eq!(
                actual, expected,
                "{}, {}, {position:?}",
                column.path, stream.kind
            );
            compared += usize::from(group > 0);
        }
    }
    compared
}

#[tokio::test]
async fn streams_can_be_decoded_from_each_index_group() {
    let strides = [
        ("scan.stripes", 500),
        ("types.v1-none", 100),
        ("types.v1-zlib", 100),
        ("types.v2-zstd", 100),
    ];
    let mut compared = 0;
    for (path, _) in files(&data()) {
        let name = path.file_name().unwrap().to_str().unwrap();
        let Some((_, stride)) = strides.iter().find(|(start, _)| name.starts_with(start)) else {
            continue;
        };
        let file = open(fs::read(&path).unwrap()).await.unwrap();
        for stripe in 0..file.metadata().stripes().len() {
            for column in file
                .metadata()
                .root()
                .children
                .iter()
                .filter(|column| column.children.is_empty())
            {
                compared += compare(&file, stripe, column, *stride).await;
            }
        }
    }
    assert!(compared > 300, "{compared}");
}
