//! Handles defects of Vectile: the CPU takes over, with a warning in the log.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use datafusion::common::{DataFusionError, Result};

use crate::error;

/// Maximum number of warnings in a process.
const MOST_WARNINGS: usize = 100;
/// Maximum number of lines of a warning: a compiler's log may have hundreds.
const MOST_LINES: usize = 5;

/// Policy for errors that are defects of Vectile.
#[derive(Debug)]
pub(crate) struct Defects {
    /// True if defects stay errors, so that no test passes because the CPU answers.
    are_errors: bool,
    /// Logged texts, to log each once.
    warned: Mutex<BTreeSet<String>>,
}

impl Defects {
    pub(crate) fn new(are_errors: bool) -> Self {
        Self {
            are_errors,
            warned: Mutex::default(),
        }
    }

    /// Returns `error` if the CPU may take over. Logs a warning if it is a defect.
    ///
    /// # Errors
    ///
    /// Returns the error if it is a defect, on an emulator.
    pub(crate) fn left_to_cpu(&self, error: DataFusionError) -> Result<DataFusionError> {
        match error::is_internal(&error) {
            true if self.are_errors => Err(error),
            true => {
                self.warn(&error);
                Ok(error)
            }
            false => Ok(error),
        }
    }

    /// Logs a warning and returns true if `error` is a defect and defects are no errors.
    pub(crate) fn is_noted(&self, error: &DataFusionError) -> bool {
        let is_noted = error::is_internal(error) && !self.are_errors;
        if is_noted {
            self.warn(error);
        }
        is_noted
    }

    /// Logs a defect, once.
    fn warn(&self, defect: &impl fmt::Display) {
        let text = defect.to_string();
        let lines: Vec<&str> = text.lines().take(MOST_LINES).collect();
        let text = lines.join("\n");
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.len() < MOST_WARNINGS && warned.insert(text.clone()) {
            log::warn!("a defect of Vectile leaves work to operators of DataFusion: {text}");
        }
    }
}

#[cfg(test)]
mod tests {
    use datafusion::common::{exec_datafusion_err, internal_datafusion_err};
    use vectile_gpu::Error;

    use super::*;

    fn errors() -> [(DataFusionError, bool); 6] {
        let compile = Error::Compile {
            log: "line\n".repeat(50),
        };
        [
            (error::gpu(compile), true),
            (error::gpu(Error::Internal("no such column".into())), true),
            (internal_datafusion_err!("no such column"), true),
            (internal_datafusion_err!("below").context("above"), true),
            (error::gpu(Error::Unsupported("a type".into())), false),
            (exec_datafusion_err!("a file is gone"), false),
        ]
    }

    #[test]
    fn defects_are_errors_on_an_emulator() {
        let defects = Defects::new(true);
        for (error, is_defect) in errors() {
            assert!(!defects.is_noted(&error));
            assert_eq!(defects.left_to_cpu(error).is_err(), is_defect);
        }
        assert!(defects.warned.lock().unwrap().is_empty());
    }

    #[test]
    fn defects_are_warnings_elsewhere_each_once() {
        let defects = Defects::new(false);
        for (error, is_defect) in errors().into_iter().chain(errors()) {
            assert_eq!(defects.is_noted(&error), is_defect, "{error}");
            defects.left_to_cpu(error).unwrap();
        }
        let warned = defects.warned.lock().unwrap();
        assert_eq!(warned.len(), 4);
        assert!(warned.iter().all(|text| text.lines().count() <= MOST_LINES));
    }
}
