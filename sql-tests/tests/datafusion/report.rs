//! Compares the two runs of each file and reports what was compared and what was not.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use datafusion::common::Result;
use vectile_sql_tests::{FileRun, Outcome, RecordRun, same_rows};

use crate::skip_list::SkipList;

/// The outcome of a record on replaced tables compared with plain DataFusion.
enum Verdict {
    /// As the file expects.
    Agrees,
    /// Not as the file expects, but as plain DataFusion answers here (over replaced data).
    AgreesWithPlain,
    /// A plan, not run.
    PlanText,
    /// Fails on plain DataFusion, so there is nothing to compare.
    FailsOnPlain,
    /// Another answer than plain DataFusion's.
    Differs(String),
}

/// The two runs of a file.
pub struct FileReport {
    file: String,
    runs: Result<Option<(FileRun, FileRun)>>,
    elapsed: Duration,
}

/// The sum over all files.
#[derive(Default)]
pub struct Report {
    files: usize,
    files_without_tables: usize,
    agreed: usize,
    agreed_with_plain: usize,
    read_vectile: usize,
    plan_text: usize,
    fails_on_plain: usize,
    listed: BTreeMap<&'static str, usize>,
    problems: Vec<String>,
    slowest: Vec<(Duration, String)>,
}

impl FileReport {
    /// Compares `runs`, which are `None` if the file has no tables.
    pub fn new(
        relative: PathBuf,
        runs: Result<Option<(FileRun, FileRun)>>,
        elapsed: Duration,
    ) -> Self {
        FileReport {
            file: relative.to_string_lossy().into_owned(),
            runs,
            elapsed,
        }
    }
}

impl Report {
    /// Judges every file against the list.
    pub fn new(files: Vec<FileReport>, list: &SkipList) -> Self {
        let mut report = Report::default();
        for file in files {
            report.slowest.push((file.elapsed, file.file.clone()));
            match file.runs {
                Ok(None) => report.files_without_tables += 1,
                Ok(Some((plain, replaced))) => report.add(&file.file, &plain, &replaced, list),
                Err(error) => report.add_failed_file(&file.file, &error.to_string(), list),
            }
        }
        report.slowest.sort();
        report.slowest.reverse();
        report
    }

    /// Returns true if all differences are listed, and all entries of the list hold.
    pub fn passes(&self) -> bool {
        self.problems.is_empty()
    }

    fn add(&mut self, file: &str, plain: &[RecordRun], replaced: &[RecordRun], list: &SkipList) {
        self.files += 1;
        let mut on_plain = vec![];
        let mut differing = BTreeSet::new();
        for (plain, replaced) in plain.iter().zip(replaced) {
            let location = format!("{file}:{}", replaced.location);
            self.read_vectile += usize::from(replaced.read_compressed);
            match verdict(&plain.outcome, &replaced.outcome) {
                Verdict::Agrees => self.agreed += 1,
                Verdict::AgreesWithPlain => {
                    on_plain.push((location, &plain.outcome));
                    self.agreed_with_plain += 1;
                }
                Verdict::PlanText => self.plan_text += 1,
                Verdict::FailsOnPlain => {
                    on_plain.push((location, &plain.outcome));
                    self.fails_on_plain += 1;
                }
                Verdict::Differs(_) if list.varies.contains_key(&location) => self.count("varies"),
                Verdict::Differs(_) if list.differs.contains_key(&location) => {
                    differing.insert(location);
                    self.count("differs");
                }
                Verdict::Differs(_) if list.differs.contains_key(file) => {
                    differing.insert(file.to_owned());
                    self.count("differs");
                }
                Verdict::Differs(message) => self.problems.push(format!("{location}: {message}")),
            }
        }
        if plain.len() != replaced.len() {
            self.problems.push(format!(
                "{file}: the runs have different numbers of records"
            ));
        }
        self.check_plain(file, &on_plain, list);
        self.check_differing(file, &differing, list);
    }

    fn add_failed_file(&mut self, file: &str, error: &str, list: &SkipList) {
        self.files += 1;
        match list.plain.contains_key(file) {
            true => self.count("plain"),
            false => self.problems.push(format!("{file}: {error}")),
        }
    }

    fn count(&mut self, kind: &'static str) {
        *self.listed.entry(kind).or_default() += 1;
    }

    /// Checks that plain DataFusion fails on records of listed files, and on no others.
    fn check_plain(&mut self, file: &str, failed: &[(String, &Outcome)], list: &SkipList) {
        let has_checkout = std::env::var_os("DATAFUSION_CHECKOUT").is_some();
        match (failed, list.plain.contains_key(file)) {
            ([], true) if !has_checkout => {
                self.problems.push(format!(
                    "{file}: passes on plain DataFusion: remove `plain`"
                ));
            }
            ([(location, outcome), rest @ ..], false) => self.problems.push(format!(
                "{location}: fails on plain DataFusion, as {} more records: {outcome:?}",
                rest.len()
            )),
            _ => {}
        }
    }

    /// Checks the list; an entry that no longer holds is a problem as well.
    fn check_differing(&mut self, file: &str, differing: &BTreeSet<String>, list: &SkipList) {
        let of_this_file = |location: &&String| {
            location
                .strip_prefix(file)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
        };
        for location in list.differs.keys().filter(of_this_file) {
            if !differing.contains(location) {
                self.problems.push(format!(
                    "{location}: does not differ: remove it from the list"
                ));
            }
        }
    }
}

fn verdict(plain: &Outcome, replaced: &Outcome) -> Verdict {
    match (plain, replaced) {
        (Outcome::PlanText, _) => Verdict::PlanText,
        (Outcome::Agrees, Outcome::Agrees) => Verdict::Agrees,
        (Outcome::Agrees, Outcome::OtherRows { message, .. } | Outcome::Fails(message)) => {
            Verdict::Differs(message.clone())
        }
        (
            Outcome::OtherRows {
                sql,
                actual: expected,
                ..
            },
            Outcome::OtherRows {
                actual, message, ..
            },
        ) => match same_rows(sql, expected, actual) {
            true => Verdict::AgreesWithPlain,
            false => Verdict::Differs(format!("{message}\nplain DataFusion:\n{expected}")),
        },
        (Outcome::OtherRows { .. }, Outcome::Fails(message)) => Verdict::Differs(message.clone()),
        _ => Verdict::FailsOnPlain,
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in &self.problems {
            writeln!(f, "PROBLEM {problem}\n")?;
        }
        let slowest = self.slowest.iter().take(5);
        let slowest: Vec<String> = slowest
            .map(|(elapsed, file)| format!("{file} {:.0} s", elapsed.as_secs_f64()))
            .collect();
        let listed = |kind| self.listed.get(kind).copied().unwrap_or_default();
        writeln!(
            f,
            "DataFusion's test files: {} run, with tables in Vectile files",
            self.files
        )?;
        writeln!(
            f,
            "  {} more have no tables, so there is nothing to replace",
            self.files_without_tables
        )?;
        writeln!(f, "  {} records agree with the file", self.agreed)?;
        writeln!(
            f,
            "  {} more agree with plain DataFusion, over stand-in data",
            self.agreed_with_plain
        )?;
        writeln!(f, "  {} records read Vectile files", self.read_vectile)?;
        writeln!(
            f,
            "  {} not compared: EXPLAIN, plans differ",
            self.plan_text
        )?;
        writeln!(
            f,
            "  {} not compared: fail on plain DataFusion here (and {} whole files)",
            self.fails_on_plain,
            listed("plain")
        )?;
        writeln!(
            f,
            "  {} listed as different, {} as left open by SQL",
            listed("differs"),
            listed("varies")
        )?;
        writeln!(f, "  {} problems", self.problems.len())?;
        write!(f, "  slowest: {}", slowest.join(", "))
    }
}
