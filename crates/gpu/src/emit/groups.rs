//! Grouped aggregates: the number of a row's group, and accumulators in a table.
//!
//! The keys of a row are the digits of its group's number, each as far as it reaches: the distance of
//! an integer from the smallest, a code, one more for null. Of few groups each thread has accumulators.
//! Of more, the number is the place in a table, as long as that is small enough; else a place is found by
//! hashing the number.

use std::fmt::Write as _;

use super::generator::{Generator, SPARSE_SHARE};
use super::value::Value;
use crate::error::{Error, Result};
use crate::kernel::{
    Argument, Bounds, Digit, FIXED_ARGUMENTS, GroupFold, Grouping, Outcome, SHARED_TABLE, Spot,
    TableSource, argument_of, push,
};
use crate::plan::{Aggregate, Expr, GroupKey};

/// Bytes of a table up to which groups have the place of their number, however few there are.
const SMALL_TABLE: u64 = 64 << 20;
/// Groups that a table by number has for each row, at most.
const GROUPS_PER_ROW: u64 = 2;

impl Generator<'_> {
    /// The argument of the table of groups.
    pub fn begin_groups(&mut self) {
        // the table's place in shared memory is its start, before bits: its size is known at the end
        self.table_argument = self.argument(Argument::Word(0));
    }

    pub fn groups(&mut self, keys: &[GroupKey], aggregates: &[Aggregate]) -> Result<()> {
        let mut exprs: Vec<Expr> = vec![];
        let mut tables = self.deferred.clone();
        let mut entries = self.pipeline.lookups.len();
        let mut sources = vec![];
        for key in keys {
            match key {
                GroupKey::Value(expr) => {
                    sources.push(Source::Value(exprs.len()));
                    exprs.push(expr.clone());
                }
                GroupKey::Code(lookup) => {
                    sources.push(Source::Table(*lookup));
                    push(*lookup, &mut tables);
                }
                GroupKey::Entry(_) => {
                    sources.push(Source::Table(entries));
                    tables.push(entries);
                    entries += 1;
                }
            }
        }
        let first_argument = exprs.len();
        let arguments = aggregates.iter().filter_map(argument_of).cloned();
        exprs.extend(arguments);
        let walk = self.walk_of(aggregates.iter());
        self.by_row(&exprs, &tables, walk, |this, values| {
            let (keys, arguments) = values.split_at(first_argument);
            this.group_row(&sources, &exprs, keys, arguments, aggregates)
        })?;
        self.end_groups()
    }

    /// Code for a row: its group, and what it adds.
    fn group_row(
        &mut self,
        sources: &[Source],
        exprs: &[Expr],
        keys: &[Value],
        arguments: &[Value],
        aggregates: &[Aggregate],
    ) -> Result<()> {
        let mut digits = vec![];
        let mut codes = vec![];
        for source in sources {
            let (digit, code) = match source {
                Source::Value(key) => self.value_digit(&exprs[*key], &keys[*key])?,
                Source::Table(table) => self.code_digit(*table),
            };
            digits.push(digit);
            codes.push(code);
        }
        let groups = digits
            .iter()
            .try_fold(1u64, |product, digit| product.checked_mul(digit.count))
            .filter(|groups| *groups < 1 << 62)
            .ok_or_else(|| Error::Unsupported("keys of more than 62 bits together".into()))?;
        if self.expected_share() > SPARSE_SHARE {
            self.grouping =
                self.group_in_threads(&digits, groups, &codes, arguments, aggregates)?;
            if self.grouping.is_some() {
                return Ok(());
            }
        }
        let (words, results, folds) = accumulators(arguments, aggregates, self.facts.rows)?;
        let bytes = groups.saturating_mul(words.len() as u64 * 8);
        let facts = self.facts;
        let few = SMALL_TABLE.max(
            facts
                .rows
                .saturating_mul(GROUPS_PER_ROW * words.len() as u64 * 8),
        );
        let spot = match bytes {
            ..=SHARED_TABLE => Spot::Shared,
            _ if bytes <= few && bytes <= facts.table_bytes => Spot::Numbered,
            _ => Spot::Hashed,
        };
        self.number(&digits, groups, &codes);
        let condition = self.condition();
        self.line(4, format!("if ({condition}) {{"));
        let table = self.argument(Argument::Groups);
        if spot == Spot::Hashed {
            self.line(5, format!("const u64 at = entry_of((u64*)a.word[4], a.word[{table}] - 1, g, (u64*)a.word[5]);"));
            self.line(5, "if (at != ~0ull) {");
        } else {
            // a value out of its chunk's bounds: none of ours
            self.line(5, format!("const u64 at = g;\n                        if (at >= a.word[{table}]) *(volatile u64*)a.word[5] = 1;\n                        else {{"));
        }
        let (base, suffix) = match spot {
            Spot::Shared => ("own_table", "_shared"),
            _ => ("((u64*)a.word[3])", ""),
        };
        let to = |word: usize| match word {
            0 => format!("{base} + at"),
            _ => format!("{base} + (at + {word} * a.word[{table}])"),
        };
        match spot {
            Spot::Shared => self.line(6, format!("count_shared({});", to(0))),
            _ => self.line(6, format!("add({}, (u64)1);", to(0))),
        }
        for fold in folds {
            let Value {
                code, valid, of, ..
            } = &arguments[fold.argument];
            let target = to(fold.word);
            let add = match words[fold.word] {
                GroupFold::Count => match spot {
                    Spot::Shared => format!("count_shared({target});"),
                    _ => format!("add({target}, (u64)1);"),
                },
                GroupFold::Sum => format!("add{suffix}({target}, (u64)(i64){code});"),
                GroupFold::WideSum => {
                    format!("add{suffix}({target}, a.word[{table}], (u128)(i128){code});")
                }
                GroupFold::SumFloat => format!("add({target}, (double){code});"),
                GroupFold::Min | GroupFold::Max => {
                    let word = match of.is_float() {
                        true => format!("(i64)key_of({code})"),
                        false => format!("(i64){code}"),
                    };
                    let turned = if words[fold.word] == GroupFold::Min {
                        "~"
                    } else {
                        ""
                    };
                    format!("raise({target}, {turned}ordered({word}));")
                }
                GroupFold::High => continue,
            };
            match valid {
                Some(valid) => self.line(6, format!("if ({valid}) {add}")),
                None => self.line(6, add),
            }
        }
        self.line(5, "}");
        self.line(4, "}");
        self.grouping = Some(Grouping {
            spot,
            digits,
            groups,
            words,
            results,
        });
        Ok(())
    }

    /// Code for the number of a row's group, `g`.
    pub fn number(&mut self, digits: &[Digit], groups: u64, codes: &[String]) {
        let of = if groups <= u32::MAX.into() {
            "u32"
        } else {
            "u64"
        };
        let mut number = String::from("0");
        let mut stride = 1;
        for (digit, code) in digits.iter().zip(codes) {
            let factor = self.argument(Argument::Word(stride));
            number = format!("{number} + ({of})({code}) * ({of})a.word[{factor}]");
            stride *= digit.count.max(1);
        }
        self.line(4, format!("const {of} g = {number};"));
    }

    /// Code for whether the row counts.
    pub fn condition(&self) -> String {
        let mut condition = String::from("in");
        for lookup in &self.deferred {
            let _ = write!(condition, " && q{lookup} != ALL");
        }
        condition
    }

    fn value_digit(&mut self, expr: &Expr, value: &Value) -> Result<(Digit, String)> {
        if value.of.is_float() {
            return Err(Error::Unsupported("keys that are floats".into()));
        }
        let exact = match expr {
            Expr::Column(column) => self.shapes[*column].bounds.map(|(a, b)| Bounds(a, b)),
            _ => None,
        };
        let of = Bounds::of(value.of);
        let Bounds(low, high) = exact
            .filter(|bounds| bounds.within(of))
            .unwrap_or(value.bounds);
        let range = high
            .checked_sub(low)
            .and_then(|range| u64::try_from(range).ok());
        let range = range.filter(|range| *range < 1 << 62);
        let range = range.ok_or_else(|| Error::Unsupported("keys of more than 62 bits".into()))?;
        let nullable = value.valid.is_some();
        let digit = Digit {
            count: range + 1 + u64::from(nullable),
            nullable,
            first: low,
            of: Some(value.of),
        };
        // modulo what the distance fits, whatever the values do
        let of = match range {
            ..=0xffff_ffff => "u32",
            _ => "u64",
        };
        let first = self.argument(Argument::Word(low as u64));
        let mut code = format!("({of})((u64){} - a.word[{first}])", value.code);
        if let Some(valid) = &value.valid {
            let null = self.argument(Argument::Word(range + 1));
            code = format!("({valid} ? {code} : a.word[{null}])");
        }
        Ok((digit, code))
    }

    fn code_digit(&mut self, table: usize) -> (Digit, String) {
        let (count, always) = match self.tables[table].source {
            TableSource::Lookup(lookup) => {
                let count = self.pipeline.lookups[lookup].codes.count();
                (count, self.is_found(lookup))
            }
            TableSource::Entries(entries) => {
                let count = self.facts.entries.get(entries).copied().unwrap_or(0);
                (count, !self.shapes[self.tables[table].column].nullable())
            }
        };
        let nullable = !always;
        let digit = Digit {
            count: u64::from(count) + u64::from(nullable),
            nullable,
            first: 0,
            of: None,
        };
        let code = match nullable {
            false => format!("q{table}"),
            true => {
                let null = self.argument(Argument::Word(count.into()));
                format!("(q{table} == ALL ? a.word[{null}] : q{table})")
            }
        };
        (digit, code)
    }

    /// Whether rows that are accumulated have a key that is there.
    pub fn is_found(&self, lookup: usize) -> bool {
        use crate::plan::Filter;
        let found = |filter: &Filter| matches!(filter, Filter::Found(other) if *other == lookup);
        match &self.pipeline.filter {
            Filter::And(parts) => parts.iter().any(found),
            other => found(other),
        }
    }

    /// Tables in shared memory: cleared before, added to those in global memory afterwards.
    fn end_groups(&mut self) -> Result<()> {
        let grouping = self.grouping.as_ref();
        let grouping = grouping.ok_or_else(|| Error::Unsupported("no groups".into()))?;
        if grouping.spot != Spot::Shared {
            self.end_block();
            return Ok(());
        }
        let words = grouping.words.clone();
        let bytes = (grouping.groups * words.len() as u64 * 8) as u32;
        let table = self.argument(Argument::Groups);
        self.arguments[self.table_argument - FIXED_ARGUMENTS] =
            Argument::Word(self.block_shared.into());
        self.block_shared += bytes.next_multiple_of(16);
        let (at, count) = (self.table_argument, words.len());
        let _ = writeln!(
            self.block,
            "    u64* const own_table = (u64*)(shared + a.word[{at}]);\n    \
             for (u32 i = threadIdx.x; i < {count} * a.word[{table}]; i += blockDim.x) own_table[i] = 0;\n    \
             __syncthreads();"
        );
        let end = &mut self.end;
        let _ = writeln!(
            end,
            "    __syncthreads();\n    \
             for (u64 g = threadIdx.x; g < a.word[{table}]; g += blockDim.x) {{\n        \
             if (!own_table[g]) continue;\n        \
             u64* const to = (u64*)a.word[3] + g;"
        );
        for (word, fold) in words.iter().enumerate() {
            let from = format!("own_table[g + {word} * a.word[{table}]]");
            let to = format!("to + {word} * a.word[{table}]");
            let add = match fold {
                GroupFold::Count | GroupFold::Sum => format!("add({to}, {from});"),
                GroupFold::WideSum => {
                    let high = format!("own_table[g + {} * a.word[{table}]]", word + 1);
                    format!("add({to}, a.word[{table}], (u128){high} << 64 | {from});")
                }
                GroupFold::High => continue,
                GroupFold::SumFloat => format!("add({to}, __longlong_as_double((i64){from}));"),
                GroupFold::Min | GroupFold::Max => format!("raise({to}, {from});"),
            };
            let _ = writeln!(end, "        {add}");
        }
        end.push_str("    }\n");
        self.set_block_shared();
        Ok(())
    }

    /// What a block prepares is there before any of its warps goes on.
    pub fn end_block(&mut self) {
        if self.block_shared > 0 {
            self.block.push_str("    __syncthreads();\n");
        }
        self.set_block_shared();
    }

    fn set_block_shared(&mut self) {
        if let Some(first) = self.arguments.first_mut() {
            *first = Argument::Word(self.block_shared.into());
        }
    }
}

/// Where a digit comes from.
enum Source {
    /// A value, by its place among keys.
    Value(usize),
    /// The code in a table.
    Table(usize),
}

/// A word, and the argument that it accumulates.
struct Accumulated {
    word: usize,
    argument: usize,
}

type Accumulators = (Vec<GroupFold>, Vec<Outcome>, Vec<Accumulated>);

/// The words of all aggregates, after that of the rows.
fn accumulators(arguments: &[Value], aggregates: &[Aggregate], rows: u64) -> Result<Accumulators> {
    let mut words = vec![GroupFold::Count];
    let mut results = vec![];
    let mut folds = vec![];
    let mut counts: Vec<(String, usize)> = vec![];
    let mut next = 0;
    for aggregate in aggregates {
        let Some(_) = argument_of(aggregate) else {
            let (count, value, key) = (0, None, None);
            results.push(Outcome { count, value, key });
            continue;
        };
        let argument = next;
        next += 1;
        let value = &arguments[argument];
        let count = match &value.valid {
            None => 0,
            Some(valid) => match counts.iter().find(|(known, _)| known == valid) {
                Some((_, word)) => *word,
                None => {
                    let word = words.len();
                    words.push(GroupFold::Count);
                    folds.push(Accumulated { word, argument });
                    counts.push((valid.clone(), word));
                    word
                }
            },
        };
        let word = words.len();
        let is_float = value.of.is_float();
        let fold = match aggregate {
            Aggregate::CountRows | Aggregate::Count(_) => None,
            Aggregate::Sum(_) if is_float => Some(GroupFold::SumFloat),
            Aggregate::Sum(_) => {
                let bits = value.bounds.bits() + 64 - rows.leading_zeros();
                Some(if bits <= 63 {
                    GroupFold::Sum
                } else {
                    GroupFold::WideSum
                })
            }
            Aggregate::Min(_) | Aggregate::Max(_) if !is_float && value.bounds.name() == "i128" => {
                let reason = "extremes of 128 bits in groups";
                return Err(Error::Unsupported(reason.into()));
            }
            Aggregate::Min(_) => Some(GroupFold::Min),
            Aggregate::Max(_) => Some(GroupFold::Max),
        };
        let is_extreme = matches!(fold, Some(GroupFold::Min | GroupFold::Max));
        results.push(Outcome {
            count,
            value: fold.map(|_| word),
            key: Some(value.of).filter(|of| is_extreme && of.is_float()),
        });
        if let Some(fold) = fold {
            words.push(fold);
            if fold == GroupFold::WideSum {
                words.push(GroupFold::High);
            }
            folds.push(Accumulated { word, argument });
        }
    }
    Ok((words, results, folds))
}
