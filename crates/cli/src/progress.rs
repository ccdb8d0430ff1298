//! A progress bar on a terminal; silence anywhere else.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Rows done, out of how many where that is known. Drawn on stderr, and only if it is a terminal.
pub struct Progress(ProgressBar);

impl Progress {
    /// A bar for one table, or a spinner if the number of rows is not known in advance.
    pub fn rows(name: &str, total: Option<u64>) -> Self {
        let (bar, template) = match total {
            Some(total) => (
                ProgressBar::new(total),
                "{msg} {bar:30} {human_pos}/{human_len} rows, {per_sec}, {eta} left",
            ),
            None => (
                ProgressBar::new_spinner(),
                "{msg} {spinner} {human_pos} rows, {per_sec}",
            ),
        };
        // The templates are constants; were one wrong, the default style would do.
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(name.to_string());
        bar.enable_steady_tick(Duration::from_millis(200));
        Progress(bar)
    }

    /// Counts rows.
    pub fn advance(&self, rows: usize) {
        self.0.inc(rows as u64);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
