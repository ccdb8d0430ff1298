//! Tests of text in splits, on the emulated GPU.

use crate::support::Fixture;

async fn fixture() -> Option<Fixture> {
    let fixture = Fixture::on_emulator()?;
    fixture.add_tables().await;
    fixture.run("SET vectile.gpu = 'require'").await.unwrap();
    Some(fixture)
}

/// Each of these has an automaton, so that the whole query is on the GPU.
#[tokio::test]
async fn tests_of_text_are_on_the_gpu() {
    let Some(fixture) = fixture().await else {
        return;
    };
    for test in [
        "text LIKE '%9%'",
        "text LIKE '%number%77%'",
        "text NOT LIKE '%a%'",
        "text ILIKE '%NUMBER 1%'",
        "text LIKE '____ number%'",
        "starts_with(text, 'a') OR text LIKE '%5' OR text IS NULL",
        "text < 'd' AND text >= 'b'",
        "text IN ('alpha number 1', 'x', '')",
        "text NOT IN ('alpha number 1', 'x', '')",
        "text <> 'alpha number 1'",
        "substr(text, 1, 2) IN ('al', 'be', 'x')",
        "strpos(text, 'number 9') > 0",
        "text IS NOT NULL AND int > 3",
        "length(text) = 20 OR name = 'x'",
        "bytes > 'a'",
    ] {
        let sql =
            format!("SELECT count(*) AS n, sum(big) AS s, min(int) AS m FROM {{t}} WHERE {test}");
        let plan = fixture.plan(&sql.replace("{t}", "packed")).await;
        assert!(plan.contains("GpuAggregateExec"), "{plan}");
        let answer = async |table: &str| fixture.answer(&sql.replace("{t}", table)).await;
        let on_gpu = answer("packed").await;
        assert_eq!(on_gpu, answer("plain").await, "{test}");
        let rows = format!("SELECT id FROM {{t}} WHERE {test} ORDER BY id");
        let rows = async |table: &str| fixture.answer(&rows.replace("{t}", table)).await;
        assert_eq!(rows("packed").await, rows("plain").await, "{test}");
    }
}

/// The error comes once the file shows that its text is in no dictionary.
#[tokio::test]
async fn other_tests_of_text_are_not() {
    let Some(fixture) = fixture().await else {
        return;
    };
    for sql in [
        "SELECT count(*) FROM packed WHERE upper(text) = 'X'",
        "SELECT count(*) FROM packed WHERE text = repeat('long', 30)",
        "SELECT text, count(*) FROM packed GROUP BY text",
    ] {
        let error = fixture.run(sql).await.unwrap_err().to_string();
        assert!(error.contains("text is stored as"), "{sql}: {error}");
    }
}

/// A predicate over `text`, of up to `depth` levels.
fn predicate(random: &mut Random, depth: u32) -> String {
    let words = [
        "number", "1", "7 ", "al", "ph", "a", "", "er 9", "Beta", "é",
    ];
    let mut word = || words[random.below(words.len())];
    let (one, two, three) = (word(), word(), word());
    let number = random.below(24);
    match random.below(if depth > 0 { 15 } else { 12 }) {
        0 => format!("text LIKE '%{one}%{two}%'"),
        1 => format!("text NOT LIKE '{one}%'"),
        2 => format!("text LIKE '%{one}_{two}'"),
        3 => format!("text ILIKE '%{one}%'"),
        4 => format!("text >= '{one}' AND text < '{two}z'"),
        5 => format!("text IN ('{one}', 'alpha number {number}', '{two}')"),
        6 => format!("substr(text, {}, {}) = '{one}'", number % 7, number % 5),
        7 => format!("left(text, {}) <> '{one}'", number % 5),
        8 => format!("character_length(text) > {number}"),
        9 => format!("strpos(text, '{one}') = 0"),
        10 => format!("starts_with(text, '{one}') OR ends_with(text, '{two}')"),
        11 => format!("contains(text, '{one}') AND text IS NOT NULL"),
        12 => format!("NOT ({})", predicate(random, depth - 1)),
        13 => format!("({}) OR text = '{three}'", predicate(random, depth - 1)),
        _ => {
            let other = predicate(random, depth - 1);
            format!("({}) AND ({other})", predicate(random, depth - 1))
        }
    }
}

/// They have one kernel: automata are its arguments.
#[tokio::test]
async fn random_tests_of_text() {
    let Some(fixture) = fixture().await else {
        return;
    };
    let (mut random, mut on_gpu) = (Random(16), 0);
    for _ in 0..150 {
        let test = predicate(&mut random, 2);
        let answer = async |table: &str| {
            let sql = format!("SELECT count(*) FROM {table} WHERE {test}");
            fixture
                .run(&sql)
                .await
                .map(|batches| format!("{batches:?}"))
        };
        let Ok(found) = answer("packed").await else {
            continue;
        };
        on_gpu += 1;
        assert_eq!(found, answer("plain").await.unwrap(), "{test}");
    }
    assert!(on_gpu > 100, "{on_gpu}");
}

struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1);
        (self.0 >> 33) as usize % most
    }
}
