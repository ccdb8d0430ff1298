//! Decodes integers of runs in blocks of some thousands, which stay in the cache until they are
//! consumed.

use super::bits;
use crate::error::{Fault, corrupt};

/// Integers per block.
const BLOCK_VALUES: usize = 1 << 13;

/// Runs of integers.
pub(super) trait Runs {
    /// Appends the next run, of which the caller needs at most `most` values; `false` if there is
    /// none.
    fn append(&mut self, most: usize, out: &mut Vec<i64>) -> Result<bool, Fault>;
}

/// Decodes `count` values and passes them to `take` in blocks.
pub(super) fn in_blocks(
    runs: &mut impl Runs,
    count: usize,
    take: &mut dyn FnMut(&[i64]) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mut block = Vec::with_capacity(BLOCK_VALUES + bits::MOST);
    let mut left = count;
    while left > 0 {
        while block.len() < left.min(BLOCK_VALUES) {
            if !runs.append(left - block.len(), &mut block)? {
                let decoded = count - left + block.len();
                return corrupt(format!("the stream ends after {decoded} of {count} values"));
            }
        }
        // a run may go on, for a reader of more values
        block.truncate(left);
        take(&block)?;
        left -= block.len();
        block.clear();
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// All values as one vector.
    pub(crate) fn values(runs: &mut impl Runs, count: usize) -> Result<Vec<i64>, Fault> {
        let mut values = vec![];
        in_blocks(runs, count, &mut |block| {
            values.extend_from_slice(block);
            Ok(())
        })?;
        Ok(values)
    }
}
