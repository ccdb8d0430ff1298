//! Code for masks of filters: tests of encoded columns, a word per lane.

use std::fmt::Write as _;

use super::generator::Generator;
use crate::kernel::{AccumulationScope, Argument, RangeTest, RowLoop, Test};
use vectile_kernels::Transform;

impl<'a> Generator<'a> {
    /// Code for the mask of a conjunct.
    pub fn conjunct(&mut self, test: &'a Test) -> String {
        self.row_tests.clear();
        row_tests(test, &mut self.row_tests);
        self.filter(test)
    }

    /// Code for the mask of a test.
    fn filter(&mut self, test: &'a Test) -> String {
        let mask = match test {
            Test::Constant(true) => return "ALL".into(),
            Test::Constant(false) => return "0u".into(),
            Test::And(parts) | Test::Or(parts) => {
                let is_and = matches!(test, Test::And(_));
                let masks: Vec<String> = parts.iter().map(|part| self.filter(part)).collect();
                if masks.is_empty() {
                    return if is_and { "ALL".into() } else { "0u".into() };
                }
                format!("({})", masks.join(if is_and { " & " } else { " | " }))
            }
            Test::Expr(rows) => self.expr_mask(rows),
            Test::Not(part) => format!("~{}", self.mask(part)),
            leaf => self.mask(leaf),
        };
        let name = self.temporary();
        self.line(2, format!("const u32 {name} = {mask};"));
        name
    }

    /// The name of the mask of a loop's expression.
    fn expr_mask(&mut self, rows: &'a RowLoop) -> String {
        if !self.masks.iter().any(|(of, _)| *of == rows) {
            self.expr_masks(rows);
        }
        let known = self.masks.iter().find(|(of, _)| *of == rows);
        known.map_or_else(|| "0u".into(), |(_, mask)| mask.clone())
    }

    /// Writes the mask of a loop, and of all others of the conjunct over the same columns: they are merged.
    fn expr_masks(&mut self, rows: &'a RowLoop) {
        let waiting = std::mem::take(&mut self.row_tests).into_iter();
        let (alike, others): (Vec<_>, Vec<_>) = waiting.partition(|of| are_alike(of, rows));
        self.row_tests = others;
        let masks: Vec<String> = alike.iter().map(|_| self.temporary()).collect();
        for mask in &masks {
            self.line(2, format!("u32 {mask} = 0;"));
        }
        self.row_loop(&alike, |this, values| {
            for (value, mask) in values.iter().zip(&masks) {
                let truth = value.truth();
                this.line(4, format!("{mask} |= (u32){truth} << r;"));
            }
        });
        self.masks.extend(alike.into_iter().zip(masks));
    }

    /// Code for the mask of a test of one column. It has no name.
    pub fn mask(&mut self, test: &Test) -> String {
        match test {
            Test::IsNull(column) => match self.valid_rows(*column) {
                Some(valid) => format!("~{valid}"),
                None => "0u".into(),
            },
            Test::IsNotNull(column) => self.valid_rows(*column).unwrap_or_else(|| "ALL".into()),
            Test::Found {
                lookup,
                copy,
                every,
            } => self.probe_mask(*lookup, *copy, *every),
            Test::Ranges {
                column,
                ranges,
                is_list,
                negated,
            } => {
                let masks = ranges.iter().map(|range| self.range(*column, range));
                let masks: Vec<String> = masks.collect();
                let any = match (masks.is_empty(), is_list) {
                    (true, _) => "0u".into(),
                    (false, true) => format!("({})", masks.join(" | ")),
                    (false, false) => masks.concat(),
                };
                self.and_valid(*column, any, *negated)
            }
            // `filter` handles these
            Test::Constant(_) | Test::And(_) | Test::Or(_) | Test::Not(_) | Test::Expr(_) => {
                "0u".into()
            }
        }
    }

    pub fn and_valid(&mut self, column: usize, mask: String, negated: bool) -> String {
        let mask = if negated { format!("~{mask}") } else { mask };
        match self.valid_rows(column) {
            Some(valid) => format!("({mask} & {valid})"),
            None => mask,
        }
    }

    fn range(&mut self, column: usize, range: &RangeTest) -> String {
        self.open(column, 2);
        let word = self.types(column).2;
        let RangeTest {
            low,
            high,
            codes: codes_test,
        } = *range;
        let scales = match self.plan.columns[column].traits.has(Transform::Alp) {
            true => {
                let at = self.argument(Argument::Scales { column, low, high });
                format!("(const i64*)a.word[{at}]")
            }
            false => "(const i64*)0".into(),
        };
        let (low, high) = (self.integer(low, word), self.integer(high, word));
        let (codes, bits) = match codes_test {
            Some(test) => {
                let codes = format!("group[{}]", self.first_test() + test);
                (codes, self.plan.bitmaps[test])
            }
            None => ("0".into(), false),
        };
        let range = self.temporary();
        let is_text = codes_test.is_some() && self.plan.columns[column].traits.has(Transform::Text);
        let (tile, staged) = match codes_test {
            Some(test) if is_text => self.text_table(column, test, &range),
            _ => (self.tile(column), String::new()),
        };
        let _ = writeln!(
            self.group,
            "        const Range<{word}> {range}{{{low}, {high}, {codes}, {scales}}};\n        \
             const auto {range}e = entries_of<C{column}>(h{column}, {range});{staged}"
        );
        self.is_overwritten(column);
        // for a chunk of text, the argument is the test's table; for a chunk with a dictionary, the tile for codes
        let tile = match self.plan.columns[column].tile {
            Some(at) if is_text => {
                let text = Transform::Text as u8;
                format!("transform_of<C{column}>(c{column}) == {text} ? (void*){tile} : own + {at}")
            }
            _ => tile,
        };
        format!("rows_in<C{column}, {bits}>(c{column}, {range}, {range}e, {tile})")
    }

    /// The location of a string test's table, and code that copies it there per row group: to the block's shared
    /// memory, if all of its warps process the same row group.
    fn text_table(&mut self, column: usize, test: usize, range: &str) -> (String, String) {
        if self.plan.per == AccumulationScope::Slot {
            return ("(void*)0".into(), String::new());
        }
        let at = self.argument(Argument::TextAt(test));
        let table = format!("{range}t");
        let number = Transform::Text as u8;
        let staged = format!(
            "\n        u8* const {table} = a.word[{at}] == ~0ull ? (u8*)0 : shared + a.word[{at}];\n        \
             stage<{number}>(h{column}, {range}, {table});"
        );
        self.is_staged = true;
        (table, staged)
    }
}

/// Returns true if two loops can be merged: they are equal in everything that [`Generator::row_loop`] does not merge.
fn are_alike(a: &RowLoop, b: &RowLoop) -> bool {
    let RowLoop {
        exprs: _,
        nullable: _,
        tests,
        columns,
        tables,
        access,
        summed,
        combined,
    } = a;
    let walks = (access, summed, combined) == (&b.access, &b.summed, &b.combined);
    walks && (columns, tables, tests) == (&b.columns, &b.tables, &b.tests)
}

/// Collects the distinct loops of a test.
fn row_tests<'a>(test: &'a Test, loops: &mut Vec<&'a RowLoop>) {
    match test {
        Test::And(parts) | Test::Or(parts) => parts.iter().for_each(|part| row_tests(part, loops)),
        Test::Expr(rows) if !loops.contains(&rows) => loops.push(rows),
        _ => {}
    }
}
