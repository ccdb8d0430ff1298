//! What a run asked, and what came of it.

use std::collections::BTreeMap;
use std::fmt;

use datafusion::physical_plan::{ExecutionPlan, displayable};

/// Words of a reason that are counted as one.
const WORDS: usize = 4;

#[derive(Default)]
pub struct Report {
    sets: usize,
    queries: usize,
    on_device: usize,
    /// Queries that neither side answers.
    errors: usize,
    /// Queries with something, and how many of them ran on the device.
    kinds: BTreeMap<&'static str, (usize, usize)>,
    /// Why plans have scans and aggregates that are not for the device.
    reasons: BTreeMap<String, usize>,
    pub findings: Vec<String>,
}

impl Report {
    pub fn set(&mut self) {
        self.sets += 1;
    }

    pub fn error(&mut self) {
        self.errors += 1;
    }

    /// A query that was answered.
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

    pub fn finding(&mut self, finding: String) {
        eprintln!("{finding}");
        self.findings.push(finding);
    }

    /// Percent of the queries that ran on the device.
    pub fn share_on_device(&self) -> usize {
        100 * self.on_device / self.queries.max(1)
    }

    /// Percent of the queries that no side answered.
    pub fn share_of_errors(&self) -> usize {
        100 * self.errors / (self.queries + self.errors).max(1)
    }
}

/// The notes of scans in a plan, without what differs from query to query.
fn reasons(plan: &dyn ExecutionPlan) -> Vec<String> {
    let plan = displayable(plan).indent(false).to_string();
    let notes = ["not_on_gpu=", "not_fused="];
    let notes = notes.iter().flat_map(|note| plan.match_indices(note));
    let reasons = notes.map(|(at, _)| {
        let words = plan[at..].lines().next().unwrap_or_default().split(' ');
        let words = words.map(|word| if word.contains(['@', '(']) { ".." } else { word });
        words.take(WORDS).collect::<Vec<_>>().join(" ")
    });
    reasons.collect()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sets, queries, on_device, errors, findings, .. } = self;
        write!(f, "{sets} sets, {queries} queries, {on_device} on the device, {errors} errors, ")?;
        write!(f, "{} findings", findings.len())?;
        for (kind, (queries, on_device)) in &self.kinds {
            write!(f, "\n  {kind}: {queries} queries, {on_device} on the device")?;
        }
        let reasons = self.reasons.iter();
        reasons.fold(Ok(()), |_, (reason, times)| write!(f, "\n  {times} x {reason}"))
    }
}
