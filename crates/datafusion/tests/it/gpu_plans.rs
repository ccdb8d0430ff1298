//! The plans of TPC-H's queries with kernels in them.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatchReader;
use datafusion::catalog::MemTable;
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator,
    RegionGenerator, SupplierGenerator,
};
use tpchgen_arrow::{
    CustomerArrow, LineItemArrow, NationArrow, OrderArrow, PartArrow, RegionArrow, SupplierArrow,
};

use crate::support::Fixture;

/// Scale factor. Plans do not depend on it, but the tables are written.
const SCALE: f64 = 0.001;

/// Tables of TPC-H and a device; `None`, with a message, without a C++ compiler.
async fn tpch() -> Option<Fixture> {
    let fixture = Fixture::on_emulator()?;
    let lineitem = LineItemArrow::new(LineItemGenerator::new(SCALE, 1, 1));
    fixture.add("lineitem", lineitem).await;
    let part = PartArrow::new(PartGenerator::new(SCALE, 1, 1));
    fixture.add("part", part).await;
    let orders = OrderArrow::new(OrderGenerator::new(SCALE, 1, 1));
    fixture.add("orders", orders).await;
    let customer = CustomerArrow::new(CustomerGenerator::new(SCALE, 1, 1));
    fixture.add("customer", customer).await;
    let supplier = SupplierArrow::new(SupplierGenerator::new(SCALE, 1, 1));
    fixture.add("supplier", supplier).await;
    let nation = NationArrow::new(NationGenerator::new(SCALE, 1, 1));
    fixture.add("nation", nation).await;
    let region = RegionArrow::new(RegionGenerator::new(SCALE, 1, 1));
    fixture.add("region", region).await;
    fixture.run("SET vectile.gpu = 'on'").await.unwrap();
    Some(fixture)
}

impl Fixture {
    async fn add(&self, name: &str, rows: impl RecordBatchReader) {
        let schema = rows.schema();
        let rows = rows.collect::<Result<_, _>>().unwrap();
        let rows = MemTable::try_new(schema, vec![rows]).unwrap();
        self.ctx.register_table("rows", Arc::new(rows)).unwrap();
        let path = self.path(&format!("{name}.vectile"));
        let copy = format!("COPY rows TO '{}' STORED AS VECTILE", path.display());
        self.run(&copy).await.unwrap();
        self.ctx.deregister_table("rows").unwrap();
        self.register(name, &path).await;
    }

    /// The plan without parts that change between runs.
    async fn stable_plan(&self, sql: &str) -> String {
        let folder = self.dir.path().display().to_string();
        let folder = folder.trim_start_matches('/');
        self.plan(sql).await.replace(folder, "[folder]")
    }
}

#[tokio::test]
async fn plans() {
    let Some(tpch) = tpch().await else { return };
    for (name, sql) in [
        ("q6", include_str!("../../../../sql-tests/tpch/q6.sql")),
        ("q5", include_str!("../../../../sql-tests/tpch/q5.sql")),
        ("q7", include_str!("../../../../sql-tests/tpch/q7.sql")),
        ("q8", include_str!("../../../../sql-tests/tpch/q8.sql")),
        ("q10", include_str!("../../../../sql-tests/tpch/q10.sql")),
        ("q14", include_str!("../../../../sql-tests/tpch/q14.sql")),
        ("q19", include_str!("../../../../sql-tests/tpch/q19.sql")),
        (
            "q1_without_groups",
            "SELECT sum(l_quantity), sum(l_extendedprice), sum(l_extendedprice * (1 - l_discount)), \
             sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)), avg(l_quantity), \
             avg(l_extendedprice), avg(l_discount), count(*) \
             FROM lineitem WHERE l_shipdate <= DATE '1998-09-02'",
        ),
        (
            "filter_and_project",
            "SELECT l_orderkey, l_extendedprice * l_discount AS saved FROM lineitem \
             WHERE l_quantity > 45 AND l_shipmode IN ('AIR', 'RAIL')",
        ),
        (
            "filter_and_text",
            "SELECT l_orderkey, l_comment FROM lineitem WHERE l_quantity > 45",
        ),
    ] {
        insta::assert_snapshot!(name, tpch.stable_plan(sql).await);
    }
}
