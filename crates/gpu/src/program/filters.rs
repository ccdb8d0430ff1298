//! Instructions of filters: masks of a vector's rows.

use vectile_kernels::Transform;
use vectile_kernels::program::{NONE, TEST_BITS, TEST_WIDE, VectorOp};

use super::assembler::{Assembler, is_wide_column};
use crate::error::Result;
use crate::kernel::{Argument, RangeTest, Test};

impl<'a> Assembler<'a> {
    /// The mask of a test.
    pub fn filter(&mut self, test: &'a Test) -> Result<()> {
        match test {
            Test::Constant(true) => self.at_vector(VectorOp::All, 0, [0; 3]),
            Test::Constant(false) => self.at_vector(VectorOp::Nothing, 0, [0; 3]),
            Test::And(parts) => self.all_of(parts, VectorOp::And, VectorOp::All)?,
            Test::Or(parts) => self.all_of(parts, VectorOp::Or, VectorOp::Nothing)?,
            Test::Not(part) => {
                self.filter(part)?;
                self.at_vector(VectorOp::Not, 0, [0; 3]);
            }
            Test::Expr(rows) => self.where_true(rows)?,
            Test::IsNull(column) => {
                self.is_valid(*column)?;
                self.at_vector(VectorOp::Not, 0, [0; 3]);
            }
            Test::IsNotNull(column) => self.is_valid(*column)?,
            Test::Found { lookup, copy, .. } => self.found(*lookup, *copy)?,
            Test::Ranges {
                column,
                ranges,
                negated,
                ..
            } => self.ranges(*column, ranges, *negated)?,
        }
        Ok(())
    }

    /// The mask of several tests, combined by `op`; `none` is that of no test.
    fn all_of(&mut self, parts: &'a [Test], op: VectorOp, none: VectorOp) -> Result<()> {
        let Some((first, others)) = parts.split_first() else {
            self.at_vector(none, 0, [0; 3]);
            return Ok(());
        };
        let flag = self.flag();
        self.filter(first)?;
        for part in others {
            self.at_vector(VectorOp::Keep, 0, [flag, 0, 0]);
            self.filter(part)?;
            self.at_vector(op, 0, [flag, 0, 0]);
        }
        Ok(())
    }

    fn is_valid(&mut self, column: usize) -> Result<()> {
        match self.valid_rows(column)? {
            Some(flag) => {
                self.at_vector(VectorOp::All, 0, [0; 3]);
                self.at_vector(VectorOp::And, 0, [flag, 0, 0]);
            }
            None => self.at_vector(VectorOp::All, 0, [0; 3]),
        }
        Ok(())
    }

    fn ranges(&mut self, column: usize, ranges: &[RangeTest], negated: bool) -> Result<()> {
        let valid = self.valid_rows(column)?;
        let flag = self.flag();
        if ranges.is_empty() {
            self.at_vector(VectorOp::Nothing, 0, [0; 3]);
        }
        for (index, range) in ranges.iter().enumerate() {
            if index > 0 {
                self.at_vector(VectorOp::Keep, 0, [flag, 0, 0]);
            }
            self.range(column, range)?;
            if index > 0 {
                self.at_vector(VectorOp::Or, 0, [flag, 0, 0]);
            }
        }
        if negated {
            self.at_vector(VectorOp::Not, 0, [0; 3]);
        }
        if let Some(valid) = valid {
            self.at_vector(VectorOp::And, 0, [valid, 0, 0]);
        }
        Ok(())
    }

    fn range(&mut self, column: usize, range: &RangeTest) -> Result<()> {
        let RangeTest { low, high, codes } = *range;
        // the arguments are consecutive
        let first = self.argument(Argument::Low(low));
        self.argument(Argument::Low(high));
        let mut how = 0;
        if is_wide_column(&self.plan.columns[column]) {
            how |= TEST_WIDE;
            self.argument(Argument::High(low));
            self.argument(Argument::High(high));
        } else if self.traits(column).has(Transform::Alp) {
            self.argument(Argument::Scales { column, low, high });
        }
        let test = match codes {
            Some(test) => {
                how |= if self.plan.bitmaps[test] {
                    TEST_BITS
                } else {
                    0
                };
                self.test_word(test)
            }
            None => NONE,
        };
        let lane = self.lane(column)?;
        self.at_vector(VectorOp::Range, lane, [first, test, how]);
        Ok(())
    }

    fn found(&mut self, lookup: usize, copy: Option<usize>) -> Result<()> {
        let table = &self.plan.tables[lookup];
        let valid = self.valid_rows(table.column)?;
        let lane = self.lane(table.column)?;
        let copy = copy.map_or(NONE, |copy| self.copy(copy));
        let rest = [self.table_word(lookup), copy, table.is_hashed.into()];
        self.at_vector(VectorOp::Found, lane, rest);
        if let Some(valid) = valid {
            self.at_vector(VectorOp::And, 0, [valid, 0, 0]);
        }
        Ok(())
    }
}
