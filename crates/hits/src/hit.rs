//! A row before it has columns: its moment, visit, visitor, site and page.

use crate::draws::{Key, Salt};

/// Kinds of keys.
const ROW: u64 = 1;
const VISIT: u64 = 2;
const VISITOR: u64 = 3;
const SITE: u64 = 4;
const PAGE: u64 = 5;
const PHRASE: u64 = 6;

/// Salts of draws that several columns share; those of columns are smaller.
pub(crate) mod salts {
    use super::Salt;

    pub(crate) const STARTS: Salt = 1_000;
    pub(crate) const VISITOR: Salt = 1_001;
    pub(crate) const RETURNS: Salt = 1_002;
    pub(crate) const SITE: Salt = 1_003;
    pub(crate) const PAGE: Salt = 1_004;
    pub(crate) const SOURCE: Salt = 1_005;
    pub(crate) const PHRASE: Salt = 1_006;
    pub(crate) const ENGINE: Salt = 1_007;
    pub(crate) const OTHER_SITE: Salt = 1_008;
    pub(crate) const OTHER_PAGE: Salt = 1_009;
    pub(crate) const COUNTRY: Salt = 1_010;
    pub(crate) const DEVICE: Salt = 1_011;
    pub(crate) const MODEL: Salt = 1_012;
    pub(crate) const SCREEN: Salt = 1_013;
    pub(crate) const BROWSER: Salt = 1_014;
    pub(crate) const ROBOT: Salt = 1_015;
    pub(crate) const MEASURED: Salt = 1_016;
    pub(crate) const EVENT: Salt = 1_017;
    pub(crate) const CAMPAIGN: Salt = 1_018;
    pub(crate) const PRODUCT: Salt = 1_019;
    pub(crate) const EXPERIMENT: Salt = 1_020;
    pub(crate) const WORDS: Salt = 1_100;
    pub(crate) const LENGTH: Salt = 1_200;
}

/// The first second, 2025-03-01 00:00 UTC, as Unix time.
const FIRST_SECOND: i64 = 1_740_787_200;

/// Days that the rows are spread over.
const DAYS: u64 = 60;

/// A day's rhythm: seconds since midnight by which this many of a thousand hits of a day have happened.
const RHYTHM: [(u64, u64); 6] = [
    (0, 0),
    (60, 6 * 3_600),
    (220, 9 * 3_600),
    (500, 15 * 3_600),
    (900, 22 * 3_600),
    (1_000, 24 * 3_600),
];

/// Visits do not extend over multiples of so many rows, so that the start of one is found nearby.
const VISIT_BLOCK: u64 = 16;

/// Rows of a thousand that start a visit within a block.
const STARTING: u64 = 250;

/// The numbers of what rows belong to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// Rows of the table.
    pub(crate) rows: u64,
    pub(crate) visitors: u64,
    pub(crate) sites: u64,
    pub(crate) phrases: u64,
}

/// Pages of a site.
const PAGES: u64 = 4_096;

impl Size {
    /// The size of a table with so many rows.
    pub(crate) fn new(rows: u64) -> Self {
        Self {
            rows,
            visitors: rows / 6 + 50,
            sites: (rows / 500 + 20).min(5_000),
            phrases: rows / 20 + 100,
        }
    }
}

/// How a visitor came to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// From another page of the site.
    Inside,
    /// By address or bookmark.
    Direct,
    /// From a search engine, with what was searched for.
    Search {
        /// The engine's number.
        engine: u64,
        /// The number of the phrase.
        phrase: u64,
    },
    /// From a page of another site.
    Link,
    /// From an advertisement.
    Advertisement,
}

/// A page: the number of its site and its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) site: u64,
    pub(crate) number: u64,
}

impl Page {
    /// The key that attributes of the page depend on.
    pub(crate) fn key(self) -> Key {
        Key::new(PAGE, self.site * PAGES + self.number)
    }

    /// The key that attributes of its site depend on.
    pub(crate) fn site_key(self) -> Key {
        Key::new(SITE, self.site)
    }
}

/// A row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hit {
    /// Draws for the row alone.
    pub(crate) row: Key,
    /// Draws that rows of a visit share.
    pub(crate) visit: Key,
    /// Draws that rows of a visitor share.
    pub(crate) visitor: Key,
    /// Where it happened.
    pub(crate) page: Page,
    /// The page before, of the same site or another one; none for direct visits and those from search engines.
    pub(crate) previous: Option<Page>,
    /// How the visitor came to the page.
    pub(crate) source: Source,
    /// Its number in the visit, from 1.
    pub(crate) number: u64,
    /// True for the last one of a visit.
    pub(crate) is_last: bool,
    /// Unix time.
    pub(crate) second: i64,
}

impl Hit {
    /// The row of this number, from 0.
    pub(crate) fn new(size: &Size, row: u64) -> Self {
        let first = first_of_visit(row);
        let visit = Key::new(VISIT, first);
        let returns = visit.chance(salts::RETURNS, 400);
        let visitor = match returns {
            true => visit.skewed(salts::VISITOR, size.visitors),
            false => visit.below(salts::VISITOR, size.visitors),
        };
        let site = visit.skewed(salts::SITE, size.sites);
        let source = source(size, visit, row > first);
        let previous = match source {
            Source::Inside => Some(page(site, row - 1)),
            Source::Link | Source::Advertisement => Some(Page {
                site: visit.skewed(salts::OTHER_SITE, size.sites),
                number: visit.skewed(salts::OTHER_PAGE, PAGES),
            }),
            Source::Direct | Source::Search { .. } => None,
        };
        Self {
            row: Key::new(ROW, row),
            visit,
            visitor: Key::new(VISITOR, visitor),
            page: page(site, row),
            previous,
            source,
            number: row - first + 1,
            is_last: starts_visit(row + 1),
            second: FIRST_SECOND + second(size, row) as i64,
        }
    }

    /// The day, in days of Unix time.
    pub(crate) fn day(&self) -> i64 {
        self.second.div_euclid(86_400)
    }
}

/// The key that the text of a search phrase depends on.
pub(crate) fn phrase_key(phrase: u64) -> Key {
    Key::new(PHRASE, phrase)
}

fn page(site: u64, row: u64) -> Page {
    let number = Key::new(ROW, row).skewed(salts::PAGE, PAGES);
    Page { site, number }
}

fn source(size: &Size, visit: Key, is_inside: bool) -> Source {
    if is_inside {
        return Source::Inside;
    }
    match visit.below(salts::SOURCE, 100) {
        0..35 => Source::Direct,
        35..70 => Source::Search {
            engine: visit.skewed(salts::ENGINE, 6),
            phrase: visit.skewed(salts::PHRASE, size.phrases),
        },
        70..92 => Source::Link,
        _ => Source::Advertisement,
    }
}

fn starts_visit(row: u64) -> bool {
    row.is_multiple_of(VISIT_BLOCK) || Key::new(ROW, row).chance(salts::STARTS, STARTING)
}

fn first_of_visit(row: u64) -> u64 {
    let mut first = row;
    while !starts_visit(first) {
        first -= 1; // 0 starts a visit
    }
    first
}

/// Seconds since the first one. They never fall from one row to the next.
fn second(size: &Size, row: u64) -> u64 {
    let thousandths = u128::from(row) * u128::from(DAYS * 1_000_000);
    let thousandths = (thousandths / u128::from(size.rows.max(1))) as u64;
    let (day, of_day) = (thousandths / 1_000_000, thousandths % 1_000_000);
    let next = RHYTHM.partition_point(|(hits, _)| hits * 1_000 <= of_day);
    let next = next.clamp(1, RHYTHM.len() - 1);
    let ((low, from), (high, to)) = (RHYTHM[next - 1], RHYTHM[next]);
    day * 86_400 + from + (of_day - low * 1_000) * (to - from) / ((high - low) * 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_never_goes_back_and_stays_within_the_days() {
        let size = Size::new(100_000);
        let seconds: Vec<u64> = (0..size.rows).map(|row| second(&size, row)).collect();
        assert!(seconds.is_sorted());
        assert_eq!(seconds[0], 0);
        let last = seconds[seconds.len() - 1];
        assert_eq!(last / 86_400, DAYS - 1);
    }

    #[test]
    fn rows_of_a_visit_share_its_visitor_and_site() {
        let size = Size::new(10_000);
        let hits: Vec<Hit> = (0..size.rows).map(|row| Hit::new(&size, row)).collect();
        let mut visits = 0;
        for two in hits.windows(2) {
            assert_eq!(two[0].is_last, two[1].number == 1);
            visits += u32::from(two[0].is_last);
            if !two[0].is_last {
                assert_eq!(two[1].number, two[0].number + 1);
                assert_eq!(two[1].page.site, two[0].page.site);
                assert_eq!(two[1].previous, Some(two[0].page));
                assert_eq!(two[1].visitor.number(0), two[0].visitor.number(0));
            }
        }
        assert!((2_500..3_500).contains(&visits), "{visits}");
    }
}
