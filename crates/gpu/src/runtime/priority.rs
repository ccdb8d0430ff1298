//! Threads that leave the processor to others.

/// Niceness of threads in the background: beside one that is not nice, such a thread gets a quarter of a core.
#[cfg(target_os = "linux")]
const NICENESS: libc::c_int = 5;

/// Has this thread, and those that it starts, leave the processor to others that want it. Does nothing where the system
/// knows no priority of a single thread.
pub fn lower_priority() {
    #[cfg(target_os = "linux")]
    // SAFETY: 0 stands for the calling thread, whose priority alone changes. A refusal changes nothing.
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, NICENESS)
    };
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn only_one_thread_gets_nicer() {
        // SAFETY: reads the priority of the calling thread.
        let niceness = || unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        let before = niceness();
        let nicer = thread::spawn(move || {
            lower_priority();
            niceness()
        });
        assert_eq!(nicer.join().unwrap(), before.max(NICENESS));
        assert_eq!(niceness(), before);
    }
}
