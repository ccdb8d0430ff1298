//! Parts of other tests, with kernels compiled with the address sanitizer and the one for undefined behaviour. Each
//! test runs itself in a process that sanitizes.

use arrow::datatypes::DataType;
use vectile_emulator::{run_sanitized_self, sanitized};
use vectile_gpu::Error;

use crate::differential;
use crate::malformed;
use crate::strings;
use crate::support::device;

/// Runs `work`, that of the test of this name, in a process that sanitizes.
fn under_sanitizers(test: &str, work: impl FnOnce()) {
    if sanitized() {
        return work();
    }
    if device().is_none() {
        return;
    }
    match run_sanitized_self(test) {
        Err(Error::Unavailable(reason)) => eprintln!("skipped: {reason}"),
        other => other.unwrap(),
    }
}

/// Runs one query of each kind of the cases whose names start with any of `starts`.
fn clean(test: &str, starts: &[&str]) {
    under_sanitizers(test, || {
        let Some(device) = device() else { return };
        let count = differential::run(device, true, |case| {
            starts.iter().any(|start| case.name.starts_with(start))
        });
        assert!(count >= starts.len());
    });
}

#[test]
fn encodings() {
    clean("sanitize::encodings", &["single"]);
}

#[test]
fn widths_and_patches() {
    clean(
        "sanitize::widths_and_patches",
        &[
            "widths of delta Int32",
            "widths of dict",
            "patches of ffor",
            "patches of alp Float32",
        ],
    );
}

#[test]
fn mixtures() {
    clean(
        "sanitize::mixtures",
        &[
            "mixed Int64",
            "mixed Float64",
            "mixed Decimal128",
            "evenly spaced Decimal128(15",
            "dictionaries",
        ],
    );
}

#[test]
fn expressions() {
    clean(
        "sanitize::expressions",
        &[
            "arithmetic Outliers",
            "floats",
            "logic",
            "casts",
            "comparisons",
            "dates",
            "decimals",
        ],
    );
}

#[test]
fn lookups_and_groups() {
    under_sanitizers("sanitize::lookups_and_groups", || {
        let Some(device) = device() else { return };
        let runs = ["stars rle", "stars hashed rle"];
        let count = differential::run(device, false, |case| runs.contains(&case.name.as_str()));
        assert!(count > runs.len());
    });
}

#[test]
fn tests_and_keys_of_text() {
    clean("sanitize::tests_and_keys_of_text", &["text"]);
}

#[test]
fn rows_of_strings() {
    under_sanitizers("sanitize::rows_of_strings", || {
        strings::run(&[DataType::Utf8View, DataType::Binary]);
    });
}

#[test]
fn damaged_strings() {
    under_sanitizers("sanitize::damaged_strings", malformed::check_strings);
}

#[test]
fn damaged_chunks() {
    under_sanitizers("sanitize::damaged_chunks", || malformed::run(25));
}
