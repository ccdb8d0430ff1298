//! Data that DataFusion's test files read and its package lacks.
//!
//! TPC-H tables are the real ones, generated. The CSV files most used are replaced by others with the same columns:
//! then the file's own answers do not hold, and plain DataFusion's over the same replacement are the reference.

use std::fmt::{Display, Write as _};
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use datafusion::common::{Result, exec_datafusion_err};
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator,
    PartSuppGenerator, RegionGenerator, SupplierGenerator,
};
use vectile_sql_tests::{Random, Sandbox};

/// Scale of the answers in `tpch/answers`.
const TPCH_SCALE: f64 = 0.1;

/// Generates the data that the chosen files need, unless it exists.
pub fn generate(sandbox: &Sandbox, files: &[PathBuf]) -> Result<()> {
    stand_in(
        sandbox,
        "testing/data/csv/aggregate_test_100.csv",
        aggregate_test_100(),
    )?;
    stand_in(
        sandbox,
        "datafusion/core/tests/data/window_2.csv",
        window_2(),
    )?;
    stand_in(
        sandbox,
        "datafusion/core/tests/data/aggregate_simple.csv",
        aggregate_simple(),
    )?;
    if files.iter().any(|file| file.starts_with("tpch")) {
        tpch(Path::new("test_files/tpch/data"))?;
    }
    Ok(())
}

fn stand_in(sandbox: &Sandbox, path: &str, content: String) -> Result<()> {
    let path = sandbox.path(path);
    if !path.exists() {
        fs::create_dir_all(
            path.parent()
                .ok_or_else(|| exec_datafusion_err!("no folder"))?,
        )?;
        fs::write(path, content)?;
    }
    Ok(())
}

fn tpch(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    let table = |name: &str| folder.join(format!("{name}.tbl"));
    lines(
        &table("nation"),
        NationGenerator::new(TPCH_SCALE, 1, 1).iter(),
    )?;
    lines(
        &table("region"),
        RegionGenerator::new(TPCH_SCALE, 1, 1).iter(),
    )?;
    lines(&table("part"), PartGenerator::new(TPCH_SCALE, 1, 1).iter())?;
    lines(
        &table("supplier"),
        SupplierGenerator::new(TPCH_SCALE, 1, 1).iter(),
    )?;
    lines(
        &table("partsupp"),
        PartSuppGenerator::new(TPCH_SCALE, 1, 1).iter(),
    )?;
    lines(
        &table("customer"),
        CustomerGenerator::new(TPCH_SCALE, 1, 1).iter(),
    )?;
    lines(
        &table("orders"),
        OrderGenerator::new(TPCH_SCALE, 1, 1).iter(),
    )?;
    lines(
        &table("lineitem"),
        LineItemGenerator::new(TPCH_SCALE, 1, 1).iter(),
    )
}

fn lines(path: &Path, rows: impl Iterator<Item = impl Display>) -> Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    for row in rows {
        writeln!(file, "{row}")?;
    }
    Ok(file.flush()?)
}

struct Numbers(Random);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0.number()
    }

    /// A number in 0..1, with so few digits that it is printed exactly everywhere.
    fn fraction(&mut self) -> f64 {
        (self.next() % 10_000_000) as f64 / 10_000_000.0
    }

    fn letters(&mut self, length: usize) -> String {
        (0..length)
            .map(|_| char::from(b'a' + (self.next() % 26) as u8))
            .collect()
    }
}

fn aggregate_test_100() -> String {
    let mut n = Numbers(Random::new(100));
    let mut csv = String::from("c1,c2,c3,c4,c5,c6,c7,c8,c9,c10,c11,c12,c13\n");
    for _ in 0..100 {
        let c1 = char::from(b'a' + (n.next() % 5) as u8);
        let c2 = n.next() % 5 + 1;
        let (c3, c4, c5, c6) = (
            n.next() as i8,
            n.next() as i16,
            n.next() as i32,
            n.next() as i64,
        );
        let (c7, c8, c9, c10) = (n.next() as u8, n.next() as u16, n.next() as u32, n.next());
        let (c11, c12, c13) = (n.fraction() as f32, n.fraction(), n.letters(30));
        let _ = writeln!(
            csv,
            "{c1},{c2},{c3},{c4},{c5},{c6},{c7},{c8},{c9},{c10},{c11},{c12},{c13}"
        );
    }
    csv
}

/// Sorted by `a`, `b`, `c`, as the tests declare.
fn window_2() -> String {
    let mut n = Numbers(Random::new(2));
    let mut csv = String::from("a0,a,b,c,d\n");
    for row in 0..100 {
        let _ = writeln!(csv, "1,{},{},{row},{}", row / 50, row / 25, n.next() % 5);
    }
    csv
}

fn aggregate_simple() -> String {
    let mut csv = String::from("c1,c2,c3\n");
    for row in 0..15 {
        let value = f64::from(row % 5) / 100_000.0 + 0.00001;
        let _ = writeln!(csv, "{value},{:.12},{}", value / 10.0, row % 2 == 0);
    }
    csv
}
