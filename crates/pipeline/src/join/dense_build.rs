//! Builds dense tables of integer keys. Each thread owns a part of the range of keys, with its bits and codes, and reads
//! the chunks that have keys there: of sorted keys few are read twice.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};

use super::code_table::{CodeTable, CodesPart, StoredCode};
use super::key_chunks::{IntegerChunk, RowCodes};
use super::perfect_hash::{DenseCodes, PerfectHashTable};

/// Bits of a word.
const WORD: usize = 32;

/// Builds the table of the keys of `chunks`, all of which are among the `range` integers from `first` on. Returns the
/// number of distinct keys, too; `None` if keys are duplicate and `codes` are not those of a set.
pub(super) fn dense_table<C: StoredCode>(
    chunks: &[IntegerChunk],
    (first, range): (i64, u64),
    codes: RowCodes<'_>,
    threads: usize,
) -> Option<(PerfectHashTable, usize)> {
    let build = Build {
        chunks: Vec::from_iter(Span::sorted(chunks, first)),
        first,
        codes,
        has_duplicates: AtomicBool::new(false),
    };
    let mut bits = vec![0; PerfectHashTable::words(range)];
    let mut parts = Vec::new();
    let (mut rest, mut begin) = (&mut bits[..], 0);
    for end in build.part_ends(range as usize, threads) {
        let words = match end < range as usize {
            true => (end - begin) / WORD,
            false => rest.len(),
        };
        let (bits, behind) = mem::take(&mut rest).split_at_mut(words);
        parts.push((end, Part { begin, end, bits }));
        (rest, begin) = (behind, end);
    }
    let write = |part: Part<'_>, codes: &mut CodesPart<'_, C>| build.write(part, codes);
    let (codes, lens) = CodeTable::of_parts(range as usize, parts, threads, write);
    if build.has_duplicates.into_inner() {
        return None;
    }
    let table = PerfectHashTable {
        first,
        range,
        bits,
        codes: DenseCodes::Stored(codes),
    };
    Some((table, lens.into_iter().sum()))
}

/// A chunk with keys.
struct Span<'a> {
    chunk: &'a IntegerChunk,
    /// Distance of the smallest key from the first of the table.
    least: usize,
    /// Distance of the largest key from the first of the table.
    greatest: usize,
}

impl<'a> Span<'a> {
    /// The chunks with keys, by their smallest.
    fn sorted(chunks: &'a [IntegerChunk], first: i64) -> Vec<Self> {
        let spans = chunks.iter().filter_map(|chunk| {
            let (least, greatest) = chunk.bounds?;
            Some(Self {
                chunk,
                least: least.wrapping_sub(first) as usize,
                greatest: greatest.wrapping_sub(first) as usize,
            })
        });
        let mut spans: Vec<Self> = spans.collect();
        spans.sort_by_key(|span| span.least);
        spans
    }

    /// Estimated number of keys with a distance below `end`, as if they were spread evenly.
    fn keys_below(&self, end: usize) -> f64 {
        let len = self.greatest - self.least + 1;
        let below = end.clamp(self.least, self.least + len) - self.least;
        self.chunk.keys as f64 * (below as f64 / len as f64)
    }
}

/// Part of a table: the keys with distances from `begin`, a multiple of the bits of a word, to `end`.
struct Part<'a> {
    begin: usize,
    end: usize,
    bits: &'a mut [u32],
}

struct Build<'a> {
    chunks: Vec<Span<'a>>,
    first: i64,
    codes: RowCodes<'a>,
    /// True if a thread has found keys twice that must not be, so that all of them stop.
    has_duplicates: AtomicBool,
}

impl Build<'_> {
    /// The ends of `parts` parts at most of about as many keys each: multiples of the bits of a word, in order, and
    /// `range` at last.
    fn part_ends(&self, range: usize, parts: usize) -> Vec<usize> {
        let keys: usize = self.chunks.iter().map(|span| span.chunk.keys).sum();
        let mut ends: Vec<usize> = Vec::with_capacity(parts);
        for part in 1..parts {
            let wanted = keys as f64 * (part as f64 / parts as f64);
            let (mut low, mut high) = (ends.last().map_or(0, |end| end / WORD), range / WORD);
            while low < high {
                let middle = (low + high) / 2;
                let below = self
                    .chunks
                    .iter()
                    .map(|span| span.keys_below(middle * WORD));
                match below.sum::<f64>() < wanted {
                    true => low = middle + 1,
                    false => high = middle,
                }
            }
            if ends.last().copied().unwrap_or(0) < low * WORD && low * WORD < range {
                ends.push(low * WORD);
            }
        }
        ends.push(range);
        ends
    }

    /// Writes bits and codes of a part, and returns its number of distinct keys.
    fn write<C: StoredCode>(&self, part: Part<'_>, codes: &mut CodesPart<'_, C>) -> usize {
        let Part { begin, end, bits } = part;
        let is_set = matches!(self.codes, RowCodes::Set);
        let here = |span: &&Span<'_>| span.least < end && span.greatest >= begin;
        for span in self.chunks.iter().filter(here) {
            codes.write_missing((span.greatest + 1).saturating_sub(begin));
            let is_whole = begin <= span.least && span.greatest < end;
            let start = self.first.wrapping_add_unsigned(begin as u64);
            span.chunk.each_block(self.codes, |block| {
                if !is_whole {
                    block.keep(|_, key| (key.wrapping_sub(start) as u64) < (end - begin) as u64);
                }
                // The word is in a register as long as keys fall into it: sorted ones do so many times.
                let (mut at, mut word, mut taken) = (0, bits[0], 0);
                for (key, code) in block.keys().iter().zip(block.codes()) {
                    let index = key.wrapping_sub(start) as usize;
                    if index / WORD != at {
                        bits[at] = word;
                        at = index / WORD;
                        word = bits[at];
                    }
                    let bit = 1 << (index % WORD);
                    taken |= word & bit;
                    word |= bit;
                    codes.set(index, *code);
                }
                bits[at] = word;
                if taken != 0 && !is_set {
                    self.has_duplicates.store(true, Ordering::Relaxed);
                }
                !self.has_duplicates.load(Ordering::Relaxed)
            });
        }
        bits.iter().map(|word| word.count_ones() as usize).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array};

    use super::super::key_chunks::{KeyChunks, KeyKind, bounds};
    use super::*;

    /// The ends of parts of the keys of `chunks`.
    fn ends(chunks: &[&[i64]], parts: usize) -> Vec<usize> {
        let chunks = chunks
            .iter()
            .map(|keys| Arc::new(Int64Array::from(keys.to_vec())) as _);
        let chunks: Vec<ArrayRef> = chunks.collect();
        let keys = KeyChunks::new(&chunks, 1).unwrap();
        let KeyKind::Integers(chunks) = &keys.kind else {
            panic!("text");
        };
        let (first, last) = bounds(chunks).unwrap_or((0, 0));
        let build = Build {
            chunks: Span::sorted(chunks, first),
            first,
            codes: RowCodes::Set,
            has_duplicates: AtomicBool::new(false),
        };
        build.part_ends(last.abs_diff(first) as usize + 1, parts)
    }

    #[test]
    fn parts_have_as_many_keys_each() {
        let even: Vec<i64> = (0..640).collect();
        assert_eq!(ends(&[&even], 4), [160, 320, 480, 640]);
        // a key far off does not move the others' parts
        assert_eq!(ends(&[&even, &[1 << 20]], 2), [352, (1 << 20) + 1]);
        let (low, high) = even.split_at(320);
        assert_eq!(ends(&[high, low], 2), [320, 640]);
        // no part is empty
        assert_eq!(ends(&[&[5, 6, 7]], 4), [3]);
        assert_eq!(ends(&[], 4), [1]);
        assert_eq!(ends(&[&[-1, 31]], 8), [32, 33]);
    }
}
