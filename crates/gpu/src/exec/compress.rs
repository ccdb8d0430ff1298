//! Strings as codes, made on the device for those who write a column. `kernels/text/compress.cuh` is the device's side.
//!
//! Strings go there in parts of some splits: what is pinned stays small.

use std::ops::Range;
use std::time::Duration;

use vectile_encodings::{Splits, Uncompressed};

use super::matcher::Matcher;
use super::tables::write_words;
use crate::error::{Error, Result};
use crate::runtime::{Engine, FixedKernel, Kernel, Lane, Launch, Mark, Stream};

/// Bytes of the strings of a part, unless a split has more.
const PART_BYTES: usize = 16 << 20;
/// A lane goes through its strings of a split alone: longer ones would take it longer than a CPU.
const MOST_SPLIT_BYTES: usize = 1 << 20;
/// Strings of a split have 16 bits.
const MOST_SPLIT_STRINGS: usize = u16::MAX as usize;
/// Bytes behind strings that the kernel may read.
const SLACK_BYTES: usize = 48;
/// Lanes of a split at most, each of which has some of its strings.
const MOST_PARTS: usize = 8;
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
    let split_strings = strings.split_strings;
    if !(1..=MOST_SPLIT_STRINGS).contains(&split_strings) {
        let reason = format!("splits of {split_strings} strings");
        return Err(Error::Unsupported(reason));
    }
    let words = Matcher::of(strings.words)?;
    let (bytes, most) = (words.bytes.len(), engine.device().shared_memory as usize);
    if bytes > most {
        let reason = format!("words that take {bytes} bytes of shared memory, which has {most}");
        return Err(Error::Unsupported(reason));
    }
    let job = Job {
        engine,
        kernel,
        strings,
        words,
    };
    let mut out = Compressed::default();
    let mut lane = engine.lane()?;
    for part in parts(strings)? {
        job.compress(part, &mut lane, &mut out)?;
    }
    engine.give_back(lane);
    Ok(out)
}

/// Strings that are compressed together.
struct Part {
    strings: Range<usize>,
    bytes: usize,
}

fn parts(strings: &Uncompressed<'_>) -> Result<Vec<Part>> {
    let (mut parts, mut bytes, mut start, mut end) = (vec![], 0, 0, 0);
    let mut add = |strings: Range<usize>, bytes| {
        if !strings.is_empty() {
            parts.push(Part { strings, bytes });
        }
    };
    for split in strings.strings.chunks(strings.split_strings) {
        let own: usize = split.iter().map(|string| string.len()).sum();
        if own > MOST_SPLIT_BYTES {
            return Err(Error::Unsupported(format!("a split of {own} bytes")));
        }
        if bytes + own > PART_BYTES {
            add(start..end, bytes);
            (start, bytes) = (end, 0);
        }
        bytes += own;
        end += split.len();
    }
    add(start..end, bytes);
    Ok(parts)
}

/// Strings of a column, on their way.
struct Job<'a> {
    engine: &'a Engine,
    kernel: &'a dyn Kernel,
    strings: &'a Uncompressed<'a>,
    words: Matcher,
}

impl Job<'_> {
    /// Lanes of a split.
    fn split_parts(&self) -> usize {
        self.strings.split_strings.min(MOST_PARTS)
    }

    /// Adds the codes of some strings.
    fn compress(&self, part: Part, lane: &mut Lane, out: &mut Compressed) -> Result<()> {
        let Part { strings, bytes } = part;
        let strings = &self.strings.strings[strings];
        let splits = strings.len().div_ceil(self.strings.split_strings);
        let parts = splits * self.split_parts();
        // words, text, and where strings start
        let text_at = self.words.bytes.len();
        let starts_at = (text_at + bytes + SLACK_BYTES).next_multiple_of(8);
        let given_bytes = starts_at + (strings.len() + 1) * 4;
        let mut given = self.engine.host_pool().take(given_bytes.max(splits * 8))?;
        let (text, starts) = given.as_mut_slice().split_at_mut(starts_at);
        text[..text_at].copy_from_slice(&self.words.bytes);
        write(strings, &mut text[text_at..], starts);

        let there = self.engine.take(given_bytes)?;
        let scratch = self.engine.take(2 * bytes + (parts + 1) * 4)?;
        let bits = self.engine.take(parts * 4)?;
        let ends_there = self.engine.take(splits * 8)?;
        let escape = self.strings.escape.map_or(NO_ESCAPE, u64::from);
        let mut args = [
            0,
            splits as u64 | (text_at as u64) << 32,
            there.address() + text_at as u64,
            there.address() + starts_at as u64,
            strings.len() as u64
                | (self.strings.split_strings as u64) << 32
                | (self.split_parts() as u64) << 48,
            scratch.address(),
            bits.address(),
            self.words.shape,
            there.address(),
            self.strings.code_bits as u64 | escape << 32,
        ];
        let mut found = self.engine.host_pool().take(parts * 4)?;
        let (from, to) = (given.as_slice().as_ptr(), found.as_mut_slice().as_mut_ptr());
        // SAFETY: what is copied is as long, and lives until `finish` is done; the arguments are those that
        // `compress.cuh` names, and codes have room, because a byte becomes 16 bits at most.
        let marks = lane.finish(|stream| unsafe {
            stream.copy_in(there.address(), from, given_bytes)?;
            let marks = self.launch(stream, Step::Encode, &mut args, splits)?;
            stream.copy_out(to, bits.address(), parts * 4)?;
            Ok(marks)
        })?;
        out.kernel += lane.between(&marks)?;

        let mut end = 0;
        let bits = found.as_slice().as_chunks::<4>().0;
        let ends = bits.chunks(self.split_parts()).take(splits).map(|parts| {
            let bits = parts
                .iter()
                .map(|bits| u64::from(u32::from_le_bytes(*bits)));
            end += bits.sum::<u64>().div_ceil(8);
            end
        });
        let ends: Vec<u64> = ends.collect();
        let bytes = ends.last().map_or(0, |end| *end as usize);
        let codes = self.engine.take(bytes)?;
        // what was given is not read any more but for the starts of strings
        write_words(&ends, given.as_mut_slice());
        [args[8], args[9]] = [ends_there.address(), codes.address()];
        let mut here = self.engine.host_pool().take(bytes)?;
        let (from, to) = (given.as_slice().as_ptr(), here.as_mut_slice().as_mut_ptr());
        // SAFETY: as above, and the codes end where the lengths say.
        let marks = lane.finish(|stream| unsafe {
            stream.copy_in(ends_there.address(), from, splits * 8)?;
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
            Step::Encode => (THREADS / self.split_parts(), self.words.bytes.len() as u32),
            Step::Gather => (BLOCK_WARPS, 0),
        };
        let launch = Launch {
            grid: splits.div_ceil(of_block) as u32,
            block: THREADS as u32,
            shared,
            args,
        };
        // SAFETY: as the caller says.
        unsafe { stream.launch_timed(self.kernel, launch) }
    }
}

/// Strings one behind the other; and where each begins, and where the last one ends.
fn write(strings: &[&[u8]], text: &mut [u8], starts: &mut [u8]) {
    let starts = starts.as_chunks_mut::<4>().0;
    let mut at = 0;
    for (string, start) in strings.iter().zip(&mut *starts) {
        *start = (at as u32).to_le_bytes();
        text[at..at + string.len()].copy_from_slice(string);
        at += string.len();
    }
    starts[strings.len()] = (at as u32).to_le_bytes();
}
