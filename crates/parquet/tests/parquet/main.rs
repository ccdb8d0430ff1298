//! Files that the `parquet` crate writes, read as its own reader reads them; and damaged ones.

mod damaged;
mod device;
mod foreign;
mod scan;
mod support;
mod values;
