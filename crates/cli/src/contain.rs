//! Contains panics of the crates that decode other formats: on damaged files they panic where they
//! should return an error.

use std::any::Any;
use std::cell::Cell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Once;
use std::task::Poll;

use futures::stream::{BoxStream, StreamExt};

use crate::error::{CliError, Result};

thread_local! {
    /// True while this thread runs contained work, whose panics are not printed.
    static CONTAINED: Cell<bool> = const { Cell::new(false) };
}

/// The future, with panics converted to errors.
pub async fn contain<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    let mut future = pin!(future);
    std::future::poll_fn(|context| match caught(|| future.as_mut().poll(context)) {
        Ok(poll) => poll,
        Err(error) => Poll::Ready(Err(error)),
    })
    .await
}

/// The stream, with panics converted to errors; it ends with the first of them.
pub fn contain_stream<T: Send + 'static>(
    stream: BoxStream<'static, Result<T>>,
) -> BoxStream<'static, Result<T>> {
    let items = futures::stream::unfold(Some(stream), |stream| async {
        let mut stream = stream?;
        match contain(async { Ok(stream.next().await) }).await {
            Ok(item) => item.map(|item| (item, Some(stream))),
            Err(error) => Some((Err(error), None)),
        }
    });
    items.boxed()
}

/// Runs `work`, and converts a panic to an error. After a panic, callers drop all state that `work`
/// had: it may be incomplete.
fn caught<T>(work: impl FnOnce() -> T) -> Result<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !CONTAINED.get() {
                print(info);
            }
        }));
    });
    let outer = CONTAINED.replace(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    CONTAINED.set(outer);
    result.map_err(|panic| CliError::failed(format!("the file is damaged: {}", text(&*panic))))
}

fn text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("decoding it failed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn panics_become_errors() {
        let failed = contain(async { panic!("of {} parts", 2) }).await;
        let failed: Result<()> = failed;
        let text = failed.unwrap_err().to_string();
        assert!(text.contains("damaged: of 2 parts"), "{text}");
        let items = futures::stream::iter(0..3).map(|i| match i {
            1 => panic!("in the middle"),
            i => Ok(i),
        });
        let items: Vec<_> = contain_stream(items.boxed()).collect().await;
        assert!(matches!(items.as_slice(), [Ok(0), Err(_)]), "{items:?}");
    }
}
