//! Loops over rows: few rows one by one, or all rows of a vector, eight per lane at a time.

use super::generator::Generator;
use super::value::{Match, Value};
use crate::kernel::{Combined, ListPlan, RowLoop, SparseAccess, Typed};

/// Maximum selected rows of a vector that are read one by one instead of decoding all.
const SPARSE_ROWS: u32 = 128;
/// Maximum selected rows of a lane that it reads one by one.
const SPARSE_OWN_ROWS: u32 = 4;

/// The steps for rows, shared by all ways to iterate over them.
struct Steps<'r> {
    /// The loop, or the first of several merged ones.
    rows: &'r RowLoop,
    /// The columns of all merged loops that may be null.
    nullable: Vec<usize>,
    /// The tests that expressions read, by number, with the names of their masks.
    tests: Vec<(u32, String)>,
    /// Tables, with code that initializes them.
    tables: Vec<(usize, String)>,
    /// Names of partial sums of eight rows, with the names of their sums.
    partials: Vec<(String, String)>,
    /// Text that runs per row.
    body: String,
}

impl<'a> Generator<'a> {
    /// Reads `count` rows per lane, by their index in the selection, and runs the steps for each.
    fn picked_rows(&mut self, count: u32, steps: &Steps<'_>) {
        let Steps {
            rows: RowLoop {
                columns, tables, ..
            },
            nullable,
            tests,
            body,
            ..
        } = steps;
        let each = |f: &dyn Fn(u32) -> String| (0..count).map(f).collect::<Vec<_>>().join(", ");
        for k in 0..count {
            let index = format!("index + {}", 32 * k);
            self.line(
                5,
                format!("const Picked w{k} = picked(m, before, {index});"),
            );
        }
        let mut read = columns.clone();
        for table in tables {
            let column = self.plan.tables[*table].column;
            if !read.contains(&column) {
                read.push(column);
            }
        }
        for column in read {
            let run_at = |k| format!("run_at<C{column}>(c{column}, w{k}.row, w{k}.lane)");
            self.line(5, format!("const u32 r{column}[] = {{{}}};", each(&run_at)));
        }
        // bit `k` is the k-th row's, as if eight rows were decoded
        let picked = |mask: String| {
            let bit = |k| format!("(__shfl_sync(ALL, {mask}, w{k}.lane) >> w{k}.row & 1) << {k}");
            (0..count).map(bit).collect::<Vec<_>>().join(" | ")
        };
        for column in nullable {
            let bits = picked(format!("v{column}"));
            self.line(5, format!("const u32 n{column} = {bits};"));
        }
        for (test, mask) in tests {
            let bits = picked(mask.clone());
            self.line(5, format!("const u32 d{test} = {bits};"));
        }
        for column in columns {
            let (_, value, _) = self.types(*column);
            let tile = self.picked_tile(*column);
            let value_at = |k| {
                let row = format!("w{k}.row, w{k}.lane, r{column}[{k}]");
                format!("value_at<C{column}>(c{column}, {row}, {tile})")
            };
            self.line(
                5,
                format!("const {value} x{column}[] = {{{}}};", each(&value_at)),
            );
        }
        for table in tables {
            let column = self.plan.tables[*table].column;
            let (tile, known) = (self.picked_tile(column), self.is_known(*table));
            if self.is_hashed(*table) {
                let key_at = |k| {
                    let row = format!("w{k}.row, w{k}.lane, r{column}[{k}]");
                    format!("key_at<C{column}>(c{column}, {row}, {tile}, b{table})")
                };
                self.line(5, format!("const u64 z{table}[] = {{{}}};", each(&key_at)));
                let rows = match self.plan.columns[column].traits.nullable() {
                    true => format!("n{column}"),
                    false => "ALL".into(),
                };
                self.line(5, Self::hash_indices(*table, count, &rows));
                continue;
            }
            let place_at = |k| {
                let row = format!("w{k}.row, w{k}.lane, r{column}[{k}]");
                format!("place_at<C{column}, {known}>(c{column}, {row}, {tile}, b{table})")
            };
            self.line(
                5,
                format!("const u32 y{table}[] = {{{}}};", each(&place_at)),
            );
        }
        self.line(0, "#pragma unroll");
        self.line(5, format!("for (u32 k = 0; k < {count}; k++) {{"));
        self.line(6, "const bool in = index + 32 * k < total;");
        self.out.push_str(body);
        self.line(5, "}");
        self.line(5, format!("done += {};", 32 * count));
    }

    /// Code that looks up the indices `y` of `count` keys `z` in a hash table. Bits of `rows` select the keys to look
    /// up.
    fn hash_indices(table: usize, count: u32, rows: &str) -> String {
        format!("u32 y{table}[{count}]; places_of<{count}>(b{table}, {rows}, z{table}, y{table});")
    }

    /// If all lanes have few selected rows, each lane reads its own, in row order.
    fn own_rows(&mut self, steps: &Steps<'_>) {
        let Steps {
            rows: RowLoop { columns, .. },
            nullable,
            tests,
            tables,
            partials,
            body,
        } = steps;
        let most = "__reduce_max_sync(ALL, (u32)__popc(m))";
        self.line(2, format!("if ({most} <= {SPARSE_OWN_ROWS}) {{"));
        for (table, code) in tables {
            let of = self.table_type(*table);
            self.line(3, format!("const {of} b{table} = {code};"));
        }
        for (partial, _) in partials {
            self.line(3, format!("i32 {partial} = 0;"));
        }
        self.line(3, "for (u32 left = m; left; left &= left - 1) {");
        self.line(4, "const u32 r = __ffs((int)left) - 1, k = 0;");
        self.line(4, "const bool in = true;");
        for column in columns {
            let (_, value, _) = self.types(*column);
            let value_at = format!("value_at<C{column}>(c{column}, r, lane_id(), 0, (void*)0)");
            self.line(4, format!("const {value} x{column}[] = {{{value_at}}};"));
        }
        for (table, _) in tables {
            let column = self.plan.tables[*table].column;
            let known = self.is_known(*table);
            if self.is_hashed(*table) {
                let row = "r, lane_id(), 0, (void*)0";
                let key_at = format!("key_at<C{column}>(c{column}, {row}, b{table})");
                self.line(4, format!("const u64 z{table}[] = {{{key_at}}};"));
                let rows = match self.plan.columns[column].traits.nullable() {
                    true => format!("v{column} >> r"),
                    false => "1".into(),
                };
                self.line(4, Self::hash_indices(*table, 1, &rows));
                continue;
            }
            let place_at = format!(
                "place_at<C{column}, {known}>(c{column}, r, lane_id(), 0, (void*)0, b{table})"
            );
            self.line(4, format!("const u32 y{table}[] = {{{place_at}}};"));
        }
        for column in nullable {
            self.line(4, format!("const u32 n{column} = v{column} >> r;"));
        }
        for (test, mask) in tests {
            self.line(4, format!("const u32 d{test} = {mask} >> r;"));
        }
        self.out.push_str(body);
        self.line(3, "}");
        for (partial, sum) in partials {
            self.line(3, format!("{sum} += {partial};"));
        }
        self.line(2, "} else");
    }

    /// Returns true if a column is prepared only once the number of selected rows is known: reading few is cheaper.
    fn is_prepared_late(&self, rows: &RowLoop, column: usize) -> bool {
        let may_be_few = matches!(rows.access, SparseAccess::Few | SparseAccess::All);
        let traits = &self.plan.columns[column].traits;
        may_be_few && (rows.summed.is_some() || traits.filters_through_tile())
    }

    /// Calls `function` for the columns that were not prepared before. Returns true if there are any.
    fn prepare_late(&mut self, rows: &RowLoop, function: &str) -> bool {
        let keys = rows.tables.iter();
        let mut late = rows.columns.clone();
        late.extend(keys.map(|table| self.plan.tables[*table].column));
        late.retain(|column| self.is_prepared_late(rows, *column));
        late.sort_unstable();
        late.dedup();
        for column in &late {
            let tile = self.tile(*column);
            self.line(3, format!("{function}<C{column}>(c{column}, {tile});"));
        }
        !late.is_empty()
    }

    /// Writes a loop over rows that decodes the columns of expressions; `each` writes the use of their values in row
    /// `r` of the lane. If a column is only summed, the caller writes the code for the case that all rows are read.
    pub fn row_loop(&mut self, loops: &[&'a RowLoop], each: impl FnOnce(&mut Self, &[Value])) {
        let Some(rows) = loops.first() else { return };
        let RowLoop {
            tests,
            columns,
            tables,
            ..
        } = rows;
        let mut nullable = vec![];
        for column in loops.iter().flat_map(|rows| &rows.nullable) {
            if !nullable.contains(column) {
                nullable.push(*column);
            }
        }
        // before columns are prepared: both may take the same tile
        let tests = tests.iter().map(|(number, test)| {
            let (mask, name) = (self.mask(test), self.temporary());
            self.line(2, format!("const u32 {name} = {mask};"));
            (*number, name)
        });
        let tests: Vec<(u32, String)> = tests.collect();
        let keys = tables.iter().map(|table| self.plan.tables[*table].column);
        for column in columns.iter().copied().chain(keys) {
            match rows.summed.is_some() || self.is_prepared_late(rows, column) {
                true => self.open(column, 2),
                false => self.prepare(column),
            }
            self.valid_rows(column);
        }
        for column in &nullable {
            self.valid_rows(*column);
        }
        let table_codes = tables.iter().map(|table| (*table, self.table(*table)));
        let table_codes: Vec<(usize, String)> = table_codes.collect();
        // the text per row is the same for all ways to iterate over rows
        let before = std::mem::take(&mut self.out);
        self.computed.clear();
        self.matches.clear();
        tables.iter().for_each(|table| self.code(*table));
        if let Some(combined) = &rows.combined {
            self.combine(combined);
        }
        let exprs = loops.iter().flat_map(|rows| &rows.exprs);
        let values: Vec<Value> = exprs.map(|expr| self.expr(expr)).collect();
        each(self, &values);
        if rows.combined.is_some() {
            self.line(4, "}");
        }
        let steps = Steps {
            rows,
            nullable,
            tests,
            tables: table_codes,
            body: std::mem::replace(&mut self.out, before),
            partials: std::mem::take(&mut self.partials),
        };
        match rows.access {
            SparseAccess::Few | SparseAccess::All => {
                self.picked_loop(&steps);
                if rows.access == SparseAccess::All {
                    return;
                }
            }
            SparseAccess::Own => self.own_rows(&steps),
            SparseAccess::Never => {}
        }
        if rows.summed.is_none() {
            self.eighths(&steps);
        }
    }

    /// Opens a loop over the combinations of a row's matches, with one current match per list.
    fn combine(&mut self, combined: &'a Combined) {
        let lists = combined.matches.iter().map(|matches| {
            let [offset, count] = self.list(&matches.list);
            let times = self.temporary();
            let of = match matches.is_outer {
                true => format!("{count} ? {count} : (u32)in"),
                false => count.clone(),
            };
            self.line(4, format!("const u32 {times} = {of};"));
            [offset, count, times]
        });
        let lists: Vec<[String; 3]> = lists.collect();
        let times = lists.iter().map(|[.., times]| format!("(u64){times}"));
        let times = times.collect::<Vec<_>>().join(" * ");
        self.line(4, format!("const u64 times = {times};"));
        self.line(4, "for (u64 time = 0; time < times; time++) {");
        self.line(4, "const bool in = true;");
        // the first list varies fastest
        let mut rest = String::from("time");
        let last = lists.len().saturating_sub(1);
        for (number, [offset, count, times]) in lists.iter().enumerate() {
            let own = match number == last {
                true => rest.clone(),
                false => format!("{rest} % {times}"),
            };
            let [index, is_matched] = [(); 2].map(|()| self.temporary());
            self.line(4, format!("const u32 {index} = {offset} + (u32)({own});"));
            self.line(4, format!("const bool {is_matched} = {count} > 0;"));
            self.matches.push(Match {
                number,
                index,
                is_matched: Some(is_matched),
            });
            rest = format!("({rest} / {times})");
        }
        for condition in &combined.conditions {
            let passes = self.expr(condition).truth();
            self.line(4, format!("if (!({passes})) continue;"));
        }
    }

    /// Declares offset and count of a list of matches and returns their names.
    fn list(&mut self, list: &'a ListPlan) -> [String; 2] {
        let (offset, count) = (self.expr(&list.offset), self.expr(&list.count));
        let has = format!("in && {}", count.valid.as_deref().unwrap_or("true"));
        [&offset, &count].map(|of| {
            let name = self.temporary();
            let value = format!("{has} ? (u32){} : 0", of.code);
            self.line(4, format!("const u32 {name} = {value};"));
            name
        })
    }

    /// Writes a loop over a row's matches that ends at the first one that meets a condition. Returns the name of its
    /// result, a boolean.
    pub fn exists(&mut self, list: &'a ListPlan, number: usize, condition: &'a Typed) -> String {
        let [offset, count] = self.list(list);
        let [some, time, index] = [(); 3].map(|()| self.temporary());
        self.line(4, format!("bool {some} = false;"));
        let goes_on = format!("{time} < {count} && !{some}");
        self.line(4, format!("for (u32 {time} = 0; {goes_on}; {time}++) {{"));
        self.line(4, format!("const u32 {index} = {offset} + {time};"));
        self.matches.push(Match {
            number,
            index,
            is_matched: None,
        });
        // values that are computed for a match are out of scope after the loop
        let before = self.computed.len();
        let is_met = self.expr(condition).truth();
        self.line(4, format!("{some} = {is_met};"));
        self.computed.truncate(before);
        self.matches.pop();
        self.line(4, "}");
        some
    }

    /// The lanes share the selected rows, regardless of the owning lane: always, or only if they are few.
    fn picked_loop(&mut self, steps: &Steps<'_>) {
        let Steps {
            rows,
            tables,
            partials,
            ..
        } = steps;
        if !std::mem::replace(&mut self.is_counted, true) {
            self.line(2, "const u32 before = sum_before((u32)__popc(m));");
            let total = "__shfl_sync(ALL, before + (u32)__popc(m), 31)";
            self.line(2, format!("const u32 total = {total};"));
        }
        match rows.access {
            SparseAccess::All => self.line(2, "{"),
            _ => self.line(2, format!("if (total <= {SPARSE_ROWS}) {{")),
        }
        self.prepare_late(rows, "prepare_picked");
        for (table, code) in tables {
            let of = self.table_type(*table);
            self.line(3, format!("const {of} b{table} = {code};"));
        }
        // two rows per lane, so that latencies overlap
        self.line(3, "for (u32 done = 0; done < total;) {");
        self.line(4, "const u32 index = done + lane_id();");
        partials
            .iter()
            .for_each(|(partial, _)| self.line(4, format!("i32 {partial} = 0;")));
        self.line(4, "if (total - done > 32) {");
        self.picked_rows(2, steps);
        self.line(4, "} else {");
        self.picked_rows(1, steps);
        self.line(4, "}");
        partials
            .iter()
            .for_each(|(partial, sum)| self.line(4, format!("{sum} += {partial};")));
        self.line(3, "}");
        match rows.access {
            SparseAccess::All => self.line(2, "}"),
            _ => self.line(2, "} else"),
        }
    }

    /// All rows, eight per lane at a time.
    fn eighths(&mut self, steps: &Steps<'_>) {
        let Steps {
            rows,
            nullable,
            tests,
            tables,
            partials,
            body,
        } = steps;
        let before = std::mem::take(&mut self.out);
        let is_late = self.prepare_late(rows, "prepare");
        let prepared = std::mem::replace(&mut self.out, before);
        if is_late {
            self.line(2, "{");
            self.out.push_str(&prepared);
        }
        self.line(2, "for (u32 eighth = 0; eighth < 4; eighth++) {");
        self.line(3, "const u32 m8 = m >> eighth * 8;");
        self.line(3, "if (!__any_sync(ALL, m8 & 255)) continue;");
        for (table, code) in tables {
            let of = self.table_type(*table);
            self.line(3, format!("const {of} b{table} = {code};"));
        }
        for column in nullable {
            self.line(3, format!("const u32 n{column} = v{column} >> eighth * 8;"));
        }
        for (test, mask) in tests {
            self.line(3, format!("const u32 d{test} = {mask} >> eighth * 8;"));
        }
        for column in &rows.columns {
            let tile = self.tile(*column);
            let (_, value, _) = self.types(*column);
            self.line(3, format!("{value} x{column}[8];"));
            self.line(
                3,
                format!("values_8<C{column}>(c{column}, eighth, {tile}, x{column});"),
            );
        }
        for table in &rows.tables {
            let column = self.plan.tables[*table].column;
            let tile = self.tile(column);
            self.line(3, format!("u32 y{table}[8];"));
            let call = match (
                self.is_hashed(*table),
                self.plan.columns[column].traits.nullable(),
            ) {
                (true, true) => format!("places_8<C{column}>(c{column}, m8 & n{column}, "),
                (true, false) => format!("places_8<C{column}>(c{column}, m8, "),
                (false, _) => format!("places_8<C{column}, {}>(c{column}, ", self.is_known(*table)),
            };
            let call = format!("{call}eighth, {tile}, b{table}, y{table});");
            self.line(3, call);
        }
        partials
            .iter()
            .for_each(|(partial, _)| self.line(3, format!("i32 {partial} = 0;")));
        self.line(0, "#pragma unroll");
        self.line(3, "for (u32 k = 0; k < 8; k++) {");
        self.line(4, "const u32 r = eighth * 8 + k;");
        self.line(4, "const bool in = m8 >> k & 1;");
        self.out.push_str(body);
        self.line(3, "}");
        partials
            .iter()
            .for_each(|(partial, sum)| self.line(3, format!("{sum} += {partial};")));
        self.line(2, "}");
        if is_late {
            self.line(2, "}");
        }
    }
}
