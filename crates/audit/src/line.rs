//! How an entry reads: one JSON object a line.

use std::fmt::Display;
use std::time::{Duration, SystemTime};

use serde::{Serialize, Serializer};

use super::recorder::{Entry, Run};
use super::{Event, NodeEvent, What};
use crate::Peer;
use logging::escape;

const NS_PER_MS: u64 = 1_000_000;

/// In the order of the fields.
#[derive(Serialize)]
struct EventLine<'e> {
    #[serde(serialize_with = "time")]
    time: u64,
    event: &'static str,
    lock: &'e str,
    identity: &'e str,
    #[serde(serialize_with = "display")]
    remote_addr: Peer,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wait_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    held_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
}

#[derive(Serialize)]
struct NodeLine<'e> {
    #[serde(serialize_with = "time")]
    time: u64,
    event: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    term: Option<&'e str>,
    by: &'e str,
    result: &'e str,
}

impl<'e> From<&'e NodeEvent> for NodeLine<'e> {
    fn from(event: &'e NodeEvent) -> Self {
        Self {
            time: event.time_unix_ns,
            event: event.what.as_str(),
            term: event.term.as_deref(),
            by: &event.by,
            result: &event.result,
        }
    }
}

#[derive(Serialize)]
struct LostLine {
    #[serde(serialize_with = "time")]
    time: u64,
    event: &'static str,
    count: u64,
}

impl<'e> From<&'e Event> for EventLine<'e> {
    fn from(event: &'e Event) -> Self {
        let mut line = Self {
            time: event.time_unix_ns,
            event: "",
            lock: &event.lock,
            identity: event.identity.as_deref().unwrap_or(""),
            remote_addr: event.peer,
            token: None,
            wait_ms: None,
            held_ms: None,
            reason: None,
        };
        match event.what {
            What::Granted { token, wait_ns } => {
                line.event = "granted";
                line.token = Some(token.0);
                line.wait_ms = Some(wait_ns / NS_PER_MS);
            }
            What::Released { token, held_ns, reason } => {
                line.event = "released";
                line.token = Some(token.0);
                line.held_ms = Some(held_ns / NS_PER_MS);
                line.reason = Some(reason.as_str());
            }
            What::Denied => line.event = "denied",
            What::ForceRelease { token } => {
                line.event = "force_release";
                line.token = Some(token.0);
            }
            What::KickWaiter => line.event = "kick_waiter",
        }
        line
    }
}

/// The line of an entry, with its newline. What a terminal might obey is escaped: in JSON it can only stand
/// in strings.
pub(super) fn format(entry: &Entry) -> String {
    let json = match entry {
        Entry::Event(event) => serde_json::to_string(&EventLine::from(event)),
        Entry::Node(event) => serde_json::to_string(&NodeLine::from(event)),
        Entry::Lost(Run { time_unix_ns, count }) => {
            serde_json::to_string(&LostLine { time: *time_unix_ns, event: "lost", count: *count })
        }
    };
    escape::escaped(&json.expect("strings and numbers are JSON")) + "\n"
}

fn time<S: Serializer>(unix_ns: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    let time = SystemTime::UNIX_EPOCH + Duration::from_nanos(*unix_ns);
    serializer.collect_str(&humantime::format_rfc3339_micros(time))
}

fn display<S: Serializer>(value: &impl Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use locks::Reason;
    use protocol::Token;

    use super::*;

    fn line(what: What, lock: &str, identity: Option<&str>, peer: &str) -> String {
        let event = Event {
            time_unix_ns: 1_767_225_599_000_001_999,
            lock: lock.into(),
            identity: identity.map(Into::into),
            peer: peer.parse::<SocketAddr>().unwrap().into(),
            what,
        };
        format(&Entry::Event(event))
    }

    #[test]
    fn every_event_has_its_fields_in_their_order() {
        let token = Token(1_853_128_572_928_012);
        let anonymous = |what| line(what, "nightly/db", None, "192.0.2.7:41000");
        assert_eq!(
            anonymous(What::Granted { token, wait_ns: 1_999_999 }),
            r#"{"time":"2025-12-31T23:59:59.000001Z","event":"granted","lock":"nightly/db","identity":"","#
                .to_owned()
                + r#""remote_addr":"192.0.2.7:41000","token":1853128572928012,"wait_ms":1}"#
                + "\n"
        );
        let identity = Some("spiffe://prod/worker/1");
        let released = What::Released { token, held_ns: 60_000_000_000, reason: Reason::IoTimeout };
        assert_eq!(
            line(released, "a", identity, "[2001:db8::1]:7"),
            r#"{"time":"2025-12-31T23:59:59.000001Z","event":"released","lock":"a","#.to_owned()
                + r#""identity":"spiffe://prod/worker/1","remote_addr":"[2001:db8::1]:7","#
                + r#""token":1853128572928012,"held_ms":60000,"reason":"io_timeout"}"#
                + "\n"
        );
        for (what, event, more) in [
            (What::Denied, "denied", ""),
            (What::ForceRelease { token: Token(5) }, "force_release", r#","token":5"#),
            (What::KickWaiter, "kick_waiter", ""),
        ] {
            assert_eq!(
                anonymous(what),
                format!(r#"{{"time":"2025-12-31T23:59:59.000001Z","event":"{event}","lock":"nightly/db","#)
                    + r#""identity":"","remote_addr":"192.0.2.7:41000""#
                    + more
                    + "}\n"
            );
        }
        assert_eq!(
            format(&Entry::Lost(Run { time_unix_ns: 0, count: 12 })),
            "{\"time\":\"1970-01-01T00:00:00.000000Z\",\"event\":\"lost\",\"count\":12}\n"
        );
    }

    #[test]
    fn an_event_of_the_node_has_a_term_a_cause_and_a_result_and_no_lock() {
        let event = |term| NodeEvent {
            time_unix_ns: 0,
            what: crate::NodeWhat::Promoted,
            term,
            by: "auto".into(),
            result: "open".into(),
        };
        assert_eq!(
            format(&Entry::Node(event(Some("7.a".into())))),
            concat!(
                r#"{"time":"1970-01-01T00:00:00.000000Z","event":"promoted","term":"7.a","by":"auto","#,
                r#""result":"open"}"#,
                "\n"
            )
        );
        assert!(!format(&Entry::Node(event(None))).contains("term"));
    }

    #[test]
    fn what_a_client_chose_comes_out_escaped_and_a_json_reader_gets_it_back() {
        let text = "a\n\r\t\u{1b}[2J\u{9b}31m\u{7f}\u{202e}\u{2028}\0é\"\\u001b\\";
        let line = line(What::Denied, text, Some(text), "192.0.2.7:1");
        let body = line.strip_suffix('\n').unwrap();
        assert!(!body.chars().any(escape::must_be_escaped), "{line:?}");
        assert!(body.contains('é'));
        let event: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(event["lock"], text);
        assert_eq!(event["identity"], text);
    }
}
