//! Compiled kernels on disk.

mod common;

use common::{device, run_block, source};
use vectile_gpu::Driver;

#[test]
fn kernels_are_compiled_once() {
    let Some(device) = device() else { return };
    let folder = tempfile::tempdir().unwrap();
    let device = device.with_cache(folder.path().join("kernels"));
    let one = source("out[threadIdx.x] = 1;");
    let two = source("out[threadIdx.x] = 2;");
    assert!(!device.compile(&one, "kernel").unwrap().is_found);
    assert!(!device.compile(&two, "kernel").unwrap().is_found);
    let cached = device.compile(&one, "kernel").unwrap();
    assert!(cached.is_found);
    assert_eq!(run_block(&device, &*cached.kernel, 0).unwrap(), [1; 256]);
}

#[test]
fn kernels_may_be_compiled_by_several_at_once() {
    let Some(device) = device() else { return };
    let folder = tempfile::tempdir().unwrap();
    let device = device.with_cache(folder.path());
    let source = source("out[threadIdx.x] = 3;");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let compiled = device.compile(&source, "kernel").unwrap();
                assert_eq!(run_block(&device, &*compiled.kernel, 0).unwrap(), [3; 256]);
            });
        }
    });
    let files = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(files, 2, "a source and a library, nothing temporary");
}
