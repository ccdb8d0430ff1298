//! Tests of strings by automata, in dictionaries and in splits.

use std::any::Any;
use std::ops::Bound;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array, StringArray};
use arrow::datatypes::DataType;
use vectile_encodings::{Encoding, Predicate};
use vectile_pipeline::KeyTable;
use vectile_pipeline::{
    Aggregate, Automaton, Comparison, Expr, Filter, GroupKey, Literal, Lookup, Output,
    TextFunction, Type, ValueTest,
};

use super::{Case, Query, column, within_expressions};
use crate::samples::{Nulls, Random, Style, VECTOR, sample, strings, with_nulls};
use crate::support::Input;

/// Strings that `value` generates from random numbers.
fn strings_of(
    len: usize,
    seed: u64,
    nulls: Nulls,
    mut value: impl FnMut(&mut Random) -> String,
) -> ArrayRef {
    let random = &mut Random::new(seed);
    let values: Vec<String> = (0..len).map(|_| value(random)).collect();
    let array: ArrayRef = Arc::new(StringArray::from(values));
    with_nulls(&array, nulls, random)
}

/// Comments of a few words: two symbol tables pay off.
pub fn comments(len: usize, seed: u64) -> ArrayRef {
    let words = [
        "special",
        "requests",
        "carefully",
        "final",
        "deposits",
        "sleep",
        "furiously",
        "even",
        "é",
    ];
    strings_of(len, seed, Nulls::Some, |random| {
        let comment = (0..random.below(9)).map(|_| words[random.below(9) as usize]);
        let mut comment = comment.collect::<Vec<_>>().join(" ");
        // sometimes a character that no symbol covers
        if random.below(20) == 0 {
            comment.push(char::from_u32(0xC0 + random.below(5000) as u32).unwrap_or('~'));
        }
        comment
    })
}

/// Strings without a pattern: mostly escapes.
fn noise(len: usize, seed: u64) -> ArrayRef {
    strings_of(len, seed, Nulls::None, |random| {
        let chars =
            (0..random.below(6)).filter_map(|_| char::from_u32(random.below(0xD000) as u32));
        chars.collect()
    })
}

/// Strings of which some have more than 255, and one more than 65,535 bytes.
fn long(len: usize, seed: u64) -> ArrayRef {
    let mut row = 0;
    strings_of(len, seed, Nulls::None, |random| {
        row += 1;
        let words = match row {
            1500 => 9000,
            _ => random.below(60),
        };
        "special even requests ".repeat(words as usize)
    })
}

/// A filter of the first column, whose strings are UTF-8, by an automaton.
pub fn automaton_filter(automaton: Automaton) -> Filter {
    Filter::Values(0, test_of(automaton))
}

fn test_of(automaton: Automaton) -> ValueTest {
    let automaton = Arc::new(automaton);
    let own = Arc::clone(&automaton);
    let function = move |array: &ArrayRef| {
        let passes = array.as_string::<i32>().iter();
        let passes = passes.map(|text| text.map(|text| own.matches(text.as_bytes())));
        Ok(passes.collect::<BooleanArray>())
    };
    ValueTest::new(Arc::new(function)).with_automaton(Some(automaton))
}

/// Row groups of strings, some in dictionaries, and numbers beside them.
fn groups() -> Vec<Vec<Input>> {
    let pinned = |array: ArrayRef, pin| Input {
        array,
        pin: Some(pin),
    };
    let fsst = |array| pinned(array, Encoding::Fsst);
    let onpair = |array| pinned(array, Encoding::OnPair);
    let texts = [
        fsst(comments(9000, 1)),
        fsst(noise(1500, 2)),
        pinned(strings(40, Nulls::Vectors, VECTOR, 3), Encoding::Plain),
        pinned(noise(1200, 8), Encoding::Plain),
        fsst(long(1600, 4)),
        pinned(strings(20, Nulls::Some, 700, 5), Encoding::Dict),
        fsst(strings_of(100, 6, Nulls::None, |_| String::new())),
        fsst(comments(33, 7)),
        onpair(comments(5000, 9)),
        onpair(noise(1300, 10)),
        onpair(long(1600, 11)),
        onpair(strings_of(40, 12, Nulls::Some, |random| {
            "s".repeat(random.below(3) as usize)
        })),
    ];
    let groups = texts.into_iter().zip(11..).map(|(text, seed)| {
        let numbers = sample(
            &DataType::Int32,
            Style::Few,
            Nulls::Some,
            text.array.len(),
            seed,
        );
        vec![text, pinned(numbers, Encoding::Ffor)]
    });
    groups.collect()
}

/// Strings as keys of groups and of lookups.
pub fn text_keys() -> Case {
    let sum = || vec![Aggregate::CountRows, Aggregate::Sum(column(1))];
    let entries = || Output::Groups(vec![GroupKey::DictionaryValue(0)], sum());
    let like = |pattern| automaton_filter(Automaton::like(pattern, false).unwrap());
    let keys = StringArray::from(vec!["final", "", "quick foxes3", "even even", "no such"]);
    let codes = KeyTable::new(&(Arc::new(keys) as ArrayRef), &[0, 1, 1, 2, 3], 4).unwrap();
    let query = |name, filter, output| Query {
        name,
        filter,
        output,
    };
    Case {
        name: "text keys".into(),
        groups: groups(),
        lookups: vec![Lookup {
            column: 0,
            key_table: Arc::new(codes),
        }],
        queries: vec![
            query("groups", Filter::Constant(true), entries()),
            query("tested groups", like("%e%s%"), entries()),
            query("tested groups", like("no such text"), entries()),
            query("found", Filter::Matched(0), Output::Aggregates(sum())),
            query(
                "codes",
                Filter::Matched(0),
                Output::Groups(vec![GroupKey::Code(0)], sum()),
            ),
            query("missing", Filter::Unmatched(0), entries()),
            query(
                "rows",
                Filter::And(vec![Filter::Matched(0), like("%e%")]),
                Output::Rows(vec![column(1), column(0)]),
            ),
        ],
    }
}

/// A function of text, by its name.
#[derive(Debug)]
struct Function {
    name: &'static str,
    data_type: DataType,
    of: fn(&str) -> Option<FunctionResult>,
}

/// A result of a [`Function`].
enum FunctionResult {
    Text(String),
    Number(i64),
}

impl TextFunction for Function {
    fn data_type(&self) -> &DataType {
        &self.data_type
    }

    fn evaluate(&self, values: &ArrayRef) -> vectile_encodings::Result<ArrayRef> {
        let values = values.as_string::<i32>().iter();
        let results = values.map(|text| text.and_then(self.of));
        Ok(match self.data_type {
            DataType::Int64 => {
                Arc::new(Int64Array::from_iter(results.map(|result| match result {
                    Some(FunctionResult::Number(number)) => Some(number),
                    _ => None,
                })))
            }
            _ => Arc::new(StringArray::from_iter(results.map(|result| match result {
                Some(FunctionResult::Text(text)) => Some(text),
                _ => None,
            }))),
        })
    }

    fn is_identity(&self) -> bool {
        false
    }

    fn is_same(&self, other: &dyn TextFunction) -> bool {
        let other = other.as_any().downcast_ref::<Self>();
        other.is_some_and(|other| self.name == other.name)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Functions of strings as keys, in expressions, and as what is counted.
pub fn text_functions() -> Case {
    let first: Arc<dyn TextFunction> = Arc::new(Function {
        name: "first",
        data_type: DataType::Utf8,
        of: |text| {
            text.chars()
                .next()
                .map(|first| FunctionResult::Text(first.into()))
        },
    });
    let bytes: Arc<dyn TextFunction> = Arc::new(Function {
        name: "bytes",
        data_type: DataType::Int64,
        of: |text| Some(FunctionResult::Number(text.len() as i64)).filter(|_| text.len() % 5 > 0),
    });
    let of = |function: &Arc<dyn TextFunction>| Expr::Mapped(0, Arc::clone(function));
    let int = |value| Expr::Literal(Literal::Int(value, Type::I64));
    let aggregates = || {
        vec![
            Aggregate::CountRows,
            Aggregate::Sum(of(&bytes)),
            Aggregate::Max(of(&bytes)),
            Aggregate::Count(of(&first)),
        ]
    };
    let distinct = || {
        vec![
            Aggregate::CountDistinct(of(&first)),
            Aggregate::CountDistinct(of(&bytes)),
            Aggregate::Sum(column(1)),
        ]
    };
    let longer = Expr::compare(Comparison::Greater, of(&bytes), int(20));
    let query = |name, filter, output| Query {
        name,
        filter,
        output,
    };
    let by_first = || GroupKey::Mapped(0, Arc::clone(&first));
    let by_bytes = || GroupKey::Value(of(&bytes));
    let number = || GroupKey::Value(column(1));
    Case {
        name: "functions of text".into(),
        groups: groups(),
        lookups: vec![],
        queries: vec![
            query(
                "groups",
                Filter::Constant(true),
                Output::Groups(vec![by_first()], aggregates()),
            ),
            query(
                "groups by several",
                Filter::Expr(longer.clone()),
                Output::Groups(vec![by_first(), by_bytes(), number()], aggregates()),
            ),
            query(
                "groups beside the column",
                Filter::Expr(!longer.clone()),
                Output::Groups(vec![GroupKey::DictionaryValue(0), by_first()], aggregates()),
            ),
            query(
                "distinct",
                Filter::Column(1, Predicate::IsNotNull),
                Output::Groups(vec![number()], distinct()),
            ),
            query(
                "distinct",
                Filter::Constant(true),
                Output::Groups(vec![], distinct()),
            ),
            query(
                "totals",
                Filter::Expr(longer),
                Output::Aggregates(aggregates()),
            ),
        ],
    }
}

/// Tests of strings by automata, and by predicates that become automata.
pub fn texts() -> Case {
    let like = |pattern| Automaton::like(pattern, false).unwrap();
    let one_of = |values: &[&str]| Automaton::one_of(values.iter().map(|v| v.as_bytes())).unwrap();
    let automata = [
        like("%special%requests%"),
        like("%even%"),
        like("%special"),
        like("carefully%"),
        like("%\u{e9}_s%"),
        like("%"),
        one_of(&["", "final", "quick foxes3", "even even"]),
        one_of(&["final"]).not(),
        one_of(&["special requests", "\u{e9} even final", "sss", "no such"]),
        Automaton::of_bytes(40, |bytes| bytes % 7 == 3).unwrap(),
        Automaton::of_characters(30, |characters| characters == 5).unwrap(),
        Automaton::constant(false),
    ];
    let one = |value: &str| Arc::new(StringArray::from(vec![value])) as ArrayRef;
    let range = |low, high, negated| Filter::Column(0, Predicate::Range { low, high, negated });
    let of_list = |negated| {
        let values = Arc::new(StringArray::from(vec!["even", "final", "sleep", ""])) as ArrayRef;
        Filter::Column(0, Predicate::In { values, negated })
    };
    let filters = automata.into_iter().map(automaton_filter).chain([
        range(
            Bound::Included(one("e")),
            Bound::Excluded(one("furiously")),
            false,
        ),
        range(Bound::Unbounded, Bound::Included(one("final")), true),
        of_list(false),
        of_list(true),
        Filter::And(vec![
            Filter::Column(1, Predicate::IsNotNull),
            Filter::Or(vec![
                automaton_filter(like("%sleep%")),
                Filter::Column(0, Predicate::IsNull),
            ]),
        ]),
    ]);
    let queries = filters.enumerate().map(|(index, filter)| {
        let (name, output) = match index % 2 {
            0 => ("selection", Output::Selection),
            _ => {
                let sum = Aggregate::Sum(column(1));
                (
                    "totals",
                    Output::Aggregates(vec![Aggregate::CountRows, sum]),
                )
            }
        };
        Query {
            name,
            filter,
            output,
        }
    });
    // outputs of strings, with numbers and alone
    let outputs = [vec![column(0), column(1)], vec![column(0)]].into_iter();
    let rows = outputs.flat_map(|exprs| {
        let filters = [
            automaton_filter(like("%s%")),
            Filter::Column(1, Predicate::IsNull),
        ];
        let filters = filters.into_iter().chain([Filter::Constant(true)]);
        filters.map(move |filter| Query {
            name: "rows",
            filter,
            output: Output::Rows(exprs.clone()),
        })
    });
    let mut rows: Vec<Query> = rows.collect();
    for (number, pattern) in ["%special%", "final%", "%e%s%", "%even", "no such"]
        .into_iter()
        .enumerate()
    {
        rows.extend(within_expressions(test_of(like(pattern)), number));
    }
    Case {
        lookups: vec![],
        name: "texts".into(),
        groups: groups(),
        queries: queries.chain(rows).collect(),
    }
}
