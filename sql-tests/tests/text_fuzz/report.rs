//! The queries of a run, and their results.

use std::collections::BTreeMap;
use std::fmt;

use datafusion::physical_plan::{ExecutionPlan, displayable};

/// Leading words by which reasons are counted.
const WORDS: usize = 4;
/// Characters of an error by which it is counted.
const ERROR_CHARACTERS: usize = 60;

#[derive(Default)]
pub struct Report {
    sets: usize,
    queries: usize,
    on_device: usize,
    /// Errors of queries that fail on both sides.
    errors: BTreeMap<String, usize>,
    /// Per feature, the queries that have it, and how many of them ran on the device.
    kinds: BTreeMap<&'static str, (usize, usize)>,
    /// Reasons in plans for scans and aggregates that are not on the device.
    reasons: BTreeMap<String, usize>,
    pub findings: Vec<String>,
}

impl Report {
    pub fn set(&mut self) {
        self.sets += 1;
    }

    /// Counts a query that failed on both sides.
    pub fn error(&mut self, error: &str) {
        let kind = error.chars().take(ERROR_CHARACTERS).collect();
        *self.errors.entry(kind).or_default() += 1;
    }

    /// Counts a query that was answered.
    pub fn answered(&mut self, kinds: &[&'static str], plan: &dyn ExecutionPlan, on_device: bool) {
        self.queries += 1;
        self.on_device += usize::from(on_device);
        for kind in kinds {
            let (queries, fused) = self.kinds.entry(kind).or_default();
            *queries += 1;
            *fused += usize::from(on_device);
        }
        for reason in reasons(plan) {
            *self.reasons.entry(reason).or_default() += 1;
        }
    }

    /// Adds a fault found in the set of this seed.
    pub fn finding(&mut self, seed: u64, what: &str) {
        let finding = format!("SQL_TESTS_FUZZ_SEED={seed}\n{what}");
        eprintln!("{finding}");
        self.findings.push(finding);
    }

    /// Percent of the queries that ran on the device.
    pub fn share_on_device(&self) -> usize {
        100 * self.on_device / self.queries.max(1)
    }

    /// Percent of the queries that failed on both sides.
    pub fn share_of_errors(&self) -> usize {
        let errors: usize = self.errors.values().sum();
        100 * errors / (self.queries + errors).max(1)
    }
}

/// The notes of scans in a plan, without details that differ from query to query.
fn reasons(plan: &dyn ExecutionPlan) -> Vec<String> {
    let plan = displayable(plan).indent(false).to_string();
    let notes = ["not_on_gpu=", "not_fused="];
    let notes = notes.iter().flat_map(|note| plan.match_indices(note));
    let reasons = notes.map(|(at, _)| {
        let words = plan[at..].lines().next().unwrap_or_default().split(' ');
        let words = words.map(|word| {
            if word.contains(['@', '(']) {
                ".."
            } else {
                word
            }
        });
        words.take(WORDS).collect::<Vec<_>>().join(" ")
    });
    reasons.collect()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (queries, findings) = (self.queries, self.findings.len());
        write!(
            f,
            "{} sets, {queries} queries, {findings} findings",
            self.sets
        )?;
        write!(f, "\non the device: {} queries, of which", self.on_device)?;
        for (kind, (queries, on_device)) in &self.kinds {
            write!(f, "\n  {on_device} of {queries} with {kind}")?;
        }
        for (reason, times) in &self.reasons {
            write!(f, "\n  {times} x {reason}")?;
        }
        for (error, times) in &self.errors {
            write!(f, "\n  {times} x no answer: {error:?}")?;
        }
        Ok(())
    }
}
