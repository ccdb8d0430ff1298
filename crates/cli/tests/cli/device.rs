//! `vectile device`, with and without a GPU.

use crate::{Run, Workspace};

/// A run without a compiler: no GPU is used, on any machine. `None` if this build has kernels that need none.
fn without_compiler(w: &Workspace, args: &[&str]) -> Option<Run> {
    let text = w.ok(&["device", "--no-measure"]);
    if text.contains("embedded for ") {
        eprintln!("skipped: kernels are embedded");
        return None;
    }
    let mut command = w.command();
    command.env("VECTILE_NVRTC", w.path("nowhere"));
    Some(Run::new(args, command.args(args).output().unwrap()))
}

#[test]
fn devices_are_shown() {
    let w = Workspace::new();
    let text = w.ok(&["device"]);
    for word in ["driver ", "NVRTC ", "embedded ", "kernels "] {
        assert!(text.contains(word), "{word}: {text}");
    }
    match text.contains("no GPU is used: ") {
        true => assert!(text.ends_with("; queries run on the CPU\n"), "{text}"),
        false => {
            for word in ["capability", "multiprocessors", "memory", "free", "/s"] {
                assert!(text.contains(word), "{word}: {text}");
            }
            assert!(text.ends_with("queries can use device 0\n"), "{text}");
        }
    }
}

#[test]
fn bandwidth_need_not_be_measured() {
    let w = Workspace::new();
    let text = w.ok(&["device", "--no-measure"]);
    assert!(!text.contains("/s "), "{text}");
}

#[test]
fn what_is_missing_is_named() {
    let w = Workspace::new();
    let Some(run) = without_compiler(&w, &["device"]) else {
        return;
    };
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run:?}");
    let (_, why) = run.stdout.split_once("no GPU is used: ").unwrap();
    assert!(why.contains("NVRTC") && why.contains("nowhere"), "{run:?}");
    assert!(why.contains("VECTILE_NVRTC"), "{run:?}");
    assert!(run.stdout.contains("NVRTC    not found\n"), "{run:?}");
}

#[test]
fn a_gpu_can_be_required() {
    let w = Workspace::new();
    let Some(run) = without_compiler(&w, &["device", "--require"]) else {
        return;
    };
    assert_eq!((run.code, run.stdout.as_str()), (1, ""), "{run:?}");
    assert!(run.stderr.starts_with("error: no GPU is used: "), "{run:?}");
}

#[test]
fn the_cache_is_where_the_environment_says() {
    let w = Workspace::new();
    let shown = |directory: &str| {
        let mut command = w.command();
        command.env("VECTILE_CACHE", directory);
        let args = ["device", "--no-measure"];
        Run::new(&args, command.args(args).output().unwrap()).stdout
    };
    let directory = w.path("kernels");
    let line = format!("kernels  {}\n", directory.display());
    assert!(shown(directory.to_str().unwrap()).contains(&line));
    assert!(shown("").contains("kernels  not kept: there is no directory for them\n"));
}
