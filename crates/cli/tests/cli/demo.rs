//! `vectile demo`.

use serde_json::json;

use crate::Workspace;

#[test]
fn the_sample_answers_questions() {
    let w = Workspace::new();
    let text = w.ok(&["demo"]);
    for word in [
        "336,776",
        "time_hour",
        "JetBlue Airways",
        "Honolulu Intl",
        "EMBRAER",
        "pouring",
    ] {
        assert!(text.contains(word), "{word}: {text}");
    }
    assert!(w.files().is_empty(), "nothing is left: {:?}", w.files());
}

#[test]
fn the_tables_can_be_kept() {
    let w = Workspace::new();
    let text = w.ok(&["demo", "tables"]);
    assert!(
        text.contains("vectile sql -t flights=tables/flights.vectile"),
        "{text}"
    );
    let sql = "SELECT count(*) AS n, sum(distance) AS miles, count(dep_time) AS flown FROM t";
    let expected = json!([{"n": 336_776, "miles": 350_217_607, "flown": 328_521}]);
    assert_eq!(w.query("tables/flights.vectile", sql), expected);
    assert_eq!(w.files().len(), 5);
    assert!(w.fails(1, &["demo", "tables"]).contains("--force"));
    w.ok(&["demo", "tables", "--force"]);
}
