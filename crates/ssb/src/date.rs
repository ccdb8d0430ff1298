//! `date`: one row per day of the benchmark's seven years.

use std::sync::LazyLock;

use arrow::array::ArrayRef;
use arrow::datatypes::DataType::{self, Int32, Utf8View};
use tpchgen::dates::{MIN_GENERATE_DATE, TOTAL_DATE_RANGE, TPCHDate};

use crate::columns::{Rows, ints, text};

/// The columns of `date`.
pub(crate) const DATE: &[(&str, DataType)] = &[
    ("d_datekey", Int32),
    ("d_date", Utf8View),
    ("d_dayofweek", Utf8View),
    ("d_month", Utf8View),
    ("d_year", Int32),
    ("d_yearmonthnum", Int32),
    ("d_yearmonth", Utf8View),
    ("d_daynuminweek", Int32),
    ("d_daynuminmonth", Int32),
    ("d_daynuminyear", Int32),
    ("d_monthnuminyear", Int32),
    ("d_weeknuminyear", Int32),
    ("d_sellingseason", Utf8View),
    ("d_lastdayinweekfl", Utf8View),
    ("d_lastdayinmonthfl", Utf8View),
    ("d_holidayfl", Utf8View),
    ("d_weekdayfl", Utf8View),
];

/// Days from 1992-01-01 to 1998-12-31. The paper says 2556, forgetting one leap year.
pub(crate) const DAYS: u64 = TOTAL_DATE_RANGE as u64;

const WEEKDAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// Month and day.
const HOLIDAYS: [(i64, i64); 10] = [
    (12, 24),
    (1, 1),
    (2, 20),
    (4, 20),
    (5, 20),
    (7, 20),
    (8, 20),
    (9, 20),
    (10, 20),
    (11, 20),
];

/// `yyyymmdd` of every day.
pub(crate) static DATE_KEYS: LazyLock<Vec<i64>> =
    LazyLock::new(|| (0..DAYS).map(|index| Day::new(index).key()).collect());

/// Generates days.
pub(crate) struct Dates {
    row: u64,
}

impl Dates {
    /// Days from `row` on.
    pub(crate) fn new(row: u64) -> Self {
        Self { row }
    }
}

impl Rows for Dates {
    fn next(&mut self, rows: usize) -> Vec<ArrayRef> {
        let days = self.row..self.row + rows as u64;
        self.row = days.end;
        let days: Vec<Day> = days.map(Day::new).collect();
        let numbers = |of: fn(&Day) -> i64| ints(days.iter().map(of));
        let flags = |of: fn(&Day) -> bool| text(days.iter().map(|day| flag(of(day))));
        vec![
            numbers(Day::key),
            text(
                days.iter()
                    .map(|d| format!("{} {}, {}", d.month_name(), d.day, d.year)),
            ),
            text(days.iter().map(|d| WEEKDAYS[d.in_week as usize - 1])),
            text(days.iter().map(Day::month_name)),
            numbers(|d| d.year),
            numbers(|d| d.year * 100 + d.month),
            text(
                days.iter()
                    .map(|d| format!("{:.3}{}", d.month_name(), d.year)),
            ),
            numbers(|d| d.in_week),
            numbers(|d| d.day),
            numbers(|d| d.in_year),
            numbers(|d| d.month),
            numbers(|d| d.in_year / 7 + 1),
            text(days.iter().map(Day::season)),
            flags(|d| d.in_week == 7),
            flags(|d| d.ends_month),
            flags(|d| HOLIDAYS.contains(&(d.month, d.day))),
            flags(|d| !matches!(d.in_week, 1 | 7)),
        ]
    }
}

struct Day {
    year: i64,
    /// 1 to 12.
    month: i64,
    /// Day of the month, from 1.
    day: i64,
    /// Day of the year, from 1.
    in_year: i64,
    /// Day of the week, from 1, which is Sunday. The reference generator is a day late, and so are we: 1992-01-01 was a
    /// Wednesday and is a Thursday here.
    in_week: i64,
    ends_month: bool,
}

impl Day {
    fn new(index: u64) -> Self {
        let (year, month, day) = ymd(index);
        let before: i64 = (1..month).map(|month| days_in(year, month)).sum();
        Self {
            year,
            month,
            day,
            in_year: before + day,
            in_week: (index as i64 + 4) % 7 + 1,
            ends_month: day == days_in(year, month),
        }
    }

    fn key(&self) -> i64 {
        (self.year * 100 + self.month) * 100 + self.day
    }

    fn month_name(&self) -> &'static str {
        MONTHS[self.month as usize - 1]
    }

    fn season(&self) -> &'static str {
        match self.month {
            1..=3 => "Winter",
            4 => "Spring",
            5..=8 => "Summer",
            9..=10 => "Fall",
            _ => "Christmas",
        }
    }
}

fn ymd(index: u64) -> (i64, i64, i64) {
    let (year, month, day) = TPCHDate::new(MIN_GENERATE_DATE + index as i32).to_ymd();
    (1900 + i64::from(year), month.into(), day.into())
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn flag(set: bool) -> &'static str {
    if set { "1" } else { "0" }
}
