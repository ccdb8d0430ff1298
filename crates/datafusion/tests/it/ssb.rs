//! The queries of the Star Schema Benchmark: their plans with a kernel in them, and their answers, over
//! tables of its schema with few rows.

use crate::support::{Fixture, metric, orc_files};

const JOINS: [(&str, &str); 4] = [
    ("date", "lo_orderdate = d_datekey"),
    ("customer", "lo_custkey = c_custkey"),
    ("supplier", "lo_suppkey = s_suppkey"),
    ("part", "lo_partkey = p_partkey"),
];

/// Names, and the parts that differ between queries: select list, other tables, filters, groups, order.
const QUERIES: [(&str, [&str; 5]); 13] = [
    (
        "q1_1",
        [
            PRODUCT,
            "date",
            "d_year = 1993 and lo_discount between 1 and 3 and lo_quantity < 25",
            "",
            "",
        ],
    ),
    (
        "q1_2",
        [
            PRODUCT,
            "date",
            "d_yearmonthnum = 199401 and lo_discount between 4 and 6 and lo_quantity between 26 and 35",
            "",
            "",
        ],
    ),
    (
        "q1_3",
        [
            PRODUCT,
            "date",
            "d_weeknuminyear = 6 and d_year = 1994 and lo_discount between 5 and 7 and lo_quantity between 26 and 35",
            "",
            "",
        ],
    ),
    (
        "q2_1",
        [
            REVENUE,
            "date part supplier",
            "p_category = 'MFGR#12' and s_region = 'AMERICA'",
            "d_year, p_brand1",
            "d_year, p_brand1",
        ],
    ),
    (
        "q2_2",
        [
            REVENUE,
            "date part supplier",
            "p_brand1 between 'MFGR#121' and 'MFGR#128' and s_region = 'ASIA'",
            "d_year, p_brand1",
            "d_year, p_brand1",
        ],
    ),
    (
        "q2_3",
        [
            REVENUE,
            "date part supplier",
            "p_brand1 = 'MFGR#129' and s_region = 'EUROPE'",
            "d_year, p_brand1",
            "d_year, p_brand1",
        ],
    ),
    (
        "q3_1",
        [
            REVENUE,
            "customer supplier date",
            "c_region = 'ASIA' and s_region = 'ASIA' and d_year >= 1992 and d_year <= 1997",
            "c_nation, s_nation, d_year",
            BY_REVENUE,
        ],
    ),
    (
        "q3_2",
        [
            REVENUE,
            "customer supplier date",
            "c_nation = 'NATION 3' and s_nation = 'NATION 3' and d_year >= 1992 and d_year <= 1997",
            "c_city, s_city, d_year",
            BY_REVENUE,
        ],
    ),
    (
        "q3_3",
        [
            REVENUE,
            "customer supplier date",
            CITIES,
            "c_city, s_city, d_year",
            BY_REVENUE,
        ],
    ),
    (
        "q3_4",
        [
            REVENUE,
            "customer supplier date",
            "d_yearmonth = 'Jan1993' and (c_city = 'CITY 31' or c_city = 'CITY 35') and (s_city = 'CITY 31' or s_city = 'CITY 35')",
            "c_city, s_city, d_year",
            BY_REVENUE,
        ],
    ),
    (
        "q4_1",
        [
            PROFIT,
            "date customer supplier part",
            "c_region = 'AMERICA' and s_region = 'AMERICA' and (p_mfgr = 'MFGR#1' or p_mfgr = 'MFGR#2')",
            "d_year, c_nation",
            "d_year, c_nation",
        ],
    ),
    (
        "q4_2",
        [
            PROFIT,
            "date customer supplier part",
            "c_region = 'AMERICA' and s_region = 'AMERICA' and (d_year = 1993 or d_year = 1994) and (p_mfgr = 'MFGR#1' or p_mfgr = 'MFGR#2')",
            "d_year, s_nation, p_category",
            "d_year, s_nation, p_category",
        ],
    ),
    (
        "q4_3",
        [
            PROFIT,
            "date customer supplier part",
            "c_region = 'AMERICA' and s_nation = 'NATION 1' and (d_year = 1993 or d_year = 1994) and p_category = 'MFGR#14'",
            "d_year, s_city, p_brand1",
            "d_year, s_city, p_brand1",
        ],
    ),
];

const PRODUCT: &str = "sum(lo_extendedprice * lo_discount) as revenue";
const REVENUE: &str = "sum(lo_revenue) as revenue";
const PROFIT: &str = "sum(lo_revenue - lo_supplycost) as profit";
const BY_REVENUE: &str = "d_year asc, revenue desc";
const CITIES: &str = "(c_city = 'CITY 31' or c_city = 'CITY 35') \
    and (s_city = 'CITY 31' or s_city = 'CITY 35') and d_year >= 1992 and d_year <= 1997";

fn sql([select, tables, filter, groups, order]: [&str; 5]) -> String {
    let joins = JOINS.iter().filter(|(table, _)| tables.contains(table));
    let joins: Vec<&str> = joins.map(|(_, join)| *join).collect();
    let (tables, joins) = (tables.replace(' ', ", "), joins.join(" and "));
    let from = format!("from lineorder, {tables} where {joins} and {filter}");
    match groups {
        "" => format!("select {select} {from}"),
        _ => format!("select {groups}, {select} {from} group by {groups} order by {order}"),
    }
}

const TABLES: [(&str, &str); 5] = [
    (
        "date",
        "SELECT CAST(date_part('year', day) * 10000 + date_part('month', day) * 100 \
           + date_part('day', day) AS INT) AS d_datekey, \
           CAST(date_part('year', day) AS INT) AS d_year, \
           CAST(date_part('year', day) * 100 + date_part('month', day) AS INT) AS d_yearmonthnum, \
           concat(CASE WHEN date_part('month', day) = 12 THEN 'Dec' ELSE 'Jan' END, \
           CAST(date_part('year', day) AS VARCHAR)) AS d_yearmonth, \
           CAST(date_part('doy', day) / 7 + 1 AS INT) AS d_weeknuminyear \
         FROM (SELECT DATE '1992-01-01' + CAST(value AS INT) AS day FROM generate_series(0, 1200))",
    ),
    (
        "customer",
        "SELECT CAST(value AS INT) AS c_custkey, concat('CITY ', value % 50) AS c_city, \
           concat('NATION ', value % 5) AS c_nation, {region} AS c_region FROM generate_series(1, 500)",
    ),
    (
        "supplier",
        "SELECT CAST(value AS INT) AS s_suppkey, concat('CITY ', value % 50) AS s_city, \
           concat('NATION ', value % 5) AS s_nation, {region} AS s_region FROM generate_series(1, 300)",
    ),
    (
        "part",
        "SELECT CAST(value AS INT) AS p_partkey, concat('MFGR#', 1 + value % 2) AS p_mfgr, \
           concat('MFGR#1', 1 + value % 5) AS p_category, concat('MFGR#12', 1 + value % 9) AS p_brand1 \
         FROM generate_series(1, 400)",
    ),
    (
        "lineorder",
        "SELECT CAST(d AS INT) AS lo_orderdate, CAST(1 + value * 7 % 500 AS INT) AS lo_custkey, \
           CAST(1 + value * 7919 / 101 % 300 AS INT) AS lo_suppkey, \
           CAST(1 + (value * 13 + value / 11) % 400 AS INT) AS lo_partkey, \
           CAST(value % 50 + 1 AS INT) AS lo_quantity, CAST(value % 11 AS INT) AS lo_discount, \
           value * 37 % 100000 AS lo_extendedprice, value * 31 % 100000 AS lo_revenue, \
           value * 17 % 50000 AS lo_supplycost \
         FROM generate_series(1, 20000) \
         JOIN (SELECT d_datekey AS d, row_number() OVER (ORDER BY d_datekey) AS n FROM date) \
         ON n = 1 + value * 3 % 1201",
    ),
];

const REGION: &str = "CASE value % 5 WHEN 0 THEN 'ASIA' WHEN 1 THEN 'AMERICA' \
    WHEN 2 THEN 'EUROPE' WHEN 3 THEN 'ASIA' ELSE 'AFRICA' END";

/// The tables and a device; `None`, with a message, without a C++ compiler.
async fn ssb() -> Option<Fixture> {
    let fixture = Fixture::on_emulator()?;
    for (name, sql) in TABLES {
        let path = fixture.path(&format!("{name}.vectile"));
        let sql = sql.replace("{region}", REGION);
        let copy = format!("COPY ({sql}) TO '{}' STORED AS VECTILE", path.display());
        fixture.run(&copy).await.unwrap();
        fixture.register(name, &path).await;
    }
    fixture.run("SET vectile.gpu = 'on'").await.unwrap();
    Some(fixture)
}

#[tokio::test]
async fn each_query_is_one_kernel() {
    let Some(ssb) = ssb().await else { return };
    for (name, query) in QUERIES {
        let plan = ssb.plan(&sql(query)).await;
        let joins = query[1].split(' ').count();
        let kernels: Vec<&str> = plan
            .lines()
            .filter(|line| line.contains("FusedAggregateExec"))
            .collect();
        assert_eq!(kernels.len(), 1, "{name}\n{plan}");
        assert_eq!(
            kernels[0].matches("(inner)").count(),
            joins,
            "{name}\n{plan}"
        );
        assert!(!plan.contains("HashJoinExec"), "{name}\n{plan}");
        assert!(!plan.contains("lineorder.vectile"), "{name}\n{plan}");
        if ["q1_1", "q2_1", "q3_1", "q4_2"].contains(&name) {
            let folder = ssb.dir.path().display().to_string();
            let plan = plan.replace(folder.trim_start_matches('/'), "[folder]");
            insta::assert_snapshot!(name, plan);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_are_those_of_the_cpu() {
    let Some(ssb) = ssb().await else { return };
    for (name, query) in QUERIES {
        let sql = sql(query);
        ssb.run("SET vectile.gpu = off").await.unwrap();
        let expected = ssb.answer(&sql).await;
        assert!(expected.lines().count() > 4, "{name}: nothing passes");
        ssb.run("SET vectile.gpu = require").await.unwrap();
        for run in 0..2 {
            assert_eq!(ssb.answer(&sql).await, expected, "{name}, run {run}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_over_orc_files_are_those_of_the_cpu() {
    let Some(ssb) = ssb().await else { return };
    for (name, _) in TABLES {
        let path = ssb.path(&format!("{name}.parquet"));
        let copy = format!("COPY {name} TO '{}' STORED AS PARQUET", path.display());
        ssb.run(&copy).await.unwrap();
    }
    let Some(folder) = orc_files(ssb.dir.path()) else {
        return;
    };
    for (name, _) in TABLES {
        ssb.ctx.deregister_table(name).unwrap();
        let path = folder.join(format!("{name}.orc"));
        ssb.create(name, &path, "").await;
    }
    for (name, query) in QUERIES {
        let sql = sql(query);
        ssb.run("SET vectile.gpu = off").await.unwrap();
        let expected = ssb.answer(&sql).await;
        assert!(expected.lines().count() > 4, "{name}: nothing passes");
        ssb.run("SET vectile.gpu = require").await.unwrap();
        for run in 0..2 {
            assert_eq!(ssb.answer(&sql).await, expected, "{name}, run {run}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn key_tables_are_cached_for_the_next_query() {
    let Some(ssb) = ssb().await else { return };
    let query = QUERIES[3].1;
    let joins = query[1].split(' ').count();
    let sql = sql(query);
    let (cold, _) = ssb.executed(&sql).await;
    assert_eq!(metric(&cold, "lookups_cached"), 0);
    assert!(metric(&cold, "build_rows") > 0);
    let (warm, _) = ssb.executed(&sql).await;
    assert_eq!(metric(&warm, "lookups_cached"), joins);
    assert_eq!(metric(&warm, "build_rows"), 0);
    // Another filter needs another key table, and so does another file.
    let other = sql.replace("AMERICA", "ASIA");
    let (other, _) = ssb.executed(&other).await;
    assert_eq!(metric(&other, "lookups_cached"), joins - 1);
}
