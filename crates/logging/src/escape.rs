//! Escapes what must not reach a terminal or break a line, and what nobody would see there.

use std::fmt::Write;

use unicode_properties::{GeneralCategory, UnicodeGeneralCategory};

/// Characters that a terminal or a reader of lines may obey instead of showing, or that show nothing of their
/// own, so that two names look alike: all but letters, marks, numbers, punctuation, symbols and the plain
/// space.
pub fn must_be_escaped(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_control();
    }
    match c.general_category() {
        GeneralCategory::Control
        | GeneralCategory::Format
        | GeneralCategory::LineSeparator
        | GeneralCategory::ParagraphSeparator
        | GeneralCategory::SpaceSeparator
        | GeneralCategory::PrivateUse
        | GeneralCategory::Surrogate
        | GeneralCategory::Unassigned => true,
        _ => is_blank(c),
    }
}

/// Letters, marks and symbols that are blank: Unicode's default ignorable code points of these categories,
/// the Braille pattern without dots, the musical null notehead and the Khitan filler.
fn is_blank(c: char) -> bool {
    matches!(c,
        '\u{34f}'
        | '\u{115f}'..='\u{1160}'
        | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}'
        | '\u{2800}'
        | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}'
        | '\u{ffa0}'
        | '\u{16fe4}'
        | '\u{1d159}'
        | '\u{e0100}'..='\u{e01ef}')
}

/// A text in which a backslash is no character of a name, as JSON or a sentence with quoted names, as it may
/// be shown. An escape reads `\u001b`, which is right in a JSON string too: a character beyond U+FFFF is two
/// of them.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if must_be_escaped(c) {
            escape(c, &mut escaped);
        } else {
            escaped.push(c);
        }
    }
    escaped
}

/// A name, an identity or another bare text as it may be shown: no two look alike because one has what is not
/// seen. So the spaces at its ends are escaped too, and a backslash that would begin what reads as an escape.
pub fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let inner = text.trim_matches(' ');
    let before = text.len() - text.trim_start_matches(' ').len();
    for (at, c) in text.char_indices() {
        let is_outside = c == ' ' && !(before..before + inner.len()).contains(&at);
        let reads_as_escape = c == '\\' && text[at + 1..].starts_with('u');
        if is_outside || reads_as_escape || must_be_escaped(c) {
            escape(c, &mut shown);
        } else {
            shown.push(c);
        }
    }
    shown
}

fn escape(c: char, to: &mut String) {
    for unit in c.encode_utf16(&mut [0; 2]) {
        write!(to, "\\u{unit:04x}").expect("a string takes everything");
    }
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
