//! Plans tiles: shared memory of a warp that whole vectors are decoded into.

use super::columns::{
    columns_by_row, columns_of_expr, columns_of_filter, lookups_of_expr, lookups_of_filter, push,
};
use super::planner::{Planner, SHARED_BYTES};
use crate::error::{Error, Result};

impl Planner<'_> {
    /// Records that a loop reads a column row by row: all rows, or only picked ones.
    pub fn read_by_row(&mut self, column: usize, is_picked: bool) {
        match is_picked && !self.traits[column].picks_from_tile() {
            true => push(column, &mut self.picked),
            false => push(column, &mut self.kept_tiles),
        }
    }

    /// The columns of tests, which are evaluated before rows are picked.
    fn tested(&self) -> Vec<usize> {
        let filter = &self.pipeline.filter;
        let (mut tested, mut lookups) = (vec![], vec![]);
        columns_of_filter(filter, &mut tested);
        lookups_of_filter(filter, &mut lookups);
        lookups.retain(|lookup| !self.deferred.contains(lookup));
        let keys = lookups
            .iter()
            .filter_map(|lookup| self.pipeline.lookups.get(*lookup));
        keys.for_each(|of| push(of.column, &mut tested));
        tested
    }

    /// Assigns tiles to columns, once loops over rows are known. A column that is read after other columns have been
    /// decoded has its own tile. The others share one: each is decoded for its test, and not read later. Columns of
    /// which rows are only picked have none.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the tiles exceed the shared memory of a block.
    pub fn place_tiles(&mut self) -> Result<()> {
        let mut kept = self.kept_tiles.clone();
        // loops of filters are planned later
        let mut lookups = vec![];
        self.pipeline.filter.for_exprs(&mut |expr| {
            columns_of_expr(expr, &mut kept);
            lookups_of_expr(expr, &mut lookups);
        });
        for lookup in lookups {
            if let Some(lookup) = self.pipeline.lookups.get(lookup) {
                push(lookup.column, &mut kept);
            }
        }
        let by_row = columns_by_row(self.pipeline, self.task);
        let tested = self.tested();
        let (mut own, mut shared) = (0, 0);
        let mut sharing = vec![];
        for (column, planned) in self.columns.iter_mut().enumerate() {
            let traits = &mut planned.traits;
            let is_kept = kept.contains(&column);
            if is_kept || traits.looks_entries_up() {
                traits.keep_rows();
            }
            let is_only_picked =
                self.picked.contains(&column) && !is_kept && !tested.contains(&column);
            let is_decoded = by_row.contains(&column) || traits.filters_through_tile();
            let needs = traits.looks_entries_up() || is_decoded && !is_only_picked;
            let bytes = if needs { traits.tile_bytes() } else { 0 };
            if bytes == 0 {
                continue;
            }
            if is_kept {
                planned.tile = Some(own);
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
    use vectile_kernels::{ColumnTraits, SequenceKind};
    use vectile_pipeline::{Code, Comparison, Expr, Filter, PayloadColumn};

    fn of(kind: SequenceKind, width: usize, most: i128) -> ColumnTraits {
        ColumnTraits {
            sequences: kind.bit(),
            ..integers(width, 0, most)
        }
    }

    /// Plans a star join over columns of these kinds, of whose rows `share` match the first lookup. Returns tiles,
    /// bytes per warp, and the number of copies of bits.
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
    fn columns_that_are_tested_share_a_tile() {
        use SequenceKind::{Delta, Ffor, GpuFor};
        // as large as the words of the widest; the third is only picked from
        let tile = of(GpuFor, 15, 19_999).tile_bytes();
        let shared = vec![Some(0), Some(0), None];
        assert_eq!(tiles([GpuFor; 3], 0.3), (shared, tile, 2));
        let rows = of(Delta, 10, 900).tile_bytes();
        assert!(tile < rows);
        let own = vec![Some(rows), Some(rows), Some(0)];
        assert_eq!(tiles([GpuFor, GpuFor, Delta], 0.3), (own, rows + tile, 2));
        // there is no room for bits
        let own = vec![Some(0), Some(2 * rows), Some(rows)];
        assert_eq!(tiles([Delta; 3], 0.3), (own, 3 * rows, 0));
        assert_eq!(tiles([Ffor; 3], 0.3), (vec![None; 3], 0, 2));
    }

    #[test]
    fn columns_of_which_all_rows_are_read_have_tiles_of_their_own() {
        use SequenceKind::{Delta, GpuFor};
        let rows = of(Delta, 10, 900).tile_bytes();
        let (of_columns, _, _) = tiles([GpuFor; 3], 0.9);
        // the second is only tested
        let two = vec![Some(0), Some(2 * rows), Some(rows)];
        assert_eq!(of_columns, two);
    }

    #[test]
    fn keys_of_values_that_a_filter_compares_have_tiles_of_their_own() {
        use SequenceKind::{Delta, GpuFor};
        let (mut pipeline, facts) = star([0.3, 0.3]);
        let payload = |lookup: usize, codes| {
            let values: ArrayRef = Arc::new(Int64Array::from(vec![5; codes]));
            Box::new(Expr::Payload(
                Code::Lookup(lookup),
                PayloadColumn::new(values),
            ))
        };
        let compared = Expr::compare(Comparison::Less, *payload(0, 7), *payload(1, 1));
        pipeline.filter = Filter::And(vec![pipeline.filter, Filter::Expr(compared)]);
        let traits = [
            of(GpuFor, 12, 2499),
            of(GpuFor, 15, 19_999),
            of(GpuFor, 20, 999_999),
        ];
        let (plan, _) = planned(&pipeline, &traits, &facts);
        let tiles: Vec<_> = plan.columns.iter().map(|column| column.tile).collect();
        let rows = of(Delta, 10, 900).tile_bytes();
        assert_eq!(tiles, [Some(0), Some(rows), Some(2 * rows)]);
    }
}
