//! A progress bar on a terminal; no output elsewhere.

use std::sync::Once;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Rows done, and their total if it is known. Drawn on stderr, and only if it is a terminal.
pub struct Progress {
    bar: ProgressBar,
    /// Set once the bar is drawn.
    drawn: Once,
}

impl Progress {
    /// A bar for one table, or a spinner if the number of rows is unknown.
    pub fn rows(name: &str, total: Option<u64>) -> Self {
        let progress = Progress::later(name, total);
        progress.draw();
        progress
    }

    /// As [`rows`](Self::rows), drawn with the first rows.
    pub fn later(name: &str, total: Option<u64>) -> Self {
        let target = ProgressDrawTarget::hidden();
        let bar = ProgressBar::with_draw_target(total, target);
        let template = match total {
            Some(_) => "{msg} {bar:30} {human_pos}/{human_len} rows, {per_sec}, {eta} left",
            None => "{msg} {spinner} {human_pos} rows, {per_sec}",
        };
        // The templates are constants; if one were wrong, the default style would do.
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(name.to_string());
        let drawn = Once::new();
        Progress { bar, drawn }
    }

    /// A bar that is not drawn.
    pub fn hidden() -> Self {
        let progress = Progress::later("", None);
        progress.drawn.call_once(|| ());
        progress
    }

    fn draw(&self) {
        self.drawn.call_once(|| {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
            self.bar.enable_steady_tick(Duration::from_millis(200));
        });
    }

    /// Counts rows.
    pub fn advance(&self, rows: usize) {
        self.draw();
        self.bar.inc(rows as u64);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
