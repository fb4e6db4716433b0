//! The ACL: which identity may ask for which locks.
//!
//! It decides from two texts, an identity and the name of a lock, and knows nothing of certificates or
//! sessions. A file is an ACL as a whole or not at all; there is no rule that forbids, and what no rule
//! allows is refused.
//!
//! ```
//! let acl = acl::Acl::parse(br#"{"rules": [{"identity": "spiffe://prod/*", "locks": ["nightly/*"]}]}"#)?;
//! assert!(acl.allows("spiffe://prod/worker", "nightly/backup"));
//! assert!(!acl.allows("spiffe://prod/worker", "daily/backup"));
//! # Ok::<_, acl::AclError>(())
//! ```
#![forbid(unsafe_code)]

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
pub struct Acl {
    rules: Vec<Rule>,
}

#[derive(Debug, Clone, PartialEq)]
struct Rule {
    identity: WildMatch,
    locks: Vec<WildMatch>,
}

/// Why a text is no ACL. Its message is one line; the operator's mistake.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AclError {
    /// It is UTF-8 or UTF-16 with a mark that JSON does not have.
    #[error("it starts with a byte order mark: save it as UTF-8 without one")]
    ByteOrderMark,
    /// Where in the text, and what is wrong.
    #[error("{0}")]
    Document(String),
}

/// Why an ACL file was not taken. Its message is one line.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", escaped(&path.to_string_lossy()))]
pub struct FileError {
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
///
/// # Errors
///
/// It cannot be read, or is no ACL.
pub fn load(path: &Path) -> Result<Acl, FileError> {
    let load = || -> Result<Acl, FileProblem> { Ok(Acl::parse(&file::read(path)?)?) };
    load().map_err(|problem| FileError { path: path.to_owned(), problem })
}

impl Acl {
    /// Understands `{"rules": [{"identity": GLOB, "locks": [GLOB, …]}, …]}`. No rules at all is legal, and
    /// allows nothing.
    ///
    /// # Errors
    ///
    /// The first mistake, with its place.
    pub fn parse(bytes: &[u8]) -> Result<Self, AclError> {
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
    pub fn allows(&self, identity: &str, lock: &str) -> bool {
        self.rules
            .iter()
            .any(|rule| rule.identity.matches(identity) && rule.locks.iter().any(|locks| locks.matches(lock)))
    }

    /// How many rules there are.
    pub fn count(&self) -> usize {
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
