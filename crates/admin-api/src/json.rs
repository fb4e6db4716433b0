//! JSON as the admin API writes it: what a terminal would obey comes out escaped.

use std::io;

use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::Formatter;

use logging::escape::escaped;

/// A value as a line of JSON.
pub fn line(value: &impl Serialize) -> Vec<u8> {
    let mut line = Vec::new();
    let written = value.serialize(&mut Serializer::with_formatter(&mut line, Escaping));
    written.expect("what the API says can be written to memory");
    line.push(b'\n');
    line
}

/// Compact, and with more escapes than JSON asks for.
struct Escaping;

impl Formatter for Escaping {
    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        if fragment.is_ascii() && !fragment.contains('\u{7f}') {
            writer.write_all(fragment.as_bytes())
        } else {
            writer.write_all(escaped(fragment).as_bytes())
        }
    }
}
