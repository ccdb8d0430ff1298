//! Runs a kernel over jobs, such as parts of a stream to decode, each with its own input and output: for tests of such
//! kernels.
//!
//! ```text
//! job          u64: address of its input; u64: that of its output; u64: that of its table, if it has one; words
//! arguments    address of the jobs, how many there are, address of the result words of each; more of the caller's
//! ```

use std::collections::HashMap;
use std::sync::Arc;

use vectile_gpu::{Driver, Kernel, Launch, Result, Stream};

use crate::CpuDevice;

/// Bytes that kernels may read before and after an input.
const SLACK: usize = 64;
/// Around inputs.
const OUTSIDE: u8 = 0x5A;
/// Behind outputs.
const GUARD: u8 = 0xA7;
const WARPS: u32 = 4;

/// Bytes to read from an offset on, and the number to write.
#[derive(Clone, Debug, Default)]
pub struct Job {
    /// The input.
    pub input: Vec<u8>,
    /// Where in the input the job starts.
    pub from: usize,
    /// Bytes to write.
    pub room: usize,
    /// Bytes whose address follows those of input and output.
    pub table: Option<Vec<u8>>,
    /// Words behind the addresses in the kernel's description of the job.
    pub words: Vec<u32>,
}

/// What a kernel wrote for a job.
#[derive(Clone, Debug)]
pub struct Done {
    /// The output.
    pub output: Vec<u8>,
    /// The result words.
    pub result: Vec<u32>,
}

/// A kernel to run over jobs.
#[derive(Clone, Copy, Debug)]
pub struct JobKernel<'a> {
    /// Its source.
    pub source: &'a str,
    /// Its name in the source.
    pub name: &'a str,
    /// Bytes of shared memory of a warp.
    pub warp_bytes: u32,
    /// Words of the result of a job.
    pub result_words: usize,
    /// Arguments behind those for jobs.
    pub more: &'a [u64],
}

/// A device, and its kernels by their source.
pub struct Jobs {
    device: CpuDevice,
    stream: Box<dyn Stream>,
    made: HashMap<String, Arc<dyn Kernel>>,
}

impl Jobs {
    /// Jobs on a new device.
    ///
    /// # Errors
    ///
    /// Those of [`CpuDevice::new`].
    pub fn new() -> Result<Self> {
        let device = CpuDevice::new()?;
        Ok(Self {
            stream: device.stream()?,
            device,
            made: HashMap::new(),
        })
    }

    /// Runs a kernel over jobs. Every input starts at another offset modulo 16 bytes.
    ///
    /// # Panics
    ///
    /// If a byte behind the room of a job is written.
    ///
    /// # Errors
    ///
    /// Those of the device.
    pub fn run(&mut self, kernel: JobKernel<'_>, jobs: &[Job]) -> Result<Vec<Done>> {
        if !self.made.contains_key(kernel.source) {
            let compiled = self.device.compile(kernel.source, kernel.name)?;
            self.made.insert(kernel.source.into(), compiled.kernel);
        }
        let compiled = Arc::clone(&self.made[kernel.source]);
        let mut input = vec![OUTSIDE; SLACK];
        let mut places = vec![];
        let mut room = 0;
        for (number, job) in jobs.iter().enumerate() {
            input.resize(input.len().next_multiple_of(16), OUTSIDE);
            let table = input.len();
            input.extend(job.table.iter().flatten());
            input.resize(input.len().next_multiple_of(16) + number % 16, OUTSIDE);
            places.push((input.len() + job.from, room, table));
            input.extend_from_slice(&job.input);
            input.resize(input.len() + SLACK, OUTSIDE);
            room = (room + job.room + 1).next_multiple_of(16);
        }
        let results = jobs.len() * kernel.result_words * 4;
        let described = jobs.iter().map(|job| 24 + job.words.len() * 4).sum();
        let mut buffers = vec![];
        for bytes in [input.len(), room, described, results] {
            buffers.push(self.device.allocate(bytes.max(1))?);
        }
        let mut descriptions: Vec<u8> = vec![];
        for (job, (from, to, table)) in jobs.iter().zip(&places) {
            descriptions.extend((buffers[0] + *from as u64).to_le_bytes());
            descriptions.extend((buffers[1] + *to as u64).to_le_bytes());
            if job.table.is_some() {
                descriptions.extend((buffers[0] + *table as u64).to_le_bytes());
            }
            descriptions.extend(job.words.iter().flat_map(|word| word.to_le_bytes()));
        }
        let mut output = vec![GUARD; room];
        let mut words = vec![u8::MAX; results];
        let mut args = vec![buffers[2], jobs.len() as u64, buffers[3]];
        args.extend(kernel.more);
        let launch = Launch {
            grid: 2,
            block: 32 * WARPS,
            shared: kernel.warp_bytes * WARPS,
            args: &args,
        };
        let stream = &mut self.stream;
        // SAFETY: buffers are as large as what is copied, and live until they are freed; descriptions of jobs lie within
        // them, and kernels touch nothing else, which sanitizers check.
        unsafe {
            stream.copy_in(buffers[0], input.as_ptr().cast(), input.len())?;
            stream.copy_in(buffers[1], output.as_ptr().cast(), room)?;
            stream.copy_in(buffers[2], descriptions.as_ptr(), descriptions.len())?;
            stream.launch(compiled.as_ref(), launch)?;
            stream.copy_out(output.as_mut_ptr().cast(), buffers[1], room)?;
            stream.copy_out(words.as_mut_ptr().cast(), buffers[3], results)?;
            for buffer in buffers {
                self.device.free(buffer);
            }
        }
        let words = words.chunks(4 * kernel.result_words.max(1));
        let done = jobs.iter().zip(&places).zip(words);
        let done = done.map(|((job, (_, to, _)), words)| {
            let (own, behind) = output[*to..].split_at(job.room);
            assert_eq!(behind[0], GUARD, "a byte behind the room");
            let words = words.as_chunks::<4>().0.iter();
            Done {
                output: own.to_vec(),
                result: words.map(|word| u32::from_le_bytes(*word)).collect(),
            }
        });
        Ok(done.collect())
    }
}
