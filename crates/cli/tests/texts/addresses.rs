//! Addresses to listen on.

use cli::ListenAddress;

fn parsed(text: &str) -> ListenAddress {
    text.parse().unwrap()
}

#[tokio::test]
async fn the_empty_host_and_both_wildcards_are_one_dual_stack_address() {
    for text in [":7070", "0.0.0.0:7070", "[::]:7070"] {
        assert_eq!(parsed(text), parsed(":7070"));
        assert_eq!(parsed(text).resolve().await.unwrap(), ["[::]:7070".parse().unwrap()]);
    }
}

#[tokio::test]
async fn an_address_stands_for_itself_and_a_name_for_what_it_resolves_to() {
    for text in ["127.0.0.1:0", "[::1]:65535"] {
        assert_eq!(parsed(text).to_string(), text);
        assert_eq!(parsed(text).resolve().await.unwrap(), [text.parse().unwrap()]);
    }
    let localhost = parsed("localhost:7070").resolve().await.unwrap();
    assert!(localhost.iter().all(|address| address.ip().is_loopback() && address.port() == 7070));
    assert!(!localhost.is_empty());
}

#[test]
fn an_address_needs_a_port_and_ipv6_its_brackets() {
    for text in [
        "",
        "7070",
        "localhost",
        "localhost:",
        ":",
        "::1:7070",
        "[::1]",
        "[::1]:",
        "[::1]7070",
        "[::1:7070",
        "[localhost]:7070",
        "localhost:http",
        ":65536",
        ":-1",
        ":+1",
        "a b:1",
        "http://localhost:1",
        "unix:/path",
    ] {
        assert!(text.parse::<ListenAddress>().is_err(), "{text:?}");
    }
}
