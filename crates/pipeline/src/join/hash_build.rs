//! Builds hash tables of integer keys. Each thread owns a part of the buckets and their codes, reads all keys and inserts
//! those that hash to its part. Keys that would have to go beyond the end of their part are few, and inserted at last.

use std::hint::black_box;
use std::mem;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use super::code_table::{CodeTable, CodesPart, StoredCode};
use super::hash_table::{BUCKET, HashedKeys, MOST_PROBES, hash_of};
use super::key_chunks::{BLOCK, Block, IntegerChunk, RowCodes, bounds};
use crate::error::{Error, Result};

/// Builds the table of the distinct keys of `chunks`, which may be duplicates.
///
/// # Errors
///
/// [`Error::Unsupported`] if there are too many keys, or if their hashes collide too often.
pub(super) fn hashed_set(chunks: &[IntegerChunk]) -> Result<HashedKeys> {
    // the number of distinct keys is not known
    let mut table = HashedKeys::empty(HashedKeys::slots_for(0)?, no_key(chunks))?;
    let mut inserted = Ok(());
    for chunk in chunks {
        chunk.each_block(RowCodes::Set, |block| {
            let mut keys = block.keys().iter();
            inserted = keys.try_for_each(|key| table.insert(*key).map(drop));
            inserted.is_ok()
        });
        mem::replace(&mut inserted, Ok(()))?;
    }
    Ok(table)
}

/// Builds the table of the keys of `chunks`, with a code below `count` for each; `None` if keys are duplicate.
///
/// # Errors
///
/// [`Error::Unsupported`] if there are too many keys, or if their hashes collide too often.
pub(super) fn hashed_table<C: StoredCode>(
    chunks: &[IntegerChunk],
    (codes, count): (RowCodes<'_>, u32),
    threads: usize,
) -> Result<Option<(HashedKeys, CodeTable)>> {
    let keys = chunks.iter().map(|chunk| chunk.keys).sum();
    let mut slots = vec![0; HashedKeys::slots_for(keys)?];
    let build = Build {
        chunks,
        codes,
        empty: no_key(chunks),
        mask: slots.len() / BUCKET - 1,
        has_duplicates: AtomicBool::new(false),
    };
    let buckets = slots.len() / BUCKET;
    let (mut rest, mut begin) = (&mut slots[..], 0);
    let parts = (1..=threads).map(|part| {
        let end = buckets * part / threads;
        let (slots, behind) = mem::take(&mut rest).split_at_mut((end - begin) * BUCKET);
        let part = Part {
            first: begin,
            slots,
            probes: 1,
            len: 0,
            left: Vec::new(),
        };
        (rest, begin) = (behind, end);
        (end * BUCKET, part)
    });
    let parts = parts.collect();
    let write = |mut part: Part<'_>, codes: &mut CodesPart<'_, C>| {
        build.write(&mut part, codes);
        (part.probes, part.len, part.left)
    };
    let size = buckets * BUCKET;
    let (mut code_table, parts) = CodeTable::of_parts(size, parts, threads, write);
    if build.has_duplicates.into_inner() {
        return Ok(None);
    }
    let probes = parts.iter().map(|(probes, ..)| *probes).max().unwrap_or(1);
    let len = parts.iter().map(|(_, len, _)| len).sum();
    let mut table = HashedKeys {
        slots,
        empty: build.empty,
        probes,
        len,
        filter: OnceLock::new(),
    };
    for (key, code) in parts.into_iter().flat_map(|(.., left)| left) {
        let before = table.len();
        let slot = table.insert(key)?;
        if table.len() == before {
            return Ok(None);
        }
        if table.slots().len() == size {
            code_table.set(slot, code);
        }
    }
    if table.slots().len() != size {
        // it has grown, so that keys have moved
        code_table = codes_of_slots(&table, chunks, (codes, count))?;
    }
    Ok(Some((table, code_table)))
}

/// The code of each slot of a table of all keys of `chunks`.
fn codes_of_slots(
    table: &HashedKeys,
    chunks: &[IntegerChunk],
    (codes, count): (RowCodes<'_>, u32),
) -> Result<CodeTable> {
    let mut code_table = CodeTable::new(count, table.slots().len() as u64)?;
    let mut are_found = true;
    for chunk in chunks {
        chunk.each_block(codes, |block| {
            for (key, code) in block.keys().iter().zip(block.codes()) {
                match table.slot_index(*key) {
                    Some(slot) => code_table.set(slot, *code),
                    None => are_found = false,
                }
            }
            are_found
        });
    }
    match are_found {
        true => Ok(code_table),
        false => Err(Error::Internal("a key without a slot".into())),
    }
}

struct Build<'a> {
    chunks: &'a [IntegerChunk],
    codes: RowCodes<'a>,
    empty: i64,
    /// The number of buckets minus one.
    mask: usize,
    /// True if a thread has found a key twice, so that all of them stop.
    has_duplicates: AtomicBool,
}

/// Consecutive buckets of a table.
struct Part<'a> {
    /// The index of the first bucket.
    first: usize,
    slots: &'a mut [i64],
    /// Maximum buckets that a probe for a key of the part reads.
    probes: u32,
    len: usize,
    /// Keys without a free slot in the part, with their codes.
    left: Vec<(i64, u32)>,
}

/// Keys of a block that hash to a part.
struct OwnKeys {
    keys: [i64; BLOCK],
    codes: [u32; BLOCK],
    /// Indices in the part.
    buckets: [u32; BLOCK],
    len: usize,
}

impl OwnKeys {
    /// Takes the keys that hash to `count` buckets from `first` on.
    fn take(&mut self, block: &Block, mask: usize, (first, count): (usize, usize)) {
        self.len = 0;
        for (key, code) in block.keys().iter().zip(block.codes()) {
            // without a branch, as hashes come in no order
            let bucket = (hash_of(*key) as usize & mask).wrapping_sub(first);
            self.keys[self.len] = *key;
            self.codes[self.len] = *code;
            self.buckets[self.len] = bucket as u32;
            self.len += usize::from(bucket < count);
        }
    }
}

impl Build<'_> {
    /// Writes slots and codes of a part.
    fn write<C: StoredCode>(&self, part: &mut Part<'_>, codes: &mut CodesPart<'_, C>) {
        part.slots.fill(self.empty);
        codes.write_missing(part.slots.len());
        let buckets = (part.first, part.slots.len() / BUCKET);
        let mut own = OwnKeys {
            keys: [0; BLOCK],
            codes: [0; BLOCK],
            buckets: [0; BLOCK],
            len: 0,
        };
        for chunk in self.chunks {
            chunk.each_block(self.codes, |block| {
                own.take(block, self.mask, buckets);
                // Reads of a loop without branches wait for memory together, those of an insertion one by one.
                let buckets = own.buckets[..own.len].iter();
                let slots = buckets.map(|bucket| part.slots[*bucket as usize * BUCKET]);
                black_box(slots.fold(0, |all, slot| all ^ slot));
                let are_distinct = (0..own.len).all(|row| {
                    let (key, code) = (own.keys[row], own.codes[row]);
                    part.insert((key, code), own.buckets[row] as usize, self.empty, codes)
                });
                if !are_distinct {
                    self.has_duplicates.store(true, Ordering::Relaxed);
                }
                !self.has_duplicates.load(Ordering::Relaxed)
            });
        }
    }
}

impl Part<'_> {
    /// Inserts a key that hashes to the bucket of the index `bucket`. Returns false if it is there already.
    #[inline]
    fn insert<C: StoredCode>(
        &mut self,
        (key, code): (i64, u32),
        bucket: usize,
        empty: i64,
        codes: &mut CodesPart<'_, C>,
    ) -> bool {
        let mut first = bucket * BUCKET;
        for probe in 1..=MOST_PROBES {
            let Some(slots) = self.slots.get_mut(first..first + BUCKET) else {
                break;
            };
            for (index, slot) in slots.iter_mut().enumerate() {
                if *slot == empty {
                    *slot = key;
                    codes.set(first + index, code);
                    self.probes = self.probes.max(probe);
                    self.len += 1;
                    return true;
                }
                if *slot == key {
                    return false;
                }
            }
            first += BUCKET;
        }
        self.left.push((key, code));
        true
    }
}

/// Returns an integer that is no key.
fn no_key(chunks: &[IntegerChunk]) -> i64 {
    let (least, greatest) = bounds(chunks).unwrap_or((i64::MAX, i64::MIN));
    match (least.checked_sub(1), greatest.checked_add(1)) {
        (Some(below), _) => below,
        (None, Some(above)) => above,
        (None, None) => {
            // both extremes are keys, so one of as many integers after the smallest is free
            let count = chunks.iter().map(|chunk| chunk.keys).sum();
            let mut taken = vec![false; count];
            for chunk in chunks {
                chunk.each_block(RowCodes::One, |block| {
                    for key in block.keys() {
                        let behind = usize::try_from(key.abs_diff(i64::MIN)).unwrap_or(usize::MAX);
                        if let Some(taken) = behind.checked_sub(1).and_then(|at| taken.get_mut(at))
                        {
                            *taken = true;
                        }
                    }
                    true
                });
            }
            let free = taken.iter().position(|taken| !taken).unwrap_or(count);
            i64::MIN.wrapping_add_unsigned(free as u64 + 1)
        }
    }
}
