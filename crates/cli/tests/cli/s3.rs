//! Tables on S3: which credentials sign the requests.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::{Run, Workspace};

/// A server that is an empty bucket and the metadata service of an instance.
struct Server {
    url: String,
    /// The header `Authorization` of each request to the bucket; empty if there is none.
    signatures: Receiver<String>,
}

impl Server {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (sender, signatures) = channel();
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                answer(connection.unwrap(), &sender);
            }
        });
        Server { url, signatures }
    }

    fn first_signature(&self) -> String {
        self.signatures
            .try_recv()
            .expect("no request to the bucket")
    }
}

fn answer(mut connection: TcpStream, signatures: &Sender<String>) {
    let lines = BufReader::new(connection.try_clone().unwrap()).lines();
    let lines = lines.map_while(Result::ok);
    let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
    let Some(path) = head.first().and_then(|line| line.split(' ').nth(1)) else {
        return;
    };
    let (status, body) = match path {
        "/latest/api/token" => ("200 OK", "token"),
        "/latest/meta-data/iam/security-credentials/" => ("200 OK", "role"),
        "/latest/meta-data/iam/security-credentials/role" => (
            "200 OK",
            r#"{"AccessKeyId": "INSTANCE", "SecretAccessKey": "S", "Token": "T", "Expiration": "2099-01-01T00:00:00Z"}"#,
        ),
        _ => {
            let name = "authorization: ";
            let mut lines = head.iter().filter_map(|line| line.strip_prefix(name));
            drop(signatures.send(lines.next().unwrap_or_default().to_owned()));
            ("404 Not Found", "")
        }
    };
    let length = body.len();
    let headers = format!("content-length: {length}\r\nconnection: close");
    drop(write!(
        connection,
        "HTTP/1.1 {status}\r\n{headers}\r\n\r\n{body}"
    ));
}

/// Runs the program with these environment variables only.
fn run(w: &Workspace, variables: &[(&str, &str)], args: &[&str]) -> Run {
    let mut command = w.command();
    command.env_clear().env("HOME", w.path(""));
    command.envs(variables.iter().copied()).args(args);
    Run::new(args, command.output().unwrap())
}

const TABLE: &str = "s3://bucket/x.vectile";

/// The signature of a request for a file; empty without one.
fn signature(w: &Workspace, server: &Server, variables: &[(&str, &str)]) -> String {
    let mut variables = variables.to_vec();
    variables.extend([
        ("AWS_ENDPOINT", server.url.as_str()),
        ("AWS_ALLOW_HTTP", "true"),
    ]);
    let run = run(w, &variables, &["inspect", TABLE]);
    assert!(run.stderr.contains("no such file"), "{run:?}");
    server.first_signature()
}

const REGION: (&str, &str) = ("AWS_REGION", "eu-west-1");

#[test]
fn profiles_sign() {
    let w = Workspace::new();
    let server = Server::start();
    let keys = "[default]\naws_access_key_id = PROFILE\naws_secret_access_key = S\n";
    w.write(".aws/credentials", keys);
    w.write(".aws/config", "[default]\nregion = eu-west-3\n");
    let signature = signature(&w, &server, &[]);
    assert!(signature.contains("Credential=PROFILE/"), "{signature}");
    assert!(signature.contains("/eu-west-3/s3/"), "{signature}");
}

#[test]
fn instances_sign() {
    let w = Workspace::new();
    let server = Server::start();
    let metadata = ("AWS_METADATA_ENDPOINT", server.url.as_str());
    let signature = signature(&w, &server, &[REGION, metadata]);
    assert!(signature.contains("Credential=INSTANCE/"), "{signature}");
}

#[test]
fn nobody_signs_without_credentials() {
    let w = Workspace::new();
    let server = Server::start();
    let no_instance = ("AWS_EC2_METADATA_DISABLED", "true");
    assert_eq!(signature(&w, &server, &[REGION, no_instance]), "");
}

#[test]
fn options_sign() {
    let w = Workspace::new();
    let server = Server::start();
    let url = &server.url;
    let key =
        "'aws.access_key_id' 'OPTIONS', 'aws.secret_access_key' 'S', 'aws.region' 'eu-west-1'";
    let table = |options: &str| {
        format!("CREATE EXTERNAL TABLE t STORED AS VECTILE LOCATION '{TABLE}' OPTIONS ({options})")
    };
    let refused = table(&format!("{key}, 'aws.endpoint' '{url}'"));
    let stderr = run(&w, &[], &["sql", &refused]).stderr;
    assert!(
        stderr.contains("HTTP is not allowed for the endpoint"),
        "{stderr}"
    );

    let allowed = format!("{key}, 'aws.endpoint' '{url}', 'aws.allow_http' 'true'");
    run(&w, &[], &["sql", &table(&allowed)]);
    let signature = server.first_signature();
    assert!(signature.contains("Credential=OPTIONS/"), "{signature}");

    let options = allowed.replace("OPTIONS", "COPY");
    let copy = format!("COPY (SELECT 1 AS a) TO 's3://other/x.vectile' OPTIONS ({options})");
    run(&w, &[], &["sql", &copy]);
    let signature = server.signatures.try_iter().last().unwrap();
    assert!(signature.contains("Credential=COPY/"), "{signature}");
}
