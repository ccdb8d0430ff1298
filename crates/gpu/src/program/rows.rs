//! Bodies: instructions that run for selected rows of a vector.

use vectile_kernels::program::{FIND_HASHED, NONE, Operand, RowOp, VectorOp};

use super::assembler::{Assembler, unsupported};
use super::body::{Body, CurrentMatch};
use crate::error::Result;
use crate::kernel::{Argument, Combined, ListPlan, RowLoop, Typed};

impl<'a> Assembler<'a> {
    /// The rows for which the only expression of a loop is true, as mask of the vector.
    pub fn where_true(&mut self, rows: &'a RowLoop) -> Result<()> {
        self.body(rows, VectorOp::Where, false, |this| {
            for expr in &rows.exprs {
                this.truth(expr)?;
                this.at_rows(RowOp::Mask, 0, [0; 3]);
            }
            Ok(())
        })
    }

    /// A body for the selected rows, which may come in any order if `may_pick`; else each lane's come in order, and all
    /// matches of a row before the next. `each` writes what is done with the values of the loop's expressions.
    pub fn body(
        &mut self,
        rows: &'a RowLoop,
        op: VectorOp,
        may_pick: bool,
        each: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        self.with_flags(|this| {
            let mut body = Body {
                repeated: repeated(rows),
                ..Body::default()
            };
            for (number, test) in &rows.tests {
                let flag = this.flag();
                this.filter(test)?;
                this.at_vector(VectorOp::Keep, 0, [flag, 0, 0]);
                body.tests.push((*number, flag));
            }
            let keys = rows
                .tables
                .iter()
                .map(|table| this.plan.tables[*table].column);
            let read: Vec<usize> = rows.columns.iter().copied().chain(keys).collect();
            for column in &read {
                this.decode(*column, may_pick)?;
            }
            for column in read.iter().chain(&rows.nullable) {
                this.valid_rows(*column)?;
            }
            let start = this.code.len();
            this.at_vector(op, may_pick.into(), [0; 3]);
            this.free_all();
            this.body = body;
            for table in &rows.tables {
                this.find(*table)?;
            }
            if let Some(combined) = &rows.combined {
                this.combine(combined, may_pick, each)?;
            } else {
                each(this)?;
            }
            this.body = Body::default();
            let end = this.next();
            this.code[start].rest[0] = end;
            Ok(())
        })
    }

    /// Looks the row's code up in a table, and keeps it.
    fn find(&mut self, table: usize) -> Result<()> {
        let plan = &self.plan.tables[table];
        let lane = self.lane(plan.column)?;
        let keys = [lane.into(), self.valid_flag(plan.column), 0];
        self.at_rows(RowOp::Set, Operand::Keys as u8, keys);
        // a dictionary's code may be the result itself
        if !plan.is_coded {
            let hashed = if plan.is_hashed { FIND_HASHED } else { 0 };
            let rest = [self.table_word(table), 0, plan.code_bytes as u16 | hashed];
            self.at_rows(RowOp::Find, lane, rest);
        }
        let (slot, flag) = (self.slot(), self.flag());
        self.at_rows(RowOp::Save, 0, [slot, flag, 0]);
        self.body.codes.push((table, slot, flag));
        Ok(())
    }

    /// The slot and validity flag of a row's code in a table.
    pub fn code_in(&self, table: usize) -> Result<(u16, u16)> {
        let mut codes = self.body.codes.iter();
        match codes.find(|(known, ..)| *known == table) {
            Some((_, slot, flag)) => Ok((*slot, *flag)),
            None => unsupported("a lookup of another loop in the interpreter"),
        }
    }

    /// Repeats `each` for the combinations of a row's matches.
    fn combine(
        &mut self,
        combined: &'a Combined,
        in_any_order: bool,
        each: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let all = self.slot();
        let mut lists = vec![];
        for (number, matches) in combined.matches.iter().enumerate() {
            let (offset, count) = self.list(&matches.list)?;
            let zero = self.operand_argument(Argument::Word(0));
            // whether there is a match
            let valid = self.flag();
            self.at_rows(RowOp::Compare, Operand::Argument as u8, [zero, 0, GREATER]);
            self.at_rows(RowOp::SaveTruth, 0, [valid, NONE, 0]);
            if matches.is_outer {
                self.at_rows(RowOp::OrOne, 0, [0; 3]);
            }
            let times = self.slot();
            self.at_rows(RowOp::Save, 0, [times, NONE, 0]);
            self.free(count);
            if number > 0 {
                self.at_rows(RowOp::Multiply, Operand::Slot as u8, [all, NONE, 0]);
            }
            self.at_rows(RowOp::Save, 0, [all, NONE, 0]);
            lists.push((offset, times, valid));
        }
        let (start, round) = self.begin(all, !in_any_order);
        // the first list varies fastest
        let rest = self.slot();
        let last = lists.len().saturating_sub(1);
        self.at_rows(RowOp::Round, 0, [round, 0, 0]);
        for (number, (offset, times, valid)) in lists.into_iter().enumerate() {
            let index = self.slot();
            if number < last {
                self.at_rows(RowOp::Save, 0, [rest, NONE, 0]);
                self.at_rows(RowOp::Remainder, Operand::Slot as u8, [times, NONE, 0]);
            }
            self.at_rows(RowOp::Add, Operand::Slot as u8, [offset, NONE, 0]);
            self.at_rows(RowOp::Save, 0, [index, NONE, 0]);
            if number < last {
                self.at_rows(RowOp::Set, Operand::Slot as u8, [rest, NONE, 0]);
                self.at_rows(RowOp::Divide, Operand::Slot as u8, [times, NONE, 0]);
            }
            self.body.matches.push(CurrentMatch {
                number,
                index,
                valid,
            });
        }
        self.free(rest);
        for condition in &combined.conditions {
            self.truth(condition)?;
            self.at_rows(RowOp::Filter, 0, [0; 3]);
        }
        each(self)?;
        self.again(start);
        Ok(())
    }

    /// Computes a list of matches. Returns the slots of the first one's index and of their number, which is in `x`, too.
    fn list(&mut self, list: &'a ListPlan) -> Result<(u16, u16)> {
        self.value(&list.offset)?;
        let offset = self.slot();
        self.at_rows(RowOp::Save, 0, [offset, NONE, 0]);
        self.value(&list.count)?;
        self.at_rows(RowOp::OrZero, 0, [0; 3]);
        let count = self.slot();
        self.at_rows(RowOp::Save, 0, [count, NONE, 0]);
        Ok((offset, count))
    }

    /// Begins a repetition for as many rounds as a slot says. Returns its instruction and the flag of rounds. A round is for
    /// all rows of a batch that have some left; `by_row`, for one of each lane, which takes all of its rounds before
    /// the next. Then sums of floats are added up in the order in which a generated kernel adds them.
    fn begin(&mut self, times: u16, by_row: bool) -> (u16, u16) {
        // the count of rounds takes two flags behind that of rows
        let [rows, round, high] = [self.flag(), self.flag(), self.flag()];
        debug_assert_eq!([round, high], [rows + 1, rows + 2]);
        if by_row {
            let left = self.flag();
            debug_assert_eq!(left, rows + 3);
        }
        let start = self.next();
        self.at_rows(RowOp::Begin, by_row.into(), [times, rows, 0]);
        (start, round)
    }

    /// Ends a repetition.
    fn again(&mut self, start: u16) {
        let end = self.next();
        self.at_rows(RowOp::Again, 0, [start, 0, 0]);
        if let Some(begin) = self.code.get_mut(usize::from(start)) {
            begin.rest[2] = end;
        }
    }

    /// Computes whether any match in a list meets a condition.
    pub fn exists(
        &mut self,
        list: &'a ListPlan,
        number: usize,
        condition: &'a Typed,
    ) -> Result<()> {
        let (offset, count) = self.list(list)?;
        let (some, index) = (self.flag(), self.slot());
        self.at_rows(RowOp::Constant, 0, [0; 3]);
        self.at_rows(RowOp::SaveTruth, 0, [some, NONE, 0]);
        let (start, round) = self.begin(count, false);
        self.at_rows(RowOp::Round, 0, [round, 0, 0]);
        self.at_rows(RowOp::Add, Operand::Slot as u8, [offset, NONE, 0]);
        self.at_rows(RowOp::Save, 0, [index, NONE, 0]);
        self.body.matches.push(CurrentMatch {
            number,
            index,
            valid: NONE,
        });
        // values that are computed for a match do not outlast it
        let before = self.body.computed.len();
        self.truth(condition)?;
        self.at_rows(RowOp::Some, 0, [some, round - 1, 0]);
        self.body.computed.truncate(before);
        self.body.matches.pop();
        self.again(start);
        self.at_rows(RowOp::Join, 0, [some, 0, 0]);
        for slot in [offset, count, index] {
            self.free(slot);
        }
        Ok(())
    }
}

/// The number of `>`, see [`RowOp::Compare`].
const GREATER: u16 = 4;

/// The expressions that occur more than once in a loop, except for those that are operands anyway.
fn repeated(rows: &RowLoop) -> Vec<&Typed> {
    fn visit<'t>(typed: &'t Typed, seen: &mut Vec<&'t Typed>, repeated: &mut Vec<&'t Typed>) {
        if typed.is_leaf() {
            return;
        }
        if seen.contains(&typed) {
            if !repeated.contains(&typed) {
                repeated.push(typed);
            }
            return;
        }
        seen.push(typed);
        typed.for_parts(&mut |part| visit(part, seen, repeated));
    }
    let (mut seen, mut repeated) = (vec![], vec![]);
    let combined = rows.combined.iter();
    let lists = combined.flat_map(|of| {
        let lists = of.matches.iter().map(|matches| &matches.list);
        lists
            .flat_map(|list| [&list.offset, &list.count])
            .chain(&of.conditions)
    });
    for typed in lists.chain(&rows.exprs) {
        visit(typed, &mut seen, &mut repeated);
    }
    repeated
}
