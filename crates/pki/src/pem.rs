//! PEM, read so that nothing of it is passed over: each line that begins or ends a section does so, or the
//! file is refused.
//!
//! Other readers skip what they do not understand, such as a BEGIN line behind a byte order mark. What is
//! left out of a bundle of authorities is missed only when somebody cannot get in.

use std::fmt;

/// One section: what stands between a BEGIN line and its END line.
#[derive(Clone, PartialEq, Eq)]
pub struct Section<'a> {
    /// The number of its BEGIN line, from 1.
    pub line: usize,
    /// What it says that it is, such as `CERTIFICATE`.
    pub label: &'a str,
    /// Its lines, without what surrounds them.
    pub body: Vec<&'a [u8]>,
}

/// Without the body, which may be secret.
impl fmt::Debug for Section<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Section")
            .field("line", &self.line)
            .field("label", &self.label)
            .finish_non_exhaustive()
    }
}

/// Why a file cannot be read as PEM. Lines count from 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The file is in an encoding of two bytes a character.
    #[error("it is UTF-16: save it as UTF-8 or ASCII")]
    Utf16,
    /// The file is DER, or PKCS #12, which is DER too.
    #[error(
        "it is DER or PKCS #12 and no PEM: convert it with openssl x509 or openssl pkey, -in FILE -out NEW"
    )]
    Der,
    /// The file has a byte that no text has.
    #[error("line {0}: a NUL byte: the file is damaged or no text")]
    Nul(usize),
    /// The line has the mark of a section, and other things.
    #[error("line {0}: BEGIN and END lines must stand alone, as -----BEGIN CERTIFICATE----- does")]
    Mark(usize),
    /// A section without its END line.
    #[error("line {line}: this {label} has no END line")]
    NoEnd {
        /// Of the BEGIN line.
        line: usize,
        /// Of the section.
        label: String,
    },
    /// A section with the END line of another one.
    #[error("line {line}: END {found} where END {label} belongs")]
    OtherEnd {
        /// Of the END line.
        line: usize,
        /// Of the section.
        label: String,
        /// In the END line.
        found: String,
    },
    /// An END line without its BEGIN line.
    #[error("line {line}: END {label} without its BEGIN line")]
    NoBegin {
        /// Of the END line.
        line: usize,
        /// In the END line.
        label: String,
    },
}

/// All sections of a file, in order; none if it has only text. Text around sections is allowed. Byte order
/// marks, indentation and the ends of lines (LF, CR LF, or CR alone) do not matter.
///
/// # Errors
///
/// The first line that looks like BEGIN or END of a section and is not, or a file that is no text.
pub fn sections(file: &[u8]) -> Result<Vec<Section<'_>>, Malformed> {
    refuse_binary(file)?;
    let mut sections = Vec::new();
    let mut open: Option<Section<'_>> = None;
    for (line, text) in lines(file) {
        match (mark(text).map_err(|Broken| Malformed::Mark(line))?, open.take()) {
            (None, None) => {}
            (None, Some(mut section)) => {
                section.body.push(text);
                open = Some(section);
            }
            (Some(Mark::Begin(label)), None) => open = Some(Section { line, label, body: Vec::new() }),
            (Some(Mark::Begin(_)), Some(section)) => return Err(no_end(&section)),
            (Some(Mark::End(label)), Some(section)) if label == section.label => sections.push(section),
            (Some(Mark::End(found)), Some(section)) => {
                return Err(Malformed::OtherEnd { line, label: section.label.into(), found: found.into() });
            }
            (Some(Mark::End(label)), None) => {
                return Err(Malformed::NoBegin { line, label: label.into() });
            }
        }
    }
    match open {
        Some(section) => Err(no_end(&section)),
        None => Ok(sections),
    }
}

fn no_end(section: &Section<'_>) -> Malformed {
    Malformed::NoEnd { line: section.line, label: section.label.into() }
}

fn refuse_binary(file: &[u8]) -> Result<(), Malformed> {
    match file {
        // With a byte order mark, or ASCII in two bytes.
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] | [0, _, 0, ..] | [_, 0, _, 0, ..] => Err(Malformed::Utf16),
        // A SEQUENCE of more than 127 bytes, or of less.
        [0x30, 0x80..=0xff, ..] => Err(Malformed::Der),
        [0x30, len, rest @ ..] if rest.len() == usize::from(*len) => Err(Malformed::Der),
        _ => match lines(file).find(|(_, text)| text.contains(&0)) {
            Some((line, _)) => Err(Malformed::Nul(line)),
            None => Ok(()),
        },
    }
}

/// The lines with their numbers, without what may surround their text.
fn lines(file: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let end = if file.contains(&b'\n') { b'\n' } else { b'\r' };
    let lines = file.split(move |&byte| byte == end);
    lines.enumerate().map(|(index, line)| (index + 1, without_surroundings(line)))
}

/// A byte order mark stands in front of the file, or in the middle where files were put together.
fn without_surroundings(line: &[u8]) -> &[u8] {
    const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();
    let line = line.trim_ascii();
    line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line).trim_ascii()
}

/// A line that begins or ends a section, and the section's label.
enum Mark<'a> {
    Begin(&'a str),
    End(&'a str),
}

/// It looks like a mark, and is none.
struct Broken;

fn mark(line: &[u8]) -> Result<Option<Mark<'_>>, Broken> {
    let label = |prefix: &[u8]| {
        let label = line.strip_prefix(prefix)?.strip_suffix(b"-----")?;
        let is_label = !label.is_empty() && !label.contains(&b'-');
        str::from_utf8(label).ok().filter(|_| is_label)
    };
    match (label(b"-----BEGIN "), label(b"-----END ")) {
        (Some(label), _) => Ok(Some(Mark::Begin(label))),
        (_, Some(label)) => Ok(Some(Mark::End(label))),
        _ if looks_like_a_mark(line) => Err(Broken),
        _ => Ok(None),
    }
}

/// Also one whose hyphens a word processor made one dash of, or that lost some.
fn looks_like_a_mark(line: &[u8]) -> bool {
    let text = String::from_utf8_lossy(line);
    let is_dash = |c| matches!(c, '-' | '\u{2010}'..='\u{2015}' | '\u{2212}');
    let words = text.trim_matches(|c: char| is_dash(c) || c.is_whitespace());
    let is_word = ["BEGIN ", "END "].iter().any(|word| words.starts_with(word));
    let is_label = ["CERTIFICATE", "KEY", "CRL"].iter().any(|label| words.contains(label));
    text.contains("-----BEGIN") || text.contains("-----END") || is_word && is_label && text.contains(is_dash)
}
