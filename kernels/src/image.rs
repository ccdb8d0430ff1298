//! A column chunk as kernels read it: one piece of memory that can lie anywhere.
//!
//! The packed words are those of the file. What a reader of the file finds by adding up (where a
//! vector's words start, which patches are its own) is written out, so that a warp that decodes a
//! vector reads 16 bytes, and then the words:
//!
//! ```text
//! header    128 bytes: form, sequence, rows, places of the parts, reference, step
//! vectors   16 bytes each: line of the packed words, width, flags, scale, base
//! extras    32 bytes each, if some vector has patches, nulls or differences
//! values    dictionary entries, or plain values
//! packed    packed words; of `delta` those of a vector behind where its lanes start
//! blocks    of single vectors: patches, exceptions, bitmaps of validity, runs
//! ```
//!
//! `kernels/column.cuh` has the same structs. Runs are stored with a bit for each row that starts one
//! instead of their lengths, and values of whole bytes. Whatever parsing a chunk
//! leaves unchecked (codes without an entry, runs that do not tile a vector) is checked here: kernels
//! trust images.

use arrow::array::{Array, ArrayRef, BooleanBufferBuilder};
use arrow::datatypes::DataType;
use vectile_encodings::layout::{DeltaView, Packed, PatchList, Sequence, Values};
use vectile_encodings::{Column, Selection, VECTOR_LEN};

use crate::error::{Error, Result};
use crate::shape::{
    ALL_NULL, EXCEPTIONS, Form, PATCHED, SOME_NULL, SequenceKind, Shape, WIDE_STARTS,
};
use crate::types::Type;

const HEADER_BYTES: usize = 128;
const VECTOR_BYTES: usize = 16;
const EXTRA_BYTES: usize = 32;
const LINE_BYTES: usize = 128;
const LANES: usize = 32;
/// What a decoder may read behind packed words, and behind the values of runs.
const SLACK_BYTES: usize = 2048;

/// More than any code that a writer of ours leaves.
const MAX_CODES: u64 = 1 << 20;

/// A column chunk as the device wants it, still on the host.
#[derive(Debug)]
pub struct Image {
    bytes: Vec<u8>,
    chunk: Chunk,
}

/// What is known of a column chunk, wherever its image lies.
#[derive(Clone, Debug)]
pub struct Chunk {
    /// Bytes of the image.
    pub bytes: usize,
    /// Its rows.
    pub rows: usize,
    /// Of the column.
    pub data_type: DataType,
    /// What kernels have to know of it.
    pub shape: Shape,
    /// The distinct values, if that is how they are stored.
    pub entries: Option<ArrayRef>,
    /// One more than the largest code that a kernel may meet.
    pub codes: usize,
    /// Values of some rows: what share of them a lookup finds decides when it is made. None of text that
    /// is in no dictionary.
    pub sample: Option<ArrayRef>,
}

/// Rows of a chunk in its sample.
const SAMPLE_ROWS: usize = 32;

#[derive(Clone, Copy, Default)]
struct Vector {
    line: u32,
    width: u8,
    flags: u8,
    scale: u16,
    base: u64,
}

#[derive(Clone, Copy, Default)]
struct Extra {
    patches: u32,
    exceptions: u32,
    bitmap: u32,
    right_line: u32,
    smallest: u64,
    right_width: u32,
}

/// An image while it is put together. Places are in units of 16 bytes; blocks lie behind the packed
/// words, whose length is known first.
struct Builder {
    shape: Shape,
    vectors: Vec<Vector>,
    extras: Vec<Extra>,
    values: Vec<u8>,
    packed: Vec<u8>,
    blocks: Vec<u8>,
    patch_bytes: u8,
    reference: i128,
    entries: u32,
    codes: usize,
    right_width: u32,
    lefts: [u64; 8],
    step: i64,
}

impl Image {
    /// The image of a column. Checks what parsing the column has left to check.
    ///
    /// # Errors
    ///
    /// [`Error::Encoding`] for a damaged column; [`Error::Unsupported`] for strings that are not a
    /// dictionary, nested types and others without a fixed-width value.
    pub fn build(column: &Column) -> Result<Self> {
        let rows = column.len();
        let layout = column.layout();
        let mut builder = Builder::new(column.num_vectors());
        let mut entries = None;
        builder.values(column, layout.values, &mut entries)?;
        builder.validity(&layout.validity);
        builder.shape.based = builder.vectors.iter().any(|vector| vector.base != 0);
        let (shape, codes) = (builder.shape.clone(), builder.codes);
        let is_number = Type::of(column.data_type()).is_some();
        let sample = match is_number || entries.is_some() {
            true => Some(sample(column)?),
            false => None,
        };
        let bytes = builder.finish(rows)?;
        let chunk = Chunk {
            bytes: bytes.len(),
            rows,
            data_type: column.data_type().clone(),
            shape,
            entries,
            codes,
            sample,
        };
        Ok(Self { bytes, chunk })
    }

    /// What the device gets.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Rows of the chunk.
    pub fn rows(&self) -> usize {
        self.chunk.rows
    }

    /// What is known of the chunk.
    pub fn chunk(&self) -> &Chunk {
        &self.chunk
    }
}

/// Values of [`SAMPLE_ROWS`] rows, as far from each other as may be.
fn sample(column: &Column) -> Result<ArrayRef> {
    let (rows, wanted) = (column.len(), SAMPLE_ROWS.min(column.len()));
    let mut bits = BooleanBufferBuilder::new(rows);
    bits.append_n(rows, false);
    (0..wanted).for_each(|index| bits.set_bit(index * rows / wanted, true));
    let selection = Selection::from_boolean_buffer(0, &bits.finish());
    Ok(column.select(&selection)?)
}

fn too_large() -> Error {
    Error::Unsupported("a column chunk beyond 64 GiB".into())
}

/// The place of byte `at`, a multiple of 16.
fn place(at: usize) -> Result<u32> {
    u32::try_from(at / 16).map_err(|_| too_large())
}

fn pad(bytes: &mut Vec<u8>, to: usize) {
    bytes.resize(bytes.len().next_multiple_of(to), 0);
}

/// The fixed-width values of an array as Arrow lays them out.
fn value_bytes(array: &ArrayRef, width: usize) -> Vec<u8> {
    let data = array.to_data();
    let start = data.offset() * width;
    let bytes = data.buffers().first().map_or(&[][..], |b| b.as_slice());
    let end = start + data.len() * width;
    bytes.get(start..end).unwrap_or_default().to_vec()
}

impl Builder {
    fn new(vectors: usize) -> Self {
        Self {
            shape: Shape::default(),
            vectors: vec![Vector::default(); vectors],
            extras: vec![],
            values: vec![],
            packed: vec![],
            blocks: vec![],
            patch_bytes: 4,
            reference: 0,
            entries: 0,
            codes: 0,
            right_width: 0,
            lefts: [0; 8],
            step: 0,
        }
    }

    fn extra(&mut self, vector: usize) -> &mut Extra {
        if self.extras.is_empty() {
            self.extras = vec![Extra::default(); self.vectors.len()];
        }
        &mut self.extras[vector]
    }

    fn form(&mut self, form: Form) {
        self.shape.forms = 1 << form as u8;
        self.shape.form = form;
    }

    fn values(
        &mut self,
        column: &Column,
        values: Values<'_>,
        entries: &mut Option<ArrayRef>,
    ) -> Result<()> {
        let rows = column.len();
        let data_type = column.data_type();
        let single = *data_type == DataType::Float32;
        match values {
            Values::AllNull => {
                let form = match Type::of(data_type) {
                    Some(_) => Form::Integer,
                    None => Form::Dict,
                };
                self.form(form);
                self.shape.sequence(SequenceKind::Packed);
                self.shape.include(0, 0);
                if form == Form::Dict {
                    *entries = Some(arrow::array::new_empty_array(data_type));
                }
            }
            Values::Constant(value) => {
                self.dictionary(value, Sequence::Constant(0), rows, entries)?
            }
            Values::Plain(width, bytes) => {
                let of = Type::of(data_type).ok_or_else(|| unsupported(data_type))?;
                self.form(Form::Plain);
                self.shape.sequence(SequenceKind::Packed);
                self.values = bytes.as_slice().to_vec();
                let whole = self.vectors.len() * VECTOR_LEN * width;
                self.values.resize(whole, 0);
                if let Some((low, high)) = of.range() {
                    self.shape.include(low, high);
                }
            }
            Values::Integers { reference, offsets } => {
                if Type::of(data_type).is_none() {
                    return Err(unsupported(data_type));
                }
                self.form(Form::Integer);
                self.reference = reference;
                let (low, high) = self.sequence(offsets, rows)?;
                self.shape.include(
                    reference.saturating_add(i128::from(low)),
                    reference.saturating_add(i128::from(high)),
                );
            }
            Values::Dictionary {
                entries: values,
                codes,
            } => self.dictionary(values, codes, rows, entries)?,
            Values::Alp {
                reference,
                exponents,
                factors,
                integers,
                exceptions,
            } => {
                self.form(Form::Alp);
                self.reference = i128::from(reference);
                self.sequence(integers, rows)?;
                for (vector, (e, f)) in exponents.iter().zip(factors).enumerate() {
                    let scale = u16::from(*e) * 19 + u16::from(*f);
                    self.vectors[vector].scale = scale;
                    self.shape.scale(scale);
                }
                self.exceptions(exceptions, if single { 4 } else { 8 })?;
            }
            Values::AlpRd {
                right_width,
                lefts,
                indices,
                rights,
                exceptions,
            } => {
                self.form(Form::AlpRd);
                self.right_width = right_width as u32;
                self.lefts = lefts;
                self.sequence(indices, rows)?;
                for vector in 0..self.vectors.len() {
                    if !rights.patches().is_empty(vector) {
                        return Err(Error::Unsupported("alp_rd with patched right parts".into()));
                    }
                    let (width, line) = (rights.width(vector), self.line()?);
                    self.packed.extend_from_slice(rights.words(vector));
                    self.shape.width(width);
                    let extra = self.extra(vector);
                    extra.right_line = line;
                    extra.right_width = width as u32;
                }
                self.exceptions(exceptions, 4)?;
            }
            _ => return Err(unsupported(data_type)),
        }
        Ok(())
    }

    fn dictionary(
        &mut self,
        values: &ArrayRef,
        codes: Sequence<'_>,
        rows: usize,
        entries: &mut Option<ArrayRef>,
    ) -> Result<()> {
        self.form(Form::Dict);
        let (_, bound) = self.sequence(codes, rows)?;
        self.entries = values.len() as u32;
        self.codes = values.len().max(1);
        // widths are rounded up to whole bits, so codes may seem to go beyond the entries; and the
        // rows that fill the last vector may have any code, which must be safe to look up
        if bound >= values.len() as u64 {
            let largest = codes.largest(rows)?;
            if largest >= values.len() as u64 && rows > 0 {
                let reason = format!("code {largest} of {} entries", values.len());
                let part = "dict";
                return Err(vectile_encodings::Error::Corrupt { part, reason }.into());
            }
            // kernels look before they look up codes of `delta`, and look up bases of others
            if !matches!(codes, Sequence::Delta(_)) {
                let filling = codes.largest(rows.next_multiple_of(VECTOR_LEN))?;
                let bases = self.vectors.iter().map(|vector| vector.base);
                let filling = bases.fold(filling, u64::max);
                if filling >= MAX_CODES {
                    return Err(Error::Unsupported(format!(
                        "a dictionary code of {filling}"
                    )));
                }
                self.codes = self.codes.max(filling as usize + 1);
            }
        }
        let numbers = integers(values);
        match numbers.as_ref().and_then(|numbers| numbers.spacing) {
            Some((first, step)) => (self.reference, self.step) = (first, step),
            None => self.shape.uneven = true,
        }
        if let Some(of) = Type::of(values.data_type()).filter(|of| *of != Type::Bool) {
            let width = values.data_type().primitive_width().unwrap_or(0);
            self.values = value_bytes(values, width);
            self.values.resize(self.codes * width, 0);
            if let Some((low, high)) = of.range() {
                let known = numbers.as_ref().map(|numbers| numbers.bounds);
                let (low, high) = known.unwrap_or((low, high));
                self.shape.include(low, high);
            }
        } else if *values.data_type() == DataType::Boolean && values.len() == 1 {
            return self.boolean(values);
        } else if *values.data_type() == DataType::Boolean {
            return Err(Error::Unsupported("a dictionary of booleans".into()));
        }
        *entries = Some(values.clone());
        Ok(())
    }

    /// A constant boolean.
    fn boolean(&mut self, value: &ArrayRef) -> Result<()> {
        let set = arrow::array::AsArray::as_boolean(value).value(0);
        self.form(Form::Integer);
        self.entries = 0;
        self.reference = i128::from(set);
        self.shape.include(self.reference, self.reference);
        Ok(())
    }

    fn line(&self) -> Result<u32> {
        u32::try_from(self.packed.len() / LINE_BYTES).map_err(|_| too_large())
    }

    /// Adds a sequence; gives bounds of the entries of its rows.
    fn sequence(&mut self, sequence: Sequence<'_>, rows: usize) -> Result<(u64, u64)> {
        let mut bounds: Option<(u64, u64)> = None;
        let mut include = |low: u64, high: u64| {
            bounds = Some(bounds.map_or((low, high), |(a, b)| (a.min(low), b.max(high))));
        };
        match sequence {
            Sequence::Constant(value) => {
                self.shape.sequence(SequenceKind::Packed);
                self.vectors.iter_mut().for_each(|v| v.base = value);
                self.shape.width(0);
                include(value, value);
            }
            Sequence::Ffor(view) => {
                self.shape.sequence(SequenceKind::Packed);
                let tops = self.residuals(view.residuals(), None)?;
                for (vector, top) in tops.into_iter().enumerate() {
                    let base = view.base(vector);
                    self.vectors[vector].base = base;
                    match base.checked_add(top) {
                        Some(high) => include(base, high),
                        // of damaged data: sums wrap around
                        None => include(0, u64::MAX),
                    }
                }
            }
            Sequence::Delta(view) => {
                self.shape.sequence(SequenceKind::Delta);
                let tops = self.residuals(view.residuals(), Some((view, rows)))?;
                let (mut least, mut most) = (0i128, 0i128);
                for (vector, top) in tops.into_iter().enumerate() {
                    let (base, smallest) = (view.base(vector), view.smallest(vector));
                    self.vectors[vector].base = base;
                    self.extra(vector).smallest = smallest;
                    // the first value, to which differences are added
                    let first = i128::from(base.wrapping_add(smallest)) + i128::from(top);
                    let (smallest, steps) = (i128::from(smallest as i64), VECTOR_LEN as i128 - 1);
                    least = least.min(first - i128::from(top) + smallest.min(0) * steps);
                    most = most.max(first + (smallest + i128::from(top)).max(0) * steps);
                }
                // differences may promise more than there is, and then every kernel is wider for it
                match least >= 0 && most <= i128::from(u32::MAX) {
                    true => include(0, most as u64),
                    false => include(0, sequence.largest(rows)?),
                }
            }
            Sequence::Rle(view) => {
                self.shape.sequence(SequenceKind::Rle);
                let mut runs: Vec<(u16, u64)> = vec![];
                let mut current = 0;
                let mut blocks = vec![];
                view.for_each_run(|vector, row, entry| {
                    if vector != current {
                        blocks.push((current, std::mem::take(&mut runs)));
                        current = vector;
                    }
                    include(entry, entry);
                    runs.push((row as u16, entry));
                })?;
                blocks.push((current, runs));
                for (vector, runs) in blocks {
                    if vector < self.vectors.len() {
                        self.runs(vector, &runs)?;
                    }
                }
            }
        }
        let bounds = bounds.unwrap_or((0, 0));
        // differences may be wider than what they add up to
        self.shape.wide_entries |= bounds.1 > u64::from(u32::MAX) || self.shape.high != 0;
        Ok(bounds)
    }

    /// Adds packed residuals with their patches, and of `delta` the starts of lanes before those of a
    /// vector; gives the largest that each vector may have.
    fn residuals(
        &mut self,
        residuals: Packed<'_>,
        delta: Option<(DeltaView<'_>, usize)>,
    ) -> Result<Vec<u64>> {
        if delta.is_none() {
            self.packed = residuals.all_words().as_slice().to_vec();
        }
        self.patch_width((0..self.vectors.len()).map(|v| residuals.patches().of(v)));
        let mut tops = Vec::with_capacity(self.vectors.len());
        let mut line = 0u32;
        for vector in 0..self.vectors.len() {
            let width = residuals.width(vector);
            if let Some((view, rows)) = delta {
                self.lane_starts(vector, &view.lane_starts(vector), rows);
                line = self.line()?;
                self.packed.extend_from_slice(residuals.words(vector));
            }
            self.packed_vector(vector, line, width);
            line = line.saturating_add(width as u32);
            let patched = residuals.patches().of(vector).map(|(_, residual)| residual);
            tops.push(patched.fold(top_of(width), u64::max));
            self.patches(vector, residuals.patches())?;
        }
        Ok(tops)
    }

    /// Adds the entries before the lanes' first ones, in a line, or two if some needs more than 32 bits.
    fn lane_starts(&mut self, vector: usize, starts: &[u64], rows: usize) {
        // a lane is bounded by where the one after it starts; lanes behind that may start anywhere
        let live = rows.saturating_sub(vector * VECTOR_LEN).div_ceil(LANES);
        let mut bounds = starts.iter().take(live + 1);
        let is_wide = bounds.any(|start| *start > u64::from(u32::MAX));
        let bytes = if is_wide { 8 } else { 4 };
        for start in starts {
            self.packed.extend(&start.to_le_bytes()[..bytes]);
        }
        if is_wide {
            self.flag(vector, WIDE_STARTS);
        }
    }

    fn packed_vector(&mut self, vector: usize, line: u32, width: usize) {
        self.vectors[vector].line = line;
        self.vectors[vector].width = width as u8;
        self.shape.width(width);
    }

    /// Settles how many bytes a patch takes.
    fn patch_width<I: Iterator<Item = (usize, u64)>>(&mut self, vectors: impl Iterator<Item = I>) {
        let wide = vectors.flatten().any(|(_, v)| v > u64::from(u32::MAX));
        self.patch_bytes = if wide { 8 } else { 4 };
    }

    fn patches(&mut self, vector: usize, patches: PatchList<'_>) -> Result<()> {
        if !patches.is_empty(vector) {
            let block = self.patch_block(patches, vector, self.patch_bytes)?;
            self.extra(vector).patches = block;
            self.flag(vector, PATCHED);
        }
        Ok(())
    }

    fn exceptions(&mut self, exceptions: PatchList<'_>, bytes: u8) -> Result<()> {
        for vector in 0..self.vectors.len() {
            if !exceptions.is_empty(vector) {
                let block = self.patch_block(exceptions, vector, bytes)?;
                self.extra(vector).exceptions = block;
                self.flag(vector, EXCEPTIONS);
            }
        }
        Ok(())
    }

    fn flag(&mut self, vector: usize, flag: u8) {
        self.vectors[vector].flags |= flag;
        self.shape.flags |= flag;
    }

    /// A word for each lane with count and offset of its patches, their values, their positions.
    fn patch_block(&mut self, patches: PatchList<'_>, vector: usize, bytes: u8) -> Result<u32> {
        let start = self.block()?;
        let (mut words, mut positions, mut values) = ([0u16; 32], vec![], vec![]);
        for (row, value) in patches.of(vector) {
            let lane = row % 32;
            if words[lane] == 0 {
                words[lane] = positions.len() as u16;
            }
            words[lane] += 1 << 10;
            positions.push(row as u16);
            values.push(value);
        }
        // lanes without patches: the last one tells the total
        let mut offset = 0;
        for word in &mut words {
            if *word >> 10 == 0 {
                *word = offset;
            }
            offset = (*word >> 10) + (*word & 0x3FF);
        }
        words
            .iter()
            .for_each(|w| self.blocks.extend(w.to_le_bytes()));
        for value in values {
            let value = value.to_le_bytes();
            self.blocks.extend(&value[..usize::from(bytes)]);
        }
        positions
            .iter()
            .for_each(|p| self.blocks.extend(p.to_le_bytes()));
        pad(&mut self.blocks, 16);
        Ok(start)
    }

    /// The runs of a vector, by first row and entry: a bit for each row that starts one, entries.
    fn runs(&mut self, vector: usize, runs: &[(u16, u64)]) -> Result<()> {
        let start = self.block()?;
        let low = runs.iter().map(|(_, entry)| *entry).min().unwrap_or(0);
        let high = runs.iter().map(|(_, entry)| *entry).max().unwrap_or(0);
        let width: usize = match high - low {
            0 => 0,
            1..=0xFF => 1,
            0x100..=0xFFFF => 2,
            0x1_0000..=0x7FFF_FFFF => 4,
            // lookups count on four bytes having a bit to spare
            _ => 8,
        };
        self.shape.wide_entries |= width == 8;
        let mut starts = [0u8; VECTOR_LEN / 8];
        for (row, _) in runs {
            starts[usize::from(*row) / 8] |= 1 << (row % 8);
        }
        self.blocks.extend(starts);
        for (_, entry) in runs {
            self.blocks.extend(&(entry - low).to_le_bytes()[..width]);
        }
        pad(&mut self.blocks, 16);
        let vector = &mut self.vectors[vector];
        vector.line = start;
        vector.width = width as u8;
        vector.base = low;
        Ok(())
    }

    /// The place of the next block, counted from the first one.
    fn block(&self) -> Result<u32> {
        place(self.blocks.len())
    }

    fn validity(&mut self, nulls: &vectile_encodings::layout::Nulls<'_>) {
        if !nulls.any() {
            return;
        }
        for vector in 0..self.vectors.len() {
            match nulls.mask(vector) {
                None => {}
                Some(mask) if mask == [0; 16] => self.flag(vector, ALL_NULL),
                Some(mask) => {
                    // 2^28 rows at most, so 32 MiB of bitmaps
                    let start = (self.blocks.len() / 16) as u32;
                    mask.iter()
                        .for_each(|w| self.blocks.extend(w.to_le_bytes()));
                    self.extra(vector).bitmap = start;
                    self.flag(vector, SOME_NULL);
                }
            }
        }
    }

    fn finish(mut self, rows: usize) -> Result<Vec<u8>> {
        let vectors_at = HEADER_BYTES;
        let extras_at = vectors_at + self.vectors.len() * VECTOR_BYTES;
        let values_at = (extras_at + self.extras.len() * EXTRA_BYTES).next_multiple_of(256);
        let packed_at = (values_at + self.values.len()).next_multiple_of(LINE_BYTES);
        let blocks_at = packed_at + self.packed.len();
        let first_block = place(blocks_at)?;
        // lines and places so far count from the packed words and from the first block
        let first_line = u32::try_from(packed_at / LINE_BYTES).map_err(|_| too_large())?;
        let first = match self.shape.sequences == 1 << SequenceKind::Rle as u8 {
            true => first_block,
            false => first_line,
        };
        for vector in &mut self.vectors {
            vector.line = vector.line.checked_add(first).ok_or_else(too_large)?;
        }
        for extra in &mut self.extras {
            extra.right_line = extra
                .right_line
                .checked_add(first_line)
                .ok_or_else(too_large)?;
        }
        let mut out = Vec::with_capacity(blocks_at + self.blocks.len() + SLACK_BYTES);
        let sequence = self.shape.sequences.trailing_zeros().min(2) as u8;
        out.extend([self.shape.form as u8, sequence, 0, self.patch_bytes]);
        let rows = u32::try_from(rows).map_err(|_| too_large())?;
        for word in [
            rows,
            place(vectors_at)?,
            place(extras_at)?,
            place(packed_at)?,
            place(values_at)?,
            self.entries,
            self.right_width,
        ] {
            out.extend(word.to_le_bytes());
        }
        out.extend(self.reference.to_le_bytes());
        self.lefts
            .iter()
            .for_each(|left| out.extend(left.to_le_bytes()));
        out.extend(self.step.to_le_bytes());
        out.resize(HEADER_BYTES, 0);
        for v in &self.vectors {
            out.extend(v.line.to_le_bytes());
            out.extend([v.width, v.flags]);
            out.extend(v.scale.to_le_bytes());
            out.extend(v.base.to_le_bytes());
        }
        for e in &self.extras {
            for word in [e.patches, e.exceptions, e.bitmap] {
                let word = word.checked_add(first_block).ok_or_else(too_large)?;
                out.extend(word.to_le_bytes());
            }
            out.extend(e.right_line.to_le_bytes());
            out.extend(e.smallest.to_le_bytes());
            out.extend(e.right_width.to_le_bytes());
            out.extend([0; 4]);
        }
        out.resize(values_at, 0);
        out.extend(&self.values);
        out.resize(packed_at, 0);
        out.extend(&self.packed);
        out.extend(&self.blocks);
        out.resize(out.len() + SLACK_BYTES, 0);
        pad(&mut out, 256);
        Ok(out)
    }
}

fn unsupported(data_type: &DataType) -> Error {
    Error::Unsupported(format!("{data_type} that is not a dictionary"))
}

/// The largest residual of a width.
fn top_of(width: usize) -> u64 {
    match width {
        0 => 0,
        1..64 => (1 << width) - 1,
        _ => u64::MAX,
    }
}

/// What is known of an array of integers.
struct Integers {
    /// The smallest and the largest.
    bounds: (i128, i128),
    /// The first, and what each is greater than the one before, if that is always the same.
    spacing: Option<(i128, i64)>,
}

impl Integers {
    /// `None` without values.
    fn of<T: Copy + Into<i128>>(values: &[T]) -> Option<Self> {
        let numbers = || values.iter().map(|value| (*value).into());
        let first: i128 = numbers().next()?;
        let bounds = numbers().fold((first, first), |(low, high), n| (low.min(n), high.max(n)));
        let second = numbers().nth(1).unwrap_or(first);
        let step = second
            .checked_sub(first)
            .and_then(|step| i64::try_from(step).ok());
        let is_even = |step: &i64| {
            let mut pairs = numbers().zip(numbers().skip(1));
            pairs.all(|(a, b)| a.checked_add(i128::from(*step)) == Some(b))
        };
        Some(Self {
            bounds,
            spacing: step.filter(is_even).map(|step| (first, step)),
        })
    }
}

/// What is known of an array, if it is one of integers.
fn integers(values: &ArrayRef) -> Option<Integers> {
    use arrow::array::AsArray;
    use arrow::datatypes::*;
    macro_rules! of_type {
        ($($of:ident),*) => {
            match values.data_type().primitive_width()? {
                $(_ if values.as_any().is::<arrow::array::PrimitiveArray<$of>>() => {
                    Integers::of(values.as_primitive::<$of>().values())
                })*
                _ => None,
            }
        };
    }
    of_type!(
        Int8Type,
        Int16Type,
        Int32Type,
        Int64Type,
        UInt8Type,
        UInt16Type,
        UInt32Type,
        UInt64Type,
        Date32Type,
        Date64Type,
        Decimal32Type,
        Decimal64Type,
        Decimal128Type,
        Time32SecondType,
        Time32MillisecondType,
        Time64MicrosecondType,
        Time64NanosecondType,
        TimestampSecondType,
        TimestampMillisecondType,
        TimestampMicrosecondType,
        TimestampNanosecondType,
        DurationSecondType,
        DurationMillisecondType,
        DurationMicrosecondType,
        DurationNanosecondType
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Decimal128Array, Int64Array, StringArray};
    use vectile_encodings::{EncodeOptions, Encoding, encode};

    use super::*;

    fn is_even(array: ArrayRef) -> bool {
        let pin = Some(Encoding::Dict);
        let bytes = encode(&array, &EncodeOptions { pin }).unwrap();
        let column = Column::parse(bytes.into(), array.data_type(), array.len()).unwrap();
        let image = Image::build(&column).unwrap();
        assert_eq!(image.chunk().shape.form, Form::Dict);
        !image.chunk().shape.uneven
    }

    #[test]
    fn dictionaries_of_evenly_spaced_numbers() {
        let integers = |values: &[i64]| Arc::new(Int64Array::from(values.to_vec())) as ArrayRef;
        let quantities = (0..3000i128).map(|row| Some(row * 7 % 50 * 100 + 100));
        assert!(is_even(Arc::new(Decimal128Array::from_iter(quantities))));
        assert!(is_even(integers(&[3, 3, 3, -8, -8, 3])));
        assert!(is_even(integers(&[i64::MIN, -1, i64::MIN, -1])));
        assert!(!is_even(integers(&[1, 2, 3, 3, 5, 1])));
        // further from each other than 64 bits hold
        assert!(!is_even(integers(&[
            i64::MIN,
            i64::MAX,
            i64::MIN,
            i64::MAX
        ])));
        assert!(!is_even(Arc::new(StringArray::from(vec!["a", "b", "a"]))));
    }
}
