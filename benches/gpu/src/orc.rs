//! Streams of ORC in device memory: decodes runs, and inflates Deflate. A warp has a part of 128 KiB of output.

use std::io::Write;
use std::sync::Arc;

use flate2::write::DeflateEncoder;
use serde_json::json;
use vectile_encodings::streams::RunLength;
use vectile_gpu::{Cuda, Driver, Kernel, Launch, Stream};
use vectile_kernels::{INFLATE, INFLATE_WARP_BYTES, decode_runs, decode_runs_warp_bytes};

use crate::bench::{Bench, RUNS, Result};
use crate::data::Random;
use crate::timing::median;

/// Bytes of output of a part.
const PART_BYTES: usize = 128 << 10;
/// Distinct parts.
const DISTINCT: usize = 64;
/// Total bytes of output.
const BYTES: usize = 2 << 30;
/// Bytes that kernels may read before and after a stream.
const SLACK: usize = 16;
const WARPS: u32 = 4;
/// No kernel writes this many of them in a row.
const POISON: u8 = 0xA7;

/// A part: the stream, and its decoded bytes.
struct StreamPart {
    stream: Vec<u8>,
    output: Vec<u8>,
}

/// Parts of one kind, and the kernel that decodes them.
struct Case {
    name: &'static str,
    format: &'static str,
    source: String,
    kernel: &'static str,
    warp_bytes: u32,
    result_words: usize,
    value_bytes: usize,
    parts: Vec<StreamPart>,
}

pub fn run(bench: &mut Bench) -> Result<()> {
    let device: Arc<dyn Driver> = Cuda::open(0)?;
    println!(
        "\norc: {} GB of output, parts of {} KiB",
        BYTES as f64 / 1e9,
        PART_BYTES >> 10
    );
    println!(
        "{:<24} {:<8} {:>8} {:>7} {:>9} {:>8} {:>11} {:>9}",
        "values", "format", "MB", "ratio", "ms", "GB/s", "G values/s", "floor/ms"
    );
    for case in runs().into_iter().chain(chunks()?) {
        measure(bench, device.as_ref(), &case)?;
    }
    Ok(())
}

fn measure(bench: &mut Bench, device: &dyn Driver, case: &Case) -> Result<()> {
    let kernel = device.compile(&case.source, case.kernel)?.kernel;
    let count = BYTES / PART_BYTES;
    let (mut input, mut arguments) = (vec![], vec![]);
    let mut offsets = vec![];
    for number in 0..count {
        input.resize(input.len() + SLACK, 0);
        offsets.push(input.len());
        input.extend_from_slice(&case.parts[number % DISTINCT].stream);
    }
    input.resize(input.len() + SLACK, 0);
    let sizes = [
        input.len(),
        BYTES,
        count * 40,
        count * 4 * case.result_words,
    ];
    let mut buffers = vec![];
    for bytes in sizes {
        buffers.push(device.allocate(bytes)?);
    }
    let &[from, to, descriptors, results] = &buffers[..] else {
        return Err("four buffers".into());
    };
    for (number, offset) in offsets.iter().enumerate() {
        let part = &case.parts[number % DISTINCT];
        let values = (part.output.len() / case.value_bytes) as u64;
        let bytes = part.stream.len() as u64;
        arguments.extend([from + *offset as u64, to + (number * PART_BYTES) as u64]);
        match case.kernel {
            // bytes, capacity, and a flag for original chunks
            "inflate" => arguments.extend([bytes | values << 32, 0]),
            // bytes, values to skip, values, the last chunk, start of the next part
            _ => arguments.extend([bytes, values, u32::MAX.into()]),
        }
    }
    let mut stream = device.stream()?;
    let grid =
        device.info().multiprocessors * kernel.resident_blocks(32 * WARPS, case.warp_bytes * WARPS);
    let args = [descriptors, count as u64, results, 0];
    let args = match case.kernel {
        "inflate" => &args[..3],
        _ => &args[..],
    };
    let launch = Launch {
        grid: grid.min((count as u32).div_ceil(WARPS)),
        block: 32 * WARPS,
        shared: case.warp_bytes * WARPS,
        args,
    };
    let mut output = vec![0u8; BYTES];
    let mut words = vec![0u32; count * case.result_words];
    // SAFETY: buffers have the sizes of the copies and of the kernel's descriptors, and live until the end.
    let times = unsafe {
        stream.copy_in(from, input.as_ptr(), input.len())?;
        stream.copy_in(descriptors, arguments.as_ptr().cast(), arguments.len() * 8)?;
        stream.fill(to, POISON, BYTES)?;
        let times = timed(stream.as_mut(), kernel.as_ref(), launch);
        stream.copy_out(output.as_mut_ptr(), to, BYTES)?;
        stream.copy_out(words.as_mut_ptr().cast(), results, words.len() * 4)?;
        stream.synchronize()?;
        buffers.iter().for_each(|buffer| device.free(*buffer));
        times
    };
    let mut times = times?;
    for (number, (actual, words)) in output
        .chunks(PART_BYTES)
        .zip(words.chunks(case.result_words))
        .enumerate()
    {
        let expected = &case.parts[number % DISTINCT].output;
        let fault = words.last().copied().unwrap_or_default();
        if fault != 0 || actual != &expected[..] {
            let name = case.name;
            return Err(format!("{name}: part {number} is wrong, fault {fault}").into());
        }
    }
    let ms = median(&mut times);
    let bytes = input.len() as f64;
    let floor = bytes / bench.bandwidth.read_bytes_per_s + BYTES as f64 / bench.bounds.write;
    let (ratio, seconds) = (bytes / BYTES as f64, ms / 1e3);
    let rate = BYTES as f64 / seconds / 1e9;
    println!(
        "{:<24} {:<8} {:>8.0} {ratio:>7.3} {ms:>9.3} {rate:>8.1} {:>11.1} {:>9.2}",
        case.name,
        case.format,
        bytes / 1e6,
        rate / case.value_bytes as f64,
        floor / seconds,
    );
    bench.record(
        "orc",
        json!({
            "name": case.name, "format": case.format, "bytes": bytes, "output": BYTES, "ms": ms,
            "gb_per_s": rate,
        }),
    )
}

/// Milliseconds of each run.
///
/// # Safety
///
/// As [`Stream::launch`].
unsafe fn timed(
    stream: &mut dyn Stream,
    kernel: &dyn Kernel,
    launch: Launch<'_>,
) -> Result<Vec<f64>> {
    let mut times = vec![];
    for run in 0..RUNS + 1 {
        // SAFETY: as the caller says.
        let (start, end) = unsafe { stream.launch_timed(kernel, launch) }?;
        stream.synchronize()?;
        if run > 0 {
            times.push(stream.elapsed(&start, &end)?);
        }
    }
    Ok(times)
}

// ---- runs ----

fn runs() -> Vec<Case> {
    let v1 = RunLength::V1 { is_signed: false };
    let v2 = RunLength::V2 { is_signed: false };
    let mut random = Random(7);
    let mut cases = vec![];
    let mut add = |name,
                   format,
                   of: RunLength,
                   value,
                   value_bytes,
                   make: &mut dyn FnMut(usize) -> StreamPart| {
        cases.push(Case {
            name,
            format,
            source: decode_runs(of, value),
            kernel: "decode_runs",
            warp_bytes: decode_runs_warp_bytes(of),
            result_words: 1,
            value_bytes,
            parts: (0..DISTINCT)
                .map(|_| make(PART_BYTES / value_bytes))
                .collect(),
        });
    };
    let long = |random: &mut Random, most: usize| -> (usize, u64) {
        let run = random.within(most as i64 / 2, most as i64) as usize;
        (run, random.within(0, 1 << 20) as u64)
    };
    add("runs of 65 to 130", "rle v1", v1, "u64", 8, &mut |values| {
        part(values, 8, |left, stream, out| {
            let (run, value) = long(&mut random, 130);
            run_v1(run.min(left).max(3), value, stream, out);
        })
    });
    let mut random = Random(8);
    add(
        "runs of 256 to 512",
        "rle v2",
        v2,
        "u64",
        8,
        &mut |values| {
            part(values, 8, |left, stream, out| {
                let (run, value) = long(&mut random, 512);
                run_v2(run.min(left), value, stream, out);
            })
        },
    );
    let mut random = Random(9);
    let mut byte = move |low, high| random.within(low, high) as usize;
    add(
        "short runs of bytes",
        "rle v1",
        v1,
        "u8",
        1,
        &mut |values| {
            part(values, 1, |left, stream, out| {
                let run = byte(3, 8).min(left).max(3);
                run_v1(run, byte(0, 127) as u64, stream, out);
                let literals: Vec<u64> = (0..byte(3, 6)).map(|_| byte(0, 127) as u64).collect();
                literals_v1(&literals, stream, out);
            })
        },
    );
    let mut random = Random(10);
    let mut byte = move |low, high| random.within(low, high) as usize;
    add(
        "short runs of bytes",
        "rle v2",
        v2,
        "u8",
        1,
        &mut |values| {
            part(values, 1, |_, stream, out| {
                let run = byte(3, 8);
                repeat_v2(run, byte(0, 255) as u8, stream, out);
                let literals: Vec<u64> = (0..byte(3, 6)).map(|_| byte(0, 255) as u64).collect();
                direct_v2(&literals, 8, stream, out);
            })
        },
    );
    let mut random = Random(11);
    add(
        "varints of 20 bits",
        "rle v1",
        v1,
        "u32",
        4,
        &mut |values| {
            part(values, 4, |left, stream, out| {
                let literals: Vec<u64> = (0..left.min(128))
                    .map(|_| random.within(0, (1 << 20) - 1) as u64)
                    .collect();
                literals_v1(&literals, stream, out);
            })
        },
    );
    let mut random = Random(12);
    add("packed in 20 bits", "rle v2", v2, "u32", 4, &mut |values| {
        part(values, 4, |left, stream, out| {
            let literals: Vec<u64> = (0..left.min(512))
                .map(|_| random.within(0, (1 << 20) - 1) as u64)
                .collect();
            direct_v2(&literals, 20, stream, out);
        })
    });
    let mut random = Random(13);
    add(
        "sorted, steps of 8 bits",
        "rle v2",
        v2,
        "u64",
        8,
        &mut |values| {
            part(values, 8, |left, stream, out| {
                let steps: Vec<u64> = (0..left.clamp(3, 512) - 1)
                    .map(|_| random.within(1, 255) as u64)
                    .collect();
                deltas_v2(random.within(0, 1 << 20) as u64, &steps, stream, out);
            })
        },
    );
    cases
}

/// A part with this many values, made of runs, each of which may be longer than the rest.
fn part(
    values: usize,
    value_bytes: usize,
    mut add: impl FnMut(usize, &mut Vec<u8>, &mut Vec<u64>),
) -> StreamPart {
    let (mut stream, mut out) = (vec![], vec![]);
    while out.len() < values {
        add(values - out.len(), &mut stream, &mut out);
    }
    out.truncate(values);
    let output = out
        .iter()
        .flat_map(|value| value.to_le_bytes().into_iter().take(value_bytes));
    StreamPart {
        stream,
        output: output.collect(),
    }
}

fn varint(mut value: u64, stream: &mut Vec<u8>) {
    while value >= 128 {
        stream.push(value as u8 | 128);
        value >>= 7;
    }
    stream.push(value as u8);
}

/// Big-endian integers of `width` bits.
fn pack(values: &[u64], width: usize, stream: &mut Vec<u8>) {
    let (mut bits, mut count) = (0u128, 0);
    for value in values {
        bits = bits << width | u128::from(*value);
        count += width;
        while count >= 8 {
            count -= 8;
            stream.push((bits >> count) as u8);
        }
    }
    if count > 0 {
        stream.push((bits << (8 - count)) as u8);
    }
}

fn run_v1(run: usize, value: u64, stream: &mut Vec<u8>, out: &mut Vec<u64>) {
    stream.extend([run as u8 - 3, 0]);
    varint(value, stream);
    out.resize(out.len() + run, value);
}

fn literals_v1(values: &[u64], stream: &mut Vec<u8>, out: &mut Vec<u64>) {
    stream.push((256 - values.len()) as u8);
    values.iter().for_each(|value| varint(*value, stream));
    out.extend(values);
}

/// The first bytes of a run of version 2, except for short repeats.
fn head_v2(kind: usize, code: usize, values: usize, stream: &mut Vec<u8>) {
    let length = values - 1;
    stream.extend([(kind << 6 | code << 1 | length >> 8) as u8, length as u8]);
}

fn repeat_v2(run: usize, value: u8, stream: &mut Vec<u8>, out: &mut Vec<u64>) {
    stream.extend([run as u8 - 3, value]);
    out.resize(out.len() + run, value.into());
}

fn run_v2(run: usize, value: u64, stream: &mut Vec<u8>, out: &mut Vec<u64>) {
    head_v2(3, 0, run, stream);
    varint(value, stream);
    varint(0, stream);
    out.resize(out.len() + run, value);
}

/// A direct run with a width of at most 24 bits.
fn direct_v2(values: &[u64], width: usize, stream: &mut Vec<u8>, out: &mut Vec<u64>) {
    head_v2(1, width - 1, values.len(), stream);
    pack(values, width, stream);
    out.extend(values);
}

/// A delta run with steps of 8 bits.
fn deltas_v2(first: u64, steps: &[u64], stream: &mut Vec<u8>, out: &mut Vec<u64>) {
    head_v2(3, 7, steps.len() + 1, stream);
    varint(first, stream);
    varint(steps[0] << 1, stream);
    pack(&steps[1..], 8, stream);
    let mut value = first;
    out.push(value);
    for step in steps {
        value += step;
        out.push(value);
    }
}

// ---- Deflate ----

fn chunks() -> Result<Vec<Case>> {
    let mut random = Random(14);
    let words = "the of carefully regular final deposits sleep quickly above packages requests accounts ironic \
                 furiously slyly bold pending express theodolites even blithely"
        .split(' ');
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let mut text = |out: &mut Vec<u8>| {
        let word = words[random.within(0, words.len() as i64 - 1) as usize];
        out.extend_from_slice(word.as_bytes());
        out.push(b' ');
    };
    let mut random = Random(15);
    let mut numbers = |out: &mut Vec<u8>| {
        let number = random.within(0, u16::MAX.into()) as i32;
        out.extend_from_slice(&number.to_le_bytes());
    };
    let mut random = Random(16);
    let mut long = |out: &mut Vec<u8>| {
        let value = random.within(0, 255) as u8;
        out.resize(out.len() + random.within(500, 5000) as usize, value);
    };
    let makers: [(&str, &mut dyn FnMut(&mut Vec<u8>)); 3] = [
        ("text", &mut text),
        ("integers of 16 bits", &mut numbers),
        ("runs of 500 to 5000", &mut long),
    ];
    let mut cases = vec![];
    for (name, make) in makers {
        let parts = (0..DISTINCT).map(|_| {
            let mut output = vec![];
            while output.len() < PART_BYTES {
                make(&mut output);
            }
            output.truncate(PART_BYTES);
            let mut encoder = DeflateEncoder::new(vec![], flate2::Compression::new(6));
            encoder.write_all(&output)?;
            let stream = encoder.finish()?;
            Ok(StreamPart { stream, output })
        });
        cases.push(Case {
            name,
            format: "deflate",
            source: INFLATE.concat(),
            kernel: "inflate",
            warp_bytes: INFLATE_WARP_BYTES,
            result_words: 2,
            value_bytes: 1,
            parts: parts.collect::<Result<_>>()?,
        });
    }
    Ok(cases)
}
