//! Globs, as the ACL and the admin API take them: `*` is any run of characters, `?` exactly one, all else
//! itself. There are no escapes and no classes; `*` and `?` match `/` too, and a character is one Unicode
//! scalar.

use wildmatch::WildMatch;

fn is_match(pattern: &str, text: &str) -> bool {
    WildMatch::new(pattern).matches(text)
}

/// The definition, word for word. Exponential.
fn oracle(pattern: &[char], text: &[char]) -> bool {
    match pattern {
        [] => text.is_empty(),
        ['*', rest @ ..] => (0..=text.len()).any(|taken| oracle(rest, &text[taken..])),
        ['?', rest @ ..] => !text.is_empty() && oracle(rest, &text[1..]),
        [c, rest @ ..] => text.first() == Some(c) && oracle(rest, &text[1..]),
    }
}

#[test]
fn a_glob_matches_the_whole_string() {
    for (pattern, text) in [
        ("", ""),
        ("*", ""),
        ("*", "any/thing\nat all"),
        ("nightly/*", "nightly/"),
        ("nightly/*", "nightly/a/b"),
        ("shard-?", "shard-é"),
        ("shard-?", "shard-/"),
        ("a*c", "abcc"),
        ("*.svc", "a.svc.svc"),
        ("a**b", "ab"),
        ("*?", "x"),
    ] {
        assert!(is_match(pattern, text), "{pattern:?} {text:?}");
    }
    for (pattern, text) in [
        ("", "a"),
        ("a", ""),
        ("?", ""),
        ("?", "ab"),
        ("nightly/*", "nightly"),
        ("nightly/*", "xnightly/a"),
        ("job", "job2"),
        ("job", "Job"),
        ("shard-?", "shard-12"),
        // One letter to the reader, two scalars.
        ("?", "e\u{301}"),
        ("a*c", "abcd"),
        ("*?", ""),
    ] {
        assert!(!is_match(pattern, text), "{pattern:?} {text:?}");
    }
}

#[test]
fn nothing_but_the_star_and_the_question_mark_is_special() {
    for literal in [r"a\b", "[a-c]", "{a,b}", "!a", "(a|b)", "a.b", "^a$", "a+"] {
        assert!(is_match(literal, literal), "{literal}");
    }
    for (pattern, text) in [(r"\*", "*"), ("[a-c]", "a"), ("{a,b}", "a"), ("a.b", "axb"), ("a+", "aa")] {
        assert!(!is_match(pattern, text), "{pattern:?} {text:?}");
    }
    // In the text they are characters like others.
    assert!(is_match("?*", "*?") && !is_match("a", "*"));
}

#[test]
fn it_agrees_with_the_definition_on_random_patterns_and_texts() {
    const SEED_VARIABLE: &str = "GLOB_TEST_SEED";
    let seed = std::env::var(SEED_VARIABLE).map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    println!("{SEED_VARIABLE}={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut matching = 0;
    for _ in 0..50_000 {
        let mut characters = |alphabet: &[char], len_max: usize| -> Vec<char> {
            (0..random.usize(..=len_max)).map(|_| *random.choice(alphabet).unwrap()).collect()
        };
        let pattern = characters(&['*', '*', '?', 'a', 'b', 'é', '𝄞'], 8);
        let text = characters(&['a', 'b', 'é', '𝄞', '*', '?'], 10);
        let expected = oracle(&pattern, &text);
        matching += u32::from(expected);
        let (pattern, text) = (String::from_iter(pattern), String::from_iter(text));
        assert_eq!(is_match(&pattern, &text), expected, "{pattern:?} {text:?}");
    }
    assert!(matching > 1000, "a test that sees both outcomes: {matching}");
}

/// With a step for each way to share the text among the stars, the first pattern takes longer than the
/// universe has.
#[test]
fn the_worst_patterns_come_to_an_end() {
    let text = "a".repeat(2000);
    for pattern in
        ["*a*a*a*a*a*a*a*a*b", "a*a*?*b*", &"*?".repeat(900), &"*a".repeat(2001), &("*".repeat(500) + "b")]
    {
        is_match(pattern, &text);
    }
    assert!(!is_match("*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b", &text));
}
