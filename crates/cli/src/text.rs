//! Plain text for people: tables, sizes, rates.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, Write};
use std::time::Duration;

/// A table of text with a header line; numbers are aligned to the right.
#[derive(Debug, Default)]
pub struct TextTable {
    headers: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

/// The alignment of a cell in its column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

impl TextTable {
    /// A table with these columns.
    pub fn new(headers: &[(&str, Align)]) -> Self {
        let headers = headers
            .iter()
            .map(|(name, align)| (name.to_string(), *align));
        TextTable {
            headers: headers.collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<String>) {
        let on_one_line = |cell: &String| printable(cell).replace('\n', "\\n");
        self.rows.push(cells.iter().map(on_one_line).collect());
    }

    /// Writes the table, two spaces between columns.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let widths = self.widths();
        let titles: Vec<String> = self.headers.iter().map(|(name, _)| name.clone()).collect();
        let rules: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
        for cells in [&titles, &rules].into_iter().chain(&self.rows) {
            writeln!(out, "{}", self.line(cells, &widths).trim_end())?;
        }
        Ok(())
    }

    fn widths(&self) -> Vec<usize> {
        let width = |index: usize, title: &str| {
            let cells = self.rows.iter().filter_map(|row| row.get(index));
            let longest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
            longest.max(title.chars().count())
        };
        let titles = self.headers.iter().enumerate();
        titles
            .map(|(index, (title, _))| width(index, title))
            .collect()
    }

    fn line(&self, cells: &[String], widths: &[usize]) -> String {
        let mut line = String::new();
        for ((cell, (_, align)), width) in cells.iter().zip(&self.headers).zip(widths) {
            line.push_str(&format!("{}  ", Padded(cell, *width, *align)));
        }
        line
    }
}

/// Text padded with spaces to a width. `format!` pads only up to 65,535 characters.
pub struct Padded<'a>(pub &'a str, pub usize, pub Align);

impl fmt::Display for Padded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Padded(text, width, align) = self;
        let spaces = " ".repeat(width.saturating_sub(text.chars().count()));
        match align {
            Align::Left => write!(f, "{text}{spaces}"),
            Align::Right => write!(f, "{spaces}{text}"),
        }
    }
}

/// Text from elsewhere, safe for a terminal: control characters, which could move the cursor or
/// worse, are escaped. Line ends stay.
pub fn printable(text: &str) -> Cow<'_, str> {
    let acts = |c: char| c.is_control() && c != '\n';
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match acts(c) {
            true => escaped.extend(c.escape_default()),
            false => escaped.push(c),
        }
    }
    Cow::Owned(escaped)
}

/// Bytes with a decimal unit: `12.3 MB`.
pub fn bytes(count: u64) -> String {
    if count < 1000 {
        return format!("{count} B");
    }
    let (value, unit) = scaled(count as f64);
    format!("{value:.1} {unit}")
}

/// Bytes a second, with three digits: `4.44 TB/s`.
pub fn bandwidth(bytes_per_s: f64) -> String {
    let (value, unit) = scaled(bytes_per_s);
    let decimals = match value {
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {unit}/s")
}

/// Bytes in the unit that leaves less than a thousand.
fn scaled(bytes: f64) -> (f64, &'static str) {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    let mut value = bytes / 1000.0;
    let mut unit = UNITS[0];
    for next in &UNITS[1..] {
        if value < 999.95 {
            break;
        }
        value /= 1000.0;
        unit = next;
    }
    (value, unit)
}

/// A count with a comma between thousands: `336,776`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// How many times smaller: `4.2x`; a dash where there was nothing.
pub fn ratio(before: u64, after: u64) -> String {
    match after {
        0 => "-".to_string(),
        after => format!("{:.1}x", before as f64 / after as f64),
    }
}

/// Bytes per second.
pub fn rate(count: u64, elapsed: Duration) -> String {
    let seconds = elapsed.as_secs_f64().max(1e-9);
    bandwidth(count as f64 / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(1_000), "1.0 kB");
        assert_eq!(bytes(999_960), "1.0 MB");
        assert_eq!(bytes(234_200_000), "234.2 MB");
        assert_eq!(bandwidth(4.438e12), "4.44 TB/s");
        assert_eq!(bandwidth(9.996e9), "10.0 GB/s");
        assert_eq!(bandwidth(55.44e9), "55.4 GB/s");
        assert_eq!(bandwidth(999.96e9), "1.00 TB/s");
        assert_eq!(count(7), "7");
        assert_eq!(count(336_776), "336,776");
        assert_eq!(count(1_000_000), "1,000,000");
        assert_eq!(ratio(100, 40), "2.5x");
        assert_eq!(ratio(0, 0), "-");
        assert_eq!(rate(1_000_000, Duration::from_millis(500)), "2.00 MB/s");
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(printable("plain ü\nline"), "plain ü\nline");
        assert_eq!(
            printable("\u{1b}[31mred\t\r\u{9b}"),
            "\\u{1b}[31mred\\t\\r\\u{9b}"
        );
    }

    #[test]
    fn widths_have_no_limit() {
        let padded = Padded("x", 70_000, Align::Right).to_string();
        assert!(padded.len() == 70_000 && padded.ends_with(" x"));
    }

    #[test]
    fn columns_line_up() {
        let mut table = TextTable::new(&[("name", Align::Left), ("bytes", Align::Right)]);
        table.row(vec!["dep_delay".into(), "7".into()]);
        table.row(vec!["ü".into(), "1234567".into()]);
        let mut out = Vec::new();
        table.write(&mut out).unwrap();
        let expected =
            "name         bytes\n---------  -------\ndep_delay        7\nü          1234567\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
