//! ACL files: what they allow, and what is said about bad ones.

use acl::{Acl, AclError, load};
use logging::escape::escaped;

fn parsed(text: &str) -> Acl {
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
    let acl = parsed(
        r#"{ "rules": [
        { "identity": "spiffe://prod/worker/*", "locks": ["nightly/*", "shard-?"] },
        { "identity": "spiffe://prod/*", "locks": ["shared"] },
        { "identity": "admin.svc", "locks": ["*"] } ] }"#,
    );
    assert_eq!(acl.count(), 3);
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
    let nothing = parsed(r#"{"rules":[]}"#);
    assert!(!nothing.allows("", "lock") && !nothing.allows("admin", "lock"));
    assert!(parsed(r#"{"rules":[{"locks":["lock"],"identity":"*"}]}"#).allows("", "lock"));
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
    assert_eq!(load(&good).unwrap().count(), 0);
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
