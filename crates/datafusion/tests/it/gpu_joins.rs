//! Joins with filters beside their keys, evaluated per match, entirely on the device.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::streaming::StreamingTable;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::SendableRecordBatchStream;
use datafusion::physical_plan::stream::EmptyRecordBatchStream;
use datafusion::physical_plan::streaming::PartitionStream;
use vectile_datafusion::Gpu;

use crate::support::{Fixture, emulator};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn matches_meet_any_condition() {
    let Some(engine) = emulator() else { return };
    let fixture = Fixture::on(Gpu::new(engine));
    let set = async |value: &str| {
        let sql = format!("SET vectile.gpu = '{value}'");
        fixture.run(&sql).await.unwrap();
    };
    for (name, rows) in [
        (
            "sales",
            "value % 97 AS k, value % 50 AS a, value AS v FROM generate_series(1, 4000)",
        ),
        // Each key occurs six or seven times.
        (
            "offers",
            "value % 60 AS o_k, value % 31 AS b, value % 7 AS c FROM generate_series(1, 400)",
        ),
    ] {
        fixture.make(name, &format!("SELECT {rows}")).await;
    }
    let both = "o_k = k AND b < a AND c > a % 5";
    for (kind, query) in [
        (
            "semi with a condition",
            format!("WHERE EXISTS (SELECT 1 FROM offers WHERE {both})"),
        ),
        (
            "anti with a condition",
            format!("WHERE NOT EXISTS (SELECT 1 FROM offers WHERE {both})"),
        ),
        (
            "outer with a condition",
            format!("LEFT JOIN offers ON {both} WHERE coalesce(c, 3) < 5"),
        ),
        (
            "outer",
            "WHERE EXISTS (SELECT 1 FROM offers WHERE o_k = k) OR a < 3".into(),
        ),
        (
            "inner",
            "JOIN offers ON o_k = k WHERE b = 3 OR a > 40".into(),
        ),
    ] {
        let query = format!("SELECT count(*), sum(v), sum(a * v) FROM sales {query}");
        set("off").await;
        let expected = fixture.answer(&query).await;
        set("require").await;
        assert_eq!(fixture.answer(&query).await, expected, "{query}");
        let plan = fixture.answer(&format!("EXPLAIN {query}")).await;
        assert!(plan.contains(&format!("({kind})")), "{plan}");
    }
}

/// A table that claims to be endless.
#[derive(Debug)]
struct Endless(SchemaRef);

impl PartitionStream for Endless {
    fn schema(&self) -> &SchemaRef {
        &self.0
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        Box::pin(EmptyRecordBatchStream::new(Arc::clone(&self.0)))
    }
}

/// Reading one would take forever. DataFusion probes with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_tables_are_no_build_sides() {
    let Some(engine) = emulator() else { return };
    let fixture = Fixture::on(Gpu::new(engine));
    fixture.run("SET vectile.gpu = 'on'").await.unwrap();
    let rows = "SELECT value AS k, value % 7 AS v FROM generate_series(1, 4000)";
    fixture.make("sales", rows).await;
    let schema = Arc::new(Schema::new(vec![Field::new("e", DataType::Int64, true)]));
    let partition = Arc::new(Endless(Arc::clone(&schema)));
    let endless = StreamingTable::try_new(schema, vec![partition]).unwrap();
    let endless = Arc::new(endless.with_infinite_table(true));
    fixture.ctx.register_table("endless", endless).unwrap();
    let query = "EXPLAIN SELECT k, v FROM endless JOIN sales ON e = k WHERE v = 3";
    let plan = fixture.answer(query).await;
    assert!(
        plan.contains("StreamingTableExec") && !plan.contains("Fused"),
        "{plan}"
    );
    assert!(
        plan.contains("join: the table it looks up has no end"),
        "{plan}"
    );
}
