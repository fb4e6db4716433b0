//! Where the admin API listens, and which host names it goes by.

use cli::{AdminAddress, HostName};

/// The longest path of a Unix socket, which has a byte for its end besides.
const UNIX_PATH_LEN_MAX: usize = 107;

#[test]
fn the_admin_api_listens_on_an_address_or_on_a_unix_socket() {
    for text in ["127.0.0.1:9091", ":9091", "unix:/run/monolock/admin.sock", "unix:/a b:c"] {
        assert_eq!(text.parse::<AdminAddress>().unwrap().to_string(), text);
    }
    let longest = format!("unix:/{}", "x".repeat(UNIX_PATH_LEN_MAX - 1));
    let AdminAddress::Unix(path) = longest.parse().unwrap() else { panic!() };
    // The standard library's limit is the system's.
    assert!(std::os::unix::net::SocketAddr::from_pathname(&path).is_ok());
    assert!(std::os::unix::net::SocketAddr::from_pathname(path.join("x")).is_err());

    let too_long = format!("{longest}x");
    for text in ["", "unix:", "unix:7070", "unix:run/a", "unix:@a", "unix:/a\u{fffd}", "unix", &too_long] {
        assert!(text.parse::<AdminAddress>().is_err(), "{text}");
    }
}

#[test]
fn host_names_are_listed_with_commas_and_equal_in_any_case() {
    let names = HostName::list("locks.Example, a-b_c,x,0a").unwrap();
    assert_eq!(names.len(), 4);
    assert!(names[0] == *"LOCKS.example" && names[0] != *"locks" && names[1] == *"a-b_c");
    assert_eq!(HostName::list(""), Ok(vec![]));
}

#[test]
fn what_is_no_host_name_is_called_by_itself() {
    let (label, name) = ("a".repeat(64), "a.".repeat(127));
    for text in [
        ",",
        "a,",
        "a,,b",
        "a:80",
        "http://a",
        "a/b",
        "*",
        "*.example",
        "a b",
        ".a",
        "a.",
        "-a",
        "a-",
        "é",
        "127.0.0.1",
        "[::1]",
        "::1",
        "a.7",
        "a\nb",
        &label,
        &name,
    ] {
        let problem = HostName::list(text).unwrap_err();
        assert!(problem.contains("is not a host name"), "{text}: {problem}");
        assert!(!problem.contains(char::is_control), "{problem:?}");
    }
    assert!(HostName::list("good,b:1").unwrap_err().starts_with("\"b:1\" is not"));
}
