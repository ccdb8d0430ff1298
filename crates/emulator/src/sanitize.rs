//! Tests under the address sanitizer and the one for undefined behaviour.

use std::process::{Command, Output};

use vectile_gpu::{Error, Result};

use crate::compile::{SANITIZE, compiler_program, sanitized};

/// Leaks of the test program are not tested.
const ASAN_OPTIONS: &str =
    "detect_leaks=0:detect_stack_use_after_return=0:allocator_may_return_null=1";

/// Runs the test `test` of the running test program once more, in a process where kernels are compiled with
/// sanitizers, and panics with their report unless it passes. Does nothing within such a process, so a test may name
/// itself.
///
/// # Errors
///
/// [`Error::Unavailable`] if the C++ compiler has no address sanitizer (GCC's is required).
pub fn run_sanitized_self(test: &str) -> Result<()> {
    if sanitized() {
        return Ok(());
    }
    let output = sanitized_self(test)?;
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && stdout.contains("1 passed"),
        "{test} under sanitizers: {}\n{stdout}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr),
    );
    Ok(())
}

/// As [`run_sanitized_self`], but returns the output of a passing or failing test.
///
/// # Errors
///
/// As [`run_sanitized_self`].
pub fn sanitized_self(test: &str) -> Result<Output> {
    let program = std::env::current_exe().map_err(|error| unavailable(&error))?;
    Command::new(program)
        .args([test, "--exact", "--nocapture", "--include-ignored"])
        .env("LD_PRELOAD", sanitizer_library()?)
        .env("ASAN_OPTIONS", ASAN_OPTIONS)
        .env("UBSAN_OPTIONS", "print_stacktrace=1")
        .env(SANITIZE, "1")
        .output()
        .map_err(|error| unavailable(&error))
}

/// The run-time library of the address sanitizer, which must be loaded before all others.
fn sanitizer_library() -> Result<String> {
    let output = Command::new(compiler_program())
        .arg("-print-file-name=libasan.so")
        .output()
        .map_err(|error| unavailable(&error))?;
    let path = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    // The compiler prints a name without a folder if it knows no such library.
    if path.contains('/') {
        Ok(path)
    } else {
        Err(unavailable(&"no libasan.so"))
    }
}

fn unavailable(reason: &dyn std::fmt::Display) -> Error {
    Error::Unavailable(format!("address sanitizer of the C++ compiler: {reason}"))
}
