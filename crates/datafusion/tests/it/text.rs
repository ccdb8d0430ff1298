//! Text stored as codes is tested without being decoded, in scans and in programs, with the answers of Arrow.

use vectile_datafusion::Gpu;

use crate::support::{Fixture, table};

const PREDICATES: &[&str] = &[
    "text LIKE '%number 77%'",
    "text LIKE '%a%number%1%'",
    "text LIKE 'apple%'",
    "text LIKE '%9'",
    "text LIKE '_____ number%'",
    "text LIKE '%楽_%'",
    "text LIKE '%楽\n%'",
    "text LIKE 'élan%'",
    "text LIKE '%\\%%'",
    "text LIKE ''",
    "text LIKE '%'",
    "text ILIKE '%NUMBER 1%'",
    "text ILIKE '%ÉLAN%'",
    "text LIKE concat('%', '77')",
    "starts_with(text, 'é')",
    "ends_with(text, '楽')",
    "contains(text, 'number 5')",
    "strpos(text, 'number 9') > 0",
    "text ~ '^(apple|zebra) number [0-9]{5}$'",
    "text ~* 'NUMBER.*楽'",
    r"text ~ '\bnumber 7'",
    "length(text) > 18",
    "octet_length(text) > 18",
    "substr(text, 1, 2) IN ('ap', 'él', 'x')",
    "left(text, 3) = 'ban'",
    "text LIKE 'a%' OR text LIKE '%7' AND text NOT LIKE '%5%'",
    "text LIKE 'a%' OR text IS NULL",
    "coalesce(text LIKE 'a%', true)",
    "(text LIKE 'a%') IS NOT TRUE",
    "(text LIKE 'a%') IS NULL",
    "CASE WHEN text LIKE 'a%' THEN int > 0 ELSE text LIKE '%7%' END",
    "text LIKE '%1%' AND int > 100",
    "id BETWEEN 4000 AND 4100 AND text LIKE '%1%'",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn codes_pass_as_text_does() {
    let fixture = Fixture::on(Gpu::none("a test of the CPU"));
    fixture.ctx.register_batch("base", table()).unwrap();
    let text = "CASE WHEN id % 17 = 0 THEN NULL WHEN id % 19 = 0 THEN ''
        WHEN id % 23 = 0 THEN concat(text, '楽\n', name) WHEN id % 29 = 0 THEN concat(name, '楽') ELSE text END";
    let create = format!("CREATE TABLE plain AS SELECT id, int, {text} AS text FROM base");
    fixture.run(&create).await.unwrap();
    for encoding in ["onpair", "fsst", "plain", "dict"] {
        let path = fixture.path(&format!("{encoding}.vectile"));
        let options = format!("row_group_rows 4096, 'encoding.text' '{encoding}'");
        let to = path.display();
        let copy = format!("COPY plain TO '{to}' STORED AS VECTILE OPTIONS ({options})");
        fixture.run(&copy).await.unwrap();
        fixture.run("DROP TABLE IF EXISTS packed").await.unwrap();
        fixture.register("packed", &path).await;
        for predicate in PREDICATES {
            for filter in [(*predicate).to_owned(), format!("NOT ({predicate})")] {
                fixture.run("SET vectile.fuse = 'off'").await.unwrap();
                let rows = format!("SELECT id FROM {{t}} WHERE {filter} ORDER BY id");
                fixture.same(&rows).await;
                fixture.run("SET vectile.fuse = 'on'").await.unwrap();
                let totals = "count(*), sum(id), count(text)";
                fixture
                    .same(&format!("SELECT {totals} FROM {{t}} WHERE {filter}"))
                    .await;
                let sum = format!("sum(CASE WHEN {filter} THEN id END)");
                fixture.same(&format!("SELECT {sum} FROM {{t}}")).await;
            }
        }
    }
}
