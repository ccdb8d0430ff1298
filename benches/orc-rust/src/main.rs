//! Measures `orc-rust` reading columns of ORC files: the least time of any engine that uses it.
//!
//! `cargo run --release -- PATH [COLUMN,COLUMN]...`, where PATH is a file or a directory of them. Files are read by as
//! many threads as there are cores. Prints, for each list of columns, the rows and the least milliseconds of three runs.

use std::error::Error;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use orc_rust::arrow_reader::ArrowReaderBuilder;
use orc_rust::projection::ProjectionMask;

const RUNS: usize = 3;
/// DataFusion's batch size.
const BATCH_ROWS: usize = 8192;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let path = PathBuf::from(arguments.next().ok_or("PATH is missing")?);
    let files = match path.is_dir() {
        true => fs::read_dir(&path)?
            .map(|entry| Ok(entry?.path()))
            .collect::<Result<Vec<_>>>()?,
        false => vec![path],
    };
    for columns in arguments {
        let columns: Vec<&str> = columns.split(',').collect();
        let mut best = f64::MAX;
        let mut rows = 0;
        for _ in 0..RUNS {
            let start = Instant::now();
            rows = read_all(&files, &columns)?;
            best = best.min(start.elapsed().as_secs_f64() * 1e3);
        }
        println!("{} {rows} {best:.1}", columns.join(","));
    }
    Ok(())
}

/// Reads columns of all files; returns the number of rows.
fn read_all(files: &[PathBuf], columns: &[&str]) -> Result<usize> {
    let left = Mutex::new(files.iter());
    let next = || left.lock().map(|mut left| left.next()).unwrap_or_default();
    let threads = thread::available_parallelism()?.get().min(files.len());
    thread::scope(|scope| {
        let work = || -> Result<usize> {
            let mut rows = 0;
            while let Some(file) = next() {
                rows += read(file, columns)?;
            }
            Ok(rows)
        };
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let rows = threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| "a thread panicked")?);
        rows.sum()
    })
}

fn read(file: &Path, columns: &[&str]) -> Result<usize> {
    let builder = ArrowReaderBuilder::try_new(File::open(file)?)?;
    let mask = ProjectionMask::named_roots(builder.file_metadata().root_data_type(), columns);
    let reader = builder.with_projection(mask).with_batch_size(BATCH_ROWS).build();
    let mut rows = 0;
    for batch in reader {
        rows += std::hint::black_box(batch?).num_rows();
    }
    Ok(rows)
}
