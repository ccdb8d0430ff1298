//! The interactive shell: statements from a terminal, in sequence, in one session.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::dialect::Dialect;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};
use futures::StreamExt;
use rustyline::completion::{Completer, FilenameCompleter, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Editor, Helper};
use tokio::runtime::Runtime;

use crate::error::{CliError, Result};
use crate::interrupt::Interrupt;
use crate::interruptible::Cancel;
use crate::print::PrintFormat;
use crate::runtime::{end, workers};
use crate::session;
use crate::sql::{Answer, SqlArgs, answer, dialect, parse, print_result, register_tables};
use crate::text_options::TextArgs;

/// Rows shown of a query's result.
const MAX_ROWS: usize = 100;

/// The history file, relative to the directory for the state of programs.
const HISTORY: &str = "vectile/history";

/// Time for a cancelled statement to remove the files that it was writing.
const CLEANUP_TIME: Duration = Duration::from_millis(200);

/// Time for its threads to end. A thread that does not is abandoned, and ends at its next wait.
const END_TIME: Duration = Duration::from_millis(500);

const HELP: &str = "\
\\q              leave (also Ctrl-D)
\\d              list tables
\\d NAME         columns of a table
\\h              list functions
\\i FILE         run the statements of a file
\\format FORMAT  how to print results: table, csv, json, jsonl
\\?              this list
Statements end with a semicolon. Ctrl-C ends the one that runs.";

/// An interactive session.
struct Shell {
    context: SessionContext,
    /// Runs statements; Ctrl-C replaces its threads.
    workers: Runtime,
    /// Runs on the thread that reads, so that busy workers do not delay Ctrl-C.
    signals: Runtime,
    /// Termination requests for the process.
    end: Interrupt,
    cancel: Cancel,
    format: PrintFormat,
}

/// Runs `vectile sql` as an interactive shell.
pub fn converse(args: &SqlArgs) -> Result<()> {
    if args.output.is_some() {
        return Err(CliError::Usage(
            "-o needs a statement or a script to run".into(),
        ));
    }
    Shell::new(args.format, &args.tables, &args.text)?.converse()
}

/// The state after an input: read on, or end.
enum Next {
    Read,
    Leave,
}

impl Shell {
    /// A shell with `tables` registered.
    fn new(format: PrintFormat, tables: &[(String, String)], text: &TextArgs) -> Result<Self> {
        let end = Interrupt::listen_in_shell()?;
        let cancel = Cancel::default();
        let context = session::for_shell(cancel.clone())?;
        let workers = workers()?;
        workers.block_on(text.apply(&context))?;
        workers.block_on(register_tables(&context, tables))?;
        let signals = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        Ok(Shell {
            context,
            workers,
            signals,
            end,
            cancel,
            format,
        })
    }

    /// Reads statements until `\q` or the end of input.
    fn converse(mut self) -> Result<()> {
        let mut editor = Editor::<Input, DefaultHistory>::new().map_err(ended)?;
        editor.set_helper(Some(Input {
            files: FilenameCompleter::default(),
            context: self.context.clone(),
        }));
        let history = history(std::env::var_os("XDG_STATE_HOME"), std::env::home_dir());
        if let Some(history) = &history {
            // There is no history the first time.
            drop(editor.load_history(history));
        }
        println!("\\? lists commands, \\q leaves");
        while !self.end.is_requested() {
            match editor.readline("> ") {
                Ok(line) => {
                    let line = line.trim();
                    editor.add_history_entry(line).map_err(ended)?;
                    if let Some(history) = &history {
                        // A shell works without a history, too.
                        drop(keep(&mut editor, history));
                    }
                    match self.line(line) {
                        Ok(Next::Read) => (),
                        Ok(Next::Leave) => break,
                        Err(_) if self.end.is_requested() => break,
                        Err(error) => drop(error.report()),
                    }
                }
                Err(ReadlineError::Interrupted) => println!("^C"),
                Err(ReadlineError::Eof) => break,
                Err(error) => return Err(ended(error)),
            }
        }
        end(self.workers, END_TIME);
        match self.end.is_requested() {
            true => Err(CliError::Interrupted),
            false => Ok(()),
        }
    }

    fn line(&mut self, line: &str) -> Result<Next> {
        let Some(command) = line.strip_prefix('\\') else {
            return self.run(line.to_string()).map(|()| Next::Read);
        };
        let (name, argument) = match command.split_once(char::is_whitespace) {
            Some((name, argument)) => (name, Some(argument.trim())),
            None => (command, None),
        };
        match (name, argument) {
            ("q", None) => return Ok(Next::Leave),
            ("?", None) => println!("{HELP}"),
            ("d", None) => self.run("SHOW TABLES".into())?,
            ("d", Some(table)) => self.run(format!("SHOW COLUMNS FROM {table}"))?,
            ("h", None) => self.run("SHOW FUNCTIONS".into())?,
            ("i", Some(file)) => {
                let script = std::fs::read_to_string(Path::new(file)).map_err(|error| {
                    CliError::from(error).context(format!("cannot read {file}"))
                })?;
                self.run(script)?;
            }
            ("format", Some(format)) => {
                self.format = PrintFormat::from_str(format, true).map_err(CliError::failed)?;
            }
            _ => {
                return Err(
                    CliError::failed(format!("there is no command {line}")).hint("\\? lists them")
                );
            }
        }
        Ok(Next::Read)
    }

    /// Runs statements until they end, or the user cancels them or ends the process.
    fn run(&mut self, sql: String) -> Result<()> {
        let end = self.end.clone();
        self.run_until(sql, async move {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => (),
                () = end.wait() => (),
            }
        })
    }

    fn run_until(&mut self, sql: String, stop: impl Future<Output = ()>) -> Result<()> {
        let statements = statements(self.context.clone(), sql, self.format);
        let mut running = self.workers.spawn(statements);
        let done = self.signals.block_on(async {
            tokio::select! {
                done = &mut running => Some(done),
                () = stop => None,
            }
        });
        match done {
            Some(done) => done.unwrap_or_else(|error| Err(CliError::internal(&error))),
            None => {
                self.cancel.cancel();
                running.abort();
                std::thread::sleep(CLEANUP_TIME);
                let stopped = std::mem::replace(&mut self.workers, workers()?);
                stopped.shutdown_timeout(END_TIME);
                Err(CliError::Interrupted)
            }
        }
    }
}

/// Runs statements; prints the number of rows and the time of each.
async fn statements(context: SessionContext, sql: String, format: PrintFormat) -> Result<()> {
    for statement in parse(&context, &sql)? {
        let started = Instant::now();
        let is_query = matches!(&statement,
            Statement::Statement(inner) if matches!(**inner, ast::Statement::Query(_)));
        let limit = if is_query { MAX_ROWS } else { usize::MAX };
        let rows = Arc::new(AtomicUsize::new(0));
        print_result(
            first_rows(answer(&context, statement).await?, limit, &rows),
            format,
        )
        .await?;
        let rows = rows.load(Ordering::Relaxed);
        let shown = match rows > limit {
            true => format!(", of which {limit} are shown"),
            false => String::new(),
        };
        println!(
            "{rows} rows{shown}, {:.3} s",
            started.elapsed().as_secs_f64()
        );
    }
    Ok(())
}

/// The first `limit` rows of an answer; counts all of them in `rows`.
fn first_rows(answer: Answer, limit: usize, rows: &Arc<AtomicUsize>) -> Answer {
    let rows = Arc::clone(rows);
    let batches = answer.batches.map(move |batch| {
        let batch = batch?;
        let before = rows.fetch_add(batch.num_rows(), Ordering::Relaxed);
        Ok(batch.slice(0, batch.num_rows().min(limit.saturating_sub(before))))
    });
    Answer {
        batches: batches.boxed(),
        ..answer
    }
}

fn ended(error: ReadlineError) -> CliError {
    CliError::failed(format!("the shell ended: {error}"))
}

/// The file with the statements of earlier shells: in the directory for the state of programs, which `XDG_STATE_HOME`
/// names, or that of the user's home directory.
fn history(state_home: Option<OsString>, home: Option<PathBuf>) -> Option<PathBuf> {
    let state_home = state_home.map(PathBuf::from);
    let state_home = state_home.filter(|state| state.is_absolute());
    let of_user = || Some(home?.join(".local/state")).filter(|state| state.is_absolute());
    Some(state_home.or_else(of_user)?.join(HISTORY))
}

/// Appends the statements that are not in the file yet.
fn keep(editor: &mut Editor<Input, DefaultHistory>, history: &Path) -> rustyline::Result<()> {
    if let Some(directory) = history.parent() {
        std::fs::create_dir_all(directory)?;
    }
    editor.append_history(history)
}

/// The line editor's rules for SQL: statements end with a semicolon, and quotes may hold paths.
struct Input {
    files: FilenameCompleter,
    /// Provides the dialect of the statements.
    context: SessionContext,
}

/// Returns true if the input is complete: no statement, or a semicolon after the last one.
fn is_complete(dialect: &dyn Dialect, input: &str) -> bool {
    // It fails within quotes and comments.
    Tokenizer::new(dialect, input)
        .tokenize()
        .is_ok_and(|tokens| {
            let is_blank = |token: &&Token| matches!(token, Token::Whitespace(_) | Token::EOF);
            let mut words = tokens.iter().rev().skip_while(is_blank);
            words.next().is_none_or(|last| *last == Token::SemiColon)
        })
}

impl Validator for Input {
    fn validate(&self, context: &mut ValidationContext) -> rustyline::Result<ValidationResult> {
        let input = context.input().trim();
        // Parsing reports an unknown dialect.
        let is_whole = || dialect(&self.context).map_or(true, |of| is_complete(of.as_ref(), input));
        Ok(match input.starts_with('\\') || is_whole() {
            true => ValidationResult::Valid(None),
            false => ValidationResult::Incomplete,
        })
    }
}

impl Completer for Input {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        position: usize,
        context: &rustyline::Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let before = line.get(..position).unwrap_or_default();
        match before.matches('\'').count() % 2 {
            1 => self.files.complete(line, position, context),
            _ => Ok((position, Vec::new())),
        }
    }
}

impl Hinter for Input {
    type Hint = String;
}

impl Highlighter for Input {}

impl Helper for Input {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a query that takes minutes; cancellation must end it soon.
    fn ends_soon(sql: &str) {
        let mut shell = Shell::new(PrintFormat::Csv, &[], &TextArgs::default()).unwrap();
        let set = "SET datafusion.execution.target_partitions = 2".to_string();
        shell.run_until(set, std::future::pending()).unwrap();
        let started = Instant::now();
        let stop = async { tokio::time::sleep(Duration::from_secs(2)).await };
        let ended = shell.run_until(sql.to_string(), stop);
        assert!(matches!(ended, Err(CliError::Interrupted)), "{ended:?}");
        assert!(started.elapsed() < Duration::from_secs(4), "{sql}");
        // Abandoned threads would still hold memory of the query.
        let reserved = shell.context.runtime_env().memory_pool.reserved();
        assert_eq!(reserved, 0, "{sql}");
        shell
            .run_until("SELECT 1".to_string(), std::future::pending())
            .unwrap();
    }

    #[test]
    fn cancellation_ends_joins() {
        let numbers = "SELECT value AS v, 1 AS k FROM range(60000)";
        // many rows for an aggregate; none at all; none, in nested loops
        for on in [
            "a.k = b.k",
            "a.k = b.k AND a.v * b.v = -1",
            "a.v * b.v = -1",
        ] {
            ends_soon(&format!(
                "SELECT count(*), max(a.v + b.v) FROM ({numbers}) a JOIN ({numbers}) b ON {on}"
            ));
        }
    }

    #[test]
    fn queries_run_after_others_were_cancelled() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("t.vectile").display().to_string();
        let mut shell = Shell::new(PrintFormat::Csv, &[], &TextArgs::default()).unwrap();
        let join = "SELECT * FROM t a JOIN t b ON a.k = b.k AND a.v + b.v > 3";
        for sql in [
            &format!("COPY (SELECT 1 AS k, 2 AS v) TO '{file}'"),
            &format!("CREATE EXTERNAL TABLE t STORED AS VECTILE LOCATION '{file}'"),
            join,
            join,
            join,
        ] {
            shell
                .run_until(sql.to_string(), std::future::pending())
                .unwrap();
            shell.cancel.cancel();
        }
    }

    #[test]
    fn statements_end_where_a_semicolon_is_one() {
        let shell = Shell::new(PrintFormat::Csv, &[], &TextArgs::default()).unwrap();
        let dialect = dialect(&shell.context).unwrap();
        for (input, expected) in [
            ("SELECT 1;", true),
            ("SELECT 1", false),
            ("SELECT 1; -- done", true),
            ("SELECT 1; /* done */ ", true),
            ("SELECT 1;\nSELECT 2", false),
            ("SELECT ';", false),
            ("SELECT 'a;\nb;", false),
            ("SELECT 'a;\nb';", true),
            ("SELECT 'it''s;", false),
            ("SELECT \"a;", false),
            ("SELECT 1 -- not yet;", false),
            ("SELECT 1 /* not yet;", false),
            ("SELECT $$a;", false),
            ("SELECT $$a;$$;", true),
            ("-- nothing", true),
            ("", true),
        ] {
            assert_eq!(is_complete(dialect.as_ref(), input), expected, "{input}");
        }
    }

    #[test]
    fn lines_without_a_statement_do_nothing() {
        let mut shell = Shell::new(PrintFormat::Csv, &[], &TextArgs::default()).unwrap();
        for line in ["", "-- nothing"] {
            assert!(matches!(shell.line(line), Ok(Next::Read)), "{line}");
        }
    }

    #[test]
    fn the_history_is_with_the_state_of_programs() {
        let home = || Some(PathBuf::from("/home/me"));
        let in_home = Some(PathBuf::from("/home/me/.local/state/vectile/history"));
        assert_eq!(history(None, home()), in_home);
        assert_eq!(history(Some("relative".into()), home()), in_home);
        let own = Some(PathBuf::from("/state/vectile/history"));
        assert_eq!(history(Some("/state".into()), home()), own);
        assert_eq!(history(None, None), None);
        assert_eq!(history(None, Some(PathBuf::new())), None);
    }

    #[test]
    fn rows_beyond_the_first_are_counted() {
        let mut shell = Shell::new(PrintFormat::Csv, &[], &TextArgs::default()).unwrap();
        let sql = "SELECT value FROM range(100000)".to_string();
        shell.run_until(sql, std::future::pending()).unwrap();
        assert!(shell.line("\\nothing").is_err());
        assert!(matches!(shell.line("\\q"), Ok(Next::Leave)));
    }
}
