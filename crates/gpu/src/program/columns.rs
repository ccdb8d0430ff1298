//! Columns of a program: a warp takes up as many at a time as it has lanes.

use std::collections::BTreeSet;

use vectile_kernels::program::MOST_COLUMNS;

use crate::error::{Error, Result};
use crate::kernel::{KernelPlan, OutputPlan, RowLoop, Test};

/// Columns that are needed or taken up together.
pub(super) type Columns = BTreeSet<usize>;

/// The columns to take up, one set after the other: each step of the program finds all that it needs in one of them. As
/// a rule, there is one set.
///
/// # Errors
///
/// [`Error::Unsupported`] if a step needs more columns than a warp has lanes.
pub(super) fn sets(plan: &KernelPlan) -> Result<Vec<Columns>> {
    let mut sets = vec![];
    let mut set = Columns::new();
    for step in steps(plan) {
        if step.len() > MOST_COLUMNS {
            let reason = format!("{} columns at a time in the interpreter", step.len());
            return Err(Error::Unsupported(reason));
        }
        let both: Columns = set.union(&step).copied().collect();
        if both.len() > MOST_COLUMNS {
            sets.push(std::mem::replace(&mut set, step));
        } else {
            set = both;
        }
    }
    sets.push(set);
    Ok(sets)
}

/// The columns that each step of the program needs, in order.
fn steps(plan: &KernelPlan) -> Vec<Columns> {
    let mut steps: Vec<Columns> = plan
        .conjuncts
        .iter()
        .map(|test| of_test(plan, test))
        .collect();
    match &plan.output {
        OutputPlan::Masks => {}
        OutputPlan::Rows { copied, loops, .. } => {
            steps.extend(copied.chunks(MOST_COLUMNS).map(of_copied));
            steps.extend(loops.iter().map(|(rows, _)| of_loop(plan, rows)));
        }
        OutputPlan::Lengths => steps.push(Columns::from([0])),
        OutputPlan::Totals { loops, counts, .. } => {
            steps.extend(loops.iter().map(|(rows, _)| of_loop(plan, rows)));
            steps.extend(counts.iter().map(|(_, column)| Columns::from([*column])));
        }
        OutputPlan::Groups(groups) => steps.push(of_loop(plan, &groups.rows)),
    }
    steps
}

/// The columns that are copied.
pub(super) fn of_copied(copied: &[(usize, usize)]) -> Columns {
    copied.iter().map(|(_, column)| *column).collect()
}

/// The columns that a test reads.
pub(super) fn of_test(plan: &KernelPlan, test: &Test) -> Columns {
    match test {
        Test::Constant(_) => Columns::new(),
        Test::IsNull(column) | Test::IsNotNull(column) | Test::Ranges { column, .. } => {
            Columns::from([*column])
        }
        Test::And(parts) | Test::Or(parts) => {
            parts.iter().flat_map(|part| of_test(plan, part)).collect()
        }
        Test::Not(part) => of_test(plan, part),
        Test::Expr(rows) => of_loop(plan, rows),
        Test::Found { lookup, .. } => Columns::from([plan.tables[*lookup].column]),
    }
}

/// The columns that a loop reads.
pub(super) fn of_loop(plan: &KernelPlan, rows: &RowLoop) -> Columns {
    let keys = rows.tables.iter().map(|table| plan.tables[*table].column);
    let tests = rows.tests.iter().flat_map(|(_, test)| of_test(plan, test));
    let own = rows.columns.iter().chain(&rows.nullable).copied();
    own.chain(keys).chain(tests).collect()
}
