//! Ctrl-C, and other signals that end the program.
#![cfg(unix)]

use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::Workspace;

fn interrupt(child: &Child) {
    send("INT", child);
}

fn send(signal: &str, child: &Child) {
    let sent = Command::new("kill")
        .args([&format!("-{signal}"), &child.id().to_string()])
        .status();
    assert!(sent.unwrap().success());
}

/// Waits until the command has begun to write, or has ended.
fn wait_for_files(w: &Workspace, child: &mut Child) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while w.files().is_empty() && Instant::now() < deadline {
        if child.try_wait().unwrap().is_some() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn interrupted_work_leaves_nothing() {
    for args in [
        &["gen", "tpch", "--scale", "20", "--out", "out"][..],
        &[
            "sql",
            "-o",
            "out.csv",
            "SELECT value, value * 2 FROM range(1000000000)",
        ],
        &[
            "sql",
            "COPY (SELECT value FROM range(100000000000)) TO 'out.vectile' STORED AS VECTILE",
        ],
    ] {
        let w = Workspace::new();
        let mut child = w.command().args(args).spawn().unwrap();
        wait_for_files(&w, &mut child);
        interrupt(&child);
        let started = Instant::now();
        let status = child.wait().unwrap();
        assert_eq!(status.code(), Some(130), "{args:?}");
        assert!(started.elapsed() < Duration::from_secs(20), "{args:?}");
        assert!(w.files().is_empty(), "{args:?}: {:?}", w.files());
    }
}

#[test]
fn work_that_is_to_end_leaves_nothing() {
    let copy = |format| {
        let rows = "SELECT value, value * 2 FROM range(100000000000)";
        format!("COPY ({rows}) TO 'out.{format}' STORED AS {format}")
    };
    for (signal, format) in [("HUP", "vectile"), ("QUIT", "vectile"), ("TERM", "parquet")] {
        let w = Workspace::new();
        let mut child = w.command().args(["sql", &copy(format)]).spawn().unwrap();
        wait_for_files(&w, &mut child);
        send(signal, &child);
        let status = child.wait().unwrap();
        assert_eq!(status.code(), Some(130), "{signal}");
        assert!(w.files().is_empty(), "{signal}: {:?}", w.files());
    }
}

/// `nohup vectile ..` survives the end of its terminal.
#[test]
fn ignored_signals_stay_ignored() {
    let w = Workspace::new();
    let script = format!(
        "trap '' HUP QUIT; exec {} sql -o out.csv 'SELECT value FROM range(3000000)'",
        env!("CARGO_BIN_EXE_vectile")
    );
    let mut child = Command::new("sh")
        .args(["-c", &script])
        .current_dir(w.path(""))
        .spawn()
        .unwrap();
    wait_for_files(&w, &mut child);
    for signal in ["HUP", "QUIT"] {
        send(signal, &child);
    }
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(w.files(), ["out.csv"]);
}
