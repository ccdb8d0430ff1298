//! Aggregates as programs on the CPU, beside DataFusion's operators over the same file and over a table in memory.

use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use vectile_datafusion::Gpu;

use crate::support::{Fixture, metric};

async fn fixture() -> Fixture {
    let fixture = Fixture::on(Gpu::none("a test of the CPU"));
    fixture.add_tables().await;
    fixture.run("SET vectile.fuse = true").await.unwrap();
    fixture
}

/// Queries whose aggregates have programs.
const FUSED: &[&str] = &[
    "SELECT count(*), count(int), sum(int), min(int), max(int), avg(int) FROM {t}",
    "SELECT sum(big), min(big), max(big), count(big) FROM {t}",
    "SELECT sum(byte), sum(price), avg(price), min(price), max(price * 2) FROM {t} WHERE id < 9999",
    "SELECT min(float), max(float), count(float) FROM {t}",
    "SELECT name, count(*), sum(price) FROM {t} GROUP BY name ORDER BY name",
    "SELECT one, name, count(int) FROM {t} WHERE int > 0 GROUP BY one, name ORDER BY name",
    "SELECT flag, byte % 4 AS rest, count(*), min(date), max(time) FROM {t} GROUP BY flag, rest ORDER BY flag, rest",
    "SELECT extract(month FROM date) AS month, count(*) FROM {t} GROUP BY month ORDER BY month",
    "SELECT count(*) FROM {t} WHERE name LIKE '%an%' OR int IS NULL",
    "SELECT count(*), sum(id) FROM {t} WHERE int + byte > 100 AND NOT flag",
    "SELECT sum(CASE WHEN flag THEN int WHEN int < 0 THEN byte END) FROM {t}",
    "SELECT count(*) FROM {t} WHERE CASE WHEN name = 'apple' THEN int ELSE byte END > 77",
    "SELECT void, count(*), count(void), sum(void) FROM {t} GROUP BY void",
    "SELECT count(*), sum(int), min(date) FROM {t} WHERE id < 0",
    "SELECT name, count(*) FROM {t} WHERE id < 0 GROUP BY name",
    "SELECT DISTINCT name, flag FROM {t} ORDER BY name, flag",
    "SELECT flag, sum(int) FILTER (WHERE byte > 100), count(*) FROM {t} GROUP BY flag ORDER BY flag",
    "SELECT name, count(*) AS n FROM {t} GROUP BY name HAVING count(*) > 1000 ORDER BY n DESC, name LIMIT 2",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn programs_have_the_answers_of_operators() {
    let fixture = fixture().await;
    for sql in FUSED {
        let of_file = sql.replace("{t}", "packed");
        let plan = fixture.plan(&of_file).await;
        assert!(plan.contains("device=CPU"), "{sql}: {plan}");
        let (plan, _) = fixture.executed(&of_file).await;
        assert_eq!(metric(&plan, "fallbacks"), 0, "{sql}");
        fixture.same(sql).await;
    }
}

/// Operators take over where a program has no instruction, or a key no dictionary, and the answer is the same.
#[tokio::test]
async fn operators_do_what_programs_cannot() {
    let fixture = fixture().await;
    for sql in [
        "SELECT text, count(*) FROM {t} GROUP BY text ORDER BY text LIMIT 5",
        "SELECT id, count(*) FROM {t} GROUP BY id ORDER BY id LIMIT 5",
        "SELECT big, count(*) FROM {t} GROUP BY big ORDER BY 2 DESC, 1 LIMIT 5",
        "SELECT dict, count(*) FROM {t} GROUP BY dict ORDER BY dict",
        "SELECT name, median(int) FROM {t} GROUP BY name ORDER BY name",
        "SELECT flag, name, count(*) FROM {t} GROUP BY CUBE (flag, name) ORDER BY 3 DESC, 1, 2",
        "SELECT count(*) FROM {t} WHERE nested['x'] > 0",
        "SELECT count(DISTINCT name) FROM {t}",
    ] {
        fixture.same(sql).await;
    }
}

/// Both settings are tried in one session, whose plans are cached.
#[tokio::test]
async fn a_setting_switches_programs_off() {
    let fixture = fixture().await;
    let sql = "SELECT sum(id) FROM packed WHERE int > 7";
    let answer = fixture.answer(sql).await;
    for (fuse, is_fused) in [("false", false), ("true", true), ("false", false)] {
        let set = format!("SET vectile.fuse = {fuse}");
        fixture.run(&set).await.unwrap();
        let plan = fixture.plan(sql).await;
        assert_eq!(plan.contains("device=CPU"), is_fused, "{plan}");
        assert_eq!(fixture.answer(sql).await, answer);
    }
}

/// A program takes its memory from the pool. If there is too little, the operators take less or fail.
#[tokio::test]
async fn too_little_memory_is_left_to_operators() {
    let whole = fixture().await;
    let runtime = RuntimeEnvBuilder::new()
        .with_memory_limit(1 << 10, 1.0)
        .build_arc()
        .unwrap();
    let ctx = SessionContext::new_with_config_rt(SessionConfig::new(), runtime);
    vectile_datafusion::register_with_gpu(&ctx, Gpu::none("a test of the CPU")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let tight = Fixture { ctx, dir };
    let path = whole.path("packed.vectile");
    tight.register("packed", &path).await;
    tight.run("SET vectile.fuse = true").await.unwrap();
    let sql = "SELECT sum(id) FROM packed WHERE int > 7";
    let error = tight.run(sql).await.unwrap_err();
    let error = error.find_root().to_string();
    assert!(error.contains("VectileScan"), "{error}");
}
