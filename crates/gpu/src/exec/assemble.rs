//! Columns made on the device of their streams: inflated, decoded, packed. `kernels/orc` is the device's side.
//!
//! ```text
//! host     streams, what kernels are told                   fronts of chunks
//!             │                                    ▲             │
//! device      └▶ inflate ─▶ decode runs ─▶ bounds ─┘             └▶ pack ─▶ chunks
//! ```
//!
//! The host waits once in between: how wide residuals are follows from the bounds. What kernels find wrong, and what is
//! not as a column needs it, is an error without details: whoever has the streams decodes them on a CPU then, which says
//! what is wrong, and where.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayData, ArrayRef, UInt64Array, make_array};
use arrow::buffer::{Buffer, NullBuffer};
use arrow::compute::take;
use arrow::datatypes::DataType;
use vectile_encodings::VECTOR_LEN;
use vectile_kernels::{
    DeviceChunk, INFLATE_WARP_BYTES, RunLength, SAMPLE_ROWS, Type, Unwritten, UnwrittenValues,
};

use super::places::Places;
use super::streams::{ByteStream, RunStream, StreamColumn, StreamValues};
use super::tables::write_words;
use crate::error::{Error, Result};
use crate::runtime::{
    ChunkKey, Engine, FixedKernel, Kernel, Lane, Launch, Piece, Resident, Stream,
};

/// Bytes before and behind streams that kernels may read.
const SLACK_BYTES: usize = 64;
/// Bytes that decoding may take at once, unless a column takes more.
const MOST_SCRATCH: usize = 1 << 30;
const WARPS: u32 = 4;
const MASK_BYTES: usize = VECTOR_LEN / 8;

// Words of descriptors, as `kernels/orc` has them.
const CHUNK_WORDS: usize = 4;
const PART_WORDS: usize = 5;
const COLUMN_WORDS: usize = 12;
/// The word of a column that says where its chunk is, and the one behind it what residuals count from.
const CHUNK_AT: usize = 7;
const NO_NEXT: (u32, u32) = (u32::MAX, 0);

/// The steps of the kernel `columns`.
#[derive(Clone, Copy)]
enum Step {
    Bounds,
    Pack,
}

/// Its kinds of columns.
#[derive(Clone, Copy)]
enum Kind {
    Integers,
    Bits,
    Bytes,
    Decimals,
    Timestamps,
    Floats,
    Doubles,
    Text,
    Binary,
}

/// Columns that were made of streams.
#[derive(Debug, Default)]
pub struct Assembled {
    /// The chunks, in order.
    pub chunks: Vec<Arc<Resident>>,
    /// Bytes copied to the device for them.
    pub sent: usize,
    /// Kernels at work, by the device's clock.
    pub kernel: Duration,
}

impl Engine {
    /// Makes columns of streams and keeps them, as [`Engine::load_all`] does. Blocks until they are there.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if streams are damaged, or have what kernels do not decode: a CPU may, or says what is
    /// wrong. [`Error::OutOfMemory`] if chunks in use leave no room; [`Error::NotCompiled`] if a kernel is not there and
    /// must not be compiled; those of the driver.
    pub fn assemble_all(
        &self,
        columns: &[(ChunkKey, StreamColumn)],
        may_compile: bool,
    ) -> Result<Assembled> {
        self.health().watch(|| {
            let mut all = Assembled::default();
            let mut rest = columns;
            while !rest.is_empty() {
                let mut bytes = 0usize;
                let fits = rest.iter().take_while(|(_, column)| {
                    bytes = bytes.saturating_add(column.scratch_bytes());
                    bytes <= MOST_SCRATCH
                });
                let (portion, others) = rest.split_at(fits.count().max(1));
                let own: Vec<&StreamColumn> = portion.iter().map(|(_, column)| column).collect();
                let keys: Vec<ChunkKey> = portion.iter().map(|(key, _)| key.clone()).collect();
                let mut job = Job::new(self, own)?;
                let made = job.run(may_compile)?;
                all.sent += job.sent;
                all.kernel += job.kernel;
                all.chunks.extend(self.keep_made(&keys, made));
                rest = others;
            }
            Ok(all)
        })
    }
}

/// Bytes that go to the device, before it is known where they will be there.
#[derive(Default)]
struct Given<'a> {
    places: Places,
    bytes: Vec<(usize, &'a [u8])>,
}

impl<'a> Given<'a> {
    fn add(&mut self, bytes: &'a [u8]) -> usize {
        let at = self.places.next(bytes.len() + 2 * SLACK_BYTES) + SLACK_BYTES;
        self.bytes.push((at, bytes));
        at
    }
}

/// Where the bytes of a stream are once they are inflated, and its chunks.
#[derive(Clone, Debug)]
enum Source {
    /// As they were given, from this offset on.
    Given(usize),
    /// In scratch memory, from this offset on.
    Scratch(usize),
    /// In the body of the column's chunk.
    Body,
}

/// A stream under way.
struct Inflating<'a> {
    column: usize,
    stream: &'a ByteStream,
    /// Where its chunks were given.
    given: usize,
    source: Source,
    /// The numbers of its chunks among those of all.
    chunks: Range<usize>,
}

/// A stream of runs under way.
struct Decoding<'a> {
    runs: &'a RunStream,
    /// The number of its bytes.
    inflating: usize,
    width: usize,
    /// Where its values go in scratch memory.
    values: usize,
}

/// A column under way.
struct Making<'a> {
    column: &'a StreamColumn,
    kind: Kind,
    /// Numbers of its streams of runs.
    runs: Vec<usize>,
    /// The number of its bytes, if it is made of those.
    bytes: Option<usize>,
    /// Present rows, and values before each vector: where they are in what is given.
    present: Option<(usize, usize)>,
    /// Where bounds and sample are in what comes back, and a word that says whether a value is wrong.
    bounds: usize,
    sample: usize,
    wrong: usize,
    /// Of strings, the chunk, whose body is inflated into, and where that is.
    chunk: Option<(DeviceChunk, Piece)>,
}

/// Columns under way.
struct Job<'a> {
    engine: &'a Engine,
    streams: Vec<Inflating<'a>>,
    runs: Vec<Decoding<'a>>,
    columns: Vec<Making<'a>>,
    kernel: Duration,
    sent: usize,
}

fn wrong<T>(reason: &str) -> Result<T> {
    Err(Error::Unsupported(format!(
        "a stream for the CPU: {reason}"
    )))
}

/// Words one behind the other.
fn words_of(bytes: &[u8]) -> impl Iterator<Item = i64> {
    let words = bytes.as_chunks::<8>().0.iter();
    words.map(|word| i64::from_le_bytes(*word))
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

impl<'a> Job<'a> {
    fn new(engine: &'a Engine, columns: Vec<&'a StreamColumn>) -> Result<Self> {
        columns.iter().try_for_each(|column| column.check())?;
        let mut job = Self {
            engine,
            streams: vec![],
            runs: vec![],
            columns: vec![],
            kernel: Duration::ZERO,
            sent: 0,
        };
        for column in columns {
            job.add(column)?;
        }
        Ok(job)
    }

    fn add(&mut self, column: &'a StreamColumn) -> Result<()> {
        let number = self.columns.len();
        let kind = match &column.values {
            StreamValues::Integers(_) | StreamValues::Codes { .. } => Kind::Integers,
            StreamValues::Bits(_) => Kind::Bits,
            StreamValues::Bytes(_) => Kind::Bytes,
            StreamValues::Decimals { .. } => Kind::Decimals,
            StreamValues::Timestamps { .. } => Kind::Timestamps,
            StreamValues::Floats(_) if column.data_type == DataType::Float32 => Kind::Floats,
            StreamValues::Floats(_) => Kind::Doubles,
            StreamValues::Strings { .. } if column.data_type == DataType::Utf8 => Kind::Text,
            StreamValues::Strings { .. } => Kind::Binary,
        };
        let mut runs = vec![];
        for (stream, width) in column.runs().into_iter().flatten() {
            runs.push(self.runs.len());
            let inflating = self.inflate(number, &stream.stream);
            self.runs.push(Decoding {
                runs: stream,
                inflating,
                width,
                values: 0,
            });
        }
        let mut chunk = None;
        let bytes = match &column.values {
            StreamValues::Floats(bytes) => Some(self.inflate(number, bytes)),
            StreamValues::Strings { bytes, lengths } => {
                let own = unwritten(column, UnwrittenValues::Strings(lengths), None)?;
                let memory = self.engine.room_for(own.info().bytes)?;
                chunk = Some((own, memory));
                Some(self.inflate(number, bytes))
            }
            _ => None,
        };
        self.columns.push(Making {
            column,
            kind,
            runs,
            bytes,
            present: None,
            bounds: 0,
            sample: 0,
            wrong: 0,
            chunk,
        });
        Ok(())
    }

    fn inflate(&mut self, column: usize, stream: &'a ByteStream) -> usize {
        let before = self.streams.last().map_or(0, |stream| stream.chunks.end);
        self.streams.push(Inflating {
            column,
            stream,
            given: 0,
            source: Source::Body,
            chunks: before..before + stream.chunks().len(),
        });
        self.streams.len() - 1
    }

    /// Inflates, decodes, and packs.
    fn run(&mut self, may_compile: bool) -> Result<Vec<Arc<Resident>>> {
        let mut lane = self.engine.lane()?;
        let made = self.run_on(&mut lane, may_compile)?;
        self.engine.give_back(lane);
        Ok(made)
    }

    fn run_on(&mut self, lane: &mut Lane, may_compile: bool) -> Result<Vec<Arc<Resident>>> {
        let masks = self.columns.iter().map(|making| masks(making.column));
        let masks: Vec<Option<(Vec<u8>, Vec<u8>)>> = masks.collect();
        let mut given = Given::default();
        let layout = self.arrange(&masks, &mut given);
        let there = self
            .engine
            .take(layout.given + layout.scratch + layout.back)?;
        let at = At::new(there.address(), &layout);
        let mut told = self.tell(&at, &layout)?;
        let launches = Launches::new(self.engine, may_compile, &told)?;
        let found = self.decode(lane, &launches, &given, &layout, &at, &told)?;
        let made = self.lay_out(&found.as_slice()[..layout.back])?;
        self.pack(lane, &launches, &made, &layout, &at, &mut told)?;
        let residents = made.into_iter().map(|(chunk, memory)| {
            Resident::made(Arc::new(memory), 0, self.engine.info_of(&chunk))
        });
        Ok(residents.collect())
    }

    /// Finds places for what is given, for scratch, and for what comes back.
    fn arrange<'b>(
        &mut self,
        masks: &'b [Option<(Vec<u8>, Vec<u8>)>],
        given: &mut Given<'b>,
    ) -> Layout
    where
        'a: 'b,
    {
        let (mut scratch, mut back) = (Places::default(), Places::default());
        for stream in &mut self.streams {
            stream.given = given.add(stream.stream.bytes.as_slice());
            let is_of_strings = self.columns[stream.column].chunk.is_some();
            stream.source = match &stream.stream.chunks {
                _ if is_of_strings => Source::Body,
                None => Source::Given(stream.given),
                Some(_) => {
                    let room = scratch.next(stream.stream.room() + 2 * SLACK_BYTES);
                    Source::Scratch(room + SLACK_BYTES)
                }
            };
        }
        for decoding in &mut self.runs {
            decoding.values = scratch.next(decoding.runs.values() * decoding.width + SLACK_BYTES);
        }
        let chunks = self.streams.last().map_or(0, |stream| stream.chunks.end);
        let parts = self.runs.iter().map(|decoding| decoding.runs.parts.len());
        let parts = parts.sum();
        let inflated_at = back.next(chunks * 8);
        let faults_at = back.next(parts * 4);
        let wrong_at = back.next(self.columns.len() * 4);
        for (number, (making, masks)) in self.columns.iter_mut().zip(masks).enumerate() {
            let own = masks.as_ref();
            making.present = own.map(|(present, before)| (given.add(present), given.add(before)));
            making.bounds = back.next(making.vectors() * 16);
            making.sample = back.next(SAMPLE_ROWS * 8);
            making.wrong = wrong_at + number * 4;
        }
        let told_at = given
            .places
            .next(8 * (chunks * CHUNK_WORDS + parts * PART_WORDS));
        let columns_at = given.places.next(8 * self.columns.len() * COLUMN_WORDS);
        Layout {
            given: given.places.bytes(),
            scratch: scratch.bytes(),
            back: back.bytes(),
            chunks,
            parts,
            told_at,
            columns_at,
            inflated_at,
            faults_at,
            wrong_at,
        }
    }

    /// What kernels are told.
    fn tell(&self, at: &At, layout: &Layout) -> Result<Told> {
        let mut words = self.tell_chunks(at)?;
        let mut decodes = vec![];
        let mut faults = at.back + layout.faults_at as u64;
        for (encoding, own, parts) in self.tell_parts(at)? {
            decodes.push(Decode {
                encoding,
                told: at.given + (layout.told_at + 8 * words.len()) as u64,
                parts,
                faults,
            });
            faults += 4 * parts as u64;
            words.extend(own);
        }
        Ok(Told {
            words,
            columns: self.tell_columns(at),
            decodes,
            chunks: layout.chunks,
        })
    }

    /// Inflates and decodes, and finds bounds. Gives what came back, which says that nothing is wrong.
    fn decode(
        &mut self,
        lane: &mut Lane,
        launches: &Launches<'_>,
        given: &Given<'_>,
        layout: &Layout,
        at: &At,
        told: &Told,
    ) -> Result<Piece> {
        let mut pinned = self.engine.host_pool().take(layout.given)?;
        let host = pinned.as_mut_slice();
        for (at, bytes) in &given.bytes {
            host[*at..*at + bytes.len()].copy_from_slice(bytes);
        }
        write_words(&told.words, &mut host[layout.told_at..]);
        write_words(&told.columns, &mut host[layout.columns_at..]);
        let from = pinned.as_slice();
        let mut found = self.engine.host_pool().take(layout.back)?;
        let to = found.as_mut_slice().as_mut_ptr();
        let columns = self.columns_of(at, layout);
        let marks = lane.finish(|stream| {
            // SAFETY: everything has the places of the layout, for as many bytes as kernels are told; it lives until
            // `finish` is done. Bytes of streams may be any: kernels read none outside of streams, and write none outside
            // of the room for blocks and values.
            unsafe {
                stream.copy_in(at.given, from.as_ptr(), layout.given)?;
                for (to, bytes) in self.bodies_as_given(from) {
                    stream.copy_in(to, bytes.as_ptr(), bytes.len())?;
                }
                stream.fill(at.back, 0, layout.back)?;
                let start = stream.mark()?;
                launches.inflate(stream, at.given + layout.told_at as u64, at.inflated)?;
                launches.decode(stream, &told.decodes, at.inflated)?;
                launches.columns(stream, Step::Bounds, columns)?;
                let end = stream.mark()?;
                stream.copy_out(to, at.back, layout.back)?;
                Ok((start, end))
            }
        })?;
        self.kernel += lane.between(&marks)?;
        self.sent += layout.given;
        self.check_inflated(&found.as_slice()[layout.inflated_at..][..layout.chunks * 8])?;
        let faults = &found.as_slice()[layout.faults_at..][..layout.parts * 4];
        match faults.iter().all(|byte| *byte == 0) {
            true => Ok(found),
            false => wrong("damaged runs, or numbers of more than 64 bits"),
        }
    }

    /// Writes fronts, and has values packed behind them.
    fn pack(
        &mut self,
        lane: &mut Lane,
        launches: &Launches<'_>,
        made: &[(DeviceChunk, Piece)],
        layout: &Layout,
        at: &At,
        told: &mut Told,
    ) -> Result<()> {
        let mut places = Places::default();
        let fronts = made
            .iter()
            .map(|(chunk, _)| places.next(chunk.front_bytes()));
        let fronts: Vec<usize> = fronts.collect();
        for (own, (chunk, memory)) in told.columns.chunks_mut(COLUMN_WORDS).zip(made) {
            own[CHUNK_AT] = memory.address();
            own[CHUNK_AT + 1] = chunk.reference() as u64;
        }
        let told_bytes = 8 * told.columns.len();
        let told_at = places.next(told_bytes);
        let mut pinned = self.engine.host_pool().take(places.bytes())?;
        let host = pinned.as_mut_slice();
        for ((chunk, _), front) in made.iter().zip(&fronts) {
            let bytes = chunk.front_bytes();
            chunk.write_front(&mut host[*front..*front + bytes], bytes)?;
        }
        write_words(&told.columns, &mut host[told_at..]);
        let from = pinned.as_slice();
        let wrong_bytes = self.columns.len() * 4;
        let mut found = self.engine.host_pool().take(wrong_bytes)?;
        let to = found.as_mut_slice().as_mut_ptr();
        let columns = self.columns_of(at, layout);
        let marks = lane.finish(|stream| {
            // SAFETY: as in `decode`; chunks have the bytes that their fronts speak of.
            unsafe {
                for ((chunk, memory), front) in made.iter().zip(&fronts) {
                    let front = &from[*front..*front + chunk.front_bytes()];
                    stream.copy_in(memory.address(), front.as_ptr(), front.len())?;
                }
                stream.copy_in(columns[0], from[told_at..].as_ptr(), told_bytes)?;
                let start = stream.mark()?;
                launches.columns(stream, Step::Pack, columns)?;
                let end = stream.mark()?;
                stream.copy_out(to, at.back + layout.wrong_at as u64, wrong_bytes)?;
                Ok((start, end))
            }
        })?;
        self.kernel += lane.between(&marks)?;
        self.sent += places.bytes();
        match found.as_slice()[..wrong_bytes]
            .iter()
            .all(|byte| *byte == 0)
        {
            true => Ok(()),
            false => wrong("text that is not UTF-8"),
        }
    }

    /// Where columns are told of, how many there are, and their vectors.
    fn columns_of(&self, at: &At, layout: &Layout) -> [u64; 3] {
        let vectors: usize = self.columns.iter().map(Making::vectors).sum();
        let place = at.given + layout.columns_at as u64;
        [place, self.columns.len() as u64, vectors as u64]
    }

    /// Where a stream's bytes are, inflated.
    fn address(&self, stream: &Inflating<'_>, at: &At) -> u64 {
        match stream.source {
            Source::Given(offset) => at.given + offset as u64,
            Source::Scratch(offset) => at.scratch + offset as u64,
            Source::Body => {
                let chunk = self.columns[stream.column].chunk.as_ref();
                chunk.map_or(0, |(chunk, memory)| {
                    memory.address() + chunk.front_bytes() as u64
                })
            }
        }
    }

    /// What `inflate` is told of each chunk.
    fn tell_chunks(&self, at: &At) -> Result<Vec<u64>> {
        let mut words = vec![];
        for stream in &self.streams {
            let to = self.address(stream, at);
            let block = stream
                .stream
                .chunks
                .as_ref()
                .map_or(0, |chunks| chunks.block_bytes);
            // the body of strings has no room for more than these
            let most = match &self.columns[stream.column].chunk {
                Some((chunk, _)) => {
                    chunk.info().bytes - chunk.front_bytes() - DeviceChunk::SLACK_BYTES
                }
                None => stream.stream.room(),
            };
            for (number, chunk) in stream.stream.chunks().iter().enumerate() {
                let before = number * block;
                let Some(left) = most.checked_sub(before) else {
                    return wrong("more blocks of text than lengths say");
                };
                words.extend([
                    at.given + (stream.given + chunk.bytes.start) as u64,
                    to + before as u64,
                    pair(chunk.bytes.len() as u32, left.min(block) as u32),
                    u64::from(chunk.is_original),
                ]);
            }
        }
        Ok(words)
    }

    /// What `decode_runs` is told of the parts of all streams, by kernel; and how many there are.
    fn tell_parts(&self, at: &At) -> Result<Vec<(RunLength, Vec<u64>, usize)>> {
        let mut kernels: Vec<(RunLength, Vec<u64>, usize)> = vec![];
        for decoding in &self.runs {
            let RunStream {
                encoding,
                parts,
                stream,
            } = decoding.runs;
            let inflating = &self.streams[decoding.inflating];
            let from = self.address(inflating, at);
            // the last chunk says how many bytes it has
            let (known, last) = match &stream.chunks {
                None => (stream.bytes.len(), 0),
                Some(chunks) => {
                    let before = chunks.places.len().saturating_sub(1) * chunks.block_bytes;
                    let last = if chunks.places.is_empty() {
                        0
                    } else {
                        inflating.chunks.end
                    };
                    (before, last)
                }
            };
            let index = match kernels.iter().position(|(of, ..)| of == encoding) {
                Some(index) => index,
                None => {
                    kernels.push((*encoding, vec![], 0));
                    kernels.len() - 1
                }
            };
            let (_, words, count) = &mut kernels[index];
            for (number, part) in parts.iter().enumerate() {
                let next = parts.get(number + 1).map(|next| part.meets(next));
                let Some((next_byte, next_values)) = next.unwrap_or(Some(NO_NEXT)) else {
                    return wrong("parts that do not follow each other");
                };
                let bytes = (known as i64 - part.at as i64) as i32;
                words.extend([
                    from + part.at as u64,
                    at.scratch + (decoding.values + part.first * decoding.width) as u64,
                    pair(bytes as u32, part.skip as u32),
                    pair(part.count as u32, last as u32),
                    pair(next_byte, next_values),
                ]);
                *count += 1;
            }
        }
        Ok(kernels)
    }

    /// What `columns` is told of each column.
    fn tell_columns(&self, at: &At) -> Vec<u64> {
        let (mut words, mut first_vector) = (vec![], 0);
        for making in &self.columns {
            let values = |index: usize| {
                let decoding = making.runs.get(index).map(|number| &self.runs[*number]);
                decoding.map_or(0, |decoding| at.scratch + decoding.values as u64)
            };
            let bytes = making
                .bytes
                .map(|number| self.address(&self.streams[number], at));
            let (present, before) = match making.present {
                Some((present, before)) => (at.given + present as u64, at.given + before as u64),
                None => (0, 0),
            };
            let parameter = match &making.column.values {
                StreamValues::Decimals { scale, .. } => i64::from(*scale),
                StreamValues::Timestamps { epoch, .. } => *epoch,
                _ => 0,
            };
            words.extend([
                bytes.unwrap_or_else(|| values(0)),
                values(1),
                present,
                before,
                at.back + making.bounds as u64,
                at.back + making.sample as u64,
                at.back + making.wrong as u64,
                0,
                0,
                parameter as u64,
                pair(making.kind as u32, making.column.rows as u32),
                first_vector as u64,
            ]);
            first_vector += making.vectors();
        }
        words
    }

    /// The bytes of strings that are not compressed: where they go, and where they are.
    fn bodies_as_given<'b>(&self, from: &'b [u8]) -> Vec<(u64, &'b [u8])> {
        let streams = self
            .streams
            .iter()
            .filter(|stream| stream.stream.chunks.is_none());
        let bodies = streams.filter_map(|stream| {
            let (chunk, memory) = self.columns[stream.column].chunk.as_ref()?;
            let most = chunk.info().bytes - chunk.front_bytes() - DeviceChunk::SLACK_BYTES;
            let bytes = stream.stream.bytes.len().min(most);
            let to = memory.address() + chunk.front_bytes() as u64;
            Some((to, from.get(stream.given..stream.given + bytes)?)).filter(|_| bytes > 0)
        });
        bodies.collect()
    }

    /// Checks that all chunks were inflated, and to as many bytes as columns need.
    fn check_inflated(&self, told: &[u8]) -> Result<()> {
        let results: Vec<[u8; 8]> = told.as_chunks::<8>().0.to_vec();
        let result = |chunk: usize| {
            let word = u64::from_le_bytes(results[chunk]);
            (word as u32 as usize, word >> 32)
        };
        for stream in &self.streams {
            let mut bytes = match &stream.stream.chunks {
                None => stream.stream.bytes.len(),
                Some(_) => 0,
            };
            for chunk in stream.chunks.clone() {
                let (written, error) = result(chunk);
                let block = stream
                    .stream
                    .chunks
                    .as_ref()
                    .map_or(0, |chunks| chunks.block_bytes);
                let is_last = chunk + 1 == stream.chunks.end;
                if error != 0 || (!is_last && written != block) {
                    return wrong("damaged chunks, or some that are not full");
                }
                bytes += written;
            }
            let Making { column, .. } = &self.columns[stream.column];
            let needed = match &column.values {
                StreamValues::Floats(_) => {
                    column.values() * column.data_type.primitive_width().unwrap_or(0)
                }
                StreamValues::Strings { lengths, .. } => lengths.iter().sum::<u64>() as usize,
                _ => 0,
            };
            if bytes < needed {
                return wrong("fewer bytes than values");
            }
        }
        Ok(())
    }

    /// The chunks, whose residuals have the bounds that were found.
    fn lay_out(&mut self, found: &[u8]) -> Result<Vec<(DeviceChunk, Piece)>> {
        let mut made = vec![];
        for making in &mut self.columns {
            if let Some(chunk) = making.chunk.take() {
                made.push(chunk);
                continue;
            }
            if found[making.wrong..making.wrong + 4] != [0; 4] {
                return wrong("values of more than 64 bits");
            }
            let column = making.column;
            let bounds = &found[making.bounds..making.bounds + making.vectors() * 16];
            let bounds: Vec<i64> = words_of(bounds).collect();
            let bounds = bounds.as_chunks::<2>().0.iter();
            let bounds: Vec<(i64, i64)> = bounds.map(|[low, high]| (*low, *high)).collect();
            let own = bounds.iter().filter(|(low, high)| low <= high);
            let own = own
                .copied()
                .reduce(|(a, b), (low, high)| (a.min(low), b.max(high)));
            let sample = words_of(&found[making.sample..making.sample + SAMPLE_ROWS * 8]);
            let sample: Vec<i64> = sample.collect();
            let chunk = match &column.values {
                StreamValues::Floats(_) => unwritten(column, UnwrittenValues::Floats, None)?,
                StreamValues::Codes { entries, .. } => {
                    if own.is_some_and(|(low, high)| low < 0 || high >= entries.len() as i64) {
                        return wrong("numbers beyond a dictionary");
                    }
                    let sample = sample_of_entries(column, &sample, entries)?;
                    let values = UnwrittenValues::Codes(&bounds, entries);
                    unwritten(column, values, Some(sample))?
                }
                _ => {
                    let range = Type::of(&column.data_type).and_then(Type::range);
                    let (least, most) = range.unwrap_or_default();
                    if own.is_some_and(|(low, high)| {
                        i128::from(low) < least || i128::from(high) > most
                    }) {
                        return wrong("numbers beyond the type");
                    }
                    let sample = sample_of(column, &sample);
                    unwritten(column, UnwrittenValues::Integers(&bounds), sample)?
                }
            };
            let memory = self.engine.room_for(chunk.info().bytes)?;
            made.push((chunk, memory));
        }
        Ok(made)
    }
}

impl Making<'_> {
    fn vectors(&self) -> usize {
        self.column.rows.div_ceil(VECTOR_LEN)
    }
}

/// Bytes of a job's memory, and where some of them are.
struct Layout {
    given: usize,
    scratch: usize,
    back: usize,
    /// Compressed chunks of all streams, and parts.
    chunks: usize,
    parts: usize,
    /// Of what is given: what kernels are told of chunks and parts, and of columns.
    told_at: usize,
    columns_at: usize,
    /// Of what comes back: what `inflate` says of chunks, faults of parts, and whether values of columns are wrong.
    inflated_at: usize,
    faults_at: usize,
    wrong_at: usize,
}

/// Where memory of a job is on the device.
struct At {
    given: u64,
    scratch: u64,
    back: u64,
    /// What `inflate` says of chunks.
    inflated: u64,
}

impl At {
    fn new(address: u64, layout: &Layout) -> Self {
        let scratch = address + layout.given as u64;
        let back = scratch + layout.scratch as u64;
        Self {
            given: address,
            scratch,
            back,
            inflated: back + layout.inflated_at as u64,
        }
    }
}

/// What kernels are told.
struct Told {
    /// Of chunks and parts.
    words: Vec<u64>,
    /// Of columns.
    columns: Vec<u64>,
    decodes: Vec<Decode>,
    chunks: usize,
}

/// Parts for one kernel.
struct Decode {
    encoding: RunLength,
    /// Where they are told of, and where the faults of each go.
    told: u64,
    parts: usize,
    faults: u64,
}

/// The kernels of a job.
struct Launches<'a> {
    engine: &'a Engine,
    chunks: usize,
    inflate: Option<Arc<dyn Kernel>>,
    decode: Vec<Arc<dyn Kernel>>,
    columns: Arc<dyn Kernel>,
}

impl<'a> Launches<'a> {
    fn new(engine: &'a Engine, may_compile: bool, told: &Told) -> Result<Self> {
        let kernel = |kernel| engine.fixed_kernel(kernel, may_compile);
        let inflate = (told.chunks > 0).then(|| kernel(FixedKernel::Inflate));
        let decode = told.decodes.iter();
        let decode = decode.map(|of| kernel(FixedKernel::DecodeRuns(of.encoding)));
        Ok(Self {
            engine,
            chunks: told.chunks,
            inflate: inflate.transpose()?,
            decode: decode.collect::<Result<_>>()?,
            columns: kernel(FixedKernel::Columns)?,
        })
    }

    /// # Safety
    ///
    /// As [`Stream::launch`].
    unsafe fn launch(
        &self,
        stream: &mut dyn Stream,
        kernel: &dyn Kernel,
        warps: usize,
        shared: u32,
        args: &[u64],
    ) -> Result<()> {
        if warps == 0 {
            return Ok(());
        }
        let block = WARPS * 32;
        let resident = kernel.resident_blocks(block, shared).max(1);
        let resident = resident.saturating_mul(self.engine.device().multiprocessors.max(1));
        let needed = warps
            .div_ceil(WARPS as usize)
            .try_into()
            .unwrap_or(u32::MAX);
        let grid = resident.min(needed);
        let launch = Launch {
            grid,
            block,
            shared,
            args,
        };
        // SAFETY: as the caller says.
        unsafe { stream.launch(kernel, launch) }
    }

    /// # Safety
    ///
    /// As [`Stream::launch`].
    unsafe fn inflate(&self, stream: &mut dyn Stream, told: u64, results: u64) -> Result<()> {
        let Some(kernel) = &self.inflate else {
            return Ok(());
        };
        let args = [told, self.chunks as u64, results];
        let shared = WARPS * INFLATE_WARP_BYTES;
        // SAFETY: as the caller says.
        unsafe { self.launch(stream, &**kernel, self.chunks, shared, &args) }
    }

    /// # Safety
    ///
    /// As [`Stream::launch`].
    unsafe fn decode(&self, stream: &mut dyn Stream, all: &[Decode], inflated: u64) -> Result<()> {
        for (kernel, of) in self.decode.iter().zip(all) {
            let args = [of.told, of.parts as u64, of.faults, inflated];
            let shared = WARPS * of.encoding.warp_bytes();
            // SAFETY: as the caller says.
            unsafe { self.launch(stream, &**kernel, of.parts, shared, &args) }?;
        }
        Ok(())
    }

    /// # Safety
    ///
    /// As [`Stream::launch`].
    unsafe fn columns(
        &self,
        stream: &mut dyn Stream,
        step: Step,
        [at, count, vectors]: [u64; 3],
    ) -> Result<()> {
        let args = [step as u64, at, count, vectors];
        // SAFETY: as the caller says.
        unsafe { self.launch(stream, &*self.columns, vectors as usize, 0, &args) }
    }
}

fn unwritten(
    column: &StreamColumn,
    values: UnwrittenValues<'_>,
    sample: Option<ArrayRef>,
) -> Result<DeviceChunk> {
    Ok(DeviceChunk::of_unwritten(Unwritten {
        data_type: &column.data_type,
        rows: column.rows,
        nulls: column.nulls.as_ref(),
        values,
        sample,
    })?)
}

/// A bit for each row of whole vectors that has a value, and how many values there are before each vector.
fn masks(column: &StreamColumn) -> Option<(Vec<u8>, Vec<u8>)> {
    let nulls = column.nulls.as_ref()?;
    let vectors = column.rows.div_ceil(VECTOR_LEN);
    let bits = nulls.inner().sliced();
    let mut present = vec![0; vectors * MASK_BYTES];
    let bytes = column.rows.div_ceil(8);
    present[..bytes].copy_from_slice(&bits[..bytes]);
    if let Some(last) = present.get_mut(column.rows / 8) {
        *last &= !(u8::MAX << (column.rows % 8));
    }
    let mut sum = 0u32;
    let before = present.chunks(MASK_BYTES).flat_map(|mask| {
        let before = sum;
        sum += mask.iter().map(|byte| byte.count_ones()).sum::<u32>();
        before.to_le_bytes()
    });
    let before = before.collect();
    Some((present, before))
}

/// The rows of a sample.
fn sample_rows(rows: usize) -> impl Iterator<Item = usize> {
    let wanted = SAMPLE_ROWS.min(rows);
    (0..wanted).map(move |index| index * rows / wanted)
}

/// Which values of a sample are null.
fn sample_nulls(column: &StreamColumn) -> Option<NullBuffer> {
    let nulls = column.nulls.as_ref()?;
    Some(
        sample_rows(column.rows)
            .map(|row| nulls.is_valid(row))
            .collect::<Vec<bool>>()
            .into(),
    )
}

/// Values of a sample as an array of the column's type, of which the device has made integers; none of booleans.
fn sample_of(column: &StreamColumn, values: &[i64]) -> Option<ArrayRef> {
    let width = column.data_type.primitive_width()?;
    let length = sample_rows(column.rows).count();
    let values = values.iter().take(length);
    let bytes: Vec<u8> = values
        .flat_map(|value| i128::from(*value).to_le_bytes().into_iter().take(width))
        .collect();
    let data = ArrayData::builder(column.data_type.clone())
        .len(length)
        .add_buffer(Buffer::from_vec(bytes))
        .nulls(sample_nulls(column))
        .align_buffers(true)
        .build();
    data.ok().map(make_array)
}

/// Entries of a sample, by their numbers.
fn sample_of_entries(
    column: &StreamColumn,
    numbers: &[i64],
    entries: &ArrayRef,
) -> Result<ArrayRef> {
    let length = sample_rows(column.rows).count();
    let numbers = numbers.iter().take(length).map(|number| *number as u64);
    let numbers = UInt64Array::new(numbers.collect(), sample_nulls(column));
    Ok(take(entries, &numbers, None).map_err(vectile_encodings::Error::from)?)
}
