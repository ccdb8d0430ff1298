//! Timestamps, which have two streams: seconds since 2015 in the writer's timezone, and nanoseconds.
//!
//! ```text
//! nanoseconds   n << 3 | z: n if z is 0, else n * 10^(z + 1)
//! ```
//!
//! A writer in Java names its timezone as Java does: a name of the time zone database, an offset such as `GMT+08:00`, or
//! one of Java's own three letters.
//!
//! Before 1970, writers in Java count nanoseconds from the second before, and those in C++ back from the second after.

use arrow::array::timezone::Tz;
use chrono::{DateTime, NaiveDate, TimeZone};

use crate::error::{Fault, corrupt};

/// The first second of 2015 in UTC.
const EPOCH_2015: i64 = 1_420_070_400;

/// Writers before Unix's epoch round seconds toward it if there are at least this many nanoseconds.
const ROUNDED_NANOSECONDS: i64 = 999_999;

const NANOSECONDS: i64 = 1_000_000_000;

/// Java's three-letter names that the time zone database lacks.
const JAVA_TIMEZONES: [(&str, &str); 25] = [
    ("ACT", "Australia/Darwin"),
    ("AET", "Australia/Sydney"),
    ("AGT", "America/Argentina/Buenos_Aires"),
    ("ART", "Africa/Cairo"),
    ("AST", "America/Anchorage"),
    ("BET", "America/Sao_Paulo"),
    ("BST", "Asia/Dhaka"),
    ("CAT", "Africa/Harare"),
    ("CNT", "America/St_Johns"),
    ("CST", "America/Chicago"),
    ("CTT", "Asia/Shanghai"),
    ("EAT", "Africa/Addis_Ababa"),
    ("ECT", "Europe/Paris"),
    ("IET", "America/Indiana/Indianapolis"),
    ("IST", "Asia/Kolkata"),
    ("JST", "Asia/Tokyo"),
    ("MIT", "Pacific/Apia"),
    ("NET", "Asia/Yerevan"),
    ("NST", "Pacific/Auckland"),
    ("PLT", "Asia/Karachi"),
    ("PNT", "America/Phoenix"),
    ("PRT", "America/Puerto_Rico"),
    ("PST", "America/Los_Angeles"),
    ("SST", "Pacific/Guadalcanal"),
    ("VST", "Asia/Ho_Chi_Minh"),
];

/// The timezone with this name in Java.
fn timezone_of(name: &str) -> Option<Tz> {
    let of_java = || {
        let mut names = JAVA_TIMEZONES.iter();
        let (_, full) = names.find(|(short, _)| *short == name)?;
        full.parse().ok()
    };
    let of_offset = || {
        let mut prefixes = ["GMT", "UTC", "UT"].iter();
        let offset = prefixes.find_map(|prefix| name.strip_prefix(prefix))?;
        offset
            .starts_with(['+', '-'])
            .then(|| offset.parse().ok())?
    };
    (name.parse().ok()).or_else(of_java).or_else(of_offset)
}

/// The instant that seconds of a stripe are relative to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Base {
    epoch: i64,
    /// The writer's timezone, unless it is UTC.
    timezone: Option<Tz>,
}

impl Base {
    /// The base of instants.
    pub(crate) const UTC: Self = Self {
        epoch: EPOCH_2015,
        timezone: None,
    };

    /// The base of timestamps in the local time of a writer in `timezone`.
    pub(crate) fn of_timezone(timezone: Option<&str>) -> Result<Self, Fault> {
        let Some(name) = timezone.filter(|name| !["", "UTC", "GMT", "Etc/UTC"].contains(name))
        else {
            return Ok(Self::UTC);
        };
        let unknown = || Fault::Unsupported(format!("the timezone '{name}' is not known"));
        let timezone = timezone_of(name).ok_or_else(unknown)?;
        let midnight = NaiveDate::from_ymd_opt(2015, 1, 1).and_then(|day| day.and_hms_opt(0, 0, 0));
        let epoch =
            midnight.and_then(|midnight| timezone.from_local_datetime(&midnight).earliest());
        Ok(Self {
            epoch: epoch.ok_or_else(unknown)?.timestamp(),
            timezone: Some(timezone),
        })
    }

    /// The base in seconds since 1970, if it has no timezone.
    pub(crate) fn epoch_of_utc(self) -> Option<i64> {
        self.timezone.is_none().then_some(self.epoch)
    }

    /// Nanoseconds since 1970 from the two values of a timestamp.
    pub(crate) fn nanoseconds(self, seconds: i64, packed: i64) -> Result<i64, Fault> {
        let fraction = fraction(packed)?;
        let value = seconds.checked_add(self.epoch).and_then(|seconds| {
            let rounded = seconds < 0 && fraction > ROUNDED_NANOSECONDS;
            let seconds = i128::from(seconds) - i128::from(rounded);
            let nanoseconds = seconds * i128::from(NANOSECONDS) + i128::from(fraction);
            self.local(i64::try_from(nanoseconds).ok()?)
        });
        value.ok_or_else(|| {
            let reason = format!(
                "a timestamp {seconds} s from 2015, which 64 bits of nanoseconds do not have"
            );
            Fault::Unsupported(reason)
        })
    }

    /// The local time in the writer's timezone.
    fn local(self, nanoseconds: i64) -> Option<i64> {
        match self.timezone {
            None => Some(nanoseconds),
            Some(timezone) => {
                let instant = DateTime::from_timestamp_nanos(nanoseconds);
                let local = instant.with_timezone(&timezone).naive_local();
                local.and_utc().timestamp_nanos_opt()
            }
        }
    }
}

/// Unpacks the nanoseconds of a second.
fn fraction(packed: i64) -> Result<i64, Fault> {
    let (digits, zeros) = (packed >> 3, (packed & 7) as u32);
    let scale = match zeros {
        0 => 1,
        _ => 10i64.pow(zeros + 1),
    };
    match digits.checked_mul(scale) {
        Some(fraction) if fraction.abs() < NANOSECONDS => Ok(fraction),
        _ => corrupt(format!("{digits} times {scale} nanoseconds of a second")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_cut() {
        assert_eq!(fraction(0), Ok(0));
        assert_eq!(fraction(123 << 3), Ok(123));
        assert_eq!(fraction(5 << 3 | 7), Ok(500_000_000));
        assert_eq!(fraction(1 << 3 | 1), Ok(100));
        assert_eq!(fraction(-522 << 3 | 5), Ok(-522_000_000));
        for packed in [10 << 3 | 7, -10 << 3 | 7, i64::MIN, i64::MAX] {
            assert!(fraction(packed).is_err());
        }
    }

    #[test]
    fn seconds_before_1970_are_rounded() {
        let of = |seconds: i64, nanoseconds: i64| {
            Base::UTC.nanoseconds(seconds - EPOCH_2015, nanoseconds << 3)
        };
        assert_eq!(of(1, 5), Ok(NANOSECONDS + 5));
        assert_eq!(of(-1, 5), Ok(-NANOSECONDS + 5));
        assert_eq!(of(-1, 500_000_000), Ok(-NANOSECONDS - 500_000_000));
        assert_eq!(of(-1, -500_000_000), Ok(-NANOSECONDS - 500_000_000));
        assert!(matches!(of(i64::MAX / 2, 0), Err(Fault::Unsupported(_))));
        assert!(Base::UTC.nanoseconds(i64::MAX, 0).is_err());
    }

    #[test]
    fn clocks_of_the_writer() {
        let base = Base::of_timezone(Some("America/Los_Angeles")).unwrap();
        // midnight of 2015 there, and 200 days later an hour of daylight saving
        assert_eq!(base.nanoseconds(0, 0), Ok(EPOCH_2015 * NANOSECONDS));
        let later = 200 * 86_400;
        assert_eq!(
            base.nanoseconds(later, 0),
            Ok((EPOCH_2015 + later + 3600) * NANOSECONDS)
        );
        assert!(Base::of_timezone(Some("GMT")).unwrap().timezone.is_none());
        for (name, _) in JAVA_TIMEZONES {
            assert!(Base::of_timezone(Some(name)).is_ok(), "{name}");
        }
        for (name, hours) in [("PST", -8), ("GMT+08:00", 8), ("UTC-03:00", -3)] {
            let epoch = Base::of_timezone(Some(name)).unwrap().epoch;
            assert_eq!(EPOCH_2015 - epoch, hours * 3600, "{name}");
        }
        let india = Base::of_timezone(Some("IST")).unwrap();
        assert_eq!(EPOCH_2015 - india.epoch, 5 * 3600 + 1800);
        assert_eq!(india.nanoseconds(0, 0), Ok(EPOCH_2015 * NANOSECONDS));
        for name in ["Nowhere", "GMT+", "GMT+8x:00", "GMTUTC", "UTC+99:00"] {
            let base = Base::of_timezone(Some(name));
            assert!(matches!(base, Err(Fault::Unsupported(_))), "{name}");
        }
    }
}
