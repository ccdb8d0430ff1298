//! Compresses strings on the device for writers of columns. `kernels/text/compress.cuh` is the device's side.
//!
//! Strings go to the device in parts of some splits, so that little host memory is pinned.

use std::ops::Range;
use std::time::Duration;

use vectile_encodings::{Splits, Uncompressed};
use vectile_kernels::CompressStep;

use super::matcher::Matcher;
use super::offsets::OffsetAllocator;
use crate::error::{Error, Result};
use crate::runtime::{Engine, FixedKernel, Kernel, Launch, Stream, StreamContext};

/// Bytes of the strings of a part, unless a single split has more.
const PART_BYTES: usize = 16 << 20;
/// Limit of a split's bytes. One lane compresses its strings of a split alone; longer ones take it longer than a CPU.
const MOST_SPLIT_BYTES: usize = 1 << 20;
/// Limit of a split's strings, so that their indices times lanes fit 32 bits.
const MOST_SPLIT_STRINGS: usize = u16::MAX as usize;
/// Limit of all strings, so that the parts of all splits have indices of 32 bits.
const MOST_STRINGS: usize = 1 << 28;
/// Bytes behind the strings that the kernel may read.
const SLACK_BYTES: usize = 48;
/// Lanes of a split with an escape, as a power of two: with more, the codes take more bytes.
const SPLIT_PARTS_LOG2: u32 = 3;
/// Lanes of a split that is one string, which they divide, as a power of two.
const STRING_PARTS_LOG2: u32 = 2;
const WARP: usize = 32;
/// Most threads of a block.
const MOST_THREADS: usize = 1024;
/// Bytes of shared memory: a word for each warp of a block.
const GATHER_BYTES: u32 = 128;
/// Stands for "no escape".
const NO_ESCAPE: u64 = u32::MAX as u64;

/// Strings that the device has compressed.
#[derive(Clone, Debug, Default)]
pub struct Compressed {
    /// Their codes.
    pub splits: Splits,
    /// Run time of kernels, by the device's clock.
    pub kernel: Duration,
}

impl Engine {
    /// Compresses strings on the device instead of the CPU: for a [`Compressor`](vectile_encodings::Compressor).
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if a split is so long that a CPU is faster, [`Error::NotCompiled`] if the kernel is
    /// neither loaded nor on disk and `may_compile` is false, and errors of the driver.
    pub fn compress(&self, strings: &Uncompressed<'_>, may_compile: bool) -> Result<Compressed> {
        self.health().watch(|| compress(self, strings, may_compile))
    }

    /// Compiles the kernel of [`Engine::compress`] unless it is there already.
    ///
    /// # Errors
    ///
    /// Errors of the driver.
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
    let count = strings.strings.len();
    if count > MOST_STRINGS {
        return Err(Error::Unsupported(format!("{count} strings")));
    }
    let words = Matcher::of(strings.words)?;
    let job = CompressJob {
        engine,
        kernel,
        strings,
        words,
    };
    let mut out = Compressed::default();
    let mut context = engine.stream_context()?;
    for part in parts(strings)? {
        job.compress(part, &mut context, &mut out)?;
    }
    engine.give_back(context);
    Ok(out)
}

/// Strings that are compressed in one launch.
struct StringsPart {
    strings: Range<usize>,
    bytes: usize,
}

fn parts(strings: &Uncompressed<'_>) -> Result<Vec<StringsPart>> {
    let (mut parts, mut bytes, mut start, mut end) = (vec![], 0, 0, 0);
    let mut add = |strings: Range<usize>, bytes| {
        if !strings.is_empty() {
            parts.push(StringsPart { strings, bytes });
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

/// State of one compression.
struct CompressJob<'a> {
    engine: &'a Engine,
    kernel: &'a dyn Kernel,
    strings: &'a Uncompressed<'a>,
    words: Matcher,
}

impl CompressJob<'_> {
    /// Lanes of a split, as a power of two: enough to fill the device. With an escape, codes depend on the number of
    /// lanes, so it is constant.
    fn split_parts_log2(&self, splits: usize) -> u32 {
        match (self.strings.escape, self.strings.split_strings) {
            (Some(_), 1) => return STRING_PARTS_LOG2,
            (Some(_), _) => return SPLIT_PARTS_LOG2,
            (None, _) => {}
        }
        let most = self.strings.split_strings.min(WARP).ilog2();
        let lanes = self.engine.device().multiprocessors as usize * MOST_THREADS;
        (lanes / splits).max(1).ilog2().min(most)
    }

    /// Compresses some strings and appends their codes to `out`.
    fn compress(
        &self,
        part: StringsPart,
        context: &mut StreamContext,
        out: &mut Compressed,
    ) -> Result<()> {
        let StringsPart { strings, bytes } = part;
        let strings = &self.strings.strings[strings];
        let splits = strings.len().div_ceil(self.strings.split_strings);
        let parts_log2 = self.split_parts_log2(splits);
        let parts = splits << parts_log2;

        // words, text, and where strings start
        let words_bytes = self.words.bytes.len();
        let starts_at = (words_bytes + bytes + SLACK_BYTES).next_multiple_of(8);
        let input_bytes = starts_at + (strings.len() + 1) * 4;
        // a byte becomes 16 bits at most
        let code_bytes = 2 * bytes + 4;
        let mut offsets = OffsetAllocator::default();
        let [inputs_at, scratch_at, bits_at, totals_at, ends_at] = [
            input_bytes,
            code_bytes + (parts + 1) * 4,
            parts * 4,
            parts.div_ceil(WARP) * 4,
            splits * 4,
        ]
        .map(|bytes| offsets.next(bytes));
        let codes_at = ends_at + splits * 4;
        let there = self.engine.take(codes_at + code_bytes)?;
        let at = |offset: usize| there.address() + offset as u64;

        let mut inputs = self.engine.host_pool().take(input_bytes)?;
        let (text, starts_there) = inputs.as_mut_slice().split_at_mut(starts_at);
        text[..words_bytes].copy_from_slice(&self.words.bytes);
        write(strings, &mut text[words_bytes..], starts_there);
        // most text shrinks
        let likely_bytes = splits * 4 + bytes / 2;
        let mut results = self.engine.host_pool().take(likely_bytes)?;

        let shared_bytes = match words_bytes <= self.engine.device().shared_memory as usize {
            true => words_bytes as u32,
            false => 0,
        };
        let escape = self.strings.escape.map_or(NO_ESCAPE, u64::from);
        let mut args = [
            u64::from(parts_log2) << 32,
            self.strings.code_bits as u64 | escape << 32,
            at(inputs_at + words_bytes),
            at(inputs_at + starts_at),
            strings.len() as u64 | (self.strings.split_strings as u64) << 32,
            splits as u64,
            at(scratch_at),
            at(bits_at),
            at(totals_at),
            u64::from(self.words.shape) | u64::from(shared_bytes) << 32,
            at(inputs_at),
            at(ends_at),
            at(codes_at),
        ];
        let (from, to) = (
            inputs.as_slice().as_ptr(),
            results.as_mut_slice().as_mut_ptr(),
        );
        // SAFETY: copied ranges have these lengths, and live until `finish` is done; the arguments are those that
        // `compress.cuh` names, and codes have room, because a byte becomes 16 bits at most.
        let events = context.finish(|stream| unsafe {
            stream.copy_in(at(inputs_at), from, input_bytes)?;
            let start = stream.mark()?;
            self.launch(stream, CompressStep::Encode, &mut args, parts, shared_bytes)?;
            self.launch(stream, CompressStep::Gather, &mut args, parts, GATHER_BYTES)?;
            let end = stream.mark()?;
            stream.copy_out(to, at(ends_at), likely_bytes)?;
            Ok((start, end))
        })?;
        out.kernel += context.between(&events)?;

        let (ends, codes) = results.as_slice()[..likely_bytes].split_at(splits * 4);
        let ends = ends.as_chunks::<4>().0.iter();
        let ends = ends.map(|end| u32::from_le_bytes(*end) as usize);
        let bytes = ends.clone().next_back().unwrap_or(0);
        let before = out.splits.data.len();
        out.splits
            .ends
            .extend(ends.map(|end| (before + end) as u64));
        let here = bytes.min(codes.len());
        out.splits.data.reserve(bytes);
        out.splits.data.extend_from_slice(&codes[..here]);
        if here < bytes {
            let left = bytes - here;
            let mut rest = self.engine.host_pool().take(left)?;
            let to = rest.as_mut_slice().as_mut_ptr();
            // SAFETY: as above; the codes end at the returned ends.
            context.finish(|stream| unsafe { stream.copy_out(to, at(codes_at + here), left) })?;
            out.splits.data.extend_from_slice(&rest.as_slice()[..left]);
        }
        Ok(())
    }

    /// # Safety
    ///
    /// The arguments are those that `compress.cuh` names: memory as long as the kernel requires, which lives until the
    /// stream has passed this point and holds the results of the step before.
    unsafe fn launch(
        &self,
        stream: &mut dyn Stream,
        step: CompressStep,
        args: &mut [u64; 13],
        parts: usize,
        shared: u32,
    ) -> Result<()> {
        args[0] = args[0] >> 32 << 32 | step as u64;
        let most = self.engine.device().multiprocessors as usize;
        let block = parts
            .div_ceil(most)
            .next_multiple_of(WARP)
            .min(MOST_THREADS);
        let blocks = parts.div_ceil(block);
        let grid = match step {
            // each block loads the words to its multiprocessor once
            CompressStep::Encode => {
                let resident = self.kernel.resident_blocks(block as u32, shared) as usize;
                blocks.min(most * resident.max(1))
            }
            CompressStep::Gather => blocks,
        };
        let launch = Launch {
            grid: grid as u32,
            block: block as u32,
            shared,
            args,
        };
        // SAFETY: as the caller says.
        unsafe { stream.launch(self.kernel, launch) }
    }
}

/// Writes strings one behind the other, then the offset of each one and the end of the last.
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
