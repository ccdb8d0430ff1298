//! Tiles: shared memory of a warp in which vectors are decoded as a whole.

use super::columns::{columns_by_row, columns_of_expr, exprs_of, lookups_of_expr, push};
use super::planner::{Planner, SHARED_BYTES};
use crate::error::{Error, Result};

impl Planner<'_> {
    /// Says that a loop reads a column row by row, all rows or only those that are picked.
    pub fn read_by_row(&mut self, column: usize, is_picked: bool) {
        if !is_picked || self.traits[column].picks_from_tile() {
            push(column, &mut self.kept_tiles);
        }
    }

    /// Gives columns their tiles, once loops over rows are known. What is read after other columns have been decoded
    /// has one of its own. The others share one: each is decoded where it is tested, and nothing of it is needed later.
    pub fn place_tiles(&mut self) -> Result<()> {
        let mut kept = self.kept_tiles.clone();
        // loops of filters are planned later
        let mut lookups = vec![];
        exprs_of(&self.pipeline.filter, &mut |expr| {
            columns_of_expr(expr, &mut kept);
            lookups_of_expr(expr, &mut lookups);
        });
        for lookup in lookups {
            if let Some(lookup) = self.pipeline.lookups.get(lookup) {
                push(lookup.column, &mut kept);
            }
        }
        let by_row = columns_by_row(self.pipeline, self.task);
        let (mut own, mut shared) = (0, 0);
        let mut sharing = vec![];
        for (column, traits) in self.traits.iter().enumerate() {
            let needs = by_row.contains(&column)
                || traits.looks_entries_up()
                || traits.filters_through_tile();
            let bytes = if needs { traits.tile_bytes() } else { 0 };
            if bytes == 0 {
                continue;
            }
            if kept.contains(&column) {
                self.columns[column].tile = Some(own);
                own += bytes;
            } else {
                shared = bytes.max(shared);
                sharing.push(column);
            }
        }
        for column in sharing {
            self.columns[column].tile = Some(own);
        }
        self.warp_bytes = own + shared;
        if self.warp_bytes > SHARED_BYTES {
            let reason = format!("{} bytes of shared memory a warp", self.warp_bytes);
            return Err(Error::Unsupported(reason));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array};

    use super::super::samples::*;
    use crate::plan::{Comparison, Expr, Filter};
    use vectile_kernels::{ColumnTraits, SequenceKind};

    fn of(kind: SequenceKind, width: usize, most: i128) -> ColumnTraits {
        ColumnTraits {
            sequences: kind.bit(),
            ..integers(width, 0, most)
        }
    }

    /// Tiles of a star join over columns of these kinds, bytes of a warp, and copies of bits; of the rows, this share has
    /// a first key.
    fn tiles(kinds: [SequenceKind; 3], share: f64) -> (Vec<Option<u32>>, u32, usize) {
        let (pipeline, facts) = star([share, 0.3]);
        let [first, second, third] = kinds;
        let traits = [
            of(first, 12, 2499),
            of(second, 15, 19_999),
            of(third, 20, 999_999),
        ];
        let (plan, bindings) = planned(&pipeline, &traits, &facts);
        let tiles = plan.columns.iter().map(|column| column.tile);
        (tiles.collect(), plan.warp_bytes, bindings.copies.len())
    }

    #[test]
    fn columns_that_are_picked_from_share_a_tile() {
        use SequenceKind::{Delta, Ffor, GpuFor};
        let tile = of(GpuFor, 10, 900).tile_bytes();
        assert_eq!(tiles([GpuFor; 3], 0.3), (vec![Some(0); 3], tile, 2));
        let rows = of(Delta, 10, 900).tile_bytes();
        // no room is left for bits
        let own = vec![Some(rows), Some(rows), Some(0)];
        assert_eq!(tiles([GpuFor, GpuFor, Delta], 0.3), (own, rows + tile, 0));
        assert_eq!(tiles([Ffor; 3], 0.3), (vec![None; 3], 0, 2));
    }

    #[test]
    fn columns_of_which_all_rows_are_read_have_tiles_of_their_own() {
        use SequenceKind::GpuFor;
        let tile = of(GpuFor, 10, 900).tile_bytes();
        let (of_columns, _, _) = tiles([GpuFor; 3], 0.9);
        // the second is only tested
        let two = vec![Some(0), Some(2 * tile), Some(tile)];
        assert_eq!(of_columns, two);
    }

    #[test]
    fn keys_of_values_that_a_filter_compares_have_tiles_of_their_own() {
        use SequenceKind::GpuFor;
        let (mut pipeline, facts) = star([0.3, 0.3]);
        let looked = |lookup: usize, codes| {
            let values: ArrayRef = Arc::new(Int64Array::from(vec![5; codes]));
            Box::new(Expr::Looked(lookup, values))
        };
        let compared = Expr::Compare(Comparison::Less, looked(0, 7), looked(1, 1));
        pipeline.filter = Filter::And(vec![pipeline.filter, Filter::Expr(compared)]);
        let traits = [
            of(GpuFor, 12, 2499),
            of(GpuFor, 15, 19_999),
            of(GpuFor, 20, 999_999),
        ];
        let (plan, _) = planned(&pipeline, &traits, &facts);
        let tiles: Vec<_> = plan.columns.iter().map(|column| column.tile).collect();
        let tile = traits[0].tile_bytes();
        assert_eq!(tiles, [Some(0), Some(tile), Some(2 * tile)]);
    }
}
