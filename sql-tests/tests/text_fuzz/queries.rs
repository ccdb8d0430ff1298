//! Queries around tests of text.

use vectile_sql_tests::Random;

use crate::data::{Table, Tables, Text};
use crate::predicates::Predicates;

pub struct Query {
    pub sql: String,
    /// True if the order of rows counts.
    pub is_ordered: bool,
    /// The features in it, for the counts per feature.
    pub kinds: Vec<&'static str>,
}

impl Query {
    pub fn of(sql: String, kinds: Vec<&'static str>) -> Self {
        let is_ordered = sql.contains("ORDER BY");
        Self {
            sql,
            is_ordered,
            kinds,
        }
    }
}

/// Shapes of queries.
const SHAPES: &[(usize, &str)] = &[
    (26, "totals"),
    (8, "groups of a number"),
    (6, "groups of text"),
    (3, "distinct text"),
    (6, "extremes of text"),
    (14, "rows"),
    (3, "expressions of text"),
    (4, "FILTER"),
    (2, "sum of CASE"),
    (8, "join by number"),
    (5, "join by text"),
    (5, "semi join"),
];

/// Generates the next query of this form over these tables.
pub fn query(tables: &Tables, mut form: Random, random: &mut Random) -> Query {
    let shape = form.weighted(SHAPES);
    let mut predicates = Predicates::new(form, random);
    let sql = sql(shape, tables, &mut predicates);
    let kinds = predicates.kinds.into_iter().chain([shape]);
    Query::of(sql, kinds.collect())
}

fn sql(shape: &str, tables: &Tables, predicates: &mut Predicates) -> String {
    const TOTALS: &str = "count(*), sum(t.n), min(t.id), max(t.id)";
    let text = one_of(&tables.facts, predicates);
    // Each form of a filter is a kernel of its own: not all shapes have all forms.
    let filter = match shape {
        "totals" | "rows" => filter(tables, predicates),
        // Some aggregates can be answered from statistics.
        _ if predicates.form.chance(8) => "true".into(),
        _ => simple_filter(tables, predicates),
    };
    match shape {
        "totals" => format!("SELECT {TOTALS} FROM t WHERE {filter}"),
        "groups of a number" => format!("SELECT t.k, {TOTALS} FROM t WHERE {filter} GROUP BY t.k"),
        "groups of text" => {
            let key = &text.name;
            match predicates.form.below(4) {
                0 => {
                    format!("SELECT {key}, t.k, count(*) FROM t WHERE {filter} GROUP BY {key}, t.k")
                }
                1 => {
                    let other = &one_of(&tables.facts, predicates).name;
                    format!(
                        "SELECT {key}, {other} AS other, sum(t.n) FROM t WHERE {filter} GROUP BY {key}, other"
                    )
                }
                _ => format!("SELECT {key}, {TOTALS} FROM t WHERE {filter} GROUP BY {key}"),
            }
        }
        "distinct text" => match predicates.form.below(3) {
            0 => format!("SELECT DISTINCT {} FROM t WHERE {filter}", text.name),
            1 => format!(
                "SELECT t.k, count(DISTINCT {}) FROM t WHERE {filter} GROUP BY t.k",
                text.name
            ),
            _ => format!("SELECT count(DISTINCT {}) FROM t WHERE {filter}", text.name),
        },
        "extremes of text" => {
            let (name, other) = (&text.name, &one_of(&tables.facts, predicates).name);
            match predicates.form.below(4) {
                0 => format!(
                    "SELECT t.k, min({name}), max({name}) FROM t WHERE {filter} GROUP BY t.k"
                ),
                1 => format!("SELECT min({name}), max({other}), {TOTALS} FROM t WHERE {filter}"),
                2 => format!(
                    "SELECT {name}, max({name}), min({other}) FROM t WHERE {filter} GROUP BY {name}"
                ),
                _ => {
                    format!("SELECT min({name}), max({name}), count({name}) FROM t WHERE {filter}")
                }
            }
        }
        "rows" => {
            let columns = match predicates.form.below(5) {
                0 => "t.id".into(),
                1 => "*".into(),
                2 => format!("t.id, {}, t.n + 1 AS more", text.name),
                _ => format!("t.id, {}", text.name),
            };
            let order = match predicates.form.below(4) {
                0 => " ORDER BY t.id".into(),
                1 => format!(" ORDER BY t.id DESC LIMIT {}", predicates.random.below(50)),
                2 => format!(
                    " ORDER BY {}, t.id LIMIT {}",
                    text.name,
                    predicates.random.below(50)
                ),
                _ => String::new(),
            };
            format!("SELECT {columns} FROM t WHERE {filter}{order}")
        }
        "expressions of text" => {
            let (name, test) = (&text.name, predicates.of_column(text));
            let of = match (text.is_binary(), predicates.form.below(4)) {
                (true, _) => format!("{name} IS NULL AS missing"),
                (false, 0) => format!("upper({name})"),
                (false, 1) => format!("substr({name}, 2, 3)"),
                (false, 2) => format!("length({name})"),
                (false, _) => format!("concat({name}, '!')"),
            };
            format!("SELECT t.id, {of}, {test} AS passes FROM t WHERE {filter}")
        }
        "FILTER" => {
            let other = predicates.leaf(text);
            format!(
                "SELECT count(*), count(*) FILTER (WHERE {other}), sum(t.n) FILTER (WHERE {other}) FROM t WHERE {filter}"
            )
        }
        "sum of CASE" => {
            let other = predicates.leaf(text);
            format!(
                "SELECT t.k, sum(CASE WHEN {other} THEN t.n END), count(*) FROM t WHERE {filter} GROUP BY t.k"
            )
        }
        "join by number" | "join by text" => {
            let by = match shape {
                "join by number" => "t.d = u.key",
                _ => "t.c0 = u.c0",
            };
            let of_dimension = one_of(&tables.dimension, predicates);
            let filter = match predicates.form.below(4) {
                0 => filter,
                1 => predicates.leaf(of_dimension),
                2 => format!("({filter}) OR ({})", predicates.leaf(of_dimension)),
                _ => format!("({filter}) AND ({})", predicates.leaf(of_dimension)),
            };
            let join = *predicates.form.pick(&["JOIN", "JOIN", "JOIN", "LEFT JOIN"]);
            match predicates.form.below(4) {
                0 => format!("SELECT {TOTALS} FROM t {join} u ON {by} WHERE {filter}"),
                1 => format!(
                    "SELECT u.g, {TOTALS} FROM t {join} u ON {by} WHERE {filter} GROUP BY u.g"
                ),
                2 => {
                    let name = &of_dimension.name;
                    format!(
                        "SELECT t.id, {name}, {} AS own FROM t {join} u ON {by} WHERE {filter}",
                        text.name
                    )
                }
                _ => {
                    let name = &of_dimension.name;
                    format!(
                        "SELECT {name}, {TOTALS} FROM t {join} u ON {by} WHERE {filter} GROUP BY {name}"
                    )
                }
            }
        }
        _ => {
            let of_dimension = one_of(&tables.dimension, predicates);
            let inner = predicates.leaf(of_dimension);
            let not = if predicates.form.chance(30) {
                "NOT "
            } else {
                ""
            };
            let (outer, key) = match predicates.form.chance(50) {
                true => ("t.d", "u.key"),
                false => ("t.c0", "u.c0"),
            };
            format!(
                "SELECT {TOTALS} FROM t WHERE {outer} {not}IN (SELECT {key} FROM u WHERE {inner}) AND ({filter})"
            )
        }
    }
}

fn one_of<'a>(table: &'a Table, predicates: &mut Predicates) -> &'a Text {
    predicates.form.pick(&table.texts)
}

/// A filter of the fact table, in one of few forms.
fn simple_filter(tables: &Tables, predicates: &mut Predicates) -> String {
    let text = one_of(&tables.facts, predicates);
    let test = predicates.leaf(text);
    match predicates.form.chance(25) {
        true => format!("{} AND {test}", predicates.of_numbers()),
        false => test,
    }
}

/// A filter of the fact table. Most are on one column, or combine tests of several.
fn filter(tables: &Tables, predicates: &mut Predicates) -> String {
    let (one, other) = (
        one_of(&tables.facts, predicates),
        one_of(&tables.facts, predicates),
    );
    let of_one = predicates.of_column(one);
    match predicates.form.below(100) {
        0..55 => of_one,
        55..75 => format!("{} AND ({of_one})", predicates.of_numbers()),
        75..80 => format!("{} OR ({of_one})", predicates.of_numbers()),
        80..90 => format!("({of_one}) AND ({})", predicates.of_column(other)),
        90..96 => format!("({of_one}) OR ({})", predicates.of_column(other)),
        _ => predicates.of_columns(one, other),
    }
}
