//! The `vectile` program from outside: arguments in; output, files and exit codes out.

mod convert;
mod demo;
mod device;
mod generate;
mod inspect;
mod interrupt;
mod readme;
mod s3;
mod sql;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A directory to run the program in, removed at the end of the test.
struct Workspace(TempDir);

impl Workspace {
    fn new() -> Self {
        Workspace(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vectile"));
        command.current_dir(self.0.path()).stdin(Stdio::null());
        command
    }

    fn run(&self, args: &[&str]) -> Run {
        Run::new(args, self.command().args(args).output().unwrap())
    }

    /// Runs a command that must succeed; returns its output.
    fn ok(&self, args: &[&str]) -> String {
        let run = self.run(args);
        assert_eq!(run.code, 0, "{run:?}");
        run.stdout
    }

    /// Runs a command that must fail with this exit code; returns the error it printed.
    fn fails(&self, code: i32, args: &[&str]) -> String {
        let run = self.run(args);
        assert_eq!(run.code, code, "{run:?}");
        assert_eq!(run.stdout, "", "errors go to standard error: {run:?}");
        run.stderr
    }

    /// The rows of a query over one table.
    fn query(&self, path: &str, sql: &str) -> Value {
        let table = format!("t={path}");
        let printed = self.ok(&["sql", "-t", &table, "--format", "json", sql]);
        serde_json::from_str(&printed).unwrap()
    }

    /// Every file below, relative, sorted.
    fn files(&self) -> Vec<String> {
        let mut files = Vec::new();
        list(self.0.path(), self.0.path(), &mut files);
        files.sort();
        files
    }
}

fn list(root: &Path, directory: &Path, files: &mut Vec<String>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => list(root, &path, files),
            false => {
                let relative = path.strip_prefix(root).unwrap();
                files.push(relative.to_str().unwrap().to_string());
            }
        }
    }
}

/// The result of one run of the program.
#[derive(Debug)]
struct Run {
    #[expect(dead_code, reason = "shown when an assertion fails")]
    args: Vec<String>,
    code: i32,
    stdout: String,
    stderr: String,
}

impl Run {
    fn new(args: &[&str], output: Output) -> Self {
        Run {
            args: args.iter().map(|arg| arg.to_string()).collect(),
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// Writes an Arrow IPC file with one column, `a`.
fn write_arrow(w: &Workspace, name: &str, column: arrow::array::ArrayRef) {
    let batch = arrow::array::RecordBatch::try_from_iter_with_nullable([("a", column, true)]);
    let batch = batch.unwrap();
    let file = std::fs::File::create(w.path(name)).unwrap();
    let mut writer = arrow::ipc::writer::FileWriter::try_new(file, &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
}

/// A union of whole numbers and text, which no Parquet column can hold.
fn union() -> arrow::array::ArrayRef {
    use arrow::array::{Int64Array, StringArray, UnionArray};
    use arrow::datatypes::{DataType, Field, UnionFields};
    let fields = [
        (0, Field::new("i", DataType::Int64, true).into()),
        (1, Field::new("s", DataType::Utf8, true).into()),
    ];
    let children: Vec<arrow::array::ArrayRef> = vec![
        std::sync::Arc::new(Int64Array::from(vec![1, 0])),
        std::sync::Arc::new(StringArray::from(vec!["", "b"])),
    ];
    let fields: UnionFields = fields.into_iter().collect();
    std::sync::Arc::new(UnionArray::try_new(fields, vec![0, 1].into(), None, children).unwrap())
}

/// A table of the sample data, as it is shipped.
fn sample(name: &str) -> String {
    format!(
        "{}/data/nycflights13/{name}.parquet",
        env!("CARGO_MANIFEST_DIR")
    )
}
