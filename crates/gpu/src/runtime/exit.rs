//! Makes the end of the process wait for driver and compiler calls on other threads: they crash if their library is
//! unloaded meanwhile. If that takes too long, the process ends without unloading anything.
//!
//! This does not help against exit handlers that the compiler registers while it compiles its first kernel. So callers
//! that compile in the background must wait with [`is_done_within`] before the process can end.
//!
//! Calls in [`unawaited`] do not delay the end: if one is under way, nothing is unloaded.

use std::cell::Cell;
use std::process;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// Limit of the wait at the end.
const MOST: Duration = Duration::from_secs(1);

static CALLS: AtomicUsize = AtomicUsize::new(0);
/// Calls that nothing waits for.
static UNAWAITED: AtomicUsize = AtomicUsize::new(0);
static ENDS: AtomicBool = AtomicBool::new(false);

thread_local! {
    static IS_UNAWAITED: Cell<bool> = const { Cell::new(false) };
}

/// True if the end of a process can leave out unloading.
const CAN_SKIP_UNLOADING: bool = cfg!(all(target_os = "linux", target_env = "gnu"));

/// Does work of several calls that the end of the process need not wait for.
pub(super) fn unawaited<T>(work: impl FnOnce() -> T) -> T {
    struct Reset(bool);

    impl Drop for Reset {
        fn drop(&mut self) {
            IS_UNAWAITED.set(self.0);
        }
    }

    let _reset = Reset(IS_UNAWAITED.replace(CAN_SKIP_UNLOADING));
    work()
}

/// True in [`unawaited`].
pub(super) fn is_unawaited() -> bool {
    IS_UNAWAITED.get()
}

/// Guard of a driver or compiler call on this thread.
#[derive(Debug)]
pub(super) struct CallGuard(&'static AtomicUsize);

impl CallGuard {
    /// Begins a call.
    ///
    /// # Errors
    ///
    /// [`Error::Cancelled`] if the process ends.
    pub fn begin() -> Result<Self> {
        match is_unawaited() {
            true => Self::begin_among(&UNAWAITED),
            false => Self::begin_awaited(),
        }
    }

    /// As [`CallGuard::begin`], for a call that the end waits for in any case.
    pub fn begin_awaited() -> Result<Self> {
        Self::begin_among(&CALLS)
    }

    fn begin_among(calls: &'static AtomicUsize) -> Result<Self> {
        calls.fetch_add(1, Ordering::SeqCst);
        let work = Self(calls);
        match ENDS.load(Ordering::SeqCst) {
            true => Err(Error::Cancelled),
            false => Ok(work),
        }
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Makes the end of this process wait for calls. Must be called whenever driver or compiler have been loaded: handlers
/// run in the reverse order, and the libraries register their own when they are loaded.
pub(super) fn wait_at_exit() {
    static PROCESS: OnceLock<u32> = OnceLock::new();

    /// Returns true if no call is under way any more.
    fn wait() -> bool {
        // a fork has none of the threads
        if PROCESS.get() != Some(&process::id()) {
            return true;
        }
        ENDS.store(true, Ordering::SeqCst);
        is_done_within(MOST) && UNAWAITED.load(Ordering::SeqCst) == 0
    }

    // the C library passes the exit status
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    fn register() {
        use std::ffi::{c_int, c_void};
        use std::ptr;

        extern "C" fn at_exit(status: c_int, _: *mut c_void) {
            if !wait() {
                // SAFETY: functions of the C library. What was printed is written out, and the process is gone.
                unsafe {
                    libc::fflush(ptr::null_mut());
                    libc::_exit(status)
                }
            }
        }

        unsafe extern "C" {
            fn on_exit(handler: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
        }
        // SAFETY: the function of the C library, which std links; the handler is static, does not use its argument,
        // and cannot panic. If it is not registered, nothing waits.
        let _ = unsafe { on_exit(at_exit, ptr::null_mut()) };
    }

    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    fn register() {
        extern "C" fn at_exit() {
            wait();
        }

        // SAFETY: as above.
        let _ = unsafe { libc::atexit(at_exit) };
    }

    let _ = PROCESS.set(process::id());
    register();
}

/// Waits until no thread of this crate calls driver or compiler, except for kernels that are compiled ahead. Returns true
/// if that took at most `most`. Blocks.
pub fn is_done_within(most: Duration) -> bool {
    let begun = Instant::now();
    while CALLS.load(Ordering::SeqCst) > 0 {
        if begun.elapsed() > most {
            return false;
        }
        thread::sleep(Duration::from_millis(1));
    }
    true
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::process::Command;

    use super::*;

    const VARIABLE: &str = "VECTILE_TEST_EXIT";

    /// Simulates the unloading of a library: crashes if a call is under way.
    extern "C" fn unload() {
        if CALLS.load(Ordering::SeqCst) + UNAWAITED.load(Ordering::SeqCst) > 0 {
            process::abort();
        }
    }

    /// In a process of its own: it ends during a call, and has to wait for that, but not for long.
    #[test]
    fn the_end_waits_for_work() {
        let test = concat!(module_path!(), "::the_end_waits_for_work");
        let test = test.split_once("::").unwrap().1;
        if let Some(length) = env::var_os(VARIABLE) {
            let length = length.to_str().unwrap();
            let (length, is_awaited) = match length.strip_suffix(" unawaited") {
                Some(length) => (length, false),
                None => (length, true),
            };
            let length = length.parse().unwrap();
            // SAFETY: the handler is static, and does not unwind.
            unsafe { libc::atexit(unload) };
            wait_at_exit();
            let work = match is_awaited {
                true => CallGuard::begin().unwrap(),
                false => unawaited(CallGuard::begin).unwrap(),
            };
            thread::spawn(move || {
                thread::sleep(Duration::from_millis(length));
                println!("done");
                drop(work);
            });
            process::exit(7);
        }
        for (length, is_done) in [
            ("300", true),
            ("60000", false),
            ("300 unawaited", !CAN_SKIP_UNLOADING),
        ] {
            let itself = env::current_exe().unwrap();
            let mut command = Command::new(itself);
            command.args([test, "--exact", "--nocapture"]);
            let output = command.env(VARIABLE, length).output().unwrap();
            assert_eq!(output.status.code(), Some(7), "{length} ms");
            let text = String::from_utf8_lossy(&output.stdout);
            assert_eq!(text.contains("done"), is_done, "{text}");
        }
    }
}
