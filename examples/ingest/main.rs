//! A service that takes readings over HTTP and answers SQL over them: `cargo run --example ingest [FILE]`.
//!
//! ```sh
//! curl localhost:3000/readings -d '{"at": "2026-01-01T00:00:00Z", "sensor": 7, "value": 21.5}'
//! curl localhost:3000/query -d 'SELECT sensor, avg(value) FROM readings GROUP BY sensor'
//! curl localhost:3000/size
//! ```
//!
//! Readings are in memory. The service reads FILE when it starts and writes it on Ctrl-C. A crash loses what came since.
//! It trusts whoever reaches its port: a query may take as much memory and time as the limits below and DataFusion allow.
//!
//! `media` has the forms of bodies: JSON and Arrow IPC streams.

mod media;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::future::IntoFuture;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use axum::routing::{get, post};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::execution::context::SQLOptions;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext, col, lit};
use futures::{FutureExt, TryStreamExt};
use tokio::net::TcpListener;
use vectile::session::TableOptions;
use vectile::{VectileReadOptions, VectileSessionContextExt, VectileTable, VectileTableOptions};

use media::{Answer, Failure, Media};

const MOST_BODY_BYTES: usize = 16 << 20;
const MOST_ANSWER_BYTES: usize = 64 << 20;
const LONGEST_QUERY: Duration = Duration::from_secs(30);
/// How long requests may still take when the service is to end.
const LONGEST_END: Duration = Duration::from_secs(10);
/// Retention removes whole row groups: one should fill in a fraction of the time that readings are kept.
const ROW_GROUP_ROWS: usize = 1 << 14;

struct Settings {
    file: String,
    /// How long readings are kept, by the column `at`.
    keep: Duration,
    /// How often older ones are removed.
    remove_every: Duration,
    /// Bytes for readings and queries. Readings get half of them.
    memory: usize,
}

struct Service {
    settings: Settings,
    ctx: SessionContext,
    readings: Arc<VectileTable>,
}

fn schema() -> SchemaRef {
    let at = DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()));
    Arc::new(Schema::new(vec![
        Field::new("at", at, false),
        Field::new("sensor", DataType::Int32, false),
        Field::new("value", DataType::Float64, false),
    ]))
}

impl Service {
    /// Makes the table, with the readings of the file if there is one.
    async fn open(settings: Settings) -> Result<Self> {
        let runtime = RuntimeEnvBuilder::new().with_memory_limit(settings.memory, 1.0);
        let ctx = SessionContext::new_with_config_rt(SessionConfig::new(), runtime.build_arc()?);
        vectile::register(&ctx)?;
        // clients do not decide what stays on the GPU
        for function in ["vectile_load", "vectile_unload"] {
            ctx.deregister_udtf(function);
        }
        let mut table = TableOptions::default();
        table.row_group_rows = Some(ROW_GROUP_ROWS);
        let options = VectileTableOptions::default()
            .with_table(table)
            .with_memory_pool(Arc::clone(&ctx.runtime_env().memory_pool))
            .with_memory_limit(Some(settings.memory / 2));
        let readings = Arc::new(VectileTable::try_new(schema(), options)?);
        ctx.register_table("readings", Arc::clone(&readings) as _)?;
        if Path::new(&settings.file).exists() {
            ctx.register_vectile("saved", &settings.file, VectileReadOptions::default())
                .await?;
            // takes the row groups as they are in the file, without decoding them
            let insert = "INSERT INTO readings SELECT * FROM saved";
            ctx.sql(insert).await?.collect().await?;
            ctx.deregister_table("saved")?;
        }
        Ok(Self {
            settings,
            ctx,
            readings,
        })
    }

    /// Writes all readings to the file. If that fails, the file is as before.
    async fn save(&self) -> Result<()> {
        let file = self.settings.file.replace('\'', "''");
        let copy = format!("COPY readings TO '{file}' STORED AS VECTILE OPTIONS (replace true)");
        self.ctx.sql(&copy).await?.collect().await?;
        Ok(())
    }

    /// Removes, again and again, the row groups whose readings are all too old.
    async fn remove_old(&self) {
        let mut times = tokio::time::interval(self.settings.remove_every);
        loop {
            times.tick().await;
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            let oldest = now.unwrap_or_default().saturating_sub(self.settings.keep);
            let oldest = i64::try_from(oldest.as_millis()).ok();
            let oldest = ScalarValue::TimestampMillisecond(oldest, Some("UTC".into()));
            let is_old = col("at").lt(lit(oldest));
            if let Err(error) = self.readings.remove_row_groups(&is_old).await {
                eprintln!("old readings stay: {error}");
            }
        }
    }

    /// Adds the readings of a body: all of them, or none if one is wrong.
    async fn append(
        State(service): State<Arc<Self>>,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response, Failure> {
        let media = Media::of(&headers, &header::CONTENT_TYPE);
        // on a thread of its own, where arrow may panic: it does on some malformed streams
        let decoded = tokio::task::spawn_blocking(move || media.decode(body, &schema())).await;
        let batches = decoded.map_err(|_| Failure::request("the body is malformed"))??;
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        service.readings.append(batches).await?;
        Ok(Media::Json.response(format!(r#"{{"rows": {rows}}}"#)))
    }

    async fn size(State(service): State<Arc<Self>>) -> Response {
        let size = service.readings.size();
        Media::Json.response(format!(
            r#"{{"rows": {}, "encoded_rows": {}, "row_groups": {}, "bytes": {}}}"#,
            size.rows, size.sealed_rows, size.row_groups, size.bytes
        ))
    }

    async fn get_query(
        State(service): State<Arc<Self>>,
        headers: HeaderMap,
        Query(mut parameters): Query<HashMap<String, String>>,
    ) -> Result<Response, Failure> {
        let sql = parameters.remove("sql");
        let sql = sql.ok_or_else(|| Failure::request("there is no parameter 'sql'"))?;
        service.query(&headers, &sql).await
    }

    async fn post_query(
        State(service): State<Arc<Self>>,
        headers: HeaderMap,
        sql: String,
    ) -> Result<Response, Failure> {
        service.query(&headers, &sql).await
    }

    async fn query(&self, headers: &HeaderMap, sql: &str) -> Result<Response, Failure> {
        let media = Media::of(headers, &header::ACCEPT);
        let rows = tokio::time::timeout(LONGEST_QUERY, self.rows(sql, media)).await;
        let late = format!("the query took longer than {LONGEST_QUERY:?}");
        let rows = rows.map_err(|_| Failure::new(StatusCode::GATEWAY_TIMEOUT, late))??;
        Ok(media.response(rows))
    }

    /// The rows of a query. They are complete before the answer begins, so that every error has a status.
    async fn rows(&self, sql: &str, media: Media) -> Result<Vec<u8>, Failure> {
        let only_reads = SQLOptions::new()
            .with_allow_ddl(false)
            .with_allow_dml(false)
            .with_allow_statements(false);
        let frame = self.ctx.sql_with_options(sql, only_reads).await?;
        let mut rows = frame.execute_stream().await?;
        let mut answer = Answer::new(media, &rows.schema())?;
        while let Some(batch) = rows.try_next().await? {
            answer.write(&batch)?;
            if answer.bytes() > MOST_ANSWER_BYTES {
                let most = format!("the answer is longer than {MOST_ANSWER_BYTES} bytes");
                return Err(Failure::request(most));
            }
        }
        Ok(answer.finish()?)
    }
}

/// Answers requests until `stop`, then writes the file.
async fn serve(
    listener: TcpListener,
    settings: Settings,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<()> {
    let service = Arc::new(Service::open(settings).await?);
    let nowhere = || async { Failure::new(StatusCode::NOT_FOUND, "there is no such path") };
    let routes = Router::new()
        .route("/readings", post(Service::append))
        .route("/query", get(Service::get_query).post(Service::post_query))
        .route("/size", get(Service::size))
        .fallback(nowhere)
        .layer(DefaultBodyLimit::max(MOST_BODY_BYTES))
        .with_state(Arc::clone(&service));
    let stop = stop.shared();
    let server = axum::serve(listener, routes).with_graceful_shutdown(stop.clone());
    let end = async {
        stop.await;
        tokio::time::sleep(LONGEST_END).await;
    };
    let served = tokio::select! {
        served = server.into_future() => served,
        () = end => Ok(()),
        () = service.remove_old() => Ok(()),
    };
    service.save().await?;
    Ok(served?)
}

#[tokio::main]
async fn main() -> Result<()> {
    let file = std::env::args().nth(1);
    let settings = Settings {
        file: file.unwrap_or_else(|| "readings.vectile".into()),
        keep: Duration::from_hours(24),
        remove_every: Duration::from_secs(5),
        memory: 4 << 30,
    };
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    println!("http://{}", listener.local_addr()?);
    let stop = async {
        let _ = tokio::signal::ctrl_c().await;
    };
    serve(listener, settings, stop).await
}
