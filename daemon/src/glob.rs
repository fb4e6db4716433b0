//! Globs, as the ACL and the admin API take them: `*` is any run of characters, `?` exactly one, all else itself.

use std::str::Chars;

/// A pattern for a whole string. There are no escapes and no classes; `*` and `?` match `/` too, and a character is one
/// Unicode scalar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Glob {
    pattern: Box<str>,
}

impl Glob {
    /// Every text is a pattern.
    pub(crate) fn new(pattern: &str) -> Self {
        Self { pattern: pattern.into() }
    }

    /// Whether the whole of `text` has this form. Takes at most (pattern + 1) × (text + 1) steps, and no memory.
    pub(crate) fn matches(&self, text: &str) -> bool {
        matches(self.pattern.chars(), text.chars(), || ())
    }
}

/// Calls `step` once for each pair of characters that is looked at.
///
/// When something after a `*` does not fit, only the last `*` has to take one character more: whatever an earlier one
/// could take instead, the last can take as well.
fn matches(mut pattern: Chars<'_>, mut text: Chars<'_>, mut step: impl FnMut()) -> bool {
    // What follows the last `*`, and the text from where that was tried.
    let mut last_star: Option<(Chars<'_>, Chars<'_>)> = None;
    loop {
        step();
        let text_here = text.clone();
        match (pattern.next(), text.next()) {
            (Some('*'), _) => {
                text = text_here;
                last_star = Some((pattern.clone(), text.clone()));
            }
            (None, None) => return true,
            // No later start leaves more of the text.
            (Some(_), None) => return false,
            (Some(expected), Some(found)) if expected == '?' || expected == found => {}
            (_, Some(_)) => {
                let Some((after_star, tried_from)) = &mut last_star else { return false };
                tried_from.next();
                pattern = after_star.clone();
                text = tried_from.clone();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_match(pattern: &str, text: &str) -> bool {
        Glob::new(pattern).matches(text)
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
        let seed =
            std::env::var(SEED_VARIABLE).map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
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

    #[test]
    fn the_worst_patterns_take_no_more_steps_than_pattern_times_text() {
        let text = "a".repeat(2000);
        for pattern in ["*a*a*a*b", "*a*a*a*a*a*a*a*a*b", "a*a*?*b*", &"*?".repeat(900), &"*a".repeat(2001)] {
            let bound = (pattern.chars().count() + 1) * (text.chars().count() + 1);
            let mut steps = 0;
            // Checked as it goes: an exponential matcher would never come back.
            matches(pattern.chars(), text.chars(), || {
                steps += 1;
                assert!(steps <= bound, "{pattern:.20}: more than {bound} steps");
            });
        }
        // The bound is reached, within a small factor, so that it says something.
        let pattern = format!("*{}b", "a".repeat(1000));
        let mut steps = 0;
        matches(pattern.chars(), text.chars(), || steps += 1);
        assert!((1000 * 1000..=1003 * 2001).contains(&steps), "{steps}");
    }
}
