//! Lines that clients can cause: one an interval of each kind.

use std::time::Duration;

use logging::seldom::Seldom;
use tokio::time::sleep;
use tracing::{Level, info};

use testkit::diagnostics::Diagnostics;

const INTERVAL: Duration = Duration::from_secs(1);

fn log(seldom: &Seldom, times: usize) {
    (0..times).filter(|_| seldom.may_log()).for_each(|number| info!(number, "refused"));
}

#[tokio::test(start_paused = true)]
async fn of_many_lines_one_an_interval_is_logged_and_the_others_are_told_by_number_also_when_no_more_come() {
    let diagnostics = Diagnostics::new();
    let seldom = Seldom::new("refused", Level::INFO, INTERVAL);
    log(&seldom, 5);
    assert_eq!(diagnostics.lines(), [" INFO refused number=0"]);
    sleep(2 * INTERVAL).await;
    let left_out = " INFO refused: more lines like this one were left out left_out=4";
    assert_eq!(diagnostics.lines(), [" INFO refused number=0", left_out]);
    log(&seldom, 1);
    sleep(10 * INTERVAL).await;
    assert_eq!(diagnostics.lines()[2..], [" INFO refused number=0"]);
}

#[tokio::test(start_paused = true)]
async fn the_end_tells_the_number_too_and_in_the_level_of_the_lines() {
    let diagnostics = Diagnostics::new();
    let seldom = Seldom::new("cannot accept", Level::WARN, INTERVAL);
    log(&seldom, 3);
    drop(seldom);
    sleep(2 * INTERVAL).await;
    let left_out = " WARN cannot accept: more lines like this one were left out left_out=2";
    assert_eq!(diagnostics.lines()[1..], [left_out]);
}
