//! Measures kernels over columns that are resident on the device, and compares with the time to read their bytes.
//!
//! ```text
//! kernels [PART]... [--json FILE] [--data DIRECTORY] [--encodings NAME,...]
//! ```
//!
//! Without the name of a part all but `tiles` run, in this order:
//!
//! | part | what |
//! | --- | --- |
//! | `ffor` | filter and count, integers of 1 to 32 bits, dates, decimals |
//! | `alp` | filter and count, floats with 0 to 50 exceptions a vector |
//! | `others` | filter and count over `delta`, `rle`, `dict`; sums |
//! | `blocks` | `gpu_for`, `gpu_dfor`, `gpu_rfor` beside others: filter and count, sum, full decompression |
//! | `runs` | short runs, nested runs, floats in `alp_rd`: filter and count, sum |
//! | `columns` | 1 to 10 columns of predicates |
//! | `real` | the numbers of the sample tables in `DIRECTORY`: filter, and full decompression |
//! | `values` | full decompression; selected rows returned to the host |
//! | `q6` | TPC-H Q6 over 600 million rows, on the device and from host memory |
//! | `q1` | TPC-H Q1 over 60 million rows |
//! | `text` | the text of the Parquet files in `DIRECTORY`: compressed, and decompressed |
//! | `orc` | streams of ORC: runs decoded, Deflate inflated |
//! | `first` | the first query of a process: no kernel cached, cached on disk, in memory |
//! | `tiles` | 32-bit integers in each of `--encodings`, by width and distribution, for `tiles.py` |
//!
//! Every answer is checked. `FILE` gets a line of JSON for each case, for `plot.py`.

mod alp;
mod bench;
mod blocks;
mod bounds;
mod columns;
mod data;
mod ffor;
mod first;
mod orc;
mod others;
mod q1;
mod q6;
mod real;
mod runs;
mod star;
mod text;
mod tiles;
mod timing;
mod values;

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;

use bench::{Bench, Result};
use vectile_encodings::Encoding;

type Part = (&'static str, fn(&mut Bench, &Options) -> Result<()>);

const PARTS: [Part; 15] = [
    ("ffor", |bench, _| ffor::run(bench)),
    ("alp", |bench, _| alp::run(bench)),
    ("others", |bench, _| others::run(bench)),
    ("blocks", |bench, _| blocks::run(bench)),
    ("runs", |bench, _| runs::run(bench)),
    ("columns", |bench, _| columns::run(bench)),
    ("real", |bench, options| real::run(bench, &options.data)),
    ("values", |bench, _| values::run(bench)),
    ("q6", |bench, _| q6::run(bench)),
    ("q1", |bench, _| q1::run(bench)),
    ("star", |bench, _| star::run(bench)),
    ("text", |bench, options| text::run(bench, &options.data)),
    ("orc", |bench, _| orc::run(bench)),
    ("first", |bench, _| first::run(bench)),
    (TILES, |bench, options| {
        tiles::run(bench, &options.encodings)
    }),
];
/// The part that runs only if it is named, as it takes longer than the others.
const TILES: &str = "tiles";

struct Options {
    parts: Vec<String>,
    json: Option<PathBuf>,
    data: PathBuf,
    encodings: Vec<Encoding>,
}

impl Options {
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Self> {
        let mut options = Options {
            parts: vec![],
            json: None,
            data: PathBuf::from("data/nycflights13"),
            encodings: vec![
                Encoding::Ffor,
                Encoding::Delta,
                Encoding::Rle,
                Encoding::Plain,
            ],
        };
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or(format!("{arg} lacks a value"));
            match arg.as_str() {
                "--json" => options.json = Some(value()?.into()),
                "--data" => options.data = value()?.into(),
                "--encodings" => {
                    let names = value()?;
                    let encodings = names.split(',').map(str::parse);
                    options.encodings = encodings.collect::<Result<_, _>>()?;
                }
                part if PARTS.iter().any(|(name, _)| *name == part) => options.parts.push(arg),
                _ => return Err(format!("{arg}: no such part or option").into()),
            }
        }
        Ok(options)
    }

    fn wants(&self, part: &str) -> bool {
        match self.parts.is_empty() {
            true => part != TILES,
            false => self.parts.iter().any(|selected| selected == part),
        }
    }
}

fn run() -> Result<()> {
    if env::args().nth(1).as_deref() == Some(first::CHILD) {
        return first::child();
    }
    let options = Options::parse(env::args().skip(1))?;
    let mut bench = Bench::open(options.json.as_deref())?;
    for (name, part) in PARTS {
        if options.wants(name) {
            part(&mut bench, &options)?;
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
