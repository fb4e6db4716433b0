//! An event as a JSON object, with the keys that the audit log and the admin API have too.

use std::fmt;
use std::time::SystemTime;

use serde::ser::{Error as _, SerializeMap, Serializer as _};
use serde_json::{Error, Serializer};
use tracing::{Event, Subscriber};
use tracing_serde::SerdeMapVisitor;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// `{"time":…,"level":…,"message":…}`, and the event's fields after that.
pub(super) struct Json;

impl<S, N> FormatEvent<S, N> for Json
where
    S: Subscriber + for<'s> LookupSpan<'s>,
    N: for<'w> FormatFields<'w> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let json = object(event).map_err(|_| fmt::Error)?;
        writer.write_str(&json)?;
        writer.write_char('\n')
    }
}

fn object(event: &Event<'_>) -> Result<String, Error> {
    let mut json = Vec::new();
    let mut serializer = Serializer::new(&mut json);
    let mut map = serializer.serialize_map(None)?;
    map.serialize_entry("time", &humantime::format_rfc3339_micros(SystemTime::now()).to_string())?;
    map.serialize_entry("level", event.metadata().level().as_str())?;
    let mut fields = SerdeMapVisitor::new(map);
    event.record(&mut fields);
    fields.finish()?;
    String::from_utf8(json).map_err(Error::custom)
}
