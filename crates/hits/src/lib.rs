//! `hits`: one wide table as web analytics keep it, a row for each page that a visitor loads, as Arrow record batches.
//!
//! Its hundred columns are mostly small: flags, codes and milliseconds. The large ones are identifiers, URLs, titles and
//! search phrases. Visitors, sites, pages and phrases are skewed: few of them have most of the rows. Rows are in the order
//! of time, those of a visit one after the other.
//!
//! A row depends only on its number and on how many rows the table has, so any range is generated independently:
//!
//! ```
//! use arrow::array::AsArray;
//! use vectile_hits::{Scale, Table};
//!
//! let table = Table::new("0.1".parse::<Scale>()?);
//! assert_eq!(table.rows(), 100_000);
//!
//! let mut batches = table.generate(50_000..50_100);
//! let batch = batches.next().expect("100 rows make one batch")?;
//! assert!(batches.next().is_none());
//! let url = batch["url"].as_string_view().value(0);
//! assert!(url.starts_with("https://"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ```text
//! table ──▶ columns ──▶ text ──▶ hit ──▶ draws
//! scale     what each    URLs     a row's visit, visitor, site and page
//! ```

mod columns;
mod draws;
mod hit;
mod scale;
mod table;
mod text;
mod words;

pub use scale::{Scale, ScaleError};
pub use table::{Batches, Table};
