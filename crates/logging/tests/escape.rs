//! Which characters are escaped, and that nothing is lost by it.

use logging::escape::{escaped, must_be_escaped, shown};

#[test]
fn every_character_that_takes_no_place_of_its_own_on_a_terminal_is_escaped_unless_it_joins_a_letter() {
    use unicode_properties::{GeneralCategoryGroup, UnicodeGeneralCategory};
    use unicode_width::UnicodeWidthChar;
    for c in '\0'..=char::MAX {
        // Marks, letters like the vowels of Hangul, and a sign of Devanagari. The blank ones are named below.
        let group = c.general_category_group();
        let joins =
            matches!(group, GeneralCategoryGroup::Mark | GeneralCategoryGroup::Letter) || c == '\u{a8fa}';
        let is_unseen = c.width().unwrap_or_default() == 0 && !joins || c.is_whitespace() && c != ' ';
        assert!(!is_unseen || must_be_escaped(c), "{c:?}");
    }
}

#[test]
fn bidirectional_controls_tags_and_blanks_are_escaped_and_what_people_write_is_not() {
    for c in "\u{200b}\u{200d}\u{200e}\u{202a}\u{202e}\u{2066}\u{2069}\u{61c}\u{2028}\u{feff}\u{ad}\u{34f}\u{180e}\u{2800}\u{3000}\u{3164}\u{fe0f}\u{fff9}\u{e000}\u{e0041}\u{e0100}\u{10ffff}".chars() {
        assert!(must_be_escaped(c), "{c:?}");
    }
    for text in [
        "naïve-Ωμέγα",
        "ночь/копия",
        "日本語",
        "한국어",
        "हिन्दी",
        "ไทย",
        "العربية",
        "e\u{301}",
        "🔒",
        "a b\\c~\u{fffd}",
    ] {
        assert_eq!(escaped(text), text);
        assert_eq!(shown(text), text);
    }
}

#[test]
fn a_json_reader_gets_every_character_back() {
    let all: String = ('\0'..=char::MAX).collect();
    let json = escaped(&serde_json::to_string(&all).unwrap());
    assert!(!json.contains(must_be_escaped));
    assert!(serde_json::from_str::<String>(&json).unwrap() == all);
}

#[test]
fn bare_texts_that_differ_are_shown_differently() {
    for (text, expected) in [
        (" a b ", "\\u0020a b\\u0020"),
        ("  ", "\\u0020\\u0020"),
        ("", ""),
        ("a\u{200b}", "a\\u200b"),
        ("a\\u200b", "a\\u005cu200b"),
        ("a\\\\u", "a\\\\u005cu"),
        ("C:\\a", "C:\\a"),
        ("\u{e0041}", "\\udb40\\udc41"),
    ] {
        assert_eq!(shown(text), expected);
    }
}
