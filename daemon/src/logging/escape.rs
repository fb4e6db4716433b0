//! Escapes what must not reach a terminal or break a line.

use std::fmt::Write;

/// Characters that a terminal or a reader of lines may obey instead of showing: controls, line and paragraph
/// separators, and those that reorder the text around them.
pub(crate) fn must_be_escaped(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The text as it may be shown. An escape reads `\u001b`, which is right in a JSON string too.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if must_be_escaped(c) {
            write!(escaped, "\\u{:04x}", u32::from(c)).expect("a string takes everything");
        } else {
            escaped.push(c);
        }
    }
    escaped
}

/// A whole line, with its newline, as it may be written.
pub(super) fn line(bytes: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(bytes);
    let mut line = escaped(text.strip_suffix('\n').unwrap_or(&text));
    line.push('\n');
    line.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_keeps_its_newline_and_no_other_control_character() {
        assert_eq!(line(b"plain \xc3\xa9\n"), b"plain \xc3\xa9\n");
        assert_eq!(line(b"a\nb\x1b\x7f\xc2\x9b\xe2\x80\xae\n"), b"a\\u000ab\\u001b\\u007f\\u009b\\u202e\n");
        assert_eq!(line(b"no newline"), b"no newline\n");
        assert_eq!(line(b"\xff\n"), "\u{fffd}\n".as_bytes());
    }
}
