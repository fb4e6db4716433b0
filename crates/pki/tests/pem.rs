//! Files of PEM: read in whole or refused.

use pki::pem::{Malformed, Section, sections};
use proptest::prelude::*;

const ONE: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";

fn labels(file: &[u8]) -> Vec<String> {
    sections(file).unwrap().iter().map(|section| section.label.to_owned()).collect()
}

#[track_caller]
fn refused(file: impl AsRef<[u8]>, expected: &str) {
    assert_eq!(sections(file.as_ref()).unwrap_err().to_string(), expected);
}

#[test]
fn sections_are_found_whatever_surrounds_them_and_their_lines() {
    let expected = Section { line: 1, label: "CERTIFICATE", body: vec![b"AAAA"] };
    assert_eq!(sections(ONE.as_bytes()), Ok(vec![expected.clone()]));
    assert_eq!(sections(b""), Ok(vec![]));
    assert_eq!(sections(b"to be done\n"), Ok(vec![]));
    for (what, file) in [
        ("a byte order mark", format!("\u{feff}{ONE}")),
        ("CR LF", ONE.replace('\n', "\r\n")),
        ("CR", ONE.replace('\n', "\r")),
        ("indentation", ONE.lines().map(|line| format!("  \t{line}\n")).collect()),
        ("spaces behind", ONE.replace('\n', "  \n")),
        ("no end of the last line", ONE.trim_end().to_owned()),
    ] {
        assert_eq!(sections(file.as_bytes()).as_deref(), Ok(&[expected.clone()][..]), "{what}");
    }
}

#[test]
fn files_put_together_keep_all_their_sections_and_their_text() {
    let file = format!("\u{feff}Root A\n{ONE}\n# b: \n\u{feff}{ONE}bye\n");
    let lines: Vec<_> = sections(file.as_bytes()).unwrap().iter().map(|section| section.line).collect();
    assert_eq!(lines, [2, 7]);
    let latin_1 = [b"Autorit\xe9 --- A ---\n", ONE.as_bytes()].concat();
    assert_eq!(labels(&latin_1), ["CERTIFICATE"]);
    assert_eq!(labels(format!("--- END OF THE FIRST PART ---\n{ONE}").as_bytes()), ["CERTIFICATE"]);
}

#[test]
fn a_line_that_looks_like_begin_or_end_and_is_not_is_refused() {
    let mark = "line 1: BEGIN and END lines must stand alone, as -----BEGIN CERTIFICATE----- does";
    for wrong in [
        "# -----BEGIN CERTIFICATE-----",
        "x-----BEGIN CERTIFICATE-----",
        "-----BEGIN CERTIFICATE",
        "-----BEGIN CERTIFICATE----",
        "-----BEGIN CERTIFICATE------",
        "----BEGIN CERTIFICATE-----",
        "-----BEGIN -----",
        "-----BEGIN-----",
        "----- BEGIN CERTIFICATE -----",
        "\u{a0}-----BEGIN CERTIFICATE-----",
        "\u{2014}\u{2014}BEGIN CERTIFICATE\u{2014}\u{2014}",
        "---- BEGIN SSH2 PUBLIC KEY ----",
    ] {
        refused(format!("{wrong}\nAAAA\n-----END CERTIFICATE-----\n"), mark);
    }
    let glued = format!("{}{ONE}", ONE.trim_end());
    refused(glued, &mark.replace('1', "3"));
    refused(ONE.replace("-----END CERTIFICATE-----", "-----END CERTIFICATE----- #"), &mark.replace('1', "3"));
}

#[test]
fn a_begin_without_its_end_and_an_end_without_its_begin_are_refused() {
    let (begin, rest) = ONE.split_once('\n').unwrap();
    refused(format!("{begin}\nAAAA\n"), "line 1: this CERTIFICATE has no END line");
    refused(format!("{begin}\nAAAA\n{ONE}"), "line 1: this CERTIFICATE has no END line");
    refused(rest, "line 2: END CERTIFICATE without its BEGIN line");
    refused(ONE.replace("END CERTIFICATE", "END X"), "line 3: END X where END CERTIFICATE belongs");
}

#[test]
fn what_is_no_text_is_refused_and_named() {
    let two_bytes = |order: fn(u16) -> [u8; 2]| ONE.encode_utf16().flat_map(order).collect::<Vec<u8>>();
    for order in [u16::to_le_bytes, u16::to_be_bytes] {
        let text = two_bytes(order);
        refused([&order(0xfeff)[..], &text].concat(), "it is UTF-16: save it as UTF-8 or ASCII");
        refused(text, "it is UTF-16: save it as UTF-8 or ASCII");
    }
    assert_eq!(sections(&[0x30, 0x82, 1, 0x1f]), Err(Malformed::Der));
    assert_eq!(sections(&[0x30, 3, 2, 1, 0]), Err(Malformed::Der));
    assert_eq!(sections(b"0\n"), Ok(vec![]));
    assert_eq!(sections(format!("{ONE}\0\n{ONE}").as_bytes()), Err(Malformed::Nul(4)));
    assert_eq!(sections(ONE.replace("AAAA", "AA\0A").as_bytes()), Err(Malformed::Nul(2)));
}

proptest! {
    /// The sections of a file are as many as its BEGINs, or it is refused: whatever else stands there.
    #[test]
    fn every_begin_is_accounted_for(parts in proptest::collection::vec(part(), 0..12)) {
        let file = parts.concat();
        if let Ok(sections) = sections(file.as_bytes()) {
            prop_assert_eq!(sections.len(), file.matches("-----BEGIN").count(), "{:?}", file);
            prop_assert_eq!(sections.len(), file.matches("-----END").count(), "{:?}", file);
        }
    }
}

fn part() -> impl Strategy<Value = String> {
    let parts = [
        ONE,
        "-----BEGIN CERTIFICATE-----",
        "-----END CERTIFICATE-----",
        "-----BEGIN PRIVATE KEY-----",
        "-----END PRIVATE KEY-----",
        "\n",
        "\r",
        "\r\n",
        " ",
        "\u{feff}",
        "AAAA",
        "#",
        "-",
        "\0",
        "é",
        "\u{85}",
    ];
    (0..parts.len()).prop_map(move |index| parts[index].to_owned())
}
