//! Guarded work: it runs for exactly as long as its claim is confirmed.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;

use crate::clock::{Alarm, boottime_ns};
use crate::error::{Error, Loss, RunError};
use crate::guard::{Grant, Guard};

/// Runs the work under its guard, which is dropped last: the lock moves on when the work has stopped, also if
/// it panics or is itself dropped.
pub(crate) async fn attend<T, F>(guard: Guard, work: impl FnOnce(Grant) -> F) -> Result<T, RunError<T>>
where
    F: Future<Output = T>,
{
    if !guard.is_held() {
        return Err(RunError::NotAcquired(Error::Lost(guard.cause())));
    }
    let mut work = pin!(work(guard.grant().clone()));
    match while_held(&guard, work.as_mut()).await {
        Ok(result) => judge(&guard, result),
        Err(loss) => {
            guard.grant().stop().cancel();
            Err(RunError::Lost { result: stopping(&guard, work).await, loss })
        }
    }
}

/// The work's result, which counts only if the lock was held to its end.
pub(crate) fn judge<T>(guard: &Guard, result: T) -> Result<T, RunError<T>> {
    if guard.is_held() {
        return Ok(result);
    }
    Err(RunError::Lost { loss: guard.cause(), result: Some(result) })
}

/// The work is never polled without a look at the clock first: the task that finds the loss may run later.
async fn while_held<F: Future>(guard: &Guard, mut work: Pin<&mut F>) -> Result<F::Output, Loss> {
    let mut lost = pin!(guard.lost());
    poll_fn(|context| {
        if let Poll::Ready(loss) = lost.as_mut().poll(context) {
            return Poll::Ready(Err(loss));
        }
        if !guard.is_held() {
            return Poll::Ready(Err(guard.cause()));
        }
        work.as_mut().poll(context).map(Ok)
    })
    .await
}

/// Lets work that was asked to stop come to its end, while there is time.
async fn stopping<F: Future>(guard: &Guard, work: Pin<&mut F>) -> Option<F::Output> {
    let stopped_by_ns = guard.stopped_by_ns(boottime_ns());
    // No descriptor for a timer: no time either.
    let mut alarm = Alarm::new().ok()?;
    tokio::select! {
        biased;
        () = alarm.wait_until(stopped_by_ns) => None,
        result = work => Some(result),
    }
}
