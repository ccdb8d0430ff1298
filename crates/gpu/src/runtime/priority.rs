//! Background threads: lower priority than others.

/// Niceness of background threads: beside a thread of niceness 0, such a thread gets a quarter of a core.
#[cfg(target_os = "linux")]
const NICENESS: libc::c_int = 5;

/// Lowers the priority of this thread, and of those that it starts. Does nothing where the system has no priorities of
/// single threads.
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
