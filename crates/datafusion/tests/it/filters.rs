//! Filters of every kind select the same rows as on the same data in memory.

use crate::support::{Fixture, ROWS};

/// Each is also run negated, tested for null, combined with others, and with other columns projected.
const PREDICATES: &[&str] = &[
    // Comparisons.
    "id = 5000",
    "id <> 5000",
    "id < 100",
    "id >= 9990",
    "id BETWEEN 4000 AND 4200",
    "id NOT BETWEEN 10 AND 9990",
    "5000 < id",
    "int > 0",
    "int <= -500",
    "big = 9223372036854775807",
    "big < -9223372036854775807",
    "byte = 255",
    "byte > 300",
    "float > 49.5",
    "float = 0.0",
    "float = -0.0",
    "float < 0",
    "float >= 0",
    "float > -0.0",
    "float <> 0.0",
    "float IS DISTINCT FROM -0.0",
    "float IN (0.0, 7.5)",
    "float = 'NaN'::double",
    "float > 'Infinity'::double",
    "float <= '-Infinity'::double",
    "date = DATE '2011-01-27' + 10",
    "date < DATE '2011-02-01'",
    "time > TIMESTAMP '2023-11-14T22:13:25'",
    "price = 500.00",
    "price BETWEEN 10.5 AND 20.25",
    "name = 'apple'",
    "name > 'banana'",
    "name <= ''",
    "name = 'élan'",
    "text > 'zebra number 9'",
    "text = 'nothing like it'",
    "bytes = X'00'",
    "bytes > X'FF'",
    "dict = 'cherry'",
    "dict <> 'cherry'",
    "dict > 'banana' AND dict <= 'zebra'",
    "dict IS NULL",
    "dict IS DISTINCT FROM 'apple'",
    "dict LIKE '%an%'",
    "dict LIKE 'a%' OR dict IS NULL",
    "one = 'same'",
    "one <> 'same'",
    // Booleans.
    "flag",
    "NOT flag",
    "flag = false",
    "flag IS TRUE",
    "flag IS NOT FALSE",
    "flag IS UNKNOWN",
    // Nulls.
    "int IS NULL",
    "int IS NOT NULL",
    "id IS NULL",
    "void IS NULL",
    "void = 1",
    "void <> 1",
    "list IS NULL",
    "nested IS NOT NULL",
    "int IS DISTINCT FROM 100",
    "int IS NOT DISTINCT FROM 100",
    "int IS DISTINCT FROM NULL",
    "int = NULL",
    // Membership.
    "int IN (1, 2, 3, 499)",
    "int NOT IN (1, 2, 3, 499)",
    "int IN (1, NULL)",
    "int NOT IN (1, NULL)",
    "name IN ('apple', 'zebra', 'none')",
    "name NOT IN ('apple', 'zebra', 'none', 'a', 'b')",
    "float IN (0.0, 'NaN'::double, 1.5, 2.5, 3.5)",
    "dict IN ('apple', '')",
    // One column, in some other way.
    "name LIKE 'b%'",
    "name NOT LIKE '%a%'",
    "text LIKE '%number 77%'",
    "name ILIKE 'APPLE'",
    "length(name) = 5",
    "upper(dict) = 'APPLE'",
    "int % 10 = 3",
    "abs(int) < 5",
    "-int > 490",
    "CAST(int AS varchar) LIKE '4%'",
    "date_part('month', date) = 2",
    "CASE WHEN int > 0 THEN name IS NULL ELSE false END",
    "coalesce(int, 7) = 7",
    "nested['x'] = 3",
    "nested['y'] = 'apple'",
    "nested['x'] BETWEEN -20 AND 30 AND nested['y'] > 'b'",
    "nested['x'] IS NULL",
    "nested['y'] IN ('apple', 'zebra', NULL)",
    "nested['x'] IS NOT DISTINCT FROM 7",
    "list[1] = 0",
    "byte::double > 254.5",
    "int > 3.5",
    "random() < 2",
    // Several columns.
    "int > byte",
    "id = big",
    "name = dict",
    "int + id > 9000",
    "int IS NULL OR name IS NULL",
    "id < 50 OR int = 7",
    "id < 50 OR name LIKE 'z%' OR byte = 3",
    "(id < 2000 AND int > 100) OR (id > 8000 AND name = 'zebra')",
    "id > 10 AND id < 9000 AND int BETWEEN 0 AND 50 AND name <> 'apple' AND int <> byte",
    "int = 1 OR int = 2 OR int IN (5, 6)",
    "(int > 0) = flag",
    "true",
    "false",
];

#[tokio::test]
async fn select_the_same_rows() {
    let fixture = Fixture::new().await;
    for predicate in PREDICATES {
        for filter in [
            (*predicate).to_owned(),
            format!("NOT ({predicate})"),
            format!("({predicate}) IS NULL"),
            format!("({predicate}) AND int > 100"),
            format!("({predicate}) OR id = 17"),
            format!("NOT (({predicate}) OR int > 100)"),
        ] {
            fixture
                .same(&format!("SELECT id FROM {{t}} WHERE {filter} ORDER BY id"))
                .await;
        }
        fixture
            .same(&format!(
                "SELECT * FROM {{t}} WHERE {predicate} ORDER BY id"
            ))
            .await;
        fixture
            .same(&format!("SELECT count(*) FROM {{t}} WHERE {predicate}"))
            .await;
    }
}

#[tokio::test]
async fn select_the_same_rows_whatever_the_batch_size() {
    for batch_size in [1, 100, 1000, 1024, 5000, 20_000] {
        let config = datafusion::prelude::SessionConfig::new()
            .with_target_partitions(1)
            .with_batch_size(batch_size);
        let fixture = Fixture::with_config(config);
        fixture.add_tables().await;
        for filter in [
            "true",
            "int > 400",
            "id < 5",
            "int % 2 = 0",
            "id % 1000 = 0",
            "name = 'zebra'",
        ] {
            fixture
                .same(&format!("SELECT * FROM {{t}} WHERE {filter}"))
                .await;
        }
    }
}

#[tokio::test]
async fn select_the_same_rows_when_they_only_prune() {
    let fixture = Fixture::new().await;
    fixture
        .run("SET vectile.pushdown_filters = false")
        .await
        .unwrap();
    for predicate in [
        "id BETWEEN 4000 AND 4200",
        "name LIKE 'b%'",
        "int > byte",
        "flag",
    ] {
        fixture
            .same(&format!(
                "SELECT * FROM {{t}} WHERE {predicate} ORDER BY id"
            ))
            .await;
        let plan = fixture
            .plan(&format!("SELECT id FROM packed WHERE {predicate}"))
            .await;
        assert!(plan.contains("FilterExec"), "{plan}");
    }
}

#[tokio::test]
async fn an_error_of_an_expression_is_one_of_rows_that_reach_it() {
    let fixture = Fixture::new().await;
    // All remaining rows have the same value, but the dictionary of the row group has more.
    fixture
        .run("CREATE VIEW digits AS SELECT id, CASE WHEN id < 1000 THEN '7' ELSE 'x' END AS n FROM plain")
        .await
        .unwrap();
    let path = fixture.path("digits.vectile");
    let copy = format!(
        "COPY digits TO '{}' STORED AS VECTILE OPTIONS ('encoding.n' 'dict')",
        path.display()
    );
    fixture.run(&copy).await.unwrap();
    fixture.register("packed_digits", &path).await;
    let (_, rows) = fixture
        .executed("SELECT id FROM packed_digits WHERE id < 500 AND CAST(n AS int) = 7")
        .await;
    assert_eq!(rows, 500);
    let error = fixture
        .run("SELECT id FROM packed WHERE CAST(name AS int) = 7")
        .await
        .unwrap_err();
    assert!(error.to_string().contains("Cannot cast string"), "{error}");
}

#[tokio::test]
async fn no_column_is_needed_to_count() {
    let fixture = Fixture::new().await;
    let batch = fixture.same("SELECT count(*) FROM {t}").await;
    assert_eq!(batch.num_rows(), 1);
    fixture
        .run("SET datafusion.execution.collect_statistics = false")
        .await
        .unwrap();
    let (_, rows) = fixture.executed("SELECT 1 FROM packed").await;
    assert_eq!(rows, ROWS);
}

/// Each term of a condition is a level of its expression; the stack of a thread has room for some hundred.
#[tokio::test]
async fn long_conditions_take_no_long_stack() {
    let fixture = Fixture::empty();
    let rows =
        "SELECT value AS n, concat('x', CAST(value AS VARCHAR)) AS s FROM generate_series(0, 1999)";
    fixture.make("t", rows).await;
    let all = |terms: usize, part: &dyn Fn(usize) -> String, with: &str| {
        let parts: Vec<String> = (0..terms).map(part).collect();
        parts.join(with)
    };
    let pair = |i: usize| format!("(n = {i} AND s = 'x{i}')");
    let either = |i: usize| format!("(n <> {i} OR s <> 'y{i}')");
    let computed = |i: usize| format!("n % {} = 0", i + 1);
    for (condition, expected) in [
        (all(400, &pair, " OR "), 400),
        (all(400, &either, " AND "), 2000),
        (all(400, &computed, " OR "), 2000),
        // DataFusion names these, which takes more stack.
        (format!("NOT ({})", all(200, &pair, " OR ")), 1800),
        (format!("n{} > 200", " + 1".repeat(200)), 1999),
        (
            format!("concat(s, ''){} LIKE 'x7%'", " || 'z'".repeat(200)),
            111,
        ),
    ] {
        let sql = format!("SELECT count(*) FROM t WHERE {condition}");
        let answer = fixture.answer(&sql).await;
        let is_right = answer.contains(&format!("| {expected} "));
        assert!(is_right, "{}\n{answer}", &sql[..99]);
        fixture.plan(&sql).await;
    }
}

#[tokio::test]
async fn deep_expressions_are_for_the_cpu() {
    let Some(fixture) = Fixture::on_emulator() else {
        return;
    };
    fixture
        .make("t", "SELECT value AS n FROM generate_series(0, 1999)")
        .await;
    fixture.run("SET vectile.gpu = 'on'").await.unwrap();
    let deep = " + 1".repeat(200);
    let term = |n: usize| format!("n = {n} AND n % 1000 <> {}", n + 1000);
    let long: Vec<String> = (0..300).map(term).collect();
    for (sql, answer, reason) in [
        (
            format!("SELECT count(*) FROM t WHERE n{deep} > 200"),
            "| 1999 ",
            "nested too deep",
        ),
        (
            format!("SELECT count(*) FROM t a JOIN t b ON a.n = b.n WHERE a.n + b.n{deep} > 200"),
            "| 1999 ",
            "nested too deep",
        ),
        // The compiler takes minutes for it.
        (
            format!("SELECT count(*) FROM t WHERE ({})", long.join(") OR (")),
            "| 300 ",
            "too many parts",
        ),
    ] {
        let answered = fixture.answer(&sql).await;
        assert!(answered.contains(answer), "{answered}");
        let plan = fixture.plan(&sql).await;
        assert!(plan.contains(reason), "{plan}");
    }
}
