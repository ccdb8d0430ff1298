//! Work that several threads share.

use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Minimum rows of each thread: with less work, starting it costs more than it saves.
const ROWS_PER_THREAD: usize = 1 << 15;

/// The number of threads for work on `rows` rows, at most `threads` and at least one.
pub fn threads_for(rows: usize, threads: usize) -> usize {
    threads.min(rows / ROWS_PER_THREAD).max(1)
}

/// Computes `compute` of each item, and returns the results in the order of the items. At most `threads` threads share
/// the items, and the caller's is one of them; there are fewer if the system refuses threads. Blocks.
pub fn map<T: Send, R: Send>(
    threads: usize,
    items: Vec<T>,
    compute: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    let threads = threads.min(items.len());
    if threads < 2 {
        return items.into_iter().map(compute).collect();
    }
    let items = Mutex::new(items.into_iter().enumerate());
    let next = || items.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || {
        let mut results = Vec::new();
        while let Some((number, item)) = next() {
            results.push((number, compute(item)));
        }
        results
    };
    let mut results = thread::scope(|scope| {
        let others = (1..threads).map_while(|_| {
            let thread = thread::Builder::new().name("vectile-build".into());
            thread.spawn_scoped(scope, work).ok()
        });
        let others: Vec<_> = others.collect();
        let mut results = work();
        for other in others {
            results.extend(other.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
        results
    });
    results.sort_unstable_by_key(|(number, _)| *number);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_order() {
        for threads in [0, 1, 2, 7] {
            for count in [0, 1, 2, 100] {
                let results = map(threads, (0..count).collect(), |item: u32| item * 2);
                assert_eq!(results, (0..count).map(|item| item * 2).collect::<Vec<_>>());
            }
        }
    }
}
