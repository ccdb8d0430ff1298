//! The sanitizers report deliberate faults. Each test runs itself again under them.

mod common;

use common::{device, kernel, run_block, skip_unavailable};
use vectile_emulator::{run_sanitized_self, sanitized, sanitized_self};

/// Runs the kernel in a sanitizing process, and expects `report` in that process's report.
fn expect_report(test: &str, body: &str, report: &str) {
    if sanitized() {
        let device = device().unwrap();
        let kernel = kernel(&device, body);
        println!("{:?}", run_block(&device, &*kernel, 64));
        return;
    }
    if device().is_none() {
        return;
    }
    let Some(output) = skip_unavailable(sanitized_self(test)) else {
        return;
    };
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{test} passed:\n{stderr}");
    assert!(stderr.contains(report), "{report} is not in\n{stderr}");
    assert!(stderr.contains("kernel.cu:"), "no line in\n{stderr}");
}

#[test]
fn a_read_behind_device_memory() {
    expect_report(
        "a_read_behind_device_memory",
        "const u32 next = out[threadIdx.x + 1];\n__syncthreads();\nout[threadIdx.x] = next;",
        "heap-buffer-overflow",
    );
}

#[test]
fn a_write_behind_dynamic_shared_memory() {
    expect_report(
        "a_write_behind_dynamic_shared_memory",
        "DYN_SHARED(u32, s);\nif (threadIdx.x < 17) s[threadIdx.x] = 1;",
        "heap-buffer-overflow",
    );
}

#[test]
fn an_index_behind_static_shared_memory() {
    expect_report(
        "an_index_behind_static_shared_memory",
        "__shared__ u32 s[255];\ns[threadIdx.x] = 1;",
        "index 255 out of bounds",
    );
}

#[test]
fn a_local_array_overrun_after_a_switch() {
    expect_report(
        "a_local_array_overrun_after_a_switch",
        "u32 local[8] = {};\n__syncthreads();\nu32* volatile hidden = local;\nu32* p = hidden;\n\
         for (u32 i = 0; i <= 8; i++) p[i] = i;\nout[0] = p[3];",
        "stack-buffer-overflow",
    );
}

#[test]
fn a_shift_by_64() {
    expect_report(
        "a_shift_by_64",
        "out[threadIdx.x] = (u32)(~(u64)threadIdx.x << (threadIdx.x & 64));",
        "shift exponent 64 is too large",
    );
}

#[test]
fn a_misaligned_load() {
    expect_report(
        "a_misaligned_load",
        "out[0] = __ldg((const uint4*)(out + 1)).x;",
        "misaligned address",
    );
}

/// Unfinished fibers, several launches over stacks at the same addresses, all kinds of memory.
#[test]
fn right_kernels_are_clean() {
    let Some(device) = device() else { return };
    let right = kernel(
        &device,
        r"
        __shared__ u32 s[256];
        DYN_SHARED(u32, d);
        u32 local[4] = {1, 2, 3, threadIdx.x};
        s[threadIdx.x] = local[threadIdx.x & 3];
        if (threadIdx.x < 16) d[threadIdx.x] = threadIdx.x;
        __syncthreads();
        out[threadIdx.x] = s[threadIdx.x ^ 1] + d[threadIdx.x & 15];
        ",
    );
    let wrong = kernel(&device, "if (threadIdx.x < 100) __syncwarp(1u << 31);");
    for seed in 0..4 {
        device.set_seed(seed);
        assert!(run_block(&device, &*right, 64).is_ok());
        assert!(run_block(&device, &*wrong, 64).is_err());
    }
    skip_unavailable(run_sanitized_self("right_kernels_are_clean"));
}
