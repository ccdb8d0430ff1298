//! The columns of `hits`.

use arrow::datatypes::{DataType, TimeUnit};

use crate::draws::{Key, Salt};
use crate::hit::{Hit, Source, salts};
use crate::text::{self, Device};

/// The largest number of digits of money, and those behind the point.
pub(crate) const MONEY: (u8, i8) = (12, 2);

/// How a column's values are made, each from a row and the column's salt.
#[derive(Clone, Copy)]
pub(crate) enum Values {
    Int16(fn(&Hit, Salt) -> i64),
    Int32(fn(&Hit, Salt) -> i64),
    Int64(fn(&Hit, Salt) -> i64),
    OptionalInt32(fn(&Hit, Salt) -> Option<i64>),
    OptionalInt64(fn(&Hit, Salt) -> Option<i64>),
    OptionalFloat(fn(&Hit, Salt) -> Option<f64>),
    /// In hundredths.
    OptionalMoney(fn(&Hit, Salt) -> Option<i64>),
    Bool(fn(&Hit, Salt) -> bool),
    /// In days of Unix time.
    Date(fn(&Hit, Salt) -> i64),
    /// In seconds of Unix time.
    Timestamp(fn(&Hit, Salt) -> i64),
    /// Appends to the string.
    Text(fn(&Hit, Salt, &mut String)),
}

use Values::{
    Bool, Date, Int16, Int32, Int64, OptionalFloat, OptionalInt32, OptionalInt64, OptionalMoney,
    Text, Timestamp,
};

impl Values {
    pub(crate) fn data_type(&self) -> DataType {
        match self {
            Int16(_) => DataType::Int16,
            Int32(_) | OptionalInt32(_) => DataType::Int32,
            Int64(_) | OptionalInt64(_) => DataType::Int64,
            OptionalFloat(_) => DataType::Float64,
            OptionalMoney(_) => DataType::Decimal128(MONEY.0, MONEY.1),
            Bool(_) => DataType::Boolean,
            Date(_) => DataType::Date32,
            Timestamp(_) => DataType::Timestamp(TimeUnit::Microsecond, None),
            Text(_) => DataType::Utf8View,
        }
    }

    pub(crate) fn is_nullable(&self) -> bool {
        matches!(
            self,
            OptionalInt32(_) | OptionalInt64(_) | OptionalFloat(_) | OptionalMoney(_)
        )
    }
}

/// Names and values, by subject. A column's salt is its place here, so a new one belongs to the end.
pub(crate) const COLUMNS: &[(&str, Values)] = &[
    // what and when
    ("hit_id", Int64(|h, s| h.row.id(s))),
    ("visit_id", Int64(|h, s| h.visit.id(s))),
    ("visitor_id", Int64(|h, s| h.visitor.id(s))),
    ("site_id", Int32(|h, _| h.page.site as i64)),
    ("happened_at", Timestamp(|h, _| h.second)),
    ("happened_on", Date(|h, _| h.day())),
    (
        "local_time",
        Timestamp(|h, _| h.second + text::country(h).minutes * 60),
    ),
    (
        "received_at",
        Timestamp(|h, s| h.second + h.row.skewed(s, 120) as i64),
    ),
    ("hit_number", Int16(|h, _| h.number as i64)),
    ("is_entry", Bool(|h, _| h.number == 1)),
    ("is_exit", Bool(|h, _| h.is_last)),
    ("is_bounce", Bool(|h, _| h.number == 1 && h.is_last)),
    // the page
    ("url", Text(|h, _, out| text::url(h.page, out))),
    ("url_hash", Int64(|h, s| h.page.key().id(s))),
    ("path", Text(|h, _, out| text::path(h.page, out))),
    ("title", Text(|h, _, out| text::title(h.page, out))),
    ("page_id", Int32(|h, _| h.page.number as i64)),
    (
        "section",
        Text(|h, _, out| out.push_str(text::section(h.page))),
    ),
    ("page_kind", Int16(|h, s| h.page.key().skewed(s, 9) as i64)),
    (
        "page_language",
        Text(|h, s, out| {
            out.push_str(
                h.page
                    .site_key()
                    .pick_skewed(s, &["en", "de", "fr", "pt", "ja"]),
            )
        }),
    ),
    // where the visitor came from
    ("referrer", Text(|h, _, out| text::referrer(h, out))),
    (
        "referrer_hash",
        Int64(|h, s| h.previous.map_or(0, |page| page.key().id(s))),
    ),
    (
        "referrer_site_id",
        OptionalInt32(|h, _| h.previous.map(|page| page.site as i64)),
    ),
    ("source_kind", Int16(|h, _| source_kind(h))),
    (
        "search_engine",
        Int16(|h, _| match h.source {
            Source::Search { engine, .. } => engine as i64 + 1,
            _ => 0,
        }),
    ),
    (
        "search_phrase",
        Text(|h, _, out| text::search_phrase(h, out)),
    ),
    (
        "campaign",
        Text(|h, _, out| {
            if let Some(campaign) = campaign(h) {
                out.push_str(&format!("campaign-{campaign:03}"));
            }
        }),
    ),
    (
        "campaign_medium",
        Text(|h, s, out| {
            if campaign(h).is_some() {
                out.push_str(
                    h.visit
                        .pick_skewed(s, &["banner", "mail", "video", "social"]),
                );
            }
        }),
    ),
    (
        "advert_id",
        OptionalInt64(|h, s| campaign(h).map(|_| h.visit.skewed(s, 20_000) as i64)),
    ),
    (
        "click_price",
        OptionalMoney(|h, s| campaign(h).map(|_| 1 + h.visit.skewed(s, 900) as i64)),
    ),
    // the visitor
    (
        "country",
        Text(|h, _, out| out.push_str(text::country(h).code)),
    ),
    ("region_id", Int32(|h, s| h.visitor.skewed(s, 3_000) as i64)),
    (
        "city",
        Text(|h, s, out| out.push_str(h.visitor.pick_skewed(s, &text::country(h).cities))),
    ),
    ("utc_offset", Int16(|h, _| text::country(h).minutes)),
    (
        "language",
        Text(|h, _, out| out.push_str(text::country(h).language)),
    ),
    ("age_band", Int16(|h, s| h.visitor.below(s, 7) as i64)),
    ("gender", Int16(|h, s| h.visitor.below(s, 3) as i64)),
    (
        "interests",
        Int32(|h, s| (h.visitor.number(s) & h.visitor.number(s + 500) & 0xffff) as i64),
    ),
    ("is_registered", Bool(|h, s| h.visitor.chance(s, 180))),
    (
        "first_seen",
        Date(|h, s| 20_148 - h.visitor.skewed(s, 2_000) as i64),
    ),
    ("visits_before", Int32(|h, s| h.visit.skewed(s, 400) as i64)),
    (
        "days_since_last",
        Int16(|h, s| h.visit.skewed(s, 90) as i64),
    ),
    ("ip", Int64(|h, s| h.visitor.below(s, 1 << 32) as i64)),
    // the device
    ("device_kind", Int16(|h, _| text::device(h) as i64)),
    (
        "device_model",
        Text(|h, _, out| out.push_str(text::model(h))),
    ),
    ("system", Int16(|h, _| text::system(h))),
    (
        "system_version",
        Text(|h, s, out| {
            let (major, minor) = (h.visitor.between(s, 9, 18), h.visitor.skewed(s + 500, 8));
            out.push_str(&format!("{major}.{minor}"));
        }),
    ),
    ("browser", Int16(|h, _| text::browser(h).0)),
    ("browser_version", Int16(|h, _| text::browser(h).1)),
    ("user_agent", Text(|h, _, out| text::user_agent(h, out))),
    ("screen_width", Int16(|h, _| text::screen(h).0)),
    ("screen_height", Int16(|h, _| text::screen(h).1)),
    (
        "window_width",
        Int16(|h, s| text::screen(h).0 - h.visit.skewed(s, 300) as i64),
    ),
    (
        "window_height",
        Int16(|h, s| text::screen(h).1 - 60 - h.visit.skewed(s, 200) as i64),
    ),
    (
        "color_depth",
        Int16(|h, s| h.visitor.pick_skewed(s, &[24, 32, 30, 16])),
    ),
    (
        "pixel_ratio",
        Int16(|h, s| h.visitor.pick_skewed(s, &[100, 200, 300, 125, 150])),
    ),
    (
        "has_touch",
        Bool(|h, _| matches!(text::device(h), Device::Phone | Device::Tablet)),
    ),
    ("has_cookies", Bool(|h, s| h.visitor.chance(s, 940))),
    ("has_storage", Bool(|h, s| h.visitor.chance(s, 970))),
    ("has_blocker", Bool(|h, s| h.visitor.chance(s, 260))),
    ("prefers_dark", Bool(|h, s| h.visitor.chance(s, 350))),
    ("connection_kind", Int16(|h, s| h.visit.skewed(s, 6) as i64)),
    (
        "network_id",
        Int32(|h, s| 1_000 + h.visitor.skewed(s, 40_000) as i64),
    ),
    (
        "downlink_kbps",
        OptionalInt32(|h, s| measured(h).then(|| 250 + h.visit.skewed(s, 200_000) as i64)),
    ),
    // how long it took, in milliseconds
    (
        "dns_ms",
        OptionalInt32(|h, s| first_of_site(h).then(|| skewed_ms(h.row, s, 400))),
    ),
    (
        "connect_ms",
        OptionalInt32(|h, s| first_of_site(h).then(|| skewed_ms(h.row, s, 800))),
    ),
    (
        "tls_ms",
        OptionalInt32(|h, s| first_of_site(h).then(|| skewed_ms(h.row, s, 900))),
    ),
    (
        "first_byte_ms",
        OptionalInt32(|h, s| measured(h).then(|| 10 + skewed_ms(h.row, s, 4_000))),
    ),
    (
        "response_ms",
        OptionalInt32(|h, s| measured(h).then(|| skewed_ms(h.row, s, 3_000))),
    ),
    (
        "interactive_ms",
        OptionalInt32(|h, s| measured(h).then(|| 100 + skewed_ms(h.row, s, 20_000))),
    ),
    (
        "load_ms",
        OptionalInt32(|h, s| measured(h).then(|| 150 + skewed_ms(h.row, s, 60_000))),
    ),
    (
        "first_paint_ms",
        OptionalInt32(|h, s| measured(h).then(|| 50 + skewed_ms(h.row, s, 9_000))),
    ),
    (
        "largest_paint_ms",
        OptionalInt32(|h, s| measured(h).then(|| 80 + skewed_ms(h.row, s, 15_000))),
    ),
    (
        "layout_shift",
        OptionalFloat(|h, s| measured(h).then(|| h.row.skewed(s, 1_024) as f64 / 1_024.0)),
    ),
    // what the visitor did
    (
        "seconds_on_page",
        Int32(|h, s| h.row.skewed(s, 3_600) as i64),
    ),
    ("scroll_percent", Int16(|h, s| h.row.below(s, 101) as i64)),
    ("clicks", Int16(|h, s| h.row.skewed(s, 60) as i64)),
    ("key_presses", Int16(|h, s| h.row.skewed(s, 500) as i64)),
    (
        "page_bytes",
        Int32(|h, s| 2_000 + h.page.key().skewed(s, 8_000_000) as i64),
    ),
    (
        "requests",
        Int16(|h, s| 1 + h.page.key().skewed(s, 300) as i64),
    ),
    (
        "script_errors",
        Int16(|h, s| h.row.skewed(s, 20).saturating_sub(3) as i64),
    ),
    ("event_kind", Int16(|h, _| event_kind(h))),
    (
        "goal_id",
        Int32(|h, s| {
            if h.row.chance(s, 40) {
                1 + h.row.skewed(s + 500, 500) as i64
            } else {
                0
            }
        }),
    ),
    // what the visitor bought
    ("product_id", OptionalInt32(|h, _| product(h))),
    (
        "product_category",
        Text(|h, s, out| {
            if product(h).is_some() {
                out.push_str(h.page.key().pick_skewed(
                    s,
                    &["books", "tools", "clothes", "food", "toys", "furniture"],
                ));
            }
        }),
    ),
    (
        "cart_items",
        Int16(|h, s| product(h).map_or(0, |_| 1 + h.visit.skewed(s, 20) as i64)),
    ),
    (
        "order_id",
        OptionalInt64(|h, s| is_order(h).then(|| h.row.id(s))),
    ),
    (
        "order_value",
        OptionalMoney(|h, s| is_order(h).then(|| 199 + h.row.skewed(s, 500_000) as i64)),
    ),
    (
        "currency",
        Text(|h, _, out| {
            if product(h).is_some() {
                out.push_str(text::country(h).currency);
            }
        }),
    ),
    (
        "coupon",
        Text(|h, s, out| {
            if is_order(h) && h.row.chance(s, 200) {
                out.push_str(&format!("SAVE{}", 5 * h.row.between(s + 500, 1, 6)));
            }
        }),
    ),
    // how it was measured
    ("experiment", Int16(|h, _| experiment(h))),
    (
        "variant",
        Text(|h, s, out| {
            if experiment(h) > 0 {
                out.push_str(h.visitor.pick(s, &["control", "treatment"]));
            }
        }),
    ),
    (
        "tracker_version",
        Int16(|h, s| 30 + h.page.site_key().skewed(s, 12) as i64),
    ),
    (
        "http_status",
        Int16(|h, s| {
            h.row
                .pick_skewed(s, &[200, 200, 200, 304, 200, 301, 404, 200, 500, 403])
        }),
    ),
    (
        "http_method",
        Text(|h, s, out| {
            out.push_str(h.row.pick_skewed(s, &["GET", "GET", "GET", "POST", "HEAD"]))
        }),
    ),
    (
        "protocol",
        Int16(|h, s| h.visitor.pick_skewed(s, &[2, 3, 1])),
    ),
    ("is_cached", Bool(|h, s| h.row.chance(s, 310))),
    ("is_prefetch", Bool(|h, s| h.row.chance(s, 15))),
    ("is_robot", Bool(|h, _| !text::robot(h).is_empty())),
    ("robot", Text(|h, _, out| out.push_str(text::robot(h)))),
    ("data_center", Int16(|h, s| h.visit.below(s, 5) as i64)),
    ("server_id", Int16(|h, s| h.row.below(s, 240) as i64)),
    ("consent", Int16(|h, s| h.visitor.below(s, 8) as i64)),
    (
        "sample_weight",
        Int16(|h, s| h.page.site_key().pick_skewed(s, &[1, 1, 2, 5, 10])),
    ),
];

/// 0 inside a site, then direct, search, link and advertisement.
fn source_kind(hit: &Hit) -> i64 {
    match hit.source {
        Source::Inside => 0,
        Source::Direct => 1,
        Source::Search { .. } => 2,
        Source::Link => 3,
        Source::Advertisement => 4,
    }
}

/// The number of the campaign that an advertisement belongs to.
fn campaign(hit: &Hit) -> Option<u64> {
    (hit.source == Source::Advertisement).then(|| hit.visit.skewed(salts::CAMPAIGN, 200))
}

/// Three in four hits have times.
fn measured(hit: &Hit) -> bool {
    hit.row.chance(salts::MEASURED, 750)
}

/// A connection is made for the first page of a visit.
fn first_of_site(hit: &Hit) -> bool {
    hit.number == 1 && measured(hit)
}

/// The sum of two skewed numbers: few are 0.
fn skewed_ms(key: Key, salt: Salt, end: u64) -> i64 {
    (key.skewed(salt, end / 2) + key.skewed(salt + 500, end / 2)) as i64
}

/// 0 for a view, otherwise a click, a download, a form, a look at a product, or an order.
fn event_kind(hit: &Hit) -> i64 {
    match hit.row.below(salts::EVENT, 1_000) {
        0..820 => 0,
        820..900 => 1,
        900..920 => 2,
        920..940 => 3,
        940..992 => 4,
        _ => 5,
    }
}

/// The product that was looked at or ordered.
fn product(hit: &Hit) -> Option<i64> {
    let of_page = || hit.page.key().skewed(salts::PRODUCT, 50_000) as i64;
    (event_kind(hit) >= 4).then(of_page)
}

fn is_order(hit: &Hit) -> bool {
    event_kind(hit) == 5
}

/// The experiment that the visitor takes part in; 0 for none.
fn experiment(hit: &Hit) -> i64 {
    match hit.visitor.chance(salts::EXPERIMENT, 400) {
        true => 1 + hit.page.site_key().skewed(salts::EXPERIMENT, 30) as i64,
        false => 0,
    }
}
