//! Memory: limits, checks, and injected faults.

mod common;

use common::{device, driver_reason, kernel, run_block};
use vectile_gpu::{Driver, Error};

#[test]
fn memory_has_a_limit() {
    let Some(device) = device() else { return };
    let device = device.with_memory(1000);
    assert_eq!(device.info().memory, 1000);
    let first = device.allocate(600).unwrap();
    assert_eq!(first % 256, 0);
    assert_eq!(device.free_memory().unwrap(), 400);
    match device.allocate(401) {
        Err(Error::OutOfMemory {
            wanted: 401,
            reason,
        }) => {
            assert_eq!(reason, "400 of 1000 bytes are free");
        }
        other => panic!("{other:?}"),
    }
    let second = device.allocate(400).unwrap();
    assert_eq!(device.allocated_bytes(), 1000);
    for address in [first, second] {
        // SAFETY: allocated above, and not used.
        unsafe { device.free(address) };
    }
    assert_eq!(device.allocated_bytes(), 0);
}

#[test]
fn host_memory_is_counted_apart() {
    let Some(device) = device() else { return };
    let host = device.allocate_host(100).unwrap();
    assert_eq!(
        (device.allocated_bytes(), device.allocated_host_bytes()),
        (0, 100)
    );
    // SAFETY: allocated above, and not used.
    unsafe { device.free_host(host) };
    assert_eq!(device.allocated_host_bytes(), 0);
}

#[test]
#[should_panic(expected = "where nothing is allocated")]
fn a_double_free_panics() {
    let device = device().expect("where nothing is allocated: no device, skipped");
    let address = device.allocate(8).unwrap();
    // SAFETY: the first is right, the second is rejected before anything happens.
    unsafe {
        device.free(address);
        device.free(address);
    }
}

#[test]
fn copies_outside_of_allocated_memory_fail() {
    let Some(device) = device() else { return };
    let mut stream = device.stream().unwrap();
    let mut host = [0u8; 16];
    let address = device.allocate(16).unwrap();
    // SAFETY: `host` is as long as the copies; errors on the device's side are detected.
    unsafe {
        stream.copy_in(address, host.as_ptr(), 16).unwrap();
        stream.copy_out(host.as_mut_ptr(), address + 8, 8).unwrap();
        for result in [
            stream.copy_in(address + 1, host.as_ptr(), 16),
            stream.copy_out(host.as_mut_ptr(), address + 16, 1),
            stream.copy_out(host.as_mut_ptr(), 1, 1),
            stream.fill(address, 0, 17),
        ] {
            assert!(driver_reason(result.unwrap_err()).contains("not all allocated"));
        }
        device.free(address);
    }
}

#[test]
fn new_memory_is_no_zeros() {
    let Some(device) = device() else { return };
    let address = device.allocate(4).unwrap();
    let mut host = [0u8; 4];
    // SAFETY: both have 4 bytes.
    unsafe {
        device
            .stream()
            .unwrap()
            .copy_out(host.as_mut_ptr(), address, 4)
    }
    .unwrap();
    assert_eq!(host, [0xCD; 4]);
}

#[test]
fn a_fault_comes_at_the_requested_call() {
    let Some(device) = device() else { return };
    let kernel = kernel(&device, "out[threadIdx.x] = 1;");
    let mut calls = Vec::new();
    for n in 1.. {
        device.fail_after(n);
        let result = run_block(&device, &*kernel, 0);
        if device.fault_pending() {
            assert_eq!(result.unwrap(), [1; 256]);
            break;
        }
        match result {
            Err(Error::Driver { call, .. }) => calls.push(call),
            other => panic!("{other:?}"),
        }
        assert_eq!(device.allocated_bytes(), 0);
    }
    assert_eq!(calls, ["allocate", "fill", "launch", "copy_out"]);
    device.fail_after(0);
    assert!(run_block(&device, &*kernel, 0).is_ok());
}

#[test]
fn marks_tell_the_time() {
    let Some(device) = device() else { return };
    let mut stream = device.stream().unwrap();
    let from = stream.mark().unwrap();
    stream.wait(&from).unwrap();
    let to = stream.mark().unwrap();
    assert!(stream.elapsed(&from, &to).unwrap() >= 0.0);
}

#[test]
fn launches_that_no_gpu_takes_fail() {
    let Some(device) = device() else { return };
    let kernel = kernel(&device, "");
    let mut stream = device.stream().unwrap();
    for (grid, block, shared) in [
        (0, 32, 0),
        (1, 0, 0),
        (1, 33, 0),
        (1, 1056, 0),
        (1, 32, 1 << 20),
    ] {
        let launch = vectile_gpu::Launch {
            grid,
            block,
            shared,
            args: &[0],
        };
        // SAFETY: the kernel does nothing.
        let result = unsafe { stream.launch(&*kernel, launch) };
        assert!(matches!(result, Err(Error::Driver { call: "launch", .. })));
    }
}
