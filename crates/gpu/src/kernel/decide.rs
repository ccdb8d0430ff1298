//! The entry point of kernel planning.

use super::bindings::Bindings;
use super::columns::{columns_by_row, columns_of_filter, push};
use super::plan::{KernelPlan, OutputPlan, Registers};
use super::planner::{Planner, SHARED_BYTES};
use super::tables::Facts;
use super::task::{AccumulationScope, Task};
use crate::error::{Error, Result};
use vectile_kernels::{ColumnTraits, Transform};
use vectile_pipeline::{Filter, Output, Pipeline};

/// Warps per block, if shared memory suffices.
pub(super) const WARPS: u32 = 8;
/// Warps per block if threads have accumulators in shared memory: small blocks use shared memory better.
const THREAD_WARPS: u32 = 4;
/// Warps of a block that has a multiprocessor for itself: as many as registers allow.
pub(super) const LARGE_WARPS: u32 = 28;

/// Plans the kernel of `task` over columns with these traits, and its runtime arguments.
///
/// # Errors
///
/// [`Error::Unsupported`] if there is no kernel for the pipeline and the traits; [`Error::Internal`] if they do not
/// fit each other, or the task.
pub(crate) fn plan(
    pipeline: &Pipeline,
    traits: &[ColumnTraits],
    facts: &Facts,
    task: Task,
) -> Result<(KernelPlan, Bindings)> {
    let mut planner = Planner::new(pipeline, traits, facts, task)?;
    if !pipeline.matches.is_empty() && !matches!(task, Task::Totals | Task::Groups) {
        let reason = "rows with several matches that are not aggregated";
        return Err(Error::Unsupported(reason.into()));
    }
    let mut grouped = None;
    let mut output = match (&pipeline.output, task) {
        (_, Task::Masks) => OutputPlan::Masks,
        (Output::Rows(exprs), Task::Values) => planner.rows(exprs, false)?,
        (Output::Rows(exprs), Task::AllValues) => planner.rows(exprs, true)?,
        (Output::Rows(_), Task::Lengths) => planner.lengths()?,
        (Output::Aggregates(aggregates), Task::Totals) => planner.totals(aggregates)?,
        (Output::Groups(keys, aggregates), Task::Groups) => {
            grouped = Some((planner.groups(keys, aggregates)?, aggregates));
            OutputPlan::Masks
        }
        _ => {
            let reason = "a task that the pipeline does not have";
            return Err(Error::Internal(reason.into()));
        }
    };
    let is_sparse = planner.is_sparse;
    let is_wide = grouped.as_ref().is_some_and(|(groups, _)| groups.is_wide());
    // sums of 128 bits and hash tables take so many registers that large blocks would have too few warps
    planner.may_be_large = is_sparse && !is_wide && !planner.has_hashed() && !facts.is_interpreted;
    planner.place_tiles()?;
    let (mut open_order, mut fetched, mut conjuncts) = (vec![], vec![], vec![]);
    if !task.follows_filters() {
        let ordered = planner.in_order();
        for conjunct in &ordered {
            columns_of_filter(conjunct, &mut open_order);
            if let Filter::Matched(lookup) | Filter::Unmatched(lookup) = conjunct {
                push(pipeline.lookups[*lookup].column, &mut open_order);
            }
        }
        if !planner.tables.is_empty() {
            let later = open_order.iter().skip(1).copied();
            // vectors of plain values and strings are too large to be fetched early
            let is_large = |column: usize| {
                let of = &traits[column];
                of.has(Transform::Plain) || of.has(Transform::Text)
            };
            fetched = later.filter(|column| !is_large(*column)).collect();
            let by_row = columns_by_row(pipeline, task).into_iter();
            by_row.for_each(|column| push(column, &mut open_order));
        }
        for conjunct in ordered {
            conjuncts.push(planner.test(conjunct)?);
            planner.is_filtered = true;
        }
    }
    if let Some((grouped, aggregates)) = grouped {
        output = OutputPlan::Groups(planner.place_groups(grouped, aggregates)?.into());
    }
    let is_large = planner.is_large();
    let per = planner.per;
    let (warp_bytes, block_bytes) = (planner.warp_bytes, planner.bindings.block_bytes);
    let mut warps = match per {
        AccumulationScope::Block { .. } => THREAD_WARPS,
        AccumulationScope::Warp | AccumulationScope::Slot => WARPS,
    };
    while warps > 1 && warps * warp_bytes > SHARED_BYTES.saturating_sub(block_bytes) {
        warps /= 2;
    }
    if is_large {
        warps = LARGE_WARPS;
    }
    let plan = KernelPlan {
        task,
        open_order,
        fetched,
        conjuncts,
        bitmaps: vec![false; planner.bindings.code_tests.len()],
        has_block: planner.has_block(),
        warp_bytes,
        warps,
        registers: match is_sparse && !is_wide && !is_large {
            true if planner.has_hashed() => Registers::Hashed,
            true => Registers::Sparse,
            false if matches!(per, AccumulationScope::Block { .. }) => Registers::Threads,
            false => Registers::Plain,
        },
        per,
        output,
        columns: planner.columns,
        tables: planner.tables,
    };
    Ok((plan, planner.bindings))
}

#[cfg(test)]
mod tests {
    use super::super::accumulator::Accumulator;
    use super::super::plan::{GroupsPlan, SparseAccess, Strategy, Test};
    use super::super::samples::*;
    use super::*;
    use arrow::datatypes::DataType;
    use vectile_pipeline::{Aggregate, Arithmetic, DatePart, Expr, GroupKey, Literal, Type};

    fn groups(plan: &KernelPlan) -> &GroupsPlan {
        match &plan.output {
            OutputPlan::Groups(groups) => groups,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn constants_and_sizes_are_arguments_of_the_same_kernel() {
        let sum = |limit, most| {
            let traits = [integers(10, 0, 900), integers(10, 0, most)];
            planned(&filtered_sum(limit), &traits, &facts())
        };
        let (first, bindings) = sum(5, 900);
        assert_eq!(bindings.constants[1], 4);
        for (limit, most, is_same) in [(6, 900, true), (5, 1000, true), (5, 2000, false)] {
            let (other, bindings) = sum(limit, most);
            assert_eq!(other == first, is_same, "{limit} {most}");
            assert_eq!(bindings.constants[1], i128::from(limit) - 1);
        }
    }

    #[test]
    fn sums_are_as_wide_as_values_and_rows_need() {
        let total = |most| {
            let traits = [integers(10, 0, 900), integers(40, 0, most)];
            let (plan, _) = planned(&filtered_sum(5), &traits, &facts());
            match plan.output {
                OutputPlan::Totals {
                    accumulators,
                    loops,
                    ..
                } => {
                    let sum = accumulators.all[1].accumulator;
                    (sum, sum.adds_by_eight(loops[0].0.exprs[0].bounds))
                }
                other => panic!("{other:?}"),
            }
        };
        let sum = |wide, by_eight| (Accumulator::Sum { wide }, by_eight);
        assert_eq!(total(1 << 27), sum(false, true));
        assert_eq!(total(1 << 28), sum(false, false));
        assert_eq!(total((1 << 43) - 1), sum(false, false));
        assert_eq!(total(1 << 43), sum(true, false));
    }

    #[test]
    fn equal_aggregates_share_accumulators() {
        let sum = || Aggregate::Sum(Expr::Column(1));
        let aggregates = vec![sum(), Aggregate::Min(Expr::Column(1)), sum()];
        let totals = Output::Aggregates(aggregates.clone());
        let groups = Output::Groups(vec![GroupKey::Value(Expr::Column(0))], aggregates);
        for (output, most) in [(totals, 1 << 10), (groups.clone(), 5), (groups, 1 << 10)] {
            let pipeline = Pipeline {
                output,
                ..filtered_sum(5)
            };
            let traits = [integers(10, 0, most), integers(20, 0, 1 << 20)];
            let accumulators = match planned(&pipeline, &traits, &facts()).0.output {
                OutputPlan::Totals { accumulators, .. } => accumulators,
                OutputPlan::Groups(groups) => groups.accumulators,
                other => panic!("{other:?}"),
            };
            // rows, the sum, the minimum
            assert_eq!(accumulators.all.len(), 3);
            let of = accumulators.results.iter().map(|result| result.value);
            assert!(of.eq([Some(1), Some(2), Some(1)]));
        }
    }

    #[test]
    fn the_strategy_follows_the_size_of_the_table() {
        let strategy = |most| {
            let traits = [integers(10, 0, most), integers(20, 0, 1 << 20)];
            let (plan, bindings) = planned(&grouped(), &traits, &facts());
            assert_eq!(bindings.grouping.unwrap().groups, most as u64 + 1);
            groups(&plan).strategy
        };
        // two fields share a word; a thread has up to 64, of which one group is for rows that do not count
        assert_eq!(strategy(5), Strategy::Threads);
        assert_eq!(strategy(62), Strategy::Threads);
        assert_eq!(strategy(63), Strategy::Shared);
        // two words of 24 KiB
        assert_eq!(strategy(1535), Strategy::Shared);
        assert_eq!(strategy(1536), Strategy::Numbered);
        assert_eq!(strategy((1 << 22) - 1), Strategy::Numbered);
        assert_eq!(strategy(1 << 22), Strategy::Hashed);
        assert_eq!(strategy(1 << 40), Strategy::Hashed);
    }

    #[test]
    fn parts_of_dates_and_remainders_are_few_groups() {
        let part = |part| GroupKey::Value(Expr::date_part(part, Expr::Column(0)));
        let seven = Expr::Literal(Literal::Int(7, Type::I32));
        let remainder = Expr::arithmetic(Arithmetic::Remainder, Expr::Column(0), seven);
        // 1992 to 1998
        let groups_of = |keys: Vec<GroupKey>| {
            let mut pipeline = grouped();
            pipeline.columns[0] = DataType::Date32;
            pipeline.output = Output::Groups(keys, vec![Aggregate::CountRows]);
            let traits = [integers(12, 8035, 10_561), integers(20, 0, 1 << 20)];
            let (plan, bindings) = planned(&pipeline, &traits, &facts());
            (bindings.grouping.unwrap().groups, groups(&plan).strategy)
        };
        let month = || part(DatePart::Month);
        assert_eq!(groups_of(vec![month()]), (12, Strategy::Threads));
        let years = groups_of(vec![part(DatePart::Year), month()]);
        assert_eq!(years, (8 * 12, Strategy::Shared));
        let remainder = groups_of(vec![GroupKey::Value(remainder)]);
        assert_eq!(remainder, (7, Strategy::Threads));
    }

    #[test]
    fn groups_of_the_same_strategy_share_a_kernel() {
        let plan = |most| {
            let traits = [integers(14, 0, most), integers(20, 0, 1 << 20)];
            planned(&grouped(), &traits, &facts())
        };
        let ((one, bindings), (other, other_bindings)) = (plan(10_000), plan(16_000));
        assert_eq!(one, other);
        let accumulators = groups(&one).accumulators.all.iter();
        let accumulators: Vec<_> = accumulators.map(|slot| slot.accumulator).collect();
        let sum = Accumulator::Sum { wide: false };
        assert_eq!(accumulators, [Accumulator::Count { wide: false }, sum]);
        let counts = [bindings, other_bindings].map(|bindings| bindings.digits()[0].count);
        assert_eq!(counts, [10_001, 16_001]);
    }

    #[test]
    fn lookups_that_drop_most_come_first() {
        let order = |shares| {
            let (pipeline, facts) = star(shares);
            let (plan, bindings) = planned(&pipeline, &star_columns(), &facts);
            let of = plan.conjuncts.iter().map(|test| match test {
                Test::Found { lookup, .. } => *lookup,
                other => panic!("{other:?}"),
            });
            // all bits have copies, in the order of the lookups
            let copies = bindings.copies.iter().map(|copy| copy.lookup);
            let order: Vec<usize> = of.collect();
            assert!(copies.eq(order.iter().copied()));
            (order, groups(&plan).deferred.clone())
        };
        assert_eq!(order([0.2, 0.1]), (vec![1, 0], vec![]));
        assert_eq!(order([0.1, 0.2]), (vec![0, 1], vec![]));
        // the first one's code is a group key
        assert_eq!(order([0.9, 0.7]), (vec![1], vec![0]));
    }

    #[test]
    fn few_rows_are_read_one_by_one() {
        let access = |shares| {
            let (pipeline, facts) = star(shares);
            let (plan, _) = planned(&pipeline, &star_columns(), &facts);
            (
                groups(&plan).rows.access,
                plan.registers,
                groups(&plan).strategy,
            )
        };
        let sparse = (SparseAccess::All, Registers::Sparse, Strategy::Shared);
        assert_eq!(access([0.3, 0.5]), sparse);
        let dense = (SparseAccess::Few, Registers::Threads, Strategy::Threads);
        assert_eq!(access([0.4, 0.5]), dense);
    }

    #[test]
    fn bits_of_many_keys_take_a_block_of_their_own() {
        let placed = |bytes, rows| {
            let (pipeline, facts) = star([0.1, 0.1]);
            let facts = Facts {
                bits: vec![1 << 10, bytes],
                rows,
                ..facts
            };
            let (plan, bindings) = planned(&pipeline, &star_columns(), &facts);
            (plan.warps, bindings.copies.len())
        };
        assert_eq!(placed(30 << 10, 1 << 24), (WARPS, 2));
        assert_eq!(placed(100 << 10, 1 << 24), (LARGE_WARPS, 2));
        // not worth copying
        assert_eq!(placed(100 << 10, 1 << 19), (WARPS, 1));
        // one has a copy, the other benefits from a large cache
        assert_eq!(placed(1 << 20, 1 << 24), (LARGE_WARPS, 1));
    }
}
