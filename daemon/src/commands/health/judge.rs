//! What the server's answers mean.

use std::time::Duration;

use cli::exit;
use hyper::StatusCode;

use super::ask::{Answer, Answers};
use crate::checks::{Check, Limit, Limits};

/// What came out. Texts are for people, and may hold whatever the other side has sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// With the warnings that the server has.
    Serve {
        warnings: Vec<String>,
    },
    /// With the reasons.
    DoNot {
        reasons: Vec<String>,
    },
    CouldNotTell(String),
}

impl Verdict {
    pub(super) fn exit_status(&self) -> u8 {
        match self {
            Self::Serve { .. } => 0,
            Self::DoNot { .. } => exit::DO_NOT_SERVE,
            Self::CouldNotTell(_) => exit::COULD_NOT_TELL,
        }
    }
}

/// Judges by what the server says itself, and then by `limits`.
pub(super) fn judge(Answers { ready, metrics }: &Answers, limits: &Limits) -> Verdict {
    let lines = || ready.body.lines().map(str::to_owned);
    match (ready.status, metrics) {
        (StatusCode::SERVICE_UNAVAILABLE, _) => DoNot::of(lines().collect(), "/readyz says no, and not why"),
        (StatusCode::OK, Some(metrics)) if lines().next().as_deref() == Some("ok") => {
            by_metrics(lines().skip(1).collect(), metrics, limits).unwrap_or_else(Verdict::CouldNotTell)
        }
        (StatusCode::OK, _) => Verdict::CouldNotTell("what answers /readyz is no monolock server".to_owned()),
        (status, _) => Verdict::CouldNotTell(format!("/readyz answers {status}: is it a monolock server?")),
    }
}

struct DoNot;

impl DoNot {
    fn of(reasons: Vec<String>, otherwise: &str) -> Verdict {
        let reasons = if reasons.is_empty() { vec![otherwise.to_owned()] } else { reasons };
        Verdict::DoNot { reasons }
    }
}

/// An error is why it cannot be told.
fn by_metrics(warnings: Vec<String>, metrics: &Answer, limits: &Limits) -> Result<Verdict, String> {
    if metrics.status != StatusCode::OK {
        return Err(format!("/metrics answers {}", metrics.status));
    }
    let metrics = &metrics.body;
    let mut reasons = Vec::new();
    // It may have changed since.
    if series(metrics, "monolock_ready")? == 0.0 {
        reasons.push("/metrics says that the server is not ready any more".to_owned());
    }
    for limit in limits.iter() {
        reasons.extend(reason(metrics, limit)?);
    }
    Ok(if reasons.is_empty() { Verdict::Serve { warnings } } else { Verdict::DoNot { reasons } })
}

fn reason(metrics: &str, limit: &Limit) -> Result<Option<String>, String> {
    let Limit { check, above, lasting } = *limit;
    let name = check.name();
    if check == Check::P99
        && let Some(above) = above
    {
        let of_server = duration(series(metrics, "monolock_heartbeat_service_p99_limit_seconds")?);
        if above != of_server && !lasting.is_zero() {
            return Err(format!(
                "p99={above:?}:{lasting:?}: the server counts for how long p99 is above {of_server:?}, and for no other limit; give it -ready-fail-on p99={above:?}:{lasting:?}, or ask for p99={above:?} alone"
            ));
        }
        if lasting.is_zero() {
            let p99 = duration(series(metrics, "monolock_heartbeat_service_p99_seconds")?);
            return Ok((p99 > above)
                .then(|| format!("p99 of heartbeats: {p99:?} over the last 10 s, above {above:?}")));
        }
    }
    let failing = duration(series(metrics, &format!("monolock_ready_failing_seconds{{check=\"{name}\"}}"))?);
    let fails = !failing.is_zero() && failing >= lasting;
    Ok(fails.then(|| {
        format!("{name}: for {} ms, and {} ms is the limit", failing.as_millis(), lasting.as_millis())
    }))
}

/// The value of a series, named as it stands in the text.
fn series(metrics: &str, name: &str) -> Result<f64, String> {
    let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let value = value.and_then(|text| text.trim().parse().ok()).filter(|value: &f64| value.is_finite());
    value.ok_or_else(|| format!("/metrics has no {name}: is it a monolock server, and of this version?"))
}

/// To the microsecond, so that what was a duration compares as one.
fn duration(seconds: f64) -> Duration {
    Duration::from_micros((seconds.max(0.0) * 1e6).ceil() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const METRICS: &str = "\
# HELP monolock_ready Whether.
# TYPE monolock_ready gauge
monolock_ready 1
monolock_heartbeat_service_p99_seconds 0.0031
monolock_heartbeat_service_p99_limit_seconds 0.002
monolock_ready_failing_seconds{check=\"p99\"} 12.5
monolock_ready_failing_seconds{check=\"descriptors\"} 0
monolock_ready_failing_seconds{check=\"clock\"} 0.000000001
";

    fn answers(status: u16, ready: &str, metrics: &str) -> Answers {
        let answer = |status, body: &str| Answer {
            status: StatusCode::from_u16(status).unwrap(),
            body: body.to_owned(),
        };
        let metrics = (status == 200).then(|| answer(200, metrics));
        Answers { ready: answer(status, ready), metrics }
    }

    fn judged(limits: &str) -> Verdict {
        judge(
            &answers(200, "ok\nwarning: clock: not synchronised\n", METRICS),
            &Limits::parse(limits).unwrap(),
        )
    }

    fn refused(limits: &str) -> String {
        match judged(limits) {
            Verdict::DoNot { reasons } => reasons.join("\n"),
            other => panic!("{limits}: {other:?}"),
        }
    }

    #[test]
    fn without_limits_the_server_says_itself() {
        let warnings = vec!["warning: clock: not synchronised".to_owned()];
        assert_eq!(judged(""), Verdict::Serve { warnings });
        let reasons =
            vec!["shard 0: no turn for 1200 ms".to_owned(), "warning: clock: not synchronised".to_owned()];
        let body = reasons.join("\n");
        assert_eq!(judge(&answers(503, &body, ""), &Limits::default()), Verdict::DoNot { reasons });
        let Verdict::DoNot { reasons } = judge(&answers(503, "", ""), &Limits::default()) else { panic!() };
        assert_eq!(reasons, ["/readyz says no, and not why"]);
    }

    #[test]
    fn a_server_that_became_unready_between_the_two_requests_is_not_ready() {
        let metrics = METRICS.replace("monolock_ready 1", "monolock_ready 0");
        let verdict = judge(&answers(200, "ok\n", &metrics), &Limits::default());
        assert!(matches!(verdict, Verdict::DoNot { .. }), "{verdict:?}");
    }

    #[test]
    fn a_warning_fails_when_it_has_lasted_as_long_as_its_limit() {
        for limits in ["descriptors", "clock:1s", "p99=2ms:13s", "p99:13s", "p99=3200us", "p99=10ms"] {
            assert!(matches!(judged(limits), Verdict::Serve { .. }), "{limits}: {:?}", judged(limits));
        }
        assert_eq!(refused("clock"), "clock: for 0 ms, and 0 ms is the limit");
        assert_eq!(refused("p99:12s"), "p99: for 12500 ms, and 12000 ms is the limit");
        assert_eq!(refused("p99=2ms:12s"), "p99: for 12500 ms, and 12000 ms is the limit");
        assert_eq!(refused("p99=3ms"), "p99 of heartbeats: 3.1ms over the last 10 s, above 3ms");
        assert_eq!(refused("p99=3ms,clock,descriptors").lines().count(), 2);
    }

    #[test]
    fn for_how_long_p99_was_above_another_limit_than_the_servers_cannot_be_told() {
        let Verdict::CouldNotTell(why) = judged("p99=3ms:10s") else { panic!() };
        assert!(why.contains("-ready-fail-on p99=3ms:10s"), "{why}");
    }

    #[test]
    fn what_is_no_monolock_server_is_no_yes() {
        for answers in [
            answers(200, "ok\n", "up 1\n"),
            answers(200, "ok\n", &METRICS.replace("monolock_ready 1", "monolock_ready NaN")),
            answers(200, "Prometheus is ready\n", METRICS),
            answers(200, "", METRICS),
            answers(404, "not found", METRICS),
            answers(302, "ok\n", METRICS),
            answers(500, "shutting down\n", METRICS),
        ] {
            let verdict = judge(&answers, &Limits::default());
            assert!(matches!(verdict, Verdict::CouldNotTell(_)), "{answers:?}: {verdict:?}");
        }
        let metrics = METRICS.replace("check=\"descriptors\"", "check=\"other\"");
        let limits = Limits::parse("descriptors").unwrap();
        assert!(matches!(judge(&answers(200, "ok\n", &metrics), &limits), Verdict::CouldNotTell(_)));
    }
}
