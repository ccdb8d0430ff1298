//! Plans filters: tests of values, codes and keys.

use vectile_encodings::Predicate;
use vectile_encodings::layout::{range_words, value_words};

use super::loops::LaneOrder;
use super::plan::{RangeTest, Test};
use super::planner::Planner;
use super::task::{CodeTest, DictionaryTest};
use crate::error::{Error, Result};
use vectile_kernels::Transform;
use vectile_pipeline::{Filter, Type};

/// Maximum ranges that a membership test is split into.
const MAX_RANGES: usize = 16;

impl Planner<'_> {
    pub fn test(&mut self, filter: &Filter) -> Result<Test> {
        let mut all = |parts: &[Filter]| -> Result<Vec<Test>> {
            parts.iter().map(|part| self.test(part)).collect()
        };
        Ok(match filter {
            Filter::Constant(passes) => Test::Constant(*passes),
            Filter::And(parts) => Test::And(all(parts)?),
            Filter::Or(parts) => Test::Or(all(parts)?),
            Filter::Column(column, predicate) => self.predicate(*column, predicate)?,
            Filter::Values(column, test) => {
                self.codes(*column, DictionaryTest::Values(test.clone()), None, false)?
            }
            Filter::Matched(lookup) => self.probe_test(*lookup)?,
            Filter::Unmatched(lookup) => Test::Not(self.probe_test(*lookup)?.into()),
            Filter::Expr(expr) => {
                Test::Expr(self.row_loop(std::slice::from_ref(expr), &[], LaneOrder::Each)?)
            }
        })
    }

    fn predicate(&mut self, column: usize, predicate: &Predicate) -> Result<Test> {
        match predicate {
            Predicate::IsNull => Ok(Test::IsNull(column)),
            Predicate::IsNotNull => Ok(Test::IsNotNull(column)),
            Predicate::Range { low, high, negated } => {
                let test = DictionaryTest::Predicate(Predicate::Range {
                    low: low.clone(),
                    high: high.clone(),
                    negated: false,
                });
                let range = match self.columns[column].of {
                    Some(_) => Some(range_words(low, high)?),
                    None => None,
                };
                self.codes(column, test, range, *negated)
            }
            Predicate::In { values, negated } => {
                let traits = &self.columns[column].traits;
                if traits.has_no_others(&[Transform::Dict, Transform::Text]) {
                    let test = DictionaryTest::Predicate(Predicate::In {
                        values: values.clone(),
                        negated: false,
                    });
                    return self.codes(column, test, None, *negated);
                }
                let mut ranges = merged(value_words(values)?);
                if ranges.is_empty() {
                    ranges.push((1, 0));
                }
                if ranges.len() > MAX_RANGES {
                    let reason = format!("a list of {} ranges on a plain column", ranges.len());
                    return Err(Error::Unsupported(reason));
                }
                if traits.has(Transform::Dict) {
                    let reason = "a list on a column of both codes and values";
                    return Err(Error::Unsupported(reason.into()));
                }
                let ranges = ranges.into_iter();
                Ok(Test::Ranges {
                    column,
                    ranges: ranges
                        .map(|range| self.range(column, range, None))
                        .collect(),
                    is_list: true,
                    negated: *negated,
                })
            }
        }
    }

    /// A test of a column's dictionary codes; also of its values, if `range` is given.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the column has values that only a range can test and none is given, or text that is in
    /// no dictionary and the test has no automaton.
    pub fn codes(
        &mut self,
        column: usize,
        test: DictionaryTest,
        range: Option<(i128, i128)>,
        negated: bool,
    ) -> Result<Test> {
        let traits = &self.columns[column].traits;
        let mut codes = None;
        if traits.has(Transform::Dict) || traits.has(Transform::Text) {
            let has_others = !traits.has_no_others(&[Transform::Dict, Transform::Text]);
            if has_others && range.is_none() {
                let reason = "a test of values that are not all in dictionaries";
                return Err(Error::Unsupported(reason.into()));
            }
            let automaton = match traits.has(Transform::Text) {
                true => Some(test.automaton().ok_or_else(|| {
                    let reason = "a test of text that is in no dictionary, and no automaton";
                    Error::Unsupported(reason.into())
                })?),
                false => None,
            };
            self.bindings.code_tests.push(CodeTest {
                column,
                test,
                automaton,
            });
            codes = Some(self.bindings.code_tests.len() - 1);
        } else if range.is_none() {
            let reason = "a test of values that are in no dictionary";
            return Err(Error::Unsupported(reason.into()));
        }
        Ok(Test::Ranges {
            column,
            ranges: vec![self.range(column, range.unwrap_or((1, 0)), codes)],
            is_list: false,
            negated,
        })
    }

    fn range(&mut self, column: usize, range: (i128, i128), codes: Option<usize>) -> RangeTest {
        let plan = &self.columns[column];
        let is_wide = plan.traits.is_wide() && !plan.of.is_some_and(Type::is_float);
        let (low, high) = match is_wide {
            true => range,
            // the column has no values beyond 64 bits
            false if range.0 > i128::from(i64::MAX) || range.1 < i128::from(i64::MIN) => (1, 0),
            false => {
                let clamp = |x: i128| x.clamp(i64::MIN.into(), i64::MAX.into());
                (clamp(range.0), clamp(range.1))
            }
        };
        RangeTest {
            low: self.constant(low),
            high: self.constant(high),
            codes,
        }
    }
}

/// The smallest set of ranges that contains exactly these words, in ascending order.
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
