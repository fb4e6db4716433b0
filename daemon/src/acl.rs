//! The ACL: which identity may ask for which locks.

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

use logging::escape::escaped;
use pki::file;
use wildmatch::WildMatch;

/// Rules in no order: what one of them allows is allowed, all else is not.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Acl {
    rules: Vec<Rule>,
}

#[derive(Debug, Clone, PartialEq)]
struct Rule {
    identity: WildMatch,
    locks: Vec<WildMatch>,
}

/// Why a text is no ACL. Its message is one line; the operator's mistake.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AclError {
    #[error("it starts with a byte order mark: save it as UTF-8 without one")]
    ByteOrderMark,
    /// Where in the text, and what is wrong.
    #[error("{0}")]
    Document(String),
}

/// Why an ACL file was not taken. Its message is one line.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", escaped(&path.to_string_lossy()))]
pub(crate) struct FileError {
    path: PathBuf,
    problem: FileProblem,
}

#[derive(Debug, thiserror::Error)]
enum FileProblem {
    #[error("cannot read it: {0}")]
    Read(#[from] io::Error),
    #[error(transparent)]
    Acl(#[from] AclError),
}

/// Reads the ACL in a file.
pub(crate) fn load(path: &Path) -> Result<Acl, FileError> {
    let load = || -> Result<Acl, FileProblem> { Ok(Acl::parse(&file::read(path)?)?) };
    load().map_err(|problem| FileError { path: path.to_owned(), problem })
}

impl Acl {
    /// Understands `{"rules": [{"identity": GLOB, "locks": [GLOB, …]}, …]}`. No rules at all is legal, and allows nothing.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, AclError> {
        const BYTE_ORDER_MARKS: [&[u8]; 3] = [b"\xef\xbb\xbf", b"\xfe\xff", b"\xff\xfe"];
        if BYTE_ORDER_MARKS.iter().any(|mark| bytes.starts_with(mark)) {
            return Err(AclError::ByteOrderMark);
        }
        let mut json = serde_json::Deserializer::from_slice(bytes);
        let document: Object<Document> = serde_path_to_error::deserialize(&mut json)
            .map_err(|error| AclError::Document(message(&error)))?;
        json.end().map_err(|error| AclError::Document(format!("after the rules: {error}")))?;
        let rules = document.0.rules.into_iter().map(|rule| Rule {
            identity: rule.0.identity.0,
            locks: rule.0.locks.0.into_iter().map(|lock| lock.0).collect(),
        });
        Ok(Self { rules: rules.collect() })
    }

    /// Whether `identity` may ask for `lock`.
    pub(crate) fn allows(&self, identity: &str, lock: &str) -> bool {
        self.rules
            .iter()
            .any(|rule| rule.identity.matches(identity) && rule.locks.iter().any(|locks| locks.matches(lock)))
    }

    /// How many rules there are.
    pub(crate) fn len(&self) -> usize {
        self.rules.len()
    }
}

/// `rules[2].locks: what is wrong at line 7 column 3`.
fn message(error: &serde_path_to_error::Error<serde_json::Error>) -> String {
    let (path, problem) = (error.path().to_string(), error.inner().to_string());
    // The document itself is a dot; a question mark stands where the text ends before it names a place.
    let place = path.trim_end_matches(['.', '?']);
    if place.is_empty() { escaped(&problem) } else { escaped(&format!("{place}: {problem}")) }
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    rules: Vec<Object<RuleText>>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleText {
    identity: Pattern,
    locks: Patterns,
}

#[derive(serde::Deserialize)]
#[serde(try_from = "String")]
struct Pattern(WildMatch);

impl TryFrom<String> for Pattern {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        if text.is_empty() {
            Err("an empty pattern matches nothing")
        } else {
            Ok(Self(WildMatch::new(&text)))
        }
    }
}

#[derive(serde::Deserialize)]
#[serde(try_from = "Vec<Pattern>")]
struct Patterns(Vec<Pattern>);

impl TryFrom<Vec<Pattern>> for Patterns {
    type Error = &'static str;

    fn try_from(patterns: Vec<Pattern>) -> Result<Self, Self::Error> {
        if patterns.is_empty() { Err("a rule without locks allows nothing") } else { Ok(Self(patterns)) }
    }
}

/// A structure written as a JSON object. serde alone would take an array of its fields in order, too.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
            type Value = T;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map))
            }
        }

        deserializer.deserialize_map(ObjectVisitor(PhantomData)).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(text: &str) -> Acl {
        Acl::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn error(text: &str) -> String {
        match Acl::parse(text.as_bytes()) {
            Err(error) => error.to_string(),
            Ok(acl) => panic!("{text}: {acl:?}"),
        }
    }

    #[test]
    fn what_any_rule_allows_is_allowed_and_nothing_else() {
        let acl = acl(r#"{ "rules": [
            { "identity": "spiffe://prod/worker/*", "locks": ["nightly/*", "shard-?"] },
            { "identity": "spiffe://prod/*", "locks": ["shared"] },
            { "identity": "admin.svc", "locks": ["*"] } ] }"#);
        assert_eq!(acl.len(), 3);
        for (identity, lock) in [
            ("spiffe://prod/worker/7", "nightly/a/b"),
            ("spiffe://prod/worker/7", "shard-1"),
            ("spiffe://prod/worker/7", "shared"),
            ("spiffe://prod/web", "shared"),
            ("admin.svc", "anything"),
        ] {
            assert!(acl.allows(identity, lock), "{identity} {lock}");
        }
        for (identity, lock) in [
            ("spiffe://prod/web", "shard-1"),
            ("spiffe://prod/worker/7", "shard-12"),
            ("spiffe://test/worker/7", "nightly/a"),
            ("Admin.svc", "anything"),
            ("xadmin.svc", "anything"),
            ("", "anything"),
        ] {
            assert!(!acl.allows(identity, lock), "{identity} {lock}");
        }
    }

    #[test]
    fn no_rules_allow_nothing_and_a_certificate_without_a_name_is_the_empty_identity() {
        let nothing = acl(r#"{"rules":[]}"#);
        assert!(!nothing.allows("", "lock") && !nothing.allows("admin", "lock"));
        assert!(acl(r#"{"rules":[{"locks":["lock"],"identity":"*"}]}"#).allows("", "lock"));
    }

    #[test]
    fn a_mistake_is_named_with_its_place() {
        for (text, start) in [
            (r#"{}"#, "missing field `rules` at line 1 column 2"),
            (r#"{"rules":{}}"#, "rules: invalid type: map"),
            (r#"{"rules":null}"#, "rules: invalid type: null"),
            (r#"{"rules":[],"more":1}"#, "more: unknown field `more`, expected `rules` at line 1 column 18"),
            (r#"{"rules":[],"rules":[]}"#, "duplicate field `rules` at line 1 column 19"),
            (r#"[[]]"#, "invalid type: sequence, expected an object"),
            (r#"{"rules":[["a",["b"]]]}"#, "rules[0]: invalid type: sequence, expected an object"),
            (r#"{"rules":[7]}"#, "rules[0]: invalid type: integer `7`, expected an object"),
            (r#"{"rules":[{"locks":["a"]}]}"#, "rules[0]: missing field `identity`"),
            (r#"{"rules":[{"identity":"a"}]}"#, "rules[0]: missing field `locks`"),
            (r#"{"rules":[{"identity":"","locks":["a"]}]}"#, "rules[0].identity: an empty pattern"),
            (r#"{"rules":[{"identity":7,"locks":["a"]}]}"#, "rules[0].identity: invalid type: integer `7`"),
            (r#"{"rules":[{"identity":"a","locks":"b"}]}"#, "rules[0].locks: invalid type: string \"b\""),
            (r#"{"rules":[{"identity":"a","locks":[]}]}"#, "rules[0].locks: a rule without locks"),
            (r#"{"rules":[{"identity":"a","locks":["b",""]}]}"#, "rules[0].locks[1]: an empty pattern"),
            (r#"{"rules":[{"identity":"a","locks":["b",null]}]}"#, "rules[0].locks[1]: invalid type: null"),
            (r#"{"rules":[{"identity":"a","locks":["b"],"lock":1}]}"#, "rules[0].lock: unknown field `lock`"),
            (
                r#"{"rules":[{"identity":"a","locks":["b"],"identity":"c"}]}"#,
                "rules[0]: duplicate field `identity`",
            ),
            (
                "{\"rules\":[\n {\"identity\":\"a\",\"locks\":[b]}]}",
                "rules[0].locks[0]: expected value at line 2 column 27",
            ),
            (r#"{"rules":[]"#, "EOF while parsing an object at line 1 column 11"),
            (r#"{"rules":[{"identity":"a","#, "rules[0]: EOF while parsing"),
            (r#"{"rules":[]} x"#, "after the rules: trailing characters at line 1 column 14"),
            (r#"{"rules":[]}{"rules":[]}"#, "after the rules: trailing characters"),
            ("", "EOF while parsing a value"),
        ] {
            let error = error(text);
            assert!(error.starts_with(start), "{text}\n{error}");
        }
        // Counted from 0, as in the paths of jq.
        let two = r#"{"identity":"a","locks":["b"]},{"identity":"a","locks":["b"]}"#;
        assert!(
            error(&format!(r#"{{"rules":[{two},{{"identity":"a","locks":3}}]}}"#))
                .starts_with("rules[2].locks: ")
        );
    }

    #[test]
    fn a_byte_order_mark_is_called_by_its_name() {
        for text in [&b"\xef\xbb\xbf{\"rules\":[]}"[..], b"\xff\xfe{\0", b"\xfe\xff\0{"] {
            assert_eq!(Acl::parse(text), Err(AclError::ByteOrderMark));
        }
    }

    #[test]
    fn an_error_is_one_line_whatever_the_file_holds() {
        for text in [r#"{"a\nb\u001b[31m\u202e":1}"#, r#"{"rules":[{"identity":"a","locks":"\n\u009b"}]}"#] {
            let error = error(text);
            assert!(!error.contains(logging::escape::must_be_escaped), "{error:?}");
        }
        assert!(Acl::parse(b"{\"rules\":[{\"identity\":\"\xff\",\"locks\":[\"a\"]}]}").is_err());
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        let good = file("good", br#"{"rules":[]}"#);
        assert_eq!(load(&good).unwrap().len(), 0);
        for (path, problem) in [
            (folder.path().join("missing\n"), "cannot read it: No such file"),
            (folder.path().to_owned(), "cannot read it: Is a directory"),
            (file("bad", b"{}"), "missing field `rules` at line 1 column 2"),
        ] {
            let error = load(&path).unwrap_err().to_string();
            let start = format!("{}: {problem}", escaped(path.to_str().unwrap()));
            assert!(error.starts_with(&start), "{error}");
        }
    }
}
