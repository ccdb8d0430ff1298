//! Requests to a service on a port of its own.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arrow::array::{Float64Array, Int32Array, RecordBatch, TimestampMillisecondArray};
use arrow::datatypes::Schema;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use datafusion::error::Result;
use futures::FutureExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::{ROW_GROUP_ROWS, Settings, schema, serve};

const STREAM: &str = "application/vnd.apache.arrow.stream";

struct Server {
    address: String,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<Result<()>>,
}

impl Server {
    async fn start(settings: Settings) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn(serve(listener, settings, stopped.map(|_| ())));
        Self {
            address,
            stop,
            serving,
        }
    }

    /// Stops the service and waits until it has written its file.
    async fn end(self) {
        self.stop.send(()).unwrap();
        self.serving.await.unwrap().unwrap();
    }

    /// Status and body of the answer to a request. `media` is what it sends and accepts.
    async fn ask(&self, request: &str, media: &str, body: &[u8]) -> (u16, Vec<u8>) {
        let mut connection = TcpStream::connect(&self.address).await.unwrap();
        let head = format!(
            "{request} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: {media}\r\n\
             Accept: {media}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        connection.write_all(head.as_bytes()).await.unwrap();
        // a body that is too long is refused before it is read
        let _ = connection.write_all(body).await;
        let mut answer = Vec::new();
        let _ = connection.read_to_end(&mut answer).await;
        let mut parts = answer.splitn(2, |byte| *byte == b' ');
        let status = parts.nth(1).expect("an answer");
        let status = String::from_utf8_lossy(&status[..3]).parse().unwrap();
        let body = answer.windows(4).position(|window| window == b"\r\n\r\n");
        (status, answer.split_off(body.unwrap() + 4))
    }

    /// The text of an answer, with its status if it is not 200.
    async fn text(&self, request: &str, body: &str) -> String {
        let (status, answer) = self.ask(request, "text/plain", body.as_bytes()).await;
        let answer = String::from_utf8(answer).unwrap();
        match status {
            200 => answer,
            _ => format!("{status} {answer}"),
        }
    }

    async fn append(&self, rows: &str) -> String {
        self.text("POST /readings", rows).await
    }

    async fn append_stream(&self, rows: &[u8]) -> (u16, Vec<u8>) {
        self.ask("POST /readings", STREAM, rows).await
    }

    async fn query(&self, sql: &str) -> String {
        self.text("POST /query", sql).await
    }

    async fn size(&self) -> String {
        self.text("GET /size", "").await
    }
}

fn settings(file: &Path) -> Settings {
    Settings {
        file: file.display().to_string(),
        keep: Duration::from_secs(3600),
        remove_every: Duration::from_millis(100),
        memory: 64 << 20,
    }
}

fn milliseconds_now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(now.as_millis()).unwrap()
}

/// A reading of now.
fn reading(sensor: i32, value: f64) -> String {
    let at = milliseconds_now();
    format!(r#"{{"at": {at}, "sensor": {sensor}, "value": {value}}}"#)
}

/// An IPC stream of `rows` readings, one for each millisecond from `at` on.
fn stream(at: i64, rows: i32) -> Vec<u8> {
    let times = TimestampMillisecondArray::from_iter_values((0..rows).map(|i| at + i64::from(i)));
    let sensors = Int32Array::from_iter_values((0..rows).map(|i| i % 10));
    let values = Float64Array::from_iter_values((0..rows).map(|i| f64::from(i) / 2.0));
    let times = Arc::new(times.with_timezone("UTC"));
    let columns = vec![times as _, Arc::new(sensors) as _, Arc::new(values) as _];
    stream_of(&RecordBatch::try_new(schema(), columns).unwrap())
}

fn stream_of(batch: &RecordBatch) -> Vec<u8> {
    let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    writer.write(batch).unwrap();
    writer.into_inner().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn readings_are_answered_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(settings(&dir.path().join("readings.vectile"))).await;
    assert_eq!(server.query("SELECT * FROM readings").await, "[]");

    let lines = [reading(1, 0.5), reading(2, 1.5)].join("\n");
    assert_eq!(server.append(&lines).await, r#"{"rows": 2}"#);
    let array = format!(" [{}, {}]", reading(1, 2.5), reading(1, 3.0));
    assert_eq!(server.append(&array).await, r#"{"rows": 2}"#);
    let late = r#"{"value": -1, "at": "2100-01-01T00:00:00+01:00", "sensor": 3}"#;
    assert_eq!(server.append(late).await, r#"{"rows": 1}"#);
    let (status, _) = server.append_stream(&stream(milliseconds_now(), 100)).await;
    assert_eq!(status, 200);
    assert_eq!(server.append("[]").await, r#"{"rows": 0}"#);
    assert_eq!(server.append("").await, r#"{"rows": 0}"#);
    assert!(server.size().await.starts_with(r#"{"rows": 105, "#));

    let sums = "SELECT sensor, count(*) AS n, sum(value) AS sum FROM readings
                WHERE sensor < 2 GROUP BY sensor ORDER BY sensor";
    let expected = r#"[{"sensor":0,"n":10,"sum":225.0},{"sensor":1,"n":13,"sum":236.0}]"#;
    assert_eq!(server.query(sums).await, expected);
    let count = "GET /query?sql=SELECT+count(*)+AS+n+FROM+readings";
    assert_eq!(server.text(count, "").await, r#"[{"n":105}]"#);
    let latest = "SELECT max(at) AS at, max(at) FILTER (WHERE sensor > 50) AS none FROM readings";
    let expected = r#"[{"at":"2099-12-31T23:00:00Z","none":null}]"#;
    assert_eq!(server.query(latest).await, expected);

    let all = b"SELECT * FROM readings";
    let (status, answer) = server.ask("POST /query", STREAM, all).await;
    assert_eq!(status, 200);
    let batches = StreamReader::try_new(answer.as_slice(), None).unwrap();
    let rows = batches.map(|batch| batch.unwrap().num_rows());
    assert_eq!(rows.sum::<usize>(), 105);
    server.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_requests_are_errors_and_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(settings(&dir.path().join("readings.vectile"))).await;
    let right = reading(1, 0.5);
    server.append(&right).await;
    let at = r#""at": "2026-01-01T00:00:00Z""#;
    for wrong in [
        "{",
        "x",
        "[",
        "null",
        "[null]",
        "7",
        "[[]]",
        "{}",
        &format!(r#"{{{at}, "sensor": 7}}"#),
        &format!(r#"{{{at}, "sensor": null, "value": 1}}"#),
        &format!(r#"{{{at}, "sensor": 5000000000, "value": 1}}"#),
        &format!(r#"{{{at}, "sensor": 7, "value": []}}"#),
        &format!(r#"{{{at}, "sensor": 7, "value": 1, "other": 2}}"#),
        r#"{"at": "yesterday", "sensor": 7, "value": 1}"#,
    ] {
        let behind = format!("{right}\n{wrong}");
        let inside = format!("[{right}, {wrong}]");
        for body in [wrong, &behind, &inside] {
            let answer = server.append(body).await;
            assert!(answer.starts_with("400 "), "{body}: {answer}");
        }
    }
    for wrong in [
        "",
        "SELEC 1",
        "SELECT other FROM readings",
        "SELECT * FROM others",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM vectile_load('readings', 'at')",
        "SELECT 1 / (sensor - sensor) FROM readings",
        "SELECT 1; DROP TABLE readings",
        "SELECT repeat('long', 2000) FROM range(10000)",
        &"(".repeat(100_000),
    ] {
        let answer = server.query(wrong).await;
        assert!(answer.starts_with("400 "), "{wrong}: {answer}");
    }
    for refused in [
        "DROP TABLE readings",
        "TRUNCATE TABLE readings",
        "DELETE FROM readings",
        "CREATE TABLE other AS SELECT 1",
        "CREATE EXTERNAL TABLE other STORED AS VECTILE LOCATION '/'",
        "INSERT INTO readings SELECT * FROM readings",
        "EXPLAIN ANALYZE INSERT INTO readings SELECT * FROM readings",
        "COPY readings TO 'x.vectile' STORED AS VECTILE",
        "SET vectile.fuse = 'off'",
    ] {
        let answer = server.query(refused).await;
        let is_refused = answer.starts_with("400 ") && answer.contains(" not supported: ");
        assert!(is_refused, "{refused}: {answer}");
    }
    let long = vec![b' '; (16 << 20) + 1];
    for (request, body, status) in [
        ("GET /query", b"".as_slice(), 400),
        ("GET /query?sql=%ff", b"", 400),
        ("POST /query", b"SELECT '\xff'", 400),
        ("POST /readings", &long, 413),
        ("GET /other", b"", 404),
        ("DELETE /readings", b"", 405),
    ] {
        assert_eq!(server.ask(request, "", body).await.0, status, "{request}");
    }
    let count = server.query("SELECT count(*) AS n FROM readings").await;
    assert_eq!(count, r#"[{"n":1}]"#);
    server.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_streams_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(settings(&dir.path().join("readings.vectile"))).await;
    let right = stream(milliseconds_now(), 3);
    for length in (1..right.len() - 8).step_by(11) {
        let (status, reason) = server.append_stream(&right[..length]).await;
        assert!(status == 400 && !reason.is_empty(), "{length} bytes");
    }
    for byte in (0..right.len()).step_by(3) {
        for bits in [0xff, 0x01, 0x80] {
            let mut wrong = right.clone();
            wrong[byte] ^= bits;
            let (status, reason) = server.append_stream(&wrong).await;
            // it may be well-formed, with other values
            let is_answer = [200, 400].contains(&status) && !reason.is_empty();
            assert!(is_answer, "byte {byte}, bits {bits}: {status}");
        }
    }
    let schema = schema();
    let fields = schema.fields().iter().zip(["at", "place", "value"]);
    let fields = fields.map(|(field, name)| field.as_ref().clone().with_name(name));
    let renamed = Schema::new(fields.collect::<Vec<_>>());
    let renamed = stream_of(&RecordBatch::new_empty(Arc::new(renamed)));
    let (status, reason) = server.append_stream(&renamed).await;
    assert_eq!(status, 400);
    assert!(String::from_utf8(reason).unwrap().contains("place"));
    let count = server.query("SELECT count(*) AS n FROM readings").await;
    assert!(count.starts_with(r#"[{"n":"#), "{count}");
    server.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_is_limited() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = settings(&dir.path().join("readings.vectile"));
    settings.memory = 1 << 20;
    let server = Server::start(settings).await;
    let now = milliseconds_now();
    let (status, reason) = server.append_stream(&stream(now, 100_000)).await;
    assert_eq!(status, 503);
    assert!(String::from_utf8(reason).unwrap().contains("limit"));
    let (status, _) = server.append_stream(&stream(now, 1000)).await;
    assert_eq!(status, 200);
    let count = server.query("SELECT count(*) AS n FROM readings").await;
    assert_eq!(count, r#"[{"n":1000}]"#);
    server.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn old_readings_go_and_others_outlive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("john's readings.vectile");
    let server = Server::start(settings(&file)).await;
    let now = milliseconds_now();
    let hours_ago = now - 3 * 3600 * 1000;
    let rows = i32::try_from(ROW_GROUP_ROWS).unwrap();
    server.append_stream(&stream(hours_ago, 2 * rows)).await;
    server.append_stream(&stream(now, rows + 500)).await;
    let rows = rows + 500;
    let expected = format!(r#"{{"rows": {rows}, "encoded_rows": {rows}, "row_groups": 2, "#);
    let mut size = server.size().await;
    for _ in 0..1000 {
        if size.starts_with(&expected) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        size = server.size().await;
    }
    assert!(size.starts_with(&expected), "{size}");
    let sum = "SELECT count(*), sum(value), min(at) FROM readings";
    let before = server.query(sum).await;
    server.end().await;

    let server = Server::start(settings(&file)).await;
    // encoded from the start: the row groups of the file were taken as they are
    let size = server.size().await;
    assert!(size.starts_with(&expected), "{size}");
    assert_eq!(server.query(sum).await, before);
    server.append(&reading(1, 0.5)).await;
    server.end().await;

    let server = Server::start(settings(&file)).await;
    let count = server.query("SELECT count(*) AS n FROM readings").await;
    assert_eq!(count, format!(r#"[{{"n":{}}}]"#, rows + 1));
    server.end().await;
}
