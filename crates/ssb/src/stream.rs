//! The random numbers of one column.

use tpchgen::distribution::Distribution;
use tpchgen::random::RowRandomInt;

/// Characters of addresses, picked by 6 bits each.
const ALPHABET: &[u8; 64] = b"0123456789abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ,";

/// Characters per draw.
const CHARACTERS_PER_DRAW: usize = 5;

/// A stream of random numbers in which every row has the same number of draws, used or not.
pub(crate) struct Stream(RowRandomInt);

impl Stream {
    /// Starts the stream of a seed at `row`, counted from 0.
    pub(crate) fn new(seed: i64, draws_per_row: i32, row: u64) -> Self {
        let mut stream = RowRandomInt::new(seed, draws_per_row);
        stream.advance_rows(row as i64);
        Self(stream)
    }

    /// The results of `draw` for each item, one row each.
    pub(crate) fn rows<I, T>(
        &mut self,
        items: impl IntoIterator<Item = I>,
        mut draw: impl FnMut(&mut Self, I) -> T,
    ) -> Vec<T> {
        let row = |item| {
            let value = draw(self, item);
            self.0.row_finished();
            value
        };
        items.into_iter().map(row).collect()
    }

    /// Draws `counts` values for each row.
    pub(crate) fn several<T>(
        &mut self,
        counts: &[usize],
        mut draw: impl FnMut(&mut Self) -> T,
    ) -> Vec<T> {
        let mut values = Vec::with_capacity(counts.iter().sum());
        for count in counts {
            values.extend((0..*count).map(|_| draw(self)));
            self.0.row_finished();
        }
        values
    }

    /// A number from `low` to `high`.
    ///
    /// Unlike `next_int`, it does not wrap at the widest range, which TPC-H does and this benchmark
    /// does not.
    pub(crate) fn uniform(&mut self, low: i64, high: i64) -> i64 {
        let unit = self.0.next_rand() as f64 / 2_147_483_647.0;
        low + (unit * (high - low + 1) as f64) as i64
    }

    /// A random entry of a list, by weight.
    pub(crate) fn pick(&mut self, list: &'static Distribution) -> &'static str {
        list.random_value(&mut self.0)
    }

    /// Random characters: from `0.4 * average` to `1.6 * average` of them.
    pub(crate) fn text(&mut self, average: i64) -> String {
        let length = self.uniform(average * 2 / 5, average * 8 / 5) as usize;
        let mut text = String::with_capacity(length);
        let mut bits = 0;
        for i in 0..length {
            if i % CHARACTERS_PER_DRAW == 0 {
                bits = self.uniform(0, 0x7fff_ffff);
            }
            text.push(char::from(ALPHABET[(bits & 63) as usize]));
            bits >>= 6;
        }
        text
    }
}
