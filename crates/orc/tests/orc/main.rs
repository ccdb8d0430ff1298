//! Files written by pyarrow, read as pyarrow reads them; and damaged ones. `data/write.py` writes them.

mod damaged;
mod golden;
mod kernels;
mod patched;
mod positions;
mod scan;
mod support;
