//! The stages in the output of `EXPLAIN ANALYZE`.

use vectile_datafusion::Gpu;

use crate::support::{Fixture, emulator};

/// The stages in the plan of a finished query, without times and sizes.
fn stages(plan: &str) -> String {
    let (_, rest) = plan.split_once("stages=[").expect(plan);
    let mut depth = 1;
    let end = rest.find(|c| {
        depth += match c {
            '[' => 1,
            ']' => -1,
            _ => 0,
        };
        depth == 0
    });
    let mut stages = rest[..end.expect(plan)].to_owned();
    for name in ["bytes=", "memory=", "time="] {
        let mut parts = stages.split(name);
        let mut without = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let end = part.find([',', ';', ']']).unwrap_or(part.len());
            let (value, rest) = part.split_at(end);
            assert_ne!(value, "0.0 B", "{name} in {plan}");
            assert!(!value.is_empty(), "{name} in {plan}");
            without += &format!("{name}..{rest}");
        }
        stages = without;
    }
    stages
}

impl Fixture {
    async fn stages(&self, sql: &str) -> String {
        stages(&self.answer(&format!("EXPLAIN ANALYZE {sql}")).await)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_analyze_shows_each_stage() {
    let Some(engine) = emulator() else { return };
    let fixture = Fixture::on(Gpu::new(engine));
    let set = async |key: &str, value: &str| {
        let sql = format!("SET vectile.gpu{key} = '{value}'");
        fixture.run(&sql).await.unwrap();
    };
    for (name, rows) in [
        (
            "sales",
            "value % 900 AS s_day, value % 70 AS s_region, value AS v FROM generate_series(1, 5000)",
        ),
        (
            "days",
            "value AS d_day, value % 60 AS d_shop, value % 40 AS x FROM generate_series(0, 799)",
        ),
        (
            "shops",
            "value AS h_shop, value % 3 AS y FROM generate_series(0, 59)",
        ),
        (
            "regions",
            "value AS r_region, value % 5 AS z FROM generate_series(0, 29)",
        ),
    ] {
        fixture.make(name, &format!("SELECT {rows}")).await;
    }
    let query = |filter: &str| {
        format!(
            "SELECT y, sum(v), count(*) FROM sales \
             JOIN (SELECT d_day, y FROM days JOIN shops ON d_shop = h_shop WHERE {filter}) d ON s_day = d_day \
             JOIN regions ON s_region = r_region WHERE z < 4 GROUP BY y ORDER BY y"
        )
    };
    let (all, some) = (query("true"), query("x < 20"));
    set("", "off").await;
    let expected = fixture.answer(&some).await;
    set("", "require").await;
    fixture.build_from_rows(100);

    let built = |rows, keys| format!("rows={rows}, bytes=.., keys={keys}, memory=.., time=..");
    let cached = |keys| format!("cached, keys={keys}, memory=..");
    let (shops, days, regions) = (
        "d_shop = h_shop: ",
        "s_day = d_day: ",
        "s_region = r_region: ",
    );
    // The CPU builds small tables, also those that a build on the device looks up.
    let first = fixture.stages(&all).await;
    assert_eq!(
        first,
        format!(
            "{days}GPU, {}, stages=[{shops}CPU, {}]; {regions}CPU, {}",
            built(800, 800),
            built(60, 60),
            built(30, 24)
        )
    );
    // A cached table read nothing, and needed no other stage.
    assert_eq!(
        fixture.stages(&all).await,
        format!("{days}{}; {regions}{}", cached(800), cached(24))
    );
    // Other rows of the build side are another stage, over the same inner one.
    assert_eq!(
        fixture.stages(&some).await,
        format!(
            "{days}GPU, {}, stages=[{shops}{}]; {regions}{}",
            built(800, 400),
            cached(60),
            cached(24)
        )
    );
    fixture.keep_key_tables(false);
    fixture.build_from_rows(0);
    for _ in 0..2 {
        assert_eq!(
            fixture.stages(&some).await,
            format!(
                "{days}GPU, {}, stages=[{shops}GPU, {}]; {regions}GPU, {}",
                built(800, 400),
                built(60, 60),
                built(30, 24)
            )
        );
    }
    assert_eq!(fixture.answer(&some).await, expected);
    // Neither a plan that has not run nor a query without joins has stages.
    let plan = fixture.answer(&format!("EXPLAIN {some}")).await;
    assert!(!plan.contains("stages="), "{plan}");
    let plan = fixture.answer("EXPLAIN ANALYZE SELECT sum(v) FROM sales");
    let plan = plan.await;
    assert!(!plan.contains("stages="), "{plan}");
}

/// Inner lookups that filter rows or define groups give the same answers, regardless of where tables are built.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stages_have_the_answers_of_their_own_lookups() {
    let Some(fixture) = Fixture::on_emulator() else {
        return;
    };
    let set = async |key: &str, value: &str| {
        let sql = format!("SET vectile.gpu{key} = '{value}'");
        fixture.run(&sql).await.unwrap();
    };
    for (name, rows) in [
        (
            "f",
            "value % 7 AS k, value % 3 AS x, value AS v FROM generate_series(0, 2999)",
        ),
        (
            "d",
            "value AS k, value % 4 AS e, nullif(value % 3, 1) AS n FROM generate_series(0, 8)",
        ),
        (
            "e",
            "value AS id, nullif(value % 2, 0) AS y FROM generate_series(1, 6)",
        ),
    ] {
        fixture.make(name, &format!("SELECT {rows}")).await;
    }
    fixture.build_from_rows(0);
    let post_aggregation =
        "FROM (SELECT n, x, sum(v) AS s FROM f JOIN d ON f.k = d.k GROUP BY n, x) g";
    for (sql, expected, is_there) in [
        (
            "SELECT count(*), sum(v) FROM f JOIN d ON f.k = d.k WHERE d.e NOT IN (SELECT y FROM e)".into(),
            "with [e = y (not in, built on the GPU of [y])]",
            true,
        ),
        (
            "SELECT y, count(*) FROM f JOIN d ON f.k = d.k LEFT JOIN e ON d.e = e.id GROUP BY y ORDER BY y".into(),
            "with [e = id (outer, built on the GPU of [id, y])]",
            true,
        ),
        (format!("SELECT count(*), sum(s) {post_aggregation}"), "groups=[", true),
        (
            format!("SELECT sum(s) FILTER (WHERE n IS NULL) {post_aggregation}"),
            "groups=[",
            false,
        ),
        (
            format!("SELECT count(*) {post_aggregation} WHERE x = 1 AND (n IS NOT NULL OR s < 0)"),
            "groups=[",
            false,
        ),
    ] {
        set("", "off").await;
        let answer = fixture.answer(&sql).await;
        set("", "require").await;
        assert_eq!(fixture.answer(&sql).await, answer, "{sql}");
        let plan = fixture.plan(&sql).await;
        assert_eq!(plan.contains(expected), is_there, "{plan}");
    }
}

/// Columns are not refused because of key tables that the device caches for other queries: these are evicted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cached_tables_leave_room_for_columns() {
    let Some(fixture) = Fixture::on_emulator() else {
        return;
    };
    let set = async |key: &str, value: &str| {
        let sql = format!("SET vectile.gpu{key} = '{value}'");
        fixture.run(&sql).await.unwrap();
    };
    for (name, rows) in [
        (
            "f",
            "value % 20000 AS k, value % 10 AS v FROM generate_series(0, 59999)",
        ),
        (
            "d",
            "value AS id, value * value AS z FROM generate_series(0, 19999)",
        ),
    ] {
        fixture.make(name, &format!("SELECT {rows}")).await;
    }
    fixture.build_from_rows(0);
    set("", "require").await;
    for least in 0..3 {
        let sql = format!("SELECT sum(z) FROM f JOIN d ON k = id WHERE z > {least}");
        assert!(fixture.plan(&sql).await.contains("built on the GPU"));
        fixture.run(&sql).await.unwrap();
    }
    // Less than these tables take.
    set(".memory_limit", "200000").await;
    let sql = "SELECT count(*) FROM f WHERE v > 4";
    assert!(fixture.answer(sql).await.contains("30000"));
}
