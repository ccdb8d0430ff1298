//! Settings and their documentation.

use std::path::Path;

use datafusion::common::config::ExtensionOptions;
use vectile_datafusion::VectileOptions;

use crate::support::Fixture;

const PAGE: &str = include_str!("../../../../docs/operations.md");

#[test]
fn the_page_lists_the_settings_with_defaults_and_descriptions() {
    let listed = PAGE.lines().filter(|line| line.starts_with("| `SET "));
    let settings = VectileOptions::default().entries().into_iter();
    let settings = settings.map(|setting| {
        let default = setting.value.map(|value| format!("`{value}`"));
        let default = default.unwrap_or_else(|| "unset".into());
        format!(
            "| `SET {}` | {default} | {} |",
            setting.key, setting.description
        )
    });
    assert_eq!(listed.collect::<Vec<_>>(), settings.collect::<Vec<_>>());
}

/// All pages, and not only the list: a setting that was removed is not mentioned.
#[test]
fn pages_name_settings_that_exist() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let settings = VectileOptions::default().entries();
    for page in std::fs::read_dir(docs).unwrap() {
        let page = page.unwrap().path();
        if page.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let text = std::fs::read_to_string(&page).unwrap();
        for rest in text.split("SET vectile.").skip(1) {
            let end =
                rest.find(|letter: char| !letter.is_ascii_lowercase() && !"._".contains(letter));
            let key = format!("vectile.{}", &rest[..end.unwrap_or(rest.len())]);
            let is_known = settings.iter().any(|setting| setting.key == key);
            assert!(is_known, "{}: {key}", page.display());
        }
    }
}

#[tokio::test]
async fn unknown_settings_are_errors_that_list_the_known_ones() {
    let fixture = Fixture::empty();
    let settings = VectileOptions::default().entries().into_iter();
    let known = settings.map(|setting| setting.key);
    let known = known.collect::<Vec<_>>().join(", ");
    for key in ["gpu.build_from_rows", "gpu.keep_lookups", "other"] {
        let set = format!("SET vectile.{key} = '1'");
        let error = fixture.run(&set).await.unwrap_err().to_string();
        let expected = format!("there is no setting 'vectile.{key}'; there are {known}");
        assert!(error.contains(&expected), "{error}");
    }
}
