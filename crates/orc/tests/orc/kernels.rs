//! Streams decoded by the kernels of `kernels/orc`, on a CPU instead of a GPU: the same values as from the decoders,
//! and a fault where these have an error.

use std::collections::HashMap;
use std::fs;
use std::io::Read;

use bytes::Bytes;
use flate2::read::DeflateDecoder;
use vectile_emulator::{Done, Job, JobKernel, Jobs};
use vectile_encodings::streams::{ByteStream, RunLength, RunStream, StreamColumn, StreamValues};
use vectile_kernels::{INFLATE, INFLATE_WARP_BYTES, decode_runs, decode_runs_warp_bytes};
use vectile_orc::{Codec, Compression, Decoder, File, Sign, Stream, Type, Values};
use vectile_scan::FileContainer;

use crate::support::{data, files, open};

/// A device, and its kernels.
struct Kernels(Jobs);

/// Stands for the start of the next part if there is none.
const NO_NEXT: [u32; 2] = [u32::MAX, 0];

impl Kernels {
    fn new() -> Option<Self> {
        let jobs = Jobs::new().inspect_err(|error| eprintln!("skipped: {error}"));
        jobs.ok().map(Self)
    }

    /// Decodes `count` values after the first `skip` of each stream, `None` on a fault.
    fn decode(
        &mut self,
        of: RunLength,
        value: &str,
        parts: &[(Bytes, usize, usize)],
    ) -> Vec<Option<Vec<u8>>> {
        let parts = parts.iter().map(|(input, skip, count)| CutPart {
            input: input.clone(),
            at: 0,
            skip: *skip,
            count: *count,
            next: NO_NEXT,
        });
        let values = self.decode_parts(of, value, parts.collect()).into_iter();
        values
            .map(|(values, fault)| (fault == 0).then_some(values))
            .collect()
    }

    /// Decodes parts of streams: values, and a fault of each.
    fn decode_parts(
        &mut self,
        of: RunLength,
        value: &str,
        parts: Vec<CutPart>,
    ) -> Vec<(Vec<u8>, u32)> {
        let bytes = width_of(value);
        let jobs = parts.into_iter().map(|part| {
            let left = part.input.len() - part.at;
            let [byte, values] = part.next;
            Job {
                room: part.count * bytes,
                from: part.at,
                words: vec![
                    left as u32,
                    part.skip as u32,
                    part.count as u32,
                    0,
                    byte,
                    values,
                ],
                input: part.input.into(),
                table: None,
            }
        });
        let jobs: Vec<Job> = jobs.collect();
        let kernel = JobKernel {
            source: &decode_runs(of, value),
            name: "decode_runs",
            warp_bytes: decode_runs_warp_bytes(of),
            result_words: 1,
            // what `inflate` says of chunks, of which there are none
            more: &[0],
        };
        let results = self.0.run(kernel, &jobs).unwrap().into_iter();
        results.map(|done| (done.output, done.result[0])).collect()
    }
}

/// A part of a stream, and the start of the next one.
struct CutPart {
    input: Bytes,
    at: usize,
    skip: usize,
    count: usize,
    next: [u32; 2],
}

/// Bytes of a value.
fn width_of(value: &str) -> usize {
    match value {
        "u8" => 1,
        "i64" => 8,
        other => panic!("{other}"),
    }
}

/// The kernel equivalent to a decoder, and the type of its values.
fn kernel_of(decoder: Decoder) -> Option<(RunLength, &'static str)> {
    let of = decoder.run_length()?;
    Some((of, value_of(of)))
}

fn value_of(of: RunLength) -> &'static str {
    match of {
        RunLength::Bytes => "u8",
        _ => "i64",
    }
}

/// Values as a kernel writes them; `None` if there are fewer.
fn expected(decoder: Decoder, bytes: &Bytes, skip: usize, count: usize) -> Option<Vec<u8>> {
    // bits are packed in bytes, which the kernel does not interpret
    let decoder = match decoder {
        Decoder::Boolean => Decoder::ByteRle,
        other => other,
    };
    Some(match decoder.decode(bytes, skip + count).ok()? {
        Values::Small(values) => values[skip..].to_vec(),
        Values::Integers(values) => values[skip..]
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect(),
        // beyond 64 bits there is no kernel
        Values::Decimals(values) => {
            let values = values[skip..].iter().map(|value| i64::try_from(*value));
            let values: Vec<i64> = values.collect::<Result<_, _>>().ok()?;
            values
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect()
        }
        other => panic!("{other:?}"),
    })
}

/// The number of values of a stream.
fn count_of(decoder: Decoder, bytes: &Bytes) -> usize {
    let has = |count| expected(decoder, bytes, 0, count).is_some();
    let (mut low, mut high) = (0, 1);
    while has(high) {
        (low, high) = (high, high * 2);
    }
    while low + 1 < high {
        let middle = (low + high) / 2;
        match has(middle) {
            true => low = middle,
            false => high = middle,
        }
    }
    low
}

/// A copy with a few bits flipped, or a prefix.
fn damaged(bytes: &Bytes, random: &mut impl FnMut(usize) -> usize) -> Bytes {
    let mut bytes = bytes.to_vec();
    for _ in 0..random(4) {
        if !bytes.is_empty() {
            let at = random(bytes.len());
            bytes[at] ^= 1 << random(8);
        }
    }
    if random(3) == 0 {
        bytes.truncate(random(bytes.len() + 1));
    }
    bytes.into()
}

/// Pseudo-random numbers below a bound.
fn numbers() -> impl FnMut(usize) -> usize {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    move |bound| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as usize % bound.max(1)
    }
}

fn leaves<'a>(column: &'a Type, actual: &mut Vec<&'a Type>) {
    actual.push(column);
    column
        .children
        .iter()
        .for_each(|child| leaves(child, actual));
}

/// The streams of all columns of a file.
async fn streams(file: &File) -> Vec<(Stream, Option<Decoder>)> {
    let mut all = vec![];
    let mut columns = vec![];
    leaves(file.metadata().root(), &mut columns);
    let top: Vec<usize> = (0..file.metadata().root().children.len()).collect();
    for (number, stripe) in file.metadata().stripes().iter().enumerate() {
        for stream in file.streams(number, &top).await.unwrap() {
            let column = columns.iter().find(|column| column.column == stream.column);
            let encoding = stripe.encodings[stream.column as usize];
            let decoder = column.and_then(|column| Decoder::of(column.kind, encoding, stream.kind));
            all.push((stream, decoder));
        }
    }
    all
}

#[tokio::test]
async fn runs_have_the_values_of_the_decoders() {
    let Some(mut kernels) = Kernels::new() else {
        return;
    };
    let mut random = numbers();
    let mut compared = HashMap::new();
    let mut work: HashMap<Decoder, Vec<(Bytes, usize, usize)>> = HashMap::new();
    for (path, _) in files(&data()) {
        let file = open(fs::read(&path).unwrap()).await.unwrap();
        for (stream, decoder) in streams(&file).await {
            let Some(decoder) = decoder.filter(|decoder| kernel_of(*decoder).is_some()) else {
                continue;
            };
            let bytes = stream.inflate().unwrap();
            let count = count_of(decoder, &bytes);
            let skip = random(count.min(700) + 1);
            let parts = work.entry(decoder).or_default();
            parts.push((bytes.clone(), 0, count));
            parts.push((bytes.clone(), 0, count + 1));
            parts.push((bytes.clone(), skip, random(count - skip + 1)));
            for _ in 0..4 {
                parts.push((damaged(&bytes, &mut random), 0, random(2 * count)));
            }
        }
    }
    for (decoder, parts) in work {
        let (of, value) = kernel_of(decoder).unwrap();
        for parts in parts.chunks(200) {
            let actual = kernels.decode(of, value, parts);
            for ((bytes, skip, count), actual) in parts.iter().zip(actual) {
                let expected = expected(decoder, bytes, *skip, *count);
                let is_wrong = actual != expected;
                assert!(
                    !is_wrong,
                    "{decoder:?}: {count} values behind {skip} of {bytes:?}"
                );
                *compared.entry((of, actual.is_some())).or_insert(0) += 1;
            }
        }
    }
    // both versions, both signs, bytes, and varints; with values and with faults
    assert_eq!(compared.len(), 12, "{compared:?}");
    assert!(compared.values().all(|count| *count >= 10), "{compared:?}");
}

/// The streams of runs of a column.
fn run_streams(column: StreamColumn) -> Vec<RunStream> {
    match column.values {
        StreamValues::Integers(stream)
        | StreamValues::Bits(stream)
        | StreamValues::Bytes(stream)
        | StreamValues::Codes { codes: stream, .. } => vec![stream],
        StreamValues::Decimals { digits, scales, .. } => vec![digits, scales],
        StreamValues::Timestamps {
            seconds,
            nanoseconds,
            ..
        } => vec![seconds, nanoseconds],
        StreamValues::Floats(_) | StreamValues::Strings { .. } | StreamValues::Pages(_) => {
            vec![]
        }
    }
}

fn inflate(stream: &ByteStream) -> Bytes {
    if stream.deflated.is_none() {
        return stream.bytes.as_slice().to_vec().into();
    }
    let mut inflated = vec![];
    for chunk in stream.chunks() {
        let bytes = &stream.bytes[chunk.bytes.clone()];
        match chunk.is_original {
            true => inflated.extend_from_slice(bytes),
            false => {
                let mut decoder = DeflateDecoder::new(bytes);
                decoder.read_to_end(&mut inflated).unwrap();
            }
        }
    }
    inflated.into()
}

/// The decoder of the CPU for the same runs.
fn decoder_of(of: RunLength) -> Decoder {
    let sign = |is_signed| match is_signed {
        true => Sign::Signed,
        false => Sign::Unsigned,
    };
    match of {
        RunLength::Bytes => Decoder::ByteRle,
        RunLength::V1 { is_signed } => Decoder::RleV1(sign(is_signed)),
        RunLength::V2 { is_signed } => Decoder::RleV2(sign(is_signed)),
        RunLength::Varints => Decoder::Decimals,
    }
}

#[tokio::test]
async fn parts_meet_and_have_the_values_of_their_streams() {
    let Some(mut kernels) = Kernels::new() else {
        return;
    };
    let mut met: HashMap<RunLength, usize> = HashMap::new();
    for (path, _) in files(&data()) {
        let file = open(fs::read(&path).unwrap()).await.unwrap();
        let columns: Vec<usize> = (0..file.metadata().root().children.len()).collect();
        for stripe in 0..file.metadata().stripes().len() {
            let data = file.stream_columns(stripe, &columns, None).await.unwrap();
            let data = data.columns.into_iter().map(|(_, column)| column);
            for runs in data.flat_map(run_streams) {
                let (of, value, parts) = (runs.encoding, value_of(runs.encoding), &runs.parts);
                let (input, width) = (inflate(&runs.stream), width_of(value));
                let Some(whole) = expected(decoder_of(of), &input, 0, runs.values()) else {
                    continue;
                };
                let cut = |beside: u32| {
                    let parts = parts.iter().enumerate().map(|(number, part)| {
                        let next = parts.get(number + 1).map(|next| {
                            let (byte, before) = part.meets(next).unwrap();
                            [byte + beside, before]
                        });
                        CutPart {
                            input: input.clone(),
                            at: part.offset,
                            skip: part.skip,
                            count: part.count,
                            next: next.unwrap_or(NO_NEXT),
                        }
                    });
                    parts.collect()
                };
                for (part, (values, fault)) in
                    parts.iter().zip(kernels.decode_parts(of, value, cut(0)))
                {
                    let own = &whole[part.start * width..][..part.count * width];
                    assert!(
                        values == own && fault == 0,
                        "{path:?}: {part:?} of {runs:?}"
                    );
                }
                let wrong = kernels.decode_parts(of, value, cut(1));
                let met_all = wrong.iter().rev().skip(1).all(|(_, fault)| *fault != 0);
                assert!(met_all, "{path:?}: {runs:?}");
                *met.entry(of).or_default() += parts.len() - 1;
            }
        }
    }
    assert!(
        met.len() >= 5 && met.values().all(|parts| *parts > 2),
        "{met:?}"
    );
}

#[tokio::test]
async fn chunks_are_inflated_as_on_the_cpu() {
    let Some(mut kernels) = Kernels::new() else {
        return;
    };
    let mut random = numbers();
    let mut jobs = vec![];
    for (path, _) in files(&data()) {
        let file = open(fs::read(&path).unwrap()).await.unwrap();
        for (stream, _) in streams(&file).await {
            if stream.codec.compression() != Compression::Zlib {
                continue;
            }
            let room = stream.codec.block_bytes();
            for chunk in stream.chunks() {
                let chunk = chunk.unwrap();
                let bytes = Bytes::copy_from_slice(chunk.bytes);
                jobs.push((stream.codec, chunk.is_original, bytes.clone(), room));
                for _ in 0..2 {
                    let bytes = damaged(&bytes, &mut random);
                    jobs.push((stream.codec, chunk.is_original, bytes, room));
                }
            }
        }
    }
    assert!(jobs.len() > 100, "{}", jobs.len());
    // the CPU's results come from streams of one chunk
    let expected = |codec: Codec, is_original: bool, bytes: &Bytes| {
        let header = (bytes.len() as u32) << 1 | u32::from(is_original);
        let stream = [&header.to_le_bytes()[..3], bytes].concat();
        codec.inflate(&stream.into()).ok()
    };
    let (mut right, mut faults) = (0, 0);
    for jobs in jobs.chunks(100) {
        let arguments = jobs.iter().map(|(_, is_original, bytes, room)| Job {
            input: bytes.to_vec(),
            room: *room,
            words: vec![bytes.len() as u32, *room as u32, u32::from(*is_original), 0],
            ..Job::default()
        });
        let arguments: Vec<Job> = arguments.collect();
        let kernel = JobKernel {
            source: &INFLATE.concat(),
            name: "inflate",
            warp_bytes: INFLATE_WARP_BYTES,
            result_words: 2,
            more: &[],
        };
        let actual = kernels.0.run(kernel, &arguments).unwrap();
        for ((codec, is_original, bytes, _), done) in jobs.iter().zip(actual) {
            let Done { output, result } = done;
            let expected = expected(*codec, *is_original, bytes);
            let inflated = (result[1] == 0).then(|| &output[..result[0] as usize]);
            assert_eq!(inflated, expected.as_deref(), "{bytes:?}");
            match expected {
                Some(_) => right += 1,
                None => faults += 1,
            }
        }
    }
    assert!(right > 50 && faults > 20, "{right} and {faults}");
}
