//! The columns that a pipeline reads, and how it reads them.

use arrow::datatypes::DataType;
use vectile_encodings::Predicate;

use super::task::Task;
use vectile_pipeline::{
    Aggregate, Automaton, Code, Expr, Filter, GroupKey, Op, Output, Pipeline, Type,
};

/// Maximum columns of a loop that combines expressions without common columns.
const COLUMNS_TOGETHER: usize = 4;

pub(crate) fn push(column: usize, columns: &mut Vec<usize>) {
    if !columns.contains(&column) {
        columns.push(column);
    }
}

pub(crate) fn columns_of_filter(filter: &Filter, columns: &mut Vec<usize>) {
    match filter {
        Filter::Constant(_) => {}
        Filter::Column(column, _) | Filter::Values(column, _) => push(*column, columns),
        Filter::And(parts) | Filter::Or(parts) => {
            parts
                .iter()
                .for_each(|part| columns_of_filter(part, columns));
        }
        Filter::Expr(expr) => columns_of_expr(expr, columns),
        Filter::Matched(_) | Filter::Unmatched(_) => {}
    }
}

pub(crate) fn columns_of_expr(expr: &Expr, columns: &mut Vec<usize>) {
    match expr {
        Expr::Column(column) => push(*column, columns),
        // its values are tested in their encoded form
        Expr::Values(..) => {}
        _ if expr.null_tested_column().is_some() => {}
        _ => expr.for_parts(|part| columns_of_expr(part, columns)),
    }
}

/// The columns whose nulls an expression reads, without reading their values row by row.
pub(super) fn columns_of_nulls(expr: &Expr, columns: &mut Vec<usize>) {
    if let Expr::Values(column, _) = expr {
        push(*column, columns);
    }
    if let Some(column) = expr.null_tested_column() {
        push(column, columns);
    }
    expr.for_parts(|part| columns_of_nulls(part, columns));
}

/// The columns whose values an expression tests without an automaton: text must be stored as dictionaries.
fn columns_of_tests(expr: &Expr, columns: &mut Vec<usize>) {
    if let Expr::Values(column, test) = expr
        && test.automaton().is_none()
    {
        push(*column, columns);
    }
    expr.for_parts(|part| columns_of_tests(part, columns));
}

/// The lookups whose codes an expression reads.
pub(crate) fn lookups_of_expr(expr: &Expr, lookups: &mut Vec<usize>) {
    expr.visit_codes(&mut |code| {
        if let Code::Lookup(lookup) = code {
            push(*lookup, lookups);
        }
    });
}

/// Returns true if an expression looks up computed keys.
pub(crate) fn has_probes(expr: &Expr) -> bool {
    expr.any_code(&|code| matches!(code, Code::Probe(..)))
}

/// Returns true if an expression reads matches that rows are combined with, beside those of its own
/// [`Expr::Exists`].
pub(super) fn has_matches(expr: &Expr) -> bool {
    expr.last_match().is_some()
}

/// Returns true if an expression is of a float type.
pub(crate) fn is_float(expr: &Expr, columns: &[DataType]) -> bool {
    let of = |data_type: &DataType| Type::of(data_type).is_some_and(Type::is_float);
    match expr {
        Expr::Column(column) => of(&columns[*column]),
        Expr::Literal(literal) => literal.data_type().is_float(),
        Expr::Payload(_, values) => of(values.data_type()),
        Expr::Op(op, operands) => match op {
            Op::Arithmetic(_) | Op::Negate => {
                operands.first().is_some_and(|part| is_float(part, columns))
            }
            Op::Cast(to) => to.is_float(),
            Op::Case => operands
                .as_chunks::<2>()
                .0
                .iter()
                .any(|[_, then]| is_float(then, columns)),
            _ => false,
        },
        _ => false,
    }
}

/// The columns that must be stored as dictionaries if they are text: all except columns whose tests are automata,
/// columns of keys, and columns that are output unchanged. A column may occur twice.
pub fn coded_columns(pipeline: &Pipeline) -> Vec<usize> {
    fn of_filter(filter: &Filter, columns: &mut Vec<usize>) {
        match filter {
            Filter::Values(_, test) if test.automaton().is_some() => {}
            Filter::Column(_, Predicate::IsNull | Predicate::IsNotNull) => {}
            Filter::Column(_, predicate) if Automaton::of_predicate(predicate).is_some() => {}
            Filter::And(parts) | Filter::Or(parts) => {
                parts.iter().for_each(|part| of_filter(part, columns));
            }
            Filter::Expr(expr) => {
                columns_of_expr(expr, columns);
                columns_of_tests(expr, columns);
            }
            other => columns_of_filter(other, columns),
        }
    }
    let mut columns = vec![];
    of_filter(&pipeline.filter, &mut columns);
    let codes = pipeline.matches.iter().map(|matches| &matches.code);
    codes.for_each(|code| code.for_exprs(&mut |expr| columns_of_expr(expr, &mut columns)));
    let (keys, aggregates, exprs) = match &pipeline.output {
        Output::Selection => (&[][..], &[][..], &[][..]),
        Output::Rows(exprs) => (&[][..], &[][..], &exprs[..]),
        Output::Aggregates(aggregates) => (&[][..], &aggregates[..], &[][..]),
        Output::Groups(keys, aggregates) => (&keys[..], &aggregates[..], &[][..]),
    };
    for key in keys {
        if let GroupKey::Value(expr) = key {
            columns_of_expr(expr, &mut columns);
            columns_of_tests(expr, &mut columns);
        }
    }
    let exprs = exprs.iter();
    let exprs = exprs.filter(|expr| pipeline.strings(expr).is_none());
    let exprs = exprs.chain(aggregates.iter().filter_map(Aggregate::argument));
    exprs.for_each(|expr| {
        columns_of_expr(expr, &mut columns);
        columns_of_tests(expr, &mut columns);
    });
    columns
}

/// Partitions expressions into loops over rows; returns their indices. Expressions that share columns share a loop.
/// Others join them as long as the loop reads few columns, since all columns are in registers at once.
pub(crate) fn loops(exprs: &[Expr]) -> Vec<Vec<usize>> {
    type Loop = (Vec<usize>, Vec<usize>);
    let mut connected: Vec<Loop> = vec![];
    for (index, expr) in exprs.iter().enumerate() {
        let mut columns = vec![];
        columns_of_expr(expr, &mut columns);
        let touches = |other: &Loop| other.1.iter().any(|column| columns.contains(column));
        let (touching, mut others): (Vec<Loop>, Vec<Loop>) =
            connected.into_iter().partition(touches);
        let mut joined: Loop = (vec![], vec![]);
        for (exprs, columns) in touching.into_iter().chain([(vec![index], columns)]) {
            joined.0.extend(exprs);
            columns.into_iter().for_each(|c| push(c, &mut joined.1));
        }
        others.push(joined);
        connected = others;
    }
    let mut loops: Vec<Loop> = vec![];
    for (exprs, columns) in connected {
        match loops.last_mut() {
            Some(last) if last.1.len() + columns.len() <= COLUMNS_TOGETHER => {
                last.0.extend(exprs);
                last.1.extend(columns);
            }
            _ => loops.push((exprs, columns)),
        }
    }
    loops.into_iter().map(|(exprs, _)| exprs).collect()
}

/// The lookups that a filter probes.
pub(super) fn lookups_of_filter(filter: &Filter, lookups: &mut Vec<usize>) {
    match filter {
        Filter::Matched(lookup) | Filter::Unmatched(lookup) => push(*lookup, lookups),
        Filter::And(parts) | Filter::Or(parts) => {
            parts
                .iter()
                .for_each(|part| lookups_of_filter(part, lookups));
        }
        _ => {}
    }
}

/// The columns that the kernel of a task reads row by row.
pub(crate) fn columns_by_row(pipeline: &Pipeline, task: Task) -> Vec<usize> {
    let mut columns = vec![];
    if !task.follows_filters() {
        let filter = &pipeline.filter;
        filter.for_exprs(&mut |expr| columns_of_expr(expr, &mut columns));
        let codes = pipeline.matches.iter().map(|matches| &matches.code);
        codes.for_each(|code| code.for_exprs(&mut |expr| columns_of_expr(expr, &mut columns)));
    }
    match (&pipeline.output, task) {
        (Output::Rows(exprs), Task::Values | Task::AllValues) => {
            let exprs = exprs.iter().filter(|expr| pipeline.strings(expr).is_none());
            exprs.for_each(|expr| columns_of_expr(expr, &mut columns));
        }
        (Output::Aggregates(aggregates), Task::Totals) => {
            let arguments = aggregates.iter().filter_map(Aggregate::argument);
            arguments.for_each(|expr| columns_of_expr(expr, &mut columns));
        }
        (Output::Groups(keys, aggregates), Task::Groups) => {
            let arguments = aggregates.iter().filter_map(Aggregate::argument);
            arguments.for_each(|expr| columns_of_expr(expr, &mut columns));
            for key in keys {
                match key {
                    GroupKey::Value(expr) => columns_of_expr(expr, &mut columns),
                    GroupKey::DictionaryValue(column) | GroupKey::Mapped(column, _) => {
                        push(*column, &mut columns);
                    }
                    GroupKey::Code(_) => {}
                }
            }
        }
        _ => {}
    }
    let keys = pipeline.lookups.iter().map(|lookup| lookup.column);
    keys.for_each(|column| push(column, &mut columns));
    columns
}

/// Returns true if an expression reads codes of lookups.
pub(crate) fn has_lookups(expr: &Expr) -> bool {
    let mut lookups = vec![];
    lookups_of_expr(expr, &mut lookups);
    !lookups.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use vectile_pipeline::Comparison;

    #[test]
    fn expressions_that_share_columns_share_a_loop() {
        let less = |a, b| {
            let column = |c| Box::new(Expr::Column(c));
            Expr::compare(Comparison::Less, *column(a), *column(b))
        };
        assert_eq!(loops(&[]), Vec::<Vec<usize>>::new());
        assert_eq!(loops(&[less(0, 1), less(2, 3)]), [[0, 1]]);
        let apart = [less(0, 1), less(2, 3), less(4, 5)];
        assert_eq!(loops(&apart), [vec![0, 1], vec![2]]);
        let chain = [less(0, 1), less(2, 3), less(4, 5), less(1, 4)];
        assert_eq!(loops(&chain), [vec![1], vec![0, 2, 3]]);
    }
}
