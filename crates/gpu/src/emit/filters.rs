//! Masks of filters: on encoded columns, a word a lane.

use std::fmt::Write as _;
use std::ops::Bound;

use arrow::array::ArrayRef;
use vectile_encodings::Predicate;
use vectile_encodings::layout::{range_words, value_words};

use super::generator::{Generator, Walk};
use crate::error::{Error, Result};
use crate::kernel::{Argument, CodeTest, EntryTest};
use crate::layout::Form;
use crate::plan::{Filter, Type};

/// The most ranges that a membership test is taken apart into.
const MAX_RANGES: usize = 16;

impl Generator<'_> {
    /// Code for the mask of a filter.
    pub fn filter(&mut self, filter: &Filter) -> Result<String> {
        let mask = match filter {
            Filter::Constant(true) => return Ok("ALL".into()),
            Filter::Constant(false) => return Ok("0u".into()),
            Filter::Column(column, predicate) => self.predicate(*column, predicate)?,
            Filter::Values(column, test) => {
                let test = EntryTest::Values(test.clone());
                self.codes(*column, test, None, false)?
            }
            Filter::And(parts) | Filter::Or(parts) => {
                let is_and = matches!(filter, Filter::And(_));
                let masks = parts.iter().map(|part| self.filter(part));
                let masks = masks.collect::<Result<Vec<_>>>()?;
                if masks.is_empty() {
                    return Ok(if is_and { "ALL".into() } else { "0u".into() });
                }
                format!("({})", masks.join(if is_and { " & " } else { " | " }))
            }
            Filter::Found(lookup) => self.found(*lookup)?,
            Filter::Missing(lookup) => format!("~{}", self.found(*lookup)?),
            Filter::Expr(expr) => {
                let mask = self.temporary();
                self.line(2, format!("u32 {mask} = 0;"));
                self.by_row(
                    std::slice::from_ref(expr),
                    &[],
                    Walk::Each,
                    |this, values| {
                        let truth = values[0].truth();
                        this.line(4, format!("{mask} |= (u32){truth} << r;"));
                        Ok(())
                    },
                )?;
                mask
            }
        };
        let name = self.temporary();
        self.line(2, format!("const u32 {name} = {mask};"));
        Ok(name)
    }

    fn predicate(&mut self, column: usize, predicate: &Predicate) -> Result<String> {
        let is_fixed = Type::of(&self.pipeline.columns[column]).is_some();
        match predicate {
            Predicate::IsNull => Ok(match self.valid_rows(column) {
                Some(valid) => format!("~{valid}"),
                None => "0u".into(),
            }),
            Predicate::IsNotNull => Ok(self.valid_rows(column).unwrap_or_else(|| "ALL".into())),
            Predicate::Range { low, high, negated } => {
                let test = EntryTest::Predicate(Predicate::Range {
                    low: low.clone(),
                    high: high.clone(),
                    negated: false,
                });
                let range = match is_fixed {
                    true => Some(self.words(low, high)?),
                    false => None,
                };
                self.codes(column, test, range, *negated)
            }
            Predicate::In { values, negated } => {
                let only_codes = self.shapes[column].forms == 1 << Form::Dict as u8;
                if only_codes {
                    let test = EntryTest::Predicate(Predicate::In {
                        values: values.clone(),
                        negated: false,
                    });
                    return self.codes(column, test, None, *negated);
                }
                let words = value_words(values)?
                    .ok_or_else(|| Error::Unsupported("constants beyond 128 bits".into()))?;
                let ranges = merged(words);
                if ranges.len() > MAX_RANGES {
                    let reason = format!("a list of {} ranges on a plain column", ranges.len());
                    return Err(Error::Unsupported(reason));
                }
                if self.shapes[column].has(Form::Dict) {
                    return Err(Error::Unsupported(
                        "a list on a column of both codes and values".into(),
                    ));
                }
                let mut masks = vec![];
                for range in ranges {
                    masks.push(self.range(column, range, None)?);
                }
                let any = match masks.is_empty() {
                    true => "0u".into(),
                    false => format!("({})", masks.join(" | ")),
                };
                Ok(self.of_valid(column, any, *negated))
            }
        }
    }

    fn words(&self, low: &Bound<ArrayRef>, high: &Bound<ArrayRef>) -> Result<(i128, i128)> {
        range_words(low, high)?
            .ok_or_else(|| Error::Unsupported("a constant beyond 128 bits".into()))
    }

    /// A test of codes, and of values too if a range is given.
    pub fn codes(
        &mut self,
        column: usize,
        test: EntryTest,
        range: Option<(i128, i128)>,
        negated: bool,
    ) -> Result<String> {
        let shape = &self.shapes[column];
        let mut slot = None;
        if shape.has(Form::Dict) {
            if shape.forms != 1 << Form::Dict as u8 && range.is_none() {
                let reason = "a test of values that are not all in dictionaries";
                return Err(Error::Unsupported(reason.into()));
            }
            self.code_tests.push(CodeTest { column, test });
            slot = Some(self.code_tests.len() - 1);
        } else if range.is_none() {
            return Err(Error::Unsupported(
                "a test of values that are in no dictionary".into(),
            ));
        }
        let mask = self.range(column, range.unwrap_or((1, 0)), slot)?;
        Ok(self.of_valid(column, mask, negated))
    }

    pub fn of_valid(&mut self, column: usize, mask: String, negated: bool) -> String {
        let mask = if negated { format!("~{mask}") } else { mask };
        match self.valid_rows(column) {
            Some(valid) => format!("({mask} & {valid})"),
            None => mask,
        }
    }

    fn range(&mut self, column: usize, range: (i128, i128), test: Option<usize>) -> Result<String> {
        self.open(column, 2);
        let shape = &self.shapes[column];
        let (is_wide, has_alp) = (shape.is_wide(), shape.has(Form::Alp));
        let float = Type::of(&self.pipeline.columns[column]).is_some_and(Type::is_float);
        let (low, high) = match is_wide && !float {
            true => range,
            // nothing lies beyond 64 bits
            false if range.0 > i128::from(i64::MAX) || range.1 < i128::from(i64::MIN) => (1, 0),
            false => {
                let clamp = |x: i128| x.clamp(i64::MIN.into(), i64::MAX.into());
                (clamp(range.0), clamp(range.1))
            }
        };
        let word = if is_wide && !float { "i128" } else { "i64" };
        let scales = match has_alp {
            true => {
                let (low, high) = (low as i64, high as i64);
                let at = self.argument(Argument::Scales { column, low, high });
                format!("(const i64*)a.word[{at}]")
            }
            false => "(const i64*)0".into(),
        };
        let (low, high) = (self.integer(low, word), self.integer(high, word));
        let (codes, bits) = match test {
            Some(test) => (
                format!("group[{}]", self.first_test() + test),
                !self.facts.ranges.get(test).copied().unwrap_or(true),
            ),
            None => ("0".into(), false),
        };
        let tile = self.tile(column);
        let range = self.temporary();
        let _ = writeln!(
            self.group,
            "        const Range<{word}> {range}{{{low}, {high}, {codes}, {scales}}};\n        \
             const auto {range}e = entries_of<C{column}>(h{column}, {range});"
        );
        Ok(format!(
            "rows_in<C{column}, {bits}>(c{column}, {range}, {range}e, {tile})"
        ))
    }
}

/// Ranges that hold just these words, ascending.
fn merged(mut words: Vec<i128>) -> Vec<(i128, i128)> {
    words.sort_unstable();
    words.dedup();
    let mut ranges: Vec<(i128, i128)> = vec![];
    for word in words {
        match ranges.last_mut() {
            Some(last) if last.1.checked_add(1) == Some(word) => last.1 = word,
            _ => ranges.push((word, word)),
        }
    }
    ranges
}
