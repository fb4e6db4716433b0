//! Jobs for threads that may wait.

use std::sync::mpsc;

use threads::{NotDone, Workers};
use tokio::sync::oneshot;

#[tokio::test]
async fn jobs_wait_for_a_thread_and_one_too_many_is_refused_at_once() {
    let workers = Workers::start("worker", 1, 1).unwrap();
    let (begun, has_begun) = oneshot::channel();
    let (go_on, wait) = mpsc::sync_channel::<()>(0);
    let under_way = workers.run(move || {
        begun.send(()).unwrap();
        wait.recv().unwrap_err();
        1
    });
    let waiting = async {
        has_begun.await.unwrap();
        let waiting = workers.run(|| 2);
        let refused = async {
            assert_eq!(workers.run(|| 3).await, Err(NotDone::Busy));
            drop(go_on);
        };
        tokio::join!(waiting, refused).0
    };
    assert_eq!(tokio::join!(under_way, waiting), (Ok(1), Ok(2)));
}

#[tokio::test]
async fn a_job_may_spawn_a_task() {
    let workers = Workers::start("worker", 1, 1).unwrap();
    let task = workers.run(|| tokio::spawn(async { 1 })).await.unwrap();
    assert_eq!(task.await.unwrap(), 1);
}

#[tokio::test]
async fn a_job_that_panics_costs_no_thread() {
    let workers = Workers::start("worker", 1, 1).unwrap();
    let panicked = workers.run(|| -> u8 { panic!("on purpose") }).await;
    assert_eq!(panicked, Err(NotDone::Panicked));
    assert_eq!(workers.run(|| 2).await, Ok(2));
}
