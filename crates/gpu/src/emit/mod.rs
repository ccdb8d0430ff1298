//! Writes a kernel plan as CUDA text. All decisions are in the plan.
//!
//! ```text
//! struct C0 { .. };                    traits of column 0: widths, encodings, types
//! scan(Args a):
//!   a block takes consecutive vectors of all row groups together; its warps take turns
//!   for each vector:
//!     u32 m = rows that exist          the selection, a word per lane
//!     m &= ..                          one conjunct after another, on encoded columns
//!     if no row is left: next vector
//!     eight rows per lane at a time: decode the columns of expressions, compute, accumulate
//!     or, if few rows are selected, read them one by one
//!   reduce over the warp, one result per warp
//! ```

mod accumulator;
mod expressions;
mod filters;
mod generator;
mod groups;
mod lookups;
mod outputs;
mod row_loop;
mod threads;
mod value;

pub(crate) use generator::{Layout, NAME, emit};

#[cfg(test)]
mod tests {
    use super::emit;
    use crate::kernel::samples::{
        facts, filtered_sum, grouped, integers, planned, star, star_columns,
    };
    use vectile_kernels::{ColumnTraits, SequenceKind};
    use vectile_pipeline::{Filter, Pipeline};

    fn body(pipeline: &Pipeline, traits: &[ColumnTraits]) -> String {
        emit(&planned(pipeline, traits, &facts()).0).body
    }

    #[test]
    fn a_filtered_sum() {
        let traits = [integers(10, 0, 900), integers(20, 0, 1 << 20)];
        insta::assert_snapshot!(body(&filtered_sum(5), &traits));
    }

    #[test]
    fn few_groups() {
        let traits = [integers(3, 0, 5), integers(20, 0, 1 << 20)];
        insta::assert_snapshot!(body(&grouped(), &traits));
    }

    #[test]
    fn groups_in_a_table() {
        let traits = [integers(14, 0, 10_000), integers(20, 0, 1 << 20)];
        insta::assert_snapshot!(body(&grouped(), &traits));
    }

    #[test]
    fn a_star_join() {
        let (pipeline, facts) = star([0.3, 0.4]);
        let (plan, _) = planned(&pipeline, &star_columns(), &facts);
        insta::assert_snapshot!(emit(&plan).body);
    }

    #[test]
    fn bits_of_a_lookup_that_is_probed_twice_are_copied_once() {
        let (mut pipeline, facts) = star([0.5; 2]);
        let either = |found, other| Filter::And(vec![found, other]);
        pipeline.filter = Filter::Or(vec![
            either(Filter::Matched(0), Filter::Matched(1)),
            either(Filter::Unmatched(0), Filter::Unmatched(1)),
        ]);
        let (plan, bindings) = planned(&pipeline, &star_columns(), &facts);
        let copied = bindings.copies.iter().map(|copy| copy.lookup);
        assert!(copied.eq([0, 1]));
        let body = emit(&plan).body;
        for lookup in [0, 1] {
            let declared = body.matches(&format!("u32* const f{lookup} =")).count();
            assert_eq!(declared, 1, "{body}");
        }
    }

    #[test]
    fn rows_are_picked_from_the_tile_of_the_column_decoded_there_last() {
        let picked = |shares: &[f64]| {
            let (mut pipeline, mut facts) = star([0.5; 2]);
            // the third lookup has the keys of the first
            pipeline.lookups.push(pipeline.lookups[0].clone());
            facts.bits.push(facts.bits[0]);
            facts.hashed.push(false);
            facts.shares = shares.to_vec();
            let found = (0..shares.len()).map(Filter::Matched);
            pipeline.filter = Filter::And(found.collect());
            let traits = star_columns().into_iter().map(|traits| ColumnTraits {
                sequences: SequenceKind::GpuFor.bit(),
                ..traits
            });
            let traits: Vec<ColumnTraits> = traits.collect();
            let body = emit(&planned(&pipeline, &traits, &facts).0).body;
            let (_, read) = body.split_once("place_at<C0, true>").unwrap();
            let (read, _) = read.split_once(';').unwrap();
            read.contains("own + 0")
        };
        // parts, dates
        assert!(picked(&[0.3, 0.2]));
        // dates, parts
        assert!(!picked(&[0.2, 0.3]));
        // dates, parts, dates
        assert!(!picked(&[0.1, 0.2, 0.3]));
    }
}
