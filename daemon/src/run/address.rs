//! Where the server is: the flag beats the variable, and that beats the default.

/// The variable; unset when empty, like those of the server.
const VARIABLE: &str = "MONOLOCK_ADDRESS";

/// A server on this machine, on its default port.
const DEFAULT: &str = "127.0.0.1:7070";

/// Checks what looks like `host:port`. Whether the host exists is found out when it is dialled.
pub(crate) fn parse(text: &str) -> Result<String, String> {
    let Some((host, port)) = text.rsplit_once(':').filter(|(host, _)| !host.is_empty()) else {
        return Err("a host and a port are expected, as in 127.0.0.1:7070".into());
    };
    if host.contains(|c: char| c.is_control() || c.is_whitespace()) {
        return Err("a host has no white space".into());
    }
    match port.parse::<u16>() {
        Ok(1..) => Ok(text.to_owned()),
        Ok(0) | Err(_) => Err("the port must be a number from 1 to 65535".into()),
    }
}

/// The address to dial.
pub(crate) fn resolve(
    flag: Option<&str>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<String, String> {
    match (flag, variable(VARIABLE).filter(|value| !value.is_empty())) {
        (Some(address), _) => Ok(address.to_owned()),
        (None, Some(value)) => {
            parse(&value).map_err(|problem| format!("{VARIABLE}: invalid value {value:?}: {problem}"))
        }
        (None, None) => Ok(DEFAULT.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_a_port() {
        for good in ["127.0.0.1:7070", "[::1]:1", "lock.example:65535", "localhost:07"] {
            assert_eq!(parse(good).as_deref(), Ok(good));
        }
        for bad in
            ["", ":", ":7070", "localhost", "localhost:", "localhost:0", "a:65536", "a:-1", "a b:1", "a\n:1"]
        {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_flag_beats_the_variable_and_an_empty_variable_is_unset() {
        let resolved = |flag, value: Option<&str>| resolve(flag, |_| value.map(str::to_owned));
        assert_eq!(resolved(Some("a:1"), Some("b:2")).as_deref(), Ok("a:1"));
        assert_eq!(resolved(None, Some("b:2")).as_deref(), Ok("b:2"));
        assert_eq!(resolved(None, Some("")).as_deref(), Ok(DEFAULT));
        assert_eq!(resolved(None, None).as_deref(), Ok(DEFAULT));
        let problem = resolved(None, Some("b")).unwrap_err();
        assert!(problem.starts_with("MONOLOCK_ADDRESS: invalid value \"b\": "), "{problem}");
    }
}
