//! Warnings of the libraries, on standard error.

use log::{LevelFilter, Log, Metadata, Record};

use crate::text::printable;

/// Prints Vectile's warnings only. DataFusion's log messages are of no use to users.
struct Warnings;

impl Log for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Warn && metadata.target().starts_with("vectile")
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let text = record.args().to_string();
            eprintln!("warning: {}", printable(&text));
        }
    }

    fn flush(&self) {}
}

/// Enables the warnings of the libraries.
pub fn show() {
    // fails if there is another logger, which prints them
    if log::set_logger(&Warnings).is_ok() {
        log::set_max_level(LevelFilter::Warn);
    }
}

#[cfg(test)]
mod tests {
    use log::Level;

    use super::*;

    #[test]
    fn warnings_of_vectile_are_shown() {
        let is_shown = |target, level| {
            let metadata = Metadata::builder().target(target).level(level).build();
            Warnings.enabled(&metadata)
        };
        assert!(is_shown("vectile_datafusion::gpu::defects", Level::Warn));
        assert!(is_shown("vectile_gpu", Level::Error));
        assert!(!is_shown("vectile_gpu", Level::Info));
        assert!(!is_shown("datafusion_physical_plan", Level::Warn));
    }
}
