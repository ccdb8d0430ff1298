//! Medians with spread, and aligned tables.

use std::time::Duration;

/// Repeated measurements of one thing.
#[derive(Clone, Debug, Default)]
pub struct Times(Vec<Duration>);

impl Times {
    pub fn push(&mut self, time: Duration) {
        self.0.push(time);
        self.0.sort_unstable();
    }

    /// Seconds.
    pub fn median(&self) -> f64 {
        self.0
            .get(self.0.len() / 2)
            .map_or(f64::NAN, Duration::as_secs_f64)
    }

    /// The median and the extremes, in milliseconds.
    pub fn show(&self) -> String {
        let ms = |i: usize| self.0.get(i).map_or(f64::NAN, |t| t.as_secs_f64() * 1e3);
        let last = self.0.len().saturating_sub(1);
        format!("{:.1} ({:.1}-{:.1})", ms(self.0.len() / 2), ms(0), ms(last))
    }
}

/// The geometric mean.
pub fn geometric_mean(values: &[f64]) -> f64 {
    (values.iter().map(|v| v.ln()).sum::<f64>() / values.len() as f64).exp()
}

/// Prints a Markdown table; numbers align right.
pub fn print_table(header: &[&str], rows: &[Vec<String>]) {
    let widths: Vec<usize> = (0..header.len())
        .map(|i| {
            rows.iter()
                .map(|row| row[i].chars().count())
                .chain([header[i].len()])
                .max()
                .unwrap_or(0)
        })
        .collect();
    let line = |cells: Vec<&str>| {
        let cells: Vec<String> = cells
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(i, (cell, width))| {
                if i == 0 {
                    format!("{cell:<width$}")
                } else {
                    format!("{cell:>width$}")
                }
            })
            .collect();
        println!("| {} |", cells.join(" | "));
    };
    line(header.to_vec());
    println!(
        "|{}|",
        widths
            .iter()
            .map(|w| "-".repeat(w + 2))
            .collect::<Vec<_>>()
            .join("|")
    );
    for row in rows {
        line(row.iter().map(String::as_str).collect());
    }
}
