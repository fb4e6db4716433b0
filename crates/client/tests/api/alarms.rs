//! An alarm, by the clock that runs on while a machine sleeps.

use monolock_client::{Alarm, boottime_ns};

#[tokio::test]
async fn an_alarm_wakes_at_its_deadline_and_not_before_also_when_it_is_set_anew() {
    let mut alarm = Alarm::new().unwrap();
    let start_ns = boottime_ns();
    let far = alarm.wait_until(start_ns + 3_600_000_000_000);
    assert!(tokio::time::timeout(std::time::Duration::from_millis(1), far).await.is_err());
    for after_ms in [20, 10, 40] {
        let deadline_ns = start_ns + after_ms * 1_000_000;
        alarm.wait_until(deadline_ns).await;
        assert!(boottime_ns() >= deadline_ns);
    }
}
