//! Strings as codes, made on the device for those who write a column. `kernels/text/compress.cuh` is the device's side.
//!
//! Strings go there in parts of some splits: what is pinned stays small.

use std::ops::Range;
use std::time::Duration;

use vectile_encodings::{Splits, Uncompressed};

use super::matcher::Matcher;
use super::tables::on_device;
use crate::error::{Error, Result};
use crate::runtime::{Engine, FixedKernel, Kernel, Lane, Launch, Mark, Stream};

/// Bytes of the strings of a part, unless a split has more.
const PART_BYTES: usize = 8 << 20;
/// A lane goes through a split alone: longer ones would take it longer than a CPU.
const MOST_SPLIT_BYTES: usize = 1 << 20;
/// Bytes behind strings that the kernel may read.
const SLACK_BYTES: usize = 48;
/// Lanes of a split, each of which has some of its strings.
const SPLIT_PARTS: usize = 8;
const THREADS: usize = 512;
/// Splits that a block gathers at a time: a warp has one.
const BLOCK_WARPS: usize = THREADS / 32;
/// In the place of an escape.
const NO_ESCAPE: u64 = u32::MAX as u64;

/// Strings that the device has compressed.
#[derive(Clone, Debug, Default)]
pub struct Compressed {
    /// Their codes.
    pub splits: Splits,
    /// Kernels at work, by the device's clock.
    pub kernel: Duration,
}

/// The steps of the kernel.
#[derive(Clone, Copy)]
enum Step {
    Encode,
    Gather,
}

impl Engine {
    /// Strings as codes, in the place of a CPU: for a [`Compressor`](vectile_encodings::Compressor).
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if a split is so long that a CPU is faster, [`Error::NotCompiled`] if the kernel is not
    /// there and must not be compiled, and those of the driver.
    pub fn compress(&self, strings: &Uncompressed<'_>, may_compile: bool) -> Result<Compressed> {
        self.health().watch(|| compress(self, strings, may_compile))
    }

    /// Compiles the kernel of [`Engine::compress`], if need be.
    ///
    /// # Errors
    ///
    /// Those of the driver.
    pub fn prepare_compression(&self) -> Result<()> {
        let prepare = || self.fixed_kernel(FixedKernel::Compress, true).map(drop);
        self.health().watch(prepare)
    }
}

fn compress(engine: &Engine, strings: &Uncompressed<'_>, may_compile: bool) -> Result<Compressed> {
    let kernel = &*engine.fixed_kernel(FixedKernel::Compress, may_compile)?;
    let matcher = Matcher::of(strings.words)?;
    let words = on_device(engine, matcher.bytes.len(), |to| {
        to[..matcher.bytes.len()].copy_from_slice(&matcher.bytes);
    })?;
    let fits = matcher.bytes.len() <= engine.device().shared_memory as usize;
    let escape = strings.escape.map_or(NO_ESCAPE, u64::from);
    let job = Job {
        engine,
        kernel,
        strings,
        words: [
            matcher.shape,
            words.address(),
            strings.code_bits as u64 | escape << 32,
        ],
        shared: if fits { matcher.bytes.len() as u32 } else { 0 },
    };
    let mut out = Compressed::default();
    let mut lane = engine.lane()?;
    for part in parts(strings)? {
        job.compress(part, &mut lane, &mut out)?;
    }
    engine.give_back(lane);
    Ok(out)
}

/// Strings that are compressed together, as ranges of them.
fn parts(strings: &Uncompressed<'_>) -> Result<Vec<Range<usize>>> {
    let (mut parts, mut start, mut bytes) = (vec![], 0, 0);
    let mut end = 0;
    for split in strings.strings.chunks(strings.split_strings.max(1)) {
        let own: usize = split.iter().map(|string| string.len()).sum();
        if own > MOST_SPLIT_BYTES {
            return Err(Error::Unsupported(format!("a split of {own} bytes")));
        }
        if bytes + own > PART_BYTES {
            parts.push(start..end);
            (start, bytes) = (end, 0);
        }
        bytes += own;
        end += split.len();
    }
    parts.push(start..end);
    parts.retain(|part| !part.is_empty());
    Ok(parts)
}

/// Strings of a column, on their way.
struct Job<'a> {
    engine: &'a Engine,
    kernel: &'a dyn Kernel,
    strings: &'a Uncompressed<'a>,
    /// The shape of the words, where they are, and the bits of a code with the escape.
    words: [u64; 3],
    /// Bytes of shared memory that the words take, if they fit.
    shared: u32,
}

impl Job<'_> {
    /// Adds the codes of some strings, which begin with a split.
    fn compress(&self, part: Range<usize>, lane: &mut Lane, out: &mut Compressed) -> Result<()> {
        let strings = &self.strings.strings[part];
        let bytes: usize = strings.iter().map(|string| string.len()).sum();
        let splits = strings.len().div_ceil(self.strings.split_strings);
        let starts_at = (bytes + SLACK_BYTES).next_multiple_of(8);
        let given_bytes = starts_at + (strings.len() + 1) * 4;
        let mut given = self.engine.host_pool().take(given_bytes)?;
        write(strings, starts_at, given.as_mut_slice());

        let text = self.engine.take(given_bytes)?;
        let parts = splits * SPLIT_PARTS;
        let scratch = self.engine.take(2 * bytes + (parts + 1) * 4)?;
        let bits = self.engine.take(parts * 4)?;
        let mut args = [
            0,
            splits as u64 | u64::from(self.shared) << 32,
            text.address(),
            text.address() + starts_at as u64,
            strings.len() as u64 | (self.strings.split_strings as u64) << 32,
            scratch.address(),
            bits.address(),
            self.words[0],
            self.words[1],
            self.words[2],
        ];
        let mut found = self.engine.host_pool().take(parts * 4)?;
        let (from, to) = (given.as_slice().as_ptr(), found.as_mut_slice().as_mut_ptr());
        // SAFETY: what is copied is as long, and lives until `finish` is done; the arguments are those that
        // `compress.cuh` names, and codes have room, because a byte becomes 16 bits at most.
        let marks = lane.finish(|stream| unsafe {
            stream.copy_in(text.address(), from, given_bytes)?;
            let marks = self.launch(stream, Step::Encode, &mut args, splits)?;
            stream.copy_out(to, bits.address(), parts * 4)?;
            Ok(marks)
        })?;
        out.kernel += lane.between(&marks)?;

        let mut end = 0;
        let bits = found.as_slice().as_chunks::<4>().0;
        let ends = bits.chunks(SPLIT_PARTS).take(splits).map(|parts| {
            let bits = parts
                .iter()
                .map(|bits| u64::from(u32::from_le_bytes(*bits)));
            end += bits.sum::<u64>().div_ceil(8);
            end
        });
        let ends: Vec<u64> = ends.collect();
        let bytes = ends.last().map_or(0, |end| *end as usize);
        let codes = self.engine.take(bytes)?;
        let ends_there = on_device(self.engine, splits * 8, |to| {
            let places = to.as_chunks_mut::<8>().0.iter_mut().zip(&ends);
            places.for_each(|(to, end)| *to = end.to_le_bytes());
        })?;
        [args[8], args[9]] = [ends_there.address(), codes.address()];
        let mut here = self.engine.host_pool().take(bytes)?;
        let to = here.as_mut_slice().as_mut_ptr();
        // SAFETY: as above, and the codes end where the lengths say.
        let marks = lane.finish(|stream| unsafe {
            let marks = self.launch(stream, Step::Gather, &mut args, splits)?;
            stream.copy_out(to, codes.address(), bytes)?;
            Ok(marks)
        })?;
        out.kernel += lane.between(&marks)?;
        let before = out.splits.data.len() as u64;
        out.splits.data.extend_from_slice(&here.as_slice()[..bytes]);
        out.splits
            .ends
            .extend(ends.into_iter().map(|end| before + end));
        Ok(())
    }

    /// # Safety
    ///
    /// The arguments are those that `compress.cuh` names: memory that is as long as it wants, and lives until the
    /// stream has passed this point; and what the step before wrote is there.
    unsafe fn launch(
        &self,
        stream: &mut dyn Stream,
        step: Step,
        args: &mut [u64; 10],
        splits: usize,
    ) -> Result<(Mark, Mark)> {
        args[0] = step as u64;
        let (of_block, shared) = match step {
            Step::Encode => (THREADS / SPLIT_PARTS, self.shared),
            Step::Gather => (BLOCK_WARPS, 0),
        };
        let launch = Launch {
            grid: splits.div_ceil(of_block) as u32,
            block: THREADS as u32,
            shared,
            args,
        };
        let from = stream.mark()?;
        // SAFETY: as the caller says.
        unsafe { stream.launch(self.kernel, launch) }?;
        Ok((from, stream.mark()?))
    }
}

/// Strings one behind the other, and at `starts_at` where each begins, and where the last one ends.
fn write(strings: &[&[u8]], starts_at: usize, to: &mut [u8]) {
    let (text, starts) = to.split_at_mut(starts_at);
    let starts = starts.as_chunks_mut::<4>().0;
    let mut at = 0;
    for (string, start) in strings.iter().zip(&mut *starts) {
        *start = (at as u32).to_le_bytes();
        copy(string, &mut text[at..at + string.len()]);
        at += string.len();
    }
    starts[strings.len()] = (at as u32).to_le_bytes();
}

/// As `copy_from_slice`, of few bytes without a call: it takes a third of the time.
#[inline]
fn copy(from: &[u8], to: &mut [u8]) {
    match from.len() {
        8..=16 => copy_ends::<8>(from, to),
        17..=32 => copy_ends::<16>(from, to),
        33..=64 => copy_ends::<32>(from, to),
        _ => to.copy_from_slice(from),
    }
}

/// The first and the last bytes, which overlap or touch.
#[inline]
fn copy_ends<const N: usize>(from: &[u8], to: &mut [u8]) {
    if let (Some(from), Some(to)) = (from.first_chunk::<N>(), to.first_chunk_mut()) {
        *to = *from;
    }
    if let (Some(from), Some(to)) = (from.last_chunk::<N>(), to.last_chunk_mut()) {
        *to = *from;
    }
}
