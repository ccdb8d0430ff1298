//! Addresses, titles and phrases. Each function appends to `out`.

use crate::draws::{Key, Salt};
use crate::hit::{Hit, Page, Source, phrase_key, salts};
use crate::words::{COUNTRIES, Country, DOMAINS, MODELS, ROBOTS, SECTIONS, WORDS};

/// The address of a page.
pub(crate) fn url(page: Page, out: &mut String) {
    out.push_str("https://");
    host(page, out);
    path(page, out);
}

/// The name of the page's site, such as `www.garden-market.example.com`.
pub(crate) fn host(page: Page, out: &mut String) {
    let site = page.site_key();
    if site.chance(salts::WORDS, 600) {
        out.push_str("www.");
    }
    // those in ASCII
    let words = &WORDS[..WORDS.len() - 8];
    out.push_str(site.pick(salts::WORDS + 1, words));
    if site.chance(salts::WORDS + 2, 700) {
        out.push('-');
        out.push_str(site.pick(salts::WORDS + 3, words));
    }
    out.push('.');
    out.push_str(site.pick_skewed(salts::WORDS + 4, &DOMAINS));
}

/// The page's section of its site.
pub(crate) fn section(page: Page) -> &'static str {
    page.key().pick_skewed(salts::WORDS + 5, &SECTIONS)
}

/// The path behind the host: `/section/some-words-123`, of some pages with parameters.
pub(crate) fn path(page: Page, out: &mut String) {
    let key = page.key();
    out.push('/');
    if page.number == 0 {
        return; // the site's first page
    }
    out.push_str(section(page));
    out.push('/');
    words(
        key,
        salts::WORDS + 8,
        1 + key.below(salts::LENGTH, 4),
        '-',
        out,
    );
    out.push('-');
    out.push_str(&page.number.to_string());
    match key.below(salts::LENGTH + 1, 10) {
        0 => {
            out.push_str("?sort=price&page=");
            out.push_str(&key.between(salts::LENGTH + 2, 1, 30).to_string());
        }
        1 => {
            out.push_str("?session=");
            out.push_str(&format!("{:016x}", key.number(salts::LENGTH + 3)));
        }
        2..6 => out.push_str(".html"),
        _ => {}
    }
}

/// The page's title: some words and the name of the site.
pub(crate) fn title(page: Page, out: &mut String) {
    let key = page.key();
    let start = out.len();
    words(
        key,
        salts::WORDS + 8,
        2 + key.below(salts::LENGTH + 4, 6),
        ' ',
        out,
    );
    if let Some(first) = out.get_mut(start..start + 1) {
        first.make_ascii_uppercase(); // nothing, for letters beyond ASCII
    }
    out.push_str(" | ");
    host(page, out);
}

/// Words of a key.
fn words(key: Key, salt: Salt, count: u64, separator: char, out: &mut String) {
    for word in 0..count {
        if word > 0 {
            out.push(separator);
        }
        out.push_str(key.pick_skewed(salt + word, &WORDS));
    }
}

/// The page that led here, with its host only for search engines; nothing for direct visits.
pub(crate) fn referrer(hit: &Hit, out: &mut String) {
    match (hit.source, hit.previous) {
        (Source::Search { engine, .. }, _) => {
            out.push_str("https://search");
            out.push_str(&engine.to_string());
            out.push_str(".example/");
        }
        (_, Some(page)) => url(page, out),
        _ => {}
    }
}

/// The phrase that a visitor searched for; nothing for visits from elsewhere.
pub(crate) fn search_phrase(hit: &Hit, out: &mut String) {
    if let Source::Search { phrase, .. } = hit.source {
        let key = phrase_key(phrase);
        words(key, salts::WORDS, 1 + key.below(salts::LENGTH, 5), ' ', out);
    }
}

/// The visitor's country.
pub(crate) fn country(hit: &Hit) -> &'static Country {
    let mut left = hit.visitor.below(salts::COUNTRY, 1_000);
    let found = COUNTRIES.iter().find(|country| {
        let is_chosen = left < country.share;
        left = left.saturating_sub(country.share);
        is_chosen
    });
    found.unwrap_or(&COUNTRIES[COUNTRIES.len() - 1])
}

/// The system that a visitor's program runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Device {
    Desktop = 1,
    Phone = 2,
    Tablet = 3,
    Television = 4,
}

/// The visitor's device.
pub(crate) fn device(hit: &Hit) -> Device {
    match hit.visitor.below(salts::DEVICE, 100) {
        0..46 => Device::Desktop,
        46..93 => Device::Phone,
        93..98 => Device::Tablet,
        _ => Device::Television,
    }
}

/// Its model; empty for desktops.
pub(crate) fn model(hit: &Hit) -> &'static str {
    match device(hit) {
        Device::Desktop => "",
        _ => hit.visitor.pick_skewed(salts::MODEL, &MODELS),
    }
}

/// Its system: 1 and 2 on phones and tablets, 3 to 5 on desktops, 6 otherwise.
pub(crate) fn system(hit: &Hit) -> i64 {
    match device(hit) {
        Device::Desktop => 3 + hit.visitor.skewed(salts::SCREEN + 100, 3) as i64,
        Device::Phone | Device::Tablet => {
            1 + i64::from(hit.visitor.chance(salts::SCREEN + 100, 300))
        }
        Device::Television => 6,
    }
}

/// Width and height of its screen.
pub(crate) fn screen(hit: &Hit) -> (i64, i64) {
    let of = |sizes: &[(i64, i64)]| hit.visitor.pick_skewed(salts::SCREEN, sizes);
    match device(hit) {
        Device::Desktop => of(&[
            (1920, 1080),
            (1536, 864),
            (1366, 768),
            (2560, 1440),
            (3840, 2160),
            (1280, 1024),
        ]),
        Device::Phone => of(&[(390, 844), (412, 915), (360, 800), (393, 873), (430, 932)]),
        Device::Tablet => of(&[(820, 1180), (768, 1024), (1024, 1366)]),
        Device::Television => (1920, 1080),
    }
}

/// The visitor's browser, and its version, which rises with time.
pub(crate) fn browser(hit: &Hit) -> (i64, i64) {
    let lag = hit.visitor.skewed(salts::BROWSER + 100, 40) as i64;
    let browser = hit.visitor.skewed(salts::BROWSER, 12) as i64 + 1;
    (browser, 134 + (hit.day() - 20_148) / 28 - lag)
}

/// The robot's name; empty for people.
pub(crate) fn robot(hit: &Hit) -> &'static str {
    match hit.visitor.chance(salts::ROBOT, 30) {
        true => hit.visitor.pick_skewed(salts::ROBOT, &ROBOTS),
        false => "",
    }
}

/// The program's name for itself.
pub(crate) fn user_agent(hit: &Hit, out: &mut String) {
    let name = robot(hit);
    if !name.is_empty() {
        out.push_str(name);
        out.push_str("/2.1 (+https://robots.example/");
        out.push_str(name);
        out.push(')');
        return;
    }
    let (browser, version) = browser(hit);
    let (width, height) = screen(hit);
    let device = match model(hit) {
        "" => "Desktop",
        model => model,
    };
    let text = format!(
        "Browser{browser}/{version}.0 ({device}; system {}; {width}x{height})",
        system(hit)
    );
    out.push_str(&text);
}
